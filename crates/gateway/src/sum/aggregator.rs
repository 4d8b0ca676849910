//! An aggregator without I/O. It receives frames, query schedules and times. It returns frames,
//! announcements and events for the log.
//!
//! See spec/sums.md, sections 3, 4 and 6. All memory is bounded. The aggregator keeps at most four
//! queries, a few epochs of each query, one share for each child and epoch, and a few questions of
//! fault localisation that wait for answers. A share is a child's contribution to one epoch: the
//! participating sources and their encrypted sums. The maximum length of a frame limits the size of
//! a share. A frame from an unknown sender costs at most the time to check a tag.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use moteseal_core::cbor::BufferTooSmall;
use moteseal_core::digest::Digest;
use moteseal_core::link::{LinkKey, MAX_FRAME};
use moteseal_core::participation::{self, Participation};
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_core::roster::Directory as _;
use moteseal_core::signature::PublicKey;
use moteseal_sum::QuerierName;
use moteseal_sum::query::{MAX_SLOTS, Plan, QueryId};
use moteseal_sum::schedule::{self, MAX_QUERY_SCHEDULE, Posed, QuerySchedule};
use moteseal_sum::sies::Psr;
use moteseal_sum::wire::{Children, Explain, Refusal, Share, SumUplink, close_share};
use moteseal_verify::aggregation::{self, AggregationTree, Child};
use moteseal_verify::{Device, Roster};

use super::error::Refused;
use super::gather::{Gathering, Held, MAX_SOURCES, Sum};

/// The maximum number of forwarded questions that wait for an answer.
const MAX_ASKED: usize = 64;
/// The interval at which the current query schedule is announced again, in milliseconds, for
/// children that missed it or could not process it.
const ANNOUNCE_MS: u64 = 60_000;
/// The maximum size of a frame's fields other than the participants and the records, in bytes. The
/// tag is included.
const FRAME_FIELDS: usize = 128;
/// The maximum size of one record (PSR) in a frame, in bytes.
const PSR_IN_FRAME: usize = 34;
/// The maximum size of one encoded participant in bytes: a run with a single source, as two
/// integers below 2^32.
const PARTICIPANT: usize = 10;
/// The number of sources beyond those of the roster that a share may name in a small group: sources
/// of a later version of the roster.
const UNKNOWN_SOURCES: u32 = 4096;
/// The maximum length of a frame from a source: the source's position, and one record for each
/// slot.
const MAX_SOURCE_FRAME: usize = FRAME_FIELDS + PSR_IN_FRAME * MAX_SLOTS;

/// A gateway's place in the aggregation tree, and the secrets that it shares with its parent and
/// its children.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    /// The group's roster, which determines the positions of the sources and when they take part.
    pub roster: &'a Arc<Roster>,
    /// The aggregation tree.
    pub tree: &'a AggregationTree,
    /// The gateway's name in the tree.
    pub name: &'a str,
    /// The querier's public key.
    pub querier: &'a PublicKey,
    /// The secret from which the link keys of all the gateway's children are derived.
    pub children_secret: &'a [u8; 32],
    /// The secret of the link between the gateway and its parent.
    pub up_secret: &'a [u8; 32],
    /// How long the gateway waits for its children after an epoch's end, for each level of the tree
    /// below it.
    pub grace: Duration,
    /// The highest number of a query schedule that the gateway has accepted; 0 if it has accepted
    /// none.
    pub number: u64,
}

impl fmt::Debug for Member<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A gateway of the aggregation tree, which adds encrypted values.
pub struct Aggregator {
    group: GroupId,
    roster: Arc<Roster>,
    /// The digest that the query schedules of the tree's querier state.
    set_up: Digest,
    querier: PublicKey,
    node: aggregation::Aggregator,
    id: DeviceId,
    tree_height: u32,
    grace_ms: u64,
    up: LinkKey,
    /// The link keys of the children, in the order of the children.
    down: Vec<LinkKey>,
    number: u64,
    /// The newest query schedule; `None` until the gateway has received it since its start.
    schedule: Option<Vec<u8>>,
    /// When the query schedule was last announced, in milliseconds since 1970.
    announced_ms: u64,
    /// The number of sources that the querier asks: those with a lower position.
    sources: u32,
    key_group: u32,
    /// The number of children from which shares are not expected in every epoch.
    optional: usize,
    queries: Vec<Gathering>,
    asked: VecDeque<Explain>,
    output: Outgoing,
    /// The buffer in which frames are encoded.
    frame: Box<[u8; MAX_FRAME]>,
}

/// What the caller must send and log.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// The query schedule to announce to all children.
    pub announcement: Option<Vec<u8>>,
    /// Frames to send to the parent.
    pub up: Vec<Vec<u8>>,
    /// Frames to send to children.
    pub down: Vec<(DeviceId, Vec<u8>)>,
    /// Epochs that have ended.
    pub ended: Vec<Ended>,
    /// Queries of the query schedule that this gateway cannot answer.
    pub unusable: Vec<Unusable>,
}

/// An epoch that has ended and whose sum was sent to the parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The epoch's query.
    pub query: QueryId,
    /// The epoch.
    pub epoch: u64,
    /// The number of participating sources.
    pub participants: u32,
    /// The names of the children that sent no share, of those from which one was expected.
    pub silent: Vec<String>,
}

/// A query that this gateway cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The query.
    pub query: QueryId,
    /// The name of the error.
    pub name: &'static str,
}

/// What an accepted frame changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameOutcome {
    /// The frame was new.
    Taken,
    /// The frame repeats an earlier one.
    Repeated,
}

impl fmt::Debug for Aggregator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aggregator")
            .field("name", &self.node.name())
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Aggregator {
    /// Creates a gateway that has no query schedule yet. Returns `None` if the tree does not
    /// contain the gateway.
    #[must_use]
    pub fn new(member: &Member<'_>) -> Option<Self> {
        let Member { roster, tree, name, .. } = *member;
        let node = tree.aggregator(name)?;
        let querier_name = QuerierName::new(tree.querier_name())?;
        Some(Self {
            group: roster.group(),
            roster: Arc::clone(roster),
            set_up: querier_name.set_up_digest(&roster.first_digest()),
            querier: member.querier.clone(),
            id: node.id()?,
            tree_height: tree.height(),
            grace_ms: u64::try_from(member.grace.as_millis()).unwrap_or(u64::MAX),
            up: LinkKey::new(member.up_secret),
            down: down_keys(member, &node),
            node,
            number: member.number,
            schedule: None,
            announced_ms: 0,
            sources: 0,
            key_group: 1,
            optional: 0,
            queries: Vec::new(),
            asked: VecDeque::new(),
            output: Outgoing::default(),
            frame: Box::new([0; MAX_FRAME]),
        })
    }

    /// Continues with a later version of the roster and with its tree, in which the gateway has the
    /// same name and parent. The queries continue, and so do their open epochs: shares that children
    /// have sent still count, if the later version accepts them. Queries that this gateway can no
    /// longer answer end. If the roster names another querier, all queries end, and the query
    /// schedule of the previous querier is not announced again. Returns `None`, without a change, if
    /// the tree does not contain the gateway.
    #[must_use]
    pub fn load(&mut self, member: &Member<'_>) -> Option<()> {
        let node = member.tree.aggregator(member.name)?;
        self.id = node.id()?;
        self.roster = Arc::clone(member.roster);
        if self.querier != *member.querier {
            self.querier = member.querier.clone();
            self.queries.clear();
            self.schedule = None;
        }
        self.tree_height = member.tree.height();
        self.down = down_keys(member, &node);
        self.node = node;
        let heights = (self.node.height(), self.tree_height);
        for query in std::mem::take(&mut self.queries) {
            if self.fits(query.slots()) {
                self.queries.push(query);
            } else {
                self.output.unusable.push(Unusable { query: query.id, name: "QueryTooLarge" });
            }
        }
        self.count_optional();
        let mut queries = std::mem::take(&mut self.queries);
        for query in &mut queries {
            query.set_wait(self.grace_ms, heights);
            query.drop_unexpected(&self.node, |child, start_ms| self.is_expected(child, start_ms));
        }
        self.queries = queries;
        for at in 0..self.queries.len() {
            for epoch in self.queries[at].open_epochs() {
                self.end_if_complete(at, epoch);
            }
        }
        Some(())
    }

    /// Counts the children from which shares are not expected in every epoch.
    fn count_optional(&mut self) {
        let is_optional = |child: &&Child| {
            child.position.is_some_and(|position| {
                let device = self.roster.device(child.id);
                position >= self.sources || !device.is_some_and(Device::always_takes_part)
            })
        };
        self.optional = self.node.children().iter().filter(is_optional).count();
    }

    /// Returns the gateway's place in the tree.
    #[must_use]
    pub const fn node(&self) -> &aggregation::Aggregator {
        &self.node
    }

    /// Returns the number of the newest query schedule that the gateway has accepted; 0 if it has
    /// accepted none.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the active queries.
    pub fn queries(&self) -> impl ExactSizeIterator<Item = QueryId> {
        self.queries.iter().map(|query| query.id)
    }

    /// Returns what must be sent and logged. The next call returns only what has been added since.
    pub fn take_outgoing(&mut self) -> Outgoing {
        std::mem::take(&mut self.output)
    }

    /// Returns when [`tick`](Self::tick) must next be called, in milliseconds since 1970.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        self.queries.iter().filter_map(Gathering::due).min()
    }

    /// Returns the size of the children's records in memory, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.queries.iter().map(Gathering::bytes).sum()
    }

    /// Receives an announcement from the parent. Accepts it if the querier signed the query
    /// schedule in it, and if that schedule is not older than the accepted one. An accepted
    /// announcement is forwarded unchanged. `keep` makes the schedule's number durable, and is
    /// called before a new number is accepted.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn receive_schedule(
        &mut self,
        bytes: &[u8],
        now_ms: u64,
        keep: impl FnOnce(u64) -> io::Result<()>,
    ) -> Result<FrameOutcome, Refused> {
        if self.schedule.as_deref() == Some(bytes) {
            return Ok(FrameOutcome::Repeated);
        }
        // Reject an old schedule before the expensive check of its signature.
        if schedule::claimed_number(bytes)? < self.number {
            return Err(Refused::OlderAgenda);
        }
        let mut scratch = vec![0; bytes.len().saturating_add(64).min(MAX_QUERY_SCHEDULE)];
        let message = schedule::receive(bytes, self.group, &self.querier, &mut scratch)?;
        let schedule = QuerySchedule::open(&message, self.group, &self.set_up)?;
        if schedule::is_ahead(schedule.number(), now_ms) {
            return Err(Refused::ScheduleAhead);
        }
        // After a restart, the schedule with the accepted number must be received again, so it is
        // not an error then.
        if schedule.number() == self.number && self.schedule.is_some() {
            return Err(Refused::TwoAgendas);
        }
        if schedule.number() > self.number {
            keep(schedule.number()).map_err(|_| Refused::NotDurable)?;
        }
        (self.number, self.schedule, self.announced_ms) =
            (schedule.number(), Some(bytes.to_vec()), now_ms);
        self.tick(now_ms);
        if schedule.key_group() != self.key_group {
            self.queries.clear();
        }
        self.key_group = schedule.key_group();
        self.sources = schedule.sources();
        self.count_optional();
        let mut before = std::mem::take(&mut self.queries);
        for (id, posed) in schedule.queries() {
            let running =
                before.iter().position(|query| query.id == id).map(|at| before.swap_remove(at));
            let usable = match running {
                Some(mut query) => {
                    query.ask(posed.first, posed.until);
                    Ok(query)
                }
                None => self.start_query(id, &posed, now_ms),
            };
            match usable {
                Ok(query) => self.queries.push(query),
                Err(name) => self.output.unusable.push(Unusable { query: id, name }),
            }
        }
        self.output.announcement = Some(bytes.to_vec());
        Ok(FrameOutcome::Taken)
    }

    /// Starts a new query, or returns the name of the error that prevents it.
    fn start_query(
        &self,
        id: QueryId,
        posed: &Posed<'_>,
        now_ms: u64,
    ) -> Result<Gathering, &'static str> {
        let plan = Plan::decode(posed.plan).map_err(moteseal_core::cbor::DecodeError::name)?;
        if !self.fits(plan.slots().count()) {
            return Err("QueryTooLarge");
        }
        let (epochs, heights) =
            ((posed.first, posed.until), (self.node.height(), self.tree_height));
        Ok(Gathering::new(id, &plan, epochs, self.grace_ms, heights, now_ms))
    }

    /// Returns the end of the positions that shares may name. Another party may have a later version
    /// of the roster, so positions that this gateway does not know are valid, but only as many as
    /// need no more memory than the known ones.
    fn position_end(&self) -> u32 {
        let most = self.node.group_sources().saturating_mul(2).saturating_add(UNKNOWN_SOURCES);
        self.sources.min(most)
    }

    /// Returns whether a share of a child is expected in an epoch that starts at `start_ms`.
    fn is_expected(&self, child: &Child, start_ms: u64) -> bool {
        child.position.is_none_or(|position| {
            let takes_part = |device: &Device| device.takes_part_in(self.roster.epoch_of(start_ms));
            position < self.sources && self.roster.device(child.id).is_some_and(takes_part)
        })
    }

    /// Returns whether all children from which a share is expected have sent one.
    fn is_complete(&self, query: &Gathering, epoch: u64) -> bool {
        let (children, start_ms) = (self.node.children(), query.start_ms(epoch));
        query.shares(epoch) + self.optional >= children.len()
            && children
                .iter()
                .all(|child| query.has_share(epoch, child.id) || !self.is_expected(child, start_ms))
    }

    fn end_if_complete(&mut self, at: usize, epoch: u64) {
        if self.is_complete(&self.queries[at], epoch) {
            self.end(at, epoch);
        }
    }

    /// Returns whether the records of all sources below this gateway fit in one frame, for any set
    /// of participants. If they do, the records below each child also fit.
    fn fits(&self, slots: usize) -> bool {
        let (mut sources, mut groups, mut last) = (0, 0, None);
        for position in
            (0..self.node.group_sources()).filter(|position| self.node.owner(*position).is_some())
        {
            let group = position / self.key_group;
            sources += 1;
            groups += usize::from(last != Some(group));
            last = Some(group);
        }
        fit_a_frame(self.node.group_sources(), sources, groups.saturating_mul(slots))
    }

    /// Receives a frame from a child. An epoch ends only in [`tick`](Self::tick), or when all
    /// children have sent a share. If a caller was delayed, it can therefore process the frames
    /// that have arrived before it calls `tick`.
    ///
    /// # Errors
    /// [`Refused`]. Nothing has changed.
    pub fn receive(
        &mut self,
        child: DeviceId,
        frame: &[u8],
        now_ms: u64,
    ) -> Result<FrameOutcome, Refused> {
        let child = self.node.child(child).ok_or(Refused::UnknownChild)?;
        let longest =
            if self.node.children()[child].is_gateway { MAX_FRAME } else { MAX_SOURCE_FRAME };
        if frame.len() > longest {
            return Err(Refused::FrameTooLong);
        }
        match SumUplink::open(frame, &self.down[child])? {
            SumUplink::Share(share) => self.receive_share(child, &share, now_ms),
            SumUplink::Children(answer) => self.relay_answer(child, &answer),
            SumUplink::Refusal(refusal) => self.relay_refusal(child, &refusal, now_ms),
        }
    }

    fn receive_share(
        &mut self,
        child: usize,
        share: &Share<'_>,
        now_ms: u64,
    ) -> Result<FrameOutcome, Refused> {
        let at = self.query(share.query)?;
        let query = &self.queries[at];
        query.check_epoch(share.epoch, now_ms)?;
        let sender = &self.node.children()[child];
        if !self.is_expected(sender, query.start_ms(share.epoch)) {
            return Err(Refused::NotMember);
        }
        let (participation, psrs) = query.check(
            (share.epoch, share.participation, share.psrs),
            (&self.node, child),
            (self.position_end(), self.key_group),
        )?;
        let held = Held { participation: participation.as_bytes().into(), psrs };
        if !self.queries[at].take(share.epoch, sender.id, held)? {
            return Ok(FrameOutcome::Repeated);
        }
        self.end_if_complete(at, share.epoch);
        Ok(FrameOutcome::Taken)
    }

    fn query(&self, reference: u32) -> Result<usize, Refused> {
        self.queries
            .iter()
            .position(|query| query.id.reference() == reference)
            .ok_or(Refused::WrongQuery)
    }

    /// Ends the epochs whose waiting time is over. Announces the query schedule again every minute.
    pub fn tick(&mut self, now_ms: u64) {
        for at in 0..self.queries.len() {
            let (over, _) = self.queries[at].over(now_ms);
            for epoch in over {
                self.end(at, epoch);
            }
            self.queries[at].advance_to(now_ms);
        }
        // The absolute difference also works if the clock was set back.
        if self.schedule.is_some() && now_ms.abs_diff(self.announced_ms) >= ANNOUNCE_MS {
            self.announced_ms = now_ms;
            self.output.announcement.clone_from(&self.schedule);
        }
    }

    /// Ends the epochs that have ended by the clock and for which at least one share was received.
    /// Call this before the gateway stops.
    pub fn finish(&mut self, now_ms: u64) {
        self.tick(now_ms);
        for at in 0..self.queries.len() {
            for epoch in self.queries[at].unfinished(now_ms) {
                self.end(at, epoch);
            }
        }
    }

    /// Ends an epoch and sends the sum of its shares to the parent.
    fn end(&mut self, at: usize, epoch: u64) {
        self.queries[at].end(epoch);
        // `fits` checked that the sum of the known sources fits in the frame. If the sources that only
        // another version of the roster has need more room, leave out the shares that name them.
        let (known, id) = (self.node.group_sources(), self.queries[at].id);
        let sum = [MAX_SOURCES, known].into_iter().find_map(|end| {
            let sum = self.queries[at].sum(epoch, self.key_group, end);
            let frame = self.share_frame(id, epoch, &sum).ok()?;
            self.output.up.push(frame);
            Some(sum)
        });
        let Some(sum) = sum else {
            self.output.unusable.push(Unusable { query: id, name: "QueryTooLarge" });
            return;
        };
        let start_ms = self.queries[at].start_ms(epoch);
        let participants = sum.participants.iter().map(|word| word.count_ones()).sum();
        let is_silent = |child: &&Child| {
            sum.answered.binary_search(&child.id).is_err() && self.is_expected(child, start_ms)
        };
        let children = self.node.children().iter();
        let silent = children.filter(is_silent).map(|child| child.name.clone()).collect();
        self.output.ended.push(Ended { query: id, epoch, participants, silent });
    }

    /// Returns the frame with the sum of an epoch.
    fn share_frame(
        &mut self,
        id: QueryId,
        epoch: u64,
        sum: &Sum,
    ) -> Result<Vec<u8>, BufferTooSmall> {
        let mut bytes = vec![0; participation::max_size(self.position_end())];
        let length = Participation::encode(&sum.participants, &mut bytes)?;
        let (participants, frame) = (&bytes[..length], &mut *self.frame);
        close_share(id.reference(), epoch, participants, &sum.psrs, &self.up, frame)
            .map(|frame| frame.to_vec())
    }

    /// Receives a question from the parent. Answers the question if it is for this gateway.
    /// Otherwise forwards it to the child on the path to the addressed gateway.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn receive_question(&mut self, frame: &[u8], now_ms: u64) -> Result<FrameOutcome, Refused> {
        let question = Explain::open(frame, &self.up)?;
        self.tick(now_ms);
        let at = self.query(question.query)?;
        if question.node == self.id {
            return self.answer(at, &question);
        }
        let child = self.node.next_hop(question.node).ok_or(Refused::UnknownNode)?;
        if let Ok(frame) = question.close(&self.down[child], &mut *self.frame) {
            self.output.down.push((self.node.children()[child].id, frame.to_vec()));
        }
        if self.asked.contains(&question) {
            return Ok(FrameOutcome::Repeated);
        }
        if self.asked.len() == MAX_ASKED {
            self.asked.pop_front();
        }
        self.asked.push_back(question);
        Ok(FrameOutcome::Taken)
    }

    fn answer(&mut self, at: usize, question: &Explain) -> Result<FrameOutcome, Refused> {
        let kept = self.queries[at].kept(question.epoch)?;
        let children: Vec<(DeviceId, &[u8], &[Psr])> =
            kept.iter().map(|(child, held)| (*child, &*held.participation, &*held.psrs)).collect();
        let frame = Children::close(question, &children, &self.up, &mut *self.frame);
        self.output.up.extend(frame.map(|frame| frame.to_vec()));
        Ok(FrameOutcome::Taken)
    }

    /// Forwards a source's statement that it does not answer a query, but not too often. Only the
    /// querier can check it.
    fn relay_refusal(
        &mut self,
        child: usize,
        refusal: &Refusal<'_>,
        now_ms: u64,
    ) -> Result<FrameOutcome, Refused> {
        let at = self.query(refusal.query)?;
        self.queries[at].check_epoch(refusal.epoch, now_ms)?;
        let position = refusal.position;
        let is_beneath = position < self.position_end()
            && self.node.can_be_beneath(position..position + 1, child);
        if !is_beneath {
            return Err(Refused::NotBeneath);
        }
        if !self.queries[at].may_relay_refusal(position, now_ms) {
            return Ok(FrameOutcome::Repeated);
        }
        let frame = refusal.close(&self.up, &mut *self.frame).map(<[u8]>::to_vec);
        self.output.up.extend(frame);
        Ok(FrameOutcome::Taken)
    }

    /// Forwards a child's answer to a question that was forwarded to the child.
    fn relay_answer(
        &mut self,
        child: usize,
        answer: &Children<'_>,
    ) -> Result<FrameOutcome, Refused> {
        if self.node.next_hop(answer.node) != Some(child) {
            return Err(Refused::NotBeneath);
        }
        let question = Explain {
            query: answer.query,
            epoch: answer.epoch,
            node: answer.node,
            first: answer.first,
        };
        let asked =
            self.asked.iter().position(|asked| *asked == question).ok_or(Refused::NotAsked)?;
        self.asked.remove(asked);
        self.output.up.extend(answer.relay(&self.up, &mut *self.frame).map(|frame| frame.to_vec()));
        Ok(FrameOutcome::Taken)
    }
}

/// Returns the link keys of a gateway's children, in the order of the children.
fn down_keys(member: &Member<'_>, node: &aggregation::Aggregator) -> Vec<LinkKey> {
    let group = member.roster.group();
    let secret = |child: &Child| LinkKey::secret_of(member.children_secret, group, child.id);
    node.children().iter().map(|child| LinkKey::new(&secret(child))).collect()
}

/// Returns whether `records` records fit in one frame, for any set of participants among `sources`
/// sources. `group_sources` is the number of sources of the group.
fn fit_a_frame(group_sources: u32, sources: usize, records: usize) -> bool {
    let participants =
        participation::max_size(group_sources).min(PARTICIPANT.saturating_mul(sources));
    participants.saturating_add(PSR_IN_FRAME.saturating_mul(records)) <= MAX_FRAME - FRAME_FIELDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_frame_depends_on_the_sources_below_and_not_on_the_group() {
        // A bitmap of a million sources does not fit in a frame, but a list of ten participants
        // takes only a hundred bytes.
        assert!(fit_a_frame(1_000_000, 10, 3));
        assert!(!fit_a_frame(1_000_000, 10, 2000));
        assert!(!fit_a_frame(1_000_000, 1_000_000, 3));
        let records = (MAX_FRAME - FRAME_FIELDS - 100) / PSR_IN_FRAME;
        assert!(
            fit_a_frame(u32::MAX >> 1, 10, records) && !fit_a_frame(u32::MAX >> 1, 10, records + 1)
        );
        // Ten participants that are far apart do not take more than a hundred bytes.
        let mut words = vec![0_u64; 1 << 20];
        words.iter_mut().rev().step_by(1 << 16).take(10).for_each(|word| *word = 1 << 63);
        let mut out = [0; 10 * PARTICIPANT];
        assert!(Participation::encode(&words, &mut out).is_ok());
    }
}
