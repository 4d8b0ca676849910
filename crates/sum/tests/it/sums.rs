//! Tests of the encryption of private sums: a comparison with the paper's formulas in big integers,
//! and attacks on sums.

use hmac::{Hmac, KeyInit, Mac};
use moteseal_core::{DeviceId, GroupId};
use moteseal_sum::engine::{KeyEngine, Scalar};
use moteseal_sum::guard::Permit;
use moteseal_sum::query::QueryId;
use moteseal_sum::sies::{
    EncryptError, KeyLanes, KeyTotals, LANES, Master, OpenError, Psr, PsrError, SUM_LIMIT, Slot,
};
use num_bigint::BigUint;
use proptest::prelude::*;

const GROUP: GroupId = GroupId([3; 8]);
const SECRET: [u8; 32] = [0x5a; 32];

/// A reference implementation: the paper's formulas with big integers, and ChaCha20 as in RFC 8439.
mod reference {
    use super::*;

    fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(key).unwrap();
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    }

    fn quarter(s: &mut [u32; 16], [a, b, c, d]: [usize; 4]) {
        for (x, y, z, turn) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)] {
            s[x] = s[x].wrapping_add(s[y]);
            s[z] = (s[z] ^ s[x]).rotate_left(turn);
        }
    }

    pub(crate) fn chacha20(key: &[u8; 32], counter: u32, nonce: &[u8; 12]) -> [u8; 64] {
        let mut start = [0_u32; 16];
        let bytes = [&b"expand 32-byte k"[..], key, &counter.to_le_bytes(), nonce].concat();
        for (word, bytes) in start.iter_mut().zip(bytes.chunks(4)) {
            *word = u32::from_le_bytes(bytes.try_into().unwrap());
        }
        let mut s = start;
        for _ in 0..10 {
            _ = [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
                .map(|column| quarter(&mut s, column));
            _ = [[0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]]
                .map(|diagonal| quarter(&mut s, diagonal));
        }
        let mut out = [0; 64];
        for ((bytes, word), start) in out.chunks_mut(4).zip(s).zip(start) {
            bytes.copy_from_slice(&word.wrapping_add(start).to_le_bytes());
        }
        out
    }

    pub(crate) fn p() -> BigUint {
        (BigUint::from(1_u8) << 256) - 189_u8
    }

    fn block(secret: &[u8; 32], query: QueryId, slot: u8, epoch: u64) -> [u8; 64] {
        let key = hmac(secret, &[b"moteseal/1/sum/query", &query.0]);
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&epoch.to_le_bytes());
        chacha20(&key, slot.into(), &nonce)
    }

    fn device(device: DeviceId, query: QueryId, slot: u8, epoch: u64) -> (BigUint, BigUint) {
        let secret = hmac(&SECRET, &[b"moteseal/1/sum/device", &GROUP.0, &device.0]);
        let block = block(&secret, query, slot, epoch);
        (BigUint::from_bytes_le(&block[..32]) % p(), BigUint::from_bytes_le(&block[32..52]))
    }

    fn multiplier(key_group: u32, query: QueryId, slot: u8, epoch: u64) -> BigUint {
        let secret =
            hmac(&SECRET, &[b"moteseal/1/sum/keygroup", &GROUP.0, &key_group.to_be_bytes()]);
        BigUint::from_bytes_le(&block(&secret, query, slot, epoch)[..32]) % p()
    }

    pub(crate) fn encrypt(
        id: DeviceId,
        key_group: u32,
        query: QueryId,
        slot: u8,
        epoch: u64,
        value: u128,
    ) -> BigUint {
        let (key, share) = device(id, query, slot, epoch);
        (multiplier(key_group, query, slot, epoch) * ((BigUint::from(value) << 160) + share) + key)
            % p()
    }

    /// Returns the sum, if the shares match.
    pub(crate) fn open(
        psr: &BigUint,
        devices: &[DeviceId],
        key_group: u32,
        query: QueryId,
        slot: u8,
        epoch: u64,
    ) -> Option<BigUint> {
        let (mut keys, mut shares) = (BigUint::ZERO, BigUint::ZERO);
        for id in devices {
            let (key, share) = device(*id, query, slot, epoch);
            (keys, shares) = (keys + key, shares + share);
        }
        let inverse = multiplier(key_group, query, slot, epoch).modpow(&(p() - 2_u8), &p());
        let message = (psr + p() - keys % p()) * inverse % p();
        let rest = if message >= shares { message - shares } else { return None };
        (&rest % (BigUint::from(1_u8) << 160) == BigUint::ZERO).then(|| rest >> 160)
    }
}

fn id(n: u32) -> DeviceId {
    DeviceId([&b"mote"[..], &n.to_be_bytes()].concat().try_into().unwrap())
}

fn permit(query: QueryId, epoch: u64) -> Permit {
    moteseal_sum::guard::EpochGuard::default().advance(query, 1000, epoch).unwrap()
}

fn encrypt(n: u32, key_group: u32, query: QueryId, slot: u8, epoch: u64, value: u128) -> Psr {
    let key = Master::new(SECRET).source(GROUP, id(n), key_group).for_query(query);
    key.encrypt(&mut permit(query, epoch), Slot(slot), value).unwrap()
}

fn totals(
    devices: impl IntoIterator<Item = u32>,
    query: QueryId,
    slot: u8,
    epoch: u64,
) -> KeyTotals {
    let mut totals = KeyTotals::default();
    for n in devices {
        totals.add(
            &Master::new(SECRET).source(GROUP, id(n), 0).for_query(query),
            Slot(slot),
            epoch,
        );
    }
    totals
}

fn open(
    psr: &Psr,
    devices: impl IntoIterator<Item = u32>,
    query: QueryId,
    slot: u8,
    epoch: u64,
) -> Result<u128, OpenError> {
    let key = Master::new(SECRET).key_group(GROUP, 0).for_query(query);
    totals(devices, query, slot, epoch).open(psr, &key, Slot(slot), epoch, 1 << 40)
}

#[test]
fn computes_the_block_of_rfc_8439_section_2_3_2() {
    let key: [u8; 32] = std::array::from_fn(|i| u8::try_from(i).unwrap());
    let nonce = [0, 0, 0, 9, 0, 0, 0, 0x4a, 0, 0, 0, 0];
    let block = reference::chacha20(&key, 1, &nonce);
    assert_eq!(hex::encode(&block[..16]), "10f1e7e4d13b5915500fdd1fa32071c4");
    assert_eq!(hex::encode(&block[48..]), "b5129cd1de164eb9cbd083e8a2503c4e");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_psr_equals_the_formula(
        n: u32, key_group: u32, query: [u8; 16], slot: u8, epoch in 0_u64..1 << 50, value in prop_oneof![0..SUM_LIMIT, SUM_LIMIT - 3..SUM_LIMIT],
    ) {
        let query = QueryId(query);
        let psr = encrypt(n, key_group, query, slot, epoch, value);
        let expected = reference::encrypt(id(n), key_group, query, slot, epoch, value);
        prop_assert_eq!(BigUint::from_bytes_be(&psr.to_bytes()), expected);
        prop_assert_eq!(Psr::from_bytes(&psr.to_bytes()).unwrap(), psr);
    }

    #[test]
    fn a_sum_opens_as_the_formula_does(
        values in prop::collection::vec(0_u128..1 << 40, 1..40), query: [u8; 16], slot: u8, epoch in 0_u64..1 << 50,
    ) {
        let query = QueryId(query);
        let devices: Vec<u32> = (0..).take(values.len()).collect();
        let sum = devices.iter().zip(&values).fold(Psr::ZERO, |sum, (n, value)| sum.merge(&encrypt(*n, 0, query, slot, epoch, *value)));
        let expected: u128 = values.iter().sum();
        prop_assert_eq!(open(&sum, devices.clone(), query, slot, epoch), Ok(expected));
        let ids: Vec<DeviceId> = devices.iter().map(|n| id(*n)).collect();
        let by_formula = reference::open(&BigUint::from_bytes_be(&sum.to_bytes()), &ids, 0, query, slot, epoch);
        prop_assert_eq!(by_formula, Some(BigUint::from(expected)));
    }

    #[test]
    fn lanes_equal_single_sources(present: u16, query: [u8; 16], slot: u8, epoch in 0_u64..1 << 50) {
        let query = QueryId(query);
        let mut lanes = KeyLanes::default();
        let mut sum = Psr::ZERO;
        for n in 0..LANES {
            let n32 = u32::try_from(n).unwrap();
            lanes.set(n, &Master::new(SECRET).source(GROUP, id(n32), 0).for_query(query));
            if present >> n & 1 != 0 {
                sum = sum.merge(&encrypt(n32, 0, query, slot, epoch, n as u128));
            }
        }
        let mut totals = KeyTotals::default();
        Scalar.sum_keys(&[lanes], &[present], Slot(slot), epoch, &mut totals);
        let key = Master::new(SECRET).key_group(GROUP, 0).for_query(query);
        let expected: u32 = (0..16).filter(|n| present >> n & 1 != 0).sum();
        prop_assert_eq!(totals.open(&sum, &key, Slot(slot), epoch, 15), Ok(expected.into()));
        prop_assert_eq!(totals.sources(), present.count_ones());
    }

    #[test]
    fn rejects_an_altered_sum(
        values in prop::collection::vec(0_u128..1000, 3..12), delta in prop::collection::vec(any::<u8>(), 32), epoch in 1_u64..1 << 40,
    ) {
        let (query, other, slot) = (QueryId([1; 16]), QueryId([2; 16]), 1);
        let devices = 0..u32::try_from(values.len()).unwrap();
        let psrs: Vec<Psr> = devices.clone().zip(&values).map(|(n, value)| encrypt(n, 0, query, slot, epoch, *value)).collect();
        let sum_of = |psrs: &[Psr]| psrs.iter().fold(Psr::ZERO, |sum, psr| sum.merge(psr));
        let sum = sum_of(&psrs);
        let refused = Err(OpenError::SharesMismatch);
        // A record is dropped, a record is added twice, the sum is scaled or altered, or the sum is
        // empty.
        prop_assert_eq!(open(&sum_of(&psrs[1..]), devices.clone(), query, slot, epoch), refused);
        prop_assert_eq!(open(&sum.merge(&psrs[0]), devices.clone(), query, slot, epoch), refused);
        prop_assert_eq!(open(&sum.merge(&sum), devices.clone(), query, slot, epoch), refused);
        if let Ok(delta) = Psr::from_bytes(&delta) {
            prop_assert_eq!(open(&sum.merge(&delta), devices.clone(), query, slot, epoch), refused);
            prop_assert_eq!(open(&delta, devices.clone(), query, slot, epoch), refused);
        }
        prop_assert_eq!(open(&Psr::ZERO, devices.clone(), query, slot, epoch), refused);
        // The sum is replayed in another epoch, or used for another query, slot or key group.
        prop_assert_eq!(open(&sum, devices.clone(), query, slot, epoch + 1), refused);
        prop_assert_eq!(open(&sum, devices.clone(), other, slot, epoch), refused);
        prop_assert_eq!(open(&sum, devices.clone(), query, slot + 1, epoch), refused);
        let of_group = |n: u32| encrypt(n, 1, query, slot, epoch, 0);
        prop_assert_eq!(open(&sum_of(&[of_group(0), psrs[1]]), 0..2, query, slot, epoch), refused);
        // The set of participants has one source too many or one too few.
        prop_assert_eq!(open(&sum, 0..devices.end + 1, query, slot, epoch), refused);
        prop_assert_eq!(open(&sum, 1..devices.end, query, slot, epoch), refused);
        prop_assert_eq!(open(&sum, (1..devices.end).chain([77]), query, slot, epoch), refused);
        prop_assert_eq!(open(&sum, devices, query, slot, epoch), Ok(values.iter().sum()));
    }
}

#[test]
fn rejects_a_sum_above_the_participants_maximum() {
    let query = QueryId([1; 16]);
    let sum = encrypt(0, 0, query, 0, 9, (1 << 40) + 1);
    assert_eq!(open(&sum, [0], query, 0, 9), Err(OpenError::SumOutOfRange));
    assert_eq!(open(&encrypt(0, 0, query, 0, 9, 1 << 40), [0], query, 0, 9), Ok(1 << 40));
}

#[test]
fn rejects_invalid_records() {
    assert_eq!(Psr::from_bytes(&[0; 31]), Err(PsrError::TruncatedPsr));
    assert_eq!(Psr::from_bytes(&[0; 33]), Err(PsrError::TruncatedPsr));
    let p = reference::p().to_bytes_be();
    assert_eq!(Psr::from_bytes(&p), Err(PsrError::NotCanonical));
    assert_eq!(Psr::from_bytes(&[0xff; 32]), Err(PsrError::NotCanonical));
    let below = (reference::p() - 1_u8).to_bytes_be();
    assert_eq!(Psr::from_bytes(&below).unwrap().to_bytes()[..], below);
    // p - 1 plus 1 is 0 modulo p.
    let mut one = [0; 32];
    one[31] = 1;
    assert_eq!(Psr::from_bytes(&below).unwrap().merge(&Psr::from_bytes(&one).unwrap()), Psr::ZERO);
}

#[test]
fn rejects_a_value_that_is_too_large() {
    let query = QueryId([1; 16]);
    let key = Master::new(SECRET).source(GROUP, id(0), 0).for_query(query);
    assert_eq!(
        key.encrypt(&mut permit(query, 1), Slot(0), SUM_LIMIT),
        Err(EncryptError::ValueTooLarge)
    );
    assert!(key.encrypt(&mut permit(query, 1), Slot(0), SUM_LIMIT - 1).is_ok());
    assert_eq!(
        key.encrypt(&mut permit(QueryId([2; 16]), 1), Slot(0), 0),
        Err(EncryptError::WrongQuery)
    );
    let mut once = permit(query, 1);
    assert!(key.encrypt(&mut once, Slot(3), 0).is_ok());
    for slot in [3, 2, 0] {
        assert_eq!(key.encrypt(&mut once, Slot(slot), 1), Err(EncryptError::SlotUsed));
    }
    assert!(key.encrypt(&mut once, Slot(255), 0).is_ok());
    assert_eq!(key.encrypt(&mut once, Slot(255), 0), Err(EncryptError::SlotUsed));
}

#[test]
fn debug_output_hides_secrets() {
    let master = Master::new(SECRET);
    let source = master.source(GROUP, id(0), 0);
    let key = source.for_query(QueryId([0; 16]));
    let printed = format!(
        "{master:?} {source:?} {key:?} {:?} {:?}",
        KeyLanes::default(),
        KeyTotals::default()
    );
    assert_eq!(
        printed,
        "Master(secret) SourceSecret(secret) SourceKey(secret) KeyLanes(secret) KeyTotals(secret)"
    );
}
