//! Measures links over MQTT from end to end: the rate of events from a device until the gateway has
//! acknowledged them as durable. Mosquitto's own clients are measured on the same broker for
//! comparison; they provide neither authentication nor durability.
//!
//! The links use QoS 1 and TLS, and all processes run on one machine. The device is the product's
//! forwarder: it authenticates each frame and resends unacknowledged frames. The gateway is also
//! the product's. It checks and decodes each frame and appends it to its journal, syncs (fdatasync)
//! all frames that have arrived meanwhile, and then acknowledges them with one frame.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use moteseal_core::link::{LinkKey, MAX_FRAME};
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Framing, Round, SealIndex};
use moteseal_core::roster::Directory as _;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_gateway::{Gateway, Settings, Station, Time};
use moteseal_net::link::until_up;
use moteseal_net::mqtt::{MqttChild, MqttParent, Options, Version};
use moteseal_net::{ChildLink, Client, Down, ParentLink};
use moteseal_seal::level::LevelKey;
use moteseal_seal::level::Salt;
use moteseal_seal::sample::Forwarder;
use moteseal_seal::wire::{Acknowledgement, Forward, Uplink};
use moteseal_verify::Roster;
use moteseal_verify::issue::{Budget, FirstRoster};
use tokio::sync::oneshot;

use crate::broker::{Broker, own_clients};
use crate::coordinator::schema_frame;
use crate::load::Failed;
use crate::measure::{Bar, Report, median};

/// The number of messages with one event. `mosquitto_pub -l` over TLS stops if it gets many more
/// lines than this.
const MESSAGES: usize = 60_000;
/// The number of messages with 64 events.
const FULL_MESSAGES: usize = 20_000;
const RUNS: usize = 5;
const RECORD: usize = 32;
pub(crate) const SECRET: [u8; 32] = [0x51; 32];
const EPOCH: EpochNumber = EpochNumber(400_000);
const LEVELS: u8 = 20;
/// The size of a device's buffer for unacknowledged events, in bytes.
const BUFFER: usize = 1 << 20;

pub(crate) fn run() -> Result<Report, Failed> {
    // Use the disk of the target directory: syncs on a temporary file system take no time.
    let folder = tempfile::tempdir_in(
        std::env::current_exe()?.parent().ok_or("this program is in no folder")?,
    )?;
    let broker = Broker::start(folder.path())?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut rates = vec![Vec::new(); 5];
    let (mut ratios, mut syncs) = (vec![Vec::new(); 4], Vec::new());
    for run in 0..=RUNS {
        let peer = MESSAGES as f64 / own_clients(&broker, MESSAGES)?.as_secs_f64();
        let mut found = Vec::new();
        for version in [Version::V5, Version::V3] {
            for (events, messages) in [(1, MESSAGES), (64, FULL_MESSAGES)] {
                let outcome =
                    runtime.block_on(deliver(&broker, folder.path(), version, events, messages))?;
                found.push((events * messages) as f64 / outcome.time.as_secs_f64());
                if run > 0 && events == 1 {
                    syncs.push(outcome.frames_a_sync);
                }
            }
        }
        // The first repetition only warms caches.
        if run == 0 {
            continue;
        }
        rates[0].push(peer);
        for (slot, rate) in rates[1..].iter_mut().zip(&found) {
            slot.push(*rate);
        }
        for (slot, rate) in ratios.iter_mut().zip(&found) {
            slot.push(rate / peer);
        }
    }
    let mut report = Report::new(format!(
        "MQTT, QoS 1, TLS, events of {RECORD} bytes from a device until the gateway has acknowledged them as durable, medians of {RUNS} interleaved runs"
    ));
    let mut rates = rates.into_iter();
    report.add(
        "mosquitto_pub -l -M 100 to mosquitto_sub, lines a second",
        median(rates.next().unwrap_or_default()),
        "/s",
        None,
    );
    let mut ratios = ratios.into_iter();
    for version in ["MQTT 5", "MQTT 3.1.1"] {
        for (name, bar) in [("an event a message", 0.8), ("64 events a message", 30.0)] {
            report.add(
                format!("{version}, {name}: events a second"),
                median(rates.next().unwrap_or_default()),
                "/s",
                None,
            );
            let ratio = median(ratios.next().unwrap_or_default());
            report.add("  against Mosquitto's own clients", ratio, "x", Bar::AtLeast(bar));
        }
    }
    report.add("messages that share a sync and an acknowledgement", median(syncs), "", None);
    Ok(report)
}

struct Outcome {
    time: Duration,
    frames_a_sync: f64,
}

/// Sends messages of `events` events each, and waits until all events are acknowledged.
async fn deliver(
    broker: &Broker,
    folder: &Path,
    version: Version,
    events: usize,
    messages: usize,
) -> Result<Outcome, Failed> {
    let (roster, devices, coordinator) = group(1)?;
    let device = *devices.first().ok_or("the roster has no device")?;
    let key = LinkKey::new(&LinkKey::secret_of(&SECRET, roster.group(), device));
    // Use a new group, so that no frame of an earlier repetition is received.
    static RUN: AtomicUsize = AtomicUsize::new(0);
    let group = RUN.fetch_add(1, Ordering::Relaxed).to_string();
    let options = Options { version, ca: Some(broker.ca()), ..Options::new(broker.url(), group) };
    let parent = MqttParent::new(&options, [device.0])?;
    let link = MqttChild::new(&options, device.0)?;
    until_up(parent.state()).await?;
    until_up(link.state()).await?;
    let state = folder.join("gateway");
    // The journal limit of 64 GiB is never reached in these measurements.
    let (station, _) = Station::open(&state, roster, SECRET, Box::new(coordinator), 64 << 30)?;
    let settings = Settings {
        time: Time::Recorded,
        listen: Some(([127, 0, 0, 1], 0).into()),
        ..Settings::default()
    };
    let gateway = Gateway::bind(station, settings, None).await?;
    let address = gateway.address().ok_or("the gateway has no address")?;
    let (stop, stopped) = oneshot::channel::<()>();
    let gateway = tokio::spawn(gateway.run(parent, async move { drop(stopped.await) }));
    let start = Instant::now();
    send(link, device, &key, events, messages).await?;
    let time = start.elapsed();
    let text = Client::new(&format!("http://{address}"), &moteseal_net::Options::default())?
        .get("metrics")
        .await?
        .bytes(1 << 20)
        .await?;
    let text = String::from_utf8(text)?;
    let metric = |name: &str| -> Result<f64, Failed> {
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .ok_or("a metric of the gateway is missing")?;
        Ok(value.parse()?)
    };
    let frames_a_sync =
        metric("moteseal_gateway_frames_total")? / metric("moteseal_gateway_commit_seconds_count")?;
    let _ = stop.send(());
    gateway.await??;
    std::fs::remove_dir_all(state)?;
    Ok(Outcome { time, frames_a_sync })
}

/// Creates a group with a budget that is large enough for all events. Returns the roster, the devices
/// and the key of the coordinator.
pub(crate) fn group(count: u8) -> Result<(Roster, Vec<DeviceId>, SecretKey), Failed> {
    let secret = |byte: u16| {
        let mut seed = [0; 32];
        seed[..2].copy_from_slice(&byte.to_be_bytes());
        SecretKey::from_seed(Algorithm::Ed25519, &seed)
    };
    let (operator, coordinator) = (secret(1)?, secret(3)?);
    let budget = Budget { events: 1 << 24, coordinator: coordinator.public() };
    let names: Vec<String> = (0..count).map(|number| format!("mote{number}")).collect();
    let keys = (0..count).map(|number| secret(256 + u16::from(number)).map(|key| key.public()));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let devices: Vec<_> = names.iter().map(String::as_str).zip(keys).collect();
    let first = FirstRoster {
        group: "bench",
        epoch_ms: 3_600_000,
        levels: LEVELS,
        budget: Some(budget),
        devices: &devices,
    };
    let roster = Roster::open(&first.issue(&operator)?, &operator.public())?;
    let devices = roster.devices().map(|device| device.id).collect();
    Ok((roster, devices, coordinator))
}

/// Sends messages of `events` events each, and waits until all events are acknowledged.
pub(crate) async fn send(
    mut link: impl ChildLink,
    device: DeviceId,
    key: &LinkKey,
    events: usize,
    messages: usize,
) -> Result<(), Failed> {
    let framing = Framing::Fixed(u16::try_from(RECORD)?.try_into()?);
    let mut forwarder: Box<Forwarder<BUFFER>> =
        Box::new(Forwarder::new(SealIndex(0), EPOCH, (Scheme::Star, framing), LEVELS, Round(0)));
    let (salt, all) = (LevelKey::new(&Salt([7; 16])), (events * messages) as u64);
    // The maximum number of events in flight: the events of 512 messages with one event each, or of
    // 128 messages with several events each.
    let window = (events * if events == 1 { 512 } else { 128 }) as u64;
    let (mut noted, mut acknowledged) = (0, 0);
    let (mut scratch, mut out) = (vec![0; events * (RECORD + 3)], vec![0; MAX_FRAME]);
    link.send(schema_frame(device, key, &["a::u64", "b::u64", "c::u64", "d::u64"])?.into()).await?;
    while acknowledged < all {
        while noted < all && noted - acknowledged < window {
            for _ in 0..events {
                let mut record = [0; RECORD];
                record[..8].copy_from_slice(&noted.to_be_bytes());
                let _ = forwarder.note(salt.level(noted, LEVELS), &record);
                noted += 1;
            }
            flush(&mut forwarder, &link, device, key, &mut scratch, &mut out).await?;
        }
        let received = tokio::time::timeout(Duration::from_secs(1), link.receive()).await;
        let mut received = match received {
            Ok(down) => Some(down?),
            Err(_) => {
                forwarder.rewind();
                flush(&mut forwarder, &link, device, key, &mut scratch, &mut out).await?;
                None
            }
        };
        while let Some(Down::Frame(frame)) = received {
            let word = Acknowledgement::open(&frame, device, key)?;
            acknowledged = acknowledged.max(word.next.0);
            forwarder.acknowledge(&word);
            received = link.receive().now_or_never().transpose()?;
        }
    }
    Ok(())
}

async fn flush(
    forwarder: &mut Forwarder<BUFFER>,
    link: &impl ChildLink,
    device: DeviceId,
    key: &LinkKey,
    scratch: &mut [u8],
    out: &mut [u8],
) -> Result<(), Failed> {
    let next = |forwarder: &mut Forwarder<BUFFER>,
                scratch: &mut [u8],
                out: &mut [u8]|
     -> Result<Option<Bytes>, Failed> {
        let frame: Option<Forward<'_>> =
            forwarder.next_frame(scratch).map_err(|_| "an event does not fit a frame")?;
        let Some(frame) = frame else { return Ok(None) };
        let bytes =
            Uplink::Forward(frame).close(device, key, out).map_err(|_| "a frame is too long")?;
        Ok(Some(Bytes::copy_from_slice(bytes)))
    };
    while let Some(frame) = next(forwarder, scratch, out)? {
        link.send(frame).await?;
    }
    Ok(())
}
