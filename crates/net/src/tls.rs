//! TLS: the certificates that a client trusts, and the certificate that it presents.

use std::path::Path;
use std::sync::Once;

use reqwest::Certificate;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

use crate::credentials::Identity;
use crate::error::BadFile;
use crate::file::read_small;

/// The maximum size of a file with certificates, in bytes.
const MAX_CA_FILE: u64 = 4 << 20;
/// The maximum size of a file with a key, in bytes.
const MAX_KEY_FILE: u64 = 64 << 10;

/// Makes aws-lc-rs the TLS provider of this process, unless another provider is already installed.
pub(crate) fn install_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = aws_lc_rs::default_provider().install_default();
    });
}

/// Reads a PEM file of certificate authorities.
pub(crate) fn authorities(path: &Path) -> Result<Vec<Certificate>, BadFile> {
    let pem = read_small(path, MAX_CA_FILE)?;
    let certificates = Certificate::from_pem_bundle(&pem)
        .map_err(|_| BadFile::new(path, "not a PEM file with certificates"))?;
    if certificates.is_empty() {
        Err(BadFile::new(path, "contains no certificate in PEM"))
    } else {
        Ok(certificates)
    }
}

/// Creates the TLS configuration of a client. The client trusts only the authorities in the file
/// `ca`, or the platform's authorities if `ca` is `None`. If a server requests a certificate, the
/// client presents `identity`, which is a file with a chain of certificates and a file with its
/// key.
pub(crate) fn client_config(
    ca: Option<&Path>,
    identity: Option<(&Path, &Path)>,
) -> Result<ClientConfig, BadFile> {
    install_provider();
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| {
                    BadFile::new(path, format!("not the certificate of an authority: {error}"))
                })?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let config = ClientConfig::builder().with_root_certificates(roots);
    let Some((chain, key)) = identity else { return Ok(config.with_no_client_auth()) };
    let secret = secret_key(key, &read_small(key, MAX_KEY_FILE)?)?;
    let config = config.with_client_auth_cert(certificates(chain)?, secret);
    config.map_err(|error| other_key(key, &error))
}

/// Reads the certificate that an HTTP client presents, and its key.
pub(crate) fn identity(files: &Identity) -> Result<reqwest::Identity, BadFile> {
    let Identity { certificate, key } = files;
    // The HTTP client accepts halves that do not belong together, and its other errors name no file.
    install_provider();
    let mut pem = Zeroizing::new(read_small(key, MAX_KEY_FILE)?);
    ClientConfig::builder()
        .with_root_certificates(RootCertStore::empty())
        .with_client_auth_cert(certificates(certificate)?, secret_key(key, &pem)?)
        .map_err(|error| other_key(key, &error))?;
    pem.push(b'\n');
    pem.extend(read_small(certificate, MAX_CA_FILE)?);
    reqwest::Identity::from_pem(&pem)
        .map_err(|error| BadFile::new(key, crate::error::innermost(&error)))
}

fn secret_key(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, BadFile> {
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|_| BadFile::new(path, "contains no private key in PEM"))
}

fn other_key(path: &Path, error: &rustls::Error) -> BadFile {
    BadFile::new(path, format!("does not belong to the certificate: {error}"))
}

pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, BadFile> {
    let pem = read_small(path, MAX_CA_FILE)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates =
        certificates.map_err(|_| BadFile::new(path, "not a PEM file with certificates"))?;
    if certificates.is_empty() {
        Err(BadFile::new(path, "contains no certificate in PEM"))
    } else {
        Ok(certificates)
    }
}
