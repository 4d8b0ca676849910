//! When a node reports its health: at a fixed period, or more often while a rate is unusual and less
//! often while all rates are usual (spec/health.md, section 3).

use core::fmt;

use super::{Difference, Health, Item};

/// The number of earlier rates with which a rate is compared.
pub const HISTORY: usize = 32;
/// The fewest earlier rates with which a rate is compared.
const FEWEST: usize = 8;
/// The longest time between two reports, as a multiple of the period.
pub const LONGEST_FACTOR: u32 = 16;
/// The shortest period on hosts, in seconds.
pub const SHORTEST_ON_HOSTS: u32 = 1;
/// The shortest period on motes, in seconds (RERUM D5.3, section 3.2.5).
pub const SHORTEST_ON_MOTES: u32 = 30;
/// The longest period, in seconds.
const LONGEST: u32 = 86_400;
/// The highest threshold.
const HIGHEST: u32 = 1000;

/// How often a node reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The period, in seconds. The node also samples its rates at this period.
    pub period_s: u32,
    /// The shortest time between two reports, in seconds; at most the period.
    pub min_s: u32,
    /// How many median absolute deviations a rate may be from its median until it is unusual; 0 for
    /// a fixed period.
    pub threshold: u32,
}

named_errors! {
    /// Why a policy is refused.
    PolicyError {
        /// The shortest time is below the limit of the node.
        PeriodTooShort {
            /// The limit, in seconds.
            limit_s: u32,
        } => "this node reports at most every {limit_s} s; choose a longer period and min",
        /// A number is outside its range.
        PolicyOutOfRange => "min is at most the period, the period at most 86400 s, and the threshold at most 1000",
    }
}

impl Policy {
    /// The policy of RERUM D5.3: a fixed period of 30 s.
    pub const FIXED: Self = Self { period_s: 30, min_s: 30, threshold: 0 };
    /// The policy of a node that nobody has configured: a variable period of 30 s and more.
    pub const VARIABLE: Self = Self { period_s: 30, min_s: 30, threshold: 4 };

    /// Checks the policy. `shortest_s` is the limit of the node.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub const fn check(self, shortest_s: u32) -> Result<Self, PolicyError> {
        if self.min_s < shortest_s {
            return Err(PolicyError::PeriodTooShort { limit_s: shortest_s });
        }
        if self.min_s > self.period_s || self.period_s > LONGEST || self.threshold > HIGHEST {
            return Err(PolicyError::PolicyOutOfRange);
        }
        Ok(self)
    }
}

/// Why a node reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is the first report.
    Start,
    /// The time has come.
    Due,
    /// The rate of this item is unusual.
    Unusual(Item),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("start"),
            Self::Due => f.write_str("due"),
            Self::Unusual(item) => write!(f, "{}.{}", item.group().name(), item.name()),
        }
    }
}

/// The earlier rates of an item, in counts per 1000 seconds.
#[derive(Clone, Copy, Debug)]
struct History {
    rates: [u32; HISTORY],
    count: usize,
}

impl History {
    /// Adds a rate, and returns whether it was outside the band of the rates before it.
    fn add(&mut self, rate: u32, seconds: u32, threshold: u32) -> bool {
        let known = self.count.min(HISTORY);
        let is_unusual = known >= FEWEST && self.is_outside(rate, seconds, threshold);
        self.rates[self.count % HISTORY] = rate;
        self.count = if self.count + 1 == 2 * HISTORY { HISTORY } else { self.count + 1 };
        is_unusual
    }

    /// Returns whether a rate differs from the median by more than `threshold` median absolute
    /// deviations. A difference of one count, or of a sixteenth of the median, is always usual.
    fn is_outside(&self, rate: u32, seconds: u32, threshold: u32) -> bool {
        let known = self.count.min(HISTORY);
        let mut sorted = self.rates;
        let median = median_of(&mut sorted[..known]);
        sorted[..known].iter_mut().for_each(|rate| *rate = rate.abs_diff(median));
        let deviation = median_of(&mut sorted[..known]);
        let one = 1000_u32.div_ceil(seconds.max(1));
        let band = u64::from(deviation) * u64::from(threshold);
        u64::from(rate.abs_diff(median)) > band.max(one.into()).max((median / 16).into())
    }
}

/// Sorts the values by insertion: they are few, and the sort of the standard library is 1.5 KB of a
/// mote's flash.
fn median_of(values: &mut [u32]) -> u32 {
    for sorted in 1..values.len() {
        let mut at = sorted;
        while at > 0 && values[at - 1] > values[at] {
            values.swap(at - 1, at);
            at -= 1;
        }
    }
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Decides when a node reports. `N` is the number of totals that it watches.
#[derive(Clone, Copy, Debug)]
pub struct Reporter<const N: usize> {
    policy: Policy,
    items: [Item; N],
    histories: [History; N],
    sampled: Option<Health>,
    reported_s: u32,
    interval_s: u32,
    was_unusual: bool,
}

impl<const N: usize> Reporter<N> {
    /// Creates a reporter that watches these totals.
    #[must_use]
    pub const fn new(policy: Policy, items: [Item; N]) -> Self {
        let histories = [History { rates: [0; HISTORY], count: 0 }; N];
        let interval_s = policy.period_s;
        let (sampled, reported_s, was_unusual) = (None, 0, false);
        Self { policy, items, histories, sampled, reported_s, interval_s, was_unusual }
    }

    /// Returns the policy.
    #[must_use]
    pub const fn policy(&self) -> Policy {
        self.policy
    }

    /// Changes the policy. The next report is due after its period. The histories are kept.
    pub const fn set_policy(&mut self, policy: Policy) {
        (self.policy, self.interval_s) = (policy, policy.period_s);
    }

    /// Returns the time until the next report if nothing unusual happens, in seconds.
    #[must_use]
    pub const fn interval_s(&self) -> u32 {
        self.interval_s
    }

    /// Returns the newest sample.
    #[must_use]
    pub const fn sampled(&self) -> Option<Health> {
        self.sampled
    }

    /// Returns when [`sample`](Self::sample) must be called next, in seconds since the node's start.
    #[must_use]
    pub fn next_s(&self) -> u32 {
        let Some(sampled) = &self.sampled else { return 0 };
        let until_report = self.reported_s.saturating_add(self.interval_s);
        let every = self.policy.period_s.min(self.interval_s);
        sampled.uptime_s.saturating_add(every).min(until_report)
    }

    /// Takes the node's health now. Returns whether the node must report it, and why.
    pub fn sample(&mut self, health: &Health) -> Option<Reason> {
        let Some(before) = self.sampled.replace(*health) else {
            self.reported_s = health.uptime_s;
            return Some(Reason::Start);
        };
        let unusual = self.take(&before, health);
        let is_due = health.uptime_s >= self.reported_s.saturating_add(self.interval_s);
        match unusual {
            Some(item) => {
                self.was_unusual = true;
                self.interval_s = (self.interval_s / 2).max(self.policy.min_s);
                self.reported_s = health.uptime_s;
                Some(Reason::Unusual(item))
            }
            None if is_due => {
                let is_quiet = !core::mem::take(&mut self.was_unusual) && self.is_trained();
                if self.policy.threshold > 0 && is_quiet {
                    let longest = self.policy.period_s.saturating_mul(LONGEST_FACTOR);
                    self.interval_s = self.interval_s.saturating_mul(2).min(longest);
                }
                self.reported_s = health.uptime_s;
                Some(Reason::Due)
            }
            None => None,
        }
    }

    /// Returns whether each total that is known has enough earlier rates.
    fn is_trained(&self) -> bool {
        self.histories.iter().all(|history| history.count == 0 || history.count >= FEWEST)
    }

    /// Adds the rates since the sample before. Returns the first item whose rate is unusual.
    fn take(&mut self, before: &Health, health: &Health) -> Option<Item> {
        let threshold = self.policy.threshold;
        let difference = Difference::between(before, health)?;
        let mut unusual = None;
        for (item, history) in self.items.iter().zip(&mut self.histories) {
            let Some(rate) = difference.per_1000_s(*item) else { continue };
            let rate = u32::try_from(rate).unwrap_or(u32::MAX);
            if history.add(rate, difference.seconds, threshold) && threshold > 0 {
                unusual = unusual.or(Some(*item));
            }
        }
        unusual
    }
}
