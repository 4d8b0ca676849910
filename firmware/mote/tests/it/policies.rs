//! Tests of motes that answer a querier that is not trusted: under a policy, with masks, and with
//! noise within a budget. The querier opens the sum of the whole ring, and nothing else.

use moteseal_broadcast::KeyId;
use moteseal_core::link::LinkKey;
use moteseal_core::provision::{Membership, Provisioning};
use moteseal_core::record::DeviceId;
use moteseal_core::schema::{Field, Schema};
use moteseal_mote::answerer::Answerer;
use moteseal_mote::durable::{Durable, Settings};
use moteseal_mote::notice::Notice;
use moteseal_sum::policy::{ColumnTerms, MAX_PAYLOAD, PolicyDraft, QuerierTerms};
use moteseal_sum::query::{MAX_PLAN, Plan, QueryId, Value};
use moteseal_sum::schedule::{MAX_QUERY_SCHEDULE, Posed, QueryScheduleDraft};
use moteseal_sum::sies::{KeyTotals, MaskRing, MaskRoot, Master, Psr, Slot, SourceSecret};
use moteseal_sum::wire::SumUplink;
use zeroize::Zeroizing;

use crate::answerer::{EPOCH_MS, GROUP, ROSTER, key, provisioning};
use crate::faulty_flash::Simulated;

/// The number of motes, which form one ring.
const MOTES: u32 = 5;
const SIGNED: u64 = 5_000;
const UNTIL: u64 = 9_000;
const DAY: u64 = 86_400_000 / EPOCH_MS;

fn device(position: u32) -> DeviceId {
    DeviceId([position as u8; 8])
}

fn policy(version: u32, budget: u32) -> Vec<u8> {
    let columns = [ColumnTerms { name: "reading", divisor: 1, range: Some((0, 1000)) }];
    let querier = KeyId::of(&key(4).public());
    let terms = QuerierTerms {
        key: querier,
        is_trusted: false,
        epoch_ms: EPOCH_MS as u32,
        budget,
        columns: &columns,
    };
    let draft = PolicyDraft {
        group: GROUP,
        roster: ROSTER,
        version,
        min_count: MOTES,
        min_count_squares: 8,
        queriers: &[terms],
    };
    draft.encode(&mut [0; MAX_PAYLOAD]).unwrap().to_vec()
}

/// The parts of a mote that survive a restart, and its configuration.
struct Mote {
    position: u32,
    masks: bool,
    policy: Option<Vec<u8>>,
    is_on_trial: bool,
    flash: Simulated,
}

/// What a mote sends at the end of an epoch.
#[derive(Debug, PartialEq)]
enum Sent {
    Share(Vec<Psr>),
    Refusal(String),
    Nothing,
}

impl Mote {
    fn new(position: u32, policy: Option<Vec<u8>>) -> Self {
        Self { position, masks: true, policy, is_on_trial: false, flash: Simulated::new() }
    }

    /// Starts the mote in the epoch `start`, and lets it answer the next `epochs` epochs of a query, with
    /// this reading in each of them. Returns what it sends, and the notices of reasons.
    fn run(
        &mut self,
        (query, start): (&str, u64),
        epochs: u64,
        reading: Option<u32>,
    ) -> (Vec<Sent>, Vec<&'static str>) {
        let mut buffer = [0; 64];
        let schema = schema(&mut buffer);
        let masks = self.masks.then(|| {
            let secret = MaskRoot::new([9; 32]).source(GROUP, 0..MOTES, self.position);
            let ring = MaskRing::of(Some(0..MOTES));
            Zeroizing::new([&secret.to_bytes()[..], &ring.to_bytes()].concat().try_into().unwrap())
        });
        let secret = Master::new([3; 32]).source(GROUP, device(self.position), 0);
        let membership = Membership {
            roster: ROSTER,
            key_group: MOTES,
            position: self.position,
            secret: secret.to_bytes(),
            querier: key(4).public(),
            link_secret: Zeroizing::new([5; 32]),
            masks,
            needs_policy: true,
            policy: self.policy.as_deref(),
        };
        let provisioning = Provisioning {
            device: device(self.position),
            sums: Some(membership),
            ..provisioning(schema.as_bytes())
        };
        let (membership, link) = (provisioning.sums.as_ref().unwrap(), LinkKey::new(&[5; 32]));
        let settings = Settings { interval_ms: 1, led: false, scheme: provisioning.scheme };
        let flash = std::mem::replace(&mut self.flash, Simulated::new());
        let mut durable =
            Durable::open(flash, provisioning.device, provisioning.certificate, settings).unwrap();
        let mut why = Vec::new();
        let notify = &mut |notice: Notice| {
            if let Notice::NotAnswering(reason) = notice {
                why.push(reason);
            }
        };
        let mut source = Answerer::new(&provisioning, membership);
        source.take_policy(self.is_on_trial, &mut durable, notify).unwrap();
        let now = start * EPOCH_MS;
        source.stepped(None, Some(now));
        let announced = announced(query, start);
        source.receive(Some(now), &announced, &mut durable, notify).unwrap();
        let mut sent = Vec::new();
        for epoch in start + 1..=start + epochs {
            if let Some(reading) = reading {
                source.sensed(epoch * EPOCH_MS + 1, &reading.to_be_bytes());
            }
            let mut out = [0; 1400];
            let at = (epoch + 1) * EPOCH_MS;
            let length = source.next_body(at, &mut out, &mut durable, notify).unwrap();
            let frame = length.map(|length| SumUplink::open(&out[..length], &link).unwrap());
            sent.push(match frame {
                Some(SumUplink::Share(share)) => {
                    Sent::Share(share.psrs.iter().map(Result::unwrap).collect())
                }
                Some(SumUplink::Refusal(refusal)) => {
                    let secret = SourceSecret::from_bytes(&membership.secret);
                    let (id, tag) = (id(query), &refusal.tag);
                    assert!(secret.has_refused(id, refusal.epoch, refusal.reason, tag));
                    Sent::Refusal(refusal.reason.to_owned())
                }
                Some(_) => panic!("a source sends no children"),
                None => Sent::Nothing,
            });
        }
        self.flash = durable.into_flash().repowered();
        (sent, why)
    }
}

fn schema(buffer: &mut [u8; 64]) -> Schema<'_> {
    Schema::encode(&[Field::parse("reading::u32").unwrap()], buffer).unwrap()
}

/// Calls `with` with the plan of a query whose range is that of the policy.
fn with_plan<T>(query: &str, with: impl FnOnce(&Plan<'_>) -> T) -> T {
    let mut buffer = [0; 64];
    let schema = schema(&mut buffer);
    let mut plan = Plan::parse(query, &schema).unwrap();
    plan.declare("reading", 0, 1000);
    with(&plan)
}

fn encoded(query: &str) -> Vec<u8> {
    with_plan(query, |plan| plan.encode(&mut [0; MAX_PLAN]).unwrap().to_vec())
}

fn id(query: &str) -> QueryId {
    QueryId::of(&ROSTER, &[3; 16], &encoded(query))
}

fn announced(query: &str, signed: u64) -> Vec<u8> {
    let plan = encoded(query);
    let until = signed + UNTIL - SIGNED;
    let posed = [Posed { nonce: [3; 16], first: signed, until, plan: &plan }];
    let draft = QueryScheduleDraft {
        group: GROUP,
        roster: ROSTER,
        number: signed * EPOCH_MS,
        sources: MOTES,
        key_group: MOTES,
        queries: &posed,
    };
    let (mut scratch, mut out) = ([0; MAX_QUERY_SCHEDULE], [0; MAX_QUERY_SCHEDULE]);
    draft.issue(&key(4), &mut scratch, &mut out).unwrap().to_vec()
}

/// Opens the sums of an epoch over the shares of these motes.
fn opened(query: &str, epoch: u64, shares: &[(u32, &[Psr])]) -> Option<Vec<u128>> {
    let (master, id) = (Master::new([3; 32]), id(query));
    let group = master.key_group(GROUP, 0).for_query(id);
    with_plan(query, |plan| {
        (0..)
            .map(Slot)
            .zip(plan.slots())
            .map(|(slot, terms)| {
                let (mut totals, mut sum) = (KeyTotals::default(), Psr::ZERO);
                for (position, psrs) in shares {
                    let source = master.source(GROUP, device(*position), 0).for_query(id);
                    totals.add(&source, slot, epoch);
                    sum = sum.merge(&psrs[usize::from(slot.0)]);
                }
                totals.open(&sum, &group, slot, epoch, terms.most()).ok()
            })
            .collect()
    })
}

/// Returns the sums of the values with noise that all motes contribute to the slots of a query in an epoch,
/// with the readings 100, 200 and so on.
fn with_noise(query: &str, epoch: u64) -> Vec<u128> {
    let mut buffer = [0; 64];
    let schema = schema(&mut buffer);
    let digest = QueryId::whole(&ROSTER, &[3; 16], &encoded(query));
    with_plan(query, |plan| {
        let mut sums = vec![0; plan.slots().count()];
        for position in 0..MOTES {
            let reading = (100 * (position + 1)).to_be_bytes();
            let secret = MaskRoot::new([9; 32]).source(GROUP, 0..MOTES, position);
            let (key, mut values) = (secret.for_query(&digest), vec![0; sums.len()]);
            let (noise, bound) = (key.noise(epoch, MOTES), plan.bind(&schema).unwrap());
            bound.contribution_with_noise(Some(&reading), &noise, &mut values).unwrap();
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        sums
    })
}

const SUM: &str = "SELECT SUM(reading) FROM sensors EPOCH DURATION 1s";

#[test]
fn a_querier_opens_the_sum_of_the_whole_ring_and_no_part_of_it() {
    let shares: Vec<Vec<Psr>> = (0..MOTES)
        .map(|at| {
            let (mut sent, why) =
                Mote::new(at, Some(policy(1, 0))).run((SUM, SIGNED), 1, Some(100 * (at + 1)));
            assert_eq!(why, [] as [&str; 0]);
            let Some(Sent::Share(share)) = sent.pop() else { panic!("mote {at}: {sent:?}") };
            share
        })
        .collect();
    for subset in 1..1_u32 << MOTES {
        let of: Vec<_> = (0..MOTES)
            .filter(|at| subset >> at & 1 == 1)
            .map(|at| (at, &shares[at as usize][..]))
            .collect();
        let totals = opened(SUM, SIGNED + 1, &of);
        let is_whole = of.len() == MOTES as usize;
        assert_eq!(totals.is_some(), is_whole, "{subset:b}");
        let Some(totals) = totals else { continue };
        let sum = with_plan(SUM, |plan| {
            let value = plan.answer(&totals, MOTES, 1).unwrap().values().next().flatten();
            value.and_then(|value| value.number()).and_then(|sum| sum.digits())
        });
        assert_eq!(sum, Some(1500));
    }
}

#[test]
fn refuses_what_the_policy_does_not_permit_and_states_why() {
    let condition = "SELECT COUNT(*) FROM sensors WHERE reading > 5 EPOCH DURATION 1s";
    let noisy = "SELECT SUM(reading) FROM sensors EPSILON 0.5 EPOCH DURATION 1s";
    let squares = "SELECT VARIANCE(reading) FROM sensors EPOCH DURATION 1s";
    let longer = "SELECT SUM(reading) FROM sensors EPOCH DURATION 2s";
    // The mote would compute the noise for longer than the time in which it may answer.
    let costly = "SELECT SUM(reading) FROM sensors EPSILON 0.1 EPOCH DURATION 1s";
    for (query, masks, has_policy, expected) in [
        (SUM, true, false, "PolicyMissing"),
        (SUM, false, true, "NoMasks"),
        (condition, true, true, "ConditionNotPermitted"),
        (noisy, true, true, "BudgetTooSmall"),
        (squares, true, true, "GroupTooSmall"),
        (longer, true, true, "EpochNotPermitted"),
        (costly, true, true, "NoiseTooLong"),
    ] {
        let mut mote = Mote::new(0, has_policy.then(|| policy(1, 400)));
        mote.masks = masks;
        let (sent, why) = mote.run((query, SIGNED), 2, Some(7));
        assert_eq!(why, [expected], "{query}");
        // The epochs of the longer query have not begun.
        let is_stated = sent.contains(&Sent::Refusal(expected.to_owned()));
        assert!(is_stated || query == longer, "{query}: {sent:?}");
        assert!(!sent.iter().any(|sent| matches!(sent, Sent::Share(_))), "{query}: {sent:?}");
    }
    // The sum of the ring would be over the readings of the others.
    let (sent, _) = Mote::new(0, Some(policy(1, 0))).run((SUM, SIGNED), 1, None);
    assert_eq!(sent, [Sent::Refusal("NoReading".to_owned())]);
}

#[test]
fn noise_costs_a_budget_that_survives_restarts_and_ends_with_the_day() {
    let query = "SELECT COUNT(*) FROM sensors WHERE reading > 150 EPSILON 0.5 EPOCH DURATION 1s";
    let mut motes: Vec<_> = (0..MOTES).map(|at| Mote::new(at, Some(policy(1, 1500)))).collect();
    let mut shares = Vec::new();
    for mote in &mut motes {
        let reading = Some(100 * (mote.position + 1));
        let (first, _) = mote.run((query, SIGNED), 2, reading);
        // The mote restarts. One answer of epsilon 0.5 is left.
        let (second, _) = mote.run((query, SIGNED + 4), 3, reading);
        let (tomorrow, _) = mote.run((query, SIGNED + DAY), 1, reading);
        let count = |sent: &[Sent]| sent.iter().filter(|of| matches!(of, Sent::Share(_))).count();
        assert_eq!([count(&first), count(&second), count(&tomorrow)], [2, 1, 1]);
        assert!(second.contains(&Sent::Refusal("BudgetSpent".to_owned())), "{second:?}");
        let Some(Sent::Share(share)) = first.into_iter().next() else { panic!() };
        shares.push((mote.position, share));
    }
    let shares: Vec<_> = shares.iter().map(|(at, share)| (*at, &share[..])).collect();
    assert_eq!(opened(query, SIGNED + 1, &shares[1..]), None);
    let totals = opened(query, SIGNED + 1, &shares).unwrap();
    // The noise is that of each mote's own secret, of this query and epoch.
    assert_eq!(totals, with_noise(query, SIGNED + 1));
    assert_ne!(totals, with_noise(query, SIGNED + 2));
    with_plan(query, |plan| {
        let answer = plan.answer(&totals, MOTES, 1).unwrap();
        let Some(Some(Value::Noisy(count, within))) = answer.values().next() else { panic!() };
        let (count, within) = (count.digits().unwrap(), within.digits().unwrap());
        assert!((4 - count).abs() <= 4 * within, "{count} +- {within}");
    });
}

#[test]
fn an_earlier_policy_does_not_replace_a_later_one() {
    // The same mote is provisioned again. Its journal is not lost.
    let mut mote = Mote::new(0, Some(policy(2, 0)));
    assert_eq!(mote.run((SUM, SIGNED), 0, None).1, [] as [&str; 0]);
    let noisy = "SELECT SUM(reading) FROM sensors EPSILON 0.5 EPOCH DURATION 1s";
    for (start, earlier) in [(SIGNED + 1, policy(1, 1000)), (SIGNED + 2, policy(2, 1000))] {
        mote.policy = Some(earlier);
        let (sent, why) = mote.run((noisy, start), 1, Some(7));
        assert_eq!(why, ["OlderPolicy", "BudgetTooSmall"]);
        assert_eq!(sent, [Sent::Refusal("BudgetTooSmall".to_owned())]);
    }
    // A blob without a policy does not remove it either.
    mote.policy = None;
    let (_, why) = mote.run((noisy, SIGNED + 3), 1, Some(7));
    assert_eq!(why, ["BudgetTooSmall"]);
    mote.policy = Some(policy(3, 1000));
    let (sent, why) = mote.run((noisy, SIGNED + 10), 1, Some(7));
    assert_eq!(why, [] as [&str; 0]);
    assert!(matches!(sent[..], [Sent::Share(_)]), "{sent:?}");
    // Bytes that are no policy change nothing. Without another policy, nothing is permitted.
    mote.policy = Some(vec![0x80; 3]);
    let (sent, why) = mote.run((SUM, SIGNED + 20), 1, Some(7));
    assert_eq!(why.len(), 1);
    assert!(matches!(sent[..], [Sent::Share(_)]), "version 3 still permits it: {sent:?}");
    let mut new = Mote::new(0, Some(vec![0x80; 3]));
    let (sent, why) = new.run((SUM, SIGNED), 1, Some(7));
    assert_eq!(why[1..], ["PolicyMissing"]);
    assert_eq!(sent, [Sent::Refusal("PolicyMissing".to_owned())]);
}

/// The image before the one on trial may not be able to read the record of a policy.
#[test]
fn an_image_on_trial_stores_no_policy() {
    let mut mote = Mote::new(0, Some(policy(1, 0)));
    mote.is_on_trial = true;
    let (sent, why) = mote.run((SUM, SIGNED), 1, Some(7));
    assert_eq!(why, ["PolicyMissing"]);
    assert_eq!(sent, [Sent::Refusal("PolicyMissing".to_owned())]);
    mote.is_on_trial = false;
    let (sent, why) = mote.run((SUM, SIGNED + 10), 1, Some(7));
    assert_eq!(why, [] as [&str; 0]);
    assert!(matches!(sent[..], [Sent::Share(_)]), "{sent:?}");
    // From now on, the image before it can read the record, too.
    mote.is_on_trial = true;
    let (sent, _) = mote.run((SUM, SIGNED + 20), 1, Some(7));
    assert!(matches!(sent[..], [Sent::Share(_)]), "{sent:?}");
}
