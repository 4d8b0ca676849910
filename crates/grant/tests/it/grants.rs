//! What a grant opens.

use std::ops::RangeInclusive;

use moteseal_core::confidential::{KeyAccessError, StreamSecret, Suite};
use moteseal_core::{EpochNumber, SealIndex};
use moteseal_grant::{
    Audience, GrantRequest, Identity, MakeError, OpenGrant, Passphrase, Recipients, Unlock,
};
use proptest::prelude::*;

use crate::scene::{
    BASE, GROUP, alice, column, device, key, key_of, request, rosters, seal, secret_of, to,
};

#[test]
fn a_reader_gets_exactly_the_keys_that_were_granted() {
    let (owner, [_, roster, _], reader) = (alice(3), rosters(), Identity::generate());
    let (recipients, devices) = (to(&reader), [device(0), device(2)]);
    let names = ["temperature"];
    let request =
        GrantRequest { columns: Some(&names), ..request(&devices, &recipients, 1005, 1044) };
    for armour in [false, true] {
        let file = owner.grant(&request, &roster, armour).unwrap();
        assert_eq!(file.starts_with(b"-----BEGIN AGE ENCRYPTED FILE-----"), armour);
        let unlock = Unlock::identity_file(&format!("# mine\n\n{}\n", *reader.expose())).unwrap();
        let grant = OpenGrant::open(&file, &unlock, &roster, 0).unwrap();
        let mut keys = grant.keys();
        for number in 0..3 {
            for name in ["temperature", "humidity"] {
                for epoch in (1000..1050).chain([1020, 1001, 1030]) {
                    let seal = seal(device(number), name, epoch);
                    let (key, commitment) = key_of(&secret_of(number), &seal);
                    let is_granted =
                        number != 1 && name == "temperature" && (1005..=1044).contains(&epoch);
                    assert_eq!(grant.covers(seal.device, seal.column, seal.epoch), is_granted);
                    match keys.seal_key(&seal, &commitment) {
                        Ok(given) => {
                            assert!(is_granted);
                            assert_eq!(given.expose(), key.expose());
                        }
                        Err(error) => {
                            assert!(!is_granted);
                            assert_eq!(error, KeyAccessError::NotCovered);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn the_contents_of_a_grant_state_what_it_opens_and_for_whom() {
    let (owner, [_, roster, _], reader) = (alice(1), rosters(), Identity::generate());
    let (recipients, devices) = (to(&reader), [device(0)]);
    let request = GrantRequest {
        not_after_ms: Some(99),
        purpose: "heating study",
        ..request(&devices, &recipients, 1003, 1010)
    };
    let file = owner.grant(&request, &roster, false).unwrap();
    let grant = OpenGrant::open(&file, &Unlock::Identities(vec![reader]), &roster, 99).unwrap();
    let contents = grant.contents();
    assert_eq!((contents.owner.as_str(), contents.purpose.as_str()), ("alice", "heating study"));
    assert_eq!((contents.not_after_ms, contents.roster), (Some(99), roster.digest()));
    let Recipients::Keys(keys) = &recipients else { unreachable!() };
    assert_eq!(contents.audience, Audience::Recipients(vec![keys[0].as_str().to_owned()]));
    let mut ids = [column("temperature"), column("humidity")];
    ids.sort();
    let found: Vec<_> = contents.columns.iter().map(|granted| granted.column).collect();
    assert_eq!(found, ids);
    for granted in &contents.columns {
        assert_eq!((granted.device, granted.generation), (device(0), 0));
        assert_eq!(granted.epochs, [(EpochNumber(1003), EpochNumber(1010))]);
        assert_eq!(granted.nodes, 4, "3, 4 to 7, 8 to 9, 10");
    }
}

#[test]
fn a_passphrase_opens_a_grant_that_was_made_for_it() {
    let (owner, [_, roster, _]) = (alice(1), rosters());
    let passphrase = Passphrase::new("correct horse").unwrap().with_work_factor(4).unwrap();
    let (recipients, devices) = (Recipients::Passphrase(passphrase.clone()), [device(0)]);
    let file = owner.grant(&request(&devices, &recipients, 1000, 1000), &roster, true).unwrap();
    let grant = OpenGrant::open(&file, &Unlock::Passphrase(passphrase), &roster, 0).unwrap();
    assert!(grant.covers(device(0), column("humidity"), BASE));
    let other = Unlock::Passphrase(Passphrase::new("wrong horse").unwrap());
    let error = OpenGrant::open(&file, &other, &roster, 0).unwrap_err();
    assert_eq!(error.name(), "NoMatchingKey");
    let identity = Unlock::Identities(vec![Identity::generate()]);
    let error = OpenGrant::open(&file, &identity, &roster, 0).unwrap_err();
    assert_eq!(error.name(), "OtherKeyKind");
}

#[test]
fn a_grant_covers_all_secrets_that_a_device_has_had() {
    let (mut owner, [_, roster, _], reader) = (alice(1), rosters(), Identity::generate());
    let newer = StreamSecret::new([8; 32], EpochNumber(1500));
    owner.add(device(0), newer.clone(), &[(column("temperature"), "temperature")]).unwrap();
    let (recipients, devices) = (to(&reader), [device(0)]);
    let file = owner.grant(&request(&devices, &recipients, 1490, 1510), &roster, false).unwrap();
    let grant = OpenGrant::open(&file, &Unlock::Identities(vec![reader]), &roster, 0).unwrap();
    let mut keys = grant.keys();
    for (secret, epoch) in [(secret_of(0), 1495), (secret_of(0), 1505), (newer, 1505)] {
        let seal = seal(device(0), "temperature", epoch);
        let (key, commitment) = key_of(&secret, &seal);
        assert_eq!(keys.seal_key(&seal, &commitment).unwrap().expose(), key.expose());
    }
}

#[test]
fn a_grant_has_at_most_64_secrets_of_a_device() {
    let (mut owner, [_, roster, _], reader) = (alice(1), rosters(), Identity::generate());
    let secret = |number: u64| StreamSecret::new([8; 32], EpochNumber(1000 + number));
    for number in 1..=70 {
        let columns = [(column("temperature"), "temperature")];
        owner.add(device(0), secret(number), &columns).unwrap();
    }
    let (recipients, devices) = (to(&reader), [device(0)]);
    let signed = owner.sign_grant(&request(&devices, &recipients, 1000, 2000), &roster).unwrap();
    let grant = OpenGrant::verify(&signed, &roster).unwrap();
    assert_eq!(grant.contents().columns.len(), 64);
    let mut keys = grant.keys();
    for number in 1..=70 {
        let seal = seal(device(0), "temperature", 1500);
        let (_, commitment) = key_of(&secret(number), &seal);
        // The newest secrets are granted.
        let expected = if number > 6 { Ok(()) } else { Err(KeyAccessError::WrongKey) };
        assert_eq!(keys.seal_key(&seal, &commitment).map(drop), expected, "{number}");
    }
}

#[test]
fn a_request_that_would_open_nothing_is_refused() {
    let ([without, roster, _], reader) = (rosters(), Identity::generate());
    let (recipients, owner) = (to(&reader), alice(1));
    let (devices, unknown) = ([device(0)], [device(0), device(9)]);
    let good = request(&devices, &recipients, 1000, 1001);
    let make = |request: &GrantRequest<'_>| owner.sign_grant(request, &roster).unwrap_err();
    assert_eq!(make(&GrantRequest { devices: &[], ..good.clone() }), MakeError::NothingGranted);
    #[allow(clippy::reversed_empty_ranges)]
    let empty = EpochNumber(7)..=EpochNumber(6);
    assert_eq!(make(&GrantRequest { epochs: empty, ..good.clone() }), MakeError::NothingGranted);
    let not_owned = MakeError::NotOwned { device: device(9) };
    assert_eq!(make(&GrantRequest { devices: &unknown, ..good.clone() }), not_owned);
    for names in [&["pressure"][..], &["temperature", "pressure"], &[]] {
        let request = GrantRequest { columns: Some(names), ..good.clone() };
        assert_eq!(make(&request), MakeError::UnknownColumn);
    }
    let before = MakeError::EpochOutOfKeyRange { device: device(0) };
    assert_eq!(make(&request(&devices, &recipients, 1, 999)), before);
    // The check without keys says the same.
    let check = |number: u16, columns: Option<&[&str]>, epochs: RangeInclusive<u64>| {
        let epochs = EpochNumber(*epochs.start())..=EpochNumber(*epochs.end());
        owner.check_grantable(device(number), columns, &epochs)
    };
    assert_eq!(check(0, None, 1..=999), Err(before));
    assert_eq!(check(0, None, 1..=1000), Ok(()));
    assert_eq!(check(9, None, 1000..=1001), Err(not_owned));
    assert_eq!(check(0, Some(&["pressure"]), 1000..=1001), Err(MakeError::UnknownColumn));
    assert_eq!(check(0, Some(&["pressure", "temperature"]), 1000..=1001), Ok(()));
    let purpose = "x".repeat(257);
    assert_eq!(
        make(&GrantRequest { purpose: &purpose, ..good.clone() }),
        MakeError::InvalidPurpose
    );
    let none = Recipients::Keys(vec![]);
    assert_eq!(make(&request(&devices, &none, 1000, 1001)).name(), "RecipientCount");
    let Recipients::Keys(keys) = &recipients else { unreachable!() };
    let twice = Recipients::Keys([keys.clone(), keys.clone()].concat());
    assert_eq!(make(&request(&devices, &twice, 1000, 1001)).name(), "RecipientCount");

    assert_eq!(owner.sign_grant(&good, &without).unwrap_err(), MakeError::UnknownOwner);
    let impostor = moteseal_grant::Owner::new(GROUP, "alice", key(4)).unwrap();
    assert_eq!(impostor.sign_grant(&good, &roster).unwrap_err(), MakeError::WrongOwnerKey);
    let stranger = moteseal_grant::Owner::new("office", "alice", key(2)).unwrap();
    assert_eq!(stranger.sign_grant(&good, &roster).unwrap_err(), MakeError::WrongGroup);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Random cells: readable if and only if granted, with the key that follows from the secret.
    #[test]
    fn a_cell_is_readable_if_and_only_if_it_was_granted(
        first in 900_u64..2000,
        length in 0_u64..3000,
        chosen in 1_u8..8,
        both in any::<bool>(),
        cells in prop::collection::vec((0_u16..3, 0_usize..2, 900_u64..4500, any::<u32>()), 40),
        nonce in any::<[u8; 12]>(),
        aes in any::<bool>(),
    ) {
        prop_assume!(first + length >= 1000);
        let (owner, [_, roster, _], reader) = (alice(3), rosters(), Identity::generate());
        let granted: Vec<u16> = (0..3).filter(|number| chosen >> number & 1 == 1).collect();
        let devices: Vec<_> = granted.iter().map(|number| device(*number)).collect();
        let names = &["humidity", "temperature"][..1 + usize::from(both)];
        let recipients = to(&reader);
        let request = GrantRequest {
            columns: Some(names),
            ..request(&devices, &recipients, first, first + length)
        };
        let signed = owner.sign_grant(&request, &roster).unwrap();
        let grant = OpenGrant::verify(&signed, &roster).unwrap();
        let mut keys = grant.keys();
        for (number, name, epoch, index) in cells {
            let name = ["humidity", "temperature"][name];
            let mut seal = seal(device(number), name, epoch);
            seal.index = SealIndex(index);
            seal.nonce.0 = nonce;
            seal.suite = if aes { Suite::Aes128Ctr } else { Suite::ChaCha20 };
            let is_granted = granted.contains(&number)
                && names.contains(&name)
                && (first.max(1000)..=first + length).contains(&epoch);
            if epoch < 1000 {
                prop_assert!(!grant.covers(seal.device, seal.column, seal.epoch));
                continue;
            }
            let (key, commitment) = key_of(&secret_of(number), &seal);
            let given = keys.seal_key(&seal, &commitment);
            prop_assert_eq!(given.is_ok(), is_granted);
            if let Ok(given) = given {
                prop_assert_eq!(given.expose(), key.expose());
            }
        }
    }
}
