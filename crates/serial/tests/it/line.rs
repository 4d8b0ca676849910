//! The serial line of spec/serial.md: its bytes equal those of a slow reference, and a body that an
//! end accepts is delivered at most once, in order and unchanged, whatever the line loses, changes,
//! repeats and delays, and however often either end restarts.

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

/// All bytes that an end has to send at a time.
fn said<const RX: usize, const TX: usize>(end: &mut Line<RX, TX>, now_ms: u64) -> Vec<u8> {
    std::iter::from_fn(|| end.next_byte(now_ms)).collect()
}

/// The received bodies in order.
fn hear<const RX: usize, const TX: usize>(
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

/// Connects two ends by a perfect line until neither has more to send at that time.
fn settle(mote: &mut End, gateway: &mut End, now_ms: u64) -> [Vec<(Channel, Vec<u8>)>; 2] {
    let mut heard = [Vec::new(), Vec::new()];
    loop {
        let (up, down) = (said(mote, now_ms), said(gateway, now_ms));
        if up.is_empty() && down.is_empty() {
            return heard;
        }
        heard[0].extend(hear(gateway, &up));
        heard[1].extend(hear(mote, &down));
    }
}

#[test]
fn the_first_packets_are_those_of_the_specification() {
    let (mut mote, mut gateway) = ends();
    let hello = |is_open: u8, device: [u8; 8], session: u64, heard: u64| {
        let mut body = vec![1, is_open, 1, 44];
        body.extend(device);
        body.extend(session.to_be_bytes());
        body.extend(heard.to_be_bytes());
        crate::reference::packet(0x80, None, &body)
    };
    let (a, b) = (1 << 32 | 1, 900 << 32 | 1);
    let first = said(&mut mote, 0);
    assert_eq!(first, hello(0, MOTE.0, a, 0));
    assert!(hear(&mut gateway, &first).is_empty());
    let answer = said(&mut gateway, 0);
    assert_eq!(answer, hello(0, [0; 8], b, a));
    hear(&mut mote, &answer);
    assert_eq!(
        mote.peer().map(|peer| (peer.device, peer.session, peer.longest_body)),
        Some((DeviceId([0; 8]), b, 300))
    );
    let third = said(&mut mote, 0);
    assert_eq!(third, hello(1, MOTE.0, a, b));
    assert_eq!(gateway.peer(), None);
    hear(&mut gateway, &third);
    assert_eq!(gateway.peer().map(|peer| peer.device), Some(MOTE));
    assert_eq!((said(&mut gateway, 0), said(&mut mote, 0)), (vec![], vec![]));
    mote.send(Channel::Sums, b"one\0two").unwrap();
    let body = said(&mut mote, 0);
    assert_eq!(body, crate::reference::packet(3, Some((a, b, 0)), b"one\0two"));
    assert_eq!(hear(&mut gateway, &body), [(Channel::Sums, b"one\0two".to_vec())]);
    assert_eq!(said(&mut gateway, 0), crate::reference::packet(0x81, Some((b, a, 0)), b""));
}

#[test]
fn delivers_bodies_in_both_directions() {
    let (mut mote, mut gateway) = ends();
    settle(&mut mote, &mut gateway, 0);
    for number in 0..600_u32 {
        let channel = Channel::ALL[number as usize % 6];
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
        (mote.counters().acknowledged, mote.counters().heard, mote.counters().lost),
        (600, 600, 0)
    );
}

#[test]
fn repeats_a_body_until_it_is_acknowledged_and_delivers_it_once() {
    let (mut mote, mut gateway) = ends();
    settle(&mut mote, &mut gateway, 0);
    mote.send(Channel::Coordinator, b"reading").unwrap();
    let first = said(&mut mote, 0);
    assert!(said(&mut mote, 399).is_empty());
    assert_eq!(mote.due_ms(), Some(400));
    assert_eq!(said(&mut mote, 400), first);
    assert_eq!(hear(&mut gateway, &first).len(), 1);
    // The acknowledgement is lost.
    said(&mut gateway, 400);
    assert!(hear(&mut gateway, &first).is_empty());
    hear(&mut mote, &said(&mut gateway, 500));
    assert!(mote.is_idle() && mote.due_ms().is_none());
    let counters = (mote.counters(), gateway.counters());
    assert_eq!(
        (counters.0.repeated, counters.0.acknowledged, counters.1.heard, counters.1.heard_again),
        (1, 1, 1, 1)
    );
}

#[test]
fn drops_a_body_that_is_never_acknowledged_and_opens_the_line_again() {
    let (mut mote, mut gateway) = ends();
    settle(&mut mote, &mut gateway, 0);
    mote.send(Channel::Coordinator, b"lost").unwrap();
    let mut now_ms = 0;
    let mut spoken = Vec::new();
    while mote.counters().lost == 0 {
        spoken.push(said(&mut mote, now_ms));
        now_ms += 400;
    }
    assert_eq!(spoken.len(), 11);
    assert!(spoken[..10].iter().all(|packet| *packet == spoken[0]));
    assert!(mote.is_idle() && mote.peer().is_none());
    mote.send(Channel::Coordinator, b"later").unwrap();
    hear(&mut gateway, &spoken[10]);
    assert_eq!(
        settle(&mut mote, &mut gateway, now_ms)[0],
        [(Channel::Coordinator, b"later".to_vec())]
    );
    // A packet of the earlier session arrives late.
    assert!(hear(&mut gateway, &spoken[0]).is_empty());
}

#[test]
fn a_restarted_end_opens_the_line_again_and_ignores_earlier_packets() {
    let (mut mote, mut gateway) = ends();
    settle(&mut mote, &mut gateway, 0);
    gateway.send(Channel::CoordinatorAnnouncement, b"round").unwrap();
    let old = said(&mut gateway, 0);
    let mut mote = End::new(Side::Mote(MOTE), 2, Timing::default());
    assert!(hear(&mut mote, &old).is_empty());
    let mut opened = 0;
    for now_ms in 0..3 {
        for byte in said(&mut mote, now_ms) {
            if let Some(Received::Opened(peer)) = gateway.receive(byte) {
                assert_eq!(peer.device, MOTE);
                opened += 1;
            }
        }
        assert!(hear(&mut mote, &said(&mut gateway, now_ms)).is_empty());
    }
    assert_eq!((opened, gateway.counters().opened, gateway.counters().lost), (1, 2, 1));
    assert!(hear(&mut mote, &old).is_empty());
    gateway.send(Channel::CoordinatorAnnouncement, b"round").unwrap();
    assert_eq!(settle(&mut mote, &mut gateway, 3)[1].len(), 1);
}

#[test]
fn distinguishes_motes_with_the_same_session_number() {
    let (mut mote, mut gateway) = ends();
    settle(&mut mote, &mut gateway, 0);
    mote.send(Channel::Coordinator, b"old").unwrap();
    let old = said(&mut mote, 0);
    // It has started as often as the one whose place it takes.
    let other = DeviceId([8; 8]);
    let mut mote = End::new(Side::Mote(other), 1, Timing::default());
    mote.send(Channel::Coordinator, b"new").unwrap();
    assert_eq!(settle(&mut mote, &mut gateway, 1)[0], [(Channel::Coordinator, b"new".to_vec())]);
    assert_eq!(
        (gateway.peer().map(|peer| peer.device), gateway.counters().opened),
        (Some(other), 2)
    );
    // Packets of the first mote under that number no longer count.
    assert!(hear(&mut gateway, &old).is_empty());
}

#[test]
fn rejects_or_counts_as_lost_a_body_that_the_other_end_cannot_hold() {
    let mut mote = Line::<{ room(64) }, { room(300) }>::new(Side::Mote(MOTE), 1, Timing::default());
    let mut gateway =
        Line::<{ room(MAX_BODY) }, { room(MAX_BODY) }>::new(Side::Gateway, 1, Timing::default());
    assert_eq!(gateway.send(Channel::Coordinator, &[1; MAX_BODY + 1]), Err(SendError::BodyTooLong));
    // Before the line is open, neither end knows.
    gateway.send(Channel::Coordinator, &[1; 65]).unwrap();
    for _ in 0..4 {
        hear(&mut gateway, &said(&mut mote, 0));
        hear(&mut mote, &said(&mut gateway, 0));
    }
    assert_eq!(
        (gateway.counters().lost, gateway.longest_body(), mote.longest_body()),
        (1, 64, 300)
    );
    assert_eq!(gateway.send(Channel::Coordinator, &[1; 65]), Err(SendError::BodyTooLong));
    gateway.send(Channel::Coordinator, &[1; 64]).unwrap();
    assert_eq!(hear(&mut mote, &said(&mut gateway, 0)).len(), 1);
}

#[test]
fn reports_an_echo_and_an_end_of_the_same_kind() {
    let (mut mote, mut gateway) = ends();
    for _ in 0..2 {
        let echo = said(&mut mote, 400);
        let heard: Vec<_> = echo
            .iter()
            .filter_map(|byte| mote.receive(*byte).map(|heard| format!("{heard:?}")))
            .collect();
        assert!(heard.iter().all(|heard| heard == "Dropped(SameSide)"), "{heard:?}");
    }
    settle(&mut mote, &mut gateway, 1000);
    mote.send(Channel::Coordinator, b"echo").unwrap();
    let echo = said(&mut mote, 1000);
    let heard: Vec<_> = echo
        .iter()
        .filter_map(|byte| mote.receive(*byte).map(|heard| format!("{heard:?}")))
        .collect();
    assert_eq!(heard, ["Dropped(ChecksumMismatch)"]);
}

#[test]
fn rejects_each_invalid_packet_by_name() {
    let hello = Hello { is_open: false, longest_body: 1400, device: MOTE, session: 1, heard: 0 };
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
        // The same sequence byte.
        Binding { number: 44, ..binding },
        Binding { number: 301, ..binding },
    ] {
        assert_eq!(other.open(packet), Err(PacketError::ChecksumMismatch), "{other:?}");
    }
    for kind in [0, 7, 0x7f, 0x80, 0x82, 0xff] {
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
fn recovers_after_packets_that_are_too_long_or_badly_stuffed() {
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
fn a_line_takes_its_packets_and_240_bytes() {
    let packets = 2 * room(MAX_BODY);
    assert!(size_of::<Line<{ room(MAX_BODY) }, { room(MAX_BODY) }>>() <= packets + 240);
    assert_eq!((room(0), room(28), room(29)), (34, 34, 35));
}

/// What happens on the line, or to an end.
#[derive(Clone, Debug)]
enum Happening {
    /// So many milliseconds pass, and both ends say what they have to say.
    Talk(u16),
    /// The mote's side, or the gateway's, takes its next body.
    Send(bool),
    /// It restarts.
    Reset(bool),
    /// The line carries so many bytes that way.
    Carry(bool, u16),
    /// It loses so many of those under way, from a place on.
    Lose(bool, u16, u8),
    /// It changes one.
    Change(bool, u16, u8),
    /// It says some again that it has carried at any time before.
    Repeat(bool, u16, u16),
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let side = any::<bool>();
    let happening = prop_oneof![
        4 => (0..600u16).prop_map(Happening::Talk),
        4 => side.prop_map(Happening::Send),
        1 => side.prop_map(Happening::Reset),
        8 => (side, prop_oneof![0..90u16, Just(u16::MAX)]).prop_map(|(side, bytes)| Happening::Carry(side, bytes)),
        1 => (side, any::<u16>(), 1..60u8).prop_map(|(side, at, bytes)| Happening::Lose(side, at, bytes)),
        1 => (side, any::<u16>(), 1..=255u8).prop_map(|(side, at, mask)| Happening::Change(side, at, mask)),
        2 => (side, any::<u16>(), 1..400u16).prop_map(|(side, at, bytes)| Happening::Repeat(side, at, bytes)),
    ];
    prop::collection::vec(happening, 0..300)
}

/// A body that contains its number, with zeros and other bytes after it.
fn numbered(number: u32) -> Vec<u8> {
    let mut body = number.to_be_bytes().to_vec();
    body.extend((0..number % 40).map(|at| u8::try_from(at % 3).unwrap()));
    body
}

/// One way of the line.
#[derive(Default)]
struct Way {
    under_way: Vec<u8>,
    carried: Vec<u8>,
    /// The number of the next body, and those that were received.
    next: u32,
    heard: Vec<u32>,
}

/// Both ends and the line; way 0 goes from the mote to the gateway.
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

    fn talk(&mut self, ms: u16) {
        self.now_ms += u64::from(ms);
        for (end, way) in self.ends.iter_mut().zip(&mut self.ways) {
            way.under_way.extend(said(end, self.now_ms));
        }
    }

    fn carry(&mut self, way: usize, bytes: usize) {
        let Way { under_way, carried, heard, .. } = &mut self.ways[way];
        let bytes: Vec<u8> = under_way.drain(..bytes.min(under_way.len())).collect();
        for (_, body) in hear(&mut self.ends[1 - way], &bytes) {
            let number = u32::from_be_bytes(*body.first_chunk().unwrap());
            assert_eq!(body, numbered(number), "a body that nobody sent");
            heard.push(number);
        }
        carried.extend(bytes);
    }

    fn happen(&mut self, happening: &Happening) {
        match *happening {
            Happening::Talk(ms) => self.talk(ms),
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

/// Whatever happens, bodies are heard in order and once; and once the line carries again, the next
/// ones are.
fn holds(happenings: &[Happening]) -> Result<(), TestCaseError> {
    let mut world = World::new();
    happenings.iter().for_each(|happening| world.happen(happening));
    for way in &world.ways {
        prop_assert!(way.heard.is_sorted_by(|earlier, later| earlier < later), "{:?}", way.heard);
        prop_assert!(way.heard.iter().all(|number| *number < way.next));
    }
    // What is under way still comes; then the line opens, and what was taken goes out or is given
    // up.
    for _ in 0..60 {
        world.talk(400);
        [0, 1].into_iter().for_each(|way| world.carry(way, usize::MAX));
    }
    prop_assert!(world.ends.iter().all(|end| end.peer().is_some() && end.is_idle()));
    let before = [0, 1].map(|way: usize| world.ways[way].heard.len());
    for _ in 0..3 {
        [false, true].into_iter().for_each(|side| world.happen(&Happening::Send(side)));
        for _ in 0..3 {
            world.talk(0);
            [0, 1].into_iter().for_each(|way| world.carry(way, usize::MAX));
        }
    }
    for (way, before) in world.ways.iter().zip(before) {
        prop_assert_eq!(way.heard.len(), before + 3);
        prop_assert!(way.heard.is_sorted_by(|earlier, later| earlier < later), "{:?}", way.heard);
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
        let heard = bytes.iter().chain(&[0]).filter_map(|byte| unstuffer.take(*byte)).next().unwrap();
        let expected = crate::reference::unstuffed(&bytes);
        prop_assert_eq!(heard.ok().map(|_| unstuffer.packet().to_vec()), expected);
    }

    #[test]
    fn encodes_packets_as_the_reference_does(sender in 1..u64::MAX, receiver in 1..u64::MAX, number: u32, channel in 1..7u8,
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
    fn no_bytes_make_an_end_panic_deliver_or_send_more_than_it_received(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let (_, mut gateway) = ends();
        said(&mut gateway, 0);
        prop_assert!(hear(&mut gateway, &bytes).is_empty());
        prop_assert!(said(&mut gateway, 0).len() <= bytes.len().max(40));
    }
}

/// The rows of the table in spec/serial.md, section 6.
fn rows() -> Vec<(String, Vec<u8>)> {
    let (mut mote, mut gateway) = ends();
    let mut rows = Vec::new();
    let mut row = |who: &str, what: &str, bytes: &[u8]| {
        rows.push((format!("{who} | {what}"), bytes.to_vec()));
    };
    let first = said(&mut mote, 0);
    row("mote", "HELLO, has heard nobody", &first);
    hear(&mut gateway, &first);
    let answer = said(&mut gateway, 0);
    row("gateway", "HELLO, has heard the mote", &answer);
    hear(&mut mote, &answer);
    let open = said(&mut mote, 0);
    row("mote", "HELLO, open", &open);
    hear(&mut gateway, &open);
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
        let bytes = said(&mut mote, 0);
        row("mote", what, &bytes);
        assert_eq!(hear(&mut gateway, &bytes), [(channel, body)]);
        let bytes = said(&mut gateway, 0);
        row("gateway", "acknowledges it", &bytes);
        hear(&mut mote, &bytes);
        assert!(mote.is_idle());
    }
    gateway.send(Channel::CoordinatorAnnouncement, b"round").unwrap();
    row("gateway", "channel 2, \"round\"", &said(&mut gateway, 0));
    rows
}

/// The rows of the second table: what the gateway refuses once the line is open, and as what.
fn refused_rows() -> Vec<(String, Vec<u8>)> {
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
        ("a HELLO with a bit turned over", noisy),
        ("a HELLO of version 2", hello(2, 0, MOTE.0, a)),
        ("a HELLO that is open twice", hello(1, 2, MOTE.0, a)),
        ("a HELLO of session 0", hello(1, 0, MOTE.0, 0)),
        ("a HELLO of a gateway", hello(1, 0, [0; 8], a)),
        (
            "a body of the mote's session before",
            crate::reference::packet(1, Some((a - 1, b, 0)), b"reading"),
        ),
        (
            "a body for the gateway's session before",
            crate::reference::packet(1, Some((a, b - 1, 0)), b"reading"),
        ),
        ("a body with number 256", crate::reference::packet(1, Some((a, b, 256)), b"reading")),
        ("the body after the next", crate::reference::packet(1, Some((a, b, 1)), b"reading")),
        (
            "the gateway's own body, as an echo",
            crate::reference::packet(1, Some((b, a, 0)), b"reading"),
        ),
        ("a body that lacks two bytes", cut),
        ("a body on channel 7", crate::reference::packet(7, Some((a, b, 0)), b"reading")),
        ("five bytes", vec![0, 6, 1, 1, 1, 1, 1, 0]),
    ];
    let mut named = Vec::new();
    for (what, bytes) in rows {
        let errors: Vec<_> = bytes
            .iter()
            .filter_map(|byte| gateway.receive(*byte).map(|heard| format!("{heard:?}")))
            .collect();
        let [error] = &errors[..] else { panic!("{what}: {errors:?}") };
        let error = error
            .strip_prefix("Dropped(")
            .and_then(|error| error.strip_suffix(')'))
            .unwrap_or_else(|| panic!("{error}"));
        named.push((format!("{what} | `{error}`"), bytes));
    }
    // None of it has done anything.
    mote.send(Channel::Coordinator, b"reading").unwrap();
    assert_eq!(settle(&mut mote, &mut gateway, 0)[0].len(), 1);
    named
}

#[test]
fn the_tables_of_the_specification_match_what_ends_send_and_reject() {
    let text = include_str!("../../../../spec/serial.md");
    for (head, rows) in
        [("| who | what | bytes |", rows()), ("| what | error | bytes |", refused_rows())]
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
