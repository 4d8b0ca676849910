//! `moteseal device`: runs a device of a group with a budget, and provisions motes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::{Args, Subcommand};
use futures_util::future::join_all;
use moteseal_core::health::{Columns, Health, Policy, SHORTEST_ON_HOSTS};
use moteseal_core::link::LinkKey;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_device::answerer::Answerer;
use moteseal_device::answerers::Answerers;
use moteseal_device::durable::Identity;
use moteseal_device::import::{Clock, display_ms};
use moteseal_device::key_ring::KeyRing;
use moteseal_device::outbox::default_state_path;
use moteseal_device::runner::{self, UrgentReading};
use moteseal_device::sensors::Sensors;
use moteseal_device::{DurableMote, Import, Outbox, Recording, chain_state};
use moteseal_net::health::NodeHealth;
use moteseal_net::link::{State, until_up};
use moteseal_net::{AnyChild, ChildLink as _, LinkError};
use moteseal_seal::wire::MAX_RECORD;
use moteseal_service::{Figures, HostHealth, stop_signal};
use moteseal_verify::Calendar;
use serde_json::json;
use tokio::sync::{mpsc, watch};

use crate::cloud::{Log, log, log_warnings, runtime};
use crate::config::{self, link_group};
use crate::failure::{Exit, Failure};
use crate::files;
use crate::health_stream;
use crate::input_table::{check_state, unit_hint};
use crate::links;
use crate::policy_watch::PolicyWatch;
use crate::progress::{bar, count, thousands};
use crate::replay::{Speed, speed};
use crate::roster_watch::RosterWatch;
use crate::stream_secret::{IN_CONFIGURATION, OwnSecret};
use crate::terminal::{diagnostic, report, report_lines};
use crate::time;

mod coap;
mod event;
mod lines;
mod provision;
mod qr;
mod sums;

use event::{Single, Socket, outcome};
use lines::{LineFormat, lines};
use sums::Sums;

/// The maximum number of urgent readings that wait to be recorded.
const URGENT: usize = 16;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a device: forward readings, live or replayed, to the group's coordinator within the
    /// budget.
    #[command(after_help = "Example, device.toml:\n  \
                            device      = \"dev1\"\n  \
                            key         = \"keys/dev1.key.pem\"\n  \
                            roster      = \"roster.cbor\"\n  \
                            operator    = \"keys/op.pub.pem\"\n  \
                            link_secret = \"keys/dev1.link.key\"\n  \
                            state       = \"dev1\"\n  \
                            [link]\n  \
                            url         = \"mqtts://broker.example:8883\"\n  \
                            [source]\n  \
                            table       = \"data.csv\"\n  \
                            time        = \"ts\"\n  \
                            columns     = [\"temperature:Cel:i16/100\"]\n\n\
                            Without `table`, each line of stdin is sealed when it arrives: its values are separated by commas\n\
                            and in the order of `columns`. The command can be stopped or killed at any moment; run it again to\n\
                            continue with its pending seals. If devices replay a table, set `time = \"recorded\"` in the\n\
                            gateway's configuration.")]
    Run(Run),
    /// Record one urgent reading: sign it separately, send it at once, and wait until the gateway
    /// has stored it.
    #[command(after_help = "Example:\n  \
                            moteseal device event --config device.toml 71.5,0\n\n\
                            The reading is sealed like every other one. If `moteseal device run` runs with this configuration,\n\
                            the command passes the reading to it; otherwise it opens the device's state itself, which needs a\n\
                            source without a table. Lines of stdin of `moteseal device run` are urgent readings if they start\n\
                            with the prefix [source] urgent = \"!\".\n\n\
                            Exit codes: 0 stored by the gateway, 3 refused by the gateway, 6 recorded but not stored yet: the\n\
                            event is in the device's journal and is sent again while the device runs.")]
    Event(event::Event),
    /// Write the configuration and keys of a mote without an operating system, or of many, as blobs
    /// for their flash and as QR codes.
    #[command(after_help = "Example, mote.toml:\n  \
                            device      = \"mote1\"\n  \
                            key         = \"keys/mote1.key.pem\"\n  \
                            roster      = \"roster.cbor\"\n  \
                            operator    = \"keys/op.pub.pem\"\n  \
                            link_secret = \"keys/mote1.link.key\"\n  \
                            scheme      = \"star\"\n  \
                            columns     = [\"humidity:%RH:u16/100\", \"temperature:Cel:i16/100\"]\n  \
                            [recording]\n  \
                            count       = 5000\n  \
                            start       = \"2010-05-09T09:00:00Z\"\n  \
                            every       = \"5s\"\n\n\
                            The tables [sum] and [broadcast] configure whose queries the mote answers and whose broadcasts it\n\
                            accepts; spec/mote.md lists all keys. Keep the blob and its QR code as secret as the keys in it.\n\n\
                            For many motes, write {device} in place of the name:\n  \
                            device      = \"{device}\"\n  \
                            key         = \"keys/{device}.key.pem\"\n  \
                            link_secret = \"links/{device}.link.key\"\n\n\
                            moteseal device provision --config mote.toml --devices-file names.txt --out motes --qr png\n\
                            writes motes/NAME.mote and motes/NAME.png for each device of names.txt.")]
    Provision(provision::Provision),
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The device's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The speed: 1 is as recorded, 1000x is a thousand times as fast, max is as fast as the
    /// gateway accepts
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = factor)]
    speed: Speed,
    /// The address of the gateway or broker, instead of `url` in the table [link]:
    /// coaps://gateway.example, coap://.., mqtts://broker.example or mqtt://..
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// Check the configuration and the files that it names, print what would run, and exit
    #[arg(long)]
    check: bool,
    /// Serve the newest reading, the urgent events and the newest seals to clients of CoAP at this
    /// address; may be repeated. Replaces `listen` in the section [coap]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen_coap: Vec<SocketAddr>,
    /// The same over DTLS, to clients that have the device's link secret. Replaces `listen_dtls` in the
    /// section [coap]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen_coaps: Vec<SocketAddr>,
    /// The format of the log on stderr; RUST_LOG selects the level
    #[arg(long, value_enum, default_value = "text")]
    log: Log,
}

/// Parses a factor, with or without an x after it, or `max`.
fn factor(text: &str) -> Result<Speed, String> {
    // `max` also ends with an x.
    let factor = text
        .strip_suffix('x')
        .filter(|factor| factor.ends_with(|last: char| last.is_ascii_digit()));
    speed(factor.unwrap_or(text))
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Run(arguments) => work(arguments, None),
        Command::Event(arguments) => event::run(arguments, |config, single| {
            let config = config.to_owned();
            let (speed, check, log) = (Speed(None), false, Log::Text);
            let to = single.to.clone();
            let (listen_coap, listen_coaps) = (Vec::new(), Vec::new());
            work(&Run { config, speed, to, listen_coap, listen_coaps, check, log }, Some(single))
        }),
        Command::Provision(arguments) => provision::provision(arguments),
    }
}

/// Runs the device; or only until the gateway has stored one urgent reading.
fn work(arguments: &Run, single: Option<Single>) -> Result<(), Failure> {
    let file = &arguments.config;
    let (config, folder): (config::Device, _) = config::load(file)?;
    let in_key = |key: &'static str| move |failure: Failure| failure.about_key(file, key);
    let roster_path = folder.join(&config.roster);
    let (roster_watch, roster) =
        RosterWatch::open(roster_path.clone(), folder.join(&config.operator))
            .map_err(in_key("roster"))?;
    let device = files::device(&roster, &roster_path, &config.device).map_err(in_key("device"))?;
    let coordinators = roster.coordinators();
    if coordinators.is_empty() {
        return Err(in_key("roster")(Failure::usage(format_args!(
            "{} gives the group no budget, so there is no coordinator to forward to",
            roster_path.display()
        ))));
    }
    let listed = roster
        .device(device)
        .ok_or_else(|| Failure::new(Exit::Internal, "the roster lacks the device"))?;
    let key_path = folder.join(&config.key);
    let mut keys = vec![files::secret_key(&key_path).map_err(in_key("key"))?];
    let public = keys[0].public();
    if let Some(next_key) = &config.next_key {
        keys.push(files::secret_key(&folder.join(next_key)).map_err(in_key("next_key"))?);
    }
    let keys = KeyRing::new(keys, listed).ok_or_else(|| {
        in_key("key")(Failure::usage(format_args!(
            "{} is not the key that {} certifies for {}; use the secret key that belongs to the public key in the roster",
            key_path.display(),
            roster_path.display(),
            config.device
        )))
    })?;
    let salt_path = config
        .salt_key
        .as_ref()
        .map_or_else(|| files::salt_key_path(&key_path), |path| folder.join(path));
    let salt_key = files::salt_key(&salt_path).map_err(in_key("salt_key"))?;
    let secret = files::link_secret(&folder.join(&config.link_secret), &roster, Some(device))
        .map_err(in_key("link_secret"))?;
    let mut config = config;
    if let Some(to) = &arguments.to {
        config.link = links::replaced(&config.link, to);
    }
    let group = link_group(&roster, None);
    let link = links::parent_address(&config.link, ("link", file, &folder), group, &secret)?;
    let source =
        Source::read(&config.source, &folder, roster.calendar()).map_err(in_key("source"))?;
    let schema = Schema::decode(source.schema())
        .map_err(|error| Failure::named(Exit::Usage, error.named()))?;
    let state = folder.join(&config.state);
    let chain_path = match &config.chain {
        Some(chain) => folder.join(chain),
        None => default_state_path(&key_path, device)?,
    };
    check_state(listed, &public, &key_path, &chain_path, "chain").map_err(in_key("chain"))?;
    let stream_secret = config.stream_secret.as_ref();
    let stream_secret =
        stream_secret.map(|path| config::device_path(path, &config.device, &folder));
    let own_secret = OwnSecret { path: stream_secret.as_deref(), named: IN_CONFIGURATION, device };
    own_secret.check(&schema, &chain_path).map_err(in_key("stream_secret"))?;
    let mut sums = match &single {
        None => sums::read_all(&config, file, &folder, &roster, device)?,
        // A process that records one reading answers no queries.
        Some(_) => Vec::new(),
    };
    let policy = config.health.policy(file)?;
    let parent_keys =
        [("listen", config.health.listen.is_some()), ("nodes", config.health.nodes.is_some())];
    let what = "this key is for a gateway; a device serves its health at the addresses of the section [coap]";
    config.health.refuse(file, &parent_keys, what)?;
    let place = health_stream::Place {
        config: &config.health,
        file,
        folder: &folder,
        state: &state,
        roster: &roster,
        roster_path: &roster_path,
        rosters: roster_watch.rosters(),
        others: &[&config.device],
        scheme: config.scheme.into(),
        waiting_seals: config.waiting_seals,
    };
    let history = place.check("device", Columns::Own, None)?;
    if history.is_some() && matches!(source, Source::Recording(_)) {
        let what = "the source is a table, whose times determine the epochs, and reports of health have the \
                    times of the clock; seal them with a device whose source is stdin";
        return Err(Failure::usage(what).about_key(file, "health.device"));
    }
    if arguments.check {
        sums::check_policies(&sums, file)?;
        let mut lines = vec![
            format!(
                "device {} of group {}, {}",
                config.device,
                roster.group_name(),
                config.link.url
            ),
            match &source {
                Source::Recording(recording) => {
                    format!("replays {}", count(recording.len() as u64, "reading"))
                }
                Source::Lines { .. } => "seals lines from stdin".to_owned(),
            },
            format!("link secret {}", secret.parent().unwrap_or("of an unknown gateway")),
        ];
        let sources = roster.devices().len();
        for Sums { membership, .. } in &sums {
            let (position, name) = (membership.position, membership.querier_name);
            let of = if name.is_default() { String::new() } else { format!(" of {name}") };
            lines.push(format!("source {position} of {sources} of private sums{of}"));
        }
        lines.extend(
            history.iter().map(|history| format!("health is sealed by {}", history.name())),
        );
        return report_lines(lines, || {
            json!({
                "device": config.device,
                "group": roster.group_name(),
                "link": config.link.url,
                "secret": secret.parent(),
                "health": history.as_ref().map(health_stream::Checked::name),
                "readings": match &source {
                    Source::Recording(recording) => Some(recording.len()),
                    Source::Lines { .. } => None,
                },
                "sums": sums.iter().map(|Sums { membership, .. }| json!({
                    "querier": membership.querier_name.as_str(),
                    "position": membership.position,
                    "sources": sources,
                })).collect::<Vec<_>>(),
            })
        });
    }
    if single.is_some() {
        log_warnings();
    } else {
        log(arguments.log);
    }
    let format = Arc::new(LineFormat::new(&source, &config.source));
    let single = single.map(|single| source.single(single, &format)).transpose()?;
    let challenge = getrandom::u64().map_err(|error| {
        Failure::new(Exit::Internal, format_args!("cannot get random bytes: {error}"))
    })?;
    chain_state::begin_first((&key_path, &public), &chain_path, listed)?;
    // The low half of the challenge is as random as the high half, which the session uses.
    #[allow(clippy::cast_possible_truncation)]
    let opened = Outbox::open_forwarding(&state, &chain_path, &roster, device, challenge as u32)?;
    let named = (&*config.device, config.scheme.into());
    let profile =
        own_secret.profile(&opened.0, &roster, named, &schema).map_err(in_key("stream_secret"))?;
    let link_key = LinkKey::new(&secret);
    let (health, health_link) =
        own_health(&config.device, policy, single.is_none().then_some(&*state))?;
    let (served, publisher) = coap::Served::new(
        [&arguments.listen_coap, &arguments.listen_coaps],
        config.coap.as_ref(),
        || (Sensors::new(&profile, keys.clone()), LinkKey::dtls_psk(&secret)),
        (roster_watch.rosters(), &health),
    )
    .unzip();
    // A process that records one reading is no running device.
    let history = history.filter(|_| single.is_none()).map(|history| {
        let gateway = links::parent_address(
            &config.link,
            ("link", file, &folder),
            link_group(&roster, None),
            history.secret(),
        )?;
        history.open(gateway)
    });
    let history = history.transpose()?;
    let keeps_ended = served.is_some();
    let identity =
        Identity { profile, keys, salt_key, link: link_key, challenge, coordinators, keeps_ended };
    let mut mote =
        DurableMote::open(identity, opened, &state.join("journal"), config.waiting_seals)?;
    mote.leave_outdated(&roster)?;
    if mote.mote().waiting() > 0 {
        diagnostic(format_args!(
            "{}: {} from an earlier session",
            config.device,
            count(mote.mote().waiting() as u64, "seal")
        ));
    }
    let rosters = Some(roster_watch.rosters());
    let watches: Vec<_> = sums.iter_mut().map(|sums| sums.policy.take()).collect();
    watches.iter().flatten().try_for_each(PolicyWatch::record)?;
    let policies = watches.iter().map(|watch| watch.as_ref().map(PolicyWatch::payloads)).collect();
    let (urgent, urgent_readings) = mpsc::channel(URGENT);
    let settings = runner::Settings {
        rosters,
        policies,
        urgent: Some(urgent_readings),
        publisher,
        // A process that records one reading is no running device.
        health: single.is_none().then_some(health_link),
        ..runner::Settings::new(roster.calendar().clone())
    };
    let socket = if single.is_none() { Socket::listen(&state) } else { None };
    let wait = single.as_ref().map(|(_, wait)| *wait);
    let progress = bar(source.len(), "forwarding");
    let broken = Arc::new(OnceLock::new());
    let (ran, stored) = runtime()?.block_on(async {
        let mut link = link.open(device.0)?;
        let sum_links = sums.iter().map(|sums| sums.link.open(device.0));
        let mut sum_links = sum_links.collect::<Result<Vec<_>, _>>()?;
        let names = sums.iter().map(|sums| sums.membership.querier_name);
        let states = names.zip(sum_links.iter().map(AnyChild::state)).collect();
        let answerer = |Sums { membership, .. }| {
            Answerer::new(membership, source.schema().to_vec(), Box::new(runner::system_clock))
        };
        let mut answerers = Answerers::new(sums.into_iter().map(answerer).collect());
        let refused = refusal(link.state());
        let mut stored = None;
        let (keep, idle) = mpsc::channel(1);
        let single = single.map(|(record, wait)| {
            let (reports, answers) = mpsc::channel(8);
            let reading = UrgentReading { record, reports: Some(reports) };
            // The channel is empty.
            let _ = urgent.try_send(reading);
            (answers, wait)
        });
        let is_single = single.is_some();
        let stop = async {
            let single = async {
                match single {
                    Some((answers, wait)) => stored = Some(outcome(answers, wait).await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = stop_signal() => {}
                () = single => {}
            }
        };
        let mut taken = |count| progress.set_position(count);
        let readings = match source {
            Source::Recording(ref recording) => runner::Source::Recording { recording, speed: arguments.speed.0 },
            // The source of a process that records one reading never has another reading, and
            // never ends.
            Source::Lines { .. } if is_single => {
                runner::Source::Live { records: idle, clock: &runner::system_clock }
            }
            Source::Lines { .. } => {
                let urgent = config.source.urgent.clone().map(|prefix| (prefix, urgent.clone()));
                let records = lines(Arc::clone(&format), urgent, broken.clone());
                runner::Source::Live { records, clock: &runner::system_clock }
            }
        };
        let commands = async {
            match socket {
                Some(socket) => socket.serve(move |line: &str| format.record(line), urgent).await,
                None => std::future::pending().await,
            }
        };
        let reports = health.reports();
        let sealing = history.map(|history| {
            let stream = Arc::clone(history.stream());
            (history.spawn(), async move { stream.follow(reports).await })
        });
        let (sealing, follow) = sealing.unzip();
        let follow = async {
            match follow {
                Some(follow) => follow.await,
                None => std::future::pending().await,
            }
        };
        let ran = tokio::select! {
            ran = runner::run_answering(&mut mote, &mut link, readings, settings, (&mut answerers, &mut sum_links), &mut taken, stop) => {
                ran.map_err(Failure::from)
            }
            error = refused => Err(error.into()),
            () = health.run() => Err(Failure::new(Exit::Internal, "health is no longer reported")),
            () = follow => Err(Failure::new(Exit::Internal, "health is no longer sealed")),
            served = coap::Served::serve(served) => served.and(Err(Failure::new(Exit::Internal, "readings are no longer served"))),
            () = sums::log_links(states) => Err(Failure::new(Exit::Internal, "the links are no longer watched")),
            () = commands => Err(Failure::new(Exit::Internal, "commands are no longer served")),
            () = watched(watches) => Err(Failure::new(Exit::Internal, "the policy is no longer watched")),
            () = roster_watch.run(|_| Ok(())) => Err(Failure::new(Exit::Internal, "the roster is no longer watched")),
        };
        drop(keep);
        if let Some(sealing) = sealing {
            match &ran {
                Ok(ran) if ran.is_done => sealing.end().await,
                _ => sealing.stop().await,
            }
        }
        Ok::<_, Failure>((ran?, stored))
    })?;
    progress.finish_and_clear();
    if let Some(wait) = wait {
        return stored.unwrap_or_default().report(&config.device, wait);
    }
    let (readings, left_out) = (count(ran.readings, "reading"), thousands(ran.left_out));
    let rest = mote.mote().waiting() + usize::from(mote.mote().opened().is_some());
    // After a rollback, the state may be a copy of one that sent the same readings before.
    let known = if mote.rollbacks() > 0 {
        " (the gateway may have some of them from before the state was lost)"
    } else {
        ""
    };
    let given_up = format!("{} were given up{known}", count(ran.given_up, "reading"));
    let end = match (ran.is_done, ran.given_up) {
        (true, 0) => "the gateway has everything".to_owned(),
        (true, _) => format!("{given_up}; the gateway has the others"),
        (false, 0) => format!("{} wait in the journal", count(rest as u64, "seal")),
        (false, _) => format!("{given_up}; {} wait in the journal", count(rest as u64, "seal")),
    };
    let text =
        format!("{}: {readings} taken, {left_out} already taken before; {end}", config.device);
    report(text, || {
        json!({
            "device": config.device,
            "readings": ran.readings,
            "left_out": ran.left_out,
            "given_up": ran.given_up,
            "waiting_seals": rest,
        })
    })?;
    match broken.get() {
        Some(error) => {
            Err(Failure::new(Exit::Internal, format_args!("cannot read stdin: {error}")))
        }
        None => Ok(()),
    }
}

/// Returns the health of this device, and what sends it to the gateway. A process that records one reading
/// has no `state`: it is no start of the device.
fn own_health(
    name: &str,
    policy: Policy,
    state: Option<&Path>,
) -> Result<(Arc<NodeHealth>, runner::HealthLink), Failure> {
    let open =
        |state| HostHealth::open(state).map_err(|error| Failure::file("write", state, &error));
    let host = state.map(open).transpose()?;
    let figures = Arc::new(Figures::default());
    let own = Arc::clone(&figures);
    let source = move || {
        let mut health = host.as_ref().map_or(Health::new(0, 0), HostHealth::sample);
        own.write(&mut health);
        health
    };
    let health = NodeHealth::new(name, (policy, SHORTEST_ON_HOSTS), source);
    let reports = health.reports();
    Ok((health, runner::HealthLink { figures, reports }))
}

/// Watches the files of the policies. Does not return.
async fn watched(policies: Vec<Option<PolicyWatch>>) {
    join_all(policies.into_iter().flatten().map(PolicyWatch::run)).await;
    std::future::pending::<()>().await;
}

/// Waits until the broker refuses the login of the main link, which ends the device.
async fn refusal(main: watch::Receiver<State>) -> LinkError {
    match until_up(main).await {
        Err(error) if error.is_refusal() => error,
        _ => std::future::pending().await,
    }
}

/// The source of the readings and their format.
enum Source {
    Recording(Recording),
    Lines { schema: Vec<u8> },
}

impl Source {
    fn read(config: &config::Source, folder: &Path, calendar: &Calendar) -> Result<Self, Failure> {
        config.columns.iter().filter_map(|spec| unit_hint(spec)).for_each(diagnostic);
        let Some(table) = &config.table else {
            let fields: Result<Vec<_>, _> =
                config.columns.iter().map(|spec| Field::parse(spec)).collect();
            let fields =
                fields.map_err(|error| Failure::named(Exit::Usage, error.named()).of("columns"))?;
            if fields.is_empty() == config.opaque.is_none() || config.keep_time {
                return Err(Failure::usage(
                    "describe the lines: columns = [\"NAME:UNIT:TYPE\"], or opaque = \"line\", and leave keep_time out",
                ));
            }
            let mut buffer = vec![0; MAX_SCHEMA];
            let schema = Schema::encode(&fields, &mut buffer)
                .map_err(|error| Failure::named(Exit::Usage, error.named()).of("columns"))?;
            if config.urgent.as_ref().is_some_and(String::is_empty) {
                return Err(Failure::usage(
                    "urgent: an empty prefix makes every line urgent; use a prefix such as \"!\"",
                ));
            }
            return Ok(Self::Lines { schema: schema.as_bytes().to_vec() });
        };
        if config.urgent.is_some() {
            return Err(Failure::usage("urgent: only lines of stdin can be urgent; leave it out"));
        }
        let clock = match (&config.time, config.every, &config.start) {
            (Some(column), None, None) => Clock::Column(column.clone()),
            (None, Some(every), Some(start)) => Clock::Every {
                start_ms: time::instant(start)
                    .map_err(|error| Failure::usage(format_args!("start: {error}")))?,
                every_ms: u64::try_from(every.as_millis()).unwrap_or(u64::MAX),
            },
            _ => {
                return Err(Failure::usage(
                    "give the times: time = \"COLUMN\", or start = \"TIME\" and every = \"DURATION\"",
                ));
            }
        };
        let import = Import {
            columns: config.columns.clone(),
            opaque: config.opaque.clone(),
            clock,
            keep_time: config.keep_time.then(|| calendar.clone()),
            delimiter: None,
            skip_incomplete: config.skip_incomplete,
            sort: config.sort,
            latest_ms: None,
        };
        let recording = import.file(&folder.join(table)).map_err(Failure::usage)?;
        if let Some((unix_ms, record)) =
            recording.iter().find(|(_, record)| record.len() > MAX_RECORD)
        {
            return Err(Failure::usage(format_args!(
                "{}: the reading of {} has {} bytes; in a group with a budget a reading has at most {}. Leave it out, or seal the table \
                 without a budget",
                table.display(),
                display_ms(unix_ms),
                thousands(record.len() as u64),
                thousands(MAX_RECORD as u64)
            )));
        }
        Ok(Self::Recording(recording))
    }

    /// Returns the record of a single urgent reading, and how long to wait for the gateway.
    fn single(&self, single: Single, format: &LineFormat) -> Result<(Vec<u8>, Duration), Failure> {
        if matches!(self, Self::Recording(_)) {
            return Err(Failure::usage(
                "the source of the device is a table, whose times determine the epochs; start \
                 `moteseal device run`, to which this command then passes the reading",
            ));
        }
        let record = format.record(&single.values);
        Ok((record.map_err(|why| Failure::usage(why).with_name("BadReading"))?, single.wait))
    }

    fn schema(&self) -> &[u8] {
        match self {
            Self::Recording(recording) => &recording.schema,
            Self::Lines { schema } => schema,
        }
    }

    fn len(&self) -> u64 {
        match self {
            Self::Recording(recording) => recording.len() as u64,
            Self::Lines { .. } => 0,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{factor, speed};

    #[test]
    fn reads_a_speed_with_or_without_an_x_at_its_end() {
        for (text, same) in [("1000x", "1000"), ("0.5x", "0.5"), ("60", "60"), ("max", "max")] {
            assert_eq!(factor(text).unwrap().0, speed(same).unwrap().0, "{text}");
        }
        for wrong in ["", "x", "maxx", "-1x", "0x", "fast"] {
            assert!(factor(wrong).is_err(), "{wrong}");
        }
    }
}
