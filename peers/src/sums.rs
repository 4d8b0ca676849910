//! Compares private sums with other schemes, on one thread: Prio3Sum with 32-bit measurements and
//! two aggregators (the crate `prio`), and Paillier with a 2,048-bit modulus (`libpaillier`, pure
//! Rust).
//!
//! All schemes compute the same sums, and the results are checked. Their guarantees differ. Prio3
//! proves that each client's value is in range. It needs two servers that do not collude, and a
//! malicious server can change the result. Paillier hides the values and proves nothing. Moteseal
//! hides the values and proves the sum. It needs a querier that shares keys with the sources.

use std::hint::black_box;

use libpaillier::unknown_order::BigNumber;
use libpaillier::{DecryptionKey, EncryptionKey};
use moteseal_core::{DeviceId, GroupId};
use moteseal_lanes::Host;
use moteseal_sum::engine::KeyEngine as _;
use moteseal_sum::guard::EpochGuard;
use moteseal_sum::query::QueryId;
use moteseal_sum::sies::{KeyLanes, KeyTotals, LANES, Master, Psr, Slot, SourceKey};
use prio::codec::Encode as _;
use prio::vdaf::prio3::Prio3Sum;
use prio::vdaf::{Aggregator as _, Client as _, Collector as _, PrepareTransition};

use crate::load::Failed;
use crate::measure::{Contender, Report, interleaved};

const SOURCES: usize = 256;
/// The number of sources for Paillier. It is small because an encryption takes milliseconds.
const FEW: usize = 4;
const REPETITIONS: usize = 7;
const QUERY: QueryId = QueryId([5; 16]);
const GROUP: GroupId = GroupId([1; 8]);
const CONTEXT: &[u8] = b"moteseal peers";

/// Returns 32-bit readings of sensors. No reading is 0, because this implementation of Paillier
/// rejects it.
fn readings() -> Vec<u32> {
    (1..=SOURCES as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect()
}

pub(crate) fn run() -> Result<Report, Failed> {
    let readings = readings();
    let expected: u64 = readings.iter().map(|reading| u64::from(*reading)).sum();

    // Moteseal.
    let master = Master::new([7; 32]);
    let key = master.key_group(GROUP, 0).for_query(QUERY);
    let sources: Vec<SourceKey> = (0..SOURCES as u64)
        .map(|i| master.source(GROUP, DeviceId(i.to_be_bytes()), 0).for_query(QUERY))
        .collect();
    let mut lanes = vec![KeyLanes::default(); SOURCES.div_ceil(LANES)];
    sources.iter().enumerate().for_each(|(i, source)| lanes[i / LANES].set(i % LANES, source));
    let present = vec![u16::MAX; lanes.len()];
    let encrypt = |source: &SourceKey, reading: u32, epoch: u64| -> Result<Psr, Failed> {
        let mut permit = EpochGuard::default().advance(QUERY, 1000, epoch)?;
        Ok(source.encrypt(&mut permit, Slot(0), reading.into())?)
    };
    let psrs: Vec<Psr> = sources
        .iter()
        .zip(&readings)
        .map(|(source, reading)| encrypt(source, *reading, 1))
        .collect::<Result<_, _>>()?;
    let sum = psrs.iter().fold(Psr::ZERO, |sum, psr| sum.merge(psr));
    let host = Host::detect();
    let open = || {
        let mut totals = KeyTotals::default();
        host.sum_keys(&lanes, &present, Slot(0), 1, &mut totals);
        totals.open(black_box(&sum), &key, Slot(0), 1, u32::MAX.into())
    };
    if open() != Ok(expected.into()) {
        return Err("our own sum is wrong".into());
    }

    // Prio3Sum.
    let vdaf = Prio3Sum::new_sum(2, u64::from(u32::MAX))?;
    let (verify_key, nonce) = ([3; 32], [4; 16]);
    let reports = readings
        .iter()
        .map(|reading| vdaf.shard(CONTEXT, &u64::from(*reading), &nonce))
        .collect::<Result<Vec<_>, _>>()?;
    let verify = |report: &(_, Vec<_>)| -> Result<Vec<_>, Failed> {
        let (public, inputs) = report;
        let mut states = Vec::new();
        let mut shares = Vec::new();
        for (aggregator, input) in inputs.iter().enumerate() {
            let (state, share) =
                vdaf.prepare_init(&verify_key, CONTEXT, aggregator, &(), &nonce, public, input)?;
            states.push(state);
            shares.push(share);
        }
        let message = vdaf.prepare_shares_to_prepare_message(CONTEXT, &(), shares)?;
        states
            .into_iter()
            .map(|state| match vdaf.prepare_next(CONTEXT, state, message.clone())? {
                PrepareTransition::Finish(output) => Ok(output),
                PrepareTransition::Continue(..) => Err("Prio3 has one round".into()),
            })
            .collect()
    };
    let mut aggregates = [vdaf.aggregate_init(&()), vdaf.aggregate_init(&())];
    for report in &reports {
        for (aggregate, output) in aggregates.iter_mut().zip(verify(report)?) {
            prio::vdaf::Aggregatable::accumulate(aggregate, &output)?;
        }
    }
    if vdaf.unshard(&(), aggregates, SOURCES)? != expected {
        return Err("the sum of Prio3 is wrong".into());
    }
    let (public, inputs) = &reports[0];
    let mut bytes = public.get_encoded()?.len();
    for input in inputs {
        bytes += input.get_encoded()?.len();
    }

    // Paillier. Safe primes would take minutes to generate, and would not change the times.
    let secret =
        DecryptionKey::with_primes_unchecked(&BigNumber::prime(1024), &BigNumber::prime(1024))
            .ok_or("no Paillier key")?;
    let public = EncryptionKey::from(&secret);
    let paillier = |reading: u32| {
        public
            .encrypt(reading.to_be_bytes(), None)
            .map(|(ciphertext, _)| ciphertext)
            .ok_or("Paillier does not encrypt")
    };
    let ciphertexts: Vec<_> =
        readings[..FEW].iter().map(|reading| paillier(*reading)).collect::<Result<_, _>>()?;
    let add_all = || {
        ciphertexts[1..].iter().try_fold(ciphertexts[0].clone(), |sum, next| public.add(&sum, next))
    };
    let few: u64 = readings[..FEW].iter().map(|reading| u64::from(*reading)).sum();
    let decrypted =
        add_all().and_then(|sum| secret.decrypt(&sum)).ok_or("Paillier does not decrypt")?;
    if decrypted.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)) != few {
        return Err("the sum of Paillier is wrong".into());
    }

    let mut epoch = 1;
    let times = interleaved(
        REPETITIONS,
        &mut [
            Contender::new(SOURCES, || {
                epoch += 1;
                for (source, reading) in sources.iter().zip(&readings) {
                    _ = black_box(encrypt(source, *reading, epoch));
                }
            }),
            Contender::new(SOURCES, || {
                black_box(psrs.iter().fold(Psr::ZERO, |sum, psr| sum.merge(black_box(psr))));
            }),
            Contender::new(SOURCES, || {
                _ = black_box(open());
            }),
            Contender::new(SOURCES, || {
                for reading in &readings {
                    _ = black_box(vdaf.shard(CONTEXT, &u64::from(*reading), &nonce));
                }
            }),
            Contender::new(SOURCES, || {
                for report in &reports {
                    _ = black_box(verify(report));
                }
            }),
            Contender::new(FEW, || {
                for reading in &readings[..FEW] {
                    _ = black_box(paillier(*reading));
                }
            }),
            Contender::new(FEW - 1, || {
                black_box(add_all());
            }),
            Contender::new(1, || {
                black_box(secret.decrypt(&ciphertexts[0]));
            }),
        ],
    );
    let mut report = Report::new(format!(
        "a sum over {SOURCES} sources of 32 bits, one thread; host loops: {}",
        host.name()
    ));
    let mut row = |name: &str, at: usize, ours: usize| {
        report.add_spread(name, times.spread(at), "ns", None);
        if at != ours {
            report.add_spread("  times ours", times.ratios(at, ours), "x", None);
        }
    };
    row("source: ours", 0, 0);
    row("source: Prio3Sum, client", 3, 0);
    row("source: Paillier, encryption", 5, 0);
    row("aggregator, a child: ours", 1, 1);
    row("aggregator, a child: Paillier", 6, 1);
    row("querier, a source: ours", 2, 2);
    row("both aggregators, a report verified: Prio3Sum", 4, 2);
    row("querier, once: Paillier, decryption", 7, 7);
    #[allow(clippy::cast_precision_loss)]
    {
        report.add("bytes a source sends: ours", 32.0, "B", None);
        report.add("bytes a source sends: Prio3Sum", bytes as f64, "B", None);
        report.add(
            "bytes a source sends: Paillier",
            public.nn().to_bytes().len() as f64,
            "B",
            None,
        );
    }
    Ok(report)
}
