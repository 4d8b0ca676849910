//! The serial line between a mote and its gateway, over a serial port of this machine or over TCP
//! (spec/serial.md).
//!
//! [`Line`] implements the protocol; this module connects it to a port and a clock. If a port
//! disappears, for example because an adapter was unplugged or a connection broke, it is reopened
//! automatically. The protocol treats the gap like noise on the line. All queues are bounded: one
//! body waits to be sent, eight received bodies wait for the caller, and the bytes of one read wait
//! for the protocol.

mod port;

use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;
use moteseal_serial::{
    Channel, Counters, Line, MAX_BODY, PacketError, Received, Side, Timing, room,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, split};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep;

pub use moteseal_serial::Peer;

use crate::client::{random, spread};
use crate::link::{LinkError, State};
use crate::mqtt::Backoff;
use port::{Address, Port};

/// The maximum number of received bodies that wait for [`SerialLine::receive`].
const WAITING: usize = 8;
/// The maximum number of bytes that are read or written at once.
const CHUNK: usize = 4096;
/// If a connection lasted longer than this, the next wait before reconnecting is the shortest one
/// again.
const LASTED: Duration = Duration::from_secs(30);

/// The port, and which end of the line this is.
#[derive(Clone, Debug)]
pub struct Options {
    /// The path of a port, for example `/dev/ttyUSB0`, or an address `tcp://host:port` at which an
    /// emulator or a terminal server listens.
    pub address: String,
    /// The speed in bits per second. For TCP, the expected speed of the serial line at the other
    /// end.
    pub baud: u32,
    /// Which end of the line this is.
    pub side: Side,
    /// A number that this end has not used at any earlier start. A gateway uses a random number.
    pub start: u32,
    /// When packets are repeated. If it is `None`, the timing is derived from the speed.
    pub timing: Option<Timing>,
    /// When to try again after the port could not be opened or has disappeared.
    pub backoff: Backoff,
}

impl Options {
    /// Returns the options for a gateway's end at 115,200 baud.
    #[must_use]
    pub fn gateway(address: impl Into<String>) -> Self {
        let backoff = Backoff { longest: Duration::from_secs(5), ..Backoff::default() };
        let start = (random() >> 32) as u32;
        Self {
            address: address.into(),
            baud: 115_200,
            side: Side::Gateway,
            start,
            timing: None,
            backoff,
        }
    }

    /// Checks the address and the speed. Opens nothing.
    ///
    /// # Errors
    /// `BadAddress`.
    pub fn check(&self) -> Result<(), LinkError> {
        Address::parse(self).map(drop)
    }

    /// Returns the timing. The default of `repeat_ms` allows for two and a half packets of the
    /// maximum length: this end's packet, a packet of the other end that delays the
    /// acknowledgement, and half a packet as a reserve.
    fn timing(&self) -> Timing {
        let longest_ms = MAX_BODY as u64 * 10 * 1000 / u64::from(self.baud.max(1));
        let repeat_ms = u32::try_from((longest_ms * 5 / 2 + 100).max(400)).unwrap_or(u32::MAX);
        self.timing.unwrap_or(Timing { repeat_ms, ..Timing::default() })
    }
}

/// What the line reports to its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The line was opened, for the first time or again, because the other end has started or has
    /// lost its state.
    Opened(Peer),
    /// A body that the other end has sent.
    Body(Channel, Bytes),
}

/// The counters since the line was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Counters of the line protocol.
    pub line: Counters,
    /// Bodies that were dropped because they were longer than the other end accepts.
    pub too_long: u32,
    /// The number of times that the port was opened.
    pub connections: u32,
    /// The newest reason why this end cannot communicate with the other end: `SameSide` or
    /// `UnsupportedVersion`.
    pub misfit: Option<PacketError>,
}

/// One end of a serial line. It opens and reopens its port automatically.
#[derive(Debug)]
pub struct SerialLine {
    outgoing: mpsc::Sender<(Channel, Bytes)>,
    events: Mutex<mpsc::Receiver<Event>>,
    state: watch::Receiver<State>,
    counted: watch::Receiver<Counted>,
    task: AbortHandle,
}

impl Drop for SerialLine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SerialLine {
    /// Creates one end of a line. Its state is [`State::Up`] when the other end has responded.
    ///
    /// # Errors
    /// `BadAddress`. Nothing is opened yet.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(options: &Options) -> Result<Self, LinkError> {
        let address = Address::parse(options)?;
        // While one body is being sent, the channel has room for only one more. A caller can
        // therefore choose the next body as late as possible.
        let (outgoing, bodies) = mpsc::channel(1);
        let (sender, events) = mpsc::channel(WAITING);
        let (report, state) = watch::channel(State::Connecting);
        let (count, counted) = watch::channel(Counted::default());
        let driver = Driver {
            line: Box::new(Line::new(options.side, options.start, options.timing())),
            began: Instant::now(),
            bodies,
            events: sender,
            event: None,
            state: report,
            counted: count,
        };
        let task = tokio::spawn(driver.run(address, options.backoff)).abort_handle();
        Ok(Self { outgoing, events: Mutex::new(events), state, counted, task })
    }

    /// Sends a body. Waits while one body is being sent and another one is queued. Returns when the
    /// line has accepted the body, which does not mean that the other end has received it.
    ///
    /// # Errors
    /// `FrameTooLong`, `Closed`.
    pub async fn send(&self, channel: Channel, body: Bytes) -> Result<(), LinkError> {
        if body.len() > MAX_BODY {
            return Err(LinkError::FrameTooLong { length: body.len(), limit: MAX_BODY });
        }
        self.outgoing.send((channel, body)).await.map_err(|_| LinkError::Closed)
    }

    /// Waits until the line has room for a body. If only one task sends, its next
    /// [`send`](Self::send) then returns at once.
    ///
    /// # Errors
    /// `Closed`.
    pub async fn ready(&self) -> Result<(), LinkError> {
        self.outgoing.reserve().await.map(drop).map_err(|_| LinkError::Closed)
    }

    /// Waits for the next event. Only one task may wait at a time. While no task receives, no more
    /// bytes are read from the port, and the other end must wait. If the future is dropped, nothing
    /// is lost.
    ///
    /// # Errors
    /// `Closed`.
    pub async fn receive(&self) -> Result<Event, LinkError> {
        self.events.lock().await.recv().await.ok_or(LinkError::Closed)
    }

    /// Returns the line's state, as a channel that reports changes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// Returns the line's counters.
    #[must_use]
    pub fn counted(&self) -> Counted {
        *self.counted.borrow()
    }
}

/// The task that runs a line.
struct Driver {
    line: Box<Line<{ room(MAX_BODY) }, { room(MAX_BODY) }>>,
    began: Instant,
    bodies: mpsc::Receiver<(Channel, Bytes)>,
    events: mpsc::Sender<Event>,
    /// An event that was received and could not be passed to `events` yet.
    event: Option<Event>,
    state: watch::Sender<State>,
    counted: watch::Sender<Counted>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("line", &self.line).finish_non_exhaustive()
    }
}

impl Driver {
    async fn run(mut self, address: Address, backoff: Backoff) {
        let mut attempt = 0_u32;
        loop {
            self.state.send_replace(State::Connecting);
            let cause = match address.open().await {
                Ok(port) => {
                    self.counted.send_modify(|counted| {
                        counted.connections = counted.connections.saturating_add(1);
                    });
                    let opened = Instant::now();
                    let Some(cause) = self.carry(port).await else { return };
                    if opened.elapsed() > LASTED {
                        attempt = 0;
                    }
                    address.down(&cause)
                }
                Err(cause) => cause,
            };
            let again_in = backoff.wait(attempt, spread());
            attempt = attempt.saturating_add(1);
            self.state.send_replace(State::Down { cause, again_in });
            sleep(again_in).await;
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Runs the line until the port breaks, and returns the error. Returns `None` if the line was
    /// dropped.
    async fn carry(&mut self, port: Port) -> Option<std::io::Error> {
        let (mut reader, mut writer) = split(port);
        let (mut chunk, mut read, mut consumed) = ([0; CHUNK], 0, 0);
        let (mut outgoing, mut written) = (Vec::with_capacity(CHUNK), 0);
        loop {
            while self.event.is_none() && consumed < read {
                self.process(chunk[consumed]);
                consumed += 1;
            }
            if written == outgoing.len() {
                (written, outgoing) = (0, Vec::new());
                let now_ms = self.now_ms();
                while outgoing.len() < CHUNK
                    && let Some(byte) = self.line.next_byte(now_ms)
                {
                    outgoing.push(byte);
                }
            }
            self.report();
            let due = self
                .line
                .due_ms()
                .map(|due| Duration::from_millis(due.saturating_sub(self.now_ms())));
            let (is_silent, has_event) = (outgoing.is_empty(), self.event.is_some());
            tokio::select! {
                place = self.events.reserve(), if has_event => {
                    let place = place.ok()?;
                    if let Some(event) = self.event.take() {
                        place.send(event);
                    }
                }
                bytes = reader.read(&mut chunk), if consumed == read && !has_event => match bytes {
                    Ok(0) => return Some(std::io::ErrorKind::UnexpectedEof.into()),
                    Ok(bytes) => (consumed, read) = (0, bytes),
                    Err(error) => return Some(error),
                },
                bytes = writer.write(&outgoing[written..]), if !is_silent => match bytes {
                    Ok(0) => return Some(std::io::ErrorKind::WriteZero.into()),
                    Ok(bytes) => written += bytes,
                    Err(error) => return Some(error),
                },
                body = self.bodies.recv(), if self.line.is_idle() => {
                    let (channel, body) = body?;
                    if self.line.send(channel, &body).is_err() {
                        self.counted.send_modify(|counted| counted.too_long = counted.too_long.saturating_add(1));
                    }
                }
                () = sleep(due.unwrap_or_default()), if is_silent && due.is_some() => {}
            }
        }
    }

    fn process(&mut self, byte: u8) {
        match self.line.receive(byte) {
            Some(Received::Opened(peer)) => {
                self.event = Some(Event::Opened(peer));
                self.counted.send_modify(|counted| counted.misfit = None);
            }
            Some(Received::Body { channel, body }) => {
                self.event = Some(Event::Body(channel, Bytes::copy_from_slice(body)));
            }
            Some(Received::Dropped(
                error @ (PacketError::SameSide | PacketError::UnsupportedVersion),
            )) => {
                self.counted.send_modify(|counted| counted.misfit = Some(error));
            }
            Some(Received::Dropped(_)) | None => {}
        }
    }

    /// Reports the line's state and counters if they have changed.
    fn report(&self) {
        let state = if self.line.peer().is_some() { State::Up } else { State::Connecting };
        self.state.send_if_modified(|reported| {
            let has_changed = *reported != state;
            *reported = state;
            has_changed
        });
        let line = self.line.counters();
        self.counted.send_if_modified(|counted| {
            let has_changed = counted.line != line;
            counted.line = line;
            has_changed
        });
    }
}
