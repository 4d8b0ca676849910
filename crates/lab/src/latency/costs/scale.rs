//! The costs of a small and of a large fleet, and what those of the small one predict: the model of
//! docs/scale.md (Sizing).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::super::Execution;
use super::{BAR_US, Costs, DEVIATION};
use crate::table::thousands;

/// A total of the run of the large fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// What is counted, with its unit.
    pub what: String,
    /// What the model predicts from the costs of the small fleet.
    pub predicted: f64,
    /// What was measured.
    pub measured: f64,
}

impl Total {
    /// Returns whether the prediction is right within [`DEVIATION`].
    #[must_use]
    pub fn agrees(&self) -> bool {
        (self.measured / self.predicted - 1.0).abs() <= DEVIATION
    }
}

/// The costs of both fleets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scale {
    /// The machine and how this program was built.
    pub machine: String,
    /// The processors of the machine, which all processes share.
    pub processors: usize,
    /// The nats-servers, each of which stores every message.
    pub replicas: usize,
    /// The bundles of a request.
    pub per_request: u32,
    /// The bundles of a device in a request.
    pub each: u32,
    /// The small fleet.
    pub small: Costs,
    /// The large fleet.
    pub large: Costs,
    /// The totals of the run of the large fleet ([`Self::with_totals`]).
    pub totals: Vec<Total>,
}

impl Scale {
    /// Computes the totals of the run of the large fleet. Each is predicted by the model of docs/scale.md from
    /// the costs of the small fleet, the bundles of the run and their rate.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn with_totals(mut self) -> Self {
        let (small, large) = (&self.small, &self.large);
        let bundles = f64::from(large.devices);
        let processes = [small, large].map(|costs| costs.processes(self.replicas));
        let seconds = |us: f64| us * bundles / 1e6;
        let [predicted, measured] = &processes;
        let mut totals: Vec<Total> = predicted
            .iter()
            .zip(measured)
            .map(|((name, predicted), (_, measured))| Total {
                what: format!("{name}, s of processor time"),
                predicted: seconds(*predicted),
                measured: seconds(*measured),
            })
            .collect();
        let all: f64 = totals.iter().map(|total| total.predicted).sum();
        let mib = |costs: &Costs| {
            costs.disk_bytes * large.stored as f64 * f64::from(large.readings) / f64::from(1 << 20)
        };
        totals.push(Total {
            what: format!("disk, MiB of {} bundles", thousands(large.stored)),
            predicted: mib(small),
            measured: mib(large),
        });
        totals.push(Total {
            what: format!("nodes of {} processors for all processes", self.processors),
            // The processes of the run used no more than this machine.
            predicted: (all / large.seconds / self.processors as f64).ceil(),
            measured: 1.0,
        });
        self.totals = totals;
        self
    }

    /// Returns each cost of the large fleet, the prediction, and whether they agree within
    /// [`DEVIATION`].
    #[must_use]
    pub fn compared(&self) -> Vec<(&'static str, f64, f64, bool)> {
        let pairs = self.small.named().into_iter().zip(self.large.named());
        pairs
            .map(|((name, small), (_, large))| {
                (name, small, large, (large / small - 1.0).abs() <= DEVIATION)
            })
            .collect()
    }

    /// Returns the bundles a second of the small and of the large fleet.
    fn bundles_a_second(&self) -> [f64; 2] {
        [self.small, self.large].map(|costs| f64::from(costs.devices) / costs.seconds)
    }

    /// Returns the processor time of intake and worker together, in microseconds a bundle, of the
    /// small and of the large fleet.
    fn intake_and_worker_us(&self) -> [f64; 2] {
        [self.small, self.large].map(|costs| costs.intake_us + costs.worker_us)
    }

    /// Returns one sentence for each limit that the results miss: [`DEVIATION`] for costs and totals, and
    /// [`BAR_US`].
    #[must_use]
    pub fn missed(&self) -> Vec<String> {
        let mut missed = self.deviating();
        if !self.is_within_bar() {
            let most = self.intake_and_worker_us().into_iter().fold(0.0, f64::max);
            missed.push(format!("intake and worker: {most:.1} us a bundle exceeds {BAR_US:.0} us"));
        }
        missed
    }

    /// Returns whether intake and worker together keep [`BAR_US`], which is for several bundles a request.
    fn is_within_bar(&self) -> bool {
        self.per_request == 1 || self.intake_and_worker_us().iter().all(|us| *us <= BAR_US)
    }

    fn deviating(&self) -> Vec<String> {
        let deviating = self.compared().into_iter().filter(|(.., agrees)| !agrees);
        let mut missed: Vec<String> = deviating
            .map(|(name, small, large, _)| {
                format!(
                    "{name}: {small:.1} and {large:.1} are more than {:.0} % apart",
                    100.0 * DEVIATION
                )
            })
            .collect();
        let deviating = self.totals.iter().filter(|total| !total.agrees());
        missed.extend(deviating.map(|Total { what, predicted, measured }| {
            format!(
                "{what}: {measured:.1} is more than {:.0} % from the prediction, {predicted:.1}",
                100.0 * DEVIATION
            )
        }));
        missed
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [small, large] =
            [&self.small, &self.large].map(|costs| thousands(costs.devices.into()));
        let readings = self.small.readings;
        writeln!(f, "{}, {readings} readings a bundle, {} replicas", self.machine, self.replicas)?;
        writeln!(f, "{} bundles a request, {} of each device", self.per_request, self.each)?;
        writeln!(f, "{:<28} {:>9} {:>9}", "devices", small, large)?;
        for (name, small, large, agrees) in self.compared() {
            let verdict = if agrees { "within 30 %" } else { "MISS: more than 30 % apart" };
            writeln!(f, "{name:<28} {small:>9.1} {large:>9.1}  {verdict}")?;
        }
        let [of_small, of_large] = self.intake_and_worker_us();
        let verdict = match self.is_within_bar() {
            _ if self.per_request == 1 => "no limit: one bundle a request".to_owned(),
            true => format!("<= {BAR_US:.0}: PASS"),
            false => format!("<= {BAR_US:.0}: MISS"),
        };
        let name = "intake and worker, us";
        writeln!(f, "{name:<28} {of_small:>9.1} {of_large:>9.1}  {verdict}")?;
        let [small, large] = self.bundles_a_second();
        writeln!(f, "{:<28} {small:>9.0} {large:>9.0}", "bundles a second")?;
        writeln!(f, "{:<44} {:>9} {:>9}", "totals of the large fleet", "predicted", "measured")?;
        for total in &self.totals {
            let Total { what, predicted, measured } = total;
            let verdict = if total.agrees() { "within 30 %" } else { "MISS: more than 30 % apart" };
            writeln!(f, "{what:<44} {predicted:>9.1} {measured:>9.1}  {verdict}")?;
        }
        Ok(())
    }
}

/// The results of one execution.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// The execution.
    pub execution: Execution,
    /// The repetitions: both fleets in each.
    pub repetitions: Vec<Scale>,
}

impl Results {
    /// Returns one sentence for each limit that the results miss. The medians of the repetitions count.
    #[must_use]
    pub fn missed(&self) -> Vec<String> {
        self.median().map_or_else(Vec::new, |median| median.missed())
    }

    /// Returns the medians of the costs of the repetitions, and what they predict.
    fn median(&self) -> Option<Scale> {
        let fleet = |of: fn(&Scale) -> &Costs| Costs::medians(self.repetitions.iter().map(of));
        let (small, large) = (fleet(|scale| &scale.small)?, fleet(|scale| &scale.large)?);
        let first = self.repetitions.first()?.clone();
        Some(Scale { small, large, ..first }.with_totals())
    }
}

impl fmt::Display for Results {
    /// Writes a table of each repetition and, if there are several, one of medians and ranges.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for scale in &self.repetitions {
            writeln!(f, "{scale}")?;
        }
        let [first, _, ..] = &self.repetitions[..] else { return Ok(()) };
        let mut row = |name: &str, of: &dyn Fn(&Scale) -> [f64; 2]| {
            let [small, large] = [0, 1].map(|fleet| {
                range(self.repetitions.iter().map(|scale| of(scale)[fleet]).collect())
            });
            writeln!(f, "{name:<28} {small:>24} {large:>24}")
        };
        row("median (range)", &|scale| [scale.small, scale.large].map(|of| of.devices.into()))?;
        for (place, (name, ..)) in first.compared().into_iter().enumerate() {
            row(name, &|scale| {
                let (_, small, large, _) = scale.compared()[place];
                [small, large]
            })?;
        }
        row("intake and worker, us", &Scale::intake_and_worker_us)?;
        row("bundles a second", &Scale::bundles_a_second)?;
        let Some(median) = self.median() else { return Ok(()) };
        writeln!(f, "\nthe medians and what they predict:\n{median}")
    }
}

/// Returns the median of values, which it sorts.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.len() % 2, middle.checked_sub(1)) {
        (0, Some(before)) => f64::midpoint(values[before], values[middle]),
        _ => values.get(middle).copied().unwrap_or_default(),
    }
}

/// Returns the median, the least and the largest value.
fn range(mut values: Vec<f64>) -> String {
    let median = median(&mut values);
    match (values.first(), values.last()) {
        (Some(least), Some(most)) if least < most => {
            format!("{median:.1} ({least:.1} to {most:.1})")
        }
        _ => format!("{median:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two fleets with the same costs, which keep all limits.
    fn scale() -> Scale {
        let costs = Costs {
            devices: 10,
            readings: 298,
            bundle_bytes: 1366.0,
            seconds: 1.0,
            intake_us: 80.0,
            stream_us: 50.0,
            followers_us: None,
            worker_us: 60.0,
            cassandra_us: Some(700.0),
            stored: 20,
            disk_bytes: 4.7,
        };
        Scale {
            machine: "a machine".to_owned(),
            processors: 2,
            replicas: 1,
            per_request: 16,
            each: 1,
            small: costs,
            large: costs,
            totals: Vec::new(),
        }
        .with_totals()
    }

    #[test]
    fn the_missed_limits_are_those_that_the_table_marks() {
        let kept = scale();
        assert!(kept.missed().is_empty() && !kept.to_string().contains("MISS"), "{kept}");

        let mut apart = scale();
        apart.large.disk_bytes = 6.2;
        assert_eq!(apart.missed(), ["disk, bytes a reading: 4.7 and 6.2 are more than 30 % apart"]);
        assert_eq!(apart.to_string().matches("MISS").count(), 1, "{apart}");

        let mut slow = scale();
        slow.large.intake_us = 90.5;
        assert_eq!(slow.missed(), ["intake and worker: 150.5 us a bundle exceeds 150 us"]);
        let single = Scale { per_request: 1, ..slow.clone() };
        assert!(single.missed().is_empty() && single.to_string().contains("no limit"), "{single}");
        assert_eq!(slow.to_string().matches("MISS").count(), 1, "{slow}");
    }

    #[test]
    fn the_totals_of_the_large_fleet_are_predicted_from_the_costs_of_the_small_one() {
        let Scale { small, .. } = scale();
        // Ten times as many bundles in 0.4 s, with other costs.
        let large = Costs {
            devices: 100,
            stored: 200,
            seconds: 0.4,
            intake_us: 100.0,
            cassandra_us: Some(1000.0),
            disk_bytes: 6.0,
            ..small
        };
        let scale = Scale { large, ..scale() }.with_totals();
        let totals: Vec<(&str, String, String, bool)> = scale
            .totals
            .iter()
            .map(|total| {
                let [predicted, measured] =
                    [total.predicted, total.measured].map(|value| format!("{value:.4}"));
                (&*total.what, predicted, measured, total.agrees())
            })
            .collect();
        let expected = [
            ("intake, s of processor time", "0.0080", "0.0100", true),
            ("stream, s of processor time", "0.0050", "0.0050", true),
            ("worker, s of processor time", "0.0060", "0.0060", true),
            ("Cassandra, s of processor time", "0.0700", "0.1000", false),
            // 200 bundles of 298 readings with 4.7 and with 6 bytes.
            ("disk, MiB of 200 bundles", "0.2671", "0.3410", true),
            // 0.089 s of processor time in 0.4 s are less than a node.
            ("nodes of 2 processors for all processes", "1.0000", "1.0000", true),
        ];
        for ((what, predicted, measured, agrees), expected) in totals.iter().zip(expected) {
            assert_eq!((*what, &**predicted, &**measured, *agrees), expected);
        }
        assert_eq!(totals.len(), expected.len());
        let missed = scale.missed().join("\n");
        assert!(
            missed.contains("Cassandra, s of processor time: 0.1 is more than 30 % from"),
            "{missed}"
        );
        // The small fleet predicts three machines, but the run used one.
        let fast = Costs { seconds: 0.018, ..scale.large };
        let fast = Scale { large: fast, ..scale }.with_totals();
        let nodes = fast.totals.last().cloned().expect("there are totals");
        assert_eq!((nodes.predicted.to_string(), nodes.agrees()), ("3".to_owned(), false));
    }

    #[test]
    fn with_three_servers_the_model_has_a_leader_and_the_others() {
        let Scale { small, .. } = scale();
        let costs = Costs { stream_us: 80.0, followers_us: Some(50.0), ..small };
        let scale = Scale { replicas: 3, small: costs, large: costs, ..scale() }.with_totals();
        let times: Vec<(&str, String)> = scale.totals[1..3]
            .iter()
            .map(|total| (&*total.what, format!("{:.4}", total.predicted)))
            .collect();
        assert_eq!(
            times,
            [
                ("leader of the stream, s of processor time", "0.0008".to_owned()),
                ("other nats-servers, s of processor time", "0.0010".to_owned()),
            ]
        );
    }

    #[test]
    fn the_medians_of_several_repetitions_count() {
        let execution = Execution { command: "c".to_owned(), date: "d".to_owned() };
        let repetitions = [80.0, 95.5, 91.0].map(|intake_us| {
            let costs = Costs { intake_us, ..scale().small };
            Scale { small: costs, large: costs, ..scale() }.with_totals()
        });
        let mut results = Results { execution, repetitions: repetitions.to_vec() };
        assert_eq!(results.missed(), ["intake and worker: 151.0 us a bundle exceeds 150 us"]);
        let text = results.to_string();
        for part in ["91.0 (80.0 to 95.5)", "151.0 (140.0 to 155.5)", "151.0  <= 150: MISS"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        results.repetitions[2].large.intake_us = 82.0;
        results.repetitions[2].small.intake_us = 82.0;
        assert!(results.missed().is_empty(), "one of three");
        results.repetitions[0].large.disk_bytes = 6.2;
        results.repetitions[2].large.disk_bytes = 6.2;
        assert!(results.missed()[0].starts_with("disk, bytes a reading"));
        results.repetitions.truncate(1);
        assert!(results.missed().len() > 1 && !results.to_string().contains("median"));
    }
}
