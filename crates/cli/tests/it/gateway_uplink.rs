//! A gateway uploads its outbox to a real cloud. The outbox contains late seals that were pruned
//! above their epoch's round, and long epochs with few kept events. Damaged files do not block
//! other files. An audit of the cloud has no findings.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use moteseal_client::audit::{Doubt, Report, Verdict};
use moteseal_cloud::{Cloud, Config};
use moteseal_core::link::LinkKey;
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};
use moteseal_device::mote::Mote;
use moteseal_device::seal::{Chain, Profile};
use moteseal_gateway::{Gateway, Settings, Station};
use moteseal_net::in_memory::{Faults, Network};
use moteseal_net::{Client, Options};
use moteseal_seal::device_session::DeviceSession;
use moteseal_seal::follow::Limits;
use moteseal_seal::level::SaltKey;
use moteseal_store::{EpochStore, RedbStore};
use moteseal_verify::issue::{Budget, FirstRoster};
use moteseal_verify::{Event, ReadError, Roster, StreamReader};

const GROUP_SECRET: [u8; 32] = [0x51; 32];
const FIRST: u64 = 70;
const BUDGET: u64 = 30;

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

fn roster() -> Roster {
    let names = ["calm", "busy"];
    let devices: Vec<(&str, PublicKey)> =
        names.into_iter().zip(0..).map(|(name, at)| (name, secret(at).public())).collect();
    let budget = Some(Budget { events: BUDGET, coordinator: secret(99).public() });
    let first =
        FirstRoster { group: "field", epoch_ms: 1000, levels: 8, budget, devices: &devices };
    Roster::open(&first.issue(&secret(98)).unwrap(), &secret(98).public()).unwrap()
}

/// A station and its two devices, without a link between them.
struct Site {
    roster: Roster,
    folder: PathBuf,
    station: Station,
    calm: Mote<SecretKey>,
    busy: Mote<SecretKey>,
}

impl Site {
    fn new(folder: &Path) -> Self {
        let roster = roster();
        let folder = folder.join("gateway");
        let mut buffer = [0; 256];
        let schema = Schema::encode(&[Field::parse("reading::u32").unwrap()], &mut buffer).unwrap();
        let mote = |name: &str, at: u8| {
            let profile = Profile::new(&roster, name, Scheme::Star, &schema).unwrap();
            let link =
                LinkKey::new(&LinkKey::secret_of(&GROUP_SECRET, roster.group(), profile.device));
            let session = DeviceSession::new(profile.device, link, 1);
            let chain = Chain::start(profile.certificate);
            Mote::new(
                profile,
                secret(at),
                SaltKey::new([at ^ 0x33; 32]),
                session,
                chain,
                Vec::new(),
                8,
            )
        };
        let (calm, busy) = (mote("calm", 0), mote("busy", 1));
        Self { station: station(&folder, &roster), folder, calm, busy, roster }
    }

    /// Lets both devices send until no frame is due.
    fn exchange(&mut self) {
        let now = EpochNumber(FIRST + 100);
        for mote in [&mut self.calm, &mut self.busy] {
            loop {
                let frames = mote.frames(64).unwrap();
                if frames.is_empty() {
                    break;
                }
                frames.iter().for_each(|frame| _ = self.station.receive(frame, now).unwrap());
                for (_, acknowledgement) in self.station.commit().unwrap().acknowledgements {
                    let _ = mote.acknowledged(&acknowledgement);
                }
            }
        }
    }

    fn end(&mut self, epoch: u64) {
        self.station.end(EpochNumber(epoch)).unwrap();
        self.station.commit().unwrap();
    }

    /// Returns the number of files in the outbox.
    fn waiting(&self) -> usize {
        std::fs::read_dir(self.folder.join("outbox")).unwrap().count()
    }
}

fn station(folder: &Path, roster: &Roster) -> Station {
    Station::open(folder, roster.clone(), GROUP_SECRET, Box::new(secret(99)), 1 << 30).unwrap().0
}

fn sense(mote: &mut Mote<SecretKey>, epoch: u64, readings: u32) {
    (0..readings)
        .for_each(|reading| mote.sense(EpochNumber(epoch), &reading.to_be_bytes()).unwrap());
}

/// A real cloud on a free port.
struct Real {
    store: Arc<RedbStore>,
    client: Client,
    url: String,
}

impl Real {
    async fn serve(folder: &Path, config: Config) -> Self {
        let store = Arc::new(
            RedbStore::open(&folder.join("epochs.redb"), moteseal_store::Options::default())
                .unwrap(),
        );
        let cloud = Cloud::bind(config, Arc::clone(&store) as Arc<dyn EpochStore>).await.unwrap();
        let url = cloud.url();
        tokio::spawn(cloud.run(std::future::pending()));
        Self { store, client: Client::new(&url, &Options::default()).unwrap(), url }
    }

    async fn audit(&self, roster: &Roster) -> Report {
        moteseal_client::Client::new(&self.client, roster)
            .audit()
            .since(EpochNumber(FIRST))
            .run()
            .await
            .unwrap()
    }

    /// Returns the round of a device's seal in the store: all levels from this round on are kept.
    fn kept_from(&self, roster: &Roster, device: &str, index: u32) -> u8 {
        let seals = self.store.seals_at(roster.id(device).unwrap(), SealIndex(index)).unwrap();
        let [seal] = &seals[..] else { panic!("{} seals {index} of {device}", seals.len()) };
        seal.kept_from().0
    }
}

/// Runs a gateway without devices until its outbox has at most `left` files.
async fn upload(station: Station, outbox: &Path, cloud: &str, left: usize) {
    let settings = Settings { first_pause: Duration::from_millis(20), ..Settings::default() };
    let client = Client::new(cloud, &Options::default()).unwrap();
    let gateway = Gateway::bind(station, settings, Some(client)).await.unwrap();
    let link = Network::new(1, Faults::default()).parent();
    let is_done = async {
        while std::fs::read_dir(outbox).unwrap().count() > left {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let stop = async {
        let what = tokio::time::timeout(Duration::from_secs(20), is_done).await;
        let names = || {
            std::fs::read_dir(outbox)
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect::<Vec<_>>()
        };
        assert!(what.is_ok(), "these files were not uploaded: {:?}", names());
    };
    gateway.run(link, stop).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_seals_beyond_the_budget_reach_the_cloud_without_findings() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::new(folder.path());
    // The epoch ends while the device `busy` has an open seal.
    sense(&mut site.calm, FIRST, 10);
    site.calm.end(EpochNumber(FIRST)).unwrap();
    sense(&mut site.busy, FIRST, 20);
    site.exchange();
    site.end(FIRST);
    sense(&mut site.busy, FIRST, 1500);
    site.busy.end(EpochNumber(FIRST)).unwrap();
    site.exchange();
    // The device `busy` is absent for a whole epoch, which ends at round 0.
    sense(&mut site.calm, FIRST + 1, 10);
    site.calm.end(EpochNumber(FIRST + 1)).unwrap();
    site.exchange();
    site.end(FIRST + 1);
    sense(&mut site.busy, FIRST + 1, 700);
    site.busy.end(EpochNumber(FIRST + 1)).unwrap();
    site.exchange();
    // The first frame of an epoch arrives after a later epoch has ended, so the epoch never gets a
    // manifest.
    sense(&mut site.calm, FIRST + 3, 10);
    site.calm.end(EpochNumber(FIRST + 3)).unwrap();
    site.exchange();
    site.end(FIRST + 3);
    sense(&mut site.busy, FIRST + 2, 700);
    site.busy.end(EpochNumber(FIRST + 2)).unwrap();
    site.exchange();
    // Both devices continue.
    for mote in [&mut site.calm, &mut site.busy] {
        sense(mote, FIRST + 4, 10);
        mote.end(EpochNumber(FIRST + 4)).unwrap();
    }
    site.exchange();
    site.end(FIRST + 4);
    assert!(site.calm.is_done() && site.busy.is_done());
    assert_eq!(site.waiting(), 4 + 3, "four manifests and three late seals must wait");

    let cloud = Real::serve(folder.path(), Config::new(site.roster.clone())).await;
    upload(site.station, &site.folder.join("outbox"), &cloud.url, 0).await;
    let rounds = [0, 1, 2].map(|index| cloud.kept_from(&site.roster, "busy", index));
    assert!(
        rounds.iter().all(|&round| round >= 3),
        "the late seals must be pruned above round 0: {rounds:?}"
    );
    let report = cloud.audit(&site.roster).await;
    let busy = site.roster.id("busy").unwrap();
    assert_eq!(report.findings().count(), 0, "{report:?}");
    let late = |index: u32| Doubt::Late { device: busy, index: SealIndex(index) };
    let doubts: Vec<&[Doubt]> = report.epochs.iter().map(|epoch| &epoch.doubts[..]).collect();
    assert!(doubts[0].contains(&late(0)) && doubts[1].contains(&late(1)), "{report:?}");
    assert!(doubts[2].contains(&Doubt::NoManifest { has_gone_on: true }), "{report:?}");
    let last = report.epochs.last().unwrap();
    assert!(last.is_justified && last.epoch.0 == FIRST + 4, "{report:?}");
}

#[test]
fn a_seal_that_was_open_at_the_end_of_its_epoch_has_the_budget_of_late_seals() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::new(folder.path());
    // Neither the listed seal nor the late seal exceeds the budget, but both together do.
    sense(&mut site.calm, FIRST, 20);
    site.calm.end(EpochNumber(FIRST)).unwrap();
    sense(&mut site.busy, FIRST, 1);
    site.exchange();
    site.end(FIRST);
    sense(&mut site.busy, FIRST, 24);
    site.busy.end(EpochNumber(FIRST)).unwrap();
    site.exchange();
    assert!(site.busy.is_done());
    let late = |station: &Station| {
        let names = station.outbox().names();
        let late = names.into_iter().filter(|name| name.late.is_some());
        late.map(|name| station.outbox().read(name).unwrap().bundles).collect::<Vec<_>>()
    };
    let before = late(&site.station);
    let [bundles] = &before[..] else { panic!("{} late seals", before.len()) };
    let mut kept = 0;
    let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
        if let Event::Proven(proven) = event {
            kept += proven.sample.len();
        }
        Ok(())
    };
    let mut reader = StreamReader::new(&site.roster, Limits::default());
    reader.feed(&bundles[0], &mut visit).unwrap();
    reader.finish(&mut visit).unwrap();
    assert_eq!(kept, 25, "the late seal must have all its events");
    // A restarted gateway replays the frames of the late seal. The result is the same.
    let Site { folder, roster, station: stopped, .. } = site;
    drop(stopped);
    let mut restarted = station(&folder, &roster);
    restarted.commit().unwrap();
    assert_eq!(late(&restarted), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_respect_the_limit_of_events_of_a_cloud() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::new(folder.path());
    // The two seals have 600 events each, and the budget of 30 keeps few of these events. The
    // bundles are short, but a cloud has to compute the level of every event.
    for mote in [&mut site.calm, &mut site.busy] {
        sense(mote, FIRST, 600);
        mote.end(EpochNumber(FIRST)).unwrap();
    }
    site.exchange();
    site.end(FIRST);
    let mut config = Config::new(site.roster.clone());
    config.limits.events = 1000;
    let cloud = Real::serve(folder.path(), config).await;
    upload(site.station, &site.folder.join("outbox"), &cloud.url, 0).await;
    assert!(cloud.kept_from(&site.roster, "calm", 0) > 0);
    let report = cloud.audit(&site.roster).await;
    assert_eq!((report.verdict(), report.epochs.len()), (Verdict::Justified, 1), "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_files_stay_removed_ones_are_given_up_and_the_rest_is_uploaded() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::new(folder.path());
    for epoch in FIRST..FIRST + 4 {
        for mote in [&mut site.calm, &mut site.busy] {
            sense(mote, epoch, 10);
            mote.end(EpochNumber(epoch)).unwrap();
        }
        site.exchange();
        site.end(epoch);
    }
    let outbox = site.folder.join("outbox");
    let item = |epoch: u64| outbox.join(format!("{epoch:020}.epoch"));
    let mut bytes = std::fs::read(item(FIRST + 1)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(item(FIRST + 1), &bytes).unwrap();
    std::fs::remove_file(item(FIRST + 2)).unwrap();
    let cloud = Real::serve(folder.path(), Config::new(site.roster.clone())).await;
    upload(site.station, &outbox, &cloud.url, 1).await;
    assert!(std::fs::read(item(FIRST + 1)).unwrap() == bytes, "the damaged file must not change");
    let epochs = |manifests: Vec<moteseal_store::StoredManifest>| {
        manifests.iter().map(|at| at.epoch().0).collect::<Vec<_>>()
    };
    assert_eq!(
        epochs(cloud.store.manifests(EpochNumber(0), None, None, 9).unwrap()),
        [FIRST, FIRST + 3]
    );
    // A repaired file is uploaded after the next start, or after ten minutes.
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(item(FIRST + 1), &bytes).unwrap();
    upload(station(&site.folder, &site.roster), &outbox, &cloud.url, 0).await;
    assert_eq!(
        epochs(cloud.store.manifests(EpochNumber(0), None, None, 9).unwrap()),
        [FIRST, FIRST + 1, FIRST + 3]
    );
}
