//! Asks for secrets, such as passphrases, at the terminal of the process. They are not echoed.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::interrupt;

/// The maximum length of a line in bytes. A terminal cuts longer lines.
const MAX_LINE: usize = 4096;

/// Asks a question at the terminal that controls the process, also if stdin and stdout are redirected.
/// Returns the line that is typed, without its end. If a signal ends the process meanwhile, the
/// terminal echoes again.
///
/// # Errors
/// The process has no terminal, or its input ends.
pub fn ask_secret(question: &str) -> io::Result<Zeroizing<String>> {
    ask_at(&File::options().read(true).write(true).open("/dev/tty")?, question)
}

/// A terminal that does not echo until this is dropped.
struct Silent<'t> {
    terminal: &'t File,
    before: Termios,
}

impl<'t> Silent<'t> {
    fn new(terminal: &'t File) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let (again, settings) = (terminal.try_clone()?, before.clone());
        interrupt::on_stop(move || {
            let _ = tcsetattr(&again, OptionalActions::Now, &settings);
        });
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(terminal, OptionalActions::Flush, &silent)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Silent<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}

fn ask_at(mut terminal: &File, question: &str) -> io::Result<Zeroizing<String>> {
    let silent = Silent::new(terminal)?;
    terminal.write_all(question.as_bytes())?;
    // The reader buffers one byte, because its buffer is not erased.
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_LINE));
    let mut input = BufReader::with_capacity(1, terminal).take(MAX_LINE as u64);
    input.read_until(b'\n', &mut line)?;
    drop(silent);
    terminal.write_all(b"\n")?;
    let text = str::from_utf8(line.strip_suffix(b"\n").ok_or(io::ErrorKind::UnexpectedEof)?);
    let text = text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8 text"))?;
    Ok(Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    use super::*;

    #[test]
    fn a_secret_is_read_from_the_terminal_without_echo() {
        let user = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&user).unwrap();
        unlockpt(&user).unwrap();
        let path = ptsname(&user, Vec::new()).unwrap().into_string().unwrap();
        let mut user = File::from(user);
        let terminal = File::options().read(true).write(true).open(path).unwrap();
        let mut shown = Vec::new();
        let mut until = |user: &mut File, end: &str| {
            let mut buffer = [0; 256];
            while !String::from_utf8_lossy(&shown).contains(end) {
                let length = user.read(&mut buffer).unwrap();
                shown.extend_from_slice(&buffer[..length]);
            }
        };
        let asked = std::thread::spawn(move || {
            let line = ask_at(&terminal, "passphrase: ").unwrap();
            let echoes = tcgetattr(&terminal).unwrap().local_modes.contains(LocalModes::ECHO);
            (line, echoes, terminal)
        });
        until(&mut user, "passphrase: ");
        // The user corrects a letter.
        user.write_all(b"corrext\x7f\x7fct horse\n").unwrap();
        let (line, echoes, terminal) = asked.join().unwrap();
        assert_eq!((line.as_str(), echoes), ("correct horse", true));
        until(&mut user, "\n");
        assert!(!String::from_utf8_lossy(&shown).contains("horse"), "{shown:?}");
        // The end of the input.
        let asked = std::thread::spawn(move || ask_at(&terminal, "again: ").unwrap_err().kind());
        let mut buffer = [0; 256];
        let length = user.read(&mut buffer).unwrap();
        assert!(length > 0);
        user.write_all(b"\x04").unwrap();
        assert_eq!(asked.join().unwrap(), io::ErrorKind::UnexpectedEof);
    }
}
