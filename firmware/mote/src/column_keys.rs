//! The keys of the mote's encrypted columns, in two pages of flash of their own (spec/mote.md, section
//! 5).
//!
//! The mote keeps, for each column, the key of the newest epoch that it has opened, and the nodes from
//! which the keys of later epochs follow. When a later epoch begins, the new keys are written to the
//! other page, and the page with the keys before them is erased. What was sealed earlier can then not
//! be decrypted with the mote's flash.

use moteseal_core::confidential::{
    ColumnId, EncryptedColumns, KeyCommitments, KeyStream, Nonce, PATH, Path, SealKey, Suite,
};
use moteseal_core::provision::{GivenKeys, NONCE_BASE};
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_core::schema::Schema;
use zeroize::Zeroizing;

use crate::fault::Fault;
use crate::flash::{Flash, FlashFailed, program};
use crate::journal::{Journal, JournalError, Page};

/// The maximum number of encrypted columns.
pub const MAX_COLUMNS: usize = 2;
/// The maximum length of a record with encrypted columns, in bytes.
pub const MAX_RECORD: usize = 32;

/// The keys of the columns, in the order of the schema.
type Paths = [Option<Path>; MAX_COLUMNS];

/// What the pages contain.
struct Held {
    /// Random bytes of the provisioning (spec/mote.md, section 1.1, rule 8). Each record has them.
    nonce_base: [u8; NONCE_BASE],
    paths: Paths,
}

/// The keys of encrypted columns, for [`Mote::encrypt_with`](crate::Mote::encrypt_with).
pub trait SealKeys {
    /// Returns the epochs of which there are keys.
    fn epochs(&self) -> (EpochNumber, EpochNumber);

    /// Makes the keys of `epoch` durable, and erases those of the epochs before it. Call this after a
    /// seal of this epoch was opened durably, and before it encrypts anything.
    ///
    /// # Errors
    /// [`Fault`].
    fn advance(&mut self, epoch: EpochNumber) -> Result<(), Fault>;

    /// Returns the encryption of a seal of the newest epoch. `starts` is the number of the mote's
    /// starts. It makes the nonce unique, with the index and the random bytes of the provisioning: the
    /// mote has no random number generator.
    fn encryption(
        &self,
        schema: &[u8],
        seal: (DeviceId, SealIndex),
        starts: u32,
    ) -> Option<Encryption>;
}

/// The encryption of an open seal. It is only in RAM: after a restart, the seal is not continued, and
/// the next one has another index and another nonce.
pub struct Encryption {
    columns: EncryptedColumns,
    commitments: KeyCommitments,
    streams: [KeyStream; MAX_COLUMNS],
    count: usize,
}

impl Encryption {
    /// Returns what the statement of the seal states about its keys.
    #[must_use]
    pub const fn commitments(&self) -> KeyCommitments {
        self.commitments
    }

    /// Returns a record with encrypted columns, or `None` if the cipher has no more key stream for this
    /// seal. No other record may be encrypted for the same `seq`.
    pub fn encrypt<'b>(
        &mut self,
        seq: Sequence,
        record: &[u8],
        buffer: &'b mut [u8; MAX_RECORD],
    ) -> Option<&'b [u8]> {
        let out = buffer.get_mut(..record.len())?;
        out.copy_from_slice(record);
        // The key streams are those of the schema.
        self.columns.encrypt_checked(seq, out, self.streams.get_mut(..self.count)?).ok()?;
        Some(out)
    }
}

/// The keys of encrypted columns, and the flash that stores them.
pub struct ColumnKeys<K> {
    held: Held,
    journal: Journal<K>,
}

fn apply(held: &mut Held, kind: u8, content: &[u8]) -> Result<(), JournalError> {
    let place = held.paths.get_mut(usize::from(kind)).ok_or(JournalError::Damaged)?;
    let (nonce_base, path) = content.split_first_chunk().ok_or(JournalError::Damaged)?;
    match Path::decode_short(path) {
        Ok((path, [])) => *place = Some(path),
        _ => return Err(JournalError::Damaged),
    }
    held.nonce_base = *nonce_base;
    Ok(())
}

fn snapshot<K: Flash>(held: &Held, page: &mut Page<'_, K>) -> Result<(), JournalError> {
    (0..).zip(held.paths.iter().flatten()).try_for_each(|(kind, path)| {
        let mut buffer = Zeroizing::new([0; PATH]);
        page.record(kind, &[&held.nonce_base, path.encode_short(&mut buffer)])
    })
}

/// Returns whether two keys of a column are of the same stream.
fn are_of_one_stream(one: &Path, other: &Path) -> bool {
    let (earlier, later) = if one.epoch() < other.epoch() { (one, other) } else { (other, one) };
    let mut earlier = earlier.clone();
    earlier.column() == later.column()
        && earlier.base() == later.base()
        && earlier.advance(later.epoch()).is_ok()
        && earlier == *later
}

/// Returns the keys that follow the provisioning blob, or `None` if there are none for this schema.
fn given(schema: &Schema<'_>, bytes: &[u8]) -> Option<Held> {
    let GivenKeys { nonce_base, paths: mut rest, .. } = GivenKeys::read(bytes)?;
    let mut paths = [const { None }; MAX_COLUMNS];
    for place in paths.iter_mut().take(schema.encrypted_count()) {
        let path;
        (path, rest) = Path::decode_short(rest).ok()?;
        *place = Some(path);
    }
    (rest.is_empty() && are_of(&paths, schema)).then_some(Held { nonce_base: *nonce_base, paths })
}

/// Returns whether these are the keys of the encrypted columns of a schema.
fn are_of(paths: &Paths, schema: &Schema<'_>) -> bool {
    let columns = schema.encrypted_columns().map(|(_, column)| column);
    columns.eq(paths.iter().flatten().map(Path::column))
}

impl<K: Flash> ColumnKeys<K> {
    /// Reads the keys of a schema's encrypted columns. `pages` has the two pages for them. `provision` is
    /// the flash after the provisioning blob. If keys are there, the mote has been provisioned anew: their
    /// nonce base is stored in the pages, and also the keys if they are of another stream. Afterwards they
    /// are erased in `provision`.
    ///
    /// # Errors
    /// `NoStreamSecret` if there are no keys of these columns; `Schema` if there are more encrypted
    /// columns than [`MAX_COLUMNS`], a longer record than [`MAX_RECORD`], or a column with a cipher that
    /// is not built in; `Journal`.
    #[inline(never)]
    pub fn open<P: Flash>(pages: K, provision: &mut P, schema: &Schema<'_>) -> Result<Self, Fault> {
        let is_long = schema.record_size().is_none_or(|size| size > MAX_RECORD);
        let mut suites = schema.encrypted_columns().filter_map(|(field, _)| field.suite);
        if schema.encrypted_count() > MAX_COLUMNS || is_long || !suites.all(Suite::is_supported) {
            return Err(Fault::Schema);
        }
        let paths = [const { None }; MAX_COLUMNS];
        let mut held = Held { nonce_base: [0; NONCE_BASE], paths };
        let mut journal = Journal::open(pages, &mut held, apply, snapshot)?;
        if let Some(mut given) = given(schema, provision.bytes()) {
            let mut pairs = held.paths.iter().flatten().zip(given.paths.iter().flatten());
            let are_known = pairs.all(|(held, given)| are_of_one_stream(held, given))
                && are_of(&held.paths, schema);
            if are_known {
                core::mem::swap(&mut held.paths, &mut given.paths);
            }
            if !are_known || held.nonce_base != given.nonce_base {
                journal.rewrite(&given, snapshot)?;
            }
            held = given;
        }
        if !are_of(&held.paths, schema) {
            return Err(Fault::NoKeys);
        }
        erase(provision)?;
        Ok(Self { held, journal })
    }

    /// Returns the flash.
    pub fn into_flash(self) -> K {
        self.journal.into_flash()
    }
}

/// Erases the keys that follow the provisioning blob: programs them to zeros, their head last, so that
/// an interrupted erasure is continued.
fn erase<P: Flash>(provision: &mut P) -> Result<(), FlashFailed> {
    let length = GivenKeys::read(provision.bytes()).map_or(0, |given| given.length);
    (0..length.next_multiple_of(4))
        .rev()
        .filter(|at| at % 4 == 0)
        .try_for_each(|at| program(provision, at, [0; 4]))
}

impl<K: Flash> SealKeys for ColumnKeys<K> {
    fn epochs(&self) -> (EpochNumber, EpochNumber) {
        let path = self.held.paths.iter().flatten().next();
        let epochs = path.map(|path| (path.epoch(), path.base().0.saturating_add(u32::MAX.into())));
        epochs.map(|(first, last)| (first, EpochNumber(last))).unwrap_or_default()
    }

    #[inline(never)]
    fn advance(&mut self, epoch: EpochNumber) -> Result<(), Fault> {
        if self.epochs().0 == epoch {
            return Ok(());
        }
        for path in self.held.paths.iter_mut().flatten() {
            path.advance(epoch).map_err(|_| Fault::NoKeys)?;
        }
        Ok(self.journal.rewrite(&self.held, snapshot)?)
    }

    #[inline(never)]
    fn encryption(
        &self,
        schema: &[u8],
        (device, index): (DeviceId, SealIndex),
        starts: u32,
    ) -> Option<Encryption> {
        let schema = Schema::decode(schema).ok()?;
        let mut nonce = Nonce(self.held.nonce_base);
        let place = u64::from(starts) << 32 | u64::from(index.0);
        nonce.0.iter_mut().zip(place.to_be_bytes()).for_each(|(byte, place)| *byte ^= place);
        // The places of columns that the schema does not have are never used.
        let unused = SealKey::from_bytes(ColumnId([0; 16]), Suite::ChaCha20, [0; 32]);
        let mut streams = core::array::from_fn(|_| KeyStream::new(unused.clone()));
        let mut count = 0;
        let columns = self.held.paths.iter().flatten().zip(schema.encrypted_columns());
        for (place, (path, (field, _))) in streams.iter_mut().zip(columns) {
            let key = path.epoch_key().seal_key(device, index, field.suite?, &nonce);
            *place = KeyStream::new(key);
            count += 1;
        }
        if count != schema.encrypted_count() {
            return None;
        }
        let commitments =
            KeyCommitments::new(nonce, streams.get(..count)?.iter().map(KeyStream::key))?;
        Some(Encryption { columns: EncryptedColumns::of(&schema), commitments, streams, count })
    }
}
