//! `moteseal gateway`: runs the coordinator of a group, an aggregator of private sums, or a link to
//! motes on serial lines.

mod serial;
mod sum;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use futures_util::future::join_all;
use moteseal_core::health::Columns;
use moteseal_core::record::Scheme;
use moteseal_core::roster::Directory as _;
use moteseal_core::signature::Signer;
use moteseal_gateway::health::{GatewayHealth, HealthService};
use moteseal_gateway::service::Rosters;
use moteseal_gateway::station::{self, CoordinatorKeys};
use moteseal_gateway::{Gateway, Settings, Station, StationError, Time};
use moteseal_net::coap::Socket;
use moteseal_net::in_memory::{Faults, Network};
use moteseal_net::link::until_up;
use moteseal_net::mqtt::MqttParent;
use moteseal_net::{ParentAddress, ParentLink as _};
use moteseal_service::{HostHealth, stop_signal};
use moteseal_verify::Roster;
use tracing::{info, warn};

use crate::cloud::{Log, log, runtime};
use crate::config::{self, link_group, link_options};
use crate::failure::{Exit, Failure};
use crate::files;
use crate::health_stream::{self, Hosted, Sealing};
use crate::links::{Children, Listen};
use crate::process_health;
use crate::progress::{bytes, count, thousands};
use crate::roster_watch::RosterWatch;
use crate::succession::{Succession, record_roster};
use crate::terminal::{Stdout, is_json};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a coordinator: sample the readings that a group's devices forward, keep the group within
    /// its budget, and upload each epoch with its manifest.
    #[command(after_help = "Example, gateway.toml:\n  \
                            roster      = \"roster.cbor\"\n  \
                            operator    = \"keys/op.pub.pem\"\n  \
                            key         = \"keys/gateway.key.pem\"\n  \
                            link_secret = \"keys/link.key\"\n  \
                            state       = \"state\"\n  \
                            disk        = \"4GiB\"\n  \
                            grace       = \"30s\"\n  \
                            listen      = \"127.0.0.1:9464\"\n  \
                            [link]\n  \
                            url         = \"mqtts://broker.example:8883\"\n  \
                            [cloud]\n  \
                            url         = \"https://cloud.example\"\n\n\
                            Paths are relative to the file. The gateway can be killed at any moment, because readings are\n\
                            durable before it acknowledges them. While the cloud is unreachable, epochs wait in the state\n\
                            folder; when that is full, the gateway acknowledges nothing more, and the devices wait. SIGTERM or\n\
                            Ctrl-C stops it cleanly.\n\
                            It prints the address of /metrics, /healthz and /readyz on stdout.")]
    Run(Run),
    /// Run an aggregator of private sums. It adds encrypted readings, and can neither read them nor
    /// alter them undetected.
    #[command(after_help = "Example, aggregator.toml:\n  \
                            name        = \"gw-a\"\n  \
                            roster      = \"roster.cbor\"\n  \
                            operator    = \"keys/op.pub.pem\"\n  \
                            querier     = \"keys/querier.pub.pem\"\n  \
                            tree        = \"tree.toml\"\n  \
                            link_secret = \"keys/gw-a.link.key\"\n  \
                            up_secret   = \"keys/gw-a.up.key\"\n  \
                            state       = \"state\"\n  \
                            grace       = \"2s\"\n  \
                            listen      = \"127.0.0.1:9465\"\n  \
                            [link]\n  \
                            url         = \"mqtts://broker.example:8883\"\n\n\
                            tree.toml, the same for all gateways and the querier:\n  \
                            [gateways]\n  \
                            gw-a = \"querier\"\n  \
                            gw-b = \"gw-a\"\n  \
                            [devices]\n  \
                            dev1 = \"gw-b\"\n\n\
                            Paths are relative to the file. SIGTERM or Ctrl-C stops it cleanly. It prints the address of\n\
                            /metrics, /healthz and /readyz on stdout.")]
    Sum(Run),
    /// Connect motes on serial lines to the group's links. The gateway needs no key and does not
    /// open the frames that it forwards.
    #[command(after_help = "Example, serial.toml:\n  \
                            roster   = \"roster.cbor\"\n  \
                            operator = \"keys/op.pub.pem\"\n  \
                            listen   = \"127.0.0.1:9466\"\n  \
                            [link]\n  \
                            url      = \"mqtts://broker.example:8883\"\n  \
                            [sums]\n  \
                            tree     = \"tree.toml\"\n  \
                            [broadcast]\n  \
                            url      = \"udp://239.1.2.3:5000\"\n  \
                            [[port]]\n  \
                            address  = \"/dev/ttyUSB0\"\n  \
                            baud     = 115200\n  \
                            device   = \"dev1\"\n  \
                            [[port]]\n  \
                            address  = \"tcp://127.0.0.1:4001\"\n\n\
                            [link] is the broker of `gateway run`, [sums] determines the aggregators of the motes' private\n\
                            sums, and [broadcast] is the medium of `broadcast send`. Each may be omitted. A port without\n\
                            `device` accepts any mote of the roster.\n\
                            Paths are relative to the file. SIGTERM or Ctrl-C stops it cleanly. It prints the address of\n\
                            /metrics, /healthz and /readyz on stdout.")]
    Serial(Run),
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The gateway's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Accept devices over CoAP without DTLS on this address, as `listen_coap` in the configuration
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen_coap: Option<SocketAddr>,
    /// Accept devices over CoAP with DTLS on this address, as `listen_coaps` in the configuration
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen_coaps: Option<SocketAddr>,
    /// Check the configuration and the files that it names, print what would run, and exit
    #[arg(long)]
    check: bool,
    /// The format of the log on stderr; RUST_LOG selects the level
    #[arg(long, value_enum, default_value = "text")]
    log: Log,
}

/// Prints what a gateway with a valid configuration would do: a line of text for each row, or with
/// `--json` an object. A label that is repeated has an array there.
fn valid(rows: &[(&str, String)]) -> Result<(), Failure> {
    let mut out = Stdout::lock();
    if is_json() {
        let mut object = serde_json::Map::new();
        for (label, text) in rows {
            let texts = object.entry(*label).or_insert_with(|| serde_json::Value::Array(vec![]));
            texts.as_array_mut().into_iter().for_each(|texts| texts.push(text.as_str().into()));
        }
        for value in object.values_mut() {
            if let [one] = value.as_array().map(Vec::as_slice).unwrap_or_default() {
                *value = one.clone();
            }
        }
        object.insert("valid".to_owned(), true.into());
        return out.line(serde_json::Value::Object(object));
    }
    for (label, text) in rows {
        out.line(format_args!("{label:<8} {text}"))?;
    }
    out.line("the configuration is valid; without --check the gateway would run now")
}

fn of_group(roster: &Roster) -> String {
    format!("{}, {}", roster.group_name(), count(roster.devices().len() as u64, "device"))
}

fn metrics(listen: Option<SocketAddr>) -> String {
    listen.map_or_else(|| "none: no metrics".to_owned(), |listen| listen.to_string())
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Run(arguments) => serve(arguments),
        Command::Sum(arguments) => sum::serve(arguments),
        Command::Serial(arguments) => serial::serve(arguments),
    }
}

/// Serves health on an address of its own. Returns the socket and its address.
fn serve_health(
    listen: Option<SocketAddr>,
    health: &Arc<GatewayHealth>,
) -> Result<Option<(Socket, String)>, Failure> {
    let Some(address) = listen else { return Ok(None) };
    let (socket, url) = process_health::socket(address, HealthService(Arc::clone(health)))?;
    health.attach(socket.handle().clone());
    Ok(Some((socket, url)))
}

fn serve(arguments: &Run) -> Result<(), Failure> {
    let file = &arguments.config;
    let (config, folder): (config::Gateway, _) = config::load(file)?;
    let in_key = |key: &'static str| move |failure: Failure| failure.about_key(file, key);
    let (roster_path, operator) = (folder.join(&config.roster), folder.join(&config.operator));
    let (roster_watch, roster) =
        RosterWatch::open(roster_path.clone(), operator.clone()).map_err(in_key("roster"))?;
    let mut keys: Vec<Box<dyn Signer + Send>> =
        vec![Box::new(files::secret_key(&folder.join(&config.key)).map_err(in_key("key"))?)];
    if let Some(next_key) = &config.next_key {
        keys.push(Box::new(files::secret_key(&folder.join(next_key)).map_err(in_key("next_key"))?));
    }
    let mut keys = CoordinatorKeys::from(keys);
    let secret = files::link_secret(&folder.join(&config.link_secret), &roster, None)
        .map_err(in_key("link_secret"))?;
    station::check(&roster, &mut keys).map_err(|error| {
        let key = if matches!(error, StationError::NoBudget) { "roster" } else { "key" };
        Failure::from(error).about_key(file, key)
    })?;
    let listen = Listen {
        coap: arguments.listen_coap.or(config.listen_coap),
        coaps: arguments.listen_coaps.or(config.listen_coaps),
        certificates: config.coaps.as_ref(),
    };
    listen.check(config.link.as_ref(), file)?;
    let name = link_group(&roster, None);
    let link = config.link.as_ref();
    let link = link.map(|link| link_options(link, "link", file, &folder, name.clone()));
    let link = link.transpose()?;
    let members: Vec<[u8; 8]> = roster.devices().map(|device| device.id.0).collect();
    let cloud = config.cloud.as_ref().map(|cloud| cloud.client(file, &folder)).transpose()?;
    let state = folder.join(&config.state);
    if state.exists() && !state.is_dir() {
        return Err(in_key("state")(Failure::usage(format_args!(
            "{} is a file; name a folder",
            state.display()
        ))));
    }
    let record = state.join("roster");
    let succession = Succession::check(record.clone(), &roster, &roster_path, &operator)
        .map_err(in_key("roster"))?;
    let time = match config.time {
        config::Time::Clock => Time::Clock,
        config::Time::Recorded => Time::Recorded,
    };
    let settings =
        Settings { grace: config.grace, time, listen: config.listen, ..Settings::default() };
    let policy = config.health.policy(file)?;
    let secret_key = [("link_secret", config.health.link_secret.is_some())];
    let what = "the gateway derives the link secrets of its own devices; leave it out";
    config.health.refuse(file, &secret_key, what)?;
    let place = health_stream::Place {
        config: &config.health,
        file,
        folder: &folder,
        state: &state,
        roster: &roster,
        roster_path: &roster_path,
        rosters: roster_watch.rosters(),
        others: &[],
        scheme: Scheme::Star,
        waiting_seals: config::default_waiting(),
    };
    let own = place.check("device", Columns::Own, Some(&secret))?;
    let nodes = place.check("nodes", Columns::Relayed, Some(&secret))?;
    if let (Some(_), config::Time::Recorded) = (own.as_ref().or(nodes.as_ref()), config.time) {
        let what = "time = \"recorded\" takes the epochs from replayed readings, and reports of health have the times of the clock";
        return Err(Failure::usage(what).about_key(file, "health"));
    }
    if arguments.check {
        // This reads the broker's address and files but sends nothing, because the link's task does
        // not run.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::new(Exit::Internal, error))?;
        runtime
            .block_on(async {
                link.as_ref().map(|link| MqttParent::new(link, members)).transpose().map(drop)
            })
            .map_err(|error| Failure::from(error).about_key(file, "link"))?;
        let period = roster.newest_period();
        let budget = period.budget.unwrap_or_default();
        let grace = config.grace.as_millis();
        let mut rows = vec![
            ("group", of_group(&roster)),
            ("budget", format!("{} events per epoch of {} ms", thousands(budget), period.epoch_ms)),
        ];
        rows.extend(config.link.iter().map(|link| ("link", link.url.clone())));
        rows.extend(listen.urls().into_iter().map(|url| ("link", url)));
        rows.extend([
            ("secret", secret.parent().unwrap_or_default().to_owned()),
            ("state", format!("{}, at most {}", state.display(), bytes(config.disk))),
            (
                "cloud",
                match &cloud {
                    Some(cloud) => cloud.base().to_string(),
                    None => "none: epochs stay in the state folder".to_owned(),
                },
            ),
            (
                "epochs",
                match time {
                    Time::Clock => {
                        format!("close {grace} ms after their end, by this machine's clock")
                    }
                    Time::Recorded => format!(
                        "close {grace} ms after a later one begins, in the time of replayed readings"
                    ),
                },
            ),
            ("listen", metrics(config.listen)),
        ]);
        let streams = own.iter().chain(&nodes);
        rows.extend(streams.map(|stream| ("health", format!("sealed by {}", stream.name()))));
        return valid(&rows);
    }
    log(arguments.log);
    let host = HostHealth::open(&state).map_err(|error| Failure::file("write", &state, &error))?;
    let health = GatewayHealth::new(&roster, policy, host);
    if cloud.is_none() {
        warn!("no cloud is configured: epochs stay in the state folder until it is full");
    }
    // The journal was written under the recorded version. Its ended epochs must have left it before
    // a later version is loaded.
    let before = succession.before().unwrap_or(&roster).clone();
    let is_later = before.digest() != roster.digest();
    let link_secret = secret.clone();
    let (mut station, mut recovered) =
        Station::open(&state, before, secret.into_bytes(), keys, config.disk)?;
    if is_later {
        recovered = station.load(roster.clone(), |roster| record_roster(&record, roster))?;
    } else {
        succession.record()?;
    }
    info!(
        frames = recovered.frames,
        refused = recovered.refused,
        torn_bytes = recovered.torn,
        "the journal was read"
    );
    runtime()?.block_on(async move {
        let children =
            Children { group: roster.group(), name: name.clone(), members, secret: &link_secret };
        let (parent, urls) =
            listen.open(link.as_ref(), children, (file, &folder), Some(&health))?;
        let served = serve_health(config.health.listen, &health)?;
        // The devices of the gateway's own streams are its children within the process.
        let network = Network::new(0, Faults::default());
        let children = own.iter().chain(&nodes).map(|stream| stream.device().0).collect();
        let parent = parent.with_in_process(&network, children);
        let address = || ParentAddress::InProcess { network: network.clone(), group: name.clone() };
        let own = own.map(|own| own.open(address())).transpose()?;
        let nodes = nodes.map(|nodes| (nodes.device(), nodes)).map(|(device, nodes)| {
            let nodes = nodes.open(address())?;
            let stream = Arc::clone(nodes.stream());
            // The reports of this stream's device are not rows of it.
            health.on_taken(Box::new(move |of, name, health| {
                if of != device {
                    stream.push(name, health);
                }
            }));
            Ok::<_, Failure>(nodes)
        });
        let nodes = nodes.transpose()?;
        let write = record.clone();
        let rosters = Rosters {
            newest: roster_watch.rosters(),
            record: Box::new(move |roster| {
                moteseal_files::remove_abandoned(&write);
                moteseal_files::replace(&write, roster.bytes(), 0o644)
            }),
        };
        let gateway = Gateway::bind(station, settings, cloud)
            .await?
            .with_rosters(rosters)
            .with_health(Arc::clone(&health));
        if let Some(address) = gateway.address() {
            // A closed stdout does not stop the service.
            let _ = writeln!(std::io::stdout(), "http://{address}");
        }
        for url in urls.into_iter().chain(served.as_ref().map(|(_, url)| url.clone())) {
            let _ = writeln!(std::io::stdout(), "{url}");
        }
        let state = parent.state();
        let refused = async {
            // Give up if the broker refuses the login; keep waiting if it is unreachable.
            match until_up(state).await {
                Err(error) if error.is_refusal() => error,
                _ => std::future::pending().await,
            }
        };
        // Stop cleanly in both cases: after a signal and after a refusal.
        let mut refusal = None;
        let stop = async {
            tokio::select! {
                _ = stop_signal() => {}
                error = refused => refusal = Some(error),
            }
        };
        let follow = own.as_ref().map(|own| {
            let (stream, reports) = (Arc::clone(own.stream()), health.reports());
            tokio::spawn(async move { stream.follow(reports).await })
        });
        let sealing: Vec<_> = own.into_iter().chain(nodes).map(Hosted::spawn).collect();
        // The devices stop before the gateway, so that it has what they recorded.
        let stop = async {
            stop.await;
            follow.iter().for_each(tokio::task::JoinHandle::abort);
            join_all(sealing.into_iter().map(Sealing::stop)).await;
        };
        let ended = tokio::select! {
            ended = gateway.run(parent, stop) => ended,
            () = roster_watch.run(|_| Ok(())) => Ok(()),
        };
        match refusal {
            Some(error) => Err(error.into()),
            None => ended.map_err(Failure::from),
        }
    })
}
