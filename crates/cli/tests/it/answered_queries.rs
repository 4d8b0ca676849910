//! Kills, at random moments, a device that also answers queries. The device answers no epoch of a
//! query twice, and a signed seal states every permitted answer. Device and gateway run the code of
//! `device run` and `gateway run`, without a link between them.

use crate::group;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::group::FIRST;
use moteseal_adversary::Answer;
use moteseal_core::Digest;
use moteseal_core::link::LinkKey;
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::signature::SecretKey;
use moteseal_device::DurableMote;
use moteseal_device::durable::{AnswerRefused, DurableError, MOST_UNSTATED, QueryScheduleRefused};
use moteseal_gateway::Station;
use moteseal_seal::wire::Uplink;
use moteseal_seal::{Answered, Statement};
use moteseal_sum::QuerierName;
use moteseal_sum::guard::GuardError;
use moteseal_sum::policy::NotPermitted;
use moteseal_sum::query::QueryId;
use moteseal_verify::Roster;

const BOUND: u64 = 1 << 30;
const EPOCH_MS: u64 = 1000;
const EPOCH: EpochNumber = EpochNumber(FIRST);

/// The answered epochs, each with its query.
type Epochs = BTreeSet<([u8; 16], u64)>;

fn epochs_of<'s>(statements: impl IntoIterator<Item = &'s Statement>) -> Epochs {
    let runs =
        statements.into_iter().flat_map(|statement| statement.answered.runs().collect::<Vec<_>>());
    runs.flat_map(|run| {
        (run.first..run.first + u64::from(run.count)).map(move |epoch| (run.query, epoch))
    })
    .collect()
}

/// A device and its gateway, with a record of all permitted and all stated answers.
struct Scene {
    folder: tempfile::TempDir,
    roster: Roster,
    link: LinkKey,
    station: Station,
    mote: Option<DurableMote<SecretKey>>,
    most_waiting: u32,
    /// The first epoch that the gateway has not ended yet.
    not_ended: u64,
    permitted: Epochs,
    /// The open item and the part item of every signed seal that was sent.
    signed: BTreeMap<SealIndex, Vec<u8>>,
    /// The answers that the seals at the gateway state, including the seals of earlier gateways
    /// that lost their state.
    stated: Epochs,
}

impl Scene {
    fn new(most_waiting: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let roster = group::roster(1, 1000, EPOCH_MS);
        let link = group::link_key(&roster, group::device_id(&roster, 0));
        let station = group::station(&roster, folder.path(), BOUND);
        let mut scene = Self {
            folder,
            roster,
            link,
            station,
            mote: None,
            most_waiting,
            not_ended: FIRST,
            permitted: Epochs::new(),
            signed: BTreeMap::new(),
            stated: Epochs::new(),
        };
        scene.restart();
        scene.mote().begin_answers(&QuerierName::default(), 0).unwrap();
        scene.mote().sync().unwrap();
        scene
    }

    fn mote(&mut self) -> &mut DurableMote<SecretKey> {
        self.mote.as_mut().unwrap()
    }

    /// Kills the device and starts it again. Everything that was not synced is lost.
    fn restart(&mut self) {
        self.mote = None;
        self.mote = Some(group::mote(&self.roster, 0, self.folder.path(), self.most_waiting));
    }

    fn answer(&mut self, query: u8, duration_ms: u64, epoch: u64) -> Result<(), AnswerRefused> {
        let permit = self
            .mote()
            .answer(&QuerierName::default(), QueryId([query; 16]), (duration_ms, epoch), &[], None)
            .unwrap()?;
        assert_eq!((permit.query(), permit.epoch()), (QueryId([query; 16]), epoch));
        assert!(
            self.permitted.insert(([query; 16], epoch)),
            "query {query}, epoch {epoch} was permitted twice"
        );
        Ok(())
    }

    /// Delivers frames and acknowledgements until nothing waits, for at most `rounds` rounds.
    fn exchange(&mut self, now: EpochNumber, rounds: usize) {
        for _ in 0..rounds {
            let mote = self.mote.as_mut().unwrap();
            if mote.mote().is_done() {
                return;
            }
            let frames = mote.frames(64).unwrap();
            if frames.is_empty() {
                mote.timeout();
            }
            for frame in frames {
                if let Ok(Uplink::Close { open, part, .. }) = Uplink::open(&frame, &self.link) {
                    let seal = [open, part].concat();
                    let index = Answer::decode(&seal).unwrap().places()[0].index;
                    let before = self.signed.entry(index).or_insert_with(|| seal.clone());
                    assert_eq!(*before, seal, "two seals were signed under index {index}");
                }
                let _ = self.station.receive(&frame, now);
            }
            for (_, message) in self.station.commit().unwrap().acknowledgements {
                let _ = mote.acknowledged(&message).unwrap().unwrap();
            }
        }
    }

    /// Ends the gateway's epochs up to `until` and collects the answers that their seals state.
    fn collect(&mut self, until: u64) {
        for epoch in std::mem::replace(&mut self.not_ended, until + 1)..=until {
            self.station.end(EpochNumber(epoch)).unwrap();
            let _ = self.station.commit().unwrap();
        }
        self.stated.extend(epochs_of(&group::statements(&self.roster, &self.station)));
    }

    /// Removes the gateway's folder and starts a new gateway.
    fn lose_gateway(&mut self, folder: &Path) {
        std::fs::remove_dir_all(folder.join("gateway")).unwrap();
        self.station = group::station(&self.roster, folder, BOUND);
        self.not_ended = FIRST;
    }

    /// Ends empty epochs until the gateway has all data and every answer is stated.
    fn settle(&mut self, mut epoch: u64) {
        for _ in 0..200 {
            self.exchange(EpochNumber(epoch), 40);
            if self.mote().mote().is_done() && self.mote().mote().unstated().runs().is_empty() {
                return self.collect(epoch);
            }
            epoch += 1;
            self.mote().end(EpochNumber(epoch)).unwrap();
        }
        panic!("the device never finishes: {:?}", self.mote().mote());
    }
}

/// Pseudo-random numbers from a seed (SplitMix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Simulates a device with random events. Returns how often each event occurred, by the name of the
/// event. An example of a name is "permitted", for a permitted answer.
fn simulate(seed: u64) -> BTreeMap<&'static str, u64> {
    let mut chance = Chance(seed);
    let mut scene = Scene::new(u32::try_from(1 + chance.below(4)).unwrap());
    let folder = scene.folder.path().to_owned();
    let (mut now_ms, mut counts) = (FIRST * EPOCH_MS, BTreeMap::<_, u64>::new());
    let kinds = 1 + chance.below(20);
    let kills = 5 + chance.below(60);
    for _ in 0..300 {
        now_ms += chance.below(25);
        let epoch = EpochNumber(now_ms / EPOCH_MS);
        let mut count = |event| *counts.entry(event).or_default() += 1;
        match chance.below(100) {
            0..20 => scene.mote().sense(epoch, &[7; 4]).unwrap(),
            20..70 => {
                let query = chance.below(kinds);
                // Each query has its own epoch duration. The device is asked only for epochs that
                // have ended, and for some of them repeatedly.
                let duration_ms = 5 + query * 9;
                let newest = now_ms / duration_ms - 1;
                match scene.answer(
                    u8::try_from(query).unwrap(),
                    duration_ms,
                    newest - chance.below(2) * chance.below(3),
                ) {
                    Ok(()) => count("permitted"),
                    Err(error) => count(error.name()),
                }
            }
            70..74 => {
                let open = scene.mote().mote().epoch().unwrap_or(epoch);
                // Closing an epoch that is already closed is an error.
                if scene.mote().end(open).is_ok() {
                    now_ms = now_ms.max((open.0 + 1) * EPOCH_MS);
                }
            }
            74..90 => {
                let rounds = chance.below(8);
                scene.exchange(epoch, usize::try_from(rounds).unwrap());
            }
            90 if chance.below(4) == 0 => {
                count("gateway lost");
                scene.collect(epoch.0);
                scene.lose_gateway(&folder);
            }
            kind if kind >= 90 && chance.below(60) < kills => {
                count("killed");
                scene.restart();
            }
            _ => scene.mote().sync().unwrap(),
        }
    }
    scene.restart();
    scene.settle(now_ms / EPOCH_MS);
    assert_eq!(scene.stated, scene.permitted, "seed {seed}");
    counts
}

#[test]
fn a_killed_device_answers_no_epoch_twice_and_states_every_answer_in_a_signed_seal() {
    let mut counts = BTreeMap::<_, u64>::new();
    for seed in 0..8 {
        for (event, count) in simulate(seed) {
            *counts.entry(event).or_default() += count;
        }
    }
    println!("{counts:?}");
    for (what, least) in [
        ("permitted", 800),
        ("EpochAnswered", 50),
        ("TooOld", 1),
        ("killed", 80),
        ("gateway lost", 3),
    ] {
        assert!(counts.get(what).is_some_and(|count| *count >= least), "{what}: {counts:?}");
    }
}

fn sense(mote: &mut DurableMote<SecretKey>, epoch: EpochNumber, readings: u32) {
    (0..readings).for_each(|n| mote.sense(epoch, &n.to_be_bytes()).unwrap());
}

#[test]
fn closes_a_seal_that_has_no_room_for_an_answer_and_continues_its_epoch() {
    let mut scene = Scene::new(8);
    sense(scene.mote(), EPOCH, 10);
    // A seal has room for eight runs of answers. A run of consecutive epochs needs no further room
    // when it is extended.
    let first = |query: u8| 10 * FIRST + 2 * u64::from(query);
    for query in 0..20 {
        scene.answer(query, 100, first(query)).unwrap();
        scene.answer(query, 100, first(query) + 1).unwrap();
        scene.restart();
    }
    sense(scene.mote(), EPOCH, 5);
    scene.mote().end(EPOCH).unwrap();
    scene.settle(FIRST);
    let seals = group::sealed(&scene.roster, &scene.station);
    assert_eq!(
        seals,
        [(0, FIRST, 10, false, false), (1, FIRST, 0, false, false), (2, FIRST, 5, false, true)]
    );
    let runs = |statement: &Statement| statement.answered.runs().collect::<Vec<_>>();
    let stated: Vec<_> =
        group::statements(&scene.roster, &scene.station).iter().map(runs).collect();
    let run = |query| Answered { query: [query; 16], first: first(query), count: 2 };
    assert_eq!(
        stated,
        [
            (0..8).map(run).collect::<Vec<_>>(),
            (8..16).map(run).collect(),
            (16..20).map(run).collect()
        ]
    );
}

#[test]
fn the_next_seal_states_answers_that_were_sent_while_no_seal_was_open() {
    let mut scene = Scene::new(3);
    for epoch in 0..30 {
        scene.answer(1, 20, epoch).unwrap();
    }
    scene.restart();
    assert_eq!(
        scene.mote().mote().unstated().runs(),
        [Answered { query: [1; 16], first: 0, count: 30 }]
    );
    scene.mote().end(EPOCH).unwrap();
    scene.settle(FIRST);
    assert_eq!(scene.stated, scene.permitted);
    assert_eq!(scene.stated.len(), 30);
}

#[test]
fn a_refused_answer_costs_nothing_and_the_budget_survives_a_restart() {
    let mut scene = Scene::new(1);
    sense(scene.mote(), EPOCH, 3);
    let answer = |scene: &mut Scene, query: u8, epoch| {
        let (query, charge) = (QueryId([query; 16]), Some((500, 1000)));
        scene
            .mote()
            .answer(&QuerierName::default(), query, (100, epoch), &[query], charge)
            .unwrap()
            .map(drop)
    };
    let answered = Err(AnswerRefused::Guard(GuardError::EpochAnswered));
    let spent = Err(AnswerRefused::Budget(NotPermitted::BudgetSpent));
    assert_eq!(answer(&mut scene, 1, 10), Ok(()));
    scene.restart();
    for _ in 0..3 {
        assert_eq!(answer(&mut scene, 1, 10), answered);
    }
    assert_eq!(answer(&mut scene, 2, 10), Ok(()));
    assert_eq!(answer(&mut scene, 2, 11), spent);
    scene.restart();
    assert_eq!(answer(&mut scene, 1, 11), spent);
    // The next day has its own budget.
    assert_eq!(answer(&mut scene, 1, 864_000 + 11), Ok(()));
}

#[test]
fn while_no_seal_can_be_closed_answers_are_bounded_and_no_reading_is_lost() {
    let mut scene = Scene::new(1);
    sense(scene.mote(), EPOCH, 3);
    scene.mote().end(EPOCH).unwrap();
    let next = EpochNumber(FIRST + 1);
    sense(scene.mote(), next, 10);
    // Only every second epoch is answered, so each answer is a separate run. The open seal holds 8
    // of them; the others wait for a later seal.
    let answered = (0..200).take_while(|n| scene.answer(1, 100, 2 * n).is_ok()).count();
    assert_eq!(answered, 8 + MOST_UNSTATED);
    scene.restart();
    assert_eq!(scene.answer(1, 100, 1000), Err(AnswerRefused::AnswersFull));
    assert_eq!(scene.mote().mote().opened(), Some(SealIndex(1)));
    // When the gateway accepts seals again, there is room for another answer.
    scene.exchange(next, 40);
    scene.answer(1, 100, 1000).unwrap();
    scene.settle(FIRST + 1);
    assert_eq!(scene.stated, scene.permitted);
    let events: u64 =
        group::sealed(&scene.roster, &scene.station).iter().map(|(_, _, events, ..)| events).sum();
    assert_eq!(events, 13);
}

#[test]
fn later_seals_state_the_answers_of_seals_that_the_gateway_refuses_permanently() {
    let mut scene = Scene::new(16);
    let id = group::device_id(&scene.roster, 0);
    group::begin_session(scene.mote.as_mut().unwrap(), &mut scene.station);
    // The device's clock was set back: the gateway has already received a later epoch than the
    // device seals now.
    let earlier_frame =
        group::forward_frame((id, &group::link_key(&scene.roster, id)), (0, FIRST + 4), 0..1, 5);
    let now = EpochNumber(FIRST + 9);
    let _ = scene.station.receive(&earlier_frame, now).unwrap();
    scene.station.commit().unwrap();
    for epoch in FIRST..FIRST + 7 {
        sense(scene.mote(), EpochNumber(epoch), 20);
        (0..3).for_each(|n| scene.answer(1, 10, 100 * epoch + n).unwrap());
        scene.mote().end(EpochNumber(epoch)).unwrap();
    }
    let mut refused = 0;
    while !scene.mote().mote().is_done() {
        // The first exchange of a session is the challenge and its answer.
        scene.exchange(now, 2);
        scene.mote().sync().unwrap();
        refused += scene.mote().refused();
        scene.restart();
    }
    assert!(refused >= 4, "{refused}");
    assert!(!scene.mote().mote().unstated().runs().is_empty());
    scene.settle(FIRST + 9);
    assert_eq!(scene.stated, scene.permitted);
}

#[test]
fn a_journal_truncated_at_any_byte_has_every_permitted_answer() {
    let mut scene = Scene::new(3);
    let folder = scene.folder.path().join("mote-0");
    let copy = |of: &str| std::fs::read(folder.join(of)).unwrap();
    sense(scene.mote(), EPOCH, 4);
    scene.answer(1, 100, 700).unwrap();
    let before = copy("journal");
    scene.answer(1, 100, 701).unwrap();
    let (after, chain) = (copy("journal"), copy("chain"));
    assert!(before.len() < after.len() && after.starts_with(&before), "the journal must only grow");
    for length in before.len()..=after.len() {
        scene.mote = None;
        std::fs::write(folder.join("journal"), &after[..length]).unwrap();
        std::fs::write(folder.join("chain"), &chain).unwrap();
        scene.mote = Some(group::mote(&scene.roster, 0, scene.folder.path(), 3));
        let again = scene
            .mote()
            .answer(&QuerierName::default(), QueryId([1; 16]), (100, 701), &[], None)
            .unwrap();
        let old = scene
            .mote()
            .answer(&QuerierName::default(), QueryId([1; 16]), (100, 700), &[], None)
            .unwrap();
        assert_eq!(
            old.unwrap_err(),
            AnswerRefused::Guard(GuardError::EpochAnswered),
            "at {length}"
        );
        assert_eq!(
            again.is_ok(),
            length < after.len(),
            "at {length}: permitted only if the journal lacks the permission"
        );
        let stated = scene.mote().mote().answers_of(SealIndex(0));
        assert_eq!(
            stated.runs().collect::<Vec<_>>(),
            [Answered { query: [1; 16], first: 700, count: 2 }]
        );
    }
}

#[test]
fn a_device_without_its_journal_answers_no_query_that_started_before() {
    let mut scene = Scene::new(3);
    scene.answer(1, 100, 700).unwrap();
    scene.mote = None;
    std::fs::remove_file(scene.folder.path().join("mote-0/journal")).unwrap();
    scene.restart();
    assert_eq!(scene.answer(1, 100, 701), Err(AnswerRefused::NotBegun));
    scene.mote().begin_answers(&QuerierName::default(), 70_250).unwrap();
    for epoch in [700, 701, 702] {
        assert_eq!(scene.answer(1, 100, epoch), Err(AnswerRefused::Guard(GuardError::TooOld)));
    }
    scene.answer(1, 100, 703).unwrap();
    // A second call has no effect.
    scene.mote().begin_answers(&QuerierName::default(), 0).unwrap();
    assert_eq!(scene.answer(2, 100, 702), Err(AnswerRefused::Guard(GuardError::TooOld)));
}

#[test]
fn a_killed_device_refuses_an_older_schedule() {
    let mut scene = Scene::new(3);
    let digest = |n: u8| Digest([n; 32]);
    assert_eq!(scene.mote().schedule(&QuerierName::default()), None);
    assert_eq!(
        scene.mote().accept_schedule(&QuerierName::default(), 5, digest(1)).unwrap(),
        Ok(true)
    );
    scene.restart();
    assert_eq!(scene.mote().schedule(&QuerierName::default()), Some((5, digest(1))));
    assert_eq!(
        scene.mote().accept_schedule(&QuerierName::default(), 5, digest(1)).unwrap(),
        Ok(false)
    );
    assert_eq!(
        scene.mote().accept_schedule(&QuerierName::default(), 5, digest(2)).unwrap(),
        Err(QueryScheduleRefused::TwoAgendas)
    );
    assert_eq!(
        scene.mote().accept_schedule(&QuerierName::default(), 4, digest(2)).unwrap(),
        Err(QueryScheduleRefused::OlderAgenda { newest: 5 })
    );
    assert_eq!(
        scene.mote().accept_schedule(&QuerierName::default(), 6, digest(2)).unwrap(),
        Ok(true)
    );
    scene.restart();
    assert_eq!(scene.mote().schedule(&QuerierName::default()), Some((6, digest(2))));
}

#[test]
fn a_device_whose_columns_change_keeps_its_answers() {
    let mut scene = Scene::new(3);
    sense(scene.mote(), EPOCH, 4);
    scene.mote().end(EPOCH).unwrap();
    scene.settle(FIRST);
    scene.answer(1, 100, 701).unwrap();
    // After this restart with the old columns nothing waits to be sent.
    scene.restart();
    scene.mote = None;
    let mut buffer = [0; 64];
    let fields = [moteseal_core::schema::Field::parse("other::u16").unwrap()];
    let schema = moteseal_core::schema::Schema::encode(&fields, &mut buffer).unwrap();
    let other = moteseal_device::Profile::new(
        &scene.roster,
        "mote-0",
        moteseal_core::record::Scheme::Star,
        &schema,
    )
    .unwrap();
    let opened = group::open_mote(&scene.roster, 0, scene.folder.path(), 3, |profile| {
        *profile = other.clone();
    });
    scene.mote = Some(opened.unwrap());
    assert_eq!(scene.answer(1, 100, 701), Err(AnswerRefused::Guard(GuardError::EpochAnswered)));
    scene.mote().sense(EpochNumber(FIRST + 1), &[1; 2]).unwrap();
    scene.mote().sync().unwrap();
    scene.mote = None;
    let opened = group::open_mote(&scene.roster, 0, scene.folder.path(), 3, |_| {});
    assert!(matches!(opened, Err(DurableError::OtherSchema(_))), "readings wait: {opened:?}");
    let opened =
        group::open_mote(&scene.roster, 0, scene.folder.path(), 3, |profile| *profile = other);
    scene.mote = Some(opened.unwrap());
    scene.settle(FIRST + 1);
    assert_eq!(scene.stated, scene.permitted);
}
