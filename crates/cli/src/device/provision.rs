//! `moteseal device provision`: the configuration of a mote without an operating system, as one
//! blob for its flash (spec/mote.md, section 2).
//!
//! The blob contains every secret of the device. It is written with mode 0600 and never printed.

use std::path::{Path, PathBuf};

use clap::Args;
use moteseal_core::provision::{Audience, MAX_PROVISIONING, Membership, Provisioning, Window};
use moteseal_core::record::NetworkId;
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema, SchemaError};
use moteseal_core::signature::{Algorithm, PublicKey, Signer as _};
use moteseal_sum::key_file::SourceKeys;
use moteseal_verify::Roster;
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use crate::config;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::input_table::SchemeName;
use crate::terminal::report;
use crate::time;

/// The document that lists all keys of the configuration.
const DOCS: &str = "spec/mote.md";

#[derive(Args, Debug)]
pub(crate) struct Provision {
    /// The mote's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The blob to write, for the mote's flash
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// The contents of `mote.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mote {
    /// The device's name in the roster.
    device: String,
    key: PathBuf,
    salt_key: Option<PathBuf>,
    roster: PathBuf,
    operator: PathBuf,
    /// The device's own link secret.
    link_secret: PathBuf,
    #[serde(default)]
    scheme: SchemeName,
    /// The columns of its records: `temperature:Cel:i16/100`.
    columns: Vec<String>,
    recording: Recorded,
    sum: Option<Member>,
    broadcast: Option<Broadcasts>,
}

/// The recorded readings in the mote's flash, which it replays instead of reading a sensor.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    #[serde(default)]
    first: u32,
    count: u32,
    /// The time of the first recorded reading, and the interval between recorded readings.
    start: String,
    every: String,
    /// The interval at which the mote replays the readings.
    interval: Option<String>,
}

/// How the mote takes part in private sums.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Member {
    key: PathBuf,
    link_secret: PathBuf,
}

/// Which broadcasts the mote accepts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Broadcasts {
    /// The base station's public key.
    base: PathBuf,
    /// The network, if it is not the network that the base station's key determines.
    network: Option<String>,
}

pub(crate) fn provision(arguments: &Provision) -> Result<(), Failure> {
    let file = &arguments.config;
    let (config, folder): (Mote, _) = config::load_as(file, DOCS)?;
    let in_key = |key: &'static str| move |failure: Failure| failure.about_key(file, key);
    let roster_path = folder.join(&config.roster);
    let roster =
        files::roster(&roster_path, &folder.join(&config.operator)).map_err(in_key("roster"))?;
    let device = files::device(&roster, &roster_path, &config.device).map_err(in_key("device"))?;
    let listed = roster
        .device(device)
        .ok_or_else(|| Failure::new(Exit::Internal, "the roster lacks the device"))?;
    let period = roster.newest_period();
    let coordinator =
        period.coordinator.as_ref().filter(|_| period.budget.is_some()).ok_or_else(|| {
            let what = format_args!(
                "{} gives the group no budget, so there is no coordinator to forward to",
                roster_path.display()
            );
            in_key("roster")(Failure::usage(what))
        })?;
    for_mote(coordinator.algorithm(), "the coordinator's key").map_err(in_key("roster"))?;
    let key_path = folder.join(&config.key);
    let signer = files::secret_key(&key_path).map_err(in_key("key"))?;
    for_mote(signer.algorithm(), "the device's key").map_err(in_key("key"))?;
    if listed.terms().last().is_none_or(|term| term.key != signer.public()) {
        return Err(in_key("key")(Failure::usage(format_args!(
            "{} is not the key that {} certifies for {}; use the secret key that belongs to the public key in the roster",
            key_path.display(),
            roster_path.display(),
            config.device
        ))));
    }
    let salt_path = config
        .salt_key
        .as_ref()
        .map_or_else(|| files::salt_key_path(&key_path), |path| folder.join(path));
    let salt_key = files::secret_bytes(&salt_path, "salt key").map_err(in_key("salt_key"))?;
    let link_secret = files::link_secret(&folder.join(&config.link_secret), &roster, Some(device))
        .map_err(in_key("link_secret"))?;
    let mut buffer = [0; MAX_SCHEMA];
    let schema = schema(&config.columns, &mut buffer).map_err(in_key("columns"))?;
    let start_ms = roster.epoch_start_ms(period.first_epoch).ok_or_else(|| {
        let what = "the first epoch of the roster starts after every time that a clock can show";
        in_key("roster")(Failure::usage(what))
    })?;
    let provisioning = Provisioning {
        device,
        group: roster.group(),
        roster: (roster.digest(), roster.version()),
        certificate: listed.certificate,
        levels: period.levels,
        epoch_ms: period.epoch_ms,
        epochs: (period.first_epoch, roster.epochs().1),
        start_ms,
        scheme: config.scheme.into(),
        schema: schema.as_bytes(),
        signer,
        salt_key,
        link_secret: link_secret.into_bytes(),
        coordinator: coordinator.clone(),
        window: window(&config.recording).map_err(in_key("recording"))?,
        sums: config
            .sum
            .as_ref()
            .map(|member| membership(member, file, &folder, &roster, device))
            .transpose()?,
        audience: config
            .broadcast
            .as_ref()
            .map(|broadcasts| audience(broadcasts, file, &folder))
            .transpose()?,
    };
    let mut blob = Zeroizing::new([0; MAX_PROVISIONING]);
    let blob = provisioning.encode(&mut *blob).map_err(|_| {
        let what = format_args!("a mote's blob has at most {MAX_PROVISIONING} bytes; name fewer columns, or shorter ones");
        in_key("columns")(Failure::usage(what))
    })?;
    files::create(&arguments.out, blob, 0o600)?;
    let text = format!(
        "{}: {} bytes for {}; keep it as secret as its keys",
        arguments.out.display(),
        blob.len(),
        config.device
    );
    report(text, || {
        json!({
            "file": arguments.out.display().to_string(),
            "device": config.device,
            "bytes": blob.len(),
        })
    })
}

/// Checks that motes support a signature suite. They have no room for the post-quantum suite.
fn for_mote(algorithm: Algorithm, whose: &str) -> Result<(), Failure> {
    if algorithm == Algorithm::MlDsa44 {
        return Err(Failure::usage(format_args!(
            "{whose} is for {algorithm}, which motes do not support; use Ed25519 or P-256"
        )));
    }
    Ok(())
}

fn schema<'b>(columns: &[String], buffer: &'b mut [u8]) -> Result<Schema<'b>, Failure> {
    let fields: Vec<_> = columns
        .iter()
        .map(|spec| Field::parse(spec))
        .collect::<Result<_, _>>()
        .map_err(|error: SchemaError| Failure::named(Exit::Usage, error.named()))?;
    if fields.is_empty() {
        return Err(Failure::usage("describe a record: columns = [\"NAME:UNIT:TYPE\"]"));
    }
    Schema::encode(&fields, buffer).map_err(|error| Failure::named(Exit::Usage, error.named()))
}

fn window(recorded: &Recorded) -> Result<Window, Failure> {
    let milliseconds = |what: &str, text: &str| {
        let ms = time::duration(text)
            .map_err(|error| Failure::usage(format_args!("{what}: {error}")))?;
        u32::try_from(ms)
            .map_err(|_| Failure::usage(format_args!("{what}: at most {} milliseconds", u32::MAX)))
    };
    let every_ms = milliseconds("every", &recorded.every)?;
    let interval_ms = recorded
        .interval
        .as_deref()
        .map_or(Ok(every_ms), |interval| milliseconds("interval", interval))?;
    let start_ms = time::instant(&recorded.start)
        .map_err(|error| Failure::usage(format_args!("start: {error}")))?;
    if every_ms == 0 || recorded.count == 0 {
        return Err(Failure::usage(
            "a recording needs at least one reading, and an interval above 0",
        ));
    }
    Ok(Window { first: recorded.first, count: recorded.count, start_ms, every_ms, interval_ms })
}

fn membership(
    member: &Member,
    file: &Path,
    folder: &Path,
    roster: &Roster,
    device: moteseal_core::DeviceId,
) -> Result<Membership, Failure> {
    let in_key = |key: &'static str| move |failure: Failure| failure.about_key(file, key);
    let keys = super::source_keys(&folder.join(&member.key), file, roster, device)?;
    for_mote(keys.querier.algorithm(), "the querier's key").map_err(in_key("sum.key"))?;
    let link_secret = files::link_secret(&folder.join(&member.link_secret), roster, Some(device))
        .map_err(in_key("sum.link_secret"))?;
    let SourceKeys { circle, position, querier, secret, .. } = keys;
    Ok(Membership {
        sources: circle.sources,
        key_group: circle.key_group,
        position,
        secret: secret.to_bytes(),
        querier,
        link_secret: link_secret.into_bytes(),
    })
}

fn audience(broadcasts: &Broadcasts, file: &Path, folder: &Path) -> Result<Audience, Failure> {
    let in_key = |key: &'static str| move |failure: Failure| failure.about_key(file, key);
    let base: PublicKey =
        files::public_key(&folder.join(&broadcasts.base)).map_err(in_key("broadcast.base"))?;
    for_mote(base.algorithm(), "the base station's key").map_err(in_key("broadcast.base"))?;
    let network = match &broadcasts.network {
        Some(text) => crate::key::sender::network(text)
            .map_err(Failure::usage)
            .map_err(in_key("broadcast.network"))?,
        None => NetworkId::of(&base),
    };
    Ok(Audience { network, base })
}
