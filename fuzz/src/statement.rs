//! Fuzzes statements and seals of all versions. What decodes must have exactly one encoding.

use moteseal_core::cbor::Writer;
use moteseal_core::confidential::KeyCommitments;
use moteseal_core::schema::Groups;
use moteseal_seal::{MAX_MESSAGE, Seal, Statement};
use moteseal_verify::write;

use crate::{fixture, grouped};

/// Decodes the bytes as a statement and as a seal.
pub fn run(bytes: &[u8]) {
    if let Ok(statement) = Statement::decode(bytes) {
        let mut out = vec![0; bytes.len() + 64];
        let mut writer = Writer::new(&mut out);
        statement.encode(&mut writer).expect("it is not longer");
        assert_eq!(writer.finish(), bytes, "two encodings of one statement");
        assert_eq!(u64::from(statement.surviving()) >> statement.counters.levels(), 0);
        assert!(statement.groups.is_empty() || statement.groups.contains(0));
        assert!(!statement.is_rfc_tree() || statement.groups.is_empty());
    }
    if let Ok((seal, signature)) = Seal::decode(bytes) {
        assert!(signature.len() <= bytes.len());
        let digest = seal.digest();
        assert_eq!(moteseal_core::Digest::of(&[seal.message(&mut [0; MAX_MESSAGE])]), digest);
        let mut signed = grouped::sealed().iter().flatten().map(|sealed| sealed.seal.digest());
        let is_ours = signed.any(|signed| signed == digest);
        assert!(is_ours || seal.verify(grouped::roster(), signature).is_err(), "never signed");
    }
}

/// Returns statements and seals of versions 1 to 3.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let mut add = |statement: &Statement| {
        let mut out = vec![0; MAX_MESSAGE];
        let mut writer = Writer::new(&mut out);
        statement.encode(&mut writer).unwrap();
        seeds.push(writer.finish().to_vec());
    };
    for history in fixture::sealed() {
        let mut statement = history[1].seal.statement().clone();
        add(&statement);
        statement.keys = KeyCommitments::decode(&[3; 12 + 2 * 16]);
        add(&statement);
        statement.groups = Groups::from_bits(0b11);
        add(&statement);
        statement.keys = None;
        add(&statement);
    }
    for sealed in grouped::sealed().iter().flatten() {
        add(sealed.seal.statement());
    }
    let sealed = grouped::sealed().iter().flatten();
    seeds.extend(sealed.map(|sealed| write::sign1(&sealed.seal, &sealed.signature)));
    seeds
}
