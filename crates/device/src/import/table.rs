//! Reads tables in text form. The columns are separated by comma, semicolon or tab, with quotes as
//! in RFC 4180, or by any white space.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

/// The maximum length of the header or a row, in bytes.
const MAX_LINE: usize = 1 << 20;

/// The delimiter of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delimiter {
    /// A comma.
    Comma,
    /// A semicolon. Numbers may then have a decimal comma instead of a decimal point.
    Semicolon,
    /// A tab.
    Tab,
    /// One or more spaces or tabs; no quotes.
    Whitespace,
}

impl Delimiter {
    /// Detects the delimiter of a header. This is the most frequent of comma, semicolon and tab, or
    /// white space if the header contains none of them.
    fn detect(header: &str) -> Self {
        let candidates = [(Self::Comma, ','), (Self::Semicolon, ';'), (Self::Tab, '\t')];
        let counted =
            candidates.map(|(delimiter, character)| (header.matches(character).count(), delimiter));
        // If several delimiters are equally frequent, use the first of them in this order.
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

/// Why a text cannot be read as a table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The text cannot be read.
    #[error("{0}")]
    Io(io::Error),
    /// The text has no header.
    #[error("the file is empty")]
    Empty,
    /// A line is longer than 1 MiB.
    #[error("a line is longer than 1 MiB; check that this is a table")]
    LongLine,
    /// A line is not UTF-8.
    #[error("not UTF-8 text; convert the file, for example with iconv -f latin1 -t utf8")]
    NotText,
    /// Two columns have the same name, which is `None` if it must not be shown.
    #[error(
        "the header has two columns with {}; rename one, or, if the first line is a \
         reading, put a line with the columns' names before it",
        name(.0.as_deref())
    )]
    DuplicateColumn(Option<String>),
}

/// Returns a column's name, if it may be shown.
fn name(name: Option<&str>) -> String {
    name.map_or_else(|| "the same name".to_owned(), |name| format!("the name {name:?}"))
}

impl From<io::Error> for TableError {
    fn from(error: io::Error) -> Self {
        // `read_line` returns this error kind for bytes that are not UTF-8.
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

/// The header, which was already read, followed by the rest of the text.
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
    /// Returns the line in which the row starts, from 1. If empty lines precede a quoted row,
    /// returns the first of them.
    pub(super) fn line(&self) -> u64 {
        match self {
            // The `csv` crate records the position before it skips empty lines.
            Self::Quoted(record, _) => record.position().map_or(0, csv::Position::line),
            Self::Plain { line, .. } => *line,
        }
    }

    /// Returns the number of columns in the row.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Quoted(record, _) => record.len(),
            Self::Plain { ends, .. } => ends.len(),
        }
    }

    /// Returns the value of a column without surrounding white space. Returns an empty text if the
    /// row has no such column.
    pub(super) fn value(&self, column: usize) -> &str {
        match self {
            Self::Quoted(record, _) => record.get(column).unwrap_or("").trim(),
            Self::Plain { text, ends, .. } => {
                ends.get(column).map_or("", |&(start, end)| &text[start..end])
            }
        }
    }

    /// Like [`value`](Self::value), but replaces a decimal comma by a decimal point if the table
    /// uses decimal commas.
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
    /// Reads the header. If `delimiter` is `None`, detects the delimiter from the header.
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
            // Put the empty lines before the header back, so that the reader counts lines
            // correctly.
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
            return Err(TableError::DuplicateColumn(Some(name.clone())));
        }
        Ok(Self { columns, delimiter, rows })
    }

    /// Returns the names of the columns.
    pub(super) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Returns the delimiter of the columns.
    pub(super) const fn delimiter(&self) -> Delimiter {
        self.delimiter
    }

    /// Returns the next row that is not empty. An error is returned with its line, if that is
    /// known.
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
