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
use moteseal_board::flash::{Flash as BoardFlash, LENGTH};
use moteseal_board::uart::Uart;
#[cfg(feature = "slots")]
use moteseal_board::watchdog::Watchdog;
use moteseal_board::{Board, entry, reset};
#[cfg(feature = "slots")]
use moteseal_broadcast::firmware::{IMAGE_TAG, image_tag, version_of};
use moteseal_core::digest::Digest;
use moteseal_core::health::Policy;
use moteseal_core::provision::{Provisioning, blob_end};
#[cfg(feature = "mps2-an385")]
use moteseal_core::schema::Schema;
use moteseal_mote::board_flash::Paged;
#[cfg(feature = "mps2-an385")]
use moteseal_mote::column_keys::ColumnKeys;
use moteseal_mote::column_keys::SealKeys;
use moteseal_mote::durable::{Durable, Settings};
use moteseal_mote::flash::{Flash, FlashFailed};
use moteseal_mote::listener::{Listener, Shelf, broadcast_node};
use moteseal_mote::notice::Notice;
use moteseal_mote::readings::Recording;
use moteseal_mote::receipt::receiver_key;
use moteseal_mote::updates::Updates;
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
/// Recorded readings from data/telosb (see build.rs).
static TABLE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/readings.bin"));

/// The board's flash page, divided into the journal's two pages.
type Pages = Paged<{ LENGTH / 2 }>;

/// The board's slots for firmware.
#[cfg(feature = "slots")]
type SlotPages = Paged<{ moteseal_board::flash::SLOTS_SECTOR }>;
/// A board without slots cannot be updated.
#[cfg(not(feature = "slots"))]
type SlotPages = moteseal_mote::flash::NoFlash;

/// The name of the board.
const BOARD: &str = if cfg!(feature = "mps2-an385") { "mps2-an385" } else { "lm3s6965evb" };
/// The version of this firmware (see build.rs).
const VERSION: u32 = match u32::from_str_radix(env!("MOTESEAL_FIRMWARE_VERSION"), 10) {
    Ok(version) => version,
    Err(_) => panic!("the build script has checked the version"),
};
/// The board and the version, which programs find in the image. A board without slots has none, so
/// that no manifest is signed for its firmware.
#[cfg(feature = "slots")]
static TAG: [u8; IMAGE_TAG] = image_tag(BOARD, VERSION);

/// Returns the board's flash page as the journal's pages. Erases new simulated flash, which is RAM
/// whose bits are all 0 when QEMU starts. A new chip needs no erasure: all its bits are 1. In every
/// journal, at least one word is neither all zeros nor all ones.
fn journal_pages(flash: BoardFlash) -> Result<Pages, FlashFailed> {
    let mut pages = Paged(flash);
    let (words, _) = pages.bytes().as_chunks::<4>();
    let is_new =
        words.iter().all(|word| *word == [0; 4] || *word == [0xff; 4]) && words.contains(&[0; 4]);
    if is_new {
        pages.erase(0)?;
        pages.erase(1)?;
    }
    Ok(pages)
}

/// The parts of the board that the mote uses.
struct Parts {
    uart: Uart,
    clock: Clock,
    #[cfg(feature = "slots")]
    watchdog: Watchdog,
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
        reset()
    }
}

#[entry]
fn main() -> ! {
    #[cfg(feature = "report")]
    moteseal_board::stack::paint();
    let Some(mut board) = Board::take() else { stop("BoardTaken", 1) };
    let blob = board.provision.split_front(blob_end(board.provision.bytes()));
    let provisioning = match Provisioning::decode(blob) {
        Ok(provisioning) => provisioning,
        Err(error) => stop(error.name(), 2),
    };
    let Ok(flash) = journal_pages(board.flash) else { stop("FlashFailed", 3) };
    #[cfg(feature = "mps2-an385")]
    let mut keys = match column_keys(&provisioning, board.keys, board.provision) {
        Ok(keys) => keys,
        Err(fault) => stop(fault.name(), 3),
    };
    #[cfg(feature = "mps2-an385")]
    let keys = keys.as_mut().map(|keys| keys as &mut dyn SealKeys);
    #[cfg(not(feature = "mps2-an385"))]
    let keys = None;
    let parts = Parts {
        uart: board.uart,
        clock: board.clock,
        #[cfg(feature = "slots")]
        watchdog: board.watchdog,
    };
    #[cfg(feature = "slots")]
    let slots = Some(Paged(board.slots));
    #[cfg(not(feature = "slots"))]
    let slots = None;
    let Err(fault) = run(&provisioning, flash, slots, keys, parts);
    stop(fault.name(), 3)
}

/// Returns the keys of the schema's encrypted columns, if it has any. `provision` is the region after
/// the blob, which contains the keys until the first start.
#[cfg(feature = "mps2-an385")]
#[inline(never)]
fn column_keys(
    provisioning: &Provisioning<'_>,
    pages: BoardFlash,
    provision: BoardFlash,
) -> Result<Option<ColumnKeys<Pages>>, Fault> {
    let schema = Schema::decode(provisioning.schema).map_err(|_| Fault::Schema)?;
    if schema.encrypted_count() == 0 {
        return Ok(None);
    }
    ColumnKeys::open(journal_pages(pages)?, &mut Paged::<4>(provision), &schema).map(Some)
}

fn run(
    provisioning: &Provisioning<'_>,
    flash: Pages,
    slots: Option<SlotPages>,
    keys: Option<&mut dyn SealKeys>,
    mut parts: Parts,
) -> Result<Infallible, Fault> {
    parts.uart.start();
    parts.clock.start();
    let settings = Settings {
        interval_ms: provisioning.window.interval_ms,
        led: false,
        scheme: provisioning.scheme,
    };
    // Borrow the values inside the results: moving them out would need twice the memory.
    let mut opened = Durable::open(flash, provisioning.device, provisioning.certificate, settings);
    let durable = opened.as_mut().map_err(|error| *error)?;
    let Some(audience) = &provisioning.audience else {
        let keys = keys.map(|keys| keys as &mut dyn SealKeys);
        return work(provisioning, durable, None, keys, parts);
    };
    // The node's seed is secret, and different at each start.
    let boots = durable.memory().boots().to_be_bytes();
    let seed = Digest::of(&[b"moteseal/1/mote/seed\0", &*provisioning.link_secret, &boots]);
    let seed = seed.0.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    let mut shelf = Shelf::new();
    let key = receiver_key(audience);
    let now_ms = parts.clock.now_ms();
    let mut broadcast_node = broadcast_node(audience, key.as_slice(), seed, now_ms);
    // Reading the version from the tag keeps the tag in the image.
    #[cfg(feature = "slots")]
    let version = version_of(core::hint::black_box(&TAG));
    #[cfg(not(feature = "slots"))]
    let version = VERSION;
    let mut updates = slots.map(|slots| Updates::new(slots, audience, BOARD, version));
    let listener = Listener::new(&mut broadcast_node, &mut shelf, updates.as_mut(), now_ms);
    let keys = keys.map(|keys| keys as &mut dyn SealKeys);
    work(provisioning, durable, Some(listener), keys, parts)
}

/// Runs the mote until it fails. The arguments borrow from the stack frame of [`run`].
#[inline(never)]
fn work<'p, 'd>(
    provisioning: &'p Provisioning<'p>,
    durable: &'d mut Durable<Pages>,
    listener: Option<Listener<'p, 'd, SlotPages>>,
    keys: Option<&'d mut dyn SealKeys>,
    parts: Parts,
) -> Result<Infallible, Fault> {
    let Parts { mut uart, clock, .. } = parts;
    #[cfg(feature = "slots")]
    let mut watchdog = parts.watchdog;
    let readings = Recording::new(TABLE, RECORD, provisioning.window).ok_or(Fault::Readings)?;
    let mut mote = Mote::<_, _, LEVELS, BUFFER, _>::new(provisioning, durable, listener, readings);
    if let Some(keys) = keys {
        mote.encrypt_with(keys);
    }
    mote.report_health(Policy::VARIABLE);
    mote.start(clock.now_ms(), &mut notify)?;
    let mut line = Line::<PACKET, PACKET>::new(
        Side::Mote(provisioning.device),
        mote.boots(),
        Timing::default(),
    );
    let mut out = [0; MAX_BODY];
    let mut waiting = None;
    loop {
        let now_ms = clock.now_ms();
        while let Some(byte) = uart.read() {
            match line.receive(byte) {
                Some(Received::Body { channel, body }) => {
                    mote.receive(now_ms, channel, body, &mut notify)?;
                }
                Some(Received::Opened(_)) => mote.opened(now_ms),
                Some(Received::Dropped(_)) | None => {}
            }
        }
        mote.note_line(line.counters());
        mote.work(now_ms, &mut notify)?;
        #[cfg(feature = "slots")]
        watchdog.feed();
        if mote.wants_restart(now_ms) {
            reset();
        }
        if line.is_idle()
            && line.peer().is_some()
            && let Some((channel, length)) = mote.next_body(now_ms, &mut out, &mut notify)?
        {
            // `send` cannot fail here, because the line is idle and the body fits. If it failed,
            // the body would be sent again later, like a body that is lost on the line.
            let _ = line.send(channel, out.get(..length).unwrap_or_default());
        }
        while let Some(byte) = waiting.take().or_else(|| line.next_byte(now_ms)) {
            if !uart.write(byte) {
                waiting = Some(byte);
                break;
            }
        }
        // The next byte or millisecond may bring work.
        if waiting.is_none() {
            uart.sleep();
        }
    }
}
