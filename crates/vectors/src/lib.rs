//! Generates the test vectors of `spec/vectors`, and replays them with the product's code.
//! `spec/verify.py` is an independent replay in Python.
//!
//! `make vectors` regenerates the vectors. The tests of this crate replay the committed vectors and
//! compare them with the output of [`make::files`].

#![forbid(unsafe_code)]
#![allow(
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub
)]

mod audit;
pub mod batch;
mod broadcast;
pub mod changed;
mod confidential;
mod grant;
mod health;
mod link;
pub mod make;
mod ops;
mod policy;
mod query;
mod reading;
mod receipt;
mod receivers;
mod roster;
mod sampling;
mod sanitised;
mod schema;
mod signed_time;
mod sum;
mod updates;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::ops::Shared;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors/v1")
}

/// Reads all committed vector files, keyed by the path below `spec/vectors/v1`.
pub fn committed() -> BTreeMap<String, Value> {
    let mut files = BTreeMap::new();
    for kind in fs::read_dir(folder()).into_iter().flatten() {
        let kind = kind.unwrap().path();
        for file in fs::read_dir(&kind).unwrap() {
            let file = file.unwrap().path();
            let name = format!(
                "{}/{}",
                kind.file_name().unwrap().to_str().unwrap(),
                file.file_name().unwrap().to_str().unwrap()
            );
            files.insert(name, serde_json::from_slice(&fs::read(&file).unwrap()).unwrap());
        }
    }
    files
}

/// Applies each change of a mutation to the original bytes, and returns the results in the order
/// that spec/README.md defines.
fn changes(mutation: &Value) -> Vec<Vec<u8>> {
    let base =
        hex::decode(mutation["input"][mutation["field"].as_str().unwrap()].as_str().unwrap())
            .unwrap();
    let mut changes = Vec::new();
    for flip in mutation["flips"].as_array().unwrap() {
        let flip = u8::try_from(flip.as_u64().unwrap()).unwrap();
        for at in 0..base.len() {
            let mut changed = base.clone();
            changed[at] ^= flip;
            changes.push(changed);
        }
    }
    changes.extend((0..base.len()).map(|length| base[..length].to_vec()));
    changes
}

fn changed_input(mutation: &Value, changed: &[u8]) -> Value {
    let mut input = mutation["input"].clone();
    input[mutation["field"].as_str().unwrap()] = Value::String(hex::encode(changed));
    input
}

/// Replays the cases of a file. Returns the cases whose result is wrong, and the number of cases.
pub fn replay(name: &str, file: &Value) -> (Vec<String>, usize) {
    let shared = Shared::new(file);
    let (mut wrong, mut count) = (Vec::new(), 0);
    let mut check = |case: &str, found: Result<Value, String>, expected: Result<&Value, &str>| {
        count += 1;
        if found.as_ref().map_err(String::as_str) != expected {
            wrong.push(format!("{name}: {case}: expected {expected:?}, found {found:?}"));
        }
    };
    for case in file["valid"].as_array().unwrap() {
        let found = shared.run(case["op"].as_str().unwrap(), &case["input"]);
        check(case["name"].as_str().unwrap(), found, Ok(&case["output"]));
    }
    for case in file["invalid"].as_array().unwrap() {
        let found = shared.run(case["op"].as_str().unwrap(), &case["input"]);
        check(case["name"].as_str().unwrap(), found, Err(case["error"].as_str().unwrap()));
    }
    for mutation in file.get("mutations").and_then(Value::as_array).into_iter().flatten() {
        let changes = changes(mutation);
        let verdicts = mutation["verdicts"].as_array().unwrap().iter();
        let verdicts: Vec<&str> = verdicts
            .flat_map(|run| {
                std::iter::repeat_n(
                    run[0].as_str().unwrap(),
                    usize::try_from(run[1].as_u64().unwrap()).unwrap(),
                )
            })
            .collect();
        assert_eq!(changes.len(), verdicts.len());
        for (at, (changed, verdict)) in changes.iter().zip(verdicts).enumerate() {
            let found =
                shared.run(mutation["op"].as_str().unwrap(), &changed_input(mutation, changed));
            let expected = if verdict == "kept" { Ok(&mutation["kept"]) } else { Err(verdict) };
            check(&format!("{} change {at}", mutation["name"]), found, expected);
        }
    }
    (wrong, count)
}

/// Replaces all files of `spec/vectors/v1` with the output of [`make::files`].
///
/// # Errors
///
/// A file cannot be written.
pub fn write() -> std::io::Result<()> {
    // Generate first, so that the files stay unchanged if the generator fails.
    let made = make::files();
    if folder().exists() {
        fs::remove_dir_all(folder())?;
    }
    for (name, file) in made {
        let path = folder().join(name);
        fs::create_dir_all(path.parent().unwrap())?;
        fs::write(path, serde_json::to_string_pretty(&file)? + "\n")?;
    }
    Ok(())
}
