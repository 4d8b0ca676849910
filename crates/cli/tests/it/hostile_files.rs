//! Files and responses that try to mislead the user. Checks the exit codes, memory use and terminal
//! output of the binary.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::scene::{Run, Scene};
use moteseal_adversary::{Answer, Holdings, Item, Select};
use moteseal_core::identity::decode_public_pem;
use moteseal_verify::{Roster, write};

const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const INCOMPLETE: i32 = 4;

/// Starts a server that answers every request with one stream.
fn server(body: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1 << 16]);
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/cbor-seq\r\nconnection: close\r\ncontent-length: ";
            let _ = stream
                .write_all(&[format!("{head}{}\r\n\r\n", body.len()).as_bytes(), &body].concat());
        }
    });
    url
}

fn problem(detail: &str) -> Vec<u8> {
    let mut body = Vec::new();
    write::problem(&mut body, "StoreDamaged", detail);
    write::end(&mut body);
    body
}

/// Makes a bundle of `dev1`. Returns its path, its bytes, and the [`Holdings`] of an adversary that
/// has it.
fn bundle(scene: &Scene, scheme: &str) -> (String, Vec<u8>, Holdings) {
    scene.table("data.csv", 60);
    scene.seal("data.csv", "dev1", &["--scheme", scheme]).done();
    let name = scene.names("bundles").into_iter().find(|name| name.ends_with(".mseal")).unwrap();
    let bytes = fs::read(scene.path("bundles").join(&name)).unwrap();
    let operator = decode_public_pem(&fs::read(scene.path("keys/op.pub.pem")).unwrap()).unwrap();
    let roster = Roster::open(&fs::read(scene.path("roster.cbor")).unwrap(), &operator).unwrap();
    let mut holdings = Holdings::default();
    holdings.take(&roster, &bytes).unwrap();
    (format!("bundles/{name}"), bytes, holdings)
}

/// Runs the binary in a shell with a pipe as stdin, and at most 1 GiB of address space.
fn piped(scene: &Scene, source: &str, arguments: &[&str]) -> Run {
    let script = format!("ulimit -v 1048576; {source} | \"$0\" \"$@\"");
    let binary = env!("CARGO_BIN_EXE_moteseal");
    let output = Command::new("sh")
        .args(["-c", &script, binary])
        .args(arguments)
        .current_dir(scene.path(""))
        .env("XDG_STATE_HOME", scene.path("state"))
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run {
        code: output.status.code().unwrap(),
        out: text(output.stdout),
        stderr: text(output.stderr),
    }
}

#[test]
fn a_response_that_mentions_a_broken_pipe_is_refused_like_any_other() {
    let scene = Scene::new();
    let cloud = server(problem("Broken pipe (os error 32)"));
    let run =
        scene.with_roster(&["get", "dev1", "--from", &cloud, "--rate", "1", "--no-pinned-seals"]);
    assert!(
        run.failed(INCOMPLETE).contains("StoreDamaged: the store stopped: Broken pipe"),
        "{run:?}"
    );
    assert_eq!(run.out, "");
}

#[test]
fn a_file_named_after_a_broken_pipe_fails_like_any_other() {
    let scene = Scene::new();
    let run = scene.with_roster(&["verify", "Broken pipe/x.mseal"]);
    assert!(run.failed(USAGE).contains("cannot read Broken pipe/x.mseal"), "{run:?}");
    fs::create_dir(scene.path("Broken pipe")).unwrap();
    scene.write("Broken pipe/x.mseal", "no bundle");
    for run in [
        scene.with_roster(&["verify", "Broken pipe/x.mseal"]),
        scene.run(&["inspect", "Broken pipe/x.mseal"]),
    ] {
        assert!(run.failed(REFUSED).contains("Broken pipe/x.mseal: "), "{run:?}");
    }
}

#[test]
fn the_exit_code_is_right_when_stdout_is_closed() {
    let scene = Scene::new();
    let (good, bytes, _) = bundle(&scene, "star");
    fs::write(scene.path("cut.mseal"), &bytes[..bytes.len() - 1]).unwrap();
    let roster_options = ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem"];
    for (arguments, code) in [
        ([&["verify", &good][..], &roster_options].concat(), 0),
        ([&["verify", &good, "cut.mseal"][..], &roster_options].concat(), REFUSED),
        (vec!["inspect", &good], 0),
        (vec!["roster", "show", "roster.cbor", "--operator", "keys/op.pub.pem"], 0),
        (vec!["completions", "bash"], 0),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output =
            scene.command(&arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("pipe") && !stderr.contains("panic"), "{arguments:?}: {stderr}");
        assert_eq!(
            stderr.contains("cut.mseal: Truncated"),
            code == REFUSED,
            "{arguments:?}: {stderr}"
        );
    }
}

#[test]
fn a_bundle_with_removed_readings_does_not_verify() {
    for scheme in ["star", "tree"] {
        let scene = Scene::new();
        let (good, bytes, holdings) = bundle(&scene, scheme);
        let readings = |file: &str| {
            let run = scene.with_roster(&["verify", file, "--json"]).done();
            run.json()["devices"][0]["events"].as_u64().unwrap()
        };
        let held = holdings.seals(holdings.devices().next().unwrap()).next().unwrap();
        assert_eq!(readings(&good), held.seal.statement().counters.total(), "{scheme}");
        for mask in [0, held.seal.statement().surviving() & !1] {
            let cut = Answer { items: held.run(Select::Levels(mask)).to_vec() };
            assert_ne!(cut.encode(), bytes);
            fs::write(scene.path("cut.mseal"), cut.encode()).unwrap();
            let run = scene.with_roster(&["verify", "cut.mseal"]);
            assert!(
                run.failed(REFUSED).contains("cut.mseal: NotWhole: seal 0 of dev1"),
                "{scheme}: {run:?}"
            );
            assert_eq!(run.out, "", "{scheme}");
        }
    }
}

#[test]
fn refuses_an_endless_file_within_bounded_memory() {
    let scene = Scene::new();
    let roster_options = ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem"];
    // One input consists of zeros only. The other one starts with the head of a CBOR string of an
    // exabyte, followed by zeros.
    let endless = "{ printf '\\133\\020\\0\\0\\0\\0\\0\\0\\0'; cat /dev/zero; }";
    for (source, name) in [("cat /dev/zero", "UnexpectedType"), (endless, "RunTooLong")] {
        for command in [
            vec!["inspect", "/dev/stdin"],
            [&["verify", "/dev/stdin"][..], &roster_options].concat(),
        ] {
            let run = piped(&scene, source, &command);
            assert!(run.failed(REFUSED).contains(name), "{source} {command:?}: {run:?}");
        }
    }
    // A bundle from a pipe verifies like one from a file.
    let (good, ..) = bundle(&scene, "star");
    let run = piped(
        &scene,
        &format!("cat {good}"),
        &[&["verify", "/dev/stdin"][..], &roster_options].concat(),
    )
    .done();
    assert_eq!(run.out, scene.with_roster(&["verify", &good]).done().out);
    let run = piped(&scene, &format!("cat {good}"), &["inspect", "/dev/stdin"]).done();
    assert_eq!(run.out, scene.run(&["inspect", &good]).done().out);
}

#[test]
fn control_characters_of_files_and_servers_do_not_reach_the_terminal() {
    let scene = Scene::new();
    let (_, bytes, _) = bundle(&scene, "star");
    let assert_harmless = |run: &Run| {
        let has_control =
            |text: &str| text.chars().any(|letter| letter != '\n' && letter.is_control());
        assert!(!has_control(&run.out) && !has_control(&run.stderr), "{run:?}");
    };
    // Control characters in the query of a proof, for `inspect` and `verify`.
    for query in ["\u{1b}[2J\u{9b}31m\u{202e}", "{\"\\u001b[2J\\u009b31m\":1}"] {
        let mut proof = Vec::new();
        write::proof(&mut proof, query);
        fs::write(scene.path("p.mproof"), proof).unwrap();
        for run in
            [scene.run(&["inspect", "p.mproof"]), scene.run(&["inspect", "--json", "p.mproof"])]
        {
            assert_harmless(&run);
            assert!(run.out.contains("[2J") && !run.out.contains('\u{202e}'), "{run:?}");
        }
        let run = scene.with_roster(&["verify", "p.mproof", "--no-pinned-seals"]);
        assert_harmless(&run);
        run.failed(REFUSED);
    }
    // Control characters in the text of a server. The text cannot start a new line either.
    let cloud = server(problem("\u{1b}[2J\r\nmoteseal: all verified"));
    let run =
        scene.with_roster(&["get", "dev1", "--from", &cloud, "--rate", "1", "--no-pinned-seals"]);
    assert_harmless(&run);
    assert!(run.failed(INCOMPLETE).contains("StoreDamaged: the store stopped: "), "{run:?}");
    // Control characters in the name of a file.
    let name = "\u{1b}[31mred.mseal";
    fs::write(scene.path(name), &bytes[..bytes.len() - 1]).unwrap();
    for run in [scene.with_roster(&["verify", name]), scene.run(&["inspect", name])] {
        assert_harmless(&run);
        assert!(run.failed(REFUSED).contains(r"\u001b[31mred.mseal: "), "{run:?}");
    }
    // Control characters in the names of fields.
    let schema = b"\x82\x01\x81\x85\x65\x1b[31m\x60\x00\x01\x00";
    let answer = Answer { items: vec![Item::Schema(schema.to_vec())] };
    fs::write(scene.path("schema.mseal"), answer.encode()).unwrap();
    let run = scene.run(&["inspect", "schema.mseal"]).done();
    assert_harmless(&run);
    assert!(run.out.contains("InvalidFieldName"), "{run:?}");
}
