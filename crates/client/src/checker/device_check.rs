//! Checks the seals of one device in a response against the device's history and the pinned seal,
//! and counts them for the report.

use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_seal::sample::Choice;
use moteseal_seal::{Authentic, History, Incomplete, Seal};
use moteseal_verify::Roster;

use super::redacted_chain::RedactedChain;
use crate::completeness::{DeviceReport, Omission, Outage, Redaction, SanitisedColumn, Standing};
use crate::decrypt::WithheldColumn;
use crate::pinned::PinnedSeal;
use crate::proof_scope::Scope;
use crate::rejection::Rejection;
use crate::rows::Rows;
use crate::sanitised::Origin;

/// The maximum number of restarts that the report lists.
const MAX_OUTAGES: usize = 256;
/// The maximum number of withheld columns, with one reason each, that the report lists.
const MAX_WITHHELD: usize = 256;
/// The maximum number of seals with omitted readings that the report lists.
const MAX_OMISSIONS: usize = 256;

/// The seals of the device so far.
#[derive(Debug)]
enum Chain {
    /// No seal may be missing.
    Whole(History),
    Redacted(RedactedChain),
}

#[derive(Debug)]
pub(super) struct DeviceCheck {
    device: DeviceId,
    since: EpochNumber,
    until: Option<EpochNumber>,
    chain: Chain,
    pinned: Option<PinnedSeal>,
    /// Whether the seals are from the response of a store. Otherwise they are from a proof. A
    /// response must contain the pinned seal; a proof may be older than the pinned seal.
    live: bool,
    newest: Option<PinnedSeal>,
    last_epoch: Option<EpochNumber>,
    /// The first epoch that could not be checked because its manifest is missing.
    unmanifested: Option<EpochNumber>,
    report: DeviceReport,
}

impl DeviceCheck {
    /// Creates the check of a device. `live` states whether the seals are from the response of a
    /// store; a proof may be older than the pinned seal.
    pub(super) fn new(
        device: DeviceId,
        scope: &Scope,
        pinned: Option<PinnedSeal>,
        live: bool,
    ) -> Self {
        let (since, until) = scope.range();
        let report = DeviceReport {
            device,
            name: String::new(),
            since,
            until,
            seals: 0,
            epochs: 0,
            events: 0,
            rows: 0,
            lost: 0,
            late: 0,
            outages: Vec::new(),
            withheld: Vec::new(),
            sanitised: Vec::new(),
            is_named: !live && matches!(scope.choice(), Some(Choice::Readings(_))),
            redaction: scope.is_redacted().then(Redaction::default),
            standing: Standing::Complete,
            newer: None,
        };
        let chain = if scope.is_redacted() {
            Chain::Redacted(RedactedChain::new(device, (since, until)))
        } else {
            Chain::Whole(History::new(device, since, until.unwrap_or(EpochNumber(u64::MAX))))
        };
        Self {
            device,
            since,
            until,
            chain,
            pinned,
            live,
            newest: None,
            last_epoch: None,
            unmanifested: None,
            report,
        }
    }

    pub(super) const fn device(&self) -> DeviceId {
        self.device
    }

    /// Counts a checked part, and the rows that were passed to the sink.
    pub(super) fn count(&mut self, rows: &Rows<'_>) {
        let (statement, number) = (rows.statement(), u64::from(rows.len()));
        self.report.rows += number;
        self.report.seals += 1;
        self.report.epochs += u64::from(self.last_epoch != Some(statement.epoch));
        self.last_epoch = Some(statement.epoch);
        self.report.events += statement.counters.total();
        self.report.lost += statement.lost.map_or(0, |lost| lost.total());
        if statement.restart && self.report.outages.len() < MAX_OUTAGES {
            let from = statement.last.map(|(_, epoch)| epoch);
            self.report.outages.push(Outage { from, to: statement.epoch, index: statement.index });
        }
        if rows.schema().encrypted > 0 || !rows.stored.hidden().is_empty() {
            self.count_withheld(rows, number);
        }
        if rows.is_sanitised() {
            self.count_sanitised(rows, number);
        }
        if let Some(redaction) = &mut self.report.redaction {
            let kept = u64::from(statement.counters.masked(statement.surviving()));
            let omitted = kept.saturating_sub(number);
            redaction.omitted += omitted;
            if omitted > 0 && redaction.seals.len() < MAX_OMISSIONS {
                let (index, epoch) = (statement.index, statement.epoch);
                redaction.seals.push(Omission { index, epoch, shown: number, omitted });
            }
        }
    }

    /// Counts the columns of a part whose cells are null because their keys are missing.
    fn count_withheld(&mut self, rows: &Rows<'_>, number: u64) {
        let known = &mut self.report.withheld;
        for column in rows.columns() {
            let (name, Some(reason)) = (column.field().name, column.withheld()) else { continue };
            if let Some(of) = known.iter_mut().find(|of| of.column == name && of.reason == reason) {
                of.seals += 1;
                of.rows += number;
            } else if known.len() < MAX_WITHHELD {
                let column = name.to_owned();
                known.push(WithheldColumn { column, reason, seals: 1, rows: number });
            }
        }
    }

    /// Counts the columns of a part that sanitisers replaced.
    fn count_sanitised(&mut self, rows: &Rows<'_>, number: u64) {
        let known = &mut self.report.sanitised;
        for column in rows.columns() {
            let Origin::Sanitised { by, policy } = column.origin() else { continue };
            let name = column.field().name;
            let is_same = |of: &&mut SanitisedColumn| {
                (&*of.column, &*of.by, &*of.policy) == (name, by, policy)
            };
            if let Some(of) = known.iter_mut().find(is_same) {
                of.rows += number;
            } else if known.len() < MAX_WITHHELD {
                let [column, by, policy] = [name, by, policy].map(str::to_owned);
                known.push(SanitisedColumn { column, by, policy, rows: number });
            }
        }
    }

    /// Counts a seal that is late: the manifest of its epoch does not list it.
    pub(super) const fn count_late(&mut self) {
        self.report.late += 1;
    }

    /// Records that an epoch cannot be checked because its manifest is missing.
    pub(super) fn without_manifest(&mut self, epoch: EpochNumber) {
        self.unmanifested.get_or_insert(epoch);
    }

    /// Checks the next seal of the response. Returns whether its epoch is in the queried range.
    pub(super) fn take(
        &mut self,
        seal: &Seal<Authentic>,
        roster: &Roster,
    ) -> Result<bool, Rejection> {
        let here = PinnedSeal {
            index: seal.statement().index,
            epoch: seal.statement().epoch,
            digest: seal.digest(),
            roster: roster.version_of(&seal.statement().roster),
        };
        if let Some(known) = self.pinned {
            self.agree(seal, &here, &known)?;
        }
        let in_range = match &mut self.chain {
            Chain::Whole(history) => {
                history.next_under(seal, roster).map_err(|error| refusal(&error))?
            }
            Chain::Redacted(chain) => chain.take(seal, roster)?,
        };
        self.newest = Some(here);
        Ok(in_range)
    }

    /// Checks that a seal and the pinned seal can belong to the same history. If they cannot, the
    /// device signed two histories. [`History`] compares the seals of one response with each other.
    fn agree(
        &self,
        seal: &Seal<Authentic>,
        here: &PinnedSeal,
        known: &PinnedSeal,
    ) -> Result<(), Rejection> {
        let statement = seal.statement();
        let parted = Err(Rejection::Equivocation { device: self.device, index: known.index });
        if here.index == known.index {
            return if here.digest == known.digest { Ok(()) } else { parted };
        }
        if here.index < known.index {
            return if here.epoch > known.epoch { parted } else { Ok(()) };
        }
        if here.epoch < known.epoch {
            return parted;
        }
        match statement.last {
            Some((before, _)) if before == known.index && statement.prev != known.digest => parted,
            Some((before, _)) if before >= known.index => Ok(()),
            // The seal's chain leaves out the pinned seal, which the device also signed.
            _ => parted,
        }
    }

    /// Ends the check of the device. Returns the report and the newest seal of the device.
    pub(super) fn finish(
        self,
        name: String,
        roster: &Roster,
    ) -> Result<(DeviceReport, Option<PinnedSeal>), Rejection> {
        let ends = match &self.chain {
            Chain::Whole(history) => history.tail().is_none(),
            Chain::Redacted(_) => false,
        };
        let beyond = |known: &PinnedSeal| {
            let reached = self.newest.is_some_and(|newest| newest.index >= known.index);
            !reached && known.epoch >= self.since && !ends
        };
        let newer = self.pinned.filter(beyond);
        if let Some(PinnedSeal { index, epoch, .. }) = newer.filter(|_| self.live) {
            return Err(Rejection::Missing {
                device: self.device,
                index,
                epoch: Some(epoch),
                pinned: true,
            });
        }
        let newer = newer.map(|known| (known.index, known.epoch));
        let history = match self.chain {
            Chain::Whole(history) => history,
            Chain::Redacted(chain) => {
                let redaction = self.report.redaction.unwrap_or_default();
                let redaction = Some(Redaction { gaps: chain.gaps, ..redaction });
                let standing = Standing::Redacted;
                let report = DeviceReport { name, standing, newer, redaction, ..self.report };
                return Ok((report, self.newest));
            }
        };
        let standing = match history.finish() {
            Ok(_) => Standing::Complete,
            // A device whose keys have all ended cannot have sealed more.
            Err(Incomplete::TailUnknown { from, .. })
                if self.until.is_some_and(|until| {
                    let after = self.newest.map(|newest| newest.index);
                    let device = roster.device(self.device);
                    device.is_some_and(|device| !device.can_seal(after, from, until))
                }) =>
            {
                Standing::Complete
            }
            Err(Incomplete::TailUnknown { from, .. }) => Standing::TailUnknown { from },
            Err(error) => return Err(refusal(&error)),
        };
        debug_assert!(self.until.is_some() || matches!(standing, Standing::TailUnknown { .. }));
        let standing = match (standing, self.unmanifested) {
            (Standing::TailUnknown { from }, Some(epoch)) if from <= epoch => standing,
            (_, Some(from)) => Standing::ManifestMissing { from },
            (_, None) => standing,
        };
        Ok((DeviceReport { name, standing, newer, ..self.report }, self.newest))
    }
}

fn refusal(error: &Incomplete) -> Rejection {
    match *error {
        Incomplete::Missing { device, index, epoch } => {
            Rejection::Missing { device, index, epoch, pinned: false }
        }
        Incomplete::Equivocation { device, index } => Rejection::Equivocation { device, index },
        Incomplete::NotAsAsked { device, index } => {
            Rejection::NotAsAsked { device: Some(device), index: Some(index) }
        }
        Incomplete::TailUnknown { device, .. } => {
            Rejection::NotAsAsked { device: Some(device), index: None }
        }
        // The wildcard arm is needed because `Incomplete` is non-exhaustive.
        _ => Rejection::NotAsAsked { device: None, index: None },
    }
}
