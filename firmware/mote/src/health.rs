//! The mote's health, which it reports to its coordinator (spec/health.md, section 5).

use moteseal_core::health::{Health, Item, Policy, Reporter};
use moteseal_seal::device_session::DeviceSession;
use moteseal_seal::wire::HealthSession;
use moteseal_serial::Counters;

/// The totals whose rates the mote watches.
const WATCHED: [Item; 2] = [Item::LinkBadCrc, Item::LinkRetransmitted];

/// An answer that takes longer says nothing useful about the clock, in milliseconds.
const LONGEST_ANSWER_MS: u64 = 10_000;

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
    /// The report that was sent last, by its start and the time since then, and when it was sent by the
    /// mote's timer.
    sent: Option<((u32, u32), u64)>,
    /// By how many milliseconds the mote's clock is ahead of the coordinator's.
    clock_offset: Option<i64>,
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
            sent: None,
            clock_offset: None,
        }
    }

    /// Returns whether an offer of a session answers the newest report; any other may be a repeated one.
    /// Compares the clocks if the mote knows the time, which is `unix_ms`.
    pub(crate) fn takes(
        &mut self,
        now_ms: u64,
        unix_ms: Option<u64>,
        offer: &HealthSession,
    ) -> bool {
        let Some((_, sent_ms)) = self.sent.filter(|(sent, _)| *sent == offer.answers) else {
            return false;
        };
        let passed = now_ms.saturating_sub(sent_ms);
        self.clock_offset = unix_ms
            .filter(|_| passed <= LONGEST_ANSWER_MS)
            .map(|unix_ms| offer.clock_offset(unix_ms.saturating_sub(passed), unix_ms))
            .or(self.clock_offset);
        true
    }

    /// Reports the newest health again, with the offset of the clock.
    pub(crate) fn report_again(&mut self) {
        self.again = self.reporter.sampled().map(|mut health| {
            if let Some(ahead) = self.clock_offset {
                health.set(Item::ClockOffset, ahead);
            }
            health
        });
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
            self.sent = Some(((health.boot, health.uptime_s), now_ms));
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
        if let Some(ahead) = self.clock_offset {
            health.set(Item::ClockOffset, ahead);
        }
        self.reporter.sample(&health)?;
        self.sent = Some(((boot, uptime_s), now_ms));
        let interval_s = self.reporter.interval_s();
        session.health_frame((&health, interval_s), out).ok().map(<[u8]>::len)
    }
}
