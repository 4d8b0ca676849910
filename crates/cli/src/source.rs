//! What `moteseal seal` and `moteseal replay` share: a table, and the device whose readings it holds.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{ArgGroup, Args, ValueEnum};
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_core::schema::Schema;
use moteseal_core::signature::SecretKey;
use moteseal_device::import::{Clock, Delimiter, ImportErrorKind};
use moteseal_device::outbox::state_beside;
use moteseal_device::recorder::RecordError;
use moteseal_device::{Import, Outbox, OutboxError, Profile, Recording, Sealer};
use moteseal_verify::Roster;
use serde::Deserialize;

use crate::failure::{Exit, Failure};
use crate::files;
use crate::progress::count;
use crate::terminal::talk;
use crate::time;

/// A clock this far ahead of ours is wrong.
const FUTURE_MS: u64 = 86_400_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SchemeName {
    /// Geometric star: samples by rate, the smallest and fastest
    #[default]
    Star,
    /// Merkle tree: also samples by count and seed, and proofs of single readings
    Tree,
}

impl From<SchemeName> for Scheme {
    fn from(name: SchemeName) -> Self {
        match name {
            SchemeName::Star => Self::Star,
            SchemeName::Tree => Self::Tree,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Separator {
    Comma,
    Semicolon,
    Tab,
    Whitespace,
}

/// How columns and times are written, for `--help`.
pub(crate) const TABLES: &str = "A column is NAME:UNIT:TYPE[/DIVISOR][+OFFSET]:\n  \
    NAME     its name in the table's header\n  \
    UNIT     a SenML unit such as Cel, %RH or V, or nothing\n  \
    TYPE     u8 i8 u16 i16 u32 i32 u64 i64 f32 f64\n  \
    a value is (recorded integer + OFFSET) / DIVISOR: 27.97 as i16/100 takes two bytes\n  \
    and reads back as 27.97. What does not fit is refused, never rounded.\n\n\
    Times are Unix seconds or milliseconds, RFC 3339, YYYY-MM-DD HH:MM:SS or YYYY-MM-DD\n\
    (UTC), whichever the first row has.";

/// A table of readings and the device that took them.
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("clock").required(true).args(["time", "every"])),
    group(ArgGroup::new("what").required(true).args(["columns", "opaque"]))
)]
pub(crate) struct Source {
    /// The table: a header line, then a line a reading
    pub(crate) table: PathBuf,
    /// The column that says when
    #[arg(long, value_name = "COLUMN")]
    time: Option<String>,
    /// Instead of --time: readings this far apart (5s, 250ms, 1h), the first at --start
    #[arg(long, value_name = "DURATION", value_parser = time::duration, requires = "start")]
    every: Option<u64>,
    /// With --every: when the first reading was taken (RFC 3339, or YYYY-MM-DD)
    #[arg(long, value_name = "TIME", value_parser = time::instant, requires = "every")]
    start: Option<u64>,
    /// A column to seal, as NAME:UNIT:TYPE[/DIVISOR][+OFFSET]; say it once a column
    #[arg(long = "column", value_name = "SPEC")]
    columns: Vec<String>,
    /// Instead of --column: seal this column's text as it is, of any length
    #[arg(long, value_name = "COLUMN")]
    opaque: Option<String>,
    /// Record each reading's time, to the millisecond, in 4 bytes more
    #[arg(long, conflicts_with = "opaque")]
    keep_time: bool,
    /// The device's name in the roster
    #[arg(long, value_name = "NAME")]
    pub(crate) device: String,
    /// The device's secret key
    #[arg(long, value_name = "KEY")]
    key: PathBuf,
    /// The device's salt key; NAME.salt.key beside NAME.key.pem unless given
    #[arg(long, value_name = "KEY")]
    salt_key: Option<PathBuf>,
    /// The group's roster
    #[arg(long)]
    roster: PathBuf,
    /// The operator's public key
    #[arg(long, value_name = "PUBLIC_KEY")]
    operator: PathBuf,
    /// How the events are folded into the seal
    #[arg(long, value_enum, default_value = "star")]
    pub(crate) scheme: SchemeName,
    /// The directory for the bundles
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) out: PathBuf,
    /// Where the device keeps its chain's state, the same file every time; beside the key, as NAME.DEVICE-ID.chain, unless given
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// What separates columns; found out from the header unless given
    #[arg(long, value_enum)]
    delimiter: Option<Separator>,
    /// Leave rows out that lack a value
    #[arg(long)]
    skip_incomplete: bool,
    /// Put rows in order of their times
    #[arg(long)]
    sort: bool,
    /// Take times that are more than a day ahead of this machine's clock
    #[arg(long)]
    allow_future: bool,
    /// Start another seal within an epoch after this many readings
    #[arg(long, value_name = "READINGS", value_parser = clap::value_parser!(u32).range(1..))]
    max_events: Option<u32>,
}

/// A table, read, and its device, ready to seal.
pub(crate) struct Ready {
    pub(crate) roster: Roster,
    pub(crate) recording: Recording,
    pub(crate) sealer: Sealer<SecretKey>,
    pub(crate) outbox: Outbox,
}

impl Ready {
    /// Where a replay of the device keeps its journal unless told otherwise.
    pub(crate) fn journal(&self) -> PathBuf {
        let mut name = self.outbox.state_path().as_os_str().to_owned();
        name.push(".journal");
        PathBuf::from(name)
    }
}

impl Source {
    /// Reads everything; seals nothing.
    pub(crate) fn ready(&self) -> Result<Ready, Failure> {
        let roster = files::roster(&self.roster, &self.operator)?;
        let device = files::device(&roster, &self.roster, &self.device)?;
        let key = files::secret_key(&self.key)?;
        let salt_path = self.salt_key.clone().unwrap_or_else(|| files::salt_key_path(&self.key));
        let salt_key = files::salt_key(&salt_path)?;
        let recording = self.import(&roster)?;
        let schema =
            Schema::decode(&recording.schema).map_err(|error| Failure::usage(error.named()))?;
        let mut profile = Profile::new(&roster, &self.device, self.scheme.into(), &schema)
            .ok_or_else(|| Failure::new(Exit::Internal, "the roster has lost the device"))?;
        profile.max_events = self.max_events.unwrap_or(profile.max_events);
        let state = self.state(device)?;
        let (outbox, chain) =
            Outbox::open(&self.out, &state, &roster, device).map_err(outbox_failure)?;
        let entry = roster.device(device);
        if entry.and_then(|device| device.key(chain.next_index)) != Some(&key.public()) {
            if entry.is_some_and(|device| {
                [SealIndex(0), SealIndex(u32::MAX)]
                    .iter()
                    .any(|&at| device.key(at) == Some(&key.public()))
            }) {
                return Err(Failure::usage(format_args!(
                    "{} certifies {} for other seals of {} than {}, which is the next by {}; name the state of its chain with --state",
                    self.roster.display(),
                    self.key.display(),
                    self.device,
                    chain.next_index,
                    state.display()
                )));
            }
            return Err(Failure::usage(format_args!(
                "{} is not the key that {} certifies for {}; use the secret key beside the public key that the roster was made with",
                self.key.display(),
                self.roster.display(),
                self.device
            )));
        }
        Ok(Ready { sealer: Sealer::new(profile, key, salt_key, chain), roster, recording, outbox })
    }

    /// Where the chain's state is. A chain that has one is not given another.
    fn state(&self, device: DeviceId) -> Result<PathBuf, Failure> {
        let beside = state_beside(&self.key, device);
        let Some(state) = &self.state else { return beside.map_err(outbox_failure) };
        match beside {
            Ok(beside) if beside.exists() && !state.exists() => Err(Failure::usage(format_args!(
                "{} is not there, but the chain has its state in {}; leave --state out, or move that file to the new place",
                state.display(),
                beside.display()
            ))),
            _ => Ok(state.clone()),
        }
    }

    fn import(&self, roster: &Roster) -> Result<Recording, Failure> {
        let clock = match (&self.time, self.every, self.start) {
            (Some(column), ..) => Clock::Column(column.clone()),
            (None, Some(every_ms), Some(start_ms)) => Clock::Every { start_ms, every_ms },
            _ => {
                return Err(Failure::usage(
                    "say when: --time COLUMN, or --start TIME --every DURATION",
                ));
            }
        };
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .ok()
            .and_then(|now| u64::try_from(now.as_millis()).ok());
        let import = Import {
            columns: self.columns.clone(),
            opaque: self.opaque.clone(),
            clock,
            keep_time: self.keep_time.then(|| roster.epoch_ms()),
            delimiter: self.delimiter.map(|separator| match separator {
                Separator::Comma => Delimiter::Comma,
                Separator::Semicolon => Delimiter::Semicolon,
                Separator::Tab => Delimiter::Tab,
                Separator::Whitespace => Delimiter::Whitespace,
            }),
            skip_incomplete: self.skip_incomplete,
            sort: self.sort,
            latest_ms: now.filter(|_| !self.allow_future).map(|now| now + FUTURE_MS),
        };
        let recording = import.file(&self.table).map_err(|error| match &error.kind {
            ImportErrorKind::Io(cause) => Failure::file("read", &self.table, cause),
            _ => Failure::usage(error),
        })?;
        say(&self.table, &recording);
        Ok(recording)
    }
}

fn say(table: &Path, recording: &Recording) {
    let times =
        recording.time_format.map_or_else(String::new, |format| format!(", times in {format}"));
    talk(format_args!(
        "{}: {}, separated by {}{times}",
        table.display(),
        count(recording.len() as u64, "reading"),
        recording.delimiter
    ));
    if recording.skipped > 0 {
        talk(format_args!("left out: {} without a value", count(recording.skipped, "row")));
    }
}

/// Whether a file stands where a directory should.
fn is_in_the_way(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory)
}

/// An outbox that cannot be used: the machine's fault or the caller's.
pub(crate) fn outbox_failure(error: OutboxError) -> Failure {
    match &error {
        OutboxError::Io { path, error: cause } if is_in_the_way(cause) => {
            Failure::usage(format_args!(
                "--out {}: that is a file, or lies in one; name a directory",
                path.display()
            ))
        }
        OutboxError::Io { .. } => Failure::new(Exit::Internal, error),
        _ => Failure::usage(error),
    }
}

/// A recorder that cannot go on: the machine's fault or the caller's.
pub(crate) fn record_failure(error: &RecordError, message: impl std::fmt::Display) -> Failure {
    let exit = match error {
        RecordError::Journal(_) | RecordError::Outbox(OutboxError::Io { .. }) => Exit::Internal,
        _ => Exit::Usage,
    };
    Failure::new(exit, message)
}
