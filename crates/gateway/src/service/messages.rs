//! What the gateway sends to devices.

use std::time::Duration;

use bytes::Bytes;
use moteseal_core::link::claimed_device;
use moteseal_core::record::DeviceId;
use moteseal_net::{ParentLink, Up};
use tracing::debug;

use crate::station::Outgoing;

/// How long the link may take to accept a message.
const SEND_TIME: Duration = Duration::from_secs(5);

/// Answers a device where this frame came from, whose tag was checked. A frame of another device than
/// the one that the transport reports proves nothing about either.
pub(super) fn confirm<L: ParentLink>(link: &L, up: &Up) {
    if claimed_device(&up.frame) == Some(DeviceId(up.device)) {
        link.confirm(up.device, up.origin);
    }
}

/// Sends the messages of a commit.
pub(super) async fn send<L: ParentLink>(link: &L, outgoing: Outgoing) {
    if let Some(announcement) = outgoing.announcement {
        let announced =
            tokio::time::timeout(SEND_TIME, link.announce(Bytes::from(announcement))).await;
        debug!(?announced, "announced");
    }
    for (device, frame) in outgoing.events.into_iter().chain(outgoing.acknowledgements) {
        // A device that does not receive this acknowledgement asks again.
        let sent = tokio::time::timeout(SEND_TIME, link.send(device.0, Bytes::from(frame))).await;
        if !matches!(sent, Ok(Ok(()))) {
            debug!(%device, ?sent, "an acknowledgement was not sent");
            break;
        }
    }
}
