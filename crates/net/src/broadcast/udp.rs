//! UDP multicast over IPv4 and IPv6 (RFC 1112, RFC 4291) and broadcast over IPv4 (RFC 919). Any
//! number of processes on a machine may share a port and receive each other's frames.
//!
//! A process uses two sockets. The receiving socket is bound to the group's address, so that it
//! does not receive the frames of other groups. The sending socket has a port of its own. The
//! process recognises its own frames by the address and port of the sending socket, and drops them.
//! Received frames are moved at once into a queue in which sender addresses take turns.
//!
//! Addresses can be forged. The turns are therefore fair between honest senders and faulty senders,
//! but they do not protect against an attacker on the same network. The broadcast protocol itself
//! limits the work that an attacker can cause.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::Url;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;

use super::medium::{BroadcastLink, MAX_DATAGRAM, bad_address, check_length};
use crate::fair::Inbox;
use crate::link::{LinkError, Up};

/// The maximum total size of the received frames that wait in this process, in bytes.
const WAITING_BYTES: usize = 8 << 20;
/// The requested size of the operating system's receive buffer, in bytes. The buffer keeps frames
/// while this process is not running.
const SYSTEM_BYTES: usize = 4 << 20;
/// The pause after an error in receiving from the operating system.
const PAUSE: Duration = Duration::from_millis(100);

/// One end of a multicast group or a broadcast domain.
#[derive(Debug)]
pub struct UdpBroadcast {
    url: String,
    outgoing: UdpSocket,
    inbox: Arc<Inbox>,
    receiver: AbortHandle,
}

impl Drop for UdpBroadcast {
    fn drop(&mut self) {
        self.receiver.abort();
    }
}

impl UdpBroadcast {
    /// Opens the address `parsed`, which was given as `url`.
    pub(super) fn open(url: &str, parsed: &Url) -> Result<Self, LinkError> {
        let place = Place::parse(url, parsed)?;
        let sockets = place.sending_socket(url).and_then(|outgoing| {
            let own = outgoing.local_addr().map_err(|error| network_down(url, &error))?;
            Ok((outgoing, place.receiving_socket(url)?, own))
        });
        let (outgoing, receiver, own) = sockets?;
        let inbox = Arc::new(Inbox::new(WAITING_BYTES));
        let task = tokio::spawn(receive_all(receiver, own, inbox.clone()));
        Ok(Self { url: url.to_owned(), outgoing, inbox, receiver: task.abort_handle() })
    }
}

impl BroadcastLink for UdpBroadcast {
    async fn send(&self, frame: Bytes) -> Result<(), LinkError> {
        check_length(&frame)?;
        self.outgoing.send(&frame).await.map(drop).map_err(|error| network_down(&self.url, &error))
    }

    async fn receive(&self) -> Result<Bytes, LinkError> {
        Ok(self.inbox.next(None).await.frame)
    }

    fn dropped(&self) -> u64 {
        self.inbox.dropped()
    }
}

/// Moves received frames into the inbox, except those that this process has sent.
async fn receive_all(socket: UdpSocket, own: SocketAddr, inbox: Arc<Inbox>) {
    // With one byte more than the limit, a frame that is too long can be detected.
    let mut buffer = vec![0; MAX_DATAGRAM + 1];
    loop {
        match socket.recv_from(&mut buffer).await {
            Ok((_, from)) if is_same(from, own) => {}
            Ok((length, from)) => match buffer.get(..length) {
                Some(frame) if length <= MAX_DATAGRAM => {
                    inbox.put(Up::new(sender_key(from), Bytes::copy_from_slice(frame)));
                }
                _ => inbox.refuse(),
            },
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Returns whether two addresses are the same. Ignores the flow and scope of IPv6, which the system
/// sets only on one side.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip(), one.port()) == (other.ip(), other.port())
}

/// Returns the key of a sender in the fair queue. It depends on the sender's machine and not on the
/// port, because one process can have many ports. For IPv6, it is the XOR of the upper and lower
/// halves of the address.
fn sender_key(from: SocketAddr) -> [u8; 8] {
    match from.ip() {
        IpAddr::V4(address) => u64::from(u32::from(address)).to_be_bytes(),
        IpAddr::V6(address) => {
            let bits = u128::from(address);
            ((bits >> 64) as u64 ^ bits as u64).to_be_bytes()
        }
    }
}

/// The group or broadcast address, and the interface to send from.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Multicast4 { group: SocketAddrV4, interface: Ipv4Addr, ttl: u32 },
    Multicast6 { group: SocketAddrV6, interface: u32, ttl: u32 },
    Broadcast { to: SocketAddrV4, interface: Ipv4Addr },
}

impl Place {
    fn parse(url: &str, parsed: &Url) -> Result<Self, LinkError> {
        let bad = |cause: &str| bad_address(url, cause);
        let host =
            parsed.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let address: IpAddr = host
            .parse()
            .map_err(|_| bad("its host must be a multicast or broadcast IP address"))?;
        let port = parsed.port().filter(|port| *port > 0).ok_or_else(|| bad("it has no port"))?;
        if !parsed.username().is_empty()
            || !matches!(parsed.path(), "" | "/")
            || parsed.fragment().is_some()
        {
            return Err(bad("only ?interface= and &ttl= may follow the port"));
        }
        let (mut interface, mut ttl) = (None, None);
        for (name, value) in parsed.query_pairs() {
            match &*name {
                "interface" => interface = Some(value.into_owned()),
                "ttl" => {
                    let hops = value.parse().ok().filter(|ttl| (0..=255).contains(ttl));
                    ttl = Some(
                        hops.ok_or_else(|| bad("ttl must be a number of hops, from 0 to 255"))?,
                    );
                }
                _ => return Err(bad("only ?interface= and &ttl= may follow the port")),
            }
        }
        let interface4 = |interface: Option<String>| match interface {
            None => Ok(Ipv4Addr::UNSPECIFIED),
            Some(text) => text
                .parse()
                .map_err(|_| bad("for IPv4, interface must be an IPv4 address of this machine")),
        };
        match address {
            IpAddr::V4(group) if group.is_multicast() => Ok(Self::Multicast4 {
                group: SocketAddrV4::new(group, port),
                interface: interface4(interface)?,
                ttl: ttl.unwrap_or(1),
            }),
            IpAddr::V4(_) if ttl.is_some() => {
                Err(bad("a broadcast is never routed, so ttl is not allowed"))
            }
            IpAddr::V4(to) => Ok(Self::Broadcast {
                to: SocketAddrV4::new(to, port),
                interface: interface4(interface)?,
            }),
            IpAddr::V6(group) if group.is_multicast() => {
                let interface = interface.map_or(Ok(0), |named| index_of(url, &named))?;
                let group = SocketAddrV6::new(group, port, 0, interface);
                Ok(Self::Multicast6 { group, interface, ttl: ttl.unwrap_or(1) })
            }
            IpAddr::V6(_) => Err(bad("for IPv6, the address must be a multicast group (ff00::/8)")),
        }
    }

    const fn address(&self) -> SocketAddr {
        match self {
            Self::Multicast4 { group, .. } => SocketAddr::V4(*group),
            Self::Multicast6 { group, .. } => SocketAddr::V6(*group),
            Self::Broadcast { to, .. } => SocketAddr::V4(*to),
        }
    }

    /// Returns the socket for sending. The socket is connected, so that the system chooses the
    /// socket's own address at once. The receiving task recognises the frames of this process by
    /// this address.
    fn sending_socket(&self, url: &str) -> Result<UdpSocket, LinkError> {
        let socket = new_socket(url, self.address())?;
        let configured = match self {
            Self::Multicast4 { interface, ttl, .. } => socket
                .set_multicast_if_v4(interface)
                .and_then(|()| socket.set_multicast_loop_v4(true))
                .and_then(|()| socket.set_multicast_ttl_v4(*ttl)),
            Self::Multicast6 { interface, ttl, .. } => socket
                .set_multicast_if_v6(*interface)
                .and_then(|()| socket.set_multicast_loop_v6(true))
                .and_then(|()| socket.set_multicast_hops_v6(*ttl)),
            Self::Broadcast { to, interface } => {
                // Without `SO_BROADCAST`, connecting to a broadcast address fails. If it succeeds,
                // the address belongs to a single machine.
                let probe = new_socket(url, self.address())?;
                if probe.connect(&self.address().into()).is_ok() {
                    return Err(bad_address(
                        url,
                        &format!(
                            "{} is neither a group nor a broadcast address of this machine",
                            to.ip()
                        ),
                    ));
                }
                socket
                    .set_broadcast(true)
                    .and_then(|()| socket.bind(&SocketAddr::from((*interface, 0)).into()))
            }
        };
        configured
            .and_then(|()| socket.connect(&self.address().into()))
            .map_err(|error| no_interface(url, &error))?;
        into_tokio(url, socket)
    }

    fn receiving_socket(&self, url: &str) -> Result<UdpSocket, LinkError> {
        let socket = new_socket(url, self.address())?;
        // A larger buffer reduces losses, but is not necessary, so ignore a failure.
        let _ = socket.set_recv_buffer_size(SYSTEM_BYTES);
        socket.set_reuse_address(true).map_err(|error| network_down(url, &error))?;
        #[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
        socket.set_reuse_port(true).map_err(|error| network_down(url, &error))?;
        // Binding to the group's address excludes frames for other groups. Switching
        // `multicast_all` off below excludes frames from interfaces on which only other sockets
        // have joined the group.
        socket.bind(&self.address().into()).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => LinkError::PortInUse { url: url.to_owned() },
            _ => no_interface(url, &error),
        })?;
        let joined = match self {
            Self::Multicast4 { group, interface, .. } => {
                socket.join_multicast_v4(group.ip(), interface).and_then(|()| {
                    if cfg!(target_os = "linux") {
                        socket.set_multicast_all_v4(false)
                    } else {
                        Ok(())
                    }
                })
            }
            Self::Multicast6 { group, interface, .. } => {
                socket.join_multicast_v6(group.ip(), *interface).and_then(|()| {
                    if cfg!(target_os = "linux") {
                        socket.set_multicast_all_v6(false)
                    } else {
                        Ok(())
                    }
                })
            }
            Self::Broadcast { .. } => Ok(()),
        };
        joined.map_err(|error| no_interface(url, &error))?;
        into_tokio(url, socket)
    }
}

/// Returns the number of a network interface, given by its name or by its number in decimal digits.
fn index_of(url: &str, named: &str) -> Result<u32, LinkError> {
    let unknown = || LinkError::NoSuchInterface {
        url: url.to_owned(),
        cause: format!("this machine has no interface {named:?}"),
    };
    if let Ok(index) = named.parse::<u32>() {
        return if index > 0 { Ok(index) } else { Err(unknown()) };
    }
    let any = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))
        .map_err(|error| network_down(url, &error))?;
    rustix::net::netdevice::name_to_index(&any, named).map_err(|_| unknown())
}

fn new_socket(url: &str, address: SocketAddr) -> Result<Socket, LinkError> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP));
    socket
        .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
        .map_err(|error| network_down(url, &error))
}

fn into_tokio(url: &str, socket: Socket) -> Result<UdpSocket, LinkError> {
    UdpSocket::from_std(socket.into()).map_err(|error| network_down(url, &error))
}

fn network_down(url: &str, error: &io::Error) -> LinkError {
    LinkError::NetworkDown { url: url.to_owned(), cause: error.to_string() }
}

/// Returns the error for an interface that does not exist or has no route to the group.
fn no_interface(url: &str, error: &io::Error) -> LinkError {
    LinkError::NoSuchInterface { url: url.to_owned(), cause: error.to_string() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn place(url: &str) -> Result<Place, LinkError> {
        Place::parse(url, &Url::parse(url).unwrap())
    }

    #[test]
    fn parses_group_port_interface_and_hops() {
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 1, 2, 3), 5000);
        let plain = Place::Multicast4 { group, interface: Ipv4Addr::UNSPECIFIED, ttl: 1 };
        assert_eq!(place("udp://239.1.2.3:5000").unwrap(), plain);
        let full = Place::Multicast4 { group, interface: Ipv4Addr::new(192, 168, 1, 2), ttl: 32 };
        assert_eq!(place("udp://239.1.2.3:5000/?interface=192.168.1.2&ttl=32").unwrap(), full);
        let group = SocketAddrV6::new("ff05::1234".parse().unwrap(), 5000, 0, 7);
        assert_eq!(
            place("udp://[ff05::1234]:5000?interface=7").unwrap(),
            Place::Multicast6 { group, interface: 7, ttl: 1 }
        );
        let to = SocketAddrV4::new(Ipv4Addr::BROADCAST, 5000);
        let broadcast = Place::Broadcast { to, interface: Ipv4Addr::UNSPECIFIED };
        assert_eq!(place("udp://255.255.255.255:5000").unwrap(), broadcast);
    }

    #[test]
    fn rejects_an_invalid_group_address_with_an_example() {
        for url in [
            "udp://",
            "udp://239.1.2.3",
            "udp://239.1.2.3:0",
            "udp://group.example:5000",
            "udp://[fd00::1]:5000",
            "udp://239.1.2.3:5000/x",
            "udp://239.1.2.3:5000#x",
            "udp://me@239.1.2.3:5000",
            "udp://239.1.2.3:5000?ttl=256",
            "udp://239.1.2.3:5000?interface=eth0",
            "udp://239.1.2.3:5000?colour=red",
            "udp://192.168.1.255:5000?ttl=2",
        ] {
            let refused = place(url).unwrap_err();
            assert_eq!(refused.name(), "BadAddress", "{url}");
            assert!(refused.to_string().contains("udp://239.1.2.3:5000"), "{refused}");
        }
        assert_eq!(
            place("udp://[ff05::1]:5000?interface=nothing0").unwrap_err().name(),
            "NoSuchInterface"
        );
        assert_eq!(
            place("udp://[ff05::1]:5000?interface=0").unwrap_err().name(),
            "NoSuchInterface"
        );
    }
}
