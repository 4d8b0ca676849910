//! The sources of a mote's readings: a recording in its flash, or a sensor.

use moteseal_core::provision::ReplayedWindow;

/// The next reading, or the reason why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'r> {
    /// The time at which the record was taken, in Unix milliseconds, and the record.
    Reading(u64, &'r [u8]),
    /// Readings were lost before the next one. A source returns this once for each gap.
    Missed,
    /// There is no reading yet.
    Later,
    /// There are no more readings.
    Over,
}

/// A source of readings, in the order in which the mote seals them. Each reading has a place: a
/// number that counts from 0 and is not reset by a reboot.
pub trait Readings {
    /// Returns the reading at a place. The mote asks for the same place until it has taken the
    /// reading, and then for the next place.
    fn next(&mut self, place: u32) -> Next<'_>;

    /// Continues at this place. After a reboot, the mote reads again all readings that no signed
    /// seal covers. A sensor cannot repeat readings: it returns [`Next::Missed`] next.
    fn resume(&mut self, place: u32);

    /// Returns whether readings can wait without a time limit until the mote takes them. If so, and
    /// the link is slow, the mote waits for the link and does not drop levels.
    fn can_wait(&self) -> bool;

    /// Returns the length of every record in bytes, or `None` if it varies or is not known
    /// beforehand.
    fn record_size(&self) -> Option<usize>;
}

/// A recording in flash, with records of one size.
#[derive(Clone, Copy, Debug)]
pub struct Recording<'r> {
    records: &'r [u8],
    size: usize,
    window: ReplayedWindow,
}

impl<'r> Recording<'r> {
    /// Creates a recording from a window of a table whose records have `size` bytes each. Returns
    /// `None` if the window is not within the table.
    #[must_use]
    pub fn new(table: &'r [u8], size: usize, window: ReplayedWindow) -> Option<Self> {
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
