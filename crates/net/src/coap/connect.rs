//! Which of a server's addresses a client uses.

use std::net::SocketAddr;
use std::time::Duration;

use super::exchange::Request;
use super::socket::{Socket, Status, To};

/// How long the first of several addresses may take to respond.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest time that an address may take.
const LONGEST: Duration = Duration::from_secs(60);

/// Opens a socket to the first of a server's addresses that responds to a request, or to its only
/// address. A name can have an address at which the server does not listen: `localhost` is `::1` and
/// `127.0.0.1`. `attempt` is the number of successive calls before this one that found nothing; later
/// calls wait longer. Returns `None` if no address responds.
///
/// # Errors
/// The last error of `open`, if no address responds.
pub async fn first_responding<E>(
    addresses: &[SocketAddr],
    attempt: u32,
    request: &Request,
    open: impl Fn(SocketAddr) -> Result<Socket, E>,
) -> Result<Option<Socket>, E> {
    if let [only] = addresses {
        return open(*only).map(Some);
    }
    let patience = PATIENCE.saturating_mul(attempt.saturating_add(1)).min(LONGEST);
    let mut failed = None;
    for address in addresses {
        let socket = match open(*address) {
            Ok(socket) => socket,
            Err(error) => {
                failed = Some(error);
                continue;
            }
        };
        let response = socket.handle().request(To::Server, request.clone(), Duration::ZERO);
        let response = tokio::time::timeout(patience, response).await;
        if matches!(response, Ok(Ok(_))) || is_refused(&socket.handle().status().borrow()) {
            return Ok(Some(socket));
        }
    }
    failed.map_or(Ok(None), Err)
}

/// Returns whether the server has responded and refused the session.
#[cfg(feature = "tls")]
fn is_refused(status: &Status) -> bool {
    use super::socket::SessionError;
    matches!(status, Status::Down { error, .. }
        if error.is_refusal() || matches!(error, SessionError::NotTrusted { .. }))
}

#[cfg(not(feature = "tls"))]
const fn is_refused(_: &Status) -> bool {
    false
}
