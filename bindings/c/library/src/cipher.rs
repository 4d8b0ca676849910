//! The encryption of the events of an open seal (spec/confidential.md, sections 3 and 4).

use moteseal_core::Digest;
use moteseal_core::confidential::{
    CipherError, EncryptedColumns, KeyCommitments, KeyStream, Nonce,
};
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_core::schema::Schema;

use crate::boundary::{
    Storage, array, array_ref, begin_array, bytes, bytes_mut, call, capacity, fill_array, fixed,
    given, state, wipe_bytes,
};
use crate::chain_position::moteseal_chain;
use crate::column_keys::{ColumnKey, moteseal_column_keys};
use crate::device::moteseal_device;
use crate::error::moteseal_error;
use crate::error::moteseal_error as Error;

/// The encryption of an open seal. It occupies `MOTESEAL_CIPHER_SIZE(columns)` bytes of the caller's
/// memory:
///
///     uint64_t memory[MOTESEAL_CIPHER_SIZE(2) / 8] = {0};
///     moteseal_cipher *cipher = (moteseal_cipher *)memory;
///
/// Do not store it: after a restart, the open seal is abandoned, and the next seal has other keys.
/// End it with `moteseal_cipher_wipe` when the seal is closed.
#[allow(non_camel_case_types)]
pub struct moteseal_cipher([u8; 0]);

impl Storage for moteseal_cipher {
    type Value = Cipher;
    type Element = KeyStream;
    const MARK: u32 = 0x6d73_6601;
    const FIXED: usize = 464;
    const MOST: usize = moteseal_core::confidential::MAX_ENCRYPTED;
}

/// The fixed part of a cipher's memory. An array with the key stream of each column follows it.
pub struct Cipher {
    columns: EncryptedColumns,
    commitments: KeyCommitments,
    schema: Digest,
    device: DeviceId,
    index: SealIndex,
    epoch: EpochNumber,
    record_size: u16,
    /// The number of events that have been encrypted: those with the sequence numbers below it.
    encrypted: u64,
    /// Whether the event with the next sequence number could not be encrypted. Its key stream may have
    /// been used, so no other event can get this number.
    has_failed: bool,
}

impl From<CipherError> for Error {
    fn from(error: CipherError) -> Self {
        Self::named(error.name())
    }
}

/// Returns what the statement of a seal, or an urgent event, states about its keys: nothing if no
/// column of the device is encrypted. The cipher must be that of this seal, and must have encrypted the
/// first `count` events.
///
/// # Safety
/// `cipher` is null or points to a cipher.
pub(crate) unsafe fn commitments(
    cipher: *const moteseal_cipher,
    device: &moteseal_device,
    (index, epoch): (SealIndex, EpochNumber),
    count: u64,
) -> Result<Option<KeyCommitments>, Error> {
    if cipher.is_null() {
        return if device.encrypted == 0 { Ok(None) } else { Err(Error::NoStreamSecret) };
    }
    // SAFETY: the caller's contract.
    let (cipher, _) = unsafe { array_ref(cipher)? };
    let is_of = (cipher.index, cipher.epoch, cipher.device.0, cipher.schema.0)
        == (index, epoch, device.device, device.schema);
    match (is_of, cipher.encrypted >= count) {
        (false, _) => Err(Error::NotOfThisSeal),
        (true, false) => Err(Error::NotEncrypted),
        (true, true) => Ok(Some(cipher.commitments)),
    }
}

/// Begins the encryption of the chain's open seal, and erases the keys of all earlier epochs from
/// `keys`. Afterwards store the record of the keys (`moteseal_column_keys_record`), and erase the
/// record before it.
///
/// @param cipher, size  Memory for the cipher, aligned to 8 bytes, and its size in bytes:
///        `MOTESEAL_CIPHER_SIZE(columns)` or more.
/// @param keys  The keys of the device's encrypted columns.
/// @param device  The device.
/// @param chain  A chain with an open seal. `moteseal_chain_persisted` must have confirmed its
///        record.
/// @param schema, schema_length  The device's encoded schema.
/// @param nonce  12 random bytes, other ones for every seal. A mote without a generator gets 12
///        random bytes each time it is provisioned, and combines them by exclusive or with a number
///        that it increments in flash at each start, and with the seal's index. If its flash is
///        restored from a copy, it may use a key stream twice, which shows the differences of
///        readings to others.
/// @return `NotBegun`, `NotOpen`, `NotPersisted`, `BufferTooSmall`, `NotOfThisSeal` (the schema is not
///         the device's), `WrongColumn` (the keys are for another schema), `SequenceReused` (a cipher
///         of this seal was begun with these keys before, so events would be encrypted twice),
///         `KeyErased` (the keys of the epoch have been erased), `EpochOutOfKeyRange`, an error of
///         schemas or of decoding. After an error, the cipher is not begun.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn moteseal_cipher_begin(
    cipher: *mut moteseal_cipher,
    size: usize,
    keys: *mut moteseal_column_keys,
    device: *const moteseal_device,
    chain: *mut moteseal_chain,
    schema: *const u8,
    schema_length: usize,
    nonce: *const u8,
) -> moteseal_error {
    call(|| {
        let capacity = capacity(cipher, size)?;
        // SAFETY: the caller keeps the header's contract.
        let ((of, columns), device, chain, schema, nonce) = unsafe {
            (
                array(keys)?,
                given(device)?,
                state(chain)?,
                Schema::decode(bytes(schema, schema_length)?)?,
                Nonce(*fixed(nonce)?),
            )
        };
        let ((_, id), (index, epoch)) = (device.ids(), chain.opened()?);
        if schema.digest().0 != device.schema {
            return Err(Error::NotOfThisSeal);
        }
        if of.schema != schema.digest() {
            return Err(Error::WrongColumn);
        }
        if columns.len() > capacity {
            return Err(Error::BufferTooSmall);
        }
        // The keys are those of the epoch of the newest cipher.
        let is_of_newest = |column: &ColumnKey| Ok::<_, Error>(column.path()?.epoch() == epoch);
        if of.newest == Some(index) && columns.first().map_or(Ok(false), is_of_newest)? {
            return Err(Error::SequenceReused);
        }
        let suites = schema.encrypted_columns().filter_map(|(field, _)| field.suite);
        let streams = columns.iter_mut().zip(suites).map(|(column, suite)| {
            let key = column.advance(epoch)?.epoch_key().seal_key(id, index, suite, &nonce);
            Ok(KeyStream::new(key))
        });
        // SAFETY: as above.
        let streams = unsafe { fill_array(cipher, size, streams)? };
        let commitments = KeyCommitments::new(nonce, streams.iter().map(KeyStream::key));
        let value = Cipher {
            columns: EncryptedColumns::of(&schema),
            commitments: commitments.ok_or(Error::KeyCount)?,
            schema: schema.digest(),
            device: id,
            index,
            epoch,
            record_size: device.record_size,
            encrypted: 0,
            has_failed: false,
        };
        // SAFETY: as above.
        unsafe { begin_array(cipher, streams.len(), value) };
        of.newest = Some(index);
        Ok(())
    })
}

/// Encrypts the encrypted columns of an event, in place. Then push the event to the star or tree,
/// and store it: everything but your own reading of it is ciphertext from now on.
///
/// Check an event with columns of the types bool, enum, point or text before
/// (`moteseal_record_check`).
///
/// @param sequence  The sequence number that the event gets in the seal, counted from 0: the number
///        of events pushed before it. All events of a seal are encrypted, in order, each once.
/// @param event, length  The event in the schema's format.
/// @return `NotBegun`, `WrongLength`, `SequenceReused`, `NotEncrypted` (the event before was not
///         encrypted), `RecordLength` (a text extends past the event), `KeyStreamEnd` (the seal has
///         too many events for AES-128). After `WrongLength`, `SequenceReused` and `NotEncrypted`,
///         nothing has changed. After another error, do not push the event, and close the seal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cipher_encrypt(
    cipher: *mut moteseal_cipher,
    sequence: u32,
    event: *mut u8,
    length: usize,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let ((cipher, streams), event) = unsafe { (array(cipher)?, bytes_mut(event, length)?) };
        let fits = match cipher.record_size {
            0 => event.len() <= usize::from(u16::MAX),
            size => event.len() == usize::from(size),
        };
        if !fits {
            return Err(Error::WrongLength);
        }
        let sequence = u64::from(sequence);
        if sequence > cipher.encrypted {
            return Err(Error::NotEncrypted);
        }
        if sequence < cipher.encrypted || cipher.has_failed {
            return Err(Error::SequenceReused);
        }
        cipher.has_failed = true;
        // The key streams are those of the schema.
        cipher.columns.encrypt_checked(Sequence(sequence), event, streams)?;
        (cipher.encrypted, cipher.has_failed) = (sequence + 1, false);
        Ok(())
    })
}

/// Overwrites a cipher with zeros. Null is allowed.
///
/// @param size  The size of the cipher's memory in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cipher_wipe(cipher: *mut moteseal_cipher, size: usize) {
    // SAFETY: the caller keeps the header's contract.
    unsafe { wipe_bytes(cipher.cast(), size) };
}
