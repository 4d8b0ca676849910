//! Serves the device's newest reading, its urgent events and its seals over CoAP (`--listen-coap`, `--listen-coaps`, and `[coap]` in the
//! configuration).

use std::net::SocketAddr;
use std::sync::Arc;

use moteseal_api::NamedError as _;
use moteseal_core::DeviceId;
use moteseal_core::signature::SecretKey;
use moteseal_device::coap::{CoapServer, security};
use moteseal_device::published::{Published, Publisher, channels};
use moteseal_device::resources::Resources;
use moteseal_device::sensors::{SENSORS, Sensors};
use moteseal_net::coap::Security;
use moteseal_net::health::NodeHealth;
use moteseal_verify::Roster;
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::config;
use crate::failure::{Exit, Failure};
use crate::terminal::diagnostic;

/// The addresses on which a device is served, and what answers the requests.
pub(super) struct Served {
    /// Each address, and whether it has DTLS.
    addresses: Vec<(SocketAddr, bool)>,
    sensors: Sensors<SecretKey>,
    psk: Zeroizing<[u8; 32]>,
    published: Published,
    rosters: watch::Receiver<Arc<Roster>>,
    health: Arc<NodeHealth>,
}

impl Served {
    /// Returns what serves a device, and what publishes its readings, events and seals. Returns `None` if there is no address. `given` are the addresses of the command line, without and with
    /// DTLS, and `parts` returns the resources and the key for DTLS.
    pub(super) fn new(
        given: [&[SocketAddr]; 2],
        config: Option<&config::Coap>,
        parts: impl FnOnce() -> (Sensors<SecretKey>, Zeroizing<[u8; 32]>),
        (rosters, health): (watch::Receiver<Arc<Roster>>, &Arc<NodeHealth>),
    ) -> Option<(Self, Publisher)> {
        let configured: [&[SocketAddr]; 2] =
            config.map(|coap| [&coap.listen[..], &coap.listen_dtls]).unwrap_or_default();
        let mut addresses = Vec::new();
        for (at, is_secure) in [(0, false), (1, true)] {
            let chosen = if given[at].is_empty() { configured[at] } else { given[at] };
            addresses.extend(chosen.iter().map(|address| (*address, is_secure)));
        }
        if addresses.is_empty() {
            return None;
        }
        let (publisher, published) = channels();
        let (sensors, psk) = parts();
        let health = Arc::clone(health);
        Some((Self { addresses, sensors, psk, published, rosters, health }, publisher))
    }

    /// Listens on the addresses, and serves the device until the device stops.
    pub(super) async fn serve(this: Option<Self>) -> Result<(), Failure> {
        let Some(Self { addresses, sensors, psk, published, rosters, health }) = this else {
            return std::future::pending().await;
        };
        let device = sensors.device();
        let mut server = CoapServer::new(Resources::new(sensors).with_links(NodeHealth::links()))
            .with_health(health);
        for (address, is_secure) in addresses {
            let (scheme, security) = protection(is_secure, device, &psk)?;
            let bound = server.listen(address, security).map_err(|error| {
                Failure::new(
                    Exit::Usage,
                    format_args!("cannot listen on {address}: {error}; give another address with --listen-{scheme}"),
                )
            })?;
            diagnostic(format_args!("readings at {scheme}://{bound}{SENSORS}"));
        }
        server.serve(published, Some(rosters)).await;
        // The device has stopped. Its result is reported.
        std::future::pending().await
    }
}

/// Returns the scheme of an address, and the protection of its socket.
fn protection(
    is_secure: bool,
    device: DeviceId,
    psk: &Zeroizing<[u8; 32]>,
) -> Result<(&'static str, Security), Failure> {
    if !is_secure {
        return Ok(("coap", Security::Plain));
    }
    let security = security(device, psk.clone())
        .map_err(|error| Failure::named(Exit::Internal, error.named()))?;
    Ok(("coaps", security))
}
