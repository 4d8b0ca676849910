//! Demonstrates a group with a budget. The same motes send to a coordinator, which keeps a sample
//! within the budget and uploads it. An audit checks the coordinator with the data that the motes
//! signed. Then the coordinator cheats.

use bytes::Bytes;
use moteseal_adversary::coordinator::{Bundle, CHEATS, Cheat, FoundBy, Upload, stream};
use moteseal_api::{CBOR_SEQ, COSE, JSON, Query, paths};
use moteseal_client::audit::{self, Audit, Finding};
use moteseal_client::estimate::{Estimate, Estimator};
use moteseal_client::{Rows, Session, Stop};
use moteseal_core::link::LinkKey;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Round};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::Schema;
use moteseal_core::signature::{PublicKey, SecretKey};
use moteseal_device::mote::Mote as Sampler;
use moteseal_device::{Chain, Profile};
use moteseal_gateway::{Ended, GroupCoordinator};
use moteseal_net::Client;
use moteseal_seal::device_session::DeviceSession;
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::{Announcement, Choice, MAX_ANNOUNCEMENT, Rate};
use moteseal_seal::wire::Uplink;
use moteseal_verify::Roster;
use moteseal_verify::issue::{Budget, FirstRoster};
use zeroize::Zeroizing;

use crate::fleet::LEVELS;
use crate::internal;
use crate::random;
use crate::readings::{EPOCH_MS, Mote};
use moteseal_terminal::failure::Failure;
use moteseal_terminal::progress::bar;

/// The budget: the number of readings that the group may keep per epoch, of the 1,440 that its
/// motes sense.
const BUDGET: u64 = 400;
const GROUP: &str = "telosb-edge";
/// The number of readings that each mote senses between two exchanges with the coordinator.
const EXCHANGE: usize = 8;
/// The maximum number of frames that a mote sends in one exchange.
const FRAMES: usize = 64;
/// The epoch in which the coordinator cheats, counted from the first. There are honest epochs
/// before and after it.
const CHEATED: usize = 3;

/// The readings that the coordinator kept, and the results of the audit and the queries.
#[derive(Debug)]
pub(crate) struct Edge {
    pub budget: u64,
    pub readings: u64,
    /// The number of readings that the motes sent to the coordinator.
    pub forwarded: u64,
    /// The largest number of readings of one epoch that the coordinator held at any time.
    pub held: u64,
    pub audit: audit::Report,
    /// A sampling rate that is available in every epoch. `sampled` is the result of a query at this
    /// rate.
    pub rate: Rate,
    pub sampled: moteseal_client::Report,
    pub temperature: Option<Estimate>,
    pub cheats: Vec<Cheating>,
}

/// The result of one way to cheat.
#[derive(Debug)]
pub(crate) struct Cheating {
    pub name: &'static str,
    pub about: &'static str,
    /// The name of the audit's finding.
    pub found: String,
    /// The message of the finding.
    pub detail: String,
    /// The message of the finding, without the rounds that were announced to each device.
    pub summary: String,
    pub caught: bool,
}

impl Edge {
    /// Returns the number of readings that were kept, according to the signed counters.
    pub(crate) fn kept(&self) -> u64 {
        self.audit.epochs.iter().map(|epoch| epoch.kept).sum()
    }

    pub(crate) fn uncaught(&self) -> usize {
        self.cheats.iter().filter(|cheat| !cheat.caught).count()
    }
}

/// The group's keys and roster. The cloud needs the roster when it starts.
pub(crate) struct Keys {
    pub roster: Roster,
    pub devices: Vec<(SecretKey, Zeroizing<[u8; 32]>)>,
    pub coordinator: SecretKey,
    pub link: Zeroizing<[u8; 32]>,
}

/// Creates the group's keys and roster.
pub(crate) fn keys(motes: &[Mote]) -> Result<Keys, Failure> {
    let (operator, coordinator) = (random::signing_key()?, random::signing_key()?);
    let devices = motes.iter().map(|_| Ok((random::signing_key()?, random::bytes()?)));
    let devices = devices.collect::<Result<Vec<_>, Failure>>()?;
    let public: Vec<(&str, PublicKey)> = motes
        .iter()
        .zip(&devices)
        .map(|(mote, (secret, _))| (mote.name, secret.public()))
        .collect();
    let budget = Some(Budget { events: BUDGET, coordinator: coordinator.public() });
    let first =
        FirstRoster { group: GROUP, epoch_ms: EPOCH_MS, levels: LEVELS, budget, devices: &public };
    let roster = Roster::open(&first.issue(&operator).map_err(internal)?, &operator.public())
        .map_err(internal)?;
    Ok(Keys { roster, devices, coordinator, link: random::bytes()? })
}

/// Sends the motes' readings through a coordinator to the cloud, queries and audits the cloud, and
/// then lets the coordinator cheat.
pub(crate) async fn play(keys: &Keys, motes: &[Mote], client: &Client) -> Result<Edge, Failure> {
    let mut group = Group::new(keys, motes)?;
    let mut uploads = Vec::new();
    let progress = bar(group.epochs().count() as u64, "sampling");
    for epoch in group.epochs() {
        let ended = group.epoch(epoch)?;
        send(client, &ended).await?;
        let upload = Upload::read(&keys.roster, &ended.manifest, &ended.bundles);
        uploads
            .push(upload.ok_or_else(|| internal("the coordinator's own upload does not verify"))?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    let (readings, forwarded, held) = (group.readings, group.forwarded, group.held);
    let first = uploads.first().map_or(EpochNumber(0), |upload| upload.epoch);
    let fault = |error: String| {
        internal(format_args!(
            "AN HONEST COORDINATOR WAS ACCUSED: this is a fault of Moteseal; please report it: {error}"
        ))
    };
    let data = moteseal_client::Client::new(client, &keys.roster);
    let audited = data.audit().since(first).run().await;
    let audited = audited.map_err(|error| fault(error.to_string()))?;
    if audited.verdict() != audit::Verdict::Justified {
        return Err(fault(audited.to_string()));
    }
    let devices: Vec<DeviceId> = keys.roster.devices().map(|device| device.id).collect();
    let rate = data.common_rate(&devices, first, None).await.map_err(internal)?;
    let query = Query {
        devices,
        since: first,
        until: None,
        choice: Choice::Rate(rate),
        columns: Vec::new(),
    };
    let mut estimator = Estimator::new("temperature");
    let sampled = data.query(&query).run(&mut estimator).await.map_err(internal)?.report;
    let cheats = CHEATS.iter().filter_map(|cheat| cheating(keys, &uploads, cheat)).collect();
    Ok(Edge {
        budget: BUDGET,
        readings,
        forwarded,
        held,
        audit: audited,
        rate,
        sampled,
        temperature: estimator.mean(),
        cheats,
    })
}

/// Uploads an epoch as a coordinator does: the manifest first, then the bundles.
async fn send(client: &Client, ended: &Ended) -> Result<(), Failure> {
    let manifest = Bytes::from(ended.manifest.clone());
    client
        .put(paths::MANIFESTS, COSE, manifest)
        .await
        .and_then(|answer| answer.expect(JSON))
        .map_err(internal)?;
    let bundles = Bytes::from(ended.bundles.concat());
    client
        .put(paths::BUNDLES, CBOR_SEQ, bundles)
        .await
        .and_then(|answer| answer.expect(JSON))
        .map_err(internal)?;
    Ok(())
}

/// Returns the scheme of the mote at this place. A group may contain stars and trees; here they
/// alternate.
fn scheme_of(place: usize) -> Scheme {
    if place.is_multiple_of(2) { Scheme::Star } else { Scheme::Tree }
}

/// The motes and their coordinator, which exchange frames.
struct Group<'k> {
    keys: &'k Keys,
    samplers: Vec<Sampler<SecretKey>>,
    links: Vec<(DeviceId, LinkKey)>,
    /// The readings that each mote has not sensed yet.
    readings_of: Vec<Readings<'k>>,
    first: EpochNumber,
    last: EpochNumber,
    coordinator: GroupCoordinator,
    readings: u64,
    forwarded: u64,
    held: u64,
}

type Readings<'k> = std::iter::Peekable<Box<dyn Iterator<Item = (EpochNumber, &'k [u8])> + 'k>>;

impl<'k> Group<'k> {
    fn new(keys: &'k Keys, motes: &'k [Mote]) -> Result<Self, Failure> {
        let roster = &keys.roster;
        let (mut samplers, mut links, mut readings_of) = (Vec::new(), Vec::new(), Vec::new());
        let (mut first, mut last) = (EpochNumber(u64::MAX), EpochNumber(0));
        for ((mote, (secret, salt)), place) in motes.iter().zip(&keys.devices).zip(0..) {
            let schema = Schema::decode(&mote.recording.schema).map_err(internal)?;
            let profile = Profile::new(roster, mote.name, scheme_of(place), &schema);
            let profile = profile.map_err(internal)?;
            let link =
                LinkKey::new(&LinkKey::secret_of(&keys.link, roster.group(), profile.device));
            links.push((profile.device, link.clone()));
            let session = DeviceSession::new(profile.device, link, 0);
            let chain = Chain::start(profile.certificate);
            samplers.push(Sampler::new(
                profile,
                secret.clone(),
                SaltKey::new(**salt),
                session,
                chain,
                Vec::new(),
                4,
            ));
            let of = |(unix_ms, record): (u64, &'k [u8])| (EpochNumber(unix_ms / EPOCH_MS), record);
            let mut ends = mote.recording.iter().map(of);
            if let Some((epoch, _)) = ends.next() {
                (first, last) = (
                    first.min(epoch),
                    last.max(ends.next_back().map_or(epoch, |(epoch, _)| epoch)),
                );
            }
            let readings: Box<dyn Iterator<Item = (EpochNumber, &'k [u8])> + 'k> =
                Box::new(mote.recording.iter().map(of));
            readings_of.push(readings.peekable());
        }
        let coordinator = GroupCoordinator::new(roster.clone(), *keys.link)
            .ok_or_else(|| internal("the group has no budget"))?;
        Ok(Self {
            keys,
            samplers,
            links,
            readings_of,
            first,
            last,
            coordinator,
            readings: 0,
            forwarded: 0,
            held: 0,
        })
    }

    fn epochs(&self) -> impl Iterator<Item = EpochNumber> + use<> {
        (self.first.0..=self.last.0).map(EpochNumber)
    }

    /// Simulates an epoch: the motes sense in turn and send the readings that their round permits.
    fn epoch(&mut self, epoch: EpochNumber) -> Result<Ended, Failure> {
        loop {
            let before = self.readings;
            for _ in 0..EXCHANGE {
                for (sampler, readings) in self.samplers.iter_mut().zip(&mut self.readings_of) {
                    if let Some((_, record)) = readings.next_if(|(of, _)| *of == epoch) {
                        sampler.sense(epoch, record).map_err(internal)?;
                        self.readings += 1;
                    }
                }
            }
            self.exchange(epoch)?;
            if self.readings == before {
                break;
            }
        }
        for sampler in &mut self.samplers {
            sampler.end(epoch).map_err(internal)?;
        }
        // Each exchange completes at least the oldest waiting seal of each mote, so the loop ends.
        while self.samplers.iter().any(|sampler| !sampler.is_done()) {
            self.exchange(epoch)?;
        }
        self.coordinator.end(epoch, &self.keys.coordinator).map_err(internal)
    }

    /// Passes the motes' frames to the coordinator and its acknowledgements back, and announces the
    /// round if it has risen.
    fn exchange(&mut self, epoch: EpochNumber) -> Result<(), Failure> {
        let mut raised = None;
        for (sampler, (device, link)) in self.samplers.iter_mut().zip(&self.links) {
            for frame in sampler.frames(FRAMES).map_err(internal)? {
                if let Uplink::Forward(forward) = Uplink::open(&frame, link).map_err(internal)? {
                    // Count only readings at or above the mote's round. A mote with a tree may also
                    // send a reading below its round, if the reading is shorter than the digest
                    // that would replace it.
                    self.forwarded += forward
                        .events()
                        .filter(|(_, level, _)| level.0 >= forward.own_round.0)
                        .count() as u64;
                }
                let news = self.coordinator.receive(&frame, epoch).map_err(internal)?;
                raised = news.raised.or(raised);
                self.held = self.held.max(self.coordinator.kept(epoch));
            }
            if let Some(frame) = self.coordinator.acknowledgement(*device) {
                sampler.acknowledged(&frame).map_err(internal)?;
            }
        }
        let Some((epoch, round)) = raised else { return Ok(()) };
        let (group, mut out) = (self.keys.roster.group(), [0; MAX_ANNOUNCEMENT]);
        let round = Round(round.0.min(LEVELS - 1));
        let word = Announcement::issue(group, epoch, round, &self.keys.coordinator, &mut out)
            .map_err(internal)?;
        let word =
            Announcement::open(word, group, &self.keys.coordinator.public()).map_err(internal)?;
        for sampler in &mut self.samplers {
            sampler.announced(&word);
        }
        Ok(())
    }
}

/// Lets the coordinator cheat in one way, for the first device for which that is possible. Returns
/// how the audit or the client detects it; `None` if this way of cheating is not possible for any
/// device.
fn cheating(keys: &Keys, honest: &[Upload], cheat: &Cheat) -> Option<Cheating> {
    let at = CHEATED.min(honest.len().checked_sub(1)?);
    let (uploads, device) = keys.roster.devices().find_map(|device| {
        let mut uploads = honest.to_vec();
        let altered = (cheat.alter)(&mut uploads, at, device.id) && uploads != honest;
        altered.then_some((uploads, device.id))
    })?;
    let (found, detail, summary) = match cheat.found_by {
        FoundBy::Verifier => {
            let bundle = uploads[at].bundles.iter().find(|bundle| bundle.device == device)?;
            let (found, detail) = refused(&keys.roster, &uploads[at], bundle);
            (found, detail.clone(), detail)
        }
        FoundBy::Audit | FoundBy::Doubt => audited(keys, &uploads),
    };
    let caught = cheat.names.contains(&found.as_str());
    let readable = |text: &str| readable(&keys.roster, text);
    let (detail, summary) = (readable(&detail), readable(&summary));
    Some(Cheating { name: cheat.name, about: cheat.about, found, detail, summary, caught })
}

/// Returns the message with device names instead of ids, and with shortened digests.
fn readable(roster: &Roster, text: &str) -> String {
    let named = roster.devices().fold(text.to_owned(), |text, device| {
        text.replace(&format!("device {}", device.id), roster.name(device.id).unwrap_or_default())
    });
    let word = |word: &str| match word
        .get(..64)
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    {
        Some(digits) => format!("{}…{}", &digits[..8], &word[64..]),
        None => word.to_owned(),
    };
    named.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Audits altered uploads. Returns the name, message and summary of the first finding, or of the
/// first doubt if there is no finding.
fn audited(keys: &Keys, uploads: &[Upload]) -> (String, String, String) {
    let all = |name: &str, detail: String| (name.to_owned(), detail.clone(), detail);
    let accepted = || all("accepted", "the audit found every epoch justified".to_owned());
    let (Some(first), Ok(bytes)) =
        (uploads.first(), stream(uploads, &keys.roster, &keys.coordinator))
    else {
        return accepted();
    };
    let Ok(mut audit) = Audit::new(&keys.roster, first.epoch, None) else { return accepted() };
    let mut feed = audit.stream();
    if let Err(refusal) = feed.feed(&bytes).and_then(|()| feed.finish()) {
        return all(refusal.name(), refusal.to_string());
    }
    let report = audit.finish();
    if let Some((_, finding)) = report.findings().next() {
        let detail = finding.describe(&keys.roster);
        return match finding {
            Finding::Round { found, .. } => {
                (finding.name().to_owned(), detail, format!("{}: {found}", found.name()))
            }
            finding => all(finding.name(), detail),
        };
    }
    let doubt = report.epochs.iter().flat_map(|epoch| &epoch.doubts).next();
    doubt.map_or_else(accepted, |doubt| all(doubt.name(), doubt.describe(&keys.roster)))
}

/// Returns the name and message with which a client rejects an altered bundle from a cloud that
/// colludes with the coordinator.
fn refused(roster: &Roster, upload: &Upload, bundle: &Bundle) -> (String, String) {
    let rate = Rate::new(1, 1_u64 << upload.round.0.min(31)).unwrap_or(Rate::ALL);
    let (since, until) = (upload.epoch, Some(EpochNumber(upload.epoch.0 + 1)));
    let query = Query {
        devices: vec![bundle.device],
        since,
        until,
        choice: Choice::Rate(rate),
        columns: Vec::new(),
    };
    let mut session = Session::new(roster, query, None);
    let mut sink = |_: &Rows<'_>| Ok(());
    let mut answer = bundle.bytes.clone();
    moteseal_verify::write::end(&mut answer);
    let outcome =
        session.feed(&answer, &mut sink).and_then(|()| session.finish(&mut sink).map(|_| ()));
    match outcome {
        Ok(()) => ("accepted".to_owned(), "the bundle was accepted".to_owned()),
        Err(Stop::Rejected(refusal)) => (refusal.name().to_owned(), refusal.to_string()),
        Err(Stop::Output(error)) => ("accepted".to_owned(), error.to_string()),
    }
}
