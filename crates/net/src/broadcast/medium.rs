//! The interface that all broadcast media implement, and their limits.

use bytes::Bytes;

use crate::link::LinkError;

/// The maximum size of a frame on a broadcast link, in bytes. It is large enough for the longest
/// frame of spec/broadcast.md. IP divides a frame that does not fit in one packet into several
/// packets, all of which must arrive. Frames below 1,400 bytes are therefore better.
pub const MAX_DATAGRAM: usize = 12 << 10;

/// Example addresses of broadcast links.
const EXAMPLE: &str = "udp://239.1.2.3:5000, udp://[ff05::1234]:5000?interface=eth0, udp://192.168.1.255:5000 or \
                       mqtts://broker.example/GROUP";

/// One end of a broadcast medium.
pub trait BroadcastLink: Send + Sync {
    /// Sends a frame to all other participants. Returns when this machine has accepted the frame,
    /// which does not mean that any participant has received it.
    ///
    /// # Errors
    /// `FrameTooLong`, `Closed`, or `NetworkDown` if the network cannot send at present. In the
    /// last case the frame is lost, and the link can still be used.
    fn send(&self, frame: Bytes) -> impl Future<Output = Result<(), LinkError>> + Send;

    /// Waits for the next frame of another participant. The senders take turns, so a sender that
    /// floods delays and loses only its own frames, as far as the medium can distinguish senders.
    /// If the future is dropped, nothing is lost.
    ///
    /// # Errors
    /// `Closed`.
    fn receive(&self) -> impl Future<Output = Result<Bytes, LinkError>> + Send;

    /// Returns the number of received frames that were dropped at this end, because they arrived
    /// faster than they were received or because they were too long.
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
