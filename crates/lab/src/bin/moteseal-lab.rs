//! `moteseal-lab`: repeats the papers' experiments on recorded data.
//!
//! The exit code is 1 if a limit on a result is missed or an experiment fails, and 2 if the arguments
//! are wrong.

#![forbid(unsafe_code)]

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use moteseal_lab::chance::Seed;
use moteseal_lab::data::{DataError, Folder, Source, UnknownSource};
use moteseal_lab::experiment::Experiment;
use moteseal_lab::latency::wired::{Configuration, TableKind};
use moteseal_lab::latency::{self, Execution, Plan, Programs, Study, costs};
use moteseal_lab::report::{self, Effort, ReportError};

use moteseal_terminal::failure::{Exit, Failure};
use moteseal_terminal::interrupt;
use moteseal_terminal::output::{Stdout, diagnostic};
use moteseal_terminal::progress::count;

/// The default folder of recorded data.
const DEFAULT_DATA: &str = "../shared/data";
/// The folder of the motes' files in a checkout.
const MOTES: &str = "data/telosb";

/// Repeat the experiments of the papers on recorded data, and print our numbers next to theirs.
#[derive(Debug, Parser)]
#[command(name = "moteseal-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Sampling(Sampling),
    Report(Report),
    Broadcast(Broadcast),
    Latency(Latency),
    Costs(CostsArguments),
}

/// Replay 92 days of recorded events through a coordinator with a budget.
///
/// Prints per day: events sensed, sent and kept, the final round, and the used share of the budget.
/// The recorded data differs from the paper's data (Li et al., section VIII.B). The output states
/// which source replaces which.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    moteseal-lab sampling --budget 500 --source telosb\n  \
    moteseal-lab sampling --budget 500 --source all --csv days.csv --plot days.png")]
struct Sampling {
    /// The budget: maximum number of events that may be kept per day
    #[arg(long, value_name = "EVENTS", value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)))]
    budget: u64,
    /// The devices: all, or one or more of home-c, house-a, house-b, house-c, house-d, house-e,
    /// telosb
    #[arg(long, value_name = "NAME", num_args = 1.., required = true)]
    source: Vec<Chosen>,
    #[command(flatten)]
    common: Common,
    /// Also write one CSV row per day to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also draw a plot of the days to this PNG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// The format of the output
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// Write the report on sampling: the paper's figures 5, 6, 7a and 7b and the growth of messages,
/// each as PNG and CSV, and an index.
#[derive(Args, Debug)]
#[command(after_help = "Example: moteseal-lab report --out lab/report")]
struct Report {
    #[command(flatten)]
    common: Common,
    /// The directory to write to
    #[arg(long, value_name = "DIRECTORY")]
    out: PathBuf,
}

/// Broadcast through a simulated testbed of seven motes. Report the bytes, transmissions, delays
/// and memory of chains next to the paper's numbers.
///
/// Writes figures 5 to 7 and tables I and II of Liu et al. (2012), each as PNG and CSV, and an
/// index. Needs no recorded data.
#[derive(Args, Debug)]
#[command(after_help = "Example: moteseal-lab broadcast --out lab/broadcast\n\n\
                        Times (figures 3 and 4) are measured by moteseal-bench broadcast --out DIRECTORY, which also writes the rest.")]
struct Broadcast {
    /// The seed of all randomness, up to 64 hexadecimal digits; trailing zeros may be omitted
    #[arg(long, value_name = "HEX", default_value = "00")]
    seed: Seed,
    /// Simulations per data point
    #[arg(long, value_name = "RUNS", default_value_t = moteseal_lab::broadcast::RUNS, value_parser = clap::value_parser!(u64).range(1..=1000))]
    runs: u64,
    /// The directory to write to
    #[arg(long, value_name = "DIRECTORY")]
    out: PathBuf,
}

/// Measure the latency from a sensor to a store with real processes: MQTT through Mosquitto, and four
/// configurations of a cloud, the last one with a NATS JetStream and a Cassandra.
///
/// Writes tables I to IV and figures 4 to 6 of Mishra et al., each as PNG and CSV, and an index.
/// Prints the limits on the results, and whether they are kept. Run it in a checkout, on an idle machine;
/// it needs Mosquitto and, for configuration 4, the engines (tools/setup.sh servers installs them).
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    moteseal-lab latency --out lab/latency             # runs of 20 s: about ten minutes\n  \
    moteseal-lab latency --out lab/latency --full      # the paper's runs of 300 s: about two hours\n  \
    moteseal-lab latency --out lab/four --full --configuration 4              # a part of it: an hour\n  \
    moteseal-lab latency --out lab/rest --full --configuration 1 2 3 --trials 0   # the rest\n  \
    moteseal-lab latency --out lab/latency --from lab/four/study.json lab/rest/study.json\n\n\
    Exit codes: 0 all limits are kept, 1 a limit is missed or the experiment failed, 2 usage.")]
struct Latency {
    /// The directory to write to; stores and engines are there too while the experiment runs, so that
    /// they sync to its disk
    #[arg(long, value_name = "DIRECTORY")]
    out: PathBuf,
    /// The length of a run
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0, value_parser = seconds)]
    seconds: f64,
    /// Runs of 300 s, as in the paper
    #[arg(long, conflicts_with = "seconds")]
    full: bool,
    /// The strings of a trial over MQTT
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    strings: u32,
    /// The trials over MQTT of each combination; 0 leaves this part out
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=100))]
    trials: u32,
    /// The configurations of the cloud
    #[arg(long, value_name = "N", num_args = 1.., default_values_t = [1, 2, 3, 4], value_parser = clap::value_parser!(u8).range(1..=4))]
    configuration: Vec<u8>,
    /// Write the report from the results of earlier executions (study.json), and measure nothing. Several
    /// executions on one machine may have measured different configurations
    #[arg(long, value_name = "FILE", num_args = 1..)]
    from: Vec<PathBuf>,
    #[command(flatten)]
    programs: ProgramArguments,
    /// The seed of the strings, keys and delays, up to 64 hexadecimal digits; trailing zeros may be omitted
    #[arg(long, value_name = "HEX", default_value = "00")]
    seed: Seed,
    /// Print all results as one JSON object
    #[arg(long)]
    json: bool,
}

/// Measure what the uploads of many devices cost in a cloud of an intake, a NATS JetStream, a worker and a
/// Cassandra: processor time of each process, and bytes on disk.
///
/// Measures a small and a large fleet. The limits: the costs of the small one predict those of the large
/// one and the totals of its run (processor time, bytes on disk, nodes) within 30 %, and intake and worker together take at most 150 us a bundle. Run it in a checkout, on
/// an idle machine; it needs the engines (tools/setup.sh servers installs them).
#[derive(Args, Debug)]
#[command(
    after_help = "Example: moteseal-lab costs --out lab/costs      # about five minutes; tools/costs.py writes the tables of docs/scale.md\n\n\
    Exit codes: 0 all limits are kept, 1 a limit is missed or the measurement failed, 2 usage."
)]
struct CostsArguments {
    /// The directory to write costs.json to; stores and engines are there too while the experiment runs
    #[arg(long, value_name = "DIRECTORY")]
    out: PathBuf,
    /// The devices of the small fleet
    #[arg(long, value_name = "N", default_value_t = costs::SMALL, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    small: u32,
    /// The devices of the large fleet
    #[arg(long, value_name = "N", default_value_t = costs::LARGE, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    large: u32,
    /// The bundles of a request
    #[arg(long, value_name = "N", default_value_t = costs::PER_REQUEST, value_parser = clap::value_parser!(u32).range(1..=16))]
    per_request: u32,
    /// The bundles of each device in a request, which must divide those of the request
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    each: u32,
    /// Measure both fleets this many times. The table has medians and ranges, and the medians must keep
    /// the limits
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10))]
    repeat: u32,
    /// The NATS servers, each of which stores every message
    #[arg(long, value_name = "N", default_value = "1", value_parser = ["1", "3"])]
    replicas: String,
    /// Record with perf where the processes spend their time, into files *.perf in the directory. Recording takes
    /// time in each process, so no costs.json is written and no limit is checked
    #[arg(long, conflicts_with = "repeat")]
    profile: bool,
    #[command(flatten)]
    programs: ProgramArguments,
    /// Print the results as one JSON object
    #[arg(long)]
    json: bool,
}

/// The programs of experiments with real processes.
#[derive(Args, Debug)]
struct ProgramArguments {
    /// The program moteseal. The default is the one next to this program
    #[arg(long, value_name = "FILE")]
    moteseal: Option<PathBuf>,
    /// The script that starts the engines
    #[arg(long, value_name = "FILE", default_value = "tools/engines.sh")]
    engines: PathBuf,
    /// In configuration 4, use the embedded store instead of Cassandra
    #[arg(long)]
    embedded: bool,
}

impl ProgramArguments {
    fn programs(&self) -> Result<Programs, Failure> {
        let moteseal = match &self.moteseal {
            Some(program) => program.clone(),
            None => std::env::current_exe().map_err(Failure::internal)?.with_file_name("moteseal"),
        };
        let table = if self.embedded { TableKind::Embedded } else { TableKind::Cassandra };
        Ok(Programs { moteseal, engines: self.engines.clone(), table })
    }
}

/// Reads the length of a run.
fn seconds(text: &str) -> Result<f64, &'static str> {
    let seconds = text.parse().ok().filter(|seconds| (0.5..=3600.0).contains(seconds));
    seconds.ok_or("enter a number of seconds from 0.5 to 3600")
}

#[derive(Args, Debug)]
struct Common {
    /// The folder of recorded data. The default is $MOTESEAL_DATA, or ../shared/data if that is not
    /// set
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<PathBuf>,
    /// The seed of all randomness, up to 64 hexadecimal digits; trailing zeros may be omitted
    #[arg(long, value_name = "HEX", default_value = "00")]
    seed: Seed,
}

impl Common {
    fn folder(&self) -> Folder {
        let named =
            self.data.clone().or_else(|| std::env::var_os("MOTESEAL_DATA").map(PathBuf::from));
        let folder = Folder::new(named.unwrap_or_else(|| PathBuf::from(DEFAULT_DATA)));
        if Path::new(MOTES).is_dir() { folder.with_motes(MOTES) } else { folder }
    }
}

#[derive(Clone, Copy, Debug)]
enum Chosen {
    All,
    One(Source),
}

impl FromStr for Chosen {
    type Err = UnknownSource;

    fn from_str(name: &str) -> Result<Self, UnknownSource> {
        if name == "all" { Ok(Self::All) } else { name.parse().map(Self::One) }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// An aligned table for people
    Table,
    /// One JSON object for programs
    Json,
}

fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    match interrupt::watch(true).and_then(|()| run(command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("moteseal-lab"),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Sampling(arguments) => sampling(&arguments),
        Command::Report(arguments) => report(&arguments),
        Command::Broadcast(arguments) => broadcast(&arguments),
        Command::Latency(arguments) => latency(&arguments),
        Command::Costs(arguments) => measure_costs(&arguments),
    }
}

fn sampling(arguments: &Sampling) -> Result<(), Failure> {
    let mut sources: Vec<_> = Source::ALL
        .into_iter()
        .filter(|source| {
            arguments.source.iter().any(|chosen| {
                matches!(chosen, Chosen::All) || matches!(chosen, Chosen::One(one) if one == source)
            })
        })
        .collect();
    sources.sort_unstable();
    let folder = arguments.common.folder();
    let devices = sources
        .iter()
        .map(|source| source.load(&folder))
        .collect::<Result<Vec<_>, _>>()
        .map_err(data_failure)?;
    let experiment = Experiment::run(&sources, &devices, arguments.budget, arguments.common.seed)
        .ok_or_else(|| {
        Failure::usage("--budget is too small for the load: no group can have enough levels")
    })?;
    if let Some(path) = &arguments.csv {
        report::write_rows(path, experiment.days()).map_err(report_failure)?;
    }
    if let Some(path) = &arguments.plot {
        let png = experiment.figure().png().map_err(|error| Failure::new(Exit::Internal, error))?;
        std::fs::write(path, png).map_err(|error| Failure::file("write", path, &error))?;
    }
    let text = match arguments.format {
        Format::Table => experiment.to_string(),
        Format::Json => serde_json::to_string_pretty(&experiment)
            .map_err(|error| Failure::new(Exit::Internal, error))?,
    };
    let mut stdout = Stdout::lock();
    text.lines().try_for_each(|line| stdout.line(line))
}

/// Prints the progress of a report, if stderr is a terminal.
fn progress() -> impl FnMut(&str) {
    let is_terminal = std::io::stderr().is_terminal();
    move |step: &str| {
        if is_terminal {
            diagnostic(step);
        }
    }
}

fn report(arguments: &Report) -> Result<(), Failure> {
    let common = &arguments.common;
    let mut progress = progress();
    report::write(&common.folder(), &arguments.out, common.seed, Effort::FULL, &mut progress)
        .map_err(report_failure)?;
    Stdout::lock().line(arguments.out.join(report::INDEX).display())
}

fn broadcast(arguments: &Broadcast) -> Result<(), Failure> {
    let effort = report::broadcast::Effort { runs: arguments.runs };
    report::broadcast::write(None, &arguments.out, arguments.seed, effort, &mut progress())
        .map_err(report_failure)?;
    Stdout::lock().line(arguments.out.join(report::INDEX).display())
}

fn latency(arguments: &Latency) -> Result<(), Failure> {
    std::fs::create_dir_all(&arguments.out)
        .map_err(|error| Failure::file("create", &arguments.out, &error))?;
    let has = |one: &Configuration| arguments.configuration.contains(&one.number());
    let plan = Plan {
        folder: arguments.out.clone(),
        programs: arguments.programs.programs()?,
        time: Duration::from_secs_f64(if arguments.full { 300.0 } else { arguments.seconds }),
        strings: arguments.strings,
        trials: arguments.trials,
        configurations: Configuration::ALL.into_iter().filter(has).collect(),
        seed: arguments.seed,
    };
    let study = match &arguments.from[..] {
        [] => {
            let mut study = latency::run(&plan, &mut progress())
                .map_err(|error| Failure::new(Exit::Internal, error))?;
            study.executions = vec![execution()];
            study
        }
        [first, others @ ..] => {
            let mut study = Study::read(first).map_err(Failure::usage)?;
            for other in others {
                study.add(Study::read(other).map_err(Failure::usage)?).map_err(Failure::usage)?;
            }
            study
        }
    };
    report::latency::write(&study, &arguments.out, &mut progress()).map_err(report_failure)?;
    let mut stdout = Stdout::lock();
    if arguments.json {
        let text = serde_json::to_string_pretty(&study)
            .map_err(|error| Failure::new(Exit::Internal, error))?;
        text.lines().try_for_each(|line| stdout.line(line))?;
    } else {
        report::latency::text(&study).lines().try_for_each(|line| stdout.line(line))?;
        stdout.line(arguments.out.join(report::INDEX).display())?;
    }
    check_limits(&study.missed())
}

/// Describes this execution, which has measured something.
fn execution() -> Execution {
    let arguments = std::env::args_os().skip(1);
    Execution::now(&arguments.map(|one| one.to_string_lossy().into_owned()).collect::<Vec<_>>())
}

fn measure_costs(arguments: &CostsArguments) -> Result<(), Failure> {
    let out = &arguments.out;
    let (per_request, each) = (arguments.per_request, arguments.each);
    if !per_request.is_multiple_of(each) {
        return Err(Failure::usage(format_args!(
            "--each: {each} does not divide the {per_request} bundles of a request (--per-request)"
        )));
    }
    std::fs::create_dir_all(out).map_err(|error| Failure::file("create", out, &error))?;
    let plan = costs::Plan {
        folder: out.clone(),
        programs: arguments.programs.programs()?,
        small: arguments.small,
        large: arguments.large,
        per_request,
        each,
        warm_up: costs::WARM_UP,
        replicas: arguments.replicas.parse().map_err(Failure::internal)?,
        profile: arguments.profile,
    };
    let mut repetitions = Vec::new();
    for _ in 0..arguments.repeat {
        let scale = costs::measure(&plan, &mut progress())
            .map_err(|error| Failure::new(Exit::Internal, error))?;
        repetitions.push(scale);
    }
    let results = costs::Results { execution: execution(), repetitions };
    let text = serde_json::to_string_pretty(&results)
        .map_err(|error| Failure::new(Exit::Internal, error))?;
    let file = out.join("costs.json");
    // Recording takes time in each process, so these costs are no results.
    if !arguments.profile {
        std::fs::write(&file, format!("{text}\n"))
            .map_err(|error| Failure::file("write", &file, &error))?;
    }
    let mut stdout = Stdout::lock();
    if arguments.json {
        text.lines().try_for_each(|line| stdout.line(line))?;
    } else {
        results.to_string().lines().try_for_each(|line| stdout.line(line))?;
        stdout.line(if arguments.profile { out.display() } else { file.display() })?;
    }
    if arguments.profile { Ok(()) } else { check_limits(&results.missed()) }
}

/// Prints each missed limit on stderr. Fails with exit code 1 if there are any, as `moteseal-bench`
/// does. Call it after the results are printed and written.
fn check_limits(missed: &[String]) -> Result<(), Failure> {
    for limit in missed {
        diagnostic(format_args!("missed limit: {limit}"));
    }
    if missed.is_empty() {
        return Ok(());
    }
    let limits = count(missed.len() as u64, "limit");
    Err(Failure::internal(format_args!(
        "the results miss {limits}; measure again on an idle machine"
    )))
}

fn data_failure(error: DataError) -> Failure {
    let exit =
        if matches!(error, DataError::Unreadable { .. }) { Exit::Internal } else { Exit::Usage };
    Failure::new(exit, error)
}

fn report_failure(error: ReportError) -> Failure {
    match error {
        ReportError::Data(error) => data_failure(error),
        ReportError::Write { path, cause } => Failure::file("write", &path, &cause),
        error => Failure::new(Exit::Internal, error),
    }
}
