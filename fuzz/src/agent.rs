//! Fuzzes packages of agents. No unsafe path, no wrong content and no unsigned manifest may pass.

use std::io::sink;
use std::path::Path;
use std::sync::OnceLock;

use moteseal_core::cbor::head;
use moteseal_core::digest::Digest;
use moteseal_core::record::GroupId;
use moteseal_hub::agents::manifest::{MAX_MANIFEST, is_agent_name, is_safe_path, sign_payload};
use moteseal_hub::agents::package::{Package, Trust};
use moteseal_hub::agents::{Limits, Manifest, PackageError, PackedFile};

use crate::fixture;

fn trust() -> Trust {
    Trust { group: GroupId::of("home"), operator: fixture::operator().public() }
}

/// Reads a package to its end.
fn read(bytes: &[u8]) -> Result<Manifest, PackageError> {
    let mut package = Package::open(bytes, Path::new("fuzz.agent"), &trust())?;
    let manifest = package.manifest().clone();
    while package.next_file().is_some() {
        package.content(&mut sink())?;
    }
    package.finish()?;
    Ok(manifest)
}

/// Reads the bytes as a package, as the payload of a manifest that the operator has signed, and as
/// the content after such a manifest.
pub fn run(bytes: &[u8]) {
    if read(bytes).is_ok() {
        assert_eq!(bytes, whole(), "a package that was never signed");
    }
    if let Ok(signed) = sign_payload(bytes, &fixture::operator())
        && let Ok(manifest) = Manifest::open(&signed, trust().group, &trust().operator)
    {
        check(&manifest);
        let mut payload = vec![0; bytes.len()];
        assert_eq!(manifest.encode(&mut payload).unwrap(), bytes, "two encodings of one manifest");
    }
    if read(&[signed(), bytes].concat()).is_ok() {
        assert_eq!(bytes, content(), "content that was never signed");
    }
}

/// Checks the properties that every accepted manifest must have.
fn check(manifest: &Manifest) {
    assert!(is_agent_name(&manifest.name) && manifest.version > 0);
    assert!((1..=manifest.version).contains(&manifest.minimum));
    for pair in manifest.files.windows(2) {
        assert!(pair[0].path < pair[1].path, "files out of order");
    }
    let folder = Path::new("folder");
    for file in &manifest.files {
        assert!(is_safe_path(&file.path));
        let path = folder.join(&file.path);
        assert!(path.starts_with(folder));
        let is_normal = |part| matches!(part, std::path::Component::Normal(_));
        assert!(path.components().all(is_normal), "{}", path.display());
    }
}

const PROGRAM: &[u8] = b"#!/bin/sh\n";

fn manifest() -> Manifest {
    let file = |path: &str, content: &[u8]| PackedFile {
        path: path.to_owned(),
        is_executable: true,
        size: content.len() as u64,
        digest: Digest::of(&[content]).0,
    };
    Manifest {
        group: GroupId::of("home"),
        name: "weather".to_owned(),
        version: 7,
        minimum: 3,
        arguments: vec!["agent".to_owned(), "--fast".to_owned()],
        limits: Limits::DEFAULT,
        start_timeout_ms: 1000,
        files: vec![file("agent", PROGRAM), file("lib/empty", b"")],
    }
}

/// The files of the package, as they follow its manifest.
fn content() -> Vec<u8> {
    let mut content = Vec::new();
    for file in [PROGRAM, b""] {
        let (start, length) = head(2, file.len() as u64);
        content.extend_from_slice(&start[..length]);
        content.extend_from_slice(file);
    }
    content
}

/// Returns the signed manifest.
fn signed() -> &'static [u8] {
    static SIGNED: OnceLock<Vec<u8>> = OnceLock::new();
    SIGNED.get_or_init(|| manifest().sign(&fixture::operator()).unwrap())
}

fn whole() -> Vec<u8> {
    [signed(), &content()].concat()
}

/// Returns a package, the payload of its manifest, and its content.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut payload = vec![0; MAX_MANIFEST];
    let payload = manifest().encode(&mut payload).unwrap().to_vec();
    vec![whole(), payload, content()]
}
