//! Makes the key files of private sums.

use std::path::PathBuf;

use moteseal_client::input;
use moteseal_client::sum::setup;
use pyo3::prelude::*;

use crate::query::number;
use crate::roster::roster;
use crate::work;

/// Creates the key files of private sums, as `moteseal sum setup` does, and returns their paths.
///
/// querier is its name, and the path of a file with the key that signs queries: its public or its
/// private key file. The first path is querier.sum.key, which stays with the querier. Copy each NAME.sum.key only to
/// the device NAME. key_groups is the number of groups into which the devices are divided, by
/// default at most 8, of at least 5 devices each. An attacker with a stolen device key can falsify
/// only the sums of that device's group. With masks, the devices answer only under a policy, and a
/// querier that the policy does not trust with readings can open only the sums of whole key groups.
/// Existing files are not replaced.
#[pyfunction]
#[pyo3(signature = (roster, operator = None, *, querier, out, key_groups = None, masks = false))]
pub(crate) fn setup_sums(
    py: Python<'_>,
    roster: &Bound<'_, PyAny>,
    operator: Option<PathBuf>,
    querier: (String, PathBuf),
    out: PathBuf,
    key_groups: Option<&Bound<'_, PyAny>>,
    masks: bool,
) -> PyResult<Vec<PathBuf>> {
    let roster = self::roster(roster, operator)?.get().roster.clone();
    let key_groups = key_groups.map(|groups| number::<u32>(groups, "key_groups")).transpose()?;
    work::run(py, move |_| {
        let (name, querier) = (querier.0, input::public_half(&querier.1)?);
        let files = setup(&roster, (&name, &querier), &out, key_groups, masks, &mut || ())?;
        Ok([vec![files.querier], files.devices].concat())
    })
}
