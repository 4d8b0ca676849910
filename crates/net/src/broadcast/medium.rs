//! The interface of every broadcast medium, and its limits.

use bytes::Bytes;

use crate::link::LinkError;

/// The longest frame on a broadcast link, in bytes. The longest frame of spec/broadcast.md fits. IP
/// divides a frame that is longer than the network's packets into several, all of which must
/// arrive; prefer frames below 1,400 bytes.
pub const MAX_DATAGRAM: usize = 12 << 10;

/// Example addresses of broadcast links.
const EXAMPLE: &str = "udp://239.1.2.3:5000, udp://[ff05::1234]:5000?interface=eth0, udp://192.168.1.255:5000 or \
                       mqtts://broker.example/GROUP";

/// One end of a broadcast medium.
pub trait BroadcastLink: Send + Sync {
    /// Sends a frame to all other participants. Returns once this machine has accepted it, which
    /// does not mean that anyone has received it.
    ///
    /// # Errors
    /// `FrameTooLong`, `Closed`; `NetworkDown` if the network cannot send now: the frame is lost,
    /// and the link continues.
    fn send(&self, frame: Bytes) -> impl Future<Output = Result<(), LinkError>> + Send;

    /// Waits for the next frame of another participant. Senders take turns: one that floods delays
    /// and loses only its own frames, as far as the medium can distinguish senders. Dropping the
    /// future loses nothing.
    ///
    /// # Errors
    /// `Closed`.
    fn receive(&self) -> impl Future<Output = Result<Bytes, LinkError>> + Send;

    /// The number of received frames that were dropped at this end, because they arrived faster
    /// than they were received or were too long.
    fn dropped(&self) -> u64;
}

pub(super) fn bad_address(url: &str, cause: &str) -> LinkError {
    LinkError::BadAddress { url: url.to_owned(), cause: cause.to_owned(), example: EXAMPLE }
}

/// Checks that a frame is short enough for a broadcast link.
pub(crate) fn check_length(frame: &Bytes) -> Result<(), LinkError> {
    let (length, limit) = (frame.len(), MAX_DATAGRAM);
    if length > limit { Err(LinkError::FrameTooLong { length, limit }) } else { Ok(()) }
}
