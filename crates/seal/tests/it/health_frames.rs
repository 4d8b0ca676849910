//! Tests of the frames that carry a device's health.

use moteseal_core::health::{Health, Item};
use moteseal_core::link::{FrameError, LinkKey, claimed_device};
use moteseal_core::record::DeviceId;
use moteseal_seal::device_session::DeviceSession;
use moteseal_seal::wire::{EventFrame, HealthFrame, MAX_HEALTH_FRAME, Uplink};

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

#[test]
fn a_session_writes_a_frame_that_its_coordinator_opens() {
    let session = DeviceSession::new(DEVICE, key(1), 0);
    let mut out = [0; MAX_HEALTH_FRAME];
    let frame = session.health_frame(&longest(), &mut out).unwrap();
    assert!((250..=MAX_HEALTH_FRAME).contains(&frame.len()), "{}", frame.len());
    assert!(HealthFrame::is_claimed(frame) && !EventFrame::is_claimed(frame));
    assert_eq!(claimed_device(frame), Some(DEVICE));
    assert_eq!(HealthFrame::open(frame, &key(1)), Ok(HealthFrame { health: longest() }));
    // An earlier coordinator drops it.
    assert_eq!(Uplink::open(frame, &key(1)), Err(FrameError::Malformed));
}

#[test]
fn a_frame_of_another_key_or_with_a_changed_byte_does_not_open() {
    let mut out = [0; MAX_HEALTH_FRAME];
    let frame = HealthFrame { health: Health::new(1, 2) }.close(DEVICE, &key(1), &mut out).unwrap();
    assert!(HealthFrame::open(frame, &key(2)).is_err());
    for at in 0..frame.len() {
        let mut changed = frame.to_vec();
        changed[at] ^= 1;
        assert!(HealthFrame::open(&changed, &key(1)).is_err(), "byte {at}");
    }
}
