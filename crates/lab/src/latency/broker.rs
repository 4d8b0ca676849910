//! A private Mosquitto on free loopback ports, with and without TLS.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use super::Failed;

/// Maximum number of QoS 1 messages that either side may have in flight.
pub const IN_FLIGHT: usize = 100;

/// A broker. It stops when this value is dropped.
#[derive(Debug)]
pub struct Broker {
    folder: PathBuf,
    plain: SocketAddr,
    tls: SocketAddr,
    process: Child,
}

impl Broker {
    /// Starts a broker with its files in a folder.
    ///
    /// # Errors
    /// Mosquitto is missing, or does not start.
    pub fn start(folder: &Path) -> Result<Self, Failed> {
        let mut params = CertificateParams::new(Vec::new())?;
        // The issuer's name must differ from the name of the certificate's subject. If they are
        // equal, OpenSSL treats the certificate as self-signed.
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let certificate =
            CertificateParams::new(vec!["localhost".to_owned()])?.signed_by(&key, &authority)?;
        std::fs::write(folder.join("ca.pem"), authority.pem())?;
        std::fs::write(folder.join("broker.pem"), certificate.pem())?;
        std::fs::write(folder.join("broker.key"), key.serialize_pem())?;
        let listeners = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let [plain, tls] = listeners.map(|listener| listener?.local_addr());
        let (plain, tls) = (plain?, tls?);
        // Queues are unbounded: with the default limit, Mosquitto drops messages without an error.
        // Nagle's algorithm is off: it waits for a TCP acknowledgement, which delays the next
        // message.
        let config = format!(
            "user root\nallow_anonymous true\nset_tcp_nodelay true\nmax_queued_messages 0\nmax_inflight_messages {IN_FLIGHT}\n\
             listener {} 127.0.0.1\nlistener {} 127.0.0.1\n\
             certfile {2}/broker.pem\nkeyfile {2}/broker.key\n",
            plain.port(),
            tls.port(),
            folder.display()
        );
        std::fs::write(folder.join("mosquitto.conf"), config)?;
        // The path on Debian, which is not in every user's PATH.
        let program = if Path::new("/usr/sbin/mosquitto").exists() {
            "/usr/sbin/mosquitto"
        } else {
            "mosquitto"
        };
        let log = File::create(folder.join("mosquitto.log"))?;
        let mut command = Command::new(program);
        command
            .arg("-c")
            .arg(folder.join("mosquitto.conf"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let process = command
            .spawn()
            .map_err(|error| format!("mosquitto: {error}; tools/setup.sh test installs it"))?;
        let broker = Self { folder: folder.to_owned(), plain, tls, process };
        for _ in 0..500 {
            if [plain, tls].iter().all(|listener| TcpStream::connect(listener).is_ok()) {
                return Ok(broker);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("mosquitto did not start".into())
    }

    /// Returns the URL of the listener with TLS.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mqtts://localhost:{}", self.tls.port())
    }

    /// Returns the address of the listener with TLS, or of the one without.
    #[must_use]
    pub const fn address(&self, tls: bool) -> SocketAddr {
        if tls { self.tls } else { self.plain }
    }

    /// Returns the folder with the broker's files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the authority of the broker's certificate, which is for `localhost`.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
