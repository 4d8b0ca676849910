//! Links between devices and their coordinator: one small interface, and what all its implementations share.
//!
//! A link carries datagrams, *frames*, between many devices and one parent, and the parent's newest *announcement* to all devices. It may
//! lose, repeat and reorder: what a frame means, who really sent it and whether it is durable is said by the protocol above, in the
//! frames themselves (spec/formats.md, section 8.2). A link reconnects by itself, and everything in it is bounded.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::error::BadFile;

/// The longest frame or announcement, in bytes.
pub const MAX_FRAME: usize = 65_536;

/// What a device hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Down {
    /// A frame for this device.
    Frame(Bytes),
    /// The parent's newest announcement, to all devices.
    Announcement(Bytes),
}

/// What the parent hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Up {
    /// Whose frame it is, as the transport names it: unauthenticated.
    pub device: [u8; 8],
    /// The frame.
    pub frame: Bytes,
}

/// How a link stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not connected yet.
    Connecting,
    /// Connected and subscribed.
    Up,
    /// Not connected; the link tries again by itself.
    Down {
        /// Why.
        cause: LinkError,
        /// When it tries next, from the moment that this state was entered.
        again_in: Duration,
    },
}

/// A device's end of a link.
pub trait ChildLink: Send {
    /// Sends a frame to the parent. Waits while there is no room for it; returns once the link has taken it, which says nothing about
    /// the parent.
    ///
    /// # Errors
    /// `FrameTooLong`, `Closed`.
    fn send(&self, frame: Bytes) -> impl Future<Output = Result<(), LinkError>> + Send;

    /// Waits for what comes next. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// `Closed`.
    fn receive(&mut self) -> impl Future<Output = Result<Down, LinkError>> + Send;

    /// How the link stands, and a way to be told when that changes.
    fn state(&self) -> watch::Receiver<State>;
}

/// The parent's end of a link.
pub trait ParentLink: Send {
    /// Waits for the next frame of any device; one at a time may wait. Devices take turns: one that floods delays and loses its own
    /// frames only. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// `Closed`.
    fn receive(&self) -> impl Future<Output = Result<Up, LinkError>> + Send {
        self.receive_but(None)
    }

    /// The same of all devices but one, whose frames wait meanwhile.
    ///
    /// # Errors
    /// `Closed`.
    fn receive_but(
        &self,
        device: Option<[u8; 8]>,
    ) -> impl Future<Output = Result<Up, LinkError>> + Send;

    /// Sends a frame to one device; returns once the link has taken it.
    ///
    /// # Errors
    /// `FrameTooLong`, `Closed`.
    fn send(
        &self,
        device: [u8; 8],
        frame: Bytes,
    ) -> impl Future<Output = Result<(), LinkError>> + Send;

    /// Tells all devices. The newest announcement is retained: a device that comes later hears it.
    ///
    /// # Errors
    /// `FrameTooLong`, `Closed`.
    fn announce(&self, announcement: Bytes) -> impl Future<Output = Result<(), LinkError>> + Send;

    /// How the link stands, and a way to be told when that changes.
    fn state(&self) -> watch::Receiver<State>;

    /// Frames that were dropped at this end: they came faster than they were received, were nobody's whom the parent knows, or were none.
    fn dropped(&self) -> u64;
}

/// Waits until a link is up. A broker that cannot be reached is waited for; one that answers and refuses is not.
///
/// # Errors
/// Why the link was refused ([`LinkError::is_refusal`]), or `Closed`.
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

/// The same, but not for ever: where the broker could not be reached in time, why.
///
/// # Errors
/// As [`until_up`], or why it is not up yet.
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

/// Why a link does not carry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkError {
    /// The frame is longer than this kind of link carries: [`MAX_FRAME`], or
    /// [`MAX_DATAGRAM`](crate::broadcast::MAX_DATAGRAM) where it is broadcast.
    FrameTooLong {
        /// Its length in bytes.
        length: usize,
        /// What the link carries at most.
        limit: usize,
    },
    /// The link was shut down.
    Closed,
    /// The address is none.
    BadAddress {
        /// The address as given.
        url: String,
        /// What is wrong with it.
        cause: String,
        /// What addresses of this kind of link look like.
        example: &'static str,
    },
    /// Another program has the port to itself.
    PortInUse {
        /// The address.
        url: String,
    },
    /// This machine has no such interface, or none that leads there.
    NoSuchInterface {
        /// The address.
        url: String,
        /// What the system says.
        cause: String,
    },
    /// The network carries nothing just now.
    NetworkDown {
        /// The address.
        url: String,
        /// What the system says.
        cause: String,
    },
    /// A file with certificates, a key or a password cannot be used.
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// A password would travel unencrypted to another machine.
    PasswordInClear {
        /// The address.
        url: String,
    },
    /// No broker answers there, or the connection broke.
    Unreachable {
        /// The address.
        url: String,
        /// The innermost cause.
        cause: String,
    },
    /// The serial port is not there, or nobody accepts the connection, or it broke.
    LineDown {
        /// The port's path or address.
        url: String,
        /// What the system says.
        cause: String,
    },
    /// The other side is not who it should be, or does not take us for who we are: TLS failed over a certificate.
    NotTrusted {
        /// The address.
        url: String,
        /// What TLS says.
        cause: String,
    },
    /// The broker refuses the user, the password, the client or the subscription.
    Refused {
        /// The address.
        url: String,
        /// What the broker says.
        cause: String,
    },
}

impl LinkError {
    /// The error's name.
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

    /// Whether somebody answers there and refuses, so that trying again helps only once somebody has changed something.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::NotTrusted { .. } | Self::Refused { .. })
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name())?;
        match self {
            Self::FrameTooLong { length, limit } => {
                write!(f, "a frame of {length} bytes; this link carries at most {limit}")
            }
            Self::Closed => f.write_str("the link was shut down"),
            Self::BadAddress { url, cause, example } => {
                write!(f, "{url:?} is no address of a link ({cause}); give one like {example}")
            }
            Self::PortInUse { url } => {
                write!(
                    f,
                    "{url}: another program has this port to itself; end it, or use another port on all sides"
                )
            }
            Self::NoSuchInterface { url, cause } => {
                write!(
                    f,
                    "{url}: {cause}; name an interface of this machine that leads there, like ?interface=192.168.1.2 (IPv6: \
                           ?interface=eth0)"
                )
            }
            Self::NetworkDown { url, cause } => write!(f, "{url}: {cause}; is the network up?"),
            Self::BadFile { path, cause } => write!(f, "{}: {cause}", path.display()),
            Self::PasswordInClear { url } => {
                write!(
                    f,
                    "the password would travel unencrypted to {url}; use mqtts, or leave the password out"
                )
            }
            Self::Unreachable { url, cause } => {
                write!(f, "{url}: {cause}; is the broker running there, and the address right?")
            }
            Self::LineDown { url, cause } => {
                write!(
                    f,
                    "{url}: {cause}; is the mote, its adapter or its emulator there, may this user open it, and is the address right?"
                )
            }
            Self::NotTrusted { url, cause } => {
                write!(
                    f,
                    "{url}: {cause}; check the certificate authorities, the broker's name and this side's certificate"
                )
            }
            Self::Refused { url, cause } => {
                write!(
                    f,
                    "{url}: {cause}; check the user, the password and the broker's access list"
                )
            }
        }
    }
}

impl std::error::Error for LinkError {}

impl From<BadFile> for LinkError {
    fn from(BadFile { path, cause }: BadFile) -> Self {
        Self::BadFile { path, cause }
    }
}

/// Lets through what a link may carry.
pub(crate) fn check_length(frame: &Bytes) -> Result<(), LinkError> {
    let (length, limit) = (frame.len(), MAX_FRAME);
    if length > limit { Err(LinkError::FrameTooLong { length, limit }) } else { Ok(()) }
}
