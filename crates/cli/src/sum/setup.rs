//! `moteseal sum setup`: makes the keys of private sums, one file per device and one for the
//! querier.

use std::path::{Path, PathBuf};

use clap::Args;
use moteseal_core::identity::decode_secret_pem;
use moteseal_core::roster::Directory as _;
use moteseal_core::signature::PublicKey;
use moteseal_sum::key_file::{Circle, MAX_KEY_FILE, QuerierKeys};
use zeroize::Zeroizing;

use crate::failure::{Exit, Failure};
use crate::files;
use crate::key::random;
use crate::progress::{bar, count};
use crate::terminal::talk;

/// Make the keys of private sums: one file per device, and one for the querier.
#[derive(Args, Debug)]
#[command(after_help = "Example: moteseal key new --out q\n\
                        \x20        moteseal sum setup --roster roster.cbor --operator op.pub.pem --querier q.key.pem --out sumkeys/\n\
                        makes sumkeys/NAME.sum.key     for each device of the roster: goes to that device only\n\
                        \x20     sumkeys/querier.sum.key  stays with the querier: all other keys are derived from it")]
pub(crate) struct Arguments {
    /// The group's roster; its devices are the sources
    #[arg(long)]
    roster: PathBuf,
    /// The operator's public key; by default op.pub.pem next to the roster, or keys/op.pub.pem
    /// there
    #[arg(long, value_name = "PUBLIC_KEY")]
    operator: Option<PathBuf>,
    /// The querier's signing key, secret or public; q.key also means q.key.pem
    #[arg(long, value_name = "KEY")]
    querier: PathBuf,
    /// The folder to write the files to
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// The number of key groups. The keys of a compromised device only allow altering the sums of
    /// its group; each group costs 32 bytes more on the links above it
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    key_groups: u32,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { roster: path, querier, out, key_groups, .. } = arguments;
    let roster = files::roster(path, &operator(arguments)?)?;
    let querier = public_half(querier)?;
    let devices: Vec<_> = roster.devices().collect();
    let sources = u32::try_from(devices.len())
        .map_err(|_| Failure::usage("the roster has too many devices"))?;
    if *key_groups > sources {
        return Err(Failure::usage(format_args!(
            "--key-groups {key_groups}: {} has {}; a key group has at least one",
            path.display(),
            count(u64::from(sources), "device")
        )));
    }
    let circle = Circle {
        group: roster.group(),
        roster: roster.digest(),
        sources,
        key_group: sources.div_ceil(*key_groups),
    };
    let names =
        devices.iter().map(|device| file_of(&device.name)).collect::<Result<Vec<_>, _>>()?;
    let paths: Vec<PathBuf> = names.iter().map(|name| out.join(name)).collect();
    let of_querier = out.join("querier.sum.key");
    if let Some(taken) = paths.iter().chain([&of_querier]).find(|path| path.exists()) {
        return Err(Failure::usage(format_args!(
            "{} already exists; keys are never replaced",
            taken.display()
        )));
    }
    let mut secret = Zeroizing::new([0; 32]);
    random(&mut *secret)?;
    let internal = |error| Failure::new(Exit::Internal, error);
    let mut pem = Zeroizing::new([0; MAX_KEY_FILE]);
    let text = QuerierKeys::encode(&circle, &querier, &secret, &mut *pem).map_err(internal)?;
    // Written first: keys of devices are useless without those of the querier.
    files::create(&of_querier, text.as_bytes(), 0o600)?;
    let keys = QuerierKeys::decode(text.as_bytes())
        .map_err(|error| Failure::new(Exit::Internal, error))?;
    let progress = bar(u64::from(sources), "writing keys");
    for ((position, device), path) in (0..).zip(&devices).zip(&paths) {
        let text = keys.source(device.id, position).encode(&mut *pem).map_err(internal)?;
        files::create(path, text.as_bytes(), 0o600)?;
        progress.inc(1);
    }
    progress.finish_and_clear();
    talk(format_args!("querier    {}", of_querier.display()));
    talk(format_args!("devices    {} in {}", count(u64::from(sources), "key file"), out.display()));
    if *key_groups > 1 {
        talk(format_args!(
            "key groups {} of up to {}",
            sources.div_ceil(circle.key_group),
            count(u64::from(circle.key_group), "device")
        ));
    }
    Ok(())
}

/// The operator's public key: the given one, or the one next to the roster.
fn operator(arguments: &Arguments) -> Result<PathBuf, Failure> {
    let beside = || {
        ["op.pub.pem", "keys/op.pub.pem"]
            .map(|name| arguments.roster.with_file_name(name))
            .into_iter()
            .find(|path| path.exists())
    };
    arguments.operator.clone().or_else(beside).ok_or_else(|| {
        Failure::usage(format_args!(
            "there is no op.pub.pem next to {}; name the operator's public key with --operator",
            arguments.roster.display()
        ))
    })
}

/// A device's file name.
fn file_of(name: &str) -> Result<String, Failure> {
    if name.contains(['/', '\0']) || name.starts_with('.') || name == "querier" {
        return Err(Failure::usage(format_args!(
            "the name of device {name:?} cannot be used for a key file; rename the device"
        )));
    }
    Ok(format!("{name}.sum.key"))
}

/// The public key of a file with a secret or a public key.
fn public_half(path: &Path) -> Result<PublicKey, Failure> {
    // `moteseal key new --out q` makes q.key.pem.
    let mut whole = path.as_os_str().to_owned();
    whole.push(".pem");
    let whole = PathBuf::from(whole);
    let path = if !path.exists() && whole.exists() { &whole } else { path };
    match decode_secret_pem(&files::read(path)?) {
        Ok(secret) => Ok(secret.public()),
        Err(_) => files::public_key(path),
    }
}
