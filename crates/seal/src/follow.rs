//! Follows a device's chain through a stream and rebuilds its seals and samples from the items
//! (spec/answers.md, section 1).
//!
//! The [`Follower`] recomputes what is not transmitted (counters, digests, root, statement) and
//! rejects parts that cannot belong to any seal. It does not authenticate. A [`Rebuilt`] is
//! unverified until its seal is proven by a signature, or by the chain from a later verified seal.

use crate::engine::Engine;
use crate::level::Counters;
use crate::members::members;
use crate::sample::Sample;
use crate::seal::{Authentic, Position, Seal, Unverified};
use crate::star::{GroupDigests, Served, star_digests};
use crate::statement::Statement;
use crate::stream::{Open, Part, Select};
use crate::tree::{self, MultiproofError};
use moteseal_core::digest::Digest;
use moteseal_core::named_errors;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Framing, MAX_LEVELS, SealIndex, Sequence};
use moteseal_core::roster::{Directory, NoKey};
use moteseal_core::schema::{GroupLayout, Groups, RecordCheck, RecordError};
use moteseal_core::signature::Algorithm;

/// Limits on the work that a verifier accepts.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of events under one seal. The verifier recomputes the level of each event,
    /// which takes about 10 ns.
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
        /// The roster does not list the device.
        UnknownDevice => "the roster does not list this device",
        /// The roster's history does not have the version.
        UnknownRoster =>
            "the roster's history has no such version; get the operator's newest roster",
        /// The digest of the previous seal is neither in the item nor known to the receiver.
        PrevUnknown =>
            "the digest of the device's previous seal is unknown; send it in the open item",
        /// The item is for the device's first seal, but its `prev` is not the digest of the
        /// device's first certificate.
        PrevMismatch =>
            "a device's first seal must name the device's first certificate as its predecessor",
    }
}

named_errors! {
    /// Why a part cannot belong to any seal.
    PartError {
        /// No open item precedes the part.
        NoOpen => "a part precedes the first open item",
        /// No schema item precedes the part.
        SchemaUnknown => "a part precedes the first schema item",
        /// The index is above the maximum, or the roster has no key of the device for it.
        IndexOutOfRange => "the roster has no key of the device for this index",
        /// The epoch is above the maximum, or outside the roster's range.
        EpochOutOfRange => "the epoch is outside the roster's range",
        /// The epoch belongs to a period that a later version of the roster introduced.
        RosterOutdated =>
            "a later version of the roster changes this epoch; load it on the device",
        /// The device was removed from the group, or its key was revoked, before this index or
        /// epoch.
        KeyEnded => "the device was removed or its key was revoked before this seal",
        /// Indices were skipped, although the part does not state a restart.
        GapWithoutRestart =>
            "indices are skipped, but the part does not state that the device restarted",
        /// The previous seal was the last of this epoch.
        EpochClosed => "the previous seal was the last of its epoch",
        /// The device's round is below the announced round, or not below the number of levels.
        RoundOutOfRange => "the rounds contradict each other or the group's number of levels",
        /// The seal covers more events than the verifier's limit.
        TooManyEvents => "the seal covers more events than the verifier's limit",
        /// The list of lost events exceeds the counters at some level, is all zeros, has the wrong
        /// number of levels, or is in the part of a tree.
        LostOutOfRange => "the numbers of lost events contradict the numbers of counted events",
        /// The part does not state as many keys as the schema has encrypted columns.
        KeyCommitmentCount => "the number of keys that the part states is not that of the schema's \
            encrypted columns",
        /// The part shows a column group that the schema does not have, or no group although the
        /// schema has groups.
        GroupsOutOfRange => "the column groups that the part shows are not those of the schema",
        /// The number of secrets that blind the digests of groups differs from the number that is
        /// needed.
        BlindCount => "the number of blinding secrets differs from the number of blinded groups",
        /// A level or event is selected that does not exist or was not kept.
        SelectOutOfRange => "the part selects a level or event that does not exist or was not kept",
        /// The number of digests differs from the number that the root needs.
        DigestCount => "the number of digests differs from the number that the root needs",
        /// The length of the events does not match their number.
        EventsLength => "the length of the events does not match their number",
        /// A record does not fit its schema.
        Record(error: RecordError) => from,
        /// The signature's length is wrong for its algorithm.
        MalformedSignature => "the signature has the wrong length",
    }
}

impl From<NoKey> for PartError {
    fn from(error: NoKey) -> Self {
        match error {
            NoKey::Unknown => Self::IndexOutOfRange,
            NoKey::Ended => Self::KeyEnded,
        }
    }
}

/// The result of rebuilding a part.
#[derive(Debug)]
pub struct Rebuilt<'a> {
    /// The seal.
    pub seal: Seal<Unverified>,
    /// The selected events.
    pub sample: Sample<'a, Unverified>,
    /// The digest `D_i` of each selected block of a star. It is null for the other levels, and for
    /// a tree.
    pub blocks: [Digest; MAX_LEVELS],
    /// The digests of the column groups that the part shows ([`Prepared::groups`]).
    pub groups: GroupDigests,
}

/// The properties of the current schema that are needed to rebuild seals.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'s> {
    /// The schema's digest.
    pub digest: Digest,
    /// How the records are delimited.
    pub framing: Framing,
    /// The check of each record; `None` if every record of the right length is valid.
    pub check: Option<&'s RecordCheck>,
    /// The number of encrypted columns, hidden ones included.
    pub encrypted: usize,
    /// The places of the column groups in the records; `None` if the schema has no groups. If some
    /// groups are hidden, `framing` and `check` are those of the records with the shown groups.
    pub groups: Option<&'s GroupLayout>,
}

impl Shape<'static> {
    /// Creates the shape of a schema without encrypted columns and groups, under which every record of the right
    /// length is valid.
    #[must_use]
    pub const fn new(digest: Digest, framing: Framing) -> Self {
        Self { digest, framing, check: None, encrypted: 0, groups: None }
    }
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
    version: u32,
    position: Position,
}

/// A saved position of a follower, for [`Follower::go_back`].
#[derive(Clone, Copy, Debug)]
pub struct Mark(Option<At>);

/// The position of a part in its device's chain, without the digest of the previous seal. The
/// expensive work on a part does not need that digest, so several parts can be processed at the
/// same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    device: DeviceId,
    roster: Digest,
    version: u32,
    last: Option<(SealIndex, EpochNumber)>,
    epoch_closed: bool,
}

/// How far a part advances its device's chain. The place and the stride of a part together
/// determine the place of the next part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stride {
    skipped: u32,
    advance: u64,
    restart: bool,
    last_in_epoch: bool,
}

impl Stride {
    /// Returns how far this part advances the chain.
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

/// A part that has been checked. Its statement is complete except for the digest of the previous
/// seal. [`Follower::compute_roots`] computes the root, and [`Follower::link`] completes the seal.
#[derive(Debug)]
pub struct Prepared<'a> {
    place: Place,
    /// The statement, in which `prev` is null.
    statement: Statement,
    algorithm: Algorithm,
    framing: Framing,
    /// The places of the column groups in the records; `None` if the schema has no groups.
    layout: Option<GroupLayout>,
    select: Select<'a>,
    /// For a tree, the digests of the part. For a star, the digests of the hidden groups.
    digests: &'a [u8],
    events: &'a [u8],
    /// The blocks and digests in the part of a star; `None` for a tree.
    star: Option<Served<'a>>,
    /// The root of a tree, once computed.
    tree: Result<Digest, PartError>,
    /// The roots of the trees of the shown groups, once computed.
    roots: GroupDigests,
    is_hashed: bool,
    /// The digest of the seal, once linked.
    seal: Option<Digest>,
}

impl<'a> Prepared<'a> {
    /// Returns the digest `D_i` of each block in the part of a star. The digest is null for the
    /// other levels, and for a tree.
    #[must_use]
    pub fn blocks(&self) -> &[Digest; MAX_LEVELS] {
        const NONE: [Digest; MAX_LEVELS] = [Digest::NULL; MAX_LEVELS];
        self.star.as_ref().map_or(&NONE, |star| &star.digests)
    }

    /// Returns the digests of the column groups that the part shows, ascending by group: for a star, the
    /// digests `D_ig` of each level in the part, ascending; for a tree, the roots of the groups' trees. Empty
    /// if the schema has no groups or the part has no events.
    #[must_use]
    pub fn groups(&self) -> &GroupDigests {
        self.star.as_ref().map_or(&self.roots, |star| &star.groups)
    }

    /// Returns the authentic events of the part. Returns `None` unless `seal` is the verified form
    /// of the seal that [`Follower::link`] made from this part.
    #[must_use]
    pub fn sample(&self, seal: &Seal<Authentic>) -> Option<Sample<'a, Authentic>> {
        (self.seal == Some(seal.digest()))
            .then(|| Sample::new(seal, self.select.clone(), self.events, self.framing))
    }
}

impl<'d, D: Directory + ?Sized, E: Engine> Follower<'d, D, E> {
    /// Creates a follower that uses the keys and epochs of `directory`.
    #[must_use]
    pub fn new(directory: &'d D, engine: E, limits: Limits) -> Self {
        Self { directory, engine, limits, at: None }
    }

    /// Creates a follower with the same directory, engine and limits, positioned at no device. The
    /// new follower can prepare and hash parts while this one links them.
    #[must_use]
    pub fn detached(&self) -> Self
    where
        E: Clone,
    {
        Self::new(self.directory, self.engine.clone(), self.limits)
    }

    /// Returns the engine that computes the hashes.
    #[must_use]
    pub const fn engine(&self) -> &E {
        &self.engine
    }

    /// Returns the current device and the position of its chain.
    #[must_use]
    pub fn position(&self) -> Option<(DeviceId, Position)> {
        self.at.map(|at| (at.device, at.position))
    }

    /// Saves the position of the follower.
    #[must_use]
    pub const fn mark(&self) -> Mark {
        Mark(self.at)
    }

    /// Returns to a saved position.
    pub const fn go_back(&mut self, mark: Mark) {
        self.at = mark.0;
    }

    /// Moves to the device of an open item. If the item does not contain the digest of the previous
    /// seal, calls `known` with that seal's index to get the digest.
    ///
    /// # Errors
    /// [`OpenError`]. The follower is then positioned at no device.
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
        let (device, version) = (open.device, open.roster_version);
        self.at = Some(At { device, roster, version, position });
        Ok(())
    }

    /// Rebuilds the device's next seal from its part and advances past it.
    ///
    /// # Errors
    /// [`PartError`]. The follower's position is then unchanged.
    pub fn part<'a>(
        &mut self,
        part: &Part<'a>,
        shape: Option<&Shape<'_>>,
    ) -> Result<Rebuilt<'a>, PartError> {
        let place = self.place().ok_or(PartError::NoOpen)?;
        let shape = shape.ok_or(PartError::SchemaUnknown)?;
        let mut prepared = self.prepare(&place, part, shape)?;
        let seal = self.link(&mut prepared)?;
        let blocks = *prepared.blocks();
        let groups = prepared.groups().clone();
        let sample = Sample::new(&seal, prepared.select, prepared.events, prepared.framing);
        Ok(Rebuilt { seal, sample, blocks, groups })
    }

    /// Returns the place of the next part; `None` before the first open item.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        let At { device, roster, version, position } = self.at?;
        let Position { last, epoch_closed, .. } = position;
        Some(Place { device, roster, version, last, epoch_closed })
    }

    /// Returns the place of the part that follows a part at `place`.
    ///
    /// # Errors
    /// [`PartError`] if the part cannot be at `place`.
    pub fn place_after(&self, place: &Place, part: Stride) -> Result<Place, PartError> {
        let last = Some(self.within(place, part)?);
        Ok(Place { last, epoch_closed: part.last_in_epoch, ..*place })
    }

    /// Checks the next part, at `place`, and computes its counters.
    ///
    /// # Errors
    /// [`PartError`]. Wrong values of a tree's digests are not detected here.
    pub fn prepare<'a>(
        &self,
        place: &Place,
        part: &Part<'a>,
        shape: &Shape<'_>,
    ) -> Result<Prepared<'a>, PartError> {
        let (index, epoch) = self.within(place, Stride::of(part))?;
        let levels = self.directory.levels(epoch);
        let mut algorithm = None;
        self.directory.with_key(place.device, index, epoch, &mut |key| {
            algorithm = Some(key.algorithm());
        })?;
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
        if part.keys.map_or(0, |keys| keys.commitments().len()) != shape.encrypted {
            return Err(PartError::KeyCommitmentCount);
        }
        if part.groups != shape.groups.map_or(Groups::NONE, GroupLayout::shown) {
            return Err(PartError::GroupsOutOfRange);
        }
        if !part.blinds.is_empty() {
            return Err(PartError::BlindCount);
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
        statement.keys = part.keys;
        statement.groups = shape.groups.map_or(Groups::NONE, GroupLayout::all);

        self.fits(&statement, part, shape, algorithm.signature_length())?;
        let (select, mut digests, events) = (part.select.clone(), part.digests, part.events);
        let star = match (&select, part.scheme) {
            (Select::Levels(mask), Scheme::Star) => {
                let evidence;
                let count = star_digests(statement.surviving(), *mask) as usize;
                (evidence, digests) = digests.split_at((32 * count).min(digests.len()));
                Some(Served::new(&statement, *mask, shape.framing, evidence, events))
            }
            _ => None,
        };
        let (framing, place, layout) = (shape.framing, *place, shape.groups.copied());
        let tree = Err(PartError::DigestCount);
        Ok(Prepared {
            place,
            statement,
            algorithm,
            framing,
            layout,
            select,
            digests,
            events,
            star,
            tree,
            roots: GroupDigests::default(),
            is_hashed: false,
            seal: None,
        })
    }

    /// Computes the roots of several parts. The roots of stars without column groups are computed at
    /// the same time.
    pub fn compute_roots<'s, 'a: 's>(&self, parts: &mut dyn Iterator<Item = &'s mut Prepared<'a>>) {
        self.engine.star_roots(&mut parts.filter_map(|part| {
            part.is_hashed = true;
            if part.star.is_none() {
                part.tree = self.root_of_tree(part);
            }
            let star = part.star.as_mut()?;
            if let Some(layout) = &part.layout {
                self.engine.grouped_digests(layout, part.framing, part.digests, star);
                star.root = star.link_all();
                return None;
            }
            Some(star)
        }));
    }

    /// Completes the seal of the next part and advances past it. Computes the root first if
    /// [`compute_roots`](Self::compute_roots) has not done so.
    ///
    /// # Errors
    /// [`PartError`]: `NoOpen` if the part was prepared for another place, `DigestCount` if a
    /// tree's digests do not form a tree. The follower's position is then unchanged.
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

    /// Checks a part at `place` and returns its index and epoch.
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
        if place.version < self.directory.least_version(epoch) {
            return Err(PartError::RosterOutdated);
        }
        Ok((index, epoch))
    }

    /// Checks the selection, and the sizes of digests, events and signature.
    fn fits(
        &self,
        statement: &Statement,
        part: &Part<'_>,
        shape: &Shape<'_>,
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
            Select::Levels(mask) => counters.masked(*mask),
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
        let hidden = shape.groups.map_or(0, |layout| layout.hidden().len() as u64);
        // A part of a tree has the siblings of each shown group, and one digest for each hidden one.
        let of_tree = |siblings: u64| match shape.groups {
            Some(layout) if selected > 0 => siblings * layout.shown().len() as u64 + hidden,
            _ => siblings,
        };
        let expected = match (&part.select, statement.scheme) {
            (Select::Levels(mask), Scheme::Star) => {
                u64::from(star_digests(surviving, *mask)) + u64::from(mask.count_ones()) * hidden
            }
            (Select::Levels(mask), Scheme::Tree) => {
                of_tree(tree::sibling_count(u64::from(part.n), self.members(statement, *mask)))
            }
            (Select::Events(gaps), _) => {
                of_tree(tree::sibling_count(u64::from(part.n), gaps.iter()))
            }
        };
        if digests != expected {
            return Err(PartError::DigestCount);
        }
        if shape.framing.length_of(part.events, selected) != Some(part.events.len()) {
            return Err(PartError::EventsLength);
        }
        if let Some(check) = shape.check {
            let mut rest = part.events;
            while let Some((record, tail)) = shape.framing.split_first(rest) {
                check.check(record)?;
                rest = tail;
            }
        }
        if part.signature.is_some_and(|bytes| bytes.len() != signature) {
            return Err(PartError::MalformedSignature);
        }
        Ok(())
    }

    fn root_of_tree(&self, part: &mut Prepared<'_>) -> Result<Digest, PartError> {
        let n = part.statement.counters.total();
        if let Some(layout) = part.layout {
            return self.root_of_groups(part, &layout).map_err(|_| PartError::DigestCount);
        }
        match &part.select {
            Select::Levels(mask)
                if u64::from(part.statement.counters.masked(*mask)) == n && n > 0 =>
            {
                Ok(self.whole_tree_root(part))
            }
            Select::Levels(mask) => self.tree_root(part, &mut self.members(&part.statement, *mask)),
            Select::Events(gaps) => self.tree_root(part, &mut gaps.iter()),
        }
    }

    /// Computes the root of a tree with column groups, and keeps the roots of the shown groups.
    fn root_of_groups(
        &self,
        part: &mut Prepared<'_>,
        layout: &GroupLayout,
    ) -> Result<Digest, MultiproofError> {
        let (n, view) = (part.statement.counters.total(), (layout, part.framing));
        let content = (part.events, part.digests);
        if part.events.is_empty() {
            return tree::groups_root(n, view, core::iter::empty(), content);
        }
        let roots = match &part.select {
            Select::Levels(mask) => {
                tree::shown_roots(n, view, self.members(&part.statement, *mask), content)
            }
            Select::Events(gaps) => tree::shown_roots(n, view, gaps.iter(), content),
        }?;
        let of_all = layout.all().iter().zip(&roots);
        let shown = of_all.filter(|(group, _)| layout.shown().contains(*group));
        part.roots.clear();
        part.roots.extend(shown.map(|(_, root)| *root));
        Ok(tree::join_roots(&roots[..layout.all().len()]))
    }

    fn members<'s>(
        &'s self,
        statement: &'s Statement,
        mask: u32,
    ) -> impl Iterator<Item = Sequence> + Clone + 's {
        members(
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
        // These calls cannot fail: the tree has room for 2^32 - 1 records, and the length has been
        // checked.
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

#[allow(clippy::cast_possible_truncation)]
fn part_total(counters: &Counters) -> u32 {
    counters.total() as u32
}
