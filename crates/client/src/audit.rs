//! Audits a coordinator: checks whether it listed the seals of every device and kept the levels
//! that the budget requires. Anyone can do this from the signed data (`spec/coordinator.md`,
//! section 7).
//!
//! An [`Audit`] verifies the manifests of a range of epochs and then the seals of each device,
//! without their events, and compares them. It does no I/O; [`Client::audit`](crate::Client::audit)
//! fetches the data from a cloud. It keeps a digest for each listed seal and a few numbers for each
//! epoch. It processes the seals one device at a time and does not keep them.
//!
//! The audit reports a finding only if no missing data could explain the observation. Otherwise it
//! reports a doubt. For example, until a device's chain continues, the audit cannot distinguish a
//! device that stopped working from a device that the coordinator left out.

mod device_audit;
mod fetch;
mod findings;
mod silence;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, Level, MAX_LEVELS, Round, SealIndex};
use moteseal_core::roster::Directory as _;
use moteseal_seal::follow::Limits;
use moteseal_seal::sample::{self, Manifest, Tally};
use moteseal_seal::{Authentic, Incomplete, Seal, Statement};
use moteseal_verify::{Event, Roster, StreamReader};

use device_audit::{Comparison, DeviceAudit};
pub use fetch::AuditRequest;
pub(crate) use fetch::common_rate;
pub use findings::{Doubt, EpochReport, Finding, Report, Verdict};
pub use silence::{Claims, ClaimsError, Silences};

pub use crate::error::NoBudget;
use crate::rejection::Rejection;

/// The maximum number of manifests kept for one epoch. Further manifests prove nothing new.
const MAX_SHEETS: usize = 8;
/// The maximum number of listed seals. Their digests occupy 2 GiB.
const MAX_LISTED: usize = 1 << 26;

/// An audit of the epochs `since .. until`.
#[derive(Debug)]
pub struct Audit<'r> {
    roster: &'r Roster,
    since: EpochNumber,
    until: Option<EpochNumber>,
    epochs: BTreeMap<EpochNumber, Epoch>,
    /// The newest epoch with a manifest, in the range or after it.
    newest: Option<EpochNumber>,
    /// The seals that the manifests after the range list. If a device's first seal after the range
    /// is not among them, the coordinator did not accept it.
    listed_after: HashSet<Digest>,
    listed: usize,
    /// The device whose seals are arriving.
    at: Option<DeviceAudit>,
    done: BTreeSet<DeviceId>,
    /// The findings about devices, also for epochs without a manifest.
    findings: BTreeMap<EpochNumber, Vec<Finding>>,
    /// The lowest level such that every seal of the range has all its events of this level and of
    /// all higher levels.
    survives_from: Round,
    /// The claims of silence in private sums, if the caller gave any.
    claims: Option<Claims>,
    silences: Vec<(EpochNumber, Finding)>,
    seals: u64,
    signatures: u64,
    bytes: u64,
}

/// The data of an epoch: its manifests, and the number of its seals.
#[derive(Debug, Default)]
struct Epoch {
    sheets: Vec<Sheet>,
    /// The number of seals of the epoch, whether listed or not.
    seals: u64,
}

/// A manifest, and the results for the seals that it lists.
#[derive(Debug)]
struct Sheet {
    digest: Digest,
    round: Round,
    roster: Digest,
    /// The digests of the listed seals of each device, in ascending order.
    listed: BTreeMap<DeviceId, Vec<Digest>>,
    tally: Tally,
    seals: u64,
    doubts: Vec<Doubt>,
    findings: Vec<Finding>,
    overstated: Vec<(DeviceId, Round)>,
}

impl<'r> Audit<'r> {
    /// Creates an audit of a group's epochs `since .. until`. Without `until`, the audit includes
    /// all epochs from `since` on.
    ///
    /// # Errors
    /// [`NoBudget`] if the roster has no budget.
    pub fn new(
        roster: &'r Roster,
        since: EpochNumber,
        until: Option<EpochNumber>,
    ) -> Result<Self, NoBudget> {
        if !roster.has_budget() {
            return Err(NoBudget);
        }
        Ok(Self {
            roster,
            since,
            until,
            epochs: BTreeMap::new(),
            newest: None,
            listed_after: HashSet::new(),
            listed: 0,
            at: None,
            done: BTreeSet::new(),
            findings: BTreeMap::new(),
            survives_from: Round(0),
            claims: None,
            silences: Vec::new(),
            seals: 0,
            signatures: 0,
            bytes: 0,
        })
    }

    /// Starts a stream of items. The manifests must come first, followed by the seals, in one or
    /// several streams.
    #[must_use]
    pub fn stream(&mut self) -> Feed<'_, 'r> {
        Feed {
            reader: StreamReader::new(self.roster, Limits::default()).of_answer(),
            audit: self,
            items: Items::default(),
        }
    }

    /// Returns the lowest round such that every seal has all levels at and above it. This is the
    /// higher of two numbers: the highest round of the manifests, and the lowest level such that
    /// every seal still has its events of this level and of all higher levels.
    fn common_round(&self) -> Round {
        let rounds =
            self.epochs.values().flat_map(|epoch| epoch.sheets.iter().map(|sheet| sheet.round));
        rounds.max().unwrap_or(Round(0)).max(self.survives_from)
    }

    fn is_in_range(&self, epoch: EpochNumber) -> bool {
        (self.since..self.until.unwrap_or(EpochNumber(u64::MAX))).contains(&epoch)
    }

    /// Adds an authentic manifest. A manifest after the range shows that the coordinator has
    /// continued with later epochs, and which seals of these epochs it accepted.
    ///
    /// Once seals have arrived, manifests are ignored. A coordinator may sign a manifest while the
    /// audit reads one stream after the other. The seals of the earlier streams were not compared
    /// with it, so its round would seem to be wrong.
    fn manifest(&mut self, manifest: &Manifest<'_>) -> Result<(), Rejection> {
        let epoch = manifest.epoch();
        let Some(budget) = self.roster.budget(epoch).filter(|_| epoch >= self.since) else {
            return Err(Rejection::NotAsAsked { device: None, index: None });
        };
        if !self.done.is_empty() {
            return Ok(());
        }
        self.newest = self.newest.max(Some(epoch));
        if !self.is_in_range(epoch) {
            self.listed_after.extend(manifest.devices().flat_map(|(_, seals)| seals));
            return self.check_listed();
        }
        let sheets = &self.epochs.entry(epoch).or_default().sheets;
        if sheets.len() >= MAX_SHEETS
            || sheets.iter().any(|sheet| sheet.digest == manifest.digest())
        {
            return Ok(());
        }
        let listed = manifest.devices().map(|(device, seals)| {
            let mut seals: Vec<Digest> = seals.collect();
            seals.sort_unstable();
            (device, seals)
        });
        let listed: BTreeMap<DeviceId, Vec<Digest>> = listed.collect();
        self.listed = self.listed.saturating_add(listed.values().map(Vec::len).sum());
        self.check_listed()?;
        let levels = self.roster.levels(epoch);
        self.epochs.entry(epoch).or_default().sheets.push(Sheet {
            digest: manifest.digest(),
            round: manifest.round(),
            roster: manifest.roster(),
            listed,
            tally: Tally::new(levels, budget),
            seals: 0,
            doubts: Vec::new(),
            findings: Vec::new(),
            overstated: Vec::new(),
        });
        Ok(())
    }

    fn check_listed(&self) -> Result<(), Rejection> {
        if self.listed.saturating_add(self.listed_after.len()) > MAX_LISTED {
            return Err(Rejection::Stopped {
                name: "TooManySeals".into(),
                detail: "audit fewer epochs at once".into(),
            });
        }
        Ok(())
    }

    /// Returns whether a manifest of the seal's epoch lists the seal.
    fn is_listed(&self, statement: &Statement, digest: &Digest) -> bool {
        if !self.is_in_range(statement.epoch) {
            return self.listed_after.contains(digest);
        }
        let sheets = self.epochs.get(&statement.epoch).map_or(&[][..], |epoch| &epoch.sheets);
        sheets.iter().any(|sheet| sheet.lists(statement.device, digest))
    }

    /// Adds an authentic seal. The seals of a device must be consecutive, in ascending order of
    /// their indices.
    fn seal(&mut self, seal: &Seal<Authentic>) -> Result<(), Rejection> {
        let statement = seal.statement();
        let (device, index) = (statement.device, statement.index);
        if self.at.as_ref().is_none_or(|device_audit| device_audit.device() != device) {
            self.leave_device();
            if !self.done.insert(device) {
                return Err(Rejection::NotAsAsked { device: Some(device), index: Some(index) });
            }
            self.at = Some(self.device_audit(device));
        }
        let digest = seal.digest();
        let is_listed = self.is_listed(statement, &digest);
        let Some(device_audit) = &mut self.at else { return Ok(()) };
        if let Err(error) = device_audit.take(seal, is_listed, self.roster) {
            let (epoch, finding) = match error {
                Incomplete::Missing { index: missing, epoch, .. } => (
                    epoch.unwrap_or(statement.epoch),
                    Finding::Missing { device, index: missing, named_by: index },
                ),
                Incomplete::Equivocation { index, .. } => {
                    (statement.epoch, Finding::Equivocation { device, index })
                }
                _ => {
                    return Err(Rejection::NotAsAsked { device: Some(device), index: Some(index) });
                }
            };
            self.findings.entry(epoch).or_default().push(finding);
        }
        self.seals += 1;
        // Also compare the claims with seals after the range, because such a seal may state the
        // answers to an epoch in the range.
        if let Some(claims) = &mut self.claims {
            let found = claims.contradicted_by(statement);
            self.silences.extend(found.into_iter().map(|finding| (statement.epoch, finding)));
        }
        if !self.is_in_range(statement.epoch) {
            return Ok(());
        }
        let lacks = |level: &u8| {
            statement.counters.at(Level(*level)) > 0 && statement.is_null(Level(*level))
        };
        let survives_from =
            (0..statement.counters.levels()).rev().find(lacks).map_or(0, |level| level + 1);
        self.survives_from = self.survives_from.max(Round(survives_from));
        let epoch = self.epochs.entry(statement.epoch).or_default();
        epoch.seals += 1;
        for sheet in &mut epoch.sheets {
            if sheet.lists(device, &digest) {
                sheet.tally.add(seal);
                sheet.seals += 1;
                if statement.round > sheet.round {
                    sheet.overstated.push((device, statement.round));
                }
            }
        }
        Ok(())
    }

    /// Creates the audit of a device whose seals have not arrived yet.
    fn device_audit(&self, device: DeviceId) -> DeviceAudit {
        DeviceAudit::new(device, self.since, self.until.unwrap_or(EpochNumber(u64::MAX)))
    }

    /// Compares each manifest with the seals of the current device, once all of them have arrived.
    fn leave_device(&mut self) {
        let Some(device_audit) = self.at.take() else { return };
        let Self { epochs, newest, roster, .. } = self;
        let member = roster.device(device_audit.device());
        for (&number, epoch) in epochs.iter_mut() {
            let has_gone_on = newest.is_some_and(|newest| newest > number);
            for sheet in &mut epoch.sheets {
                let listed =
                    sheet.listed.get(&device_audit.device()).map_or(&[][..], Vec::as_slice);
                // A device that joins the group later, or was removed, is not absent.
                let is_member = member.is_none_or(|device| device.is_member_in(number));
                if !is_member && listed.is_empty() {
                    continue;
                }
                let Comparison { findings, doubts } =
                    device_audit.compare(number, listed, has_gone_on);
                sheet.findings.extend(findings);
                sheet.doubts.extend(doubts);
            }
        }
    }

    /// Ends the audit and returns its result.
    #[must_use]
    pub fn finish(mut self) -> Report {
        self.leave_device();
        // Also compare the manifests with the devices that have no seal.
        let silent: Vec<DeviceId> = self
            .roster
            .devices()
            .map(|device| device.id)
            .filter(|id| !self.done.contains(id))
            .collect();
        for device in silent {
            self.at = Some(self.device_audit(device));
            self.leave_device();
        }
        let Self { roster, newest, mut findings, .. } = self;
        let has_gone_on = |number: EpochNumber| newest.is_some_and(|newest| newest > number);
        let mut epochs = Vec::new();
        for (number, epoch) in self.epochs {
            let mut found = findings.remove(&number).unwrap_or_default();
            if epoch.sheets.len() > 1 {
                found.push(Finding::TwoManifests {
                    digests: epoch.sheets.iter().map(|sheet| sheet.digest).collect(),
                });
            }
            let seals = epoch.seals;
            if epoch.sheets.is_empty() {
                epochs.push(EpochReport::without_manifest(
                    number,
                    seals,
                    found,
                    has_gone_on(number),
                ));
            } else {
                epochs.extend(
                    epoch
                        .sheets
                        .into_iter()
                        .map(|sheet| sheet.report(number, seals, found.clone(), roster)),
                );
            }
        }
        // Report missing seals also for epochs that have neither a manifest nor a seal.
        let range = self.since..self.until.unwrap_or(EpochNumber(u64::MAX));
        for (number, found) in findings.into_iter().filter(|(number, _)| range.contains(number)) {
            epochs.push(EpochReport::without_manifest(number, 0, found, has_gone_on(number)));
        }
        epochs.sort_by_key(|epoch| epoch.epoch);
        let silences =
            self.claims.map(|claims| Silences { claims: claims.count(), findings: self.silences });
        let newest = epochs.last().map_or(self.since, |epoch| epoch.epoch);
        Report {
            budget: roster.budget(newest).unwrap_or(0),
            epochs,
            silences,
            seals: self.seals,
            signatures: self.signatures,
            bytes: self.bytes,
            cloud_roster: None,
        }
    }
}

impl Sheet {
    /// Returns whether the manifest lists a seal.
    fn lists(&self, device: DeviceId, seal: &Digest) -> bool {
        self.listed.get(&device).is_some_and(|listed| listed.binary_search(seal).is_ok())
    }

    /// Returns the result for the epoch of this manifest.
    fn report(
        mut self,
        epoch: EpochNumber,
        seals: u64,
        mut findings: Vec<Finding>,
        roster: &Roster,
    ) -> EpochReport {
        findings.append(&mut self.findings);
        // If the manifest lists a missing seal, the coordinator did not drop it. The doubt
        // `Withheld` is then enough.
        let withheld: BTreeSet<(DeviceId, SealIndex)> =
            self.doubts.iter().filter_map(Doubt::withheld).collect();
        findings.retain(|finding| match *finding {
            Finding::Missing { device, index, .. } => !withheld.contains(&(device, index)),
            _ => true,
        });
        let is_current = self.roster == roster.digest();
        if roster.version_of(&self.roster).is_none() {
            self.doubts.push(Doubt::UnknownRoster { digest: self.roster });
        }
        for (&device, listed) in
            self.listed.iter().filter(|(device, _)| roster.device(**device).is_none())
        {
            if is_current {
                findings.push(Finding::InventedDevice { device, seals: listed.len() });
            } else {
                self.doubts.push(Doubt::Absent { device, listed: true });
            }
        }
        let missing = self.doubts.iter().any(Doubt::may_have_had_more);
        let restarted = self.doubts.iter().any(|doubt| matches!(doubt, Doubt::Restarted { .. }));
        let due = self.tally.due();
        let checked = self.tally.verdict(self.round, sample::Doubt { missing, restarted });
        if let sample::Verdict::Unjustified(found) = checked {
            findings.push(Finding::Round { found, devices: std::mem::take(&mut self.overstated) });
        }
        let mut counts = [0; MAX_LEVELS];
        for level in 0..roster.levels(epoch) {
            counts[usize::from(level)] =
                self.tally.from_round(Round(level)) - self.tally.from_round(Round(level + 1));
        }
        EpochReport {
            epoch,
            manifest: Some((self.digest, self.round)),
            due: Some(due),
            kept: self.tally.from_round(self.round),
            counts: (0..roster.levels(epoch))
                .map(|level| (Level(level), counts[usize::from(level)]))
                .collect(),
            devices: self.listed.len(),
            listed: self.seals,
            seals,
            is_justified: checked == sample::Verdict::Justified && findings.is_empty(),
            findings,
            doubts: self.doubts,
        }
    }
}

/// Receives the bytes of one stream of an audit, in chunks of any size.
#[derive(Debug)]
pub struct Feed<'a, 'r> {
    audit: &'a mut Audit<'r>,
    reader: StreamReader<'r, Roster>,
    items: Items,
}

/// The items of a stream that have arrived.
#[derive(Debug, Default)]
struct Items {
    /// Whether there was a seal. No manifest may follow it.
    have_seals: bool,
    /// Whether there was an end item.
    have_ended: bool,
}

impl<'r> Feed<'_, 'r> {
    /// Adds the next bytes of the stream.
    ///
    /// # Errors
    /// [`Rejection`] if a manifest or a seal is not authentic, or was not requested.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), Rejection> {
        let Self { audit, reader, items } = self;
        audit.bytes += bytes.len() as u64;
        reader.feed::<Rejection>(bytes, &mut |event| items.take(audit, &event))
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// [`Rejection`]. Its name is `Truncated` if the stream has no end item.
    pub fn finish(self) -> Result<(), Rejection> {
        let Self { audit, reader, mut items } = self;
        reader.finish::<Rejection>(&mut |event| items.take(audit, &event))?;
        if items.have_ended { Ok(()) } else { Err(Rejection::Unended) }
    }

    /// Returns the parts of the run that was not proven. The caller can compare them with an
    /// explanation.
    #[must_use]
    pub fn suspects(&self) -> &[moteseal_verify::Suspect] {
        self.reader.suspects()
    }
}

impl Items {
    fn take(&mut self, audit: &mut Audit<'_>, event: &Event<'_>) -> Result<(), Rejection> {
        match event {
            Event::Manifest(manifest, _) if self.have_seals => {
                Err(Rejection::ManifestNotAsAsked { epoch: manifest.epoch() })
            }
            Event::Manifest(manifest, _) => audit.manifest(manifest),
            Event::Proven(proven) => {
                self.have_seals = true;
                audit.signatures += u64::from(proven.part.signature.is_some());
                audit.seal(proven.seal)
            }
            Event::End => {
                self.have_ended = true;
                Ok(())
            }
            Event::Problem(name, detail) => Err(Rejection::stopped(name, detail)),
            Event::Proof(_) | Event::Explain(..) | Event::Sanitised(..) => {
                Err(Rejection::NotAsAsked { device: None, index: None })
            }
        }
    }
}
