//! `moteseal key`: makes key pairs, salt keys, link secrets, and the certificates of broadcast
//! senders.

mod firmware;
pub(crate) mod sender;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use moteseal_client::input::LinkSecret;
use moteseal_core::identity::{MAX_PEM, encode_public_pem, encode_secret_pem};
use moteseal_core::link::LinkKey;
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};
use moteseal_device::chain_state;
use moteseal_verify::aggregation::{check_gateway_name, gateway_id};
use serde_json::json;
use zeroize::Zeroizing;

use crate::devices_file;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::progress::count;
use crate::terminal::{report, report_lines};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a key pair, and the other files that a device also needs.
    #[command(after_help = "Example: moteseal key new --out keys/dev1\n\
                            makes keys/dev1.key.pem  the secret key (PKCS#8), stays on the device\n\
                            \x20     keys/dev1.pub.pem  the public key (SPKI), goes to the operator\n\
                            \x20     keys/dev1.salt.key the salt key, stays on the device\n\
                            \x20     keys/dev1.begun    states that the key has sealed nothing yet, stays next to the key\n\
                            openssl reads the PEM files: openssl pkey -in keys/dev1.key.pem -noout -text")]
    New(New),
    /// Make a group's link secret, or derive a device's or gateway's secret from it. Both ends of a
    /// link use the secret to authenticate each other.
    #[command(after_help = "Example: moteseal key link --out keys/link.key\n         \
                            moteseal key link --group-secret keys/link.key --device dev1 \\\n             \
                            --roster roster.cbor --operator keys/op.pub.pem --out keys/dev1.link.key\n         \
                            moteseal key link --group-secret keys/gw-a.link.key --gateway gw-b \\\n             \
                            --roster roster.cbor --operator keys/op.pub.pem --out keys/gw-b.up.key\n         \
                            moteseal key link --group-secret keys/link.key --devices-file names.txt \\\n             \
                            --roster roster.cbor --operator keys/op.pub.pem --out keys\n\
                            The last command makes keys/NAME.link.key for each device of names.txt.\n\
                            Only the gateway and the person who sets up the devices keep the group's secret; a device gets\n\
                            only its own secret. In a tree of private sums each gateway has a secret for its children, and\n\
                            each child (a device or a gateway) has a secret derived from its parent's.")]
    Link(Link),
    Request(sender::Request),
    Certify(sender::Certify),
    Revoke(sender::Revoke),
    Firmware(firmware::Firmware),
}

#[derive(Args, Debug)]
pub(crate) struct Link {
    /// The file to write: 64 hexadecimal digits, readable only by its owner. With --devices-file:
    /// the folder for the files NAME.link.key
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The group's link secret, from which to derive the secret of a device or gateway
    #[arg(long, value_name = "FILE", requires_all = ["child", "roster", "operator"])]
    group_secret: Option<PathBuf>,
    /// The device's name in the roster
    #[arg(long, value_name = "NAME", requires = "group_secret", group = "child")]
    device: Option<String>,
    /// A gateway's name; --group-secret must then be the secret of its parent, which is another
    /// gateway or the querier
    #[arg(long, value_name = "NAME", requires = "group_secret", group = "child")]
    gateway: Option<String>,
    /// A file with a device on each line, NAME or NAME=PUBLIC_KEY as for `moteseal roster add`: make
    /// the secret of each
    #[arg(long, value_name = "FILE", requires = "group_secret", group = "child")]
    devices_file: Option<PathBuf>,
    /// The group's roster
    #[arg(long, requires = "group_secret")]
    roster: Option<PathBuf>,
    /// The operator's public key
    #[arg(long, value_name = "PUBLIC_KEY", requires = "group_secret")]
    operator: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct New {
    /// The files to write: NAME.key.pem, NAME.pub.pem, NAME.salt.key and NAME.begun
    #[arg(long, value_name = "NAME")]
    out: PathBuf,
    /// The signature suite: ed25519; esp256 (ECDSA with P-256); ml-dsa-44 (post-quantum, 2,420
    /// bytes per signature, not for motes)
    #[arg(long, value_name = "SUITE", default_value = "ed25519", value_parser = ["ed25519", "esp256", "ml-dsa-44"])]
    alg: String,
}

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::New(arguments) => new(&arguments),
        Command::Link(arguments) => link(&arguments),
        Command::Request(arguments) => sender::request(&arguments),
        Command::Certify(arguments) => sender::certify(&arguments),
        Command::Revoke(arguments) => sender::revoke(&arguments),
        Command::Firmware(arguments) => firmware::firmware(&arguments),
    }
}

fn link(arguments: &Link) -> Result<(), Failure> {
    let Link { out, group_secret, device, gateway, devices_file, roster, operator } = arguments;
    if let (Some(secret), Some(list), Some(roster), Some(operator)) =
        (group_secret, devices_file, roster, operator)
    {
        return links(secret, list, roster, operator, out);
    }
    let (text, whose, name) =
        match (group_secret, device.as_ref().or(gateway.as_ref()), roster, operator) {
            (Some(group_secret), Some(name), Some(path), Some(operator)) => {
                let roster = files::roster(path, operator)?;
                let group_secret = files::link_secret(group_secret, &roster, None)?;
                let child = if gateway.is_some() {
                    check_gateway_name(name)
                        .map_err(|error| Failure::named(Exit::Usage, error.named()))?;
                    gateway_id(name)
                } else {
                    files::device(&roster, path, name)?
                };
                let text = LinkSecret::derived_file(&group_secret, &roster, child);
                let of = group_secret.parent().unwrap_or_default().to_owned();
                (text, name.as_str(), of)
            }
            _ => {
                let mut secret = Zeroizing::new([0; 32]);
                random(&mut *secret)?;
                let text = Zeroizing::new(hex::encode(*secret) + "\n");
                (text, "the group", hex::encode(LinkKey::name_of(&secret)))
            }
        };
    files::create(out, text.as_bytes(), 0o600)?;
    report(format_args!("link secret {name} of {whose}: {}", out.display()), || {
        json!({
            "file": out.display().to_string(),
            "name": name,
            "device": device,
            "gateway": gateway,
        })
    })
}

/// Derives the link secrets of the devices that the file `list` names, and writes them to the folder
/// `out`.
fn links(
    group_secret: &Path,
    list: &Path,
    roster_path: &Path,
    operator: &Path,
    out: &Path,
) -> Result<(), Failure> {
    let roster = files::roster(roster_path, operator)?;
    let group_secret = files::link_secret(group_secret, &roster, None)?;
    let names = devices_file::names(list)?;
    let mut secrets = Vec::with_capacity(names.len());
    for name in &names {
        let device = files::device(&roster, roster_path, name)?;
        let path = out.join(format!("{name}.link.key"));
        files::check_absent(&path)?;
        secrets.push((path, LinkSecret::derived_file(&group_secret, &roster, device)));
    }
    files::create_folder(out)?;
    let contents: Vec<_> =
        secrets.iter().map(|(path, text)| (path.clone(), text.as_bytes())).collect();
    files::create_many(&contents)?;
    let of = group_secret.parent().unwrap_or_default();
    let devices = count(names.len() as u64, "device");
    report(format_args!("link secret {of} of {devices}: {}", out.display()), || {
        let files: Vec<_> = names
            .iter()
            .zip(&secrets)
            .map(|(name, (path, _))| json!({ "device": name, "file": path.display().to_string() }))
            .collect();
        json!({ "folder": out.display().to_string(), "name": of, "devices": files })
    })
}

fn new(arguments: &New) -> Result<(), Failure> {
    let algorithm = Algorithm::from_name(&arguments.alg).ok_or_else(|| {
        Failure::usage(format_args!("--alg {}: use ed25519, esp256 or ml-dsa-44", arguments.alg))
    })?;
    let files = KeyFiles::make(&arguments.out, algorithm)?;
    for (path, bytes, mode) in files.contents()? {
        files::create(path, &bytes, mode)?;
    }
    let paths = files.paths.each_ref().map(|path| path.display().to_string());
    let [secret, public, salt, chains] = &paths;
    let lines = [
        format!("secret key  {secret}"),
        format!("public key  {public}"),
        format!("salt key    {salt}"),
        format!("chains      {chains}"),
    ];
    report_lines(lines, || {
        json!({
            "algorithm": algorithm.name(),
            "secret_key": secret,
            "public_key": public,
            "salt_key": salt,
            "chains": chains,
        })
    })
}

/// A key file: its path, its contents and its mode.
pub(crate) type KeyFile<'a> = (&'a Path, Zeroizing<Vec<u8>>, u32);

/// A new key pair with its salt key, and the files to which they are written.
pub(crate) struct KeyFiles {
    secret: SecretKey,
    salt: Zeroizing<[u8; 32]>,
    /// The files of the secret key, the public key, the salt key and the record of begun chains.
    paths: [PathBuf; 4],
}

impl KeyFiles {
    /// Makes keys for the files `OUT.key.pem`, `OUT.pub.pem` and `OUT.salt.key`, and the record
    /// `OUT.begun` of a key that has begun no chain. Writes nothing.
    ///
    /// # Errors
    /// A usage failure if one of the files exists.
    pub(crate) fn make(out: &Path, algorithm: Algorithm) -> Result<Self, Failure> {
        let name = out.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
            Failure::usage(format_args!(
                "--out {} does not name a file; for example: --out keys/dev1",
                out.display()
            ))
        })?;
        let path = |suffix: &str| out.with_file_name(format!("{name}.{suffix}"));
        let paths = [path("key.pem"), path("pub.pem"), path("salt.key"), path("begun")];
        if let Some(existing) = paths.iter().find(|path| path.exists()) {
            return Err(Failure::usage(format_args!(
                "{} already exists; keys are never replaced",
                existing.display()
            )));
        }
        let secret = generate(algorithm)?;
        let mut salt = Zeroizing::new([0; 32]);
        random(&mut *salt)?;
        Ok(Self { secret, salt, paths })
    }

    /// Returns the public key.
    pub(crate) fn public(&self) -> PublicKey {
        self.secret.public()
    }

    /// Returns the files and their contents. The secret files are readable only by their owner.
    ///
    /// # Errors
    /// An internal failure if a key cannot be encoded.
    pub(crate) fn contents(&self) -> Result<[KeyFile<'_>; 4], Failure> {
        let internal = |error| Failure::new(Exit::Internal, error);
        let mut pem = Zeroizing::new([0; MAX_PEM]);
        let secret = encode_secret_pem(&self.secret, &mut *pem).map_err(internal)?;
        let secret = Zeroizing::new(secret.as_bytes().to_vec());
        let mut pem = [0; MAX_PEM];
        let public = encode_public_pem(&self.public(), &mut pem).map_err(internal)?;
        let public = Zeroizing::new(public.as_bytes().to_vec());
        let salt = Zeroizing::new((hex::encode(*self.salt) + "\n").into_bytes());
        let record = Zeroizing::new(chain_state::new_record(&self.public()));
        let [secret_path, public_path, salt_path, record_path] = &self.paths;
        Ok([
            (secret_path, secret, 0o600),
            (salt_path, salt, 0o600),
            (record_path, record, 0o600),
            (public_path, public, 0o644),
        ])
    }
}

/// Generates a key from the system's random number generator. If a seed is not a valid key (for
/// P-256 this happens once in 2^32), draws another one.
pub(crate) fn generate(algorithm: Algorithm) -> Result<SecretKey, Failure> {
    let mut seed = Zeroizing::new([0; 32]);
    for _ in 0..16 {
        random(&mut *seed)?;
        if let Ok(key) = SecretKey::from_seed(algorithm, &seed) {
            return Ok(key);
        }
    }
    Err(Failure::new(Exit::Internal, "the system's random bytes do not make a key"))
}

/// Fills `bytes` from the system's random number generator.
pub(crate) fn random(bytes: &mut [u8]) -> Result<(), Failure> {
    getrandom::fill(bytes).map_err(|error| {
        Failure::new(Exit::Internal, format_args!("cannot get random bytes: {error}"))
    })
}
