//! What a mote does with an acknowledgement of its gateway, and how it continues if the
//! acknowledgement shows that the mote's state is older than its past (spec/coordinator.md, section
//! 5.3).

use std::fmt;

use moteseal_core::digest::Digest;
use moteseal_core::link::FrameError;
use moteseal_core::record::{EpochNumber, SealIndex, Sequence};
use moteseal_core::signature::Signer;
use moteseal_seal::Position;
use moteseal_seal::device_session::{Kept, is_ahead};
use moteseal_seal::stream::Item;
use moteseal_seal::wire::{Acknowledgement, StoredSeal};

use super::Mote;

/// The effect of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The acknowledgement changed nothing, because it contains nothing new or does not answer the
    /// current challenge.
    Nothing,
    /// The mote now keeps less data than before.
    Progress(Progress),
    /// The gateway has more of this device than the mote's state contains. The caller must call
    /// [`Mote::continue_after`].
    Ahead(Rollback),
    /// The acknowledgement states an index or an epoch that the gateway cannot have of this device.
    /// It is ignored.
    Implausible,
}

/// An acknowledgement that states this index or a higher one is ignored. A device that seals every
/// second reaches the index after 68 years. Without a limit, a gateway that lies could make a device
/// use up its indices.
pub const IMPLAUSIBLE_INDEX: SealIndex = SealIndex(1 << 31);

/// What a gateway has stored. A journal must contain every progress of a mote, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The index of the seal of which the gateway receives events.
    pub index: SealIndex,
    /// Every forwarded event of that seal before this one is stored.
    pub next: Sequence,
    /// Every seal that the mote keeps is stored up to this index.
    pub sealed: Option<SealIndex>,
}

/// A state of a mote that is older than the mote's past, because it was lost or copied back; or a
/// second device that uses the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rollback {
    /// The newest seal of this device that the gateway has stored.
    pub stored: Option<StoredSeal>,
    /// The newest seal that this state has signed: its index and its digest.
    pub signed: Option<(SealIndex, Digest)>,
    /// The index at which the mote must continue.
    pub next_index: SealIndex,
    /// The number of seals that the gateway can no longer store.
    pub seals: u64,
    /// The number of readings in these seals. The device gives them up. If the state is an old copy,
    /// the gateway may have some of them from before.
    pub readings: u64,
}

/// What a mote may have sent before the current session. A session in which the gateway has not
/// answered sends no seals and does not count. A gateway that has more than this proves that the
/// state was lost or copied back, even if the mote has opened the same indices again since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SentBefore {
    /// The first index of which nothing was sent.
    pub next_index: SealIndex,
    /// The number of events of the seal before that index, if it was still open; otherwise
    /// `u64::MAX`.
    pub events: u64,
}

impl fmt::Display for Rollback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seal = |seal: Option<(SealIndex, Digest)>| {
            seal.map_or_else(
                || "none".to_owned(),
                |(index, digest)| format!("{index} ({})", &digest.to_string()[..16]),
            )
        };
        write!(
            f,
            "the gateway has seals or readings of this device that its state does not contain: the \
             state is an old copy or was lost, or a second device has the key; newest stored seal: \
             {}, newest seal of this state: {}",
            seal(self.stored.map(|stored| (stored.index, stored.digest))),
            seal(self.signed)
        )
    }
}

impl<K: Signer, const N: usize> Mote<K, N> {
    /// Begins a session: what the mote has now may have been sent, unless the gateway has not
    /// answered since an earlier session began. Call this after the replay of a journal.
    pub fn begin_session(&mut self) {
        let events = self.open.as_ref().map_or(u64::MAX, |open| open.counters.total());
        let now = SentBefore { next_index: self.chain.next_index, events };
        self.sent_before.get_or_insert(now);
        self.given_up = 0;
    }

    /// Returns what the mote may have sent before this session; `None` if the gateway has answered
    /// in this session. Store it with the rest of the mote's state.
    #[must_use]
    pub const fn sent_before(&self) -> Option<SentBefore> {
        self.sent_before
    }

    /// Restores the result of [`sent_before`](Self::sent_before).
    pub const fn set_sent_before(&mut self, sent_before: Option<SentBefore>) {
        self.sent_before = sent_before;
    }

    /// Returns whether the gateway has answered in this session. Before, the mote sends only its
    /// schema and its challenge.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.session.has_begun()
    }

    /// Returns whether the mote must send again if the gateway does not answer. A mote that has
    /// nothing to send still needs the first answer of its session.
    #[must_use]
    pub fn awaits_answer(&self) -> bool {
        !self.is_done() || !self.has_begun()
    }

    /// Returns whether the gateway must answer something that was sent or that is about to be sent: a
    /// challenge, events, or a closed seal.
    #[must_use]
    pub fn is_in_transit(&self) -> bool {
        let is_sent = self.open.as_ref().is_some_and(|open| open.forwarder.is_in_transit());
        is_sent || !self.waiting.is_empty() || !self.session.is_answered()
    }

    /// Returns whether nothing is due but readings of the open seal that were never sent.
    #[must_use]
    pub fn has_only_new_readings(&self) -> bool {
        let has_new = self.open.as_ref().is_some_and(|open| !open.forwarder.is_drained());
        has_new && !self.session.greets() && !self.is_in_transit()
    }

    /// Returns the number of readings in seals that were given up, since the start of the session.
    #[must_use]
    pub const fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Returns the open seal and the seals that wait for the gateway.
    pub(super) fn kept(&self) -> impl Iterator<Item = Kept> {
        let waiting = self.waiting.iter().map(|waiting| Kept {
            index: waiting.index,
            events: waiting.forwarder.noted().into(),
            digest: Some(waiting.digest),
        });
        let open = self.open.iter().map(|open| Kept {
            index: open.index,
            events: open.forwarder.noted().into(),
            digest: None,
        });
        waiting.chain(open)
    }

    /// Receives the gateway's acknowledgement.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn acknowledged(&mut self, frame: &[u8]) -> Result<Received, FrameError> {
        let Some(acknowledgement) = self.session.open_acknowledgement(frame)? else {
            return Ok(Received::Nothing);
        };
        if !self.is_plausible(&acknowledgement) {
            return Ok(Received::Implausible);
        }
        if self.is_behind(&acknowledgement) {
            let (position, next_index) = (self.chain.position, self.chain.next_index);
            return Ok(Received::Ahead(Rollback {
                stored: acknowledgement.sealed,
                signed: position.last.map(|(index, _)| (index, position.prev)),
                next_index: self.session.index_after(&acknowledgement, next_index),
                seals: self.kept().count() as u64,
                readings: self.kept().map(|kept| kept.events).sum(),
            }));
        }
        self.sent_before = None;
        let progress = Progress {
            index: acknowledgement.index,
            next: acknowledgement.next,
            sealed: acknowledgement.sealed.map(|sealed| sealed.index),
        };
        let is_news = self.advance(&progress);
        let waiting = self.waiting.front().map(|waiting| &waiting.forwarder);
        let oldest = waiting.or(self.open.as_ref().map(|open| &open.forwarder));
        let oldest = oldest.map(|forwarder| (forwarder.index(), forwarder.acknowledged()));
        self.session.acknowledged(&acknowledgement, oldest, is_news);
        Ok(if is_news { Received::Progress(progress) } else { Received::Nothing })
    }

    /// Sets the latest epoch that the gateway can have a seal of, by the device's clock. Without it,
    /// only the roster limits the epochs of acknowledgements.
    pub const fn set_latest_epoch(&mut self, latest: EpochNumber) {
        self.latest_epoch = Some(latest);
    }

    /// Returns whether the gateway can have what an acknowledgement states. A device that followed
    /// an acknowledgement with the highest index, or with a later epoch than it can reach, could
    /// seal nothing more.
    fn is_plausible(&self, acknowledgement: &Acknowledgement) -> bool {
        let Acknowledgement { index, next, sealed, .. } = *acknowledgement;
        let limit = IMPLAUSIBLE_INDEX.max(self.chain.next_index);
        if next.0 > 0 && index >= limit {
            return false;
        }
        let Some(sealed) = sealed else { return true };
        let (first, last) = self.profile.epochs;
        // The device's own epochs may be ahead of a clock that was set back.
        let latest = self.latest_epoch.map(|latest| latest.max(self.chain.epoch.unwrap_or(first)));
        let is_late = |limit: Option<EpochNumber>| limit.is_some_and(|limit| sealed.epoch > limit);
        sealed.index < limit && sealed.epoch >= first && !is_late(last) && !is_late(latest)
    }

    /// Returns whether the gateway is ahead of the mote ([`is_ahead`]).
    fn is_behind(&self, acknowledgement: &Acknowledgement) -> bool {
        let everything = SentBefore { next_index: self.chain.next_index, events: u64::MAX };
        let before = self.sent_before.unwrap_or(everything);
        // The events that were added in this session have not been sent yet.
        let sent = |kept: Kept| {
            let is_newest = kept.index.0.checked_add(1) == Some(before.next_index.0);
            let most = if is_newest { before.events } else { u64::MAX };
            Kept { events: kept.events.min(most), ..kept }
        };
        let kept = self.kept().map(sent);
        is_ahead(acknowledgement, &self.chain.position, before.next_index, kept)
            || acknowledgement.sealed.is_some_and(|sealed| self.has_skipped(sealed.index))
    }

    /// Returns whether a seal that waits and its predecessor have indices on both sides of this one:
    /// the chain was recovered from a cloud that had not received everything from the gateway yet.
    fn has_skipped(&self, index: SealIndex) -> bool {
        self.waiting.iter().filter(|waiting| index < waiting.index).any(|waiting| {
            let Ok(Item::Open(open)) = Item::decode_whole(&waiting.open) else { return false };
            open.last.is_none_or(|(last, _)| last < index)
        })
    }

    /// Drops what the gateway has stored. Returns whether the mote kept any of it.
    pub fn advance(&mut self, progress: &Progress) -> bool {
        let before = self.waiting.len();
        while self
            .waiting
            .front()
            .is_some_and(|waiting| progress.sealed.is_some_and(|sealed| waiting.index <= sealed))
        {
            self.waiting.pop_front();
        }
        let mut is_news = self.waiting.len() < before;
        let acknowledgement = Acknowledgement {
            index: progress.index,
            next: progress.next,
            sealed: None,
            wants_schema: false,
            challenge: None,
        };
        let waiting = self.waiting.iter_mut().map(|waiting| &mut waiting.forwarder);
        for forwarder in waiting.chain(self.open.as_mut().map(|open| &mut open.forwarder)) {
            is_news |= forwarder.acknowledge(&acknowledgement);
        }
        is_news
    }

    /// Continues the chain after the newest seal that the gateway has stored, at `next_index`
    /// ([`Rollback`]). Gives up the open seal and all seals that wait: they follow another
    /// predecessor, so that they contradict the stored seals. The next seal states the gap
    /// (`restart`) and the answers of the seals that were given up.
    pub fn continue_after(&mut self, stored: Option<&StoredSeal>, next_index: SealIndex) {
        self.given_up += self.kept().map(|kept| kept.events).sum::<u64>();
        for waiting in self.waiting.drain(..) {
            self.unstated.add_all(&waiting.answers);
        }
        if let Some(open) = self.open.take() {
            self.unstated.add_all(&open.answers);
        }
        self.forget_ended();
        let start = Position::start(self.profile.certificate);
        self.chain.position = stored.map_or(start, StoredSeal::position);
        self.chain.epoch = self.chain.epoch.max(stored.map(|stored| stored.epoch));
        self.chain.readings = 0;
        self.skip_to(next_index);
        self.sent_before = None;
        self.session.reset_patience();
    }
}
