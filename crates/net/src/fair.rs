//! A queue of frames from many devices, which take turns. If too many bytes wait, the newest frame
//! of the device with the most waiting bytes is dropped. A device that floods therefore harms only
//! itself.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::link::{Origin, Up};

/// The approximate memory that a waiting frame uses in addition to its bytes, for its entries in
/// the queues.
const OVERHEAD: usize = 128;

/// The waiting frames. Their total size in bytes is bounded.
pub(crate) struct Fair {
    bound: usize,
    total: usize,
    queues: HashMap<[u8; 8], Queue>,
    /// The devices with waiting frames, ordered by turn; the first one is next. A device whose last
    /// frame was dropped has no turn.
    turns: BTreeMap<u64, [u8; 8]>,
    /// The turn that will be assigned next.
    next_turn: u64,
    /// The devices with waiting frames, ordered by the size of these frames in bytes.
    by_size: BTreeSet<(usize, [u8; 8])>,
    dropped: u64,
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<(Bytes, Origin)>,
    size: usize,
    turn: u64,
}

impl Fair {
    /// Creates an empty queue for at most `bound` bytes.
    pub(crate) fn new(bound: usize) -> Self {
        let (queues, turns, by_size) = (HashMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { bound, total: 0, queues, turns, next_turn: 0, by_size, dropped: 0 }
    }

    pub(crate) fn push(&mut self, Up { device, frame, origin }: Up) {
        if !self.queues.contains_key(&device) {
            self.queue_up(device);
        }
        let size = frame.len() + OVERHEAD;
        self.queues.entry(device).or_default().frames.push_back((frame, origin));
        self.resize(device, |old| old + size);
        while self.total > self.bound && self.drop_newest_of_largest() {}
    }

    /// Returns the next frame. Skips the frames of the device `excluded`.
    pub(crate) fn pop(&mut self, excluded: Option<[u8; 8]>) -> Option<Up> {
        // Each device has only one turn, so at most one turn is skipped.
        let (turn, device) = self
            .turns
            .iter()
            .map(|(turn, device)| (*turn, *device))
            .find(|(_, device)| Some(*device) != excluded)?;
        self.turns.remove(&turn);
        let (frame, origin) = self.queues.get_mut(&device)?.frames.pop_front()?;
        if self.resize(device, |old| old - frame.len() - OVERHEAD).is_none() {
            self.queue_up(device);
        }
        Some(Up { device, frame, origin })
    }

    /// Gives a device the last turn.
    fn queue_up(&mut self, device: [u8; 8]) {
        self.turns.insert(self.next_turn, device);
        self.queues.entry(device).or_default().turn = self.next_turn;
        self.next_turn += 1;
    }

    /// Returns the number of waiting frames of a device.
    pub(crate) fn waiting(&self, device: [u8; 8]) -> usize {
        self.queues.get(&device).map_or(0, |queue| queue.frames.len())
    }

    /// Counts a message that is not a frame as dropped.
    pub(crate) const fn refuse(&mut self) {
        self.dropped += 1;
    }

    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }

    fn drop_newest_of_largest(&mut self) -> bool {
        let Some(&(_, device)) = self.by_size.last() else { return false };
        let Some((frame, _)) =
            self.queues.get_mut(&device).and_then(|queue| queue.frames.pop_back())
        else {
            return false;
        };
        self.dropped += 1;
        if let Some(turn) = self.resize(device, |old| old - frame.len() - OVERHEAD) {
            self.turns.remove(&turn);
        }
        true
    }

    /// Updates the total size and the order by size. If the device has no waiting frame left,
    /// removes it and returns its turn.
    fn resize(&mut self, device: [u8; 8], change: impl FnOnce(usize) -> usize) -> Option<u64> {
        let queue = self.queues.get_mut(&device)?;
        let old = queue.size;
        queue.size = change(old);
        self.total = self.total - old + queue.size;
        self.by_size.remove(&(old, device));
        if queue.frames.is_empty() {
            return self.queues.remove(&device).map(|queue| queue.turn);
        }
        self.by_size.insert((queue.size, device));
        None
    }
}

/// A [`Fair`] queue that is shared by a task that fills it and a task that waits for frames.
pub(crate) struct Inbox {
    waiting: Mutex<Fair>,
    arrived: Notify,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("waiting", &self.waiting().total).finish_non_exhaustive()
    }
}

impl Inbox {
    pub(crate) fn new(bound: usize) -> Self {
        Self { waiting: Mutex::new(Fair::new(bound)), arrived: Notify::new() }
    }

    fn waiting(&self) -> MutexGuard<'_, Fair> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, up: Up) {
        self.waiting().push(up);
        self.arrived.notify_one();
    }

    pub(crate) fn refuse(&self) {
        self.waiting().refuse();
    }

    /// Waits for the next frame of any device except `excluded`. Only one task at a time may wait.
    pub(crate) async fn next(&self, excluded: Option<[u8; 8]>) -> Up {
        loop {
            let next = self.waiting().pop(excluded);
            match next {
                Some(up) => return up,
                None => self.arrived.notified().await,
            }
        }
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.waiting().dropped()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    const FRAME: usize = 72;
    const COST: usize = FRAME + OVERHEAD;

    fn frame(number: u8) -> Bytes {
        Bytes::from(vec![number; FRAME])
    }

    fn order(fair: &mut Fair) -> Vec<(u8, u8)> {
        std::iter::from_fn(|| fair.pop(None)).map(|up| (up.device[7], up.frame[0])).collect()
    }

    const fn device(number: u8) -> [u8; 8] {
        [0, 0, 0, 0, 0, 0, 0, number]
    }

    #[test]
    fn devices_take_turns_and_the_frames_of_each_keep_their_order() {
        let mut fair = Fair::new(100 * COST);
        for number in 0..3 {
            fair.push(Up::new(device(1), frame(number)));
        }
        fair.push(Up::new(device(2), frame(7)));
        fair.push(Up::new(device(3), frame(8)));
        assert_eq!(fair.waiting(device(1)), 3);
        fair.push(Up::new(device(4), frame(9)));
        assert_eq!(fair.pop(Some(device(1))).map(|up| up.device), Some(device(2)));
        fair.push(Up::new(device(2), frame(7)));
        assert_eq!(fair.pop(Some(device(1))).map(|up| up.device), Some(device(3)));
        fair.push(Up::new(device(3), frame(8)));
        assert_eq!(fair.pop(Some(device(1))).map(|up| up.device), Some(device(4)));
        assert_eq!(order(&mut fair), [(1, 0), (2, 7), (3, 8), (1, 1), (1, 2)]);
        assert_eq!((fair.total, fair.queues.len(), fair.by_size.len()), (0, 0, 0));
    }

    #[test]
    fn a_device_that_floods_loses_only_its_own_newest_frames() {
        let mut fair = Fair::new(10 * COST);
        fair.push(Up::new(device(2), frame(0)));
        for number in 0..200 {
            fair.push(Up::new(device(1), frame(number)));
        }
        fair.push(Up::new(device(3), frame(0)));
        assert!(fair.total <= 10 * COST);
        assert_eq!(fair.dropped(), 192);
        let order = order(&mut fair);
        assert_eq!(order.iter().filter(|(device, _)| *device != 1).count(), 2);
        let floods: Vec<u8> =
            order.iter().filter(|(device, _)| *device == 1).map(|(_, number)| *number).collect();
        assert_eq!(floods, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn many_devices_with_one_frame_each_stay_within_the_bound() {
        let mut fair = Fair::new(10 * COST);
        for number in 0..100 {
            fair.push(Up::new(device(number), frame(number)));
        }
        assert_eq!((fair.turns.len(), fair.queues.len(), fair.by_size.len()), (10, 10, 10));
        assert_eq!(order(&mut fair).len(), 10);
    }

    /// The reference implementation: a single list of frames in order of arrival, which is searched
    /// for each operation.
    #[derive(Default)]
    struct Reference {
        frames: Vec<(u8, usize)>,
        turns: Vec<u8>,
        dropped: u64,
    }

    impl Reference {
        fn size(&self, device: u8) -> usize {
            self.frames
                .iter()
                .filter(|(of, _)| *of == device)
                .map(|(_, length)| length + OVERHEAD)
                .sum()
        }

        fn push(&mut self, device: u8, length: usize, bound: usize) {
            if !self.turns.contains(&device) {
                self.turns.push(device);
            }
            self.frames.push((device, length));
            while self.frames.iter().map(|(_, length)| length + OVERHEAD).sum::<usize>() > bound {
                // If the waiting frames of several devices have the same total size, drop a frame
                // of the device with the highest number.
                let largest = *self
                    .turns
                    .iter()
                    .max_by_key(|device| (self.size(**device), **device))
                    .unwrap();
                let newest = self.frames.iter().rposition(|(of, _)| *of == largest).unwrap();
                self.frames.remove(newest);
                self.dropped += 1;
                self.turns.retain(|device| self.frames.iter().any(|(of, _)| of == device));
            }
        }

        fn pop(&mut self) -> Option<(u8, usize)> {
            let device = *self.turns.first()?;
            self.turns.remove(0);
            let oldest = self.frames.iter().position(|(of, _)| *of == device)?;
            let popped = self.frames.remove(oldest);
            if self.frames.iter().any(|(of, _)| *of == device) {
                self.turns.push(device);
            }
            Some(popped)
        }
    }

    proptest! {
        #[test]
        fn the_queue_behaves_like_the_reference(
            steps in prop::collection::vec((0..12u8, 0..400usize, prop::bool::weighted(0.7)), 0..300),
            bound in 0..4000usize,
        ) {
            let (mut fair, mut reference) = (Fair::new(bound), Reference::default());
            for (number, length, pushes) in steps {
                if pushes {
                    fair.push(Up::new(device(number), Bytes::from(vec![0; length])));
                    reference.push(number, length, bound);
                } else {
                    let popped = fair.pop(None).map(|up| (up.device[7], up.frame.len()));
                    prop_assert_eq!(popped, reference.pop());
                }
                prop_assert_eq!(fair.dropped(), reference.dropped);
                prop_assert_eq!(fair.turns.values().map(|device| device[7]).collect::<Vec<_>>(), reference.turns.clone());
            }
            prop_assert_eq!(order_of_lengths(&mut fair), std::iter::from_fn(|| reference.pop()).collect::<Vec<_>>());
            prop_assert_eq!((fair.total, fair.queues.len(), fair.by_size.len(), fair.turns.len()), (0, 0, 0, 0));
        }
    }

    fn order_of_lengths(fair: &mut Fair) -> Vec<(u8, usize)> {
        std::iter::from_fn(|| fair.pop(None)).map(|up| (up.device[7], up.frame.len())).collect()
    }
}
