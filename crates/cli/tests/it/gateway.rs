//! Runs a gateway and its devices over a link within this process. The epochs at the cloud verify,
//! stay within the budget, and are justified, despite lost frames, restarts and an unreachable
//! cloud.

use crate::group;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::group::{Cloud, FIRST};
use bytes::Bytes;
use moteseal_core::DeviceId;
use moteseal_device::runner::{Ran, Settings as DeviceSettings, Source};
use moteseal_gateway::{Gateway, Settings, Time};
use moteseal_net::in_memory::{Faults, Network};
use moteseal_net::link::State;
use moteseal_net::{ChildLink, Client, Down, LinkError, Options};
use moteseal_verify::{Calendar, Roster};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

const EPOCH_MS: u64 = 1000;
const BOUND: u64 = 1 << 30;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn settings() -> Settings {
    Settings {
        grace: Duration::from_secs(20),
        time: Time::Recorded,
        announce_every: Duration::from_millis(200),
        first_pause: Duration::from_millis(20),
        ..Settings::default()
    }
}

/// A running gateway.
struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

async fn gateway(
    roster: &Roster,
    folder: &Path,
    network: &Network,
    cloud: &str,
    settings: Settings,
    bound: u64,
) -> Running {
    let station = group::station(roster, folder, bound);
    let client = Client::new(cloud, &Options::default()).unwrap();
    let gateway = Gateway::bind(station, settings, Some(client)).await.unwrap();
    let (stop, stopped) = oneshot::channel();
    let link = network.parent();
    let task =
        tokio::spawn(
            async move { gateway.run(link, async { drop(stopped.await) }).await.unwrap() },
        );
    Running { stop, task }
}

impl Running {
    async fn stop(self) {
        let _ = self.stop.send(());
        self.task.await.unwrap();
    }
}

fn device(
    roster: &Roster,
    device: u8,
    folder: &Path,
    network: &Network,
    (epochs, per_epoch): (u64, u64),
    speed: Option<f64>,
) -> JoinHandle<Ran> {
    let mut mote = group::mote(roster, device, folder, 8);
    let mut link = network.child(group::device_id(roster, device).0);
    let recording = group::recording(device, EPOCH_MS, epochs, per_epoch);
    let settings = DeviceSettings {
        first_wait: Duration::from_millis(50),
        ..DeviceSettings::new(Calendar::constant(EPOCH_MS))
    };
    tokio::spawn(async move {
        let source = Source::Recording { recording: &recording, speed };
        let done = std::future::pending();
        moteseal_device::runner::run(&mut mote, &mut link, source, settings, &mut |_| {}, done)
            .await
            .unwrap()
    })
}

/// Waits until `holds` returns true, for at most a minute.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1200 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not within a minute: {what}");
}

/// Returns the expected records, for devices with one seal per epoch.
fn truth(roster: &Roster, devices: u8) -> impl Fn(DeviceId, u64, u64) -> Option<[u8; 4]> {
    let ids: Vec<DeviceId> = (0..devices).map(|device| group::device_id(roster, device)).collect();
    move |id, epoch, seq| {
        let device = ids.iter().position(|known| *known == id).unwrap();
        Some(group::reading(u8::try_from(device).unwrap(), epoch, seq).to_be_bytes())
    }
}

#[test]
fn epochs_with_lost_frames_are_justified_at_the_cloud() {
    let folder = tempfile::tempdir().unwrap();
    let (devices, epochs, per_epoch) = (4, 5, 300);
    let roster = group::roster(devices, 100, EPOCH_MS);
    let cloud = Cloud::default();
    runtime().block_on(async {
        let url = cloud.serve().await;
        let faults = Faults {
            loss: 0.2,
            duplication: 0.1,
            reordering: 0.1,
            delay: (Duration::from_millis(1), Duration::from_millis(20)),
        };
        let network = Network::new(7, faults);
        let gateway = gateway(&roster, folder.path(), &network, &url, settings(), BOUND).await;
        let running: Vec<_> = (0..devices)
            .map(|at| device(&roster, at, folder.path(), &network, (epochs, per_epoch), Some(4.0)))
            .collect();
        for device in running {
            let ran = device.await.unwrap();
            assert_eq!(ran, Ran { readings: epochs * per_epoch, is_done: true, ..Ran::default() });
        }
        until("all epochs are at the cloud", || {
            cloud.manifests.lock().unwrap().len() as u64 == epochs
        })
        .await;
        let outbox = folder.path().join("gateway/outbox");
        until("the outbox is empty", || std::fs::read_dir(&outbox).unwrap().count() == 0).await;
        gateway.stop().await;
    });
    let audited = group::audit(&roster, &cloud, &truth(&roster, devices));
    assert_eq!(audited.justified, (FIRST..FIRST + epochs).collect::<Vec<_>>(), "{audited:?}");
    assert_eq!(audited.late, 0);
    assert!(audited.sensed.values().all(|&sensed| sensed == per_epoch), "{audited:?}");
    assert!(audited.kept.values().all(|&kept| (30..=100).contains(&kept)), "{audited:?}");
    // The journal no longer contains finished epochs.
    let journal = std::fs::metadata(folder.path().join("gateway/journal")).unwrap().len();
    assert!(journal < 4096, "{journal}");
}

#[test]
fn a_gateway_that_restarts_often_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (devices, epochs, per_epoch) = (3, 4, 400);
    let roster = group::roster(devices, 150, EPOCH_MS);
    let cloud = Cloud::default();
    runtime().block_on(async {
        let url = cloud.serve().await;
        let network = Network::new(3, Faults { loss: 0.05, ..Faults::default() });
        let running: Vec<_> = (0..devices)
            .map(|at| device(&roster, at, folder.path(), &network, (epochs, per_epoch), Some(1.0)))
            .collect();
        while !running.iter().all(JoinHandle::is_finished) {
            let gateway = gateway(&roster, folder.path(), &network, &url, settings(), BOUND).await;
            tokio::time::sleep(Duration::from_millis(350)).await;
            // Half of the gateways are aborted instead of stopped cleanly.
            if cloud.manifests.lock().unwrap().len().is_multiple_of(2) {
                gateway.task.abort();
                let _ = gateway.task.await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            } else {
                gateway.stop().await;
            }
        }
        let gateway = gateway(&roster, folder.path(), &network, &url, settings(), BOUND).await;
        until("all epochs are at the cloud", || {
            cloud.manifests.lock().unwrap().len() as u64 == epochs
        })
        .await;
        let outbox = folder.path().join("gateway/outbox");
        until("the outbox is empty", || std::fs::read_dir(&outbox).unwrap().count() == 0).await;
        gateway.stop().await;
    });
    let audited = group::audit(&roster, &cloud, &truth(&roster, devices));
    assert_eq!(audited.justified, (FIRST..FIRST + epochs).collect::<Vec<_>>(), "{audited:?}");
    assert!(audited.sensed.values().all(|&sensed| sensed == per_epoch), "{audited:?}");
}

#[test]
fn epochs_wait_for_an_unreachable_cloud_and_are_uploaded_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let (devices, epochs, per_epoch) = (2, 100, 20);
    let roster = group::roster(devices, 15, EPOCH_MS);
    let cloud = Cloud::default();
    cloud.refuses.store(503, Ordering::Relaxed);
    runtime().block_on(async {
        let url = cloud.serve().await;
        let network = Network::new(5, Faults::default());
        let gateway = gateway(&roster, folder.path(), &network, &url, settings(), BOUND).await;
        let running: Vec<_> = (0..devices)
            .map(|at| device(&roster, at, folder.path(), &network, (epochs, per_epoch), None))
            .collect();
        for device in running {
            assert!(device.await.unwrap().is_done);
        }
        let outbox = folder.path().join("gateway/outbox");
        until("a hundred epochs wait", || {
            std::fs::read_dir(&outbox).unwrap().count() as u64 == epochs
        })
        .await;
        cloud.refuses.store(0, Ordering::Relaxed);
        until("all epochs are at the cloud", || {
            cloud.manifests.lock().unwrap().len() as u64 == epochs
        })
        .await;
        until("the outbox is empty", || std::fs::read_dir(&outbox).unwrap().count() == 0).await;
        gateway.stop().await;
    });
    let audited = group::audit(&roster, &cloud, &truth(&roster, devices));
    assert_eq!(audited.justified, (FIRST..FIRST + epochs).collect::<Vec<_>>(), "{audited:?}");
}

/// A link that counts the frames that a device sends.
struct Counting<L> {
    link: L,
    sent: Arc<AtomicUsize>,
}

impl<L: ChildLink + Sync> ChildLink for Counting<L> {
    async fn send(&self, frame: Bytes) -> Result<(), LinkError> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.link.send(frame).await
    }

    async fn receive(&mut self) -> Result<Down, LinkError> {
        self.link.receive().await
    }

    fn state(&self) -> watch::Receiver<State> {
        self.link.state()
    }
}

#[test]
fn readings_that_linger_share_frames_and_none_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (epochs, per_epoch) = (3, 50);
    let roster = group::roster(2, 100, EPOCH_MS);
    let cloud = Cloud::default();
    let sent = runtime().block_on(async {
        let url = cloud.serve().await;
        let network = Network::new(11, Faults { loss: 0.1, ..Faults::default() });
        let gateway = gateway(&roster, folder.path(), &network, &url, settings(), BOUND).await;
        let run = |at: u8, linger: Duration| {
            let mut mote = group::mote(&roster, at, folder.path(), 8);
            let link = network.child(group::device_id(&roster, at).0);
            let recording = group::recording(at, EPOCH_MS, epochs, per_epoch);
            let settings = DeviceSettings {
                first_wait: Duration::from_millis(50),
                linger,
                ..DeviceSettings::new(Calendar::constant(EPOCH_MS))
            };
            let sent = Arc::new(AtomicUsize::new(0));
            let mut link = Counting { link, sent: Arc::clone(&sent) };
            tokio::spawn(async move {
                let source = Source::Recording { recording: &recording, speed: Some(1.0) };
                let done = std::future::pending();
                let mut taken = |_| {};
                let ran = moteseal_device::runner::run(
                    &mut mote, &mut link, source, settings, &mut taken, done,
                );
                let ran = ran.await.unwrap();
                assert_eq!(
                    ran,
                    Ran { readings: epochs * per_epoch, is_done: true, ..Ran::default() }
                );
                sent.load(Ordering::Relaxed)
            })
        };
        let (at_once, lingering) = (run(0, Duration::ZERO), run(1, Duration::from_millis(250)));
        let sent = (at_once.await.unwrap(), lingering.await.unwrap());
        until("all epochs are at the cloud", || {
            cloud.manifests.lock().unwrap().len() as u64 == epochs
        })
        .await;
        gateway.stop().await;
        sent
    });
    let audited = group::audit(&roster, &cloud, &truth(&roster, 2));
    assert_eq!(audited.justified, (FIRST..FIRST + epochs).collect::<Vec<_>>(), "{audited:?}");
    assert!(audited.sensed.values().all(|&sensed| sensed == per_epoch), "{audited:?}");
    // Without lingering, most frames have one reading. A lost frame is repeated.
    assert!(sent.1 * 2 < sent.0, "{sent:?}");
}
