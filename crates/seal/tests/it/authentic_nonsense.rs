//! Tests of frames with a valid tag over items that no honest sender writes (spec/coordinator.md,
//! section 4): items that are truncated, changed in any byte, or have extreme lengths and counts.
//! Each item either opens, and is then the only encoding of its contents, or is rejected as
//! `Malformed`.
//!
//! The tags are computed as the specification describes, not by the code under test. Tests in
//! crates/gateway and crates/cli show how a coordinator and a mote react to such frames.

use hmac::{Hmac, KeyInit, Mac};
use moteseal_core::cbor::Writer;
use moteseal_core::link::{FrameError, LinkKey, claimed_device};
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Framing};
use moteseal_core::{DeviceId, Digest, GroupId, Level, Round, SealIndex, Sequence};
use moteseal_seal::tree::geometry;
use moteseal_seal::wire::{
    Acknowledgement, Forward, MAX_ACKNOWLEDGEMENT, MAX_REFUSAL, Refusal, StoredSeal, Uplink,
    encode_event,
};
use proptest::collection::vec;
use proptest::prelude::*;

const DEVICE: DeviceId = DeviceId(*b"device 1");
const UP: &[u8] = b"moteseal/1/link/up";
const DOWN: &[u8] = b"moteseal/1/link/down";

fn secret() -> [u8; 32] {
    *LinkKey::secret_of(&[7; 32], GroupId(*b"group  1"), DEVICE)
}

fn key() -> LinkKey {
    LinkKey::new(&secret())
}

fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    Hmac::<sha2::Sha256>::new_from_slice(key)
        .unwrap()
        .chain_update(message)
        .finalize()
        .into_bytes()
        .into()
}

/// Returns a frame with this item and a valid tag.
fn tagged(item: &[u8], direction: &[u8]) -> Vec<u8> {
    let tag = hmac(&hmac(&secret(), direction), item);
    [item, &tag[..16]].concat()
}

/// Returns the length prefix of a record whose length the schema does not fix.
fn prefix(framing: Framing, record: &[u8]) -> Option<[u8; 2]> {
    (framing == Framing::Prefixed).then(|| u16::try_from(record.len()).unwrap().to_be_bytes())
}

/// Returns the item of a frame.
fn item_of(frame: &[u8]) -> Vec<u8> {
    frame[..frame.len() - 16].to_vec()
}

/// Opens a device's frame with this item and returns whether it opens. If it opens, checks that an
/// honest device would have written the same bytes.
fn opens_up(item: &[u8]) -> bool {
    let frame = tagged(item, UP);
    let uplink = match Uplink::open(&frame, &key()) {
        Ok(uplink) => uplink,
        Err(error) => {
            assert_eq!(error, FrameError::Malformed, "the tag is valid: {item:02x?}");
            return false;
        }
    };
    let device = claimed_device(&frame).unwrap();
    if let Uplink::Forward(forward) = &uplink {
        assert!(forward.own_round.0 < 32);
        let (mut events, mut next) = (vec![0; forward.events.len() + 16], forward.from);
        let mut out = Writer::new(&mut events);
        for (seq, level, record) in forward.events() {
            assert!(next <= seq && seq < forward.until && level.0 < 32);
            let prefix = prefix(forward.framing, record);
            encode_event(&mut out, next, seq, level, prefix, record).unwrap();
            next = Sequence(seq.0 + 1);
        }
        assert_eq!(out.finish(), forward.events, "the events fill the field");
    }
    let mut out = vec![0; frame.len() + 64];
    assert_eq!(
        uplink.close(device, &key(), &mut out).unwrap(),
        frame,
        "a second encoding of the same frame"
    );
    true
}

/// Does the same as [`opens_up`] for a coordinator's frame.
fn opens_down(item: &[u8]) -> bool {
    let frame = tagged(item, DOWN);
    match Acknowledgement::open(&frame, DEVICE, &key()) {
        Ok(acknowledgement) => {
            assert_eq!(
                acknowledgement.close(DEVICE, &key(), &mut [0; MAX_ACKNOWLEDGEMENT]).unwrap(),
                frame,
                "a second encoding of the same frame"
            );
            true
        }
        Err(error) => {
            assert_eq!(error, FrameError::Malformed, "the tag is valid: {item:02x?}");
            false
        }
    }
}

/// Returns items that honest senders write: first the items of devices, then of coordinators.
fn honest() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let forward = |scheme: Scheme, framing: Framing, lengths: [usize; 3]| {
        let roots = geometry::perfect(20..500, [40, 41, 400].map(Sequence)).count();
        let digests = vec![6; 32 * roots];
        let mut events = [0; 512];
        let mut out = Writer::new(&mut events);
        for (seq, length) in [40, 41, 400].into_iter().zip(lengths) {
            let record = vec![7; length];
            let next = if seq == 40 { 20 } else { 41 + u64::from(seq == 400) };
            let prefix = prefix(framing, &record);
            encode_event(&mut out, Sequence(next), Sequence(seq), Level(9), prefix, &record)
                .unwrap();
        }
        let forward = Forward {
            index: SealIndex(300),
            epoch: EpochNumber(70_000),
            own_round: Round(2),
            from: Sequence(20),
            until: Sequence(500),
            framing,
            events: out.finish(),
            digests: (scheme == Scheme::Tree).then_some(&digests),
        };
        item_of(Uplink::Forward(forward).close(DEVICE, &key(), &mut [0; 2048]).unwrap())
    };
    let up = vec![
        forward(Scheme::Star, Framing::fixed(4).unwrap(), [4; 3]),
        forward(Scheme::Star, Framing::Prefixed, [0, 3, 60]),
        forward(Scheme::Tree, Framing::fixed(4).unwrap(), [4; 3]),
        item_of(Uplink::Schema(b"a schema").close(DEVICE, &key(), &mut [0; 100]).unwrap()),
        item_of(
            Uplink::Close { schema: Digest([1; 32]), open: &[2; 20], part: &[3; 30] }
                .close(DEVICE, &key(), &mut [0; 300])
                .unwrap(),
        ),
        item_of(Uplink::Challenge(7 << 32).close(DEVICE, &key(), &mut [0; 100]).unwrap()),
    ];
    let stored = StoredSeal {
        index: SealIndex(3),
        epoch: EpochNumber(70_000),
        last_in_epoch: true,
        digest: Digest([5; 32]),
    };
    let down = [(Some(stored), true, Some(7 << 32)), (None, false, None)].map(
        |(sealed, wants_schema, challenge)| {
            let (index, next) = (SealIndex(4), Sequence(1000));
            let acknowledgement = Acknowledgement { index, next, sealed, wants_schema, challenge };
            item_of(acknowledgement.close(DEVICE, &key(), &mut [0; MAX_ACKNOWLEDGEMENT]).unwrap())
        },
    );
    (up, down.into())
}

#[test]
fn opens_honest_frames() {
    let (up, down) = honest();
    assert!(up.iter().all(|item| opens_up(item)) && down.iter().all(|item| opens_down(item)));
    // An item of the other direction does not open, even with a valid tag.
    assert!(!up.iter().any(|item| opens_down(item)) && !down.iter().any(|item| opens_up(item)));
}

#[test]
fn rejects_truncated_frames_and_trailing_bytes() {
    let (up, down) = honest();
    for (items, opens) in [(up, opens_up as fn(&[u8]) -> bool), (down, opens_down)] {
        for item in items {
            for length in 0..item.len() {
                assert!(!opens(&item[..length]), "the first {length} bytes of {item:02x?}");
            }
            for byte in 0..=255 {
                assert!(!opens(&[&item[..], &[byte]].concat()), "{byte} after {item:02x?}");
            }
        }
    }
}

#[test]
fn a_frame_with_an_altered_byte_is_rejected_or_round_trips() {
    let (up, down) = honest();
    let (mut opened, mut refused) = (0, 0);
    for (items, opens) in [(up, opens_up as fn(&[u8]) -> bool), (down, opens_down)] {
        for item in items {
            for place in 0..item.len() {
                for flip in 1..=255 {
                    let mut altered = item.clone();
                    altered[place] ^= flip;
                    *(if opens(&altered) { &mut opened } else { &mut refused }) += 1;
                }
            }
        }
    }
    // Some altered items open, because the sender may choose any numbers and records. Altered heads
    // and lengths are rejected.
    assert!(opened > 10_000 && refused > 10_000, "{opened} opened, {refused} refused");
}

/// Returns the item of a forward frame. `fields` are the numbers after the device.
fn forward_of(fields: [u64; 6], events: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; events.len() + 128];
    let mut out = Writer::new(&mut buffer);
    out.array(9).unwrap().uint(1u8).unwrap().bytes(&DEVICE.0).unwrap();
    for field in fields {
        out.uint(field).unwrap();
    }
    out.bytes(events).unwrap();
    out.finish().to_vec()
}

#[test]
fn rejects_forward_frames_with_numbers_out_of_range() {
    const INDEX: u64 = u32::MAX as u64;
    let usual = [3, 70, 1, 10, 20, 4];
    let event = [7, 1, 2, 3, 4];
    assert!(opens_up(&forward_of(usual, &event)));
    // For each field (index, epoch, own round, from, until, record size): its index, valid values
    // and invalid values, including those on both sides of the limit.
    let cases: [(usize, &[u64], &[u64]); 6] = [
        (0, &[0, INDEX], &[INDEX + 1, u64::MAX]),
        (1, &[0, u64::MAX], &[]),
        (2, &[0, 31], &[32, 255, 256, u64::MAX]),
        (3, &[0, 19], &[20, 21, INDEX, INDEX + 1, u64::MAX]),
        (4, &[11, INDEX], &[0, 9, 10, INDEX + 1, u64::MAX]),
        (5, &[4], &[3, 5, 0, 65_535, 65_536, u64::MAX]),
    ];
    for (place, taken, refused) in cases {
        for value in taken {
            let mut fields = usual;
            fields[place] = *value;
            assert!(opens_up(&forward_of(fields, &event)), "{fields:?}");
        }
        for value in refused {
            let mut fields = usual;
            fields[place] = *value;
            assert!(!opens_up(&forward_of(fields, &event)), "{fields:?}");
        }
    }
    // A range without events is valid.
    assert!(
        opens_up(&forward_of([3, 70, 1, 10, 10, 4], &[]))
            && opens_up(&forward_of([3, 70, 1, INDEX, INDEX, 0], &[]))
    );
}

#[test]
fn rejects_events_outside_their_frame() {
    const LAST: u64 = u32::MAX as u64;
    let of = |from, until, size, events: &[u8]| {
        opens_up(&forward_of([3, 70, 0, from, until, size], events))
    };
    let place = |gap: u64, level: u64| {
        let mut out = [0; 9];
        let mut writer = Writer::new(&mut out);
        writer.uint(gap << 5 | level).unwrap();
        writer.finish().to_vec()
    };
    let event = |gap: u64| [place(gap, 31), vec![9; 4]].concat();
    assert!(
        of(0, LAST, 4, &event(LAST - 1))
            && !of(0, LAST, 4, &event(LAST))
            && !of(1, LAST, 4, &event(LAST - 1))
    );
    assert!(of(LAST - 1, LAST, 4, &event(0)) && !of(LAST - 1, LAST, 4, &event(1)));
    // The gap is so large that the position would overflow.
    for gap in [(1 << 32) - 1, 1 << 32, (1 << 59) - 1] {
        assert!(!of(10, 20, 4, &event(gap)), "{gap}");
        assert!(!of(LAST, LAST, 4, &event(gap)), "{gap}");
    }
    assert!(!of(0, LAST, 4, &[&[0x1b][..], &[0xff; 8], &[9; 4]].concat()));
    // Two events cannot have the same position: a gap of 0 means the position after the previous
    // event.
    assert!(
        of(10, 12, 4, &[event(0), event(0)].concat())
            && !of(10, 11, 4, &[event(0), event(0)].concat())
    );
    // Reject longer encodings of a small number, and heads of other types.
    for head in
        [&[0x18, 7][..], &[0x19, 0, 7], &[0x1a, 0, 0, 0, 7], &[0x1b, 0, 0, 0, 0, 0, 0, 0, 7]]
    {
        assert!(!of(10, 20, 4, &[head, &[9; 4]].concat()), "{head:02x?}");
    }
    for head in (0x1c..=0xff).filter(|head| !(0x18..=0x1b).contains(head)) {
        assert!(!of(10, 20, 4, &[&[head][..], &[9; 4]].concat()), "{head:02x}");
    }
    // Records with a length prefix.
    let prefixed =
        |length: u16, bytes: usize| [&[7][..], &length.to_be_bytes(), &vec![9; bytes]].concat();
    assert!(
        of(10, 20, 0, &prefixed(0, 0))
            && of(10, 20, 0, &prefixed(5000, 5000))
            && of(10, 20, 0, &prefixed(65_535, 65_535))
    );
    assert!(
        !of(10, 20, 0, &prefixed(1, 0))
            && !of(10, 20, 0, &prefixed(65_535, 65_534))
            && !of(10, 20, 0, &[7, 0])
    );
    // Records of fixed size: the longest record, and one that is a byte too short.
    assert!(
        of(10, 20, 65_535, &[&[7][..], &[9; 65_535]].concat())
            && !of(10, 20, 65_535, &[&[7][..], &[9; 65_534]].concat())
    );
}

#[test]
fn rejects_counts_and_lengths_beyond_the_end() {
    let (up, down) = honest();
    for (items, opens) in [(up, opens_up as fn(&[u8]) -> bool), (down, opens_down)] {
        for item in items {
            for head in (0x80..=0x97).filter(|head| *head != item[0]) {
                assert!(!opens(&[&[head], &item[1..]].concat()), "an array of {}", head - 0x80);
            }
            for head in [
                &[0x98, 9][..],
                &[0x99, 0, 9],
                &[0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
                &[0x9f],
            ] {
                assert!(!opens(&[head, &item[1..]].concat()), "{head:02x?}");
            }
            // The third byte of an item is the head of the byte string with the device's id.
            for head in [
                &[0x58, 8][..],
                &[0x49],
                &[0x47],
                &[0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
                &[0x5f],
                &[0x68],
            ] {
                assert!(!opens(&[&item[..2], head, &item[3..]].concat()), "{head:02x?}");
            }
        }
    }
    for length in [
        &[0x58, 0xff][..],
        &[0x59, 0xff, 0xff],
        &[0x5a, 0xff, 0xff, 0xff, 0xff],
        &[0x5b, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0],
    ] {
        let schema = [&[0x83, 3, 0x48][..], &DEVICE.0, length, &[1; 32]].concat();
        assert!(!opens_up(&schema), "{length:02x?}");
    }
}

#[test]
fn a_refusal_has_one_encoding_and_a_valid_name() {
    let opens = |item: &[u8]| {
        let frame = tagged(item, DOWN);
        match Refusal::open(&frame, DEVICE, &key()) {
            Ok(refusal) => {
                assert!(Refusal::is_claimed(&frame) && !opens_down(item));
                assert!(
                    !refusal.name.is_empty()
                        && refusal.name.bytes().all(|byte| byte.is_ascii_alphanumeric())
                );
                assert_eq!(
                    refusal.close(DEVICE, &key(), &mut [0; MAX_REFUSAL]).unwrap(),
                    frame,
                    "a second encoding of the same frame"
                );
                true
            }
            Err(error) => {
                assert_eq!(error, FrameError::Malformed, "the tag is valid: {item:02x?}");
                false
            }
        }
    };
    let refusal = Refusal { index: SealIndex(70_000), is_final: true, name: "NotAsForwarded" };
    let item = item_of(refusal.close(DEVICE, &key(), &mut [0; MAX_REFUSAL]).unwrap());
    assert!(opens(&item));
    assert!((0..item.len()).all(|length| !opens(&item[..length])));
    let (mut opened, mut refused) = (0, 0);
    for place in 0..item.len() {
        for flip in 1..=255 {
            let mut altered = item.clone();
            altered[place] ^= flip;
            *(if opens(&altered) { &mut opened } else { &mut refused }) += 1;
        }
    }
    assert!(opened > 500 && refused > 3000, "{opened} opened, {refused} refused");
    for name in ["", "with space", "line\nbreak", "\u{1b}[2J", &"x".repeat(49)] {
        let refusal = Refusal { index: SealIndex(u32::MAX), is_final: false, name };
        assert!(
            !opens(&item_of(refusal.close(DEVICE, &key(), &mut [0; 200]).unwrap())),
            "{name:?}"
        );
    }
    let longest = Refusal { index: SealIndex(u32::MAX), is_final: false, name: &"x".repeat(48) };
    assert!(opens(&item_of(longest.close(DEVICE, &key(), &mut [0; MAX_REFUSAL]).unwrap())));
    assert_eq!(Refusal::open(&tagged(&item, UP), DEVICE, &key()), Err(FrameError::NotAuthentic));
}

#[test]
fn rejects_acknowledgements_with_numbers_out_of_range() {
    const LAST: u64 = u32::MAX as u64;
    let of =
        |kind: u64, device: DeviceId, index: u64, next: u64, sealed: Option<u64>, wants: u64| {
            let mut out = [0; MAX_ACKNOWLEDGEMENT];
            let mut writer = Writer::new(&mut out);
            writer
                .array(7)
                .unwrap()
                .uint(kind)
                .unwrap()
                .bytes(&device.0)
                .unwrap()
                .uint(index)
                .unwrap()
                .uint(next)
                .unwrap();
            writer
                .optional(sealed, |out, sealed| {
                    out.array(4)?.uint(sealed)?.uint(7_u8)?.uint(wants)?.bytes(&[5; 32])
                })
                .unwrap()
                .uint(wants)
                .unwrap()
                .null()
                .unwrap();
            opens_down(writer.finish())
        };
    assert!(of(16, DEVICE, 0, 0, None, 0) && of(16, DEVICE, LAST, LAST, Some(LAST), 1));
    assert!(!of(16, DEVICE, LAST + 1, 0, None, 0) && !of(16, DEVICE, 0, LAST + 1, None, 0));
    assert!(
        !of(16, DEVICE, 0, 0, Some(LAST + 1), 0)
            && !of(16, DEVICE, 0, 0, Some(0), 2)
            && !of(16, DEVICE, 0, 0, None, 2)
            && !of(16, DEVICE, 0, 0, None, 256)
    );
    assert!(!of(15, DEVICE, 0, 0, None, 0) && !of(1, DEVICE, 0, 0, None, 0));
    assert!(!of(16, DeviceId(*b"device 2"), 0, 0, None, 0), "to another device");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn any_item_with_a_valid_tag_is_rejected_or_round_trips(item in vec(any::<u8>(), 0..120), start in 0..7usize) {
        let starts: [&[u8]; 7] = [&[0x89, 1, 0x48], &[0x85, 2, 0x48], &[0x83, 3, 0x48], &[0x87, 16, 0x48], &[0x85, 4, 0x48], &[0x83, 6, 0x48], &[]];
        let item = [starts[start], &item].concat();
        opens_up(&item);
        opens_down(&item);
    }

    #[test]
    fn recombined_honest_frames_are_rejected_or_round_trip(
        first in any::<prop::sample::Index>(),
        second in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        on in any::<prop::sample::Index>(),
    ) {
        let (up, down) = honest();
        let all: Vec<Vec<u8>> = up.into_iter().chain(down).collect();
        let (first, second) = (first.get(&all), second.get(&all));
        let spliced = [&first[..cut.index(first.len())], &second[on.index(second.len())..]].concat();
        opens_up(&spliced);
        opens_down(&spliced);
    }
}
