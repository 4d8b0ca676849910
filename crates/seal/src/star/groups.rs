//! The star of a schema with column groups (spec/groups.md, section 3). The digest of a level is a
//! hash over one digest for each group, so that a part can leave out the cells of a group.

use core::fmt;

use super::{LevelDigest, PushError, Served, StarState, block_digest, chain_start, link};
use crate::level::{Counters, Salt};
use moteseal_core::digest::{Digest, compress256, tag};
use moteseal_core::record::{DeviceId, Framing, Level, SealIndex};
use moteseal_core::schema::{GroupLayout, Groups, MAX_GROUPS};

const GROUP_TAG: [u8; 32] = tag(b"moteseal/2/star/group");
const LEVEL_TAG: [u8; 32] = tag(b"moteseal/2/star/level");

/// Returns the header of a group's cells in a block: the first 128 bytes that their digest covers,
/// which are two whole compressions. The last 64 bytes blind the digest. They are zero, because
/// ciphertext needs no blinding.
#[must_use]
pub fn group_header(device: DeviceId, index: SealIndex, level: Level, group: u8) -> [[u8; 64]; 2] {
    let mut header = [[0; 64]; 2];
    header[0][..32].copy_from_slice(&GROUP_TAG);
    header[0][32..40].copy_from_slice(&device.0);
    header[0][40..44].copy_from_slice(&index.0.to_be_bytes());
    header[0][44..48].copy_from_slice(&u32::from(level.0).to_be_bytes());
    header[0][48..52].copy_from_slice(&u32::from(group).to_be_bytes());
    header
}

impl LevelDigest {
    /// Returns the digest of a group without cells, after its header.
    fn of_group(device: DeviceId, index: SealIndex, level: Level, group: u8) -> Self {
        let mut digest = Self::EMPTY;
        compress256(&mut digest.state, &group_header(device, index, level, group));
        // The length does not count the first 64 bytes of a header.
        digest.length = 64;
        digest
    }

    /// Adds the cells of an event. The most frequent lengths take few instructions.
    #[inline]
    #[allow(clippy::cast_possible_truncation)]
    fn update_cells(&mut self, cells: &[u8]) {
        let at = self.length as usize % 64;
        match (cells, &mut self.buffer[at..]) {
            ([a, b], [x, y, _, ..]) => {
                (*x, *y) = (*a, *b);
                self.length += 2;
            }
            ([a, b, c, d], [w, x, y, z, _, ..]) => {
                (*w, *x, *y, *z) = (*a, *b, *c, *d);
                self.length += 4;
            }
            _ => self.update(cells),
        }
    }
}

/// Returns the digest `D_i` of a level that is not null, given the digests `D_ig` of all groups,
/// ascending by group.
#[must_use]
pub fn level_digest(groups: &[Digest]) -> Digest {
    let mut parts: [&[u8]; 1 + MAX_GROUPS] = [&[]; 1 + MAX_GROUPS];
    parts[0] = &LEVEL_TAG;
    for (part, digest) in parts[1..].iter_mut().zip(groups) {
        *part = &digest.0;
    }
    Digest::of(&parts)
}

/// Writes the digest `D_ig` of each group in `wanted`, which the layout must show, to `out`,
/// ascending. `block` has the records of the layout, as encoded in a part.
pub fn group_digests(
    (device, index, level): (DeviceId, SealIndex, Level),
    (layout, framing): (&GroupLayout, Framing),
    wanted: Groups,
    block: &[u8],
    out: &mut [Digest],
) {
    for (group, digest) in wanted.iter().zip(out) {
        let mut running = LevelDigest::of_group(device, index, level, group);
        layout.cells(group).frame_all(framing, block, |bytes| running.update(bytes));
        *digest = running.finish();
    }
}

/// Computes the digests `D_i` of the blocks in the part of a star. See
/// [`Engine::grouped_digests`](crate::engine::Engine::grouped_digests).
pub(crate) fn hash_groups(
    layout: &GroupLayout,
    framing: Framing,
    hidden: &[u8],
    star: &mut Served<'_>,
) {
    let (device, index) = (star.device, star.index);
    join_groups(layout, hidden, star, |level, block, shown| {
        let place = (device, index, level);
        group_digests(place, (layout, framing), layout.shown(), block, shown);
    });
}

/// Writes the digests `D_i` of the blocks in the part of a star to the part, and the digests `D_ig` of the
/// shown groups. `shown` must write those of a block, ascending; it is called for each selected level,
/// ascending. `hidden` has the digests of the hidden groups, as in the part.
pub fn join_groups(
    layout: &GroupLayout,
    hidden: &[u8],
    star: &mut Served<'_>,
    mut shown: impl FnMut(Level, &[u8], &mut [Digest; MAX_GROUPS]),
) {
    let mut given = hidden.as_chunks::<32>().0.iter();
    star.groups.clear();
    for level in (0..star.counters.levels()).filter(|level| star.mask >> level & 1 == 1) {
        let (mut of_shown, mut all) = ([Digest::NULL; MAX_GROUPS], [Digest::NULL; MAX_GROUPS]);
        shown(Level(level), star.blocks[usize::from(level)], &mut of_shown);
        star.groups.extend(of_shown.into_iter().take(layout.shown().len()));
        let mut of_shown = of_shown.iter();
        for (group, digest) in layout.all().iter().zip(&mut all) {
            let next = if layout.shown().contains(group) {
                of_shown.next().copied()
            } else {
                given.next().map(|given| Digest(*given))
            };
            *digest = next.unwrap_or(Digest::NULL);
        }
        star.digests[usize::from(level)] = level_digest(&all[..layout.all().len()]);
    }
}

/// The running digest of one block of a star with column groups. Programs that do not keep all events
/// of a seal use it.
#[derive(Clone)]
pub struct RunningBlock {
    layout: GroupLayout,
    /// The digest of each group, ascending.
    digests: [LevelDigest; MAX_GROUPS],
}

impl fmt::Debug for RunningBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningBlock").field("digest", &self.digest()).finish_non_exhaustive()
    }
}

impl RunningBlock {
    /// Creates the digest of a block without events. `layout` must show all groups.
    #[must_use]
    pub fn new((device, index, level): (DeviceId, SealIndex, Level), layout: &GroupLayout) -> Self {
        let mut digests = [LevelDigest::EMPTY; MAX_GROUPS];
        for (group, digest) in layout.all().iter().zip(&mut digests) {
            *digest = LevelDigest::of_group(device, index, level, group);
        }
        Self { layout: *layout, digests }
    }

    /// Adds the next event of the block.
    pub fn push(&mut self, event: &[u8]) {
        for (group, digest) in self.layout.all().iter().zip(&mut self.digests) {
            self.layout.cells(group).frame(event, |bytes| digest.update(bytes));
        }
    }

    /// Returns the digest `D_i` of the events so far.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let (mut digests, mut running) = ([Digest::NULL; MAX_GROUPS], self.digests);
        for (running, digest) in running.iter_mut().zip(&mut digests) {
            *digest = running.finish();
        }
        level_digest(&digests[..self.layout.all().len()])
    }
}

/// Returns the digest `D_i` of a whole block. `layout` must show all groups; it is `None` for a schema
/// without groups.
#[must_use]
pub fn whole_block_digest(
    place: (DeviceId, SealIndex, Level),
    (layout, framing): (Option<&GroupLayout>, Framing),
    block: &[u8],
) -> Digest {
    let Some(layout) = layout else {
        return block_digest(place.0, place.1, place.2, block);
    };
    let mut digests = [Digest::NULL; MAX_GROUPS];
    group_digests(place, (layout, framing), layout.all(), block, &mut digests);
    level_digest(&digests[..layout.all().len()])
}

/// The state of a running star of a schema with column groups, without its digests. The caller stores
/// the digests, one [`LevelDigest`] for each level and group, and passes them to each call.
/// [`GroupedStar`] contains both. This type is for callers that know the numbers of levels and groups
/// only at run time.
#[derive(Clone)]
pub struct GroupedStarState {
    state: StarState,
    layout: GroupLayout,
    /// The range of the cells of each group in an event, ascending by group; empty if they are not
    /// consecutive bytes at the same place in every event.
    ranges: [(u16, u16); MAX_GROUPS],
}

impl GroupedStarState {
    /// Creates the state of an empty star for the seal `index` of `device`, in a group of devices with
    /// `levels` levels. Returns `None` if `levels` is not 1 to 32, or if the layout hides a group. The
    /// digests that the caller passes must initially be [`LevelDigest::EMPTY`].
    #[must_use]
    pub fn new(
        device: DeviceId,
        index: SealIndex,
        salt: &Salt,
        (layout, framing): (GroupLayout, Framing),
        levels: u8,
    ) -> Option<Self> {
        if !layout.hidden().is_empty() {
            return None;
        }
        let state = StarState::new(device, index, salt, framing, levels)?;
        let mut ranges = [(0, 0); MAX_GROUPS];
        for (group, range) in layout.all().iter().zip(&mut ranges) {
            let ends = layout.cells(group).stride().map(|(start, length)| (start, start + length));
            let ends = ends.and_then(|(start, end)| {
                Some((u16::try_from(start).ok()?, u16::try_from(end).ok()?))
            });
            *range = ends.unwrap_or_default();
        }
        Some(Self { state, layout, ranges })
    }

    /// Returns the number of events so far.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(&self) -> u32 {
        self.state.len()
    }

    /// Returns the groups of the schema.
    #[must_use]
    pub const fn groups(&self) -> Groups {
        self.layout.all()
    }

    /// Adds the next event and returns its level.
    ///
    /// # Errors
    /// [`PushError`].
    ///
    /// # Panics
    /// If there are fewer digests than levels times groups.
    pub fn push(&mut self, digests: &mut [LevelDigest], event: &[u8]) -> Result<Level, PushError> {
        let (level, _) = self.state.advance(event)?;
        let groups = self.layout.all().len();
        let of_level = &mut digests[usize::from(level.0) * groups..][..groups];
        for ((place, running), &(start, end)) in of_level.iter_mut().enumerate().zip(&self.ranges) {
            if running.count == 0 {
                let (device, index) = (self.state.device, self.state.index);
                *running = LevelDigest::of_group(device, index, level, self.group(place));
            }
            running.count += 1;
            match event.get(start.into()..end.into()) {
                Some(cells) if end > 0 => running.update_cells(cells),
                _ => self.update(place, running, event),
            }
        }
        Ok(level)
    }

    /// Returns the group at this place of the schema's groups.
    fn group(&self, place: usize) -> u8 {
        self.layout.all().iter().nth(place).unwrap_or_default()
    }

    /// Adds the cells of a group that are not consecutive bytes.
    #[inline(never)]
    fn update(&self, place: usize, running: &mut LevelDigest, event: &[u8]) {
        self.layout.cells(self.group(place)).frame(event, |bytes| running.update(bytes));
    }

    /// Ends the epoch. Returns the number of events per level, and calls `each(level, count, digest)`
    /// for every level of the group of devices, from level 0 up. The digest of an empty level is null.
    /// Afterwards the state accepts no more events, and the digests are those of an empty star.
    pub fn close(
        &mut self,
        digests: &mut [LevelDigest],
        mut each: impl FnMut(usize, u32, Digest),
    ) -> Counters {
        let mut counters = Counters::new(self.state.used);
        let of_levels = digests.chunks_exact_mut(self.layout.all().len());
        for (level, (groups, count)) in of_levels.zip(counters.as_mut_slice()).enumerate() {
            *count = groups.first().map_or(0, |first| first.count);
            let mut digest = Digest::NULL;
            if *count > 0 {
                let mut of_groups = [Digest::NULL; MAX_GROUPS];
                for (running, digest) in groups.iter_mut().zip(&mut of_groups) {
                    *digest = running.finish();
                }
                digest = level_digest(&of_groups[..groups.len()]);
            }
            groups.fill(LevelDigest::EMPTY);
            each(level, *count, digest);
        }
        self.state.total = u32::MAX;
        counters
    }

    /// Ends the epoch. Returns the number of events per level, and the root over all levels.
    /// Afterwards the state accepts no more events.
    #[must_use]
    pub fn close_to_root(&mut self, digests: &mut [LevelDigest]) -> (Counters, Digest) {
        let mut root = chain_start();
        let counters = self.close(digests, |_, count, digest| root = link(&root, count, &digest));
        (counters, root)
    }
}

/// The running star of one seal of a schema with column groups. It has `L` levels of at most `G`
/// groups each, which take 112 bytes each.
#[derive(Clone)]
pub struct GroupedStar<const L: usize, const G: usize> {
    state: GroupedStarState,
    levels: [[LevelDigest; G]; L],
}

impl<const L: usize, const G: usize> fmt::Debug for GroupedStar<L, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupedStar")
            .field("groups", &self.groups())
            .field("events", &self.len())
            .finish_non_exhaustive()
    }
}

impl<const L: usize, const G: usize> GroupedStar<L, G> {
    /// Creates an empty star for the seal `index` of `device`, in a group of devices with `levels`
    /// levels. Returns `None` if `levels` is not 1 to `L`, if the layout hides a group, or if the
    /// schema has more than `G` groups.
    #[must_use]
    pub fn new(
        device: DeviceId,
        index: SealIndex,
        salt: &Salt,
        of_records: (GroupLayout, Framing),
        levels: u8,
    ) -> Option<Self> {
        if usize::from(levels) > L || of_records.0.all().len() > G {
            return None;
        }
        let state = GroupedStarState::new(device, index, salt, of_records, levels)?;
        Some(Self { state, levels: [[LevelDigest::EMPTY; G]; L] })
    }

    /// Returns the number of events so far.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(&self) -> u32 {
        self.state.len()
    }

    /// Returns the groups of the schema.
    #[must_use]
    pub const fn groups(&self) -> Groups {
        self.state.groups()
    }

    /// Adds the next event and returns its level.
    ///
    /// # Errors
    /// [`PushError`].
    #[inline]
    pub fn push(&mut self, event: &[u8]) -> Result<Level, PushError> {
        self.state.push(self.levels.as_flattened_mut(), event)
    }

    /// Ends the epoch. Returns the number of events and the digest of each level, as
    /// [`Star::close`](super::Star::close). Afterwards the star accepts no more events.
    #[must_use]
    pub fn close(mut self) -> (Counters, [Digest; L]) {
        self.close_in_place()
    }

    /// Does the same as [`close`](Self::close) without moving the star, for small stacks.
    /// Afterwards the star accepts no more events, and closing it again returns no events.
    #[must_use]
    pub fn close_in_place(&mut self) -> (Counters, [Digest; L]) {
        let mut digests = [Digest::NULL; L];
        let levels = self.levels.as_flattened_mut();
        let counters = self.state.close(levels, |level, _, digest| digests[level] = digest);
        (counters, digests)
    }
}
