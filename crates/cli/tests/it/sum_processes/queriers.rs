//! Two queriers of a group at a time. Each has secrets, a tree and a state of its own; one is trusted
//! with the readings, and the other one is not.

use super::*;

/// The querier `alerts` may ask for exact sums over the whole group.
const MASKED: &str = "SELECT SUM(reading), COUNT(*) FROM sensors EPOCH DURATION 1s";
const POLICY: &str = "version = 1\nmin_count = 5\n[[querier]]\nkey = \"keys/alerts.pub.pem\"\nepoch = \"1s\"\n\
                      [querier.columns]\n\"reading::u32\" = \"0..1000\"\n";

/// Sets up the sums of the querier `alerts`: keys, masks, a policy, a gateway, and a section for each
/// mote.
fn add_querier(site: &Site) {
    let at = site.folder.path();
    let trusted = ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem"];
    let with_roster = |arguments: &[&str]| run(at, &[arguments, &trusted[..]].concat());
    run(at, &["key", "new", "--out", "keys/alerts"]);
    let setup = ["sum", "setup", "--name", "alerts", "--querier", "keys/alerts.key"];
    with_roster(&[&setup[..], &["--masks", "--key-groups", "1", "--out", "alertkeys/"]].concat());
    fs::write(at.join("alerts-policy.toml"), POLICY).unwrap();
    let sign = ["sum", "policy", "sign", "alerts-policy.toml", "--roster", "roster.cbor"];
    run(at, &[&sign[..], &["--operator-key", "keys/op.key.pem", "--out", "alerts.cbor"]].concat());
    let mut tree =
        "querier = \"alerts\"\n[gateways]\nalerts-gw = \"alerts\"\n[devices]\n".to_owned();
    for out in ["keys/alerts.children.key", "keys/alerts-gw.children.key"] {
        run(at, &["key", "link", "--out", out]);
    }
    let derive = |secret: &str, child: [&str; 2], out: &str| {
        let link = ["key", "link", "--group-secret", secret, "--out", out];
        with_roster(&[&link[..], &child].concat());
    };
    derive("keys/alerts.children.key", ["--gateway", "alerts-gw"], "keys/alerts-gw.up.key");
    let link = format!("[link]\nurl = \"{}\"\n", site.broker.url());
    let common = "roster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\ntree = \"alerts.toml\"\ngrace = \"500ms\"\n";
    let gateway = "name = \"alerts-gw\"\nquerier = \"keys/alerts.pub.pem\"\nstate = \"alerts-gw\"\n\
                   link_secret = \"keys/alerts-gw.children.key\"\nup_secret = \"keys/alerts-gw.up.key\"\n";
    fs::write(at.join("alerts-gw.toml"), format!("{gateway}{common}{link}")).unwrap();
    let querier = "key = \"keys/alerts.key.pem\"\nkeys = \"alertkeys/querier.sum.key\"\npolicy = \"alerts.cbor\"\n\
                   link_secret = \"keys/alerts.children.key\"\nstate = \"alerts.state\"\ncolumns = [\"reading::u32\"]\n";
    fs::write(at.join("alerts-querier.toml"), format!("{querier}{common}{link}")).unwrap();
    for mote in 0..MOTES {
        let name = format!("mote{mote}");
        writeln!(tree, "{name} = \"alerts-gw\"").unwrap();
        let secret = format!("keys/{name}.alerts-link.key");
        derive("keys/alerts-gw.children.key", ["--device", &name], &secret);
        let config = fs::read_to_string(at.join(format!("{name}.toml"))).unwrap();
        let config = config.replace("[sum]", "[[sum]]")
            + &format!(
                "[[sum]]\nkey = \"alertkeys/{name}.sum.key\"\nparent = \"alerts-gw\"\n\
                 link_secret = \"{secret}\"\npolicy = \"alerts.cbor\"\n"
            );
        fs::write(at.join(format!("{name}.toml")), config).unwrap();
    }
    fs::write(at.join("alerts.toml"), tree).unwrap();
}

#[test]
fn two_queriers_with_different_rights_ask_at_the_same_time() {
    let site = Site::new();
    let at = site.folder.path();
    add_querier(&site);
    let check = ["device", "run", "--config", "mote0.toml", "--check"];
    let output = moteseal(at, &check).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(" of 8 of private sums of alerts"), "{output:?}");

    let _gateways = ["root", "gw-a", "gw-b", "alerts-gw"].map(|name| site.gateway(name));
    let feeder = Feeder::new();
    let mut motes: Vec<Running> = (0..MOTES).map(|mote| site.mote(mote)).collect();
    for (mote, process) in motes.iter_mut().enumerate() {
        feeder.feed(mote, process);
    }
    let mut trusted = Query::start(&site, "querier.toml");
    let mut alerts = Query::run(&site, &[MASKED, "--config", "alerts-querier.toml"]);
    // Both get exact results of the same epochs.
    let (one, other) = (trusted.until(0xff, &site), alerts.until(0xff, &site));
    assert!(one["epoch"].as_u64().unwrap().abs_diff(other["epoch"].as_u64().unwrap()) < 30);
    trusted.until(0xff, &site);
    alerts.until(0xff, &site);

    // The policy of the one does not limit the other, and the keys of one open nothing of the other.
    let refused = moteseal(at, &["sum", "run", QUERY, "--config", "alerts-querier.toml"]);
    let stderr = String::from_utf8({ refused }.output().unwrap().stderr).unwrap();
    assert!(stderr.contains("ConditionNotPermitted: "), "{stderr}");
    let mixed = fs::read_to_string(at.join("querier.toml")).unwrap();
    let mixed = mixed.replace("\"tree.toml\"", "\"alerts.toml\"");
    fs::write(at.join("mixed.toml"), mixed).unwrap();
    let refused = moteseal(at, &["sum", "run", QUERY, "--config", "mixed.toml"]);
    let stderr = String::from_utf8({ refused }.output().unwrap().stderr).unwrap();
    assert!(stderr.contains("WrongQuerier: ") && stderr.contains("\"alerts\""), "{stderr}");

    // Another querier takes the place of the one that the roster names. The further one continues.
    run(at, &["key", "new", "--out", "keys/q2"]);
    let roster = ["--roster", "roster.cbor", "--operator", "keys/op.key.pem"];
    run(at, &[&["roster", "set", "--querier", "keys/q2.pub.pem"][..], &roster].concat());
    let code = trusted.process.0.wait().unwrap().code();
    assert_eq!(code, Some(2), "{}", site.logs());
    alerts.until(0xff, &site);
    // Devices that start with this version of the roster answer it, too.
    motes.remove(0);
    let mut mote = site.mote(0);
    feeder.feed(0, &mut mote);
    alerts.until(0xff, &site);
    alerts.until(0xff, &site);
}

#[test]
fn sections_that_cannot_be_used_together_are_refused() {
    let site = Site::new();
    let at = site.folder.path();
    add_querier(&site);
    let valid = fs::read_to_string(at.join("mote0.toml")).unwrap();
    let refused = |config: &str, expected: &[&str]| {
        fs::write(at.join("mote0.toml"), config).unwrap();
        let check = ["device", "run", "--config", "mote0.toml", "--check"];
        let output = moteseal(at, &check).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            expected.iter().all(|text| stderr.contains(text)) && stderr.lines().count() == 1,
            "{stderr}"
        );
    };
    refused(
        &valid.replace("alertkeys/", "sumkeys/"),
        &["sum[1].key", "sum[0] also has keys for the querier querier", "--name"],
    );
    refused(
        &valid.replace("parent = \"alerts-gw\"", "parent = \"gw-a\""),
        &["sum[1].parent", "the same parent"],
    );
    refused(
        &valid.replace("policy = \"alerts.cbor\"\n", ""),
        &["sum[1].policy", "PolicyMissing: "],
    );
    refused(&valid.replace("[[sum]]", "[sum]"), &["duplicate key"]);
    refused(
        &valid.replacen("link_secret = \"keys/mote0.sum-link.key\"\n", "", 1),
        &["link_secret"],
    );

    // Two queriers that are not trusted, with different ranges for the same column.
    let setup = ["sum", "setup", "--name", "audit", "--querier", "keys/audit.key"];
    let files = ["--masks", "--key-groups", "1", "--out", "auditkeys/", "--roster", "roster.cbor"];
    run(at, &["key", "new", "--out", "keys/audit"]);
    run(at, &[&setup[..], &files].concat());
    let policy = POLICY.replace("alerts", "audit");
    for (policy, is_permitted) in [
        (policy.replace("..1000", "..999"), false),
        (policy.replace("1s", "2s"), false),
        (policy.replace("reading::u32", "other::u32").replace("1s", "2s"), true),
        (policy, true),
    ] {
        fs::write(at.join("audit.toml"), policy).unwrap();
        let sign = ["sum", "policy", "sign", "audit.toml", "--roster", "roster.cbor"];
        let _ = fs::remove_file(at.join("audit.cbor"));
        run(
            at,
            &[&sign[..], &["--operator-key", "keys/op.key.pem", "--out", "audit.cbor"]].concat(),
        );
        let section = "[[sum]]\nkey = \"auditkeys/mote0.sum.key\"\nparent = \"audit-gw\"\n\
                       link_secret = \"keys/mote0.sum-link.key\"\npolicy = \"audit.cbor\"\n";
        let config = format!("{valid}{section}");
        if is_permitted {
            fs::write(at.join("mote0.toml"), config).unwrap();
            run(at, &["device", "run", "--config", "mote0.toml", "--check"]);
        } else {
            refused(&config, &["PoliciesDiffer: ", "alerts and audit"]);
        }
    }
    let again =
        moteseal(at, &[&setup[..3], &["a/b"], &setup[4..], &files].concat()).output().unwrap();
    let stderr = String::from_utf8(again.stderr).unwrap();
    assert!(stderr.contains("InvalidQuerierName: "), "{stderr}");
}

/// A device leaves a key group with masks. Its sums open again when the others have new masks, without a
/// new set-up.
#[test]
fn a_key_group_with_masks_is_asked_again_after_a_device_has_left() {
    let site = Site::new();
    let at = site.folder.path();
    add_querier(&site);
    let _gateway = site.gateway("alerts-gw");
    let feeder = Feeder::new();
    let mut motes: Vec<Running> = (0..MOTES).map(|mote| site.mote(mote)).collect();
    for (mote, process) in motes.iter_mut().enumerate() {
        feeder.feed(mote, process);
    }
    let mut alerts = Query::run(&site, &[MASKED, "--config", "alerts-querier.toml"]);
    alerts.until(0xff, &site);

    let change = ["roster", "revoke", "--device", "mote7", "--from", "2020-01-01"];
    let keys = ["--roster", "roster.cbor", "--operator", "keys/op.key.pem"];
    run(at, &[&change[..], &keys].concat());
    drop(motes.pop());
    // Without the device, the masks of the others do not add up to 0.
    loop {
        let row: Value = serde_json::from_str(&alerts.lines.next().unwrap().unwrap()).unwrap();
        assert!(alerts.start.elapsed() < LONG, "{row}\n{}", site.logs());
        if row["masked"].as_array().is_some_and(|masked| masked.len() == MOTES - 1) {
            assert_eq!(
                (&row["results"], &row["error"]["name"]),
                (&Value::Null, &"BelowFloor".into())
            );
            break;
        }
    }
    let renew = ["sum", "setup", "--roster", "roster.cbor", "--keys", "alertkeys/querier.sum.key"];
    run(at, &[&renew[..], &["--renew-masks", "mote7", "--out", "renewed/"]].concat());
    let files: Vec<_> = fs::read_dir(at.join("renewed")).unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), MOTES);
    for file in files {
        fs::copy(file.path(), at.join("alertkeys").join(file.file_name())).unwrap();
    }
    // The querier and the devices restart with the new files. The query continues.
    let [(id, _)] = &several::listed(&site, "alerts-querier.toml")[..] else { panic!("one query") };
    let id = id.clone();
    drop(alerts);
    motes.clear();
    for mote in 0..MOTES - 1 {
        let mut process = site.mote(mote);
        feeder.feed(mote, &mut process);
        motes.push(process);
    }
    let mut alerts = Query::run(&site, &["--attach", &id, "--config", "alerts-querier.toml"]);
    let row = alerts.until(0x7f, &site);
    assert_eq!((&row["participants"], &row["sources"]), (&7.into(), &7.into()), "{row}");
}
