//! Checks the events of a stream: they must be the events that the query selects, no selected event
//! may be missing, and the cloud must not have been able to choose the selected events.
//!
//! For a rate, each part is checked separately. For *at most* and *sample*, the parts of an epoch
//! are held until the last part has arrived, because the selection depends on all of them. If the
//! cloud does not serve the last part of an epoch, no rows of it are returned. In a group with a
//! budget, the selection also depends on the epoch's round, which comes from the manifest and not
//! from the levels that the store has.

mod device_check;
mod held_epoch;
mod manifests;

use moteseal_api::Query;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_lanes::Recall;
use moteseal_seal::sample::{Choice, UniformSample};
use moteseal_seal::stream::Select;
use moteseal_seal::{Authentic, Seal, Statement};
use moteseal_verify::{Event, Proven, Roster, SchemaEntry};
use std::sync::Arc;

use crate::completeness::Report;
use crate::decrypt::{KeySource, PartColumns};
use crate::error::Stop;
use crate::pinned::{PinnedSeal, PinnedSeals, digest};
use crate::rejection::Rejection;
use crate::rows::{Rows, Sink};
use device_check::DeviceCheck;
use held_epoch::HeldEpoch;
use manifests::Manifests;

/// Checks the events of one stream.
#[derive(Debug)]
pub(crate) struct Checker<'r> {
    roster: &'r Roster,
    engine: Recall,
    /// The query. For a proof, it is `None` until the first item has arrived.
    query: Option<Query>,
    pinned: Option<PinnedSeals>,
    /// Whether the stream is the response of a store. Otherwise it is a saved proof.
    live: bool,
    /// The current device: its position in the query, and its check.
    at: Option<(usize, DeviceCheck)>,
    /// The number of devices of the query whose checks are finished.
    done: usize,
    held: HeldEpoch,
    /// The seals of which the query names readings, and which have not arrived yet.
    named: Vec<SealIndex>,
    manifests: Manifests,
    keys: KeySource<'r>,
    report: Report,
    newest: Vec<(DeviceId, PinnedSeal)>,
    ended: bool,
}

impl<'r> Checker<'r> {
    pub(crate) fn new(
        roster: &'r Roster,
        engine: Recall,
        query: Option<Query>,
        pinned: Option<&PinnedSeals>,
    ) -> Self {
        Self {
            roster,
            engine,
            live: query.is_some(),
            pinned: pinned.cloned(),
            at: None,
            done: 0,
            held: HeldEpoch::default(),
            named: query.as_ref().map(named).unwrap_or_default(),
            query,
            manifests: Manifests::new(roster),
            keys: KeySource::NONE,
            report: Report::default(),
            newest: Vec::new(),
            ended: false,
        }
    }

    /// Sets the keys that decrypt columns.
    pub(crate) fn with_keys(self, keys: KeySource<'r>) -> Self {
        Self { keys, ..self }
    }

    pub(crate) const fn query(&self) -> Option<&Query> {
        self.query.as_ref()
    }

    pub(crate) const fn count_bytes(&mut self, bytes: usize) {
        self.report.bytes += bytes as u64;
    }

    pub(crate) fn event(&mut self, event: Event<'_>, sink: &mut dyn Sink) -> Result<(), Stop> {
        match event {
            Event::Proof(text) if self.query.is_none() => Ok(self.read_query(text)?),
            Event::Proven(proven) => self.part(proven, sink),
            Event::End => {
                self.leave_device(sink)?;
                self.pass_over(self.query.as_ref().map_or(0, |query| query.devices.len()))?;
                self.ended = true;
                Ok(())
            }
            Event::Problem(name, detail) => Err(Rejection::stopped(name, detail).into()),
            Event::Manifest(manifest, _) => {
                self.report.signatures += 1;
                // The query is known here, because the reader accepts nothing before it.
                Ok(self
                    .query
                    .as_ref()
                    .map_or(Ok(()), |query| self.manifests.take(&manifest, query))?)
            }
            Event::Proof(_) | Event::Explain(..) => {
                let device = self.at.as_ref().map(|(_, check)| check.device());
                Err(Rejection::NotAsAsked { device, index: None }.into())
            }
        }
    }

    pub(crate) fn finish(mut self) -> Result<(Report, Vec<(DeviceId, PinnedSeal)>), Stop> {
        if self.query.is_none() {
            return Err(Rejection::NotAProof { cause: "the file is empty".into() }.into());
        }
        if !self.ended {
            return Err(Rejection::Unended.into());
        }
        self.report.rounds = self.manifests.rounds().collect();
        let newest = self.query.as_ref().and_then(|query| query.until);
        let newest = newest.map_or(u64::MAX, |until| until.0.saturating_sub(1));
        self.report.budget = self.roster.budget(EpochNumber(newest));
        Ok((self.report, self.newest))
    }

    /// Reads the first item of a proof, which contains the query and the roster under which the
    /// proof was made.
    fn read_query(&mut self, text: &str) -> Result<(), Rejection> {
        let (query, roster) =
            crate::proof_query::decode(text).map_err(|cause| Rejection::NotAProof { cause })?;
        if let Some(roster) = roster {
            let known =
                digest(&roster).is_some_and(|digest| self.roster.version_of(&digest).is_some());
            if !known {
                return Err(Rejection::UnknownRoster { digest: roster });
            }
        }
        self.named = named(&query);
        self.query = Some(query);
        Ok(())
    }

    fn part(&mut self, proven: Proven<'_>, sink: &mut dyn Sink) -> Result<(), Stop> {
        let statement = proven.seal.statement();
        self.report.signatures += u64::from(proven.part.signature.is_some());
        self.manifests.begun();
        self.go_to(statement, sink)?;
        let (Some((_, check)), Some(query)) = (&mut self.at, &self.query) else { return Ok(()) };
        let (device, index) = (statement.device, statement.index);
        let in_range = check.take(proven.seal, self.roster)?;
        if self.held.holds_other_than(statement.epoch) {
            self.held.release(
                Some(proven.seal),
                query.choice,
                &mut RowOutlet {
                    roster: self.roster,
                    engine: &self.engine,
                    manifests: &self.manifests,
                    keys: self.keys.reborrow(),
                    check,
                    sink,
                },
            )?;
        }
        if !in_range {
            // The seal after the range shows that no seal is missing at the end of the range. Its
            // events were not requested.
            return match proven.part.select {
                Select::Levels(0) => Ok(()),
                _ => Err(Rejection::NotAsAsked { device: Some(device), index: Some(index) }.into()),
            };
        }
        if self.manifests.shown(device, statement.epoch, proven.seal.digest()) {
            check.count_late();
        }
        let sample = match query.choice {
            Choice::Rate(rate) => UniformSample::by_rate(proven.sample, proven.seal, rate),
            Choice::Readings(readings) => {
                self.named.retain(|named| *named != index);
                UniformSample::by_name(proven.sample, proven.seal, &readings)
            }
            Choice::AtMost(_) | Choice::Sample { .. } => return Ok(self.held.hold(proven)?),
        };
        let sample = sample.map_err(|error| Rejection::Choice { error, device, index })?;
        let mut outlet = RowOutlet {
            roster: self.roster,
            engine: &self.engine,
            manifests: &self.manifests,
            keys: self.keys.reborrow(),
            check,
            sink,
        };
        outlet.emit(query.choice, proven.seal, &sample, proven.schema)
    }

    /// Continues with the device of a seal, which must be the current device or a later device of
    /// the query.
    fn go_to(&mut self, statement: &Statement, sink: &mut dyn Sink) -> Result<(), Stop> {
        if self.at.as_ref().is_some_and(|(_, check)| check.device() == statement.device) {
            return Ok(());
        }
        self.leave_device(sink)?;
        let Some(query) = &self.query else { return Ok(()) };
        let asked = query
            .devices
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
        let (Some((place, mut check)), Some(query)) = (self.at.take(), &self.query) else {
            return Ok(());
        };
        let manifests = &self.manifests;
        let mut outlet = RowOutlet {
            roster: self.roster,
            engine: &self.engine,
            manifests,
            keys: self.keys.reborrow(),
            check: &mut check,
            sink,
        };
        self.held.release(None, query.choice, &mut outlet)?;
        self.done = place + 1;
        self.close(check)?;
        Ok(())
    }

    /// Finishes the checks of the query's devices before position `place` that are not finished
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
        let query = self.query.as_ref()?;
        let device = *query.devices.get(place)?;
        let pinned = self.pinned.as_ref().and_then(|pinned| pinned.of(self.roster, device));
        Some(DeviceCheck::new(device, (query.since, query.until), pinned, self.live))
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
fn named(query: &Query) -> Vec<SealIndex> {
    let Choice::Readings(readings) = query.choice else { return Vec::new() };
    let mut named: Vec<SealIndex> = readings.runs().iter().map(|run| run.index).collect();
    named.dedup();
    named
}

/// The destination of the checked parts of a device.
struct RowOutlet<'j> {
    roster: &'j Roster,
    engine: &'j Recall,
    manifests: &'j Manifests,
    keys: KeySource<'j>,
    check: &'j mut DeviceCheck,
    sink: &'j mut dyn Sink,
}

impl RowOutlet<'_> {
    /// Decrypts the columns of a part for which there are keys, passes the rows to the sink, and counts
    /// them.
    fn emit(
        &mut self,
        choice: Choice,
        seal: &Seal<Authentic>,
        sample: &UniformSample<'_>,
        schema: &Arc<SchemaEntry>,
    ) -> Result<(), Stop> {
        let statement = seal.statement();
        let name = self.roster.name(statement.device).unwrap_or_default();
        let start_ms = self.roster.epoch_start_ms(statement.epoch);
        let access = PartColumns::of_seal(seal, schema, self.keys.reborrow());
        let decrypted = access.decrypt(schema, sample, self.engine).map_err(|(seq, error)| {
            let (device, index) = (statement.device, statement.index);
            Rejection::Plaintext { error, device, index, seq }
        })?;
        let rows = Rows {
            name,
            statement,
            start_ms,
            sample,
            schema,
            engine: self.engine,
            choice,
            access: &access,
            decrypted: decrypted.as_deref(),
        };
        self.sink.rows(&rows)?;
        self.check.count(&rows);
        Ok(())
    }
}
