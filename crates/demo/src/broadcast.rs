//! `moteseal-demo broadcast`: simulates the testbed of Liu et al. (2012) in virtual time: seven
//! nodes, three hops, packet loss, and an attacker. It shows what each node verified and rejected,
//! and whether any node accepted a forgery.

mod commands;
mod play;
mod receipts;

use std::collections::BTreeMap;

use clap::Args;
use moteseal_adversary::broadcaster::Assault;
use moteseal_lab::broadcast::{ASSUMED, NODES};
use moteseal_lab::chance::Seed;
use serde_json::json;

use moteseal_terminal::failure::{Exit, Failure};
use moteseal_terminal::output::Stdout;
use moteseal_terminal::progress::{count, thousands};

/// Broadcast to seven simulated motes over lossy hops, while an attacker forges, replays and floods
/// at a hundred times the genuine rate.
///
/// A sender broadcasts 100 messages of 20 bytes, one every five seconds on average. The attacker is
/// in range of the nodes that relay to the most distant nodes. One node reboots in the middle of
/// the run. At the end all nodes reboot, and all frames are sent again. Time is virtual: the demo
/// takes only seconds. The demo then shows commands with an end: neither an expired command nor one that
/// a later command has replaced is obeyed. At last it shows an update of firmware that receivers
/// acknowledge: the sender counts the receipts, names the receiver that is missing, and counts no forged
/// receipt.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 no attack succeeded, 1 genuine messages are missing or late, 3 a forgery was accepted.\n\
                        The same seed gives the same output."
)]
pub(crate) struct Arguments {
    /// The seed of all randomness, up to 64 hexadecimal digits; trailing zeros may be omitted
    #[arg(long, value_name = "HEX", default_value = "00")]
    seed: Seed,
    /// The probability that a node loses a frame, 0 to 0.3
    #[arg(long, value_name = "PROBABILITY", default_value = "0.2", value_parser = loss)]
    loss: f64,
    /// Messages per block
    #[arg(long, value_name = "MESSAGES", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=10))]
    block: u8,
    /// Print the result as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

fn loss(text: &str) -> Result<f64, String> {
    let loss: Option<f64> = text.parse().ok();
    loss.filter(|loss| (0.0..=0.3).contains(loss))
        .ok_or_else(|| "enter a probability from 0 to 0.3".to_owned())
}

/// The assumed links. The paper does not list the links of its figure 2.
const TOPOLOGY: &str = "        1 --- 3 --- 5
      / |   / |   / |        S  the sender
    S   |  /  |  /  |        1 to 6  receivers, which relay and repair
      \\ | /   | /   |        A  the attacker, in range of 1, 2, 3 and 4
        2 --- 4 --- 6";

/// The final state of a node.
#[derive(Debug, Default)]
struct Node {
    verified: usize,
    /// The number of bytes in the node's store.
    kept: usize,
    heads_checked: u64,
    certificates_checked: u64,
    heads_allowed: u64,
    certificates_allowed: u64,
    starts: u64,
}

/// The results of the demonstration.
#[derive(Debug, Default)]
struct Results {
    messages: usize,
    /// Virtual milliseconds until every node has the complete chain, without and with the attacker.
    /// `None` if some node does not have it after three times the time without the attacker.
    undisturbed_ms: Option<u64>,
    disturbed_ms: Option<u64>,
    /// The number of transmissions for each purpose until the chain was complete, with the
    /// attacker.
    sent: moteseal_lab::broadcast::chains::Sent,
    undisturbed_sent: moteseal_lab::broadcast::chains::Sent,
    nodes: Vec<Node>,
    refused: BTreeMap<&'static str, u64>,
    attacks: Vec<(Assault, u64)>,
    /// The size of a node's state in memory, in bytes.
    node_bytes: usize,
    /// The number of forgeries that nodes sent, stored or delivered. All must be 0.
    forged_sent: u64,
    forged_kept: u64,
    forged_delivered: u64,
    /// The number of messages that were delivered or accepted again after all nodes had rebooted.
    replayed: u64,
    over_meter: u64,
    /// What two watchers do with commands that end and that an attacker replays.
    commands: Vec<commands::CommandStep>,
    /// What the sender of a file knows about its receivers.
    receipts: Vec<receipts::ReceiptStep>,
}

/// The progress of the nodes at a point in time.
struct Step {
    ms: u64,
    verified: Vec<usize>,
    sent: u64,
    forged: u64,
    note: &'static str,
}

impl Results {
    /// Returns the number of successful attacks of all kinds.
    fn breaches(&self) -> u64 {
        self.forged_sent
            + self.forged_kept
            + self.forged_delivered
            + self.replayed
            + self.over_meter
            + commands::faults(&self.commands)
            + receipts::faults(&self.receipts)
    }

    fn slowdown(&self) -> Option<f64> {
        #[allow(clippy::cast_precision_loss)]
        self.undisturbed_ms
            .zip(self.disturbed_ms)
            .map(|(before, after)| after as f64 / before as f64)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut out = Stdout::lock();
    if !arguments.json {
        lines(&mut out, TOPOLOGY)?;
        let about = format!(
            "\nlinks {ASSUMED} (assumed, because the paper shows them only in a figure); loss {}, blocks of {}",
            arguments.loss, arguments.block
        );
        lines(&mut out, &about)?;
        out.line("")?;
        out.line(format_args!(
            "{:>9}  {}  {:>8}  {:>8}",
            "time",
            columns(|node| node.to_string()),
            "sent",
            "forged"
        ))?;
    }
    let mut shown = Ok(());
    let mut results = play::play(arguments, &mut |step: &Step| {
        if !arguments.json && shown.is_ok() {
            let verified =
                columns(|node| step.verified.get(node).copied().unwrap_or_default().to_string());
            let (sent, forged) = (thousands(step.sent), thousands(step.forged));
            shown = out.line(format_args!(
                "{:>7} s  {verified}  {sent:>8}  {forged:>8}  {}",
                step.ms / 1000,
                step.note
            ));
        }
    })?;
    shown?;
    results.commands = commands::play()?;
    results.receipts = receipts::play()?;
    if arguments.json {
        out.line(object(arguments, &results))?;
    } else {
        table(&results, &mut out)?;
    }
    verdict(&results)
}

/// Prints a text of several lines line by line, because `Stdout` escapes the control characters in
/// a line.
fn lines(out: &mut Stdout, text: &str) -> Result<(), Failure> {
    text.lines().try_for_each(|line| out.line(line))
}

fn columns(of: impl Fn(usize) -> String) -> String {
    (1..NODES).map(|node| format!("{:>4}", of(node))).collect()
}

fn table(results: &Results, out: &mut Stdout) -> Result<(), Failure> {
    lines(out, "\nThe attacker sent (nodes in range receive the frames that are not lost):")?;
    for (assault, sent) in &results.attacks {
        out.line(format_args!("  {:>8}  {}", thousands(*sent), assault.about()))?;
    }
    lines(out, "\nNodes rejected, by error name:")?;
    for (name, refused) in &results.refused {
        out.line(format_args!("  {:>8}  {name}", thousands(*refused)))?;
    }
    lines(out, "\nnode  verified  signatures checked (and allowed)  kept")?;
    for (who, node) in results.nodes.iter().enumerate().skip(1) {
        out.line(format_args!(
            "{who:>4}  {:>4}/{}  heads {} ({}), certificates {} ({})  {} bytes{}",
            node.verified,
            results.messages,
            node.heads_checked,
            thousands(node.heads_allowed),
            node.certificates_checked,
            thousands(node.certificates_allowed),
            thousands(node.kept as u64),
            if node.starts > 1 { "; rebooted meanwhile" } else { "" }
        ))?;
    }
    let sent = &results.sent;
    let transmissions = format!(
        "\n{}: {} fragments sent or relayed, {} responses, {} requests, {} certificates and heads, {} advertisements; {} bytes\n\
         {} without the attacker; the paper has 741 at blocks of 10 and loss 0.2\n\
         a node's memory is {} bytes, regardless of the frames that it receives",
        count(sent.all(), "transmission"),
        thousands(sent.fragments),
        thousands(sent.answers),
        thousands(sent.requests),
        thousands(sent.statements),
        thousands(sent.advertisements),
        thousands(sent.bytes),
        count(results.undisturbed_sent.all(), "transmission"),
        thousands(results.node_bytes as u64),
    );
    lines(out, &transmissions)?;
    if let (Some(undisturbed), Some(disturbed), Some(slowdown)) =
        (results.undisturbed_ms, results.disturbed_ms, results.slowdown())
    {
        out.line(format_args!(
            "complete after {} s under attack, {} s without: {slowdown:.2} times as long",
            disturbed / 1000,
            undisturbed / 1000
        ))?;
    }
    lines(
        out,
        "\nCommands on valve 3, valid for 60 s, 600 s and 600 s. After 120 s a second watcher joins, and the attacker replays all frames:",
    )?;
    for step in &results.commands {
        let commands::CommandStep { at, watcher, what, withheld } = step;
        let done = match withheld {
            None => format!("obeys \"{what}\""),
            Some(why) => format!("does not obey {what}: {why}"),
        };
        out.line(format_args!("{at:>7} s  watcher {watcher:<6}  {done}"))?;
    }
    lines(out, "\nAn update of firmware for three receivers that share a key with the sender:")?;
    for step in &results.receipts {
        let receipts::ReceiptStep { after, acknowledged, missing, failing } = step;
        let expected = acknowledged + missing.len();
        let list = |what: &str, names: &[String]| match names {
            [] => String::new(),
            names => format!("; {what}: {}", names.join(", ")),
        };
        let (missing, failing) = (list("missing", missing), list("wrong receipts", failing));
        out.line(format_args!(
            "  {after}: acknowledged by {acknowledged} of {expected}{missing}{failing}"
        ))?;
    }
    let breaches = results.breaches();
    if breaches == 0 && results.slowdown().is_some() {
        out.line("")?;
        out.line(format_args!(
            "NO ATTACK SUCCEEDED: every node has all {}; no forgery was relayed, stored or delivered; no old message was accepted again, no expired command was obeyed, and no forged receipt was counted.",
            count(results.messages as u64, "message")
        ))?;
    }
    Ok(())
}

fn object(arguments: &Arguments, results: &Results) -> serde_json::Value {
    let nodes: Vec<_> = results
        .nodes
        .iter()
        .enumerate()
        .skip(1)
        .map(|(who, node)| {
            json!({
                "node": who, "verified": node.verified, "kept_bytes": node.kept, "starts": node.starts,
                "heads_checked": node.heads_checked, "heads_allowed": node.heads_allowed,
                "certificates_checked": node.certificates_checked, "certificates_allowed": node.certificates_allowed,
            })
        })
        .collect();
    let attacks: BTreeMap<_, _> =
        results.attacks.iter().map(|(assault, sent)| (assault.about(), sent)).collect();
    let sent = |sent: &moteseal_lab::broadcast::chains::Sent| {
        json!({
            "all": sent.all(), "fragments": sent.fragments, "answers": sent.answers, "requests": sent.requests,
            "certificates_and_heads": sent.statements, "advertisements": sent.advertisements, "bytes": sent.bytes,
        })
    };
    json!({
        "seed": arguments.seed.to_string(), "loss": arguments.loss, "block": arguments.block, "links": ASSUMED,
        "messages": results.messages, "nodes": nodes, "refused": results.refused, "attacks": attacks,
        "transmissions": sent(&results.sent), "undisturbed_transmissions": sent(&results.undisturbed_sent),
        "node_bytes": results.node_bytes, "undisturbed_ms": results.undisturbed_ms, "disturbed_ms": results.disturbed_ms,
        "forged_sent": results.forged_sent, "forged_kept": results.forged_kept, "forged_delivered": results.forged_delivered,
        "replayed": results.replayed, "over_meter": results.over_meter,
        "commands": results.commands.iter().map(|step| {
            json!({ "at": step.at, "watcher": step.watcher, "what": step.what, "withheld": step.withheld })
        }).collect::<Vec<_>>(),
        "receipts": results.receipts.iter().map(|step| {
            json!({
                "after": step.after, "acknowledged": step.acknowledged, "missing": step.missing,
                "failing": step.failing,
            })
        }).collect::<Vec<_>>(),
        "held": results.breaches() == 0 && results.slowdown().is_some(),
    })
}

fn verdict(results: &Results) -> Result<(), Failure> {
    let breaches = results.breaches();
    if breaches > 0 {
        return Err(Failure::refused(format_args!(
            "{} ATTACKS SUCCEEDED ({} forgeries relayed, {} stored, {} delivered, {} messages replayed, {} nodes checked too many signatures, \
             {} watchers obeyed the wrong commands, {} counts of receipts are wrong): \
             this is a fault of Moteseal; please report it",
            thousands(breaches),
            results.forged_sent,
            results.forged_kept,
            results.forged_delivered,
            results.replayed,
            results.over_meter,
            commands::faults(&results.commands),
            receipts::faults(&results.receipts)
        )));
    }
    if results.slowdown().is_none() {
        return Err(Failure::new(
            Exit::Internal,
            "GENUINE MESSAGES ARE MISSING after three times the undisturbed time: this is a fault of Moteseal; please report it",
        ));
    }
    Ok(())
}
