//! `moteseal gateway serial`: connects motes on serial lines to the group's links.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;

use moteseal_client::sum::BrokerConfig;
use moteseal_core::DeviceId;
use moteseal_gateway::serial::{MAX_PORTS, Mote, Port, SerialGateway, Settings};
use moteseal_net::mqtt::{self, MqttChild};
use moteseal_net::serial::Options;
use moteseal_net::{Broadcast, LinkError};
use moteseal_service::stop_signal;
use moteseal_verify::Roster;

use super::{Run, metrics, of_group, valid};
use crate::aggregation;
use crate::cloud::{log, runtime};
use crate::config::{self, Serial, link_group, link_options, time_options};
use crate::failure::{Exit, Failure};
use crate::files;
use crate::process_health;

/// The contents of the files that the configuration names, checked.
struct Read {
    roster: Roster,
    ports: Vec<Port>,
    motes: HashMap<DeviceId, Mote>,
    coordinator: Option<mqtt::Options>,
    time: Option<mqtt::Options>,
    /// The address of the broadcast medium, and the options for a broker.
    broadcast: Option<(String, mqtt::Options)>,
}

pub(super) fn serve(arguments: &Run) -> Result<(), Failure> {
    let file = &arguments.config;
    let (config, folder): (Serial, _) = config::load(file)?;
    let read = read(file, &folder, &config)?;
    config.health.refuse_streams(file)?;
    config.health.policy(file)?;
    if config.health.listen.is_some() && config.health.state.is_none() {
        let what = "name a folder in which the gateway counts its starts: state = \"serial\"";
        return Err(Failure::usage(what).about_key(file, "health.state"));
    }
    if arguments.check {
        return check(file, &config, &read);
    }
    log(arguments.log);
    let state = config.health.state.as_ref().map(|state| folder.join(state));
    let health = state
        .map(|state| process_health::open("serial", (&config.health, file), &state, |_| {}))
        .transpose()?;
    runtime()?.block_on(async move {
        let open =
            |(url, options): &(String, _)| Broadcast::open(url, mqtt::Options::clone(options));
        let broadcast = read.broadcast.as_ref().map(open).transpose()?;
        let Read { ports, motes, coordinator, time, .. } = read;
        let listen = config.listen;
        let settings = Settings { ports, motes, coordinator, time, broadcast, listen };
        let mut gateway = SerialGateway::bind(settings).await?;
        if let Some(health) = &health {
            gateway = gateway.with_more_metrics(process_health::metrics(health, "serial"));
        }
        if let Some(address) = gateway.address() {
            // A closed stdout does not stop the service.
            let _ = writeln!(std::io::stdout(), "http://{address}");
        }
        let served =
            health.as_ref().map(|health| process_health::serve(config.health.listen, health));
        let served = served.transpose()?.flatten();
        if let Some((_, url)) = &served {
            let _ = writeln!(std::io::stdout(), "{url}");
        }
        let own = async {
            match health {
                Some(health) => health.run().await,
                None => std::future::pending().await,
            }
        };
        let stop = async {
            tokio::select! {
                _ = stop_signal() => {}
                () = own => {}
            }
        };
        gateway.run(stop).await.map_err(Failure::from)
    })
}

fn read(file: &Path, folder: &Path, config: &Serial) -> Result<Read, Failure> {
    let wrong = |key: &str, what: &str| Failure::usage(what).about_key(file, key);
    let roster = files::roster(&folder.join(&config.roster), &folder.join(&config.operator))
        .map_err(|failure| failure.about_key(file, "roster"))?;
    let coordinator = config
        .link
        .as_ref()
        .map(|link| link_options(link, "link", file, folder, link_group(&roster, None)))
        .transpose()?;
    let mut motes: HashMap<DeviceId, Mote> = roster
        .devices()
        .map(|device| (device.id, Mote { name: device.name.to_owned(), sums: None }))
        .collect();
    if let Some(sums) = &config.sums {
        let link = sums.link.as_ref().or(config.link.as_ref());
        let link =
            link.ok_or_else(|| wrong("sums", "name its broker in [sums.link], or in [link]"))?;
        let tree = sums
            .tree
            .as_ref()
            .map(|tree| aggregation::tree(&folder.join(tree), &roster))
            .transpose();
        let tree = tree.map_err(|failure| failure.about_key(file, "sums.tree"))?;
        for (position, device) in (0..).zip(roster.devices()) {
            let aggregator = match (&tree, &sums.aggregator) {
                (Some(tree), None) => tree.gateway_of(position).unwrap_or_default(),
                (None, Some(aggregator)) => aggregator.as_str(),
                _ => {
                    return Err(wrong(
                        "sums",
                        "give either `tree`, which determines the aggregator of each device, or `aggregator`, one for all devices",
                    ));
                }
            };
            let options = link_options(
                link,
                "sums.link",
                file,
                folder,
                link_group(&roster, Some(aggregator)),
            )?;
            if let Some(mote) = motes.get_mut(&device.id) {
                mote.sums = Some(options);
            }
        }
    }
    let time_link = config.time.as_ref().map(|link| (link, "time")).or_else(|| {
        let sums = config.sums.as_ref()?;
        Some((sums.link.as_ref().or(config.link.as_ref())?, "sums.link"))
    });
    let time = time_link
        .map(|(link, table)| time_options(link, table, file, folder, &roster))
        .transpose()?;
    let access = |link: &BrokerConfig| {
        Ok::<_, Failure>((
            link.url.clone(),
            link_options(link, "broadcast", file, folder, link_group(&roster, None))?,
        ))
    };
    let broadcast = config.broadcast.as_ref().map(access).transpose()?;
    if config.link.is_none() && config.sums.is_none() && config.broadcast.is_none() {
        let what = format!(
            "{}: there is nothing to connect motes to; configure [link], [sums] or [broadcast]",
            file.display()
        );
        return Err(Failure::usage(what));
    }
    Ok(Read { ports: ports(file, config, &roster)?, roster, motes, coordinator, time, broadcast })
}

fn ports(file: &Path, config: &Serial, roster: &Roster) -> Result<Vec<Port>, Failure> {
    let wrong = |what: String| Failure::usage(what).about_key(file, "port");
    let mut ports: Vec<Port> = Vec::new();
    for port in &config.port {
        let line = Options { baud: port.baud, ..Options::gateway(&port.address) };
        line.check().map_err(|error| Failure::from(error).about_key(file, "port.address"))?;
        let named = |name: &String| {
            let unknown = || wrong(format!("{}: the roster has no device {name:?}", port.address));
            roster.id(name).ok_or_else(unknown)
        };
        let device = port.device.as_ref().map(named).transpose()?;
        if ports.iter().any(|other| other.line.address == port.address) {
            return Err(wrong(format!("{} is listed twice", port.address)));
        }
        if device.is_some() && ports.iter().any(|other| other.device == device) {
            return Err(wrong(format!("{}: its device is already at another port", port.address)));
        }
        ports.push(Port { line, device });
    }
    match ports.len() {
        0 => Err(wrong("there is no port: add a table [[port]] with an address".to_owned())),
        1..=MAX_PORTS => Ok(ports),
        many => Err(wrong(format!(
            "{many} ports are listed, but a gateway has at most {MAX_PORTS}; run several gateways"
        ))),
    }
}

/// Prints what the gateway would do. Reads addresses and files, but opens no port and sends
/// nothing.
fn check(file: &Path, config: &Serial, read: &Read) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::Internal, error))?;
    let in_key =
        |key: &'static str| move |error: LinkError| Failure::from(error).about_key(file, key);
    runtime.block_on(async {
        read.coordinator
            .as_ref()
            .map(|coordinator| MqttChild::new(coordinator, [0; 8]))
            .transpose()
            .map_err(in_key("link"))?;
        let sums = read.motes.values().find_map(|mote| mote.sums.as_ref());
        sums.map(|sums| MqttChild::new(sums, [0; 8])).transpose().map_err(in_key("sums"))?;
        let time = read.time.as_ref();
        time.map(|time| MqttChild::new(time, [0; 8])).transpose().map_err(in_key("time"))?;
        let open =
            |(url, options): &(String, _)| Broadcast::open(url, mqtt::Options::clone(options));
        read.broadcast.as_ref().map(open).transpose().map_err(in_key("broadcast"))
    })?;
    let link = config.link.as_ref().map_or("none: no coordinator", |link| &link.url);
    let sums = match &config.sums {
        Some(sums) => {
            let url = sums.link.as_ref().or(config.link.as_ref()).map_or("", |link| &link.url);
            format!(
                "{url}, {}",
                sums.aggregator
                    .as_ref()
                    .map_or("by the tree".to_owned(), |name| format!("at {name}"))
            )
        }
        None => "none".to_owned(),
    };
    let time = read.time.as_ref().map_or("none", |time| &time.url);
    let broadcast = read.broadcast.as_ref().map_or("none", |(url, _)| url);
    let mut rows = vec![
        ("group", of_group(&read.roster)),
        ("link", link.to_owned()),
        ("sums", sums),
        ("time", time.to_owned()),
        ("broadcast", broadcast.to_owned()),
    ];
    for (port, configured) in read.ports.iter().zip(&config.port) {
        let whose = configured.device.as_ref().map_or("any device".to_owned(), Clone::clone);
        let is_missing =
            port.line.address.starts_with('/') && !Path::new(&port.line.address).exists();
        let missing = if is_missing { ", does not exist yet" } else { "" };
        let text = format!("{}, {} baud: {whose}{missing}", port.line.address, port.line.baud);
        rows.push(("port", text));
    }
    rows.push(("listen", metrics(config.listen)));
    valid(&rows)
}
