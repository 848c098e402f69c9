//! Text of others on its way to a terminal, a log or a message: of modules, registries, records,
//! and hosts that answer. Owns which characters are replaced by their escapes, so that no text
//! forges further lines or controls a terminal.

/// Whether a character ends a line, controls a terminal, or changes the order in which others are
/// displayed.
pub fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Adds a character to a line, or its escape.
pub fn push(line: &mut String, c: char) {
    if is_control(c) {
        line.extend(c.escape_default())
    } else {
        line.push(c)
    }
}

/// The text as one line.
pub fn line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    text.chars().for_each(|c| push(&mut line, c));
    line
}

/// The text with its own line ends.
pub fn lines(text: &str) -> String {
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(
            line("good\n2026 ERROR forged\u{1b}[31m"),
            "good\\n2026 ERROR forged\\u{1b}[31m"
        );
        assert_eq!(line("\r\t\0\u{7f}\u{9b}"), "\\r\\t\\u{0}\\u{7f}\\u{9b}");
        assert_eq!(line("a\u{2028}b\u{202e}c"), "a\\u{2028}b\\u{202e}c");
        assert_eq!(line("größer 東京"), "größer 東京");
        assert_eq!(lines("one\r\n\u{202e}two\n"), "one\\r\n\\u{202e}two\n");
    }
}
