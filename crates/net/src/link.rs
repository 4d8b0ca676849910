//! Links between children and their parent: the interface, and the parts that all implementations
//! share.
//!
//! The parent is a coordinator, an aggregator or a querier. A child is a device or a lower gateway.
//! A link carries two kinds of messages: *frames* between each child and the parent, and the
//! parent's newest *announcement* to all children. It may lose, repeat and reorder both. The
//! contents of a frame state who sent it, what it means and what is durable (spec/coordinator.md,
//! section 4). A link reconnects automatically, and all its memory is bounded.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use moteseal_api::ErrorKind;
pub use moteseal_core::link::MAX_FRAME;
use tokio::sync::watch;

use crate::coap::At;
use crate::error::BadFile;

/// A message that a child receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Down {
    /// A frame for this child.
    Frame(Bytes),
    /// The parent's newest announcement, which is for all children.
    Announcement(Bytes),
}

/// A frame that the parent receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Up {
    /// The device that sent the frame, as the transport reports it. It is not authenticated.
    pub device: [u8; 8],
    /// The frame.
    pub frame: Bytes,
    /// Where the frame came from.
    pub origin: Origin,
}

impl Up {
    /// Creates a frame of a link on which each device has one place only.
    #[must_use]
    pub fn new(device: [u8; 8], frame: Bytes) -> Self {
        Self { device, frame, origin: Origin::default() }
    }
}

/// Where a frame came from, for [`ParentLink::confirm`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin(pub(crate) Via);

/// What an [`Origin`] names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Via {
    /// The device's own place: its topic at a broker, or its end of a link within a process.
    #[default]
    Own,
    /// A peer of a parent that listens.
    Coap(At),
}

/// The state of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not connected yet.
    Connecting,
    /// Connected and subscribed.
    Up,
    /// Not connected. The link retries automatically.
    Down {
        /// The cause.
        cause: LinkError,
        /// The time between entering this state and the next attempt to connect.
        again_in: Duration,
    },
}

/// A child's end of a link.
pub trait ChildLink: Send {
    /// Sends a frame to the parent. Waits while the link has no room for the frame. Returns when
    /// the link has accepted the frame, which does not mean that the parent has received it.
    ///
    /// # Errors
    /// `FrameTooLong`, `Closed`.
    fn send(&self, frame: Bytes) -> impl Future<Output = Result<(), LinkError>> + Send;

    /// Waits for the next frame or announcement. If the future is dropped, nothing is lost.
    ///
    /// # Errors
    /// `Closed`.
    fn receive(&mut self) -> impl Future<Output = Result<Down, LinkError>> + Send;

    /// Returns the link's state, as a channel that reports changes.
    fn state(&self) -> watch::Receiver<State>;
}

/// The parent's end of a link.
pub trait ParentLink: Send {
    /// Waits for the next frame of any child. Only one task may wait at a time. The children take
    /// turns, so a child that floods delays and loses only its own frames. If the future is
    /// dropped, nothing is lost.
    ///
    /// # Errors
    /// `Closed`.
    fn receive(&self) -> impl Future<Output = Result<Up, LinkError>> + Send {
        self.receive_but(None)
    }

    /// Waits for the next frame of any child except `device`. The frames of `device` stay in the
    /// queue.
    ///
    /// # Errors
    /// `Closed`.
    fn receive_but(
        &self,
        device: Option<[u8; 8]>,
    ) -> impl Future<Output = Result<Up, LinkError>> + Send;

    /// Sends a frame to one child. Returns when the link has accepted the frame.
    ///
    /// # Errors
    /// `FrameTooLong`, `Closed`.
    fn send(
        &self,
        device: [u8; 8],
        frame: Bytes,
    ) -> impl Future<Output = Result<(), LinkError>> + Send;

    /// Makes the origin of a frame the place to which frames for the device are sent. Call this for
    /// each frame whose authenticity was verified: anyone may have sent a frame that was not. The
    /// default implementation is for links on which each device has one place only, and does nothing.
    fn confirm(&self, device: [u8; 8], origin: Origin) {
        let _ = (device, origin);
    }

    /// Sends an announcement to all children. The link keeps the newest announcement for children
    /// that connect later.
    ///
    /// # Errors
    /// `FrameTooLong`, `Closed`.
    fn announce(&self, announcement: Bytes) -> impl Future<Output = Result<(), LinkError>> + Send;

    /// Replaces the set of children whose frames are accepted, after the group has changed. The
    /// default implementation accepts the frames of all children and does nothing.
    fn set_members(&self, members: Vec<[u8; 8]>) {
        drop(members);
    }

    /// Returns the link's state, as a channel that reports changes.
    fn state(&self) -> watch::Receiver<State>;

    /// Returns whether frames can arrive. If the parent has several links, one that works is enough
    /// if children use it.
    fn is_up(&self) -> bool {
        *self.state().borrow() == State::Up
    }

    /// Returns the number of messages that were dropped at this end, because they arrived faster
    /// than they were received, came from an unknown sender, or were not frames.
    fn dropped(&self) -> u64;

    /// Returns the numbers of datagrams, requests and sessions that the link's sockets refused or
    /// dropped, by name. The default implementation has no sockets and returns nothing.
    fn refused(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// Waits until a link is up. Keeps waiting while a broker cannot be reached. Returns an error if
/// the broker rejects the connection.
///
/// # Errors
/// The broker's rejection ([`LinkError::is_refusal`]), or `Closed`.
pub async fn until_up(mut state: watch::Receiver<State>) -> Result<(), LinkError> {
    let reached = state.wait_for(|state| match state {
        State::Connecting => false,
        State::Up => true,
        State::Down { cause, .. } => cause.is_refusal(),
    });
    match reached.await.as_deref() {
        Ok(State::Down { cause, .. }) => Err(cause.clone()),
        Ok(_) => Ok(()),
        Err(_) => Err(LinkError::Closed),
    }
}

/// Waits until a link is up, for at most `patience`.
///
/// # Errors
/// The errors of [`until_up`], or the reason why the link is not up after `patience`.
pub async fn until_up_within(
    state: watch::Receiver<State>,
    patience: Duration,
) -> Result<(), LinkError> {
    if let Ok(reached) = tokio::time::timeout(patience, until_up(state.clone())).await {
        return reached;
    }
    match &*state.borrow() {
        State::Down { cause, .. } => Err(cause.clone()),
        State::Up => Ok(()),
        State::Connecting => Err(LinkError::Closed),
    }
}

/// Why a link does not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The frame is longer than the maximum of this kind of link, which is [`MAX_FRAME`], or
    /// [`MAX_DATAGRAM`](crate::broadcast::MAX_DATAGRAM) for a broadcast link.
    #[error("the frame has {length} bytes, but this link carries at most {limit}")]
    FrameTooLong {
        /// The length of the frame, in bytes.
        length: usize,
        /// The maximum length of a frame on this link, in bytes.
        limit: usize,
    },
    /// The link was shut down.
    #[error("the link was shut down")]
    Closed,
    /// The address is invalid.
    #[error("{url:?} is not the address of a link ({cause}); an example is {example}")]
    BadAddress {
        /// The address as given.
        url: String,
        /// What is wrong with it.
        cause: String,
        /// Example addresses of this kind of link.
        example: &'static str,
    },
    /// Another program uses the port exclusively.
    #[error(
        "{url}: another program uses this port exclusively; stop that program, or use another \
         port on all sides"
    )]
    PortInUse {
        /// The address.
        url: String,
    },
    /// This machine has no such interface, or has no interface with a route to the address.
    #[error(
        "{url}: {cause}; give an interface of this machine with a route to the address, such as \
         ?interface=192.168.1.2 (IPv6: ?interface=eth0)"
    )]
    NoSuchInterface {
        /// The address.
        url: String,
        /// The operating system's message.
        cause: String,
    },
    /// The network is down.
    #[error("{url}: {cause}; check that the network is up")]
    NetworkDown {
        /// The address.
        url: String,
        /// The operating system's message.
        cause: String,
    },
    /// A file with certificates, a key or a password cannot be used.
    #[error("{}: {cause}", .path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// A password would be sent unencrypted to another machine.
    #[error("the password would be sent unencrypted to {url}; use mqtts, or omit the password")]
    PasswordInClear {
        /// The address.
        url: String,
    },
    /// The broker does not respond, or the connection broke.
    #[error("{url}: {cause}; check that the broker is running there and that the address is right")]
    Unreachable {
        /// The address.
        url: String,
        /// The innermost cause.
        cause: String,
    },
    /// Two programs use the same MQTT client id. The broker disconnects one of them whenever the
    /// other one connects, and reports this. Brokers report it only with MQTT 5.
    #[error(
        "{url}: the broker closed the connection; another program uses the MQTT client id {client}: \
         stop it, because a group has one gateway of each kind, and each device runs once"
    )]
    ClientIdTaken {
        /// The address.
        url: String,
        /// The client id.
        client: String,
    },
    /// The broker repeatedly accepted a connection and closed it soon, without a reason. With MQTT
    /// 3.1.1, a broker does this to two programs that use the same client id. But it may also have
    /// another cause, for example a broker that restarts repeatedly.
    #[error(
        "{url}: the broker accepted {connections} connections, and closed each soon without a reason; \
         check that no other program uses the MQTT client id {client}, and read the broker's log"
    )]
    ClosedSoon {
        /// The address.
        url: String,
        /// The client id.
        client: String,
        /// The number of successive connections that were closed soon.
        connections: u32,
    },
    /// The serial port does not exist, or the connection was refused or broke.
    #[error(
        "{url}: {cause}; check that the mote, its adapter or its emulator is connected, that \
         this user may open the port, and that the address is right"
    )]
    LineDown {
        /// The port's path or address.
        url: String,
        /// The operating system's message.
        cause: String,
    },
    /// TLS failed because of a certificate: one side does not trust the other.
    #[error(
        "{url}: {cause}; check the certificate authorities, the broker's name and this side's \
         certificate"
    )]
    NotTrusted {
        /// The address.
        url: String,
        /// The TLS error.
        cause: String,
    },
    /// The broker rejected the user, the password, the client or the subscription.
    #[error("{url}: {cause}; check the user, the password and the broker's access list")]
    Refused {
        /// The address.
        url: String,
        /// The broker's reason.
        cause: String,
    },
}

impl LinkError {
    /// Returns the error's name (spec/errors.md).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::FrameTooLong { .. } => "FrameTooLong",
            Self::Closed => "Closed",
            Self::BadAddress { .. } => "BadAddress",
            Self::PortInUse { .. } => "PortInUse",
            Self::NoSuchInterface { .. } => "NoSuchInterface",
            Self::NetworkDown { .. } => "NetworkDown",
            Self::BadFile { .. } => "BadFile",
            Self::PasswordInClear { .. } => "PasswordInClear",
            Self::Unreachable { .. } => "Unreachable",
            Self::ClientIdTaken { .. } => "ClientIdTaken",
            Self::ClosedSoon { .. } => "ClosedSoon",
            Self::LineDown { .. } => "LineDown",
            Self::NotTrusted { .. } => "NotTrusted",
            Self::Refused { .. } => "Refused",
        }
    }

    /// Returns [`Usage`](ErrorKind::Usage) for a wrong address, file or port,
    /// [`Internal`](ErrorKind::Internal) for a link that was shut down, and
    /// [`Unreachable`](ErrorKind::Unreachable) otherwise.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::BadAddress { .. }
            | Self::BadFile { .. }
            | Self::NoSuchInterface { .. }
            | Self::PasswordInClear { .. }
            | Self::PortInUse { .. } => ErrorKind::Usage,
            Self::Closed => ErrorKind::Internal,
            _ => ErrorKind::Unreachable,
        }
    }

    /// Returns whether the other side responded and rejected the connection. A retry can then
    /// succeed only after the configuration has changed.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::NotTrusted { .. } | Self::Refused { .. })
    }
}

moteseal_api::named_error!(LinkError);

impl From<BadFile> for LinkError {
    fn from(BadFile { path, cause }: BadFile) -> Self {
        Self::BadFile { path, cause }
    }
}

/// Checks that a frame is short enough for a link.
pub(crate) fn check_length(frame: &Bytes) -> Result<(), LinkError> {
    let (length, limit) = (frame.len(), MAX_FRAME);
    if length > limit { Err(LinkError::FrameTooLong { length, limit }) } else { Ok(()) }
}
