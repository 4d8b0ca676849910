//! Reads the TOML configuration files of gateways, devices and queriers. Errors state the file, the
//! line, the key and what to do. Paths in a configuration file are relative to its folder.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use moteseal_client::input;
use moteseal_client::sum::BrokerConfig;
use moteseal_client::time_server::time_topic;
use moteseal_core::health::{Policy, SHORTEST_ON_HOSTS};
use moteseal_core::roster::Directory as _;
use moteseal_net::mqtt;
use moteseal_net::{Client, Credential, Identity, Login, NetError, Options, Token};
use moteseal_verify::Roster;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::input_table::SchemeName;

use crate::client_error;
use crate::failure::{Exit, Failure};
use crate::time;

/// The contents of `gateway.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gateway {
    pub(crate) roster: PathBuf,
    pub(crate) operator: PathBuf,
    /// The coordinator's secret key.
    pub(crate) key: PathBuf,
    /// The key that a newer roster certifies, while the coordinator's key changes.
    pub(crate) next_key: Option<PathBuf>,
    pub(crate) link_secret: PathBuf,
    /// The folder with the journal and the outbox.
    pub(crate) state: PathBuf,
    /// The maximum number of bytes in that folder.
    #[serde(default = "default_disk", deserialize_with = "bytes")]
    pub(crate) disk: u64,
    /// How long to wait for seals after the end of an epoch.
    #[serde(default = "default_grace", deserialize_with = "duration")]
    pub(crate) grace: Duration,
    #[serde(default)]
    pub(crate) time: Time,
    pub(crate) listen: Option<SocketAddr>,
    /// The broker of the devices that connect over MQTT.
    pub(crate) link: Option<BrokerConfig>,
    /// Where children connect over CoAP, without DTLS and with it.
    pub(crate) listen_coap: Option<SocketAddr>,
    pub(crate) listen_coaps: Option<SocketAddr>,
    /// The certificate of this gateway, for children that have certificates instead of keys.
    pub(crate) coaps: Option<Certificates>,
    pub(crate) cloud: Option<Cloud>,
    #[serde(default)]
    pub(crate) health: Health,
}

/// A certificate, and the authority that issues the certificates of the other side.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Certificates {
    /// The authority's certificates (PEM).
    pub(crate) ca: PathBuf,
    /// The own certificate (PEM).
    pub(crate) certificate: PathBuf,
    /// Its key (PEM).
    pub(crate) certificate_key: PathBuf,
}

/// The contents of `aggregator.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Aggregator {
    /// The gateway's name in the tree.
    pub(crate) name: String,
    pub(crate) roster: PathBuf,
    pub(crate) operator: PathBuf,
    /// The querier's public key, if the roster does not name it.
    pub(crate) querier: Option<PathBuf>,
    pub(crate) tree: PathBuf,
    /// This aggregator's link secret, from which the link secrets of its children are derived.
    pub(crate) link_secret: PathBuf,
    /// The link secret with which the gateway authenticates to its parent.
    pub(crate) up_secret: PathBuf,
    /// The folder in which the gateway stores the number of the newest query schedule.
    pub(crate) state: PathBuf,
    /// How long to wait for children after the end of an epoch, for each level of the tree below
    /// this gateway.
    #[serde(default = "default_sum_grace", deserialize_with = "duration")]
    pub(crate) grace: Duration,
    pub(crate) listen: Option<SocketAddr>,
    /// The broker of the children that connect over MQTT.
    pub(crate) link: Option<BrokerConfig>,
    /// Where children connect over CoAP, without DTLS and with it.
    pub(crate) listen_coap: Option<SocketAddr>,
    pub(crate) listen_coaps: Option<SocketAddr>,
    /// The certificate of this gateway, for children that have certificates instead of keys.
    pub(crate) coaps: Option<Certificates>,
    /// The broker between the gateway and its parent, if it differs from `link`.
    pub(crate) up_link: Option<BrokerConfig>,
    #[serde(default)]
    pub(crate) health: Health,
}

/// The contents of `serial.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Serial {
    pub(crate) roster: PathBuf,
    pub(crate) operator: PathBuf,
    pub(crate) listen: Option<SocketAddr>,
    /// The broker of the group's coordinator.
    pub(crate) link: Option<BrokerConfig>,
    pub(crate) sums: Option<SerialSums>,
    /// The broker of the signers of the time, if it differs from that of `sums`.
    pub(crate) time: Option<BrokerConfig>,
    /// The broadcast medium: an address in the form that `moteseal broadcast` accepts, and how to
    /// log in to a broker.
    pub(crate) broadcast: Option<BrokerConfig>,
    #[serde(default)]
    pub(crate) port: Vec<SerialPort>,
    #[serde(default)]
    pub(crate) health: Health,
}

/// To which aggregators the private sums of motes on serial lines are sent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SerialSums {
    /// The tree, which determines the aggregator of each device. Without a tree, `aggregator` is
    /// the aggregator of all devices.
    pub(crate) tree: Option<PathBuf>,
    pub(crate) aggregator: Option<String>,
    /// The broker, if it differs from `link`.
    pub(crate) link: Option<BrokerConfig>,
}

/// A serial port.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SerialPort {
    /// The path of the port, or `tcp://host:port`.
    pub(crate) address: String,
    #[serde(default = "default_baud")]
    pub(crate) baud: u32,
    /// The name of the device that may use the port; without it, any device may.
    pub(crate) device: Option<String>,
}

/// The contents of `time.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimeServer {
    pub(crate) roster: PathBuf,
    pub(crate) operator: PathBuf,
    /// The secret key of the operator or of the querier.
    pub(crate) key: PathBuf,
    pub(crate) link: BrokerConfig,
}

/// The clock that determines epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Time {
    /// The gateway's clock.
    #[default]
    Clock,
    /// The times of the readings that devices replay.
    Recorded,
}

/// The contents of `device.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Device {
    /// The device's name in the roster.
    pub(crate) device: String,
    pub(crate) key: PathBuf,
    /// The key that a newer roster certifies, while the device's key changes.
    pub(crate) next_key: Option<PathBuf>,
    pub(crate) salt_key: Option<PathBuf>,
    pub(crate) roster: PathBuf,
    pub(crate) operator: PathBuf,
    /// The device's own link secret.
    pub(crate) link_secret: PathBuf,
    /// The file with the secret of the device's stream, with `{device}` in place of its name. It is
    /// needed until the keys of all encrypted columns are next to the state of the chain.
    pub(crate) stream_secret: Option<String>,
    /// The folder of the journal.
    pub(crate) state: PathBuf,
    /// The file with the state of the device's chain, if it is not next to the key.
    pub(crate) chain: Option<PathBuf>,
    /// The hash structure of the seals: star or tree.
    #[serde(default)]
    pub(crate) scheme: SchemeName,
    /// The maximum number of closed seals that wait for the gateway. If more are closed, the device
    /// drops the newer ones.
    #[serde(default = "default_waiting")]
    pub(crate) waiting_seals: u32,
    pub(crate) link: BrokerConfig,
    /// Where clients read the newest reading and the health.
    pub(crate) coap: Option<Coap>,
    /// How often the device reports its health.
    #[serde(default)]
    pub(crate) health: Health,
    pub(crate) source: Source,
    /// How the device takes part in private sums: one section for each querier.
    #[serde(default)]
    pub(crate) sum: Members,
}

/// Stands for the name of the device in paths.
pub(crate) const PLACEHOLDER: &str = "{device}";

/// Returns the path that a template names for a device.
pub(crate) fn device_path(template: &str, device: &str, folder: &Path) -> PathBuf {
    folder.join(template.replace(PLACEHOLDER, device))
}

pub(crate) fn default_key() -> String {
    format!("keys/{PLACEHOLDER}.key.pem")
}

pub(crate) fn default_link_secret() -> String {
    format!("keys/{PLACEHOLDER}.link.key")
}

/// The section `[health]` of a device, a gateway or a hub.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Health {
    /// The period of reports, and the shortest time between two.
    #[serde(default, deserialize_with = "optional_duration")]
    pub(crate) period: Option<Duration>,
    #[serde(default, deserialize_with = "optional_duration")]
    pub(crate) min: Option<Duration>,
    /// How unusual a rate is reported at once; 0 for a fixed period.
    pub(crate) threshold: Option<u32>,
    /// Where a gateway or a hub also serves health, without DTLS.
    pub(crate) listen: Option<SocketAddr>,
    /// The device that seals the reports, as a stream of its own.
    pub(crate) device: Option<String>,
    /// The device that seals the reports that a gateway receives.
    pub(crate) nodes: Option<String>,
    /// The paths of the files of these devices, with `{device}` in them.
    pub(crate) key: Option<String>,
    pub(crate) next_key: Option<String>,
    pub(crate) salt_key: Option<String>,
    pub(crate) link_secret: Option<String>,
    pub(crate) chain: Option<String>,
    pub(crate) state: Option<String>,
}

impl Health {
    /// Checks that these keys are not set. `file` is the configuration, and `why` says what to do instead.
    pub(crate) fn refuse(
        &self,
        file: &Path,
        keys: &[(&str, bool)],
        why: &str,
    ) -> Result<(), Failure> {
        match keys.iter().find(|(_, is_set)| *is_set) {
            Some((key, _)) => Err(Failure::usage(why).about_key(file, &format!("health.{key}"))),
            None => Ok(()),
        }
    }

    /// Checks that no device is named to seal the reports. `file` is the configuration.
    pub(crate) fn refuse_streams(&self, file: &Path) -> Result<(), Failure> {
        let set = [
            ("device", self.device.is_some()),
            ("nodes", self.nodes.is_some()),
            ("key", self.key.is_some()),
            ("next_key", self.next_key.is_some()),
            ("salt_key", self.salt_key.is_some()),
            ("link_secret", self.link_secret.is_some()),
            ("chain", self.chain.is_some()),
        ];
        self.refuse(file, &set, "this program seals no reports of health; leave it out")
    }

    /// Returns the policy of the reports. `file` is the configuration.
    pub(crate) fn policy(&self, file: &Path) -> Result<Policy, Failure> {
        let default = Policy::VARIABLE;
        let seconds = |given: Option<Duration>, default: u32| {
            given.map_or(default, |given| u32::try_from(given.as_secs()).unwrap_or(u32::MAX))
        };
        let period_s = seconds(self.period, default.period_s);
        let min_s = seconds(self.min, default.min_s.min(period_s));
        let threshold = self.threshold.unwrap_or(default.threshold);
        Policy { period_s, min_s, threshold }
            .check(SHORTEST_ON_HOSTS)
            .map_err(|error| Failure::named(Exit::Usage, error.named()).about_key(file, "health"))
    }
}

/// The section `[coap]` of a device.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Coap {
    /// The addresses for clients without DTLS.
    #[serde(default)]
    pub(crate) listen: Vec<SocketAddr>,
    /// The addresses for clients with DTLS, who have the device's link secret.
    #[serde(default)]
    pub(crate) listen_dtls: Vec<SocketAddr>,
}

/// The section `[sum]`, or the sections `[[sum]]` of a device with several queriers.
#[derive(Debug, Default)]
pub(crate) struct Members(pub(crate) Vec<Member>);

impl Members {
    /// Returns each section and its name in error messages.
    pub(crate) fn named(&self) -> impl Iterator<Item = (String, &Member)> {
        let name = |place| if self.0.len() == 1 { "sum".into() } else { format!("sum[{place}]") };
        (0..).map(name).zip(&self.0)
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sections;

        impl<'de> Visitor<'de> for Sections {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a section [sum], or a section [[sum]] for each querier")
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Members, M::Error> {
                let one = Member::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Members(vec![one]))
            }

            fn visit_seq<S: SeqAccess<'de>>(self, seq: S) -> Result<Members, S::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Members)
            }
        }

        deserializer.deserialize_any(Sections)
    }
}

/// A source of private sums.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Member {
    /// The key file that `moteseal sum setup` made for this device.
    pub(crate) key: PathBuf,
    /// The name of the device's gateway in the querier's tree.
    pub(crate) parent: String,
    /// The link secret with which the device authenticates to that parent.
    pub(crate) link_secret: PathBuf,
    /// The policy that `moteseal sum policy sign` made, if the group has one.
    pub(crate) policy: Option<PathBuf>,
    /// The broker, if it differs from `link`.
    pub(crate) link: Option<BrokerConfig>,
}

/// The source of the readings: a table or lines of stdin.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    /// A table to replay. Without it, lines of stdin are sealed as they arrive.
    pub(crate) table: Option<PathBuf>,
    /// The column of the table that contains the times.
    pub(crate) time: Option<String>,
    /// If the table has no column of times: the interval between readings, and the time of the
    /// first reading.
    #[serde(default, deserialize_with = "optional_duration")]
    pub(crate) every: Option<Duration>,
    pub(crate) start: Option<String>,
    #[serde(default)]
    pub(crate) columns: Vec<String>,
    /// Instead of `columns`: the column whose bytes are sealed unchanged. For stdin, the whole line
    /// is sealed.
    pub(crate) opaque: Option<String>,
    /// The prefix of lines of stdin that are urgent readings.
    pub(crate) urgent: Option<String>,
    #[serde(default)]
    pub(crate) keep_time: bool,
    #[serde(default)]
    pub(crate) skip_incomplete: bool,
    #[serde(default)]
    pub(crate) sort: bool,
}

/// The cloud to which a gateway uploads.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cloud {
    pub(crate) url: String,
    pub(crate) token_file: Option<PathBuf>,
    /// The user's name, instead of a token.
    pub(crate) user: Option<String>,
    /// The file with the user's password.
    pub(crate) password_file: Option<PathBuf>,
    /// The client's certificate (PEM).
    pub(crate) certificate: Option<PathBuf>,
    /// The key of the client's certificate (PEM).
    pub(crate) certificate_key: Option<PathBuf>,
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

pub(crate) const fn default_waiting() -> u32 {
    32
}

pub(crate) fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    time::duration(&text)
        .map(Duration::from_millis)
        .map_err(|error| D::Error::custom(format_args!("{text:?}: {error}")))
}

pub(crate) fn optional_duration<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Duration>, D::Error> {
    duration(from).map(Some)
}

/// Parses a number of bytes, for example `64MiB` or `4GiB`.
pub(crate) fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
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

/// Reads a configuration file. Also returns the folder to which its paths are relative.
pub(crate) fn load<T: DeserializeOwned>(path: &Path) -> Result<(T, PathBuf), Failure> {
    load_as(path, "docs/gateway.md")
}

/// Like [`load`]. `docs` is the document that lists the keys, for error messages.
pub(crate) fn load_as<T: DeserializeOwned>(
    path: &Path,
    docs: &str,
) -> Result<(T, PathBuf), Failure> {
    let config = input::toml(path, docs).map_err(|error| client_error::input(&error))?;
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((config, folder.to_owned()))
}

/// Returns the name of a group in topics and paths: that of its coordinator, or that of the aggregator
/// of private sums with this name.
pub(crate) fn link_group(roster: &Roster, aggregator: Option<&str>) -> String {
    let group = hex::encode(roster.group().0);
    aggregator.map_or_else(|| group.clone(), |aggregator| format!("{group}.{aggregator}"))
}

/// Returns the options of the link to a group's broker. `table` is the name of the link's table in
/// `file`, for error messages.
pub(crate) fn link_options(
    link: &BrokerConfig,
    table: &str,
    file: &Path,
    folder: &Path,
    group: String,
) -> Result<mqtt::Options, Failure> {
    link.group_options(table, folder, group)
        .map_err(|error| client_error::input(&error).about(file))
}

/// Returns the options of the link between a group's motes and the signers of the time.
pub(crate) fn time_options(
    link: &BrokerConfig,
    table: &str,
    file: &Path,
    folder: &Path,
    roster: &Roster,
) -> Result<mqtt::Options, Failure> {
    link.group_options(table, folder, time_topic(roster.group()))
        .map_err(|error| client_error::input(&error).about(file))
}

impl Cloud {
    /// Returns a client of the cloud.
    pub(crate) fn client(&self, file: &Path, folder: &Path) -> Result<Client, Failure> {
        let in_key =
            |key: &'static str| move |error: NetError| Failure::from(error).about_key(file, key);
        let wrong = |key, what: &str| Failure::usage(what).about_key(file, key);
        let credential = match (&self.token_file, &self.user, &self.password_file) {
            (None, None, None) => None,
            (Some(token), None, None) => {
                let token = Token::read(&folder.join(token));
                Some(Credential::Token(token.map_err(in_key("cloud.token_file"))?))
            }
            (None, Some(user), Some(password)) => {
                let login = Login::read(user, &folder.join(password));
                Some(Credential::Login(login.map_err(in_key("cloud.password_file"))?))
            }
            (Some(_), ..) => {
                return Err(wrong("cloud.token_file", "set a token or a user, not both"));
            }
            (None, Some(_), None) => {
                let what = "name the file with the user's password in password_file";
                return Err(wrong("cloud.user", what));
            }
            (None, None, Some(_)) => {
                return Err(wrong("cloud.password_file", "name the user of the password in user"));
            }
        };
        let identity = match (&self.certificate, &self.certificate_key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                Some(Identity { certificate: folder.join(certificate), key: folder.join(key) })
            }
            _ => {
                let what =
                    "certificate and certificate_key are needed together; set both, or neither";
                return Err(wrong("cloud.certificate", what));
            }
        };
        let ca = self.ca.as_ref().map(|ca| folder.join(ca));
        Client::new(&self.url, &Options { ca, credential, identity, ..Options::default() })
            .map_err(in_key("cloud.url"))
    }
}
