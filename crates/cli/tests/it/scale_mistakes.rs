//! The wrong turns of an operator of a cloud on engines: each is one line at the start that says how to mend it.

use std::process::{Command, Stdio};

use crate::coap_transport::ROSTER;
use crate::nats::Server;
use crate::scene::{Run, Scene};
use crate::table_store::shared;

fn start(scene: &Scene, more: &[&str]) -> Run {
    let run = ["cloud", "run", "--listen", "127.0.0.1:0"];
    let run = scene.command(&[&run[..], &ROSTER, more].concat());
    // A cloud that does not notice the mistake runs until it is killed.
    let mut bounded = Command::new("timeout");
    bounded.args(["--signal=KILL", "60"]).arg(run.get_program()).args(run.get_args());
    bounded.current_dir(run.get_current_dir().unwrap()).stdin(Stdio::null());
    bounded.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Run::of(bounded.output().unwrap())
}

#[track_caller]
fn refused(run: &Run, code: i32, name: &str, words: &[&str]) {
    let line = run.failed(code);
    println!("{line}");
    assert!(line.starts_with(&format!("moteseal: {name}: ")), "{line}");
    for word in words {
        assert!(line.contains(word), "{word:?} is not in: {line}");
    }
}

#[test]
fn every_wrong_turn_with_cassandra_is_one_line_at_the_start() {
    let (scene, cassandra) = (Scene::new(), shared());
    let keyspace = cassandra.address("mistakes");
    let store = keyspace.to_string();
    let with = |store: &str| start(&scene, &["--store", store]);
    let other = cassandra.address("mistaken").to_string();
    refused(&with(&other), 2, "TableNoKeyspace", &["keyspace mistaken", "store init"]);
    scene.run(&["store", "init", "--replicas", "1", "--store", &store]).done();

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let session = runtime.block_on(cassandra.session(&keyspace));
    let cql = |statement: &str| runtime.block_on(session.query_unpaged(statement, &[])).unwrap();
    // The highest of the versions in the table counts.
    let version = |version: u32| {
        cql("DELETE FROM schema_version WHERE one = 0");
        cql(&format!("INSERT INTO schema_version (one, version) VALUES (0, {version})"));
    };
    version(0);
    refused(&with(&store), 2, "TableOlder", &["version 0", "store init"]);
    version(99);
    refused(&with(&store), 2, "TableNewer", &["version 99", "newer program"]);
    let init = scene.run(&["store", "init", "--store", &store]);
    refused(&init, 2, "TableNewer", &["version 99"]);
    version(2);

    // A role without permissions, one that may only read, and a wrong password.
    cql("CREATE ROLE mistaken WITH PASSWORD = 'cassandra' AND LOGIN = true");
    let mistaken = store.replace("cassandra@", "mistaken@");
    refused(&with(&mistaken), 2, "TableForbidden", &["the user mistaken", "docs/scale.md"]);
    cql("GRANT SELECT ON KEYSPACE mistakes TO mistaken");
    cql("GRANT SELECT ON system_views.settings TO mistaken");
    std::thread::sleep(std::time::Duration::from_secs(3));
    refused(&with(&mistaken), 2, "TableForbidden", &["write its tables", "docs/scale.md"]);
    scene.write("cassandra.password", "wrong");
    let words = ["cassandra", "MOTESEAL_CASSANDRA_PASSWORD", "check its password"];
    refused(&with(&store), 2, "TableRejected", &words);
    std::fs::remove_file(scene.path("cassandra.password")).unwrap();

    // Three replicas on one node, and no node at all.
    let three = cassandra.address("mistaken_three").to_string();
    let init = scene.run(&["store", "init", "--replicas", "3", "--store", &three]);
    refused(&init, 6, "TableReplicas", &["1 of the 2 replicas", "start the missing nodes"]);
    refused(&with(&three), 6, "TableReplicas", &["1 of the 2 replicas", "start the missing nodes"]);
    let closed = crate::nats::free_port();
    let nowhere = format!("cassandra://cassandra@127.0.0.1:{closed}/mistakes");
    refused(&with(&nowhere), 6, "TableUnreachable", &["check that it runs"]);
}

#[test]
fn every_wrong_turn_with_jetstream_is_one_line_at_the_start() {
    let scene = Scene::new();
    let intake = |nats: &Server, more: &[&str]| {
        start(&scene, &[&["--role", "intake"][..], &nats.arguments(), more].concat())
    };
    let without = Server::with("disabled", "");
    refused(&intake(&without, &[]), 2, "NoJetStream", &["store_dir"]);
    let lazy = Server::with("", "");
    let limits = ["--max-mib", "16", "--piece-mib", "16", "--dead-mib", "4"];
    scene.run(&[&["stream", "init"][..], &limits, &lazy.arguments()].concat()).done();
    refused(&intake(&lazy, &[]), 2, "NotSynced", &["sync_interval: always", "restart"]);
    let unknown = ["--role", "intake", "--stream", &lazy.url];
    refused(&start(&scene, &unknown), 2, "Usage", &["--stream-monitor"]);
    let bare = [&unknown[..], &["--stream-monitor", "127.0.0.1:28222"]].concat();
    refused(&start(&scene, &bare), 2, "Usage", &["127.0.0.1:28222", "https://HOST:8222"]);
    let synced = Server::start();
    refused(&intake(&synced, &[]), 2, "StreamMissing", &["moteseal stream init"]);
    refused(&intake(&synced, &["--stream-replicas", "3"]), 2, "Usage", &["3 replicas"]);
    let closed = format!("nats://127.0.0.1:{}", crate::nats::free_port());
    let unreachable = ["--role", "intake", "--stream", &closed, "--stream-sync", "unchecked"];
    refused(&start(&scene, &unreachable), 6, "Unreachable", &["check that the servers run"]);
}

#[test]
fn a_mistyped_url_of_a_store_is_no_file() {
    let scene = Scene::new();
    let with = |role: &str, store: &str| {
        let stream = ["--stream", "nats://127.0.0.1:1", "--stream-sync", "unchecked"];
        start(&scene, &[&["--role", role, "--store", store][..], &stream].concat())
    };
    let before = scene.names(".");
    for role in ["worker", "serve", "intake,worker"] {
        for store in ["cassandra", "127.0.0.1:29042", "epochs.redb"] {
            let run = with(role, store);
            let line = run.failed(2);
            println!("{line}");
            for word in [store, "one process", "cassandra://", "--role worker,serve"] {
                assert!(line.contains(word), "{word:?} is not in: {line}");
            }
        }
    }
    for role in ["all", "worker", "worker,serve", "intake"] {
        for store in ["cassandra:moteseal", "Cassandra://127.0.0.1/moteseal", "redis://127.0.0.1/k"]
        {
            refused(&with(role, store), 2, "TableAddress", &[store, "write cassandra://"]);
        }
        let words = ["cassandra, too", "write cassandra://"];
        refused(&with(role, "scylla://127.0.0.1/moteseal"), 2, "TableAddress", &words);
    }
    refused(&start(&scene, &["--store", "cassandra:k"]), 2, "TableAddress", &["cassandra:k"]);
    assert_eq!(scene.names("."), before, "no file was made");
}

#[test]
fn a_password_of_cassandra_is_not_sent_to_another_machine_without_tls() {
    let scene = Scene::new();
    // Addresses for documentation, at which nothing answers.
    for store in ["cassandra://me@192.0.2.1/k", "cassandra://me@127.0.0.1:1,192.0.2.1:9042/k"] {
        let words = ["the user me", "192.0.2.1:9042", "add ?ca=FILE"];
        refused(&start(&scene, &["--store", store]), 2, "PasswordInClear", &words);
        let init = scene.run(&["store", "init", "--store", store]);
        refused(&init, 2, "PasswordInClear", &words);
    }
    let table = "[table]\nstore = \"cassandra://192.0.2.1/k\"\nsuperuser = \"root\"\n";
    scene.write("policy.toml", &format!("{table}[processes]\none = [\"worker\"]\n"));
    let policy = |command: &str, folder: &str| {
        scene.run(&["cloud", "policy", command, "policy.toml", folder, "policy"])
    };
    policy("init", "--out").done();
    refused(&policy("apply", "--from"), 2, "PasswordInClear", &["the user root", "add ?ca=FILE"]);
}

#[test]
fn options_of_http_and_coap_are_refused_for_a_worker() {
    let scene = Scene::new();
    let stream = ["--stream", "nats://127.0.0.1:1", "--stream-sync", "unchecked"];
    let store = ["--store", "cassandra://127.0.0.1:1/k"];
    for options in [
        &["--tls-cert", "server.pem", "--tls-key", "server.key"][..],
        &["--tokens", "tokens"],
        &["--users", "users"],
        &["--listen-coap", "127.0.0.1:0"],
        &["--listen-coaps", "127.0.0.1:0", "--link-secret", "cloud.key"],
    ] {
        let run = start(&scene, &[&["--role", "worker"][..], &store, &stream, options].concat());
        let line = run.failed(2);
        println!("{line}");
        for word in [options[0], "only a worker", "leave the option out"] {
            assert!(line.contains(word), "{word:?} is not in: {line}");
        }
    }
}
