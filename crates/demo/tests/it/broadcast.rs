//! Tests of `moteseal-demo broadcast`: no attack succeeds, the same seed gives the same output, and
//! arguments out of range are usage errors.

use std::process::{Command, Output};

use serde_json::Value;

fn demo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_moteseal-demo"))
        .args(["broadcast"])
        .args(arguments)
        .output()
        .unwrap()
}

fn result(arguments: &[&str]) -> Value {
    let output = demo(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_node_verifies_everything_while_an_attacker_floods() {
    let result = result(&[]);
    assert_eq!(result["held"], true, "{result:#}");
    for nothing in ["forged_sent", "forged_kept", "forged_delivered", "replayed", "over_meter"] {
        assert_eq!(result[nothing], 0, "{nothing}");
    }
    let nodes = result["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 6);
    assert!(nodes.iter().all(|node| node["verified"] == 100), "{nodes:#?}");
    assert!(nodes.iter().any(|node| node["starts"] == 2), "one node reboots");
    // Every kind of attack was sent, and nodes rejected frames for each reason.
    let attacks = result["attacks"].as_object().unwrap();
    assert_eq!(attacks.len(), moteseal_adversary::broadcaster::Assault::ALL.len());
    assert!(
        attacks.values().map(|sent| sent.as_u64().unwrap()).sum::<u64>() > 5000,
        "{attacks:#?}"
    );
    for name in ["NotAuthentic", "ForgedLeaf", "ChainGoesBack", "Malformed"] {
        assert!(result["refused"][name].as_u64().unwrap() > 0, "{name}");
    }
    let times = ["undisturbed_ms", "disturbed_ms"].map(|time| result[time].as_u64().unwrap());
    assert!(times[1] <= 3 * times[0], "{times:?}");
}

#[test]
fn an_expired_command_and_replaced_ones_are_not_obeyed() {
    let result = result(&["--loss", "0"]);
    let steps: Vec<String> = result["commands"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| {
            let of = |name: &str| step[name].as_str().unwrap_or("obeyed").to_owned();
            [of("watcher"), of("what"), of("withheld")].join(" ")
        })
        .collect();
    let expected = [
        "steady open valve 3 obeyed",
        "steady shut valve 3 obeyed",
        "steady open valve 3 by half obeyed",
        "late command 1 Late",
        "late command 2 SupersededCommand",
        "late open valve 3 by half obeyed",
    ];
    assert_eq!(steps, expected);
}

#[test]
fn a_file_is_acknowledged_and_a_missing_receiver_is_named() {
    let steps = result(&["--loss", "0"])["receipts"].clone();
    let of = |step: &Value| {
        [&step["acknowledged"], &step["missing"], &step["failing"]].map(Value::to_string).join(" ")
    };
    let shown: Vec<String> = steps.as_array().unwrap().iter().map(of).collect();
    assert_eq!(shown, [r#"2 ["valve 3"] []"#, r#"2 ["valve 3"] ["valve 3"]"#, "3 [] []"]);
}

#[test]
fn the_same_seed_gives_the_same_output() {
    let arguments = ["--seed", "cafe", "--loss", "0.1", "--block", "5"];
    assert_eq!(result(&arguments), result(&arguments));
    assert_ne!(
        result(&arguments)["transmissions"],
        result(&["--seed", "beef", "--loss", "0.1", "--block", "5"])["transmissions"]
    );
}

#[test]
fn the_text_shows_topology_progress_and_verdict() {
    let output = demo(&[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    for part in [
        "1 --- 3 --- 5",
        "S-1 S-2 1-2 1-3",
        " 100 100 100 100 100 100 ",
        "NotAuthentic",
        "acknowledged by 2 of 3; missing: valve 3; wrong receipts: valve 3",
        "valve 3 was switched on: acknowledged by 3 of 3",
        "NO ATTACK SUCCEEDED",
    ] {
        assert!(printed.contains(part), "no {part:?} in\n{printed}");
    }
    assert!(!printed.contains("\\u000a"), "{printed}");
}

#[test]
fn arguments_out_of_range_are_usage_errors() {
    for (arguments, message) in [
        (["--loss", "0.5"], "a probability from 0 to 0.3"),
        (["--block", "11"], "11 is not in 1..=10"),
    ] {
        let output = demo(&arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(message));
    }
}
