//! Fuzzes the frames between a device and its coordinator, and the coordinator's announcements.
//! Data that opens must have exactly one encoding and be within its limits. Only signed bytes may
//! open as an announcement.

use moteseal_core::Digest;
use moteseal_core::health::{Health, Item};
use moteseal_core::link::{LinkKey, MAX_FRAME, claimed_device};
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Framing, GroupId, Round, SealIndex, Sequence};
use moteseal_seal::sample::{Announcement, Forwarder, MAX_ANNOUNCEMENT, Manifest, ManifestDraft};
use moteseal_seal::wire::{
    Acknowledgement, EventAnswer, EventFrame, HealthFrame, HealthSession, StoredSeal, Uplink,
};

use crate::fixture;

pub(crate) const SECRET: [u8; 32] = [0x4c; 32];

/// Computes the tag of an item, following the text of spec/coordinator.md, section 4.
fn tag(direction: &[u8], item: &[u8]) -> [u8; 16] {
    let hmac = |key: &[u8; 32], message: &[u8]| {
        let pad = |byte: u8| {
            let mut pad = [byte; 64];
            pad.iter_mut().zip(key).for_each(|(pad, key)| *pad ^= key);
            pad
        };
        Digest::of(&[&pad(0x5c), &Digest::of(&[&pad(0x36), message]).0]).0
    };
    let key = hmac(&SECRET, &[b"moteseal/1/link/", direction].concat());
    hmac(&key, item)[..16].try_into().unwrap()
}

pub(crate) fn framed(direction: &[u8], item: &[u8]) -> Vec<u8> {
    [item, &tag(direction, item)].concat()
}

/// Opens the bytes as frames, as items with a valid tag, and as announcements.
pub fn run(bytes: &[u8]) {
    let key = LinkKey::new(&SECRET);
    let _ = Uplink::open(bytes, &key);
    let mut out = vec![0; MAX_FRAME + 64];
    let frame = framed(b"up", bytes);
    if let Ok(uplink) = Uplink::open(&frame, &key) {
        let device = claimed_device(&frame).expect("an opened frame states its device");
        assert_eq!(
            uplink.close(device, &key, &mut out).expect("it has fitted before"),
            frame,
            "two encodings of one frame"
        );
        if let Uplink::Forward(forward) = uplink {
            let mut next = forward.from;
            for (seq, level, record) in forward.events() {
                assert!(
                    seq >= next
                        && seq < forward.until
                        && level.0 < 32
                        && record.len() <= bytes.len()
                );
                next = Sequence(seq.0 + 1);
            }
            let covered: u64 =
                forward.subtrees().map(|(subtree, _)| subtree.end - subtree.start).sum();
            let range = forward.until.0 - forward.from.0;
            assert!(
                forward.digests.is_none() || covered + forward.events().count() as u64 == range,
                "a tree's frame omits events"
            );
        }
    }
    if let Ok(event) = EventFrame::open(&frame, &key) {
        let device = claimed_device(&frame).expect("an opened frame states its device");
        let again = event.close(device, &key, &mut out).expect("it has fitted before");
        assert_eq!(again, frame, "two encodings of one event frame");
        assert!(EventFrame::is_claimed(&frame));
    }
    // Values of later versions are dropped, so that the second encoding may be shorter.
    if let Ok(health) = HealthFrame::open(&frame, &key) {
        let device = claimed_device(&frame).expect("an opened frame states its device");
        let again = health.close(device, &key, &mut out).expect("it is not longer");
        assert_eq!(HealthFrame::open(again, &key), Ok(health), "the encoding is read back");
        assert!(HealthFrame::is_claimed(&frame) && again.len() <= frame.len());
    }
    let frame = framed(b"down", bytes);
    let device = claimed_device(&frame).unwrap_or(DeviceId([0; 8]));
    if let Ok(session) = HealthSession::open(&frame, device, &key) {
        assert_eq!(session.close(device, &key, &mut out).expect("it fits"), frame);
    }
    if let Ok(acknowledgement) = Acknowledgement::open(&frame, device, &key) {
        let again = acknowledgement.close(device, &key, &mut out).expect("it has fitted before");
        assert_eq!(again, frame, "two encodings of one acknowledgement");
    }
    if let Ok(answer) = EventAnswer::open(&frame, device, &key) {
        let again = answer.close(device, &key, &mut out).expect("it has fitted before");
        assert_eq!(again, frame, "two encodings of one answer");
        assert!(EventAnswer::is_claimed(&frame));
    }
    let (group, coordinator) = (GroupId::of("home"), fixture::operator().public());
    let is_ours = || announcements().iter().any(|word| word == bytes);
    assert!(
        Announcement::open(bytes, group, &coordinator).is_err() || is_ours(),
        "a round that was never signed"
    );
    let mut scratch = vec![0; bytes.len() + 64];
    assert!(
        Manifest::open(bytes, group, &coordinator, &mut scratch).is_err() || is_ours(),
        "a manifest that was never signed"
    );
}

/// Returns a round and a manifest.
fn announcements() -> Vec<Vec<u8>> {
    let (group, operator) = (GroupId::of("home"), fixture::operator());
    let mut out = [0; MAX_ANNOUNCEMENT];
    let round =
        Announcement::issue(group, EpochNumber(7), Round(2), &operator, &mut out).unwrap().to_vec();
    let mut devices: Vec<(DeviceId, Vec<Digest>)> = fixture::sealed()
        .iter()
        .map(|history| {
            (
                history[0].seal.statement().device,
                history.iter().map(|sealed| sealed.seal.digest()).collect(),
            )
        })
        .collect();
    devices.sort_by_key(|(device, _)| *device);
    let devices: Vec<(DeviceId, &[Digest])> =
        devices.iter().map(|(device, seals)| (*device, &seals[..])).collect();
    let roster = Digest::of(&[b"roster"]);
    let draft =
        ManifestDraft { group, roster, epoch: EpochNumber(7), round: Round(2), devices: &devices };
    let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
    vec![round, draft.issue(&operator, &mut scratch, &mut out).unwrap().to_vec()]
}

/// Returns the items of each kind of frame, without their tags, and the announcements.
pub fn seeds() -> Vec<Vec<u8>> {
    let key = LinkKey::new(&SECRET);
    let sealed = &fixture::sealed()[0][1];
    let device = sealed.seal.statement().device;
    let mut out = vec![0; MAX_FRAME];
    let mut items = Vec::new();
    let mut add = |frame: &[u8]| items.push(frame[..frame.len() - 16].to_vec());
    let framings = [Framing::fixed(4).unwrap(), Framing::Prefixed];
    for (scheme, framing) in [Scheme::Star, Scheme::Tree]
        .into_iter()
        .flat_map(|scheme| framings.map(|framing| (scheme, framing)))
    {
        // Announce a round to the tree's device, so that digests replace some of its events.
        let round = if scheme == Scheme::Tree { Round(1) } else { Round(0) };
        let mut forwarder = Forwarder::<1024>::new(
            SealIndex(3),
            EpochNumber(7),
            (scheme, framing),
            fixture::LEVELS,
            round,
        );
        for level in [0, 1, 0, 3, 2, 0, 0, 1] {
            let _ = forwarder.note(moteseal_core::Level(level), b"read");
        }
        forwarder.end();
        let mut scratch = [0; 256];
        let forward = forwarder.next_frame(&mut scratch).unwrap().unwrap();
        add(Uplink::Forward(forward).close(device, &key, &mut out).unwrap());
    }
    let schema = fixture::schema();
    for uplink in [
        Uplink::Schema(&schema),
        Uplink::Close { schema: Digest::of(&[&schema]), open: b"\x83\x01\x02\x03", part: b"\x80" },
        Uplink::Challenge(7 << 32),
    ] {
        add(uplink.close(device, &key, &mut out).unwrap());
    }
    let stored = StoredSeal {
        index: SealIndex(300),
        epoch: EpochNumber(70),
        last_in_epoch: true,
        digest: sealed.seal.digest(),
    };
    for (sealed, challenge) in [(None, None), (Some(stored), Some(7 << 32))] {
        let (index, next) = (SealIndex(301), Sequence(70_000));
        let acknowledgement =
            Acknowledgement { index, next, sealed, wants_schema: true, challenge };
        add(acknowledgement.close(device, &key, &mut out).unwrap());
    }
    add(EventFrame { schema: &schema, event: b"\xd2\x80" }.close(device, &key, &mut out).unwrap());
    let mut health = Health::new(3, 86_400);
    health.set(Item::LinkBadCrc, 70_000).set(Item::Rssi, -87);
    let report = HealthFrame { session: 7, interval_s: 30, health };
    add(report.close(device, &key, &mut out).unwrap());
    let offer = HealthSession { session: 8, unix_ms: 1 << 41, answers: (3, 86_400) };
    add(offer.close(device, &key, &mut out).unwrap());
    let digest = sealed.seal.digest();
    for answer in [
        EventAnswer::Stored { digest },
        EventAnswer::Refused { digest, is_final: true, name: "KeyEnded" },
    ] {
        add(answer.close(device, &key, &mut out).unwrap());
    }
    // The tags are computed from the specification. If they were wrong, no frame would open.
    let opens = |item: &Vec<u8>| {
        Uplink::open(&framed(b"up", item), &key).is_ok()
            || Acknowledgement::open(&framed(b"down", item), device, &key).is_ok()
            || EventFrame::open(&framed(b"up", item), &key).is_ok()
            || HealthFrame::open(&framed(b"up", item), &key).is_ok()
            || HealthSession::open(&framed(b"down", item), device, &key).is_ok()
            || EventAnswer::open(&framed(b"down", item), device, &key).is_ok()
    };
    assert!(items.iter().all(opens));
    items.extend(announcements());
    items
}
