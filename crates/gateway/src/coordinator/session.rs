//! What a device sends when it starts: a challenge and its schema (spec/coordinator.md, 4.6 and 5.2).

use moteseal_core::record::Framing;
use moteseal_verify::SchemaEntry;

use super::{GroupCoordinator, Outcome, Refused};

/// What a coordinator has received in the session of a device, kept in memory only.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(super) struct Session {
    /// The newest challenge.
    pub(super) challenge: Option<u64>,
    /// The framing of the records of the schema that was received in this session.
    schema: Option<Framing>,
}

impl Session {
    /// Receives a challenge. In a session, a challenge is repeated, or increases by 1. Any other one
    /// begins a new session: the device may have started with other columns.
    pub(super) fn challenged(&mut self, challenge: u64) {
        let goes_on = |before: u64| {
            challenge.wrapping_sub(before) <= 1 || before.wrapping_sub(challenge) == 1
        };
        if !self.challenge.is_some_and(goes_on) {
            self.schema = None;
        }
        self.challenge = Some(challenge);
    }
}

impl GroupCoordinator {
    /// Stores a stream schema.
    pub(super) fn learn(
        &mut self,
        slot: u32,
        bytes: &[u8],
        (has_room, live): (bool, bool),
    ) -> Result<Outcome, Refused> {
        let entry = SchemaEntry::decode(bytes).map_err(|_| Refused::Schema)?;
        let framing = entry.framing;
        let outcome = self.hold(slot, entry, has_room)?;
        self.devices[slot as usize].wants_schema = false;
        if live {
            self.sessions.entry(slot).or_default().schema = Some(framing);
        }
        Ok(outcome)
    }

    fn hold(&mut self, slot: u32, entry: SchemaEntry, has_room: bool) -> Result<Outcome, Refused> {
        let member = &mut self.devices[slot as usize];
        if self.schemas.of(&member.schemas, &entry.digest).is_some() {
            return Ok(Outcome::Stale);
        }
        if !has_room {
            return Err(Refused::OverQuota);
        }
        // Keep every schema that a stored seal of an open epoch uses: it is needed again after a
        // restart.
        let sealed = || {
            self.epochs
                .values()
                .flat_map(|epoch| &epoch.sealed)
                .filter(|sealed| sealed.slot.0 == slot)
        };
        self.schemas.hold(&mut member.schemas, entry, |digest| {
            sealed().any(|sealed| sealed.schema == *digest)
        })?;
        Ok(Outcome::Fresh(None))
    }

    /// Returns whether the device has sent, in its session, a schema whose records are delimited in
    /// this way. A device has one schema in a session.
    pub(super) fn has_current_schema(&self, slot: u32, framing: Framing) -> bool {
        self.sessions.get(&slot).is_some_and(|session| session.schema == Some(framing))
    }
}
