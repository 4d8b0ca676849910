//! `moteseal-demo` without a subcommand: seals, stores, samples and verifies recorded readings with
//! the real service and the real client. Then the cloud lies, a coordinator cheats, and the group
//! changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use moteseal_adversary::{EXPLAIN_LIES, Holdings, LIES};
use moteseal_api::Query;
use moteseal_client::estimate::Estimator;
use moteseal_client::output::OutputError;
use moteseal_client::{Report, Rows, Sink};
use moteseal_cloud::{Cloud, Config};
use moteseal_core::Digest;
use moteseal_core::record::EpochNumber;
use moteseal_core::record::Scheme;
use moteseal_device::push::Push;
use moteseal_net::{Client, Options};
use moteseal_seal::sample::{Choice, Rate};
use moteseal_store::{EpochStore, RedbStore};
use moteseal_verify::Roster;
use tokio::sync::{oneshot, watch};

use crate::confidential::{self, Confidential};
use crate::edge::{self, Edge};
use crate::fleet::{self, Fleet};
use crate::liar::Liar;
use crate::life::{self, Life};
use crate::readings::{self, Mote};
use crate::results::{DRAWN, Estimated, Results};
use crate::verdict::{self, Verdict};
use crate::{internal, runtime, show};
use moteseal_terminal::failure::Failure;
use moteseal_terminal::output::diagnostic;
use moteseal_terminal::progress::bar;

/// The number of epochs of each mote with `--quick`.
const QUICK_EPOCHS: u64 = 8;
/// The number of epochs that the queries to the lying cloud cover.
const LIED_ABOUT: u64 = 20;

/// Seal, store, sample and verify the readings of eight real motes. Then the cloud lies.
///
/// Afterwards the same motes send their readings through a coordinator with a budget. The
/// coordinator is audited, and then it cheats. At last, a group changes while its cloud runs: a mote
/// joins, another one gets a new key, loses its state and recovers it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
                        moteseal-demo                        everything, in a few seconds\n  \
                        moteseal-demo --tamper forged-salt   one lie in detail; an unknown kind lists all kinds\n  \
                        moteseal-demo --keep try             keeps keys, roster, bundles and store in try/\n\n\
                        Everything runs on this machine; nothing is downloaded. Exit codes: 0 every lie was caught, 1 honest\n\
                        data was rejected or an honest coordinator accused, 3 a lie was not caught.")]
pub(crate) struct Arguments {
    /// Use fewer epochs
    #[arg(long)]
    quick: bool,
    /// Tell only one lie, and show it in detail
    #[arg(long, value_name = "KIND")]
    tamper: Option<String>,
    /// Keep keys, roster, bundles and store in a new directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Print the result as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(kind) = arguments.tamper.as_deref().filter(|kind| !verdict::kinds().contains(kind))
    {
        for kind in verdict::kinds() {
            diagnostic(format_args!("  {kind}"));
        }
        return Err(Failure::usage(format_args!(
            "--tamper {kind}: unknown kind; the kinds are listed above"
        )));
    }
    let temporary = tempfile::tempdir().map_err(internal)?;
    let home = match &arguments.keep {
        Some(home) => {
            keep(home)?;
            home.as_path()
        }
        None => temporary.path(),
    };
    let results = runtime()?.block_on(play(arguments, home))?;
    if arguments.json {
        show::json(&results)?;
    } else if arguments.tamper.is_some() {
        show::one(&results)?;
    } else {
        show::all(&results, arguments.quick)?;
    }
    if let (Some(home), false) = (&arguments.keep, arguments.json) {
        show::kept(home, &results)?;
    }
    match results.uncaught() {
        0 => Ok(()),
        count => Err(Failure::refused(format_args!(
            "{count} LIES WERE NOT CAUGHT: this is a fault of Moteseal; please report it"
        ))),
    }
}

/// Creates the directory of --keep, which must be empty.
fn keep(home: &Path) -> Result<(), Failure> {
    let fail = |error| Failure::file("create", home, &error);
    std::fs::create_dir_all(home).map_err(fail)?;
    match std::fs::read_dir(home).map_err(fail)?.next() {
        None => Ok(()),
        Some(_) => Err(Failure::usage(format_args!(
            "--keep {}: the directory is not empty; choose a new one",
            home.display()
        ))),
    }
}

async fn play(arguments: &Arguments, home: &Path) -> Result<Results, Failure> {
    let motes = readings::motes(arguments.quick.then_some(QUICK_EPOCHS))?;
    let fleet = fleet::build(home, &motes)?;

    let path = home.join("epochs.redb");
    let (client, running) = Running::start(&path, fleet.roster.clone()).await?;

    let push = Push::open(&fleet.bundles).map_err(internal)?;
    let progress = bar(push.len() as u64, "pushing");
    let start = Instant::now();
    let pushed = push.to(&client, &mut |done| progress.set_position(done)).await;
    let push_time = start.elapsed();
    progress.finish_and_clear();
    let pushed = pushed.map_err(internal)?;

    let first = fleet
        .stars
        .bundles
        .iter()
        .map(moteseal_device::Bundle::epoch)
        .min()
        .unwrap_or(EpochNumber(0));
    let query = |devices: &[_], until, choice| Query {
        devices: devices.to_vec(),
        since: first,
        until,
        choice,
        columns: Vec::new(),
    };
    let rate = Rate::new(1, 8).map_err(internal)?;
    let mut measured = Both::new();
    let (sampled, sample_time) =
        ask(&client, &fleet, &query(&fleet.stars.devices, None, Choice::Rate(rate)), &mut measured)
            .await?;
    let mut nothing = |_: &Rows<'_>| Ok(());
    let (all, all_time) = ask(
        &client,
        &fleet,
        &query(&fleet.stars.devices, None, Choice::Rate(Rate::ALL)),
        &mut nothing,
    )
    .await?;
    let seed = Digest::of(&[b"the demo's seed"]).0;
    let draw = Choice::Sample { count: DRAWN, seed };
    let (drawn, _) =
        ask(&client, &fleet, &query(&fleet.trees.devices, None, draw), &mut nothing).await?;
    let estimates = measured.estimates(&motes);

    let (verdicts, untold) = lies(arguments, client, &fleet, first, (rate, draw)).await?;
    let store_bytes = std::fs::metadata(&path).map(|file| file.len()).unwrap_or_default();
    running.end().await;
    let (mut edge, mut life, mut confidential) = (None, None, None);
    if arguments.tamper.is_none() {
        edge = Some(at_the_edge(home, &motes).await?);
        life = Some(of_a_group(home, &motes).await?);
        confidential = Some(in_confidence(home, &motes, &path).await?);
    }
    Ok(Results {
        compression_ns: compression(),
        motes,
        fleet,
        pushed,
        push_time,
        store_bytes,
        rate,
        sampled,
        sample_time,
        all,
        all_time,
        drawn,
        estimates,
        verdicts,
        untold,
        edge,
        life,
        confidential,
    })
}

/// Runs the second part of the demonstration: the same motes, now in a group with a budget and a
/// separate cloud.
async fn at_the_edge(home: &Path, motes: &[Mote]) -> Result<Edge, Failure> {
    let keys = edge::keys(motes)?;
    let (client, running) = Running::start(&home.join("edge.redb"), keys.roster.clone()).await?;
    let edge = edge::play(&keys, motes, &client).await;
    running.end().await;
    edge
}

/// Runs the third part of the demonstration: a group that changes, with a cloud that loads each
/// version of its roster while it runs.
async fn of_a_group(home: &Path, motes: &[Mote]) -> Result<Life, Failure> {
    let start = life::start(motes)?;
    let versions = start.versions.subscribe();
    let (client, running) = Running::follow(&home.join("life.redb"), versions).await?;
    let life = life::play(home, start, motes, &client).await;
    running.end().await;
    life
}

/// Runs the fourth part of the demonstration: motes that encrypt their readings, and readers with
/// grants. `plain` is the file of a cloud with the same readings in plaintext.
async fn in_confidence(home: &Path, motes: &[Mote], plain: &Path) -> Result<Confidential, Failure> {
    let start = confidential::start(motes)?;
    let store = home.join("confidential.redb");
    let (client, running) = Running::start(&store, start.roster.clone()).await?;
    let played = confidential::play(home, &start, &client).await;
    running.end().await;
    confidential::finish(&start, played?, (&store, plain))
}

/// A cloud that runs in this process.
struct Running {
    stop: oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<()>,
}

impl Running {
    /// Starts a cloud on a new store. Returns a client for it, and the cloud.
    async fn start(path: &Path, roster: Roster) -> Result<(Client, Self), Failure> {
        Self::follow(path, watch::channel(Arc::new(roster)).1).await
    }

    /// Like [`start`](Self::start). The cloud continues with each later version of the roster.
    async fn follow(
        path: &Path,
        versions: watch::Receiver<Arc<Roster>>,
    ) -> Result<(Client, Self), Failure> {
        let roster = Roster::clone(&versions.borrow());
        let store: Arc<dyn EpochStore> =
            Arc::new(RedbStore::open(path, moteseal_store::Options::default()).map_err(internal)?);
        let cloud = Cloud::bind(Config::new(roster), store).await.map_err(internal)?;
        let cloud = cloud.with_rosters(versions);
        let client = Client::new(&cloud.url(), &Options::default()).map_err(internal)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(cloud.run(async { drop(stopped.await) }));
        Ok((client, Self { stop, serving }))
    }

    /// Stops the cloud and waits until it has closed its store.
    async fn end(self) {
        let _ = self.stop.send(());
        let _ = self.serving.await;
    }
}

/// Queries the honest cloud. Fails if the client rejects the response, which would be a fault of
/// Moteseal.
async fn ask(
    client: &Client,
    fleet: &Fleet,
    query: &Query,
    sink: &mut dyn Sink,
) -> Result<(Report, Duration), Failure> {
    let start = Instant::now();
    let report = moteseal_client::Client::new(client, &fleet.roster)
        .query(query)
        .run(sink)
        .await
        .map(|verified| verified.report);
    let time = start.elapsed();
    match report {
        Ok(report) if report.is_complete() => Ok((report, time)),
        Ok(_) => Err(internal(
            "HONEST DATA WAS REJECTED as incomplete: this is a fault of Moteseal; please report it",
        )),
        Err(error) => Err(internal(format_args!(
            "HONEST DATA WAS REJECTED: this is a fault of Moteseal; please report it: {error}"
        ))),
    }
}

/// Lets a cloud lie in every known way, or only in the way that `--tamper` names.
async fn lies(
    arguments: &Arguments,
    honest: Client,
    fleet: &Fleet,
    first: EpochNumber,
    (rate, draw): (Rate, Choice),
) -> Result<(Vec<Verdict>, Vec<&'static str>), Failure> {
    let mut holdings = Holdings::default();
    for bundle in fleet.stars.bundles.iter().chain(&fleet.trees.bundles) {
        holdings.take(&fleet.roster, &bundle.bytes).map_err(internal)?;
    }
    let liar = Liar::new(honest, holdings, fleet.keys.clone());
    let url = Arc::clone(&liar).serve().await.map_err(internal)?;
    let client = Client::new(&url, &Options::default()).map_err(internal)?;

    // The cloud has one epoch before the queried range and some epochs after it, so that a lie can
    // return epochs outside the range.
    let epochs = if arguments.quick { QUICK_EPOCHS } else { LIED_ABOUT + 2 };
    let range = |devices: &[_], choice| {
        let (since, until) = (EpochNumber(first.0 + 1), Some(EpochNumber(first.0 + epochs - 1)));
        Query { devices: devices.to_vec(), since, until, choice, columns: Vec::new() }
    };
    let queries = [
        (Scheme::Star, vec![range(&fleet.stars.devices, Choice::Rate(rate))]),
        (
            Scheme::Tree,
            vec![
                range(&fleet.trees.devices, Choice::Rate(rate)),
                range(&fleet.trees.devices, draw),
            ],
        ),
    ];
    let mut queries_by_scheme = Vec::new();
    for (scheme, queries) in queries {
        let mut honest_queries = Vec::new();
        for query in queries {
            let pinned = verdict::honest(&liar, &client, &fleet.roster, &query).await;
            let pinned = pinned.map_err(|error| {
                internal(format_args!("HONEST DATA WAS REJECTED: this is a fault of Moteseal; please report it: {error}"))
            })?;
            honest_queries.push((query, pinned));
        }
        queries_by_scheme.push((scheme, honest_queries));
    }
    let is_selected = |name: &str| arguments.tamper.as_deref().is_none_or(|kind| kind == name);
    let (mut verdicts, mut untold) = (Vec::new(), Vec::new());
    let progress = bar((LIES.len() + EXPLAIN_LIES.len()) as u64, "lying");
    for lie in LIES.iter().filter(|lie| is_selected(lie.name)) {
        progress.inc(1);
        // `--quick` skips lies that transfer tens of megabytes, unless `--tamper` selects one.
        let left_out = lie.heavy && arguments.quick && arguments.tamper.is_none();
        let before = verdicts.len();
        for (scheme, queries) in
            queries_by_scheme.iter().filter(|(scheme, _)| lie.schemes.include(*scheme) && !left_out)
        {
            verdicts.extend(
                verdict::try_lie(&liar, &client, &fleet.roster, (lie, *scheme), queries).await,
            );
        }
        if verdicts.len() == before {
            untold.push(lie.name);
        }
    }
    for lie in EXPLAIN_LIES.iter().filter(|lie| is_selected(lie.name)) {
        progress.inc(1);
        let before = verdicts.len();
        for (scheme, queries) in
            queries_by_scheme.iter().filter(|(scheme, _)| lie.schemes.include(*scheme))
        {
            let verdict = verdict::try_explanation_lie(
                &liar,
                &client,
                &fleet.roster,
                (lie, *scheme),
                &queries[0].0,
            )
            .await;
            verdicts.extend(verdict);
        }
        if verdicts.len() == before {
            untold.push(lie.name);
        }
    }
    progress.finish_and_clear();
    Ok((verdicts, untold))
}

/// Estimates temperature and humidity in one pass.
struct Both {
    temperature: Estimator,
    humidity: Estimator,
}

impl Both {
    fn new() -> Self {
        Self { temperature: Estimator::new("temperature"), humidity: Estimator::new("humidity") }
    }

    #[allow(clippy::cast_precision_loss)]
    fn estimates(&self, motes: &[Mote]) -> Vec<Estimated> {
        let truth = |at: usize| {
            let (sum, count) = motes
                .iter()
                .flat_map(|mote| &mote.raw)
                .fold((0.0, 0_u64), |(sum, count), raw| (sum + raw[at], count + 1));
            sum / count.max(1) as f64
        };
        let fields = [
            ("temperature", "Cel", &self.temperature, truth(0)),
            ("humidity", "%RH", &self.humidity, truth(1)),
        ];
        let estimated = fields.into_iter().map(|(field, unit, estimator, truth)| {
            estimator.mean().map(|estimate| Estimated { field, unit, estimate, truth })
        });
        estimated.flatten().collect()
    }
}

impl Sink for Both {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        self.temperature.rows(rows)?;
        self.humidity.rows(rows)
    }
}

/// Measures the time of one SHA-256 compression in a dependent sequence, in nanoseconds: the best
/// of five rounds.
#[allow(clippy::cast_precision_loss)]
fn compression() -> f64 {
    const ROUND: u32 = 20_000;
    let rounds = (0..5).map(|_| {
        let start = Instant::now();
        // A message of 32 bytes takes one compression.
        let end = (0..ROUND).fold(Digest::NULL, |digest, _| Digest::of(&[&digest.0]));
        std::hint::black_box(end);
        start.elapsed().as_nanos() as f64 / f64::from(ROUND)
    });
    rounds.fold(f64::INFINITY, f64::min)
}
