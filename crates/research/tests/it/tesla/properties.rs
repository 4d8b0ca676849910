//! Property tests of uTESLA with random events. They check that the receiver delivers the same
//! messages as a slow reference receiver, that decoding is canonical, and that frames with extreme
//! numbers deliver nothing. They also check that no message that arrives in time is lost while the
//! clocks are within the stated offset.

use moteseal_core::cbor::Writer;
use moteseal_research::tesla::receiver::{Receiver, Settings};
use moteseal_research::tesla::sender::Sender;
use moteseal_research::tesla::wire::TeslaFrame;
use moteseal_research::tesla::{KEY, MAX_INTERVALS, Parameters, Schedule, TAG};
use proptest::prelude::*;

use crate::tesla::whole_chain::{
    OFFSET, SECRET, START, Table, amid, receive_frame, receiver, schedule, settings, taken,
};

/// The reference receiver. It keeps every packet without limits, and applies the rules of the
/// specification literally.
struct Slow {
    table: Table,
    newest: u32,
    kept: Vec<(u32, Vec<u8>, [u8; TAG])>,
}

impl Slow {
    fn receive(&mut self, now_ms: u64, frame: &TeslaFrame<'_>) -> Vec<(u32, Vec<u8>)> {
        let schedule = self.table.schedule;
        // `latest` is the sender's clock if it is ahead by the whole offset.
        let latest = now_ms + OFFSET;
        let begins = |interval: u64| schedule.start_ms + interval * u64::from(schedule.interval_ms);
        match *frame {
            TeslaFrame::Packet { interval, message, tag, .. } => {
                let disclosed = begins(u64::from(interval) + u64::from(schedule.delay));
                let possible =
                    (1..=schedule.last).contains(&interval) && latest >= begins(interval.into());
                let entry = (interval, message.to_vec(), tag);
                if possible
                    && latest < disclosed
                    && interval > self.newest
                    && !self.kept.contains(&entry)
                {
                    self.kept.push(entry);
                }
                Vec::new()
            }
            TeslaFrame::Key { interval, key, .. } => {
                if !(self.newest + 1..=schedule.last).contains(&interval)
                    || key != self.table.keys[interval as usize]
                {
                    return Vec::new();
                }
                self.newest = interval;
                let in_time = latest >= begins(u64::from(interval) + u64::from(schedule.delay));
                let mut out: Vec<_> = self.kept.extract_if(.., |(i, ..)| *i <= interval).collect();
                out.retain(|(i, message, tag)| in_time && *tag == self.table.tag(*i, message));
                out.sort_by_key(|(i, ..)| *i);
                out.into_iter().map(|(i, message, _)| (i, message)).collect()
            }
        }
    }
}

/// The next action of an adversary, the network or the sender.
#[derive(Clone, Debug)]
enum Act {
    /// A genuine packet of an interval, which may be long past or not begun.
    Packet(u32, u8),
    /// The same packet with a wrong tag.
    Forged(u32, u8),
    /// The genuine key of an interval, which may not be due yet.
    Key(u32),
    /// A key with a wrong byte.
    ForgedKey(u32),
    /// This many milliseconds pass.
    Wait(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (0..14_u32, 0..3_u8).prop_map(|(i, m)| Act::Packet(i, m)),
        2 => (0..14_u32, 0..3_u8).prop_map(|(i, m)| Act::Forged(i, m)),
        3 => (0..14_u32).prop_map(Act::Key),
        1 => (1..14_u32).prop_map(Act::ForgedKey),
        3 => (0..25_u64).prop_map(Act::Wait),
    ];
    prop::collection::vec(act, 1..200)
}

fn edge_u32() -> impl Strategy<Value = u32> {
    prop_oneof![
        0..6_u32,
        Just(MAX_INTERVALS - 1),
        Just(MAX_INTERVALS),
        Just(u32::MAX - 1),
        Just(u32::MAX),
        any::<u32>()
    ]
}

fn edge_u64() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..1000_u64,
        Just(u64::MAX - 1),
        Just(u64::MAX),
        any::<u64>(),
        any::<u32>().prop_map(u64::from)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// For any actions in any order and at any time, the receiver delivers the same messages as the
    /// reference, which never drops a packet.
    #[test]
    fn delivers_what_the_reference_delivers(acts in acts(), delay in 1..4_u8) {
        let schedule = Schedule { start_ms: START, ..schedule(20, delay, 12) };
        let mut slow = Slow { table: Table::new(schedule, SECRET), newest: 0, kept: Vec::new() };
        let table = Table::new(schedule, SECRET);
        // The receiver has room for all packets that the actions can contain.
        let mut receiver = Receiver::<12, 8, 32>::new(table.parameters(), settings()).unwrap();
        let mut now = START;
        for act in acts {
            let message;
            let frame = match act {
                Act::Wait(ms) => { now += ms; continue; }
                Act::Packet(interval, of) => {
                    message = [of];
                    if interval <= 12 { table.packet(interval, &message) } else {
                        TeslaFrame::Packet { chain: schedule.reference(), interval, message: &message, tag: [0; TAG] }
                    }
                }
                Act::Forged(interval, of) => {
                    message = [of];
                    TeslaFrame::Packet { chain: schedule.reference(), interval, message: &message, tag: [of; TAG] }
                }
                Act::Key(interval) => table.key(interval),
                Act::ForgedKey(interval) => {
                    let mut key = table.keys[interval as usize];
                    key[0] ^= 1;
                    TeslaFrame::Key { chain: schedule.reference(), interval, key }
                }
            };
            let _ = receiver.receive(now, &frame);
            prop_assert_eq!(taken(&mut receiver), slow.receive(now, &frame), "{:?} at {}", frame, now - START);
            prop_assert_eq!(receiver.parameters().committed, slow.newest);
        }
        prop_assert_eq!(receiver.losses().no_room, 0);
    }

    /// Any bytes either do not decode, or are the only encoding of the decoded frame.
    #[test]
    fn any_bytes_decode_to_at_most_one_frame(mut bytes in prop::collection::vec(any::<u8>(), 0..60), start in 0..3_u8) {
        // In two of three cases the bytes begin like a frame.
        let begins: &[u8] = match start { 0 => &[], 1 => &[0x85, 0x18, 40, 0x44], _ => &[0x84, 0x18, 41, 0x44] };
        bytes.splice(0..begins.len().min(bytes.len()), begins.iter().copied());
        if let Ok(frame) = TeslaFrame::decode(&bytes) {
            let mut buffer = [0; 64];
            let mut out = Writer::new(&mut buffer);
            frame.encode(&mut out).unwrap();
            prop_assert_eq!(out.finish(), &bytes[..]);
        }
    }

    /// Frames, times and parameters have numbers at the limits of their types. No forged frame
    /// makes the receiver panic or deliver a message.
    #[test]
    fn forged_frames_with_extreme_numbers_deliver_nothing(
        frames in prop::collection::vec((edge_u32(), any::<bool>(), edge_u64()), 1..50),
        start_ms in edge_u64(), interval_ms in edge_u32(), delay in 1..=4_u8, last in 1..=MAX_INTERVALS, offset_ms in edge_u64(),
    ) {
        let interval_ms = interval_ms.max(1);
        // The start is not later than the latest one for which the schedule is valid.
        let latest = u64::MAX - (u64::from(last) + u64::from(delay) + 1) * u64::from(interval_ms);
        let schedule = Schedule { start_ms: start_ms.min(latest), interval_ms, delay, last, ..schedule(1, 1, 1) };
        prop_assert_eq!(schedule.check(), Ok(()));
        let parameters = Parameters { schedule, committed: 0, key: [3; KEY] };
        let settings = Settings { offset_ms, steps: 100, budget: 1000, seed: 1 };
        // The receiver must reject an offset that needs more than its eight rows.
        let longest = (8 - u64::from(delay) - 1) * u64::from(interval_ms);
        prop_assert_eq!(Receiver::<8, 2, 8>::new(parameters, settings).is_ok(), offset_ms <= longest);
        let settings = Settings { offset_ms: offset_ms.min(longest), ..settings };
        let mut receiver = Receiver::<8, 2, 8>::new(parameters, settings).unwrap();
        let chain = schedule.reference();
        for (interval, is_key, now) in frames {
            let frame = if is_key { TeslaFrame::Key { chain, interval, key: [7; KEY] } } else {
                TeslaFrame::Packet { chain, interval, message: b"forged", tag: [7; TAG] }
            };
            let result = receiver.receive(now, &frame);
            prop_assert!(!is_key || result.is_err());
            prop_assert_eq!(taken(&mut receiver), []);
        }
        prop_assert_eq!(receiver.parameters(), parameters);
    }

    /// The receiver's clock differs from the sender's by up to the stated offset, in either
    /// direction, and the link loses packets or delays them within the limit. Exactly the messages
    /// that arrive are delivered.
    #[test]
    fn delivers_all_that_arrives_in_time_with_clocks_within_the_offset(
        off in -OFFSET.cast_signed()..=OFFSET.cast_signed(), way in prop::collection::vec((0..60_u64, any::<bool>(), any::<bool>()), 40),
    ) {
        let schedule = schedule(100, 2, 40);
        let mut sender = Sender::new(schedule, SECRET).unwrap();
        let mut receiver = receiver::<8, 2>(sender.parameters());
        let mut arrivals = Vec::new();
        let mut expected = Vec::new();
        // For each interval from 1 on, whether its key was lost. The keys of the last two intervals
        // are disclosed only at the end.
        let keys_lost: Vec<_> = way.iter().skip(2).map(|(_, _, lost)| *lost).chain([true; 8]).collect();
        let mut may_give_up = 0;
        let mut buffer = [0; 64];
        for (interval, (delay, packet_lost, key_lost)) in (1..).zip(way) {
            let now = amid(&schedule, interval);
            if !packet_lost {
                let frame = sender.packet(now, &interval.to_be_bytes(), &mut buffer).unwrap().to_vec();
                arrivals.push((now + delay, frame));
                expected.push((interval, interval.to_be_bytes().to_vec()));
                // The receiver may drop a packet only if the eight rows are full. This takes six
                // consecutive lost disclosures: those of the keys of the packet's interval and of
                // the five intervals after it.
                may_give_up += usize::from(keys_lost[interval as usize - 1..][..6].iter().all(|lost| *lost));
            }
            if let Some(frame) = sender.disclosure(now, &mut buffer).unwrap() && !key_lost {
                arrivals.push((now + delay, frame.to_vec()));
            }
        }
        let end = amid(&schedule, 60);
        arrivals.push((end, sender.disclosure(end, &mut buffer).unwrap().unwrap().to_vec()));
        arrivals.sort_by_key(|(at, _)| *at);
        let mut got = Vec::new();
        for (at, frame) in arrivals {
            prop_assert_eq!(receive_frame(&mut receiver, at.checked_add_signed(off).unwrap(), &frame), Ok(()));
            got.extend(taken(&mut receiver));
        }
        let given_up = usize::try_from(receiver.losses().given_up).unwrap();
        prop_assert!(given_up <= may_give_up, "{} given up, of at most {}", given_up, may_give_up);
        prop_assert_eq!(got.len() + given_up, expected.len());
        got.iter().for_each(|message| assert!(expected.contains(message)));
    }
}
