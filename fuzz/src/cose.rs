//! Fuzzes signed objects. An object that decodes must have exactly one encoding, and only an object
//! that was signed may verify.

use moteseal_core::cbor::Writer;
use moteseal_core::cose::{Sign1, Typ};
use moteseal_core::identity::Certificate;
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_core::signed_time::{MAX_TIME_STATEMENT, TimeChallenge, TimeSigner, TimeStatement};
use moteseal_seal::{MAX_MESSAGE, Seal, UrgentEvent};

use crate::fixture;

/// Decodes the bytes as each kind of object.
pub fn run(bytes: &[u8]) {
    if let Ok((seal, signature)) = Seal::decode(bytes) {
        let mut out = vec![0; MAX_MESSAGE + signature.len() + 64];
        let mut writer = Writer::new(&mut out);
        seal.encode(&mut writer, signature).expect("a decoded seal can be encoded");
        assert_eq!(&*writer.finish(), bytes, "two encodings of one seal");

        let ours =
            fixture::sealed().iter().flatten().any(|sealed| sealed.seal.digest() == seal.digest());
        assert!(
            seal.verify(fixture::directory(), signature).is_err() || ours,
            "a seal that was never signed verifies"
        );
    }
    for typ in
        [Typ::Seal, Typ::Event, Typ::Certificate, Typ::Roster, Typ::Round, Typ::Manifest, Typ::Time]
    {
        if let Ok(object) = Sign1::decode(bytes, typ) {
            let mut scratch = vec![0; bytes.len() + 64];
            object.message(&mut scratch).expect("the documented scratch is enough");
            let _ = object.digest();
        }
    }
    if Certificate::open(bytes, &fixture::operator().public()).is_ok() {
        assert!(seeds().iter().any(|seed| seed == bytes), "a certificate that was never issued");
    }
    let to = (STATEMENT.group, STATEMENT.device);
    let signer = fixture::operator().public();
    if TimeStatement::open(bytes, to, STATEMENT.challenge, |_| Some(&signer)).is_ok() {
        assert!(seeds().iter().any(|seed| seed == bytes), "a time that was never signed");
    }
    let event = UrgentEvent::open(bytes, fixture::directory(), &mut vec![0; bytes.len() + 64]);
    assert!(event.is_err(), "an urgent event that was never signed");
}

/// A time statement that was signed.
const STATEMENT: TimeStatement = TimeStatement {
    group: GroupId([1; 8]),
    device: DeviceId([2; 8]),
    challenge: TimeChallenge([3; 16]),
    unix_ms: 1_700_000_000_000,
};

/// Returns the complete signed object of each seal, certificates, and a time statement.
pub fn seeds() -> Vec<Vec<u8>> {
    let object = |sealed: &fixture::Sealed| {
        let mut out = [0; MAX_MESSAGE + 128];
        let mut writer = Writer::new(&mut out);
        sealed.seal.encode(&mut writer, &sealed.signature).unwrap();
        writer.finish().to_vec()
    };
    let mut seeds: Vec<_> = fixture::sealed().iter().flatten().map(object).collect();
    seeds.extend(["star", "tree"].map(fixture::certificate));
    let mut out = [0; MAX_TIME_STATEMENT];
    let time = STATEMENT.issue(TimeSigner::Operator, &fixture::operator(), &mut out).unwrap();
    seeds.push(time.to_vec());
    seeds
}
