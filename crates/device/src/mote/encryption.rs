//! How a mote encrypts readings before it seals them (spec/confidential.md, sections 2 and 3).
//!
//! The cipher of a seal exists only in the process that opened the seal, and is never copied. A mote
//! that was cloned, or rebuilt from a journal, knows only what the seal states about its keys. Its open
//! seal takes no further event: the next reading closes it and continues its epoch under the next index,
//! with a new nonce. No part of a key stream is therefore used twice.

use std::borrow::Cow;
use std::fmt;

use moteseal_core::confidential::KeyCommitments;
use moteseal_core::record::{EpochNumber, Sequence};
use moteseal_core::signature::Signer;

use super::Mote;
use crate::column_keys::Cipher;
use crate::seal::SealRefused;

/// The keys of the encrypted columns of one seal: what the seal states about them, and the cipher.
pub(crate) struct SealKeys {
    commitments: KeyCommitments,
    /// `None` in a copy, and after a restart.
    cipher: Option<Cipher>,
}

impl SealKeys {
    /// Returns the keys of a seal that another process has opened. They encrypt nothing.
    pub(crate) const fn stated(commitments: KeyCommitments) -> Self {
        Self { commitments, cipher: None }
    }

    /// Returns what the seal states about the keys.
    pub(crate) const fn commitments(&self) -> KeyCommitments {
        self.commitments
    }

    /// Returns whether further readings can be encrypted.
    pub(super) const fn can_encrypt(&self) -> bool {
        self.cipher.is_some()
    }

    fn encrypt(&mut self, seq: Sequence, record: &[u8]) -> Result<Vec<u8>, SealRefused> {
        let cipher = self.cipher.as_mut().ok_or(SealRefused::NoStreamSecret)?;
        let mut record = record.to_vec();
        cipher.encrypt(seq, &mut record).map_err(SealRefused::Encrypt)?;
        Ok(record)
    }
}

impl Clone for SealKeys {
    /// Returns keys that encrypt nothing.
    fn clone(&self) -> Self {
        Self::stated(self.commitments)
    }
}

impl fmt::Debug for SealKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.commitments.fmt(f)
    }
}

/// A reading that is ready to be sealed.
pub(crate) struct Prepared<'r> {
    /// The keys of the seal that the reading opens.
    pub(crate) keys: Option<SealKeys>,
    /// The record, with encrypted columns as ciphertext.
    pub(crate) record: Cow<'r, [u8]>,
}

impl<K: Signer, const N: usize> Mote<K, N> {
    /// Checks a record in plaintext and encrypts it for its place, if its schema has encrypted columns.
    /// The next call must be [`take`](Self::take) with the result.
    ///
    /// # Errors
    /// [`SealRefused`].
    pub(crate) fn prepare<'r>(
        &mut self,
        epoch: EpochNumber,
        record: &'r [u8],
    ) -> Result<Prepared<'r>, SealRefused> {
        self.check_record(record)?;
        if self.would_open(epoch, record).is_some() {
            self.check_epoch(epoch)?;
            let mut keys = self.new_keys(epoch)?;
            let encrypted = keys.as_mut().map(|keys| keys.encrypt(Sequence(0), record));
            let record = encrypted.transpose()?.map_or(Cow::Borrowed(record), Cow::Owned);
            return Ok(Prepared { keys, record });
        }
        let open = self.open.as_mut();
        let seq = Sequence(open.as_ref().map_or(0, |open| open.counters.total()));
        let keys = open.and_then(|open| open.keys.as_mut());
        let encrypted = keys.map(|keys| keys.encrypt(seq, record)).transpose()?;
        Ok(Prepared { keys: None, record: encrypted.map_or(Cow::Borrowed(record), Cow::Owned) })
    }

    /// Returns new keys for the seal that [`begin`](Self::begin) would open. Returns `None` if it would
    /// open none, or if the schema has no encrypted columns.
    ///
    /// # Errors
    /// [`SealRefused`].
    pub(crate) fn keys_to_begin(
        &self,
        epoch: EpochNumber,
    ) -> Result<Option<SealKeys>, SealRefused> {
        if self.epoch() == Some(epoch) {
            return Ok(None);
        }
        self.check_epoch(epoch)?;
        self.new_keys(epoch)
    }

    /// Returns new keys for the seal with the next index. Returns `None` if the schema has no encrypted
    /// columns.
    ///
    /// # Errors
    /// [`SealRefused`].
    pub(crate) fn new_keys(&self, epoch: EpochNumber) -> Result<Option<SealKeys>, SealRefused> {
        let cipher = self.profile.cipher(self.chain.next_index, epoch)?;
        Ok(cipher
            .map(|cipher| SealKeys { commitments: cipher.commitments(), cipher: Some(cipher) }))
    }
}
