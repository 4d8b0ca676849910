//! Tests running gateways that use the machine's clock and links within the process. The tree
//! answers every epoch, continues without a gateway that was stopped, uses that gateway again after
//! its restart, and stops cleanly.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::log_lines::Lines;
use crate::summing::{OpenedShare, World};
use bytes::Bytes;
use moteseal_gateway::sum::number::NumberFile;
use moteseal_gateway::sum::service::SumGateway;
use moteseal_net::in_memory::{Faults, MemoryChild, Network};
use moteseal_net::{ChildLink as _, Client, Down, Options, ParentLink as _};
use moteseal_sum::schedule::Posed;
use moteseal_sum::wire::SumUplink;
use moteseal_verify::aggregation::{QUERIER, gateway_id};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const EPOCH_MS: u64 = 1000;
const GATEWAYS: [(&str, &str); 3] = [("root", QUERIER), ("left", "root"), ("right", "root")];
const DEVICES: [&str; 8] = ["root", "left", "left", "left", "right", "right", "right", "right"];

fn unix_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

struct Running {
    task: JoinHandle<()>,
    stop: oneshot::Sender<()>,
    watch: Client,
}

struct Field {
    world: World,
    /// The network between each aggregator and its children, by the aggregator's name.
    networks: BTreeMap<String, Network>,
    motes: Vec<MemoryChild>,
}

impl Field {
    fn new(gateways: &[(&str, &str)], devices: &[&str]) -> Self {
        let mut world = World::new(gateways, devices, 3);
        world.plan = crate::summing::plan("SELECT SUM(u), SUM(t) FROM sensors EPOCH DURATION 1s");
        world.use_nonce([5; 16]);
        let aggregators = gateways.iter().map(|(name, _)| *name).chain([QUERIER]);
        let networks: BTreeMap<_, _> = aggregators
            .zip(1..)
            .map(|(aggregator, seed)| {
                (aggregator.to_owned(), Network::new(seed, Faults::default()))
            })
            .collect();
        let mote = |position| {
            networks[world.tree.gateway_of(position).unwrap()].child(world.device(position).0)
        };
        let motes = (0..8).map(mote).collect();
        Self { world, networks, motes }
    }

    async fn start(&self, name: &str, state: &Path) -> Running {
        let (file, number) = NumberFile::open(state).unwrap();
        let aggregator = self.world.gateway(name, number);
        let gateway =
            SumGateway::bind(aggregator, file, Some("127.0.0.1:0".parse().unwrap())).await.unwrap();
        let watch =
            Client::new(&format!("http://{}", gateway.address().unwrap()), &Options::default())
                .unwrap();
        let aggregator = self.networks[name].parent();
        let up = self.networks[self.world.tree.parent(name).unwrap()].child(gateway_id(name).0);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            gateway.run(aggregator, up, async { drop(stopped.await) }).await.unwrap();
        });
        Running { task, stop, watch }
    }

    /// Lets all sources answer an epoch after it has ended. Returns the sum that reaches the
    /// querier.
    async fn epoch(&mut self, epoch: u64) -> OpenedShare {
        let end = (epoch + 1) * EPOCH_MS;
        tokio::time::sleep(Duration::from_millis(end.saturating_sub(unix_ms()))).await;
        for position in 0..8 {
            let frame = self.world.reading(position, epoch, u128::from(position) + 10);
            self.motes[position as usize].send(Bytes::from(frame)).await.unwrap();
        }
        let aggregator = self.networks[QUERIER].parent();
        loop {
            let up = tokio::time::timeout(Duration::from_secs(10), aggregator.receive())
                .await
                .unwrap()
                .unwrap();
            let key = self.world.key_at(QUERIER, gateway_id("root"));
            let SumUplink::Share(share) = SumUplink::open(&up.frame, &key).unwrap() else {
                continue;
            };
            if share.epoch == epoch {
                return self.world.opened("root", epoch, &up.frame);
            }
        }
    }
}

async fn page(watch: &Client, path: &str) -> String {
    String::from_utf8(watch.get(path).await.unwrap().bytes(1 << 20).await.unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_answers_every_epoch_even_while_a_gateway_is_gone() {
    let states = tempfile::tempdir().unwrap();
    let state = |name: &str| states.path().join(name);
    let mut field = Field::new(&GATEWAYS, &DEVICES);
    // The querier announces its schedule before any aggregator runs. Each aggregator receives it
    // when it starts.
    let first = unix_ms() / EPOCH_MS + 2;
    let schedule = field.world.schedule(7, &[Posed { first, ..field.world.posed() }]);
    field.networks[QUERIER].parent().announce(Bytes::from(schedule)).await.unwrap();
    let mut running = BTreeMap::new();
    for (name, _) in GATEWAYS {
        running.insert(name, field.start(name, &state(name)).await);
    }
    let left: Vec<u32> =
        (0..8).filter(|position| field.world.tree.gateway_of(*position) == Some("left")).collect();
    for epoch in first..first + 6 {
        let is_gone = (first + 2..first + 4).contains(&epoch);
        if epoch == first + 2 {
            let killed = running.remove("left").unwrap();
            killed.task.abort();
            assert!(killed.task.await.unwrap_err().is_cancelled());
        } else if epoch == first + 4 {
            running.insert("left", field.start("left", &state("left")).await);
        }
        let share = field.epoch(epoch).await;
        let expected: Vec<u32> =
            (0..8).filter(|position| !is_gone || !left.contains(position)).collect();
        assert_eq!(
            share.participants.iter().copied().collect::<Vec<_>>(),
            expected,
            "{}",
            epoch - first
        );
        let sum = expected.iter().map(|position| u128::from(*position) + 10).sum();
        assert_eq!(field.world.sums(epoch, &[share]), Ok(vec![expected.len() as u128, sum]));
    }
    let root = &running["root"].watch;
    let metrics = page(root, "metrics").await;
    for line in [
        "moteseal_sum_children_silent_total{child=\"left\"} 2\n",
        "moteseal_sum_epochs_partial_total 2\n",
        "moteseal_sum_schedule_number 7\n",
        "moteseal_sum_queries 1\n",
        "moteseal_sum_participants 8\n",
        "moteseal_sum_up_link_up 1\n",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    assert_eq!(page(root, "readyz").await, "ready\n");
    for (name, gateway) in running {
        gateway.stop.send(()).unwrap();
        gateway.task.await.unwrap();
        assert_eq!(NumberFile::open(&state(name)).unwrap().1, 7);
    }
}

#[tokio::test]
async fn frames_that_arrived_while_a_gateway_was_suspended_are_processed_before_epochs_end() {
    let states = tempfile::tempdir().unwrap();
    let mut field = Field::new(&[("root", QUERIER)], &["root"; 8]);
    let first = unix_ms() / EPOCH_MS + 2;
    let schedule = field.world.schedule(7, &[Posed { first, ..field.world.posed() }]);
    field.networks[QUERIER].parent().announce(Bytes::from(schedule)).await.unwrap();
    let root = field.start("root", &states.path().join("root")).await;
    tokio::time::sleep(Duration::from_millis((first * EPOCH_MS + 500).saturating_sub(unix_ms())))
        .await;
    // All sources answer two epochs in time. The gateway runs on this thread, so while the thread
    // sleeps the gateway is suspended until the waiting time of both epochs is over.
    for epoch in [first, first + 1] {
        std::thread::sleep(Duration::from_millis(
            ((epoch + 1) * EPOCH_MS + 20).saturating_sub(unix_ms()),
        ));
        for position in 0..8 {
            let frame = field.world.reading(position, epoch, u128::from(position) + 10);
            field.motes[position as usize].send(Bytes::from(frame)).await.unwrap();
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    let aggregator = field.networks[QUERIER].parent();
    for epoch in [first, first + 1] {
        let up = tokio::time::timeout(Duration::from_secs(10), aggregator.receive())
            .await
            .unwrap()
            .unwrap();
        let share = field.world.opened("root", epoch, &up.frame);
        assert_eq!(field.world.sums(epoch, &[share]), Ok(vec![8, 108]));
    }
    root.stop.send(()).unwrap();
    root.task.await.unwrap();
}

/// Finding B4 of the review.
#[tokio::test]
async fn an_aggregator_that_stops_reports_the_lines_that_it_suppressed() {
    let lines = Lines::default();
    let _recording = tracing::subscriber::set_default(lines.clone());
    let states = tempfile::tempdir().unwrap();
    let field = Field::new(&[("root", QUERIER)], &["root"; 8]);
    let (file, number) = NumberFile::open(&states.path().join("root")).unwrap();
    let gateway = SumGateway::bind(field.world.gateway("root", number), file, None).await.unwrap();
    let (children, up) =
        (field.networks["root"].parent(), field.networks[QUERIER].child(gateway_id("root").0));
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(gateway.run(children, up, async { drop(stopped.await) }));
    for _ in 0..5 {
        field.motes[0].send(Bytes::from_static(b"no frame")).await.unwrap();
    }
    while lines.count(&["rejected a frame"]) < 5 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((lines.count(&["are rejected"]), lines.count(&["were suppressed"])), (1, 0));
    stop.send(()).unwrap();
    task.await.unwrap().unwrap();
    assert_eq!(lines.count(&["were suppressed", "lines=4;"]), 1);
}

/// A sender can invent any number of ids. All senders that are not children share one source, so
/// that they suppress no line about a child.
#[tokio::test]
async fn senders_that_are_not_children_share_the_log_lines_of_one_source() {
    let lines = Lines::default();
    let _recording = tracing::subscriber::set_default(lines.clone());
    let states = tempfile::tempdir().unwrap();
    let field = Field::new(&[("root", QUERIER)], &["root"; 8]);
    let (file, number) = NumberFile::open(&states.path().join("root")).unwrap();
    let gateway = SumGateway::bind(field.world.gateway("root", number), file, None).await.unwrap();
    let (children, up) =
        (field.networks["root"].parent(), field.networks[QUERIER].child(gateway_id("root").0));
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(gateway.run(children, up, async { drop(stopped.await) }));
    for stranger in 0..5 {
        let stranger = field.networks["root"].child([stranger; 8]);
        stranger.send(Bytes::from_static(b"no frame")).await.unwrap();
    }
    field.motes[0].send(Bytes::from_static(b"no frame")).await.unwrap();
    while lines.count(&["rejected a frame"]) < 6 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(lines.count(&["are rejected"]), 2, "one of the strangers, and one of the child");
    stop.send(()).unwrap();
    task.await.unwrap().unwrap();
    assert_eq!(lines.count(&["were suppressed", "senders that are not children", "lines=4;"]), 1);
}

/// Waits until the gateway's metrics contain a line.
async fn shows(gateway: &Running, line: &str) {
    let shown = tokio::time::timeout(Duration::from_secs(10), async {
        while !page(&gateway.watch, "metrics").await.contains(line) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(shown.await.is_ok(), "{line} is not in\n{}", page(&gateway.watch, "metrics").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_that_is_replayed_to_a_restarted_gateway_is_rejected_and_not_forwarded() {
    let states = tempfile::tempdir().unwrap();
    let field = Field::new(&[("root", QUERIER)], &["root"; 8]);
    let schedule =
        |number, queries: &[Posed<'_>]| Bytes::from(field.world.schedule(number, queries));
    let old = schedule(7, &[field.world.posed()]);
    let querier = field.networks[QUERIER].parent();
    querier.announce(old.clone()).await.unwrap();
    let root = field.start("root", states.path()).await;
    shows(&root, "moteseal_sum_queries 1\n").await;
    querier.announce(schedule(8, &[])).await.unwrap();
    shows(&root, "moteseal_sum_schedule_number 8\n").await;
    root.task.abort();
    assert!(root.task.await.unwrap_err().is_cancelled());
    // The broker stores the older schedule again, and sends it to every client that connects.
    querier.announce(old.clone()).await.unwrap();
    let mut child = field.networks["root"].child(*b"listener");
    let root = field.start("root", states.path()).await;
    shows(&root, "moteseal_sum_frames_refused_total{name=\"OlderAgenda\"} 1\n").await;
    assert!(page(&root.watch, "metrics").await.contains("moteseal_sum_queries 0\n"));
    querier.announce(schedule(9, &[])).await.unwrap();
    shows(&root, "moteseal_sum_schedule_number 9\n").await;
    // The children received only the schedules that the gateway accepted. The older schedule is not
    // among them.
    let mut announcements = Vec::new();
    while announcements.last() != Some(&schedule(9, &[])) {
        let down =
            tokio::time::timeout(Duration::from_secs(10), child.receive()).await.unwrap().unwrap();
        let Down::Announcement(announced) = down else { panic!("{down:?}") };
        announcements.push(announced);
    }
    assert!(!announcements.contains(&old), "{announcements:?}");
    root.stop.send(()).unwrap();
    root.task.await.unwrap();
}
