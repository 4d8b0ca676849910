//! HTTP in three grades: `curl` and our clients at a cloud with plain HTTP, with TLS, and with TLS and
//! credentials.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};

use crate::scene::{Cloud, GROUP_ARGUMENTS, Run, Scene};

/// Runs `curl`, which `tools/setup.sh` installs. Returns the status of the response and its body.
pub(crate) fn curl(scene: &Scene, arguments: &[&str]) -> (u16, String) {
    let Output { status, stdout, stderr } = Command::new("curl")
        .args(["--silent", "--show-error", "--noproxy", "*", "--write-out", "\n%{http_code}"])
        .args(arguments)
        .current_dir(scene.path(""))
        .output()
        .expect("curl is missing; run tools/setup.sh test");
    let text = String::from_utf8(stdout).unwrap();
    assert!(status.success(), "{text}{}", String::from_utf8_lossy(&stderr));
    let (body, code) = text.rsplit_once('\n').unwrap();
    (code.parse().unwrap(), body.to_owned())
}

/// Returns the scene with a sealed bundle of each device, a server certificate for 127.0.0.1, a
/// client certificate and the authority of both.
pub(crate) fn scene() -> Scene {
    let scene = Scene::new();
    scene.table("data.csv", 10);
    for device in ["dev1", "dev2"] {
        scene.seal("data.csv", device, &[]).done();
    }
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // OpenSSL takes a certificate whose subject is its issuer for a self-signed one.
    parameters.distinguished_name.push(DnType::CommonName, "authority");
    scene.write("ca.pem", &parameters.self_signed(&key).unwrap().pem());
    let authority = Issuer::new(parameters, key);
    for (name, usage) in [
        ("server", ExtendedKeyUsagePurpose::ServerAuth),
        ("client", ExtendedKeyUsagePurpose::ClientAuth),
    ] {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        parameters.extended_key_usages = vec![usage];
        let certificate = parameters.signed_by(&key, &authority).unwrap();
        scene.write(&format!("{name}.pem"), &certificate.pem());
        scene.write(&format!("{name}.key"), &key.serialize_pem());
    }
    scene
}

const TLS: [&str; 4] = ["--tls-cert", "server.pem", "--tls-key", "server.key"];
const PUT: [&str; 4] = ["--upload-file", "bundles/dev1-0000000000.mseal", "--cacert", "ca.pem"];

fn bundles(cloud: &Cloud) -> String {
    format!("{}/v1/bundles", cloud.url)
}

fn devices(cloud: &Cloud) -> String {
    format!("{}/v1/devices", cloud.url)
}

#[test]
fn curl_uploads_and_reads_in_the_first_two_grades() {
    let scene = scene();
    for (store, options) in [("plain.redb", &[][..]), ("tls.redb", &TLS)] {
        let cloud = scene.cloud_with(store, options);
        let (status, body) = curl(&scene, &[&PUT[..], &[&bundles(&cloud)]].concat());
        assert_eq!((status, &body[..]), (200, r#"{"stored":1,"known":0}"#));
        let (status, body) = curl(&scene, &["--cacert", "ca.pem", &devices(&cloud)]);
        assert_eq!(status, 200, "{body}");
        assert!(body.contains(r#""newest":{"index":0,"#), "{body}");
    }
}

#[test]
fn curl_and_our_clients_use_all_credentials_of_the_third_grade() {
    let scene = scene();
    let user = |arguments: &[&str]| -> Run {
        scene.run(&[&["cloud", "user"][..], arguments, &["--users", "users"]].concat())
    };
    let added = user(&["add", "writer", "--scope", "read,write", "--generate", "--json"]).done();
    let password = added.json()["password"].as_str().unwrap().to_owned();
    assert!(password.len() == 40, "160 random bits in hexadecimal digits");
    scene.write("writer.password", &password);
    scene.write("reader.password", "correct horse battery\n");
    user(&["add", "reader", "--scope", "read", "--password-file", "reader.password"]).done();
    let roster = ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem"];
    let bound = ["add", "dev1", "--scope", "read,write", "--device", "dev1"];
    user(&[&bound[..], &["--certificate", "client.pem"], &roster].concat()).done();
    scene.write("tokens", "read 4q9mB0xJ2kTqvYfB\n");
    scene.write("token", "4q9mB0xJ2kTqvYfB\n");
    let options = ["--users", "users", "--tokens", "tokens", "--tls-client-ca", "ca.pem"];
    let cloud = scene.cloud_with("epochs.redb", &[&TLS[..], &options].concat());

    // curl: a password, a client certificate and a token.
    let put = |more: &[&str]| curl(&scene, &[&PUT[..], more, &[&bundles(&cloud)]].concat()).0;
    let get = |more: &[&str]| {
        curl(&scene, &[&["--cacert", "ca.pem"][..], more, &[&devices(&cloud)]].concat()).0
    };
    assert_eq!(put(&[]), 401);
    assert_eq!(put(&["--user", "writer:a wrong password"]), 401);
    assert_eq!(put(&["--user", &format!("writer:{password}")]), 200);
    let certificate = ["--cert", "client.pem", "--key", "client.key"];
    assert_eq!(put(&certificate), 200);
    assert_eq!(get(&certificate), 200);
    assert_eq!(get(&["--user", "reader:correct horse battery"]), 200);
    assert_eq!(get(&["--header", "authorization: Bearer 4q9mB0xJ2kTqvYfB"]), 200);
    // Digest authentication is not offered; curl reports the refusal.
    assert_eq!(get(&["--digest", "--user", "reader:correct horse battery"]), 401);

    // Our clients.
    let push = |more: &[&str]| {
        let push = ["push", "bundles", "--to", &cloud.url, "--ca", "ca.pem"];
        scene.run(&[&push[..], more].concat())
    };
    let certificate = ["--client-cert", "client.pem", "--client-key", "client.key"];
    let other = push(&certificate);
    assert!(other.failed(2).contains("Forbidden") && other.stderr.contains("dev2"), "{other:?}");
    push(&["--user", "writer", "--password-file", "writer.password"]).done();
    let wrong = push(&["--user", "writer", "--password-file", "reader.password"]);
    assert!(wrong.failed(2).contains("Unauthorized"), "{wrong:?}");
    let from = ["get", "--all", "--rate", "1", "--from", &cloud.url, "--ca", "ca.pem"];
    let reader = ["--user", "reader", "--password-file", "reader.password"];
    for more in [&reader[..], &["--token", "token"]] {
        let answer = scene.with_roster(&[&from[..], more].concat()).done();
        assert_eq!(answer.out.lines().count(), 21, "{answer:?}");
    }

    // A revocation takes effect while the cloud runs.
    user(&["revoke", "writer"]).done();
    assert_eq!(put(&["--user", &format!("writer:{password}")]), 401);
    user(&["revoke", "dev1"]).done();
    assert_eq!(put(&["--cert", "client.pem", "--key", "client.key"]), 401);
    let listed = user(&["list"]).done().out;
    assert_eq!(listed, "reader           read password\n");
}

#[test]
fn mistakes_with_users_have_names_and_never_show_a_password() {
    let scene = Scene::new();
    scene.write("password", "correct horse battery\n");
    scene.write("short", "sesame\n");
    let user = |arguments: &str| {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        scene.run(&[&["cloud", "user"][..], &arguments, &["--users", "users"]].concat())
    };
    for (arguments, expected) in [
        ("list", "cloud user add"),
        ("revoke a", "cloud user add"),
        ("add a --scope write --password-file none", "none"),
        ("add a --scope write --password-file short", "12 to 256 bytes"),
        ("add a:b --scope write --password-file password", "BadUserName"),
        ("add a --scope read --device 0123456789abcdef --password-file password", "--scope"),
        ("add a --scope write --device dev1 --password-file password", "--roster"),
        ("add a --scope write --group home --password-file password", "--roster"),
        ("add a --scope write --certificate password", "password"),
    ] {
        let run = user(arguments);
        assert!(run.failed(2).contains(expected), "{arguments}: {run:?}");
        assert!(!run.stderr.contains("sesame") && !run.stderr.contains("correct horse"), "{run:?}");
        assert!(!scene.path("users").exists(), "{arguments}");
    }
    user("add a --scope write --password-file password").done();
    assert!(user("add a --scope write --password-file password").failed(2).contains("UserExists"));
    user("add a --scope read --password-file password --replace").done();
    assert_eq!(user("list --json").done().json()["scope"], "read");
    assert!(user("revoke b").failed(2).contains("UnknownUser"));
    let text = std::fs::read_to_string(scene.path("users")).unwrap();
    assert!(text.contains("$argon2id$") && !text.contains("correct horse"));
    scene.write("users", &text.replace("a read", "a write"));
    assert!(user("list").failed(2).contains("UsersDamaged"));
    // A password or a token goes unencrypted only to this machine.
    let push = ["push", "bundles", "--to", "http://cloud.example", "--user", "a"];
    let run = scene.run(&[&push[..], &["--password-file", "password"]].concat());
    assert!(run.failed(2).contains("PasswordInClear"), "{run:?}");
}

#[test]
fn a_cloud_warns_of_a_certificate_that_has_expired_or_ends_soon() {
    let scene = Scene::new();
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let log = |days: i64| {
        let end = today.checked_add(jiff::Span::new().days(days)).unwrap();
        let [month, day] = [end.month(), end.day()].map(|number| u8::try_from(number).unwrap());
        let mut parameters = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(end.year().into(), month, day);
        let key = KeyPair::generate().unwrap();
        scene.write("server.pem", &parameters.self_signed(&key).unwrap().pem());
        scene.write("server.key", &key.serialize_pem());
        let run = ["cloud", "run", "--store", "epochs.redb", "--listen", "127.0.0.1:0"];
        let mut command = scene.command(&[&run[..], &GROUP_ARGUMENTS, &TLS].concat());
        let stderr = std::fs::File::create(scene.path("log")).unwrap();
        let mut process = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(url.starts_with("https://127.0.0.1:"), "{url}");
        std::fs::read_to_string(scene.path("log")).unwrap()
    };
    for (days, warning) in
        [(-10, "expired 10 days ago"), (20, "expires in "), (0, "expired 0 days")]
    {
        let log = log(days);
        println!("{log}");
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("certificate")).collect();
        assert_eq!(lines.len(), 1, "{log}");
        for word in ["WARN", "server.pem", warning, "renew it"] {
            assert!(lines[0].contains(word), "{word:?} is not in: {log}");
        }
    }
    assert!(!log(40).contains("certificate"));
}
