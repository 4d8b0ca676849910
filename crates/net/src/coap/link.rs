//! A link over CoAP, with or without DTLS. The parent is a server. A child sends frames as requests to
//! `/link/GROUP/DEVICE`, and the parent sends its frames and announcements as requests to the child,
//! in the same session or to the same address: `POST /frames` and `PUT /round`.
//!
//! An empty request announces a child. The child repeats it, so that address translators keep the
//! path open, and after each handshake.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use moteseal_core::record::DeviceId;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::AbortHandle;

use super::config::{Config, Owner, Peer, Transmission};
use super::exchange::{ExchangeId, Request, RequestError, Response};
use super::message::{Code, Format};
use super::socket::{Handle, Security, Service, Socket, Status, To, refused_by};
use super::{Address, socket::SessionError};
use crate::client::spread;
#[cfg(feature = "tls")]
use crate::dtls;
use crate::fair;
use crate::link::{ChildLink, Down, LinkError, MAX_FRAME, ParentLink, State, Up, check_length};
use crate::mqtt::{Backoff, named};

/// The maximum total size of the frames that wait at the parent, in bytes.
const PARENT_BYTES: usize = 64 << 20;
/// The maximum number of frames that wait at a child. At the limit, the oldest frame is dropped.
const CHILD_FRAMES: usize = 256;
/// The maximum number of frames that a child sends at the same time.
const IN_FLIGHT: usize = 32;
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
    let url = options.address.url().to_owned();
    let socket = loop {
        let cause = match connect(&options, Arc::clone(&inbox)).await {
            Ok(socket) => break socket,
            Err(cause) => cause,
        };
        let again_in = options.backoff.wait(failures, spread());
        failures = failures.saturating_add(1);
        tell.send_replace(State::Down { cause, again_in });
        tokio::time::sleep(again_in).await;
    };
    let handle = socket.handle().clone();
    publish.send_replace(Some(handle.clone()));
    let mut status = handle.status();
    failures = 0;
    loop {
        // Announce the child in each new session.
        let now = status.borrow_and_update().clone();
        if let Status::Down { error, again_in } = now {
            tell.send_replace(State::Down { cause: of_session(&url, &error), again_in });
            if status.wait_for(|status| *status == Status::Up).await.is_err() {
                return;
            }
            continue;
        }
        let hello = Request::new(Code::POST, path.clone());
        let wait = match handle.request(To::Server, hello, Duration::ZERO).await {
            Ok(response) if response.code.is_success() => {
                failures = 0;
                tell.send_if_modified(|state| {
                    *state != State::Up && {
                        *state = State::Up;
                        true
                    }
                });
                options.keep_alive
            }
            Ok(response) => {
                let again_in = options.backoff.wait(failures, spread());
                failures = failures.saturating_add(1);
                let cause = refused(&url, &response);
                tell.send_replace(State::Down { cause, again_in });
                again_in
            }
            Err(_) if !matches!(*status.borrow(), Status::Up) => continue,
            Err(error) => {
                let again_in = options.backoff.wait(failures, spread());
                failures = failures.saturating_add(1);
                let cause = unreachable(&url, error);
                tell.send_replace(State::Down { cause, again_in });
                again_in
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            changed = status.changed() => if changed.is_err() { return },
        }
    }
}

async fn connect(options: &ChildOptions, inbox: Arc<ChildInbox>) -> Result<Socket, LinkError> {
    let server = options.address.resolve().await?;
    let security = client_security(options, server)?;
    let config = Config {
        transmission: options.transmission,
        block_exponent: options.block_exponent,
        body_limit: Arc::new(|_, _| MAX_FRAME),
        server_name: options.address.server_name(),
        ..Config::default()
    };
    let service = ChildService { inbox };
    Socket::connect(server, security, options.backoff, config, |_| Box::new(service)).map_err(
        |error| LinkError::Unreachable {
            url: options.address.url().to_owned(),
            cause: error.to_string(),
        },
    )
}

#[cfg(feature = "tls")]
fn client_security(options: &ChildOptions, server: SocketAddr) -> Result<Security, LinkError> {
    match &options.credentials {
        Some(credentials) if options.address.is_secure => {
            let config = credentials()?;
            let client = dtls::Client::new(config, server, std::time::Instant::now());
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

/// The messages that wait at a child.
#[derive(Debug, Default)]
struct ChildInbox {
    waiting: Mutex<(Option<Bytes>, VecDeque<Bytes>)>,
    arrived: Notify,
}

impl ChildInbox {
    async fn next(&self) -> Down {
        loop {
            {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(announcement) = waiting.0.take() {
                    return Down::Announcement(announcement);
                }
                if let Some(frame) = waiting.1.pop_front() {
                    return Down::Frame(frame);
                }
            }
            self.arrived.notified().await;
        }
    }
}

/// The resources of a child.
struct ChildService {
    inbox: Arc<ChildInbox>,
}

impl Service for ChildService {
    fn request(&mut self, _: ExchangeId, _: Owner, request: Request) -> Option<Response> {
        let mut waiting = self.inbox.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match (request.code, &*request.path) {
            (Code::PUT, ROUND) => waiting.0 = Some(request.body),
            (Code::POST, FRAMES) => {
                if waiting.1.len() >= CHILD_FRAMES {
                    waiting.1.pop_front();
                }
                waiting.1.push_back(request.body);
            }
            _ => return Some(Response::new(Code::NOT_FOUND)),
        }
        drop(waiting);
        self.inbox.arrived.notify_one();
        Some(Response::new(Code::CHANGED))
    }
}

/// A parent's end of a link over CoAP. It may have several sockets.
pub struct CoapParent {
    shared: Arc<AtParent>,
    sockets: Vec<Socket>,
    state: watch::Sender<State>,
}

/// What the sockets of a parent share.
struct AtParent {
    group: String,
    members: RwLock<Vec<[u8; 8]>>,
    /// Where each child is: the socket and the peer.
    children: Mutex<HashMap<[u8; 8], (Handle, Peer)>>,
    waiting: fair::Inbox,
    announcement: Mutex<Option<Bytes>>,
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
            children: Mutex::default(),
            waiting: fair::Inbox::new(PARENT_BYTES),
            announcement: Mutex::default(),
        };
        shared.set_members(members.into_iter().collect());
        let state = watch::Sender::new(State::Up);
        Self { shared: Arc::new(shared), sockets: Vec::new(), state }
    }

    /// Returns the service that receives the children's frames on a socket.
    #[must_use]
    pub fn service(&self, handle: &Handle) -> Box<dyn Service> {
        Box::new(ParentService { shared: Arc::clone(&self.shared), handle: handle.clone() })
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

    /// Returns a function that reports whether a device is a member now.
    pub fn membership(&self) -> impl Fn(&[u8; 8]) -> bool + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move |device| shared.is_member(device)
    }

    /// Returns whether a child has announced itself here.
    #[must_use]
    pub fn knows(&self, device: [u8; 8]) -> bool {
        self.shared.children().contains_key(&device)
    }
}

impl AtParent {
    fn children(&self) -> MutexGuard<'_, HashMap<[u8; 8], (Handle, Peer)>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_members(&self, mut members: Vec<[u8; 8]>) {
        members.sort_unstable();
        self.children().retain(|device, _| members.binary_search(device).is_ok());
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = members;
    }

    fn is_member(&self, device: &[u8; 8]) -> bool {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        members.binary_search(device).is_ok()
    }

    /// Notes where a child is. A child that was not there receives the newest announcement.
    fn note(&self, device: [u8; 8], handle: &Handle, peer: Peer) {
        let before = self.children().insert(device, (handle.clone(), peer));
        if before.is_some_and(|(_, before)| before == peer) {
            return;
        }
        let newest = self.announcement.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(announcement) = newest {
            announce(handle, peer, announcement);
        }
    }
}

/// Sends an announcement to one child. If there is no room, it is lost: announcements are repeated.
fn announce(handle: &Handle, peer: Peer, announcement: Bytes) {
    let request = Request { body: announcement, ..Request::new(Code::PUT, ROUND) };
    let request = Request { no_response: NO_SUCCESS, ..request };
    let _ = handle.try_send(To::Peer(peer), request);
}

/// The resources of a parent on one socket.
struct ParentService {
    shared: Arc<AtParent>,
    handle: Handle,
}

impl Service for ParentService {
    fn request(&mut self, id: ExchangeId, owner: Owner, request: Request) -> Option<Response> {
        let parts = request.path.strip_prefix("/link/").and_then(|rest| rest.rsplit_once('/'));
        let Some((group, name)) = parts else {
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
        self.shared.note(device, &self.handle, id.peer);
        if !request.body.is_empty() {
            self.shared.waiting.put(device, request.body);
        }
        Some(Response::new(Code::CHANGED))
    }

    fn closed(&mut self, peer: Peer) {
        self.shared.children().retain(|_, (_, of)| *of != peer);
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
        let child = self.shared.children().get(&device).cloned();
        if let Some((handle, peer)) = child {
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
        let children: Vec<(Handle, Peer)> = self.shared.children().values().cloned().collect();
        for (handle, peer) in children {
            announce(&handle, peer, announcement.clone());
        }
        Ok(())
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
