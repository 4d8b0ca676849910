//! The firmware: a mote on one of QEMU's boards, with its gateway at the other end of the first
//! serial line. Everything that it does is the library's.
//!
//! With the feature `report` it says through semihosting what it does and how deep its stack got,
//! and ends QEMU with status 2 where it was told nothing that it can use and 3 where its journal
//! cannot be read; a board on its own resets instead.

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
use moteseal_mote::listener::{Listener, Shelf, ears};
use moteseal_mote::notice::Notice;
use moteseal_mote::readings::Recording;
use moteseal_mote::{Fault, Mote};
use moteseal_serial::{Line, MAX_BODY, Received, Side, Timing, room};

/// The levels of the groups that this firmware is for.
const LEVELS: usize = 16;
/// Bytes for events on their way to the gateway: 11 an event of 4 bytes.
const BUFFER: usize = 4 << 10;
/// Bytes of a reading.
const RECORD: usize = 4;
/// Packets of the longest bodies.
const PACKET: usize = room(MAX_BODY);
/// So many turns without anything to do, and the processor sleeps until the next millisecond.
const RESTLESS: u32 = 500;

/// Four motes of data/telosb, one behind the other.
static TABLE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/readings.bin"));

/// The board's flash as the journal wants it: two pages, each of half the sectors.
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
    /// The simulated flash is RAM, which holds zeros when QEMU starts: that is no chip's journal,
    /// and is made what a new chip holds. No journal consists of words that are all zeros or all
    /// ones.
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

/// Says what the mote does.
fn tell(report: Notice) {
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

/// Ends here: nothing more may be done.
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
    let told = match Provisioning::decode(board.provision) {
        Ok(told) => told,
        Err(error) => stop(error.name(), 2),
    };
    let Ok(flash) = Pages::new(board.flash) else { stop("FlashFailed", 3) };
    let Err(fault) = run(&told, flash, board.uart, board.clock);
    stop(fault.name(), 3)
}

fn run(
    told: &Provisioning<'_>,
    flash: Pages,
    mut uart: Uart,
    mut clock: Clock,
) -> Result<Infallible, Fault> {
    uart.start();
    clock.start();
    let settings =
        Settings { interval_ms: told.window.interval_ms, led: false, scheme: told.scheme };
    // Results are looked into where they lie: taking what is in them out would take its memory
    // twice.
    let mut opened = Durable::open(flash, told.device, told.certificate, settings);
    let durable = opened.as_mut().map_err(|error| *error)?;
    let Some(audience) = &told.audience else { return work(told, durable, None, uart, clock) };
    // Nobody else knows it, and it is another one at each start.
    let boots = durable.memory().boots().to_be_bytes();
    let seed = Digest::of(&[b"moteseal/1/mote/seed\0", &*told.link_secret, &boots]);
    let seed = seed.0.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    let mut shelf = Shelf::new();
    let mut ears = ears(audience, seed, clock.now_ms(), &mut shelf, durable);
    let listener =
        Listener::new(ears.as_mut().map_err(|error| *error)?, &mut shelf, clock.now_ms());
    work(told, durable, Some(listener), uart, clock)
}

/// The rest, on the stack behind what was lent to it.
#[inline(never)]
fn work<'p>(
    told: &'p Provisioning<'p>,
    durable: &mut Durable<Pages>,
    listener: Option<Listener<'p, '_>>,
    mut uart: Uart,
    clock: Clock,
) -> Result<Infallible, Fault> {
    let readings = Recording::new(TABLE, RECORD, told.window).ok_or(Fault::Readings)?;
    let mut mote = Mote::<_, _, LEVELS, BUFFER>::new(told, durable, listener, readings);
    mote.start(clock.now_ms(), &mut tell)?;
    let mut line =
        Line::<PACKET, PACKET>::new(Side::Mote(told.device), mote.boots(), Timing::default());
    let mut out = [0; MAX_BODY];
    let (mut waiting, mut still) = (None, 0);
    loop {
        let now_ms = clock.now_ms();
        while let Some(byte) = uart.read() {
            still = 0;
            match line.receive(byte) {
                Some(Received::Body { channel, body }) => {
                    mote.hear(now_ms, channel, body, &mut tell)?;
                }
                Some(Received::Opened(_)) => mote.opened(),
                Some(Received::Dropped(_)) | None => {}
            }
        }
        mote.work(now_ms, &mut tell)?;
        if line.is_idle()
            && line.peer().is_some()
            && let Some((channel, length)) = mote.say(now_ms, &mut out, &mut tell)?
        {
            // It is idle, and no body is longer; one that is not taken is said again, as what the
            // line loses.
            let _ = line.send(channel, out.get(..length).unwrap_or_default());
        }
        while let Some(byte) = waiting.take().or_else(|| line.next_byte(now_ms)) {
            still = 0;
            if !uart.write(byte) {
                waiting = Some(byte);
                break;
            }
        }
        still += 1;
        if still > RESTLESS {
            idle();
        }
    }
}
