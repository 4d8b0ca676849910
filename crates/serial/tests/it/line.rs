//! Tests of the serial line (spec/serial.md). The encoded bytes equal those of a slow reference. A
//! body that an end accepts for sending is delivered at most once, in order and unchanged, even if
//! the line loses, changes, repeats or delays bytes, and even if the ends restart.

use moteseal_core::DeviceId;
use moteseal_serial::{
    ACK, Binding, Channel, HELLO, Hello, Line, MAX_BODY, PacketError, Received, SendError, Side,
    Stuffer, Timing, Unstuffer, room,
};
use proptest::prelude::*;

const MOTE: DeviceId = DeviceId([7, 0, 1, 2, 3, 4, 5, 6]);
type End = Line<{ room(300) }, { room(300) }>;

fn ends() -> (End, End) {
    (
        End::new(Side::Mote(MOTE), 1, Timing::default()),
        End::new(Side::Gateway, 900, Timing::default()),
    )
}

/// Returns all bytes that an end sends at the time `now_ms`.
fn bytes_from<const RX: usize, const TX: usize>(end: &mut Line<RX, TX>, now_ms: u64) -> Vec<u8> {
    std::iter::from_fn(|| end.next_byte(now_ms)).collect()
}

/// Passes bytes to an end and returns the bodies that it receives, in order.
fn pass_to<const RX: usize, const TX: usize>(
    end: &mut Line<RX, TX>,
    bytes: &[u8],
) -> Vec<(Channel, Vec<u8>)> {
    let mut bodies = Vec::new();
    for byte in bytes {
        if let Some(Received::Body { channel, body }) = end.receive(*byte) {
            bodies.push((channel, body.to_vec()));
        }
    }
    bodies
}

/// Connects two ends by a line without errors, until neither has more to send at the time `now_ms`.
/// Returns the bodies that the gateway and the mote have received.
fn settle(mote: &mut End, gateway: &mut End, now_ms: u64) -> [Vec<(Channel, Vec<u8>)>; 2] {
    let mut received = [Vec::new(), Vec::new()];
    loop {
        let (up, down) = (bytes_from(mote, now_ms), bytes_from(gateway, now_ms));
        if up.is_empty() && down.is_empty() {
            return received;
        }
        received[0].extend(pass_to(gateway, &up));
        received[1].extend(pass_to(mote, &down));
    }
}

#[test]
fn the_first_packets_follow_the_specification() {
    let (mut mote, mut gateway) = ends();
    let hello = |is_open: u8, device: [u8; 8], session: u64, received: u64| {
        let mut body = vec![1, is_open, 1, 44];
        body.extend(device);
        body.extend(session.to_be_bytes());
        body.extend(received.to_be_bytes());
        crate::reference::packet(0x80, None, &body)
    };
    let (a, b) = (1 << 32 | 1, 900 << 32 | 1);
    let first = bytes_from(&mut mote, 0);
    assert_eq!(first, hello(0, MOTE.0, a, 0));
    assert!(pass_to(&mut gateway, &first).is_empty());
    let answer = bytes_from(&mut gateway, 0);
    assert_eq!(answer, hello(0, [0; 8], b, a));
    pass_to(&mut mote, &answer);
    assert_eq!(
        mote.peer().map(|peer| (peer.device, peer.session, peer.longest_body)),
        Some((DeviceId([0; 8]), b, 300))
    );
    let third = bytes_from(&mut mote, 0);
    assert_eq!(third, hello(1, MOTE.0, a, b));
    assert_eq!(gateway.peer(), None);
    pass_to(&mut gateway, &third);
    assert_eq!(gateway.peer().map(|peer| peer.device), Some(MOTE));
    assert_eq!((bytes_from(&mut gateway, 0), bytes_from(&mut mote, 0)), (vec![], vec![]));
    mote.send(Channel::Sums, b"one\0two").unwrap();
    let body = bytes_from(&mut mote, 0);
    assert_eq!(body, crate::reference::packet(3, Some((a, b, 0)), b"one\0two"));
    assert_eq!(pass_to(&mut gateway, &body), [(Channel::Sums, b"one\0two".to_vec())]);
    assert_eq!(bytes_from(&mut gateway, 0), crate::reference::packet(0x81, Some((b, a, 0)), b""));
}

#[test]
fn delivers_bodies_in_both_directions() {
    let (mut mote, mut gateway) = ends();
    settle(&mut mote, &mut gateway, 0);
    for number in 0..600_u32 {
        let channel = Channel::ALL[number as usize % Channel::ALL.len()];
        let body = vec![u8::try_from(number % 251).unwrap(); number as usize % 301];
        mote.send(channel, &body).unwrap();
        assert_eq!(mote.send(channel, b""), Err(SendError::Busy));
        gateway.send(channel, &body).unwrap();
        assert_eq!(
            settle(&mut mote, &mut gateway, 0),
            [vec![(channel, body.clone())], vec![(channel, body)]]
        );
        assert!(mote.is_idle() && gateway.is_idle());
    }
    assert_eq!(
        (mote.counters().acknowledged, mote.counters().received, mote.counters().lost),
        (600, 600, 0)
    );
}

#[test]
fn repeats_a_body_until_it_is_acknowledged_and_delivers_it_once() {
    let (mut mote, mut gateway) = ends();
    settle(&mut mote, &mut gateway, 0);
    mote.send(Channel::Coordinator, b"reading").unwrap();
    let first = bytes_from(&mut mote, 0);
    assert!(bytes_from(&mut mote, 399).is_empty());
    assert_eq!(mote.due_ms(), Some(400));
    assert_eq!(bytes_from(&mut mote, 400), first);
    assert_eq!(pass_to(&mut gateway, &first).len(), 1);
    // The acknowledgement is lost.
    bytes_from(&mut gateway, 400);
    assert!(pass_to(&mut gateway, &first).is_empty());
    pass_to(&mut mote, &bytes_from(&mut gateway, 500));
    assert!(mote.is_idle() && mote.due_ms().is_none());
    let counters = (mote.counters(), gateway.counters());
    assert_eq!(
        (
            counters.0.repeated,
            counters.0.acknowledged,
            counters.1.received,
            counters.1.received_again
        ),
        (1, 1, 1, 1)
    );
}

#[test]
fn drops_an_unacknowledged_body_and_opens_the_line_again() {
    let (mut mote, mut gateway) = ends();
    settle(&mut mote, &mut gateway, 0);
    mote.send(Channel::Coordinator, b"lost").unwrap();
    let mut now_ms = 0;
    let mut sent = Vec::new();
    while mote.counters().lost == 0 {
        sent.push(bytes_from(&mut mote, now_ms));
        now_ms += 400;
    }
    assert_eq!(sent.len(), 11);
    assert!(sent[..10].iter().all(|packet| *packet == sent[0]));
    assert!(mote.is_idle() && mote.peer().is_none());
    mote.send(Channel::Coordinator, b"later").unwrap();
    pass_to(&mut gateway, &sent[10]);
    assert_eq!(
        settle(&mut mote, &mut gateway, now_ms)[0],
        [(Channel::Coordinator, b"later".to_vec())]
    );
    // A packet of the earlier session arrives late.
    assert!(pass_to(&mut gateway, &sent[0]).is_empty());
}

#[test]
fn a_restarted_end_opens_the_line_again_and_ignores_earlier_packets() {
    let (mut mote, mut gateway) = ends();
    settle(&mut mote, &mut gateway, 0);
    gateway.send(Channel::CoordinatorAnnouncement, b"round").unwrap();
    let old = bytes_from(&mut gateway, 0);
    let mut mote = End::new(Side::Mote(MOTE), 2, Timing::default());
    assert!(pass_to(&mut mote, &old).is_empty());
    let mut opened = 0;
    for now_ms in 0..3 {
        for byte in bytes_from(&mut mote, now_ms) {
            if let Some(Received::Opened(peer)) = gateway.receive(byte) {
                assert_eq!(peer.device, MOTE);
                opened += 1;
            }
        }
        assert!(pass_to(&mut mote, &bytes_from(&mut gateway, now_ms)).is_empty());
    }
    assert_eq!((opened, gateway.counters().opened, gateway.counters().lost), (1, 2, 1));
    assert!(pass_to(&mut mote, &old).is_empty());
    gateway.send(Channel::CoordinatorAnnouncement, b"round").unwrap();
    assert_eq!(settle(&mut mote, &mut gateway, 3)[1].len(), 1);
}

#[test]
fn distinguishes_motes_with_the_same_session_number() {
    let (mut mote, mut gateway) = ends();
    settle(&mut mote, &mut gateway, 0);
    mote.send(Channel::Coordinator, b"old").unwrap();
    let old = bytes_from(&mut mote, 0);
    // The new mote has the same session number as the mote that it replaces.
    let other = DeviceId([8; 8]);
    let mut mote = End::new(Side::Mote(other), 1, Timing::default());
    mote.send(Channel::Coordinator, b"new").unwrap();
    assert_eq!(settle(&mut mote, &mut gateway, 1)[0], [(Channel::Coordinator, b"new".to_vec())]);
    assert_eq!(
        (gateway.peer().map(|peer| peer.device), gateway.counters().opened),
        (Some(other), 2)
    );
    // Packets of the first mote with the same session number are no longer valid.
    assert!(pass_to(&mut gateway, &old).is_empty());
}

#[test]
fn rejects_or_loses_a_body_that_is_too_long_for_the_other_end() {
    let mut mote = Line::<{ room(64) }, { room(300) }>::new(Side::Mote(MOTE), 1, Timing::default());
    let mut gateway =
        Line::<{ room(MAX_BODY) }, { room(MAX_BODY) }>::new(Side::Gateway, 1, Timing::default());
    assert_eq!(gateway.send(Channel::Coordinator, &[1; MAX_BODY + 1]), Err(SendError::BodyTooLong));
    // Before the line is open, neither end knows the other's limit.
    gateway.send(Channel::Coordinator, &[1; 65]).unwrap();
    for _ in 0..4 {
        pass_to(&mut gateway, &bytes_from(&mut mote, 0));
        pass_to(&mut mote, &bytes_from(&mut gateway, 0));
    }
    assert_eq!(
        (gateway.counters().lost, gateway.longest_body(), mote.longest_body()),
        (1, 64, 300)
    );
    assert_eq!(gateway.send(Channel::Coordinator, &[1; 65]), Err(SendError::BodyTooLong));
    gateway.send(Channel::Coordinator, &[1; 64]).unwrap();
    assert_eq!(pass_to(&mut mote, &bytes_from(&mut gateway, 0)).len(), 1);
}

#[test]
fn reports_an_echo_and_an_end_of_the_same_kind() {
    let (mut mote, mut gateway) = ends();
    for _ in 0..2 {
        let echo = bytes_from(&mut mote, 400);
        let received: Vec<_> = echo
            .iter()
            .filter_map(|byte| mote.receive(*byte).map(|received| format!("{received:?}")))
            .collect();
        assert!(received.iter().all(|received| received == "Dropped(SameSide)"), "{received:?}");
    }
    settle(&mut mote, &mut gateway, 1000);
    mote.send(Channel::Coordinator, b"echo").unwrap();
    let echo = bytes_from(&mut mote, 1000);
    let received: Vec<_> = echo
        .iter()
        .filter_map(|byte| mote.receive(*byte).map(|received| format!("{received:?}")))
        .collect();
    assert_eq!(received, ["Dropped(ChecksumMismatch)"]);
}

#[test]
fn rejects_each_kind_of_invalid_packet() {
    let hello = Hello { is_open: false, longest_body: 1400, device: MOTE, session: 1, received: 0 };
    let good = hello.encode();
    assert_eq!(Hello::decode(&good), Ok(hello));
    let resealed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut front = good[..good.len() - 4].to_vec();
        change(&mut front);
        let checksum = crate::reference::crc32(&front).to_be_bytes();
        [front, checksum.to_vec()].concat()
    };
    assert_eq!(Hello::decode(&resealed(&|_| ())), Ok(hello));
    for (packet, error) in [
        (resealed(&|front| front[2] = 2), PacketError::UnsupportedVersion),
        (resealed(&|front| front.truncate(9)), PacketError::Malformed),
        (resealed(&|front| front.push(0)), PacketError::Malformed),
        (resealed(&|front| front[1] = 1), PacketError::Malformed),
        (resealed(&|front| front[3] = 2), PacketError::Malformed),
        (resealed(&|front| front[14..22].fill(0)), PacketError::Malformed),
        (vec![HELLO; 3], PacketError::Malformed),
        (
            good.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == 20)).collect(),
            PacketError::ChecksumMismatch,
        ),
    ] {
        assert_eq!(Hello::decode(&packet), Err(error), "{packet:02x?}");
    }
    let binding = Binding { sender: 1, receiver: 2, number: 300 };
    let mut packet = [0; 32];
    packet[2..5].copy_from_slice(b"abc");
    let length = binding.close(Channel::Coordinator as u8, 3, &mut packet).unwrap();
    let packet = &packet[..length];
    assert_eq!(binding.open(packet), Ok(&b"abc"[..]));
    for other in [
        Binding { sender: 2, receiver: 1, ..binding },
        Binding { sender: 3, ..binding },
        Binding { receiver: 3, ..binding },
        // This number has the same sequence byte.
        Binding { number: 44, ..binding },
        Binding { number: 301, ..binding },
    ] {
        assert_eq!(other.open(packet), Err(PacketError::ChecksumMismatch), "{other:?}");
    }
    for kind in [0, 8, 0x7f, 0x80, 0x82, 0xff] {
        let mut packet = [0; 9];
        binding.close(kind, 3, &mut packet).unwrap();
        assert_eq!(binding.open(&packet), Err(PacketError::Malformed), "{kind}");
    }
    let mut packet = [0; 7];
    binding.close(ACK, 1, &mut packet).unwrap();
    assert_eq!(
        binding.open(&packet),
        Err(PacketError::Malformed),
        "an acknowledgement has no body"
    );
    let mut packet = [0; MAX_BODY + 7];
    binding.close(1, MAX_BODY + 1, &mut packet).unwrap();
    assert_eq!(binding.open(&packet), Err(PacketError::Malformed), "the body is too long");
    assert_eq!(binding.close(1, 4, &mut [0; 9]), None);
}

#[test]
fn recovers_after_packets_that_are_too_long_or_wrongly_stuffed() {
    let mut unstuffer = Unstuffer::<8>::default();
    let mut feed = |bytes: &[u8]| {
        let ends: Vec<_> = bytes.iter().filter_map(|byte| unstuffer.take(*byte)).collect();
        (ends, unstuffer.packet().to_vec())
    };
    assert_eq!(feed(&[0, 0, 3, 1, 2, 0]), (vec![Ok(2)], vec![1, 2]));
    assert_eq!(feed(&[9, 1, 2, 3, 4, 5, 6, 7, 8, 0]), (vec![Ok(8)], vec![1, 2, 3, 4, 5, 6, 7, 8]));
    assert_eq!(feed(&[10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0]).0, [Err(PacketError::PacketTooLong)]);
    assert_eq!(feed(&[1; 10]).0, []);
    assert_eq!(feed(&[0]).0, [Err(PacketError::PacketTooLong)]);
    assert_eq!(feed(&[5, 1, 2, 0]).0, [Err(PacketError::Malformed)]);
    assert_eq!(feed(&[1, 0]), (vec![Ok(0)], vec![]));
    assert_eq!(feed(&[3, 9, 9, 0]), (vec![Ok(2)], vec![9, 9]));
}

#[test]
fn a_line_needs_room_for_its_packets_and_240_bytes() {
    let packets = 2 * room(MAX_BODY);
    assert!(size_of::<Line<{ room(MAX_BODY) }, { room(MAX_BODY) }>>() <= packets + 240);
    assert_eq!((room(0), room(28), room(29)), (34, 34, 35));
}

/// An event on the line or at an end.
#[derive(Clone, Debug)]
enum Happening {
    /// This many milliseconds pass. Then both ends put all bytes that they have to send on the
    /// line.
    Wait(u16),
    /// The mote (`false`) or the gateway (`true`) accepts its next body for sending.
    Send(bool),
    /// The mote (`false`) or the gateway (`true`) restarts.
    Reset(bool),
    /// The line delivers this many bytes from the mote (`false`) or the gateway (`true`).
    Carry(bool, u16),
    /// The line loses bytes in transit from this end: the position of the first byte, and the
    /// number of bytes.
    Lose(bool, u16, u8),
    /// The line changes a byte in transit from this end: its position, and the bits to flip.
    Change(bool, u16, u8),
    /// The line repeats bytes from this end that it has delivered before: the position of the first
    /// byte, and the number of bytes.
    Repeat(bool, u16, u16),
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let side = any::<bool>();
    let happening = prop_oneof![
        4 => (0..600u16).prop_map(Happening::Wait),
        4 => side.prop_map(Happening::Send),
        1 => side.prop_map(Happening::Reset),
        8 => (side, prop_oneof![0..90u16, Just(u16::MAX)]).prop_map(|(side, bytes)| Happening::Carry(side, bytes)),
        1 => (side, any::<u16>(), 1..60u8).prop_map(|(side, at, bytes)| Happening::Lose(side, at, bytes)),
        1 => (side, any::<u16>(), 1..=255u8).prop_map(|(side, at, mask)| Happening::Change(side, at, mask)),
        2 => (side, any::<u16>(), 1..400u16).prop_map(|(side, at, bytes)| Happening::Repeat(side, at, bytes)),
    ];
    prop::collection::vec(happening, 0..300)
}

/// Returns a body that contains its number, followed by zeros and other bytes.
fn numbered(number: u32) -> Vec<u8> {
    let mut body = number.to_be_bytes().to_vec();
    body.extend((0..number % 40).map(|at| u8::try_from(at % 3).unwrap()));
    body
}

/// One direction of the line.
#[derive(Default)]
struct Way {
    under_way: Vec<u8>,
    carried: Vec<u8>,
    /// The number of the next body to send, and the numbers received.
    next: u32,
    received: Vec<u32>,
}

/// Both ends and the line. Index 0 is the mote, and the direction from the mote to the gateway.
struct World {
    ends: [End; 2],
    ways: [Way; 2],
    starts: [u32; 2],
    now_ms: u64,
}

impl World {
    fn new() -> Self {
        let (mote, gateway) = ends();
        Self {
            ends: [mote, gateway],
            ways: [Way::default(), Way::default()],
            starts: [1, 900],
            now_ms: 0,
        }
    }

    fn send_all(&mut self, ms: u16) {
        self.now_ms += u64::from(ms);
        for (end, way) in self.ends.iter_mut().zip(&mut self.ways) {
            way.under_way.extend(bytes_from(end, self.now_ms));
        }
    }

    fn carry(&mut self, way: usize, bytes: usize) {
        let Way { under_way, carried, received, .. } = &mut self.ways[way];
        let bytes: Vec<u8> = under_way.drain(..bytes.min(under_way.len())).collect();
        for (_, body) in pass_to(&mut self.ends[1 - way], &bytes) {
            let number = u32::from_be_bytes(*body.first_chunk().unwrap());
            assert_eq!(body, numbered(number), "a body that was never sent");
            received.push(number);
        }
        carried.extend(bytes);
    }

    fn happen(&mut self, happening: &Happening) {
        match *happening {
            Happening::Wait(ms) => self.send_all(ms),
            Happening::Send(side) => {
                let way = &mut self.ways[usize::from(side)];
                if self.ends[usize::from(side)]
                    .send(Channel::Coordinator, &numbered(way.next))
                    .is_ok()
                {
                    way.next += 1;
                }
            }
            Happening::Reset(side) => {
                let start = &mut self.starts[usize::from(side)];
                *start += 1;
                let of = if side { Side::Gateway } else { Side::Mote(MOTE) };
                self.ends[usize::from(side)] = End::new(of, *start, Timing::default());
            }
            Happening::Carry(side, bytes) => self.carry(usize::from(side), usize::from(bytes)),
            Happening::Lose(side, at, bytes) => {
                let under_way = &mut self.ways[usize::from(side)].under_way;
                let at = usize::from(at) % (under_way.len() + 1);
                under_way.drain(at..(at + usize::from(bytes)).min(under_way.len()));
            }
            Happening::Change(side, at, mask) => {
                let under_way = &mut self.ways[usize::from(side)].under_way;
                let at = usize::from(at) % under_way.len().max(1);
                under_way.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= mask);
            }
            Happening::Repeat(side, at, bytes) => {
                let Way { under_way, carried, .. } = &mut self.ways[usize::from(side)];
                let at = usize::from(at) % (carried.len() + 1);
                let again = carried[at..(at + usize::from(bytes)).min(carried.len())].to_vec();
                under_way.extend(again);
            }
        }
    }
}

/// Checks that bodies are received in order and at most once under these events. Then checks that
/// new bodies are delivered when the line has no more errors.
fn holds(happenings: &[Happening]) -> Result<(), TestCaseError> {
    let mut world = World::new();
    happenings.iter().for_each(|happening| world.happen(happening));
    for way in &world.ways {
        prop_assert!(
            way.received.is_sorted_by(|earlier, later| earlier < later),
            "{:?}",
            way.received
        );
        prop_assert!(way.received.iter().all(|number| *number < way.next));
    }
    // Bytes in transit still arrive. Then the line opens, and bodies that were accepted before are
    // delivered or dropped.
    for _ in 0..60 {
        world.send_all(400);
        [0, 1].into_iter().for_each(|way| world.carry(way, usize::MAX));
    }
    prop_assert!(world.ends.iter().all(|end| end.peer().is_some() && end.is_idle()));
    let before = [0, 1].map(|way: usize| world.ways[way].received.len());
    for _ in 0..3 {
        [false, true].into_iter().for_each(|side| world.happen(&Happening::Send(side)));
        for _ in 0..3 {
            world.send_all(0);
            [0, 1].into_iter().for_each(|way| world.carry(way, usize::MAX));
        }
    }
    for (way, before) in world.ways.iter().zip(before) {
        prop_assert_eq!(way.received.len(), before + 3);
        prop_assert!(
            way.received.is_sorted_by(|earlier, later| earlier < later),
            "{:?}",
            way.received
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn delivers_bodies_at_most_once_in_order_and_unchanged(happenings in happenings()) {
        holds(&happenings)?;
    }

    #[test]
    fn stuffs_as_the_reference_does(packet in prop::collection::vec(prop_oneof![Just(0), any::<u8>()], 1..700)) {
        let mut stuffer = Stuffer::default();
        let stuffed: Vec<u8> = std::iter::from_fn(|| stuffer.next(&packet)).collect();
        prop_assert!(stuffer.is_done());
        prop_assert_eq!(&stuffed, &[vec![0], crate::reference::stuffed(&packet), vec![0]].concat());
        let mut unstuffer = Unstuffer::<700>::default();
        let ends: Vec<_> = stuffed.iter().filter_map(|byte| unstuffer.take(*byte)).collect();
        prop_assert_eq!(ends, [Ok(packet.len())]);
        prop_assert_eq!(unstuffer.packet(), packet);
    }

    #[test]
    fn stuffs_long_runs_as_the_reference_does(runs in prop::collection::vec(prop_oneof![0..4usize, 252..257usize, 506..511usize], 1..4)) {
        let packet = runs.iter().map(|run| vec![1; *run]).collect::<Vec<_>>().join(&0);
        prop_assume!(!packet.is_empty());
        let mut stuffer = Stuffer::default();
        let stuffed: Vec<u8> = std::iter::from_fn(|| stuffer.next(&packet)).collect();
        prop_assert_eq!(&stuffed, &[vec![0], crate::reference::stuffed(&packet), vec![0]].concat());
        prop_assert_eq!(crate::reference::unstuffed(&stuffed[1..stuffed.len() - 1]), Some(packet));
    }

    #[test]
    fn unstuffs_any_bytes_as_the_reference_does(bytes in prop::collection::vec(1..=255u8, 1..300)) {
        let mut unstuffer = Unstuffer::<300>::default();
        let received = bytes.iter().chain(&[0]).filter_map(|byte| unstuffer.take(*byte)).next().unwrap();
        let expected = crate::reference::unstuffed(&bytes);
        prop_assert_eq!(received.ok().map(|_| unstuffer.packet().to_vec()), expected);
    }

    #[test]
    fn encodes_packets_as_the_reference_does(sender in 1..u64::MAX, receiver in 1..u64::MAX, number: u32, channel in 1..8u8,
                                          body in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut packet = vec![0; body.len() + 6];
        packet[2..body.len() + 2].copy_from_slice(&body);
        let binding = Binding { sender, receiver, number };
        prop_assert_eq!(binding.close(channel, body.len(), &mut packet), Some(packet.len()));
        let mut stuffer = Stuffer::default();
        let stuffed: Vec<u8> = std::iter::from_fn(|| stuffer.next(&packet)).collect();
        prop_assert_eq!(stuffed, crate::reference::packet(channel, Some((sender, receiver, number)), &body));
    }

    #[test]
    fn arbitrary_bytes_cause_no_panic_no_delivery_and_no_amplification(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let (_, mut gateway) = ends();
        bytes_from(&mut gateway, 0);
        prop_assert!(pass_to(&mut gateway, &bytes).is_empty());
        prop_assert!(bytes_from(&mut gateway, 0).len() <= bytes.len().max(40));
    }
}

/// Returns the rows of the table of packets in spec/serial.md, section 6.
fn rows() -> Vec<(String, Vec<u8>)> {
    let (mut mote, mut gateway) = ends();
    let mut rows = Vec::new();
    let mut row = |who: &str, what: &str, bytes: &[u8]| {
        rows.push((format!("{who} | {what}"), bytes.to_vec()));
    };
    let first = bytes_from(&mut mote, 0);
    row("mote", "HELLO, knows no gateway", &first);
    pass_to(&mut gateway, &first);
    let answer = bytes_from(&mut gateway, 0);
    row("gateway", "HELLO, knows the mote", &answer);
    pass_to(&mut mote, &answer);
    let open = bytes_from(&mut mote, 0);
    row("mote", "HELLO, open", &open);
    pass_to(&mut gateway, &open);
    for (channel, what, body) in [
        (Channel::Coordinator, "channel 1, \"reading\"", b"reading".to_vec()),
        (Channel::Sums, "channel 3, an empty body", vec![]),
        (Channel::Broadcast, "channel 5, two zeros", vec![0; 2]),
        (
            Channel::Coordinator,
            "channel 1, 252 times 0x55, so that the first piece is full",
            vec![0x55; 252],
        ),
    ] {
        mote.send(channel, &body).unwrap();
        let bytes = bytes_from(&mut mote, 0);
        row("mote", what, &bytes);
        assert_eq!(pass_to(&mut gateway, &bytes), [(channel, body)]);
        let bytes = bytes_from(&mut gateway, 0);
        row("gateway", "acknowledges it", &bytes);
        pass_to(&mut mote, &bytes);
        assert!(mote.is_idle());
    }
    gateway.send(Channel::CoordinatorAnnouncement, b"round").unwrap();
    row("gateway", "channel 2, \"round\"", &bytes_from(&mut gateway, 0));
    rows
}

/// Returns the rows of the second table: the packets that the gateway rejects when the line is
/// open, and the errors.
fn rejected_rows() -> Vec<(String, Vec<u8>)> {
    let (mut mote, mut gateway) = ends();
    settle(&mut mote, &mut gateway, 0);
    let (a, b) = (1 << 32 | 1, 900 << 32 | 1);
    let hello = |version: u8, is_open: u8, device: [u8; 8], session: u64| {
        let body =
            [&[version, is_open, 1, 44][..], &device, &session.to_be_bytes(), &[0; 8]].concat();
        crate::reference::packet(0x80, None, &body)
    };
    let mut noisy = hello(1, 0, MOTE.0, a);
    noisy[12] ^= 0x20;
    let mut cut = crate::reference::packet(1, Some((a, b, 0)), b"reading");
    cut.drain(8..10);
    let rows = [
        ("a HELLO with a flipped bit", noisy),
        ("a HELLO of version 2", hello(2, 0, MOTE.0, a)),
        ("a HELLO with an invalid open flag", hello(1, 2, MOTE.0, a)),
        ("a HELLO of session 0", hello(1, 0, MOTE.0, 0)),
        ("a HELLO of a gateway", hello(1, 0, [0; 8], a)),
        (
            "a body of the mote's previous session",
            crate::reference::packet(1, Some((a - 1, b, 0)), b"reading"),
        ),
        (
            "a body for the gateway's previous session",
            crate::reference::packet(1, Some((a, b - 1, 0)), b"reading"),
        ),
        ("a body with number 256", crate::reference::packet(1, Some((a, b, 256)), b"reading")),
        ("the body after the next", crate::reference::packet(1, Some((a, b, 1)), b"reading")),
        (
            "the gateway's own body, as an echo",
            crate::reference::packet(1, Some((b, a, 0)), b"reading"),
        ),
        ("a body that lacks two bytes", cut),
        ("a body on channel 8", crate::reference::packet(8, Some((a, b, 0)), b"reading")),
        ("five bytes", vec![0, 6, 1, 1, 1, 1, 1, 0]),
    ];
    let mut named = Vec::new();
    for (what, bytes) in rows {
        let errors: Vec<_> = bytes
            .iter()
            .filter_map(|byte| gateway.receive(*byte).map(|received| format!("{received:?}")))
            .collect();
        let [error] = &errors[..] else { panic!("{what}: {errors:?}") };
        let error = error
            .strip_prefix("Dropped(")
            .and_then(|error| error.strip_suffix(')'))
            .unwrap_or_else(|| panic!("{error}"));
        named.push((format!("{what} | `{error}`"), bytes));
    }
    // The rejected packets have not changed the state: a body is still delivered.
    mote.send(Channel::Coordinator, b"reading").unwrap();
    assert_eq!(settle(&mut mote, &mut gateway, 0)[0].len(), 1);
    named
}

#[test]
fn the_tables_of_the_specification_match_the_implementation() {
    let text = include_str!("../../../../spec/serial.md");
    for (head, rows) in
        [("| who | what | bytes |", rows()), ("| what | error | bytes |", rejected_rows())]
    {
        let listed: Vec<&str> = text
            .split(head)
            .nth(1)
            .unwrap()
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .collect();
        let rows: Vec<String> = rows
            .into_iter()
            .map(|(what, bytes)| format!("| {what} | `{}` |", hex::encode(bytes)))
            .collect();
        assert_eq!(listed, rows, "the table should be:\n{}", rows.join("\n"));
    }
}
