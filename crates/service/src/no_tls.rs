//! Replaces the module `tls` in a program that is built without TLS. It rejects every TLS file.

use std::convert::Infallible;
use std::io;
use std::path::Path;

use moteseal_api::ErrorKind;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::client_key::ClientKey;
use crate::tls_files::TlsFiles;

/// Why TLS files cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The program is built without TLS.
    #[error("this program is built without TLS; it cannot use {}", .0.display())]
    NotBuilt(std::path::PathBuf),
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

/// An acceptor that cannot exist, because the program is built without TLS.
#[derive(Clone)]
pub(crate) struct TlsAcceptor(Infallible);

impl TlsAcceptor {
    #[allow(clippy::unused_async)]
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite>(&self, _stream: S) -> io::Result<S> {
        match self.0 {}
    }
}

pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
    Err(TlsError::NotBuilt(files.chain.clone()))
}

pub(crate) const fn client_key<S>(_stream: &S) -> Option<ClientKey> {
    None
}

/// Always returns [`TlsError::NotBuilt`].
///
/// # Errors
/// [`TlsError::NotBuilt`].
pub fn certificate_key(path: &Path) -> Result<ClientKey, TlsError> {
    Err(TlsError::NotBuilt(path.to_owned()))
}
