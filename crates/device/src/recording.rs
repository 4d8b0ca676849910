//! Seals a complete recording.

use std::fmt;

use moteseal_api::ErrorKind;
use moteseal_core::signature::Signer;
use moteseal_verify::Calendar;

use crate::import::{Recording, display_ms};
use crate::seal::{Bundle, SealRefused, Sealer};

/// The settings for sealing a recording.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The lengths of the group's epochs.
    pub calendar: Calendar,
    /// Whether to skip readings of epochs that are closed or earlier than the open epoch, instead
    /// of rejecting the recording.
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
        for (count, (unix_ms, record)) in (0..).zip(recording.iter()) {
            last_ms = unix_ms;
            match sealer.push(self.calendar.epoch_of(unix_ms), record) {
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
        taken(recording.len() as u64);
        let last = sealer
            .close(!self.keep_open)
            .map_err(|refused| BatchRefused { unix_ms: last_ms, refused })?;
        sealed.bundles.extend(last);
        Ok(sealed)
    }
}
