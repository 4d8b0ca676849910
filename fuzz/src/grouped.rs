//! Seals with column groups: a star and a tree, and what each of their rows must show. The fuzz targets
//! compare their results with it.

use std::sync::OnceLock;

use moteseal_core::confidential::KeyCommitments;
use moteseal_core::record::{DeviceId, Scheme};
use moteseal_core::schema::Groups;
use moteseal_fixtures::world::{self, Device, Epoch, Pick, Sealed};
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::Limits;
use moteseal_verify::{Event, ReadError, Roster, StreamReader};

/// The columns: a plain one, two of group 1, of which one is a text, and one of group 5.
const COLUMNS: [&str; 4] = ["t:Cel:i16/100", "p::u8!@1", "note::text9!@1", "q::u32!aes@5"];

/// The groups of the schema, as bits.
pub const GROUPS: u8 = 0b10_0011;

/// A row that a part shows: device, sequence number, shown groups, record.
pub type ShownRow = (DeviceId, u64, Groups, Vec<u8>);

/// The cells of a row: its fixed cells and its text, each with its group.
type Cells = [(u8, Vec<u8>); 4];

/// Returns the roster of the devices.
pub fn roster() -> &'static Roster {
    static ROSTER: OnceLock<Roster> = OnceLock::new();
    ROSTER.get_or_init(|| {
        let operator = world::operator();
        Roster::open(&world::roster(world::BUDGETED), &operator.public()).unwrap()
    })
}

/// Returns the cells of a row of the device with number `device`.
fn cells(device: u8, seq: u8) -> Cells {
    let text = &b"ciphertext"[..usize::from(seq % 8)];
    [
        (0, vec![0x40 | device, seq]),
        (1, vec![0x80 | seq]),
        (5, vec![device, 0xff, seq, 0xee]),
        (1, [&[text.len() as u8][..], text].concat()),
    ]
}

fn record(device: u8, seq: u8, shown: Groups) -> Vec<u8> {
    let shown = cells(device, seq).into_iter().filter(|(group, _)| shown.contains(*group));
    shown.flat_map(|(_, cell)| cell).collect()
}

/// The seals of the two devices: the first seals stars, the second trees.
pub fn sealed() -> &'static [Vec<Sealed>; 2] {
    static SEALED: OnceLock<[Vec<Sealed>; 2]> = OnceLock::new();
    SEALED.get_or_init(|| {
        let names = [("north", Scheme::Star), ("south", Scheme::Tree)];
        [0, 1].map(|number: u8| {
            let (name, scheme) = names[usize::from(number)];
            let mut device = Device::new(roster(), name, &world::schema(&COLUMNS));
            (0..2_u8)
                .map(|epoch| {
                    let mut input = Epoch::new(scheme, 7 + u64::from(epoch), 0);
                    let all = Groups::from_bits(GROUPS);
                    let first = 6 * epoch;
                    let rows = (first..first + 6 + epoch).map(|seq| record(number, seq, all));
                    input.records = rows.collect();
                    input.keys = KeyCommitments::decode(&[9 + epoch; 12 + 3 * 16]);
                    device.seal(&input)
                })
                .collect()
        })
    })
}

/// Returns the stream of both seals of a device. All groups are shown.
pub fn stream(device: usize, pick: &Pick) -> Vec<u8> {
    world::stream(&world::schema(&COLUMNS), &sealed()[device], pick)
}

/// Returns streams of both devices, with several selections, that show all groups.
pub fn streams() -> Vec<Vec<u8>> {
    let mut streams = Vec::new();
    for device in [0, 1] {
        for mask in [0xff, 0xf9, 0] {
            streams.push(stream(device, &Pick::Levels(mask)));
        }
    }
    streams.push(stream(1, &Pick::Events(vec![0, 2, 5])));
    streams
}

/// Verifies a stream of any bytes and returns its rows. Every row must be one that was sealed, with the
/// cells of the shown groups.
///
/// # Errors
/// [`ReadError`]: the stream does not verify.
pub fn read(stream: &[u8]) -> Result<Vec<ShownRow>, ReadError> {
    let mut reader = StreamReader::new(roster(), Limits { max_events: 1 << 12 });
    let mut rows = Vec::new();
    let mut visit = |event: Event<'_>| {
        if let Event::Proven(proven) = event {
            let statement = proven.seal.statement();
            let number = sealed().iter().position(|seals| {
                seals.iter().any(|sealed| sealed.seal.digest() == proven.seal.digest())
            });
            let number = number.expect("a seal that was never signed");
            let (index, shown) = (statement.index.0 as u8, proven.schema.shown());
            assert!(shown.contains(0) && shown.is_subset(Groups::from_bits(GROUPS)));
            proven.sample.for_each(&Scalar, |seq, _, row| {
                let expected = record(number as u8, 6 * index + seq.0 as u8, shown);
                assert_eq!(row, expected, "a row that was never sealed");
                rows.push((statement.device, u64::from(index) << 32 | seq.0, shown, row.to_vec()));
            });
        }
        Ok::<_, ReadError>(())
    };
    reader.feed(stream, &mut visit)?;
    reader.finish(&mut visit)?;
    Ok(rows)
}
