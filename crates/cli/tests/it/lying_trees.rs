//! Devices that seal trees and lie about events that they do not forward. An honest gateway accepts
//! a seal only if it matches the kept events and the roots of the subtrees between them. The epoch
//! stays complete for the other devices.

use crate::group;
use crate::group::{FIRST, secret};
use moteseal_core::cbor::Writer;
use moteseal_core::link::MAX_FRAME;
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Round, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_core::{DeviceId, Digest, Level};
use moteseal_gateway::GroupCoordinator;
use moteseal_seal::sample::{Announcement, MAX_ANNOUNCEMENT, Manifest};
use moteseal_seal::tree::leaf;
use moteseal_seal::wire::{Forward, Uplink, encode_event};
use moteseal_verify::Roster;

const EPOCH: EpochNumber = EpochNumber(FIRST);
const BUDGET: u64 = 20;
const READINGS: u32 = 200;

/// A decoded forward frame.
#[derive(Clone, PartialEq)]
struct Frame {
    from: u64,
    until: u64,
    own_round: Round,
    events: Vec<(u64, u8, Vec<u8>)>,
    digests: Option<Vec<Digest>>,
}

/// The frames of one epoch of a device: its schema, the forward frames, and the closing frame.
struct Frames {
    device: DeviceId,
    frames: Vec<Vec<u8>>,
}

/// Returns the frames of an honest device that receives round 2 after a quarter of its readings.
fn honest_frames(roster: &Roster, number: u8, folder: &std::path::Path) -> Frames {
    let mut mote =
        group::open_mote(roster, number, folder, 3, |profile| profile.scheme = Scheme::Tree)
            .unwrap();
    let (mut frames, _) = group::answer_challenge(roster, &mut mote);
    for reading in 0..READINGS {
        mote.sense(EPOCH, &reading.to_be_bytes()).unwrap();
        if reading == READINGS / 4 {
            frames.extend(mote.frames(usize::MAX).unwrap());
            let mut out = [0; MAX_ANNOUNCEMENT];
            let announcement = Announcement::issue(
                roster.group(),
                EPOCH,
                Round(2),
                &secret(group::COORDINATOR),
                &mut out,
            )
            .unwrap();
            mote.announced(announcement).unwrap().unwrap();
        }
    }
    mote.end(EPOCH).unwrap();
    frames.extend(mote.frames(usize::MAX).unwrap());
    Frames { device: roster.id(&format!("mote-{number}")).unwrap(), frames }
}

/// Alters the forward frames of a device.
///
/// # Panics
/// If `alter` returns false, which means that it cannot be applied to these frames.
fn lie(roster: &Roster, honest: &Frames, alter: fn(&mut Vec<Frame>) -> bool) -> Vec<Vec<u8>> {
    let key = group::link_key(roster, honest.device);
    let (mut before, mut after, mut forwards, mut like) =
        (Vec::new(), Vec::new(), Vec::new(), None);
    for bytes in &honest.frames {
        match Uplink::open(bytes, &key).unwrap() {
            Uplink::Forward(forward) => {
                like = Some((forward.index, forward.epoch, forward.framing));
                forwards.push(Frame {
                    from: forward.from.0,
                    until: forward.until.0,
                    own_round: forward.own_round,
                    events: forward
                        .events()
                        .map(|(seq, level, record)| (seq.0, level.0, record.to_vec()))
                        .collect(),
                    digests: forward
                        .digests
                        .map(|_| forward.subtrees().map(|(_, root)| root).collect()),
                });
            }
            Uplink::Close { .. } => after.push(bytes.clone()),
            Uplink::Schema(_) | Uplink::Challenge(_) => before.push(bytes.clone()),
        }
    }
    assert!(alter(&mut forwards), "the lie is not applicable");
    let (index, epoch, framing) = like.unwrap();
    let altered = forwards.iter().map(|frame| {
        let (mut buffer, mut next) = (vec![0; MAX_FRAME], frame.from);
        let mut events = Writer::new(&mut buffer);
        for (seq, level, record) in &frame.events {
            encode_event(&mut events, Sequence(next), Sequence(*seq), Level(*level), None, record)
                .unwrap();
            next = seq + 1;
        }
        let digests: Option<Vec<u8>> = frame
            .digests
            .as_ref()
            .map(|digests| digests.iter().flat_map(|digest| digest.0).collect());
        let forward = Forward {
            index,
            epoch,
            own_round: frame.own_round,
            from: Sequence(frame.from),
            until: Sequence(frame.until),
            framing,
            events: events.finish(),
            digests: digests.as_deref(),
        };
        let mut out = vec![0; MAX_FRAME];
        Uplink::Forward(forward).close(honest.device, &key, &mut out).unwrap().to_vec()
    });
    before.into_iter().chain(altered).chain(after).collect()
}

/// Passes the frames of a liar and of an honest device to a gateway. Returns the name of the first
/// refusal of the liar, and the devices that the manifest lists.
fn gateway_result(
    roster: &Roster,
    frames: &[Vec<u8>],
    honest: &Frames,
) -> (Option<&'static str>, Vec<DeviceId>) {
    let mut coordinator = GroupCoordinator::new(roster.clone(), group::GROUP_SECRET).unwrap();
    let mut refused = None;
    for frame in frames {
        if let Err(error) = coordinator.receive(frame, EPOCH) {
            refused = refused.or(Some(error.name()));
        }
    }
    for frame in &honest.frames {
        let _ = coordinator.receive(frame, EPOCH).unwrap();
    }
    let ended = coordinator.end(EPOCH, &secret(group::COORDINATOR)).unwrap();
    let mut scratch = vec![0; ended.manifest.len() + 64];
    let manifest = Manifest::open(
        &ended.manifest,
        roster.group(),
        roster.newest_period().coordinator.as_ref().unwrap(),
        &mut scratch,
    )
    .unwrap();
    (refused, manifest.devices().map(|(device, _)| device).collect())
}

/// Returns the position of the event of the highest level in the first frame. It is kept at any
/// round.
fn highest_level(frames: &[Frame]) -> usize {
    let levels = frames[0].events.iter().zip(0..).map(|((_, level, _), place)| (*level, place));
    levels.max().unwrap().1
}

/// A lie: its name, a function that alters the frames and returns whether it could be applied, and
/// the possible names of the refusal.
type Lie = (&'static str, fn(&mut Vec<Frame>) -> bool, &'static [&'static str]);

const LIES: &[Lie] = &[
    (
        "another root of a subtree",
        |frames| {
            let digests = frames
                .iter_mut()
                .filter_map(|frame| frame.digests.as_mut())
                .find(|digests| !digests.is_empty());
            digests.is_some_and(|digests| {
                digests[0].0[7] ^= 1;
                true
            })
        },
        &["NotAuthentic"],
    ),
    (
        "another record of an event",
        |frames| {
            let event = highest_level(frames);
            frames[0].events[event].2[0] ^= 1;
            true
        },
        &["NotAuthentic"],
    ),
    (
        "another record of an event that is not kept",
        |frames| {
            let event = frames[0].events.iter_mut().find(|(_, level, _)| *level == 0);
            event.is_some_and(|(.., record)| {
                record[3] ^= 1;
                true
            })
        },
        &["NotAuthentic"],
    ),
    (
        "an event of a high level with a low level",
        |frames| {
            let event = highest_level(frames);
            frames[0].events[event].1 = 0;
            true
        },
        &["NotAsForwarded"],
    ),
    (
        "an event of a low level with a high level",
        |frames| {
            frames[0].events[0].1 = if frames[0].events[0].1 == 5 { 6 } else { 5 };
            true
        },
        &["NotAsForwarded"],
    ),
    (
        "the leaf of an event instead of the event, so that it cannot be kept",
        |frames| {
            let event = highest_level(frames);
            let frame = &mut frames[0];
            let (seq, _, record) = frame.events.remove(event);
            let alone = Frame {
                from: seq,
                until: seq + 1,
                own_round: frame.own_round,
                events: Vec::new(),
                digests: Some(vec![leaf(&record)]),
            };
            let mut before = frame.clone();
            let mut after = frame.clone();
            before.until = seq;
            before.events.retain(|(at, ..)| *at < seq);
            after.from = seq + 1;
            after.events.retain(|(at, ..)| *at > seq);
            // Before a round is announced, everything is forwarded and there are no roots.
            let is_plain = frame.digests.as_ref().is_some_and(Vec::is_empty);
            frames.splice(
                0..1,
                [before, alone, after].into_iter().filter(|frame| frame.from < frame.until),
            );
            is_plain
        },
        &["NotAsForwarded"],
    ),
    (
        "a root over events that were forwarded",
        |frames| {
            let again = Frame {
                from: 0,
                until: 64,
                own_round: Round(2),
                events: Vec::new(),
                digests: Some(vec![Digest([9; 32])]),
            };
            let at = frames.iter().position(|frame| frame.until > 32).unwrap();
            // The subtree begins within the forwarded events and ends after them.
            let is_straddled = frames[at].from < 64 && frames[at].until < 64;
            frames.insert(at + 1, again);
            frames.iter_mut().skip(at + 2).for_each(|frame| frame.own_round = Round(2));
            is_straddled
        },
        &["NotAsForwarded"],
    ),
    (
        "a frame of a star in the middle",
        |frames| {
            let frame = frames.iter_mut().rev().find(|frame| frame.digests.is_some()).unwrap();
            frame.digests = None;
            true
        },
        &["FramingChanged"],
    ),
    (
        "frames of a star, and the close of a tree",
        |frames| {
            frames.iter_mut().for_each(|frame| frame.digests = None);
            true
        },
        &["FramingChanged"],
    ),
];

#[test]
fn refuses_lies_about_events_not_forwarded_without_effect_on_other_devices() {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(2, BUDGET, 1000);
    let (liar, honest) =
        (honest_frames(&roster, 0, folder.path()), honest_frames(&roster, 1, folder.path()));
    let both = vec![liar.device, honest.device];
    let (refused, mut listed) = gateway_result(&roster, &liar.frames, &honest);
    listed.sort();
    let mut all = both.clone();
    all.sort();
    assert_eq!((refused, listed), (None, all), "honest frames are accepted");
    for (name, alter, names) in LIES {
        let altered = lie(&roster, &liar, *alter);
        let (refused, listed) = gateway_result(&roster, &altered, &honest);
        assert!(refused.is_some_and(|refused| names.contains(&refused)), "{name}: {refused:?}");
        assert_eq!(listed, [honest.device], "{name}");
    }
}
