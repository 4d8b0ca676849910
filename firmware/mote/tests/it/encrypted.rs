//! Tests a mote that encrypts columns: a holder of the stream secret reads exactly what it sensed, no
//! key stream is used twice, and its flash opens no earlier epoch, whenever the power fails.

use std::collections::{BTreeSet, HashSet};

use moteseal_core::confidential::{EncryptedColumns, KeyStream, Path, StreamSecret};
use moteseal_core::provision::{GivenKeys, encode_keys};
use moteseal_core::record::{EpochNumber, Scheme, SealIndex, Sequence};
use moteseal_core::schema::{Field, Schema};
use moteseal_mote::column_keys::{ColumnKeys, SealKeys as _};
use moteseal_mote::durable::{Durable, Settings};
use moteseal_mote::readings::Recording;
use moteseal_mote::{Fault, Mote};

use crate::faulty_flash::{Chance, Simulated};
use crate::whole_mote::{
    BUFFER, CERTIFICATE, COUNT, Coordinator, DEVICE, coordinator, provisioning, run,
};

const BASE: EpochNumber = EpochNumber(2);
/// The random bytes of a provisioning.
const NONCE_BASE: [u8; 12] = [0xa5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
const COLUMNS: [&str; 3] = ["one::u8!", "plain::u8", "two::u16!aes"];
/// Columns of two groups.
const GROUPED: [&str; 3] = ["one::u8!@1", "plain::u8", "two::u16!aes"];
/// The first epoch of the recording, and the last one: a reading a second for 15 minutes.
const EPOCHS: (u64, u64) = (5, 20);

/// The region after a provisioning blob.
type Provision = Simulated<4>;

fn schema<'b>(columns: &[&str], buffer: &'b mut [u8]) -> Schema<'b> {
    let fields: Vec<_> = columns.iter().map(|column| Field::parse(column).unwrap()).collect();
    Schema::encode(&fields, buffer).unwrap()
}

fn secret(byte: u8) -> StreamSecret {
    StreamSecret::new([byte; 32], BASE)
}

fn paths(schema: &Schema<'_>, secret: &StreamSecret, epoch: EpochNumber) -> Vec<Path> {
    let columns = schema.encrypted_columns();
    columns.map(|(_, column)| Path::new(&secret.column(column), epoch).unwrap()).collect()
}

/// Returns a region with keys, followed by erased flash.
fn given(paths: &[Path]) -> Provision {
    given_with(&NONCE_BASE, paths)
}

fn given_with(nonce_base: &[u8; 12], paths: &[Path]) -> Provision {
    let mut provision = Provision::pages(1024);
    encode_keys(nonce_base, paths, &mut provision.bytes).unwrap();
    provision
}

fn table() -> Vec<u8> {
    (0..COUNT).flat_map(|reading| (reading * 3 + 1).to_be_bytes()).collect()
}

/// Runs a mote with these columns whose power fails often. Returns the coordinator, the pages with the
/// keys, and the region for provisioning.
fn simulate(
    columns: &[&str],
    seed: u64,
    scheme: Scheme,
    cuts: u64,
) -> (Coordinator, Simulated, Provision) {
    simulate_with(&NONCE_BASE, columns, seed, scheme, cuts)
}

fn simulate_with(
    nonce_base: &[u8; 12],
    columns: &[&str],
    seed: u64,
    scheme: Scheme,
    cuts: u64,
) -> (Coordinator, Simulated, Provision) {
    let mut chance = Chance(seed);
    let mut buffer = [0; 256];
    let schema = schema(columns, &mut buffer);
    let provisioning = provisioning(schema.as_bytes(), scheme);
    let table = table();
    let settings = Settings { interval_ms: 1, led: false, scheme };
    let (mut coordinator, mut now_ms) = (coordinator(&schema), 0);
    let (mut flash, mut pages) = (Simulated::new(), Simulated::new());
    let mut provision = given_with(nonce_base, &paths(&schema, &secret(1), BASE));
    for _ in 0..5_000 {
        flash = flash.repowered();
        pages = pages.repowered().powered_as(&flash);
        provision = provision.repowered().powered_as(&flash);
        flash.fuse.set((chance.below(1000) < cuts).then(|| chance.below(1200)));
        let Ok(mut durable) = Durable::open(&mut flash, DEVICE, CERTIFICATE, settings) else {
            continue;
        };
        let Ok(mut keys) = ColumnKeys::open(&mut pages, &mut provision, &schema) else { continue };
        let recording = Recording::new(&table, 4, provisioning.window).unwrap();
        let mut mote = Mote::<_, _, 8, BUFFER>::new(&provisioning, &mut durable, None, recording);
        mote.encrypt_with(&mut keys);
        let _ = mote.start(now_ms, &mut |_| ());
        let ended =
            run(&mut mote, &mut coordinator, &mut chance, &|_| 5, &mut now_ms, &mut |mote, _| {
                mote.is_done()
            });
        if ended {
            return (coordinator, pages, provision);
        }
    }
    panic!("the mote is never done");
}

/// Decrypts what the coordinator has, in the order in which it was sealed.
fn decrypted(coordinator: &Coordinator, columns: &[&str]) -> Vec<u8> {
    let mut buffer = [0; 256];
    let schema = schema(columns, &mut buffer);
    let columns = EncryptedColumns::of(&schema);
    let mut plain = Vec::new();
    for (index, taken) in &coordinator.sealed {
        let keys = taken.keys.unwrap();
        let commitments = keys.commitments();
        let of_columns = schema.encrypted_columns().zip(commitments);
        let mut streams: Vec<_> = of_columns
            .map(|((field, column), commitment)| {
                let root = secret(1).column(column);
                let key = root.epoch_key(EpochNumber(taken.epoch)).unwrap();
                let suite = field.suite.unwrap();
                let key = key.seal_key(DEVICE, SealIndex(*index), suite, &keys.nonce());
                key.check(commitment).unwrap();
                Some(KeyStream::new(key))
            })
            .collect();
        for (seq, record) in &taken.records {
            let mut record = *record;
            columns.decrypt(Sequence(*seq), &mut record, &mut streams).unwrap();
            plain.extend(record);
        }
    }
    plain
}

#[test]
fn the_owner_reads_what_was_sensed_and_the_flash_opens_no_earlier_epoch() {
    let mut buffer = [0; 256];
    let schema = schema(&COLUMNS, &mut buffer);
    for scheme in [Scheme::Star, Scheme::Tree] {
        for seed in 0..8 {
            let (coordinator, pages, provision) = simulate(&COLUMNS, seed, scheme, 1000);
            let sensed = table();
            assert!(decrypted(&coordinator, &COLUMNS) == sensed, "{scheme:?} {seed}");
            // The plain column is in the clear; the others are not.
            let sent: Vec<u8> = coordinator
                .sealed
                .values()
                .flat_map(|of| of.records.values().flatten())
                .copied()
                .collect();
            let equal = |place: usize| {
                let pairs = sent.chunks(4).zip(sensed.chunks(4));
                pairs.filter(|(sent, plain)| sent[place] == plain[place]).count()
            };
            assert_eq!(equal(1), COUNT as usize);
            assert!((0..4).all(|place| place == 1 || equal(place) < 40), "{scheme:?} {seed}");
            // No nonce occurs twice.
            let seals = coordinator.sealed.values();
            let nonces: BTreeSet<_> = seals.map(|of| of.keys.unwrap().nonce().0).collect();
            assert_eq!(nonces.len(), coordinator.sealed.len());
            // The key stream of a seal is repeated if another seal has its key, so no two commitments
            // are equal either.
            let keys = coordinator.sealed.values().map(|of| of.keys.unwrap());
            let commitments: Vec<_> = keys.flat_map(|keys| keys.commitments().to_vec()).collect();
            assert_eq!(commitments.iter().collect::<HashSet<_>>().len(), commitments.len());

            let has = |bytes: &[u8], key: &[u8; 32]| bytes.windows(32).any(|window| window == key);
            for (_, column) in schema.encrypted_columns() {
                let root = secret(1).column(column);
                let newest = Path::new(&root, EpochNumber(EPOCHS.1 - 1)).unwrap();
                for epoch in BASE.0..EPOCHS.1 {
                    let key = root.epoch_key(EpochNumber(epoch)).unwrap().expose();
                    assert_eq!(has(&pages.bytes, &key), epoch == EPOCHS.1 - 1, "{epoch}");
                    assert!(!has(&provision.bytes, &key));
                }
                for node in newest.nodes() {
                    assert!(
                        has(&pages.bytes, node.expose()) && !has(&provision.bytes, node.expose())
                    );
                }
            }
            assert!(GivenKeys::read(&provision.bytes).is_none());
        }
    }
}

#[test]
fn without_faults_each_epoch_is_one_seal_with_the_nonce_of_its_start_and_index() {
    let (coordinator, ..) = simulate(&COLUMNS, 1, Scheme::Star, 0);
    assert_eq!(coordinator.sealed.len(), 15);
    for (index, taken) in &coordinator.sealed {
        let [a, b, c, d] = index.to_be_bytes();
        let place = [0, 0, 0, 1, a, b, c, d, 0, 0, 0, 0];
        let nonce: Vec<u8> =
            place.iter().zip(NONCE_BASE).map(|(place, base)| place ^ base).collect();
        assert_eq!(taken.keys.unwrap().nonce().0[..], nonce);
        assert!(!taken.restart);
    }
}

/// The coordinator computes each seal as a device on a host does, from whole blocks, and verifies the
/// mote's signature over it.
#[test]
fn seals_of_column_groups_are_those_of_a_host() {
    for (seed, cuts) in [(1, 0), (2, 1000), (3, 1000)] {
        let (coordinator, ..) = simulate(&GROUPED, seed, Scheme::Star, cuts);
        assert!(coordinator.sealed.len() >= 15);
        assert!(decrypted(&coordinator, &GROUPED) == table(), "{seed}");
    }
}

#[test]
fn a_mote_with_column_groups_seals_stars_after_a_command_for_trees() {
    let mut buffer = [0; 256];
    let schema = schema(&GROUPED, &mut buffer);
    let provisioning = provisioning(schema.as_bytes(), Scheme::Star);
    let settings = Settings { interval_ms: 0, led: false, scheme: Scheme::Tree };
    let mut flash = Simulated::new();
    let mut durable = Durable::open(&mut flash, DEVICE, CERTIFICATE, settings).unwrap();
    let mut keys = given(&paths(&schema, &secret(1), BASE));
    let mut keys = ColumnKeys::open(Simulated::<4096>::new(), &mut keys, &schema).unwrap();
    let table = table();
    let recording = Recording::new(&table, 4, provisioning.window).unwrap();
    let mut mote = Mote::<_, _, 8, BUFFER>::new(&provisioning, &mut durable, None, recording);
    mote.encrypt_with(&mut keys);
    mote.start(0, &mut |_| ()).unwrap();
    assert_eq!(mote.scheme(), Scheme::Star);
    assert_eq!(mote.settings().scheme, Scheme::Tree);
}

/// An erased mote counts its starts and its seals from the beginning again, in the same epochs.
#[test]
fn an_erased_mote_that_is_provisioned_anew_uses_no_key_a_second_time() {
    let mut other = NONCE_BASE;
    other[11] ^= 1;
    let [first, second, again] = [NONCE_BASE, other, NONCE_BASE].map(|base| {
        let (coordinator, ..) = simulate_with(&base, &COLUMNS, 1, Scheme::Star, 0);
        assert!(decrypted(&coordinator, &COLUMNS) == table());
        let seals = coordinator.sealed.iter();
        let nonces = seals.map(|(index, of)| (*index, of.epoch, of.keys.unwrap().nonce().0));
        nonces.collect::<BTreeSet<_>>()
    });
    assert!(first.len() == 15 && first.is_disjoint(&second));
    // The exception: the same blob is written to the erased mote.
    assert_eq!(first, again);
}

#[test]
fn a_schema_with_encrypted_columns_needs_their_keys() {
    let settings = Settings { interval_ms: 0, led: false, scheme: Scheme::Star };
    let mut buffer = [0; 256];
    let schema = schema(&COLUMNS, &mut buffer);
    let provisioning = provisioning(schema.as_bytes(), Scheme::Star);
    let mut flash = Simulated::new();
    let mut durable = Durable::open(&mut flash, DEVICE, CERTIFICATE, settings).unwrap();
    let table = table();
    let recording = Recording::new(&table, 4, provisioning.window).unwrap();
    let mut mote = Mote::<_, _, 8, BUFFER>::new(&provisioning, &mut durable, None, recording);
    assert_eq!(mote.start(0, &mut |_| ()), Err(Fault::NoKeys));
    assert_eq!(Fault::NoKeys.name(), "NoStreamSecret");

    let open = |columns: &[&str], provision: &mut Provision| {
        let mut buffer = [0; 512];
        let schema = self::schema(columns, &mut buffer);
        ColumnKeys::open(Simulated::<4096>::new(), provision, &schema).map(drop)
    };
    assert_eq!(open(&COLUMNS, &mut Provision::pages(1024)), Err(Fault::NoKeys));
    let keys = paths(&schema, &secret(1), BASE);
    assert_eq!(open(&COLUMNS, &mut given(&keys[..1])), Err(Fault::NoKeys));
    assert_eq!(open(&["one::u8!"], &mut given(&keys)), Err(Fault::NoKeys));
    assert_eq!(open(&["a::u8!", "b::u8!", "c::u8!"], &mut given(&keys)), Err(Fault::Schema));
    assert_eq!(open(&["note::text20!"], &mut given(&keys)), Err(Fault::Schema));
    let mut damaged = given(&keys);
    damaged.bytes[40] ^= 1;
    assert_eq!(open(&COLUMNS, &mut damaged), Err(Fault::NoKeys));
    assert_eq!(open(&COLUMNS, &mut given(&keys)), Ok(()));
}

#[test]
fn keys_are_moved_once_and_a_new_secret_replaces_them() {
    let mut buffer = [0; 256];
    let schema = schema(&COLUMNS, &mut buffer);
    let blank = |provision: &Provision, length: usize| {
        provision.bytes[..length].iter().all(|byte| *byte == 0)
            && provision.bytes[length..].iter().all(|byte| *byte == 0xff)
    };
    let of = |byte, epoch| given(&paths(&schema, &secret(byte), EpochNumber(epoch)));
    let length = |provision: &Provision| GivenKeys::read(&provision.bytes).unwrap().length;
    let mut pages = Simulated::new();
    let mut provision = of(1, 4);
    let erased = length(&provision);
    let mut keys = ColumnKeys::open(&mut pages, &mut provision, &schema).unwrap();
    assert!(blank(&provision, erased));
    assert_eq!(keys.epochs(), (EpochNumber(4), EpochNumber(2 + u64::from(u32::MAX))));
    keys.advance(EpochNumber(9)).unwrap();
    assert_eq!(keys.advance(EpochNumber(8)), Err(Fault::NoKeys));
    drop(keys);
    // The same stream again, from an earlier or a later epoch: the mote keeps what it has.
    for epoch in [4, 9, 12] {
        let mut provision = of(1, epoch);
        let keys = ColumnKeys::open(&mut pages, &mut provision, &schema).unwrap();
        assert_eq!(keys.epochs().0, EpochNumber(9), "{epoch}");
        assert!(GivenKeys::read(&provision.bytes).is_none());
    }
    // A new nonce base is stored also if the stream is the same.
    let seal = (DEVICE, SealIndex(3));
    for base in [[7; 12], NONCE_BASE] {
        let mut provision = given_with(&base, &paths(&schema, &secret(1), EpochNumber(4)));
        drop(ColumnKeys::open(&mut pages, &mut provision, &schema).unwrap());
        let mut none = Provision::pages(1024);
        let keys = ColumnKeys::open(&mut pages, &mut none, &schema).unwrap();
        assert_eq!(keys.epochs().0, EpochNumber(9));
        let nonce = keys.encryption(schema.as_bytes(), seal, 0).unwrap().commitments().nonce();
        assert_eq!(nonce.0[8..], base[8..]);
    }
    let writes = pages.writes.get();
    ColumnKeys::open(&mut pages, &mut Provision::pages(1024), &schema).unwrap();
    assert_eq!(pages.writes.get(), writes);
    // Another secret.
    let keys = ColumnKeys::open(&mut pages, &mut of(2, 6), &schema).unwrap();
    assert_eq!(keys.epochs().0, EpochNumber(6));
    let commitments = keys.encryption(schema.as_bytes(), seal, 7).unwrap().commitments();
    for ((field, column), commitment) in schema.encrypted_columns().zip(commitments.commitments()) {
        let key = secret(2).column(column).epoch_key(EpochNumber(6)).unwrap();
        let key = key.seal_key(seal.0, seal.1, field.suite.unwrap(), &commitments.nonce());
        assert_eq!(key.check(commitment), Ok(()));
    }
}

#[test]
fn an_interrupted_move_is_continued() {
    let mut buffer = [0; 256];
    let schema = schema(&COLUMNS, &mut buffer);
    let whole = given(&paths(&schema, &secret(1), BASE));
    let mut ended = 0;
    for words in 0..2_000 {
        let pages = Simulated::<4096>::new();
        let mut provision = whole.repowered().powered_as(&pages);
        pages.fuse.set(Some(words));
        let mut pages_again = pages.clone();
        ended += u32::from(ColumnKeys::open(&mut pages_again, &mut provision, &schema).is_ok());
        let mut pages = pages_again.repowered();
        let mut provision = provision.repowered();
        let keys = ColumnKeys::open(&mut pages, &mut provision, &schema)
            .unwrap_or_else(|fault| panic!("{words}: {fault:?}"));
        assert_eq!(keys.epochs().0, BASE, "{words}");
        // Some bits of the last word, the magic bytes, may be left.
        assert!(provision.bytes[4..].iter().all(|byte| matches!(byte, 0 | 0xff)), "{words}");
        assert!(GivenKeys::read(&provision.bytes).is_none(), "{words}");
    }
    assert!((1..1_900).contains(&ended), "{ended}");
}
