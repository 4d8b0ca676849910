//! Tests of the frames that carry a device's health.

use moteseal_core::health::{Health, Item};
use moteseal_core::link::{FrameError, LinkKey, claimed_device};
use moteseal_core::record::DeviceId;
use moteseal_seal::device_session::DeviceSession;
use moteseal_seal::wire::{
    EventFrame, HealthFrame, HealthSession, MAX_HEALTH_FRAME, MAX_HEALTH_SESSION, Uplink,
};

const DEVICE: DeviceId = DeviceId([7; 8]);

fn key(byte: u8) -> LinkKey {
    LinkKey::new(&[byte; 32])
}

/// Returns a record in which each value has its longest encoding.
fn longest() -> Health {
    let mut health = Health::new(u32::MAX, u32::MAX);
    Item::all().for_each(|item| {
        health.set(item, i64::from(i32::MIN));
    });
    health
}

fn frame_of(session: u64, interval_s: u32, health: Health) -> HealthFrame {
    HealthFrame { session, interval_s, health }
}

const fn offer(session: u64) -> HealthSession {
    HealthSession { session, unix_ms: u64::MAX, answers: (u32::MAX, u32::MAX) }
}

#[test]
fn a_device_states_the_session_that_its_coordinator_began() {
    let mut device = DeviceSession::new(DEVICE, key(1), 0);
    let mut out = [0; MAX_HEALTH_SESSION];
    let offer = offer(u64::MAX).close(DEVICE, &key(1), &mut out).unwrap();
    assert_eq!(device.read_health_session(offer), Ok(self::offer(u64::MAX)));
    assert_eq!(offer.len(), MAX_HEALTH_SESSION);
    assert!(HealthSession::is_claimed(offer));
    // It is another one than before only once.
    assert_eq!([(); 2].map(|()| device.open_health_session(offer)), [Ok(true), Ok(false)]);
    let mut report = [0; MAX_HEALTH_FRAME];
    let report = device.health_frame((&Health::new(1, 2), 3), &mut report).unwrap();
    let opened = HealthFrame::open(report, &key(1)).unwrap();
    assert_eq!(opened, frame_of(u64::MAX, 3, Health::new(1, 2)));
    // A report is no offer, and the offer of another device or with a changed byte has no effect.
    let mut other = DeviceSession::new(DeviceId([8; 8]), key(1), 0);
    assert!(other.open_health_session(offer).is_err());
    assert!(device.open_health_session(report).is_err());
    for at in 0..offer.len() {
        let mut changed = offer.to_vec();
        changed[at] ^= 1;
        assert!(device.open_health_session(&changed).is_err(), "byte {at}");
    }
    let mut out = [0; MAX_HEALTH_SESSION];
    let none = self::offer(0).close(DEVICE, &key(1), &mut out).unwrap();
    assert!(device.open_health_session(none).is_err());
}

#[test]
fn a_session_writes_a_frame_that_its_coordinator_opens() {
    let session = DeviceSession::new(DEVICE, key(1), 0);
    let mut out = [0; MAX_HEALTH_FRAME];
    let frame = session.health_frame((&longest(), 30), &mut out).unwrap();
    assert!((250..=MAX_HEALTH_FRAME).contains(&frame.len()), "{}", frame.len());
    assert!(HealthFrame::is_claimed(frame) && !EventFrame::is_claimed(frame));
    assert_eq!(claimed_device(frame), Some(DEVICE));
    assert_eq!(HealthFrame::open(frame, &key(1)), Ok(frame_of(0, 30, longest())));
    // An earlier coordinator drops it.
    assert_eq!(Uplink::open(frame, &key(1)), Err(FrameError::Malformed));
}

#[test]
fn a_frame_of_another_key_or_with_a_changed_byte_does_not_open() {
    let mut out = [0; MAX_HEALTH_FRAME];
    let frame = frame_of(u64::MAX, u32::MAX, Health::new(1, 2));
    let frame = frame.close(DEVICE, &key(1), &mut out).unwrap();
    assert!(HealthFrame::open(frame, &key(2)).is_err());
    for at in 0..frame.len() {
        let mut changed = frame.to_vec();
        changed[at] ^= 1;
        assert!(HealthFrame::open(&changed, &key(1)).is_err(), "byte {at}");
    }
}

#[test]
fn the_offset_of_the_clock_is_exact_if_both_frames_take_the_same_time() {
    let offset = |unix_ms, sent_ms, received_ms| {
        HealthSession { session: 1, unix_ms, answers: (1, 1) }.clock_offset(sent_ms, received_ms)
    };
    // 40 ms each way, and the device is 7 s ahead, behind, or right.
    assert_eq!(
        [7000, -7000, 0].map(|ahead: i64| {
            let at = |ms: u64| ms.checked_add_signed(ahead).unwrap();
            offset(1_000_040, at(1_000_000), at(1_000_080))
        }),
        [7000, -7000, 0]
    );
    // If one way takes all of the time, the error is half of it.
    assert_eq!([offset(1000, 1000, 1080), offset(1080, 1000, 1080)], [40, -40]);
    assert_eq!(offset(u64::MAX, 0, 0), i64::MIN);
    assert_eq!(offset(0, u64::MAX, u64::MAX), i64::MAX);
}
