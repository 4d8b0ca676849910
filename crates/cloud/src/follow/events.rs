//! Fetches urgent events, in the order in which the other cloud stored them.

use axum::body::Bytes;
use moteseal_api::summary::{Fingerprint, Summary};
use moteseal_core::cbor::item_length;
use moteseal_core::digest::Digest;

use super::{Failure, Follower, Refused, is_about_data};
use crate::access::Grant;
use crate::handlers::events;

/// The first byte of an urgent event, a tagged `COSE_Sign1`. The other items of a stream are arrays.
const TAGGED: u8 = 0xd2;
/// The maximum number of answers in a row without an event that is new to this cloud.
const USELESS: u32 = 1 << 10;

impl Follower {
    /// Fetches the urgent events after the last one that was read, if the fingerprints differ. If
    /// they still differ after that, all events are read once more from the first on.
    pub(super) async fn follow_events(
        &mut self,
        own: &Fingerprint,
        theirs: &Summary,
    ) -> Result<(), Failure> {
        if *own == theirs.events {
            // Both have the same events, so only later ones are missing.
            self.events_cursor.clone_from(&theirs.events_cursor);
            return Ok(());
        }
        if theirs.events == Fingerprint::EMPTY || self.events == Some((*own, theirs.events)) {
            return Ok(());
        }
        let from_start = self.events_cursor.is_none();
        let mut stored = self.fetch_events().await?;
        let now = self.own(|own| own.totals().events).await?;
        if now != theirs.events && stored == 0 && !from_start {
            self.events_cursor = None;
            stored = self.fetch_events().await?;
        }
        if stored == 0 {
            self.events = Some((*own, theirs.events));
        }
        Ok(())
    }

    /// Fetches the events after the cursor. Returns the number of those that were stored.
    async fn fetch_events(&mut self) -> Result<u64, Failure> {
        let (mut stored, mut useless) = (0, 0);
        loop {
            let (body, cursor) = self.replica.events(self.events_cursor.as_deref()).await?;
            let new = self.store_events(body).await?;
            stored += new;
            useless = if new == 0 { useless + 1 } else { 0 };
            if cursor.is_none() || cursor == self.events_cursor {
                return Ok(stored);
            }
            self.events_cursor = cursor;
            if useless > USELESS {
                return Err(Failure::MuchRefused);
            }
        }
    }

    /// Stores the events of an answer. If one is refused, stores the others.
    async fn store_events(&mut self, body: Bytes) -> Result<u64, Failure> {
        match self.upload_events(body.clone()).await {
            Err(Failure::Own(refusal)) if is_about_data(&refusal) => {}
            result => return result,
        }
        let (mut stored, mut schema, mut at) = (0, 0..0, 0);
        while let Some(length) = body.get(at..).and_then(|rest| item_length(rest).ok()) {
            let item = at..at + length;
            at = item.end;
            if body[item.start] != TAGGED {
                schema = item;
                continue;
            }
            let digest = Digest::of(&[&body[item.clone()]]);
            if self.refused.contains(&Refused::Bytes(digest)) {
                continue;
            }
            let alone = [&body[schema.clone()], &body[item]].concat();
            match self.upload_events(alone.into()).await {
                Err(Failure::Own(refusal)) if is_about_data(&refusal) => {
                    let name = refusal.problem().name();
                    self.refuse(Refused::Bytes(digest), "an urgent event", name)?;
                }
                result => stored += result?,
            }
        }
        Ok(stored)
    }

    async fn upload_events(&mut self, body: Bytes) -> Result<u64, Failure> {
        let (shared, peer) = (&self.shared, self.peer);
        let (receipt, _) = events::verify_and_store(shared, peer, Grant::Open, body, None).await?;
        self.refused_in_a_row = 0;
        self.metrics.events.increment(receipt.stored);
        Ok(receipt.stored)
    }
}
