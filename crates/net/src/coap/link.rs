//! A link over CoAP, with or without DTLS. The parent is a server. A child sends frames as requests to
//! `/link/GROUP/DEVICE`, and the parent sends its frames and announcements as requests to the child,
//! in the same session or to the same address: `POST /frames` and `PUT /round`.
//!
//! An empty request announces a child. The child repeats it, so that address translators keep the
//! path open, and after each handshake.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use moteseal_core::record::DeviceId;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;

use super::config::{Config, Owner, Peer, Transmission};
use super::exchange::{ExchangeId, Request, RequestError, Response};
use super::message::{Code, Format};
use super::places::{At, Places};
use super::socket::{Handle, Security, Service, Socket, Status, To, refused_by};
use super::{Address, first_responding, socket::SessionError};
use crate::child_inbox::ChildInbox;
use crate::client::spread;
#[cfg(feature = "tls")]
use crate::dtls;
use crate::fair;
use crate::link::{
    ChildLink, Down, LinkError, MAX_FRAME, Origin, ParentLink, State, Up, Via, check_length,
};
use crate::mqtt::{Backoff, named};

/// The maximum total size of the frames that wait at the parent, in bytes.
const PARENT_BYTES: usize = 64 << 20;
/// The maximum number of frames that a child sends at the same time.
const IN_FLIGHT: usize = 32;
/// After this many successive requests without a response, a child resolves the server's name again
/// and reads its credentials again, but not before the server has forgotten the transfers that were in
/// progress.
const UNANSWERED: u32 = 3;
/// The value of No-Response for requests whose response the sender does not need: success.
const NO_SUCCESS: u8 = 2;
/// The path of a parent's frames at the child.
const FRAMES: &str = "/frames";
/// The path of a parent's announcement at the child.
const ROUND: &str = "/round";

/// Returns the path of a child's frames at the parent.
fn path(group: &str, device: [u8; 8]) -> String {
    format!("/link/{group}/{}", DeviceId(device))
}

/// Returns the credentials of a client.
#[cfg(feature = "tls")]
pub type Credentials = Box<dyn Fn() -> Result<dtls::ClientConfig, LinkError> + Send + Sync>;

/// The options for connecting to a parent.
pub struct ChildOptions {
    /// The parent's address.
    pub address: Address,
    /// The group's name in paths.
    pub group: String,
    /// The credentials, for `coaps`.
    #[cfg(feature = "tls")]
    pub credentials: Option<Box<dyn Fn() -> Result<dtls::ClientConfig, LinkError> + Send + Sync>>,
    /// When to connect again after a failure.
    pub backoff: Backoff,
    /// How often an idle child announces itself.
    pub keep_alive: Duration,
    /// The transmission parameters.
    pub transmission: Transmission,
    /// The exponent of the largest block.
    pub block_exponent: u8,
}

impl ChildOptions {
    /// Creates options with default values for all but the address and the group.
    #[must_use]
    pub fn new(address: Address, group: impl Into<String>) -> Self {
        Self {
            address,
            group: group.into(),
            #[cfg(feature = "tls")]
            credentials: None,
            backoff: Backoff::default(),
            keep_alive: Duration::from_secs(25),
            transmission: Transmission::default(),
            block_exponent: super::message::Block::LARGEST,
        }
    }
}

impl fmt::Debug for ChildOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildOptions").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A child's end of a link over CoAP.
#[derive(Debug)]
pub struct CoapChild {
    path: String,
    inbox: Arc<ChildInbox>,
    handle: watch::Receiver<Option<Handle>>,
    room: Arc<Semaphore>,
    state: watch::Receiver<State>,
    task: AbortHandle,
}

impl Drop for CoapChild {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl CoapChild {
    /// Creates a child's link. The link connects and reconnects automatically;
    /// [`until_up`](crate::link::until_up) waits until it is connected.
    ///
    /// # Errors
    /// `BadAddress` if the address is `coaps` without credentials or names a resource. Nothing is sent
    /// yet.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(options: ChildOptions, device: [u8; 8]) -> Result<Self, LinkError> {
        let bad = |cause: &str| LinkError::BadAddress {
            url: options.address.url().to_owned(),
            cause: cause.to_owned(),
            example: "coaps://gateway.example:5684",
        };
        if !options.address.is_server() {
            return Err(bad("it must end after the port"));
        }
        #[cfg(feature = "tls")]
        let has_credentials = options.credentials.is_some();
        #[cfg(not(feature = "tls"))]
        let has_credentials = false;
        if options.address.is_secure && !has_credentials {
            return Err(bad("there are no credentials for DTLS"));
        }
        let path = path(&options.group, device);
        let inbox = Arc::new(ChildInbox::default());
        let (tell, state) = watch::channel(State::Connecting);
        let (publish, handle) = watch::channel(None);
        let run = run_child(options, path.clone(), Arc::clone(&inbox), publish, tell);
        let task = tokio::spawn(run).abort_handle();
        Ok(Self { path, inbox, handle, room: Arc::new(Semaphore::new(IN_FLIGHT)), state, task })
    }
}

impl ChildLink for CoapChild {
    async fn send(&self, frame: Bytes) -> Result<(), LinkError> {
        check_length(&frame)?;
        let mut handle = self.handle.clone();
        let handle = handle.wait_for(Option::is_some).await.map_err(|_| LinkError::Closed)?.clone();
        let Some(handle) = handle else { return Err(LinkError::Closed) };
        let permit = Arc::clone(&self.room).acquire_owned().await;
        let permit = permit.map_err(|_| LinkError::Closed)?;
        let request = Request::new(Code::POST, self.path.clone()).with_body(Format::OCTETS, frame);
        let request = Request { no_response: NO_SUCCESS, format: None, ..request };
        handle.send(To::Server, request, Some(permit)).await;
        Ok(())
    }

    async fn receive(&mut self) -> Result<Down, LinkError> {
        Ok(self.inbox.next().await)
    }

    fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }
}

/// Connects a child, announces it, and keeps its state.
async fn run_child(
    options: ChildOptions,
    path: String,
    inbox: Arc<ChildInbox>,
    publish: watch::Sender<Option<Handle>>,
    tell: watch::Sender<State>,
) {
    let mut failures = 0;
    loop {
        match connect(&options, &path, Arc::clone(&inbox), failures).await {
            Ok(socket) => {
                publish.send_replace(Some(socket.handle().clone()));
                if keep(&options, &path, socket.handle(), &tell).await.is_none() {
                    return;
                }
                failures = 1;
            }
            Err(cause) => {
                let again_in = options.backoff.wait(failures, spread());
                failures = failures.saturating_add(1);
                tell.send_replace(State::Down { cause, again_in });
                tokio::time::sleep(again_in).await;
            }
        }
    }
}

/// The server does not respond any more.
struct Unresponsive;

/// Announces a child in each new session, and keeps its state. Returns when the server does not
/// respond any more, or `None` if the socket's task has ended.
async fn keep(
    options: &ChildOptions,
    path: &str,
    handle: &Handle,
    tell: &watch::Sender<State>,
) -> Option<Unresponsive> {
    let url = options.address.url();
    let mut status = handle.status();
    let lifetime = options.transmission.exchange_lifetime;
    let (mut failures, mut unanswered) = (0, 0);
    let mut responded: Option<Instant> = None;
    loop {
        let is_silent = responded.is_none_or(|at| at.elapsed() >= lifetime);
        if unanswered >= UNANSWERED && is_silent {
            return Some(Unresponsive);
        }
        let now = status.borrow_and_update().clone();
        if let Status::Down { error, again_in } = now {
            unanswered += 1;
            tell.send_replace(State::Down { cause: of_session(url, &error), again_in });
            status.changed().await.ok()?;
            continue;
        }
        let hello = hello(path);
        let wait = match handle.request(To::Server, hello, Duration::ZERO).await {
            Ok(response) => {
                (unanswered, responded) = (0, Some(Instant::now()));
                if response.code.is_success() {
                    failures = 0;
                    tell.send_if_modified(|state| {
                        *state != State::Up && {
                            *state = State::Up;
                            true
                        }
                    });
                    options.keep_alive
                } else {
                    let again_in = options.backoff.wait(failures, spread());
                    failures = failures.saturating_add(1);
                    let cause = refused(url, &response);
                    tell.send_replace(State::Down { cause, again_in });
                    again_in
                }
            }
            // Wait for the next session. If the socket's task has ended, there is none.
            Err(_) if !matches!(*status.borrow(), Status::Up) => {
                status.changed().await.ok()?;
                continue;
            }
            Err(error) => {
                unanswered += 1;
                let again_in = options.backoff.wait(failures, spread());
                failures = failures.saturating_add(1);
                let cause = unreachable(url, error);
                tell.send_replace(State::Down { cause, again_in });
                again_in
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            changed = status.changed() => changed.ok()?,
        }
    }
}

/// Returns the request that announces a child. Its acknowledgement is enough, and the parent stores no
/// response.
fn hello(path: &str) -> Request {
    Request { no_response: NO_SUCCESS, ..Request::new(Code::POST, path) }
}

/// Opens a socket to the server: the name is resolved and the credentials are read. `attempt` is the
/// number of attempts before this one that failed.
async fn connect(
    options: &ChildOptions,
    path: &str,
    inbox: Arc<ChildInbox>,
    attempt: u32,
) -> Result<Socket, LinkError> {
    let url = options.address.url();
    let unreachable = |cause: String| LinkError::Unreachable { url: url.to_owned(), cause };
    let addresses = options.address.resolve().await?;
    let config = Config {
        transmission: options.transmission,
        block_exponent: options.block_exponent,
        body_limit: Arc::new(|_, _| MAX_FRAME),
        server_name: options.address.server_name(),
        ..Config::default()
    };
    let open = |server: SocketAddr| {
        let security = client_security(options, server)?;
        let service = ChildService { inbox: Arc::clone(&inbox) };
        Socket::connect(server, security, options.backoff, config.clone(), |_| Box::new(service))
            .map_err(|error| unreachable(error.to_string()))
    };
    let hello = hello(path);
    let socket = first_responding(&addresses, attempt, &hello, open).await?;
    socket.ok_or_else(|| unreachable(format!("none of {} addresses responds", addresses.len())))
}

#[cfg(feature = "tls")]
fn client_security(options: &ChildOptions, server: SocketAddr) -> Result<Security, LinkError> {
    match &options.credentials {
        Some(credentials) if options.address.is_secure => {
            let config = credentials()?;
            let client = dtls::Client::new(config, server, Instant::now());
            let client = client.map_err(|error| of_session(options.address.url(), &error))?;
            Ok(Security::Client(Box::new(client)))
        }
        _ => Ok(Security::Plain),
    }
}

#[cfg(not(feature = "tls"))]
#[allow(clippy::unnecessary_wraps, reason = "with DTLS it can fail")]
fn client_security(_: &ChildOptions, _: SocketAddr) -> Result<Security, LinkError> {
    Ok(Security::Plain)
}

/// Returns the error of a link whose session failed.
#[cfg(feature = "tls")]
fn of_session(url: &str, error: &SessionError) -> LinkError {
    let (url, cause) = (url.to_owned(), error.to_string());
    match error {
        SessionError::NotTrusted { .. } => LinkError::NotTrusted { url, cause },
        error if error.is_refusal() => LinkError::Refused { url, cause },
        _ => LinkError::Unreachable { url, cause },
    }
}

#[cfg(not(feature = "tls"))]
fn of_session(_: &str, error: &SessionError) -> LinkError {
    match *error {}
}

fn unreachable(url: &str, error: RequestError) -> LinkError {
    LinkError::Unreachable { url: url.to_owned(), cause: error.to_string() }
}

/// Returns the error of a link whose parent refused the child.
fn refused(url: &str, response: &Response) -> LinkError {
    let text = String::from_utf8_lossy(&response.body);
    let cause = format!("{} {text}", response.code).trim().to_owned();
    match response.code.class() {
        4 => LinkError::Refused { url: url.to_owned(), cause },
        _ => LinkError::Unreachable { url: url.to_owned(), cause },
    }
}

/// The resources of a child.
struct ChildService {
    inbox: Arc<ChildInbox>,
}

impl Service for ChildService {
    fn request(&mut self, _: ExchangeId, _: Owner, request: Request) -> Option<Response> {
        match (request.code, &*request.path) {
            (Code::PUT, ROUND) => self.inbox.put(Down::Announcement(request.body)),
            (Code::POST, FRAMES) => self.inbox.put(Down::Frame(request.body)),
            _ => return Some(Response::new(Code::NOT_FOUND)),
        }
        Some(Response::new(Code::CHANGED))
    }
}

/// A parent's end of a link over CoAP. It may have several sockets.
pub struct CoapParent {
    shared: Arc<AtParent>,
    sockets: Vec<Socket>,
    state: watch::Sender<State>,
}

/// Answers a request that belongs to no child, or returns `None` if it has no such resource.
pub type Resources = Arc<dyn Fn(Owner, &Request) -> Option<Response> + Send + Sync>;

/// What the sockets of a parent share.
struct AtParent {
    group: String,
    members: RwLock<Vec<[u8; 8]>>,
    /// The sockets, by their numbers.
    handles: RwLock<Vec<Handle>>,
    /// Where each child is.
    places: Mutex<Places>,
    waiting: fair::Inbox,
    announcement: Mutex<Option<Bytes>>,
    /// Other resources on the same sockets.
    others: RwLock<Option<Resources>>,
}

impl fmt::Debug for CoapParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoapParent").field("group", &self.shared.group).finish_non_exhaustive()
    }
}

impl CoapParent {
    /// Creates a parent's link for the children `members` of a group, without sockets.
    #[must_use]
    pub fn new(group: impl Into<String>, members: impl IntoIterator<Item = [u8; 8]>) -> Self {
        let shared = AtParent {
            group: group.into(),
            members: RwLock::default(),
            handles: RwLock::default(),
            places: Mutex::default(),
            waiting: fair::Inbox::new(PARENT_BYTES),
            announcement: Mutex::default(),
            others: RwLock::default(),
        };
        shared.set_members(members.into_iter().collect());
        let state = watch::Sender::new(State::Up);
        Self { shared: Arc::new(shared), sockets: Vec::new(), state }
    }

    /// Returns the service that receives the children's frames on a socket.
    #[must_use]
    pub fn service(&self, handle: &Handle) -> Box<dyn Service> {
        let mut handles = self.shared.handles.write().unwrap_or_else(PoisonError::into_inner);
        let number = handles.len();
        handles.push(handle.clone());
        Box::new(ParentService { shared: Arc::clone(&self.shared), handle: handle.clone(), number })
    }

    /// Listens on an address. Without DTLS, `security` is `Plain`, and anyone can send frames under the
    /// name of any child, as with a broker without access control; frames are authenticated by their
    /// own tags.
    ///
    /// # Errors
    /// `BadAddress` if the address cannot be used.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn listen(
        &mut self,
        address: SocketAddr,
        security: Security,
    ) -> Result<SocketAddr, LinkError> {
        let config = Config { body_limit: Arc::new(|_, _| MAX_FRAME), ..Config::default() };
        let socket = Socket::listen(address, security, config, |handle| self.service(handle));
        let socket = socket.map_err(|error| LinkError::BadAddress {
            url: address.to_string(),
            cause: error.to_string(),
            example: "0.0.0.0:5683",
        })?;
        let bound = socket.handle().address();
        self.sockets.push(socket);
        Ok(bound)
    }

    /// Serves other resources on the same sockets.
    pub fn serve(&self, resources: Resources) {
        *self.shared.others.write().unwrap_or_else(PoisonError::into_inner) = Some(resources);
    }

    /// Returns the handles of the sockets.
    #[must_use]
    pub fn handles(&self) -> Vec<Handle> {
        self.sockets.iter().map(|socket| socket.handle().clone()).collect()
    }

    /// Returns a function that reports whether a device is a member now.
    pub fn membership(&self) -> impl Fn(&[u8; 8]) -> bool + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move |device| shared.is_member(device)
    }

    /// Returns whether a child has announced itself here.
    #[must_use]
    pub fn knows(&self, device: [u8; 8]) -> bool {
        self.shared.places().of(device, Instant::now()).is_some()
    }

    /// Returns when a child last proved that it is here: by a DTLS session, or by a frame that was
    /// [confirmed](ParentLink::confirm). Returns `None` if it is not here any more.
    #[must_use]
    pub fn confirmed_at(&self, device: [u8; 8]) -> Option<Instant> {
        self.shared.places().confirmed_at(device, Instant::now())
    }

    /// Returns whether a child has proven that it is here.
    #[must_use]
    pub fn has_children(&self) -> bool {
        self.shared.places().has_confirmed(Instant::now())
    }
}

impl AtParent {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, socket: usize) -> Option<Handle> {
        self.handles.read().unwrap_or_else(PoisonError::into_inner).get(socket).cloned()
    }

    fn set_members(&self, mut members: Vec<[u8; 8]>) {
        members.sort_unstable();
        self.places().retain(|device| members.binary_search(device).is_ok());
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = members;
    }

    fn is_member(&self, device: &[u8; 8]) -> bool {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        members.binary_search(device).is_ok()
    }

    /// Notes where a child is. A child that was not there receives the newest announcement.
    fn note(&self, device: [u8; 8], handle: &Handle, at: At) {
        if !self.places().heard(device, at, Instant::now()) {
            return;
        }
        let newest = self.announcement.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(announcement) = newest {
            // If there is no room, it is lost: announcements are repeated.
            let _ = handle.try_send(To::Peer(at.peer), round(announcement, at.peer.is_secure()));
        }
    }
}

/// Returns the request that carries an announcement. Without DTLS, the child responds, which validates
/// its address.
fn round(announcement: Bytes, is_secure: bool) -> Request {
    let request = Request { body: announcement, ..Request::new(Code::PUT, ROUND) };
    let no_response = if is_secure { NO_SUCCESS } else { 0 };
    Request { no_response, ..request }
}

/// The resources of a parent on one socket.
struct ParentService {
    shared: Arc<AtParent>,
    handle: Handle,
    /// The number of the socket.
    number: usize,
}

impl Service for ParentService {
    fn request(&mut self, id: ExchangeId, owner: Owner, request: Request) -> Option<Response> {
        let parts = request.path.strip_prefix("/link/").and_then(|rest| rest.rsplit_once('/'));
        let Some((group, name)) = parts else {
            let others = self.shared.others.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(response) = others.as_ref().and_then(|of| of(owner, &request)) {
                return Some(response);
            }
            return Some(Response::error(Code::NOT_FOUND, "there is no such resource"));
        };
        if group != self.shared.group {
            return Some(Response::error(Code::NOT_FOUND, "this gateway serves another group"));
        }
        let Some(device) = named(name.as_bytes()) else {
            return Some(Response::error(Code::NOT_FOUND, "the path names no device"));
        };
        let is_proven = match owner {
            Owner::Device(proven) => proven == device,
            Owner::Peer(peer) => !peer.is_secure(),
        };
        if !is_proven || !self.shared.is_member(&device) {
            self.shared.waiting.refuse();
            let why = if is_proven {
                "the device is not a member of the group"
            } else {
                "the session is another device's"
            };
            return Some(Response::error(Code::FORBIDDEN, why));
        }
        if request.code != Code::POST {
            return Some(Response::new(Code::METHOD_NOT_ALLOWED));
        }
        let at = At { socket: self.number, peer: id.peer };
        self.shared.note(device, &self.handle, at);
        if !request.body.is_empty() {
            let origin = Origin(Via::Coap(at));
            self.shared.waiting.put(Up { device, frame: request.body, origin });
        }
        Some(Response::new(Code::CHANGED))
    }

    fn closed(&mut self, peer: Peer) {
        self.shared.places().closed(At { socket: self.number, peer });
    }
}

impl ParentLink for CoapParent {
    async fn receive_but(&self, device: Option<[u8; 8]>) -> Result<Up, LinkError> {
        Ok(self.shared.waiting.next(device).await)
    }

    /// If the child is not connected, or too many frames wait for it, the frame is lost. The parent
    /// sends its contents again when the child asks for them.
    async fn send(&self, device: [u8; 8], frame: Bytes) -> Result<(), LinkError> {
        check_length(&frame)?;
        let at = self.shared.places().of(device, Instant::now());
        if let Some((handle, peer)) =
            at.and_then(|at| Some((self.shared.handle(at.socket)?, at.peer)))
        {
            let request = Request { body: frame, ..Request::new(Code::POST, FRAMES) };
            let request = Request { no_response: NO_SUCCESS, ..request };
            handle.send(To::Peer(peer), request, None).await;
        }
        Ok(())
    }

    async fn announce(&self, announcement: Bytes) -> Result<(), LinkError> {
        check_length(&announcement)?;
        let newest = Some(announcement.clone());
        *self.shared.announcement.lock().unwrap_or_else(PoisonError::into_inner) = newest;
        let places = self.shared.places().all(Instant::now());
        let handles = self.shared.handles.read().unwrap_or_else(PoisonError::into_inner).clone();
        for (number, handle) in handles.iter().enumerate() {
            let here = places.iter().filter(|at| at.socket == number).map(|at| at.peer);
            let here: Vec<Peer> = here.collect();
            // A socket has peers with DTLS, or peers without it.
            let is_secure = here.iter().all(Peer::is_secure);
            handle.send_each(here, round(announcement.clone(), is_secure)).await;
        }
        Ok(())
    }

    fn confirm(&self, device: [u8; 8], origin: Origin) {
        if let Via::Coap(at) = origin.0
            && self.shared.is_member(&device)
        {
            self.shared.places().confirm(device, at, Instant::now());
        }
    }

    fn set_members(&self, members: Vec<[u8; 8]>) {
        let mut members = members;
        members.sort_unstable();
        self.shared.set_members(members.clone());
        for socket in &self.sockets {
            let members = members.clone();
            socket.handle().retain(move |device| members.binary_search(device).is_ok());
        }
    }

    fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    fn dropped(&self) -> u64 {
        self.shared.waiting.dropped()
    }

    fn refused(&self) -> Vec<(&'static str, u64)> {
        refused_by(self.sockets.iter().map(Socket::handle))
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests;
