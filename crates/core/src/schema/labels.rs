//! The labels of an enumeration.

use core::fmt;

use super::SchemaError;
use crate::cbor::{BufferTooSmall, Writer};

/// The largest number of labels of a field.
pub const MAX_LABELS: usize = 254;
/// The longest label, in bytes.
pub const MAX_LABEL: usize = 64;

/// The labels of a field of type `enum`; empty for other types. The value of a cell is the position
/// of a label in this list, from 0.
#[derive(Clone, Copy)]
pub struct Labels<'a> {
    /// Nothing; or `(off,on)`, as in a field's text form; or a CBOR array of texts. The first byte
    /// distinguishes the last two.
    bytes: &'a [u8],
}

impl Labels<'static> {
    /// No labels.
    pub const NONE: Self = Labels { bytes: &[] };
}

impl<'a> Labels<'a> {
    /// Creates the labels of a list in brackets, such as `(off,on)`. They have not been checked.
    pub(super) const fn listed(text: &'a str) -> Self {
        Self { bytes: text.as_bytes() }
    }

    /// Creates the labels of a CBOR array. They have not been checked.
    pub(super) const fn encoded(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns the number of labels, at most 255.
    #[must_use]
    pub fn len(self) -> usize {
        self.raw().take(MAX_LABELS + 1).count()
    }

    /// Returns whether there are no labels.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the labels in their order.
    pub fn iter(self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.raw().map(|label| str::from_utf8(label).unwrap_or_default())
    }

    /// Returns the label at this position.
    #[must_use]
    pub fn get(self, position: u8) -> Option<&'a str> {
        self.iter().nth(position.into())
    }

    /// Returns the position of a label.
    #[must_use]
    pub fn position(self, label: &str) -> Option<u8> {
        let at = self.raw().position(|known| known == label.as_bytes())?;
        u8::try_from(at).ok()
    }

    /// Checks the number of labels and each label.
    pub(super) fn check(self) -> Result<(), SchemaError> {
        let count = self.raw().take(MAX_LABELS + 1).count();
        // A label of an array that is too long ends the iteration.
        let stated = match self.bytes {
            [b'(', ..] => count,
            [head @ 0x80..=0x97, ..] => usize::from(head - 0x80),
            [0x98, length, ..] => usize::from(*length),
            _ => return Err(SchemaError::InvalidLabels),
        };
        if count != stated || count == 0 || count > MAX_LABELS {
            return Err(SchemaError::InvalidLabels);
        }
        for (at, label) in self.raw().enumerate() {
            let is_label = str::from_utf8(label).is_ok_and(|label| {
                !label.is_empty()
                    && label.len() <= MAX_LABEL
                    && !label.contains(|c: char| c.is_control() || matches!(c, ',' | '(' | ')'))
            });
            if !is_label || self.raw().take(at).any(|other| other == label) {
                return Err(SchemaError::InvalidLabels);
            }
        }
        Ok(())
    }

    /// Writes the labels as a CBOR array.
    pub(super) fn write(self, out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        out.array(self.raw().count() as u64)?;
        for label in self.iter() {
            out.text(label)?;
        }
        Ok(())
    }

    fn raw(self) -> Raw<'a> {
        match self.bytes {
            [b'(', inner @ .., b')'] => Raw::Listed(Some(inner)),
            [0x98, _, rest @ ..] | [0x80..=0x97, rest @ ..] => Raw::Encoded(rest),
            _ => Raw::Encoded(&[]),
        }
    }
}

/// The bytes of the labels that follow.
enum Raw<'a> {
    /// `None` after the last label.
    Listed(Option<&'a [u8]>),
    Encoded(&'a [u8]),
}

impl<'a> Iterator for Raw<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        match self {
            Self::Listed(rest) => {
                let bytes = (*rest)?;
                let end = bytes.iter().position(|&byte| byte == b',');
                *rest = end.map(|end| &bytes[end + 1..]);
                Some(&bytes[..end.unwrap_or(bytes.len())])
            }
            Self::Encoded(rest) => {
                let (length, after) = match *rest {
                    [head @ 0x60..=0x77, after @ ..] => (head - 0x60, after),
                    [0x78, length, after @ ..] => (*length, after),
                    _ => return None,
                };
                let (label, after) = after.split_at_checked(length.into())?;
                *rest = after;
                Some(label)
            }
        }
    }
}

impl PartialEq for Labels<'_> {
    /// Compares the lists, whatever their encoding.
    fn eq(&self, other: &Self) -> bool {
        self.raw().eq(other.raw())
    }
}

impl Eq for Labels<'_> {}

impl fmt::Debug for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Display for Labels<'_> {
    /// Writes the text form, such as `(off,on)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for (at, label) in self.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            f.write_str(label)?;
        }
        f.write_str(")")
    }
}
