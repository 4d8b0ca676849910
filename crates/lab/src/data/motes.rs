//! Reads the eight TelosB motes of Suthaharan et al. (ISSNIP 2010). Each has a reading every 5
//! seconds for about six hours, with the columns `Reading# Mote-ID Humidity Temperature Label`.
//! Together they form one device, and the readings of each mote are one day of this device. The
//! authors do not state the time of day; we assume that the readings start at 9:00.

use super::{DAY_SECONDS, DataError, Event, Folder, Line};

const REMEDY: &str = "a checkout of Moteseal has the motes' files in data/telosb: run the command there, or put them into \
    telosb_labelled_suthaharan of the folder that MOTESEAL_DATA or --data names";
const FILES: [&str; 8] = [
    "singlehop_indoor_moteid1_data.txt",
    "singlehop_indoor_moteid2_data.txt",
    "singlehop_outdoor_moteid3_data.txt",
    "singlehop_outdoor_moteid4_data.txt",
    "multihop_outdoor_moteid1_data.txt",
    "multihop_outdoor_moteid2_data.txt",
    "multihop_indoor_moteid3_data.txt",
    "multihop_indoor_moteid4_data.txt",
];
const START: u32 = 9 * 3600;
const EVERY: u32 = 5;

/// Reads the readings of the motes, one day for each mote: first the motes of the single-hop
/// network, then the motes of the multi-hop network.
pub(super) fn load(folder: &Folder) -> Result<Vec<Vec<Event>>, DataError> {
    let folder = folder.motes();
    let mote = |name: &&str| {
        let path = folder.join(name);
        let text = super::read(&path, REMEDY)?;
        day(&path.display().to_string(), &text)
    };
    FILES.iter().map(mote).collect()
}

fn day(file: &str, text: &str) -> Result<Vec<Event>, DataError> {
    let mut events = Vec::new();
    let mut next = 1;
    for line in Line::all(file, text).skip(1) {
        let [number, _, _, temperature, _] = line.columns(&['\t'])?;
        let number: u32 = line.number("reading's number", number)?;
        if number < next {
            return Err(line.wrong(format_args!("reading {number} does not follow the one above")));
        }
        let second = (number - 1).saturating_mul(EVERY).saturating_add(START);
        if second >= DAY_SECONDS {
            return Err(line.wrong(format_args!("reading {number} would be on the next day")));
        }
        next = number + 1;
        events.push(Event { second, reading: line.measure("temperature", temperature)? });
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const HEAD: &str = "Reading# Mote-ID Humidity Temperature Label\n";

    #[test]
    fn readings_are_five_seconds_apart_from_nine_on() {
        let text = format!("{HEAD}1\t1\t45.93\t27.97\t0\n3\t1\t45.9\t27.95\t1\n");
        assert_eq!(
            day("m", &text).unwrap(),
            [Event { second: 32_400, reading: 27.97 }, Event { second: 32_410, reading: 27.95 }]
        );
    }

    #[test]
    fn an_error_names_the_file_and_the_line() {
        for (row, what) in [
            ("1\t1\t45.93\n", "m, line 2: 3 columns instead of 5"),
            ("0\t1\t45.93\t27.97\t0\n", "m, line 2: reading 0 does not follow the one above"),
            ("1\t1\t45.93\tNaN\t0\n", "m, line 2: the temperature is \"NaN\""),
            ("99999\t1\t45.93\t27.97\t0\n", "m, line 2: reading 99999 would be on the next day"),
            (
                "4294967295\t1\t45.93\t27.97\t0\n",
                "m, line 2: reading 4294967295 would be on the next day",
            ),
        ] {
            assert_eq!(
                day("m", &format!("{HEAD}{row}")).unwrap_err().to_string(),
                format!("DataMalformed: {what}")
            );
        }
    }
}
