//! A query that runs over a link: every epoch is answered exactly, or named as missing or refused,
//! and motes are asked no longer than somebody listens. Time is tokio's, and stands still while
//! nothing waits for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::sum_support::{Chance, Reading, Said, Scene, Traffic, epoch, reading, roster, tree};
use bytes::Bytes;
use moteseal_client::sum::{Endpoint, Outcome, Row, RunOptions, ScheduleNumbers, run_query};
use moteseal_core::link::LinkKey;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_net::in_memory::{Faults, Network};
use moteseal_net::link::Down;
use moteseal_net::{ChildLink as _, ParentLink as _};
use moteseal_sum::query::QueryId;
use moteseal_sum::schedule::{self, MAX_QUERY_SCHEDULE, QuerySchedule};
use moteseal_sum::sies::Psr;
use moteseal_sum::wire::{Children, Explain, close_share};
use moteseal_verify::Roster;
use moteseal_verify::aggregation::{AggregationTree, QUERIER};
use tokio::time::Instant;

const CHILDREN_SECRET: [u8; 32] = [0x77; 32];
const EPOCH_MS: u64 = 5000;
const GRACE: Duration = Duration::from_millis(300);
/// A little less than an answer is waited for: four graces.
const DRIP: Duration = Duration::from_millis(1150);
const START_MS: u64 = 1_800_000_000_000;
const SOURCES: u32 = 12;

/// What goes wrong in an epoch, by how many epochs after the first it is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mishap {
    None,
    /// The root gateways say nothing.
    Silence,
    /// One source says nothing.
    OneSilent,
    /// One source says nothing, and the smaller of two root gateways neither.
    SmallSilent,
    /// What goes over the edge from one source is altered.
    Lie,
    /// The same, and nobody explains.
    LieUnexplained,
    /// The same, and every page of the answers takes almost as long as it may.
    LieDripped,
    /// What all root gateways say is altered. The first one does not explain, and the others have
    /// forgotten after two seconds.
    AllLie,
}

/// An query schedule as a gateway has heard it.
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
    heard: Mutex<Vec<Received>>,
    /// When the rows came.
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

    /// Two gateways below the querier: one with two sources, one with all others.
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
        let (readings, heard, rows_ms) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self {
            scene,
            readings,
            mishaps: mishaps.to_vec(),
            heard,
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

    /// The name of the source whose edge is altered, and of its gateway.
    fn victim(&self) -> (String, String) {
        let position = SOURCES - 1;
        let name = self.scene.tree.name(self.scene.devices[position as usize]).unwrap();
        (name.to_owned(), self.scene.tree.gateway_of(position).unwrap().to_owned())
    }

    /// What is said in an epoch, the same whoever asks.
    fn traffic(&self, number: u64) -> Traffic {
        let mut chance = Chance(number);
        let readings: Vec<Reading> = (0..SOURCES).map(|_| reading(&mut chance)).collect();
        let mishap = self.mishap(number);
        let answers: Vec<Option<Said>> = (0..)
            .zip(&readings)
            .map(|(position, reading)| {
                let speaks =
                    !matches!(mishap, Mishap::OneSilent | Mishap::SmallSilent) || position != 3;
                speaks.then(|| self.scene.answer(position, number, Some(reading)))
            })
            .collect();
        self.readings.lock().unwrap().insert(number, readings);
        let victim = self.victim().0;
        epoch(&self.scene.tree, &answers, &mut |child, said| {
            let is_root =
                self.scene.tree.querier().children().iter().any(|root| root.name == child);
            let lies = match mishap {
                Mishap::Lie | Mishap::LieUnexplained | Mishap::LieDripped => child == victim,
                Mishap::AllLie => is_root,
                _ => false,
            };
            if lies {
                said.psrs.values_mut().for_each(|psr| *psr = psr.merge(psr));
            }
        })
    }
}

/// A gateway below the querier, and all that is below it.
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
        // A little after the end of the epoch.
        let due = asked.map_or(u64::MAX, |(_, _, until)| {
            if next < until { (next + 1) * EPOCH_MS + 100 } else { u64::MAX }
        });
        let wait = Duration::from_millis(due.saturating_sub(world.now_ms()).min(3_600_000));
        tokio::select! {
            down = link.receive() => match down.unwrap() {
                Down::Announcement(bytes) => {
                    let mut scratch = vec![0; MAX_QUERY_SCHEDULE];
                    let public = World::signer().public();
                    let said = schedule::hear(&bytes, group, &public, &mut scratch).unwrap();
                    let schedule = QuerySchedule::open(&said, group, &world.scene.question.roster).unwrap();
                    asked = schedule.queries().next().map(|(id, posed)| (id, posed.first, posed.until));
                    next = next.max(asked.map_or(0, |(_, first, _)| first));
                    assert_eq!(schedule.sources(), SOURCES);
                    world.heard.lock().unwrap().push(Received { at_ms: world.now_ms(), number: schedule.number(), query: asked });
                }
                Down::Frame(frame) => {
                    let explain = Explain::open(&frame, &key).unwrap();
                    let is_first = world.scene.tree.querier().children()[0].name == name;
                    match world.mishap(explain.epoch) {
                        Mishap::LieUnexplained => continue,
                        Mishap::AllLie if is_first => continue,
                        _ => {}
                    }
                    let is_late = world.now_ms() > (explain.epoch + 1) * EPOCH_MS + 2000;
                    let answer = if world.mishap(explain.epoch) == Mishap::AllLie && is_late {
                        let mut out = [0; 80];
                        Bytes::copy_from_slice(Children::close(&explain, &[], &key, &mut out).unwrap())
                    } else {
                        answer(&world, &explain, &key)
                    };
                    let delay = if world.mishap(explain.epoch) == Mishap::LieDripped { DRIP } else { Duration::ZERO };
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
                if let Some(said) = world.traffic(next).heard.get(&name) && world.mishap(next) != Mishap::Silence && !(world.mishap(next) == Mishap::SmallSilent && name == "gw-1") {
                    let psrs: Vec<Psr> = said.psrs.values().copied().collect();
                    let mut out = [0; 4096];
                    let frame = close_share(query.reference(), next, &said.participation(SOURCES), &psrs, &key, &mut out).unwrap();
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
    let held: Vec<_> = aggregator
        .children()
        .iter()
        .filter_map(|child| traffic.heard.get(&child.name).map(|said| (child.id, said)))
        .map(|(id, said)| {
            (id, said.participation(SOURCES), said.psrs.values().copied().collect::<Vec<_>>())
        })
        .collect();
    let children: Vec<_> = held.iter().map(|(id, who, psrs)| (*id, &who[..], &psrs[..])).collect();
    // One child a page, so that pages are asked for.
    let mut out = [0; 80 + 24 + 16 + 2 * 34];
    Bytes::copy_from_slice(Children::close(explain, &children, key, &mut out).unwrap())
}

/// Runs a query, and says what came of its epochs.
async fn run(world: &Arc<World>, faults: Faults, settings: RunOptions, most: usize) -> Vec<Row> {
    let (rows, missed) = run_by(world, faults, settings, most, &|now_ms| now_ms).await;
    assert_eq!(missed, 0, "epochs were passed over");
    rows
}

/// The same by a clock that is wrong, and how many epochs were passed over.
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
    let mut numbers = ScheduleNumbers::open(&folder.path().join("state")).unwrap();
    let (aggregator, signer) = (network.parent(), World::signer());
    let clock = || clock(world.now_ms());
    let asking = Endpoint {
        link: &aggregator,
        link_secret: &CHILDREN_SECRET,
        signer: &signer,
        numbers: &mut numbers,
        unix_ms: &clock,
    };
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
        &world.scene.tree,
        world.scene.querier(),
        settings,
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

/// Checks an accepted epoch against its readings, and who was said to be silent in it.
fn check(world: &World, row: &Row, silent: &[u32]) {
    check_answer(world, row);
    assert_eq!(row.silent().collect::<Vec<_>>(), silent);
    assert_eq!(row.unheard(), 0);
}

/// Checks an accepted epoch against the readings of its participants.
fn check_answer(world: &World, row: &Row) {
    let Outcome::Accepted(accepted) = &row.outcome else { panic!("{row:?}") };
    let readings = &world.readings.lock().unwrap()[&row.epoch];
    let said: Vec<i64> = (0..)
        .zip(readings)
        .filter(|(position, _)| row.participants.contains(*position))
        .map(|(_, reading)| reading[0])
        .collect();
    let (sum, count) = (said.iter().sum::<i64>() as i128, said.len() as i128);
    let digits = accepted.values()[0].unwrap().digits().unwrap();
    // To the nearest of six places, where two are the column's.
    assert!((digits * count - sum * 10_000).abs() * 2 <= count, "{digits} is the mean of {said:?}");
    assert_eq!(accepted.values()[1].unwrap().digits(), Some(count));
}

const SETTINGS: RunOptions =
    RunOptions { epochs: None, grace: GRACE, lease: Duration::from_secs(40) };

#[tokio::test(start_paused = true)]
async fn every_epoch_is_exact_or_missing_or_refused_with_its_edge() {
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
        "who is silent in a refused sum nobody has said"
    );
    let Outcome::Missing(refusal) = &rows[3].outcome else { panic!("{:?}", rows[3]) };
    assert_eq!((rows[3].silent().count(), rows[3].unheard()), (0, SOURCES), "nobody was heard of");
    assert_eq!((refusal.name(), rows[3].participants.count()), ("BelowFloor", 0));
    let Outcome::Rejected { findings, .. } = &rows[4].outcome else { panic!("{:?}", rows[4]) };
    assert!(
        matches!(&findings[..], [one] if one.to_string().ends_with("-> querier (unanswered)")),
        "{findings:?}"
    );
    // It was asked for no more than it should, and taken back.
    let heard = world.heard.lock().unwrap();
    let last = heard.iter().max_by_key(|heard| heard.number).unwrap();
    assert!(last.query.is_none(), "{last:?}");
    assert!(
        heard
            .iter()
            .filter_map(|heard| heard.query)
            .all(|(_, first, until)| first == World::first() && until == first + 6)
    );
}

#[tokio::test(start_paused = true)]
async fn a_query_is_a_lease_that_is_renewed_as_long_as_somebody_listens() {
    let world = World::new(&[]);
    let rows = run(&world, Faults::default(), SETTINGS, 30).await;
    assert_eq!(rows.len(), 30);
    rows.iter().for_each(|row| check(&world, row, &[]));
    let heard = world.heard.lock().unwrap();
    let mut queries = heard.iter().filter_map(|heard| heard.query);
    let (id, first, _) = queries.next().unwrap();
    assert!(queries.all(|query| (query.0, query.1) == (id, first)), "it is one query all the time");
    for Received { at_ms, query, .. } in heard.iter() {
        let ahead = query.map_or(0, |(_, _, until)| (until * EPOCH_MS).saturating_sub(*at_ms));
        assert!(ahead <= 40_000 + EPOCH_MS, "a querier that dies now costs {ahead} ms");
    }
    let mut numbers: Vec<u64> = heard.iter().map(|heard| heard.number).collect();
    numbers.dedup();
    assert!(heard.len() > 6 && heard.last().unwrap().query.is_none(), "{heard:?}");
}

/// Runs a query that nobody answers for some hours, and says what was announced.
async fn announced(text: &str, hours: u64) -> Vec<Bytes> {
    let mut chance = Chance(78);
    let roster = roster(SOURCES as usize);
    let tree = tree(&roster, 5, &mut chance);
    let scene = Scene::new(roster, tree, text, SOURCES, 7, &mut chance);
    let network = Network::new(5, Faults::default());
    let mut child = network.child(scene.tree.querier().children()[0].id.0);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = tokio::spawn({
        let heard = heard.clone();
        async move {
            while let Ok(down) = child.receive().await {
                let Down::Announcement(schedule) = down else { panic!("{down:?}") };
                heard.lock().unwrap().push(schedule);
            }
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let mut numbers = ScheduleNumbers::open(&folder.path().join("state")).unwrap();
    let (aggregator, signer, start) = (network.parent(), World::signer(), Instant::now());
    let clock = || START_MS + u64::try_from(start.elapsed().as_millis()).unwrap();
    let asking = Endpoint {
        link: &aggregator,
        link_secret: &CHILDREN_SECRET,
        signer: &signer,
        numbers: &mut numbers,
        unix_ms: &clock,
    };
    let run = RunOptions { lease: Duration::from_secs(3600), ..SETTINGS };
    let stop = tokio::time::sleep(Duration::from_secs(hours * 3600));
    run_query(asking, &scene.tree, scene.querier(), run, &mut |_| Ok(()), stop).await.unwrap();
    listener.abort();
    assert!(listener.await.is_err_and(|error| error.is_cancelled()), "the listener has failed");
    std::mem::take(&mut *heard.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_a_long_epoch_is_renewed_once_an_epoch_and_the_same_schedule_is_said_again_every_minute()
 {
    for (length, renewals) in [("1h", 5), ("45m", 8), ("1d", 1), ("31s", 12)] {
        let query = format!("SELECT COUNT(*) FROM sensors EPOCH DURATION {length}");
        let heard = announced(&query, 6).await;
        let mut schedules = heard.clone();
        schedules.dedup();
        // The last one takes the query back.
        assert!(
            (renewals..=renewals + 1).contains(&(schedules.len() - 1)),
            "{length}: {} query schedules",
            schedules.len()
        );
        assert!((355..=362).contains(&heard.len()), "{length}: {} announcements", heard.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_drips_its_answers_holds_up_its_epoch_for_two_epochs_and_no_other_is_lost() {
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
        // The end of the epoch, a grace for each edge, two epochs.
        let latest = (row.epoch + 3) * EPOCH_MS + 2 * 300;
        assert!(*at_ms <= latest + 10, "epoch {} came {} ms late", row.epoch, at_ms - latest);
    }
    let Outcome::Rejected { findings, .. } = &rows[0].outcome else { panic!("{:?}", rows[0]) };
    assert_eq!(
        findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["gw-0 -> querier (unanswered)"]
    );
    rows[3..].iter().for_each(|row| check(&world, row, &[]));
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_does_not_answer_hides_no_other() {
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

#[tokio::test(start_paused = true)]
async fn who_a_silent_gateway_has_beneath_it_was_not_said_to_be_silent() {
    let world = World::flat(&[Mishap::SmallSilent]);
    let rows =
        run(&world, Faults::default(), RunOptions { epochs: Some(1), ..SETTINGS }, usize::MAX)
            .await;
    check_answer(&world, &rows[0]);
    assert_eq!((rows[0].silent().collect::<Vec<_>>(), rows[0].unheard()), (vec![3], 2));
}

#[tokio::test(start_paused = true)]
async fn what_arrived_during_a_pause_is_heard_before_its_epochs_are_closed() {
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
                let said = world.traffic(number).heard[&name].clone();
                let psrs: Vec<Psr> = said.psrs.values().copied().collect();
                let mut out = [0; 4096];
                let who = said.participation(SOURCES);
                let frame =
                    close_share(world.scene.id.reference(), number, &who, &psrs, &key, &mut out)
                        .unwrap();
                link.send(Bytes::copy_from_slice(frame)).await.unwrap();
            }
            // Meanwhile four epochs are over, and their deadlines, too.
            skew_ms.fetch_add((5 * EPOCH_MS + 1000) / all, Ordering::SeqCst);
            std::future::pending::<()>().await;
        });
    }
    let folder = tempfile::tempdir().unwrap();
    let mut numbers = ScheduleNumbers::open(&folder.path().join("state")).unwrap();
    let (aggregator, signer) = (network.parent(), World::signer());
    let clock = || world.now_ms() + skew_ms.load(Ordering::SeqCst);
    let asking = Endpoint {
        link: &aggregator,
        link_secret: &CHILDREN_SECRET,
        signer: &signer,
        numbers: &mut numbers,
        unix_ms: &clock,
    };
    let mut rows = Vec::new();
    let mut take = |row: &Row| {
        rows.push(row.clone());
        Ok(())
    };
    let run = RunOptions { epochs: Some(4), ..SETTINGS };
    run_query(
        asking,
        &world.scene.tree,
        world.scene.querier(),
        run,
        &mut take,
        std::future::pending(),
    )
    .await
    .unwrap();
    assert_eq!(rows.len(), 4);
    rows.iter().for_each(|row| check(&world, row, &[]));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_an_hour_ahead_for_a_moment_costs_no_epoch_after_it_is_set_back() {
    let world = World::flat(&[]);
    let (first, hour) = (World::first(), 3_600_000 / EPOCH_MS);
    // Ahead in the second epoch, for a second.
    let ahead = (START_MS + 7000)..(START_MS + 8000);
    let clock = |now_ms: u64| if ahead.contains(&now_ms) { now_ms + 3_600_000 } else { now_ms };
    let (rows, missed) = run_by(&world, Faults::default(), SETTINGS, 16, &clock).await;
    assert!((hour - 10..hour).contains(&missed), "{missed} were passed over");
    let (early, rest): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| row.epoch > first + 100);
    assert_eq!(early.len(), 8, "no more are closed at once than could be open");
    assert!(early.iter().all(|row| matches!(&row.outcome, Outcome::Missing(_))));
    // Nobody had spoken of those, and of no other epoch anything is lost.
    assert_eq!(
        rest.iter().map(|row| row.epoch).collect::<Vec<_>>(),
        (first..first + 8).collect::<Vec<_>>()
    );
    rest.iter().for_each(|row| check(&world, row, &[]));
}

#[tokio::test(start_paused = true)]
async fn frames_that_come_twice_or_late_change_nothing() {
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
async fn what_is_lost_on_the_way_is_missing_or_asked_for_again_and_never_wrong() {
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
