//! Whom to believe that they are the cloud: the platform's certificate authorities, and those of a file.

use std::path::Path;
use std::sync::Once;

use reqwest::Certificate;
use rustls::crypto::aws_lc_rs;

use crate::error::NetError;

/// A file of certificates larger than this is none.
const MAX_CA_FILE: u64 = 4 << 20;

/// Makes aws-lc-rs the process's provider, once; whoever installed one before keeps it.
pub(crate) fn install_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = aws_lc_rs::default_provider().install_default();
    });
}

/// Reads a PEM file of certificate authorities.
pub(crate) fn authorities(path: &Path) -> Result<Vec<Certificate>, NetError> {
    let bad = |cause: String| NetError::BadFile { path: path.to_owned(), cause };
    let pem = read_small(path, MAX_CA_FILE)?;
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|_| bad("not a PEM file of certificates".into()))?;
    if certificates.is_empty() { Err(bad("holds no certificate in PEM".into())) } else { Ok(certificates) }
}

/// Reads a file of at most `limit` bytes.
pub(crate) fn read_small(path: &Path, limit: u64) -> Result<Vec<u8>, NetError> {
    use std::io::Read;
    let bad = |cause: String| NetError::BadFile { path: path.to_owned(), cause };
    let file = std::fs::File::open(path).map_err(|error| bad(crate::error::innermost(&error)))?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| bad(crate::error::innermost(&error)))?;
    if bytes.len() as u64 > limit { Err(bad(format!("longer than {limit} bytes"))) } else { Ok(bytes) }
}
