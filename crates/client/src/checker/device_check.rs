//! One device's check through an answer: its history, what we remember of it, and what is counted on the way.

use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_seal::{Authentic, History, Incomplete, Seal, Statement};

use crate::completeness::{DeviceReport, Outage, Standing};
use crate::pinned::PinnedSeal;
use crate::rejection::Rejection;

/// More outages than these are counted but not listed.
const MAX_OUTAGES: usize = 256;

#[derive(Debug)]
pub(super) struct DeviceCheck {
    device: DeviceId,
    since: EpochNumber,
    until: Option<EpochNumber>,
    history: History,
    pinned: Option<PinnedSeal>,
    /// Whether this is an answer from a store now, and not one that was kept: only that may be held to what came later.
    live: bool,
    newest: Option<PinnedSeal>,
    last_epoch: Option<EpochNumber>,
    /// The first epoch that could not be outlet for want of its manifest.
    unmanifested: Option<EpochNumber>,
    report: DeviceReport,
}

impl DeviceCheck {
    /// `live` says that a store answers now. What was kept is as old as it is: that the device has sealed more since is no fault of
    /// it.
    pub(super) fn new(
        device: DeviceId,
        (since, until): (EpochNumber, Option<EpochNumber>),
        pinned: Option<PinnedSeal>,
        live: bool,
    ) -> Self {
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
            standing: Standing::Complete,
            newer: None,
        };
        let history = History::new(device, since, until.unwrap_or(EpochNumber(u64::MAX)));
        Self {
            device,
            since,
            until,
            history,
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

    /// Counts a part that was outlet, and its rows that were handed out.
    pub(super) fn count(&mut self, statement: &Statement, rows: u32) {
        self.report.rows += u64::from(rows);
        self.report.seals += 1;
        self.report.epochs += u64::from(self.last_epoch != Some(statement.epoch));
        self.last_epoch = Some(statement.epoch);
        self.report.events += statement.counters.total();
        self.report.lost += statement.lost.map_or(0, |lost| lost.total());
        if statement.restart && self.report.outages.len() < MAX_OUTAGES {
            let from = statement.last.map(|(_, epoch)| epoch);
            self.report.outages.push(Outage { from, to: statement.epoch, index: statement.index });
        }
    }

    /// Counts a seal that its epoch's manifest does not list.
    pub(super) const fn count_late(&mut self) {
        self.report.late += 1;
    }

    /// Takes note of an epoch that cannot be outlet, for there is no manifest of it.
    pub(super) fn without_manifest(&mut self, epoch: EpochNumber) {
        self.unmanifested.get_or_insert(epoch);
    }

    /// Takes the next seal of the answer, and says whether its events are in the range.
    pub(super) fn take(&mut self, seal: &Seal<Authentic>) -> Result<bool, Rejection> {
        let here = PinnedSeal {
            index: seal.statement().index,
            epoch: seal.statement().epoch,
            digest: seal.digest(),
        };
        if let Some(known) = self.pinned {
            self.agree(seal, &here, &known)?;
        }
        let in_range = self.history.next(seal).map_err(|error| refusal(&error))?;
        self.newest = Some(here);
        Ok(in_range)
    }

    /// Whether a seal can stand in one history with the one that is pinned: where they cannot, the device signed two. Of the
    /// seals of one answer the [`History`] says so.
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
            // The seal names as its predecessor one before a seal that the device has signed as well.
            _ => parted,
        }
    }

    /// Ends the device's part of the answer.
    pub(super) fn finish(
        self,
        name: String,
    ) -> Result<(DeviceReport, Option<PinnedSeal>), Rejection> {
        let beyond = |known: &PinnedSeal| {
            let reached = self.newest.is_some_and(|newest| newest.index >= known.index);
            !reached && known.epoch >= self.since && self.history.tail().is_some()
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
        let standing = match self.history.finish() {
            Ok(_) => Standing::Complete,
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
        // Incomplete may grow; what it says is then that something was not as asked.
        Incomplete::TailUnknown { device, .. } => {
            Rejection::NotAsAsked { device: Some(device), index: None }
        }
        _ => Rejection::NotAsAsked { device: None, index: None },
    }
}
