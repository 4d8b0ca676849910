//! The health of a node: counters and gauges of its hardware, network and queues (spec/health.md).
//!
//! A record contains totals since the node's start, not differences, so a lost record loses no count.
//! [`Difference`] computes what was counted between two records, over wraps and restarts.
//! [`Reporter`] decides when a node reports. [`Columns`] makes rows of a stream of records. The items and their groups follow RERUM D5.3, section
//! 3.2; the groups of the queue and the values of the device after the temperature are our own.

mod columns;
mod item;
mod rates;
mod reporter;

use crate::cbor::{BufferTooSmall, DecodeError, Reader, Writer};

pub use columns::{Columns, MAX_ROW};
pub use item::{GROUPS, Group, ITEMS, Item, Kind};
pub use rates::{Difference, Totals};
pub use reporter::{
    HISTORY, LONGEST_FACTOR, Policy, PolicyError, Reason, Reporter, SHORTEST_ON_HOSTS,
    SHORTEST_ON_MOTES,
};

/// The version of the format.
const VERSION: u8 = 1;
/// Maximum length of an encoded record in bytes. Records of this version have at most
/// [`MAX_ENCODED`] bytes; those of later ones may have more values.
pub const MAX_HEALTH: usize = 512;
/// The length of the longest record that [`Health::encode`] writes, in bytes.
pub const MAX_ENCODED: usize = 3 + 2 * 5 + GROUPS + 5 * ITEMS;

/// A record of a node's health.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// How often the node has started, modulo 2^32. All totals count from the last start.
    pub boot: u32,
    /// The time since the start, in seconds.
    pub uptime_s: u32,
    /// A bit for each item: whether its value is known.
    known: u64,
    /// The values; gauges as the bits of their signed values.
    values: [u32; ITEMS],
}

impl core::fmt::Debug for Health {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut map = f.debug_map();
        map.entry(&"boot", &self.boot).entry(&"uptime_s", &self.uptime_s);
        self.values().for_each(|(item, value)| {
            map.entry(&format_args!("{}.{}", item.group().name(), item.name()), &value);
        });
        map.finish()
    }
}

impl Health {
    /// Creates a record without values.
    #[must_use]
    pub const fn new(boot: u32, uptime_s: u32) -> Self {
        Self { boot, uptime_s, known: 0, values: [0; ITEMS] }
    }

    /// Sets the value of an item. Totals are stored modulo 2^32; gauges are limited to 32 bits with a
    /// sign.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn set(&mut self, item: Item, value: i64) -> &mut Self {
        let bits = match item.kind() {
            Kind::Total => value as u32,
            Kind::Gauge => value.clamp(i32::MIN.into(), i32::MAX.into()) as i32 as u32,
        };
        self.known |= 1 << item.place();
        self.values[item.place()] = bits;
        self
    }

    /// Adds to a total. A total whose value was unknown starts at 0.
    pub fn add(&mut self, item: Item, more: u32) -> &mut Self {
        self.known |= 1 << item.place();
        let value = &mut self.values[item.place()];
        *value = value.wrapping_add(more);
        self
    }

    /// Returns the value of an item, or `None` if it is unknown.
    #[must_use]
    #[allow(clippy::cast_possible_wrap)]
    pub fn get(&self, item: Item) -> Option<i64> {
        let bits = self.values[item.place()];
        (self.known >> item.place() & 1 == 1).then(|| match item.kind() {
            Kind::Total => i64::from(bits),
            Kind::Gauge => i64::from(bits as i32),
        })
    }

    /// Returns the items whose values are known, in their order.
    pub fn values(&self) -> impl Iterator<Item = (Item, i64)> + use<'_> {
        Item::all().filter_map(|item| Some((item, self.get(item)?)))
    }

    /// Returns the record with the values of one group only.
    #[must_use]
    pub fn only(&self, group: Group) -> Self {
        let mut only = Self::new(self.boot, self.uptime_s);
        for (item, value) in self.values().filter(|(item, _)| item.group() == group) {
            only.set(item, value);
        }
        only
    }

    /// Returns the sum of all losses and faults since the start. What is a part of another total counts once.
    #[must_use]
    pub fn faults(&self) -> i64 {
        let counted = |(item, value): (Item, i64)| {
            (item.is_fault() && item.counted_in().is_none_or(|whole| self.get(whole).is_none()))
                .then_some(value)
        };
        self.values().filter_map(counted).sum()
    }

    /// Copies the known values of another record.
    pub fn merge(&mut self, other: &Self) -> &mut Self {
        other.values().fold(self, |this, (item, value)| this.set(item, value))
    }

    /// Writes the record. Unknown values at the end of a group, and groups without a known value at the
    /// end of the record, are left out.
    ///
    /// # Errors
    /// [`BufferTooSmall`]; [`MAX_ENCODED`] bytes suffice.
    pub fn encode(&self, out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        let length = |group: Group| {
            let known = |item: &Item| self.get(*item).is_some();
            group.items().rfind(known).map_or(0, |last| last.place() + 1 - group.first())
        };
        let last = Group::ALL.iter().rposition(|group| length(*group) > 0);
        let groups = &Group::ALL[..last.map_or(0, |last| last + 1)];
        out.array(3 + groups.len() as u64)?.uint(VERSION)?.uint(self.boot)?.uint(self.uptime_s)?;
        for group in groups {
            let length = length(*group);
            if length == 0 {
                out.null()?;
                continue;
            }
            out.array(length as u64)?;
            for item in group.items().take(length) {
                out.optional(self.get(item), |out, value| out.int(value))?;
            }
        }
        Ok(())
    }

    /// Reads a record. Groups and values after those that this version defines are ignored: later
    /// versions of the programs may add them.
    ///
    /// # Errors
    /// [`DecodeError`]; `FieldOutOfRange` also if the record is longer than [`MAX_HEALTH`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > MAX_HEALTH {
            return Err(DecodeError::FieldOutOfRange);
        }
        let mut reader = Reader::new(bytes)?;
        let count = reader.array_any()?.checked_sub(3).ok_or(DecodeError::UnexpectedType)?;
        reader.version()?;
        let mut health = Self::new(reader.uint()?, reader.uint()?);
        let mut last = true;
        for place in 0..count {
            let group = usize::try_from(place).ok().and_then(|place| Group::ALL.get(place));
            let length = reader.optional(Reader::array_any)?;
            last = length.is_some();
            health.read_group(&mut reader, group.copied(), length)?;
        }
        // The encoding is unique: what is unknown at the end is left out.
        if last { Ok(health) } else { Err(DecodeError::NonCanonical) }
    }

    fn read_group(
        &mut self,
        reader: &mut Reader<'_>,
        group: Option<Group>,
        length: Option<u64>,
    ) -> Result<(), DecodeError> {
        let Some(length) = length else { return Ok(()) };
        let mut items = group.into_iter().flat_map(Group::items);
        let mut last = None;
        for _ in 0..length {
            last = reader.optional(Reader::i64)?;
            let (Some(item), Some(value)) = (items.next(), last) else { continue };
            let is_in_range = match item.kind() {
                Kind::Total => u32::try_from(value).is_ok(),
                Kind::Gauge => i32::try_from(value).is_ok(),
            };
            if !is_in_range {
                return Err(DecodeError::FieldOutOfRange);
            }
            self.set(item, value);
        }
        last.map(|_| ()).ok_or(DecodeError::NonCanonical)
    }
}
