//! Tests the configuration of an aggregator of private sums: keys, a tree, and the error for each
//! mistake in them.

use std::fs;

use crate::scene::Scene;

const TREE: &str = "[gateways]\nroot = \"querier\"\nleaf = \"root\"\n[devices]\ndev1 = \"leaf\"\ndev2 = \"root\"\n";

fn config(name: &str) -> String {
    format!(
        "name = \"{name}\"\nroster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\nquerier = \"keys/stranger.pub.pem\"\n\
         tree = \"tree.toml\"\nlink_secret = \"keys/{name}.link.key\"\nup_secret = \"keys/{name}.up.key\"\nstate = \"{name}\"\n\
         grace = \"300ms\"\nlisten = \"127.0.0.1:0\"\n[link]\nurl = \"mqtt://127.0.0.1:1\"\n"
    )
}

/// Makes a scene with a tree of two gateways, all link secrets, and the configurations.
fn site() -> Scene {
    let scene = Scene::new();
    scene.write("tree.toml", TREE);
    for aggregator in ["querier", "root", "leaf"] {
        scene.run(&["key", "link", "--out", &format!("keys/{aggregator}.link.key")]).done();
    }
    let group = ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem"];
    for (aggregator, kind, child, out) in [
        ("querier", "--gateway", "root", "keys/root.up.key"),
        ("root", "--gateway", "leaf", "keys/leaf.up.key"),
        ("root", "--device", "dev2", "keys/dev2.link.key"),
        ("leaf", "--device", "dev1", "keys/dev1.link.key"),
    ] {
        let secret = format!("keys/{aggregator}.link.key");
        let arguments = ["key", "link", "--group-secret", &secret, kind, child, "--out", out];
        scene.run(&[&arguments[..], &group[..]].concat()).done();
    }
    for name in ["root", "leaf"] {
        scene.write(&format!("{name}.toml"), &config(name));
    }
    scene
}

#[test]
fn check_prints_what_the_gateway_would_do() {
    let scene = site();
    let group = fs::read_to_string(scene.path("tree.toml"))
        .map(|_| moteseal_core::GroupId::of("home").to_string())
        .unwrap();
    let checked = scene.run(&["gateway", "sum", "--config", "root.toml", "--check"]).done();
    for line in [
        "group    home, 2 devices",
        "children 1 gateway and 1 device",
        &format!("link     mqtt://127.0.0.1:1 as {group}.root"),
        &format!("above    querier, mqtt://127.0.0.1:1 as {group}.querier"),
        "state    ./root",
        "epochs   are forwarded when all children have answered, at the latest 600 ms after their end",
        "listen   127.0.0.1:0",
        "the configuration is valid; without --check the gateway would run now",
    ] {
        assert!(
            checked.out.lines().any(|printed| printed == line),
            "{line:?} is not in {}",
            checked.out
        );
    }
    assert!(!scene.path("root").exists(), "--check created the state folder");
    let checked = scene.run(&["gateway", "sum", "--config", "leaf.toml", "--check"]).done();
    assert!(
        checked.out.contains(&format!("above    root, mqtt://127.0.0.1:1 as {group}.root")),
        "{}",
        checked.out
    );
}

#[test]
fn a_configuration_error_is_one_line_that_names_the_key() {
    let scene = site();
    let good = config("root");
    for (from, to, expected) in [
        (
            "name = \"root\"",
            "name = \"rot\"",
            "root.toml: name: UnknownGateway: the tree has no gateway \"rot\"; it has leaf, root",
        ),
        ("name = \"root\"", "name = \"querier\"", "root.toml: name: UnknownGateway"),
        ("\"300ms\"", "\"soon\"", "root.toml:9: \"soon\""),
        ("keys/stranger.pub.pem", "keys/op.key.pem", "root.toml: querier: "),
        ("keys/root.up.key", "nowhere.key", "root.toml: up_secret: cannot read"),
        ("tree.toml", "roster.cbor", "root.toml: tree: "),
        ("mqtt://127.0.0.1:1", "ftp://x", "root.toml: link: BadAddress"),
        (
            "[link]",
            "[up_link]\nurl = \"mqtt://h\"\nuser = \"u\"\n[link]",
            "root.toml: up_link.user: ",
        ),
        ("[link]", "[link]\ngroup = \"x\"", "unknown field `group`"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        scene.write("root.toml", &bad);
        let run = scene.run(&["gateway", "sum", "--config", "root.toml", "--check"]);
        assert!(run.failed(2).contains(expected), "{expected}: {run:?}");
    }
    scene.write("root.toml", &good);
    for (from, to, expected) in [
        (
            "leaf = \"root\"",
            "leaf = \"rot\"",
            "root.toml: tree: ./tree.toml: UnknownParent: the parent of \"leaf\" is \"rot\"",
        ),
        (
            "dev1 = \"leaf\"",
            "dev1 = \"root\"",
            "NoSources: the gateway \"leaf\" has no device below it",
        ),
        ("dev2 = \"root\"\n", "", "DevicesMissing: these devices have no gateway: dev2;"),
        ("dev2 = \"root\"", "dev3 = \"root\"", "UnknownDevice: the roster has no device \"dev3\""),
        ("dev2 = \"root\"", "dev2 = \"rot\"", "UnknownGateway: the gateway of \"dev2\" is \"rot\""),
        ("[devices]", "leaf = \"querier\"\n[devices]", "tree.toml:4: duplicate key"),
        ("[devices]", "[motes]", "tree.toml:4: unknown field `motes`"),
    ] {
        let bad = TREE.replacen(from, to, 1);
        assert_ne!(bad, TREE, "{from}");
        scene.write("tree.toml", &bad);
        let run = scene.run(&["gateway", "sum", "--config", "root.toml", "--check"]);
        assert!(run.failed(2).contains(expected), "{expected}: {run:?}");
    }
}

#[test]
fn a_link_secret_of_a_gateway_needs_a_valid_gateway_name() {
    let scene = site();
    let group = ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem"];
    let derive = |name: &str| {
        let arguments = [
            "key",
            "link",
            "--group-secret",
            "keys/root.link.key",
            "--gateway",
            name,
            "--out",
            "keys/new.key",
        ];
        scene.run(&[&arguments[..], &group[..]].concat())
    };
    assert!(derive("querier").failed(2).contains("ReservedName"));
    assert!(derive("a/b").failed(2).contains("InvalidGatewayName"));
    derive("other").done();
    let other = fs::read(scene.path("keys/new.key")).unwrap();
    assert_ne!(other, fs::read(scene.path("keys/leaf.up.key")).unwrap());
    // Like a device's secret, a gateway's secret is derived from its parent's secret alone.
    fs::remove_file(scene.path("keys/new.key")).unwrap();
    derive("leaf").done();
    assert_eq!(
        fs::read(scene.path("keys/new.key")).unwrap(),
        fs::read(scene.path("keys/leaf.up.key")).unwrap()
    );
}
