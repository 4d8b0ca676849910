//! Makes the key files of private sums.

use std::path::PathBuf;

use moteseal_client::input;
use moteseal_client::sum::setup;
use pyo3::prelude::*;

use crate::question::number;
use crate::source::roster;
use crate::work;

/// Makes the key files of private sums, as `moteseal sum setup` does, and returns their paths.
///
/// querier.sum.key comes first and stays with the querier; NAME.sum.key goes to that device only.
/// querier is the key that signs queries, either half. Devices are divided into key_groups: a
/// device whose key is stolen can falsify the sums of its group only. No file is replaced.
#[pyfunction]
#[pyo3(signature = (roster, operator = None, *, querier, out, key_groups = None))]
pub(crate) fn setup_sums(
    py: Python<'_>,
    roster: &Bound<'_, PyAny>,
    operator: Option<PathBuf>,
    querier: PathBuf,
    out: PathBuf,
    key_groups: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<PathBuf>> {
    let roster = self::roster(roster, operator)?.get().roster.clone();
    let key_groups = key_groups.map_or(Ok(1), |groups| number::<u32>(groups, "key_groups"))?;
    work::run(py, move |_| {
        let querier = input::public_half(&querier)?;
        let files = setup(&roster, &querier, &out, key_groups, &mut || ())?;
        Ok([vec![files.querier], files.devices].concat())
    })
}
