//! Who may import whom (ARCHITECTURE.md): a room imports only rooms further down the list, the roles never import each
//! other, and no product imports what is there for comparison or for lying only. Read from `cargo metadata`, so it holds for what is
//! built, not for what a page says. Tests of a crate (its dev-dependencies) keep the order too, but may use `research` and
//! `adversary`.

#![allow(clippy::unwrap_used)]

use cargo_metadata::{DependencyKind, MetadataCommand};

/// The rooms from the top. Those of one line stand side by side and never import each other.
const FLOORS: &[&[&str]] = &[
    &["moteseal", "moteseal-bench", "moteseal-python"],
    &["moteseal-lab"],
    &["moteseal-client"],
    &["moteseal-cloud"],
    &["moteseal-gateway"],
    &["moteseal-device"],
    &["moteseal-net"],
    &["moteseal-store"],
    &["moteseal-api"],
    &["moteseal-research", "moteseal-adversary"],
    &["moteseal-verify"],
    &["moteseal-lanes"],
    &["moteseal-sum"],
    &["moteseal-broadcast", "moteseal-seal", "moteseal-serial"],
    &["moteseal-core"],
];
const ROLES: &[&str] =
    &["moteseal-client", "moteseal-cloud", "moteseal-gateway", "moteseal-device"];
/// Rooms that no product needs, and who may import them nevertheless: everybody's tests, and these.
/// The lab may not: `moteseal sim` links it, and some of what the papers compare with is patented.
const SPECIAL: &[(&str, &str, &[&str])] = &[
    ("moteseal-research", "comparison", &["moteseal-bench"]),
    ("moteseal-adversary", "lying", &["moteseal"]),
];

/// An import: who, whom, and whether only the importer's tests need it.
type Arrow<'a> = (&'a str, &'a str, bool);

fn floor(room: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&room))
}

/// What is wrong with an arrow, if anything.
fn objection((from, to, in_tests): Arrow<'_>) -> Option<String> {
    let (Some(above), Some(below)) = (floor(from), floor(to)) else {
        return Some(format!(
            "{from} -> {to}: not in the list of rooms; add it to FLOORS and to ARCHITECTURE.md"
        ));
    };
    if below <= above {
        Some(format!("{from} -> {to}: imports upward"))
    } else if ROLES.contains(&from) && ROLES.contains(&to) {
        Some(format!("{from} -> {to}: roles never import each other"))
    } else {
        let special = SPECIAL
            .iter()
            .find(|(room, _, users)| *room == to && !in_tests && !users.contains(&from));
        special.map(|(_, purpose, _)| format!("{from} -> {to}: {to} is there for {purpose} only"))
    }
}

#[test]
fn every_import_in_the_workspace_points_down() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    let rooms: Vec<_> =
        metadata.workspace_packages().into_iter().map(|package| package.name.to_string()).collect();
    assert!(rooms.len() > 5, "cargo metadata shows only {rooms:?}");

    let mut objections: Vec<_> = rooms
        .iter()
        .filter(|room| floor(room).is_none())
        .map(|room| format!("{room}: not in the list of rooms"))
        .collect();
    let mut arrows = 0;
    for package in metadata.workspace_packages() {
        for dependency in package.dependencies.iter().filter(|dependency| dependency.path.is_some())
        {
            let in_tests = dependency.kind == DependencyKind::Development;
            // A crate's tests turn on its own features that way.
            if in_tests && dependency.name == package.name.as_str() {
                continue;
            }
            arrows += 1;
            objections.extend(objection((package.name.as_str(), &dependency.name, in_tests)));
        }
    }
    assert!(arrows > 5, "cargo metadata shows only {arrows} imports");
    assert!(objections.is_empty(), "wrong arrows:\n{}", objections.join("\n"));
}

#[test]
fn wrong_arrows_are_named() {
    for arrow in [
        ("moteseal-core", "moteseal-lanes", false),
        ("moteseal-store", "moteseal-cloud", true),
        ("moteseal-bench", "moteseal", false),
        ("moteseal-client", "moteseal-cloud", false),
        ("moteseal-client", "moteseal-device", true),
        ("moteseal-cloud", "moteseal-research", false),
        ("moteseal", "moteseal-research", false),
        ("moteseal-lab", "moteseal-research", false),
        ("moteseal-client", "moteseal-adversary", false),
        ("moteseal-verify", "moteseal-adversary", true),
        ("moteseal", "moteseal-attic", false),
        ("moteseal-lab", "moteseal", false),
        ("moteseal-client", "moteseal-lab", true),
        ("moteseal-lab", "moteseal-bench", true),
    ] {
        assert!(objection(arrow).is_some(), "{arrow:?}");
    }
    for arrow in [
        ("moteseal", "moteseal-client", false),
        ("moteseal-client", "moteseal-net", false),
        ("moteseal-bench", "moteseal-research", false),
        ("moteseal", "moteseal-lab", false),
        ("moteseal-lab", "moteseal-core", false),
        ("moteseal-lab", "moteseal-research", true),
        ("moteseal-store", "moteseal-research", true),
        ("moteseal", "moteseal-adversary", false),
        ("moteseal-client", "moteseal-adversary", true),
    ] {
        assert_eq!(objection(arrow), None, "{arrow:?}");
    }
}
