//! The time of a group: which epoch is the newest, and whether the grace period of each earlier
//! epoch is over.
//!
//! The group's time follows the gateway's clock or, if the devices replay recordings, the progress
//! of the replay. In recorded time the newest epoch is the one that more than half of the active
//! devices have reached. A single device that is far ahead therefore does not end the epochs of the
//! other devices. This module does not read the clock: callers pass the times as arguments.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use moteseal_core::record::{DeviceId, EpochNumber};

/// The time that the epochs of a group follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Time {
    /// The gateway's clock.
    #[default]
    Clock,
    /// The time of the recordings that the devices replay. The newest epoch is the one that more
    /// than half of the active devices have reached. A device is active if it sent a frame within
    /// the last grace period. An epoch ends when all devices have closed it, or one grace period
    /// after a later epoch became the newest.
    Recorded,
}

#[derive(Debug)]
pub(crate) struct GroupTime {
    time: Time,
    grace: Duration,
    /// The newest epoch; `None` until it is known. With the gateway's clock, it never goes back. In
    /// recorded time, it can go back only within a grace period after it became the newest.
    newest: Option<EpochNumber>,
    /// When each epoch first became the newest. In recorded time, this starts the grace period of
    /// the earlier epochs.
    since: BTreeMap<EpochNumber, Instant>,
    /// The moment since which frames have been able to arrive without interruption.
    listening: Instant,
    /// In recorded time: the newest epoch that each device has reached, and when the device last
    /// sent a frame.
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

    /// Returns the newest epoch, if it is known.
    pub(crate) const fn newest(&self) -> Option<EpochNumber> {
        self.newest
    }

    /// Returns the epoch with which a frame's epoch is compared, to detect frames that are too far
    /// ahead. In recorded time, which follows the frames, no epoch is too far ahead.
    pub(crate) fn checked_against(&self) -> EpochNumber {
        match self.time {
            Time::Clock => self.newest.unwrap_or(EpochNumber(0)),
            Time::Recorded => EpochNumber(u64::MAX - 1),
        }
    }

    /// Restarts the grace period, because no frame could arrive before `now`.
    pub(crate) const fn restart_grace(&mut self, now: Instant) {
        self.listening = now;
    }

    /// Records that a device sent a frame of an epoch.
    pub(crate) fn received(&mut self, device: DeviceId, epoch: EpochNumber, now: Instant) {
        if self.time == Time::Recorded {
            let (reached, at) = self.reached.entry(device).or_insert((epoch, now));
            (*reached, *at) = (epoch.max(*reached), now);
        }
    }

    /// Updates the newest epoch: from `clock`, the clock's epoch, or from the progress of the
    /// devices. Returns whether the newest epoch has changed.
    pub(crate) fn advance(&mut self, clock: EpochNumber, now: Instant) -> bool {
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
            let _later = self.since.split_off(&EpochNumber(epoch.0.saturating_add(1)));
            self.since.entry(epoch).or_insert(now);
        }
        is_other
    }

    /// Returns whether the newest epoch may be replaced by an earlier one. This is necessary
    /// because the first device that sends is the majority until others send, so an epoch may
    /// become the newest too early. After a grace period this is no longer allowed, because other
    /// epochs may have ended.
    fn may_go_back(&self, newest: EpochNumber, now: Instant) -> bool {
        let since = self.since.get(&newest);
        self.time == Time::Recorded
            && since.is_some_and(|since| now.saturating_duration_since(*since) < self.grace)
    }

    /// Returns the epoch that more than half of the active devices have reached. If no device is
    /// active, all devices have finished or disappeared, and the newest epoch of any device is
    /// returned.
    fn reached_by_most(&self, now: Instant) -> Option<EpochNumber> {
        let is_active = |at: &Instant| now.saturating_duration_since(*at) < self.grace;
        let mut received: Vec<_> = self
            .reached
            .values()
            .filter(|(_, at)| is_active(at))
            .map(|(epoch, _)| *epoch)
            .collect();
        if received.is_empty() {
            return self.reached.values().map(|(epoch, _)| *epoch).max();
        }
        received.sort_unstable_by(|a, b| b.cmp(a));
        received.get(received.len() / 2).copied()
    }

    /// Returns whether the grace period of an epoch is over. `late` is the time since the epoch's
    /// end by the clock.
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

    /// Records that an epoch has ended.
    pub(crate) fn ended(&mut self, epoch: EpochNumber) {
        let after = EpochNumber(epoch.0.saturating_add(1));
        self.since = self.since.split_off(&self.newest.map_or(after, |newest| after.min(newest)));
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

        fn received(&mut self, number: u8, epoch: u64) {
            self.time.received(device(number), EpochNumber(epoch), self.now);
            self.time.advance(NONE, self.now);
        }

        fn wait(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
            self.time.advance(NONE, self.now);
        }

        fn is_over(&self, epoch: u64) -> bool {
            self.time.is_over(EpochNumber(epoch), Duration::ZERO, self.now)
        }
    }

    #[test]
    fn one_device_that_jumps_ahead_does_not_end_the_epochs_of_others() {
        let mut replay = Replay::start();
        for _ in 0..20 {
            replay.received(1, u64::MAX / 2);
            (2..4).for_each(|number| replay.received(number, 7));
            replay.wait(10);
            assert_eq!(replay.time.newest(), Some(EpochNumber(7)));
            assert!(!replay.is_over(7) && !replay.is_over(8));
        }
        // The same applies to a group of two devices.
        let mut replay = Replay::start();
        replay.received(2, 7);
        replay.received(1, 1000);
        assert_eq!(replay.time.newest(), Some(EpochNumber(7)));
    }

    #[test]
    fn an_epoch_ends_a_grace_period_after_most_devices_have_left_it() {
        let mut replay = Replay::start();
        replay.wait(60);
        (1..4).for_each(|number| replay.received(number, 7));
        (1..3).for_each(|number| replay.received(number, 8));
        replay.wait(29);
        assert!(!replay.is_over(7));
        replay.wait(1);
        assert!(replay.is_over(7) && !replay.is_over(8));
    }

    #[test]
    fn does_not_wait_for_devices_that_are_silent_for_a_grace_period() {
        let mut replay = Replay::start();
        (1..4).for_each(|number| replay.received(number, 7));
        replay.wait(31);
        replay.received(1, 9);
        assert_eq!(replay.time.newest(), Some(EpochNumber(9)));
        // When no device is active any more, the newest epoch that any device reached becomes the
        // group's newest epoch.
        let mut replay = Replay::start();
        replay.received(1, 9);
        replay.received(2, 7);
        assert_eq!(replay.time.newest(), Some(EpochNumber(7)));
        replay.wait(31);
        assert_eq!(replay.time.newest(), Some(EpochNumber(9)));
    }

    #[test]
    fn by_the_clock_an_epoch_ends_after_a_grace_period_in_which_frames_could_arrive() {
        let start = Instant::now();
        let mut time = GroupTime::new(Time::Clock, GRACE, start);
        time.received(device(1), EpochNumber(1000), start);
        assert!(time.advance(EpochNumber(7), start) && !time.advance(EpochNumber(6), start));
        assert_eq!((time.newest(), time.checked_against()), (Some(EpochNumber(7)), EpochNumber(7)));
        let now = start + GRACE;
        assert!(
            time.is_over(EpochNumber(6), GRACE, now) && !time.is_over(EpochNumber(7), GRACE, now)
        );
        assert!(!time.is_over(EpochNumber(6), Duration::from_secs(29), now));
        time.restart_grace(now);
        assert!(!time.is_over(EpochNumber(6), 9 * GRACE, now + Duration::from_secs(29)));
    }
}
