//! An aggregator without I/O. It receives frames, query schedules and times. It returns frames,
//! announcements and events for the log.
//!
//! See spec/sums.md, sections 3, 4 and 6. All memory is bounded. The aggregator keeps at most four
//! queries, a few epochs of each query, one share for each child and epoch, and a few questions of
//! fault localisation that wait for answers. A share is a child's contribution to one epoch: the
//! participating sources and their encrypted sums. The number of sources below a child limits the
//! size of its shares. A frame from an unknown sender costs at most the time to check a tag.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::time::Duration;

use moteseal_core::digest::Digest;
use moteseal_core::link::{LinkKey, MAX_FRAME};
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_core::roster::Directory as _;
use moteseal_core::signature::PublicKey;
use moteseal_sum::participation::{self, Participation};
use moteseal_sum::query::{MAX_SLOTS, Plan, QueryId};
use moteseal_sum::schedule::{self, MAX_QUERY_SCHEDULE, Posed, QuerySchedule};
use moteseal_sum::sies::Psr;
use moteseal_sum::wire::{Children, Explain, Share, SumUplink, close_share};
use moteseal_verify::Roster;
use moteseal_verify::aggregation::{self, AggregationTree, Child};

use super::error::Refused;
use super::gather::{Gathering, Held};

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
/// The maximum length of a frame from a source: the source's position, and one record for each
/// slot.
const MAX_SOURCE_FRAME: usize = FRAME_FIELDS + PSR_IN_FRAME * MAX_SLOTS;

/// A gateway's place in the aggregation tree, and the secrets that it shares with its parent and
/// its children.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    /// The group's roster, which determines the positions of the sources.
    pub roster: &'a Roster,
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
    roster: Digest,
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
    key_group: u32,
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
    /// The indices of the children that sent no share.
    pub silent: Vec<usize>,
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
        let group = roster.group();
        let key = |child: &Child| {
            LinkKey::new(&LinkKey::secret_of(member.children_secret, group, child.id))
        };
        Some(Self {
            group,
            roster: roster.digest(),
            querier: member.querier.clone(),
            id: node.id()?,
            tree_height: tree.height(),
            grace_ms: u64::try_from(member.grace.as_millis()).unwrap_or(u64::MAX),
            up: LinkKey::new(member.up_secret),
            down: node.children().iter().map(key).collect(),
            node,
            number: member.number,
            schedule: None,
            announced_ms: 0,
            key_group: 1,
            queries: Vec::new(),
            asked: VecDeque::new(),
            output: Outgoing::default(),
            frame: Box::new([0; MAX_FRAME]),
        })
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
        let schedule = QuerySchedule::open(&message, self.group, &self.roster)?;
        if schedule.sources() != self.node.group_sources() {
            return Err(Refused::SourcesMismatch);
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
        }
    }

    fn receive_share(
        &mut self,
        child: usize,
        share: &Share<'_>,
        now_ms: u64,
    ) -> Result<FrameOutcome, Refused> {
        let at = self.query(share.query)?;
        let query = &mut self.queries[at];
        query.check_epoch(share.epoch, now_ms)?;
        let (participation, psrs) =
            query.check(share.participation, share.psrs, (&self.node, child, self.key_group))?;
        let held = Held { participation: participation.as_bytes().into(), psrs };
        let (is_news, is_last) =
            query.take(share.epoch, child, held, self.node.children().len())?;
        if is_last {
            self.end(at, share.epoch);
        }
        Ok(if is_news { FrameOutcome::Taken } else { FrameOutcome::Repeated })
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
        let query = &mut self.queries[at];
        let sum = query.end(epoch, &self.node, self.key_group);
        let (id, mut bytes) =
            (query.id, vec![0; participation::max_size(self.node.group_sources())]);
        let length = Participation::encode(&sum.participants, &mut bytes);
        let written = length.and_then(|length| {
            close_share(
                id.reference(),
                epoch,
                &bytes[..length],
                &sum.psrs,
                &self.up,
                &mut *self.frame,
            )
            .map(|frame| frame.to_vec())
        });
        // The sum fits in the frame: `fits` checked it when the query started.
        self.output.up.extend(written);
        let participants = sum.participants.iter().map(|word| word.count_ones()).sum();
        let silent = (0..self.node.children().len())
            .filter(|child| sum.answered.binary_search(child).is_err())
            .collect();
        self.output.ended.push(Ended { query: id, epoch, participants, silent });
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
        let children: Vec<(DeviceId, &[u8], &[Psr])> = kept
            .iter()
            .map(|(child, held)| {
                (self.node.children()[*child].id, &*held.participation, &*held.psrs)
            })
            .collect();
        let frame = Children::close(question, &children, &self.up, &mut *self.frame);
        self.output.up.extend(frame.map(|frame| frame.to_vec()));
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
