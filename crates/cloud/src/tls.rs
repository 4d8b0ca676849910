//! TLS from PEM files, with the one process-wide provider of cryptography (aws-lc-rs).

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsFiles;

/// Makes what turns a connection into a TLS one.
///
/// # Errors
/// One line that names the file and what is wrong with it.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, String> {
    // Another part of the process may have installed it already, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let chain = CertificateDer::pem_file_iter(&files.chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable("certificate chain", &files.chain, &error))?;
    if chain.is_empty() {
        return Err(format!(
            "there is no certificate in {}; it must hold a PEM chain",
            files.chain.display()
        ));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| unreadable("private key", &files.key, &error))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| {
            format!(
                "{} and {} do not belong together: {error}",
                files.chain.display(),
                files.key.display()
            )
        })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn unreadable(what: &str, path: &Path, error: &rustls_pki_types::pem::Error) -> String {
    format!("cannot read the {what} in {}: {error}", path.display())
}
