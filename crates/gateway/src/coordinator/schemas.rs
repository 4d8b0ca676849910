//! The stream schemas that a coordinator keeps: a few for each device. Devices with the same schema
//! share one entry, and no device can displace the schemas of other devices.

use std::collections::HashMap;

use moteseal_core::digest::Digest;
use moteseal_verify::SchemaEntry;

use super::error::Refused;

/// The maximum number of schemas that are kept for a device. A device usually has one schema, and
/// two while it changes its schema.
const EACH: usize = 4;
const NONE: u16 = u16::MAX;

/// The schemas of one device as indices into `Schemas::entries`, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held([u16; EACH]);

impl Held {
    pub(super) const EMPTY: Self = Self([NONE; EACH]);

    fn places(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().copied().filter(|place| *place != NONE)
    }
}

/// The schemas of all devices.
#[derive(Clone, Debug, Default)]
pub(super) struct Schemas {
    entries: Vec<Option<Known>>,
    places: HashMap<Digest, u16>,
}

#[derive(Clone, Debug)]
struct Known {
    entry: SchemaEntry,
    /// The number of devices that hold this schema.
    holders: u32,
}

impl Schemas {
    fn at(&self, place: u16) -> Option<&SchemaEntry> {
        Some(&self.entries.get(usize::from(place))?.as_ref()?.entry)
    }

    /// Returns a schema that this device has sent.
    pub(super) fn of(&self, held: &Held, digest: &Digest) -> Option<&SchemaEntry> {
        let place = self.places.get(digest).filter(|place| held.0.contains(place))?;
        self.at(*place)
    }

    /// Returns a schema that any device has sent.
    pub(super) fn get(&self, digest: &Digest) -> Option<&SchemaEntry> {
        self.at(*self.places.get(digest)?)
    }

    /// Stores a schema that a device sent and does not hold yet. If the device already holds the
    /// maximum number of schemas, its oldest schema for which `in_use` returns false is removed.
    ///
    /// # Errors
    /// `Schema` if all schemas of the device are in use. Nothing has changed.
    pub(super) fn hold(
        &mut self,
        held: &mut Held,
        entry: SchemaEntry,
        in_use: impl Fn(&Digest) -> bool,
    ) -> Result<(), Refused> {
        let goes =
            |place: u16| place == NONE || self.at(place).is_none_or(|entry| !in_use(&entry.digest));
        let gone = held
            .0
            .iter()
            .position(|place| *place == NONE)
            .or_else(|| held.0.iter().position(|place| goes(*place)));
        let gone = gone.ok_or(Refused::Schema)?;
        let place = match self.places.get(&entry.digest) {
            Some(place) => *place,
            None => self.place_for(entry)?,
        };
        if let Some(known) = self.entries.get_mut(usize::from(place)).and_then(Option::as_mut) {
            known.holders += 1;
        }
        self.release(held.0[gone]);
        // Move the new schema to the end of the device's list, which is ordered from oldest to
        // newest.
        held.0[gone] = place;
        let count = held.places().count();
        held.0[gone..count].rotate_left(1);
        Ok(())
    }

    fn place_for(&mut self, entry: SchemaEntry) -> Result<u16, Refused> {
        let free = self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len());
        let place =
            u16::try_from(free).ok().filter(|place| *place != NONE).ok_or(Refused::Schema)?;
        if free == self.entries.len() {
            self.entries.push(None);
        }
        self.places.insert(entry.digest, place);
        self.entries[free] = Some(Known { entry, holders: 0 });
        Ok(place)
    }

    fn release(&mut self, place: u16) {
        let Some(slot) = self.entries.get_mut(usize::from(place)) else { return };
        let Some(known) = slot else { return };
        known.holders = known.holders.saturating_sub(1);
        if known.holders == 0 {
            self.places.remove(&known.entry.digest);
            *slot = None;
        }
    }

    /// Returns the encodings of a device's schemas, oldest first.
    pub(super) fn encodings(&self, held: &Held) -> impl Iterator<Item = &[u8]> {
        self.entries(held).map(|entry| &entry.bytes[..])
    }

    /// Returns a device's schemas, oldest first.
    pub(super) fn entries(&self, held: &Held) -> impl Iterator<Item = &SchemaEntry> {
        held.0.into_iter().filter_map(|place| self.at(place))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use moteseal_core::schema::{Field, Schema};

    use super::*;

    fn schema(number: usize) -> SchemaEntry {
        let mut buffer = [0; 256];
        let field = format!("reading-{number}::u32");
        let schema = Schema::encode(&[Field::parse(&field).unwrap()], &mut buffer).unwrap();
        SchemaEntry::decode(schema.as_bytes()).unwrap()
    }

    #[test]
    fn a_device_that_floods_schemas_does_not_displace_those_of_others() {
        let (mut schemas, mut flood, mut other) = (Schemas::default(), Held::EMPTY, Held::EMPTY);
        schemas.hold(&mut other, schema(7), |_| false).unwrap();
        for number in 0..1000 {
            schemas.hold(&mut flood, schema(number), |_| false).unwrap();
            assert!(schemas.of(&other, &schema(7).digest).is_some());
            assert!(schemas.of(&flood, &schema(number).digest).is_some());
        }
        assert_eq!((schemas.entries.len(), schemas.places.len()), (EACH + 2, EACH + 1));
        let newest: Vec<_> = (996..1000).map(|number| schema(number).bytes).collect();
        assert!(schemas.encodings(&flood).eq(newest.iter().map(Vec::as_slice)));
    }

    #[test]
    fn removes_the_oldest_schema_that_no_seal_uses() {
        let (mut schemas, mut held) = (Schemas::default(), Held::EMPTY);
        (0..EACH).for_each(|number| schemas.hold(&mut held, schema(number), |_| false).unwrap());
        let used = schema(0).digest;
        schemas.hold(&mut held, schema(4), |digest| *digest == used).unwrap();
        let left: Vec<_> = [0, 2, 3, 4].map(|number| schema(number).bytes).into();
        assert!(schemas.encodings(&held).eq(left.iter().map(Vec::as_slice)));
        assert_eq!(schemas.hold(&mut held, schema(5), |_| true), Err(Refused::Schema));
        assert!(schemas.get(&schema(5).digest).is_none());
    }

    #[test]
    fn devices_share_a_schema_and_an_unused_one_is_removed() {
        let mut schemas = Schemas::default();
        let mut devices = [Held::EMPTY; 3];
        devices.iter_mut().for_each(|held| schemas.hold(held, schema(0), |_| false).unwrap());
        assert_eq!(schemas.places.len(), 1);
        for number in 1..=EACH {
            devices
                .iter_mut()
                .for_each(|held| schemas.hold(held, schema(number), |_| false).unwrap());
        }
        assert!(
            schemas.get(&schema(0).digest).is_none()
                && schemas.of(&devices[0], &schema(1).digest).is_some()
        );
    }
}
