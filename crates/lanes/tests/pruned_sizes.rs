//! What proves the events of a tree that was kept within a budget: the table of `docs/pruned-trees.md`, regenerated here and compared.
//!
//! `MOTESEAL_BLESS=1 cargo test -p moteseal-lanes --test pruned_sizes` writes the page anew.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fmt::Write as _;
use std::path::Path;

use moteseal_core::Sequence;
use moteseal_core::engine::Engine as _;
use moteseal_core::level::SaltKey;
use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_core::seal::tree::sibling_count;
use moteseal_lanes::Host;

/// Salts that a number is the mean over.
const SALTS: u32 = 16;
const ROUNDS: std::ops::RangeInclusive<u8> = 1..=10;

/// Kept events of a tree of `n` at the levels from `round` on, and the digests of the compact multiproof that they have together: one
/// for each maximal subtree without a kept event. Over all salts.
fn pruned_tree(n: u32, round: u8) -> (u64, u64) {
    let engine = Host::detect();
    let (mut kept, mut digests) = (0, 0);
    let mut levels = vec![0; n as usize];
    for salt in 0..SALTS {
        let salt = SaltKey::new([4; 32]).salt(DeviceId([0; 8]), SealIndex(salt));
        engine.levels(&salt, 16, 0, &mut levels);
        let selected = (0..).map(Sequence).zip(&levels).filter(|(_, level)| **level >= round).map(|(seq, _)| seq);
        kept += selected.clone().count() as u64;
        digests += sibling_count(n.into(), selected);
    }
    (kept, digests)
}

#[test]
fn the_table_of_pruned_trees_is_true() {
    let mut text = String::from(
        "# Trees within a budget\n\n`cargo test -p moteseal-lanes --test pruned_sizes` regenerates this page and fails where it is not true;\n\
         `MOTESEAL_BLESS=1` before it writes the page anew.\n\nBytes of digests an event that is kept, where a tree of so many events is \
         kept at a rate: the compact multiproof, one digest\nfor each maximal subtree without a kept event, which is the least that leads \
         to the signed root. Beside it an inclusion path of\n`log2 n` digests an event, as the paper counts. The mean over 16 salts.\n\n\
         | events |",
    );
    ROUNDS.for_each(|round| write!(text, " 1/{} |", 1 << round).unwrap());
    writeln!(text, " `32 log2 n` |\n|---|{}---|", "---|".repeat(ROUNDS.count())).unwrap();
    for exponent in 10..=20_u8 {
        write!(text, "| 2^{exponent} |").unwrap();
        let paper = 32.0 * f64::from(exponent);
        for round in ROUNDS {
            let (kept, digests) = pruned_tree(1 << exponent, round);
            #[allow(clippy::cast_precision_loss)]
            let each = 32.0 * digests as f64 / kept as f64;
            assert!(kept > 0 && each < paper, "{each} bytes an event at 1/2^{round} of 2^{exponent}");
            write!(text, " {each:.0} |").unwrap();
        }
        writeln!(text, " {paper:.0} |").unwrap();
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pruned-trees.md");
    if std::env::var_os("MOTESEAL_BLESS").is_some() {
        std::fs::write(&page, &text).unwrap();
    }
    let written = std::fs::read_to_string(&page).unwrap_or_default();
    assert_eq!(written, text, "docs/pruned-trees.md is out of date; MOTESEAL_BLESS=1 writes it anew");
}
