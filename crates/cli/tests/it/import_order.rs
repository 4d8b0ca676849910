//! Checks the rules for imports between crates (ARCHITECTURE.md). A crate imports only crates
//! further down the list. The roles never import each other. `moteseal` links no crate that exists
//! only for attacks, experiments or comparison.
//!
//! The imports are read from `cargo metadata`. The order also applies to the tests of a crate (its
//! dev-dependencies), except that they may use `research`, `adversary` and `fixtures`.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand, Package, PackageId};

/// The crates, from the top down. Crates in the same row never import each other.
const FLOORS: &[&[&str]] = &[
    &["moteseal", "moteseal-bench", "moteseal-demo", "moteseal-python", "moteseal-vectors"],
    &["moteseal-lab"],
    &["moteseal-hub"],
    &["moteseal-client"],
    &["moteseal-cloud"],
    &["moteseal-gateway"],
    &["moteseal-device"],
    &["moteseal-service"],
    &["moteseal-net"],
    &["moteseal-stream"],
    &["moteseal-table"],
    &["moteseal-store"],
    &["moteseal-terminal"],
    &["moteseal-files"],
    &["moteseal-api"],
    &["moteseal-research", "moteseal-adversary", "moteseal-fixtures"],
    &["moteseal-grant"],
    &["moteseal-verify"],
    &["moteseal-lanes"],
    &["moteseal-sum"],
    &["moteseal-broadcast", "moteseal-seal", "moteseal-serial"],
    &["moteseal-core"],
];
const ROLES: &[&str] =
    &["moteseal-client", "moteseal-cloud", "moteseal-gateway", "moteseal-device", "moteseal-hub"];
/// A role that is built on another one: the hub runs a device for each of its sensors.
const HOSTS: &[(&str, &str)] = &[("moteseal-hub", "moteseal-device")];
/// Crates that no product needs, what they are for, and which crates may import them outside tests.
/// The lab may not import `research`, because some of the schemes that the papers compare with are
/// patented.
const SPECIAL: &[(&str, &str, &[&str])] = &[
    ("moteseal-research", "comparison", &["moteseal-bench"]),
    ("moteseal-adversary", "attacks", &["moteseal-demo", "moteseal-vectors"]),
    ("moteseal-fixtures", "tests", &["moteseal-vectors"]),
    ("moteseal-lab", "experiments", &["moteseal-bench", "moteseal-demo"]),
];

/// Roles that the documentation tests of another role use: the example on the front page of
/// `client` seals, pushes, gets and verifies.
const EXAMPLES: &[(&str, &str)] =
    &[("moteseal-client", "moteseal-cloud"), ("moteseal-client", "moteseal-device")];

/// An import: the importing crate, the imported one, and whether only tests need it.
type Import<'a> = (&'a str, &'a str, bool);

fn floor(name: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&name))
}

/// Returns what is wrong with an import, or `None`.
fn objection((from, to, in_tests): Import<'_>) -> Option<String> {
    let (Some(above), Some(below)) = (floor(from), floor(to)) else {
        return Some(format!(
            "{from} -> {to}: not in the list of crates; add it to FLOORS and to ARCHITECTURE.md"
        ));
    };
    // The fixtures import `verify`, and the tests of `verify` import the fixtures.
    if in_tests && to == "moteseal-fixtures" {
        return None;
    }
    if below <= above {
        Some(format!("{from} -> {to}: imports upward"))
    } else if (in_tests && EXAMPLES.contains(&(from, to))) || HOSTS.contains(&(from, to)) {
        None
    } else if ROLES.contains(&from) && ROLES.contains(&to) {
        Some(format!("{from} -> {to}: roles never import each other"))
    } else {
        let special = SPECIAL
            .iter()
            .find(|(name, _, users)| *name == to && !in_tests && !users.contains(&from));
        special.map(|(_, purpose, _)| format!("{from} -> {to}: {to} is for {purpose} only"))
    }
}

#[test]
fn every_import_in_the_workspace_points_down() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    let crates: Vec<_> =
        metadata.workspace_packages().into_iter().map(|package| package.name.to_string()).collect();
    assert!(crates.len() > 5, "cargo metadata shows only {crates:?}");

    let mut objections: Vec<_> = crates
        .iter()
        .filter(|name| floor(name).is_none())
        .map(|name| format!("{name}: not in the list of crates"))
        .collect();
    let mut imports = 0;
    for package in metadata.workspace_packages() {
        for dependency in package.dependencies.iter().filter(|dependency| dependency.path.is_some())
        {
            let in_tests = dependency.kind == DependencyKind::Development;
            // A crate's tests import the crate itself to enable its features.
            if in_tests && dependency.name == package.name.as_str() {
                continue;
            }
            imports += 1;
            objections.extend(objection((package.name.as_str(), &dependency.name, in_tests)));
        }
    }
    assert!(imports > 5, "cargo metadata shows only {imports} imports");
    assert!(objections.is_empty(), "wrong imports:\n{}", objections.join("\n"));
}

#[test]
fn moteseal_links_no_adversary_lab_or_research() {
    let metadata = MetadataCommand::new()
        .other_options(["--locked", "--filter-platform", &host()].map(str::to_owned))
        .exec()
        .unwrap();
    let packages: BTreeMap<&PackageId, &Package> =
        metadata.packages.iter().map(|package| (&package.id, package)).collect();
    let nodes = metadata.resolve.as_ref().unwrap().nodes.iter();
    let nodes: BTreeMap<_, _> = nodes.map(|node| (&node.id, node)).collect();

    let binary = metadata.packages.iter().find(|package| package.name.as_str() == "moteseal");
    let mut linked = BTreeSet::new();
    let mut open = vec![&binary.unwrap().id];
    while let Some(id) = open.pop() {
        if linked.insert(id) {
            let normal = nodes[id].deps.iter().filter(|dependency| {
                dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
            });
            open.extend(normal.map(|dependency| &dependency.pkg));
        }
    }
    let linked: BTreeSet<&str> = linked.iter().map(|id| packages[id].name.as_str()).collect();
    for name in ["moteseal-core", "moteseal-client", "tokio"] {
        assert!(linked.contains(name), "the graph is not complete: no {name} in {linked:?}");
    }
    let special = SPECIAL.iter().map(|(name, ..)| name);
    let found: Vec<_> = special.filter(|name| linked.contains(*name)).collect();
    assert!(found.is_empty(), "moteseal links {found:?}");
}

/// Returns the target for which the tests are compiled: only its dependencies need to be
/// downloaded.
fn host() -> String {
    let rustc = std::process::Command::new("rustc").arg("-vV").output().unwrap();
    let text = String::from_utf8(rustc.stdout).unwrap();
    text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

#[test]
fn forbidden_imports_are_reported_and_allowed_ones_are_not() {
    for import in [
        ("moteseal-core", "moteseal-lanes", false),
        ("moteseal-store", "moteseal-cloud", true),
        ("moteseal-bench", "moteseal", false),
        ("moteseal-client", "moteseal-cloud", false),
        ("moteseal-client", "moteseal-device", false),
        ("moteseal-client", "moteseal-gateway", true),
        ("moteseal-device", "moteseal-hub", false),
        ("moteseal-hub", "moteseal-gateway", false),
        ("moteseal-hub", "moteseal-client", true),
        ("moteseal-cloud", "moteseal-research", false),
        ("moteseal", "moteseal-research", false),
        ("moteseal-lab", "moteseal-research", false),
        ("moteseal-client", "moteseal-adversary", false),
        ("moteseal-verify", "moteseal-adversary", true),
        ("moteseal", "moteseal-attic", false),
        ("moteseal-lab", "moteseal", false),
        ("moteseal-client", "moteseal-lab", true),
        ("moteseal-lab", "moteseal-bench", true),
        ("moteseal", "moteseal-lab", false),
        ("moteseal", "moteseal-adversary", false),
        ("moteseal", "moteseal-demo", false),
        ("moteseal-verify", "moteseal-fixtures", false),
    ] {
        assert!(objection(import).is_some(), "{import:?}");
    }
    for import in [
        ("moteseal", "moteseal-client", false),
        ("moteseal-client", "moteseal-net", false),
        ("moteseal-bench", "moteseal-research", false),
        ("moteseal-demo", "moteseal-lab", false),
        ("moteseal-lab", "moteseal-core", false),
        ("moteseal-lab", "moteseal-research", true),
        ("moteseal-store", "moteseal-research", true),
        ("moteseal-demo", "moteseal-adversary", false),
        ("moteseal-client", "moteseal-adversary", true),
        ("moteseal-client", "moteseal-device", true),
        ("moteseal-hub", "moteseal-device", false),
        ("moteseal-verify", "moteseal-fixtures", true),
    ] {
        assert_eq!(objection(import), None, "{import:?}");
    }
}
