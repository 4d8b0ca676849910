//! Continues from the state of another coordinator: after a restart, and under a later version of
//! the roster.

use std::collections::{BTreeMap, HashMap};

use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_verify::{Roster, SchemaEntry};

use super::{GroupCoordinator, Standing};

impl GroupCoordinator {
    /// Returns the coordinator of the same group under another version of the roster, without any
    /// state except the sessions of its devices. The caller restores the rest with
    /// [`resume`](Self::resume) and the frames that are still [needed](Self::needs). Returns `None`
    /// if the roster never has a budget.
    #[must_use]
    pub fn under(&self, roster: Roster) -> Option<Self> {
        let mut next = Self::new(roster, self.secret.clone())?;
        for (slot, session) in &self.sessions {
            let device = self.devices[*slot as usize].id;
            next.slot(device).map(|slot| next.sessions.insert(slot, *session));
        }
        next.counts = self.counts;
        Some(next)
    }

    /// Returns the state about ended epochs that the coordinator keeps.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let sealed =
            self.devices.iter().filter_map(|member| Some((member.id, member.over?))).collect();
        // The abandoned seals of open epochs follow from the frames in the journal.
        let abandoned = self.abandoned.iter().filter(|(_, (_, epoch))| self.is_over(*epoch));
        let abandoned = abandoned
            .map(|(slot, abandoned)| (self.devices[*slot as usize].id, *abandoned))
            .collect();
        let (mut schemas, mut shown, mut places) = (Vec::new(), BTreeMap::new(), HashMap::new());
        for member in &self.devices {
            for schema in self.schemas.encodings(&member.schemas) {
                let place = *places.entry(schema).or_insert_with(|| {
                    schemas.push(schema.to_vec());
                    u32::try_from(schemas.len() - 1).unwrap_or(u32::MAX)
                });
                shown.entry(member.id).or_insert_with(Vec::new).push(place);
            }
        }
        Standing { over: self.over, rounds: self.rounds.clone(), sealed, abandoned, schemas, shown }
    }

    /// Returns whether a coordinator that resumes from [`standing`](Self::standing) must receive
    /// the frames about this seal again. It must if the seal's epoch has not ended, or if the
    /// device has the seal open.
    #[must_use]
    pub fn needs(&self, device: DeviceId, index: SealIndex, epoch: EpochNumber) -> bool {
        let open = || self.slot(device).and_then(|slot| self.devices[slot as usize].open.as_ref());
        !self.is_over(epoch) || open().is_some_and(|open| open.followed.index == index)
    }

    /// Continues from the state of another coordinator. Afterwards, the caller replays the frames
    /// that the other coordinator [`needs`](Self::needs). Devices that are no longer in the roster
    /// are skipped.
    pub fn resume(&mut self, standing: Standing) {
        self.over = standing.over;
        self.rounds = standing.rounds;
        for (device, places) in standing.shown {
            let Some(slot) = self.slot(device) else { continue };
            let schemas = places.iter().filter_map(|place| standing.schemas.get(*place as usize));
            for entry in schemas.filter_map(|bytes| SchemaEntry::decode(bytes).ok()) {
                // This cannot fail, because the device held no more schemas than the maximum.
                let _ =
                    self.schemas.hold(&mut self.devices[slot as usize].schemas, entry, |_| false);
            }
        }
        for (device, sealed) in standing.sealed {
            if let Some(slot) = self.slot(device) {
                let member = &mut self.devices[slot as usize];
                (member.sealed, member.over) = (Some(sealed), Some(sealed));
            }
        }
        for (device, abandoned) in standing.abandoned {
            if let Some(slot) = self.slot(device) {
                self.abandoned.insert(slot, abandoned);
            }
        }
    }
}
