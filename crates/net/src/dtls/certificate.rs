//! X.509 certificates: which are presented, and which are trusted.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use dimpl::DtlsCertificate;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, TrustAnchor, UnixTime};
use sha2::{Digest as _, Sha256};
use webpki::{EndEntityCert, Error, KeyUsage};
use zeroize::Zeroizing;

use super::{DtlsError, Identity, engine};
use crate::LinkError;
use crate::error::BadFile;
use crate::file::read_small;
use crate::mqtt::named;
use crate::tls;

/// The maximum size of a file with a key, in bytes.
const MAX_KEY_FILE: u64 = 64 << 10;
/// What the URI of a device's certificate starts with.
const DEVICE: &str = "urn:moteseal:device:";

/// A certificate with its key, and the authority whose certificates are trusted. `Debug` does not
/// print the key.
pub struct Certificates {
    certificate: Vec<u8>,
    key: Zeroizing<Vec<u8>>,
    authority: Authority,
}

/// An authority, and the clock by which the validity of its certificates is checked.
#[derive(Clone)]
pub struct Authority {
    anchors: Arc<Vec<TrustAnchor<'static>>>,
    clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificates(secret key)")
    }
}

impl Certificates {
    /// Reads a certificate and its key from PEM files. The key is an ECDSA key on P-256 or P-384.
    /// Only the first certificate of the file is presented: the authority must have issued it
    /// directly.
    ///
    /// # Errors
    /// `BadFile`.
    pub fn load(certificate: &Path, key: &Path, authority: Authority) -> Result<Self, LinkError> {
        let chain = tls::certificates(certificate)?;
        let leaf = chain.first().map(|leaf| leaf.to_vec()).unwrap_or_default();
        let pem = Zeroizing::new(read_small(key, MAX_KEY_FILE)?);
        let secret = PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|_| BadFile::new(key, "contains no private key in PEM"))?;
        let bad = |cause: String| BadFile::new(key, cause);
        engine::provider()
            .key_provider
            .load_private_key(secret.secret_der())
            .map_err(|_| bad("contains no ECDSA key on P-256 or P-384".to_owned()))?;
        let signer = rustls::crypto::aws_lc_rs::sign::any_ecdsa_type(&secret)
            .map_err(|error| bad(error.to_string()))?;
        rustls::sign::CertifiedKey::new(chain, signer)
            .keys_match()
            .map_err(|error| bad(format!("does not belong to the certificate: {error}")))?;
        let key = Zeroizing::new(secret.secret_der().to_vec());
        Ok(Self { certificate: leaf, key, authority })
    }

    pub(super) fn pair(&self) -> DtlsCertificate {
        DtlsCertificate { certificate: self.certificate.clone(), private_key: self.key.to_vec() }
    }

    pub(super) fn authority(&self) -> Authority {
        self.authority.clone()
    }

    pub(super) fn into_authority(self) -> Authority {
        self.authority
    }
}

impl Authority {
    /// Reads the certificates of an authority from a PEM file. `clock` returns the time at which
    /// certificates must be valid, usually [`SystemTime::now`].
    ///
    /// # Errors
    /// `BadFile`.
    pub fn load(
        path: &Path,
        clock: impl Fn() -> SystemTime + Send + Sync + 'static,
    ) -> Result<Self, LinkError> {
        let mut anchors = Vec::new();
        for certificate in tls::certificates(path)? {
            let anchor = webpki::anchor_from_trusted_cert(&certificate).map_err(|error| {
                BadFile::new(path, format!("not the certificate of an authority: {error}"))
            })?;
            anchors.push(anchor.to_owned());
        }
        Ok(Self { anchors: Arc::new(anchors), clock: Arc::new(clock) })
    }

    /// Verifies the certificate of a client, and returns its identity.
    pub(super) fn verify_client(&self, certificate: &[u8]) -> Result<Identity, DtlsError> {
        self.verify(certificate, KeyUsage::client_auth(), None)
    }

    /// Verifies the certificate of a server with this name, and returns its identity.
    pub(super) fn verify_server(
        &self,
        certificate: &[u8],
        name: &ServerName<'_>,
    ) -> Result<Identity, DtlsError> {
        self.verify(certificate, KeyUsage::server_auth(), Some(name))
    }

    fn verify(
        &self,
        certificate: &[u8],
        usage: KeyUsage,
        name: Option<&ServerName<'_>>,
    ) -> Result<Identity, DtlsError> {
        let not_trusted = |error: Error| DtlsError::NotTrusted { cause: cause(&error) };
        let now = (self.clock)().duration_since(UNIX_EPOCH).unwrap_or_default();
        let der = CertificateDer::from(certificate);
        let leaf = EndEntityCert::try_from(&der).map_err(not_trusted)?;
        leaf.verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            &self.anchors,
            &[],
            UnixTime::since_unix_epoch(now),
            usage,
            None,
            None,
        )
        .map_err(not_trusted)?;
        if let Some(name) = name {
            leaf.verify_is_valid_for_subject_name(name).map_err(not_trusted)?;
        }
        let mut devices = leaf.valid_uri_names().filter_map(|uri| uri.strip_prefix(DEVICE));
        let device = match (devices.next(), devices.next()) {
            (None, _) => None,
            (Some(digits), None) => Some(named(digits.as_bytes()).ok_or_else(|| {
                DtlsError::NotTrusted { cause: format!("it names the device {digits:?}") }
            })?),
            _ => return Err(DtlsError::NotTrusted { cause: "it names two devices".to_owned() }),
        };
        let key = Sha256::digest(leaf.subject_public_key_info()).into();
        Ok(Identity::Certificate { device, fingerprint: Sha256::digest(certificate).into(), key })
    }
}

fn cause(error: &Error) -> String {
    match error {
        Error::CertExpired { .. } => "it has expired".to_owned(),
        Error::CertNotValidYet { .. } => "it is not valid yet".to_owned(),
        Error::UnknownIssuer | Error::InvalidSignatureForPublicKey => {
            "the configured authority did not issue it".to_owned()
        }
        Error::CertNotValidForName(_) => "it is for another name".to_owned(),
        Error::RequiredEkuNotFoundContext(_) => {
            "its extended key usage does not permit this side of a connection".to_owned()
        }
        Error::CaUsedAsEndEntity => "it is the certificate of an authority".to_owned(),
        other => other.to_string(),
    }
}
