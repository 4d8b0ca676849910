//! How `moteseal cloud run` listens for CoAP.

use moteseal_cloud::coap::Listen;
use moteseal_core::record::DeviceId;
use moteseal_core::roster::Directory as _;
use moteseal_net::dtls;
use moteseal_verify::Roster;
use zeroize::Zeroizing;

use super::Run;
use crate::failure::Failure;
use crate::files;
use crate::links;
use crate::roster_watch::RosterWatch;

/// Returns where the cloud listens for CoAP. Nothing is opened yet.
pub(super) fn listen(
    arguments: &Run,
    roster_watch: &RosterWatch,
    roster: &Roster,
) -> Result<Listen, Failure> {
    let coap = arguments.listen_coap;
    let Some(address) = arguments.listen_coaps else { return Ok(Listen { coap, coaps: None }) };
    let certificate = arguments.tls_cert.as_ref().zip(arguments.tls_key.as_ref());
    if arguments.link_secret.is_none() && certificate.is_none() {
        return Err(Failure::usage(
            "--listen-coaps needs the keys of the devices (--link-secret), a certificate (--tls-cert, --tls-key), or both",
        ));
    }
    let mut config = dtls::ServerConfig::new();
    if let Some(path) = &arguments.link_secret {
        let secret: Zeroizing<[u8; 32]> = files::link_secret(path, roster, None)?.into_bytes();
        let (group, rosters) = (roster.group(), roster_watch.rosters());
        let is_member = move |device: &[u8; 8]| rosters.borrow().name(DeviceId(*device)).is_some();
        config = links::with_keys(config, (group, secret), is_member);
    }
    if let Some((certificate, key)) = certificate {
        // Without an authority for clients, none is asked for a certificate.
        let ca = arguments.tls_client_ca.as_ref();
        let authority = ca.unwrap_or(certificate).clone();
        config = links::with_certificates(config, certificate.clone(), key.clone(), authority)?;
        if ca.is_none() {
            config = config.accept_anonymous();
        }
    }
    Ok(Listen { coap, coaps: Some((address, links::serving(config)?)) })
}
