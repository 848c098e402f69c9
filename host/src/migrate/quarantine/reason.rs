//! The reasons of entries, as texts for people.

use bbs_lens::LensError;
use bbs_units::RowsError;

use crate::migrate::MigrateError;

/// The reason for which a migration leaves a unit out.
pub(super) fn reason_of_error(error: &MigrateError) -> String {
    let MigrateError::Record {
        table,
        column,
        source,
        ..
    } = error
    else {
        return error.to_string();
    };
    format!("`{column}` of `{table}` does not open: {source}")
}

/// The reason for which a unit cannot be transformed.
pub(in crate::migrate) fn reason_of_unit(fault: &RowsError) -> String {
    match fault {
        RowsError::Lens(fault) => match &**fault {
            LensError::Unit { reason, .. } | LensError::Step { reason, .. } => reason.clone(),
            LensError::Counterpart { .. } | LensError::Slow { .. } => fault.to_string(),
        },
        RowsError::Sealed { table, column, .. } => format!("`{column}` of `{table}` does not open"),
        fault => fault.to_string(),
    }
}

/// A text as a column of any character set can hold it, with escapes for characters outside of ASCII.
pub(super) fn ascii(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() {
            ascii.push(c);
        } else {
            ascii.extend(c.escape_unicode());
        }
    }
    ascii
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_outside_of_ascii_are_escaped() {
        assert_eq!(
            ascii("größer \u{1f600}\n"),
            "gr\\u{f6}\\u{df}er \\u{1f600}\n"
        );
    }
}
