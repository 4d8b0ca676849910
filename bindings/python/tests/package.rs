//! Checks that two files agree on each fact that both of them state about the package. Because this
//! test is in Rust, `cargo test` also builds the extension module, and `test.sh` does not have to
//! compile it. The tests of the package's behaviour are in Python.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

#[test]
fn the_oldest_python_is_that_of_the_stable_abi() {
    let (cargo, project) = (read("../../Cargo.toml"), read("pyproject.toml"));
    let minor = cargo.split("abi3-py3").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    for line in
        [format!("requires-python = \">=3.{minor}\""), format!("python_version = \"3.{minor}\"")]
    {
        assert!(project.contains(&line), "pyproject.toml does not contain {line}");
    }
}

#[test]
fn the_extension_module_has_the_name_that_the_package_imports() {
    assert!(read("pyproject.toml").contains("module-name = \"moteseal._moteseal\""));
    assert!(read("Cargo.toml").contains("name = \"_moteseal\""));
    assert!(read("python/moteseal/__init__.py").contains("from moteseal._moteseal import"));
}
