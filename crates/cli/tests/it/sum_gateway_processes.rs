//! Runs two aggregators of private sums as processes over a real broker (Debian's Mosquitto). One
//! is the child of the other; it is killed with SIGKILL and restarted. The sum of every epoch is
//! exact for the sources that the result names.

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::broker::Broker;
use crate::scene::Scene;
use bytes::Bytes;
use moteseal_core::identity::{decode_public_pem, decode_secret_pem};
use moteseal_core::link::LinkKey;
use moteseal_core::participation::Participation;
use moteseal_core::record::DeviceId;
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, Schema};
use moteseal_net::link::until_up;
use moteseal_net::mqtt::{MqttChild, MqttParent, Options};
use moteseal_net::{ChildLink as _, ParentLink as _};
use moteseal_sum::guard::EpochGuard;
use moteseal_sum::query::{Plan, QueryId};
use moteseal_sum::schedule::{MAX_QUERY_SCHEDULE, Posed, QueryScheduleDraft};
use moteseal_sum::sies::{KeyTotals, Master, Slot};
use moteseal_sum::wire::{SumUplink, close_share};
use moteseal_verify::Roster;
use moteseal_verify::aggregation::gateway_id;

/// The timeout of an operation: longer than any successful operation takes.
const LONG: Duration = Duration::from_secs(60);
const MASTER: [u8; 32] = [4; 32];
const TREE: &str = "[gateways]\nroot = \"querier\"\nleaf = \"root\"\n[devices]\ndev1 = \"leaf\"\ndev2 = \"root\"\n";

/// A process that is killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn unix_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn secret(scene: &Scene, name: &str) -> [u8; 32] {
    let text = fs::read_to_string(scene.path(&format!("keys/{name}.key"))).unwrap();
    let digits = text.trim();
    std::array::from_fn(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap())
}

/// Returns a source's frame for an epoch: one slot with its reading.
fn reading(
    roster: &Roster,
    device: DeviceId,
    key: &LinkKey,
    query: QueryId,
    epoch: u64,
    value: u128,
) -> Bytes {
    let position =
        u32::try_from(roster.devices().position(|found| found.id == device).unwrap()).unwrap();
    let source = Master::new(MASTER).source(roster.group(), device, 0).for_query(query);
    let mut permit = EpochGuard::default().advance(query, 1000, epoch).unwrap();
    let psr = source.encrypt(&mut permit, Slot(0), value).unwrap();
    let (mut one, mut out) = ([0; 8], [0; 256]);
    let length = Participation::encode_one(position, &mut one).unwrap();
    Bytes::copy_from_slice(
        close_share(query.reference(), epoch, &one[..length], &[psr], key, &mut out).unwrap(),
    )
}

#[test]
fn aggregators_over_a_broker_add_up_every_epoch_although_one_is_killed() {
    let scene = Scene::new();
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::open(folder.path());
    let url = broker.url();
    scene.write("tree.toml", TREE);
    for aggregator in ["querier", "root", "leaf"] {
        scene.run(&["key", "link", "--out", &format!("keys/{aggregator}.link.key")]).done();
    }
    for (aggregator, kind, child, out) in [
        ("querier", "--gateway", "root", "keys/root.up.key"),
        ("root", "--gateway", "leaf", "keys/leaf.up.key"),
        ("root", "--device", "dev2", "keys/dev2.sum.key"),
        ("leaf", "--device", "dev1", "keys/dev1.sum.key"),
    ] {
        let group = format!("keys/{aggregator}.link.key");
        scene
            .with_roster(&["key", "link", "--group-secret", &group, kind, child, "--out", out])
            .done();
    }
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for name in ["root", "leaf"] {
        let health = match name {
            "root" => format!("[health]\nlisten = \"127.0.0.1:{port}\"\n"),
            _ => String::new(),
        };
        scene.write(
            &format!("{name}.toml"),
            &format!(
                "name = \"{name}\"\nroster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\nquerier = \"keys/stranger.pub.pem\"\n\
                 tree = \"tree.toml\"\nlink_secret = \"keys/{name}.link.key\"\nup_secret = \"keys/{name}.up.key\"\n\
                 state = \"{name}\"\ngrace = \"250ms\"\n[link]\nurl = \"{url}\"\n{health}"
            ),
        );
    }
    let start = |name: &str| {
        let mut command = scene.command(&["gateway", "sum", "--config", &format!("{name}.toml")]);
        Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    };
    let operator = decode_public_pem(&fs::read(scene.path("keys/op.pub.pem")).unwrap()).unwrap();
    let roster = Roster::open(&fs::read(scene.path("roster.cbor")).unwrap(), &operator).unwrap();
    let querier =
        decode_secret_pem(&fs::read(scene.path("keys/stranger.key.pem")).unwrap()).unwrap();
    let [dev1, dev2] = ["dev1", "dev2"].map(|name| roster.id(name).unwrap());
    let group = roster.group().to_string();
    let options = |aggregator: &str| Options::new(url.clone(), format!("{group}.{aggregator}"));

    let mut buffer = [0; 256];
    let schema = Schema::encode(&[Field::parse("t:Cel:i16").unwrap()], &mut buffer).unwrap();
    let mut plan = [0; 1024];
    let plan = Plan::parse("SELECT SUM(t) FROM sensors EPOCH DURATION 1s", &schema)
        .unwrap()
        .encode(&mut plan)
        .unwrap()
        .to_vec();
    let posed = Posed { nonce: [3; 16], first: 0, until: u64::MAX, plan: &plan };
    let (query, digest) = (posed.id(&roster.digest()), roster.digest());
    let draft = QueryScheduleDraft {
        group: roster.group(),
        roster: digest,
        number: 9,
        sources: 2,
        key_group: 2,
        queries: &[posed],
    };
    let schedule = draft
        .issue(&querier, &mut vec![0; MAX_QUERY_SCHEDULE], &mut vec![0; MAX_QUERY_SCHEDULE])
        .unwrap()
        .to_vec();

    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let aggregator = MqttParent::new(&options("querier"), [gateway_id("root").0]).unwrap();
        aggregator.announce(Bytes::from(schedule)).await.unwrap();
        let motes = [
            MqttChild::new(&options("leaf"), dev1.0).unwrap(),
            MqttChild::new(&options("root"), dev2.0).unwrap(),
        ];
        for state in [aggregator.state(), motes[0].state(), motes[1].state()] {
            until_up(state).await.unwrap();
        }
        let keys =
            ["dev1.sum", "dev2.sum", "root.up"].map(|name| LinkKey::new(&secret(&scene, name)));
        let (_root, mut leaf) = (start("root"), Some(start("leaf")));
        // The aggregator serves its own health, without queues, which it does not have.
        let own = format!("coap://127.0.0.1:{port}/h");
        let asked = Instant::now();
        let shown = loop {
            assert!(asked.elapsed() < LONG, "the aggregator serves no health");
            let run = scene.run(&["--json", "health", "watch", &own, "--once"]);
            if run.code == 0 {
                break run.json();
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        assert!(shown["health"]["ip"]["received"].is_u64(), "{shown}");
        assert!(shown["health"]["queue"].is_null(), "{shown}");
        let (mut whole, mut partial, began) = (0, 0, Instant::now());
        // Phases alternate: three epochs with the leaf aggregator, then three without it.
        let mut phase = 0;
        let mut epoch = unix_ms() / 1000;
        while phase < 5 {
            assert!(
                began.elapsed() < LONG,
                "phase {phase}: {whole} whole epochs, {partial} partial ones"
            );
            epoch = (epoch + 1).max(unix_ms() / 1000);
            tokio::time::sleep(Duration::from_millis(
                ((epoch + 1) * 1000).saturating_sub(unix_ms()) + 20,
            ))
            .await;
            for ((mote, device), (key, value)) in
                motes.iter().zip([dev1, dev2]).zip(keys.iter().zip([70, 7]))
            {
                mote.send(reading(&roster, device, key, query, epoch, value)).await.unwrap();
            }
            let due = Duration::from_millis(((epoch + 2) * 1000).saturating_sub(unix_ms()));
            let received = tokio::time::timeout(due, async {
                loop {
                    let up = aggregator.receive().await.unwrap();
                    if let Ok(SumUplink::Share(share)) = SumUplink::open(&up.frame, &keys[2])
                        && share.epoch == epoch
                    {
                        return up.frame;
                    }
                }
            });
            // Aggregators that have not received the query schedule send nothing.
            let Ok(frame) = received.await else { continue };
            let Ok(SumUplink::Share(share)) = SumUplink::open(&frame, &keys[2]) else {
                unreachable!()
            };
            let participation = Participation::decode(share.participation, 2).unwrap();
            let positions: Vec<u32> = participation.runs().flatten().collect();
            let devices: Vec<DeviceId> =
                positions.iter().map(|at| roster.devices().nth(*at as usize).unwrap().id).collect();
            let expected: u128 =
                devices.iter().map(|device| if *device == dev1 { 70 } else { 7 }).sum();
            if let Some(psr) = share.psrs.iter().next() {
                let master = Master::new(MASTER);
                let mut totals = KeyTotals::default();
                for device in &devices {
                    totals.add(
                        &master.source(roster.group(), *device, 0).for_query(query),
                        Slot(0),
                        epoch,
                    );
                }
                let key = master.key_group(roster.group(), 0).for_query(query);
                assert_eq!(
                    totals.open(&psr.unwrap(), &key, Slot(0), epoch, 100),
                    Ok(expected),
                    "epoch {epoch}"
                );
            }
            whole += u32::from(devices.len() == 2);
            partial += u32::from(devices == [dev2]);
            match phase {
                0 | 2 | 4 if whole == 3 => {
                    (phase, whole, partial) = (phase + 1, 0, 0);
                    // Dropping the process kills it with SIGKILL.
                    leaf = None;
                }
                1 | 3 if partial == 3 => {
                    (phase, whole, partial) = (phase + 1, 0, 0);
                    leaf = Some(start("leaf"));
                }
                _ => {}
            }
        }
        drop(leaf);
    });
}
