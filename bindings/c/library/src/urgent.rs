//! Urgent events: each has its own signature and is sent at once; it is also an event of the seal.

use ::moteseal_seal::UrgentEvent;
use moteseal_core::Digest;
use moteseal_core::cbor::Writer;
use moteseal_core::record::{DeviceId, GroupId, Sequence};

use crate::chain::{Chain, moteseal_chain};
use crate::device::moteseal_device;
use crate::error::moteseal_error;
use crate::error::moteseal_error as Error;
use crate::memory::{buffer, bytes, call, checked, given, put, state};

/// Bytes that suffice for the message or the signed object of an urgent event, without the event.
pub const MOTESEAL_URGENT_OVERHEAD: usize = 448;

// Headers of at most 256 bytes, a signature, and the CBOR around them.
const _: () = assert!(MOTESEAL_URGENT_OVERHEAD >= 256 + 64 + 64);

fn urgent<'a>(
    device: &moteseal_device,
    chain: &Chain,
    sequence: u32,
    record: &'a [u8],
) -> Result<UrgentEvent<'a>, Error> {
    device.check()?;
    let fits = match device.record_size {
        0 => record.len() <= usize::from(u16::MAX),
        size => record.len() == usize::from(size),
    };
    if !fits {
        return Err(Error::WrongLength);
    }
    let (index, epoch) = chain.opened()?;
    Ok(UrgentEvent {
        group: GroupId(device.group),
        roster: Digest(device.roster),
        device: DeviceId(device.device),
        index,
        epoch,
        seq: Sequence(sequence.into()),
        schema: Digest(device.schema),
        record,
    })
}

/// Writes the bytes to sign for an urgent event under the chain's open seal.
///
/// @param sequence  The event's number under the seal: how many events were pushed before it. Push
///        the event with this number, too.
/// @param out, capacity  `MOTESEAL_URGENT_OVERHEAD + event_length` bytes suffice.
/// @return `NotOpen`, `NotPersisted`, `WrongLength`, `BufferTooSmall`.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn moteseal_urgent_message(
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    sequence: u32,
    event: *const u8,
    event_length: usize,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    call(|| {
        checked(length)?;
        // SAFETY: the caller keeps the header's contract.
        let (device, chain, event, out) = unsafe {
            (given(device)?, state(chain)?, bytes(event, event_length)?, buffer(out, capacity)?)
        };
        let written = urgent(device, chain, sequence, event)?.message(device.check()?, out)?.len();
        // SAFETY: as above.
        unsafe { put(length, written) }
    })
}

/// Writes an urgent event in the form in which it is sent: a tagged COSE_Sign1 (RFC 9052).
///
/// @param signature, signature_length  The signature over `moteseal_urgent_message` with the same
///        arguments.
/// @param out, capacity  `MOTESEAL_URGENT_OVERHEAD + event_length` bytes suffice.
/// @return `NotOpen`, `NotPersisted`, `WrongLength`, `MalformedSignature`, `BufferTooSmall`.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn moteseal_urgent_object(
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    sequence: u32,
    event: *const u8,
    event_length: usize,
    signature: *const u8,
    signature_length: usize,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    call(|| {
        checked(length)?;
        // SAFETY: the caller keeps the header's contract.
        let (device, chain, event, signature, out) = unsafe {
            (
                given(device)?,
                state(chain)?,
                bytes(event, event_length)?,
                bytes(signature, signature_length)?,
                buffer(out, capacity)?,
            )
        };
        let algorithm = device.check()?;
        if signature.len() != algorithm.signature_length() {
            return Err(Error::MalformedSignature);
        }
        let mut out = Writer::new(out);
        urgent(device, chain, sequence, event)?.encode(&mut out, algorithm, signature)?;
        // SAFETY: as above.
        unsafe { put(length, out.position()) }
    })
}
