//! An aggregator, sans-IO: frames, query schedules and times go in; frames, announcements and what
//! there is to tell come out.
//!
//! spec/sums.md, sections 3, 4 and 6. Everything in it is bounded: four queries, a few epochs of
//! each, of each child one share an epoch that is no longer than the child's part of the tree
//! needs, a few questions that are on their way. A stranger's frame costs at most the check of a
//! tag.

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

/// Questions on their way whose answers are waited for.
const MAX_ASKED: usize = 64;
/// The present query schedule is announced again after this time: whoever was told another one, or
/// could not act on it, hears it again.
const ANNOUNCE_MS: u64 = 60_000;
/// What stands around participants and records in any frame, the tag with it, takes at most this.
const FRAME_FIELDS: usize = 128;
/// A record in a frame.
const PSR_IN_FRAME: usize = 34;
/// A participant takes at most this: a run of its own, two integers below 2^32.
const PARTICIPANT: usize = 10;
/// A source's frame is at most this long: its position, and a record for each slot.
const MAX_SOURCE_FRAME: usize = FRAME_FIELDS + PSR_IN_FRAME * MAX_SLOTS;

/// Who a gateway is: its place in the tree, and what it shares with those above and beneath.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    /// The group's roster, which gives sources their positions.
    pub roster: &'a Roster,
    /// The tree.
    pub tree: &'a AggregationTree,
    /// The gateway's name in it.
    pub name: &'a str,
    /// The querier's public key.
    pub querier: &'a PublicKey,
    /// The link secret that this aggregator keeps for all its children.
    pub children_secret: &'a [u8; 32],
    /// The gateway's own link secret at its parent.
    pub up_secret: &'a [u8; 32],
    /// How long it waits for children after an epoch's end, for each height of the tree.
    pub grace: Duration,
    /// The highest number of an query schedule that it has acted on; 0 if none.
    pub number: u64,
}

impl fmt::Debug for Member<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A gateway that adds up.
pub struct Aggregator {
    group: GroupId,
    roster: Digest,
    querier: PublicKey,
    node: aggregation::Aggregator,
    id: DeviceId,
    tree_height: u32,
    grace_ms: u64,
    up: LinkKey,
    /// By the child's place.
    down: Vec<LinkKey>,
    number: u64,
    /// The newest query schedule, once it was heard since the start.
    schedule: Option<Vec<u8>>,
    /// When it was announced last.
    announced_ms: u64,
    key_group: u32,
    queries: Vec<Gathering>,
    asked: VecDeque<Explain>,
    said: Said,
    /// A frame that is being written.
    frame: Box<[u8; MAX_FRAME]>,
}

/// What there is to send and to tell.
#[derive(Debug, Default)]
pub struct Said {
    /// For all children.
    pub announcement: Option<Vec<u8>>,
    /// For the parent.
    pub up: Vec<Vec<u8>>,
    /// For a child.
    pub down: Vec<(DeviceId, Vec<u8>)>,
    /// Epochs that are over.
    pub ended: Vec<Ended>,
    /// Queries of an query schedule that cannot be answered here.
    pub unusable: Vec<Unusable>,
}

/// An epoch that is over and was sent on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Of which query.
    pub query: QueryId,
    /// The epoch.
    pub epoch: u64,
    /// How many sources take part.
    pub participants: u32,
    /// The places of the children who have not spoken.
    pub silent: Vec<usize>,
}

/// A query that this gateway does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The query.
    pub query: QueryId,
    /// Why: the name of the error.
    pub name: &'static str,
}

/// What became of a frame that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It is news.
    Taken,
    /// It had come before.
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
    /// A gateway that has not heard an query schedule yet. None where the tree has no such gateway.
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
            said: Said::default(),
            frame: Box::new([0; MAX_FRAME]),
        })
    }

    /// Its place in the tree.
    #[must_use]
    pub const fn node(&self) -> &aggregation::Aggregator {
        &self.node
    }

    /// The number of the query schedule that it acted on last; 0 if none.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The queries that run.
    pub fn queries(&self) -> impl ExactSizeIterator<Item = QueryId> {
        self.queries.iter().map(|query| query.id)
    }

    /// What there is to send and to tell, once.
    pub fn take_said(&mut self) -> Said {
        std::mem::take(&mut self.said)
    }

    /// When [`tick`](Self::tick) has something to do next, in milliseconds since 1970.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        self.queries.iter().filter_map(Gathering::due).min()
    }

    /// Bytes of children's records that are held.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.queries.iter().map(Gathering::bytes).sum()
    }

    /// Hears an announcement of the parent: acts on it if it is the querier's and no older than
    /// what was acted on, and passes it on as it is. `keep` makes its number durable before.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn hear_schedule(
        &mut self,
        bytes: &[u8],
        now_ms: u64,
        keep: impl FnOnce(u64) -> io::Result<()>,
    ) -> Result<Heard, Refused> {
        if self.schedule.as_deref() == Some(bytes) {
            return Ok(Heard::Repeated);
        }
        // What is old by its own word is not worth the check of a signature.
        if schedule::claimed_number(bytes)? < self.number {
            return Err(Refused::OlderAgenda);
        }
        let mut scratch = vec![0; bytes.len().saturating_add(64).min(MAX_QUERY_SCHEDULE)];
        let said = schedule::hear(bytes, self.group, &self.querier, &mut scratch)?;
        let schedule = QuerySchedule::open(&said, self.group, &self.roster)?;
        if schedule.sources() != self.node.group_sources() {
            return Err(Refused::SourcesMismatch);
        }
        // After a restart the newest query schedule is heard again.
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
                None => self.begun(id, &posed, now_ms),
            };
            match usable {
                Ok(query) => self.queries.push(query),
                Err(name) => self.said.unusable.push(Unusable { query: id, name }),
            }
        }
        self.said.announcement = Some(bytes.to_vec());
        Ok(Heard::Taken)
    }

    /// A query that is new here, or the name of what keeps it from being answered.
    fn begun(
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

    /// Whether the records of all sources beneath fit a frame, whoever takes part. If they do,
    /// every child's do.
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

    /// Hears a frame of a child. An epoch is over once [`tick`](Self::tick) or all children have
    /// ended it, so that whoever comes round late first hears what has come meanwhile, and then
    /// ticks.
    ///
    /// # Errors
    /// [`Refused`]: nothing has changed.
    pub fn hear(&mut self, child: DeviceId, frame: &[u8], now_ms: u64) -> Result<Heard, Refused> {
        let child = self.node.child(child).ok_or(Refused::UnknownChild)?;
        let longest =
            if self.node.children()[child].is_gateway { MAX_FRAME } else { MAX_SOURCE_FRAME };
        if frame.len() > longest {
            return Err(Refused::FrameTooLong);
        }
        match SumUplink::open(frame, &self.down[child])? {
            SumUplink::Share(share) => self.hear_share(child, &share, now_ms),
            SumUplink::Children(answer) => self.pass_on(child, &answer),
        }
    }

    fn hear_share(
        &mut self,
        child: usize,
        share: &Share<'_>,
        now_ms: u64,
    ) -> Result<Heard, Refused> {
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
        Ok(if is_news { Heard::Taken } else { Heard::Repeated })
    }

    fn query(&self, reference: u32) -> Result<usize, Refused> {
        self.queries
            .iter()
            .position(|query| query.id.reference() == reference)
            .ok_or(Refused::WrongQuery)
    }

    /// Ends the epochs whose time is up. Every minute the query schedule is announced again, as it
    /// is.
    pub fn tick(&mut self, now_ms: u64) {
        for at in 0..self.queries.len() {
            let (over, _) = self.queries[at].over(now_ms);
            for epoch in over {
                self.end(at, epoch);
            }
            self.queries[at].pass(now_ms);
        }
        // Also after the clock was set back.
        if self.schedule.is_some() && now_ms.abs_diff(self.announced_ms) >= ANNOUNCE_MS {
            self.announced_ms = now_ms;
            self.said.announcement.clone_from(&self.schedule);
        }
    }

    /// Ends the epochs that have ended by the clock and of which something was heard: what a
    /// gateway does that stops.
    pub fn finish(&mut self, now_ms: u64) {
        self.tick(now_ms);
        for at in 0..self.queries.len() {
            for epoch in self.queries[at].begun(now_ms) {
                self.end(at, epoch);
            }
        }
    }

    /// Ends an epoch and sends on what the children said of it.
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
        // It fits: that was seen when the query began.
        self.said.up.extend(written);
        let participants = sum.participants.iter().map(|word| word.count_ones()).sum();
        let silent = (0..self.node.children().len())
            .filter(|child| sum.spoken.binary_search(child).is_err())
            .collect();
        self.said.ended.push(Ended { query: id, epoch, participants, silent });
    }

    /// Hears a question of the parent: answers it, or passes it on towards whom it is for.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn hear_question(&mut self, frame: &[u8], now_ms: u64) -> Result<Heard, Refused> {
        let question = Explain::open(frame, &self.up)?;
        self.tick(now_ms);
        let at = self.query(question.query)?;
        if question.node == self.id {
            return self.answer(at, &question);
        }
        let child = self.node.next_hop(question.node).ok_or(Refused::UnknownNode)?;
        if let Ok(frame) = question.close(&self.down[child], &mut *self.frame) {
            self.said.down.push((self.node.children()[child].id, frame.to_vec()));
        }
        if self.asked.contains(&question) {
            return Ok(Heard::Repeated);
        }
        if self.asked.len() == MAX_ASKED {
            self.asked.pop_front();
        }
        self.asked.push_back(question);
        Ok(Heard::Taken)
    }

    fn answer(&mut self, at: usize, question: &Explain) -> Result<Heard, Refused> {
        let kept = self.queries[at].kept(question.epoch)?;
        let children: Vec<(DeviceId, &[u8], &[Psr])> = kept
            .iter()
            .map(|(child, held)| {
                (self.node.children()[*child].id, &*held.participation, &*held.psrs)
            })
            .collect();
        let frame = Children::close(question, &children, &self.up, &mut *self.frame);
        self.said.up.extend(frame.map(|frame| frame.to_vec()));
        Ok(Heard::Taken)
    }

    /// Passes an answer on that was asked for.
    fn pass_on(&mut self, child: usize, answer: &Children<'_>) -> Result<Heard, Refused> {
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
        self.said.up.extend(answer.relay(&self.up, &mut *self.frame).map(|frame| frame.to_vec()));
        Ok(Heard::Taken)
    }
}

/// Whether so many records fit a frame, with whichever of so many sources of a group of
/// `group_sources` takes part.
fn fit_a_frame(group_sources: u32, sources: usize, records: usize) -> bool {
    let participants =
        participation::max_size(group_sources).min(PARTICIPANT.saturating_mul(sources));
    participants.saturating_add(PSR_IN_FRAME.saturating_mul(records)) <= MAX_FRAME - FRAME_FIELDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_a_frame_is_counted_by_who_is_beneath_and_not_by_the_size_of_the_group() {
        // A bitmap of a million sources is longer than a frame; ten of them say who they are in a
        // hundred bytes.
        assert!(fit_a_frame(1_000_000, 10, 3));
        assert!(!fit_a_frame(1_000_000, 10, 2000));
        assert!(!fit_a_frame(1_000_000, 1_000_000, 3));
        let records = (MAX_FRAME - FRAME_FIELDS - 100) / PSR_IN_FRAME;
        assert!(
            fit_a_frame(u32::MAX >> 1, 10, records) && !fit_a_frame(u32::MAX >> 1, 10, records + 1)
        );
        // Ten positions that lie far apart take no more than that.
        let mut words = vec![0_u64; 1 << 20];
        words.iter_mut().rev().step_by(1 << 16).take(10).for_each(|word| *word = 1 << 63);
        let mut out = [0; 10 * PARTICIPANT];
        assert!(Participation::encode(&words, &mut out).is_ok());
    }
}
