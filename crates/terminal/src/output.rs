//! What a command prints: data on stdout, diagnostics on stderr.
//!
//! Parts of the output come from other sources: file names, fields of unverified files, messages of
//! servers. A control character in them could repaint the screen or imitate our own lines, so every
//! line is escaped by [`Plain`]. Rows are not escaped: they are verified, and column names cannot
//! contain control characters (spec/formats.md, section 2.3).

use std::fmt::{self, Write as _};
use std::io::{self, Read, StdoutLock, Write as _};

use crate::failure::Failure;

/// Shows a text with control characters and direction marks escaped as in JSON (`\u001b`), so that
/// JSON keeps its meaning.
#[derive(Debug)]
pub struct Plain<T>(pub T);

impl<T: fmt::Display> fmt::Display for Plain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escape(f), "{}", self.0)
    }
}

/// Whether a character controls the terminal instead of being shown: controls (Cc), and the marks
/// of Unicode's bidirectional algorithm, which let a terminal show a text in another order.
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

/// Prints a line on stderr. Errors of stderr are ignored: the exit code reports the result.
pub fn diagnostic(line: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{}", Plain(line));
}

/// Stdout. If its reader goes away (`moteseal ... | head`), the rest of the output is dropped
/// without an error, and the command ends with its own exit code.
#[derive(Debug)]
pub struct Stdout {
    out: StdoutLock<'static>,
    is_open: bool,
}

impl Stdout {
    /// Locks stdout for this command.
    #[must_use]
    pub fn lock() -> Self {
        Self { out: io::stdout().lock(), is_open: true }
    }

    /// Whether stdout still has a reader: false once a write has failed with a closed pipe.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Writes a line of text or JSON, escaped by [`Plain`].
    ///
    /// # Errors
    ///
    /// Stdout cannot be written, for a reason other than a closed pipe.
    pub fn line(&mut self, line: impl fmt::Display) -> Result<(), Failure> {
        self.attempt(|out| writeln!(out, "{}", Plain(line)))
    }

    /// Writes all bytes of `from` unchanged.
    ///
    /// # Errors
    ///
    /// `from` cannot be read, or stdout cannot be written, for a reason other than a closed pipe.
    pub fn copy(&mut self, mut from: impl Read) -> Result<(), Failure> {
        let mut chunk = vec![0; 64 << 10];
        while self.is_open {
            match from.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => self.attempt(|out| out.write_all(&chunk[..length]))?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Failure::internal(format_args!(
                        "cannot read a temporary file: {error}"
                    )));
                }
            }
        }
        self.attempt(StdoutLock::flush)
    }

    fn attempt(
        &mut self,
        write: impl FnOnce(&mut StdoutLock<'static>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        if !self.is_open {
            return Ok(());
        }
        match write(&mut self.out) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_open = false;
                Ok(())
            }
            Err(error) => Err(Failure::internal(format_args!("cannot write the output: {error}"))),
        }
    }
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
