//! Starting and stopping a cloud, bearer tokens and TLS.

use std::sync::Arc;
use std::time::Duration;

use crate::testbed::{Running, group, problem, query};
use moteseal_api::paths;
use moteseal_cloud::{Cloud, Config};
use moteseal_core::record::Scheme::Star;
use moteseal_seal::sample::{Choice, Rate};
use moteseal_service::TlsFiles;
use moteseal_store::EpochStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn an_error_names_a_port_in_use_and_the_remedy() {
    let (roster, _) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster.clone())).await;
    let config = Config { listen: cloud.address, ..Config::new(roster.clone()) };
    let error = Cloud::bind(config, Arc::clone(&cloud.store) as Arc<dyn EpochStore>)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&cloud.address.to_string())
            && error.contains("in use")
            && error.contains("port 0"),
        "{error}"
    );
    let config = Config { listen: "192.0.2.1:80".parse().unwrap(), ..Config::new(roster) };
    let error = Cloud::bind(config, Arc::clone(&cloud.store) as Arc<dyn EpochStore>)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("192.0.2.1:80") && !error.contains('\n'), "{error}");
    cloud.stop().await;
}

#[tokio::test]
async fn a_stop_finishes_requests_in_progress_and_accepts_no_others() {
    let (roster, mut motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let mut cloud = Running::start(directory.path(), Config::new(roster)).await;
    let body = motes[0].seal(Star, 1, true, &[1; 100]);
    let mut slow = TcpStream::connect(cloud.address).await.unwrap();
    let head =
        format!("PUT /v1/bundles HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    slow.write_all(head.as_bytes()).await.unwrap();
    slow.write_all(&body[..50]).await.unwrap();
    let _idle = TcpStream::connect(cloud.address).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    cloud.begin_stop();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(TcpStream::connect(cloud.address).await.is_err(), "the port must be closed");
    slow.write_all(&body[50..]).await.unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with(r#"{"stored":1,"known":0}"#),
        "{answer}"
    );
    assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
}

#[tokio::test]
async fn a_stop_does_not_wait_forever() {
    let (roster, _) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let mut config = Config::new(roster);
    config.limits.stop_time = Duration::from_millis(300);
    let cloud = Running::start(directory.path(), config).await;
    let mut slow = TcpStream::connect(cloud.address).await.unwrap();
    slow.write_all(b"PUT /v1/bundles HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n")
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    tokio::time::timeout(Duration::from_secs(5), cloud.stop()).await.unwrap();
}

#[tokio::test]
async fn a_token_allows_only_its_scope() {
    let (roster, mut motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, "read reads-reads-reads-1\nwrite writes-writes-writes-2\n").unwrap();
    let cloud = Running::start(
        directory.path(),
        Config { tokens: Some(tokens), ..Config::new(roster.clone()) },
    )
    .await;
    let bundle = motes[0].seal(Star, 1, true, &[1; 10]);
    let put = |token: Option<&str>| {
        let request = cloud.http.put(cloud.at(paths::BUNDLES)).body(bundle.clone());
        token.map_or(request.try_clone().unwrap(), |token| request.bearer_auth(token)).send()
    };
    let get = |path: &str, token: Option<&str>| {
        let request = cloud.http.get(cloud.at(path));
        token.map_or(request.try_clone().unwrap(), |token| request.bearer_auth(token)).send()
    };
    let rejected = put(None).await.unwrap();
    assert_eq!(rejected.headers()["www-authenticate"], "Bearer");
    assert_eq!(problem(rejected).await.name(), "Unauthorized");
    assert_eq!(problem(put(Some("reads-reads-reads-1")).await.unwrap()).await.name(), "Forbidden");
    assert_eq!(
        problem(put(Some("writes-writes-writes-3")).await.unwrap()).await.name(),
        "Unauthorized"
    );
    assert_eq!(put(Some("writes-writes-writes-2")).await.unwrap().status(), 200);
    for path in [paths::DEVICES, paths::METRICS] {
        assert_eq!(problem(get(path, None).await.unwrap()).await.name(), "Unauthorized");
        assert_eq!(
            problem(get(path, Some("writes-writes-writes-2")).await.unwrap()).await.name(),
            "Forbidden"
        );
        assert_eq!(get(path, Some("reads-reads-reads-1")).await.unwrap().status(), 200);
    }
    let asked = cloud.ask(&query(&[motes[0].id], 0, None, Choice::Rate(Rate::ALL))).await;
    assert_eq!(problem(asked).await.name(), "Unauthorized");
    for path in [paths::HEALTHZ, paths::READYZ, paths::OPENAPI] {
        assert_eq!(get(path, None).await.unwrap().status(), 200);
    }
    cloud.stop().await;
    let missing = Config { tokens: Some(directory.path().join("none")), ..Config::new(roster) };
    let store = crate::testbed::open_store(&directory.path().join("."));
    let error = Cloud::bind(missing, store as Arc<dyn EpochStore>).await.unwrap_err().to_string();
    assert!(error.contains("none") && !error.contains('\n'), "{error}");
}

#[tokio::test]
async fn tls_uses_the_operators_certificate_and_errors_name_bad_files() {
    let (roster, mut motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])
        .unwrap();
    let (chain, key) = (directory.path().join("chain.pem"), directory.path().join("key.pem"));
    std::fs::write(&chain, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = |chain: &std::path::Path, key: &std::path::Path| TlsFiles {
        chain: chain.into(),
        key: key.into(),
        client_ca: None,
    };
    let config = Config { tls: Some(tls(&chain, &key)), ..Config::new(roster.clone()) };
    let mut cloud = Running::start(directory.path(), config).await;
    assert!(cloud.url.starts_with("https://"));
    let root = reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
    cloud.http = reqwest::Client::builder().tls_certs_only([root]).build().unwrap();
    assert_eq!(cloud.put(motes[0].seal(Star, 1, true, &[1; 10])).await.status(), 200);
    assert!(
        reqwest::Client::new().get(cloud.at(paths::HEALTHZ)).send().await.is_err(),
        "a client without this root must reject the certificate"
    );
    for (chain, key, named) in [
        (&chain, &chain, "chain.pem"),
        (&key, &key, "key.pem"),
        (&directory.path().join("none"), &key, "none"),
    ] {
        let config = Config { tls: Some(tls(chain, key)), ..Config::new(roster.clone()) };
        let error = Cloud::bind(config, Arc::clone(&cloud.store) as Arc<dyn EpochStore>)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(named) && !error.contains('\n'), "{error}");
    }
    cloud.stop().await;
}
