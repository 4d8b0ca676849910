//! Every wrong turn of an operator is one line at the start that states what is wrong and what to do.

use moteseal_stream::{Layout, Role, Settings, Stream, StreamError, SyncCheck};
use serde_json::{Value, json};

use crate::testbed::*;

/// Connects and checks as a role, which must fail, and returns the name of the error and its line.
async fn refused(settings: Settings, role: Role) -> (&'static str, String) {
    let error = match Stream::connect(settings).await {
        Ok(stream) => stream.check(role).await.unwrap_err(),
        Err(error) => error,
    };
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    (error.name(), line)
}

async fn assert_refused(settings: Settings, role: Role, name: &str, words: &[&str]) {
    let (found, line) = refused(settings, role).await;
    assert_eq!(found, name, "{line}");
    for word in words {
        assert!(line.contains(word), "{word:?} is not in: {line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_cannot_be_used() {
    let good = settings(shared(), "unused", Role::Intake);
    for (settings, word) in [
        (Settings { servers: vec![], ..good.clone() }, "nats://HOST:PORT"),
        (Settings { servers: vec!["nats://a:b:c".to_owned()], ..good.clone() }, "nats://HOST:PORT"),
        (Settings { name: "a.b".to_owned(), ..good.clone() }, "\"a.b\""),
        (Settings { replicas: 2, ..good.clone() }, "1, 3 or 5"),
        (Settings { credentials: Some("/absent".into()), ..good.clone() }, "/absent"),
        (Settings { ca: Some("/absent".into()), ..good.clone() }, "/absent"),
    ] {
        assert_refused(settings, Role::Intake, "Usage", &[word]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_answer() {
    let settings = Settings {
        servers: vec!["nats://user:secret@127.0.0.1:9".to_owned()],
        ..settings(shared(), "unused", Role::Intake)
    };
    let (name, line) = refused(settings, Role::Intake).await;
    assert_eq!(name, "Unreachable");
    assert!(line.contains("nats://127.0.0.1:9") && !line.contains("secret"), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_jetstream_or_without_syncing() {
    let server = Server::with("disabled", "");
    let unchecked =
        Settings { sync: SyncCheck::Unchecked, ..settings(&server, "none", Role::Intake) };
    assert_refused(unchecked.clone(), Role::Intake, "NoJetStream", &["store_dir"]).await;
    let stream = Stream::connect(unchecked).await.unwrap();
    let error = stream.init(&layout()).await.unwrap_err();
    assert_eq!(error.name(), "NoJetStream", "{error}");
    assert_refused(settings(&server, "none", Role::Intake), Role::Intake, "NoJetStream", &[]).await;

    let server = Server::with("", "");
    let name = created(&server, &layout()).await;
    let good = settings(&server, &name, Role::Worker);
    let words = ["sync_interval: always", "restart"];
    assert_refused(good.clone(), Role::Worker, "NotSynced", &words).await;
    let none = Settings { sync: SyncCheck::Monitors(vec![]), ..good.clone() };
    assert_refused(none, Role::Worker, "Usage", &["--stream-monitor"]).await;
    let wrong = SyncCheck::Monitors(vec![server.url.replace("nats", "http")]);
    let wrong = Settings { sync: wrong, ..good.clone() };
    assert_refused(wrong, Role::Worker, "NotSynced", &["http: HOST:8222"]).await;
    let unchecked = Settings { sync: SyncCheck::Unchecked, ..good };
    Stream::connect(unchecked).await.unwrap().check(Role::Worker).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fewer_servers_are_checked_than_there_are_replicas() {
    let settings = Settings { replicas: 3, ..settings(shared(), "unused", Role::Intake) };
    assert_refused(settings, Role::Intake, "Usage", &["3 replicas", "1 servers"]).await;
}

/// The stream works with two of three servers, so a process can start, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_of_the_servers_is_checked() {
    let (other, unsynced) = (Server::start(), Server::with("", ""));
    let (first, second, third) = (&shared().monitor, &other.monitor, &unsynced.monitor);
    let down = "http://127.0.0.1:9".to_owned();
    let of = |monitors: &[&String]| {
        let sync = SyncCheck::Monitors(monitors.iter().map(|of| (*of).clone()).collect());
        Settings { replicas: 3, sync, ..settings(shared(), "absent", Role::Intake) }
    };
    let missing = "StreamMissing";
    assert_refused(of(&[first, &down, second]), Role::Intake, missing, &["stream init"]).await;
    for monitors in [[first, &down, first], [first, &down, &down]] {
        assert_refused(of(&monitors), Role::Intake, "Usage", &["3 replicas", "2 servers"]).await;
    }
    let also_down = "http://127.0.0.1:7".to_owned();
    let words = ["127.0.0.1:", "http: HOST:8222"];
    assert_refused(of(&[first, &down, &also_down]), Role::Intake, "NotSynced", &words).await;
    let words = ["sync_interval: always"];
    assert_refused(of(&[first, &down, third]), Role::Intake, "NotSynced", &words).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_is_checked_than_the_one_that_has_the_stream() {
    let name = created(shared(), &layout()).await;
    let other = Server::start();
    let sync = SyncCheck::Monitors(vec![other.monitor.clone()]);
    let settings = Settings { sync, ..settings(shared(), &name, Role::Worker) };
    let words = [&*format!("stream {name}"), "--stream-monitor"];
    assert_refused(settings, Role::Worker, "NotSynced", &words).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_missing_or_have_another_configuration() {
    let client = async_nats::connect(&shared().url).await.unwrap();
    let api = |subject: String, body: Value| {
        let client = client.clone();
        async move {
            let answer =
                client.request(format!("$JS.API.{subject}"), body_of(&body).into()).await.unwrap();
            let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
            assert!(answer.get("error").is_none(), "{answer}");
            answer
        }
    };
    let missing = settings(shared(), "absent", Role::Intake);
    assert_refused(missing, Role::Intake, "StreamMissing", &["absent", "stream init"]).await;

    // Each of these settings is changed in turn, and `init` changes it back.
    let name = created(shared(), &layout()).await;
    for (setting, value, word) in [
        ("discard", json!("old"), "must be new"),
        ("max_bytes", json!(-1), "must be a limit"),
        ("max_age", json!(3_600_000_000_000_u64), "must be 0"),
        ("max_msgs", json!(10), "must be -1"),
    ] {
        let info = api(format!("STREAM.INFO.{name}"), Value::Null).await;
        let mut config = info["config"].clone();
        config[setting] = value;
        if setting == "max_age" {
            config["duplicate_window"] = json!(60_000_000_000_u64);
        }
        api(format!("STREAM.UPDATE.{name}"), config).await;
        let settings = settings(shared(), &name, Role::Intake);
        let words = [setting, word, "moteseal stream init"];
        assert_refused(settings.clone(), Role::Intake, "StreamMismatch", &words).await;
        let stream = Stream::connect(settings).await.unwrap();
        stream.init(&layout()).await.unwrap();
        stream.check(Role::Intake).await.unwrap();
    }

    api(format!("CONSUMER.DELETE.{name}.workers"), Value::Null).await;
    let worker = settings(shared(), &name, Role::Worker);
    assert_refused(worker, Role::Worker, "StreamMissing", &["consumer workers"]).await;

    // These settings last, so `init` refuses, too.
    for (setting, value) in [("retention", "limits"), ("storage", "memory")] {
        let other = crate::testbed::name();
        let mut config = json!({ "name": other, "subjects": [format!("{other}.batches")],
            "retention": "workqueue", "storage": "file", "discard": "new", "max_bytes": 1 << 20 });
        config[setting] = json!(value);
        api(format!("STREAM.CREATE.{other}"), config).await;
        let settings = settings(shared(), &other, Role::Intake);
        let words = [setting, "delete it"];
        assert_refused(settings.clone(), Role::Intake, "StreamMismatch", &words).await;
        let stream = Stream::connect(settings).await.unwrap();
        let error = stream.init(&layout()).await.unwrap_err();
        assert!(matches!(error, StreamError::StreamMismatch { .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_again_keeps_what_is_in_the_stream_and_changes_the_limits() {
    let name = created(shared(), &layout()).await;
    let store = Store::new();
    let intake = intake(shared(), &name, &store).await;
    put(&intake, bundles("kept by init", 1, 5)).await.unwrap();
    let stream = Stream::connect(settings(shared(), &name, Role::Intake)).await.unwrap();
    for max_bytes in [32 << 20, 16 << 20] {
        stream.init(&Layout { max_bytes, ..layout() }).await.unwrap();
        stream.check(Role::Intake).await.unwrap();
    }
    let worker = Running::start(shared(), &name, &store).await;
    until("storing", || worker.counts.messages() == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_the_server_cannot_create() {
    let stream = Stream::connect(settings(shared(), &name(), Role::Intake)).await.unwrap();
    let error = stream.init(&Layout { max_bytes: 1 << 50, ..layout() }).await.unwrap_err();
    assert!(error.to_string().contains("storage"), "{error}");
}

/// Returns the body of a request to JetStream's interface. Some requests must have none.
fn body_of(body: &Value) -> String {
    if body.is_null() { String::new() } else { body.to_string() }
}
