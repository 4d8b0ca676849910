//! Deterministic CBOR (RFC 8949, section 4.2.1): a strict scanner, a reader and a writer.
//!
//! Input is scanned once, with [`item_length`], before anything is read from it. An item that
//! passes the scan is well-formed, has definite lengths, uses the shortest encodings and has sorted
//! keys, so the reader only has to check types and ranges. Nothing here allocates or recurses, and
//! nesting is limited to [`MAX_DEPTH`].

use core::fmt;

use minicbor::{Decoder, data::Type};

/// Maximum nesting depth. The deepest structure that the formats define has 6 levels.
pub const MAX_DEPTH: usize = 12;

named_errors! {
    /// Why bytes could not be decoded. `spec/errors.md` lists the names.
    DecodeError {
        /// The input ends within an item.
        Truncated => "the input ends within an item",
        /// There are bytes after the item.
        TrailingBytes => "there are bytes after the item",
        /// The bytes are not deterministic CBOR: an encoding is longer than necessary, a length is
        /// indefinite, the keys of a map are unsorted or repeated, or the bytes are not CBOR at
        /// all.
        NonCanonical => "the bytes are not deterministic CBOR",
        /// An element does not have the expected type, number of elements or byte length.
        UnexpectedType => "an element has an unexpected type or length",
        /// The version is unknown.
        UnsupportedVersion => "the data uses a version of the formats that is not supported",
        /// The stream item is of an unknown kind.
        UnknownItem => "the stream item is of an unknown kind",
        /// A value is outside its range.
        FieldOutOfRange => "a value is outside its range",
        /// The `typ` header belongs to another kind of object.
        WrongType => "the typ header belongs to another kind of object",
        /// A critical header is unknown.
        UnknownCritical => "a critical header is unknown",
        /// A header is not allowed in this object.
        UnexpectedHeader => "a header is not allowed in this object",
        /// The algorithm number is unknown, or the algorithm is not built in.
        UnknownAlgorithm => "the signature algorithm is not supported",
    }
}

/// The error of an item that has passed [`item_length`]. The item is complete, so a missing element
/// is an unexpected number of elements. minicbor also reports the end of the input if it looks for
/// the sign of a negative integer after the last byte, in order to name the type that it found.
impl From<minicbor::decode::Error> for DecodeError {
    fn from(_: minicbor::decode::Error) -> Self {
        Self::UnexpectedType
    }
}

/// Returns the length in bytes of the deterministic item at the start of `bytes`.
///
/// # Errors
/// `Truncated` if the item extends past the end of the input; `NonCanonical` if it is not
/// deterministic CBOR of the types that the formats use (integers, strings, arrays, maps, tags,
/// booleans, null).
pub fn item_length(bytes: &[u8]) -> Result<usize, DecodeError> {
    Scanner::default().scan(bytes)
}

/// Checks that `bytes` are exactly one deterministic item.
///
/// # Errors
/// The errors of [`item_length`]; `TrailingBytes` if bytes follow the item.
pub fn check_item(bytes: &[u8]) -> Result<(), DecodeError> {
    if item_length(bytes)? == bytes.len() { Ok(()) } else { Err(DecodeError::TrailingBytes) }
}

/// An incremental [`item_length`] for an item that arrives in pieces. Each call resumes where the
/// previous call stopped.
#[derive(Clone, Debug, Default)]
pub struct Scanner {
    at: usize,
    depth: usize,
    open: [Nest; MAX_DEPTH],
}

/// An array, map or tag that contains the current item.
#[derive(Clone, Copy, Debug, Default)]
struct Nest {
    /// The number of items still expected; for a map, the number of keys plus values.
    left: u64,
    is_map: bool,
    /// For a map: the byte range (start, end) of the last key that has been scanned.
    key: Option<(usize, usize)>,
    /// Where the current item starts.
    start: usize,
}

impl Scanner {
    /// Continues the scan. Returns the length of the item in bytes when the item is complete.
    /// `bytes` must start at the start of the item and contain the bytes of all earlier calls.
    ///
    /// # Errors
    /// The errors of [`item_length`]. After `Truncated` the scan can continue with more bytes;
    /// after `NonCanonical` it cannot.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<usize, DecodeError> {
        loop {
            let (start, (major, argument, end)) = (self.at, head_at(bytes, self.at)?);
            let opened = match major {
                0 | 1 => None,
                2 | 3 => {
                    let string_end =
                        usize::try_from(argument).ok().and_then(|length| end.checked_add(length));
                    let string = string_end
                        .and_then(|string_end| bytes.get(end..string_end))
                        .ok_or(DecodeError::Truncated)?;
                    if major == 3 && core::str::from_utf8(string).is_err() {
                        return Err(DecodeError::NonCanonical);
                    }
                    self.at = end + string.len();
                    None
                }
                4 => Some((argument, false)),
                // Saturate on overflow: no input has so many items, because each item takes at
                // least one byte. Saturate to an even number, because the number of keys plus
                // values is always even.
                5 => Some((argument.checked_mul(2).unwrap_or(u64::MAX - 1), true)),
                6 => Some((1, false)),
                // false, true, null
                _ if (20..=22).contains(&argument) => None,
                _ => return Err(DecodeError::NonCanonical),
            };
            self.at = self.at.max(end);
            if let Some(nest) = self.depth.checked_sub(1).and_then(|last| self.open.get_mut(last)) {
                nest.start = start;
            }
            match opened {
                Some((left, is_map)) if left > 0 => {
                    *self.open.get_mut(self.depth).ok_or(DecodeError::NonCanonical)? =
                        Nest { left, is_map, ..Nest::default() };
                    self.depth += 1;
                }
                _ => {
                    if self.close(bytes)? {
                        return Ok(self.at);
                    }
                }
            }
        }
    }

    /// Counts the item that ends here and every container that ends with it. Returns whether the
    /// outermost item has ended.
    fn close(&mut self, bytes: &[u8]) -> Result<bool, DecodeError> {
        while let Some(last) = self.depth.checked_sub(1) {
            let nest = &mut self.open[last];
            // `left` still counts the item that has just ended. In a map, an even number therefore
            // means that this item is a key.
            if nest.is_map && nest.left.is_multiple_of(2) {
                let key = (nest.start, self.at);
                if nest.key.is_some_and(|(from, to)| bytes[from..to] >= bytes[key.0..key.1]) {
                    return Err(DecodeError::NonCanonical);
                }
                nest.key = Some(key);
            }
            nest.left -= 1;
            if nest.left > 0 {
                return Ok(false);
            }
            self.depth = last;
        }
        Ok(true)
    }
}

/// Returns the major type, the argument and the end of the item head at the offset `at`.
fn head_at(bytes: &[u8], at: usize) -> Result<(u8, u64, usize), DecodeError> {
    let &first = bytes.get(at).ok_or(DecodeError::Truncated)?;
    let (major, info) = (first >> 5, first & 31);
    let (width, least) = match info {
        0..=23 => return Ok((major, u64::from(info), at + 1)),
        24 => (1, 24),
        25 => (2, 1 << 8),
        26 => (4, 1 << 16),
        27 => (8, 1 << 32),
        _ => return Err(DecodeError::NonCanonical),
    };
    let end = at + 1 + width;
    let argument = bytes.get(at + 1..end).ok_or(DecodeError::Truncated)?;
    let argument = argument.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
    if argument < least || major == 7 {
        Err(DecodeError::NonCanonical)
    } else {
        Ok((major, argument, end))
    }
}

/// Reads items that have passed [`item_length`].
pub struct Reader<'b>(Decoder<'b>);

impl<'b> Reader<'b> {
    /// Checks that `bytes` are exactly one item and creates a reader for it.
    ///
    /// # Errors
    /// The errors of [`check_item`].
    pub fn new(bytes: &'b [u8]) -> Result<Self, DecodeError> {
        check_item(bytes)?;
        Ok(Self(Decoder::new(bytes)))
    }

    /// Creates a reader for an item, or for a part of an item, that has already passed
    /// [`check_item`].
    #[must_use]
    pub fn resume(bytes: &'b [u8]) -> Self {
        Self(Decoder::new(bytes))
    }

    /// Reads the head of an array that must have exactly `length` elements.
    ///
    /// # Errors
    /// `UnexpectedType`.
    pub fn array(&mut self, length: u64) -> Result<(), DecodeError> {
        if self.array_any()? == length { Ok(()) } else { Err(DecodeError::UnexpectedType) }
    }

    /// Reads the head of an array and returns its number of elements.
    ///
    /// # Errors
    /// `UnexpectedType`.
    pub fn array_any(&mut self) -> Result<u64, DecodeError> {
        self.0.array()?.ok_or(DecodeError::NonCanonical)
    }

    /// Reads the head of a map and returns its number of pairs.
    ///
    /// # Errors
    /// `UnexpectedType`.
    pub fn map(&mut self) -> Result<u64, DecodeError> {
        self.0.map()?.ok_or(DecodeError::NonCanonical)
    }

    /// Reads an unsigned integer.
    ///
    /// # Errors
    /// `UnexpectedType`.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        match self.0.datatype()? {
            Type::U8 | Type::U16 | Type::U32 | Type::U64 => Ok(self.0.u64()?),
            _ => Err(DecodeError::UnexpectedType),
        }
    }

    /// Reads an unsigned integer that fits `T`.
    ///
    /// # Errors
    /// `UnexpectedType`, or `FieldOutOfRange` if it does not fit.
    pub fn uint<T: TryFrom<u64>>(&mut self) -> Result<T, DecodeError> {
        T::try_from(self.u64()?).map_err(|_| DecodeError::FieldOutOfRange)
    }

    /// Reads a signed integer of 64 bits.
    ///
    /// # Errors
    /// `UnexpectedType`, or `FieldOutOfRange` if it does not fit.
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        let value = self.0.int()?;
        i64::try_from(i128::from(value)).map_err(|_| DecodeError::FieldOutOfRange)
    }

    /// Reads a boolean.
    ///
    /// # Errors
    /// `UnexpectedType`.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.0.bool()?)
    }

    /// Reads a byte string.
    ///
    /// # Errors
    /// `UnexpectedType`.
    pub fn bytes(&mut self) -> Result<&'b [u8], DecodeError> {
        Ok(self.0.bytes()?)
    }

    /// Reads a byte string of exactly `N` bytes.
    ///
    /// # Errors
    /// `UnexpectedType`.
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.bytes()?.try_into().map_err(|_| DecodeError::UnexpectedType)
    }

    /// Reads a text string.
    ///
    /// # Errors
    /// `UnexpectedType`.
    pub fn text(&mut self) -> Result<&'b str, DecodeError> {
        Ok(self.0.str()?)
    }

    /// Reads a tag.
    ///
    /// # Errors
    /// `UnexpectedType`.
    pub fn tag(&mut self) -> Result<u64, DecodeError> {
        Ok(self.0.tag()?.as_u64())
    }

    /// Returns `None` for null, otherwise the result of `read`.
    ///
    /// # Errors
    /// The errors of `read`.
    pub fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.0.datatype()? == Type::Null {
            self.0.null()?;
            Ok(None)
        } else {
            read(self).map(Some)
        }
    }

    /// Returns whether the next item is an array.
    #[must_use]
    pub fn at_array(&self) -> bool {
        matches!(self.0.datatype(), Ok(Type::Array))
    }

    /// Skips the next item and returns its bytes.
    ///
    /// # Errors
    /// `UnexpectedType` at the end of the input.
    pub fn raw(&mut self) -> Result<&'b [u8], DecodeError> {
        let start = self.0.position();
        self.0.skip()?;
        Ok(&self.0.input()[start..self.0.position()])
    }

    /// Returns the bytes that have not been read yet.
    #[must_use]
    pub fn rest(&self) -> &'b [u8] {
        &self.0.input()[self.0.position()..]
    }

    /// Reads a version number, which must be 1.
    ///
    /// # Errors
    /// `UnexpectedType` or `UnsupportedVersion`.
    pub fn version(&mut self) -> Result<(), DecodeError> {
        if self.u64()? == 1 { Ok(()) } else { Err(DecodeError::UnsupportedVersion) }
    }
}

/// The writer's buffer is too small for the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferTooSmall;

impl BufferTooSmall {
    /// Returns the stable name of the error (spec/errors.md).
    #[must_use]
    pub const fn name(self) -> &'static str {
        "BufferTooSmall"
    }
}

impl fmt::Display for BufferTooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the item does not fit the buffer")
    }
}

impl core::error::Error for BufferTooSmall {}

/// Writes deterministic CBOR into the caller's buffer. The only error of every method is
/// [`BufferTooSmall`].
#[derive(Debug)]
pub struct Writer<'b> {
    buffer: &'b mut [u8],
    at: usize,
}

#[allow(clippy::missing_errors_doc)]
impl<'b> Writer<'b> {
    /// Creates a writer at the start of the buffer.
    #[must_use]
    pub fn new(buffer: &'b mut [u8]) -> Self {
        Self { buffer, at: 0 }
    }

    /// Returns the number of bytes written so far.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.at
    }

    /// Discards everything written after `position`.
    pub fn truncate(&mut self, position: usize) {
        self.at = self.at.min(position);
    }

    /// Returns the bytes written so far.
    #[must_use]
    pub fn written(&self) -> &[u8] {
        &self.buffer[..self.at]
    }

    /// Ends writing and returns the bytes written.
    #[must_use]
    pub fn finish(self) -> &'b mut [u8] {
        &mut self.buffer[..self.at]
    }

    /// Copies bytes unchanged: an encoded item or a part of one.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<&mut Self, BufferTooSmall> {
        let end = self.at + bytes.len();
        self.buffer.get_mut(self.at..end).ok_or(BufferTooSmall)?.copy_from_slice(bytes);
        self.at = end;
        Ok(self)
    }

    fn head(&mut self, major: u8, argument: u64) -> Result<&mut Self, BufferTooSmall> {
        let (bytes, length) = head(major, argument);
        self.raw(&bytes[..length])
    }

    /// Writes an unsigned integer.
    pub fn uint(&mut self, value: impl Into<u64>) -> Result<&mut Self, BufferTooSmall> {
        self.head(0, value.into())
    }

    /// Writes a signed integer.
    pub fn int(&mut self, value: i64) -> Result<&mut Self, BufferTooSmall> {
        // CBOR encodes a negative value as the argument -1 - value, which is the bitwise complement
        // of the value.
        #[allow(clippy::cast_sign_loss)]
        if value >= 0 { self.head(0, value as u64) } else { self.head(1, !value as u64) }
    }

    /// Writes a boolean.
    pub fn bool(&mut self, value: bool) -> Result<&mut Self, BufferTooSmall> {
        self.raw(&[0xf4 | u8::from(value)])
    }

    /// Writes null.
    pub fn null(&mut self) -> Result<&mut Self, BufferTooSmall> {
        self.raw(&[0xf6])
    }

    /// Writes a byte string.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<&mut Self, BufferTooSmall> {
        self.head(2, bytes.len() as u64)?.raw(bytes)
    }

    /// Writes the head of a byte string of `length` bytes. The caller writes the bytes next.
    pub fn byte_string(&mut self, length: u64) -> Result<&mut Self, BufferTooSmall> {
        self.head(2, length)
    }

    /// Writes a text string.
    pub fn text(&mut self, text: &str) -> Result<&mut Self, BufferTooSmall> {
        self.head(3, text.len() as u64)?.raw(text.as_bytes())
    }

    /// Writes the head of an array of `length` elements.
    pub fn array(&mut self, length: u64) -> Result<&mut Self, BufferTooSmall> {
        self.head(4, length)
    }

    /// Writes the head of a map of `length` pairs.
    pub fn map(&mut self, length: u64) -> Result<&mut Self, BufferTooSmall> {
        self.head(5, length)
    }

    /// Writes a tag.
    pub fn tag(&mut self, tag: u64) -> Result<&mut Self, BufferTooSmall> {
        self.head(6, tag)
    }

    /// Writes null for `None`, otherwise calls `write`.
    pub fn optional<T>(
        &mut self,
        value: Option<T>,
        write: impl FnOnce(&mut Self, T) -> Result<&mut Self, BufferTooSmall>,
    ) -> Result<&mut Self, BufferTooSmall> {
        match value {
            None => self.null(),
            Some(value) => write(self, value),
        }
    }
}

/// Returns the shortest head for a major type and an argument, with its length in bytes.
#[must_use]
#[allow(clippy::cast_possible_truncation)]
pub fn head(major: u8, argument: u64) -> ([u8; 9], usize) {
    let mut out = [0; 9];
    let (info, width) = match argument {
        0..=23 => (argument as u8, 0),
        24..=0xff => (24, 1),
        0x100..=0xffff => (25, 2),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 8),
    };
    out[0] = major << 5 | info;
    out[1..=width].copy_from_slice(&argument.to_be_bytes()[8 - width..]);
    (out, width + 1)
}
