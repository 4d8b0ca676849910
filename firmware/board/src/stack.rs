//! How deep the stack gets: the unused part is painted, the work runs, and what is no longer
//! painted was used. A frame's padding that is never written counts if anything deeper was;
//! interrupts count if any run meanwhile.

use core::hint::black_box;
use core::ptr;

use cortex_m::register::msp;

const PAINT: u32 = 0xc5c5_c5c5;
/// Bytes below the stack pointer that the painting itself may use.
const MARGIN: usize = 64;

/// Runs the work and measures how many bytes of stack it needs below the caller's frame, with 4
/// bytes' precision.
pub fn peak_of<R>(work: impl FnOnce() -> R) -> (usize, R) {
    let top = paint();
    let result = black_box(apart(work));
    (top.saturating_sub(deepest()), result)
}

/// Paints all of the stack that is not in use; returns where that starts.
#[inline(never)]
pub fn paint() -> usize {
    let top = msp::read() as usize;
    let (mut word, end) = (end(), (top - MARGIN) as *mut u32);
    while word < end {
        // SAFETY: between the end of the program's memory and the stack pointer, less what this
        // function may need, lies nothing that is in use.
        unsafe {
            ptr::write_volatile(word, PAINT);
            word = word.add(1);
        }
    }
    top
}

/// Bytes of stack that were in use at once since [`paint`], all of the program's included.
#[inline(never)]
#[must_use]
pub fn peak() -> usize {
    unsafe extern "C" {
        static _stack_start: u32;
    }
    (&raw const _stack_start).addr() - deepest()
}

/// The lowest address that is no longer painted.
fn deepest() -> usize {
    let (mut word, top) = (end(), msp::read() as usize);
    // SAFETY: words between the end of the program's memory and the stack pointer, which hold paint
    // or what the program left there.
    while word.addr() < top && unsafe { ptr::read_volatile(word) } == PAINT {
        // SAFETY: still below the stack pointer.
        word = unsafe { word.add(1) };
    }
    word.addr()
}

/// The end of the program's static memory, where the stack must end.
fn end() -> *mut u32 {
    unsafe extern "C" {
        static mut _stack_end: u32;
    }
    &raw mut _stack_end
}

#[inline(never)]
fn apart<R>(work: impl FnOnce() -> R) -> R {
    work()
}
