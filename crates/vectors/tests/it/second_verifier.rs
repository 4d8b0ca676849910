//! Compares the product's code with `spec/verify.py` on randomly changed cases of the vectors. Both
//! must have the same verdict, with the same error name, on each.

use std::fs;

/// The number of changed cases of each vector file, for each seed.
const CASES: usize = 40;

/// Returns the number of cases in which both verifiers agreed, or `None` if they disagreed in a case.
fn passed(output: &str) -> Option<usize> {
    output.lines().last()?.strip_suffix(" passed, 0 failed")?.parse().ok()
}

#[test]
fn only_agreement_in_every_case_counts() {
    assert_eq!(passed("skipped 1: x (y)\n40 passed, 0 failed\n"), Some(40));
    assert_eq!(passed("0 passed, 0 failed\n"), Some(0));
    assert_eq!(passed("40 passed, 1 failed\n"), None);
    assert_eq!(passed("140 passed, 10 failed\n"), None);
}

/// Findings F1 to F5 of the review. `MOTESEAL_SEEDS` sets the number of seeds, by default 1.
#[test]
fn both_verifiers_agree_on_changed_cases() {
    let seeds = std::env::var("MOTESEAL_SEEDS")
        .map_or(1, |seeds| seeds.parse().expect("a number of seeds"));
    for seed in 0..seeds {
        let Some(mut replay) = moteseal_fixtures::second_verifier() else { return };
        let folder = tempfile::tempdir().unwrap();
        let mut cases = 0;
        for (name, file) in moteseal_vectors::changed::changed_files(seed, CASES) {
            cases += ["valid", "invalid"]
                .map(|kind| file[kind].as_array().unwrap().len())
                .iter()
                .sum::<usize>();
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, serde_json::to_vec(&file).unwrap()).unwrap();
        }
        replay.arg("--vectors").arg(folder.path());
        let output = replay.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "seed {seed}: {text}{errors}");
        assert_eq!(passed(&text), Some(cases), "seed {seed}: {text}");
    }
}
