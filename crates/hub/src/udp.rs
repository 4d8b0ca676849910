//! Datagrams. Each datagram is one message. A datagram cannot be acknowledged.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::sleep;

use crate::intake::Intake;
use crate::line::{Done, MAX_LINE};

/// The pause after an error of the socket.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens for the datagrams of a source.
///
/// # Errors
/// The error of the operating system.
pub(crate) async fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    UdpSocket::bind(address).await
}

/// Receives the datagrams of a source. If `senders` is not empty, only theirs. Does not end.
pub(crate) async fn run(socket: UdpSocket, senders: Vec<IpAddr>, intake: Arc<Intake>) {
    let mut datagram = vec![0; MAX_LINE + 1];
    loop {
        match socket.recv_from(&mut datagram).await {
            Ok((length, from)) => {
                let sender = from.ip().to_canonical();
                if !senders.is_empty() && !senders.contains(&sender) {
                    intake.of_other_sender(sender);
                    continue;
                }
                let payload = datagram.get(..length).unwrap_or_default();
                intake.take(payload, Done::ignored()).await;
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}
