//! The newest epoch that has ended, with its seals and events, for clients that read the device
//! itself (spec/sensors.md, section 1.2).
//!
//! A mote drops an event when the gateway has it. A mote that serves clients keeps the events of the
//! open epoch and of the newest one that has ended, up to [`MAX_ENDED`] bytes each.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use moteseal_core::digest::Digest;
use moteseal_core::record::{EpochNumber, Framing, Level, Round, Scheme, SealIndex, Sequence};
use moteseal_core::schema::GroupLayout;
use moteseal_core::signature::Signer;
use moteseal_lanes::{Host, merkle};
use moteseal_seal::stream::Selection;
use moteseal_seal::{Seal, tree};
use moteseal_verify::write;

use super::Mote;

/// The maximum length of the stream of an epoch, in bytes.
pub const MAX_ENDED: usize = 1 << 20;

/// An epoch that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedEpoch {
    /// The epoch.
    pub epoch: EpochNumber,
    /// The stream (spec/answers.md, section 1): a schema item, then an open item and a part for each
    /// seal of the epoch. `None` if it is longer than [`MAX_ENDED`].
    pub stream: Option<Bytes>,
}

/// The epochs that a mote keeps for clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Epochs {
    open: OpenEvents,
    /// The epoch of `stream`.
    epoch: Option<EpochNumber>,
    /// The epoch's seals so far; `None` if they are too long.
    stream: Option<Vec<u8>>,
    newest: Option<Arc<EndedEpoch>>,
}

/// The events of the open seal, in the encoding of a part.
#[derive(Clone, Debug, Default)]
struct OpenEvents {
    index: Option<SealIndex>,
    /// The events of each level of a star. All events of a tree are at level 0.
    blocks: BTreeMap<u8, Vec<u8>>,
    is_too_long: bool,
}

impl Epochs {
    /// Adds an event of the open seal. `own_round` is the device's round after the event.
    pub(super) fn note(
        &mut self,
        (index, scheme, framing): (SealIndex, Scheme, Framing),
        (level, own_round): (Level, Round),
        record: &[u8],
    ) {
        if self.open.index != Some(index) {
            self.open = OpenEvents { index: Some(index), ..OpenEvents::default() };
        }
        let OpenEvents { blocks, is_too_long, .. } = &mut self.open;
        let block = match scheme {
            Scheme::Tree => 0,
            Scheme::Star => {
                blocks.retain(|level, _| *level >= own_round.0);
                level.0
            }
        };
        if *is_too_long || (scheme == Scheme::Star && level.0 < own_round.0) {
            return;
        }
        let block = blocks.entry(block).or_default();
        framing.frame(record, |bytes| block.extend_from_slice(bytes));
        if blocks.values().map(Vec::len).sum::<usize>() > MAX_ENDED {
            (*blocks, *is_too_long) = (BTreeMap::new(), true);
        }
    }

    /// Adds a seal that was closed, with its open item.
    pub(super) fn close<S>(
        &mut self,
        seal: &Seal<S>,
        open: &[u8],
        ((schema, framing), layout): ((&[u8], Framing), Option<&GroupLayout>),
        signature: &[u8],
    ) {
        let statement = seal.statement();
        let events = std::mem::take(&mut self.open);
        let is_of_seal = events.index == Some(statement.index);
        let events = if is_of_seal { events } else { OpenEvents::default() };
        if self.epoch != Some(statement.epoch) {
            let mut stream = Vec::new();
            write::schema(&mut stream, schema);
            (self.epoch, self.stream) = (Some(statement.epoch), Some(stream));
        }
        if events.is_too_long {
            self.stream = None;
        }
        if let Some(stream) = &mut self.stream {
            let (events, digests) = selected(seal, (framing, layout), &events.blocks);
            stream.extend_from_slice(open);
            let selection = Selection::Levels(statement.surviving());
            write::part(stream, seal, selection, &digests, &events, Some(signature));
            if stream.len() > MAX_ENDED {
                self.stream = None;
            }
        }
        if statement.last_in_epoch {
            let stream = self.stream.take().map(Bytes::from);
            self.newest = Some(Arc::new(EndedEpoch { epoch: statement.epoch, stream }));
            self.epoch = None;
        }
    }
}

/// Returns the events of a seal that survive, in the order of a part, and the digests that replace
/// the other ones.
fn selected<S>(
    seal: &Seal<S>,
    (framing, layout): (Framing, Option<&GroupLayout>),
    blocks: &BTreeMap<u8, Vec<u8>>,
) -> (Vec<u8>, Vec<u8>) {
    let (statement, surviving) = (seal.statement(), seal.statement().surviving());
    let survives = |level: u8| surviving >> level & 1 == 1;
    if statement.scheme == Scheme::Star {
        // A part with all levels that survive needs no digest (spec/answers.md, section 1.2).
        let blocks = blocks.iter().rev().filter(|(level, _)| survives(**level));
        return (blocks.flat_map(|(_, block)| block).copied().collect(), Vec::new());
    }
    let records = blocks.get(&0).map_or(&[][..], Vec::as_slice);
    let n = statement.counters.total();
    if u64::from(statement.counters.masked(surviving)) == n {
        return (records.to_vec(), Vec::new());
    }
    let levels = statement.counters.levels();
    let (mut events, mut kept, mut rest) = (Vec::new(), Vec::new(), records);
    // The leaves of the tree of each column group, or of the only tree.
    let cells: Vec<_> = match layout {
        Some(layout) => layout.all().iter().map(|group| Some(layout.cells(group))).collect(),
        None => vec![None],
    };
    let mut leaves = vec![Vec::new(); cells.len()];
    for seq in (0..n).map(Sequence) {
        let Some((record, tail)) = framing.split_first(rest) else { break };
        for (cells, leaves) in cells.iter().zip(&mut leaves) {
            leaves.push(match cells {
                Some(cells) => tree::group_leaf(*cells, record),
                None => tree::leaf(record),
            });
        }
        if survives(statement.salt.level(seq, levels).0) {
            kept.push(seq);
            framing.frame(record, |bytes| events.extend_from_slice(bytes));
        }
        rest = tail;
    }
    // Without events, the part has the root of the seal.
    let digests: Vec<Digest> = if kept.is_empty() {
        vec![*seal.root()]
    } else {
        let of_tree = |leaves: &Vec<Digest>| {
            merkle::multiproof(&Host::detect(), leaves, kept.iter().copied())
        };
        leaves.iter().flat_map(of_tree).collect()
    };
    (events, digests.iter().flat_map(|digest| digest.0).collect())
}

impl<K: Signer, const N: usize> Mote<K, N> {
    /// Keeps the events of the open epoch and of the newest one that has ended from now on. Call this
    /// before the first reading.
    pub fn keep_ended(&mut self) {
        self.epochs = Some(Epochs::default());
    }

    /// Returns the newest epoch that has ended since the mote keeps them. Returns `None` if there is
    /// none, or if the seals of the epoch were given up under a later version of the roster or because
    /// the gateway was ahead.
    #[must_use]
    pub fn ended(&self) -> Option<&Arc<EndedEpoch>> {
        self.epochs.as_ref()?.newest.as_ref()
    }

    /// Drops the epochs, because the chain does not continue after their seals.
    pub(super) fn forget_ended(&mut self) {
        self.epochs = self.epochs.is_some().then(Epochs::default);
    }
}
