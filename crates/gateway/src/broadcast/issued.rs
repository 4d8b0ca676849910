//! The record of a base station: the certificates that it has issued, and its newest revocation for
//! each network.
//!
//! A revocation lists everything that the base station has revoked (spec/broadcast.md, section 1.5),
//! and no two certificates have the same serial. The record provides both. An object is recorded
//! before it is written to its file, so that the record is never behind. Every object is verified
//! again when the record is opened.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use moteseal_api::ErrorKind;
use moteseal_broadcast::{Revocation, Revoked, SenderCertificate};
use moteseal_core::record::NetworkId;
use moteseal_core::signature::PublicKey;
use moteseal_store::Journal;
use moteseal_store::journal::JournalError;

/// The kinds of records.
const CERTIFICATE: u8 = 1;
const REVOCATION: u8 = 2;

/// Why the record of a base station cannot be read or extended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IssuedError {
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The file contains something that this base station has not signed.
    #[error("{} is not the record of this base station; restore it from a backup", .0.display())]
    NotARecord(PathBuf),
    /// A certificate with this serial exists.
    #[error("serial {serial} is in use, for sender {sender}; the next free serial is {free}")]
    SerialUsed {
        /// The serial.
        serial: u64,
        /// The name or id of the sender that has a certificate with this serial.
        sender: String,
        /// The lowest serial above all that are in use.
        free: u64,
    },
}

impl IssuedError {
    /// Returns the error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Journal(error) => error.name(),
            Self::NotARecord(_) => "NotARecord",
            Self::SerialUsed { .. } => "SerialUsed",
        }
    }

    /// Returns the error's kind.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::SerialUsed { .. } => ErrorKind::Usage,
            _ => ErrorKind::Internal,
        }
    }
}

moteseal_api::named_error!(IssuedError);

/// A certificate in the record of its base station.
#[derive(Clone, Debug)]
pub struct IssuedCertificate {
    /// The name under which the sender was certified, if the base station knew it.
    pub name: Option<String>,
    /// The certificate.
    pub bytes: Vec<u8>,
    /// The network of the certificate.
    pub network: NetworkId,
    /// The certificate's serial.
    pub serial: u64,
}

/// The record of a base station.
#[derive(Debug)]
pub struct Issued {
    path: PathBuf,
    journal: Journal,
    base: PublicKey,
    certificates: Vec<IssuedCertificate>,
    revoked: BTreeMap<NetworkId, Revoked>,
}

impl Issued {
    /// Opens the record of the base station with the key `base`, or creates an empty one.
    ///
    /// # Errors
    /// [`IssuedError`]. `JournalLocked` if another process extends the record.
    pub fn open(path: &Path, base: &PublicKey) -> Result<Self, IssuedError> {
        Self::read(path, Journal::open_strict(path)?, base)
    }

    /// Opens an existing record for reading.
    ///
    /// # Errors
    /// [`IssuedError`].
    pub fn open_frozen(path: &Path, base: &PublicKey) -> Result<Self, IssuedError> {
        Self::read(path, Journal::open_frozen(path, 0)?, base)
    }

    fn read(path: &Path, journal: Journal, base: &PublicKey) -> Result<Self, IssuedError> {
        let records = journal.iter().collect::<Result<Vec<_>, _>>()?;
        let (certificates, revoked) = (Vec::new(), BTreeMap::new());
        let mut issued =
            Self { path: path.to_owned(), journal, base: base.clone(), certificates, revoked };
        for record in records {
            issued.apply(&record).ok_or_else(|| IssuedError::NotARecord(issued.path.clone()))?;
        }
        Ok(issued)
    }

    /// Adds the content of a record. Returns `None` if this base station has not signed it.
    fn apply(&mut self, record: &[u8]) -> Option<()> {
        let base = &self.base;
        match record.split_first()? {
            (&CERTIFICATE, rest) => {
                let (&length, rest) = rest.split_first()?;
                let (name, bytes) = rest.split_at_checked(usize::from(length))?;
                let network = SenderCertificate::peek(bytes).ok()?.network;
                let serial = SenderCertificate::open(bytes, network, base).ok()?.serial;
                let name = std::str::from_utf8(name).ok()?;
                self.certificates.push(IssuedCertificate {
                    name: (!name.is_empty()).then(|| name.to_owned()),
                    bytes: bytes.to_vec(),
                    network,
                    serial,
                });
            }
            (&REVOCATION, rest) => {
                let (network, bytes) = rest.split_first_chunk::<8>()?;
                let network = NetworkId(*network);
                let (revocation, _) =
                    Revocation::open(bytes, network, std::slice::from_ref(base)).ok()?;
                self.revoked.insert(network, *revocation.revoked());
            }
            _ => return None,
        }
        Some(())
    }

    /// Durably records a certificate of the base station.
    ///
    /// # Errors
    /// [`IssuedError`]; `SerialUsed` if a certificate with the same serial is recorded.
    pub fn certify(&mut self, name: Option<&str>, certificate: &[u8]) -> Result<(), IssuedError> {
        let name = name.unwrap_or_default();
        let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
        let name = name.as_bytes().get(..usize::from(length)).unwrap_or_default();
        let record = [&[CERTIFICATE, length][..], name, certificate].concat();
        let claim = SenderCertificate::peek(certificate);
        if let Ok(claim) = claim
            && let Some(known) = self.certificates.iter().find(|of| of.serial == claim.serial)
        {
            let id = SenderCertificate::peek(&known.bytes).map(|claim| claim.sender.to_string());
            let highest = self.certificates.iter().map(|of| of.serial).max().unwrap_or_default();
            return Err(IssuedError::SerialUsed {
                serial: claim.serial,
                sender: known.name.clone().or(id.ok()).unwrap_or_default(),
                free: highest.saturating_add(1),
            });
        }
        self.add(&record)
    }

    /// Durably records a revocation of the base station for a network. It must cover
    /// [`revoked`](Self::revoked).
    ///
    /// # Errors
    /// [`IssuedError`].
    pub fn revoke(&mut self, network: NetworkId, revocation: &[u8]) -> Result<(), IssuedError> {
        self.add(&[&[REVOCATION][..], &network.0, revocation].concat())
    }

    fn add(&mut self, record: &[u8]) -> Result<(), IssuedError> {
        self.apply(record).ok_or_else(|| IssuedError::NotARecord(self.path.clone()))?;
        self.journal.append(record)?;
        Ok(self.journal.sync()?)
    }

    /// Returns the recorded certificates in the order of their issue.
    #[must_use]
    pub fn certificates(&self) -> &[IssuedCertificate] {
        &self.certificates
    }

    /// Returns what the base station has revoked in a network.
    #[must_use]
    pub fn revoked(&self, network: NetworkId) -> Revoked {
        self.revoked.get(&network).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use moteseal_broadcast::{
        KeyId, MAX_REVOCATION, MAX_SENDER_CERTIFICATE, RevocationDraft, SenderCertificateDraft,
        sender_named,
    };
    use moteseal_core::signature::{Algorithm, SecretKey};

    use super::*;

    const NETWORK: NetworkId = NetworkId(*b"network1");

    fn certificate(base: &SecretKey, serial: u64) -> Vec<u8> {
        let draft = SenderCertificateDraft {
            network: NETWORK,
            base: KeyId::of(&base.public()),
            serial,
            sender: sender_named("ops"),
            key: &base.public(),
            not_before: 0,
            not_after: u64::MAX,
        };
        draft.issue(base, &mut [0; MAX_SENDER_CERTIFICATE]).unwrap().to_vec()
    }

    #[test]
    fn a_reopened_record_has_every_certificate_and_the_newest_revocation() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("base.certificates");
        let base = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap();
        let public = base.public();
        for serial in 1..4 {
            let name = (serial == 1).then_some("ops");
            let mut issued = Issued::open(&path, &public).unwrap();
            issued.certify(name, &certificate(&base, serial)).unwrap();
            let again = issued.certify(None, &certificate(&base, 1)).unwrap_err();
            assert_eq!(again.name(), "SerialUsed");
            let revoked = issued.revoked(NETWORK).and(serial).unwrap();
            let draft = RevocationDraft { network: NETWORK, base: &public, revoked };
            let revocation = draft.issue(&base, &mut [0; MAX_REVOCATION]).unwrap().to_vec();
            issued.revoke(NETWORK, &revocation).unwrap();
        }
        let issued = Issued::open_frozen(&path, &public).unwrap();
        let listed: Vec<_> =
            issued.certificates().iter().map(|of| (of.serial, of.name.as_deref())).collect();
        assert_eq!(listed, [(1, Some("ops")), (2, None), (3, None)]);
        assert_eq!(issued.revoked(NETWORK).serials(), [1, 2, 3]);
        assert_eq!(issued.revoked(NetworkId([0; 8])), Revoked::NONE);
        drop(issued);
        let other = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32]).unwrap().public();
        assert_eq!(Issued::open_frozen(&path, &other).unwrap_err().name(), "NotARecord");
    }
}
