//! Diagnostics on stderr, and the escaping of every line that a command prints.
//!
//! Some text that a command prints comes from other sources: file names, fields of unverified
//! files, messages of servers. A control character in such text could repaint the screen or imitate
//! the command's own lines. Every line is therefore escaped by [`Plain`].

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};

/// Displays a text with its control characters and direction marks escaped as in JSON (`\u001b`).
/// If the text is JSON, the escaped text is JSON with the same value.
#[derive(Debug)]
pub struct Plain<T>(pub T);

impl<T: fmt::Display> fmt::Display for Plain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escape(f), "{}", self.0)
    }
}

/// Returns whether a character controls the terminal instead of being shown. These are the control
/// characters (Cc), and the marks of Unicode's bidirectional algorithm, which change the order in
/// which a terminal shows text.
fn controls(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

struct Escape<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl fmt::Write for Escape<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(controls) {
            let (before, from) = rest.split_at(at);
            self.0.write_str(before)?;
            let mut characters = from.chars();
            if let Some(character) = characters.next() {
                write!(self.0, "\\u{:04x}", u32::from(character))?;
            }
            rest = characters.as_str();
        }
        self.0.write_str(rest)
    }
}

/// Prints a line on stderr. Ignores write errors, because the exit code reports the result of the
/// command.
pub fn diagnostic(line: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{}", Plain(line));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_control_characters_and_nothing_else() {
        let shown = |text: &str| Plain(text).to_string();
        assert_eq!(
            shown("\u{1b}[31mred\u{9b}0m\r\n\u{7f}"),
            r"\u001b[31mred\u009b0m\u000d\u000a\u007f"
        );
        assert_eq!(shown("a\u{202e}b\u{2066}c"), r"a\u202eb\u2066c");
        assert_eq!(
            shown("25 \u{b5}g/m\u{b3} in Z\u{fc}rich, \u{6771}\u{4eac} \\u001b"),
            "25 \u{b5}g/m\u{b3} in Z\u{fc}rich, \u{6771}\u{4eac} \\u001b"
        );
    }

    #[test]
    fn escaping_keeps_the_meaning_of_json() {
        let value = serde_json::json!({ "a\u{9b}": "\u{1b}\u{7f}\u{85}\u{202e}" });
        let line = Plain(&value).to_string();
        assert!(!line.chars().any(controls));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).ok(), Some(value));
    }
}
