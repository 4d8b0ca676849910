//! Each role with a user that has exactly the permissions that docs/scale.md lists.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moteseal_store::PutError;
use moteseal_stream::{
    Attempt, CONNECT, DeadLetters, Duty, IntakeLimits, Permissions, Reached, Role, Settings,
    Stream, StreamStore, attempts, fetch_account, push_account,
};

use crate::testbed::*;

#[test]
fn the_documented_permissions_are_those_that_are_tested() {
    let docs = include_str!("../../../../docs/scale.md");
    for duty in Duty::ALL {
        let Permissions { publish, subscribe } = Permissions::of("moteseal", &[duty]);
        let list = |subjects: std::collections::BTreeSet<String>| {
            subjects.iter().map(|subject| format!("`{subject}`")).collect::<Vec<_>>().join(", ")
        };
        let row = format!("| `{}` | {} | {} |", duty.name(), list(publish), list(subscribe));
        assert!(docs.contains(&row), "docs/scale.md lacks {row}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_can_do_its_work_and_nothing_else() {
    let governed = Governed::start("");
    let user = |duty: Duty| governed.user(duty.name(), &[duty]).1;
    let admin = Stream::connect(user(Duty::Admin)).await.unwrap();
    admin.init(&layout()).await.unwrap();

    // Each user passes the checks of its own role only.
    let roles =
        [(Duty::Intake, Role::Intake), (Duty::Worker, Role::Worker), (Duty::Serve, Role::Serve)];
    for (duty, own) in roles {
        for (_, role) in roles {
            let checked = Stream::connect(user(duty)).await.unwrap().check(role).await;
            match checked {
                Ok(()) => {
                    assert!(role == own || (duty, role) == (Duty::Worker, Role::Serve), "{duty:?}");
                }
                Err(error) => {
                    assert_ne!(role, own, "{duty:?}: {error}");
                    assert_eq!(error.name(), "NotPermitted", "{duty:?}: {error}");
                }
            }
        }
    }

    // The work itself, with pieces, dead letters and positions.
    let (store, direct) = (Store::new(), Store::new());
    let stream = Stream::connect(user(Duty::Intake)).await.unwrap();
    let intake = StreamStore::new(stream, Arc::clone(&store.store), IntakeLimits::default());
    let batches = [bundles("permitted", 3, 10), bundles("in pieces", 1, 20_000)];
    let mut position = 0;
    for batch in batches {
        direct.store.put(batch.clone()).unwrap();
        position = put(&intake, batch).await.unwrap().position.unwrap();
    }
    let stream = Stream::connect(user(Duty::Worker)).await.unwrap();
    let worker =
        moteseal_stream::Worker::new(stream, Arc::clone(&store.store), None, worker_limits());
    let worker = worker.await.unwrap();
    let counts = worker.counts();
    let task = tokio::spawn(worker.run(std::future::pending()));
    same(&store, &direct).await;
    let reached = Reached::new(Stream::connect(user(Duty::Serve)).await.unwrap());
    assert!(reached.wait(position, Duration::from_secs(10)).await.unwrap());

    let intake = user(Duty::Intake);
    let client = async_nats::ConnectOptions::with_credentials_file(intake.credentials.unwrap())
        .await
        .unwrap()
        .custom_inbox_prefix(intake.inbox)
        .connect(&governed.server.url)
        .await
        .unwrap();
    client.publish("moteseal.batches", "garbage".into()).await.unwrap();
    until("burying", || counts.dead() == 1).await;
    let dead = DeadLetters::open(admin).await.unwrap();
    assert_eq!(dead.count().await.unwrap(), 1);
    task.abort();
}

/// Returns the attempts that differ, and that were not made.
fn differing(attempts: &[Attempt]) -> Vec<&Attempt> {
    attempts.iter().filter(|attempt| attempt.found != Ok(attempt.expected)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_find_what_each_user_may_do_and_change_nothing() {
    let governed = Governed::start("");
    let (_, admin) = governed.user("admin", &[Duty::Admin]);
    let stream = Stream::connect(admin.clone()).await.unwrap();
    stream.init(&layout()).await.unwrap();
    let store = Store::new();
    let (_, intake) = governed.user("intake", &[Duty::Intake]);
    let writes = StreamStore::new(
        Stream::connect(intake).await.unwrap(),
        Arc::clone(&store.store),
        IntakeLimits::default(),
    );
    put(&writes, bundles("kept", 1, 20_000)).await.unwrap();

    for duties in [
        &[Duty::Admin][..],
        &[Duty::Intake],
        &[Duty::Worker],
        &[Duty::Serve],
        &[Duty::Intake, Duty::Worker, Duty::Serve],
    ] {
        let (_, settings) = governed.user("tried", duties);
        let done = attempts(settings, duties).await.unwrap();
        assert!(differing(&done).is_empty(), "{duties:?}: {:#?}", differing(&done));
        // A user with other permissions than expected is found.
        let (_, settings) = governed.user("tried", duties);
        let others = if duties == [Duty::Intake] { [Duty::Worker] } else { [Duty::Intake] };
        let done = attempts(settings, &others).await.unwrap();
        assert!(differing(&done).len() > 2, "{duties:?}: {done:#?}");
    }
    let nobody = Settings { credentials: None, ..admin };
    let done = attempts(nobody, &[]).await.unwrap();
    assert!(differing(&done).is_empty(), "{done:#?}");

    // The attempts of the admin, which are all permitted, have removed nothing.
    stream.check(Role::Intake).await.unwrap();
    let (_, worker) = governed.user("worker", &[Duty::Worker]);
    Stream::connect(worker.clone()).await.unwrap().check(Role::Worker).await.unwrap();
    let direct = Store::new();
    direct.store.put(bundles("kept", 1, 20_000)).unwrap();
    let stream = Stream::connect(worker).await.unwrap();
    let worker =
        moteseal_stream::Worker::new(stream, Arc::clone(&store.store), None, worker_limits());
    let worker = worker.await.unwrap();
    let counts = worker.counts();
    let task = tokio::spawn(worker.run(std::future::pending()));
    same(&store, &direct).await;
    until("acknowledging", || counts.messages() == 1).await;
    assert_eq!(counts.dead(), 0);
    task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_user_is_cut_off_within_five_seconds_and_the_others_are_not() {
    let mut governed = Governed::start("");
    let (_, admin) = governed.user("admin", &[Duty::Admin]);
    Stream::connect(admin).await.unwrap().init(&layout()).await.unwrap();
    let store = Store::new();
    let limits = IntakeLimits { publish_time: Duration::from_secs(1), ..IntakeLimits::default() };
    let intake = async |settings: Settings| {
        let stream = Stream::connect(settings).await.unwrap();
        StreamStore::new(stream, Arc::clone(&store.store), limits)
    };
    let (_, kept) = governed.user("intake1", &[Duty::Intake]);
    let (key, lost) = governed.user("intake2", &[Duty::Intake]);
    let before = fs::read_to_string(lost.credentials.clone().unwrap()).unwrap();
    let (first, second) = (intake(kept).await, intake(lost.clone()).await);
    let mut sealed = bundles("revoked", 40, 5).into_iter();
    put(&first, vec![sealed.next().unwrap()]).await.unwrap();
    put(&second, vec![sealed.next().unwrap()]).await.unwrap();

    let revoked = Instant::now();
    governed.revoke(&[key], 20).await;
    loop {
        match put(&second, vec![sealed.next().unwrap()]).await {
            Ok(_) => assert!(revoked.elapsed() < Duration::from_secs(5), "it still publishes"),
            Err(error) => {
                println!("refused after {:?}: {error}", revoked.elapsed());
                assert!(matches!(error, PutError::Unavailable { .. }), "{error:?}");
                break;
            }
        }
    }
    assert!(revoked.elapsed() < Duration::from_secs(5), "{:?}", revoked.elapsed());
    put(&first, vec![sealed.next().unwrap()]).await.unwrap();
    let error = Stream::connect(lost.clone()).await.unwrap_err();
    assert_eq!(error.name(), "NotPermitted", "{error}");
    let done = attempts(lost.clone(), &[]).await.unwrap();
    assert_eq!((done[0].action, &done[0].found), (CONNECT, &Ok(false)));

    // A process whose credentials file is replaced continues without a restart.
    let (_, renewed) = governed.user("intake2", &[Duty::Intake]);
    assert_eq!(renewed.credentials, lost.credentials);
    let (until, last) = (Instant::now() + Duration::from_secs(20), sealed.next().unwrap());
    while let Err(error) = put(&second, vec![last.clone()]).await {
        assert!(Instant::now() < until, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    // A server that starts again with its first configuration has not forgotten the revocation.
    let old = governed.path("old");
    fs::write(&old, before.as_bytes()).unwrap();
    let lost = Settings { credentials: Some(old), ..lost };
    governed.server.kill();
    governed.server.restart();
    let done = attempts(lost, &[]).await.unwrap();
    assert_eq!((done[0].action, &done[0].found), (CONNECT, &Ok(false)));
}

/// Without JetStream, because two servers have no majority when one of them is down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_down_refuses_revoked_users_soon_after_its_start() {
    let authority = moteseal_stream::Authority::generate();
    let (folder, none) = (folder(), std::collections::BTreeMap::new());
    let ports = [crate::server::free_port(), crate::server::free_port()];
    let [first, mut second] = [0, 1].map(|number: usize| {
        let lines = authority.server_lines(
            &authority.operator_jwt(1).unwrap(),
            &authority.account_jwt("moteseal", &none, 1).unwrap(),
            &authority.system_jwt(1).unwrap(),
            folder.path().join(format!("accounts{number}")).to_str().unwrap(),
        );
        let (own, other) = (ports[number], ports[1 - number]);
        let cluster = format!(
            "server_name: n{number}\ncluster {{ name: c, listen: \"127.0.0.1:{own}\", \
             routes: [\"nats://127.0.0.1:{other}\"] }}\n"
        );
        Server::with("disabled", &format!("{cluster}{lines}"))
    });
    let of = |server: &Server, credentials: &str| Settings {
        credentials: Some(folder.path().join(credentials)),
        inbox: Duty::Admin.inbox().to_owned(),
        ..settings(server, "moteseal", Role::Serve)
    };
    let permissions = Permissions::of("moteseal", &[Duty::Admin]);
    let user = authority.user("lost", &permissions, None, 10).unwrap();
    fs::write(folder.path().join("lost"), user.text().as_bytes()).unwrap();
    let system = authority.system_user(1).unwrap();
    fs::write(folder.path().join("system"), system.text().as_bytes()).unwrap();
    Stream::connect(of(&second, "lost")).await.unwrap();

    second.kill();
    let revoked = std::collections::BTreeMap::from([(user.user(), 20)]);
    let jwt = authority.account_jwt("moteseal", &revoked, 20).unwrap();
    push_account(of(&first, "system"), &jwt).await.unwrap();
    second.restart();
    let started = Instant::now();
    while Stream::connect(of(&second, "lost")).await.is_ok() {
        assert!(started.elapsed() < Duration::from_secs(20), "it does not ask the other server");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let error = Stream::connect(of(&second, "lost")).await.unwrap_err();
    println!("refused after {:?}", started.elapsed());
    assert_eq!(error.name(), "NotPermitted", "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_accept_accounts_of_their_operator_only() {
    let governed = Governed::start("");
    let stranger = moteseal_stream::Authority::generate();
    let none = std::collections::BTreeMap::new();
    let jwt = stranger.account_jwt("moteseal", &none, 9).unwrap();
    // The server stores it, but it trusts no user of an account that its operator has not signed.
    push_account(governed.system(), &jwt).await.unwrap();
    let permissions = Permissions::of("moteseal", &[Duty::Admin]);
    let user = stranger.user("stranger", &permissions, None, 10).unwrap();
    fs::write(governed.path("stranger"), user.text().as_bytes()).unwrap();
    let settings = Settings { credentials: Some(governed.path("stranger")), ..governed.system() };
    let error = Stream::connect(settings).await.unwrap_err();
    assert_eq!(error.name(), "NotPermitted", "{error}");
    // A user of the stream's account cannot pass accounts to the servers.
    let (_, admin) = governed.user("admin", &[Duty::Admin]);
    let jwt = governed.authority.account_jwt("moteseal", &none, 9).unwrap();
    let error = push_account(admin, &jwt).await.unwrap_err();
    assert_eq!(error.name(), "Unreachable", "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_account_of_a_server_is_read_with_its_revocations() {
    let governed = Governed::start("");
    let account = governed.authority.account();
    let read = async || {
        let found = fetch_account(governed.system(), &account).await.unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        governed.authority.read_account(found.first().unwrap()).unwrap()
    };
    let first = read().await;
    assert_eq!((first.issued_at, first.revoked.len()), (1, 0));
    let (key, _) = governed.user("lost", &[Duty::Intake]);
    governed.revoke(std::slice::from_ref(&key), 20).await;
    let second = read().await;
    assert_eq!(second.issued_at, 20);
    assert_eq!(second.revoked, std::collections::BTreeMap::from([(key, 20)]));
    // A server accepts an earlier account, too. Read what it has revoked before passing one.
    governed.revoke(&[], 15).await;
    assert_eq!(read().await.issued_at, 15);

    // A server that cannot be reached does not hide the others, and is named if there are no others.
    let mut two = governed.system();
    two.servers.insert(0, "nats://127.0.0.1:1".to_owned());
    assert_eq!(fetch_account(two.clone(), &account).await.unwrap().len(), 1);
    two.servers.truncate(1);
    let error = fetch_account(two, &account).await.unwrap_err();
    assert!(error.name() == "Unreachable" && error.to_string().contains("127.0.0.1:1"), "{error}");
    // A user of the stream's account cannot read it.
    let (_, admin) = governed.user("admin", &[Duty::Admin]);
    let error = fetch_account(admin, &account).await.unwrap_err();
    assert_eq!(error.name(), "Unreachable", "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_passwords_and_unknown_users_are_refused() {
    let users = "authorization { users: [{ user: intake, password: intake-password }] }";
    let server = Server::with("sync_interval: always", users);
    for name in ["nobody", "intake:wrong@x"] {
        let url = server.url.replace("nats://", &format!("nats://{name}:secret@"));
        let settings =
            Settings { servers: vec![url], ..settings(&server, "moteseal", Role::Intake) };
        let error = Stream::connect(settings).await.unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(["NotPermitted", "Usage"].contains(&error.name()), "{error}");
    }
}
