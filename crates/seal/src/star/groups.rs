//! The star of a schema with column groups (spec/groups.md, section 3). The digest of a level is a
//! hash over one digest for each group, so that a part can leave out the cells of a group.

use core::fmt;

use super::{LevelDigest, PushError, Served, StarState, block_digest};
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

/// Writes the digests `D_i` of the blocks in the part of a star to the part. `shown` must write the
/// digests `D_ig` of the shown groups of a block, ascending; it is called for each selected level,
/// ascending. `hidden` has the digests of the hidden groups, as in the part.
pub fn join_groups(
    layout: &GroupLayout,
    hidden: &[u8],
    star: &mut Served<'_>,
    mut shown: impl FnMut(Level, &[u8], &mut [Digest; MAX_GROUPS]),
) {
    let mut given = hidden.as_chunks::<32>().0.iter();
    for level in (0..star.counters.levels()).filter(|level| star.mask >> level & 1 == 1) {
        let (mut of_shown, mut all) = ([Digest::NULL; MAX_GROUPS], [Digest::NULL; MAX_GROUPS]);
        shown(Level(level), star.blocks[usize::from(level)], &mut of_shown);
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

/// The running star of one seal of a schema with column groups. It has `L` levels of at most `G`
/// groups each, which take 112 bytes each.
#[derive(Clone)]
pub struct GroupedStar<const L: usize, const G: usize> {
    state: StarState,
    layout: GroupLayout,
    levels: [[LevelDigest; G]; L],
}

impl<const L: usize, const G: usize> fmt::Debug for GroupedStar<L, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupedStar")
            .field("groups", &self.layout.all())
            .field("events", &self.state.len())
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
        (layout, framing): (GroupLayout, Framing),
        levels: u8,
    ) -> Option<Self> {
        if usize::from(levels) > L || layout.all().len() > G || !layout.hidden().is_empty() {
            return None;
        }
        let state = StarState::new(device, index, salt, framing, levels)?;
        Some(Self { state, layout, levels: [[LevelDigest::EMPTY; G]; L] })
    }

    /// Returns the number of events so far.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(&self) -> u32 {
        self.state.len()
    }

    /// Adds the next event and returns its level.
    ///
    /// # Errors
    /// [`PushError`].
    pub fn push(&mut self, event: &[u8]) -> Result<Level, PushError> {
        let (level, _) = self.state.advance(event)?;
        let (device, index) = (self.state.device, self.state.index);
        let groups = self.layout.all().iter();
        for (group, running) in groups.zip(&mut self.levels[usize::from(level.0)]) {
            if running.count == 0 {
                *running = LevelDigest::of_group(device, index, level, group);
            }
            running.count += 1;
            self.layout.cells(group).frame(event, |bytes| running.update(bytes));
        }
        Ok(level)
    }

    /// Ends the epoch. Returns the number of events and the digest of each level, as
    /// [`Star::close`](super::Star::close). Afterwards the star accepts no more events.
    #[must_use]
    pub fn close(mut self) -> (Counters, [Digest; L]) {
        let mut counters = Counters::new(self.state.used);
        let (mut out, count) = ([Digest::NULL; L], self.layout.all().len());
        for ((groups, total), digest) in
            self.levels.iter_mut().zip(counters.as_mut_slice()).zip(&mut out)
        {
            *total = groups.first().map_or(0, |first| first.count);
            if *total > 0 {
                let mut digests = [Digest::NULL; MAX_GROUPS];
                for (running, digest) in groups.iter_mut().zip(&mut digests) {
                    *digest = running.finish();
                }
                *digest = level_digest(&digests[..count]);
            }
        }
        (counters, out)
    }
}
