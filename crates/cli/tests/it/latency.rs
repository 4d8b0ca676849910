//! The study of latency (`moteseal-lab latency`) in runs of half a second, with real processes. Configuration 4
//! uses the embedded store, because Cassandra takes long to start; the tests of the table use Cassandra.

use std::path::Path;
use std::time::Duration;

use moteseal_lab::chance::Seed;
use moteseal_lab::latency::wired::{AT_ONCE, Configuration, Message, Rate, TableKind};
use moteseal_lab::latency::{Plan, Programs, costs, run};
use moteseal_lab::report;

use crate::scene::repository;

fn programs() -> Programs {
    Programs {
        moteseal: env!("CARGO_BIN_EXE_moteseal").into(),
        engines: repository("tools/engines.sh"),
        table: TableKind::Embedded,
    }
}

fn plan(folder: &Path) -> Plan {
    Plan {
        folder: folder.to_owned(),
        programs: programs(),
        time: Duration::from_millis(500),
        strings: 200,
        trials: 1,
        configurations: Configuration::ALL.to_vec(),
        seed: Seed::default(),
    }
}

#[test]
fn every_message_of_the_study_of_latency_has_its_times_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let study = run(&plan(folder.path()), &mut |_| {}).unwrap();

    // Both media, both qualities of service, five protections.
    assert_eq!(study.wireless.len(), 20);
    for of in &study.wireless {
        assert_eq!((of.latency.count, of.per_message.len()), (200, 1), "{of:?}");
        assert!(of.latency.p50 > 0.0 && of.latency.p50 <= of.latency.p99, "{of:?}");
        assert!(of.per_message[0] * 200.0 >= of.latency.max, "{of:?}");
    }
    // Two rates for three configurations, three for the fourth, three kinds of messages.
    assert_eq!(study.wired.len(), 3 * (3 * 2 + 3));
    for run in &study.wired {
        let name = format!("{:?}, {}, {}", run.configuration, run.message, run.rate);
        match run.rate {
            Rate::Low => assert_eq!(run.total.count, 3, "{name}"),
            Rate::Maximum => assert!(run.total.count >= 3, "{name}: {run:?}"),
            Rate::Parallel => assert!(run.total.count >= AT_ONCE as u64, "{name}: {run:?}"),
        }
        // t1 is before t2 is before t3. `run` fails if this does not hold for a message.
        for point in [&run.timeline, &run.processing_timeline, &run.detail].into_iter().flatten() {
            assert!(
                0.0 <= point.processing && point.processing <= point.total,
                "{name}: {point:?}"
            );
        }
        assert!(run.transmission.p50 > 0.0 && run.processing.p50 > 0.0, "{name}: {run:?}");
        let parts = run.transmission.mean + run.processing.mean;
        assert!((run.total.mean - parts).abs() < 1e-6, "{name}: {run:?}");
        assert!(run.first <= run.total.max && run.upload_bytes > f64::from(run.message.bytes()));
        let is_four = run.configuration == Configuration::Four;
        let batches = run.batches.map_or(0, |batches| batches.writes);
        assert_eq!((is_four, batches <= run.total.count), (batches > 0, true), "{name}");
        if let Some(stages) = run.stages {
            let parts = stages.request.mean + stages.stream.mean + stages.table.mean;
            assert!((run.total.mean - parts).abs() < 1e-6, "{name}: {run:?}");
        }
    }
    let slow = study.wired_run(Configuration::Four, Message::Short, Rate::Low).unwrap();
    let batches = slow.batches.unwrap();
    assert_eq!((batches.writes, batches.max), (3, 1), "a message at a time needs no batch");
    // Two limits for each message of configuration 4, and one for each message and rate of the others.
    assert_eq!(study.bars().len(), 3 * 2 + 6);

    let out = folder.path().join("report");
    report::latency::write(&study, &out, &mut |_| {}).unwrap();
    let page = std::fs::read_to_string(out.join(report::INDEX)).unwrap();
    for text in ["12425.6", "0.169", "the embedded store, not a Cassandra", "runs of 0.5 s"] {
        assert!(page.contains(text), "no {text:?} in\n{page}");
    }
    for file in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        assert!(file.starts_with("..") || out.join(file).is_file(), "{file} is missing");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(left.len(), 1, "only the report is left: {left:?}");
}

#[test]
fn a_missing_program_of_the_study_of_latency_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none");
    let without = Programs { moteseal: missing, ..programs() };
    let wired = Plan { trials: 0, programs: without, ..plan(folder.path()) };
    let error = run(&wired, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("none") && error.contains("cargo build"), "{error}");
    let engines = folder.path().join("engines.sh");
    let wired = Plan {
        trials: 0,
        programs: Programs { engines, ..programs() },
        configurations: vec![Configuration::Four],
        ..plan(folder.path())
    };
    let error = run(&wired, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("nats") && error.contains("engines.sh"), "{error}");
}

/// A small fleet and one that is twice as large, with the embedded store.
#[test]
fn the_costs_of_a_fleet_are_measured_in_every_process() {
    let folder = tempfile::tempdir().unwrap();
    let plan = costs::Plan {
        folder: folder.path().to_owned(),
        programs: programs(),
        small: 150,
        large: 300,
        per_request: costs::PER_REQUEST,
        each: 4,
        warm_up: 200,
        replicas: 1,
        profile: false,
    };
    let scale = costs::measure(&plan, &mut |_| {}).unwrap();
    assert_eq!((scale.small.devices, scale.large.devices), (150, 300));
    for costs in [scale.small, scale.large] {
        assert!(
            costs.intake_us > 1.0 && costs.worker_us > 0.0 && costs.stream_us > 0.0,
            "{costs:?}"
        );
        assert!(costs.cassandra_us.is_none() && costs.disk_bytes > 4.0, "{costs:?}");
        assert!((1_192.0..1_600.0).contains(&costs.bundle_bytes), "{costs:?}");
    }
    assert_eq!(scale.compared().len(), 4);
    // Three processes, the bytes on disk, and the nodes.
    assert_eq!(scale.totals.len(), 3 + 1 + 1, "{:?}", scale.totals);
    assert!(scale.totals.iter().all(|total| total.predicted > 0.0 && total.measured > 0.0));
    assert_eq!((scale.small.stored, scale.large.stored), (200 + 150, 300 + 300));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
}

/// Three nats-servers store each message, with TLS between them.
#[test]
fn the_costs_of_three_nats_servers_are_measured_in_each() {
    let folder = tempfile::tempdir().unwrap();
    let plan = costs::Plan {
        folder: folder.path().to_owned(),
        programs: programs(),
        small: 96,
        large: 96,
        per_request: 1,
        each: 1,
        warm_up: 32,
        replicas: 3,
        profile: false,
    };
    let scale = costs::measure(&plan, &mut |_| {}).unwrap();
    for costs in [scale.small, scale.large] {
        let others = costs.followers_us.unwrap();
        assert!(others > 0.0 && costs.stream_us >= others, "{costs:?}");
    }
    assert_eq!(scale.totals.len(), 4 + 1 + 1, "a leader and the others: {:?}", scale.totals);
    let text = scale.to_string();
    assert!(text.contains("3 replicas") && text.contains("other replicas"), "{text}");
}
