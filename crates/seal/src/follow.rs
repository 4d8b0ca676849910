//! Following a device's chain through a stream: from items to rebuilt seals and samples (spec/formats.md, section 4).
//!
//! The follower computes what did not travel (counters, digests, root, statement) and refuses what cannot be. It proves
//! nothing: a [`Rebuilt`] is unverified until its seal is proven by a signature, or by the chain from a later seal that is.

use crate::engine::Engine;
use crate::level::Counters;
use crate::sample::Sample;
use crate::star::Served;
use crate::stream::{Open, Part, Select};
use crate::{Authentic, Position, Seal, Statement, Unverified, star, tree};
use moteseal_core::digest::Digest;
use moteseal_core::named_errors;
use moteseal_core::record::Scheme;
use moteseal_core::record::{
    DeviceId, EpochNumber, Framing, Level, MAX_LEVELS, SealIndex, Sequence,
};
use moteseal_core::roster::Directory;
use moteseal_core::signature::Algorithm;

/// What a verifier is willing to work on.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Events under one seal: their levels are recomputed, about 10 ns each.
    pub max_events: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_events: 1 << 24 }
    }
}

named_errors! {
    /// Why a device's stream cannot be opened.
    OpenError {
        /// The roster has no such device.
        UnknownDevice => "the roster has no such device",
        /// The roster's history has no such version.
        UnknownRoster => "the roster's history has no such version; get the operator's newest roster",
        /// The digest of the seal before is neither given nor known.
        PrevUnknown => "the digest of the seal before is neither given nor known; send it",
        /// A first seal must name the device's first certificate.
        PrevMismatch => "the first seal of a device must name its first certificate",
    }
}

named_errors! {
    /// Why a part cannot be a part of any seal.
    PartError {
        /// No open item came before.
        NoOpen => "a part before any open item",
        /// No schema item came before.
        SchemaUnknown => "a part before any schema item",
        /// The index is past the last possible, or no key of the device covers it.
        IndexOutOfRange => "no key of the device covers this index",
        /// The epoch is past the last possible, or outside the roster's.
        EpochOutOfRange => "the epoch is outside those of the roster",
        /// Indices were skipped without a restart.
        GapWithoutRestart => "indices are skipped, but the device did not restart",
        /// The seal before closed this epoch.
        EpochClosed => "the seal before was the last of its epoch",
        /// The device's round is below the announced one, or there are not so many levels.
        RoundOutOfRange => "the rounds do not fit each other or the group's levels",
        /// More events than the verifier's limit.
        TooManyEvents => "the seal covers more events than the verifier's limit",
        /// More events lost at a level than there were, or none at all.
        LostOutOfRange => "the lost events do not fit the counted ones",
        /// A level or event is selected that does not exist.
        SelectOutOfRange => "a level or event is selected that does not exist",
        /// More or fewer digests than the root needs.
        DigestCount => "more or fewer digests than the root needs",
        /// The events are not those that were counted.
        EventsLength => "the events are not as many as the salt and the count say",
        /// The signature has another length than its algorithm's.
        MalformedSignature => "the signature has the wrong length",
    }
}

/// What a part says, with everything that did not travel.
#[derive(Debug)]
pub struct Rebuilt<'a> {
    /// The seal.
    pub seal: Seal<Unverified>,
    /// The selected events.
    pub sample: Sample<'a, Unverified>,
    /// A star's `D_i` of each selected level; null elsewhere, and for a tree.
    pub blocks: [Digest; MAX_LEVELS],
}

/// The schema in force, as far as sealing is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The schema's digest.
    pub digest: Digest,
    /// How its records lie next to each other.
    pub framing: Framing,
}

/// Follows the chains of devices through the items of a stream.
#[derive(Debug)]
pub struct Follower<'d, D: ?Sized, E> {
    directory: &'d D,
    engine: E,
    limits: Limits,
    at: Option<At>,
}

#[derive(Clone, Copy, Debug)]
struct At {
    device: DeviceId,
    roster: Digest,
    position: Position,
}

/// Where a follower stands, for who goes back to it.
#[derive(Clone, Copy, Debug)]
pub struct Mark(Option<At>);

/// Where a part stands in its device's chain, as far as that is known without the digest of the seal before: what is costly about
/// a part depends on nothing else, so that many of them are worked on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    device: DeviceId,
    roster: Digest,
    last: Option<(SealIndex, EpochNumber)>,
    epoch_closed: bool,
}

/// How far a part goes in its device's chain: all that the place of the next one follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stride {
    skipped: u32,
    advance: u64,
    restart: bool,
    last_in_epoch: bool,
}

impl Stride {
    /// How far this part goes.
    #[must_use]
    pub const fn of(part: &Part<'_>) -> Self {
        Self {
            skipped: part.skipped,
            advance: part.advance,
            restart: part.restart,
            last_in_epoch: part.last_in_epoch,
        }
    }
}

/// A part that can be one of a seal, with everything of the seal but the digest of the one before; [`Follower::compute_roots`] gives it its
/// root, [`Follower::link`] the rest.
#[derive(Debug)]
pub struct Prepared<'a> {
    place: Place,
    /// `prev` is null.
    statement: Statement,
    algorithm: Algorithm,
    framing: Framing,
    select: Select<'a>,
    digests: &'a [u8],
    events: &'a [u8],
    /// What of a star is here; `None` for a tree.
    star: Option<Served<'a>>,
    /// The root of a tree, once it is computed.
    tree: Result<Digest, PartError>,
    is_hashed: bool,
    /// The digest of the seal, once it is linked.
    seal: Option<Digest>,
}

impl<'a> Prepared<'a> {
    /// A star's `D_i` of each level that is here; null elsewhere, and for a tree.
    #[must_use]
    pub fn blocks(&self) -> &[Digest; MAX_LEVELS] {
        const NONE: [Digest; MAX_LEVELS] = [Digest::NULL; MAX_LEVELS];
        self.star.as_ref().map_or(&NONE, |star| &star.digests)
    }

    /// The events that are here, authentic; `None` if `seal` is not the proven form of the one that [`Follower::link`] made of them.
    #[must_use]
    pub fn sample(&self, seal: &Seal<Authentic>) -> Option<Sample<'a, Authentic>> {
        (self.seal == Some(seal.digest()))
            .then(|| Sample::new(seal, self.select.clone(), self.events, self.framing))
    }
}

impl<'d, D: Directory + ?Sized, E: Engine> Follower<'d, D, E> {
    /// A follower that goes by `directory`.
    #[must_use]
    pub fn new(directory: &'d D, engine: E, limits: Limits) -> Self {
        Self { directory, engine, limits, at: None }
    }

    /// Another that goes by the same directory and within the same limits, at no device: for who prepares and hashes parts while this
    /// one links them.
    #[must_use]
    pub fn beside(&self) -> Self
    where
        E: Clone,
    {
        Self::new(self.directory, self.engine.clone(), self.limits)
    }

    /// The engine that hashes.
    #[must_use]
    pub const fn engine(&self) -> &E {
        &self.engine
    }

    /// The device whose parts follow, and where its chain stands.
    #[must_use]
    pub fn position(&self) -> Option<(DeviceId, Position)> {
        self.at.map(|at| (at.device, at.position))
    }

    /// Where the follower stands.
    #[must_use]
    pub const fn mark(&self) -> Mark {
        Mark(self.at)
    }

    /// Goes back to where it stood before.
    pub const fn go_back(&mut self, mark: Mark) {
        self.at = mark.0;
    }

    /// Goes to a device. `known` gives the digest of a seal before that the receiver has (by index) where the item does not.
    ///
    /// # Errors
    /// [`OpenError`]; the follower then stands at no device.
    pub fn open(
        &mut self,
        open: &Open,
        known: impl FnOnce(SealIndex) -> Option<Digest>,
    ) -> Result<(), OpenError> {
        self.at = None;
        let first = self.directory.first_prev(open.device).ok_or(OpenError::UnknownDevice)?;
        let roster =
            self.directory.roster_digest(open.roster_version).ok_or(OpenError::UnknownRoster)?;
        let prev = match (open.prev, open.last) {
            (None, None) => first,
            (Some(prev), None) if prev != first => return Err(OpenError::PrevMismatch),
            (Some(prev), _) => prev,
            (None, Some((index, _))) => known(index).ok_or(OpenError::PrevUnknown)?,
        };
        let position = Position { prev, last: open.last, epoch_closed: false };
        self.at = Some(At { device: open.device, roster, position });
        Ok(())
    }

    /// Rebuilds the next seal of the device, and goes on behind it.
    ///
    /// # Errors
    /// [`PartError`]; the follower stays where it was.
    pub fn part<'a>(
        &mut self,
        part: &Part<'a>,
        shape: Option<&Shape>,
    ) -> Result<Rebuilt<'a>, PartError> {
        let place = self.place().ok_or(PartError::NoOpen)?;
        let shape = shape.ok_or(PartError::SchemaUnknown)?;
        let mut prepared = self.prepare(&place, part, shape)?;
        let seal = self.link(&mut prepared)?;
        let blocks = *prepared.blocks();
        let sample = Sample::new(&seal, prepared.select, prepared.events, prepared.framing);
        Ok(Rebuilt { seal, sample, blocks })
    }

    /// Where the next part stands; `None` before any open item.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        let At { device, roster, position } = self.at?;
        Some(Place { device, roster, last: position.last, epoch_closed: position.epoch_closed })
    }

    /// Where the part behind one at `place` stands.
    ///
    /// # Errors
    /// [`PartError`], if the part cannot stand there.
    pub fn behind(&self, place: &Place, part: Stride) -> Result<Place, PartError> {
        let last = Some(self.within(place, part)?);
        Ok(Place { last, epoch_closed: part.last_in_epoch, ..*place })
    }

    /// Checks the next part, at `place`, and counts its levels.
    ///
    /// # Errors
    /// [`PartError`]: what can be wrong with a part, but for the digests of a tree.
    pub fn prepare<'a>(
        &self,
        place: &Place,
        part: &Part<'a>,
        shape: &Shape,
    ) -> Result<Prepared<'a>, PartError> {
        let levels = self.directory.levels();
        let (index, epoch) = self.within(place, Stride::of(part))?;
        let mut algorithm = None;
        self.directory.with_key(place.device, index, &mut |key| algorithm = Some(key.algorithm()));
        let algorithm = algorithm.ok_or(PartError::IndexOutOfRange)?;

        if part.round > part.own_round || part.own_round.0 >= levels {
            return Err(PartError::RoundOutOfRange);
        }
        if part.n > self.limits.max_events {
            return Err(PartError::TooManyEvents);
        }
        let counters = self.engine.counters(&part.salt, levels, part.n);
        if let Some(lost) = &part.lost {
            let fits = lost.levels() == levels
                && lost.total() > 0
                && part.scheme == Scheme::Star
                && lost
                    .as_slice()
                    .iter()
                    .zip(counters.as_slice())
                    .all(|(lost, count)| lost <= count);
            if !fits {
                return Err(PartError::LostOutOfRange);
            }
        }
        let mut statement =
            Statement::new(part.scheme, self.directory.group(), place.roster, place.device, levels);
        statement.index = index;
        statement.last = place.last;
        statement.epoch = epoch;
        statement.last_in_epoch = part.last_in_epoch;
        statement.restart = part.restart;
        statement.schema = shape.digest;
        statement.salt = part.salt;
        statement.round = part.round;
        statement.own_round = part.own_round;
        statement.counters = counters;
        statement.lost = part.lost;
        statement.answered = part.answered;

        self.fits(&statement, part, shape.framing, algorithm.signature_length())?;
        let (select, digests, events) = (part.select.clone(), part.digests, part.events);
        let star = match (&select, part.scheme) {
            (Select::Levels(mask), Scheme::Star) => {
                Some(Served::new(&statement, *mask, shape.framing, digests, events))
            }
            _ => None,
        };
        let (framing, place) = (shape.framing, *place);
        let tree = Err(PartError::DigestCount);
        Ok(Prepared {
            place,
            statement,
            algorithm,
            framing,
            select,
            digests,
            events,
            star,
            tree,
            is_hashed: false,
            seal: None,
        })
    }

    /// Computes the roots of parts, those of stars side by side.
    pub fn compute_roots<'s, 'a: 's>(&self, parts: &mut dyn Iterator<Item = &'s mut Prepared<'a>>) {
        self.engine.star_roots(&mut parts.filter_map(|part| {
            if part.star.is_none() {
                part.tree = self.root_of_tree(part);
            }
            part.is_hashed = true;
            part.star.as_mut()
        }));
    }

    /// Completes the seal of the next part, and goes on behind it. A part that has not been hashed yet is; one that was prepared
    /// for another place than where the follower stands has no seal here.
    ///
    /// # Errors
    /// [`PartError`]: `NoOpen` for one of another place, `DigestCount` for a tree; the follower stays where it was.
    pub fn link(&mut self, part: &mut Prepared<'_>) -> Result<Seal<Unverified>, PartError> {
        let at = self.at.filter(|_| self.place() == Some(part.place)).ok_or(PartError::NoOpen)?;
        if !part.is_hashed {
            self.compute_roots(&mut core::iter::once(&mut *part));
        }
        let root = part.star.as_ref().map_or(part.tree, |star| Ok(star.root))?;
        let statement = Statement { prev: at.position.prev, ..part.statement.clone() };
        let seal = Seal::new(statement, root, part.algorithm);
        part.seal = Some(seal.digest());
        self.at = Some(At { position: seal.position(), ..at });
        Ok(seal)
    }

    /// Index and epoch of a part.
    fn within(&self, place: &Place, part: Stride) -> Result<(SealIndex, EpochNumber), PartError> {
        let (index, epoch) = match place.last {
            None => (Some(part.skipped), Some(part.advance)),
            Some((index, epoch)) => (
                index.0.checked_add(1).and_then(|next| next.checked_add(part.skipped)),
                epoch.0.checked_add(part.advance),
            ),
        };
        let index = SealIndex(index.ok_or(PartError::IndexOutOfRange)?);
        let epoch = EpochNumber(epoch.ok_or(PartError::EpochOutOfRange)?);
        let (first, last) = self.directory.epochs();
        if epoch < first || last.is_some_and(|last| epoch > last) {
            return Err(PartError::EpochOutOfRange);
        }
        if part.skipped > 0 && !part.restart {
            return Err(PartError::GapWithoutRestart);
        }
        if place.last.is_some() && part.advance == 0 && place.epoch_closed {
            return Err(PartError::EpochClosed);
        }
        Ok((index, epoch))
    }

    /// Checks selection, digests, events and signature for their sizes.
    fn fits(
        &self,
        statement: &Statement,
        part: &Part<'_>,
        framing: Framing,
        signature: usize,
    ) -> Result<(), PartError> {
        let counters = &statement.counters;
        let surviving = statement.surviving();
        if !part.digests.len().is_multiple_of(32) {
            return Err(PartError::DigestCount);
        }
        let selected = match &part.select {
            Select::Levels(mask) if mask & !surviving != 0 => {
                return Err(PartError::SelectOutOfRange);
            }
            Select::Levels(mask) => masked(counters, *mask),
            Select::Events(gaps) => {
                let last = gaps.iter().last();
                if statement.scheme != Scheme::Tree
                    || last.is_none_or(|last| last.0 >= u64::from(part.n))
                {
                    return Err(PartError::SelectOutOfRange);
                }
                let levels = counters.levels();
                let kept = |seq| part.salt.level(seq, levels).0 >= part.own_round.0;
                if part.own_round.0 > 0 && !gaps.iter().all(kept) {
                    return Err(PartError::SelectOutOfRange);
                }
                gaps.len()
            }
        };
        let digests = part.digests.len() as u64 / 32;
        let expected = match (&part.select, statement.scheme) {
            (Select::Levels(mask), Scheme::Star) => u64::from(star_digests(surviving, *mask)),
            (Select::Levels(mask), Scheme::Tree) => {
                tree::sibling_count(u64::from(part.n), self.members(statement, *mask))
            }
            (Select::Events(gaps), _) => tree::sibling_count(u64::from(part.n), gaps.iter()),
        };
        if digests != expected {
            return Err(PartError::DigestCount);
        }
        if framing.length_of(part.events, selected) != Some(part.events.len()) {
            return Err(PartError::EventsLength);
        }
        if part.signature.is_some_and(|bytes| bytes.len() != signature) {
            return Err(PartError::MalformedSignature);
        }
        Ok(())
    }

    fn root_of_tree(&self, part: &Prepared<'_>) -> Result<Digest, PartError> {
        let n = part.statement.counters.total();
        match &part.select {
            Select::Levels(mask)
                if u64::from(masked(&part.statement.counters, *mask)) == n && n > 0 =>
            {
                Ok(self.whole_tree_root(part))
            }
            Select::Levels(mask) => self.tree_root(part, &mut self.members(&part.statement, *mask)),
            Select::Events(gaps) => self.tree_root(part, &mut gaps.iter()),
        }
    }

    fn members<'s>(
        &'s self,
        statement: &'s Statement,
        mask: u32,
    ) -> impl Iterator<Item = Sequence> + Clone + 's {
        crate::sample::members(
            &self.engine,
            &statement.salt,
            statement.counters.levels(),
            part_total(&statement.counters),
            mask,
        )
    }

    fn tree_root(
        &self,
        part: &Prepared<'_>,
        selected: &mut dyn Iterator<Item = Sequence>,
    ) -> Result<Digest, PartError> {
        let n = part.statement.counters.total();
        let root =
            self.engine.multiproof_root(n, part.framing, part.events, selected, part.digests);
        root.map_err(|_| PartError::DigestCount)
    }

    fn whole_tree_root(&self, part: &Prepared<'_>) -> Digest {
        let mut whole = tree::Tree::<32>::new();
        // The tree's capacity is above any u32 and the length has been checked, so neither can fail.
        match part.framing {
            Framing::Fixed(size) => {
                let _ = whole.extend(&self.engine, usize::from(size.get()), part.events);
            }
            Framing::Prefixed => {
                let mut rest = part.events;
                while let Some((record, tail)) = part.framing.split_first(rest) {
                    let _ = whole.push(record);
                    rest = tail;
                }
            }
        }
        whole.root()
    }
}

impl<'a> Served<'a> {
    /// What a part carries of the star of its statement; its sizes have been checked.
    fn new(
        statement: &Statement,
        mask: u32,
        framing: Framing,
        evidence: &'a [u8],
        events: &'a [u8],
    ) -> Self {
        let counters = statement.counters;
        let mut blocks = [&[][..]; MAX_LEVELS];
        let mut rest = events;
        for level in (0..counters.levels()).rev().filter(|level| mask >> level & 1 == 1) {
            let length = framing.length_of(rest, counters.at(Level(level))).unwrap_or(rest.len());
            (blocks[usize::from(level)], rest) = rest.split_at(length);
        }
        let (device, index, surviving) = (statement.device, statement.index, statement.surviving());
        let (digests, root) = ([Digest::NULL; MAX_LEVELS], Digest::NULL);
        Self { device, index, counters, surviving, mask, evidence, blocks, digests, root }
    }

    /// The root, given the digests of the blocks.
    #[must_use]
    pub fn link_all(&self) -> Digest {
        let (from, above, blocks) = self.chain();
        let levels = self.counters.as_slice().iter().zip(&blocks).skip(usize::from(from));
        levels.fold(above, |above, (&count, block)| star::link(&above, count, block))
    }

    /// The chain over the levels, given the digests of the blocks: from which level on it is to be computed, the digest before that
    /// level, and each level's block.
    #[must_use]
    pub fn chain(&self) -> (u8, Digest, [Digest; MAX_LEVELS]) {
        let levels = self.counters.levels();
        let lowest = lowest(self.mask, levels);
        let mut given = self.evidence.chunks_exact(32).map(digest);
        let (from, above) = if self.surviving & below(lowest) != 0 {
            (lowest, given.next().unwrap_or(Digest::NULL))
        } else {
            (0, star::chain_start())
        };
        let mut blocks = [Digest::NULL; MAX_LEVELS];
        for level in lowest..levels {
            let is_here = self.mask >> level & 1 == 1 || self.surviving >> level & 1 == 0;
            let level = usize::from(level);
            blocks[level] =
                if is_here { self.digests[level] } else { given.next().unwrap_or(Digest::NULL) };
        }
        (from, above, blocks)
    }
}

#[allow(clippy::cast_possible_truncation)]
fn part_total(counters: &Counters) -> u32 {
    counters.total() as u32
}

/// How many events lie at the levels of `mask`.
#[must_use]
pub fn masked(counters: &Counters, mask: u32) -> u32 {
    counters
        .as_slice()
        .iter()
        .enumerate()
        .filter(|(level, _)| mask >> level & 1 == 1)
        .map(|(_, count)| count)
        .sum()
}

/// The lowest set level of a mask, or `levels` if none is.
#[must_use]
pub fn lowest(mask: u32, levels: u8) -> u8 {
    #[allow(clippy::cast_possible_truncation)]
    let zeros = mask.trailing_zeros() as u8;
    zeros.min(levels)
}

/// The mask of the levels below `level`.
const fn below(level: u8) -> u32 {
    if level >= 32 { u32::MAX } else { (1 << level) - 1 }
}

/// How many digests a star's part carries: one for everything below the lowest selected level, if anything survives there, and
/// one for each surviving level above it that is not selected.
#[must_use]
pub fn star_digests(surviving: u32, mask: u32) -> u32 {
    let lowest = lowest(mask, 32);
    let under = surviving & below(lowest) != 0;
    let above = surviving & !mask & !below(lowest);
    u32::from(under) + above.count_ones()
}

fn digest(bytes: &[u8]) -> Digest {
    let mut digest = Digest::NULL;
    digest.0.copy_from_slice(bytes);
    digest
}

/// The digests that a star's part of the levels `mask` carries, given all `D_i`: written to `out`, their number returned.
pub fn star_evidence(
    statement: &Statement,
    blocks: &[Digest],
    mask: u32,
    out: &mut [Digest; MAX_LEVELS],
) -> usize {
    pruned_evidence(statement, (0, star::chain_start()), blocks, mask, out)
}

/// The same for who has only the `D_i` from a level `b` on, and `A_{b-1}`: `from` is the two. No level below `b` may be in `mask`.
pub fn pruned_evidence(
    statement: &Statement,
    from: (u8, Digest),
    blocks: &[Digest],
    mask: u32,
    out: &mut [Digest; MAX_LEVELS],
) -> usize {
    let levels = statement.counters.levels();
    let surviving = statement.surviving();
    let lowest = lowest(mask, levels);
    let mut count = 0;
    if surviving & below(lowest) != 0 {
        out[0] = (from.0..lowest).fold(from.1, |above, level| {
            star::link(&above, statement.counters.at(Level(level)), &blocks[usize::from(level)])
        });
        count = 1;
    }
    for level in (lowest..levels).filter(|level| surviving & !mask & 1 << level != 0) {
        out[count] = blocks[usize::from(level)];
        count += 1;
    }
    count
}
