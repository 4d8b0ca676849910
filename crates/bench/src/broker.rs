//! The broker for the measurements of links: a private Mosquitto on free loopback ports.
//! Mosquitto's own clients are measured for comparison.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::load::Failed;

/// Maximum number of QoS 1 messages that either side may have in flight.
pub(crate) const IN_FLIGHT: usize = 100;

/// A TLS broker. It stops when this value is dropped.
pub(crate) struct Broker {
    folder: PathBuf,
    port: u16,
    process: Child,
}

impl Broker {
    pub(crate) fn start(folder: &Path) -> Result<Self, Failed> {
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
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        // Queues are unbounded: with the default limit, Mosquitto drops messages without an error.
        // Nagle's algorithm is off: it waits for a TCP acknowledgement, which delays the next
        // message.
        let config = format!(
            "user root\nallow_anonymous true\nset_tcp_nodelay true\nmax_queued_messages 0\nmax_inflight_messages {IN_FLIGHT}\nlistener {port} 127.0.0.1\n\
             certfile {0}/broker.pem\nkeyfile {0}/broker.key\n",
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
        let broker = Self { folder: folder.to_owned(), port, process };
        for _ in 0..500 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(broker);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("mosquitto did not start".into())
    }

    pub(crate) fn url(&self) -> String {
        format!("mqtts://localhost:{}", self.port)
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// Returns the time that Mosquitto's own clients take for `messages` lines of 32 bytes, from
    /// the first published line to the last received one.
    pub(crate) fn own_clients(&self, messages: usize) -> Result<Duration, Failed> {
        let lines = self.folder.join("lines");
        if !lines.exists() {
            let text: String = (0..messages).map(|line| format!("{line:032}\n")).collect();
            std::fs::write(&lines, text)?;
        }
        let common = |program: &str| {
            let mut command = Command::new(program);
            command
                .args(["-h", "localhost", "-q", "1", "-t", "peer", "-p"])
                .arg(self.port.to_string());
            command.arg("--cafile").arg(self.ca());
            command
        };
        // The message is retained, so the subscriber receives it first. It shows that the
        // subscription is active.
        common("mosquitto_pub").args(["-m", "subscribed", "-r"]).status()?;
        let mut subscriber = common("mosquitto_sub").stdout(Stdio::piped()).spawn()?;
        let mut received =
            BufReader::new(subscriber.stdout.take().ok_or("mosquitto_sub has no stdout")?).lines();
        received.next().ok_or("mosquitto_sub received nothing")??;
        let start = Instant::now();
        let mut publisher = common("mosquitto_pub");
        publisher.args(["-l", "-M", &IN_FLIGHT.to_string()]).stdin(File::open(lines)?);
        let mut publisher = publisher.spawn()?;
        let last = received.nth(messages - 1).ok_or("mosquitto's clients lost messages")??;
        let time = start.elapsed();
        publisher.wait()?;
        let _ = subscriber.kill();
        subscriber.wait()?;
        if last == format!("{:032}", messages - 1) {
            Ok(time)
        } else {
            Err("mosquitto's clients delivered messages out of order".into())
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
