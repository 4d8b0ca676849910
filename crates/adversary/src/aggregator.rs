//! Attacks of an untrusted gateway on the private sums that it aggregates (spec/sums.md, section
//! 6). Each attack (a lie) replaces the frame that an honest gateway would send to its parent.
//!
//! A [`LyingAggregator`] runs next to an honest aggregator and receives the same frames from the
//! children. It has the data of a gateway: the secrets of its links, and the shares that it has
//! received and sent. It does not have the keys of any source.

use std::collections::{BTreeMap, BTreeSet};

use hmac::{Hmac, KeyInit, Mac};
use moteseal_core::cbor::{BufferTooSmall, Writer};
use moteseal_core::link::{LinkKey, MAX_FRAME};
use moteseal_core::participation::{self, Participation};
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_sum::sies::Psr;
use moteseal_sum::wire::{Share, SumUplink};
use moteseal_verify::aggregation::Aggregator;

/// The number of epochs of received shares that the liar keeps.
const REMEMBERED: usize = 16;

/// The ways in which a gateway can lie about a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Malice {
    /// Omits a child's records, and claims that they are included.
    Drop,
    /// Adds a child's records twice.
    AddTwice,
    /// Adds a value of the liar's choice.
    AddDelta,
    /// Doubles the sum.
    Scale,
    /// Sends the sums of the previous epoch.
    ReplayEpoch,
    /// Sends the sums of another query.
    ReplayQuery,
    /// Sends the sum of each slot in place of the previous slot's.
    SwapSlots,
    /// Exchanges the sums of two key groups.
    SwapKeyGroups,
    /// Omits the records of one child, but reports another child as silent.
    SwapChildren,
    /// Reports a child as silent, but includes its records.
    HideParticipant,
    /// Reports a silent source as a participant.
    InventParticipant,
    /// Omits a child's records and reports the child as silent. The sum is then correct for the
    /// remaining sources. Only the child's own seals show that it answered.
    ClaimSilent,
    /// Sends a record that is not below the modulus.
    NonCanonical,
    /// Sends a record of 31 bytes.
    Truncated,
}

impl Malice {
    /// All lies.
    pub const ALL: [Self; 14] = [
        Self::Drop,
        Self::AddTwice,
        Self::AddDelta,
        Self::Scale,
        Self::ReplayEpoch,
        Self::ReplayQuery,
        Self::SwapSlots,
        Self::SwapKeyGroups,
        Self::SwapChildren,
        Self::HideParticipant,
        Self::InventParticipant,
        Self::ClaimSilent,
        Self::NonCanonical,
        Self::Truncated,
    ];

    /// Returns a short description.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Drop => "omits a child's share and claims that it is included",
            Self::AddTwice => "adds a child's share twice",
            Self::AddDelta => "adds a value of its choice",
            Self::Scale => "doubles the sum",
            Self::ReplayEpoch => "sends the sums of the previous epoch",
            Self::ReplayQuery => "sends the sums of another query",
            Self::SwapSlots => "sends the sum of each slot in place of the sum of another slot",
            Self::SwapKeyGroups => {
                "sends the sum of each key group in place of the sum of another key group"
            }
            Self::SwapChildren => "omits one child and names another as silent",
            Self::HideParticipant => "names a child as silent although its values are included",
            Self::InventParticipant => "names a silent source as a participant",
            Self::ClaimSilent => "omits a child and reports it as silent",
            Self::NonCanonical => "sends a record that is not below the modulus",
            Self::Truncated => "sends a record of 31 bytes",
        }
    }

    /// Returns whether the sum is correct for the reported participants. No check of the sum can
    /// detect such a lie.
    #[must_use]
    pub const fn is_sound(self) -> bool {
        matches!(self, Self::ClaimSilent)
    }

    /// Returns whether the parent rejects the frame because it is malformed.
    #[must_use]
    pub const fn is_malformed(self) -> bool {
        matches!(self, Self::NonCanonical | Self::Truncated)
    }
}

/// The content of a share: the participants, and the records of each key group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Claim {
    participants: BTreeSet<u32>,
    records: BTreeMap<u32, Vec<Psr>>,
}

type Epoch = (u32, u64);

/// A gateway that lies to its parent.
pub struct LyingAggregator {
    malice: Malice,
    aggregator: Aggregator,
    key_group: u32,
    keys: Vec<LinkKey>,
    up: LinkKey,
    up_secret: [u8; 32],
    /// The children's shares, by query and epoch, then by child.
    received: BTreeMap<Epoch, BTreeMap<DeviceId, Claim>>,
    /// The latest share that an honest gateway would have sent, by query.
    sent: BTreeMap<u32, Claim>,
}

impl std::fmt::Debug for LyingAggregator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LyingAggregator").field("malice", &self.malice).finish_non_exhaustive()
    }
}

impl LyingAggregator {
    /// Creates a liar that has the place and the secrets of a gateway of the tree. `key_group` is
    /// the size of a key group, as in the query schedule.
    #[must_use]
    pub fn new(
        malice: Malice,
        aggregator: Aggregator,
        group: GroupId,
        (children_secret, up_secret): (&[u8; 32], &[u8; 32]),
        key_group: u32,
    ) -> Self {
        let key = |child| LinkKey::new(&LinkKey::secret_of(children_secret, group, child));
        Self {
            malice,
            key_group: key_group.max(1),
            keys: aggregator.children().iter().map(|child| key(child.id)).collect(),
            up: LinkKey::new(up_secret),
            up_secret: *up_secret,
            aggregator,
            received: BTreeMap::new(),
            sent: BTreeMap::new(),
        }
    }

    /// Selects another lie.
    pub const fn turn(&mut self, malice: Malice) {
        self.malice = malice;
    }

    /// Records a child's frame.
    pub fn receive(&mut self, child: DeviceId, frame: &[u8]) {
        let Some(at) = self.aggregator.child(child) else { return };
        let Ok(SumUplink::Share(share)) = SumUplink::open(frame, &self.keys[at]) else { return };
        let Some(claim) = self.read(&share) else { return };
        self.received.entry((share.query, share.epoch)).or_default().entry(child).or_insert(claim);
        while self.received.len() > REMEMBERED {
            self.received.pop_first();
        }
    }

    fn read(&self, share: &Share<'_>) -> Option<Claim> {
        let participants: BTreeSet<u32> =
            Participation::decode(share.participation, self.aggregator.group_sources())
                .ok()?
                .runs()
                .flatten()
                .collect();
        let psrs = share.psrs.iter().collect::<Result<Vec<_>, _>>().ok()?;
        let groups: BTreeSet<u32> =
            participants.iter().map(|position| position / self.key_group).collect();
        let slots = psrs.len() / groups.len().max(1);
        let records =
            groups.into_iter().zip(psrs.chunks(slots.max(1)).map(<[Psr]>::to_vec)).collect();
        Some(Claim { participants, records })
    }

    /// Returns the frame that the liar sends to its parent in place of the honest gateway's frame.
    /// Returns `None` if the lie cannot be applied, for example because there is no previous epoch
    /// or because the frame is not a share.
    pub fn lie(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let Ok(SumUplink::Share(share)) = SumUplink::open(frame, &self.up) else { return None };
        let honest = self.read(&share)?;
        let epoch = (share.query, share.epoch);
        let before = self.sent.insert(share.query, honest.clone());
        if honest.participants.is_empty() {
            return None;
        }
        let children = self.received.get(&epoch).cloned().unwrap_or_default();
        let mut with_values = children.values().filter(|claim| !claim.participants.is_empty());
        let (victim, other) = (with_values.next()?, with_values.next());
        let mut claim = honest.clone();
        match self.malice {
            Malice::Drop => claim.records = sum(&children, &[victim], &honest),
            Malice::AddTwice => add(&mut claim.records, &victim.records),
            Malice::AddDelta => {
                let mut delta = [0; 32];
                delta[7] = 1;
                let record = claim.records.values_mut().next()?.last_mut()?;
                *record = record.merge(&Psr::from_bytes(&delta).ok()?);
            }
            Malice::Scale => add(&mut claim.records, &honest.records),
            Malice::ReplayEpoch => {
                claim.records = before.filter(|before| has_shape(before, &honest))?.records;
            }
            Malice::ReplayQuery => {
                let mut others = self.sent.iter().filter(|(query, _)| **query != share.query);
                claim.records =
                    others.find(|(_, other)| has_shape(other, &honest))?.1.records.clone();
            }
            Malice::SwapSlots => claim.records.values_mut().for_each(|slots| slots.rotate_left(1)),
            Malice::SwapKeyGroups => {
                let mut records: Vec<_> = claim.records.values().cloned().collect();
                records.rotate_left(1);
                claim.records = claim.records.into_keys().zip(records).collect();
            }
            Malice::SwapChildren => {
                claim = without(&honest, other?, self.key_group);
                claim.records = sum(&children, &[victim], &claim);
            }
            Malice::HideParticipant => {
                // Hide a child only if every key group still has a participant without it.
                // Otherwise the records of its key group would also be removed, as for a silent
                // child.
                let mut less =
                    children.values().map(|child| without(&honest, child, self.key_group));
                let is_hidden = |less: &Claim| {
                    less.participants != honest.participants && has_shape(less, &honest)
                };
                claim.participants = less.find(is_hidden)?.participants;
            }
            Malice::InventParticipant => {
                let below = (0..self.aggregator.group_sources())
                    .filter(|position| self.aggregator.owner(*position).is_some());
                let silent: BTreeSet<u32> =
                    below.filter(|position| !honest.participants.contains(position)).collect();
                let slots = honest.records.values().next()?.len();
                let invented = *silent.first()?;
                claim.participants.insert(invented);
                claim
                    .records
                    .entry(invented / self.key_group)
                    .or_insert_with(|| vec![Psr::ZERO; slots]);
            }
            Malice::ClaimSilent => {
                let less = without(&honest, victim, self.key_group);
                claim = Claim { records: sum(&children, &[victim], &less), ..less };
            }
            Malice::NonCanonical => return self.frame(epoch, &honest, Some(&[0xff; 32])),
            Malice::Truncated => return self.frame(epoch, &honest, Some(&[0; 31])),
        }
        if claim == honest {
            return None;
        }
        self.frame(epoch, &claim, None)
    }

    /// Returns the frame of a share. If `first` is given, it replaces the bytes of the first
    /// record.
    fn frame(&self, (query, epoch): Epoch, claim: &Claim, first: Option<&[u8]>) -> Option<Vec<u8>> {
        let mut words = vec![0_u64; self.aggregator.group_sources().div_ceil(64) as usize];
        claim
            .participants
            .iter()
            .for_each(|position| words[*position as usize / 64] |= 1 << (position % 64));
        let mut set = vec![0; participation::max_size(self.aggregator.group_sources())];
        let length = Participation::encode(&words, &mut set).ok()?;
        let mut out = vec![0; MAX_FRAME];
        let write = |out: &mut Writer<'_>| -> Result<(), BufferTooSmall> {
            let records = claim.records.values().flatten();
            out.array(5)?
                .uint(4u8)?
                .bytes(&query.to_be_bytes())?
                .uint(epoch)?
                .bytes(&set[..length])?;
            out.array(records.clone().count() as u64)?;
            for (at, record) in records.enumerate() {
                out.bytes(first.filter(|_| at == 0).unwrap_or(&record.to_bytes()))?;
            }
            Ok(())
        };
        let mut writer = Writer::new(&mut out);
        write(&mut writer).ok()?;
        let item = writer.finish().to_vec();
        let key = tag(&self.up_secret, b"moteseal/1/link/up")?;
        let tag = tag(&key, &item)?;
        Some([&item[..], &tag[..16]].concat())
    }
}

fn tag(key: &[u8; 32], message: &[u8]) -> Option<[u8; 32]> {
    Some(
        Hmac::<sha2::Sha256>::new_from_slice(key)
            .ok()?
            .chain_update(message)
            .finalize()
            .into_bytes()
            .into(),
    )
}

fn add(records: &mut BTreeMap<u32, Vec<Psr>>, more: &BTreeMap<u32, Vec<Psr>>) {
    for (group, more) in more {
        if let Some(slots) = records.get_mut(group) {
            slots.iter_mut().zip(more).for_each(|(slot, more)| *slot = slot.merge(more));
        }
    }
}

/// Returns the sums of the children's records in the claimed key groups, without the given
/// children.
fn sum(
    children: &BTreeMap<DeviceId, Claim>,
    except: &[&Claim],
    claimed: &Claim,
) -> BTreeMap<u32, Vec<Psr>> {
    let mut records: BTreeMap<u32, Vec<Psr>> = claimed
        .records
        .iter()
        .map(|(group, slots)| (*group, vec![Psr::ZERO; slots.len()]))
        .collect();
    for child in children.values().filter(|child| !except.contains(child)) {
        add(&mut records, &child.records);
    }
    records
}

/// Returns the claim without a child's participants, and without the key groups that then have no
/// participant.
fn without(honest: &Claim, child: &Claim, key_group: u32) -> Claim {
    let participants: BTreeSet<u32> =
        honest.participants.difference(&child.participants).copied().collect();
    let groups: BTreeSet<u32> = participants.iter().map(|position| position / key_group).collect();
    let records = honest
        .records
        .iter()
        .filter(|(group, _)| groups.contains(group))
        .map(|(group, slots)| (*group, slots.clone()));
    Claim { records: records.collect(), participants }
}

/// Returns whether two claims have the same key groups and numbers of records, so that the records
/// of one claim can replace the records of the other.
fn has_shape(one: &Claim, other: &Claim) -> bool {
    let shape = |claim: &Claim| {
        claim.records.iter().map(|(group, slots)| (*group, slots.len())).collect::<Vec<_>>()
    };
    shape(one) == shape(other)
}
