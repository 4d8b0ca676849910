//! Rewrites the journal of a mote with only those records that a restart needs.

use std::collections::VecDeque;

use moteseal_core::record::SealIndex;
use moteseal_core::signature::Signer;

use super::entry::{Input, Start, is_replaced, pass_over};
use super::{Before, DurableError, DurableMote, Opened, STALE_RECORDS};
use crate::seal::Profile;

impl<K: Signer> DurableMote<K> {
    /// Rewrites the journal if most of it is obsolete.
    pub(super) fn tidy(&mut self) -> Result<(), DurableError> {
        if self.records < self.compacted.saturating_mul(2).max(STALE_RECORDS) {
            return Ok(());
        }
        let (mut needed, mut end) = (0, self.records);
        for opened in self.opened.iter().rev() {
            if self.mote.has(opened.index) {
                needed += end - opened.record;
            }
            end = opened.record;
        }
        if self.records - needed >= STALE_RECORDS.max(needed) {
            self.compact()?;
        }
        Ok(())
    }

    /// Rewrites the journal with only those records that lead to open or waiting seals. For the
    /// seals that were given up, writes a record that skips them.
    pub(super) fn compact(&mut self) -> Result<(), DurableError> {
        if !self.superseded.is_empty() {
            // The compacted journal does not contain the superseded positions.
            self.sync()?;
        }
        let Profile { device, schema_digest: schema, scheme, roster, .. } = *self.mote.profile();
        let old = self.journal.iter().collect::<Result<Vec<_>, _>>()?;
        let (announcement, unstated) = (self.announcement.clone(), self.mote.unstated().clone());
        let (chain, taken) = (self.mote.chain(), self.taken);
        let now = Before { chain, taken, announcement, unstated, roster };
        let mut spans: Vec<(&Opened, u64)> = Vec::with_capacity(self.opened.len());
        let mut end = self.records;
        for opened in self.opened.iter().rev() {
            spans.push((opened, end));
            end = opened.record;
        }
        spans.reverse();
        let first =
            spans.iter().position(|(opened, _)| self.mote.has(opened.index)).unwrap_or(spans.len());
        let start = spans.get(first).map_or(&now, |(opened, _)| &opened.before).clone();
        let mut announcement = start.announcement.clone();
        let mut named = start.roster;
        let unstated = |before: &Before| {
            (!self.guards.is_empty()).then(|| Input::Unstated(before.unstated.clone()).encode())
        };
        let answers = unstated(&start);
        let mut records = vec![
            Start { device, schema, scheme, most_waiting: self.most_waiting, before: start }
                .encode(),
        ];
        records.extend(announcement.as_deref().map(|bytes| Input::Announcement(bytes).encode()));
        // These are the current guards. They already know the answers in the records that follow.
        let guards = self.guards.iter();
        records
            .extend(guards.map(|(querier, guard)| Input::Guard(*querier, guard.clone()).encode()));
        records.extend(self.schedules.iter().map(|(querier, (number, digest))| {
            Input::QuerySchedule(*querier, *number, *digest).encode()
        }));
        records.extend(self.ledger.map(|ledger| Input::Ledger(ledger).encode()));
        records.extend(answers);
        for pending in &self.urgent.pending {
            let event = Input::Urgent { schema: &pending.schema, event: &pending.event };
            let sent = pending.is_sent.then_some(Input::UrgentSent(pending.place.digest));
            records.extend([event].into_iter().chain(sent).map(|input| input.encode()));
        }
        let (mut kept, mut gave_up) = (VecDeque::new(), false);
        for (opened, end) in spans.into_iter().skip(first) {
            let Opened { index, record, before } = opened;
            if !self.mote.has(*index) {
                gave_up = true;
                continue;
            }
            if std::mem::take(&mut gave_up) {
                records.extend(pass_over(before));
                records.extend(unstated(before));
            }
            if before.roster != named {
                records.push(Input::Roster(before.roster).encode());
            }
            if before.announcement != announcement {
                records.extend(
                    before.announcement.as_deref().map(|bytes| Input::Announcement(bytes).encode()),
                );
            }
            let (from, to) = (usize::try_from(*record), usize::try_from(end));
            let inputs =
                old.get(from.unwrap_or(usize::MAX)..to.unwrap_or(usize::MAX)).unwrap_or_default();
            let newest = inputs.iter().rev().find_map(|record| match Input::decode(record) {
                Some(Input::Announcement(bytes)) => Some(bytes.to_vec()),
                _ => None,
            });
            announcement = newest.or_else(|| before.announcement.clone());
            let newest = inputs.iter().rev().find_map(|record| match Input::decode(record) {
                Some(Input::Roster(roster)) => Some(roster),
                _ => None,
            });
            named = newest.unwrap_or(before.roster);
            kept.push_back(Opened {
                index: *index,
                record: records.len() as u64,
                before: before.clone(),
            });
            // Records at the start and at the end of the journal replace these records.
            let is_replaced = |record: &&Vec<u8>| is_replaced(record);
            records.extend(inputs.iter().filter(|record| !is_replaced(record)).cloned());
        }
        if gave_up {
            let record = records.len() as u64;
            records.extend(pass_over(&now));
            records.extend(unstated(&now));
            let index = SealIndex(now.chain.next_index.0.saturating_sub(1));
            kept.push_back(Opened { index, record, before: now });
        }
        records.push(Input::SentBefore(self.mote.sent_before()).encode());
        self.journal.compact(records.iter().map(Vec::as_slice))?;
        self.opened = kept;
        self.records = records.len() as u64;
        self.compacted = self.records;
        Ok(())
    }
}
