//! Urgent events: the mote signs each event separately and sends it at once. The event is also part
//! of the open seal.

use ::moteseal_seal::UrgentEvent;
use moteseal_core::Digest;
use moteseal_core::cbor::Writer;
use moteseal_core::confidential::KeyCommitments;
use moteseal_core::record::{DeviceId, GroupId, Sequence};

use crate::boundary::{buffer, bytes, call, checked, given, put, state};
use crate::chain_position::{Chain, moteseal_chain};
use crate::cipher::{commitments, moteseal_cipher};
use crate::device::moteseal_device;
use crate::error::moteseal_error;
use crate::error::moteseal_error as Error;

/// The maximum length of the message or the signed object of an urgent event, without the event
/// itself, in bytes.
pub const MOTESEAL_URGENT_OVERHEAD: usize = 448;

// Room for the headers (at most 256 bytes), a signature (64 bytes), and the CBOR around them.
const _: () = assert!(MOTESEAL_URGENT_OVERHEAD >= 256 + 64 + 64);

fn urgent<'a>(
    device: &moteseal_device,
    chain: &Chain,
    keys: Option<KeyCommitments>,
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
        keys,
        record,
    })
}

/// Writes the bytes to sign for an urgent event that is part of the chain's open seal.
///
/// @param cipher  The cipher of the open seal if the device has encrypted columns; otherwise null.
///        It must have encrypted the event.
/// @param sequence  The event's sequence number in the seal, counted from 0: the number of events
///        pushed before it. You must also push the event, so that it gets this number.
/// @param out, capacity  `MOTESEAL_URGENT_OVERHEAD + event_length` bytes suffice.
/// @return `NotOpen`, `NotPersisted`, `NoStreamSecret`, `NotOfThisSeal` (the cipher is for another
///         seal), `NotEncrypted` (the cipher has not encrypted the event), `WrongLength`,
///         `BufferTooSmall`.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn moteseal_urgent_message(
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    cipher: *const moteseal_cipher,
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
        let count = u64::from(sequence) + 1;
        // SAFETY: as above.
        let keys = unsafe { commitments(cipher, device, chain.opened()?, count)? };
        let event = urgent(device, chain, keys, sequence, event)?;
        let written = event.message(device.check()?, out)?.len();
        // SAFETY: as above.
        unsafe { put(length, written) }
    })
}

/// Writes a signed urgent event, ready to be sent: a tagged COSE_Sign1 (RFC 9052).
///
/// @param signature, signature_length  The signature over `moteseal_urgent_message` with the same
///        arguments.
/// @param out, capacity  `MOTESEAL_URGENT_OVERHEAD + event_length` bytes suffice.
/// @return `NotOpen`, `NotPersisted`, `NoStreamSecret`, `NotOfThisSeal`, `NotEncrypted`,
///         `WrongLength`, `MalformedSignature`, `BufferTooSmall`.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn moteseal_urgent_object(
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    cipher: *const moteseal_cipher,
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
        let count = u64::from(sequence) + 1;
        // SAFETY: as above.
        let keys = unsafe { commitments(cipher, device, chain.opened()?, count)? };
        let event = urgent(device, chain, keys, sequence, event)?;
        event.encode(&mut out, algorithm, signature)?;
        // SAFETY: as above.
        unsafe { put(length, out.position()) }
    })
}
