//! `--check` verifies that the keys and secrets of a configuration belong together: finding G5 of
//! the review.

use crate::scene::{Run, Scene};

const USAGE: i32 = 2;
const COMMON: &str = "roster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\n";
const LINK: &str = "[link]\nurl = \"mqtt://127.0.0.1:1\"\n";

/// Makes a group with a budget, a link secret for it and for both devices, and configurations.
fn site() -> Scene {
    let scene = Scene::new();
    for name in ["gateway", "querier", "other"] {
        scene.run(&["key", "new", "--out", &format!("keys/{name}")]).done();
    }
    let set = ["roster", "set", "--roster", "roster.cbor", "--operator", "keys/op.key.pem"];
    let budget = ["--budget", "100", "--coordinator", "keys/gateway.pub.pem"];
    let querier = ["--querier", "keys/querier.pub.pem"];
    scene.run(&[&set[..], &budget, &querier].concat()).done();
    for name in ["link", "stray"] {
        scene.run(&["key", "link", "--out", &format!("keys/{name}.key")]).done();
    }
    for (of, device, out) in [
        ("link", "dev1", "dev1.link"),
        ("link", "dev2", "dev2.link"),
        ("stray", "dev1", "dev1.stray"),
    ] {
        let (of, out) = (format!("keys/{of}.key"), format!("keys/{out}.key"));
        let derive = ["key", "link", "--group-secret", &of, "--device", device, "--out", &out];
        scene.with_roster(&derive).done();
    }
    scene
}

fn gateway(scene: &Scene, secret: &str) -> Run {
    let config = format!(
        "{COMMON}key = \"keys/gateway.key.pem\"\nlink_secret = \"keys/{secret}.key\"\nstate = \"gateway\"\n{LINK}"
    );
    scene.write("gateway.toml", &config);
    scene.run(&["gateway", "run", "--config", "gateway.toml", "--check", "--json"])
}

fn device(scene: &Scene, key: &str, secret: &str) -> Run {
    let config = format!(
        "device = \"dev1\"\nkey = \"keys/{key}.key.pem\"\n{COMMON}link_secret = \"keys/{secret}.key\"\nstate = \"dev1\"\n{LINK}\
         [source]\ncolumns = [\"temperature:Cel:i16/100\"]\n"
    );
    scene.write("dev1.toml", &config);
    scene.run(&["device", "run", "--config", "dev1.toml", "--check", "--json"])
}

#[test]
fn the_link_secret_of_another_device_or_end_is_rejected() {
    let scene = site();
    let error = device(&scene, "dev1", "dev2.link");
    let message = error.failed(USAGE);
    assert!(
        message.contains("WrongDevice: this is the link secret of dev2; derive the secret of dev1"),
        "{message}"
    );
    let error = gateway(&scene, "dev1.link");
    let message = error.failed(USAGE);
    assert!(
        message.contains("WrongDevice: this is the link secret of dev1; the upper end"),
        "{message}"
    );
    let error = device(&scene, "dev2", "dev1.link");
    assert!(error.failed(USAGE).contains("dev1"), "{error:?}");
}

#[test]
fn both_ends_of_a_link_show_the_same_name_of_the_secret() {
    let scene = site();
    let (own, stray) =
        (gateway(&scene, "link").done().json(), gateway(&scene, "stray").done().json());
    let of_device = |secret| device(&scene, "dev1", secret).done().json()["secret"].clone();
    assert_eq!(
        (of_device("dev1.link"), of_device("dev1.stray")),
        (own["secret"].clone(), stray["secret"].clone())
    );
    assert_ne!(own["secret"], stray["secret"]);
    // The name is not a part of the secret.
    let file = std::fs::read_to_string(scene.path("keys/link.key")).unwrap();
    assert!(!file.contains(own["secret"].as_str().unwrap()));
}

#[test]
fn another_querier_than_the_roster_names_is_rejected() {
    let scene = site();
    let setup = |querier: &str, out: &str| {
        let key = format!("keys/{querier}.pub.pem");
        scene.with_roster(&["sum", "setup", "--querier", &key, "--out", out])
    };
    let wrong = setup("other", "wrong");
    assert!(wrong.failed(USAGE).contains("WrongQuerier: "), "{wrong:?}");
    assert!(!scene.path("wrong").exists());
    setup("querier", "sums").done();

    scene.write(
        "tree.toml",
        "[gateways]\ngw-a = \"querier\"\n[devices]\ndev1 = \"gw-a\"\ndev2 = \"gw-a\"\n",
    );
    let up = ["key", "link", "--group-secret", "keys/link.key", "--gateway", "gw-a"];
    scene.with_roster(&[&up[..], &["--out", "keys/up.key"]].concat()).done();
    let aggregator = |querier: &str, up: &str| {
        let config = format!(
            "name = \"gw-a\"\n{COMMON}querier = \"keys/{querier}.pub.pem\"\ntree = \"tree.toml\"\n\
             link_secret = \"keys/stray.key\"\nup_secret = \"keys/{up}.key\"\nstate = \"gw-a\"\n{LINK}"
        );
        scene.write("aggregator.toml", &config);
        scene.run(&["gateway", "sum", "--config", "aggregator.toml", "--check", "--json"])
    };
    assert_eq!(aggregator("querier", "up").done().json()["valid"], true);
    let wrong = aggregator("other", "up");
    assert!(wrong.failed(USAGE).contains("querier: WrongQuerier: "), "{wrong:?}");
    let wrong = aggregator("querier", "dev1.link");
    assert!(wrong.failed(USAGE).contains("up_secret: "), "{wrong:?}");
}
