//! The seals of one device in a redacted proof. A redactor may leave out any seal, so a gap is counted
//! and is no error. Seals that contradict each other are an error as in any other stream
//! (`spec/answers.md`, section 7.1).

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_core::roster::{Directory as _, NoKey};
use moteseal_seal::{Authentic, Seal};
use moteseal_verify::Roster;

use crate::completeness::SealGap;
use crate::rejection::Rejection;

/// The maximum number of gaps that the report lists.
const MAX_GAPS: usize = 256;

/// The newest seal of the device so far.
#[derive(Clone, Copy, Debug)]
struct Last {
    index: SealIndex,
    epoch: EpochNumber,
    digest: Digest,
}

/// Checks the order of a device's seals and finds the gaps between them.
#[derive(Debug)]
pub(super) struct RedactedChain {
    device: DeviceId,
    since: EpochNumber,
    until: EpochNumber,
    last: Option<Last>,
    pub(super) gaps: Vec<SealGap>,
}

impl RedactedChain {
    pub(super) const fn new(
        device: DeviceId,
        (since, until): (EpochNumber, Option<EpochNumber>),
    ) -> Self {
        let until = match until {
            Some(until) => until,
            None => EpochNumber(u64::MAX),
        };
        Self { device, since, until, last: None, gaps: Vec::new() }
    }

    /// Adds the next seal. Returns whether its epoch is in the range of the proof.
    pub(super) fn take(
        &mut self,
        seal: &Seal<Authentic>,
        roster: &Roster,
    ) -> Result<bool, Rejection> {
        let (statement, device) = (seal.statement(), self.device);
        let (index, epoch) = (statement.index, statement.epoch);
        let parted = |index| Rejection::Equivocation { device, index };
        if let Some(last) = self.last {
            if index == last.index && seal.digest() != last.digest {
                return Err(parted(index));
            }
            if index <= last.index {
                return Err(Rejection::NotAsAsked { device: Some(device), index: Some(index) });
            }
            let named = statement.last.filter(|(before, _)| *before >= last.index);
            let (before, before_epoch) = named.ok_or_else(|| parted(last.index))?;
            let continues = before == last.index && statement.prev == last.digest;
            let skips = before > last.index && before_epoch >= last.epoch;
            if !continues && !skips {
                return Err(parted(last.index));
            }
            if skips {
                self.gap(Some(SealIndex(last.index.0 + 1)), (before, before_epoch), roster);
            }
        } else if let Some((before, before_epoch)) = statement.last
            && before_epoch >= self.since
        {
            self.gap(None, (before, before_epoch), roster);
        }
        self.last = Some(Last { index, epoch, digest: seal.digest() });
        Ok((self.since..self.until).contains(&epoch))
    }

    /// Counts a gap that ends with the seal `before`. A void seal is never served, so it is not left
    /// out.
    fn gap(
        &mut self,
        first: Option<SealIndex>,
        (before, epoch): (SealIndex, EpochNumber),
        roster: &Roster,
    ) {
        let is_void =
            || roster.with_key(self.device, before, epoch, &mut |_| {}) == Err(NoKey::Ended);
        if self.gaps.len() < MAX_GAPS && !is_void() {
            self.gaps.push(SealGap { first, last: before, epoch });
        }
    }
}
