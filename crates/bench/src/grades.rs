//! Clouds that serve HTTP in three grades (plain, with TLS, with TLS and credentials), each with a
//! client whose connection stays open.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use moteseal_api::{CBOR_SEQ, paths};
use moteseal_cloud::password::{Password, PasswordHash};
use moteseal_cloud::rights::{Binding, Rights, Scopes};
use moteseal_cloud::users::{User, Users};
use moteseal_cloud::{Cloud, Config};
use moteseal_net::{Client, Credential, Identity, Login, Options, Token};
use moteseal_service::{TlsFiles, certificate_key};
use moteseal_store::RedbStore;
use moteseal_verify::Roster;
use rcgen::generate_simple_self_signed;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::load::Failed;

const PASSWORD: &str = "correct horse battery";
const TOKEN: &str = "4q9mB0xJ2kTqvYfB";

/// How a client reaches a cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Grade {
    Plain,
    Tls,
    Password,
    Token,
    Certificate,
}

impl Grade {
    pub(crate) const ALL: [Self; 5] =
        [Self::Plain, Self::Tls, Self::Password, Self::Token, Self::Certificate];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain HTTP",
            Self::Tls => "TLS",
            Self::Password => "TLS and a password",
            Self::Token => "TLS and a token",
            Self::Certificate => "TLS and a client certificate",
        }
    }
}

/// The certificates, the token and the table of users, as files in a folder.
struct Files(PathBuf);

impl Files {
    fn write(folder: &Path) -> Result<Self, Failed> {
        let files = Self(folder.to_owned());
        for name in ["server", "client"] {
            let made = generate_simple_self_signed(["127.0.0.1".to_owned()])?;
            std::fs::write(files.at(&format!("{name}.pem")), made.cert.pem())?;
            std::fs::write(files.at(&format!("{name}.key")), made.signing_key.serialize_pem())?;
        }
        std::fs::write(files.at("token"), TOKEN)?;
        std::fs::write(files.at("tokens"), format!("read,write {TOKEN}\n"))?;
        std::fs::write(files.at("password"), PASSWORD)?;
        let scopes = Scopes::parse("read,write").ok_or("scopes")?;
        let rights = Rights::new(scopes, Binding::Any).ok_or("rights")?;
        let password = Password::new(PASSWORD.as_bytes().to_vec().into()).ok_or("a password")?;
        let user = User {
            rights,
            password: Some(PasswordHash::of(&password)?),
            certificate: Some(certificate_key(&files.at("client.pem"))?),
        };
        Users::change(&files.at("users"), true, |users| users.add("bench", user, true))?;
        Ok(files)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn config(&self, grade: Grade, roster: &Roster) -> Config {
        let tls = TlsFiles {
            chain: self.at("server.pem"),
            key: self.at("server.key"),
            client_ca: (grade == Grade::Certificate).then(|| self.at("client.pem")),
        };
        let has_users = matches!(grade, Grade::Password | Grade::Certificate);
        Config {
            tls: (grade != Grade::Plain).then_some(tls),
            tokens: (grade == Grade::Token).then(|| self.at("tokens")),
            users: has_users.then(|| self.at("users")),
            ..Config::new(roster.clone())
        }
    }

    fn options(&self, grade: Grade) -> Result<Options, Failed> {
        let credential = match grade {
            Grade::Password => Some(Credential::Login(Login::read("bench", &self.at("password"))?)),
            Grade::Token => Some(Credential::Token(Token::read(&self.at("token"))?)),
            _ => None,
        };
        let identity = (grade == Grade::Certificate)
            .then(|| Identity { certificate: self.at("client.pem"), key: self.at("client.key") });
        let ca = (grade != Grade::Plain).then(|| self.at("server.pem"));
        Ok(Options { ca, credential, identity, ..Options::default() })
    }
}

/// A running cloud, on threads of its own.
struct Running {
    client: Client,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Clouds of several grades that serve the same group.
pub(crate) struct Clouds {
    /// The runtime of the clients.
    runtime: Runtime,
    running: BTreeMap<Grade, Running>,
}

impl Clouds {
    /// Starts a cloud for each grade, with a new store in `folder`.
    pub(crate) fn start(folder: &Path, roster: &Roster, grades: &[Grade]) -> Result<Self, Failed> {
        let files = Files::write(folder)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let mut running = BTreeMap::new();
        for &grade in grades {
            let config = files.config(grade, roster);
            let store = RedbStore::open(
                &folder.join(format!("{grade:?}.redb")),
                moteseal_store::Options::default(),
            )?;
            let threads = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            let cloud = threads.block_on(Cloud::bind(config, Arc::new(store)))?;
            let url = cloud.url();
            let (stop, stopped) = oneshot::channel::<()>();
            let serve = move || threads.block_on(cloud.run(async { drop(stopped.await) }));
            let thread = Some(std::thread::spawn(serve));
            let client = Client::new(&url, &files.options(grade)?)?;
            running.insert(grade, Running { client, stop: Some(stop), thread });
        }
        Ok(Self { runtime, running })
    }

    fn client(&self, grade: Grade) -> Result<&Client, Failed> {
        Ok(&self.running.get(&grade).ok_or("no cloud of this grade")?.client)
    }

    /// Uploads a bundle, and returns the time until it is acknowledged, which means durable.
    pub(crate) fn upload(&self, grade: Grade, bundle: &[u8]) -> Result<Duration, Failed> {
        let (client, body) = (self.client(grade)?, Bytes::copy_from_slice(bundle));
        let start = Instant::now();
        self.runtime.block_on(async {
            let response = client.put(paths::BUNDLES, CBOR_SEQ, body).await?;
            response.bytes(4096).await
        })?;
        Ok(start.elapsed())
    }

    /// Returns the time that the cloud has spent on all uploads so far, between the heads of the
    /// requests and of the responses, in seconds, and the number of uploads.
    pub(crate) fn processing(&self, grade: Grade) -> Result<(f64, f64), Failed> {
        let client = self.client(grade)?;
        let page = self
            .runtime
            .block_on(async { client.get(paths::METRICS).await?.bytes(1 << 20).await })?;
        let page = String::from_utf8(page)?;
        let value = |name: &str| -> Result<f64, Failed> {
            let start = format!("moteseal_request_seconds_{name}{{route=\"{}\"}} ", paths::BUNDLES);
            let line = page.lines().find_map(|line| line.strip_prefix(&start));
            Ok(line.ok_or("the metrics have no such line")?.parse()?)
        };
        Ok((value("sum")?, value("count")?))
    }
}
