//! The protocol of the serial line between a mote and its gateway (spec/serial.md). It sends
//! packets over a stream of bytes that may be lost, changed or repeated.
//!
//! This crate is for firmware and for gateways. It needs neither an operating system nor a heap,
//! and does not depend on the crates for seals, sums or broadcasts. The caller passes received
//! bytes and the time, in milliseconds, as arguments. All memory is in the [`Line`] and has a fixed
//! size.
//!
//! The line carries *bodies*, such as the frames of the other protocols. If one end accepts a body
//! for sending, the other end delivers it once and in order, or not at all. To do this, a [`Line`]
//! adds a checksum to the body and repeats it until it is acknowledged. After the last attempt it
//! drops the body and counts it as lost ([`Counters`]). The checksum detects noise, not attacks.
//! The frames in the bodies have their own authentication.
//!
//! A mote and a gateway open the line, and the mote sends a body:
//!
//! ```
//! use moteseal_core::DeviceId;
//! use moteseal_serial::{Channel, Line, Received, Side, Timing, room};
//!
//! # fn main() -> Result<(), moteseal_serial::SendError> {
//! type End = Line<{ room(64) }, { room(64) }>;
//! let mut mote = End::new(Side::Mote(DeviceId(*b"dev00001")), 1, Timing::default());
//! let mut gateway = End::new(Side::Gateway, 0x5eed, Timing::default());
//! mote.send(Channel::Coordinator, b"reading")?;
//!
//! // Exchange bytes until neither end has more to send at this time.
//! let (now_ms, mut delivered) = (0, Vec::new());
//! loop {
//!     let up: Vec<u8> = std::iter::from_fn(|| mote.next_byte(now_ms)).collect();
//!     let down: Vec<u8> = std::iter::from_fn(|| gateway.next_byte(now_ms)).collect();
//!     if up.is_empty() && down.is_empty() {
//!         break;
//!     }
//!     for byte in up {
//!         if let Some(Received::Body { channel, body }) = gateway.receive(byte) {
//!             delivered.push((channel, body.to_vec()));
//!         }
//!     }
//!     for byte in down {
//!         mote.receive(byte);
//!     }
//! }
//! assert_eq!(delivered, [(Channel::Coordinator, b"reading".to_vec())]);
//! assert!(mote.is_idle(), "the body is acknowledged");
//! # Ok(())
//! # }
//! ```

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod checksum;
mod cobs;
mod line;
mod packet;

pub use cobs::{Stuffer, Unstuffer};
pub use line::{Counters, Line, Peer, Received, SendError, Side, Timing};
pub use packet::{
    ACK, Binding, HELLO, Hello, MAX_BODY, MIN_ROOM, OVERHEAD, PacketError, VERSION, room,
};

/// The kind of a body. It determines where the gateway forwards the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Channel {
    /// A frame between the mote and its group's coordinator (spec/coordinator.md, section 4), in
    /// both directions.
    Coordinator = 1,
    /// The coordinator's newest announcement, sent to the mote.
    CoordinatorAnnouncement = 2,
    /// A frame between the mote and the aggregator of its private sums (spec/sums.md, section 4),
    /// in both directions.
    Sums = 3,
    /// The newest query schedule, sent to the mote.
    SumsAnnouncement = 4,
    /// A frame of a broadcast (spec/broadcast.md, section 5), in both directions.
    Broadcast = 5,
    /// The mote's challenge to the signers of the time, and the signed time statement that answers
    /// it (spec/time.md).
    Time = 6,
    /// What the mote reports about its firmware (spec/update.md, section 5), sent to the gateway.
    Firmware = 7,
}

impl Channel {
    /// Every channel.
    pub const ALL: [Self; 7] = [
        Self::Coordinator,
        Self::CoordinatorAnnouncement,
        Self::Sums,
        Self::SumsAnnouncement,
        Self::Broadcast,
        Self::Time,
        Self::Firmware,
    ];

    /// Returns the channel with this number, which is the first byte of a packet with a body.
    #[must_use]
    pub const fn of(kind: u8) -> Option<Self> {
        match kind {
            1 => Some(Self::Coordinator),
            2 => Some(Self::CoordinatorAnnouncement),
            3 => Some(Self::Sums),
            4 => Some(Self::SumsAnnouncement),
            5 => Some(Self::Broadcast),
            6 => Some(Self::Time),
            7 => Some(Self::Firmware),
            _ => None,
        }
    }
}
