//! When fresh fingerprints were demanded, by the tokens of the demands.

use std::collections::VecDeque;
use std::time::Instant;

/// The number of demands that are kept. A token that is no longer kept is a new demand.
const KEPT: usize = 64;

/// The demands, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Demands(VecDeque<(String, Instant)>);

impl Demands {
    /// Returns when a token was used first.
    pub(crate) fn time_of(&mut self, token: &str, now: Instant) -> Instant {
        if let Some((_, at)) = self.0.iter().find(|(kept, _)| kept == token) {
            return *at;
        }
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((token.to_owned(), now));
        now
    }
}
