//! Handshakes of DTLS 1.2 between the product's client and server, in memory: the kinds of
//! handshakes, their certificates, and their datagrams.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Instant, SystemTime};

use moteseal_core::link::LinkKey;
use moteseal_net::dtls::{
    Authority, Certificates, Client, ClientConfig, Event, Limits, Psk, Server, ServerConfig,
};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, SanType};

use crate::load::Failed;

/// A kind of handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `TLS_PSK_WITH_AES_128_CCM_8`.
    Psk,
    /// `TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256` or its 256-bit form, with a certificate of the
    /// server on P-256.
    Server,
    /// The same, with certificates of both sides.
    Both,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Psk, Self::Server, Self::Both];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Psk => "PSK, AES-128-CCM-8",
            Self::Server => "ECDHE-ECDSA, AES-GCM, server's certificate",
            Self::Both => "ECDHE-ECDSA, AES-GCM, both certificates",
        }
    }
}

/// The datagrams of one handshake, including those of the cookie exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// The length of each datagram in bytes, without the headers of IP and UDP.
    pub(crate) datagrams: Vec<usize>,
    /// The number of records in all datagrams.
    pub(crate) records: usize,
}

impl Traffic {
    pub(crate) fn bytes(&self) -> usize {
        self.datagrams.iter().sum()
    }

    pub(crate) fn add(&mut self, datagram: &[u8]) {
        self.datagrams.push(datagram.len());
        let mut rest = datagram;
        while let Some(header) = rest.first_chunk::<13>() {
            let length = 13 + usize::from(u16::from_be_bytes([header[11], header[12]]));
            rest = rest.get(length..).unwrap_or_default();
            self.records += 1;
        }
    }
}

/// The name of the server in its certificate.
pub(crate) const SERVER: &str = "gateway.example";
/// The device of the client.
pub(crate) const DEVICE: [u8; 8] = *b"device-1";

/// Writes `ca.pem`, and `server.pem`, `server.key`, `client.pem` and `client.key` on P-256.
pub(crate) fn issue(folder: &Path) -> Result<(), Failed> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(rcgen::DnType::CommonName, "operator");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer = rcgen::CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    std::fs::write(folder.join("ca.pem"), issuer.pem())?;
    let uri = "urn:moteseal:device:6465766963652d31".try_into()?;
    let of_server =
        (SanType::DnsName(SERVER.try_into()?), ExtendedKeyUsagePurpose::ServerAuth, "server");
    let of_client = (SanType::URI(uri), ExtendedKeyUsagePurpose::ClientAuth, "client");
    for (name, usage, file) in [of_server, of_client] {
        let mut params = CertificateParams::new(Vec::new())?;
        params.subject_alt_names = vec![name];
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        std::fs::write(folder.join(format!("{file}.pem")), certificate.pem())?;
        std::fs::write(folder.join(format!("{file}.key")), key.serialize_pem())?;
    }
    Ok(())
}

/// One server and one client of this project, in memory.
pub(crate) struct Pair {
    server: Server,
    client: Client,
    /// The address of the client.
    from: SocketAddr,
}

impl Pair {
    /// Creates both ends with the files of [`issue`].
    pub(crate) fn new(kind: Kind, folder: &Path) -> Result<Self, Failed> {
        let now = Instant::now();
        let secret = [7; 32];
        let authority = || Authority::load(&folder.join("ca.pem"), SystemTime::now);
        let load = |name: &str| -> Result<Certificates, Failed> {
            let of = |ending: &str| folder.join(format!("{name}.{ending}"));
            Ok(Certificates::load(&of("pem"), &of("key"), authority()?)?)
        };
        let with_psk = ServerConfig::new()
            .with_psk(move |device| (*device == DEVICE).then(|| LinkKey::dtls_psk(&secret)));
        let (server, client) = match kind {
            Kind::Psk => {
                let psk = Psk::new(DEVICE, LinkKey::dtls_psk(&secret));
                (with_psk, ClientConfig::psk(psk))
            }
            Kind::Server => (
                with_psk.with_certificates(load("server")?).accept_anonymous(),
                ClientConfig::anonymous(authority()?, SERVER)?,
            ),
            Kind::Both => (
                with_psk.with_certificates(load("server")?),
                ClientConfig::certificates(load("client")?, SERVER)?,
            ),
        };
        Ok(Self {
            server: Server::new(server, Limits::default(), now)?,
            client: Client::new(client, ([192, 0, 2, 1], 5684).into(), now)?,
            from: ([192, 0, 2, 2], 40_000).into(),
        })
    }

    /// Runs a complete handshake. It replaces the session before.
    pub(crate) fn handshake(&mut self) -> Result<Traffic, Failed> {
        fn queue(event: Event<'_>, to: &mut Vec<Vec<u8>>) {
            if let Event::Send { datagram, .. } = event {
                to.push(datagram.to_vec());
            }
        }
        let now = Instant::now();
        let mut traffic = Traffic::default();
        let (mut up, mut down) = (Vec::new(), Vec::new());
        self.client.connect(now, &mut |event| queue(event, &mut up));
        while !up.is_empty() || !down.is_empty() {
            for datagram in std::mem::take(&mut up) {
                traffic.add(&datagram);
                self.server
                    .receive(now, self.from, &datagram, &mut |event| queue(event, &mut down));
            }
            for datagram in std::mem::take(&mut down) {
                traffic.add(&datagram);
                self.client.receive(now, &datagram, &mut |event| queue(event, &mut up));
            }
        }
        if self.client.session().is_none() || self.server.session(self.from).is_none() {
            return Err("the DTLS handshake failed".into());
        }
        Ok(traffic)
    }
}
