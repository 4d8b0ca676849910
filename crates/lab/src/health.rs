//! Self-monitoring of a mote: the numbers of the RERUM project's deliverable D5.3 (2016), section 3.2,
//! and a simulation of its experiment with our records.
//!
//! A mote answers a ping every two seconds and reports its counters, while a jammer uses a share of the
//! channel. The counters are those of [`moteseal_core::health`], and are read as a gateway reads them:
//! from the records that arrive.

use moteseal_core::cbor::Writer;
use moteseal_core::health::{Group, Health, Item, MAX_ENCODED, Policy, Reporter, Totals};

use crate::chance::{Draws, Seed};

/// The intervals of the pings in figure 48, in seconds.
pub const PINGS_S: [f64; 4] = [0.5, 1.0, 2.0, 4.0];
/// The bytes of a ping of D5.3 (figure 47), as an IPv6 datagram. Each is answered by another one.
pub const PING: u32 = 104;
/// The bytes of the three reports of D5.3 (figure 47), as IPv6 datagrams. One of each is sent in 30 s.
pub const REPORTS: [u32; 3] = [110, 112, 150];
/// The period of D5.3, in seconds.
pub const PERIOD_S: u32 = 30;
/// The bytes of our report in addition to the record: IPv6 40, UDP 8, CoAP 4, a token of 2, Observe 4,
/// Content-Format 2, and the marker.
const AROUND: usize = 40 + 8 + 4 + 2 + 4 + 2 + 1;
/// The bytes of the acknowledgement of every 20th report, which is confirmable.
const ACKNOWLEDGEMENT: f64 = (40 + 8 + 4) as f64 / 20.0;

/// Returns the bytes of D5.3's reports, divided by those of the pings.
#[must_use]
pub fn overhead_of_paper(ping_s: f64) -> f64 {
    let reports: u32 = REPORTS.iter().sum();
    f64::from(reports) / (2.0 * f64::from(PING) * f64::from(PERIOD_S) / ping_s)
}

/// Returns the time of frames on air, in milliseconds. Each has one UDP datagram, and `bytes` are those of
/// the contents of all datagrams. Acknowledgements of the link layer and waiting times are not included.
#[must_use]
pub fn air_ms(datagrams: usize, bytes: usize) -> f64 {
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let around = f64::from(UDP.saturating_add_signed(FRAME));
    (number(bytes) + number(datagrams) * around) * BYTE_MS
}

/// Returns whether a UDP datagram with contents of this many bytes fits one frame.
#[must_use]
pub fn fits_frame(bytes: usize) -> bool {
    u32::try_from(bytes)
        .is_ok_and(|bytes| bytes <= LONGEST_FRAME - UDP.saturating_add_signed(FRAME))
}

/// The interference on the mote's channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Its name, as in D5.3.
    pub name: &'static str,
    /// The share of the time in which the jammer transmits.
    pub busy: f64,
}

/// The loads. D5.3 sets them by the channel: another one, an adjacent one, and an overlapping one. The
/// shares are our choice.
pub const LOADS: [Load; 3] = [
    Load { name: "low", busy: 0.002 },
    Load { name: "medium", busy: 0.08 },
    Load { name: "high", busy: 0.35 },
];

/// The mean length of a transmission of the jammer, in milliseconds.
const BURST_MS: f64 = 1.5;
/// The time of a byte on an IEEE 802.15.4 radio, in milliseconds.
const BYTE_MS: f64 = 0.032;
/// The bytes of a frame in addition to the IPv6 datagram: headers of the physical and link layer, less
/// what the compression of the IPv6 and UDP headers saves.
const FRAME: i32 = 6 + 25 - 37;
/// The bytes of the longest frame, with the 6 of the physical layer.
const LONGEST_FRAME: u32 = 6 + 127;
/// The bytes of the headers of IPv6 and UDP before they are compressed.
const UDP: u32 = 40 + 8;
/// How often a sender listens before it gives up, and how often a frame is sent.
const LISTENS: u32 = 5;
const TRIES: u32 = 4;
/// The probability that a report is lost between the mote and the reader.
const LOSS: f64 = 0.1;

/// What was counted in one period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Period {
    /// Frames with a wrong checksum.
    pub bad_crc: u64,
    /// Times that the channel was busy when the mote wanted to send.
    pub collisions: u64,
    /// Frames sent and received.
    pub link: (u64, u64),
    /// IP datagrams sent and received.
    pub ip: (u64, u64),
}

/// The result for one load.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The load.
    pub load: Load,
    /// What the mote counted, for each period.
    pub periods: Vec<Period>,
    /// The sums that the reader of the reports has, at the last report that arrived.
    pub read: Period,
    /// The sums that the mote had then.
    pub counted: Period,
    /// The longest report, as an IPv6 datagram, in bytes.
    pub longest: usize,
}

/// A mote and its channel.
struct Mote {
    draws: Draws,
    load: Load,
    health: Health,
}

impl Mote {
    /// Returns whether the jammer transmits during a frame of this many bytes, which began while it was
    /// silent.
    fn is_hit(&mut self, bytes: u32) -> bool {
        let silence_ms = BURST_MS * (1.0 - self.load.busy) / self.load.busy;
        let frame = f64::from(bytes.saturating_add_signed(FRAME));
        self.draws.unit() > (-frame * BYTE_MS / silence_ms).exp()
    }

    fn send(&mut self, bytes: u32) {
        self.health.add(Item::IpSent, 1);
        for _ in 0..TRIES {
            let listens = (0..LISTENS).take_while(|_| self.draws.unit() < self.load.busy).count();
            let listens = u32::try_from(listens).unwrap_or(LISTENS);
            self.health.add(Item::LinkCollisions, listens);
            if listens == LISTENS {
                continue;
            }
            self.health.add(Item::LinkSent, 1);
            if !self.is_hit(bytes) {
                return;
            }
        }
        self.health.add(Item::IpDropped, 1);
    }

    fn receive(&mut self, bytes: u32) -> bool {
        for _ in 0..TRIES {
            if self.is_hit(bytes) {
                self.health.add(Item::LinkBadCrc, 1);
            } else {
                self.health.add(Item::LinkReceived, 1).add(Item::IpReceived, 1);
                return true;
            }
        }
        false
    }

    fn sums(&self, of: impl Fn(&Health, Item) -> u64) -> Period {
        let of = |item| of(&self.health, item);
        Period {
            bad_crc: of(Item::LinkBadCrc),
            collisions: of(Item::LinkCollisions),
            link: (of(Item::LinkSent), of(Item::LinkReceived)),
            ip: (of(Item::IpSent), of(Item::IpReceived)),
        }
    }
}

fn value(health: &Health, item: Item) -> u64 {
    health.get(item).unwrap_or_default().unsigned_abs()
}

/// Returns the record of a mote that has just started, with the counters of D5.3.
fn started() -> Health {
    let mut health = Health::new(1, 0);
    for item in Group::Link.items().take(7).chain(Group::Ip.items()) {
        health.set(item, 0);
    }
    *health.set(Item::Temperature, 235)
}

/// Returns the bytes of a report, as an IPv6 datagram.
fn datagram(health: &Health) -> usize {
    let mut buffer = [0; MAX_ENCODED];
    let mut out = Writer::new(&mut buffer);
    // The buffer suffices.
    let _ = health.encode(&mut out);
    AROUND + out.position()
}

/// Simulates a mote for a number of periods.
#[must_use]
pub fn observe(load: Load, periods: usize, seed: Seed) -> Observed {
    let draws = seed.derive(load.name, 0).draws();
    let mut mote = Mote { draws, load, health: started() };
    let (mut totals, mut counted, mut longest) = (Totals::default(), Period::default(), 0);
    let mut before = Period::default();
    let mut each = Vec::with_capacity(periods);
    totals.take(&mote.health);
    for _ in 0..periods {
        for _ in 0..PERIOD_S / 2 {
            if mote.receive(PING) {
                mote.send(PING);
            }
        }
        mote.health.uptime_s += PERIOD_S;
        let bytes = datagram(&mote.health);
        longest = longest.max(bytes);
        let reported = mote.health;
        mote.send(u32::try_from(bytes).unwrap_or(u32::MAX));
        if mote.draws.unit() > LOSS {
            totals.take(&reported);
            counted = mote.sums(|_, item| value(&reported, item));
        }
        let now = mote.sums(value);
        each.push(Period {
            bad_crc: now.bad_crc - before.bad_crc,
            collisions: now.collisions - before.collisions,
            link: (now.link.0 - before.link.0, now.link.1 - before.link.1),
            ip: (now.ip.0 - before.ip.0, now.ip.1 - before.ip.1),
        });
        before = now;
    }
    let read = mote.sums(|_, item| totals.sum(item));
    Observed { load, periods: each, read, counted, longest }
}

/// Returns the bytes of our reports over a day without interference, divided by those of the pings:
/// with a fixed period of 30 s, or with a variable one.
#[must_use]
pub fn overhead(ping_s: f64, policy: Policy) -> f64 {
    const DAY_S: u32 = 86_400;
    let mut reporter = Reporter::new(policy, [Item::LinkBadCrc, Item::IpDropped]);
    let mut health = started();
    let mut bytes = 0.0;
    while health.uptime_s < DAY_S {
        #[allow(clippy::cast_possible_truncation)]
        let pings = (f64::from(health.uptime_s) / ping_s) as i64;
        for item in [Item::LinkSent, Item::LinkReceived, Item::IpReceived, Item::IpSent] {
            health.set(item, pings);
        }
        if reporter.sample(&health).is_some() {
            #[allow(clippy::cast_precision_loss)]
            let length = datagram(&health) as f64;
            bytes += length + ACKNOWLEDGEMENT;
        }
        health.uptime_s = reporter.next_s().max(health.uptime_s + 1);
    }
    bytes / (2.0 * f64::from(PING) * f64::from(DAY_S) / ping_s)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_takes_32_microseconds_and_a_frame_has_at_most_91_bytes_of_a_datagram() {
        let ms = |datagrams, bytes| (air_ms(datagrams, bytes) * 1e6).round() / 1e6;
        assert_eq!([ms(0, 0), ms(1, 0), ms(1, 91), ms(2, 93)], [0.0, 1.344, 4.256, 5.664]);
        assert!(fits_frame(91) && !fits_frame(92));
    }

    #[test]
    fn the_overhead_of_the_paper_follows_from_its_trace() {
        let percent = PINGS_S.map(|ping| (overhead_of_paper(ping) * 1000.0).round() / 10.0);
        assert_eq!(percent, [3.0, 6.0, 11.9, 23.8]);
    }

    #[test]
    fn our_overhead_is_at_most_7_percent_and_2_with_the_variable_period() {
        let fixed = overhead(4.0, Policy::FIXED);
        let variable = PINGS_S.map(|ping| overhead(ping, Policy::VARIABLE));
        println!("fixed at 4 s: {fixed:.4}; variable: {variable:.4?}");
        assert!(fixed <= 0.07, "{fixed}");
        assert!(variable.iter().all(|overhead| *overhead <= 0.02), "{variable:?}");
    }

    #[test]
    fn more_interference_means_more_bad_checksums_and_collisions_and_no_count_is_lost() {
        let observed = LOADS.map(|load| observe(load, 480, Seed::default()));
        for of in &observed {
            assert_eq!(of.read, of.counted, "{}: reports were lost, counts were not", of.load.name);
            assert!(of.longest <= 108, "{}: {}", of.load.name, of.longest);
        }
        let sum =
            |of: &Observed, what: fn(&Period) -> u64| of.periods.iter().map(what).sum::<u64>();
        for what in [|of: &Period| of.bad_crc, |of: &Period| of.collisions, |of: &Period| of.link.0]
        {
            let sums: Vec<u64> = observed.iter().map(|of| sum(of, what)).collect();
            assert!(sums.is_sorted() && sums[0] < sums[2], "{sums:?}");
        }
    }
}
