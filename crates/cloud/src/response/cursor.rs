//! Reads the seals of one device in ascending order of their indices.

use std::collections::VecDeque;

use moteseal_api::ProblemType;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_seal::SealError;
use moteseal_store::{EpochStore, ReadError, SealKey, StoredSeal};
use moteseal_verify::Roster;

use super::stop::Stop;

/// The number of seals that are read from the store at a time.
const PAGE: usize = 64;
/// The maximum number of seals in an epoch for which a choice can consider all seals together.
const EPOCH_PARTS: usize = 1 << 14;
/// The maximum number of seals that are compared to find the end of a contradiction.
const MOST_COMPARED: usize = 1 << 12;

/// A seal of the queried range, or the first seal after the range.
pub(super) enum Found {
    Seal(StoredSeal),
    /// The first seal after the range. Its link to its predecessor proves that the range is
    /// complete.
    Boundary(StoredSeal),
}

/// Reads the seals of one device that are in the range, and the seal after them.
///
/// If the device signed two histories, for example because its chain was begun twice, a range is
/// served if the seals in it form one chain: no index is doubled, and no seal leaves out the one
/// before it (spec/answers.md, section 5.1). Otherwise reading fails at the first seal that
/// contradicts an earlier one.
pub(super) struct Cursor<'s> {
    store: &'s dyn EpochStore,
    roster: &'s Roster,
    device: DeviceId,
    since: EpochNumber,
    until: Option<EpochNumber>,
    page: VecDeque<StoredSeal>,
    /// The index at which the next page starts, and how many of its seals were read already; `None`
    /// before the first page is read.
    from: Option<(SealIndex, usize)>,
    exhausted: bool,
    /// Whether the device signed several seals under one index. The epochs of its seals are then
    /// not in the order of their indices.
    forked: bool,
    /// The newest seal that was returned, and its epoch.
    last: Option<(SealKey, EpochNumber)>,
    /// The first seal after the range that follows `last`.
    boundary: Option<StoredSeal>,
    /// Whether the seal that was read last states that it is the last seal of the range's last
    /// epoch. The range is then complete without the seal after it.
    closed: bool,
    done: bool,
}

impl<'s> Cursor<'s> {
    pub(super) fn new(
        store: &'s dyn EpochStore,
        roster: &'s Roster,
        device: DeviceId,
        (since, until): (EpochNumber, Option<EpochNumber>),
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
            forked: false,
            last: None,
            boundary: None,
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

    /// Reads the next page. Leaves out the void and the outdated seals.
    fn read_page(&mut self) -> Result<(), Stop> {
        let (page, skipped) = match self.from {
            None => {
                self.forked = is_forked(self.store, self.device)?;
                let page = if self.forked {
                    self.store.seals(self.device, SealIndex(0), PAGE)?
                } else {
                    self.store.seals_since(self.device, self.since, PAGE)?
                };
                (page, 0)
            }
            // The other seals with the index of the last one may be on the next page.
            Some((from, read)) => (self.store.seals(self.device, from, PAGE + read)?, read),
        };
        self.exhausted = page.len() < PAGE + skipped;
        if let Some(last) = page.last().map(|seal| seal.key().index) {
            let read = page.iter().rev().take_while(|seal| seal.key().index == last).count();
            self.from = Some((last, read));
        }
        let unread = page.into_iter().skip(skipped);
        self.page = unread.filter(|seal| is_served(self.roster, seal)).collect();
        Ok(())
    }

    /// Returns whether a seal and the newest seal that was returned cannot be in one chain.
    fn contradicts(&self, seal: &StoredSeal) -> bool {
        self.last.is_some_and(|last| contradict(last, seal))
    }

    /// Returns the next seal of the range without removing it. Passes over the seals that are not
    /// in the range. Fails if the seal contradicts the one before it.
    fn peek(&mut self) -> Result<Option<&StoredSeal>, Stop> {
        if self.boundary.is_some() && !self.forked {
            return Ok(None);
        }
        loop {
            self.fill()?;
            let Some(seal) = self.page.front() else { return Ok(None) };
            let epoch = seal.seal().statement().epoch;
            if self.until.is_some_and(|until| epoch >= until) {
                if self.boundary.is_none() && self.bounds(seal) {
                    self.boundary = self.page.pop_front();
                } else {
                    self.page.pop_front();
                }
                // In one chain, no seal after this one is in the range.
                if self.boundary.is_some() && !self.forked {
                    return Ok(None);
                }
            } else if epoch < self.since {
                self.page.pop_front();
            } else {
                let here = (seal.key(), epoch);
                let other = if self.contradicts(seal) { self.last } else { self.twin(here)? };
                match other {
                    Some(other) => return Err(self.contradiction([other, here])?),
                    None => break,
                }
            }
        }
        Ok(self.page.front())
    }

    /// Returns another seal of the range with the same index.
    fn twin(&self, of: (SealKey, EpochNumber)) -> Result<Option<(SealKey, EpochNumber)>, Stop> {
        if !self.forked {
            return Ok(None);
        }
        let twins = self.store.seals_at(self.device, of.0.index)?;
        let mut twins = twins
            .iter()
            .filter(|seal| is_served(self.roster, seal))
            .map(|seal| (seal.key(), seal.seal().statement().epoch));
        Ok(twins.find(|twin| *twin != of && self.is_in_range(twin.1)))
    }

    fn is_in_range(&self, epoch: EpochNumber) -> bool {
        epoch >= self.since && self.until.is_none_or(|until| epoch < until)
    }

    /// Returns whether a seal after the range proves where the range ends.
    fn bounds(&self, seal: &StoredSeal) -> bool {
        let named = seal.seal().statement().last;
        match self.last {
            Some(_) => !self.contradicts(seal),
            // If a seal of the range is missing, the verifier must see this.
            None => !self.forked || named.is_none_or(|(_, epoch)| epoch < self.since),
        }
    }

    /// Returns the error for two seals that contradict each other. Names both seals, and the ranges
    /// that can be read.
    fn contradiction(&mut self, pair: [(SealKey, EpochNumber); 2]) -> Result<Stop, Stop> {
        for (key, _) in pair {
            let seals = self.store.seals_at(self.device, key.index)?;
            for seal in seals.iter().filter(|seal| seal.key() == key) {
                if let Some((name, what)) = unsigned(self.roster, seal) {
                    return Ok(Stop::at(name, seal, &what));
                }
            }
        }
        let name = self.roster.name(self.device).unwrap_or_default().to_owned();
        let start = |roster: &Roster, epoch: EpochNumber| {
            roster
                .epoch_start_ms(epoch)
                .and_then(|ms| jiff::Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok())
                .map_or_else(|| format!("epoch {epoch}"), |time| time.to_string())
        };
        let seal = |(key, epoch): (SealKey, EpochNumber)| {
            format!("{} of {} (digest {})", key.index, start(self.roster, epoch), key.digest)
        };
        let pair = pair.map(seal);
        // The readings before `first` and from `next` on contain only one of any two seals that
        // contradict each other.
        let (mut first, mut next, mut read) = (EpochNumber(u64::MAX), self.since, 0);
        let mut previous = self.last;
        loop {
            self.fill()?;
            let Some(seal) = self.page.pop_front() else { break };
            read += 1;
            if read > MOST_COMPARED {
                next = EpochNumber(u64::MAX);
                break;
            }
            let epoch = seal.seal().statement().epoch;
            if !self.is_in_range(epoch) {
                continue;
            }
            if let Some(before) = previous.filter(|before| contradict(*before, &seal)) {
                first = first.min(before.1.max(epoch));
                next = next.max(EpochNumber(before.1.min(epoch).0.saturating_add(1)));
            }
            previous = Some((seal.key(), epoch));
        }
        let before = (first > self.since).then(|| format!("until {}", start(self.roster, first)));
        let after = (next.0 < u64::MAX && self.until.is_none_or(|until| next < until))
            .then(|| format!("from {}", start(self.roster, next)));
        let available: Vec<String> = before.into_iter().chain(after).collect();
        let available = if available.is_empty() {
            "ask for a range that has only one of them".to_owned()
        } else {
            format!("of this range, the readings {} are available", available.join(" and "))
        };
        Ok(Stop {
            name: ProblemType::EQUIVOCATION.name(),
            detail: format!(
                "{name} signed two histories: seals {} contradict each other; {available}",
                pair.join(" and ")
            ),
        })
    }

    /// Returns the next seal of the range, then the first seal after the range if it is needed,
    /// then `None`.
    pub(super) fn next(&mut self) -> Result<Option<Found>, Stop> {
        if self.done {
            return Ok(None);
        }
        if self.peek()?.is_none() {
            self.done = true;
            let boundary = self.boundary.take().filter(|_| !self.closed);
            return Ok(boundary.map(Found::Boundary));
        }
        let seal = self.page.pop_front();
        if let Some(seal) = &seal {
            let statement = seal.seal().statement();
            self.closed = statement.last_in_epoch
                && self.until.is_some_and(|until| statement.epoch.0 + 1 == until.0);
            // If this seal closes the range, the seal after the range is not needed. After a fork,
            // a seal of the other history may also be in the range.
            self.done = self.closed && !self.forked;
            self.last = Some((seal.key(), statement.epoch));
            // The seal after the range must follow this seal.
            self.boundary = None;
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

/// Returns whether two seals cannot be in one chain. `seal` is the next seal of the range in the
/// order of the indices. If it names a predecessor that is missing between the two, they can.
fn contradict((last, last_epoch): (SealKey, EpochNumber), seal: &StoredSeal) -> bool {
    let statement = seal.seal().statement();
    match statement.last {
        _ if seal.key().index <= last.index => true,
        Some((before, _)) if before == last.index => statement.prev != last.digest,
        // Epochs never decrease in a chain.
        Some((before, epoch)) => before < last.index || epoch < last_epoch,
        None => true,
    }
}

/// Returns whether a verifier with this roster can accept the seal. It does not accept a seal whose
/// key the roster has ended, or one that names an earlier version of the roster than the version
/// that introduced the period of its epoch.
pub(crate) fn is_served(roster: &Roster, seal: &StoredSeal) -> bool {
    let statement = seal.seal().statement();
    let device = roster.device(statement.device);
    !device.is_some_and(|device| device.is_void(statement.index, statement.epoch))
        && !roster.outdates(&statement.roster, statement.epoch)
}

/// Returns what is wrong with a stored seal that its device did not sign for this group, with the name
/// of the error, or `None` for other seals. A party that can write to the store could otherwise add a seal, and the device
/// would be accused of it. The signatures of outdated and void seals are not checked.
pub(crate) fn unsigned(roster: &Roster, seal: &StoredSeal) -> Option<(&'static str, String)> {
    let statement = seal.seal().statement();
    if roster.outdates(&statement.roster, statement.epoch) {
        return None;
    }
    if roster.version_of(&statement.roster).is_none() {
        let what = format!(
            "the seal with the digest {} names a roster that is neither the one in use nor an \
             earlier version; load the newest roster, then run `moteseal store check`",
            seal.key().digest
        );
        return Some(("UnknownRoster", what));
    }
    match seal.seal().clone().verify(roster, seal.signature()) {
        Ok(_) | Err(SealError::KeyEnded) => None,
        Err(error) => {
            let (digest, name) = (seal.key().digest, error.name());
            let what = format!(
                "the seal with the digest {digest} no longer verifies: {name}: {error}; run \
                 `moteseal store check`"
            );
            Some(("StoreDamaged", what))
        }
    }
}

/// Returns whether a device signed several seals under one index.
fn is_forked(store: &dyn EpochStore, device: DeviceId) -> Result<bool, ReadError> {
    // The store returns the equivocations that follow a given device and index. Index 0 of this
    // device follows the highest possible index of the device with the preceding id.
    let after = u64::from_be_bytes(device.0)
        .checked_sub(1)
        .map(|id| (DeviceId(id.to_be_bytes()), SealIndex(u32::MAX)));
    let found = store.equivocations(after, 1)?.into_iter().next();
    Ok(found.is_some_and(|found| found.device == device))
}
