//! `moteseal chain`: begins, shows and recovers the chain of a device's seals.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use moteseal_client::Client;
use moteseal_client::pinned::PinFile;
use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_core::signature::PublicKey;
use moteseal_device::outbox::{Outbox, OutboxError, default_state_path, lock_state, reached};
use moteseal_device::{Chain, chain_state};
use moteseal_seal::Position;
use moteseal_verify::Roster;
use serde_json::{Value, json};

use crate::client_error;
use crate::cloud::runtime;
use crate::cloud_query::{open_pins, save_roster};
use crate::failure::Failure;
use crate::files;
use crate::key::random;
use crate::progress::{count, thousands};
use crate::push::Access;
use crate::terminal::{Stdout, diagnostic, is_json};
use crate::time::start;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Begin the chain of a device that has never sealed.
    ///
    /// This is necessary only for keys that another program made. The chain of a key from
    /// `moteseal key new` begins when the device first seals.
    #[command(after_help = "Example: moteseal chain new --key keys/dev1.key.pem \\\n      \
                            --roster roster.cbor --operator keys/op.pub.pem\n\n\
                            If the device has sealed before, use `moteseal chain recover`: a second chain contradicts the\n\
                            first one, and applications then reject both.")]
    New(New),
    /// Show where the chain of a device continues.
    #[command(after_help = "Example: moteseal chain show --key keys/dev1.key.pem \\\n      \
                            --roster roster.cbor --operator keys/op.pub.pem")]
    Show(Show),
    /// Rebuild the lost state of a device's chain from the seals that a cloud has.
    ///
    /// The newest seal is verified against the roster. The chain continues after it, and leaves out
    /// more than 65,536 indices, because the device may have signed seals that the cloud never
    /// received. The next seal states that the device restarted.
    #[command(
        after_help = "Example: moteseal chain recover --from http://127.0.0.1:8080 --key keys/dev1.key.pem \\\n      \
                            --roster roster.cbor --operator keys/op.pub.pem\n\n\
                            First make sure that no other program seals with this key. Push all bundles of the device that are\n\
                            left, or they are missing from the chain."
    )]
    Recover(Recover),
}

/// A device's chain.
#[derive(Args, Debug)]
struct Which {
    /// The device's secret key
    #[arg(long, value_name = "KEY")]
    key: PathBuf,
    /// The device's name in the roster; default: the device that the roster lists with this key
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// The group's roster
    #[arg(long)]
    roster: PathBuf,
    /// The operator's public key
    #[arg(long, value_name = "PUBLIC_KEY")]
    operator: PathBuf,
    /// The file with the state of the chain; default: NAME.DEVICE-ID.chain next to the key
    #[arg(long, visible_alias = "out", value_name = "FILE")]
    state: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct New {
    #[command(flatten)]
    which: Which,
}

#[derive(Args, Debug)]
pub(crate) struct Show {
    #[command(flatten)]
    which: Which,
}

#[derive(Args, Debug)]
pub(crate) struct Recover {
    /// The cloud's address
    #[arg(long, value_name = "URL", required_unless_present = "by_gateway")]
    from: Option<String>,
    /// Instead of --from, for a device of a group with a budget: the gateway's first answer tells
    /// where the chain continues
    #[arg(long, conflicts_with = "from")]
    by_gateway: bool,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    which: Which,
}

/// The files that [`Which`] names.
struct Found {
    roster: Roster,
    device: DeviceId,
    name: String,
    key: PublicKey,
    state: PathBuf,
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::New(arguments) => new(&arguments.which),
        Command::Show(arguments) => show(&arguments.which),
        Command::Recover(arguments) => recover(arguments),
    }
}

fn new(which: &Which) -> Result<(), Failure> {
    let found = which.read()?;
    let lock = lock_state(&found.state)?;
    let has_sealed = chain_state::has_begun((&which.key, &found.key), found.device)
        || found
            .roster
            .device(found.device)
            .is_some_and(|device| !chain_state::is_first_key(device, &found.key))
        || reached(&lock, found.device).is_some();
    if has_sealed && !found.state.exists() {
        let what = "has sealed before, so a new chain would contradict its seals; run `moteseal chain recover --from CLOUD`";
        let failure = Failure::usage(format_args!("{} {what}", found.name));
        return Err(failure.with_name("ChainExists"));
    }
    found.begin(which, &Chain::start(found.certificate()))
}

fn show(which: &Which) -> Result<(), Failure> {
    let found = which.read()?;
    let Some((chain, directory)) = chain_state::read(&found.state, found.device)? else {
        let (state, device) = (found.state, found.name);
        return Err(OutboxError::ChainUnknown { state, device }.into());
    };
    let bundles = Outbox::count(&directory, &found.roster, found.device);
    found.report(&chain)?;
    if !directory.as_os_str().is_empty() {
        diagnostic(format_args!("{} in {}", count(bundles, "bundle"), directory.display()));
    }
    Ok(())
}

fn recover(arguments: &Recover) -> Result<(), Failure> {
    let which = &arguments.which;
    let found = which.read()?;
    let lock = lock_state(&found.state)?;
    if found.state.exists() {
        return Err(OutboxError::ChainExists(found.state).into());
    }
    if arguments.by_gateway && !found.roster.has_budget() {
        return Err(Failure::usage(format_args!(
            "--by-gateway: {} gives the group no budget, so it has no gateway that knows the chain; use --from CLOUD",
            which.roster.display()
        )));
    }
    let newest = match &arguments.from {
        Some(url) => arguments.newest(url, &found)?,
        None => None,
    };
    let mut bytes = [0; 4];
    random(&mut bytes)?;
    let (position, readings) = newest.unwrap_or_else(|| (Position::start(found.certificate()), 0));
    // The lock of the lost state may state which index was reached.
    let floor = reached(&lock, found.device).unwrap_or(SealIndex(0));
    let chain = chain_state::recovered(position, floor, u32::from_be_bytes(bytes));
    let chain = Chain { readings, ..chain };
    found.begin(which, &chain)
}

impl Recover {
    /// Returns the position after the newest seal that the cloud has, if it has any, and the number
    /// of readings in the seals of its epoch.
    fn newest(&self, url: &str, found: &Found) -> Result<Option<(Position, u64)>, Failure> {
        let Found { roster, device, name, .. } = found;
        let cloud = self.access.client(url)?;
        let mut pinned = open_pins(&PinFile::Default, roster, &self.which.roster)?;
        save_roster(pinned.as_mut());
        let client = Client::new(&cloud, roster);
        let newest = runtime()?.block_on(client.newest_seal(*device, pinned.unwrap_or_default()));
        let newest = newest.map_err(|error| client_error::failure(roster, &error))?;
        if newest.is_none() {
            diagnostic(format_args!(
                "{url} has no seal of {name}; the chain continues as if the device had never sealed, after a gap"
            ));
        }
        Ok(newest)
    }
}

impl Which {
    fn read(&self) -> Result<Found, Failure> {
        let roster = files::roster(&self.roster, &self.operator)?;
        let key = files::secret_key(&self.key)?.public();
        let owns = |device: &moteseal_verify::roster::Device| {
            device.terms().iter().any(|term| term.key == key)
        };
        let device = match &self.device {
            Some(name) => files::device(&roster, &self.roster, name)?,
            None => {
                let mut owners = roster.devices().filter(|device| owns(device));
                let device = owners.next().map(|device| device.id);
                let device = device.filter(|_| owners.next().is_none());
                device.ok_or_else(|| self.not_the_key("exactly one device"))?
            }
        };
        let name = roster.name(device).unwrap_or_default().to_owned();
        if !roster.device(device).is_some_and(owns) {
            return Err(self.not_the_key(&name));
        }
        let state = match &self.state {
            Some(state) => state.clone(),
            None => default_state_path(&self.key, device)?,
        };
        Ok(Found { roster, device, name, key, state })
    }

    fn not_the_key(&self, whose: &str) -> Failure {
        Failure::usage(format_args!(
            "{} is not the key that {} certifies for {whose}; name the right key, or the device with --device",
            self.key.display(),
            self.roster.display(),
        ))
    }
}

impl Found {
    fn certificate(&self) -> moteseal_core::Digest {
        self.roster
            .device(self.device)
            .map_or(moteseal_core::Digest::NULL, |device| device.certificate)
    }

    /// Writes the new state and reports it. The caller holds the state's lock.
    fn begin(&self, which: &Which, chain: &Chain) -> Result<(), Failure> {
        chain_state::begin(&self.state, self.device, chain)?;
        chain_state::record_begun((&which.key, &self.key), self.device)?;
        self.report(chain)
    }

    fn report(&self, chain: &Chain) -> Result<(), Failure> {
        let newest = chain.position.last.map_or_else(
            || "no seal yet".to_owned(),
            |(index, epoch)| {
                format!(
                    "newest seal {} of {}, digest {}",
                    thousands(index.0.into()),
                    start(&self.roster, epoch),
                    chain.position.prev
                )
            },
        );
        let next = thousands(chain.next_index.0.into());
        diagnostic(format_args!(
            "{}: {newest}; the next seal has index {next}: {}",
            self.name,
            self.state.display()
        ));
        if is_json() {
            Stdout::lock().line(self.json(chain))?;
        }
        Ok(())
    }

    fn json(&self, chain: &Chain) -> Value {
        let newest = chain.position.last.map(|(index, epoch)| {
            json!({
                "index": index.0,
                "epoch": epoch.0,
                "start": start(&self.roster, epoch),
                "digest": chain.position.prev.to_string(),
                "last_in_epoch": chain.position.epoch_closed,
            })
        });
        json!({
            "device": self.name,
            "state": self.state.display().to_string(),
            "newest": newest,
            "next_index": chain.next_index.0,
            "restart": chain.restarted(),
        })
    }
}
