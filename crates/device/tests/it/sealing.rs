//! Tests that the seals of a host are the same as those of a mote, and that they verify: stars and
//! trees, with fixed records and with opaque payloads.

use moteseal_core::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Framing, SealIndex, Sequence};
use moteseal_core::schema::{Field, FieldType, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_device::{Bundle, Chain, Profile, SealRefused, Sealer};
use moteseal_seal::follow::Limits;
use moteseal_seal::level::SaltKey;
use moteseal_seal::tree::Tree;
use moteseal_seal::{Star, star};
use moteseal_verify::issue::FirstRoster;
use moteseal_verify::{Event, ReadError, Roster, StreamReader};
use proptest::prelude::*;

const LEVELS: u8 = 8;

fn secret() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap()
}

fn roster() -> Roster {
    let operator = SecretKey::from_seed(Algorithm::Esp256, &[9; 32]).unwrap();
    let devices = [("dev1", secret().public()), ("dev2", secret().public())];
    let first = FirstRoster {
        group: "home",
        epoch_ms: 1000,
        levels: LEVELS,
        budget: None,
        devices: &devices,
    };
    Roster::open(&first.issue(&operator).unwrap(), &operator.public()).unwrap()
}

fn salt_key() -> SaltKey {
    SaltKey::new([2; 32])
}

fn profile(scheme: Scheme, record: Option<usize>) -> Profile {
    let mut buffer = [0; MAX_SCHEMA];
    let schema = match record {
        None => Schema::OPAQUE,
        Some(size) => {
            let names: Vec<String> = (0..size).map(|i| format!("b{i}")).collect();
            let fields: Vec<Field<'_>> =
                names.iter().map(|name| Field::new(name, "", FieldType::U8)).collect();
            Schema::encode(&fields, &mut buffer).unwrap()
        }
    };
    Profile::new(&roster(), "dev1", scheme, &schema).unwrap()
}

fn sealer(profile: Profile) -> Sealer<SecretKey> {
    let chain = Chain::start(profile.certificate);
    Sealer::new(profile, secret(), salt_key(), chain)
}

/// Returns the index, the sequence number and the record of every event that a stream proves.
fn read(bytes: &[u8]) -> Result<Vec<(u32, u64, Vec<u8>)>, ReadError> {
    let roster = roster();
    let mut rows = Vec::new();
    let mut reader = StreamReader::new(&roster, Limits::default());
    let mut visit = |event: Event<'_>| {
        let Event::Proven(proven) = event else { panic!("{event:?}") };
        let index = proven.seal.statement().index.0;
        proven.sample.for_each(&moteseal_seal::engine::Scalar, |seq, _, record| {
            rows.push((index, seq.0, record.to_vec()));
        });
        Ok::<(), ReadError>(())
    };
    reader.feed(bytes, &mut visit)?;
    reader.finish(&mut visit)?;
    Ok(rows)
}

fn seal(profile: &Profile, epochs: &[Vec<Vec<u8>>]) -> Vec<Bundle> {
    let mut sealer = sealer(profile.clone());
    let mut bundles = Vec::new();
    for (epoch, records) in (3..).step_by(2).zip(epochs) {
        for record in records {
            bundles.extend(sealer.push(EpochNumber(epoch), record).unwrap());
        }
    }
    bundles.extend(sealer.close(true).unwrap());
    bundles
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn sealed_readings_verify(
        tree: bool,
        opaque: bool,
        max_events in 1..90u32,
        epochs in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 5..=5), 0..200), 1..4),
    ) {
        let scheme = if tree { Scheme::Tree } else { Scheme::Star };
        let profile = Profile { max_events, ..profile(scheme, (!opaque).then_some(5)) };
        let bundles = seal(&profile, &epochs);
        let stream: Vec<u8> = bundles.iter().flat_map(|bundle| bundle.bytes.clone()).collect();
        let rows = read(&stream).unwrap();
        let records: Vec<Vec<u8>> = rows.iter().map(|(.., record)| record.clone()).collect();
        prop_assert_eq!(records, epochs.concat());
        for bundle in &bundles {
            prop_assert!(bundle.events() > 0 && bundle.events() <= u64::from(max_events));
        }
        // Each seal names its predecessor, and only the last seal of an epoch closes the epoch.
        for pair in bundles.windows(2) {
            prop_assert_eq!(pair[1].seal.statement().prev, pair[0].seal.digest());
            prop_assert_eq!(pair[0].seal.statement().last_in_epoch, pair[1].epoch() > pair[0].epoch());
        }
        prop_assert!(bundles.last().is_none_or(|last| last.seal.statement().last_in_epoch));
    }

    #[test]
    fn a_host_seals_as_a_mote_does(records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 0..300)) {
        let bundle = |scheme| seal(&profile(scheme, None), std::slice::from_ref(&records)).pop();
        let (device, index) = (DeviceId::of("home", "dev1"), SealIndex(0));
        let salt = salt_key().salt(device, index);
        let mut running = Star::<{ LEVELS as usize }>::new(device, index, &salt, Framing::Prefixed);
        let mut tree = Tree::<12>::new();
        for record in &records {
            running.push(record).unwrap();
            tree.push(record).unwrap();
        }
        let (counters, digests) = running.close();
        if let (Some(of_star), Some(of_tree)) = (bundle(Scheme::Star), bundle(Scheme::Tree)) {
            prop_assert_eq!(&of_star.blocks, &digests.to_vec());
            prop_assert_eq!(*of_star.seal.root(), star::root(&counters, &digests));
            prop_assert_eq!(of_star.seal.statement().counters, counters);
            prop_assert_eq!(*of_tree.seal.root(), tree.root());
        } else {
            prop_assert!(records.is_empty());
        }
    }
}

#[test]
fn an_epoch_without_readings_can_be_sealed() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let mut sealer = sealer(profile(scheme, Some(4)));
        assert!(sealer.begin(EpochNumber(7)).unwrap().is_none());
        let bundle = sealer.close(true).unwrap().unwrap();
        assert_eq!((bundle.events(), read(&bundle.bytes).unwrap().len()), (0, 0));
    }
}

#[test]
fn an_index_that_was_opened_and_never_signed_is_a_restart() {
    let profile = profile(Scheme::Star, Some(1));
    let mut first = sealer(profile.clone());
    first.push(EpochNumber(4), &[1]).unwrap();
    let sealed = first.push(EpochNumber(5), &[2]).unwrap().unwrap();
    // Simulate a power failure after the device has persisted that index 1 is opened for epoch 5.
    let chain = first.chain();
    assert_eq!(
        (chain.next_index, chain.epoch, chain.restarted()),
        (SealIndex(2), Some(EpochNumber(5)), true)
    );
    let mut second = Sealer::new(profile, secret(), salt_key(), chain);
    let goes_back = SealRefused::EpochGoesBack { epoch: EpochNumber(4), after: EpochNumber(5) };
    assert_eq!(second.push(EpochNumber(4), &[3]).unwrap_err(), goes_back);
    second.push(EpochNumber(5), &[3]).unwrap();
    let resumed = second.close(true).unwrap().unwrap();
    let statement = resumed.seal.statement();
    assert!(statement.restart);
    assert_eq!(
        (statement.index, statement.last),
        (SealIndex(2), Some((SealIndex(0), EpochNumber(4))))
    );
    assert!(!resumed.chain.restarted());
    let rows = read(&[sealed.bytes, resumed.bytes].concat()).unwrap();
    assert_eq!(rows, [(0, 0, vec![1]), (2, 0, vec![3])]);
}

#[test]
fn a_rejected_reading_changes_nothing() {
    let mut sealer = sealer(Profile {
        epochs: (EpochNumber(2), Some(EpochNumber(9))),
        ..profile(Scheme::Tree, Some(1))
    });
    sealer.push(EpochNumber(5), &[1]).unwrap();
    let chain = sealer.chain();
    assert_eq!(
        sealer.push(EpochNumber(10), &[1]).unwrap_err(),
        SealRefused::EpochOutOfRange { epoch: EpochNumber(10) }
    );
    assert_eq!(sealer.push(EpochNumber(4), &[1]).unwrap_err().name(), "EpochGoesBack");
    assert_eq!(
        sealer.push(EpochNumber(6), &[1, 2]).unwrap_err(),
        SealRefused::WrongLength { length: 2 }
    );
    assert_eq!(sealer.chain(), chain);
    let bundle = sealer.close(true).unwrap().unwrap();
    assert_eq!(read(&bundle.bytes).unwrap(), [(0, 0, vec![1])]);
    assert_eq!(
        sealer.push(EpochNumber(5), &[1]).unwrap_err(),
        SealRefused::EpochClosed { epoch: EpochNumber(5) }
    );
}

#[test]
fn an_open_epoch_continues_under_the_next_index() {
    let mut sealer = sealer(profile(Scheme::Star, Some(1)));
    sealer.push(EpochNumber(5), &[1]).unwrap();
    let first = sealer.close(false).unwrap().unwrap();
    sealer.push(EpochNumber(5), &[2]).unwrap();
    let second = sealer.close(true).unwrap().unwrap();
    assert!(!second.seal.statement().restart);
    assert_eq!(
        read(&[first.bytes, second.bytes].concat()).unwrap(),
        [(0, 0, vec![1]), (1, 0, vec![2])]
    );
}

#[test]
fn a_seal_of_298_events_adds_at_most_128_bytes() {
    let profile = profile(Scheme::Star, Some(4));
    let records: Vec<Vec<u8>> = (0..298u32).map(|i| i.to_be_bytes().to_vec()).collect();
    let bundles = seal(&profile, &[records.clone(), records]);
    assert!(bundles[1].uplink_overhead() <= 128, "{}", bundles[1].uplink_overhead());
    assert_eq!(bundles[1].seal.statement().salt.level(Sequence(0), 1).0, 0);
    assert_ne!(bundles[0].seal.digest(), Digest::NULL);
}
