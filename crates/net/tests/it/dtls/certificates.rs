//! Handshakes with X.509 certificates.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use moteseal_net::LinkError;
use moteseal_net::dtls::{
    Authority, Certificates, ClientConfig, DtlsError, Identity, Limits, ServerConfig,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SanType,
    SignatureAlgorithm,
};

use super::world::{DEVICE, Seen, World, data, device_address, psk_client, psk_config};

const SERVER: &str = "gateway.example";
const URI: &str = "urn:moteseal:device:6465766963652d31";
/// The clock of all tests but those of the validity.
const NOW: Duration = Duration::from_secs(1_900_000_000);

/// An authority with its files.
pub(crate) struct Pki {
    pub(super) folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "operator");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { folder, issuer }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn authority(&self) -> Authority {
        Authority::load(&self.path("ca.pem"), || SystemTime::UNIX_EPOCH + NOW).unwrap()
    }

    /// Issues a certificate, and writes `NAME.pem` and `NAME.key`.
    pub(super) fn issue(
        &self,
        name: &str,
        algorithm: &'static SignatureAlgorithm,
        edit: impl FnOnce(&mut CertificateParams),
    ) {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2040, 1, 1);
        edit(&mut params);
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), signed.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    pub(super) fn load(&self, name: &str) -> Certificates {
        let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
        Certificates::load(&self.path(&certificate), &self.path(&key), self.authority()).unwrap()
    }

    /// Issues and loads a certificate of a client.
    pub(crate) fn client(&self, edit: impl FnOnce(&mut CertificateParams)) -> Certificates {
        self.issue("client", &PKCS_ECDSA_P256_SHA256, |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            params.subject_alt_names = vec![SanType::URI(URI.try_into().unwrap())];
            edit(params);
        });
        self.load("client")
    }

    /// Issues and loads a certificate of a server.
    fn server(&self, edit: impl FnOnce(&mut CertificateParams)) -> Certificates {
        self.issue("server", &PKCS_ECDSA_P256_SHA256, |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            params.subject_alt_names = vec![SanType::DnsName(SERVER.try_into().unwrap())];
            edit(params);
        });
        self.load("server")
    }

    /// A server that accepts certificates and keys.
    pub(crate) fn config(&self) -> ServerConfig {
        psk_config().with_certificates(self.server(|_| {}))
    }
}

pub(crate) fn mutual(certificates: Certificates) -> ClientConfig {
    ClientConfig::certificates(certificates, SERVER).unwrap()
}

#[test]
fn a_certificate_of_the_authority_names_the_device() {
    let pki = Pki::new();
    let mut world = World::new(pki.config(), Limits::default());
    let device = world.open(mutual(pki.client(|_| {})));
    let with_key = world.open(psk_client(DEVICE));
    world.send_up(device, b"up");
    world.send_down(device, b"down");
    world.settle();
    let [Seen::Opened(Identity::Certificate { device: named, .. }), up] = &world.of(device)[..]
    else {
        panic!("{:?}", world.of(device));
    };
    assert_eq!(*named, Some(DEVICE));
    assert_eq!(*up, Seen::Data(b"up".to_vec()));
    assert_eq!(data(&world.devices[device].seen), [b"down"]);
    // The same port serves devices with keys.
    assert_eq!(world.of(with_key), [Seen::Opened(Identity::Device(DEVICE))]);
    assert!(matches!(
        world.devices[device].seen[0],
        Seen::Opened(Identity::Certificate { device: None, .. })
    ));
}

#[test]
fn a_renewed_certificate_is_presented_in_the_next_handshake_and_sessions_continue() {
    let pki = Pki::new();
    let current = Arc::new(Mutex::new(Arc::new(pki.server(|_| {}))));
    let of_server = Arc::clone(&current);
    let config = ServerConfig::new()
        .with_current_certificates(move || Arc::clone(&of_server.lock().unwrap()));
    let mut world = World::new(config, Limits::default());
    let before = world.open(mutual(pki.client(|_| {})));
    *current.lock().unwrap() = Arc::new(pki.server(|_| {}));
    let after = world.open(mutual(pki.client(|_| {})));
    let presented = |device: usize| match &world.devices[device].seen[0] {
        Seen::Opened(Identity::Certificate { fingerprint, .. }) => *fingerprint,
        other => panic!("{other:?}"),
    };
    assert_ne!(presented(before), presented(after));
    world.send_up(before, b"up");
    world.settle();
    assert_eq!(data(&world.of(before)), [b"up"]);
}

#[test]
fn keys_on_p_384_work_on_both_sides() {
    let pki = Pki::new();
    pki.issue("server384", &PKCS_ECDSA_P384_SHA384, |params| {
        params.subject_alt_names = vec![SanType::DnsName(SERVER.try_into().unwrap())];
    });
    pki.issue("client384", &PKCS_ECDSA_P384_SHA384, |params| {
        params.subject_alt_names = vec![SanType::URI(URI.try_into().unwrap())];
    });
    let config = ServerConfig::new().with_certificates(pki.load("server384"));
    let mut world = World::new(config, Limits::default());
    let device = world.open(mutual(pki.load("client384")));
    let [Seen::Opened(identity)] = &world.of(device)[..] else { panic!() };
    assert_eq!(identity.device(), Some(DEVICE));
}

#[test]
fn a_client_without_a_certificate_is_anonymous_where_the_server_asks_for_none() {
    let pki = Pki::new();
    let config = pki.config().accept_anonymous();
    let mut world = World::new(config, Limits::default());
    let device = world.open(ClientConfig::anonymous(pki.authority(), SERVER).unwrap());
    assert_eq!(world.of(device), [Seen::Opened(Identity::Anonymous)]);
    // Where the server asks, the same client is refused.
    let mut world = World::new(pki.config(), Limits::default());
    let device = world.add(ClientConfig::anonymous(pki.authority(), SERVER).unwrap());
    world.settle();
    assert!(matches!(&world.of(device)[..], [Seen::Refused(DtlsError::NotTrusted { .. })]));
}

/// Refuses the certificate of a client, and returns the cause that the server reports.
fn refused(pki: &Pki, client: Certificates) -> String {
    let mut world = World::new(pki.config(), Limits::default());
    let device = world.add(mutual(client));
    world.settle();
    let alert = Seen::Refused(DtlsError::RefusedByPeer { alert: 46 });
    assert_eq!(world.devices[device].seen, [alert]);
    assert_eq!(world.server.sessions(), 0);
    match &world.of(device)[..] {
        [Seen::Refused(DtlsError::NotTrusted { cause })] => cause.clone(),
        seen => panic!("{seen:?}"),
    }
}

#[test]
fn the_certificate_of_a_client_is_refused_with_its_cause() {
    let pki = Pki::new();
    let expired = |params: &mut CertificateParams| {
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
    };
    assert_eq!(refused(&pki, pki.client(expired)), "it has expired");
    let early = |params: &mut CertificateParams| {
        params.not_before = rcgen::date_time_ymd(2035, 1, 1);
    };
    assert_eq!(refused(&pki, pki.client(early)), "it is not valid yet");
    let of_server = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    };
    let cause = refused(&pki, pki.client(of_server));
    assert_eq!(cause, "its extended key usage does not permit this side of a connection");
    let other = Pki::new();
    drop(other.client(|_| {}));
    let (pem, key) = (other.path("client.pem"), other.path("client.key"));
    let of_other = Certificates::load(&pem, &key, pki.authority()).unwrap();
    assert_eq!(refused(&pki, of_other), "the configured authority did not issue it");
    let badly_named = |params: &mut CertificateParams| {
        let uri = "urn:moteseal:device:DEVICE1";
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
    };
    assert_eq!(refused(&pki, pki.client(badly_named)), "it names the device \"DEVICE1\"");
    let of_two = |params: &mut CertificateParams| {
        let other = "urn:moteseal:device:0000000000000000";
        params.subject_alt_names.push(SanType::URI(other.try_into().unwrap()));
    };
    assert_eq!(refused(&pki, pki.client(of_two)), "it names two devices");
    let authority = |params: &mut CertificateParams| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    };
    assert_eq!(refused(&pki, pki.client(authority)), "it is the certificate of an authority");
}

#[test]
fn the_certificate_of_a_server_is_refused_with_its_cause() {
    let cause = |pki: &Pki, server: Certificates| {
        let config = ServerConfig::new().with_certificates(server);
        let mut world = World::new(config, Limits::default());
        let device = world.add(mutual(pki.client(|_| {})));
        world.settle();
        assert_eq!(world.server.sessions(), 0);
        match &world.devices[device].seen[..] {
            [Seen::Refused(DtlsError::NotTrusted { cause })] => cause.clone(),
            seen => panic!("{seen:?}"),
        }
    };
    let pki = Pki::new();
    let other = |params: &mut CertificateParams| {
        params.subject_alt_names = vec![SanType::DnsName("other.example".try_into().unwrap())];
    };
    assert_eq!(cause(&pki, pki.server(other)), "it is for another name");
    let of_client = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    };
    let usage = "its extended key usage does not permit this side of a connection";
    assert_eq!(cause(&pki, pki.server(of_client)), usage);
    let of_other = Pki::new().server(|_| {});
    assert_eq!(cause(&pki, of_other), "the configured authority did not issue it");
}

#[test]
fn a_large_certificate_arrives_in_fragments_even_if_one_of_them_is_lost() {
    let pki = Pki::new();
    let names = |params: &mut CertificateParams| {
        for number in 0..60 {
            let name = format!("a-long-name-of-the-server-{number}.example");
            params.subject_alt_names.push(SanType::DnsName(name.try_into().unwrap()));
        }
    };
    for lost in 3..6 {
        let server = ServerConfig::new().with_certificates(pki.server(names));
        let mut world = World::new(server, Limits::default());
        world.lost = vec![lost];
        let device = world.add(mutual(pki.client(|_| {})));
        world.run_for(Duration::from_millis(3500));
        assert!(matches!(world.devices[device].seen[..], [Seen::Opened(_)]), "datagram {lost}");
        assert!(world.sent.iter().all(|(_, sent)| sent.len() <= moteseal_net::dtls::MAX_DATAGRAM));
    }
}

#[test]
fn files_that_do_not_fit_are_refused_by_name() {
    let pki = Pki::new();
    drop(pki.server(|_| {}));
    drop(pki.client(|_| {}));
    pki.issue("edwards", &PKCS_ED25519, |_| {});
    let load = |certificate: &str, key: &str| match Certificates::load(
        &pki.path(certificate),
        &pki.path(key),
        pki.authority(),
    ) {
        Err(LinkError::BadFile { path, cause }) => {
            format!("{}: {cause}", path.file_name().unwrap().to_str().unwrap())
        }
        other => panic!("{other:?}"),
    };
    let other = load("server.pem", "client.key");
    assert!(other.starts_with("client.key: does not belong to the certificate"), "{other}");
    assert_eq!(
        load("edwards.pem", "edwards.key"),
        "edwards.key: contains no ECDSA key on P-256 or P-384"
    );
    assert_eq!(load("server.pem", "server.pem"), "server.pem: contains no private key in PEM");
    assert_eq!(load("server.key", "server.key"), "server.key: contains no certificate in PEM");
    let missing = load("absent.pem", "server.key");
    assert!(missing.starts_with("absent.pem: "), "{missing}");
    assert!(format!("{:?}", pki.load("server")).contains("secret"));
}

/// The numbers of datagrams, records and bytes of a handshake.
fn costs(config: ServerConfig, client: ClientConfig) -> (usize, usize, usize) {
    let mut world = World::new(config, Limits::default());
    world.open(client);
    let records = |datagram: &[u8]| {
        let (mut rest, mut count) = (datagram, 0);
        while let Some(header) = rest.first_chunk::<13>() {
            let length = usize::from(u16::from_be_bytes([header[11], header[12]]));
            rest = &rest[13 + length..];
            count += 1;
        }
        count
    };
    let records = world.sent.iter().map(|(_, sent)| records(sent)).sum();
    let bytes = world.sent.iter().map(|(_, sent)| sent.len()).sum();
    (world.sent.len(), records, bytes)
}

#[test]
fn a_handshake_takes_six_datagrams_and_the_documented_bytes() {
    let pki = Pki::new();
    let with_key = costs(pki.config(), psk_client(DEVICE));
    assert_eq!(with_key, (6, 10, 605));
    let anonymous = ClientConfig::anonymous(pki.authority(), SERVER).unwrap();
    let (datagrams, records, bytes) = costs(pki.config().accept_anonymous(), anonymous);
    assert_eq!((datagrams, records), (6, 12));
    // The lengths of ECDSA signatures and of the names in certificates vary.
    assert!((1100..1250).contains(&bytes), "{bytes}");
    let (datagrams, records, bytes) = costs(pki.config(), mutual(pki.client(|_| {})));
    assert_eq!((datagrams, records), (6, 15));
    assert!((1650..1850).contains(&bytes), "{bytes}");
}

#[test]
fn anonymous_clients_do_not_displace_devices_or_clients_of_other_networks() {
    let pki = Pki::new();
    let limits = Limits { sessions: 12, sessions_per_network: 3, ..Limits::default() };
    let mut world = World::new(pki.config().accept_anonymous(), limits);
    let device = world.open(psk_client(DEVICE));
    let open = |world: &mut World, host: u8| {
        let client = ClientConfig::anonymous(pki.authority(), SERVER).unwrap();
        let number = world.add(client);
        world.devices[number].address.set_ip([203, 0, 113, host].into());
        world.settle();
        number
    };
    let quiet = open(&mut world, 1);
    for _ in 0..5 {
        open(&mut world, 2);
    }
    assert_eq!(world.server.sessions(), 2 + 3, "of the device and two networks");
    assert_eq!(world.of(quiet), [Seen::Opened(Identity::Anonymous)]);
    for host in 0..20 {
        open(&mut world, 3 + host);
    }
    assert_eq!(world.server.sessions(), 1 + 6, "half of the sessions may lack a device");
    assert_eq!(world.of(device), [Seen::Opened(Identity::Device(DEVICE))]);
    for number in 0..20 {
        world.open(psk_client(*format!("device{number:02}").as_bytes().first_chunk().unwrap()));
    }
    assert_eq!(world.server.sessions(), 12);
    let anonymous =
        world.at_server.iter().filter(|(_, seen)| *seen == Seen::Closed(DtlsError::Evicted));
    assert!(anonymous.take(6 + 20).all(|(from, _)| from.ip() != device_address(device).ip()));
}
