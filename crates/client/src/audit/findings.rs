//! The result of an audit, epoch by epoch: findings, and doubts that could not be resolved.

use std::fmt;

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, Level, Round, SealIndex};
use moteseal_seal::sample;
use moteseal_sum::query::QueryId;
use moteseal_verify::Roster;
use serde_json::{Value, json};

use super::silence::{self, Silences};

/// The result of an audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The group's budget.
    pub budget: u64,
    /// The result of each epoch; several if an epoch has several manifests.
    pub epochs: Vec<EpochReport>,
    /// The result for claims of silence in private sums, if the caller gave claims. They do not
    /// concern the coordinator and change no epoch's verdict.
    pub silences: Option<Silences>,
    /// Number of verified seals.
    pub seals: u64,
    /// Number of verified signatures of seals.
    pub signatures: u64,
    /// Number of bytes read.
    pub bytes: u64,
}

/// The verdict of an audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every epoch is justified.
    Justified,
    /// Some epoch cannot be decided, or there is no epoch at all.
    Undetermined,
    /// The audit found a fault.
    Unjustified,
}

/// The result of auditing one epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochReport {
    /// The epoch.
    pub epoch: EpochNumber,
    /// The digest and the round of the manifest; `None` without a manifest.
    pub manifest: Option<(Digest, Round)>,
    /// The due round: the first one at which the counters fit the budget.
    pub due: Option<Round>,
    /// Number of events in the levels that the manifest keeps, by the signed counters.
    pub kept: u64,
    /// Number of events of each level, over the seals that the manifest lists.
    pub counts: Vec<(Level, u64)>,
    /// Number of devices that the manifest lists.
    pub devices: usize,
    /// Number of verified seals that the manifest lists.
    pub listed: u64,
    /// Number of verified seals of the epoch, listed or not.
    pub seals: u64,
    /// The faults.
    pub findings: Vec<Finding>,
    /// What remains undecided.
    pub doubts: Vec<Doubt>,
    /// The round is the due round, and no missing data could change that.
    pub is_justified: bool,
}

/// A fault that the audit proved; its name is in spec/errors.md.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// The round is not the due round.
    Round {
        /// The difference.
        found: sample::Finding,
        /// The devices to which the coordinator announced a higher round, with that round.
        devices: Vec<(DeviceId, Round)>,
    },
    /// The coordinator signed different manifests of the same epoch.
    TwoManifests {
        /// Their digests.
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
        /// Number of seals listed of it.
        seals: usize,
    },
    /// The manifest lists a seal that is not in the device's own chain, so the device never signed
    /// it.
    InventedSeal {
        /// The device.
        device: DeviceId,
        /// The listed digest.
        digest: Digest,
    },
    /// The manifest lists a seal that has not been found, and the coordinator has continued with
    /// later epochs.
    Unshown {
        /// The device.
        device: DeviceId,
        /// The listed digest.
        digest: Digest,
    },
    /// A seal has not been found, although the device's next seal states that it exists.
    Missing {
        /// The device.
        device: DeviceId,
        /// The seal's index.
        index: SealIndex,
        /// The seal that names it.
        named_by: SealIndex,
    },
    /// The device signed two different histories.
    Equivocation {
        /// The device.
        device: DeviceId,
        /// The first index at which they differ.
        index: SealIndex,
    },
    /// The device answered an epoch of a query, but was reported to the querier as silent.
    ClaimedSilent {
        /// The device.
        device: DeviceId,
        /// The query.
        query: QueryId,
        /// The epoch of that query.
        epoch: u64,
        /// The start of that epoch in Unix milliseconds; `None` if it is unknown, or 2^64 or more.
        start_ms: Option<u64>,
        /// The seal that states the answer.
        index: SealIndex,
    },
}

impl Finding {
    /// The stable name (`spec/errors.md`).
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

    /// The devices in question.
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

    /// The finding in one line, with the names of devices.
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

/// Something that does not prove a fault, or that cannot be decided yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doubt {
    /// The epoch has seals, but no manifest.
    NoManifest {
        /// The coordinator has signed a manifest of a later epoch.
        has_gone_on: bool,
    },
    /// The manifest was made under a roster that is not a version of this one.
    UnknownRoster {
        /// The digest of that roster.
        digest: Digest,
    },
    /// Nothing proves that the device sealed no more in this epoch than is listed.
    Absent {
        /// The device.
        device: DeviceId,
        /// The manifest lists a seal of the device.
        listed: bool,
    },
    /// The device restarted: readings that it had not sealed may have raised the round.
    Restarted {
        /// The device.
        device: DeviceId,
    },
    /// The manifest does not list a seal of the epoch: the seal arrived after the manifest.
    Late {
        /// The device.
        device: DeviceId,
        /// The seal's index.
        index: SealIndex,
    },
    /// A listed seal exists, because its successor names it, but has not been found.
    Withheld {
        /// The device.
        device: DeviceId,
        /// The seal's index.
        index: SealIndex,
    },
    /// A listed seal of the newest manifest has not been found; it may still arrive.
    NotShownYet {
        /// The device.
        device: DeviceId,
        /// The listed digest.
        digest: Digest,
    },
}

impl Doubt {
    /// The stable name (`spec/errors.md`).
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

    /// Whether the number of events of the epoch is uncertain.
    pub(super) const fn may_have_had_more(&self) -> bool {
        !matches!(self, Self::Restarted { .. } | Self::Late { .. })
    }

    /// The seal, if this doubt is `Withheld`.
    pub(super) const fn withheld(&self) -> Option<(DeviceId, SealIndex)> {
        if let Self::Withheld { device, index } = self { Some((*device, *index)) } else { None }
    }

    /// The device in question.
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

    /// The doubt in one line, with the names of devices.
    #[must_use]
    pub fn describe(&self, roster: &Roster) -> String {
        let who = self.device().map(|device| name(roster, device)).unwrap_or_default();
        match self {
            Self::NoManifest { has_gone_on: false } => {
                "NoManifest: the coordinator has not closed this epoch yet".to_owned()
            }
            Self::NoManifest { has_gone_on: true } => {
                "NoManifest: the coordinator closed later epochs, but not this one: either all \
                 seals of it arrived late, or the coordinator left them out"
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
                "Late: seal {index} of {who} arrived after the manifest, and was not counted"
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

    /// `Justified`, `Unjustified` or `Undetermined`.
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
    /// The verdict on all epochs together.
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

    /// All findings, each with its epoch.
    pub fn findings(&self) -> impl Iterator<Item = (EpochNumber, &Finding)> {
        let of_epochs = self
            .epochs
            .iter()
            .flat_map(|epoch| epoch.findings.iter().map(|finding| (epoch.epoch, finding)));
        let silences = self.silences.iter().flat_map(|silences| silences.findings.iter());
        of_epochs.chain(silences.map(|(epoch, finding)| (*epoch, finding)))
    }

    /// The report as JSON.
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
