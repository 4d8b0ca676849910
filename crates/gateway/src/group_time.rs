//! What time it is for a group: which epoch is the newest, and when the grace of those before it is over.
//!
//! By the gateway's clock, or, where devices replay what they recorded, by how far they are: the newest epoch is then one that more than half
//! of the devices that are heard have reached, so that one device that is far ahead, or says so, ends nobody's epochs. This module reads no
//! clock: moments are arguments.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use moteseal_core::record::{DeviceId, EpochNumber};

/// Whose time an epoch follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Time {
    /// The gateway's clock.
    #[default]
    Clock,
    /// The devices': they replay what was recorded, and the newest epoch is the one that more than half of the devices have reached, of those that
    /// were heard within the grace. An epoch is over when all devices have closed it, or the grace after a later one has begun.
    Recorded,
}

#[derive(Debug)]
pub(crate) struct GroupTime {
    time: Time,
    grace: Duration,
    /// By the clock it never goes back, by recorded time not once it was that for a grace; none as long as nothing is known.
    newest: Option<EpochNumber>,
    /// When epochs were first known to be the newest: what the grace of those before is counted from in recorded time.
    since: BTreeMap<EpochNumber, Instant>,
    /// Since when frames could come without a break.
    listening: Instant,
    /// How far devices are in recorded time, and when they were last heard.
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

    /// The epoch that frames are judged by: none is too far ahead of recorded time, which follows the frames.
    pub(crate) fn judged_by(&self) -> EpochNumber {
        match self.time {
            Time::Clock => self.newest.unwrap_or(EpochNumber(0)),
            Time::Recorded => EpochNumber(u64::MAX - 1),
        }
    }

    /// No frame could come up to now: time before is no grace.
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

    /// Goes on: with the clock, which says `clock`, or with the devices. Whether the newest epoch is another one.
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

    /// Whether an epoch may have been taken for the newest too early: the first device that is heard is most of them, until the others
    /// are. A grace later it may have ended others.
    fn may_go_back(&self, newest: EpochNumber, now: Instant) -> bool {
        let since = self.since.get(&newest);
        self.time == Time::Recorded
            && since.is_some_and(|since| now.saturating_duration_since(*since) < self.grace)
    }

    /// The epoch that more than half of the devices have reached, of those that were heard within the grace. Where none was, all are
    /// done, or gone: nobody is waited for.
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
        // When nobody speaks any more, all that was reached counts.
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
