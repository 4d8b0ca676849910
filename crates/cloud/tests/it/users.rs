//! Users with passwords and client certificates, tokens that are bound to devices, and changes of
//! these credentials while the cloud runs.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use moteseal_api::paths;
use moteseal_cloud::password::{Password, PasswordHash};
use moteseal_cloud::rights::{Binding, Rights, Scopes};
use moteseal_cloud::users::{User, Users};
use moteseal_cloud::{Cloud, Config};
use moteseal_core::record::Scheme::Star;
use moteseal_core::roster::Directory as _;
use moteseal_service::{TlsFiles, certificate_key};
use moteseal_store::EpochStore;
use moteseal_verify::Roster;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::events;
use crate::testbed::{Mote, Running, budgeted, coordinator, group, manifest, open_store, problem};

const PASSWORD: &str = "correct horse battery";

/// Returns a user with [`PASSWORD`].
pub(crate) fn with_password(scopes: &str, binding: &str) -> User {
    let password = Password::new(PASSWORD.as_bytes().to_vec().into()).unwrap();
    User { password: Some(PasswordHash::of(&password).unwrap()), ..user(scopes, binding) }
}

fn user(scopes: &str, binding: &str) -> User {
    let binding = Binding::parse(binding.split_whitespace()).unwrap();
    let rights = Rights::new(Scopes::parse(scopes).unwrap(), binding).unwrap();
    User { rights, password: None, certificate: None }
}

pub(crate) fn add(table: &Path, name: &str, user: User) {
    Users::change(table, true, |users| users.add(name, user, true)).unwrap();
}

fn revoke(table: &Path, name: &str) {
    Users::change(table, false, |users| users.revoke(name)).unwrap();
}

/// A cloud with a table of users in a directory.
struct Scene {
    directory: tempfile::TempDir,
    cloud: Running,
    users: PathBuf,
    roster: Roster,
    motes: Vec<Mote>,
}

impl Scene {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let users = directory.path().join("epochs.redb-users");
        let (roster, motes) = group(&["a", "b"]);
        add(&users, "writer", with_password("write", ""));
        add(&users, "reader", with_password("read", ""));
        let config = Config { users: Some(users.clone()), ..Config::new(roster.clone()) };
        let cloud = Running::start(directory.path(), config).await;
        Self { directory, cloud, users, roster, motes }
    }

    async fn put(&self, name: &str, password: &str, bundle: Vec<u8>) -> reqwest::Response {
        let request = self.cloud.http.put(self.cloud.at(paths::BUNDLES)).body(bundle);
        request.basic_auth(name, Some(password)).send().await.unwrap()
    }

    async fn get(&self, name: &str, password: &str) -> reqwest::Response {
        let request = self.cloud.http.get(self.cloud.at(paths::DEVICES));
        request.basic_auth(name, Some(password)).send().await.unwrap()
    }

    async fn get_from(&self, host: u8, name: &str, password: &str) -> reqwest::Response {
        let address = IpAddr::V4(Ipv4Addr::new(127, 0, 1, host));
        let http =
            reqwest::Client::builder().local_address(address).tls_certs_only([]).build().unwrap();
        let request = http.get(self.cloud.at(paths::DEVICES));
        request.basic_auth(name, Some(password)).send().await.unwrap()
    }

    async fn metric(&self, name: &str) -> u64 {
        let request = self.cloud.http.get(self.cloud.at(paths::METRICS));
        let response = request.basic_auth("reader", Some(PASSWORD)).send().await.unwrap();
        let page = response.text().await.unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap().parse().unwrap()
    }
}

#[tokio::test]
async fn a_user_may_do_what_its_scopes_permit() {
    let mut scene = Scene::new().await;
    let bundle = scene.motes[0].seal(Star, 1, true, &[1; 10]);
    let refused = scene.cloud.put(bundle.clone()).await;
    assert_eq!(refused.headers()["www-authenticate"], r#"Basic realm="moteseal", charset="UTF-8""#);
    assert_eq!(problem(refused).await.name(), "Unauthorized");
    let refused = problem(scene.put("reader", PASSWORD, bundle.clone()).await).await;
    assert_eq!(refused.name(), "Forbidden");
    assert_eq!(scene.put("writer", PASSWORD, bundle).await.status(), 200);
    assert_eq!(problem(scene.get("writer", PASSWORD).await).await.name(), "Forbidden");
    assert_eq!(scene.get("reader", PASSWORD).await.status(), 200);
    let wrong = problem(scene.get("reader", "correct horse batterz").await).await;
    let unknown = problem(scene.get("nobody", PASSWORD).await).await;
    assert_eq!(wrong.name(), "Unauthorized");
    assert_eq!(wrong, unknown, "the response does not tell which users exist");
    let bearer = scene.cloud.http.get(scene.cloud.at(paths::DEVICES)).bearer_auth(PASSWORD);
    assert_eq!(problem(bearer.send().await.unwrap()).await.name(), "Unauthorized");
    for path in [paths::HEALTHZ, paths::READYZ, paths::OPENAPI] {
        assert_eq!(scene.cloud.get(path).await.status(), 200);
    }
    scene.cloud.stop().await;
}

#[tokio::test]
async fn only_the_first_request_with_a_password_is_hashed() {
    let scene = Scene::new().await;
    let start = Instant::now();
    assert_eq!(scene.get("reader", PASSWORD).await.status(), 200);
    let first = start.elapsed();
    let mut later = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        assert_eq!(scene.get("reader", PASSWORD).await.status(), 200);
        later.push(start.elapsed());
    }
    later.sort();
    assert!(later[10] < first / 2, "{:?} after {first:?}", later[10]);
    assert_eq!(scene.metric("moteseal_password_hashes_total").await, 1);
    // A wrong password does not evict the right one.
    assert_eq!(scene.get("reader", "correct horse batterz").await.status(), 401);
    assert_eq!(scene.get("reader", PASSWORD).await.status(), 200);
    assert_eq!(scene.metric("moteseal_password_hashes_total").await, 2);
    scene.cloud.stop().await;
}

#[tokio::test]
async fn an_unknown_name_costs_as_much_as_a_wrong_password() {
    let scene = Scene::new().await;
    // A user without a password costs the same, too.
    let mut certificate_only = user("read", "");
    certificate_only.certificate = Some(moteseal_service::ClientKey([1; 32]));
    add(&scene.users, "certificate-only", certificate_only);
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..8_u8 {
        for (kind, name) in ["reader", "nobody", "certificate-only"].into_iter().enumerate() {
            let host = round * 3 + u8::try_from(kind).unwrap() + 1;
            let start = Instant::now();
            assert_eq!(scene.get_from(host, name, "correct horse batterz").await.status(), 401);
            times[kind].push(start.elapsed());
        }
    }
    assert_eq!(scene.metric("moteseal_password_hashes_total").await, 25);
    // The least time has the least of other programs in it.
    let [wrong, unknown, without] = times.map(|times| times.iter().min().unwrap().as_secs_f64());
    for other in [unknown, without] {
        assert!((0.5..2.0).contains(&(other / wrong)), "{other} s instead of {wrong} s");
    }
    scene.cloud.stop().await;
}

/// Sends a request on an open connection, and returns the status of the response.
async fn status(stream: &mut TcpStream, authorization: &str) -> u16 {
    let head =
        format!("GET /v1/devices HTTP/1.1\r\nhost: x\r\nauthorization: {authorization}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut response = String::new();
    while !response.ends_with(['}', ']']) {
        let mut bytes = [0; 4096];
        let read = stream.read(&mut bytes).await.unwrap();
        assert!(read > 0, "the connection was closed: {response}");
        response += std::str::from_utf8(&bytes[..read]).unwrap();
    }
    response.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_revocation_takes_effect_at_the_next_request_of_an_open_connection() {
    let directory = tempfile::tempdir().unwrap();
    let (users, tokens) = (directory.path().join("users"), directory.path().join("tokens"));
    add(&users, "reader", with_password("read", ""));
    std::fs::write(&tokens, "read 4q9mB0xJ2kTqvYfB\n").unwrap();
    let (roster, _) = group(&["a"]);
    let config =
        Config { users: Some(users.clone()), tokens: Some(tokens.clone()), ..Config::new(roster) };
    let cloud = Running::start(directory.path(), config).await;
    let mut stream = TcpStream::connect(cloud.address).await.unwrap();
    // "reader:correct horse battery"
    let basic = "Basic cmVhZGVyOmNvcnJlY3QgaG9yc2UgYmF0dGVyeQ==";
    let bearer = "Bearer 4q9mB0xJ2kTqvYfB";
    // Each round has one wrong password; after five, the address would have to wait.
    for _ in 0..4 {
        assert_eq!(status(&mut stream, basic).await, 200);
        revoke(&users, "reader");
        assert_eq!(status(&mut stream, basic).await, 401);
        assert_eq!(status(&mut stream, bearer).await, 200);
        // The new token has the same length, and its file has the same inode.
        std::fs::write(&tokens, "read 4q9mB0xJ2kTqvYfC\n").unwrap();
        assert_eq!(status(&mut stream, bearer).await, 401);
        std::fs::write(&tokens, "read 4q9mB0xJ2kTqvYfB\n").unwrap();
        add(&users, "reader", with_password("write", ""));
        assert_eq!(status(&mut stream, basic).await, 403, "the user's rights have changed");
        add(&users, "reader", with_password("read", ""));
    }
    assert_eq!(status(&mut stream, basic).await, 200);
    cloud.stop().await;
}

#[tokio::test]
async fn nobody_is_served_by_a_table_or_a_token_file_that_cannot_be_used() {
    let directory = tempfile::tempdir().unwrap();
    let (users, tokens) = (directory.path().join("users"), directory.path().join("tokens"));
    add(&users, "reader", with_password("read", ""));
    std::fs::write(&tokens, "read 4q9mB0xJ2kTqvYfB\n").unwrap();
    let (roster, _) = group(&["a"]);
    let config = Config {
        users: Some(users.clone()),
        tokens: Some(tokens.clone()),
        ..Config::new(roster.clone())
    };
    let cloud = Running::start(directory.path(), config.clone()).await;
    let get = |token: bool| {
        let request = cloud.http.get(cloud.at(paths::DEVICES));
        let request = if token {
            request.bearer_auth("4q9mB0xJ2kTqvYfB")
        } else {
            request.basic_auth("reader", Some(PASSWORD))
        };
        request.send()
    };
    for (file, token) in [(&users, false), (&tokens, true)] {
        assert_eq!(get(token).await.unwrap().status(), 200);
        let good = std::fs::read(file).unwrap();
        for bad in [Some(&good[..good.len() - 1]), Some(b"".as_slice()), None] {
            let bad = bad.filter(|bad| !token || bad.is_empty());
            match bad {
                Some(bad) => std::fs::write(file, bad).unwrap(),
                None => std::fs::remove_file(file).unwrap_or_default(),
            }
            let refused = problem(get(token).await.unwrap()).await;
            assert_eq!(refused.name(), "CredentialsUnavailable", "{bad:?}");
            // The other file still counts.
            assert_eq!(get(!token).await.unwrap().status(), 200);
            let restarted =
                Cloud::bind(config.clone(), cloud.store.clone() as std::sync::Arc<dyn EpochStore>);
            let error = restarted.await.unwrap_err();
            assert!(matches!(error.name(), "UsersDamaged" | "BadFile"), "{error}");
            assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
        }
        std::fs::write(file, &good).unwrap();
        assert_eq!(get(token).await.unwrap().status(), 200, "the file is right again");
    }
    cloud.stop().await;
}

#[tokio::test]
async fn a_bound_credential_uploads_only_its_devices_and_the_rest_is_not_stored() {
    let directory = tempfile::tempdir().unwrap();
    let (users, tokens) = (directory.path().join("users"), directory.path().join("tokens"));
    let (roster, mut motes) = budgeted(&["a", "b"], 1000);
    let (a, b) = (motes[0].id, motes[1].id);
    let group = roster.group();
    add(&users, "a", with_password("read,write", &format!("device={a}")));
    add(&users, "group", with_password("write", &format!("group={group}")));
    add(&users, "other", with_password("write", "group=0123456789abcdef"));
    std::fs::write(
        &tokens,
        format!(
            "write device={a} aaaaaaaaaaaaaaaa\nwrite group={group} gggggggggggggggg\n\
             write group=0123456789abcdef oooooooooooooooo\nwrite device={a} mmmmmmmmmmmmmmmm\n\
             write device={b} mmmmmmmmmmmmmmmm\n"
        ),
    )
    .unwrap();
    let config = Config { users: Some(users), tokens: Some(tokens), ..Config::new(roster.clone()) };
    let cloud = Running::start(directory.path(), config).await;
    let put = async |path: &str, as_user: bool, name: &str, body: Vec<u8>| {
        let request = cloud.http.put(cloud.at(path)).body(body);
        let request = if as_user {
            request.basic_auth(name, Some(PASSWORD))
        } else {
            request.bearer_auth(name[..1].repeat(16))
        };
        request.send().await.unwrap()
    };
    let mut epoch = 0;
    for as_user in [true, false] {
        epoch += 1;
        let of_a = motes[0].seal(Star, epoch, true, &[1; 10]);
        let of_b = motes[1].seal(Star, epoch, true, &[2; 10]);
        let both = [&of_a[..], &of_b].concat();
        let late = |body: &[u8]| body.to_vec();
        for body in [late(&of_b), late(&both)] {
            let refused = problem(put(paths::BUNDLES, as_user, "a", body).await).await;
            assert_eq!(refused.name(), "Forbidden");
            assert!(refused.detail.contains(&format!("b ({b})")), "{}", refused.detail);
            assert_eq!(refused.place.as_ref().unwrap().device, Some(b.to_string()));
            let stored = cloud.store.seals_at(a, motes[0].position.last.unwrap().0).unwrap();
            assert!(stored.is_empty(), "nothing of the upload is stored");
        }
        let other = problem(put(paths::BUNDLES, as_user, "other", of_a.clone()).await).await;
        assert_eq!(other.name(), "Forbidden");
        assert!(other.detail.contains("group home"), "{}", other.detail);
        assert_eq!(put(paths::BUNDLES, as_user, "a", of_a).await.status(), 200);
        assert_eq!(put(paths::BUNDLES, as_user, "group", of_b).await.status(), 200);
        let alarm = |mote: &Mote| events::stream(&[events::event(mote, epoch, 7)]);
        let refused = problem(put(paths::EVENTS, as_user, "a", alarm(&motes[1])).await).await;
        assert_eq!(refused.name(), "Forbidden");
        assert_eq!(refused.place.unwrap().device, Some(b.to_string()));
        for (name, mote) in [("a", &motes[0]), ("group", &motes[1])] {
            assert_eq!(put(paths::EVENTS, as_user, name, alarm(mote)).await.status(), 200);
        }
        let listed = manifest(&roster, &coordinator(), epoch, 0, &[]);
        for name in ["a", "other"] {
            let refused = put(paths::MANIFESTS, as_user, name, listed.clone()).await;
            assert_eq!(problem(refused).await.name(), "Forbidden");
        }
        assert_eq!(put(paths::MANIFESTS, as_user, "group", listed).await.status(), 200);
    }
    // A token with two lines has the rights of both.
    let of_b = motes[1].seal(Star, 9, true, &[2; 10]);
    assert_eq!(put(paths::BUNDLES, false, "m", of_b).await.status(), 200);
    cloud.stop().await;
}

#[tokio::test]
async fn an_upload_that_arrives_after_the_revocation_is_not_stored() {
    let mut scene = Scene::new().await;
    let bundle = scene.motes[0].seal(Star, 1, true, &[1; 10]);
    let mut stream = TcpStream::connect(scene.cloud.address).await.unwrap();
    // "writer:correct horse battery"
    let head = format!(
        "PUT /v1/bundles HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\
         authorization: Basic d3JpdGVyOmNvcnJlY3QgaG9yc2UgYmF0dGVyeQ==\r\n\r\n",
        bundle.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&bundle[..20]).await.unwrap();
    // Wait until the password was checked.
    while scene.metric("moteseal_password_hashes_total").await < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    revoke(&scene.users, "writer");
    stream.write_all(&bundle[20..]).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 401") && response.contains("revoked"), "{response}");
    assert!(scene.cloud.store.devices(None, 10).unwrap().is_empty());
    scene.cloud.stop().await;
}

#[tokio::test]
async fn guesses_are_throttled_by_address_and_by_name_and_a_verified_password_is_served() {
    let scene = Scene::new().await;
    assert_eq!(scene.get("reader", PASSWORD).await.status(), 200);
    // One address guesses. If the first wait is over before the next guess on a slow machine, the
    // next wait is twice as long.
    let mut guesses = 0;
    let wait = loop {
        let refused = scene.get_from(1, "nobody", "a wrong password").await;
        guesses += 1;
        if refused.status() == 429 {
            let wait = refused.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap();
            assert_eq!(problem(refused).await.name(), "TooManyFailures");
            if scene.get_from(1, "writer", PASSWORD).await.status() == 429 {
                break wait;
            }
        }
    };
    assert!(guesses > 5 && (1..=16).contains(&wait), "{wait} s after {guesses} guesses");
    // Many addresses guess for one name. The password is verified, so it is served everywhere.
    let mut host = 10;
    loop {
        host += 2;
        if scene.get_from(host, "reader", "a wrong password").await.status() == 429 {
            assert_eq!(scene.get_from(host + 1, "reader", PASSWORD).await.status(), 200);
            // Once the password was set again, it is not verified any more.
            add(&scene.users, "reader", with_password("read", ""));
            if scene.get_from(host + 2, "reader", PASSWORD).await.status() == 429 {
                break;
            }
        }
    }
    assert!(host >= 30, "ten wrong passwords are checked");
    assert!(scene.metric("moteseal_logins_throttled_total").await >= 4);
    // The user has logged in from its own address before, so its new password is checked there.
    let hashes = scene.metric("moteseal_password_hashes_total").await;
    assert_eq!(scene.get_from(host + 2, "reader", PASSWORD).await.status(), 200);
    assert_eq!(scene.metric("moteseal_password_hashes_total").await, hashes);
    // Other users are served at other addresses.
    assert_eq!(scene.get_from(250, "writer", PASSWORD).await.status(), 403);
    scene.cloud.stop().await;
}

/// A certificate authority, and what it has signed.
struct Authority {
    certificate: rcgen::Certificate,
    issuer: rcgen::Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = parameters.self_signed(&key).unwrap();
        Self { certificate, issuer: rcgen::Issuer::new(parameters, key) }
    }

    /// Returns the certificate of a client in PEM.
    fn client(&self, key: &KeyPair) -> String {
        let mut parameters = CertificateParams::new(vec!["client".to_owned()]).unwrap();
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        parameters.signed_by(key, &self.issuer).unwrap().pem()
    }
}

#[tokio::test]
async fn a_client_certificate_is_a_user_until_it_is_revoked_also_on_open_connections() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let write = |name: &str, text: String| {
        std::fs::write(path(name), text).unwrap();
        path(name)
    };
    let server = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let authority = Authority::new();
    let tls = TlsFiles {
        chain: write("chain.pem", server.cert.pem()),
        key: write("key.pem", server.signing_key.serialize_pem()),
        client_ca: Some(write("ca.pem", authority.certificate.pem())),
    };
    let [sensor, renewed, stranger] = [(); 3].map(|()| KeyPair::generate().unwrap());
    let certificate = write("sensor.pem", authority.client(&sensor));
    let (roster, mut motes) = group(&["a", "b"]);
    let users = path("users");
    let mut of_sensor = user("write", &format!("device={}", motes[0].id));
    of_sensor.certificate = Some(certificate_key(&certificate).unwrap());
    add(&users, "sensor", of_sensor.clone());
    add(&users, "reader", with_password("read", ""));
    let config =
        Config { users: Some(users.clone()), tls: Some(tls), ..Config::new(roster.clone()) };
    let cloud = Running::start(directory.path(), config).await;
    let root = reqwest::Certificate::from_pem(server.cert.pem().as_bytes()).unwrap();
    let client = |pem: Option<String>| {
        let builder = reqwest::Client::builder().tls_certs_only([root.clone()]);
        let identity = pem.map(|pem| reqwest::Identity::from_pem(pem.as_bytes()).unwrap());
        identity.into_iter().fold(builder, |builder, identity| builder.identity(identity)).build()
    };
    let with = |key: &KeyPair, authority: &Authority| {
        client(Some(key.serialize_pem() + &authority.client(key))).unwrap()
    };
    let put = async |http: &reqwest::Client, body: Vec<u8>| {
        http.put(cloud.at(paths::BUNDLES)).body(body).send().await
    };
    let http = with(&sensor, &authority);
    let (first, of_b) =
        (motes[0].seal(Star, 1, true, &[1; 10]), motes[1].seal(Star, 1, true, &[1; 10]));
    assert_eq!(put(&http, first.clone()).await.unwrap().status(), 200);
    assert_eq!(put(&http, of_b).await.unwrap().status(), 403);
    // A new certificate of the same key is the same user.
    assert_eq!(put(&with(&sensor, &authority), first.clone()).await.unwrap().status(), 200);
    // Neither another key of the authority nor another authority is a user.
    assert_eq!(put(&with(&stranger, &authority), first.clone()).await.unwrap().status(), 401);
    assert!(put(&with(&sensor, &Authority::new()), first.clone()).await.is_err());
    // Without a certificate, passwords work, and they count before the certificate.
    let plain = client(None).unwrap();
    assert_eq!(put(&plain, first.clone()).await.unwrap().status(), 401);
    for http in [&plain, &http] {
        let get = http.get(cloud.at(paths::DEVICES)).basic_auth("reader", Some(PASSWORD));
        assert_eq!(get.send().await.unwrap().status(), 200);
    }
    // The key changes: the old one is refused on its open connection.
    std::fs::write(&certificate, authority.client(&renewed)).unwrap();
    of_sensor.certificate = Some(certificate_key(&certificate).unwrap());
    add(&users, "sensor", of_sensor);
    assert_eq!(put(&http, first.clone()).await.unwrap().status(), 401);
    let http = with(&renewed, &authority);
    assert_eq!(put(&http, first.clone()).await.unwrap().status(), 200);
    revoke(&users, "sensor");
    assert_eq!(put(&http, first).await.unwrap().status(), 401);
    cloud.stop().await;
}

#[tokio::test]
async fn an_empty_table_serves_nobody_and_a_missing_one_does_not_start() {
    let scene = Scene::new().await;
    let Scene { directory, cloud, users, roster, .. } = scene;
    revoke(&users, "reader");
    revoke(&users, "writer");
    let refused = cloud.http.get(cloud.at(paths::DEVICES)).basic_auth("reader", Some(PASSWORD));
    assert_eq!(refused.send().await.unwrap().status(), 401);
    cloud.stop().await;
    let config = Config { users: Some(users.clone()), ..Config::new(roster) };
    let store = open_store(directory.path()) as std::sync::Arc<dyn EpochStore>;
    Cloud::bind(config.clone(), store.clone()).await.unwrap();
    std::fs::remove_file(&users).unwrap();
    let error = Cloud::bind(config, store).await.unwrap_err().to_string();
    assert!(error.contains("moteseal cloud user add"), "{error}");
}
