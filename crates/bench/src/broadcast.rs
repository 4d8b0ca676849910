//! `moteseal-bench broadcast [--json] [--out DIRECTORY]`: measures the cost of authenticated
//! broadcast at the sender and at a receiver, for 100 messages of 20 bytes. In the same execution
//! it measures HMAC under a shared key, a signature per message, uTESLA, and the paper's scheme.
//! With a directory, it also writes the lab's report with figures 3 and 4 (Liu, Li and Guizani
//! 2012, section V) from the same machine.
//!
//! This is not in the lab for two reasons: the lab does not measure speed, and it must not link the
//! paper's schemes (`moteseal-research`).

mod chains;
mod rivals;

use std::path::PathBuf;
use std::process::ExitCode;

use moteseal_core::signature::Algorithm;
use moteseal_lab::broadcast::times::{Times, Timing};
use moteseal_lab::broadcast::{BLOCKS, MESSAGES, PAYLOAD, bytes};
use moteseal_lab::chance::Seed;
use moteseal_lab::report;
use moteseal_lanes::Host;

use crate::hashing::dependent_compressions;
use crate::measure::{Bar, Contender, Report, interleaved};
use chains::Sent;
use rivals::{Hmac, Paper, Sigs, Tesla};

/// The arguments of `moteseal-bench broadcast`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: crate::Output,
    /// Also write the lab's report, with figures 3 and 4, to this directory
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
}

/// The lengths of sequences over which the paper averages.
const LENGTHS: [u32; 5] = [20, 40, 60, 80, 100];
/// The suites. The bar, if there is one, is the minimum ratio of the time of one signature per
/// message to the time of a complete chain.
const SUITES: [(Algorithm, Option<Bar>); 3] = [
    (Algorithm::Ed25519, Some(Bar::AtLeast(50.0))),
    (Algorithm::Esp256, None),
    (Algorithm::MlDsa44, None),
];
/// The number of chains that are verified between two readings of the clock. Reading the clock
/// takes as long as verifying a few messages.
const CHAINS_PER_CLOCK: usize = 20;

/// A message of the testbed.
type Message = [u8; PAYLOAD];

/// Returns different messages of the same length as the paper's.
fn messages(count: u32) -> Vec<Message> {
    (0..count)
        .map(|number| {
            let mut message = *b"set valve ___ to 50%";
            message[10..13].copy_from_slice(format!("{number:03}").as_bytes());
            message
        })
        .collect()
}

/// Runs the measurements, prints the results, and writes the report if a directory is given.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    let printed = arguments.output.print(&run());
    let Some(out) = &arguments.out else { return printed };
    eprintln!("times of sequences of 20 to 100 messages");
    let page = report::broadcast::write(
        Some(&times(true)),
        out,
        Seed::default(),
        report::broadcast::Effort::FULL,
        &mut |step| eprintln!("{step}"),
    );
    let written = crate::written(page.map(|_| out.join(report::INDEX)));
    if printed == ExitCode::SUCCESS { written } else { printed }
}

/// Runs all measurements, those with bars and those without.
fn run() -> Report {
    let mut report = Report::new(format!(
        "authenticated broadcast, {MESSAGES} messages of {PAYLOAD} bytes, one thread; host loops: {}; D = one dependent SHA-256 compression",
        Host::detect().name()
    ));
    verification(&mut report);
    whole_chains(&mut report);
    senders(&mut report);
    authenticators(&mut report);
    report
}

/// Measures the verification of a message at a receiver that has already verified the signature,
/// compared with HMAC with a cached key.
fn verification(report: &mut Report) {
    let (messages, key) = (messages(MESSAGES), chains::key(Algorithm::Ed25519));
    let hmac = Hmac::new(&messages);
    let sent = BLOCKS.map(|per_block| Sent::new(&messages, per_block, &key));
    let backwards: Vec<Sent> = sent.iter().map(Sent::backwards).collect();
    let mut contenders = vec![dependent_compressions(), hmac.verifying(CHAINS_PER_CLOCK)];
    contenders.extend(sent.iter().map(|sent| sent.following(CHAINS_PER_CLOCK)));
    contenders.extend(backwards.iter().map(|sent| sent.following(CHAINS_PER_CLOCK)));
    let times = interleaved(201, &mut contenders);
    report.add("D", times.nanoseconds(0), "ns", None);
    report.add("HMAC-SHA256, cached key: a message verified", times.nanoseconds(1), "ns", None);
    for (at, per_block) in BLOCKS.into_iter().enumerate() {
        report.add(
            format!("SA{per_block}: a message verified, signature paid for"),
            times.nanoseconds(2 + at),
            "ns",
            None,
        );
        report.add("  against HMAC", times.ratio(2 + at, 1), "x", Bar::AtMost(1.0));
        if per_block > 1 {
            let ratio = times.ratio(2 + BLOCKS.len() + at, 1);
            report.add(
                "  against HMAC, each block's messages in the worst order",
                ratio,
                "x",
                None,
            );
        }
    }
}

/// Measures the verification of a complete chain with its signature at a receiver, compared with a
/// signature per message.
fn whole_chains(report: &mut Report) {
    let messages = messages(MESSAGES);
    for (algorithm, bar) in SUITES {
        let key = chains::key(algorithm);
        let sigs = Sigs::new(&messages[..10], &key);
        let sent = BLOCKS.map(|per_block| Sent::new(&messages, per_block, &key));
        let two = Sent::new(&messages[..2], 1, &key);
        let mut contenders = vec![sigs.verifying(), two.verifying(CHAINS_PER_CLOCK)];
        contenders.extend(sent.iter().map(|sent| sent.verifying(1)));
        let times = interleaved(101, &mut contenders);
        report.add(
            format!("SIGS, {algorithm}: a message verified"),
            times.nanoseconds(0) / 1000.0,
            "us",
            None,
        );
        for (at, per_block) in BLOCKS.into_iter().enumerate() {
            let name = format!("  SA{per_block}, {algorithm}: the whole chain cheaper by");
            report.add(name, 1.0 / times.ratio(2 + at, 0), "x", bar);
        }
        // A chain of one message needs a signature and two hashes. Two messages are therefore the
        // smallest number for which a chain is cheaper.
        report.add(
            format!("  SA1, {algorithm}: a chain of two messages cheaper by"),
            1.0 / times.ratio(1, 0),
            "x",
            None,
        );
        for per_block in BLOCKS {
            if let Some(messages) = bytes::break_even(per_block, algorithm) {
                report.add(
                    format!("  SA{per_block} needs fewer bytes from this many messages on"),
                    messages.into(),
                    "",
                    None,
                );
            }
        }
    }
    let paper = Paper::new(&messages, 1);
    let times = interleaved(5, &mut [paper.verifying_each(), paper.verifying()]);
    report.add(
        "SIGS, secp160r1, the paper's: a message verified",
        times.nanoseconds(0) / 1000.0,
        "us",
        None,
    );
    report.add(
        "  SA1, the paper's: the whole chain cheaper by",
        1.0 / times.ratio(1, 0),
        "x",
        None,
    );
}

/// Measures a complete chain at the sender, which hashes, signs, and reads each message again
/// before sending it.
fn senders(report: &mut Report) {
    let messages = messages(MESSAGES);
    let hmac = Hmac::new(&messages);
    let tesla = Tesla::new(&messages);
    for (algorithm, _) in SUITES {
        let key = chains::key(algorithm);
        let sigs = Sigs::new(&messages[..30], &key);
        let mut contenders = vec![sigs.signing(), hmac.sealing(CHAINS_PER_CLOCK), tesla.sealing()];
        contenders.extend(BLOCKS.map(|per_block| chains::sealing(&messages, per_block, &key)));
        let times = interleaved(31, &mut contenders);
        report.add(
            format!("SIGS, {algorithm}: a message signed"),
            times.nanoseconds(0) / 1000.0,
            "us",
            None,
        );
        for (at, per_block) in BLOCKS.into_iter().enumerate() {
            let name = format!("  SA{per_block}, {algorithm}: the whole chain cheaper by");
            report.add(name, 1.0 / times.ratio(3 + at, 0), "x", None);
        }
        if algorithm == Algorithm::Ed25519 {
            report.add(
                "HMAC-SHA256, cached key: a message sealed",
                times.nanoseconds(1),
                "ns",
                None,
            );
            report.add(
                "uTESLA: a message sealed, with its share of the keys",
                times.nanoseconds(2),
                "ns",
                None,
            );
        }
    }
    let paper = Paper::new(&messages, 1);
    let times = interleaved(5, &mut [paper.signing_each(), paper.sealing()]);
    report.add(
        "SIGS, secp160r1, the paper's: a message signed",
        times.nanoseconds(0) / 1000.0,
        "us",
        None,
    );
    report.add(
        "  SA1, the paper's: the whole chain cheaper by",
        1.0 / times.ratio(1, 0),
        "x",
        None,
    );
}

/// Counts the bytes per message of signature, digests and tags in the real encodings, and also with
/// digests of eight bytes, as in the paper. Figure 5 of the lab's report shows other lengths.
fn authenticators(report: &mut Report) {
    for (algorithm, _) in
        SUITES.into_iter().filter(|(algorithm, _)| *algorithm != Algorithm::Esp256)
    {
        for bytes in
            BLOCKS.into_iter().filter_map(|per_block| bytes::of(MESSAGES, per_block, algorithm))
        {
            report.add(
                format!("SA{}, {algorithm}: authenticators a message", bytes.per_block),
                bytes.authenticators(),
                "B",
                None,
            );
            report.add("  with digests of 8 bytes", bytes.short_authenticators(), "B", None);
        }
    }
}

/// Measures figures 3 and 4: microseconds per message at the sender and at a receiver, by scheme
/// and length.
pub(crate) fn times(is_full: bool) -> Times {
    let (ours, theirs) = if is_full { (31, 9) } else { (1, 1) };
    let mut rows = Vec::new();
    for length in LENGTHS {
        let messages = messages(length);
        let key = chains::key(Algorithm::Ed25519);
        let (sigs, hmac, tesla) =
            (Sigs::new(&messages[..10], &key), Hmac::new(&messages), Tesla::new(&messages));
        let sent = BLOCKS.map(|per_block| Sent::new(&messages, per_block, &key));
        let mut both = vec![
            ("SIGS".to_owned(), sigs.signing(), sigs.verifying()),
            ("HMAC".to_owned(), hmac.sealing(CHAINS_PER_CLOCK), hmac.verifying(CHAINS_PER_CLOCK)),
        ];
        both.extend(sent.iter().map(|sent| {
            let per_block = sent.per_block();
            (
                format!("SA{per_block}"),
                chains::sealing(&messages, per_block, &key),
                sent.verifying(1),
            )
        }));
        both.push(("uTESLA".to_owned(), tesla.sealing(), tesla.verifying()));
        rows.extend(timed(length, ours, both));
        let paper = BLOCKS.map(|per_block| Paper::new(&messages, usize::from(per_block)));
        let mut both = vec![
            ("SIGS, the paper's".to_owned(), paper[0].signing_each(), paper[0].verifying_each()),
            (
                "HMAC, the paper's".to_owned(),
                hmac.paper_sealing(CHAINS_PER_CLOCK),
                hmac.paper_verifying(CHAINS_PER_CLOCK),
            ),
        ];
        both.extend(paper.iter().map(|paper| {
            (format!("SA{}, the paper's", paper.per_block()), paper.sealing(), paper.verifying())
        }));
        rows.extend(timed(length, theirs, both));
    }
    Times { host: Host::detect().name().to_owned(), rows }
}

/// Measures both sides of all schemes in turn.
fn timed(
    messages: u32,
    repetitions: usize,
    both: Vec<(String, Contender<'_>, Contender<'_>)>,
) -> Vec<Timing> {
    let (mut schemes, mut contenders) = (Vec::new(), Vec::new());
    for (scheme, sender, receiver) in both {
        schemes.push(scheme);
        contenders.extend([sender, receiver]);
    }
    let times = interleaved(repetitions, &mut contenders);
    let micros = |at| times.nanoseconds(at) / 1000.0;
    let row = |(at, scheme)| Timing {
        scheme,
        messages,
        sender_us: micros(2 * at),
        receiver_us: micros(2 * at + 1),
    };
    schemes.into_iter().enumerate().map(row).collect()
}
