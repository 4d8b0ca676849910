//! The boundary: what C hands in becomes references here, after everything that can be checked has been, and nowhere else.
//!
//! What cannot be checked is the caller's to keep, and the header says so: that a pointer leads to as much memory as its length or type
//! says, that nobody else uses that memory during the call, and that outputs do not overlap inputs. Null, misaligned and impossible
//! arguments are refused by name. States live in the caller's memory as a mark and a value: the mark tells a state that was begun from
//! zeros, and one type from another.

use core::mem::MaybeUninit;

use zeroize::Zeroize;

use crate::error::moteseal_error::{self as Error, Misaligned, NotBegun, NullPointer};

/// A state in the caller's memory: an array of words behind which the value lies.
pub(crate) trait Opaque: Sized {
    /// What it holds.
    type Value;
    /// What its first word says once it was begun: never 0, and another one for every type.
    const MARK: u32;
}

#[repr(C)]
struct Slot<T> {
    mark: u32,
    value: MaybeUninit<T>,
}

/// Whether the words that the header gives a state hold it.
const fn fits<O: Opaque>() -> bool {
    size_of::<Slot<O::Value>>() <= size_of::<O>() && align_of::<Slot<O::Value>>() <= align_of::<O>()
}

fn slot<O: Opaque>(state: *mut O) -> Result<*mut Slot<O::Value>, Error> {
    const { assert!(fits::<O>(), "the words in the header are too few for the state") };
    checked(state)?;
    Ok(state.cast())
}

/// Whether a pointer can lead to a `T`: for results, before anything is done for them.
pub(crate) fn checked<T>(pointer: *const T) -> Result<(), Error> {
    match pointer {
        _ if pointer.is_null() => Err(NullPointer),
        _ if !pointer.is_aligned() => Err(Misaligned),
        _ => Ok(()),
    }
}

/// Begins a state: whatever was there is overwritten.
///
/// # Safety
/// `state` is null or leads to memory for an `O` that nobody else uses.
pub(crate) unsafe fn begin<O: Opaque>(state: *mut O, value: O::Value) -> Result<(), Error> {
    let slot = slot(state)?;
    // SAFETY: not null, aligned, and as large as the header says by the caller's word; `slot` checked that a Slot fits that.
    unsafe { slot.write(Slot { mark: O::MARK, value: MaybeUninit::new(value) }) };
    Ok(())
}

/// A state that was begun.
///
/// # Safety
/// `state` is null or leads to memory for an `O` that holds zeros or what [`begin`] wrote, and that nobody else uses.
pub(crate) unsafe fn state<'a, O: Opaque>(state: *mut O) -> Result<&'a mut O::Value, Error> {
    let slot = slot(state)?;
    // SAFETY: as in `begin`; with the mark, the value behind it was written by `begin`.
    unsafe {
        if (*slot).mark == O::MARK { Ok((*slot).value.assume_init_mut()) } else { Err(NotBegun) }
    }
}

/// The same where nothing is changed.
///
/// # Safety
/// As [`state`], but others may read it, too.
pub(crate) unsafe fn begun<'a, O: Opaque>(state: *const O) -> Result<&'a O::Value, Error> {
    let slot = slot(state.cast_mut())?;
    // SAFETY: as in `state`.
    unsafe {
        if (*slot).mark == O::MARK { Ok((*slot).value.assume_init_ref()) } else { Err(NotBegun) }
    }
}

/// Overwrites a state with zeros that no optimiser leaves out: it is as if it had never been begun. Null is nothing to wipe.
///
/// # Safety
/// `state` is null or leads to memory for an `O` that nobody else uses.
pub(crate) unsafe fn wipe<O: Opaque>(state: *mut O) {
    // Byte by byte, so a misaligned one is wiped, too.
    if !state.is_null() {
        // SAFETY: not null, and an O is an array of words, for which any bytes are values. No value here frees anything when it is
        // dropped, so it need not be.
        unsafe { core::slice::from_raw_parts_mut(state.cast::<MaybeUninit<u8>>(), size_of::<O>()) }
            .zeroize();
    }
}

/// Plain data to read.
///
/// # Safety
/// `pointer` is null or leads to a `T` whose every bit pattern is a value.
pub(crate) unsafe fn given<'a, T>(pointer: *const T) -> Result<&'a T, Error> {
    checked(pointer)?;
    // SAFETY: not null, aligned, and a T by the caller's word.
    Ok(unsafe { &*pointer })
}

/// Plain data to change.
///
/// # Safety
/// As [`given`], and nobody else uses it.
pub(crate) unsafe fn given_mut<'a, T>(pointer: *mut T) -> Result<&'a mut T, Error> {
    checked(pointer)?;
    // SAFETY: not null, aligned, and a T by the caller's word.
    Ok(unsafe { &mut *pointer })
}

/// Plain data that may be left out.
///
/// # Safety
/// As [`given`].
pub(crate) unsafe fn optional<'a, T>(pointer: *const T) -> Result<Option<&'a T>, Error> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller keeps the same contract.
    unsafe { given(pointer) }.map(Some)
}

/// Bytes to read; null is fine for none.
///
/// # Safety
/// `bytes` is null or leads to `length` bytes.
pub(crate) unsafe fn bytes<'a>(bytes: *const u8, length: usize) -> Result<&'a [u8], Error> {
    if length == 0 {
        return Ok(&[]);
    }
    if length > isize::MAX as usize {
        return Err(Error::LengthOutOfRange);
    }
    checked(bytes)?;
    // SAFETY: not null, of a possible length, and that long by the caller's word.
    Ok(unsafe { core::slice::from_raw_parts(bytes, length) })
}

/// So many bytes to read.
///
/// # Safety
/// `bytes` is null or leads to `N` bytes.
pub(crate) unsafe fn fixed<'a, const N: usize>(bytes: *const u8) -> Result<&'a [u8; N], Error> {
    // SAFETY: bytes need no alignment; the caller keeps the rest.
    unsafe { given(bytes.cast()) }
}

/// A buffer to write to, all zeros; null is fine for none.
///
/// # Safety
/// `buffer` is null or leads to `capacity` bytes that nobody else uses.
pub(crate) unsafe fn buffer<'a>(buffer: *mut u8, capacity: usize) -> Result<&'a mut [u8], Error> {
    if capacity == 0 {
        return Ok(&mut []);
    }
    if capacity > isize::MAX as usize {
        return Err(Error::LengthOutOfRange);
    }
    checked(buffer)?;
    // SAFETY: not null, of a possible length, and that long by the caller's word. What C has not initialised is not read before it is written.
    unsafe {
        buffer.write_bytes(0, capacity);
        Ok(core::slice::from_raw_parts_mut(buffer, capacity))
    }
}

/// Writes a result.
///
/// # Safety
/// `place` is null or leads to memory for a `T` that nobody else uses.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Result<(), Error> {
    checked(place)?;
    // SAFETY: not null, aligned, and large enough by the caller's word.
    unsafe { place.write(value) };
    Ok(())
}

/// Runs a call's body.
pub(crate) fn call(body: impl FnOnce() -> Result<(), Error>) -> Error {
    match body() {
        Ok(()) => Error::Ok,
        Err(error) => error,
    }
}
