//! Replaces device ids in messages by the names in the roster.

use moteseal_core::record::DeviceId;
use moteseal_verify::Roster;

/// Returns the message with the device's name instead of its id.
pub(crate) fn with_name(roster: &Roster, device: DeviceId, message: &str) -> String {
    roster
        .name(device)
        .map_or_else(|| message.to_owned(), |name| message.replace(&device.to_string(), name))
}
