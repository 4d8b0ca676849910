//! `moteseal reading`: gets a device's newest reading, or its newest urgent events, from the device
//! itself and verifies them.

use std::path::PathBuf;

use clap::Args;
use moteseal_api::NamedError as _;
use moteseal_client::PinnedSeals;
use moteseal_client::output::{AtomicFile, Format, UrgentText};
use moteseal_client::reading::{
    Credentials, Events, Expected, GetError, NewEvents, Source, Unverified, check,
};
use moteseal_core::DeviceId;
use moteseal_core::link::LinkKey;
use moteseal_device::import::display_ms;
use moteseal_device::resources::SEAL;
use moteseal_net::coap::Address;
use moteseal_net::dtls::Psk;
use moteseal_verify::Roster;
use moteseal_verify::reading::Reading;
use serde_json::{Value, json};

use crate::client_error;
use crate::cloud::runtime;
use crate::cloud_query::Pins;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::get::conflict_text;
use crate::progress::count;
use crate::terminal::{Stdout, diagnostic, is_json};

/// Get a device's newest reading, or its newest urgent events, from the device itself, over CoAP, and
/// verify the signatures.
///
/// A signature proves that the device made the reading. Only the epoch's seal proves that nothing is
/// missing (`moteseal get`, or the device's resource /seal and `moteseal verify`).
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
                  moteseal reading coap://sensor.example/sensors --roster roster.cbor --operator keys/op.pub.pem\n  \
                  moteseal reading 'coap://[2001:db8::7]/sensors/temperature?sig=json' --observe \\\n      \
                  --roster roster.cbor --operator keys/op.pub.pem\n  \
                  moteseal reading coap://sensor.example/event --observe --roster roster.cbor \\\n      \
                  --operator keys/op.pub.pem\n\n\
                  The newest reading of each device is pinned: an earlier one is rejected later.\n\n\
                  Exit codes: 0 verified, 2 the device has no such resource, 3 rejected, 5 a device signed two\n\
                  urgent events for one place, 6 the device does not respond.")]
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
    /// The name of the device: a reading of another one is rejected
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// For coaps: the device's link secret
    #[arg(long, value_name = "FILE", requires = "device")]
    link_secret: Option<PathBuf>,
    /// Print each new reading or urgent event until the command is interrupted
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
    let pinned = arguments.pins.open_and_save(&roster, &arguments.roster)?;
    let format = if is_json() { Format::JsonLines } else { Format::Table };
    let text = UrgentText::new(format, &roster).map_err(client_error::output)?;
    let events = Events::new(&roster);
    let device = arguments.device.as_deref();
    let device = device.map(|name| files::device(&roster, &arguments.roster, name)).transpose()?;
    let expected = Expected { device, value: None };
    let mut output = Output { arguments, roster: &roster, expected, pinned, events, text };
    if let Some(file) = &arguments.file {
        let response = Unverified::of_file(files::read(file)?.to_vec());
        return output.take(&response).map_err(|failure| failure.about(file));
    }
    let url = arguments.url.as_deref().unwrap_or_default();
    let address = Address::parse(url).map_err(|error| failed(&error.into()))?;
    if address.request().path == SEAL {
        return Err(Failure::usage(format_args!(
            "{url} has no reading; fetch it with a client of CoAP, and use `moteseal verify`"
        )));
    }
    let credentials = arguments.credentials(&roster, &address)?;
    output.expected = Expected::of(&address, device);
    runtime()?.block_on(async {
        let source = Source::new(address, credentials).await;
        let mut source = source.map_err(|error| failed(&error))?;
        if !arguments.observe {
            let response = source.get().await.map_err(|error| failed(&error))?;
            return output.take(&response);
        }
        loop {
            let response = source.next().await.map_err(|error| failed(&error))?;
            output.take(&response)?;
        }
    })
}

impl Arguments {
    /// Returns the credentials for an address.
    fn credentials(&self, roster: &Roster, address: &Address) -> Result<Credentials, Failure> {
        let url = address.url();
        match (&self.device, &self.link_secret) {
            (_, Some(_)) if !address.is_secure => Err(Failure::usage(format_args!(
                "{url} has no DTLS; leave --link-secret out, or give a coaps address"
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
}

/// Verifies and prints responses.
struct Output<'a> {
    arguments: &'a Arguments,
    roster: &'a Roster,
    expected: Expected,
    pinned: Option<PinnedSeals>,
    events: Events<'a>,
    text: UrgentText<'a>,
}

impl Output<'_> {
    /// Verifies a response, saves and prints it.
    fn take(&mut self, response: &Unverified) -> Result<(), Failure> {
        if response.has_events() {
            return self.take_events(response);
        }
        let reading = check(response, self.roster, self.pinned.as_mut());
        let reading = reading.map_err(|error| failed(&error))?;
        self.expected.check(&reading, self.roster).map_err(|error| failed(&error))?;
        self.save(response)?;
        if let Some(pinned) = &mut self.pinned {
            pinned.save_if_changed().map_err(client_error::output)?;
        }
        let name = self.name(reading.device);
        if is_json() {
            return Stdout::lock().line(to_json(&reading, &name));
        }
        Stdout::lock().line(line(&reading, &name))
    }

    /// Verifies and saves a response with urgent events, and prints those that are new.
    fn take_events(&mut self, response: &Unverified) -> Result<(), Failure> {
        let NewEvents { events, conflicts, void } =
            self.events.check(response, &self.expected).map_err(|error| failed(&error))?;
        self.save(response)?;
        for event in &events {
            let text = self.text.event(event).map_err(client_error::output)?;
            Stdout::lock().copy(text.as_bytes())?;
        }
        for conflict in &conflicts {
            diagnostic(conflict_text(self.roster, conflict));
        }
        if self.arguments.observe {
            return Ok(());
        }
        let void = match void {
            0 => String::new(),
            void => format!(", {void} void because the roster has ended their key"),
        };
        diagnostic(format_args!("{} verified{void}", count(events.len() as u64, "urgent event")));
        if conflicts.is_empty() {
            return Ok(());
        }
        let what =
            "a device signed statements that contradict each other, or somebody else has its key";
        Err(Failure::new(Exit::Finding, what).with_name("Equivocation"))
    }

    fn name(&self, device: DeviceId) -> String {
        let listed = self.roster.device(device);
        listed.map_or_else(|| device.to_string(), |device| device.name.clone())
    }

    fn save(&self, response: &Unverified) -> Result<(), Failure> {
        let Some(path) = &self.arguments.save else { return Ok(()) };
        let mut file = AtomicFile::create(path).map_err(client_error::output)?;
        std::io::Write::write_all(&mut file, &response.bytes)
            .map_err(|error| Failure::file("write", path, &error))?;
        file.commit().map_err(client_error::output)
    }
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
