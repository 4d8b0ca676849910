//! Tests of uTESLA: test vectors, every pattern of loss of a short chain, clocks at the limits of
//! safety, and floods of forged packets.

use moteseal_broadcast::{
    ChainId, ChainNumber, ChainRef, Kind, MAX_HEAD, MAX_SINGLE, SingleDraft, Window, open_single,
};
use moteseal_core::DeviceId;
use moteseal_core::cbor::{DecodeError, Writer};
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_research::tesla::receiver::{
    FrameError, KeyError, Losses, PacketError, Receiver, ReceiverError, Settings,
};
use moteseal_research::tesla::sender::{Sender, SenderError};
use moteseal_research::tesla::wire::{KEY_FRAME, OVERHEAD, TeslaFrame};
use moteseal_research::tesla::{
    KEY, MAX_INTERVALS, MAX_MESSAGE, MAX_PARAMETERS, Parameters, ParametersError, Schedule,
    ScheduleError, TAG,
};

mod hostile;
mod properties;
mod whole_chain;

use whole_chain::{
    OFFSET, SECRET, START, Table, amid, receive_frame, receiver, schedule, settings, taken,
};

#[test]
fn the_sender_follows_the_specification() {
    let schedule = schedule(100, 2, 7);
    let (table, mut sender) =
        (Table::new(schedule, SECRET), Sender::new(schedule, SECRET).unwrap());
    // The expected values were computed with Python's hashlib and hmac.
    assert_eq!(schedule.reference(), ChainRef([0xe4, 0x0d, 0xfb, 0x85, 0x42, 0x2c, 0xbf, 0x64]));
    assert_eq!(hex::encode(table.keys[0]), "5c1285dcaf3b4119508db5ff498838d3");
    assert_eq!(hex::encode(table.keys[5]), "1ad29ddddc2a4483ab64e1745dffebe3");
    assert_eq!(hex::encode(table.tag(5, b"turn left")), "932f89543ee33c66");
    assert_eq!(sender.parameters(), table.parameters());
    let mut buffer = [0; 64];
    for interval in 1..=7 {
        let now = amid(&schedule, interval);
        let packet = sender.packet(now, b"turn left", &mut buffer).unwrap();
        assert_eq!(TeslaFrame::decode(packet).unwrap(), table.packet(interval, b"turn left"));
        assert!(packet.len() <= 9 + OVERHEAD);
        let disclosed = sender
            .disclosure(now, &mut buffer)
            .unwrap()
            .map(|frame| TeslaFrame::decode(frame).unwrap());
        assert_eq!(
            disclosed,
            (interval > 2).then(|| table.key(interval - 2)),
            "interval {interval}"
        );
    }
    // The last keys are disclosed after the last interval. The key of the last interval is then
    // disclosed again and again.
    for (interval, disclosed) in [(8, 6), (9, 7), (10, 7), (1000, 7)] {
        let frame = sender.disclosure(amid(&schedule, interval), &mut buffer).unwrap().unwrap();
        assert_eq!(TeslaFrame::decode(frame).unwrap(), table.key(disclosed));
        assert!(frame.len() <= KEY_FRAME);
        assert_eq!(
            sender.packet(amid(&schedule, interval), b"late", &mut buffer),
            Err(SenderError::Ended)
        );
    }
    // The clock must not go back even after the last interval, because the key to be disclosed
    // still depends on the interval.
    assert_eq!(
        sender.disclosure(amid(&schedule, 999), &mut buffer),
        Err(SenderError::ClockWentBack)
    );
    assert_eq!(
        sender.packet(amid(&schedule, 7), b"with a disclosed key", &mut buffer),
        Err(SenderError::ClockWentBack)
    );
}

#[test]
fn uses_and_discloses_each_key_only_at_its_time() {
    let schedule = schedule(100, 3, 64);
    let (table, mut sender) =
        (Table::new(schedule, SECRET), Sender::new(schedule, SECRET).unwrap());
    let mut buffer = [0; 64];
    assert_eq!(sender.packet(0, b"", &mut buffer), Err(SenderError::NotStarted));
    assert_eq!(sender.packet(START + 99, b"", &mut buffer), Err(SenderError::NotStarted));
    assert_eq!(sender.disclosure(START + 399, &mut buffer), Ok(None));
    // The key is disclosed in the first millisecond of the interval.
    let disclosed = sender.disclosure(START + 400, &mut buffer).unwrap().unwrap();
    assert_eq!(TeslaFrame::decode(disclosed).unwrap(), table.key(1));
    let packet = sender.packet(START + 999, b"", &mut buffer).unwrap();
    assert_eq!(TeslaFrame::decode(packet).unwrap(), table.packet(9, b""));
    // The sender's clock is set back. This is harmless within the current interval. In an earlier
    // interval, keys may already be public.
    assert!(sender.packet(START + 900, b"", &mut buffer).is_ok());
    assert_eq!(sender.packet(START + 899, b"", &mut buffer), Err(SenderError::ClockWentBack));
    assert_eq!(sender.disclosure(START + 899, &mut buffer), Err(SenderError::ClockWentBack));
    // After a long silence the sender continues at the current interval.
    let packet = sender.packet(START + 6_000, b"", &mut buffer).unwrap();
    assert_eq!(TeslaFrame::decode(packet).unwrap(), table.packet(60, b""));
    assert_eq!(
        sender.packet(START + 6_000, &[0; MAX_MESSAGE + 1], &mut buffer),
        Err(SenderError::MessageTooLong)
    );
    assert_eq!(
        sender.packet(START + 6_000, &[0; 60], &mut buffer),
        Err(SenderError::BufferTooSmall)
    );
}

#[test]
fn rejects_an_invalid_schedule() {
    let good = schedule(100, 1, 1);
    assert_eq!(good.check(), Ok(()));
    assert_eq!(Schedule { last: MAX_INTERVALS, ..good }.check(), Ok(()));
    for (bad, error) in [
        (Schedule { interval_ms: 0, ..good }, ScheduleError::IntervalOutOfRange),
        (Schedule { delay: 0, ..good }, ScheduleError::DelayOutOfRange),
        (Schedule { last: 0, ..good }, ScheduleError::TooManyIntervals),
        (Schedule { last: MAX_INTERVALS + 1, ..good }, ScheduleError::TooManyIntervals),
        (Schedule { start_ms: u64::MAX - 299, ..good }, ScheduleError::EndsTooLate),
    ] {
        assert_eq!(bad.check(), Err(error));
        assert_eq!(Sender::new(bad, SECRET).unwrap_err(), error);
    }
    assert_eq!(Schedule { start_ms: u64::MAX - 300, ..good }.check(), Ok(()));
}

#[test]
fn parameters_are_valid_for_one_chain() {
    let parameters = Table::new(schedule(100, 2, 8), SECRET).parameters();
    let mut buffer = [0; MAX_PARAMETERS];
    let bytes = parameters.encode(&mut buffer).unwrap().to_vec();
    let id = parameters.schedule.id;
    assert_eq!(Parameters::decode(&bytes, id), Ok(parameters));
    for (id, error) in [
        (ChainId { network: NetworkId([0; 8]), ..id }, ParametersError::WrongNetwork),
        (ChainId { sender: DeviceId([0; 8]), ..id }, ParametersError::WrongSender),
        (ChainId { number: ChainNumber(2), ..id }, ParametersError::WrongChain),
    ] {
        assert_eq!(Parameters::decode(&bytes, id), Err(error));
    }
    // A later signed chain may repeat the parameters.
    for number in [4, u64::MAX] {
        assert_eq!(
            Parameters::decode(&bytes, ChainId { number: ChainNumber(number), ..id }),
            Ok(parameters)
        );
    }
    for length in 0..bytes.len() {
        assert_eq!(Parameters::decode(&bytes[..length], id), Err(ParametersError::Malformed));
    }
    // Parameters with an invalid schedule, and with a known key after the last interval, are
    // malformed.
    for bad in [
        Parameters { schedule: Schedule { delay: 0, ..parameters.schedule }, ..parameters },
        Parameters { committed: 9, ..parameters },
    ] {
        let bytes = bad.encode(&mut buffer).unwrap();
        assert_eq!(Parameters::decode(bytes, id), Err(ParametersError::Malformed));
    }
    // These parameters have the longest possible encoding.
    let mut long = Parameters { committed: MAX_INTERVALS, ..parameters };
    long.schedule = Schedule {
        id: ChainId { number: ChainNumber(u64::MAX), ..id },
        start_ms: 1 << 60,
        interval_ms: u32::MAX,
        delay: 255,
        last: MAX_INTERVALS,
    };
    assert_eq!(long.encode(&mut buffer).unwrap().len(), MAX_PARAMETERS);
}

#[test]
fn parameters_arrive_in_a_signed_chain_of_the_same_or_a_later_number() {
    let schedule = schedule(100, 2, 8);
    let mut sender = Sender::new(schedule, SECRET).unwrap();
    let key = SecretKey::from_seed(Algorithm::Ed25519, &[6; 32]).unwrap();
    let mut buffer = [0; MAX_PARAMETERS];
    let message = sender.parameters().encode(&mut buffer).unwrap();
    let (mut scratch, mut out) = ([0; MAX_SINGLE], [0; MAX_SINGLE]);
    let frame = |number: u64, scratch: &mut [u8], out: &mut [u8]| {
        let id = ChainId { number: ChainNumber(number), ..schedule.id };
        SingleDraft {
            id,
            kind: Kind::Announcement,
            label: "tesla",
            window: Window::ALWAYS,
            previous: None,
            message,
        }
        .seal(&key, scratch, out)
        .unwrap()
        .to_vec()
    };
    let [right, later, wrong] = [3, 4, 2].map(|number| frame(number, &mut scratch, &mut out));
    let mut scratch = [0; MAX_HEAD];
    let mut decoded = |frame: &[u8]| {
        let single = open_single(
            frame,
            schedule.id.network,
            schedule.id.sender,
            &key.public(),
            &mut scratch,
        )
        .unwrap();
        assert_eq!(single.label(), "tesla");
        Parameters::decode(single.message(), single.id())
    };
    assert_eq!(decoded(&right), Ok(sender.parameters()));
    assert_eq!(decoded(&later), Ok(sender.parameters()), "repeated for receivers that join late");
    assert_eq!(decoded(&wrong), Err(ParametersError::WrongChain));
    let mut receiver = receiver::<4, 1>(decoded(&right).unwrap());
    let mut buffer = [0; 64];
    receive_frame(
        &mut receiver,
        amid(&schedule, 1),
        sender.packet(amid(&schedule, 1), b"left", &mut buffer).unwrap(),
    )
    .unwrap();
    let disclosed = sender.disclosure(amid(&schedule, 3), &mut buffer).unwrap().unwrap();
    receive_frame(&mut receiver, amid(&schedule, 3), disclosed).unwrap();
    assert_eq!(taken(&mut receiver), [(1, b"left".to_vec())]);
}

#[test]
fn reads_exactly_the_frames_that_are_written() {
    let table = Table::new(schedule(100, 2, 8), SECRET);
    let (chain, interval) = (table.schedule.reference(), u32::MAX);
    let longest = [
        TeslaFrame::Packet { chain, interval, message: &[0; MAX_MESSAGE], tag: [0; TAG] },
        TeslaFrame::Key { chain, interval, key: [0; KEY] },
    ];
    for (frame, room) in longest.iter().zip([MAX_MESSAGE + OVERHEAD, KEY_FRAME]) {
        let mut buffer = [0; MAX_MESSAGE + 64];
        let mut out = Writer::new(&mut buffer);
        frame.encode(&mut out).unwrap();
        assert_eq!(out.position(), room, "the longest frame has the stated length");
    }
    for frame in [table.packet(3, b"message"), table.packet(3, b""), table.key(4)] {
        let mut buffer = [0; 64];
        let mut out = Writer::new(&mut buffer);
        frame.encode(&mut out).unwrap();
        let bytes = out.finish();
        assert_eq!(TeslaFrame::decode(bytes), Ok(frame));
        for length in 0..bytes.len() {
            assert!(TeslaFrame::decode(&bytes[..length]).is_err());
        }
        bytes[2] ^= 2; // The kind: 42 or 43.
        assert_eq!(TeslaFrame::decode(bytes), Err(DecodeError::UnknownItem));
    }
}

#[test]
fn a_packet_is_safe_until_its_key_may_be_public() {
    let table = Table::new(schedule(100, 2, 8), SECRET);
    // The key of interval 3 is public from START + 500 on. If the sender's clock is ahead by
    // OFFSET, the packet is safe until one millisecond before START + 500 - OFFSET.
    let edge = START + 500 - OFFSET;
    for (now, verdict) in [
        (edge - 1, Ok(())),
        (edge, Err(PacketError::NotSafe)),
        (edge + 1, Err(PacketError::NotSafe)),
    ] {
        let result = receiver::<4, 4>(table.parameters()).receive(now, &table.packet(3, b"go"));
        assert_eq!(
            result,
            verdict.map_err(FrameError::Packet),
            "{} ms from the edge",
            now.cast_signed() - edge.cast_signed()
        );
    }
    // On the sender's clock, interval 3 begins at START + 300.
    let edge = START + 300 - OFFSET;
    for (now, verdict) in
        [(edge - 1, Err(PacketError::FutureInterval)), (edge, Ok(())), (edge + 1, Ok(()))]
    {
        let result = receiver::<4, 4>(table.parameters()).receive(now, &table.packet(3, b"go"));
        assert_eq!(
            result,
            verdict.map_err(FrameError::Packet),
            "{} ms from the edge",
            now.cast_signed() - edge.cast_signed()
        );
    }
    // Try the lowest and the highest value of the clock.
    let mut receiver = receiver::<4, 4>(table.parameters());
    assert_eq!(
        receiver.receive(0, &table.packet(1, b"")),
        Err(FrameError::Packet(PacketError::FutureInterval))
    );
    assert_eq!(
        receiver.receive(u64::MAX, &table.packet(1, b"")),
        Err(FrameError::Packet(PacketError::NotSafe))
    );
}

#[test]
fn a_received_key_makes_its_packets_unsafe_at_any_time() {
    let table = Table::new(schedule(100, 2, 8), SECRET);
    let mut receiver = receiver::<4, 4>(table.parameters());
    receiver.receive(START + 520, &table.key(3)).unwrap();
    // The clock is set back by 300 ms. According to the clock the packet would be safe, but the
    // receiver knows that its key is public.
    for interval in 1..=3 {
        let forged = table.packet(interval, b"forged with a disclosed key");
        assert_eq!(
            receiver.receive(START + 320, &forged),
            Err(FrameError::Packet(PacketError::NotSafe))
        );
    }
    assert_eq!(taken(&mut receiver), []);
}

#[test]
fn an_early_genuine_key_reveals_the_clock_offset_and_proves_no_message() {
    let table = Table::new(schedule(100, 2, 8), SECRET);
    let mut receiver = receiver::<4, 4>(table.parameters());
    let now = START + 410;
    receiver.receive(now, &table.packet(3, b"three")).unwrap();
    receiver.receive(now, &table.packet(4, b"four")).unwrap();
    // An honest sender sends this key in interval 5 at the earliest, so the sender's clock is at
    // START + 500 or later. The receiver's clock is then 90 ms behind, but the stated offset is
    // only 30 ms.
    assert_eq!(
        receiver.receive(now, &table.key(3)),
        Err(FrameError::Key(KeyError::ClockTooFarOff))
    );
    assert_eq!(receiver.losses(), Losses { given_up: 1, ..Losses::default() });
    assert_eq!(
        receiver.receive(now, &table.packet(3, b"forged with it")),
        Err(FrameError::Packet(PacketError::NotSafe))
    );
    assert_eq!(taken(&mut receiver), []);
    // A packet whose key was not disclosed is kept.
    receiver.receive(START + 620, &table.key(4)).unwrap();
    assert_eq!(taken(&mut receiver), [(4, b"four".to_vec())]);
    // A genuine key that arrives before its interval has begun is also public.
    assert_eq!(
        receiver.receive(START + 669, &table.key(7)),
        Err(FrameError::Key(KeyError::ClockTooFarOff))
    );
    assert_eq!(receiver.parameters().committed, 7);
}

#[test]
fn delivers_what_a_later_key_proves_under_every_pattern_of_loss() {
    let schedule = schedule(100, 2, 5);
    let table = Table::new(schedule, SECRET);
    // Each of five intervals has a packet, and its key follows two intervals later. Each of the ten
    // frames may be lost, which gives 2^10 patterns. The receiver has enough rows for any number of
    // lost keys.
    for pattern in 0..1 << 10_u32 {
        let (has_packet, has_key) =
            (|i: u32| pattern >> (i - 1) & 1 == 1, |i: u32| pattern >> (i + 4) & 1 == 1);
        let mut receiver = receiver::<5, 1>(table.parameters());
        let mut delivered = Vec::new();
        for now in 1..=7 {
            if now <= 5 && has_packet(now) {
                receiver.receive(amid(&schedule, now), &table.packet(now, &[now as u8])).unwrap();
            }
            if now > 2 && has_key(now - 2) {
                receiver.receive(amid(&schedule, now), &table.key(now - 2)).unwrap();
                delivered.extend(taken(&mut receiver));
            }
        }
        let proven =
            (1..=5).filter(|i| has_packet(*i) && (*i..=5).any(has_key)).map(|i| (i, vec![i as u8]));
        assert_eq!(delivered, proven.collect::<Vec<_>>(), "pattern {pattern:010b}");
        assert_eq!(receiver.losses(), Losses::default());
    }
}

#[test]
fn too_many_lost_keys_drop_only_the_oldest_intervals() {
    let schedule = schedule(100, 2, 16);
    let table = Table::new(schedule, SECRET);
    for lost in 1..=10_u32 {
        // Five rows tolerate one lost disclosure.
        let mut receiver = receiver::<5, 1>(table.parameters());
        for interval in 1..=lost + 2 {
            receiver.receive(amid(&schedule, interval), &table.packet(interval, b"m")).unwrap();
        }
        receiver.receive(amid(&schedule, lost + 3), &table.key(lost + 1)).unwrap();
        // When the key arrives, four of the five rows hold intervals up to the key's interval.
        let kept: Vec<_> =
            (lost.saturating_sub(2).max(1)..=lost + 1).map(|i| (i, b"m".to_vec())).collect();
        assert_eq!(taken(&mut receiver), kept);
        assert_eq!(
            receiver.losses(),
            Losses { given_up: u64::from(lost.saturating_sub(3)), ..Losses::default() }
        );
    }
    assert_eq!(
        Receiver::<3, 1, 32>::new(table.parameters(), settings()).unwrap_err(),
        ReceiverError::TooFewRows
    );
}

#[test]
fn recovers_a_lost_key_within_the_allowed_steps() {
    let schedule = schedule(100, 2, 1000);
    let table = Table::new(schedule, SECRET);
    let limited = Settings { steps: 40, ..settings() };
    let mut receiver = Receiver::<4, 4, 32>::new(table.parameters(), limited).unwrap();
    for (interval, verdict) in [
        (41, Err(FrameError::Key(KeyError::TooManySteps))),
        (40, Ok(())),
        (81, Err(FrameError::Key(KeyError::TooManySteps))),
        (80, Ok(())),
    ] {
        assert_eq!(
            receiver.receive(amid(&schedule, 900), &table.key(interval)),
            verdict,
            "{interval}"
        );
    }
    // A receiver that was off for longer needs newer parameters. The sender can produce them at any
    // time.
    let mut sender = Sender::new(schedule, SECRET).unwrap();
    let newer = sender.parameters_at(amid(&schedule, 900)).unwrap();
    assert_eq!((newer.committed, newer.key), (897, table.keys[897]));
    let mut receiver = Receiver::<4, 4, 32>::new(newer, limited).unwrap();
    receiver.receive(amid(&schedule, 900), &table.packet(900, b"here")).unwrap();
    receiver.receive(amid(&schedule, 902), &table.key(900)).unwrap();
    assert_eq!(taken(&mut receiver), [(900, b"here".to_vec())]);
    // The receiver stores parameters up to the end of the chain, and they can be decoded again.
    let mut ended = receiver.clone();
    for interval in [940, 980, 1000] {
        ended.receive(amid(&schedule, 1100), &table.key(interval)).unwrap();
    }
    let mut buffer = [0; MAX_PARAMETERS];
    let bytes = ended.parameters().encode(&mut buffer).unwrap();
    let read = Parameters::decode(bytes, schedule.id).unwrap();
    assert_eq!(read, ended.parameters());
    let mut again = Receiver::<4, 4, 32>::new(read, limited).unwrap();
    assert_eq!(
        again.receive(amid(&schedule, 1000), &table.packet(1000, b"")),
        Err(FrameError::Packet(PacketError::NotSafe))
    );
    // The parameters that the receiver stores for its next start contain the newest key.
    assert_eq!(receiver.parameters(), Parameters { committed: 900, key: table.keys[900], ..newer });
    for (now, committed) in [(0, 0), (1, 0), (3, 0), (4, 1), (1003, 999), (5000, 999)] {
        let parameters =
            Sender::new(schedule, SECRET).unwrap().parameters_at(amid(&schedule, now)).unwrap();
        assert_eq!(
            (parameters.committed, parameters.key),
            (committed, table.keys[committed as usize]),
            "at {now}"
        );
    }
}

#[test]
fn rejects_each_kind_of_invalid_frame() {
    let schedule = schedule(100, 2, 8);
    let table = Table::new(schedule, SECRET);
    let other = Table::new(
        Schedule { id: ChainId { number: ChainNumber(4), ..schedule.id }, ..schedule },
        SECRET,
    );
    let mut receiver = receiver::<4, 2>(table.parameters());
    let now = amid(&schedule, 3);
    receiver.receive(now, &table.packet(3, b"three")).unwrap();
    receiver.receive(now, &table.key(1)).unwrap();
    let before = receiver.clone();
    let reference = schedule.reference();
    let packet = |interval, message| TeslaFrame::Packet {
        chain: reference,
        interval,
        message,
        tag: [0; TAG],
    };
    let key = |interval, key| TeslaFrame::Key { chain: reference, interval, key };
    let (other_packet, again) = (other.packet(3, b"three"), table.packet(3, b"three"));
    for (frame, error) in [
        (other_packet, FrameError::Packet(PacketError::WrongChain)),
        (packet(0, b""), FrameError::Packet(PacketError::NoSuchInterval)),
        (packet(9, b""), FrameError::Packet(PacketError::BeyondEnd)),
        (packet(u32::MAX, b""), FrameError::Packet(PacketError::BeyondEnd)),
        (packet(4, b""), FrameError::Packet(PacketError::FutureInterval)),
        (packet(1, b""), FrameError::Packet(PacketError::NotSafe)),
        (packet(3, &[0; 33]), FrameError::Packet(PacketError::MessageTooLong)),
        (again, FrameError::Packet(PacketError::Repeated)),
        (other.key(2), FrameError::Key(KeyError::WrongChain)),
        (key(9, [0; KEY]), FrameError::Key(KeyError::BeyondEnd)),
        (key(u32::MAX, [0; KEY]), FrameError::Key(KeyError::BeyondEnd)),
        (table.key(1), FrameError::Key(KeyError::Repeated)),
        (key(1, [0; KEY]), FrameError::Key(KeyError::OldKey)),
        (table.key(0), FrameError::Key(KeyError::OldKey)),
        (key(2, [0; KEY]), FrameError::Key(KeyError::ForgedKey)),
        // These are a genuine key with a wrong interval, and a key of another chain with the same
        // secret.
        (key(2, table.keys[3]), FrameError::Key(KeyError::ForgedKey)),
        (key(2, other.keys[2]), FrameError::Key(KeyError::ForgedKey)),
    ] {
        assert_eq!(receiver.receive(now, &frame), Err(error), "{frame:?}");
    }
    assert_eq!(
        (receiver.parameters(), receiver.losses()),
        (before.parameters(), before.losses()),
        "nothing has changed"
    );
    receiver.receive(amid(&schedule, 5), &table.key(3)).unwrap();
    assert_eq!(taken(&mut receiver), [(3, b"three".to_vec())]);
    // A message that was delivered is not delivered again.
    assert_eq!(
        receiver.receive(now, &table.packet(3, b"three")),
        Err(FrameError::Packet(PacketError::NotSafe))
    );
    assert_eq!(taken(&mut receiver), []);
}

#[test]
fn a_flood_of_forged_packets_gets_only_its_share_of_the_places() {
    let schedule = schedule(100, 1, 4000);
    let table = Table::new(schedule, SECRET);
    // Ninety-nine forged packets arrive with one genuine packet, which arrives first, last or in
    // the middle. The receiver has four places.
    for genuine_at in [0, 50, 99] {
        let mut receiver = Receiver::<3, 4, 32>::new(table.parameters(), settings()).unwrap();
        let mut delivered = 0;
        for interval in 1..=schedule.last {
            let now = amid(&schedule, interval);
            for i in 0..100_u8 {
                let forged = TeslaFrame::Packet {
                    chain: schedule.reference(),
                    interval,
                    message: &[i],
                    tag: [i; TAG],
                };
                let genuine = table.packet(interval, b"genuine");
                let result =
                    receiver.receive(now, if i == genuine_at { &genuine } else { &forged });
                assert!(matches!(result, Ok(()) | Err(FrameError::Packet(PacketError::NoRoom))));
            }
            receiver.receive(amid(&schedule, interval + 1), &table.key(interval)).unwrap();
            for (of, message) in taken(&mut receiver) {
                assert_eq!(
                    (of, &message[..]),
                    (interval, &b"genuine"[..]),
                    "no forged message is delivered"
                );
                delivered += 1;
            }
        }
        // The genuine packet is kept in 4 of 100 cases, so the expected number is 160 of 4000, with
        // a standard deviation of 12.4. The bounds are five standard deviations away.
        assert!((98..=222).contains(&delivered), "{delivered} of 4000 at {genuine_at}");
        let losses = receiver.losses();
        assert_eq!(
            (losses.no_room, losses.given_up),
            (4000 * 96, 0),
            "every packet that had no place is counted"
        );
        assert_eq!(losses.forged + delivered, 4000 * 4, "every place was checked once");
    }
}

#[test]
fn a_receiver_has_the_documented_size() {
    let stated =
        |rows: usize, places: usize, bytes: usize| rows * places * (bytes + 22) + rows * 28 + 400;
    assert!(
        size_of::<Receiver<4, 4, 64>>() <= stated(4, 4, 64),
        "{}",
        size_of::<Receiver<4, 4, 64>>()
    );
    assert!(
        size_of::<Receiver<2, 1, 32>>() <= stated(2, 1, 32),
        "{}",
        size_of::<Receiver<2, 1, 32>>()
    );
    assert!(
        size_of::<Receiver<8, 16, 128>>() <= stated(8, 16, 128),
        "{}",
        size_of::<Receiver<8, 16, 128>>()
    );
    assert!(size_of::<Sender>() <= 1024, "{}", size_of::<Sender>());
}
