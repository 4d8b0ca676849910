//! Reads the seals of one device in ascending order of their indices.

use std::collections::VecDeque;

use moteseal_api::ProblemType;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_seal::Statement;
use moteseal_store::{EpochStore, ReadError, StoredSeal};
use moteseal_verify::Roster;

use super::stop::Stop;

/// The number of seals that are read from the store at a time.
const PAGE: usize = 64;
/// The maximum number of seals in an epoch for which a choice can consider all seals together.
const EPOCH_PARTS: usize = 1 << 14;

/// A seal of the queried range, or the first seal after the range.
pub(super) enum Found {
    Seal(StoredSeal),
    /// The first seal after the range. Its link to its predecessor proves that the range is
    /// complete.
    Boundary(StoredSeal),
}

/// Reads the seals of one device, from the first seal of the range on.
pub(super) struct Cursor<'s> {
    store: &'s dyn EpochStore,
    roster: &'s Roster,
    device: DeviceId,
    since: EpochNumber,
    until: Option<EpochNumber>,
    page: VecDeque<StoredSeal>,
    /// The first index of the next page, or `None` before the first page is read.
    from: Option<SealIndex>,
    exhausted: bool,
    /// The lowest remaining index under which the device signed more than one seal.
    conflict: Option<SealIndex>,
    /// Whether the seal that was read last states that it is the last seal of the range's last
    /// epoch. The range is then complete without the seal after it.
    closed: bool,
    done: bool,
}

impl<'s> Cursor<'s> {
    pub(super) fn new(
        (store, roster): (&'s dyn EpochStore, &'s Roster),
        device: DeviceId,
        since: EpochNumber,
        until: Option<EpochNumber>,
    ) -> Self {
        Self {
            store,
            roster,
            device,
            since,
            until,
            page: VecDeque::new(),
            from: None,
            exhausted: false,
            conflict: None,
            closed: false,
            done: false,
        }
    }

    fn fill(&mut self) -> Result<(), Stop> {
        while self.page.is_empty() && !self.exhausted {
            self.read_page()?;
        }
        Ok(())
    }

    /// Reads the next page. Leaves out the seals that are void because the roster has ended their
    /// key: no verifier accepts them.
    fn read_page(&mut self) -> Result<(), Stop> {
        let page = match self.from {
            None => self.store.seals_since(self.device, self.since, PAGE)?,
            Some(from) => self.store.seals(self.device, from, PAGE)?,
        };
        let index = |seal: Option<&StoredSeal>| seal.map(|seal| seal.seal().statement().index);
        if self.from.is_none()
            && let Some(first) = index(page.first())
        {
            self.conflict = conflict_from(self.store, self.device, first)?;
        }
        let last = index(page.last());
        self.exhausted = page.len() < PAGE;
        match last.and_then(|last| last.0.checked_add(1)) {
            Some(next) => self.from = Some(SealIndex(next)),
            None => self.exhausted = true,
        }
        let device = self.roster.device(self.device);
        let is_void = |seal: &StoredSeal| {
            let Statement { index, epoch, .. } = *seal.seal().statement();
            device.is_some_and(|device| device.is_void(index, epoch))
        };
        self.page = page.into_iter().filter(|seal| !is_void(seal)).collect();
        Ok(())
    }

    /// Returns the next seal without removing it. Fails if the device signed several seals under
    /// this seal's index.
    fn peek(&mut self) -> Result<Option<&StoredSeal>, Stop> {
        self.fill()?;
        let Some(seal) = self.page.front() else { return Ok(None) };
        let index = seal.seal().statement().index;
        if self.conflict.is_some_and(|conflict| index >= conflict) {
            let detail = "the device signed different seals under this index, or its key was stolen; \
                          the explain path of this index has the evidence; other ranges of epochs \
                          and other devices are available";
            return Err(Stop::at(ProblemType::EQUIVOCATION.name(), seal, detail));
        }
        Ok(Some(seal))
    }

    /// Returns the next seal of the range, then the first seal after the range if it is needed,
    /// then `None`.
    pub(super) fn next(&mut self) -> Result<Option<Found>, Stop> {
        if self.done {
            return Ok(None);
        }
        let until = self.until;
        let is_after =
            |seal: &StoredSeal| until.is_some_and(|until| seal.seal().statement().epoch >= until);
        let (closed, peeked) = (self.closed, self.peek()?);
        let boundary = match peeked {
            None => {
                self.done = true;
                return Ok(None);
            }
            Some(seal) => is_after(seal),
        };
        if boundary {
            self.done = true;
            return Ok(if closed { None } else { self.page.pop_front().map(Found::Boundary) });
        }
        let seal = self.page.pop_front();
        if let Some(seal) = &seal {
            let statement = seal.seal().statement();
            self.closed = statement.last_in_epoch
                && until.is_some_and(|until| statement.epoch.0 + 1 == until.0);
            // If this seal closes the range, the seal after the range is not needed.
            self.done = self.closed;
        }
        Ok(seal.map(Found::Seal))
    }

    /// Returns all seals of the epoch of `first`, including `first`.
    pub(super) fn rest_of_epoch(&mut self, first: StoredSeal) -> Result<Vec<StoredSeal>, Stop> {
        let epoch = first.seal().statement().epoch;
        let mut parts = vec![first];
        while !self.done && self.peek()?.is_some_and(|next| next.seal().statement().epoch == epoch)
        {
            match self.next()? {
                Some(Found::Seal(seal)) => parts.push(seal),
                _ => break,
            }
            if parts.len() > EPOCH_PARTS {
                let detail = format!(
                    "the epoch has more than {EPOCH_PARTS} seals, too many for this choice; \
                     use rate"
                );
                return Err(Stop::at(ProblemType::QUERY_TOO_LARGE.name(), &parts[0], &detail));
            }
        }
        Ok(parts)
    }
}

/// Returns the first index, from `from` on, under which a device signed more than one seal.
fn conflict_from(
    store: &dyn EpochStore,
    device: DeviceId,
    from: SealIndex,
) -> Result<Option<SealIndex>, ReadError> {
    let after = match from.0.checked_sub(1) {
        Some(before) => Some((device, SealIndex(before))),
        // The store returns the equivocations that follow a given device and index. Index 0 of this
        // device follows the highest possible index of the device with the preceding id.
        None => u64::from_be_bytes(device.0)
            .checked_sub(1)
            .map(|id| (DeviceId(id.to_be_bytes()), SealIndex(u32::MAX))),
    };
    let found = store.equivocations(after, 1)?.into_iter().next();
    Ok(found.filter(|found| found.device == device).map(|found| found.index))
}
