//! The server's side: all peers of one socket.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::coap::config::network;

use super::config::{ServerConfig, ServerKeys};
use super::cookie::Cookies;
use super::engine::{self, Connection, Keys, Step};
use super::hello::ClientHello;
use super::record::{HANDSHAKE, Record, records};
use super::{Counters, DtlsError, Event, Identity, Limits, MAX_PLAINTEXT};

/// The suite `TLS_PSK_WITH_AES_128_CCM_8`.
const PSK: u16 = 0xc0a8;
/// The suites with certificates: `TLS_ECDHE_ECDSA_WITH_` AES-128-GCM, AES-256-GCM and
/// ChaCha20-Poly1305.
const CERTIFICATE: [u16; 3] = [0xc02b, 0xc02c, 0xcca9];
/// The maximum number of records that one side sends with one key. The library makes the 64-bit
/// nonces of AES-CCM and AES-GCM randomly: two of this number are equal with probability 2^-21.
pub(super) const MAX_RECORDS: u32 = 1 << 22;

/// The maximum number of sessions of one device. A device has more than one if its address
/// changes, or while it runs twice.
const SESSIONS_PER_DEVICE: usize = 8;
/// For how long an incomplete handshake is not ended to make room for another one.
const MIN_TIME: Duration = Duration::from_secs(1);
/// The shortest time until a timer is due.
const RESOLUTION: Duration = Duration::from_millis(1);

/// The server's end of the sessions of one socket.
///
/// # Example
/// ```
/// use std::time::{Duration, Instant};
/// use moteseal_net::dtls::{Event, Limits, Server, ServerConfig};
///
/// # fn main() -> Result<(), moteseal_net::dtls::DtlsError> {
/// let now = Instant::now();
/// let config = ServerConfig::new().with_psk(|_device| None);
/// let mut server = Server::new(config, Limits::default(), now)?;
/// let from = ([192, 0, 2, 1], 5684).into();
/// server.receive(now, from, b"not DTLS", &mut |_event: Event<'_>| unreachable!());
/// assert_eq!(server.counters().stray, 1);
/// # Ok(())
/// # }
/// ```
pub struct Server {
    keys: ServerKeys,
    limits: Limits,
    cookies: Cookies,
    handshakes: HashMap<SocketAddr, Box<Peer>>,
    /// The addresses of the incomplete handshakes of each network, oldest first.
    networks: HashMap<u128, BTreeMap<u64, SocketAddr>>,
    sessions: HashMap<SocketAddr, Box<Peer>>,
    /// The addresses of the sessions of each device, oldest first.
    devices: HashMap<[u8; 8], Vec<SocketAddr>>,
    /// The numbers of sessions without a device from each network.
    nameless: HashMap<u128, usize>,
    /// When each peer is due. A session's entry may be too early.
    timers: BTreeSet<(Instant, SocketAddr, Phase)>,
    counters: Counters,
    /// The number of the next session, or handshake.
    next: u64,
    buffer: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Handshake,
    Session,
}

/// One connection: a handshake, later a session.
struct Peer {
    connection: Connection,
    /// The client's random, which identifies its handshake.
    random: [u8; 32],
    /// The identity from a verified certificate; later the proved identity.
    identity: Option<Identity>,
    /// The order of handshakes; later the number of the session.
    number: u64,
    phase: Phase,
    /// The start of the handshake; later the time of the last plaintext.
    seen: Instant,
    /// The entry in the timers.
    armed: Option<(Instant, Phase)>,
    sent: u32,
}

type Out<'o> = &'o mut dyn FnMut(Event<'_>);

impl Server {
    /// Creates a server without sessions.
    ///
    /// # Errors
    /// `Protocol` if the system has no randomness.
    pub fn new(config: ServerConfig, limits: Limits, now: Instant) -> Result<Self, DtlsError> {
        let cookies =
            Cookies::new(now).map_err(|error| DtlsError::Protocol { cause: error.to_string() })?;
        Ok(Self {
            keys: config.build(limits.handshake)?,
            limits,
            cookies,
            handshakes: HashMap::new(),
            networks: HashMap::new(),
            sessions: HashMap::new(),
            devices: HashMap::new(),
            nameless: HashMap::new(),
            timers: BTreeSet::new(),
            counters: Counters::default(),
            next: 1,
            buffer: vec![0; engine::BUFFER],
        })
    }

    /// Processes a datagram that arrived from `from`.
    pub fn receive(&mut self, now: Instant, from: SocketAddr, datagram: &[u8], out: Out<'_>) {
        let Some(records) = records(datagram) else {
            self.counters.stray += 1;
            return;
        };
        if let [record] = &records[..]
            && let Some(hello) = ClientHello::parse(record)
        {
            return self.hello(now, from, &hello, datagram, out);
        }
        // While a peer repeats the handshake, its old session continues. Only the protected
        // records that are no handshake messages belong to the old session.
        let is_handshake = |record: &Record<'_>| record.epoch == 0 || record.content == HANDSHAKE;
        let has_session = self.sessions.contains_key(&from);
        let phase = if self.handshakes.contains_key(&from)
            && (!has_session || records.iter().any(is_handshake))
        {
            Phase::Handshake
        } else if has_session {
            Phase::Session
        } else {
            self.counters.stray += 1;
            return;
        };
        let Some(mut peer) = self.take(from, phase) else { return };
        let done = peer.connection.receive_records(now, datagram, &records);
        self.counters.stray += u64::from(done == Ok(false));
        self.advance(now, from, peer, done.map(drop), out);
    }

    /// Encrypts and sends a plaintext to a peer with a session.
    ///
    /// # Errors
    /// `NoSession`, `PlaintextTooLong`.
    pub fn send(
        &mut self,
        now: Instant,
        to: SocketAddr,
        plaintext: &[u8],
        out: Out<'_>,
    ) -> Result<(), DtlsError> {
        if plaintext.len() > MAX_PLAINTEXT {
            return Err(DtlsError::PlaintextTooLong { length: plaintext.len() });
        }
        let peer = self.take(to, Phase::Session);
        let mut peer = peer.ok_or(DtlsError::NoSession { peer: to })?;
        let done = if peer.sent == MAX_RECORDS {
            Err(DtlsError::WornOut)
        } else {
            peer.sent += 1;
            peer.connection.send(now, plaintext)
        };
        self.advance(now, to, peer, done, out);
        if self.sessions.contains_key(&to) {
            Ok(())
        } else {
            Err(DtlsError::NoSession { peer: to })
        }
    }

    /// Repeats messages that were not answered, and ends handshakes and sessions whose time is
    /// over. Call this at [`next_timeout`](Self::next_timeout) or later.
    pub fn timeout(&mut self, now: Instant, out: Out<'_>) {
        while let Some(&(at, from, phase)) = self.timers.first()
            && at <= now
        {
            let Some(mut peer) = self.take(from, phase) else {
                self.timers.pop_first();
                continue;
            };
            self.disarm(from, &mut peer);
            let is_over = now.saturating_duration_since(peer.seen) >= self.limit(phase);
            let done = match phase {
                Phase::Handshake if is_over => Err(DtlsError::Timeout),
                Phase::Session if is_over => Err(DtlsError::Idle),
                _ => peer.connection.timeout(now),
            };
            self.advance(now, from, peer, done, out);
        }
    }

    /// Returns the time of the next call of [`timeout`](Self::timeout).
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, ..)| *at)
    }

    /// Closes the session of a peer, if it has one, and its incomplete handshake.
    pub fn close(&mut self, now: Instant, peer: SocketAddr, out: Out<'_>) {
        if let Some(handshake) = self.take(peer, Phase::Handshake) {
            self.advance(now, peer, handshake, Err(DtlsError::Closed), out);
        }
        if let Some(session) = self.take(peer, Phase::Session) {
            self.advance(now, peer, session, Err(DtlsError::Closed), out);
        }
    }

    /// Closes all sessions of a device, after it was removed from the group or its key was
    /// replaced.
    pub fn close_device(&mut self, now: Instant, device: [u8; 8], out: Out<'_>) {
        for peer in self.devices.get(&device).cloned().unwrap_or_default() {
            self.close(now, peer, out);
        }
    }

    /// Returns the devices that have sessions.
    #[must_use]
    pub fn devices(&self) -> Vec<[u8; 8]> {
        self.devices.keys().copied().collect()
    }

    /// Returns the session of a peer, and the peer's identity.
    #[must_use]
    pub fn session(&self, peer: SocketAddr) -> Option<(u64, &Identity)> {
        let peer = self.sessions.get(&peer)?;
        peer.identity.as_ref().map(|identity| (peer.number, identity))
    }

    /// Returns the number of sessions.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the number of incomplete handshakes.
    #[must_use]
    pub fn handshakes(&self) -> usize {
        self.handshakes.len()
    }

    /// Returns what the server has dropped and refused so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    fn hello(
        &mut self,
        now: Instant,
        from: SocketAddr,
        hello: &ClientHello<'_>,
        datagram: &[u8],
        out: Out<'_>,
    ) {
        if !self.cookies.is_valid(now, from, hello) {
            self.counters.unverified += 1;
            let cookie = self.cookies.cookie(now, from, hello);
            return out(Event::Send { to: from, datagram: &hello.verify_request(&cookie) });
        }
        let is_same = |peer: &Peer| peer.random == *hello.random;
        if self.handshakes.get(&from).is_some_and(|peer| is_same(peer))
            && let Some(mut peer) = self.take(from, Phase::Handshake)
        {
            // The client repeats its message: repeat the answer.
            let records = records(datagram).unwrap_or_default();
            let done = peer.connection.receive_records(now, datagram, &records);
            return self.advance(now, from, peer, done.map(drop), out);
        }
        if self.sessions.get(&from).is_some_and(|peer| is_same(peer)) {
            self.counters.stray += 1;
            return;
        }
        // A client that restarts does not continue its previous handshake.
        self.remove(from, Phase::Handshake);
        let Some(keys) = self.keys.for_suites(hello.suites()) else {
            self.counters.refused += 1;
            let alert = hello.alert(40);
            out(Event::Send { to: from, datagram: &alert });
            return out(Event::Refused { peer: from, why: DtlsError::NoCommonSuite });
        };
        if !self.make_room(now, from, out) {
            // The client repeats its message.
            self.counters.postponed += 1;
            return;
        }
        let (connection, done) = Connection::server(&keys, now, hello, datagram);
        let number = self.next;
        self.next += 1;
        self.networks.entry(network(from.ip())).or_default().insert(number, from);
        let peer = Box::new(Peer {
            connection,
            random: *hello.random,
            identity: None,
            number,
            phase: Phase::Handshake,
            seen: now,
            armed: None,
            sent: 0,
        });
        self.advance(now, from, peer, done, out);
    }

    /// Ends a handshake if there is no room for one more from this address: the oldest one of its
    /// network, or else of the network that has the most, so that a network that floods ends its
    /// own handshakes first. Returns false if that handshake is so new that its client must have
    /// time to continue; this also bounds the time that the server spends on new handshakes.
    fn make_room(&mut self, now: Instant, from: SocketAddr, out: Out<'_>) -> bool {
        let own = self.networks.get(&network(from.ip()));
        let crowded = if own.is_some_and(|own| own.len() >= self.limits.handshakes_per_network) {
            own
        } else if self.handshakes.len() >= self.limits.handshakes {
            let oldest = |of: &BTreeMap<u64, _>| of.first_key_value().map(|(number, _)| *number);
            self.networks.values().max_by_key(|of| (of.len(), Reverse(oldest(of))))
        } else {
            return true;
        };
        let oldest = crowded.and_then(|of| of.first_key_value()).map(|(_, from)| *from);
        let Some(oldest) = oldest else { return true };
        let is_own = own.map_or(0, BTreeMap::len) >= crowded.map_or(0, BTreeMap::len) - 1;
        let Some(peer) = self.take(oldest, Phase::Handshake) else { return true };
        if is_own && now.saturating_duration_since(peer.seen) < MIN_TIME {
            self.handshakes.insert(oldest, peer);
            return false;
        }
        self.advance(now, oldest, peer, Err(DtlsError::Evicted), out);
        true
    }

    /// Notes that a handshake is not incomplete any more.
    fn leave(&mut self, from: SocketAddr, number: u64) {
        let network = network(from.ip());
        if let Some(of) = self.networks.get_mut(&network) {
            of.remove(&number);
            if of.is_empty() {
                self.networks.remove(&network);
            }
        }
    }

    /// Passes everything that a connection has to report to the caller, and stores the connection
    /// again or ends it.
    fn advance(
        &mut self,
        now: Instant,
        from: SocketAddr,
        mut peer: Box<Peer>,
        done: Result<(), DtlsError>,
        out: Out<'_>,
    ) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let end = done.and_then(|()| self.poll(now, from, &mut peer, &mut buffer, out));
        match end {
            Ok(wait) => self.store(from, peer, wait),
            Err(why) => self.end(from, peer, why, &mut buffer, out),
        }
        self.buffer = buffer;
    }

    fn poll(
        &mut self,
        now: Instant,
        from: SocketAddr,
        peer: &mut Peer,
        buffer: &mut Vec<u8>,
        out: Out<'_>,
    ) -> Result<Instant, DtlsError> {
        loop {
            match peer.connection.poll(buffer) {
                Step::Send(datagram) => out(Event::Send { to: from, datagram }),
                Step::Certificate(certificate) => {
                    let authority = self.keys.authority().ok_or(DtlsError::NoCommonSuite)?;
                    peer.identity = Some(authority.verify_client(certificate)?);
                }
                Step::Connected => self.open(now, from, peer, out)?,
                Step::Data(bytes) => {
                    peer.seen = now;
                    out(Event::Data { peer: from, session: peer.number, bytes });
                }
                Step::ClosedByPeer => {
                    while let Step::Send(datagram) = peer.connection.poll(buffer) {
                        out(Event::Send { to: from, datagram });
                    }
                    return Err(DtlsError::ClosedByPeer);
                }
                Step::Wait(at) => {
                    let end = peer.seen.checked_add(self.limit(peer.phase));
                    // A time that has passed would be due again at once.
                    return Ok(at.min(end.unwrap_or(at)).max(now + RESOLUTION));
                }
            }
        }
    }

    /// Makes a session of a complete handshake.
    fn open(
        &mut self,
        now: Instant,
        from: SocketAddr,
        peer: &mut Peer,
        out: Out<'_>,
    ) -> Result<(), DtlsError> {
        let identity =
            match (peer.connection.is_psk(), peer.connection.device(), peer.identity.take()) {
                (true, Some(device), _) => Identity::Device(device),
                (false, _, Some(identity)) => identity,
                (false, _, None) if self.keys.accepts_anonymous => Identity::Anonymous,
                _ => return Err(DtlsError::NotAuthentic),
            };
        let end = |server: &mut Self, from, why, out: Out<'_>| {
            if let Some(old) = server.take(from, Phase::Session) {
                server.end(from, old, why, &mut Vec::new(), out);
            }
        };
        end(self, from, DtlsError::Replaced, out);
        if let Some(device) = identity.device() {
            let oldest = self.devices.get(&device).filter(|of| of.len() >= SESSIONS_PER_DEVICE);
            if let Some(oldest) = oldest.and_then(|of| of.first().copied()) {
                end(self, oldest, DtlsError::Replaced, out);
            }
            self.devices.entry(device).or_default().push(from);
        } else {
            if let Some(idle) = self.excess(from) {
                end(self, idle, DtlsError::Evicted, out);
            }
            *self.nameless.entry(network(from.ip())).or_default() += 1;
        }
        if self.sessions.len() >= self.limits.sessions
            && let Some(idle) = self.idlest(|_, _| true)
        {
            end(self, idle, DtlsError::Evicted, out);
        }
        self.leave(from, peer.number);
        peer.phase = Phase::Session;
        peer.seen = now;
        peer.identity = Some(identity.clone());
        peer.number = self.next;
        self.next += 1;
        out(Event::Opened { peer: from, session: peer.number, identity });
        Ok(())
    }

    /// Returns the session that must end before an address gets a session without a device.
    fn excess(&self, from: SocketAddr) -> Option<SocketAddr> {
        let network = network(from.ip());
        let of_network = self.nameless.get(&network).copied().unwrap_or_default();
        let is_nameless = |peer: &Peer| peer.identity.as_ref().and_then(Identity::device).is_none();
        if of_network >= self.limits.sessions_per_network {
            self.idlest(|from, of| is_nameless(of) && self::network(from.ip()) == network)
        } else if self.nameless.values().sum::<usize>() >= self.limits.sessions / 2 {
            self.idlest(|_, of| is_nameless(of))
        } else {
            None
        }
    }

    /// Returns the session that was idle longest, first among those of anonymous peers, then among
    /// those without a device.
    fn idlest(&self, filter: impl Fn(&SocketAddr, &Peer) -> bool) -> Option<SocketAddr> {
        let order = |peer: &Peer| {
            let identity = peer.identity.as_ref();
            let has_device = identity.and_then(Identity::device).is_some();
            (has_device, identity != Some(&Identity::Anonymous), peer.seen)
        };
        let candidates = self.sessions.iter().filter(|(from, peer)| filter(from, peer));
        candidates.min_by_key(|(_, peer)| order(peer)).map(|(from, _)| *from)
    }

    /// Reports the end of a handshake or a session, and drops it.
    fn end(
        &mut self,
        from: SocketAddr,
        mut peer: Box<Peer>,
        why: DtlsError,
        buffer: &mut Vec<u8>,
        out: Out<'_>,
    ) {
        self.disarm(from, &mut peer);
        self.counters.evicted += u64::from(why == DtlsError::Evicted);
        let is_told = matches!(
            why,
            DtlsError::Closed | DtlsError::Idle | DtlsError::Evicted | DtlsError::WornOut
        );
        if peer.phase == Phase::Handshake {
            self.leave(from, peer.number);
            self.counters.refused += 1;
            if let Some(alert) = peer.connection.alert(&why) {
                out(Event::Send { to: from, datagram: &alert });
            }
            return out(Event::Refused { peer: from, why });
        }
        if is_told {
            peer.connection.close();
            while let Step::Send(datagram) = peer.connection.poll(buffer) {
                out(Event::Send { to: from, datagram });
            }
        }
        if let Some(device) = peer.identity.as_ref().and_then(Identity::device) {
            if let Some(addresses) = self.devices.get_mut(&device) {
                addresses.retain(|address| *address != from);
                if addresses.is_empty() {
                    self.devices.remove(&device);
                }
            }
        } else if let Some(count) = self.nameless.get_mut(&network(from.ip())) {
            *count -= 1;
            if *count == 0 {
                self.nameless.remove(&network(from.ip()));
            }
        }
        out(Event::Closed { peer: from, session: peer.number, why });
    }

    const fn limit(&self, phase: Phase) -> Duration {
        match phase {
            Phase::Handshake => self.limits.handshake,
            Phase::Session => self.limits.idle,
        }
    }

    fn map(&mut self, phase: Phase) -> &mut HashMap<SocketAddr, Box<Peer>> {
        match phase {
            Phase::Handshake => &mut self.handshakes,
            Phase::Session => &mut self.sessions,
        }
    }

    /// Takes a connection out. Its timer stays.
    fn take(&mut self, from: SocketAddr, phase: Phase) -> Option<Box<Peer>> {
        self.map(phase).remove(&from)
    }

    fn remove(&mut self, from: SocketAddr, phase: Phase) {
        if let Some(mut peer) = self.take(from, phase) {
            self.disarm(from, &mut peer);
            if phase == Phase::Handshake {
                self.leave(from, peer.number);
            }
        }
    }

    fn store(&mut self, from: SocketAddr, mut peer: Box<Peer>, wait: Instant) {
        // A session is used often. Its timer is changed only if it is too late.
        let is_armed = peer.armed.is_some_and(|(at, phase)| {
            phase == peer.phase && at <= wait && phase == Phase::Session
        });
        if !is_armed {
            self.disarm(from, &mut peer);
            self.timers.insert((wait, from, peer.phase));
            peer.armed = Some((wait, peer.phase));
        }
        self.map(peer.phase).insert(from, peer);
    }

    fn disarm(&mut self, from: SocketAddr, peer: &mut Peer) {
        if let Some((at, phase)) = peer.armed.take() {
            self.timers.remove(&(at, from, phase));
        }
    }
}

impl ServerKeys {
    /// Returns the keys for the first offered suite that the server has.
    fn for_suites(&self, suites: impl Iterator<Item = u16>) -> Option<Keys> {
        suites.into_iter().find_map(|suite| match suite {
            PSK => self.psk(),
            suite if CERTIFICATE.contains(&suite) => self.certificate(),
            _ => None,
        })
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("sessions", &self.sessions.len())
            .field("handshakes", &self.handshakes.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
