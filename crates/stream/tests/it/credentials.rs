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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_certificate_and_a_file_without_certificates_have_their_own_remedies() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let certified = |name: &str, last_year: i32| {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(last_year, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        fs::write(path(name), params.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(path("key.pem"), key.serialize_pem()).unwrap();
        Server::with(
            SYNCED,
            &format!(
                "tls {{ cert_file: \"{}\", key_file: \"{}\" }}",
                path(name).display(),
                path("key.pem").display(),
            ),
        )
    };
    let (expired, valid) = (certified("expired.pem", 2021), certified("valid.pem", 2090));
    let of = |server: &Server, host: &str, ca: &str| Settings {
        servers: vec![server.url.replace("nats://127.0.0.1", &format!("tls://{host}"))],
        ca: Some(path(ca)),
        ..settings(server, "unused", Role::Intake)
    };
    Stream::connect(of(&valid, "localhost", "valid.pem")).await.unwrap();
    fs::write(path("nonsense.pem"), "nonsense").unwrap();
    fs::write(path("broken.pem"), "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n")
        .unwrap();
    for (settings, name, word) in [
        (of(&expired, "localhost", "expired.pem"), "StreamTls", "renew the server's certificate"),
        (of(&valid, "127.0.0.1", "valid.pem"), "StreamTls", "for the host in its URL"),
        (of(&valid, "localhost", "expired.pem"), "StreamTls", "--stream-ca FILE"),
        (of(&valid, "localhost", "nonsense.pem"), "Usage", "has no certificate"),
        (of(&valid, "localhost", "key.pem"), "Usage", "has no certificate"),
        (of(&valid, "localhost", "broken.pem"), "Usage", "is not in PEM"),
        (of(&valid, "localhost", "none.pem"), "Usage", "cannot be read"),
    ] {
        let error = Stream::connect(settings).await.unwrap_err();
        println!("{}: {error}", error.name());
        assert_eq!(error.name(), name, "{error}");
        assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
    }
}
