//! The configuration of a querier: `querier.toml` and `tree.toml` (`docs/sums.md` lists the keys).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use moteseal_core::roster::Directory as _;
use moteseal_net::mqtt;
use moteseal_sum::query::Plan;
use moteseal_verify::aggregation::QUERIER;
use moteseal_verify::{AggregationTree, Roster};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::input::{self, InputError};

/// The contents of `querier.toml`. Paths in the file are relative to the folder of the file;
/// [`read`](Self::read) resolves them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuerierConfig {
    /// The file with the group's roster.
    pub roster: PathBuf,
    /// The file with the operator's public key.
    pub operator: PathBuf,
    /// The file with the secret key that signs queries.
    pub key: PathBuf,
    /// The file with the querier's keys for private sums, `querier.sum.key`.
    pub keys: PathBuf,
    /// The aggregation tree.
    pub tree: TreeSource,
    /// The file with the secret of the querier's link to its children.
    pub link_secret: PathBuf,
    /// The file with the policy of the group, if it has one.
    #[serde(default)]
    pub policy: Option<PathBuf>,
    /// The file with the querier's state: the number of the newest query schedule, and the queries
    /// that have not ended.
    pub state: PathBuf,
    /// The columns that the devices seal, such as `temperature:Cel:i16/100`.
    pub columns: Vec<String>,
    /// The range of values of a column, such as `-40..125`.
    #[serde(default)]
    pub ranges: BTreeMap<String, String>,
    /// The maximum time that each edge of the tree may need after the end of an epoch.
    #[serde(default = "default_grace", deserialize_with = "duration")]
    pub grace: Duration,
    /// How to reach the broker of the querier's link.
    pub link: BrokerConfig,
}

/// The document that describes the keys of these files.
pub(super) const DOCS: &str = "docs/sums.md";

/// Where the configuration of the aggregation tree is.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum TreeSource {
    /// In a file.
    File(PathBuf),
    /// In the tables of this value.
    Tables(TreeTables),
}

/// The contents of `tree.toml`: the parent of each gateway (another gateway or the querier), and the
/// gateway of each device.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeTables {
    /// The name of the querier; `querier` if it is absent.
    pub querier: Option<String>,
    /// The parent of each gateway: `NAME = "PARENT"`.
    pub gateways: BTreeMap<String, String>,
    /// The gateway of each device: `NAME = "GATEWAY"`.
    pub devices: BTreeMap<String, String>,
}

/// How to reach an MQTT broker.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokerConfig {
    /// The address, such as `mqtts://broker.example:8883`.
    pub url: String,
    /// The version of MQTT, `5` (the default) or `3.1.1`.
    pub version: Option<String>,
    /// The certificate authorities to trust (PEM).
    pub ca: Option<PathBuf>,
    /// The user name.
    pub user: Option<String>,
    /// The file with the user's password.
    pub password_file: Option<PathBuf>,
    /// The client's certificate (PEM).
    pub certificate: Option<PathBuf>,
    /// The key of the client's certificate (PEM).
    pub certificate_key: Option<PathBuf>,
}

const fn default_grace() -> Duration {
    Duration::from_secs(2)
}

/// Parses a number with a unit, such as `500ms`, `2s`, `1m`, `1h` or `1d`.
pub(super) fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    };
    let length = number.parse::<u64>().ok().zip(factor);
    let length = length.and_then(|(number, factor)| number.checked_mul(factor));
    length.filter(|length| *length > 0).map(Duration::from_millis).ok_or_else(|| {
        D::Error::custom(format_args!(
            "{text:?} must be a number above 0 and a unit, such as 500ms, 2s or 1m"
        ))
    })
}

/// Narrows the values of a column to a range such as `-40..125`.
pub(super) fn narrow(plan: &mut Plan<'_>, column: &str, range: &str) -> Result<(), InputError> {
    let at = |error: InputError| error.at(format_args!("{range:?}"));
    let (least, greatest) = range.split_once("..").ok_or_else(|| {
        at(InputError::argument("a range is two numbers, for example \"-40..125\""))
    })?;
    let narrowed = plan.narrow(column, least.trim(), greatest.trim());
    narrowed.map_err(|error| at(InputError::usage(error.name(), error)))?;
    Ok(())
}

impl QuerierConfig {
    /// Reads a `querier.toml`.
    ///
    /// # Errors
    /// [`InputError`], which names the line if the file has a mistake.
    pub fn read(path: &Path) -> Result<Self, InputError> {
        let mut config: Self = input::toml(path, DOCS)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let link = &mut config.link;
        let mut paths = vec![
            &mut config.roster,
            &mut config.operator,
            &mut config.key,
            &mut config.keys,
            &mut config.link_secret,
            &mut config.state,
        ];
        if let TreeSource::File(tree) = &mut config.tree {
            paths.push(tree);
        }
        let optional = [
            &mut config.policy,
            &mut link.ca,
            &mut link.password_file,
            &mut link.certificate,
            &mut link.certificate_key,
        ];
        paths.extend(optional.into_iter().flatten());
        paths.into_iter().for_each(|path| *path = folder.join(&*path));
        Ok(config)
    }
}

impl TreeSource {
    /// Returns the aggregation tree over the devices of a roster.
    ///
    /// # Errors
    /// [`InputError`] if the file cannot be read, or does not describe a tree of these devices.
    pub fn open(&self, roster: &Roster) -> Result<AggregationTree, InputError> {
        fn pairs(table: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
            table.iter().map(|(name, above)| (name.as_str(), above.as_str()))
        }
        let read;
        let tables = match self {
            Self::File(path) => {
                read = input::toml::<TreeTables>(path, DOCS)?;
                &read
            }
            Self::Tables(tables) => tables,
        };
        let querier = tables.querier.as_deref().unwrap_or(QUERIER);
        let (gateways, devices) = (pairs(&tables.gateways), pairs(&tables.devices));
        AggregationTree::of_querier(querier, roster, gateways, devices).map_err(|error| {
            let input = InputError::usage(error.name(), &error);
            if let Self::File(path) = self { input.in_file(path) } else { input }
        })
    }
}

impl BrokerConfig {
    /// Returns the options of the link of the querier with this name to the broker of a roster's group.
    ///
    /// # Errors
    /// [`InputError`], which names the wrong key of the configuration.
    pub fn options(&self, roster: &Roster, querier: &str) -> Result<mqtt::Options, InputError> {
        let group = format!("{}.{querier}", hex::encode(roster.group().0));
        self.group_options("link", Path::new(""), group)
    }

    /// Returns the options of a link to the broker of `group`. The members of a link share `group`
    /// as a part of their topics. File names are relative to `folder`. `table` is the name of this
    /// table in the configuration; errors use it.
    ///
    /// # Errors
    /// [`InputError`], which names the table and the wrong key.
    pub fn group_options(
        &self,
        table: &str,
        folder: &Path,
        group: String,
    ) -> Result<mqtt::Options, InputError> {
        let wrong =
            |key: &str, what: &str| InputError::argument(what).at(format_args!("{table}.{key}"));
        let mut options = mqtt::Options::new(self.url.clone(), group);
        options.version = match self.version.as_deref() {
            None | Some("5") => mqtt::Version::V5,
            Some("3.1.1") => mqtt::Version::V3,
            Some(_) => return Err(wrong("version", "must be \"5\" or \"3.1.1\"")),
        };
        options.ca = self.ca.as_ref().map(|ca| folder.join(ca));
        options.login = match (&self.user, &self.password_file) {
            (None, None) => None,
            (Some(user), Some(path)) => {
                let password = mqtt::Password::read(&folder.join(path)).map_err(|error| {
                    InputError::usage(error.name(), &error)
                        .at(format_args!("{table}.password_file"))
                })?;
                Some(mqtt::Login { user: user.clone(), password })
            }
            (Some(_), None) => {
                return Err(wrong(
                    "user",
                    "name the file with the user's password in password_file",
                ));
            }
            (None, Some(_)) => {
                return Err(wrong("password_file", "name the user of the password in user"));
            }
        };
        options.identity = match (&self.certificate, &self.certificate_key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(mqtt::Identity {
                certificate: folder.join(certificate),
                key: folder.join(key),
            }),
            _ => {
                return Err(wrong(
                    "certificate",
                    "certificate and certificate_key are needed together; set both, or neither",
                ));
            }
        };
        Ok(options)
    }
}
