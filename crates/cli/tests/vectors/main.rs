//! The test vectors of spec/vectors: made here, replayed here by the product's own code, and by spec/verify.py in Python.
//!
//! `make vectors` (or this test with `MOTESEAL_WRITE_VECTORS` set) writes them anew.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod audit;
mod broadcast;
#[path = "../../../verify/tests/common/mod.rs"]
mod common;
mod link;
mod make;
mod ops;
mod query;
mod receipt;
mod sampling;
mod sum;
mod tesla;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::ops::Shared;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors/v1")
}

/// Every file under the folder, by its path from there.
fn committed() -> BTreeMap<String, Value> {
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

/// How the changes of a mutation follow each other: spec/README.md.
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

/// Replays a file; the disagreements, and how many cases there were.
fn replay(name: &str, file: &Value) -> (Vec<String>, usize) {
    let shared = Shared::new(file);
    let (mut wrong, mut count) = (Vec::new(), 0);
    let mut judge = |case: &str, found: Result<Value, String>, expected: Result<&Value, &str>| {
        count += 1;
        if found.as_ref().map_err(String::as_str) != expected {
            wrong.push(format!("{name}: {case}: expected {expected:?}, found {found:?}"));
        }
    };
    for case in file["valid"].as_array().unwrap() {
        let found = shared.run(case["op"].as_str().unwrap(), &case["input"]);
        judge(case["name"].as_str().unwrap(), found, Ok(&case["output"]));
    }
    for case in file["invalid"].as_array().unwrap() {
        let found = shared.run(case["op"].as_str().unwrap(), &case["input"]);
        judge(case["name"].as_str().unwrap(), found, Err(case["error"].as_str().unwrap()));
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
            judge(&format!("{} change {at}", mutation["name"]), found, expected);
        }
    }
    (wrong, count)
}

#[test]
fn every_vector_has_the_verdict_it_names() {
    let files = committed();
    assert!(!files.is_empty(), "no vectors; run make vectors");
    let (mut wrong, mut total) = (Vec::new(), 0);
    for (name, file) in &files {
        let (found, count) = replay(name, file);
        wrong.extend(found);
        total += count;
    }
    println!("{total} cases in {} files", files.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_vectors_are_those_that_are_made() {
    let made = make::files();
    if std::env::var_os("MOTESEAL_WRITE_VECTORS").is_some() {
        let _ = fs::remove_dir_all(folder());
        for (name, file) in &made {
            let path = folder().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, serde_json::to_string_pretty(file).unwrap() + "\n").unwrap();
        }
    }
    let committed = committed();
    assert_eq!(made.keys().collect::<Vec<_>>(), committed.keys().collect::<Vec<_>>());
    for (name, file) in &made {
        assert!(committed[name] == *file, "{name} differs from what is made; run make vectors");
    }
}

#[test]
fn there_are_enough_invalid_ones_and_their_names_are_listed() {
    let listed = include_str!("../../../../spec/errors.md");
    let (mut invalid, mut names) = (0, std::collections::BTreeSet::new());
    for (file, vectors) in committed() {
        assert!(
            !vectors["valid"].as_array().unwrap().is_empty(),
            "{file} shows nothing that is right"
        );
        for case in vectors["invalid"].as_array().unwrap() {
            invalid += 1;
            names.insert(case["error"].as_str().unwrap().to_owned());
        }
    }
    println!("{invalid} invalid cases, {} names", names.len());
    assert!(invalid >= 100);
    for name in names {
        assert!(listed.contains(&format!("`{name}`")), "{name} is not in errors.md");
    }
}
