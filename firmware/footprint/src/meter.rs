//! Measures one part of a mote. The input comes from outside the program, so that the compiler
//! cannot evaluate any of it and none of it is in flash. Each piece of work runs once to count
//! instructions and once to measure the stack. The results are printed, so that the host can check
//! them.
//!
//! The programs print lines of `name value` through semihosting. Each program holds its part and
//! this harness; `empty` holds only the harness.

use core::hint::black_box;

use moteseal_board::{Board, host, stack};

/// The input of a part: a list of items, each after its length as two bytes, big-endian.
#[derive(Clone, Copy)]
pub struct Input(&'static [u8]);

impl Input {
    /// The next item, or an empty item after the last one.
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

/// The meter.
pub struct Meter(Board);

impl Meter {
    /// The meter and the input.
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

    /// Runs the work once and prints `name instructions` or `name.stack bytes`.
    #[inline(never)]
    pub fn once(&mut self, of: Of, name: &str, work: &mut dyn FnMut()) {
        match of {
            Of::Instructions => {
                let (instructions, ()) = self.0.instructions.of(work);
                print_line(name, "", instructions);
            }
            Of::Stack => {
                let (peak, ()) = stack::peak_of(work);
                print_line(name, ".stack", peak as u64);
            }
        }
    }

    /// Runs the work once and returns the number of instructions.
    #[inline(never)]
    pub fn count(&mut self, work: &mut dyn FnMut()) -> u64 {
        self.0.instructions.of(work).0
    }

    /// Prints a number of bytes: `name.bytes value`.
    #[inline(never)]
    pub fn bytes(&mut self, name: &str, bytes: usize) {
        print_line(name, ".bytes", bytes as u64);
    }

    /// Prints any other number.
    #[inline(never)]
    pub fn number(&mut self, name: &str, number: u64) {
        print_line(name, "", number);
    }

    /// Prints a result, which the host checks.
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

fn print_line(name: &str, what: &str, number: u64) {
    host::print(name);
    host::print(what);
    host::print(" ");
    host::print_number(number);
    host::print("\n");
}

/// Ends QEMU after a failed check.
#[cold]
#[inline(never)]
pub fn failed(what: &str) -> ! {
    host::print("failed ");
    host::print(what);
    host::print("\n");
    host::exit(1)
}

/// Hides a value from the optimiser, like a value in a mote's memory.
#[inline(always)]
pub fn opaque<T>(value: T) -> T {
    black_box(value)
}
