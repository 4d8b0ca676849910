//! Grants after the operator has changed the length of the group's epochs.

use moteseal_core::EpochNumber;
use moteseal_core::confidential::KeyAccessError;
use moteseal_grant::{GrantedTime, Identity, OpenGrant};
use moteseal_verify::Roster;
use moteseal_verify::issue::{NextRoster, PeriodChange};

use crate::scene::{alice, device, key, key_of, request, rosters, seal, secret_of, to};

/// The length of an epoch of `rosters`.
const HOUR: u64 = 3_600_000;

/// Returns the version after `before`, with other epochs from `first` on.
fn with_epochs(before: &Roster, first: u64, change: &PeriodChange) -> Roster {
    let operator = key(1);
    let mut next = NextRoster::after(before.bytes(), &operator, &operator.public()).unwrap();
    next.begin_period(EpochNumber(first), change).unwrap();
    Roster::open(&next.issue().unwrap(), &operator.public()).unwrap()
}

/// Returns the epochs of 1000 to 1100 that a grant opens, and checks that each way to ask agrees.
fn opened(grant: &OpenGrant) -> Vec<u64> {
    let mut keys = grant.keys();
    let mut found = Vec::new();
    for epoch in 1000..=1100 {
        let seal = seal(device(0), "temperature", epoch);
        let (right, commitment) = key_of(&secret_of(0), &seal);
        let is_open = grant.covers(seal.device, seal.column, seal.epoch);
        match keys.seal_key(&seal, &commitment) {
            Ok(key) => {
                assert_eq!(key.expose(), right.expose());
                found.push(epoch);
            }
            Err(error) => {
                let in_nodes = (1024..=1047).contains(&epoch);
                let expected = [KeyAccessError::NotCovered, KeyAccessError::GrantOutdated];
                assert_eq!(error, expected[usize::from(in_nodes)], "{epoch}");
            }
        }
        assert_eq!(is_open, found.last() == Some(&epoch), "{epoch}");
    }
    for column in grant.contents().columns {
        let listed: Vec<u64> =
            column.epochs.iter().flat_map(|(first, last)| first.0..=last.0).collect();
        assert_eq!(listed, found);
        // The nodes are those of 24 epochs.
        assert_eq!(column.is_outdated, found.len() < 24);
    }
    found
}

#[test]
fn longer_epochs_do_not_give_a_grant_more_time() {
    let [_, roster, _] = rosters();
    let (recipients, devices) = (to(&Identity::generate()), [device(0)]);
    // The day from epoch 1024 on.
    let signed = alice(1).sign_grant(&request(&devices, &recipients, 1024, 1047), &roster).unwrap();
    let time = GrantedTime { since_ms: 1024 * HOUR, until_ms: Some(1048 * HOUR) };
    let grant = OpenGrant::verify(&signed, &roster).unwrap();
    assert_eq!(grant.contents().time, time);
    assert_eq!(opened(&grant), (1024..=1047).collect::<Vec<_>>());

    let epochs_of = |first: u64, epoch_ms: u64| {
        let change = PeriodChange { epoch_ms: Some(epoch_ms), ..PeriodChange::default() };
        let later = with_epochs(&roster, first, &change);
        let grant = OpenGrant::verify(&signed, &later).unwrap();
        assert_eq!(grant.contents().time, time, "what the owner signed");
        let opened = opened(&grant);
        for epoch in &opened {
            let calendar = later.calendar();
            let start = calendar.start_ms(EpochNumber(*epoch)).unwrap();
            let end = start + calendar.epoch_ms(EpochNumber(*epoch));
            assert!(time.since_ms <= start && Some(end) <= time.until_ms, "{epoch}");
        }
        opened
    };
    // Six times the length, from a week before the day, from the day on, and from the middle of the day on.
    assert_eq!(epochs_of(1010, 6 * HOUR), [0; 0]);
    assert_eq!(epochs_of(1024, 6 * HOUR), [1024, 1025, 1026, 1027]);
    assert_eq!(epochs_of(1036, 6 * HOUR), (1024..=1037).collect::<Vec<_>>());
    // An epoch that is only partly within the time is not opened.
    assert_eq!(epochs_of(1024, 5 * HOUR), [1024, 1025, 1026, 1027]);
    // Shorter epochs: the numbers of the grant are those of an earlier time.
    assert_eq!(epochs_of(1000, HOUR / 4), [0; 0]);
    assert_eq!(epochs_of(1040, HOUR / 4), (1024..=1047).collect::<Vec<_>>());
    // A change after the day.
    assert_eq!(epochs_of(1048, 6 * HOUR), (1024..=1047).collect::<Vec<_>>());
}

#[test]
fn a_change_of_other_parameters_leaves_a_grant_as_it_is() {
    let [_, roster, _] = rosters();
    let (recipients, devices) = (to(&Identity::generate()), [device(0)]);
    let signed = alice(1).sign_grant(&request(&devices, &recipients, 1024, 1047), &roster).unwrap();
    let change = PeriodChange { levels: Some(8), ..PeriodChange::default() };
    let later = with_epochs(&roster, 1030, &change);
    let grant = OpenGrant::verify(&signed, &later).unwrap();
    assert_eq!(opened(&grant), (1024..=1047).collect::<Vec<_>>());
}

#[test]
fn a_grant_without_an_end_opens_all_epochs_of_its_nodes() {
    let [_, roster, _] = rosters();
    let (recipients, devices) = (to(&Identity::generate()), [device(0)]);
    let request = request(&devices, &recipients, 0, u64::MAX);
    let signed = alice(1).sign_grant(&request, &roster).unwrap();
    let change = PeriodChange { epoch_ms: Some(6 * HOUR), ..PeriodChange::default() };
    let grant = OpenGrant::verify(&signed, &with_epochs(&roster, 1030, &change)).unwrap();
    assert_eq!(grant.contents().time, GrantedTime { since_ms: 0, until_ms: None });
    let last = EpochNumber(1000 + u64::from(u32::MAX));
    assert_eq!(grant.contents().columns[0].epochs, [(EpochNumber(1000), last)]);
    assert!(grant.covers(device(0), crate::scene::column("temperature"), last));
}
