//! A later version of a roster adds devices, keys and periods, and ends keys. It changes nothing
//! else that an earlier version states. Finding G2 of the review.

use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::roster::{Directory as _, NoKey};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};
use moteseal_verify::Roster;
use moteseal_verify::issue::{Budget, ChangeError, FirstRoster, NextRoster, PeriodChange};

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

fn key(byte: u8) -> PublicKey {
    secret(byte).public()
}

fn operator() -> SecretKey {
    secret(1)
}

fn open(bytes: &[u8]) -> Roster {
    Roster::open(bytes, &operator().public()).unwrap()
}

fn first_of(group: &str) -> Roster {
    let first = FirstRoster {
        group,
        epoch_ms: 1000,
        levels: 8,
        budget: Some(Budget { events: 500, coordinator: key(9) }),
        devices: &[("mote-1", key(11)), ("mote-2", key(12))],
    };
    open(&first.issue(&operator()).unwrap())
}

fn first() -> Roster {
    first_of("lab")
}

/// Issues the version after `before` with a change.
fn next(
    before: &Roster,
    change: impl FnOnce(&mut NextRoster<'_>) -> Result<(), ChangeError>,
) -> Result<Roster, ChangeError> {
    let operator = operator();
    let mut draft = NextRoster::after(before.bytes(), &operator, &operator.public()).unwrap();
    change(&mut draft)?;
    let later = open(&draft.issue()?);
    assert_eq!(later.check_succeeds(before), Ok(()));
    assert_eq!(later.version(), before.version() + 1);
    Ok(later)
}

fn at(roster: &Roster, name: &str, index: u32, epoch: u64) -> Result<PublicKey, NoKey> {
    let device = roster.device(roster.id(name).unwrap()).unwrap();
    device.key(SealIndex(index), EpochNumber(epoch)).cloned()
}

#[test]
fn a_device_that_joins_has_a_key_from_its_first_epoch_on() {
    let second = next(&first(), |next| next.add("mote-3", &key(13), EpochNumber(40))).unwrap();
    assert_eq!(at(&second, "mote-3", 0, 39), Err(NoKey::Unknown));
    assert_eq!(at(&second, "mote-3", 0, 40), Ok(key(13)));
    assert_eq!(at(&second, "mote-1", 0, 0), Ok(key(11)));
    let joined = second.device(second.id("mote-3").unwrap()).unwrap();
    assert!(!joined.is_member_in(EpochNumber(39)) && joined.is_member_in(EpochNumber(40)));
}

#[test]
fn the_positions_of_sources_do_not_change() {
    let before = first();
    let names = |roster: &Roster| -> Vec<String> {
        roster.sources().iter().map(|device| device.name.clone()).collect()
    };
    let mut roster = before.clone();
    let mut expected = names(&before);
    for (at, name) in (0..).zip(["zebra", "ant", "mouse", "yak"]) {
        roster = next(&roster, |next| next.add(name, &key(20 + at), EpochNumber(0))).unwrap();
        expected.push(name.to_owned());
        assert_eq!(names(&roster), expected);
    }
    roster = next(&roster, |next| next.end("ant", None, Some(EpochNumber(9)))).unwrap();
    assert_eq!(names(&roster), expected);
    assert_eq!(roster.check_succeeds(&before), Ok(()), "four versions later");
}

#[test]
fn a_key_that_changes_is_valid_up_to_the_epoch_of_the_change() {
    let change =
        |next: &mut NextRoster<'_>| next.rotate("mote-1", &key(13), EpochNumber(50), SealIndex(0));
    let second = next(&first(), change).unwrap();
    assert_eq!(at(&second, "mote-1", 999, 49), Ok(key(11)));
    assert_eq!(at(&second, "mote-1", 3, 50), Ok(key(13)));
    // Also by index: the higher of both counts.
    let change =
        |next: &mut NextRoster<'_>| next.rotate("mote-1", &key(14), EpochNumber(50), SealIndex(70));
    let third = next(&second, change).unwrap();
    assert_eq!(at(&third, "mote-1", 69, 50), Ok(key(13)));
    assert_eq!(at(&third, "mote-1", 70, 50), Ok(key(14)));
    let earlier =
        next(&third, |next| next.rotate("mote-1", &key(15), EpochNumber(49), SealIndex(0)));
    assert_eq!(earlier.unwrap_err().name(), "KeyNotLater");
}

#[test]
fn the_past_of_a_removed_device_stays_verifiable() {
    let removed = next(&first(), |next| next.end("mote-2", None, Some(EpochNumber(60)))).unwrap();
    assert_eq!(at(&removed, "mote-2", 7, 59), Ok(key(12)));
    assert_eq!(at(&removed, "mote-2", 7, 60), Err(NoKey::Ended));
    let device = removed.device(removed.id("mote-2").unwrap()).unwrap();
    assert!(!device.can_seal(None, EpochNumber(60), EpochNumber(100)));
    assert!(device.can_seal(None, EpochNumber(59), EpochNumber(100)));
    // It can come back with a new key, but not before its end and not with the old key.
    let back = |first, with| {
        next(&removed, |next| next.add("mote-2", &key(with), EpochNumber(first)))
            .map_err(|error| error.name())
    };
    assert_eq!(back(59, 13).unwrap_err(), "DuplicateDevice");
    assert_eq!(back(60, 12).unwrap_err(), "KeyInUse");
    let back = back(80, 13).unwrap();
    assert_eq!(at(&back, "mote-2", 7, 59), Ok(key(12)));
    assert_eq!(at(&back, "mote-2", 7, 79), Err(NoKey::Ended));
    assert_eq!(at(&back, "mote-2", 7, 80), Ok(key(13)));
}

#[test]
fn a_stolen_key_is_revoked_from_an_index_or_an_epoch_on() {
    let by_index = next(&first(), |next| next.end("mote-1", Some(SealIndex(30)), None)).unwrap();
    assert_eq!(at(&by_index, "mote-1", 29, 1000), Ok(key(11)));
    assert_eq!(at(&by_index, "mote-1", 30, 0), Err(NoKey::Ended));
    let device = by_index.device(by_index.id("mote-1").unwrap()).unwrap();
    assert!(!device.can_seal(Some(SealIndex(29)), EpochNumber(0), EpochNumber(u64::MAX)));
    assert!(device.can_seal(Some(SealIndex(28)), EpochNumber(0), EpochNumber(u64::MAX)));
    // The revocation can be moved back, but not forward.
    let tighter = next(&by_index, |next| next.end("mote-1", Some(SealIndex(20)), None)).unwrap();
    assert_eq!(at(&tighter, "mote-1", 20, 0), Err(NoKey::Ended));
    let looser = next(&tighter, |next| next.end("mote-1", Some(SealIndex(21)), None));
    assert_eq!(looser.unwrap_err().name(), "EndNotEarlier");
    // After a rotation, a revocation from before the rotation leaves the device without a key.
    let rotate = |next: &mut NextRoster<'_>| {
        next.rotate("mote-1", &key(13), EpochNumber(50), SealIndex(0))?;
        next.end("mote-1", None, Some(EpochNumber(40)))
    };
    let none = next(&first(), rotate).unwrap();
    for epoch in [40, 49, 50, 51] {
        assert_eq!(at(&none, "mote-1", 0, epoch), Err(NoKey::Ended), "epoch {epoch}");
    }
    assert_eq!(at(&none, "mote-1", 0, 39), Ok(key(11)));
}

#[test]
fn parameters_change_where_an_epoch_begins() {
    let shorter = PeriodChange { epoch_ms: Some(100), levels: Some(9), ..PeriodChange::default() };
    let second = next(&first(), |next| next.begin_period(EpochNumber(60), &shorter)).unwrap();
    let other = PeriodChange {
        epoch_ms: Some(7000),
        budget: Some(Some(20)),
        coordinator: Some(key(8)),
        ..PeriodChange::default()
    };
    let third = next(&second, |next| next.begin_period(EpochNumber(100), &other)).unwrap();
    assert_eq!([59, 60, 99, 100].map(|epoch| third.levels(EpochNumber(epoch))), [8, 9, 9, 9]);
    assert_eq!(
        [0, 59, 60, 99, 100].map(|epoch| third.budget(EpochNumber(epoch))),
        [500, 500, 500, 500, 20].map(Some)
    );
    assert_eq!([59, 60, 100].map(|epoch| third.least_version(EpochNumber(epoch))), [0, 1, 2]);
    assert_eq!(third.coordinators(), [(EpochNumber(0), key(9)), (EpochNumber(100), key(8))]);

    // The slow oracle: one epoch after the other.
    let mut start = 0;
    for number in 0..200 {
        let length = match number {
            0..60 => 1000,
            60..100 => 100,
            _ => 7000,
        };
        let epoch = EpochNumber(number);
        assert_eq!(third.epoch_start_ms(epoch), Some(start));
        assert_eq!(third.calendar().epoch_ms(epoch), length);
        assert_eq!([start, start + length - 1].map(|ms| third.epoch_of(ms)), [epoch; 2]);
        assert_eq!(third.calendar().epoch_from(start), epoch);
        assert_eq!(third.calendar().epoch_from(start + 1), EpochNumber(number + 1));
        start += length;
    }
    let earlier = next(&third, |next| next.begin_period(EpochNumber(100), &shorter));
    assert_eq!(earlier.unwrap_err(), ChangeError::PeriodNotLater);
}

#[test]
fn rejects_a_roster_that_is_not_a_later_version() {
    let first = first();
    let add = |before: &Roster, byte| {
        next(before, |next| next.add("mote-3", &key(byte), EpochNumber(0))).unwrap()
    };
    let name = |later: &Roster, before: &Roster| later.check_succeeds(before).unwrap_err().name();
    let (second, fork) = (add(&first, 13), add(&first, 14));
    assert_eq!(name(&first_of("field"), &first), "WrongGroup");
    assert_eq!(name(&first, &first), "NotLater");
    assert_eq!(name(&first, &second), "NotLater");
    assert_eq!(name(&fork, &second), "NotLater");
    let later = next(&fork, |next| next.end("mote-1", None, Some(EpochNumber(9)))).unwrap();
    assert_eq!(name(&later, &second), "NotLater", "a later version of the other second version");
    assert_eq!(later.check_succeeds(&first), Ok(()));
}
