//! A device's position in its chain of seals, and the record of it that the mote must make durable
//! (docs/design.md, section *sealing*).

use ::moteseal_seal::Position;
use moteseal_core::Digest;
use moteseal_core::record::{EpochNumber, SealIndex};

use crate::boundary::{Opaque, begin, begun, bytes, call, checked, fixed, given, put, state};
use crate::device::moteseal_device;
use crate::error::moteseal_error;
use crate::error::moteseal_error as Error;

/// The length of a chain's record in bytes, a multiple of 8. The mote stores the record in flash.
pub const MOTESEAL_CHAIN_RECORD: usize = 72;

const VERSION: u8 = 1;
const FLAG_LAST: u8 = 1;
const FLAG_EPOCH: u8 = 2;
const FLAG_CLOSED: u8 = 4;
/// The length of the part of a record before its checksum, in bytes.
const CHECKED: usize = MOTESEAL_CHAIN_RECORD - 8;

/// A device's chain of seals: the next index, the last epoch that was opened, and the predecessor
/// of the next seal.
///
/// Begin it with `moteseal_chain_start` if the device has never sealed anything, and otherwise with
/// `moteseal_chain_restore`. It contains no secrets. Declare it as `moteseal_chain chain = {0};`.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_chain {
    opaque: [u64; 16],
}

impl Opaque for moteseal_chain {
    type Value = Chain;
    const MARK: u32 = 0x6d73_6301;
}

/// The value of a `moteseal_chain`.
pub struct Chain {
    pub(crate) position: Position,
    next_index: SealIndex,
    epoch: Option<EpochNumber>,
    /// The index and epoch of the open seal, and whether the record that opened it was confirmed to
    /// be durable.
    open: Option<(SealIndex, EpochNumber, bool)>,
}

impl Chain {
    fn check(&self, device: &moteseal_device, epoch: EpochNumber) -> Result<(), Error> {
        if self.open.is_some() {
            return Err(Error::AlreadyOpen);
        }
        if self.epoch.is_some_and(|last| epoch < last) {
            return Err(Error::EpochGoesBack);
        }
        if epoch.0 < device.first_epoch || epoch.0 > device.last_epoch {
            return Err(Error::EpochOutOfRange);
        }
        let Position { last, epoch_closed, .. } = self.position;
        if epoch_closed && last.is_some_and(|(_, closed)| closed == epoch) {
            return Err(Error::EpochClosed);
        }
        // The highest index is never opened, so that `next_index` cannot overflow.
        if self.next_index.0 == u32::MAX { Err(Error::IndexExhausted) } else { Ok(()) }
    }

    /// Returns the open seal's index and epoch, or an error if its record was not confirmed to be
    /// durable.
    pub(crate) fn opened(&self) -> Result<(SealIndex, EpochNumber), Error> {
        match self.open {
            Some((index, epoch, true)) => Ok((index, epoch)),
            Some(_) => Err(Error::NotPersisted),
            None => Err(Error::NotOpen),
        }
    }

    /// Returns whether the device restarted after the last seal: the indices between that seal and
    /// `index` were opened but never signed.
    pub(crate) fn restarted(&self, index: SealIndex) -> bool {
        index.0 != self.position.last.map_or(0, |(last, _)| last.0 + 1)
    }

    /// Records that the open seal is signed: moves the chain's position past it.
    pub(crate) fn commit(&mut self, position: Position) {
        (self.position, self.open) = (position, None);
    }

    pub(crate) fn record(&self) -> [u8; MOTESEAL_CHAIN_RECORD] {
        let mut out = [0; MOTESEAL_CHAIN_RECORD];
        let mut at = 0;
        let mut push = |bytes: &[u8]| {
            for (place, byte) in out.iter_mut().skip(at).zip(bytes) {
                *place = *byte;
            }
            at += bytes.len();
        };
        let flags = if self.position.last.is_some() { FLAG_LAST } else { 0 }
            | if self.epoch.is_some() { FLAG_EPOCH } else { 0 }
            | if self.position.epoch_closed { FLAG_CLOSED } else { 0 };
        let (index, epoch) = self.position.last.map_or((0, 0), |(index, epoch)| (index.0, epoch.0));
        push(&[VERSION, flags]);
        push(&self.position.prev.0);
        push(&index.to_be_bytes());
        push(&epoch.to_be_bytes());
        push(&self.next_index.0.to_be_bytes());
        push(&self.epoch.map_or(0, |epoch| epoch.0).to_be_bytes());
        let check = check_of(&out);
        out[CHECKED..].copy_from_slice(&check);
        out
    }

    fn restore(record: &[u8; MOTESEAL_CHAIN_RECORD]) -> Result<Self, Error> {
        if record[CHECKED..] != check_of(record) {
            return Err(Error::Damaged);
        }
        if record[0] != VERSION {
            return Err(Error::UnsupportedVersion);
        }
        let number = |from: usize, length: usize| {
            record
                .iter()
                .skip(from)
                .take(length)
                .fold(0_u64, |value, &byte| value << 8 | u64::from(byte))
        };
        let index =
            |from| u32::try_from(number(from, 4)).map(SealIndex).map_err(|_| Error::Damaged);
        let flags = record[1];
        let mut prev = Digest::NULL;
        prev.0.copy_from_slice(&record[2..34]);
        let last = if flags & FLAG_LAST == 0 {
            None
        } else {
            Some((index(34)?, EpochNumber(number(38, 8))))
        };
        let epoch = if flags & FLAG_EPOCH == 0 { None } else { Some(EpochNumber(number(50, 8))) };
        let chain = Self {
            position: Position { prev, last, epoch_closed: flags & FLAG_CLOSED != 0 },
            next_index: index(46)?,
            epoch,
            open: None,
        };
        // Accept only records that `record` could have written: the checksum detects accidental
        // damage only.
        let is_sound = chain
            .position
            .last
            .is_none_or(|(last, sealed)| last < chain.next_index && Some(sealed) <= chain.epoch);
        if is_sound && chain.record() == *record { Ok(chain) } else { Err(Error::FieldOutOfRange) }
    }
}

/// Returns the checksum of a record. It detects erased flash, interrupted writes and worn-out
/// flash; it does not protect against an attacker.
fn check_of(record: &[u8; MOTESEAL_CHAIN_RECORD]) -> [u8; 8] {
    let mut check = [0; 8];
    check.copy_from_slice(&Digest::of(&[b"moteseal/c/1/chain", &record[..CHECKED]]).0[..8]);
    check
}

/// Begins the chain of a device that has never sealed anything, because its keys are new. Never
/// call it on a device that may have sealed before and has lost its record: the device would reuse
/// indices. Give that device a new name, or restore a record with a higher index.
///
/// @return `NullPointer`, `Misaligned`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_chain_start(
    chain: *mut moteseal_chain,
    device: *const moteseal_device,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        unsafe {
            let position = Position::start(Digest(given(device)?.certificate));
            begin(chain, Chain { position, next_index: SealIndex(0), epoch: None, open: None })
        }
    })
}

/// Begins a chain from its record. If a seal was open when the record was written, it is abandoned,
/// and the next seal states that the device restarted.
///
/// @param record, length  The newest stored record, `MOTESEAL_CHAIN_RECORD` bytes.
/// @return `Damaged` if the record was erased, only partly written, or altered; `Truncated` or
///         `TrailingBytes` if it has another length; `UnsupportedVersion`; `FieldOutOfRange`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_chain_restore(
    chain: *mut moteseal_chain,
    record: *const u8,
    length: usize,
) -> moteseal_error {
    call(|| {
        match length {
            0..MOTESEAL_CHAIN_RECORD => return Err(Error::Truncated),
            MOTESEAL_CHAIN_RECORD => {}
            _ => return Err(Error::TrailingBytes),
        }
        // SAFETY: the caller keeps the header's contract.
        unsafe { begin(chain, Chain::restore(fixed(record)?)?) }
    })
}

/// Opens the next seal, for events of `epoch`. The seal gets the next index, which is never used
/// again.
///
/// Make `record` durable, read it back and pass it to `moteseal_chain_persisted`. Until then, no
/// star or tree can begin.
///
/// @param epoch  The epoch of the events (see `moteseal_device_epoch`). It must not be earlier than
///        the last epoch that was opened, and no earlier seal may have closed it (`last_in_epoch`).
/// @param record  `MOTESEAL_CHAIN_RECORD` bytes to make durable.
/// @return `AlreadyOpen`, `EpochGoesBack`, `EpochOutOfRange`, `EpochClosed`, `IndexExhausted`.
///         After an error, nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_chain_open(
    chain: *mut moteseal_chain,
    device: *const moteseal_device,
    epoch: u64,
    record: *mut u8,
) -> moteseal_error {
    call(|| {
        checked(record)?;
        // SAFETY: the caller keeps the header's contract.
        let (chain, device) = unsafe { (state(chain)?, given(device)?) };
        let epoch = EpochNumber(epoch);
        chain.check(device, epoch)?;
        chain.open = Some((chain.next_index, epoch, false));
        chain.next_index.0 += 1;
        chain.epoch = Some(epoch);
        // SAFETY: as above; bytes need no alignment.
        unsafe { put(record.cast(), chain.record()) }
    })
}

/// Confirms that the record that `moteseal_chain_open` wrote is durable.
///
/// @param record, length  The record, as read back from the memory that stores it.
/// @return `Damaged` if it differs from what `moteseal_chain_open` wrote: write the record again,
///         at another address; `NotOpen`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_chain_persisted(
    chain: *mut moteseal_chain,
    record: *const u8,
    length: usize,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let (chain, record) = unsafe { (state(chain)?, bytes(record, length)?) };
        let is_kept = chain.record() == *record;
        let (_, _, persisted) = chain.open.as_mut().ok_or(Error::NotOpen)?;
        if !is_kept {
            return Err(Error::Damaged);
        }
        *persisted = true;
        Ok(())
    })
}

/// Abandons the open seal: its events are never sealed, its index is not used again, and the next
/// seal states that the device restarted.
///
/// @return `NotOpen`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_chain_abandon(chain: *mut moteseal_chain) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        unsafe { state(chain)? }.open.take().map(|_| ()).ok_or(Error::NotOpen)
    })
}

/// Writes the current record of a chain.
///
/// @param record  `MOTESEAL_CHAIN_RECORD` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_chain_record(
    chain: *const moteseal_chain,
    record: *mut u8,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract; bytes need no alignment.
        unsafe { put(record.cast(), begun(chain)?.record()) }
    })
}
