//! The messages that the store rejects while it stores others.
//!
//! Such a message holds up every reader that waits for a later position, and the removal of pieces. A
//! worker therefore notes when the store rejects a message, and gives it up after some time. While the store
//! rejects everything, the fault is not in one message. So the time starts when the worker has stored something
//! else between two rejections of the message, and the message is given up only after that has happened again.

use std::collections::BTreeMap;
use std::time::Duration;

use moteseal_core::digest::Digest;
use tokio::time::Instant;

/// A message: its position and its digest. Positions start again if the stream is created again.
pub(crate) type Key = (u64, Digest);

/// How much longer than the time after which it is given up a message is remembered after its last
/// rejection. Another worker may have stored it.
const REMEMBERED: Duration = Duration::from_mins(10);

/// What a worker knows of the messages that the store rejects.
#[derive(Debug)]
pub(crate) struct Rejected {
    /// How long a message is rejected before it is given up.
    time: Duration,
    messages: BTreeMap<Key, Rejection>,
}

#[derive(Debug)]
struct Rejection {
    last: Instant,
    /// What the worker had stored then.
    stored: u64,
    /// When it was first rejected again after others were stored.
    alone: Option<Instant>,
}

impl Rejected {
    pub(crate) const fn new(time: Duration) -> Self {
        Self { time, messages: BTreeMap::new() }
    }

    /// Notes that the store rejected a message. `stored` counts what this worker has stored so far. Returns
    /// whether the message should be given up: the store has rejected it for the whole time, and it has stored
    /// something else since its last rejection.
    pub(crate) fn note(&mut self, key: Key, stored: u64, now: Instant) -> bool {
        let kept = self.time.saturating_add(REMEMBERED);
        self.messages.retain(|_, one| now.saturating_duration_since(one.last) < kept);
        let first = Rejection { last: now, stored, alone: None };
        let one = self.messages.entry(key).or_insert(first);
        let stores_others = stored > one.stored;
        (one.last, one.stored) = (now, stored);
        if !stores_others {
            return false;
        }
        let alone = *one.alone.get_or_insert(now);
        now.saturating_duration_since(alone) >= self.time
    }

    /// Forgets a message that was stored or given up.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.messages.remove(key);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);
    const RETURN: Duration = Duration::from_secs(32);
    const KEY: Key = (7, Digest::NULL);

    /// Rejects the message every 32 s. Returns after how long it is given up, at most a day.
    fn given_up(stored_at: impl Fn(Duration) -> u64) -> Option<Duration> {
        let (mut rejected, start) = (Rejected::new(HOUR), Instant::now());
        let mut after = Duration::ZERO;
        while after < 24 * HOUR {
            if rejected.note(KEY, stored_at(after), start + after) {
                return Some(after);
            }
            after += RETURN;
        }
        None
    }

    #[test]
    fn a_message_is_given_up_after_the_time_if_others_are_stored() {
        let after = given_up(|after| after.as_secs()).unwrap();
        assert!((HOUR..HOUR + 3 * RETURN).contains(&after), "{after:?}");
        // Few others are enough.
        let after = given_up(|after| after.as_secs() / 1000).unwrap();
        assert!((HOUR..HOUR + Duration::from_secs(2000)).contains(&after), "{after:?}");
    }

    #[test]
    fn a_store_that_rejects_everything_gives_up_no_message() {
        assert_eq!(given_up(|_| 5), None);
        // Its messages get the whole time once it stores some.
        let outage = 5 * HOUR;
        let after = given_up(|after| after.saturating_sub(outage).as_secs()).unwrap();
        assert!(after >= outage + HOUR, "{after:?}");
    }

    #[test]
    fn a_message_that_was_stored_or_not_seen_for_long_has_the_whole_time_again() {
        for is_stored in [true, false] {
            let (mut rejected, start) = (Rejected::new(HOUR), Instant::now());
            assert!(!rejected.note(KEY, 1, start));
            assert!(!rejected.note(KEY, 2, start + RETURN));
            let mut later = start + 2 * HOUR;
            if is_stored {
                later = start + HOUR + RETURN;
                rejected.forget(&KEY);
            }
            assert!(!rejected.note(KEY, 3, later));
            assert!(!rejected.note(KEY, 4, later + RETURN));
        }
    }
}
