//! Verifies the urgent events that a device serves itself (spec/sensors.md, section 1.1).

use moteseal_net::coap::Format;
use moteseal_verify::Roster;
use moteseal_verify::urgent::{self, Urgent, UrgentStream};

use super::{Expected, GetError, Unverified};
use crate::urgent::{Seen, UrgentConflict};

/// The maximum number of events in a response.
const MOST_EVENTS: usize = 64;

/// Verifies responses with urgent events, and returns the events that no earlier response had.
#[derive(Debug)]
pub struct Events<'a> {
    roster: &'a Roster,
    seen: Seen,
}

/// The events of a response that are new.
#[derive(Clone, Debug, Default)]
pub struct NewEvents {
    /// The events, oldest first.
    pub events: Vec<Urgent>,
    /// The events that contradict earlier ones. All of these events are returned.
    pub conflicts: Vec<UrgentConflict>,
    /// The number of events that are void, because the roster has ended their key.
    pub void: usize,
}

impl<'a> Events<'a> {
    /// Creates the verifier of events of a group.
    #[must_use]
    pub fn new(roster: &'a Roster) -> Self {
        Self { roster, seen: Seen::default() }
    }

    /// Verifies each event of a response, and that it is of the device that was asked for.
    ///
    /// # Errors
    /// `Event` or `OtherReading`. Nothing of a response that is rejected is returned.
    pub fn check(
        &mut self,
        response: &Unverified,
        expected: &Expected,
    ) -> Result<NewEvents, GetError> {
        let read = urgent::read(&response.bytes, self.roster, (MOST_EVENTS, true), &mut || ());
        let UrgentStream { mut events, void } = read?;
        expected.check_events(&events, self.roster)?;
        let conflicts = self.seen.retain_new(&mut events);
        Ok(NewEvents { events, conflicts, void })
    }
}

impl Unverified {
    /// Returns whether the response is a stream of urgent events, by its content format.
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.format == Format::CBOR_SEQ.0
    }
}
