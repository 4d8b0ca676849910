//! Each role with a user that has exactly the permissions that docs/scale.md lists.

use moteseal_stream::{DeadLetters, IntakeLimits, Reached, Role, Settings, Stream, StreamStore};
use std::sync::Arc;
use std::time::Duration;

use crate::testbed::*;

/// The lines of docs/scale.md, for the stream `moteseal`.
const USERS: &str = include_str!("users.conf");

fn user(server: &Server, name: &str, role: Role) -> Settings {
    let url = server.url.replace("nats://", &format!("nats://{name}:{name}-password@"));
    Settings { servers: vec![url], ..settings(server, "moteseal", role) }
}

#[test]
fn the_documented_permissions_are_those_that_are_tested() {
    assert!(include_str!("../../../../docs/scale.md").contains(USERS.trim_end()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_can_do_its_work_and_nothing_else() {
    let server = Server::with("sync_interval: always", &format!("max_payload: 65536\n{USERS}"));
    let admin = Stream::connect(user(&server, "admin", Role::Intake)).await.unwrap();
    admin.init(&layout()).await.unwrap();

    // Each user passes the checks of its own role only.
    for (name, own) in [("intake", Role::Intake), ("worker", Role::Worker), ("serve", Role::Serve)]
    {
        for role in [Role::Intake, Role::Worker, Role::Serve] {
            let settings =
                Settings { inbox: Settings::inbox_of(own).to_owned(), ..user(&server, name, role) };
            let checked = Stream::connect(settings).await.unwrap().check(role).await;
            match checked {
                Ok(()) => assert!(role == own || (name, role) == ("worker", Role::Serve), "{name}"),
                Err(error) => {
                    assert_ne!(role, own, "{name}: {error}");
                    assert_eq!(error.name(), "NotPermitted", "{name}: {error}");
                }
            }
        }
    }

    // The work itself, with pieces, dead letters and positions.
    let (store, direct) = (Store::new(), Store::new());
    let stream = Stream::connect(user(&server, "intake", Role::Intake)).await.unwrap();
    let intake = StreamStore::new(stream, Arc::clone(&store.store), IntakeLimits::default());
    let batches = [bundles("permitted", 3, 10), bundles("in pieces", 1, 20_000)];
    let mut position = 0;
    for batch in batches {
        direct.store.put(batch.clone()).unwrap();
        position = put(&intake, batch).await.unwrap().position.unwrap();
    }
    let stream = Stream::connect(user(&server, "worker", Role::Worker)).await.unwrap();
    let worker = moteseal_stream::Worker::new(stream, Arc::clone(&store.store), worker_limits());
    let worker = worker.await.unwrap();
    let counts = worker.counts();
    let task = tokio::spawn(worker.run(std::future::pending()));
    same(&store, &direct).await;
    let reached = Reached::new(Stream::connect(user(&server, "serve", Role::Serve)).await.unwrap());
    assert!(reached.wait(position, Duration::from_secs(10)).await.unwrap());

    let client = async_nats::ConnectOptions::new()
        .user_and_password("intake".to_owned(), "intake-password".to_owned())
        .custom_inbox_prefix(Settings::inbox_of(Role::Intake))
        .connect(&server.url)
        .await
        .unwrap();
    client.publish("moteseal.batches", "garbage".into()).await.unwrap();
    until("burying", || counts.dead() == 1).await;
    let dead = DeadLetters::open(admin).await.unwrap();
    assert_eq!(dead.count().await.unwrap(), 1);
    task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_passwords_and_unknown_users_are_refused() {
    let server = Server::with("sync_interval: always", &format!("max_payload: 65536\n{USERS}"));
    for name in ["nobody", "intake:wrong@x"] {
        let url = server.url.replace("nats://", &format!("nats://{name}:secret@"));
        let settings =
            Settings { servers: vec![url], ..settings(&server, "moteseal", Role::Intake) };
        let error = Stream::connect(settings).await.unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(["NotPermitted", "Usage"].contains(&error.name()), "{error}");
    }
}
