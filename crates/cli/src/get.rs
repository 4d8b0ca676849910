//! `moteseal get`: gets readings from an untrusted cloud and verifies them.

use clap::{ArgGroup, Args, ValueEnum};
use moteseal_api::Query;
use moteseal_client::Client;
use moteseal_client::estimate::Estimator;
use moteseal_core::record::SealIndex;
use moteseal_seal::sample::readings::MAX_RUNS;
use moteseal_seal::sample::{Choice, Rate, ReadingRun, Readings};
use moteseal_verify::Roster;
use serde_json::json;

use crate::client_error;
use crate::cloud::runtime;
use crate::cloud_query::{CloudQuery, KeptFiles, report_newer_roster};
use crate::destination::{Destination, check, distinct, report_lines};
use crate::failure::Failure;
use crate::key::random;
use crate::key_files::KeyFiles;
use crate::progress::{spinner, thousands};
use crate::terminal::{Stdout, diagnostic, is_json};

mod urgent;

pub(crate) use urgent::conflict_text;

/// Get sealed readings and verify that they are authentic and complete, and that the cloud did not
/// choose the sample.
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("choice").required(true).args(["rate", "at_most", "sample", "readings", "events"])),
    after_help = "Examples:\n  \
                  moteseal get dev1 dev2 --from http://127.0.0.1:8080 --roster roster.cbor \\\n      \
                  --operator keys/op.pub.pem --rate 1/8 --proof p.mproof -o out.csv\n  \
                  moteseal get --all --from https://cloud.example --roster roster.cbor \\\n      \
                  --operator keys/op.pub.pem --since -30d --at-most 100 --format jsonl\n  \
                  moteseal get --all --from https://cloud.example --roster roster.cbor \\\n      \
                  --operator keys/op.pub.pem --events urgent --follow\n\n\
                  Times are RFC 3339, YYYY-MM-DD, -7d for seven days ago, or @N for epoch N. The range is rounded\n\
                  to whole epochs. --at-most and --sample need closed epochs: an epoch that is not closed yet has no\n\
                  rows.\n\n\
                  No row is written before everything is verified. The newest seal of each device is pinned: a later\n\
                  response that omits or contradicts it is rejected.\n\n\
                  Exit codes: 0 verified, 3 rejected, 4 something is withheld or not yet sealed, 5 a device signed\n\
                  two urgent events for one place, or an event that its seal contradicts (--check), 6 the cloud does\n\
                  not respond."
)]
pub(crate) struct Arguments {
    /// The names of the devices; default: all devices of the roster
    #[arg(value_name = "DEVICE", conflicts_with = "all")]
    devices: Vec<String>,
    /// All devices of the roster
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    cloud_query: CloudQuery,
    /// The share of all readings: 1, 1/8, 3/16, 0.25
    #[arg(long, value_parser = rate)]
    rate: Option<Rate>,
    /// At most this many readings per epoch
    #[arg(long, value_name = "READINGS", value_parser = clap::value_parser!(u64).range(1..))]
    at_most: Option<u64>,
    /// This many readings per epoch, drawn at random by --seed; only for the tree scheme
    #[arg(long, value_name = "READINGS", value_parser = clap::value_parser!(u32).range(1..))]
    sample: Option<u32>,
    /// The seed of the sample, 64 hexadecimal digits; default: a random one, which is shown
    #[arg(long, value_name = "HEX", requires = "sample", value_parser = seed)]
    seed: Option<[u8; 32]>,
    /// A reading of one device, by the index of its seal and its place in the seal (the columns
    /// index and seq): 12/7, or 12/7-9 for several; up to 8 times, only for the tree scheme. Narrow
    /// the range with --since and --until. A proof of named readings is verified with --allow-redacted
    #[arg(long = "reading", value_name = "SEAL/READING", value_parser = reading)]
    readings: Vec<ReadingRun>,
    /// Instead of sealed readings, get the events that devices signed separately and sent at once.
    /// Each of them is verified; that none is withheld is not proven
    #[arg(long, value_enum, conflicts_with_all = ["mean", "proof"])]
    events: Option<Events>,
    /// Wait for urgent events and print each of them as it arrives
    #[arg(long, requires = "events")]
    follow: bool,
    /// Compare each urgent event with the seal that covers its reading
    #[arg(long, requires = "events", conflicts_with = "follow")]
    check: bool,
    /// Continue after the urgent events that an earlier command printed
    #[arg(long, value_name = "CURSOR", requires = "events")]
    after: Option<String>,
    /// Only these columns, separated by commas; default: all columns. If the device seals column groups,
    /// only the groups that have them are sent
    #[arg(long, value_name = "COLUMN", value_delimiter = ',', conflicts_with = "events")]
    columns: Vec<String>,
    #[command(flatten)]
    destination: Destination,
    #[command(flatten)]
    kept: KeptFiles,
    #[command(flatten)]
    keys: KeyFiles,
    /// From the sample that --rate selects, estimate the mean of this field over all readings
    #[arg(long, value_name = "FIELD", requires = "rate")]
    mean: Option<String>,
}

/// The kind of events.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Events {
    /// Readings that could not wait for the end of their epoch
    Urgent,
}

pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    text.parse().map_err(|error: moteseal_seal::sample::choice::RateError| error.to_string())
}

fn reading(text: &str) -> Result<ReadingRun, String> {
    let parse = || {
        let (index, seqs) = text.split_once('/')?;
        let (first, last) = seqs.split_once('-').unwrap_or((seqs, seqs));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        let count = last.checked_sub(first)?.checked_add(1)?;
        Some(ReadingRun { index: SealIndex(index.parse().ok()?), first, count })
    };
    parse().ok_or_else(|| {
        "SEAL/READING: 12/7 is reading 7 of seal 12; 12/7-9 are three readings".to_owned()
    })
}

pub(crate) fn seed(text: &str) -> Result<[u8; 32], String> {
    let mut seed = [0; 32];
    hex::decode_to_slice(text, &mut seed).map_err(|_| "64 hexadecimal digits".to_owned())?;
    Ok(seed)
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(Events::Urgent) = arguments.events {
        return urgent::run(arguments);
    }
    if is_json() && arguments.destination.out().is_none() {
        return Err(Failure::usage(
            "--json prints the report on stdout; name a file for the rows with --out",
        ));
    }
    let roster = arguments.cloud_query.roster()?;
    let query = arguments.query(&roster)?;
    let cloud = arguments.cloud_query.client()?;
    let mut pinned = arguments.kept.pinned(&roster, &arguments.cloud_query)?;
    let [proof, pins] = arguments.kept.written();
    let read: Vec<_> =
        arguments.cloud_query.read().into_iter().chain(arguments.keys.read()).collect();
    distinct(&[("--out", arguments.destination.out()), proof, pins], &read)?;
    let keys = arguments.keys.open(&roster)?;
    let mut keys = keys.set();
    let mut output =
        arguments.destination.open(arguments.mean.as_deref(), spinner("verified rows"))?;
    let client = Client::new(&cloud, &roster);
    let mut request = arguments.kept.request(client, &query, pinned.as_mut());
    if let Some(keys) = &mut keys {
        request = request.keys(keys);
    }
    let verified = runtime()?.block_on(request.run(&mut output));
    let verified = verified.map_err(|error| client_error::failure(&roster, &error))?;
    // Release the rows last, after their proof and the pinned seals are in place. Before any file
    // becomes visible, do everything that can fail for lack of disk space.
    let (rows, mean) = output.finish()?;
    let report = verified.keep().map_err(client_error::output)?;
    rows.release()?;
    report_newer_roster(report.cloud_roster, arguments.cloud_query.roster_path());
    report_lines(&report, &roster, "received");
    let mean = mean.and_then(|mean| arguments.report_mean(&mean));
    if is_json() {
        let mut value = report.to_json();
        if let (Some(object), Some(mean)) = (value.as_object_mut(), mean) {
            object.insert("mean".to_owned(), mean);
        }
        Stdout::lock().line(value)?;
    }
    check(&report, &roster)
}

impl Arguments {
    fn query(&self, roster: &Roster) -> Result<Query, Failure> {
        let choice = match (self.rate, self.at_most, self.sample) {
            (Some(rate), ..) => Choice::Rate(rate),
            (_, Some(most), _) => Choice::AtMost(most),
            (.., Some(count)) => Choice::Sample { count, seed: self.seed()? },
            _ if !self.readings.is_empty() => Choice::Readings(self.named()?),
            _ => {
                return Err(Failure::usage(
                    "the amount is missing: --rate 1/8, --at-most 100, --sample 100, or --reading 12/7",
                ));
            }
        };
        let query = self.cloud_query.query(roster, &self.devices, choice)?;
        Ok(Query { columns: self.columns.clone(), ..query }.check()?)
    }

    fn named(&self) -> Result<Readings, Failure> {
        let mut runs = self.readings.clone();
        runs.sort_unstable_by_key(|run| (run.index, run.first));
        Readings::new(&runs).ok_or_else(|| {
            Failure::usage(format_args!(
                "--reading: name every reading once, with at most {MAX_RUNS} options"
            ))
        })
    }

    fn seed(&self) -> Result<[u8; 32], Failure> {
        match self.seed {
            Some(seed) => Ok(seed),
            None => {
                let mut seed = [0; 32];
                random(&mut seed)?;
                diagnostic(format_args!("--seed {}", hex::encode(seed)));
                Ok(seed)
            }
        }
    }

    /// Prints the estimated mean and returns it as JSON.
    fn report_mean(&self, mean: &Estimator) -> Option<serde_json::Value> {
        let field = self.mean.as_deref()?;
        let Some(estimate) = mean.mean() else {
            diagnostic(format_args!(
                "{field}: the mean cannot be estimated from fewer than two readings"
            ));
            return None;
        };
        let nulls = match mean.nulls() {
            0 => String::new(),
            nulls => format!(", of which {} are null", thousands(nulls)),
        };
        diagnostic(format_args!(
            "{field}: mean {:.4} \u{b1} {:.4} (95 %), from {} of {} readings{nulls}",
            estimate.value,
            estimate.half_width,
            thousands(estimate.sampled),
            thousands(estimate.population)
        ));
        Some(json!({
            "field": field,
            "mean": estimate.value,
            "half_width_95": estimate.half_width,
            "sampled": estimate.sampled,
            "nulls": mean.nulls(),
            "population": estimate.population,
        }))
    }
}
