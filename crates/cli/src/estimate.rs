//! `moteseal estimate`: estimates a statistic of all readings from a verified sample, with 95 %
//! intervals.

use std::fmt::Write as _;

use clap::{ArgGroup, Args, ValueEnum};
use moteseal_api::Query;
use moteseal_client::estimate::{
    Condition, GroupSample, Interval, Method, REPLICATES, Sample, Statistic, Subject,
};
use moteseal_client::{Client, Report, Rows, Sink as _};
use moteseal_seal::sample::{Choice, Rate};
use moteseal_verify::Roster;
use serde_json::{Value, json};

use crate::client_error;
use crate::cloud::runtime;
use crate::cloud_query::{CloudQuery, KeptFiles, report_newer_roster};
use crate::destination::{check, distinct, report_lines};
use crate::failure::{Exit, Failure};
use crate::get::{rate, seed};
use crate::key::random;
use crate::key_files::KeyFiles;
use crate::progress::{count, spinner, thousands};
use crate::terminal::{Stdout, diagnostic, is_json};

/// Estimate a statistic of all readings from a verified sample, with a 95 % interval.
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("choice").args(["rate", "at_most"])),
    after_help = "Examples:\n  \
                  moteseal estimate mean temperature --from http://127.0.0.1:8080 --roster roster.cbor \\\n      \
                  --operator keys/op.pub.pem --since -30d --rate 1/8\n  \
                  moteseal estimate count 'temperature>=25' dev1 dev2 ... --at-most 100\n  \
                  moteseal estimate quantile temperature --at 0.05,0.5,0.95 ... --rate 1/8\n\n\
                  Without DEVICE, the estimate is for the whole group. The intervals of means and sums use Student's\n\
                  t with finite-population correction, and the intervals of quantiles use order statistics. The\n\
                  intervals of shares and of counts with a condition are exact. All intervals use the numbers of\n\
                  readings that the devices signed; these numbers are exact. A device without a sampled reading has\n\
                  no estimate (NoSample); it does not count as zero.\n\n\
                  Exit codes: 0 verified, 3 refused, 4 something is withheld, not yet sealed or not sampled,\n\
                  6 the cloud does not respond."
)]
pub(crate) struct Arguments {
    /// The statistic to estimate
    #[arg(value_enum)]
    what: What,
    /// The field; for a count or a proportion, a condition on a field: 'temperature>=25'
    #[arg(value_name = "FIELD")]
    field: String,
    /// The names of the devices; default: all devices of the roster
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,
    #[command(flatten)]
    cloud_query: CloudQuery,
    /// The share of all readings to sample: 1, 1/8, 3/16, 0.25; default: the highest share that is
    /// available for every epoch and device
    #[arg(long, value_parser = rate)]
    rate: Option<Rate>,
    /// Sample at most this many readings per device and epoch
    #[arg(long, value_name = "READINGS", value_parser = clap::value_parser!(u64).range(1..))]
    at_most: Option<u64>,
    /// The quantiles to estimate, as shares between 0 and 1
    #[arg(long, value_name = "SHARES", value_delimiter = ',', default_value = "0.5", value_parser = share)]
    at: Vec<f64>,
    /// The number of bins of the histogram, which range from the lowest to the highest sampled
    /// value
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000), conflicts_with = "edges")]
    bins: u16,
    /// The edges of the bins, ascending; values outside them are not counted
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', allow_hyphen_values = true)]
    edges: Vec<f64>,
    /// Compute the interval by bootstrap instead, from this many resamples
    #[arg(long, value_name = "REPLICATES", value_parser = clap::value_parser!(u32).range(i64::from(*REPLICATES.start())..=i64::from(*REPLICATES.end())))]
    bootstrap: Option<u32>,
    /// The seed of the bootstrap, 64 hexadecimal digits; default: a random one, which is shown
    #[arg(long, value_name = "HEX", requires = "bootstrap", value_parser = seed)]
    seed: Option<[u8; 32]>,
    /// Also print an estimate for each device
    #[arg(long)]
    each: bool,
    #[command(flatten)]
    kept: KeptFiles,
    #[command(flatten)]
    keys: KeyFiles,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// The mean of a field
    Mean,
    /// The sum of a field
    Sum,
    /// The number of readings, or the number of readings that meet a condition
    Count,
    /// The share of readings that meet a condition
    Proportion,
    /// Quantiles: for each share in --at, the value that this share of all readings does not exceed
    Quantile,
    /// The number of readings in each bin
    Histogram,
}

impl What {
    const fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Sum => "sum",
            Self::Count => "count",
            Self::Proportion => "proportion",
            Self::Quantile => "quantile",
            Self::Histogram => "histogram",
        }
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a share between 0 and 1: 0.5 is the median".to_owned())
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let roster = arguments.cloud_query.roster()?;
    let (subject, keep_values) = arguments.subject()?;
    let mut pinned = arguments.kept.pinned(&roster, &arguments.cloud_query)?;
    let cloud = arguments.cloud_query.client()?;
    let runtime = runtime()?;
    let mut query = arguments.query(&roster)?;
    let client = Client::new(&cloud, &roster);
    if let Choice::Rate(rate) = &mut query.choice
        && arguments.rate.is_none()
    {
        let found = runtime.block_on(client.common_rate(&query.devices, query.since, query.until));
        *rate = found.map_err(|error| client_error::failure(&roster, &error))?;
        diagnostic(format_args!("--rate {rate}"));
    }
    let read: Vec<_> =
        arguments.cloud_query.read().into_iter().chain(arguments.keys.read()).collect();
    distinct(&arguments.kept.written(), &read)?;
    let keys = arguments.keys.open(&roster)?;
    let mut keys = keys.set();
    let progress = spinner("verified rows");
    let mut sample = GroupSample::new(subject, keep_values, arguments.each);
    let mut sink = |rows: &Rows<'_>| {
        progress.inc(u64::from(rows.len()));
        sample.rows(rows)
    };
    let mut request = arguments.kept.request(client, &query, pinned.as_mut());
    if let Some(keys) = &mut keys {
        request = request.keys(keys);
    }
    let verified = runtime.block_on(request.run(&mut sink));
    progress.finish_and_clear();
    let verified = verified.map_err(|error| client_error::failure(&roster, &error))?;
    let estimates = arguments.estimates(&sample, &verified.report)?;
    let report = verified.keep().map_err(client_error::output)?;
    report_newer_roster(report.cloud_roster, arguments.cloud_query.roster_path());
    report_lines(&report, &roster, "received");
    if is_json() {
        Stdout::lock().line(arguments.to_json(&estimates, &query, &report))?;
    } else {
        estimates.iter().try_for_each(|estimates| estimates.print(arguments))?;
    }
    check(&report, &roster)?;
    let is_empty =
        estimates.first().is_none_or(|group| group.lines.iter().all(|line| line.found.is_none()));
    if is_empty {
        let message =
            "too few readings were sampled for an estimate; use a higher --rate, or more epochs";
        return Err(Failure::new(Exit::Incomplete, message).with_name("NoSample"));
    }
    Ok(())
}

/// The estimates for the group or for one device.
struct Estimates {
    /// The device's name; `None` for the group.
    device: Option<String>,
    sampled: u64,
    /// The number of sampled readings without a value.
    nulls: u64,
    population: u64,
    lines: Vec<Line>,
}

/// One estimated number.
struct Line {
    /// The share of a quantile or the edges of a bin.
    of: Of,
    /// `None` if the sample is too small.
    found: Option<Interval>,
}

#[derive(Clone, Copy)]
enum Of {
    One,
    Quantile(f64),
    Bin(f64, f64),
}

impl Arguments {
    /// Returns the field or condition to estimate, and whether the sampled values must be kept.
    fn subject(&self) -> Result<(Subject, bool), Failure> {
        let subject = Subject::parse(&self.field);
        if self.edges.windows(2).any(|pair| pair[0] >= pair[1]) || self.edges.len() == 1 {
            return Err(Failure::usage(
                "--edges needs at least two ascending numbers, for example 0,10,20",
            ));
        }
        let is_condition = matches!(subject, Subject::Condition(_));
        match self.what {
            What::Count => {}
            // The parser's error message contains an example of a condition.
            What::Proportion => drop(self.field.parse::<Condition>().map_err(Failure::usage)?),
            _ if is_condition => {
                return Err(Failure::usage(format_args!(
                    "{}: a field is expected; only count and proportion accept a condition",
                    self.field
                )));
            }
            What::Histogram if self.bootstrap.is_some() => {
                return Err(Failure::usage(
                    "the intervals of a histogram are exact; omit --bootstrap",
                ));
            }
            _ => {}
        }
        let keep_values = match self.what {
            What::Quantile | What::Histogram => true,
            What::Count => is_condition && self.bootstrap.is_some(),
            What::Mean | What::Sum | What::Proportion => self.bootstrap.is_some(),
        };
        Ok((subject, keep_values))
    }

    fn query(&self, roster: &Roster) -> Result<Query, Failure> {
        let choice =
            self.at_most.map_or(Choice::Rate(self.rate.unwrap_or(Rate::ALL)), Choice::AtMost);
        self.cloud_query.query(roster, &self.devices, choice)
    }

    /// Returns the estimates for the group, then for devices in the order of the query: with
    /// `--each` for every device, otherwise only for devices without a sampled reading.
    fn estimates(&self, sample: &GroupSample, report: &Report) -> Result<Vec<Estimates>, Failure> {
        let seed = match (self.bootstrap, self.seed) {
            (Some(_), None) => {
                let mut seed = [0; 32];
                random(&mut seed)?;
                diagnostic(format_args!("--seed {}", hex::encode(seed)));
                Some(seed)
            }
            (_, seed) => seed,
        };
        let edges = if self.edges.is_empty() {
            sample.group().edges(self.bins).unwrap_or_default()
        } else {
            self.edges.clone()
        };
        let of = |device: Option<String>, sample: Option<&Sample>| -> Result<Estimates, Failure> {
            let Some(sample) = sample else {
                let lines = Vec::new();
                return Ok(Estimates { device, sampled: 0, nulls: 0, population: 0, lines });
            };
            let lines = self.lines(sample, &edges, seed)?;
            let (sampled, population) = (sample.sampled(), sample.population());
            Ok(Estimates { device, sampled, nulls: sample.nulls(), population, lines })
        };
        let group = report.devices.iter().any(|device| device.seals > 0).then(|| sample.group());
        let mut estimates = vec![of(None, group)?];
        if self.each {
            for device in &report.devices {
                estimates.push(of(Some(device.name.clone()), sample.device(device.device))?);
            }
        } else {
            let unsampled = report.devices.iter().filter(|device| device.rows == 0);
            estimates.extend(unsampled.map(|device| Estimates {
                device: Some(device.name.clone()),
                sampled: 0,
                nulls: 0,
                population: device.events,
                lines: Vec::new(),
            }));
        }
        Ok(estimates)
    }

    fn lines(
        &self,
        sample: &Sample,
        edges: &[f64],
        seed: Option<[u8; 32]>,
    ) -> Result<Vec<Line>, Failure> {
        let method = match (self.bootstrap, seed) {
            (Some(replicates), Some(seed)) => Method::Bootstrap { replicates, seed },
            _ => Method::Analytic,
        };
        let estimate =
            |statistic: &Statistic| sample.estimate(statistic, method).map_err(Failure::from);
        let one = |found| vec![Line { of: Of::One, found }];
        let subject = Subject::parse(&self.field);
        Ok(match self.what {
            What::Mean => one(estimate(&Statistic::Mean)?),
            What::Sum => one(estimate(&Statistic::Sum)?),
            What::Count => match subject.count() {
                Some(count) => one(estimate(&count)?),
                None => one(Some(sample.exact_count())),
            },
            What::Proportion => match subject.share() {
                Some(share) => one(estimate(&share)?),
                None => one(None),
            },
            What::Histogram => match sample.histogram(edges) {
                Some(bins) => bins
                    .iter()
                    .map(|bin| Line { of: Of::Bin(bin.low, bin.high), found: Some(bin.events) })
                    .collect(),
                None => one(None),
            },
            What::Quantile if self.bootstrap.is_some() => {
                let quantile = |&q: &f64| {
                    Ok(Line { of: Of::Quantile(q), found: estimate(&Statistic::Quantile(q))? })
                };
                self.at.iter().map(quantile).collect::<Result<_, Failure>>()?
            }
            What::Quantile => {
                let found = sample.quantiles(&self.at).into_iter();
                let quantiles = self.at.iter().zip(found);
                quantiles.map(|(&q, found)| Line { of: Of::Quantile(q), found }).collect()
            }
        })
    }

    fn to_json(&self, estimates: &[Estimates], query: &Query, report: &Report) -> Value {
        let line = |line: &Line| {
            let mut value = match line.found {
                Some(found) => {
                    json!({"value": found.value, "low_95": found.low, "high_95": found.high})
                }
                None => json!({"value": null, "low_95": null, "high_95": null}),
            };
            if let Some(object) = value.as_object_mut() {
                match line.of {
                    Of::One => {}
                    Of::Quantile(q) => drop(object.insert("at".to_owned(), q.into())),
                    Of::Bin(from, to) => drop(object.insert("bin".to_owned(), json!([from, to]))),
                }
            }
            value
        };
        let object = |of: &Estimates| {
            json!({
                "device": of.device,
                "sampled": of.sampled,
                "nulls": of.nulls,
                "population": of.population,
                "standing": if of.is_sampled(self.what) { "Sampled" } else { "NoSample" },
                "estimates": of.lines.iter().map(line).collect::<Vec<_>>(),
            })
        };
        let rate = match query.choice {
            Choice::Rate(rate) => Some(rate.to_string()),
            _ => None,
        };
        json!({
            "estimate": self.what.name(),
            "field": self.field,
            "rate": rate,
            "at_most": self.at_most,
            "confidence": 0.95,
            "method": if self.bootstrap.is_some() { "bootstrap" } else { "analytic" },
            "group": estimates.first().map(object),
            "devices": estimates.iter().skip(1).map(object).collect::<Vec<_>>(),
            "report": report.to_json(),
        })
    }
}

impl Estimates {
    /// Returns whether there is a result: either a reading was sampled, or the result is a count
    /// that the devices signed and that needs no sample.
    fn is_sampled(&self, what: What) -> bool {
        self.sampled > 0
            || (what == What::Count && self.lines.iter().any(|line| line.found.is_some()))
    }

    fn print(&self, arguments: &Arguments) -> Result<(), Failure> {
        let name = self.device.as_deref().unwrap_or("group");
        let mut out = Stdout::lock();
        if !self.is_sampled(arguments.what) {
            let readings = count(self.population, "reading");
            return out.line(format_args!(
                "{name:<12} {}  NoSample: none of {readings} is in the sample",
                arguments.field
            ));
        }
        for line in &self.lines {
            let of = match line.of {
                Of::One => arguments.what.name().to_owned(),
                Of::Quantile(q) => format!("quantile {q}"),
                Of::Bin(low, high) => format!("{low:.4} to {high:.4}"),
            };
            let mut from = format!(
                "from {} of {} readings",
                thousands(self.sampled),
                thousands(self.population)
            );
            if self.nulls > 0 {
                let _ = write!(from, ", of which {} are null", thousands(self.nulls));
            }
            let Some(found) = line.found else {
                out.line(format_args!(
                    "{name:<12} {} {of}  too few for an estimate, {from}",
                    arguments.field
                ))?;
                continue;
            };
            let bound = |bound: Option<f64>| {
                bound.map_or("unknown".to_owned(), |bound| format!("{bound:.4}"))
            };
            let (low, high) = (bound(found.low), bound(found.high));
            out.line(format_args!(
                "{name:<12} {} {of} {:.4}  (95 %: {low} to {high}), {from}",
                arguments.field, found.value
            ))?;
        }
        Ok(())
    }
}
