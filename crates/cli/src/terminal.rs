//! What a command says: data on stdout, talk on stderr, and how it looks on a terminal.
//!
//! Much of it was written by others: file names, fields of a file that nobody has verified, what a server says. A control character
//! in it could repaint the screen or feign a line of ours, so everything passes [`Plain`]. Rows do not: they are verified, and
//! what names their columns has no control characters (spec/formats.md, section 2.3).

use std::fmt::{self, Write as _};
use std::io::{self, Read, StdoutLock, Write as _};

use crate::failure::{Exit, Failure};

/// A text whose control characters, and marks that change the direction of writing, stand as `\u001b`: as JSON writes them, so
/// that JSON stays what it is.
pub(crate) struct Plain<T>(pub(crate) T);

impl<T: fmt::Display> fmt::Display for Plain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escape(f), "{}", self.0)
    }
}

/// Whether a character acts on the terminal instead of standing on it: controls (Cc), and those of Unicode's bidirectional
/// algorithm, of which a terminal that follows it shows the text in another order than it has.
fn acts(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

struct Escape<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl fmt::Write for Escape<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(acts) {
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

/// Says a line on stderr.
pub(crate) fn talk(line: impl fmt::Display) {
    // Who does not listen misses it; the exit code says the rest.
    let _ = writeln!(io::stderr().lock(), "{}", Plain(line));
}

/// Stdout. A reader that goes away (`moteseal ... | head`) is no failure: what is left to say is dropped, and the command ends with
/// its own verdict.
pub(crate) struct Stdout {
    out: StdoutLock<'static>,
    is_heard: bool,
}

impl Stdout {
    pub(crate) fn lock() -> Self {
        Self { out: io::stdout().lock(), is_heard: true }
    }

    /// Whether anybody reads on: false once a write has met a closed pipe.
    pub(crate) const fn is_heard(&self) -> bool {
        self.is_heard
    }

    /// Writes a line of text or JSON.
    pub(crate) fn line(&mut self, line: impl fmt::Display) -> Result<(), Failure> {
        self.attempt(|out| writeln!(out, "{}", Plain(line)))
    }

    /// Writes all that `from` has, byte by byte as it is.
    pub(crate) fn copy(&mut self, mut from: impl Read) -> Result<(), Failure> {
        let mut chunk = vec![0; 64 << 10];
        while self.is_heard {
            match from.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => self.attempt(|out| out.write_all(&chunk[..length]))?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Failure::new(
                        Exit::Internal,
                        format_args!("cannot read a temporary file: {error}"),
                    ));
                }
            }
        }
        self.attempt(StdoutLock::flush)
    }

    fn attempt(
        &mut self,
        write: impl FnOnce(&mut StdoutLock<'static>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        if !self.is_heard {
            return Ok(());
        }
        match write(&mut self.out) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_heard = false;
                Ok(())
            }
            Err(error) => {
                Err(Failure::new(Exit::Internal, format_args!("cannot write the output: {error}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_written_out_and_all_else_stays() {
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
    fn json_still_means_what_it_meant() {
        let value = serde_json::json!({ "a\u{9b}": "\u{1b}\u{7f}\u{85}\u{202e}" });
        let line = Plain(&value).to_string();
        assert!(!line.chars().any(acts));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).ok(), Some(value));
    }
}
