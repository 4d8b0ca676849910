//! `moteseal-bench sums --out DIRECTORY`: measures the costs of CMT, `SECOA^S` and SIES on recorded
//! temperatures, as section VI of Papadopoulos et al. (ICDE 2011) does. The lab's report compares
//! the measurements with the paper's numbers.
//!
//! This is not in the lab for two reasons: the lab does not measure speed, and it must not link
//! `SECOA` (`moteseal-research`).

mod exact;
mod primitives;
mod secoa;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use moteseal_core::link::LinkKey;
use moteseal_core::participation::Participation;
use moteseal_lab::chance::Seed;
use moteseal_lab::data::{DataError, Folder, intel_lab};
use moteseal_lab::report;
use moteseal_lab::report::page::Entry;
use moteseal_lab::sums::{Edges, Measured, Point, Setting};
use moteseal_sum::sies::Psr;
use moteseal_sum::wire::close_share;

use exact::{Cmt, Costs, OurSies, PaperSies};
use secoa::Estimates;

/// The arguments of `moteseal-bench sums`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The directory for the report
    #[arg(long, value_name = "DIRECTORY")]
    out: PathBuf,
    /// The directory of recorded data [default: $MOTESEAL_DATA, or ../shared/data if that is not
    /// set]
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<PathBuf>,
}

/// The reference of a query, and an epoch of today with epochs of 30 seconds, for the size of frames.
const QUERY: u32 = 0x1234_5678;
const EPOCH: u64 = 59_000_000;
/// The paper's range of readings, in degrees Celsius.
const INTERVAL: (f64, f64) = (18.0, 50.0);

/// The amount of measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// The values of `N` for figure 6a.
    sources: &'static [u32],
    /// The values of `F` for figure 5.
    fanouts: &'static [u32],
    /// The powers of ten for figures 4 and 6b.
    decimals: &'static [u32],
    /// The defaults of table IV.
    default: Setting,
    /// The power of ten for the defaults.
    default_decimals: u32,
    /// Number of epochs. The querier of `SECOA^S` is measured over fewer epochs if `N` is large.
    epochs: u32,
    /// The approximate product of sources and epochs for the querier of `SECOA^S`.
    secoa_work: u32,
    /// Number of sources in the one network of `SECOA^S` that is simulated completely.
    whole: u32,
    /// A factor for the measuring time of each primitive.
    primitives: u32,
}

impl Effort {
    /// The parameters of table IV. It takes about two minutes.
    pub(crate) const FULL: Self = Self {
        sources: &[64, 256, 1024, 4096, 16_384],
        fanouts: &[2, 3, 4, 5, 6],
        decimals: &[0, 1, 2, 3, 4],
        default: Setting::DEFAULT,
        default_decimals: 2,
        epochs: 20,
        secoa_work: 40_960,
        whole: 64,
        primitives: 10,
    };
    /// The smallest effort that produces every entry. It takes seconds.
    pub(crate) const QUICK: Self = Self {
        sources: &[4, 16],
        fanouts: &[2, 3],
        decimals: &[0, 1],
        default: Setting { sources: 16, sketches: 40, fanout: 4, lowest: 180, highest: 500 },
        default_decimals: 1,
        epochs: 3,
        secoa_work: 1000,
        whole: 6,
        primitives: 1,
    };
}

/// Runs the measurements, writes the report and prints its path.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    let folder = Folder::new(crate::data_directory(arguments.data.as_deref()));
    let entries = run(&folder, &arguments.out, &Effort::FULL, &mut |step| eprintln!("{step}"));
    crate::written(entries.map(|_| arguments.out.join(report::INDEX)))
}

/// Runs the measurements and writes the report on sums. Returns its entries for the page.
fn run(
    folder: &Folder,
    out: &Path,
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Entry>, String> {
    let readings = Readings::load(folder).map_err(|error| error.to_string())?;
    of(&readings, out, effort, progress)
}

/// Does the same as [`run`] for given readings.
pub(crate) fn of(
    readings: &Readings,
    out: &Path,
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Entry>, String> {
    let measured = measure(readings, effort, progress)?;
    report::sums::write(&measured, out).map_err(|error| error.to_string())
}

/// Recorded temperatures in the paper's interval.
pub(crate) struct Readings(pub(crate) Vec<f64>);

impl Readings {
    /// Reads the temperatures of the Intel Lab.
    pub(crate) fn load(folder: &Folder) -> Result<Self, DataError> {
        let mut readings = intel_lab::temperatures(folder)?;
        readings.retain(|reading| (INTERVAL.0..=INTERVAL.1).contains(reading));
        let what = || "no temperature is between 18 and 50 degrees".to_owned();
        let wrong = || DataError::Malformed {
            file: folder.root().display().to_string(),
            line: 1,
            what: what(),
        };
        if readings.is_empty() { Err(wrong()) } else { Ok(Self(readings)) }
    }

    /// Returns the values of each epoch, one for each source: a random reading, multiplied by the
    /// power of ten and truncated.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn values(&self, setting: &Setting, decimals: u32, epochs: u32) -> Vec<Vec<u64>> {
        let power = 10_f64.powi(decimals.try_into().unwrap_or(i32::MAX));
        let mut draws = seed(setting, decimals).derive("readings", 0).draws();
        let mut value = || {
            let chosen = draws.below(self.0.len() as u64) as usize;
            // Add a small number first, so that 18.3 times ten is not truncated to 182. A reading
            // has at most four decimals.
            (self.0[chosen] * power + 1e-6) as u64
        };
        (0..epochs).map(|_| (0..setting.sources).map(|_| value()).collect()).collect()
    }
}

fn seed(setting: &Setting, decimals: u32) -> Seed {
    Seed::default().derive(
        "secure sums",
        (u64::from(setting.sources) << 16) | (u64::from(setting.fanout) << 8) | u64::from(decimals),
    )
}

fn scaled(setting: Setting, decimals: u32) -> Setting {
    let power = 10_u64.pow(decimals);
    Setting { lowest: 18 * power, highest: 50 * power, ..setting }
}

/// The costs of the three exact schemes over the same epochs.
struct Exact {
    cmt: Costs,
    paper: Costs,
    ours: Costs,
}

fn exact(setting: &Setting, epochs: &[Vec<u64>]) -> Result<Exact, String> {
    let fanout = setting.fanout as usize;
    Ok(Exact {
        cmt: exact::run::<Cmt>(fanout, epochs)?,
        paper: exact::run::<PaperSies>(fanout, epochs)?,
        ours: exact::run::<OurSies>(fanout, epochs)?,
    })
}

impl Exact {
    const fn opened(&self) -> u64 {
        self.cmt.opened + self.paper.opened + self.ours.opened
    }

    fn point(
        &self,
        setting: Setting,
        decimals: u32,
        epochs: u32,
        of: fn(&Costs) -> f64,
        secoa: (f64, u32),
    ) -> Point {
        Point {
            setting,
            decimals,
            epochs,
            cmt: of(&self.cmt),
            sies_paper: of(&self.paper),
            sies: of(&self.ours),
            secoa: secoa.0,
            secoa_epochs: secoa.1,
        }
    }
}

/// Returns the size of the frame of a source, and of an aggregator with all sources below it, for a
/// query of one slot and one key group.
fn frames(sources: u32) -> (u64, u64) {
    let key = LinkKey::new(&[9; 32]);
    let frame = |participation: &[u8]| {
        let mut out = [0; 256];
        // Every record has the same size.
        let psrs = [Psr::ZERO];
        let frame = close_share(QUERY, EPOCH, participation, &psrs, &key, &mut out);
        frame.expect("a frame with one record has less than 256 bytes").len() as u64
    };
    let mut out = [0; 32];
    let length = Participation::encode_one(sources - 1, &mut out).expect("one run fits");
    let source = frame(&out[..length]);
    let words: Vec<u64> = (0..sources.div_ceil(64))
        .map(|word| u64::MAX >> (64 - (sources - 64 * word).min(64)))
        .collect();
    let length = Participation::encode(&words, &mut out).expect("one run fits");
    (source, frame(&out[..length]))
}

fn measure(
    readings: &Readings,
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Measured, String> {
    progress("table II: primitives");
    let primitives = primitives::measure(effort.primitives);
    let sketches = effort.default.sketches;
    let (mut opened, mut estimates, mut edges) = (0, Estimates::default(), Edges::default());

    let mut source = Vec::new();
    for &decimals in effort.decimals {
        let setting = scaled(effort.default, decimals);
        progress(&format!("figure 4: a source, values up to {}", setting.highest));
        let epochs = readings.values(&setting, decimals, effort.epochs);
        let exact = exact(&setting, &epochs)?;
        opened += exact.opened();
        let firsts: Vec<_> = epochs.iter().filter_map(|values| values.first().copied()).collect();
        let secoa = secoa::source(sketches, &firsts);
        source.push(exact.point(
            setting,
            decimals,
            effort.epochs,
            |costs| costs.source,
            (secoa, effort.epochs),
        ));
        if decimals == effort.default_decimals {
            (edges.cmt, edges.sies_paper, edges.sies) =
                (exact.cmt.bytes, exact.paper.bytes, exact.ours.bytes);
            edges.sies_frames = frames(effort.default.sources);
        }
    }

    let mut aggregator = Vec::new();
    for &fanout in effort.fanouts {
        let setting = Setting { fanout, ..effort.default };
        progress(&format!("figure 5: an aggregator with {fanout} children"));
        let epochs = readings.values(&setting, effort.default_decimals, effort.epochs);
        let exact = exact(&setting, &epochs)?;
        opened += exact.opened();
        let children: Vec<_> = epochs
            .iter()
            .map(|values| values.iter().copied().take(fanout as usize).collect())
            .collect();
        let (secoa, bytes) = secoa::aggregator(sketches, &children);
        edges.secoa = bytes;
        aggregator.push(exact.point(
            setting,
            effort.default_decimals,
            effort.epochs,
            |costs| costs.aggregator,
            (secoa, effort.epochs),
        ));
    }

    let mut querier =
        |setting: Setting, decimals: u32, estimates: &mut Estimates| -> Result<Point, String> {
            let mut epochs = readings.values(&setting, decimals, effort.epochs);
            let exact = exact(&setting, &epochs)?;
            opened += exact.opened();
            let secoa_epochs = (effort.secoa_work / setting.sources)
                .clamp(3, effort.epochs.max(3))
                .min(effort.epochs);
            epochs.truncate(secoa_epochs as usize);
            let secoa = secoa::querier(
                sketches,
                &epochs,
                seed(&setting, decimals).derive("sketches", 0),
                estimates,
            )?;
            if setting == effort.default {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                {
                    edges.secoa_last = secoa.bytes.round() as u64;
                }
                edges.seals = secoa.seals;
            }
            Ok(exact.point(
                setting,
                decimals,
                effort.epochs,
                |costs| costs.querier,
                (secoa.micros, secoa_epochs),
            ))
        };
    let mut querier_by_sources = Vec::new();
    for &sources in effort.sources {
        progress(&format!("figure 6a: the querier of {sources} sources"));
        let setting = Setting { sources, ..effort.default };
        querier_by_sources.push(querier(setting, effort.default_decimals, &mut estimates)?);
    }
    let mut querier_by_domain = Vec::new();
    for &decimals in effort.decimals {
        let setting = scaled(effort.default, decimals);
        progress(&format!("figure 6b: the querier, values up to {}", setting.highest));
        querier_by_domain.push(querier(setting, decimals, &mut estimates)?);
    }

    progress(&format!("one network of SECOA in full, {} sources", effort.whole));
    let setting = Setting { sources: effort.whole, ..effort.default };
    let values = readings.values(&setting, effort.default_decimals, 1);
    secoa::whole_network(
        sketches,
        setting.fanout as usize,
        values.first().map_or(&[][..], Vec::as_slice),
        &mut estimates,
    )?;

    let accuracy = estimates.accuracy();
    let host = moteseal_lanes::Host::detect().name().to_string();
    Ok(Measured {
        host,
        primitives,
        source,
        aggregator,
        querier_by_sources,
        querier_by_domain,
        edges,
        accuracy,
        exact: opened,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn readings() -> Readings {
        Readings(vec![18.0, 18.3, 25.55, 49.9999])
    }

    #[test]
    fn a_small_report_is_complete_and_every_sum_verifies() {
        let mut steps = Vec::new();
        let measured =
            measure(&readings(), &Effort::QUICK, &mut |step| steps.push(step.to_owned())).unwrap();
        // Four figures have two points each, with three schemes and three epochs. SECOA has
        // estimates in two figures and in its complete network.
        assert_eq!(measured.exact, 3 * 3 * 2 * 4);
        assert_eq!(measured.accuracy.estimates, 3 * 2 * 2 + 1);
        assert!(steps.len() > 8, "{steps:?}");
        let edges = measured.edges;
        assert_eq!(
            (edges.cmt, edges.sies_paper, edges.sies, edges.secoa),
            (20, 32, 32, 40 * (1 + 4 + 20 + 128))
        );
        assert_eq!((edges.sies_frames, frames(Setting::DEFAULT.sources)), ((66, 66), (67, 67)));
        assert!(edges.seals >= 1.0 && edges.secoa_last >= 40 * 5 + 20 + 128, "{edges:?}");
        for (figure, points) in [
            &measured.source,
            &measured.aggregator,
            &measured.querier_by_sources,
            &measured.querier_by_domain,
        ]
        .iter()
        .enumerate()
        {
            assert_eq!(points.len(), 2, "figure {figure}");
            for point in points.iter() {
                let costs = [point.cmt, point.sies_paper, point.sies, point.secoa];
                assert!(costs.iter().all(|&cost| cost > 0.0), "figure {figure}: {point:?}");
                assert!(
                    point.secoa > point.sies,
                    "figure {figure}: SECOA cannot be cheaper: {point:?}"
                );
            }
        }
        for (symbol, _, cost) in measured.primitives.named() {
            assert!(cost > 0.0 && cost < 1e4, "{symbol}: {cost} microseconds");
        }

        let out = tempfile::tempdir().unwrap();
        report::sums::write(&measured, out.path()).unwrap();
        for name in [
            "table2.csv",
            "table3.csv",
            "table5.csv",
            "fig4.csv",
            "fig5.csv",
            "fig6a.csv",
            "fig6b.csv",
        ] {
            assert!(
                std::fs::read_to_string(out.path().join(name)).unwrap().lines().count() > 2,
                "{name}"
            );
        }
        for name in ["fig4.png", "fig5.png", "fig6a.png", "fig6b.png"] {
            assert!(
                std::fs::read(out.path().join(name)).unwrap().starts_with(b"\x89PNG"),
                "{name}"
            );
        }
    }

    #[test]
    fn values_are_readings_scaled_and_truncated() {
        for (decimals, possible) in
            [(0, [18, 25, 49]), (1, [183, 255, 499]), (4, [183_000, 255_500, 499_999])]
        {
            let values = readings().values(&Effort::QUICK.default, decimals, 50);
            let lowest = 18 * 10_u64.pow(decimals);
            assert!(
                values.iter().flatten().all(|value| possible.contains(value) || *value == lowest),
                "{decimals}"
            );
            assert!(
                possible.iter().all(|value| values.iter().flatten().any(|drawn| drawn == value)),
                "{decimals}"
            );
        }
    }
}
