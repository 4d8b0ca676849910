//! The engines of configuration 4: a nats-server and a Cassandra with TLS, users and permissions, which
//! sync before they acknowledge. `tools/engines.sh` runs them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use moteseal_stream::{Duty, Permissions};
use moteseal_table::{Address, Password, Rights, Role, apply_roles, role_statements};

use super::Failed;
use super::process::{Process, free_port};

/// The name of the stream and of the keyspace.
const NAME: &str = "moteseal";
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
    pub(super) process: Process,
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
        std::fs::write(own.join("more.conf"), tls + &users())?;
        let arguments = [
            "run".to_owned(),
            "nats".to_owned(),
            own.display().to_string(),
            port.to_string(),
            monitor.to_string(),
        ];
        let process = Process::start(engines, &arguments, &[], &folder.join("nats.log"))?;
        process.accepts(port, START)?;
        Ok(Self { port, monitor, ca: certificate.to_owned(), process })
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
    pub(super) process: Process,
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
        let node = Self { port, ca, process };
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
        let mut superuser = Address::parse(&node.url(ADMIN))?;
        superuser.password = Some(Password(ADMIN.to_owned()));
        let worker = Role {
            name: "worker".to_owned(),
            password: Password(WORKER_PASSWORD.to_owned()),
            rights: Rights::Write,
        };
        apply_roles(&superuser, &role_statements(NAME, 1, &[worker], &[]))?;
        Ok(node)
    }

    /// Returns the folder of the keyspace's files.
    pub(super) fn data(&self, folder: &Path) -> PathBuf {
        folder.join("cassandra").join("data").join(NAME)
    }

    /// Returns the URL of the keyspace for a user.
    pub(super) fn url(&self, user: &str) -> String {
        format!("cassandra://{user}@127.0.0.1:{}/{NAME}?ca={}", self.port, self.ca.display())
    }
}

/// Returns the lines of a server's configuration with a user for each duty, named as the duty, and its permissions.
fn users() -> String {
    let user = |duty: Duty| {
        let Permissions { publish, subscribe } = Permissions::of(NAME, &[duty]);
        let (publish, subscribe) = (Vec::from_iter(publish), Vec::from_iter(subscribe));
        let name = duty.name();
        format!(
            "{{ user: {name}, password: {name}-password, permissions \
             {{ publish: {publish:?}, subscribe: {subscribe:?} }} }}"
        )
    };
    let users: Vec<String> = Duty::ALL.into_iter().map(user).collect();
    format!("accounts {{ {NAME} {{ jetstream: enabled, users: [{}] }} }}\n", users.join(", "))
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
