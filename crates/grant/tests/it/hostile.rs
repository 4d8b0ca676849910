//! Grants that are altered, stale, or for somebody else.

use moteseal_core::confidential::{Commitment, KeyAccessError};
use moteseal_core::cose::{Sign1, Typ, sig_structure};
use moteseal_core::identity::protected;
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
use moteseal_grant::{
    GrantRequest, Identity, MAX_FILE, OpenGrant, Owner, Passphrase, Recipients, Unlock, encrypt,
};
use moteseal_verify::Roster;
use moteseal_verify::issue::{FirstRoster, NextRoster};

use crate::scene::{
    GROUP, alice, columns, device, key, key_of, request, rosters, seal, secret_of, to,
};

fn name(result: Result<OpenGrant, moteseal_grant::OpenError>) -> &'static str {
    result.map_or_else(|error| error.name(), |_| "opened")
}

#[test]
fn every_altered_byte_of_a_signed_grant_is_refused() {
    let (owner, [_, roster, _], reader) = (alice(1), rosters(), Identity::generate());
    let (recipients, devices) = (to(&reader), [device(0)]);
    let mut request = request(&devices, &recipients, 1003, 1005);
    request.not_after_ms = Some(1000);
    let signed = owner.sign_grant(&request, &roster).unwrap();
    assert_eq!(name(OpenGrant::verify(&signed, &roster)), "opened");
    for place in 0..signed.len() {
        for flip in [1, 0x20, 0x80, 0xff] {
            let mut altered = signed.to_vec();
            altered[place] ^= flip;
            assert_ne!(name(OpenGrant::verify(&altered, &roster)), "opened", "{place} {flip}");
        }
        assert_ne!(name(OpenGrant::verify(&signed[..place], &roster)), "opened");
    }
}

#[test]
fn every_altered_byte_of_an_encrypted_grant_is_refused() {
    let (owner, [_, roster, _], reader) = (alice(1), rosters(), Identity::generate());
    let (recipients, devices) = (to(&reader), [device(0)]);
    let file = owner.grant(&request(&devices, &recipients, 1000, 1000), &roster, false).unwrap();
    let unlock = Unlock::Identities(vec![reader]);
    for place in 0..file.len() {
        let mut altered = file.clone();
        altered[place] ^= 1;
        assert_ne!(name(OpenGrant::open(&altered, &unlock, &roster, 0)), "opened", "{place}");
        assert_ne!(name(OpenGrant::open(&file[..place], &unlock, &roster, 0)), "opened");
    }
}

#[test]
fn a_grant_that_was_encrypted_anew_for_somebody_else_is_not_for_them() {
    let (owner, [_, roster, _]) = (alice(1), rosters());
    let (bob, carol) = (Identity::generate(), Identity::generate());
    let (recipients, devices) = (to(&bob), [device(0)]);
    let signed = owner.sign_grant(&request(&devices, &recipients, 1000, 1009), &roster).unwrap();
    let forwarded = encrypt(&signed, &to(&carol), false).unwrap();
    let carol = Unlock::Identities(vec![carol]);
    assert_eq!(name(OpenGrant::open(&forwarded, &carol, &roster, 0)), "NotForYou");

    let passphrase = |text| Passphrase::new(text).unwrap().with_work_factor(2).unwrap();
    let other = Recipients::Passphrase(passphrase("other"));
    let forwarded = encrypt(&signed, &other, false).unwrap();
    let unlock = Unlock::Passphrase(passphrase("other"));
    assert_eq!(name(OpenGrant::open(&forwarded, &unlock, &roster, 0)), "NotForYou");
    let recipients = Recipients::Passphrase(passphrase("chosen"));
    let signed = owner.sign_grant(&request(&devices, &recipients, 1000, 1009), &roster).unwrap();
    let forwarded = encrypt(&signed, &other, false).unwrap();
    assert_eq!(name(OpenGrant::open(&forwarded, &unlock, &roster, 0)), "NotForYou");
    let bob_unlock = Unlock::Identities(vec![bob]);
    let Unlock::Identities(bobs) = &bob_unlock else { unreachable!() };
    let forwarded = encrypt(&signed, &to(&bobs[0]), false).unwrap();
    assert_eq!(name(OpenGrant::open(&forwarded, &bob_unlock, &roster, 0)), "NotForYou");
}

#[test]
fn a_grant_ends_after_its_last_millisecond() {
    let (owner, [_, roster, _], reader) = (alice(1), rosters(), Identity::generate());
    let (recipients, devices) = (to(&reader), [device(0)]);
    let request =
        GrantRequest { not_after_ms: Some(5000), ..request(&devices, &recipients, 1000, 1000) };
    let file = owner.grant(&request, &roster, false).unwrap();
    let unlock = Unlock::Identities(vec![reader]);
    assert_eq!(name(OpenGrant::open(&file, &unlock, &roster, 5000)), "opened");
    assert_eq!(name(OpenGrant::open(&file, &unlock, &roster, 5001)), "GrantExpired");
}

#[test]
fn a_grant_names_a_roster_of_the_history() {
    let (owner, [first, second, third]) = (alice(1), rosters());
    let (recipients, devices) = (to(&Identity::generate()), [device(0)]);
    let request = request(&devices, &recipients, 1000, 1000);
    let signed = owner.sign_grant(&request, &second).unwrap();
    assert_eq!(name(OpenGrant::verify(&signed, &second)), "opened");
    assert_eq!(name(OpenGrant::verify(&signed, &third)), "opened");
    assert_eq!(name(OpenGrant::verify(&signed, &first)), "UnknownRoster");
    let newer = owner.sign_grant(&request, &third).unwrap();
    assert_eq!(name(OpenGrant::verify(&newer, &second)), "UnknownRoster");

    // The owner's key was replaced, and the owner was removed.
    let after = |change: &dyn Fn(&mut NextRoster<'_>)| {
        let operator = key(1);
        let mut next = NextRoster::after(third.bytes(), &operator, &operator.public()).unwrap();
        change(&mut next);
        Roster::open(&next.issue().unwrap(), &operator.public()).unwrap()
    };
    let replaced = after(&|next| next.set_owner("alice", &key(5).public()).unwrap());
    assert_eq!(name(OpenGrant::verify(&signed, &replaced)), "OwnerKeyChanged");
    // The owner gets the new key and signs with it. Without a change of the roster, it is just a wrong key.
    let mut rotated = alice(1);
    assert_eq!(rotated.rotate_key(key(5)), key(5).public());
    let rotated = Owner::decode(&rotated.encode().unwrap()).unwrap();
    assert_eq!(rotated.sign_grant(&request, &third).unwrap_err().name(), "WrongOwnerKey");
    let anew = rotated.sign_grant(&request, &replaced).unwrap();
    assert_eq!(name(OpenGrant::verify(&anew, &replaced)), "opened");
    let esp = SecretKey::from_seed(Algorithm::Esp256, &[5; 32]).unwrap();
    let replaced = after(&|next| next.set_owner("alice", &esp.public()).unwrap());
    assert_eq!(name(OpenGrant::verify(&signed, &replaced)), "OwnerKeyChanged");
    let removed = after(&|next| next.remove_owner("alice").unwrap());
    assert_eq!(name(OpenGrant::verify(&signed, &removed)), "UnknownOwner");

    let office = FirstRoster {
        group: "office",
        epoch_ms: 1,
        levels: 4,
        budget: None,
        devices: &[("dev0", key(10).public())],
    };
    let office = Roster::open(&office.issue(&key(1)).unwrap(), &key(1).public()).unwrap();
    assert_eq!(name(OpenGrant::verify(&signed, &office)), "WrongGroup");
}

#[test]
fn an_owner_with_another_suite_signs_grants_too() {
    for algorithm in [Algorithm::Esp256, Algorithm::MlDsa44] {
        let alice = SecretKey::from_seed(algorithm, &[6; 32]).unwrap();
        let [first, ..] = rosters();
        let operator = key(1);
        let mut next = NextRoster::after(first.bytes(), &operator, &operator.public()).unwrap();
        next.set_owner("alice", &alice.public()).unwrap();
        let roster = Roster::open(&next.issue().unwrap(), &operator.public()).unwrap();
        let mut owner = Owner::new(GROUP, "alice", alice).unwrap();
        owner.add(device(0), secret_of(0), &columns()).unwrap();
        let (recipients, devices) = (to(&Identity::generate()), [device(0)]);
        let signed = owner.sign_grant(&request(&devices, &recipients, 1000, 1000), &roster);
        assert_eq!(name(OpenGrant::verify(&signed.unwrap(), &roster)), "opened");
    }
}

/// Another owner of the roster makes a grant for a device that is not its own, and a grant is used for
/// another seal.
#[test]
fn a_key_that_the_device_did_not_use_is_refused_by_name() {
    let [_, _, roster] = rosters();
    let mut bob = Owner::new(GROUP, "bob", key(3)).unwrap();
    bob.add(device(0), secret_of(77), &columns()).unwrap();
    let (recipients, devices) = (to(&Identity::generate()), [device(0)]);
    let signed = bob.sign_grant(&request(&devices, &recipients, 1000, 1009), &roster).unwrap();
    let grant = OpenGrant::verify(&signed, &roster).unwrap();
    let seal = seal(device(0), "temperature", 1004);
    let (_, commitment) = key_of(&secret_of(0), &seal);
    let mut keys = grant.keys();
    assert_eq!(keys.seal_key(&seal, &commitment).unwrap_err(), KeyAccessError::WrongKey);
    let error = keys.seal_key(&seal, &Commitment([0; 16])).unwrap_err();
    assert_eq!(error, KeyAccessError::WrongKey);
}

#[test]
fn signed_objects_of_other_kinds_are_not_grants() {
    let [_, roster, _] = rosters();
    assert_eq!(name(OpenGrant::verify(roster.bytes(), &roster)), "WrongType");
    assert_eq!(name(OpenGrant::verify(b"", &roster)), "Truncated");
}

/// The owner signs payloads that break a rule of spec/grants.md, section 3.1.
#[test]
fn malformed_payloads_are_refused_even_if_the_owner_signed_them() {
    let (owner, [_, roster, _], reader) = (alice(2), rosters(), Identity::generate());
    let (recipients, devices) = (to(&reader), [device(0), device(1)]);
    let signed = owner.sign_grant(&request(&devices, &recipients, 1000, 1002), &roster).unwrap();
    let payload = Sign1::decode(&signed, Typ::Grant).unwrap().payload.to_vec();
    let open = |payload: &[u8]| {
        let (mut header, alice) = ([0; _], key(2));
        let header = protected(alice.algorithm(), Typ::Grant, &mut header).unwrap();
        let mut scratch = vec![0; payload.len() + 100];
        let message = sig_structure(&mut scratch, header, payload).unwrap();
        let signature = alice.signature(message).unwrap();
        let mut out = vec![0; payload.len() + 300];
        let mut writer = moteseal_core::cbor::Writer::new(&mut out);
        Sign1::encode(&mut writer, header, payload, &signature).unwrap();
        name(OpenGrant::verify(writer.written(), &roster))
    };
    assert_eq!(open(&payload), "opened");
    assert_eq!(payload[..2], [0x8a, 1]);
    let with = |place: usize, byte: u8| {
        let mut payload = payload.clone();
        payload[place] = byte;
        payload
    };
    assert_eq!(open(&with(1, 2)), "UnsupportedVersion");
    // Two streams are exchanged: they no longer ascend.
    let half = payload.iter().rposition(|byte| *byte == 0x84).unwrap();
    let [one, other] = [device(0), device(1)]
        .map(|device| payload.windows(8).position(|window| *window == device.0).unwrap() - 2);
    let (start, middle) = (one.min(other), one.max(other));
    assert_eq!((payload[start], payload[middle]), (0x84, 0x84));
    assert!(half >= middle);
    let swapped = [&payload[..start], &payload[middle..], &payload[start..middle]].concat();
    assert_eq!(open(&swapped), "FieldOutOfRange");
    // A node with depth 33, and a prefix that its depth does not have.
    let node = payload.windows(4).position(|window| window[..3] == [0x83, 0x18, 0x1f]).unwrap();
    assert_eq!(open(&with(node + 2, 33)), "FieldOutOfRange");
    // A purpose with a control character.
    let purpose = payload.windows(5).position(|window| window == b"\x64test").unwrap();
    assert_eq!(open(&with(purpose + 2, 7)), "FieldOutOfRange");
}

#[test]
fn files_that_are_not_encrypted_grants_are_refused_by_name() {
    let [_, roster, _] = rosters();
    let reader = Identity::generate();
    let recipients = to(&reader);
    let unlock = Unlock::Identities(vec![reader]);
    let open = |file: &[u8]| name(OpenGrant::open(file, &unlock, &roster, 0));
    assert_eq!(open(b""), "NotEncrypted");
    assert_eq!(open(b"hello"), "NotEncrypted");
    assert_eq!(open(roster.bytes()), "NotEncrypted");
    assert_eq!(open(&encrypt(b"hello", &recipients, true).unwrap()), "Truncated");
    let stranger = to(&Identity::generate());
    assert_eq!(open(&encrypt(b"hello", &stranger, false).unwrap()), "NoMatchingKey");
    assert_eq!(open(&vec![0; MAX_FILE + 1]), "FileTooLong");
    let stanzas = "-> X25519 aaaa\nbbbb\n".repeat(100_000);
    let bomb = format!("age-encryption.org/v1\n{stanzas}--- mac\n");
    assert_eq!(open(bomb.as_bytes()), "FileTooLong");
    // The work factor of scrypt is limited before scrypt runs.
    let passphrase = Unlock::Passphrase(Passphrase::new("x").unwrap());
    for factor in [19, 20, 40] {
        let work = format!(
            "age-encryption.org/v1\n-> scrypt AAAAAAAAAAAAAAAAAAAAAA {factor}\n\
             AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n\
             --- AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n0123456789abcdef0123456789abcdef"
        );
        let error = OpenGrant::open(work.as_bytes(), &passphrase, &roster, 0).unwrap_err();
        assert_eq!(error.name(), "ExcessiveWork", "{factor}");
    }
    let factor = Passphrase::new("x").unwrap().with_work_factor(19).unwrap_err();
    assert_eq!(factor.name(), "WorkFactorOutOfRange");
}

#[test]
fn identity_files_with_ssh_keys_or_plugins_are_refused_with_the_line() {
    let refuse = |text: &str| Unlock::identity_file(text).unwrap_err().to_string();
    assert!(refuse("# a\n-----BEGIN OPENSSH PRIVATE KEY-----\n").contains("line 2"));
    assert!(refuse("AGE-PLUGIN-YUBIKEY-1QQQQ").contains("line 1"));
    assert!(refuse("# nothing\n").contains("1 to 64"));
    assert_eq!(
        moteseal_grant::Recipient::parse("ssh-ed25519 AAAA").unwrap_err().name(),
        "InvalidRecipient"
    );
    assert_eq!(Passphrase::new("").unwrap_err().name(), "EmptyPassphrase");
}
