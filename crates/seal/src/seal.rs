//! The seal: one signature over everything that a device states under one index (spec/objects.md,
//! section 6).
//!
//! A receiver rebuilds a [`Seal`] from any part of its events. The seal is [`Unverified`] until it
//! is proven by its signature, or by the hash chain from an authentic successor. There is no other
//! way to create a `Seal<Authentic>`. The signature is checked with the key that a [`Directory`]
//! has for the device, so the roster is the source of trust.

use core::fmt;
use core::marker::PhantomData;

use crate::statement::{self, Statement};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Writer};
use moteseal_core::cose::{self, Protected, Sign1, Typ};
use moteseal_core::digest::Digest;
use moteseal_core::named_errors;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_core::roster::{Directory, NoKey};
use moteseal_core::signature::{Algorithm, PublicKey, SignatureError};

/// Length of the longest message that is signed for a seal, in bytes. The message contains the
/// statement, the headers and the root.
pub const MAX_MESSAGE: usize = 1144;

/// State of a seal or sample: nothing has been verified.
#[derive(Clone, Copy, Debug)]
pub enum Unverified {}

/// State of a seal or sample: signed by the stated device, in the stated group and under the stated
/// roster.
#[derive(Clone, Copy, Debug)]
pub enum Authentic {}

/// A device's statement with its root.
///
/// `S` states what has been verified: [`Unverified`] or [`Authentic`].
pub struct Seal<S> {
    statement: Statement,
    root: Digest,
    algorithm: Algorithm,
    digest: Digest,
    proven: PhantomData<S>,
}

impl<S> Clone for Seal<S> {
    fn clone(&self) -> Self {
        Self { statement: self.statement.clone(), proven: PhantomData, ..*self }
    }
}

impl<S> fmt::Debug for Seal<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal")
            .field("statement", &self.statement)
            .field("root", &self.root)
            .field("algorithm", &self.algorithm)
            .field("digest", &self.digest)
            .finish()
    }
}

impl<S> Seal<S> {
    /// Returns the device's statement.
    #[must_use]
    pub const fn statement(&self) -> &Statement {
        &self.statement
    }

    /// Returns the payload: the root of the star or tree.
    #[must_use]
    pub const fn root(&self) -> &Digest {
        &self.root
    }

    /// Returns the algorithm of the signature.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the digest of the signed object: SHA-256 of [`message`](Self::message). The next
    /// seal contains it as `prev`.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the position in the device's chain after this seal.
    #[must_use]
    pub const fn position(&self) -> Position {
        Position {
            prev: self.digest,
            last: Some((self.statement.index, self.statement.epoch)),
            epoch_closed: self.statement.last_in_epoch,
        }
    }

    /// Returns the bytes to sign: the `Sig_structure` of RFC 9052. Signing has two steps, so that
    /// the key can be in a secure element or a remote signer: pass these bytes to the signer, and
    /// then its signature to [`encode`](Self::encode).
    #[must_use]
    pub fn message<'b>(&self, buffer: &'b mut [u8; MAX_MESSAGE]) -> &'b [u8] {
        message(&self.statement, &self.root, self.algorithm, buffer)
    }

    /// Writes the whole signed object, a tagged `COSE_Sign1`. `signature` must be over
    /// [`message`](Self::message).
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn encode(&self, out: &mut Writer<'_>, signature: &[u8]) -> Result<(), BufferTooSmall> {
        let mut buffer = [0; MAX_MESSAGE];
        let protected = protected(&self.statement, self.algorithm, &mut buffer)?;
        Sign1::encode(out, protected, &self.root.0, signature)
    }
}

impl Seal<Unverified> {
    /// Creates a seal. A device then signs it. A receiver creates it from received data and then
    /// verifies it.
    #[must_use]
    pub fn new(statement: Statement, root: Digest, algorithm: Algorithm) -> Self {
        let mut buffer = [0; MAX_MESSAGE];
        let digest = Digest::of(&[message(&statement, &root, algorithm, &mut buffer)]);
        Self { statement, root, algorithm, digest, proven: PhantomData }
    }

    /// Reads a whole signed object. Returns its signature, which is not checked.
    ///
    /// # Errors
    /// The errors of [`Sign1::decode`] and [`Statement::decode`]; `UnexpectedType` if the payload
    /// is not 32 bytes long; `UnexpectedHeader` if the header `vds` contradicts the scheme.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let object = Sign1::decode(bytes, Typ::Seal)?;
        let statement =
            Statement::decode(object.header.statement.ok_or(DecodeError::UnexpectedHeader)?)?;
        let root = Digest(object.payload.try_into().map_err(|_| DecodeError::UnexpectedType)?);
        if object.header.tree != statement.is_rfc_tree() {
            return Err(DecodeError::UnexpectedHeader);
        }
        // Encoding the statement again would give the same digest, because the encoding is
        // deterministic.
        let (algorithm, digest) = (object.header.algorithm, object.digest());
        Ok((Self { statement, root, algorithm, digest, proven: PhantomData }, object.signature))
    }

    /// Verifies the signature with the key that the directory has for the device and index.
    ///
    /// The caller cannot pass a key, because a key that the caller chooses would prove nothing
    /// about the device:
    ///
    /// ```compile_fail
    /// # use moteseal_core::signature::PublicKey;
    /// # use moteseal_seal::{Authentic, Seal, Unverified};
    /// fn forge(seal: Seal<Unverified>, my_own: &PublicKey, signature: &[u8]) -> Option<Seal<Authentic>> {
    ///     seal.verify(my_own, signature).ok()
    /// }
    /// ```
    ///
    /// # Errors
    /// [`SealError::IndexOutOfRange`] if the directory has no key, [`SealError::KeyEnded`] if the
    /// key is no longer valid, [`SealError::AlgorithmMismatch`] if the key is of another suite,
    /// otherwise [`SealError::Signature`].
    pub fn verify<D: Directory + ?Sized>(
        self,
        directory: &D,
        signature: &[u8],
    ) -> Result<Seal<Authentic>, SealError> {
        let Statement { device, index, epoch, .. } = self.statement;
        let mut verdict = Ok(());
        directory.with_key(device, index, epoch, &mut |key| {
            verdict = self.signed_by(key, signature);
        })?;
        verdict.map(|()| self.proven())
    }

    /// Checks whether this key signed the seal. The seal stays unverified, because nothing is known
    /// about the owner of the key.
    ///
    /// # Errors
    /// [`SealError::AlgorithmMismatch`] if the key is of another suite, otherwise
    /// [`SealError::Signature`].
    pub fn signed_by(&self, key: &PublicKey, signature: &[u8]) -> Result<(), SealError> {
        if key.algorithm() != self.algorithm {
            return Err(SealError::AlgorithmMismatch);
        }
        let mut buffer = [0; MAX_MESSAGE];
        key.verify(self.message(&mut buffer), signature).map_err(SealError::Signature)
    }

    /// Verifies the seal through the chain: `successor` must be an authentic seal of the same
    /// device that names this seal as its predecessor.
    ///
    /// # Errors
    /// [`SealError::PrevMismatch`].
    pub fn proven_by(self, successor: &Seal<Authentic>) -> Result<Seal<Authentic>, SealError> {
        if successor.statement.prev == self.digest
            && successor.statement.device == self.statement.device
        {
            Ok(self.proven())
        } else {
            Err(SealError::PrevMismatch)
        }
    }

    fn proven(self) -> Seal<Authentic> {
        Seal {
            statement: self.statement,
            root: self.root,
            algorithm: self.algorithm,
            digest: self.digest,
            proven: PhantomData,
        }
    }
}

/// A position in a device's chain: the predecessor that the next seal must name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// The digest of the last signed seal, or of the device's first certificate.
    pub prev: Digest,
    /// The index and the epoch of that seal; `None` before the first seal.
    pub last: Option<(SealIndex, EpochNumber)>,
    /// Whether that seal was the last of its epoch.
    pub epoch_closed: bool,
}

impl Position {
    /// Returns the position at the start of a device's chain. `certificate` is the digest of the
    /// device's first certificate.
    #[must_use]
    pub const fn start(certificate: Digest) -> Self {
        Self { prev: certificate, last: None, epoch_closed: false }
    }
}

named_errors! {
    /// Why a seal is not proven.
    SealError {
        /// The roster has no key for the device and index.
        IndexOutOfRange => "the roster has no key for the seal's device and index",
        /// The device was removed from the group, or its key was revoked, before the seal.
        KeyEnded => "the device was removed or its key was revoked before this seal",
        /// The roster's key is of another signature suite.
        AlgorithmMismatch =>
            "the seal is not signed with the signature suite of the roster's key",
        /// The signature was rejected.
        Signature(error: SignatureError) => from,
        /// The successor names another predecessor.
        PrevMismatch => "the device's next seal names another predecessor",
    }
}

impl From<NoKey> for SealError {
    fn from(error: NoKey) -> Self {
        match error {
            NoKey::Unknown => Self::IndexOutOfRange,
            NoKey::Ended => Self::KeyEnded,
        }
    }
}

/// Verifies the signature of an object with the key that the directory has for the device and index,
/// and that may sign in the epoch. `message` is what the object's signature covers. Returns `unknown`
/// if the directory has no such key.
pub(crate) fn verify_by_roster<E: From<SealError>>(
    object: &Sign1<'_>,
    message: &[u8],
    directory: &(impl Directory + ?Sized),
    (device, index, epoch): (DeviceId, SealIndex, EpochNumber),
    unknown: E,
) -> Result<(), E> {
    let mut verified = Ok(());
    let found = directory.with_key(device, index, epoch, &mut |key| {
        verified = if key.algorithm() == object.header.algorithm {
            key.verify(message, object.signature).map_err(SealError::Signature)
        } else {
            Err(SealError::AlgorithmMismatch)
        };
    });
    found.map_err(|error| match error {
        NoKey::Unknown => unknown,
        NoKey::Ended => E::from(SealError::KeyEnded),
    })?;
    verified.map_err(E::from)
}

pub(crate) fn protected<'b>(
    statement: &Statement,
    algorithm: Algorithm,
    buffer: &'b mut [u8],
) -> Result<&'b [u8], BufferTooSmall> {
    let mut text = [0; statement::MAX_LENGTH];
    let mut writer = Writer::new(&mut text);
    statement.encode(&mut writer)?;
    let text = writer.finish();
    let mut out = Writer::new(buffer);
    let header = Protected {
        tree: statement.is_rfc_tree(),
        statement: Some(text),
        ..Protected::new(algorithm, Typ::Seal)
    };
    header.encode(&mut out)?;
    Ok(out.finish())
}

#[allow(clippy::expect_used)]
fn message<'b>(
    statement: &Statement,
    root: &Digest,
    algorithm: Algorithm,
    buffer: &'b mut [u8; MAX_MESSAGE],
) -> &'b [u8] {
    let mut scratch = [0; MAX_MESSAGE];
    protected(statement, algorithm, &mut scratch)
        .and_then(|protected| cose::sig_structure(buffer, protected, &root.0))
        .expect("the longest statement fits, see statement::MAX_LENGTH")
}
