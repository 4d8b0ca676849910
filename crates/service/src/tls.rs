//! Reads TLS certificates and keys from PEM files. The cryptographic provider of the whole process
//! is aws-lc-rs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use moteseal_api::ErrorKind;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use sha2::{Digest as _, Sha256};
pub(crate) use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::warn;

use crate::client_key::ClientKey;
use crate::tls_files::TlsFiles;

/// A server's certificate that ends within this time causes a warning.
const SOON: Duration = Duration::from_hours(30 * 24);
/// A time after the end of every certificate, whose year has four digits.
const AFTER_ALL: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(1_000_000_000_000));

/// Why TLS files cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The certificate chain cannot be read.
    #[error("cannot read the certificates in {}: {error}", path.display())]
    Chain {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: pem::Error,
    },
    /// The certificate file has no certificate.
    #[error("there is no certificate in {}; it must contain a PEM chain", .0.display())]
    EmptyChain(PathBuf),
    /// The private key cannot be read.
    #[error("cannot read the private key in {}: {error}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: pem::Error,
    },
    /// The certificate is not an X.509 certificate that this program can read.
    #[error("cannot use the certificate in {}: {error}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: rustls::Error,
    },
    /// The key does not belong to the certificate, or the server does not support the key or the
    /// certificate.
    #[error(
        "cannot serve TLS with {} and {}: {error}", files.chain.display(), files.key.display()
    )]
    Mismatch {
        /// The files.
        files: Box<TlsFiles>,
        /// The cause.
        error: rustls::Error,
    },
}

impl TlsError {
    /// Returns the error's name, `BadFile`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        "BadFile"
    }

    /// Always returns [`ErrorKind::Usage`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

/// Reads the files and returns an acceptor for TLS connections with HTTP/1.1 as their application
/// protocol.
///
/// # Errors
/// [`TlsError`] names the file and the cause.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
    // This call fails if the process already has a provider. That provider is then used.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let chain = certificates(&files.chain)?;
    if let Some(end) = chain.first().and_then(end_of) {
        warn_of(end, &files.chain);
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| TlsError::Key { path: files.key.clone(), error })?;
    let builder = ServerConfig::builder();
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let cannot = |error| TlsError::Certificate { path: path.clone(), error };
            let mut roots = RootCertStore::empty();
            for authority in certificates(path)? {
                roots.add(authority).map_err(cannot)?;
            }
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots))
                .allow_unauthenticated()
                .build()
                .map_err(|error| cannot(rustls::Error::General(error.to_string())))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| TlsError::Mismatch { files: Box::new(files.clone()), error })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if files.client_ca.is_some() {
        // A resumed session would keep the client's certificate beyond the end of its validity.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Returns the Unix time at which the validity of a certificate ends, or `None` if it cannot be read.
fn end_of(certificate: &CertificateDer<'_>) -> Option<Duration> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    // The library has no function for it. It checks the time first, and its error states the end.
    let usage = webpki::KeyUsage::server_auth();
    match certificate.verify_for_usage(&[], &[], &[], AFTER_ALL, usage, None, None) {
        Err(webpki::Error::CertExpired { not_after, .. }) => {
            Some(Duration::from_secs(not_after.as_secs()))
        }
        _ => None,
    }
}

/// Logs a warning if a server's certificate has expired or ends soon. `end` is a Unix time.
fn warn_of(end: Duration, file: &Path) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let days = |time: Duration| time.as_secs() / (24 * 60 * 60);
    let file = file.display();
    match end.checked_sub(now) {
        None => warn!(
            %file,
            "the certificate of this server expired {} days ago, and clients refuse it; renew it, and restart this process",
            days(now.saturating_sub(end))
        ),
        Some(left) if left < SOON => warn!(
            %file,
            "the certificate of this server expires in {} days; renew it, and restart this process",
            days(left)
        ),
        Some(_) => {}
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| TlsError::Chain { path: path.to_owned(), error })?;
    if chain.is_empty() { Err(TlsError::EmptyChain(path.to_owned())) } else { Ok(chain) }
}

/// Returns the key of the certificate that the client of a connection has presented and proven to
/// own.
pub(crate) fn client_key<S>(stream: &TlsStream<S>) -> Option<ClientKey> {
    let (_, connection) = stream.get_ref();
    key_of(connection.peer_certificates()?.first()?).ok()
}

/// Reads the key of the first certificate in a PEM file.
///
/// # Errors
/// [`TlsError`] names the file and the cause.
pub fn certificate_key(path: &Path) -> Result<ClientKey, TlsError> {
    let chain = certificates(path)?;
    let first = chain.first().ok_or_else(|| TlsError::EmptyChain(path.to_owned()))?;
    key_of(first).map_err(|error| TlsError::Certificate {
        path: path.to_owned(),
        error: rustls::Error::General(error.to_string()),
    })
}

fn key_of(certificate: &CertificateDer<'_>) -> Result<ClientKey, webpki::Error> {
    let certificate = webpki::EndEntityCert::try_from(certificate)?;
    Ok(ClientKey(Sha256::digest(certificate.subject_public_key_info()).into()))
}
