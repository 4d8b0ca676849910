//! The contents of `hub.toml` (docs/hub.md).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use moteseal_client::sum::BrokerConfig;
use moteseal_core::schema::Schema;
use moteseal_hub::agents::AgentSettings;
use moteseal_hub::line::{Lines, MAX_WAITING};
use moteseal_hub::{From, Program, Resource, mapping};
use moteseal_net::coap::Address;
use moteseal_net::mqtt::is_filter;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use tokio::sync::mpsc;

use super::agents::{AgentsTable, BroadcastTable};
use crate::config;
use crate::failure::Failure;
use crate::input_table::SchemeName;

/// The contents of `hub.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hub {
    pub(crate) roster: PathBuf,
    pub(crate) operator: PathBuf,
    /// The folder with a folder for each device.
    pub(crate) state: PathBuf,
    /// The address of the pages with metrics and health.
    pub(crate) listen: Option<SocketAddr>,
    /// The path of the secret key of each device, with `{device}` in it.
    #[serde(default = "config::default_key")]
    pub(crate) key: String,
    /// The path of the link secret of each device, with `{device}` in it.
    #[serde(default = "config::default_link_secret")]
    pub(crate) link_secret: String,
    /// The path of the stream secret of each device with encrypted columns, with `{device}` in it.
    pub(crate) stream_secret: Option<String>,
    /// The hash structure of the seals: star or tree.
    #[serde(default)]
    pub(crate) scheme: SchemeName,
    /// The maximum number of closed seals of a device that wait for the gateway.
    #[serde(default = "default_waiting")]
    pub(crate) waiting_seals: u32,
    /// The gateway of the devices.
    pub(crate) link: BrokerConfig,
    /// The broker of the sensors.
    pub(crate) mqtt: Option<Mqtt>,
    /// The listener for messages by HTTP.
    pub(crate) http: Option<Http>,
    /// How often the devices and the hub report their health, and where the hub's is served.
    #[serde(default)]
    pub(crate) health: config::Health,
    #[serde(default)]
    pub(crate) source: Vec<Source>,
    /// How agents are confined.
    #[serde(default)]
    pub(crate) agents: AgentsTable,
    /// What single agents may use in addition.
    #[serde(default)]
    pub(crate) agent: Vec<AgentSettings>,
    /// The broadcasts with commands and packages of agents.
    pub(crate) broadcast: Option<BroadcastTable>,
}

/// The broker of the sensors.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mqtt {
    url: String,
    version: Option<String>,
    ca: Option<PathBuf>,
    user: Option<String>,
    password_file: Option<PathBuf>,
    certificate: Option<PathBuf>,
    certificate_key: Option<PathBuf>,
    /// The client id at the broker.
    pub(crate) client: Option<String>,
}

impl Mqtt {
    pub(crate) fn broker(&self) -> BrokerConfig {
        let Self { url, version, ca, user, password_file, certificate, certificate_key, .. } =
            self.clone();
        BrokerConfig { url, version, ca, user, password_file, certificate, certificate_key }
    }
}

/// The listener for messages by HTTP.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Http {
    pub(crate) listen: SocketAddr,
    /// The file with the token that clients must send.
    pub(crate) token_file: Option<PathBuf>,
}

/// A source of readings, and the device in whose name they are sealed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    /// The device's name in the roster.
    pub(crate) device: String,
    pub(crate) key: Option<String>,
    /// The key that a newer roster certifies, while the device's key changes.
    pub(crate) next_key: Option<PathBuf>,
    pub(crate) salt_key: Option<PathBuf>,
    pub(crate) link_secret: Option<String>,
    pub(crate) stream_secret: Option<String>,
    /// The file with the state of the device's chain, if it is not next to the key.
    pub(crate) chain: Option<PathBuf>,
    pub(crate) scheme: Option<SchemeName>,

    /// Topics of the broker.
    mqtt: Option<Texts>,
    /// Whether messages count that the broker had retained.
    #[serde(default)]
    pub(crate) retained: bool,
    /// A resource of a CoAP server, which is observed.
    coap: Option<String>,
    /// The content format to request from that server.
    format: Option<u16>,
    /// An address for datagrams.
    udp: Option<SocketAddr>,
    /// The senders whose datagrams are accepted; all if empty.
    #[serde(default)]
    senders: Vec<IpAddr>,
    /// A path of the HTTP listener.
    http: Option<String>,
    /// The name of an installed agent.
    pub(crate) agent: Option<String>,
    /// A program that prints a message on each line.
    command: Option<Vec<String>>,
    /// How often to run the program.
    #[serde(default, deserialize_with = "config::optional_duration")]
    every: Option<Duration>,

    pub(crate) columns: Vec<String>,
    #[serde(default)]
    pub(crate) from: Vec<String>,
    #[serde(default, deserialize_with = "texts")]
    when: BTreeMap<String, String>,
    #[serde(default)]
    map: BTreeMap<String, BTreeMap<String, String>>,
    /// The factors of the numbers of an origin.
    #[serde(default)]
    scale: BTreeMap<String, f64>,
    /// Whether numbers are rounded to the scale of their column.
    #[serde(default)]
    round: bool,
    /// The offset from UTC of times that state none.
    utc_offset: Option<String>,
}

/// What the sources of a configuration use.
#[derive(Debug, Default)]
pub(crate) struct Used {
    /// The receivers of the lines of agents, by the name of the agent.
    pub(crate) receivers: BTreeMap<String, Vec<Lines>>,
    /// The paths of the HTTP listener.
    paths: BTreeSet<String>,
}

/// A text, or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Texts {
    One(String),
    Several(Vec<String>),
}

/// Reads a table of texts. Numbers and booleans become texts.
fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let table = BTreeMap::<String, toml::Value>::deserialize(from)?;
    let text = |(key, value): (String, toml::Value)| match value {
        toml::Value::String(text) => Ok((key, text)),
        toml::Value::Integer(number) => Ok((key, number.to_string())),
        toml::Value::Boolean(value) => Ok((key, value.to_string())),
        _ => Err(D::Error::custom(format_args!(
            "{key:?} must have a text, an integer, true or false"
        ))),
    };
    table.into_iter().map(text).collect()
}

const fn default_waiting() -> u32 {
    32
}

impl Hub {
    /// Returns the path of a source's key.
    pub(crate) fn key_path(&self, source: &Source, folder: &Path) -> PathBuf {
        config::device_path(source.key.as_ref().unwrap_or(&self.key), &source.device, folder)
    }

    /// Returns the path of a source's link secret.
    pub(crate) fn link_secret_path(&self, source: &Source, folder: &Path) -> PathBuf {
        config::device_path(
            source.link_secret.as_ref().unwrap_or(&self.link_secret),
            &source.device,
            folder,
        )
    }

    /// Returns the path of a source's stream secret. The key of the hub concerns only sources with
    /// encrypted columns.
    pub(crate) fn stream_secret_path(
        &self,
        source: &Source,
        folder: &Path,
        schema: &[u8],
    ) -> Option<PathBuf> {
        let is_encrypted = Schema::decode(schema).is_ok_and(|schema| schema.encrypted_count() > 0);
        let of_hub = self.stream_secret.as_ref().filter(|_| is_encrypted);
        let template = source.stream_secret.as_ref().or(of_hub);
        template.map(|template| config::device_path(template, &source.device, folder))
    }
}

impl Source {
    /// Returns how the messages become rows.
    pub(crate) fn mapping(&self) -> mapping::Settings {
        mapping::Settings {
            columns: self.columns.clone(),
            from: self.from.clone(),
            when: self.when.clone(),
            map: self.map.clone(),
            scale: self.scale.clone(),
            rounds: self.round,
            utc_offset: self.utc_offset.clone(),
        }
    }

    /// Returns where the messages come from. Adds the receivers of the lines of agents to `used`, by the
    /// name of the agent, and checks that no other source has the same path of the HTTP listener.
    ///
    /// # Errors
    /// The key that is wrong, and a failure.
    pub(crate) fn from(
        &self,
        hub: &Hub,
        folder: &Path,
        used: &mut Used,
    ) -> Result<From, (&'static str, Failure)> {
        let wrong = |key, what: &str| Err((key, Failure::usage(what)));
        let given = [
            ("mqtt", self.mqtt.is_some()),
            ("coap", self.coap.is_some()),
            ("udp", self.udp.is_some()),
            ("http", self.http.is_some()),
            ("command", self.command.is_some()),
            ("agent", self.agent.is_some()),
        ];
        let given: Vec<&str> =
            given.into_iter().filter(|(_, is_given)| *is_given).map(|(key, _)| key).collect();
        if given.len() != 1 {
            return wrong(
                "mqtt",
                "a source has one of the keys mqtt, coap, udp, http, command and agent, which says where its messages come from",
            );
        }
        if self.every.is_some() && self.command.is_none() {
            return wrong("every", "only a command runs at intervals; leave it out");
        }
        if !self.senders.is_empty() && self.udp.is_none() {
            return wrong("senders", "only datagrams have a list of senders; leave it out");
        }
        if let Some(agent) = &self.agent {
            let (lines, received) = mpsc::channel(MAX_WAITING);
            used.receivers.entry(agent.clone()).or_default().push(lines);
            return Ok(From::Agent(received));
        }
        if let Some(topics) = &self.mqtt {
            let topics = match topics {
                Texts::One(topic) => vec![topic.clone()],
                Texts::Several(topics) => topics.clone(),
            };
            if hub.mqtt.is_none() {
                return wrong("mqtt", "name the broker in the table [mqtt]");
            }
            if topics.is_empty() || !topics.iter().all(|topic| is_filter(topic)) {
                return wrong(
                    "mqtt",
                    "write a topic such as \"zigbee2mqtt/kitchen\"; + stands for one level, # for all further ones",
                );
            }
            return Ok(From::Mqtt(topics));
        }
        if self.format.is_some() && self.coap.is_none() {
            return wrong("format", "only a CoAP server is asked for a format; leave it out");
        }
        if let Some(url) = &self.coap {
            let address = Address::parse(url).map_err(|error| ("coap", error.into()))?;
            if address.is_secure {
                return wrong(
                    "coap",
                    "write an address such as coap://sensor.example/temperature; DTLS is not supported here",
                );
            }
            return Ok(From::Coap(Resource { address, format: self.format }));
        }
        if let Some(address) = self.udp {
            let senders = self.senders.iter().map(IpAddr::to_canonical).collect();
            return Ok(From::Udp { address, senders });
        }
        if let Some(path) = &self.http {
            if hub.http.is_none() {
                return wrong(
                    "http",
                    "name the address in the table [http], listen = \"127.0.0.1:8080\"",
                );
            }
            if !path.starts_with('/') || path.contains(['?', '#']) {
                return wrong("http", "write a path such as \"/kitchen\"");
            }
            if !used.paths.insert(path.clone()) {
                return wrong("http", "another source has this path; each source has its own");
            }
            return Ok(From::Http(path.clone()));
        }
        match &self.command {
            Some(command) if !command.is_empty() => {
                let (command, folder) = (command.clone(), folder.to_owned());
                Ok(From::Command(Program { command, folder, every: self.every }))
            }
            _ => {
                wrong("command", "write the program and its arguments: [\"program\", \"argument\"]")
            }
        }
    }
}
