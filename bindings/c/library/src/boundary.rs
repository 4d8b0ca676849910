//! The boundary between C and Rust. Only this module converts pointers from C to references, and it
//! checks them first as far as possible.
//!
//! The caller must guarantee what cannot be checked, and the header says so: a pointer points to as
//! much memory as its type or the stated length requires, nothing else uses that memory during the
//! call, and outputs do not overlap inputs. Null, misaligned and impossible arguments are rejected,
//! each with its own error. A state consists of a mark and a value in the caller's memory. The mark
//! distinguishes a state that was begun from zeroed memory, and from a state of another type. In a
//! state whose size the caller chooses ([`Storage`]), an array of elements follows the value.

use core::mem::MaybeUninit;

use zeroize::Zeroize;

use crate::error::moteseal_error::{
    self as Error, BufferTooSmall, Misaligned, NotBegun, NullPointer,
};

/// A state of fixed size in the caller's memory: an array of words that holds a mark and a value.
pub(crate) trait Opaque: Sized {
    /// The value.
    type Value;
    /// The first word of a state that was begun: not 0, and different for every type.
    const MARK: u32;
}

/// A state whose size the caller chooses: a mark, the number of elements, a value, and, from byte
/// `FIXED` on, the elements.
pub(crate) trait Storage: Sized {
    /// The value.
    type Value;
    /// An element of the array that follows the value. It is never dropped, because C overwrites it.
    type Element;
    /// The first word of a state that was begun: not 0, and different for every type.
    const MARK: u32;
    /// The number of bytes before the elements: the same on every machine, and a multiple of 8.
    const FIXED: usize;
    /// The maximum number of elements that a state uses.
    const MOST: usize;

    /// Returns the size in bytes of a state with this many elements.
    fn size(elements: usize) -> usize {
        Self::FIXED + elements * size_of::<Self::Element>()
    }
}

#[repr(C)]
struct Slot<T> {
    mark: u32,
    /// The number of elements of a [`Storage`] state; 0 in an [`Opaque`] state.
    count: u32,
    value: MaybeUninit<T>,
}

/// Returns whether a state fits in the array of words that the header declares for it.
const fn fits<O: Opaque>() -> bool {
    size_of::<Slot<O::Value>>() <= size_of::<O>() && align_of::<Slot<O::Value>>() <= align_of::<O>()
}

/// Returns whether a [`Storage`] state fits in the layout from which the header computes its size.
const fn fits_array<O: Storage>() -> bool {
    size_of::<Slot<O::Value>>() <= O::FIXED
        && O::FIXED.is_multiple_of(8)
        && size_of::<O::Element>().is_multiple_of(8)
        && align_of::<Slot<O::Value>>() <= 8
        && align_of::<O::Element>() <= 8
}

fn slot<O: Opaque>(state: *mut O) -> Result<*mut Slot<O::Value>, Error> {
    const { assert!(fits::<O>(), "the words in the header are too few for the state") };
    checked(state)?;
    Ok(state.cast())
}

fn slot_of_array<O: Storage>(state: *mut O) -> Result<*mut Slot<O::Value>, Error> {
    const { assert!(fits_array::<O>(), "the header's layout does not fit the state") };
    checked(state.cast::<u64>())?;
    Ok(state.cast())
}

/// Checks that a pointer is not null and is aligned for a `T`. A function checks its output
/// pointers before it does any work.
pub(crate) fn checked<T>(pointer: *const T) -> Result<(), Error> {
    match pointer {
        _ if pointer.is_null() => Err(NullPointer),
        _ if !pointer.is_aligned() => Err(Misaligned),
        _ => Ok(()),
    }
}

/// Begins a state: writes its mark and value over the memory's previous contents.
///
/// # Safety
/// `state` is null or points to memory for an `O` that nothing else uses.
pub(crate) unsafe fn begin<O: Opaque>(state: *mut O, value: O::Value) -> Result<(), Error> {
    let slot = slot(state)?;
    // SAFETY: the pointer is not null and is aligned. By the caller's contract the memory has the
    // size that the header states, and `slot` checked that a Slot fits in it.
    unsafe { slot.write(Slot { mark: O::MARK, count: 0, value: MaybeUninit::new(value) }) };
    Ok(())
}

/// Returns the value of a state that was begun.
///
/// # Safety
/// `state` is null or points to memory for an `O` that nothing else uses. The memory holds zeros or
/// what [`begin`] wrote.
pub(crate) unsafe fn state<'a, O: Opaque>(state: *mut O) -> Result<&'a mut O::Value, Error> {
    let slot = slot(state)?;
    // SAFETY: as in `begin`; the mark shows that `begin` wrote the value after it.
    unsafe {
        if (*slot).mark == O::MARK { Ok((*slot).value.assume_init_mut()) } else { Err(NotBegun) }
    }
}

/// Returns the value of a state that was begun, read-only.
///
/// # Safety
/// As [`state`], but other threads may read the state at the same time.
pub(crate) unsafe fn begun<'a, O: Opaque>(state: *const O) -> Result<&'a O::Value, Error> {
    let slot = slot(state.cast_mut())?;
    // SAFETY: as in `state`.
    unsafe {
        if (*slot).mark == O::MARK { Ok((*slot).value.assume_init_ref()) } else { Err(NotBegun) }
    }
}

/// Returns how many elements fit in a state of `size` bytes: 1 to [`Storage::MOST`].
pub(crate) fn capacity<O: Storage>(state: *mut O, size: usize) -> Result<usize, Error> {
    slot_of_array(state)?;
    let elements = size.saturating_sub(O::FIXED) / size_of::<O::Element>();
    if elements == 0 { Err(BufferTooSmall) } else { Ok(elements.min(O::MOST)) }
}

/// Marks the state as not begun, fills its first `count` elements, and returns them.
///
/// # Safety
/// `state` points to at least `O::size(count)` bytes that nothing else uses, aligned to 8 bytes.
pub(crate) unsafe fn clear_array<'a, O: Storage<Element: Copy>>(
    state: *mut O,
    count: usize,
    element: O::Element,
) -> &'a mut [O::Element] {
    // SAFETY: the caller's contract; `fits_array` checked that the elements are aligned and do not
    // overlap the Slot.
    unsafe {
        state.cast::<u32>().write(0);
        let first = state.cast::<u8>().add(O::FIXED).cast::<O::Element>();
        for place in 0..count {
            first.add(place).write(element);
        }
        core::slice::from_raw_parts_mut(first, count)
    }
}

/// Marks the state as not begun, writes secret elements, and returns them. After an error, all bytes
/// of the state are zeros.
///
/// # Errors
/// The first error of an element; `BufferTooSmall` if there are more elements than `size` has room
/// for.
///
/// # Safety
/// `state` points to `size` bytes that nothing else uses, aligned to 8 bytes.
pub(crate) unsafe fn fill_array<'a, O: Storage>(
    state: *mut O,
    size: usize,
    elements: impl Iterator<Item = Result<O::Element, Error>>,
) -> Result<&'a mut [O::Element], Error> {
    let room = capacity(state, size)?;
    // SAFETY: the caller's contract; `fits_array` checked that the elements are aligned and do not
    // overlap the Slot, and `room` is the number of elements that fit in `size` bytes.
    unsafe {
        state.cast::<u32>().write(0);
        let first = state.cast::<u8>().add(O::FIXED).cast::<O::Element>();
        let mut count = 0;
        for element in elements {
            match element {
                Ok(element) if count < room => first.add(count).write(element),
                failed => {
                    wipe_bytes(state.cast(), size);
                    return Err(failed.err().unwrap_or(BufferTooSmall));
                }
            }
            count += 1;
        }
        Ok(core::slice::from_raw_parts_mut(first, count))
    }
}

/// Begins a state whose elements [`clear_array`] or [`fill_array`] has written.
///
/// # Safety
/// As [`clear_array`]; one of these functions must have written as many elements.
pub(crate) unsafe fn begin_array<O: Storage>(state: *mut O, count: usize, value: O::Value) {
    #[allow(clippy::cast_possible_truncation)] // At most `MOST`.
    let slot = Slot { mark: O::MARK, count: count as u32, value: MaybeUninit::new(value) };
    // SAFETY: the caller's contract; `fits_array` checked that a Slot fits.
    unsafe { state.cast::<Slot<O::Value>>().write(slot) };
}

/// Returns the value and the elements of a state that was begun and whose size the caller chose.
///
/// # Safety
/// `state` is null or points to memory that nothing else uses. The memory holds zeros or what
/// [`begin_array`] wrote.
pub(crate) unsafe fn array<'a, O: Storage>(
    state: *mut O,
) -> Result<(&'a mut O::Value, &'a mut [O::Element]), Error> {
    let slot = slot_of_array(state)?;
    // SAFETY: the mark shows that `begin_array` wrote the value and the count, after `clear_array`
    // wrote the elements.
    unsafe {
        if (*slot).mark != O::MARK {
            return Err(NotBegun);
        }
        let first = state.cast::<u8>().add(O::FIXED).cast::<O::Element>();
        let elements = core::slice::from_raw_parts_mut(first, (*slot).count as usize);
        Ok(((*slot).value.assume_init_mut(), elements))
    }
}

/// Same as [`array`], but read-only.
///
/// # Safety
/// As [`array`], but other threads may read the state at the same time.
pub(crate) unsafe fn array_ref<'a, O: Storage>(
    state: *const O,
) -> Result<(&'a O::Value, &'a [O::Element]), Error> {
    let slot = slot_of_array(state.cast_mut())?;
    // SAFETY: as in `array`.
    unsafe {
        if (*slot).mark != O::MARK {
            return Err(NotBegun);
        }
        let first = state.cast::<u8>().add(O::FIXED).cast::<O::Element>();
        let elements = core::slice::from_raw_parts(first, (*slot).count as usize);
        Ok(((*slot).value.assume_init_ref(), elements))
    }
}

/// Overwrites a state with zeros in a way that the optimiser cannot remove. Afterwards the state
/// counts as not begun. `state` may be null.
///
/// # Safety
/// `state` is null or points to memory for an `O` that nothing else uses.
pub(crate) unsafe fn wipe<O: Opaque>(state: *mut O) {
    // SAFETY: the caller keeps the same contract.
    unsafe { wipe_bytes(state.cast(), size_of::<O>()) };
}

/// Overwrites `size` bytes with zeros in a way that the optimiser cannot remove. `state` may be
/// null.
///
/// # Safety
/// `state` is null or points to `size` bytes that nothing else uses.
pub(crate) unsafe fn wipe_bytes(state: *mut u8, size: usize) {
    // Overwrite byte by byte, because the state may be misaligned. A value that is erased when it is
    // dropped needs nothing more.
    if !state.is_null() && size <= isize::MAX as usize {
        // SAFETY: not null and of a possible length; any bytes are valid for MaybeUninit.
        unsafe { core::slice::from_raw_parts_mut(state.cast::<MaybeUninit<u8>>(), size) }.zeroize();
    }
}

/// Returns a reference to plain data that a function reads.
///
/// # Safety
/// `pointer` is null or points to a `T`, a type for which every bit pattern is valid.
pub(crate) unsafe fn given<'a, T>(pointer: *const T) -> Result<&'a T, Error> {
    checked(pointer)?;
    // SAFETY: not null, aligned, and a T by the caller's contract.
    Ok(unsafe { &*pointer })
}

/// Returns a mutable reference to plain data that a function changes.
///
/// # Safety
/// As [`given`], and nothing else uses the `T`.
pub(crate) unsafe fn given_mut<'a, T>(pointer: *mut T) -> Result<&'a mut T, Error> {
    checked(pointer)?;
    // SAFETY: not null, aligned, and a T by the caller's contract.
    Ok(unsafe { &mut *pointer })
}

/// Returns a reference to plain data that a function reads, or `None` if the pointer is null.
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

/// Returns the slice of a pointer and a length; the pointer may be null if the length is 0.
///
/// # Safety
/// `bytes` is null or points to `length` bytes.
pub(crate) unsafe fn bytes<'a>(bytes: *const u8, length: usize) -> Result<&'a [u8], Error> {
    if length == 0 {
        return Ok(&[]);
    }
    if length > isize::MAX as usize {
        return Err(Error::LengthOutOfRange);
    }
    checked(bytes)?;
    // SAFETY: not null, of a possible length, and `length` bytes long by the caller's contract.
    Ok(unsafe { core::slice::from_raw_parts(bytes, length) })
}

/// Returns the slice of a pointer and a length, which a function changes in place; the pointer may be
/// null if the length is 0.
///
/// # Safety
/// As [`bytes`], and nothing else uses the bytes.
pub(crate) unsafe fn bytes_mut<'a>(bytes: *mut u8, length: usize) -> Result<&'a mut [u8], Error> {
    if length == 0 {
        return Ok(&mut []);
    }
    if length > isize::MAX as usize {
        return Err(Error::LengthOutOfRange);
    }
    checked(bytes)?;
    // SAFETY: not null, of a possible length, and `length` bytes long by the caller's contract.
    Ok(unsafe { core::slice::from_raw_parts_mut(bytes, length) })
}

/// Returns a reference to an array of `N` bytes.
///
/// # Safety
/// `bytes` is null or points to `N` bytes.
pub(crate) unsafe fn fixed<'a, const N: usize>(bytes: *const u8) -> Result<&'a [u8; N], Error> {
    // SAFETY: bytes need no alignment; the rest is the caller's contract.
    unsafe { given(bytes.cast()) }
}

/// Fills an output buffer with zeros and returns it; the pointer may be null if the capacity is 0.
///
/// # Safety
/// `buffer` is null or points to `capacity` bytes that nothing else uses.
pub(crate) unsafe fn buffer<'a>(buffer: *mut u8, capacity: usize) -> Result<&'a mut [u8], Error> {
    if capacity == 0 {
        return Ok(&mut []);
    }
    if capacity > isize::MAX as usize {
        return Err(Error::LengthOutOfRange);
    }
    checked(buffer)?;
    // SAFETY: not null, of a possible length, and `capacity` bytes long by the caller's contract.
    // The zeros initialise it.
    unsafe {
        buffer.write_bytes(0, capacity);
        Ok(core::slice::from_raw_parts_mut(buffer, capacity))
    }
}

/// Writes a result to the caller's memory.
///
/// # Safety
/// `place` is null or points to memory for a `T` that nothing else uses.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Result<(), Error> {
    checked(place)?;
    // SAFETY: not null, aligned, and large enough by the caller's contract.
    unsafe { place.write(value) };
    Ok(())
}

/// Runs the body of an exported function and returns its error code.
pub(crate) fn call(body: impl FnOnce() -> Result<(), Error>) -> Error {
    match body() {
        Ok(()) => Error::Ok,
        Err(error) => error,
    }
}
