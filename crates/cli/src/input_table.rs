//! The arguments that `moteseal seal` and `moteseal replay` share: a table of readings, and the
//! device that took them.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{ArgGroup, Args, ValueEnum};
use moteseal_core::record::DeviceId;
use moteseal_core::record::Scheme;
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::{PublicKey, SecretKey};
use moteseal_device::import::{Clock, Delimiter, ImportErrorKind};
use moteseal_device::key_ring::KeyRing;
use moteseal_device::outbox::default_state_path;
use moteseal_device::{Import, Outbox, Recording, Sealer, chain_state};
use moteseal_verify::Roster;
use moteseal_verify::roster::{Device, Term};
use serde::Deserialize;

use crate::failure::{Exit, Failure};
use crate::files;
use crate::progress::count;
use crate::stream_secret::OwnSecret;
use crate::terminal::diagnostic;
use crate::time;

/// The maximum time, in milliseconds, by which a reading may be ahead of this machine's clock.
const FUTURE_MS: u64 = 86_400_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SchemeName {
    /// Geometric star: can be sampled by rate; needs the least space and time
    #[default]
    Star,
    /// Merkle tree: can also be sampled by count and seed, and can prove single readings
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

/// The syntax of columns and times, for `--help`.
pub(crate) const TABLES: &str = "A column is NAME:UNIT:TYPE[/DIVISOR][+OFFSET][?][~][!|!aes][@GROUP][#ID]:\n  \
    NAME     its name in the table's header\n  \
    UNIT     a SenML unit, for example Cel, %RH or V; may be empty\n  \
    TYPE     u8 i8 u16 i16 u32 i32 u64 i64 f32 f64; bool; enum(off,on); text32 (at most 32 bytes);\n           \
             timestamp (RFC 3339); point (latitude,longitude in degrees)\n  \
    ?        an empty cell is null\n  \
    ~        a hub relays the values\n  \
    !, !aes  the column is encrypted with ChaCha20 or AES-128-CTR (needs --stream-secret)\n  \
    @GROUP   the column group, 0 to 7, which can be fetched or dropped without the others\n  \
    #ID      the column's id, 1 to 65535; default: its position from 1\n  \
    A value is (recorded integer + OFFSET) / DIVISOR: 27.97 as i16/100 takes two bytes\n  \
    and is read back as 27.97. A value that does not fit is an error; values are never rounded.\n\n\
    Times are Unix seconds or milliseconds, RFC 3339, YYYY-MM-DD HH:MM:SS or YYYY-MM-DD\n\
    (UTC). All rows must use the time format of the first row.";

/// A table of readings and the device that took them.
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("clock").required(true).args(["time", "every"])),
    group(ArgGroup::new("what").required(true).args(["columns", "opaque"]))
)]
pub(crate) struct Source {
    /// The table: a header line, then one line per reading
    pub(crate) table: PathBuf,
    /// The column with the time of each reading
    #[arg(long, value_name = "COLUMN")]
    time: Option<String>,
    /// Instead of --time: the interval between readings (5s, 250ms, 1h), starting at --start
    #[arg(long, value_name = "DURATION", value_parser = time::duration, requires = "start")]
    every: Option<u64>,
    /// With --every: the time of the first reading (RFC 3339, or YYYY-MM-DD)
    #[arg(long, value_name = "TIME", value_parser = time::instant, requires = "every")]
    start: Option<u64>,
    /// A column to seal, as NAME:UNIT:TYPE with further marks (below); repeat it for every column
    #[arg(long = "column", value_name = "SPEC")]
    columns: Vec<String>,
    /// Instead of --column: seal the text of this column unchanged; records may then differ in
    /// length
    #[arg(long, value_name = "COLUMN")]
    opaque: Option<String>,
    /// Also record the time of each reading, to the millisecond, in a field with the name of the
    /// time column (or `time`); this takes 4 bytes per reading
    #[arg(long, conflicts_with = "opaque")]
    keep_time: bool,
    /// The device's name in the roster
    #[arg(long, value_name = "NAME")]
    pub(crate) device: String,
    /// The device's secret key
    #[arg(long, value_name = "KEY")]
    key: PathBuf,
    /// The device's salt key; default: NAME.salt.key next to NAME.key.pem
    #[arg(long, value_name = "KEY")]
    salt_key: Option<PathBuf>,
    /// The secret of the device's stream, if columns are encrypted. The first run derives the columns'
    /// keys from it and keeps them next to the chain's state; later runs do not need it
    #[arg(long, value_name = "FILE")]
    stream_secret: Option<PathBuf>,
    /// The group's roster
    #[arg(long)]
    roster: PathBuf,
    /// The operator's public key
    #[arg(long, value_name = "PUBLIC_KEY")]
    operator: PathBuf,
    /// The hash structure of the seals
    #[arg(long, value_enum, default_value = "star")]
    pub(crate) scheme: SchemeName,
    /// The directory for the bundles
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) out: PathBuf,
    /// The file with the state of the device's chain; always use the same file. Default:
    /// NAME.DEVICE-ID.chain next to the key
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// The column separator; default: detected from the header
    #[arg(long, value_enum)]
    delimiter: Option<Separator>,
    /// Leave out rows that lack a value
    #[arg(long)]
    skip_incomplete: bool,
    /// Sort the rows by time
    #[arg(long)]
    sort: bool,
    /// Accept times that are more than a day ahead of this machine's clock
    #[arg(long)]
    allow_future: bool,
    /// The maximum number of readings per seal; an epoch with more readings gets several seals
    #[arg(long, value_name = "READINGS", value_parser = clap::value_parser!(u32).range(1..))]
    max_events: Option<u32>,
}

/// A table that was read, and everything that is needed to seal it.
pub(crate) struct Ready {
    pub(crate) roster: Roster,
    pub(crate) recording: Recording,
    pub(crate) sealer: Sealer<SecretKey>,
    pub(crate) outbox: Outbox,
}

impl Ready {
    /// Returns the default path of the journal of a replay.
    pub(crate) fn journal(&self) -> PathBuf {
        let mut name = self.outbox.state_path().as_os_str().to_owned();
        name.push(".journal");
        PathBuf::from(name)
    }
}

/// Checks that a key which replaces an earlier key of the device continues the earlier key's chain:
/// that the state of the chain exists. `option` is the option that names the state.
pub(crate) fn check_state(
    entry: &Device,
    key: &PublicKey,
    key_path: &Path,
    state: &Path,
    option: &str,
) -> Result<(), Failure> {
    let is_first = entry.terms().first().is_none_or(|term| term.key == *key);
    if is_first || state.exists() {
        return Ok(());
    }
    Err(Failure::usage(format_args!(
        "{} replaces an earlier key of {}, and the state of that key's chain is not at {}; name it with {option}",
        key_path.display(),
        entry.name,
        state.display()
    )))
}

impl Source {
    /// Reads all files, but seals nothing.
    pub(crate) fn ready(&self) -> Result<Ready, Failure> {
        let roster = files::roster(&self.roster, &self.operator)?;
        let device = files::device(&roster, &self.roster, &self.device)?;
        let key = files::secret_key(&self.key)?;
        let salt_path = self.salt_key.clone().unwrap_or_else(|| files::salt_key_path(&self.key));
        let salt_key = files::salt_key(&salt_path)?;
        let recording = self.import(&roster)?;
        let schema = Schema::decode(&recording.schema)
            .map_err(|error| Failure::named(Exit::Usage, error.named()))?;
        let state = self.state(device)?;
        let secret =
            OwnSecret { path: self.stream_secret.as_deref(), named: "--stream-secret", device };
        secret.check(&schema, &state)?;
        let entry = roster
            .device(device)
            .ok_or_else(|| Failure::new(Exit::Internal, "the roster lacks the device"))?;
        let is_of_key = |term: &&Term| term.key == key.public();
        let Some(term) = entry.terms().iter().find(is_of_key) else {
            return Err(Failure::usage(format_args!(
                "{} is not the key that {} certifies for {}; use the secret key that belongs to the public key in the roster",
                self.key.display(),
                self.roster.display(),
                self.device
            )));
        };
        let public = key.public();
        check_state(entry, &public, &self.key, &state, "--state")?;
        chain_state::begin_first((&self.key, &public), &state, entry)?;
        let (outbox, chain) = Outbox::open(&self.out, &state, &roster, device)?;
        if let [first, ..] = outbox.outdated() {
            diagnostic(format_args!(
                "RosterOutdated: {}: {} of {} were sealed under an earlier version of the roster, and no \
                 verifier accepts them; renamed to {} and so on: seal their readings again",
                self.out.display(),
                count(outbox.outdated().len() as u64, "bundle"),
                self.device,
                first.display()
            ));
        }
        if chain.next_index < term.first_index {
            return Err(Failure::usage(format_args!(
                "{} certifies {} for {}, but not for index {}, the next one in {}; give the state of this key's chain with --state",
                self.roster.display(),
                self.key.display(),
                self.device,
                chain.next_index,
                state.display()
            )));
        }
        let named = (&*self.device, self.scheme.into());
        let mut profile = secret.profile(&outbox, &roster, named, &schema)?;
        profile.max_events = self.max_events.unwrap_or(profile.max_events);
        let keys = KeyRing::new(vec![key], entry)
            .ok_or_else(|| Failure::new(Exit::Internal, "the roster lacks the key"))?;
        Ok(Ready { sealer: Sealer::new(profile, keys, salt_key, chain), roster, recording, outbox })
    }

    /// Returns the path of the chain's state: `--state`, or the file next to the key. Rejects a new
    /// `--state` file if the file next to the key exists, because the chain would start again and
    /// reuse its indices.
    fn state(&self, device: DeviceId) -> Result<PathBuf, Failure> {
        let next_to_key = default_state_path(&self.key, device);
        let Some(state) = &self.state else { return next_to_key.map_err(Failure::from) };
        match next_to_key {
            Ok(default) if default.exists() && !state.exists() => {
                Err(Failure::usage(format_args!(
                    "{} does not exist, but the state of the chain is in {}; omit --state, or move that file to the new path",
                    state.display(),
                    default.display()
                )))
            }
            _ => Ok(state.clone()),
        }
    }

    fn import(&self, roster: &Roster) -> Result<Recording, Failure> {
        let clock = match (&self.time, self.every, self.start) {
            (Some(column), ..) => Clock::Column(column.clone()),
            (None, Some(every_ms), Some(start_ms)) => Clock::Every { start_ms, every_ms },
            _ => {
                return Err(Failure::usage(
                    "the times are missing: --time COLUMN, or --start TIME --every DURATION",
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
            keep_time: self.keep_time.then(|| roster.calendar().clone()),
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
        self.columns.iter().filter_map(|spec| unit_hint(spec)).for_each(diagnostic);
        let recording = import.file(&self.table).map_err(|error| match &error.kind {
            ImportErrorKind::Io(cause) => Failure::file("read", &self.table, cause),
            _ => Failure::usage(error),
        })?;
        report(&self.table, &recording);
        Ok(recording)
    }
}

/// Returns a hint for a column whose SenML unit (RFC 8428, section 12.1) is often mistaken.
pub(crate) fn unit_hint(spec: &str) -> Option<String> {
    let field = Field::parse(spec).ok()?;
    let (meaning, meant) = match field.unit {
        "C" => ("coulomb", "degrees Celsius is Cel"),
        "F" => ("farad", "there is no unit for degrees Fahrenheit, so convert them to Cel"),
        _ => return None,
    };
    Some(format!("column {}: the unit {} is {meaning}; {meant}", field.name, field.unit))
}

/// Prints to stderr what the table contains.
fn report(table: &Path, recording: &Recording) {
    let times =
        recording.time_format.map_or_else(String::new, |format| format!(", times in {format}"));
    diagnostic(format_args!(
        "{}: {}, separated by {}{times}",
        table.display(),
        count(recording.len() as u64, "reading"),
        recording.delimiter
    ));
    if recording.skipped > 0 {
        diagnostic(format_args!("left out: {} that lack a value", count(recording.skipped, "row")));
    }
}
