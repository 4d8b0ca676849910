//! The report about a verified response: counts and completeness, device by device.

use moteseal_api::ErrorKind;
use moteseal_core::record::{DeviceId, EpochNumber, Round, SealIndex};
use moteseal_verify::Roster;
use serde_json::{Value, json};

use crate::cloud_roster::CloudRoster;
use crate::decrypt::WithheldColumn;

/// The counts and the completeness of a verified response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The devices, in the order of the query.
    pub devices: Vec<DeviceReport>,
    /// The number of signatures that were checked.
    pub signatures: u64,
    /// The size of the response in bytes.
    pub bytes: u64,
    /// The group's budget: the maximum number of events of one epoch that are kept, over all
    /// devices. `None` if all events are kept.
    pub budget: Option<u64>,
    /// In a group with a budget, each epoch that has a manifest, and its final round. Levels below
    /// the round were not kept, so about one in 2^round of the epoch's events was kept.
    pub rounds: Vec<(EpochNumber, Round)>,
    /// The version of the roster that the cloud states, if it is not the client's. This is not
    /// verified. A cloud with a later version leaves out the seals that the later version makes void
    /// or outdated.
    pub cloud_roster: Option<CloudRoster>,
    /// Whether the stream is a redacted proof. It is then never complete.
    pub is_redacted: bool,
}

/// The counts and the completeness of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// The device.
    pub device: DeviceId,
    /// The device's name in the roster.
    pub name: String,
    /// The first epoch of the query.
    pub since: EpochNumber,
    /// The epoch after the last epoch of the query; `None` if the query has no end.
    pub until: Option<EpochNumber>,
    /// The number of seals of the range that were checked. For *at most* and *sample*, this
    /// excludes the newest epoch if its last part is unknown.
    pub seals: u64,
    /// The number of epochs that these seals cover.
    pub epochs: u64,
    /// The number of events that these seals count.
    pub events: u64,
    /// The number of rows that were passed to the sink.
    pub rows: u64,
    /// The number of events that the device reports as lost.
    pub lost: u64,
    /// The number of late seals. The manifest of their epoch does not list them, because they
    /// arrived after the coordinator had closed the epoch.
    pub late: u64,
    /// The restarts that the device's seals state, in order; at most 256.
    pub outages: Vec<Outage>,
    /// The encrypted columns that are null in rows, with the reasons; at most 256.
    pub withheld: Vec<WithheldColumn>,
    /// The columns that sanitisers replaced in rows; at most 256.
    pub sanitised: Vec<SanitisedColumn>,
    /// Whether the stream is a proof whose query names readings. The maker of the proof chose the
    /// query, so the proof is never complete, whatever the standing of the seals is.
    pub is_named: bool,
    /// What a redacted proof leaves out of the device's seals in the range; `None` for any other
    /// stream.
    pub redaction: Option<Redaction>,
    /// How complete the response is for this device.
    pub standing: Standing,
    /// For a proof, the index and epoch of a pinned seal of the range that is newer than the proof.
    /// A store's response without that seal is rejected (`Missing`).
    pub newer: Option<(SealIndex, EpochNumber)>,
}

/// A column whose values a sanitiser replaced in rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SanitisedColumn {
    /// The name of the column.
    pub column: String,
    /// The name of the sanitiser.
    pub by: String,
    /// What the sanitiser did, in its words.
    pub policy: String,
    /// The number of rows.
    pub rows: u64,
}

/// A restart of a device. Readings before the restart may not have been sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The epoch of the last seal before the restart; `None` if there is no seal before it.
    pub from: Option<EpochNumber>,
    /// The epoch of the first seal after the restart.
    pub to: EpochNumber,
    /// The index of the first seal after the restart.
    pub index: SealIndex,
}

/// What a redacted proof leaves out of the seals of a device. The signed counters and the chain of the
/// seals show it. What the device sealed before the first and after the last of these seals is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redaction {
    /// The number of readings that the device kept under the seals in the proof, and that the proof
    /// omits.
    pub omitted: u64,
    /// The seals of which readings are omitted, in order; at most 256.
    pub seals: Vec<Omission>,
    /// The seals that are left out as a whole, in order; at most 256 gaps.
    pub gaps: Vec<SealGap>,
}

/// A seal of which a redacted proof omits readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Omission {
    /// The index of the seal.
    pub index: SealIndex,
    /// The epoch of the seal.
    pub epoch: EpochNumber,
    /// The number of readings in the proof.
    pub shown: u64,
    /// The number of readings that the device kept, and that are not in the proof.
    pub omitted: u64,
}

/// Consecutive seals that a redacted proof leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealGap {
    /// The lowest index that may be left out; `None` if the gap is before the first seal of the proof.
    /// Some of the indices may never have been used.
    pub first: Option<SealIndex>,
    /// The index of the last seal that is left out.
    pub last: SealIndex,
    /// The epoch of that seal.
    pub epoch: EpochNumber,
}

/// How complete a response is for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No seal of the range is missing.
    Complete,
    /// No seal is missing before the epoch `from`. It is unknown what the device sealed from this
    /// epoch on.
    TailUnknown {
        /// The first epoch for which the number of seals is unknown.
        from: EpochNumber,
    },
    /// No seal is missing before the epoch `from`. The manifest of this epoch is missing, and
    /// perhaps also the manifests of later epochs. It is therefore unknown which events should be
    /// served, and the epoch has no rows.
    ManifestMissing {
        /// The first epoch without a manifest.
        from: EpochNumber,
    },
    /// The proof is redacted: a redactor chose what it shows.
    Redacted,
}

impl DeviceReport {
    /// Returns whether the response is as complete as requested. A query with an end must be
    /// complete over its whole range. A query without an end must be complete up to the newest seal
    /// in the response.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        !self.is_named && self.has_all_seals()
    }

    /// Returns whether the response has all seals that the query requires.
    const fn has_all_seals(&self) -> bool {
        match self.standing {
            Standing::Complete => true,
            Standing::TailUnknown { .. } => self.until.is_none() && self.seals > 0,
            Standing::ManifestMissing { .. } | Standing::Redacted => false,
        }
    }

    /// Returns the epoch before which the response is complete.
    #[must_use]
    pub fn complete_until(&self) -> EpochNumber {
        match self.standing {
            _ if self.is_named => self.since,
            Standing::Complete => self.until.unwrap_or(EpochNumber(u64::MAX)),
            Standing::TailUnknown { from } | Standing::ManifestMissing { from } => from,
            Standing::Redacted => self.since,
        }
    }
}

impl Report {
    /// Returns whether every device is as complete as requested.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.devices.iter().all(DeviceReport::is_complete)
    }

    /// Returns whether the stream is a proof whose query names readings. It is then never complete.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.devices.iter().any(|device| device.is_named)
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.devices.iter().map(|device| device.rows).sum()
    }

    /// Returns the number of events that the seals count.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.devices.iter().map(|device| device.events).sum()
    }

    /// Returns the lowest and the highest round of the epochs, in a group with a budget.
    #[must_use]
    pub fn round_span(&self) -> Option<(Round, Round)> {
        let rounds = || self.rounds.iter().map(|(_, round)| *round);
        rounds().min().zip(rounds().max())
    }

    /// Returns the number of seals.
    #[must_use]
    pub fn seals(&self) -> u64 {
        self.devices.iter().map(|device| device.seals).sum()
    }

    /// Returns the report as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let round =
            |(epoch, round): &(EpochNumber, Round)| json!({"epoch": epoch.0, "round": round.0});
        let rounds: Vec<Value> = self.rounds.iter().map(round).collect();
        json!({
            "complete": self.is_complete(),
            "redacted": self.is_redacted,
            "named": self.is_named(),
            "rows": self.rows(),
            "events": self.events(),
            "seals": self.seals(),
            "signatures": self.signatures,
            "bytes": self.bytes,
            "budget": self.budget,
            "rounds": rounds,
            "cloud_roster": self.cloud_roster.map(|versions| versions.cloud),
            "devices": self.devices.iter().map(DeviceReport::to_json).collect::<Vec<_>>(),
        })
    }
}

impl DeviceReport {
    /// Returns the report as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let outage = |outage: &Outage| {
            let from = outage.from.map(|from| from.0);
            json!({"from": from, "to": outage.to.0, "index": outage.index.0})
        };
        let withheld = |of: &WithheldColumn| {
            json!({
                "column": of.column,
                "reason": of.reason.name(),
                "seals": of.seals,
                "rows": of.rows,
            })
        };
        let sanitised = |of: &SanitisedColumn| json!({"column": of.column, "by": of.by, "policy": of.policy, "rows": of.rows});
        let newer =
            |(index, epoch): (SealIndex, EpochNumber)| json!({"index": index.0, "epoch": epoch.0});
        json!({
            "device": self.device.to_string(),
            "name": self.name,
            "since": self.since.0,
            "until": self.until.map(|until| until.0),
            "complete": self.is_complete(),
            "complete_until":
                (self.standing != Standing::Redacted).then(|| self.complete_until().0),
            "standing": match self.standing {
                Standing::Complete => "Complete",
                Standing::TailUnknown { .. } => "TailUnknown",
                Standing::ManifestMissing { .. } => "ManifestMissing",
                Standing::Redacted => "Redacted",
            },
            "seals": self.seals,
            "epochs": self.epochs,
            "events": self.events,
            "rows": self.rows,
            "lost": self.lost,
            "late": self.late,
            "outages": self.outages.iter().map(outage).collect::<Vec<_>>(),
            "withheld": self.withheld.iter().map(withheld).collect::<Vec<_>>(),
            "sanitised": self.sanitised.iter().map(sanitised).collect::<Vec<_>>(),
            "newer_known": self.newer.map(newer),
            "redaction": self.redaction.as_ref().map(Redaction::to_json),
        })
    }
}

impl Redaction {
    fn to_json(&self) -> Value {
        let seal = |of: &Omission| {
            json!({
                "index": of.index.0,
                "epoch": of.epoch.0,
                "shown": of.shown,
                "omitted": of.omitted,
            })
        };
        let gap = |gap: &SealGap| {
            let first = gap.first.map(|first| first.0);
            json!({"first": first, "last": gap.last.0, "epoch": gap.epoch.0})
        };
        json!({
            "omitted": self.omitted,
            "seals": self.seals.iter().map(seal).collect::<Vec<_>>(),
            "gaps": self.gaps.iter().map(gap).collect::<Vec<_>>(),
        })
    }
}

/// The error for a device whose data is less complete than requested. The data that arrived is
/// verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.sentence())]
pub struct Incomplete {
    /// The device.
    pub device: DeviceId,
    /// The device's name in the roster.
    pub name: String,
    /// The first epoch that may be incomplete.
    pub from: EpochNumber,
    /// The start of that epoch as RFC 3339 text, or the epoch's number if the start is after the
    /// year 9999.
    pub time: String,
    /// What may be missing.
    pub lack: Lack,
    /// Whether the range would be complete if it ended at `from`.
    pub can_end: bool,
}

impl Incomplete {
    /// Returns the stable name (`spec/errors.md`).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.lack {
            Lack::Tail => "TailUnknown",
            Lack::Manifest => "ManifestMissing",
            Lack::Redacted => "Redacted",
            Lack::Named => "ReadingsNamed",
        }
    }

    /// Always returns [`ErrorKind::Incomplete`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Incomplete
    }

    fn sentence(&self) -> String {
        let Self { name, time, .. } = self;
        if self.lack == Lack::Redacted {
            format!(
                "the proof is redacted: what it shows of {name} is authentic, and a redactor chose \
                 it; ask its sender for the whole proof if you need all readings"
            )
        } else if self.lack == Lack::Named {
            format!(
                "the proof shows the readings of {name} that its query names: they are authentic, and \
                 the maker of the proof chose them; ask its sender for a proof by rate if you need \
                 all readings"
            )
        } else if self.lack == Lack::Manifest {
            format!(
                "the store lacks the manifest of the epoch that starts at {time}, which states \
                 what was kept of {name}; select readings by a rate, or ask again once the gateway \
                 has sent it"
            )
        } else if !self.can_end {
            format!(
                "the store has no seal of {name} from {time} on, and nothing shows whether {name} \
                 has sealed; ask again once {name} has sealed more"
            )
        } else {
            format!(
                "nothing shows what {name} sealed from {time} on; end the range at {time}, or ask \
                 again once {name} has sealed more"
            )
        }
    }
}

/// What may be missing of a device's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The newest seals.
    Tail,
    /// The manifest of an epoch.
    Manifest,
    /// What a redactor left out of a proof.
    Redacted,
    /// What the query of a proof does not name.
    Named,
}

moteseal_api::named_error!(Incomplete);

impl Report {
    /// Returns an error for the first device whose data is less complete than requested.
    ///
    /// # Errors
    /// [`Incomplete`] if there is such a device.
    pub fn require_complete(&self, roster: &Roster) -> Result<(), Incomplete> {
        let Some(device) = self.devices.iter().find(|device| !device.is_complete()) else {
            return Ok(());
        };
        let from = match device.standing {
            Standing::TailUnknown { from } => from,
            _ => device.complete_until(),
        };
        Err(Incomplete {
            device: device.device,
            name: device.name.clone(),
            from,
            time: start_text(roster, from),
            lack: match device.standing {
                Standing::ManifestMissing { .. } => Lack::Manifest,
                Standing::Redacted => Lack::Redacted,
                _ if device.has_all_seals() => Lack::Named,
                Standing::Complete | Standing::TailUnknown { .. } => Lack::Tail,
            },
            can_end: from > device.since && matches!(device.standing, Standing::TailUnknown { .. }),
        })
    }
}

/// Returns the start of an epoch as RFC 3339 text in UTC, or `epoch N` if the start is after the
/// year 9999.
#[must_use]
pub fn start_text(roster: &Roster, epoch: EpochNumber) -> String {
    roster
        .epoch_start_ms(epoch)
        .and_then(|ms| jiff::Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok())
        .map_or_else(|| format!("epoch {epoch}"), |time| time.to_string())
}
