//! The mote's health, which it reports to its coordinator (spec/health.md, section 5).

use moteseal_core::health::{Health, Item, Policy, Reporter};
use moteseal_seal::device_session::DeviceSession;
use moteseal_serial::Counters;

/// The totals whose rates the mote watches.
const WATCHED: [Item; 2] = [Item::LinkBadCrc, Item::LinkRetransmitted];

/// What a mote counts since its start.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    /// Readings taken. Those of a seal that was given up while it was open are taken, and counted, again.
    pub(crate) readings: u32,
    /// Signed seals given up.
    pub(crate) given_up: u32,
}

/// What a mote reports.
pub(crate) struct MoteHealth {
    reporter: Reporter<{ WATCHED.len() }>,
    line: Counters,
    /// The newest report, if the coordinator may not have it.
    again: Option<Health>,
}

impl MoteHealth {
    pub(crate) const fn new(policy: Policy) -> Self {
        Self {
            reporter: Reporter::new(policy, WATCHED),
            line: Counters {
                opened: 0,
                acknowledged: 0,
                repeated: 0,
                lost: 0,
                received: 0,
                received_again: 0,
                dropped: 0,
            },
            again: None,
        }
    }

    /// Reports the newest health again.
    pub(crate) const fn report_again(&mut self) {
        self.again = self.reporter.sampled();
    }

    /// Notes what the serial line has counted.
    pub(crate) const fn note_line(&mut self, line: Counters) {
        self.line = line;
    }

    /// If a report is due, writes its frame to `out` and returns the length.
    #[inline(never)]
    pub(crate) fn next_frame(
        &mut self,
        now_ms: u64,
        (boot, counts, waiting): (u32, Counts, u32),
        session: &DeviceSession,
        out: &mut [u8],
    ) -> Option<usize> {
        let interval_s = self.reporter.interval_s();
        if let Some(health) = self.again.take() {
            return session.health_frame((&health, interval_s), out).ok().map(<[u8]>::len);
        }
        let uptime_s = u32::try_from(now_ms / 1000).unwrap_or(u32::MAX);
        if uptime_s < self.reporter.next_s() || !session.has_begun() {
            return None;
        }
        let mut health = Health::new(boot, uptime_s);
        let Counters { acknowledged, repeated, received, dropped, .. } = self.line;
        for (item, value) in [
            (Item::LinkBadCrc, dropped),
            (Item::LinkSent, acknowledged),
            (Item::LinkReceived, received),
            (Item::LinkRetransmitted, repeated),
            (Item::Waiting, waiting),
            (Item::Readings, counts.readings),
            (Item::GivenUp, counts.given_up),
        ] {
            health.set(item, value.into());
        }
        self.reporter.sample(&health)?;
        let interval_s = self.reporter.interval_s();
        session.health_frame((&health, interval_s), out).ok().map(<[u8]>::len)
    }
}
