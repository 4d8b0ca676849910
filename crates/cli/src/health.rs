//! `moteseal health`: shows the health of nodes.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use moteseal_api::NamedError as _;
use moteseal_client::health::{Alert, Rule, Table, Update, Watch};
use moteseal_client::reading::{Credentials, GetError};
use moteseal_core::link::LinkKey;
use moteseal_net::dtls::Psk;
use moteseal_net::health::Webhook;
use serde_json::json;
use tokio::sync::mpsc;

use crate::cloud::runtime;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::terminal::{Stdout, diagnostic, is_json};

/// The shortest time between two drawings of the table.
const DRAW: Duration = Duration::from_millis(50);
/// How often the table is drawn and the rules are checked if nothing happens.
const TICK: Duration = Duration::from_secs(1);
/// The number of updates that wait.
const UPDATES: usize = 256;
/// The number of alerts below the table.
const ALERTS: usize = 8;
/// How long to wait before an alert that was not sent is sent again.
const POST_AGAIN: Duration = Duration::from_secs(2);

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Watch the health of a group's nodes live, through their gateway, or of single nodes.
    #[command(after_help = "Examples:\n  \
                  moteseal health watch coap://gateway.example\n  \
                  moteseal health watch coap://gateway.example --once --json\n  \
                  moteseal health watch coap://gateway.example --alert 'link.bad_crc/s > 1' --alert 'battery < 20'\n  \
                  moteseal health watch coap://sensor.example/h\n\n\
                  A gateway's address shows all nodes of its group; nodes that never reported are named too. Health\n\
                  is not signed: it is as trustworthy as the gateway and the connection to it.\n\n\
                  Exit codes: 0 done, 5 with --once: a rule matches, 6 a server does not respond.")]
    Watch(Arguments),
}

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The address of a gateway or a node; may be repeated
    #[arg(value_name = "URL", required = true)]
    urls: Vec<String>,
    /// Print the table once and exit
    #[arg(long)]
    once: bool,
    /// Show all nodes, also if they do not fit the terminal
    #[arg(long)]
    all: bool,
    /// Report nodes for which this is true: ITEM/s > NUMBER for a count, ITEM < NUMBER for a value,
    /// `restarts > NUMBER`, `age > SECONDS`; may be repeated
    #[arg(long, value_name = "RULE")]
    alert: Vec<Rule>,
    /// Also send each alert to this address, as JSON by HTTP POST
    #[arg(long, value_name = "URL", requires = "alert")]
    webhook: Option<String>,
    /// For coaps: the name of the device as which to connect
    #[arg(long, value_name = "NAME", requires_all = ["link_secret", "roster", "operator"])]
    device: Option<String>,
    /// For coaps: the device's link secret
    #[arg(long, value_name = "FILE", requires = "device")]
    link_secret: Option<PathBuf>,
    /// For coaps: the group's roster
    #[arg(long, requires = "device")]
    roster: Option<PathBuf>,
    /// For coaps: the operator's public key
    #[arg(long, value_name = "PUBLIC_KEY", requires = "device")]
    operator: Option<PathBuf>,
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    let Command::Watch(arguments) = command;
    let psk = arguments.psk()?;
    let watches = arguments.urls.iter().map(|url| {
        let psk = psk.clone();
        let credentials = move || psk.clone().map_or(Credentials::None, Credentials::Psk);
        let watch = Watch::new(url, credentials).map_err(|error| failed(&error))?;
        Ok(if arguments.urls.len() > 1 { watch.with_gateway() } else { watch })
    });
    let watches = watches.collect::<Result<Vec<_>, Failure>>()?;
    let webhook = arguments.webhook.as_deref().map(Webhook::new).transpose();
    let webhook = webhook.map_err(|error| Failure::usage(error.to_string()))?;
    runtime()?.block_on(async {
        match arguments.once {
            true => once(&watches, arguments, webhook).await,
            false => watch(watches, arguments, webhook).await,
        }
    })
}

impl Arguments {
    /// Returns the key for DTLS, if it is given.
    fn psk(&self) -> Result<Option<Psk>, Failure> {
        let (Some(name), Some(secret), Some(path), Some(operator)) =
            (&self.device, &self.link_secret, &self.roster, &self.operator)
        else {
            return Ok(None);
        };
        let roster = files::roster(path, operator)?;
        let device = files::device(&roster, path, name)?;
        let secret = files::link_secret(secret, &roster, Some(device))?;
        Ok(Some(Psk::new(device.0, LinkKey::dtls_psk(&secret))))
    }
}

fn failed(error: &GetError) -> Failure {
    Failure::named(error.kind().into(), error.named())
}

/// Applies an update. Returns the name of the node whose report was taken.
fn apply(table: &mut Table, update: Update) -> Option<String> {
    match update {
        Update::Listed(node) => table.list(&node),
        Update::Heard { node, at, interval, health } => {
            return table.take(at, &node, (&health, interval)).then_some(node);
        }
        Update::Failed(error) => diagnostic(error.named()),
        Update::Complete => {}
    }
    None
}

async fn once(
    watches: &[Watch],
    arguments: &Arguments,
    webhook: Option<Webhook>,
) -> Result<(), Failure> {
    let mut table = Table::new(arguments.alert.clone());
    for watch in watches {
        let (send, mut updates) = mpsc::channel(UPDATES);
        let taken = async {
            while let Some(update) = updates.recv().await {
                if matches!(update, Update::Complete) {
                    break;
                }
                apply(&mut table, update);
            }
        };
        let (done, ()) = tokio::join!(
            async {
                let send = send;
                watch.once(&send).await
            },
            taken
        );
        done.map_err(|error| failed(&error))?;
    }
    let now = Instant::now();
    let mut out = Stdout::lock();
    if is_json() {
        let nodes: Vec<String> = table.rows().map(|(node, _)| node.to_owned()).collect();
        for node in nodes {
            out.line(table.json(now, &node))?;
        }
    } else {
        for line in table.lines(now) {
            out.line(line)?;
        }
    }
    let alerts = table.alerts(now);
    for alert in &alerts {
        print(&mut out, alert)?;
    }
    drop(out);
    if let Some(webhook) = &webhook {
        for alert in &alerts {
            post(webhook, alert).await;
        }
    }
    match alerts.len() {
        0 => Ok(()),
        count => {
            Err(Failure::new(Exit::Finding, format_args!("{count} rules match")).with_name("Alert"))
        }
    }
}

/// Sends an alert, with a second attempt after a while. Reports a failure.
async fn post(webhook: &Webhook, alert: &Alert) {
    let value = json!(alert.json());
    if webhook.send(&value).await.is_err() {
        tokio::time::sleep(POST_AGAIN).await;
        if let Err(error) = webhook.send(&value).await {
            diagnostic(format_args!("an alert was not sent: {error}"));
        }
    }
}

/// Sends the alerts that arrive, one after another.
async fn post_all(webhook: Webhook, mut alerts: mpsc::Receiver<Alert>) {
    while let Some(alert) = alerts.recv().await {
        post(&webhook, &alert).await;
    }
}

fn print(out: &mut Stdout, alert: &Alert) -> Result<(), Failure> {
    if is_json() { out.line(alert.json()) } else { out.line(alert) }
}

async fn watch(
    watches: Vec<Watch>,
    arguments: &Arguments,
    webhook: Option<Webhook>,
) -> Result<(), Failure> {
    let (send, mut updates) = mpsc::channel(UPDATES);
    let mut tasks = tokio::task::JoinSet::new();
    for watch in watches {
        let send = send.clone();
        tasks.spawn(async move { watch.run(&send).await });
    }
    drop(send);
    // A slow webhook does not hold the table back.
    let hook = webhook.map(|webhook| {
        let (hook, alerts) = mpsc::channel(UPDATES);
        tasks.spawn(post_all(webhook, alerts));
        hook
    });
    let mut view = View {
        table: Table::new(arguments.alert.clone()),
        shows_all: arguments.all,
        is_live: !is_json() && std::io::stdout().is_terminal(),
        recent: Vec::new(),
        hook,
    };
    let mut tick = tokio::time::interval(TICK);
    loop {
        let mut is_new = false;
        tokio::select! {
            update = updates.recv() => {
                let mut next = update;
                while let Some(update) = next {
                    is_new = true;
                    view.take(update)?;
                    next = updates.try_recv().ok();
                }
            }
            _ = tick.tick() => {}
        }
        view.show()?;
        if is_new && view.is_live {
            tokio::time::sleep(DRAW).await;
        }
        if !Stdout::lock().is_open() {
            return Ok(());
        }
    }
}

/// What is shown.
struct View {
    table: Table,
    /// Whether stdout is a terminal on which the table is drawn again and again.
    is_live: bool,
    /// Whether nodes that do not fit the terminal are shown too.
    shows_all: bool,
    recent: Vec<Alert>,
    /// Where alerts are sent.
    hook: Option<mpsc::Sender<Alert>>,
}

impl View {
    /// Takes an update. If there is no table to draw, prints the node.
    fn take(&mut self, update: Update) -> Result<(), Failure> {
        let Some(node) = apply(&mut self.table, update) else { return Ok(()) };
        let now = Instant::now();
        if is_json() {
            return Stdout::lock().line(self.table.json(now, &node));
        }
        if !self.is_live {
            let lines = self.table.lines(now);
            let place = self.table.rows().position(|(name, _)| name == node);
            if let Some(line) = place.and_then(|place| lines.get(place + 1)) {
                return Stdout::lock().line(line);
            }
        }
        Ok(())
    }

    /// Checks the rules, and draws the table if stdout is a terminal.
    fn show(&mut self) -> Result<(), Failure> {
        let alerts = self.table.alerts(Instant::now());
        if let Some(hook) = &self.hook {
            for alert in &alerts {
                if hook.try_send(alert.clone()).is_err() {
                    diagnostic(format_args!(
                        "an alert was not sent, because too many wait: {alert}"
                    ));
                }
            }
        }
        let mut out = Stdout::lock();
        if !self.is_live {
            return alerts.iter().try_for_each(|alert| print(&mut out, alert));
        }
        self.recent.extend(alerts);
        let old = self.recent.len().saturating_sub(ALERTS);
        self.recent.drain(..old);
        // Move to the upper left corner, and clear what follows.
        let mut screen = "\x1b[H\x1b[J".to_owned();
        let alerts = self.recent.iter().map(ToString::to_string);
        let now = Instant::now();
        // Below the last line, the cursor needs one too.
        let lines = match out.rows().filter(|_| !self.shows_all) {
            Some(rows) => self.table.lines_within(now, rows.saturating_sub(alerts.len() + 1)),
            None => self.table.lines(now),
        };
        for line in lines.into_iter().chain(alerts) {
            screen.extend(line.chars().filter(|char| !char.is_control()));
            screen.push_str("\r\n");
        }
        out.copy(screen.as_bytes())
    }
}
