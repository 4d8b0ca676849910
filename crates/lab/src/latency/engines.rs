//! The engines of configuration 4: a nats-server and a Cassandra with TLS, users and permissions, which
//! sync before they acknowledge. `tools/engines.sh` runs them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use scylla::client::session_builder::SessionBuilder;

use super::Failed;
use super::process::{Process, free_port};

/// The users, with the permissions of docs/scale.md.
const USERS: &str = include_str!("users.conf");
/// The options of Cassandra's virtual machine: the collector and the compilers of Cassandra's own start
/// script. `tools/engines.sh` chooses others, for a fast start.
const JVM: &str = "jvm=-Xms1g -Xmx1g -XX:+UseG1GC -XX:MaxGCPauseMillis=300";
/// The password of each role, on loopback ports that exist for the time of an experiment.
pub(super) const WORKER_PASSWORD: &str = "worker-password";
const ADMIN: &str = "cassandra";
/// How long an engine may take to start.
const START: Duration = Duration::from_secs(180);

/// A nats-server with JetStream.
#[derive(Debug)]
pub(super) struct Nats {
    port: u16,
    monitor: u16,
    ca: PathBuf,
    _process: Process,
}

impl Nats {
    /// Starts the server. `certificate` and `key` are files in PEM, for 127.0.0.1.
    pub(super) fn start(
        engines: &Path,
        folder: &Path,
        (certificate, key): (&Path, &Path),
    ) -> Result<Self, Failed> {
        let (port, monitor) = (free_port()?, free_port()?);
        let own = folder.join("nats");
        std::fs::create_dir_all(&own)?;
        let tls = format!(
            "tls {{ cert_file: \"{}\", key_file: \"{}\" }}\n",
            certificate.display(),
            key.display()
        );
        std::fs::write(own.join("more.conf"), tls + USERS)?;
        let arguments = [
            "run".to_owned(),
            "nats".to_owned(),
            own.display().to_string(),
            port.to_string(),
            monitor.to_string(),
        ];
        let process = Process::start(engines, &arguments, &[], &folder.join("nats.log"))?;
        process.accepts(port, START)?;
        Ok(Self { port, monitor, ca: certificate.to_owned(), _process: process })
    }

    /// Returns the arguments of `moteseal` for a user of the server.
    pub(super) fn arguments(&self, user: &str) -> Vec<String> {
        let url = format!("tls://{user}:{user}-password@127.0.0.1:{}", self.port);
        let monitor = format!("http://127.0.0.1:{}", self.monitor);
        let ca = self.ca.display().to_string();
        [("--stream", url), ("--stream-monitor", monitor), ("--stream-ca", ca)]
            .into_iter()
            .flat_map(|(name, value)| [name.to_owned(), value])
            .collect()
    }
}

/// A node of Cassandra.
#[derive(Debug)]
pub(super) struct Cassandra {
    port: u16,
    ca: PathBuf,
    _process: Process,
}

impl Cassandra {
    /// Starts a node with an empty keyspace, and creates its tables and the role `worker`, which may read
    /// and write them.
    pub(super) fn start(engines: &Path, folder: &Path, moteseal: &Path) -> Result<Self, Failed> {
        let (port, internal) = (free_port()?, free_port()?);
        let (store, ca) = (folder.join("cassandra.p12"), folder.join("cassandra.pem"));
        certify(&store, &ca)?;
        let arguments = [
            "run".to_owned(),
            "cassandra".to_owned(),
            folder.join("cassandra").display().to_string(),
            port.to_string(),
            format!("storage_port={internal}"),
            "authenticator=PasswordAuthenticator".to_owned(),
            "authorizer=CassandraAuthorizer".to_owned(),
            format!("cql={}", store.display()),
            JVM.to_owned(),
        ];
        let process = Process::start(engines, &arguments, &[], &folder.join("cassandra.log"))?;
        process.accepts(port, START)?;
        let node = Self { port, ca, _process: process };
        // The first start creates the user `cassandra` after it accepts connections.
        let until = Instant::now() + START;
        loop {
            let mut init = Command::new(moteseal);
            init.args(["store", "init", "--replicas", "1", "--store", &node.url(ADMIN)]);
            let run = init.env("MOTESEAL_CASSANDRA_PASSWORD", ADMIN).output()?;
            if run.status.success() {
                break;
            }
            if Instant::now() > until {
                return Err(String::from_utf8_lossy(&run.stderr).trim().to_owned().into());
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(node.grant())?;
        Ok(node)
    }

    /// Returns the URL of the keyspace for a user.
    pub(super) fn url(&self, user: &str) -> String {
        format!("cassandra://{user}@127.0.0.1:{}/moteseal?ca={}", self.port, self.ca.display())
    }

    async fn grant(&self) -> Result<(), Failed> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(&self.ca)? {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let session = SessionBuilder::new()
            .known_node(format!("127.0.0.1:{}", self.port))
            .user(ADMIN, ADMIN)
            .tls_context(Some(Arc::new(tls)))
            .build()
            .await?;
        for statement in [
            &*format!("CREATE ROLE worker WITH PASSWORD = '{WORKER_PASSWORD}' AND LOGIN = true"),
            "GRANT SELECT ON KEYSPACE moteseal TO worker",
            "GRANT MODIFY ON KEYSPACE moteseal TO worker",
            "GRANT SELECT ON system_views.settings TO worker",
        ] {
            session.query_unpaged(statement, &[]).await?;
        }
        Ok(())
    }
}

/// Makes a key and its certificate for 127.0.0.1 with `keytool`, which is a part of Java.
fn certify(store: &Path, certificate: &Path) -> Result<(), Failed> {
    let keytool = |arguments: &[&str]| -> Result<(), Failed> {
        let mut command = Command::new("keytool");
        command.args(arguments).args(["-alias", "node", "-storepass", "moteseal", "-keystore"]);
        let run = command
            .arg(store)
            .output()
            .map_err(|error| format!("keytool: {error}; install Java (tools/setup.sh test)"))?;
        if run.status.success() {
            return Ok(());
        }
        Err(format!("keytool: {}", String::from_utf8_lossy(&run.stdout).trim()).into())
    };
    let key = ["-genkeypair", "-storetype", "PKCS12", "-keyalg", "EC", "-groupname", "secp256r1"];
    let name = ["-dname", "CN=cassandra", "-ext", "san=ip:127.0.0.1", "-validity", "30"];
    keytool(&[&key[..], &name].concat())?;
    keytool(&["-exportcert", "-rfc", "-file", &certificate.display().to_string()])
}
