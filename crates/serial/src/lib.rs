//! A serial line between one mote and its gateway (spec/serial.md): packets in a stream of bytes that loses, changes and repeats some.
//!
//! What an end accepts to send, the other delivers once and in order, or never: [`Line`] packs it with a checksum, repeats it until it is
//! acknowledged, and gives it up in the end, which its [`Counters`] say. The checksum is against noise and nothing else: who really said what,
//! and that it was not heard before, is said by the frames that travel here.
//!
//! Sans-IO: bytes and the time in milliseconds come in as arguments. All memory is the line's own, and is fixed.

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

/// What a body is, and whom the gateway passes it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Channel {
    /// A frame between the mote and its group's coordinator (spec/formats.md, section 8.2), both ways.
    Coordinator = 1,
    /// The coordinator's newest announcement, to the mote.
    CoordinatorAnnouncement = 2,
    /// A frame between the mote and the gateway that adds up its sums (spec/sums.md, section 5), both ways.
    Sums = 3,
    /// The newest query schedule of sums, to the mote.
    SumsAnnouncement = 4,
    /// A frame of a broadcast medium (spec/broadcast.md, section 5), both ways.
    Broadcast = 5,
    /// The gateway's time, to the mote: Unix milliseconds, 8 bytes, big-endian. A hint that nobody vouches for, and late by as long as it waited.
    Time = 6,
}

impl Channel {
    /// Every channel.
    pub const ALL: [Self; 6] = [
        Self::Coordinator,
        Self::CoordinatorAnnouncement,
        Self::Sums,
        Self::SumsAnnouncement,
        Self::Broadcast,
        Self::Time,
    ];

    /// The channel of a packet's first byte.
    #[must_use]
    pub const fn of(kind: u8) -> Option<Self> {
        match kind {
            1 => Some(Self::Coordinator),
            2 => Some(Self::CoordinatorAnnouncement),
            3 => Some(Self::Sums),
            4 => Some(Self::SumsAnnouncement),
            5 => Some(Self::Broadcast),
            6 => Some(Self::Time),
            _ => None,
        }
    }
}
