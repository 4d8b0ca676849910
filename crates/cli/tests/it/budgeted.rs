//! Runs a group with a budget in one process and without faults: motes with known readings, and a
//! coordinator that receives their frames.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use moteseal_adversary::coordinator::Upload;
use moteseal_adversary::{Answer, Item};
use moteseal_api::{CBOR_SEQ, COSE, paths};
use moteseal_cloud::Config;
use moteseal_core::link::LinkKey;
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Round, SealIndex, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};
use moteseal_core::{DeviceId, GroupId};
use moteseal_device::mote::Mote;
use moteseal_device::seal::{Chain, Profile};
use moteseal_gateway::GroupCoordinator;
use moteseal_net::{Client, NetError, Options};
use moteseal_seal::device_session::DeviceSession;
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::{Announcement, MAX_ANNOUNCEMENT};
use moteseal_seal::wire::{Acknowledgement, MAX_ACKNOWLEDGEMENT, StoredSeal, Uplink};
use moteseal_store::{EpochStore, RedbStore};
use moteseal_sum::query::QueryId;
use moteseal_verify::Roster;
use moteseal_verify::issue::{Budget, FirstRoster};

pub const NAMES: [&str; 4] = ["north", "south", "west", "east"];
pub const FIRST: u64 = 1000;
const GROUP_SECRET: [u8; 32] = [0x51; 32];

pub fn secret(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

/// Returns the coordinator's key.
pub fn coordinator() -> SecretKey {
    secret(99)
}

pub struct Group {
    pub roster: Roster,
    pub devices: Vec<DeviceId>,
    pub levels: u8,
    motes: Vec<Mote<SecretKey>>,
    coordinator: GroupCoordinator,
    next: EpochNumber,
    /// Determines the round to announce when the coordinator raises the round of an epoch. For
    /// `None`, nothing is announced.
    pub announces: fn(EpochNumber, Round) -> Option<Round>,
    /// The position of the device whose link is down until the end of the epoch, if any.
    pub cut_off: Option<usize>,
}

impl Group {
    pub fn new(scheme: Scheme, levels: u8, budget: u64, salts: u8) -> Self {
        let keys: Vec<(&str, PublicKey)> =
            (0..).zip(NAMES).map(|(byte, name)| (name, secret(byte).public())).collect();
        let budget = Budget { events: budget, coordinator: coordinator().public() };
        let first = FirstRoster {
            group: "orchard",
            epoch_ms: 60_000,
            levels,
            budget: Some(budget),
            devices: &keys,
        };
        let roster =
            Roster::open(&first.issue(&secret(98)).unwrap(), &secret(98).public()).unwrap();
        let mut buffer = [0; 256];
        let schema = Schema::encode(&[Field::parse("place::u32").unwrap()], &mut buffer).unwrap();
        let mote = |(byte, name): (u8, &str)| {
            let profile = Profile::new(&roster, name, scheme, &schema).unwrap();
            let link =
                LinkKey::new(&LinkKey::secret_of(&GROUP_SECRET, roster.group(), profile.device));
            let session = DeviceSession::new(profile.device, link, 1);
            let chain = Chain::start(profile.certificate);
            Mote::new(
                profile,
                secret(byte),
                SaltKey::new([salts ^ byte; 32]),
                session,
                chain,
                Vec::new(),
                3,
            )
        };
        let motes = (0..).zip(NAMES).map(mote).collect();
        Self {
            devices: NAMES.iter().map(|name| roster.id(name).unwrap()).collect(),
            motes,
            coordinator: GroupCoordinator::new(roster.clone(), GROUP_SECRET).unwrap(),
            next: EpochNumber(FIRST),
            levels,
            announces: |_, round| Some(round),
            cut_off: None,
            roster,
        }
    }

    pub fn group(&self) -> GroupId {
        self.roster.group()
    }

    /// Lets the device at a position answer an epoch of a query. Its next seal states the answer.
    pub fn answer(&mut self, at: usize, query: QueryId, epoch: u64) {
        self.motes[at].answered(query, epoch);
    }

    /// Runs the next epoch. `readings` is the number of readings of each device; the devices sense
    /// them in turn. Returns what the coordinator uploads.
    pub fn epoch(&mut self, readings: [u32; 4]) -> Upload {
        let epoch = self.next;
        self.next.0 += 1;
        let most = readings.iter().copied().max().unwrap_or(0);
        for place in 0..most {
            for (mote, _) in self.motes.iter_mut().zip(readings).filter(|(_, count)| place < *count)
            {
                mote.sense(epoch, &place.to_be_bytes()).unwrap();
            }
            if place % 8 == 7 {
                self.exchange(epoch);
            }
        }
        self.motes.iter_mut().for_each(|mote| mote.end(epoch).unwrap());
        self.cut_off = None;
        while self.motes.iter().any(|mote| !mote.is_done()) {
            self.exchange(epoch);
        }
        let ended = self.coordinator.end(epoch, &coordinator()).unwrap();
        assert!(ended.absent.is_empty());
        Upload::read(&self.roster, &ended.manifest, &ended.bundles).unwrap()
    }

    /// Lets an epoch pass in which no device seals, so that an honest coordinator signs no manifest.
    pub fn silent_epoch(&mut self) {
        self.next.0 += 1;
    }

    /// Runs the next epoch with an honest coordinator, while the links of the devices at these
    /// positions are down. Their seals arrive after the epoch has ended. Returns what the
    /// coordinator uploads, with the late seals.
    pub fn late_epoch(&mut self, readings: [u32; 4], late: &[usize]) -> Upload {
        let epoch = self.next;
        self.next.0 += 1;
        for (mote, count) in self.motes.iter_mut().zip(readings) {
            (0..count).for_each(|place| mote.sense(epoch, &place.to_be_bytes()).unwrap());
            mote.end(epoch).unwrap();
        }
        let send = |group: &mut Self, at: usize| {
            while !group.motes[at].is_done() {
                for frame in group.motes[at].frames(64).unwrap() {
                    let _ = group.coordinator.receive(&frame, epoch).unwrap();
                }
                let acknowledged = group.coordinator.acknowledgement(group.devices[at]).unwrap();
                group.motes[at].acknowledged(&acknowledged).unwrap();
            }
        };
        (0..self.motes.len()).filter(|at| !late.contains(at)).for_each(|at| send(self, at));
        let ended = self.coordinator.end(epoch, &coordinator()).unwrap();
        late.iter().for_each(|at| send(self, *at));
        let late = self.coordinator.take_late().into_iter().map(|(_, bundle)| bundle);
        let bundles: Vec<Vec<u8>> = ended.bundles.into_iter().chain(late).collect();
        Upload::read(&self.roster, &ended.manifest, &bundles).unwrap()
    }

    /// Runs the next epoch with a cheating coordinator that announces `round` before any reading.
    /// Collects the seals without [`GroupCoordinator`], which would refuse a round that is higher
    /// than its own. Returns the upload with the due round.
    pub fn epoch_with_announced_round(&mut self, readings: [u32; 4], round: Round) -> Upload {
        let epoch = self.next;
        self.next.0 += 1;
        self.announce(epoch, round);
        let mut bundles = Vec::new();
        for (at, count) in readings.into_iter().enumerate() {
            let mote = &mut self.motes[at];
            (0..count).for_each(|place| mote.sense(epoch, &place.to_be_bytes()).unwrap());
            mote.end(epoch).unwrap();
            let link = LinkKey::new(&LinkKey::secret_of(
                &GROUP_SECRET,
                self.roster.group(),
                self.devices[at],
            ));
            let device = self.devices[at];
            let acknowledge = |mote: &mut Mote<SecretKey>, index, sealed, challenge| {
                let (next, wants_schema) = (Sequence(0), false);
                let answer = Acknowledgement { index, next, sealed, wants_schema, challenge };
                let mut out = [0; MAX_ACKNOWLEDGEMENT];
                mote.acknowledged(answer.close(device, &link, &mut out).unwrap()).unwrap()
            };
            let mut levels: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
            // The mote sends its first seal only after its challenge was answered.
            mote.timeout();
            let mut frames = mote.frames(usize::MAX).unwrap();
            let challenge =
                frames.iter().find_map(|frame| match Uplink::open(frame, &link).unwrap() {
                    Uplink::Challenge(challenge) => Some(challenge),
                    _ => None,
                });
            acknowledge(mote, SealIndex(0), None, challenge);
            frames.extend(mote.frames(usize::MAX).unwrap());
            for frame in frames {
                match Uplink::open(&frame, &link).unwrap() {
                    Uplink::Forward(forward) => {
                        forward.events().for_each(|(_, level, record)| {
                            levels.entry(level.0).or_default().extend(record);
                        });
                    }
                    Uplink::Close { open, part, .. } => {
                        let mut answer = Answer::decode(&[open, part].concat()).unwrap();
                        let index = answer.places()[0].index;
                        let Some(Item::Part(part)) = answer.items.last_mut() else {
                            panic!("{answer:?}")
                        };
                        let kept = levels.range(part.own_round.0..).rev();
                        part.events = kept.flat_map(|(_, block)| block.clone()).collect();
                        answer.items.insert(0, Item::Schema(mote.profile().schema.clone()));
                        bundles.push((index, answer.encode()));
                    }
                    Uplink::Schema(_) | Uplink::Challenge(_) => {}
                }
            }
            let (index, _) = bundles.last().unwrap();
            let stored = StoredSeal {
                index: *index,
                epoch,
                last_in_epoch: true,
                digest: mote.chain().position.prev,
            };
            acknowledge(mote, SealIndex(index.0 + 1), Some(stored), challenge);
            assert!(mote.is_done());
        }
        // Replace the coordinator: it has not received these seals, so it would not list later
        // ones.
        self.coordinator = GroupCoordinator::new(self.roster.clone(), GROUP_SECRET).unwrap();
        for (mote, device) in self.motes.iter().zip(&self.devices) {
            let link =
                LinkKey::new(&LinkKey::secret_of(&GROUP_SECRET, self.roster.group(), *device));
            let mut out = [0; 512];
            let frame =
                Uplink::Schema(&mote.profile().schema).close(*device, &link, &mut out).unwrap();
            assert!(self.coordinator.receive(frame, epoch).unwrap().durable);
        }
        let bundles: Vec<Vec<u8>> = bundles.into_iter().map(|(_, bundle)| bundle).collect();
        let empty = Upload {
            epoch,
            round,
            listed: BTreeMap::new(),
            other: None,
            withheld: false,
            bundles: Vec::new(),
        };
        let manifest = empty.manifest(&self.roster, &coordinator()).unwrap();
        let mut upload = Upload::read(&self.roster, &manifest, &bundles).unwrap();
        upload.listed =
            upload.bundles.iter().map(|bundle| (bundle.device, vec![bundle.digest])).collect();
        let from = |round: &u8| -> u64 {
            let counts = upload
                .bundles
                .iter()
                .map(|bundle| &bundle.counters.as_slice()[usize::from(*round)..]);
            counts.flatten().map(|count| u64::from(*count)).sum()
        };
        upload.round = Round(
            (0..self.levels)
                .find(|round| from(round) <= self.roster.newest_period().budget.unwrap())
                .unwrap(),
        );
        upload
    }

    /// Lets every device send the frames that are due, and receive acknowledgements and
    /// announcements.
    fn exchange(&mut self, epoch: EpochNumber) {
        let mut raised = None;
        for (at, (mote, device)) in self.motes.iter_mut().zip(&self.devices).enumerate() {
            if self.cut_off == Some(at) {
                continue;
            }
            let frames = mote.frames(64).unwrap();
            if frames.is_empty() && !mote.is_done() {
                mote.timeout();
            }
            for frame in frames {
                let news = self.coordinator.receive(&frame, epoch).unwrap();
                raised = news.raised.or(raised);
            }
            mote.acknowledged(&self.coordinator.acknowledgement(*device).unwrap()).unwrap();
        }
        let Some((epoch, round)) = raised else { return };
        if let Some(round) = (self.announces)(epoch, round) {
            self.announce(epoch, round);
        }
    }

    /// Signs a round with the coordinator's key and passes it to every device.
    pub fn announce(&mut self, epoch: EpochNumber, round: Round) {
        let mut out = [0; MAX_ANNOUNCEMENT];
        let round = round.min(Round(self.levels - 1));
        let announcement =
            Announcement::issue(self.group(), epoch, round, &coordinator(), &mut out).unwrap();
        let announcement = Announcement::open(
            announcement,
            self.group(),
            self.roster.newest_period().coordinator.as_ref().unwrap(),
        )
        .unwrap();
        self.motes.iter_mut().for_each(|mote| _ = mote.announced(&announcement));
    }

    /// Returns the position of each device in the group.
    pub fn places(&self) -> BTreeMap<DeviceId, usize> {
        self.devices.iter().copied().zip(0..).collect()
    }
}

/// A cloud, usually with a new store, and a client of that cloud.
pub struct Cloud {
    pub client: Client,
    pub url: String,
    _directory: Option<tempfile::TempDir>,
}

impl Cloud {
    pub async fn serve(roster: &Roster) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = moteseal_store::Options::default();
        let store: Arc<dyn EpochStore> =
            Arc::new(RedbStore::open(&directory.path().join("epochs.redb"), options).unwrap());
        let cloud = moteseal_cloud::Cloud::bind(Config::new(roster.clone()), store).await.unwrap();
        let url = cloud.url();
        tokio::spawn(cloud.run(std::future::pending()));
        Self { _directory: Some(directory), ..Self::at(&url) }
    }

    /// Returns a client of a cloud that runs already.
    pub fn at(url: &str) -> Self {
        let client = Client::new(url, &Options::default()).unwrap();
        Self { client, url: url.to_owned(), _directory: None }
    }

    /// Uploads an epoch: first its manifest, then its bundles in the order of their chains.
    ///
    /// # Errors
    /// The name of the cloud's error.
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
