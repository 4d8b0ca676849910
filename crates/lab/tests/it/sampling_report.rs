//! Checks the report on sampling: every file is written, figures are not empty, and the same seed
//! gives the same bytes.
use std::fs;
use std::path::Path;

use moteseal_lab::chance::Seed;
use moteseal_lab::data::{DataError, Event, Folder, Recording, Source};
use moteseal_lab::experiment::Experiment;
use moteseal_lab::report::{Effort, INDEX, ReportError, write, write_of};

const SHORT: Effort = Effort { seeds: 1, runs: 4, one_by_one: 4000 };
const FILES: [&str; 14] = [
    "README.md",
    "communication.csv",
    "delay.csv",
    "delay.png",
    "fig5.csv",
    "fig5.png",
    "fig6.csv",
    "fig6.png",
    "fig7a.csv",
    "fig7a.png",
    "fig7b.csv",
    "fig7b.png",
    "growth.csv",
    "growth.png",
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

/// Returns the number of different colours in a figure, its width and its height.
fn colours(png: &Path) -> (usize, u32, u32) {
    let mut reader = png::Decoder::new(std::io::BufReader::new(fs::File::open(png).unwrap()))
        .read_info()
        .unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    let mut colours: Vec<_> = pixels.chunks_exact(3).collect();
    colours.sort_unstable();
    colours.dedup();
    (colours.len(), info.width, info.height)
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
    assert!(FILES.iter().all(|file| names.iter().any(|name| name == file)), "{names:?}");
    for name in &names {
        let bytes = fs::read(one.path().join(name)).unwrap();
        assert!(
            bytes == fs::read(other.path().join("made/if/absent").join(name)).unwrap(),
            "{name} differs"
        );
        if name.ends_with(".png") {
            let (colours, width, height) = colours(&one.path().join(name));
            assert_eq!((width, height), (1600, 1000));
            assert!(colours > 30, "{name} is empty");
        } else if name.ends_with(".csv") {
            assert!(bytes.iter().filter(|&&byte| byte == b'\n').count() > 3, "{name} has no rows");
        }
    }
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
