//! The lines of stdin of a running device, and the records that they become.

use std::borrow::Cow;
use std::io::{self, BufRead, Read as _};
use std::sync::{Arc, OnceLock};

use moteseal_core::schema::Schema;
use moteseal_device::runner::{LiveReading, UrgentReading};
use moteseal_seal::wire::MAX_RECORD;
use tokio::sync::mpsc;

use super::Source;
use crate::config;
use crate::progress::thousands;
use crate::terminal::diagnostic;

/// The maximum number of lines of stdin that wait to be sealed.
const LINES: usize = 1024;
/// The maximum number of bytes in a line of stdin, without its newline; no record is longer. A
/// longer line is skipped.
pub(super) const MAX_LINE: usize = 1 << 16;

/// How a line with values becomes a record.
pub(super) struct LineFormat {
    schema: Vec<u8>,
    columns: Vec<String>,
    opaque: bool,
}

impl LineFormat {
    pub(super) fn new(source: &Source, config: &config::Source) -> Self {
        Self {
            schema: source.schema().to_vec(),
            columns: config.columns.clone(),
            opaque: config.opaque.is_some(),
        }
    }

    pub(super) fn record(&self, line: &str) -> Result<Vec<u8>, String> {
        record(&self.schema, &self.columns, self.opaque, line)
    }
}

/// Reads stdin on a separate thread. Lines that begin with the prefix of `urgent` are urgent
/// readings. A line that is not a valid record is reported and skipped. If
/// stdin itself fails, the readings end, and `broken` contains the error.
pub(super) fn lines(
    format: Arc<LineFormat>,
    urgent: Option<(String, mpsc::Sender<UrgentReading>)>,
    broken: Arc<OnceLock<io::Error>>,
) -> mpsc::Receiver<LiveReading> {
    let (send, records) = mpsc::channel(LINES);
    std::thread::spawn(move || {
        let read = each_line(&mut io::stdin().lock(), |number, line| {
            let (urgent, line) = match (&urgent, line) {
                (Some((prefix, urgent)), Ok(line)) => match line.strip_prefix(prefix.as_str()) {
                    Some(values) => (Some(urgent), Ok(values)),
                    None => (None, Ok(line)),
                },
                (_, line) => (None, line),
            };
            match line.and_then(|line| format.record(line)) {
                Ok(record) => {
                    return match urgent {
                        None => send.blocking_send(record.into()).is_ok(),
                        Some(urgent) => {
                            urgent.blocking_send(UrgentReading { record, reports: None }).is_ok()
                        }
                    };
                }
                Err(why) => diagnostic(format_args!("stdin:{number}: {why}; the line is left out")),
            }
            true
        });
        if let Err(error) = read {
            diagnostic(format_args!(
                "cannot read stdin: {error}; the device stops when the gateway has all readings so far"
            ));
            let _ = broken.set(error);
        }
    });
    records
}

/// Passes the lines of an input to `take`, one at a time, until `take` returns false. Each line has
/// a number, from 1, and either its text or a description of what is wrong with it.
fn each_line(
    input: &mut impl BufRead,
    mut take: impl FnMut(u64, Result<&str, String>) -> bool,
) -> io::Result<()> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        // One byte more than the longest line and its newline.
        if input.by_ref().take(MAX_LINE as u64 + 2).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let has_ended = line.pop_if(|last| *last == b'\n').is_some();
        if has_ended {
            line.pop_if(|last| *last == b'\r');
        }
        let text = if line.len() > MAX_LINE {
            if !has_ended {
                input.skip_until(b'\n')?;
            }
            Err(format!("the line is longer than {} bytes", thousands(MAX_LINE as u64)))
        } else {
            str::from_utf8(&line).map_err(|_| "the line is not text in UTF-8".to_owned())
        };
        if !take(number, text) {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns the record of a line.
fn record(schema: &[u8], columns: &[String], opaque: bool, line: &str) -> Result<Vec<u8>, String> {
    if opaque && line.len() > MAX_RECORD {
        let (length, most) = (thousands(line.len() as u64), thousands(MAX_RECORD as u64));
        return Err(format!(
            "the reading has {length} bytes; in a group with a budget it may have at most {most}"
        ));
    }
    if opaque {
        return Ok(line.as_bytes().to_vec());
    }
    let schema = Schema::decode(schema).map_err(|error| error.named().to_string())?;
    let mut record = vec![0; schema.longest_record()];
    let values = values(line);
    if values.len() != columns.len() {
        return Err(format!(
            "the line has {} values, but there are {} columns",
            values.len(),
            columns.len()
        ));
    }
    for (field, value) in schema.fields().zip(&values) {
        field.write(value, &mut record).map_err(|error| {
            // The error is logged, and the value of an encrypted column must not leave the process.
            let shown = match field.suite {
                Some(_) => "the value".to_owned(),
                None => format!("{value:?}"),
            };
            format!("{shown} does not fit {field}: {}", error.named())
        })?;
    }
    record.truncate(schema.record_length(&record).unwrap_or(0));
    Ok(record)
}

/// Splits a line at its commas. A value in quotes may contain commas, and a quote as two quotes (RFC
/// 4180). White space around a value does not count.
fn values(line: &str) -> Vec<Cow<'_, str>> {
    let mut values = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_start();
        let quoted = rest.strip_prefix('"').and_then(quoted);
        let (value, after) = quoted.unwrap_or_else(|| {
            let (value, after) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
            (Cow::Borrowed(value.trim_end()), after)
        });
        values.push(value);
        match after.strip_prefix(',') {
            Some(after) => rest = after,
            None => return values,
        }
    }
}

/// Returns the value before the closing quote, and the line from the next comma on. Returns `None` if
/// the text is not a quoted value.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut from = 0;
    loop {
        let end = from + text[from..].find('"')?;
        let after = &text[end + 1..];
        if after.starts_with('"') {
            from = end + 2;
            continue;
        }
        let value = text[..end].replace("\"\"", "\"");
        let after = after.trim_start();
        return (after.is_empty() || after.starts_with(',')).then_some((value.into(), after));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{self, BufReader, Read};

    use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};

    use super::{MAX_LINE, MAX_RECORD, each_line, record};

    /// Returns the lines and errors that `each_line` passes to its callback, and its result.
    fn read(input: impl Read) -> (Vec<Result<String, String>>, io::Result<()>) {
        let mut lines = Vec::new();
        // A small buffer, so that lines cross its boundaries.
        let end = each_line(&mut BufReader::with_capacity(7, input), |number, line| {
            assert_eq!(number, lines.len() as u64 + 1);
            lines.push(line.map(str::to_owned));
            true
        });
        (lines, end)
    }

    #[test]
    fn leaves_out_a_line_that_is_not_utf8_and_reads_the_next_lines() {
        let (lines, end) = read(&b"1\n\xff\n2\r\n\n3"[..]);
        end.unwrap();
        let not_utf8 = Err("the line is not text in UTF-8".to_owned());
        assert_eq!(
            lines,
            [
                Ok("1".to_owned()),
                not_utf8,
                Ok("2".to_owned()),
                Ok(String::new()),
                Ok("3".to_owned())
            ]
        );
    }

    #[test]
    fn bounds_the_memory_for_a_line_of_any_length() {
        for (length, fits) in
            [(MAX_LINE, true), (MAX_LINE + 1, false), (MAX_LINE + 2, false), (MAX_LINE * 40, false)]
        {
            let long = "x".repeat(length);
            let (lines, end) = read(format!("{long}\nnext\n{long}").as_bytes());
            end.unwrap();
            let expected = if fits {
                Ok(long)
            } else {
                Err("the line is longer than 65,536 bytes".to_owned())
            };
            assert_eq!(lines, [expected.clone(), Ok("next".to_owned()), expected], "{length}");
        }
    }

    #[test]
    fn distinguishes_a_failing_input_from_its_end() {
        struct Fails;
        impl Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("gone"))
            }
        }
        let (lines, end) = read(b"1\n".chain(Fails));
        assert_eq!(lines, [Ok("1".to_owned())]);
        assert_eq!(end.unwrap_err().to_string(), "gone");
    }

    #[test]
    fn a_line_has_nulls_texts_and_quoted_values() {
        let columns = ["a:Cel:i16/100?", "note::text9?", "at::point?", "open::bool"];
        let fields = columns.map(|column| Field::parse(column).unwrap());
        let mut buffer = [0; MAX_SCHEMA];
        let schema = Schema::encode(&fields, &mut buffer).unwrap();
        let columns = columns.map(str::to_owned);
        let of = |line: &str| record(schema.as_bytes(), &columns, false, line);
        for (line, values) in [
            (
                "21.5,warm, \"59.33,18.07\" ,true",
                ["21.50", "warm", "59.3300000,18.0700000", "true"],
            ),
            (",\"a \"\"b\"\",\",,0", ["", "a \"b\",", "", "false"]),
            ("-1,\"\",,1", ["-1.00", "", "", "true"]),
            ("0, 5\" ,,1", ["0.00", "5\"", "", "true"]),
        ] {
            let record = of(line).unwrap();
            schema.check_record(&record).unwrap();
            let found: Vec<String> =
                schema.fields().map(|field| field.read(&record).unwrap().to_string()).collect();
            assert_eq!(found, values, "{line}");
        }
        assert!(of("1,a,,").unwrap_err().contains("does not fit open::bool: NotABoolean"));
        assert!(of("1,0123456789,,1").unwrap_err().contains("TextTooLong"));
        assert!(of("1,\"a\"b,,1,").unwrap_err().contains("5 values"));
    }

    #[test]
    fn accepts_an_opaque_line_as_long_as_a_frame_can_carry() {
        assert_eq!(record(&[], &[], true, &"x".repeat(MAX_RECORD)).unwrap().len(), MAX_RECORD);
        let why = record(&[], &[], true, &"x".repeat(MAX_RECORD + 1)).unwrap_err();
        assert_eq!(
            why,
            "the reading has 65,464 bytes; in a group with a budget it may have at most 65,463"
        );
    }
}
