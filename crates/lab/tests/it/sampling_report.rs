//! Checks the report on sampling: every file is written, figures are not empty, and the same seed
//! gives the same bytes.
use std::fs;
use std::path::Path;

use crate::figures::{drawn, rows};
use moteseal_lab::chance::Seed;
use moteseal_lab::data::{DataError, Event, Folder, Recording, Source};
use moteseal_lab::experiment::Experiment;
use moteseal_lab::report::{Effort, INDEX, ReportError, write, write_of};

const SHORT: Effort = Effort { seeds: 1, runs: 4, one_by_one: 4000 };
/// The tables and their numbers of rows: figure 5 has a row for each of the first day's 1,330 events,
/// figure 6 one for each of 92 days and 4 budgets, figure 7a one for each day, and figure 7b one for
/// each of 6 budgets.
const TABLES: [(&str, usize); 8] = [
    ("communication.csv", 168),
    ("delay.csv", 12),
    ("fig5.csv", 1330),
    ("fig6.csv", 92 * 4),
    ("fig7a.csv", 92),
    ("fig7b.csv", 6),
    ("growth.csv", 55),
    ("utilisation.csv", 6),
];
/// The figures and the colours of their series.
const FIGURES: [(&str, &[&str]); 6] = [
    ("delay.png", &["black", "blue", "grey"]),
    ("fig5.png", &["black", "blue", "vermillion", "grey"]),
    ("fig6.png", &["black", "blue", "green", "purple", "orange", "grey"]),
    ("fig7a.png", &["blue", "vermillion", "grey"]),
    ("fig7b.png", &["blue", "vermillion", "orange", "grey"]),
    ("growth.png", &["black", "blue", "vermillion", "orange", "grey"]),
];

/// Returns seven devices with a few events each, in place of the recordings.
fn devices() -> Vec<Recording> {
    let recording = |(i, source): (u32, &Source)| {
        let day = |day: u32| {
            (0..100 + 30 * i)
                .map(|n| Event { second: n * 600 % 86_400, reading: f64::from(n % 50 + day) })
                .collect()
        };
        Recording::new(source.name(), (0..i + 2).map(day).collect())
    };
    (0..).zip(&Source::ALL).map(recording).collect()
}

fn report(out: &Path) {
    write_of(&devices(), out, Seed::default(), SHORT, &mut |_| {}).unwrap();
}

#[test]
fn all_files_are_written_and_the_same_seed_writes_the_same_bytes() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    report(one.path());
    report(&other.path().join("made/if/absent"));
    let mut names: Vec<_> = fs::read_dir(one.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let tables = TABLES.iter().map(|(name, _)| *name);
    let figures = FIGURES.iter().map(|(name, _)| *name);
    let mut expected: Vec<&str> = tables.chain(figures).chain([INDEX]).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
    for name in &names {
        let bytes = fs::read(one.path().join(name)).unwrap();
        assert!(
            bytes == fs::read(other.path().join("made/if/absent").join(name)).unwrap(),
            "{name} differs"
        );
    }
    for (name, count) in TABLES {
        assert_eq!(rows(&one.path().join(name)), count, "{name}");
    }
    for (name, colours) in FIGURES {
        assert_eq!(drawn(&one.path().join(name)), colours, "{name}");
    }
    assert_within_budget(&one.path().join("fig6.csv"));
    let index = fs::read_to_string(one.path().join(INDEX)).unwrap();
    for name in names.iter().filter(|&name| name != INDEX) {
        assert!(index.contains(&format!("({name})")), "the index does not link to {name}");
    }
    for statement in
        ["1,057 of 2,572", "about 75 %", "The data of homes A and B cannot be obtained"]
    {
        assert!(index.contains(statement), "the index does not state: {statement}");
    }
}

/// Asserts that the numbers of figure 6 agree with each other and with the events of each day: on each
/// day and with each budget, no more is kept than buffered, and no more is buffered than the budget.
fn assert_within_budget(csv: &Path) {
    let devices = devices();
    let mut reader = csv::Reader::from_path(csv).unwrap();
    let columns = reader.headers().unwrap().clone();
    for (at, row) in reader.records().enumerate() {
        let row = row.unwrap();
        let of = |name: &str| -> f64 {
            row[columns.iter().position(|column| column == name).unwrap()].parse().unwrap()
        };
        let day = at % 92;
        let events: usize = devices.iter().map(|device| device.day(day).len()).sum();
        assert_eq!(of("monitored"), events as f64, "{row:?}");
        let ordered = ["kept", "most_buffered", "budget"].map(of);
        assert!(ordered.is_sorted(), "{row:?}");
        assert!(of("kept") <= of("sent") && of("sent") <= of("monitored"), "{row:?}");
        assert!((of("used") - of("kept") / of("budget")).abs() < 1e-9, "{row:?}");
        // A level holds about half of the buffered events, so a day rarely uses less than a quarter.
        if of("monitored") > of("budget") {
            assert!((0.25..=1.0).contains(&of("used")), "{row:?}");
        }
    }
}

#[test]
fn an_error_for_absent_data_states_its_name_and_source() {
    let empty = tempfile::tempdir().unwrap();
    let error =
        write(&Folder::new(empty.path()), empty.path(), Seed::default(), SHORT, &mut |_| {})
            .unwrap_err();
    assert!(matches!(&error, ReportError::Data(DataError::Absent { .. })), "{error}");
    let message = error.to_string();
    assert!(
        message.contains("homeC-environmental.tar.xz is absent")
            && message.contains("traces.cs.umass.edu"),
        "{message}"
    );
    for source in Source::ALL {
        let message = source.load(&Folder::new(empty.path())).unwrap_err().to_string();
        assert!(
            message.starts_with("DataAbsent: ") && message.contains("MOTESEAL_DATA"),
            "{message}"
        );
    }
}

#[test]
fn a_file_that_is_not_an_archive_is_unreadable() {
    let data = tempfile::tempdir().unwrap();
    fs::create_dir(data.path().join("umass_smartstar_homeC")).unwrap();
    for bytes in [&b""[..], b"not an archive", b"\xfd7zXZ\0\0\x04"] {
        fs::write(data.path().join("umass_smartstar_homeC/homeC-environmental.tar.xz"), bytes)
            .unwrap();
        let error = Source::HomeC.load(&Folder::new(data.path())).unwrap_err();
        assert_eq!(error.name(), "DataUnreadable", "{error}");
    }
}

#[test]
fn unpacked_days_are_read() {
    let data = tempfile::tempdir().unwrap();
    let days = data.path().join("umass_smartstar_homeC/homeC-environmental");
    fs::create_dir_all(&days).unwrap();
    fs::write(days.join("FORMAT"), "TimestampLocal,temperature,...").unwrap();
    fs::write(days.join("2012-May-2.csv"), "1335916860,50.5,86,38,30.12,3,5,180,0,0,0,0,41.9\n")
        .unwrap();
    let recording = Source::HomeC.load(&Folder::new(data.path())).unwrap();
    assert_eq!(
        (recording.day(0), recording.day(1)),
        (&[][..], &[Event { second: 60, reading: 50.5 }][..])
    );
}

#[test]
fn the_totals_of_an_experiment_are_the_sums_of_its_days() {
    let devices = devices();
    let experiment = Experiment::run(&Source::ALL, &devices, 300, Seed::default()).unwrap();
    let totals = experiment.totals();
    assert_eq!(experiment.days().len(), 92);
    assert_eq!(totals.kept, experiment.days().iter().map(|day| day.kept).sum::<u64>());
    assert_eq!(totals.days_over_budget, 0);
    assert!(totals.sampled_off.is_some() && totals.used > 0.45 && totals.used <= 1.0);
    let without = Experiment::run(&Source::ALL[1..], &devices[1..], 300, Seed::default()).unwrap();
    assert_eq!((without.totals().sampled_off, without.totals().truncated_off), (None, None));
    assert!(Experiment::run(&Source::ALL, &devices, 0, Seed::default()).is_none());
}
