//! A gateway refuses frames of strangers and of broken devices, and counts them by the name of the
//! error. Other devices are not affected. A device that sends too fast slows down only itself. At
//! its disk limit a gateway rejects frames rather than lose data that it acknowledged.
//!
//! This is a separate test program, because it measures latency, which other tests that run at the
//! same time would change.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "it/group.rs"]
#[allow(dead_code, unreachable_pub)]
mod group;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use group::{Cloud, FIRST};
use moteseal_core::DeviceId;
use moteseal_core::link::{LinkKey, MAX_FRAME};
use moteseal_core::record::{EpochNumber, SealIndex, Sequence};
use moteseal_device::runner::{Settings as DeviceSettings, Source};
use moteseal_gateway::outbox::{Item, Name};
use moteseal_gateway::{Gateway, Settings, Station, Time};
use moteseal_net::in_memory::{Faults, MemoryChild, Network};
use moteseal_net::{ChildLink as _, Client, Down, Options};
use moteseal_seal::wire::Acknowledgement;
use moteseal_verify::{Calendar, Roster};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const EPOCH_MS: u64 = 1000;

/// Held by each test that measures latency, and by each test that would disturb such a measurement.
static MEASURED: Mutex<()> = Mutex::new(());

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Returns a forward frame with events of level 7, one for each sequence number in the range.
fn forward(
    device: DeviceId,
    key: &LinkKey,
    index: u32,
    epoch: u64,
    range: std::ops::Range<u64>,
) -> Bytes {
    group::forward_frame((device, key), (index, epoch), range, 7).into()
}

struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    watch: Client,
}

impl Running {
    async fn start(
        roster: &Roster,
        folder: &Path,
        network: &Network,
        cloud: Option<&str>,
        bound: u64,
        time: Time,
    ) -> Self {
        let station = group::station(roster, folder, bound);
        let settings = Settings {
            grace: Duration::from_secs(20),
            time,
            announce_every: Duration::from_millis(200),
            listen: Some("127.0.0.1:0".parse().unwrap()),
            first_pause: Duration::from_millis(20),
        };
        let client = cloud.map(|cloud| Client::new(cloud, &Options::default()).unwrap());
        Self::of(station, settings, network, client).await
    }

    async fn of(
        station: Station,
        settings: Settings,
        network: &Network,
        client: Option<Client>,
    ) -> Self {
        let gateway = Gateway::bind(station, settings, client).await.unwrap();
        let watch =
            Client::new(&format!("http://{}", gateway.address().unwrap()), &Options::default())
                .unwrap();
        let (stop, stopped) = oneshot::channel();
        let link = network.parent();
        let task =
            tokio::spawn(
                async move { gateway.run(link, async { drop(stopped.await) }).await.unwrap() },
            );
        Self { stop, task, watch }
    }

    /// Returns the value of a metric, or 0 if the metric does not exist.
    async fn metric(&self, name: &str) -> f64 {
        let text = self.watch.get("metrics").await.unwrap().bytes(1 << 20).await.unwrap();
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    async fn until(&self, name: &str, holds: impl Fn(f64) -> bool) {
        for _ in 0..1200 {
            if holds(self.metric(name).await) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{name} is {} after a minute", self.metric(name).await);
    }

    async fn stop(self) {
        let _ = self.stop.send(());
        self.task.await.unwrap();
    }
}

async fn replay(
    roster: &Roster,
    folder: &Path,
    network: &Network,
    device: u8,
    epochs: u64,
    per_epoch: u64,
) -> bool {
    let mut mote = group::mote(roster, device, folder, 8);
    let mut link = network.child(group::device_id(roster, device).0);
    let recording = group::recording(device, EPOCH_MS, epochs, per_epoch);
    let settings = DeviceSettings {
        first_wait: Duration::from_millis(50),
        longest_wait: Duration::from_millis(400),
        ..DeviceSettings::new(Calendar::constant(EPOCH_MS))
    };
    let source = Source::Recording { recording: &recording, speed: None };
    let ran = moteseal_device::runner::run(
        &mut mote,
        &mut link,
        source,
        settings,
        &mut |_| {},
        std::future::pending(),
    )
    .await;
    ran.unwrap().is_done
}

#[test]
fn refuses_frames_from_outside_the_group_without_effect_on_its_devices() {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(2, 100, EPOCH_MS);
    let cloud = Cloud::default();
    runtime().block_on(async {
        let url = cloud.serve().await;
        let network = Network::new(1, Faults::default());
        let gateway =
            Running::start(&roster, folder.path(), &network, Some(&url), 1 << 30, Time::Clock)
                .await;
        let (stranger, member) = (DeviceId(*b"stranger"), group::device_id(&roster, 1));
        let (key, other) = (group::link_key(&roster, member), LinkKey::new(&[9; 32]));
        let refused =
            |name: &str| format!("moteseal_gateway_frames_refused_total{{name=\"{name}\"}}");
        for (from, frame, name) in [
            (stranger, forward(stranger, &other, 0, FIRST, 0..1), "UnknownDevice"),
            (member, forward(member, &other, 0, FIRST, 0..1), "NotAuthentic"),
            (member, forward(member, &key, 0, u64::MAX / 2, 0..1), "EpochTooFar"),
            (member, Bytes::from_static(b"no frame"), "Malformed"),
            (stranger, Bytes::from(vec![0xff; MAX_FRAME]), "Malformed"),
        ] {
            let before = gateway.metric(&refused(name)).await;
            network.child(from.0).send(frame).await.unwrap();
            gateway.until(&refused(name), |now| now > before).await;
        }
        // The link itself refuses a frame that is too long.
        let long =
            network.child(member.0).send(Bytes::from(vec![0; MAX_FRAME + 1])).await.unwrap_err();
        assert_eq!(long.name(), "FrameTooLong");
        // A gap is not an error: the gateway drops the frame, and its response states where to
        // continue.
        let mut link = network.child(member.0);
        link.send(forward(member, &key, 0, FIRST, 5..9)).await.unwrap();
        let answer = answer(&mut link, member, &key).await;
        assert_eq!((answer.index, answer.next, answer.sealed), (SealIndex(0), Sequence(0), None));
        assert_eq!(gateway.metric("moteseal_gateway_events_seen_total").await, 0.0);
        // The honest device is not affected.
        assert!(replay(&roster, folder.path(), &network, 0, 2, 50).await);
        // The metrics are updated a moment after the acknowledgements.
        gateway.until("moteseal_gateway_events_seen_total", |seen| seen == 100.0).await;
        assert!(gateway.metric("moteseal_gateway_buffered_events").await <= 100.0);
        gateway.stop().await;
    });
}

async fn answer(link: &mut MemoryChild, device: DeviceId, key: &LinkKey) -> Acknowledgement {
    loop {
        if let Down::Frame(frame) = link.receive().await.unwrap() {
            return Acknowledgement::open(&frame, device, key).unwrap();
        }
    }
}

/// The number of frames whose latency is measured at a time.
const FRAMES: u64 = 101;

/// Returns the median time from a frame to its durable acknowledgement.
async fn latency(roster: &Roster, network: &Network, from: u64) -> Duration {
    let device = group::device_id(roster, 0);
    let key = group::link_key(roster, device);
    let mut link = network.child(device.0);
    if from == 0 {
        link.send(group::schema_frame(device, &key).into()).await.unwrap();
    }
    let mut times = Vec::new();
    for seq in from..from + FRAMES {
        let start = Instant::now();
        link.send(forward(device, &key, 0, FIRST, seq..seq + 1)).await.unwrap();
        while answer(&mut link, device, &key).await.next.0 <= seq {}
        times.push(start.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

/// Other load on the processor varies, so only one of three rounds must pass.
#[test]
fn a_flood_with_one_frame_does_not_delay_other_devices() {
    flood_and_measure(|_| 0..200, 3);
}

/// The events of this flood are new, so they are synced to disk. Other load on the disk and the
/// processor varies, so only one of five rounds must pass.
#[test]
fn a_flood_with_new_events_does_not_delay_other_devices() {
    flood_and_measure(|sent| sent * 200..(sent + 1) * 200, 5);
}

/// Compares the latency of an honest device with and without a flood of its gateway. In a flood,
/// another device sends the events in `range` as fast as the link accepts them. The argument of
/// `range` is the number of frames sent so far.
///
/// A flood also takes processor time, which delays everything on a busy machine. The flood is
/// therefore also sent to a second gateway, and the latency without a flood is the higher one of
/// two: without any flood, and with a flood of the second gateway. One of `rounds` comparisons must
/// pass.
fn flood_and_measure(range: fn(u64) -> std::ops::Range<u64>, rounds: u64) {
    // The load of another test would change the measurement.
    let _alone = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let roster = group::roster(2, 10_000, EPOCH_MS);
    // Each gateway has its own threads, so that they share only the processor.
    let runtimes = [runtime(), runtime()];
    let networks = [1, 2].map(|seed| Network::new(seed, Faults::default()));
    let [gateway, other] = [0, 1].map(|place| {
        let (folder, network) = (folders[place].path(), &networks[place]);
        let running = Running::start(&roster, folder, network, None, 1 << 30, Time::Recorded);
        runtimes[place].block_on(running)
    });
    runtimes[0].block_on(async {
        let sent = [0, 0].map(|count| Arc::new(AtomicU64::new(count)));
        let mut shown = Vec::new();
        for round in 0..rounds {
            let from = 3 * FRAMES * round;
            let calm = latency(&roster, &networks[0], from).await;
            let mut flooded = [Duration::ZERO; 2];
            for place in [1, 0] {
                let is_flooding = Arc::new(AtomicBool::new(true));
                let flooder = runtimes[place].spawn(flood_link(
                    roster.clone(),
                    networks[place].clone(),
                    Arc::clone(&is_flooding),
                    range,
                    Arc::clone(&sent[place]),
                ));
                let before = sent[place].load(Ordering::Relaxed);
                let frames = || sent[place].load(Ordering::Relaxed) - before;
                // Measure in the middle of a flood, also on a machine that floods slowly.
                let start = Instant::now();
                while frames() <= 5000 {
                    let is_flood = start.elapsed() < Duration::from_secs(60);
                    assert!(is_flood, "too few frames for a flood: {}", frames());
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                let from = from + FRAMES * (2 - place as u64);
                let during = frames();
                flooded[place] = latency(&roster, &networks[0], from).await;
                let during = frames() - during;
                is_flooding.store(false, Ordering::Relaxed);
                flooder.await.unwrap();
                println!(
                    "calm {calm:?}, flood of gateway {place}: {:?}, {} frames",
                    flooded[place],
                    frames()
                );
                assert!(during > 0, "the flood stopped during the measurement");
            }
            // Allow two milliseconds more, because the latency of the disk varies.
            if flooded[0] <= 2 * calm.max(flooded[1]) + Duration::from_millis(2) {
                gateway.stop().await;
                other.stop().await;
                return;
            }
            shown.push((calm, flooded));
        }
        panic!("calm and flooded: {shown:?}");
    });
}

/// Sends frames while `is_flooding` is set, and counts them in `sent`.
async fn flood_link(
    roster: Roster,
    network: Network,
    is_flooding: Arc<AtomicBool>,
    range: fn(u64) -> std::ops::Range<u64>,
    sent: Arc<AtomicU64>,
) {
    let device = group::device_id(&roster, 1);
    let (link, key) = (network.child(device.0), group::link_key(&roster, device));
    link.send(group::schema_frame(device, &key).into()).await.unwrap();
    let mut events = range(sent.load(Ordering::Relaxed));
    let mut frame = forward(device, &key, 0, FIRST, events.clone());
    while is_flooding.load(Ordering::Relaxed) {
        link.send(frame.clone()).await.unwrap();
        let next = range(sent.fetch_add(1, Ordering::Relaxed) + 1);
        if next != events {
            events = next;
            frame = forward(device, &key, 0, FIRST, events.clone());
        }
        tokio::task::yield_now().await;
    }
}

/// Passes frames with new events to the station until it refuses one. Returns the number of
/// accepted frames and the name of the refusal.
fn flood(station: &mut Station, roster: &Roster, device: u8) -> (u64, &'static str) {
    let device = group::device_id(roster, device);
    let key = group::link_key(roster, device);
    let _ = station.receive(&group::schema_frame(device, &key), EpochNumber(FIRST)).unwrap();
    for frame in 0..100_000 {
        let events = frame * 200..(frame + 1) * 200;
        match station.receive(&forward(device, &key, 0, FIRST, events), EpochNumber(FIRST)) {
            Ok(_) => {}
            Err(refused) => {
                station.commit().unwrap();
                return (frame, refused.name());
            }
        }
    }
    panic!("the station accepted every frame of a flood");
}

#[test]
fn a_device_that_floods_with_new_events_fills_only_its_own_part_of_the_journal() {
    let _alone = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(4, 40, EPOCH_MS);
    let bound = 2 << 20;
    let mut station = group::station(&roster, folder.path(), bound);
    // Items that the cloud refused permanently occupy nearly half of the bound. They must have no
    // effect.
    let item = Item { manifest: None, bundles: vec![vec![7; (1 << 19) - 8192]] };
    station.outbox().store(Name::of_late(EpochNumber(FIRST - 1), b"held"), &item).unwrap();
    let (taken, refused) = flood(&mut station, &roster, 0);
    assert_eq!(refused, "OverQuota");
    // A quarter of the bound minus the reserve is for frames. The first device gets half of that
    // quarter.
    assert!((120..200).contains(&taken), "{taken} frames of a kibibyte");
    assert!(station.has_room() && station.bytes() <= bound);
    // Each other device has a separate part of the quarter, even if that device also floods the
    // gateway.
    for device in 1..4 {
        let (own, refused) = flood(&mut station, &roster, device);
        assert_eq!(refused, "OverQuota");
        assert!((25..taken).contains(&own), "{own}");
    }
    assert!(station.has_room() && station.bytes() <= bound);
    // Frames that were acknowledged before are acknowledged again.
    let (device, frames) = (group::device_id(&roster, 0), taken * 200);
    let key = group::link_key(&roster, device);
    let _ = station.receive(&forward(device, &key, 0, FIRST, 0..200), EpochNumber(FIRST)).unwrap();
    let committed = station.commit().unwrap();
    let answer = Acknowledgement::open(&committed.acknowledgements[0].1, device, &key).unwrap();
    assert_eq!(answer.next, Sequence(frames));
    // The quotas are the same after a restart.
    drop(station);
    let mut station = group::station(&roster, folder.path(), bound);
    let next = forward(device, &key, 0, FIRST, frames..frames + 200);
    assert_eq!(station.receive(&next, EpochNumber(FIRST)).unwrap_err().name(), "OverQuota");
}

#[test]
fn epochs_end_by_the_clock_also_while_no_frames_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(2, 40, EPOCH_MS);
    let bound = 2 << 20;
    let mut station = group::station(&roster, folder.path(), bound);
    let now = roster
        .epoch_of(u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap());
    let device = group::device_id(&roster, 0);
    let key = group::link_key(&roster, device);
    let _ = station.receive(&group::schema_frame(device, &key), now).unwrap();
    let _ = station.receive(&forward(device, &key, 0, now.0, 0..200), now).unwrap();
    station.commit().unwrap();
    let item = Item { manifest: None, bundles: vec![vec![7; 2 << 20]] };
    station.outbox().store(Name::of_late(EpochNumber(now.0 - 1), b"held"), &item).unwrap();
    assert!(!station.has_room());
    runtime().block_on(async {
        let network = Network::new(1, Faults::default());
        let grace = Duration::from_millis(300);
        let settings =
            Settings { grace, listen: Some("127.0.0.1:0".parse().unwrap()), ..Settings::default() };
        let gateway = Running::of(station, settings, &network, None).await;
        gateway.until("moteseal_gateway_taking_frames", |taking| taking == 0.0).await;
        gateway.until("moteseal_gateway_epochs_ended_total", |ended| ended == 1.0).await;
        assert_eq!(gateway.metric("moteseal_gateway_taking_frames").await, 0.0);
        gateway.stop().await;
    });
}

#[test]
fn at_its_disk_limit_a_gateway_accepts_nothing_and_loses_nothing() {
    let _alone = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let (epochs, per_epoch) = (40, 30);
    let roster = group::roster(2, 40, EPOCH_MS);
    let cloud = Cloud::default();
    cloud.refuses.store(503, Ordering::Relaxed);
    // One mebibyte is reserved for the end of an epoch. The rest holds a few epochs.
    let bound = (1 << 20) + (16 << 10);
    runtime().block_on(async {
        let url = cloud.serve().await;
        let network = Network::new(5, Faults::default());
        let gateway =
            Running::start(&roster, folder.path(), &network, Some(&url), bound, Time::Recorded)
                .await;
        let devices = async {
            tokio::join!(
                replay(&roster, folder.path(), &network, 0, epochs, per_epoch),
                replay(&roster, folder.path(), &network, 1, epochs, per_epoch)
            )
        };
        let cloud_comes_back = async {
            gateway.until("moteseal_gateway_taking_frames", |taking| taking == 0.0).await;
            let refused = gateway.watch.get("readyz").await;
            assert!(refused.is_err());
            assert!(gateway.metric("moteseal_gateway_outbox_items").await > 0.0);
            assert!(gateway.metric("moteseal_gateway_state_bytes").await <= bound as f64);
            cloud.refuses.store(0, Ordering::Relaxed);
        };
        let (devices, ()) = tokio::join!(devices, cloud_comes_back);
        assert_eq!(devices, (true, true));
        gateway.until("moteseal_gateway_outbox_items", |items| items == 0.0).await;
        gateway.stop().await;
    });
    let ids: Vec<DeviceId> = (0..2).map(|device| group::device_id(&roster, device)).collect();
    let truth = |id: DeviceId, epoch: u64, seq: u64| {
        let device = ids.iter().position(|known| *known == id).unwrap();
        Some(group::reading(u8::try_from(device).unwrap(), epoch, seq).to_be_bytes())
    };
    let audited = group::audit(&roster, &cloud, &truth);
    assert_eq!(audited.justified, (FIRST..FIRST + epochs).collect::<Vec<_>>(), "{audited:?}");
    assert!(audited.sensed.values().all(|&sensed| sensed == per_epoch), "{audited:?}");
}
