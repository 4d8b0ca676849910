//! Samples are uniform, and confidence intervals have their stated coverage. Both are measured with
//! 2,000 salts over a recorded series, through sealing, the stream and the verifier.

use std::path::Path;

use moteseal_api::Query;
use moteseal_client::estimate::{Estimator, Interval, Statistic, Values, bootstrap};
use moteseal_client::output::OutputError;
use moteseal_client::{Rows, Session, Sink};
use moteseal_core::record::EpochNumber;
use moteseal_core::record::Scheme;
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_device::seal::{Chain, Profile, Sealer};
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::{Choice, Rate};
use moteseal_seal::stream::{Item, Selection};
use moteseal_verify::issue::FirstRoster;
use moteseal_verify::{Roster, write};

const SALTS: u64 = 2000;
const EPOCH: u64 = 7;

/// Returns the temperatures, as text, of a single mote whose data the authors labelled normal.
fn temperatures() -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../data/telosb/singlehop_indoor_moteid1_data.txt");
    let text = std::fs::read_to_string(file).unwrap();
    let rows = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[4] == "0").map(|row| row[3].to_owned()).collect()
}

struct Group {
    roster: Roster,
    secret: SecretKey,
    schema: Vec<u8>,
}

impl Group {
    fn new() -> Self {
        let operator = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap();
        let secret = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32]).unwrap();
        let devices = [("mote-1", secret.public())];
        let draft = FirstRoster {
            group: "lab",
            epoch_ms: 1 << 40,
            levels: 16,
            budget: None,
            devices: &devices,
        };
        let roster = Roster::open(&draft.issue(&operator).unwrap(), &operator.public()).unwrap();
        let mut buffer = [0; 256];
        let schema =
            Schema::encode(&[Field::parse("temperature:Cel:i16/100").unwrap()], &mut buffer)
                .unwrap()
                .as_bytes()
                .to_vec();
        Self { roster, secret, schema }
    }

    /// Seals the records as one epoch with this salt, and passes the verified answer at `rate` to
    /// the sink.
    fn sample(&self, salt: u64, records: &[[u8; 2]], rate: Rate, sink: &mut dyn Sink) {
        let schema = Schema::decode(&self.schema).unwrap();
        let profile = Profile::new(&self.roster, "mote-1", Scheme::Star, &schema).unwrap();
        let device = profile.device;
        let mut key = [0; 32];
        key[..8].copy_from_slice(&salt.to_le_bytes());
        let chain = Chain::start(profile.certificate);
        let mut sealer = Sealer::new(profile, self.secret.clone(), SaltKey::new(key), chain);
        for record in records {
            assert!(sealer.push(EpochNumber(EPOCH), record).unwrap().is_none());
        }
        let bundle = sealer.close(true).unwrap().unwrap();
        let (Item::Part(whole), _) = Item::decode(&bundle.bytes[bundle.part_start..]).unwrap()
        else {
            panic!("not a part")
        };
        let statement = bundle.seal.statement();
        let mask = rate.levels(16).unwrap() & statement.surviving();
        // A rate 2^-k selects the highest levels, whose events come first.
        let count =
            moteseal_seal::sample::choice::selected_count(&statement.counters, mask) as usize;
        let digests = write::star_evidence(&bundle.seal, &bundle.blocks, mask);
        let mut answer = bundle.bytes[..bundle.part_start].to_vec();
        write::part(
            &mut answer,
            &bundle.seal,
            Selection::Levels(mask),
            &digests,
            &whole.events[..count * 2],
            whole.signature,
        );
        write::end(&mut answer);
        let (since, until) = (EpochNumber(EPOCH), Some(EpochNumber(EPOCH + 1)));
        let query = Query {
            devices: vec![device],
            since,
            until,
            choice: Choice::Rate(rate),
            columns: Vec::new(),
        };
        let mut session = Session::new(&self.roster, query, None);
        session.feed(&answer, sink).unwrap();
        let (report, _) = session.finish(sink).unwrap();
        assert!(report.is_complete());
    }
}

/// Returns the value that a chi-square variable exceeds with a probability of 0.1 %, by Wilson and
/// Hilferty's approximation (its error is at most 0.2 % from 20 degrees of freedom on).
fn chi_square_999(freedom: f64) -> f64 {
    let spread = 2.0 / (9.0 * freedom);
    freedom * (1.0 - spread + 3.090_232 * spread.sqrt()).powi(3)
}

#[test]
fn every_position_is_sampled_equally_often_over_2000_salts() {
    const BINS: usize = 64;
    const EVENTS: usize = BINS * 16;
    let group = Group::new();
    // Each record is its own position, so the rows show which positions were sampled.
    let records: Vec<[u8; 2]> = (0..EVENTS as u16).map(u16::to_be_bytes).collect();
    let mut counts = [0u32; BINS];
    let mut sink = |rows: &Rows<'_>| -> Result<(), OutputError> {
        rows.for_each(|seq, _, record| {
            assert_eq!(seq.0, u64::from(u16::from_be_bytes(record.try_into().unwrap())));
            counts[seq.0 as usize * BINS / EVENTS] += 1;
        });
        Ok(())
    };
    let rate: Rate = "1/8".parse().unwrap();
    (0..SALTS).for_each(|salt| group.sample(salt, &records, rate, &mut sink));
    // Each event is sampled independently, so the counts are binomial and their variance has the
    // factor 1 - p.
    let (p, trials) = (rate.as_f64(), (SALTS * (EVENTS / BINS) as u64) as f64);
    let statistic: f64 = counts
        .iter()
        .map(|&count| (f64::from(count) - trials * p).powi(2) / (trials * p * (1.0 - p)))
        .sum();
    assert!(statistic < chi_square_999(BINS as f64), "chi-square {statistic:.1}");
}

/// How many of 2,000 confidence intervals contain the true value.
struct Coverage {
    /// The name of the statistic.
    name: String,
    truth: f64,
    hits: u32,
}

impl Coverage {
    fn of(name: impl Into<String>, truth: f64) -> Self {
        Self { name: name.into(), truth, hits: 0 }
    }

    fn add(&mut self, interval: &Interval) {
        let hit = interval.low.is_none_or(|low| low <= self.truth)
            && interval.high.is_none_or(|high| self.truth <= high);
        self.hits += u32::from(hit);
    }

    fn share(&self) -> f64 {
        let share = f64::from(self.hits) / SALTS as f64;
        println!(
            "{}: {:.2} % of the intervals contain {:.4}",
            self.name,
            share * 100.0,
            self.truth
        );
        share
    }
}

/// Returns the records of a recorded series, and its values in ascending order.
fn series(group: &Group) -> (Vec<[u8; 2]>, Vec<f64>) {
    let schema = Schema::decode(&group.schema).unwrap();
    let field = schema.field("temperature").unwrap();
    let records: Vec<[u8; 2]> = temperatures()
        .iter()
        .map(|text| {
            let mut record = [0; 2];
            field.write(text, &mut record).unwrap();
            record
        })
        .collect();
    let mut values: Vec<f64> =
        records.iter().map(|record| field.read_f64(record).unwrap().unwrap()).collect();
    values.sort_by(f64::total_cmp);
    (records, values)
}

#[test]
fn intervals_of_a_mean_have_the_stated_coverage() {
    let group = Group::new();
    let (records, values) = series(&group);
    let truth = values.iter().sum::<f64>() / values.len() as f64;
    for rate in ["1/32", "1/8"] {
        let mut coverage = Coverage::of(format!("mean at {rate}"), truth);
        for salt in 0..SALTS {
            let mut estimator = Estimator::new("temperature");
            group.sample(salt, &records, rate.parse().unwrap(), &mut estimator);
            let mean = estimator.mean().unwrap();
            assert!(mean.sampled >= 60 && mean.population == records.len() as u64, "{mean:?}");
            coverage.add(&mean.into());
        }
        assert!((0.935..=0.965).contains(&coverage.share()));
    }
}

#[test]
fn intervals_of_quantiles_and_proportions_have_at_least_the_stated_coverage() {
    let group = Group::new();
    let (records, values) = series(&group);
    let shares = [0.01, 0.1, 0.25, 0.5, 0.9, 0.99];
    let rank = |q: f64| ((q * values.len() as f64).ceil() as usize).max(1);
    let mut quantiles = shares.map(|q| Coverage::of(format!("quantile {q}"), values[rank(q) - 1]));
    // Use conditions that 2, 20, 50 and 95 % of all readings meet.
    let mut proportions: Vec<_> = [0.02, 0.2, 0.5, 0.95]
        .iter()
        .map(|&q| {
            let condition = format!("temperature<={}", values[rank(q) - 1]);
            let hits = values.iter().filter(|value| **value <= values[rank(q) - 1]).count();
            (
                Coverage::of(
                    format!("proportion of {condition}"),
                    hits as f64 / values.len() as f64,
                ),
                condition.parse().unwrap(),
            )
        })
        .collect();
    let mut resampled =
        Coverage::of("mean by bootstrap", values.iter().sum::<f64>() / values.len() as f64);
    for salt in 0..SALTS {
        let mut sampled = Values::new("temperature");
        let mut estimators: Vec<_> = proportions
            .iter()
            .map(|(_, condition)| Estimator::of_share(Clone::clone(condition)))
            .collect();
        let mut sink = |rows: &Rows<'_>| {
            estimators.iter_mut().try_for_each(|estimator| estimator.rows(rows))?;
            sampled.rows(rows)
        };
        group.sample(salt, &records, "1/32".parse().unwrap(), &mut sink);
        for (coverage, found) in quantiles.iter_mut().zip(sampled.quantiles(&shares)) {
            coverage.add(&found.unwrap());
        }
        for ((coverage, _), estimator) in proportions.iter_mut().zip(&estimators) {
            coverage.add(&estimator.share().unwrap());
        }
        resampled
            .add(&bootstrap(&sampled, &Statistic::Mean, 300, &[salt as u8; 32]).unwrap().unwrap());
    }
    for coverage in quantiles.iter().chain(proportions.iter().map(|(coverage, _)| coverage)) {
        assert!(coverage.share() >= 0.935);
    }
    assert!((0.935..=0.965).contains(&resampled.share()));
}
