//! The queues of planned relays and answers, each with its due time. Queues are arrays of fixed
//! size. An entry that does not fit is dropped; another node that lacks the item requests it again.

use crate::recovery::settings::LinkSet;
use crate::recovery::store::Item;
use crate::recovery::{ANY_CHAIN, WANTS_CERTIFICATE, WANTS_HEAD};
use crate::{ChainRef, KeyId};

/// Why a node sends a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// The node is the chain's sender, and released the message.
    Original,
    /// The node relays an item that it has received.
    Relay,
    /// The node answers a request.
    Answer,
    /// The node requests an item that it lacks.
    Request,
    /// The node advertises the items that it has.
    Advertisement,
    /// The node sends receipts.
    Receipt,
}

/// The item or items of a queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Certificate(KeyId),
    Revocation(u8),
    ChainCertificate(ChainRef),
    Head(ChainRef),
    /// Leaves of a block, one bit each. Each leaf is sent in its own frame.
    Leaves {
        chain: ChainRef,
        block: u32,
        bits: u64,
    },
}

impl Piece {
    pub(super) const fn chain(&self) -> Option<ChainRef> {
        match self {
            Self::Certificate(_) | Self::Revocation(_) => None,
            Self::ChainCertificate(chain) | Self::Head(chain) | Self::Leaves { chain, .. } => {
                Some(*chain)
            }
        }
    }

    /// Returns the next item of the piece.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) const fn next(&self) -> Item {
        match *self {
            Self::Certificate(key) => Item::Certificate(key),
            Self::Revocation(base) => Item::Revocation(base),
            Self::ChainCertificate(chain) => Item::ChainCertificate(chain),
            Self::Head(chain) => Item::Head(chain),
            Self::Leaves { chain, block, bits } => {
                Item::Leaf { chain, block, index: bits.trailing_zeros() as u8 }
            }
        }
    }

    /// Returns the piece that consists of one item.
    pub(super) const fn of(item: Item) -> Self {
        match item {
            Item::Certificate(key) => Self::Certificate(key),
            Item::Revocation(base) => Self::Revocation(base),
            Item::ChainCertificate(chain) => Self::ChainCertificate(chain),
            Item::Head(chain) => Self::Head(chain),
            Item::Leaf { chain, block, index } => {
                Self::Leaves { chain, block, bits: 1 << (index & 63) }
            }
        }
    }

    /// Returns the chain, block and bits that identify the piece in the tables of answers.
    pub(super) const fn place(&self) -> Option<(ChainRef, u32, u64)> {
        match *self {
            Self::Leaves { chain, block, bits } => Some((chain, block, bits)),
            Self::Head(chain) => Some((chain, 0, WANTS_HEAD)),
            Self::ChainCertificate(chain) => Some((chain, 0, WANTS_CERTIFICATE)),
            Self::Revocation(base) => Some((ANY_CHAIN, 0, 1 << (base & 63))),
            Self::Certificate(_) => None,
        }
    }

    /// Removes a part of this piece and returns whether anything is left.
    const fn remove(&mut self, part: Self) -> bool {
        match (self, part) {
            (Self::Leaves { bits, .. }, Self::Leaves { bits: part, .. }) => {
                *bits &= !part;
                *bits != 0
            }
            _ => false,
        }
    }

    pub(super) fn has(&self, item: Item) -> bool {
        match (*self, Self::of(item)) {
            (
                Self::Leaves { chain, block, bits },
                Self::Leaves { chain: of, block: at, bits: bit },
            ) => (chain, block) == (of, at) && bits & bit != 0,
            (piece, other) => piece == other,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) due: u64,
    pub(super) piece: Piece,
    pub(super) links: LinkSet,
    pub(super) purpose: Purpose,
    /// The number of copies that other nodes have sent since this entry was added.
    pub(super) duplicates: u8,
    /// Whether the node sends this entry even if other nodes send copies. Without such entries, an
    /// attacker that repeats genuine frames could silence the nodes near it.
    pub(super) is_firm: bool,
}

#[derive(Clone)]
pub(super) struct Queue<const N: usize> {
    places: [Option<(Planned, u32)>; N],
    /// The order in which entries were added. If two entries are due at the same time, the one that
    /// was added first is sent first.
    planned: u32,
}

impl<const N: usize> Queue<N> {
    pub(super) const fn new() -> Self {
        Self { places: [None; N], planned: 0 }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Planned> {
        self.places.iter().flatten().map(|(planned, _)| planned)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Planned> {
        self.places.iter_mut().flatten().map(|(planned, _)| planned)
    }

    /// Adds an entry. If `joins`, the entry is merged with a queued entry for the same item or for
    /// other leaves of the same block, and the merged entry has the links of both entries. If the
    /// queue is full, the entry is merged with one for the same links, or replaces the entry that
    /// is due last.
    pub(super) fn add(&mut self, planned: Planned, joins: bool) {
        if (joins || self.places.iter().all(Option::is_some)) && self.join(&planned, joins) {
            return;
        }
        self.planned = self.planned.wrapping_add(1);
        let last = |place: &&mut Option<(Planned, u32)>| {
            place.as_ref().map_or(u64::MAX, |(planned, _)| planned.due)
        };
        if let Some(place) = self.places.iter_mut().max_by_key(last)
            && place.as_ref().is_none_or(|(last, _)| last.due > planned.due)
        {
            *place = Some((planned, self.planned));
        }
    }

    fn join(&mut self, planned: &Planned, any_links: bool) -> bool {
        self.iter_mut().filter(|other| any_links || other.links == planned.links).any(|other| {
            if other.purpose != planned.purpose {
                return false;
            }
            let joins = match (&mut other.piece, planned.piece) {
                (
                    Piece::Leaves { chain, block, bits },
                    Piece::Leaves { chain: of, block: at, bits: more },
                ) if (*chain, *block) == (of, at) => {
                    *bits |= more;
                    true
                }
                (piece, other) => *piece == other,
            };
            if joins {
                other.links = other.links.with(planned.links);
                other.is_firm |= planned.is_firm;
            }
            joins
        })
    }

    /// Returns when the last entry of a chain is due; 0 if the chain has no entry.
    pub(super) fn latest(&self, chain: Option<ChainRef>) -> u64 {
        self.iter()
            .filter(|planned| planned.piece.chain() == chain)
            .map(|planned| planned.due)
            .max()
            .unwrap_or(0)
    }

    /// Returns when the first entry is due; `u64::MAX` if the queue is empty.
    pub(super) fn due(&self) -> u64 {
        self.iter().map(|planned| planned.due).min().unwrap_or(u64::MAX)
    }

    pub(super) fn first(&self) -> Option<Planned> {
        self.places
            .iter()
            .flatten()
            .min_by_key(|(planned, order)| (planned.due, *order))
            .map(|(planned, _)| *planned)
    }

    /// Postpones an entry.
    pub(super) fn put_off(&mut self, planned: &Planned, due: u64) {
        let same =
            |other: &&mut Planned| other.piece == planned.piece && other.links == planned.links;
        if let Some(planned) = self.iter_mut().find(same) {
            planned.due = due;
        }
    }

    /// Removes what was sent or cannot be sent. The other items of the same entry are then due at
    /// `again`.
    pub(super) fn mark_sent(&mut self, planned: &Planned, sent: Piece, again: u64) {
        let same = |other: &Planned| {
            other.piece == planned.piece
                && other.links == planned.links
                && other.purpose == planned.purpose
        };
        let found = self
            .places
            .iter_mut()
            .find(|place| place.as_ref().is_some_and(|(other, _)| same(other)));
        if let Some(place) = found {
            *place = place.take().and_then(|(mut planned, order)| {
                planned.due = again;
                planned.piece.remove(sent).then_some((planned, order))
            });
        }
    }

    /// Returns whether leaves of a block are in the queue.
    pub(super) fn has_leaves(&self, chain: ChainRef, block: u32) -> bool {
        self.iter().any(|planned| {
            matches!(planned.piece, Piece::Leaves { chain: of, block: at, .. } if (of, at) == (chain, block))
        })
    }

    pub(super) fn has(&self, item: Item) -> bool {
        self.iter().any(|planned| planned.piece.has(item))
    }

    /// Removes an item that other nodes have sent from the entries for which `ends` returns true.
    pub(super) fn suppress(&mut self, item: Item, mut ends: impl FnMut(&mut Planned) -> bool) {
        for place in &mut self.places {
            if let Some((planned, _)) = place
                && planned.piece.has(item)
                && ends(planned)
                && !planned.piece.remove(Piece::of(item))
            {
                *place = None;
            }
        }
    }

    /// Removes the entries for which `ends` returns true.
    pub(super) fn drop_if(&mut self, ends: impl Fn(&Planned) -> bool) {
        for place in &mut self.places {
            if place.as_ref().is_some_and(|(planned, _)| ends(planned)) {
                *place = None;
            }
        }
    }
}
