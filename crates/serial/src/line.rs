//! One end of a serial line. It opens the line, sends one body at a time, and repeats a body until
//! it is acknowledged (spec/serial.md, sections 3 and 4).
//!
//! An end chooses a new session number whenever it forgets what it has received, so that no packet
//! of an earlier session can be accepted again. A body that an end accepts for sending is delivered
//! at most once and in order, even if the line loses, changes or repeats bytes, and even if the
//! ends restart.

use crate::Channel;
use crate::cobs::{Stuffer, Unstuffer};
use crate::packet::{ACK, Binding, HELLO, Hello, MAX_BODY, MIN_ROOM, OVERHEAD, PacketError};
use moteseal_core::named_errors;
use moteseal_core::record::DeviceId;

named_errors! {
    /// Why a body was not accepted for sending.
    SendError {
        /// The previous body has not been acknowledged. Try again when the line [is
        /// idle](Line::is_idle).
        Busy => "the previous body is not acknowledged yet",
        /// The body is longer than [`MAX_BODY`], than this end's buffer, or than the other end
        /// accepts.
        BodyTooLong => "the body is longer than the line can carry",
    }
}

/// The side of the line on which an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A mote, with its id.
    Mote(DeviceId),
    /// A gateway.
    Gateway,
}

impl Side {
    /// Returns the id that this end states in a HELLO.
    const fn id(self) -> DeviceId {
        match self {
            Self::Mote(device) => device,
            Self::Gateway => DeviceId([0; 8]),
        }
    }
}

/// When and how often a packet is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The time in milliseconds from the last byte of a packet until the packet is sent again.
    /// Before the other end can acknowledge a packet, it may have to finish sending its own longest
    /// packet. The time must be long enough for this: at least 130 ms at 115,200 baud, or 1,500 ms
    /// at 9,600 baud.
    pub repeat_ms: u32,
    /// The maximum number of times that a body is sent, including the first time. If the body is
    /// then still not acknowledged, it is dropped and the line is opened again.
    pub tries: u8,
}

impl Default for Timing {
    /// Returns the timing for lines with at least 115,200 baud: a body is sent every 400 ms, up to
    /// ten times.
    fn default() -> Self {
        Self { repeat_ms: 400, tries: 10 }
    }
}

/// The other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The id of the other end, which is not authenticated. The id of a gateway is eight zero
    /// bytes.
    pub device: DeviceId,
    /// The session number of the other end. It changes after each restart of that end, and whenever
    /// that end forgets what it has received.
    pub session: u64,
    /// The length of the longest body that the other end accepts, in bytes.
    pub longest_body: usize,
}

/// The result of processing a received byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'l> {
    /// The line is open, for the first time or again. A body that was sent in an earlier session
    /// but not acknowledged is lost. A body that was accepted but not sent yet is sent now.
    Opened(Peer),
    /// A body was received. Each body is reported once.
    Body {
        /// The channel of the body.
        channel: Channel,
        /// The bytes of the body.
        body: &'l [u8],
    },
    /// Bytes were received that are not a packet for this end.
    Dropped(PacketError),
}

/// Counters since the end was created. A counter that reaches its maximum keeps that value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The number of times that the line was opened.
    pub opened: u32,
    /// The number of bodies that the other end has acknowledged.
    pub acknowledged: u32,
    /// The number of times that a packet with a body was sent again.
    pub repeated: u32,
    /// The number of bodies that were accepted for sending but may not have arrived.
    pub lost: u32,
    /// The number of bodies that were received.
    pub received: u32,
    /// The number of received packets whose body had already been received.
    pub received_again: u32,
    /// The number of times that received bytes were not a packet for this end, mostly because of
    /// noise.
    pub dropped: u32,
}

const fn count(counter: &mut u32) {
    *counter = counter.saturating_add(1);
}

/// A body that was accepted but not acknowledged yet.
#[derive(Clone, Copy, Debug)]
struct Outgoing {
    channel: Channel,
    length: usize,
    /// The number of times that the body has been sent.
    tries: u8,
    /// The time at which the body is sent again, in milliseconds.
    due_ms: u64,
}

/// A packet that is being sent.
#[derive(Clone, Copy, Debug)]
enum Packet {
    Body { length: usize },
    Acknowledgement,
    Hello,
}

/// An end of a line that receives packets of up to `RX` bytes and sends packets of up to `TX`
/// bytes. [`room`](crate::room) computes these lengths from the length of a body. The size of this
/// type is at most `RX + TX + 240` bytes.
#[derive(Debug)]
pub struct Line<const RX: usize, const TX: usize> {
    side: Side,
    timing: Timing,
    session: u64,
    peer: Option<Peer>,
    is_open: bool,
    /// Whether to send a HELLO now, before `hello_due_ms`.
    is_hello_wanted: bool,
    hello_due_ms: u64,
    /// The number of the next body to receive.
    expected: u32,
    /// The number of the body to acknowledge, if an acknowledgement is due.
    acknowledge: Option<u32>,
    /// The number of the body that is being sent or will be sent next.
    number: u32,
    outgoing: Option<Outgoing>,
    going_out: Option<(Packet, Stuffer)>,
    incoming: Unstuffer<RX>,
    /// The outgoing packet with a body: kind, sequence byte, body and checksum.
    body: [u8; TX],
    /// The outgoing packet without a body: a HELLO or an acknowledgement.
    control: [u8; MIN_ROOM],
    counters: Counters,
}

impl<const RX: usize, const TX: usize> Line<RX, TX> {
    const HAS_ROOM: () = assert!(RX >= MIN_ROOM && TX >= OVERHEAD, "a line needs room for a HELLO");
    /// The length of the longest body that this end accepts.
    const LONGEST_RECEIVED: usize = if RX - OVERHEAD < MAX_BODY { RX - OVERHEAD } else { MAX_BODY };
    /// The length of the longest body that this end can send.
    const LONGEST_SENT: usize = if TX - OVERHEAD < MAX_BODY { TX - OVERHEAD } else { MAX_BODY };

    /// Creates an end. The first bytes that it sends open the line. `start` must differ from the
    /// value at every earlier start of this end: a mote uses a counter that survives restarts, and
    /// a gateway uses a random number.
    #[must_use]
    pub fn new(side: Side, start: u32, timing: Timing) -> Self {
        let () = Self::HAS_ROOM;
        Self {
            side,
            timing,
            session: u64::from(start) << 32 | 1,
            peer: None,
            is_open: false,
            is_hello_wanted: true,
            hello_due_ms: 0,
            expected: 0,
            acknowledge: None,
            number: 0,
            outgoing: None,
            going_out: None,
            incoming: Unstuffer::default(),
            body: [0; TX],
            control: [0; MIN_ROOM],
            counters: Counters::default(),
        }
    }

    /// Accepts a body for sending. The body is copied, and sent when the line is open.
    ///
    /// # Errors
    /// [`SendError`]. The line is then unchanged.
    pub fn send(&mut self, channel: Channel, body: &[u8]) -> Result<(), SendError> {
        if body.len() > self.longest_body() {
            return Err(SendError::BodyTooLong);
        }
        if !self.is_idle() {
            return Err(SendError::Busy);
        }
        let place = self.body.get_mut(2..2 + body.len()).ok_or(SendError::BodyTooLong)?;
        place.copy_from_slice(body);
        self.outgoing = Some(Outgoing { channel, length: body.len(), tries: 0, due_ms: 0 });
        Ok(())
    }

    /// Returns the length of the longest body that can be sent, in bytes. It is limited by this
    /// end's buffer and, once the other end is known, by the length that the other end accepts.
    #[must_use]
    pub fn longest_body(&self) -> usize {
        self.peer.map_or(Self::LONGEST_SENT, |peer| peer.longest_body.min(Self::LONGEST_SENT))
    }

    /// Returns whether a body can be accepted for sending, because the previous one was
    /// acknowledged or is lost.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.outgoing.is_none() && !matches!(self.going_out, Some((Packet::Body { .. }, _)))
    }

    /// Returns the other end, or `None` if the line is not open.
    #[must_use]
    pub const fn peer(&self) -> Option<Peer> {
        if self.is_open { self.peer } else { None }
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Processes a received byte. If the byte completes a packet, returns the result, unless there
    /// is nothing to report. After each byte, call [`next_byte`](Self::next_byte) until it returns
    /// `None`, to send the answer.
    pub fn receive(&mut self, byte: u8) -> Option<Received<'_>> {
        let packet = match self.incoming.take(byte)? {
            Ok(_) => self.incoming.packet(),
            Err(error) => return Some(self.drop_packet(error)),
        };
        match packet.first() {
            Some(&HELLO) => match Hello::decode(packet) {
                Ok(hello) => self.receive_hello(&hello),
                Err(error) => Some(self.drop_packet(error)),
            },
            Some(&ACK) => self.receive_acknowledgement().err().map(|error| self.drop_packet(error)),
            _ => self.receive_body(),
        }
    }

    fn drop_packet(&mut self, error: PacketError) -> Received<'static> {
        count(&mut self.counters.dropped);
        Received::Dropped(error)
    }

    fn receive_hello(&mut self, hello: &Hello) -> Option<Received<'static>> {
        if (hello.device == Side::Gateway.id()) == (self.side == Side::Gateway) {
            return Some(self.drop_packet(PacketError::SameSide));
        }
        let peer = Peer {
            device: hello.device,
            session: hello.session,
            longest_body: usize::from(hello.longest_body).min(MAX_BODY),
        };
        if self
            .peer
            .is_none_or(|known| (known.session, known.device) != (peer.session, peer.device))
        {
            // The line was open under this end's session number. Start a new session, because the
            // same number must not be used with two sessions of the other end.
            if self.is_open {
                self.forget();
            }
            self.peer = Some(peer);
        }
        let knows_us = hello.received == self.session;
        self.is_hello_wanted |= !hello.is_open || !knows_us;
        if !knows_us || self.is_open {
            return None;
        }
        self.is_open = true;
        count(&mut self.counters.opened);
        Some(Received::Opened(peer))
    }

    /// Begins a new session. Packets of earlier sessions become invalid, and a body that was sent
    /// but not acknowledged is lost.
    fn forget(&mut self) {
        // The lower half of the number counts the sessions since this end was created. At 1,000
        // sessions per second, it overflows after 49 days.
        self.session =
            self.session & !0xffff_ffff | u64::from((self.session as u32).wrapping_add(1));
        self.is_open = false;
        self.peer = None;
        (self.expected, self.number) = (0, 0);
        self.acknowledge = None;
        self.is_hello_wanted = true;
        if self.outgoing.is_some_and(|outgoing| outgoing.tries > 0) {
            self.outgoing = None;
            count(&mut self.counters.lost);
        }
    }

    fn receive_acknowledgement(&mut self) -> Result<(), PacketError> {
        let is_awaited = self.is_open && self.outgoing.is_some_and(|outgoing| outgoing.tries > 0);
        let Some(peer) = self.peer.filter(|_| is_awaited) else { return Ok(()) };
        let binding = Binding { sender: peer.session, receiver: self.session, number: self.number };
        let packet = self.incoming.packet();
        if packet.get(1).is_some_and(|sequence| *sequence != binding.sequence()) {
            // A body that was sent twice is also acknowledged twice. This is the second
            // acknowledgement.
            return Ok(());
        }
        binding.open(packet)?;
        self.outgoing = None;
        self.number = self.number.wrapping_add(1);
        count(&mut self.counters.acknowledged);
        Ok(())
    }

    fn receive_body(&mut self) -> Option<Received<'_>> {
        let Some(peer) = self.peer.filter(|_| self.is_open) else {
            return Some(self.drop_packet(PacketError::ChecksumMismatch));
        };
        let at = |number| Binding { sender: peer.session, receiver: self.session, number };
        let before = self.expected.wrapping_sub(1);
        let packet = self.incoming.packet();
        if self.expected > 0
            && packet.get(1) == Some(&at(before).sequence())
            && at(before).open(packet).is_ok()
        {
            count(&mut self.counters.received_again);
            self.acknowledge = Some(before);
            return None;
        }
        match (packet.first().and_then(|kind| Channel::of(*kind)), at(self.expected).open(packet)) {
            (Some(channel), Ok(body)) => {
                self.acknowledge = Some(self.expected);
                self.expected = self.expected.wrapping_add(1);
                count(&mut self.counters.received);
                Some(Received::Body { channel, body })
            }
            (_, Err(error)) => {
                count(&mut self.counters.dropped);
                Some(Received::Dropped(error))
            }
            (None, Ok(_)) => None,
        }
    }

    /// Returns the next byte to send, or `None` if there is nothing to send at this time. `now_ms`
    /// is the time of any monotonic clock, in milliseconds.
    pub fn next_byte(&mut self, now_ms: u64) -> Option<u8> {
        if self.going_out.is_none() {
            self.begin(now_ms);
        }
        let (packet, stuffer) = self.going_out.as_mut()?;
        let packet = *packet;
        let byte = match packet {
            Packet::Body { length } => stuffer.next(self.body.get(..length).unwrap_or_default()),
            Packet::Acknowledgement => {
                stuffer.next(self.control.get(..OVERHEAD).unwrap_or_default())
            }
            Packet::Hello => stuffer.next(&self.control),
        };
        if stuffer.is_done() {
            self.going_out = None;
            let due_ms = now_ms.saturating_add(u64::from(self.timing.repeat_ms));
            match (packet, &mut self.outgoing) {
                (Packet::Hello, _) => self.hello_due_ms = due_ms,
                (Packet::Body { .. }, Some(outgoing)) => outgoing.due_ms = due_ms,
                _ => {}
            }
        }
        byte
    }

    /// Chooses the packet to send next.
    fn begin(&mut self, now_ms: u64) {
        if let (Some(number), Some(peer)) = (self.acknowledge.take(), self.peer) {
            let binding = Binding { sender: self.session, receiver: peer.session, number };
            if binding.close(ACK, 0, &mut self.control).is_some() {
                self.going_out = Some((Packet::Acknowledgement, Stuffer::default()));
                return;
            }
        }
        if let (Some(outgoing), true) = (self.outgoing, self.is_open)
            && outgoing.tries >= self.timing.tries.max(1)
            && outgoing.due_ms <= now_ms
        {
            self.forget();
        }
        if self.is_hello_wanted || (!self.is_open && self.hello_due_ms <= now_ms) {
            self.is_hello_wanted = false;
            let hello = Hello {
                is_open: self.is_open,
                longest_body: u16::try_from(Self::LONGEST_RECEIVED).unwrap_or(u16::MAX),
                device: self.side.id(),
                session: self.session,
                received: self.peer.map_or(0, |peer| peer.session),
            };
            self.control = hello.encode();
            self.going_out = Some((Packet::Hello, Stuffer::default()));
            return;
        }
        let (Some(outgoing), Some(peer), true) = (&mut self.outgoing, self.peer, self.is_open)
        else {
            return;
        };
        if outgoing.due_ms > now_ms {
            return;
        }
        let binding = Binding { sender: self.session, receiver: peer.session, number: self.number };
        let is_short_enough = outgoing.length <= peer.longest_body;
        match binding
            .close(outgoing.channel as u8, outgoing.length, &mut self.body)
            .filter(|_| is_short_enough)
        {
            Some(length) => {
                if outgoing.tries > 0 {
                    count(&mut self.counters.repeated);
                }
                outgoing.tries += 1;
                self.going_out = Some((Packet::Body { length }, Stuffer::default()));
            }
            // The body was accepted before the other end stated its limit, and is too long for it.
            None => {
                self.outgoing = None;
                count(&mut self.counters.lost);
            }
        }
    }

    /// Returns the time at which [`next_byte`](Self::next_byte) will next have something to send,
    /// if nothing is received before. The time is in milliseconds of the clock that is passed to
    /// `next_byte`; 0 means now. Returns `None` if nothing is due.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        if self.going_out.is_some() || self.acknowledge.is_some() || self.is_hello_wanted {
            Some(0)
        } else if self.is_open {
            self.outgoing.map(|outgoing| outgoing.due_ms)
        } else {
            Some(self.hello_due_ms)
        }
    }
}
