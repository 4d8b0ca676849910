//! `moteseal-bench lab --out DIRECTORY` writes one page for the four papers and RERUM's
//! deliverable D5.3, `index.html`, with figures and data next to it.
//!
//! It measures what the lab does not measure: speed, and the schemes that are for comparison only.
//! It runs the lab's simulations, and passes its measurements to the lab. If recorded data is
//! absent, the page lists it and omits the results that need it.

#[cfg(test)]
mod expected;
mod machine;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use moteseal_lab::chance::Seed;
use moteseal_lab::data::{DataError, Folder, Recording, Source};
use moteseal_lab::latency::Study;
use moteseal_lab::report;
use moteseal_lab::report::page::{self, Entry, Part, missing};
use moteseal_lab::seals::footprint::Footprint;

use crate::seals::{self, Inputs};
use crate::sums::Readings;
use crate::{broadcast, configurations, redactable, rerum, sums};

/// The arguments of `moteseal-bench lab`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The directory for the page, its figures and its data
    #[arg(long, value_name = "DIRECTORY")]
    out: PathBuf,
    /// The directory of recorded data [default: $MOTESEAL_DATA, or ../shared/data if that is not
    /// set]
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<PathBuf>,
    /// The file of instructions counted on a Cortex-M3
    #[arg(long, value_name = "FILE", default_value = FOOTPRINT)]
    footprint: PathBuf,
    /// The kept results of `moteseal-lab latency`, which runs brokers, clouds and engines as processes
    #[arg(long, value_name = "FILE", default_value = LATENCY)]
    latency: PathBuf,
    /// The seed of all simulations: up to 64 hexadecimal digits; trailing zeros may be omitted
    #[arg(long, value_name = "HEX", default_value = "00", value_parser = seed)]
    seed: Seed,
    /// Measure and simulate as little as possible, as a check of the program. The times are then
    /// meaningless
    #[arg(long)]
    quick: bool,
}

impl Arguments {
    /// Returns the command line that the page shows. It omits arguments with their default values.
    fn command(&self) -> String {
        let mut command = format!("moteseal-bench lab --out {}", self.out.display());
        let mut add = |argument: String| command.push_str(&argument);
        if let Some(data) = &self.data {
            add(format!(" --data {}", data.display()));
        }
        if self.footprint != Path::new(FOOTPRINT) {
            add(format!(" --footprint {}", self.footprint.display()));
        }
        if self.latency != Path::new(LATENCY) {
            add(format!(" --latency {}", self.latency.display()));
        }
        if self.seed != Seed::default() {
            add(format!(" --seed {}", self.seed));
        }
        if self.quick {
            add(" --quick".to_owned());
        }
        command
    }
}

/// The folder of the motes' files in a checkout.
const MOTES: &str = "data/telosb";
/// The counts on a Cortex-M3 in a checkout.
pub(crate) const FOOTPRINT: &str = "docs/footprint.csv";
/// The kept results of the study of latency in a checkout.
const LATENCY: &str = "docs/latency/study.json";
/// The file next to [`FOOTPRINT`] with the RAM by number of levels.
const FOOTPRINT_LEVELS: &str = "footprint_levels.csv";

/// Runs all measurements, writes the page and prints its path.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    let folder = Folder::new(crate::data_directory(arguments.data.as_deref()));
    let folder = if Path::new(MOTES).is_dir() { folder.with_motes(MOTES) } else { folder };
    let command = arguments.command();
    let effort = if arguments.quick { &Effort::QUICK } else { &Effort::FULL };
    let mut progress = |step: &str| eprintln!("{step}");
    let kept = (&*arguments.footprint, &*arguments.latency);
    let done = Recorded::load(&folder, kept, &mut progress).and_then(|recorded| {
        run(&recorded, &arguments.out, arguments.seed, effort, &command, &mut progress)
    });
    crate::written(done.map(|()| arguments.out.join(page::PAGE)))
}

fn seed(text: &str) -> Result<Seed, &'static str> {
    seed_of(text).ok_or("a seed has an even number of hexadecimal digits, at most 64")
}

fn seed_of(text: &str) -> Option<Seed> {
    let mut seed = Seed::default();
    if text.len() % 2 == 1 || text.len() > 64 || !text.is_ascii() {
        return None;
    }
    for (place, byte) in seed.0.iter_mut().zip(0..text.len() / 2) {
        *place = u8::from_str_radix(text.get(2 * byte..2 * byte + 2)?, 16).ok()?;
    }
    Some(seed)
}

/// The amount of measurement and simulation.
pub(crate) struct Effort {
    sampling: report::Effort,
    sums: sums::Effort,
    broadcast: report::broadcast::Effort,
    configurations: configurations::Effort,
    seals: seals::Effort,
    /// Whether the times of broadcasts are measured with all repetitions.
    broadcast_times: bool,
    rerum: rerum::Effort,
    redactable: redactable::Effort,
}

impl Effort {
    /// The effort of `make lab`. It takes about ten minutes.
    const FULL: Self = Self {
        sampling: report::Effort::FULL,
        sums: sums::Effort::FULL,
        broadcast: report::broadcast::Effort::FULL,
        configurations: configurations::Effort::FULL,
        seals: seals::Effort::FULL,
        broadcast_times: true,
        rerum: rerum::Effort::FULL,
        redactable: redactable::Effort::FULL,
    };
    /// The smallest effort that produces every entry.
    const QUICK: Self = Self {
        sampling: report::Effort { seeds: 1, runs: 4, one_by_one: 4000 },
        sums: sums::Effort::QUICK,
        broadcast: report::broadcast::Effort { runs: 1 },
        configurations: configurations::Effort::QUICK,
        seals: seals::Effort::QUICK,
        broadcast_times: false,
        rerum: rerum::Effort::QUICK,
        redactable: redactable::Effort::QUICK,
    };
}

/// The recorded data that is present, and a list of the absent data.
pub(crate) struct Recorded {
    /// The recordings that are present, in the order of [`Source::ALL`].
    devices: Vec<Recording>,
    readings: Option<Readings>,
    footprint: Option<Footprint>,
    latency: Option<Study>,
    /// Descriptions of the absent data, and where to get it.
    absent: Vec<String>,
}

impl Recorded {
    /// Reads all data. Lists absent data in the result. Fails if data is malformed.
    fn load(
        folder: &Folder,
        (footprint, latency): (&Path, &Path),
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self, String> {
        let mut recorded = Self {
            devices: Vec::new(),
            readings: None,
            footprint: None,
            latency: None,
            absent: Vec::new(),
        };
        let mut absent = |what: &str, error: DataError| match error {
            DataError::Absent { remedy, .. } => {
                let message = format!("{what}: {remedy}");
                eprintln!("absent: {message}");
                recorded.absent.push(message);
                Ok(())
            }
            error => Err(error.to_string()),
        };
        progress("reading the recorded days");
        for source in Source::ALL {
            match source.load(folder) {
                Ok(recording) => recorded.devices.push(recording),
                Err(error) => absent(source.describe(), error)?,
            }
        }
        match Readings::load(folder) {
            Ok(readings) => recorded.readings = Some(readings),
            Err(error) => absent("temperatures of the Intel lab", error)?,
        }
        recorded.footprint = read_footprint(footprint)?;
        if recorded.footprint.is_none() {
            recorded.absent.push(format!(
                "instructions counted on a Cortex-M3, `{}`: measuring the firmware writes this file",
                footprint.display()
            ));
        }
        if latency.exists() {
            recorded.latency = Some(Study::read(latency).map_err(|error| error.to_string())?);
        } else {
            recorded.absent.push(no_latency(latency));
        }
        Ok(recorded)
    }
}

/// Reads the counts on a Cortex-M3 from this file and from the file next to it. Returns `None` if one of
/// them does not exist.
pub(crate) fn read_footprint(file: &Path) -> Result<Option<Footprint>, String> {
    let levels = file.with_file_name(FOOTPRINT_LEVELS);
    let read = std::fs::read_to_string(file)
        .and_then(|parts| Ok((parts, std::fs::read_to_string(levels)?)));
    match read {
        Ok((parts, levels)) => Footprint::read(&parts, &levels)
            .map(Some)
            .map_err(|error| format!("{}: {error}", file.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot read {}: {error}", file.display())),
    }
}

/// States that the study of latency is absent.
fn no_latency(file: &Path) -> String {
    format!(
        "messages through brokers, clouds and engines, `{}`: `moteseal-lab latency` writes this file",
        file.display()
    )
}

/// Runs all measurements and writes the page.
fn run(
    recorded: &Recorded,
    out: &Path,
    seed: Seed,
    effort: &Effort,
    command: &str,
    progress: &mut dyn FnMut(&str),
) -> Result<(), String> {
    let message = |error: report::ReportError| error.to_string();
    let is_whole = recorded.devices.len() == Source::ALL.len();

    let sampling = if is_whole {
        report::write_of(&recorded.devices, &out.join("sampling"), seed, effort.sampling, progress)
            .map_err(message)?
    } else {
        progress("figures 5 to 7 need recordings that are absent");
        no_sampling(&recorded.absent.join("; "))
    };

    let inputs =
        Inputs { devices: &recorded.devices, is_whole, footprint: recorded.footprint.clone() };
    let measured = seals::measure(&inputs, &effort.seals, seed, progress)?;
    let sealing = report::seals::write(&measured, &out.join("sealing")).map_err(message)?;

    let sums = match &recorded.readings {
        Some(readings) => sums::of(readings, &out.join("sums"), &effort.sums, progress)?,
        None => no_sums(
            recorded
                .absent
                .iter()
                .find(|absent| absent.contains("Intel"))
                .map_or("", String::as_str),
        ),
    };

    progress("broadcasts: times");
    let times = broadcast::times(effort.broadcast_times);
    let broadcast = report::broadcast::write(
        Some(&times),
        &out.join("broadcast"),
        seed,
        effort.broadcast,
        progress,
    )
    .map_err(message)?;

    progress("clouds: latency of three configurations");
    let mut clouds = configurations::entries(&out.join("cloud"), effort.configurations)?;
    let latency = match &recorded.latency {
        Some(study) => {
            report::latency::write(study, &out.join("cloud"), progress).map_err(message)?
        }
        None => report::latency::absent(&no_latency(Path::new(LATENCY))),
    };
    clouds.extend(latency);
    let measured_rerum = rerum::measure(recorded.footprint.clone(), effort.rerum, progress)?;
    let mut rerum = report::rerum::write(&measured_rerum, &out.join("rerum")).map_err(message)?;
    let malleable = redactable::measure(recorded.footprint.clone(), effort.redactable, progress)?;
    rerum.extend(report::redactable::write(&malleable, &out.join("rerum")).map_err(message)?);
    rerum.extend(report::health::write(&out.join("rerum"), seed).map_err(message)?);

    let mut machine = machine::describe(command, recorded.absent.clone());
    let runs = format!(
        "{} of sealing, {} of its figure 11 and table VI",
        measured.runs, measured.tree_runs
    );
    machine.lines.push(("runs".to_owned(), runs));
    let part = |title: &str, about: &str, folder: &str, entries: Vec<Entry>| Part {
        title: title.to_owned(),
        about: about.to_owned(),
        folder: folder.to_owned(),
        entries,
    };
    let parts = [
        part(
            "Sealing: tables and throughput",
            "Li et al., \"Toward Secure and Efficient Communication for the Internet of Things\" \
             (IEEE/ACM Transactions on Networking, 2019). The paper's schemes are measured with the \
             paper's primitives, RSA-1024 and DSA-512 over MD5, SHA-1 and SHA-256 (by AWS-LC and \
             RustCrypto, for comparison only), and with ours. The paper's figures are pictures \
             without numbers, so our numbers are compared with its text. The paper's machine is a \
             quad-core desktop of 3.40 GHz; the paper's tables are from 2018.",
            "sealing",
            sealing.paper,
        ),
        part(
            "Sealing: the sampling protocol",
            "The same paper, section VIII.B: a simulation of recorded days; the same seed gives the \
             same bytes. `sampling/README.md` in the folder of this page has more, and synthetic \
             loads.",
            "sampling",
            sampling,
        ),
        part(
            "Exact private sums",
            "Papadopoulos, Kiayias and Papadias, \"Secure and Efficient In-Network Processing of \
             Exact SUM Queries\" (ICDE 2011), on a Core i7 of 2.66 GHz. **SECOA is patented in the \
             United States: it is only compared here, and no product links it.** `sums/README.md` \
             in the folder of this page has more.",
            "sums",
            sums,
        ),
        part(
            "Authenticated broadcast",
            "Liu, Li and Guizani, \"PKC Based Broadcast Authentication using Signature Amortization \
             for WSNs\" (IEEE Transactions on Wireless Communications, 2012), on TelosB motes. \
             `broadcast/README.md` in the folder of this page has more.",
            "broadcast",
            broadcast,
        ),
        part(
            "Configurations of a cloud",
            "Mishra et al., \"Trade-offs involved in the choice of Cloud Service Configurations when \
             Building Secure, Scalable, and Efficient IoT Networks\", sections V and VI: a sensor and a \
             receiver over MQTT, and four configurations of a cloud. Tables III and IV are measured \
             together with this page, with configurations 1 to 3 in one process. The other entries \
             are kept results of `moteseal-lab latency`, with all four configurations as processes; \
             `docs/latency/README.md` has them in full.",
            "cloud",
            clouds,
        ),
        part(
            "Signed readings, DTLS and self-monitoring",
            "The RERUM project, deliverable D5.3 (2016), sections 2.1 to 2.5 and 3.2, on RE-Motes with \
             a Cortex-M3 of 32 MHz: readings in JSON with a signature on P-192 over CoAP, \
             malleable signatures, handshakes of TinyDTLS, and counters of the radio. Defects of D5.3 are stated below the entry that they affect.",
            "rerum",
            rerum,
        ),
        part(
            "Beyond the papers",
            "Measurements that are not in the papers.",
            "sealing",
            sealing.beyond,
        ),
    ];
    page::write(out, &machine, &parts).map_err(message)
}

fn no_sampling(absent: &str) -> Vec<Entry> {
    [
        (
            "sealing-figure-5",
            "Figure 5: one day within a budget of 500 events",
            "1,057 of 2,572 events sent",
        ),
        (
            "sealing-figure-6",
            "Figure 6: events saved in the cloud each day",
            "about 75 % of the budget used on average",
        ),
        (
            "sealing-figure-7a",
            "Figure 7a: a mean temperature each day, truncated and sampled",
            "truncation too low on all days but one",
        ),
        (
            "sealing-figure-7b",
            "Figure 7b: what the budget does to the mean temperature",
            "a larger budget gives a more accurate mean",
        ),
    ]
    .map(|(id, title, paper)| missing(id, title, paper, absent))
    .to_vec()
}

fn no_sums(absent: &str) -> Vec<Entry> {
    [
        ("sums-table-2", "Table II: costs of the primitives", "HMAC-SHA-1 460 ns, RSA 5.36 µs"),
        (
            "sums-table-3",
            "Table III: costs at typical values",
            "SIES: a source 3.46 µs, an aggregator 1.11 µs, the querier 2.28 ms",
        ),
        (
            "sums-figure-4",
            "Figure 4: a source, by the domain of its values",
            "SIES a couple of microseconds",
        ),
        ("sums-figure-5", "Figure 5: an aggregator, by its children", "SIES 0.3 to 2 µs"),
        (
            "sums-figure-6a",
            "Figure 6a: the querier, by the number of sources",
            "SIES 0.15 to 36 ms",
        ),
        (
            "sums-figure-6b",
            "Figure 6b: the querier, by the domain of the values",
            "independent of the domain",
        ),
        ("sums-table-5", "Table V: bytes on an edge", "CMT 20; SECOA^S 37.8 KB; SIES 32"),
    ]
    .map(|(id, title, paper)| missing(id, title, paper, absent))
    .to_vec()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use clap::Parser as _;
    use moteseal_lab::data::Event;

    use super::expected::{BEYOND, OF_THE_PAPERS, OURS, WITHOUT_NUMBERS, after, fits};
    use super::*;

    fn synthetic() -> Vec<Recording> {
        let recording = |(i, source): (u32, &Source)| {
            let day = |day: u32| {
                (0..100 + 30 * i)
                    .map(|n| Event { second: n * 600 % 86_400, reading: f64::from(n % 50 + day) })
                    .collect()
            };
            Recording::new(source.name(), (0..i + 2).map(day).collect())
        };
        (0..).zip(&Source::ALL).map(recording).collect()
    }

    fn page(recorded: &Recorded, out: &Path) -> String {
        run(
            recorded,
            out,
            Seed::default(),
            &Effort::QUICK,
            "moteseal-bench lab --quick",
            &mut |_| {},
        )
        .unwrap();
        std::fs::read_to_string(out.join(page::PAGE)).unwrap()
    }

    /// Returns all texts between the marks `from` and `to`.
    fn between<'t>(text: &'t str, from: &str, to: &str) -> Vec<&'t str> {
        text.split(from).skip(1).map(|rest| rest.split(to).next().unwrap()).collect()
    }

    /// Returns the content under a name in a section of the page.
    fn content<'t>(html: &'t str, id: &str, name: &str) -> &'t str {
        let section = html
            .split(&format!("<section id=\"{id}\">"))
            .nth(1)
            .unwrap_or_else(|| panic!("{id} is not on the page"));
        let section = section.split("</section>").next().unwrap();
        between(section, &format!("<dt>{name}</dt><dd>"), "</dd>")
            .first()
            .copied()
            .unwrap_or_else(|| panic!("{id} has no {name:?}"))
    }

    /// Asserts that each data file of a section has rows, with a cell for each column and without
    /// infinite numbers. `NaN` is a value that was not measured.
    fn assert_data(html: &str, out: &Path, id: &str) {
        let section = between(html, &format!("<section id=\"{id}\">"), "</section>")[0];
        let files: Vec<&str> = between(section, "href=\"", "\"")
            .into_iter()
            .filter(|link| link.ends_with(".csv"))
            .collect();
        assert!(!files.is_empty(), "{id} has no data");
        for file in files {
            let table = std::fs::read_to_string(out.join(file)).unwrap();
            // A cell with commas is in quotation marks.
            let cells = |row: &str| -> usize {
                row.split('"').step_by(2).map(|part| part.matches(',').count()).sum()
            };
            let header = table.lines().next().unwrap();
            assert!(table.lines().count() > 1, "{file} has no rows");
            for row in table.lines() {
                assert_eq!(cells(row), cells(header), "{file}: {row}");
                let wrong = |cell: &str| cell.parse::<f64>().is_ok_and(f64::is_infinite);
                assert!(!row.split(',').any(wrong), "{file}: {row}");
            }
        }
    }

    #[test]
    fn the_command_on_the_page_is_the_one_that_was_given() {
        for command in [
            "moteseal-bench lab --out report",
            "moteseal-bench lab --out report --data d --footprint f.csv --latency l.json --seed 0a01 --quick",
        ] {
            let parsed = crate::Arguments::try_parse_from(command.split(' ')).unwrap();
            let crate::Suite::Lab(arguments) = parsed.suite else { unreachable!() };
            assert_eq!(arguments.command(), command);
        }
    }

    #[test]
    fn every_table_and_figure_has_both_numbers_and_a_reason() {
        let out = tempfile::tempdir().unwrap();
        let docs = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
        let committed = |name: &str| std::fs::read_to_string(docs(name)).unwrap();
        let recorded = Recorded {
            devices: synthetic(),
            readings: Some(Readings(vec![18.0, 18.3, 25.55, 49.9999])),
            footprint: Some(
                Footprint::read(&committed("footprint.csv"), &committed("footprint_levels.csv"))
                    .unwrap(),
            ),
            latency: Some(Study::read(&docs("latency/study.json")).unwrap()),
            absent: Vec::new(),
        };
        let html = page(&recorded, out.path());
        let listed: BTreeSet<&str> = between(&html, "<section id=\"", "\"").into_iter().collect();
        assert_eq!(listed, OF_THE_PAPERS.into_iter().chain(BEYOND).collect());
        assert_eq!(listed, OURS.iter().map(|(id, _)| *id).collect());
        for (id, expected) in OURS {
            let (theirs, ours) = (content(&html, id, "the paper"), content(&html, id, "ours"));
            assert!(fits(&ours.replace("&#39;", "'"), expected), "{id}: {ours}");
            let has_number = theirs.contains(|letter: char| letter.is_ascii_digit());
            assert_eq!(has_number, !WITHOUT_NUMBERS.contains(&id), "{id}: {theirs}");
            assert!(!theirs.is_empty(), "{id}");
            let row = format!("</a></td><td>{theirs}</td><td>{ours}</td></tr>");
            let overview = between(&html, &format!("<tr><td><a href=\"#{id}\">"), "\n");
            assert!(overview.len() == 1 && overview[0].ends_with(&row), "{id}: {overview:?}");
            assert_data(&html, out.path(), id);
            let why = content(&html, id, "why they differ");
            assert!(why.len() > 40 && why.ends_with('.'), "{id}: {why:?} is not a sentence");
            assert!(!content(&html, id, "command").is_empty(), "{id}");
        }
        // A signature takes longer than a hash of a short text, and the aggregation with signatures
        // longer than the one without.
        let primitives = content(&html, "sealing-table-1", "ours");
        let time = |name: &str| after(primitives, name).unwrap();
        for signature in ["RSA ", "DSA ", "Ed25519 ", "P-256 ", "ML-DSA-44 "] {
            for hash in ["MD5 ", "SHA-1 ", "SHA-256 "] {
                assert!(time(signature) > time(hash), "{primitives}");
            }
        }
        for id in ["sums-figure-4", "sums-figure-5", "sums-figure-6a", "sums-figure-6b"] {
            let ours = content(&html, id, "ours");
            assert!(after(ours, "SECOA^S ") > after(ours, "SIES "), "{id}: {ours}");
            assert!(after(ours, "SECOA^S / SIES ").unwrap() > 1.0, "{id}: {ours}");
        }
        assert!(html.contains("All recorded data was present."));
        // Remove the figures, whose base64 text may contain any letters.
        let words: String = html
            .split("src=\"data:")
            .map(|part| part.split_once("\">").map_or(part, |(_, rest)| rest))
            .collect();
        for wrong in ["NaN", "inf ", "{}", "not measured: "] {
            assert!(!words.contains(wrong), "the page contains {wrong:?}");
        }
    }

    #[test]
    fn the_page_fetches_nothing_and_its_links_have_targets() {
        let out = tempfile::tempdir().unwrap();
        let recorded = Recorded {
            devices: synthetic(),
            readings: None,
            footprint: None,
            latency: None,
            absent: vec!["Intel lab's: get it".to_owned()],
        };
        let html = page(&recorded, out.path());
        for source in between(&html, "src=\"", "\"") {
            assert!(source.starts_with("data:image/png;base64,"), "{source:.60}");
        }
        assert!(
            !html.contains("<script")
                && !html.contains("<link")
                && !html.contains("@import")
                && !html.contains("url(")
        );
        let links = between(&html, "href=\"", "\"");
        assert!(links.len() > 60);
        for link in links {
            match link.strip_prefix('#') {
                Some(id) => assert!(html.contains(&format!("id=\"{id}\"")), "#{id} does not exist"),
                None => assert!(out.path().join(link).is_file(), "{link} does not exist"),
            }
        }
        assert!(
            content(&html, "sums-table-2", "ours") == "not measured"
                && content(&html, "sums-table-2", "replacement").contains("get it")
        );
    }

    #[test]
    fn absent_recorded_data_is_listed_and_dependent_entries_omitted() {
        let (data, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let motes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/telosb");
        let folder = Folder::new(data.path()).with_motes(motes);
        let [footprint, latency] = ["none.csv", "none.json"].map(|name| data.path().join(name));
        let kept = (&*footprint, &*latency);
        let recorded = Recorded::load(&folder, kept, &mut |_| {}).unwrap();
        assert_eq!(recorded.devices.len(), 1);
        let html = page(&recorded, out.path());
        for name in [
            "Smart* home C",
            "van Kasteren&#39;s house A",
            "MIT&#39;s house E",
            "temperatures of the Intel lab",
            "none.csv",
            "none.json",
        ] {
            let plain = name.replace("&#39;", "'");
            assert!(
                between(&html, "<li>", "</li>").iter().any(|absent| absent.contains(&plain)),
                "{plain} is not listed"
            );
        }
        for id in ["sealing-figure-5", "sealing-figure-7b", "sealing-table-7", "sums-figure-6a"] {
            assert_eq!(content(&html, id, "ours"), "not measured", "{id}");
        }
        assert!(content(&html, "sealing-figure-14", "replacement").contains("telosb"));
        assert!(
            content(&html, "sealing-table-1", "replacement")
                .contains("is absent: that column is empty")
        );
    }

    #[test]
    fn a_seed_is_hexadecimal_and_limited_in_length() {
        assert_eq!(seed_of("00"), Some(Seed::default()));
        assert_eq!(seed_of("a0ff").map(|seed| seed.0[..3].to_vec()), Some(vec![0xa0, 0xff, 0]));
        assert_eq!([seed_of("0"), seed_of("zz"), seed_of(&"00".repeat(33))], [None, None, None]);
    }
}
