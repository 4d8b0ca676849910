//! Checks the events of a stream: they must be the events that the query selects, no selected event
//! may be missing, and the cloud must not have been able to choose the selected events. A redacted
//! proof has no query: its events are authentic, and their selection is not checked.
//!
//! For a rate, each part is checked separately. For *at most* and *sample*, the parts of an epoch
//! are held until the last part has arrived, because the selection depends on all of them. If the
//! cloud does not serve the last part of an epoch, no rows of it are returned. In a group with a
//! budget, the selection also depends on the epoch's round, which comes from the manifest and not
//! from the levels that the store has.

mod asked_columns;
mod device_check;
mod held_epoch;
mod manifests;
mod redacted_chain;

use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_lanes::Recall;
use moteseal_seal::sample::{Choice, UniformSample};
use moteseal_seal::stream::Select;
use moteseal_seal::{Authentic, Seal, Statement};
use moteseal_verify::sanitised::WaitingStatements;
use moteseal_verify::{Event, Proven, Roster, Sanitised, SchemaEntry};
use std::sync::Arc;

use crate::completeness::Report;
use crate::decrypt::{KeySource, PartColumns};
use crate::error::{OutputError, Stop};
use crate::pinned::{PinnedSeal, PinnedSeals, digest};
use crate::proof_scope::Scope;
use crate::rejection::Rejection;
use crate::rows::{Determined, Replaced, Rows, Sink};
use crate::sanitised::{Accepted, Combined, groups, refused, with_new_types};
use asked_columns::AskedColumns;
use device_check::DeviceCheck;
use held_epoch::HeldEpoch;
use manifests::Manifests;

/// Checks the events of one stream.
#[derive(Debug)]
pub(crate) struct Checker<'r> {
    roster: &'r Roster,
    engine: Recall,
    /// What the stream must show. For a proof, it is `None` until the first item has arrived.
    scope: Option<Scope>,
    pinned: Option<PinnedSeals>,
    /// Whether the stream is the response of a store. Otherwise it is a saved proof.
    live: bool,
    /// The current device: its position in the scope, and its check.
    at: Option<(usize, DeviceCheck)>,
    /// The number of devices of the scope whose checks are finished.
    done: usize,
    held: HeldEpoch,
    /// The seals of which the query names readings, and which have not arrived yet.
    named: Vec<SealIndex>,
    manifests: Manifests,
    asked: AskedColumns,
    keys: KeySource<'r>,
    accepted: Accepted,
    statements: WaitingStatements,
    report: Report,
    newest: Vec<(DeviceId, PinnedSeal)>,
    ended: bool,
}

impl<'r> Checker<'r> {
    pub(crate) fn new(
        roster: &'r Roster,
        engine: Recall,
        scope: Option<Scope>,
        pinned: Option<&PinnedSeals>,
    ) -> Self {
        Self {
            roster,
            engine,
            live: scope.is_some(),
            pinned: pinned.cloned(),
            at: None,
            done: 0,
            held: HeldEpoch::default(),
            named: scope.as_ref().map(named).unwrap_or_default(),
            scope,
            manifests: Manifests::new(roster),
            asked: AskedColumns::default(),
            keys: KeySource::NONE,
            accepted: Accepted::None,
            statements: WaitingStatements::default(),
            report: Report::default(),
            newest: Vec::new(),
            ended: false,
        }
    }

    /// Sets the keys that decrypt columns.
    pub(crate) fn with_keys(self, keys: KeySource<'r>) -> Self {
        Self { keys, ..self }
    }

    /// Sets the sanitisers whose values are accepted.
    pub(crate) fn accepting(self, accepted: Accepted) -> Self {
        Self { accepted, ..self }
    }

    pub(crate) const fn scope(&self) -> Option<&Scope> {
        self.scope.as_ref()
    }

    pub(crate) const fn count_bytes(&mut self, bytes: usize) {
        self.report.bytes += bytes as u64;
    }

    pub(crate) fn event(&mut self, event: Event<'_>, sink: &mut dyn Sink) -> Result<(), Stop> {
        match event {
            Event::Proof(text) if self.scope.is_none() => Ok(self.read_scope(text)?),
            Event::Proven(proven) => self.part(proven, sink),
            Event::Sanitised(signed, cells) => {
                let pushed = self.statements.push((signed, cells), self.roster);
                Ok(pushed.map_err(Rejection::from)?)
            }
            Event::End => {
                self.statements.finish().map_err(Rejection::from)?;
                self.leave_device(sink)?;
                self.pass_over(self.scope.as_ref().map_or(0, |scope| scope.devices().len()))?;
                self.ended = true;
                Ok(())
            }
            Event::Problem(name, detail) => Err(Rejection::stopped(name, detail).into()),
            Event::Manifest(manifest, _) => {
                self.report.signatures += 1;
                // The scope is known here, because the reader accepts nothing before it.
                Ok(self
                    .scope
                    .as_ref()
                    .map_or(Ok(()), |scope| self.manifests.take(&manifest, scope))?)
            }
            Event::Proof(_) | Event::Explain(..) => {
                let device = self.at.as_ref().map(|(_, check)| check.device());
                Err(Rejection::NotAsAsked { device, index: None }.into())
            }
        }
    }

    pub(crate) fn finish(mut self) -> Result<(Report, Vec<(DeviceId, PinnedSeal)>), Stop> {
        let Some(scope) = &self.scope else {
            return Err(Rejection::NotAProof { cause: "the file is empty".into() }.into());
        };
        if !self.ended {
            return Err(Rejection::Unended.into());
        }
        self.report.rounds = self.manifests.rounds().collect();
        self.report.is_redacted = scope.is_redacted();
        if !scope.is_redacted() {
            let newest = scope.range().1.map_or(u64::MAX, |until| until.0.saturating_sub(1));
            self.report.budget = self.roster.budget(EpochNumber(newest));
        }
        Ok((self.report, self.newest))
    }

    /// Reads the first item of a proof, which contains its scope and the roster under which the proof
    /// was made.
    fn read_scope(&mut self, text: &str) -> Result<(), Rejection> {
        let (scope, roster) =
            Scope::decode(text).map_err(|cause| Rejection::NotAProof { cause })?;
        if let Some(roster) = roster {
            let known =
                digest(&roster).is_some_and(|digest| self.roster.version_of(&digest).is_some());
            if !known {
                return Err(Rejection::UnknownRoster { digest: roster });
            }
        }
        self.named = named(&scope);
        self.scope = Some(scope);
        Ok(())
    }

    fn part(&mut self, proven: Proven<'_>, sink: &mut dyn Sink) -> Result<(), Stop> {
        let statement = proven.seal.statement();
        self.report.signatures += u64::from(proven.part.signature.is_some());
        self.manifests.begun();
        self.go_to(statement, sink)?;
        let (Some((_, check)), Some(scope)) = (&mut self.at, &self.scope) else { return Ok(()) };
        let (device, index) = (statement.device, statement.index);
        let sanitised = self.statements.take(&proven, self.roster).map_err(refused(&proven))?;
        self.report.signatures += sanitised.len() as u64;
        let in_range = check.take(proven.seal, self.roster)?;
        if self.held.holds_other_than(statement.epoch) {
            self.held.release(
                Some(proven.seal),
                scope.choice(),
                &mut RowOutlet {
                    roster: self.roster,
                    engine: &self.engine,
                    manifests: &self.manifests,
                    asked: &self.asked,
                    keys: self.keys.reborrow(),
                    check,
                    sink,
                },
            )?;
        }
        if !in_range {
            // The seal after the range shows that no seal is missing at the end of the range, or, in
            // a redacted proof, leads to a signature. Its events were not requested.
            return match proven.part.select {
                Select::Levels(0) => Ok(()),
                _ => Err(Rejection::NotAsAsked { device: Some(device), index: Some(index) }.into()),
            };
        }
        if self.manifests.shown(device, statement.epoch, proven.seal.digest()) {
            check.count_late();
        }
        if let Scope::Answer(query) = scope {
            self.asked.check(query, &proven, groups(&sanitised))?;
        }
        self.accepted.check(&proven, &sanitised)?;
        let refuse = |error| Rejection::Choice { error, device, index };
        let uniform;
        let events = match scope.choice() {
            Some(choice @ Choice::Rate(rate)) => {
                uniform =
                    UniformSample::by_rate(proven.sample, proven.seal, rate).map_err(refuse)?;
                Determined::Uniform(&uniform, choice)
            }
            Some(Choice::Readings(readings)) => {
                self.named.retain(|named| *named != index);
                proven.sample.check_named(proven.seal, &readings).map_err(refuse)?;
                Determined::Chosen(&proven.sample)
            }
            Some(Choice::AtMost(_) | Choice::Sample { .. }) => {
                return Ok(self.held.hold(proven, sanitised)?);
            }
            None => Determined::Chosen(&proven.sample),
        };
        let mut outlet = RowOutlet {
            roster: self.roster,
            engine: &self.engine,
            manifests: &self.manifests,
            asked: &self.asked,
            keys: self.keys.reborrow(),
            check,
            sink,
        };
        outlet.emit(proven.seal, events, proven.schema, &sanitised)
    }

    /// Continues with the device of a seal, which must be the current device or a later device of
    /// the scope.
    fn go_to(&mut self, statement: &Statement, sink: &mut dyn Sink) -> Result<(), Stop> {
        if self.at.as_ref().is_some_and(|(_, check)| check.device() == statement.device) {
            return Ok(());
        }
        self.leave_device(sink)?;
        let Some(scope) = &self.scope else { return Ok(()) };
        let asked = scope
            .devices()
            .iter()
            .enumerate()
            .skip(self.done)
            .find(|(_, device)| **device == statement.device);
        let not_asked =
            Rejection::NotAsAsked { device: Some(statement.device), index: Some(statement.index) };
        let place = asked.ok_or(not_asked)?.0;
        self.pass_over(place)?;
        if let Some(check) = self.check(place) {
            self.at = Some((place, check));
        }
        Ok(())
    }

    fn leave_device(&mut self, sink: &mut dyn Sink) -> Result<(), Stop> {
        let (Some((place, mut check)), Some(scope)) = (self.at.take(), &self.scope) else {
            return Ok(());
        };
        let manifests = &self.manifests;
        let mut outlet = RowOutlet {
            roster: self.roster,
            engine: &self.engine,
            manifests,
            asked: &self.asked,
            keys: self.keys.reborrow(),
            check: &mut check,
            sink,
        };
        self.held.release(None, scope.choice(), &mut outlet)?;
        self.done = place + 1;
        self.close(check)?;
        Ok(())
    }

    /// Finishes the checks of the scope's devices before position `place` that are not finished
    /// yet. The response contains no seals of these devices.
    fn pass_over(&mut self, place: usize) -> Result<(), Rejection> {
        while self.done < place {
            if let Some(check) = self.check(self.done) {
                self.close(check)?;
            }
            self.done += 1;
        }
        Ok(())
    }

    fn check(&self, place: usize) -> Option<DeviceCheck> {
        let scope = self.scope.as_ref()?;
        let device = *scope.devices().get(place)?;
        let pinned = self.pinned.as_ref().and_then(|pinned| pinned.of(self.roster, device));
        Some(DeviceCheck::new(device, scope, pinned, self.live))
    }

    fn close(&mut self, check: DeviceCheck) -> Result<(), Rejection> {
        let device = check.device();
        let name = self.roster.name(device).map_or_else(|| device.to_string(), str::to_owned);
        let (report, newest) = check.finish(name, self.roster)?;
        self.manifests.all_shown(device)?;
        if let Some(index) = self.named.first() {
            return Err(Rejection::NotAsAsked { device: Some(device), index: Some(*index) });
        }
        self.newest.extend(newest.map(|newest| (device, newest)));
        self.report.devices.push(report);
        Ok(())
    }
}

/// Returns the seals of which a query names readings, in ascending order.
fn named(scope: &Scope) -> Vec<SealIndex> {
    let Some(Choice::Readings(readings)) = scope.choice() else { return Vec::new() };
    let mut named: Vec<SealIndex> = readings.runs().iter().map(|run| run.index).collect();
    named.dedup();
    named
}

/// The destination of the checked parts of a device.
struct RowOutlet<'j> {
    roster: &'j Roster,
    engine: &'j Recall,
    manifests: &'j Manifests,
    asked: &'j AskedColumns,
    keys: KeySource<'j>,
    check: &'j mut DeviceCheck,
    sink: &'j mut dyn Sink,
}

impl RowOutlet<'_> {
    /// Decrypts the columns of a part for which there are keys, passes the rows to the sink, and counts
    /// them.
    fn emit(
        &mut self,
        seal: &Seal<Authentic>,
        events: Determined<'_>,
        schema: &Arc<SchemaEntry>,
        sanitised: &[Sanitised],
    ) -> Result<(), Stop> {
        let statement = seal.statement();
        let name = self.roster.name(statement.device).unwrap_or_default();
        let start_ms = self.roster.epoch_start_ms(statement.epoch);
        let access = PartColumns::of_seal(seal, schema, self.keys.reborrow());
        let decrypted =
            access.decrypt(schema, events.sample(), self.engine).map_err(|(seq, error)| {
                let (device, index) = (statement.device, statement.index);
                Rejection::Plaintext { error, device, index, seq }
            })?;
        let presented = with_new_types(&self.asked.presented(schema), sanitised);
        let combined = self.combined((schema, sanitised), events, decrypted.as_deref())?;
        let replaced = match &combined {
            Some(combined) => Some(Replaced::Combined(&combined.records, combined.entry.framing)),
            None => decrypted.as_deref().map(Replaced::Decrypted),
        };
        let rows = Rows {
            name,
            statement,
            start_ms,
            events,
            stored: schema,
            schema: &presented,
            asked: self.asked.names(),
            engine: self.engine,
            access: &access,
            replaced,
            combined: combined.as_ref(),
        };
        self.sink.rows(&rows)?;
        self.check.count(&rows);
        Ok(())
    }

    /// Returns the records in which the cells of sanitised groups stand, if there are such groups.
    fn combined<'s>(
        &self,
        (schema, sanitised): (&SchemaEntry, &'s [Sanitised]),
        events: Determined<'_>,
        decrypted: Option<&[u8]>,
    ) -> Result<Option<Combined<'s>>, Stop> {
        if sanitised.is_empty() {
            return Ok(None);
        }
        let mut rest = decrypted;
        let each_record = |each: &mut dyn FnMut(&[u8])| {
            events.sample().for_each(self.engine, |_, _, sealed| match &mut rest {
                Some(decrypted) => {
                    let split = decrypted.split_at_checked(sealed.len()).unwrap_or_default();
                    *decrypted = split.1;
                    each(split.0);
                }
                None => each(sealed),
            });
        };
        let combined = Combined::new(schema, sanitised, each_record);
        Ok(Some(combined.map_err(OutputError::of)?))
    }
}
