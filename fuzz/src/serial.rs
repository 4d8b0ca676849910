//! Fuzzes the serial line. Arbitrary bytes are used as the input of an end, as packets, and as a
//! script of events on a line between two ends. An end must deliver the sent bodies once and in
//! order, and must answer `n` bytes with at most `2 (n + 40)` bytes.

use moteseal_core::DeviceId;
use moteseal_serial::{
    Binding, Channel, HELLO, Hello, Line, OVERHEAD, Received, Side, Stuffer, Timing, Unstuffer,
    room,
};

type End = Line<{ room(64) }, { room(64) }>;

const BINDING: Binding = Binding { sender: 1 << 32 | 1, receiver: 2 << 32 | 1, number: 0 };

fn end(side: bool, start: u32) -> End {
    End::new(
        if side { Side::Gateway } else { Side::Mote(DeviceId([7; 8])) },
        start,
        Timing { repeat_ms: 10, tries: 3 },
    )
}

fn sent_bytes(end: &mut End, now_ms: u64) -> Vec<u8> {
    std::iter::from_fn(|| end.next_byte(now_ms)).collect()
}

fn stuffed(packet: &[u8]) -> Vec<u8> {
    let mut stuffer = Stuffer::default();
    std::iter::from_fn(|| stuffer.next(packet)).collect()
}

fn receive(end: &mut End, bytes: &[u8], received: &mut Vec<u8>) {
    for byte in bytes {
        if let Some(Received::Body { channel, body }) = end.receive(*byte) {
            assert!(channel == Channel::Coordinator && body.len() <= 64);
            received.extend(body);
        }
    }
}

/// Uses the bytes as the input of an end and as packets.
fn as_bytes(bytes: &[u8]) {
    let mut gateway = end(true, 2);
    let mut sent = sent_bytes(&mut gateway, 0).len();
    for byte in bytes {
        if let Some(Received::Body { body, .. }) = gateway.receive(*byte) {
            assert!(body.len() <= 64, "a body larger than the limit");
        }
        sent += sent_bytes(&mut gateway, 0).len();
    }
    // The answer to a HELLO is a HELLO of the same length, 34 bytes. The acknowledgement of the
    // shortest body is as long as the packet of that body.
    assert!(sent <= 2 * (bytes.len() + 40), "{sent} bytes answer {}", bytes.len());
    let mut unstuffer = Unstuffer::<256>::default();
    for byte in bytes.iter().chain(&[0]) {
        let Some(Ok(length)) = unstuffer.take(*byte) else { continue };
        let packet = unstuffer.packet().to_vec();
        assert_eq!(packet.len(), length);
        if packet.is_empty() {
            continue;
        }
        let mut again = Unstuffer::<256>::default();
        let ended = stuffed(&packet).iter().filter_map(|byte| again.take(*byte)).last();
        assert!(
            ended == Some(Ok(length)) && again.packet() == packet,
            "the packet is not decoded to the same bytes"
        );
        if packet[0] == HELLO
            && let Ok(hello) = Hello::decode(&packet)
        {
            assert_eq!(hello.encode()[..], packet, "two encodings of one HELLO");
        } else if let Ok(body) = BINDING.open(&packet) {
            let mut out = vec![0; body.len() + OVERHEAD];
            out[2..2 + body.len()].copy_from_slice(body);
            assert_eq!(BINDING.close(packet[0], body.len(), &mut out), Some(packet.len()));
            assert_eq!(out, packet, "two encodings of one packet");
        }
    }
}

/// One direction of the line: the bytes in transit from an end, the bytes that have reached the
/// other end, the bodies received there, and the next number to send.
type Direction = (Vec<u8>, Vec<u8>, Vec<u8>, u8);

/// Uses the bytes as a script for a line. Both ends send numbers, and each must receive the numbers
/// of the other end once and in order.
fn as_script(bytes: &[u8]) {
    let mut ends = [end(false, 1), end(true, 1)];
    let mut directions: [Direction; 2] = Default::default();
    let (mut starts, mut now_ms) = ([1, 1], 0);
    for pair in bytes.chunks_exact(2) {
        let (what, how) = (pair[0] >> 1, usize::from(pair[1]));
        let side = usize::from(pair[0] & 1);
        let (in_transit, carried, received, next) = &mut directions[side];
        let at = how % in_transit.len().max(1);
        match what % 8 {
            0 | 1 => {
                now_ms += how as u64 % 16;
                in_transit.extend(sent_bytes(&mut ends[side], now_ms));
            }
            2 if *next < u8::MAX && ends[side].send(Channel::Coordinator, &[*next]).is_ok() => {
                *next += 1;
            }
            3 | 4 => {
                let bytes: Vec<u8> = in_transit.drain(..in_transit.len().min(how)).collect();
                receive(&mut ends[1 - side], &bytes, received);
                carried.extend(bytes);
            }
            5 if !in_transit.is_empty() => drop(in_transit.remove(at)),
            6 => {
                let from = how * 4 % (carried.len() + 1);
                in_transit.extend_from_slice(&carried[from..(from + 64).min(carried.len())]);
            }
            7 if how < 32 => {
                starts[side] += 1;
                ends[side] = end(side == 1, starts[side]);
            }
            _ => {
                in_transit
                    .iter_mut()
                    .skip(at)
                    .take(1)
                    .for_each(|byte| *byte ^= 1 << (what >> 3 & 7));
            }
        }
        assert!(received.is_sorted_by(|earlier, later| earlier < later), "{received:?}");
        assert!(received.last().is_none_or(|last| last < next), "a number that was not sent");
    }
}

/// Runs all checks.
pub fn run(bytes: &[u8]) {
    as_bytes(bytes);
    as_script(bytes);
}

/// Returns the bytes that a mote sends to the gateway in the session of `as_bytes`, single packets,
/// and a script that delivers bodies.
pub fn seeds() -> Vec<Vec<u8>> {
    let hello = |is_open, received| {
        let hello = Hello {
            is_open,
            longest_body: 64,
            device: DeviceId([7; 8]),
            session: BINDING.sender,
            received,
        };
        stuffed(&hello.encode())
    };
    let body = |number, length: usize| {
        let mut packet = vec![0x55; length + OVERHEAD];
        Binding { number, ..BINDING }.close(1, length, &mut packet).unwrap();
        stuffed(&packet)
    };
    let input = [
        hello(false, 0),
        hello(true, BINDING.receiver),
        body(0, 20),
        body(0, 20),
        body(1, 0),
        body(2, 64),
        body(3, 65),
    ]
    .concat();
    let mut gateway = end(true, 2);
    let mut received = Vec::new();
    receive(&mut gateway, &input, &mut received);
    assert_eq!(
        (gateway.counters().received, gateway.counters().received_again),
        (3, 1),
        "the seed does not open a session"
    );
    let turn = |side: u8| [side, 15, 3 << 1 | side, 255];
    let both = [turn(0), turn(1)].concat();
    let script: Vec<u8> =
        (0..6).flat_map(|_| [&[2 << 1, 0, 2 << 1 | 1, 0], &both[..], &both[..]].concat()).collect();
    vec![input, body(0, 30), script]
}
