//! One field of a record, and its text form.

use core::fmt;

use super::{FieldType, Labels, SchemaError, is_unit};
use crate::confidential::Suite;

/// The longest name of a field, in bytes.
pub const MAX_NAME: usize = 64;
/// The longest value of a text field, in bytes.
pub const MAX_TEXT: usize = 254;

/// One field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name, distinct within its schema.
    pub name: &'a str,
    /// A SenML unit (RFC 8428, RFC 8798), or empty.
    pub unit: &'a str,
    /// The type of the field, which determines its encoding.
    pub kind: FieldType,
    /// The divisor, by which the sum of raw value and offset is divided.
    pub divisor: u32,
    /// The offset, added to the raw value.
    pub offset: i64,
    /// The id of the column, from 1 to 65535, distinct within its schema. Schemas of one stream
    /// use the same id for the same column, whatever its name, position and type. If a field does
    /// not come from a schema, 0 stands for its position in the schema, counted from 1.
    pub id: u16,
    /// Whether a cell may be null. The null of a column is one raw value of its type
    /// ([`null`](Self::null)), which is then not a value of the column.
    pub nullable: bool,
    /// Whether the signer states a value that it received from another device without a proof. If
    /// not, the signer measured the value itself.
    pub relayed: bool,
    /// The labels of an `enum`; empty for other types.
    pub labels: Labels<'a>,
    /// The length of the longest `text` in bytes; 0 for other types.
    pub longest: u8,
    /// The cipher of an encrypted column; `None` for a plain column.
    pub suite: Option<Suite>,
    /// The column group, 0 to 7. The cells of a group other than 0 can be left out of a part.
    pub group: u8,
    /// Whether the field reads records in which the column is not encrypted.
    pub(super) is_plaintext: bool,
    /// The number of text cells between `start` and this cell. It is 0 for all types but `text`.
    pub(crate) skip: u8,
    /// The position in the schema, counted from 1; 0 for a field that does not come from a schema.
    pub(crate) position: u8,
    /// The byte offset of the field in a record; for `text`, of the first text cell. It is 0 for a
    /// field that does not come from a schema.
    pub(super) start: u16,
}

impl<'a> Field<'a> {
    /// Creates a field with divisor 1 and offset 0. The types `enum` and `text` need labels or a
    /// length as well: use [`parse`](Self::parse) or [`text`](Self::text).
    #[must_use]
    pub const fn new(name: &'a str, unit: &'a str, kind: FieldType) -> Self {
        Self {
            name,
            unit,
            kind,
            divisor: 1,
            offset: 0,
            id: 0,
            nullable: false,
            relayed: false,
            labels: Labels::NONE,
            longest: 0,
            suite: None,
            group: 0,
            is_plaintext: false,
            skip: 0,
            position: 0,
            start: 0,
        }
    }

    /// Creates a field of texts of at most `longest` bytes, 1 to [`MAX_TEXT`].
    #[must_use]
    pub const fn text(name: &'a str, longest: u8) -> Self {
        Self { longest, ..Self::new(name, "", FieldType::Text) }
    }

    /// Returns the same field with a scale: `value = (raw + offset) / divisor`.
    #[must_use]
    pub const fn scaled(self, divisor: u32, offset: i64) -> Self {
        Self { divisor, offset, ..self }
    }

    /// Returns the same field with this id.
    #[must_use]
    pub const fn with_id(self, id: u16) -> Self {
        Self { id, ..self }
    }

    /// Returns the same field, whose cells may be null.
    #[must_use]
    pub const fn nullable(self) -> Self {
        Self { nullable: true, ..self }
    }

    /// Returns the same field, whose values the signer received without a proof.
    #[must_use]
    pub const fn relayed(self) -> Self {
        Self { relayed: true, ..self }
    }

    /// Returns the same field, whose column is encrypted with this suite.
    #[must_use]
    pub const fn encrypted(self, suite: Suite) -> Self {
        Self { suite: Some(suite), ..self }
    }

    /// Returns the same field in this column group.
    #[must_use]
    pub const fn in_group(self, group: u8) -> Self {
        Self { group, ..self }
    }

    /// Returns the same field for records in which the cells of this column are not ciphertext.
    ///
    /// The caller asserts that the cells of this column are plaintext in every record that it reads or writes
    /// through the returned field: a device has not encrypted them yet, or a reader has decrypted them. This
    /// function does not check it, and needs no key. Of a record in which the cells are ciphertext, the field
    /// reads random values, or fails with `RecordValue`. To read what has been decrypted, use
    /// [`Decrypted`](crate::confidential::Decrypted), which knows the decrypted columns.
    #[must_use]
    pub const fn in_plaintext(self) -> Self {
        Self { is_plaintext: true, ..self }
    }

    /// Returns whether the cells are ciphertext for this field: the column is encrypted, and the
    /// field is not [`in_plaintext`](Self::in_plaintext).
    #[must_use]
    pub const fn is_ciphertext(&self) -> bool {
        self.suite.is_some() && !self.is_plaintext
    }

    /// Returns the field without its name, unit and labels. It can still read and write values of
    /// all types but `enum`.
    #[must_use]
    pub const fn unnamed(self) -> Field<'static> {
        Field {
            name: "",
            unit: "",
            kind: self.kind,
            divisor: self.divisor,
            offset: self.offset,
            id: self.id,
            nullable: self.nullable,
            relayed: self.relayed,
            labels: Labels::NONE,
            longest: self.longest,
            suite: self.suite,
            group: self.group,
            is_plaintext: self.is_plaintext,
            skip: self.skip,
            position: self.position,
            start: self.start,
        }
    }

    /// Parses `name:unit:type[/divisor][+offset][?][~][!|!aes][@group][#id]`, such as
    /// `temperature:Cel:i16/100`, `pressure:hPa:u16/10+9000?`, `state::enum(off,on)!@1` or
    /// `place::text32#7`. `?` means [`nullable`](Self::nullable), `~` means
    /// [`relayed`](Self::relayed), `!` marks a column that is [`encrypted`](Self::encrypted) with
    /// ChaCha20, `!aes` one with AES-128-CTR, and `@` a column
    /// [in a group](Self::in_group). The name may contain colons.
    ///
    /// # Errors
    /// [`SchemaError`]: `MalformedField`, or the first check of the field that fails.
    pub fn parse(text: &'a str) -> Result<Self, SchemaError> {
        // Labels may contain colons and the marks that end a type, but no brackets.
        let (rest, packing, labels) = match text.rsplit_once(')') {
            Some((before, marks)) if !marks.contains(':') => {
                let at = before.rfind(":enum(").ok_or(SchemaError::MalformedField)?;
                let labels = &text[at + ":enum".len()..=before.len()];
                (&text[..at], marks, Some(labels))
            }
            _ => {
                let (rest, packing) = text.rsplit_once(':').ok_or(SchemaError::MalformedField)?;
                (rest, packing, None)
            }
        };
        let (name, unit) = rest.rsplit_once(':').ok_or(SchemaError::MalformedField)?;
        let (packing, id) = match packing.split_once('#') {
            Some((packing, id)) => (packing, parse_id(id)?),
            None => (packing, 0),
        };
        let (packing, group) = match packing.split_once('@') {
            Some((packing, group)) => (packing, parse_group(group)?),
            None => (packing, 0),
        };
        let (packing, suite) = strip_suite(packing);
        if let Some((_, word)) = packing.rsplit_once('!') {
            let is_suite =
                !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let error =
                if is_suite { SchemaError::UnknownSuite } else { SchemaError::MalformedField };
            return Err(error);
        }
        let (packing, relayed) = strip(packing, '~');
        let (packing, nullable) = strip(packing, '?');
        let field = match labels {
            Some(_) if !packing.is_empty() => return Err(SchemaError::MalformedField),
            Some(labels) => {
                Self { labels: Labels::listed(labels), ..Self::new(name, unit, FieldType::Enum) }
            }
            None => Self::parse_packing(name, unit, packing)?,
        };
        let field = Self { id, nullable, relayed, suite, group, ..field };
        field.check()?;
        Ok(field)
    }

    /// Parses `type[/divisor][+offset]` for all types but `enum`.
    fn parse_packing(name: &'a str, unit: &'a str, packing: &str) -> Result<Self, SchemaError> {
        let (packing, offset) = match packing.find(['+', '-']) {
            // The integer parser accepts a leading sign.
            Some(at) => {
                (&packing[..at], packing[at..].parse().map_err(|_| SchemaError::ScaleOutOfRange)?)
            }
            None => (packing, 0),
        };
        let (kind, divisor) = match packing.split_once('/') {
            Some((kind, divisor)) => {
                (kind, divisor.parse().map_err(|_| SchemaError::ScaleOutOfRange)?)
            }
            None => (packing, 1),
        };
        let (kind, longest) = match kind.strip_prefix(FieldType::Text.name()) {
            Some(longest) if longest.bytes().all(|byte| byte.is_ascii_digit()) => {
                (FieldType::Text, longest.parse().map_err(|_| SchemaError::InvalidTextLength)?)
            }
            _ => (FieldType::from_name(kind).ok_or(SchemaError::UnknownFieldType)?, 0),
        };
        Ok(Self { longest, ..Self::new(name, unit, kind).scaled(divisor, offset) })
    }

    /// Returns the byte offset of the field in a record; 0 if the field does not come from a
    /// schema. For a text field, returns the offset of the first text cell, because the cells
    /// before this one have lengths of their own.
    #[must_use]
    pub const fn start(&self) -> usize {
        self.start as usize
    }

    /// Returns whether schema version 1 can express the field at this position, counted from 1.
    pub(super) const fn is_in_version_1(&self, position: usize) -> bool {
        self.kind.is_in_version_1()
            && !self.nullable
            && !self.relayed
            && self.suite.is_none()
            && self.group == 0
            && (self.id == 0 || self.id as usize == position)
    }

    pub(super) fn check(&self) -> Result<(), SchemaError> {
        check_words(self.name, self.unit)?;
        if self.divisor == 0 || (!self.kind.is_integer() && (self.divisor, self.offset) != (1, 0)) {
            return Err(SchemaError::ScaleOutOfRange);
        }
        match self.kind {
            FieldType::Enum => self.labels.check()?,
            _ if self.labels.is_empty() => {}
            _ => return Err(SchemaError::InvalidLabels),
        }
        let lengths = if self.kind == FieldType::Text { 1..=MAX_TEXT } else { 0..=0 };
        if lengths.contains(&self.longest.into()) {
            Ok(())
        } else {
            Err(SchemaError::InvalidTextLength)
        }
    }
}

/// Removes a mark from the end of a text. Returns whether there was one.
fn strip(text: &str, mark: char) -> (&str, bool) {
    text.strip_suffix(mark).map_or((text, false), |text| (text, true))
}

/// Removes the mark of an encrypted column from the end of a text.
fn strip_suite(text: &str) -> (&str, Option<Suite>) {
    let marks = [("!aes", Suite::Aes128Ctr), ("!", Suite::ChaCha20)];
    let found = marks.iter().find_map(|(mark, suite)| Some((text.strip_suffix(mark)?, *suite)));
    found.map_or((text, None), |(text, suite)| (text, Some(suite)))
}

fn parse_id(text: &str) -> Result<u16, SchemaError> {
    let id = if text.starts_with('+') { None } else { text.parse().ok() };
    id.filter(|&id| id > 0).ok_or(SchemaError::InvalidFieldId)
}

/// Parses the number of a group. A sign and further digits are not allowed.
fn parse_group(text: &str) -> Result<u8, SchemaError> {
    match text.as_bytes() {
        [digit @ b'0'..=b'7'] => Ok(digit - b'0'),
        _ => Err(SchemaError::InvalidGroup),
    }
}

/// Checks that a schema may contain this name and unit.
///
/// # Errors
/// [`SchemaError`].
pub fn check_words(name: &str, unit: &str) -> Result<(), SchemaError> {
    // Names appear in table headers and on terminals, where control characters would take effect.
    if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(SchemaError::InvalidFieldName);
    }
    if is_unit(unit) { Ok(()) } else { Err(SchemaError::UnknownUnit) }
}

impl fmt::Display for Field<'_> {
    /// Writes the text form that [`Field::parse`] reads. The id is left out if it is the field's
    /// position.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.name, self.unit, self.kind)?;
        match self.kind {
            FieldType::Enum => self.labels.fmt(f)?,
            FieldType::Text => self.longest.fmt(f)?,
            _ => {}
        }
        if self.divisor != 1 {
            write!(f, "/{}", self.divisor)?;
        }
        if self.offset != 0 {
            write!(f, "{:+}", self.offset)?;
        }
        if self.nullable {
            f.write_str("?")?;
        }
        if self.relayed {
            f.write_str("~")?;
        }
        match self.suite {
            None => {}
            Some(Suite::ChaCha20) => f.write_str("!")?,
            Some(Suite::Aes128Ctr) => f.write_str("!aes")?,
        }
        if self.group != 0 {
            write!(f, "@{}", self.group)?;
        }
        if self.id != u16::from(self.position) && self.id != 0 {
            write!(f, "#{}", self.id)?;
        }
        Ok(())
    }
}
