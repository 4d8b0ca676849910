//! A group with a budget as it is run, in one process and without faults: motes, a hub that hears them, and the truth.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use moteseal_adversary::coordinator::Upload;
use moteseal_api::{CBOR_SEQ, COSE, paths};
use moteseal_cloud::Config;
use moteseal_core::level::SaltKey;
use moteseal_core::record::{EpochNumber, Round};
use moteseal_core::roster::Directory as _;
use moteseal_core::sample::{Announcement, MAX_ANNOUNCEMENT};
use moteseal_core::schema::{Field, Schema};
use moteseal_core::seal::Scheme;
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};
use moteseal_core::wire::link::LinkKey;
use moteseal_core::{DeviceId, GroupId};
use moteseal_device::mote::Mote;
use moteseal_device::seal::{Chain, Profile};
use moteseal_gateway::Hub;
use moteseal_net::{Client, NetError, Options};
use moteseal_store::{EpochStore, RedbStore};
use moteseal_verify::Roster;
use moteseal_verify::issue::{Budget, FirstRoster};

pub const NAMES: [&str; 4] = ["north", "south", "west", "east"];
pub const FIRST: u64 = 1000;
const GROUP_SECRET: [u8; 32] = [0x51; 32];

pub fn secret(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

/// The coordinator's key.
pub fn coordinator() -> SecretKey {
    secret(99)
}

pub struct Group {
    pub roster: Roster,
    pub devices: Vec<DeviceId>,
    pub levels: u8,
    motes: Vec<Mote<SecretKey>>,
    hub: Hub,
    next: EpochNumber,
    /// The rounds that the coordinator tells, of those that its hub has.
    pub tells: fn(EpochNumber, Round) -> Option<Round>,
}

impl Group {
    pub fn new(levels: u8, budget: u64, salts: u8) -> Self {
        let keys: Vec<(&str, PublicKey)> = (0..).zip(NAMES).map(|(byte, name)| (name, secret(byte).public())).collect();
        let budget = Budget { events: budget, coordinator: coordinator().public() };
        let first = FirstRoster { group: "orchard", epoch_ms: 60_000, levels, budget: Some(budget), devices: &keys };
        let roster = Roster::open(&first.issue(&secret(98)).unwrap(), &secret(98).public()).unwrap();
        let mut buffer = [0; 256];
        let schema = Schema::encode(&[Field::parse("place::u32").unwrap()], &mut buffer).unwrap();
        let mote = |(byte, name): (u8, &str)| {
            let profile = Profile::new(&roster, name, Scheme::Star, &schema).unwrap();
            let link = LinkKey::new(&LinkKey::secret_of(&GROUP_SECRET, roster.group(), profile.device));
            let chain = Chain::start(profile.certificate);
            Mote::new(profile, secret(byte), SaltKey::new([salts ^ byte; 32]), link, chain, Vec::new(), 3)
        };
        let motes = (0..).zip(NAMES).map(mote).collect();
        Self {
            devices: NAMES.iter().map(|name| roster.id(name).unwrap()).collect(),
            motes,
            hub: Hub::new(roster.clone(), GROUP_SECRET).unwrap(),
            next: EpochNumber(FIRST),
            levels,
            tells: |_, round| Some(round),
            roster,
        }
    }

    pub fn group(&self) -> GroupId {
        self.roster.group()
    }

    /// The next epoch: each device senses as many readings as it says here, in turn. What the coordinator uploads of it.
    pub fn epoch(&mut self, readings: [u32; 4]) -> Upload {
        let epoch = self.next;
        self.next.0 += 1;
        let most = readings.iter().copied().max().unwrap_or(0);
        for place in 0..most {
            for (mote, _) in self.motes.iter_mut().zip(readings).filter(|(_, count)| place < *count) {
                mote.sense(epoch, &place.to_be_bytes()).unwrap();
            }
            if place % 8 == 7 {
                self.exchange(epoch);
            }
        }
        self.motes.iter_mut().for_each(|mote| mote.end(epoch).unwrap());
        while self.motes.iter().any(|mote| !mote.is_done()) {
            self.exchange(epoch);
        }
        let ended = self.hub.end(epoch, &coordinator()).unwrap();
        assert!(ended.absent.is_empty());
        Upload::read(&self.roster, &ended.manifest, &ended.bundles).unwrap()
    }

    /// Every device sends what is due, and hears what it is told.
    fn exchange(&mut self, epoch: EpochNumber) {
        let mut told = None;
        for (mote, device) in self.motes.iter_mut().zip(&self.devices) {
            for frame in mote.frames(64).unwrap() {
                let news = self.hub.hear(&frame, epoch).unwrap();
                told = news.raised.or(told);
            }
            mote.acknowledged(&self.hub.acknowledgement(*device).unwrap()).unwrap();
        }
        let Some((epoch, round)) = told else { return };
        if let Some(round) = (self.tells)(epoch, round) {
            self.announce(epoch, round);
        }
    }

    /// The coordinator signs a round, and every device hears it.
    pub fn announce(&mut self, epoch: EpochNumber, round: Round) {
        let mut out = [0; MAX_ANNOUNCEMENT];
        let round = round.min(Round(self.levels - 1));
        let word = Announcement::issue(self.group(), epoch, round, &coordinator(), &mut out).unwrap();
        let word = Announcement::open(word, self.group(), self.roster.coordinator().unwrap()).unwrap();
        self.motes.iter_mut().for_each(|mote| _ = mote.announced(&word));
    }

    /// A device's place among the others.
    pub fn places(&self) -> BTreeMap<DeviceId, usize> {
        self.devices.iter().copied().zip(0..).collect()
    }
}

/// A cloud over a fresh store, and a client of it.
pub struct Cloud {
    pub client: Client,
    pub url: String,
    _directory: tempfile::TempDir,
}

impl Cloud {
    pub async fn serve(roster: &Roster) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = moteseal_store::Options::default();
        let store: Arc<dyn EpochStore> = Arc::new(RedbStore::open(&directory.path().join("epochs.redb"), options).unwrap());
        let cloud = moteseal_cloud::Cloud::bind(Config::new(roster.clone()), store).await.unwrap();
        let url = cloud.url();
        tokio::spawn(cloud.run(std::future::pending()));
        let client = Client::new(&url, &Options::default()).unwrap();
        Self { client, url, _directory: directory }
    }

    /// Uploads an epoch: its manifest, then its bundles, in the order of their chains. The name of what the cloud refuses.
    pub async fn take(&self, roster: &Roster, upload: &Upload) -> Result<(), String> {
        let name = |error: NetError| match error {
            NetError::Refused { name, .. } => name,
            error => panic!("{error}"),
        };
        if !upload.withheld {
            let others = upload.other.as_deref();
            for manifest in [Some(upload), others].into_iter().flatten() {
                let manifest = Bytes::from(manifest.manifest(roster, &coordinator()).unwrap());
                self.client.put(paths::MANIFESTS, COSE, manifest).await.map_err(name)?;
            }
        }
        let body: Vec<u8> = upload.bundles.iter().flat_map(|bundle| bundle.bytes.clone()).collect();
        if !body.is_empty() {
            self.client.put(paths::BUNDLES, CBOR_SEQ, Bytes::from(body)).await.map_err(name)?;
        }
        Ok(())
    }
}
