//! Prints the results: aligned text for people, or one JSON object.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use moteseal_core::record::Scheme;
use moteseal_seal::sample::Choice;
use serde_json::{Value, json};

use crate::confidential::Confidential;
use crate::edge::Edge;
use crate::fleet::{LEVELS, Sealing};
use crate::internal;
use crate::life::Life;
use crate::readings::EPOCH_MS;
use crate::results::{DRAWN, Results};
use crate::verdict::Verdict;
use moteseal_terminal::failure::Failure;
use moteseal_terminal::output::Stdout;
use moteseal_terminal::progress::{bytes, thousands};

/// Whether to print colours: only if stdout is a terminal and `NO_COLOR` is not set.
struct Ink(bool);

impl Ink {
    fn new() -> Self {
        Self(
            io::stdout().is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        )
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    fn dim(&self, text: &str) -> String {
        self.paint("2", text)
    }

    fn green(&self, text: &str) -> String {
        self.paint("32", text)
    }

    fn red(&self, text: &str) -> String {
        self.paint("1;31", text)
    }
}

#[allow(clippy::cast_precision_loss)]
fn per(part: usize, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn row(out: &mut impl Write, ink: &Ink, label: &str, text: &str) -> io::Result<()> {
    writeln!(out, "  {}  {text}", ink.bold(&format!("{label:<9}")))
}

/// Returns the path with which this program was called, so that users can copy the printed
/// commands.
fn program() -> String {
    std::env::args()
        .next()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "moteseal-demo".to_owned())
}

/// Writes text to stdout without escaping control characters, because the text has colours. It
/// contains no text from other sources.
fn print(write: impl FnOnce(&mut Vec<u8>, &Ink) -> io::Result<()>) -> Result<(), Failure> {
    let mut text = Vec::new();
    write(&mut text, &Ink::new()).map_err(internal)?;
    Stdout::lock().copy(&text[..])
}

/// Prints all results of the demonstration.
pub(crate) fn all(results: &Results, quick: bool) -> Result<(), Failure> {
    print(|out, ink| whole(out, ink, results, quick))
}

fn whole(out: &mut impl Write, ink: &Ink, results: &Results, quick: bool) -> io::Result<()> {
    let readings: u64 = results.fleet.stars.events;
    writeln!(
        out,
        "\n  {} motes · {} readings of temperature and humidity · epochs of {} min · {LEVELS} levels · Ed25519\n",
        results.motes.len(),
        thousands(readings),
        EPOCH_MS / 60_000
    )?;
    sealed(out, ink, results)?;
    verified(out, ink, results)?;
    lies(out, ink, results)?;
    if let Some(edge) = &results.edge {
        budgeted(out, ink, results, edge)?;
    }
    if let Some(life) = &results.life {
        changes(out, ink, life)?;
    }
    if let Some(confidential) = &results.confidential {
        grants(out, ink, confidential)?;
    }
    let program = program();
    let next = format!("{program}{}", if quick { "" } else { " --keep try" });
    let why = if quick {
        "all epochs"
    } else {
        "the same, and continue with its keys, bundles and store"
    };
    let lie = format!("{program} --tamper forged-salt");
    let width = lie.len() + 2;
    writeln!(out, "\n  {}  {next:<width$}{}", ink.bold("try next "), ink.dim(why))?;
    writeln!(out, "             {lie:<width$}{}\n", ink.dim("one lie in detail"))?;
    Ok(())
}

fn sealed(out: &mut impl Write, ink: &Ink, results: &Results) -> io::Result<()> {
    for (label, sealing) in [("sealed", &results.fleet.stars), ("", &results.fleet.trees)] {
        let text = format!(
            "{} by {}: {} seals, {:.2} B/reading of overhead, {:.0} ns/reading including the signature ({:.1}x one SHA-256 compression)",
            thousands(sealing.events),
            sealing.scheme.as_str(),
            thousands(sealing.bundles.len() as u64),
            per(sealing.overhead(), sealing.events),
            sealing.ns_per_event(),
            sealing.ns_per_event() / results.compression_ns
        );
        row(out, ink, label, &text)?;
    }
    let pushed = format!(
        "{} seals over HTTP, {}, each durable before its acknowledgement, in {:.2} s",
        thousands(results.pushed.stored),
        bytes(results.pushed.bytes),
        results.push_time.as_secs_f64()
    );
    row(out, ink, "stored", &pushed)
}

fn verified(out: &mut impl Write, ink: &Ink, results: &Results) -> io::Result<()> {
    let (sampled, all) = (&results.sampled, &results.all);
    let query = format!(
        "{} of all readings: {} in {} instead of {} in {}",
        results.rate,
        thousands(sampled.rows()),
        bytes(sampled.bytes),
        thousands(all.rows()),
        bytes(all.bytes)
    );
    row(out, ink, "query", &query)?;
    let verified = format!(
        "{} devices, {} seals by {} signatures in {:.0} ms; the sample was predetermined, and no event of it is missing",
        sampled.devices.len(),
        thousands(sampled.seals()),
        sampled.signatures,
        results.sample_time.as_secs_f64() * 1e3
    );
    row(out, ink, "verified", &verified)?;
    let drawn = format!(
        "{DRAWN} readings per epoch, selected from the trees by a seed: {} in {}, {} signatures",
        thousands(results.drawn.rows()),
        bytes(results.drawn.bytes),
        results.drawn.signatures
    );
    row(out, ink, "", &drawn)?;
    for (at, estimated) in results.estimates.iter().enumerate() {
        let text = format!(
            "{:<12} {:>6.2} ± {:.2} {:<4} (95 %)   truth {:.2}",
            estimated.field,
            estimated.estimate.value,
            estimated.estimate.half_width,
            estimated.unit,
            estimated.truth
        );
        row(out, ink, if at == 0 { "estimated" } else { "" }, &text)?;
    }
    Ok(())
}

fn lies(out: &mut impl Write, ink: &Ink, results: &Results) -> io::Result<()> {
    writeln!(out, "\n  {}", ink.bold("then the cloud lies"))?;
    let mut at = 0;
    while let Some(first) = results.verdicts.get(at) {
        let same: Vec<&Verdict> = results.verdicts[at..]
            .iter()
            .take_while(|verdict| verdict.name == first.name)
            .collect();
        at += same.len();
        let mark = if same.iter().all(|verdict| verdict.caught) {
            ink.green("x")
        } else {
            ink.red("NOT CAUGHT")
        };
        let name = |verdict: &Verdict| verdict.most_specific().to_owned();
        let other = same.get(1).filter(|other| name(other) != name(first));
        let other = other.map(|other| format!("  tree: {}", name(other)));
        let remembered =
            first.remembered.as_ref().map(|name| format!("  with pinned seals: {name}"));
        let other = other.or(remembered).unwrap_or_default();
        let line = format!(
            "    {mark} {:<27} {:<20} {:<30}{}",
            first.name,
            name(first),
            first.place,
            ink.dim(&other)
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    let (lies, caught) = (results.verdicts.len(), results.verdicts.len() - results.uncaught());
    let kinds = kinds(results);
    writeln!(
        out,
        "\n  {kinds} kinds of lies, tried {lies} times on stars and trees; {caught} rejected with the expected error; no false row was accepted"
    )?;
    if !results.untold.is_empty() {
        writeln!(
            out,
            "  {}",
            ink.dim(&format!("not possible with these responses: {}", results.untold.join(", ")))
        )?;
    }
    Ok(())
}

/// Prints the results of the group with a budget, and how its coordinator's cheating was found.
#[allow(clippy::cast_precision_loss)]
fn budgeted(out: &mut impl Write, ink: &Ink, results: &Results, edge: &Edge) -> io::Result<()> {
    writeln!(
        out,
        "\n  {}",
        ink.bold(&format!(
            "the same motes, alternately with stars and trees, with a budget of {} readings per epoch",
            thousands(edge.budget)
        ))
    )?;
    let text = format!(
        "{} of {} readings sent to the coordinator, {} kept ({:.0} %); at most {} held at any time",
        thousands(edge.forwarded),
        thousands(edge.readings),
        thousands(edge.kept()),
        100.0 * edge.kept() as f64 / edge.readings.max(1) as f64,
        thousands(edge.held)
    );
    row(out, ink, "sampled", &text)?;
    let text = format!(
        "{}, from {} seals that {} motes signed",
        edge.audit,
        thousands(edge.audit.seals),
        results.motes.len()
    );
    row(out, ink, "audited", &text)?;
    if let Some(estimate) = &edge.temperature {
        let truth = results
            .estimates
            .iter()
            .find(|estimated| estimated.field == "temperature")
            .map_or(f64::NAN, |of| of.truth);
        let text = format!(
            "{} of all readings: {} readings; temperature {:.2} ± {:.2} Cel (95 %)   truth {truth:.2}",
            edge.rate,
            thousands(edge.sampled.rows()),
            estimate.value,
            estimate.half_width
        );
        row(out, ink, "query", &text)?;
    }
    writeln!(out, "\n  {}", ink.bold("then the coordinator cheats"))?;
    for cheat in &edge.cheats {
        let mark = if cheat.caught { ink.green("x") } else { ink.red("NOT CAUGHT") };
        // The summary leaves out the rounds that were announced to each device. `--json` prints
        // them.
        writeln!(out, "    {mark} {:<19} {}", cheat.name, cheat.summary)?;
    }
    let caught = edge.cheats.len() - edge.uncaught();
    writeln!(
        out,
        "\n  {} kinds of cheating, {caught} detected as expected; no honest epoch was accused",
        edge.cheats.len()
    )
}

fn changes(out: &mut impl Write, ink: &Ink, life: &Life) -> io::Result<()> {
    let Life { joined, rotated, recovered: (newest, next), version, report, attacks } = life;
    writeln!(out, "\n  {}", ink.bold("then the group changes while its cloud runs"))?;
    for (label, text) in [
        ("added", format!("{joined} joins with version 1 of the roster; the cloud loads it")),
        ("rotated", format!("{rotated} gets a new key with version 2; its chain continues")),
        (
            "recovered",
            format!(
                "{rotated} loses its state and rebuilds it from the cloud after seal {}; it continues with seal {}",
                thousands(newest.0.into()),
                thousands(next.0.into())
            ),
        ),
    ] {
        row(out, ink, label, &text)?;
    }
    let outages: usize = report.devices.iter().map(|device| device.outages.len()).sum();
    let text = format!(
        "{} readings of both motes, complete, with version {version}; {outages} restart stated",
        thousands(report.rows())
    );
    row(out, ink, "query", &text)?;
    for (what, refused) in attacks {
        match refused {
            Some(error) => writeln!(out, "    {} {what}: {error}", ink.green("x"))?,
            None => writeln!(out, "    {} {what}", ink.red("NOT CAUGHT"))?,
        }
    }
    Ok(())
}

/// Prints what readers with different grants saw of one answer, and what is in the cloud's file.
fn grants(out: &mut impl Write, ink: &Ink, of: &Confidential) -> io::Result<()> {
    writeln!(
        out,
        "\n  {}",
        ink.bold("then two motes encrypt their readings, and their owner grants columns")
    )?;
    let text = format!(
        "{} readings in {}, complete, without a key; each reader verifies the same {}",
        thousands(of.report.rows()),
        thousands(of.report.seals()) + " seals",
        bytes(of.answer_bytes)
    );
    row(out, ink, "verified", &text)?;
    for (place, reader) in of.readers.iter().enumerate() {
        let [temperature, humidity] = reader.seen.map(thousands);
        let text = format!(
            "{:<11} {:<26} reads {temperature:>6} temperatures, {humidity:>6} humidities",
            reader.name, reader.grant
        );
        row(out, ink, if place == 0 { "readers" } else { "" }, &text)?;
    }
    let mark = if of.found == 0 { ink.green("0") } else { ink.red(&of.found.to_string()) };
    let text = format!(
        "the cloud's file has {mark} of {} pairs of readings in plaintext (without encryption: {})",
        thousands(of.searched as u64),
        thousands(of.found_without as u64)
    );
    row(out, ink, "searched", &text)?;
    for (what, refused) in &of.attacks {
        match refused {
            Some(error) => writeln!(out, "    {} {what}: {error}", ink.green("x"))?,
            None => writeln!(out, "    {} {what}", ink.red("NOT CAUGHT"))?,
        }
    }
    Ok(())
}

fn kinds(results: &Results) -> usize {
    let mut names: Vec<&str> = results.verdicts.iter().map(|verdict| verdict.name).collect();
    names.dedup();
    names.len()
}

fn choice(choice: Choice) -> String {
    match choice {
        Choice::Rate(rate) => format!("{rate} of the readings"),
        Choice::AtMost(most) => format!("at most {most} readings per epoch"),
        Choice::Sample { count, .. } => format!("{count} readings per epoch, drawn by a seed"),
        Choice::Readings(readings) => format!("{} named readings", readings.count()),
    }
}

/// Prints one lie in detail.
pub(crate) fn one(results: &Results) -> Result<(), Failure> {
    print(|out, ink| lie(out, ink, results))
}

fn lie(out: &mut impl Write, ink: &Ink, results: &Results) -> io::Result<()> {
    let Some(first) = results.verdicts.first() else {
        writeln!(
            out,
            "this lie is not possible with the demo's responses: {}",
            results.untold.join(", ")
        )?;
        return Ok(());
    };
    writeln!(out, "\n  {}: {}", ink.bold(first.name), first.what)?;
    for verdict in &results.verdicts {
        let Verdict { query, alteration, .. } = verdict;
        let until = query.until.map_or_else(|| "now".to_owned(), |until| until.to_string());
        writeln!(out, "\n  {}", ink.bold(verdict.scheme.as_str()))?;
        let query_text = format!(
            "{} of {} devices, epochs {} until {until}",
            choice(query.choice),
            query.devices.len(),
            query.since
        );
        row(out, ink, "query", &query_text)?;
        row(out, ink, "honest", &format!("{}, accepted", bytes(alteration.honest_bytes as u64)))?;
        row(
            out,
            ink,
            "altered",
            &format!(
                "{}, different from item {} on",
                bytes(alteration.bytes as u64),
                alteration.item
            ),
        )?;
        row(out, ink, "rejected", &verdict.refused)?;
        if let Some(named) = &verdict.named {
            row(out, ink, "explained", named)?;
        }
        if let Some(remembered) = &verdict.remembered {
            row(
                out,
                ink,
                "",
                &format!("{remembered}, by a client that has pinned the withheld seals"),
            )?;
        }
        if !verdict.place.is_empty() {
            row(out, ink, "place", &verdict.place)?;
        }
        row(out, ink, "message", &verdict.detail)?;
        let caught = if verdict.caught { ink.green("caught") } else { ink.red("NOT CAUGHT") };
        row(out, ink, "verdict", &caught)?;
    }
    writeln!(out, "\n  {}  {}\n", ink.bold("try next "), program())?;
    Ok(())
}

/// Prints the files of `--keep`, and commands to continue with them.
pub(crate) fn kept(home: &Path, results: &Results) -> Result<(), Failure> {
    print(|out, ink| kept_files(out, ink, home, results))
}

fn kept_files(out: &mut impl Write, ink: &Ink, home: &Path, results: &Results) -> io::Result<()> {
    let home = home.display();
    let since = results.sampled.devices.first().map_or(0, |device| device.since.0);
    writeln!(
        out,
        "  {} keys/ roster.cbor bundles/ epochs.redb ({})",
        ink.bold(&format!("kept in {home}:")),
        bytes(results.store_bytes)
    )?;
    writeln!(out, "  Run the cloud in one terminal, and query it in another:\n")?;
    let trust = format!("--roster {home}/roster.cbor --operator {home}/keys/op.pub.pem");
    writeln!(
        out,
        "    moteseal cloud run --store {home}/epochs.redb {trust} --listen 127.0.0.1:8080"
    )?;
    writeln!(
        out,
        "    moteseal get mote-1 mote-2 --from http://127.0.0.1:8080 {trust} --rate 1/8"
    )?;
    let first = results.fleet.bundles.join("mote-1-0000000000.mseal");
    writeln!(out, "    moteseal inspect {}", first.display())?;
    writeln!(out, "    moteseal verify {home}/bundles/*.mseal {trust}")?;
    writeln!(out, "\n  The first epoch is {since}.\n")?;
    Ok(())
}

#[allow(clippy::cast_precision_loss)]
fn sealing_json(sealing: &Sealing, compression_ns: f64) -> Value {
    json!({
        "devices": sealing.devices.len(),
        "events": sealing.events,
        "seals": sealing.bundles.len(),
        "uplink_overhead_bytes": sealing.overhead(),
        "uplink_overhead_bytes_per_event": per(sealing.overhead(), sealing.events),
        "ns_per_event": sealing.ns_per_event(),
        "compressions_per_event": sealing.ns_per_event() / compression_ns,
    })
}

fn verdict_json(verdict: &Verdict) -> Value {
    json!({
        "kind": verdict.name,
        "what": verdict.what,
        "scheme": verdict.scheme.as_str(),
        "refused": verdict.refused,
        "named": verdict.named,
        "remembered": verdict.remembered,
        "place": verdict.place,
        "detail": verdict.detail,
        "caught": verdict.caught,
    })
}

fn edge_json(edge: &Edge) -> Value {
    let cheats = edge.cheats.iter().map(|cheat| {
        json!({
            "kind": cheat.name,
            "what": cheat.about,
            "found": cheat.found,
            "detail": cheat.detail,
            "caught": cheat.caught,
        })
    });
    json!({
        "budget": edge.budget,
        "readings": edge.readings,
        "forwarded": edge.forwarded,
        "kept": edge.kept(),
        "held": edge.held,
        "epochs": edge.audit.epochs.len(),
        "justified": edge.audit.epochs.iter().filter(|epoch| epoch.is_justified).count(),
        "rate": edge.rate.to_string(),
        "verified": edge.sampled.to_json(),
        "temperature": edge.temperature.map(|estimate| {
            json!({"mean": estimate.value, "half_width_95": estimate.half_width, "sampled": estimate.sampled})
        }),
        "cheats": cheats.collect::<Vec<_>>(),
    })
}

fn life_json(life: &Life) -> Value {
    let attacks = life.attacks.iter().map(
        |(what, refused)| json!({ "what": what, "refused": refused, "caught": refused.is_some() }),
    );
    json!({
        "joined": life.joined,
        "rotated": life.rotated,
        "recovered_after": life.recovered.0.0,
        "next_index": life.recovered.1.0,
        "version": life.version,
        "verified": life.report.to_json(),
        "attacks": attacks.collect::<Vec<_>>(),
    })
}

fn confidential_json(of: &Confidential) -> Value {
    let readers = of.readers.iter().map(|reader| {
        json!({
            "reader": reader.name,
            "grant": reader.grant,
            "temperatures": reader.seen[0],
            "humidities": reader.seen[1],
        })
    });
    let attacks = of.attacks.iter().map(
        |(what, refused)| json!({ "what": what, "refused": refused, "caught": refused.is_some() }),
    );
    json!({
        "readings": of.readings,
        "verified": of.report.to_json(),
        "readers": readers.collect::<Vec<_>>(),
        "searched": of.searched,
        "found": of.found,
        "found_without_encryption": of.found_without,
        "attacks": attacks.collect::<Vec<_>>(),
    })
}

/// Prints the results as one JSON object.
pub(crate) fn json(results: &Results) -> Result<(), Failure> {
    let estimates: Vec<Value> = results
        .estimates
        .iter()
        .map(|estimated| {
            json!({
                "field": estimated.field,
                "unit": estimated.unit,
                "mean": estimated.estimate.value,
                "half_width_95": estimated.estimate.half_width,
                "sampled": estimated.estimate.sampled,
                "population": estimated.estimate.population,
                "truth": estimated.truth,
            })
        })
        .collect();
    let object = json!({
        "motes": results.motes.len(),
        "readings": results.fleet.stars.events,
        "epoch_ms": EPOCH_MS,
        "levels": LEVELS,
        "compression_ns": results.compression_ns,
        "sealed": {
            Scheme::Star.as_str(): sealing_json(&results.fleet.stars, results.compression_ns),
            Scheme::Tree.as_str(): sealing_json(&results.fleet.trees, results.compression_ns),
        },
        "stored": {
            "bundles": results.pushed.stored,
            "bytes": results.pushed.bytes,
            "seconds": results.push_time.as_secs_f64(),
            "store_bytes": results.store_bytes,
        },
        "asked": {
            "rate": results.rate.to_string(),
            "bytes": results.sampled.bytes,
            "bytes_of_all": results.all.bytes,
            "seconds": results.sample_time.as_secs_f64(),
            "seconds_of_all": results.all_time.as_secs_f64(),
        },
        "verified": results.sampled.to_json(),
        "drawn": results.drawn.to_json(),
        "estimates": estimates,
        "lies": results.verdicts.iter().map(verdict_json).collect::<Vec<_>>(),
        "kinds": kinds(results),
        "told": results.verdicts.len(),
        "caught": results.verdicts.len() - results.uncaught(),
        "untold": results.untold,
        "edge": results.edge.as_ref().map(edge_json),
        "life": results.life.as_ref().map(life_json),
        "confidential": results.confidential.as_ref().map(confidential_json),
    });
    Stdout::lock().line(object)
}
