//! Fuzzes signed objects. An object that decodes must have exactly one encoding, and only an object
//! that was signed may verify.

use moteseal_core::cbor::Writer;
use moteseal_core::cose::{Sign1, Typ};
use moteseal_core::identity::Certificate;
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
    for typ in [Typ::Seal, Typ::Event, Typ::Certificate, Typ::Roster, Typ::Round, Typ::Manifest] {
        if let Ok(object) = Sign1::decode(bytes, typ) {
            let mut scratch = vec![0; bytes.len() + 64];
            object.message(&mut scratch).expect("the documented scratch is enough");
            let _ = object.digest();
        }
    }
    if Certificate::open(bytes, &fixture::operator().public()).is_ok() {
        assert!(seeds().iter().any(|seed| seed == bytes), "a certificate that was never issued");
    }
    let event = UrgentEvent::open(bytes, fixture::directory(), &mut vec![0; bytes.len() + 64]);
    assert!(event.is_err(), "an urgent event that was never signed");
}

/// Returns the complete signed object of each seal, and a certificate.
pub fn seeds() -> Vec<Vec<u8>> {
    let object = |sealed: &fixture::Sealed| {
        let mut out = [0; MAX_MESSAGE + 128];
        let mut writer = Writer::new(&mut out);
        sealed.seal.encode(&mut writer, &sealed.signature).unwrap();
        writer.finish().to_vec()
    };
    let mut seeds: Vec<_> = fixture::sealed().iter().flatten().map(object).collect();
    seeds.extend(["star", "tree"].map(fixture::certificate));
    seeds
}
