//! New masks for a key group of which devices have joined or left: its devices and the querier get new
//! files, and the files of other devices stay valid.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use moteseal_client::sum::{RenewedRing, add, renew_masks, setup};
use moteseal_core::Digest;
use moteseal_core::record::EpochNumber;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_sum::key_file::{QuerierKeys, SourceKeys};
use moteseal_sum::sies::{MaskRing, Psr, Slot};
use moteseal_verify::Roster;
use moteseal_verify::issue::NextRoster;

use crate::sum_support::{operator, roster};

/// A time in the group's epoch 100.
const NOW: u64 = 100 * 60_000;

fn key(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

fn next(before: &Roster, change: impl FnOnce(&mut NextRoster<'_>)) -> Roster {
    let operator = operator();
    let mut next = NextRoster::after(before.bytes(), &operator, &operator.public()).unwrap();
    change(&mut next);
    Roster::open(&next.issue().unwrap(), &operator.public()).unwrap()
}

/// Reads the files of the devices in a folder, by their names.
fn sources(folder: &Path) -> BTreeMap<String, SourceKeys> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let names = files.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path));
    let devices = names.filter(|(name, _)| name != "querier.sum.key");
    devices
        .map(|(name, path)| {
            let name = name.strip_suffix(".sum.key").unwrap().to_owned();
            (name, SourceKeys::decode(&fs::read(path).unwrap()).unwrap())
        })
        .collect()
}

fn querier(folder: &Path) -> QuerierKeys {
    QuerierKeys::decode(&fs::read(folder.join("querier.sum.key")).unwrap()).unwrap()
}

/// Returns the sum of the masks of some devices.
fn masks<'a>(devices: impl IntoIterator<Item = &'a SourceKeys>) -> Psr {
    let query = Digest([5; 32]);
    devices.into_iter().fold(Psr::ZERO, |sum, device| {
        let (secret, _) = device.masks.as_ref().unwrap();
        sum.merge(&secret.for_query(&query).cover(&Psr::ZERO, Slot(0), 9))
    })
}

/// 11 devices in key groups of 6 positions: the second key group has one position left.
#[test]
fn a_key_group_gets_new_masks_after_a_device_has_joined_and_one_has_left() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| folder.path().join(name));
    let first = roster(11);
    let of = ("alerts", &key(9).public());
    setup(&first, of, &old, Some(2), true, &mut || ()).unwrap();
    let before = sources(&old);
    let name_at = |position: usize| first.sources()[position].name.clone();
    let gone = name_at(7);
    let second = next(&first, |next| {
        next.add("late", &key(77).public(), EpochNumber(50)).unwrap();
        next.end(&gone, None, Some(EpochNumber(90))).unwrap();
    });
    let keys = old.join("querier.sum.key");
    let (files, rings) =
        renew_masks(&second, &keys, std::slice::from_ref(&gone), &new, NOW).unwrap();
    assert_eq!(files.devices.len(), 5);
    assert_eq!(rings, [RenewedRing { key_group: 1, sources: 5, changed: 2 }]);

    let after = sources(&new);
    let mut names = [6, 8, 9, 10].map(name_at).to_vec();
    names.push("late".to_owned());
    names.sort_unstable();
    assert!(after.keys().eq(&names), "{after:?}");
    let ring = MaskRing::of([6..7, 8..12]);
    for (name, device) in &after {
        assert_eq!(device.masks.as_ref().unwrap().1, ring, "{name}");
        let place = second.sources().iter().position(|found| found.name == *name).unwrap();
        assert_eq!(device.position as usize, place);
        // The device's own keys are as before.
        if let Some(before) = before.get(name) {
            assert_eq!(*device.secret.to_bytes(), *before.secret.to_bytes());
            assert_ne!(
                *device.masks.as_ref().unwrap().0.to_bytes(),
                *before.masks.as_ref().unwrap().0.to_bytes()
            );
        }
    }
    // The masks add up to 0 for the whole key group and for no other set, also together with the old
    // masks of the device that has left.
    assert_eq!(masks(after.values()), Psr::ZERO);
    assert_ne!(masks(after.values().skip(1)), Psr::ZERO);
    assert_ne!(masks(after.values().chain([&before[&gone]])), Psr::ZERO);
    let others: Vec<String> = (0..6).map(name_at).collect();
    assert_eq!(masks(others.iter().map(|name| &before[name])), Psr::ZERO);

    let [read_before, read] = [&old, &new].map(|folder| querier(folder));
    assert!(read.masked.unwrap().runs().eq([0..7, 8..12]));
    assert!(read_before.masked.unwrap().runs().eq(Some(0..11)));
    assert_eq!((read.name, read.circle.sources), (read_before.name, 12));
    assert_eq!(*read.master.to_bytes(), *read_before.master.to_bytes());

    // Masks of before and after do not add up to 0 together.
    let mixed = [6, 8, 9, 10].map(name_at);
    for count in 1..4 {
        let old = mixed.iter().take(count).map(|name| &before[name]);
        let new = mixed.iter().skip(count).map(|name| &after[name]).chain([&after["late"]]);
        assert_ne!(masks(old.chain(new)), Psr::ZERO, "{count}");
    }
    // A roster from before the file.
    let earlier =
        renew_masks(&first, &new.join("querier.sum.key"), &["mote1".to_owned()], &old, NOW);
    assert!(earlier.unwrap_err().to_string().contains("later version of the roster"));

    // The next change begins with the new file. A device that has masks gets no file without them.
    let third = next(&second, |next| {
        next.add("later", &key(78).public(), EpochNumber(50)).unwrap();
    });
    let keys = new.join("querier.sum.key");
    let error = add(&third, &keys, &folder.path().join("third"), &mut || ()).unwrap_err();
    assert!(error.to_string().contains("--renew-masks "), "{error}");
    let newest = folder.path().join("newest");
    let changed = ["later".to_owned(), gone];
    let (files, rings) = renew_masks(&third, &keys, &changed, &newest, NOW).unwrap();
    assert_eq!(files.devices.len(), 6);
    let [one, other] = rings[..] else { panic!("{rings:?}") };
    assert_eq!((one.sources, one.changed, other.sources, other.changed), (5, 0, 1, 1));
    assert!(querier(&newest).masked.unwrap().runs().eq([0..7, 8..13]));
    assert_eq!(sources(&newest)["later"].masks.as_ref().unwrap().1, MaskRing::of(Some(12..13)));
}

#[test]
fn masks_are_not_renewed_for_wrong_names_without_masks_or_over_other_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let roster = roster(6);
    let of = ("querier", &key(9).public());
    for (name, masks) in [("plain", false), ("masked", true)] {
        setup(&roster, of, &at(name), Some(1), masks, &mut || ()).unwrap();
    }
    let renew = |from: &str, device: &str, out: &str| {
        let keys = at(from).join("querier.sum.key");
        let made = renew_masks(&roster, &keys, &[device.to_owned()], &at(out), NOW);
        made.map(drop).map_err(|error| error.to_string())
    };
    assert!(renew("plain", "mote1", "new").unwrap_err().contains("--masks"));
    assert!(renew("masked", "mote7", "new").unwrap_err().contains("\"mote7\""));
    assert!(renew("masked", "mote1", "masked").unwrap_err().contains("never replaced"));
    assert!(!at("new").exists());
    renew("masked", "mote1", "new").unwrap();
    let everyone = next(&roster, |next| {
        for number in 1..=6 {
            next.end(&format!("mote{number}"), None, Some(EpochNumber(90))).unwrap();
        }
    });
    let keys = at("masked").join("querier.sum.key");
    let error = renew_masks(&everyone, &keys, &["mote1".to_owned()], &at("none"), NOW).unwrap_err();
    assert!(error.to_string().contains("no device"), "{error}");
}
