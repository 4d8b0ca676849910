//! Fuzzes grants, encrypted files, and the texts of identities, recipients, stream secrets and shares.
//! Only a grant that its owner signed may open, and what it opens must be consistent. The first byte of
//! an input selects the parser.

use std::sync::OnceLock;

use moteseal_core::confidential::{ColumnId, StreamSecret};
use moteseal_core::cose::{Sign1, Typ, sig_structure};
use moteseal_core::identity::protected;
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
use moteseal_grant::{
    GrantRequest, Identity, MAX_COLUMNS, MAX_PURPOSE, OpenError, OpenGrant, Owner, Recipient,
    Recipients, Share, Unlock, decode_stream_secret, encode_stream_secret, join, needs_passphrase,
    split,
};
use moteseal_verify::Roster;
use moteseal_verify::issue::{FirstRoster, NextRoster};

/// An X25519 identity whose secret is 32 bytes of `B`.
const IDENTITY: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";

/// The text `no grant`, encrypted for [`IDENTITY`] by age.
const ENCRYPTED: &str = "-----BEGIN AGE ENCRYPTED FILE-----
YWdlLWVuY3J5cHRpb24ub3JnL3YxCi0+IFgyNTUxOSBwN1lZOU1JcVpVZ0JnUGRw
cHNjM2xndTQyQjZQbE5QQzNreVpSeHZaRVZnCnlJNGZhbEI1RmQ2SHNGaFBCZWd4
Ym5oWkxlTjJhRXc2SDlRRW5La05YQ2cKLS0tIERwNEwwNStMWW02bkdPM3kyejFm
dmRvRjNZcmlxMmd4K3YvS2t0L0RPQ2cKvqmUWM+ssZD8hs9SIR1FuVtyNVrqILGF
HmoUu81tPYbPEFXhHAZgYw==
-----END AGE ENCRYPTED FILE-----
";

fn key() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[3; 32]).unwrap()
}

fn device() -> DeviceId {
    DeviceId::of("home", "thermometer")
}

/// Returns the columns of the device.
fn columns() -> [(ColumnId, &'static str); 2] {
    [(ColumnId([4; 16]), "temperature"), (ColumnId([5; 16]), "note")]
}

fn roster() -> &'static Roster {
    static ROSTER: OnceLock<Roster> = OnceLock::new();
    ROSTER.get_or_init(|| {
        let operator = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap();
        let first = FirstRoster {
            group: "home",
            epoch_ms: 3_600_000,
            levels: 16,
            budget: None,
            devices: &[("thermometer", key().public())],
        };
        let first = first.issue(&operator).unwrap();
        let mut next = NextRoster::after(&first, &operator, &operator.public()).unwrap();
        next.set_owner("alice", &key().public()).unwrap();
        Roster::open(&next.issue().unwrap(), &operator.public()).unwrap()
    })
}

/// Returns the grants that the owner has signed.
fn signed() -> &'static [Vec<u8>] {
    static SIGNED: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    SIGNED.get_or_init(|| {
        let mut owner = Owner::new("home", "alice", key()).unwrap();
        owner.add(device(), StreamSecret::new([6; 32], EpochNumber(1000)), &columns()).unwrap();
        owner.add(device(), StreamSecret::new([7; 32], EpochNumber(2000)), &columns()).unwrap();
        let recipient = Identity::parse(IDENTITY).unwrap().recipient().clone();
        let recipients = Recipients::Keys(vec![recipient]);
        let request = GrantRequest {
            devices: &[device()],
            columns: None,
            epochs: EpochNumber(1010)..=EpochNumber(2019),
            recipients: &recipients,
            not_after_ms: Some(1 << 41),
            purpose: "heating study",
        };
        let short = GrantRequest {
            columns: Some(&["note"]),
            epochs: EpochNumber(1023)..=EpochNumber(1024),
            not_after_ms: None,
            purpose: "",
            ..request.clone()
        };
        [request, short]
            .map(|request| owner.sign_grant(&request, roster()).unwrap().to_vec())
            .to_vec()
    })
}

/// Parses the bytes as what the first byte selects.
pub fn run(bytes: &[u8]) {
    let Some((&kind, rest)) = bytes.split_first() else { return };
    match kind % 4 {
        0 => payload(rest),
        1 => {
            if OpenGrant::verify(rest, roster()).is_ok() {
                assert!(
                    signed().iter().any(|grant| grant == rest),
                    "a grant that was never signed"
                );
            }
        }
        2 => file(rest),
        _ => texts(rest),
    }
}

/// Signs the bytes as the payload of a grant, and opens it.
fn payload(payload: &[u8]) {
    let mut header = [0; _];
    let header = protected(Algorithm::Ed25519, Typ::Grant, &mut header).unwrap();
    let mut scratch = vec![0; payload.len() + 128];
    let signature = key().signature(sig_structure(&mut scratch, header, payload).unwrap()).unwrap();
    let mut out = vec![0; payload.len() + 256];
    let mut writer = moteseal_core::cbor::Writer::new(&mut out);
    Sign1::encode(&mut writer, header, payload, &signature).unwrap();
    let Ok(grant) = OpenGrant::verify(writer.finish(), roster()) else { return };
    let contents = grant.contents();
    assert_eq!(contents.owner, "alice");
    assert!(contents.purpose.len() <= MAX_PURPOSE && !contents.columns.is_empty());
    let is_sorted = contents.columns.is_sorted_by(|one, other| {
        (one.device, one.generation, one.column) < (other.device, other.generation, other.column)
    });
    assert!(is_sorted, "a column is granted twice");
    for column in &contents.columns {
        assert!(column.nodes > 0);
        assert!(column.is_outdated || !column.epochs.is_empty(), "nodes open epochs");
        let of_stream = contents
            .columns
            .iter()
            .filter(|other| (other.device, other.generation) == (column.device, column.generation));
        assert!(of_stream.count() <= MAX_COLUMNS);
        let mut before = None;
        for &(first, last) in &column.epochs {
            assert!(first <= last && before < Some(first), "ranges of epochs out of order");
            before = Some(last);
            for epoch in [first, last] {
                assert!(grant.covers(column.device, column.column, epoch));
            }
        }
    }
}

/// Decrypts a file, which no other input than the seed may pass.
fn file(file: &[u8]) {
    let unlock = Unlock::identity_file(IDENTITY).unwrap();
    let needs_passphrase = needs_passphrase(file);
    match OpenGrant::open(file, &unlock, roster(), 0) {
        Err(OpenError::Envelope(error)) => {
            assert!(needs_passphrase.is_ok() || error.name() != "OtherKeyKind");
        }
        // The file was decrypted. Its content is not a grant.
        Err(_) => assert_eq!(needs_passphrase, Ok(false)),
        Ok(_) => panic!("a grant that was never encrypted"),
    }
    assert!(Owner::restore(file, &unlock).is_err());
}

/// Parses the texts of identities, recipients, stream secrets and shares.
fn texts(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    let _ = Unlock::identity_file(text);
    if let Ok(recipient) = Recipient::parse(text) {
        let again = Recipient::parse(recipient.as_str()).expect("it is read back");
        assert_eq!(again.as_str(), recipient.as_str());
    }
    if let Ok((device, secret)) = decode_stream_secret(text) {
        let encoded = encode_stream_secret(device, &secret);
        let again = decode_stream_secret(&encoded).expect("it is read back");
        assert_eq!(again, (device, secret));
    }
    let shares: Vec<Share> = text.lines().filter_map(|line| Share::parse(line).ok()).collect();
    for share in &shares {
        assert_eq!(Share::parse(&share.to_text()).as_ref(), Ok(share), "it is read back");
    }
    if let Ok(secret) = join(&shares) {
        let reversed: Vec<Share> = shares.iter().rev().cloned().collect();
        assert_eq!(join(&reversed).as_deref(), Ok(&*secret), "the order does not matter");
    }
}

/// Returns payloads, grants, an encrypted file, and texts.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for grant in signed() {
        let payload = Sign1::decode(grant, Typ::Grant).unwrap().payload;
        seeds.push([&[0], payload].concat());
        seeds.push([&[1], &grant[..]].concat());
    }
    seeds.push([&[2], ENCRYPTED.as_bytes()].concat());
    let identity = Identity::parse(IDENTITY).unwrap();
    let secret = StreamSecret::new([6; 32], EpochNumber(1000));
    let shares = split(&[1; 32], [2; 4], &[3; 32]).map(|share| share.to_text().to_string());
    let texts = [
        IDENTITY.to_owned(),
        format!("# a comment\n\n{IDENTITY}\n"),
        identity.recipient().as_str().to_owned(),
        encode_stream_secret(device(), &secret).to_string(),
        shares[..2].join("\n"),
        shares.join("\n"),
        shares[0].to_lowercase(),
    ];
    seeds.extend(texts.map(|text| [&[3], text.as_bytes()].concat()));
    seeds
}
