//! An endpoint on a UDP socket, with or without DTLS, driven by a task.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use super::config::{Config, Owner, Peer, Proven};
use super::endpoint::{Counters, Endpoint, Event, Output};
use super::exchange::{ExchangeId, Request, RequestError, RequestId, Response};
use crate::mqtt::Backoff;

mod transport;

use transport::{Happened, Transport};
pub use transport::{Security, SessionError, Status};

/// The number of datagrams that are received before others things are done.
const BATCH: usize = 128;
/// The number of commands that wait for the task.
const COMMANDS: usize = 1024;
/// The number of requests that wait for a session.
const WAITING: usize = 256;
/// A request to many peers is sent to this many of them at once, and to the next ones after a pause:
/// 12,800 a second, so that neither the socket's buffer overflows nor other peers wait.
const ROUND: usize = 64;
const ROUND_PAUSE: Duration = Duration::from_millis(5);
/// The number of notifications that wait at an observer.
const NOTIFICATIONS: usize = 64;
/// The receive and send buffers of a socket, in bytes; the operating system may grant less.
const SOCKET_BUFFER: usize = 4 << 20;

thread_local! {
    /// Room for one datagram, for all sockets of a thread: a hub has hundreds of them.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 1 << 16]);
}

/// The requests of peers, processed on the task of the socket. It must not block.
pub trait Service: Send + 'static {
    /// Processes a request. Returns the response, or `None` if [`Handle::respond`] sends it later.
    fn request(&mut self, id: ExchangeId, owner: Owner, request: Request) -> Option<Response>;

    /// Called when a DTLS session was opened.
    fn opened(&mut self, peer: Peer, proven: Proven) {
        let _ = (peer, proven);
    }

    /// Called when a DTLS session has ended.
    fn closed(&mut self, peer: Peer) {
        let _ = peer;
    }
}

/// A service without resources.
#[derive(Clone, Copy, Debug)]
pub struct NoService;

impl Service for NoService {
    fn request(&mut self, _: ExchangeId, _: Owner, _: Request) -> Option<Response> {
        Some(Response::new(super::Code::NOT_FOUND))
    }
}

/// The receiver of an own request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The server of a client's socket.
    Server,
    /// A peer of a server's socket.
    Peer(Peer),
}

/// Returns the new version of a representation for an observer's request.
pub type Representation = Box<dyn FnMut(&Request) -> Option<Response> + Send>;

/// Returns whether a device is a member.
type IsMember = Box<dyn Fn(&[u8; 8]) -> bool + Send>;

/// What the task is asked to do. It is boxed, because a channel has room for at least 32 of them.
enum Command {
    Request(To, Request, Duration, Pending),
    /// Sends a request to each of these peers.
    Each(Vec<Peer>, Request),
    Cancel(u64),
    Respond(ExchangeId, Response),
    Notify(String, Representation),
    /// Ends the DTLS sessions of devices that are no longer members.
    Retain(IsMember),
}

/// What a socket stores about its peers, and what it counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct SocketCounters {
    /// The number of peers about which the endpoint stores something.
    pub peers: usize,
    /// The number of observers.
    pub observers: usize,
    /// The number of DTLS sessions of a server.
    pub sessions: usize,
    /// The number of incomplete DTLS handshakes of a server.
    pub handshakes: usize,
    /// What the endpoint counted.
    pub coap: Counters,
    /// What the server of DTLS sessions counted, if there is one.
    #[cfg(feature = "tls")]
    pub dtls: crate::dtls::Counters,
}

impl SocketCounters {
    /// Returns what was refused or dropped, by name (docs/coap.md).
    #[must_use]
    pub fn refused(&self) -> Vec<(&'static str, u64)> {
        let mut refused = self.coap.refused().to_vec();
        #[cfg(feature = "tls")]
        refused.extend(self.dtls.by_name());
        refused
    }
}

/// Returns the sums of what several sockets refused or dropped, by name.
pub fn refused_by<'h>(handles: impl IntoIterator<Item = &'h Handle>) -> Vec<(&'static str, u64)> {
    let mut sums = SocketCounters::default().refused();
    for handle in handles {
        for (sum, (_, more)) in sums.iter_mut().zip(handle.counters().refused()) {
            sum.1 += more;
        }
    }
    sums
}

/// Who waits for the response to a request.
enum Pending {
    /// A future.
    Once(oneshot::Sender<Result<Response, RequestError>>),
    /// An observer. Its first message is the number of the request.
    Many(mpsc::Sender<Result<Response, RequestError>>, Option<oneshot::Sender<u64>>),
    /// Nobody. The permit is returned when the request has ended.
    Permit(Option<OwnedSemaphorePermit>),
}

impl Pending {
    fn end(self, response: Result<Response, RequestError>) {
        match self {
            Self::Once(sender) => drop(sender.send(response)),
            Self::Many(sender, _) => drop(sender.try_send(response)),
            Self::Permit(permit) => drop(permit),
        }
    }
}

/// A handle of a socket's task.
#[derive(Clone)]
pub struct Handle {
    commands: mpsc::Sender<Box<Command>>,
    status: watch::Receiver<Status>,
    counters: Arc<Mutex<SocketCounters>>,
    address: SocketAddr,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Handle {
    /// Returns the address of the socket.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the state of the session with the server, as a channel that reports changes.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Sends a request, and waits for its response. If there is none, the last block of the request is
    /// sent again until there was no progress for `patience`.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn request(
        &self,
        to: To,
        request: Request,
        patience: Duration,
    ) -> Result<Response, RequestError> {
        let (sender, response) = oneshot::channel();
        let command = Box::new(Command::Request(to, request, patience, Pending::Once(sender)));
        self.commands.send(command).await.map_err(|_| RequestError::SessionEnded)?;
        response.await.unwrap_or(Err(RequestError::SessionEnded))
    }

    /// Sends a request for whose response nobody waits. Waits for room. `permit` is returned when the
    /// request has ended.
    pub async fn send(&self, to: To, request: Request, permit: Option<OwnedSemaphorePermit>) {
        let pending = Pending::Permit(permit);
        let command = Box::new(Command::Request(to, request, Duration::ZERO, pending));
        let _ = self.commands.send(command).await;
    }

    /// Like [`send`](Self::send), but if there is no room, the request is dropped, and the result is
    /// false.
    #[must_use]
    pub fn try_send(&self, to: To, request: Request) -> bool {
        let pending = Pending::Permit(None);
        let command = Box::new(Command::Request(to, request, Duration::ZERO, pending));
        self.commands.try_send(command).is_ok()
    }

    /// Sends a request to each of these peers of a server's socket, for whose responses nobody waits.
    /// The requests are sent one after another. Those of an earlier call that are not sent yet are
    /// dropped.
    pub async fn send_each(&self, peers: Vec<Peer>, request: Request) {
        let _ = self.commands.send(Box::new(Command::Each(peers, request))).await;
    }

    /// Observes a representation.
    ///
    /// # Errors
    /// `SessionEnded` if the task has ended.
    pub async fn observe(&self, to: To, request: Request) -> Result<Observation, RequestError> {
        let (sender, versions) = mpsc::channel(NOTIFICATIONS);
        let (number, number_of) = oneshot::channel();
        let request = Request { observes: true, ..request };
        let pending = Pending::Many(sender, Some(number));
        let command = Box::new(Command::Request(to, request, Duration::ZERO, pending));
        self.commands.send(command).await.map_err(|_| RequestError::SessionEnded)?;
        Ok(Observation { versions, number: Some(number_of), commands: self.commands.clone() })
    }

    /// Answers a request.
    pub async fn respond(&self, id: ExchangeId, response: Response) {
        let _ = self.commands.send(Box::new(Command::Respond(id, response))).await;
    }

    /// Sends a new version of a resource to its observers
    /// ([`Endpoint::notify`](super::Endpoint::notify)).
    pub async fn notify(&self, path: impl Into<String>, representation: Representation) {
        let command = Box::new(Command::Notify(path.into(), representation));
        let _ = self.commands.send(command).await;
    }

    /// Ends the DTLS sessions of the devices for which `is_member` returns false.
    pub fn retain(&self, is_member: impl Fn(&[u8; 8]) -> bool + Send + 'static) {
        let commands = self.commands.clone();
        let command = Box::new(Command::Retain(Box::new(is_member)));
        if let Err(mpsc::error::TrySendError::Full(command)) = commands.try_send(command) {
            tokio::spawn(async move { drop(commands.send(command).await) });
        }
    }

    /// Returns what the socket counted.
    #[must_use]
    pub fn counters(&self) -> SocketCounters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An observation. It ends when this value is dropped.
#[derive(Debug)]
pub struct Observation {
    versions: mpsc::Receiver<Result<Response, RequestError>>,
    number: Option<oneshot::Receiver<u64>>,
    commands: mpsc::Sender<Box<Command>>,
}

impl Observation {
    /// Waits for the next version of the representation. The last item is the response or the error
    /// that ended the observation.
    pub async fn next(&mut self) -> Option<Result<Response, RequestError>> {
        self.versions.recv().await
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        if let Some(Ok(number)) = self.number.take().map(|mut number| number.try_recv()) {
            let _ = self.commands.try_send(Box::new(Command::Cancel(number)));
        }
    }
}

/// A socket and its task. The task ends when this value is dropped.
#[derive(Debug)]
pub struct Socket {
    handle: Handle,
    task: AbortHandle,
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Socket {
    /// Listens on an address, and serves requests without DTLS, or with it if `security` is a server's.
    ///
    /// # Errors
    /// The operating system's error if the address cannot be used.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn listen(
        address: SocketAddr,
        security: Security,
        config: Config,
        service: impl FnOnce(&Handle) -> Box<dyn Service>,
    ) -> io::Result<Self> {
        Self::start(bound(address)?, Transport::new(security, None), config, service)
    }

    /// Creates a client's socket for a server.
    ///
    /// # Errors
    /// The operating system's error if there is no socket.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn connect(
        server: SocketAddr,
        security: Security,
        backoff: Backoff,
        config: Config,
        service: impl FnOnce(&Handle) -> Box<dyn Service>,
    ) -> io::Result<Self> {
        let any = match server {
            // Other machines cannot reach a client of this machine.
            SocketAddr::V4(server) if server.ip().is_loopback() => (Ipv4Addr::LOCALHOST, 0).into(),
            SocketAddr::V6(server) if server.ip().is_loopback() => (Ipv6Addr::LOCALHOST, 0).into(),
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        Self::start(bound(any)?, Transport::new(security, Some((server, backoff))), config, service)
    }

    fn start(
        socket: UdpSocket,
        transport: Transport,
        config: Config,
        service: impl FnOnce(&Handle) -> Box<dyn Service>,
    ) -> io::Result<Self> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(io::Error::other)?;
        let (commands, receiver) = mpsc::channel(COMMANDS);
        let (status, watched) = watch::channel(transport.status());
        let counters = Arc::<Mutex<SocketCounters>>::default();
        let address = socket.local_addr()?;
        let handle = Handle { commands, status: watched, counters: Arc::clone(&counters), address };
        let is_ipv6 = handle.address.is_ipv6();
        let driver = Driver {
            wire: Wire { socket: Arc::new(socket), is_ipv6 },
            endpoint: Endpoint::new(config, seed, Instant::now()),
            transport,
            service: service(&handle),
            commands: receiver,
            pending: HashMap::new(),
            waiting: VecDeque::new(),
            round: None,
            status,
            counters,
        };
        let task = tokio::spawn(driver.run()).abort_handle();
        Ok(Self { handle, task })
    }

    /// Returns a handle of the task.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.handle
    }
}

/// Returns a socket that is bound to an address. A socket for all IPv6 addresses accepts IPv4 too.
fn bound(address: SocketAddr) -> io::Result<UdpSocket> {
    use socket2::{Domain, Protocol, Type};
    let socket =
        socket2::Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    // Bursts of many devices wait in these buffers. A smaller one still works.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}

/// The task of a socket.
struct Driver {
    wire: Wire,
    endpoint: Endpoint,
    transport: Transport,
    service: Box<dyn Service>,
    commands: mpsc::Receiver<Box<Command>>,
    /// Who waits for the response to each own request.
    pending: HashMap<u64, Pending>,
    /// The requests that wait for a session with the server.
    waiting: VecDeque<(Request, Duration, Pending)>,
    /// The request that is sent to many peers, those that have not received it, and when it is sent
    /// to the next ones.
    round: Option<(Request, std::vec::IntoIter<Peer>, Instant)>,
    status: watch::Sender<Status>,
    counters: Arc<Mutex<SocketCounters>>,
}

impl Driver {
    async fn run(mut self) {
        let socket = Arc::clone(&self.wire.socket);
        // The runtime does not know yet that the socket is writable. Without this, the first message of
        // a handshake would be lost, and sent again after a second.
        let _ = socket.writable().await;
        self.timeout();
        loop {
            self.send_round();
            self.flush();
            *self.counters.lock().unwrap_or_else(PoisonError::into_inner) = self.count();
            let next = self.next_timeout();
            let sleep = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                readable = socket.readable() => {
                    if readable.is_ok() {
                        BUFFER.with_borrow_mut(|buffer| self.receive(buffer));
                    }
                }
                command = self.commands.recv() => {
                    // All handles are gone, and with them all who could use this socket.
                    let Some(command) = command else { return };
                    self.obey(*command);
                    for _ in 0..BATCH {
                        let Ok(command) = self.commands.try_recv() else { break };
                        self.obey(*command);
                    }
                }
                () = sleep => self.timeout(),
            }
            // A due timeout is not delayed by a flood of datagrams.
            if next.is_some_and(|at| at <= Instant::now()) {
                self.timeout();
            }
        }
    }

    fn count(&self) -> SocketCounters {
        let (sessions, handshakes) = self.transport.sessions();
        SocketCounters {
            peers: self.endpoint.peers(),
            observers: self.endpoint.observers(),
            sessions,
            handshakes,
            coap: self.endpoint.counters(),
            #[cfg(feature = "tls")]
            dtls: self.transport.counters(),
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let round = self.round.as_ref().map(|(_, _, at)| *at);
        let own = [self.endpoint.next_timeout(), self.transport.next_timeout(), round];
        own.into_iter().flatten().min()
    }

    fn receive(&mut self, buffer: &mut [u8]) {
        for _ in 0..BATCH {
            // An error is that of an earlier datagram, which its receiver's host rejected.
            match self.wire.socket.try_recv_from(buffer) {
                Ok((length, from)) => {
                    let (now, from) = (Instant::now(), canonical(from));
                    let datagram = &buffer[..length];
                    let (endpoint, wire) = (&mut self.endpoint, &self.wire);
                    let mut happened = Vec::new();
                    self.transport.receive(now, from, datagram, &mut |event| match event {
                        Happened::Send(to, datagram) => wire.send(to, datagram),
                        Happened::Message(peer, message) => endpoint.receive(now, peer, message),
                        other => happened.push(other.owned()),
                    });
                    self.note(now, happened);
                    // A response does not wait for the datagrams that follow its request.
                    self.flush();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {}
            }
        }
    }

    fn timeout(&mut self) {
        let now = Instant::now();
        self.endpoint.timeout(now);
        let (endpoint, wire) = (&self.endpoint, &self.wire);
        let mut happened = Vec::new();
        let is_stalled = |peer| endpoint.is_stalled(peer);
        self.transport.timeout(now, is_stalled, &mut |event| match event {
            Happened::Send(to, datagram) => wire.send(to, datagram),
            Happened::Message(..) => {}
            other => happened.push(other.owned()),
        });
        self.note(now, happened);
    }

    /// Processes the beginnings and ends of sessions.
    fn note(&mut self, now: Instant, happened: Vec<Happened<'static>>) {
        for event in happened {
            match event {
                Happened::Opened { peer, proven, before } => {
                    if let Some(device) = proven.device {
                        self.endpoint.identify(peer, device);
                    }
                    if let Some(before) = before {
                        self.endpoint.move_requests(now, before, peer);
                        self.endpoint.forget(before);
                    }
                    self.service.opened(peer, proven);
                    if self.transport.server().is_some() {
                        self.status.send_replace(Status::Up);
                        while let Some((request, patience, pending)) = self.waiting.pop_front() {
                            self.start(now, peer, request, patience, pending);
                        }
                    }
                }
                Happened::Closed(peer) => {
                    // A client continues its requests in its next session.
                    if self.transport.server().is_none() {
                        self.endpoint.forget(peer);
                    }
                    self.service.closed(peer);
                }
                Happened::Down(error, again_in) => {
                    self.status.send_replace(Status::Down { error, again_in });
                    // Nobody else could answer them, so they do not wait longer than they must.
                    for (_, _, pending) in self.waiting.drain(..) {
                        pending.end(Err(RequestError::SessionEnded));
                    }
                }
                Happened::Send(..) | Happened::Message(..) => {}
            }
        }
    }

    fn obey(&mut self, command: Command) {
        let now = Instant::now();
        match command {
            Command::Request(to, request, patience, pending) => {
                let peer = match to {
                    To::Peer(peer) => Some(peer),
                    To::Server => self.transport.server().and_then(|server| server),
                };
                match peer {
                    Some(peer) => self.start(now, peer, request, patience, pending),
                    None if self.waiting.len() < WAITING => {
                        self.waiting.push_back((request, patience, pending));
                    }
                    None => pending.end(Err(RequestError::Busy)),
                }
            }
            Command::Each(peers, request) => self.round = Some((request, peers.into_iter(), now)),
            Command::Cancel(number) => {
                self.pending.remove(&number);
                if let Some(Some(peer)) = self.transport.server() {
                    self.endpoint.cancel(now, RequestId { peer, number });
                }
            }
            Command::Respond(id, response) => self.endpoint.respond(now, id, response),
            Command::Notify(path, mut representation) => {
                self.endpoint.notify(now, &path, &mut *representation);
            }
            Command::Retain(is_member) => {
                let (wire, mut happened) = (&self.wire, Vec::new());
                self.transport.retain(now, &is_member, &mut |event| match event {
                    Happened::Send(to, datagram) => wire.send(to, datagram),
                    Happened::Message(..) => {}
                    other => happened.push(other.owned()),
                });
                self.note(now, happened);
            }
        }
    }

    fn start(
        &mut self,
        now: Instant,
        peer: Peer,
        request: Request,
        patience: Duration,
        mut pending: Pending,
    ) {
        match self.endpoint.request(now, peer, request, patience) {
            Ok(id) => {
                if let Pending::Many(_, number) = &mut pending
                    && let Some(number) = number.take()
                {
                    let _ = number.send(id.number);
                }
                self.pending.insert(id.number, pending);
            }
            Err(error) => pending.end(Err(error)),
        }
    }

    /// Sends a request to the next of many peers.
    fn send_round(&mut self) {
        let now = Instant::now();
        let due = self.round.take_if(|(_, _, at)| *at <= now);
        let Some((request, mut peers, _)) = due else { return };
        for peer in peers.by_ref().take(ROUND) {
            self.start(now, peer, request.clone(), Duration::ZERO, Pending::Permit(None));
        }
        if peers.len() > 0 {
            self.round = Some((request, peers, now + ROUND_PAUSE));
        }
    }

    /// Sends what the endpoint has to send, and processes its events.
    fn flush(&mut self) {
        while let Some(output) = self.endpoint.poll() {
            match output {
                Output::Send(peer, message) => {
                    let wire = &self.wire;
                    let (now, mut happened) = (Instant::now(), Vec::new());
                    self.transport.send(now, peer, &message, &mut |event| match event {
                        Happened::Send(to, datagram) => wire.send(to, datagram),
                        Happened::Message(..) => {}
                        other => happened.push(other.owned()),
                    });
                    if !happened.is_empty() {
                        self.note(now, happened);
                    }
                }
                Output::Event(Event::Request { id, owner, request }) => {
                    if let Some(response) = self.service.request(id, owner, request) {
                        self.endpoint.respond(Instant::now(), id, response);
                    }
                }
                Output::Event(Event::Response { id, response }) => {
                    if let Some(pending) = self.pending.remove(&id.number) {
                        pending.end(response);
                    }
                }
                Output::Event(Event::Notified { id, response }) => {
                    if let Some(Pending::Many(sender, _)) = self.pending.get(&id.number)
                        && let Err(mpsc::error::TrySendError::Closed(_)) =
                            sender.try_send(Ok(response))
                    {
                        self.pending.remove(&id.number);
                        self.endpoint.cancel(Instant::now(), id);
                    }
                }
            }
        }
    }
}

/// The socket of a task.
struct Wire {
    socket: Arc<UdpSocket>,
    is_ipv6: bool,
}

impl Wire {
    /// Sends a datagram. If the socket has no room, the datagram is lost, like one that the network
    /// loses.
    fn send(&self, to: SocketAddr, datagram: &[u8]) {
        let to = match to {
            SocketAddr::V4(v4) if self.is_ipv6 => {
                SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port()))
            }
            to => to,
        };
        let _ = self.socket.try_send_to(datagram, to);
    }
}

/// Returns an IPv4 address for one that an IPv6 socket reports in IPv6 form, so that each peer has one
/// address.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
