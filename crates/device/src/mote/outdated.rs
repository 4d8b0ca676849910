//! How a mote continues under a later version of the roster that makes its newest seals outdated:
//! they name an earlier version than the one that introduced the period of their epoch, so that no
//! coordinator accepts them (`RosterOutdated`).

use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::roster::Directory as _;
use moteseal_core::signature::Signer;
use moteseal_seal::Position;
use moteseal_seal::stream::{Item, Open as OpenItem};
use moteseal_verify::Roster;

use super::{Mote, Waiting};

impl<const N: usize> Waiting<N> {
    /// Returns the seal's open item, and the seal's epoch.
    fn opening(&self) -> Option<(OpenItem, EpochNumber)> {
        let (Ok(Item::Open(open)), Ok(Item::Part(part))) =
            (Item::decode_whole(&self.open), Item::decode_whole(&self.part))
        else {
            return None;
        };
        let before = open.last.map_or(0, |(_, epoch)| epoch.0);
        let epoch = EpochNumber(before.checked_add(part.advance)?);
        Some((open, epoch))
    }
}

impl<K: Signer, const N: usize> Mote<K, N> {
    /// Returns the oldest seal that waits for the gateway, or is open, and that no coordinator with
    /// this roster accepts: it is outdated, or was opened with another number of levels. The caller
    /// must [`leave`](Self::leave) it. The seals after it follow it in the chain.
    #[must_use]
    pub fn outdated(&self, roster: &Roster) -> Option<SealIndex> {
        let is_outdated = |waiting: &&Waiting<N>| {
            let opening = waiting.opening();
            opening.is_some_and(|(open, epoch)| roster.is_outdated(open.roster_version, epoch))
        };
        let waiting = self.waiting.iter().find(is_outdated).map(|waiting| waiting.index);
        waiting.or_else(|| {
            let open = self.open.as_ref()?;
            (open.counters.levels() != roster.levels(open.epoch)).then_some(open.index)
        })
    }

    /// Gives up this seal and all later ones, and continues the chain after the seal before it. The
    /// next seal states the gap (`restart`) and the answers of the seals that were given up.
    pub fn leave(&mut self, index: SealIndex) {
        let left = self.kept().filter(|kept| kept.index >= index);
        self.given_up += left.map(|kept| kept.events).sum::<u64>();
        let first = self.waiting.iter().position(|waiting| waiting.index >= index);
        if let Some(first) = first {
            let left = self.waiting.split_off(first);
            let before = left.front().and_then(Waiting::opening);
            if let Some((OpenItem { prev: Some(prev), last, .. }, _)) = before {
                // The seals that were given up are of later epochs than the seal before them.
                let epoch_closed = last.is_some();
                self.chain.position = Position { prev, last, epoch_closed };
                self.chain.readings = 0;
            }
            for waiting in left {
                self.unstated.add_all(&waiting.answers);
            }
        }
        if let Some(open) = self.open.take() {
            self.unstated.add_all(&open.answers);
        }
        self.forget_ended();
        self.session.reset_patience();
    }
}
