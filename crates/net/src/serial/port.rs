//! The port of a serial line: a terminal device in raw mode, or a TCP connection.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use reqwest::Url;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::termios::{ControlModes, OptionalActions, ioctl_tiocexcl, tcgetattr, tcsetattr};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::time::timeout;

use super::Options;
use crate::link::LinkError;

/// Example addresses for error messages.
const EXAMPLE: &str = "/dev/ttyUSB0 or tcp://127.0.0.1:4001";
/// The timeout for establishing a connection.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// After this time without data, TCP checks whether the other end still responds.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The accepted speeds. At a lower speed, sending a HELLO takes longer than the wait before it is
/// repeated.
const BAUD: std::ops::RangeInclusive<u32> = 1200..=4_000_000;

/// The address of a port.
#[derive(Clone, Debug)]
pub(super) struct Address {
    text: String,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Terminal { path: PathBuf, baud: u32 },
    Tcp { host: String, port: u16 },
}

/// An open port.
#[derive(Debug)]
pub(super) enum Port {
    /// The same terminal, opened once and used for reading and for writing. The types are tokio's
    /// types for pipes, which provide the required operations and also work on terminals.
    Terminal(Receiver, Sender),
    Tcp(TcpStream),
}

impl Address {
    pub(super) fn parse(options: &Options) -> Result<Self, LinkError> {
        let text = options.address.clone();
        let bad = |cause: &str| LinkError::BadAddress {
            url: text.clone(),
            cause: cause.to_owned(),
            example: EXAMPLE,
        };
        if !BAUD.contains(&options.baud) {
            return Err(bad("its speed must be from 1200 to 4000000 baud"));
        }
        let place = if text.starts_with('/') {
            Place::Terminal { path: PathBuf::from(&text), baud: options.baud }
        } else {
            let url = Url::parse(&text)
                .map_err(|_| bad("it is neither an absolute path nor a TCP address"))?;
            let is_bare =
                matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
            let is_plain = is_bare && url.username().is_empty() && url.password().is_none();
            match (url.scheme(), url.host_str().filter(|host| !host.is_empty()), url.port()) {
                ("tcp", Some(host), Some(port)) if is_plain => {
                    Place::Tcp { host: host.trim_matches(['[', ']']).to_owned(), port }
                }
                ("tcp", ..) => {
                    return Err(bad("a TCP address must have the form tcp://HOST:PORT"));
                }
                _ => return Err(bad("it is neither an absolute path nor a TCP address")),
            }
        };
        Ok(Self { text, place })
    }

    /// Returns the error for a port that broke.
    pub(super) fn down(&self, error: &io::Error) -> LinkError {
        LinkError::LineDown { url: self.text.clone(), cause: error.to_string() }
    }

    pub(super) async fn open(&self) -> Result<Port, LinkError> {
        match &self.place {
            Place::Tcp { host, port } => {
                let connected =
                    timeout(CONNECT_TIME, TcpStream::connect((host.as_str(), *port))).await;
                let stream = connected
                    .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
                    .map_err(|error| self.down(&error))?;
                // These options are not essential. If setting them fails, the line is slower, or a
                // broken connection is detected later.
                let _ = stream.set_nodelay(true);
                let _ = SockRef::from(&stream)
                    .set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE));
                Ok(Port::Tcp(stream))
            }
            Place::Terminal { path, baud } => {
                let flags = OFlags::NOCTTY | OFlags::NONBLOCK;
                let mut open = File::options();
                open.read(true).write(true).custom_flags(flags.bits().cast_signed());
                let file = open.open(path).map_err(|error| match error.raw_os_error() {
                    Some(code) if code == Errno::BUSY.raw_os_error() => {
                        LinkError::PortInUse { url: self.text.clone() }
                    }
                    _ => self.down(&error),
                })?;
                self.prepare(&file, *baud)?;
                let both = || {
                    Ok((
                        Receiver::from_file_unchecked(file.try_clone()?)?,
                        Sender::from_file_unchecked(file)?,
                    ))
                };
                both()
                    .map(|(reader, writer)| Port::Terminal(reader, writer))
                    .map_err(|error: io::Error| self.down(&error))
            }
        }
    }

    /// Locks a terminal for this process and sets it to raw mode, with 8 bits, no parity, no echo
    /// and no flow control.
    fn prepare(&self, file: &File, baud: u32) -> Result<(), LinkError> {
        let bad = |cause: &str| LinkError::BadAddress {
            url: self.text.clone(),
            cause: cause.to_owned(),
            example: EXAMPLE,
        };
        let mut settings = tcgetattr(file).map_err(|_| bad("it is not a serial port"))?;
        flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => LinkError::PortInUse { url: self.text.clone() },
            error => self.down(&error.into()),
        })?;
        let _ = ioctl_tiocexcl(file);
        settings.make_raw();
        settings
            .control_modes
            .remove(ControlModes::CSTOPB | ControlModes::PARENB | ControlModes::CRTSCTS);
        settings
            .control_modes
            .insert(ControlModes::CS8 | ControlModes::CREAD | ControlModes::CLOCAL);
        settings.set_speed(baud).map_err(|_| bad("the port does not support this speed"))?;
        // Discard input that arrived earlier, because it belongs to no session.
        tcsetattr(file, OptionalActions::Flush, &settings).map_err(|error| self.down(&error.into()))
    }
}

impl AsyncRead for Port {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, into),
            Self::Terminal(reader, _) => Pin::new(reader).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Port {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Terminal(_, writer) => Pin::new(writer).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
