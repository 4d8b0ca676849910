//! Tests that every scheme has the guarantees and the weaknesses that its description states.

use moteseal_core::record::{DeviceId, EpochNumber, Framing};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_research::{
    Ask, Concatenate, Context, EpochSeal, OfflineChain, OnlineChain, OpenError, PaperStar,
    PaperTree, Row, Scheme, SignEach, Unsupported,
};
use moteseal_seal::level::Salt;
use moteseal_seal::sample::Rate;
use proptest::prelude::*;

fn schemes() -> [Box<dyn Scheme>; 8] {
    [
        Box::new(SignEach),
        Box::new(Concatenate),
        Box::new(OfflineChain),
        Box::new(OnlineChain::new([9; 32])),
        Box::new(PaperStar),
        Box::new(PaperTree),
        Box::new(EpochSeal::STAR),
        Box::new(EpochSeal::TREE),
    ]
}

fn key() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[4; 32]).unwrap()
}

fn context(framing: Framing) -> Context {
    Context { device: DeviceId([7; 8]), epoch: EpochNumber(3), framing, salt: Salt([5; 16]) }
}

fn numbered(n: u32) -> Vec<Vec<u8>> {
    (0..n).map(|event| event.to_be_bytes().to_vec()).collect()
}

fn four() -> Context {
    context(Framing::fixed(4).unwrap())
}

/// Seals `events`, serves the answer to the query `served`, and opens it as an answer to the query
/// `asked`.
fn through(
    scheme: &dyn Scheme,
    context: &Context,
    events: &[Vec<u8>],
    served: &Ask<'_>,
    asked: &Ask<'_>,
) -> Result<Vec<Row>, OpenError> {
    let sealed = scheme.seal(context, &key(), events).unwrap();
    let served =
        scheme.serve(context, &sealed, served).map_err(|Unsupported| OpenError::Unsupported)?;
    scheme.open(context, &key().public(), &served, asked)
}

fn half() -> Rate {
    Rate::new(1, 2).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn opens_everything_that_was_sealed(events in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 0..60)) {
        for scheme in schemes() {
            let rows = through(&*scheme, &context(Framing::Prefixed), &events, &Ask::All, &Ask::All).unwrap();
            let mut got: Vec<Vec<u8>> = rows.iter().map(|row| row.event.clone()).collect();
            let mut sealed = events.clone();
            if scheme.name() == PaperStar.name() {
                // The paper's star does not prove the positions of events.
                got.sort();
                sealed.sort();
            }
            prop_assert_eq!(got, sealed, "{}", scheme.name());
        }
    }

    #[test]
    fn opens_single_events(n in 1..60u32, picks: u64) {
        let events = numbered(n);
        let mut chosen: Vec<u64> = (0..u64::from(n)).filter(|seq| picks >> seq & 1 == 1).collect();
        if chosen.is_empty() {
            chosen.push(u64::from(n) - 1);
        }
        let expected: Vec<Row> =
            chosen.iter().map(|&seq| Row { seq: Some(seq), event: events[seq as usize].clone() }).collect();
        for scheme in schemes() {
            let ask = Ask::Events(&chosen);
            match through(&*scheme, &four(), &events, &ask, &ask) {
                Ok(rows) => prop_assert_eq!(&rows, &expected, "{}", scheme.name()),
                // A star can prove complete levels, but not single events.
                Err(error) => prop_assert!(error == OpenError::Unsupported && scheme.name().starts_with("star"), "{}", scheme.name()),
            }
        }
    }

    #[test]
    fn a_rate_serves_its_share_or_everything(n in 400..600u32) {
        let events = numbered(n);
        for scheme in schemes() {
            let ask = Ask::Rate(half());
            let rows = through(&*scheme, &four(), &events, &ask, &ask).unwrap();
            prop_assert!(rows.len() as u32 > n / 3 && (rows.len() as u32) < n * 2 / 3, "{}: {} of {n}", scheme.name(), rows.len());
        }
    }
}

#[test]
fn no_changed_byte_yields_a_row_that_was_not_sealed() {
    for scheme in schemes() {
        let context = four();
        // This scheme sends thousands of bytes per event, and checking them takes as many hashes.
        // Test it with fewer events and bytes.
        let long = scheme.name() == "hash chaining (on-line)";
        let (events, step): (_, usize) = if long { (numbered(2), 23) } else { (numbered(9), 1) };
        let single: &[u64] = if long { &[1] } else { &[2, 3, 7] };
        let sealed = scheme.seal(&context, &key(), &events).unwrap();
        for ask in [Ask::All, Ask::Rate(half()), Ask::Events(single)] {
            let Ok(served) = scheme.serve(&context, &sealed, &ask) else { continue };
            let whole = scheme.open(&context, &key().public(), &served, &ask).unwrap();
            for at in (0..served.len()).step_by(step) {
                for flip in [1, 0x80, 0xff] {
                    let mut changed = served.clone();
                    changed[at] ^= flip;
                    if let Ok(rows) = scheme.open(&context, &key().public(), &changed, &ask) {
                        assert_eq!(rows, whole, "{}: byte {at}", scheme.name());
                    }
                }
                if let Ok(rows) = scheme.open(&context, &key().public(), &served[..at], &ask) {
                    // Sign-each accepts any selection of its events as a complete answer; see
                    // below.
                    assert!(
                        scheme.name() == SignEach.name() && whole.starts_with(&rows),
                        "{}: cut at {at}",
                        scheme.name()
                    );
                }
            }
        }
    }
}

#[test]
fn nothing_opens_under_another_device_or_epoch() {
    for scheme in schemes() {
        let sealed = scheme.seal(&four(), &key(), &numbered(8)).unwrap();
        let served = scheme.serve(&four(), &sealed, &Ask::All).unwrap();
        for other in [
            Context { device: DeviceId([8; 8]), ..four() },
            Context { epoch: EpochNumber(4), ..four() },
        ] {
            assert!(
                scheme.open(&other, &key().public(), &served, &Ask::All).is_err(),
                "{}",
                scheme.name()
            );
        }
    }
}

#[test]
fn one_signature_covers_an_epoch_except_where_each_event_has_one() {
    for scheme in schemes() {
        let sealed = scheme.seal(&four(), &key(), &numbered(40)).unwrap();
        let expected = match scheme.name() {
            "sign-each" => 40,
            // One signature of the device, one one-time signature per event, and one for the end.
            "hash chaining (on-line)" => 42,
            _ => 1,
        };
        assert_eq!(sealed.signatures.len(), expected, "{}", scheme.name());
    }
}

#[test]
fn half_of_an_epoch_costs_as_much_as_all_without_partial_retrieval() {
    for scheme in schemes() {
        let events = numbered(4000);
        let events = if scheme.name().contains("on-line") { &events[..100] } else { &events[..] };
        let sealed = scheme.seal(&four(), &key(), events).unwrap();
        let bytes = |ask: &Ask<'_>| scheme.serve(&four(), &sealed, ask).unwrap().len() as f64;
        let share = bytes(&Ask::Rate(half())) / bytes(&Ask::All);
        let all_or_nothing = matches!(
            scheme.name(),
            "concatenate" | "hash chaining (off-line)" | "hash chaining (on-line)"
        );
        // A tree also sends digests for the omitted events, and the paper's tree also sends a
        // number for each event.
        let most = if scheme.name().starts_with("tree") { 6.0 } else { 0.55 };
        assert!(
            if all_or_nothing { share == 1.0 } else { share < most },
            "{}: {share}",
            scheme.name()
        );
    }
}

#[test]
fn only_sign_each_accepts_a_choice_in_the_clouds_favour() {
    // The cloud withholds the second half of the events and serves the first half as if it were a
    // random half.
    let events = numbered(200);
    let selected: Vec<u64> = (0..100).collect();
    let biased = |scheme: &dyn Scheme| {
        through(scheme, &four(), &events, &Ask::Events(&selected), &Ask::Rate(half()))
    };

    assert_eq!(biased(&SignEach).unwrap().len(), 100, "sign-each does not detect it");
    assert_eq!(
        biased(&OfflineChain),
        Err(OpenError::NotAsAsked),
        "an off-line chain detects that it ends early"
    );
    assert_eq!(biased(&EpochSeal::TREE), Err(OpenError::NotAsAsked));
}

#[test]
fn sign_each_does_not_detect_a_missing_event() {
    let sealed = SignEach.seal(&four(), &key(), &numbered(10)).unwrap();
    let served = SignEach.serve(&four(), &sealed, &Ask::All).unwrap();
    let one = served.len() / 10;
    let rows = SignEach.open(&four(), &key().public(), &served[..7 * one], &Ask::All).unwrap();
    assert_eq!(rows.len(), 7);
}

#[test]
fn a_chain_without_one_of_its_events_is_not_authentic() {
    let chain = OfflineChain;
    let sealed = chain.seal(&four(), &key(), &numbered(10)).unwrap();
    let served = chain.serve(&four(), &sealed, &Ask::All).unwrap();
    for missing in 0..10usize {
        let mut sampled = served.clone();
        sampled.drain(4 + 4 * missing..8 + 4 * missing);
        sampled[..4].copy_from_slice(&9u32.to_be_bytes());
        assert_eq!(
            chain.open(&four(), &key().public(), &sampled, &Ask::All),
            Err(OpenError::NotAuthentic),
            "without event {missing}"
        );
    }
}

#[test]
fn content_levels_put_equal_readings_into_one_block() {
    // A thermometer has the same reading all day. A sample at rate 1/2 from the paper's star then
    // has all events or no event.
    let constant = vec![b"21.5".to_vec(); 300];
    let ask = Ask::Rate(half());
    let paper = through(&PaperStar, &four(), &constant, &ask, &ask).unwrap().len();
    assert!(paper == 0 || paper == 300, "{paper} of 300");
    let salted = through(&EpochSeal::STAR, &four(), &constant, &ask, &ask).unwrap().len();
    assert!((110..190).contains(&salted), "{salted} of 300");
}

#[test]
fn the_content_of_a_reading_determines_its_paper_level() {
    // Among readings that differ only in their last digits, an adversary can find one that is in
    // every sample and one that is in no sample.
    let level = |reading: u32| moteseal_research::content_levels::level(&reading.to_be_bytes());
    assert!((21_500..21_600).any(|reading| level(reading) == 0), "only in the complete epoch");
    assert!((21_500..22_500).any(|reading| level(reading) >= 8), "in every sample down to 1/256");
}

#[test]
fn the_papers_tree_does_not_detect_a_missing_event_of_a_level() {
    let events = numbered(200);
    let sealed = PaperTree.seal(&four(), &key(), &events).unwrap();
    let ask = Ask::Rate(half());
    let fair = through(&PaperTree, &four(), &events, &ask, &ask).unwrap();
    let selected: Vec<u64> =
        fair.iter().map(|row| row.seq.unwrap()).filter(|&seq| seq < 100).collect();
    let served = PaperTree.serve(&four(), &sealed, &Ask::Events(&selected)).unwrap();
    let rows = PaperTree.open(&four(), &key().public(), &served, &ask).unwrap();
    assert!(
        rows.len() < fair.len() * 2 / 3,
        "{} of {} events are accepted as the complete level",
        rows.len(),
        fair.len()
    );
}

#[test]
fn the_papers_tree_accepts_an_inner_node_as_an_event() {
    use moteseal_core::Digest;
    // An epoch has four events. The cloud claims that it has two events of 64 bytes, which are the
    // inputs to the hashes of the inner nodes.
    let context = context(Framing::Prefixed);
    let events = numbered(4);
    let sealed = PaperTree.seal(&context, &key(), &events).unwrap();
    let leaf = |at: usize| Digest::of(&[&events[at]]).0;
    let mut served = [2u32.to_be_bytes(), 2u32.to_be_bytes()].concat();
    for at in 0..2 {
        served.extend((at as u32).to_be_bytes());
        served.extend(64u16.to_be_bytes());
        served.extend([leaf(2 * at), leaf(2 * at + 1)].concat());
    }
    served.extend(&sealed.signatures[0]);
    let rows = PaperTree.open(&context, &key().public(), &served, &Ask::All).unwrap();
    assert_eq!(rows.len(), 2, "two events that no device has sealed");
    assert_eq!(rows[0].event.len(), 64);
}

#[test]
fn the_papers_step_is_a_chain_of_digests() {
    use moteseal_core::Digest;
    use moteseal_research::RunningStar;
    let mut star = RunningStar::new();
    let mut blocks = vec![Digest::NULL; 16];
    for event in numbered(500) {
        let level = star.push(&event);
        let inner = Digest::of(&[&event]).0;
        blocks[usize::from(level)] = Digest::of(&[&[inner, blocks[usize::from(level)].0].concat()]);
    }
    let mut joined = Vec::new();
    for (level, digest) in (0..16u8).zip(&blocks) {
        joined.push(level);
        joined.extend(digest.0);
    }
    assert_eq!(star.root(), Digest::of(&[&joined]));
}

#[test]
fn only_concatenate_the_offline_chain_and_the_papers_tree_need_memory_that_grows() {
    for scheme in schemes() {
        let grows = scheme.device_state(1_000_000, 4) > scheme.device_state(10, 4);
        let expected =
            matches!(scheme.name(), "concatenate" | "hash chaining (off-line)" | "tree (paper)");
        assert_eq!(grows, expected, "{}", scheme.name());
    }
}
