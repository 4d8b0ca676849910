//! A cloud on both engines: intakes, workers and a server of reads as processes of their own, over a real
//! nats-server and a real Cassandra, of which some are killed while devices push.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::coap_transport::Service;
use crate::nats::Server;
use crate::scene::Scene;
use crate::stream_roles::{cloud, curl};
use crate::table_store::alone;

/// Kills a process, which gets no time to stop.
fn kill(process: Service) {
    let pid = process.id().to_string();
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
}

#[test]
fn nothing_acknowledged_is_lost_when_an_intake_a_worker_and_the_table_are_killed() {
    let (scene, nats, cassandra) = (Scene::new(), Server::start(), alone());
    let table = cassandra.address("scale").to_string();
    scene.run(&["store", "init", "--replicas", "1", "--store", &table]).done();
    let limits = ["--max-mib", "64", "--piece-mib", "64", "--dead-mib", "8", "--ack-wait", "2"];
    scene.run(&[&["stream", "init"][..], &limits, &nats.arguments()].concat()).done();
    scene.table("readings.csv", 1_000);
    scene.seal("readings.csv", "dev1", &[]).done();
    scene.seal("readings.csv", "dev2", &["--scheme", "tree"]).done();

    let role = |role: &str| cloud(&scene, &nats, &["--role", role, "--store", &table]);
    let (first, second) = (role("intake"), role("intake"));
    let (victim, _worker, server) = (role("worker"), role("worker"), role("serve"));
    let (mut first, mut victim) = (Some(first), Some(victim));
    let mut files: Vec<String> = scene.names("bundles");
    files.sort();
    let mut queued = 0;
    for (number, file) in files.iter().enumerate() {
        if number == files.len() / 4 {
            first.take().into_iter().for_each(kill);
        }
        if number == files.len() / 3 {
            victim.take().into_iter().for_each(kill);
        }
        let intake = first.as_ref().filter(|_| number % 2 == 0).unwrap_or(&second);
        let file = format!("bundles/{file}");
        let push = || {
            let pushed = scene.run(&["push", &file, "--to", intake.url("http"), "--json"]);
            pushed.done().json()["queued"].as_u64().unwrap()
        };
        queued += if number == files.len() / 2 {
            // A push asks which bundles are stored, so it is repeated until the table answers again.
            cassandra.kill();
            std::thread::scope(|scope| {
                scope.spawn(|| cassandra.start(&[]));
                push()
            })
        } else {
            push()
        };
    }
    assert_eq!(queued, files.len() as u64);
    let url = server.url("http");
    let after = format!("moteseal-after: {queued}");
    let devices = format!("{url}/v1/devices");
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let status = curl(&["-o", "/dev/null", "-w", "%{http_code}", "-H", &after, &devices]);
        if status == "200" {
            break;
        }
        assert!(status == "503" && Instant::now() < until, "{status}");
    }
    for device in ["dev1", "dev2"] {
        let get = ["get", device, "--from", url, "--rate", "1", "--format", "csv"];
        let run = scene.with_roster(&get).done();
        assert_eq!(run.out.lines().count(), 1_001, "{device}: {run:?}");
    }
    let check = scene.with_roster(&["store", "check", &table]).done();
    assert!(check.out.contains("whole") && check.out.contains("2,000 readings"), "{check:?}");
}
