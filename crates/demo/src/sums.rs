//! `moteseal-demo sums`: eight motes, three gateways in a tree, and a querier. Their links are
//! within this process. After half of the epochs one gateway turns malicious. It then performs a
//! different attack in each epoch.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use moteseal_adversary::aggregator::{LyingAggregator, Malice};
use moteseal_broadcast::KeyId;
use moteseal_client::output::OutputError;
use moteseal_client::sum::{
    Bins, Endpoint, Finding, Outcome, Querier, QuerierState, Question, ResultValue, Row, RowFormat,
    RowNames, RowWriter, RunOptions, default_floor, default_min_count, run_query,
};
use moteseal_core::link::LinkKey;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::Schema;
use moteseal_core::signature::{PublicKey, SecretKey};
use moteseal_device::answerer::{Answerer, Membership};
use moteseal_device::durable::Identity;
use moteseal_device::runner::system_clock;
use moteseal_device::{Chain, DurableMote, Outbox, Profile, chain_state};
use moteseal_gateway::sum::number::NumberFile;
use moteseal_gateway::sum::service::SumGateway;
use moteseal_gateway::sum::{Aggregator, Member};
use moteseal_lanes::Host;
use moteseal_net::in_memory::{Faults, MemoryChild, MemoryParent, Network};
use moteseal_net::link::State;
use moteseal_net::{ChildLink, Down, LinkError, ParentLink, Up};
use moteseal_seal::level::SaltKey;
use moteseal_sum::QuerierName;
use moteseal_sum::key_file::{Circle, MAX_KEY_FILE, QuerierKeys};
use moteseal_sum::policy::{LEAST_COUNT, MAX_PAYLOAD, PolicyDraft, QuerierTerms};
use moteseal_sum::query::{MAX_PLAN, Plan};
use moteseal_verify::Roster;
use moteseal_verify::SumGroup;
use moteseal_verify::aggregation::{AggregationTree, QUERIER, gateway_id};
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::edge::{self, Keys};
use crate::internal;
use crate::readings::{Mote, motes};
use crate::{random, runtime};
use moteseal_terminal::failure::{Exit, Failure};
use moteseal_terminal::output::{Stdout, diagnostic};
use moteseal_terminal::progress::count;

const QUERY: &str =
    "SELECT AVG(temperature), COUNT(*) FROM sensors WHERE humidity > 40 EPOCH DURATION 2s";
const EPOCH_MS: u64 = 2000;
/// A query for the readings that [`QUERY`] leaves out: those of few motes.
const FEW: &str =
    "SELECT AVG(temperature), COUNT(*) FROM sensors WHERE humidity <= 40 EPOCH DURATION 2s";
/// A query that the policy does not permit, because its epochs are shorter than two seconds.
const BREACH: &str = "SELECT AVG(temperature) FROM sensors EPOCH DURATION 1s";
/// The reason for which the motes refuse the query.
const REFUSAL: &str = "EpochNotPermitted";
/// Each gateway with its parent.
const GATEWAYS: [(&str, &str); 3] = [("gw-a", "root"), ("gw-b", "root"), ("root", QUERIER)];
/// The gateway that turns malicious, and its attack in each epoch.
const LIAR: &str = "gw-b";
const LIES: [Malice; 5] = [
    Malice::AddDelta,
    Malice::Scale,
    Malice::ReplayEpoch,
    Malice::HideParticipant,
    Malice::ClaimSilent,
];
const HONEST_EPOCHS: u64 = 5;
/// The time at which a mote senses, in milliseconds after the start of the epoch: far from the
/// epoch's start and end.
const SENSES_AT_MS: u64 = 900;
const GRACE: Duration = Duration::from_millis(400);
/// The maximum number of unacknowledged seals of a mote. The demo is too short for a mote to
/// complete a seal.
const WAITING: u32 = 4;

/// Add up the encrypted readings of eight motes at three gateways. One gateway turns malicious
/// after half of the epochs
#[derive(Args, Debug)]
#[command(
    after_help = "Takes about 30 seconds. The exit code is 0 if every result was exact, every altered sum was rejected and traced to the gateway that altered it, a result over few readings was withheld, and the motes refused a query that their policy does not permit."
)]
pub(crate) struct Arguments {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// The values that each mote sensed in each epoch, not encrypted. The sums must match them.
type Sensed = Arc<Mutex<BTreeMap<(u64, u32), Vec<u8>>>>;

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let motes = motes(None)?;
    let folder = tempfile::tempdir().map_err(internal)?;
    runtime()?.block_on(play(&motes, folder.path(), arguments.json))
}

async fn play(motes: &[Mote], folder: &Path, json: bool) -> Result<(), Failure> {
    let keys = edge::keys(motes)?;
    let roster = &keys.roster;
    let places: Vec<(&str, &str)> = motes
        .iter()
        .enumerate()
        .map(|(i, mote)| (mote.name, if i < motes.len() / 2 { "gw-a" } else { "gw-b" }))
        .collect();
    let tree = AggregationTree::new(roster, GATEWAYS, places.iter().copied()).map_err(internal)?;

    let group = SumGroup::new(roster.clone(), tree.clone());

    // The keys of the querier and of each mote.
    let signer = random::signing_key()?;
    let sources = u32::try_from(motes.len()).map_err(internal)?;
    let circle = Circle {
        group: roster.group(),
        roster: roster.first_digest(),
        sources,
        key_group: sources,
    };
    let secrets = secrets()?;
    let master = querier_keys(&circle, &signer.public())?;

    // One network for each aggregator, in which the aggregator's children are the devices.
    let networks: BTreeMap<&str, Network> = GATEWAYS
        .iter()
        .map(|(name, _)| *name)
        .chain([QUERIER])
        .map(|aggregator| (aggregator, Network::new(0, Faults::default())))
        .collect();
    let mut tasks = tokio::task::JoinSet::new();
    let turned = Arc::new(AtomicBool::new(false));
    let liar = liar(roster, &tree, &secrets, circle.key_group)?;
    for (name, parent) in GATEWAYS {
        let (number, highest) = NumberFile::open(&folder.join(name)).map_err(internal)?;
        let up_secret = LinkKey::secret_of(&secrets[parent], roster.group(), gateway_id(name));
        let querier = signer.public();
        let member = Member {
            roster: &group.roster,
            tree: &group.tree,
            name,
            querier: &querier,
            children_secret: &secrets[name],
            up_secret: &up_secret,
            grace: GRACE,
            number: highest,
        };
        let aggregator =
            Aggregator::new(&member).ok_or_else(|| internal("the tree does not have a gateway"))?;
        let gateway = SumGateway::bind(aggregator, number, None).await.map_err(internal)?;
        let lies = (name == LIAR).then(|| (Arc::clone(&liar), Arc::clone(&turned)));
        let aggregator = Observed { inner: networks[name].parent(), lies: lies.clone() };
        let up = Altered { inner: networks[parent].child(gateway_id(name).0), lies };
        tasks.spawn(async move {
            let ended = gateway.run(aggregator, up, std::future::pending()).await;
            ended.map_err(|error| error.to_string())
        });
    }
    let policy = policy(&circle, &signer.public())?;
    let sensed = Sensed::default();
    for (place, mote) in motes.iter().enumerate() {
        let of = places[place].1;
        let known = roster.id(mote.name).and_then(|device| Some((device, tree.position(device)?)));
        let (device, position) =
            known.ok_or_else(|| internal("the roster does not have a mote"))?;
        let source = master.source(device, position);
        let membership = Membership {
            querier_name: QuerierName::default(),
            group: circle.group,
            set_up: circle.roster,
            key_group: circle.key_group,
            position,
            secret: source.secret,
            masks: None,
            needs_policy: false,
            policy: Some(policy.clone()),
            querier: signer.public(),
            link: LinkKey::new(&LinkKey::secret_of(&secrets[of], roster.group(), device)),
        };
        let answerer =
            Answerer::new(membership, mote.recording.schema.clone(), Box::new(system_clock));
        let durable = durable(&keys, mote, place, folder)?;
        let records = mote.recording.iter().map(|(_, record)| record.to_vec()).collect();
        let link = networks[of].child(device.0);
        let sensed = Arc::clone(&sensed);
        tasks.spawn(async move {
            sense(position, durable, answerer, link, records, sensed)
                .await
                .map_err(|error| error.to_string())
        });
    }

    // The querier. The gateway gw-b turns malicious after half of the epochs.
    let schema =
        Schema::decode(&motes.first().ok_or_else(|| internal("no motes"))?.recording.schema)
            .map_err(internal)?;
    let plan = Plan::parse(QUERY, &schema).map_err(|error| internal(error.to_string()))?;
    let devices: Vec<DeviceId> = roster.devices().map(|device| device.id).collect();
    let querier = |plan: &Plan<'_>| {
        let mut buffer = [0; MAX_PLAN];
        let question = Question {
            group: circle.group,
            roster: circle.roster,
            nonce: *random::bytes()?,
            plan: plan.encode(&mut buffer).map_err(internal)?.to_vec(),
            key_group: circle.key_group,
            floor: default_floor(sources),
            min_count: default_min_count(plan),
            masked: None,
        };
        Querier::new(question, &master.master, &devices, Host::detect(), &|_| {})
            .map_err(|error| internal(error.to_string()))
    };
    let state = QuerierState::open(&folder.join("querier")).map_err(internal)?;
    let aggregator = networks[QUERIER].parent();
    let asking = || Endpoint {
        link: &aggregator,
        link_secret: &secrets[QUERIER],
        master: &master.master,
        signer: &signer,
        state: &state,
        unix_ms: &system_clock,
    };
    if !json {
        diagnostic(format_args!(
            "mote-1 to mote-4 -> gw-a, mote-5 to mote-8 -> gw-b, both -> root -> querier; no gateway can decrypt"
        ));
        diagnostic(QUERY);
    }
    let format = if json { RowFormat::JsonLines } else { RowFormat::Table };
    let names = RowNames::new(&plan, &schema);
    let mut writer = RowWriter::new(format, names, io::stdout()).map_err(internal)?;
    let mut tally = Tally::default();
    let mut seen = 0;
    let epochs = HONEST_EPOCHS + LIES.len() as u64;
    let mut take = |row: &Row| {
        tally.check(row, lie_of(seen), &plan, &schema, &sensed);
        writer.row(row)?;
        seen += 1;
        if let Some(malice) = lie_of(seen) {
            liar.lock().unwrap_or_else(PoisonError::into_inner).turn(malice);
            turned.store(true, Ordering::Relaxed);
            if !json {
                diagnostic(format_args!("{LIAR} now {}", malice.about()));
            }
        }
        Ok(())
    };
    let lease = Duration::from_secs(60);
    let run = RunOptions {
        epochs: Some(epochs),
        continued: None,
        grace: GRACE,
        has_default_floor: true,
        lease,
    };
    let mut ask = async |querier, run, take: &mut dyn FnMut(&Row) -> Result<(), OutputError>| {
        let never = std::future::pending();
        tokio::select! {
            asked = run_query(asking(), group.clone(), querier, run, None, take, never) => asked.map_err(|error| internal(error.to_string())),
            Some(ended) = tasks.join_next() => Err(internal(format_args!("a mote or gateway stopped: {ended:?}"))),
        }
    };
    ask(querier(&plan)?, run.clone(), &mut take).await?;
    writer.finish().map_err(internal)?;
    tally.verdict()?;

    turned.store(false, Ordering::Relaxed);
    let mut ask_once = async |text: &str, about: &str, check: &mut dyn FnMut(&Row, &Plan<'_>)| {
        if !json {
            diagnostic(about);
            diagnostic(text);
        }
        let plan = Plan::parse(text, &schema).map_err(|error| internal(error.to_string()))?;
        let names = RowNames::new(&plan, &schema);
        let mut writer = RowWriter::new(format, names, io::stdout()).map_err(internal)?;
        let mut take = |row: &Row| {
            check(row, &plan);
            writer.row(row)
        };
        let run = RunOptions { epochs: Some(1), ..run.clone() };
        ask(querier(&plan)?, run, &mut take).await?;
        writer.finish().map_err(internal)
    };
    let mut few = Tally::default();
    let mut check = |row: &Row, plan: &Plan<'_>| few.check(row, None, plan, &schema, &sensed);
    ask_once(
        FEW,
        "gw-b is honest again; the querier asks for the readings of few motes",
        &mut check,
    )
    .await?;
    few.withholds()?;

    // The querier breaks the policy. The motes refuse, although the querier's software does not check it.
    let mut refused = Vec::new();
    let mut check = |row: &Row, _: &Plan<'_>| {
        let is_missing = matches!(row.outcome, Outcome::Missing(_));
        refused.push(is_missing.then(|| row.reasons.clone()));
    };
    let about = "the querier asks for shorter epochs than the policy permits";
    ask_once(BREACH, about, &mut check).await?;
    tasks.shutdown().await;
    let refusing = refusing(&refused, motes.len())?;
    if !json {
        let mut out = Stdout::lock();
        let Tally { exact, refused, named, .. } = tally;
        out.line(format_args!(
            "{exact} sums were exact for the motes that they list; {refused} altered sums were rejected and traced to {LIAR}; {LIAR} claimed that {} did not answer, \
             although the seals state an answer: `moteseal audit --sums` finds this",
            count(named, "mote")
        ))?;
        out.line("the result over few readings was withheld")?;
        out.line(format_args!(
            "{refusing} of {} refused the query that the policy does not permit ({REFUSAL})",
            count(motes.len() as u64, "mote")
        ))?;
    }
    Ok(())
}

/// Returns the number of motes that have stated why they refuse the query that the policy does not
/// permit.
fn refusing(rows: &[Option<BTreeMap<u32, String>>], motes: usize) -> Result<usize, Failure> {
    let wrong = |what: &dyn std::fmt::Debug| {
        Failure::refused(format_args!("THIS IS A FAULT OF MOTESEAL: please report it: {what:?}"))
    };
    let [Some(reasons)] = rows else { return Err(wrong(&rows)) };
    if reasons.values().any(|reason| reason != REFUSAL) {
        return Err(wrong(reasons));
    }
    if reasons.len() < motes {
        let text =
            "not every mote stated its refusal in time, because this machine is busy; try again";
        return Err(Failure::new(Exit::Incomplete, text));
    }
    Ok(reasons.len())
}

/// Returns a policy that trusts the querier with the readings of all columns, but permits no epochs
/// shorter than those of the demo.
fn policy(circle: &Circle, querier: &PublicKey) -> Result<Vec<u8>, Failure> {
    let terms = QuerierTerms {
        key: KeyId::of(querier),
        is_trusted: true,
        epoch_ms: u32::try_from(EPOCH_MS).map_err(internal)?,
        budget: 0,
        columns: &[],
    };
    let draft = PolicyDraft {
        group: circle.group,
        roster: circle.roster,
        version: 1,
        min_count: LEAST_COUNT,
        min_count_squares: LEAST_COUNT,
        queriers: &[terms],
    };
    let mut payload = vec![0; MAX_PAYLOAD];
    Ok(draft.encode(&mut payload).map_err(internal)?.to_vec())
}

/// Returns the attack in the epoch with this index; `None` for an honest epoch.
fn lie_of(place: u64) -> Option<Malice> {
    place.checked_sub(HONEST_EPOCHS).and_then(|at| LIES.get(usize::try_from(at).ok()?)).copied()
}

/// The results of the epochs.
#[derive(Debug, Default)]
struct Tally {
    exact: u64,
    refused: u64,
    /// The number of results that were withheld because they are over few readings.
    withheld: u64,
    /// The number of motes that were falsely reported as silent.
    named: u64,
    /// The number of epochs in which too few sources answered in time because the machine was busy.
    missing: u64,
    /// The first wrong result, if any.
    wrong: Option<String>,
}

impl Tally {
    fn check(
        &mut self,
        row: &Row,
        lie: Option<Malice>,
        plan: &Plan<'_>,
        schema: &Schema<'_>,
        sensed: &Sensed,
    ) {
        let wrong = match &row.outcome {
            Outcome::Accepted(accepted) if lie.is_none_or(Malice::is_sound) => {
                let participants: Vec<u32> = row.participants.iter().collect();
                let expected = plain(plan, schema, row.epoch, &participants, sensed);
                let found: Vec<Option<ResultValue>> =
                    accepted.values().into_iter().map(Option::<&_>::cloned).collect();
                self.exact += 1;
                self.named += if lie.is_some() { row.silent().count() as u64 } else { 0 };
                (expected.as_ref() != Some(&found))
                    .then(|| format!("{found:?} was accepted, but {expected:?} was sensed"))
            }
            Outcome::Rejected { findings, .. } if lie.is_some_and(|lie| !lie.is_sound()) => {
                self.refused += 1;
                let is_traced = |finding: &Finding| matches!(finding, Finding::Edge { child, .. } if child == LIAR);
                (!matches!(&findings[..], [finding] if is_traced(finding)))
                    .then(|| format!("rejected, but traced to {findings:?}"))
            }
            Outcome::Missing(_) => {
                self.missing += 1;
                None
            }
            Outcome::Withheld(_) if lie.is_none_or(Malice::is_sound) => {
                let participants: Vec<u32> = row.participants.iter().collect();
                let few = |count: u32| (1..default_min_count(plan)).contains(&count);
                let count = plain(plan, schema, row.epoch, &participants, sensed)
                    .and_then(|results| results.into_iter().next_back()??.number()?.digits())
                    .and_then(|count| u32::try_from(count).ok());
                self.withheld += 1;
                (!count.is_some_and(few)).then(|| format!("{count:?} readings were withheld"))
            }
            outcome => Some(format!("the attack {lie:?} led to {outcome:?}")),
        };
        if let Some(wrong) = wrong {
            self.wrong.get_or_insert(format!("epoch {}: {wrong}", row.epoch));
        }
    }

    /// Returns the first wrong result as a failure.
    fn fault(&self) -> Result<(), Failure> {
        self.wrong.as_ref().map_or(Ok(()), |wrong| {
            let text = format!("THIS IS A FAULT OF MOTESEAL: please report it: {wrong}");
            Err(Failure::refused(text))
        })
    }

    /// Checks that a result over few readings was withheld.
    fn withholds(&self) -> Result<(), Failure> {
        self.fault()?;
        if self.withheld > 0 {
            return Ok(());
        }
        let text =
            "no result over few readings was withheld, because this machine is busy; try again";
        Err(Failure::new(Exit::Incomplete, text))
    }

    fn verdict(&self) -> Result<(), Failure> {
        self.fault()?;
        if self.missing * 2 > HONEST_EPOCHS + LIES.len() as u64 || self.refused == 0 {
            let missing = count(self.missing, "epoch");
            let text = format!(
                "{missing} had too few answers in time, because this machine is busy; try again"
            );
            return Err(Failure::new(Exit::Incomplete, text));
        }
        Ok(())
    }
}

/// Computes the expected result from the values that these motes sensed, without keys.
fn plain(
    plan: &Plan<'_>,
    schema: &Schema<'_>,
    epoch: u64,
    participants: &[u32],
    sensed: &Sensed,
) -> Option<Vec<Option<ResultValue>>> {
    let bound = plan.bind(schema).ok()?;
    let mut totals = vec![0; plan.slots().count()];
    let sensed = sensed.lock().unwrap_or_else(PoisonError::into_inner);
    for position in participants {
        let record = sensed.get(&(epoch, *position)).map(|record| &record[..]);
        let mut values = vec![0; totals.len()];
        bound.contribution(record, &mut values).ok()?;
        totals.iter_mut().zip(values).for_each(|(total, value)| *total += value);
    }
    // The results are exact, so that the size of the key groups does not matter.
    let answer = plan.answer(&totals, u32::try_from(participants.len()).ok()?, 1).ok()?;
    Some(answer.values().map(|value| Some(value?.with_histogram(Bins::from))).collect())
}

/// Runs a mote: it senses once per epoch, and answers queries.
async fn sense(
    position: u32,
    mut mote: DurableMote<SecretKey>,
    mut answerer: Answerer,
    mut link: MemoryChild,
    records: Vec<Vec<u8>>,
    sensed: Sensed,
) -> Result<(), moteseal_device::durable::DurableError> {
    let mut records = records.into_iter().cycle();
    let mut next = system_clock() / EPOCH_MS + 1;
    loop {
        for frame in answerer.answers(true, &mut mote)? {
            // Sending does not fail on a link within the process.
            _ = link.send(Bytes::from(frame)).await;
        }
        let now = system_clock();
        let senses_in = (next * EPOCH_MS + SENSES_AT_MS).saturating_sub(now);
        let due = answerer.due_in_ms().unwrap_or(u64::MAX).max(1);
        tokio::select! {
            down = link.receive() => match down {
                Ok(Down::Announcement(schedule)) => answerer.receive(&schedule, &mut mote)?,
                Ok(Down::Frame(_)) => {}
                Err(_) => return Ok(()),
            },
            () = tokio::time::sleep(Duration::from_millis(senses_in.min(due))) => {
                if system_clock() >= next * EPOCH_MS + SENSES_AT_MS && let Some(record) = records.next() {
                    let epoch = system_clock() / EPOCH_MS;
                    mote.sense(EpochNumber(0), &record)?;
                    answerer.sensed(&record);
                    sensed.lock().unwrap_or_else(PoisonError::into_inner).insert((epoch, position), record);
                    next = epoch + 1;
                }
            }
        }
    }
}

/// Opens a mote's journal and the state of its seals.
fn durable(
    keys: &Keys,
    mote: &Mote,
    place: usize,
    folder: &Path,
) -> Result<DurableMote<SecretKey>, Failure> {
    let schema = Schema::decode(&mote.recording.schema).map_err(internal)?;
    let profile = Profile::new(&keys.roster, mote.name, Scheme::Star, &schema).map_err(internal)?;
    let folder = folder.join(mote.name);
    std::fs::create_dir_all(&folder).map_err(internal)?;
    let chain = folder.join("chain");
    if !chain.exists() {
        chain_state::begin(&chain, profile.device, &Chain::start(profile.certificate))
            .map_err(internal)?;
    }
    let state = Outbox::open(&folder, &chain, &keys.roster, profile.device).map_err(internal)?;
    let (signer, salt) = &keys.devices[place];
    let identity = Identity {
        link: LinkKey::new(&LinkKey::secret_of(&keys.link, keys.roster.group(), profile.device)),
        challenge: u64::from_be_bytes(*random::bytes()?),
        profile,
        keys: signer.clone().into(),
        salt_key: SaltKey::new(**salt),
        coordinators: keys.roster.coordinators(),
        keeps_ended: false,
    };
    DurableMote::open(identity, state, &folder.join("journal"), WAITING).map_err(internal)
}

/// Generates a link secret for each aggregator.
fn secrets() -> Result<BTreeMap<&'static str, Zeroizing<[u8; 32]>>, Failure> {
    GATEWAYS
        .iter()
        .map(|(name, _)| *name)
        .chain([QUERIER])
        .map(|aggregator| Ok((aggregator, random::bytes()?)))
        .collect()
}

fn querier_keys(circle: &Circle, querier: &PublicKey) -> Result<QuerierKeys, Failure> {
    let secret = random::bytes()?;
    let mut pem = Zeroizing::new([0; MAX_KEY_FILE]);
    let text =
        QuerierKeys::encode(circle, (&QuerierName::default(), querier), &secret, None, &mut *pem)
            .map_err(internal)?;
    QuerierKeys::decode(text.as_bytes()).map_err(internal)
}

type Lies = Option<(Arc<Mutex<LyingAggregator>>, Arc<AtomicBool>)>;

fn liar(
    roster: &Roster,
    tree: &AggregationTree,
    secrets: &BTreeMap<&str, Zeroizing<[u8; 32]>>,
    key_group: u32,
) -> Result<Arc<Mutex<LyingAggregator>>, Failure> {
    let aggregator = tree
        .aggregator(LIAR)
        .ok_or_else(|| internal("the tree does not have the malicious gateway"))?;
    let parent =
        tree.parent(LIAR).ok_or_else(|| internal("the malicious gateway has no parent"))?;
    let up = LinkKey::secret_of(&secrets[parent], roster.group(), gateway_id(LIAR));
    let liar = LyingAggregator::new(
        Malice::Drop,
        aggregator,
        roster.group(),
        (&secrets[LIAR], &up),
        key_group,
    );
    Ok(Arc::new(Mutex::new(liar)))
}

/// A link to the children of an aggregator that also passes their frames to the malicious gateway.
struct Observed {
    inner: MemoryParent,
    lies: Lies,
}

impl ParentLink for Observed {
    async fn receive_but(&self, device: Option<[u8; 8]>) -> Result<Up, LinkError> {
        let up = self.inner.receive_but(device).await?;
        if let Some((liar, _)) = &self.lies {
            liar.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .receive(DeviceId(up.device), &up.frame);
        }
        Ok(up)
    }

    async fn send(&self, device: [u8; 8], frame: Bytes) -> Result<(), LinkError> {
        self.inner.send(device, frame).await
    }

    async fn announce(&self, announcement: Bytes) -> Result<(), LinkError> {
        self.inner.announce(announcement).await
    }

    fn state(&self) -> watch::Receiver<State> {
        self.inner.state()
    }

    fn dropped(&self) -> u64 {
        self.inner.dropped()
    }
}

/// A link to the parent that replaces the sums with altered ones once the malicious gateway has
/// started to attack.
struct Altered {
    inner: MemoryChild,
    lies: Lies,
}

impl ChildLink for Altered {
    async fn send(&self, frame: Bytes) -> Result<(), LinkError> {
        let lie = self.lies.as_ref().and_then(|(liar, turned)| {
            let lie = liar.lock().unwrap_or_else(PoisonError::into_inner).lie(&frame);
            lie.filter(|_| turned.load(Ordering::Relaxed))
        });
        self.inner.send(lie.map_or(frame, Bytes::from)).await
    }

    async fn receive(&mut self) -> Result<Down, LinkError> {
        self.inner.receive().await
    }

    fn state(&self) -> watch::Receiver<State> {
        self.inner.state()
    }
}
