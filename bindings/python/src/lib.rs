//! Moteseal for Python: the data application of `moteseal-client` as the extension module
//! `moteseal._moteseal`.
//!
//! This crate converts types only. Arguments become queries ([`question`]), responses become Arrow
//! tables that data frames import without a copy ([`answer`]), and errors become exceptions
//! ([`failure`]). A background thread does the work without Python's lock, and an interrupt stops
//! it ([`work`]). The client library verifies.

mod answer;
mod bundles;
mod client;
mod estimate;
mod failure;
mod question;
mod report;
mod source;
mod sums;
mod work;

use pyo3::prelude::*;

/// Moteseal for Python, compiled. Use the package `moteseal`, which explains it.
#[pymodule]
mod _moteseal {
    #[pymodule_export]
    use crate::answer::{Answer, verify_proof};
    #[pymodule_export]
    use crate::bundles::{BundleReport, is_proof, verify_bundles};
    #[pymodule_export]
    use crate::client::Client;
    #[pymodule_export]
    use crate::estimate::{Bin, Estimates, Interval};
    #[pymodule_export]
    use crate::report::{DeviceReport, Outage, Report};
    #[pymodule_export]
    use crate::source::Roster;
    #[pymodule_export]
    use crate::sums::{Following, QuerierConfig, follow_sums, setup_sums};
}
