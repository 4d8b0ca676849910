//! A group of devices that has one device.

use moteseal_core::signature::{Algorithm, KeyError, SecretKey};
use moteseal_verify::Roster;
use moteseal_verify::issue::FirstRoster;

use crate::load::Failed;

/// The name of the group.
pub(crate) const GROUP: &str = "home";
/// The name of the device.
pub(crate) const DEVICE: &str = "dev1";

/// Returns a key, which depends on `seed` only.
pub(crate) fn key(algorithm: Algorithm, seed: u8) -> Result<SecretKey, KeyError> {
    SecretKey::from_seed(algorithm, &[seed; 32])
}

/// Returns the roster, and the key of the device.
pub(crate) fn group_of_one(
    algorithm: Algorithm,
    levels: u8,
) -> Result<(Roster, SecretKey), Failed> {
    let (operator, device) = (key(algorithm, 1)?, key(algorithm, 2)?);
    let devices = &[(DEVICE, device.public())];
    let first = FirstRoster { group: GROUP, epoch_ms: 1000, levels, budget: None, devices };
    Ok((Roster::open(&first.issue(&operator)?, &operator.public())?, device))
}
