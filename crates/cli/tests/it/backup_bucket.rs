//! Backups in a bucket of S3: `moteseal store export s3://..` and `moteseal store import s3://..`, with
//! versitygw as the server.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::nats::free_port;
use crate::scene::{GROUP_ARGUMENTS, Run, Scene, repository};

const KEY: (&str, &str) = ("backup-user", "a-secret-of-the-test");

/// A running versitygw with the bucket `backups`. It ends with this process, also if the process is killed.
struct Server {
    port: u16,
    folder: TempDir,
    program: Child,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("buckets/backups")).unwrap();
        let port = free_port();
        let script = "tools/engines.sh run versitygw \"$1\" \"$2\" >&2 & server=$!; read -r _; kill -9 $server";
        let program = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(folder.path())
            .arg(port.to_string())
            .env("ROOT_ACCESS_KEY", KEY.0)
            .env("ROOT_SECRET_KEY", KEY.1)
            .current_dir(repository(""))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let server = Self { port, folder, program };
        let until = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = || fs::read_to_string(server.folder.path().join("log")).unwrap_or_default();
            assert!(Instant::now() < until, "versitygw does not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// Runs a command with the environment of the server and these credentials.
    fn run_as(&self, scene: &Scene, arguments: &[&str], (id, secret): (&str, &str)) -> Run {
        let mut command = scene.command(arguments);
        command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port));
        command.env("AWS_ALLOW_HTTP", "true");
        command.env("AWS_ACCESS_KEY_ID", id).env("AWS_SECRET_ACCESS_KEY", secret);
        Run::of(command.output().unwrap())
    }

    fn run(&self, scene: &Scene, arguments: &[&str]) -> Run {
        self.run_as(scene, arguments, KEY)
    }

    /// The files of the objects of the backup `site`.
    fn objects(&self) -> Vec<PathBuf> {
        let folder = self.folder.path().join("buckets/backups/site/objects");
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.program.stdin.take());
        let _ = self.program.wait();
    }
}

#[test]
#[ignore = "needs versitygw, which takes minutes to build; `make test-long` installs it"]
fn a_backup_in_a_bucket_restores_a_cloud() {
    let server = Server::start();
    let scene = Scene::new();
    scene.table("data.csv", 12_000);
    scene.seal("data.csv", "dev1", &[]).done();
    scene.seal("data.csv", "dev2", &["--scheme", "tree"]).done();
    let cloud = scene.cloud("epochs.redb");
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    let export = |place: &str| {
        let arguments = ["store", "export", place, "--from", &cloud.url, "--json"];
        server.run(&scene, &[&arguments[..], &GROUP_ARGUMENTS].concat())
    };
    let first = export("s3://backups/site").done().json();
    assert_eq!((&first["seals"], &first["written"]), (&400.into(), &2.into()), "{first}");
    assert_eq!(first["backup"], "s3://backups/site");
    let again = export("s3://backups/site").done().json();
    assert_eq!((&again["written"], &again["reused"]), (&0.into(), &2.into()), "{again}");
    let check =
        [&["store", "export", "s3://backups/site", "--check"][..], &GROUP_ARGUMENTS].concat();
    assert!(server.run(&scene, &check).done().out.contains("whole; 400 seals"));

    let empty = scene.cloud("new.redb");
    let import = ["store", "import", "s3://backups/site", "--to", &empty.url, "--json"];
    let imported = server.run(&scene, &import).done().json();
    assert_eq!((&imported["seals"], &imported["skipped"]), (&400.into(), &0.into()), "{imported}");

    // What a wrong server alters or loses is found, and not imported.
    let object = server.objects().pop().unwrap();
    let mut bytes = fs::read(&object).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&object, &bytes).unwrap();
    assert!(server.run(&scene, &check).failed(5).contains("altered"));
    fs::remove_file(&object).unwrap();
    assert!(server.run(&scene, &check).failed(5).contains("missing"));
    // The next export writes it again.
    let mended = export("s3://backups/site").done().json();
    assert_eq!((&mended["written"], &mended["reused"]), (&1.into(), &1.into()), "{mended}");
    server.run(&scene, &check).done();

    // Wrong turns.
    let run = export("s3://nowhere/site");
    assert!(
        run.failed(2)
            .contains("BucketRefused: cannot list s3://nowhere/site/objects: there is no bucket"),
        "{run:?}"
    );
    let run = export("s3://");
    assert!(run.failed(2).contains("s3://BUCKET[/PREFIX]"), "{run:?}");
    let run = server.run(
        &scene,
        &[&["store", "export", "s3://backups/none", "--check"][..], &GROUP_ARGUMENTS].concat(),
    );
    assert!(run.failed(2).contains("NoIndex"), "{run:?}");
    for wrong in [(KEY.0, "another-secret"), ("nobody", KEY.1)] {
        let run = server.run_as(&scene, &check, wrong);
        let text = run.failed(2);
        assert!(text.contains("AWS_SECRET_ACCESS_KEY") && !text.contains(wrong.1), "{text}");
    }
}

#[test]
fn a_bucket_whose_server_is_down_is_named_soon() {
    let scene = Scene::new();
    let mut command = scene.command(
        &[&["store", "export", "s3://backups/site", "--check"][..], &GROUP_ARGUMENTS].concat(),
    );
    command.env("AWS_ENDPOINT_URL", "http://127.0.0.1:1").env("AWS_ALLOW_HTTP", "true");
    command.env("AWS_ACCESS_KEY_ID", KEY.0).env("AWS_SECRET_ACCESS_KEY", KEY.1);
    let started = Instant::now();
    let run = Run::of(command.output().unwrap());
    let text = run.failed(6);
    assert!(text.contains("s3://backups/site/index.json") && text.contains("refused"), "{text}");
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}
