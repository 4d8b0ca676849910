//! The content of a chain: lines in memory, or a file. Each message of a file is read when it is
//! sent.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use moteseal_api::ErrorKind;
use moteseal_broadcast::address::ContentCipher;
use moteseal_broadcast::firmware::UPDATE_PART;
use moteseal_broadcast::{MAX_MESSAGE, MAX_MESSAGES};

use super::UpdateFile;

/// The usual length of a file's messages, in bytes.
const FILE_MESSAGE: usize = 1024;

/// Why an input cannot be the content of a chain.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContentError {
    /// There is no message.
    #[error("there is no message; a chain has at least one")]
    Empty,
    /// A line is longer than a message may be.
    #[error(
        "line {line} has {length} bytes, but a message has at most {MAX_MESSAGE}; send it as a \
         file"
    )]
    LineTooLong {
        /// The line number, from 1.
        line: usize,
        /// The length of the line, in bytes.
        length: usize,
    },
    /// There are more messages than a chain can have.
    #[error(
        "there are {messages} messages, but a chain has at most {MAX_MESSAGES}; use larger messages, or \
         several chains"
    )]
    TooMany {
        /// The number of messages.
        messages: u64,
    },
    /// The address of a chain of one message leaves too little room for the message.
    #[error(
        "the message and the address of {receivers} receivers do not fit in the {MAX_MESSAGE} bytes of \
         one message; send it without --live"
    )]
    AddressTooLong {
        /// The number of addressed receivers.
        receivers: usize,
    },
    /// The message size is 0, or larger than a message can be.
    #[error("the message size must be 1 to {MAX_MESSAGE} bytes, not {0}")]
    BadMessageSize(usize),
    /// The file cannot be read.
    #[error("{}: {}", .0.display(), .1)]
    Unreadable(PathBuf, io::Error),
}

impl ContentError {
    /// Returns the error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Empty => "NothingToSay",
            Self::LineTooLong { .. } => "MessageTooLong",
            Self::TooMany { .. } => "TooManyMessages",
            Self::AddressTooLong { .. } => "AddressTooLong",
            Self::BadMessageSize(_) => "BadMessageSize",
            Self::Unreadable(..) => "Unreadable",
        }
    }

    /// Returns [`Internal`](ErrorKind::Internal) if the machine failed to read the file, and
    /// [`Usage`](ErrorKind::Usage) otherwise.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Unreadable(_, error) => match error.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::AlreadyExists
                | io::ErrorKind::IsADirectory => ErrorKind::Usage,
                _ => ErrorKind::Internal,
            },
            _ => ErrorKind::Usage,
        }
    }
}

moteseal_api::named_error!(ContentError);

/// The messages of a chain.
#[derive(Clone, Debug)]
pub struct Content(Arc<Source>);

#[derive(Debug)]
enum Source {
    Lines(Vec<Vec<u8>>),
    File {
        file: File,
        length: u64,
        size: usize,
        written: Option<SystemTime>,
        is_update: bool,
    },
    /// The address of a chain for named receivers, and its encrypted content. If `cipher` is `None`,
    /// the address contains the content.
    Addressed {
        address: Vec<Vec<u8>>,
        content: Content,
        cipher: Option<ContentCipher>,
    },
}

impl Content {
    /// Creates content with one message for each line.
    ///
    /// # Errors
    /// `NothingToSay`, `MessageTooLong`, `TooManyMessages`.
    pub fn lines(lines: Vec<Vec<u8>>) -> Result<Self, ContentError> {
        if lines.is_empty() {
            return Err(ContentError::Empty);
        }
        if let Some((place, line)) =
            lines.iter().enumerate().find(|(_, line)| line.len() > MAX_MESSAGE)
        {
            return Err(ContentError::LineTooLong { line: place + 1, length: line.len() });
        }
        check_count(lines.len() as u64)?;
        Ok(Self(Arc::new(Source::Lines(lines))))
    }

    /// Creates content that divides a file into messages of `size` bytes; the last message may be
    /// shorter. If `size` is `None`, the messages have 1,024 bytes, or 256 if the file is an update
    /// file for motes (spec/update.md, section 1.2). A message is read from the file when it is sent, so the file must not change until
    /// then.
    ///
    /// # Errors
    /// `NothingToSay`, `TooManyMessages`, `BadMessageSize`, `Unreadable`.
    pub fn file(path: &Path, size: impl Into<Option<usize>>) -> Result<Self, ContentError> {
        let size = size.into();
        if let Some(size) = size
            && (size == 0 || size > MAX_MESSAGE)
        {
            return Err(ContentError::BadMessageSize(size));
        }
        let unreadable = |error| ContentError::Unreadable(path.to_owned(), error);
        let file = File::open(path).map_err(unreadable)?;
        let facts = file.metadata().map_err(unreadable)?;
        if !facts.is_file() {
            return Err(unreadable(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            )));
        }
        let length = facts.len();
        if length == 0 {
            return Err(ContentError::Empty);
        }
        let mut start = [0; UPDATE_PART];
        let is_update = file.read_exact_at(&mut start, 0).is_ok() && UpdateFile::is_claimed(&start);
        let size = size.unwrap_or(if is_update { UPDATE_PART } else { FILE_MESSAGE });
        check_count(length.div_ceil(size as u64))?;
        let written = facts.modified().ok();
        Ok(Self(Arc::new(Source::File { file, length, size, written, is_update })))
    }

    /// Returns whether the content is an update file for motes. Motes accept it only in blocks of one
    /// message of 256 bytes, with a label that ends with `.firmware`, and not encrypted.
    #[must_use]
    pub fn is_update_file(&self) -> bool {
        matches!(&*self.0, Source::File { is_update: true, .. })
    }

    /// Creates the content of a chain for named receivers: the messages of its address, and then
    /// the messages of `content`, which `cipher` encrypts when they are read. `cipher` is `None` if
    /// the address contains the content.
    ///
    /// # Errors
    /// `TooManyMessages`.
    pub(super) fn addressed(
        address: Vec<Vec<u8>>,
        content: &Self,
        cipher: Option<ContentCipher>,
    ) -> Result<Self, ContentError> {
        check_count(address.len() as u64 + u64::from(content.messages()))?;
        Ok(Self(Arc::new(Source::Addressed { address, content: content.clone(), cipher })))
    }

    /// Returns the number of messages.
    #[must_use]
    pub fn messages(&self) -> u32 {
        let messages = match &*self.0 {
            Source::Lines(lines) => lines.len() as u64,
            Source::File { length, size, .. } => length.div_ceil(*size as u64),
            Source::Addressed { address, content, cipher } => {
                let content = cipher.as_ref().map_or(0, |_| content.messages());
                address.len() as u64 + u64::from(content)
            }
        };
        // The constructors checked that the number fits.
        u32::try_from(messages).unwrap_or(u32::MAX)
    }

    /// Returns the total size of the messages, in bytes, without an address.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &*self.0 {
            Source::Lines(lines) => lines.iter().map(|line| line.len() as u64).sum(),
            Source::File { length, .. } => *length,
            Source::Addressed { content, .. } => content.bytes(),
        }
    }

    /// Returns whether the size and modification time of the file are the same as when it was
    /// opened. Returns true for lines, which never change.
    ///
    /// # Errors
    /// The errors of the file system.
    pub fn is_unchanged(&self) -> io::Result<bool> {
        match &*self.0 {
            Source::Lines(_) => Ok(true),
            Source::Addressed { content, .. } => content.is_unchanged(),
            Source::File { file, length, written, .. } => {
                let facts = file.metadata()?;
                Ok(facts.len() == *length && facts.modified().ok() == *written)
            }
        }
    }

    /// Reads the message with this number, counted from 0, and returns its length. `out` must have
    /// room for [`MAX_MESSAGE`] bytes.
    ///
    /// # Errors
    /// The errors of the file system. `UnexpectedEof` if the file has become shorter.
    pub fn read(&self, number: u32, out: &mut [u8]) -> io::Result<usize> {
        match &*self.0 {
            Source::Addressed { address, content, cipher } => {
                let place = usize::try_from(number).unwrap_or(usize::MAX);
                if let Some(message) = address.get(place) {
                    let room = out.get_mut(..message.len()).ok_or(io::ErrorKind::InvalidInput)?;
                    room.copy_from_slice(message);
                    return Ok(message.len());
                }
                let cipher = cipher.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
                let number = u32::try_from(place - address.len()).unwrap_or(u32::MAX);
                let length = content.read(number, out)?;
                cipher.apply(number, out.get_mut(..length).ok_or(io::ErrorKind::InvalidInput)?);
                Ok(length)
            }
            Source::Lines(lines) => {
                let line = usize::try_from(number)
                    .ok()
                    .and_then(|number| lines.get(number))
                    .ok_or(io::ErrorKind::InvalidInput)?;
                out.get_mut(..line.len()).ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(line);
                Ok(line.len())
            }
            Source::File { file, length, size, .. } => {
                let start = u64::from(number) * *size as u64;
                let length_here =
                    usize::try_from(length.saturating_sub(start)).unwrap_or(usize::MAX).min(*size);
                file.read_exact_at(
                    out.get_mut(..length_here).ok_or(io::ErrorKind::InvalidInput)?,
                    start,
                )?;
                Ok(length_here)
            }
        }
    }
}

fn check_count(messages: u64) -> Result<(), ContentError> {
    if messages > u64::from(MAX_MESSAGES) {
        Err(ContentError::TooMany { messages })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write as _;

    use super::*;

    fn all(content: &Content) -> Vec<Vec<u8>> {
        let mut buffer = [0; MAX_MESSAGE];
        let mut all = Vec::new();
        for number in 0..content.messages() {
            let length = content.read(number, &mut buffer).unwrap();
            all.push(buffer[..length].to_vec());
        }
        all
    }

    #[test]
    fn a_file_is_divided_into_messages_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        for length in [1, 99, 100, 101, 250] {
            let bytes: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            std::fs::write(&path, &bytes).unwrap();
            let content = Content::file(&path, 100).unwrap();
            assert_eq!(all(&content), bytes.chunks(100).map(<[u8]>::to_vec).collect::<Vec<_>>());
            assert_eq!(content.bytes(), length as u64);
        }
        let content = Content::file(&path, 100).unwrap();
        assert!(content.is_unchanged().unwrap());
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        assert!(!content.is_unchanged().unwrap(), "a file that has grown would be sent truncated");
        std::fs::write(&path, "short").unwrap();
        assert_eq!(
            content.read(0, &mut [0; MAX_MESSAGE]).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }

    #[test]
    fn names_the_reason_why_content_is_invalid() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let name = |size| Content::file(&path, size).unwrap_err().name();
        assert_eq!(name(100), "Unreadable");
        assert_eq!(Content::file(folder.path(), 100).unwrap_err().name(), "Unreadable");
        std::fs::write(&path, "").unwrap();
        assert_eq!(
            (name(100), name(0), name(MAX_MESSAGE + 1)),
            ("NothingToSay", "BadMessageSize", "BadMessageSize")
        );
        File::create(&path).unwrap().set_len(u64::from(MAX_MESSAGES) + 1).unwrap();
        assert_eq!(name(1), "TooManyMessages");
        assert_eq!(Content::lines(Vec::new()).unwrap_err().name(), "NothingToSay");
        assert_eq!(
            Content::lines(vec![vec![1], vec![0; MAX_MESSAGE + 1]]).unwrap_err().name(),
            "MessageTooLong"
        );
        assert_eq!(
            all(&Content::lines(vec![b"a".to_vec(), Vec::new()]).unwrap()),
            [b"a".to_vec(), Vec::new()]
        );
    }
}
