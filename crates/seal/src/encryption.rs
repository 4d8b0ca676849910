//! Encryption of the events of a seal, and the keys that decrypt them (spec/confidential.md).
//!
//! A device encrypts a record first, and then adds it to a star or tree. The star or tree, and every
//! program that stores, samples or verifies the seal, works on ciphertext:
//!
//! ```
//! use moteseal_core::confidential::{EncryptedColumns, KeyStream, Nonce, StreamSecret};
//! use moteseal_core::record::{Framing, Sequence};
//! use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
//! use moteseal_core::{DeviceId, EpochNumber, SealIndex};
//! use moteseal_seal::Star;
//! use moteseal_seal::encryption::SealCipher;
//! use moteseal_seal::level::SaltKey;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut buffer = [0; MAX_SCHEMA];
//! let schema = Schema::encode(&[Field::parse("temperature:Cel:i16/100!")?], &mut buffer)?;
//! let (device, index, epoch) = (DeviceId::of("home", "dev1"), SealIndex(0), EpochNumber(5));
//! // In production, take the secret and the nonce from a source of randomness.
//! let secret = StreamSecret::new([1; 32], EpochNumber(0));
//! let nonce = Nonce([2; 12]);
//! let mut streams = Vec::new();
//! for (field, column) in schema.encrypted_columns() {
//!     let key = secret.column(column).epoch_key(epoch)?;
//!     let suite = field.suite.ok_or("not encrypted")?;
//!     streams.push(KeyStream::new(key.seal_key(device, index, suite, &nonce)));
//! }
//! let mut cipher = SealCipher::new(&schema, nonce, streams)?;
//!
//! let salt = SaltKey::new([2; 32]).salt(device, index);
//! let framing = Framing::fixed(2).ok_or("no record has 0 bytes")?;
//! let mut star = Star::<8>::new(device, index, &salt, framing);
//! let mut record = [0x0a, 0xed];
//! cipher.encrypt(Sequence(0), &mut record)?;
//! assert_ne!(record, [0x0a, 0xed]);
//! star.push(&record)?;
//! // The statement of the seal states the nonce and the commitments.
//! let keys = Some(cipher.commitments());
//! # assert!(keys.is_some());
//! # Ok(())
//! # }
//! ```

use core::fmt;

use crate::seal::{Authentic, Seal};
use moteseal_core::confidential::{
    CipherError, EncryptedColumns, KeyAccessError, KeyCommitments, KeyStream, Nodes, Nonce, SealKey,
};
use moteseal_core::named_errors;
use moteseal_core::record::Sequence;
use moteseal_core::schema::{RecordCheck, RecordError, Schema};

named_errors! {
    /// Why a record was not encrypted for a seal.
    EncryptError {
        /// A key is for another column.
        WrongColumn => "a key is for another column of the schema",
        /// The event has been encrypted before, or a later one has.
        SequenceReused => "an event with this number or a later one has been encrypted already",
        /// The record is not a valid record in plaintext.
        Record(error: RecordError) => from,
        /// The cipher failed.
        Cipher(error: CipherError) => from,
    }
}

/// The encryption of one open seal. `S` holds the key streams: an array or a `Vec`.
///
/// It encrypts each event at most once, because two encryptions with one part of the key stream would
/// show the difference of their plaintexts. It must not be stored: after a restart, an open seal with
/// encrypted columns takes no further event.
pub struct SealCipher<S> {
    columns: EncryptedColumns,
    check: Option<RecordCheck>,
    commitments: KeyCommitments,
    streams: S,
    next: u64,
}

impl<S> fmt::Debug for SealCipher<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealCipher")
            .field("commitments", &self.commitments)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl<S: AsMut<[KeyStream]>> SealCipher<S> {
    /// Creates the encryption of a seal. `streams` has the key stream of each encrypted column, in the
    /// order of the schema, derived with `nonce`.
    ///
    /// # Errors
    /// `KeyCount` if the number of key streams is not that of the encrypted columns, or 0;
    /// `WrongColumn`; `WrongSuite`.
    pub fn new(schema: &Schema<'_>, nonce: Nonce, streams: S) -> Result<Self, EncryptError> {
        let mut streams = streams;
        let keys = streams.as_mut();
        if keys.len() != schema.encrypted_count() {
            return Err(CipherError::KeyCount.into());
        }
        for ((field, column), stream) in schema.encrypted_columns().zip(&*keys) {
            if stream.key().column() != column {
                return Err(EncryptError::WrongColumn);
            }
            if field.suite != Some(stream.key().suite()) {
                return Err(CipherError::WrongSuite.into());
            }
        }
        let commitments = KeyCommitments::new(nonce, keys.iter().map(KeyStream::key));
        Ok(Self {
            columns: EncryptedColumns::of(schema),
            check: RecordCheck::of_plain(schema),
            commitments: commitments.ok_or(CipherError::KeyCount)?,
            streams,
            next: 0,
        })
    }

    /// Returns what the statement of the seal states about its keys.
    #[must_use]
    pub const fn commitments(&self) -> KeyCommitments {
        self.commitments
    }

    /// Checks a record in plaintext and encrypts it, in place. `seq` is its place in the seal. Call it
    /// before the star, the tree or a journal takes the record.
    ///
    /// # Errors
    /// `RecordLength` or `RecordValue` if the record is not valid, and `SequenceReused`: the record is
    /// then unchanged. For other errors it is unspecified and must not be sealed.
    #[inline]
    pub fn encrypt(&mut self, seq: Sequence, record: &mut [u8]) -> Result<(), EncryptError> {
        if seq.0 < self.next {
            return Err(EncryptError::SequenceReused);
        }
        if let Some(check) = &self.check {
            check.check(record)?;
        }
        self.next = seq.0.checked_add(1).ok_or(EncryptError::SequenceReused)?;
        let streams = self.streams.as_mut();
        // `new` has checked the key streams.
        match self.columns.encrypt_checked(seq, record, streams) {
            Ok(()) => Ok(()),
            Err(error) => Err(refused(error)),
        }
    }
}

/// Converts the error outside of the loop that encrypts event after event: there, the conversion would take
/// time for every event.
#[cold]
const fn refused(error: CipherError) -> EncryptError {
    EncryptError::Cipher(error)
}

named_errors! {
    /// Why the key of a column is not available for a seal.
    ColumnKeyError {
        /// The seal names another schema.
        SchemaUnknown => "the seal names another schema",
        /// The schema has no such encrypted column, or the keys are of a column that it does not have.
        WrongColumn => "the keys are for a column that the schema does not have",
        /// The key is not available or is not the one that the device used.
        Key(error: KeyAccessError) => from,
    }
}

impl Seal<Authentic> {
    /// Returns the key of a column of this seal, checked against the commitment in the statement.
    /// Only an authentic seal has this method, so nothing is decrypted before its proof has been
    /// verified. `nodes` names the column.
    ///
    /// # Errors
    /// [`ColumnKeyError`]: `NotCovered` if no node covers the seal's epoch, `WrongKey` if the nodes are
    /// of another stream secret.
    pub fn column_key(
        &self,
        schema: &Schema<'_>,
        nodes: &Nodes<'_>,
    ) -> Result<SealKey, ColumnKeyError> {
        let statement = self.statement();
        if schema.digest() != statement.schema {
            return Err(ColumnKeyError::SchemaUnknown);
        }
        let keys = statement.keys.as_ref().ok_or(ColumnKeyError::WrongColumn)?;
        let mut columns = schema.encrypted_columns().zip(keys.commitments());
        let ((field, _), commitment) = columns
            .find(|((_, column), _)| *column == nodes.column())
            .ok_or(ColumnKeyError::WrongColumn)?;
        let suite = field.suite.ok_or(ColumnKeyError::WrongColumn)?;
        let key = nodes.epoch_key(statement.epoch)?;
        let key = key.seal_key(statement.device, statement.index, suite, &keys.nonce());
        key.check(commitment)?;
        Ok(key)
    }
}
