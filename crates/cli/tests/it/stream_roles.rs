//! A cloud in several processes: an intake, workers and a server of reads, over a real nats-server.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::coap_transport::{ROSTER, Service};
use crate::nats::Server;
use crate::scene::Scene;

pub(crate) fn cloud(scene: &Scene, nats: &Server, more: &[&str]) -> Service {
    let run = ["cloud", "run", "--listen", "127.0.0.1:0"];
    Service::start(scene, &[&run[..], &ROSTER, &nats.arguments(), more].concat(), 1)
}

pub(crate) fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl").args(["-s", "-m", "20"]).args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_an_intake_acknowledged_is_served_after_a_worker_was_killed() {
    let (scene, mut nats) = (Scene::new(), Server::start());
    let stream = |more: &[&str]| scene.run(&[&["stream"][..], more, &nats.arguments()].concat());
    let run = stream(&["check", "--role", "intake"]);
    assert!(run.failed(2).contains("StreamMissing"), "{}", run.stderr);
    stream(&["init", "--max-mib", "64", "--piece-mib", "64", "--dead-mib", "8", "--ack-wait", "1"])
        .done();
    stream(&["check", "--role", "worker"]).done();

    let intakes =
        [cloud(&scene, &nats, &["--role", "intake"]), cloud(&scene, &nats, &["--role", "intake"])];
    let server = ["--role", "worker,serve", "--store", "epochs.redb"];
    let first = cloud(&scene, &nats, &server);
    scene.table("readings.csv", 400);
    scene.seal("readings.csv", "dev1", &[]).done();
    let files = scene.names("bundles");
    assert!(files.len() > 2, "{files:?}");
    let half = files.len() / 2;
    let (mut queued, mut position) = (0, 0);
    for (number, file) in files.iter().enumerate() {
        if number == half {
            // Killed, not stopped: the store is closed by nobody, and messages are in progress.
            let pid = first.id().to_string();
            assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        }
        let file = format!("bundles/{file}");
        let to = intakes[number % 2].url("http");
        let pushed = scene.run(&["push", &file, "--to", to, "--json"]).done().json();
        queued += pushed["queued"].as_u64().unwrap();
        position = pushed["position"].as_u64().unwrap();
    }
    assert_eq!(queued, files.len() as u64);
    drop(first);

    let server = cloud(&scene, &nats, &server);
    let url = server.url("http");
    // A read that names a position waits until the workers have stored it.
    let got = scene
        .with_roster(&[
            "get",
            "dev1",
            "--from",
            url,
            "--after-position",
            &position.to_string(),
            "--rate",
            "1",
            "-o",
            "got.csv",
        ])
        .done();
    let rows = std::fs::read_to_string(scene.path("got.csv")).unwrap().lines().count();
    assert_eq!(rows, 401, "{}", got.stderr);
    let metrics = curl(&[&format!("{url}/metrics")]);
    assert!(metrics.contains("moteseal_worker_dead_total 0"), "{metrics}");
    // The servers are asked every 5 s.
    let until = Instant::now() + Duration::from_secs(20);
    let gauges = ["moteseal_stream_waiting 0\n", "moteseal_stream_dead 0\n"];
    let metrics = loop {
        let metrics = curl(&[&format!("{url}/metrics")]);
        if gauges.iter().all(|gauge| metrics.contains(gauge)) {
            break metrics;
        }
        assert!(Instant::now() < until, "{metrics}");
        std::thread::sleep(Duration::from_millis(100));
    };
    // The page of the operator lists exactly the metrics of a worker.
    let own = |line: &str, before: &str, after: char| {
        let name = line.strip_prefix(before)?.split(after).next()?.to_owned();
        let is_own =
            ["moteseal_worker_", "moteseal_stream_"].iter().any(|own| name.starts_with(own));
        is_own.then_some(name)
    };
    let served: BTreeSet<_> =
        metrics.lines().filter_map(|line| own(line, "# TYPE ", ' ')).collect();
    let page = include_str!("../../../../docs/cloud.md");
    let documented: BTreeSet<_> = page.lines().filter_map(|line| own(line, "| `", '`')).collect();
    assert_eq!(documented, served);

    // Each role refuses what another one does, and says which.
    let refused = curl(&[&format!("{}/v1/devices", intakes[0].url("http"))]);
    assert!(refused.contains("role serve"), "{refused}");
    let run = scene.run(&["push", &format!("bundles/{}", files[0]), "--to", url]);
    assert_eq!(run.code, 0, "the server has the bundle already: {}", run.stderr);
    let count = stream(&["dead", "count"]).done();
    assert_eq!(count.out.trim(), "0");
    let discarded = stream(&["dead", "discard", "--json", "--number", "1", "--number", "2"]);
    assert_eq!(discarded.out.lines().next(), Some("{\"discarded\":0}"));
    assert!(discarded.failed(2).contains("there are no letters 1, 2"), "{discarded:?}");
    let replayed = stream(&["dead", "replay", "--number", "99"]);
    assert!(replayed.failed(2).contains("there is no letter 99; "), "{replayed:?}");
    assert_eq!(stream(&["dead", "replay", "--json"]).done().out.trim(), "{\"replayed\":0}");

    // An intake is ready while it is connected to the stream.
    let ready = format!("{}/readyz", intakes[0].url("http"));
    assert_eq!(curl(&[&ready]), "ready\n");
    nats.kill();
    let until = Instant::now() + Duration::from_secs(20);
    while !curl(&[&ready]).contains("the stream cannot be reached") {
        assert!(Instant::now() < until, "{}", curl(&[&ready]));
        std::thread::sleep(Duration::from_millis(100));
    }
}
