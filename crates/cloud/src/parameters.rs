//! The parameters in the paths of the routes: a device, and the index of a seal.

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use moteseal_api::parse_device;
use moteseal_core::record::{DeviceId, SealIndex};

use crate::refusal::Refusal;
use crate::state::Shared;

/// Parses the device of a path. The roster must contain it.
pub(crate) fn device(shared: &Shared, text: &str) -> Result<DeviceId, Refusal> {
    let device = parse_device(text).ok_or_else(|| {
        Refusal::bad_query("a device id has 16 hexadecimal digits; /v1/devices lists the ids")
    })?;
    if shared.roster().device(device).is_none() {
        return Err(Refusal::not_found(format!(
            "the roster has no device {device}; /v1/devices lists its devices"
        )));
    }
    Ok(device)
}

/// Parses the device and the seal index of a path.
pub(crate) fn device_and_index(
    shared: &Shared,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<(DeviceId, SealIndex), Refusal> {
    let Path((device, index)) = path.map_err(|error| Refusal::bad_query(error.body_text()))?;
    let device = self::device(shared, &device)?;
    let index = index.parse().map_err(|_| {
        Refusal::bad_query("the index in the path must be a number from 0 to 4294967295")
    })?;
    Ok((device, SealIndex(index)))
}
