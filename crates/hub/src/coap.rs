//! Notifications of a CoAP server (RFC 7641). Each representation is one message.
//!
//! The server's notifications are acknowledged by the protocol, before their readings are durable: a
//! notification that arrives just before the hub is killed is lost. Restarting the observation
//! returns the newest representation.

use std::sync::Arc;
use std::time::Duration;

use moteseal_net::coap::config::Config;
use moteseal_net::coap::socket::NoService;
use moteseal_net::coap::{
    Address, Code, Format, Request, RequestError, Security, Socket, To, first_responding,
};
use moteseal_net::mqtt::Backoff;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::intake::Intake;
use crate::line::{Done, MAX_LINE};

/// How long the first representation may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long after the end of its freshness a representation may be late before it is requested again
/// (RFC 7641, section 3.3.1).
const LATE: Duration = Duration::from_secs(5);
/// How long a representation without that information is fresh (RFC 7252, section 5.10.5).
const FRESH: u32 = 60;
/// The first wait before an observation starts again.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait before an observation starts again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A resource to observe.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The address; without DTLS.
    pub address: Address,
    /// The content format to request, for example 50 for JSON.
    pub format: Option<u16>,
}

/// Observes a resource. Does not end.
pub(crate) async fn run(resource: Resource, intake: Arc<Intake>) {
    let mut wait = FIRST_WAIT;
    loop {
        let mut received = 0;
        let why = observe(&resource, &intake, &mut received).await;
        if received > 0 {
            wait = FIRST_WAIT;
        }
        let url = resource.address.url();
        warn!(source = intake.name, url, again_in = ?wait, "the resource is not observed: {why}");
        sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Observes a resource until an error. Returns the error.
async fn observe(resource: &Resource, intake: &Arc<Intake>, received: &mut u64) -> String {
    let addresses = match resource.address.resolve().await {
        Ok(addresses) => addresses,
        Err(error) => return error.to_string(),
    };
    let server_name = resource.address.server_name();
    let config = Config { response_limit: MAX_LINE, server_name, ..Config::default() };
    let open = |server| {
        let no_service = |_: &_| Box::new(NoService) as _;
        let (security, backoff) = (Security::Plain, Backoff::default());
        Socket::connect(server, security, backoff, config.clone(), no_service)
    };
    let request = resource.address.request();
    let socket = match first_responding(&addresses, 0, &request, open).await {
        Ok(Some(socket)) => socket,
        Ok(None) => return RequestError::NoResponse.to_string(),
        Err(error) => return format!("cannot open a socket: {error}"),
    };
    let mut fresh = PATIENCE;
    loop {
        let accept = resource.format.map(Format);
        let request = Request { observes: true, accept, ..resource.address.request() };
        let mut observation = match socket.handle().observe(To::Server, request).await {
            Ok(observation) => observation,
            Err(error) => return error.to_string(),
        };
        let mut is_answered = false;
        while let Ok(next) = timeout(fresh, observation.next()).await {
            let response = match next.unwrap_or(Err(RequestError::SessionEnded)) {
                Ok(response) => response,
                Err(error) => return error.to_string(),
            };
            if response.code != Code::CONTENT {
                return format!("the server responds {:?}", response.code);
            }
            if *received == 0 {
                info!(
                    source = intake.name,
                    url = resource.address.url(),
                    "the resource is observed"
                );
            }
            (*received, is_answered) = (*received + 1, true);
            fresh = Duration::from_secs(response.max_age.unwrap_or(FRESH).max(1).into()) + LATE;
            intake.take(&response.body, Done::ignored()).await;
        }
        // The notification is late. Ask again, because the server may have restarted.
        if !is_answered {
            return RequestError::NoResponse.to_string();
        }
    }
}
