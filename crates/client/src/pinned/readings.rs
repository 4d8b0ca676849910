//! The newest signed reading of each device that a client has verified. An earlier one is refused: a
//! party between the device and the client could otherwise replay it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use moteseal_api::ErrorKind;
use moteseal_core::digest::Digest;
use moteseal_core::record::{EpochNumber, SealIndex, Sequence};
use serde_json::{Value, json};

use super::digest;

/// The place of a signed reading that was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedReading {
    /// The index of the seal that covers the reading.
    pub index: SealIndex,
    /// The epoch.
    pub epoch: EpochNumber,
    /// The sequence number of the reading under that seal.
    pub seq: Sequence,
}

impl PinnedReading {
    /// Returns whether this reading precedes another one of the same device.
    const fn precedes(&self, other: &Self) -> bool {
        let (index, newest) = (self.index.0, other.index.0);
        index < newest || (index == newest && self.seq.0 < other.seq.0)
    }
}

/// Why a client refuses a reading: it has verified a newer one of the same device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.sentence())]
pub struct OlderReading {
    /// The device's name.
    pub device: String,
    /// The reading.
    pub given: PinnedReading,
    /// The newest reading that the client has verified.
    pub newest: PinnedReading,
    /// The file of pinned seals, if they are in a file.
    pub file: Option<PathBuf>,
}

impl OlderReading {
    /// Returns the stable name of the error, `OlderReading`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        "OlderReading"
    }

    /// Always returns [`ErrorKind::Refused`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Refused
    }

    fn sentence(&self) -> String {
        let Self { device, given, newest, file } = self;
        let text = format!(
            "{device} signed reading {} of seal {}, but this client has verified the later reading {} of seal {}: \
             an old reading was sent again, or the device's state was restored from a copy",
            given.seq.0, given.index, newest.seq.0, newest.index
        );
        match file {
            Some(file) => format!("{text}; delete {} to discard what is pinned", file.display()),
            None => text,
        }
    }
}

moteseal_api::named_error!(OlderReading);

/// The newest readings, by the digest of the device's first certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Readings(BTreeMap<Digest, PinnedReading>);

impl Readings {
    /// Checks that a reading does not precede the pinned one. A pinned reading for which
    /// `is_accepted` returns false is ignored.
    pub(super) fn check(
        &self,
        (certificate, device): (&Digest, &str),
        given: PinnedReading,
        is_accepted: impl FnOnce(&PinnedReading) -> bool,
        file: Option<&Path>,
    ) -> Result<(), OlderReading> {
        match self.0.get(certificate) {
            Some(newest) if given.precedes(newest) && is_accepted(newest) => Err(OlderReading {
                device: device.to_owned(),
                given,
                newest: *newest,
                file: file.map(Path::to_owned),
            }),
            _ => Ok(()),
        }
    }

    /// Pins a reading that was checked. Returns whether this changed anything.
    pub(super) fn pin(&mut self, certificate: Digest, given: PinnedReading) -> bool {
        self.0.insert(certificate, given) != Some(given)
    }

    /// Pins the readings of `others` that are newer.
    pub(super) fn merge(&mut self, others: Self) {
        for (certificate, other) in others.0 {
            let known = self.0.entry(certificate).or_insert(other);
            if known.precedes(&other) {
                *known = other;
            }
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let entry = |(certificate, reading): (&Digest, &PinnedReading)| {
            let value = json!({
                "index": reading.index.0,
                "epoch": reading.epoch.0,
                "seq": reading.seq.0,
            });
            (certificate.to_string(), value)
        };
        Value::Object(self.0.iter().map(entry).collect())
    }

    /// Reads the member of the file. A file of an earlier version of this program does not have it.
    pub(super) fn parse(value: Option<&Value>) -> Option<Self> {
        let Some(value) = value else { return Some(Self::default()) };
        let entry = |(certificate, reading): (&String, &Value)| {
            let number = |name| reading.get(name)?.as_u64();
            let index = SealIndex(number("index")?.try_into().ok()?);
            let (epoch, seq) = (EpochNumber(number("epoch")?), Sequence(number("seq")?));
            Some((digest(certificate)?, PinnedReading { index, epoch, seq }))
        };
        value.as_object()?.iter().map(entry).collect::<Option<_>>().map(Self)
    }
}
