//! A query over a link. Every epoch is either answered exactly, or reported as missing or rejected.
//! Devices answer only while the querier runs. The tests use tokio's paused clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::sum_support::{
    Chance, Contribution, MASTER, Reading, Scene, Traffic, epoch, reading, roster, tree,
};
use bytes::Bytes;
use moteseal_client::sum::{Endpoint, Outcome, QuerierState, Row, RunOptions, run_query};
use moteseal_core::link::LinkKey;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_net::in_memory::{Faults, Network};
use moteseal_net::link::Down;
use moteseal_net::{ChildLink as _, ParentLink as _};
use moteseal_sum::query::QueryId;
use moteseal_sum::schedule::{self, MAX_QUERY_SCHEDULE, QuerySchedule};
use moteseal_sum::sies::{Master, Psr};
use moteseal_sum::wire::{Children, Explain, close_share};
use moteseal_verify::Roster;
use moteseal_verify::aggregation::{AggregationTree, QUERIER};
use tokio::time::Instant;

const CHILDREN_SECRET: [u8; 32] = [0x77; 32];
const EPOCH_MS: u64 = 5000;
const GRACE: Duration = Duration::from_millis(300);
/// A delay that is a little shorter than the timeout of a question, which is four grace periods.
const DRIP: Duration = Duration::from_millis(1150);
const START_MS: u64 = 1_800_000_000_000;
const SOURCES: u32 = 12;

/// The fault that occurs in an epoch. [`World`] has a list of these, from the first epoch on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mishap {
    None,
    /// The gateways directly below the querier send nothing.
    Silence,
    /// The gateways directly below the querier use another link secret.
    WrongSecret,
    /// One source sends nothing.
    OneSilent,
    /// One source and the smaller of the two gateways below the querier send nothing.
    SmallSilent,
    /// The share of one source is altered on the edge above the source.
    Lie,
    /// The same as `Lie`, and no gateway answers questions.
    LieUnexplained,
    /// The same as `Lie`, and each page of an answer takes almost as long as the timeout.
    LieDripped,
    /// The shares of all gateways below the querier are altered. The first gateway does not answer
    /// questions, and the other gateways no longer have the epoch after two seconds.
    AllLie,
}

/// A query schedule that a gateway has received.
#[derive(Clone, Copy, Debug)]
struct Received {
    at_ms: u64,
    number: u64,
    query: Option<(QueryId, u64, u64)>,
}

struct World {
    scene: Scene,
    readings: Mutex<BTreeMap<u64, Vec<Reading>>>,
    mishaps: Vec<Mishap>,
    schedules: Mutex<Vec<Received>>,
    /// The time of each row, in Unix milliseconds.
    rows_ms: Mutex<Vec<u64>>,
    start: Instant,
}

impl World {
    fn new(mishaps: &[Mishap]) -> Arc<Self> {
        let roster = roster(SOURCES as usize);
        let mut chance = Chance(77);
        let tree = tree(&roster, 5, &mut chance);
        Self::of(roster, tree, mishaps, chance)
    }

    /// Creates a tree with two gateways below the querier: one with two sources, and one with all
    /// other sources.
    fn flat(mishaps: &[Mishap]) -> Arc<Self> {
        let roster = roster(SOURCES as usize);
        let homes: Vec<(String, &str)> = (0..)
            .zip(roster.devices())
            .map(|(at, device)| (device.name.clone(), if at < 2 { "gw-1" } else { "gw-0" }))
            .collect();
        let homes = homes.iter().map(|(device, gateway)| (device.as_str(), *gateway));
        let tree =
            AggregationTree::new(&roster, [("gw-0", QUERIER), ("gw-1", QUERIER)], homes).unwrap();
        Self::of(roster, tree, mishaps, Chance(77))
    }

    fn of(
        roster: Roster,
        tree: AggregationTree,
        mishaps: &[Mishap],
        mut chance: Chance,
    ) -> Arc<Self> {
        let query = "SELECT AVG(temperature), COUNT(*) FROM sensors EPOCH DURATION 5s";
        let scene = Scene::new(roster, tree, query, SOURCES, 7, &mut chance);
        let (readings, schedules, rows_ms) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self {
            scene,
            readings,
            mishaps: mishaps.to_vec(),
            schedules,
            rows_ms,
            start: Instant::now(),
        })
    }

    fn now_ms(&self) -> u64 {
        START_MS + u64::try_from((Instant::now() - self.start).as_millis()).unwrap()
    }

    fn signer() -> SecretKey {
        SecretKey::from_seed(Algorithm::Ed25519, &[0x99; 32]).unwrap()
    }

    fn first() -> u64 {
        START_MS / EPOCH_MS + 1
    }

    fn mishap(&self, number: u64) -> Mishap {
        self.mishaps.get((number - Self::first()) as usize).copied().unwrap_or(Mishap::None)
    }

    /// Returns the name of the source whose edge is altered, and the name of its gateway.
    fn victim(&self) -> (String, String) {
        let position = SOURCES - 1;
        let name = self.scene.tree.name(self.scene.devices[position as usize]).unwrap();
        (name.to_owned(), self.scene.tree.gateway_of(position).unwrap().to_owned())
    }

    /// Returns the shares of an epoch. Every call returns the same shares.
    fn traffic(&self, number: u64) -> Traffic {
        let mut chance = Chance(number);
        let readings: Vec<Reading> = (0..SOURCES).map(|_| reading(&mut chance)).collect();
        let mishap = self.mishap(number);
        let answers: Vec<Option<Contribution>> = (0..)
            .zip(&readings)
            .map(|(position, reading)| {
                let answers =
                    !matches!(mishap, Mishap::OneSilent | Mishap::SmallSilent) || position != 3;
                answers.then(|| self.scene.answer(position, number, Some(reading)))
            })
            .collect();
        self.readings.lock().unwrap().insert(number, readings);
        let victim = self.victim().0;
        epoch(&self.scene.tree, &answers, &mut |child, share| {
            let is_root =
                self.scene.tree.querier().children().iter().any(|root| root.name == child);
            let lies = match mishap {
                Mishap::Lie | Mishap::LieUnexplained | Mishap::LieDripped => child == victim,
                Mishap::AllLie => is_root,
                _ => false,
            };
            if lies {
                share.psrs.values_mut().for_each(|psr| *psr = psr.merge(psr));
            }
        })
    }
}

/// Runs a gateway below the querier, including all nodes below the gateway.
async fn gateway(world: Arc<World>, network: Network, id: [u8; 8]) {
    let mut link = network.child(id);
    let group = world.scene.question.group;
    let id = moteseal_core::record::DeviceId(id);
    let key = LinkKey::new(&LinkKey::secret_of(&CHILDREN_SECRET, group, id));
    let name = world.scene.tree.name(id).unwrap().to_owned();
    let mut asked: Option<(QueryId, u64, u64)> = None;
    let mut next = 0;
    let mut answers: VecDeque<(Instant, Bytes)> = VecDeque::new();
    loop {
        let far = Instant::now() + Duration::from_secs(3600);
        // The gateway sends its share shortly after the end of the epoch.
        let due = asked.map_or(u64::MAX, |(_, _, until)| {
            if next < until { (next + 1) * EPOCH_MS + 100 } else { u64::MAX }
        });
        let wait = Duration::from_millis(due.saturating_sub(world.now_ms()).min(3_600_000));
        tokio::select! {
            down = link.receive() => match down.unwrap() {
                Down::Announcement(bytes) => {
                    let mut scratch = vec![0; MAX_QUERY_SCHEDULE];
                    let public = World::signer().public();
                    let opened = schedule::receive(&bytes, group, &public, &mut scratch).unwrap();
                    let roster = &world.scene.question.roster;
                    let schedule = QuerySchedule::open(&opened, group, roster).unwrap();
                    let query = schedule.queries().next();
                    asked = query.map(|(id, posed)| (id, posed.first, posed.until));
                    next = next.max(asked.map_or(0, |(_, first, _)| first));
                    assert_eq!(schedule.sources(), SOURCES);
                    let number = schedule.number();
                    let received = Received { at_ms: world.now_ms(), number, query: asked };
                    world.schedules.lock().unwrap().push(received);
                }
                Down::Frame(frame) => {
                    let explain = Explain::open(&frame, &key).unwrap();
                    let is_first = world.scene.tree.querier().children()[0].name == name;
                    match world.mishap(explain.epoch) {
                        Mishap::LieUnexplained => continue,
                        Mishap::AllLie if is_first => continue,
                        _ => {}
                    }
                    let mishap = world.mishap(explain.epoch);
                    let is_late = world.now_ms() > (explain.epoch + 1) * EPOCH_MS + 2000;
                    let answer = if mishap == Mishap::AllLie && is_late {
                        let mut out = [0; 80];
                        let empty = Children::close(&explain, &[], &key, &mut out).unwrap();
                        Bytes::copy_from_slice(empty)
                    } else {
                        answer(&world, &explain, &key)
                    };
                    let is_slow = mishap == Mishap::LieDripped;
                    let delay = if is_slow { DRIP } else { Duration::ZERO };
                    answers.push_back((Instant::now() + delay, answer));
                }
            },
            () = tokio::time::sleep_until(answers.front().map_or(far, |(at, _)| *at)) => {
                if let Some((_, answer)) = answers.pop_front() {
                    link.send(answer).await.unwrap();
                }
            }
            () = tokio::time::sleep(wait) => {
                let Some((query, ..)) = asked else { continue };
                let is_silent = match world.mishap(next) {
                    Mishap::Silence => true,
                    Mishap::SmallSilent => name == "gw-1",
                    _ => false,
                };
                let traffic = world.traffic(next);
                if let Some(share) = traffic.shares.get(&name)
                    && !is_silent
                {
                    let psrs: Vec<Psr> = share.psrs.values().copied().collect();
                    let participation = share.participation(SOURCES);
                    let (query, mut out) = (query.reference(), [0; 4096]);
                    let wrong = LinkKey::new(&[0x78; 32]);
                    let is_wrong = world.mishap(next) == Mishap::WrongSecret;
                    let key = if is_wrong { &wrong } else { &key };
                    let frame =
                        close_share(query, next, &participation, &psrs, key, &mut out).unwrap();
                    link.send(Bytes::copy_from_slice(frame)).await.unwrap();
                }
                next += 1;
            }
        }
    }
}

fn answer(world: &World, explain: &Explain, key: &LinkKey) -> Bytes {
    let traffic = world.traffic(explain.epoch);
    let name = world.scene.tree.name(explain.node).unwrap();
    let aggregator = world.scene.tree.aggregator(name).unwrap();
    let reported: Vec<_> = aggregator
        .children()
        .iter()
        .filter_map(|child| traffic.shares.get(&child.name).map(|share| (child.id, share)))
        .map(|(id, share)| {
            (id, share.participation(SOURCES), share.psrs.values().copied().collect::<Vec<_>>())
        })
        .collect();
    let children: Vec<_> =
        reported.iter().map(|(id, who, psrs)| (*id, &who[..], &psrs[..])).collect();
    // The buffer has room for one child, so that each answer has several pages.
    let mut out = [0; 80 + 24 + 16 + 2 * 34];
    Bytes::copy_from_slice(Children::close(explain, &children, key, &mut out).unwrap())
}

/// Runs a query and returns its rows. Fails if an epoch was skipped.
async fn run(world: &Arc<World>, faults: Faults, settings: RunOptions, most: usize) -> Vec<Row> {
    let (rows, missed) = run_by(world, faults, settings, most, &|now_ms| now_ms).await;
    assert_eq!(missed, 0, "epochs were skipped");
    rows
}

fn endpoint<'a, L>(
    link: &'a L,
    master: &'a Master,
    signer: &'a SecretKey,
    state: &'a QuerierState,
    unix_ms: &'a (dyn Fn() -> u64 + Sync),
) -> Endpoint<'a, L> {
    Endpoint { link, link_secret: &CHILDREN_SECRET, master, signer, state, unix_ms }
}

/// Runs a query with a clock that may be wrong. Returns its rows and the number of skipped epochs.
async fn run_by(
    world: &Arc<World>,
    faults: Faults,
    settings: RunOptions,
    most: usize,
    clock: &(dyn Fn(u64) -> u64 + Sync),
) -> (Vec<Row>, u64) {
    let network = Network::new(5, faults);
    let gateways: Vec<_> = world
        .scene
        .tree
        .querier()
        .children()
        .iter()
        .map(|child| tokio::spawn(gateway(world.clone(), network.clone(), child.id.0)))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let state = QuerierState::open(&folder.path().join("state")).unwrap();
    let (aggregator, signer) = (network.parent(), World::signer());
    let clock = || clock(world.now_ms());
    let master = Master::new(MASTER);
    let asking = endpoint(&aggregator, &master, &signer, &state, &clock);
    let (mut rows, enough) = (Vec::new(), tokio::sync::Notify::new());
    let mut take = |row: &Row| {
        rows.push(row.clone());
        world.rows_ms.lock().unwrap().push(world.now_ms());
        if rows.len() == most {
            enough.notify_one();
        }
        Ok(())
    };
    let missed = run_query(
        asking,
        world.scene.group(),
        world.scene.querier(),
        settings,
        None,
        &mut take,
        enough.notified(),
    )
    .await
    .unwrap();
    for gateway in gateways {
        gateway.abort();
        assert!(gateway.await.is_err_and(|error| error.is_cancelled()), "a gateway has failed");
    }
    assert_eq!(aggregator.dropped(), 0);
    (rows, missed)
}

/// Checks an accepted epoch against its readings, and checks which sources were reported as silent.
fn check(world: &World, row: &Row, silent: &[u32]) {
    check_answer(world, row);
    assert_eq!(row.silent().collect::<Vec<_>>(), silent);
    assert_eq!(row.unheard(), 0);
}

/// Checks an accepted epoch against the readings of its participants.
fn check_answer(world: &World, row: &Row) {
    let Outcome::Accepted(accepted) = &row.outcome else { panic!("{row:?}") };
    let readings = &world.readings.lock().unwrap()[&row.epoch];
    let values: Vec<i64> = (0..)
        .zip(readings)
        .filter(|(position, _)| row.participants.contains(*position))
        .map(|(_, reading)| reading[0])
        .collect();
    let (sum, count) = (values.iter().sum::<i64>() as i128, values.len() as i128);
    let digits = accepted.values()[0].unwrap().number().unwrap().digits().unwrap();
    // The mean has six decimal places and is rounded; raw readings have two.
    assert!(
        (digits * count - sum * 10_000).abs() * 2 <= count,
        "{digits} is not the mean of {values:?}"
    );
    assert_eq!(accepted.values()[1].unwrap().number().unwrap().digits(), Some(count));
}

const SETTINGS: RunOptions = RunOptions {
    epochs: None,
    continued: None,
    grace: GRACE,
    has_default_floor: false,
    lease: Duration::from_secs(40),
};

#[tokio::test(start_paused = true)]
async fn every_epoch_is_exact_or_missing_or_rejected_with_its_edge() {
    use Mishap::{Lie, LieUnexplained, None, OneSilent, Silence};
    let world = World::new(&[None, OneSilent, Lie, Silence, LieUnexplained, None]);
    let rows =
        run(&world, Faults::default(), RunOptions { epochs: Some(6), ..SETTINGS }, usize::MAX)
            .await;
    assert_eq!(
        rows.iter().map(|row| row.epoch).collect::<Vec<_>>(),
        (World::first()..World::first() + 6).collect::<Vec<_>>()
    );
    check(&world, &rows[0], &[]);
    check(&world, &rows[1], &[3]);
    check(&world, &rows[5], &[]);
    let (victim, above) = world.victim();
    let Outcome::Rejected { refusal, findings } = &rows[2].outcome else { panic!("{:?}", rows[2]) };
    assert_eq!(refusal.name(), "SharesMismatch");
    let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(found, [format!("{victim} -> {above}")]);
    assert_eq!(
        (rows[2].silent().count(), rows[4].silent().count()),
        (0, 0),
        "a rejected sum has no silent sources"
    );
    let Outcome::Missing(refusal) = &rows[3].outcome else { panic!("{:?}", rows[3]) };
    assert_eq!((rows[3].silent().count(), rows[3].unheard()), (0, SOURCES), "nothing was reported");
    assert_eq!((refusal.name(), rows[3].participants.count()), ("BelowFloor", 0));
    let Outcome::Rejected { findings, .. } = &rows[4].outcome else { panic!("{:?}", rows[4]) };
    assert!(
        matches!(&findings[..], [one] if one.to_string().ends_with("-> querier (unanswered)")),
        "{findings:?}"
    );
    // No schedule includes more epochs than requested, and the last schedule withdraws the query.
    let schedules = world.schedules.lock().unwrap();
    let last = schedules.iter().max_by_key(|schedule| schedule.number).unwrap();
    assert!(last.query.is_none(), "{last:?}");
    assert!(
        schedules
            .iter()
            .filter_map(|schedule| schedule.query)
            .all(|(_, first, until)| first == World::first() && until == first + 6)
    );
}

#[tokio::test(start_paused = true)]
async fn a_query_is_a_lease_that_is_renewed_while_the_querier_lives() {
    let world = World::new(&[]);
    let rows = run(&world, Faults::default(), SETTINGS, 30).await;
    assert_eq!(rows.len(), 30);
    rows.iter().for_each(|row| check(&world, row, &[]));
    let schedules = world.schedules.lock().unwrap();
    let mut queries = schedules.iter().filter_map(|schedule| schedule.query);
    let (id, first, _) = queries.next().unwrap();
    assert!(
        queries.all(|query| (query.0, query.1) == (id, first)),
        "every schedule has the same query"
    );
    for Received { at_ms, query, .. } in schedules.iter() {
        let ahead = query.map_or(0, |(_, _, until)| (until * EPOCH_MS).saturating_sub(*at_ms));
        assert!(
            ahead <= 40_000 + EPOCH_MS,
            "without the querier, the query would run for {ahead} ms"
        );
    }
    assert!(schedules.len() > 6 && schedules.last().unwrap().query.is_none(), "{schedules:?}");
}

/// Runs a query that no source answers for `hours` hours, and returns the announcements.
async fn announced(text: &str, hours: u64) -> Vec<Bytes> {
    let mut chance = Chance(78);
    let roster = roster(SOURCES as usize);
    let tree = tree(&roster, 5, &mut chance);
    let scene = Scene::new(roster, tree, text, SOURCES, 7, &mut chance);
    let network = Network::new(5, Faults::default());
    let mut child = network.child(scene.tree.querier().children()[0].id.0);
    let received = Arc::new(Mutex::new(Vec::new()));
    let listener = tokio::spawn({
        let received = received.clone();
        async move {
            while let Ok(down) = child.receive().await {
                let Down::Announcement(schedule) = down else { panic!("{down:?}") };
                received.lock().unwrap().push(schedule);
            }
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let state = QuerierState::open(&folder.path().join("state")).unwrap();
    let (aggregator, signer, start) = (network.parent(), World::signer(), Instant::now());
    let clock = || START_MS + u64::try_from(start.elapsed().as_millis()).unwrap();
    let master = Master::new(MASTER);
    let asking = endpoint(&aggregator, &master, &signer, &state, &clock);
    let run = RunOptions { lease: Duration::from_secs(3600), ..SETTINGS };
    let stop = tokio::time::sleep(Duration::from_secs(hours * 3600));
    let rows = &mut |_: &Row| Ok(());
    run_query(asking, scene.group(), scene.querier(), run, None, rows, stop).await.unwrap();
    listener.abort();
    assert!(listener.await.is_err_and(|error| error.is_cancelled()), "the listener has failed");
    std::mem::take(&mut *received.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_in_time_and_the_schedule_is_announced_again_every_minute() {
    for (length, renewals) in [("1h", 5), ("45m", 8), ("1d", 1), ("31s", 12)] {
        let query = format!("SELECT COUNT(*) FROM sensors EPOCH DURATION {length}");
        let announcements = announced(&query, 6).await;
        let mut schedules = announcements.clone();
        schedules.dedup();
        // The last schedule withdraws the query.
        assert!(
            (renewals..=renewals + 1).contains(&(schedules.len() - 1)),
            "{length}: {} query schedules",
            schedules.len()
        );
        let count = announcements.len();
        assert!((355..=362).contains(&count), "{length}: {count} announcements");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_answers_of_a_gateway_delay_an_epoch_by_at_most_two_epochs_and_lose_no_other() {
    use Mishap::{LieDripped, None};
    let world = World::flat(&[LieDripped, LieDripped, LieDripped, None, None]);
    let rows =
        run(&world, Faults::default(), RunOptions { epochs: Some(5), ..SETTINGS }, usize::MAX)
            .await;
    let names: Vec<&str> =
        rows.iter()
            .map(|row| {
                if let Outcome::Rejected { refusal, .. } = &row.outcome {
                    refusal.name()
                } else {
                    ""
                }
            })
            .collect();
    assert_eq!(names[..3], ["SharesMismatch"; 3]);
    for (row, at_ms) in rows.iter().zip(&*world.rows_ms.lock().unwrap()) {
        // The row must be closed within two epochs after its deadline, which is the end of the
        // epoch plus one grace period for each of the two edges above a source.
        let latest = (row.epoch + 3) * EPOCH_MS + 2 * 300;
        assert!(*at_ms <= latest + 10, "epoch {} is {} ms late", row.epoch, at_ms - latest);
    }
    let Outcome::Rejected { findings, .. } = &rows[0].outcome else { panic!("{:?}", rows[0]) };
    assert_eq!(
        findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["gw-0 -> querier (unanswered)"]
    );
    rows[3..].iter().for_each(|row| check(&world, row, &[]));
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_does_not_answer_does_not_hide_the_fault_of_another() {
    let world = World::flat(&[Mishap::AllLie, Mishap::None]);
    let rows =
        run(&world, Faults::default(), RunOptions { epochs: Some(2), ..SETTINGS }, usize::MAX)
            .await;
    let Outcome::Rejected { findings, .. } = &rows[0].outcome else { panic!("{:?}", rows[0]) };
    let roots = world.scene.tree.querier();
    let (silent, other) = (&roots.children()[0].name, &roots.children()[1].name);
    let mut found: Vec<String> = findings.iter().map(ToString::to_string).collect();
    found.sort_by_key(|found| found.ends_with("(unanswered)"));
    assert_eq!(found, [format!("{other} -> querier"), format!("{silent} -> querier (unanswered)")]);
    check(&world, &rows[1], &[]);
}

/// Finding C6 of the review: a wrong link secret looks like silence.
#[tokio::test(start_paused = true)]
async fn a_wrong_link_secret_is_reported_with_the_name_of_the_gateway() {
    let world = World::new(&[Mishap::WrongSecret, Mishap::None]);
    let rows =
        run(&world, Faults::default(), RunOptions { epochs: Some(2), ..SETTINGS }, usize::MAX)
            .await;
    let mut gateways: Vec<String> =
        world.scene.tree.querier().children().iter().map(|child| child.name.clone()).collect();
    gateways.sort();
    let mut named = rows[0].not_authentic.clone();
    named.sort();
    assert_eq!(named, gateways);
    assert!(matches!(rows[0].outcome, Outcome::Missing(_)), "{:?}", rows[0]);
    check(&world, &rows[1], &[]);
    assert!(rows[1].not_authentic.is_empty());
}

#[tokio::test(start_paused = true)]
async fn sources_below_a_silent_gateway_are_not_reported_as_silent() {
    let world = World::flat(&[Mishap::SmallSilent]);
    let rows =
        run(&world, Faults::default(), RunOptions { epochs: Some(1), ..SETTINGS }, usize::MAX)
            .await;
    check_answer(&world, &rows[0]);
    assert_eq!((rows[0].silent().collect::<Vec<_>>(), rows[0].unheard()), (vec![3], 2));
}

#[tokio::test(start_paused = true)]
async fn shares_that_arrived_during_a_pause_count_before_their_epochs_are_closed() {
    let world = World::flat(&[]);
    let network = Network::new(5, Faults::default());
    let skew_ms = Arc::new(AtomicU64::new(0));
    let roots = world.scene.tree.querier();
    for child in roots.children() {
        let (mut link, world, skew_ms) =
            (network.child(child.id.0), world.clone(), skew_ms.clone());
        let (id, name, all) = (child.id, child.name.clone(), roots.children().len() as u64);
        tokio::spawn(async move {
            let key =
                LinkKey::new(&LinkKey::secret_of(&CHILDREN_SECRET, world.scene.question.group, id));
            assert!(matches!(link.receive().await, Ok(Down::Announcement(_))));
            for number in World::first()..World::first() + 4 {
                let share = world.traffic(number).shares[&name].clone();
                let psrs: Vec<Psr> = share.psrs.values().copied().collect();
                let (query, mut out) = (world.scene.id.reference(), [0; 4096]);
                let participation = share.participation(SOURCES);
                let frame =
                    close_share(query, number, &participation, &psrs, &key, &mut out).unwrap();
                link.send(Bytes::copy_from_slice(frame)).await.unwrap();
            }
            // Each gateway moves the querier's clock forward. Together they move it past the
            // deadlines of the four epochs.
            skew_ms.fetch_add((5 * EPOCH_MS + 1000) / all, Ordering::SeqCst);
            std::future::pending::<()>().await;
        });
    }
    let folder = tempfile::tempdir().unwrap();
    let state = QuerierState::open(&folder.path().join("state")).unwrap();
    let (aggregator, signer) = (network.parent(), World::signer());
    let clock = || world.now_ms() + skew_ms.load(Ordering::SeqCst);
    let master = Master::new(MASTER);
    let asking = endpoint(&aggregator, &master, &signer, &state, &clock);
    let mut rows = Vec::new();
    let mut take = |row: &Row| {
        rows.push(row.clone());
        Ok(())
    };
    let run = RunOptions { epochs: Some(4), ..SETTINGS };
    run_query(
        asking,
        world.scene.group(),
        world.scene.querier(),
        run,
        None,
        &mut take,
        std::future::pending(),
    )
    .await
    .unwrap();
    assert_eq!(rows.len(), 4);
    rows.iter().for_each(|row| check(&world, row, &[]));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_an_hour_ahead_for_a_second_loses_no_epoch_after_it_is_set_back() {
    let world = World::flat(&[]);
    let (first, hour) = (World::first(), 3_600_000 / EPOCH_MS);
    // During the second epoch, the clock is ahead for one second.
    let ahead = (START_MS + 7000)..(START_MS + 8000);
    let clock = |now_ms: u64| if ahead.contains(&now_ms) { now_ms + 3_600_000 } else { now_ms };
    let (rows, missed) = run_by(&world, Faults::default(), SETTINGS, 16, &clock).await;
    assert!((hour - 10..hour).contains(&missed), "{missed} epochs were skipped");
    let (early, rest): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| row.epoch > first + 100);
    assert_eq!(early.len(), 8, "a late querier closes at most eight epochs at once");
    assert!(early.iter().all(|row| matches!(&row.outcome, Outcome::Missing(_))));
    // The epochs that were closed too early had no shares. Every other epoch is complete.
    assert_eq!(
        rest.iter().map(|row| row.epoch).collect::<Vec<_>>(),
        (first..first + 8).collect::<Vec<_>>()
    );
    rest.iter().for_each(|row| check(&world, row, &[]));
}

#[tokio::test(start_paused = true)]
async fn duplicated_and_late_frames_change_nothing() {
    use Mishap::{Lie, None, OneSilent};
    let world = World::new(&[None, Lie, OneSilent, None]);
    let faults = Faults {
        duplication: 0.5,
        reordering: 0.3,
        delay: (Duration::from_millis(1), Duration::from_millis(60)),
        ..Faults::default()
    };
    let rows = run(&world, faults, RunOptions { epochs: Some(4), ..SETTINGS }, usize::MAX).await;
    check(&world, &rows[0], &[]);
    check(&world, &rows[2], &[3]);
    check(&world, &rows[3], &[]);
    let (victim, above) = world.victim();
    let Outcome::Rejected { findings, .. } = &rows[1].outcome else { panic!("{:?}", rows[1]) };
    assert_eq!(
        findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [format!("{victim} -> {above}")]
    );
}

#[tokio::test(start_paused = true)]
async fn lost_frames_never_give_a_wrong_result() {
    let world = World::new(&[
        Mishap::None,
        Mishap::Lie,
        Mishap::Lie,
        Mishap::None,
        Mishap::None,
        Mishap::Lie,
    ]);
    let rows = run(
        &world,
        Faults { loss: 0.25, ..Faults::default() },
        RunOptions { epochs: Some(12), ..SETTINGS },
        usize::MAX,
    )
    .await;
    assert_eq!(rows.len(), 12);
    for row in &rows {
        if matches!(row.outcome, Outcome::Accepted(_)) {
            check_answer(&world, row);
        }
    }
    assert!(rows.iter().any(|row| matches!(row.outcome, Outcome::Accepted(_))));
}
