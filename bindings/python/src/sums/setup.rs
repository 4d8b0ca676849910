//! The keys of private sums: a file a device and one for the querier, from which all others follow.

use std::fs::{OpenOptions, create_dir_all, hard_link, remove_file};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use moteseal_core::identity::{decode_public_pem, decode_secret_pem};
use moteseal_core::roster::Directory as _;
use moteseal_core::signature::PublicKey;
use moteseal_sum::key_file::{Circle, MAX_KEY_FILE, QuerierKeys};
use moteseal_verify::Roster;
use pyo3::prelude::*;
use zeroize::Zeroizing;

use super::secret;
use crate::failure::{Kind, Problem};
use crate::question::number;
use crate::source::roster;
use crate::work;

/// Makes the keys of private sums, as `moteseal sum setup` does: NAME.sum.key for each device of the roster, which goes to that device
/// only, and querier.sum.key, which stays with the querier. querier is the key that queries are signed with, either half. Devices are
/// divided into key_groups: whoever breaks into a device can bend the sums of its group only. Gives the paths; no file is ever replaced.
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
    work::run(py, move |_| setup(&roster, &querier, &out, key_groups))
}

fn setup(
    roster: &Roster,
    querier: &Path,
    out: &Path,
    key_groups: u32,
) -> Result<Vec<PathBuf>, Problem> {
    let wrong = |text: std::fmt::Arguments<'_>| Problem::new(Kind::Usage, "UsageError", text);
    let querier = public_half(querier)?;
    let devices: Vec<_> = roster.devices().collect();
    let sources = u32::try_from(devices.len())
        .map_err(|_| wrong(format_args!("the roster has too many devices")))?;
    if key_groups == 0 || key_groups > sources {
        return Err(wrong(format_args!(
            "key_groups: between 1 and the number of devices, {sources}, not {key_groups}"
        )));
    }
    let circle = Circle {
        group: roster.group(),
        roster: roster.digest(),
        sources,
        key_group: sources.div_ceil(key_groups),
    };
    let mut paths = vec![out.join("querier.sum.key")];
    for device in &devices {
        let name = &device.name;
        if name.contains(['/', '\0']) || name.starts_with('.') || name == "querier" {
            return Err(wrong(format_args!(
                "the roster's device {name:?} cannot name a key file; rename it"
            )));
        }
        paths.push(out.join(format!("{name}.sum.key")));
    }
    if let Some(taken) = paths.iter().find(|path| path.exists()) {
        return Err(Problem::new(
            Kind::Usage,
            "BadFile",
            format_args!("{} exists already; keys are never replaced", taken.display()),
        ));
    }
    let mut secret = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *secret).map_err(|error| {
        Problem::system(format_args!("the system has no random bytes: {error}"))
    })?;
    let mut pem = Zeroizing::new([0; MAX_KEY_FILE]);
    let text =
        QuerierKeys::encode(&circle, &querier, &secret, &mut *pem).map_err(Problem::system)?;
    let keys = QuerierKeys::decode(text.as_bytes()).map_err(Problem::system)?;
    create_dir_all(out).map_err(|error| unwritten(out, &error))?;
    // Written first: keys of devices that no querier has are worth nothing.
    create(&paths[0], text.as_bytes())?;
    for ((position, device), path) in (0..).zip(&devices).zip(&paths[1..]) {
        let text = keys.source(device.id, position).encode(&mut *pem).map_err(Problem::system)?;
        create(path, text.as_bytes())?;
    }
    Ok(paths)
}

/// The public half of a key, whichever half the file has.
fn public_half(path: &Path) -> Result<PublicKey, Problem> {
    let bytes = secret(path)?;
    match decode_secret_pem(&bytes) {
        Ok(secret) => Ok(secret.public()),
        Err(_) => decode_public_pem(&bytes)
            .map_err(|error| Problem::named(Kind::Usage, "BadFile", error.named()).in_file(path)),
    }
}

/// Writes a new file, readable by its owner only, whole or not at all; never over another.
fn create(path: &Path, bytes: &[u8]) -> Result<(), Problem> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
    let written = (|| {
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        // A link fails where a rename would replace what another process has made meanwhile.
        hard_link(&temporary, path)
    })();
    let _ = remove_file(&temporary);
    written.map_err(|error| unwritten(path, &error))
}

fn unwritten(path: &Path, error: &std::io::Error) -> Problem {
    Problem::new(
        Kind::Failed,
        "OutputFailed",
        format_args!("cannot write {}: {error}", path.display()),
    )
}
