//! Reads TLS certificates and keys from PEM files. The cryptographic provider of the whole process
//! is aws-lc-rs.

use std::path::PathBuf;
use std::sync::Arc;

use moteseal_api::ErrorKind;
use rustls::ServerConfig;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
pub(crate) use tokio_rustls::TlsAcceptor;

use crate::tls_files::TlsFiles;

/// Why TLS files cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The certificate chain cannot be read.
    #[error("cannot read the certificate chain in {}: {error}", path.display())]
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
    /// The key does not belong to the certificate, or the server does not support the key or the
    /// certificate.
    #[error(
        "cannot serve TLS with {} and {}: {error}", files.chain.display(), files.key.display()
    )]
    Mismatch {
        /// The files.
        files: TlsFiles,
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
    let chain = CertificateDer::pem_file_iter(&files.chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| TlsError::Chain { path: files.chain.clone(), error })?;
    if chain.is_empty() {
        return Err(TlsError::EmptyChain(files.chain.clone()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| TlsError::Key { path: files.key.clone(), error })?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| TlsError::Mismatch { files: files.clone(), error })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
