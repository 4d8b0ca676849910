//! The health of a program that has no gateway: it serves it itself (`[health]` in the configuration), and
//! shows it among its metrics.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use moteseal_core::health::{Health, SHORTEST_ON_HOSTS};
use moteseal_net::coap::{Config, Security, Service, Socket};
use moteseal_net::health::{NodeHealth, NodeService};
use moteseal_service::{HostHealth, MoreMetrics};

use crate::config;
use crate::failure::Failure;

/// Creates the health of this program. `state` is the folder that counts its starts. `figures` adds what the
/// program counts itself.
pub(crate) fn open(
    name: &str,
    (config, file): (&config::Health, &Path),
    state: &Path,
    figures: impl Fn(&mut Health) + Send + 'static,
) -> Result<Arc<NodeHealth>, Failure> {
    let policy = config.policy(file)?;
    let host = HostHealth::open(state).map_err(|error| Failure::file("write", state, &error))?;
    Ok(NodeHealth::new(name, (policy, SHORTEST_ON_HOSTS), move || {
        let mut health = host.sample();
        figures(&mut health);
        health
    }))
}

/// Returns what appends the values of this program to its metrics.
pub(crate) fn metrics(health: &Arc<NodeHealth>, role: &'static str) -> MoreMetrics {
    let health = Arc::clone(health);
    Box::new(move |page| health.render(role, page))
}

/// Serves the health of this program, if there is an address. Returns the socket and its address.
pub(crate) fn serve(
    listen: Option<SocketAddr>,
    health: &Arc<NodeHealth>,
) -> Result<Option<(Socket, String)>, Failure> {
    let Some(address) = listen else { return Ok(None) };
    let (socket, url) = socket(address, NodeService(Arc::clone(health)))?;
    health.attach(socket.handle().clone());
    Ok(Some((socket, url)))
}

/// Serves health on an address, without DTLS.
pub(crate) fn socket(
    address: SocketAddr,
    service: impl Service + 'static,
) -> Result<(Socket, String), Failure> {
    let socket = Socket::listen(address, Security::Plain, Config::default(), |_| Box::new(service));
    let socket = socket.map_err(|error| {
        Failure::usage(format_args!("cannot listen on {address}: {error}; set health.listen"))
    })?;
    let url = format!("coap://{}/h", socket.handle().address());
    Ok((socket, url))
}
