//! A cloud in several processes: an intake, workers and a server of reads, over a real nats-server.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::coap_transport::{ROSTER, Service};
use crate::scene::{Scene, repository};

/// A nats-server that ends when this is dropped, and when the test program ends.
pub(crate) struct Nats {
    shell: Child,
    url: String,
    monitor: String,
    _folder: tempfile::TempDir,
}

impl Nats {
    pub(crate) fn start() -> Self {
        Self::with(|| None)
    }

    /// Starts a server with the lines of the file that `configure` writes.
    pub(crate) fn with(configure: impl FnOnce() -> Option<std::path::PathBuf>) -> Self {
        let more = configure();
        let server = repository(".venv/engines/bin/nats-server");
        assert!(server.exists(), "nats-server is missing; run tools/engines.sh install nats");
        let port = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (port, monitor) = (port(), port());
        let folder = tempfile::tempdir().unwrap();
        let script = r#""$@" & server=$!; read -r _; kill -9 $server"#;
        let shell = Command::new("sh")
            .args(["-c", script, "nats"])
            .arg(repository("tools/engines.sh"))
            .args(["run", "nats"])
            .arg(folder.path())
            .args([port.to_string(), monitor.to_string()])
            .envs(more.map(|file| ("MOTESEAL_NATS_LINES", file)))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "the server does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self {
            shell,
            url: format!("nats://127.0.0.1:{port}"),
            monitor: format!("http://127.0.0.1:{monitor}"),
            _folder: folder,
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn monitor(&self) -> &str {
        &self.monitor
    }

    pub(crate) fn arguments(&self) -> [&str; 4] {
        ["--stream", &self.url, "--stream-monitor", &self.monitor]
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

pub(crate) fn cloud(scene: &Scene, nats: &Nats, more: &[&str]) -> Service {
    let run = ["cloud", "run", "--listen", "127.0.0.1:0"];
    Service::start(scene, &[&run[..], &ROSTER, &nats.arguments(), more].concat(), 1)
}

pub(crate) fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl").args(["-s", "-m", "20"]).args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_an_intake_acknowledged_is_served_after_a_worker_was_killed() {
    let (scene, nats) = (Scene::new(), Nats::start());
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
    let mut queued = 0;
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
    }
    assert_eq!(queued, files.len() as u64);
    drop(first);

    let server = cloud(&scene, &nats, &server);
    let url = server.url("http");
    // A read that names a position waits until the workers have stored it.
    let after = format!("moteseal-after: {queued}");
    let devices = format!("{url}/v1/devices");
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let status = curl(&["-o", "/dev/null", "-w", "%{http_code}", "-H", &after, &devices]);
        if status == "200" {
            break;
        }
        assert!(status == "503" && Instant::now() < until, "{status}");
    }
    let got =
        scene.with_roster(&["get", "dev1", "--from", url, "--rate", "1", "-o", "got.csv"]).done();
    let rows = std::fs::read_to_string(scene.path("got.csv")).unwrap().lines().count();
    assert_eq!(rows, 401, "{}", got.stderr);
    let metrics = curl(&[&format!("{url}/metrics")]);
    assert!(metrics.contains("moteseal_worker_dead_total 0"), "{metrics}");

    // Each role refuses what another one does, and says which.
    let refused = curl(&[&format!("{}/v1/devices", intakes[0].url("http"))]);
    assert!(refused.contains("role serve"), "{refused}");
    let run = scene.run(&["push", &format!("bundles/{}", files[0]), "--to", url]);
    assert_eq!(run.code, 0, "the server has the bundle already: {}", run.stderr);
    let count = stream(&["dead", "count"]).done();
    assert_eq!(count.out.trim(), "0");
}
