//! A Mosquitto broker for one test. It listens on free ports of the loopback interface. Its
//! configuration, certificates and data are in a temporary folder.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

/// How a broker authenticates its clients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    Nothing,
    /// The user is `mote` and the password is `sesame`.
    Password,
    /// A client certificate that the second authority of the test issued.
    Certificate,
}

pub(crate) struct Broker {
    folder: TempDir,
    tcp: u16,
    tls: u16,
    process: Option<Child>,
}

impl Broker {
    /// Starts a broker that listens on two ports, one with TCP and one with TLS.
    pub(crate) fn start(asks: Asks) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let authority = authority("broker");
        let other = self::authority("clients");
        std::fs::write(path("ca.pem"), authority.pem()).unwrap();
        std::fs::write(path("other.pem"), other.pem()).unwrap();
        issue(&authority, &["localhost"], &path("broker.pem"), &path("broker.key"));
        issue(&other, &["mote"], &path("mote.pem"), &path("mote.key"));
        let (tcp, tls) = free_ports();
        let mut config = format!(
            "user root\nmax_queued_messages 0\nmax_inflight_messages 100\nlistener {tcp} 127.0.0.1\n\
             listener {tls} 127.0.0.1\ncertfile {}\nkeyfile {}\n",
            path("broker.pem").display(),
            path("broker.key").display()
        );
        match asks {
            Asks::Certificate => {
                config += &format!(
                    "cafile {}\nrequire_certificate true\nallow_anonymous true\n",
                    path("other.pem").display()
                );
            }
            Asks::Nothing => config += "allow_anonymous true\n",
            Asks::Password => {
                let file = path("passwords");
                let made = Command::new("mosquitto_passwd")
                    .arg("-c")
                    .arg("-b")
                    .arg(&file)
                    .args(["mote", "sesame"])
                    .output();
                assert!(
                    made.expect("mosquitto_passwd is missing: run tools/setup.sh test")
                        .status
                        .success()
                );
                config += &format!("allow_anonymous false\npassword_file {}\n", file.display());
            }
        }
        std::fs::write(path("mosquitto.conf"), config).unwrap();
        let mut broker = Self { folder, tcp, tls, process: None };
        broker.restart();
        broker
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn tcp(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.tcp)
    }

    pub(crate) fn tls(&self) -> String {
        format!("mqtts://localhost:{}", self.tls)
    }

    /// Publishes one message from a separate client.
    pub(crate) fn publish(&self, topic: &str, payload: &[u8]) {
        let file = self.path("payload");
        std::fs::write(&file, payload).unwrap();
        let arguments = ["-h", "127.0.0.1", "-q", "1", "-t", topic, "-p"];
        let done = Command::new("mosquitto_pub")
            .args(arguments)
            .arg(self.tcp.to_string())
            .arg("-f")
            .arg(file)
            .status();
        assert!(done.unwrap().success());
    }

    /// Waits until the broker has no client. It reads what a client has sent before its end one packet at a
    /// time, and a new connection of the client would make it ignore the rest.
    pub(crate) fn until_no_client(&self) {
        let lines = |log: &str, what| log.lines().filter(|line| line.contains(what)).count();
        for _ in 0..2000 {
            let log = std::fs::read_to_string(self.path("log")).unwrap();
            if lines(&log, "New client connected") == lines(&log, " disconnected") {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("a client stays: {}", std::fs::read_to_string(self.path("log")).unwrap());
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Starts the broker again.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let log = std::fs::File::create(self.path("log")).unwrap();
        // The path of the program on Debian. It is not in every user's `PATH`.
        let program = if Path::new("/usr/sbin/mosquitto").exists() {
            "/usr/sbin/mosquitto"
        } else {
            "mosquitto"
        };
        let mut command = Command::new(program);
        command
            .arg("-c")
            .arg(self.path("mosquitto.conf"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.process =
            Some(command.spawn().expect("mosquitto is missing: run tools/setup.sh test"));
        for _ in 0..500 {
            if std::net::TcpStream::connect(("127.0.0.1", self.tls)).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("mosquitto does not start: {}", std::fs::read_to_string(self.path("log")).unwrap());
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn issue(
    authority: &CertifiedIssuer<'static, KeyPair>,
    names: &[&str],
    certificate: &Path,
    key: &Path,
) {
    let own = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let signed = CertificateParams::new(names).unwrap().signed_by(&own, authority).unwrap();
    std::fs::write(certificate, signed.pem()).unwrap();
    std::fs::write(key, own.serialize_pem()).unwrap();
}

fn free_ports() -> (u16, u16) {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [tcp, tls] = listeners.map(|listener| listener.local_addr().unwrap().port());
    (tcp, tls)
}
