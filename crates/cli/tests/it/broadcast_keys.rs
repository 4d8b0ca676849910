//! Tests certificate requests, certificates, revocations, and evidence of sent chains through the
//! binary.

use std::convert::Infallible;
use std::fs;

use crate::scene::{Run, Scene};
use moteseal_broadcast::wire::MAX_BROADCAST_FRAME;
use moteseal_broadcast::{
    ChainDraft, ChainId, ChainNumber, KeyId, Kind, MAX_HEAD, MAX_LEAF, OutgoingChain,
    SenderCertificate, Window, export, sender_named,
};
use moteseal_core::Digest;
use moteseal_core::identity::{decode_public_pem, decode_secret_pem};
use moteseal_core::record::NetworkId;

const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const INCOMPLETE: i32 = 4;
/// The window of commands: ten minutes from 2023-11-14T22:13:20Z.
const COMMAND_WINDOW: Window = Window { not_before: 1_700_000_000, not_after: 1_700_000_600 };

/// Makes keys for two base stations and a sender, and the sender's request.
fn scene() -> Scene {
    let scene = Scene::new();
    for name in ["base", "other", "ops"] {
        scene.run(&["key", "new", "--out", &format!("keys/{name}")]).done();
    }
    scene
        .run(&[
            "key",
            "request",
            "--key",
            "keys/ops.key.pem",
            "--sender",
            "ops",
            "--out",
            "ops.request",
        ])
        .done();
    scene
}

fn certify(scene: &Scene, more: &[&str]) -> Run {
    let arguments = ["key", "certify", "ops.request", "--ca", "keys/base.key.pem", "--serial", "7"];
    scene.run(&[&arguments[..], more].concat())
}

fn network(scene: &Scene) -> NetworkId {
    NetworkId::of(&decode_public_pem(&fs::read(scene.path("keys/base.pub.pem")).unwrap()).unwrap())
}

/// Writes evidence of messages of the sender `ops`. Returns the lengths of its frames.
fn write_evidence(
    scene: &Scene,
    kind: Kind,
    messages: &[&[u8]],
    per_block: u8,
    blocks: u32,
    to: &str,
) -> Vec<usize> {
    let key = decode_secret_pem(&fs::read(scene.path("keys/ops.key.pem")).unwrap()).unwrap();
    let id =
        ChainId { network: network(scene), sender: sender_named("ops"), number: ChainNumber(3) };
    let draft = ChainDraft {
        id,
        key: KeyId::of(&key.public()),
        messages: messages.len() as u32,
        per_block,
        kind,
        label: "orders",
        window: if kind == Kind::Command { COMMAND_WINDOW } else { Window::ALWAYS },
        previous: None,
        is_addressed: false,
    };
    let (mut digests, mut tags) =
        (vec![Digest::NULL; messages.len()], vec![[0; 8]; messages.len()]);
    let read = |number: u32, buffer: &mut [u8]| {
        let message = messages[number as usize];
        buffer[..message.len()].copy_from_slice(message);
        Ok::<_, Infallible>(message.len())
    };
    let chain =
        OutgoingChain::build(draft, &mut digests, &mut tags, &mut [0; MAX_LEAF], read).unwrap();
    let head = chain.head(&key, &mut [0; MAX_HEAD], &mut [0; MAX_HEAD]).unwrap().to_vec();
    let certificate = fs::read(scene.path("ops.cert")).unwrap();
    let (mut out, mut lengths) = (Vec::new(), Vec::new());
    let fetch = |block, index, out: &mut [u8]| {
        let message = messages[chain.outline().message(block, index) as usize];
        Ok::<_, Infallible>(chain.leaf(block, index, message, out).unwrap().len())
    };
    let write = |frame: &[u8]| {
        lengths.push(frame.len());
        out.extend_from_slice(frame);
        Ok(())
    };
    let buffers = (&mut [0; MAX_LEAF][..], &mut [0; MAX_BROADCAST_FRAME][..]);
    export((&certificate, &head, chain.outline()), blocks, buffers, fetch, write).unwrap();
    fs::write(scene.path(to), out).unwrap();
    lengths
}

const ORDERS: [&[u8]; 5] =
    [b"open valve 3", b"", b"\xff\x00", b"set 20 \xc2\xb0C\x1b[2J", b"close valve 3"];

fn verify(scene: &Scene, file: &str, more: &[&str]) -> Run {
    scene.run(&[&["broadcast", "verify", file, "--ca", "keys/base.pub.pem"][..], more].concat())
}

#[test]
fn evidence_states_when_a_command_was_to_be_delivered() {
    let scene = scene();
    certify(&scene, &["--out", "ops.cert"]).done();
    write_evidence(&scene, Kind::Command, &ORDERS, 2, 3, "orders.evidence");
    let run = verify(&scene, "orders.evidence", &["--json"]).done();
    let chain: serde_json::Value = serde_json::from_str(run.out.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&chain["kind"], &chain["deliver_from"], &chain["deliver_until"]),
        (&"command".into(), &"2023-11-14T22:13:20Z".into(), &"2023-11-14T22:23:20Z".into())
    );
    let shown = "to be delivered from 2023-11-14T22:13:20Z until 2023-11-14T22:23:20Z";
    assert!(run.stderr.contains(shown), "{run:?}");
}

#[test]
fn a_certified_sender_leaves_evidence_that_verifies() {
    let scene = scene();
    let run = certify(&scene, &["--days", "90", "--out", "ops.cert"]).done();
    assert!(
        run.stderr.contains(&format!("certificate 7 of sender {}", sender_named("ops"))),
        "{run:?}"
    );
    assert!(run.stderr.contains(&network(&scene).to_string()), "{run:?}");
    write_evidence(&scene, Kind::Announcement, &ORDERS, 2, 3, "orders.evidence");
    let run = verify(&scene, "orders.evidence", &[]).done();
    let lines: Vec<&str> = run.out.lines().collect();
    assert_eq!(
        lines,
        ["0  open valve 3", "1  ", "2  0xff00", "3  set 20 \u{b0}C\\u001b[2J", "4  close valve 3"]
    );
    assert!(run.stderr.contains("verified: all 5 messages, 41 bytes"), "{run:?}");

    let run = verify(&scene, "orders.evidence", &["--json"]).done();
    let lines: Vec<serde_json::Value> =
        run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["text"], &lines[2]["hex"]), (&"open valve 3".into(), &"ff00".into()));
    let chain = &lines[5];
    assert_eq!(
        (&chain["sender"], &chain["serial"]),
        (&sender_named("ops").to_string().into(), &7.into())
    );
    assert_eq!(
        (&chain["chain"], &chain["label"], &chain["kind"]),
        (&3.into(), &"orders".into(), &"announcement".into())
    );
    assert_eq!(
        (&chain["messages"], &chain["proven"], &chain["whole"]),
        (&5.into(), &5.into(), &true.into())
    );

    write_evidence(&scene, Kind::File, &ORDERS, 1, 5, "image.evidence");
    let run = verify(&scene, "image.evidence", &["--out", "image.bin"]).done();
    assert_eq!(
        (run.out.as_str(), fs::read(scene.path("image.bin")).unwrap()),
        ("", ORDERS.concat())
    );
    let run = verify(&scene, "image.evidence", &["--out", "image.bin"]);
    assert!(run.failed(USAGE).contains("image.bin already exists"), "{run:?}");
}

#[test]
fn a_sender_id_is_given_or_derived_from_the_name() {
    let scene = scene();
    let id = "00112233445566ff";
    scene
        .run(&[
            "key",
            "request",
            "--key",
            "keys/ops.key.pem",
            "--sender",
            id,
            "--out",
            "id.request",
        ])
        .done();
    scene
        .run(&[
            "key",
            "certify",
            "id.request",
            "--ca",
            "keys/base.key.pem",
            "--serial",
            "1",
            "--out",
            "id.cert",
        ])
        .done();
    certify(
        &scene,
        &["--network", "0a0b0c0d0e0f1011", "--not-after", "2100-01-01", "--out", "ops.cert"],
    )
    .done();
    let base = decode_public_pem(&fs::read(scene.path("keys/base.pub.pem")).unwrap()).unwrap();
    let bytes = fs::read(scene.path("id.cert")).unwrap();
    let certificate = SenderCertificate::open(&bytes, network(&scene), &base).unwrap();
    assert_eq!((certificate.sender.to_string().as_str(), certificate.not_after), (id, u64::MAX));
    let bytes = fs::read(scene.path("ops.cert")).unwrap();
    let joined = NetworkId([0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11]);
    let certificate = SenderCertificate::open(&bytes, joined, &base).unwrap();
    assert_eq!((certificate.sender, certificate.not_after), (sender_named("ops"), 4_102_444_800));
    for name in ["", "a\nb", &"x".repeat(65)] {
        let run = scene.run(&[
            "key",
            "request",
            "--key",
            "keys/ops.key.pem",
            "--sender",
            name,
            "--out",
            "no.request",
        ]);
        assert_eq!(run.code, USAGE, "{run:?}");
    }
    assert!(!scene.path("no.request").exists());
}

#[test]
fn refuses_a_certificate_before_and_after_its_validity_and_when_revoked() {
    let scene = scene();
    certify(&scene, &["--not-before", "2026-01-01", "--days", "1", "--out", "ops.cert"]).done();
    write_evidence(&scene, Kind::Announcement, &ORDERS, 2, 3, "orders.evidence");
    let at = |time: &str| verify(&scene, "orders.evidence", &["--at", time]);
    assert!(at("2025-12-31T23:59:59Z").failed(REFUSED).contains("orders.evidence: NotYetValid"));
    at("2026-01-01T00:00:00Z").done();
    at("2026-01-01T23:59:59Z").done();
    let run = at("2026-01-02T00:00:00Z");
    assert!(run.failed(REFUSED).contains("orders.evidence: Expired"), "{run:?}");
    assert_eq!(run.out, "", "a message was printed");
    // Without --at the certificate is checked at the current time, at which it has expired.
    assert!(verify(&scene, "orders.evidence", &[]).failed(REFUSED).contains("Expired"));

    let revoke = |ca: &str, min_serial: &str, out: &str| {
        let network = network(&scene).to_string();
        scene
            .run(&[
                "key",
                "revoke",
                "--ca",
                ca,
                "--min-serial",
                min_serial,
                "--network",
                &network,
                "--out",
                out,
            ])
            .done();
    };
    revoke("keys/base.key.pem", "7", "seven");
    revoke("keys/base.key.pem", "8", "eight");
    revoke("keys/other.key.pem", "8", "others");
    let with = |more: &[&str]| {
        verify(&scene, "orders.evidence", &[&["--at", "2026-01-01"], more].concat())
    };
    with(&["--revocation", "seven"]).done();
    for more in
        [&["--revocation", "eight"][..], &["--revocation", "eight", "--revocation", "seven"]]
    {
        assert!(with(more).failed(REFUSED).contains("orders.evidence: Revoked"));
    }
    assert!(
        with(&["--revocation", "others"]).failed(REFUSED).contains("others: UnknownBaseStation")
    );
    // If the key of that base station is also given, the revocation is valid, but it does not apply
    // to this certificate.
    with(&["--ca", "keys/other.pub.pem", "--revocation", "others"]).done();
    assert!(with(&["--revocation", "ops.cert"]).failed(REFUSED).contains("ops.cert: WrongType"));
}

#[test]
fn refuses_evidence_of_another_network_or_base_station() {
    let scene = scene();
    certify(&scene, &["--out", "ops.cert"]).done();
    write_evidence(&scene, Kind::Announcement, &ORDERS, 2, 3, "orders.evidence");
    let run = scene.run(&["broadcast", "verify", "orders.evidence", "--ca", "keys/other.pub.pem"]);
    assert!(run.failed(REFUSED).contains("orders.evidence: WrongNetwork"), "{run:?}");
    let network = network(&scene).to_string();
    let run = scene.run(&[
        "broadcast",
        "verify",
        "orders.evidence",
        "--ca",
        "keys/other.pub.pem",
        "--network",
        &network,
    ]);
    assert!(run.failed(REFUSED).contains("orders.evidence: UnknownBaseStation"), "{run:?}");
    let both = ["--ca", "keys/other.pub.pem", "--ca", "keys/base.pub.pem", "--network", &network];
    scene.run(&[&["broadcast", "verify", "orders.evidence"][..], &both].concat()).done();
}

#[test]
fn refuses_changed_evidence_and_verifies_the_complete_blocks_of_truncated_evidence() {
    let scene = scene();
    certify(&scene, &["--out", "ops.cert"]).done();
    let lengths = write_evidence(&scene, Kind::Announcement, &ORDERS, 2, 3, "orders.evidence");
    let whole = fs::read(scene.path("orders.evidence")).unwrap();
    let ends: Vec<usize> = lengths
        .iter()
        .scan(0, |end, length| {
            *end += length;
            Some(*end)
        })
        .collect();

    let mut changed = whole.clone();
    changed[ends[5] - 1] ^= 1;
    fs::write(scene.path("changed"), changed).unwrap();
    let run = verify(&scene, "changed", &["--out", "changed.bin"]);
    assert!(run.failed(REFUSED).contains("changed: ForgedLeaf"), "{run:?}");
    assert_eq!((run.out.lines().count(), scene.path("changed.bin").exists()), (2, false));
    assert!(scene.names(".").iter().all(|name| !name.contains(".part")), "{:?}", scene.names("."));

    // Truncate the evidence after the fourth message, within the fifth, after the third, after the
    // head, and after the certificate.
    for (length, shown, expected) in [
        (ends[5], 4, "the first 4 of 5 messages are verified"),
        (ends[5] + 3, 4, "Truncated"),
        (
            ends[4],
            2,
            "the first 2 of 5 messages are verified; the messages after them prove nothing",
        ),
        (ends[1], 0, "the first 0 of 5 messages are verified"),
        (ends[0], 0, "the evidence ends before its head"),
    ] {
        fs::write(scene.path("cut"), &whole[..length]).unwrap();
        let run = verify(&scene, "cut", &["--out", "cut.bin"]);
        assert!(run.failed(INCOMPLETE).contains(expected), "{length}: {run:?}");
        assert_eq!(
            (run.out.lines().count(), scene.path("cut.bin").exists()),
            (shown, false),
            "{length}"
        );
    }
    fs::write(scene.path("longer"), [&whole[..], &whole[ends[6] - lengths[6]..]].concat()).unwrap();
    assert!(verify(&scene, "longer", &[]).failed(REFUSED).contains("longer: OutOfOrder"));
}

#[test]
fn files_that_are_not_keys_requests_or_evidence_are_reported() {
    let scene = scene();
    certify(&scene, &["--out", "ops.cert"]).done();
    let certify = |request: &str, ca: &str| {
        scene.run(&["key", "certify", request, "--ca", ca, "--serial", "1", "--out", "no.cert"])
    };
    assert!(
        certify("ops.request", "keys/base.pub.pem")
            .failed(USAGE)
            .contains("keys/base.pub.pem: WrongPemLabel")
    );
    assert!(
        certify("keys/ops.pub.pem", "keys/base.key.pem")
            .failed(USAGE)
            .contains("is not a request; it looks like a key")
    );
    assert!(
        certify("ops.cert", "keys/base.key.pem").failed(REFUSED).contains("ops.cert: WrongType")
    );
    let mut changed = fs::read(scene.path("ops.request")).unwrap();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(scene.path("changed"), changed).unwrap();
    assert!(
        certify("changed", "keys/base.key.pem").failed(REFUSED).contains("changed: NotAuthentic")
    );
    assert!(certify("missing", "keys/base.key.pem").failed(USAGE).contains("cannot read missing"));
    for times in [
        &["--days", "0"][..],
        &["--not-after", "2020-01-01"],
        &["--not-before", "2027-01-01", "--not-after", "2027-01-01"],
    ] {
        let run = [
            &[
                "key",
                "certify",
                "ops.request",
                "--ca",
                "keys/base.key.pem",
                "--serial",
                "1",
                "--out",
                "no.cert",
            ],
            times,
        ];
        assert!(scene.run(&run.concat()).failed(USAGE).contains("would never be valid"));
    }
    assert!(!scene.path("no.cert").exists());
    let run = scene.run(&[
        "key",
        "request",
        "--key",
        "keys/ops.key.pem",
        "--sender",
        "ops",
        "--out",
        "ops.request",
    ]);
    assert!(run.failed(USAGE).contains("ops.request already exists"), "{run:?}");

    assert!(
        verify(&scene, "keys/ops.pub.pem", &[])
            .failed(USAGE)
            .contains("is not evidence; it looks like a key (PEM)")
    );
    scene.write("empty", "");
    assert!(verify(&scene, "empty", &[]).failed(USAGE).contains("empty is empty"));
    scene.write("noise", "\u{1}\u{2}\u{3}");
    assert!(verify(&scene, "noise", &[]).failed(REFUSED).contains("noise: "));
    let run = scene.run(&["broadcast", "verify", "ops.cert", "--ca", "keys/base.key.pem"]);
    assert!(run.failed(USAGE).contains("keys/base.key.pem: WrongPemLabel"), "{run:?}");
}

/// Returns the JSON lines of a listing of certificates.
fn listed(scene: &Scene, more: &[&str]) -> Vec<serde_json::Value> {
    let run = scene.run(&[&["broadcast", "certificates", "--json"][..], more].concat()).done();
    run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn revokes_single_certificates_and_lists_all() {
    let scene = scene();
    certify(&scene, &["--sender", "ops", "--out", "seven.cert"]).done();
    let again = certify(&scene, &["--out", "no.cert"]);
    let again = again.failed(USAGE);
    assert!(again.contains("SerialUsed") && again.contains("free serial is 8"), "{again}");
    let wrong = certify(&scene, &["--sender", "others", "--out", "no.cert"]);
    let wrong = wrong.failed(REFUSED);
    assert!(wrong.contains("OtherSender"), "{wrong}");
    assert!(!scene.path("no.cert").exists());
    let ca = ["--ca", "keys/base.key.pem"];
    for (out, more) in [("eight.cert", &[][..]), ("nine.cert", &["--not-after", "2027-01-01"])] {
        let arguments = ["key", "certify", "ops.request", "--out", out];
        scene.run(&[&arguments[..], &ca, more].concat()).done();
    }
    let revoke = |out: &str, more: &[&str]| {
        scene.run(&[&["key", "revoke", "--out", out][..], &ca, more].concat())
    };
    revoke("one.revocation", &["--serial", "8"]).done();
    let lines = listed(&scene, &["--ca", "keys/base.pub.pem"]);
    let shown: Vec<_> = lines
        .iter()
        .filter_map(|line| {
            Some((line["serial"].as_u64()?, line["status"].as_str()?, line["name"].as_str()))
        })
        .collect();
    assert_eq!(shown, [(7, "Valid", Some("ops")), (8, "Revoked", None), (9, "Valid", None)]);
    assert_eq!(lines[3]["serials"], serde_json::json!([8]));
    assert_eq!(lines[2]["not_after"], 1_798_761_600);

    // A later revocation contains the earlier ones, from the record or from a file.
    let json = revoke("two.revocation", &["--serial", "12", "--json"]).done().out;
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&json).unwrap()["serials"],
        serde_json::json!([8, 12])
    );
    let elsewhere = ["--record", "lost", "--after", "two.revocation", "--serial", "10", "--json"];
    let json = revoke("three.revocation", &elsewhere).done().out;
    let revoked: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(revoked["serials"], serde_json::json!([8, 10, 12]));

    // When the list is full, the operator raises the minimum.
    for (number, serial) in (20..26).enumerate() {
        revoke(&format!("more.{number}"), &["--serial", &serial.to_string()]).done();
    }
    let full = revoke("no.revocation", &["--serial", "30"]);
    let full = full.failed(USAGE);
    assert!(full.contains("TooManySerials"), "{full}");
    revoke("raised.revocation", &["--min-serial", "13", "--serial", "30"]).done();
    assert_eq!(listed(&scene, &["--ca", "keys/base.pub.pem"])[3]["min_serial"], 13);
    let text = scene.run(&["broadcast", "certificates", "--ca", "keys/base.pub.pem"]).done().out;
    assert!(text.contains("all below 13, and 20, 21, 22, 23, 24, 25, 30"), "{text}");
    let other = ["broadcast", "certificates", "--ca", "keys/other.pub.pem"];
    assert!(scene.run(&other).failed(USAGE).contains("no such record"));
    let record = ["--record", "keys/base.certificates"];
    assert!(scene.run(&[&other[..], &record].concat()).failed(1).contains("NotARecord"));
}

#[test]
fn signs_an_image_for_the_board_and_version_that_it_states_and_sends_it_only_as_motes_require() {
    let scene = scene();
    certify(&scene, &["--out", "ops.cert"]).done();
    let tag = moteseal_broadcast::firmware::image_tag("mps2-an385", 7);
    fs::write(scene.path("image"), [&[1; 400][..], &tag, &[2; 400]].concat()).unwrap();
    fs::write(scene.path("no-image"), [1; 400]).unwrap();
    let sign = |image: &str| scene.run(&["key", "firmware", image, "--ca", "keys/base.key.pem"]);
    let run = sign("image").done();
    assert!(run.stderr.contains("version 7 for mps2-an385"), "{run:?}");
    let file = fs::read(scene.path("mps2-an385-7.firmware")).unwrap();
    let base = decode_public_pem(&fs::read(scene.path("keys/base.pub.pem")).unwrap()).unwrap();
    let manifest = moteseal_broadcast::firmware::FirmwareManifest::open_part(
        &file[..256],
        network(&scene),
        &base,
    )
    .unwrap();
    assert_eq!((manifest.board, manifest.version, manifest.length), ("mps2-an385", 7, 848));
    assert!(sign("no-image").failed(USAGE).contains("NoImageTag"));
    // An existing file is not replaced.
    sign("image").failed(USAGE);
    let send = |more: &[&str]| {
        let sender = ["broadcast", "send", "--key", "keys/ops.key.pem", "--cert", "ops.cert"];
        let to = ["--to", "udp://239.7.7.7:9", "mps2-an385-7.firmware"];
        scene.run(&[&sender[..], &to, more].concat())
    };
    assert!(send(&["--block", "8"]).failed(USAGE).contains("leave out --block and --message"));
    assert!(send(&["--message", "512"]).failed(USAGE).contains("leave out --block and --message"));
    assert!(send(&["--label", "new"]).failed(USAGE).contains("a label that ends with .firmware"));
}
