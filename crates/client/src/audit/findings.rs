//! What an audit comes to, epoch by epoch: findings, and what cannot be told.

use std::fmt;

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, Level, Round, SealIndex};
use moteseal_seal::sample;
use moteseal_sum::query::QueryId;
use moteseal_verify::Roster;
use serde_json::{Value, json};

use super::silence::{self, Silences};

/// An audit in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The group's budget.
    pub budget: u64,
    /// By epoch; one for each manifest.
    pub epochs: Vec<EpochReport>,
    /// Who was said to be silent in private sums, where it was asked. It is no fault of the coordinator's, and changes no epoch's verdict.
    pub silences: Option<Silences>,
    /// Seals that were verified.
    pub seals: u64,
    /// Signatures of seals that were checked.
    pub signatures: u64,
    /// Bytes that were read.
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
    /// The manifest's digest and its round; `None` where there is no manifest.
    pub manifest: Option<(Digest, Round)>,
    /// The round that the counters ask for.
    pub due: Option<Round>,
    /// Events of the manifest's levels, by the signed counters.
    pub kept: u64,
    /// Events of each level, over the seals that the manifest lists.
    pub counts: Vec<(Level, u64)>,
    /// Devices that the manifest lists.
    pub devices: usize,
    /// Seals that it lists and that were verified.
    pub listed: u64,
    /// All seals of the epoch that were verified.
    pub seals: u64,
    /// What was done wrong.
    pub findings: Vec<Finding>,
    /// What cannot be told, or might be innocent.
    pub doubts: Vec<Doubt>,
    /// The round is the one that is due, and nothing that is not known could change that.
    pub is_justified: bool,
}

/// What was done wrong, by its name in spec/errors.md.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// The round is not the one that the counters ask for.
    Round {
        /// In which way.
        found: sample::Finding,
        /// The devices that were told another round, and which.
        devices: Vec<(DeviceId, Round)>,
    },
    /// The coordinator signed different manifests of one epoch.
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
        /// Seals listed of it.
        seals: usize,
    },
    /// The manifest lists a seal that the device, by its own chain, never signed.
    InventedSeal {
        /// The device.
        device: DeviceId,
        /// What is listed.
        digest: Digest,
    },
    /// The manifest lists a seal that nobody shows, though the coordinator has gone on to later epochs since.
    Unshown {
        /// The device.
        device: DeviceId,
        /// What is listed.
        digest: Digest,
    },
    /// A seal that the device signed, as its next one says, is nowhere.
    Missing {
        /// The device.
        device: DeviceId,
        /// The seal's index.
        index: SealIndex,
        /// The seal that names it.
        named_by: SealIndex,
    },
    /// The device signed two histories.
    Equivocation {
        /// The device.
        device: DeviceId,
        /// Where they part.
        index: SealIndex,
    },
    /// The device answered an epoch of a query, and the querier was told that it was silent.
    ClaimedSilent {
        /// The device.
        device: DeviceId,
        /// The query.
        query: QueryId,
        /// The epoch of that query.
        epoch: u64,
        /// When that epoch started, in Unix milliseconds.
        start_ms: Option<u64>,
        /// The seal that states the answer.
        index: SealIndex,
    },
}

impl Finding {
    /// Its name.
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

    /// What was found, in a line; devices by their names.
    #[must_use]
    pub fn describe(&self, roster: &Roster) -> String {
        let name = |device: &DeviceId| name(roster, *device);
        match self {
            Self::Round { found, devices } => {
                let told: Vec<String> = devices
                    .iter()
                    .map(|(device, round)| format!("{} round {round}", name(device)))
                    .collect();
                if told.is_empty() {
                    format!("{}: {found}", found.name())
                } else {
                    format!("{}: {found} (told: {})", found.name(), told.join(", "))
                }
            }
            Self::TwoManifests { digests } => {
                let digests: Vec<String> = digests.iter().map(ToString::to_string).collect();
                format!(
                    "TwoManifests: the coordinator signed {} of this epoch: {}",
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
                    "InventedDevice: the manifest lists {seals} seals of {device}, which the roster does not have"
                )
            }
            Self::InventedSeal { device, digest } => {
                format!(
                    "InventedSeal: the manifest lists {digest} of {}, whose own chain has no such seal",
                    name(device)
                )
            }
            Self::Unshown { device, digest } => format!(
                "Unshown: the manifest lists {digest} of {}, which nobody shows: the coordinator invented it, or the store withholds it",
                name(device)
            ),
            Self::Missing { device, index, named_by } => format!(
                "Missing: {0} signed seal {index}, as its seal {named_by} says, but nobody shows it: the coordinator dropped {0}, or the store withholds it",
                name(device)
            ),
            Self::Equivocation { device, index } => {
                format!(
                    "Equivocation: {} signed two histories that part at index {index}",
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

/// What the coordinator may be innocent of, or what cannot be told yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doubt {
    /// There are seals of the epoch, but no manifest.
    NoManifest {
        /// The coordinator has signed one of a later epoch since.
        has_gone_on: bool,
    },
    /// The manifest was made under a roster that this one does not know.
    UnknownRoster {
        /// Its digest.
        digest: Digest,
    },
    /// Nothing shows that the device had no more in this epoch than is listed.
    Absent {
        /// The device.
        device: DeviceId,
        /// Some of it is listed.
        listed: bool,
    },
    /// The device restarted: what it had open may have raised the round.
    Restarted {
        /// The device.
        device: DeviceId,
    },
    /// A seal of the epoch that the manifest does not list: it came after.
    Late {
        /// The device.
        device: DeviceId,
        /// The seal's index.
        index: SealIndex,
    },
    /// A listed seal that exists, as its successor says, but is not here.
    Withheld {
        /// The device.
        device: DeviceId,
        /// The seal's index.
        index: SealIndex,
    },
    /// A listed seal that is not here, in the newest manifest there is: it may be on its way.
    NotShownYet {
        /// The device.
        device: DeviceId,
        /// What is listed.
        digest: Digest,
    },
}

impl Doubt {
    /// Its name.
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

    /// Whether it leaves open how many events there were.
    pub(super) const fn may_have_had_more(&self) -> bool {
        !matches!(self, Self::Restarted { .. } | Self::Late { .. })
    }

    /// The seal that is listed, exists, and is not here.
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

    /// What is in doubt, in a line; devices by their names.
    #[must_use]
    pub fn describe(&self, roster: &Roster) -> String {
        let who = self.device().map(|device| name(roster, device)).unwrap_or_default();
        match self {
            Self::NoManifest { has_gone_on: false } => "NoManifest: the coordinator has not closed this epoch yet".to_owned(),
            Self::NoManifest { has_gone_on: true } => {
                "NoManifest: the coordinator closed later epochs, but not this one: all of it came late, or was left out"
                    .to_owned()
            }
            Self::UnknownRoster { digest } => {
                format!("UnknownRoster: made under the roster {digest}; audit with that one or a later version of it")
            }
            Self::Absent { listed: false, .. } => {
                format!("Absent: {who} is not listed, and nothing shows yet whether it had anything to say")
            }
            Self::Absent { listed: true, .. } => format!("Absent: {who} may have had more than is listed; nothing shows it yet"),
            Self::Restarted { .. } => format!("Restarted: {who} may have forwarded readings that it never sealed"),
            Self::Late { index, .. } => format!("Late: seal {index} of {who} came after the manifest, and was not counted"),
            Self::Withheld { index, .. } => format!("Withheld: seal {index} of {who} is listed and exists, but nobody shows it"),
            Self::NotShownYet { digest, .. } => {
                format!("NotShownYet: {digest} of {who} is listed, but not here; it may be on its way: audit again")
            }
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
            "findings": self.findings.iter().map(|finding| finding.to_json(roster)).collect::<Vec<_>>(),
            "doubts": self.doubts.iter().map(|doubt| doubt.to_json(roster)).collect::<Vec<_>>(),
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

    /// Every finding with its epoch.
    pub fn findings(&self) -> impl Iterator<Item = (EpochNumber, &Finding)> {
        let of_epochs = self
            .epochs
            .iter()
            .flat_map(|epoch| epoch.findings.iter().map(|finding| (epoch.epoch, finding)));
        let silences = self.silences.iter().flat_map(|silences| silences.findings.iter());
        of_epochs.chain(silences.map(|(epoch, finding)| (*epoch, finding)))
    }

    /// The report for programs.
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
