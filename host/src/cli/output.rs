//! Output of commands on standard output and standard error. Owns what a failed write means: a
//! reader that has gone, such as `head`, is no failure of a command; any other error of standard
//! output is.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use crate::clock::date_and_time;

/// The form of a command's result.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(super) struct OutputForm {
    /// Print the result as one JSON value instead of text.
    #[arg(long)]
    pub(super) json: bool,
}

impl OutputForm {
    /// Prints the result of a command.
    ///
    /// # Errors
    /// As [`json`].
    pub(super) fn print<T: Display>(
        self,
        result: &impl Serialize,
        text: impl FnOnce() -> T,
    ) -> anyhow::Result<()> {
        if self.json {
            json(result)?;
        } else {
            self::text(text())?;
        }
        Ok(())
    }
}

/// The other end of an output after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputReader {
    Present,
    /// It has closed the pipe: nothing that is written reaches it.
    Gone,
}

/// Prints a text that has its newlines.
///
/// # Errors
/// Standard output cannot be written to, such as on a full disk; not if its reader has gone.
pub(super) fn text(text: impl Display) -> anyhow::Result<OutputReader> {
    let mut output = io::stdout().lock();
    match write!(output, "{text}").and_then(|()| output.flush()) {
        Ok(()) => Ok(OutputReader::Present),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(OutputReader::Gone),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}

/// Prints a line.
///
/// # Errors
/// As [`text`].
pub(super) fn line(line: impl Display) -> anyhow::Result<OutputReader> {
    text(format_args!("{line}\n"))
}

/// Prints a line about work that is done, or goes on, whether the line can be printed or not.
pub(super) fn announce(line: impl Display) {
    let _ = self::line(line);
}

/// Prints a value as JSON of several lines.
///
/// # Errors
/// As [`text`]; or the value is none of JSON's.
pub(super) fn json(value: &impl Serialize) -> anyhow::Result<OutputReader> {
    line(serde_json::to_string_pretty(value)?)
}

/// Prints a value as a line of JSON.
///
/// # Errors
/// As [`json`].
pub(super) fn json_line(value: &impl Serialize) -> anyhow::Result<OutputReader> {
    line(serde_json::to_string(value)?)
}

/// Prints a line on standard error, after which there is no other place to report an error to.
pub(super) fn note(line: impl Display) -> OutputReader {
    let written = io::stderr()
        .lock()
        .write_all(format!("{line}\n").as_bytes());
    if written.is_ok() {
        OutputReader::Present
    } else {
        OutputReader::Gone
    }
}

/// `writeln!` into a string, which cannot fail.
macro_rules! push_line {
    ($out:expr, $($part:tt)*) => {{
        use std::fmt::Write as _;
        let _ = writeln!($out, $($part)*);
    }};
}
pub(super) use push_line;

/// Rows in columns below their heads.
pub(super) fn table<const N: usize>(
    heads: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let heads = heads.map(str::to_owned);
    let rows: Vec<_> = std::iter::once(heads).chain(rows).collect();
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max();
    let widths: [_; N] = std::array::from_fn(|at| width(at).unwrap_or(0));
    let line = |row: &[String; N]| {
        let texts = row
            .iter()
            .zip(widths)
            .map(|(text, width)| format!("{text:width$}"));
        format!("{}\n", texts.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Texts below each other, each behind its name; those that are empty are left out.
pub(super) fn details<'a>(
    width: usize,
    rows: impl IntoIterator<Item = (&'a str, String)>,
) -> String {
    let rows = rows.into_iter().filter(|(_, text)| !text.is_empty());
    rows.map(|(name, text)| format!("{name:width$} {text}\n"))
        .collect()
}

/// A time in ns since 1970, as RFC 3339 writes it.
pub(super) fn time(ns: i64) -> String {
    format!("{}Z", date_and_time(ns.div_euclid(1_000_000_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_a_table_are_as_wide_as_their_widest_text() {
        let rows = [["long", "é"], ["x", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(table(["A", "B"], rows), "A     B\nlong  é\nx\n");
    }
}
