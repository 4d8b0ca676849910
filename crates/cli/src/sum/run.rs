//! `moteseal sum run`: asks a group a query every epoch, and shows the verified results.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use moteseal_client::output::{AtomicFile, OutputError};
use moteseal_client::sum::{
    Asking, FollowError, NumberError, Numbers, Outcome, PoseError, Querier, Question, Row,
    RowFormat, RowNames, RowWriter, Run, default_floor, follow,
};
use moteseal_cloud::stop_signal;
use moteseal_core::record::DeviceId;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_lanes::Host;
use moteseal_net::ParentLink as _;
use moteseal_net::link::until_up_within;
use moteseal_net::mqtt::MqttParent;
use moteseal_sum::key_file::QuerierKeys;
use moteseal_sum::query::{MAX_PLAN, Plan, QueryError};
use moteseal_verify::Roster;
use moteseal_verify::aggregation::QUERIER;
use tokio::sync::Notify;

use crate::aggregation::tree;
use crate::cloud::runtime;
use crate::config;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::gateway::link_failure;
use crate::key::random;
use crate::progress::{bar, count, thousands};
use crate::terminal::{Plain, talk};

/// The longest wait for a broker.
const REACHED_WITHIN: Duration = Duration::from_secs(10);
/// A query ends after this time if its querier has stopped.
const LEASE: Duration = Duration::from_secs(3600);
/// The longest query that an error shows completely;
const WHOLE: usize = 120;
/// of a longer one it shows as much around the mistake.
const SHOWN: (usize, usize) = (60, 40);

/// Ask a group a query every epoch, and show the exact, verified results.
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
                        moteseal sum run \"SELECT AVG(temperature), COUNT(*) FROM sensors WHERE humidity > 40 EPOCH DURATION 30s\" \\\n      \
                        --config querier.toml --epochs 10\n\n\
                        Without --epochs it runs until Ctrl-C. Exit codes: 0 every epoch was answered; 3 an answer was refused;\n\
                        4 an epoch is missing, or fewer than the floor took part; 6 the broker is unreachable.")]
pub(crate) struct Arguments {
    /// The query: SELECT SUM|COUNT|AVG|VARIANCE|STDDEV(column), ... FROM sensors [WHERE ...] EPOCH
    /// DURATION 30s
    query: String,
    /// The querier's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Stop after this many epochs
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    epochs: Option<u64>,
    /// The fewest participants of a result that is shown; by default more than half of the sources
    #[arg(long, value_name = "COUNT")]
    floor: Option<u32>,
    /// Print one JSON object a line
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// The format of the rows
    #[arg(long, value_enum, default_value = "table")]
    format: FormatName,
    /// The file for the rows, which appears when the query ends; by default stdout
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FormatName {
    /// Aligned columns, for people
    Table,
    /// One JSON object a line
    Json,
    /// Comma-separated values
    Csv,
    /// An Arrow IPC stream
    Arrow,
}

impl Arguments {
    fn format(&self) -> RowFormat {
        match self.format {
            _ if self.json => RowFormat::JsonLines,
            FormatName::Table => RowFormat::Table,
            FormatName::Json => RowFormat::JsonLines,
            FormatName::Csv => RowFormat::Csv,
            FormatName::Arrow => RowFormat::Arrow,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let file = &arguments.config;
    let (config, folder): (config::Querier, _) = config::load_as(file, "docs/sums.md")?;
    let in_key = |key: &'static str| move |failure: Failure| failure.about_key(file, key);
    let roster = files::roster(&folder.join(&config.roster), &folder.join(&config.operator))
        .map_err(in_key("roster"))?;
    let mut buffer = [0; MAX_SCHEMA];
    let schema = schema(&config.columns, &mut buffer).map_err(in_key("columns"))?;
    let plan = plan(&arguments.query, &schema, &config, file)?;
    let signer = files::secret_key(&folder.join(&config.key)).map_err(in_key("key"))?;
    let keys = querier_keys(&folder.join(&config.keys), &roster).map_err(in_key("keys"))?;
    if keys.querier != signer.public() {
        return Err(in_key("key")(Failure::usage(format_args!(
            "WrongQuerier: {} is not the key that `sum setup` was given; no device would answer its queries",
            config.key.display()
        ))));
    }
    let tree = tree(&folder.join(&config.tree), &roster)?;
    let link_secret =
        files::link_secret(&folder.join(&config.link_secret)).map_err(in_key("link_secret"))?;
    let link = config.link.aggregator_options(file, &folder, &roster, QUERIER)?;

    let sources = keys.circle.sources;
    let mut bytes = [0; MAX_PLAN];
    let encoded =
        plan.encode(&mut bytes).map_err(|error| Failure::new(Exit::Internal, error))?.to_vec();
    let mut nonce = [0; 16];
    random(&mut nonce)?;
    let question = Question {
        group: keys.circle.group,
        roster: keys.circle.roster,
        nonce,
        plan: encoded,
        key_group: keys.circle.key_group,
        floor: arguments.floor.unwrap_or_else(|| default_floor(sources)),
    };
    let floor = question.floor;
    let devices: Vec<DeviceId> = roster.devices().map(|device| device.id).collect();
    let progress = bar(u64::from(sources), "deriving");
    let querier = Querier::new(question, &keys.master, &devices, Host::detect(), &|done| {
        progress.inc(done as u64)
    });
    progress.finish_and_clear();
    let querier = querier.map_err(|error| pose_failure(&error))?;
    drop(keys);

    let names =
        RowNames::new(&plan, &schema, roster.devices().map(|device| device.name.clone()).collect());
    let mut numbers = Numbers::open(&folder.join(&config.state))
        .map_err(|error| number_failure(&error).about_key(file, "state"))?;
    let output = Output::open(arguments, names)?;
    let members: Vec<[u8; 8]> = tree.querier().children().iter().map(|child| child.id.0).collect();
    let (mut writer, mut tally) = (output.writer, Tally::default());
    let unheard = output.unheard;
    let id = querier.id();
    let settings = Run { epochs: arguments.epochs, grace: config.grace, lease: LEASE };
    let followed = runtime()?.block_on(async {
        let aggregator = MqttParent::new(&link, members)
            .map_err(|error| link_failure(&error).about_key(file, "link"))?;
        until_up_within(aggregator.state(), REACHED_WITHIN)
            .await
            .map_err(|error| link_failure(&error))?;
        talk(format_args!("query {id}: {plan}"));
        talk(format_args!(
            "{} are queried, {floor} must answer",
            count(u64::from(sources), "source")
        ));
        let gone = Notify::new();
        let asking = Asking {
            link: &aggregator,
            link_secret: &link_secret,
            signer: &signer,
            numbers: &mut numbers,
            unix_ms: &unix_ms,
        };
        let mut take = |row: &Row| {
            tally.count(row);
            writer.row(row)?;
            if unheard.load(Ordering::Relaxed) {
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
        follow(asking, &tree, querier, settings, &mut take, stop)
            .await
            .map_err(|error| follow_failure(&error))
    });
    // Results before a failure are complete and stay; without results, no file is left.
    let finished = writer.finish().map_err(output_failure);
    let keeps = followed.is_ok() || tally.all > 0;
    let written = output.file.filter(|_| keeps).map_or(Ok(()), Kept::commit);
    let missed = followed?;
    finished.and(written)?;
    if missed > 0 {
        talk(format_args!(
            "{} skipped, without rows: the querier was paused, or its clock was set",
            count(missed, "epoch")
        ));
    }
    tally.pass_over(missed);
    tally.verdict()
}

fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// The schema of columns as for `moteseal seal`.
fn schema<'b>(columns: &[String], buffer: &'b mut [u8; MAX_SCHEMA]) -> Result<Schema<'b>, Failure> {
    let fields = columns.iter().map(|column| {
        Field::parse(column).map_err(|error| {
            Failure::usage(format_args!(
                "{column:?}: {}; a column is NAME:UNIT:TYPE, for example temperature:Cel:i16/100",
                error.named()
            ))
        })
    });
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    if fields.is_empty() {
        return Err(Failure::usage(
            "name the columns that the devices seal, for example \"temperature:Cel:i16/100\"",
        ));
    }
    Schema::encode(&fields, buffer).map_err(|error| Failure::usage(error.named()))
}

/// Parses the query, and narrows its columns to the ranges of the configuration.
fn plan<'a>(
    text: &'a str,
    schema: &Schema<'a>,
    config: &config::Querier,
    file: &Path,
) -> Result<Plan<'a>, Failure> {
    let mut plan = Plan::parse(text, schema).map_err(|error| {
        point_at(text, &error);
        Failure::usage(error.named())
    })?;
    for (column, range) in &config.ranges {
        let in_key =
            |what: String| Failure::usage(what).about_key(file, &format!("ranges.{column}"));
        if schema.field(column).is_none() {
            return Err(in_key("`columns` does not have this column".to_owned()));
        }
        let (least, greatest) = range
            .split_once("..")
            .ok_or_else(|| in_key(format!("{range:?}: two numbers, for example \"-40..125\"")))?;
        plan.narrow(column, least.trim(), greatest.trim())
            .map_err(|error| in_key(format!("{range:?}: {}", error.named())))?;
    }
    Ok(plan)
}

/// The query, and a caret below the mistake.
fn point_at(text: &str, error: &QueryError<'_>) {
    for line in pointed(text, error.column) {
        talk(line);
    }
}

/// The section of a query around a column, and a caret below it.
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

/// Reads the querier's keys, and checks that they are for this roster.
fn querier_keys(path: &Path, roster: &Roster) -> Result<QuerierKeys, Failure> {
    use moteseal_core::roster::Directory as _;
    let text = files::read(path)?;
    let keys =
        QuerierKeys::decode(&text).map_err(|error| Failure::usage(error.named()).about(path))?;
    keys.circle
        .check(roster.group(), &roster.digest())
        .map_err(|error| Failure::usage(error.named()).about(path))?;
    Ok(keys)
}

/// The number of epochs by result.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    all: u64,
    missing: u64,
    refused: u64,
}

impl Tally {
    fn count(&mut self, row: &Row) {
        self.all += 1;
        match row.outcome {
            Outcome::Accepted(_) => {}
            Outcome::Missing(_) => self.missing += 1,
            Outcome::Refused { .. } => self.refused += 1,
        }
    }

    fn pass_over(&mut self, epochs: u64) {
        self.all = self.all.saturating_add(epochs);
        self.missing = self.missing.saturating_add(epochs);
    }

    fn verdict(self) -> Result<(), Failure> {
        let of = |number: u64| format!("{} of {}", thousands(number), count(self.all, "epoch"));
        if self.refused > 0 {
            return Err(Failure::refused(format_args!(
                "the answers of {} were refused; their rows have the reasons",
                of(self.refused)
            )));
        }
        if self.missing > 0 {
            let text = format_args!(
                "{} have no result: too few sources answered in time",
                of(self.missing)
            )
            .to_string();
            return Err(Failure::new(Exit::Incomplete, text));
        }
        Ok(())
    }
}

/// Where rows are written.
struct Output {
    writer: RowWriter<Box<dyn Write>>,
    file: Option<Kept>,
    /// Stdout is closed.
    unheard: Arc<AtomicBool>,
}

/// A file that is written during the query, and appears when it ends.
#[derive(Clone)]
struct Kept(std::rc::Rc<std::cell::RefCell<Option<AtomicFile>>>);

impl Kept {
    fn commit(self) -> Result<(), Failure> {
        let file = self.0.borrow_mut().take();
        file.map_or(Ok(()), AtomicFile::commit).map_err(output_failure)
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
struct Heard {
    out: BufWriter<io::Stdout>,
    unheard: Arc<AtomicBool>,
}

impl Heard {
    fn told<T>(&self, result: io::Result<T>, instead: T) -> io::Result<T> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.unheard.store(true, Ordering::Relaxed);
                Ok(instead)
            }
            other => other,
        }
    }
}

impl Write for Heard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.out.write(bytes);
        self.told(result, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.told(result, ())
    }
}

impl Output {
    fn open(arguments: &Arguments, names: RowNames) -> Result<Self, Failure> {
        let unheard = Arc::new(AtomicBool::new(false));
        let (out, file): (Box<dyn Write>, _) = match &arguments.out {
            Some(path) => {
                let file = AtomicFile::create(path).map_err(output_failure)?;
                let kept = Kept(std::rc::Rc::new(std::cell::RefCell::new(Some(file))));
                (Box::new(kept.clone()), Some(kept))
            }
            None => (
                Box::new(Heard { out: BufWriter::new(io::stdout()), unheard: unheard.clone() }),
                None,
            ),
        };
        let writer = RowWriter::new(arguments.format(), names, out).map_err(output_failure)?;
        Ok(Self { writer, file, unheard })
    }
}

fn output_failure(error: OutputError) -> Failure {
    Failure::new(if error.is_misuse() { Exit::Usage } else { Exit::Internal }, error)
}

fn pose_failure(error: &PoseError) -> Failure {
    match error {
        PoseError::FloorOutOfRange { .. } => {
            Failure::usage(format_args!("{error}; set it with --floor"))
        }
        PoseError::Overflow(_) => {
            Failure::usage(format_args!("{error}: with [ranges] in the configuration"))
        }
        _ => Failure::new(Exit::Internal, error),
    }
}

fn number_failure(error: &NumberError) -> Failure {
    let exit = match error {
        NumberError::File(_, error) if error.kind() != io::ErrorKind::NotFound => Exit::Internal,
        _ => Exit::Usage,
    };
    Failure::new(exit, error)
}

fn follow_failure(error: &FollowError) -> Failure {
    match error {
        FollowError::Link(error) => link_failure(error),
        FollowError::Number(error) => number_failure(error),
        FollowError::Output(error) => Failure::new(Exit::Internal, error),
        _ => Failure::new(Exit::Internal, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caret_stands_below_the_mistake() {
        assert_eq!(
            pointed("SELECT AVG(x)", 12),
            ["SELECT AVG(x)".to_owned(), format!("{}^", " ".repeat(11))]
        );
        // At the end, and after it.
        assert_eq!(pointed("SELECT", 7), ["SELECT".to_owned(), format!("{}^", " ".repeat(6))]);
        // Control characters are escaped, and the caret is still below the mistake.
        let [line, caret] = pointed("a\nb\u{1b}?c", 5);
        assert_eq!(line.chars().nth(caret.len() - 1), Some('?'), "{line}");
        let long = format!("{}!{}", "x".repeat(500), "y".repeat(500));
        let [line, caret] = pointed(&long, 501);
        assert!(line.len() <= 101 && line.as_bytes()[caret.len() - 1] == b'!', "{line}");
    }
}
