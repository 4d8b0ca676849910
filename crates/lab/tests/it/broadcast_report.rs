//! Checks the report on broadcast: all its figures and data are written, and the same seed gives
//! the same bytes.

use std::collections::BTreeMap;
use std::path::Path;

use crate::figures::{drawn, rows};
use moteseal_lab::broadcast::times::{Times, Timing};
use moteseal_lab::chance::Seed;
use moteseal_lab::report::broadcast::{Effort, write};

/// The tables and their numbers of rows.
const TABLES: [(&str, usize); 5] =
    [("fig5.csv", 40), ("fig6.csv", 77), ("fig7.csv", 63), ("memory.csv", 12), ("repair.csv", 24)];
/// The figures and the colours of their series.
const FIGURES: [(&str, &[&str]); 3] = [
    ("fig5.png", &["black", "blue", "vermillion", "green", "purple", "grey"]),
    ("fig6.png", &["black", "blue", "vermillion", "green", "purple", "orange", "grey"]),
    ("fig7.png", &["black", "blue", "vermillion", "green", "orange", "grey"]),
];

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    names
        .map(|path| {
            (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap())
        })
        .collect()
}

fn report(times: Option<&Times>) -> BTreeMap<String, Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    write(times, folder.path(), Seed::default(), Effort { runs: 1 }, &mut |_| {}).unwrap();
    for (name, count) in TABLES {
        assert_eq!(rows(&folder.path().join(name)), count, "{name}");
    }
    for (name, colours) in FIGURES {
        assert_eq!(drawn(&folder.path().join(name)), colours, "{name}");
    }
    if let Some(times) = times {
        assert_eq!(rows(&folder.path().join("times.csv")), times.rows.len());
        for name in ["fig3.png", "fig4.png"] {
            assert_eq!(drawn(&folder.path().join(name)), ["black", "purple", "grey"], "{name}");
        }
    }
    files(folder.path())
}

#[test]
fn the_report_has_its_figures_and_the_same_seed_writes_the_same_bytes() {
    let one = report(None);
    let names: Vec<&str> = one.keys().map(String::as_str).collect();
    let expected = [
        "README.md",
        "fig5.csv",
        "fig5.png",
        "fig6.csv",
        "fig6.png",
        "fig7.csv",
        "fig7.png",
        "memory.csv",
        "repair.csv",
    ];
    assert_eq!(names, expected);
    assert_eq!(one, report(None));
    let index = String::from_utf8(one["README.md"].clone()).unwrap();
    assert!(
        index.contains("S-1 S-2 1-2 1-3 2-3 2-4 3-4 3-5 4-5 4-6 5-6"),
        "the assumed topology is stated"
    );
    assert!(index.contains("does not measure speed"));
}

#[test]
fn given_times_become_figures_3_and_4() {
    let timing = |scheme: &str, messages: u32, sender_us| Timing {
        scheme: scheme.to_owned(),
        messages,
        sender_us,
        receiver_us: 2.0 * sender_us,
    };
    let rows = vec![
        timing("SIGS", 20, 20.0),
        timing("SA1", 20, 1.5),
        timing("SA1", 100, 0.5),
        timing("SA1, the paper's", 100, 15.0),
    ];
    let report = report(Some(&Times { host: "avx2".to_owned(), rows }));
    for name in ["fig3.png", "fig4.png", "times.csv"] {
        assert!(report.contains_key(name), "{name}");
    }
    let index = String::from_utf8(report["README.md"].clone()).unwrap();
    assert!(index.contains("| SA1 | 1.50 µs |  |  |  | 0.50 µs |"), "{index}");
    assert!(!index.contains("does not measure speed"));
}
