//! Compares links over CoAP and DTLS with links over MQTT and TLS: the rate at which the frames of a
//! hundred devices at once become durable at the gateway and are acknowledged.
//!
//! All processes run on one machine. With MQTT, Mosquitto is between the devices and the gateway. With
//! CoAP, the devices send to the gateway, each in a session with its own key. The gateway and the
//! devices are the same in both cases (see [`mqtt`](crate::mqtt)).

use std::path::Path;
use std::time::Instant;

use moteseal_core::link::LinkKey;
use moteseal_core::record::DeviceId;
use moteseal_core::roster::Directory as _;
use moteseal_gateway::{Gateway, Settings, Station, Time};
use moteseal_net::any::{AnyParent, CoapAddress, ParentAddress};
use moteseal_net::coap::{Address, CoapParent, Security};
use moteseal_net::link::until_up;
use moteseal_net::mqtt::{MqttParent, Options};
use moteseal_net::{ChildLink as _, ParentLink as _, dtls};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::broker::Broker;
use crate::load::Failed;
use crate::measure::{Bar, Report, median};
use crate::mqtt::{SECRET, group, send};

const DEVICES: u8 = 100;
/// The number of frames of each device.
const FRAMES: usize = 300;
const RUNS: usize = 5;

/// The kinds of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mqtt,
    Coap,
}

pub(crate) fn run() -> Result<Report, Failed> {
    let folder = tempfile::tempdir_in(
        std::env::current_exe()?.parent().ok_or("this program is in no folder")?,
    )?;
    let broker = Broker::start(folder.path())?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut report = Report::new(format!(
        "{DEVICES} devices at once, frames of events of 32 bytes until the gateway has acknowledged them as durable, medians of {RUNS} interleaved runs"
    ));
    for (name, events, bar) in [
        ("an event a frame", 1, Some(Bar::AtLeast(0.5))),
        ("64 events a frame", 64, Some(Bar::AtLeast(0.5))),
    ] {
        let (mut rates, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
        for run in 0..=RUNS {
            let mut found = Vec::new();
            for kind in [Kind::Mqtt, Kind::Coap] {
                let group = format!("{run}-{events}");
                let seconds =
                    runtime.block_on(deliver(&broker, folder.path(), kind, group, events))?;
                found.push(f64::from(DEVICES) * FRAMES as f64 / seconds);
            }
            // The first repetition only warms caches.
            if run > 0 {
                rates.iter_mut().zip(&found).for_each(|(rates, rate)| rates.push(*rate));
                ratios.push(found[1] / found[0]);
            }
        }
        let [mqtt, coap] = rates;
        report.add(format!("MQTT over TLS, {name}: frames a second"), median(mqtt), "/s", None);
        report.add(format!("CoAP over DTLS, {name}: frames a second"), median(coap), "/s", None);
        report.add("  against MQTT over TLS", median(ratios), "x", bar);
    }
    Ok(report)
}

/// Sends the frames of all devices, and returns the time in seconds from the first frame until all are
/// acknowledged.
async fn deliver(
    broker: &Broker,
    folder: &Path,
    kind: Kind,
    name: String,
    events: usize,
) -> Result<f64, Failed> {
    let (roster, devices, coordinator) = group(DEVICES)?;
    let members = devices.iter().map(|device| device.0);
    let id = roster.group();
    let secret_of = move |device: DeviceId| LinkKey::secret_of(&SECRET, id, device);
    let options = Options { ca: Some(broker.ca()), ..Options::new(broker.url(), name.clone()) };
    let mut address = None;
    let parent = match kind {
        Kind::Mqtt => AnyParent::new(Some(MqttParent::new(&options, members)?), None),
        Kind::Coap => {
            let mut parent = CoapParent::new(name.clone(), members);
            let config = dtls::ServerConfig::new()
                .with_psk(move |device| Some(LinkKey::dtls_psk(&secret_of(DeviceId(*device)))));
            let server = dtls::Server::new(config, dtls::Limits::default(), Instant::now())?;
            let security = Security::Server(Box::new(server));
            address = Some(parent.listen(([127, 0, 0, 1], 0).into(), security)?);
            AnyParent::new(None, Some(parent))
        }
    };
    until_up(parent.state()).await?;
    let mut links = Vec::new();
    for device in &devices {
        let parent = match address {
            None => ParentAddress::Mqtt(Box::new(options.clone())),
            Some(address) => ParentAddress::Coap(Box::new(CoapAddress {
                address: Address::parse(&format!("coaps://{address}"))?,
                group: name.clone(),
                secret: secret_of(*device),
                certificates: None,
            })),
        };
        let link = parent.open(device.0)?;
        until_up(link.state()).await?;
        links.push((*device, link));
    }
    let state = folder.join("gateway");
    // The journal limit of 64 GiB is never reached in these measurements.
    let (station, _) = Station::open(&state, roster, SECRET, Box::new(coordinator), 64 << 30)?;
    let settings = Settings { time: Time::Recorded, ..Settings::default() };
    let gateway = Gateway::bind(station, settings, None).await?;
    let (stop, stopped) = oneshot::channel::<()>();
    let gateway = tokio::spawn(gateway.run(parent, async move { drop(stopped.await) }));
    let start = Instant::now();
    let mut sending = JoinSet::new();
    for (device, link) in links {
        let key = LinkKey::new(&secret_of(device));
        sending.spawn(async move {
            send(link, device, &key, events, FRAMES).await.map_err(|error| error.to_string())
        });
    }
    while let Some(sent) = sending.join_next().await {
        sent??;
    }
    let seconds = start.elapsed().as_secs_f64();
    let _ = stop.send(());
    gateway.await??;
    std::fs::remove_dir_all(state)?;
    Ok(seconds)
}
