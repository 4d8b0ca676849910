//! Backups of an owner's file (spec/grants.md, section 5): encrypted for recipients or with a
//! passphrase, or for a new identity whose secret is split into three shares, any two of which
//! restore it.

use bech32::{FromBase32 as _, ToBase32 as _, Variant};
use zeroize::Zeroizing;

use crate::envelope::{EnvelopeError, Identity, Recipients, Unlock, decrypt, encrypt};
use crate::owner::{Owner, OwnerError, OwnerFileError};
use crate::share::{self, SHARES, Share, ShareError};

/// The human-readable part of the text of an age identity.
const IDENTITY: &str = "age-secret-key-";

moteseal_core::named_errors! {
    /// Why a backup was not made or not restored.
    BackupError {
        /// The owner's file cannot be encoded.
        Owner(error: OwnerError) => from,
        /// The backup was not encrypted or decrypted.
        Envelope(error: EnvelopeError) => from,
        /// The content of the backup was rejected.
        File(error: OwnerFileError) => from,
        /// The shares were rejected.
        Share(error: ShareError) => from,
        /// The operating system has no random numbers.
        NoRandomness => "the system has no random numbers",
    }
}

impl Owner {
    /// Encrypts the owner's file. With `armour`, the backup is text in the form of PEM.
    ///
    /// # Errors
    /// [`BackupError`].
    pub fn backup(&self, recipients: &Recipients, armour: bool) -> Result<Vec<u8>, BackupError> {
        Ok(encrypt(&self.encode()?, recipients, armour)?)
    }

    /// Encrypts the owner's file for a new identity, and splits the identity into three shares. Any two
    /// of them restore the file; the identity itself is not kept.
    ///
    /// # Errors
    /// [`BackupError`].
    pub fn backup_with_shares(
        &self,
        armour: bool,
    ) -> Result<(Vec<u8>, [Share; SHARES]), BackupError> {
        let (mut set, mut slope) = ([0; 4], Zeroizing::new([0; 32]));
        getrandom::fill(&mut set).map_err(|_| BackupError::NoRandomness)?;
        getrandom::fill(&mut *slope).map_err(|_| BackupError::NoRandomness)?;
        let identity = Identity::generate();
        let shares = share::split(&*secret_of(&identity)?, set, &slope);
        let recipients = Recipients::Keys(vec![identity.recipient().clone()]);
        Ok((self.backup(&recipients, armour)?, shares))
    }

    /// Decrypts a backup.
    ///
    /// # Errors
    /// [`BackupError`].
    pub fn restore(backup: &[u8], unlock: &Unlock) -> Result<Self, BackupError> {
        let (file, _) = decrypt(backup, unlock)?;
        Ok(Self::decode(&file)?)
    }

    /// Decrypts a backup with two or three shares.
    ///
    /// # Errors
    /// [`BackupError`]; `NoMatchingKey` if the shares are those of another backup.
    pub fn restore_with_shares(backup: &[u8], shares: &[Share]) -> Result<Self, BackupError> {
        let secret = share::join(shares)?;
        let text = bech32::encode(IDENTITY, secret.to_base32(), Variant::Bech32);
        let text = Zeroizing::new(text.unwrap_or_default());
        let identity = Identity::parse(&text)?;
        Self::restore(backup, &Unlock::Identities(vec![identity]))
    }
}

/// Returns the 32 secret bytes of an identity.
fn secret_of(identity: &Identity) -> Result<Zeroizing<[u8; 32]>, BackupError> {
    let text = identity.expose();
    let decoded = bech32::decode(&text).and_then(|(_, digits, _)| Vec::<u8>::from_base32(&digits));
    let bytes = Zeroizing::new(decoded.unwrap_or_default());
    let secret: Result<[u8; 32], _> = bytes.as_slice().try_into();
    secret.map(Zeroizing::new).map_err(|_| EnvelopeError::InvalidIdentity { line: 1 }.into())
}
