//! The two simpler protocols that section V.A of Li et al. mentions beside its own, by their messages.
//!
//! Both keep the `B` events of the smallest hashes, exactly `B` of them. *Send everything*: devices send each event, the coordinator
//! throws the rest away. *Broadcast every change*: the coordinator tells all devices the `B`-th smallest hash whenever it changes,
//! and they send only what is below it.

use crate::chance::Draws;

/// Messages when everything is sent: one an event.
#[must_use]
pub const fn send_everything(events: u64) -> u64 {
    events
}

/// What broadcasting every change costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Broadcast {
    /// Events sent to the coordinator: all of them changed the threshold.
    pub sent: u64,
    /// Thresholds announced: a message to each device.
    pub announcements: u64,
}

impl Broadcast {
    /// All messages, both ways.
    #[must_use]
    pub const fn messages(&self, devices: u64) -> u64 {
        self.sent + self.announcements * devices
    }
}

/// Broadcasting every change, seen after each of some numbers of events, in ascending order.
///
/// Hashes are uniform and independent, so event `i > B` is among the `B` smallest of the first `i` with probability `B / i`,
/// independently of all before it; that is all that counts here. As the probability falls, gaps are drawn as if it stayed what it is,
/// and the event that a gap ends at is taken with the rest of it (thinning): exact, and as fast as few events are sent.
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
                // With the budget's last event there is a threshold.
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

/// What theory says is sent on average: `B (1 + H(events) - H(B))`, which is about `B (1 + ln(events / B))`.
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
