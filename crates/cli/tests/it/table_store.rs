//! A cloud whose store is a keyspace of Cassandra, with the roles of a policy.

use std::sync::{RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use crate::cassandra::{Cassandra, Shared};
use crate::cluster_tls;
use crate::coap_transport::{ROSTER, Service};
use crate::scene::{Run, Scene};

const SETTINGS: &[&str] =
    &["authenticator=PasswordAuthenticator", "authorizer=CassandraAuthorizer"];

static NODE: Shared = Shared::with_tls(SETTINGS, Some("cassandra"), cluster_tls::certify);

/// Returns the node of this test program, for a test that neither stops nor pauses it.
pub(crate) fn shared() -> RwLockReadGuard<'static, Cassandra> {
    NODE.shared()
}

/// Returns the node of this test program, for a test that stops or pauses it.
pub(crate) fn alone() -> RwLockWriteGuard<'static, Cassandra> {
    NODE.alone()
}

fn policy(scene: &Scene, command: &str, more: &[&str]) -> Run {
    let folder = if command == "init" { "--out" } else { "--from" };
    scene.run(&[&["cloud", "policy", command, "policy.toml", folder, "policy"][..], more].concat())
}

/// Writes a policy with these processes.
fn write(scene: &Scene, url: &str, processes: &str) {
    let table = format!("[table]\nstore = \"{url}\"\nreplicas = 1\nsuperuser = \"cassandra\"\n");
    scene.write("policy.toml", &format!("{table}[processes]\n{processes}"));
}

#[test]
fn a_cloud_on_cassandra_serves_what_it_acknowledged_before_it_was_killed() {
    let cassandra = shared();
    let superuser = cassandra.address("moteseal").to_string();
    let bare = superuser.replace("cassandra@", "");
    let scene = Scene::new();
    scene.table("data.csv", 3_000);
    scene.seal("data.csv", "dev1", &[]).done();
    scene.seal("data.csv", "dev2", &["--scheme", "tree"]).done();
    // The URL of a process. Its password is the one that the next command uses.
    let as_process = |name: &str| {
        let file = |file: &str| {
            let path = scene.path(&format!("policy/processes/{name}/cassandra.{file}"));
            std::fs::read_to_string(path).unwrap()
        };
        scene.write("cassandra.password", &file("password"));
        bare.replace("://", &format!("://{}@", file("user").trim()))
    };
    let early =
        scene.with_roster(&["cloud", "run", "--store", &superuser, "--listen", "127.0.0.1:0"]);
    let message = early.failed(2);
    assert!(message.contains("TableNoKeyspace") && message.contains("store init"), "{early:?}");
    let processes = "boss = [\"admin\"]\none = [\"worker\"]\nreader = [\"serve\"]\n";
    write(&scene, &bare, &format!("{processes}spare = [\"worker\"]\n"));
    policy(&scene, "init", &[]).done();
    let applied = policy(&scene, "apply", &["--json"]).done();
    assert_eq!(applied.json()["roles"], 4);
    let url = as_process("boss");
    let init = ["store", "init", "--replicas", "1", "--store", &url];
    assert!(scene.run(&init).done().out.contains("were created (version 2)"));
    assert!(scene.run(&init).done().out.contains("nothing was changed"));
    let file = scene.run(&["store", "init", "--store", "epochs.redb"]);
    assert!(file.failed(2).contains("is not a URL"), "{file:?}");
    policy(&scene, "check", &[]).done();
    let reader = as_process("reader");
    let run = ["cloud", "run", "--store", &reader, "--listen", "127.0.0.1:0"];
    let refused = scene.with_roster(&run);
    assert!(refused.failed(2).contains("TableForbidden"), "{refused:?}");

    let url = as_process("one");
    let cloud = scene.cloud(&url);
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    let get = |url: &str| {
        let get = |device| {
            let get = ["get", device, "--from", url, "--rate", "1/2", "--format", "csv"];
            scene.with_roster(&get).done().out
        };
        [get("dev1"), get("dev2")].concat()
    };
    let rows = get(&cloud.url);
    assert!(rows.lines().count() > 100, "{rows}");
    // Killed, not stopped.
    drop(cloud);
    let mut cloud = scene.cloud(&url);
    assert_eq!(get(&cloud.url), rows);
    // A second process serves the same keyspace at the same time.
    let second = scene.cloud(&url);
    assert_eq!(get(&second.url), rows);
    let check = scene.with_roster(&["store", "check", &url]).done();
    assert!(check.out.contains("whole; 100 seals, 6,000 readings"), "{check:?}");
    cloud.stop();
    let reader = as_process("reader");
    let check = scene.with_roster(&["store", "check", &reader]).done();
    assert!(check.out.contains("whole"), "{check:?}");

    // A process is removed, and another one becomes an admin, which is another role.
    write(&scene, &bare, &processes.replace("serve", "admin"));
    policy(&scene, "init", &[]).done();
    let early = policy(&scene, "check", &[]);
    assert!(early.failed(5).contains("PolicyDiffers"), "{early:?}");
    std::fs::remove_file(scene.path("cassandra.password")).unwrap();
    policy(&scene, "apply", &[]).done();
    std::thread::sleep(Duration::from_secs(3));
    let checked = policy(&scene, "check", &[]).done();
    assert!(checked.out.contains("revoked spare-1"), "{checked:?}");
    assert!(as_process("reader").contains("moteseal_reader.admin@"));
}

#[test]
fn a_cloud_uses_a_renewed_role_without_a_restart() {
    let cassandra = shared();
    let superuser = cassandra.address("renewed").to_string();
    let bare = superuser.replace("cassandra@", "");
    let scene = Scene::new();
    scene.table("data.csv", 240);
    scene.seal("data.csv", "dev1", &[]).done();
    let bundles = scene.names("bundles");
    scene.run(&["store", "init", "--replicas", "1", "--store", &superuser]).done();
    write(&scene, &bare, "one = [\"worker\"]\n");
    policy(&scene, "init", &[]).done();
    policy(&scene, "apply", &[]).done();
    let files = ["user", "password"].map(|file| (file, scene.path(&format!("process.{file}"))));
    let place = || {
        for (file, path) in &files {
            let from = format!("policy/processes/one/cassandra.{file}");
            std::fs::copy(scene.path(&from), path).unwrap();
        }
        std::fs::read_to_string(&files[0].1).unwrap()
    };
    let first = place();
    let run = ["cloud", "run", "--store", &bare, "--listen", "127.0.0.1:0"];
    let mut command = scene.command(&[&run[..], &ROSTER].concat());
    command.env_remove("MOTESEAL_CASSANDRA_PASSWORD");
    command.env("MOTESEAL_CASSANDRA_USER_FILE", &files[0].1);
    command.env("MOTESEAL_CASSANDRA_PASSWORD_FILE", &files[1].1);
    let cloud = Service::of(command, 1);
    let push = |number: usize| {
        scene.run(&["push", &format!("bundles/{}", bundles[number]), "--to", cloud.url("http")])
    };
    push(0).done();

    // The new files are in place before the old role is dropped, as the documentation says.
    policy(&scene, "init", &["--renew", "one"]).done();
    assert_ne!(place(), first, "a renewed process is a new role");
    // The new role does not exist yet.
    std::thread::sleep(Duration::from_secs(3));
    push(1).done();
    policy(&scene, "apply", &[]).done();
    let until = Instant::now() + Duration::from_secs(10);
    while push(2).code != 0 {
        assert!(Instant::now() < until, "the old role stays in use");
    }
    // No permission of the old role is left in a cache.
    std::thread::sleep(Duration::from_secs(3));
    push(3).done();
    let checked = policy(&scene, "check", &[]).done();
    assert!(checked.out.contains("revoked one-1"), "{checked:?}");
    let get = ["get", "dev1", "--from", cloud.url("http"), "--rate", "1", "--format", "csv"];
    assert_eq!(scene.with_roster(&get).done().out.lines().count(), 241);
}

/// A process without a stream, with the user of a worker, writes a backup into the tables of a cluster.
#[test]
fn a_backup_of_one_keyspace_is_restored_into_another_one() {
    let (scene, cassandra) = (Scene::new(), shared());
    let cloud_of = |keyspace: &str| {
        let url = cassandra.address(keyspace).to_string();
        scene.run(&["store", "init", "--replicas", "1", "--store", &url]).done();
        (scene.cloud(&url), url)
    };
    scene.table("data.csv", 3_000);
    scene.seal("data.csv", "dev1", &[]).done();
    scene.seal("data.csv", "dev2", &["--scheme", "tree"]).done();
    let (old, _) = cloud_of("backed_up");
    scene.run(&["push", "bundles", "--to", &old.url]).done();
    let export = ["store", "export", "backup", "--from", &old.url, "--json"];
    assert_eq!(scene.with_roster(&export).done().json()["seals"], 100);
    let (new, url) = cloud_of("restored");
    let import = ["store", "import", "backup", "--to", &new.url, "--json"];
    let imported = scene.run(&import).done().json();
    assert_eq!((&imported["seals"], &imported["skipped"]), (&100.into(), &0.into()));
    let check = scene.with_roster(&["store", "check", &url]).done();
    assert!(check.out.contains("whole; 100 seals"), "{check:?}");
    let rows = |url: &str| {
        let get = ["get", "dev2", "--from", url, "--rate", "1", "--format", "csv"];
        let range = ["--since", "2026-01-01", "--until", "2026-01-03"];
        scene.with_roster(&[&get[..], &range].concat()).done().out
    };
    assert_eq!(rows(&new.url), rows(&old.url));
}

#[test]
fn a_revoked_role_is_dropped_while_no_nats_server_answers() {
    let (scene, cassandra) = (Scene::new(), shared());
    let bare = cassandra.address("dropped").to_string().replace("cassandra@", "");
    let processes = "one = [\"worker\"]\nspare = [\"worker\"]\n";
    write(&scene, &bare, processes);
    policy(&scene, "init", &[]).done();
    policy(&scene, "apply", &[]).done();
    let address = |name: &str| {
        let [user, password] = ["user", "password"].map(|file| {
            let path = scene.path(&format!("policy/processes/{name}/cassandra.{file}"));
            std::fs::read_to_string(path).unwrap().trim().to_owned()
        });
        cassandra.address_of(&user, &password, "dropped")
    };
    let [one, spare] = ["one", "spare"].map(address);
    let may_log_in = |address| {
        let tried = moteseal_table::attempts(address, None).unwrap();
        tried.iter().find(|attempt| attempt.action == moteseal_table::LOGIN).unwrap().found.clone()
    };
    assert_eq!((may_log_in(&one), may_log_in(&spare)), (Ok(true), Ok(true)));

    write(&scene, &bare, &processes.replace("spare", "late"));
    let text = std::fs::read_to_string(scene.path("policy.toml")).unwrap();
    let server = format!("nats://127.0.0.1:{}", crate::nats::free_port());
    scene.write("policy.toml", &format!("[stream]\nservers = [\"{server}\"]\n{text}"));
    policy(&scene, "init", &[]).done();
    // A wrong password is reported together with the server.
    scene.write("cassandra.password", "wrong");
    let wrong = policy(&scene, "apply", &[]);
    let line = wrong.failed(6);
    assert!(line.contains("0 of 1 NATS servers") && line.contains("TableRejected"), "{line}");
    std::fs::remove_file(scene.path("cassandra.password")).unwrap();

    let run = policy(&scene, "apply", &[]);
    assert!(run.failed(6).contains("0 of 1 NATS servers"), "{run:?}");
    assert!(run.stderr.contains("1 roles are dropped; none is created"), "{run:?}");
    let until = Instant::now() + Duration::from_secs(10);
    while may_log_in(&spare) != Ok(false) {
        assert!(Instant::now() < until, "the dropped role can log in");
    }
    assert_eq!(may_log_in(&one), Ok(true));
    assert_eq!(may_log_in(&address("late")), Ok(false), "it is not created");
}
