//! `moteseal reading`: gets a device's newest reading from the device itself and verifies it.

use std::path::{Path, PathBuf};

use clap::Args;
use moteseal_api::NamedError as _;
use moteseal_client::PinnedSeals;
use moteseal_client::output::AtomicFile;
use moteseal_client::reading::{Credentials, GetError, Source, Unverified, check};
use moteseal_core::link::LinkKey;
use moteseal_device::import::display_ms;
use moteseal_net::coap::Address;
use moteseal_net::dtls::Psk;
use moteseal_verify::Roster;
use moteseal_verify::reading::Reading;
use serde_json::{Value, json};

use crate::client_error;
use crate::cloud::runtime;
use crate::cloud_query::Pins;
use crate::failure::Failure;
use crate::files;
use crate::terminal::{Stdout, is_json};

/// Get a device's newest reading from the device itself, over CoAP, and verify its signature.
///
/// The signature proves that the device made the reading. Only the epoch's seal proves that nothing
/// is missing (`moteseal get`).
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
                  moteseal reading coap://sensor.example/sensors --roster roster.cbor --operator keys/op.pub.pem\n  \
                  moteseal reading 'coap://[2001:db8::7]/sensors/temperature?sig=json' --observe \\\n      \
                  --roster roster.cbor --operator keys/op.pub.pem\n\n\
                  The newest reading of each device is pinned: an earlier one is rejected later.\n\n\
                  Exit codes: 0 verified, 2 the device has no such resource, 3 rejected, 6 the device does not respond.")]
pub(crate) struct Arguments {
    /// The address of the resource
    #[arg(value_name = "URL", required_unless_present = "file")]
    url: Option<String>,
    /// Verify a response that --save has saved, instead of a device's
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "observe", "save"])]
    file: Option<PathBuf>,
    /// The group's roster
    #[arg(long)]
    roster: PathBuf,
    /// The operator's public key
    #[arg(long, value_name = "PUBLIC_KEY")]
    operator: PathBuf,
    /// For coaps: the name of the device, whose link secret the client has
    #[arg(long, value_name = "NAME", requires = "link_secret")]
    device: Option<String>,
    /// For coaps: the device's link secret
    #[arg(long, value_name = "FILE", requires = "device")]
    link_secret: Option<PathBuf>,
    /// Print each new reading until the command is interrupted
    #[arg(long)]
    observe: bool,
    /// Save the response with its signature; with --observe, the newest one
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    #[command(flatten)]
    pins: Pins,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let roster = files::roster(&arguments.roster, &arguments.operator)?;
    let mut pinned = arguments.pins.open_and_save(&roster, &arguments.roster)?;
    if let Some(file) = &arguments.file {
        let response = Unverified::of_file(files::read(file)?.to_vec());
        return arguments
            .take(&roster, pinned.as_mut(), &response)
            .map_err(|failure| failure.about(file));
    }
    let url = arguments.url.as_deref().unwrap_or_default();
    let address = Address::parse(url).map_err(|error| failed(&error.into()))?;
    let credentials = arguments.credentials(&roster, &address)?;
    runtime()?.block_on(async {
        let source = Source::new(address, credentials).await;
        let mut source = source.map_err(|error| failed(&error))?;
        if !arguments.observe {
            let response = source.get().await.map_err(|error| failed(&error))?;
            return arguments.take(&roster, pinned.as_mut(), &response);
        }
        loop {
            let response = source.next().await.map_err(|error| failed(&error))?;
            arguments.take(&roster, pinned.as_mut(), &response)?;
        }
    })
}

impl Arguments {
    /// Returns the credentials for an address.
    fn credentials(&self, roster: &Roster, address: &Address) -> Result<Credentials, Failure> {
        let url = address.url();
        match (&self.device, &self.link_secret) {
            (Some(_), Some(_)) if !address.is_secure => Err(Failure::usage(format_args!(
                "{url} has no DTLS; leave --device and --link-secret out, or give a coaps address"
            ))),
            (Some(name), Some(path)) => {
                let device = files::device(roster, &self.roster, name)?;
                let secret = files::link_secret(path, roster, Some(device))?;
                Ok(Credentials::Psk(Psk::new(device.0, LinkKey::dtls_psk(&secret))))
            }
            _ if address.is_secure => Err(Failure::usage(format_args!(
                "{url} needs the device's link secret; give --device and --link-secret"
            ))),
            _ => Ok(Credentials::None),
        }
    }

    /// Verifies a response, saves and prints it.
    fn take(
        &self,
        roster: &Roster,
        mut pinned: Option<&mut PinnedSeals>,
        response: &Unverified,
    ) -> Result<(), Failure> {
        let reading =
            check(response, roster, pinned.as_deref_mut()).map_err(|error| failed(&error))?;
        if let Some(path) = &self.save {
            save(path, &response.bytes)?;
        }
        if let Some(pinned) = pinned {
            pinned.save_if_changed().map_err(client_error::output)?;
        }
        let name = roster.device(reading.device).map(|device| device.name.clone());
        let name = name.unwrap_or_else(|| reading.device.to_string());
        if is_json() {
            return Stdout::lock().line(to_json(&reading, &name));
        }
        Stdout::lock().line(line(&reading, &name))
    }
}

fn save(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let mut file = AtomicFile::create(path).map_err(client_error::output)?;
    std::io::Write::write_all(&mut file, bytes)
        .map_err(|error| Failure::file("write", path, &error))?;
    file.commit().map_err(client_error::output)
}

fn failed(error: &GetError) -> Failure {
    Failure::named(error.kind().into(), error.named())
}

/// Returns the reading as a line of text.
fn line(reading: &Reading, name: &str) -> String {
    let time = reading.pack.unix_ms.map_or_else(|| "at an unknown time".to_owned(), display_ms);
    let values = reading.pack.values.iter().map(|value| {
        let space = if value.unit.is_empty() { "" } else { " " };
        format!("{} {}{space}{}", value.name, value.value, value.unit)
    });
    let values: Vec<String> = values.collect();
    format!(
        "{name:<12} {time}  {}  (reading {} of seal {})",
        values.join(", "),
        reading.seq.0,
        reading.index
    )
}

fn to_json(reading: &Reading, name: &str) -> Value {
    let value = |value: &moteseal_verify::reading::Measurement| json!({ "name": value.name, "unit": value.unit, "value": value.value.to_string() });
    json!({
        "verified": true,
        "device": reading.device.to_string(),
        "name": name,
        "time": reading.pack.unix_ms.map(display_ms),
        "unix_ms": reading.pack.unix_ms,
        "index": reading.index.0,
        "epoch": reading.epoch.0,
        "seq": reading.seq.0,
        "roster": reading.roster.to_string(),
        "format": reading.format.number(),
        "values": reading.pack.values.iter().map(value).collect::<Vec<_>>(),
    })
}
