//! Credentials files and TLS.

use std::fs;

use moteseal_stream::{
    Authority, Duty, Permissions, Role, Settings, Stream, SyncCheck, accepts_plain_text,
};

use crate::testbed::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_files_and_tls_are_used_and_their_errors_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(path("cert.pem"), certified.cert.pem()).unwrap();
    fs::write(path("key.pem"), certified.signing_key.serialize_pem()).unwrap();
    let governed = Governed::start(&format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\" }}",
        path("cert.pem").display(),
        path("key.pem").display(),
    ));
    let server = governed.server.url.replace("nats://127.0.0.1", "tls://localhost");
    let monitor = governed.server.monitor.replace("127.0.0.1", "localhost");
    let sync = SyncCheck::Monitors(vec![monitor.clone()]);
    let with = |settings: Settings| Settings {
        servers: vec![server.clone()],
        ca: Some(path("cert.pem")),
        sync: sync.clone(),
        ..settings
    };
    let user = |duty: Duty| with(governed.user(duty.name(), &[duty]).1);
    let admin = Stream::connect(user(Duty::Admin)).await.unwrap();
    admin.init(&layout()).await.unwrap();
    let intake = user(Duty::Intake);
    Stream::connect(intake.clone()).await.unwrap().check(Role::Intake).await.unwrap();
    let error = Stream::connect(user(Duty::Serve)).await.unwrap().check(Role::Intake).await;
    assert_eq!(error.unwrap_err().name(), "NotPermitted");
    assert_eq!(accepts_plain_text(&server).await, Ok(false));

    // The signer of this one is not an account of the operator.
    let permissions = Permissions::of("moteseal", &[Duty::Intake]);
    let stranger = Authority::generate().user("stranger", &permissions, None, 10).unwrap();
    fs::write(path("stranger"), stranger.text().as_bytes()).unwrap();
    fs::write(path("nonsense"), "nonsense").unwrap();
    let of = |name: &str| Settings { credentials: Some(path(name)), ..intake.clone() };
    for (settings, name) in [
        (of("stranger"), "NotPermitted"),
        (of("nonsense"), "Usage"),
        (of("missing"), "Usage"),
        (Settings { credentials: None, ..intake.clone() }, "NotPermitted"),
        (Settings { ca: None, ..intake.clone() }, "StreamTls"),
    ] {
        let error = Stream::connect(settings).await.unwrap_err();
        assert_eq!(error.name(), name, "{error}");
        assert!(!error.to_string().contains("SU"), "{error}");
    }
    let plain = shared();
    assert_eq!(accepts_plain_text(&plain.url).await, Ok(true));

    // The endpoint uses TLS, and its authority is not known, or it does not use TLS.
    let of = |monitor: String| Settings {
        sync: SyncCheck::Monitors(vec![monitor]),
        ..settings(plain, "unused", Role::Intake)
    };
    for monitor in [monitor, plain.monitor.replace("http", "https")] {
        let stream = Stream::connect(of(monitor.clone())).await.unwrap();
        let error = stream.check(Role::Intake).await.unwrap_err();
        assert_eq!(error.name(), "NotSynced", "{error}");
        let words = [&*monitor, "--stream-ca"];
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    }
}
