//! Devices of the group that lie to an honest gateway, in frames and in signed statements. The
//! audit never accuses the coordinator of a wrong round. If the audit cannot decide, it names the
//! lying device.

use crate::group;
use std::collections::BTreeMap;

use crate::group::{FIRST, LEVELS, secret};
use moteseal_client::audit::{Audit, EpochReport, Finding};
use moteseal_core::link::MAX_FRAME;
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Framing, Level, Round, SealIndex, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::Signer as _;
use moteseal_core::{DeviceId, Digest};
use moteseal_device::seal::{Chain, Profile};
use moteseal_gateway::GroupCoordinator;
use moteseal_seal::follow::Limits;
use moteseal_seal::level::LevelKey;
use moteseal_seal::level::{Counters, SaltKey};
use moteseal_seal::stream::{Open, Selection};
use moteseal_seal::wire::{Forward, Uplink};
use moteseal_seal::{Position, Seal, Statement, star};
use moteseal_verify::{Event, ReadError, Roster, StreamReader, write};

const BUDGET: u64 = 50;
const LIAR: u8 = 0;
const HONEST: u8 = 1;

/// A device with keys and a chain. The test chooses what its seals state.
struct Device {
    number: u8,
    profile: Profile,
    position: Position,
}

/// What a seal states, without its position in the chain.
#[derive(Clone, Copy)]
struct Claim {
    index: u32,
    epoch: u64,
    n: u32,
    round: u8,
    own_round: u8,
    is_last: bool,
}

impl Claim {
    /// Returns the statement of a seal without events that closes its epoch.
    const fn nothing(index: u32, epoch: u64) -> Self {
        Self { index, epoch, n: 0, round: 0, own_round: 0, is_last: true }
    }
}

struct World {
    roster: Roster,
    coordinator: GroupCoordinator,
    devices: [Device; 2],
    /// The frames that a gateway's journal would contain. A restart reads them again.
    journal: Vec<Vec<u8>>,
    stream: Vec<u8>,
    bundles: Vec<Vec<u8>>,
}

impl Device {
    fn salt_key(&self) -> SaltKey {
        SaltKey::new([self.number; 32])
    }

    fn level(&self, index: u32, seq: u64) -> Level {
        LevelKey::new(&self.salt_key().salt(self.profile.device, SealIndex(index)))
            .level(seq, LEVELS)
    }

    /// Returns a frame that closes a seal.
    fn close(&mut self, roster: &Roster, claim: Claim, position: Position) -> Vec<u8> {
        let (open, part) = self.seal(roster, claim, position);
        let close = Uplink::Close { schema: self.profile.schema_digest, open: &open, part: &part };
        frame(roster, self.profile.device, &close)
    }

    /// Returns the items of a seal. Each record is its sequence number, even if the device has
    /// forwarded other records.
    fn seal(&mut self, roster: &Roster, claim: Claim, position: Position) -> (Vec<u8>, Vec<u8>) {
        let (device, index) = (self.profile.device, SealIndex(claim.index));
        let mut statement =
            Statement::new(Scheme::Star, roster.group(), roster.digest(), device, LEVELS);
        (statement.index, statement.prev, statement.last) = (index, position.prev, position.last);
        (statement.epoch, statement.last_in_epoch) = (EpochNumber(claim.epoch), claim.is_last);
        statement.restart = claim.index != position.last.map_or(0, |(last, _)| last.0 + 1);
        statement.schema = self.profile.schema_digest;
        statement.salt = self.salt_key().salt(device, index);
        statement.counters = Counters::of(&statement.salt, LEVELS, claim.n);
        (statement.round, statement.own_round) = (Round(claim.round), Round(claim.own_round));
        let mut blocks = [Digest::NULL; LEVELS as usize];
        for level in (0..LEVELS).map(Level).filter(|level| !statement.is_null(*level)) {
            let of_level =
                (0..claim.n).filter(|seq| self.level(claim.index, u64::from(*seq)) == level);
            let block: Vec<u8> = of_level.flat_map(u32::to_be_bytes).collect();
            blocks[usize::from(level.0)] = star::block_digest(device, index, level, &block);
        }
        let root = star::root(&statement.counters, &blocks);
        let surviving = statement.surviving();
        let signer = secret(self.number);
        let seal = Seal::new(statement, root, signer.algorithm());
        let signature = signer.signature(seal.message(&mut [0; _])).unwrap();
        let (mut open, mut part) = (Vec::new(), Vec::new());
        write::open(
            &mut open,
            &Open { device, roster_version: 0, prev: Some(position.prev), last: position.last },
        );
        write::part(&mut part, &seal, Selection::Levels(surviving), &[], &[], Some(&signature));
        self.position = seal.position();
        (open, part)
    }
}

fn frame(roster: &Roster, device: DeviceId, uplink: &Uplink<'_>) -> Vec<u8> {
    let mut out = vec![0; MAX_FRAME];
    uplink.close(device, &group::link_key(roster, device), &mut out).unwrap().to_vec()
}

impl World {
    fn new() -> Self {
        let roster = group::roster(2, BUDGET, 1000);
        let mut buffer = [0; 256];
        let schema = Schema::encode(&[Field::parse("reading::u32").unwrap()], &mut buffer).unwrap();
        let devices = [LIAR, HONEST].map(|number| {
            let profile =
                Profile::new(&roster, &format!("mote-{number}"), Scheme::Star, &schema).unwrap();
            Device { number, position: Chain::start(profile.certificate).position, profile }
        });
        let coordinator = GroupCoordinator::new(roster.clone(), group::GROUP_SECRET).unwrap();
        let mut world = Self {
            roster,
            coordinator,
            devices,
            journal: Vec::new(),
            stream: Vec::new(),
            bundles: Vec::new(),
        };
        for number in [LIAR, HONEST] {
            let device = world.devices[usize::from(number)].profile.device;
            let frame = frame(&world.roster, device, &Uplink::Schema(schema.as_bytes()));
            world.receive(frame).unwrap();
        }
        world
    }

    fn receive(&mut self, frame: Vec<u8>) -> Result<(), &'static str> {
        let news = self
            .coordinator
            .receive(&frame, EpochNumber(FIRST + 5))
            .map_err(|refused| refused.name())?;
        if news.durable {
            self.journal.push(frame);
        }
        Ok(())
    }

    /// Forwards events of the liar with the levels that `level` returns. Omits the events for which
    /// it returns `None`.
    fn forward(
        &mut self,
        (index, epoch): (u32, u64),
        own_round: u8,
        range: std::ops::Range<u64>,
        level: impl Fn(&Device, u64) -> Option<u8>,
    ) -> Result<(), &'static str> {
        let device = &self.devices[0];
        let (mut events, mut next) = (Vec::new(), range.start);
        for seq in range.clone() {
            let Some(level) = level(device, seq) else { continue };
            let mut out = [0; 16];
            let mut writer = moteseal_core::cbor::Writer::new(&mut out);
            let record = u32::try_from(seq).unwrap().to_be_bytes();
            moteseal_seal::wire::encode_event(
                &mut writer,
                Sequence(next),
                Sequence(seq),
                Level(level),
                None,
                &record,
            )
            .unwrap();
            events.extend_from_slice(writer.finish());
            next = seq + 1;
        }
        let forward = Forward {
            index: SealIndex(index),
            epoch: EpochNumber(epoch),
            own_round: Round(own_round),
            from: Sequence(range.start),
            until: Sequence(range.end),
            framing: Framing::fixed(4).unwrap(),
            events: &events,
            digests: None,
        };
        let frame = frame(&self.roster, device.profile.device, &Uplink::Forward(forward));
        self.receive(frame)
    }

    /// Forwards two thousand events of the liar, which raise the round of the epoch until almost
    /// nothing is kept.
    fn raise(&mut self, index: u32, epoch: u64) -> Result<(), &'static str> {
        let before = self.coordinator.round(EpochNumber(epoch));
        self.forward((index, epoch), 0, 0..2000, |_, _| Some(5))?;
        let after = self.coordinator.round(EpochNumber(epoch));
        assert!(
            after >= Round(6) || self.coordinator.kept(EpochNumber(epoch)) == 0,
            "{before} to {after}"
        );
        Ok(())
    }

    fn close(&mut self, device: u8, claim: Claim) -> Result<(), &'static str> {
        let position = self.devices[usize::from(device)].position;
        self.close_at(device, claim, position)
    }

    /// Closes a seal of the liar at another position in its chain.
    fn close_at(
        &mut self,
        device: u8,
        claim: Claim,
        position: Position,
    ) -> Result<(), &'static str> {
        let before = self.devices[usize::from(device)].position;
        let frame = self.devices[usize::from(device)].close(&self.roster, claim, position);
        let outcome = self.receive(frame);
        if outcome.is_err() {
            self.devices[usize::from(device)].position = before;
        }
        outcome
    }

    /// Makes a seal of the liar without events and uploads it to the cloud without the coordinator.
    fn bypass(&mut self, claim: Claim, position: Position) {
        let (open, part) = self.devices[0].seal(&self.roster, claim, position);
        let mut bundle = Vec::new();
        write::schema(&mut bundle, &self.devices[0].profile.schema);
        self.bundles.push([bundle, open, part].concat());
    }

    /// Closes an epoch of the honest device, ends the epoch, and restarts the gateway, which must
    /// have the same state afterwards.
    fn end(&mut self, epoch: u64) {
        let index = self.devices[1].position.last.map_or(0, |(last, _)| last.0 + 1);
        self.close(HONEST, Claim::nothing(index, epoch)).unwrap();
        let ended = self.coordinator.end(EpochNumber(epoch), &secret(group::COORDINATOR)).unwrap();
        write::manifest(&mut self.stream, &ended.manifest);
        self.bundles.extend(ended.bundles);
        self.bundles.extend(self.coordinator.take_late().into_iter().map(|(_, bundle)| bundle));
        let standing = self.coordinator.standing();
        let mut coordinator =
            GroupCoordinator::new(self.roster.clone(), group::GROUP_SECRET).unwrap();
        coordinator.resume(standing.clone());
        for frame in &self.journal {
            let _ = coordinator.receive(frame, EpochNumber(FIRST + 5));
        }
        assert_eq!(coordinator.standing(), standing);
        self.bundles.extend(coordinator.take_late().into_iter().map(|(_, bundle)| bundle));
        self.coordinator = coordinator;
    }

    /// Returns the audit's report on an epoch.
    fn audit(mut self, epoch: u64) -> EpochReport {
        self.bundles.extend(self.coordinator.take_late().into_iter().map(|(_, bundle)| bundle));
        let mut seals = BTreeMap::new();
        for bundle in &self.bundles {
            let mut reader = StreamReader::new(&self.roster, Limits::default());
            let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
                if let Event::Proven(proven) = event {
                    seals.insert(
                        (proven.seal.statement().device, proven.seal.statement().index),
                        bundle,
                    );
                }
                Ok(())
            };
            reader.feed(bundle, &mut visit).unwrap();
            reader.finish(&mut visit).unwrap();
        }
        seals.values().for_each(|bundle| self.stream.extend_from_slice(bundle));
        write::end(&mut self.stream);
        let mut audit = Audit::new(&self.roster, EpochNumber(FIRST), None).unwrap();
        let mut feed = audit.stream();
        feed.feed(&self.stream).unwrap();
        feed.finish().unwrap();
        let report = audit.finish();
        // The only permitted finding is a missing seal of the liar to which the liar's own chain
        // refers.
        for (_, finding) in report.findings() {
            let liar = self.devices[0].profile.device;
            assert!(
                matches!(finding, Finding::Missing { device, .. } if *device == liar),
                "{finding:?}"
            );
        }
        report.epochs.into_iter().find(|audited| audited.epoch == EpochNumber(epoch)).unwrap()
    }

    /// Asserts that an epoch is not justified, and that its doubts name only the liar.
    fn assert_undetermined(self, epoch: u64) {
        let (liar, honest) = (self.devices[0].profile.device, self.devices[1].profile.device);
        let audited = self.audit(epoch);
        assert!(!audited.is_justified && !audited.doubts.is_empty(), "{audited:?}");
        let doubts = format!("{:?}", audited.doubts);
        assert!(
            doubts.contains(&format!("{liar:?}")) && !doubts.contains(&format!("{honest:?}")),
            "{doubts}"
        );
    }
}

/// Returns the position in a chain after a seal that was never sent.
const fn after_missing_seal(index: u32, epoch: u64) -> Position {
    Position {
        prev: Digest([7; 32]),
        last: Some((SealIndex(index), EpochNumber(epoch))),
        epoch_closed: false,
    }
}

#[test]
fn accepts_an_honest_seal_of_forwarded_events() {
    let mut world = World::new();
    world.forward((0, FIRST), 0, 0..400, |device, seq| Some(device.level(0, seq).0)).unwrap();
    let round = world.coordinator.round(EpochNumber(FIRST)).0;
    assert!(round > 0);
    world
        .close(LIAR, Claim { n: 400, round, own_round: round, ..Claim::nothing(0, FIRST) })
        .unwrap();
    world.end(FIRST);
    let audited = world.audit(FIRST);
    assert!(audited.is_justified, "{audited:?}");
}

#[test]
fn a_seal_cannot_deny_that_its_events_were_forwarded() {
    let mut world = World::new();
    world.raise(0, FIRST).unwrap();
    assert_eq!(world.close(LIAR, Claim::nothing(0, FIRST)), Err("NotAsForwarded"));
    assert_eq!(
        world.close(LIAR, Claim { n: 1999, own_round: 7, ..Claim::nothing(0, FIRST) }),
        Err("NotAsForwarded")
    );
    // A seal under the same index in a later epoch is refused for the same reason.
    assert_eq!(world.close(LIAR, Claim::nothing(0, FIRST + 1)), Err("NotAsForwarded"));
    world.end(FIRST);
    world.assert_undetermined(FIRST);
}

#[test]
fn checks_claimed_levels_without_blocks_that_prove_them() {
    let mut world = World::new();
    // The liar forwards events of level 7 with their true level and all others with level 5. Then
    // it claims round 7, so that it needs no blocks for level 5.
    let is_highest = |device: &Device, seq: u64| device.level(0, seq).0 == 7;
    world
        .forward((0, FIRST), 0, 0..1500, |device, seq| {
            Some(if is_highest(device, seq) { 7 } else { 5 })
        })
        .unwrap();
    world
        .forward((0, FIRST), 7, 1500..1600, |device, seq| is_highest(device, seq).then_some(7))
        .unwrap();
    let claim = Claim { n: 1600, own_round: 7, ..Claim::nothing(0, FIRST) };
    assert_eq!(world.close(LIAR, claim), Err("NotAsForwarded"));
    world.end(FIRST);
    world.assert_undetermined(FIRST);
}

#[test]
fn a_seal_cannot_state_a_round_that_was_never_announced() {
    let mut world = World::new();
    assert_eq!(
        world.close(LIAR, Claim { round: 3, own_round: 3, ..Claim::nothing(0, FIRST) }),
        Err("RoundNotAnnounced")
    );
    world.end(FIRST);
    world.assert_undetermined(FIRST);
}

#[test]
fn an_abandoned_seal_of_a_later_epoch_cannot_be_hidden_by_an_earlier_one() {
    let mut world = World::new();
    world.raise(0, FIRST + 1).unwrap();
    assert_eq!(world.close(LIAR, Claim::nothing(1, FIRST)), Err("EpochGoesBack"));
    assert_eq!(world.forward((1, FIRST), 0, 0..10, |_, _| Some(5)), Err("EpochGoesBack"));
    world.end(FIRST);
    world.close(LIAR, Claim::nothing(1, FIRST + 1)).unwrap();
    world.end(FIRST + 1);
    world.assert_undetermined(FIRST + 1);
}

#[test]
fn refuses_events_of_an_epoch_that_the_device_has_closed() {
    let mut world = World::new();
    world.close(LIAR, Claim::nothing(0, FIRST + 1)).unwrap();
    for epoch in [FIRST, FIRST + 1] {
        assert_eq!(world.raise(1, epoch), Err("EpochGoesBack"));
        assert_eq!(world.coordinator.round(EpochNumber(epoch)), Round(0));
    }
    world.end(FIRST);
    world.end(FIRST + 1);
    let audited = world.audit(FIRST + 1);
    assert!(audited.is_justified, "{audited:?}");
}

#[test]
fn does_not_list_a_seal_that_claims_an_abandoned_one_was_sealed() {
    let mut world = World::new();
    world.raise(0, FIRST).unwrap();
    // The seal states no restart, as if the abandoned seal had been closed but lost elsewhere.
    world.close_at(LIAR, Claim::nothing(1, FIRST), after_missing_seal(0, FIRST)).unwrap();
    world.end(FIRST);
    world.close(LIAR, Claim::nothing(2, FIRST + 1)).unwrap();
    world.end(FIRST + 1);
    world.assert_undetermined(FIRST);
}

#[test]
fn a_chain_cannot_move_an_abandoned_seal_to_an_earlier_epoch() {
    for restarts in [false, true] {
        let mut world = World::new();
        world.raise(0, FIRST + 1).unwrap();
        if restarts {
            // The gateway knows the abandoned seal even after the seal's epoch has ended and the
            // gateway has restarted.
            world.forward((1, FIRST + 2), 0, 0..1, |_, _| Some(0)).unwrap();
            world.end(FIRST + 1);
        }
        let claim = Claim::nothing(2, FIRST + 2);
        assert_eq!(world.close_at(LIAR, claim, after_missing_seal(1, FIRST)), Err("EpochGoesBack"));
        world.close(LIAR, claim).unwrap();
        if !restarts {
            world.end(FIRST + 1);
        }
        world.end(FIRST + 2);
        world.assert_undetermined(FIRST + 1);
    }
}

#[test]
fn an_abandoned_seal_is_a_restart() {
    let mut world = World::new();
    world.raise(0, FIRST).unwrap();
    world.close(LIAR, Claim::nothing(1, FIRST)).unwrap();
    world.end(FIRST);
    world.assert_undetermined(FIRST);
}

#[test]
fn a_chain_that_bypassed_the_coordinator_does_not_accuse_it() {
    // The lying device announces a higher round for a seal index. It then uses this index for a
    // seal of a later epoch. It does so with and without an earlier seal.
    for sealed_before in [false, true] {
        let mut world = World::new();
        let index = u32::from(sealed_before);
        if sealed_before {
            world.close(LIAR, Claim::nothing(0, FIRST)).unwrap();
            world.end(FIRST);
        }
        let epoch = FIRST + u64::from(index);
        world.raise(index, epoch).unwrap();
        world.end(epoch);
        world.bypass(Claim::nothing(index, epoch + 1), world.devices[0].position);
        world.end(epoch + 1);
        world.assert_undetermined(epoch);
    }
}

#[test]
fn a_chain_that_returns_to_the_coordinator_does_not_accuse_it_falsely() {
    for later_seals in 1..4 {
        let mut world = World::new();
        world.raise(0, FIRST).unwrap();
        world.end(FIRST);
        world.bypass(Claim::nothing(0, FIRST + 1), world.devices[0].position);
        world.end(FIRST + 1);
        for number in 0..later_seals {
            let epoch = FIRST + 2 + u64::from(number);
            world.close(LIAR, Claim::nothing(1 + number, epoch)).unwrap();
            world.end(epoch);
        }
        world.assert_undetermined(FIRST);
    }
}

#[test]
fn later_seals_cannot_hide_forwarded_events_of_an_epoch() {
    let mut world = World::new();
    // The first seal is listed and does not close its epoch. It is followed by events that are
    // never sealed, and by a seal that is uploaded without the coordinator.
    world.close(LIAR, Claim { is_last: false, ..Claim::nothing(0, FIRST) }).unwrap();
    world.raise(1, FIRST).unwrap();
    world.end(FIRST);
    world.bypass(Claim::nothing(1, FIRST + 1), world.devices[0].position);
    world.end(FIRST + 1);
    world.assert_undetermined(FIRST);
}

#[test]
fn a_device_that_returns_late_leaves_no_undetermined_epoch() {
    let mut world = World::new();
    world.close(LIAR, Claim::nothing(0, FIRST)).unwrap();
    (FIRST..FIRST + 4).for_each(|epoch| world.end(epoch));
    // The device misses several epochs, closes the newest of them after its end, and continues.
    world.close(LIAR, Claim::nothing(1, FIRST + 3)).unwrap();
    world.close(LIAR, Claim::nothing(2, FIRST + 4)).unwrap();
    world.end(FIRST + 4);
    let audited = world.audit(FIRST + 1);
    assert!(audited.is_justified, "{audited:?}");
}

#[test]
fn a_restart_after_a_closed_epoch_does_not_affect_it() {
    let mut world = World::new();
    world.forward((0, FIRST), 0, 0..400, |device, seq| Some(device.level(0, seq).0)).unwrap();
    let round = world.coordinator.round(EpochNumber(FIRST)).0;
    world
        .close(LIAR, Claim { n: 400, round, own_round: round, ..Claim::nothing(0, FIRST) })
        .unwrap();
    world.end(FIRST);
    world.close(LIAR, Claim::nothing(2, FIRST + 1)).unwrap();
    world.end(FIRST + 1);
    let audited = world.audit(FIRST);
    assert!(audited.is_justified && audited.doubts.is_empty(), "{audited:?}");
}
