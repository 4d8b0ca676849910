//! The names of the files that a TLS server needs.

use std::path::PathBuf;

/// The PEM files of a TLS server, which reads them again after they have changed.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate chain, beginning with the server's certificate.
    pub chain: PathBuf,
    /// The private key of the server's certificate: PKCS#8, SEC 1 or PKCS#1.
    pub key: PathBuf,
    /// The certificate authorities of clients. With them, the server requests a certificate from
    /// each client. A client may have none; a certificate of another authority ends the handshake.
    pub client_ca: Option<PathBuf>,
}
