//! How much of the journal each device may fill: half of the room is for any device, the other half
//! is divided equally among all.
//!
//! A device may always fill its own part, and in addition the room that remains once the others'
//! parts are reserved. A device that floods is therefore rejected at some point, and cannot keep
//! the others from sending. A device's bytes count until the journal is compacted.

use std::collections::HashMap;

use moteseal_core::record::DeviceId;

/// What devices have in the journal, in bytes.
#[derive(Debug)]
pub(crate) struct Quota {
    room: u64,
    /// Every device's own part.
    part: u64,
    used: HashMap<DeviceId, u64>,
    total: u64,
    /// What is put aside: the unused rest of every device's part.
    aside: u64,
}

impl Quota {
    /// Nothing is used yet of a room of so many bytes, for so many devices.
    pub(crate) fn new(room: u64, devices: usize) -> Self {
        let part = room / 2 / (devices as u64).max(1);
        Self { room, part, used: HashMap::new(), total: 0, aside: part * devices as u64 }
    }

    /// Whether a device may fill so many bytes more.
    pub(crate) fn admits(&self, device: DeviceId, bytes: u64) -> bool {
        let rest = self.rest(device);
        bytes <= rest || self.total + bytes + self.aside.saturating_sub(rest) <= self.room
    }

    /// A device has filled so many bytes more.
    pub(crate) fn add(&mut self, device: DeviceId, bytes: u64) {
        self.aside = self.aside.saturating_sub(self.rest(device).min(bytes));
        *self.used.entry(device).or_default() += bytes;
        self.total += bytes;
    }

    /// What a device has left of its own part.
    fn rest(&self, device: DeviceId) -> u64 {
        self.part.saturating_sub(self.used.get(&device).copied().unwrap_or(0))
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
    fn who_is_alone_may_fill_everything() {
        let mut quota = Quota::new(1000, 1);
        quota.add(device(0), 900);
        assert!(quota.admits(device(0), 100) && !quota.admits(device(0), 101));
    }

    proptest! {
        /// Whatever the others did, a device's own part is there; and all together never have more
        /// than the room.
        #[test]
        fn nobody_can_take_anothers_part(frames in prop::collection::vec((0..5u8, 1..200u64), 0..200), devices in 1..6usize) {
            let mut quota = Quota::new(3000, devices);
            let part = 3000 / 2 / devices as u64;
            let mut used = [0u64; 6];
            for (number, bytes) in frames.into_iter().filter(|(number, _)| usize::from(*number) < devices) {
                let is_own = used[usize::from(number)] + bytes <= part;
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
