//! Reads the outdoor weather of Smart* home C. There is one file per day with about 1,440 rows
//! `TimestampLocal,temperature,humidity,...` (13 columns, no header). The timestamps are local
//! times encoded as if they were UTC, so that all rows of a file are on one day.

use std::io::{self, Read};
use std::path::Path;

use lzma_rust2::XzReader;

use super::{DAYS, DataError, Event, FIRST_DAY, Folder, LARGEST_FILE, Line};

const REMEDY: &str = "get home C's environmental data (Smart* data set, release of 2013, licensed for research) from the UMass Trace Repository \
    (traces.cs.umass.edu); put it into umass_smartstar_homeC in the folder that MOTESEAL_DATA or --data names, as \
    homeC-environmental.tar.xz or as the folder homeC-environmental";
/// The maximum number of files in an archive.
const MOST_FILES: usize = 1000;

/// Reads the events of all 92 days.
pub(super) fn load(folder: &Folder) -> Result<Vec<Vec<Event>>, DataError> {
    let home = folder.root().join("umass_smartstar_homeC");
    let (unpacked, archive) =
        (home.join("homeC-environmental"), home.join("homeC-environmental.tar.xz"));
    let files =
        if unpacked.is_dir() { unpacked_files(&unpacked)? } else { archived_files(&archive)? };
    let mut days = vec![Vec::new(); DAYS];
    for (file, text) in &files {
        day(file, text, &mut days)?;
    }
    Ok(days)
}

/// Adds the rows of one file to the events of their day.
fn day(file: &str, text: &str, days: &mut [Vec<Event>]) -> Result<(), DataError> {
    let mut of_file = None;
    for line in Line::all(file, text) {
        let [time, temperature, ..] = line.columns::<13>(&[','])?;
        let (day, second) = line.time(time)?;
        let index = day.checked_sub(FIRST_DAY).and_then(|day| usize::try_from(day).ok());
        let Some(events) = index.and_then(|index| days.get_mut(index)) else {
            return Err(line.wrong("the time is not in May to July 2012"));
        };
        if of_file.is_none() && !events.is_empty() {
            return Err(line.wrong("another file also contains this day"));
        }
        if *of_file.get_or_insert(day) != day {
            return Err(line.wrong("the time is not on the same day as the file's first"));
        }
        events.push(Event { second, reading: line.measure("temperature", temperature)? });
    }
    // A few rows are out of order by one minute.
    if let Some(events) =
        of_file.and_then(|day| days.get_mut(usize::try_from(day - FIRST_DAY).ok()?))
    {
        events.sort_by_key(|event| event.second);
    }
    Ok(())
}

fn is_day(name: &Path) -> bool {
    name.extension().is_some_and(|extension| extension == "csv")
}

fn unpacked_files(folder: &Path) -> Result<Vec<(String, String)>, DataError> {
    let unreadable = |cause| DataError::Unreadable { path: folder.to_owned(), cause };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if is_day(&path) {
            files.push((path.display().to_string(), super::read(&path, REMEDY)?));
        }
    }
    Ok(files)
}

fn archived_files(archive: &Path) -> Result<Vec<(String, String)>, DataError> {
    let unreadable = |cause| DataError::Unreadable { path: archive.to_owned(), cause };
    let file = match std::fs::File::open(archive) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(DataError::Absent { path: archive.to_owned(), remedy: REMEDY });
        }
        file => file.map_err(unreadable)?,
    };
    // Limit the amount of unpacked data, independently of the size of the archive.
    let unpacked = XzReader::new(io::BufReader::new(file), true).take(LARGEST_FILE);
    let mut files = Vec::new();
    for entry in tar::Archive::new(unpacked).entries().map_err(unreadable)?.take(MOST_FILES) {
        let mut entry = entry.map_err(unreadable)?;
        let name = entry.path().map_err(unreadable)?.into_owned();
        if is_day(&name) {
            let mut text = String::new();
            entry.read_to_string(&mut text).map_err(unreadable)?;
            files.push((format!("{}: {}", archive.display(), name.display()), text));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ROW: &str = "1335830520,41.9,86,038.0,30.120,3,5,180,0.000,0.000,0.000,0.000,41.9\n";

    fn read(files: &[&str]) -> Result<Vec<Vec<Event>>, String> {
        let mut days = vec![Vec::new(); DAYS];
        files
            .iter()
            .try_for_each(|text| day("a.csv", text, &mut days))
            .map_err(|error| error.to_string())?;
        Ok(days)
    }

    #[test]
    fn a_row_is_a_temperature_at_a_second_of_a_day() {
        assert_eq!(read(&[ROW]).unwrap()[0], [Event { second: 120, reading: 41.9 }]);
        assert_eq!(
            read(&[&ROW.replace("1335830520", "1343779199")]).unwrap()[DAYS - 1][0].second,
            86_399
        );
    }

    #[test]
    fn rows_are_ordered_by_time() {
        let late = ROW.replace("1335830520", "1335830460");
        let seconds: Vec<_> =
            read(&[&format!("{ROW}{late}")]).unwrap()[0].iter().map(|event| event.second).collect();
        assert_eq!(seconds, [60, 120]);
    }

    #[test]
    fn an_error_names_the_file_and_the_line() {
        for (text, what) in [
            (format!("{ROW}1335830580,41.9\n"), "a.csv, line 2: 2 columns instead of 13"),
            (ROW.replace("41.9,86", "warm,86"), "a.csv, line 1: the temperature is \"warm\""),
            (ROW.replace("41.9,86", "inf,86"), "a.csv, line 1: the temperature is \"inf\""),
            (ROW.replace("1335830520", "-5"), "a.csv, line 1: the time is \"-5\""),
            (
                ROW.replace("1335830520", "1335830399"),
                "a.csv, line 1: the time is not in May to July 2012",
            ),
            (
                format!("{ROW}{}", ROW.replace("1335830520", "1335916800")),
                "a.csv, line 2: the time is not on the same day as the file's first",
            ),
        ] {
            assert_eq!(read(&[&text]).unwrap_err(), format!("DataMalformed: {what}"));
        }
        assert_eq!(
            read(&[ROW, ROW]).unwrap_err(),
            "DataMalformed: a.csv, line 1: another file also contains this day"
        );
    }
}
