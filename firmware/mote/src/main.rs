//! The firmware: a mote on a board that QEMU emulates. The board's first serial line connects it to
//! its gateway. This file connects the library to the board's drivers.
//!
//! With the feature `report`, the firmware prints what it does and its maximum stack depth through
//! semihosting. It ends QEMU with status 2 if its provisioning is invalid, and with status 3 after
//! any other fault, such as an unreadable journal. Without the feature, it resets the board after a
//! fault.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::convert::Infallible;

use moteseal_board::clock::Clock;
use moteseal_board::flash::{Flash as BoardFlash, LENGTH, SECTOR};
use moteseal_board::uart::Uart;
use moteseal_board::{Board, entry, idle};
use moteseal_core::digest::Digest;
use moteseal_core::provision::Provisioning;
use moteseal_mote::durable::{Durable, Settings};
use moteseal_mote::flash::{Flash, FlashFailed};
use moteseal_mote::listener::{Listener, Shelf, broadcast_node};
use moteseal_mote::notice::Notice;
use moteseal_mote::readings::Recording;
use moteseal_mote::receipt::receiver_key;
use moteseal_mote::{Fault, Mote};
use moteseal_serial::{Line, MAX_BODY, Received, Side, Timing, room};

/// The maximum number of levels that the mote's group may have.
const LEVELS: usize = 16;
/// The size in bytes of the buffer for events that the coordinator has not acknowledged. An event
/// of 4 bytes takes 11 bytes of it.
const BUFFER: usize = 4 << 10;
/// The length of a reading in bytes.
const RECORD: usize = 4;
/// The maximum length of a packet of the serial line, in bytes.
const PACKET: usize = room(MAX_BODY);
/// After this many turns of the main loop without a byte to read or write, the processor sleeps
/// until the next millisecond.
const MAX_IDLE_TURNS: u32 = 500;

/// The recorded readings of four motes from data/telosb, one mote after another (see build.rs).
static TABLE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/readings.bin"));

/// The board's flash, divided into the journal's two pages. Each page is half of the sectors.
struct Pages(BoardFlash);

impl Flash for Pages {
    const PAGE: usize = LENGTH / 2;

    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn erase(&mut self, page: usize) -> Result<(), FlashFailed> {
        let sectors = Self::PAGE / SECTOR;
        (page * sectors..(page + 1) * sectors)
            .try_for_each(|sector| self.0.erase(sector))
            .map_err(|_| FlashFailed)
    }

    fn program(&mut self, offset: usize, word: [u8; 4]) -> Result<(), FlashFailed> {
        self.0.program(offset, word).map_err(|_| FlashFailed)
    }
}

impl Pages {
    /// Takes the board's flash as the journal's pages. Erases new simulated flash, which is RAM
    /// whose bits are all 0 when QEMU starts. A new chip needs no erasure: all its bits are 1. In
    /// every journal, at least one word is neither all zeros nor all ones.
    fn new(flash: BoardFlash) -> Result<Self, FlashFailed> {
        let mut pages = Self(flash);
        let (words, _) = pages.0.bytes().as_chunks::<4>();
        let is_new = words.iter().all(|word| *word == [0; 4] || *word == [0xff; 4])
            && words.contains(&[0; 4]);
        if is_new {
            pages.erase(0)?;
            pages.erase(1)?;
        }
        Ok(pages)
    }
}

/// Prints a notice of the mote, with the feature `report`.
fn notify(report: Notice) {
    #[cfg(feature = "report")]
    {
        moteseal_board::println!("mote: {report}");
        if report == Notice::Done {
            moteseal_board::println!("mote: stack {}", moteseal_board::stack::peak());
        }
    }
    #[cfg(not(feature = "report"))]
    let _ = report;
}

/// Stops the mote after a fault: with the feature `report`, ends QEMU; otherwise, resets the board.
fn stop(name: &str, status: u8) -> ! {
    #[cfg(feature = "report")]
    {
        moteseal_board::println!("mote: stopped {name}");
        moteseal_board::host::exit(status)
    }
    #[cfg(not(feature = "report"))]
    {
        let _ = (name, status);
        moteseal_board::reset()
    }
}

#[entry]
fn main() -> ! {
    #[cfg(feature = "report")]
    moteseal_board::stack::paint();
    let Some(board) = Board::take() else { stop("BoardTaken", 1) };
    let provisioning = match Provisioning::decode(board.provision) {
        Ok(provisioning) => provisioning,
        Err(error) => stop(error.name(), 2),
    };
    let Ok(flash) = Pages::new(board.flash) else { stop("FlashFailed", 3) };
    let Err(fault) = run(&provisioning, flash, board.uart, board.clock);
    stop(fault.name(), 3)
}

fn run(
    provisioning: &Provisioning<'_>,
    flash: Pages,
    mut uart: Uart,
    mut clock: Clock,
) -> Result<Infallible, Fault> {
    uart.start();
    clock.start();
    let settings = Settings {
        interval_ms: provisioning.window.interval_ms,
        led: false,
        scheme: provisioning.scheme,
    };
    // Borrow the values inside the results: moving them out would need twice the memory.
    let mut opened = Durable::open(flash, provisioning.device, provisioning.certificate, settings);
    let durable = opened.as_mut().map_err(|error| *error)?;
    let Some(audience) = &provisioning.audience else {
        return work(provisioning, durable, None, uart, clock);
    };
    // The node's seed is secret, and different at each start.
    let boots = durable.memory().boots().to_be_bytes();
    let seed = Digest::of(&[b"moteseal/1/mote/seed\0", &*provisioning.link_secret, &boots]);
    let seed = seed.0.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    let mut shelf = Shelf::new();
    let key = receiver_key(audience);
    let mut broadcast_node = broadcast_node(audience, key.as_slice(), seed, clock.now_ms());
    let listener = Listener::new(&mut broadcast_node, &mut shelf, clock.now_ms());
    work(provisioning, durable, Some(listener), uart, clock)
}

/// Runs the mote until it fails. The arguments borrow from the stack frame of [`run`].
#[inline(never)]
fn work<'p>(
    provisioning: &'p Provisioning<'p>,
    durable: &mut Durable<Pages>,
    listener: Option<Listener<'p, '_>>,
    mut uart: Uart,
    clock: Clock,
) -> Result<Infallible, Fault> {
    let readings = Recording::new(TABLE, RECORD, provisioning.window).ok_or(Fault::Readings)?;
    let mut mote = Mote::<_, _, LEVELS, BUFFER>::new(provisioning, durable, listener, readings);
    mote.start(clock.now_ms(), &mut notify)?;
    let mut line = Line::<PACKET, PACKET>::new(
        Side::Mote(provisioning.device),
        mote.boots(),
        Timing::default(),
    );
    let mut out = [0; MAX_BODY];
    let (mut waiting, mut idle_turns) = (None, 0);
    loop {
        let now_ms = clock.now_ms();
        while let Some(byte) = uart.read() {
            idle_turns = 0;
            match line.receive(byte) {
                Some(Received::Body { channel, body }) => {
                    mote.receive(now_ms, channel, body, &mut notify)?;
                }
                Some(Received::Opened(_)) => mote.opened(now_ms),
                Some(Received::Dropped(_)) | None => {}
            }
        }
        mote.work(now_ms, &mut notify)?;
        if line.is_idle()
            && line.peer().is_some()
            && let Some((channel, length)) = mote.next_body(now_ms, &mut out, &mut notify)?
        {
            // `send` cannot fail here, because the line is idle and the body fits. If it failed,
            // the body would be sent again later, like a body that is lost on the line.
            let _ = line.send(channel, out.get(..length).unwrap_or_default());
        }
        while let Some(byte) = waiting.take().or_else(|| line.next_byte(now_ms)) {
            idle_turns = 0;
            if !uart.write(byte) {
                waiting = Some(byte);
                break;
            }
        }
        idle_turns += 1;
        if idle_turns > MAX_IDLE_TURNS {
            idle();
        }
    }
}
