//! Converts the arguments with the keys of encrypted columns: grants and stream secrets.

use std::path::PathBuf;

use moteseal_client::decrypt::{ColumnKeyFiles, Passphrase};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMapping, PyString};

use crate::query::wrong_type;

/// Returns the files that the arguments `grants`, `identity` and `stream_secrets` name.
pub(crate) fn key_files(
    grants: Option<&Bound<'_, PyAny>>,
    identity: Option<PathBuf>,
    passphrase: Option<&Bound<'_, PyAny>>,
    stream_secrets: Option<&Bound<'_, PyAny>>,
) -> PyResult<ColumnKeyFiles> {
    let grants = grants.map(paths).transpose()?.unwrap_or_default();
    if grants.is_empty() == (identity.is_some() || passphrase.is_some()) {
        return Err(PyValueError::new_err(
            "grants, identity, passphrase: give grants with the identity or the passphrase that opens \
             them, or none of the three",
        ));
    }
    let passphrase = passphrase.map(|given| {
        let text =
            given.cast::<PyString>().map_err(|_| wrong_type("passphrase", "a str", given))?;
        Passphrase::new(text.to_str()?)
            .map_err(|error| PyValueError::new_err(format!("passphrase: {error}")))
    });
    let passphrase = passphrase.transpose()?;
    let stream_secrets = stream_secrets.map(secrets).transpose()?.unwrap_or_default();
    Ok(ColumnKeyFiles { grants, identity, passphrase, stream_secrets })
}

/// Converts a path, or an iterable of paths.
fn paths(grants: &Bound<'_, PyAny>) -> PyResult<Vec<PathBuf>> {
    let wrong =
        |found: &Bound<'_, PyAny>| wrong_type("grants", "a path or an iterable of paths", found);
    if let Ok(path) = grants.extract() {
        return Ok(vec![path]);
    }
    if grants.is_instance_of::<PyBytes>() {
        return Err(wrong(grants));
    }
    let each = grants.try_iter().map_err(|_| wrong(grants))?;
    each.map(|path| path.and_then(|path| path.extract().map_err(|_| wrong(&path)))).collect()
}

/// Converts a mapping from the names of devices to paths.
fn secrets(secrets: &Bound<'_, PyAny>) -> PyResult<Vec<(String, PathBuf)>> {
    let wrong = |found: &Bound<'_, PyAny>| {
        wrong_type("stream_secrets", "a dict from names of devices to paths", found)
    };
    let each = secrets.cast::<PyMapping>().map_err(|_| wrong(secrets))?.items()?;
    each.iter().map(|item| item.extract().map_err(|_| wrong(secrets))).collect()
}
