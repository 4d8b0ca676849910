//! CBOR as a tree that can be taken apart and put together again, for making wrong encodings on purpose.

/// A value. What is encoded is deterministic as far as the tree is: maps keep the order that they were given.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An unsigned integer.
    Uint(u64),
    /// A negative integer, -1 less this.
    Negative(u64),
    /// A byte string.
    Bytes(Vec<u8>),
    /// A text string.
    Text(String),
    /// An array.
    Array(Vec<Value>),
    /// A map.
    Map(Vec<(Value, Value)>),
    /// A tagged value.
    Tag(u64, Box<Value>),
    /// False, true or null, by number.
    Simple(u8),
}

pub const FALSE: Value = Value::Simple(20);
pub const TRUE: Value = Value::Simple(21);
pub const NULL: Value = Value::Simple(22);

pub fn int(value: i64) -> Value {
    if value >= 0 {
        Value::Uint(value.unsigned_abs())
    } else {
        Value::Negative(value.unsigned_abs() - 1)
    }
}

pub fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

pub fn bytes(value: &[u8]) -> Value {
    Value::Bytes(value.to_vec())
}

pub fn array<const N: usize>(values: [Value; N]) -> Value {
    Value::Array(values.to_vec())
}

/// The shortest head.
pub fn head(major: u8, argument: u64) -> Vec<u8> {
    let wide = argument.to_be_bytes();
    match argument {
        0..24 => vec![major << 5 | wide[7]],
        24..0x100 => vec![major << 5 | 24, wide[7]],
        0x100..0x1_0000 => [&[major << 5 | 25], &wide[6..]].concat(),
        0x1_0000..0x1_0000_0000 => [&[major << 5 | 26], &wide[4..]].concat(),
        _ => [&[major << 5 | 27], &wide[..]].concat(),
    }
}

impl Value {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Uint(value) => head(0, *value),
            Self::Negative(value) => head(1, *value),
            Self::Bytes(bytes) => [head(2, bytes.len() as u64), bytes.clone()].concat(),
            Self::Text(text) => [head(3, text.len() as u64), text.clone().into_bytes()].concat(),
            Self::Array(values) => {
                let mut out = head(4, values.len() as u64);
                values.iter().for_each(|value| out.extend(value.encode()));
                out
            }
            Self::Map(pairs) => {
                let mut out = head(5, pairs.len() as u64);
                for (key, value) in pairs {
                    out.extend(key.encode());
                    out.extend(value.encode());
                }
                out
            }
            Self::Tag(number, value) => [head(6, *number), value.encode()].concat(),
            Self::Simple(number) => vec![0xe0 | number],
        }
    }

    /// The value that well-formed bytes start with; they go on behind it.
    pub fn take(bytes: &mut &[u8]) -> Self {
        let first = bytes[0];
        let (major, info) = (first >> 5, first & 31);
        let width = if info < 24 { 0 } else { 1usize << (info - 24) };
        let argument = if width == 0 {
            u64::from(info)
        } else {
            bytes[1..=width].iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
        };
        *bytes = &bytes[1 + width..];
        let length = usize::try_from(argument).unwrap_or(usize::MAX);
        match major {
            0 => Self::Uint(argument),
            1 => Self::Negative(argument),
            2 | 3 => {
                let (string, rest) = bytes.split_at(length);
                *bytes = rest;
                if major == 2 {
                    Self::Bytes(string.to_vec())
                } else {
                    Self::Text(String::from_utf8(string.to_vec()).unwrap())
                }
            }
            4 => Self::Array((0..argument).map(|_| Self::take(bytes)).collect()),
            5 => Self::Map((0..argument).map(|_| (Self::take(bytes), Self::take(bytes))).collect()),
            6 => Self::Tag(argument, Box::new(Self::take(bytes))),
            _ => Self::Simple(info),
        }
    }

    pub fn decode(mut bytes: &[u8]) -> Self {
        let value = Self::take(&mut bytes);
        assert!(bytes.is_empty());
        value
    }

    /// The elements of an array.
    pub fn elements(&mut self) -> &mut Vec<Self> {
        match self {
            Self::Array(values) => values,
            Self::Tag(_, value) => value.elements(),
            other => panic!("{other:?} is no array"),
        }
    }

    /// The same array with another element at `at`.
    pub fn with(&self, at: usize, value: Self) -> Self {
        let mut changed = self.clone();
        changed.elements()[at] = value;
        changed
    }
}

/// The items of a stream.
pub fn sequence(mut bytes: &[u8]) -> Vec<Value> {
    let mut items = Vec::new();
    while !bytes.is_empty() {
        items.push(Value::take(&mut bytes));
    }
    items
}

pub fn encode_sequence(items: &[Value]) -> Vec<u8> {
    items.iter().flat_map(Value::encode).collect()
}
