//! The senders whose broadcasts a mote accepts: base stations, the senders that they certify,
//! revocations, and live commands (broadcasts of one message in one signed frame).

use ::moteseal_broadcast::{
    ChainNumber, MAX_HEAD, MAX_REVOKED, NotInForce, Revocation, Revoked, SenderCertificate,
    SenderCertificateError, SingleError, open_single,
};
use moteseal_core::record::DeviceId;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::PublicKey;

use crate::boundary::{Opaque, begin, begun, bytes, call, checked, optional, put};
use crate::device::algorithm;
use crate::error::moteseal_error;
use crate::error::{by_name, moteseal_error as Error};

/// A base station, whose certificates the mote accepts. Declare it as `moteseal_base base = {0};`.
/// It contains no secrets.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_base {
    opaque: [u64; 28],
}

impl Opaque for moteseal_base {
    type Value = Base;
    const MARK: u32 = 0x6d73_6201;
}

/// The value of a `moteseal_base`.
pub struct Base {
    pub(crate) network: NetworkId,
    pub(crate) key: PublicKey,
}

/// The maximum number of single serials that a base station can have revoked.
pub const MOTESEAL_MAX_REVOKED: usize = 8;
const _: () = assert!(MOTESEAL_MAX_REVOKED == MAX_REVOKED);

/// What a base station has revoked. Zeros mean that nothing is revoked.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moteseal_revoked {
    /// All serials below this one are revoked.
    pub minimum: u64,
    /// Single serials that are revoked, in ascending order; the first `count` places are used.
    pub serials: [u64; MOTESEAL_MAX_REVOKED],
    /// The number of single serials.
    pub count: u64,
}

impl moteseal_revoked {
    fn read(&self) -> Result<Revoked, Error> {
        let count = usize::try_from(self.count).map_err(|_| Error::FieldOutOfRange)?;
        let serials = self.serials.get(..count).ok_or(Error::FieldOutOfRange)?;
        let mut revoked = Revoked::below(self.minimum);
        for serial in serials {
            revoked = revoked.and(*serial).map_err(|_| Error::FieldOutOfRange)?;
        }
        Ok(revoked)
    }

    fn of(revoked: &Revoked) -> Self {
        let mut serials = [0; MOTESEAL_MAX_REVOKED];
        for (place, serial) in serials.iter_mut().zip(revoked.serials()) {
            *place = *serial;
        }
        Self { minimum: revoked.minimum(), serials, count: revoked.serials().len() as u64 }
    }
}

/// A sender whose certificate was checked. Declare it as `moteseal_sender sender = {0};`. It
/// contains no secrets.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_sender {
    opaque: [u64; 30],
}

impl Opaque for moteseal_sender {
    type Value = Sender;
    const MARK: u32 = 0x6d73_6202;
}

/// The value of a `moteseal_sender`.
pub struct Sender {
    pub(crate) network: NetworkId,
    pub(crate) id: DeviceId,
    serial: u64,
    pub(crate) key: PublicKey,
}

/// The content of a chain of one message. `message` and `label` point into the frame's bytes.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct moteseal_single {
    /// The chain's number. Make it durable as the sender's new floor before you act on the message.
    pub number: u64,
    /// The message.
    pub message: *const u8,
    /// The message's length in bytes.
    pub message_length: usize,
    /// The chain's label: UTF-8 without control characters, not terminated by a zero byte; may be
    /// empty.
    pub label: *const u8,
    /// The label's length in bytes, at most 64.
    pub label_length: usize,
    /// The first second in which the message may be delivered, in Unix time.
    pub not_before: u64,
    /// The first second in which it may not be delivered any more, in Unix time; 2^64-1 for no end.
    /// Obey a command (kind 3) only if you know the time, and only within its window.
    pub not_after: u64,
    /// 0 for an announcement, 1 for a file, 2 for a query schedule, 3 for a command.
    pub kind: u8,
    /// Zeros.
    pub reserved: [u8; 7],
}

by_name!(NotInForce, SenderCertificateError, SingleError);

/// Begins a base station from its public key.
///
/// @param key, key_length  The raw key.
/// @param network  The network's id, 8 bytes; null if the network has only this base station.
/// @return `UnknownAlgorithm`, `KeyLength`, `InvalidPublicKey`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_base_begin(
    base: *mut moteseal_base,
    key_algorithm: u8,
    key: *const u8,
    key_length: usize,
    network: *const u8,
) -> moteseal_error {
    call(|| {
        checked(base)?;
        // SAFETY: the caller keeps the header's contract; bytes need no alignment.
        let (key, network) =
            unsafe { (bytes(key, key_length)?, optional::<[u8; 8]>(network.cast())?) };
        let key = PublicKey::from_bytes(algorithm(key_algorithm)?, key)?;
        let network = network.map_or_else(|| NetworkId::of(&key), |id| NetworkId(*id));
        // SAFETY: as above.
        unsafe { begin(base, Base { network, key }) }
    })
}

/// Checks a sender's certificate and begins the sender.
///
/// @param certificate, length  The certificate (`moteseal key certify`, or the body of a
///        certificate frame).
/// @param now  Seconds since 1970; 0 if there is no clock: the function then checks only the
///        serial, not the dates.
/// @param revoked  What the base station has revoked, as `moteseal_revocation_open` returned it
///        last, or NULL if there was no revocation.
/// @return `WrongNetwork`, `UnknownBaseStation`, `NotAuthentic`, `NotYetValid`, `Expired`,
///         `Revoked`, or an error of decoding or of keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_sender_open(
    sender: *mut moteseal_sender,
    base: *const moteseal_base,
    certificate: *const u8,
    length: usize,
    now: u64,
    revoked: *const moteseal_revoked,
) -> moteseal_error {
    call(|| {
        checked(sender)?;
        // SAFETY: the caller keeps the header's contract.
        let (base, certificate) = unsafe { (begun(base)?, bytes(certificate, length)?) };
        let certificate = SenderCertificate::open(certificate, base.network, &base.key)?;
        // SAFETY: as above.
        let revoked = unsafe { optional(revoked)? };
        let revoked = revoked.map_or(Ok(Revoked::NONE), moteseal_revoked::read)?;
        certificate.check((now != 0).then_some(now), &revoked)?;
        let value = Sender {
            network: base.network,
            id: certificate.sender,
            serial: certificate.serial,
            key: certificate.key()?,
        };
        // SAFETY: as above.
        unsafe { begin(sender, value) }
    })
}

/// Returns the identity of a sender.
///
/// @param id  Receives the sender's id: 8 bytes.
/// @param serial  Receives the serial of the sender's certificate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_sender_info(
    sender: *const moteseal_sender,
    id: *mut u8,
    serial: *mut u64,
) -> moteseal_error {
    call(|| {
        checked(id)?;
        checked(serial)?;
        // SAFETY: the caller keeps the header's contract; bytes need no alignment.
        unsafe {
            let sender = begun(sender)?;
            put(id.cast(), sender.id.0)?;
            put(serial, sender.serial)
        }
    })
}

/// Checks a revocation.
///
/// @param revoked  What the base station has revoked so far: zeros at first. Receives what it has
///        revoked now. Store it durably before you act on it.
/// @return `WrongNetwork`, `UnknownBaseStation`, `NotAuthentic`, a decoding error, or
///         `Superseded` if the revocation is older than the one in `revoked`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_revocation_open(
    base: *const moteseal_base,
    revocation: *const u8,
    length: usize,
    revoked: *mut moteseal_revoked,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let (base, revocation) = unsafe { (begun(base)?, bytes(revocation, length)?) };
        let (revocation, _) =
            Revocation::open(revocation, base.network, core::slice::from_ref(&base.key))?;
        // SAFETY: as above.
        let known = unsafe { optional(revoked.cast_const())? };
        let known = known.ok_or(Error::NullPointer).and_then(moteseal_revoked::read)?;
        if !revocation.revoked().covers(&known) {
            return Err(Error::Superseded);
        }
        // SAFETY: as above.
        unsafe { put(revoked, moteseal_revoked::of(revocation.revoked())) }
    })
}

/// Checks that a chain's number is above the floor.
pub(crate) fn check_floor(number: ChainNumber, floor: Option<&u64>) -> Result<(), Error> {
    if floor.is_some_and(|floor| number.0 <= *floor) { Err(Error::ChainGoesBack) } else { Ok(()) }
}

/// Checks a live command: a frame that contains a whole chain of one message. The check verifies
/// one signature.
///
/// @param sender  The sender that must have signed the frame.
/// @param datagram, length  The whole frame.
/// @param floor  The highest chain number accepted so far under this sender's key; null if there is
///        none.
/// @param single  Receives the message; its pointers point into `datagram`. Make `single->number`
///        durable as the new floor before you act on the message.
/// @return `NotSingle`, `WrongNetwork`, `WrongSender`, `WrongKey`, `NotAuthentic`, `ForgedLeaf`,
///         `ChainGoesBack`, `UnknownItem` (the message is encrypted for named receivers; this library
///         does not decrypt), or a decoding error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_single_open(
    sender: *const moteseal_sender,
    datagram: *const u8,
    length: usize,
    floor: *const u64,
    single: *mut moteseal_single,
) -> moteseal_error {
    call(|| {
        checked(single)?;
        // SAFETY: the caller keeps the header's contract.
        let (sender, datagram, floor) =
            unsafe { (begun(sender)?, bytes(datagram, length)?, optional(floor)?) };
        let mut scratch = [0; MAX_HEAD];
        let found = open_single(datagram, sender.network, sender.id, &sender.key, &mut scratch)?;
        check_floor(found.id().number, floor)?;
        // This library does not decrypt.
        if found.outline().is_addressed {
            return Err(Error::UnknownItem);
        }
        let (message, label) = (found.message(), found.label());
        let value = moteseal_single {
            number: found.id().number.0,
            message: message.as_ptr(),
            message_length: message.len(),
            label: label.as_ptr(),
            label_length: label.len(),
            not_before: found.window().not_before,
            not_after: found.window().not_after,
            kind: found.outline().kind_number(),
            reserved: [0; 7],
        };
        // SAFETY: as above.
        unsafe { put(single, value) }
    })
}
