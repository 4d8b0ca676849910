//! The answer to a query, item by item, from any store: spec/formats.md, section 5. No sockets.
//!
//! What is served is forced by the query and the seals, so nothing here is a policy. [`Answer`] is an iterator of owned
//! [`Output`] items; it reads one part at a time, and of each only the blocks that are asked for. A test that plays a lying
//! cloud takes the items from here and alters them on their way out.

use std::collections::{BTreeMap, VecDeque};

use moteseal_api::problem::{name, without_name};
use moteseal_api::{Query, RUN_BYTES, RUN_PARTS};
use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Level, Round, SealIndex, Sequence};
use moteseal_lanes::Host;
use moteseal_seal::engine::Engine;
use moteseal_seal::sample::choice::{Choice, EpochCounts, Rate, rate_levels};
use moteseal_seal::sample::existing;
use moteseal_seal::sample::permutation::{self, Swap};
use moteseal_seal::stream::{MAX_ITEM, MAX_RUN_BYTES, MAX_RUN_EVENTS, Open, Selection};
use moteseal_store::{EpochStore, ReadError, StoredManifest, StoredSeal};
use moteseal_verify::{Roster, manifest, write};

use crate::manifest::Manifests;

/// Seals read from the store at a time.
const PAGE: usize = 64;
/// Seals of one device's epoch that are looked at together, where the choice needs all of them.
const EPOCH_PARTS: usize = 1 << 14;

/// One item of an answer.
#[derive(Clone, Debug)]
pub enum Output {
    /// The schema of the parts that follow, encoded.
    Schema(Vec<u8>),
    /// The device of the parts that follow, and where its chain stands.
    Open(Open),
    /// The coordinator's manifest of an epoch: a tagged `COSE_Sign1`.
    Manifest(Vec<u8>),
    /// One seal, with the selected events.
    Part(Box<PartOutput>),
    /// The answer cannot go on; the last item.
    Problem {
        /// The error's name.
        name: &'static str,
        /// What happened, where, and what to do.
        detail: String,
    },
    /// The answer is whole; the last item.
    End,
}

/// A part on its way out.
#[derive(Clone, Debug)]
pub struct PartOutput {
    /// The seal, with its own signature.
    pub seal: StoredSeal,
    /// Which events are selected.
    pub selection: Selected,
    /// What the root needs beside them: 32-byte digests, joined.
    pub digests: Vec<u8>,
    /// The records of the selected events.
    pub events: Vec<u8>,
    /// Whether the signature goes along, which ends the run.
    pub signed: bool,
}

/// Which events of a part are selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selected {
    /// All of these levels.
    Levels(u32),
    /// These events of a tree, ascending, not empty.
    Events(Vec<Sequence>),
}

impl Output {
    /// Appends the encoded item.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Schema(schema) => write::schema(out, schema),
            Self::Open(open) => write::open(out, open),
            Self::Manifest(manifest) => write::manifest(out, manifest),
            Self::Part(part) => part.write(out),
            Self::Problem { name, detail } => write::problem(out, name, detail),
            Self::End => write::end(out),
        }
    }
}

impl PartOutput {
    /// Reads what is selected of a stored seal.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(
        store: &dyn EpochStore,
        seal: StoredSeal,
        selection: Selected,
        signed: bool,
    ) -> Result<Self, ReadError> {
        let statement = seal.seal().statement();
        let (digests, events) = match (&selection, statement.scheme) {
            (Selected::Levels(mask), Scheme::Star) => {
                let events =
                    if *mask == 0 { Vec::new() } else { store.star_blocks(&seal, *mask)? };
                (seal.evidence(*mask), events)
            }
            (Selected::Levels(mask), Scheme::Tree) if *mask == seal.kept() => {
                let part = store.kept_part(&seal)?;
                (part.siblings, part.records)
            }
            (Selected::Levels(mask), Scheme::Tree) => {
                let part = store.tree_part(&seal, &members(&seal, *mask))?;
                (part.siblings, part.records)
            }
            (Selected::Events(sequence), _) => {
                let part = store.tree_part(&seal, sequence)?;
                (part.siblings, part.records)
            }
        };
        Ok(Self { seal, selection, digests, events, signed })
    }

    /// What the encoded part takes at most.
    fn most_bytes(&self) -> usize {
        write::part_bound(self.selection.as_written(), self.digests.len(), self.events.len())
    }

    /// Appends the encoded part.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_head(out);
        out.extend_from_slice(&self.events);
        self.write_tail(out);
    }

    /// Appends what stands before the events.
    pub(crate) fn write_head(&self, out: &mut Vec<u8>) {
        write::part_head(
            out,
            self.seal.seal(),
            self.selection.as_written(),
            &self.digests,
            self.events.len(),
        );
    }

    /// Appends what stands behind the events.
    pub(crate) fn write_tail(&self, out: &mut Vec<u8>) {
        write::part_tail(out, self.signed.then(|| self.seal.signature()));
    }
}

impl Selected {
    fn as_written(&self) -> Selection<'_> {
        match self {
            Self::Levels(mask) => Selection::Levels(*mask),
            Self::Events(sequence) => Selection::Events(sequence),
        }
    }
}

/// The events of a tree at the levels `mask`, ascending.
fn members(seal: &StoredSeal, mask: u32) -> Vec<Sequence> {
    let statement = seal.seal().statement();
    let total = if mask == 0 { 0 } else { statement.counters.total() };
    let (engine, levels) = (Host::detect(), statement.counters.levels());
    let mut members = Vec::new();
    let mut chunk = [0; 1024];
    let mut first = 0;
    while first < total {
        #[allow(clippy::cast_possible_truncation)]
        let length = (total - first).min(chunk.len() as u64) as usize;
        engine.levels(&statement.salt, levels, first, &mut chunk[..length]);
        let selected =
            (first..).zip(&chunk[..length]).filter(|(_, level)| mask >> **level & 1 == 1);
        members.extend(selected.map(|(seq, _)| Sequence(seq)));
        first += length as u64;
    }
    members
}

/// Where the seals of a stored seal's device stand before it.
pub(crate) fn open_before(roster: &Roster, seal: &StoredSeal) -> Option<Open> {
    let statement = seal.seal().statement();
    let roster_version = roster.version_of(&statement.roster)?;
    Some(Open {
        device: statement.device,
        roster_version,
        prev: Some(statement.prev),
        last: statement.last,
    })
}

/// Why an answer stops.
#[derive(Debug)]
struct Stop {
    name: &'static str,
    detail: String,
}

impl Stop {
    fn at(name: &'static str, seal: &StoredSeal, detail: &str) -> Self {
        let statement = seal.seal().statement();
        let detail = without_name(name, detail);
        Self {
            name,
            detail: format!("device {}, index {}: {detail}", statement.device, statement.index),
        }
    }
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        Self {
            name: error.name(),
            detail: without_name(error.name(), &error.to_string()).to_owned(),
        }
    }
}

/// A seal with what is to be served of it.
#[derive(Debug)]
struct Planned {
    seal: StoredSeal,
    selection: Selected,
}

impl Planned {
    /// How many bytes of records are served at most.
    fn most_records(&self) -> u64 {
        if self.selection == Selected::Levels(0) { 0 } else { self.seal.events_length() }
    }
}

/// The parts since the last signature, which the next one has to prove.
#[derive(Debug, Default)]
struct Run {
    parts: usize,
    bytes: u64,
    events: u64,
}

impl Run {
    /// Adds a part of at most `bytes` that covers `events`, and says whether it must be signed. `next` are the bytes of records
    /// that the part behind it has at most, if that can stand in the same run: one that would take the run past what a reader
    /// takes (spec/formats.md, section 4) is left to the next.
    fn ends(&mut self, bytes: usize, events: u64, next: Option<u64>) -> bool {
        self.parts += 1;
        self.bytes += bytes as u64;
        self.events += events;
        let is_full = self.parts >= RUN_PARTS
            || self.bytes >= RUN_BYTES as u64
            || self.events > MAX_RUN_EVENTS;
        let ends = is_full || next.is_none_or(|next| self.bytes + next > MAX_RUN_BYTES as u64);
        if ends {
            *self = Self::default();
        }
        ends
    }
}

/// Called before a part is read, with the bytes of events that it has at most.
type Gate<'s> = Box<dyn FnMut(u64) + 's>;

/// The items of an answer, in order. Ends behind [`Output::End`] or [`Output::Problem`].
pub struct Answer<'s> {
    store: &'s dyn EpochStore,
    roster: &'s Roster,
    query: Query,
    gate: Option<Gate<'s>>,
    /// In a group with a budget, the manifests that are still to come: the answer begins with them.
    manifests: Option<Manifests<'s>>,
    /// The epochs that have one.
    rounds: BTreeMap<EpochNumber, Round>,
    /// The next device of the query.
    next_device: usize,
    device: Option<Cursor<'s>>,
    /// Planned parts of an epoch whose choice needed all of them.
    epoch: VecDeque<Planned>,
    /// The part after the one being written: what it is decides whether a run goes on.
    ahead: Option<Result<Planned, Stop>>,
    /// The schema that the reader goes by.
    schema: Option<Digest>,
    run: Run,
    ready: VecDeque<Output>,
    started: bool,
    ended: bool,
}

impl std::fmt::Debug for Answer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").field("query", &self.query).finish_non_exhaustive()
    }
}

impl<'s> Answer<'s> {
    /// The answer to `query` from `store`. Devices that the roster does not have get no parts: refuse them before.
    #[must_use]
    pub fn new(store: &'s dyn EpochStore, roster: &'s Roster, query: Query) -> Self {
        let manifests = roster.budget().map(|_| Manifests::new(store, query.since, query.until));
        Self {
            store,
            roster,
            query,
            gate: None,
            manifests,
            rounds: BTreeMap::new(),
            next_device: 0,
            device: None,
            epoch: VecDeque::new(),
            ahead: None,
            schema: None,
            run: Run::default(),
            ready: VecDeque::new(),
            started: false,
            ended: false,
        }
    }

    /// Calls `gate` before a part is read, with the bytes of events that it has at most: who sends many answers at once waits
    /// there until there is memory for it.
    #[must_use]
    pub fn with_gate(self, gate: impl FnMut(u64) + 's) -> Self {
        Self { gate: Some(Box::new(gate)), ..self }
    }

    /// The next planned part, over all devices; `None` at the end.
    fn plan(&mut self) -> Option<Result<Planned, Stop>> {
        loop {
            if let Some(planned) = self.epoch.pop_front() {
                return Some(Ok(planned));
            }
            if self.device.is_none() {
                let device = *self.query.devices.get(self.next_device)?;
                self.next_device += 1;
                self.device =
                    Some(Cursor::new(self.store, device, self.query.since, self.query.until));
            }
            let cursor = self.device.as_mut()?;
            match cursor.next() {
                Err(stop) => return Some(Err(stop)),
                Ok(Some(Found::Boundary(seal))) => {
                    return Some(Ok(Planned { seal, selection: Selected::Levels(0) }));
                }
                Ok(Some(Found::Seal(seal))) => match self.query.choice {
                    Choice::Rate(rate) => return Some(by_rate(seal, rate)),
                    Choice::AtMost(_) | Choice::Sample { .. } => {
                        let planned =
                            cursor.rest_of_epoch(seal).and_then(|parts| self.whole_epoch(parts));
                        match planned {
                            Ok(epoch) => self.epoch = epoch,
                            Err(stop) => return Some(Err(stop)),
                        }
                    }
                },
                Ok(None) => self.device = None,
            }
        }
    }

    /// Plans the parts of an epoch whose choice needs all of them.
    fn whole_epoch(&self, parts: Vec<StoredSeal>) -> Result<VecDeque<Planned>, Stop> {
        let epoch = parts.first().map(|first| first.seal().statement().epoch);
        let round = match self.roster.budget() {
            None => Some(Round(0)),
            Some(_) => epoch.and_then(|epoch| self.rounds.get(&epoch).copied()),
        };
        match self.query.choice {
            Choice::Sample { count, seed } => {
                permuted(parts, self.roster.levels(), round, (count, &seed))
            }
            Choice::AtMost(most) => at_most(parts, self.roster.levels(), round, most),
            Choice::Rate(rate) => parts.into_iter().map(|seal| by_rate(seal, rate)).collect(),
        }
    }

    /// Puts the next part, with what must stand before it, in `ready`.
    fn step(&mut self) -> Result<(), Stop> {
        if let Some(manifests) = &mut self.manifests {
            if let Some(manifest) = manifests.next().transpose()? {
                self.note(&manifest)?;
                self.ready.push_back(Output::Manifest(manifest.bytes().to_vec()));
                return Ok(());
            }
            self.manifests = None;
        }
        if !self.started {
            self.started = true;
            self.ahead = self.plan();
        }
        let Some(current) = self.ahead.take() else {
            self.ready.push_back(Output::End);
            self.ended = true;
            return Ok(());
        };
        let current = current?;
        self.ahead = self.plan();
        if self.run.parts == 0 {
            let schema = current.seal.seal().statement().schema;
            if self.schema != Some(schema) {
                let bytes = self.store.schema(&schema)?;
                let bytes = bytes.ok_or_else(|| {
                    Stop::at("StoreDamaged", &current.seal, "its schema is not in the store")
                })?;
                self.schema = Some(schema);
                self.ready.push_back(Output::Schema(bytes));
            }
            let open = open_before(self.roster, &current.seal);
            let unknown = || {
                Stop::at(
                    "UnknownRoster",
                    &current.seal,
                    "it names a roster that this service does not know",
                )
            };
            self.ready.push_back(Output::Open(open.ok_or_else(unknown)?));
        }
        let ahead = self.ahead.as_ref().and_then(|ahead| ahead.as_ref().ok());
        let next = ahead.filter(|ahead| follows(&current, ahead)).map(Planned::most_records);
        let Planned { seal, selection } = current;
        if let (Some(gate), true) = (&mut self.gate, selection != Selected::Levels(0)) {
            gate(seal.most_bytes());
        }
        let mut part = PartOutput::read(self.store, seal, selection, false)?;
        if part.most_bytes() > MAX_ITEM {
            let detail = "what proves this part of it is larger than a reader takes; ask for fewer events, or for all";
            return Err(Stop::at(name::QUERY_TOO_LARGE, &part.seal, detail));
        }
        part.signed =
            self.run.ends(part.most_bytes(), part.seal.seal().statement().counters.total(), next);
        self.ready.push_back(Output::Part(Box::new(part)));
        Ok(())
    }
}

impl Answer<'_> {
    /// Takes note of the round at which a manifest's epoch ended. Where the coordinator signed several, whoever reads them takes
    /// none; the highest round is the one that everything kept is whole with regard to.
    fn note(&mut self, manifest: &StoredManifest) -> Result<(), Stop> {
        let opened = manifest::open(manifest.bytes(), self.roster).map_err(|error| Stop {
            name: "StoreDamaged",
            detail: format!(
                "{} does not verify any more: {error}; run `moteseal store check`",
                manifest.key()
            ),
        })?;
        let round = self.rounds.entry(opened.epoch()).or_insert(opened.round());
        *round = opened.round().max(*round);
        Ok(())
    }
}

impl Iterator for Answer<'_> {
    type Item = Output;

    fn next(&mut self) -> Option<Output> {
        while self.ready.is_empty() && !self.ended {
            if let Err(stop) = self.step() {
                self.ready.clear();
                self.ready.push_back(Output::Problem { name: stop.name, detail: stop.detail });
                self.ended = true;
            }
        }
        self.ready.pop_front()
    }
}

/// Whether `next` can stand behind `part` under one open item and one signature.
fn follows(part: &Planned, next: &Planned) -> bool {
    let (before, after) = (part.seal.seal(), next.seal.seal());
    let (old, new) = (before.statement(), after.statement());
    new.prev == before.digest()
        && new.device == old.device
        && new.roster == old.roster
        && new.schema == old.schema
}

/// The levels of a rate, of one seal.
fn by_rate(seal: StoredSeal, rate: Rate) -> Result<Planned, Stop> {
    match rate_levels(rate, seal.seal().statement()) {
        Ok(mask) if mask & !seal.kept() == 0 => {
            Ok(Planned { seal, selection: Selected::Levels(mask) })
        }
        _ => Err(rate_unavailable(&seal)),
    }
}

/// A rate that needs more of a seal than its device, and then the coordinator, kept: says which one can be had.
fn rate_unavailable(seal: &StoredSeal) -> Stop {
    let statement = seal.seal().statement();
    let levels = statement.counters.levels();
    let lacking = (0..levels)
        .filter(|&level| statement.counters.at(Level(level)) > 0 && seal.kept() >> level & 1 == 0);
    let round = Round(lacking.max().map_or(0, |level| level + 1));
    let highest = highest_rate(round, levels).map_or_else(
        || "no rate can be had of it".to_owned(),
        |rate| format!("the highest rate that can be had is {rate}"),
    );
    let detail = format!("epoch {} was kept from round {round} on: {highest}", statement.epoch);
    Stop::at("RateUnavailable", seal, &detail)
}

/// The highest rate of which every level is at or above a round, where there are `levels`.
fn highest_rate(round: Round, levels: u8) -> Option<Rate> {
    Rate::new(1, 1u64.checked_shl(round.0.into())?)
        .ok()
        .filter(|rate| round.0 < levels && rate.levels(levels).is_some())
}

/// The whole levels that fit `most` events, for each part of an epoch that ended at `round`; nothing where that is not known. A seal
/// that came late may lack some of them: what was asked for is then not to be had.
fn at_most(
    parts: Vec<StoredSeal>,
    levels: u8,
    round: Option<Round>,
    most: u64,
) -> Result<VecDeque<Planned>, Stop> {
    let mut counts = EpochCounts::at_round(levels, round.unwrap_or(Round(0)));
    for seal in &parts {
        counts.add(seal.seal().statement());
    }
    let mask = if round.is_some() { counts.at_most(most) } else { 0 };
    let plan = |seal: StoredSeal| {
        all_kept(&seal, mask & seal.seal().statement().surviving())?;
        let selection = Selected::Levels(mask & seal.kept());
        Ok(Planned { seal, selection })
    };
    parts.into_iter().map(plan).collect()
}

/// Whether a store has the levels of a seal that were chosen: of one that came late it may not.
fn all_kept(seal: &StoredSeal, levels: u32) -> Result<(), Stop> {
    if levels & !seal.kept() == 0 {
        return Ok(());
    }
    let detail = format!(
        "the seal came after the manifest of epoch {}, and was kept from round {} on only; ask for fewer events, or for other \
         epochs",
        seal.seal().statement().epoch,
        seal.kept_from()
    );
    Err(Stop::at("RateUnavailable", seal, &detail))
}

/// The events that a seed chooses, for each part of an epoch that ended at `round`; nothing where that is not known.
fn permuted(
    parts: Vec<StoredSeal>,
    levels: u8,
    round: Option<Round>,
    (count, seed): (u32, &[u8; 32]),
) -> Result<VecDeque<Planned>, Stop> {
    if let Some(star) = parts.iter().find(|seal| seal.seal().statement().scheme == Scheme::Star) {
        let detail = "a sample by count and seed needs epochs sealed as trees; ask for a rate or a number at most";
        return Err(Stop::at("SchemeMismatch", star, detail));
    }
    let (round, count) = round.map_or((Round(0), 0), |round| (round, count));
    let statements = || parts.iter().map(|seal| seal.seal().statement());
    let mut counts = EpochCounts::at_round(levels, round);
    statements().for_each(|part| counts.add(part));
    let most = usize::try_from(counts.existing().min(u64::from(count))).unwrap_or(usize::MAX);
    let mut chosen = vec![0; most];
    let mut scratch = vec![Swap::FREE; permutation::scratch_for(most)];
    // The scratch is as long as asked for, so the choice cannot fail.
    let _ = existing::draw(
        &Host::detect(),
        statements(),
        counts.surviving(),
        seed,
        &mut chosen,
        &mut scratch,
    );
    let mut chosen = chosen.into_iter().peekable();
    let mut start = 0;
    let mut plan = |seal: StoredSeal| {
        let statement = seal.seal().statement();
        let end = start + statement.counters.total();
        let (mut sequence, mut drawn) = (Vec::new(), 0);
        while let Some(position) = chosen.next_if(|&position| position < end) {
            let seq = Sequence(position - start);
            drawn |= 1 << statement.salt.level(seq, statement.counters.levels()).0;
            sequence.push(seq);
        }
        all_kept(&seal, drawn)?;
        start = end;
        let selection =
            if sequence.is_empty() { Selected::Levels(0) } else { Selected::Events(sequence) };
        Ok(Planned { seal, selection })
    };
    parts.into_iter().map(&mut plan).collect()
}

/// A seal of the range, or the one behind it.
enum Found {
    Seal(StoredSeal),
    /// The next seal after the range: it proves that none lies between.
    Boundary(StoredSeal),
}

/// The seals of one device from the first of the range on.
struct Cursor<'s> {
    store: &'s dyn EpochStore,
    device: DeviceId,
    since: EpochNumber,
    until: Option<EpochNumber>,
    page: VecDeque<StoredSeal>,
    /// From which index on to read the next page; `None` before the first.
    from: Option<SealIndex>,
    exhausted: bool,
    /// The next index under which the device signed more than one seal.
    conflict: Option<SealIndex>,
    /// The range closed itself: its last seal was the last of the range's last epoch.
    closed: bool,
    done: bool,
}

impl<'s> Cursor<'s> {
    fn new(
        store: &'s dyn EpochStore,
        device: DeviceId,
        since: EpochNumber,
        until: Option<EpochNumber>,
    ) -> Self {
        Self {
            store,
            device,
            since,
            until,
            page: VecDeque::new(),
            from: None,
            exhausted: false,
            conflict: None,
            closed: false,
            done: false,
        }
    }

    fn fill(&mut self) -> Result<(), Stop> {
        if !self.page.is_empty() || self.exhausted {
            return Ok(());
        }
        let page = match self.from {
            None => self.store.seals_since(self.device, self.since, PAGE)?,
            Some(from) => self.store.seals(self.device, from, PAGE)?,
        };
        let index = |seal: Option<&StoredSeal>| seal.map(|seal| seal.seal().statement().index);
        if self.from.is_none()
            && let Some(first) = index(page.first())
        {
            self.conflict = conflict_from(self.store, self.device, first)?;
        }
        let last = index(page.last());
        self.exhausted = page.len() < PAGE;
        match last.and_then(|last| last.0.checked_add(1)) {
            Some(next) => self.from = Some(SealIndex(next)),
            None => self.exhausted = true,
        }
        self.page = page.into();
        Ok(())
    }

    /// The next seal without taking it, unless an equivocation lies there.
    fn peek(&mut self) -> Result<Option<&StoredSeal>, Stop> {
        self.fill()?;
        let Some(seal) = self.page.front() else { return Ok(None) };
        let index = seal.seal().statement().index;
        if self.conflict.is_some_and(|conflict| index >= conflict) {
            let detail = "the device signed different seals under this index, or its key is in other hands; \
                          its explain path holds the evidence, and other ranges and devices can still be asked for";
            return Err(Stop::at(name::EQUIVOCATION, seal, detail));
        }
        Ok(Some(seal))
    }

    fn next(&mut self) -> Result<Option<Found>, Stop> {
        if self.done {
            return Ok(None);
        }
        let until = self.until;
        let behind =
            |seal: &StoredSeal| until.is_some_and(|until| seal.seal().statement().epoch >= until);
        let (closed, peeked) = (self.closed, self.peek()?);
        let boundary = match peeked {
            None => {
                self.done = true;
                return Ok(None);
            }
            Some(seal) => behind(seal),
        };
        if boundary {
            self.done = true;
            return Ok(if closed { None } else { self.page.pop_front().map(Found::Boundary) });
        }
        let seal = self.page.pop_front();
        if let Some(seal) = &seal {
            let statement = seal.seal().statement();
            self.closed = statement.last_in_epoch
                && until.is_some_and(|until| statement.epoch.0 + 1 == until.0);
            // What closes the range ends it: the next seal is not even looked for.
            self.done = self.closed;
        }
        Ok(seal.map(Found::Seal))
    }

    /// All seals of the epoch of `first`, itself included.
    fn rest_of_epoch(&mut self, first: StoredSeal) -> Result<Vec<StoredSeal>, Stop> {
        let epoch = first.seal().statement().epoch;
        let mut parts = vec![first];
        while !self.done && self.peek()?.is_some_and(|next| next.seal().statement().epoch == epoch)
        {
            match self.next()? {
                Some(Found::Seal(seal)) => parts.push(seal),
                _ => break,
            }
            if parts.len() > EPOCH_PARTS {
                let detail = format!(
                    "the epoch has more than {EPOCH_PARTS} seals, which is too many to choose among; ask for a rate"
                );
                return Err(Stop::at(name::QUERY_TOO_LARGE, &parts[0], &detail));
            }
        }
        Ok(parts)
    }
}

/// The first index from `from` on under which a device signed more than one seal.
fn conflict_from(
    store: &dyn EpochStore,
    device: DeviceId,
    from: SealIndex,
) -> Result<Option<SealIndex>, ReadError> {
    let after = match from.0.checked_sub(1) {
        Some(before) => Some((device, SealIndex(before))),
        // Behind everything of the device before.
        None => u64::from_be_bytes(device.0)
            .checked_sub(1)
            .map(|id| (DeviceId(id.to_be_bytes()), SealIndex(u32::MAX))),
    };
    let found = store.equivocations(after, 1)?.into_iter().next();
    Ok(found.filter(|found| found.device == device).map(|found| found.index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use moteseal_seal::stream::MAX_RUN_PARTS;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_part_that_would_take_its_run_past_what_a_reader_takes_begins_a_new_one() {
        let mut run = Run::default();
        assert!(run.ends(15 * MIB, 10, Some(52 * MIB as u64)), "67 MiB under one signature");
        assert!(!run.ends(11 * MIB, 10, Some(52 * MIB as u64)));
        assert!(run.ends(52 * MIB, 10, Some(0)), "long enough");
        assert!(run.ends(1, 1, None), "nothing follows");
    }

    /// What section 4 of the formats asks of a run, for any lengths of parts.
    #[test]
    fn no_run_is_longer_than_a_reader_takes() {
        let lengths = [
            0,
            1,
            100,
            MIB,
            12 * MIB,
            15 * MIB,
            16 * MIB - 1,
            17 * MIB,
            48 * MIB,
            49 * MIB,
            52 * MIB,
            64 * MIB,
        ];
        let mut seed = 1_u64;
        let mut draw = |most: usize| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).unwrap_or(0) % most
        };
        let parts: Vec<(usize, u64)> =
            (0..20_000).map(|_| (lengths[draw(lengths.len())], draw(1 << 24) as u64)).collect();
        let mut run = Run::default();
        let (mut records, mut claimed, mut count) = (0, 0, 0);
        for (i, &(bytes, events)) in parts.iter().enumerate() {
            assert!(claimed <= MAX_RUN_EVENTS, "behind parts of {claimed} events");
            (records, claimed, count) = (records + bytes, claimed + events, count + 1);
            assert!(
                records <= MAX_RUN_BYTES && count <= MAX_RUN_PARTS,
                "{records} bytes, {count} parts"
            );
            if run.ends(bytes, events, parts.get(i + 1).map(|&(bytes, _)| bytes as u64)) {
                (records, claimed, count) = (0, 0, 0);
            }
        }
        assert_eq!(count, 0, "the last part is signed");
    }
}
