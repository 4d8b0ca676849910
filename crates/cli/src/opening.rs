//! Opens the journals of hosted devices: those of a hub, and those of streams of health.

use std::path::PathBuf;
use std::sync::Arc;

use moteseal_api::ErrorKind;
use moteseal_client::input::LinkSecret;
use moteseal_core::health::Policy;
use moteseal_core::link::LinkKey;
use moteseal_core::record::{DeviceId, Scheme};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::Schema;
use moteseal_core::signature::{PublicKey, SecretKey};
use moteseal_device::durable::Identity;
use moteseal_device::hosted::{Device, Trouble};
use moteseal_device::key_ring::KeyRing;
use moteseal_device::outbox::default_state_path;
use moteseal_device::{DurableMote, Outbox, chain_state};
use moteseal_net::ParentAddress;
use moteseal_service::health::Start;
use moteseal_verify::Roster;
use tokio::sync::watch;

use crate::failure::{Exit, Failure};
use crate::files;
use crate::input_table::check_state;
use crate::progress::count;
use crate::stream_secret::{IN_CONFIGURATION, OwnSecret};
use crate::terminal::diagnostic;

/// Where the link secret of a device comes from.
#[derive(Clone)]
pub(crate) enum SecretSource {
    /// A file.
    File(PathBuf),
    /// The secret of the parent, which is in this process.
    Parent(LinkSecret),
}

/// Everything that opening a hosted device needs. It reads the keys each time, so that the process
/// holds each secret only once.
#[derive(Clone)]
pub(crate) struct Opening {
    pub(crate) name: String,
    pub(crate) device: DeviceId,
    pub(crate) key_path: PathBuf,
    pub(crate) next_key: Option<PathBuf>,
    /// The salt key, if it is not next to the key.
    pub(crate) salt_key: Option<PathBuf>,
    pub(crate) link_secret: SecretSource,
    /// The file with the stream secret.
    pub(crate) stream_secret: Option<PathBuf>,
    /// The state of the device's chain, if it is not next to the key.
    pub(crate) chain: Option<PathBuf>,
    pub(crate) state: PathBuf,
    pub(crate) schema: Vec<u8>,
    pub(crate) scheme: Scheme,
    pub(crate) waiting_seals: u32,
    pub(crate) policy: Policy,
    pub(crate) rosters: watch::Receiver<Arc<Roster>>,
}

/// The checked keys of a device.
pub(crate) struct Keys {
    ring: KeyRing<SecretKey>,
    first: PublicKey,
    pub(crate) secret: LinkSecret,
    chain: PathBuf,
}

impl Opening {
    /// Reads and checks the keys. A failure comes with the key of the configuration.
    pub(crate) fn keys(&self, roster: &Roster) -> Result<Keys, (&'static str, Failure)> {
        let listed = roster.device(self.device).ok_or_else(|| {
            ("device", Failure::usage(format_args!("the roster has no device {}", self.name)))
        })?;
        let mut keys = vec![files::secret_key(&self.key_path).map_err(|error| ("key", error))?];
        let first = keys[0].public();
        if let Some(next_key) = &self.next_key {
            keys.push(files::secret_key(next_key).map_err(|error| ("next_key", error))?);
        }
        let ring = KeyRing::new(keys, listed).ok_or_else(|| {
            let what = format!(
                "{} is not the key that the roster certifies for {}; use the secret key that belongs to the public key in the roster",
                self.key_path.display(),
                self.name
            );
            ("key", Failure::usage(what))
        })?;
        let secret = match &self.link_secret {
            SecretSource::File(path) => files::link_secret(path, roster, Some(self.device))
                .map_err(|error| ("link_secret", error))?,
            SecretSource::Parent(parent) => LinkSecret::of(parent, roster.group(), self.device),
        };
        let chain = match &self.chain {
            Some(chain) => chain.clone(),
            None => default_state_path(&self.key_path, self.device)
                .map_err(|error| ("chain", Failure::from(error)))?,
        };
        check_state(listed, &first, &self.key_path, &chain, "chain")
            .map_err(|error| ("chain", error))?;
        let schema = Schema::decode(&self.schema)
            .map_err(|error| ("columns", Failure::named(Exit::Usage, error.named())))?;
        self.own_secret().check(&schema, &chain).map_err(|error| ("stream_secret", error))?;
        Ok(Keys { ring, first, secret, chain })
    }

    fn own_secret(&self) -> OwnSecret<'_> {
        OwnSecret {
            path: self.stream_secret.as_deref(),
            named: IN_CONFIGURATION,
            device: self.device,
        }
    }

    /// Opens the device's journal.
    fn open(&self) -> Result<DurableMote<SecretKey>, Failure> {
        let roster = Arc::clone(&self.rosters.borrow());
        let Keys { ring, first, secret, chain } = self.keys(&roster).map_err(|(_, error)| error)?;
        let salt_path = self.salt_key.clone();
        let salt_path = salt_path.unwrap_or_else(|| files::salt_key_path(&self.key_path));
        let salt_key = files::salt_key(&salt_path)?;
        let listed = roster
            .device(self.device)
            .ok_or_else(|| Failure::new(Exit::Internal, "the roster lacks the device"))?;
        let schema = Schema::decode(&self.schema)
            .map_err(|error| Failure::named(Exit::Usage, error.named()))?;
        let challenge = getrandom::u64().map_err(|error| {
            Failure::new(Exit::Internal, format_args!("cannot get random bytes: {error}"))
        })?;
        chain_state::begin_first((&self.key_path, &first), &chain, listed)?;
        // The low half of the challenge is as random as the high half, which the session uses.
        #[allow(clippy::cast_possible_truncation)]
        let opened =
            Outbox::open_forwarding(&self.state, &chain, &roster, self.device, challenge as u32)?;
        let named = (&*self.name, self.scheme);
        let profile = self.own_secret().profile(&opened.0, &roster, named, &schema)?;
        let link = LinkKey::new(&secret);
        let coordinators = roster.coordinators();
        let keeps_ended = false;
        let identity =
            Identity { profile, keys: ring, salt_key, link, challenge, coordinators, keeps_ended };
        let journal = self.state.join("journal");
        let mut mote = DurableMote::open(identity, opened, &journal, self.waiting_seals)?;
        mote.leave_outdated(&roster)?;
        Ok(mote)
    }
}

impl Opening {
    /// Opens the device's journal for the first time. Returns what runs the device.
    pub(crate) fn host(self, gateway: ParentAddress) -> Result<Device, Failure> {
        let first =
            self.open().map_err(|failure| failure.of(format_args!("device {}", self.name)))?;
        if first.mote().waiting() > 0 {
            let seals = count(first.mote().waiting() as u64, "seal");
            diagnostic(format_args!("{}: {seals} from an earlier session", self.name));
        }
        let start = Start::count(&self.state)
            .map_err(|error| Failure::file("write", &self.state, &error))?;
        let (id, policy, figures) = (self.device, self.policy, Arc::default());
        let again = Box::new(move || self.open().map_err(|failure| trouble(&failure)));
        Ok(Device { id, figures, start, policy, gateway, first, again })
    }
}

/// Returns why a device could not be opened again.
fn trouble(failure: &Failure) -> Trouble {
    let kind = match failure.exit() {
        Exit::Internal => ErrorKind::Internal,
        Exit::Unreachable => ErrorKind::Unreachable,
        _ => ErrorKind::Usage,
    };
    Trouble::new(failure.name().unwrap_or("Failed"), failure.to_string(), kind)
}
