//! Compares the product's code with `spec/verify.py` on randomly changed cases of the vectors. Both
//! must have the same verdict, with the same error name, on each.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The number of changed cases of each vector file, for each seed.
const CASES: usize = 40;

/// Findings F1 to F5 of the review. `MOTESEAL_SEEDS` sets the number of seeds, by default 1.
#[test]
fn both_verifiers_agree_on_changed_cases() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join(".venv/bin/python");
    if !python.exists() {
        let missing = "no .venv for spec/verify.py; tools/setup.sh test makes it";
        assert!(
            std::env::var_os("MOTESEAL_DATA_REQUIRED").is_none_or(|required| required != "1"),
            "{missing}"
        );
        println!("SKIPPED: {missing}");
        return;
    }
    let seeds = std::env::var("MOTESEAL_SEEDS")
        .map_or(1, |seeds| seeds.parse().expect("a number of seeds"));
    for seed in 0..seeds {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("changed-{seed}"));
        for (name, file) in moteseal_vectors::changed::changed_files(seed, CASES) {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, serde_json::to_vec(&file).unwrap()).unwrap();
        }
        let mut replay = Command::new(&python);
        replay.arg(root.join("spec/verify.py")).arg("--vectors").arg(&folder);
        let output = replay.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "seed {seed}: {text}{errors}");
        assert!(text.contains(" passed, 0 failed"), "seed {seed}: {text}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
