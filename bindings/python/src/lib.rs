//! Moteseal for Python: provides `moteseal-client` to Python as the extension module
//! `moteseal._moteseal`.
//!
//! This crate only converts types; the client library fetches and verifies. Module [`query`]
//! converts arguments to queries, and module [`keys`] those that name keys. Module [`arrow_rows`]
//! converts responses to Arrow tables, which data frame libraries import without copying them. Module
//! [`redaction`] makes proofs of proofs. Module [`failure`] converts errors to exceptions. Module [`work`] runs the work on a background thread, without Python's lock, and
//! stops it on an interrupt.

mod arrow_rows;
mod bundles;
mod client;
mod estimate;
mod failure;
mod keys;
mod query;
mod redaction;
mod roster;
mod sums;
mod verification_report;
mod work;

use pyo3::prelude::*;

/// The compiled part of Moteseal for Python. Import the package `moteseal` instead; it has the
/// documentation.
#[pymodule]
mod _moteseal {
    #[pymodule_export]
    use crate::arrow_rows::{Answer, verify_proof};
    #[pymodule_export]
    use crate::bundles::{BundleReport, is_proof, verify_bundles};
    #[pymodule_export]
    use crate::client::Client;
    #[pymodule_export]
    use crate::estimate::{Bin, Estimates, Interval};
    #[pymodule_export]
    use crate::redaction::{merge, redact};
    #[pymodule_export]
    use crate::roster::Roster;
    #[pymodule_export]
    use crate::sums::{Following, QuerierConfig, follow_sums, setup_sums};
    #[pymodule_export]
    use crate::verification_report::{DeviceReport, Outage, Report};
}
