//! Lines for people. Owns the escapes in their fields: tracing-subscriber escapes messages and
//! errors alone, and clients choose guids.

use bbs_work::printable;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::{DefaultFields, Format, FormatFields, Writer};
use tracing_subscriber::fmt::{self, Layer, MakeWriter};

pub(super) fn layer<S, W>(writer: W, has_colors: bool) -> Layer<S, PrintableFields, Format, W>
where
    W: for<'writer> MakeWriter<'writer> + 'static,
{
    fmt::layer()
        .with_ansi(has_colors)
        .with_writer(writer)
        .fmt_fields(PrintableFields)
}

/// The default format of fields, in one line without control characters and so without colors.
#[derive(Debug)]
pub(super) struct PrintableFields;

impl<'writer> FormatFields<'writer> for PrintableFields {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> std::fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        writer.write_str(&printable::line(&text))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn field_forges_no_line_and_controls_no_terminal() {
        let mut log = tempfile::tempfile().unwrap();
        let lines = layer(log.try_clone().unwrap(), false);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            let process_guid = "x\n2026-01-01 ERROR forged\u{1b}]0;title\u{7}";
            tracing::warn!(%process_guid, index = 1, "not\nconverged");
        });
        let mut text = String::new();
        log.rewind().unwrap();
        log.read_to_string(&mut text).unwrap();
        let escaped = r"process_guid=x\n2026-01-01 ERROR forged\u{1b}]0;title\u{7}";
        let end = format!(r"not\nconverged {escaped} index=1") + "\n";
        assert!(text.ends_with(&end), "{text:?}");
        assert_eq!(text.lines().count(), 1, "{text:?}");
    }
}
