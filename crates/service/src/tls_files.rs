//! The files of a TLS server.

use std::path::PathBuf;

/// PEM files for TLS.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate chain, the server's certificate first.
    pub chain: PathBuf,
    /// The private key of the server's certificate: PKCS#8, SEC 1 or PKCS#1.
    pub key: PathBuf,
}
