//! Measures results that the papers do not have: the cost of a suite by the length of an epoch, and
//! bytes on the uplink compared with other formats.

use std::hint::black_box;

use moteseal_core::record::EpochNumber;
use moteseal_core::record::Scheme;
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_device::seal::{Chain, Profile, Sealer};
use moteseal_lab::seals::paper::EPOCH;
use moteseal_lab::seals::{ByEpoch, Origin, Uplink};
use moteseal_research::hash_chaining::SIGNATURE_BYTES;
use moteseal_seal::level::SaltKey;
use moteseal_verify::Roster;
use moteseal_verify::issue::FirstRoster;

use super::feed::Record;
use super::space::seal_star;
use super::suites::name;
use super::{Effort, extremes};
use crate::hashing::OneDevice;
use crate::measure::{Contender, interleaved};

const SUITES: [Algorithm; 3] = [Algorithm::Ed25519, Algorithm::Esp256, Algorithm::MlDsa44];

fn message(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Returns the number of bytes that a device of the product sends in addition to its events.
/// Measures the second epoch of this length, after the first has been acknowledged.
fn overhead(algorithm: Algorithm, scheme: Scheme, events: u64) -> Result<usize, String> {
    let operator = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).map_err(message)?;
    let secret = SecretKey::from_seed(algorithm, &[2; 32]).map_err(message)?;
    let devices = [("dev1", secret.public())];
    let group = FirstRoster {
        group: "home",
        epoch_ms: 3_600_000,
        levels: 16,
        budget: None,
        devices: &devices,
    };
    let roster = Roster::open(&group.issue(&operator).map_err(message)?, &operator.public())
        .map_err(message)?;
    let fields = [
        Field::parse("temperature:Cel:i16/100").map_err(message)?,
        Field::parse("humidity:%RH:u16/100").map_err(message)?,
    ];
    let mut buffer = [0; 512];
    let schema = Schema::encode(&fields, &mut buffer).map_err(message)?;
    let profile = Profile::new(&roster, "dev1", scheme, &schema).map_err(message)?;
    let chain = Chain::start(profile.certificate);
    let mut sealer = Sealer::new(profile, secret, SaltKey::new([3; 32]), chain);
    let mut bundles = Vec::new();
    for epoch in 0..2 {
        for reading in 0..events {
            let [.., a, b, c, d] = reading.to_be_bytes();
            bundles
                .extend(sealer.push(EpochNumber(480_000 + epoch), &[a, b, c, d]).map_err(message)?);
        }
    }
    bundles.extend(sealer.close(true).map_err(message)?);
    bundles
        .get(1)
        .map(|bundle| bundle.uplink_overhead())
        .ok_or_else(|| "an epoch was not sealed".to_owned())
}

/// Measures the overhead in bytes and the time, by the length of an epoch.
pub(super) fn by_epoch(effort: &Effort) -> Result<Vec<ByEpoch>, String> {
    let mut rows = Vec::new();
    for &events in effort.lengths {
        let count = usize::try_from(events).map_err(message)?;
        let records: Vec<Record> =
            (0..u32::try_from(events).map_err(message)?).map(u32::to_be_bytes).collect();
        let keys = SUITES.map(|algorithm| SecretKey::from_seed(algorithm, &[7; 32]));
        let keys = keys.into_iter().collect::<Result<Vec<_>, _>>().map_err(message)?;
        // Repeat a short epoch, so that a repetition takes about a millisecond.
        let times_over = (effort.signatures * 4 / count.max(1)).clamp(1, effort.signatures);
        let contender = |key: &SecretKey| {
            let (key, group, records) = (key.clone(), OneDevice(key.public()), &records);
            Contender::new(count * times_over, move || {
                for _ in 0..times_over {
                    seal_star::<16>(&key, &group, black_box(records));
                }
            })
        };
        let mut contenders: Vec<_> = keys.iter().map(contender).collect();
        let times = interleaved(effort.repetitions, &mut contenders);
        for (at, algorithm) in SUITES.into_iter().enumerate() {
            #[allow(clippy::cast_precision_loss)]
            let bytes = overhead(algorithm, Scheme::Star, events)? as f64 / events as f64;
            rows.push(ByEpoch {
                suite: name(algorithm),
                events,
                bytes,
                time: extremes(&times, at),
            });
        }
    }
    Ok(rows)
}

/// Returns the bytes per event on the uplink of several formats. Numbers that third parties have
/// published are marked.
pub(super) fn uplink() -> Result<Vec<Uplink>, String> {
    const HOUR: u64 = 60;
    let mut rows = Vec::new();
    for payload in [4_u64, 3] {
        let mut row = |format: String, extra: f64, from| {
            #[allow(clippy::cast_precision_loss)]
            rows.push(Uplink { format, payload, bytes: payload as f64 + extra, from });
        };
        // The smallest possible format, without framing, names or numbers.
        row("sign-each, the bare Ed25519 signature".to_owned(), 64.0, Origin::Arithmetic);
        #[allow(clippy::cast_precision_loss)]
        row(
            "hash chaining on-line, a one-time signature per event".to_owned(),
            SIGNATURE_BYTES as f64,
            Origin::Arithmetic,
        );
        row(
            "hash chaining off-line, the next one's digest in each message".to_owned(),
            32.0 + 64.0 / 298.0,
            Origin::Arithmetic,
        );
        for (scheme, what) in [(Scheme::Star, "star"), (Scheme::Tree, "tree")] {
            for events in [HOUR, EPOCH as u64] {
                #[allow(clippy::cast_precision_loss)]
                let extra = overhead(Algorithm::Ed25519, scheme, events)? as f64 / events as f64;
                row(format!("{what} of {events} events, Ed25519"), extra, Origin::Encoding);
            }
        }
        #[allow(clippy::cast_precision_loss)]
        let extra = overhead(Algorithm::MlDsa44, Scheme::Star, 1440)? as f64 / 1440.0;
        row(
            "star of 1440 events (a day of minutes), ML-DSA-44".to_owned(),
            extra,
            Origin::Encoding,
        );
    }
    rows.push(Uplink {
        format: "a comparable product: an Ed25519 signature per event in its own envelope (as stated for it)".to_owned(),
        payload: 3,
        bytes: 90.0,
        from: Origin::Others,
    });
    Ok(rows)
}
