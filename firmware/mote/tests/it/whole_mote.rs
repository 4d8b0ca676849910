//! Tests a complete mote with flash that loses power at any word, a link that loses frames, and a
//! coordinator that checks everything: the events of a seal are exactly the readings that were
//! sensed, no index is signed twice, and after a loss the next seal states that readings are
//! missing.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use crate::faulty_flash::{Chance, Simulated};
use moteseal_core::confidential::KeyCommitments;
use moteseal_core::digest::Digest;
use moteseal_core::link::LinkKey;
use moteseal_core::provision::{Provisioning, ReplayedWindow};
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Framing, GroupId, Level, SealIndex, Sequence};
use moteseal_core::schema::{Field, GroupLayout, Groups, Schema};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};
use moteseal_mote::durable::{Durable, Settings};
use moteseal_mote::notice::Notice;
use moteseal_mote::readings::{Next, Readings, Recording};
use moteseal_mote::{Fault, Mote};
use moteseal_seal::level::Counters;
use moteseal_seal::sample::{Followed, FrameOutcome};
use moteseal_seal::stream::Item;
use moteseal_seal::tree::Tree;
use moteseal_seal::wire::{Acknowledgement, MAX_ACKNOWLEDGEMENT, StoredSeal, Uplink};
use moteseal_seal::{Position, Seal, Statement, star};
use moteseal_serial::Channel;
use zeroize::Zeroizing;

pub(crate) const DEVICE: DeviceId = DeviceId([7; 8]);
const LEVELS: u8 = 8;
pub(crate) const COUNT: u32 = 900;
const EPOCH_MS: u64 = 60_000;
pub(crate) const BUFFER: usize = 1024;
pub(crate) const CERTIFICATE: Digest = Digest([8; 32]);
const SECRET: [u8; 32] = [3; 32];

fn secret() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[9; 32]).unwrap()
}

pub(crate) fn provisioning(schema: &[u8], scheme: Scheme) -> Provisioning<'_> {
    Provisioning {
        device: DEVICE,
        group: GroupId([2; 8]),
        roster: (Digest([6; 32]), 7),
        certificate: CERTIFICATE,
        levels: LEVELS,
        epoch_ms: EPOCH_MS,
        epochs: (EpochNumber(0), None),
        start_ms: 0,
        scheme,
        schema,
        signer: secret(),
        salt_key: Zeroizing::new([10; 32]),
        link_secret: Zeroizing::new(SECRET),
        coordinator: secret().public(),
        window: ReplayedWindow {
            first: 0,
            count: COUNT,
            start_ms: 5 * EPOCH_MS + 7,
            every_ms: 1000,
            interval_ms: 1,
        },
        sums: None,
        audience: None,
        operator: Some(SecretKey::from_seed(Algorithm::Ed25519, &[15; 32]).unwrap().public()),
    }
}

/// The readings of a sensor that the mote has not taken yet. For each reading: its time, its
/// record, and whether readings before it were lost.
#[derive(Default)]
struct Feed {
    waiting: VecDeque<(u64, [u8; 4], bool)>,
    has_lost: bool,
}

/// A sensor that cannot repeat a reading and can store only a few: if the mote is too slow, it
/// loses readings and reports the gap.
struct Sensor {
    feed: Rc<RefCell<Feed>>,
    front: Option<(u64, [u8; 4], bool)>,
    place: Option<u32>,
}

impl Readings for Sensor {
    fn next(&mut self, place: u32) -> Next<'_> {
        // If the mote asks for a new place, it has taken the previous reading.
        if self.front.is_none() || self.place != Some(place) {
            (self.front, self.place) = (self.feed.borrow_mut().waiting.pop_front(), Some(place));
        }
        if self.front.as_mut().is_some_and(|(.., has_lost)| std::mem::take(has_lost)) {
            return Next::Missed;
        }
        self.front
            .as_ref()
            .map_or(Next::Later, |(unix_ms, record, _)| Next::Reading(*unix_ms, record))
    }

    fn resume(&mut self, _: u32) {
        let mut feed = self.feed.borrow_mut();
        // Readings that are sensed during a power failure are lost.
        feed.waiting.clear();
        feed.has_lost = true;
        (self.front, self.place) = (None, None);
    }

    fn can_wait(&self) -> bool {
        false
    }

    fn record_size(&self) -> Option<usize> {
        Some(4)
    }
}

/// The content of the frames that the coordinator has received for one seal.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) epoch: u64,
    pub(crate) keys: Option<KeyCommitments>,
    pub(crate) restart: bool,
    own_round: u8,
    has_lost: bool,
    pub(crate) count: u64,
    /// The records by sequence number.
    pub(crate) records: BTreeMap<u64, [u8; 4]>,
}

/// A coordinator of one mote. It rebuilds each seal from the forwarded events; the signature then
/// proves whether the events are complete.
pub(crate) struct Coordinator {
    key: LinkKey,
    public: PublicKey,
    schema: Digest,
    /// The column groups of the schema, if it has any.
    layout: Option<GroupLayout>,
    pub(crate) followed: Option<Followed>,
    events: BTreeMap<u64, [u8; 4]>,
    position: Position,
    pub(crate) sealed: BTreeMap<u32, Taken>,
    challenge: Option<u64>,
}

impl Coordinator {
    pub(crate) fn receive(&mut self, frame: &[u8]) -> Vec<u8> {
        match Uplink::open(frame, &self.key).unwrap() {
            Uplink::Schema(_) => {}
            Uplink::Challenge(challenge) => self.challenge = Some(challenge),
            Uplink::Forward(forward) => {
                let followed = self.followed.get_or_insert(Followed::start(&forward));
                let mut outcome = followed.receive(&forward);
                if let FrameOutcome::Next(next) = outcome {
                    (*followed, outcome) = (next, followed_again(&mut { next }, &forward));
                    assert!(!self.sealed.contains_key(&next.index.0), "an index was reused");
                    self.events.clear();
                    let _ = followed.receive(&forward);
                }
                if let FrameOutcome::New(first) = outcome {
                    let events = forward.events().filter(|(seq, ..)| *seq >= first);
                    self.events
                        .extend(events.map(|(seq, _, record)| (seq.0, record.try_into().unwrap())));
                }
            }
            Uplink::Close { open, part, .. } => self.close(open, part),
        }
        let (index, next) = self
            .followed
            .map_or((SealIndex(0), Sequence(0)), |followed| (followed.index, followed.next));
        let Position { prev: digest, last, epoch_closed: last_in_epoch } = self.position;
        let sealed = last.map(|(index, epoch)| StoredSeal { index, epoch, last_in_epoch, digest });
        let (wants_schema, challenge) = (false, self.challenge);
        let acknowledgement = Acknowledgement { index, next, sealed, wants_schema, challenge };
        let mut out = [0; MAX_ACKNOWLEDGEMENT];
        acknowledgement.close(DEVICE, &self.key, &mut out).unwrap().to_vec()
    }

    fn close(&mut self, open: &[u8], part: &[u8]) {
        let (Item::Open(open), Item::Part(part)) =
            (Item::decode_whole(open).unwrap(), Item::decode_whole(part).unwrap())
        else {
            panic!("not the items of a closing frame");
        };
        let index = open.last.map_or(0, |(index, _)| index.0 + 1) + part.skipped;
        if self.sealed.contains_key(&index) {
            return;
        }
        assert_eq!(
            (open.prev, open.last),
            (Some(self.position.prev), self.position.last),
            "the seal continues the chain"
        );
        assert_eq!(
            part.restart,
            part.skipped > 0,
            "a seal after an abandoned one states a restart"
        );
        let mut statement =
            Statement::new(part.scheme, GroupId([2; 8]), Digest([6; 32]), DEVICE, LEVELS);
        (statement.index, statement.prev, statement.last) =
            (SealIndex(index), self.position.prev, open.last);
        statement.epoch = EpochNumber(open.last.map_or(0, |(_, epoch)| epoch.0) + part.advance);
        (statement.last_in_epoch, statement.restart) = (part.last_in_epoch, part.restart);
        (statement.schema, statement.salt, statement.keys) = (self.schema, part.salt, part.keys);
        (statement.round, statement.own_round, statement.lost) =
            (part.round, part.own_round, part.lost);
        statement.counters = Counters::of(&part.salt, LEVELS, part.n);
        statement.answered = part.answered;
        statement.groups = self.layout.as_ref().map_or(Groups::NONE, GroupLayout::all);
        assert_eq!(part.groups, statement.groups);
        let root = self.root(&statement);
        let seal = Seal::new(statement, root, Algorithm::Ed25519);
        seal.signed_by(&self.public, part.signature.unwrap())
            .expect("the coordinator has all sealed events");
        self.position = seal.position();
        let taken = Taken {
            epoch: seal.statement().epoch.0,
            keys: part.keys,
            restart: part.restart,
            own_round: part.own_round.0,
            has_lost: part.lost.is_some(),
            count: u64::from(part.n),
            records: std::mem::take(&mut self.events),
        };
        self.sealed.insert(index, taken);
    }

    fn root(&self, statement: &Statement) -> Digest {
        let kept = |seq: u64| !statement.is_null(statement.salt.level(Sequence(seq), LEVELS));
        assert!(
            self.events
                .keys()
                .copied()
                .filter(|seq| kept(*seq))
                .eq((0..statement.counters.total()).filter(|seq| kept(*seq)))
        );
        if statement.scheme == Scheme::Tree {
            let mut tree = Tree::<20>::new();
            self.events.values().for_each(|record| _ = tree.push(record).unwrap());
            return tree.root();
        }
        let block = |level: Level| {
            let of_level = self
                .events
                .iter()
                .filter(|(seq, _)| statement.salt.level(Sequence(**seq), LEVELS) == level);
            let block: Vec<u8> = of_level.flat_map(|(_, record)| *record).collect();
            if statement.is_null(level) {
                Digest::NULL
            } else {
                let of_star = (self.layout.as_ref(), Framing::fixed(4).unwrap());
                star::whole_block_digest((DEVICE, statement.index, level), of_star, &block)
            }
        };
        let digests: Vec<Digest> = (0..LEVELS).map(|level| block(Level(level))).collect();
        star::root(&statement.counters, &digests)
    }
}

/// Creates a coordinator that has not received anything.
pub(crate) fn coordinator(schema: &Schema<'_>) -> Coordinator {
    let (key, public) = (LinkKey::new(&SECRET), secret().public());
    let position = Position::start(CERTIFICATE);
    Coordinator {
        key,
        public,
        schema: schema.digest(),
        layout: GroupLayout::new(schema, schema.groups()),
        followed: None,
        events: BTreeMap::new(),
        position,
        sealed: BTreeMap::new(),
        challenge: None,
    }
}

/// Processes a frame again, with the state that its first processing returned in
/// [`FrameOutcome::Next`].
fn followed_again<'f>(
    followed: &mut Followed,
    forward: &moteseal_seal::wire::Forward<'f>,
) -> FrameOutcome {
    followed.receive(forward)
}

/// The faults of a simulation.
#[derive(Clone, Copy, Debug)]
struct Faults {
    scheme: Scheme,
    /// How many of 1000 starts end with an early power failure.
    cuts: u64,
    /// The percentage of frames that are lost.
    loss: u64,
}

/// Runs a mote until it is done. Returns the coordinator and the number of starts.
fn simulate(seed: u64, faults: Faults) -> (Coordinator, u32) {
    simulate_from(EpochNumber(0), seed, faults)
}

/// Same as [`simulate`], but in a group whose roster begins with this epoch.
fn simulate_from(first: EpochNumber, seed: u64, faults: Faults) -> (Coordinator, u32) {
    let mut chance = Chance(seed);
    let mut buffer = [0; 64];
    let schema = Schema::encode(&[Field::parse("reading::u32").unwrap()], &mut buffer).unwrap();
    let provisioning = Provisioning {
        epochs: (first, None),
        start_ms: first.0 * EPOCH_MS,
        ..provisioning(schema.as_bytes(), faults.scheme)
    };
    let table: Vec<u8> = (0..COUNT).flat_map(|reading| (reading * 3 + 1).to_be_bytes()).collect();
    let mut coordinator = coordinator(&schema);
    let (mut flash, mut now_ms, mut boots) = (Simulated::new(), 0, 0);
    let settings = Settings {
        interval_ms: provisioning.window.interval_ms,
        led: false,
        scheme: provisioning.scheme,
    };
    loop {
        boots += 1;
        assert!(boots < 5_000, "the mote is never done: {faults:?}");
        flash = flash.repowered();
        flash.fuse.set((chance.below(1000) < faults.cuts).then(|| chance.below(160)));
        let Ok(mut durable) = Durable::open(&mut flash, DEVICE, CERTIFICATE, settings) else {
            continue;
        };
        let recording = Recording::new(&table, 4, provisioning.window).unwrap();
        let mut mote = Mote::<_, _, 8, BUFFER>::new(&provisioning, &mut durable, None, recording);
        let _ = mote.start(now_ms, &mut |_| ());
        let ended = run(
            &mut mote,
            &mut coordinator,
            &mut chance,
            &|_| faults.loss,
            &mut now_ms,
            &mut |mote, _| mote.is_done(),
        );
        if ended {
            return (coordinator, boots);
        }
    }
}

/// Lets time pass until the power fails or `step` returns true. Returns whether `step` returned
/// true.
pub(crate) fn run<'f, R: Readings>(
    mote: &mut Mote<'_, '_, &'f mut Simulated, R, 8, BUFFER>,
    coordinator: &mut Coordinator,
    chance: &mut Chance,
    loss: &dyn Fn(u64) -> u64,
    now_ms: &mut u64,
    step: &mut dyn FnMut(&mut Mote<'_, '_, &'f mut Simulated, R, 8, BUFFER>, u64) -> bool,
) -> bool {
    let quiet = &mut |_: Notice| ();
    let mut out = [0; 1400];
    for _ in 0..60_000 {
        *now_ms += 1;
        if step(mote, *now_ms) {
            return true;
        }
        if mote.work(*now_ms, quiet).is_err() {
            return false;
        }
        let frame = match mote.next_body(*now_ms, &mut out, quiet) {
            Err(_) => return false,
            Ok(None) => continue,
            Ok(Some((channel, length))) => {
                assert_eq!(channel, Channel::Coordinator);
                &out[..length]
            }
        };
        if chance.below(100) < loss(*now_ms) {
            continue;
        }
        let answer = coordinator.receive(frame);
        if chance.below(100) >= loss(*now_ms)
            && mote.receive(*now_ms, Channel::Coordinator, &answer, quiet).is_err()
        {
            return false;
        }
    }
    false
}

#[test]
fn a_recording_arrives_completely_and_in_order_despite_lost_power_and_frames() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        for seed in 0..12 {
            let faults = Faults { scheme, cuts: 1000, loss: 3 * (seed % 5) };
            let (coordinator, boots) = simulate(seed, faults);
            let records: Vec<[u8; 4]> = coordinator
                .sealed
                .values()
                .flat_map(|taken| taken.records.values().copied())
                .collect();
            let sensed: Vec<[u8; 4]> =
                (0..COUNT).map(|reading| (reading * 3 + 1).to_be_bytes()).collect();
            assert_eq!(records, sensed, "{faults:?}");
            assert!(
                boots > 6 && coordinator.sealed.values().any(|taken| taken.restart),
                "{boots} boots: {faults:?}"
            );
            assert!(
                coordinator
                    .sealed
                    .values()
                    .zip(coordinator.sealed.values().skip(1))
                    .all(|(before, after)| before.epoch <= after.epoch)
            );
            assert!(coordinator.sealed.values().all(|taken| taken.own_round == 0));
        }
    }
}

#[test]
fn skips_readings_before_the_rosters_first_epoch_and_states_a_restart() {
    for (seed, cuts) in [(1, 0), (2, 1000), (3, 1000)] {
        // The recording begins in epoch 5 and has 60 readings per epoch.
        let (coordinator, _) =
            simulate_from(EpochNumber(7), seed, Faults { scheme: Scheme::Star, cuts, loss: 0 });
        let records: Vec<[u8; 4]> =
            coordinator.sealed.values().flat_map(|taken| taken.records.values().copied()).collect();
        let sensed: Vec<[u8; 4]> =
            (120..COUNT).map(|reading| (reading * 3 + 1).to_be_bytes()).collect();
        assert_eq!(records, sensed, "{seed}");
        let (index, first) = coordinator.sealed.first_key_value().unwrap();
        assert!(*index > 0 && first.restart && first.epoch == 7, "{seed}: {index} {first:?}");
    }
}

#[test]
fn senses_another_recording_from_its_first_reading() {
    let mut buffer = [0; 64];
    let schema = Schema::encode(&[Field::parse("reading::u32").unwrap()], &mut buffer).unwrap();
    let provisioning = provisioning(schema.as_bytes(), Scheme::Star);
    let table: Vec<u8> =
        (0..2 * COUNT).flat_map(|reading| (reading * 3 + 1).to_be_bytes()).collect();
    let (mut coordinator, mut flash, mut now_ms) = (coordinator(&schema), Simulated::new(), 0);
    let settings = Settings { interval_ms: 1, led: false, scheme: Scheme::Star };
    let later = provisioning.window.start_ms + 60 * EPOCH_MS;
    let windows = [
        provisioning.window,
        ReplayedWindow { first: COUNT, ..provisioning.window },
        ReplayedWindow { first: COUNT, start_ms: later, ..provisioning.window },
    ];
    // Use the last recording twice: the mote must not sense its readings again.
    for window in windows.into_iter().chain([windows[2]]) {
        let provisioning = Provisioning { window, ..provisioning.clone() };
        let mut durable = Durable::open(&mut flash, DEVICE, CERTIFICATE, settings).unwrap();
        let recording = Recording::new(&table, 4, window).unwrap();
        let mut mote = Mote::<_, _, 8, BUFFER>::new(&provisioning, &mut durable, None, recording);
        mote.start(now_ms, &mut |_| ()).unwrap();
        assert!(run(
            &mut mote,
            &mut coordinator,
            &mut Chance(1),
            &|_| 0,
            &mut now_ms,
            &mut |mote, _| mote.is_done()
        ));
    }
    let records: Vec<[u8; 4]> =
        coordinator.sealed.values().flat_map(|taken| taken.records.values().copied()).collect();
    let sensed = (0..COUNT).chain(COUNT..2 * COUNT).chain(COUNT..2 * COUNT);
    assert_eq!(records, sensed.map(|reading| (reading * 3 + 1).to_be_bytes()).collect::<Vec<_>>());
}

/// A source of records whose lengths vary and are not known beforehand.
struct Uneven(&'static [&'static [u8]]);

impl Readings for Uneven {
    fn next(&mut self, place: u32) -> Next<'_> {
        self.0.get(place as usize).map_or(Next::Over, |record| Next::Reading(5 * EPOCH_MS, record))
    }

    fn resume(&mut self, _: u32) {}

    fn can_wait(&self) -> bool {
        true
    }

    fn record_size(&self) -> Option<usize> {
        None
    }
}

#[test]
fn records_of_another_size_than_the_schemas_are_a_fault() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let settings = Settings { interval_ms: 0, led: false, scheme };
        for (columns, size, expected) in [
            (&["reading::u32"][..], 4, Ok(())),
            (&["reading::u16"], 4, Err(Fault::Schema)),
            (&["reading::u32", "other::u8"], 4, Err(Fault::Schema)),
            (&["reading::u16", "one::u8!@1", "two::u8!@2"], 4, Err(Fault::ColumnGroups)),
            (
                &["reading::u16", "other::u16!@1"],
                4,
                Err(if scheme == Scheme::Star { Fault::NoKeys } else { Fault::ColumnGroups }),
            ),
            (&[], 4, Ok(())),
        ] {
            let mut buffer = [0; 128];
            let fields: Vec<_> =
                columns.iter().map(|column| Field::parse(column).unwrap()).collect();
            let schema = Schema::encode(&fields, &mut buffer).unwrap();
            let (provisioning, mut flash) =
                (provisioning(schema.as_bytes(), scheme), Simulated::new());
            let mut durable = Durable::open(&mut flash, DEVICE, CERTIFICATE, settings).unwrap();
            let table = vec![0; size * COUNT as usize];
            let recording = Recording::new(&table, size, provisioning.window).unwrap();
            let mut mote =
                Mote::<_, _, 8, BUFFER>::new(&provisioning, &mut durable, None, recording);
            assert_eq!(mote.start(0, &mut |_| ()), expected, "{columns:?}");
        }
        // The record size of a sensor is not known beforehand: the mote checks each record.
        let mut buffer = [0; 64];
        let schema = Schema::encode(&[Field::parse("reading::u32").unwrap()], &mut buffer).unwrap();
        let (provisioning, mut flash) = (provisioning(schema.as_bytes(), scheme), Simulated::new());
        let mut durable = Durable::open(&mut flash, DEVICE, CERTIFICATE, settings).unwrap();
        let mut mote = Mote::<_, _, 8, BUFFER>::new(
            &provisioning,
            &mut durable,
            None,
            Uneven(&[&[1; 4], &[1; 3]]),
        );
        mote.start(0, &mut |_| ()).unwrap();
        assert_eq!(
            (1..10).find_map(|now_ms| mote.work(now_ms, &mut |_| ()).err()),
            Some(Fault::Schema)
        );
    }
}

#[test]
fn without_faults_no_seal_states_a_restart() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let (coordinator, boots) = simulate(1, Faults { scheme, cuts: 0, loss: 0 });
        assert_eq!((boots, coordinator.sealed.len()), (1, 15));
        assert!(
            coordinator.sealed.values().all(|taken| !taken.restart)
                && coordinator.sealed.keys().copied().eq(0..15)
        );
    }
}

#[test]
fn seals_state_every_loss_of_a_sensor_that_cannot_wait() {
    let (mut seals, mut raised, mut restarts, mut lost) = (0, 0, 0, 0);
    for seed in 0..12 {
        let mut chance = Chance(seed);
        let mut buffer = [0; 64];
        let schema = Schema::encode(&[Field::parse("reading::u32").unwrap()], &mut buffer).unwrap();
        let provisioning = provisioning(schema.as_bytes(), Scheme::Star);
        let mut coordinator = coordinator(&schema);
        let settings = Settings { interval_ms: 0, led: false, scheme: Scheme::Star };
        let (feed, mut flash, mut now_ms, mut given) =
            (Rc::new(RefCell::new(Feed::default())), Simulated::new(), 0, Vec::new());
        while now_ms < 60_000 {
            flash = flash.repowered();
            flash.fuse.set((seed % 3 > 0).then(|| 40 + chance.below(400)));
            let Ok(mut durable) = Durable::open(&mut flash, DEVICE, CERTIFICATE, settings) else {
                continue;
            };
            let sensor = Sensor { feed: feed.clone(), front: None, place: None };
            let mut mote = Mote::<_, _, 8, BUFFER>::new(&provisioning, &mut durable, None, sensor);
            mote.start(now_ms, &mut |_| ()).unwrap();
            // The link is down half of the time, for several epochs in a row. The sensor continues
            // meanwhile.
            let step = &mut |_: &mut Mote<'_, '_, &mut Simulated, Sensor, 8, BUFFER>,
                             now_ms: u64| {
                let n = given.len() as u32;
                if now_ms.is_multiple_of(8) && now_ms < 50_000 {
                    given.push((n * 3 + 1).to_be_bytes());
                    let mut feed = feed.borrow_mut();
                    if feed.waiting.len() < 8 {
                        let has_lost = std::mem::take(&mut feed.has_lost);
                        feed.waiting.push_back((
                            provisioning.window.start_ms + u64::from(n) * 200,
                            (n * 3 + 1).to_be_bytes(),
                            has_lost,
                        ));
                    } else {
                        feed.has_lost = true;
                    }
                }
                now_ms >= 60_000
            };
            let is_down = |now_ms: u64| now_ms / 5_000 % 2 == 1;
            if run(
                &mut mote,
                &mut coordinator,
                &mut chance,
                &|now_ms| if is_down(now_ms) { 100 } else { 5 },
                &mut now_ms,
                step,
            ) {
                break;
            }
        }
        // The sensor numbers its readings. Compute the number of each seal's first reading from any
        // of its events. If there is a gap between two seals, the later seal must state it.
        let mut expected_start: Option<u64> = Some(0);
        for (index, taken) in &coordinator.sealed {
            let place = |record: &[u8; 4]| u64::from((u32::from_be_bytes(*record) - 1) / 3);
            let starts: BTreeSet<u64> =
                taken.records.iter().map(|(seq, record)| place(record) - seq).collect();
            assert!(
                starts.len() <= 1,
                "seal {index} lacks readings that it does not count: {starts:?}"
            );
            let start = starts.first().copied();
            assert!(
                taken.restart
                    || start.is_none()
                    || expected_start.is_none()
                    || start == expected_start,
                "seal {index}: starts at {start:?}, expected {expected_start:?}"
            );
            expected_start = start.map(|start| start + taken.count);
            assert!(
                taken.own_round > 0 || taken.has_lost || taken.records.len() as u64 == taken.count,
                "seal {index}"
            );
            raised += u32::from(taken.own_round > 0);
            restarts += u32::from(taken.restart);
            lost += u32::from(taken.has_lost);
        }
        seals += coordinator.sealed.len();
    }
    println!(
        "{seals} seals, {raised} with a round of their own, {lost} with losses, {restarts} after an outage"
    );
    assert!(seals > 60 && raised > 5 && restarts > 20, "{seals} {raised} {restarts}");
}
