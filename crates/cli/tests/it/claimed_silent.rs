//! An aggregator reports live devices as silent in a private sum. Their seals, which the audit
//! fetches and verifies, contradict it. Devices, aggregator, cloud and the command are real.

use crate::budgeted::{Cloud, FIRST, Group, secret};
use moteseal_core::identity::encode_public_pem;
use moteseal_core::record::Scheme;
use moteseal_sum::query::QueryId;
use serde_json::{Value, json};

const QUERY: QueryId = QueryId([0xa7; 16]);
const OTHER: QueryId = QueryId([0x51; 16]);
/// The duration of the query's epochs, in milliseconds. One epoch of the group is as long as twelve
/// of them.
const DURATION_MS: u64 = 5000;

fn line(query: QueryId, epoch: u64, silent: &[&str]) -> String {
    json!({"query": query.to_string(), "epoch": epoch, "duration_ms": DURATION_MS, "silent": silent, "rows": []}).to_string()
        + "\n"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_names_devices_that_were_claimed_silent_but_answered() {
    let mut group = Group::new(Scheme::Star, 10, 100, 7);
    let first = FIRST * 60_000 / DURATION_MS;
    let mut uploads = Vec::new();
    for epoch in 0..3 {
        // North and south answer all epochs of the query. West answers only those that are in the
        // first two epochs of the group. East answers none.
        for (at, of_device) in
            [0..12, 0..12, 0..if epoch == 2 { 0 } else { 12 }].into_iter().enumerate()
        {
            of_device.for_each(|n| group.answer(at, QUERY, first + 12 * epoch + n));
        }
        uploads.push(group.epoch([40, 50, 60, 70]));
    }
    let cloud = Cloud::serve(&group.roster).await;
    for upload in &uploads {
        cloud.take(&group.roster, upload).await.unwrap();
    }

    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("roster.cbor"), group.roster.bytes()).unwrap();
    let mut pem = [0; 512];
    std::fs::write(path("op.pub.pem"), encode_public_pem(&secret(98).public(), &mut pem).unwrap())
        .unwrap();
    let run = |sums: &str, more: &[&str]| {
        std::fs::write(path("sums.jsonl"), sums).unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_moteseal"));
        command.env("XDG_STATE_HOME", path("state"));
        command.current_dir(directory.path()).args([
            "audit",
            "--from",
            &cloud.url,
            "--roster",
            "roster.cbor",
        ]);
        let output = command
            .args(["--operator", "op.pub.pem", "--sums", "sums.jsonl"])
            .args(more)
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };

    // Reports of devices that really were silent, and of another query, cause no finding.
    let innocent = [
        line(QUERY, first + 3, &["east"]),
        line(QUERY, first + 30, &["west", "east"]),
        line(OTHER, first, &["north"]),
    ];
    let (code, out, stderr) = run(&innocent.concat(), &[]);
    assert_eq!(code, 0, "{out}{stderr}");
    assert!(out.ends_with("sums  4 claims of silence, 0 contradicted by seals\n"), "{out}");

    // An aggregator drops answers that devices have sent: the last answer of the first seal, the
    // first answer of the second seal, and an answer of the third seal. West really was silent.
    let dropped = [
        line(QUERY, first + 11, &["north", "east"]),
        line(QUERY, first + 12, &["north"]),
        line(QUERY, first + 30, &["south", "west"]),
        line(QUERY, first + 36, &["south"]),
    ];
    let (code, out, stderr) = run(&dropped.concat(), &["--json"]);
    assert_eq!(code, 5, "{out}{stderr}");
    let json: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    let found: Vec<(&str, u64, u64)> = json["sums"]["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| {
            assert_eq!(
                (&finding["name"], &finding["query"]),
                (&"ClaimedSilent".into(), &QUERY.to_string().into())
            );
            let number = |key: &str| finding[key].as_u64().unwrap();
            (finding["devices"][0].as_str().unwrap(), number("query_epoch"), number("seal"))
        })
        .collect();
    let mut sorted = found.clone();
    sorted.sort_unstable();
    assert_eq!(
        sorted,
        [("north", first + 11, 0), ("north", first + 12, 1), ("south", first + 30, 2)]
    );
    assert_eq!((&json["sums"]["claims"], &json["sums"]["contradicted"]), (&6.into(), &3.into()));
    assert_eq!(json["sums"]["findings"][0]["start_ms"], json!((first + 11) * DURATION_MS));
    assert_eq!(
        (&json["justified"], &json["unjustified"]),
        (&3.into(), &0.into()),
        "the coordinator must have no finding: {json}"
    );
    assert!(stderr.lines().last().unwrap().starts_with("moteseal: ClaimedSilent: "), "{stderr}");
    let (code, out, _) = run(&dropped.concat(), &[]);
    assert!(
        code == 5
            && out
                .contains("sums  6 claims of silence, 3 contradicted by seals\n  ClaimedSilent: "),
        "{out}"
    );
    let expected =
        format!("north answered epoch {} of query {QUERY}, as its seal 0 states", first + 11);
    assert!(
        out.contains(&expected)
            && out.contains("its answer; the epoch began at 1970-01-01T16:40:55Z\n"),
        "{out}"
    );

    // If the file is not the output of a querier, the error names the line.
    let (code, _, stderr) =
        run(&[line(QUERY, first, &["north"]), line(QUERY, first, &["nroth"])].concat(), &[]);
    assert!(
        code == 2 && stderr.contains("sums.jsonl: line 2: the roster has no device \"nroth\""),
        "{code} {stderr}"
    );
}
