//! The keys of confidential readings, compared with a recursive oracle and an HMAC of its own.

use std::collections::HashSet;

use moteseal_core::confidential::{
    ColumnId, Commitment, DEPTH, Node, Nodes, Nonce, PATH, Path, StreamSecret, Suite,
};
use moteseal_core::{DeviceId, Digest, EpochNumber, SealIndex};
use proptest::prelude::*;

const BASE: u64 = 1000;
const COLUMN: ColumnId = ColumnId([0x0c; 16]);
const DEVICE: DeviceId = DeviceId([0xde; 8]);

fn secret() -> StreamSecret {
    StreamSecret::new([7; 32], EpochNumber(BASE))
}

fn epoch(offset: u32) -> EpochNumber {
    EpochNumber(BASE + u64::from(offset))
}

fn nonce() -> Nonce {
    Nonce(*b"twelve bytes")
}

/// HMAC-SHA256 (RFC 2104) from the hash function.
fn hmac(key: &[u8; 32], message: &[u8]) -> [u8; 32] {
    let pad = |byte: u8| -> Vec<u8> { key.iter().chain(&[0; 32]).map(|key| key ^ byte).collect() };
    Digest::of(&[&pad(0x5c), &Digest::of(&[&pad(0x36), message]).0]).0
}

/// The key of the node whose path from the root is `path`, a text of zeros and ones.
fn oracle(path: &str) -> [u8; 32] {
    match path.char_indices().next_back() {
        None => hmac(&[7; 32], &[b"moteseal/1/column\0", &COLUMN.0[..]].concat()),
        Some((at, bit)) => {
            let bit = u8::from(bit == '1');
            hmac(&oracle(&path[..at]), &[b"moteseal/1/node\0", &[bit][..]].concat())
        }
    }
}

fn leaf(offset: u32) -> [u8; 32] {
    oracle(&format!("{offset:032b}"))
}

/// The epochs of a node, counted one by one.
fn below(node: &Node) -> Vec<u32> {
    node.offsets().collect()
}

#[test]
fn a_leaf_is_the_chain_of_hmacs_along_the_bits_of_its_offset() {
    let root = secret().column(COLUMN);
    for offset in [0, 1, 2, 3, 0x5555_5555, 0xaaaa_aaaa, 1 << 31, u32::MAX] {
        assert_eq!(*root.epoch_key(epoch(offset)).unwrap().expose(), leaf(offset));
    }
}

#[test]
fn a_seal_key_binds_the_device_the_place_the_column_the_suite_and_the_nonce() {
    let message = [
        b"moteseal/1/seal\0",
        &DEVICE.0[..],
        &(BASE + 5).to_be_bytes(),
        &9_u32.to_be_bytes(),
        &COLUMN.0,
        &[2],
        b"twelve bytes",
    ];
    let key = secret().column(COLUMN).epoch_key(epoch(5)).unwrap();
    let key = key.seal_key(DEVICE, SealIndex(9), Suite::Aes128Ctr, &nonce());
    assert_eq!(*key.expose(), hmac(&leaf(5), &message.concat()));
    let commitment = Digest::of(&[b"moteseal/1/commit\0", key.expose()]);
    assert_eq!(key.commitment().0, commitment.0[..16]);
}

#[test]
fn a_column_id_is_a_short_digest_of_the_encoded_field() {
    let expected = Digest::of(&[b"moteseal/2/column\0field"]);
    assert_eq!(ColumnId::of(b"field").0, expected.0[..16]);
}

#[test]
fn the_next_secret_is_derived_and_has_the_same_base() {
    let next = secret().next();
    assert_eq!(*next.expose(), hmac(&[7; 32], b"moteseal/2/next\0"));
    assert_eq!(next.base(), EpochNumber(BASE));
}

#[test]
fn every_changed_input_gives_another_seal_key_and_a_wrong_key_is_refused() {
    let root = secret().column(COLUMN);
    let key = |offset, device, index, suite, nonce: [u8; 12]| {
        let key = root.epoch_key(epoch(offset)).unwrap();
        key.seal_key(device, SealIndex(index), suite, &Nonce(nonce))
    };
    let right = key(5, DEVICE, 9, Suite::ChaCha20, [1; 12]);
    let other_column = secret().column(ColumnId([0x0d; 16])).epoch_key(epoch(5)).unwrap();
    let wrong = [
        key(6, DEVICE, 9, Suite::ChaCha20, [1; 12]),
        key(5, DeviceId([0xdf; 8]), 9, Suite::ChaCha20, [1; 12]),
        key(5, DEVICE, 10, Suite::ChaCha20, [1; 12]),
        key(5, DEVICE, 9, Suite::Aes128Ctr, [1; 12]),
        key(5, DEVICE, 9, Suite::ChaCha20, [2; 12]),
        other_column.seal_key(DEVICE, SealIndex(9), Suite::ChaCha20, &Nonce([1; 12])),
    ];
    assert_eq!(right.check(&right.commitment()), Ok(()));
    for wrong in wrong {
        assert_eq!(wrong.check(&right.commitment()).unwrap_err().name(), "WrongKey");
    }
    for at in 0..16 {
        let Commitment(mut altered) = right.commitment();
        altered[at] ^= 1;
        assert!(right.check(&Commitment(altered)).is_err());
    }
}

#[test]
fn epochs_outside_the_range_are_refused() {
    let root = secret().column(COLUMN);
    for outside in [0, BASE - 1, BASE + (1 << 32), u64::MAX] {
        let error = root.epoch_key(EpochNumber(outside)).unwrap_err();
        assert_eq!(error.name(), "EpochOutOfKeyRange");
        assert!(Path::new(&root, EpochNumber(outside)).is_err());
    }
    assert!(root.epoch_key(EpochNumber(BASE + u64::from(u32::MAX))).is_ok());
    assert_eq!(root.cover(EpochNumber(0)..=EpochNumber(BASE - 1)).count(), 0);
    let after = EpochNumber(BASE + (1 << 32))..=EpochNumber(u64::MAX);
    assert_eq!(root.cover(after).count(), 0);
    let whole: Vec<_> = root.cover(EpochNumber(0)..=EpochNumber(u64::MAX)).collect();
    assert_eq!(whole, std::slice::from_ref(root.node()));
    #[allow(clippy::reversed_empty_ranges)]
    let none = root.cover(EpochNumber(BASE + 2)..=EpochNumber(BASE + 1)).count();
    assert_eq!(none, 0);
}

#[test]
fn a_node_has_a_depth_of_at_most_32_and_a_prefix_below_its_power() {
    for depth in 0..=u8::MAX {
        let prefixes = 1_u64 << depth.min(40);
        for prefix in [0, 1, 2, u32::MAX] {
            let is_valid = depth <= DEPTH && u64::from(prefix) < prefixes;
            assert_eq!(Node::new(depth, prefix, [1; 32]).is_ok(), is_valid, "{depth} {prefix}");
        }
    }
}

#[test]
fn debug_prints_no_secret() {
    let secret = secret();
    let root = secret.column(COLUMN);
    let key = root.epoch_key(epoch(1)).unwrap();
    let seal_key = key.seal_key(DEVICE, SealIndex(0), Suite::ChaCha20, &nonce());
    let path = Path::new(&root, epoch(1)).unwrap();
    let shown = format!("{secret:?} {root:?} {key:?} {seal_key:?} {path:?}");
    let keys = [secret.expose(), root.node().expose(), &*key.expose(), seal_key.expose()];
    for key in keys {
        assert!(!shown.contains(&hex::encode(key)) && !shown.contains(&format!("{key:?}")));
    }
    assert!(shown.contains("secret"));
}

#[test]
fn a_month_of_hours_takes_few_nodes() {
    let root = secret().column(COLUMN);
    let nodes: Vec<_> = root.cover(epoch(12_345)..=epoch(12_345 + 719)).collect();
    assert!(nodes.len() <= 18, "{}", nodes.len());
}

/// The path must open the epochs from the current one on and no others.
fn check_path(path: &Path, current: u32, probe: u32) {
    assert_eq!(path.epoch(), epoch(current));
    assert_eq!(*path.epoch_key().expose(), leaf(current));
    let nodes: Vec<_> = path.nodes().collect();
    assert_eq!(nodes.len(), 1 + current.count_zeros() as usize);
    let set = Nodes::new(COLUMN, EpochNumber(BASE), &nodes);
    for probe in [probe, current, current.saturating_sub(1), current.saturating_add(1)] {
        match set.epoch_key(epoch(probe)) {
            Ok(key) => {
                assert!(probe >= current);
                assert_eq!(*key.expose(), leaf(probe));
            }
            Err(error) => {
                assert!(probe < current);
                assert_eq!(error.name(), "NotCovered");
            }
        }
    }
    let encoded = path.encode();
    assert_eq!(Path::decode(&encoded).as_ref(), Ok(path));
}

#[test]
fn a_path_that_advances_is_the_path_that_starts_there() {
    let root = secret().column(COLUMN);
    let mut path = Path::new(&root, epoch(0)).unwrap();
    check_path(&path, 0, u32::MAX);
    for current in (0..40).chain([255, 256, 1 << 20, u32::MAX - 1, u32::MAX]) {
        path.advance(epoch(current)).unwrap();
        assert_eq!(path, Path::new(&root, epoch(current)).unwrap());
        check_path(&path, current, 77);
    }
    assert_eq!(path.nodes().count(), 1);
    let before = path.clone();
    assert_eq!(path.advance(epoch(5)).unwrap_err().name(), "KeyErased");
    let after = EpochNumber(BASE + (1 << 32));
    assert_eq!(path.advance(after).unwrap_err().name(), "EpochOutOfKeyRange");
    assert_eq!(path, before);
}

#[test]
fn no_ancestor_of_a_past_epoch_is_in_the_encoding_of_a_path() {
    let root = secret().column(COLUMN);
    let mut path = Path::new(&root, epoch(0)).unwrap();
    for current in [1, 2, 3, 8, 1000, 1 << 30] {
        path.advance(epoch(current)).unwrap();
        let encoded = path.encode();
        let kept: HashSet<&[u8]> = encoded[28..].chunks(32).collect();
        for past in [0, current / 2, current - 1] {
            let bits = format!("{past:032b}");
            for depth in 0..=32 {
                let ancestor = oracle(&bits[..depth]);
                assert!(!kept.contains(&ancestor[..]), "{current}: depth {depth} of {past}");
            }
        }
    }
}

#[test]
fn the_short_encoding_of_a_path_has_only_the_siblings_that_exist() {
    let root = secret().column(COLUMN);
    for current in [0, 1, 0x0f0f_0f0f, 0x8000_0000, u32::MAX] {
        let path = Path::new(&root, epoch(current)).unwrap();
        let mut buffer = [0xee; PATH];
        let short = path.encode_short(&mut buffer).to_vec();
        assert_eq!(short.len(), 60 + 32 * current.count_zeros() as usize);
        let nodes: Vec<[u8; 32]> = path.nodes().map(|node| *node.expose()).collect();
        assert_eq!(short.len(), 28 + 32 * nodes.len());
        assert!(short[28..].chunks(32).all(|key| nodes.iter().any(|node| node[..] == *key)));
        // What follows is returned, and nothing of an encoding that is cut off.
        let followed = [&short[..], b"rest"].concat();
        assert_eq!(Path::decode_short(&followed), Ok((path, &b"rest"[..])));
        for length in 0..short.len() {
            let error = Path::decode_short(&short[..length]).unwrap_err();
            assert_eq!(error.name(), "MalformedKey", "{current} {length}");
        }
    }
}

#[test]
fn a_stored_path_with_a_key_too_few_or_too_many_is_refused() {
    let path = Path::new(&secret().column(COLUMN), epoch(0x0f0f_0f0f)).unwrap();
    let encoded = path.encode();
    for depth in 0..32 {
        let mut altered = encoded.clone();
        let place = &mut altered[60 + depth * 32..][..32];
        let value = u8::from(place.iter().all(|&byte| byte == 0));
        place.fill(value);
        assert_eq!(Path::decode(&altered).unwrap_err().name(), "MalformedKey");
    }
    // Each altered byte is refused or gives another path.
    for at in 0..PATH {
        let mut altered = encoded.clone();
        altered[at] ^= 0x80;
        assert_ne!(Path::decode(&altered).as_ref(), Ok(&path), "{at}");
    }
    let mut overflowing = encoded.clone();
    overflowing[16..24].fill(0xff);
    assert_eq!(Path::decode(&overflowing).unwrap_err().name(), "MalformedKey");
}

/// 100,000 cells of random devices, columns, epochs and events: the reader of a grant has the key of
/// a cell if and only if the grant names its device and column and the range contains its epoch. The
/// key does not depend on the event, so the events of a seal are readable together.
#[test]
fn a_cell_is_readable_if_and_only_if_a_node_covers_it() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let columns = [ColumnId([1; 16]), ColumnId([2; 16]), ColumnId([3; 16])];
    let secrets = [[1; 32], [2; 32]].map(|bytes| StreamSecret::new(bytes, EpochNumber(BASE)));
    let mut cells = 0;
    while cells < 100_000 {
        let (owner, granted) = (random(2) as usize, random(3) as usize);
        let first = random(1 << 20) as u32;
        let magnitude = random(12);
        let last = first + random(1 << magnitude) as u32;
        let root = secrets[owner].column(columns[granted]);
        let nodes: Vec<_> = root.cover(epoch(first)..=epoch(last)).collect();
        for _ in 0..100 {
            let (device, column) = (random(2) as usize, random(3) as usize);
            let at = (first + random(3 * u64::from(last - first) + 3) as u32)
                .saturating_sub(last - first);
            let is_granted = (first..=last).contains(&at);
            let place = (DEVICE, SealIndex(random(5) as u32), Suite::ChaCha20);
            let sealed = secrets[device].column(columns[column]).epoch_key(epoch(at)).unwrap();
            let stated = sealed.seal_key(place.0, place.1, place.2, &nonce()).commitment();
            // The reader takes the nodes for those of the cell's column.
            let set = Nodes::new(columns[column], EpochNumber(BASE), &nodes);
            assert_eq!(set.covers(epoch(at)), is_granted);
            let opened = set
                .epoch_key(epoch(at))
                .and_then(|key| key.seal_key(place.0, place.1, place.2, &nonce()).check(&stated));
            let expected = match (is_granted, device == owner && column == granted) {
                (true, true) => Ok(()),
                (true, false) => Err("WrongKey"),
                (false, _) => Err("NotCovered"),
            };
            assert_eq!(opened.map_err(|error| error.name()), expected);
            cells += 1;
        }
    }
}

proptest! {
    #[test]
    fn a_cover_is_the_range_in_order_and_has_the_keys_of_the_oracle(
        first in prop_oneof![0_u32..100, any::<u32>()],
        length in 0_u32..5000,
    ) {
        let last = first.saturating_add(length);
        let root = secret().column(COLUMN);
        let nodes: Vec<_> = root.cover(epoch(first)..=epoch(last)).collect();
        let covered: Vec<u32> = nodes.iter().flat_map(below).collect();
        prop_assert_eq!(covered, (first..=last).collect::<Vec<_>>());
        let count = u64::from(last - first) + 1;
        let limit = if count < 2 { 1 } else { 2 * (count - 1).ilog2() + 2 };
        prop_assert!(nodes.len() <= limit as usize);
        for node in [nodes.first(), nodes.last(), nodes.get(nodes.len() / 2)].into_iter().flatten() {
            let bits = format!("{:032b}", node.offsets().start());
            prop_assert_eq!(node.expose(), &oracle(&bits[..node.depth().into()]));
            prop_assert_eq!(
                &Node::new(node.depth(), node.prefix(), *node.expose()).unwrap(),
                node
            );
        }
    }

    #[test]
    fn the_cover_of_a_set_is_the_intersection(
        set in (0_u32..2000, 0_u32..2000),
        wanted in (0_u32..2000, 0_u32..2000),
    ) {
        let root = secret().column(COLUMN);
        let has: Vec<_> = root.cover(epoch(set.0)..=epoch(set.0 + set.1)).collect();
        let nodes = Nodes::new(COLUMN, EpochNumber(BASE), &has);
        let given: Vec<_> = nodes.cover(epoch(wanted.0)..=epoch(wanted.0 + wanted.1)).collect();
        let covered: Vec<u32> = given.iter().flat_map(below).collect();
        let expected: Vec<u32> = (set.0..=set.0 + set.1)
            .filter(|offset| (wanted.0..=wanted.0 + wanted.1).contains(offset))
            .collect();
        prop_assert_eq!(covered, expected);
        for node in &given {
            let bits = format!("{:032b}", node.offsets().start());
            prop_assert_eq!(node.expose(), &oracle(&bits[..node.depth().into()]));
        }
    }

    #[test]
    fn a_path_opens_the_present_and_the_future_only(
        start in any::<u32>(),
        steps in proptest::collection::vec(prop_oneof![0_u32..4, any::<u32>()], 1..8),
        probe in any::<u32>(),
    ) {
        let root = secret().column(COLUMN);
        let mut path = Path::new(&root, epoch(start)).unwrap();
        let mut current = start;
        for step in steps {
            current = current.saturating_add(step);
            path.advance(epoch(current)).unwrap();
            check_path(&path, current, probe);
        }
    }
}
