//! A group with a budget for other tests: its keys and roster, motes that replay known readings,
//! the station of a gateway, a cloud that stores the uploads, and the audit of the uploads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::put;
use moteseal_adversary::{Answer, Item};
use moteseal_client::audit::{Audit, Report};
use moteseal_core::link::{LinkKey, MAX_FRAME};
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Framing, Round, SealIndex, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey, Signer};
use moteseal_core::{DeviceId, Digest};
use moteseal_device::durable::{DurableError, Identity};
use moteseal_device::import::Clock;
use moteseal_device::key_ring::KeyRing;
use moteseal_device::{Chain, DurableMote, Import, Outbox, Profile, Recording, chain_state};
use moteseal_gateway::Station;
use moteseal_seal::Statement;
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::Limits;
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::Manifest;
use moteseal_seal::wire::{Acknowledgement, Forward, MAX_ACKNOWLEDGEMENT, Uplink};
use moteseal_sum::policy::{MAX_POLICY, PolicyDraft, QuerierTerms};
use moteseal_verify::issue::{Budget, ChangeError, FirstRoster, NextRoster};
use moteseal_verify::{Event, ReadError, Roster, StreamReader, write};

pub(crate) const LEVELS: u8 = 8;
pub(crate) const GROUP_SECRET: [u8; 32] = [0x51; 32];
pub(crate) const COORDINATOR: u8 = 99;
pub(crate) const OPERATOR: u8 = 98;
/// The first epoch of recordings.
pub(crate) const FIRST: u64 = 70;

pub(crate) fn secret(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

/// Returns the key that a device or the coordinator changes to.
pub(crate) fn next_key(byte: u8) -> SecretKey {
    secret(byte ^ 0x80)
}

/// Issues the version after `before` with a change.
pub(crate) fn next_version(
    before: &Roster,
    change: impl FnOnce(&mut NextRoster<'_>) -> Result<(), ChangeError>,
) -> Roster {
    let operator = secret(OPERATOR);
    let mut next = NextRoster::after(before.bytes(), &operator, &operator.public()).unwrap();
    change(&mut next).unwrap();
    let later = Roster::open(&next.issue().unwrap(), &operator.public()).unwrap();
    later.check_succeeds(before).unwrap();
    later
}

/// Returns the group's roster, with devices `mote-0`, `mote-1` and so on.
pub(crate) fn roster(devices: u8, budget: u64, epoch_ms: u64) -> Roster {
    let names: Vec<String> = (0..devices).map(|device| format!("mote-{device}")).collect();
    let keys: Vec<(&str, PublicKey)> = names
        .iter()
        .zip(0..)
        .map(|(name, device)| (name.as_str(), secret(device).public()))
        .collect();
    let budget = Some(Budget { events: budget, coordinator: secret(COORDINATOR).public() });
    let first = FirstRoster { group: "field", epoch_ms, levels: LEVELS, budget, devices: &keys };
    Roster::open(&first.issue(&secret(OPERATOR)).unwrap(), &secret(OPERATOR).public()).unwrap()
}

pub(crate) fn device_id(roster: &Roster, device: u8) -> DeviceId {
    roster.id(&format!("mote-{device}")).unwrap()
}

pub(crate) fn link_key(roster: &Roster, device: DeviceId) -> LinkKey {
    LinkKey::new(&LinkKey::secret_of(&GROUP_SECRET, roster.group(), device))
}

/// Returns a device's frame with the schema of the events of [`forward_frame`].
pub(crate) fn schema_frame(device: DeviceId, key: &LinkKey) -> Vec<u8> {
    let mut buffer = [0; 256];
    let schema = Schema::encode(&[Field::parse("reading::u32").unwrap()], &mut buffer).unwrap();
    let mut out = vec![0; MAX_FRAME];
    Uplink::Schema(schema.as_bytes()).close(device, key, &mut out).unwrap().to_vec()
}

/// Returns a device's frame with events of one level, one for each sequence number in `range`. The
/// record of an event is its sequence number.
pub(crate) fn forward_frame(
    (device, key): (DeviceId, &LinkKey),
    (index, epoch): (u32, u64),
    range: std::ops::Range<u64>,
    level: u8,
) -> Vec<u8> {
    let mut events = Vec::new();
    for seq in range.clone() {
        // An event is encoded as the distance from the previous event (here 0) and its level in one
        // byte, followed by the record.
        events.push(level);
        events.extend_from_slice(&u32::try_from(seq).unwrap().to_be_bytes());
    }
    let forward = Forward {
        index: SealIndex(index),
        epoch: EpochNumber(epoch),
        own_round: Round(0),
        from: Sequence(range.start),
        until: Sequence(range.end),
        framing: Framing::fixed(4).unwrap(),
        events: &events,
        digests: None,
    };
    let mut out = vec![0; MAX_FRAME];
    Uplink::Forward(forward).close(device, key, &mut out).unwrap().to_vec()
}

/// Returns the n-th reading of a device in an epoch.
pub(crate) fn reading(device: u8, epoch: u64, n: u64) -> u32 {
    u32::from(device) << 24 | u32::try_from((epoch - FIRST) << 16 | n).unwrap()
}

/// Returns the readings of a device: `per_epoch` in each of `epochs` epochs from [`FIRST`] on.
pub(crate) fn recording(device: u8, epoch_ms: u64, epochs: u64, per_epoch: u64) -> Recording {
    let mut table = String::from("ts,reading\n");
    for epoch in FIRST..FIRST + epochs {
        for n in 0..per_epoch {
            let unix_ms = epoch * epoch_ms + n * epoch_ms / per_epoch;
            table += &format!(
                "{}.{:03},{}\n",
                unix_ms / 1000,
                unix_ms % 1000,
                reading(device, epoch, n)
            );
        }
    }
    let import = Import {
        columns: vec!["reading::u32".to_owned()],
        opaque: None,
        clock: Clock::Column("ts".to_owned()),
        keep_time: None,
        delimiter: None,
        skip_incomplete: false,
        sort: false,
        latest_ms: None,
    };
    import.read(Path::new("recording"), table.as_bytes()).unwrap()
}

/// Opens a device's mote with its state in a folder.
pub(crate) fn mote(
    roster: &Roster,
    device: u8,
    folder: &Path,
    most_waiting: u32,
) -> DurableMote<SecretKey> {
    unlocked(|| open_mote(roster, device, folder, most_waiting, |_| {}))
}

/// Opens a mote with a changed profile. Returns an error if its state does not fit the profile.
pub(crate) fn open_mote(
    roster: &Roster,
    device: u8,
    folder: &Path,
    most_waiting: u32,
    change: impl FnOnce(&mut Profile),
) -> Result<DurableMote<SecretKey>, DurableError> {
    let mut buffer = [0; 256];
    let schema = Schema::encode(&[Field::parse("reading::u32").unwrap()], &mut buffer).unwrap();
    let mut profile =
        Profile::new(roster, &format!("mote-{device}"), Scheme::Star, &schema).unwrap();
    change(&mut profile);
    let folder = folder.join(format!("mote-{device}"));
    std::fs::create_dir_all(&folder).unwrap();
    let state = unlocked(|| {
        let chain = folder.join("chain");
        let start = Chain::start(profile.certificate);
        let _ = chain_state::begin(&chain, profile.device, &start);
        Outbox::open(&folder, &chain, roster, profile.device)
    });
    // Each session has its own challenges.
    static SESSIONS: AtomicU64 = AtomicU64::new(1);
    let (keys, profile_device) = (vec![secret(device), next_key(device)], profile.device);
    let identity = Identity {
        link: link_key(roster, profile.device),
        challenge: SESSIONS.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        profile,
        keys: KeyRing::new(keys, roster.device(profile_device).unwrap()).unwrap(),
        salt_key: SaltKey::new([device ^ 0x33; 32]),
        coordinators: roster.coordinators(),
        keeps_ended: true,
    };
    DurableMote::open(identity, state, &folder.join("journal"), most_waiting)
}

/// Delivers a device's schema and challenge and the gateway's answer, so that the device then sends
/// its seals.
pub(crate) fn begin_session(mote: &mut DurableMote<SecretKey>, station: &mut Station) {
    for frame in mote.frames(8).unwrap() {
        let _ = station.receive(&frame, EpochNumber(FIRST)).unwrap();
    }
    for (_, answer) in station.commit().unwrap().acknowledgements {
        mote.acknowledged(&answer).unwrap().unwrap();
    }
    assert!(mote.mote().has_begun());
}

/// Answers a device's challenge like a gateway that has nothing of the device. Returns the frames
/// that the device sent first, and its challenge.
pub(crate) fn answer_challenge(
    roster: &Roster,
    mote: &mut DurableMote<SecretKey>,
) -> (Vec<Vec<u8>>, u64) {
    let (device, frames) = (mote.mote().profile().device, mote.frames(8).unwrap());
    let key = link_key(roster, device);
    let challenge = frames.iter().find_map(|frame| match Uplink::open(frame, &key).unwrap() {
        Uplink::Challenge(challenge) => Some(challenge),
        _ => None,
    });
    let answer = Acknowledgement {
        index: SealIndex(0),
        next: Sequence(0),
        sealed: None,
        wants_schema: false,
        challenge,
    };
    let mut out = [0; MAX_ACKNOWLEDGEMENT];
    mote.acknowledged(answer.close(device, &key, &mut out).unwrap()).unwrap().unwrap();
    (frames, challenge.expect("a session begins with a challenge"))
}

pub(crate) fn station(roster: &Roster, folder: &Path, bound: u64) -> Station {
    let folder = folder.join("gateway");
    let keys = || -> Vec<Box<dyn Signer + Send>> {
        vec![Box::new(secret(COORDINATOR)), Box::new(next_key(COORDINATOR))]
    };
    unlocked(|| Station::open(&folder, roster.clone(), GROUP_SECRET, keys(), bound)).0
}

/// Opens a state that was open before in this process, with retries. A child process that another
/// test starts inherits copies of all open files, and therefore their locks, from the fork until
/// its exec.
fn unlocked<T, E: std::fmt::Debug>(mut open: impl FnMut() -> Result<T, E>) -> T {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        match open() {
            Err(error)
                if format!("{error:?}").contains("Locked(") && std::time::Instant::now() < end =>
            {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            opened => return opened.unwrap(),
        }
    }
}

/// A seal in the outbox: index, epoch, number of events, whether it states a restart, and whether
/// it ends its epoch.
pub(crate) type Found = (u32, u64, u64, bool, bool);

/// Returns the statements of a single device that are in a gateway's outbox, by index.
pub(crate) fn statements(roster: &Roster, station: &Station) -> Vec<Statement> {
    let mut found = Vec::new();
    let outbox = station.outbox();
    for bundle in outbox.names().into_iter().flat_map(|name| outbox.read(name).unwrap().bundles) {
        let mut reader = StreamReader::new(roster, Limits::default());
        let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
            if let Event::Proven(proven) = event {
                found.push(proven.seal.statement().clone());
            }
            Ok(())
        };
        reader.feed(&bundle, &mut visit).unwrap();
        reader.finish(&mut visit).unwrap();
    }
    found.sort_unstable_by_key(|statement| statement.index);
    found
}

/// Returns the seals of a single device that are in a gateway's outbox, by index.
pub(crate) fn sealed(roster: &Roster, station: &Station) -> Vec<Found> {
    let found = |statement: &Statement| {
        let (index, epoch) = (statement.index.0, statement.epoch.0);
        (index, epoch, statement.counters.total(), statement.restart, statement.last_in_epoch)
    };
    statements(roster, station).iter().map(found).collect()
}

/// A cloud that stores every upload, or refuses every upload with a given status.
#[derive(Clone, Default)]
pub(crate) struct Cloud {
    /// The manifests in the order of arrival, without repetitions.
    pub(crate) manifests: Arc<Mutex<Vec<Bytes>>>,
    /// The bundles by their digest.
    pub(crate) bundles: Arc<Mutex<BTreeMap<Digest, Bytes>>>,
    /// The status with which every upload is refused; 0 to accept uploads.
    pub(crate) refuses: Arc<AtomicU16>,
}

impl Cloud {
    /// Listens on a free port. Returns the URL.
    pub(crate) async fn serve(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .route("/v1/manifests", put(manifests))
            .route("/v1/bundles", put(bundles))
            .with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        url
    }

    /// Takes everything in a gateway's outbox, as if the gateway had uploaded it.
    pub(crate) fn take(&self, station: &Station) {
        let outbox = station.outbox();
        for item in outbox.names().into_iter().map(|name| outbox.read(name).unwrap()) {
            self.manifests.lock().unwrap().extend(item.manifest.map(Into::into));
            for bundle in item.bundles {
                self.bundles.lock().unwrap().insert(Digest::of(&[&bundle]), bundle.into());
            }
        }
    }

    fn refusal(&self) -> Option<StatusCode> {
        StatusCode::from_u16(self.refuses.load(Ordering::Relaxed)).ok()
    }
}

async fn manifests(State(cloud): State<Cloud>, body: Bytes) -> StatusCode {
    if let Some(refusal) = cloud.refusal() {
        return refusal;
    }
    let mut manifests = cloud.manifests.lock().unwrap();
    if !manifests.contains(&body) {
        manifests.push(body);
    }
    StatusCode::OK
}

async fn bundles(State(cloud): State<Cloud>, body: Bytes) -> StatusCode {
    if let Some(refusal) = cloud.refusal() {
        return refusal;
    }
    cloud.bundles.lock().unwrap().insert(Digest::of(&[&body]), body);
    StatusCode::OK
}

/// The result of the audit of a gateway's uploads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Audited {
    /// The epochs that are justified, and those that are undetermined.
    pub(crate) justified: Vec<u64>,
    pub(crate) undetermined: Vec<u64>,
    /// The number of kept events by epoch.
    pub(crate) kept: BTreeMap<u64, u64>,
    /// The number of seals that no manifest lists.
    pub(crate) late: u64,
    /// The indices of each device's seals.
    pub(crate) indices: BTreeMap<DeviceId, BTreeSet<u32>>,
    /// The number of events that the seals of each device cover, by epoch.
    pub(crate) sensed: BTreeMap<(DeviceId, u64), u64>,
}

/// Verifies everything that a cloud received and audits it. The audit must have no findings.
/// `expected` returns the record of an event by device, epoch and sequence number.
pub(crate) fn audit(
    roster: &Roster,
    cloud: &Cloud,
    expected: &dyn Fn(DeviceId, u64, u64) -> Option<[u8; 4]>,
) -> Audited {
    let mut audited = Audited::default();
    // Every seal, by device and index.
    let mut seals: BTreeMap<(DeviceId, SealIndex), Uploaded> = BTreeMap::new();
    for bundle in cloud.bundles.lock().unwrap().values().flat_map(|body| bundles_of(body)) {
        let mut reader = StreamReader::new(roster, Limits::default());
        let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
            let Event::Proven(proven) = event else { return Ok(()) };
            let statement = proven.seal.statement();
            let (device, index, EpochNumber(epoch)) =
                (statement.device, statement.index, statement.epoch);
            let mut kept = 0;
            proven.sample.for_each(&Scalar, |seq, _, record| {
                if let Some(expected) = expected(device, epoch, seq.0) {
                    assert_eq!(record, expected, "{device} epoch {epoch} event {}", seq.0);
                }
                kept += 1;
            });
            let uploaded =
                Uploaded { digest: proven.seal.digest(), epoch, kept, bundle: bundle.clone() };
            match seals.insert((device, index), uploaded) {
                Some(before) => assert_eq!(
                    before.digest,
                    proven.seal.digest(),
                    "two seals under one index: {device} {index}"
                ),
                None => {
                    *audited.sensed.entry((device, epoch)).or_default() +=
                        statement.counters.total();
                }
            }
            Ok(())
        };
        reader.feed(&bundle, &mut visit).unwrap();
        reader.finish(&mut visit).unwrap();
    }
    for (device, index) in seals.keys() {
        audited.indices.entry(*device).or_default().insert(index.0);
    }
    let by_digest: BTreeMap<Digest, &Uploaded> =
        seals.values().map(|uploaded| (uploaded.digest, uploaded)).collect();
    let mut listed = 0;
    for bytes in cloud.manifests.lock().unwrap().iter() {
        let mut scratch = vec![0; bytes.len() + 64];
        let period = roster.period(Manifest::claimed_epoch(bytes).unwrap());
        let coordinator = period.coordinator.as_ref().unwrap();
        let manifest = Manifest::open(bytes, roster.group(), coordinator, &mut scratch).unwrap();
        let EpochNumber(epoch) = manifest.epoch();
        let mut kept = 0;
        for digest in manifest.devices().flat_map(|(_, seals)| seals) {
            let uploaded = by_digest.get(&digest).expect("a seal that is listed and not uploaded");
            assert_eq!(uploaded.epoch, epoch);
            kept += uploaded.kept;
            listed += 1;
        }
        assert!(kept <= period.budget.unwrap(), "epoch {epoch} has {kept} events");
        assert!(audited.kept.insert(epoch, kept).is_none(), "two manifests for epoch {epoch}");
    }
    audited.late = seals.len() as u64 - listed;
    let report = report(roster, cloud, seals.values().map(|uploaded| uploaded.bundle.as_slice()));
    let found: Vec<_> =
        report.findings().map(|(epoch, finding)| (epoch, finding.describe(roster))).collect();
    assert!(found.is_empty(), "an honest gateway is accused: {found:?}");
    for epoch in &report.epochs {
        let epochs =
            if epoch.is_justified { &mut audited.justified } else { &mut audited.undetermined };
        epochs.push(epoch.epoch.0);
        // An undetermined epoch has a doubt, which names a device or states that the epoch has no
        // manifest.
        assert!(epoch.is_justified || !epoch.doubts.is_empty(), "{epoch:?}");
    }
    audited
}

/// A seal that was uploaded to the cloud.
struct Uploaded {
    digest: Digest,
    epoch: u64,
    /// The number of its events that were kept.
    kept: u64,
    bundle: Vec<u8>,
}

/// Returns the client's audit of a cloud's manifests and of these bundles, which are sorted by
/// device and index.
fn report<'b>(roster: &Roster, cloud: &Cloud, bundles: impl Iterator<Item = &'b [u8]>) -> Report {
    let mut audit = Audit::new(roster, EpochNumber(0), None).unwrap();
    let mut stream = Vec::new();
    cloud
        .manifests
        .lock()
        .unwrap()
        .iter()
        .for_each(|manifest| write::manifest(&mut stream, manifest));
    bundles.for_each(|bundle| stream.extend_from_slice(bundle));
    write::end(&mut stream);
    let mut feed = audit.stream();
    feed.feed(&stream).unwrap();
    feed.finish().unwrap();
    audit.finish()
}

/// Splits an upload into bundles of one seal, each with a schema, an open item and a part.
fn bundles_of(body: &[u8]) -> Vec<Vec<u8>> {
    let items = Answer::decode(body).unwrap().items;
    let of_three = |bundle: &[Item]| {
        assert!(matches!(bundle, [Item::Schema(_), Item::Open(_), Item::Part(_)]), "{bundle:?}");
        Answer { items: bundle.to_vec() }.encode()
    };
    items.chunks(3).map(of_three).collect()
}

/// Returns the payload of a policy of private sums with the default minimums.
pub(crate) fn policy(roster: &Roster, version: u32, queriers: &[QuerierTerms<'_>]) -> Vec<u8> {
    let draft = PolicyDraft {
        group: roster.group(),
        roster: roster.first_digest(),
        version,
        min_count: 5,
        min_count_squares: 8,
        queriers,
    };
    draft.encode(&mut vec![0; MAX_POLICY]).unwrap().to_vec()
}
