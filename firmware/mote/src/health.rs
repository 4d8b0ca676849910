//! The mote's health, which it reports to its coordinator (spec/health.md, section 5).

use moteseal_core::health::{Health, Item, Policy, Reporter};
use moteseal_seal::device_session::DeviceSession;
use moteseal_serial::Counters;

/// The totals whose rates the mote watches.
const WATCHED: [Item; 2] = [Item::LinkBadCrc, Item::LinkRetransmitted];

/// What a mote reports.
pub(crate) struct MoteHealth {
    reporter: Reporter<{ WATCHED.len() }>,
    line: Counters,
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
        }
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
        (boot, readings, waiting): (u32, u32, u32),
        session: &DeviceSession,
        out: &mut [u8],
    ) -> Option<usize> {
        let uptime_s = u32::try_from(now_ms / 1000).unwrap_or(u32::MAX);
        if uptime_s < self.reporter.next_s() || !session.has_begun() {
            return None;
        }
        let mut health = Health::new(boot, uptime_s);
        let Counters { acknowledged, repeated, lost, received, dropped, .. } = self.line;
        for (item, value) in [
            (Item::LinkBadCrc, dropped),
            (Item::LinkSent, acknowledged),
            (Item::LinkReceived, received),
            (Item::LinkRetransmitted, repeated),
            (Item::Waiting, waiting),
            (Item::Readings, readings),
            (Item::Refused, lost),
        ] {
            health.set(item, value.into());
        }
        self.reporter.sample(&health)?;
        session.health_frame(&health, out).ok().map(<[u8]>::len)
    }
}
