//! The demo's readings, from eight TelosB motes (data/telosb). Each mote has a reading every 5
//! seconds.

use moteseal_device::import::{Clock, Delimiter};
use moteseal_device::{Import, Recording};

use moteseal_terminal::failure::{Exit, Failure};

/// 2010-05-09T09:00:00Z. The day is from the data set's authors; the hour is assumed.
const START_MS: u64 = 1_273_395_600_000;
/// The interval between readings, from the data set's description.
const EVERY_MS: u64 = 5_000;
/// The length of an epoch: 15 minutes, which is 180 readings of each mote.
pub(crate) const EPOCH_MS: u64 = 900_000;
/// The columns that are sealed, with 4 bytes per reading.
pub(crate) const COLUMNS: [&str; 2] = ["temperature:Cel:i16/100", "humidity:%RH:u16/100"];

const FILES: [(&str, &str); 8] = [
    ("mote-1", include_str!("../../../data/telosb/singlehop_indoor_moteid1_data.txt")),
    ("mote-2", include_str!("../../../data/telosb/singlehop_indoor_moteid2_data.txt")),
    ("mote-3", include_str!("../../../data/telosb/singlehop_outdoor_moteid3_data.txt")),
    ("mote-4", include_str!("../../../data/telosb/singlehop_outdoor_moteid4_data.txt")),
    ("mote-5", include_str!("../../../data/telosb/multihop_outdoor_moteid1_data.txt")),
    ("mote-6", include_str!("../../../data/telosb/multihop_outdoor_moteid2_data.txt")),
    ("mote-7", include_str!("../../../data/telosb/multihop_indoor_moteid3_data.txt")),
    ("mote-8", include_str!("../../../data/telosb/multihop_indoor_moteid4_data.txt")),
];

/// One mote's readings: the numbers of the raw file, and the recording that is sealed.
#[derive(Debug)]
pub(crate) struct Mote {
    pub name: &'static str,
    /// Temperature and humidity of each reading.
    pub raw: Vec<[f64; 2]>,
    pub recording: Recording,
}

/// Returns the readings of all motes, at most the first `epochs` epochs of each.
pub(crate) fn motes(epochs: Option<u64>) -> Result<Vec<Mote>, Failure> {
    FILES.iter().map(|(name, text)| mote(name, text, epochs)).collect()
}

fn mote(name: &'static str, text: &str, epochs: Option<u64>) -> Result<Mote, Failure> {
    let most = epochs.map_or(usize::MAX, |epochs| {
        usize::try_from(epochs * EPOCH_MS / EVERY_MS).unwrap_or(usize::MAX)
    });
    let mut table = "temperature,humidity\n".to_owned();
    let mut raw = Vec::new();
    // The columns are reading, mote, humidity, temperature, label.
    for line in text.lines().skip(1).take(most) {
        let mut words = line.split_whitespace().skip(2);
        let (Some(humidity), Some(temperature)) = (words.next(), words.next()) else { continue };
        table.extend([temperature, ",", humidity, "\n"]);
        raw.push([temperature, humidity].map(|word| word.parse().unwrap_or(f64::NAN)));
    }
    let import = Import {
        columns: COLUMNS.map(str::to_owned).to_vec(),
        opaque: None,
        clock: Clock::Every { start_ms: START_MS, every_ms: EVERY_MS },
        keep_time: None,
        delimiter: Some(Delimiter::Comma),
        skip_incomplete: false,
        sort: false,
        latest_ms: None,
    };
    let recording = import
        .read(name.as_ref(), table.as_bytes())
        .map_err(|error| Failure::new(Exit::Internal, error))?;
    Ok(Mote { name, raw, recording })
}
