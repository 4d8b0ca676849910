//! The sanitisers of the next version of a roster.

use std::collections::BTreeMap;

use moteseal_core::identity::Certificate;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_core::roster::{RightDraft, Roster, RosterError, SanitiserDraft, sanitiser_id};
use moteseal_core::signature::PublicKey;

use super::{ChangeError, NextRoster};
use crate::roster::SanitiserRight;

pub(super) struct OwnedSanitiser {
    name: String,
    certificate: Vec<u8>,
    rights: Vec<SanitiserRight>,
}

impl OwnedSanitiser {
    /// Returns the sanitisers of a roster by id, and the highest serial number of their certificates.
    pub(super) fn all(
        roster: &Roster<'_>,
    ) -> Result<(BTreeMap<DeviceId, Self>, Option<u64>), RosterError> {
        let (mut all, mut serial) = (BTreeMap::new(), None);
        for sanitiser in roster.sanitisers() {
            let certificate = sanitiser.certificate()?;
            serial = serial.max(Some(certificate.serial));
            let rights = sanitiser.rights().map(|right| SanitiserRight::of(&right)).collect();
            let (name, bytes) = (sanitiser.name.to_owned(), sanitiser.bytes.to_vec());
            all.insert(certificate.device, Self { name, certificate: bytes, rights });
        }
        Ok((all, serial))
    }

    pub(super) fn rights(&self) -> Vec<RightDraft<'_>> {
        let draft = |right: &SanitiserRight| RightDraft {
            devices: None,
            groups: right.groups,
            first_epoch: right.first_epoch,
            end_epoch: right.end_epoch,
        };
        let devices = self.rights.iter().map(|right| right.devices.as_deref());
        let drafts = self.rights.iter().map(draft).zip(devices);
        drafts.map(|(draft, devices)| RightDraft { devices, ..draft }).collect()
    }

    pub(super) fn draft<'a>(&'a self, rights: &'a [RightDraft<'a>]) -> SanitiserDraft<'a> {
        SanitiserDraft { name: &self.name, certificate: &self.certificate, rights }
    }
}

impl NextRoster<'_> {
    /// Gives a sanitiser a right, in addition to those that it has. A new sanitiser needs a key. If a
    /// sanitiser gets a new key, statements that the old key signed are no longer accepted.
    ///
    /// # Errors
    /// [`ChangeError`]. An invalid name or right is an error of [`issue`](NextRoster::issue).
    pub fn set_sanitiser(
        &mut self,
        name: &str,
        key: Option<&PublicKey>,
        mut right: SanitiserRight,
    ) -> Result<(), ChangeError> {
        let id = sanitiser_id(&self.group_name, name);
        if let Some(other) = key.and_then(|key| self.other_holder(id, key)) {
            return Err(ChangeError::KeyInUse { name: name.to_owned(), other });
        }
        if let Some(devices) = &mut right.devices {
            devices.sort_unstable();
            devices.dedup();
        }
        let certificate = key.map(|key| self.certify(id, key, SealIndex(0))).transpose()?;
        match (self.sanitisers.get_mut(&id), certificate) {
            (Some(sanitiser), certificate) => {
                sanitiser.certificate =
                    certificate.unwrap_or_else(|| sanitiser.certificate.clone());
                sanitiser.rights.push(right);
            }
            (None, Some(certificate)) => {
                let (name, rights) = (name.to_owned(), vec![right]);
                self.sanitisers.insert(id, OwnedSanitiser { name, certificate, rights });
            }
            (None, None) => return Err(ChangeError::UnknownSanitiser(name.to_owned())),
        }
        Ok(())
    }

    /// Returns the name of the device, owner or other sanitiser than `id` that has a key. What a key
    /// signed must be from one party only.
    fn other_holder(&self, id: DeviceId, key: &PublicKey) -> Option<String> {
        let bytes = key.to_bytes();
        let has_key = |certificate: &[u8]| {
            Certificate::decode(certificate)
                .is_ok_and(|certificate| *certificate.key_bytes == *bytes)
        };
        if let Some(device) = self.keys.get(&*bytes) {
            let device = self.devices.get(device);
            return Some(
                device.map_or_else(|| "a device".to_owned(), |device| device.name.clone()),
            );
        }
        let owners = self.owners.values().map(|(name, certificate)| (name, certificate));
        let others = self.sanitisers.iter().filter(|(other, _)| **other != id);
        let sanitisers = others.map(|(_, other)| (&other.name, &other.certificate));
        let mut holders = owners.chain(sanitisers);
        holders.find(|(_, certificate)| has_key(certificate)).map(|(name, _)| name.clone())
    }

    /// Ends all rights of a sanitiser at an epoch. Its statements about earlier epochs stay valid.
    ///
    /// # Errors
    /// `UnknownSanitiser`; `EndNotEarlier` if no right reaches that epoch.
    pub fn end_sanitiser(&mut self, name: &str, end: EpochNumber) -> Result<(), ChangeError> {
        let sanitiser = self.sanitisers.get_mut(&sanitiser_id(&self.group_name, name));
        let sanitiser = sanitiser.ok_or_else(|| ChangeError::UnknownSanitiser(name.to_owned()))?;
        if sanitiser.rights.iter().all(|right| right.end_epoch.is_some_and(|before| before <= end))
        {
            return Err(ChangeError::RightsEndBefore(name.to_owned()));
        }
        for right in &mut sanitiser.rights {
            let earlier = right.end_epoch.map_or(end, |before| before.min(end));
            right.end_epoch = Some(earlier.max(right.first_epoch));
        }
        Ok(())
    }

    /// Removes a sanitiser. None of its statements is accepted any longer.
    ///
    /// # Errors
    /// `UnknownSanitiser`.
    pub fn remove_sanitiser(&mut self, name: &str) -> Result<(), ChangeError> {
        let removed = self.sanitisers.remove(&sanitiser_id(&self.group_name, name));
        removed.map(|_| ()).ok_or_else(|| ChangeError::UnknownSanitiser(name.to_owned()))
    }
}
