//! Names of devices: in messages instead of ids, and in lists on the command line.

use moteseal_core::record::DeviceId;
use moteseal_verify::Roster;

/// Returns the message with the device's name instead of its id.
pub(crate) fn with_name(roster: &Roster, device: DeviceId, message: &str) -> String {
    roster
        .name(device)
        .map_or_else(|| message.to_owned(), |name| message.replace(&device.to_string(), name))
}

/// Returns the device's name, or its id if the roster does not have it.
pub(crate) fn name_of(roster: &Roster, device: DeviceId) -> String {
    roster.name(device).map_or_else(|| device.to_string(), str::to_owned)
}

/// Parses a name in a list that is separated by commas. Spaces around the name are ignored.
///
/// # Errors
/// A text that says so if the name is empty.
pub(crate) fn listed_name(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a name is empty; write the names with a comma between each two".to_owned()),
        name => Ok(name.to_owned()),
    }
}
