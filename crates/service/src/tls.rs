//! Reads TLS certificates and keys from PEM files, and reads them again after they have changed. The
//! cryptographic provider of the whole process is aws-lc-rs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use moteseal_api::ErrorKind;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::Accept;
use tokio_rustls::server::TlsStream;
use tracing::warn;

use crate::client_key::ClientKey;
use crate::reloaded::Reloaded;
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

/// Accepts TLS connections with HTTP/1.1 as their application protocol.
#[derive(Clone)]
pub(crate) struct TlsAcceptor(Arc<Reloaded<ServerConfig>>);

impl TlsAcceptor {
    /// Accepts a connection with the files as they are now, or as they were when they could last be used.
    /// Established connections do not change.
    pub(crate) fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> Accept<S> {
        tokio_rustls::TlsAcceptor::from(self.0.current()).accept(stream)
    }
}

/// Reads the files and returns an acceptor.
///
/// # Errors
/// [`TlsError`] names the file and the cause.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
    // This call fails if the process already has a provider. That provider is then used.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let paths = [&files.chain, &files.key].into_iter().chain(&files.client_ca).cloned().collect();
    let files = files.clone();
    let config = Reloaded::new("certificate", paths, move || config(&files))?;
    Ok(TlsAcceptor(Arc::new(config)))
}

/// Reads the files.
fn config(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
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
    Ok(config)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::convert::Infallible;
    use std::future::pending;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::{Duration, Instant};

    use bytes::Bytes;
    use http_body_util::Full;
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper::{Request, Response};
    use rcgen::CertifiedKey;
    use rustls::ClientConfig;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio_rustls::{TlsConnector, client};

    use super::*;
    use crate::{ConnectionLimits, Listener};

    type Stream = client::TlsStream<TcpStream>;

    struct World {
        folder: tempfile::TempDir,
        address: SocketAddr,
        /// The certificates that a client accepts: all that were issued.
        roots: RootCertStore,
    }

    impl World {
        fn files(&self) -> TlsFiles {
            let [chain, key] = ["chain.pem", "key.pem"].map(|name| self.folder.path().join(name));
            TlsFiles { chain, key, client_ca: None }
        }

        fn issue(&mut self) -> CertifiedKey<rcgen::KeyPair> {
            let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
            self.roots.add(pair.cert.der().clone()).unwrap();
            pair
        }

        fn write_chain(&self, pair: &CertifiedKey<rcgen::KeyPair>) {
            std::fs::write(self.files().chain, pair.cert.pem()).unwrap();
        }

        fn write_key(&self, pair: &CertifiedKey<rcgen::KeyPair>) {
            std::fs::write(self.files().key, pair.signing_key.serialize_pem()).unwrap();
        }

        async fn listen(&mut self) {
            let local = (Ipv4Addr::LOCALHOST, 0).into();
            let listener = Listener::bind(local, Some(&self.files())).await.unwrap();
            self.address = listener.address();
            let service = service_fn(|_: Request<Incoming>| async {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"served"))))
            });
            let limits = ConnectionLimits {
                connections: 8,
                peer_percent: 100,
                head_time: Duration::from_secs(60),
                head_bytes: 16 << 10,
                connection_time: None,
                write_stall: Duration::from_secs(10),
                write_rate: 1,
                stop_time: Duration::ZERO,
            };
            tokio::spawn(async move { listener.serve(service, &limits, None, pending()).await });
        }

        /// Connects, and returns the connection and the certificate that the listener presents.
        async fn connect(&self) -> (Stream, CertificateDer<'static>) {
            let config = ClientConfig::builder()
                .with_root_certificates(self.roots.clone())
                .with_no_client_auth();
            let stream = TcpStream::connect(self.address).await.unwrap();
            let name = self.address.ip().into();
            let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
            let presented = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
            (stream, presented)
        }

        /// Connects again and again until the listener presents this certificate.
        async fn presents(&self, pair: &CertifiedKey<rcgen::KeyPair>) {
            let start = Instant::now();
            while self.connect().await.1 != *pair.cert.der() {
                assert!(start.elapsed() < Duration::from_secs(20), "the old one is presented");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }

        /// Connects for longer than the listener needs to find a change. It presents only this certificate.
        async fn still_presents(&self, pair: &CertifiedKey<rcgen::KeyPair>) {
            for _ in 0..30 {
                assert_eq!(self.connect().await.1, *pair.cert.der());
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }

    async fn is_served(stream: &mut Stream) {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut response = Vec::new();
        while !response.ends_with(b"served") {
            assert!(stream.read_buf(&mut response).await.unwrap() > 0, "the connection is closed");
        }
    }

    #[tokio::test]
    async fn a_renewed_certificate_is_presented_and_a_broken_pair_keeps_the_one_before() {
        let mut world = World {
            folder: tempfile::tempdir().unwrap(),
            address: (Ipv4Addr::UNSPECIFIED, 0).into(),
            roots: RootCertStore::empty(),
        };
        let [first, second, third] = [(); 3].map(|()| world.issue());
        world.write_chain(&first);
        world.write_key(&first);
        world.listen().await;
        let (mut open, presented) = world.connect().await;
        assert_eq!(presented, *first.cert.der());
        is_served(&mut open).await;

        // The key does not belong to the new certificate until it is replaced, too.
        world.write_chain(&second);
        world.still_presents(&first).await;
        world.write_key(&second);
        world.presents(&second).await;
        is_served(&mut open).await;

        std::fs::write(world.files().chain, "no certificate").unwrap();
        world.still_presents(&second).await;
        std::fs::remove_file(world.files().key).unwrap();
        world.still_presents(&second).await;

        // As on Kubernetes, where both files are replaced at once.
        world.write_chain(&third);
        world.write_key(&third);
        world.presents(&third).await;
        is_served(&mut open).await;
        assert_eq!(open.get_ref().1.peer_certificates().unwrap()[0], *first.cert.der());
    }
}
