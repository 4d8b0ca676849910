//! Produces the response to a query, item by item, from any store (`spec/answers.md`, section 5).
//!
//! The query and the stored seals determine the response completely. [`Response`] is an iterator
//! over [`ResponseItem`]s, which own their data. It reads one part at a time, and only the blocks
//! that the query selects. It uses no sockets, so that a test can alter the items to simulate a
//! dishonest cloud.

mod cursor;
mod item;
mod manifests;
mod plan;
mod run_limits;
mod stop;

use std::collections::{BTreeMap, VecDeque};

use moteseal_api::{ProblemType, Query, groups_of};
use moteseal_core::digest::Digest;
use moteseal_core::record::{EpochNumber, Round, SealIndex};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Groups, Schema, SchemaError};
use moteseal_seal::sample::choice::Choice;
use moteseal_seal::stream::MAX_ITEM;
use moteseal_store::{EpochStore, StoredManifest, StoredSeal};
use moteseal_verify::{Roster, SchemaEntry, manifest};

use cursor::{Cursor, Found};
pub(crate) use cursor::{is_served, unsigned};
pub(crate) use item::open_before;
pub use item::{PartOutput, ResponseItem, Selected};
pub(crate) use manifests::Manifests;
use plan::{KeptLevels, Planned, at_most, by_name, by_rate, follows, permuted};
use run_limits::Run;
use stop::Stop;

/// A function that is called before a part is read, with an upper bound on the size of the part's
/// events in bytes, and with 0 before a seal is read without its events. Returns whether the response
/// is still wanted.
type Gate<'s> = Box<dyn FnMut(u64) -> bool + 's>;

/// An iterator over the items of a response, in order. The last item is [`ResponseItem::End`] or
/// [`ResponseItem::Problem`], unless the response is no longer wanted
/// ([`with_gate`](Self::with_gate)).
pub struct Response<'s> {
    store: &'s dyn EpochStore,
    roster: &'s Roster,
    query: Query,
    gate: Option<Gate<'s>>,
    /// The manifests that have not been sent yet. A response starts with the manifests if the group
    /// has a budget.
    manifests: Option<Manifests<'s>>,
    /// The round of each epoch that has a manifest.
    rounds: BTreeMap<EpochNumber, Round>,
    /// The position of the next device in the query.
    next_device: usize,
    device: Option<Cursor<'s>>,
    /// The levels of the seals that were read, if the query has a rate.
    kept: KeptLevels,
    /// The seals of which the query names readings, and which have not been read yet.
    named: Vec<SealIndex>,
    /// The planned parts of the current epoch, if the query's choice has to consider all seals of
    /// an epoch together.
    epoch: VecDeque<Planned>,
    /// The part after the current part. It determines whether the current run continues.
    ahead: Option<Result<Planned, Stop>>,
    /// The digest of the schema that was sent last.
    schema: Option<Digest>,
    /// If the query names columns: that schema, and the column groups to show of it.
    shown: Option<(SchemaEntry, Groups)>,
    run: Run,
    ready: VecDeque<ResponseItem>,
    started: bool,
    ended: bool,
    /// Whether the gate has reported that the response is no longer wanted.
    unwanted: bool,
}

impl std::fmt::Debug for Response<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Response").field("query", &self.query).finish_non_exhaustive()
    }
}

impl<'s> Response<'s> {
    /// Creates the response to `query` from `store`. A device that is not in the roster contributes
    /// no parts; the caller must reject a query for such a device first.
    #[must_use]
    pub fn new(store: &'s dyn EpochStore, roster: &'s Roster, query: Query) -> Self {
        let has_budget = roster.has_budget();
        let named = match query.choice {
            Choice::Readings(readings) => readings.runs().iter().map(|run| run.index).collect(),
            _ => Vec::new(),
        };
        let manifests = has_budget.then(|| Manifests::new(store, roster, query.since, query.until));
        Self {
            store,
            roster,
            query,
            gate: None,
            manifests,
            rounds: BTreeMap::new(),
            next_device: 0,
            device: None,
            kept: KeptLevels::default(),
            named,
            epoch: VecDeque::new(),
            ahead: None,
            schema: None,
            shown: None,
            run: Run::default(),
            ready: VecDeque::new(),
            started: false,
            ended: false,
            unwanted: false,
        }
    }

    /// Sets a function that is called before a part is read, with an upper bound on the size of the
    /// part's events in bytes, and with 0 before a seal is read without its events. A server can
    /// wait for memory in this function. If it returns `false`, the response ends without another
    /// item.
    #[must_use]
    pub fn with_gate(self, gate: impl FnMut(u64) -> bool + 's) -> Self {
        Self { gate: Some(Box::new(gate)), ..self }
    }

    /// Returns the next planned part of all devices, or `None` at the end.
    fn plan(&mut self) -> Option<Result<Planned, Stop>> {
        loop {
            if let Some(planned) = self.epoch.pop_front() {
                return Some(Ok(planned));
            }
            if self.device.is_none() {
                let device = *self.query.devices.get(self.next_device)?;
                self.next_device += 1;
                self.device = Some(Cursor::new(
                    self.store,
                    self.roster,
                    device,
                    (self.query.since, self.query.until),
                ));
            }
            let cursor = self.device.as_mut()?;
            match cursor.next() {
                Err(stop) => return Some(Err(stop)),
                Ok(Some(Found::Boundary(seal))) => {
                    return Some(Ok(Planned { seal, selection: Selected::Levels(0) }));
                }
                Ok(Some(Found::Seal(seal))) => match self.query.choice {
                    Choice::Rate(rate) => {
                        self.kept.add(&seal);
                        let planned = by_rate(seal, rate);
                        return Some(planned.map_err(|seal| self.rate_unavailable(&seal)));
                    }
                    Choice::Readings(readings) => {
                        let index = seal.seal().statement().index;
                        self.named.retain(|named| *named != index);
                        return Some(by_name(seal, &readings));
                    }
                    Choice::AtMost(_) | Choice::Sample { .. } => {
                        let planned =
                            cursor.rest_of_epoch(seal).and_then(|parts| self.whole_epoch(parts));
                        match planned {
                            Ok(epoch) => self.epoch = epoch,
                            Err(stop) => return Some(Err(stop)),
                        }
                    }
                },
                Ok(None) => {
                    self.device = None;
                    if let Some(index) = self.named.first() {
                        let detail = format!("the range has no seal {index} of the device");
                        return Some(Err(Stop { name: "ReadingUnavailable", detail }));
                    }
                }
            }
        }
    }

    /// Reads the remaining seals of the query, as long as the response is wanted, and returns the
    /// error for a rate that `refused` does not have. The error states the highest rate of the whole
    /// query, whichever seal was refused.
    fn rate_unavailable(&mut self, refused: &StoredSeal) -> Stop {
        let Query { since, until, .. } = self.query;
        let following = self.query.devices.iter().skip(self.next_device);
        let following =
            following.map(|device| Cursor::new(self.store, self.roster, *device, (since, until)));
        for mut cursor in self.device.take().into_iter().chain(following) {
            // If the seals of a device cannot be read, the error states the rate of the others.
            loop {
                self.unwanted = self.gate.as_mut().is_some_and(|gate| !gate(0));
                if self.unwanted {
                    return self.kept.rate_unavailable(refused);
                }
                let Ok(Some(Found::Seal(seal))) = cursor.next() else { break };
                self.kept.add(&seal);
            }
        }
        self.kept.rate_unavailable(refused)
    }

    /// Plans the parts of an epoch, for a choice that has to consider all seals of the epoch
    /// together.
    fn whole_epoch(&self, parts: Vec<StoredSeal>) -> Result<VecDeque<Planned>, Stop> {
        let Some(epoch) = parts.first().map(|first| first.seal().statement().epoch) else {
            return Ok(VecDeque::new());
        };
        let levels = self.roster.levels(epoch);
        let round = match self.roster.budget(epoch) {
            None => Some(Round(0)),
            Some(_) => self.rounds.get(&epoch).copied(),
        };
        match self.query.choice {
            Choice::Sample { count, seed } => permuted(parts, levels, round, (count, &seed)),
            Choice::AtMost(most) => at_most(parts, levels, round, most),
            Choice::Readings(readings) => {
                parts.into_iter().map(|seal| by_name(seal, &readings)).collect()
            }
            Choice::Rate(rate) => parts
                .into_iter()
                .map(|seal| by_rate(seal, rate).map_err(|seal| self.kept.rate_unavailable(&seal)))
                .collect(),
        }
    }

    /// Appends the next part to `ready`, after the items that must precede it.
    fn step(&mut self) -> Result<(), Stop> {
        if let Some(manifests) = &mut self.manifests {
            if let Some(manifest) = manifests.next().transpose()? {
                self.record(&manifest)?;
                self.ready.push_back(ResponseItem::Manifest(manifest.bytes().to_vec()));
                return Ok(());
            }
            self.manifests = None;
        }
        if !self.started {
            self.started = true;
            self.ahead = self.plan();
        }
        let Some(current) = self.ahead.take() else {
            self.ready.push_back(ResponseItem::End);
            self.ended = true;
            return Ok(());
        };
        let current = current?;
        self.ahead = self.plan();
        if self.run.is_empty() {
            let schema = current.seal.seal().statement().schema;
            if self.schema != Some(schema) {
                let bytes = self.store.schema(&schema)?;
                let bytes = bytes.ok_or_else(|| {
                    Stop::at("StoreDamaged", &current.seal, "the seal's schema is not in the store")
                })?;
                self.schema = Some(schema);
                self.shown = self.shown_of(&bytes, &current.seal)?;
                self.ready.push_back(ResponseItem::Schema(bytes));
            }
            let open = open_before(self.roster, &current.seal);
            let unknown = || {
                Stop::at(
                    "UnknownRoster",
                    &current.seal,
                    "the seal refers to a roster that this service does not have",
                )
            };
            self.ready.push_back(ResponseItem::Open(open.ok_or_else(unknown)?));
        }
        let ahead = self.ahead.as_ref().and_then(|ahead| ahead.as_ref().ok());
        let next = ahead.filter(|ahead| follows(&current, ahead)).map(Planned::most_records);
        let Planned { seal, selection } = current;
        if let (Some(gate), true) = (&mut self.gate, selection != Selected::Levels(0))
            && !gate(seal.most_bytes())
        {
            self.unwanted = true;
            return Ok(());
        }
        let mut part = PartOutput::read(self.store, seal, selection, false)?;
        if let Some((schema, shown)) = &self.shown {
            part.show_only(schema, *shown)
                .map_err(|error| Stop::at("StoreDamaged", &part.seal, &error.to_string()))?;
        }
        if part.most_bytes() > MAX_ITEM {
            let detail = "the proof of the selected events is larger than a reader accepts; \
                          request fewer events, or all events";
            return Err(Stop::at(ProblemType::QUERY_TOO_LARGE.name(), &part.seal, detail));
        }
        part.signed =
            self.run.ends(part.most_bytes(), part.seal.seal().statement().counters.total(), next);
        self.ready.push_back(ResponseItem::Part(Box::new(part)));
        Ok(())
    }
}

impl Response<'_> {
    /// Returns a schema and the column groups to show of it, if the query names columns.
    fn shown_of(
        &self,
        bytes: &[u8],
        seal: &StoredSeal,
    ) -> Result<Option<(SchemaEntry, Groups)>, Stop> {
        if self.query.columns.is_empty() {
            return Ok(None);
        }
        let damaged = |error: SchemaError| Stop::at("StoreDamaged", seal, &error.to_string());
        let groups = groups_of(&Schema::decode(bytes).map_err(damaged)?, &self.query.columns);
        Ok(Some((SchemaEntry::decode(bytes).map_err(damaged)?, groups)))
    }

    /// Records the round at which a manifest's epoch ended. If the coordinator signed several
    /// manifests, the highest round is used: every stored seal that a manifest lists has all levels
    /// from that round on. A verifier rejects a response with several manifests in any case.
    fn record(&mut self, manifest: &StoredManifest) -> Result<(), Stop> {
        let opened = manifest::open(manifest.bytes(), self.roster).map_err(|error| Stop {
            name: "StoreDamaged",
            detail: format!(
                "{} no longer verifies: {}: {error}; run `moteseal store check`",
                manifest.key(),
                error.name()
            ),
        })?;
        let round = self.rounds.entry(opened.epoch()).or_insert(opened.round());
        *round = opened.round().max(*round);
        Ok(())
    }
}

impl Iterator for Response<'_> {
    type Item = ResponseItem;

    fn next(&mut self) -> Option<ResponseItem> {
        while self.ready.is_empty() && !self.ended {
            let step = self.step();
            if self.unwanted {
                self.ready.clear();
                self.ended = true;
            } else if let Err(stop) = step {
                self.ready.clear();
                self.ready
                    .push_back(ResponseItem::Problem { name: stop.name, detail: stop.detail });
                self.ended = true;
            }
        }
        self.ready.pop_front()
    }
}
