//! Tables in text form: columns separated by comma, semicolon or tab, with quotes (RFC 4180), or by
//! any white space.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

/// The longest header or row, in bytes.
const MAX_LINE: usize = 1 << 20;

/// The delimiter of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delimiter {
    /// `,`
    Comma,
    /// `;`, with a comma as the decimal mark in values without a point.
    Semicolon,
    /// A tab.
    Tab,
    /// One or more spaces or tabs; no quotes.
    Whitespace,
}

impl Delimiter {
    /// The delimiter of a header: the most frequent of comma, semicolon and tab, or else white
    /// space.
    fn detect(header: &str) -> Self {
        let candidates = [(Self::Comma, ','), (Self::Semicolon, ';'), (Self::Tab, '\t')];
        let counted =
            candidates.map(|(delimiter, character)| (header.matches(character).count(), delimiter));
        // If several are equally frequent, the first in this order.
        let best =
            counted.into_iter().reduce(|best, next| if next.0 > best.0 { next } else { best });
        match best {
            Some((count, delimiter)) if count > 0 => delimiter,
            _ if header.trim().contains(char::is_whitespace) => Self::Whitespace,
            _ => Self::Comma,
        }
    }

    const fn byte(self) -> u8 {
        match self {
            Self::Comma | Self::Whitespace => b',',
            Self::Semicolon => b';',
            Self::Tab => b'\t',
        }
    }
}

impl fmt::Display for Delimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Comma => "commas",
            Self::Semicolon => "semicolons",
            Self::Tab => "tabs",
            Self::Whitespace => "white space",
        })
    }
}

/// Why a text is not a table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// It cannot be read.
    #[error("{0}")]
    Io(io::Error),
    /// It has no header.
    #[error("the file is empty")]
    Empty,
    /// A line is longer than 1 MiB.
    #[error("a line is longer than 1 MiB; check that this is a table")]
    LongLine,
    /// A line is not UTF-8.
    #[error("not UTF-8 text; convert the file, for example with iconv -f latin1 -t utf8")]
    NotText,
    /// Two columns have the same name.
    #[error("two columns have the name {0:?}; rename one in the header")]
    DuplicateColumn(String),
}

impl From<io::Error> for TableError {
    fn from(error: io::Error) -> Self {
        // The error kind of `read_line` for bytes that are not UTF-8.
        if error.kind() == io::ErrorKind::InvalidData { Self::NotText } else { Self::Io(error) }
    }
}

impl From<csv::Error> for TableError {
    fn from(error: csv::Error) -> Self {
        match error.into_kind() {
            csv::ErrorKind::Io(error) => Self::Io(error),
            csv::ErrorKind::Utf8 { .. } => Self::NotText,
            other => Self::Io(io::Error::other(format!("{other:?}"))),
        }
    }
}

/// A table, read row by row.
pub(super) struct Table<R> {
    columns: Vec<String>,
    delimiter: Delimiter,
    rows: Rows<R>,
}

/// The header that has been read already, and the rest.
type Rewound<R> = io::Chain<io::Cursor<Vec<u8>>, BufReader<R>>;

enum Rows<R> {
    Quoted { reader: Box<csv::Reader<Rewound<R>>>, record: csv::StringRecord },
    Plain { reader: BufReader<R>, text: String, ends: Vec<(usize, usize)>, line: u64 },
}

/// One row.
pub(super) enum Row<'t> {
    Quoted(&'t csv::StringRecord, bool),
    Plain { text: &'t str, ends: &'t [(usize, usize)], line: u64 },
}

impl Row<'_> {
    /// The line that the row starts in, from 1.
    pub(super) fn line(&self) -> u64 {
        match self {
            // The position is where the reader was before it skipped empty lines and started the
            // row.
            Self::Quoted(record, _) => record.position().map_or(0, csv::Position::line),
            Self::Plain { line, .. } => *line,
        }
    }

    /// The number of columns.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Quoted(record, _) => record.len(),
            Self::Plain { ends, .. } => ends.len(),
        }
    }

    /// One column's value without surrounding white space; empty after the last column.
    pub(super) fn value(&self, column: usize) -> &str {
        match self {
            Self::Quoted(record, _) => record.get(column).unwrap_or("").trim(),
            Self::Plain { text, ends, .. } => {
                ends.get(column).map_or("", |&(start, end)| &text[start..end])
            }
        }
    }

    /// Like [`value`](Self::value), but with a decimal point if the table uses a decimal comma.
    pub(super) fn number(&self, column: usize) -> std::borrow::Cow<'_, str> {
        let value = self.value(column);
        match self {
            Self::Quoted(_, true) if value.contains(',') && !value.contains('.') => {
                value.replacen(',', ".", 1).into()
            }
            _ => value.into(),
        }
    }
}

impl<R: Read> Table<R> {
    /// Reads the header; detects the delimiter from it if none is given.
    pub(super) fn open(from: R, delimiter: Option<Delimiter>) -> Result<Self, TableError> {
        let mut reader = BufReader::with_capacity(1 << 16, from);
        let (mut header, mut line) = (String::new(), 0);
        while header.trim().is_empty() {
            header.clear();
            line += 1;
            if read_line(&mut reader, &mut header)? == 0 {
                return Err(TableError::Empty);
            }
        }
        let header = header.trim_start_matches('\u{feff}').to_owned();
        let delimiter = delimiter.unwrap_or_else(|| Delimiter::detect(&header));
        let (columns, rows) = if delimiter == Delimiter::Whitespace {
            let columns: Vec<String> = header.split_whitespace().map(str::to_owned).collect();
            (columns, Rows::Plain { reader, text: String::new(), ends: Vec::new(), line })
        } else {
            let mut builder = csv::ReaderBuilder::new();
            builder.delimiter(delimiter.byte()).flexible(true);
            // Empty lines before the header keep the line numbers right.
            let start = "\n".repeat(usize::try_from(line - 1).unwrap_or(0)) + &header;
            let mut reader =
                Box::new(builder.from_reader(io::Cursor::new(start.into_bytes()).chain(reader)));
            let columns = reader.headers()?.iter().map(|name| name.trim().to_owned()).collect();
            (columns, Rows::Quoted { reader, record: csv::StringRecord::new() })
        };
        if let Some((at, name)) = columns
            .iter()
            .enumerate()
            .find(|(at, name)| columns[..*at].contains(name) && !name.is_empty())
        {
            let _ = at;
            return Err(TableError::DuplicateColumn(name.clone()));
        }
        Ok(Self { columns, delimiter, rows })
    }

    /// The columns' names.
    pub(super) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The delimiter of columns.
    pub(super) const fn delimiter(&self) -> Delimiter {
        self.delimiter
    }

    /// The next row that is not empty. An error comes with its line.
    pub(super) fn next_row(&mut self) -> Result<Option<Row<'_>>, (Option<u64>, TableError)> {
        match &mut self.rows {
            Rows::Quoted { reader, record } => {
                let line = reader.position().line();
                let more =
                    reader.read_record(record).map_err(|error| (Some(line), error.into()))?;
                Ok(more.then_some(Row::Quoted(record, self.delimiter == Delimiter::Semicolon)))
            }
            Rows::Plain { reader, text, ends, line } => loop {
                text.clear();
                *line += 1;
                if read_line(reader, text).map_err(|error| (Some(*line), error))? == 0 {
                    return Ok(None);
                }
                ends.clear();
                let start = text.as_ptr() as usize;
                ends.extend(text.split_whitespace().map(|word| {
                    let at = word.as_ptr() as usize - start;
                    (at, at + word.len())
                }));
                if !ends.is_empty() {
                    return Ok(Some(Row::Plain { text, ends, line: *line }));
                }
            },
        }
    }
}

fn read_line(reader: &mut impl BufRead, into: &mut String) -> Result<usize, TableError> {
    let read = reader.take(MAX_LINE as u64 + 1).read_line(into)?;
    if read > MAX_LINE { Err(TableError::LongLine) } else { Ok(read) }
}
