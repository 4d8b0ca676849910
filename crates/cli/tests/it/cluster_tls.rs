//! TLS to the engines of a cloud: a NATS server and a node of Cassandra, whose certificates the authority of the
//! cluster has signed.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::coap_transport::{ROSTER, Service};
use crate::nats::{SYNCED, Server};
use crate::scene::Scene;
use crate::table_store::shared;

/// Writes the authority of a cluster (`ca.pem`), another one (`other.pem`), and a certificate of the first one
/// for 127.0.0.1 (`server.pem`, `server.key`). Returns the file with the key and the certificate.
pub(crate) fn certify(folder: &Path) -> PathBuf {
    let path = |name: &str| folder.join(name);
    let authority = |name: &str| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    let (own, other) = (authority("cluster"), authority("other"));
    std::fs::write(path("ca.pem"), own.pem()).unwrap();
    std::fs::write(path("other.pem"), other.pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &own).unwrap().pem();
    let key = key.serialize_pem();
    std::fs::write(path("server.pem"), &certificate).unwrap();
    std::fs::write(path("server.key"), &key).unwrap();
    std::fs::write(path("both.pem"), key + &certificate).unwrap();
    path("both.pem")
}

#[test]
fn a_cloud_uses_engines_over_tls_and_refuses_other_authorities_and_servers_without_tls() {
    let (scene, cassandra) = (Scene::new(), shared());
    let folder = cassandra.folder();
    let [ca, other] = ["ca.pem", "other.pem"].map(|name| folder.join(name).display().to_string());
    let nats = Server::with(
        SYNCED,
        &format!(
            "tls {{ cert_file: {:?}, key_file: {:?} }}",
            folder.join("server.pem"),
            folder.join("server.key")
        ),
    );
    let plain = Server::start();
    let secure = nats.url.replace("nats://", "tls://");
    let table = |port: u16, ca: Option<&str>| {
        let ca = ca.map_or_else(String::new, |ca| format!("?ca={ca}"));
        format!("cassandra://cassandra@127.0.0.1:{port}/over_tls{ca}")
    };
    let store = table(cassandra.tls_port(), Some(&ca));
    scene.run(&["store", "init", "--replicas", "1", "--store", &store]).done();
    let stream = ["--stream", &secure, "--stream-monitor", &nats.monitor, "--stream-ca", &ca];
    let limits = ["--max-mib", "32", "--piece-mib", "16", "--dead-mib", "4"];
    scene.run(&[&["stream", "init"][..], &limits, &stream].concat()).done();

    let run = ["cloud", "run", "--listen", "127.0.0.1:0", "--role", "all"];
    let cloud =
        Service::start(&scene, &[&run[..], &ROSTER, &stream, &["--store", &store]].concat(), 1);
    let url = cloud.url("http");
    scene.table("readings.csv", 300);
    scene.seal("readings.csv", "dev1", &[]).done();
    let pushed = scene.run(&["push", "bundles", "--to", url, "--json"]).done().json();
    let position = pushed["position"].to_string();
    let get = ["get", "dev1", "--from", url, "--rate", "1", "--format", "csv"];
    let got = scene.with_roster(&[&get[..], &["--after-position", &position]].concat()).done();
    assert_eq!(got.out.lines().count(), 301, "{got:?}");

    // Each is refused at the start, with one line.
    let plain_port: u16 =
        cassandra.address("k").hosts[0].rsplit(':').next().unwrap().parse().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (port, accepts) in [(cassandra.tls_port(), false), (plain_port, true)] {
        let found =
            runtime.block_on(moteseal_table::accepts_plain_text(&format!("127.0.0.1:{port}")));
        assert_eq!(found, Ok(accepts), "policy check tries it");
    }
    let none = scene.path("none.pem").display().to_string();
    for (store, code, name, word) in [
        (table(cassandra.tls_port(), Some(&other)), 2, "TableTls", "?ca=FILE"),
        (table(cassandra.tls_port(), Some(&none)), 2, "TableTls", "none.pem"),
        (table(plain_port, Some(&ca)), 2, "TableTls", "client_encryption_options"),
        (table(cassandra.tls_port(), None), 6, "TableUnreachable", "?ca=FILE"),
    ] {
        let run =
            scene.with_roster(&["cloud", "run", "--store", &store, "--listen", "127.0.0.1:0"]);
        let line = run.failed(code);
        println!("{line}");
        assert!(line.contains(name) && line.contains(word), "{store}: {line}");
    }
    let plain_secure = plain.url.replace("nats://", "tls://");
    for (server, ca, word) in [
        (&secure, Some(&other), "--stream-ca FILE"),
        (&secure, None, "--stream-ca FILE"),
        (&nats.url, None, "--stream-ca FILE"),
        (&plain_secure, Some(&ca), "cert_file"),
        // An authority is named, so a connection without TLS would be a surprise.
        (&plain.url, Some(&ca), "cert_file"),
    ] {
        let mut arguments = vec!["cloud", "run", "--role", "intake", "--listen", "127.0.0.1:0"];
        arguments.extend(["--stream", server, "--stream-monitor", &nats.monitor]);
        arguments.extend(ca.iter().flat_map(|ca| ["--stream-ca", ca]));
        let run = scene.with_roster(&arguments);
        let line = run.failed(2);
        println!("{line}");
        assert!(line.contains("StreamTls") && line.contains(word), "{server}, {ca:?}: {line}");
    }
}
