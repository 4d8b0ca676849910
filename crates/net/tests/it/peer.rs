//! A broker of MQTT 3.1.1 whose every packet the test decides.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Listener(TcpListener);

/// A connection of a client.
pub(crate) struct Peer(TcpStream);

impl Listener {
    pub(crate) async fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub(crate) fn url(&self) -> String {
        format!("mqtt://{}", self.0.local_addr().unwrap())
    }

    /// Accepts a connection. `is_resumed` is whether the broker has kept the session.
    pub(crate) async fn accept(&self, is_resumed: bool) -> Peer {
        let (stream, _) = self.0.accept().await.unwrap();
        let mut peer = Peer(stream);
        assert_eq!(peer.read().await.0, 0x10, "CONNECT");
        peer.write(&[0x20, 2, u8::from(is_resumed), 0]).await;
        peer
    }

    /// Accepts a connection of a subscriber to one filter.
    pub(crate) async fn accept_subscriber(&self, is_resumed: bool) -> Peer {
        let mut peer = self.accept(is_resumed).await;
        let (kind, body) = peer.read().await;
        assert_eq!(kind, 0x82, "SUBSCRIBE");
        peer.write(&[0x90, 3, body[0], body[1], 1]).await;
        peer
    }
}

impl Peer {
    /// Reads a packet that is shorter than 128 bytes. Returns its first byte and its body.
    pub(crate) async fn read(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).await.unwrap();
        let mut body = vec![0; head[1].into()];
        self.0.read_exact(&mut body).await.unwrap();
        (head[0], body)
    }

    pub(crate) async fn write(&mut self, packet: &[u8]) {
        self.0.write_all(packet).await.unwrap();
    }

    /// Publishes a message on the topic `t`: with QoS 1 if it has a packet identifier, otherwise with
    /// QoS 0.
    pub(crate) async fn publish(&mut self, id: Option<u16>, is_repeated: bool, payload: &[u8]) {
        let mut body = vec![0, 1, b't'];
        body.extend(id.iter().flat_map(|id| id.to_be_bytes()));
        body.extend(payload);
        let mut length = body.len();
        let mut packet = vec![0x30 | u8::from(id.is_some()) << 1 | u8::from(is_repeated) << 3];
        while length >= 128 {
            packet.push((length % 128) as u8 | 0x80);
            length /= 128;
        }
        packet.push(length as u8);
        packet.extend(body);
        self.write(&packet).await;
    }

    /// Waits until the client has acknowledged a message.
    pub(crate) async fn acknowledged(&mut self, id: u16) {
        let [high, low] = id.to_be_bytes();
        assert_eq!(self.read().await, (0x40, vec![high, low]), "PUBACK");
    }
}
