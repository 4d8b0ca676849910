//! Computes the number of messages of the two simpler protocols with which section V.A of Li et al.
//! compares its protocol.
//!
//! Both keep exactly the `B` events with the smallest hashes. In *send everything*, devices send
//! every event, and the coordinator drops the events that it does not keep. In *broadcast every
//! change*, the coordinator sends the `B`-th smallest hash to all devices whenever it changes, and
//! devices send only events with smaller hashes.

use crate::chance::Draws;

/// Returns the number of messages of *send everything*: one for each event.
#[must_use]
pub const fn send_everything(events: u64) -> u64 {
    events
}

/// The cost of *broadcast every change*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Broadcast {
    /// Number of events sent to the coordinator.
    pub sent: u64,
    /// Number of announced thresholds. Each takes one message to every device.
    pub announcements: u64,
}

impl Broadcast {
    /// Returns the number of messages in both directions.
    #[must_use]
    pub const fn messages(&self, devices: u64) -> u64 {
        self.sent + self.announcements * devices
    }
}

/// Simulates *broadcast every change*. Calls `seen` with the cost after each number of events in
/// `stops`, which must be ascending.
///
/// Hashes are uniform and independent. Event `i > B` is therefore among the `B` smallest of the
/// first `i` with probability `B / i`, independently of earlier events. The simulation draws the
/// gap to the next sent event with the probability at the start of the gap. It then accepts the
/// event at the end of the gap with the ratio of the two probabilities (thinning). The result has
/// exactly the right distribution, and the time is proportional to the number of sent events.
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
                // The coordinator announces the first threshold when the budget is full.
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

/// Returns the expected number of sent events: `B (1 + H(events) - H(B))`, about
/// `B (1 + ln(events / B))`.
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
