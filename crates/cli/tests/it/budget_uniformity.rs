//! The readings that a coordinator keeps within a budget are a uniform sample. This tests the whole
//! path from the devices through the coordinator and a cloud to the client. With 2,000 salts, it
//! checks that neither the position nor the device of a reading affects whether the reading is
//! kept. It checks the same for the readings that a cloud returns without a budget.

use crate::budgeted::{Cloud, FIRST, Group, secret};
use moteseal_api::{CBOR_SEQ, Query, paths};
use moteseal_client::estimate::{Estimator, Interval, Values};
use moteseal_client::output::OutputError;
use moteseal_client::{Rows, Sink as _};
use moteseal_core::record::EpochNumber;
use moteseal_core::record::Scheme;
use moteseal_core::schema::{Field, Schema};
use moteseal_device::seal::{Chain, Profile, Sealer};
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::{Choice, Rate};
use moteseal_verify::Roster;
use moteseal_verify::issue::FirstRoster;

/// The number of epochs. Each seal, and therefore each epoch, has new salts.
const EPOCHS: u64 = 2000;
const READINGS: u32 = 128;
const BUDGET: u64 = 100;
/// The number of bins into which the positions of a device's readings are divided.
const BINS: usize = 16;

/// The number of events that a query by seed draws from each device's epoch. If there are fewer, it
/// draws all.
const DRAWN: u32 = 16;

/// How many of a device's readings were drawn, by their position.
#[derive(Clone, Copy, Default)]
struct Drawn {
    counts: [u32; BINS],
    expected: f64,
    variance: f64,
}

impl Drawn {
    /// Adds the rows of one epoch, which are a sample without replacement of its readings.
    fn add(&mut self, rows: &Rows<'_>) {
        rows.for_each(|seq, _, _| self.counts[seq.0 as usize * BINS / READINGS as usize] += 1);
        let (n, all) = (f64::from(rows.len()), f64::from(READINGS));
        self.expected += n / BINS as f64;
        self.variance += n / BINS as f64 * (all - n) / (all - 1.0);
    }

    fn statistic(&self) -> f64 {
        self.counts
            .iter()
            .map(|&count| (f64::from(count) - self.expected).powi(2) / self.variance)
            .sum()
    }
}

/// Returns the value that a chi-square variable exceeds with a probability of 0.1 %, by Wilson and
/// Hilferty's approximation (its error is at most 0.4 % from 15 degrees of freedom on).
fn chi_square_999(freedom: f64) -> f64 {
    let spread = 2.0 / (9.0 * freedom);
    freedom * (1.0 - spread + 3.090_232 * spread.sqrt()).powi(3)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reading_of_a_star_is_kept_equally_often_within_a_budget() {
    is_uniform(Scheme::Star, 0x5a).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reading_of_a_tree_is_kept_equally_often_within_a_budget() {
    is_uniform(Scheme::Tree, 0x3c).await;
}

async fn is_uniform(scheme: Scheme, salts: u8) {
    let mut group = Group::new(scheme, 8, BUDGET, salts);
    let cloud = Cloud::serve(&group.roster).await;
    let places = group.places();
    let population = 4 * u64::from(READINGS);
    let truth = f64::from(READINGS - 1) / 2.0;
    let mut counts = [0u32; 4 * BINS];
    // The expected count of each bin and its variance, for samples without replacement. The size of
    // each sample is the number of readings that were kept of an epoch.
    let (mut expected, mut variance) = (0.0, 0.0);
    // The events that a query by seed draws from the kept events of a tree, for each device
    // separately.
    let mut drawn = [Drawn::default(); 4];
    // How many intervals contain the true value. Intervals of means count only if the sample is
    // large enough for the stated coverage; intervals of shares and medians always count.
    let (mut large, mut means, mut shares, mut medians) = (0u32, 0u32, 0u32, 0u32);
    let low = f64::from(READINGS / 4);
    let true_share = population as f64 / 4.0;
    let median = f64::from(READINGS / 2 - 1);
    let contains = |found: Interval, truth: f64| {
        u32::from(
            found.low.is_none_or(|low| low <= truth) && found.high.is_none_or(|high| truth <= high),
        )
    };
    for _ in 0..EPOCHS / 100 {
        let uploads: Vec<_> = (0..100).map(|_| group.epoch([READINGS; 4])).collect();
        for upload in &uploads {
            cloud.take(&group.roster, upload).await.unwrap();
        }
        for upload in &uploads {
            let query = Query {
                devices: group.devices.clone(),
                since: upload.epoch,
                until: Some(EpochNumber(upload.epoch.0 + 1)),
                choice: Choice::Rate(Rate::new(1, 1 << upload.round.0).unwrap()),
                columns: Vec::new(),
            };
            let mut kept = 0;
            let mut mean = Estimator::new("place");
            let mut share = Estimator::of_share(format!("place<{low}").parse().unwrap());
            let mut values = Values::new("place");
            let mut sink = |rows: &Rows<'_>| -> Result<(), OutputError> {
                let device = places[&rows.device()];
                rows.for_each(|seq, _, record| {
                    assert_eq!(seq.0, u64::from(u32::from_be_bytes(record.try_into().unwrap())));
                    counts[device * BINS + seq.0 as usize * BINS / READINGS as usize] += 1;
                    kept += 1;
                });
                share.rows(rows)?;
                values.rows(rows)?;
                mean.rows(rows)
            };
            let report = moteseal_client::Client::new(&cloud.client, &group.roster)
                .query(&query)
                .run(&mut sink)
                .await
                .unwrap()
                .report;
            assert!(report.is_complete() && kept <= BUDGET, "{report:?}");
            let (n, all, bin) = (kept as f64, population as f64, counts.len() as f64);
            expected += n / bin;
            variance += n / bin * (all - n) / (all - 1.0);
            let mean = mean.mean().unwrap();
            if kept >= 60 {
                large += 1;
                means += contains(mean.into(), truth);
            }
            shares += contains(share.hits().unwrap(), true_share);
            medians += contains(values.quantile(0.5).unwrap(), median);
            if scheme == Scheme::Tree {
                let mut seed = [0x6d; 32];
                seed[..8].copy_from_slice(&upload.epoch.0.to_be_bytes());
                let query = Query { choice: Choice::Sample { count: DRAWN, seed }, ..query };
                let mut sink = |rows: &Rows<'_>| -> Result<(), OutputError> {
                    drawn[places[&rows.device()]].add(rows);
                    Ok(())
                };
                let report = moteseal_client::Client::new(&cloud.client, &group.roster)
                    .query(&query)
                    .run(&mut sink)
                    .await
                    .unwrap()
                    .report;
                assert!(report.is_complete(), "{report:?}");
            }
        }
    }
    let statistic: f64 =
        counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / variance).sum();
    let percent = |covered: u32, all: u32| f64::from(covered) / f64::from(all) * 100.0;
    let all = u32::try_from(EPOCHS).unwrap();
    let (means, shares, medians) =
        (percent(means, large), percent(shares, all), percent(medians, all));
    println!(
        "{expected:.0} readings a bin, chi-square {statistic:.1}; of {large} means {means:.2} % covered, of {all} shares {shares:.2} %, medians {medians:.2} %"
    );
    assert!(statistic < chi_square_999(counts.len() as f64 - 1.0), "chi-square {statistic:.1}");
    if scheme == Scheme::Tree {
        let statistic: f64 = drawn.iter().map(Drawn::statistic).sum();
        let each = drawn[0].expected;
        println!(
            "{each:.0} readings drawn by a permutation from each bin of a device, chi-square {statistic:.1}"
        );
        assert!(
            each > 1000.0 && statistic < chi_square_999(4.0 * (BINS as f64 - 1.0)),
            "chi-square {statistic:.1}"
        );
    }
    assert!(large > all / 2 && (93.5..=96.5).contains(&means), "{means:.2} % of {large} means");
    assert!(
        shares >= 93.5 && medians >= 93.5,
        "{shares:.2} % of the shares, {medians:.2} % of the medians"
    );
}

/// Tests a device without a budget whose complete epochs are in a cloud. The client queries a rate
/// and, for trees, a number of readings drawn by a seed.
async fn is_uniform_without_a_budget(scheme: Scheme) {
    let (operator, device) = (secret(98), secret(1));
    let first = FirstRoster {
        group: "meadow",
        epoch_ms: 60_000,
        levels: 8,
        budget: None,
        devices: &[("alone", device.public())],
    };
    let roster = Roster::open(&first.issue(&operator).unwrap(), &operator.public()).unwrap();
    let cloud = Cloud::serve(&roster).await;
    let mut buffer = [0; 256];
    let schema = Schema::encode(&[Field::parse("place::u32").unwrap()], &mut buffer).unwrap();
    let profile = Profile::new(&roster, "alone", scheme, &schema).unwrap();
    let (id, chain) = (profile.device, Chain::start(profile.certificate));
    let mut sealer = Sealer::new(profile, device, SaltKey::new([0x2b; 32]), chain);
    let (mut by_rate, mut by_seed) = (Drawn::default(), Drawn::default());
    for start in (FIRST..FIRST + EPOCHS).step_by(100) {
        let epochs = (start..start + 100).map(EpochNumber);
        let mut bundles = Vec::new();
        for epoch in epochs.clone() {
            (0..READINGS).for_each(|place| {
                assert!(sealer.push(epoch, &place.to_be_bytes()).unwrap().is_none());
            });
            bundles.extend(sealer.close(true).unwrap().unwrap().bytes);
        }
        cloud.client.put(paths::BUNDLES, CBOR_SEQ, bundles.into()).await.unwrap();
        for epoch in epochs {
            let mut seed = [0x17; 32];
            seed[..8].copy_from_slice(&epoch.0.to_be_bytes());
            let rate = Choice::Rate(Rate::new(1, 8).unwrap());
            let sample = (scheme == Scheme::Tree).then_some(Choice::Sample { count: DRAWN, seed });
            for (choice, drawn) in [(Some(rate), &mut by_rate), (sample, &mut by_seed)] {
                let Some(choice) = choice else { continue };
                let query = Query {
                    devices: vec![id],
                    since: epoch,
                    until: Some(EpochNumber(epoch.0 + 1)),
                    choice,
                    columns: Vec::new(),
                };
                let mut sink = |rows: &Rows<'_>| -> Result<(), OutputError> {
                    assert!(matches!(choice, Choice::Rate(_)) || rows.len() == DRAWN);
                    drawn.add(rows);
                    Ok(())
                };
                assert!(
                    moteseal_client::Client::new(&cloud.client, &roster)
                        .query(&query)
                        .run(&mut sink)
                        .await
                        .unwrap()
                        .report
                        .is_complete()
                );
            }
        }
    }
    let drawn = if scheme == Scheme::Tree { &[by_rate, by_seed][..] } else { &[by_rate] };
    for drawn in drawn {
        println!(
            "{scheme:?}: {:.0} readings a bin, chi-square {:.1}",
            drawn.expected,
            drawn.statistic()
        );
        assert!(drawn.expected > 1000.0 && drawn.statistic() < chi_square_999(BINS as f64 - 1.0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reading_of_a_star_is_served_equally_often_without_a_budget() {
    is_uniform_without_a_budget(Scheme::Star).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reading_of_a_tree_is_served_equally_often_without_a_budget() {
    is_uniform_without_a_budget(Scheme::Tree).await;
}
