//! A minimal client of MQTT 3.1.1 that blocks, as the paper's client on its sensor does (`PubSubClient`).
//! It publishes and receives on one topic, with QoS 0 or 1, over TCP or TLS. The product's client does more
//! for each message, so it would hide what the encryption costs.

use std::collections::VecDeque;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::Failed;

/// How long the broker may send nothing that the client waits for.
const PATIENCE: Duration = Duration::from_secs(30);
/// The seconds after which the broker may end a silent connection; no run is silent for so long.
const KEEP_ALIVE: u16 = 600;

/// The types of packets, in the upper four bits of the first byte.
mod kind {
    pub(super) const CONNECT: u8 = 0x10;
    pub(super) const CONNACK: u8 = 0x20;
    pub(super) const PUBLISH: u8 = 0x30;
    pub(super) const PUBACK: u8 = 0x40;
    pub(super) const SUBSCRIBE: u8 = 0x82;
    pub(super) const SUBACK: u8 = 0x90;
    pub(super) const DISCONNECT: u8 = 0xe0;
}

/// How often a message is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Qos {
    /// At most once.
    Zero,
    /// At least once; the receiver acknowledges it.
    One,
}

trait Duplex: Read + Write + Send {}
impl<T: Read + Write + Send> Duplex for T {}

/// A connection to a broker.
pub(super) struct Client {
    stream: BufReader<Box<dyn Duplex>>,
    topic: String,
    qos: Qos,
    packet: Vec<u8>,
    /// The identifiers of the published messages that are not acknowledged.
    waiting: VecDeque<u16>,
    last: u16,
}

impl Client {
    /// Connects to a broker, over TLS if there is an authority of its certificate.
    pub(super) fn connect(
        broker: SocketAddr,
        ca: Option<&Path>,
        name: &str,
        (topic, qos): (&str, Qos),
    ) -> Result<Self, Failed> {
        let tcp = TcpStream::connect(broker)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        let stream: Box<dyn Duplex> = match ca {
            Some(ca) => Box::new(StreamOwned::new(tls(ca)?, tcp)),
            None => Box::new(tcp),
        };
        let mut client = Self {
            stream: BufReader::new(stream),
            topic: topic.to_owned(),
            qos,
            packet: Vec::new(),
            waiting: VecDeque::new(),
            last: 0,
        };
        let mut body = b"\0\x04MQTT\x04\x02".to_vec();
        body.extend(KEEP_ALIVE.to_be_bytes());
        text(&mut body, name)?;
        client.send(kind::CONNECT, &[&body])?;
        match client.receive()? {
            (kind::CONNACK, body) if body.get(1) == Some(&0) => Ok(client),
            (_, body) => Err(format!("the broker refused the connection: {body:?}").into()),
        }
    }

    /// Subscribes to the topic, and waits until the subscription is active.
    pub(super) fn subscribe(&mut self) -> Result<(), Failed> {
        let mut body = 1_u16.to_be_bytes().to_vec();
        text(&mut body, &self.topic)?;
        body.push(u8::from(self.qos == Qos::One));
        self.send(kind::SUBSCRIBE, &[&body])?;
        match self.receive()? {
            (kind::SUBACK, body) if body.last().is_some_and(|code| *code < 0x80) => Ok(()),
            (_, body) => Err(format!("the broker refused the subscription: {body:?}").into()),
        }
    }

    /// Publishes a message. With QoS 1, it first waits until fewer than `window` messages are not
    /// acknowledged.
    pub(super) fn publish(&mut self, payload: &[u8], window: usize) -> Result<(), Failed> {
        let mut head = Vec::with_capacity(self.topic.len() + 4);
        text(&mut head, &self.topic)?;
        if self.qos == Qos::Zero {
            return self.send(kind::PUBLISH, &[&head, payload]);
        }
        while self.waiting.len() >= window.max(1) {
            self.acknowledged()?;
        }
        // An identifier is not 0.
        self.last = self.last.checked_add(1).unwrap_or(1);
        self.waiting.push_back(self.last);
        head.extend(self.last.to_be_bytes());
        self.send(kind::PUBLISH | 2, &[&head, payload])
    }

    /// Waits until all messages are acknowledged, and ends the connection.
    pub(super) fn finish(mut self) -> Result<(), Failed> {
        while !self.waiting.is_empty() {
            self.acknowledged()?;
        }
        self.send(kind::DISCONNECT, &[])
    }

    fn acknowledged(&mut self) -> Result<(), Failed> {
        match self.receive()? {
            (kind::PUBACK, body) if body.len() == 2 => {
                let id = u16::from_be_bytes([body[0], body[1]]);
                self.waiting.retain(|waiting| *waiting != id);
                Ok(())
            }
            (kind, _) => Err(format!("the broker sent a packet of type {kind:#x}").into()),
        }
    }

    /// Returns the payload of the next message of the topic, and acknowledges it.
    pub(super) fn next(&mut self) -> Result<Vec<u8>, Failed> {
        let (kind, mut body) = self.receive()?;
        let qos = kind >> 1 & 3;
        let length = body.get(..2).map_or(0, |length| u16::from_be_bytes([length[0], length[1]]));
        let start = 2 + usize::from(length) + 2 * usize::from(qos > 0);
        if kind & 0xf0 != kind::PUBLISH || body.len() < start {
            return Err(format!("the broker sent a packet of type {kind:#x}").into());
        }
        if qos > 0 {
            self.send(kind::PUBACK, &[&[body[start - 2], body[start - 1]]])?;
        }
        body.drain(..start);
        Ok(body)
    }

    /// Sends a packet with one write.
    fn send(&mut self, kind: u8, parts: &[&[u8]]) -> Result<(), Failed> {
        let mut length: usize = parts.iter().map(|part| part.len()).sum();
        self.packet.clear();
        self.packet.push(kind);
        loop {
            #[allow(clippy::cast_possible_truncation)]
            let digit = (length % 128) as u8;
            length /= 128;
            self.packet.push(if length > 0 { digit | 0x80 } else { digit });
            if length == 0 {
                break;
            }
        }
        parts.iter().for_each(|part| self.packet.extend_from_slice(part));
        let stream = self.stream.get_mut();
        stream.write_all(&self.packet)?;
        Ok(stream.flush()?)
    }

    /// Returns the first byte of the next packet, and its body.
    fn receive(&mut self) -> Result<(u8, Vec<u8>), Failed> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte)?;
        let kind = byte[0];
        let mut length = 0;
        for digit in 0..4 {
            self.stream.read_exact(&mut byte)?;
            length |= usize::from(byte[0] & 0x7f) << (7 * digit);
            if byte[0] & 0x80 == 0 {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((kind, body))
    }
}

/// Appends a text with its length.
fn text(packet: &mut Vec<u8>, text: &str) -> Result<(), Failed> {
    packet.extend(u16::try_from(text.len())?.to_be_bytes());
    packet.extend_from_slice(text.as_bytes());
    Ok(())
}

/// Returns a TLS session with the broker, whose certificate is for `localhost`.
fn tls(ca: &Path) -> Result<ClientConnection, Failed> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca)? {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(ClientConnection::new(Arc::new(config), ServerName::try_from("localhost")?)?)
}
