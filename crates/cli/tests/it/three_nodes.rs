//! A cloud on three nodes of Cassandra, one of which is paused. Then it loses one of them, then two. Each node has
//! a replica, and a write or a read needs two. The nodes use TLS among themselves.

mod internode;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::cassandra::Cassandra;
use crate::cluster_tls::certify;
use crate::http_grades::curl;
use crate::scene::{Cloud, Run, Scene};

const HOSTS: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
const SETTINGS: &[&str] =
    &["authenticator=PasswordAuthenticator", "authorizer=CassandraAuthorizer"];
/// The hours of the readings of each device; each has a seal.
const HOURS: u32 = 15;
/// The time within which a cloud works again after nodes were lost or have come back.
const PATIENCE: Duration = Duration::from_secs(120);
/// For how long a node is paused. At the end, the others take it for lost.
const PAUSE: Duration = Duration::from_secs(30);
/// The time within which a request is answered while a node is paused. It consists of several requests to Cassandra,
/// one after the other. A cloud answers 503 after 10 s.
const PROMPT: Duration = Duration::from_secs(8);

struct Site {
    scene: Scene,
    /// The URL of the keyspace without a user.
    url: String,
    pushed: usize,
}

impl Site {
    fn policy(&self, command: &str) -> Run {
        let folder = if command == "init" { "--out" } else { "--from" };
        self.scene.run(&["cloud", "policy", command, "policy.toml", folder, "policy"])
    }

    /// Returns the URL for a process of the policy, and lets the next commands use its password.
    fn as_process(&self, name: &str) -> String {
        let file = |file: &str| {
            let path = self.scene.path(&format!("policy/processes/{name}/cassandra.{file}"));
            std::fs::read_to_string(path).unwrap()
        };
        self.scene.write("cassandra.password", &file("password"));
        self.url.replace("://", &format!("://{}@", file("user").trim()))
    }

    fn bundle(&self, number: usize) -> String {
        format!("bundles/{}", self.scene.names("bundles")[number])
    }

    /// Uploads the next bundles, and repeats each until the cloud acknowledges it.
    fn push(&mut self, cloud: &Cloud, count: usize) {
        for _ in 0..count {
            let file = self.bundle(self.pushed);
            let start = Instant::now();
            loop {
                let run = self.scene.run(&["push", &file, "--to", &cloud.url]);
                if run.code == 0 {
                    break;
                }
                assert!(start.elapsed() < PATIENCE, "{run:?}");
            }
            println!("{file} is acknowledged after {:.1} s", start.elapsed().as_secs_f32());
            self.pushed += 1;
        }
    }

    /// Lists the devices again and again for a time, and uploads the next bundles meanwhile. Asserts that each
    /// request succeeds soon.
    fn prompt(&mut self, cloud: &Cloud, time: Duration, count: u32) {
        let (bundles, devices) =
            (format!("{}/v1/bundles", cloud.url), format!("{}/v1/devices", cloud.url));
        let (started, mut longest, mut requests) = (Instant::now(), Duration::ZERO, 0);
        let mut uploads = 0;
        while started.elapsed() < time || uploads < count {
            let bundle = self.bundle(self.pushed);
            let is_upload = uploads < count && started.elapsed() >= time * uploads / count;
            let request: &[&str] =
                if is_upload { &["--upload-file", &bundle, &bundles] } else { &[&devices] };
            let start = Instant::now();
            let (status, body) = curl(&self.scene, &[&["--max-time", "60"], request].concat());
            let took = start.elapsed();
            assert!(status == 200 && took < PROMPT, "{status} after {took:?}: {body}");
            if is_upload {
                assert_eq!(body, r#"{"stored":1,"known":0}"#);
                (uploads, self.pushed) = (uploads + 1, self.pushed + 1);
            }
            (longest, requests) = (longest.max(took), requests + 1);
        }
        println!("{requests} requests, each within {:.1} s", longest.as_secs_f32());
    }

    /// Asserts that a client gets and verifies every reading that was acknowledged.
    fn served(&self, cloud: &Cloud) {
        let names = self.scene.names("bundles");
        for device in ["dev1", "dev2"] {
            let acknowledged = names[..self.pushed].iter().filter(|name| name.starts_with(device));
            let rows = 60 * acknowledged.count();
            if rows == 0 {
                continue;
            }
            let get = ["get", device, "--from", &cloud.url, "--rate", "1", "--format", "csv"];
            let start = Instant::now();
            let run = loop {
                let run = self.scene.with_roster(&get);
                // Only an answer that says so may be repeated.
                if run.code == 0 || start.elapsed() > PATIENCE {
                    break run.done();
                }
                assert_eq!(run.code, 6, "{run:?}");
            };
            assert_eq!(run.out.lines().count(), rows + 1, "{device}");
            println!("{rows} readings of {device} after {:.1} s", start.elapsed().as_secs_f32());
        }
    }

    /// Verifies every seal of the keyspace.
    fn whole(&self, url: &str) {
        let check = self.scene.with_roster(&["store", "check", url]).done();
        let expected = format!("whole; {} seals", self.pushed);
        assert!(check.out.contains(&expected), "{check:?}");
    }
}

#[test]
#[ignore = "three nodes of Cassandra take minutes to start; `make test-long` runs it"]
fn a_cloud_on_three_nodes_goes_on_without_one_and_refuses_clearly_without_two() {
    let nodes = Cassandra::cluster(&HOSTS, SETTINGS, "cassandra", certify);
    for node in &nodes {
        internode::answers_only_nodes_of_the_authority(node, nodes[0].folder());
    }
    let superuser = nodes[0].address("three");
    let hosts: Vec<String> =
        nodes.iter().map(|node| node.address("three").hosts[0].clone()).collect();
    let url = format!("cassandra://{}/three", hosts.join(","));
    let mut site = Site { scene: Scene::new(), url, pushed: 0 };
    site.scene.table("readings.csv", 60 * HOURS);
    site.scene.seal("readings.csv", "dev1", &[]).done();
    site.scene.seal("readings.csv", "dev2", &["--scheme", "tree"]).done();

    // The keyspace has three replicas, and the policy is in force on every node.
    let of_superuser = site.url.replace("://", "://cassandra@");
    let init = ["store", "init", "--replicas", "3", "--store", &of_superuser];
    let created = site.scene.run(&init).done();
    assert!(created.out.contains("was created (version 2)"), "{created:?}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let replication: HashMap<String, String> = runtime.block_on(async {
        let session = nodes[0].session(&superuser).await;
        let select =
            "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = 'three'";
        let result = session.query_unpaged(select, &[]).await.unwrap().into_rows_result().unwrap();
        result.single_row::<(HashMap<String, String>,)>().unwrap().0
    });
    assert_eq!(replication["datacenter1"], "3", "{replication:?}");
    let processes = "boss = [\"admin\"]\none = [\"worker\"]\nreader = [\"serve\"]\n";
    site.scene.write(
        "policy.toml",
        &format!(
            "[table]\nstore = \"{}\"\nreplicas = 3\nsuperuser = \"cassandra\"\n[processes]\n{processes}",
            site.url
        ),
    );
    site.policy("init").done();
    site.policy("apply").done();
    site.policy("check").done();
    let worker = site.as_process("one");
    let cloud = site.scene.cloud(&worker);
    site.push(&cloud, 6);
    site.served(&cloud);
    site.whole(&worker);

    // One node is paused: no upload and no read fails or waits for it. Before, each node reads enough to know how
    // long a read of a table takes.
    site.prompt(&cloud, Duration::from_secs(15), 2);
    nodes[2].signal("STOP");
    println!("one node is paused");
    site.prompt(&cloud, PAUSE, 4);
    nodes[2].signal("CONT");
    println!("the node continues");
    site.prompt(&cloud, Duration::from_secs(5), 0);
    site.served(&cloud);
    site.whole(&worker);

    // One node is lost: uploads and reads go on, clouds start, and the policy can be checked and changed.
    nodes[2].kill();
    println!("one node is lost");
    site.push(&cloud, 6);
    site.served(&cloud);
    drop(cloud);
    let cloud = site.scene.cloud(&worker);
    site.push(&cloud, 2);
    site.served(&cloud);
    site.whole(&worker);
    std::fs::remove_file(site.scene.path("cassandra.password")).unwrap();
    site.policy("apply").done();
    site.policy("check").done();
    let worker = site.as_process("one");
    internode::is_sent_nothing_without_a_certificate(&nodes[2]);

    // Two nodes are lost: every answer says so, until one has come back.
    nodes[1].kill();
    println!("two nodes are lost");
    let bundle = site.bundle(site.pushed);
    let (bundles, devices) =
        (format!("{}/v1/bundles", cloud.url), format!("{}/v1/devices", cloud.url));
    let patient = ["--max-time", "60"];
    for _ in 0..2 {
        for request in [&["--upload-file", &bundle, &bundles][..], &[devices.as_str()][..]] {
            let start = Instant::now();
            let (status, body) = curl(&site.scene, &[&patient[..], request].concat());
            println!("{status} {body} after {:.1} s", start.elapsed().as_secs_f32());
            assert!(status == 503 && body.contains("Unavailable"), "{status} {body}");
        }
        // Later, the last node knows that the others are lost.
        std::thread::sleep(Duration::from_secs(15));
    }
    let second =
        site.scene.with_roster(&["cloud", "run", "--store", &worker, "--listen", "127.0.0.1:0"]);
    let line = second.failed(6);
    println!("{line}");
    assert!(line.contains("too few replicas") || line.contains("TableReplicas"), "{line}");

    nodes[1].start(&[]);
    println!("a node has come back");
    site.push(&cloud, 4);
    site.served(&cloud);

    // The node that was lost first has come back, too, and the first one is lost: two of the three replicas have
    // everything that was acknowledged.
    nodes[2].start(&[]);
    nodes[0].kill();
    println!("the third node has come back, and the first one is lost");
    site.push(&cloud, 6);
    site.served(&cloud);
    assert_eq!(site.pushed, 2 * HOURS as usize);
    drop(cloud);
    let cloud = site.scene.cloud(&worker);
    site.served(&cloud);
    site.whole(&worker);
}
