//! Issues rosters and certificates on a host. Wraps [`RosterDraft`] and [`CertificateDraft`] and
//! allocates their buffers.

use moteseal_core::identity::{CertificateDraft, MAX_CERTIFICATE};
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, SealIndex};
use moteseal_core::roster::{DeviceDraft, RosterDraft, RosterError};
use moteseal_core::signature::{PublicKey, SignError, Signer};

/// A group's first roster: version 0, one key per device.
#[derive(Clone, Debug)]
pub struct FirstRoster<'a> {
    /// The group's name.
    pub group: &'a str,
    /// The length of an epoch, in milliseconds.
    pub epoch_ms: u64,
    /// The number of levels.
    pub levels: u8,
    /// The group's budget, and the coordinator that enforces it; `None` if the group has no budget
    /// and the cloud keeps all events.
    pub budget: Option<Budget>,
    /// The devices' names and keys, in any order.
    pub devices: &'a [(&'a str, PublicKey)],
}

/// A group's budget.
#[derive(Clone, Debug)]
pub struct Budget {
    /// The largest number of events that the coordinator may forward per epoch.
    pub events: u64,
    /// The coordinator's key.
    pub coordinator: PublicKey,
}

/// The coordinator's name. Its id is derived from the name in the same way as a device's id.
const COORDINATOR: &str = "coordinator";

/// Issues a certificate for a key that is valid for all seal indices.
fn certify(
    operator: &dyn Signer,
    group: GroupId,
    device: DeviceId,
    serial: u64,
    key: &PublicKey,
) -> Result<Vec<u8>, RosterError> {
    let mut certificate = vec![0; MAX_CERTIFICATE];
    let draft = CertificateDraft { group, device, serial, key, first_index: SealIndex(0) };
    let issued = draft.issue(operator, &mut certificate).map_err(|error| match error {
        moteseal_core::identity::IssueError::Sign(error) => RosterError::Sign(error),
        _ => RosterError::Sign(SignError::BufferTooSmall),
    })?;
    let length = issued.len();
    certificate.truncate(length);
    Ok(certificate)
}

impl FirstRoster<'_> {
    /// Certifies every device's key, signs the roster, and returns the bytes of the roster file.
    ///
    /// # Errors
    /// [`RosterError`].
    pub fn issue(&self, operator: &dyn Signer) -> Result<Vec<u8>, RosterError> {
        let group = GroupId::of(self.group);
        let mut devices = Vec::with_capacity(self.devices.len());
        for (serial, (name, key)) in (0..).zip(self.devices) {
            let device = DeviceId::of(self.group, name);
            let certificate = certify(operator, group, device, serial, key)?;
            devices.push((device, *name, certificate));
        }
        devices.sort_by_key(|(device, ..)| *device);
        let certificates: Vec<[&[u8]; 1]> =
            devices.iter().map(|(.., certificate)| [certificate.as_slice()]).collect();
        let drafts = devices.iter().zip(&certificates);
        let drafts: Vec<DeviceDraft<'_>> =
            drafts.map(|((_, name, _), certificates)| DeviceDraft { name, certificates }).collect();
        let coordinator = self.budget.as_ref().map(|budget| {
            let device = DeviceId::of(self.group, COORDINATOR);
            certify(operator, group, device, self.devices.len() as u64, &budget.coordinator)
        });
        let coordinator = coordinator.transpose()?;
        let draft = RosterDraft {
            group_name: self.group,
            history: &[],
            epoch_ms: self.epoch_ms,
            levels: self.levels,
            budget: self.budget.as_ref().map(|budget| budget.events),
            first_epoch: EpochNumber(0),
            last_epoch: None,
            coordinator: coordinator.as_deref(),
            devices: &drafts,
        };
        let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
        draft.sign(operator, &mut scratch, &mut out).map(<[u8]>::to_vec)
    }
}
