//! `moteseal seal`: recorded readings become signed bundles.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{ArgGroup, Args, ValueEnum};
use moteseal_core::record::SealIndex;
use moteseal_core::schema::Schema;
use moteseal_core::seal::Scheme;
use moteseal_device::import::{Clock, Delimiter, display_ms};
use moteseal_device::{Batch, Import, Outbox, OutboxError, Profile, Recording, Sealed, Sealer};
use moteseal_verify::Roster;
use serde_json::json;

use crate::failure::{Exit, Failure};
use crate::files;
use crate::progress::{bar, thousands};
use crate::time;

/// A clock this far ahead of ours is wrong.
const FUTURE_MS: u64 = 86_400_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemeName {
    /// Geometric star: samples by rate, the smallest and fastest
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

/// Seals recorded readings: one signed bundle an epoch, ready to be pushed to any cloud.
///
/// Sealing another file into the same directory continues the device's chain.
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("clock").required(true).args(["time", "every"])),
    group(ArgGroup::new("what").required(true).args(["columns", "opaque"])),
    after_help = "Example:\n  \
                  moteseal seal data.csv --time ts \\\n      \
                  --column temperature:Cel:i16/100 --column humidity:%RH:u16/100 \\\n      \
                  --device dev1 --key keys/dev1.key.pem \\\n      \
                  --roster roster.cbor --operator keys/op.pub.pem --out bundles/\n\n\
                  A column is NAME:UNIT:TYPE[/DIVISOR][+OFFSET]:\n  \
                  NAME     its name in the table's header\n  \
                  UNIT     a SenML unit such as Cel, %RH or V, or nothing\n  \
                  TYPE     u8 i8 u16 i16 u32 i32 u64 i64 f32 f64\n  \
                  a value is (recorded integer + OFFSET) / DIVISOR: 27.97 as i16/100 takes two bytes\n  \
                  and reads back as 27.97. What does not fit is refused, never rounded.\n\n\
                  Times are Unix seconds or milliseconds, RFC 3339, YYYY-MM-DD HH:MM:SS or YYYY-MM-DD\n\
                  (UTC), whichever the first row has."
)]
pub(crate) struct Arguments {
    /// The table: a header line, then a line a reading
    table: PathBuf,
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
    device: String,
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
    scheme: SchemeName,
    /// The directory for the bundles
    #[arg(long, value_name = "DIRECTORY")]
    out: PathBuf,
    /// Where the device keeps its chain's state; a hidden file in --out unless given
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
    /// Leave readings out of epochs that are sealed already
    #[arg(long)]
    new_only: bool,
    /// Take times that are more than a day ahead of this machine's clock
    #[arg(long)]
    allow_future: bool,
    /// More readings of the last epoch will follow: do not close it
    #[arg(long)]
    keep_open: bool,
    /// Start another seal within an epoch after this many readings
    #[arg(long, value_name = "READINGS", value_parser = clap::value_parser!(u32).range(1..))]
    max_events: Option<u32>,
    /// What was sealed, as JSON on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let roster = files::roster(&arguments.roster, &arguments.operator)?;
    let device = files::device(&roster, &arguments.roster, &arguments.device)?;
    let key = files::secret_key(&arguments.key)?;
    let salt_path = arguments.salt_key.clone().unwrap_or_else(|| files::salt_key_path(&arguments.key));
    let salt_key = files::salt_key(&salt_path)?;

    let recording = arguments.import(&roster)?.file(&arguments.table).map_err(|error| match &error.kind {
        moteseal_device::import::ImportErrorKind::Io(cause) => Failure::file("read", &arguments.table, cause),
        _ => Failure::usage(error),
    })?;
    eprintln!(
        "{}: {} readings, separated by {}{}",
        arguments.table.display(),
        thousands(recording.len() as u64),
        recording.delimiter,
        recording.time_format.map_or_else(String::new, |format| format!(", times in {format}")),
    );
    if recording.skipped > 0 {
        eprintln!("{} rows without a value were left out", thousands(recording.skipped));
    }

    let schema = Schema::decode(&recording.schema).map_err(Failure::usage)?;
    let (outbox, chain) = Outbox::open(&arguments.out, arguments.state.as_deref(), &roster, device).map_err(outbox_failure)?;
    let certified = roster.device(device).and_then(|device| device.key(chain.next_index));
    if certified != Some(&key.public()) {
        return Err(Failure::usage(format_args!(
            "{} is not the key that {} certifies for {}; use the secret key beside the public key that the roster was made with",
            arguments.key.display(),
            arguments.roster.display(),
            arguments.device
        )));
    }
    let mut profile = Profile::new(&roster, &arguments.device, arguments.scheme.into(), &schema)
        .ok_or_else(|| Failure::new(Exit::Internal, "the roster has lost the device"))?;
    profile.max_events = arguments.max_events.unwrap_or(profile.max_events);
    let mut sealer = Sealer::new(profile, key, salt_key, chain);

    let batch = Batch { epoch_ms: roster.epoch_ms(), new_only: arguments.new_only, keep_open: arguments.keep_open };
    let progress = bar(recording.len() as u64, "sealing");
    let sealed = batch.seal(&recording, &mut sealer, &mut |count| progress.set_position(count));
    progress.finish_and_clear();
    let sealed = sealed.map_err(|error| Failure::usage(format_args!("{}: {error}", arguments.table.display())))?;
    let progress = bar(sealed.bundles.len() as u64, "storing");
    let stored = outbox.store(&sealed.bundles, &mut |_| progress.inc(1));
    progress.finish_and_clear();
    let paths = stored.map_err(outbox_failure)?;
    arguments.report(&recording, &sealed, &paths)
}

impl Arguments {
    fn import(&self, roster: &Roster) -> Result<Import, Failure> {
        let clock = match (&self.time, self.every, self.start) {
            (Some(column), ..) => Clock::Column(column.clone()),
            (None, Some(every_ms), Some(start_ms)) => Clock::Every { start_ms, every_ms },
            _ => return Err(Failure::usage("say when: --time COLUMN, or --start TIME --every DURATION")),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|now| u64::try_from(now.as_millis()).ok());
        Ok(Import {
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
        })
    }

    #[allow(clippy::cast_precision_loss)]
    fn report(&self, recording: &Recording, sealed: &Sealed, paths: &[PathBuf]) -> Result<(), Failure> {
        if sealed.left_out > 0 {
            eprintln!("{} readings of epochs that are sealed already were left out", thousands(sealed.left_out));
        }
        let events: u64 = sealed.bundles.iter().map(moteseal_device::Bundle::events).sum();
        let overhead: usize = sealed.bundles.iter().map(moteseal_device::Bundle::uplink_overhead).sum();
        let indices = sealed.bundles.first().zip(sealed.bundles.last()).map(|(first, last)| (first.index(), last.index()));
        let span = recording.iter().next().zip(recording.iter().next_back()).map(|((first, _), (last, _))| (first, last));
        if let (Some((SealIndex(first), SealIndex(last))), Some((from, to))) = (indices, span) {
            eprintln!(
                "{}: {} readings from {} to {} under seals {first} to {last} ({}), {:.2} B a reading beside the data: {}",
                self.device,
                thousands(events),
                display_ms(from),
                display_ms(to),
                Scheme::from(self.scheme).as_str(),
                overhead as f64 / events.max(1) as f64,
                self.out.display()
            );
        } else {
            eprintln!("{}: nothing new to seal", self.device);
        }
        if self.json {
            let bundles: Vec<_> = sealed
                .bundles
                .iter()
                .zip(paths)
                .map(|(bundle, path)| {
                    json!({
                        "file": path.display().to_string(),
                        "index": bundle.index().0,
                        "epoch": bundle.epoch().0,
                        "events": bundle.events(),
                        "digest": bundle.seal.digest().to_string(),
                        "bytes": bundle.bytes.len(),
                        "uplink_overhead_bytes": bundle.uplink_overhead(),
                    })
                })
                .collect();
            let object = json!({
                "device": self.device,
                "scheme": Scheme::from(self.scheme).as_str(),
                "events": events,
                "left_out": sealed.left_out,
                "skipped": recording.skipped,
                "bundles": bundles,
            });
            writeln!(std::io::stdout().lock(), "{object}")?;
        }
        Ok(())
    }
}

fn outbox_failure(error: OutboxError) -> Failure {
    match error {
        OutboxError::Io { .. } => Failure::new(Exit::Internal, error),
        _ => Failure::usage(error),
    }
}
