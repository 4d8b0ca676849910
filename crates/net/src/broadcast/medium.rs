//! The interface of every broadcast medium, and its limits.

use bytes::Bytes;

use crate::link::LinkError;

/// The longest frame on a broadcast link, in bytes: the longest of spec/broadcast.md has room. What is longer than the network's packets is cut
/// by IP into several, all of which must arrive: whoever has a choice stays below 1,400.
pub const MAX_DATAGRAM: usize = 12 << 10;

/// What an address of a broadcast link looks like.
const EXAMPLE: &str = "udp://239.1.2.3:5000, udp://[ff05::1234]:5000?interface=eth0, udp://192.168.1.255:5000 or \
                       mqtts://broker.example/GROUP";

/// One's end of a broadcast medium.
pub trait BroadcastLink: Send + Sync {
    /// Sends a frame to everybody else. Returns once this machine has taken it, which says nothing about anybody.
    ///
    /// # Errors
    /// `FrameTooLong`, `Closed`; `NetworkDown` where nothing can be sent just now: the frame is lost, as others are, and the link goes on.
    fn send(&self, frame: Bytes) -> impl Future<Output = Result<(), LinkError>> + Send;

    /// Waits for the next frame of anybody else. Those who speak take turns: one that floods delays and loses its own frames only,
    /// as far as the medium tells who is who. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// `Closed`.
    fn receive(&self) -> impl Future<Output = Result<Bytes, LinkError>> + Send;

    /// Frames that came and were dropped at this end: faster than they were received, or too long.
    fn dropped(&self) -> u64;
}

pub(super) fn bad_address(url: &str, cause: &str) -> LinkError {
    LinkError::BadAddress { url: url.to_owned(), cause: cause.to_owned(), example: EXAMPLE }
}

/// Lets through what a broadcast link may carry.
pub(crate) fn check_length(frame: &Bytes) -> Result<(), LinkError> {
    let (length, limit) = (frame.len(), MAX_DATAGRAM);
    if length > limit { Err(LinkError::FrameTooLong { length, limit }) } else { Ok(()) }
}
