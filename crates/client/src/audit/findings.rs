//! The result of an audit, epoch by epoch: the findings, and the doubts that could not be resolved.

use std::fmt;

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, Level, Round, SealIndex};
use moteseal_seal::sample;
use moteseal_sum::query::QueryId;
use moteseal_verify::Roster;
use serde_json::{Value, json};

use super::silence::{self, Silences};
use crate::cloud_roster::CloudRoster;

/// The result of an audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The group's budget.
    pub budget: u64,
    /// The result of each epoch. An epoch with several manifests has several results.
    pub epochs: Vec<EpochReport>,
    /// The result for claims of silence in private sums, if the caller gave claims. They do not
    /// concern the coordinator and do not change the verdict of any epoch.
    pub silences: Option<Silences>,
    /// The number of verified seals.
    pub seals: u64,
    /// The number of verified signatures of seals.
    pub signatures: u64,
    /// The number of bytes read.
    pub bytes: u64,
    /// The version of the roster that the cloud states, if it is not the client's. This is not
    /// verified. A cloud with a later version leaves out the seals and manifests that the later
    /// version makes void or outdated.
    pub cloud_roster: Option<CloudRoster>,
}

/// The verdict of an audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The round of every epoch is justified.
    Justified,
    /// At least one epoch cannot be decided, or the range has no epoch.
    Undetermined,
    /// The audit proved a fault.
    Unjustified,
}

/// The result of auditing one epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochReport {
    /// The epoch.
    pub epoch: EpochNumber,
    /// The digest and the round of the manifest; `None` if the epoch has no manifest.
    pub manifest: Option<(Digest, Round)>,
    /// The due round: the first round at which the signed counters fit the budget.
    pub due: Option<Round>,
    /// The number of events in the levels that the manifest keeps, according to the signed
    /// counters.
    pub kept: u64,
    /// The number of events of each level, over all seals that the manifest lists.
    pub counts: Vec<(Level, u64)>,
    /// The number of devices that the manifest lists.
    pub devices: usize,
    /// The number of verified seals that the manifest lists.
    pub listed: u64,
    /// The number of verified seals of the epoch, whether listed or not.
    pub seals: u64,
    /// The faults that the audit proved.
    pub findings: Vec<Finding>,
    /// The questions that remain undecided.
    pub doubts: Vec<Doubt>,
    /// Whether the round is the due round and no missing data could change that.
    pub is_justified: bool,
}

/// A fault that the audit proved. `spec/errors.md` lists its name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// The round is not the due round.
    Round {
        /// How the round differs from the due round.
        found: sample::Finding,
        /// The devices to which the coordinator announced a round higher than the manifest's, with
        /// the announced round.
        devices: Vec<(DeviceId, Round)>,
    },
    /// The coordinator signed different manifests of the same epoch.
    TwoManifests {
        /// The digests of the manifests.
        digests: Vec<Digest>,
    },
    /// The manifest lists a seal of another epoch.
    Replayed {
        /// The device.
        device: DeviceId,
        /// The seal's index.
        index: SealIndex,
        /// The seal's epoch.
        from: EpochNumber,
    },
    /// The manifest lists a device that the roster does not have.
    InventedDevice {
        /// The device.
        device: DeviceId,
        /// The number of seals that the manifest lists for this device.
        seals: usize,
    },
    /// The manifest lists a seal that is not in the device's complete chain, so the device never
    /// signed it.
    InventedSeal {
        /// The device.
        device: DeviceId,
        /// The digest of the listed seal.
        digest: Digest,
    },
    /// The manifest lists a seal that was not found, and the coordinator has continued with later
    /// epochs.
    Unshown {
        /// The device.
        device: DeviceId,
        /// The digest of the listed seal.
        digest: Digest,
    },
    /// A seal was not found, although the device's next seal states that it exists.
    Missing {
        /// The device.
        device: DeviceId,
        /// The seal's index.
        index: SealIndex,
        /// The seal that names the missing seal as its predecessor.
        named_by: SealIndex,
    },
    /// The device signed two different histories.
    Equivocation {
        /// The device.
        device: DeviceId,
        /// The first index at which the histories differ.
        index: SealIndex,
    },
    /// The device answered a query for an epoch, but was reported to the querier as silent.
    ClaimedSilent {
        /// The device.
        device: DeviceId,
        /// The query.
        query: QueryId,
        /// The epoch of the query.
        epoch: u64,
        /// The start of that epoch in Unix milliseconds; `None` if it is unknown, or is 2^64 or
        /// more.
        start_ms: Option<u64>,
        /// The seal that states the answer.
        index: SealIndex,
    },
}

impl Finding {
    /// Returns the stable name (`spec/errors.md`).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Round { found, .. } => found.name(),
            Self::TwoManifests { .. } => "TwoManifests",
            Self::Replayed { .. } => "Replayed",
            Self::InventedDevice { .. } => "InventedDevice",
            Self::InventedSeal { .. } => "InventedSeal",
            Self::Unshown { .. } => "Unshown",
            Self::Missing { .. } => "Missing",
            Self::Equivocation { .. } => "Equivocation",
            Self::ClaimedSilent { .. } => "ClaimedSilent",
        }
    }

    /// Returns the devices that the finding concerns.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceId> {
        match self {
            Self::Round { devices, .. } => devices.iter().map(|(device, _)| *device).collect(),
            Self::TwoManifests { .. } => Vec::new(),
            Self::Replayed { device, .. }
            | Self::InventedDevice { device, .. }
            | Self::InventedSeal { device, .. }
            | Self::Unshown { device, .. }
            | Self::Missing { device, .. }
            | Self::Equivocation { device, .. }
            | Self::ClaimedSilent { device, .. } => vec![*device],
        }
    }

    /// Returns the finding as one line of text, with the names of the devices.
    #[must_use]
    pub fn describe(&self, roster: &Roster) -> String {
        let name = |device: &DeviceId| name(roster, *device);
        match self {
            Self::Round { found, devices } => {
                let announced: Vec<String> = devices
                    .iter()
                    .map(|(device, round)| format!("{} round {round}", name(device)))
                    .collect();
                if announced.is_empty() {
                    format!("{}: {found}", found.name())
                } else {
                    format!("{}: {found} (announced: {})", found.name(), announced.join(", "))
                }
            }
            Self::TwoManifests { digests } => {
                let digests: Vec<String> = digests.iter().map(ToString::to_string).collect();
                format!(
                    "TwoManifests: the coordinator signed {} manifests of this epoch: {}",
                    digests.len(),
                    digests.join(", ")
                )
            }
            Self::Replayed { device, index, from } => {
                format!(
                    "Replayed: the manifest lists seal {index} of {}, which is of epoch {from}",
                    name(device)
                )
            }
            Self::InventedDevice { device, seals } => {
                format!(
                    "InventedDevice: the manifest lists {seals} seals of {device}, which is not in \
                     the roster"
                )
            }
            Self::InventedSeal { device, digest } => {
                format!(
                    "InventedSeal: the manifest lists the seal {digest} of {0}, but {0}'s own \
                     chain does not contain it",
                    name(device)
                )
            }
            Self::Unshown { device, digest } => format!(
                "Unshown: the manifest lists the seal {digest} of {}, which was not found: either \
                 the coordinator invented it, or the store withholds it",
                name(device)
            ),
            Self::Missing { device, index, named_by } => format!(
                "Missing: {0} signed seal {index}, as its seal {named_by} states, but it was not \
                 found: either the coordinator dropped it, or the store withholds it",
                name(device)
            ),
            Self::Equivocation { device, index } => {
                format!(
                    "Equivocation: {} signed two histories that differ from index {index} on",
                    name(device)
                )
            }
            Self::ClaimedSilent { device, query, epoch, index, .. } => {
                silence::describe(&name(device), *query, *epoch, *index)
            }
        }
    }

    pub(super) fn to_json(&self, roster: &Roster) -> Value {
        let devices: Vec<_> =
            self.devices().into_iter().map(|device| name(roster, device)).collect();
        let mut json =
            json!({"name": self.name(), "devices": devices, "detail": self.describe(roster)});
        if let Self::ClaimedSilent { query, epoch, start_ms, index, .. } = self {
            json["query"] = query.to_string().into();
            json["query_epoch"] = (*epoch).into();
            json["start_ms"] = (*start_ms).into();
            json["seal"] = index.0.into();
        }
        json
    }
}

/// An observation that does not prove a fault, or that cannot be decided yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doubt {
    /// The epoch has seals, but no manifest.
    NoManifest {
        /// Whether the coordinator has signed a manifest of a later epoch.
        has_gone_on: bool,
    },
    /// The manifest was made under a roster that is not a version of this one.
    UnknownRoster {
        /// The digest of that roster.
        digest: Digest,
    },
    /// The device may have sealed more in this epoch than the manifest lists; no data proves that
    /// it did not.
    Absent {
        /// The device.
        device: DeviceId,
        /// Whether the manifest lists a seal of the device.
        listed: bool,
    },
    /// The device restarted. It may have forwarded readings before the restart that it never
    /// sealed, and these readings may have raised the round.
    Restarted {
        /// The device.
        device: DeviceId,
    },
    /// The manifest does not list a seal of the epoch: either the seal arrived after the manifest, or
    /// the coordinator left it out. Nothing that is signed shows when a seal arrived, so this doubt
    /// remains when the device's chain continues.
    Late {
        /// The device.
        device: DeviceId,
        /// The seal's index.
        index: SealIndex,
    },
    /// A listed seal was not found. It must exist, because its successor names it.
    Withheld {
        /// The device.
        device: DeviceId,
        /// The seal's index.
        index: SealIndex,
    },
    /// A seal that the newest manifest lists was not found. It may still arrive.
    NotShownYet {
        /// The device.
        device: DeviceId,
        /// The digest of the listed seal.
        digest: Digest,
    },
}

impl Doubt {
    /// Returns the stable name (`spec/errors.md`).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NoManifest { .. } => "NoManifest",
            Self::UnknownRoster { .. } => "UnknownRoster",
            Self::Absent { .. } => "Absent",
            Self::Restarted { .. } => "Restarted",
            Self::Late { .. } => "Late",
            Self::Withheld { .. } => "Withheld",
            Self::NotShownYet { .. } => "NotShownYet",
        }
    }

    /// Returns whether the epoch may have more events than were counted.
    pub(super) const fn may_have_had_more(&self) -> bool {
        !matches!(self, Self::Restarted { .. } | Self::Late { .. })
    }

    /// Returns the seal if this doubt is `Withheld`.
    pub(super) const fn withheld(&self) -> Option<(DeviceId, SealIndex)> {
        if let Self::Withheld { device, index } = self { Some((*device, *index)) } else { None }
    }

    /// Returns the device that the doubt concerns.
    #[must_use]
    pub const fn device(&self) -> Option<DeviceId> {
        match self {
            Self::NoManifest { .. } | Self::UnknownRoster { .. } => None,
            Self::Absent { device, .. }
            | Self::Restarted { device }
            | Self::Late { device, .. }
            | Self::Withheld { device, .. }
            | Self::NotShownYet { device, .. } => Some(*device),
        }
    }

    /// Returns the doubt as one line of text, with the name of the device.
    #[must_use]
    pub fn describe(&self, roster: &Roster) -> String {
        let who = self.device().map(|device| name(roster, device)).unwrap_or_default();
        match self {
            Self::NoManifest { has_gone_on: false } => {
                "NoManifest: either the coordinator has not closed this epoch yet, or the store \
                 withholds its manifest"
                    .to_owned()
            }
            Self::NoManifest { has_gone_on: true } => {
                "NoManifest: later epochs have a manifest, but this one has none: either all of its \
                 seals arrived late, the coordinator left them out, or the store withholds its \
                 manifest"
                    .to_owned()
            }
            Self::UnknownRoster { digest } => format!(
                "UnknownRoster: the manifest was made under the roster {digest}; audit with that \
                 roster or a later version of it"
            ),
            Self::Absent { listed: false, .. } => format!(
                "Absent: {who} is not listed, and nothing proves yet that it had no readings"
            ),
            Self::Absent { listed: true, .. } => format!(
                "Absent: {who} may have sealed more than is listed; nothing proves yet that it \
                 did not"
            ),
            Self::Restarted { .. } => {
                format!("Restarted: {who} may have forwarded readings that it never sealed")
            }
            Self::Late { index, .. } => format!(
                "Late: the manifest does not list seal {index} of {who}, and it was not counted: \
                 either it arrived after the manifest, or the coordinator left it out"
            ),
            Self::Withheld { index, .. } => {
                format!("Withheld: seal {index} of {who} is listed and exists, but was not found")
            }
            Self::NotShownYet { digest, .. } => format!(
                "NotShownYet: the seal {digest} of {who} is listed, but was not found; it may \
                 still arrive: audit again"
            ),
        }
    }

    fn to_json(&self, roster: &Roster) -> Value {
        json!({
            "name": self.name(),
            "device": self.device().map(|device| name(roster, device)),
            "detail": self.describe(roster),
        })
    }
}

fn name(roster: &Roster, device: DeviceId) -> String {
    roster.name(device).map_or_else(|| device.to_string(), str::to_owned)
}

impl EpochReport {
    pub(super) fn without_manifest(
        epoch: EpochNumber,
        seals: u64,
        findings: Vec<Finding>,
        has_gone_on: bool,
    ) -> Self {
        Self {
            epoch,
            manifest: None,
            due: None,
            kept: 0,
            counts: Vec::new(),
            devices: 0,
            listed: 0,
            seals,
            findings,
            doubts: vec![Doubt::NoManifest { has_gone_on }],
            is_justified: false,
        }
    }

    /// Returns `Justified`, `Unjustified` or `Undetermined`.
    #[must_use]
    pub const fn verdict(&self) -> &'static str {
        match (self.findings.is_empty(), self.is_justified) {
            (false, _) => "Unjustified",
            (true, true) => "Justified",
            (true, false) => "Undetermined",
        }
    }

    fn to_json(&self, roster: &Roster) -> Value {
        let findings: Vec<_> =
            self.findings.iter().map(|finding| finding.to_json(roster)).collect();
        let doubts: Vec<_> = self.doubts.iter().map(|doubt| doubt.to_json(roster)).collect();
        json!({
            "epoch": self.epoch.0,
            "verdict": self.verdict(),
            "manifest": self.manifest.map(|(digest, _)| digest.to_string()),
            "round": self.manifest.map(|(_, round)| round.0),
            "due": self.due.map(|due| due.0),
            "kept": self.kept,
            "levels": self.counts.iter().map(|(_, count)| count).collect::<Vec<_>>(),
            "events": self.counts.iter().map(|(_, count)| count).sum::<u64>(),
            "devices": self.devices,
            "listed": self.listed,
            "seals": self.seals,
            "findings": findings,
            "doubts": doubts,
        })
    }
}

impl Report {
    /// Returns the verdict on all epochs together.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.findings().next().is_some() {
            Verdict::Unjustified
        } else if self.epochs.is_empty() || self.epochs.iter().any(|epoch| !epoch.is_justified) {
            Verdict::Undetermined
        } else {
            Verdict::Justified
        }
    }

    /// Returns all findings, each with its epoch.
    pub fn findings(&self) -> impl Iterator<Item = (EpochNumber, &Finding)> {
        let of_epochs = self
            .epochs
            .iter()
            .flat_map(|epoch| epoch.findings.iter().map(|finding| (epoch.epoch, finding)));
        let silences = self.silences.iter().flat_map(|silences| silences.findings.iter());
        of_epochs.chain(silences.map(|(epoch, finding)| (*epoch, finding)))
    }

    /// Returns the report as JSON.
    #[must_use]
    pub fn to_json(&self, roster: &Roster) -> Value {
        let of =
            |verdict: &str| self.epochs.iter().filter(|epoch| epoch.verdict() == verdict).count();
        let mut json = json!({
            "budget": self.budget,
            "justified": of("Justified"),
            "unjustified": of("Unjustified"),
            "undetermined": of("Undetermined"),
            "seals": self.seals,
            "signatures": self.signatures,
            "bytes": self.bytes,
            "epochs": self.epochs.iter().map(|epoch| epoch.to_json(roster)).collect::<Vec<_>>(),
        });
        if let Some(silences) = &self.silences {
            json["sums"] = silences.to_json(roster);
        }
        json
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of =
            |verdict: &str| self.epochs.iter().filter(|epoch| epoch.verdict() == verdict).count();
        let (justified, unjustified) = (of("Justified"), of("Unjustified"));
        write!(
            f,
            "{justified} epochs justified, {unjustified} not, {} undetermined",
            of("Undetermined")
        )
    }
}
