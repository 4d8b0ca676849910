//! Issuing rosters and certificates on a host: the allocating side of [`RosterDraft`] and [`CertificateDraft`].

use moteseal_core::identity::{CertificateDraft, MAX_CERTIFICATE};
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, SealIndex};
use moteseal_core::roster::{DeviceDraft, RosterDraft, RosterError};
use moteseal_core::signature::{PublicKey, SignError, Signer};

/// A group's first roster: version 0, one key a device, no coordinator.
#[derive(Clone, Debug)]
pub struct FirstRoster<'a> {
    /// The group's name.
    pub group: &'a str,
    /// The length of an epoch, in milliseconds.
    pub epoch_ms: u64,
    /// How many levels events have.
    pub levels: u8,
    /// The most events the coordinator may forward an epoch; `None` means no limit.
    pub budget: Option<u64>,
    /// The devices' names and keys, in any order.
    pub devices: &'a [(&'a str, PublicKey)],
}

impl FirstRoster<'_> {
    /// Certifies every device's key, signs the roster and gives the bytes of its file.
    ///
    /// # Errors
    /// [`RosterError`].
    pub fn issue(&self, operator: &dyn Signer) -> Result<Vec<u8>, RosterError> {
        let group = GroupId::of(self.group);
        let mut devices = Vec::with_capacity(self.devices.len());
        for (serial, (name, key)) in (0..).zip(self.devices) {
            let device = DeviceId::of(self.group, name);
            let mut certificate = vec![0; MAX_CERTIFICATE];
            let draft = CertificateDraft { group, device, serial, key, first_index: SealIndex(0) };
            let issued = draft.issue(operator, &mut certificate).map_err(|error| match error {
                moteseal_core::identity::IssueError::Sign(error) => RosterError::Sign(error),
                _ => RosterError::Sign(SignError::BufferTooSmall),
            })?;
            let length = issued.len();
            certificate.truncate(length);
            devices.push((device, *name, certificate));
        }
        devices.sort_by_key(|(device, ..)| *device);
        let certificates: Vec<[&[u8]; 1]> = devices.iter().map(|(.., certificate)| [certificate.as_slice()]).collect();
        let drafts = devices.iter().zip(&certificates);
        let drafts: Vec<DeviceDraft<'_>> =
            drafts.map(|((_, name, _), certificates)| DeviceDraft { name, certificates }).collect();
        let draft = RosterDraft {
            group_name: self.group,
            history: &[],
            epoch_ms: self.epoch_ms,
            levels: self.levels,
            budget: self.budget,
            first_epoch: EpochNumber(0),
            last_epoch: None,
            coordinator: None,
            devices: &drafts,
        };
        let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
        draft.sign(operator, &mut scratch, &mut out).map(<[u8]>::to_vec)
    }
}
