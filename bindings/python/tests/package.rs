//! What the package says of itself in two places is the same in both. That there is a test in Rust at all makes `cargo test` build
//! the extension module, so that `test.sh` finds it without compiling anything of its own; the tests of what it does are Python's.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

#[test]
fn the_oldest_python_is_the_one_whose_stable_interface_is_used() {
    let (cargo, project) = (read("../../Cargo.toml"), read("pyproject.toml"));
    let minor = cargo.split("abi3-py3").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    for said in
        [format!("requires-python = \">=3.{minor}\""), format!("python_version = \"3.{minor}\"")]
    {
        assert!(project.contains(&said), "pyproject.toml does not say {said}");
    }
}

#[test]
fn the_extension_module_is_named_as_the_package_imports_it() {
    assert!(read("pyproject.toml").contains("module-name = \"moteseal._moteseal\""));
    assert!(read("Cargo.toml").contains("name = \"_moteseal\""));
    assert!(read("python/moteseal/__init__.py").contains("from moteseal._moteseal import"));
}
