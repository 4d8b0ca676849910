//! A device that samples within its group's budget: seals, forwards, and waits for its gateway (DESIGN section 6).
//!
//! [`Mote`] is the whole protocol without sockets or clock: readings and frames go in, frames come out. It keeps a closed seal, with
//! what was forwarded under it, until the gateway has all of it durably. Its memory is bounded: a buffer of [`BUFFER`] bytes a
//! seal, which raises the device's own round rather than lose single events, and a number of closed seals. Where no higher round makes
//! room in a tree's buffer, its seal is closed and the epoch goes on under the next index. While so many wait, seals and epochs that
//! pass are given up: their indices are abandoned, and the first seal behind them says so (`restart`: an outage).
//!
//! A gateway that has lost what it acknowledged cannot be given it again: [`Mote::forsaken`] says so, and the seal is given up.
//!
//! What must survive a restart is [`Chain`](crate::Chain), as for every sealer: [`Mote::would_open`] before the first event of a seal.
//! Closed seals that wait survive if whoever drives the mote keeps [`Waiting`]; readings of an open seal do not, and the next
//! seal says so (`restart`).

use std::collections::{BTreeMap, VecDeque};

use moteseal_core::cbor::BufferTooSmall;
use moteseal_core::digest::Digest;
use moteseal_core::link::{FrameError, LinkKey, MAX_FRAME};
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Framing, Level, MAX_LEVELS, Round, SealIndex};
use moteseal_core::signature::Signer;
use moteseal_seal::device_session::{
    Closing, DeviceSession, Outstanding, is_sealed, link_statement,
};
use moteseal_seal::follow::Limits;
use moteseal_seal::level::LevelKey;
use moteseal_seal::level::{Counters, SaltKey};
use moteseal_seal::sample::{Announcement, Forwarder, Noted};
use moteseal_seal::stream::{Open as OpenItem, Selection};
use moteseal_seal::tree::Tree;
use moteseal_seal::wire::{MAX_EVENTS, MAX_RECORD};
use moteseal_seal::{Answers, Seal, Statement, star};
use moteseal_verify::write;

use crate::seal::{Chain, Profile, SealRefused};

mod unstated;

pub use unstated::Unstated;

/// Bytes of forwarded events that a mote buffers for one seal.
pub const BUFFER: usize = 1 << 16;
/// Bytes of events in one frame: a frame then fits one datagram of any link, and one packet of most.
pub const FRAME_EVENTS: usize = 1 << 10;

const _: () = assert!(BUFFER >= MAX_RECORD + 7, "the buffer takes any record");

/// A device of a group with a budget.
pub struct Mote<K> {
    profile: Profile,
    signer: K,
    salt_key: SaltKey,
    session: DeviceSession,
    chain: Chain,
    open: Option<Open>,
    waiting: VecDeque<Waiting>,
    most_waiting: usize,
    /// Answers that no seal states that was not given up.
    unstated: Unstated,
}

/// A seal that is open.
struct Open {
    index: SealIndex,
    epoch: EpochNumber,
    key: LevelKey,
    folded: Folded,
    counters: Counters,
    answers: Answers,
    forwarder: Box<Forwarder<BUFFER>>,
}

/// What a seal's root is made from.
enum Folded {
    /// Of a star, the running digests of the levels from the device's round on.
    Star(BTreeMap<u8, sha2::Sha256>),
    /// Of a tree, the frontier over all events.
    Tree(Box<Tree<32>>),
}

/// A closed seal on its way to the gateway.
pub struct Waiting {
    index: SealIndex,
    forwarder: Box<Forwarder<BUFFER>>,
    /// The open and the part item of its closing frame.
    open: Vec<u8>,
    part: Vec<u8>,
    answers: Answers,
}

impl Open {
    /// Whether it takes this event as one of at most `limit`.
    fn has_room(&mut self, record: &[u8], limit: u64) -> bool {
        let count = self.counters.total();
        count < limit
            && self.forwarder.make_room(self.key.level(count, self.counters.levels()), record)
    }

    /// Takes an event for which it has room.
    fn take(&mut self, device: DeviceId, framing: Framing, record: &[u8]) {
        let level = self.key.level(self.counters.total(), self.counters.levels());
        if let Some(count) = self.counters.as_mut_slice().get_mut(usize::from(level.0)) {
            *count += 1;
        }
        let noted = self.forwarder.note(level, record);
        debug_assert_ne!(noted, Noted::Full, "a full seal is closed before");
        let own_round = self.forwarder.rounds().1;
        match &mut self.folded {
            Folded::Star(running) => {
                running.retain(|level, _| *level >= own_round.0);
                if level.0 >= own_round.0 {
                    let running = running.entry(level.0);
                    let start =
                        || sha2::Digest::new_with_prefix(star::header(device, self.index, level));
                    let digest: &mut sha2::Sha256 = running.or_insert_with(start);
                    framing.frame(record, |bytes| sha2::Digest::update(digest, bytes));
                }
            }
            Folded::Tree(tree) => {
                let pushed = tree.push(record);
                debug_assert!(pushed.is_ok(), "a seal has fewer events than a tree takes");
            }
        }
    }
}

impl<K> std::fmt::Debug for Mote<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mote")
            .field("chain", &self.chain)
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("index", &self.index).finish_non_exhaustive()
    }
}

impl<K: Signer> Mote<K> {
    /// A mote that goes on where `chain` ended, with the closed seals that still waited. At most `most_waiting` (at least 1) wait.
    #[must_use]
    pub fn new(
        profile: Profile,
        signer: K,
        salt_key: SaltKey,
        link: LinkKey,
        chain: Chain,
        waiting: Vec<Waiting>,
        most_waiting: usize,
    ) -> Self {
        Self {
            session: DeviceSession::new(profile.device, link),
            profile,
            signer,
            salt_key,
            chain,
            open: None,
            waiting: waiting.into(),
            most_waiting: most_waiting.max(1),
            unstated: Unstated::default(),
        }
    }

    /// Where the chain stands; an open seal's index and epoch are in it.
    #[must_use]
    pub const fn chain(&self) -> Chain {
        self.chain
    }

    /// Closed seals that wait for the gateway.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The oldest seal that is open, or waits for the gateway.
    #[must_use]
    pub fn oldest(&self) -> Option<SealIndex> {
        self.waiting.front().map(|waiting| waiting.index).or_else(|| self.opened())
    }

    /// The seal that is open.
    #[must_use]
    pub fn opened(&self) -> Option<SealIndex> {
        self.open.as_ref().map(|open| open.index)
    }

    /// Whether a seal is open or waits for the gateway: not if it was given up, or the gateway has it.
    #[must_use]
    pub fn has(&self, index: SealIndex) -> bool {
        self.opened() == Some(index) || self.waiting.iter().any(|waiting| waiting.index == index)
    }

    /// Bytes of the open seal's events that the gateway does not have yet; at most [`BUFFER`].
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.forwarder.buffered())
    }

    /// How many closed seals may wait from now on.
    pub fn set_most_waiting(&mut self, most_waiting: usize) {
        self.most_waiting = most_waiting.max(1);
    }

    /// Star or tree, of the seals that are opened from now on.
    pub const fn set_scheme(&mut self, scheme: Scheme) {
        self.profile.scheme = scheme;
    }

    /// Passes over indices and epochs that another run of the device gave up: the open seal is closed, as the last one of its epoch or not,
    /// and the next one is `next_index`.
    ///
    /// # Errors
    /// [`SealRefused`].
    pub fn pass_over(
        &mut self,
        next_index: SealIndex,
        epoch: EpochNumber,
        last_in_epoch: bool,
    ) -> Result<(), SealRefused> {
        if self.open.is_some() {
            self.close_or_give_up(last_in_epoch)?;
        }
        self.skip_to(next_index);
        self.chain.epoch = self.chain.epoch.max(Some(epoch));
        Ok(())
    }

    /// Passes over indices that were opened and never used; the open seal stays open.
    pub fn skip_to(&mut self, next_index: SealIndex) {
        self.chain.next_index = self.chain.next_index.max(next_index);
    }

    /// The oldest seal, where the gateway has lost what it acknowledged of it: it goes on asking for events that the device no longer has.
    /// It is to be given up: nothing else ever ends that.
    #[must_use]
    pub fn forsaken(&self) -> Option<SealIndex> {
        self.oldest().filter(|_| self.session.is_forsaken())
    }

    /// Gives up a seal that is open or waits. Of an open one the next seal says so (`restart`); one that was signed stays missing from the
    /// chain. What it stated of answers is forgotten: [`answers_of`](Self::answers_of) tells it before.
    pub fn give_up(&mut self, index: SealIndex) {
        self.waiting.retain(|waiting| waiting.index != index);
        if self.opened() == Some(index) {
            self.open = None;
        }
        self.session.reset_patience();
    }

    /// What all its seals have in common.
    #[must_use]
    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Gives up the mote and hands out what waits: what a journal would have kept.
    #[must_use]
    pub fn into_parts(self) -> (Chain, Vec<Waiting>) {
        (self.chain, self.waiting.into())
    }

    /// What must be persisted before [`sense`](Self::sense) takes this reading of `epoch`, if that opens a seal. Where a tree's buffer has
    /// no room for it, the device's own round is raised, as `sense` would raise it.
    #[must_use]
    pub fn would_open(&mut self, epoch: EpochNumber, record: &[u8]) -> Option<Chain> {
        let limit = self.limit();
        let goes_on = self
            .open
            .as_mut()
            .is_some_and(|open| open.epoch == epoch && open.has_room(record, limit));
        let next_index = SealIndex(self.chain.next_index.0.saturating_add(1));
        (!goes_on).then_some(Chain { next_index, epoch: Some(epoch), ..self.chain })
    }

    /// Takes the next reading. Where its epoch is a later one than the open seal's, that seal is closed first; a seal that is full is closed,
    /// and its epoch goes on under the next index.
    ///
    /// # Errors
    /// [`SealRefused`]; the reading was not taken.
    pub fn sense(&mut self, epoch: EpochNumber, record: &[u8]) -> Result<(), SealRefused> {
        self.check_length(record.len())?;
        let limit = self.limit();
        if self
            .open
            .as_mut()
            .is_some_and(|open| open.epoch == epoch && !open.has_room(record, limit))
        {
            self.close_or_give_up(false)?;
        }
        self.go_to(epoch)?;
        if let Some(open) = &mut self.open {
            open.take(self.profile.device, self.profile.framing, record);
        }
        Ok(())
    }

    /// Ends an epoch: the open seal is closed, or, if there is none for it, one that says that nothing happened. A later reading
    /// must be of a later epoch.
    ///
    /// # Errors
    /// [`SealRefused`].
    pub fn end(&mut self, epoch: EpochNumber) -> Result<(), SealRefused> {
        if self.open.as_ref().is_none_or(|open| open.epoch < epoch) {
            self.go_to(epoch)?;
        }
        self.close_or_give_up(true)
    }

    /// Opens a seal for an epoch, if none is open for it; that of an epoch before is closed.
    ///
    /// # Errors
    /// [`SealRefused`].
    pub fn begin(&mut self, epoch: EpochNumber) -> Result<(), SealRefused> {
        self.go_to(epoch)
    }

    /// The epoch of the seal that is open.
    #[must_use]
    pub fn epoch(&self) -> Option<EpochNumber> {
        self.open.as_ref().map(|open| open.epoch)
    }

    /// Closes the open seal, or gives it up where too many wait.
    fn close_or_give_up(&mut self, last_in_epoch: bool) -> Result<(), SealRefused> {
        if self.waiting.len() < self.most_waiting {
            return self.close(last_in_epoch);
        }
        if let Some(open) = self.open.take() {
            self.unstated.add_all(&open.answers);
        }
        Ok(())
    }

    /// A seal with so many events is closed before it takes another one: no verifier takes one with more.
    fn limit(&self) -> u64 {
        u64::from(self.profile.max_events.clamp(1, Limits::default().max_events))
    }

    fn check_length(&self, length: usize) -> Result<(), SealRefused> {
        match self.profile.framing {
            Framing::Fixed(size) if length != usize::from(size.get()) => {
                Err(SealRefused::WrongLength { length })
            }
            _ if length > MAX_RECORD => Err(SealRefused::TooLong { length }),
            _ => Ok(()),
        }
    }

    /// Makes sure that a seal is open for an epoch.
    fn go_to(&mut self, epoch: EpochNumber) -> Result<(), SealRefused> {
        if let Some(after) = self.chain.epoch.filter(|after| epoch < *after) {
            return Err(SealRefused::EpochGoesBack { epoch, after });
        }
        let (first, last) = self.profile.epochs;
        if epoch < first || last.is_some_and(|last| epoch > last) {
            return Err(SealRefused::EpochOutOfRange { epoch });
        }
        match &self.open {
            Some(open) if open.epoch == epoch => return Ok(()),
            Some(_) => self.close_or_give_up(true)?,
            None if self.chain.position.epoch_closed
                && self.chain.position.last.is_some_and(|(_, last)| last == epoch) =>
            {
                return Err(SealRefused::EpochClosed { epoch });
            }
            None => {}
        }
        let index = self.chain.next_index;
        if index.0 == u32::MAX {
            return Err(SealRefused::IndexExhausted);
        }
        let salt = self.salt_key.salt(self.profile.device, index);
        let levels = self.profile.levels;
        self.open = Some(Open {
            index,
            epoch,
            key: LevelKey::new(&salt),
            folded: match self.profile.scheme {
                Scheme::Star => Folded::Star(BTreeMap::new()),
                Scheme::Tree => Folded::Tree(Box::default()),
            },
            counters: Counters::new(levels),
            answers: self.unstated.take(),
            forwarder: Box::new(Forwarder::new(
                index,
                epoch,
                (self.profile.scheme, self.profile.framing),
                levels,
                self.session.round_of(epoch),
            )),
        });
        self.chain.next_index.0 += 1;
        self.chain.epoch = Some(epoch);
        Ok(())
    }

    /// Signs the open seal.
    fn close(&mut self, last_in_epoch: bool) -> Result<(), SealRefused> {
        let Some(open) = &self.open else { return Ok(()) };
        let Profile { group, roster, device, levels, .. } = self.profile;
        let position = self.chain.position;
        let scheme =
            if matches!(open.folded, Folded::Tree(_)) { Scheme::Tree } else { Scheme::Star };
        let mut statement = Statement::new(scheme, group, roster, device, levels);
        link_statement(&mut statement, &position, &open.forwarder);
        (statement.epoch, statement.last_in_epoch) = (open.epoch, last_in_epoch);
        statement.schema = self.profile.schema_digest;
        statement.salt = self.salt_key.salt(device, open.index);
        statement.counters = open.counters;
        statement.answered = open.answers;
        let root = match &open.folded {
            Folded::Star(running) => {
                let mut digests = [Digest::NULL; MAX_LEVELS];
                for level in (0..levels).map(Level).filter(|level| !statement.is_null(*level)) {
                    let running = running.get(&level.0);
                    digests[usize::from(level.0)] = running.map_or(Digest::NULL, |digest| {
                        Digest(sha2::Digest::finalize(digest.clone()).into())
                    });
                }
                star::root(&statement.counters, &digests[..usize::from(levels)])
            }
            Folded::Tree(tree) => tree.root(),
        };
        let surviving = statement.surviving();
        let seal = Seal::new(statement, root, self.signer.algorithm());
        let signature =
            self.signer.signature(seal.message(&mut [0; _])).map_err(SealRefused::Sign)?;
        let (mut item, mut part) = (Vec::new(), Vec::new());
        let roster_version = self.profile.roster_version;
        write::open(
            &mut item,
            &OpenItem { device, roster_version, prev: Some(position.prev), last: position.last },
        );
        write::part(&mut part, &seal, Selection::Levels(surviving), &[], &[], Some(&signature));
        self.chain.position = seal.position();
        if let Some(Open { index, answers, mut forwarder, .. }) = self.open.take() {
            forwarder.end();
            self.waiting.push_back(Waiting { index, forwarder, open: item, part, answers });
        }
        Ok(())
    }

    /// The frames that are due: what has not been sent since it was last said to be missing. At most `most`.
    ///
    /// One seal after the other: a frame of the next one would tell the gateway that this one was abandoned.
    ///
    /// # Errors
    /// [`BufferTooSmall`] if one does not fit a frame. That would be a defect: no such reading is taken.
    pub fn frames(&mut self, most: usize) -> Result<Vec<Vec<u8>>, BufferTooSmall> {
        let frame_events = match self.profile.framing {
            Framing::Fixed(size) => FRAME_EVENTS.max(usize::from(size.get()) + 16).min(MAX_EVENTS),
            // A record of any length must fit.
            Framing::Prefixed => MAX_EVENTS,
        };
        let (mut scratch, mut out) = (vec![0; frame_events], vec![0; MAX_FRAME]);
        let schema = (&*self.profile.schema, self.profile.schema_digest);
        let mut frames = Vec::new();
        while frames.len() < most {
            let outstanding = outstanding(&mut self.waiting, &mut self.open);
            match self.session.next_frame(schema, outstanding, &mut scratch, &mut out)? {
                Some(frame) => frames.push(frame.to_vec()),
                None => break,
            }
        }
        Ok(frames)
    }

    /// Hears the gateway's acknowledgement. Says whether that changed what the mote still has: one that did must be told again after a
    /// restart, in its place, and one that did not need not.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn acknowledged(&mut self, frame: &[u8]) -> Result<bool, FrameError> {
        let acknowledgement = self.session.open_acknowledgement(frame)?;
        let before = self.waiting.len();
        while self.waiting.front().is_some_and(|waiting| is_sealed(&acknowledgement, waiting.index))
        {
            self.waiting.pop_front();
        }
        let mut is_news = self.waiting.len() < before;
        let waiting = self.waiting.iter_mut().map(|waiting| &mut waiting.forwarder);
        for forwarder in waiting.chain(self.open.as_mut().map(|open| &mut open.forwarder)) {
            is_news |= forwarder.acknowledge(&acknowledgement);
        }
        let waiting = self.waiting.front().map(|waiting| &waiting.forwarder);
        let oldest = waiting.or(self.open.as_ref().map(|open| &open.forwarder));
        let oldest = oldest.map(|forwarder| (forwarder.index(), forwarder.acknowledged()));
        self.session.acknowledged(&acknowledgement, oldest, is_news);
        Ok(is_news)
    }

    /// Hears that the gateway refuses a seal: the seal to give up ([`Mote::give_up`]), if it is to be, and the refusal's name. It is if it
    /// is the oldest, which holds up all others, and either nothing can make the gateway take it, or as many seals as may wait do: from
    /// then on it would cost newer ones.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn refused<'f>(&self, frame: &'f [u8]) -> Result<Option<(SealIndex, &'f str)>, FrameError> {
        let costs_readings = self.waiting.len() >= self.most_waiting;
        let refusal = self.session.refused(frame, self.oldest(), costs_readings)?;
        Ok(refusal.map(|refusal| (refusal.index, refusal.name)))
    }

    /// Hears the coordinator's word on the round; what is old changes nothing, and it says so. The caller has checked whose word it is.
    pub fn announced(&mut self, announcement: &Announcement) -> bool {
        let open = self.open.as_mut().map(|open| (open.epoch, &mut *open.forwarder));
        self.session.announced(announcement, open)
    }

    /// The newest epoch that the coordinator has announced, and its round: epoch 0 and round 0 before the first announcement.
    #[must_use]
    pub const fn newest_announced(&self) -> (EpochNumber, Round) {
        self.session.newest_announced()
    }

    /// Makes everything that is not acknowledged due again: the coordinator has not replied for a while.
    pub fn timeout(&mut self) {
        self.session.timeout(outstanding(&mut self.waiting, &mut self.open));
    }

    /// Whether everything that was sensed is sealed, and with the gateway.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.open.is_none() && self.waiting.is_empty()
    }
}

/// The oldest seal that the coordinator does not have.
fn outstanding<'a>(
    waiting: &'a mut VecDeque<Waiting>,
    open: &'a mut Option<Open>,
) -> Option<Outstanding<'a, BUFFER>> {
    match (waiting.front_mut(), open) {
        (Some(Waiting { index, forwarder, open, part, .. }), _) => Some(Outstanding {
            index: *index,
            forwarder: Some(forwarder),
            closing: Some(Closing { open, part }),
        }),
        (None, Some(open)) => Some(Outstanding {
            index: open.index,
            forwarder: Some(&mut open.forwarder),
            closing: None,
        }),
        (None, None) => None,
    }
}
