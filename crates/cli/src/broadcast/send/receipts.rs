//! Which receivers have acknowledged what was sent.

use std::time::Duration;

use clap::Args;
use moteseal_api::Named;
use moteseal_broadcast::ChainRef;
use moteseal_gateway::broadcast::{Addressees, Receipts, Receivers, Sender};
use moteseal_net::Broadcast;
use serde_json::json;

use super::seconds;
use crate::failure::{Exit, Failure};
use crate::terminal::{Plain, Stdout, diagnostic, is_json};

/// The maximum number of names in a line of text.
const NAMES: usize = 10;

/// The arguments for receipts.
#[derive(Args, Debug)]
pub(super) struct ReceiptArguments {
    /// The list of receivers, made by `moteseal broadcast receivers`; default: next to the key, if
    /// it exists
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(super) receivers: Option<std::path::PathBuf>,
    /// Expect receipts only from these receivers or groups, separated by commas; all receivers
    /// deliver the content. Default: from all in the list, or from those of --only
    #[arg(long = "for", value_name = "NAMES", value_delimiter = ',')]
    names: Vec<String>,
    /// Encrypt the content for these receivers of the list, separated by commas: other receivers
    /// cannot read it. Each name is that of a receiver or of a group
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "key",
        conflicts_with = "names"
    )]
    pub(super) only: Vec<String>,
    /// Wait until this many receivers, or this share of them, have acknowledged each chain, for
    /// example 95%; exit with 4 if they have not within --timeout
    #[arg(long, value_name = "N|PERCENT", value_parser = wait_for, conflicts_with = "live")]
    wait_for: Option<WaitFor>,
    /// The maximum time to wait for receipts, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds, requires = "wait_for")]
    timeout: f64,
}

/// How many receivers must acknowledge a chain.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WaitFor {
    Count(usize),
    /// In percent.
    Share(f64),
}

impl WaitFor {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn of(self, expected: usize) -> usize {
        match self {
            Self::Count(count) => count,
            // A share of whole receivers is not rounded up because of the representation of numbers.
            Self::Share(percent) => (expected as f64 * percent / 100.0 - 1e-9).ceil() as usize,
        }
    }
}

impl std::fmt::Display for WaitFor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Share(percent) => write!(f, "{percent} %"),
        }
    }
}

fn wait_for(text: &str) -> Result<WaitFor, String> {
    let error = || "a number from 1, or a percentage such as 95%".to_owned();
    let parsed = match text.strip_suffix('%') {
        Some(percent) => {
            let percent: f64 = percent.trim_end().parse().map_err(|_| error())?;
            (percent > 0.0 && percent <= 100.0).then_some(WaitFor::Share(percent))
        }
        None => text.parse().ok().filter(|count| *count > 0).map(WaitFor::Count),
    };
    parsed.ok_or_else(error)
}

/// A sender's receivers, and those of them that must acknowledge what is sent.
pub(super) struct Expected {
    pub(super) list: Receivers,
    pub(super) positions: Vec<u32>,
    /// Whether the content is encrypted for these receivers.
    is_only: bool,
}

impl Expected {
    /// Returns the receivers for which the content is encrypted; `None` if it is for all.
    pub(super) fn addressees(&self) -> Option<Addressees<'_>> {
        self.is_only.then(|| Addressees::new(&self.list, self.positions.clone()))
    }
}

impl ReceiptArguments {
    /// Returns the receivers of which receipts are expected. `list` is the list, if there is one.
    pub(super) fn expected(&self, list: Option<Receivers>) -> Result<Option<Expected>, Failure> {
        let Some(list) = list else {
            if self.wait_for.is_some() || !self.names.is_empty() || !self.only.is_empty() {
                return Err(Failure::usage(
                    "--wait-for, --for and --only need a list of receivers; `moteseal broadcast receivers` makes one",
                ));
            }
            return Ok(None);
        };
        let is_only = !self.only.is_empty();
        let names = if is_only { &self.only } else { &self.names };
        let positions =
            if names.is_empty() { list.current().collect() } else { list.positions(names)? };
        let expected = Expected { list, positions, is_only };
        if let Some(WaitFor::Count(count)) = self.wait_for
            && count > expected.positions.len()
        {
            return Err(Failure::usage(format_args!(
                "--wait-for {count}: there are only {} receivers",
                expected.positions.len()
            )));
        }
        Ok(Some(expected))
    }

    /// Collects the receipts for chains, for the time that the user has chosen, or else for
    /// `linger`, and reports them.
    pub(super) async fn collect(
        &self,
        sender: &mut Sender<'_, Broadcast>,
        expected: &Expected,
        chains: &[(ChainRef, u64)],
        linger: Duration,
    ) -> Result<(), Failure> {
        let limit = self.wait_for.map_or(linger, |_| Duration::from_secs_f64(self.timeout));
        let end = tokio::time::Instant::now() + limit;
        let mut late = Vec::new();
        for (chain, number) in chains {
            let enough = self.wait_for.unwrap_or(WaitFor::Share(100.0));
            let enough = enough.of(expected.positions.len());
            let left = end.saturating_duration_since(tokio::time::Instant::now());
            sender.collect(*chain, enough, left).await?;
            let Some(receipts) = sender.receipts(*chain) else { continue };
            report(&expected.list, *number, receipts)?;
            if self.wait_for.is_some() && receipts.count() < enough {
                late.push(format!(
                    "chain {number}: {} of {}",
                    receipts.count(),
                    receipts.expected()
                ));
            }
        }
        match (self.wait_for, late.is_empty()) {
            (Some(enough), false) => {
                let error = format_args!(
                    "after {} s fewer than {enough} of the receivers have acknowledged {}",
                    self.timeout,
                    late.join(", ")
                );
                Err(Failure::named(Exit::Incomplete, Named { name: "NotAcknowledged", error }))
            }
            _ => Ok(()),
        }
    }
}

/// Reports who has acknowledged a chain.
fn report(list: &Receivers, chain: u64, receipts: &Receipts) -> Result<(), Failure> {
    let names = |positions: Vec<u32>| -> Vec<&str> {
        positions.into_iter().map(|position| list.label(position)).collect()
    };
    let (missing, failing) =
        (names(receipts.missing().collect()), names(receipts.failing().collect()));
    let (count, expected) = (receipts.count(), receipts.expected());
    if is_json() {
        return Stdout::lock().line(json!({
            "chain": chain,
            "acknowledged": count,
            "expected": expected,
            "missing": missing,
            "failing": failing,
            "receipt_bytes": receipts.bytes(),
        }));
    }
    let missing =
        if missing.is_empty() { String::new() } else { format!("; missing: {}", some(&missing)) };
    diagnostic(format_args!(
        "chain {chain}: acknowledged by {count} of {expected} receivers{missing}"
    ));
    if !failing.is_empty() {
        diagnostic(format_args!(
            "receipts that fail: {}; check that these receivers have the key that `moteseal broadcast receivers key` writes",
            some(&failing)
        ));
    }
    Ok(())
}

/// Returns the first names of a list.
fn some(names: &[&str]) -> String {
    let shown = names.iter().take(NAMES).map(|name| Plain(name).to_string());
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_up_to_whole_receivers() {
        for (text, expected, enough) in [
            ("95%", 1_000, 950),
            ("95%", 10, 10),
            ("50%", 3, 2),
            ("100%", 7, 7),
            ("0.1%", 1_000, 1),
            ("3", 10, 3),
        ] {
            assert_eq!(wait_for(text).map(|of| of.of(expected)), Ok(enough), "{text}");
        }
        for text in ["", "0", "0%", "101%", "-1", "nan%", "all", "1.5"] {
            assert!(wait_for(text).is_err(), "{text}");
        }
    }
}
