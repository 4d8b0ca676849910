//! A group with a tree of gateways, sources and a querier, without links and clocks. Tests call its
//! parts directly.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use moteseal_core::digest::Digest;
use moteseal_core::link::{LinkKey, MAX_FRAME};
use moteseal_core::participation::Participation;
use moteseal_core::record::DeviceId;
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_gateway::sum::{Aggregator, Ended, FrameOutcome, Member, Refused};
use moteseal_sum::guard::{EpochGuard, Permit};
use moteseal_sum::query::{Plan, QueryId};
use moteseal_sum::schedule::{MAX_QUERY_SCHEDULE, Posed, QueryScheduleDraft};
use moteseal_sum::sies::{KeyTotals, Master, OpenError, Psr, Slot, SourceKey};
use moteseal_sum::wire::{Children, Explain, SumUplink, close_share};
use moteseal_verify::Roster;
use moteseal_verify::aggregation::{AggregationTree, QUERIER, gateway_id};
use moteseal_verify::issue::{FirstRoster, NextRoster};

pub(crate) const EPOCH_MS: u64 = 5000;
pub(crate) const GRACE: Duration = Duration::from_millis(200);
/// A query with two slots.
pub(crate) const QUERY: &str = "SELECT SUM(u), SUM(t) FROM sensors EPOCH DURATION 5s";
/// The number of an epoch far from epoch 0.
pub(crate) const T: u64 = 100_000;

pub(crate) fn secret(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

/// Returns a roster of `devices` devices. A roster is created once for each number of devices.
pub(crate) fn roster(devices: usize) -> &'static Arc<Roster> {
    static MADE: OnceLock<std::sync::Mutex<HashMap<usize, &'static Arc<Roster>>>> = OnceLock::new();
    let mut made = MADE.get_or_init(Default::default).lock().unwrap();
    made.entry(devices).or_insert_with(|| {
        let names: Vec<String> = (0..devices).map(|n| format!("mote{n}")).collect();
        let devices: Vec<_> =
            names.iter().map(|name| (name.as_str(), secret(1).public())).collect();
        let first = FirstRoster {
            group: "field",
            epoch_ms: 1000,
            levels: 8,
            budget: None,
            devices: &devices,
        };
        let roster = Roster::open(&first.issue(&secret(2)).unwrap(), &secret(2).public()).unwrap();
        Box::leak(Box::new(Arc::new(roster)))
    })
}

pub(crate) fn children_secret(aggregator: &str) -> [u8; 32] {
    Digest::of(&[b"aggregator ", aggregator.as_bytes()]).0
}

pub(crate) fn plan(text: &str) -> Vec<u8> {
    let mut buffer = [0; 256];
    let columns = ["t:Cel:i16/10", "u::u8"].map(|column| Field::parse(column).unwrap());
    let schema = Schema::encode(&columns, &mut buffer).unwrap();
    let mut out = vec![0; 4096];
    Plan::parse(text, &schema).unwrap().encode(&mut out).unwrap().to_vec()
}

pub(crate) fn permit(query: QueryId, epoch: u64) -> Permit {
    EpochGuard::default().advance(query, EPOCH_MS, epoch).unwrap()
}

pub(crate) struct World {
    pub(crate) roster: &'static Arc<Roster>,
    pub(crate) tree: AggregationTree,
    pub(crate) gateways: BTreeMap<String, Aggregator>,
    pub(crate) master: Master,
    pub(crate) key_group: u32,
    pub(crate) plan: Vec<u8>,
    pub(crate) query: QueryId,
    pub(crate) slots: u8,
    keys: HashMap<u32, SourceKey>,
}

/// A frame and the child that sent it.
pub(crate) type Frame = (String, Vec<u8>);

/// A decoded share that the querier received from one of its children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenedShare {
    pub(crate) participants: BTreeSet<u32>,
    /// The records, ordered by key group, then by slot.
    pub(crate) psrs: Vec<Psr>,
}

impl World {
    /// Creates a group. `gateways` lists each gateway and its parent by name. `devices` lists the
    /// gateway of each device.
    pub(crate) fn new(gateways: &[(&str, &str)], devices: &[&str], key_group: u32) -> Self {
        let roster = roster(devices.len());
        let names: Vec<String> = (0..devices.len()).map(|n| format!("mote{n}")).collect();
        let at = names.iter().map(String::as_str).zip(devices.iter().copied());
        let tree = AggregationTree::new(roster, gateways.iter().copied(), at).unwrap();
        let plan = plan(QUERY);
        let query = QueryId::of(&roster.digest(), &[5; 16], &plan);
        let (gateways, keys) = (BTreeMap::new(), HashMap::new());
        let mut world = Self {
            roster,
            tree,
            gateways,
            master: Master::new([7; 32]),
            key_group,
            plan,
            query,
            slots: 2,
            keys,
        };
        let names: Vec<String> = world.tree.gateways().map(str::to_owned).collect();
        for name in names {
            let gateway = world.gateway(&name, 0);
            world.gateways.insert(name, gateway);
        }
        world
    }

    /// Like [`new`](Self::new), but all gateways have received the query schedule at the start of
    /// epoch `T`.
    pub(crate) fn asked(gateways: &[(&str, &str)], devices: &[&str], key_group: u32) -> Self {
        let mut world = Self::new(gateways, devices, key_group);
        let schedule = world.schedule(1, &[world.posed()]);
        for gateway in world.gateways.values_mut() {
            assert_eq!(
                gateway.receive_schedule(&schedule, T * EPOCH_MS, |_| Ok(())),
                Ok(FrameOutcome::Taken)
            );
            gateway.take_outgoing();
        }
        world
    }

    /// Returns a gateway that has just started and that had accepted the query schedule `number`
    /// before.
    pub(crate) fn gateway(&self, name: &str, number: u64) -> Aggregator {
        self.with_member(name, number, |member| Aggregator::new(member).unwrap())
    }

    /// Passes a gateway's place in the world's tree to a function.
    pub(crate) fn with_member<R>(
        &self,
        name: &str,
        number: u64,
        use_it: impl FnOnce(&Member<'_>) -> R,
    ) -> R {
        use_it(&Member {
            roster: self.roster,
            tree: &self.tree,
            name,
            querier: &secret(3).public(),
            children_secret: &children_secret(name),
            up_secret: &self.secret_at(self.tree.parent(name).unwrap(), gateway_id(name)),
            grace: GRACE,
            number,
        })
    }

    /// Replaces the roster by its next version, and the tree by one of its devices. `homes` lists
    /// the gateways of the devices that join. The gateways continue with the earlier version.
    pub(crate) fn change(
        &mut self,
        homes: &[(&str, &str)],
        change: impl FnOnce(&mut NextRoster<'_>),
    ) {
        let operator = secret(2);
        let mut next =
            NextRoster::after(self.roster.bytes(), &operator, &operator.public()).unwrap();
        change(&mut next);
        let roster = Roster::open(&next.issue().unwrap(), &operator.public()).unwrap();
        let names: Vec<String> = self.tree.gateways().map(str::to_owned).collect();
        let gateways: Vec<(&str, &str)> =
            names.iter().map(|name| (name.as_str(), self.tree.parent(name).unwrap())).collect();
        let sources = self.roster.sources();
        let devices = (0..).zip(&sources).map(|(position, device)| {
            (device.name.as_str(), self.tree.gateway_of(position).unwrap())
        });
        let devices = devices.chain(homes.iter().copied());
        self.tree = AggregationTree::new(&roster, gateways, devices).unwrap();
        self.roster = Box::leak(Box::new(Arc::new(roster)));
    }

    /// Lets a gateway continue with the world's version of the roster.
    pub(crate) fn load(&mut self, name: &str) {
        let mut gateway = self.gateways.remove(name).unwrap();
        self.with_member(name, 0, |member| gateway.load(member)).unwrap();
        self.gateways.insert(name.to_owned(), gateway);
    }

    /// Passes a query schedule to all gateways.
    pub(crate) fn announce(&mut self, number: u64, now_ms: u64) {
        let schedule = self.schedule(number, &[self.posed()]);
        for gateway in self.gateways.values_mut() {
            assert_eq!(
                gateway.receive_schedule(&schedule, now_ms, |_| Ok(())),
                Ok(FrameOutcome::Taken)
            );
        }
    }

    pub(crate) fn posed(&self) -> Posed<'static> {
        Posed {
            nonce: [5; 16],
            first: 0,
            until: u64::MAX,
            plan: Box::leak(self.plan.clone().into_boxed_slice()),
        }
    }

    pub(crate) fn schedule(&self, number: u64, queries: &[Posed<'_>]) -> Vec<u8> {
        self.draft(number, queries, &secret(3))
    }

    pub(crate) fn draft(&self, number: u64, queries: &[Posed<'_>], querier: &SecretKey) -> Vec<u8> {
        let draft = QueryScheduleDraft {
            group: self.roster.group(),
            roster: self.roster.first_digest(),
            number,
            sources: self.tree.sources(),
            key_group: self.key_group,
            queries,
        };
        draft
            .issue(querier, &mut vec![0; MAX_QUERY_SCHEDULE], &mut vec![0; MAX_QUERY_SCHEDULE])
            .unwrap()
            .to_vec()
    }

    /// Returns the secret of the link between a child and its aggregator.
    pub(crate) fn secret_at(&self, aggregator: &str, child: DeviceId) -> [u8; 32] {
        *LinkKey::secret_of(&children_secret(aggregator), self.roster.group(), child)
    }

    pub(crate) fn key_at(&self, aggregator: &str, child: DeviceId) -> LinkKey {
        LinkKey::new(&self.secret_at(aggregator, child))
    }

    pub(crate) fn device(&self, position: u32) -> DeviceId {
        self.roster.sources()[position as usize].id
    }

    pub(crate) fn source_key(&mut self, position: u32) -> &SourceKey {
        let (device, group) = (self.device(position), self.roster.group());
        let (master, query, key_group) = (&self.master, self.query, self.key_group);
        self.keys
            .entry(position)
            .or_insert_with(|| master.source(group, device, position / key_group).for_query(query))
    }

    /// Returns the records of a source, one for each slot: 1, and the source's reading.
    pub(crate) fn encrypted(&mut self, position: u32, epoch: u64, value: u128) -> Vec<Psr> {
        let mut permit = permit(self.query, epoch);
        let key = self.source_key(position);
        [1, value]
            .iter()
            .zip(0..)
            .map(|(value, slot)| key.encrypt(&mut permit, Slot(slot), *value).unwrap())
            .collect()
    }

    /// Returns a child's share, as a frame for its aggregator.
    pub(crate) fn frame(
        &self,
        aggregator: &str,
        child: DeviceId,
        epoch: u64,
        participation: &[u8],
        psrs: &[Psr],
    ) -> Vec<u8> {
        let mut out = vec![0; MAX_FRAME];
        close_share(
            self.query.reference(),
            epoch,
            participation,
            psrs,
            &self.key_at(aggregator, child),
            &mut out,
        )
        .unwrap()
        .to_vec()
    }

    /// Returns a source's share, as a frame for its gateway.
    pub(crate) fn reading(&mut self, position: u32, epoch: u64, value: u128) -> Vec<u8> {
        let psrs = self.encrypted(position, epoch, value);
        let mut one = [0; 8];
        let length = Participation::encode_one(position, &mut one).unwrap();
        let aggregator = self.tree.gateway_of(position).unwrap().to_owned();
        self.frame(&aggregator, self.device(position), epoch, &one[..length], &psrs)
    }

    /// Passes a source's share to the source's gateway.
    pub(crate) fn send_reading(
        &mut self,
        position: u32,
        epoch: u64,
        value: u128,
        now_ms: u64,
    ) -> Result<FrameOutcome, Refused> {
        let frame = self.reading(position, epoch, value);
        let (aggregator, device) =
            (self.tree.gateway_of(position).unwrap().to_owned(), self.device(position));
        let gateway = self.gateways.get_mut(&aggregator).unwrap();
        gateway.tick(now_ms);
        gateway.receive(device, &frame, now_ms)
    }

    /// Returns how long a gateway waits after the end of an epoch.
    pub(crate) fn wait_ms(&self, gateway: &str) -> u64 {
        200 * u64::from(self.tree.aggregator(gateway).unwrap().height())
    }

    /// Passes frames from gateways to their parents until no gateway has a frame left. Returns the
    /// frames for the querier, and the ended epochs.
    pub(crate) fn forward_all(&mut self, now_ms: u64) -> (Vec<Frame>, Vec<(String, Ended)>) {
        let (mut reached, mut ended) = (Vec::new(), Vec::new());
        let mut waiting: VecDeque<String> = self.gateways.keys().cloned().collect();
        while let Some(name) = waiting.pop_front() {
            let output = self.gateways.get_mut(&name).unwrap().take_outgoing();
            ended.extend(output.ended.into_iter().map(|one| (name.clone(), one)));
            let parent = self.tree.parent(&name).unwrap().to_owned();
            for frame in output.up {
                if parent == QUERIER {
                    reached.push((name.clone(), frame));
                } else if let Some(above) = self.gateways.get_mut(&parent) {
                    above.tick(now_ms);
                    above.receive(gateway_id(&name), &frame, now_ms).unwrap();
                    waiting.push_back(parent.clone());
                }
            }
        }
        (reached, ended)
    }

    /// Replaces the query by the same query with another nonce.
    pub(crate) fn use_nonce(&mut self, nonce: [u8; 16]) {
        self.query = QueryId::of(&self.roster.digest(), &nonce, &self.plan);
        self.keys.clear();
    }

    /// Decodes a frame that reached the querier.
    pub(crate) fn opened(&self, child: &str, epoch: u64, frame: &[u8]) -> OpenedShare {
        self.try_opened(child, epoch, frame).unwrap()
    }

    /// Like [`opened`](Self::opened), but returns `None` if a record in the frame is invalid.
    pub(crate) fn try_opened(&self, child: &str, epoch: u64, frame: &[u8]) -> Option<OpenedShare> {
        match SumUplink::open(frame, &self.key_at(QUERIER, gateway_id(child))).unwrap() {
            SumUplink::Share(share) => {
                assert_eq!((share.query, share.epoch), (self.query.reference(), epoch));
                let participation =
                    Participation::decode(share.participation, self.tree.sources()).unwrap();
                let psrs = share.psrs.iter().collect::<Result<_, _>>().ok()?;
                Some(OpenedShare { participants: participation.runs().flatten().collect(), psrs })
            }
            SumUplink::Children(_) => panic!("an answer without a question"),
            SumUplink::Refusal(_) => panic!("a refusal that no source has sent"),
        }
    }

    /// Decrypts shares as the querier does. Returns the sum of each slot.
    pub(crate) fn sums(
        &mut self,
        epoch: u64,
        shares: &[OpenedShare],
    ) -> Result<Vec<u128>, OpenError> {
        let slots = usize::from(self.slots);
        let mut psrs: BTreeMap<u32, Vec<Psr>> = BTreeMap::new();
        let mut participants = BTreeSet::new();
        for share in shares {
            participants.extend(&share.participants);
            let groups: BTreeSet<u32> =
                share.participants.iter().map(|position| position / self.key_group).collect();
            assert_eq!(share.psrs.len(), groups.len() * slots);
            for (group, slots_of) in groups.into_iter().zip(share.psrs.chunks(slots)) {
                let sum = psrs.entry(group).or_insert_with(|| vec![Psr::ZERO; slots]);
                sum.iter_mut().zip(slots_of).for_each(|(sum, psr)| *sum = sum.merge(psr));
            }
        }
        let (query, group, key_group) = (self.query, self.roster.group(), self.key_group);
        let mut sums = vec![0; slots];
        for (number, psrs) in psrs {
            let key = self.master.key_group(group, number).for_query(query);
            for ((slot, psr), sum) in (0..).zip(psrs).zip(&mut sums) {
                let mut totals = KeyTotals::default();
                for position in participants.range(number * key_group..(number + 1) * key_group) {
                    totals.add(self.source_key(*position), Slot(slot), epoch);
                }
                *sum += totals.open(&psr, &key, Slot(slot), epoch, 1 << 40)?;
            }
        }
        Ok(sums)
    }

    /// Returns a question as the child receives it, from the querier or forwarded by a gateway.
    pub(crate) fn question(
        &self,
        aggregator: &str,
        child: DeviceId,
        node: DeviceId,
        epoch: u64,
        first: u32,
    ) -> Vec<u8> {
        let question = Explain { query: self.query.reference(), epoch, node, first };
        question.close(&self.key_at(aggregator, child), &mut [0; 128]).unwrap().to_vec()
    }

    /// Asks a node below `root`, a child of the querier, page by page through the tree of gateways.
    pub(crate) fn explain(
        &mut self,
        root: &str,
        node: &str,
        epoch: u64,
        now_ms: u64,
    ) -> Vec<(DeviceId, OpenedShare)> {
        let mut found = Vec::new();
        loop {
            let first = u32::try_from(found.len()).unwrap();
            let question = self.question(QUERIER, gateway_id(root), gateway_id(node), epoch, first);
            let mut down = VecDeque::from([(root.to_owned(), question)]);
            let mut answer = None;
            while let Some((name, frame)) = down.pop_front() {
                let gateway = self.gateways.get_mut(&name).unwrap();
                gateway.receive_question(&frame, now_ms).unwrap();
                let output = gateway.take_outgoing();
                down.extend(
                    output
                        .down
                        .into_iter()
                        .map(|(child, frame)| (self.tree.name(child).unwrap().to_owned(), frame)),
                );
                let mut up: VecDeque<_> =
                    output.up.into_iter().map(|frame| (name.clone(), frame)).collect();
                while let Some((from, frame)) = up.pop_front() {
                    let parent = self.tree.parent(&from).unwrap().to_owned();
                    if parent == QUERIER {
                        answer = Some(frame);
                        continue;
                    }
                    let above = self.gateways.get_mut(&parent).unwrap();
                    above.receive(gateway_id(&from), &frame, now_ms).unwrap();
                    up.extend(
                        above.take_outgoing().up.into_iter().map(|frame| (parent.clone(), frame)),
                    );
                }
            }
            let answer = answer.unwrap();
            let key = self.key_at(QUERIER, gateway_id(root));
            let SumUplink::Children(answer) = SumUplink::open(&answer, &key).unwrap() else {
                panic!("no answer")
            };
            assert_eq!((answer.node, answer.epoch, answer.first), (gateway_id(node), epoch, first));
            found.extend(self.page(&answer));
            if found.len() as u32 >= answer.total {
                return found;
            }
        }
    }

    fn page(&self, answer: &Children<'_>) -> Vec<(DeviceId, OpenedShare)> {
        let share =
            |(child, participation, psrs): (DeviceId, &[u8], moteseal_sum::wire::Psrs<'_>)| {
                let participation =
                    Participation::decode(participation, self.tree.sources()).unwrap();
                let psrs = psrs.iter().map(Result::unwrap).collect();
                (
                    child,
                    OpenedShare { participants: participation.runs().flatten().collect(), psrs },
                )
            };
        answer.shares().map(share).collect()
    }
}
