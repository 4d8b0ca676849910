//! Measures the size of the proofs of trees within a budget, and of the frames that carry them.
//! Regenerates the tables of `docs/pruned-trees.md` and compares them with the page.
//!
//! `MOTESEAL_BLESS=1 cargo test -p moteseal-lanes --test it pruned_sizes` writes the page instead.

use std::fmt::Write as _;
use std::path::Path;

use moteseal_core::Sequence;
use moteseal_core::link::{LinkKey, MAX_FRAME};
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Framing, Round, SealIndex};
use moteseal_lanes::Host;
use moteseal_seal::engine::Engine as _;
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::{Forwarder, Noted};
use moteseal_seal::tree::sibling_count;
use moteseal_seal::wire::{Acknowledgement, Uplink};

/// The number of salts over which each result is averaged.
const SALTS: u32 = 16;
/// The number of bytes of events and digests in a frame.
const FRAME_EVENTS: usize = 1 << 10;
const ROUNDS: std::ops::RangeInclusive<u8> = 1..=10;

/// Returns two numbers for a tree of `n` events: the number of kept events, whose levels are at or
/// above `round`, and the number of digests of their compact multiproof, one for each maximal
/// subtree without a kept event. Both numbers are sums over all salts.
fn pruned_tree(n: u32, round: u8) -> (u64, u64) {
    let engine = Host::detect();
    let (mut kept, mut digests) = (0, 0);
    let mut levels = vec![0; n as usize];
    for salt in 0..SALTS {
        let salt = SaltKey::new([4; 32]).salt(DeviceId([0; 8]), SealIndex(salt));
        engine.levels(&salt, 16, 0, &mut levels);
        let selected = (0..)
            .map(Sequence)
            .zip(&levels)
            .filter(|(_, level)| **level >= round)
            .map(|(seq, _)| seq);
        kept += selected.clone().count() as u64;
        digests += sibling_count(n.into(), selected);
    }
    (kept, digests)
}

/// Returns the number of bytes of all frames in which a device forwards a tree of `n` records of
/// `size` bytes, if `round` is announced at the start. Also returns the minimum: the number of
/// bytes of the records whose levels are at or above `round`, and of the digests of their
/// multiproof. Both numbers are sums over all salts.
fn forwarded_tree(n: u32, round: u8, size: usize) -> (u64, u64) {
    let (device, epoch) = (DeviceId([0; 8]), EpochNumber(7));
    let (framing, key) = (Framing::fixed(size).unwrap(), LinkKey::new(&[7; 32]));
    let (mut scratch, mut out) = (vec![0; FRAME_EVENTS], vec![0; MAX_FRAME]);
    let (mut sent, mut least) = (0, 0);
    for salt in 0..SALTS {
        let index = SealIndex(salt);
        let salt = SaltKey::new([4; 32]).salt(device, index);
        let mut forwarder = Box::new(Forwarder::<{ 1 << 16 }>::new(
            index,
            epoch,
            (Scheme::Tree, framing),
            16,
            Round(round),
        ));
        let mut kept = Vec::new();
        for seq in 0..n {
            let level = salt.level(Sequence(seq.into()), 16);
            kept.extend((level.0 >= round).then_some(Sequence(seq.into())));
            let record = [&seq.to_be_bytes()[..], &[0; 60]].concat();
            assert_ne!(forwarder.note(level, &record[..size]), Noted::Full);
            if seq + 1 == n {
                forwarder.end();
            }
            // Send a frame whenever the buffer has enough bytes for two frames. Send the rest after
            // the last event.
            while forwarder.buffered() >= 2 * FRAME_EVENTS || seq + 1 == n {
                let Some(forward) = forwarder.next_frame(&mut scratch).unwrap() else { break };
                let next = forward.until;
                sent +=
                    Uplink::Forward(forward).close(device, &key, &mut out).unwrap().len() as u64;
                forwarder.acknowledge(&Acknowledgement {
                    index,
                    next,
                    sealed: None,
                    wants_schema: false,
                    challenge: None,
                });
            }
        }
        assert!(forwarder.is_drained());
        least += (size * kept.len()) as u64 + 32 * sibling_count(n.into(), kept);
    }
    (sent, least)
}

/// The text of the page before its first table.
const KEPT: &str = "# Trees within a budget

`cargo test -p moteseal-lanes --test it pruned_sizes` checks this page. With `MOTESEAL_BLESS=1` it
writes the page.

A pruned tree has only some of the events of a seal. Each maximal subtree without a kept event is
replaced by the digest of its root. With these digests, a verifier can compute the signed root.

The first table shows the bytes of digests per kept event, for a tree with the stated number of
events that is sampled at the stated rate. The digests are those of the compact multiproof, the
minimum from which the signed root can be computed. For comparison, the last column has the size of
an inclusion path of `log2 n` digests, which the paper counts for each event. All numbers are means
over 16 salts.

";

/// The text of the page before its second table.
const FORWARDED: &str = "
## Sent by devices

A coordinator keeps and uploads exactly these digests of a tree, regardless of the order in which
the events arrive (`cargo test -p moteseal-gateway pruned`).

The second table shows how much a device sends to its coordinator, if it knows the round from the
start of the epoch. Each value is the number of bytes in all frames of about 1 KiB, divided by the
minimum: the bytes of the kept records plus the digests of the first table. A value can be below 1,
because the device sends a record in place of its digest if the record is shorter. The epoch has
2^14 events. All numbers are means over 16 salts.

";

#[test]
fn the_page_on_pruned_trees_is_current() {
    let mut text = format!("{KEPT}| events |");
    ROUNDS.for_each(|round| write!(text, " 1/{} |", 1 << round).unwrap());
    writeln!(text, " `32 log2 n` |\n|---|{}---|", "---|".repeat(ROUNDS.count())).unwrap();
    for exponent in 10..=20_u8 {
        write!(text, "| 2^{exponent} |").unwrap();
        let paper = 32.0 * f64::from(exponent);
        for round in ROUNDS {
            let (kept, digests) = pruned_tree(1 << exponent, round);
            #[allow(clippy::cast_precision_loss)]
            let each = 32.0 * digests as f64 / kept as f64;
            assert!(
                kept > 0 && each < paper,
                "{each} bytes per event at 1/2^{round} of 2^{exponent}"
            );
            write!(text, " {each:.0} |").unwrap();
        }
        writeln!(text, " {paper:.0} |").unwrap();
    }
    text += FORWARDED;
    text += "| bytes per record |";
    ROUNDS.for_each(|round| write!(text, " 1/{} |", 1 << round).unwrap());
    writeln!(text, "\n|---|{}", "---|".repeat(ROUNDS.count())).unwrap();
    for size in [4, 16, 32, 64] {
        write!(text, "| {size} |").unwrap();
        for round in ROUNDS {
            let (sent, least) = forwarded_tree(1 << 14, round, size);
            #[allow(clippy::cast_precision_loss)]
            let ratio = sent as f64 / least as f64;
            assert!(
                ratio <= 1.5,
                "{ratio} times the minimum at 1/2^{round} of records of {size} bytes"
            );
            write!(text, " {ratio:.2} |").unwrap();
        }
        text.push('\n');
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pruned-trees.md");
    if std::env::var_os("MOTESEAL_BLESS").is_some() {
        std::fs::write(&page, &text).unwrap();
    }
    let written = std::fs::read_to_string(&page).unwrap_or_default();
    assert_eq!(
        written, text,
        "docs/pruned-trees.md is out of date; run this test with MOTESEAL_BLESS=1 to update it"
    );
}
