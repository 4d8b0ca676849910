//! Tests of the table of health, its rules, and its picture in the documentation.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use moteseal_client::health::{Rule, Table};
use moteseal_core::health::{Health, Item};

/// The time between the reports of the simulated group.
const PERIOD: u32 = 30;
/// The number of periods.
const PERIODS: u32 = 13;

/// A simulated mote: what it counts in each period.
struct Mote {
    name: &'static str,
    uptime_s: u32,
    battery: i64,
    temperature: i64,
    sent: fn(u32) -> u32,
    bad_crc: fn(u32) -> u32,
}

/// A group of six: one is jammed, one has restarted, one has been silent for a while, one never reported.
const GROUP: [Mote; 5] = [
    Mote {
        name: "attic",
        uptime_s: 900_000,
        battery: 91,
        temperature: 214,
        sent: |_| 62,
        bad_crc: |_| 0,
    },
    Mote {
        name: "cellar",
        uptime_s: 86_000,
        battery: 64,
        temperature: 118,
        sent: |of| 40 + 7 * of,
        bad_crc: |of| of / 4,
    },
    Mote {
        name: "garden",
        uptime_s: 4_000,
        battery: 12,
        temperature: -35,
        sent: |_| 30,
        bad_crc: |of| if of > 8 { 55 } else { 0 },
    },
    Mote {
        name: "kitchen",
        uptime_s: 700_000,
        battery: 88,
        temperature: 239,
        sent: |of| 50 + of % 5 * 9,
        bad_crc: |_| 0,
    },
    Mote {
        name: "workshop",
        uptime_s: 50_000,
        battery: 70,
        temperature: 187,
        sent: |of| 90 - 5 * of,
        bad_crc: |_| 0,
    },
];

const INTERVAL: Option<Duration> = Some(Duration::from_secs(30));

/// Returns the table of the group at a time, and the time.
fn group(rules: Vec<Rule>) -> (Table, Instant) {
    let start = Instant::now();
    let mut table = Table::new(rules);
    table.list("hall");
    for mote in &GROUP {
        let mut health = Health::new(2, mote.uptime_s);
        for period in 0..PERIODS {
            // The workshop stops reporting.
            if mote.name == "workshop" && period > 6 {
                break;
            }
            health.uptime_s += PERIOD;
            if mote.name == "kitchen" && period == PERIODS - 1 {
                health = Health::new(3, 20);
            }
            health
                .add(Item::LinkSent, (mote.sent)(period))
                .add(Item::LinkBadCrc, (mote.bad_crc)(period));
            health.set(Item::Battery, mote.battery).set(Item::Temperature, mote.temperature);
            health.set(Item::Waiting, i64::from(mote.name == "garden") * 3);
            let at = start + Duration::from_secs((period * PERIOD).into());
            assert!(table.take(at, mote.name, (&health, INTERVAL)));
        }
    }
    (table, start + Duration::from_secs(((PERIODS - 1) * PERIOD + 4).into()))
}

/// Returns lines of text as a picture.
fn picture(lines: &[String]) -> String {
    let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let (column, row, margin) = (7.83, 19.0, 14.0);
    #[allow(clippy::cast_precision_loss)]
    let size = (width as f64 * column + 2.0 * margin, lines.len() as f64 * row + 2.0 * margin);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{:.0}\" viewBox=\"0 0 {0:.0} {1:.0}\">\n\
         <title>moteseal health watch</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#1d2330\"/>\n\
         <g font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"13\" fill=\"#d8dee9\" xml:space=\"preserve\">\n",
        size.0, size.1
    );
    for (at, line) in lines.iter().enumerate() {
        let text = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let color = match (at, line) {
            (0, _) => " fill=\"#8fbcbb\"",
            (_, line)
                if line.contains("silent")
                    || line.contains("never")
                    || line.contains("bad_crc") =>
            {
                " fill=\"#ebcb8b\""
            }
            _ => "",
        };
        #[allow(clippy::cast_precision_loss)]
        let y = margin + row * (at as f64 + 0.75);
        let _ = writeln!(svg, "<text x=\"{margin}\" y=\"{y:.1}\"{color}>{text}</text>");
    }
    svg + "</g>\n</svg>\n"
}

#[test]
fn the_picture_of_a_watched_group_is_up_to_date() {
    let (table, now) = group(Vec::new());
    let svg = picture(&table.lines(now));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/health.svg");
    if std::env::var_os("MOTESEAL_BLESS").is_some() {
        std::fs::write(&path, &svg).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(committed, svg, "docs/health.svg is out of date; MOTESEAL_BLESS=1 writes it");
}

#[test]
fn the_table_names_what_is_silent_lost_and_restarted() {
    let (table, now) = group(Vec::new());
    let lines = table.lines(now);
    let line = |name: &str| lines.iter().find(|line| line.starts_with(name)).unwrap();
    assert!(line("hall").ends_with("never heard"), "{lines:#?}");
    assert!(line("workshop").ends_with("silent for 3 min"), "{lines:#?}");
    assert!(line("garden").ends_with("link.bad_crc +55"), "{lines:#?}");
    assert!(line("kitchen").ends_with("restarted"), "{lines:#?}");
    assert!(line("attic").contains("91 %") && line("attic").contains("21.4 °C"), "{lines:#?}");
    assert!(line("garden").contains("-3.5 °C") && line("garden").contains("4 s ago"), "{lines:#?}");
    let json = table.json(now, "garden");
    assert_eq!(json["health"]["link"]["bad_crc"], 220);
    assert!((json["per_s"]["link.bad_crc"].as_f64().unwrap() - 55.0 / 30.0).abs() < 1e-9);
    assert_eq!(
        (&json["stale"], &table.json(now, "workshop")["stale"]),
        (&false.into(), &true.into())
    );
}

#[test]
fn a_table_longer_than_the_terminal_shows_its_head_and_the_worst_nodes_first() {
    let (mut table, now) = group(vec!["battery > 90".parse().unwrap()]);
    let starts = |lines: &[String]| {
        lines.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let lines = table.lines_within(now, 5);
    assert_eq!(starts(&lines), ["NODE", "workshop", "kitchen", "garden", "3"], "{lines:#?}");
    assert!(lines[4].contains("3 more nodes") && lines[4].contains("--all"), "{lines:#?}");
    // A node for which a rule matches is the worst.
    assert_eq!(table.alerts(now).len(), 1);
    let lines = table.lines_within(now, 0);
    assert_eq!(starts(&lines), ["NODE", "attic", "workshop", "4"], "{lines:#?}");
    // If all nodes fit, they are in the order of their names.
    assert_eq!(table.lines_within(now, table.lines(now).len()), table.lines(now));
}

#[test]
fn a_rule_reports_once_when_it_begins_to_match_and_once_when_it_ceases() {
    let rules =
        ["bad_crc/s > 1", "battery < 20", "age > 120", "restarts >= 1", "temperature <= -3.5"];
    let (mut table, now) = group(rules.iter().map(|rule| rule.parse().unwrap()).collect());
    let alerts = table.alerts(now);
    let found: Vec<(&str, &str)> =
        alerts.iter().map(|alert| (&*alert.node, &*alert.rule)).collect();
    let expected = [
        ("garden", "bad_crc/s > 1"),
        ("garden", "battery < 20"),
        ("garden", "temperature <= -3.5"),
        ("kitchen", "restarts >= 1"),
        ("workshop", "age > 120"),
    ];
    assert_eq!(found, expected);
    assert!(alerts.iter().all(|alert| alert.is_on));
    assert!(table.alerts(now).is_empty());
    let mut better = *table.rows().find(|(name, _)| *name == "garden").unwrap().1.health().unwrap();
    better.uptime_s += PERIOD;
    better.set(Item::Battery, 100);
    table.take(now, "garden", (&better, INTERVAL));
    let over = table.alerts(now);
    assert_eq!(over.len(), 2);
    assert!(over.iter().all(|alert| !alert.is_on && alert.node == "garden"));
    assert_eq!(over[0].to_string(), "over garden: bad_crc/s > 1 (now 0.000)");
}

#[test]
fn what_is_not_a_rule_is_refused_with_the_reason() {
    for (text, why) in [
        ("bad_crc", "no < or >"),
        ("sent/s > 1", "several groups"),
        ("nothing > 1", "no such item"),
        ("battery/s > 1", "only counts"),
        ("battery > x", "not a number"),
        ("battery > inf", "not a number"),
    ] {
        let error = text.parse::<Rule>().unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn a_repeated_record_changes_nothing() {
    let (mut table, now) = group(Vec::new());
    let before = table.lines(now);
    let newest = *table.rows().find(|(name, _)| *name == "attic").unwrap().1.health().unwrap();
    assert!(!table.take(now, "attic", (&newest, INTERVAL)));
    assert_eq!(table.lines(now), before);
}

#[test]
fn a_quiet_node_is_silent_only_after_twice_the_interval_that_it_stated() {
    let (mut table, now) = (Table::new(Vec::new()), Instant::now());
    let interval = Some(Duration::from_secs(480));
    table.take(now, "quiet", (&Health::new(1, 10_000), interval));
    let is_stale = |at| table.json(now + Duration::from_secs(at), "quiet")["stale"] == true;
    assert_eq!([400, 990, 991].map(is_stale), [false, false, true]);
}

#[test]
fn a_node_that_has_lost_its_state_has_restarted() {
    let (mut table, now) = (Table::new(Vec::new()), Instant::now());
    table.take(now, "mote", (&Health::new(1, 1_000_000), INTERVAL));
    assert!(table.take(now, "mote", (&Health::new(1, 30), INTERVAL)));
    let json = table.json(now, "mote");
    assert_eq!((&json["restarts"], &json["reasons"]), (&1.into(), &"restarted".into()));
}
