//! The policy of a cloud of several processes: what `init` writes, `apply` makes effective and `check` finds,
//! at a real nats-server with TLS and at clouds with TLS.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::coap_transport::{ROSTER, Service};
use crate::http_grades;
use crate::nats::{SYNCED, Server};
use crate::scene::{Run, Scene};

const PROCESSES: &str = "boss = [\"admin\"]\nintake1 = [\"intake\"]\nintake2 = [\"intake\"]\nback = [\"worker\", \"serve\"]\n";
const TOKENS: &str = "gateway = { scope = \"read,write\" }\nanalyst = { scope = \"read\" }\n\
    mote = { scope = \"write\", device = [\"0123456789abcdef\"] }\n";

fn policy(command: &str, scene: &Scene, more: &[&str]) -> Run {
    let folder = if command == "init" { "--out" } else { "--from" };
    let run = ["cloud", "policy", command, "policy.toml", folder, "policy"];
    scene.run(&[&run[..], more].concat())
}

/// Writes a policy for the servers at these addresses.
fn write(scene: &Scene, stream: &str, clouds: &str, processes: &str, tokens: &str) {
    let text = format!(
        "[stream]\nservers = [\"{stream}\"]\nca = \"ca.pem\"\ncertificate = {:?}\nkey = {:?}\n\
         accounts = {:?}\n[http]\nclouds = [{clouds}]\nca = \"ca.pem\"\n\
         [processes]\n{processes}[tokens]\n{tokens}",
        scene.path("server.pem"),
        scene.path("server.key"),
        scene.path("accounts"),
    );
    scene.write("policy.toml", &text);
}

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Asserts that an output contains no secret of the folder.
#[track_caller]
fn shows_no_secret(scene: &Scene, run: &Run) {
    for file in files(&scene.path("policy")) {
        let text = fs::read_to_string(&file).unwrap();
        let is_secret = |word: &&str| {
            (word.len() == 58 && word.starts_with('S'))
                || (word.len() == 40 && word.bytes().all(|byte| byte.is_ascii_hexdigit()))
        };
        for secret in text.split_whitespace().filter(is_secret) {
            assert!(!run.out.contains(secret) && !run.stderr.contains(secret), "{file:?}: {run:?}");
        }
    }
}

#[test]
fn init_completes_what_is_missing_keeps_what_exists_and_revokes_what_was_removed() {
    let scene = Scene::new();
    write(&scene, "tls://127.0.0.1:1", "", PROCESSES, TOKENS);
    let run = policy("init", &scene, &["--json"]).done();
    shows_no_secret(&scene, &run);
    let created = run.json()["created"].as_array().unwrap().len();
    let first = files(&scene.path("policy"));
    // The lock and the record of revocations are not reported.
    assert_eq!(created + 2, first.len(), "{run:?}");
    for file in &first {
        let mode = fs::metadata(file).unwrap().permissions().mode() & 0o777;
        let name = file.file_name().unwrap().to_str().unwrap();
        let is_public = name.ends_with(".jwt") || ["nats.conf", "revocations.json"].contains(&name);
        assert!(is_public || mode == 0o600, "{file:?} {mode:o}");
    }
    let contents = |files: &[PathBuf]| -> Vec<Vec<u8>> {
        files.iter().map(|file| fs::read(file).unwrap()).collect()
    };
    let before = contents(&first);
    let again = policy("init", &scene, &[]).done();
    assert!(again.stderr.contains("up to date"), "{again:?}");
    assert_eq!((files(&scene.path("policy")), contents(&first)), (first.clone(), before));

    // A lost file is made again, and nothing else changes.
    fs::remove_file(scene.path("policy/clients/analyst.token")).unwrap();
    let run = policy("init", &scene, &["--json"]).done().json();
    assert_eq!(run["created"], serde_json::json!(["clients/analyst.token"]));
    assert_eq!(run["changed"], serde_json::json!(["tokens"]));

    // Removed, renewed, and with another role.
    let seed = |name: &str| {
        let text = fs::read_to_string(scene.path(&format!("policy/processes/{name}/stream.creds")));
        text.unwrap().lines().find(|line| line.starts_with("SU")).unwrap().to_owned()
    };
    let (kept, renewed) = (seed("back"), seed("boss"));
    let fewer = PROCESSES.replace("intake2 = [\"intake\"]\n", "").replace(", \"serve\"", "");
    write(&scene, "tls://127.0.0.1:1", "", &fewer, TOKENS);
    let run = policy("init", &scene, &["--renew", "boss", "--renew", "analyst", "--json"]).done();
    shows_no_secret(&scene, &run);
    let done = run.json();
    assert_eq!(done["revoked"], serde_json::json!(["boss", "intake2", "analyst"]));
    assert!(done["changed"].to_string().contains("processes/back/stream.creds"), "{done}");
    assert_eq!(seed("back"), kept, "a new role needs no new secret");
    assert_ne!(seed("boss"), renewed);
    let revocations = fs::read_to_string(scene.path("policy/revocations.json")).unwrap();
    assert_eq!(revocations.matches("\"U").count(), 3, "{revocations}");
    assert_eq!(scene.names("policy/revoked"), ["analyst-1.token", "boss-1", "intake2-1"]);

    // Mistakes.
    let unknown = policy("init", &scene, &["--renew", "stranger"]);
    assert!(unknown.failed(2).contains("stranger"), "{unknown:?}");
    fs::remove_file(scene.path("policy/revocations.json")).unwrap();
    let lost = policy("init", &scene, &[]);
    assert!(lost.failed(2).contains("PolicyDamaged"), "{lost:?}");
    let check = policy("check", &scene, &[]);
    assert!(check.failed(2).contains("moteseal cloud policy init"), "{check:?}");
}

#[test]
fn mistakes_in_a_policy_are_named() {
    let scene = Scene::new();
    let stream = "[stream]\nservers = [\"nats://127.0.0.1:1\"]\n";
    for (text, expected) in [
        ("[http]\nclouds = []".to_owned(), "neither [stream], [table] nor [tokens]"),
        (stream.to_owned(), "processes"),
        (format!("{stream}[processes]\nA = [\"intake\"]"), "processes.A"),
        (format!("{stream}[processes]\na = []"), "processes.a"),
        (format!("{stream}[processes]\na = [\"king\"]"), "king"),
        ("[tokens]\na = { scope = \"all\" }".to_owned(), "tokens.a"),
        (
            "[tokens]\na = { scope = \"read\", device = [\"0123456789abcdef\"] }".to_owned(),
            "tokens.a",
        ),
        (
            "[table]\nstore = \"epochs.redb\"\n[processes]\na = [\"serve\"]".to_owned(),
            "table.store",
        ),
        (
            "[table]\nstore = \"cassandra://a@h/k\"\n[processes]\na = [\"serve\"]".to_owned(),
            "leave out the user",
        ),
    ] {
        scene.write("policy.toml", &text);
        let run = policy("init", &scene, &[]);
        assert!(run.failed(2).contains(expected), "{text}: {run:?}");
        assert!(!scene.path("policy").exists(), "{text}");
    }
}

/// Writes a policy, and starts a NATS server with it. Returns the server's URL, too.
fn started() -> (Scene, Server, String) {
    let scene = http_grades::scene();
    write(&scene, "tls://127.0.0.1:1", "", PROCESSES, TOKENS);
    policy("init", &scene, &[]).done();
    let lines = fs::read_to_string(scene.path("policy/nats.conf")).unwrap();
    let nats = Server::with(SYNCED, &lines);
    let server = nats.url.replace("nats://", "tls://");
    (scene, nats, server)
}

#[test]
fn check_finds_what_the_policy_states_and_a_revocation_takes_effect_within_five_seconds() {
    let (scene, nats, server) = started();
    let stream = |process: &str| {
        let creds = format!("policy/processes/{process}/stream.creds");
        [
            "--stream",
            &server,
            "--stream-ca",
            "ca.pem",
            "--stream-monitor",
            &nats.monitor,
            "--stream-creds",
            &creds,
        ]
        .map(str::to_owned)
    };
    let limits = ["stream", "init", "--max-mib", "64", "--piece-mib", "64", "--dead-mib", "8"];
    let run = |arguments: &[&str], process: &str| {
        let more = stream(process);
        scene.run(&[arguments, &more.each_ref().map(String::as_str)].concat())
    };
    run(&limits, "boss").done();
    let cloud = |process: &str, more: &[&str]| {
        let tls =
            ["--tls-cert", "server.pem", "--tls-key", "server.key", "--tokens", "policy/tokens"];
        let stream = stream(process);
        let stream = stream.each_ref().map(String::as_str);
        let run = ["cloud", "run", "--listen", "127.0.0.1:0"];
        Service::start(&scene, &[&run[..], &ROSTER, &tls, &stream, more].concat(), 1)
    };
    let intakes = ["intake1", "intake2"].map(|name| cloud(name, &["--role", "intake"]));
    let back = cloud("back", &["--role", "worker,serve", "--store", "epochs.redb"]);
    let clouds: Vec<String> =
        intakes.iter().chain([&back]).map(|cloud| format!("{:?}", cloud.url("https"))).collect();
    let clouds = clouds.join(", ");
    write(&scene, &server, &clouds, PROCESSES, TOKENS);

    let checked = policy("check", &scene, &[]).done();
    println!("{}", checked.out);
    shows_no_secret(&scene, &checked);
    for wanted in
        ["stream moteseal", "delete the stream", "connect without TLS", "upload manifests"]
    {
        assert!(checked.out.contains(wanted), "{checked:?}");
    }
    let push = |cloud: &Service, device: &str, token: &str| {
        let file = format!("bundles/{device}-0000000000.mseal");
        let token = format!("policy/clients/{token}.token");
        let to = ["push", &file, "--to", cloud.url("https"), "--ca", "ca.pem", "--token", &token];
        scene.run(&to)
    };
    push(&intakes[1], "dev1", "gateway").done();

    // An intake and a token are removed. Before `apply`, the intake still can publish, and `check` finds it.
    let processes = PROCESSES.replace("intake2 = [\"intake\"]\n", "");
    let tokens = TOKENS.replace("analyst = { scope = \"read\" }\n", "");
    write(&scene, &server, &clouds, &processes, &tokens);
    policy("init", &scene, &[]).done();
    let early = policy("check", &scene, &["--json"]);
    assert_eq!(early.code, 5, "{early:?}");
    let lines: Vec<serde_json::Value> =
        early.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let differs = |line: &&serde_json::Value| line["found"] != line["expected"];
    let differing: Vec<&serde_json::Value> =
        lines.iter().filter(|line| line.get("error").is_none()).filter(differs).collect();
    assert!(!differing.is_empty(), "{early:?}");
    for line in differing {
        assert_eq!(line["who"], "revoked intake2-1", "{line}");
    }
    assert!(lines.iter().any(|line| line["who"] == "revoked analyst-1" && line["found"] == false));
    assert!(early.out.contains("PolicyDiffers"), "{early:?}");

    policy("apply", &scene, &[]).done();
    let revoked = Instant::now();
    // The intake answers 503 as soon as it cannot publish any more.
    let status = || {
        let token = fs::read_to_string(scene.path("policy/clients/gateway.token")).unwrap();
        let header = format!("authorization: Bearer {}", token.trim());
        let (ca, url) = (scene.path("ca.pem"), format!("{}/v1/bundles", intakes[1].url("https")));
        let file = scene.path("bundles/dev2-0000000000.mseal");
        crate::stream_roles::curl(&[
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-H",
            &header,
            "--cacert",
            ca.to_str().unwrap(),
            "--upload-file",
            file.to_str().unwrap(),
            &url,
        ])
    };
    let mut found = status();
    while found == "200" && revoked.elapsed() < Duration::from_secs(5) {
        found = status();
    }
    assert_eq!(found, "503", "after {:?}", revoked.elapsed());
    run(&["stream", "check", "--role", "intake"], "intake1").done();
    push(&intakes[0], "dev2", "gateway").done();
    let checked = policy("check", &scene, &[]).done();
    assert!(checked.out.contains("revoked intake2-1"), "{checked:?}");

    // A server that cannot be reached makes the check incomplete, not successful.
    drop(nats);
    let gone = policy("check", &scene, &[]);
    assert!(gone.failed(4).contains("PolicyUnchecked"), "{gone:?}");
}

/// Copies the files of a folder of the scene.
fn copy(scene: &Scene, from: &str, to: &str) {
    let (from, to) = (scene.path(from), scene.path(to));
    for file in files(&from) {
        let copied = to.join(file.strip_prefix(&from).unwrap());
        fs::create_dir_all(copied.parent().unwrap()).unwrap();
        fs::copy(&file, &copied).unwrap();
    }
}

#[test]
fn a_folder_that_is_restored_from_a_backup_makes_nothing_valid_that_was_revoked() {
    const OWN: &str = "policy/processes/intake1/stream.creds";
    let (scene, nats, server) = started();
    write(&scene, &server, "", PROCESSES, TOKENS);
    let stream = |command: &[&str], creds: &str| {
        let at = ["--stream", &server, "--stream-monitor", &nats.monitor, "--stream-ca", "ca.pem"];
        scene.run(&[&["stream"][..], command, &at, &["--stream-creds", creds]].concat())
    };
    let limits = ["init", "--max-mib", "64", "--piece-mib", "64", "--dead-mib", "8"];
    stream(&limits, "policy/processes/boss/stream.creds").done();
    let check = |creds: &str| stream(&["check", "--role", "intake"], creds);
    let refused = |creds: &str| {
        let run = check(creds);
        assert!(run.code != 0 && run.stderr.contains("NotPermitted"), "{creds}: {run:?}");
    };
    let issued_at = || {
        let jwt = fs::read_to_string(scene.path("policy/keys/account.jwt")).unwrap();
        moteseal_stream::jwt_issued_at(&jwt)
    };
    let applied = |added: u64, revoked: &[&str]| {
        let run = policy("apply", &scene, &["--json"]).done();
        let stated =
            serde_json::json!({ "servers": 1, "roles": 0, "added": added, "revoked": revoked });
        assert_eq!(run.json(), stated);
    };
    let restore = || {
        fs::remove_dir_all(scene.path("policy")).unwrap();
        copy(&scene, "backup", "policy");
    };

    policy("apply", &scene, &[]).done();
    copy(&scene, "policy", "backup");
    fs::copy(scene.path(OWN), scene.path("stolen.creds")).unwrap();
    check("stolen.creds").done();
    policy("init", &scene, &["--renew", "intake1"]).done();
    applied(0, &[]);
    refused("stolen.creds");
    fs::copy(scene.path(OWN), scene.path("renewed.creds")).unwrap();
    check("renewed.creds").done();

    // The folder is restored, and applied.
    let before = issued_at();
    restore();
    let again = policy("init", &scene, &[]).done();
    assert!(again.stderr.contains("up to date"), "{again:?}");
    let run = policy("apply", &scene, &[]).done();
    shows_no_secret(&scene, &run);
    for wanted in
        ["have 1 revocations that this folder lacked", "--renew intake1", "1 keys are revoked"]
    {
        assert!(run.stderr.contains(wanted), "{wanted}: {run:?}");
    }
    assert!(issued_at() > before, "the account is not later than that of the servers");
    refused("stolen.creds");
    refused(OWN);
    check("renewed.creds").done();
    check("policy/processes/intake2/stream.creds").done();

    // Applied again, without the credentials of `apply`, which it can make itself.
    fs::remove_file(scene.path("policy/keys/system.creds")).unwrap();
    applied(0, &["intake1"]);
    refused("stolen.creds");

    // The remedy.
    policy("init", &scene, &["--renew", "intake1"]).done();
    applied(0, &[]);
    check(OWN).done();
    refused("stolen.creds");
    let checked = policy("check", &scene, &[]).done();
    assert!(checked.out.contains("revoked intake1-1"), "{checked:?}");

    // Restored once more, and changed before it is applied, so that its account is later.
    restore();
    fs::copy(scene.path("policy/processes/intake2/stream.creds"), scene.path("removed.creds"))
        .unwrap();
    let fewer = PROCESSES.replace("intake2 = [\"intake\"]\n", "");
    write(&scene, &server, "", &fewer, TOKENS);
    let text = fs::read_to_string(scene.path("policy.toml")).unwrap();
    let table = "[table]\nstore = \"cassandra://127.0.0.1:1/moteseal\"\n";
    scene.write("policy.toml", &format!("{text}{table}"));
    policy("init", &scene, &[]).done();
    check("removed.creds").done();
    let roles = || fs::read_to_string(scene.path("policy/roles.cql")).unwrap();
    assert!(roles().contains("\"moteseal_intake1\""), "{}", roles());
    applied(1, &["intake1"]);
    // Its password in Cassandra, which the restored folder has again, does not become valid.
    assert!(!roles().contains("\"moteseal_intake1\""), "{}", roles());
    assert!(roles().contains("\"moteseal_back\""), "{}", roles());
    for creds in ["stolen.creds", "removed.creds", OWN] {
        refused(creds);
    }
    check("renewed.creds").done();
}

#[test]
fn apply_reaches_the_other_servers_while_the_first_is_down() {
    let (scene, nats, server) = started();
    let closed = format!("tls://127.0.0.1:{}", crate::nats::free_port());
    let both = format!("{closed}\", \"{server}");
    let stream = |command: &[&str], process: &str| {
        let at = ["--stream", &server, "--stream-monitor", &nats.monitor, "--stream-ca", "ca.pem"];
        let creds = format!("policy/processes/{process}/stream.creds");
        scene.run(&[&["stream"][..], command, &at, &["--stream-creds", &creds]].concat())
    };
    let limits = ["init", "--max-mib", "64", "--piece-mib", "64", "--dead-mib", "8"];
    stream(&limits, "boss").done();
    let is_accepted = |creds: &str| {
        let at = ["--stream", &server, "--stream-monitor", &nats.monitor, "--stream-ca", "ca.pem"];
        let check = ["stream", "check", "--role", "intake", "--stream-creds", creds];
        let run = scene.run(&[&check[..], &at].concat());
        assert!(run.code == 0 || run.stderr.contains("NotPermitted"), "{run:?}");
        run.code == 0
    };
    fs::copy(scene.path("policy/processes/intake2/stream.creds"), scene.path("removed.creds"))
        .unwrap();
    let fewer = PROCESSES.replace("intake2 = [\"intake\"]\n", "");
    write(&scene, &both, "", &fewer, TOKENS);
    let text = fs::read_to_string(scene.path("policy.toml")).unwrap();

    // Without the superuser's password, nothing changes.
    let table =
        "[table]\nstore = \"cassandra://127.0.0.1:1/moteseal\"\nsuperuser = \"cassandra\"\n";
    scene.write("policy.toml", &format!("{text}{table}"));
    policy("init", &scene, &[]).done();
    let apply = ["cloud", "policy", "apply", "policy.toml", "--from", "policy"];
    let mut command = scene.command(&apply);
    let run = Run::of(command.env_remove("MOTESEAL_CASSANDRA_PASSWORD").output().unwrap());
    assert!(run.failed(2).contains("TablePassword"), "{run:?}");
    assert!(is_accepted("removed.creds"));

    // Cassandra does not answer either, and both are named.
    let run = policy("apply", &scene, &[]);
    let line = run.failed(6);
    println!("{line}");
    let missing = format!("missing: {closed} (");
    for word in ["Unreachable", "1 of 2 NATS servers have the account", &missing, "run it again"] {
        assert!(line.contains(word), "{word:?} is not in: {line}");
    }
    assert!(line.contains("Cassandra: TableUnreachable"), "{line}");
    assert!(run.stderr.contains("NATS: 1 servers have the account; 1 keys are revoked"), "{run:?}");
    assert!(!is_accepted("removed.creds"));
    assert!(is_accepted("policy/processes/intake1/stream.creds"));

    // No server answers.
    write(&scene, &closed, "", &fewer, TOKENS);
    let run = policy("apply", &scene, &["--json"]);
    let line = run.failed(6);
    assert!(line.contains("0 of 1 NATS servers") && line.contains(&closed), "{line}");
    assert_eq!(run.json()["servers"], 0);
}

#[test]
fn a_cloud_with_an_earlier_file_of_tokens_needs_the_new_one() {
    let scene = http_grades::scene();
    let write = |cloud: &str| {
        let clouds = format!("[http]\nclouds = [{cloud:?}]\nca = \"ca.pem\"\n");
        scene.write("policy.toml", &format!("{clouds}[tokens]\n{TOKENS}"));
    };
    write("https://127.0.0.1:1");
    policy("init", &scene, &[]).done();
    fs::copy(scene.path("policy/tokens"), scene.path("tokens")).unwrap();
    let tls = ["--tls-cert", "server.pem", "--tls-key", "server.key", "--tokens", "tokens"];
    let run = ["cloud", "run", "--listen", "127.0.0.1:0", "--store", "epochs.redb"];
    let cloud = Service::start(&scene, &[&run[..], &ROSTER, &tls].concat(), 1);
    let url = cloud.url("https");
    write(url);
    policy("check", &scene, &[]).done();
    policy("init", &scene, &["--renew", "analyst"]).done();
    let run = policy("check", &scene, &[]);
    let line = run.failed(5);
    println!("{line}");
    let remedy = format!("; give the file policy/tokens to the cloud {url} (--tokens)");
    assert!(line.contains("PolicyDiffers") && line.ends_with(&remedy), "{line}");
    fs::copy(scene.path("policy/tokens"), scene.path("tokens")).unwrap();
    policy("check", &scene, &[]).done();
}
