//! `moteseal get`: verified rows from a cloud that nobody trusts.

use clap::{ArgGroup, Args};
use moteseal_api::Query;
use moteseal_client::estimate::Estimator;
use moteseal_client::{Failure as GetFailure, Memory, get};
use moteseal_seal::sample::{Choice, Rate};
use moteseal_verify::Roster;
use serde_json::json;

use crate::asked::{Asked, Kept, keep};
use crate::cloud::runtime;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::key::random;
use crate::progress::{spinner, thousands};
use crate::rows::{Destination, distinct, incomplete, output_failure, say};
use crate::terminal::{Stdout, talk};

/// Get a part of what devices sealed, verified: authentic, complete, and chosen by nobody. Or a refusal that names what was wrong.
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("choice").required(true).args(["rate", "at_most", "sample"])),
    after_help = "Examples:\n  \
                  moteseal get dev1 dev2 --from http://127.0.0.1:8080 --roster roster.cbor \\\n      \
                  --operator keys/op.pub.pem --rate 1/8 --proof p.mproof -o out.csv\n  \
                  moteseal get --all --from https://cloud.example --roster roster.cbor \\\n      \
                  --operator keys/op.pub.pem --since -30d --at-most 100 --format jsonl\n\n\
                  Times are RFC 3339, YYYY-MM-DD, -7d for seven days ago, or @N for epoch N. Whole epochs are served:\n\
                  the one that --since lies in, to the one before or around --until. --at-most and --sample follow from\n\
                  the whole of an epoch: one that is not closed yet gives no rows.\n\n\
                  No row appears before everything is verified. The newest seal of each device is remembered, so that\n\
                  a cloud that forgets later is found out.\n\n\
                  Exit codes: 0 verified, 3 refused, 4 something is withheld or not yet sealed, 6 the cloud does not answer."
)]
pub(crate) struct Arguments {
    /// The devices, by name; every one of the roster unless given
    #[arg(value_name = "DEVICE", conflicts_with = "all")]
    devices: Vec<String>,
    /// Every device of the roster
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    asked: Asked,
    /// The share of all readings: 1, 1/8, 3/16, 0.25
    #[arg(long, value_parser = rate)]
    rate: Option<Rate>,
    /// As many readings an epoch as fit this number
    #[arg(long, value_name = "READINGS", value_parser = clap::value_parser!(u64).range(1..))]
    at_most: Option<u64>,
    /// This many readings an epoch, drawn by --seed; of trees only
    #[arg(long, value_name = "READINGS", value_parser = clap::value_parser!(u32).range(1..))]
    sample: Option<u32>,
    /// What draws the sample, 64 hexadecimal digits; made and shown unless given
    #[arg(long, value_name = "HEX", requires = "sample", value_parser = seed)]
    seed: Option<[u8; 32]>,
    #[command(flatten)]
    destination: Destination,
    #[command(flatten)]
    kept: Kept,
    /// Estimate the mean of this field over all readings, from the sample of a --rate
    #[arg(long, value_name = "FIELD", requires = "rate")]
    mean: Option<String>,
    /// What was verified, as JSON on stdout; needs --out for the rows
    #[arg(long, requires = "out")]
    json: bool,
}

pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    text.parse().map_err(|error: moteseal_seal::sample::choice::RateError| error.to_string())
}

pub(crate) fn seed(text: &str) -> Result<[u8; 32], String> {
    let mut seed = [0; 32];
    hex::decode_to_slice(text, &mut seed).map_err(|_| "64 hexadecimal digits".to_owned())?;
    Ok(seed)
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let roster = arguments.asked.roster()?;
    let query = arguments.query(&roster)?;
    let cloud = arguments.asked.client()?;
    let mut memory = arguments.kept.memory(&roster)?;
    let [proof, remembered] = arguments.kept.written();
    distinct(
        &[("--out", arguments.destination.out()), proof, remembered],
        &arguments.asked.read(),
    )?;
    let mut proof = arguments.kept.proof(&query, &roster)?;
    let mut output =
        arguments.destination.open(arguments.mean.as_deref(), spinner("verified rows"))?;

    let answer = runtime()?.block_on(get(
        &cloud,
        &roster,
        &query,
        memory.as_mut(),
        proof.as_mut(),
        &mut output,
    ));
    let report = answer.map_err(|error| get_failure(&roster, &error))?;
    // The rows come last: whoever has them has their proof, and we remember what they were taken from. What can fail for want of
    // space fails before anything is in its place.
    let (rows, mean) = output.finish()?;
    keep(proof, memory.as_mut())?;
    rows.release()?;
    say(&report, &roster, "received");
    let mean = mean.and_then(|mean| arguments.tell(&mean));
    if arguments.json {
        let mut value = report.to_json();
        if let (Some(object), Some(mean)) = (value.as_object_mut(), mean) {
            object.insert("mean".to_owned(), mean);
        }
        Stdout::lock().line(value)?;
    }
    incomplete(&report, &roster).map_or(Ok(()), Err)
}

impl Arguments {
    fn query(&self, roster: &Roster) -> Result<Query, Failure> {
        let choice = match (self.rate, self.at_most, self.sample) {
            (Some(rate), ..) => Choice::Rate(rate),
            (_, Some(most), _) => Choice::AtMost(most),
            (.., Some(count)) => Choice::Sample { count, seed: self.seed()? },
            _ => {
                return Err(Failure::usage(
                    "say how much: --rate 1/8, --at-most 100, or --sample 100",
                ));
            }
        };
        self.asked.query(roster, &self.devices, choice)
    }

    fn seed(&self) -> Result<[u8; 32], Failure> {
        match self.seed {
            Some(seed) => Ok(seed),
            None => {
                let mut seed = [0; 32];
                random(&mut seed)?;
                talk(format_args!("--seed {}", hex::encode(seed)));
                Ok(seed)
            }
        }
    }

    /// Says what the mean is estimated to be, and gives it for programs.
    fn tell(&self, mean: &Estimator) -> Option<serde_json::Value> {
        let field = self.mean.as_deref()?;
        let Some(estimate) = mean.mean() else {
            talk(format_args!(
                "{field}: fewer than two readings in the sample, of which no mean can be estimated"
            ));
            return None;
        };
        talk(format_args!(
            "{field}: mean {:.4} \u{b1} {:.4} (95 %), from {} of {} readings",
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
            "population": estimate.population,
        }))
    }
}

/// What earlier answers proved.
pub(crate) fn open_memory(
    path: Option<&std::path::Path>,
    none: bool,
    roster: &Roster,
) -> Result<Option<Memory>, Failure> {
    if none {
        return Ok(None);
    }
    let path = path.map(std::path::Path::to_owned).or_else(|| Memory::default_path(roster));
    path.map(|path| Memory::open(&path)).transpose().map_err(output_failure)
}

/// Why there are no verified rows.
pub(crate) fn get_failure(roster: &Roster, error: &GetFailure) -> Failure {
    let exit = match error.exit_code() {
        1 => Exit::Internal,
        2 => Exit::Usage,
        4 => Exit::Incomplete,
        6 => Exit::Unreachable,
        _ => Exit::Refused,
    };
    match error {
        GetFailure::Refused(refused) => {
            let device = refused.refusal.device();
            let text = error.to_string();
            Failure::new(
                exit,
                device
                    .map_or_else(|| text.clone(), |device| files::with_name(roster, device, &text)),
            )
        }
        _ => Failure::new(exit, error),
    }
}
