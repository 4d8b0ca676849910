//! Decentralised credentials (JWTs and nkeys) and TLS.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use moteseal_stream::{Role, Settings, Stream};
use nkeys::KeyPair;
use serde_json::{Value, json};

use crate::testbed::*;

/// Returns a JWT of NATS about a key.
fn jwt(signer: &KeyPair, subject: &KeyPair, name: &str, nats: &Value) -> String {
    let claims = json!({ "jti": name, "iat": 1_700_000_000, "iss": signer.public_key(), "name": name,
        "sub": subject.public_key(), "nats": nats });
    let head = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let part = |value: &Value| BASE64.encode(value.to_string());
    let signed = format!("{}.{}", part(&head), part(&claims));
    let signature = BASE64.encode(signer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

fn account(is_system: bool) -> Value {
    let mut limits = json!({ "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1,
        "wildcards": true, "conn": -1, "leaf": -1 });
    if !is_system {
        for name in ["mem_storage", "disk_storage", "streams", "consumer", "max_ack_pending"] {
            limits[name] = json!(-1);
        }
    }
    json!({ "limits": limits, "type": "account", "version": 2 })
}

fn user(publish: &[&str], subscribe: &[&str]) -> Value {
    json!({ "pub": { "allow": publish }, "sub": { "allow": subscribe }, "subs": -1, "data": -1,
        "payload": -1, "type": "user", "version": 2 })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_files_and_tls_are_used_and_their_errors_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(path("cert.pem"), certified.cert.pem()).unwrap();
    fs::write(path("key.pem"), certified.signing_key.serialize_pem()).unwrap();

    let (operator, own, system) =
        (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let of_operator = json!({ "type": "operator", "version": 2 });
    let config = format!(
        "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{\n {}: {}\n {}: {}\n}}\n\
         tls {{ cert_file: \"{}\", key_file: \"{}\" }}",
        jwt(&operator, &operator, "operator", &of_operator),
        system.public_key(),
        own.public_key(),
        jwt(&operator, &own, "own", &account(false)),
        system.public_key(),
        jwt(&operator, &system, "system", &account(true)),
        path("cert.pem").display(),
        path("key.pem").display(),
    );
    let server = Server::with("sync_interval: always", &config);
    let write = |name: &str, signer: &KeyPair, claims: &Value| {
        let key = KeyPair::new_user();
        let jwt = jwt(signer, &key, name, claims);
        let seed = key.seed().unwrap();
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        fs::write(path(name), text).unwrap();
    };
    write("admin", &own, &user(&[">"], &[">"]));
    let name = name();
    let (info, pieces) =
        (format!("$JS.API.STREAM.INFO.{name}"), format!("$JS.API.STREAM.INFO.{name}_pieces"));
    let (batches, piece) = (format!("{name}.batches"), format!("{name}.pieces.>"));
    let inbox = ["_INBOX.moteseal.intake.>"];
    write("intake", &own, &user(&[&info, &pieces, &batches, &piece], &inbox));
    write("reader", &own, &user(&[&info, &pieces], &inbox));
    // The signer of this one is not an account of the operator.
    write("stranger", &KeyPair::new_account(), &user(&[">"], &[">"]));
    fs::write(path("nonsense"), "nonsense").unwrap();

    let with = |credentials: Option<&str>| Settings {
        servers: vec![server.url.replace("nats://127.0.0.1", "tls://localhost")],
        credentials: credentials.map(path),
        ca: Some(path("cert.pem")),
        ..settings(&server, &name, Role::Intake)
    };
    let admin = Stream::connect(with(Some("admin"))).await.unwrap();
    admin.init(&layout()).await.unwrap();
    Stream::connect(with(Some("intake"))).await.unwrap().check(Role::Intake).await.unwrap();

    let reader = Stream::connect(with(Some("reader"))).await.unwrap();
    let error = reader.check(Role::Intake).await.unwrap_err();
    assert_eq!(error.name(), "NotPermitted", "{error}");
    for (settings, name) in [
        (with(Some("stranger")), "NotPermitted"),
        (with(Some("nonsense")), "Usage"),
        (with(None), "NotPermitted"),
        (Settings { ca: None, ..with(Some("intake")) }, "Unreachable"),
    ] {
        let error = Stream::connect(settings).await.unwrap_err();
        assert_eq!(error.name(), name, "{error}");
        assert!(!error.to_string().contains("SU"), "{error}");
    }
}
