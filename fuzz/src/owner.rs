//! Fuzzes owners' files. A file that decodes must have exactly one encoding, and its owner must be able to
//! forget and to encode again.

use moteseal_core::Digest;
use moteseal_core::cbor::Writer;
use moteseal_core::confidential::{ColumnId, StreamSecret};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_grant::Owner;

/// Decodes the bytes as a file, and as the content of a file with the right check value.
pub fn run(bytes: &[u8]) {
    decode(bytes);
    decode(&file(bytes));
}

/// Returns the file with this content, following the text of spec/grants.md, section 2.1.
fn file(content: &[u8]) -> Vec<u8> {
    let check = Digest::of(&[b"moteseal/1/owner-file\0", content]);
    let mut out = vec![0; content.len() + 64];
    let mut writer = Writer::new(&mut out);
    writer.array(3).unwrap().uint(1_u8).unwrap().bytes(content).unwrap();
    writer.bytes(&check.0).unwrap();
    writer.finish().to_vec()
}

fn decode(bytes: &[u8]) {
    let Ok(mut owner) = Owner::decode(bytes) else { return };
    let again = owner.encode().expect("what was decoded can be encoded");
    // The key is any encoding of PKCS #8 that is accepted, and is written in one of them.
    let once_more = Owner::decode(&again).expect("an encoding is read back");
    assert_eq!(*once_more.encode().expect("it has been encoded"), *again, "two encodings");
    assert_eq!(once_more.streams().len(), owner.streams().len());
    for stream in owner.streams() {
        assert!(stream.base() <= stream.last());
        assert!(stream.forgotten().is_none_or(|first| stream.base() < first));
        assert!(owner.streams_of(stream.device()).len() <= owner.streams().len());
    }
    let devices: Vec<DeviceId> = owner.streams().iter().map(|stream| stream.device()).collect();
    let epoch =
        owner.streams().first().map(|stream| EpochNumber(stream.base().0.saturating_add(9)));
    if let Some(epoch) = epoch
        && owner.forget(epoch, Some(&devices[..1])).is_ok()
    {
        let forgotten = owner.encode().expect("it fits");
        let mut owner = Owner::decode(&forgotten).expect("it is read back");
        assert_eq!(owner.forget(epoch, Some(&devices[..1])), Ok(0), "it was forgotten before");
    }
}

/// Returns files and their contents: without streams, with two generations, with forgotten keys.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for algorithm in Algorithm::ALL {
        let key = SecretKey::from_seed(algorithm, &[3; 32]).unwrap();
        let mut owner = Owner::new("home", "alice", key).unwrap();
        let mut add = |owner: &Owner| {
            let file = owner.encode().unwrap().to_vec();
            let mut reader = moteseal_core::cbor::Reader::new(&file).unwrap();
            reader.array(3).unwrap();
            assert_eq!(reader.u64(), Ok(1));
            seeds.push(reader.bytes().unwrap().to_vec());
            seeds.push(file);
        };
        add(&owner);
        let columns = [(ColumnId([4; 16]), "temperature"), (ColumnId([5; 16]), "note")];
        for (device, secret, base) in [(1, 7, 100), (1, 8, 200), (2, 9, 0)] {
            let secret = StreamSecret::new([secret; 32], EpochNumber(base));
            owner.add(DeviceId([device; 8]), secret, &columns).unwrap();
        }
        owner.add_columns(DeviceId([2; 8]), &[(ColumnId([6; 16]), "later")]).unwrap();
        add(&owner);
        owner.forget(EpochNumber(150), None).unwrap();
        owner.add_columns(DeviceId([1; 8]), &[(ColumnId([6; 16]), "later")]).unwrap();
        add(&owner);
    }
    seeds
}
