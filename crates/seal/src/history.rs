//! Checks whether all seals of one device for a range of epochs were served.
//!
//! Every seal states the index and epoch of its predecessor, which makes gaps visible. If there are
//! epochs without a seal and the next seal does not state `restart`, the device had no events. If
//! it states `restart`, the device reports an outage. A seal that exists but was not served is
//! `Missing`.

use core::fmt;

use crate::seal::{Authentic, Seal};
use crate::statement::Statement;
use moteseal_core::digest::Digest;
use moteseal_core::named_errors;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_core::roster::{Directory, NoKey};

/// Proof that all seals of one device for a range of epochs were served.
///
/// Only [`History::finish`] makes one:
///
/// ```compile_fail
/// use moteseal_core::record::{DeviceId, EpochNumber};
/// use moteseal_seal::Complete;
/// let (since, until) = (EpochNumber(0), EpochNumber(9));
/// let forged = Complete { device: DeviceId([0; 8]), since, until, seals: 9, outages: 0 };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Complete {
    device: DeviceId,
    since: EpochNumber,
    until: EpochNumber,
    seals: u32,
    outages: u32,
}

impl Complete {
    /// Returns the device.
    #[must_use]
    pub const fn device(&self) -> DeviceId {
        self.device
    }

    /// Returns the first epoch of the range.
    #[must_use]
    pub const fn since(&self) -> EpochNumber {
        self.since
    }

    /// Returns the first epoch after the range.
    #[must_use]
    pub const fn until(&self) -> EpochNumber {
        self.until
    }

    /// Returns the number of seals in the range.
    #[must_use]
    pub const fn seals(&self) -> u32 {
        self.seals
    }

    /// Returns the number of seals that report an outage before them: the device restarted, and may
    /// have failed to record events.
    #[must_use]
    pub const fn outages(&self) -> u32 {
        self.outages
    }
}

named_errors! {
    /// Why a range of epochs is not known to be complete.
    Incomplete {
        /// The chain names a seal that was not served.
        Missing {
            /// The device.
            device: DeviceId,
            /// The missing seal's index.
            index: SealIndex,
            /// The missing seal's epoch, if the chain names it.
            epoch: Option<EpochNumber>,
        } => ("the seal {index} of device {device}{} is withheld", OfEpoch(*epoch)),
        /// It is not known what the device sealed from this epoch on.
        TailUnknown {
            /// The device.
            device: DeviceId,
            /// The first epoch about which nothing is known.
            from: EpochNumber,
        } => "nothing shows what device {device} sealed from epoch {from} on",
        /// The device signed two histories: two seals with the same index, or a seal whose chain
        /// omits another seal that the device signed.
        Equivocation {
            /// The device.
            device: DeviceId,
            /// The index at which the histories differ first.
            index: SealIndex,
        } => "device {device} signed two histories that differ from index {index} on",
        /// A seal belongs to another device, is before the range or out of order, or follows the
        /// seal that ended the range.
        NotAsAsked {
            /// The seal's device.
            device: DeviceId,
            /// The seal's index.
            index: SealIndex,
        } => "the seal {index} of device {device} was not requested",
    }
}

/// Displays as ", of epoch 7,", or as the empty string if the epoch is not known.
struct OfEpoch(Option<EpochNumber>);

impl fmt::Display for OfEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |epoch| write!(f, ", of epoch {epoch},"))
    }
}

/// Checks whether the authentic seals of one device, given in order, cover a range of epochs.
#[derive(Clone, Debug)]
pub struct History {
    device: DeviceId,
    since: EpochNumber,
    until: EpochNumber,
    last: Option<(SealIndex, Digest)>,
    /// The first epoch about which nothing is known yet.
    unknown: EpochNumber,
    ended: bool,
    seals: u32,
    outages: u32,
}

impl History {
    /// Creates a check of the epochs `since .. until` of `device`. It has no seals yet.
    #[must_use]
    pub const fn new(device: DeviceId, since: EpochNumber, until: EpochNumber) -> Self {
        Self {
            device,
            since,
            until,
            last: None,
            unknown: since,
            ended: since.0 >= until.0,
            seals: 0,
            outages: 0,
        }
    }

    /// Creates a check of all seals of a device that follow `seal`. Seals before it are not
    /// checked.
    #[must_use]
    pub fn after(seal: &Seal<Authentic>) -> Self {
        let Statement { device, epoch, .. } = *seal.statement();
        let whole = Self::new(device, epoch, EpochNumber(u64::MAX));
        Self { last: Some((seal.statement().index, seal.digest())), ..whole }
    }

    /// Adds the next seal: a seal in the range, or the first seal after it. Returns whether the
    /// seal's events are in the range.
    ///
    /// # Errors
    /// Any [`Incomplete`] except `TailUnknown`.
    pub fn next(&mut self, seal: &Seal<Authentic>) -> Result<bool, Incomplete> {
        self.add(seal, false)
    }

    /// Like [`next`](Self::next), but knows from the group's roster which seals are void: those
    /// whose key had ended, because the key was revoked or the device was removed. A predecessor
    /// that is void cannot be served, so it is not missing.
    ///
    /// # Errors
    /// Any [`Incomplete`] except `TailUnknown`.
    pub fn next_under<D: Directory + ?Sized>(
        &mut self,
        seal: &Seal<Authentic>,
        directory: &D,
    ) -> Result<bool, Incomplete> {
        let Statement { device, last, .. } = *seal.statement();
        let follows_void = last.is_some_and(|(index, epoch)| {
            directory.with_key(device, index, epoch, &mut |_| {}) == Err(NoKey::Ended)
        });
        self.add(seal, follows_void)
    }

    /// Adds the next seal. `follows_void` states whether its predecessor is void.
    fn add(&mut self, seal: &Seal<Authentic>, follows_void: bool) -> Result<bool, Incomplete> {
        let statement = seal.statement();
        let (device, index, epoch) = (statement.device, statement.index, statement.epoch);
        if device != self.device || epoch < self.since || self.ended {
            return Err(Incomplete::NotAsAsked { device, index });
        }
        match (self.last, statement.last) {
            // This is the first seal of the response. The predecessor that it names must be before
            // the range.
            (None, Some((before, at))) if at >= self.since && !follows_void => {
                return Err(Incomplete::Missing { device, index: before, epoch: Some(at) });
            }
            (None, _) => {}
            (Some((known, _)), Some((before, _))) if follows_void && before > known => {}
            (Some((known, digest)), named) => follows(known, digest, named, seal)?,
        }
        self.last = Some((index, seal.digest()));
        self.unknown = EpochNumber(epoch.0.saturating_add(u64::from(statement.last_in_epoch)));
        if epoch >= self.until {
            self.ended = true;
            return Ok(false);
        }
        self.seals += 1;
        self.outages += u32::from(statement.restart);
        self.ended = statement.last_in_epoch && epoch.0 + 1 == self.until.0;
        Ok(true)
    }

    /// Returns the first epoch about which nothing is known, or `None` if the range is complete.
    #[must_use]
    pub fn tail(&self) -> Option<EpochNumber> {
        (!self.ended).then_some(self.unknown)
    }

    /// Returns the index and the digest of the newest seal added.
    #[must_use]
    pub const fn newest(&self) -> Option<(SealIndex, Digest)> {
        self.last
    }

    /// Ends the check.
    ///
    /// # Errors
    /// `TailUnknown` if no seal shows that the range has ended.
    pub fn finish(self) -> Result<Complete, Incomplete> {
        match self.tail() {
            Some(from) => Err(Incomplete::TailUnknown { device: self.device, from }),
            None => Ok(Complete {
                device: self.device,
                since: self.since,
                until: self.until,
                seals: self.seals,
                outages: self.outages,
            }),
        }
    }
}

/// Checks that `seal` directly follows the previous seal, whose index is `known` and whose digest
/// is `digest`. `named` is the predecessor that `seal` names.
fn follows(
    known: SealIndex,
    digest: Digest,
    named: Option<(SealIndex, EpochNumber)>,
    seal: &Seal<Authentic>,
) -> Result<(), Incomplete> {
    let Statement { device, index, prev, .. } = *seal.statement();
    match named {
        _ if seal.digest() != digest && index == known => {
            Err(Incomplete::Equivocation { device, index })
        }
        _ if index <= known => Err(Incomplete::NotAsAsked { device, index }),
        Some((before, epoch)) if before > known => {
            Err(Incomplete::Missing { device, index: before, epoch: Some(epoch) })
        }
        Some((before, _)) if before == known && prev == digest => Ok(()),
        // The seal names a different predecessor with this index, an earlier predecessor, or none.
        // Its chain therefore omits a seal that the device signed.
        _ => Err(Incomplete::Equivocation { device, index: known }),
    }
}
