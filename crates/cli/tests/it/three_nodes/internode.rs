//! Connections between the nodes of a cluster of Cassandra need TLS and the certificates of both sides: a node
//! answers only a node with a certificate of the cluster's authority, and sends only to such a node.

use std::io::ErrorKind::{ConnectionReset, UnexpectedEof};
use std::io::{Error, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

use crate::cassandra::Cassandra;
use crate::cluster_tls::certify;

/// The first message of a connection: the magic number, the newest and the oldest version of the protocol that the
/// sender knows, the version that it asks for, the kind of the connection, the length of the sender's address, this
/// address (127.0.0.1:7000), and the CRC-32 of `fa 2d 55 ca` and these bytes. There is no version 255, so a node
/// answers with the newest version that it knows, and closes the connection.
const FIRST_MESSAGE: [u8; 19] =
    [0xca, 0x55, 0x2d, 0xfa, 255, 255, 12, 0, 6, 127, 0, 0, 1, 0x1b, 0x58, 0x80, 0x3d, 0x56, 0xb0];
/// The version of the protocol in Cassandra 4.
const VERSION: u32 = 12;
/// The first byte of a handshake of TLS.
const HANDSHAKE: u8 = 22;
/// If a node may fall back to plain text, it does so in each fourth attempt of a connection. Two nodes have three
/// connections each to a third one, so at least one connection has four of these attempts.
const ATTEMPTS: usize = 19;
/// The time within which the nodes make these attempts.
const PATIENCE: Duration = Duration::from_secs(120);
/// The time within which a node sends or answers.
const ANSWER: Duration = Duration::from_secs(30);

type Own = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Reads a file with a key and its certificate.
fn own(file: &Path) -> Own {
    let certificate = CertificateDer::from_pem_file(file).unwrap();
    (vec![certificate], PrivateKeyDer::from_pem_file(file).unwrap())
}

/// Returns the settings of a client that trusts the authority of a file.
fn client(authority: &Path, own: Option<Own>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match own {
        None => config.with_no_client_auth(),
        Some((chain, key)) => config.with_client_auth_cert(chain, key).unwrap(),
    })
}

fn tcp(node: &Cassandra) -> TcpStream {
    let stream = TcpStream::connect(node.internode()).unwrap();
    stream.set_read_timeout(Some(ANSWER)).unwrap();
    stream
}

/// Connects to a node. The handshake begins with the first read or write.
fn tls(node: &Cassandra, client: &Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
    // All nodes have the certificate for this address.
    let name = ServerName::try_from("127.0.0.1").unwrap();
    StreamOwned::new(ClientConnection::new(client.clone(), name).unwrap(), tcp(node))
}

/// Sends the first message. Returns the version of the answer: the newest one that the node knows, which it
/// repeats as the one that it chose. A checksum follows.
fn version(mut stream: impl Read + Write) -> Result<u32, Error> {
    stream.write_all(&FIRST_MESSAGE)?;
    stream.flush()?;
    let mut answer = [[0; 4]; 3];
    stream.read_exact(answer.as_flattened_mut())?;
    let [newest, chosen, _] = answer.map(u32::from_be_bytes);
    assert_eq!(newest, chosen);
    Ok(newest)
}

/// Asserts that the other side ended the handshake because of the certificate or its lack: everything else is as in
/// connections that succeed.
fn is_refusal(error: Error) {
    let error = error.downcast::<rustls::Error>().unwrap();
    println!("{error}");
    assert!(matches!(error, rustls::Error::AlertReceived(_)), "{error:?}");
}

/// Asserts that a node answers only over TLS, and only a client with a certificate of the authority. Its files are in
/// the folder, as `certify` has written them.
pub(super) fn answers_only_nodes_of_the_authority(node: &Cassandra, folder: &Path) {
    let authority = folder.join("ca.pem");
    let member = client(&authority, Some(own(&folder.join("both.pem"))));
    assert!(version(tls(node, &member)).unwrap() >= VERSION);

    let plain = version(tcp(node)).unwrap_err();
    assert!(matches!(plain.kind(), UnexpectedEof | ConnectionReset), "{plain:?}");
    // The foreign authority has the same name and another key.
    let elsewhere = tempfile::tempdir().unwrap();
    for own in [None, Some(own(&certify(elsewhere.path())))] {
        // The client sends nothing after the handshake, so it always receives the reason.
        is_refusal(tls(node, &client(&authority, own)).read(&mut [0]).unwrap_err());
    }
}

/// Takes the place of a node that was killed. Asserts that the other nodes do not connect without TLS, even if all
/// their handshakes fail, and that they refuse a certificate of another authority.
pub(super) fn is_sent_nothing_without_a_certificate(killed: &Cassandra) {
    let start = Instant::now();
    // The operating system may take a moment to end the node.
    let listener = loop {
        match TcpListener::bind(killed.internode()) {
            Ok(listener) => break listener,
            Err(error) => assert!(start.elapsed() < ANSWER, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    listener.set_nonblocking(true).unwrap();
    let accept = || loop {
        assert!(start.elapsed() < PATIENCE, "the nodes do not connect");
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(ANSWER)).unwrap();
        let mut first = [0];
        // A node may also give up.
        if matches!(stream.peek(&mut first), Ok(1)) {
            assert_eq!(first[0], HANDSHAKE, "a node sends plain text");
            break stream;
        }
    };
    // Each connection is closed during its handshake, as a node without TLS would close it. If bytes were unread, the
    // other side would see a reset connection, and would not fall back.
    for _ in 0..ATTEMPTS {
        let _ = accept().read(&mut [0; 16_384]);
    }
    println!("{ATTEMPTS} attempts with TLS after {:.1} s", start.elapsed().as_secs_f32());

    let elsewhere = tempfile::tempdir().unwrap();
    let (chain, key) = own(&certify(elsewhere.path()));
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let mut server = ServerConnection::new(Arc::new(config)).unwrap();
    is_refusal(server.complete_io(&mut accept()).unwrap_err());
}
