//! The first serial line: PL011 on the LM3S6965 (its data sheet, section 12), the CMSDK UART on the
//! MPS2 (ARM DDI 0479, section 4.3). Reading and writing return at once.
//!
//! The receiver has room for 1 byte (CMSDK) or 16 bytes (PL011). An interrupt handler moves received
//! bytes to a ring in RAM, so that short packets are not lost while the program computes, and so that a
//! byte ends the [sleep](Uart::sleep) of the processor.

use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use cortex_m::interrupt::{self, InterruptNumber};
use cortex_m::peripheral::NVIC;
#[cfg(not(feature = "boot"))]
use cortex_m_rt::exception;

/// The number of received bytes for which there is room in RAM. A longer packet that arrives while the
/// program computes is lost on a real line, and its sender repeats it; QEMU waits with the next byte.
const ROOM: u32 = 256;

/// The received bytes that the program has not read. Only the interrupt handler adds bytes, or the
/// program while interrupts are disabled.
struct Ring {
    bytes: [AtomicU8; ROOM as usize],
    /// The number of bytes that were added, and the number that were read.
    added: AtomicU32,
    read: AtomicU32,
}

static RING: Ring = Ring {
    bytes: [const { AtomicU8::new(0) }; ROOM as usize],
    added: AtomicU32::new(0),
    read: AtomicU32::new(0),
};

impl Ring {
    fn at(&self, place: u32) -> Option<&AtomicU8> {
        self.bytes.get((place % ROOM) as usize)
    }

    /// Moves bytes from the receiver to the ring until the receiver is empty or the ring is full. The
    /// caller must be the interrupt handler, or have disabled interrupts.
    fn fill(&self) {
        let mut added = self.added.load(Ordering::Relaxed);
        while added.wrapping_sub(self.read.load(Ordering::Acquire)) < ROOM
            && is(registers::HAS_BYTE)
        {
            // SAFETY: reading the data register removes a byte from the receiver. Only this function
            // reads it, and never twice at the same time.
            let byte = unsafe { ptr::read_volatile(registers::DATA) };
            if let Some(place) = self.at(added) {
                // The low 8 bits are the byte.
                #[allow(clippy::cast_possible_truncation)]
                place.store(byte as u8, Ordering::Relaxed);
            }
            added = added.wrapping_add(1);
            self.added.store(added, Ordering::Release);
        }
    }

    fn is_empty(&self) -> bool {
        self.added.load(Ordering::Acquire) == self.read.load(Ordering::Relaxed)
    }

    fn take(&self) -> Option<u8> {
        if self.is_empty() {
            return None;
        }
        let read = self.read.load(Ordering::Relaxed);
        let byte = self.at(read)?.load(Ordering::Relaxed);
        self.read.store(read.wrapping_add(1), Ordering::Release);
        Some(byte)
    }
}

fn is((mask, value): (u32, u32)) -> bool {
    // SAFETY: the status register may be read at any time.
    unsafe { ptr::read_volatile(registers::STATE) & mask == value }
}

/// The interrupt of a received byte.
#[derive(Clone, Copy)]
struct Receive;

// SAFETY: this is the number of the interrupt on the board, and no other type has it.
unsafe impl InterruptNumber for Receive {
    fn number(self) -> u16 {
        registers::RECEIVE
    }
}

/// Handles the interrupt of a received byte. After any other one, such as that of the watchdog's first end,
/// the program waits for a reset. The boot stage enables no interrupt.
///
/// # Safety
/// Only the processor may call it.
#[cfg(not(feature = "boot"))]
#[exception]
unsafe fn DefaultHandler(number: i16) {
    if u16::try_from(number) != Ok(registers::RECEIVE) {
        loop {
            core::hint::spin_loop();
        }
    }
    // A byte that arrives from here on causes the next interrupt. If the ring is full, bytes stay in the
    // receiver without another interrupt, and the program takes them after those in the ring.
    // SAFETY: this write ends the interrupt and has no other effect.
    unsafe { ptr::write_volatile(registers::END.0, registers::END.1) };
    RING.fill();
}

/// The serial line.
pub struct Uart(());

#[cfg(feature = "mps2-an385")]
mod registers {
    pub(super) const DATA: *mut u32 = 0x4000_4000 as *mut u32;
    pub(super) const STATE: *mut u32 = 0x4000_4004 as *mut u32;
    const CONTROL: *mut u32 = 0x4000_4008 as *mut u32;
    const DIVIDER: *mut u32 = 0x4000_4010 as *mut u32;

    // Transmitter, receiver, and the receiver's interrupt.
    pub(super) const START: &[(*mut u32, u32)] =
        &[(DIVIDER, 25_000_000 / 115_200), (CONTROL, 0b1011)];
    pub(super) const HAS_BYTE: (u32, u32) = (1 << 1, 1 << 1);
    pub(super) const HAS_ROOM: (u32, u32) = (1 << 0, 0);
    #[cfg(not(feature = "boot"))]
    pub(super) const END: (*mut u32, u32) = (0x4000_400c as *mut u32, 1 << 1);
    pub(super) const RECEIVE: u16 = 0;
}

#[cfg(not(feature = "mps2-an385"))]
mod registers {
    pub(super) const DATA: *mut u32 = 0x4000_c000 as *mut u32;
    pub(super) const STATE: *mut u32 = 0x4000_c018 as *mut u32;
    const CLOCKS: *mut u32 = 0x400f_e104 as *mut u32;
    const DIVIDER: *mut u32 = 0x4000_c024 as *mut u32;
    const FRACTION: *mut u32 = 0x4000_c028 as *mut u32;
    const LINE: *mut u32 = 0x4000_c02c as *mut u32;
    const CONTROL: *mut u32 = 0x4000_c030 as *mut u32;
    const INTERRUPTS: *mut u32 = 0x4000_c038 as *mut u32;

    /// The interrupts of bytes in the receiver: of a part of its room, and of fewer after a pause.
    const BYTES: u32 = 1 << 4 | 1 << 6;
    // 12.5 MHz / (16 * 115,200) is 6 and 50/64; eight bits, no parity, one stop bit, FIFOs on.
    pub(super) const START: &[(*mut u32, u32)] = &[
        (CLOCKS, 1),
        (DIVIDER, 6),
        (FRACTION, 50),
        (LINE, 0x70),
        (INTERRUPTS, BYTES),
        (CONTROL, 0x301),
    ];
    pub(super) const HAS_BYTE: (u32, u32) = (1 << 4, 0);
    pub(super) const HAS_ROOM: (u32, u32) = (1 << 5, 0);
    #[cfg(not(feature = "boot"))]
    pub(super) const END: (*mut u32, u32) = (0x4000_c044 as *mut u32, BYTES);
    pub(super) const RECEIVE: u16 = 5;
}

impl Uart {
    pub(crate) const fn new() -> Self {
        Self(())
    }

    /// Starts the line at 115,200 bits per second, 8N1. QEMU ignores the speed.
    pub fn start(&mut self) {
        for &(register, value) in registers::START {
            // SAFETY: these are registers of the board's UART, and only the single `Uart` value
            // writes to them.
            unsafe { ptr::write_volatile(register, value) };
        }
        // SAFETY: the handler of this interrupt exists in every program that starts the line, and no critical section depends on its being
        // masked.
        unsafe { NVIC::unmask(Receive) };
    }

    /// Returns the next received byte, if there is one.
    pub fn read(&mut self) -> Option<u8> {
        RING.take().or_else(|| {
            interrupt::free(|_| RING.fill());
            RING.take()
        })
    }

    /// Writes a byte if there is room for it, and returns whether there was.
    pub fn write(&mut self, byte: u8) -> bool {
        let has_room = is(registers::HAS_ROOM);
        if has_room {
            // SAFETY: writing to the data register sends a byte; only the single `Uart` value
            // writes to it.
            unsafe { ptr::write_volatile(registers::DATA, u32::from(byte)) };
        }
        has_room
    }

    /// Sleeps until the next interrupt, unless there is a byte to read. Once the clock runs, the sleep
    /// lasts at most one millisecond.
    pub fn sleep(&mut self) {
        // A byte that arrives after the check ends the sleep although interrupts are disabled, and is
        // handled afterwards.
        interrupt::free(|_| {
            RING.fill();
            if RING.is_empty() {
                cortex_m::asm::wfi();
            }
        });
    }
}
