//! The input of the program that encrypts columns, and its expected results.

use moteseal_core::confidential::{EncryptedColumns, KeyStream, Nonce, StreamSecret};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};

use super::inputs::List;
use super::program::Program;

const DEVICE: DeviceId = DeviceId(*b"device 1");
const INDEX: SealIndex = SealIndex(7);
const SECRET: [u8; 32] = [11; 32];
/// The first epoch: as many bits of the offset are 0 as are 1.
const EPOCH: EpochNumber = EpochNumber(0x00ff_ff00);
const NONCE: Nonce = Nonce([12; 12]);
/// The schemas, by the names of the results: all have records of 4 bytes.
const SCHEMAS: [(&str, &[&str]); 3] =
    [("one", &["a::u32!"]), ("two", &["a::i16!", "b::u16!"]), ("aes", &["a::u32!aes"])];

fn encoded(columns: &[&str]) -> Vec<u8> {
    let fields: Vec<_> = columns.iter().map(|column| Field::parse(column).unwrap()).collect();
    let mut buffer = [0; MAX_SCHEMA];
    Schema::encode(&fields, &mut buffer).unwrap().as_bytes().to_vec()
}

/// Returns the schema of events of 4 bytes whose halves are in two column groups.
pub(crate) fn grouped() -> Vec<u8> {
    encoded(&["a::i16", "b::u16!@1"])
}

/// Returns the input for events of 4 bytes.
pub(crate) fn input(events: &[u8]) -> Vec<u8> {
    let start = List::default().item(&DEVICE.0).item(&SECRET).item(&EPOCH.0.to_be_bytes());
    let start = start.item(&NONCE.0);
    let list = SCHEMAS.iter().fold(start, |list, (_, columns)| list.item(&encoded(columns)));
    list.item(events).0
}

/// Checks that the program has encrypted the events as the host does.
pub(crate) fn check(run: &Program, events: &[u8]) {
    let secret = StreamSecret::new(SECRET, EpochNumber(0));
    let key = |schema: &Schema<'_>, place: usize, epoch: EpochNumber| {
        let (field, column) = schema.encrypted_columns().nth(place).unwrap();
        let key = secret.column(column).epoch_key(epoch).unwrap();
        key.seal_key(DEVICE, INDEX, field.suite.unwrap(), &NONCE)
    };
    for (name, columns) in SCHEMAS {
        let bytes = encoded(columns);
        let schema = Schema::decode(&bytes).unwrap();
        let mut streams: Vec<_> =
            (0..columns.len()).map(|place| KeyStream::new(key(&schema, place, EPOCH))).collect();
        let columns = EncryptedColumns::of(&schema);
        let mut ciphertext = events.to_vec();
        for (seq, event) in (0..).zip(ciphertext.chunks_mut(4)) {
            columns.encrypt(Sequence(seq), event, &mut streams).unwrap();
        }
        run.expect(name, &Digest::of(&[&ciphertext]).0);
    }
    // The program has moved on by 256 epochs.
    let bytes = encoded(SCHEMAS[0].1);
    let last = key(&Schema::decode(&bytes).unwrap(), 0, EpochNumber(EPOCH.0 + 256));
    run.expect("commitment", &last.commitment().0);
}
