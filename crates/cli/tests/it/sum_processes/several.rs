//! Several queries of a group at a time: they run at the same time, are listed, stopped, and
//! continued after their process was killed.

use super::*;

const OTHER: &str =
    "SELECT MIN(reading), COUNT(*) FROM sensors WHERE reading > 8 EPOCH DURATION 2s";

/// Returns the id and the state of each listed query.
pub(super) fn listed(site: &Site, config: &str) -> Vec<(String, String)> {
    let list = ["sum", "list", "--config", config, "--json"];
    let output = moteseal(site.folder.path(), &list).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let rows = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.map(|row| (text(&row, "id"), text(&row, "state"))).collect()
}

/// Reads rows until one has a count of `readings`. Returns its epoch.
fn until_count(query: &mut Query, readings: u32, site: &Site) -> u64 {
    loop {
        let line = query.lines.next().unwrap_or_else(|| panic!("{}", site.logs())).unwrap();
        let row: Value = serde_json::from_str(&line).unwrap();
        assert!(query.start.elapsed() < LONG, "{row}\n{}", site.logs());
        assert!(matches!(row["error"]["name"].as_str(), None | Some("BelowFloor")), "{row}");
        if row["results"]["COUNT(*)"].as_str() == Some(&readings.to_string()) {
            return row["epoch"].as_u64().unwrap();
        }
    }
}

#[test]
fn several_queries_run_at_a_time_and_one_goes_on_after_its_process_was_killed() {
    let site = Site::new();
    let at = site.folder.path();
    let _gateways = ["root", "gw-a", "gw-b"].map(|name| site.gateway(name));
    let feeder = Feeder::new();
    let mut motes: Vec<Running> = (0..MOTES).map(|mote| site.mote(mote)).collect();
    for (mote, process) in motes.iter_mut().enumerate() {
        feeder.feed(mote, process);
    }
    let mut first = Query::start(&site, "querier.toml");
    first.until(0xff, &site);
    let [(first_id, state)] = &listed(&site, "querier.toml")[..] else { panic!("one query") };
    assert_eq!(state, "running");
    let mut second = Query::run(
        &site,
        &[OTHER, "--config", "querier.toml", "--min-count", "1", "--epochs", "40"],
    );
    let before = until_count(&mut second, 4, &site);
    // The first query continues.
    first.until(0xff, &site);
    let both = listed(&site, "querier.toml");
    let second_id = both.iter().map(|(id, _)| id).find(|id| *id != first_id).unwrap();
    assert!(both.len() == 2 && both.iter().all(|(_, state)| state == "running"), "{both:?}");
    let busy = moteseal(at, &["sum", "run", "--attach", second_id, "--config", "querier.toml"]);
    let refused = { busy }.output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("QuerierBusy: "), "{refused:?}");

    // SIGKILL. Another process continues the query under the same id, and only once.
    drop(second);
    let left = listed(&site, "querier.toml");
    assert!(left.contains(&(second_id.clone(), "left".to_owned())), "{left:?}");
    first.until(0xff, &site);
    let mut second = Query::run(&site, &["--attach", &second_id[..6], "--config", "querier.toml"]);
    let after = until_count(&mut second, 4, &site);
    assert!(after > before, "{after} after {before}");
    assert_eq!(listed(&site, "querier.toml").len(), 2);

    // A stopped query ends, with the rows that it has; the other one continues.
    run(at, &["sum", "stop", first_id, "--config", "querier.toml"]);
    let code = first.process.0.wait().unwrap().code();
    assert!(matches!(code, Some(0 | 4)), "{code:?}\n{}", site.logs());
    assert_eq!(listed(&site, "querier.toml"), [(second_id.clone(), "running".to_owned())]);
    until_count(&mut second, 4, &site);

    // A query that was left is stopped without a process.
    drop(second);
    run(at, &["sum", "stop", second_id, "--config", "querier.toml"]);
    assert_eq!(listed(&site, "querier.toml"), []);
    let unknown = ["sum", "stop", second_id, "--config", "querier.toml"];
    let refused = moteseal(at, &unknown).output().unwrap();
    assert!(
        refused.status.code() == Some(2)
            && String::from_utf8_lossy(&refused.stderr).contains("UnknownQuery: "),
        "{refused:?}"
    );
}
