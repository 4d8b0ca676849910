//! The first serial line: PL011 on the LM3S6965 (its data sheet, section 12), the CMSDK UART on the
//! MPS2 (ARM DDI 0479, section 4.3). Reading and writing return at once and use no interrupts. The
//! receiver has room for 1 byte (CMSDK) or 16 bytes (PL011); QEMU sends nothing more while it is
//! full.

use core::ptr;

/// The serial line.
pub struct Uart(());

#[cfg(feature = "mps2-an385")]
mod registers {
    pub(super) const DATA: *mut u32 = 0x4000_4000 as *mut u32;
    pub(super) const STATE: *mut u32 = 0x4000_4004 as *mut u32;
    pub(super) const CONTROL: *mut u32 = 0x4000_4008 as *mut u32;
    pub(super) const DIVIDER: *mut u32 = 0x4000_4010 as *mut u32;

    pub(super) const START: &[(*mut u32, u32)] =
        &[(DIVIDER, 25_000_000 / 115_200), (CONTROL, 0b11)];
    pub(super) const HAS_BYTE: (u32, u32) = (1 << 1, 1 << 1);
    pub(super) const HAS_ROOM: (u32, u32) = (1 << 0, 0);
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

    // 12.5 MHz / (16 * 115,200) is 6 and 50/64; eight bits, no parity, one stop bit, FIFOs on.
    pub(super) const START: &[(*mut u32, u32)] =
        &[(CLOCKS, 1), (DIVIDER, 6), (FRACTION, 50), (LINE, 0x70), (CONTROL, 0x301)];
    pub(super) const HAS_BYTE: (u32, u32) = (1 << 4, 0);
    pub(super) const HAS_ROOM: (u32, u32) = (1 << 5, 0);
}

impl Uart {
    pub(crate) const fn new() -> Self {
        Self(())
    }

    /// Starts the line at 115,200 bits per second, 8N1. QEMU ignores the speed.
    pub fn start(&mut self) {
        for &(register, value) in registers::START {
            // SAFETY: these are registers of the board's UART, and only the single `Uart` value
            // accesses them.
            unsafe { ptr::write_volatile(register, value) };
        }
    }

    /// Returns the next received byte, if there is one.
    pub fn read(&mut self) -> Option<u8> {
        // SAFETY: reading the data register removes a byte from the receiver; only the single
        // `Uart` value reads it. The low 8 bits are the byte.
        #[allow(clippy::cast_possible_truncation)]
        self.is(registers::HAS_BYTE).then(|| unsafe { ptr::read_volatile(registers::DATA) } as u8)
    }

    /// Writes a byte if there is room for it, and returns whether there was.
    pub fn write(&mut self, byte: u8) -> bool {
        let has_room = self.is(registers::HAS_ROOM);
        if has_room {
            // SAFETY: writing to the data register sends a byte; only the single `Uart` value
            // writes to it.
            unsafe { ptr::write_volatile(registers::DATA, u32::from(byte)) };
        }
        has_room
    }

    fn is(&self, (mask, value): (u32, u32)) -> bool {
        // SAFETY: the status register may be read at any time.
        unsafe { ptr::read_volatile(registers::STATE) & mask == value }
    }
}
