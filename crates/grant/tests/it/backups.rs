//! Backups of an owner's file.

use moteseal_core::EpochNumber;
use moteseal_grant::{Identity, Owner, Passphrase, Recipients, Share, Unlock, join, split};
use proptest::prelude::*;

use crate::scene::{alice, to};

#[test]
fn a_backup_is_restored_with_an_identity_or_a_passphrase() {
    let mut owner = alice(3);
    owner.forget(EpochNumber(1234), None).unwrap();
    let file = owner.encode().unwrap();
    let keeper = Identity::generate();
    let backup = owner.backup(&to(&keeper), true).unwrap();
    let unlock = Unlock::Identities(vec![keeper]);
    assert_eq!(Owner::restore(&backup, &unlock).unwrap().encode().unwrap(), file);

    let passphrase = Passphrase::new("correct horse").unwrap().with_work_factor(4).unwrap();
    let backup = owner.backup(&Recipients::Passphrase(passphrase.clone()), false).unwrap();
    let restored = Owner::restore(&backup, &Unlock::Passphrase(passphrase)).unwrap();
    assert_eq!(restored.encode().unwrap(), file);
    assert_eq!(Owner::restore(&backup, &unlock).unwrap_err().name(), "OtherKeyKind");
}

#[test]
fn any_two_of_three_shares_restore_a_backup() {
    let owner = alice(2);
    let file = owner.encode().unwrap();
    let (backup, shares) = owner.backup_with_shares(true).unwrap();
    let shares = shares.map(|share| Share::parse(&share.to_text()).unwrap());
    let restore = |places: &[usize]| {
        let chosen: Vec<_> = places.iter().map(|place| shares[*place].clone()).collect();
        Owner::restore_with_shares(&backup, &chosen)
    };
    for places in [&[0, 1][..], &[1, 0], &[0, 2], &[2, 1], &[0, 1, 2], &[0, 0, 2]] {
        assert_eq!(restore(places).unwrap().encode().unwrap(), file, "{places:?}");
    }
    for places in [&[][..], &[1], &[2, 2]] {
        assert_eq!(restore(places).unwrap_err().name(), "TooFewShares", "{places:?}");
    }
    let (other_backup, others) = owner.backup_with_shares(false).unwrap();
    let mixed = [shares[0].clone(), others[1].clone()];
    let error = Owner::restore_with_shares(&backup, &mixed).unwrap_err();
    assert_eq!(error.name(), "OtherBackup");
    let error = Owner::restore_with_shares(&other_backup, &shares).unwrap_err();
    assert_eq!(error.name(), "NoMatchingKey");
}

#[test]
fn a_mistyped_share_is_refused() {
    let [share, ..] = split(&[1; 32], [2; 4], &[3; 32]);
    let text = share.to_text();
    assert!(text.starts_with("MOTESEAL-SHARE-1"), "{}", *text);
    assert_eq!(Share::parse(&text.to_lowercase()).unwrap(), share);
    for place in 0..text.len() {
        let wrong = if &text[place..=place] == "Q" { "P" } else { "Q" };
        let altered = format!("{}{wrong}{}", &text[..place], &text[place + 1..]);
        assert_eq!(Share::parse(&altered).unwrap_err().name(), "MalformedShare", "{altered}");
    }
    assert!(!format!("{share:?}").contains("[2, 2, 2, 2, 2"));
}

#[test]
fn three_shares_that_contradict_each_other_are_refused() {
    let shares = split(&[1; 32], [2; 4], &[3; 32]);
    let [_, _, other] = split(&[9; 32], [2; 4], &[3; 32]);
    let mixed = [shares[0].clone(), shares[1].clone(), other];
    assert_eq!(join(&mixed).unwrap_err().name(), "ShareMismatch");
}

proptest! {
    #[test]
    fn shares_restore_every_secret(
        secret in any::<[u8; 32]>(),
        slope in any::<[u8; 32]>(),
        left_out in 0_usize..3,
    ) {
        let mut shares = split(&secret, [0; 4], &slope).to_vec();
        shares.remove(left_out);
        prop_assert_eq!(*join(&shares).unwrap(), secret);
    }
}
