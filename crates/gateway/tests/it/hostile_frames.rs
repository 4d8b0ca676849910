//! Frames that have a valid tag, but that no honest device sends: every byte altered, every
//! truncation, and a device that opens more and more epochs. A rejected frame changes nothing. An
//! accepted frame affects no other device, and replaying the journal restores the same state.

use std::collections::BTreeSet;

use hmac::{Hmac, KeyInit, Mac};
use moteseal_core::link::{LinkKey, MAX_FRAME};
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Framing, Round, SealIndex, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
use moteseal_core::{DeviceId, Digest};
use moteseal_gateway::coordinator::{Counts, Standing};
use moteseal_gateway::{GroupCoordinator, Refused};
use moteseal_seal::level::{Counters, Salt};
use moteseal_seal::stream::{Open, Selection};
use moteseal_seal::wire::{Forward, Uplink};
use moteseal_seal::{Seal, Statement, star};
use moteseal_verify::issue::{Budget, FirstRoster};
use moteseal_verify::{Roster, SchemaEntry, write};

const GROUP_SECRET: [u8; 32] = [0x51; 32];
const FIRST: u64 = 70;
const NOW: EpochNumber = EpochNumber(FIRST + 1);
const LEVELS: u8 = 8;

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

fn roster(budget: u64) -> Roster {
    let keys =
        ["liar", "honest"].into_iter().zip(0..).map(|(name, byte)| (name, secret(byte).public()));
    let devices: Vec<_> = keys.collect();
    let budget = Some(Budget { events: budget, coordinator: secret(99).public() });
    let first =
        FirstRoster { group: "field", epoch_ms: 1000, levels: LEVELS, budget, devices: &devices };
    Roster::open(&first.issue(&secret(98)).unwrap(), &secret(98).public()).unwrap()
}

struct World {
    roster: Roster,
    coordinator: GroupCoordinator,
    liar: DeviceId,
    honest: DeviceId,
}

/// The visible state of a coordinator, except for its acknowledgements to the dishonest device.
type Seen = (Standing, Vec<(EpochNumber, u64, Round)>, Counts, Option<Vec<u8>>);

impl World {
    fn new(budget: u64) -> Self {
        let roster = roster(budget);
        let (liar, honest) = (roster.id("liar").unwrap(), roster.id("honest").unwrap());
        let coordinator = GroupCoordinator::new(roster.clone(), GROUP_SECRET).unwrap();
        Self { roster, coordinator, liar, honest }
    }

    /// Returns a world in which both devices have sent their schemas.
    fn with_schemas() -> Self {
        let mut world = Self::new(100);
        for device in [world.liar, world.honest] {
            let frame = world.close(device, &Uplink::Schema(&schema()));
            assert!(world.coordinator.receive(&frame, NOW).unwrap().durable);
        }
        world
    }

    /// Returns a world in which both devices have a seal open.
    fn under_way() -> Self {
        let mut world = Self::with_schemas();
        for device in [world.liar, world.honest] {
            let frame = world.forward(device, 0, FIRST, 0..30);
            assert!(world.coordinator.receive(&frame, NOW).unwrap().durable);
        }
        world
    }

    fn key(&self, device: DeviceId) -> LinkKey {
        LinkKey::new(&LinkKey::secret_of(&GROUP_SECRET, self.roster.group(), device))
    }

    fn close(&self, device: DeviceId, uplink: &Uplink<'_>) -> Vec<u8> {
        let mut out = vec![0; MAX_FRAME];
        uplink.close(device, &self.key(device), &mut out).unwrap().to_vec()
    }

    /// Returns a frame with events of level 5, one for each sequence number.
    fn forward(
        &self,
        device: DeviceId,
        index: u32,
        epoch: u64,
        range: std::ops::Range<u64>,
    ) -> Vec<u8> {
        let events: Vec<u8> =
            range.clone().flat_map(|seq| [5, 0, 0, 0, u8::try_from(seq % 200).unwrap()]).collect();
        let forward = Forward {
            index: SealIndex(index),
            epoch: EpochNumber(epoch),
            own_round: Round(0),
            from: Sequence(range.start),
            until: Sequence(range.end),
            framing: Framing::fixed(4).unwrap(),
            events: &events,
            digests: None,
        };
        self.close(device, &Uplink::Forward(forward))
    }

    /// Returns the frame that closes the dishonest device's first seal, which contains no events.
    fn seal_of_nothing(&self, index: u32, epoch: u64) -> Vec<u8> {
        let known = self.roster.device(self.liar).unwrap();
        let (group, digest) = (self.roster.group(), self.roster.digest());
        let mut statement = Statement::new(Scheme::Star, group, digest, self.liar, LEVELS);
        (statement.index, statement.prev, statement.restart) =
            (SealIndex(index), known.certificate, index > 0);
        (statement.epoch, statement.last_in_epoch) = (EpochNumber(epoch), true);
        statement.schema = SchemaEntry::decode(&schema()).unwrap().digest;
        statement.salt = Salt([3; 16]);
        statement.counters = Counters::new(LEVELS);
        let root = star::root(&statement.counters, &[Digest::NULL; LEVELS as usize]);
        let (prev, surviving) = (statement.prev, statement.surviving());
        let seal = Seal::new(statement, root, Algorithm::Ed25519);
        let signature = secret(0).signature(seal.message(&mut [0; _])).unwrap();
        let (mut open, mut part) = (Vec::new(), Vec::new());
        write::open(
            &mut open,
            &Open { device: self.liar, roster_version: 0, prev: Some(prev), last: None },
        );
        write::part(&mut part, &seal, Selection::Levels(surviving), &[], &[], Some(&signature));
        self.close(
            self.liar,
            &Uplink::Close { schema: seal.statement().schema, open: &open, part: &part },
        )
    }

    fn seen(&mut self) -> Seen {
        let epochs: Vec<_> = self.coordinator.epochs().collect();
        let epochs = epochs
            .into_iter()
            .map(|epoch| (epoch, self.coordinator.kept(epoch), self.coordinator.round(epoch)))
            .collect();
        (
            self.coordinator.standing(),
            epochs,
            self.coordinator.counts(),
            self.coordinator.acknowledgement(self.honest),
        )
    }
}

/// The schema of records of 4 bytes.
pub(crate) fn schema() -> Vec<u8> {
    let mut buffer = [0; 256];
    Schema::encode(&[Field::parse("reading::u32").unwrap()], &mut buffer)
        .unwrap()
        .as_bytes()
        .to_vec()
}

fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    Hmac::<sha2::Sha256>::new_from_slice(key)
        .unwrap()
        .chain_update(message)
        .finalize()
        .into_bytes()
        .into()
}

/// Returns the item with a valid tag, made with the dishonest device's key.
fn tagged(world: &World, item: &[u8]) -> Vec<u8> {
    let secret = LinkKey::secret_of(&GROUP_SECRET, world.roster.group(), world.liar);
    let tag = hmac(&hmac(&*secret, b"moteseal/1/link/up"), item);
    [item, &tag[..16]].concat()
}

/// Returns whether spec/errors.md lists the name.
fn is_listed(name: &str) -> bool {
    include_str!("../../../../spec/errors.md").contains(&format!("`{name}`"))
}

/// Receives an altered frame, and checks its effects. Returns the name of the rejection, if the
/// frame is rejected.
fn check_frame(world: &mut World, frame: &[u8]) -> Option<&'static str> {
    let before = world.seen();
    match world.coordinator.receive(frame, NOW) {
        Err(refused) => {
            assert_eq!(world.seen(), before, "{refused}");
            assert!(is_listed(refused.name()), "{refused}");
            Some(refused.name())
        }
        Ok(news) if news.durable => {
            let after = world.seen();
            assert_eq!(
                after.3, before.3,
                "the acknowledgement to the other device has not changed"
            );
            assert!(after.1.iter().all(|(_, kept, _)| *kept <= 100));
            // Replaying the journal restores the same state.
            *world = World::under_way();
            let again = world.coordinator.receive(frame, NOW).unwrap();
            assert_eq!((again, world.seen()), (news, after));
            *world = World::under_way();
            None
        }
        Ok(_) => {
            assert_eq!(world.seen(), before);
            None
        }
    }
}

#[test]
fn an_altered_frame_with_a_valid_tag_is_rejected_or_affects_no_other_device() {
    let mut world = World::under_way();
    let frames = [
        world.forward(world.liar, 0, FIRST, 30..36),
        world.forward(world.liar, 1, FIRST + 1, 0..6),
        world.seal_of_nothing(1, FIRST + 1),
        world.close(world.liar, &Uplink::Schema(&schema())),
    ];
    let (mut names, mut taken) = (BTreeSet::new(), 0);
    for frame in frames {
        let is_known =
            matches!(Uplink::open(&frame, &world.key(world.liar)), Ok(Uplink::Schema(_)));
        assert_eq!(World::under_way().coordinator.receive(&frame, NOW).unwrap().durable, !is_known);
        let item = &frame[..frame.len() - 16];
        for length in 0..item.len() {
            let cut = tagged(&world, &item[..length]);
            // If the device id is truncated, the decoder reads the first bytes of the tag as the
            // rest of the id.
            let name = if (3..11).contains(&length) { "UnknownDevice" } else { "Malformed" };
            assert_eq!(check_frame(&mut world, &cut), Some(name), "{length} bytes");
        }
        for place in 0..item.len() {
            for flip in 1..=255u8 {
                let mut altered = item.to_vec();
                altered[place] ^= flip;
                let altered = tagged(&world, &altered);
                match check_frame(&mut world, &altered) {
                    Some(name) => _ = names.insert(name),
                    None => taken += 1,
                }
            }
        }
    }
    assert!(
        taken > 1000,
        "alterations of records and numbers are valid, so many frames must be accepted: {taken}"
    );
    let expected = [
        "EpochGoesBack",
        "EpochTooFar",
        "FramingChanged",
        "Malformed",
        "MalformedClose",
        "NotAsForwarded",
        "NotAuthentic",
        "Schema",
        "UnknownDevice",
    ];
    assert!(expected.iter().all(|name| names.contains(name)), "{names:?}");
    // The honest device can still send frames.
    let next = world.forward(world.honest, 0, FIRST, 30..60);
    assert!(world.coordinator.receive(&next, NOW).unwrap().durable);
}

#[test]
fn a_device_that_opens_too_many_epochs_does_not_keep_others_from_opening_one() {
    let mut world = World::with_schemas();
    let now = EpochNumber(FIRST + 600);
    // Send one event in each of 512 epochs, each under a new index.
    for opened in 0..512 {
        let frame = world.forward(world.liar, opened, FIRST + u64::from(opened), 0..1);
        assert!(world.coordinator.receive(&frame, now).unwrap().durable, "{opened}");
    }
    let before = world.seen();
    for epoch in [FIRST + 512, FIRST + 513] {
        let frame = world.forward(world.liar, 512, epoch, 0..1);
        assert_eq!(world.coordinator.receive(&frame, now).unwrap_err(), Refused::TooManyEpochs);
    }
    assert_eq!(world.seen(), before);
    // If another device reaches the epoch, it opens the epoch for both devices.
    let (honest, liar) = (
        world.forward(world.honest, 0, FIRST + 512, 0..1),
        world.forward(world.liar, 512, FIRST + 512, 0..1),
    );
    assert!(
        world.coordinator.receive(&honest, now).unwrap().durable
            && world.coordinator.receive(&liar, now).unwrap().durable
    );
    assert_eq!(
        world
            .coordinator
            .receive(&world.forward(world.liar, 513, FIRST + 513, 0..1), now)
            .unwrap_err(),
        Refused::TooManyEpochs
    );
    // When one of the device's epochs has ended, the device may open another epoch.
    world.coordinator.end(EpochNumber(FIRST), &secret(99)).unwrap();
    assert!(
        world
            .coordinator
            .receive(&world.forward(world.liar, 513, FIRST + 513, 0..1), now)
            .unwrap()
            .durable
    );
    assert_eq!(
        world
            .coordinator
            .receive(&world.forward(world.liar, 514, FIRST + 514, 0..1), now)
            .unwrap_err(),
        Refused::TooManyEpochs
    );
}
