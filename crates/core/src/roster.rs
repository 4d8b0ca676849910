//! Directory.
use crate::digest::Digest;
use crate::record::{DeviceId, EpochNumber, GroupId, SealIndex};
use crate::signature::PublicKey;
/// What a verifier needs of a roster.
pub trait Directory {
    /// The group.
    fn group(&self) -> GroupId;
    /// Its number of levels.
    fn levels(&self) -> u8;
    /// First and last epoch.
    fn epochs(&self) -> (EpochNumber, Option<EpochNumber>);
    /// The digest of a version of the roster.
    fn roster_digest(&self, version: u32) -> Option<Digest>;
    /// Calls `use_key` with the key of a device at an index, if there is one.
    fn with_key(&self, device: DeviceId, index: SealIndex, use_key: &mut dyn FnMut(&PublicKey));
    /// The digest of the device's first certificate.
    fn first_prev(&self, device: DeviceId) -> Option<Digest>;
}
