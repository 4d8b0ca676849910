//! A group that answers queries for private sums, in one process: devices with readings, gateways
//! that may be dishonest, and the querier's part of the tree.
//!
//! Everything that is sent over an edge is encoded as a frame, so that the tests also cover the
//! encoding.
#![allow(unreachable_pub, dead_code)]

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use hmac::{Hmac, KeyInit, Mac};
use moteseal_client::sum::{Finding, Localisation, Participants, Querier, Question};
use moteseal_core::cbor::Writer;
use moteseal_core::link::LinkKey;
use moteseal_core::participation::{Participation, max_size};
use moteseal_core::record::DeviceId;
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_sum::engine::Scalar;
use moteseal_sum::guard::EpochGuard;
use moteseal_sum::query::{MAX_PLAN, MAX_SLOTS, Plan, QueryId};
use moteseal_sum::sies::{Master, Psr, Slot, SourceKey};
use moteseal_sum::wire::{Children, Explain, Share, SumUplink};
use moteseal_verify::Roster;
use moteseal_verify::SumGroup;
use moteseal_verify::aggregation::{AggregationTree, QUERIER};
use moteseal_verify::issue::FirstRoster;

/// A generator of pseudo-random numbers (SplitMix64), which are the same for the same seed.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn within(&mut self, range: RangeInclusive<i64>) -> i64 {
        range.start() + (self.next() % (range.end() - range.start() + 1) as u64) as i64
    }

    pub(crate) fn hits(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    pub(crate) fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// Returns the number of seeded runs: `MOTESEAL_SEEDS`, or `default` if that variable is not set.
pub(crate) fn seeds(default: u64) -> u64 {
    std::env::var("MOTESEAL_SEEDS")
        .ok()
        .map_or(default, |text| text.parse().expect("MOTESEAL_SEEDS is a number"))
}

pub(crate) const MASTER: [u8; 32] = [0x51; 32];
const SECRET: [u8; 32] = [0x11; 32];

pub(crate) fn operator() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap()
}

/// Returns a roster of `sources` devices.
pub(crate) fn roster(sources: usize) -> Roster {
    let operator = operator();
    let names: Vec<String> = (1..=sources).map(|number| format!("mote{number}")).collect();
    let keys: Vec<_> = (0..sources as u64)
        .map(|number| {
            let mut seed = [2; 32];
            seed[..8].copy_from_slice(&number.to_be_bytes());
            SecretKey::from_seed(Algorithm::Ed25519, &seed).unwrap().public()
        })
        .collect();
    let devices: Vec<_> = names.iter().map(String::as_str).zip(keys).collect();
    let first =
        FirstRoster { group: "home", epoch_ms: 60_000, levels: 4, budget: None, devices: &devices };
    Roster::open(&first.issue(&operator).unwrap(), &operator.public()).unwrap()
}

/// Returns a random tree over all devices of a roster.
pub(crate) fn tree(roster: &Roster, gateways: usize, chance: &mut Chance) -> AggregationTree {
    let names: Vec<String> = (0..gateways).map(|number| format!("gw-{number}")).collect();
    let devices: Vec<&str> = roster.devices().map(|device| device.name.as_str()).collect();
    let mut parents: Vec<(&str, &str)> = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let parent = if number == 0 || chance.hits(25) {
            QUERIER
        } else {
            names[chance.below(number)].as_str()
        };
        parents.push((name, parent));
    }
    // Every gateway has at least one device.
    let mut homes: Vec<(&str, &str)> = Vec::new();
    for (number, device) in devices.iter().enumerate() {
        let gateway = if number < gateways { &names[number] } else { chance.of(&names) };
        homes.push((device, gateway));
    }
    AggregationTree::new(roster, parents, homes).unwrap()
}

pub(crate) fn schema<'b>(buffer: &'b mut [u8; MAX_SCHEMA]) -> Schema<'b> {
    let fields =
        ["temperature:Cel:i16/100", "humidity:%RH:u16/100", "light:lx:u16", "voltage:V:u16/1000"];
    Schema::encode(&fields.map(|field| Field::parse(field).unwrap()), buffer).unwrap()
}

/// The raw values of a reading, one for each column.
pub(crate) type Reading = [i64; 4];

pub(crate) fn record(reading: &Reading) -> Vec<u8> {
    let [temperature, humidity, light, voltage] = *reading;
    let mut bytes = i16::try_from(temperature).unwrap().to_be_bytes().to_vec();
    for value in [humidity, light, voltage] {
        bytes.extend(u16::try_from(value).unwrap().to_be_bytes());
    }
    bytes
}

/// Returns the encoded plan of a query.
pub(crate) fn plan(text: &str) -> Vec<u8> {
    let (mut buffer, mut bytes) = ([0; MAX_SCHEMA], [0; MAX_PLAN]);
    let schema = schema(&mut buffer);
    Plan::parse(text, &schema)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .encode(&mut bytes)
        .unwrap()
        .to_vec()
}

/// A question to a group, with the data that is needed to answer it.
pub(crate) struct Scene {
    pub(crate) roster: Roster,
    pub(crate) tree: AggregationTree,
    pub(crate) question: Question,
    pub(crate) id: QueryId,
    pub(crate) devices: Vec<DeviceId>,
    pub(crate) slots: usize,
}

impl Scene {
    pub(crate) fn new(
        roster: Roster,
        tree: AggregationTree,
        text: &str,
        key_group: u32,
        floor: u32,
        chance: &mut Chance,
    ) -> Self {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&chance.next().to_be_bytes());
        let (group, digest) = (roster.group(), roster.digest());
        let question = Question {
            group,
            roster: digest,
            nonce,
            plan: plan(text),
            key_group,
            floor,
            min_count: 1,
            masked: None,
        };
        let slots = Plan::decode(&question.plan).unwrap().slots().count();
        let devices = roster.devices().map(|device| device.id).collect();
        Self { id: question.id(), roster, tree, question, devices, slots }
    }

    pub(crate) fn querier(&self) -> Querier<Scalar> {
        Querier::new(self.question.clone(), &Master::new(MASTER), &self.devices, Scalar, &|_| ())
            .unwrap()
    }

    pub(crate) fn group(&self) -> SumGroup {
        SumGroup::new(self.roster.clone(), self.tree.clone())
    }

    pub(crate) fn key_group_of(&self, position: u32) -> u32 {
        position / self.question.key_group
    }

    pub(crate) fn key(&self, position: u32, key_group: u32, query: QueryId) -> SourceKey {
        Master::new(MASTER)
            .source(self.question.group, self.devices[position as usize], key_group)
            .for_query(query)
    }

    /// Returns a source's share for a reading.
    pub(crate) fn answer(
        &self,
        position: u32,
        epoch: u64,
        reading: Option<&Reading>,
    ) -> Contribution {
        let mut buffer = [0; MAX_SCHEMA];
        let schema = schema(&mut buffer);
        let plan = Plan::decode(&self.question.plan).unwrap();
        let mut slots = [0; MAX_SLOTS];
        let record = reading.map(record);
        let count =
            plan.bind(&schema).unwrap().contribution(record.as_deref(), &mut slots).unwrap();
        self.encrypt(position, self.key_group_of(position), self.id, epoch, &slots[..count])
    }

    /// Encrypts these values as a source's share, with the keys of any query and key group.
    pub(crate) fn encrypt(
        &self,
        position: u32,
        key_group: u32,
        query: QueryId,
        epoch: u64,
        values: &[u128],
    ) -> Contribution {
        let key = self.key(position, key_group, query);
        let mut permit = EpochGuard::default().advance(query, 1000, epoch).unwrap();
        let psrs = values
            .iter()
            .zip(0..)
            .map(|(value, slot)| key.encrypt(&mut permit, Slot(slot), *value).unwrap());
        let group = self.key_group_of(position);
        Contribution {
            participants: vec![position],
            psrs: (0..).zip(psrs).map(|(slot, psr)| ((group, slot), psr)).collect(),
        }
    }
}

/// A share: its participants, and one record per slot of each key group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Contribution {
    pub(crate) participants: Vec<u32>,
    pub(crate) psrs: BTreeMap<(u32, u8), Psr>,
}

impl Contribution {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.participants.extend(&other.participants);
        self.participants.sort_unstable();
        for (place, psr) in &other.psrs {
            let sum = self.psrs.entry(*place).or_insert(Psr::ZERO);
            *sum = sum.merge(psr);
        }
    }

    pub(crate) fn participation(&self, sources: u32) -> Vec<u8> {
        let mut words = vec![0_u64; (sources as usize).div_ceil(64)];
        for position in &self.participants {
            words[*position as usize / 64] |= 1 << (position % 64);
        }
        let mut bytes = vec![0; max_size(sources)];
        let length = Participation::encode(&words, &mut bytes).unwrap();
        bytes.truncate(length);
        bytes
    }

    pub(crate) fn records(&self) -> Vec<Vec<u8>> {
        self.psrs.values().map(|psr| psr.to_bytes().to_vec()).collect()
    }

    pub(crate) fn frame(&self, query: QueryId, epoch: u64, sources: u32) -> Vec<u8> {
        frame(query.reference(), epoch, &self.participation(sources), &self.records())
    }
}

pub(crate) fn link() -> LinkKey {
    LinkKey::new(&SECRET)
}

/// Returns the frame of a share with any content. Its authentication tag is correct.
pub(crate) fn frame(query: u32, epoch: u64, participation: &[u8], records: &[Vec<u8>]) -> Vec<u8> {
    let mut buffer = vec![
        0;
        64 + participation.len()
            + records.iter().map(|record| record.len() + 9).sum::<usize>()
    ];
    let mut out = Writer::new(&mut buffer);
    out.array(5)
        .unwrap()
        .uint(4_u8)
        .unwrap()
        .bytes(&query.to_be_bytes())
        .unwrap()
        .uint(epoch)
        .unwrap();
    out.bytes(participation).unwrap().array(records.len() as u64).unwrap();
    for record in records {
        out.bytes(record).unwrap();
    }
    let item = out.finish().to_vec();
    let mac = |key: &[u8], text: &[u8]| -> [u8; 32] {
        <Hmac<sha2::Sha256> as KeyInit>::new_from_slice(key)
            .unwrap()
            .chain_update(text)
            .finalize()
            .into_bytes()
            .into()
    };
    let tag = mac(&mac(&SECRET, b"moteseal/1/link/up"), &item);
    [&item[..], &tag[..16]].concat()
}

pub(crate) fn opened(frame: &[u8]) -> Share<'_> {
    let key = link();
    match SumUplink::open(frame, &key).expect("the frame is valid") {
        SumUplink::Share(share) => share,
        SumUplink::Children(_) | SumUplink::Refusal(_) => panic!("expected a share"),
    }
}

/// The shares that were sent over each edge in an epoch, by the name of the child.
#[derive(Default)]
pub(crate) struct Traffic {
    pub(crate) shares: BTreeMap<String, Contribution>,
}

/// A function that alters the share that is sent over an edge. Its first argument is the name of
/// the lower end.
pub(crate) type Lie<'a> = dyn FnMut(&str, &mut Contribution) + 'a;

/// Sends the shares up the tree. `answers` contains the shares of the sources by position, with
/// `None` for a silent source.
pub(crate) fn epoch(
    tree: &AggregationTree,
    answers: &[Option<Contribution>],
    lie: &mut Lie<'_>,
) -> Traffic {
    let mut traffic = Traffic::default();
    collect(tree, QUERIER, answers, lie, &mut traffic);
    traffic
}

fn collect(
    tree: &AggregationTree,
    aggregator: &str,
    answers: &[Option<Contribution>],
    lie: &mut Lie<'_>,
    traffic: &mut Traffic,
) -> Contribution {
    let mut sum = Contribution::default();
    for child in tree.aggregator(aggregator).unwrap().children() {
        let share = if child.is_gateway {
            Some(collect(tree, &child.name, answers, lie, traffic))
                .filter(|share| !share.participants.is_empty())
        } else {
            answers[tree.position(child.id).unwrap() as usize].clone()
        };
        if let Some(mut share) = share {
            lie(&child.name, &mut share);
            sum.merge(&share);
            traffic.shares.insert(child.name.clone(), share);
        }
    }
    sum
}

impl Traffic {
    /// Returns the sum of all shares that the querier received.
    pub(crate) fn total(&self, tree: &AggregationTree) -> Contribution {
        let mut sum = Contribution::default();
        for child in tree.querier().children() {
            if let Some(share) = self.shares.get(&child.name) {
                sum.merge(share);
            }
        }
        sum
    }

    /// Returns an aggregator's answer to a question, as a frame of at most `room` bytes.
    pub(crate) fn explain(&self, scene: &Scene, asked: &Explain, room: usize) -> Vec<u8> {
        let name = scene.tree.name(asked.node).unwrap();
        let mut held = Vec::new();
        for child in scene.tree.aggregator(name).unwrap().children() {
            if let Some(share) = self.shares.get(&child.name) {
                held.push((
                    child.id,
                    share.participation(scene.devices.len() as u32),
                    share.psrs.values().copied().collect::<Vec<_>>(),
                ));
            }
        }
        let children: Vec<(DeviceId, &[u8], &[Psr])> =
            held.iter().map(|(id, who, psrs)| (*id, &who[..], &psrs[..])).collect();
        let mut out = vec![0; room];
        Children::close(asked, &children, &link(), &mut out).unwrap().to_vec()
    }

    /// Runs a fault localisation. Every aggregator reports the shares that it received, except the
    /// aggregators in `silent`, which do not answer.
    pub(crate) fn localise(
        &self,
        scene: &Scene,
        querier: &Querier<Scalar>,
        epoch: u64,
        silent: &[&str],
    ) -> Vec<Finding> {
        let aggregator = scene.tree.querier();
        let roots = aggregator.children().iter().enumerate().filter_map(|(place, child)| {
            let frame =
                self.shares.get(&child.name)?.frame(scene.id, epoch, scene.devices.len() as u32);
            Some((place, querier.read(epoch, &opened(&frame)).ok()))
        });
        let sources = scene.devices.len() as u32;
        let mut members = Participants::none(sources);
        members.insert(0..sources);
        let mut localisation = Localisation::new(
            scene.group().tree,
            querier,
            epoch,
            members,
            roots.collect::<Vec<_>>(),
        );
        while let Some((way, asked)) = localisation.question() {
            if silent.contains(&scene.tree.name(asked.node).unwrap()) {
                localisation.give_up(&asked);
                continue;
            }
            // The frame has room for one child with forty key groups. More children need more
            // pages.
            let frame = self.explain(scene, &asked, 6000);
            let key = link();
            let Ok(SumUplink::Children(children)) = SumUplink::open(&frame, &key) else {
                panic!("expected an answer")
            };
            for other in aggregator.children().iter().filter(|child| child.id != way) {
                assert!(
                    !localisation.answer(querier, other.id, &children),
                    "only the child that was asked may answer"
                );
            }
            assert!(
                localisation.answer(querier, way, &children),
                "the answer belongs to the question"
            );
        }
        localisation.finish()
    }
}

/// Returns a reading with values that are typical of a room.
pub(crate) fn reading(chance: &mut Chance) -> Reading {
    [
        chance.within(-4000..=8500),
        chance.within(0..=10_000),
        chance.within(0..=65_535),
        chance.within(1800..=3300),
    ]
}
