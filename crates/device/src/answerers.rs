//! A device as a source of the private sums of several queriers (spec/sums.md, section 8). Each querier
//! has secrets, a tree, a policy and an epoch guard of its own. The budget and the rules for exact answers
//! to queriers that are not trusted apply to all of them together.

use moteseal_core::signature::Signer;
use moteseal_verify::Roster;

use crate::answerer::{Answerer, Membership};
use crate::durable::{DurableError, DurableMote};

/// The maximum number of queriers of a device.
pub const MAX_MEMBERSHIPS: usize = 8;

/// The answers of a device to all of its queriers. Each has a place: 0 is the first one.
#[derive(Debug, Default)]
pub struct Answerers(Vec<Answerer>);

impl Answerers {
    /// Takes one answerer for each querier.
    #[must_use]
    pub fn new(answerers: Vec<Answerer>) -> Self {
        let mut answerers = Self(answerers);
        answerers.compare();
        answerers
    }

    /// Returns the places of two queriers to which the device may not both give exact answers.
    pub fn differing<'a>(
        memberships: impl IntoIterator<Item = &'a Membership>,
    ) -> Option<(usize, usize)> {
        let all: Vec<_> = memberships.into_iter().collect();
        (0..all.len()).find_map(|one| Some((one, other_than(&all, one)?)))
    }

    /// Determines for each querier whether exact answers to it would not agree with those to others.
    fn compare(&mut self) {
        let all: Vec<_> = self.0.iter().map(Answerer::membership).collect();
        let differs: Vec<bool> =
            (0..all.len()).map(|one| other_than(&all, one).is_some()).collect();
        for (answerer, differs) in self.0.iter_mut().zip(differs) {
            answerer.set_differs(differs);
        }
    }

    /// Continues under a later version of the roster.
    pub fn load(&mut self, roster: &Roster) {
        self.0.iter_mut().for_each(|answerer| answerer.load(roster));
    }

    /// Continues under another policy of the querier at `place`, as [`Answerer::set_policy`] does.
    pub fn set_policy(&mut self, place: usize, payload: Vec<u8>) {
        if let Some(answerer) = self.0.get_mut(place) {
            answerer.set_policy(payload);
            self.compare();
        }
    }

    /// Receives a query schedule of the querier at `place`.
    ///
    /// # Errors
    /// [`DurableError`].
    pub fn receive<K: Signer>(
        &mut self,
        place: usize,
        announcement: &[u8],
        mote: &mut DurableMote<K>,
    ) -> Result<(), DurableError> {
        match self.0.get_mut(place) {
            Some(answerer) => answerer.receive(announcement, mote),
            None => Ok(()),
        }
    }

    /// Stores a record that was sensed just now. It is in the same epoch for all queriers, so that two
    /// of them cannot compare sums of different readings.
    pub fn sensed(&mut self, record: &[u8]) {
        if let Some(now) = self.0.first().map(Answerer::now_ms) {
            self.0.iter_mut().for_each(|answerer| answerer.sensed_at(now, record));
        }
    }

    /// Returns the number of milliseconds until the next end of an epoch of any query.
    #[must_use]
    pub fn due_in_ms(&self) -> Option<u64> {
        self.0.iter().filter_map(Answerer::due_in_ms).min()
    }

    /// Returns the frames that must be sent now to the parent for the querier at `place`, as
    /// [`Answerer::answers`] does.
    ///
    /// # Errors
    /// [`DurableError`].
    pub fn answers<K: Signer>(
        &mut self,
        place: usize,
        is_up: bool,
        mote: &mut DurableMote<K>,
    ) -> Result<Vec<Vec<u8>>, DurableError> {
        match self.0.get_mut(place) {
            Some(answerer) => answerer.answers(is_up, mote),
            None => Ok(Vec::new()),
        }
    }
}

/// Returns the place of a querier to which the device may not give exact answers if it gives them to the
/// querier at the place `one`.
fn other_than(all: &[&Membership], one: usize) -> Option<usize> {
    let others = (0..all.len()).filter(|other| *other != one);
    others.into_iter().find(|other| !all[one].agrees_with(all[*other]))
}
