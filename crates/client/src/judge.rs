//! Judging what a stream proves: is it what was asked for, is anything missing, was the choice forced.
//!
//! A rate is judged part by part. For *at most* and *sample* an epoch's parts are held until the last of them is there, since
//! the choice follows from all of them; those of an epoch of which nothing shows the last part give no rows. In a group with a
//! budget both follow from the epoch's round as well, which is the manifest's and never what a store happens to keep.

mod course;
mod epoch;
mod manifests;

use moteseal_api::Query;
use moteseal_core::record::DeviceId;
use moteseal_lanes::Recall;
use moteseal_seal::Statement;
use moteseal_seal::sample::{Choice, UniformSample};
use moteseal_seal::stream::Select;
use moteseal_verify::{Event, Proven, Roster, SchemaEntry};
use std::sync::Arc;

use crate::memory::{Memory, Remembered, digest};
use crate::refusal::Refusal;
use crate::report::Report;
use crate::rows::{Rows, Sink};
use crate::session::Stop;
use course::Course;
use epoch::Epoch;
use manifests::Manifests;

/// Judges the events of one stream.
#[derive(Debug)]
pub(crate) struct Judge<'r> {
    roster: &'r Roster,
    engine: Recall,
    /// `None` until a proof has named it.
    query: Option<Query>,
    memory: Option<Memory>,
    /// Whether a store answers now; a proof was kept.
    live: bool,
    /// The device that the stream is at: its place in the query and its course.
    at: Option<(usize, Course)>,
    /// How many devices of the query are done.
    done: usize,
    held: Epoch,
    manifests: Manifests,
    report: Report,
    newest: Vec<(DeviceId, Remembered)>,
    ended: bool,
}

impl<'r> Judge<'r> {
    pub(crate) fn new(
        roster: &'r Roster,
        engine: Recall,
        query: Option<Query>,
        memory: Option<&Memory>,
    ) -> Self {
        Self {
            roster,
            engine,
            live: query.is_some(),
            query,
            memory: memory.cloned(),
            at: None,
            done: 0,
            held: Epoch::default(),
            manifests: Manifests::new(roster),
            report: Report { budget: roster.budget(), ..Report::default() },
            newest: Vec::new(),
            ended: false,
        }
    }

    pub(crate) const fn query(&self) -> Option<&Query> {
        self.query.as_ref()
    }

    pub(crate) const fn count_bytes(&mut self, bytes: usize) {
        self.report.bytes += bytes as u64;
    }

    pub(crate) fn event(&mut self, event: Event<'_>, sink: &mut dyn Sink) -> Result<(), Stop> {
        if self.ended {
            return Err(Refusal::Trailing.into());
        }
        match event {
            Event::Proof(text) if self.query.is_none() => Ok(self.read_query(text)?),
            _ if self.query.is_none() => {
                Err(Refusal::NotAProof { cause: "it does not start with a query".into() }.into())
            }
            Event::Proven(proven) => self.part(proven, sink),
            Event::End => {
                self.leave_device(sink)?;
                self.ended = true;
                Ok(())
            }
            Event::Problem(name, detail) => Err(stopped(name, detail).into()),
            Event::Manifest(manifest, _) => {
                self.report.signatures += 1;
                // There is a query: it was looked for above.
                Ok(self
                    .query
                    .as_ref()
                    .map_or(Ok(()), |query| self.manifests.take(&manifest, query))?)
            }
            Event::Proof(_) | Event::Explain(..) => {
                let device = self.at.as_ref().map(|(_, course)| course.device());
                Err(Refusal::NotAsAsked { device, index: None }.into())
            }
        }
    }

    pub(crate) fn finish(mut self) -> Result<(Report, Vec<(DeviceId, Remembered)>), Stop> {
        match &self.query {
            None => return Err(Refusal::NotAProof { cause: "it is empty".into() }.into()),
            Some(_) if !self.ended => return Err(Refusal::Unended.into()),
            Some(query) => self.pass_over(query.devices.len())?,
        }
        self.report.rounds = self.manifests.rounds().collect();
        Ok((self.report, self.newest))
    }

    /// The first item of a proof: the query, and the roster under which it was made.
    fn read_query(&mut self, text: &str) -> Result<(), Refusal> {
        let (query, roster) =
            crate::proof::read_query(text).map_err(|cause| Refusal::NotAProof { cause })?;
        if let Some(roster) = roster {
            let known =
                digest(&roster).is_some_and(|digest| self.roster.version_of(&digest).is_some());
            if !known {
                return Err(Refusal::UnknownRoster { digest: roster });
            }
        }
        self.query = Some(query);
        Ok(())
    }

    fn part(&mut self, proven: Proven<'_>, sink: &mut dyn Sink) -> Result<(), Stop> {
        let statement = proven.seal.statement();
        self.report.signatures += u64::from(proven.part.signature.is_some());
        self.manifests.begun();
        self.go_to(statement, sink)?;
        let (Some((_, course)), Some(query)) = (&mut self.at, &self.query) else { return Ok(()) };
        let (device, index) = (statement.device, statement.index);
        let in_range = course.take(proven.seal)?;
        if self.held.holds_other_than(statement.epoch) {
            self.held.release(
                Some(proven.seal),
                query.choice,
                &mut Judged {
                    roster: self.roster,
                    engine: &self.engine,
                    manifests: &self.manifests,
                    course,
                    sink,
                },
            )?;
        }
        if !in_range {
            // The seal behind the range shows that none lies between; its events were not asked for.
            return match proven.part.select {
                Select::Levels(0) => Ok(()),
                _ => Err(Refusal::NotAsAsked { device: Some(device), index: Some(index) }.into()),
            };
        }
        if self.manifests.shown(device, statement.epoch, proven.seal.digest()) {
            course.count_late();
        }
        match query.choice {
            Choice::Rate(rate) => {
                let sample = UniformSample::by_rate(proven.sample, proven.seal, rate);
                let sample = sample.map_err(|error| Refusal::Choice { error, device, index })?;
                let manifests = &self.manifests;
                let mut judged =
                    Judged { roster: self.roster, engine: &self.engine, manifests, course, sink };
                judged.hand_out(query.choice, statement, &sample, proven.schema)
            }
            Choice::AtMost(_) | Choice::Sample { .. } => Ok(self.held.hold(proven)?),
        }
    }

    /// Goes to the device of a seal: the same, or a later one of the query.
    fn go_to(&mut self, statement: &Statement, sink: &mut dyn Sink) -> Result<(), Stop> {
        if self.at.as_ref().is_some_and(|(_, course)| course.device() == statement.device) {
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
            Refusal::NotAsAsked { device: Some(statement.device), index: Some(statement.index) };
        let place = asked.ok_or(not_asked)?.0;
        self.pass_over(place)?;
        if let Some(course) = self.course(place) {
            self.at = Some((place, course));
        }
        Ok(())
    }

    fn leave_device(&mut self, sink: &mut dyn Sink) -> Result<(), Stop> {
        let (Some((place, mut course)), Some(query)) = (self.at.take(), &self.query) else {
            return Ok(());
        };
        let manifests = &self.manifests;
        let mut judged = Judged {
            roster: self.roster,
            engine: &self.engine,
            manifests,
            course: &mut course,
            sink,
        };
        self.held.release(None, query.choice, &mut judged)?;
        self.done = place + 1;
        self.close(course)?;
        Ok(())
    }

    /// The devices of the query up to `place` of which the answer holds nothing.
    fn pass_over(&mut self, place: usize) -> Result<(), Refusal> {
        while self.done < place {
            if let Some(course) = self.course(self.done) {
                self.close(course)?;
            }
            self.done += 1;
        }
        Ok(())
    }

    fn course(&self, place: usize) -> Option<Course> {
        let query = self.query.as_ref()?;
        let device = *query.devices.get(place)?;
        let remembered = self.memory.as_ref().and_then(|memory| memory.of(self.roster, device));
        Some(Course::new(device, (query.since, query.until), remembered, self.live))
    }

    fn close(&mut self, course: Course) -> Result<(), Refusal> {
        let device = course.device();
        let name = self.roster.name(device).map_or_else(|| device.to_string(), str::to_owned);
        let (report, newest) = course.finish(name)?;
        self.manifests.all_shown(device)?;
        self.newest.extend(newest.map(|newest| (device, newest)));
        self.report.devices.push(report);
        Ok(())
    }
}

/// Where the parts of a device go that have been judged.
struct Judged<'j> {
    roster: &'j Roster,
    engine: &'j Recall,
    manifests: &'j Manifests,
    course: &'j mut Course,
    sink: &'j mut dyn Sink,
}

impl Judged<'_> {
    /// Gives a part's rows to the sink, and counts them.
    fn hand_out(
        &mut self,
        choice: Choice,
        statement: &Statement,
        sample: &UniformSample<'_>,
        schema: &Arc<SchemaEntry>,
    ) -> Result<(), Stop> {
        let name = self.roster.name(statement.device).unwrap_or_default();
        let start_ms = self.roster.epoch_start_ms(statement.epoch);
        let rows = Rows { name, statement, start_ms, sample, schema, engine: self.engine, choice };
        self.sink.rows(&rows)?;
        self.course.count(statement, rows.len());
        Ok(())
    }
}

/// What a store says must not reach a terminal unseen.
pub(crate) fn stopped(name: &str, detail: &str) -> Refusal {
    let is_name = !name.is_empty()
        && name.len() <= 64
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let detail = detail.chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect();
    Refusal::Stopped { name: if is_name { name.to_owned() } else { "Problem".to_owned() }, detail }
}
