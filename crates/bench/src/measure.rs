//! Runs measurements in interleaved repetitions, and collects the results in a table.
//!
//! Within each repetition the contenders take turns, so that a temporarily slow machine slows all
//! of them. A reported ratio is the median of the ratios within each repetition. The clock counts
//! the processor time of the thread if the system has such a clock, so the time of other programs
//! is not counted.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

/// An operation whose time is compared with that of other operations.
pub(crate) struct Contender<'a> {
    /// The number of units in one repetition, such as events, leaves or signatures.
    units: f64,
    run: Box<dyn FnMut() + 'a>,
}

impl<'a> Contender<'a> {
    pub(crate) fn new(units: usize, run: impl FnMut() + 'a) -> Self {
        #[allow(clippy::cast_precision_loss)]
        Self { units: units as f64, run: Box::new(run) }
    }
}

/// The times in nanoseconds per unit, by contender and repetition.
pub(crate) struct Times(Vec<Vec<f64>>);

/// Measures all contenders in turn, once to warm up and then `repetitions` times.
pub(crate) fn interleaved(repetitions: usize, contenders: &mut [Contender<'_>]) -> Times {
    let mut times = vec![Vec::with_capacity(repetitions); contenders.len()];
    for repetition in 0..=repetitions {
        for (contender, times) in contenders.iter_mut().zip(&mut times) {
            let start = thread_time();
            (contender.run)();
            #[allow(clippy::cast_precision_loss)]
            let nanoseconds = (thread_time() - start).as_nanos() as f64;
            if repetition > 0 {
                times.push(nanoseconds / contender.units);
            }
        }
    }
    Times(times)
}

/// Returns the processor time of this thread.
#[cfg(unix)]
#[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)]
pub(crate) fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the elapsed time, on systems without a processor clock for threads.
#[cfg(not(unix))]
pub(crate) fn thread_time() -> Duration {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed()
}

impl Times {
    /// Returns the median time in nanoseconds per unit.
    pub(crate) fn nanoseconds(&self, contender: usize) -> f64 {
        median(self.0[contender].clone())
    }

    /// Returns the time of each repetition in nanoseconds per unit.
    pub(crate) fn repetitions(&self, contender: usize) -> &[f64] {
        &self.0[contender]
    }

    /// Returns the time of a contender divided by the time of `base`.
    pub(crate) fn ratio(&self, contender: usize, base: usize) -> f64 {
        self.ratios(contender, base).median
    }

    /// Returns the time in nanoseconds per unit, with the spread of the repetitions.
    pub(crate) fn spread(&self, contender: usize) -> Spread {
        Spread::of(self.0[contender].clone())
    }

    /// Returns the time of a contender divided by the time of `base`, with the spread of the ratios
    /// within each repetition.
    pub(crate) fn ratios(&self, contender: usize, base: usize) -> Spread {
        Spread::of(
            self.0[contender].iter().zip(&self.0[base]).map(|(time, base)| time / base).collect(),
        )
    }
}

/// The median of several repetitions, and the bounds of the middle half of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    low: f64,
    high: f64,
}

impl Spread {
    /// Returns the spread of the values times a factor.
    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self { median: self.median * factor, low: self.low * factor, high: self.high * factor }
    }

    /// Computes the median and quartiles of some values. A quartile is always one of the values;
    /// its rank is rounded away from the median.
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let quarter = values.len().saturating_sub(1) / 4;
        Self {
            low: values[quarter],
            high: values[values.len() - 1 - quarter],
            median: median(values),
        }
    }
}

/// Returns the median: the middle value, or the mean of the two middle values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// The bar of a measurement: a limit on its result.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bar {
    AtMost(f64),
    AtLeast(f64),
}

#[derive(Clone, Debug)]
struct Row {
    name: String,
    value: f64,
    unit: &'static str,
    /// The bounds of the middle half of the repetitions, if they are known.
    quartiles: Option<(f64, f64)>,
    bar: Option<Bar>,
}

impl Row {
    fn passes(&self) -> bool {
        match self.bar {
            None => true,
            Some(Bar::AtMost(most)) => self.value <= most,
            Some(Bar::AtLeast(least)) => self.value >= least,
        }
    }
}

/// The measurements of one suite, which are printed as a table or as JSON.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    title: String,
    rows: Vec<Row>,
}

impl Report {
    pub(crate) fn new(title: String) -> Self {
        Self { title, rows: Vec::new() }
    }

    pub(crate) fn add(
        &mut self,
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
        bar: impl Into<Option<Bar>>,
    ) {
        self.rows.push(Row { name: name.into(), value, unit, quartiles: None, bar: bar.into() });
    }

    /// Adds a row with the spread of its repetitions.
    pub(crate) fn add_spread(
        &mut self,
        name: impl Into<String>,
        of: Spread,
        unit: &'static str,
        bar: impl Into<Option<Bar>>,
    ) {
        let quartiles = Some((of.low, of.high));
        self.rows.push(Row {
            name: name.into(),
            value: of.median,
            unit,
            quartiles,
            bar: bar.into(),
        });
    }

    pub(crate) fn passes(&self) -> bool {
        self.rows.iter().all(Row::passes)
    }

    pub(crate) fn to_json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let (at_most, at_least) = match row.bar {
                Some(Bar::AtMost(most)) => (Some(most), None),
                Some(Bar::AtLeast(least)) => (None, Some(least)),
                None => (None, None),
            };
            let verdict = row.bar.map(|_| if row.passes() { "PASS" } else { "MISS" });
            json!({
                "name": row.name, "value": row.value, "unit": row.unit, "quartiles": row.quartiles,
                "at_most": at_most, "at_least": at_least, "verdict": verdict,
            })
        });
        json!({ "title": self.title, "rows": rows.collect::<Vec<_>>(), "pass": self.passes() })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        let width = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        for row in &self.rows {
            let precision = if row.value >= 100.0 { 0 } else { 3 };
            write!(f, "  {:width$}  {:>10.precision$} {:2}", row.name, row.value, row.unit)?;
            if let Some((low, high)) = row.quartiles {
                write!(f, "  ({low:.precision$} to {high:.precision$})")?;
            }
            match row.bar {
                None => writeln!(f)?,
                Some(bar) => {
                    let (sign, bar) = match bar {
                        Bar::AtMost(most) => ("<=", most),
                        Bar::AtLeast(least) => (">=", least),
                    };
                    writeln!(
                        f,
                        "   {sign} {bar:<5}  {}",
                        if row.passes() { "PASS" } else { "MISS" }
                    )?;
                }
            }
        }
        Ok(())
    }
}
