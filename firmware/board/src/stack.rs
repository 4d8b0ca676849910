//! Measures how much stack a function uses: fills the unused part of the stack with a pattern
//! ("paint"), runs the function, and finds the deepest word that was overwritten. Bytes that the
//! function did not write count as used if it wrote to deeper bytes. The result includes the stack
//! of interrupts that run meanwhile.

use core::hint::black_box;
use core::ptr;

use cortex_m::register::msp;

const PAINT: u32 = 0xc5c5_c5c5;
/// Bytes below the stack pointer that the painting function itself may use.
const MARGIN: usize = 64;

/// Runs the work. Returns how many bytes of stack it used below the caller's frame, as a multiple
/// of 4, and the result of the work.
pub fn peak_of<R>(work: impl FnOnce() -> R) -> (usize, R) {
    let top = paint();
    let result = black_box(call(work));
    (top.saturating_sub(deepest()), result)
}

/// Paints the unused part of the stack, and returns the address of its upper end.
#[inline(never)]
pub fn paint() -> usize {
    let top = msp::read() as usize;
    let (mut word, end) = (end(), (top - MARGIN) as *mut u32);
    while word < end {
        // SAFETY: the memory between the end of the program's static memory and the stack pointer,
        // minus a margin for this function, is not in use.
        unsafe {
            ptr::write_volatile(word, PAINT);
            word = word.add(1);
        }
    }
    top
}

/// Returns the maximum number of bytes of stack that the whole program has used since [`paint`].
#[inline(never)]
#[must_use]
pub fn peak() -> usize {
    unsafe extern "C" {
        static _stack_start: u32;
    }
    (&raw const _stack_start).addr() - deepest()
}

/// Returns the lowest address that was overwritten since the stack was painted.
fn deepest() -> usize {
    let (mut word, top) = (end(), msp::read() as usize);
    // SAFETY: these words are between the end of the program's static memory and the stack pointer;
    // they contain paint or what the program left there.
    while word.addr() < top && unsafe { ptr::read_volatile(word) } == PAINT {
        // SAFETY: still below the stack pointer.
        word = unsafe { word.add(1) };
    }
    word.addr()
}

/// Returns the end of the program's static memory. The stack grows down towards it.
fn end() -> *mut u32 {
    unsafe extern "C" {
        static mut _stack_end: u32;
    }
    &raw mut _stack_end
}

#[inline(never)]
fn call<R>(work: impl FnOnce() -> R) -> R {
    work()
}
