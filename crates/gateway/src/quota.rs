//! Limits how many bytes of the journal each device may use. Half of the journal's room is shared,
//! and the other half is divided equally among all devices.
//!
//! A device may always use its own share. It may also use any room that is not reserved for the
//! unused shares of other devices. The frames of a device that floods the gateway are therefore
//! rejected at some point, and the other devices can still send. The bytes of a device count until
//! the journal is compacted.

use std::collections::HashMap;

use moteseal_core::record::DeviceId;

/// Tracks how many bytes of the journal each device uses.
#[derive(Debug)]
pub(crate) struct Quota {
    room: u64,
    /// The reserved share of each device.
    share: u64,
    used: HashMap<DeviceId, u64>,
    total: u64,
    /// The reserved room: the sum of the unused parts of all shares.
    reserved: u64,
}

impl Quota {
    /// Creates an empty quota for `room` bytes and `devices` devices.
    pub(crate) fn new(room: u64, devices: usize) -> Self {
        let share = room / 2 / (devices as u64).max(1);
        Self { room, share, used: HashMap::new(), total: 0, reserved: share * devices as u64 }
    }

    /// Returns whether a device may use `bytes` more.
    pub(crate) fn admits(&self, device: DeviceId, bytes: u64) -> bool {
        let rest = self.rest(device);
        bytes <= rest || self.total + bytes + self.reserved.saturating_sub(rest) <= self.room
    }

    /// Records that a device uses `bytes` more.
    pub(crate) fn add(&mut self, device: DeviceId, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(self.rest(device).min(bytes));
        *self.used.entry(device).or_default() += bytes;
        self.total += bytes;
    }

    /// Returns the unused part of a device's own share.
    fn rest(&self, device: DeviceId) -> u64 {
        self.share.saturating_sub(self.used.get(&device).copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn device(number: u8) -> DeviceId {
        DeviceId([number; 8])
    }

    #[test]
    fn a_single_device_may_use_all_room() {
        let mut quota = Quota::new(1000, 1);
        quota.add(device(0), 900);
        assert!(quota.admits(device(0), 100) && !quota.admits(device(0), 101));
    }

    proptest! {
        /// A device's own share stays available whatever the other devices use, and all devices
        /// together never use more than the room.
        #[test]
        fn no_device_can_use_the_share_of_another(frames in prop::collection::vec((0..5u8, 1..200u64), 0..200), devices in 1..6usize) {
            let mut quota = Quota::new(3000, devices);
            let share = 3000 / 2 / devices as u64;
            let mut used = [0u64; 6];
            for (number, bytes) in frames.into_iter().filter(|(number, _)| usize::from(*number) < devices) {
                let is_own = used[usize::from(number)] + bytes <= share;
                prop_assert!(quota.admits(device(number), bytes) || !is_own);
                if quota.admits(device(number), bytes) {
                    quota.add(device(number), bytes);
                    used[usize::from(number)] += bytes;
                }
                prop_assert!(used.iter().sum::<u64>() <= 3000);
            }
        }
    }
}
