//! Packages: what is read back, and what is refused by name.

use std::path::Path;

use moteseal_core::record::GroupId;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_hub::agents::manifest::{MAX_MANIFEST, sign_payload};
use moteseal_hub::agents::package::{Package, Trust};
use moteseal_hub::agents::{Manifest, PackageError};

use crate::agents::{manifest, operator, package, packed, trust};

/// Reads a package to its end.
fn read(bytes: &[u8]) -> Result<Manifest, PackageError> {
    let mut package = Package::open(bytes, Path::new("test.agent"), &trust())?;
    let manifest = package.manifest().clone();
    while package.next_file().is_some() {
        package.content(&mut std::io::sink())?;
    }
    package.finish()?;
    Ok(manifest)
}

fn refusal(bytes: &[u8]) -> &'static str {
    read(bytes).unwrap_err().name()
}

/// A package whose manifest was signed although it breaks a rule.
fn forged(manifest: &Manifest) -> Vec<u8> {
    let mut payload = vec![0; MAX_MANIFEST];
    sign_payload(manifest.encode(&mut payload).unwrap(), &operator()).unwrap()
}

fn good() -> Vec<u8> {
    package(manifest("weather", 7), &[("agent", b"#!/bin/sh\n"), ("lib/a.py", b"")], &operator())
}

#[test]
fn a_package_is_read_back_as_it_was_packed() {
    let found = read(&good()).unwrap();
    assert_eq!((found.name.as_str(), found.version), ("weather", 7));
    let paths: Vec<_> = found.files.iter().map(|file| (&*file.path, file.size)).collect();
    assert_eq!(paths, [("agent", 10), ("lib/a.py", 0)]);
}

#[test]
fn the_signature_of_another_operator_is_refused() {
    let other = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32]).unwrap();
    let bytes = package(manifest("weather", 7), &[("agent", b"x")], &other);
    assert_eq!(refusal(&bytes), "NotAuthentic");
    let other = SecretKey::from_seed(Algorithm::Esp256, &[2; 32]).unwrap();
    let bytes = package(manifest("weather", 7), &[("agent", b"x")], &other);
    assert_eq!(refusal(&bytes), "AlgorithmMismatch");
}

#[test]
fn an_operator_may_have_an_ecdsa_key() {
    let operator = SecretKey::from_seed(Algorithm::Esp256, &[3; 32]).unwrap();
    let bytes = package(manifest("weather", 7), &[("agent", b"x")], &operator);
    let trust = Trust { operator: operator.public(), ..trust() };
    assert!(Package::open(&*bytes, Path::new("test.agent"), &trust).is_ok());
}

#[test]
fn a_package_of_another_group_is_refused() {
    let manifest = Manifest { group: GroupId::of("office"), ..manifest("weather", 7) };
    assert_eq!(refusal(&package(manifest, &[("agent", b"x")], &operator())), "AgentOfOtherGroup");
}

#[test]
fn a_path_that_climbs_out_or_has_two_forms_is_refused() {
    for path in [
        "../agent",
        "a/../../b",
        "/etc/passwd",
        "a//b",
        "./a",
        "a/",
        "",
        "a\\b",
        "a\nb",
        "a/.",
        "..",
    ] {
        let mut manifest = manifest("weather", 7);
        manifest.files = vec![packed(path, 0)];
        assert_eq!(refusal(&forged(&manifest)), "UnsafePath", "{path:?}");
    }
}

#[test]
fn paths_are_sorted_and_distinct() {
    for (paths, name) in [
        (vec!["agent", "agent"], "DuplicatePath"),
        (vec!["agent", "agent/b"], "DuplicatePath"),
        (vec!["agent", "agent-c", "agent/b"], "DuplicatePath"),
        (vec!["b", "agent"], "UnsortedPaths"),
    ] {
        let mut manifest = manifest("weather", 7);
        manifest.files = paths.iter().map(|path| packed(path, 0)).collect();
        assert_eq!(refusal(&forged(&manifest)), name, "{paths:?}");
    }
}

#[test]
fn a_file_with_other_content_or_another_length_is_refused() {
    let bytes = good();
    let at = bytes.windows(9).position(|part| part == b"#!/bin/sh").unwrap();
    let mut changed = bytes.clone();
    changed[at] ^= 1;
    assert_eq!(refusal(&changed), "FileDigestMismatch");
    let mut longer = bytes.clone();
    longer[at - 1] += 1;
    assert_eq!(refusal(&longer), "FileSizeMismatch");
    assert_eq!(refusal(&bytes[..bytes.len() - 1]), "Truncated");
    assert_eq!(refusal(&[&bytes[..], b"x"].concat()), "TrailingBytes");
    assert_eq!(refusal(&bytes[..20]), "Truncated");
    assert_eq!(refusal(b""), "Truncated");
}

#[test]
fn names_versions_limits_and_sizes_have_bounds() {
    let with = |change: &dyn Fn(&mut Manifest)| {
        let mut manifest = manifest("weather", 7);
        manifest.files = vec![packed("agent", 0)];
        change(&mut manifest);
        refusal(&forged(&manifest))
    };
    for name in ["", "Weather", "../x", "a b", "-a", "7a", &"a".repeat(33)] {
        assert_eq!(with(&|manifest| manifest.name = name.to_owned()), "BadAgentName", "{name:?}");
    }
    assert_eq!(with(&|manifest| manifest.version = 0), "FieldOutOfRange");
    assert_eq!(with(&|manifest| manifest.minimum = 0), "FieldOutOfRange");
    assert_eq!(with(&|manifest| manifest.minimum = 8), "FieldOutOfRange");
    assert_eq!(with(&|manifest| manifest.limits.memory = 1), "FieldOutOfRange");
    assert_eq!(with(&|manifest| manifest.limits.processes = 0), "FieldOutOfRange");
    assert_eq!(with(&|manifest| manifest.start_timeout_ms = 0), "FieldOutOfRange");
    assert_eq!(with(&|manifest| manifest.arguments.clear()), "FieldOutOfRange");
    assert_eq!(with(&|manifest| manifest.arguments[0] = "other".into()), "AgentProgramMissing");
    assert_eq!(with(&|manifest| manifest.files[0].is_executable = false), "AgentProgramMissing");
    assert_eq!(with(&|manifest| manifest.arguments[0] = "/../x".into()), "AgentProgramMissing");
    assert_eq!(with(&|manifest| manifest.files[0].size = u64::MAX), "PackageTooLarge");
    // A huge array or string in the input is refused before it is read.
    assert_eq!(
        refusal(&[0xd2, 0x84, 0x5b, 0, 0, 0, 1, 0, 0, 0, 0].repeat(1 << 16)),
        "PackageTooLarge"
    );
}
