//! Measures the encryption of columns: the keys of an epoch and of a seal, and the cells of events.

#![no_std]
#![no_main]

use core::hint::black_box;

use moteseal_core::confidential::{
    EncryptedColumns, KeyCommitments, KeyStream, Nonce, Path, StreamSecret,
};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_core::schema::Schema;
use moteseal_footprint::{Meter, Of, failed};

/// The length of an event, in bytes.
const EVENT: usize = 4;
/// The maximum number of events.
const EVENTS: usize = 1024;
/// The number of consecutive epochs of which the mean is taken.
const EPOCHS: u64 = 256;
/// The events of a schema, and the names of its work.
const SCHEMAS: [&str; 3] = ["one", "two", "aes"];

/// Encrypts all events with the first columns of a schema, as a mote does: the key streams are those of
/// the schema.
fn encrypt(columns: &EncryptedColumns, streams: &mut [KeyStream], events: &mut [u8]) {
    for (seq, event) in (0..).zip(events.as_chunks_mut::<EVENT>().0) {
        if columns.encrypt_checked(Sequence(seq), event, streams).is_err() {
            failed("encrypt");
        }
    }
}

#[moteseal_board::entry]
fn main() -> ! {
    let (mut meter, mut input) = Meter::start();
    let (device, secret) = (DeviceId(input.fixed()), input.fixed());
    let secret = StreamSecret::new(secret, EpochNumber(0));
    let epoch = EpochNumber(u64::from_be_bytes(input.fixed()));
    let (index, nonce) = (SealIndex(7), Nonce(input.fixed()));
    let encoded = SCHEMAS.map(|_| input.item());
    let given = input.item();
    let Some(events) = given.get(..EVENT * EVENTS) else { failed("events") };
    meter.number("events", EVENTS as u64);
    meter.number("epochs", EPOCHS);
    meter.bytes("path", size_of::<Path>());
    meter.bytes("stream", size_of::<KeyStream>());
    meter.bytes("seal", size_of::<EncryptedColumns>() + size_of::<KeyCommitments>());

    let mut ciphertext = [0; EVENT * EVENTS];
    for (name, encoded) in SCHEMAS.into_iter().zip(encoded) {
        let Ok(schema) = Schema::decode(encoded) else { failed("schema") };
        let columns = EncryptedColumns::of(&schema);
        let stream = |place: usize| {
            let (field, column) = schema.encrypted_columns().nth(place)?;
            let key = secret.column(column).epoch_key(epoch).ok()?;
            Some(KeyStream::new(key.seal_key(device, index, field.suite?, &nonce)))
        };
        for of in [Of::Instructions, Of::Stack] {
            ciphertext.copy_from_slice(events);
            match (stream(0), stream(1)) {
                (Some(one), Some(two)) => {
                    let mut streams = [one, two];
                    meter.once(of, name, &mut || {
                        encrypt(&columns, &mut streams, &mut ciphertext);
                    });
                }
                (Some(one), None) => {
                    let mut streams = [one];
                    meter.once(of, name, &mut || {
                        encrypt(&columns, &mut streams, &mut ciphertext);
                    });
                }
                _ => failed("keys"),
            }
        }
        meter.result(name, &Digest::of(&[&ciphertext]).0);
    }

    let Ok(schema) = Schema::decode(encoded[0]) else { failed("schema") };
    let Some((field, column)) = schema.encrypted_columns().next() else { failed("column") };
    let Some(suite) = field.suite else { failed("suite") };
    let root = secret.column(column);
    let mut whole = None;
    meter.measure("root", &mut || whole = black_box(&root).epoch_key(epoch).ok());
    let Ok(start) = Path::new(&root, epoch) else { failed("path") };
    let mut path = start.clone();
    for of in [Of::Instructions, Of::Stack] {
        path = start.clone();
        meter.once(of, "advance", &mut || {
            for next in 1..=EPOCHS {
                if path.advance(EpochNumber(epoch.0 + next)).is_err() {
                    failed("advance");
                }
            }
        });
    }
    let key = path.epoch_key();
    let mut commitment = None;
    meter.measure("keys", &mut || {
        commitment = Some(key.seal_key(device, index, suite, &nonce).commitment());
    });
    let Some(commitment) = commitment else { failed("commitment") };
    meter.result("commitment", &commitment.0);
    meter.end()
}
