//! A device with column groups forwards its events within a budget. The coordinator drops levels
//! while the device still forwards them, and its bundle proves the others.

use moteseal_core::confidential::KeyCommitments;
use moteseal_core::link::{LinkKey, MAX_FRAME};
use moteseal_core::record::{EpochNumber, Framing, Level, Round, Scheme, SealIndex, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, GroupLayout, Groups, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
use moteseal_gateway::{GroupCoordinator, Refused};
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::Limits;
use moteseal_seal::level::{Salt, SaltKey};
use moteseal_seal::star::GroupedStar;
use moteseal_seal::stream::{Open, Selection};
use moteseal_seal::tree::Tree;
use moteseal_seal::wire::{Acknowledgement, Forward, Uplink};
use moteseal_seal::{MAX_MESSAGE, Seal, Statement, star, tree};
use moteseal_verify::issue::{Budget, FirstRoster};
use moteseal_verify::redaction::redact;
use moteseal_verify::{Event, ReadError, Roster, StreamReader, write};

pub(crate) const GROUP_SECRET: [u8; 32] = [0x51; 32];
const EPOCH: EpochNumber = EpochNumber(70);
pub(crate) const LEVELS: u8 = 8;
const EVENTS: u32 = 400;

pub(crate) fn secret(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

pub(crate) fn roster(budget: u64) -> Roster {
    let budget = Some(Budget { events: budget, coordinator: secret(99).public() });
    let devices = [("mote", secret(0).public())];
    let first =
        FirstRoster { group: "field", epoch_ms: 1000, levels: LEVELS, budget, devices: &devices };
    Roster::open(&first.issue(&secret(98)).unwrap(), &secret(98).public()).unwrap()
}

fn schema() -> Vec<u8> {
    let fields = ["seen::u16", "a::u8!@2", "b::u8!@5"].map(|field| Field::parse(field).unwrap());
    Schema::encode(&fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec()
}

fn record(seq: u32) -> [u8; 4] {
    seq.wrapping_mul(0x0301_0507).to_be_bytes()
}

/// The frames of a device that hears no announcement: its schema, its events and its seal.
fn frames(roster: &Roster, scheme: Scheme) -> Vec<Vec<u8>> {
    let device = roster.id("mote").unwrap();
    let link = LinkKey::new(&LinkKey::secret_of(&GROUP_SECRET, roster.group(), device));
    let close = |uplink: &Uplink<'_>| {
        uplink.close(device, &link, &mut vec![0; MAX_FRAME]).unwrap().to_vec()
    };
    let bytes = schema();
    let schema = Schema::decode(&bytes).unwrap();
    let (layout, framing) =
        (GroupLayout::new(&schema, schema.groups()).unwrap(), Framing::fixed(4).unwrap());
    let salt: Salt = SaltKey::new([3; 32]).salt(device, SealIndex(0));
    let of_star = (layout, framing);
    let mut star = GroupedStar::<8, 3>::new(device, SealIndex(0), &salt, of_star, LEVELS).unwrap();
    let mut frames = vec![close(&Uplink::Schema(&bytes))];
    for from in (0..EVENTS).step_by(50) {
        let mut events = Vec::new();
        for seq in from..from + 50 {
            events.push(star.push(&record(seq)).unwrap().0);
            events.extend(record(seq));
        }
        frames.push(close(&Uplink::Forward(Forward {
            index: SealIndex(0),
            epoch: EPOCH,
            own_round: Round(0),
            from: Sequence(from.into()),
            until: Sequence(u64::from(from) + 50),
            framing,
            events: &events,
            digests: (scheme == Scheme::Tree).then_some(&[][..]),
        })));
    }
    let (counters, blocks) = star.close();
    let mut statement = Statement::new(scheme, roster.group(), roster.digest(), device, LEVELS);
    statement.prev = roster.first_prev(device).unwrap();
    (statement.epoch, statement.last_in_epoch) = (EPOCH, true);
    (statement.schema, statement.groups) = (schema.digest(), schema.groups());
    (statement.salt, statement.counters) = (salt, counters);
    statement.keys = KeyCommitments::decode(&[7; 12 + 32]);
    let (prev, surviving) = (Some(statement.prev), statement.surviving());
    let of_group = |group: u8| {
        let mut tree = Tree::<16>::new();
        for seq in 0..EVENTS {
            tree.push_leaf(tree::group_leaf(layout.cells(group), &record(seq))).unwrap();
        }
        tree.root()
    };
    let root = match scheme {
        Scheme::Star => star::root(&counters, &blocks),
        Scheme::Tree => tree::join_roots(&layout.all().iter().map(of_group).collect::<Vec<_>>()),
    };
    let seal = Seal::new(statement, root, Algorithm::Ed25519);
    let signature = secret(0).signature(seal.message(&mut [0; MAX_MESSAGE])).unwrap();
    let (mut open, mut part) = (Vec::new(), Vec::new());
    write::open(&mut open, &Open { device, roster_version: 0, prev, last: None });
    write::part(&mut part, &seal, Selection::Levels(surviving), &[], &[], Some(&signature));
    let digest = seal.statement().schema;
    frames.push(close(&Uplink::Close { schema: digest, open: &open, part: &part }));
    frames
}

/// An event: its sequence number, level and record.
type Row = (u64, Level, Vec<u8>);

/// Verifies a bundle. Returns the lowest round from which it is whole, and its rows.
fn read(roster: &Roster, bundle: &[u8]) -> (Option<Round>, Vec<Row>) {
    let (mut from, mut rows) = (None, Vec::new());
    let mut reader = StreamReader::new(roster, Limits::default());
    let mut visit = |event: Event<'_>| {
        if let Event::Proven(proven) = event {
            from = proven.whole_from();
            proven.sample.for_each(&Scalar, |seq, level, record| {
                rows.push((seq.0, level, record.to_vec()));
            });
        }
        Ok::<_, ReadError>(())
    };
    reader.feed(bundle, &mut visit).unwrap();
    reader.finish(&mut visit).unwrap();
    (from, rows)
}

#[test]
fn a_budget_keeps_the_same_events_with_groups_and_any_column_can_be_left_out() {
    let of_scheme = |scheme| [(scheme, 1000, false), (scheme, 60, true), (scheme, 1, true)];
    for (scheme, budget, dropped) in [Scheme::Star, Scheme::Tree].into_iter().flat_map(of_scheme) {
        let roster = roster(budget);
        let mut coordinator = GroupCoordinator::new(roster.clone(), GROUP_SECRET).unwrap();
        for frame in frames(&roster, scheme) {
            let _ = coordinator.receive(&frame, EPOCH).unwrap();
        }
        let round = coordinator.round(EPOCH);
        assert_eq!(round > Round(0), dropped);
        let ended = coordinator.end(EPOCH, &secret(99)).unwrap();
        let bundle = &ended.bundles[0];
        let (from, rows) = read(&roster, bundle);
        assert_eq!(from, Some(round));
        let device = roster.id("mote").unwrap();
        let salt = SaltKey::new([3; 32]).salt(device, SealIndex(0));
        let expected: Vec<_> = (0..EVENTS)
            .map(|seq| (u64::from(seq), salt.level(Sequence(seq.into()), LEVELS), record(seq)))
            .filter(|(_, level, _)| level.0 >= round.0)
            .map(|(seq, level, record)| (seq, level, record.to_vec()))
            .collect();
        assert_eq!(rows, expected);
        let mut part = Vec::new();
        let verifier = (&roster, Limits::default());
        redact(&mut part, bundle, verifier, &mut |_| Groups::from_bits(0b10_0001)).unwrap();
        let shown: Vec<_> = expected
            .into_iter()
            .map(|(seq, level, record)| (seq, level, vec![record[0], record[1], record[3]]))
            .collect();
        assert_eq!(read(&roster, &part), (None, shown));
    }
}

/// A subtree has one root for each group, so the coordinator needs the events themselves.
#[test]
fn a_tree_with_groups_is_refused_if_digests_replaced_its_events() {
    let roster = roster(1000);
    let device = roster.id("mote").unwrap();
    let link = LinkKey::new(&LinkKey::secret_of(&GROUP_SECRET, roster.group(), device));
    let mut coordinator = GroupCoordinator::new(roster.clone(), GROUP_SECRET).unwrap();
    let mut frames = frames(&roster, Scheme::Tree);
    // The first 50 events are perfect subtrees of 32, 16 and 2 leaves.
    let roots = Forward {
        index: SealIndex(0),
        epoch: EPOCH,
        own_round: Round(0),
        from: Sequence(0),
        until: Sequence(50),
        framing: Framing::fixed(4).unwrap(),
        events: &[],
        digests: Some(&[9; 3 * 32]),
    };
    frames[1] = Uplink::Forward(roots).close(device, &link, &mut [0; MAX_FRAME]).unwrap().to_vec();
    let close = frames.pop().unwrap();
    for frame in frames {
        let _ = coordinator.receive(&frame, EPOCH).unwrap();
    }
    assert_eq!(coordinator.receive(&close, EPOCH).unwrap_err(), Refused::NotAsForwarded);
}

/// Frames may be lost: the schema does not always arrive before the events.
#[test]
fn events_wait_for_the_schema_that_their_digests_need() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let roster = roster(60);
        let device = roster.id("mote").unwrap();
        let mut coordinator = GroupCoordinator::new(roster.clone(), GROUP_SECRET).unwrap();
        let frames = frames(&roster, scheme);
        for frame in &frames[1..] {
            assert!(!coordinator.receive(frame, EPOCH).unwrap().durable);
        }
        assert_eq!(coordinator.kept(EPOCH), 0);
        let link = LinkKey::new(&LinkKey::secret_of(&GROUP_SECRET, roster.group(), device));
        let answer = coordinator.acknowledgement(device).unwrap();
        let answer = Acknowledgement::open(&answer, device, &link).unwrap();
        assert!(answer.wants_schema && answer.next == Sequence(0), "{answer:?}");
        for frame in &frames {
            assert!(coordinator.receive(frame, EPOCH).unwrap().durable);
        }
        let round = coordinator.round(EPOCH);
        assert!(round > Round(0), "levels were dropped while the seal was open");
        let ended = coordinator.end(EPOCH, &secret(99)).unwrap();
        assert_eq!(read(&roster, &ended.bundles[0]).0, Some(round));
    }
}

/// A device has started again with other columns, whose records have the length of those before, and its
/// schema is lost. The events wait for the schema also if the coordinator has started again.
#[test]
fn events_wait_for_the_schema_of_their_session() {
    let roster = roster(60);
    let device = roster.id("mote").unwrap();
    let link = LinkKey::new(&LinkKey::secret_of(&GROUP_SECRET, roster.group(), device));
    let close = |uplink: &Uplink<'_>| {
        uplink.close(device, &link, &mut vec![0; MAX_FRAME]).unwrap().to_vec()
    };
    let fields = [Field::parse("total::u32").unwrap()];
    let before = Schema::encode(&fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec();
    let frames = frames(&roster, Scheme::Star);
    let wants = |coordinator: &mut GroupCoordinator, challenge: Option<u64>| {
        for frame in &frames[1..] {
            assert!(!coordinator.receive(frame, EPOCH).unwrap().durable);
        }
        assert_eq!(coordinator.kept(EPOCH), 0);
        let answer = coordinator.acknowledgement(device).unwrap();
        let answer = Acknowledgement::open(&answer, device, &link).unwrap();
        assert_eq!((answer.wants_schema, answer.challenge), (true, challenge));
    };
    let goes_on = |mut coordinator: GroupCoordinator, again: &[u64]| {
        assert!(coordinator.receive(&frames[0], EPOCH).unwrap().durable);
        for challenge in again {
            let _ = coordinator.receive(&close(&Uplink::Challenge(*challenge)), EPOCH).unwrap();
        }
        for frame in &frames[1..] {
            assert!(coordinator.receive(frame, EPOCH).unwrap().durable);
        }
        assert!(coordinator.round(EPOCH) > Round(0));
        let ended = coordinator.end(EPOCH, &secret(99)).unwrap();
        assert!(read(&roster, &ended.bundles[0]).0.is_some());
    };

    let mut coordinator = GroupCoordinator::new(roster.clone(), GROUP_SECRET).unwrap();
    for uplink in [Uplink::Challenge(7), Uplink::Schema(&before)] {
        let _ = coordinator.receive(&close(&uplink), EPOCH).unwrap();
    }
    let mut restarted = GroupCoordinator::new(roster.clone(), GROUP_SECRET).unwrap();
    restarted.resume(coordinator.standing());
    wants(&mut restarted, None);
    goes_on(restarted, &[]);

    // A challenge that goes on in the session: it is repeated, follows, or was delayed.
    let _ = coordinator.receive(&close(&Uplink::Challenge(1 << 32)), EPOCH).unwrap();
    wants(&mut coordinator, Some(1 << 32));
    let next = (1 << 32) + 1;
    goes_on(coordinator, &[next - 1, next, next, next - 1, next, next + 1]);
}

/// A device has a new schema, whose records have the length of those before.
#[test]
fn a_schema_with_groups_may_come_late_for_a_star_of_which_every_event_is_kept() {
    let fields = [Field::parse("total::u32").unwrap()];
    let before = Schema::encode(&fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec();
    for (scheme, budget) in
        [Scheme::Star, Scheme::Tree].into_iter().flat_map(|scheme| [(scheme, 1000), (scheme, 60)])
    {
        let roster = roster(budget);
        let device = roster.id("mote").unwrap();
        let link = LinkKey::new(&LinkKey::secret_of(&GROUP_SECRET, roster.group(), device));
        let mut coordinator = GroupCoordinator::new(roster.clone(), GROUP_SECRET).unwrap();
        let known =
            Uplink::Schema(&before).close(device, &link, &mut [0; MAX_FRAME]).unwrap().to_vec();
        let mut frames = frames(&roster, scheme);
        let (schema, close) = (frames.remove(0), frames.pop().unwrap());
        for frame in [known].into_iter().chain(frames).chain([close.clone(), schema]) {
            let _ = coordinator.receive(&frame, EPOCH).unwrap();
        }
        let closed = coordinator.receive(&close, EPOCH);
        if budget == 60 || scheme == Scheme::Tree {
            assert_eq!(closed.unwrap_err(), Refused::NotAsForwarded);
            continue;
        }
        assert!(closed.unwrap().durable);
        let ended = coordinator.end(EPOCH, &secret(99)).unwrap();
        let (from, rows) = read(&roster, &ended.bundles[0]);
        assert_eq!((from, rows.len()), (Some(Round(0)), EVENTS as usize));
    }
}
