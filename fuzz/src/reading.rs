//! Fuzzes signed readings: multipart messages, JSON texts from which the signature is cut, and the
//! representations in them. The first byte of an input selects the content format.

use moteseal_core::Digest;
use moteseal_core::cbor::Writer;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::Signer as _;
use moteseal_seal::{READING_OVERHEAD, ReadingFormat, SignedReading};
use moteseal_verify::reading::{MULTIPART, Pack, Reading, join, multipart};

use crate::fixture;

/// The content formats of responses.
const FORMATS: [u16; 4] = [MULTIPART, 50, 110, 112];

fn device() -> DeviceId {
    DeviceId::of("home", "star")
}

/// Verifies the bytes as a response, and decodes them as each representation.
pub fn run(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let format = FORMATS[usize::from(first) % FORMATS.len()];
    if let Ok(reading) = Reading::open(format, rest, fixture::directory()) {
        let signed = seeds().iter().any(|seed| seed[1..] == *rest);
        assert!(signed, "a reading that was never signed verifies: {reading:?}");
    }
    for format in ReadingFormat::ALL {
        let Ok(pack) = Pack::decode(format, rest, device()) else { continue };
        assert_eq!(pack.encode(format), rest, "two encodings of one reading");
        // Units are not in JSON objects, and bytes are texts there. The two packs are equivalent.
        if format != ReadingFormat::Json {
            let cbor = pack.encode(ReadingFormat::SenmlCbor);
            let read = Pack::decode(ReadingFormat::SenmlCbor, &cbor, device());
            let read = read.expect("every pack can be encoded in CBOR");
            assert_eq!(read.values.len(), pack.values.len());
        }
    }
}

/// Returns a response of each form, and packs with all kinds of values.
pub fn seeds() -> Vec<Vec<u8>> {
    let columns = ["t:Cel:i16/100", "v:mV:u16/3", "x::f64", "at::time", "signature::u8"];
    let fields = columns.map(|column| Field::parse(column).unwrap());
    let mut buffer = [0; MAX_SCHEMA];
    let schema = Schema::encode(&fields, &mut buffer).unwrap();
    let record =
        [[0xfe, 0xd4, 0x01, 0x00].as_slice(), &1e-300_f64.to_be_bytes(), &[0, 0, 0x12, 0x34, 7]]
            .concat();
    let unix_ms = 1_700_000_000_250;
    let pack = Pack::new(device(), unix_ms, (&schema, &record), None).unwrap();
    let opaque = Pack::new(device(), unix_ms, (&Schema::OPAQUE, b"\xff\0"), None).unwrap();
    let mut seeds = Vec::new();
    for (pack, format) in [&pack, &opaque]
        .into_iter()
        .flat_map(|pack| ReadingFormat::ALL.map(|format| (pack, format)))
    {
        let representation = pack.encode(format);
        let object = signed(format, &representation);
        let (first, response) = match format {
            ReadingFormat::Json => (1, join(&representation, &object).unwrap()),
            format => (0, multipart(format, &representation, &object)),
        };
        seeds.push([&[first], &response[..]].concat());
        seeds.push([&[2], &representation[..]].concat());
    }
    seeds
}

fn signed(format: ReadingFormat, representation: &[u8]) -> Vec<u8> {
    let key = fixture::key("star");
    let reading = SignedReading {
        group: fixture::directory().group(),
        roster: Digest([3; 32]),
        device: device(),
        index: SealIndex(1),
        epoch: EpochNumber(2),
        seq: Sequence(3),
        format,
        representation,
    };
    let mut message = vec![0; representation.len() + READING_OVERHEAD + 64];
    let message = reading.message(key.algorithm(), &mut message).unwrap();
    let signature = key.signature(message).unwrap();
    let mut out = vec![0; signature.len() + READING_OVERHEAD];
    let mut out = Writer::new(&mut out);
    reading.encode(&mut out, key.algorithm(), &signature).unwrap();
    out.finish().to_vec()
}
