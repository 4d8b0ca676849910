//! How one part of a mote is measured: what it works on comes from outside, so that nothing of it is known to the compiler or lies in flash; each
//! piece of work runs once for its instructions and once for its stack; and what it computed is said, to be checked on a host.
//!
//! The programs say lines of `name value` through semihosting. Beside its part each of them holds this harness, and `empty` holds nothing else.

use core::hint::black_box;

use moteseal_board::{Board, host, stack};

/// What a part works on: a list of items, each behind its length as two bytes, big-endian.
#[derive(Clone, Copy)]
pub struct Input(&'static [u8]);

impl Input {
    /// The next item; an empty one behind the last.
    #[inline(never)]
    pub fn item(&mut self) -> &'static [u8] {
        let item = self
            .0
            .split_first_chunk()
            .and_then(|(length, rest)| rest.split_at_checked(u16::from_be_bytes(*length).into()));
        let (item, rest) = item.unwrap_or_default();
        self.0 = rest;
        item
    }

    /// The next item, which must have this length.
    pub fn fixed<const N: usize>(&mut self) -> [u8; N] {
        if let Ok(item) = self.item().try_into() {
            item
        } else {
            failed("the input is of another form")
        }
    }
}

/// What is measured of a piece of work.
#[derive(Clone, Copy)]
pub enum Of {
    /// Its instructions.
    Instructions,
    /// The stack it needs.
    Stack,
}

/// The one who measures.
pub struct Meter(Board);

impl Meter {
    /// The meter, and what to work on.
    #[must_use]
    pub fn start() -> (Self, Input) {
        let Some(board) = Board::take() else { failed("no board") };
        let input = Input(board.provision);
        (Self(board), input)
    }

    /// Runs the work twice, for its instructions and for its stack.
    pub fn measure(&mut self, name: &str, work: &mut dyn FnMut()) {
        for of in [Of::Instructions, Of::Stack] {
            self.once(of, name, work);
        }
    }

    /// Runs the work once: says `name instructions` or `name.stack bytes`.
    #[inline(never)]
    pub fn once(&mut self, of: Of, name: &str, work: &mut dyn FnMut()) {
        match of {
            Of::Instructions => {
                let (instructions, ()) = self.0.instructions.of(work);
                say(name, "", instructions);
            }
            Of::Stack => {
                let (peak, ()) = stack::peak_of(work);
                say(name, ".stack", peak as u64);
            }
        }
    }

    /// Runs the work once: how many instructions it takes.
    #[inline(never)]
    pub fn count(&mut self, work: &mut dyn FnMut()) -> u64 {
        self.0.instructions.of(work).0
    }

    /// Says a number of bytes: `name.bytes value`.
    #[inline(never)]
    pub fn bytes(&mut self, name: &str, bytes: usize) {
        say(name, ".bytes", bytes as u64);
    }

    /// Says any other number.
    #[inline(never)]
    pub fn number(&mut self, name: &str, number: u64) {
        say(name, "", number);
    }

    /// Says what was computed, for the host to check.
    #[inline(never)]
    pub fn result(&mut self, name: &str, result: &[u8]) {
        host::print(name);
        host::print(".result ");
        for byte in result {
            let digit = |value: u8| if value < 10 { b'0' + value } else { b'a' + value - 10 };
            let digits = [digit(byte >> 4), digit(byte & 15)];
            host::print(core::str::from_utf8(&digits).unwrap_or_default());
        }
        host::print("\n");
    }

    /// Ends the program, and QEMU with it.
    pub fn end(self) -> ! {
        host::exit(0)
    }
}

fn say(name: &str, what: &str, number: u64) {
    host::print(name);
    host::print(what);
    host::print(" ");
    host::print_number(number);
    host::print("\n");
}

/// Ends QEMU because what must hold does not.
#[cold]
#[inline(never)]
pub fn failed(what: &str) -> ! {
    host::print("failed ");
    host::print(what);
    host::print("\n");
    host::exit(1)
}

/// What a mote has in its memory and the compiler must not look through.
#[inline(always)]
pub fn opaque<T>(value: T) -> T {
    black_box(value)
}
