//! `moteseal hub`: makes devices of the sensors of other systems.

mod agent;
mod agents;
mod config;
mod trial;

use std::collections::HashSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use moteseal_core::health::Columns;
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::Schema;
use moteseal_hub::agents::broadcasts::publish;
use moteseal_hub::agents::launcher::{NOT_STARTED, launch};
use moteseal_hub::agents::package::Trust;
use moteseal_hub::{Broker, Mapping, Settings, column_ids};
use moteseal_net::mqtt::{Publisher, Version};
use moteseal_service::{Figures, raise_open_files, stop_signal};
use serde_json::json;
use tracing::warn;
use zeroize::Zeroizing;

use crate::cloud::{Log, log, runtime_with};
use crate::config::{link_group, link_options, load_as};
use crate::failure::{Exit, Failure};
use crate::files;
use crate::health_stream;
use crate::input_table::unit_hint;
use crate::links;
use crate::opening::{Opening, SecretSource};
use crate::process_health;
use crate::roster;
use crate::roster_watch::RosterWatch;
use crate::terminal::{diagnostic, report_lines};

/// The maximum length of a token, in bytes.
const MAX_TOKEN: usize = 1024;
/// The number of threads of the runtime.
const THREADS: usize = 4;
/// The document that lists the keys of the configuration.
const DOCS: &str = "docs/hub.md";
/// The hidden subcommand that becomes an agent.
const LAUNCH: &str = "agent-launch";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a hub: receive the messages of sensors, seal them as readings of devices, and forward
    /// them to the group's gateway.
    #[command(after_help = "Example, hub.toml:\n  \
                            roster      = \"roster.cbor\"\n  \
                            operator    = \"keys/op.pub.pem\"\n  \
                            state       = \"hub\"\n  \
                            [link]\n  \
                            url         = \"coaps://gateway.example\"\n  \
                            [mqtt]\n  \
                            url         = \"mqtt://127.0.0.1:1883\"\n  \
                            [[source]]\n  \
                            device      = \"kitchen\"\n  \
                            mqtt        = \"zigbee2mqtt/kitchen\"\n  \
                            columns     = [\"temperature:Cel:i16/100?\", \"humidity:%RH:u16/100?\"]\n\n\
                            docs/hub.md lists all keys; docs/recipes has a configuration for each of several systems. Paths\n\
                            are relative to the file. The hub can be killed at any moment: a message is acknowledged after its\n\
                            reading is durable. SIGTERM or Ctrl-C stops it cleanly.")]
    Run(Run),
    /// Print the row that a message becomes, or say which value is wrong.
    #[command(after_help = "Example:\n  \
                            mosquitto_sub -C 1 -t zigbee2mqtt/kitchen | moteseal hub try --config hub.toml --source kitchen\n\n\
                            Each line of stdin is a message. Nothing is recorded, and no key is needed.")]
    Try(trial::Try),
    /// Pack, install, list and remove agents: programs that deliver the readings of sensors to a hub.
    #[command(subcommand)]
    Agent(agent::Command),
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The hub's configuration
    #[arg(value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration and the files that it names, print what would run, and exit
    #[arg(long)]
    check: bool,
    /// The format of the log on stderr; RUST_LOG selects the level
    #[arg(long, value_enum, default_value = "text")]
    log: Log,
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Run(arguments) => serve(arguments),
        Command::Try(arguments) => trial::run(arguments),
        Command::Agent(command) => agent::run(command),
    }
}

/// Runs the launcher of agents, if this process is one: `moteseal hub agent-launch PLAN`. A launcher
/// must not have other threads, so this is called before anything else.
pub(crate) fn launched() -> Option<ExitCode> {
    let mut command: Vec<_> = std::env::args_os().collect();
    if command.len() != 4 || command.get(1)? != "hub" || command.get(2)? != LAUNCH {
        return None;
    }
    let plan = command.pop()?;
    // The program's file may have been replaced since the hub started.
    if let (true, Some(program)) = (cfg!(target_os = "linux"), command.first_mut()) {
        *program = "/proc/self/exe".into();
    }
    let Err(error) = launch(&plan.to_string_lossy(), &command);
    eprintln!("{}: {error}", error.name());
    Some(ExitCode::from(NOT_STARTED))
}

/// Returns how the messages of a source become rows.
fn mapping(source: &config::Source, file: &Path) -> Result<Mapping, Failure> {
    source.columns.iter().filter_map(|spec| unit_hint(spec)).for_each(diagnostic);
    Mapping::new(&source.mapping())
        .map_err(|error| Failure::from(error).about_key(file, &key_of(source, "")))
}

/// Returns the name of a key of a source, for error messages.
fn key_of(source: &config::Source, key: &str) -> String {
    let dot = if key.is_empty() { "" } else { "." };
    format!("source {}{dot}{key}", source.device)
}

/// Returns the token that HTTP clients must send.
fn token(path: &Path) -> Result<Zeroizing<String>, Failure> {
    let bytes = files::read(path)?;
    let text = std::str::from_utf8(&bytes).unwrap_or_default().trim();
    if text.len() < 16
        || text.len() > MAX_TOKEN
        || !text.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(Failure::usage(
            "a token is one line of 16 to 1024 printable ASCII characters without spaces",
        ));
    }
    Ok(Zeroizing::new(text.to_owned()))
}

fn serve(arguments: &Run) -> Result<(), Failure> {
    let file = &arguments.config;
    let (config, folder): (config::Hub, _) = load_as(file, DOCS)?;
    let in_key = |key: &'static str| move |failure: Failure| failure.about_key(file, key);
    let roster_path = folder.join(&config.roster);
    let (roster_watch, roster) =
        RosterWatch::open(roster_path.clone(), folder.join(&config.operator))
            .map_err(in_key("roster"))?;
    if roster.coordinators().is_empty() {
        return Err(in_key("roster")(Failure::usage(format_args!(
            "{} gives the group no budget, so there is no coordinator to forward to",
            roster_path.display()
        ))));
    }
    if config.source.is_empty() {
        return Err(in_key("source")(Failure::usage("write a table [[source]] for each sensor")));
    }
    let policy = config.health.policy(file)?;
    let group = link_group(&roster, None);
    let state = folder.join(&config.state);
    let (mut names, mut sources, mut lines) = (HashSet::new(), Vec::new(), Vec::new());
    let mut used = config::Used::default();
    for source in &config.source {
        let in_source =
            |(key, failure): (&str, Failure)| failure.about_key(file, &key_of(source, key));
        let device = roster::device_name(&source.device)
            .map_err(|error| Failure::usage(error).of(&source.device))
            .and_then(|name| files::device(&roster, &roster_path, &name))
            .map_err(|failure| in_source(("device", failure)))?;
        if !names.insert(device) {
            let failure = Failure::usage("two sources have this device; a device has one source");
            return Err(in_source(("device", failure)));
        }
        let mapping = mapping(source, file)?;
        let from = source.from(&config, &folder, &mut used).map_err(in_source)?;
        let key_path = config.key_path(source, &folder);
        let opening = Opening {
            name: source.device.clone(),
            device,
            salt_key: source.salt_key.as_ref().map(|path| folder.join(path)),
            key_path,
            next_key: source.next_key.as_ref().map(|path| folder.join(path)),
            link_secret: SecretSource::File(config.link_secret_path(source, &folder)),
            stream_secret: config.stream_secret_path(source, &folder, mapping.schema()),
            chain: source.chain.as_ref().map(|path| folder.join(path)),
            state: state.join(&source.device),
            schema: mapping.schema().to_vec(),
            scheme: source.scheme.unwrap_or(config.scheme).into(),
            waiting_seals: config.waiting_seals,
            policy,
            rosters: roster_watch.rosters(),
        };
        let keys = opening.keys(&roster).map_err(in_source)?;
        let link = ("link", file.as_path(), folder.as_path());
        let gateway = links::parent_address(&config.link, link, group.clone(), &keys.secret)?;
        let schema = Schema::decode(mapping.schema())
            .map_err(|error| Failure::named(Exit::Usage, error.named()))?;
        column_ids::check(&opening.state, &schema)
            .map_err(|error| in_source(("columns", Failure::from(error))))?;
        let columns: Vec<String> = schema.fields().map(|field| field.to_string()).collect();
        lines.push((source.device.clone(), columns));
        sources.push((opening, mapping, from, source.retained, gateway));
    }
    let devices: Vec<&str> = config.source.iter().map(|source| &*source.device).collect();
    let nodes = [("nodes", config.health.nodes.is_some())];
    let what =
        "only a gateway receives reports of nodes; the devices of a hub report to their gateway";
    config.health.refuse(file, &nodes, what)?;
    let place = health_stream::Place {
        config: &config.health,
        file,
        folder: &folder,
        state: &state,
        roster: &roster,
        roster_path: &roster_path,
        rosters: roster_watch.rosters(),
        others: &devices,
        scheme: config.scheme.into(),
        waiting_seals: config.waiting_seals,
    };
    let history = place.check("device", Columns::Own, None)?;
    let history = history.map(|history| {
        let link = ("link", file.as_path(), folder.as_path());
        let gateway = links::parent_address(&config.link, link, group.clone(), history.secret())?;
        Ok::<_, Failure>((history, gateway))
    });
    let history = history.transpose()?;
    // All devices have the same gateway.
    let mut children: Vec<[u8; 8]> = sources.iter().map(|(opening, ..)| opening.device.0).collect();
    children.extend(history.as_ref().map(|(history, _)| history.device().0));
    let shared = sources.first().map(|(.., gateway)| gateway.shared(children));
    let shared = shared.transpose().map_err(Failure::from)?.flatten();
    let broker = config.mqtt.as_ref().map(|mqtt| {
        let options = link_options(&mqtt.broker(), "mqtt", file, &folder, group.clone())?;
        let client = mqtt.client.clone().unwrap_or_else(|| format!("moteseal-hub-{group}"));
        Ok::<_, Failure>(Broker { options, client })
    });
    let broker = broker.transpose()?;
    let http = config.http.as_ref().map(|http| {
        let token = http.token_file.as_ref().map(|path| token(&folder.join(path))).transpose();
        if http.token_file.is_none() && !http.listen.ip().to_canonical().is_loopback() {
            let what = "other machines reach this address, so that clients must send a token; name a file with one";
            return Err(in_key("http.token_file")(Failure::usage(what)));
        }
        Ok::<_, Failure>((http.listen, token.map_err(in_key("http.token_file"))?))
    });
    let http = http.transpose()?;
    if arguments.check {
        let history = history.as_ref().map(|(history, _)| history.name());
        lines.extend(history.map(|name| (name.to_owned(), vec!["health of this hub".to_owned()])));
        let texts =
            lines.iter().map(|(device, columns)| format!("{device}: {}", columns.join(", ")));
        let end = "the configuration is valid; without --check the hub would run now".to_owned();
        return report_lines(texts.chain([end]), || {
            json!({
                "group": roster.group_name(),
                "link": config.link.url,
                "sources": lines.iter().map(|(device, columns)| json!({
                    "device": device,
                    "columns": columns,
                })).collect::<Vec<_>>(),
                "valid": true,
            })
        });
    }
    log(arguments.log);
    let receivers = used.receivers;
    let has_agents =
        !receivers.is_empty() || !config.agent.is_empty() || config.broadcast.is_some();
    let agents = has_agents.then(|| {
        let trust = Trust {
            group: roster.group(),
            operator: files::public_key(&folder.join(&config.operator))?,
        };
        let opening = agents::Opening {
            table: config.agents,
            agents: &config.agent,
            broadcast: config.broadcast.as_ref(),
            has_broker: config.mqtt.is_some(),
            file,
            folder: &folder,
            state: &state,
            trust,
        };
        agents::open(&opening, receivers)
    });
    let agents = agents.transpose()?;
    let mut opened = Vec::with_capacity(sources.len());
    for (opening, mapping, from, takes_retained, gateway) in sources {
        let (name, state, schema) =
            (opening.name.clone(), opening.state.clone(), opening.schema.clone());
        let device = opening.host(shared.clone().unwrap_or(gateway))?;
        let schema =
            Schema::decode(&schema).map_err(|error| Failure::named(Exit::Usage, error.named()))?;
        column_ids::record(&state, &schema)
            .map_err(|error| Failure::from(error).of(format_args!("device {name}")))?;
        opened.push(moteseal_hub::Source { name, mapping, from, takes_retained, device });
    }
    let figures: Vec<_> = opened.iter().map(|source| Arc::clone(&source.device.figures)).collect();
    let health = process_health::open("hub", (&config.health, file), &state, move |health| {
        Figures::write_sums(&figures, health);
    })?;
    let history = history.map(|(history, gateway)| history.open(shared.unwrap_or(gateway)));
    let history = history.transpose()?;
    let publishing = broker
        .as_ref()
        .map(|broker| (broker.options.clone(), format!("{}/commands", broker.client)));
    let settings = Settings {
        sources: opened,
        broker,
        http,
        listen: config.listen,
        rosters: roster_watch.rosters(),
        broadcasts: agents.as_ref().and_then(agents::Running::receives),
        more_metrics: Some(process_health::metrics(&health, "hub")),
    };
    // Each source has a connection to the broker, several files and, with CoAP, a socket to the gateway.
    raise_open_files();
    // Each sync of a journal keeps one thread waiting for the disk. The file system combines syncs that
    // are concurrent. More threads wake more often for nothing.
    runtime_with(THREADS)?.block_on(async move {
        let hub = moteseal_hub::Hub::start(settings).await?;
        let served = process_health::serve(config.health.listen, &health)?;
        for address in [hub.pages(), hub.http()].into_iter().flatten() {
            // A closed stdout does not stop the service.
            let _ = writeln!(std::io::stdout(), "http://{address}");
        }
        if let Some((_, url)) = &served {
            let _ = writeln!(std::io::stdout(), "{url}");
        }
        let reports = health.reports();
        let sealing = history.map(|history| {
            let stream = Arc::clone(history.stream());
            tokio::spawn(async move { stream.follow(reports).await });
            history.spawn()
        });
        if let (Some(agents), Some((options, client))) = (&agents, publishing)
            && let Some(commands) = agents.commands_for_broker()
        {
            if options.version == Version::V3 {
                warn!(
                    "with MQTT 3.1.1, the broker does not know the end of a command; use version 5"
                );
            }
            tokio::spawn(publish(commands, Publisher::new(&options, client)?));
        }
        let stop = async {
            let signal = async { drop(stop_signal().await) };
            // The lines of the agents are recorded before the devices stop.
            match agents {
                Some(agents) => agents.run(signal).await,
                None => signal.await,
            }
        };
        let ended = tokio::select! {
            ended = hub.run(stop) => ended.map_err(Failure::from),
            () = health.run() => Err(Failure::new(Exit::Internal, "health is no longer reported")),
            () = roster_watch.run(|_| Ok(())) => {
                Err(Failure::new(Exit::Internal, "the roster is no longer watched"))
            }
        };
        if let Some(sealing) = sealing {
            sealing.stop().await;
        }
        ended
    })
}
