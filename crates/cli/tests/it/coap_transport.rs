//! Devices, gateways and clouds over CoAP, as processes: a device forwards its readings over DTLS to a
//! gateway, which uploads them over CoAP to a cloud; `push` uploads bundles; and libcoap and aiocoap do
//! the same.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::scene::Scene;

/// A running service, which is killed when this is dropped.
pub(crate) struct Service {
    process: Child,
    urls: Vec<String>,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Service {
    /// Starts a command that prints `count` addresses when it is ready.
    pub(crate) fn start(scene: &Scene, arguments: &[&str], count: usize) -> Self {
        Self::of(scene.command(arguments), count)
    }

    /// Like [`start`](Self::start), with a command that has its arguments.
    pub(crate) fn of(mut command: Command, count: usize) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let urls: Vec<String> = lines.take(count).map(Result::unwrap).collect();
        assert_eq!(urls.len(), count, "{command:?}");
        Self { process, urls }
    }

    /// Returns the number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn url(&self, scheme: &str) -> &str {
        let start = format!("{scheme}://");
        self.urls.iter().find(|url| url.starts_with(&start)).unwrap()
    }
}

/// Returns a group with a budget, whose devices share link secrets with the gateway and the cloud.
pub(crate) fn scene(devices: &[&str]) -> Scene {
    scene_with_epochs(devices, "1h")
}

/// Like [`scene`], with epochs of this length.
pub(crate) fn scene_with_epochs(devices: &[&str], epoch: &str) -> Scene {
    let scene = Scene::new();
    for name in ["gateway"].iter().chain(devices) {
        if !scene.path(&format!("keys/{name}.key.pem")).exists() {
            scene.run(&["key", "new", "--out", &format!("keys/{name}")]).done();
        }
    }
    let new = ["roster", "new", "--operator", "keys/op.key.pem", "--group", "home"];
    let budget = ["--epoch", epoch, "--budget", "1000", "--coordinator", "keys/gateway.pub.pem"];
    let mut arguments = [&new[..], &budget, &["--out", "budget.cbor"]].concat();
    let members = devices.iter().map(|device| format!("{device}=keys/{device}.pub.pem"));
    let members: Vec<String> = members.collect();
    members.iter().for_each(|member| arguments.extend(["--device", member]));
    scene.run(&arguments).done();
    std::fs::rename(scene.path("budget.cbor"), scene.path("roster.cbor")).unwrap();
    for parent in ["link", "cloud"] {
        let secret = format!("keys/{parent}.key");
        scene.run(&["key", "link", "--out", &secret]).done();
        for device in devices {
            let out = format!("keys/{device}.{parent}.key");
            let link = ["key", "link", "--group-secret", &secret, "--device", device];
            scene.with_roster(&[&link[..], &["--out", &out]].concat()).done();
        }
    }
    scene
}

pub(crate) const ROSTER: [&str; 4] = ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem"];

pub(crate) fn cloud(scene: &Scene, more: &[&str]) -> Service {
    let run = ["cloud", "run", "--store", "epochs.redb", "--listen", "127.0.0.1:0"];
    let coap = ["--listen-coap", "127.0.0.1:0", "--listen-coaps", "127.0.0.1:0"];
    let secret = ["--link-secret", "keys/cloud.key"];
    Service::start(scene, &[&run[..], &ROSTER, &coap, &secret, more].concat(), 3)
}

#[test]
fn readings_reach_the_cloud_over_dtls_only() {
    let scene = scene(&["dev1", "dev2"]);
    let cloud = cloud(&scene, &[]);
    scene.write(
        "gateway.toml",
        &format!(
            "roster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\nkey = \"keys/gateway.key.pem\"\n\
             link_secret = \"keys/link.key\"\nstate = \"gateway\"\nlisten_coaps = \"127.0.0.1:0\"\n\
             [cloud]\nurl = \"{}\"\n",
            cloud.url("coap")
        ),
    );
    let check = scene.run(&["gateway", "run", "--config", "gateway.toml", "--check"]).done();
    assert!(check.out.contains("coaps://127.0.0.1:0"), "{}", check.out);
    let gateway = Service::start(&scene, &["gateway", "run", "--config", "gateway.toml"], 1);
    for (device, readings) in [("dev1", 30), ("dev2", 20)] {
        scene.write(
            "device.toml",
            &format!(
                "device = \"{device}\"\nkey = \"keys/{device}.key.pem\"\nroster = \"roster.cbor\"\n\
                 operator = \"keys/op.pub.pem\"\nlink_secret = \"keys/{device}.link.key\"\n\
                 state = \"{device}\"\n[link]\nurl = \"mqtt://broker.example\"\n\
                 [source]\ncolumns = [\"temperature:Cel:i16/100\"]\n"
            ),
        );
        let run = ["device", "run", "--config", "device.toml", "--to", gateway.url("coaps")];
        let mut command = scene.command(&run);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut stdin = process.stdin.take().unwrap();
        (0..readings).for_each(|reading| writeln!(stdin, "{reading}.5").unwrap());
        drop(stdin);
        let Output { status, stderr, .. } = process.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(status.success() && stderr.contains("has everything"), "{stderr}");
    }
    // The epoch ends when both devices have closed it, and the gateway uploads it.
    let start = Instant::now();
    loop {
        let get = ["get", "--from", cloud.url("http"), "--rate", "1", "--format", "csv"];
        let run = scene.with_roster(&[&get[..], &["--since", "1970-01-01"]].concat());
        let rows = run.out.lines().filter(|line| line.contains(".5")).count();
        if rows == 50 {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{rows} rows: {run:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn bundles_are_pushed_over_coap_and_a_device_pushes_only_its_own() {
    let scene = Scene::new();
    scene.table("data.csv", 4000);
    for device in ["dev1", "dev2"] {
        scene.seal("data.csv", device, &[]).done();
    }
    scene.run(&["key", "link", "--out", "keys/cloud.key"]).done();
    for device in ["dev1", "dev2"] {
        let out = format!("keys/{device}.cloud.key");
        let link = ["key", "link", "--group-secret", "keys/cloud.key", "--device", device];
        scene.with_roster(&[&link[..], &["--out", &out]].concat()).done();
    }
    scene.write("tokens", "read 4q9mB0xJ2kTqvYfB\n");
    scene.write("token", "4q9mB0xJ2kTqvYfB\n");
    let cloud = cloud(&scene, &["--tokens", "tokens"]);
    let push =
        |to: &str, more: &[&str]| scene.run(&[&["push", "bundles", "--to", to][..], more].concat());
    let (plain, secure) = (cloud.url("coap"), cloud.url("coaps"));
    assert!(push(plain, &[]).failed(2).contains("Unauthorized"));
    let refused = push(secure, &["--link-secret", "keys/dev1.cloud.key"]);
    assert!(refused.failed(2).contains("Forbidden"), "{refused:?}");
    std::fs::create_dir(scene.path("own")).unwrap();
    for name in scene.names("bundles").iter().filter(|name| name.starts_with("dev1")) {
        std::fs::copy(scene.path("bundles").join(name), scene.path("own").join(name)).unwrap();
    }
    let own = ["push", "own", "--to", secure, "--link-secret", "keys/dev1.cloud.key", "--json"];
    let first = scene.run(&own).done().json();
    assert!(first["stored"].as_u64().unwrap() > 0, "{first}");
    let again = scene.run(&own).done().json();
    assert_eq!((&again["stored"], &again["known"]), (&0.into(), &first["stored"]));
    // Another key, and an address without credentials.
    let other = ["--link-secret", "keys/cloud.key"];
    assert!(push(secure, &other).failed(2).contains("link secret of a device"));
    assert!(push(secure, &[]).failed(2).contains("link secret"));
    assert!(push(plain, &["--token", "token"]).failed(2).contains("tokens and passwords"));
}

/// A user whose client certificate the cloud knows has the same rights over DTLS as over TLS. Another
/// certificate of the same authority has none.
#[test]
fn a_client_certificate_has_the_rights_of_its_user_over_coap() {
    let scene = crate::http_grades::scene();
    let bound = ["cloud", "user", "add", "uploader", "--scope", "read,write", "--device", "dev1"];
    let of_key = ["--certificate", "client.pem", "--users", "users"];
    scene.with_roster(&[&bound[..], &of_key].concat()).done();
    let run = ["cloud", "run", "--store", "epochs.redb", "--listen", "127.0.0.1:0"];
    let secure = ["--listen-coaps", "127.0.0.1:0", "--tls-cert", "server.pem"];
    let users = ["--tls-key", "server.key", "--tls-client-ca", "ca.pem", "--users", "users"];
    let cloud = Service::start(&scene, &[&run[..], &ROSTER, &secure, &users].concat(), 2);
    let push = |bundle: &str| {
        let push = ["push", bundle, "--to", cloud.url("coaps"), "--ca", "ca.pem"];
        let certificate = ["--client-cert", "client.pem", "--client-key", "client.key"];
        scene.run(&[&push[..], &certificate].concat())
    };
    push("bundles/dev1-0000000000.mseal").done();
    let refused = push("bundles/dev2-0000000000.mseal");
    assert!(refused.failed(2).contains("Forbidden"), "{refused:?}");
    scene.run(&["cloud", "user", "revoke", "uploader", "--users", "users"]).done();
    let revoked = push("bundles/dev1-0000000000.mseal");
    assert!(revoked.failed(2).contains("Unauthorized"), "{revoked:?}");
}

/// Writes the certificate of a server and its key, `server.pem` and `server.key`.
pub(crate) fn certificate(scene: &Scene) {
    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair};
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    scene.write("server.pem", &parameters.self_signed(&key).unwrap().pem());
    scene.write("server.key", &key.serialize_pem());
}

/// Returns the identity and the key of DTLS for a link secret. The file has the secret as hexadecimal
/// digits, and the device in the next line.
pub(crate) fn dtls_key(scene: &Scene, file: &str) -> (String, zeroize::Zeroizing<[u8; 32]>) {
    let text = std::fs::read_to_string(scene.path(file)).unwrap();
    let (digits, device) = (text.lines().next().unwrap(), text.lines().nth(1).unwrap());
    let device = device.rsplit_once(" of ").unwrap().0.rsplit_once('/').unwrap().1;
    let mut secret = [0; 32];
    for (byte, pair) in secret.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    }
    (device.to_owned(), moteseal_core::link::LinkKey::dtls_psk(&secret))
}

/// Runs a client of libcoap, which `tools/setup.sh` installs.
fn libcoap(scene: &Scene, program: &str, arguments: &[&str]) -> Output {
    let program = format!("coap-client-{program}");
    let mut command = Command::new(&program);
    command.args(arguments).current_dir(scene.path(""));
    command.output().unwrap_or_else(|error| panic!("{program}: {error}; run tools/setup.sh test"))
}

#[test]
fn libcoap_uploads_a_bundle_in_blocks_without_dtls_and_with_both_kinds_of_it() {
    let scene = Scene::new();
    scene.table("data.csv", 4000);
    scene.seal("data.csv", "dev1", &[]).done();
    let bundles = scene.names("bundles");
    let length = |name: &String| scene.path("bundles").join(name).metadata().unwrap().len();
    let bundle = bundles.iter().max_by_key(|name| length(name)).unwrap();
    assert!(length(bundle) > 256, "it has several blocks of 64 bytes");
    let file = format!("bundles/{bundle}");
    scene.run(&["key", "link", "--out", "keys/cloud.key"]).done();
    let link = ["key", "link", "--group-secret", "keys/cloud.key", "--device", "dev1"];
    scene.with_roster(&[&link[..], &["--out", "keys/dev1.cloud.key"]].concat()).done();
    certificate(&scene);
    let cloud = cloud(&scene, &["--tls-cert", "server.pem", "--tls-key", "server.key"]);
    let put = |program: &str, url: &str, more: &[&str]| {
        let url = format!("{url}/bundles");
        let arguments = ["-m", "put", "-t", "63", "-f", &file, "-b", "64", "-B", "20", "-v", "6"];
        let output = libcoap(&scene, program, &[&arguments[..], more, &[&url]].concat());
        [output.stdout, output.stderr].concat()
    };
    let shows = |output: Vec<u8>, what: &str| {
        let text = String::from_utf8_lossy(&output).into_owned();
        assert!(text.contains(what), "{text}");
    };
    shows(put("notls", cloud.url("coap"), &[]), r#"{"stored":1,"known":0}"#);
    let (device, key) = dtls_key(&scene, "keys/dev1.cloud.key");
    // `coap-client` takes bytes of a key as text, so that a key with a zero cannot be given. This one
    // comes from a random secret.
    if !key.contains(&0) {
        use std::os::unix::ffi::OsStrExt as _;
        let key = std::ffi::OsStr::from_bytes(&key[..]);
        let url = format!("{}/bundles", cloud.url("coaps"));
        let mut command = Command::new("coap-client-openssl");
        command
            .args(["-m", "put", "-t", "63", "-f", &file, "-b", "128", "-B", "20", "-u", &device]);
        let output = command.arg("-k").arg(key).arg(url).current_dir(scene.path("")).output();
        shows(output.unwrap().stdout, r#"{"stored":0,"known":1}"#);
    }
    let trusted = ["-R", "server.pem"];
    shows(put("openssl", cloud.url("coaps"), &trusted), r#"{"stored":0,"known":1}"#);
    // Bytes that are no bundle are refused with a problem.
    scene.write("junk", "no bundle");
    let url = format!("{}/bundles", cloud.url("coap"));
    let junk = libcoap(&scene, "notls", &["-m", "put", "-t", "63", "-f", "junk", &url]);
    shows([junk.stdout, junk.stderr].concat(), "urn:moteseal:problem:");
    let core = format!("{}/.well-known/core", cloud.url("coap"));
    shows(libcoap(&scene, "notls", &["-m", "get", &core]).stdout, "</bundles>;rt=");
}

/// Puts the file of the second argument to the address of the first one, in blocks of 64 bytes, twice.
/// Prints the responses.
const AIOCOAP: &str = r#"
import asyncio, sys
import aiocoap
async def main(url, path):
    context = await aiocoap.Context.create_client_context()
    body = open(path, "rb").read()
    for _ in range(2):
        message = aiocoap.Message(code=aiocoap.PUT, uri=url, payload=body, content_format=63)
        message.remote.maximum_block_size_exp = 2
        response = await context.request(message).response
        print(response.code.dotted, response.payload.decode(), flush=True)
asyncio.run(main(*sys.argv[1:]))
"#;

#[test]
fn aiocoap_uploads_a_bundle_in_blocks_and_a_client_verifies_it() {
    let Some(mut python) = moteseal_fixtures::python() else { return };
    let scene = Scene::new();
    scene.table("data.csv", 60);
    scene.seal("data.csv", "dev1", &[]).done();
    let [file] = &scene.names("bundles")[..] else { panic!("the table has one epoch") };
    let path = scene.path("bundles").join(file);
    assert!(path.metadata().unwrap().len() > 256, "it has several blocks of 64 bytes");
    scene.run(&["key", "link", "--out", "keys/cloud.key"]).done();
    let cloud = cloud(&scene, &[]);
    let url = format!("{}/bundles", cloud.url("coap"));
    let Output { status, stdout, stderr } =
        python.args(["-c", AIOCOAP, &url]).arg(&path).output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let lines = String::from_utf8(stdout).unwrap();
    assert_eq!(lines, "2.05 {\"stored\":1,\"known\":0}\n2.05 {\"stored\":0,\"known\":1}\n");
    let get = ["get", "dev1", "--from", cloud.url("http"), "--rate", "1", "--since", "1970-01-01"];
    let rows = scene.with_roster(&[&get[..], &["--format", "csv"]].concat()).done();
    assert_eq!(rows.out.lines().count(), 61, "{rows:?}");
}
