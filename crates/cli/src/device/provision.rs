//! `moteseal device provision`: the configuration of a mote without an operating system, as one
//! blob for its flash (spec/mote.md, section 2), and as a QR code. `--devices-file` makes the blobs
//! of many motes.
//!
//! The blob contains every secret of the device. Blobs and codes are written with mode 0600 and never
//! printed.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

use clap::Args;
use moteseal_client::sum::PolicyFile;
use moteseal_core::DeviceId;
use moteseal_core::cbor::BufferTooSmall;
use moteseal_core::confidential::Path as ColumnPath;
use moteseal_core::provision::{
    Audience, MAX_POLICY_PAYLOAD, MAX_PROVISIONING, Membership, NONCE_BASE, Provisioning,
    ReplayedWindow, SharedKey, blob_end, encode_keys,
};
use moteseal_core::record::NetworkId;
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, FieldType, MAX_SCHEMA, Schema, SchemaError};
use moteseal_core::signature::{Algorithm, PublicKey, Signer as _};
use moteseal_sum::key_file::SourceKeys;
use moteseal_verify::Roster;
use serde::Deserialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::qr;
use crate::client_error;
use crate::config;
use crate::devices_file;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::input_table::SchemeName;
use crate::key::random;
use crate::progress::{bar, count};
use crate::stream_secret::OwnSecret;
use crate::terminal::report;
use crate::time;

/// The document that lists all keys of the configuration.
const DOCS: &str = "spec/mote.md";
/// The extension of the blobs of many devices.
const EXTENSION: &str = "mote";
/// The number of devices whose QR codes are in memory at a time.
const CHUNK: usize = 256;

#[derive(Args, Debug)]
pub(crate) struct Provision {
    /// The mote's configuration. With --devices-file, {device} in it stands for each device's name
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The blob to write, for the mote's flash. With --devices-file: the folder for the blobs
    /// NAME.mote
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Also write each blob as a QR code, to a file with the blob's name and the extension svg or
    /// png
    #[arg(long, value_name = "FORMAT", value_enum)]
    qr: Option<qr::Format>,
    /// A file with a device on each line, NAME or NAME=PUBLIC_KEY as for `moteseal roster add`: make
    /// the blob of each. The roster determines the public keys
    #[arg(long, value_name = "FILE")]
    devices_file: Option<PathBuf>,
}

/// The contents of `mote.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mote {
    /// The device's name in the roster.
    device: PerDevice,
    key: PerDevice,
    salt_key: Option<PerDevice>,
    roster: PathBuf,
    operator: PathBuf,
    /// The device's own link secret.
    link_secret: PerDevice,
    #[serde(default)]
    scheme: SchemeName,
    /// The columns of its records: `temperature:Cel:i16/100`.
    columns: Vec<String>,
    /// The device's stream secret, if it has encrypted columns.
    stream_secret: Option<PerDevice>,
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
    key: PerDevice,
    link_secret: PerDevice,
    /// The policy that the operator has signed.
    policy: Option<PathBuf>,
}

/// Which broadcasts the mote accepts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Broadcasts {
    /// The base station's public key.
    base: PathBuf,
    /// The network, if it is not the network that the base station's key determines.
    network: Option<String>,
    /// The key that the mote shares with a sender.
    receiver_key: Option<PerDevice>,
}

/// The text that stands for a device's name in `mote.toml`.
const PLACEHOLDER: &str = "{device}";

/// A name or path of `mote.toml` that may contain [`PLACEHOLDER`].
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct PerDevice(String);

impl PerDevice {
    fn has_placeholder(&self) -> bool {
        self.0.contains(PLACEHOLDER)
    }

    /// Returns the text for the device with this name.
    fn of(&self, name: &str) -> String {
        self.0.replace(PLACEHOLDER, name)
    }
}

impl Mote {
    /// Returns the keys that differ between devices, with their values.
    fn per_device(&self) -> impl Iterator<Item = (&'static str, &PerDevice)> {
        let (sum, broadcast) = (self.sum.as_ref(), self.broadcast.as_ref());
        [
            ("device", Some(&self.device)),
            ("key", Some(&self.key)),
            ("salt_key", self.salt_key.as_ref()),
            ("link_secret", Some(&self.link_secret)),
            ("stream_secret", self.stream_secret.as_ref()),
            ("sum.key", sum.map(|sum| &sum.key)),
            ("sum.link_secret", sum.map(|sum| &sum.link_secret)),
            ("broadcast.receiver_key", broadcast.and_then(|of| of.receiver_key.as_ref())),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
    }

    /// Checks that the values of one device contain no placeholder, and that those of many devices
    /// do: devices must not share secrets.
    fn check_placeholders(&self, file: &Path, is_for_many: bool) -> Result<(), Failure> {
        for (key, value) in self.per_device() {
            let what = match (is_for_many, value.has_placeholder()) {
                (false, true) => {
                    "{device} stands for the names of --devices-file; give --devices-file, or write the device's name"
                }
                (true, false) => {
                    "with --devices-file, write {device} in place of the device's name; each device has its own file"
                }
                _ => continue,
            };
            return Err(Failure::usage(what).about_key(file, key));
        }
        if is_for_many && self.device.0 != PLACEHOLDER {
            let what = "with --devices-file, write device = \"{device}\"; the file lists the names in the roster";
            return Err(Failure::usage(what).about_key(file, "device"));
        }
        Ok(())
    }
}

/// The file of a QR code, and its contents.
type Image<'a> = (&'a Path, Zeroizing<Vec<u8>>);

/// The blob of a device, and the files to write.
struct Blob {
    device: String,
    bytes: Zeroizing<Vec<u8>>,
    path: PathBuf,
    /// The file of the QR code and its format.
    code: Option<(PathBuf, qr::Format)>,
}

impl Blob {
    /// Checks that the blob can be written: that its files do not exist, and that it fits into a QR
    /// code.
    fn new(
        device: String,
        bytes: Zeroizing<Vec<u8>>,
        path: PathBuf,
        format: Option<qr::Format>,
    ) -> Result<Self, Failure> {
        files::check_absent(&path)?;
        let code = format.map(|format| (path.with_extension(format.extension()), format));
        if let Some((code, format)) = &code {
            if *code == path {
                return Err(Failure::usage(format_args!(
                    "--out {}: this is the name of the QR code; give the blob another extension than {}",
                    path.display(),
                    format.extension()
                )));
            }
            files::check_absent(code)?;
            qr::check_length(bytes.len())?;
        }
        Ok(Self { device, bytes, path, code })
    }

    /// Returns the QR code.
    fn image(&self) -> Result<Option<Image<'_>>, Failure> {
        self.code
            .as_ref()
            .map(|(path, format)| Ok((path.as_path(), format.image(&self.bytes)?)))
            .transpose()
    }

    fn to_json(&self) -> Value {
        json!({
            "file": self.path.display().to_string(),
            "device": self.device,
            "bytes": self.bytes.len(),
            "qr": self.code.as_ref().map(|(path, _)| path.display().to_string()),
        })
    }
}

pub(crate) fn provision(arguments: &Provision) -> Result<(), Failure> {
    let Provision { config: file, out, qr, devices_file } = arguments;
    let (config, folder): (Mote, _) = config::load_as(file, DOCS)?;
    config.check_placeholders(file, devices_file.is_some())?;
    let names = devices_file.as_deref().map(devices_file::names).transpose()?;
    let group = Group::read(&config, file, &folder)?;
    let Some(names) = names else {
        let name = config.device.0.clone();
        let bytes = group.blob(&name)?;
        return write_one(&Blob::new(name, bytes, out.clone(), *qr)?);
    };
    let progress = bar(names.len() as u64, "reading");
    let mut blobs = Vec::with_capacity(names.len());
    for name in names {
        let of_device = |failure: Failure| failure.of(&name);
        let bytes = group.blob(&name).map_err(of_device)?;
        let path = out.join(format!("{name}.{EXTENSION}"));
        blobs.push(Blob::new(name.clone(), bytes, path, *qr).map_err(of_device)?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    write_many(&blobs, out)
}

fn write_one(blob: &Blob) -> Result<(), Failure> {
    let image = blob.image()?;
    files::create(&blob.path, &blob.bytes, moteseal_files::PRIVATE)?;
    if let Some((path, image)) = &image {
        files::create(path, image, moteseal_files::PRIVATE)?;
    }
    let path = blob.path.display();
    let (what, keep) = match &image {
        Some((code, _)) => (format!("{path} and {}", code.display()), "them"),
        None => (path.to_string(), "it"),
    };
    let (bytes, device) = (blob.bytes.len(), &blob.device);
    let text = format!("{what}: {bytes} bytes for {device}; keep {keep} as secret as its keys");
    report(text, || blob.to_json())
}

fn write_many(blobs: &[Blob], folder: &Path) -> Result<(), Failure> {
    files::create_folder(folder)?;
    let progress = bar(blobs.len() as u64, "writing");
    for blobs in blobs.chunks(CHUNK) {
        let images = images(blobs)?;
        let contents: Vec<_> = blobs
            .iter()
            .map(|blob| (blob.path.clone(), &blob.bytes[..]))
            .chain(images.iter().map(|(path, image)| (path.to_path_buf(), &image[..])))
            .collect();
        files::create_many(&contents)?;
        progress.inc(blobs.len() as u64);
    }
    progress.finish_and_clear();
    let codes = if blobs.iter().any(|blob| blob.code.is_some()) { " and QR codes" } else { "" };
    let text = format!(
        "blobs{codes} of {}: {}; keep them as secret as the devices' keys",
        count(blobs.len() as u64, "device"),
        folder.display()
    );
    report(text, || {
        let devices: Vec<_> = blobs.iter().map(Blob::to_json).collect();
        json!({ "folder": folder.display().to_string(), "devices": devices })
    })
}

/// Returns the QR codes of blobs, in their order. Each processor computes a part of them.
fn images(blobs: &[Blob]) -> Result<Vec<Image<'_>>, Failure> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let part = blobs.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let parts: Vec<_> = blobs
            .chunks(part)
            .map(|blobs| {
                scope.spawn(|| {
                    let images = blobs.iter().filter_map(|blob| blob.image().transpose());
                    images.collect::<Result<Vec<_>, _>>()
                })
            })
            .collect();
        let mut images = Vec::with_capacity(blobs.len());
        for part in parts {
            images.extend(part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(images)
    })
}

/// The data that the blobs of all motes of a configuration have in common.
struct Group<'a> {
    config: &'a Mote,
    file: &'a Path,
    folder: &'a Path,
    roster_path: PathBuf,
    roster: Roster,
    coordinator: PublicKey,
    start_ms: u64,
    schema: Vec<u8>,
    window: ReplayedWindow,
    audience: Option<Audience>,
    policy: Option<PolicyFile>,
    /// The operator's public key, if motes can verify its signatures.
    operator: Option<PublicKey>,
}

impl<'a> Group<'a> {
    fn read(config: &'a Mote, file: &'a Path, folder: &'a Path) -> Result<Self, Failure> {
        let in_key = |key: &'static str| move |failure: Failure| failure.about_key(file, key);
        let roster_path = folder.join(&config.roster);
        let roster = files::roster(&roster_path, &folder.join(&config.operator))
            .map_err(in_key("roster"))?;
        let period = roster.newest_period();
        let coordinator =
            period.coordinator.clone().filter(|_| period.budget.is_some()).ok_or_else(|| {
                let what = format_args!(
                    "{} gives the group no budget, so there is no coordinator to forward to",
                    roster_path.display()
                );
                in_key("roster")(Failure::usage(what))
            })?;
        for_mote(coordinator.algorithm(), "the coordinator's key").map_err(in_key("roster"))?;
        let mut buffer = [0; MAX_SCHEMA];
        let schema = schema(&config.columns, &mut buffer).map_err(in_key("columns"))?;
        let start_ms = roster.epoch_start_ms(period.first_epoch).ok_or_else(|| {
            let what =
                "the first epoch of the roster starts after every time that a clock can show";
            in_key("roster")(Failure::usage(what))
        })?;
        let window = window(&config.recording).map_err(in_key("recording"))?;
        let audience = config
            .broadcast
            .as_ref()
            .map(|broadcasts| audience(broadcasts, file, folder))
            .transpose()?;
        let path = config.sum.as_ref().and_then(|member| member.policy.as_ref());
        let policy = path
            .map(|path| policy(&folder.join(path), &roster, &folder.join(&config.operator)))
            .transpose()
            .map_err(in_key("sum.policy"))?;
        let schema = schema.as_bytes().to_vec();
        let operator = files::public_key(&folder.join(&config.operator));
        let operator = operator.map_err(in_key("operator"))?;
        // The motes have the suite of the coordinator's key, and may lack any other one.
        let operator = Some(operator).filter(|key| key.algorithm() == coordinator.algorithm());
        Ok(Self {
            config,
            file,
            folder,
            roster_path,
            roster,
            coordinator,
            start_ms,
            schema,
            window,
            audience,
            policy,
            operator,
        })
    }

    /// Returns the blob of the device with this name.
    fn blob(&self, name: &str) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let Self { config, file, folder, roster_path, roster, .. } = self;
        let in_key = |key: &'static str| move |failure: Failure| failure.about_key(file, key);
        let device = files::device(roster, roster_path, name).map_err(in_key("device"))?;
        let listed = roster
            .device(device)
            .ok_or_else(|| Failure::new(Exit::Internal, "the roster lacks the device"))?;
        let key_path = folder.join(config.key.of(name));
        let signer = files::secret_key(&key_path).map_err(in_key("key"))?;
        for_mote(signer.algorithm(), "the device's key").map_err(in_key("key"))?;
        if listed.terms().last().is_none_or(|term| term.key != signer.public()) {
            return Err(in_key("key")(Failure::usage(format_args!(
                "{} is not the key that {} certifies for {name}; use the secret key that belongs to the public key in the roster",
                key_path.display(),
                roster_path.display(),
            ))));
        }
        let salt_path = config
            .salt_key
            .as_ref()
            .map_or_else(|| files::salt_key_path(&key_path), |path| folder.join(path.of(name)));
        let salt_key = files::secret_bytes(&salt_path, "salt key").map_err(in_key("salt_key"))?;
        let link_path = folder.join(config.link_secret.of(name));
        let link_secret =
            files::link_secret(&link_path, roster, Some(device)).map_err(in_key("link_secret"))?;
        let period = roster.newest_period();
        let provisioning = Provisioning {
            device,
            group: roster.group(),
            roster: (roster.digest(), roster.version()),
            certificate: listed.certificate,
            levels: period.levels,
            epoch_ms: period.epoch_ms,
            epochs: (period.first_epoch, roster.epochs().1),
            start_ms: self.start_ms,
            scheme: config.scheme.into(),
            schema: &self.schema,
            signer,
            salt_key,
            link_secret: link_secret.into_bytes(),
            coordinator: self.coordinator.clone(),
            window: self.window,
            sums: config
                .sum
                .as_ref()
                .map(|member| self.membership(member, name, device))
                .transpose()?,
            audience: self.audience(name)?,
            operator: self.operator.clone(),
        };
        let secret_path = config.stream_secret.as_ref().map(|path| folder.join(path.of(name)));
        let schema = Schema::decode(&self.schema)
            .map_err(|error| Failure::named(Exit::Internal, error.named()))?;
        let secret = OwnSecret { path: secret_path.as_deref(), named: "stream_secret", device };
        let keys =
            secret.keys_from(&schema, period.first_epoch).map_err(in_key("stream_secret"))?;
        // A mote whose flash was erased starts to count its starts and seals again. These bytes let it
        // nevertheless use other nonces than before.
        let mut nonce_base = [0; NONCE_BASE];
        random(&mut nonce_base)?;
        let mut buffer = Zeroizing::new([0; MAX_PROVISIONING]);
        let length = written(&provisioning, (&nonce_base, &keys), &mut *buffer).map_err(|BufferTooSmall| {
            let what = format_args!("a mote's blob has at most {MAX_PROVISIONING} bytes; name or encrypt fewer columns, or give them shorter names");
            in_key("columns")(Failure::usage(what))
        })?;
        Ok(Zeroizing::new(buffer[..length].to_vec()))
    }

    /// Returns the audience, with the key that the device shares with a sender.
    fn audience(&self, name: &str) -> Result<Option<Audience>, Failure> {
        let Some(mut audience) = self.audience.clone() else { return Ok(None) };
        let path = self.config.broadcast.as_ref().and_then(|of| of.receiver_key.as_ref());
        if let Some(path) = path {
            let path = self.folder.join(path.of(name));
            let about = |failure: Failure| failure.about_key(self.file, "broadcast.receiver_key");
            let key = crate::broadcast::receiver_key(&path).map_err(about)?;
            if key.network() != audience.network {
                let what = "WrongNetwork: the receiver's key belongs to another network";
                return Err(about(Failure::usage(what)));
            }
            audience.shared = Some(SharedKey {
                sender: key.sender(),
                position: key.position(),
                key: Zeroizing::new(*key.secret()),
            });
        }
        Ok(Some(audience))
    }

    fn membership(
        &self,
        member: &Member,
        name: &str,
        device: DeviceId,
    ) -> Result<Membership<'_>, Failure> {
        let Self { file, folder, roster, .. } = self;
        let in_key = |key: &'static str| move |failure: Failure| failure.about_key(file, key);
        let keys = super::sums::source_keys(
            &folder.join(member.key.of(name)),
            (file, "sum.key"),
            roster,
            device,
        )?;
        for_mote(keys.querier.algorithm(), "the querier's key").map_err(in_key("sum.key"))?;
        let link_path = folder.join(member.link_secret.of(name));
        let link_secret = files::link_secret(&link_path, roster, Some(device))
            .map_err(in_key("sum.link_secret"))?;
        let SourceKeys {
            circle, position, querier_name, querier, secret, masks, needs_policy, ..
        } = keys;
        if needs_policy && self.policy.is_none() {
            let what = "the mote answers only under a policy, because the set-up made masks; sign one with \
                        `moteseal sum policy sign` and name it here";
            let failure = Failure::usage(what).with_name("PolicyMissing");
            return Err(in_key("sum.policy")(failure));
        }
        Ok(Membership {
            roster: querier_name.set_up_digest(&circle.roster),
            key_group: circle.key_group,
            position,
            secret: secret.to_bytes(),
            querier,
            link_secret: link_secret.into_bytes(),
            masks: masks.map(|(secret, ring)| secret.to_bytes_with(&ring)),
            needs_policy,
            policy: self.policy.as_ref().map(PolicyFile::payload),
        })
    }
}

/// Writes a blob, and the keys of encrypted columns after it. Returns their length.
fn written(
    provisioning: &Provisioning<'_>,
    (nonce_base, keys): (&[u8; NONCE_BASE], &[ColumnPath]),
    buffer: &mut [u8],
) -> Result<usize, BufferTooSmall> {
    let length = provisioning.encode(buffer)?.len();
    if keys.is_empty() {
        return Ok(length);
    }
    let start = blob_end(buffer);
    let rest = buffer.get_mut(start..).ok_or(BufferTooSmall)?;
    Ok(start + encode_keys(nonce_base, keys, rest)?)
}

/// Reads the policy of private sums, and checks that motes have room for it.
fn policy(path: &Path, roster: &Roster, operator: &Path) -> Result<PolicyFile, Failure> {
    let policy =
        PolicyFile::read(path, roster, operator).map_err(|error| client_error::input(&error))?;
    let length = policy.payload().len();
    if length > MAX_POLICY_PAYLOAD {
        return Err(Failure::usage(format_args!(
            "{}: the policy has {length} bytes, and a mote has room for {MAX_POLICY_PAYLOAD}; name fewer queriers or columns",
            path.display()
        )));
    }
    Ok(policy)
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
    if let Some(text) = fields.iter().find(|field| field.kind == FieldType::Text) {
        return Err(Failure::usage(format_args!(
            "column {}: the records of a mote have one size, so they have no texts; use an enum",
            text.name
        )));
    }
    Schema::encode(&fields, buffer).map_err(|error| Failure::named(Exit::Usage, error.named()))
}

fn window(recorded: &Recorded) -> Result<ReplayedWindow, Failure> {
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
    Ok(ReplayedWindow {
        first: recorded.first,
        count: recorded.count,
        start_ms,
        every_ms,
        interval_ms,
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
    Ok(Audience { network, base, shared: None })
}
