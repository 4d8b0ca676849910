//! Tests that the committed test vectors replay correctly and are equal to the generated ones.
#![allow(clippy::unwrap_used, missing_docs)]

mod error_names;
mod second_verifier;

use moteseal_vectors::{committed, make, replay};

#[test]
fn every_vector_has_its_stated_result() {
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
fn the_committed_vectors_equal_the_generated_ones() {
    let made = make::files();
    let committed = committed();
    assert_eq!(made.keys().collect::<Vec<_>>(), committed.keys().collect::<Vec<_>>());
    for (name, file) in &made {
        assert!(
            committed[name] == *file,
            "{name} differs from the generated file; run make vectors"
        );
    }
}

#[test]
fn at_least_a_hundred_vectors_are_invalid_and_errors_md_lists_their_errors() {
    let listed = include_str!("../../../../spec/errors.md");
    let (mut invalid, mut names) = (0, std::collections::BTreeSet::new());
    for (file, vectors) in committed() {
        assert!(!vectors["valid"].as_array().unwrap().is_empty(), "{file} has no valid case");
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
