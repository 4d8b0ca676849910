//! Compares one Ed25519 signature per event (aws-lc-rs) with epochs that are sealed as stars and
//! trees with one signature per epoch, on one thread. For Moteseal, the product's complete path is
//! measured: readings are passed to the device's sealer, the sealer returns a signed bundle, and
//! the verifier's stream reader receives the bytes of the bundle.

use std::hint::black_box;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, ParsedPublicKey};
use moteseal_core::record::Scheme;
use moteseal_lanes::Host;
use moteseal_seal::follow::Limits;
use moteseal_verify::{Event, ReadError, Roster, StreamReader};

use crate::load::{Failed, Fleet, record};
use crate::measure::{Bar, Contender, Report, interleaved};

/// The numbers of readings in an epoch: a small number, as in the paper, and large numbers.
const SIZES: [u32; 3] = [298, 10_000, 1_000_000];
/// The maximum number of signatures in a measurement. More signatures take longer without changing
/// the rate.
const SIGNATURES: usize = 298;

pub(crate) fn run() -> Result<Vec<Report>, Failed> {
    let title = format!(
        "sealing and verifying an event of 4 bytes, Ed25519 by aws-lc-rs, one thread; host loops: {}",
        Host::detect().name()
    );
    let mut report = Report::new(title);
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32])?;
    let public = ParsedPublicKey::new(&ED25519, key.public_key().as_ref())?;
    let messages: Vec<[u8; 20]> = (0..SIGNATURES as u32).map(message).collect();
    let signatures: Vec<_> = messages.iter().map(|message| key.sign(message)).collect();
    for size in SIZES {
        // Repeat small epochs, so that a repetition takes milliseconds.
        let epochs = (100_000 / u64::from(size)).max(1);
        let events = usize::try_from(size)? * usize::try_from(epochs)?;
        let (mut star, mut tree) = (Fleet::new(1, Scheme::Star)?, Fleet::new(1, Scheme::Tree)?);
        let star_bundles = sealed(&mut star, epochs, size)?;
        let tree_bundles = sealed(&mut tree, epochs, size)?;
        let (star_roster, tree_roster) = (roster(&star)?, roster(&tree)?);
        if verified(&star_roster, &star_bundles)? != events
            || verified(&tree_roster, &tree_bundles)? != events
        {
            return Err("not every event was verified".into());
        }
        let mut contenders = [
            Contender::new(SIGNATURES, || {
                messages.iter().for_each(|message| _ = black_box(key.sign(message)))
            }),
            Contender::new(events, || _ = black_box(sealed(&mut star, epochs, size))),
            Contender::new(events, || _ = black_box(sealed(&mut tree, epochs, size))),
            Contender::new(SIGNATURES, || {
                for (message, signature) in messages.iter().zip(&signatures) {
                    _ = black_box(public.verify_sig(message, signature.as_ref()));
                }
            }),
            Contender::new(events, || _ = black_box(verified(&star_roster, &star_bundles))),
            Contender::new(events, || _ = black_box(verified(&tree_roster, &tree_bundles))),
        ];
        let times = interleaved(if size >= 1_000_000 { 7 } else { 15 }, &mut contenders);
        for (what, each, first) in [("sealed", 0, 1), ("verified", 3, 4)] {
            report.add_spread(
                format!("an event of {size} {what}: signed each"),
                times.spread(each),
                "ns",
                None,
            );
            for (scheme, at) in [("star", first), ("tree", first + 1)] {
                report.add_spread(format!("  {scheme}"), times.spread(at), "ns", None);
                let bar = (scheme == "star" && what == "sealed").then_some(Bar::AtLeast(50.0));
                report.add_spread("    faster than signing each", times.ratios(each, at), "x", bar);
            }
        }
    }
    Ok(vec![report])
}

/// Returns the message that a device signs for an event: the device's id, the event's number, and
/// the event.
fn message(reading: u32) -> [u8; 20] {
    let mut message = [0; 20];
    message[..8].copy_from_slice(b"device 1");
    message[8..16].copy_from_slice(&u64::from(reading).to_be_bytes());
    message[16..].copy_from_slice(&record(400_000, reading));
    message
}

/// Returns the roster, opened from its bytes as a verifier does.
fn roster(fleet: &Fleet) -> Result<Roster, Failed> {
    Ok(Roster::open(fleet.roster.bytes(), &fleet.operator_key())?)
}

/// Seals the next epochs of the fleet's only device. Returns each as a separate bundle.
fn sealed(fleet: &mut Fleet, epochs: u64, size: u32) -> Result<Vec<Vec<u8>>, Failed> {
    Ok(fleet.seal(epochs, size)?.into_iter().flatten().map(|bundle| bundle.bytes).collect())
}

/// Verifies each bundle separately, as a verifier that receives only one bundle does. Returns the
/// number of events.
fn verified(roster: &Roster, bundles: &[Vec<u8>]) -> Result<usize, Failed> {
    let mut events = 0;
    for bundle in bundles {
        let mut reader = StreamReader::new(roster, Limits::default());
        let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
            if let Event::Proven(proven) = event {
                events += proven.part.n as usize;
            }
            Ok(())
        };
        reader.feed(bundle, &mut visit)?;
        reader.finish(&mut visit)?;
    }
    Ok(events)
}
