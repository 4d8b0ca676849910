//! What carries the messages of an endpoint: datagrams without protection, or the sessions of DTLS.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::{Peer, Proven};
use crate::client::spread;
#[cfg(feature = "tls")]
use crate::dtls;
use crate::mqtt::Backoff;

/// A client whose messages are not acknowledged makes a new handshake, but not more often than this:
/// the server may have lost the session, or may not be reached.
#[cfg(feature = "tls")]
const NEW_HANDSHAKE: Duration = Duration::from_secs(8);

/// The protection of a socket.
pub enum Security {
    /// None.
    Plain,
    /// The sessions of a server.
    #[cfg(feature = "tls")]
    Server(Box<dtls::Server>),
    /// The session of a client.
    #[cfg(feature = "tls")]
    Client(Box<dtls::Client>),
}

impl std::fmt::Debug for Security {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain => "Plain",
            #[cfg(feature = "tls")]
            Self::Server(_) => "Server",
            #[cfg(feature = "tls")]
            Self::Client(_) => "Client",
        })
    }
}

/// Why there is no session.
#[cfg(feature = "tls")]
pub type SessionError = dtls::DtlsError;
/// Without DTLS there is no error of sessions.
#[cfg(not(feature = "tls"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionError {}

/// The state of a client's session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// The handshake is in progress.
    Connecting,
    /// There is a session, or the socket has no protection.
    Up,
    /// There is no session.
    Down {
        /// The cause.
        error: SessionError,
        /// The time between entering this state and the next handshake.
        again_in: Duration,
    },
}

/// What happened on a socket.
#[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "there are no sessions"))]
pub(super) enum Happened<'a> {
    Send(SocketAddr, &'a [u8]),
    Message(Peer, &'a [u8]),
    /// A session was opened. `before` is the client's session before it.
    Opened {
        peer: Peer,
        proven: Proven,
        before: Option<Peer>,
    },
    Closed(Peer),
    /// A client's handshake failed, or its session ended.
    Down(SessionError, Duration),
}

impl Happened<'_> {
    /// Returns an event that refers to no bytes. Datagrams and messages are processed before.
    pub(super) fn owned(self) -> Happened<'static> {
        match self {
            Self::Send(to, _) => Happened::Send(to, &[]),
            Self::Message(peer, _) => Happened::Message(peer, &[]),
            Self::Opened { peer, proven, before } => Happened::Opened { peer, proven, before },
            Self::Closed(peer) => Happened::Closed(peer),
            Self::Down(error, again_in) => Happened::Down(error, again_in),
        }
    }
}

type Out<'o> = &'o mut dyn FnMut(Happened<'_>);

/// The transport of an endpoint.
pub(super) enum Transport {
    /// Datagrams, of a server or of a client with this server.
    Plain(Option<SocketAddr>),
    #[cfg(feature = "tls")]
    Server(Box<dtls::Server>),
    #[cfg(feature = "tls")]
    Client(Box<Session>),
}

/// A client's session and when to make the next one.
#[cfg(feature = "tls")]
pub(super) struct Session {
    client: dtls::Client,
    server: SocketAddr,
    /// The newest session, which may have ended.
    peer: Option<Peer>,
    backoff: Backoff,
    failures: u32,
    /// When to make the next handshake, after one failed or the session ended.
    again: Option<Instant>,
    /// When the last handshake was started.
    started: Instant,
    /// Whether messages were not acknowledged since the last message of the server.
    stalls: bool,
}

impl Transport {
    pub(super) fn new(security: Security, server: Option<(SocketAddr, Backoff)>) -> Self {
        match (security, server) {
            #[cfg(feature = "tls")]
            (Security::Server(server), _) => Self::Server(server),
            #[cfg(feature = "tls")]
            (Security::Client(client), Some((server, backoff))) => {
                Self::Client(Box::new(Session {
                    client: *client,
                    server,
                    peer: None,
                    backoff,
                    failures: 0,
                    again: None,
                    started: Instant::now(),
                    stalls: false,
                }))
            }
            (_, server) => Self::Plain(server.map(|(server, _)| server)),
        }
    }

    pub(super) fn status(&self) -> Status {
        match self {
            #[cfg(feature = "tls")]
            Self::Client(_) => Status::Connecting,
            _ => Status::Up,
        }
    }

    /// Returns `None` for a server's socket, `Some(None)` for a client's without a session, and the
    /// client's server otherwise.
    pub(super) fn server(&self) -> Option<Option<Peer>> {
        match self {
            Self::Plain(server) => server.map(|server| Some(Peer::plain(server))),
            #[cfg(feature = "tls")]
            Self::Server(_) => None,
            #[cfg(feature = "tls")]
            Self::Client(session) => Some(session.peer),
        }
    }

    pub(super) fn receive(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagram: &[u8],
        out: Out<'_>,
    ) {
        match self {
            Self::Plain(server) => {
                if server.is_none_or(|server| is_same(server, from)) {
                    out(Happened::Message(Peer::plain(server.unwrap_or(from)), datagram));
                }
            }
            #[cfg(feature = "tls")]
            Self::Server(server) => {
                server.receive(now, from, datagram, &mut |event| of_server(event, out));
            }
            #[cfg(feature = "tls")]
            Self::Client(session) => {
                if is_same(session.server, from) {
                    session.run(now, out, |client, out| client.receive(now, datagram, out));
                }
            }
        }
        let _ = now;
    }

    pub(super) fn send(&mut self, now: Instant, to: Peer, message: &[u8], out: Out<'_>) {
        match self {
            Self::Plain(_) => out(Happened::Send(to.address, message)),
            // A message that belongs to a session that has ended, or that is too long, is lost.
            #[cfg(feature = "tls")]
            Self::Server(server) => {
                if server.session(to.address).is_some_and(|(number, _)| number == to.session) {
                    let event = &mut |event: dtls::Event<'_>| of_server(event, out);
                    let _ = server.send(now, to.address, message, event);
                }
            }
            #[cfg(feature = "tls")]
            Self::Client(session) => {
                if session.client.session() == Some(to.session) {
                    session.run(now, out, |client, out| drop(client.send(now, message, out)));
                }
            }
        }
        let _ = now;
    }

    pub(super) fn timeout(
        &mut self,
        now: Instant,
        is_stalled: impl Fn(Peer) -> bool,
        out: Out<'_>,
    ) {
        match self {
            Self::Plain(_) => {}
            #[cfg(feature = "tls")]
            Self::Server(server) => {
                if server.next_timeout().is_some_and(|at| at <= now) {
                    server.timeout(now, &mut |event| of_server(event, out));
                }
            }
            #[cfg(feature = "tls")]
            Self::Client(session) => {
                if session.client.next_timeout().is_some_and(|at| at <= now) {
                    session.run(now, out, |client, out| client.timeout(now, out));
                }
                session.stalls |= session.peer.is_some_and(&is_stalled);
                let stalls = session.new_handshake().is_some_and(|at| at <= now);
                if stalls || session.again.is_some_and(|again| again <= now) {
                    (session.again, session.started, session.stalls) = (None, now, false);
                    session.run(now, out, |client, out| client.connect(now, out));
                }
            }
        }
        let _ = (now, &is_stalled);
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match self {
            Self::Plain(_) => None,
            #[cfg(feature = "tls")]
            Self::Server(server) => server.next_timeout(),
            #[cfg(feature = "tls")]
            Self::Client(session) => {
                let handshake = session.new_handshake();
                session
                    .client
                    .next_timeout()
                    .into_iter()
                    .chain(session.again)
                    .chain(handshake)
                    .min()
            }
        }
    }

    /// Returns the numbers of sessions and of incomplete handshakes of a server.
    pub(super) fn sessions(&self) -> (usize, usize) {
        match self {
            #[cfg(feature = "tls")]
            Self::Server(server) => (server.sessions(), server.handshakes()),
            _ => (0, 0),
        }
    }

    /// Returns what a server of sessions counted.
    #[cfg(feature = "tls")]
    pub(super) fn counters(&self) -> dtls::Counters {
        match self {
            Self::Server(server) => server.counters(),
            Self::Plain(_) | Self::Client(_) => dtls::Counters::default(),
        }
    }

    /// Ends the sessions of the devices for which `is_member` returns false.
    pub(super) fn retain(
        &mut self,
        now: Instant,
        is_member: &dyn Fn(&[u8; 8]) -> bool,
        out: Out<'_>,
    ) {
        #[cfg(feature = "tls")]
        if let Self::Server(server) = self {
            for device in server.devices() {
                if !is_member(&device) {
                    server.close_device(now, device, &mut |event| of_server(event, out));
                }
            }
        }
        let _ = (now, is_member);
    }
}

#[cfg(feature = "tls")]
impl Session {
    /// Returns when to replace a session whose server does not acknowledge messages.
    fn new_handshake(&self) -> Option<Instant> {
        let is_due = self.stalls && self.client.session().is_some();
        is_due.then(|| self.started + NEW_HANDSHAKE)
    }

    /// Runs a step of the client, and decides about the next handshake.
    fn run(
        &mut self,
        now: Instant,
        out: Out<'_>,
        step: impl FnOnce(&mut dtls::Client, &mut dyn FnMut(dtls::Event<'_>)),
    ) {
        let (mut opened, mut ended, mut heard) = (None, None, false);
        step(&mut self.client, &mut |event| match event {
            dtls::Event::Send { to, datagram } => out(Happened::Send(to, datagram)),
            dtls::Event::Data { peer, session, bytes } => {
                heard = true;
                out(Happened::Message(Peer { address: peer, session }, bytes));
            }
            dtls::Event::Opened { peer, session, .. } => {
                opened = Some(Peer { address: peer, session });
            }
            dtls::Event::Closed { why, .. } | dtls::Event::Refused { why, .. } => ended = Some(why),
        });
        self.stalls &= !heard;
        if let Some(peer) = opened {
            let before = self.peer.replace(peer);
            self.failures = 0;
            out(Happened::Opened { peer, proven: Proven::default(), before });
        }
        // The client itself replaces a session that does not respond.
        if let Some(why) = ended.filter(|why| *why != dtls::DtlsError::Replaced) {
            let wait = self.backoff.wait(self.failures, spread());
            self.failures = self.failures.saturating_add(1);
            self.again = Some(now + wait);
            out(Happened::Down(why, wait));
        }
    }
}

/// Passes on an event of a server's sessions.
#[cfg(feature = "tls")]
fn of_server(event: dtls::Event<'_>, out: Out<'_>) {
    match event {
        dtls::Event::Send { to, datagram } => out(Happened::Send(to, datagram)),
        dtls::Event::Data { peer, session, bytes } => {
            out(Happened::Message(Peer { address: peer, session }, bytes));
        }
        dtls::Event::Opened { peer, session, identity } => out(Happened::Opened {
            peer: Peer { address: peer, session },
            proven: Proven { device: identity.device(), key: identity.key() },
            before: None,
        }),
        dtls::Event::Closed { peer, session, .. } => {
            out(Happened::Closed(Peer { address: peer, session }));
        }
        dtls::Event::Refused { .. } => {}
    }
}

/// Returns whether two addresses are the same, where a link-local IPv6 address may lack its scope.
fn is_same(server: SocketAddr, from: SocketAddr) -> bool {
    let plain = |address: IpAddr| address.to_canonical();
    plain(server.ip()) == plain(from.ip()) && server.port() == from.port()
}
