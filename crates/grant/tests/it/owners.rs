//! The owner's secrets: what its file contains, and what it forgets.

use moteseal_core::confidential::{Nonce, StreamSecret, Suite};
use moteseal_core::digest::Digest;
use moteseal_core::{EpochNumber, SealIndex};
use moteseal_grant::{
    GrantRequest, Identity, OpenGrant, Owner, OwnerError, OwnerFileError, decode_stream_secret,
    encode_stream_secret,
};

use crate::scene::{
    BASE, GROUP, alice, column, columns, device, key, key_of, request, rosters, seal, secret_of, to,
};

#[test]
fn a_file_reads_back_as_it_was_written() {
    let mut owner = alice(3);
    owner.forget(EpochNumber(1300), Some(&[device(1)])).unwrap();
    owner.add_columns(device(1), &[(column("pressure"), "pressure")]).unwrap();
    owner.add(device(1), StreamSecret::new([3; 32], EpochNumber(4000)), &columns()).unwrap();
    let file = owner.encode().unwrap();
    let read = Owner::decode(&file).unwrap();
    assert_eq!(read.encode().unwrap(), file);
    assert_eq!((read.name(), read.group_name()), ("alice", GROUP));
    assert_eq!(read.public_key(), key(2).public());
    assert_eq!(read.streams().len(), 4);
    assert_eq!(read.streams_of(device(1))[0].forgotten(), Some(EpochNumber(1300)));
    assert_eq!(read.streams_of(device(1))[1].generation(), 1);
}

#[test]
fn every_altered_byte_of_a_file_is_refused() {
    let file = alice(1).encode().unwrap();
    for place in 0..file.len() {
        let mut altered = file.to_vec();
        altered[place] ^= 1;
        assert!(Owner::decode(&altered).is_err(), "{place}");
        assert!(Owner::decode(&file[..place]).is_err(), "{place}");
    }
    let mut altered = file.to_vec();
    altered[file.len() / 2] ^= 1;
    assert_eq!(Owner::decode(&altered).unwrap_err(), OwnerFileError::Damaged);
}

/// Returns a file with this content, and the right check value.
fn file_of(version: u8, content: &[u8]) -> Vec<u8> {
    let check = Digest::of(&[b"moteseal/1/owner-file\0", content]);
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[0x83, version, 0x59][..], &length, content, &[0x58, 0x20], &check.0].concat()
}

#[test]
fn unknown_versions_duplicates_and_wrong_orders_are_refused_by_name() {
    let file = alice(2).encode().unwrap();
    // 0x83, the version, the head of the content; then the check value in 34 bytes.
    let content = &file[5..file.len() - 34];
    assert_eq!(file_of(1, content), *file);
    let refuse = |file: &[u8]| Owner::decode(file).unwrap_err().name();
    assert_eq!(refuse(&file_of(2, content)), "UnsupportedVersion");
    let mut starts: Vec<usize> = (0..2)
        .map(|number| {
            content.windows(8).position(|window| *window == device(number).0).unwrap() - 2
        })
        .collect();
    starts.sort_unstable();
    let (head, one, other) =
        (&content[..starts[0]], &content[starts[0]..starts[1]], &content[starts[1]..]);
    assert_eq!(refuse(&file_of(1, &[head, one, one].concat())), "DuplicateStream");
    assert_eq!(refuse(&file_of(1, &[head, other, one].concat())), "FieldOutOfRange");
    assert_eq!(refuse(&file_of(1, &[content, &[0]].concat())), "TrailingBytes");
    assert_eq!(refuse(b"\x80"), "UnexpectedType");
}

#[test]
fn nothing_that_is_printed_contains_a_secret() {
    let mut owner = alice(1);
    let secret = hex::encode(secret_of(0).expose());
    owner.forget(EpochNumber(1100), None).unwrap();
    let reader = Identity::generate();
    let (recipients, devices) = (to(&reader), [device(0)]);
    let [_, roster, _] = rosters();
    let signed = owner.sign_grant(&request(&devices, &recipients, 1200, 1300), &roster).unwrap();
    let grant = OpenGrant::verify(&signed, &roster).unwrap();
    let printed = format!("{owner:?} {grant:?} {:?} {reader:?}", grant.keys());
    assert!(!printed.contains(&secret) && !printed.contains("SECRET"), "{printed}");
    // A secret in the form [7, 7, ...] would be printed by a derived Debug.
    assert!(!printed.contains("7, 7, 7"), "{printed}");
}

#[test]
fn what_an_owner_has_forgotten_it_can_neither_grant_nor_read_from_its_file() {
    let mut owner = alice(2);
    let [_, roster, _] = rosters();
    let (recipients, devices) = (to(&Identity::generate()), [device(0)]);
    let old = owner.sign_grant(&request(&devices, &recipients, 1000, 1200), &roster).unwrap();

    assert_eq!(owner.forget(EpochNumber(1100), Some(&devices)).unwrap(), 1);
    assert_eq!(owner.forget(EpochNumber(1050), Some(&devices)).unwrap(), 0, "already forgotten");
    let file = owner.encode().unwrap();
    let owner = Owner::decode(&file).unwrap();
    assert!(owner.streams_of(device(0))[0].secret().is_none());
    // Neither the secret nor a key of the past is in the file.
    let past = secret_of(0).column(column("temperature"));
    for key in [secret_of(0).expose(), past.node().expose()] {
        assert!(!file.windows(32).any(|window| window == key));
    }
    for node in past.cover(BASE..=EpochNumber(1099)) {
        assert!(!file.windows(32).any(|window| window == node.expose()));
    }

    let make =
        |first, last| owner.sign_grant(&request(&devices, &recipients, first, last), &roster);
    for (first, last) in [(1000, 1000), (900, 1000), (1099, 1200), (1000, 9000)] {
        assert_eq!(make(first, last).unwrap_err().name(), "Forgotten");
    }
    let other = [device(1)];
    assert!(owner.sign_grant(&request(&other, &recipients, 1000, 1001), &roster).is_ok());
    // Later epochs still open, with the same keys; the grant made before still opens, too.
    let new = make(1100, 5000).unwrap();
    for (signed, epochs) in [(&new, [1100, 1101, 5000]), (&old, [1000, 1099, 1200])] {
        let grant = OpenGrant::verify(signed, &roster).unwrap();
        for epoch in epochs {
            for name in ["temperature", "humidity"] {
                let seal = seal(device(0), name, epoch);
                let (key, commitment) = key_of(&secret_of(0), &seal);
                let given = grant.keys().seal_key(&seal, &commitment).unwrap();
                assert_eq!(given.expose(), key.expose());
            }
        }
    }
}

#[test]
fn columns_that_are_added_later_start_from_the_successor_of_the_secret() {
    let mut owner = alice(1);
    let [_, roster, _] = rosters();
    let (recipients, devices) = (to(&Identity::generate()), [device(0)]);
    owner.add_columns(device(0), &[(column("pressure"), "pressure")]).unwrap();
    owner.add_columns(device(0), &[(column("pressure"), "pressure")]).unwrap();
    owner.forget(EpochNumber(1010), None).unwrap();
    owner.add_columns(device(0), &[(column("light"), "light")]).unwrap();
    let check = |owner: &Owner, first: u64| {
        let signed = owner.sign_grant(&request(&devices, &recipients, first, 2000), &roster);
        let grant = OpenGrant::verify(&signed.unwrap(), &roster).unwrap();
        let secrets = [
            ("temperature", secret_of(0)),
            ("pressure", secret_of(0).next()),
            ("light", secret_of(0).next().next()),
        ];
        for (name, secret) in secrets {
            let seal = seal(device(0), name, 1500);
            let (key, commitment) = key_of(&secret, &seal);
            let given = grant.keys().seal_key(&seal, &commitment).unwrap();
            assert_eq!(given.expose(), key.expose(), "{name}");
        }
    };
    check(&owner, 1010);
    owner.forget(EpochNumber(1020), None).unwrap();
    let owner = Owner::decode(&owner.encode().unwrap()).unwrap();
    check(&owner, 1020);
}

/// A column that is added later has a root, which opens what was forgotten.
#[test]
fn what_was_forgotten_is_erased_of_columns_that_are_added_later_by_forgetting_it_again() {
    let mut owner = alice(1);
    let light = [(column("light"), "light")];
    owner.forget(EpochNumber(1100), None).unwrap();
    assert_eq!(owner.forget(EpochNumber(1100), None).unwrap(), 0, "nothing is left");
    owner.add_columns(device(0), &light).unwrap();
    assert!(owner.streams_of(device(0))[0].keeps_forgotten());
    let successor = secret_of(0).next();
    let past = successor.column(column("light"));
    let has = |owner: &Owner, key: &[u8; 32]| {
        owner.encode().unwrap().windows(32).any(|window| window == key)
    };
    assert!(has(&owner, successor.expose()));
    // An earlier time forgets what was forgotten, too.
    let mut owner = Owner::decode(&owner.encode().unwrap()).unwrap();
    assert_eq!(owner.forget(EpochNumber(1050), None).unwrap(), 1);
    let owner = Owner::decode(&owner.encode().unwrap()).unwrap();
    let stream = &owner.streams_of(device(0))[0];
    assert!(!stream.keeps_forgotten() && stream.forgotten() == Some(EpochNumber(1100)));
    assert!(!has(&owner, successor.expose()));
    let mut past = past.cover(BASE..=EpochNumber(1099));
    assert!(past.all(|node| !has(&owner, node.expose())));
    // The keys of later epochs are there.
    let [_, roster, _] = rosters();
    let (recipients, devices) = (to(&Identity::generate()), [device(0)]);
    let signed = owner.sign_grant(&request(&devices, &recipients, 1100, 2000), &roster).unwrap();
    let seal = seal(device(0), "light", 1100);
    let (key, commitment) = key_of(&successor, &seal);
    let grant = OpenGrant::verify(&signed, &roster).unwrap();
    assert_eq!(grant.keys().seal_key(&seal, &commitment).unwrap().expose(), key.expose());
}

#[test]
fn a_column_in_a_seal_is_added_to_the_secret_from_which_the_device_derived_its_key() {
    let mut owner = alice(2);
    let [_, roster, _] = rosters();
    let (recipients, devices) = (to(&Identity::generate()), [device(0)]);
    let steps = |count: usize| (0..count).fold(secret_of(0), |secret, _| secret.next());
    let add = |owner: &mut Owner, name: &str, secret: &StreamSecret, epoch: u64| {
        let seal = seal(device(0), name, epoch);
        let (_, commitment) = key_of(secret, &seal);
        owner.add_sealed_column(&seal, &commitment, name)
    };
    assert_eq!(add(&mut owner, "temperature", &steps(0), 1500), Ok(false), "known");
    assert_eq!(add(&mut owner, "pressure", &steps(1), 1500), Ok(true));
    assert_eq!(add(&mut owner, "pressure", &steps(1), 1501), Ok(false));
    // The owner forgets, and the device adds columns at two later starts, in any order.
    owner.forget(EpochNumber(1510), None).unwrap();
    let mut owner = Owner::decode(&owner.encode().unwrap()).unwrap();
    assert_eq!(add(&mut owner, "noise", &steps(3), 1520), Ok(true));
    assert_eq!(add(&mut owner, "light", &steps(2), 1520), Ok(true));
    // The owner had the columns in another batch than the device.
    let other = [(column("dust"), "dust"), (column("smoke"), "smoke")];
    owner.add_columns(device(0), &other[..1]).unwrap();
    owner.add_columns(device(0), &other[1..]).unwrap();
    let before = owner.encode().unwrap();
    let moved = OwnerError::ColumnMoved { device: device(0) };
    assert_eq!(add(&mut owner, "smoke", &steps(4), 1520), Err(moved));
    assert_eq!(owner.encode().unwrap(), before, "never moved silently");
    let smoke = seal(device(0), "smoke", 1520);
    let (_, commitment) = key_of(&steps(4), &smoke);
    assert_eq!(owner.move_sealed_column(&smoke, &commitment, "smoke"), Ok(true));
    assert_eq!(owner.move_sealed_column(&smoke, &commitment, "smoke"), Ok(false));
    assert_eq!(add(&mut owner, "smoke", &steps(4), 1521), Ok(false));
    assert_eq!(add(&mut owner, "dust", &steps(4), 1520), Ok(false));
    let mut owner = Owner::decode(&owner.encode().unwrap()).unwrap();
    let check = |owner: &Owner, first: u64| {
        let signed = owner.sign_grant(&request(&devices, &recipients, first, 2000), &roster);
        let grant = OpenGrant::verify(&signed.unwrap(), &roster).unwrap();
        for (name, batch) in [
            ("temperature", 0),
            ("pressure", 1),
            ("light", 2),
            ("noise", 3),
            ("dust", 4),
            ("smoke", 4),
        ] {
            let seal = seal(device(0), name, 1600);
            let (key, commitment) = key_of(&steps(batch), &seal);
            let given = grant.keys().seal_key(&seal, &commitment).unwrap();
            assert_eq!(given.expose(), key.expose(), "{name}");
        }
    };
    check(&owner, 1510);
    owner.forget(EpochNumber(1530), None).unwrap();
    check(&owner, 1530);

    let before = owner.encode().unwrap();
    let error = |owner: &mut Owner, name: &str, secret: &StreamSecret, epoch: u64| {
        add(owner, name, secret, epoch).unwrap_err().name()
    };
    // From a secret that the owner forgot, from no secret of the device, and after 256 batches.
    assert_eq!(error(&mut owner, "rain", &steps(2), 1600), "WrongKey");
    assert_eq!(error(&mut owner, "temperature", &steps(1), 1600), "WrongKey");
    assert_eq!(error(&mut owner, "rain", &secret_of(1), 1600), "WrongKey");
    assert_eq!(error(&mut owner, "rain", &steps(256), 1600), "WrongKey");
    assert_eq!(error(&mut owner, "rain", &steps(5), 1529), "EpochOutOfKeyRange");
    assert_eq!(error(&mut owner, "a\n", &steps(5), 1600), "InvalidName");
    let stranger = seal(device(9), "rain", 1600);
    let refused = owner.add_sealed_column(&stranger, &key_of(&steps(5), &stranger).1, "rain");
    assert_eq!(refused.unwrap_err().name(), "NotOwned");
    assert_eq!(owner.encode().unwrap(), before);
    assert_eq!(add(&mut owner, "rain", &steps(255), 1600), Ok(true));

    // No batch is left, and a file with a later batch could not be read.
    let before = owner.encode().unwrap();
    let refused = owner.add_columns(device(0), &[(column("wind"), "wind")]);
    assert_eq!(refused.unwrap_err().name(), "ColumnCount");
    assert_eq!(owner.encode().unwrap(), before);
    Owner::decode(&before).unwrap();
}

/// A device has added a column, lost its keys, and started from its stream secret again.
#[test]
fn a_column_that_a_device_begins_again_is_not_moved_so_earlier_seals_can_still_be_granted() {
    let mut owner = alice(1);
    let [_, roster, _] = rosters();
    let (recipients, devices) = (to(&Identity::generate()), [device(0)]);
    owner.add_columns(device(0), &[(column("pressure"), "pressure")]).unwrap();
    let (early, late) = (seal(device(0), "pressure", 1100), seal(device(0), "pressure", 1200));
    let (right, early_commitment) = key_of(&secret_of(0).next(), &early);
    let (_, late_commitment) = key_of(&secret_of(0), &late);
    let error = owner.add_sealed_column(&late, &late_commitment, "pressure").unwrap_err();
    assert_eq!(error.name(), "ColumnMoved");
    let signed = owner.sign_grant(&request(&devices, &recipients, 1000, 1300), &roster).unwrap();
    let grant = OpenGrant::verify(&signed, &roster).unwrap();
    let given = grant.keys().seal_key(&early, &early_commitment).unwrap();
    assert_eq!(given.expose(), right.expose());
}

#[test]
fn a_device_gets_its_copy_of_the_secret_again_unless_it_would_derive_wrong_keys_from_it() {
    let mut owner = alice(3);
    assert_eq!(owner.copy_of(device(0), BASE).unwrap(), &secret_of(0));
    owner.add_columns(device(1), &[(column("pressure"), "pressure")]).unwrap();
    owner.forget(EpochNumber(1100), Some(&[device(2)])).unwrap();
    for number in [1, 2] {
        assert_eq!(owner.copy_of(device(number), BASE).unwrap_err().name(), "NoCopy");
    }
    assert_eq!(owner.copy_of(device(3), BASE).unwrap_err().name(), "NotOwned");
    // A new secret has a copy.
    let newer = StreamSecret::new([8; 32], EpochNumber(1500));
    owner.add(device(2), newer.clone(), &columns()).unwrap();
    assert_eq!(owner.copy_of(device(2), EpochNumber(1500)).unwrap(), &newer);
    // Before the newer secret begins, the device uses the older one.
    let later = StreamSecret::new([9; 32], EpochNumber(1500));
    owner.add(device(0), later.clone(), &columns()).unwrap();
    for (epoch, secret) in [(0, &secret_of(0)), (1499, &secret_of(0)), (1500, &later)] {
        assert_eq!(owner.copy_of(device(0), EpochNumber(epoch)).unwrap(), secret, "{epoch}");
    }
}

#[test]
fn wrong_changes_leave_the_owner_unchanged() {
    let mut owner = alice(1);
    let before = owner.encode().unwrap();
    let secret = || StreamSecret::new([1; 32], BASE);
    let is =
        |result: Result<(), OwnerError>, name: &str| assert_eq!(result.unwrap_err().name(), name);
    is(owner.add(device(0), secret(), &columns()).map(|_| ()), "BaseNotLater");
    is(owner.add(device(1), secret(), &[]).map(|_| ()), "ColumnCount");
    is(owner.add(device(1), secret(), &[(column("a"), "a\n")]).map(|_| ()), "InvalidName");
    is(owner.add_columns(device(1), &columns()), "NotOwned");
    let many: Vec<_> = (0..256_u32).map(|n| (column(&n.to_string()), "x")).collect();
    is(owner.add_columns(device(0), &many), "ColumnCount");
    is(owner.forget(EpochNumber(1001), Some(&[device(0), device(1)])).map(|_| ()), "NotOwned");
    let never = EpochNumber(BASE.0 + (1 << 32));
    is(owner.forget(never, None).map(|_| ()), "EpochOutOfKeyRange");
    assert_eq!(owner.encode().unwrap(), before);
    assert_eq!(Owner::new(GROUP, "", key(2)).unwrap_err().name(), "InvalidName");
}

#[test]
fn a_device_reads_its_copy_of_the_secret() {
    let secret = secret_of(5);
    let text = encode_stream_secret(device(0), &secret);
    assert_eq!(decode_stream_secret(&text).unwrap(), (device(0), secret.clone()));
    assert_eq!(*text, format!("{} 1000 {}\n", hex::encode(secret.expose()), device(0)));
    for same in [text.trim_end(), &text.replace('\n', "\r\n"), &format!("{} \n\n", *text)] {
        assert_eq!(decode_stream_secret(same).unwrap(), (device(0), secret.clone()));
    }
    let short = text.rsplit_once(' ').unwrap().0.to_owned() + "\n";
    for wrong in [
        "",
        "00 1 00",
        &short,
        &text[1..],
        &text[..text.len() - 2],
        &text.replace(' ', ""),
        &text.replace('\n', " 1\n"),
        &text.replace("07", "0g"),
    ] {
        assert!(decode_stream_secret(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_grant_after_forgetting_the_last_epoch_but_one_opens_only_the_last() {
    let mut owner = alice(1);
    let [_, roster, _] = rosters();
    let (recipients, devices) = (to(&Identity::generate()), [device(0)]);
    let last = BASE.0 + u64::from(u32::MAX);
    owner.forget(EpochNumber(last), None).unwrap();
    let request = GrantRequest {
        columns: Some(&["humidity"]),
        ..request(&devices, &recipients, last, u64::MAX)
    };
    let signed = owner.sign_grant(&request, &roster).unwrap();
    let grant = OpenGrant::verify(&signed, &roster).unwrap();
    assert_eq!(grant.contents().columns[0].epochs, [(EpochNumber(last), EpochNumber(last))]);
    let key = secret_of(0).column(column("humidity")).epoch_key(EpochNumber(last)).unwrap();
    let key = key.seal_key(device(0), SealIndex(5), Suite::ChaCha20, &Nonce([9; 12]));
    let given = grant.keys().seal_key(&seal(device(0), "humidity", last), &key.commitment());
    assert_eq!(given.unwrap().expose(), key.expose());
}
