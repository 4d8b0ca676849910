//! Tests of `moteseal-demo` without a subcommand: every lie is caught, honest data is accepted, and
//! the files of `--keep` verify.

use std::path::Path;
use std::process::{Command, Output};

use moteseal_core::identity::decode_public_pem;
use moteseal_seal::follow::Limits;
use moteseal_verify::{Event, ReadError, Roster, StreamReader};
use serde_json::Value;

fn demo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_moteseal-demo")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn every_lie_is_caught() {
    let output = demo(&["--quick", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let lies = result["lies"].as_array().unwrap();
    let uncaught: Vec<&Value> = lies.iter().filter(|lie| lie["caught"] != true).collect();
    assert!(uncaught.is_empty(), "{uncaught:#?}");
    assert!(lies.len() >= 100, "only {} lies", lies.len());
    assert_eq!((&result["told"], &result["caught"]), (&lies.len().into(), &lies.len().into()));
    for scheme in ["star", "tree"] {
        let kinds = lies.iter().filter(|lie| lie["scheme"] == scheme).count();
        assert!(kinds >= 50, "only {kinds} about a {scheme}");
    }
}

#[test]
fn a_coordinator_keeps_its_budget_and_every_way_to_cheat_is_found() {
    let result: Value = serde_json::from_slice(&demo(&["--quick", "--json"]).stdout).unwrap();
    let edge = &result["edge"];
    let number = |value: &Value| value.as_f64().unwrap();
    assert_eq!(edge["readings"], 8 * 8 * 180);
    assert!(number(&edge["held"]) <= number(&edge["budget"]) + 1.0, "{edge}");
    assert!(
        number(&edge["kept"]) < number(&edge["forwarded"])
            && number(&edge["forwarded"]) < number(&edge["readings"]),
        "{edge}"
    );
    assert_eq!((&edge["epochs"], &edge["justified"]), (&8.into(), &8.into()));
    let cheats = edge["cheats"].as_array().unwrap();
    assert_eq!(cheats.len(), moteseal_adversary::coordinator::CHEATS.len());
    assert!(cheats.iter().all(|cheat| cheat["caught"] == true), "{cheats:#?}");
}

#[test]
fn a_group_changes_while_its_cloud_runs() {
    let result: Value = serde_json::from_slice(&demo(&["--quick", "--json"]).stdout).unwrap();
    let life = &result["life"];
    assert_eq!((&life["version"], &life["verified"]["complete"]), (&2.into(), &true.into()));
    assert!(life["next_index"].as_u64() > life["recovered_after"].as_u64(), "{life}");
    let devices = life["verified"]["devices"].as_array().unwrap();
    let outages: usize = devices.iter().map(|it| it["outages"].as_array().unwrap().len()).sum();
    assert_eq!((devices.len(), outages), (2, 1), "{devices:#?}");
    let refusals: Vec<&Value> =
        life["attacks"].as_array().unwrap().iter().map(|attack| &attack["refused"]).collect();
    assert_eq!(refusals, ["NotAuthentic", "NotLater"]);
}

#[test]
fn readers_with_different_grants_see_different_columns_of_one_answer() {
    let result: Value = serde_json::from_slice(&demo(&["--quick", "--json"]).stdout).unwrap();
    let scene = &result["confidential"];
    let readings = scene["readings"].as_u64().unwrap();
    assert_eq!(readings, 2 * 8 * 180);
    assert_eq!(scene["verified"]["complete"], true);
    assert_eq!(scene["verified"]["rows"], readings);
    let readers = scene["readers"].as_array().unwrap();
    let seen = |at: usize| {
        ["temperatures", "humidities"].map(|column| readers[at][column].as_u64().unwrap())
    };
    assert_eq!((seen(0), seen(1)), ([0, 0], [readings, 0]));
    let [temperatures, humidities] = seen(2);
    assert!(temperatures == 0 && (readings / 3..readings).contains(&humidities), "{humidities}");
    assert_eq!(scene["found"], 0);
    assert!(scene["found_without_encryption"].as_u64() > Some(100), "{scene}");
    let refusals: Vec<&Value> =
        scene["attacks"].as_array().unwrap().iter().map(|attack| &attack["refused"]).collect();
    assert_eq!(refusals, ["NoMatchingKey", "NotForYou", "NotAuthentic"]);
}

#[test]
fn the_honest_response_is_small_complete_and_close_to_the_truth() {
    let result: Value = serde_json::from_slice(&demo(&["--quick", "--json"]).stdout).unwrap();
    assert_eq!(result["readings"], 8 * 8 * 180);
    assert_eq!(result["verified"]["complete"], true);
    assert_eq!(result["verified"]["signatures"], 8, "one run for each device");
    let number = |value: &Value| value.as_f64().unwrap();
    assert!(number(&result["asked"]["bytes"]) < number(&result["asked"]["bytes_of_all"]) / 3.0);
    for estimate in result["estimates"].as_array().unwrap() {
        // The error of a correct estimate exceeds four times the half-width of a 95 % interval once
        // in 10^14 runs.
        let off = (number(&estimate["mean"]) - number(&estimate["truth"])).abs();
        assert!(off < 4.0 * number(&estimate["half_width_95"]), "{estimate}");
        assert_eq!(estimate["population"], result["readings"]);
    }
}

#[test]
fn one_lie_is_shown_in_detail() {
    let output = demo(&["--quick", "--tamper", "forged-salt"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for word in
        ["forged-salt", "star", "tree", "NotAuthentic", "StatementMismatch", "salt", "caught"]
    {
        assert!(shown.contains(word), "{word} is not in\n{shown}");
    }
    assert!(!shown.contains('\u{1b}'), "colours although stdout is not a terminal");
}

#[test]
fn an_unknown_kind_of_lie_lists_the_known_kinds() {
    let output = demo(&["--tamper", "white-lie"]);
    assert_eq!(output.status.code(), Some(2));
    let printed = text(&output.stderr);
    assert!(
        printed.contains("white-lie")
            && printed.contains("withheld-epoch")
            && printed.contains("made-up-explanation"),
        "{printed}"
    );
}

#[test]
fn the_kept_roster_bundles_and_store_verify() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("try");
    let path = |name: &str| home.join(name).to_str().unwrap().to_owned();
    let output =
        demo(&["--quick", "--tamper", "altered-reading", "--keep", home.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("moteseal cloud run --store"),
        "{}",
        text(&output.stdout)
    );
    for name in ["roster.cbor", "epochs.redb", "keys/op.pub.pem", "keys/mote-8-tree.salt.key"] {
        assert!(Path::new(&path(name)).exists(), "{name}");
    }
    let operator = std::fs::read(path("keys/op.pub.pem")).unwrap();
    let roster = Roster::open(
        &std::fs::read(path("roster.cbor")).unwrap(),
        &decode_public_pem(&operator).unwrap(),
    )
    .unwrap();
    let bundle = std::fs::read(path("bundles/mote-1-0000000000.mseal")).unwrap();
    let mut verified = 0;
    let mut visit = |event: Event<'_>| {
        if let Event::Proven(proven) = event {
            assert!(proven.is_whole());
            verified += 1;
        }
        Ok::<(), ReadError>(())
    };
    let mut reader = StreamReader::new(&roster, Limits::default());
    reader.feed(&bundle, &mut visit).unwrap();
    reader.finish(&mut visit).unwrap();
    assert_eq!(verified, 1);
    let checked = moteseal_store::check::check(path("epochs.redb").as_ref(), &roster, &mut |_| {});
    assert!(checked.unwrap().is_clean());

    let again = demo(&["--keep", home.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("not empty"), "{}", text(&again.stderr));
}
