//! The querier's keys for one query. For any set of participants, the querier computes from them
//! the values that it subtracts from a sum (spec/sums.md, section 2).
//!
//! The table contains 32 bytes for each source. Sources are stored in blocks of sixteen, in the
//! order of their positions. A key group is a range of positions and may begin inside a block. The
//! table is built once for a query and used once in each epoch, by several threads if there is
//! enough work. A [`KeyEngine`] computes the blocks.

use std::fmt;
use std::ops::Range;

use moteseal_core::record::{DeviceId, GroupId};
use moteseal_sum::engine::KeyEngine;
use moteseal_sum::query::QueryId;
use moteseal_sum::sies::{KeyGroupKey, KeyLanes, KeyTotals, LANES, Master, OpenError, Slot};

use super::share::{Shape, Sum};

/// The minimum number of sources for which starting a thread is worthwhile.
const WORTH_A_THREAD: usize = 4096;
/// The maximum number of threads.
const MAX_THREADS: usize = 16;
/// The number of sources whose keys are derived between two calls of `progress`.
const REPORTED: usize = 4096;

/// The keys of all sources and key groups for one query. `Debug` does not print them, and they are
/// erased when dropped.
pub struct KeyTable {
    shape: Shape,
    lanes: Vec<KeyLanes>,
    groups: Vec<KeyGroupKey>,
}

impl fmt::Debug for KeyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyTable(secrets of {} sources)", self.shape.sources)
    }
}

/// The slot and the key group of a sum that did not open, and the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotOpened {
    pub(super) slot: Slot,
    pub(super) key_group: u32,
    pub(super) error: OpenError,
}

impl KeyTable {
    /// Derives the keys of a query for the sources at positions `0, 1, ...`. Several threads may
    /// derive keys. Each of them calls `progress` after every few thousand sources, with the number
    /// of sources since its previous call. The table occupies 32 bytes for each source and each key
    /// group.
    pub fn build(
        master: &Master,
        group: GroupId,
        query: QueryId,
        devices: &[DeviceId],
        shape: Shape,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Self {
        let mut lanes = Vec::new();
        lanes.resize_with(devices.len().div_ceil(LANES), KeyLanes::default);
        let threads = threads(devices.len());
        let each = lanes.len().div_ceil(threads).max(1);
        let derive = |lanes: &mut [KeyLanes], devices: &[DeviceId]| {
            let mut reported = 0;
            for (at, (lanes, devices)) in lanes.iter_mut().zip(devices.chunks(LANES)).enumerate() {
                for (lane, device) in devices.iter().enumerate() {
                    // A device's key does not depend on its key group.
                    lanes.set(lane, &master.source(group, *device, 0).for_query(query));
                }
                let done = at * LANES + devices.len();
                if done - reported >= REPORTED || done == devices.len() {
                    progress(done - reported);
                    reported = done;
                }
            }
            progress(devices.len() - reported);
        };
        std::thread::scope(|scope| {
            let parts = lanes.chunks_mut(each).zip(devices.chunks(each * LANES));
            for (lanes, devices) in parts {
                if threads == 1 {
                    derive(lanes, devices);
                } else {
                    scope.spawn(move || derive(lanes, devices));
                }
            }
        });
        let groups = (0..shape.groups())
            .map(|number| master.key_group(group, number).for_query(query))
            .collect();
        Self { shape, lanes, groups }
    }

    /// Derives the keys of the sources that `devices` has after the sources of the table.
    pub fn grow(&mut self, master: &Master, group: GroupId, query: QueryId, devices: &[DeviceId]) {
        self.lanes.resize_with(devices.len().div_ceil(LANES), KeyLanes::default);
        for (position, device) in devices.iter().enumerate().skip(self.shape.sources as usize) {
            let key = master.source(group, *device, 0).for_query(query);
            self.lanes[position / LANES].set(position % LANES, &key);
        }
        let sources = u32::try_from(devices.len()).unwrap_or(u32::MAX);
        let before = self.shape.groups();
        self.shape.sources = self.shape.sources.max(sources);
        let added = before..self.shape.groups();
        self.groups.extend(added.map(|number| master.key_group(group, number).for_query(query)));
    }

    /// Returns how the sources of the query are arranged.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Opens a sum and returns the total of each slot over all key groups. `most` contains, for
    /// each slot, the largest value that one source can have.
    pub(super) fn open<E: KeyEngine + Sync>(
        &self,
        engine: &E,
        sum: &Sum,
        most: &[u128],
        epoch: u64,
    ) -> Result<Vec<u128>, NotOpened> {
        let work = sum.participants().count() as usize * most.len();
        let threads = threads(work);
        if self.groups.len() < threads {
            return self.open_groups(engine, sum, most, epoch, 0..self.shape.groups(), threads);
        }
        let each = self.shape.groups().div_ceil(u32::try_from(threads).unwrap_or(1)).max(1);
        let parts = (0..self.shape.groups())
            .step_by(each as usize)
            .map(|first| first..(first + each).min(self.shape.groups()));
        if threads == 1 {
            return self.open_groups(engine, sum, most, epoch, 0..self.shape.groups(), 1);
        }
        let mut totals = vec![0; most.len()];
        std::thread::scope(|scope| {
            let running: Vec<_> = parts
                .map(|groups| {
                    scope.spawn(move || self.open_groups(engine, sum, most, epoch, groups, 1))
                })
                .collect();
            // Join the threads in the order of their key groups. If several key groups fail, the
            // returned error is therefore always the error of the first one.
            for part in running {
                let part = part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                totals.iter_mut().zip(part).for_each(|(total, part)| *total += part);
            }
            Ok(totals)
        })
    }

    /// Opens a range of key groups one after the other, with `threads` threads for each key group.
    fn open_groups<E: KeyEngine + Sync>(
        &self,
        engine: &E,
        sum: &Sum,
        most: &[u128],
        epoch: u64,
        groups: Range<u32>,
        threads: usize,
    ) -> Result<Vec<u128>, NotOpened> {
        let mut totals = vec![0; most.len()];
        for key_group in groups {
            let positions = self.shape.positions(key_group);
            if sum.participants().count_in(&positions) == 0 {
                continue;
            }
            let (first, present) = sum.participants().words_in(&positions);
            let lanes = self.lanes.get(first..first + present.len()).unwrap_or_default();
            for (number, (&most, total)) in (0..).zip(most.iter().zip(&mut totals)) {
                let slot = Slot(number);
                let fail = |error| NotOpened { slot, key_group, error };
                let keys = key_totals(engine, lanes, &present, slot, epoch, threads);
                let psr = sum.psr(key_group, slot).ok_or(fail(OpenError::SharesMismatch))?;
                let key =
                    self.groups.get(key_group as usize).ok_or(fail(OpenError::SharesMismatch))?;
                *total += keys.open(&psr, key, slot, epoch, most).map_err(fail)?;
            }
        }
        Ok(totals)
    }
}

/// Sums the keys and shares of the participants, with `threads` threads.
fn key_totals<E: KeyEngine + Sync>(
    engine: &E,
    lanes: &[KeyLanes],
    present: &[u16],
    slot: Slot,
    epoch: u64,
    threads: usize,
) -> KeyTotals {
    let sum = |lanes: &[KeyLanes], present: &[u16]| {
        let mut totals = KeyTotals::default();
        engine.sum_keys(lanes, present, slot, epoch, &mut totals);
        totals
    };
    let each = lanes.len().div_ceil(threads).max(1);
    if threads == 1 || lanes.len() <= each {
        return sum(lanes, present);
    }
    std::thread::scope(|scope| {
        let parts = lanes.chunks(each).zip(present.chunks(each));
        let running: Vec<_> =
            parts.map(|(lanes, present)| scope.spawn(move || sum(lanes, present))).collect();
        let mut totals = KeyTotals::default();
        for part in running {
            let part = part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            totals.add_words(part.words(), part.sources());
        }
        totals
    })
}

/// Returns the number of threads that are worthwhile for this number of sources.
fn threads(sources: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (sources / WORTH_A_THREAD).clamp(1, cores.min(MAX_THREADS))
}
