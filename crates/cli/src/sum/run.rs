//! `moteseal sum run`: runs a query over a group and prints the proven result of each epoch.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, ValueEnum};
use moteseal_client::output::{AtomicFile, OutputError};
use moteseal_client::sum::{
    Minimums, Outcome, PreparedQuery, QuerierConfig, Row, RowFormat, RowNames, RowWriter, RunError,
    TreeSource,
};
use moteseal_service::stop_signal;
use moteseal_verify::SumGroup;
use tokio::sync::{Notify, watch};

use crate::aggregation;
use crate::client_error;
use crate::cloud::{log_warnings, runtime};
use crate::failure::{Exit, Failure};
use crate::progress::{bar, count, thousands};
use crate::roster_watch::RosterWatch;
use crate::succession::{Succession, record_roster};
use crate::terminal::{Plain, diagnostic, is_json};

/// The maximum length of a query that an error shows completely, in characters.
const WHOLE: usize = 120;
/// For a longer query, the number of characters to show before and after a mistake.
const SHOWN: (usize, usize) = (60, 40);

/// Run a query over a group and print the exact, proven result of each epoch.
#[derive(Args, Debug)]
#[command(after_help = "Example, querier.toml:\n  \
                        roster      = \"roster.cbor\"\n  \
                        operator    = \"keys/op.pub.pem\"\n  \
                        key         = \"keys/q.key.pem\"\n  \
                        keys        = \"sumkeys/querier.sum.key\"\n  \
                        tree        = \"tree.toml\"\n  \
                        link_secret = \"keys/querier.link.key\"\n  \
                        state       = \"querier.state\"\n  \
                        columns     = [\"temperature:Cel:i16/100\", \"humidity:%RH:u16/100\"]\n  \
                        grace       = \"2s\"\n  \
                        [ranges]\n  \
                        temperature = \"-40..125\"\n  \
                        [link]\n  \
                        url         = \"mqtts://broker.example:8883\"\n\n\
                        moteseal sum run \"SELECT AVG(temperature), COUNT(*) FROM sensors \\\n      \
                        WHERE humidity > 40 EPOCH DURATION 30s\" \\\n      \
                        --config querier.toml --epochs 10\n\n\
                        Without --epochs it runs until Ctrl-C, or until `moteseal sum stop`. Up to four queries can run at\n\
                        a time with one state file. `moteseal sum list` shows them. If the process of a query is killed,\n\
                        `moteseal sum run --attach ID` continues the query.\n\n\
                        Exit codes: 0 every epoch has a result; 3 a result was rejected;\n\
                        4 an epoch is missing or withheld: fewer sources than --floor took part, or there were fewer\n\
                        readings than --min-count; 6 the broker cannot be reached.")]
pub(crate) struct Arguments {
    /// The query: SELECT SUM|COUNT|AVG|VARIANCE|STDDEV(column), ... FROM sensors [WHERE ...] EPOCH
    /// DURATION 30s
    #[arg(required_unless_present = "attach", conflicts_with = "attach")]
    query: Option<String>,
    /// Continue the query whose id begins with these hexadecimal digits, after its process was killed
    #[arg(long, value_name = "ID", value_parser = digits)]
    attach: Option<String>,
    /// The querier's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// End after this many epochs; with --attach, default: when the query was to end
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    epochs: Option<u64>,
    /// The minimum number of participating sources for a result; default: more than half of the
    /// sources
    #[arg(long, value_name = "COUNT")]
    floor: Option<u32>,
    /// Withhold results of fewer readings than this; default: 5, or 8 with VARIANCE or STDDEV
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    min_count: Option<u32>,
    /// The format of the rows
    #[arg(long, value_enum, default_value = "table")]
    format: FormatName,
    /// The file for the rows, which appears when the query ends; default: stdout
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FormatName {
    /// Aligned columns, for people
    Table,
    /// One JSON object per line
    Json,
    /// Comma-separated values
    Csv,
    /// An Arrow IPC stream
    Arrow,
}

impl Arguments {
    fn format(&self) -> RowFormat {
        match self.format {
            FormatName::Table if is_json() => RowFormat::JsonLines,
            FormatName::Table => RowFormat::Table,
            FormatName::Json => RowFormat::JsonLines,
            FormatName::Csv => RowFormat::Csv,
            FormatName::Arrow => RowFormat::Arrow,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if is_json() && matches!(arguments.format, FormatName::Csv | FormatName::Arrow) {
        return Err(Failure::usage("--json prints JSON lines; leave --format out"));
    }
    let file = &arguments.config;
    let config = QuerierConfig::read(file).map_err(|error| client_error::input(&error))?;
    let (roster_watch, roster) = RosterWatch::open(config.roster.clone(), config.operator.clone())
        .map_err(|failure| failure.about_key(file, "roster"))?;
    let roster_watch = match &config.tree {
        TreeSource::File(path) => roster_watch.with_tree(path.clone()),
        TreeSource::Tables(_) => roster_watch,
    };
    let record = record_of(&config.state);
    let succession = Succession::check(record.clone(), &roster, &config.roster, &config.operator)
        .map_err(|failure| failure.about_key(file, "roster"))?;
    let progress = bar(roster.devices().len() as u64, "deriving");
    let minimums = Minimums { participants: arguments.floor, readings: arguments.min_count };
    let text = arguments.query.as_deref().unwrap_or_default();
    let derived = |done| progress.inc(done as u64);
    let query = match &arguments.attach {
        Some(id) => PreparedQuery::attach(id, &roster, &config, minimums, &derived),
        None => PreparedQuery::new(text, &roster, &config, minimums, &derived),
    };
    progress.finish_and_clear();
    let query = query.map_err(|error| match error.column() {
        Some(column) => {
            pointed(text, column).iter().for_each(diagnostic);
            client_error::input(&error)
        }
        None => client_error::input(&error).about(file),
    })?;
    succession.record().map_err(|failure| failure.about_key(file, "state"))?;
    let output = Output::open(arguments, query.names())?;
    let (mut writer, mut tally) = (output.writer, Tally::default());
    let closed = output.closed;
    let announced = format!("query {}: {}", query.id(), query.plan());
    let participants = format!(
        "the query is for {}, of which at least {} must answer; results of fewer than {} are withheld",
        count(u64::from(query.sources()), "source"),
        query.floor(),
        count(u64::from(query.min_count()), "reading"),
    );
    log_warnings();
    let started = || {
        diagnostic(announced);
        diagnostic(participants);
    };
    let gone = Notify::new();
    let mut take = |row: &Row| {
        tally.count(row);
        writer.row(row)?;
        if closed.load(Ordering::Relaxed) {
            gone.notify_one();
        }
        Ok::<(), OutputError>(())
    };
    let stop = async {
        tokio::select! {
            _ = stop_signal() => {}
            () = gone.notified() => {}
        }
    };
    let (newest, later) = watch::channel(query.group().clone());
    let accept = |group: &SumGroup| record_roster(&record, &group.roster);
    let follow = aggregation::follow(roster_watch, config.tree.clone(), newest, accept);
    let ended = runtime()?.block_on(async {
        tokio::select! {
            ended = query.run(arguments.epochs, Some(later), started, &mut take, stop) => ended,
            () = follow => Ok(0),
        }
    });
    let ended = ended.map_err(|error| match error {
        RunError::Output(error) => client_error::output(error),
        error => error.into(),
    });
    // After a failure, keep the rows that were already written. If there are none, leave no file.
    let finished = writer.finish().map_err(client_error::output);
    let keeps = ended.is_ok() || tally.all > 0;
    let written = output.file.filter(|_| keeps).map_or(Ok(()), Kept::commit);
    let missed = ended?;
    finished.and(written)?;
    if missed > 0 {
        diagnostic(format_args!(
            "{} have no row: the querier was paused, or its clock was set",
            count(missed, "epoch")
        ));
    }
    tally.add_missed(missed);
    tally.verdict()
}

/// Parses the first hexadecimal digits of the id of a query.
pub(super) fn digits(text: &str) -> Result<String, String> {
    let is_id = (1..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| text.to_owned()).ok_or_else(|| {
        "an id consists of hexadecimal digits; `moteseal sum list` shows the ids".to_owned()
    })
}

/// Returns the file next to a querier's state that records its version of the roster.
fn record_of(state: &Path) -> PathBuf {
    let mut name = state.as_os_str().to_owned();
    name.push(".roster");
    PathBuf::from(name)
}

/// Returns the part of a query around a column, and a line with a caret below that column.
fn pointed(text: &str, column: usize) -> [String; 2] {
    let at = column.saturating_sub(1);
    let is_whole = text.chars().nth(WHOLE).is_none();
    let (first, end) =
        if is_whole { (0, WHOLE) } else { (at.saturating_sub(SHOWN.0), at + SHOWN.1) };
    let shown = |from: usize, to: usize| {
        Plain(text.chars().skip(from).take(to.saturating_sub(from)).collect::<String>()).to_string()
    };
    let before = shown(first, at);
    let line = format!("{before}{}", shown(at, end));
    [line, format!("{}^", " ".repeat(before.chars().count()))]
}

/// The number of epochs with each outcome.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    all: u64,
    missing: u64,
    withheld: u64,
    refused: u64,
}

impl Tally {
    fn count(&mut self, row: &Row) {
        self.all += 1;
        match row.outcome {
            Outcome::Accepted(_) => {}
            Outcome::Missing(_) => self.missing += 1,
            Outcome::Withheld(_) => self.withheld += 1,
            Outcome::Rejected { .. } => self.refused += 1,
        }
    }

    fn add_missed(&mut self, epochs: u64) {
        self.all = self.all.saturating_add(epochs);
        self.missing = self.missing.saturating_add(epochs);
    }

    fn verdict(self) -> Result<(), Failure> {
        let of = |number: u64| format!("{} of {}", thousands(number), count(self.all, "epoch"));
        if self.refused > 0 {
            return Err(Failure::refused(format_args!(
                "the results of {} were rejected; their rows give the reason",
                of(self.refused)
            )));
        }
        if self.missing > 0 {
            let text = format_args!(
                "{} have no result: too few sources took part in time",
                of(self.missing)
            )
            .to_string();
            return Err(Failure::new(Exit::Incomplete, text));
        }
        if self.withheld > 0 {
            let text = format_args!(
                "the results of {} were withheld: they are over fewer readings than --min-count",
                of(self.withheld)
            )
            .to_string();
            return Err(Failure::new(Exit::Incomplete, text));
        }
        Ok(())
    }
}

/// The destination of the rows.
struct Output {
    writer: RowWriter<Box<dyn Write>>,
    file: Option<Kept>,
    /// Set when the reader of stdout has closed it.
    closed: Arc<AtomicBool>,
}

/// A file that is written while the query runs and becomes visible when it ends.
#[derive(Clone)]
struct Kept(std::rc::Rc<std::cell::RefCell<Option<AtomicFile>>>);

impl Kept {
    fn commit(self) -> Result<(), Failure> {
        let file = self.0.borrow_mut().take();
        file.map_or(Ok(()), AtomicFile::commit).map_err(client_error::output)
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().as_mut().map_or(Ok(bytes.len()), |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.borrow_mut().as_mut().map_or(Ok(()), Write::flush)
    }
}

/// Stdout. If its reader closes it, the query ends without a failure.
struct ClosableStdout {
    out: BufWriter<io::Stdout>,
    closed: Arc<AtomicBool>,
}

impl ClosableStdout {
    fn unless_closed<T>(&self, result: io::Result<T>, instead: T) -> io::Result<T> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed.store(true, Ordering::Relaxed);
                Ok(instead)
            }
            other => other,
        }
    }
}

impl Write for ClosableStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.out.write(bytes);
        self.unless_closed(result, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.unless_closed(result, ())
    }
}

impl Output {
    fn open(arguments: &Arguments, names: RowNames) -> Result<Self, Failure> {
        let closed = Arc::new(AtomicBool::new(false));
        let (out, file): (Box<dyn Write>, _) = match &arguments.out {
            Some(path) => {
                let file = AtomicFile::create(path).map_err(client_error::output)?;
                let kept = Kept(std::rc::Rc::new(std::cell::RefCell::new(Some(file))));
                (Box::new(kept.clone()), Some(kept))
            }
            None => (
                Box::new(ClosableStdout {
                    out: BufWriter::new(io::stdout()),
                    closed: closed.clone(),
                }),
                None,
            ),
        };
        let writer =
            RowWriter::new(arguments.format(), names, out).map_err(client_error::output)?;
        Ok(Self { writer, file, closed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_is_below_the_mistake() {
        assert_eq!(
            pointed("SELECT AVG(x)", 12),
            ["SELECT AVG(x)".to_owned(), format!("{}^", " ".repeat(11))]
        );
        // A mistake after the last character.
        assert_eq!(pointed("SELECT", 7), ["SELECT".to_owned(), format!("{}^", " ".repeat(6))]);
        // Control characters are escaped, and the caret is still below the mistake.
        let [line, caret] = pointed("a\nb\u{1b}?c", 5);
        assert_eq!(line.chars().nth(caret.len() - 1), Some('?'), "{line}");
        let long = format!("{}!{}", "x".repeat(500), "y".repeat(500));
        let [line, caret] = pointed(&long, 501);
        assert!(line.len() <= 101 && line.as_bytes()[caret.len() - 1] == b'!', "{line}");
    }
}
