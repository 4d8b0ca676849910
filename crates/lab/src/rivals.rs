//! The two simpler protocols that section V.A of Li et al. compares with its own, by their
//! messages.
//!
//! Both keep exactly the `B` events with the smallest hashes. *Send everything*: devices send each
//! event, and the coordinator drops the rest. *Broadcast every change*: the coordinator sends the
//! `B`-th smallest hash to all devices whenever it changes, and they send only events below it.

use crate::chance::Draws;

/// Returns the messages if every event is sent: one for each event.
#[must_use]
pub const fn send_everything(events: u64) -> u64 {
    events
}

/// The cost of broadcasting every change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Broadcast {
    /// Events sent to the coordinator; each of them changed the threshold.
    pub sent: u64,
    /// Announced thresholds; each is a message to every device.
    pub announcements: u64,
}

impl Broadcast {
    /// Returns all messages in both directions.
    #[must_use]
    pub const fn messages(&self, devices: u64) -> u64 {
        self.sent + self.announcements * devices
    }
}

/// The cost of broadcasting every change, after each of the given numbers of events, which are in
/// ascending order.
///
/// Hashes are uniform and independent, so event `i > B` is among the `B` smallest of the first `i`
/// with probability `B / i`, independently of earlier events. Gaps are drawn with the probability
/// at their start, and the event at the end of a gap is accepted with the ratio of the
/// probabilities there (thinning). This is exact, and its time is proportional to the number of
/// sent events.
#[allow(clippy::cast_precision_loss)]
pub fn broadcast_changes(
    budget: u64,
    stops: &[u64],
    draws: &mut Draws,
    seen: &mut dyn FnMut(u64, Broadcast),
) {
    let (mut at, mut cost) = (0_u64, Broadcast::default());
    for &stop in stops {
        while at < stop {
            if at < budget {
                at += 1;
                cost.sent += 1;
                // The threshold exists from the event on that fills the budget.
                cost.announcements += u64::from(at == budget);
                continue;
            }
            let most = budget as f64 / (at + 1) as f64;
            let next = at.saturating_add(draws.gap(most));
            if next > stop {
                at = stop;
                continue;
            }
            at = next;
            if draws.unit() * most <= budget as f64 / at as f64 {
                cost.sent += 1;
                cost.announcements += 1;
            }
        }
        seen(stop, cost);
    }
}

/// Returns the expected number of sent events: `B (1 + H(events) - H(B))`, about `B (1 + ln(events
/// / B))`.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn expected_changes(events: u64, budget: u64) -> f64 {
    let (events, budget) = (events as f64, budget as f64);
    // H(n) = ln n + gamma + 1/(2n) - ...
    if events <= budget {
        events
    } else {
        budget * (1.0 + (events / budget).ln() + 0.5 / events - 0.5 / budget)
    }
}
