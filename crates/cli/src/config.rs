//! The TOML files of gateways and devices: read, with errors that name file, line, key and remedy. Paths in them are relative to the
//! file's folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use moteseal_core::roster::Directory as _;
use moteseal_net::mqtt;
use moteseal_net::{Client, Options, Token};
use moteseal_verify::Roster;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};

use crate::source::SchemeName;

use crate::failure::Failure;
use crate::files;
use crate::time;

/// `gateway.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gateway {
    pub(crate) roster: PathBuf,
    pub(crate) operator: PathBuf,
    /// The coordinator's secret key.
    pub(crate) key: PathBuf,
    pub(crate) link_secret: PathBuf,
    /// The folder of journal and outbox.
    pub(crate) state: PathBuf,
    /// How many bytes that folder may take.
    #[serde(default = "default_disk", deserialize_with = "bytes")]
    pub(crate) disk: u64,
    /// How long after an epoch's end its seals are waited for.
    #[serde(default = "default_grace", deserialize_with = "duration")]
    pub(crate) grace: Duration,
    #[serde(default)]
    pub(crate) time: Time,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) link: Link,
    pub(crate) cloud: Option<Cloud>,
}

/// `aggregator.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Aggregator {
    /// The gateway's name in the tree.
    pub(crate) name: String,
    pub(crate) roster: PathBuf,
    pub(crate) operator: PathBuf,
    /// The querier's public key.
    pub(crate) querier: PathBuf,
    pub(crate) tree: PathBuf,
    /// This aggregator's link secret, from which its children's follow.
    pub(crate) link_secret: PathBuf,
    /// The gateway's own link secret at its parent.
    pub(crate) up_secret: PathBuf,
    /// The folder where the number of the newest query schedule is kept.
    pub(crate) state: PathBuf,
    /// How long after an epoch's end children are waited for, for each height of the tree.
    #[serde(default = "default_sum_grace", deserialize_with = "duration")]
    pub(crate) grace: Duration,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) link: Link,
    /// The broker between the gateway and its parent, if it is another one.
    pub(crate) up_link: Option<Link>,
}

/// `serial.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Serial {
    pub(crate) roster: PathBuf,
    pub(crate) operator: PathBuf,
    pub(crate) listen: Option<SocketAddr>,
    /// The broker of the group's coordinator.
    pub(crate) link: Option<Link>,
    pub(crate) sums: Option<SerialSums>,
    /// The broadcast medium: an address as `moteseal broadcast` takes it, and how to get into a broker.
    pub(crate) broadcast: Option<Link>,
    #[serde(default)]
    pub(crate) port: Vec<SerialPort>,
}

/// Where the motes on serial lines say their sums.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SerialSums {
    /// The tree, which has an aggregator for each device, or one aggregator for all.
    pub(crate) tree: Option<PathBuf>,
    pub(crate) aggregator: Option<String>,
    /// The broker, where it is another one than that of `link`.
    pub(crate) link: Option<Link>,
}

/// A serial port.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SerialPort {
    /// A path, or `tcp://host:port`.
    pub(crate) address: String,
    #[serde(default = "default_baud")]
    pub(crate) baud: u32,
    /// The name of the only device that may be there.
    pub(crate) device: Option<String>,
}

/// Whose time epochs follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Time {
    /// The gateway's clock.
    #[default]
    Clock,
    /// The readings that devices replay.
    Recorded,
}

/// `device.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Device {
    /// The device's name in the roster.
    pub(crate) device: String,
    pub(crate) key: PathBuf,
    pub(crate) salt_key: Option<PathBuf>,
    pub(crate) roster: PathBuf,
    pub(crate) operator: PathBuf,
    /// The device's own link secret.
    pub(crate) link_secret: PathBuf,
    /// The folder of the journal.
    pub(crate) state: PathBuf,
    /// The chain's state, where it does not lie beside the key.
    pub(crate) chain: Option<PathBuf>,
    /// Star or tree.
    #[serde(default)]
    pub(crate) scheme: SchemeName,
    /// How many closed seals wait for the gateway before epochs are given up.
    #[serde(default = "default_waiting")]
    pub(crate) waiting_seals: u32,
    pub(crate) link: Link,
    pub(crate) source: Source,
    /// How the device takes part in private sums, if it does.
    pub(crate) sum: Option<Member>,
}

/// A source of private sums.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Member {
    /// The key file that `moteseal sum setup` made for this device.
    pub(crate) key: PathBuf,
    /// The name of the gateway, or `querier`, whose child the device is.
    pub(crate) parent: String,
    /// The device's link secret there.
    pub(crate) link_secret: PathBuf,
    /// The broker, where it is another one than that of `link`.
    pub(crate) link: Option<Link>,
}

/// Where readings come from: a table, or lines from stdin.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    /// A table to replay; without it, lines from stdin are sealed as they come.
    pub(crate) table: Option<PathBuf>,
    /// The table's column that says when.
    pub(crate) time: Option<String>,
    /// Without such a column: how far apart readings are, and when the first was taken.
    #[serde(default, deserialize_with = "optional_duration")]
    pub(crate) every: Option<Duration>,
    pub(crate) start: Option<String>,
    #[serde(default)]
    pub(crate) columns: Vec<String>,
    /// Instead of columns: the column, or of stdin the line, as it is.
    pub(crate) opaque: Option<String>,
    #[serde(default)]
    pub(crate) keep_time: bool,
    #[serde(default)]
    pub(crate) skip_incomplete: bool,
    #[serde(default)]
    pub(crate) sort: bool,
}

/// The broker between devices and gateway.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Link {
    pub(crate) url: String,
    pub(crate) version: Option<String>,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) user: Option<String>,
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) certificate_key: Option<PathBuf>,
}

/// The cloud that a gateway uploads to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cloud {
    pub(crate) url: String,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) ca: Option<PathBuf>,
}

const fn default_disk() -> u64 {
    1 << 30
}

const fn default_grace() -> Duration {
    Duration::from_secs(30)
}

const fn default_sum_grace() -> Duration {
    Duration::from_secs(2)
}

const fn default_baud() -> u32 {
    115_200
}

const fn default_waiting() -> u32 {
    32
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    time::duration(&text)
        .map(Duration::from_millis)
        .map_err(|error| D::Error::custom(format_args!("{text:?}: {error}")))
}

fn optional_duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    duration(from).map(Some)
}

/// A number of bytes: `64MiB`, `4GiB`.
fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = String::deserialize(from)?;
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "KiB" => Some(10),
        "MiB" => Some(20),
        "GiB" => Some(30),
        "TiB" => Some(40),
        _ => None,
    };
    let number = number
        .parse::<u64>()
        .ok()
        .zip(shift)
        .and_then(|(number, shift)| number.checked_mul(1 << shift));
    number.filter(|number| *number >= 4 << 20).ok_or_else(|| {
        D::Error::custom(format_args!("{text:?}: a number and a unit, at least 4MiB: 512MiB, 4GiB"))
    })
}

/// Reads a file, and says which folder its paths are relative to.
pub(crate) fn load<T: DeserializeOwned>(path: &Path) -> Result<(T, PathBuf), Failure> {
    load_as(path, "docs/gateway.md")
}

/// The same of a file whose keys are all in `docs`.
pub(crate) fn load_as<T: DeserializeOwned>(
    path: &Path,
    docs: &str,
) -> Result<(T, PathBuf), Failure> {
    let text = files::read(path)?;
    let text = std::str::from_utf8(&text)
        .map_err(|_| Failure::usage(format_args!("{}: not UTF-8 text", path.display())))?;
    let config = toml::from_str(text).map_err(|error| {
        let line = error
            .span()
            .map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let message = error.message().replace('\n', " ");
        Failure::usage(format_args!("{}:{line}: {message}; {docs} has all keys", path.display()))
    })?;
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((config, folder.to_owned()))
}

impl Link {
    /// What the broker of a group is reached with.
    pub(crate) fn options(
        &self,
        file: &Path,
        folder: &Path,
        roster: &Roster,
    ) -> Result<mqtt::Options, Failure> {
        self.options_in("link", file, folder, roster)
    }

    /// What the broker is reached with for the sums of a group, at the aggregator of this name.
    pub(crate) fn aggregator_options(
        &self,
        file: &Path,
        folder: &Path,
        roster: &Roster,
        aggregator: &str,
    ) -> Result<mqtt::Options, Failure> {
        self.aggregator_options_in("link", file, folder, roster, aggregator)
    }

    /// The same, from a table of another name than `link`.
    pub(crate) fn aggregator_options_in(
        &self,
        table: &str,
        file: &Path,
        folder: &Path,
        roster: &Roster,
        aggregator: &str,
    ) -> Result<mqtt::Options, Failure> {
        let mut options = self.options_in(table, file, folder, roster)?;
        options.group = format!("{}.{aggregator}", options.group);
        Ok(options)
    }

    pub(crate) fn options_in(
        &self,
        table: &str,
        file: &Path,
        folder: &Path,
        roster: &Roster,
    ) -> Result<mqtt::Options, Failure> {
        let wrong = |key: &str, what: &str| {
            Failure::usage(format_args!("{}: {table}.{key}: {what}", file.display()))
        };
        let mut options = mqtt::Options::new(self.url.clone(), hex::encode(roster.group().0));
        options.version = match self.version.as_deref() {
            None | Some("5") => mqtt::Version::V5,
            Some("3.1.1") => mqtt::Version::V3,
            Some(_) => return Err(wrong("version", "\"5\" or \"3.1.1\"")),
        };
        options.ca = self.ca.as_ref().map(|ca| folder.join(ca));
        options.login = match (&self.user, &self.password_file) {
            (None, None) => None,
            (Some(user), Some(password)) => {
                let password = mqtt::Password::read(&folder.join(password)).map_err(|error| {
                    Failure::usage(error).about_key(file, &format!("{table}.password_file"))
                })?;
                Some(mqtt::Login { user: user.clone(), password })
            }
            (Some(_), None) => {
                return Err(wrong("user", "name the file of its password with password_file"));
            }
            (None, Some(_)) => return Err(wrong("password_file", "say whose it is with user")),
        };
        options.identity = match (&self.certificate, &self.certificate_key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(mqtt::Identity {
                certificate: folder.join(certificate),
                key: folder.join(key),
            }),
            _ => return Err(wrong("certificate", "certificate and certificate_key go together")),
        };
        Ok(options)
    }
}

impl Cloud {
    /// A client of the cloud.
    pub(crate) fn client(&self, file: &Path, folder: &Path) -> Result<Client, Failure> {
        let said = |key: &'static str| move |error| Failure::usage(error).about_key(file, key);
        let token =
            self.token_file.as_ref().map(|token| Token::read(&folder.join(token))).transpose();
        let token = token.map_err(said("cloud.token_file"))?;
        let ca = self.ca.as_ref().map(|ca| folder.join(ca));
        Client::new(&self.url, &Options { ca, token, ..Options::default() })
            .map_err(said("cloud.url"))
    }
}
