//! Runs the code of `moteseal device run` in this process on live readings. Clocks jump, a gateway
//! is unreachable for many epochs, and a gateway returns after a long time. Links are in memory;
//! time is real.

use crate::group;
use moteseal_verify::Calendar;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use crate::group::FIRST;
use bytes::Bytes;
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_device::runner::{LiveReading, Ran, Settings, Source, run};
use moteseal_gateway::Station;
use moteseal_net::ParentLink as _;
use moteseal_net::in_memory::{Faults, MemoryParent, Network};
use tokio::sync::mpsc;
use tokio::time::sleep;

const EPOCH_MS: u64 = 500;
const BOUND: u64 = 1 << 30;
const YEARS: i64 = 14 * 365 * 24 * 3600 * 1000;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn settings() -> Settings {
    Settings {
        first_wait: Duration::from_millis(50),
        longest_wait: Duration::from_millis(400),
        ..Settings::new(Calendar::constant(EPOCH_MS))
    }
}

/// The true time, and the error of the device's clock in milliseconds.
struct Time {
    start: Instant,
    wrong_by: AtomicI64,
}

impl Time {
    fn start() -> Self {
        Self { start: Instant::now(), wrong_by: AtomicI64::new(0) }
    }

    fn unix_ms(&self) -> u64 {
        FIRST * EPOCH_MS + u64::try_from(self.start.elapsed().as_millis()).unwrap()
    }

    fn epoch(&self) -> EpochNumber {
        EpochNumber(self.unix_ms() / EPOCH_MS)
    }

    fn device(&self) -> u64 {
        self.unix_ms().saturating_add_signed(self.wrong_by.load(Ordering::Relaxed))
    }

    async fn until(&self, epochs: u64) {
        let due = Duration::from_millis(epochs * EPOCH_MS);
        sleep(due.saturating_sub(self.start.elapsed())).await;
    }
}

/// Runs a gateway until the future is dropped. Panics if it refuses a frame.
async fn gateway(station: &mut Station, link: &mut MemoryParent, time: &Time) {
    loop {
        tokio::select! {
            up = link.receive() => {
                let _ = station.receive(&up.unwrap().frame, time.epoch()).unwrap();
            }
            () = sleep(Duration::from_millis(100)) => station.announce(time.epoch()),
        }
        let committed = station.commit().unwrap();
        for (device, frame) in committed.acknowledgements {
            link.send(device.0, frame.into()).await.unwrap();
        }
        if let Some(announcement) = committed.announcement {
            link.announce(announcement.into()).await.unwrap();
        }
    }
}

/// Sends a reading every tenth of an epoch until epoch `until`. Returns the number of readings.
async fn readings(time: &Time, send: &mpsc::Sender<LiveReading>, until: u64) -> u32 {
    let mut count = 0;
    while time.unix_ms() < (FIRST + until) * EPOCH_MS {
        let record = group::reading(0, FIRST, u64::from(count)).to_be_bytes().to_vec();
        send.send(record.into()).await.unwrap();
        count += 1;
        sleep(Duration::from_millis(EPOCH_MS / 10)).await;
    }
    count
}

fn end_all(station: &mut Station) {
    while let Some(epoch) = { station.coordinator().epochs().next() } {
        station.end(epoch).unwrap();
        let _ = station.commit().unwrap();
    }
}

#[test]
fn a_clock_that_jumps_ahead_and_back_does_not_stop_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(1, 1000, EPOCH_MS);
    let mut station = group::station(&roster, folder.path(), BOUND);
    let mut mote = group::mote(&roster, 0, folder.path(), 32);
    let network = Network::new(3, Faults::default());
    let (mut parent, mut link) = (network.parent(), network.child(group::device_id(&roster, 0).0));
    let time = Time::start();
    let (send, records) = mpsc::channel(8);
    let clock = || time.device();
    let sensed = block_on(async {
        let mut taken = |_| {};
        let device = run(
            &mut mote,
            &mut link,
            Source::Live { records, clock: &clock },
            settings(),
            &mut taken,
            std::future::pending(),
        );
        let senses = async {
            let mut count = readings(&time, &send, 3).await;
            time.wrong_by.store(YEARS, Ordering::Relaxed);
            count += readings(&time, &send, 6).await;
            time.wrong_by.store(-(i64::try_from(4 * EPOCH_MS).unwrap()), Ordering::Relaxed);
            count += readings(&time, &send, 8).await;
            time.wrong_by.store(0, Ordering::Relaxed);
            count += readings(&time, &send, 10).await;
            drop(send);
            count
        };
        let both = async { tokio::join!(device, senses) };
        let (ran, count) = tokio::select! {
            both = tokio::time::timeout(Duration::from_secs(30), both) => both.expect("the device does not end"),
            () = gateway(&mut station, &mut parent, &time) => unreachable!("the gateway never ends"),
        };
        assert_eq!(
            ran.unwrap(),
            Ran { readings: u64::from(count), is_done: true, ..Ran::default() }
        );
        u64::from(count)
    });
    end_all(&mut station);
    let sealed = group::sealed(&roster, &station);
    assert_eq!(sealed.iter().map(|(_, _, events, ..)| events).sum::<u64>(), sensed);
    assert!(
        sealed.iter().zip(0..).all(|((index, ..), at)| *index == at),
        "an index was skipped: {sealed:?}"
    );
    // While the device's clock was far ahead, its epochs advanced with the elapsed time.
    let epochs: Vec<u64> = sealed.iter().map(|(_, epoch, ..)| epoch - FIRST).collect();
    assert!((3..6).all(|epoch| epochs.contains(&epoch)), "{epochs:?}");
    assert!(epochs.is_sorted() && epochs.last().is_some_and(|last| *last <= 11), "{epochs:?}");
}

#[test]
fn a_device_with_a_wrong_clock_waits_for_an_announcement_of_its_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(1, 1000, EPOCH_MS);
    let mut station = group::station(&roster, folder.path(), BOUND);
    let network = Network::new(3, Faults::default());
    let mut parent = network.parent();
    let time = Time::start();
    // The device runs with a correct clock and is then started again with a wrong clock.
    for (wrong_by, until) in [(0, 1), (YEARS, 4)] {
        time.wrong_by.store(wrong_by, Ordering::Relaxed);
        let mut mote = group::mote(&roster, 0, folder.path(), 32);
        let mut link = network.child(group::device_id(&roster, 0).0);
        let (send, records) = mpsc::channel(8);
        let clock = || time.device();
        block_on(async {
            let stop = time.until(until);
            let source = Source::Live { records, clock: &clock };
            let mut taken = |_| {};
            let device = run(&mut mote, &mut link, source, settings(), &mut taken, stop);
            tokio::select! {
                ran = device => assert!(ran.unwrap().readings > 0),
                _ = readings(&time, &send, 100) => unreachable!("the device is stopped before"),
                () = gateway(&mut station, &mut parent, &time) => unreachable!("the gateway never ends"),
            }
        });
        let newest = mote.mote().chain().epoch.unwrap().0 - FIRST;
        assert!(newest <= until + 1, "epoch {newest} of {until}");
    }
}

#[test]
fn a_stopped_device_processes_the_readings_it_received() {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(1, 1000, EPOCH_MS);
    let mut mote = group::mote(&roster, 0, folder.path(), 32);
    let network = Network::new(3, Faults::default());
    let mut link = network.child(group::device_id(&roster, 0).0);
    let time = Time::start();
    let clock = || time.device();
    for round in 1..=20 {
        let (send, records) = mpsc::channel(8);
        let sent: Vec<Vec<u8>> = vec![vec![7; 4], vec![7; 5], vec![7; 4]];
        sent.into_iter().for_each(|record| send.try_send(record.into()).unwrap());
        let ran = block_on(async {
            let mut count = |_| {};
            let source = Source::Live { records, clock: &clock };
            run(&mut mote, &mut link, source, settings(), &mut count, std::future::ready(()))
                .await
                .unwrap()
        });
        // One of the records does not have the size that the schema requires. The other records are
        // not affected.
        assert_eq!(ran, Ran { readings: 2, refused: 1, ..Ran::default() }, "round {round}");
    }
}

#[test]
fn the_next_seal_states_the_loss_after_a_long_absence_of_the_gateway() {
    const WAITING: u32 = 4;
    const AWAY: u64 = 20;
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(1, 1000, EPOCH_MS);
    let mut station = group::station(&roster, folder.path(), BOUND);
    let mut mote = group::mote(&roster, 0, folder.path(), WAITING);
    let network = Network::new(3, Faults::default());
    let (mut parent, mut link) = (network.parent(), network.child(group::device_id(&roster, 0).0));
    network.cut(true);
    let time = Time::start();
    let (send, records) = mpsc::channel(8);
    let clock = || time.device();
    let journal = folder.path().join("mote-0/journal");
    let (ran, longest) = block_on(async {
        let source = Source::Live { records, clock: &clock };
        let mut taken = |_| {};
        let device =
            run(&mut mote, &mut link, source, settings(), &mut taken, std::future::pending());
        let senses = async {
            let mut longest = 0;
            for epoch in 1..=AWAY {
                // Send far more readings than the device may keep, per epoch and in total.
                for _ in 0..600 {
                    send.send(vec![7; 4].into()).await.unwrap();
                }
                time.until(epoch).await;
                longest = longest.max(std::fs::metadata(&journal).unwrap().len());
            }
            network.cut(false);
            // On a busy machine, the readings above took longer than their epochs.
            readings(&time, &send, AWAY.max(time.epoch().0 - FIRST) + 3).await;
            drop(send);
            longest
        };
        let both = async { tokio::join!(device, senses) };
        let (ran, longest) = tokio::select! {
            both = tokio::time::timeout(Duration::from_secs(60), both) => both.expect("the device does not end"),
            () = gateway(&mut station, &mut parent, &time) => unreachable!("the gateway never ends"),
        };
        (ran.unwrap(), longest)
    });
    assert!(ran.is_done && ran.readings > AWAY * 600);
    // The journal contains the readings of the waiting seals and of the open seal. At most half of
    // the journal consists of bytes that are no longer needed.
    let seal = 600 * (1 + 8 + 4 + 16);
    assert!(longest < 2 * (u64::from(WAITING) + 2) * seal + 4096, "{longest} bytes of journal");
    end_all(&mut station);
    let sealed = group::sealed(&roster, &station);
    // First the waiting seals arrive, then a seal that states that the device has dropped other
    // seals, and then all later seals.
    let (before, after) = sealed.split_at(WAITING as usize);
    assert!(before.iter().zip(0..).all(|(seal, at)| (seal.0, seal.3) == (at, false)), "{sealed:?}");
    assert!(
        after[0].3 && after[0].0 > WAITING + 10 && after[1..].iter().all(|seal| !seal.3),
        "{sealed:?}"
    );
    assert!(after.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1), "{sealed:?}");
    assert_eq!(mote.mote().chain().next_index, SealIndex(sealed.last().unwrap().0 + 1));
}

#[test]
fn a_gateway_that_returns_does_not_wait_for_the_longest_pause() {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(1, 1000, EPOCH_MS);
    let mut station = group::station(&roster, folder.path(), BOUND);
    let mut mote = group::mote(&roster, 0, folder.path(), 32);
    let network = Network::new(3, Faults::default());
    let (parent, mut link) = (network.parent(), network.child(group::device_id(&roster, 0).0));
    let time = Time::start();
    let (send, records) = mpsc::channel(8);
    let clock = || time.device();
    let settings = Settings {
        first_wait: Duration::from_millis(200),
        longest_wait: Duration::from_secs(6),
        ..settings()
    };
    // The broker is running, but no gateway is connected.
    let next = async || {
        let before = Instant::now();
        let _: Bytes = parent.receive().await.unwrap().frame;
        before.elapsed()
    };
    block_on(async {
        send.send(vec![7; 4].into()).await.unwrap();
        let source = Source::Live { records, clock: &clock };
        let mut taken = |_| {};
        let device =
            run(&mut mote, &mut link, source, settings, &mut taken, std::future::pending());
        let silent = async {
            // The device retries at intervals that double: 0.2, 0.4, 0.8, 1.6, 3.2 seconds, then 6.
            while time.start.elapsed() < Duration::from_millis(6300) {
                let _ = tokio::time::timeout(Duration::from_millis(100), next()).await;
            }
            while tokio::time::timeout(Duration::from_millis(20), next()).await.is_ok() {}
            station.announce(time.epoch());
            let announcement = station.commit().unwrap().announcement.unwrap();
            network.parent().announce(announcement.into()).await.unwrap();
            // Without the announcement, the device would send again about 6 seconds later.
            assert!(
                next().await < Duration::from_secs(3),
                "waiting frames must be sent when an announcement of the gateway arrives"
            );
        };
        tokio::select! {
            ran = device => panic!("the device ended: {ran:?}"),
            () = silent => {}
        }
    });
}
