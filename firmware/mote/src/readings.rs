//! What a mote senses: a recording in its flash, or a sensor.

use moteseal_core::provision::Window;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'r> {
    /// A record, and when it was taken, in Unix milliseconds.
    Reading(u64, &'r [u8]),
    /// Readings were lost before the one that comes next. Said once.
    Missed,
    /// Nothing yet.
    Later,
    /// Nothing ever again.
    Over,
}

/// Readings in the order in which they are sealed. Places count from 0, and go on over reboots.
pub trait Readings {
    /// The reading at a place, which is the one behind the last that was taken.
    fn next(&mut self, place: u32) -> Next<'_>;

    /// The mote goes on at this place: after a reboot readings that no signed seal covers are to be
    /// had once more. A sensor, which cannot give them again, says that it has
    /// [missed](Next::Missed) some.
    fn resume(&mut self, place: u32);

    /// Whether they wait to be taken, however long that is: the mote then waits for the link rather
    /// than lose resolution.
    fn can_wait(&self) -> bool;

    /// The length of every record in bytes, where that is known before the first.
    fn record_size(&self) -> Option<usize>;
}

/// Recorded readings of one size, as a mote has them in flash.
#[derive(Clone, Copy, Debug)]
pub struct Recording<'r> {
    records: &'r [u8],
    size: usize,
    window: Window,
}

impl<'r> Recording<'r> {
    /// The readings of a table of records of `size` bytes that lie in a window; `None` if the table
    /// has no such.
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
