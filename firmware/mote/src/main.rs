//! The firmware: a mote on one of QEMU's boards, connected to its gateway by the first serial line.
//! This file connects the library to the board.
//!
//! With the feature `report` it prints what it does and the deepest use of its stack through
//! semihosting, and ends QEMU with status 2 if its provisioning is invalid and with status 3 after
//! any other fault, such as an unreadable journal. Without the feature it resets the board instead.

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
use moteseal_mote::{Fault, Mote};
use moteseal_serial::{Line, MAX_BODY, Received, Side, Timing, room};

/// The maximum number of levels of a group that this firmware can belong to.
const LEVELS: usize = 16;
/// Bytes of the buffer for events that the coordinator has not acknowledged: an event of 4 bytes
/// takes 11.
const BUFFER: usize = 4 << 10;
/// Bytes of a reading.
const RECORD: usize = 4;
/// Bytes of a packet with the longest body.
const PACKET: usize = room(MAX_BODY);
/// After this many turns of the main loop without a byte to read or write, the processor sleeps
/// until the next millisecond.
const MAX_IDLE_TURNS: u32 = 500;

/// The readings of four motes of data/telosb, one after the other (build.rs).
static TABLE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/readings.bin"));

/// The board's flash as two pages for the journal, each half of the sectors.
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
    /// Erases the flash if it is new. The simulated flash is RAM, which contains zeros when QEMU
    /// starts, and a new chip contains ones. No journal consists only of words of all zeros and of
    /// all ones.
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

/// Prints what the mote does.
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

/// Ends the program: after a fault, the mote must do nothing more.
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
    // Borrow from the results in place: moving their values out would need the memory twice.
    let mut opened = Durable::open(flash, provisioning.device, provisioning.certificate, settings);
    let durable = opened.as_mut().map_err(|error| *error)?;
    let Some(audience) = &provisioning.audience else {
        return work(provisioning, durable, None, uart, clock);
    };
    // The seed is secret and differs at each start.
    let boots = durable.memory().boots().to_be_bytes();
    let seed = Digest::of(&[b"moteseal/1/mote/seed\0", &*provisioning.link_secret, &boots]);
    let seed = seed.0.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    let mut shelf = Shelf::new();
    let mut broadcast_node = broadcast_node(audience, seed, clock.now_ms(), &mut shelf, durable);
    let listener =
        Listener::new(broadcast_node.as_mut().map_err(|error| *error)?, &mut shelf, clock.now_ms());
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
                Some(Received::Opened(_)) => mote.opened(),
                Some(Received::Dropped(_)) | None => {}
            }
        }
        mote.work(now_ms, &mut notify)?;
        if line.is_idle()
            && line.peer().is_some()
            && let Some((channel, length)) = mote.next_body(now_ms, &mut out, &mut notify)?
        {
            // The line is idle and the body fits. If `send` failed all the same, the body would be
            // sent again later, like one that the line loses.
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
