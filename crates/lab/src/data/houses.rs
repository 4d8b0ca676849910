//! Reads the houses of van Kasteren (A, B, C) and of MIT (D, E). Each line states when a sensor was
//! on: `start (Unix seconds), duration (s), sensor`, separated by tabs. The lines are ordered by
//! start. Days without events count as days.

use super::{DataError, Event, Folder, Line};

const REMEDY: &str = "get the houses of van Kasteren and MIT as house{A..E}.sensors (github.com/agnesvanbelle/TL has all five; its \
    readme names whom to cite), and put them into events_kasteren_mit of the folder that MOTESEAL_DATA or --data names";
/// The maximum length of a recording, in days. A longer recording must contain a wrong time.
const MOST_DAYS: u64 = 366;

/// Reads the events of one house for each day, from the first to the last day that has an event.
pub(super) fn load(folder: &Folder, house: char) -> Result<Vec<Vec<Event>>, DataError> {
    let path = folder.root().join("events_kasteren_mit").join(format!("house{house}.sensors"));
    let text = super::read(&path, REMEDY)?;
    days(&path.display().to_string(), &text)
}

fn days(file: &str, text: &str) -> Result<Vec<Vec<Event>>, DataError> {
    let mut days: Vec<Vec<Event>> = Vec::new();
    let (mut first, mut before) = (None, (0, 0));
    for line in Line::all(file, text) {
        let [start, duration, sensor] = line.columns(&['\t'])?;
        let time @ (day, second) = line.time(start)?;
        let _: u32 = line.number("sensor", sensor)?;
        if time < before {
            return Err(line.wrong("the time is earlier than on the line above"));
        }
        before = time;
        let index = day - *first.get_or_insert(day);
        if index >= MOST_DAYS {
            return Err(line.wrong(format_args!("the time is {index} days after the first")));
        }
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        while days.len() <= index {
            days.push(Vec::new());
        }
        days[index].push(Event { second, reading: line.measure("duration", duration)? });
    }
    Ok(days)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_day_without_events_counts_as_a_day() {
        let days = days("h", "1203898814\t163\t24\r\n1204070400\t1\t5\r\n").unwrap();
        assert_eq!(
            days,
            [
                vec![Event { second: 1214, reading: 163.0 }],
                vec![],
                vec![Event { second: 0, reading: 1.0 }]
            ]
        );
    }

    #[test]
    fn an_error_names_the_file_and_the_line() {
        for (text, what) in [
            ("1203898814 163 24", "h, line 1: 1 columns instead of 3"),
            ("1203898814\t163\tdoor", "h, line 1: the sensor is \"door\""),
            ("1203898814\t163\t24\n\n", "h, line 2: 1 columns instead of 3"),
            (
                "1203898814\t1\t24\n1203898813\t1\t24",
                "h, line 2: the time is earlier than on the line above",
            ),
            (
                "1203898814\t1\t24\n12038988140\t1\t24",
                "h, line 2: the time is 125406 days after the first",
            ),
        ] {
            assert_eq!(days("h", text).unwrap_err().to_string(), format!("DataMalformed: {what}"));
        }
    }
}
