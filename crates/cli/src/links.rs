//! The links in configurations: over MQTT or CoAP, by the scheme of the address.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use moteseal_client::input::LinkSecret;
use moteseal_client::sum::BrokerConfig;
use moteseal_core::link::LinkKey;
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_gateway::GatewayHealth;
use moteseal_net::any::{CertificateFiles, CoapAddress};
use moteseal_net::coap::{Address, CoapParent, Security};
use moteseal_net::mqtt::{self, MqttParent};
use moteseal_net::{AnyParent, LinkError, ParentAddress, dtls};
use moteseal_service::Reloaded;
use zeroize::Zeroizing;

use crate::config::{Certificates, link_options};
use crate::failure::Failure;

/// Returns whether an address is that of a CoAP server.
pub(crate) fn is_coap(url: &str) -> bool {
    url.starts_with("coap://") || url.starts_with("coaps://")
}

/// Returns a link with another address. If the kind of link differs, its other keys do not apply.
pub(crate) fn replaced(link: &BrokerConfig, url: &str) -> BrokerConfig {
    let url = url.to_owned();
    if is_coap(&link.url) == is_coap(&url) {
        BrokerConfig { url, ..link.clone() }
    } else {
        BrokerConfig { url, ..BrokerConfig::default() }
    }
}

/// Returns the address of a child's parent. `table` is the name of the link's table in the configuration
/// `file`, whose paths are relative to `folder`. `secret` is the link secret that the child shares with
/// the parent.
pub(crate) fn parent_address(
    link: &BrokerConfig,
    (table, file, folder): (&str, &Path, &Path),
    group: String,
    secret: &LinkSecret,
) -> Result<ParentAddress, Failure> {
    if !is_coap(&link.url) {
        let options = link_options(link, table, file, folder, group)?;
        return Ok(ParentAddress::Mqtt(Box::new(options)));
    }
    let in_key = |key: &'static str| {
        move |failure: Failure| failure.about_key(file, &format!("{table}.{key}"))
    };
    let only_mqtt = [
        ("version", link.version.is_some()),
        ("user", link.user.is_some()),
        ("password_file", link.password_file.is_some()),
    ];
    if let Some((key, _)) = only_mqtt.into_iter().find(|(_, is_given)| *is_given) {
        let what = "this key is for MQTT; a device authenticates to a CoAP server with its link secret or a certificate";
        return Err(in_key(key)(Failure::usage(what)));
    }
    let address = Address::parse(&link.url).map_err(Failure::from).map_err(in_key("url"))?;
    let certificates = match (&link.ca, &link.certificate, &link.certificate_key) {
        (None, None, None) => None,
        (Some(ca), Some(certificate), Some(key)) => Some(CertificateFiles {
            ca: folder.join(ca),
            certificate: folder.join(certificate),
            key: folder.join(key),
        }),
        _ => {
            let what = "certificates need the keys ca, certificate and certificate_key together; without them DTLS uses the link secret";
            return Err(in_key("ca")(Failure::usage(what)));
        }
    };
    let secret = Zeroizing::new(**secret);
    Ok(ParentAddress::Coap(Box::new(CoapAddress { address, group, secret, certificates })))
}

/// Where a parent listens for CoAP.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listen<'a> {
    pub(crate) coap: Option<SocketAddr>,
    pub(crate) coaps: Option<SocketAddr>,
    pub(crate) certificates: Option<&'a Certificates>,
}

/// What the children of a parent have in common.
pub(crate) struct Children<'a> {
    pub(crate) group: GroupId,
    /// The group's name in topics and paths.
    pub(crate) name: String,
    pub(crate) members: Vec<[u8; 8]>,
    /// The secret from which the link secrets of the children are derived.
    pub(crate) secret: &'a LinkSecret,
}

impl Listen<'_> {
    /// Returns whether there is an address to listen on.
    pub(crate) const fn is_some(&self) -> bool {
        self.coap.is_some() || self.coaps.is_some()
    }

    /// Checks that the children can connect by a broker or over CoAP. `file` is the configuration.
    pub(crate) fn check(&self, link: Option<&BrokerConfig>, file: &Path) -> Result<(), Failure> {
        if let Some(link) = link
            && is_coap(&link.url)
        {
            let what = "this is the address of a broker; to accept children over CoAP, set listen_coaps or listen_coap";
            return Err(Failure::usage(what).about_key(file, "link.url"));
        }
        if link.is_none() && !self.is_some() {
            let what = "name a broker in the table [link], or set listen_coaps or listen_coap";
            return Err(Failure::usage(what).about_key(file, "link"));
        }
        Ok(())
    }

    /// Returns one address for each listener.
    pub(crate) fn urls(&self) -> Vec<String> {
        let coap = self.coap.map(|address| format!("coap://{address}"));
        coap.into_iter().chain(self.coaps.map(|address| format!("coaps://{address}"))).collect()
    }

    /// Connects to the broker and listens. Returns the parent's end of the link, and the addresses. `health`
    /// is served on the same sockets.
    pub(crate) fn open(
        &self,
        broker: Option<&mqtt::Options>,
        children: Children<'_>,
        (file, folder): (&Path, &Path),
        health: Option<&Arc<GatewayHealth>>,
    ) -> Result<(AnyParent, Vec<String>), Failure> {
        let Children { group, name, members, secret } = children;
        let mqtt = broker.map(|broker| MqttParent::new(broker, members.clone())).transpose()?;
        let mut urls = Vec::new();
        let mut coap = self.is_some().then(|| CoapParent::new(name, members));
        if let Some(parent) = &mut coap {
            if let Some(health) = health {
                let health = Arc::clone(health);
                parent
                    .serve(Arc::new(move |owner, request| health.respond_on_link(owner, request)));
            }
            let in_key = |key: &'static str| {
                move |error: LinkError| Failure::from(error).about_key(file, key)
            };
            if let Some(address) = self.coap {
                let bound =
                    parent.listen(address, Security::Plain).map_err(in_key("listen_coap"))?;
                urls.push(format!("coap://{bound}"));
            }
            if let Some(address) = self.coaps {
                let secret = Zeroizing::new(**secret);
                let config =
                    with_keys(dtls::ServerConfig::new(), (group, secret), parent.membership());
                let config = match self.certificates {
                    Some(files) => files.present(config, folder).map_err(in_key("coaps"))?,
                    None => config,
                };
                let bound =
                    parent.listen(address, serving(config)?).map_err(in_key("listen_coaps"))?;
                urls.push(format!("coaps://{bound}"));
            }
            if let Some(health) = health {
                parent.handles().into_iter().for_each(|handle| health.attach(handle));
            }
        }
        Ok((AnyParent::new(mqtt, coap), urls))
    }
}

/// Accepts the members of a group with keys that are derived from the group's link secret.
pub(crate) fn with_keys(
    config: dtls::ServerConfig,
    (group, secret): (GroupId, Zeroizing<[u8; 32]>),
    is_member: impl Fn(&[u8; 8]) -> bool + Send + Sync + 'static,
) -> dtls::ServerConfig {
    config.with_psk(move |device| {
        let key = LinkKey::dtls_psk(&LinkKey::secret_of(&secret, group, DeviceId(*device)));
        is_member(device).then_some(key)
    })
}

/// Returns the protection of a socket that serves clients over DTLS.
pub(crate) fn serving(config: dtls::ServerConfig) -> Result<Security, Failure> {
    let server = dtls::Server::new(config, dtls::Limits::default(), Instant::now())?;
    Ok(Security::Server(Box::new(server)))
}

/// Presents a certificate to clients, and accepts those with a certificate of the authority. The files are read
/// again after they have changed.
pub(crate) fn with_certificates(
    config: dtls::ServerConfig,
    certificate: PathBuf,
    key: PathBuf,
    authority: PathBuf,
) -> Result<dtls::ServerConfig, LinkError> {
    let files = vec![certificate.clone(), key.clone(), authority.clone()];
    let load = move || {
        let authority = dtls::Authority::load(&authority, SystemTime::now)?;
        dtls::Certificates::load(&certificate, &key, authority)
    };
    let certificates = Reloaded::new("certificate for DTLS", files, load)?;
    Ok(config.with_current_certificates(move || certificates.current()))
}

impl Certificates {
    /// Presents the certificate in these files, whose paths are relative to `folder`.
    fn present(
        &self,
        config: dtls::ServerConfig,
        folder: &Path,
    ) -> Result<dtls::ServerConfig, LinkError> {
        let [certificate, key, authority] =
            [&self.certificate, &self.certificate_key, &self.ca].map(|file| folder.join(file));
        with_certificates(config, certificate, key, authority)
    }
}
