//! `moteseal broadcast watch`: receives authenticated broadcasts, prints or saves them once they
//! are verified, and sends other receivers what they lost.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use moteseal_broadcast::address::AddressError;
use moteseal_broadcast::receipt::ReceiverKey;
use moteseal_broadcast::recovery::RefusedBroadcast;
use moteseal_broadcast::{CLOCK_OFFSET_SECONDS, KeyId, Kind, Outline, Revocation, Window};
use moteseal_core::record::NetworkId;
use moteseal_core::signature::PublicKey;
use moteseal_device::broadcast::{Options, WatchError, WatchEvent, Watcher, Withheld, now};
use moteseal_net::Broadcast;
use moteseal_service::LogLimit;
use moteseal_store::Archive;
use moteseal_store::archive::QUOTA;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::certificates::describe;
use super::link::{Access, until_up};
use super::receivers;
use super::send::seconds;
use crate::cloud::runtime;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::key::sender::{display_seconds, network};
use crate::progress::{bytes, count};
use crate::terminal::{Plain, Stdout, diagnostic, is_json};

/// How long refusals with the same name are counted before they are reported again.
const REFUSALS: Duration = Duration::from_secs(10);
/// The maximum number of links.
const MAX_LINKS: usize = 8;
/// The maximum number of base stations.
const MAX_BASES: usize = u8::MAX as usize;

/// Receive authenticated broadcasts: print messages and save files once they are verified, and send
/// other receivers what they lost.
///
/// With several --on, everything received on one link is relayed to the others. With --relay, it is
/// also repeated on the same link. If the command is killed, run it again: it continues where it stopped. It never accepts a chain twice.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
                        moteseal broadcast watch --ca base.pub.pem --on udp://239.1.2.3:5000 --state broadcast.state \\\n      \
                        --save images\n  \
                        moteseal broadcast watch --ca base.pub.pem --on udp://239.1.2.3:5000 --on mqtts://broker/field \\\n      \
                        --state broadcast.state\n\n\
                        Messages are printed on stdout, one per line, in order. For a complete file its path is printed.\n\
                        --json prints more. After a kill a message may be printed again: sender, chain and number identify\n\
                        it.\n\
                        Commands are printed only within the time that their sender states, and never after a later\n\
                        command of the same topic. Others are reported on stderr, or as events by --json.\n\
                        Exit codes: 0 --chains chains were complete, or stopped without --chains. 3 stopped before any\n\
                        chain was complete, and frames were refused. With --chains: 4 stopped with fewer complete chains.")]
pub(crate) struct Arguments {
    /// The public key of a base station; may be repeated
    #[arg(long, value_name = "PUBLIC_KEY", required = true)]
    ca: Vec<PathBuf>,
    /// The address of a link, for example udp://239.1.2.3:5000; repeat the option to relay between
    /// several links
    #[arg(long, value_name = "ADDRESS", required = true)]
    on: Vec<String>,
    /// Also repeat what is received on the link on which it was received, for receivers that are out
    /// of the sender's range
    #[arg(long)]
    relay: bool,
    /// The folder for the received chains and for the numbers of the newest chains
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// The folder for received files, which are never replaced
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// The folder for received packages of agents, whose names end with .agent: the inbox of a hub,
    /// which installs them
    #[arg(long, value_name = "DIR")]
    save_agents: Option<PathBuf>,
    /// The folder for evidence of each complete chain, for `moteseal broadcast verify`
    #[arg(long, value_name = "DIR")]
    evidence: Option<PathBuf>,
    /// The network, as 16 hexadecimal digits; default: the network that the first base station's
    /// key determines
    #[arg(long, value_name = "HEX", value_parser = network)]
    network: Option<NetworkId>,
    /// A revocation of one of the base stations; may be repeated
    #[arg(long, value_name = "FILE")]
    revocations: Vec<PathBuf>,
    /// The key that this receiver shares with a sender, made by `moteseal broadcast receivers`: the
    /// watcher acknowledges the sender's chains; may be repeated for other senders
    #[arg(long, value_name = "FILE")]
    receiver_key: Vec<PathBuf>,
    /// The maximum size of all stored chains, in MiB; the oldest complete chains are deleted first
    #[arg(long, value_name = "MIB", default_value_t = QUOTA >> 20, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    quota: u64,
    /// The allowed offset between the clocks of this machine and of the senders, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = CLOCK_OFFSET_SECONDS, value_parser = clap::value_parser!(u64).range(..=3600))]
    clock_offset: u64,
    /// Continue with the clock of this machine although an earlier run has used a later time; use
    /// this only if that time was wrong
    #[arg(long)]
    accept_earlier_time: bool,
    /// Stop after this many complete chains
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    chains: Option<u64>,
    /// Stop after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    wait: Option<f64>,
    #[command(flatten)]
    access: Access,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bases =
        arguments.ca.iter().map(|path| files::public_key(path)).collect::<Result<Vec<_>, _>>()?;
    let own = bases
        .first()
        .map(NetworkId::of)
        .ok_or_else(|| Failure::usage("give the public key of a base station with --ca"))?;
    let network = arguments.network.unwrap_or(own);
    if bases.len() > MAX_BASES {
        return Err(Failure::usage(format_args!("--ca may be given at most {MAX_BASES} times")));
    }
    if arguments.on.len() > MAX_LINKS {
        return Err(Failure::usage(format_args!("--on may be given at most {MAX_LINKS} times")));
    }
    let revocations = arguments
        .revocations
        .iter()
        .map(|path| revocation(path, network, &bases))
        .collect::<Result<Vec<_>, _>>()?;
    let keys = receiver_keys(&arguments.receiver_key, network)?;
    let ids: Vec<KeyId> = bases.iter().map(KeyId::of).collect();
    let archive = Archive::open(&arguments.state, network, &ids, arguments.quota << 20);
    let archive = archive.map_err(WatchError::from)?;
    runtime()?.block_on(watch(arguments, network, &bases, &revocations, &keys, archive))
}

/// Reads the keys that this receiver shares with senders.
pub(crate) fn receiver_keys(
    paths: &[PathBuf],
    network: NetworkId,
) -> Result<Vec<ReceiverKey>, Failure> {
    let mut keys: Vec<ReceiverKey> = Vec::new();
    for path in paths {
        let key = receivers::key(path)?;
        if key.network() != network {
            let message = "WrongNetwork: the key belongs to another network";
            return Err(Failure::usage(message).about(path));
        }
        if keys.iter().any(|other| other.sender() == key.sender()) {
            let message = "another --receiver-key is for the same sender; use one of them";
            return Err(Failure::usage(message).about(path));
        }
        keys.push(key);
    }
    Ok(keys)
}

/// Reads a revocation. Rejects it unless one of the base stations signed it.
pub(crate) fn revocation(
    path: &Path,
    network: NetworkId,
    bases: &[PublicKey],
) -> Result<Vec<u8>, Failure> {
    let bytes = files::read(path)?.to_vec();
    Revocation::open(&bytes, network, bases)
        .map_err(|error| Failure::named(Exit::Refused, error.named()).about(path))?;
    Ok(bytes)
}

async fn watch(
    arguments: &Arguments,
    network: NetworkId,
    bases: &[PublicKey],
    revocations: &[Vec<u8>],
    keys: &[ReceiverKey],
    archive: Archive,
) -> Result<(), Failure> {
    let links: Vec<Broadcast> =
        arguments.on.iter().map(|url| arguments.access.open(url)).collect::<Result<_, _>>()?;
    for (link, url) in links.iter().zip(&arguments.on) {
        until_up(link, url).await?;
    }
    let (start, enough) = (Instant::now(), Notify::new());
    let mut reporter = Reporter {
        arguments,
        out: Stdout::lock(),
        complete: 0,
        messages: 0,
        refused: BTreeSet::new(),
        refusals: LogLimit::new(1, REFUSALS),
        not_read: LogLimit::new(1, REFUSALS),
        enough: &enough,
    };
    let options = Options {
        repeats: arguments.relay,
        links: u8::try_from(links.len()).unwrap_or(u8::MAX),
        save: arguments.save.clone(),
        save_agents: arguments.save_agents.clone(),
        evidence: arguments.evidence.clone(),
        revocations,
        receiver_keys: keys,
        clock_offset: arguments.clock_offset,
        accepts_earlier_time: arguments.accept_earlier_time,
        ..Options::new(network, bases)
    };
    let seed = getrandom::u64().map_err(|error| {
        Failure::new(Exit::Internal, format_args!("cannot get random bytes: {error}"))
    })?;
    let mut report = |news: WatchEvent<'_>| reporter.report(news);
    let opened = Watcher::open(options, archive, seed, now(start), &mut report);
    let mut watcher = opened?;
    report(WatchEvent::Listening).map_err(WatchError::Output)?;
    let limit = async {
        match arguments.wait {
            Some(seconds) => tokio::time::sleep(Duration::from_secs_f64(seconds)).await,
            None => std::future::pending().await,
        }
    };
    let stop = async {
        tokio::select! {
            _ = moteseal_service::stop_signal() => {}
            () = enough.notified() => {}
            () = limit => {}
        }
    };
    let ended =
        moteseal_device::broadcast::run(&mut watcher, &links, start, &mut report, stop).await;
    ended?;
    let lost: u64 = links.iter().map(moteseal_net::BroadcastLink::dropped).sum();
    if lost > 0 {
        diagnostic(format_args!(
            "{} arrived faster than they could be processed, and were requested again",
            count(lost, "frame")
        ));
    }
    reporter.verdict()
}

/// Prints the events of a watch.
struct Reporter<'a> {
    arguments: &'a Arguments,
    out: Stdout,
    complete: u64,
    /// The number of messages that were printed.
    messages: u64,
    /// The names of all refusals.
    refused: BTreeSet<&'static str>,
    /// The reports of refusals, by name.
    refusals: LogLimit<&'static str>,
    /// The reports of chains for other receivers, by reason.
    not_read: LogLimit<&'static str>,
    enough: &'a Notify,
}

impl Reporter<'_> {
    fn report(&mut self, news: WatchEvent<'_>) -> io::Result<()> {
        match news {
            WatchEvent::Listening => self.event(json!({ "event": "listening" }), "listening"),
            WatchEvent::Certified(sender) => {
                let shown = format!("sender {sender} is certified");
                self.event(json!({ "event": "certified", "sender": sender.to_string() }), &shown)
            }
            WatchEvent::Begun { outline, label } => {
                let shown = format!(
                    "{} begins: {}",
                    named(outline, label),
                    count(u64::from(outline.messages), "message")
                );
                self.event(of_chain("begun", outline, label), &shown)
            }
            WatchEvent::Resumed { outline, label, verified } => {
                let mut event = of_chain("resumed", outline, label);
                event["verified_blocks"] = json!(verified);
                event["blocks"] = json!(outline.blocks());
                let shown = format!(
                    "{} continues: {verified} of {}",
                    named(outline, label),
                    count(outline.blocks().into(), "block")
                );
                self.event(event, &shown)
            }
            WatchEvent::Progress { outline, verified } => {
                let event = json!({
                    "event": "progress",
                    "sender": outline.id.sender.to_string(),
                    "chain": outline.id.number.0,
                    "verified_blocks": verified,
                    "blocks": outline.blocks(),
                });
                if is_json() { self.line(event) } else { Ok(()) }
            }
            WatchEvent::Message { outline, label, number, message, .. } => {
                self.message(outline, label, number, message)
            }
            WatchEvent::Withheld { outline, label, window, why } => {
                self.withheld(outline, label, window, why)
            }
            WatchEvent::NotAddressed { outline, why } => self.not_addressed(outline, why),
            WatchEvent::Missed { sender, number } => {
                let shown = format!(
                    "MissedChain: chain {number} of {sender} was missed; it is requested from other nodes"
                );
                self.event(
                    json!({ "event": "missed", "sender": sender.to_string(), "chain": number.0 }),
                    &shown,
                )
            }
            WatchEvent::Complete { outline, label, saved, evidence } => {
                self.complete(outline, label, saved, evidence)
            }
            WatchEvent::Abandoned(chain) => {
                let shown = format!(
                    "chain {chain} was dropped: its sender started the next chain before this one was complete"
                );
                self.event(json!({ "event": "abandoned", "reference": chain.to_string() }), &shown)
            }
            WatchEvent::TooLarge(chain) => {
                let shown = format!(
                    "QuotaReached: chain {chain} is larger than the quota; raise it with --quota for the next chain"
                );
                self.event(json!({ "event": "abandoned", "name": "QuotaReached", "reference": chain.to_string() }), &shown)
            }
            WatchEvent::Revoked { base, revoked } => {
                let path = self
                    .arguments
                    .ca
                    .get(usize::from(base))
                    .map(|path| path.display().to_string())
                    .unwrap_or_default();
                let shown =
                    format!("base station {path} has revoked certificates; {}", describe(revoked));
                self.event(
                    json!({
                        "event": "revoked",
                        "base_station": path,
                        "min_serial": revoked.minimum(),
                        "serials": revoked.serials(),
                    }),
                    &shown,
                )
            }
            WatchEvent::Refused(refused) => self.refuse(refused),
            WatchEvent::LinkDown { link, cause } => {
                let url = self.arguments.on.get(usize::from(link)).map_or("", String::as_str);
                self.event(json!({ "event": "link_down", "link": url, "cause": cause }), cause)
            }
            _ => Ok(()),
        }
    }

    /// Prints an event: on stdout as JSON, or on stderr as text.
    fn event(&mut self, event: Value, shown: &str) -> io::Result<()> {
        if is_json() {
            return self.line(event);
        }
        diagnostic(shown);
        Ok(())
    }

    fn line(&mut self, line: impl std::fmt::Display) -> io::Result<()> {
        self.out.line(line).map_err(|failure| io::Error::other(failure.to_string()))?;
        // A message that no reader received must not count as delivered.
        if self.out.is_open() { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }

    fn message(
        &mut self,
        outline: &Outline,
        label: &str,
        number: u32,
        message: &[u8],
    ) -> io::Result<()> {
        self.messages += 1;
        let text = std::str::from_utf8(message);
        if is_json() {
            let mut event = of_chain("message", outline, label);
            event["message"] = json!(number);
            match text {
                Ok(text) => event["text"] = json!(text),
                Err(_) => event["hex"] = json!(hex::encode(message)),
            }
            return self.line(event);
        }
        match text {
            Ok(text) => self.line(text),
            Err(_) => self.line(format_args!("0x{}", hex::encode(message))),
        }
    }

    /// Reports a chain that is not delivered, or not yet.
    fn withheld(
        &mut self,
        outline: &Outline,
        label: &str,
        window: Window,
        why: Withheld,
    ) -> io::Result<()> {
        let mut event = of_chain("withheld", outline, label);
        event["name"] = json!(why.name());
        event["not_before"] = json!(display_seconds(window.not_before));
        event["not_after"] = json!(window.has_end().then(|| display_seconds(window.not_after)));
        event["is_final"] = json!(!why.is_for_now());
        let reason = match why {
            Withheld::Early => {
                format!("it is held until {}", display_seconds(window.not_before))
            }
            Withheld::NoTrustedTime => "this machine has no date; set its clock".to_owned(),
            Withheld::ClockSetBack(seconds) => {
                event["seconds"] = json!(seconds);
                format!(
                    "the clock is {seconds} s behind an earlier time; set it, or use --accept-earlier-time if that time was wrong"
                )
            }
            Withheld::Late => {
                format!("it ended at {}", display_seconds(window.not_after))
            }
            Withheld::Superseded(number) => {
                event["by"] = json!(number.0);
                format!("chain {number} has a later command of the same topic")
            }
            _ => "too many chains wait for their time".to_owned(),
        };
        let shown = format!("{}: {} is not delivered: {reason}", why.name(), named(outline, label));
        self.event(event, &shown)
    }

    /// Reports a chain for named receivers that this watcher does not deliver: as text at most once
    /// per [`REFUSALS`] for each reason.
    fn not_addressed(&mut self, outline: &Outline, why: AddressError) -> io::Result<()> {
        if is_json() {
            let mut event = of_chain("withheld", outline, "");
            event["name"] = json!(why.name());
            event["is_final"] = json!(true);
            event["detail"] = json!(why.to_string());
            return self.line(event);
        }
        let name = why.name();
        for (of, times) in self.not_read.suppressed() {
            diagnostic(format_args!(
                "{}: {times} more chains are not delivered",
                of.unwrap_or(name)
            ));
        }
        if self.not_read.allows(name) {
            diagnostic(format_args!("{name}: {} is not delivered: {why}", named(outline, "")));
        }
        Ok(())
    }

    fn complete(
        &mut self,
        outline: &Outline,
        label: &str,
        saved: Option<&Path>,
        evidence: Option<&Path>,
    ) -> io::Result<()> {
        self.complete += 1;
        if self.arguments.chains.is_some_and(|chains| self.complete >= chains) {
            self.enough.notify_one();
        }
        if is_json() {
            let mut event = of_chain("complete", outline, label);
            event["saved"] = json!(saved.map(|path| path.display().to_string()));
            event["evidence"] = json!(evidence.map(|path| path.display().to_string()));
            return self.line(event);
        }
        if let Some(path) = saved {
            self.line(path.display())?;
        }
        let size = saved
            .and_then(|path| path.metadata().ok())
            .map(|facts| format!(", {}", bytes(facts.len())))
            .unwrap_or_default();
        let unsaved = if outline.kind == Kind::File && saved.is_none() {
            "; use --save to keep it as a file"
        } else {
            ""
        };
        diagnostic(format_args!("{} is complete{size}{unsaved}", named(outline, label)));
        Ok(())
    }

    /// Reports a refusal, at most once per [`REFUSALS`] for each name. Ignores refusals that occur
    /// in every lossy broadcast.
    fn refuse(&mut self, refused: RefusedBroadcast) -> io::Result<()> {
        use RefusedBroadcast::{NotThisBlock, RefusedBefore, UnknownChain};
        if matches!(refused, NotThisBlock | UnknownChain | RefusedBefore) {
            return Ok(());
        }
        let name = refused.name();
        self.refused.insert(name);
        // A refusal is reported at once, and the further ones with its name when the interval ends.
        for (of, times) in self.refusals.suppressed() {
            let of = of.unwrap_or(name);
            let shown = format!("{of}: refused {times} more times");
            self.event(json!({ "event": "refused", "name": of, "times": times }), &shown)?;
        }
        if !self.refusals.allows(name) {
            return Ok(());
        }
        let shown = refused.named().to_string();
        self.event(json!({ "event": "refused", "name": name, "times": 1, "detail": shown }), &shown)
    }

    fn verdict(self) -> Result<(), Failure> {
        let expected = self.arguments.chains.unwrap_or(0);
        let has_only_refusals = self.arguments.wait.is_some()
            && self.complete + self.messages == 0
            && !self.refused.is_empty();
        if self.complete >= expected && !has_only_refusals {
            return Ok(());
        }
        let found = match self.arguments.chains {
            Some(expected) => {
                format!("{} of {} were complete in time", self.complete, count(expected, "chain"))
            }
            None => "no chain was complete in time".to_owned(),
        };
        let names: Vec<&str> = self.refused.iter().copied().collect();
        Err(match (self.complete, names.is_empty()) {
            (0, false) => Failure::refused(format_args!("{found}; refused: {}", names.join(", "))),
            (_, false) => Failure::new(
                Exit::Incomplete,
                format_args!("{found}; refused: {}", names.join(", ")),
            ),
            _ => Failure::new(Exit::Incomplete, found),
        })
    }
}

fn named(outline: &Outline, label: &str) -> String {
    let label =
        if label.is_empty() { String::new() } else { format!(" {:?}", Plain(label).to_string()) };
    format!("{} chain {}{label} of {}", outline.kind, outline.id.number, outline.id.sender)
}

fn of_chain(event: &str, outline: &Outline, label: &str) -> Value {
    json!({
        "event": event,
        "sender": outline.id.sender.to_string(),
        "chain": outline.id.number.0,
        "kind": outline.kind.name(),
        "label": label,
        "of": outline.messages,
        "addressed": outline.is_addressed,
    })
}
