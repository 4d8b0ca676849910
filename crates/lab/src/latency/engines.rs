//! The engines of configuration 4: a nats-server and a Cassandra with TLS, users and permissions, which
//! sync before they acknowledge. `tools/engines.sh` runs them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use moteseal_stream::{Duty, Permissions};
use moteseal_table::{Address, Password, Rights, Role, apply_roles, role_statements};

use super::Failed;
use super::process::{Process, free_port};
use super::profile;

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

/// The nats-servers of a JetStream: one, or those of a cluster.
#[derive(Debug)]
pub(super) struct Nats {
    ca: PathBuf,
    servers: Vec<Server>,
}

#[derive(Debug)]
struct Server {
    port: u16,
    monitor: u16,
    process: Process,
}

impl Nats {
    /// Starts as many servers as a message has replicas. `certificate` and `key` are files in PEM, for
    /// 127.0.0.1; the servers use them among themselves, too.
    pub(super) fn start(
        engines: &Path,
        folder: &Path,
        (certificate, key): (&Path, &Path),
        replicas: usize,
    ) -> Result<Self, Failed> {
        let ports = (0..replicas).map(|_| free_port()).collect::<Result<Vec<u16>, _>>()?;
        let of_node =
            format!("cert_file: \"{}\", key_file: \"{}\"", certificate.display(), key.display());
        let mut servers = Vec::with_capacity(replicas);
        for (number, route) in ports.iter().enumerate() {
            let name = if replicas == 1 { "nats".to_owned() } else { format!("nats-{number}") };
            let (port, monitor) = (free_port()?, free_port()?);
            let own = folder.join(&name);
            std::fs::create_dir_all(&own)?;
            std::fs::write(own.join("more.conf"), format!("tls {{ {of_node} }}\n{}", users()))?;
            let mut arguments = vec![
                "run".to_owned(),
                "nats".to_owned(),
                own.display().to_string(),
                port.to_string(),
                monitor.to_string(),
            ];
            if replicas > 1 {
                let ca = certificate.display();
                let tls = format!("tls {{ {of_node}, ca_file: \"{ca}\" }}\n");
                std::fs::write(own.join("cluster.conf"), tls)?;
                arguments.extend([name.clone(), route.to_string()]);
                arguments.extend(ports.iter().map(u16::to_string));
            }
            let log = folder.join(format!("{name}.log"));
            let process = Process::start(engines, &arguments, &[], &log)?;
            servers.push(Server { port, monitor, process });
        }
        for server in &servers {
            server.process.accepts(server.port, START)?;
        }
        Ok(Self { ca: certificate.to_owned(), servers })
    }

    /// Returns the arguments of `moteseal` for a user of the servers.
    pub(super) fn arguments(&self, user: &str) -> Vec<String> {
        let ca = self.ca.display().to_string();
        let replicas = self.servers.len().to_string();
        let mut arguments =
            vec!["--stream-ca".to_owned(), ca, "--stream-replicas".to_owned(), replicas];
        for Server { port, monitor, .. } in &self.servers {
            let url = format!("tls://{user}:{user}-password@127.0.0.1:{port}");
            let monitor = format!("http://127.0.0.1:{monitor}");
            arguments.extend(["--stream".to_owned(), url, "--stream-monitor".to_owned(), monitor]);
        }
        arguments
    }

    /// Returns the process of each server.
    pub(super) fn processes(&self) -> impl Iterator<Item = &Process> {
        self.servers.iter().map(|server| &server.process)
    }

    /// Returns the processor time of each server, in seconds.
    pub(super) fn processor_seconds(&self) -> Result<Vec<f64>, Failed> {
        self.processes().map(Process::processor_seconds).collect()
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
    /// and write them. `certificate` and `key` are files in PEM, for 127.0.0.1. `perf` can name the code of a
    /// profiled node.
    pub(super) fn start(
        engines: &Path,
        folder: &Path,
        moteseal: &Path,
        (certificate, key): (&Path, &Path),
        profiled: bool,
    ) -> Result<Self, Failed> {
        let (port, internal) = (free_port()?, free_port()?);
        let both = folder.join("cassandra.pem");
        std::fs::write(&both, [std::fs::read(key)?, std::fs::read(certificate)?].concat())?;
        let arguments = [
            "run".to_owned(),
            "cassandra".to_owned(),
            folder.join("cassandra").display().to_string(),
            port.to_string(),
            format!("storage_port={internal}"),
            "authenticator=PasswordAuthenticator".to_owned(),
            "authorizer=CassandraAuthorizer".to_owned(),
            format!("cql={}", both.display()),
            if profiled { format!("{JVM} {}", profile::JVM) } else { JVM.to_owned() },
        ];
        let process = Process::start(engines, &arguments, &[], &folder.join("cassandra.log"))?;
        process.accepts(port, START)?;
        let node = Self { port, ca: certificate.to_owned(), process };
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
        // With the embedded store, the worker serves it, too.
        let duties = if duty == Duty::Worker { &[duty, Duty::Serve][..] } else { &[duty] };
        let Permissions { publish, subscribe } = Permissions::of(NAME, duties);
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
