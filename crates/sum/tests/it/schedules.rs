//! Tests that a source accepts a query schedule only if it is a chain of one message that the
//! group's querier signed as a query schedule.

use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_broadcast::{ChainId, ChainNumber, Kind, MAX_MESSAGE, SealError, SingleDraft, Window};
use moteseal_core::cbor::Writer;
use moteseal_core::identity::IssueError;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_core::{DeviceId, Digest, GroupId};
use moteseal_sum::query::MAX_PLAN;
use moteseal_sum::schedule::{
    self, MAX_QUERY_SCHEDULE, Posed, QuerySchedule, QueryScheduleDraft, QueryScheduleError,
};
use proptest::prelude::*;

const SUITES: &[Algorithm] = &Algorithm::ALL;
const GROUP: GroupId = GroupId([1; 8]);
const ROSTER: Digest = Digest([2; 32]);
const POSED: Posed<'static> = Posed { nonce: [3; 16], first: 10, until: 20, plan: &[0x80] };

fn key(algorithm: Algorithm, byte: u8) -> SecretKey {
    SecretKey::from_seed(algorithm, &[byte; 32]).unwrap()
}

fn querier() -> SecretKey {
    key(Algorithm::Ed25519, 7)
}

fn draft<'a>(number: u64, queries: &'a [Posed<'a>]) -> QueryScheduleDraft<'a> {
    QueryScheduleDraft {
        group: GROUP,
        roster: ROSTER,
        number,
        sources: 500,
        key_group: 16,
        queries,
    }
}

fn issue(draft: &QueryScheduleDraft<'_>, key: &SecretKey) -> Result<Vec<u8>, SealError> {
    draft
        .issue(key, &mut vec![0; MAX_QUERY_SCHEDULE], &mut vec![0; MAX_QUERY_SCHEDULE])
        .map(<[u8]>::to_vec)
}

fn issued(number: u64, queries: &[Posed<'_>]) -> Vec<u8> {
    issue(&draft(number, queries), &querier()).unwrap()
}

/// Returns the number and the nonces of an announcement, or the reason why it is rejected.
fn opened(announcement: &[u8]) -> Result<(u64, Vec<[u8; 16]>), QueryScheduleError> {
    let mut scratch = vec![0; MAX_QUERY_SCHEDULE];
    let verified = schedule::receive(announcement, GROUP, &querier().public(), &mut scratch)?;
    let schedule = QuerySchedule::open(&verified, GROUP, &ROSTER)?;
    Ok((schedule.number(), schedule.queries().map(|(_, posed)| posed.nonce).collect()))
}

/// Returns the message of an announcement, which is the encoded query schedule.
fn message(announcement: &[u8]) -> &[u8] {
    let BroadcastFrame::Single { leaf, .. } = BroadcastFrame::decode(announcement).unwrap() else {
        panic!("not a chain of one")
    };
    leaf
}

/// Returns a chain of one message with any network, sender and kind, signed with the querier's key.
fn signed_chain(network: NetworkId, sender: DeviceId, kind: Kind, message: &[u8]) -> Vec<u8> {
    let draft = SingleDraft {
        id: ChainId { network, sender, number: ChainNumber(9) },
        kind,
        label: "",
        window: Window::ALWAYS,
        previous: None,
        message,
    };
    draft
        .seal(&querier(), &mut vec![0; MAX_QUERY_SCHEDULE], &mut vec![0; MAX_QUERY_SCHEDULE])
        .unwrap()
        .to_vec()
}

#[test]
fn opens_a_schedule_that_the_querier_signed_with_every_suite() {
    for algorithm in SUITES {
        let key = key(*algorithm, 7);
        let bytes = issue(&draft(9, &[POSED]), &key).unwrap();
        let mut scratch = vec![0; MAX_QUERY_SCHEDULE];
        let verified = schedule::receive(&bytes, GROUP, &key.public(), &mut scratch).unwrap();
        let schedule = QuerySchedule::open(&verified, GROUP, &ROSTER).unwrap();
        assert_eq!((schedule.number(), schedule.sources(), schedule.key_group()), (9, 500, 16));
        assert_eq!(schedule.queries().collect::<Vec<_>>(), [(POSED.id(&ROSTER), POSED)]);
    }
}

#[test]
fn the_querier_is_a_sender_in_the_groups_network() {
    let id: Vec<u8> = hex::decode("f21feb2d5e2c97c5").unwrap();
    assert_eq!(schedule::querier_id().0, id[..]);
    assert_eq!(schedule::network(GROUP), NetworkId(GROUP.0));
}

/// Returns the same announcement with an invalid signature.
fn with_wrong_signature(bytes: &[u8]) -> Vec<u8> {
    let BroadcastFrame::Single { head, leaf } = BroadcastFrame::decode(bytes).unwrap() else {
        panic!("not a chain of one")
    };
    let mut head = head.to_vec();
    *head.last_mut().unwrap() ^= 1;
    let mut out = vec![0; MAX_QUERY_SCHEDULE];
    let mut writer = Writer::new(&mut out);
    BroadcastFrame::Single { head: &head, leaf }.encode(&mut writer).unwrap();
    writer.finish().to_vec()
}

#[test]
fn rejects_other_networks_senders_and_kinds() {
    let bytes = issued(9, &[POSED]);
    let leaf = message(&bytes);
    let (network, sender) = (schedule::network(GROUP), schedule::querier_id());
    // With the right fields, `signed_chain` returns exactly the bytes of the honest announcement.
    assert_eq!(signed_chain(network, sender, Kind::QuerySchedule, leaf), bytes);
    for (name, bytes) in [
        ("WrongNetwork", signed_chain(NetworkId([8; 8]), sender, Kind::QuerySchedule, leaf)),
        ("WrongSender", signed_chain(network, DeviceId(*b"mote0001"), Kind::QuerySchedule, leaf)),
        ("WrongKind", signed_chain(network, sender, Kind::Announcement, leaf)),
        ("WrongKind", signed_chain(network, sender, Kind::File, leaf)),
        ("WrongKey", issue(&draft(9, &[POSED]), &key(Algorithm::Ed25519, 8)).unwrap()),
        ("WrongKey", issue(&draft(9, &[POSED]), &key(Algorithm::Esp256, 7)).unwrap()),
        ("NotAuthentic", with_wrong_signature(&bytes)),
        (
            "WrongRoster",
            issue(
                &QueryScheduleDraft { roster: Digest([9; 32]), ..draft(9, &[POSED]) },
                &querier(),
            )
            .unwrap(),
        ),
        (
            "WrongNetwork",
            issue(&QueryScheduleDraft { group: GroupId([9; 8]), ..draft(9, &[POSED]) }, &querier())
                .unwrap(),
        ),
        ("AmbiguousQuery", issued(9, &[POSED, POSED])),
        ("FieldOutOfRange", issued(9, &[Posed { until: 10, ..POSED }])),
    ] {
        assert_eq!(opened(&bytes).unwrap_err().name(), name);
    }
}

#[test]
fn rejects_a_message_verified_for_another_sender_or_group() {
    let bytes = issued(9, &[POSED]);
    let (mut scratch, public) = (vec![0; MAX_QUERY_SCHEDULE], querier().public());
    let verified = schedule::receive(&bytes, GROUP, &public, &mut scratch).unwrap();
    assert_eq!(
        QuerySchedule::open(&verified, GroupId([9; 8]), &ROSTER).unwrap_err(),
        QueryScheduleError::WrongNetwork
    );
    let elsewhere =
        issue(&QueryScheduleDraft { group: GroupId([9; 8]), ..draft(9, &[POSED]) }, &querier())
            .unwrap();
    let mut scratch = vec![0; MAX_QUERY_SCHEDULE];
    let verified = schedule::receive(&elsewhere, GroupId([9; 8]), &public, &mut scratch).unwrap();
    assert_eq!(
        QuerySchedule::open(&verified, GROUP, &ROSTER).unwrap_err(),
        QueryScheduleError::WrongNetwork
    );
}

#[test]
fn a_head_is_valid_for_one_schedule_and_one_number() {
    let (one, other, newer) = (issued(9, &[POSED]), issued(9, &[]), issued(10, &[POSED]));
    assert_eq!(message(&one), message(&newer));
    let digest = |bytes: &[u8]| {
        let mut scratch = vec![0; MAX_QUERY_SCHEDULE];
        let verified = schedule::receive(bytes, GROUP, &querier().public(), &mut scratch).unwrap();
        QuerySchedule::open(&verified, GROUP, &ROSTER).unwrap().digest()
    };
    let digests = [&one, &other, &newer].map(|bytes| digest(bytes));
    assert!(digests[0] != digests[1] && digests[0] != digests[2] && digests[1] != digests[2]);
    let BroadcastFrame::Single { head, .. } = BroadcastFrame::decode(&one).unwrap() else {
        panic!("not a chain of one")
    };
    let mut out = vec![0; MAX_QUERY_SCHEDULE];
    let mut writer = Writer::new(&mut out);
    BroadcastFrame::Single { head, leaf: message(&other) }.encode(&mut writer).unwrap();
    assert_eq!(opened(writer.finish()).unwrap_err().name(), "ForgedLeaf");
}

#[test]
fn refuses_to_sign_a_schedule_longer_than_one_message() {
    let plan = [0; MAX_PLAN];
    let posed =
        |nonce: u8| Posed { nonce: [nonce; 16], first: u64::MAX - 1, until: u64::MAX, plan: &plan };
    let queries: Vec<_> = (1..=4).map(posed).collect();
    let longest =
        QueryScheduleDraft { sources: u32::MAX, key_group: u32::MAX, ..draft(u64::MAX, &queries) };
    let bytes = issue(&longest, &querier()).unwrap();
    assert_eq!(opened(&bytes), Ok((u64::MAX, vec![[1; 16], [2; 16], [3; 16], [4; 16]])));
    assert!(bytes.len() <= MAX_QUERY_SCHEDULE && message(&bytes).len() <= MAX_MESSAGE);
    let five: Vec<_> = (1..=5).map(posed).collect();
    assert_eq!(
        issue(&draft(9, &five), &querier()),
        Err(SealError::Issue(IssueError::BufferTooSmall))
    );
}

proptest! {
    #[test]
    fn rejects_every_changed_byte_of_a_schedule(at in any::<prop::sample::Index>(), flip in 1..=255_u8) {
        let mut bytes = issued(9, &[POSED]);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        prop_assert!(opened(&bytes).is_err());
        prop_assert!(opened(&bytes[..at]).is_err());
    }

    #[test]
    fn rejects_messages_of_the_querier_that_are_not_schedules(message in prop::collection::vec(any::<u8>(), 0..200)) {
        let lines = signed_chain(schedule::network(GROUP), schedule::querier_id(), Kind::Announcement, &message);
        prop_assert_eq!(opened(&lines).unwrap_err(), QueryScheduleError::WrongKind);
    }
}
