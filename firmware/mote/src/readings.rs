//! The readings of a mote: a recording in its flash, or a sensor.

use moteseal_core::provision::Window;

/// The next reading, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'r> {
    /// The time at which the record was taken, in Unix milliseconds, and the record.
    Reading(u64, &'r [u8]),
    /// Readings were lost before the next one. Returned once.
    Missed,
    /// No reading yet.
    Later,
    /// There are no more readings.
    Over,
}

/// Readings in the order in which they are sealed. Places count from 0 and continue after a reboot.
pub trait Readings {
    /// The reading at a place. The place is one after the last reading that was taken.
    fn next(&mut self, place: u32) -> Next<'_>;

    /// Continues at this place. After a reboot, the mote reads again what no signed seal covers. A
    /// sensor cannot repeat readings, and returns [`Next::Missed`] next.
    fn resume(&mut self, place: u32);

    /// Whether readings wait until they are taken, without a time limit. If so, the mote waits for
    /// the link instead of giving up levels.
    fn can_wait(&self) -> bool;

    /// The length of every record in bytes; `None` if it varies or is not known beforehand.
    fn record_size(&self) -> Option<usize>;
}

/// A recording in flash, with records of one size.
#[derive(Clone, Copy, Debug)]
pub struct Recording<'r> {
    records: &'r [u8],
    size: usize,
    window: Window,
}

impl<'r> Recording<'r> {
    /// The readings of a window of a table, whose records have `size` bytes each. `None` if the
    /// window is not within the table.
    #[must_use]
    pub fn new(table: &'r [u8], size: usize, window: Window) -> Option<Self> {
        let start = usize::try_from(window.first).ok()?.checked_mul(size)?;
        let length = usize::try_from(window.count).ok()?.checked_mul(size)?;
        let records = table.get(start..start.checked_add(length)?)?;
        Some(Self { records, size, window })
    }
}

impl Readings for Recording<'_> {
    fn next(&mut self, place: u32) -> Next<'_> {
        let unix_ms =
            self.window.start_ms.saturating_add(u64::from(place) * u64::from(self.window.every_ms));
        let start = usize::try_from(place).ok().and_then(|place| place.checked_mul(self.size));
        let record = start.and_then(|start| self.records.get(start..start.checked_add(self.size)?));
        record.map_or(Next::Over, |record| Next::Reading(unix_ms, record))
    }

    fn resume(&mut self, _: u32) {}

    fn can_wait(&self) -> bool {
        true
    }

    fn record_size(&self) -> Option<usize> {
        Some(self.size)
    }
}
