//! The third part of the demonstration of seals: a group changes while its cloud runs. A mote joins,
//! another one gets a new key, loses its state and recovers it from the cloud. Then a thief uses the
//! old key, and the cloud is offered an old version of the roster.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use moteseal_api::Query;
use moteseal_client::pinned::PinnedSeals;
use moteseal_client::{Report, Rows};
use moteseal_core::record::{DeviceId, EpochNumber, Scheme, SealIndex};
use moteseal_core::schema::Schema;
use moteseal_core::signature::SecretKey;
use moteseal_device::push::Push;
use moteseal_device::{Bundle, Chain, Outbox, Profile, Sealer, chain_state};
use moteseal_net::Client;
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::{Choice, Rate};
use moteseal_terminal::failure::Failure;
use moteseal_verify::Roster;
use moteseal_verify::issue::{ChangeError, FirstRoster, NextRoster};
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::fleet::LEVELS;
use crate::readings::{EPOCH_MS, Mote};
use crate::{internal, random};

const GROUP: &str = "life";
/// How long to wait until the cloud has loaded a version of the roster.
const LOADING: Duration = Duration::from_secs(20);

/// What happened in this part of the demonstration.
#[derive(Debug)]
pub(crate) struct Life {
    /// The names of the mote that joins and of the mote that gets a new key.
    pub(crate) joined: &'static str,
    pub(crate) rotated: &'static str,
    /// The newest seal that the cloud had of the mote that lost its state, and the next index after
    /// the recovery.
    pub(crate) recovered: (SealIndex, SealIndex),
    /// The newest version of the roster.
    pub(crate) version: u32,
    /// The report on all readings, under the newest version of the roster.
    pub(crate) report: Report,
    /// The attacks: what was tried, and the error, or `None` if it succeeded.
    pub(crate) attacks: [(&'static str, Option<String>); 2],
}

impl Life {
    pub(crate) fn uncaught(&self) -> usize {
        self.attacks.iter().filter(|(_, refused)| refused.is_none()).count()
    }
}

/// The group: its operator, the newest version of its roster, and its cloud.
struct Group<'c> {
    home: PathBuf,
    operator: SecretKey,
    roster: Roster,
    bytes: Vec<u8>,
    versions: watch::Sender<Arc<Roster>>,
    cloud: &'c Client,
}

/// A mote with its key. The state of its chain is in a file.
struct Device<'m> {
    mote: &'m Mote,
    key: SecretKey,
    salt: Zeroizing<[u8; 32]>,
}

/// The keys and the first version of the roster. [`play`] continues with them.
pub(crate) struct Start {
    operator: SecretKey,
    bytes: Vec<u8>,
    key: SecretKey,
    pub(crate) versions: watch::Sender<Arc<Roster>>,
}

/// Issues the first version of the roster, with the first mote.
pub(crate) fn start(motes: &[Mote]) -> Result<Start, Failure> {
    let (operator, key) = (random::signing_key()?, random::signing_key()?);
    let first = FirstRoster {
        group: GROUP,
        epoch_ms: EPOCH_MS,
        levels: LEVELS,
        budget: None,
        devices: &[(motes[0].name, key.public())],
    };
    let bytes = first.issue(&operator).map_err(internal)?;
    let roster = Roster::open(&bytes, &operator.public()).map_err(internal)?;
    let (versions, _) = watch::channel(Arc::new(roster));
    Ok(Start { operator, bytes, key, versions })
}

/// Plays this part with the first two motes. The cloud behind `cloud` follows `start.versions`.
pub(crate) async fn play(
    home: &Path,
    start: Start,
    motes: &[Mote],
    cloud: &Client,
) -> Result<Life, Failure> {
    let Start { operator, bytes, key, versions } = start;
    let roster = Roster::clone(&versions.borrow());
    let home = home.join(GROUP);
    fs::create_dir_all(&home).map_err(|error| Failure::file("create", &home, &error))?;
    let mut group = Group { home, operator, roster, bytes, versions, cloud };
    let mut first = Device { mote: &motes[0], key, salt: random::bytes()? };
    let second = Device { mote: &motes[1], key: random::signing_key()?, salt: random::bytes()? };
    let (since, until) = (first.epochs().0, first.epochs().1.min(second.epochs().1));
    let quarter = |number: u64| EpochNumber(since + (until - since) * number / 4);

    group.begin(&first)?;
    group.seal(&first, (quarter(0), quarter(1)))?;
    group.push().await?;

    // A mote joins.
    let (name, public) = (second.mote.name, second.key.public());
    group.change(|next| next.add(name, &public, quarter(1)))?;
    group.begin(&second)?;
    group.seal(&first, (quarter(1), quarter(2)))?;
    group.seal(&second, (quarter(1), quarter(4)))?;
    group.push().await?;

    // A mote gets a new key. Its chain continues.
    let old_version = group.roster.clone();
    let stolen = std::mem::replace(&mut first.key, random::signing_key()?);
    let (name, public) = (first.mote.name, first.key.public());
    group.change(|next| next.rotate(name, &public, quarter(2), SealIndex(0)))?;
    group.seal(&first, (quarter(2), quarter(3)))?;
    group.push().await?;

    // The mote loses its state and recovers it from the cloud.
    let state = group.state(&first);
    let before = chain_state::read(&state, group.id(&first)?).map_err(internal)?;
    fs::remove_file(&state).map_err(|error| Failure::file("remove", &state, &error))?;
    let recovered = group.recover(&first).await?;
    group.seal(&first, (quarter(3), quarter(4)))?;
    group.push().await?;

    // A thief has the old key, and a copy of the state.
    let (chain, _) = before.ok_or_else(|| internal("a mote has no state"))?;
    let thief = Device { mote: first.mote, key: stolen, salt: first.salt.clone() };
    let forged = seal(&old_version, &thief, chain, (quarter(3), EpochNumber(quarter(3).0 + 1)))?;
    let stolen_key = group.refusal(&forged).await?;
    let old_roster = old_version.check_succeeds(&group.roster).err();

    let query = Query {
        devices: vec![group.id(&first)?, group.id(&second)?],
        since: quarter(0),
        until: Some(quarter(4)),
        choice: Choice::Rate(Rate::ALL),
        columns: Vec::new(),
    };
    let report = moteseal_client::Client::new(cloud, &group.roster)
        .query(&query)
        .run(&mut |_: &Rows<'_>| Ok(()))
        .await
        .map_err(internal)?
        .report;
    let sealed = first.readings((quarter(0), quarter(4))).count()
        + second.readings((quarter(1), quarter(4))).count();
    if report.rows() != sealed as u64 || !report.is_complete() {
        return Err(internal(format_args!(
            "HONEST DATA WAS REJECTED: {} of {sealed} readings verified; this is a fault of Moteseal; please report it",
            report.rows()
        )));
    }
    Ok(Life {
        joined: second.mote.name,
        rotated: first.mote.name,
        recovered,
        version: group.roster.version(),
        report,
        attacks: [
            ("a seal of the old key", stolen_key),
            ("the version of the roster before", old_roster.map(|error| error.name().to_owned())),
        ],
    })
}

impl Device<'_> {
    /// Returns the first epoch of the recording, and the first epoch that the recording does not
    /// fill.
    fn epochs(&self) -> (u64, u64) {
        let mut times = self.mote.recording.iter().map(|(unix_ms, _)| unix_ms);
        let (first, last) = (times.next().unwrap_or(0), times.next_back().unwrap_or(0));
        (first / EPOCH_MS, last / EPOCH_MS)
    }

    /// Returns the readings of a range of epochs.
    fn readings(
        &self,
        (since, until): (EpochNumber, EpochNumber),
    ) -> impl Iterator<Item = (EpochNumber, &[u8])> {
        self.mote
            .recording
            .iter()
            .map(|(unix_ms, record)| (EpochNumber(unix_ms / EPOCH_MS), record))
            .filter(move |(epoch, _)| (since..until).contains(epoch))
    }
}

/// Seals the readings of a range of epochs.
fn seal(
    roster: &Roster,
    device: &Device<'_>,
    chain: Chain,
    epochs: (EpochNumber, EpochNumber),
) -> Result<Vec<Bundle>, Failure> {
    let schema = Schema::decode(&device.mote.recording.schema).map_err(internal)?;
    let profile =
        Profile::new(roster, device.mote.name, Scheme::Star, &schema).map_err(internal)?;
    let salt = SaltKey::new(*device.salt);
    let mut sealer = Sealer::new(profile, device.key.clone(), salt, chain);
    let mut bundles = Vec::new();
    for (epoch, record) in device.readings(epochs) {
        bundles.extend(sealer.push(epoch, record).map_err(internal)?);
    }
    bundles.extend(sealer.close(true).map_err(internal)?);
    Ok(bundles)
}

impl Group<'_> {
    fn id(&self, device: &Device<'_>) -> Result<DeviceId, Failure> {
        self.roster.id(device.mote.name).ok_or_else(|| internal("the roster lacks a mote"))
    }

    fn state(&self, device: &Device<'_>) -> PathBuf {
        self.home.join(format!("{}.chain", device.mote.name))
    }

    fn bundles(&self) -> PathBuf {
        self.home.join("bundles")
    }

    /// Begins a mote's chain.
    fn begin(&self, device: &Device<'_>) -> Result<(), Failure> {
        let id = self.id(device)?;
        let listed = self.roster.device(id).ok_or_else(|| internal("the roster lacks a mote"))?;
        let chain = Chain::start(listed.certificate);
        chain_state::begin(&self.state(device), id, &chain).map_err(internal)
    }

    /// Seals the readings of a range of epochs into the group's folder of bundles.
    fn seal(&self, device: &Device<'_>, epochs: (EpochNumber, EpochNumber)) -> Result<(), Failure> {
        let (state, id) = (self.state(device), self.id(device)?);
        let (outbox, chain) =
            Outbox::open(&self.bundles(), &state, &self.roster, id).map_err(internal)?;
        let sealed = seal(&self.roster, device, chain, epochs)?;
        outbox.store(&sealed, &mut |_| {}).map(drop).map_err(internal)
    }

    /// Pushes the new bundles. Waits until the cloud has loaded the newest version of the roster.
    async fn push(&self) -> Result<(), Failure> {
        let push = Push::open(&self.bundles()).map_err(internal)?;
        let start = Instant::now();
        loop {
            match push.to(self.cloud, &mut |_| {}).await {
                Ok(_) => return Ok(()),
                Err(error) if start.elapsed() > LOADING => return Err(internal(error)),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Issues the next version of the roster. The cloud loads it while it runs.
    fn change(
        &mut self,
        change: impl FnOnce(&mut NextRoster<'_>) -> Result<(), ChangeError>,
    ) -> Result<(), Failure> {
        let public = self.operator.public();
        let mut next = NextRoster::after(&self.bytes, &self.operator, &public).map_err(internal)?;
        change(&mut next).map_err(internal)?;
        self.bytes = next.issue().map_err(internal)?;
        let roster = Roster::open(&self.bytes, &public).map_err(internal)?;
        roster.check_succeeds(&self.roster).map_err(internal)?;
        self.roster = roster.clone();
        self.versions.send_replace(Arc::new(roster));
        Ok(())
    }

    /// Recovers the state of a mote's chain from the cloud. Returns the newest seal that the cloud
    /// has, and the next index.
    async fn recover(&self, device: &Device<'_>) -> Result<(SealIndex, SealIndex), Failure> {
        let id = self.id(device)?;
        let client = moteseal_client::Client::new(self.cloud, &self.roster);
        let newest = client.newest_seal(id, PinnedSeals::default()).await.map_err(internal)?;
        let (position, _) = newest.ok_or_else(|| internal("the cloud has no seal of a mote"))?;
        let (newest, _) = position.last.ok_or_else(|| internal("a seal has no index"))?;
        let random = u32::from_be_bytes(*random::bytes()?);
        let chain = chain_state::recovered(position, SealIndex(0), random);
        chain_state::begin(&self.state(device), id, &chain).map_err(internal)?;
        Ok((newest, chain.next_index))
    }

    /// Pushes bundles that the cloud must refuse. Returns the name of the error, or `None` if the
    /// cloud stored them.
    async fn refusal(&self, bundles: &[Bundle]) -> Result<Option<String>, Failure> {
        let folder = self.home.join("stolen");
        fs::create_dir_all(&folder).map_err(|error| Failure::file("create", &folder, &error))?;
        for (number, bundle) in bundles.iter().enumerate() {
            let path = folder.join(format!("{number}.mseal"));
            fs::write(&path, &bundle.bytes)
                .map_err(|error| Failure::file("write", &path, &error))?;
        }
        let push = Push::open(&folder).map_err(internal)?;
        let refused = push.to(self.cloud, &mut |_| {}).await.err();
        Ok(refused.map(|error| error.name().to_owned()))
    }
}
