//! What a node has planned to say: relays and answers, each at a time of its own. Queues are arrays; what does not fit is dropped, for whoever
//! lacks it asks again.

use crate::recovery::settings::LinkSet;
use crate::recovery::store::Item;
use crate::{ChainRef, KeyId};

/// Why a node says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// The node is the sender, and it is time.
    Original,
    /// It passes on what it has heard.
    Relay,
    /// Somebody has asked.
    Answer,
    /// It asks.
    Request,
    /// It says what it holds.
    Advertisement,
}

/// What is to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Certificate(KeyId),
    Revocation(u8),
    ChainCertificate(ChainRef),
    Head(ChainRef),
    /// Leaves of a block, a bit each; they go one by one.
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

    /// What goes next of it.
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

    /// Takes `item` out; whether something is left.
    fn remove(&mut self, item: Item) -> bool {
        match (self, item) {
            (Self::Leaves { chain, block, bits }, Item::Leaf { chain: of, block: at, index })
                if (*chain, *block) == (of, at) =>
            {
                *bits &= !(1 << index);
                *bits != 0
            }
            (piece, item) => piece.next() != item,
        }
    }

    pub(super) fn has(&self, item: Item) -> bool {
        match (self, item) {
            (Self::Leaves { chain, block, bits }, Item::Leaf { chain: of, block: at, index }) => {
                (*chain, *block) == (of, at) && bits >> index & 1 == 1
            }
            (piece, item) => piece.next() == item,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) due: u64,
    pub(super) piece: Piece,
    pub(super) links: LinkSet,
    pub(super) purpose: Purpose,
    /// How many others were heard to say it meanwhile.
    pub(super) duplicates: u8,
    /// It is said whatever others are heard to say: whoever repeats what is genuine must not silence those that he is near to.
    pub(super) is_firm: bool,
}

#[derive(Clone)]
pub(super) struct Queue<const N: usize> {
    places: [Option<(Planned, u32)>; N],
    /// Counts what was planned: of two that are due at once the one that was planned first goes first.
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

    /// Plans something. If it `joins`, the same and other leaves of the same block that are planned go together with it, to all their links; what
    /// there is no room for otherwise joins what goes to the same links, or else what is due last gives way.
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

    /// When the latest of a chain is due; 0 if nothing of it is planned.
    pub(super) fn latest(&self, chain: Option<ChainRef>) -> u64 {
        self.iter()
            .filter(|planned| planned.piece.chain() == chain)
            .map(|planned| planned.due)
            .max()
            .unwrap_or(0)
    }

    /// When the first is due.
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

    /// Puts off the next of a piece.
    pub(super) fn put_off(&mut self, planned: &Planned, due: u64) {
        let same =
            |other: &&mut Planned| other.piece == planned.piece && other.links == planned.links;
        if let Some(planned) = self.iter_mut().find(same) {
            planned.due = due;
        }
    }

    /// Takes out an item that is said, or cannot be; what is left of its piece is due at `again`.
    pub(super) fn mark_sent(&mut self, planned: &Planned, item: Item, again: u64) {
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
                planned.piece.remove(item).then_some((planned, order))
            });
        }
    }

    pub(super) fn has(&self, item: Item) -> bool {
        self.iter().any(|planned| planned.piece.has(item))
    }

    /// Others were heard to say an item: those that `ends` chooses no longer say it.
    pub(super) fn suppress(&mut self, item: Item, mut ends: impl FnMut(&mut Planned) -> bool) {
        for place in &mut self.places {
            if let Some((planned, _)) = place
                && planned.piece.has(item)
                && ends(planned)
                && !planned.piece.remove(item)
            {
                *place = None;
            }
        }
    }

    /// Drops what `ends` chooses.
    pub(super) fn drop_if(&mut self, ends: impl Fn(&Planned) -> bool) {
        for place in &mut self.places {
            if place.as_ref().is_some_and(|(planned, _)| ends(planned)) {
                *place = None;
            }
        }
    }
}
