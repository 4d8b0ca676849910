//! Measures one part of a mote. The input is in the provisioning region, outside the program, so
//! that the compiler cannot precompute results and the input does not count as flash. Each piece of
//! work runs once to count instructions and once to measure the stack. The programs print the
//! results, so that the host can check them.
//!
//! The programs print lines `name value` through semihosting. Each program contains one part and
//! this harness; the program `empty` contains only the harness.

use core::hint::black_box;

use moteseal_board::{Board, host, stack};

/// The input of a part: a list of items. Each item is preceded by its length (two bytes,
/// big-endian).
#[derive(Clone, Copy)]
pub struct Input(&'static [u8]);

impl Input {
    /// Returns the next item, or an empty item after the last one.
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

    /// Returns the next item, which must have this length.
    pub fn fixed<const N: usize>(&mut self) -> [u8; N] {
        if let Ok(item) = self.item().try_into() {
            item
        } else {
            failed("the input is of another form")
        }
    }
}

/// The quantity to measure.
#[derive(Clone, Copy)]
pub enum Of {
    /// The number of instructions.
    Instructions,
    /// The number of bytes of stack.
    Stack,
}

/// The harness that measures and prints.
pub struct Meter(Board);

impl Meter {
    /// Takes the board and returns the meter and the input.
    #[must_use]
    pub fn start() -> (Self, Input) {
        let Some(mut board) = Board::take() else { failed("no board") };
        let input = Input(board.provision.split_front(usize::MAX));
        (Self(board), input)
    }

    /// Runs the work twice, once to count its instructions and once to measure its stack.
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

    /// Prints a number: `name value`.
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

/// Hides a value from the optimiser, as if it were read from a mote's memory.
#[inline(always)]
pub fn opaque<T>(value: T) -> T {
    black_box(value)
}
