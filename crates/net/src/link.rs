//! Links between children and their parent: one interface, and what its implementations share.
//!
//! The parent is a coordinator, an aggregator or a querier; a child is a device or a lower gateway.
//! A link carries datagrams, *frames*, between many children and one parent, and the parent's
//! newest *announcement* to all children. It may lose, repeat and reorder them. The frames
//! themselves state who sent them, what they mean and what is durable (spec/formats.md, section
//! 8.2). A link reconnects by itself, and everything in it is bounded.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use moteseal_api::ErrorKind;
use tokio::sync::watch;

use crate::error::BadFile;

/// The longest frame or announcement, in bytes.
pub const MAX_FRAME: usize = 65_536;

/// What a device receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Down {
    /// A frame for this device.
    Frame(Bytes),
    /// The parent's newest announcement, to all devices.
    Announcement(Bytes),
}

/// What the parent receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Up {
    /// The device that sent the frame, as the transport names it: unauthenticated.
    pub device: [u8; 8],
    /// The frame.
    pub frame: Bytes,
}

/// The state of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not connected yet.
    Connecting,
    /// Connected and subscribed.
    Up,
    /// Not connected; the link retries by itself.
    Down {
        /// The cause.
        cause: LinkError,
        /// The time until the next attempt, from the moment that this state was entered.
        again_in: Duration,
    },
}

/// A child's end of a link.
pub trait ChildLink: Send {
    /// Sends a frame to the parent. Waits while there is no room for it. Returns once the link has
    /// accepted it, which does not mean that the parent has it.
    ///
    /// # Errors
    /// `FrameTooLong`, `Closed`.
    fn send(&self, frame: Bytes) -> impl Future<Output = Result<(), LinkError>> + Send;

    /// Waits for the next frame or announcement. Dropping the future loses nothing.
    ///
    /// # Errors
    /// `Closed`.
    fn receive(&mut self) -> impl Future<Output = Result<Down, LinkError>> + Send;

    /// The link's state, as a channel that reports changes.
    fn state(&self) -> watch::Receiver<State>;
}

/// The parent's end of a link.
pub trait ParentLink: Send {
    /// Waits for the next frame of any child. Only one task at a time may wait. Children take
    /// turns: one that floods delays and loses only its own frames. Dropping the future loses
    /// nothing.
    ///
    /// # Errors
    /// `Closed`.
    fn receive(&self) -> impl Future<Output = Result<Up, LinkError>> + Send {
        self.receive_but(None)
    }

    /// Waits for the next frame of any child except `device`, whose frames wait meanwhile.
    ///
    /// # Errors
    /// `Closed`.
    fn receive_but(
        &self,
        device: Option<[u8; 8]>,
    ) -> impl Future<Output = Result<Up, LinkError>> + Send;

    /// Sends a frame to one child. Returns once the link has accepted it.
    ///
    /// # Errors
    /// `FrameTooLong`, `Closed`.
    fn send(
        &self,
        device: [u8; 8],
        frame: Bytes,
    ) -> impl Future<Output = Result<(), LinkError>> + Send;

    /// Sends an announcement to all children. The newest one is retained for children that connect
    /// later.
    ///
    /// # Errors
    /// `FrameTooLong`, `Closed`.
    fn announce(&self, announcement: Bytes) -> impl Future<Output = Result<(), LinkError>> + Send;

    /// The link's state, as a channel that reports changes.
    fn state(&self) -> watch::Receiver<State>;

    /// The number of frames dropped at this end: they arrived faster than they were received, came
    /// from an unknown sender, or were not frames.
    fn dropped(&self) -> u64;
}

/// Waits until a link is up. Keeps waiting while a broker cannot be reached, but not after it
/// rejects the connection.
///
/// # Errors
/// The rejection ([`LinkError::is_refusal`]), or `Closed`.
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
/// Those of [`until_up`], or the reason why the link is not up yet.
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
    /// The frame is longer than this kind of link carries: [`MAX_FRAME`], or
    /// [`MAX_DATAGRAM`](crate::broadcast::MAX_DATAGRAM) on a broadcast link.
    #[error("the frame has {length} bytes, but this link carries at most {limit}")]
    FrameTooLong {
        /// Its length in bytes.
        length: usize,
        /// The longest frame that the link carries, in bytes.
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
        "{url}: another program uses this port exclusively; stop it, or use another port on \
         all sides"
    )]
    PortInUse {
        /// The address.
        url: String,
    },
    /// This machine has no such interface, or none that leads to the address.
    #[error(
        "{url}: {cause}; name an interface of this machine that leads there, like \
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
    /// A password would travel unencrypted to another machine.
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
    /// The serial port does not exist, the connection was refused, or it broke.
    #[error(
        "{url}: {cause}; check that the mote, its adapter or its emulator is there, that this \
         user may open it, and that the address is right"
    )]
    LineDown {
        /// The port's path or address.
        url: String,
        /// The operating system's message.
        cause: String,
    },
    /// TLS failed over a certificate: one side does not trust the other.
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
    /// The broker rejects the user, the password, the client or the subscription.
    #[error("{url}: {cause}; check the user, the password and the broker's access list")]
    Refused {
        /// The address.
        url: String,
        /// The broker's reason.
        cause: String,
    },
}

impl LinkError {
    /// The error's name (spec/errors.md).
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
            Self::LineDown { .. } => "LineDown",
            Self::NotTrusted { .. } => "NotTrusted",
            Self::Refused { .. } => "Refused",
        }
    }

    /// [`Usage`](ErrorKind::Usage) for a wrong address, file or port,
    /// [`Internal`](ErrorKind::Internal) for a link that was shut down, otherwise
    /// [`Unreachable`](ErrorKind::Unreachable).
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

    /// Whether the other side responds and rejects the connection. A retry then helps only after a
    /// change of configuration.
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
