//! Tests a device and a coordinator over a link that loses, repeats and reorders frames. At the
//! end, the coordinator has every event that the seal keeps. Changed and foreign frames are
//! rejected.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use moteseal_core::cbor::Writer;
use moteseal_core::link::{FrameError, LinkKey, MAX_FRAME, claimed_device};
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Framing};
use moteseal_core::{DeviceId, Digest, GroupId, Level, Round, SealIndex, Sequence};
use moteseal_seal::device_session::{DeviceSession, INDEX_GAP, INDEX_SPREAD};
use moteseal_seal::level::Salt;
use moteseal_seal::sample::{Followed, Forwarder, FrameOutcome, Noted};
use moteseal_seal::tree::{leaf, node};
use moteseal_seal::wire::{Acknowledgement, MAX_EVENTS, MAX_RECORD, Uplink, encode_event};
use proptest::collection::vec;
use proptest::prelude::*;

const DEVICE: DeviceId = DeviceId(*b"device 1");
const LEVELS: u8 = 6;

fn key() -> LinkKey {
    LinkKey::new(&LinkKey::secret_of(&[7; 32], GroupId(*b"group  1"), DEVICE))
}

/// One step of the simulation.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The device senses this many events.
    Sense(u8),
    /// The device sends a frame with at most this many bytes of events.
    Send(u8),
    /// The frame at this position of the frames in flight, counted from the oldest, arrives at the
    /// coordinator. If the flag is set, it stays in flight and may arrive again.
    Arrive(u8, bool),
    /// The frame at this position is lost.
    Lose(u8),
    /// The acknowledgement at this position arrives at the device.
    Acknowledge(u8),
    /// The device times out.
    Timeout,
    /// A round is announced to the device.
    Round(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..20u8).prop_map(Step::Sense),
        4 => (70..220u8).prop_map(Step::Send),
        4 => (any::<u8>(), any::<bool>()).prop_map(|(place, again)| Step::Arrive(place, again)),
        2 => any::<u8>().prop_map(Step::Lose),
        3 => any::<u8>().prop_map(Step::Acknowledge),
        1 => Just(Step::Timeout),
        1 => (0..8u8).prop_map(Step::Round),
    ]
}

struct World {
    device: Forwarder<400>,
    scheme: Scheme,
    framing: Framing,
    /// Whether the tree accepts no more events. A real device would continue under the next index.
    is_full: bool,
    salt: Salt,
    sensed: Vec<Vec<u8>>,
    up: VecDeque<Vec<u8>>,
    down: VecDeque<Vec<u8>>,
    followed: Followed,
    taken: BTreeMap<u64, (Level, Vec<u8>)>,
    /// For a tree: the events that a digest replaces.
    covered: BTreeSet<u64>,
}

impl World {
    fn new(scheme: Scheme, framing: Framing) -> Self {
        let (index, epoch) = (SealIndex(3), EpochNumber(70));
        let followed = Followed { index, epoch, next: Sequence(0), confirmed: Round(0) };
        Self {
            device: Forwarder::new(index, epoch, (scheme, framing), LEVELS, Round(0)),
            scheme,
            framing,
            is_full: false,
            salt: Salt([9; 16]),
            sensed: Vec::new(),
            up: VecDeque::new(),
            down: VecDeque::new(),
            followed,
            taken: BTreeMap::new(),
            covered: BTreeSet::new(),
        }
    }

    fn sense(&mut self) {
        if self.is_full {
            return;
        }
        let seq = self.sensed.len() as u64;
        let length = if self.framing == Framing::Prefixed { seq as usize * 7 % 60 } else { 4 };
        let record: Vec<u8> = (0..length).map(|byte| (seq as usize * 31 + byte) as u8).collect();
        let level = self.salt.level(Sequence(seq), LEVELS);
        let before = self.device.rounds();
        match self.device.note(level, &record) {
            Noted::Below => assert!(level.0 < self.device.rounds().1.0),
            Noted::Raised(round) => assert_eq!(round, self.device.rounds().1),
            Noted::Lost => assert_eq!((self.scheme, level), (Scheme::Star, Level(LEVELS - 1))),
            Noted::Buffered => {}
            Noted::Full => {
                assert_eq!(self.scheme, Scheme::Tree, "this number of events can fill only a tree");
                assert_eq!(
                    self.device.rounds(),
                    before,
                    "a rejected event does not affect the others"
                );
                self.is_full = true;
                return;
            }
        }
        self.sensed.push(record);
    }

    fn send(&mut self, room: usize) {
        let mut scratch = vec![0; room];
        let Some(forward) = self.device.next_frame(&mut scratch).unwrap() else { return };
        let mut out = vec![0; MAX_FRAME];
        let frame = Uplink::Forward(forward).close(DEVICE, &key(), &mut out).unwrap();
        assert_eq!(claimed_device(frame), Some(DEVICE));
        self.up.push_back(frame.to_vec());
    }

    fn arrive(&mut self, frame: &[u8]) {
        let Ok(Uplink::Forward(forward)) = Uplink::open(frame, &key()) else {
            panic!("the frame is not a forward frame of the device")
        };
        if let FrameOutcome::New(first) = self.followed.receive(&forward) {
            for (seq, level, record) in forward.events().filter(|(seq, ..)| *seq >= first) {
                assert!(
                    self.taken.insert(seq.0, (level, record.to_vec())).is_none(),
                    "each event is taken once"
                );
            }
            assert_eq!(forward.digests.is_some(), self.scheme == Scheme::Tree);
            for (range, root) in forward.subtrees() {
                assert_eq!(root, self.root(range.clone()), "{range:?}");
                self.covered.extend(range);
            }
        }
        let (index, next) = (self.followed.index, self.followed.next);
        let acknowledgement =
            Acknowledgement { index, next, sealed: None, wants_schema: false, challenge: None };
        let mut out = [0; 100];
        self.down.push_back(acknowledgement.close(DEVICE, &key(), &mut out).unwrap().to_vec());
    }

    /// Returns the root of a perfect subtree of the sensed events, computed by the recursive
    /// definition.
    fn root(&self, range: Range<u64>) -> Digest {
        let middle = range.start.midpoint(range.end);
        if range.end - range.start == 1 {
            return leaf(&self.sensed[usize::try_from(range.start).unwrap()]);
        }
        assert!(
            (range.end - range.start).is_power_of_two()
                && range.start.is_multiple_of(range.end - range.start)
        );
        node(&self.root(range.start..middle), &self.root(middle..range.end))
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Sense(count) => (0..count).for_each(|_| self.sense()),
            Step::Send(room) => self.send(usize::from(room)),
            Step::Arrive(place, again) if !self.up.is_empty() => {
                let frame = self.up.remove(usize::from(place) % self.up.len()).unwrap();
                self.arrive(&frame);
                if again {
                    self.up.push_back(frame);
                }
            }
            Step::Lose(place) if !self.up.is_empty() => {
                self.up.remove(usize::from(place) % self.up.len());
            }
            Step::Acknowledge(place) if !self.down.is_empty() => {
                let frame = self.down.remove(usize::from(place) % self.down.len()).unwrap();
                let _ = self
                    .device
                    .acknowledge(&Acknowledgement::open(&frame, DEVICE, &key()).unwrap());
            }
            Step::Timeout => self.device.rewind(),
            Step::Round(round) => _ = self.device.announced(Round(round)),
            Step::Arrive(..) | Step::Lose(_) | Step::Acknowledge(_) => {}
        }
    }

    /// Restores the link and delivers all frames.
    fn settle(&mut self) {
        self.device.end();
        for _ in 0..10_000 {
            if self.device.is_drained() {
                return;
            }
            self.device.rewind();
            self.send(200);
            while let Some(frame) = self.up.pop_front() {
                self.arrive(&frame);
            }
            while let Some(frame) = self.down.pop_front() {
                let _ = self
                    .device
                    .acknowledge(&Acknowledgement::open(&frame, DEVICE, &key()).unwrap());
            }
        }
        panic!("the device did not finish");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_kept_level_is_complete_on_any_link(steps in vec(step(), 0..120), fixed: bool, tree: bool) {
        let framing = if fixed { Framing::fixed(4).unwrap() } else { Framing::Prefixed };
        let mut world = World::new(if tree { Scheme::Tree } else { Scheme::Star }, framing);
        for step in steps {
            world.step(step);
        }
        world.settle();
        let (announced, own, lost) = world.device.rounds();
        prop_assert!(announced <= own && own.0 < LEVELS);
        let mut lost_there = 0;
        for (seq, record) in (0..).zip(&world.sensed) {
            let level = world.salt.level(Sequence(seq), LEVELS);
            if level.0 >= own.0 && lost.is_none_or(|lost| lost.at(level) == 0) {
                prop_assert_eq!(world.taken.get(&seq), Some(&(level, record.clone())), "event {}", seq);
            } else if level.0 >= own.0 {
                lost_there += 1;
            }
            prop_assert!(!tree || world.taken.contains_key(&seq) || world.covered.contains(&seq), "neither event nor digest for {}", seq);
        }
        prop_assert!(!tree || lost.is_none());
        prop_assert!(u64::from(lost.is_some()) <= lost.map_or(0, |lost| lost.total()));
        prop_assert!(lost.map_or(0, |lost| lost.total()) <= lost_there);
        for (seq, (level, record)) in &world.taken {
            prop_assert_eq!(&world.sensed[usize::try_from(*seq).unwrap()], record);
            prop_assert_eq!(*level, world.salt.level(Sequence(*seq), LEVELS));
        }
    }

    #[test]
    fn rejects_a_frame_with_any_byte_changed(at in any::<prop::sample::Index>(), flip in 1..=255u8, cut in any::<prop::sample::Index>()) {
        let mut out = [0; 300];
        let frame = Uplink::Close { schema: Digest([1; 32]), open: &[2; 20], part: &[3; 90] }.close(DEVICE, &key(), &mut out).unwrap();
        prop_assert!(Uplink::open(frame, &key()).is_ok());
        let mut changed = frame.to_vec();
        let place = at.index(changed.len());
        changed[place] ^= flip;
        prop_assert_eq!(Uplink::open(&changed, &key()), Err(FrameError::NotAuthentic));
        prop_assert!(Uplink::open(&frame[..cut.index(frame.len())], &key()).is_err());
    }
}

#[test]
fn rejects_a_frame_of_another_device_group_or_direction() {
    let mut out = [0; 100];
    let frame = Uplink::Schema(b"schema").close(DEVICE, &key(), &mut out).unwrap();
    let other = |group: &[u8; 8], device: &[u8; 8]| {
        LinkKey::new(&LinkKey::secret_of(&[7; 32], GroupId(*group), DeviceId(*device)))
    };
    assert_eq!(Uplink::open(frame, &key()), Ok(Uplink::Schema(b"schema")));
    assert_eq!(
        Uplink::open(frame, &other(b"group  1", b"device 2")),
        Err(FrameError::NotAuthentic)
    );
    assert_eq!(
        Uplink::open(frame, &other(b"group  2", b"device 1")),
        Err(FrameError::NotAuthentic)
    );
    assert_eq!(Acknowledgement::open(frame, DEVICE, &key()), Err(FrameError::NotAuthentic));
}

#[test]
fn stops_following_a_seal_abandoned_by_a_reboot() {
    let framing = Framing::fixed(4).unwrap();
    let frames = |index: u32| {
        let mut device = Forwarder::<200>::new(
            SealIndex(index),
            EpochNumber(5),
            (Scheme::Star, framing),
            LEVELS,
            Round(0),
        );
        for level in [0, 3, 1] {
            let _ = device.note(Level(level), &[0; 4]);
        }
        let mut scratch = vec![0; 100];
        let frame = device.next_frame(&mut scratch).unwrap().unwrap();
        (frame.own_round, frame.until, frame.events.to_vec())
    };
    let forward = |index: u32, from: u64, events: &'static [u8]| moteseal_seal::wire::Forward {
        index: SealIndex(index),
        epoch: EpochNumber(5),
        own_round: Round(0),
        from: Sequence(from),
        until: Sequence(3),
        framing,
        events,
        digests: None,
    };
    assert_eq!(frames(4), frames(5));
    let mut followed = Followed::start(&forward(4, 0, &[]));
    assert_eq!(followed.receive(&forward(4, 0, &[])), FrameOutcome::New(Sequence(0)));
    assert_eq!(followed.receive(&forward(4, 0, &[])), FrameOutcome::Old);
    let FrameOutcome::Next(next) = followed.receive(&forward(6, 0, &[])) else {
        panic!("expected the device to continue with the next seal")
    };
    assert_eq!((next.index, next.next), (SealIndex(6), Sequence(0)));
    let mut followed = next;
    assert_eq!(followed.receive(&forward(6, 1, &[])), FrameOutcome::Gap);
    assert_eq!(followed.receive(&forward(4, 0, &[])), FrameOutcome::Old);
    assert_eq!(followed.next, Sequence(0));
}

#[test]
fn a_scratch_buffer_too_small_for_an_event_is_an_error() {
    let mut device = Forwarder::<200>::new(
        SealIndex(0),
        EpochNumber(5),
        (Scheme::Star, Framing::Prefixed),
        LEVELS,
        Round(0),
    );
    assert_eq!(device.note(Level(2), &[1; 50]), Noted::Buffered);
    assert!(device.next_frame(&mut [0; 20]).is_err());
    assert!(device.next_frame(&mut [0; 60]).unwrap().is_some());
    let mut nothing = Writer::new(&mut []);
    assert!(nothing.uint(0u8).is_err());
}

#[test]
fn only_the_record_that_is_too_long_for_the_buffer_is_lost() {
    let mut device = Forwarder::<400>::new(
        SealIndex(0),
        EpochNumber(5),
        (Scheme::Star, Framing::Prefixed),
        LEVELS,
        Round(0),
    );
    assert_eq!(device.note(Level(0), &[1; 50]), Noted::Buffered);
    assert_eq!(device.note(Level(1), &[2; 394]), Noted::Lost);
    let (announced, own, lost) = device.rounds();
    assert_eq!((announced, own), (Round(0), Round(0)), "the event does not raise the round");
    let lost = lost.unwrap();
    assert_eq!((lost.at(Level(1)), lost.total()), (1, 1));
    assert_eq!(device.buffered(), 57, "the earlier content is kept");
    assert_eq!(device.note(Level(2), &[3; 100]), Noted::Buffered);
    let mut scratch = [0; 200];
    let forward = device.next_frame(&mut scratch).unwrap().unwrap();
    let seqs: Vec<u64> = forward.events().map(|(seq, ..)| seq.0).collect();
    assert_eq!((forward.from, forward.until, &seqs[..]), (Sequence(0), Sequence(3), &[0, 2][..]));
}

#[test]
fn the_longest_record_exactly_fills_a_frame() {
    let frame_of = |length: usize| {
        let mut events = vec![0; MAX_EVENTS + 16];
        let mut out = Writer::new(&mut events);
        let record = vec![7; length];
        let prefix = Some(u16::try_from(length).unwrap().to_be_bytes());
        encode_event(
            &mut out,
            Sequence(0),
            Sequence(u64::from(u32::MAX) - 1),
            Level(31),
            prefix,
            &record,
        )
        .unwrap();
        let forward = moteseal_seal::wire::Forward {
            index: SealIndex(u32::MAX),
            epoch: EpochNumber(u64::MAX),
            own_round: Round(31),
            from: Sequence(0),
            until: Sequence(u64::from(u32::MAX)),
            framing: Framing::Prefixed,
            events: out.finish(),
            digests: None,
        };
        let mut frame = vec![0; MAX_FRAME];
        Uplink::Forward(forward).close(DEVICE, &key(), &mut frame).map(<[u8]>::len)
    };
    // In this frame, `from` and `size` are 0 and there are no digests, so it is nine bytes shorter
    // than the longest frame.
    assert_eq!(frame_of(MAX_RECORD), Ok(MAX_FRAME - 9));
    assert!(frame_of(MAX_RECORD + 10).is_err());
}

#[test]
fn frames_continue_after_dropped_events() {
    let framing = Framing::fixed(4).unwrap();
    let mut device = Forwarder::<4096>::new(
        SealIndex(0),
        EpochNumber(5),
        (Scheme::Star, framing),
        LEVELS,
        Round(0),
    );
    let mut noted = 0..;
    let mut note = |device: &mut Forwarder<4096>, count: usize| {
        for seq in noted.by_ref().take(count) {
            assert_eq!(
                device.note(Level((seq % 3) as u8), &(seq as u32).to_be_bytes()),
                Noted::Buffered
            );
        }
    };
    let sent = |device: &mut Forwarder<4096>| {
        let mut scratch = [0; 32];
        let forward = device.next_frame(&mut scratch).unwrap().unwrap();
        assert!(forward.events().all(|(seq, _, record)| record == (seq.0 as u32).to_be_bytes()));
        (
            forward.from.0,
            forward.until.0,
            forward.events().map(|(seq, ..)| seq.0).collect::<Vec<_>>(),
        )
    };
    note(&mut device, 30);
    assert_eq!(sent(&mut device), (0, 6, vec![0, 1, 2, 3, 4, 5]));
    assert_eq!(sent(&mut device), (6, 12, vec![6, 7, 8, 9, 10, 11]));
    let acknowledge = |device: &mut Forwarder<4096>, next| {
        let acknowledgement = Acknowledgement {
            index: SealIndex(0),
            next: Sequence(next),
            sealed: None,
            wants_schema: false,
            challenge: None,
        };
        assert!(device.acknowledge(&acknowledgement) && !device.acknowledge(&acknowledgement));
    };
    // First an acknowledgement removes events that have been sent, then a round removes a level
    // from both the sent and the unsent events.
    acknowledge(&mut device, 4);
    assert!(device.announced(Round(1)) && !device.announced(Round(1)));
    assert_eq!(sent(&mut device), (12, 20, vec![13, 14, 16, 17, 19]));
    // A late acknowledgement covers more events than have been sent again since the timeout.
    device.rewind();
    assert_eq!(sent(&mut device).0, 4);
    device.rewind();
    acknowledge(&mut device, 20);
    assert_eq!(sent(&mut device), (20, 28, vec![20, 22, 23, 25, 26]));
    assert_eq!(sent(&mut device), (28, 30, vec![28, 29]));
    assert!(device.next_frame(&mut [0; 32]).unwrap().is_none());
}

/// A device that counts its starts, and loses its state again and again before the coordinator has
/// received anything of it, never continues at an index that it has used.
#[test]
fn consecutive_starts_of_a_device_without_random_numbers_continue_far_apart() {
    let lost = Acknowledgement {
        index: SealIndex(7),
        next: Sequence(3),
        sealed: None,
        wants_schema: false,
        challenge: None,
    };
    let index_of = |start: u64| {
        let session = DeviceSession::new(DEVICE, key(), start << 32);
        session.index_after(&lost, SealIndex(0)).0
    };
    let indices: BTreeSet<u32> = (1..=1000).map(index_of).collect();
    let nearest = indices.iter().zip(indices.iter().skip(1)).map(|(one, next)| next - one).min();
    assert!(indices.len() == 1000 && nearest > Some(200), "{nearest:?}");
    assert!(
        indices.iter().all(|index| (7 + INDEX_GAP..7 + INDEX_GAP + INDEX_SPREAD).contains(index))
    );
}
