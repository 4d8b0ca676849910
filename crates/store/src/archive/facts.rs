//! The facts in the journal of an archive, and the state that follows from them. Each record is one
//! fact: a byte for its kind, then its fields. Fields of fixed size come first. Numbers are
//! big-endian.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use moteseal_broadcast::recovery::MissedChain;
use moteseal_broadcast::{ChainNumber, ChainRef, KeyId, MAX_REVOKED_BYTES, Revoked};
use moteseal_core::record::{DeviceId, NetworkId};

use crate::journal::{Journal, JournalError};

/// One record of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    /// The network to which the archive belongs. Always the first record.
    Network(NetworkId),
    /// The highest accepted chain number of a sender's key.
    Floor(KeyId, ChainNumber),
    /// All that a base station has revoked.
    Revoked(KeyId, Revoked),
    /// The newest certificate of a sender's key.
    Certificate(KeyId, Vec<u8>),
    /// The newest revocation of a base station.
    Revocation(KeyId, Vec<u8>),
    /// The certificate under which a chain was accepted.
    ChainCertificate(ChainRef, Vec<u8>),
    /// The head of a chain.
    Head(ChainRef, Vec<u8>),
    /// The chain is complete.
    Complete(ChainRef),
    /// The chain was removed.
    Forgotten(ChainRef),
    /// How far the archive's owner has processed the chain.
    Progress(ChainRef, u64),
    /// The first chain number that was accepted of a sender's key.
    Joined(KeyId, ChainNumber),
    /// A chain was missed.
    Missed(MissedChain),
    /// A missed chain was accepted, or its note was dropped to make room.
    Found(ChainRef),
    /// The newest command of a topic of a sender's key.
    Topic(KeyId, ChainNumber, String),
    /// Commands of a sender's key below this number are outdated, whatever their topic is.
    Outdated(KeyId, ChainNumber),
    /// The latest time that the archive's owner has used, in seconds of Unix time.
    Time(u64),
}

/// The maximum number of missed chains that are noted. The oldest notes are dropped first.
const MOST_MISSED: usize = 256;
/// The maximum number of topics of a sender's key.
const MOST_TOPICS: usize = 256;

impl Fact {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, name, rest): (u8, &[u8], &[u8]) = match self {
            Self::Network(NetworkId(network)) => (0, network, &[]),
            Self::Floor(KeyId(sender), number) => (1, sender, &number.0.to_be_bytes()),
            Self::Revoked(KeyId(base), revoked) => {
                let mut out = [0; MAX_REVOKED_BYTES];
                return [&[2][..], &base[..], revoked.encode(&mut out)].concat();
            }
            Self::Certificate(KeyId(sender), bytes) => (3, sender, bytes),
            Self::Revocation(KeyId(base), bytes) => (4, base, bytes),
            Self::ChainCertificate(ChainRef(chain), bytes) => (5, chain, bytes),
            Self::Head(ChainRef(chain), bytes) => (6, chain, bytes),
            Self::Complete(ChainRef(chain)) => (7, chain, &[]),
            Self::Forgotten(ChainRef(chain)) => (8, chain, &[]),
            Self::Progress(ChainRef(chain), progress) => (9, chain, &progress.to_be_bytes()),
            Self::Joined(KeyId(sender), number) => (10, sender, &number.0.to_be_bytes()),
            Self::Missed(missed) => {
                let MissedChain { chain, sender, key, number, above, left } = missed;
                let above = above.map(|above| above.0.to_be_bytes());
                let above = above.as_ref().map_or(&[][..], <[u8; 8]>::as_slice);
                let fields = [&sender.0[..], &key.0, &number.0.to_be_bytes(), &[*left], above];
                return [&[11][..], &chain.0[..], &fields.concat()].concat();
            }
            Self::Found(ChainRef(chain)) => (12, chain, &[]),
            Self::Topic(KeyId(sender), number, topic) => {
                return [&[13][..], &sender[..], &number.0.to_be_bytes(), topic.as_bytes()]
                    .concat();
            }
            Self::Outdated(KeyId(sender), number) => (14, sender, &number.0.to_be_bytes()),
            Self::Time(unix) => (15, &unix.to_be_bytes(), &[]),
        };
        [&[kind], name, rest].concat()
    }

    pub(super) fn decode(record: &[u8]) -> Option<Self> {
        let (kind, rest) = record.split_first()?;
        if let 0..=4 = kind {
            let (&name, rest) = rest.split_first_chunk::<8>()?;
            let number = || Some(u64::from_be_bytes(rest.try_into().ok()?));
            return Some(match kind {
                0 => Self::Network(NetworkId(name)),
                1 => Self::Floor(KeyId(name), ChainNumber(number()?)),
                2 => Self::Revoked(KeyId(name), Revoked::decode(rest).ok()?),
                3 => Self::Certificate(KeyId(name), rest.to_vec()),
                _ => Self::Revocation(KeyId(name), rest.to_vec()),
            });
        }
        let (&name, rest) = rest.split_first_chunk::<8>()?;
        let chain = ChainRef(name);
        Some(match kind {
            5 => Self::ChainCertificate(chain, rest.to_vec()),
            6 => Self::Head(chain, rest.to_vec()),
            7 => Self::Complete(chain),
            8 => Self::Forgotten(chain),
            9 => Self::Progress(chain, u64::from_be_bytes(rest.try_into().ok()?)),
            10 => Self::Joined(KeyId(name), number(rest)?),
            11 => {
                let (&sender, rest) = rest.split_first_chunk::<8>()?;
                let (&key, rest) = rest.split_first_chunk::<8>()?;
                let (number_bytes, rest) = rest.split_first_chunk::<8>()?;
                let (&left, above) = rest.split_first()?;
                let above = if above.is_empty() { None } else { Some(number(above)?) };
                let number = ChainNumber(u64::from_be_bytes(*number_bytes));
                let (sender, key) = (DeviceId(sender), KeyId(key));
                Self::Missed(MissedChain { chain, sender, key, number, above, left })
            }
            12 => Self::Found(chain),
            13 => {
                let (number, topic) = rest.split_first_chunk::<8>()?;
                let topic = String::from_utf8(topic.to_vec()).ok()?;
                Self::Topic(KeyId(name), ChainNumber(u64::from_be_bytes(*number)), topic)
            }
            14 => Self::Outdated(KeyId(name), number(rest)?),
            15 if rest.is_empty() => Self::Time(u64::from_be_bytes(name)),
            _ => return None,
        })
    }
}

/// The state that results from applying all facts in order.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) network: Option<NetworkId>,
    pub(super) floors: BTreeMap<KeyId, ChainNumber>,
    pub(super) revoked: BTreeMap<KeyId, Revoked>,
    pub(super) certificates: BTreeMap<KeyId, Vec<u8>>,
    pub(super) revocations: BTreeMap<KeyId, Vec<u8>>,
    pub(super) chain_certificates: BTreeMap<ChainRef, Vec<u8>>,
    pub(super) heads: BTreeMap<ChainRef, Vec<u8>>,
    /// The chains whose head is stored, in the order of arrival.
    pub(super) order: VecDeque<ChainRef>,
    pub(super) complete: BTreeSet<ChainRef>,
    pub(super) progress: BTreeMap<ChainRef, u64>,
    /// The total length of all heads and chain certificates, in bytes.
    pub(super) of_chains: u64,
    pub(super) joined: BTreeMap<KeyId, ChainNumber>,
    pub(super) missed: BTreeMap<ChainRef, MissedChain>,
    pub(super) topics: BTreeMap<KeyId, BTreeMap<String, ChainNumber>>,
    pub(super) outdated: BTreeMap<KeyId, ChainNumber>,
    pub(super) time: u64,
}

impl Facts {
    /// Reads all facts of a journal. Returns `None` if it is not the journal of an archive.
    pub(super) fn read(journal: &Journal) -> Result<Option<Self>, JournalError> {
        let mut facts = Self::default();
        for record in journal.iter() {
            match Fact::decode(&record?) {
                Some(fact) if facts.network.is_some() || matches!(fact, Fact::Network(_)) => {
                    facts.apply(fact);
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(facts))
    }

    pub(super) fn apply(&mut self, fact: Fact) {
        match fact {
            Fact::Network(network) => self.network = Some(network),
            Fact::Floor(sender, number) => {
                raise(self.floors.entry(sender).or_insert(number), number);
            }
            Fact::Revoked(base, revoked) => {
                let known = self.revoked.entry(base).or_default();
                if revoked.covers(known) {
                    *known = revoked;
                }
            }
            Fact::Certificate(sender, bytes) => {
                self.certificates.insert(sender, bytes);
            }
            Fact::Revocation(base, bytes) => {
                self.revocations.insert(base, bytes);
            }
            Fact::ChainCertificate(chain, bytes) => {
                self.of_chains += bytes.len() as u64;
                let previous = self.chain_certificates.insert(chain, bytes);
                self.of_chains -= length(previous);
            }
            Fact::Head(chain, bytes) => {
                self.of_chains += bytes.len() as u64;
                let previous = self.heads.insert(chain, bytes);
                if previous.is_none() {
                    self.order.push_back(chain);
                }
                self.of_chains -= length(previous);
            }
            Fact::Complete(chain) => {
                self.complete.insert(chain);
            }
            Fact::Forgotten(chain) => {
                self.of_chains -= length(self.heads.remove(&chain))
                    + length(self.chain_certificates.remove(&chain));
                self.progress.remove(&chain);
                self.complete.remove(&chain);
                self.order.retain(|kept| *kept != chain);
            }
            Fact::Progress(chain, progress) => {
                self.progress.insert(chain, progress);
            }
            Fact::Joined(sender, number) => {
                self.joined.entry(sender).or_insert(number);
            }
            Fact::Missed(missed) => {
                self.missed.insert(missed.chain, missed);
            }
            Fact::Found(chain) => {
                self.missed.remove(&chain);
            }
            Fact::Topic(sender, number, topic) => {
                let topics = self.topics.entry(sender).or_default();
                raise(topics.entry(topic).or_insert(number), number);
            }
            Fact::Outdated(sender, number) => {
                raise(self.outdated.entry(sender).or_insert(number), number);
                if let Some(topics) = self.topics.get_mut(&sender) {
                    topics.retain(|_, newest| *newest > number);
                }
            }
            Fact::Time(unix) => self.time = unix,
        }
    }

    /// Returns the facts to record before this missed chain: those that make room for it.
    pub(super) fn room_for_missed(&self) -> Option<Fact> {
        let oldest = self.missed.values().min_by_key(|missed| missed.number);
        oldest.filter(|_| self.missed.len() >= MOST_MISSED).map(|oldest| Fact::Found(oldest.chain))
    }

    /// Returns the fact to record before a new topic of a key: it makes room for the topic. All
    /// commands before that of the oldest topic are then outdated.
    pub(super) fn room_for_topic(&self, sender: KeyId, topic: &str) -> Option<Fact> {
        let topics = self.topics.get(&sender)?;
        if topics.len() < MOST_TOPICS || topics.contains_key(topic) {
            return None;
        }
        topics.values().min().map(|oldest| Fact::Outdated(sender, *oldest))
    }

    /// Returns the shortest list of facts that results in this state.
    pub(super) fn all(&self) -> Vec<Fact> {
        let mut all: Vec<Fact> = self.network.map(Fact::Network).into_iter().collect();
        all.extend(self.floors.iter().map(|(sender, number)| Fact::Floor(*sender, *number)));
        all.extend(self.revoked.iter().map(|(base, revoked)| Fact::Revoked(*base, *revoked)));
        all.extend(
            self.certificates
                .iter()
                .map(|(sender, bytes)| Fact::Certificate(*sender, bytes.clone())),
        );
        all.extend(
            self.revocations.iter().map(|(base, bytes)| Fact::Revocation(*base, bytes.clone())),
        );
        all.extend(self.joined.iter().map(|(sender, number)| Fact::Joined(*sender, *number)));
        all.extend(self.missed.values().copied().map(Fact::Missed));
        all.extend(self.outdated.iter().map(|(sender, number)| Fact::Outdated(*sender, *number)));
        for (sender, topics) in &self.topics {
            let of = |(topic, number): (&String, &ChainNumber)| {
                Fact::Topic(*sender, *number, topic.clone())
            };
            all.extend(topics.iter().map(of));
        }
        all.extend((self.time > 0).then_some(Fact::Time(self.time)));
        for chain in &self.order {
            if let Some(bytes) = self.chain_certificates.get(chain) {
                all.push(Fact::ChainCertificate(*chain, bytes.clone()));
            }
            if let Some(bytes) = self.heads.get(chain) {
                all.push(Fact::Head(*chain, bytes.clone()));
            }
            if self.complete.contains(chain) {
                all.push(Fact::Complete(*chain));
            }
            if let Some(progress) = self.progress.get(chain) {
                all.push(Fact::Progress(*chain, *progress));
            }
        }
        all
    }

    /// Returns the number of facts that [`all`](Self::all) returns.
    pub(super) fn live(&self) -> u64 {
        let of_chains = self.order.len()
            + self.chain_certificates.len()
            + self.complete.len()
            + self.progress.len();
        let others = self.floors.len()
            + self.revoked.len()
            + self.certificates.len()
            + self.revocations.len()
            + self.joined.len()
            + self.missed.len()
            + self.outdated.len()
            + self.topics.values().map(BTreeMap::len).sum::<usize>()
            + usize::from(self.time > 0);
        (1 + of_chains + others) as u64
    }
}

fn number(bytes: &[u8]) -> Option<ChainNumber> {
    Some(ChainNumber(u64::from_be_bytes(bytes.try_into().ok()?)))
}

fn length(bytes: Option<Vec<u8>>) -> u64 {
    bytes.map_or(0, |bytes| bytes.len() as u64)
}

/// Raises a number; it never decreases.
fn raise<T: Ord + Copy>(kept: &mut T, to: T) {
    *kept = (*kept).max(to);
}
