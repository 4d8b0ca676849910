//! Moteseal for Python: the data application of `moteseal-client` as the extension module `moteseal._moteseal`.
//!
//! This is composition and translation only: arguments become queries ([`question`]), answers become Arrow tables that any data frame
//! takes without a copy ([`answer`]), errors become exceptions of the same names ([`failure`]). All work is done without Python's lock,
//! by a thread of its own that an interrupt stops ([`work`]). Nothing is verified here; the client does that.

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
    use crate::sums::{Following, follow_sums, setup_sums};
}
