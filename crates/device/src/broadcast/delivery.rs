//! Decides whether and when a watcher delivers a verified chain (spec/broadcast.md, section 3.5).
//!
//! A chain is delivered only within its window. Of the commands of one topic, the watcher delivers
//! only those that are newer than the newest one so far. When it catches up, it first waits for
//! later commands. What decides is durable: the newest command of each topic, and the latest time
//! that the watcher has used. A clock that was set back therefore does not revive a command.

use std::path::Path;

use moteseal_broadcast::recovery::{Item, Now, Store as _};
use moteseal_broadcast::{
    ChainNumber, ChainRef, Head, KeyId, Kind, MAX_HEAD, Outline, Untimely, Window,
};

use super::addressed::{Address, OwnContent};
use super::image::{AGENT_SUFFIX, file_name};
use super::watcher::{OnWatchEvent, RESUME_MS, WatchError, WatchEvent, Watcher, Withheld};

/// The maximum number of chains that are verified and held.
const MOST_HELD: usize = 64;
/// A command that arrives up to this many seconds, plus the allowed offset of the clocks, after its
/// begin is current: the watcher does not wait for later ones.
const CURRENT_SECONDS: u64 = 5;
/// The time that the watcher uses is made durable at least once in this many seconds.
const TIME_SECONDS: u64 = 60;

/// The content of a chain's head that decides about its delivery.
pub(super) struct Watched {
    pub(super) outline: Outline,
    pub(super) label: String,
    pub(super) window: Window,
    /// How to read the content, if the chain is for named receivers and this watcher is one.
    own: Option<OwnContent>,
}

impl Watched {
    const fn number(&self) -> ChainNumber {
        self.outline.id.number
    }

    const fn key(&self) -> KeyId {
        self.outline.key
    }

    const fn is_command(&self) -> bool {
        matches!(self.outline.kind, Kind::Command)
    }

    /// Returns the progress that is noted when nothing more of the chain is to be delivered.
    fn end(&self) -> u64 {
        u64::from(self.outline.blocks()) + 1
    }

    /// Returns the progress that is noted when the whole chain was delivered.
    pub(super) fn delivered(&self) -> u64 {
        self.end() + 1
    }
}

/// A verified chain that is not delivered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    number: ChainNumber,
    /// When to try again, in milliseconds of `Now`.
    pub(super) until: u64,
    /// The end of the wait for later commands, in milliseconds of `Now`; `None` if the watcher does
    /// not wait for them.
    caught_up: Option<u64>,
    /// The reason that was reported.
    pub(super) reported: Option<Withheld>,
    verified: u32,
    pub(super) is_complete: bool,
}

/// Why a chain is not delivered now.
enum Hold {
    Withheld(Withheld),
    /// Later commands of the topic may still arrive, until this time in milliseconds of `Now`.
    CatchingUp(u64),
}

impl Watcher<'_> {
    pub(super) fn head(&mut self, chain: ChainRef) -> Result<Watched, WatchError> {
        let mut buffer = [0; MAX_HEAD];
        let bytes = self
            .archive
            .fetch(Item::Head(chain), &mut buffer)?
            .ok_or(WatchError::Damaged(chain))?;
        let head = Head::reopen(bytes).map_err(|_| WatchError::Damaged(chain))?;
        Ok(Watched {
            outline: *head.outline(),
            label: head.label().to_owned(),
            window: head.window(),
            own: None,
        })
    }

    /// Returns the time for comparisons with windows, or why there is none. The time never goes
    /// back, except by [`Options::accepts_earlier_time`](super::Options::accepts_earlier_time).
    fn time(&mut self, now: Now) -> Result<u64, Withheld> {
        let unix = now.unix.ok_or(Withheld::NoTrustedTime)?;
        if unix.saturating_add(self.clock_offset) < self.latest {
            return Err(Withheld::ClockSetBack(self.latest - unix));
        }
        self.latest = self.latest.max(unix);
        Ok(self.latest)
    }

    /// Makes the time durable now and then.
    pub(super) fn note_time(&mut self, now: Now) -> Result<(), WatchError> {
        if let Ok(time) = self.time(now)
            && time >= self.archive.time().saturating_add(TIME_SECONDS)
        {
            self.archive.set_time(time)?;
        }
        Ok(())
    }

    /// Makes the time durable before a decision that depends on it.
    fn fix_time(&mut self) -> Result<(), WatchError> {
        if self.latest > self.archive.time() {
            self.archive.set_time(self.latest)?;
        }
        Ok(())
    }

    /// Reports the chains that were missed, except those from before the watcher joined.
    pub(super) fn report_missed(
        &mut self,
        notify: &mut OnWatchEvent<'_>,
    ) -> Result<(), WatchError> {
        for missed in self.archive.take_missed() {
            if self.archive.joined(missed.key).is_some_and(|joined| missed.number > joined) {
                notify(WatchEvent::Missed { sender: missed.sender, number: missed.number })
                    .map_err(WatchError::Output)?;
            }
        }
        Ok(())
    }

    /// Returns the highest number of a later command of the same topic whose window has begun.
    fn superseding(
        &mut self,
        watched: &Watched,
        time: u64,
    ) -> Result<Option<ChainNumber>, WatchError> {
        let mut newest = None;
        let mut buffer = [0; MAX_HEAD];
        for chain in self.archive.chains() {
            let Some(bytes) = self.archive.fetch(Item::Head(chain), &mut buffer)? else { continue };
            let Ok(head) = Head::reopen(bytes) else { continue };
            let label = match self.addresses.get(&chain) {
                _ if !head.outline().is_addressed => Some(head.label()),
                Some(Address::Own(own)) => Some(&*own.label),
                _ => None,
            };
            let is_later = head.outline().kind == Kind::Command
                && head.key() == watched.key()
                && label == Some(&watched.label)
                && head.id().number > watched.number();
            if is_later
                && head.window().check(Some(time), self.clock_offset) != Err(Untimely::Early)
            {
                newest = newest.max(Some(head.id().number));
            }
        }
        Ok(newest)
    }

    /// Returns why a chain may not be delivered now, if it may not.
    fn hold(
        &mut self,
        now: Now,
        chain: ChainRef,
        watched: &Watched,
    ) -> Result<Option<Hold>, WatchError> {
        let has_begun = self.archive.noted(chain) > 0;
        let is_always = watched.window == Window::ALWAYS;
        if !watched.is_command() && (has_begun || is_always) {
            return Ok(None);
        }
        if watched.is_command()
            && let Some(newest) = self.archive.newest_of_topic(watched.key(), &watched.label)
            && newest > watched.number()
        {
            return Ok(Some(Hold::Withheld(Withheld::Superseded(newest))));
        }
        let time = match self.time(now) {
            Ok(time) => time,
            Err(why) => return Ok(Some(Hold::Withheld(why))),
        };
        match watched.window.check(Some(time), self.clock_offset) {
            Err(Untimely::Early) => return Ok(Some(Hold::Withheld(Withheld::Early))),
            Err(_) => return Ok(Some(Hold::Withheld(Withheld::Late))),
            Ok(()) => {}
        }
        if !watched.is_command() {
            return Ok(None);
        }
        if let Some(newest) = self.superseding(watched, time)? {
            return Ok(Some(Hold::Withheld(Withheld::Superseded(newest))));
        }
        // A command that is already delivered in part was current when it began.
        if has_begun {
            return Ok(None);
        }
        let catches_up = match self.held.get(&chain).and_then(|held| held.caught_up) {
            Some(caught_up) => Some(caught_up),
            None => self.catch_up_until(now, watched, time),
        };
        Ok(catches_up.filter(|until| now.ms < *until).map(Hold::CatchingUp))
    }

    /// Returns until when to wait for later commands, in milliseconds of `Now`; `None` if the
    /// command is current. The wait takes at most half of the time that the command is still valid.
    fn catch_up_until(&self, now: Now, watched: &Watched, time: u64) -> Option<u64> {
        let current = self.clock_offset.saturating_add(CURRENT_SECONDS);
        let started = self.started_at.saturating_add(self.catch_up_ms);
        let until = if time > watched.window.not_before.saturating_add(current) {
            now.ms.saturating_add(self.catch_up_ms)
        } else if now.ms < started {
            started
        } else {
            return None;
        };
        let half = watched.window.not_after.saturating_sub(time).saturating_mul(500);
        Some(until.min(now.ms.saturating_add(half)))
    }

    /// Returns when to try again to deliver a chain that is too early or waits for the time.
    fn retry_at(&self, now: Now, watched: &Watched) -> u64 {
        let begin = watched.window.not_before.saturating_sub(self.clock_offset);
        let wait = begin.saturating_sub(self.latest).saturating_mul(1000).clamp(1, RESUME_MS);
        now.ms.saturating_add(if now.unix.is_some() { wait } else { RESUME_MS })
    }

    /// Drops a chain whose head was accepted if the watcher will not deliver it: the chain is too
    /// late or superseded, or it is older than the chain with which the watcher joined, and not a
    /// command. A relay receives it all the same, for the other links. Returns whether the chain is
    /// dropped.
    pub(super) fn drop_unwanted(
        &mut self,
        now: Now,
        chain: ChainRef,
        notify: &mut OnWatchEvent<'_>,
    ) -> Result<bool, WatchError> {
        let watched = self.head(chain)?;
        if self.is_before_joining(&watched) {
            self.archive.note(chain, watched.end())?;
        } else if watched.outline.is_addressed {
            // Its topic is known only when its address is verified.
            return Ok(false);
        } else {
            match self.hold(now, chain, &watched)? {
                Some(Hold::Withheld(why)) if !why.is_for_now() => {
                    self.settle(chain, &watched, why, notify)?;
                }
                _ => return Ok(false),
            }
        }
        if self.is_relay {
            return Ok(false);
        }
        self.node.abandon(chain, &mut self.archive)?;
        Ok(true)
    }

    fn is_before_joining(&self, watched: &Watched) -> bool {
        !watched.is_command()
            && self.archive.joined(watched.key()).is_some_and(|joined| watched.number() < joined)
    }

    /// Reports that a chain, or the rest of it, is never delivered, and records it.
    fn settle(
        &mut self,
        chain: ChainRef,
        watched: &Watched,
        why: Withheld,
        notify: &mut OnWatchEvent<'_>,
    ) -> Result<(), WatchError> {
        self.held.remove(&chain);
        if why == Withheld::Late {
            self.fix_time()?;
            // An earlier command of the topic must not be delivered after this one has ended.
            if watched.is_command() {
                self.archive.raise_topic(watched.key(), &watched.label, watched.number())?;
            }
        }
        let (outline, label, window) = (&watched.outline, &*watched.label, watched.window);
        notify(WatchEvent::Withheld { outline, label, window, why }).map_err(WatchError::Output)?;
        self.archive.note(chain, watched.end())?;
        Ok(())
    }

    /// Holds a chain until it may be delivered.
    fn keep_back(
        &mut self,
        now: Now,
        chain: ChainRef,
        watched: &Watched,
        hold: &Hold,
        (verified, is_complete): (u32, bool),
        notify: &mut OnWatchEvent<'_>,
    ) -> Result<(), WatchError> {
        if !self.held.contains_key(&chain) && self.held.len() >= MOST_HELD {
            return self.settle(chain, watched, Withheld::NoRoom, notify);
        }
        let before = self.held.get(&chain).copied();
        let mut reported = before.and_then(|held| held.reported);
        let (until, caught_up) = match hold {
            Hold::CatchingUp(until) => (*until, Some(*until)),
            Hold::Withheld(_) => {
                (self.retry_at(now, watched), before.and_then(|held| held.caught_up))
            }
        };
        if let Hold::Withheld(why) = hold
            && reported.map(Withheld::name) != Some(why.name())
        {
            let (outline, label, window) = (&watched.outline, &*watched.label, watched.window);
            notify(WatchEvent::Withheld { outline, label, window, why: *why })
                .map_err(WatchError::Output)?;
            reported = Some(*why);
        }
        let number = watched.number();
        let held = Held { number, until, caught_up, reported, verified, is_complete };
        self.held.insert(chain, held);
        Ok(())
    }

    /// Delivers the held chains that are due, in the order of their numbers.
    pub(super) fn deliver_held(
        &mut self,
        now: Now,
        notify: &mut OnWatchEvent<'_>,
    ) -> Result<(), WatchError> {
        let due = self.held.iter().filter(|(_, held)| held.until <= now.ms);
        let mut due: Vec<(ChainNumber, ChainRef)> =
            due.map(|(chain, held)| (held.number, *chain)).collect();
        due.sort_unstable();
        for (_, chain) in due {
            let Some(held) = self.held.get(&chain).copied() else { continue };
            // The archive may have removed the chain to make room.
            if !self.archive.has(chain) {
                self.held.remove(&chain);
                continue;
            }
            self.deliver(now, chain, held.verified, held.is_complete, notify)?;
        }
        Ok(())
    }

    /// Delivers the blocks up to `verified` that were not delivered before, if they may be delivered
    /// now. Then acknowledges the chain, if nothing of it is missing.
    pub(super) fn deliver(
        &mut self,
        now: Now,
        chain: ChainRef,
        verified: u32,
        is_complete: bool,
        notify: &mut OnWatchEvent<'_>,
    ) -> Result<(), WatchError> {
        self.deliver_or_hold(now, chain, verified, is_complete, notify)?;
        self.acknowledge(now, chain)
    }

    fn deliver_or_hold(
        &mut self,
        now: Now,
        chain: ChainRef,
        verified: u32,
        is_complete: bool,
        notify: &mut OnWatchEvent<'_>,
    ) -> Result<(), WatchError> {
        let mut watched = self.head(chain)?;
        if self.archive.noted(chain) < watched.end() {
            if watched.outline.is_addressed && !self.is_before_joining(&watched) {
                match self.address(chain, &watched.outline, verified)? {
                    // The first blocks of the chain are still to come.
                    None => return Ok(()),
                    Some((Address::Own(own), _)) => {
                        watched.label.clone_from(&own.label);
                        watched.own = Some(own);
                    }
                    Some((Address::Not, why)) => {
                        if let Some(why) = why {
                            notify(WatchEvent::NotAddressed { outline: &watched.outline, why })
                                .map_err(WatchError::Output)?;
                        }
                        if is_complete {
                            self.archive.complete(chain)?;
                        }
                        return Ok(());
                    }
                }
            }
            if self.is_before_joining(&watched) {
                self.archive.note(chain, watched.end())?;
            } else {
                match self.hold(now, chain, &watched)? {
                    Some(Hold::Withheld(why)) if !why.is_for_now() => {
                        self.settle(chain, &watched, why, notify)?;
                    }
                    Some(hold) => {
                        let progress = (verified, is_complete);
                        return self.keep_back(now, chain, &watched, &hold, progress, notify);
                    }
                    None => {
                        self.held.remove(&chain);
                        self.deliver_now(chain, &watched, verified, is_complete, notify)?;
                    }
                }
            }
        }
        if is_complete {
            self.archive.complete(chain)?;
        }
        Ok(())
    }

    /// Delivers the blocks up to `verified` that were not delivered before.
    fn deliver_now(
        &mut self,
        chain: ChainRef,
        watched: &Watched,
        verified: u32,
        is_complete: bool,
        notify: &mut OnWatchEvent<'_>,
    ) -> Result<(), WatchError> {
        let (outline, label, window) = (&watched.outline, &*watched.label, watched.window);
        let own = watched.own.as_ref();
        let shown = own.map_or(*outline, |own| own.shown(outline));
        let noted = self.archive.noted(chain);
        if window != Window::ALWAYS {
            self.fix_time()?;
        }
        if watched.is_command() {
            self.archive.raise_topic(watched.key(), label, watched.number())?;
        }
        if outline.kind == Kind::File {
            // A file that begins within its window may be completed after it.
            if noted == 0 && window != Window::ALWAYS && verified > 0 {
                self.archive.note(chain, 1)?;
            }
            notify(WatchEvent::Progress { outline, verified }).map_err(WatchError::Output)?;
        } else {
            let first = u32::try_from(noted).unwrap_or(u32::MAX).saturating_add(1);
            for block in first..=verified {
                for index in 0..outline.in_block(block) {
                    let item = Item::Leaf { chain, block, index };
                    let leaf = self
                        .archive
                        .fetch(item, &mut self.leaf)?
                        .ok_or(WatchError::Damaged(chain))?;
                    let before = if index + 1 == outline.in_block(block) {
                        outline.trailer(block)
                    } else {
                        0
                    };
                    let message = leaf.get(before..).ok_or(WatchError::Damaged(chain))?;
                    let number = outline.message(block, index);
                    let read = match own {
                        None => None,
                        Some(own) => match own.read(number, message) {
                            Ok(None) => continue,
                            Ok(read) => read,
                            Err(_) => return Err(WatchError::Damaged(chain)),
                        },
                    };
                    let (number, message) =
                        read.as_ref().map_or((number, message), |(number, read)| (*number, read));
                    let outline = &shown;
                    notify(WatchEvent::Message { outline, label, window, number, message })
                        .map_err(WatchError::Output)?;
                }
                self.archive.note(chain, u64::from(block))?;
            }
        }
        if is_complete && noted < watched.end() {
            let folder = match &self.save_agents {
                Some(folder) if file_name(label).ends_with(AGENT_SUFFIX) => Some(folder.clone()),
                _ => self.save.clone(),
            };
            let saved = match (outline.kind, folder) {
                (Kind::File, Some(folder)) => {
                    Some(self.save_image(chain, (label, own), &folder)?)
                }
                _ => None,
            };
            let evidence = self
                .evidence
                .clone()
                .map(|folder| self.write_evidence(chain, outline, &folder))
                .transpose()?;
            let (saved, evidence): (Option<&Path>, Option<&Path>) =
                (saved.as_deref(), evidence.as_deref());
            let outline = &shown;
            notify(WatchEvent::Complete { outline, label, saved, evidence })
                .map_err(WatchError::Output)?;
            self.archive.note(chain, watched.delivered())?;
        }
        Ok(())
    }
}
