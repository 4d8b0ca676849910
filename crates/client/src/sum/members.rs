//! The sources that belong to a group in an epoch, in one version of the group.

use std::sync::Arc;

use moteseal_verify::{Device, Roster, SumGroup};

use super::participants::Participants;

/// The sources of a group, and which of them take part in sums at which time.
#[derive(Clone, Debug)]
pub(super) struct Members {
    names: Arc<[String]>,
    /// The sources that take part in every epoch.
    always: Participants,
    /// The positions of the other sources, with their devices.
    changing: Vec<(u32, Device)>,
}

impl Members {
    pub(super) fn new(group: &SumGroup) -> Self {
        let sources = group.roster.sources();
        let mut always = Participants::none(group.tree.sources());
        let mut changing = Vec::new();
        for (position, device) in (0..).zip(&sources) {
            if device.always_takes_part() {
                always.insert(position..position + 1);
            } else {
                changing.push((position, Device::clone(device)));
            }
        }
        Self { names: sources.iter().map(|device| device.name.clone()).collect(), always, changing }
    }

    /// Returns the names of all sources, by position.
    pub(super) fn names(&self) -> Arc<[String]> {
        Arc::clone(&self.names)
    }

    /// Returns the name of the source at a position.
    pub(super) fn name(&self, position: u32) -> &str {
        self.names.get(position as usize).map_or("", String::as_str)
    }

    /// Returns the sources that take part at an instant, in Unix milliseconds.
    pub(super) fn at(&self, roster: &Roster, unix_ms: u64) -> Participants {
        let epoch = roster.epoch_of(unix_ms);
        let mut members = self.always.clone();
        for (position, _) in self.changing.iter().filter(|(_, device)| device.takes_part_in(epoch))
        {
            members.insert(*position..*position + 1);
        }
        members
    }
}
