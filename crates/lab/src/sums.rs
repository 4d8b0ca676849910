//! Computes the costs of secure sums by the models of Papadopoulos, Kiayias and Papadias, "Secure
//! and Efficient In-Network Processing of Exact SUM Queries" (ICDE 2011), section V. Equations 1 to
//! 11 derive the costs of CMT, `SECOA^S` and SIES from the costs of primitives. The module also
//! contains the paper's numbers.
//!
//! This module only calculates. `SECOA` is patented in the United States. The product contains
//! neither CMT nor `SECOA^S`. `moteseal-bench sums` runs and times all schemes, and passes its
//! results as [`Measured`] to [`report::sums`](crate::report::sums).

use serde::Serialize;

/// The costs of the primitives of table II on one machine, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Primitives {
    /// `C_sk`: an insertion into a sketch.
    pub sketch: f64,
    /// `C_RSA`: an RSA encryption.
    pub rsa: f64,
    /// `C_HM1`: HMAC over SHA-1.
    pub hm1: f64,
    /// `C_HM256`: HMAC over SHA-256.
    pub hm256: f64,
    /// `C_A20`: a 20-byte modular addition.
    pub add20: f64,
    /// `C_A32`: a 32-byte modular addition.
    pub add32: f64,
    /// `C_M32`: a 32-byte modular multiplication.
    pub multiply32: f64,
    /// `C_M128`: a 128-byte modular multiplication.
    pub multiply128: f64,
    /// `C_MI32`: a 32-byte inverse.
    pub invert32: f64,
}

impl Primitives {
    /// The paper's values in table II.
    pub const PAPER: Self = Self {
        sketch: 0.037,
        rsa: 5.36,
        hm1: 0.46,
        hm256: 1.02,
        add20: 0.15,
        add32: 0.37,
        multiply32: 0.45,
        multiply128: 1.39,
        invert32: 3.2,
    };

    /// Returns each primitive with the paper's symbol and meaning, in the order of table II.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, &'static str, f64); 9] {
        [
            ("C_sk", "sketch generation", self.sketch),
            ("C_RSA", "RSA encryption", self.rsa),
            ("C_HM1", "HMAC over SHA-1", self.hm1),
            ("C_HM256", "HMAC over SHA-256", self.hm256),
            ("C_A20", "20-byte modular addition", self.add20),
            ("C_A32", "32-byte modular addition", self.add32),
            ("C_M32", "32-byte modular multiplication", self.multiply32),
            ("C_M128", "128-byte modular multiplication", self.multiply128),
            ("C_MI32", "32-byte multiplicative inverse", self.invert32),
        ]
    }
}

/// The parameters of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// `N`: number of sources.
    pub sources: u32,
    /// `J`: number of sketches per source.
    pub sketches: u32,
    /// `F`: number of children of an aggregator.
    pub fanout: u32,
    /// `D_L`: the smallest value of a source.
    pub lowest: u64,
    /// `D_U`: the largest value of a source.
    pub highest: u64,
}

impl Setting {
    /// The defaults of table IV.
    pub const DEFAULT: Self =
        Self { sources: 1024, sketches: 300, fanout: 4, lowest: 1800, highest: 5000 };

    /// Returns the upper bound of `x_i`, which is `log2(N * D_U)`, rounded up. With the default
    /// setting it is 23, as in table II.
    #[must_use]
    pub fn largest_sketch(&self) -> u32 {
        (u128::from(self.sources) * u128::from(self.highest)).next_power_of_two().ilog2()
    }
}

/// The lowest and the highest cost that readings can cause.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bounds {
    /// The best case.
    pub least: f64,
    /// The worst case.
    pub most: f64,
}

/// The cost of each scheme, all in the same unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// The value for CMT.
    pub cmt: f64,
    /// The value for `SECOA^S`.
    pub secoa: Bounds,
    /// The cost of SIES as in the paper.
    pub sies: f64,
}

/// Evaluates equations 1 to 3: the time that a source takes per reading, in microseconds.
#[must_use]
pub fn source(cost: &Primitives, setting: &Setting) -> Model {
    let sketches = f64::from(setting.sketches);
    let secoa = |value: u64, position: u32| {
        sketches * (as_f64(value) * cost.sketch + 2.0 * cost.hm1)
            + sketches * f64::from(position) * cost.rsa
    };
    Model {
        cmt: cost.hm1 + cost.add20,
        secoa: Bounds {
            least: secoa(setting.lowest, 0),
            most: secoa(setting.highest, setting.largest_sketch()),
        },
        sies: 2.0 * cost.hm256 + cost.hm1 + cost.multiply32 + cost.add32,
    }
}

/// Evaluates equations 4 to 6: the time that an aggregator takes per epoch, in microseconds. The
/// number of times that a SEAL is rolled is below the largest value of a sketch (table II).
#[must_use]
pub fn aggregator(cost: &Primitives, setting: &Setting) -> Model {
    let (sketches, merges) =
        (f64::from(setting.sketches), f64::from(setting.fanout.saturating_sub(1)));
    let secoa =
        |rolls: u32| sketches * merges * cost.multiply128 + sketches * f64::from(rolls) * cost.rsa;
    Model {
        cmt: merges * cost.add20,
        secoa: Bounds { least: secoa(0), most: secoa(setting.largest_sketch().saturating_sub(1)) },
        sies: merges * cost.add32,
    }
}

/// Evaluates equations 7 to 9: the time that the querier takes per epoch, in microseconds. The
/// SEALs from the sink are folded in ascending order of their positions, so each roll from the
/// lowest position to the highest is needed only once for all of them.
#[must_use]
pub fn querier(cost: &Primitives, setting: &Setting) -> Model {
    let (n, j) = (f64::from(setting.sources), f64::from(setting.sketches));
    let secoa = |seals: u32, rolls: u32| {
        j * n * cost.hm1
            + (f64::from(seals) + j * n - 2.0) * cost.multiply128
            + f64::from(rolls) * cost.rsa
            + j * cost.hm1
    };
    let highest = setting.largest_sketch();
    Model {
        cmt: n * (cost.hm1 + cost.add20),
        secoa: Bounds {
            least: secoa(1, 0),
            most: secoa(highest, highest + highest.saturating_sub(1)),
        },
        sies: n * cost.hm1
            + (n + 1.0) * cost.hm256
            + (2.0 * n - 1.0) * cost.add32
            + cost.invert32
            + cost.multiply32,
    }
}

/// Evaluates equation 10: the bytes of `SECOA^S` between a source and an aggregator, and between
/// two aggregators.
#[must_use]
pub fn secoa_edge(setting: &Setting) -> f64 {
    f64::from(setting.sketches) * (1.0 + 128.0) + 20.0
}

/// Evaluates equation 11: the bytes of `SECOA^S` between the sink and the querier.
#[must_use]
pub fn secoa_last_edge(setting: &Setting) -> Bounds {
    let bytes = |seals: u32| f64::from(setting.sketches) + f64::from(seals) * 128.0 + 20.0;
    Bounds { least: bytes(1), most: bytes(setting.largest_sketch()) }
}

/// The mean time of each scheme in one setting, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The setting.
    pub setting: Setting,
    /// The power of ten by which the readings were multiplied.
    pub decimals: u32,
    /// Number of epochs over which CMT and SIES are averaged.
    pub epochs: u32,
    /// The value for CMT.
    pub cmt: f64,
    /// The time of SIES exactly as in the paper.
    pub sies_paper: f64,
    /// The time of the product's SIES.
    pub sies: f64,
    /// The value for `SECOA^S`.
    pub secoa: f64,
    /// Number of epochs over which `SECOA^S` is averaged. There are fewer of these epochs, because
    /// one of them takes a long time.
    pub secoa_epochs: u32,
}

/// The bytes that are sent over an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Edges {
    /// The size of CMT's ciphertext.
    pub cmt: u64,
    /// The size of a PSR of the paper's SIES.
    pub sies_paper: u64,
    /// The size of a PSR of the product's SIES.
    pub sies: u64,
    /// The size of the product's whole frame from a source, and from an aggregator if all sources
    /// take part.
    pub sies_frames: (u64, u64),
    /// The bytes of `SECOA^S` from a source or an aggregator.
    pub secoa: u64,
    /// The bytes of `SECOA^S` from the sink to the querier, on average.
    pub secoa_last: u64,
    /// The average number of SEALs from the sink to the querier.
    pub seals: f64,
}

/// The errors of the sums that `SECOA^S` estimated, over all measured epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Accuracy {
    /// The number of estimates.
    pub estimates: u32,
    /// The mean of the relative error of `2^mean`: 0.1 means that the estimate is 10 % above the
    /// sum.
    pub bias: f64,
    /// The share of the estimates that are within 10 % of the sum, computed exactly as in the
    /// paper.
    pub within_tenth: f64,
    /// The same share after the expected bias has been removed.
    pub corrected_within_tenth: f64,
}

/// All measurements of one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The names of the vector loops that the machine supports.
    pub host: String,
    /// Table II.
    pub primitives: Primitives,
    /// Figure 4: a source, by the domain.
    pub source: Vec<Point>,
    /// Figure 5: an aggregator, by the fan-out.
    pub aggregator: Vec<Point>,
    /// Figure 6a: the querier, by the number of sources.
    pub querier_by_sources: Vec<Point>,
    /// Figure 6b: the querier, by the domain.
    pub querier_by_domain: Vec<Point>,
    /// Table V.
    pub edges: Edges,
    /// The errors of `SECOA^S`'s estimates.
    pub accuracy: Accuracy,
    /// The number of exact sums that were opened. Each was equal to the sum of the plain values.
    pub exact: u64,
}

#[allow(clippy::cast_precision_loss)]
const fn as_f64(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, printed: f64, digits: i32) {
        let unit = 10_f64.powi(-digits);
        assert!(
            (value - printed).abs() <= 1.01 * unit,
            "{value}, where the paper prints {printed}"
        );
    }

    #[test]
    fn the_equations_give_the_values_of_table_iii() {
        let (cost, setting) = (Primitives::PAPER, Setting::DEFAULT);
        assert_eq!(setting.largest_sketch(), 23);
        let source = source(&cost, &setting);
        near(source.secoa.least / 1e3, 20.26, 2);
        near(source.secoa.most / 1e3, 92.75, 2);
        let aggregator = aggregator(&cost, &setting);
        near(aggregator.cmt, 0.45, 2);
        near(aggregator.secoa.least / 1e3, 1.25, 2);
        near(aggregator.secoa.most / 1e3, 36.63, 2);
        near(aggregator.sies, 1.11, 2);
        let querier = querier(&cost, &setting);
        near(querier.cmt / 1e3, 0.62, 2);
        near(querier.secoa.least / 1e3, 568.46, 2);
        near(querier.sies / 1e3, 2.28, 2);
        near(secoa_edge(&setting) / 1e3, 38.72, 2);
        near(secoa_last_edge(&setting).least / 1e3, 0.44, 2);
        near(secoa_last_edge(&setting).most / 1e3, 3.25, 1);
    }

    /// The values of table III that do not follow from the paper's own equations and table II.
    #[test]
    fn the_equations_differ_from_table_iii_in_three_places() {
        let (cost, setting) = (Primitives::PAPER, Setting::DEFAULT);
        // The paper prints 1.17, which is the cost of `HM_256` and an addition; equation 1 has
        // `HM_1`.
        near(source(&cost, &setting).cmt, 0.61, 2);
        // The paper prints 3.46 for SIES at a source.
        near(source(&cost, &setting).sies, 3.32, 2);
        // The paper prints 568.63 for the worst case of SECOA at the querier.
        near(querier(&cost, &setting).secoa.most / 1e3, 568.73, 2);
    }
}
