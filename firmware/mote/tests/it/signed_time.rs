//! Tests the time of a mote against gateways that forge, replay, delay and withhold it.

use std::collections::{BTreeSet, VecDeque};

use moteseal_core::digest::Digest;
use moteseal_core::provision::{Membership, Provisioning, ReplayedWindow};
use moteseal_core::record::{DeviceId, GroupId, Scheme};
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_core::signed_time::{
    MAX_DELAY_MS, MAX_TIME_STATEMENT, TimeChallenge, TimeRange, TimeSigner, TimeStatement,
};
use moteseal_mote::Mote;
use moteseal_mote::durable::{Durable, Settings};
use moteseal_mote::notice::Notice;
use moteseal_mote::readings::Recording;
use moteseal_mote::trusted_clock::TrustedClock;
use moteseal_serial::Channel;
use moteseal_sum::query::{MAX_PLAN, Plan};
use moteseal_sum::schedule::{MAX_QUERY_SCHEDULE, Posed, QueryScheduleDraft};
use moteseal_sum::sies::Master;
use zeroize::Zeroizing;

use crate::faulty_flash::{Chance, Simulated};
use crate::whole_mote::{self, BUFFER, CERTIFICATE, Coordinator, DEVICE};

const ROSTER: Digest = Digest([6; 32]);
const QUERY_MS: u64 = 1000;
/// The Unix time at which a test begins, in milliseconds.
const BEGIN: u64 = 5_000_000;
const READINGS: u32 = 100_000;

fn key(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

fn schema(buffer: &mut [u8; 64]) -> Schema<'_> {
    Schema::encode(&[Field::parse("reading::u32").unwrap()], buffer).unwrap()
}

fn provisioning(schema: &[u8]) -> Provisioning<'_> {
    let of = whole_mote::provisioning(schema, Scheme::Star);
    let sums = Membership {
        roster: ROSTER,
        key_group: 4,
        position: 8,
        secret: Master::new([3; 32]).source(of.group, DEVICE, 2).to_bytes(),
        querier: key(4).public(),
        link_secret: Zeroizing::new([5; 32]),
        masks: None,
        needs_policy: false,
        policy: None,
    };
    let window = ReplayedWindow { count: READINGS, every_ms: 200, interval_ms: 200, ..of.window };
    Provisioning { sums: Some(sums), window, ..of }
}

fn schedule(schema: &Schema<'_>, provisioning: &Provisioning<'_>, number: u64) -> Vec<u8> {
    let mut plan = [0; MAX_PLAN];
    let plan = Plan::parse("SELECT SUM(reading) FROM sensors EPOCH DURATION 1s", schema)
        .unwrap()
        .encode(&mut plan)
        .unwrap();
    let first = BEGIN / QUERY_MS;
    let posed = [Posed { nonce: [3; 16], first, until: first + 3600, plan }];
    let draft = QueryScheduleDraft {
        group: provisioning.group,
        roster: ROSTER,
        number,
        sources: 9,
        key_group: 4,
        queries: &posed,
    };
    let (mut scratch, mut out) = (vec![0; MAX_QUERY_SCHEDULE], vec![0; MAX_QUERY_SCHEDULE]);
    draft.issue(&key(4), &mut scratch, &mut out).unwrap().to_vec()
}

/// A mote and the world around it. The time of the world is the true time.
struct World<'f> {
    flash: &'f mut Simulated,
    coordinator: Coordinator,
    unix_ms: u64,
    /// What the mote's timer measures in a million real milliseconds.
    rate: u64,
    notices: Vec<Notice>,
    /// The answered epochs, each with the true time of its answer.
    answered: Vec<(u64, u64)>,
    /// The ranges of the mote's clock, each with the true time.
    ranges: Vec<(u64, TimeRange)>,
}

impl<'f> World<'f> {
    fn new(flash: &'f mut Simulated) -> Self {
        let (notices, answered, ranges) = Default::default();
        let mut buffer = [0; 64];
        let coordinator = whole_mote::coordinator(&schema(&mut buffer));
        Self { flash, coordinator, unix_ms: BEGIN, rate: 1_000_000, notices, answered, ranges }
    }

    /// Starts the mote and runs it for this long. The gateway gets the true time and the challenge
    /// that the mote sends, if any, and returns the bodies for the mote on the channel of the time.
    fn run(
        &mut self,
        length_ms: u64,
        gateway: &mut dyn FnMut(u64, Option<TimeChallenge>) -> Vec<Vec<u8>>,
    ) {
        let mut buffer = [0; 64];
        let schema = schema(&mut buffer);
        let provisioning = provisioning(schema.as_bytes());
        let table: Vec<u8> = (0..READINGS).flat_map(u32::to_be_bytes).collect();
        let settings = Settings { interval_ms: 200, led: false, scheme: Scheme::Star };
        let mut durable = Durable::open(&mut *self.flash, DEVICE, CERTIFICATE, settings).unwrap();
        let recording = Recording::new(&table, 4, provisioning.window).unwrap();
        let mut mote = Mote::<_, _, 8, BUFFER>::new(&provisioning, &mut durable, None, recording);
        mote.start(0, &mut |_| ()).unwrap();
        let schedule = schedule(&schema, &provisioning, BEGIN);
        mote.receive(0, Channel::SumsAnnouncement, &schedule, &mut |_| ()).unwrap();
        let mut out = [0; 1400];
        for elapsed_ms in 1..=length_ms {
            self.unix_ms += 1;
            let (unix_ms, now_ms) = (self.unix_ms, elapsed_ms * self.rate / 1_000_000);
            let (answered, notices) = (&mut self.answered, &mut self.notices);
            let notify = &mut |notice| {
                if let Notice::Answered(epoch) = notice {
                    answered.push((epoch, unix_ms));
                }
                notices.push(notice);
            };
            mote.work(now_ms, notify).unwrap();
            let mut challenge = None;
            match mote.next_body(now_ms, &mut out, notify).unwrap() {
                Some((Channel::Coordinator, length)) => {
                    let answer = self.coordinator.receive(&out[..length]);
                    mote.receive(now_ms, Channel::Coordinator, &answer, notify).unwrap();
                }
                Some((Channel::Time, length)) => {
                    challenge = Some(TimeChallenge(out[..length].try_into().unwrap()));
                }
                _ => {}
            }
            for body in gateway(unix_ms, challenge) {
                mote.receive(now_ms, Channel::Time, &body, notify).unwrap();
            }
            self.ranges.extend(mote.time(now_ms).map(|range| (unix_ms, range)));
        }
    }

    fn assert_no_answer_is_early(&self) {
        for (epoch, at_ms) in &self.answered {
            assert!((epoch + 1) * QUERY_MS <= *at_ms, "epoch {epoch} was answered at {at_ms}");
        }
    }

    /// Asserts that the mote's clock was never wrong and never ran backwards.
    fn assert_right(&self) {
        for (unix_ms, range) in &self.ranges {
            let TimeRange { earliest_ms, latest_ms } = *range;
            assert!((earliest_ms..=latest_ms).contains(unix_ms), "{unix_ms}: {range:?}");
        }
        assert!(self.ranges.is_sorted_by_key(|(_, range)| range.earliest_ms));
    }

    fn answered_epochs(&self) -> Vec<u64> {
        self.answered.iter().map(|(epoch, _)| *epoch - BEGIN / QUERY_MS).collect()
    }

    fn reasons(&self) -> BTreeSet<&'static str> {
        let reason = |notice: &Notice| match notice {
            Notice::NoTime(why) => Some(*why),
            _ => None,
        };
        self.notices.iter().filter_map(reason).collect()
    }
}

/// What a signer answers to a challenge.
fn statement(role: TimeSigner, challenge: TimeChallenge, unix_ms: u64) -> Vec<u8> {
    let (group, device) = (GroupId([2; 8]), DEVICE);
    let signer = if role == TimeSigner::Operator { key(15) } else { key(4) };
    let statement = TimeStatement { group, device, challenge, unix_ms };
    statement.issue(role, &signer, &mut [0; MAX_TIME_STATEMENT]).unwrap().to_vec()
}

/// An honest gateway, between which and the mote a frame takes this long in each direction.
fn honest(role: TimeSigner, way_ms: u64) -> impl FnMut(u64, Option<TimeChallenge>) -> Vec<Vec<u8>> {
    let mut up: VecDeque<(u64, TimeChallenge)> = VecDeque::new();
    let mut down: VecDeque<(u64, Vec<u8>)> = VecDeque::new();
    move |unix_ms, challenge| {
        up.extend(challenge.map(|challenge| (unix_ms + way_ms, challenge)));
        while let Some((_, challenge)) = up.pop_front_if(|(at, _)| *at <= unix_ms) {
            down.push_back((unix_ms + way_ms, statement(role, challenge, unix_ms)));
        }
        down.pop_front_if(|(at, _)| *at <= unix_ms).map(|(_, body)| body).into_iter().collect()
    }
}

#[test]
fn a_mote_with_an_honest_gateway_knows_the_time_and_answers_on_time() {
    for role in [TimeSigner::Operator, TimeSigner::Querier] {
        // Timers that are slow or fast by 400 ppm, over more than one statement.
        let timers = [(1_000_000, 0), (999_600, 40), (1_000_400, 40), (1_000_000, 2000)];
        for (rate, way_ms) in timers {
            let mut flash = Simulated::new();
            let mut world = World { rate, ..World::new(&mut flash) };
            world.run(130_000, &mut honest(role, way_ms));
            world.assert_right();
            world.assert_no_answer_is_early();
            assert!(world.answered.len() >= 125, "{rate} {way_ms}: {:?}", world.answered_epochs());
            for (epoch, at_ms) in &world.answered {
                let late = at_ms - (epoch + 1) * QUERY_MS;
                assert!(late <= way_ms + 100, "{rate} {way_ms}: {epoch} is late by {late}");
            }
        }
    }
}

/// A gateway that holds no key sets the mote's clock ahead, to collect answers for coming epochs.
/// The mote must answer no epoch before its end, and must answer every epoch on time.
#[test]
fn a_gateway_cannot_harvest_answers_for_coming_epochs() {
    let (mut flash, mut genuine) = (Simulated::new(), honest(TimeSigner::Querier, 5));
    let mut world = World::new(&mut flash);
    world.run(20_000, &mut |unix_ms, challenge| {
        let mut bodies = genuine(unix_ms, challenge);
        // Set the clock ahead by 10 s once, and back to the true time after 5 s.
        let forged = match unix_ms - BEGIN {
            1500 => Some(unix_ms + 10_000),
            6500 => Some(unix_ms),
            _ => None,
        };
        bodies.extend(forged.map(|time| time.to_be_bytes().to_vec()));
        bodies
    });
    world.assert_no_answer_is_early();
    world.assert_right();
    assert_eq!(world.answered_epochs(), (0..=18).collect::<Vec<_>>());
}

/// Runs a mote behind an honest gateway that changes each statement. Returns the reasons for which
/// the mote knows no time.
fn changed(change: impl Fn(TimeChallenge, u64) -> Vec<u8>) -> BTreeSet<&'static str> {
    let mut flash = Simulated::new();
    let mut world = World::new(&mut flash);
    world.run(20_000, &mut |unix_ms, challenge| {
        challenge.map(|challenge| change(challenge, unix_ms)).into_iter().collect()
    });
    assert!(world.ranges.is_empty() && world.answered.is_empty());
    world.reasons()
}

#[test]
fn accepts_no_time_that_is_signed_by_another_party_or_for_another_device() {
    let issue = |statement: TimeStatement, role, signer: u8| {
        statement.issue(role, &key(signer), &mut [0; MAX_TIME_STATEMENT]).unwrap().to_vec()
    };
    let (group, device) = (GroupId([2; 8]), DEVICE);
    let querier = TimeSigner::Querier;
    let honest = |challenge, unix_ms| TimeStatement { group, device, challenge, unix_ms };
    // Keys that the mote knows in another role: the operator's and the coordinator's.
    for signer in [1, 9, 15] {
        let reasons = changed(|challenge, at| issue(honest(challenge, at), querier, signer));
        assert_eq!(reasons, ["NotAuthentic"].into(), "{signer}");
    }
    let reasons = changed(|challenge, at| issue(honest(challenge, at), TimeSigner::Operator, 4));
    assert_eq!(reasons, ["NotAuthentic"].into());
    let group = GroupId([3; 8]);
    let reasons = changed(|challenge, at| {
        issue(TimeStatement { group, ..honest(challenge, at) }, querier, 4)
    });
    assert_eq!(reasons, ["WrongGroup"].into());
    let device = DeviceId([8; 8]);
    let reasons = changed(|challenge, at| {
        issue(TimeStatement { device, ..honest(challenge, at) }, querier, 4)
    });
    assert_eq!(reasons, ["OtherDevice"].into());
    // A gateway that sets the time of a genuine statement ahead.
    let reasons = changed(|challenge, at| {
        let genuine = statement(querier, challenge, at);
        let place = genuine.windows(8).position(|bytes| bytes == at.to_be_bytes());
        let mut forged = genuine;
        forged[place.unwrap_or(60)] ^= 1;
        forged
    });
    assert!(!reasons.is_empty(), "{reasons:?}");
    let reasons = changed(|_, at| at.to_be_bytes().to_vec());
    assert!(!reasons.is_empty(), "{reasons:?}");
}

#[test]
fn accepts_no_statement_again_or_late_or_without_its_challenge() {
    // A gateway that records all statements, and plays them to the mote that has restarted.
    let (mut flash, mut genuine) = (Simulated::new(), honest(TimeSigner::Querier, 5));
    let mut recorded: Vec<Vec<u8>> = Vec::new();
    let mut world = World::new(&mut flash);
    for _ in 0..3 {
        world.run(3000, &mut |unix_ms, challenge| {
            let bodies = genuine(unix_ms, challenge);
            recorded.extend(bodies.iter().cloned());
            bodies
        });
        world.unix_ms += 100_000;
    }
    assert_eq!(recorded.len(), 3);
    let known = world.ranges.len();
    assert!(known > 8000, "{known}");
    world.run(20_000, &mut |_, _| recorded.clone());
    assert_eq!((world.ranges.len(), world.reasons()), (known, ["WrongChallenge"].into()));
    world.assert_right();

    // A gateway that delays each statement. The mote asks again, and ignores what arrives too late.
    for (delay_ms, knows) in [(MAX_DELAY_MS, true), (MAX_DELAY_MS + 1, false)] {
        let (mut flash, mut waiting) = (Simulated::new(), VecDeque::new());
        let mut world = World::new(&mut flash);
        world.run(8 * MAX_DELAY_MS, &mut |unix_ms, challenge| {
            let signed = challenge.map(|of| statement(TimeSigner::Querier, of, unix_ms));
            // Hold back the next challenge, so that the delayed statement answers the newest one.
            if waiting.is_empty() {
                waiting.extend(signed.map(|body| (unix_ms + delay_ms, body)));
            }
            waiting
                .pop_front_if(|(at, _)| *at <= unix_ms)
                .map(|(_, body)| body)
                .into_iter()
                .collect()
        });
        assert_eq!(!world.ranges.is_empty(), knows, "{delay_ms}");
        world.assert_right();
        world.assert_no_answer_is_early();
    }
}

/// A gateway that only delays and withholds can make the mote silent. It can neither make the mote
/// answer early, nor make it believe that a time has not passed yet.
#[test]
fn a_gateway_that_delays_cannot_make_the_clock_wrong() {
    for seed in 0..40 {
        let (mut flash, mut chance) = (Simulated::new(), Chance(seed));
        let rate = 999_600 + chance.below(801);
        let mut world = World { rate, ..World::new(&mut flash) };
        let mut asked: Vec<TimeChallenge> = Vec::new();
        let mut signed: Vec<Vec<u8>> = Vec::new();
        for _ in 0..3 {
            world.run(1 + chance.below(90_000), &mut |unix_ms, challenge| {
                asked.extend(challenge);
                // Ask the signer at any time, for any challenge that the mote has ever sent.
                if !asked.is_empty() && chance.below(700) == 0 {
                    let newest = asked.len() - 1;
                    let at = newest - (chance.below(3) as usize).min(newest);
                    signed.push(statement(TimeSigner::Querier, asked[at], unix_ms));
                }
                // Deliver any statement that was ever signed.
                if !signed.is_empty() && chance.below(900) == 0 {
                    let newest = signed.len() - 1;
                    return vec![signed[newest - (chance.below(4) as usize).min(newest)].clone()];
                }
                Vec::new()
            });
            world.unix_ms += chance.below(60_000);
        }
        assert!(!world.ranges.is_empty(), "{seed}");
        world.assert_right();
        world.assert_no_answer_is_early();
        let answered: BTreeSet<u64> = world.answered.iter().map(|(epoch, _)| *epoch).collect();
        assert_eq!(answered.len(), world.answered.len(), "an epoch was answered twice");
    }
}

#[test]
fn challenges_are_never_repeated_and_cannot_be_computed_from_what_was_sent() {
    let mut flash = Simulated::new();
    let mut world = World::new(&mut flash);
    let (mut sent, mut count) = (BTreeSet::new(), 0);
    for _ in 0..4 {
        world.run(200_000, &mut |_, challenge| {
            count += usize::from(challenge.is_some());
            sent.extend(challenge.map(|challenge| challenge.0));
            Vec::new()
        });
    }
    assert!(count > 20 && sent.len() == count, "{count} {}", sent.len());
    // The challenges depend on a secret of the device.
    assert_ne!(TimeChallenge::new(&[1; 32], 1, 0), TimeChallenge::new(&[2; 32], 1, 0));
    assert_eq!(
        hex(&TimeChallenge::new(&[1; 32], 2, 3).0),
        hex(&Digest::of(&[b"moteseal/1/time/challenge\0", &[1; 32], &[0, 0, 0, 2, 0, 0, 0, 3]]).0)
            [..32]
    );
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn two_signers_whose_clocks_differ_do_not_set_the_clock_back() {
    let mut flash = Simulated::new();
    let mut world = World::new(&mut flash);
    let mut answers = 0;
    // The operator's clock is 20 s behind the querier's. The signers take turns.
    world.run(400_000, &mut |unix_ms, challenge| {
        let Some(challenge) = challenge else { return Vec::new() };
        answers += 1;
        vec![match answers % 2 {
            1 => statement(TimeSigner::Querier, challenge, unix_ms),
            _ => statement(TimeSigner::Operator, challenge, unix_ms - 20_000),
        }]
    });
    assert_eq!(world.reasons(), ["TimeBehind"].into());
    // The mote does not know the time until a signer states a later one.
    assert!(world.ranges.len() > 300_000 && world.ranges.len() < 399_000, "{}", world.ranges.len());
    world.assert_right();
    world.assert_no_answer_is_early();
}

#[test]
fn a_wrong_signer_is_forgotten_once_the_time_has_caught_up() {
    let mut flash = Simulated::new();
    let mut world = World::new(&mut flash);
    let mut answers = 0;
    // The querier's clock was 100 s ahead once.
    world.run(300_000, &mut |unix_ms, challenge| {
        let Some(challenge) = challenge else { return Vec::new() };
        answers += 1;
        let ahead = if answers == 1 { 100_000 } else { 0 };
        vec![statement(TimeSigner::Querier, challenge, unix_ms + ahead)]
    });
    assert!(world.ranges.is_sorted_by_key(|(_, range)| range.earliest_ms));
    let after = world.ranges.iter().rev().take(50_000);
    assert!(after.clone().all(|(at, range)| (range.earliest_ms..=range.latest_ms).contains(at)));
    assert_eq!(world.reasons(), ["TimeBehind"].into());
}

#[test]
fn the_lower_limit_survives_a_restart_and_an_old_copy_of_the_flash_keeps_its_own() {
    let mut flash = Simulated::new();
    let mut world = World::new(&mut flash);
    world.run(10_000, &mut honest(TimeSigner::Querier, 5));
    let last = world.answered.last().unwrap().0;
    let floor = (last + 1) * QUERY_MS;
    // After the restart, the signer states an earlier time.
    world.run(20_000, &mut |_, challenge| {
        challenge.map(|of| statement(TimeSigner::Querier, of, floor - 6000)).into_iter().collect()
    });
    assert_eq!(world.reasons(), ["TimeBehind"].into());
    assert!(world.answered.iter().all(|(epoch, _)| *epoch <= last));

    // A gateway plays the statements of a start again after a copy of the flash from before this
    // start was restored. The challenges are the same. The clock is then behind, but it is not below
    // the lower limit of the copy.
    let mut copy = world.flash.repowered();
    let (mut genuine, mut recorded) = (honest(TimeSigner::Querier, 5), Vec::new());
    world.run(10_000, &mut |unix_ms, challenge| {
        let bodies = genuine(unix_ms, challenge);
        recorded.extend(bodies.iter().cloned());
        bodies
    });
    let later = world.unix_ms + 500_000;
    let mut world = World { unix_ms: later, ..World::new(&mut copy) };
    world.run(10_000, &mut |_, _| recorded.clone());
    assert!(!world.ranges.is_empty());
    let limits = floor..later;
    assert!(world.ranges.iter().all(|(_, range)| limits.contains(&range.earliest_ms)));
    world.assert_no_answer_is_early();
}

#[test]
fn a_day_of_statements_needs_a_record_per_hour() {
    let mut buffer = [0; 64];
    let schema = schema(&mut buffer);
    let provisioning = provisioning(schema.as_bytes());
    let settings = Settings { interval_ms: 200, led: false, scheme: Scheme::Star };
    let mut flash = Simulated::new();
    let writes = flash.writes.clone();
    let mut durable = Durable::open(&mut flash, DEVICE, CERTIFICATE, settings).unwrap();
    let (mut clock, mut out) = (TrustedClock::new(0), [0; 64]);
    let (before, mut accepted) = (writes.get(), 0);
    for now_ms in (0..24 * 3_600_000).step_by(1000) {
        if clock.next_body(now_ms, &provisioning, 1, &mut out).is_some() {
            let challenge = TimeChallenge(*out.first_chunk().unwrap());
            let body = statement(TimeSigner::Querier, challenge, BEGIN + now_ms);
            clock.receive(now_ms, &body, &provisioning, &mut durable, &mut |_| ()).unwrap();
            accepted += 1;
        }
    }
    assert_eq!(accepted, 24 * 60);
    // A record has four words.
    assert!((23 * 4..=24 * 4).contains(&(writes.get() - before)), "{}", writes.get() - before);
    assert!(durable.memory().time_floor() >= BEGIN + 23 * 3_600_000);
}
