//! Seals a complete recording.

use std::fmt;

use moteseal_api::ErrorKind;
use moteseal_core::record::EpochNumber;
use moteseal_core::signature::Signer;
use moteseal_verify::Calendar;

use crate::import::{Recording, display_ms};
use crate::seal::{Bundle, Chain, Covered, SealRefused, Sealer};

/// The settings for sealing a recording.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The lengths of the group's epochs.
    pub calendar: Calendar,
    /// Whether to skip the readings that are already sealed, instead of rejecting the recording:
    /// those of epochs that are closed or earlier than the open epoch, and the first readings of the
    /// open epoch.
    pub new_only: bool,
    /// Whether the last epoch must stay open, because more readings of it will follow.
    pub keep_open: bool,
}

/// Why a recording was not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRefused {
    /// The time of the rejected reading, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Why the reading was rejected.
    pub refused: SealRefused,
}

impl fmt::Display for BatchRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = display_ms(self.unix_ms);
        match self.refused {
            SealRefused::EpochGoesBack { .. } | SealRefused::EpochClosed { .. } => write!(
                f,
                "the reading at {at} is in an epoch that the device has already closed or passed; skip \
                 readings that are not new (--new-only)"
            ),
            SealRefused::EpochOutOfRange { epoch } => {
                write!(
                    f,
                    "the reading at {at} is in epoch {epoch}, which the roster does not allow"
                )
            }
            other => write!(f, "the reading at {at}: {other}"),
        }
    }
}

impl std::error::Error for BatchRefused {}

impl BatchRefused {
    /// Returns the error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.refused.name()
    }

    /// Returns [`ErrorKind::Usage`] for every error.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

moteseal_api::named_error!(BatchRefused);

/// The result of sealing a recording.
#[derive(Debug)]
pub struct Sealed {
    /// The bundles, in order.
    pub bundles: Vec<Bundle>,
    /// The number of readings that were skipped because their epochs were sealed before.
    pub left_out: u64,
}

impl Batch {
    /// Seals a recording. Calls `taken` with the number of readings processed so far, every few
    /// thousand readings and at the end.
    ///
    /// # Errors
    /// [`BatchRefused`]. The bundles that were already sealed are discarded, and `sealer` must not
    /// be used again.
    pub fn seal<K: Signer>(
        &self,
        recording: &Recording,
        sealer: &mut Sealer<K>,
        taken: &mut dyn FnMut(u64),
    ) -> Result<Sealed, BatchRefused> {
        let mut sealed = Sealed { bundles: Vec::new(), left_out: 0 };
        let mut last_ms = 0;
        let mut known =
            AlreadySealed::of(sealer.chain(), sealer.covers_nothing()).filter(|_| self.new_only);
        for (count, (unix_ms, record)) in (0..).zip(recording.iter()) {
            let epoch = self.calendar.epoch_of(unix_ms);
            if let Some(sealed_before) = &mut known {
                let skips = sealed_before
                    .skips(epoch, record)
                    .map_err(|refused| BatchRefused { unix_ms, refused })?;
                if skips {
                    last_ms = unix_ms;
                    sealed.left_out += 1;
                    continue;
                }
            }
            last_ms = unix_ms;
            match sealer.push(epoch, record) {
                Ok(bundle) => sealed.bundles.extend(bundle),
                Err(SealRefused::EpochGoesBack { .. } | SealRefused::EpochClosed { .. })
                    if self.new_only =>
                {
                    sealed.left_out += 1;
                }
                Err(refused) => return Err(BatchRefused { unix_ms, refused }),
            }
            if count % 4096 == 0 {
                taken(count);
            }
        }
        if let Some(sealed_before) = &known {
            sealed_before.end().map_err(|refused| BatchRefused { unix_ms: last_ms, refused })?;
        }
        taken(recording.len() as u64);
        let last = sealer
            .close(!self.keep_open)
            .map_err(|refused| BatchRefused { unix_ms: last_ms, refused })?;
        sealed.bundles.extend(last);
        Ok(sealed)
    }
}

/// The readings of the open epoch that are already sealed. A recording that has a reading of this
/// epoch must begin the epoch with them.
struct AlreadySealed {
    epoch: EpochNumber,
    readings: u64,
    /// The digest of the readings; `None` if it is not known.
    digest: Option<Covered>,
    /// The readings of the recording that were skipped.
    skipped: Covered,
}

impl AlreadySealed {
    /// Returns `None` if no epoch is open. `nothing` is the digest of no readings.
    fn of(chain: Chain, nothing: Covered) -> Option<Self> {
        let (_, epoch) = chain.position.last.filter(|_| !chain.position.epoch_closed)?;
        let readings = chain.readings;
        let digest = chain.covered.filter(|covered| covered.readings == readings);
        (readings > 0).then_some(Self { epoch, readings, digest, skipped: nothing })
    }

    /// Returns whether the next reading of the recording is already sealed.
    fn skips(&mut self, epoch: EpochNumber, record: &[u8]) -> Result<bool, SealRefused> {
        if epoch > self.epoch {
            self.end()?;
        }
        if epoch != self.epoch || self.skipped.readings == self.readings {
            return Ok(false);
        }
        self.skipped.add(record);
        if self.skipped.readings == self.readings
            && self.digest.is_some_and(|digest| digest != self.skipped)
        {
            return Err(self.refused());
        }
        Ok(true)
    }

    /// Checks that the recording has all of the readings, or none of them.
    const fn end(&self) -> Result<(), SealRefused> {
        if self.skipped.readings == 0 || self.skipped.readings == self.readings {
            Ok(())
        } else {
            Err(self.refused())
        }
    }

    const fn refused(&self) -> SealRefused {
        SealRefused::OtherReadings { epoch: self.epoch, readings: self.readings }
    }
}
