//! Attacks on the paper's SIES. Each attack succeeds on the paper's scheme and must fail on the
//! product's. If a part of an attack also succeeds on the product, the test states to what extent.

use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::signature::{Algorithm, SecretKey, Signer};
use moteseal_core::{DeviceId, GroupId};
use moteseal_research::prf::hm1;
use moteseal_research::sies_paper::{self, VALUE_SHIFT, attack};
use moteseal_seal::{MAX_MESSAGE, Seal, Statement};
use moteseal_sum::guard::{EpochGuard, GuardError};
use moteseal_sum::query::QueryId;
use moteseal_sum::sies::{
    EncryptError, KeyTotals, Master, OpenError, Psr, SHARE_BITS, Slot, SourceKey,
};

const GROUP: GroupId = GroupId([1; 8]);
const QUERY: QueryId = QueryId([2; 16]);
const OTHER_QUERY: QueryId = QueryId([3; 16]);
const SLOT: Slot = Slot(0);
const EPOCH: u64 = 700;
const DURATION_MS: u64 = 5_000;
const MOST: u128 = 1_000_000;

/// Returns the sources and the querier of the paper's scheme.
fn paper(sources: u8) -> (Vec<sies_paper::Source>, sies_paper::Querier) {
    let own: Vec<_> = (0..sources).map(|source| hm1(b"own", &[source])).collect();
    (
        own.iter().map(|&own| sies_paper::Source::new([7; 20], own)).collect(),
        sies_paper::Querier::new([7; 20], own),
    )
}

fn paper_sum(psrs: &[sies_paper::Psr]) -> [u8; 32] {
    psrs.iter().copied().reduce(sies_paper::Psr::merge).unwrap().to_bytes()
}

/// Returns the keys of the product's sources in one key group for a query.
fn ours(master: &Master, key_group: u32, sources: u8, query: QueryId) -> Vec<SourceKey> {
    (0..sources).map(|source| device(master, key_group, source).for_query(query)).collect()
}

fn device(master: &Master, key_group: u32, source: u8) -> moteseal_sum::sies::SourceSecret {
    master.source(
        GROUP,
        DeviceId([source, 0, 0, 0, 0, 0, 0, u8::try_from(key_group).unwrap()]),
        key_group,
    )
}

/// Returns the answer of a source whose guard has not seen the epoch.
fn answer(source: &SourceKey, slot: Slot, epoch: u64, value: u128) -> Psr {
    let mut permit = EpochGuard::default().advance(source.query(), DURATION_MS, epoch).unwrap();
    source.encrypt(&mut permit, slot, value).unwrap()
}

fn sum(psrs: &[Psr]) -> [u8; 32] {
    psrs.iter().fold(Psr::ZERO, |sum, psr| sum.merge(psr)).to_bytes()
}

/// Opens a sum of these sources, as the product's querier does.
fn open(
    master: &Master,
    key_group: u32,
    of: &[SourceKey],
    slot: Slot,
    epoch: u64,
    sum: &[u8; 32],
) -> Result<u128, OpenError> {
    let mut totals = KeyTotals::default();
    of.iter().for_each(|source| totals.add(source, slot, epoch));
    let key = master.key_group(GROUP, key_group).for_query(of[0].query());
    totals.open(&Psr::from_bytes(sum).unwrap(), &key, slot, epoch, MOST)
}

#[test]
fn two_answers_in_one_epoch_break_the_papers_sums_and_our_guard_prevents_them() {
    // The paper: a source that restarts within an epoch can answer again.
    let (sources, querier) = paper(4);
    let psrs: Vec<_> = sources.iter().map(|source| source.answer(EPOCH, 100)).collect();
    let again = sources[1].answer(EPOCH, 97);
    let key =
        attack::epoch_key_of_two(&psrs[1].to_bytes(), &again.to_bytes(), 3, VALUE_SHIFT).unwrap();
    let forged = attack::alter(&paper_sum(&psrs), &key, 5000, VALUE_SHIFT).unwrap();
    assert_eq!(querier.open(EPOCH, sies_paper::Psr::from_bytes(&forged).unwrap()), Ok(5400));

    // The product: the guard permits one answer per epoch, even after a restart, because its state
    // is made durable before the answer is sent.
    let master = Master::new([9; 32]);
    let sources = ours(&master, 0, 4, QUERY);
    let mut guard = EpochGuard::default();
    let mut permit = guard.advance(QUERY, DURATION_MS, EPOCH).unwrap();
    let durable = guard.encode();
    let first = sources[1].encrypt(&mut permit, SLOT, 100).unwrap();
    assert_eq!(sources[1].encrypt(&mut permit, SLOT, 97), Err(EncryptError::SlotUsed));
    assert_eq!(guard.advance(QUERY, DURATION_MS, EPOCH), Err(GuardError::EpochAnswered));
    let mut restarted = EpochGuard::decode(&durable).unwrap();
    assert_eq!(restarted.advance(QUERY, DURATION_MS, EPOCH), Err(GuardError::EpochAnswered));
    assert_eq!(restarted.advance(QUERY, DURATION_MS, EPOCH - 1), Err(GuardError::EpochAnswered));

    // The adversary therefore only has answers of different epochs, slots or queries. Their keys
    // are independent, so every forgery must be rejected.
    let others = ours(&master, 0, 4, OTHER_QUERY);
    let psrs: Vec<_> = sources.iter().map(|source| answer(source, SLOT, EPOCH, 100)).collect();
    assert_eq!(psrs[1], first);
    let honest = sum(&psrs);
    assert_eq!(open(&master, 0, &sources, SLOT, EPOCH, &honest), Ok(400));
    let seconds = [
        answer(&sources[1], SLOT, EPOCH + 1, 97),
        answer(&sources[1], Slot(1), EPOCH, 97),
        answer(&others[1], SLOT, EPOCH, 97),
    ];
    for second in seconds {
        let (first, second) = (first.to_bytes(), second.to_bytes());
        let key = attack::epoch_key_of_two(&first, &second, 3, SHARE_BITS).unwrap();
        for forged in [
            attack::alter(&honest, &key, 50, SHARE_BITS),
            attack::alter_by_two(&honest, &first, &second, 1),
        ] {
            assert_eq!(
                open(&master, 0, &sources, SLOT, EPOCH, &forged.unwrap()),
                Err(OpenError::SharesMismatch)
            );
        }
    }
}

#[test]
fn a_leaked_key_breaks_all_sums_of_the_paper_and_one_key_group_of_ours() {
    // The paper: one compromised source reveals `K`, with which an attacker can alter every sum of
    // every epoch.
    let (sources, querier) = paper(4);
    for epoch in [0, EPOCH, 1 << 50] {
        let psrs: Vec<_> = sources.iter().map(|source| source.answer(epoch, 100)).collect();
        let key = attack::epoch_key_of_leaked(&[7; 20], epoch);
        let forged = attack::alter(&paper_sum(&psrs), &key, 77, VALUE_SHIFT).unwrap();
        assert_eq!(querier.open(epoch, sies_paper::Psr::from_bytes(&forged).unwrap()), Ok(477));
    }

    // The product: the compromised source is in key group 0. The guard does not restrict an
    // attacker that has the source's keys. The attacker can compute two answers of one epoch, which
    // reveal the key `K_t` of the key group.
    let master = Master::new([9; 32]);
    let groups = [ours(&master, 0, 4, QUERY), ours(&master, 1, 4, QUERY)];
    let captured = &groups[0][3];
    let two = [101, 100].map(|value| answer(captured, SLOT, EPOCH, value).to_bytes());
    let key = attack::epoch_key_of_two(&two[0], &two[1], 1, SHARE_BITS).unwrap();
    let honest: Vec<_> = groups
        .iter()
        .map(|group| {
            sum(&group.iter().map(|source| answer(source, SLOT, EPOCH, 100)).collect::<Vec<_>>())
        })
        .collect();
    let forged: Vec<_> =
        honest.iter().map(|sum| attack::alter(sum, &key, 77, SHARE_BITS).unwrap()).collect();
    assert_eq!(
        open(&master, 1, &groups[1], SLOT, EPOCH, &forged[1]),
        Err(OpenError::SharesMismatch),
        "another key group"
    );
    // Within its own key group, a compromised source can still alter sums. This is why key groups
    // are small.
    assert_eq!(open(&master, 0, &groups[0], SLOT, EPOCH, &forged[0]), Ok(477));

    // With the key of one epoch, slot and query an attacker can alter no other sum, even of the
    // same key group. If only a `K_t` leaks, only its epoch is affected.
    let other_query = ours(&master, 0, 4, OTHER_QUERY);
    for (sources, slot, epoch) in
        [(&groups[0], SLOT, EPOCH + 1), (&groups[0], Slot(1), EPOCH), (&other_query, SLOT, EPOCH)]
    {
        let honest =
            sum(&sources.iter().map(|source| answer(source, slot, epoch, 100)).collect::<Vec<_>>());
        let forged = attack::alter(&honest, &key, 77, SHARE_BITS).unwrap();
        assert_eq!(open(&master, 0, sources, slot, epoch, &honest), Ok(400));
        assert_eq!(open(&master, 0, sources, slot, epoch, &forged), Err(OpenError::SharesMismatch));
    }
}

#[test]
fn a_source_falsely_reported_silent_is_undetected_in_the_paper_and_revealed_by_our_seals() {
    // The paper: an aggregator drops an answer and reports that the source has failed. No message
    // that the querier receives contradicts this report.
    let (sources, querier) = paper(4);
    let psrs: Vec<_> = sources[..3].iter().map(|source| source.answer(EPOCH, 100)).collect();
    assert_eq!(
        querier.open_of(EPOCH, sies_paper::Psr::from_bytes(&paper_sum(&psrs)).unwrap(), &[0, 1, 2]),
        Ok(300)
    );

    // The product: the result is the sum of the other sources, and it names the missing source.
    let master = Master::new([9; 32]);
    let sources = ours(&master, 0, 4, QUERY);
    let dropped = sum(&sources[..3]
        .iter()
        .map(|source| answer(source, SLOT, EPOCH, 100))
        .collect::<Vec<_>>());
    assert_eq!(open(&master, 0, &sources, SLOT, EPOCH, &dropped), Err(OpenError::SharesMismatch));
    assert_eq!(open(&master, 0, &sources[..3], SLOT, EPOCH, &dropped), Ok(300));

    // The source that was reported as silent states in its next seal that it has answered. No
    // aggregator controls the path of this seal.
    let mut statement = Statement::new(Scheme::Star, GROUP, Digest([4; 32]), DeviceId([3; 8]), 16);
    assert!(statement.add_answered(QUERY.0, EPOCH));
    let seal = Seal::new(statement, Digest([5; 32]), Algorithm::Ed25519);
    let key = SecretKey::from_seed(Algorithm::Ed25519, &[6; 32]).unwrap();
    let mut buffer = [0; MAX_MESSAGE];
    let mut signature = [0; 64];
    key.sign(seal.message(&mut buffer), &mut signature).unwrap();
    assert_eq!(seal.signed_by(&key.public(), &signature), Ok(()));
    assert!(
        seal.statement().answered_in(&QUERY.0, EPOCH),
        "the seal proves that the aggregator's report is false"
    );
    assert!(!seal.statement().answered_in(&QUERY.0, EPOCH + 1));
}
