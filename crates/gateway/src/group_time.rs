//! The time of a group: which epoch is the newest, and when the grace of the earlier ones is over.
//!
//! Time follows the gateway's clock, or, if devices replay recordings, their progress: the newest
//! epoch is then one that more than half of the active devices have reached, so that one device
//! that is far ahead ends no epochs of others. This module reads no clock: times are arguments.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use moteseal_core::record::{DeviceId, EpochNumber};

/// Whose time an epoch follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Time {
    /// The gateway's clock.
    #[default]
    Clock,
    /// The devices' time: they replay recordings. The newest epoch is the one that more than half
    /// of the devices have reached, of those that sent a frame within the grace. An epoch is over
    /// when all devices have closed it, or a grace after a later one has begun.
    Recorded,
}

#[derive(Debug)]
pub(crate) struct GroupTime {
    time: Time,
    grace: Duration,
    /// The newest epoch. By the clock it never goes back; by recorded time it does not after a
    /// grace. `None` while nothing is known.
    newest: Option<EpochNumber>,
    /// When epochs first became the newest: in recorded time, the grace of earlier epochs starts
    /// there.
    since: BTreeMap<EpochNumber, Instant>,
    /// Since when frames could arrive without interruption.
    listening: Instant,
    /// The progress of devices in recorded time, and when each last sent a frame.
    reached: HashMap<DeviceId, (EpochNumber, Instant)>,
}

impl GroupTime {
    pub(crate) fn new(time: Time, grace: Duration, now: Instant) -> Self {
        Self {
            time,
            grace,
            newest: None,
            since: BTreeMap::new(),
            listening: now,
            reached: HashMap::new(),
        }
    }

    /// The newest epoch, if any is known.
    pub(crate) const fn newest(&self) -> Option<EpochNumber> {
        self.newest
    }

    /// The epoch against which frames are checked: in recorded time, which follows the frames, none
    /// is too far ahead.
    pub(crate) fn judged_by(&self) -> EpochNumber {
        match self.time {
            Time::Clock => self.newest.unwrap_or(EpochNumber(0)),
            Time::Recorded => EpochNumber(u64::MAX - 1),
        }
    }

    /// No frame could arrive until now: the time before does not count as grace.
    pub(crate) const fn nothing_came(&mut self, now: Instant) {
        self.listening = now;
    }

    /// A device was heard of an epoch.
    pub(crate) fn heard(&mut self, device: DeviceId, epoch: EpochNumber, now: Instant) {
        if self.time == Time::Recorded {
            let (reached, at) = self.reached.entry(device).or_insert((epoch, now));
            (*reached, *at) = (epoch.max(*reached), now);
        }
    }

    /// Advances with the clock, which reads `clock`, or with the devices. Returns whether the
    /// newest epoch has changed.
    pub(crate) fn look(&mut self, clock: EpochNumber, now: Instant) -> bool {
        let epoch = match self.time {
            Time::Clock => Some(clock),
            Time::Recorded => self.reached_by_most(now),
        };
        let is_other = match (epoch, self.newest) {
            (Some(epoch), Some(newest)) if epoch < newest => self.may_go_back(newest, now),
            (epoch, newest) => epoch > newest,
        };
        if let Some(epoch) = epoch.filter(|_| is_other) {
            self.newest = Some(epoch);
            let _behind = self.since.split_off(&EpochNumber(epoch.0.saturating_add(1)));
            self.since.entry(epoch).or_insert(now);
        }
        is_other
    }

    /// Whether an epoch may have become the newest too early: the first device that sends is the
    /// majority until the others do. A grace later it may have ended other epochs.
    fn may_go_back(&self, newest: EpochNumber, now: Instant) -> bool {
        let since = self.since.get(&newest);
        self.time == Time::Recorded
            && since.is_some_and(|since| now.saturating_duration_since(*since) < self.grace)
    }

    /// The epoch that more than half of the devices have reached, of those that sent a frame within
    /// the grace. If none did, all are done or gone, and no device is waited for.
    fn reached_by_most(&self, now: Instant) -> Option<EpochNumber> {
        let is_heard = |at: &Instant| now.saturating_duration_since(*at) < self.grace;
        let mut heard: Vec<_> =
            self.reached.values().filter(|(_, at)| is_heard(at)).map(|(epoch, _)| *epoch).collect();
        if heard.is_empty() {
            return self.reached.values().map(|(epoch, _)| *epoch).max();
        }
        heard.sort_unstable_by(|a, b| b.cmp(a));
        heard.get(heard.len() / 2).copied()
    }

    /// Whether the grace of an epoch is over, `late` after its end by the clock.
    pub(crate) fn is_over(&self, epoch: EpochNumber, late: Duration, now: Instant) -> bool {
        let after = match self.time {
            Time::Clock => late,
            Time::Recorded => {
                let later = self.since.range(EpochNumber(epoch.0.saturating_add(1))..).next();
                later.map_or(Duration::ZERO, |(_, since)| now.saturating_duration_since(*since))
            }
        };
        let listened = now.saturating_duration_since(self.listening);
        Some(epoch) < self.newest && after >= self.grace && listened >= self.grace
    }

    /// An epoch was ended.
    pub(crate) fn ended(&mut self, epoch: EpochNumber) {
        let behind = EpochNumber(epoch.0.saturating_add(1));
        self.since = self.since.split_off(&self.newest.map_or(behind, |newest| behind.min(newest)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(30);
    const NONE: EpochNumber = EpochNumber(0);

    const fn device(number: u8) -> DeviceId {
        DeviceId([number; 8])
    }

    struct Replay {
        time: GroupTime,
        now: Instant,
    }

    impl Replay {
        fn start() -> Self {
            let now = Instant::now();
            Self { time: GroupTime::new(Time::Recorded, GRACE, now), now }
        }

        fn heard(&mut self, number: u8, epoch: u64) {
            self.time.heard(device(number), EpochNumber(epoch), self.now);
            self.time.look(NONE, self.now);
        }

        fn wait(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
            self.time.look(NONE, self.now);
        }

        fn is_over(&self, epoch: u64) -> bool {
            self.time.is_over(EpochNumber(epoch), Duration::ZERO, self.now)
        }
    }

    #[test]
    fn one_device_that_jumps_ends_nobodys_epochs() {
        let mut replay = Replay::start();
        for _ in 0..20 {
            replay.heard(1, u64::MAX / 2);
            (2..4).for_each(|number| replay.heard(number, 7));
            replay.wait(10);
            assert_eq!(replay.time.newest(), Some(EpochNumber(7)));
            assert!(!replay.is_over(7) && !replay.is_over(8));
        }
        // Nor of two devices.
        let mut replay = Replay::start();
        replay.heard(2, 7);
        replay.heard(1, 1000);
        assert_eq!(replay.time.newest(), Some(EpochNumber(7)));
    }

    #[test]
    fn an_epoch_is_over_a_grace_after_most_have_gone_on() {
        let mut replay = Replay::start();
        replay.wait(60);
        (1..4).for_each(|number| replay.heard(number, 7));
        (1..3).for_each(|number| replay.heard(number, 8));
        replay.wait(29);
        assert!(!replay.is_over(7));
        replay.wait(1);
        assert!(replay.is_over(7) && !replay.is_over(8));
    }

    #[test]
    fn devices_that_are_silent_for_a_grace_are_not_waited_for() {
        let mut replay = Replay::start();
        (1..4).for_each(|number| replay.heard(number, 7));
        replay.wait(31);
        replay.heard(1, 9);
        assert_eq!(replay.time.newest(), Some(EpochNumber(9)));
        // When no device sends any more, the progress of all counts.
        let mut replay = Replay::start();
        replay.heard(1, 9);
        replay.heard(2, 7);
        assert_eq!(replay.time.newest(), Some(EpochNumber(7)));
        replay.wait(31);
        assert_eq!(replay.time.newest(), Some(EpochNumber(9)));
    }

    #[test]
    fn the_clocks_epochs_are_over_a_grace_after_their_end_if_frames_could_come() {
        let start = Instant::now();
        let mut time = GroupTime::new(Time::Clock, GRACE, start);
        time.heard(device(1), EpochNumber(1000), start);
        assert!(time.look(EpochNumber(7), start) && !time.look(EpochNumber(6), start));
        assert_eq!((time.newest(), time.judged_by()), (Some(EpochNumber(7)), EpochNumber(7)));
        let now = start + GRACE;
        assert!(
            time.is_over(EpochNumber(6), GRACE, now) && !time.is_over(EpochNumber(7), GRACE, now)
        );
        assert!(!time.is_over(EpochNumber(6), Duration::from_secs(29), now));
        time.nothing_came(now);
        assert!(!time.is_over(EpochNumber(6), 9 * GRACE, now + Duration::from_secs(29)));
    }
}
