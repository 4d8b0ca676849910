//! Tests a device whose state is gone, or is an old copy, and a second device with the same key. The
//! device detects this from the first answer of its gateway, reports the readings that it gives
//! up, and continues after the newest stored seal. Everything that is acknowledged is in the cloud,
//! and an audit has no findings.

use std::path::Path;
use std::time::Duration;

use moteseal_client::audit::Verdict;
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::signature::SecretKey;
use moteseal_device::DurableMote;
use moteseal_device::runner::{Ran, Settings as DeviceSettings, Source, run};
use moteseal_gateway::{Gateway, Settings, Station, Time};
use moteseal_net::in_memory::{Faults, Network};
use moteseal_net::{Client, Options};
use moteseal_verify::{Calendar, Roster};
use tokio::sync::oneshot;

use crate::budgeted;
use crate::group::{self, Cloud, FIRST};

const EPOCH_MS: u64 = 1000;
const BOUND: u64 = 1 << 30;
const PER_EPOCH: u64 = 30;

/// Copies the state of the device `mote-0` from one folder to another.
fn copy_state(from: &Path, to: &Path) {
    let (from, to) = (from.join("mote-0"), to.join("mote-0"));
    let _ = std::fs::remove_dir_all(&to);
    std::fs::create_dir_all(&to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Runs `device run` on a recording of this many epochs until the gateway has everything. Returns
/// the result, and how often the gateway had more than the device.
async fn replay(roster: &Roster, folder: &Path, network: &Network, epochs: u64) -> (Ran, u64) {
    let mut mote = group::mote(roster, 0, folder, 8);
    let mut link = network.child(group::device_id(roster, 0).0);
    let recording = group::recording(0, EPOCH_MS, epochs, PER_EPOCH);
    let settings = DeviceSettings {
        first_wait: Duration::from_millis(50),
        longest_wait: Duration::from_millis(400),
        ..DeviceSettings::new(Calendar::constant(EPOCH_MS))
    };
    let source = Source::Recording { recording: &recording, speed: None };
    let mut taken = |_| {};
    let ran = run(&mut mote, &mut link, source, settings, &mut taken, std::future::pending());
    let ran = tokio::time::timeout(Duration::from_secs(60), ran).await.expect("never done");
    (ran.unwrap(), mote.rollbacks())
}

/// Runs a device, a real gateway and a real cloud. After two epochs, the device's state is copied;
/// after four epochs, `damage` changes the state. Returns the result of the run over six epochs.
fn run_with(damage: fn(&Path, &Path)) -> (Ran, u64) {
    let (folder, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let roster = group::roster(1, 1000, EPOCH_MS);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let cloud = budgeted::Cloud::serve(&roster).await;
        let station = group::station(&roster, folder.path(), BOUND);
        let outbox = station.outbox();
        let settings = Settings {
            time: Time::Recorded,
            first_pause: Duration::from_millis(20),
            ..Settings::default()
        };
        let client = Client::new(&cloud.url, &Options::default()).unwrap();
        let gateway = Gateway::bind(station, settings, Some(client)).await.unwrap();
        let network = Network::new(1, Faults::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let link = network.parent();
        let task = tokio::spawn(gateway.run(link, async { drop(stopped.await) }));

        let honest = |epochs: u64, earlier: u64| Ran {
            readings: epochs * PER_EPOCH,
            left_out: earlier * PER_EPOCH,
            is_done: true,
            ..Ran::default()
        };
        assert_eq!(replay(&roster, folder.path(), &network, 2).await, (honest(2, 0), 0));
        copy_state(folder.path(), copy.path());
        assert_eq!(replay(&roster, folder.path(), &network, 4).await, (honest(2, 2), 0));
        damage(folder.path(), copy.path());
        let result = replay(&roster, folder.path(), &network, 6).await;

        let report = || async {
            let audit = moteseal_client::Client::new(&cloud.client, &roster).audit();
            audit.since(EpochNumber(FIRST)).run().await.unwrap()
        };
        let until_uploaded = async {
            while report().await.epochs.len() < 6 || !outbox.names().is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), until_uploaded).await.expect("not uploaded");
        let report = report().await;
        assert_eq!(report.verdict(), Verdict::Justified, "{report:?}");
        let kept: Vec<u64> = report.epochs.iter().map(|epoch| epoch.kept).collect();
        assert_eq!(kept, [PER_EPOCH; 6]);
        let _ = stop.send(());
        task.await.unwrap().unwrap();
        result
    })
}

/// Finding A1 of the review.
#[test]
fn a_device_whose_state_is_gone_continues_after_the_stored_seals() {
    let (ran, rollbacks) =
        run_with(|folder, _| std::fs::remove_dir_all(folder.join("mote-0")).unwrap());
    let expected =
        Ran { readings: 2 * PER_EPOCH, left_out: 4 * PER_EPOCH, is_done: true, ..Ran::default() };
    assert_eq!((ran, rollbacks), (expected, 1));
}

/// Finding A4 of the review.
#[test]
fn a_device_that_runs_on_an_old_copy_of_its_state_continues_after_the_stored_seals() {
    let (ran, rollbacks) = run_with(|folder, copy| copy_state(copy, folder));
    let expected =
        Ran { readings: 2 * PER_EPOCH, left_out: 4 * PER_EPOCH, is_done: true, ..Ran::default() };
    assert_eq!((ran, rollbacks), (expected, 1));
}

/// Delivers frames, acknowledgements and refusals until the device has nothing left to send, for at
/// most 40 rounds. Returns the names of the refusals.
fn exchange(
    mote: &mut DurableMote<SecretKey>,
    station: &mut Station,
    epoch: u64,
) -> Vec<&'static str> {
    let mut names = Vec::new();
    for _ in 0..40 {
        let frames = mote.frames(64).unwrap();
        if frames.is_empty() {
            if mote.mote().is_done() {
                break;
            }
            mote.timeout();
        }
        for frame in frames {
            if let Err(refused) = station.receive(&frame, EpochNumber(epoch)) {
                names.push(refused.name());
            }
        }
        for (_, message) in station.commit().unwrap().acknowledgements {
            mote.acknowledged(&message).unwrap().unwrap();
        }
    }
    assert!(mote.mote().is_done());
    names
}

fn sense(mote: &mut DurableMote<SecretKey>, epoch: u64, readings: std::ops::Range<u32>) {
    readings.for_each(|n| mote.sense(EpochNumber(epoch), &n.to_be_bytes()).unwrap());
}

fn sense_and_end(mote: &mut DurableMote<SecretKey>, epoch: u64, readings: std::ops::Range<u32>) {
    sense(mote, epoch, readings);
    mote.end(EpochNumber(epoch)).unwrap();
}

/// Ends the epochs, and audits everything as the cloud would have it. The audit must have no
/// findings.
fn audited(roster: &Roster, station: &mut Station, epochs: std::ops::Range<u64>) -> group::Audited {
    for epoch in epochs {
        station.end(EpochNumber(epoch)).unwrap();
        let _ = station.commit().unwrap();
    }
    let cloud = Cloud::default();
    cloud.take(station);
    group::audit(roster, &cloud, &|_, _, _| None)
}

/// A group of one device, its gateway, and a folder for a copy of the device's state.
struct Scene {
    folder: tempfile::TempDir,
    copy: tempfile::TempDir,
    roster: Roster,
    station: Station,
    scheme: Scheme,
}

impl Scene {
    fn new(scheme: Scheme) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let roster = group::roster(1, 1000, EPOCH_MS);
        let station = group::station(&roster, folder.path(), BOUND);
        Self { copy: tempfile::tempdir().unwrap(), folder, roster, station, scheme }
    }

    fn open(&self) -> DurableMote<SecretKey> {
        self.open_in(self.folder.path())
    }

    fn open_in(&self, folder: &Path) -> DurableMote<SecretKey> {
        group::open_mote(&self.roster, 0, folder, 8, |profile| profile.scheme = self.scheme)
            .unwrap()
    }
}

/// Findings A1 and A4 of the review, for a device that seals live readings before its gateway
/// answers: it reports these readings as given up, and reuses no index.
#[test]
fn readings_that_an_old_state_sealed_before_the_first_answer_are_reported_as_given_up() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        for is_copied in [false, true] {
            let mut scene = Scene::new(scheme);
            let mut mote = scene.open();
            sense_and_end(&mut mote, FIRST, 0..30);
            if is_copied {
                mote.sync().unwrap();
                copy_state(scene.folder.path(), scene.copy.path());
            }
            exchange(&mut mote, &mut scene.station, FIRST);
            // The gateway has three seals, and some events of the fourth.
            for epoch in FIRST + 1..FIRST + 3 {
                sense_and_end(&mut mote, epoch, 0..20);
                exchange(&mut mote, &mut scene.station, epoch);
            }
            sense(&mut mote, FIRST + 3, 0..10);
            for frame in mote.frames(64).unwrap() {
                let _ = scene.station.receive(&frame, EpochNumber(FIRST + 3)).unwrap();
            }
            let _ = scene.station.commit().unwrap();
            drop(mote);
            if is_copied {
                copy_state(scene.copy.path(), scene.folder.path());
            } else {
                std::fs::remove_dir_all(scene.folder.path().join("mote-0")).unwrap();
            }
            // While the gateway is away, the device seals an epoch, restarts twice, and senses on.
            let mut mote = scene.open();
            sense_and_end(&mut mote, FIRST + 3, 0..7);
            mote.frames(64).unwrap();
            for _ in 0..2 {
                drop(mote);
                mote = scene.open();
                mote.frames(64).unwrap();
            }
            sense(&mut mote, FIRST + 4, 0..5);
            assert!(mote.mote().opened().is_some_and(|index| index < SealIndex(4)));
            assert_eq!(exchange(&mut mote, &mut scene.station, FIRST + 4), Vec::<&str>::new());
            let in_copy = if is_copied { 30 } else { 0 };
            assert_eq!((mote.rollbacks(), mote.mote().given_up()), (1, in_copy + 7 + 5));
            assert!(mote.mote().chain().next_index > SealIndex(1 << 16));
            // The device continues, also after a restart.
            sense_and_end(&mut mote, FIRST + 4, 5..25);
            exchange(&mut mote, &mut scene.station, FIRST + 4);
            drop(mote);
            let mut mote = scene.open();
            sense_and_end(&mut mote, FIRST + 5, 0..9);
            assert_eq!(exchange(&mut mote, &mut scene.station, FIRST + 5), Vec::<&str>::new());
            assert_eq!((mote.rollbacks(), mote.mote().given_up()), (0, 0));
            let audited = audited(&scene.roster, &mut scene.station, FIRST..FIRST + 6);
            let id = group::device_id(&scene.roster, 0);
            let sealed = |epoch: u64| audited.sensed.get(&(id, FIRST + epoch)).copied();
            assert_eq!(
                [0, 1, 2, 3, 4, 5].map(sealed),
                [Some(30), Some(20), Some(20), None, Some(20), Some(9)],
                "{scheme:?}"
            );
        }
    }
}

/// A device serves the seals of its newest epoch to clients also after its gateway has stored them, but
/// not seals that contradict the stored ones.
#[test]
fn the_newest_epoch_is_kept_for_clients_until_the_chain_leaves_it() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let mut scene = Scene::new(scheme);
        let mut mote = scene.open();
        sense_and_end(&mut mote, FIRST, 0..30);
        mote.sync().unwrap();
        let kept = mote.mote().ended().unwrap().clone();
        drop(mote);
        let mut mote = scene.open();
        assert_eq!(mote.mote().ended(), Some(&kept), "the journal has it");
        exchange(&mut mote, &mut scene.station, FIRST);
        assert_eq!(mote.mote().ended(), Some(&kept), "the gateway has stored it");
        drop(mote);
        std::fs::remove_dir_all(scene.folder.path().join("mote-0")).unwrap();
        let mut mote = scene.open();
        sense_and_end(&mut mote, FIRST + 1, 0..7);
        assert!(mote.mote().ended().is_some());
        exchange(&mut mote, &mut scene.station, FIRST + 1);
        assert_eq!((mote.rollbacks(), mote.mote().ended()), (1, None));
    }
}

/// The journal is synced before the chain's state is written. A device that is killed in between
/// must start again.
#[test]
fn a_device_that_is_killed_while_it_continues_after_the_stored_seals_starts_again() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let mut scene = Scene::new(scheme);
        let mut mote = scene.open();
        sense_and_end(&mut mote, FIRST, 0..30);
        exchange(&mut mote, &mut scene.station, FIRST);
        drop(mote);
        std::fs::remove_dir_all(scene.folder.path().join("mote-0")).unwrap();
        // The new state signs more seals than the gateway has stored.
        let mut mote = scene.open();
        for epoch in FIRST + 1..FIRST + 4 {
            sense_and_end(&mut mote, epoch, 0..7);
        }
        mote.sync().unwrap();
        let chain = scene.folder.path().join("mote-0/chain");
        let lock = scene.folder.path().join("mote-0/chain.lock");
        let (before, lock_before) = (std::fs::read(&chain).unwrap(), std::fs::read(&lock).unwrap());
        exchange(&mut mote, &mut scene.station, FIRST + 3);
        assert_eq!((mote.rollbacks(), mote.mote().given_up()), (1, 21));
        mote.sync().unwrap();
        drop(mote);
        assert_ne!(std::fs::read(&chain).unwrap(), before);
        std::fs::write(&chain, before).unwrap();
        std::fs::write(&lock, lock_before).unwrap();

        let mut mote = scene.open();
        sense_and_end(&mut mote, FIRST + 4, 0..9);
        assert_eq!(exchange(&mut mote, &mut scene.station, FIRST + 4), Vec::<&str>::new());
        assert_eq!(mote.rollbacks(), 0);
        drop(mote);
        drop(scene.open());
        let audited = audited(&scene.roster, &mut scene.station, FIRST..FIRST + 5);
        let id = group::device_id(&scene.roster, 0);
        let sealed = |epoch: u64| audited.sensed.get(&(id, FIRST + epoch)).copied();
        assert_eq!([0, 1, 2, 3, 4].map(sealed), [Some(30), None, None, None, Some(9)]);
    }
}

/// Finding A1 of the review: a state that is deleted before any seal was stored.
#[test]
fn a_state_that_is_gone_before_the_first_seal_was_stored_is_detected() {
    let mut scene = Scene::new(Scheme::Star);
    let mut mote = scene.open();
    group::begin_session(&mut mote, &mut scene.station);
    sense(&mut mote, FIRST, 0..20);
    for frame in mote.frames(64).unwrap() {
        let _ = scene.station.receive(&frame, EpochNumber(FIRST)).unwrap();
    }
    let _ = scene.station.commit().unwrap();
    drop(mote);
    std::fs::remove_dir_all(scene.folder.path().join("mote-0")).unwrap();
    let mut mote = scene.open();
    // The new state has more readings than the gateway has of the old one.
    sense(&mut mote, FIRST, 100..150);
    group::begin_session(&mut mote, &mut scene.station);
    assert_eq!((mote.rollbacks(), mote.mote().given_up()), (1, 50));
    sense_and_end(&mut mote, FIRST + 1, 0..5);
    assert_eq!(exchange(&mut mote, &mut scene.station, FIRST + 1), Vec::<&str>::new());
    let audited = audited(&scene.roster, &mut scene.station, FIRST..FIRST + 2);
    let id = group::device_id(&scene.roster, 0);
    assert_eq!(audited.sensed.get(&(id, FIRST + 1)), Some(&5));
}

/// Finding A4 of the review: two devices run on copies of one state.
#[test]
fn a_second_device_with_the_same_key_is_detected_and_both_continue() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let mut scene = Scene::new(scheme);
        let mut first = scene.open();
        sense_and_end(&mut first, FIRST, 0..30);
        exchange(&mut first, &mut scene.station, FIRST);
        first.sync().unwrap();
        copy_state(scene.folder.path(), scene.copy.path());
        let mut second = scene.open_in(scene.copy.path());
        group::begin_session(&mut second, &mut scene.station);
        // Both devices seal the same index. The gateway stores the seal of the first one.
        sense_and_end(&mut first, FIRST + 1, 0..20);
        exchange(&mut first, &mut scene.station, FIRST + 1);
        sense_and_end(&mut second, FIRST + 1, 50..70);
        assert!(second.mote().has(SealIndex(1)));
        let refused = exchange(&mut second, &mut scene.station, FIRST + 1);
        assert!(!refused.is_empty() && refused.iter().all(|name| *name == "OtherSeal"));
        assert_eq!((second.rollbacks(), second.mote().given_up(), second.refused()), (1, 20, 0));
        sense_and_end(&mut second, FIRST + 2, 0..8);
        assert_eq!(exchange(&mut second, &mut scene.station, FIRST + 2), Vec::<&str>::new());
        // Now the first device is behind.
        sense_and_end(&mut first, FIRST + 3, 0..9);
        exchange(&mut first, &mut scene.station, FIRST + 3);
        assert_eq!((first.rollbacks(), first.mote().given_up()), (1, 9));
        sense_and_end(&mut first, FIRST + 4, 0..6);
        assert_eq!(exchange(&mut first, &mut scene.station, FIRST + 4), Vec::<&str>::new());
        let audited = audited(&scene.roster, &mut scene.station, FIRST..FIRST + 5);
        let id = group::device_id(&scene.roster, 0);
        let sealed = |epoch: u64| audited.sensed.get(&(id, FIRST + epoch)).copied();
        assert_eq!(
            [0, 1, 2, 3, 4].map(sealed),
            [Some(30), Some(20), Some(8), None, Some(6)],
            "{scheme:?}"
        );
    }
}

/// A device that restarts often while its gateway is away.
#[test]
fn restarts_without_a_gateway_do_not_lengthen_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(1, 1000, 1000);
    let mut device = group::mote(&roster, 0, folder.path(), 8);
    for epoch in 0..3 {
        device.sense(EpochNumber(FIRST + epoch), &[7; 4]).unwrap();
    }
    device.sync().unwrap();
    drop(device);
    let restarted = || {
        let sent_before = group::mote(&roster, 0, folder.path(), 8).mote().sent_before();
        (sent_before, std::fs::metadata(folder.path().join("mote-0/journal")).unwrap().len())
    };
    let once = restarted();
    assert!(once.0.is_some(), "the gateway has not answered");
    for _ in 0..10 {
        assert_eq!(restarted(), once);
    }
}

/// Finding A5 of the review.
#[test]
fn replayed_acknowledgements_have_no_effect_while_the_gateway_is_away() {
    let mut scene = Scene::new(Scheme::Star);
    let mut mote = scene.open();
    group::begin_session(&mut mote, &mut scene.station);
    // Record every acknowledgement while the gateway is there.
    let mut recorded = Vec::new();
    for start in 0..10 {
        sense(&mut mote, FIRST, start * 10..start * 10 + 10);
        mote.timeout();
        for frame in mote.frames(64).unwrap() {
            let _ = scene.station.receive(&frame, EpochNumber(FIRST)).unwrap();
            for (_, message) in scene.station.commit().unwrap().acknowledgements {
                mote.acknowledged(&message).unwrap().unwrap();
                recorded.push(message);
            }
        }
    }
    assert_eq!((mote.mote().buffered(), mote.mote().opened()), (0, Some(SealIndex(0))));
    // The gateway is away. Its acknowledgements arrive again after each timeout.
    mote.end(EpochNumber(FIRST)).unwrap();
    for _ in 0..20 {
        mote.timeout();
        mote.frames(64).unwrap();
        for message in &recorded {
            assert!(!mote.acknowledged(message).unwrap().unwrap(), "an old message had an effect");
        }
    }
    assert!(mote.mote().has(SealIndex(0)) && mote.rollbacks() == 0);
    assert_eq!(exchange(&mut mote, &mut scene.station, FIRST), Vec::<&str>::new());
    let audited = audited(&scene.roster, &mut scene.station, FIRST..FIRST + 1);
    assert_eq!(audited.sensed.values().collect::<Vec<_>>(), [&100]);
}
