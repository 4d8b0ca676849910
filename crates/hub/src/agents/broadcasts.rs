//! Receives signed broadcasts for the hub: commands for agents and actuators, and packages of
//! agents.
//!
//! Commands that do not arrive as a signed broadcast do not exist: nothing else adds to
//! [`Commands`]. The watcher delivers a command only within its window, and [`Commands`] checks the
//! end again before the command reaches its destination.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use moteseal_broadcast::{Kind, Outline, Window};
use moteseal_device::broadcast::WatchEvent;
use moteseal_net::LinkError;
use moteseal_net::mqtt::{Due, Publisher};
use moteseal_service::LogLimit;
use moteseal_service::log_limit::cut;
use serde::Deserialize;
use tokio::time::timeout;
use tracing::{info, warn};

use super::commands::{Added, Command, Commands, Destination, agent_of};

/// The maximum number of log lines of one kind per minute.
const LINES: u32 = 10;

/// The topic of an actuator that has no agent, as in the table `[[broadcast.topic]]` of the hub's
/// configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    /// The label of the chain.
    pub label: String,
    /// The topic of the broker on which the content is published.
    pub mqtt: String,
}

/// Takes the events of a watcher.
#[derive(Debug)]
pub struct Broadcasts {
    commands: Arc<Commands>,
    /// The topics of the broker, by label.
    topics: BTreeMap<String, String>,
    log: LogLimit<&'static str>,
}

impl Broadcasts {
    /// Creates the receiver. Commands with one of the labels `topics` are for the broker.
    #[must_use]
    pub fn new(commands: Arc<Commands>, topics: &[Topic]) -> Self {
        let topics = topics.iter().map(|topic| (topic.label.clone(), topic.mqtt.clone())).collect();
        Self { commands, topics, log: LogLimit::new(LINES, Duration::from_secs(60)) }
    }

    fn destination(&self, label: &str) -> Option<Destination> {
        if let Some(topic) = self.topics.get(label) {
            return Some(Destination::Mqtt(topic.clone()));
        }
        agent_of(label).map(|agent| Destination::Agent(agent.to_owned()))
    }

    /// Takes an event. A command is durable when this function returns.
    ///
    /// # Errors
    /// A command cannot be made durable. The watcher must stop and deliver it again later.
    pub fn take(&self, event: &WatchEvent<'_>) -> io::Result<()> {
        match *event {
            WatchEvent::Message { outline, label, window, number, message }
                if outline.kind == Kind::Command =>
            {
                self.command(outline, label, window, number, message)
            }
            WatchEvent::Complete { label, saved: Some(path), .. } => {
                info!(label = %cut(label), path = %path.display(), "received a file");
                Ok(())
            }
            WatchEvent::Withheld { label, why, .. } if self.log.allows(why.name()) => {
                warn!(label = %cut(label), reason = why.name(), "a broadcast is not delivered");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn command(
        &self,
        outline: &Outline,
        label: &str,
        window: Window,
        message: u32,
        content: &[u8],
    ) -> io::Result<()> {
        let Some(destination) = self.destination(label) else {
            if self.log.allows("UnknownTopic") {
                warn!(label = %cut(label), "a command has a topic that no agent or actuator has");
            }
            return Ok(());
        };
        let added = self.commands.add(Command {
            destination,
            sender: outline.id.sender.to_string(),
            key: outline.key.to_string(),
            topic: label.to_owned(),
            chain: outline.id.number.0,
            message,
            not_before: window.not_before,
            not_after: window.has_end().then_some(window.not_after),
            content: content.to_vec(),
        })?;
        match added {
            Added::Full if self.log.allows("Full") => {
                warn!(label = %cut(label), "too many commands wait; a command was dropped");
            }
            Added::Displaced if self.log.allows("Displaced") => {
                warn!("too many commands wait; one for an agent that does not exist was dropped");
            }
            _ => {}
        }
        Ok(())
    }
}

/// How often the commands are looked up for those whose time has begun.
const BEGUN: Duration = Duration::from_secs(1);

/// Publishes the commands for actuators at the broker. A command counts as delivered when the broker
/// has acknowledged it, and the broker gets its end. A command may be published twice if the hub is
/// killed or the connection breaks. Ends when the publisher has ended.
pub async fn publish(commands: Arc<Commands>, mut publisher: Publisher) {
    let log = LogLimit::new(LINES, Duration::from_secs(60));
    loop {
        let next = commands.due(|destination| matches!(destination, Destination::Mqtt(_)));
        let Some(command) = next else {
            let _ = timeout(BEGUN, commands.changed()).await;
            continue;
        };
        let Destination::Mqtt(topic) = &command.destination else { continue };
        let due = || match command.not_after {
            _ if !commands.is_due(&command) => Due::Over,
            None => Due::Always,
            Some(end) => {
                let left = end.saturating_sub(commands.now());
                Due::Seconds(u32::try_from(left).unwrap_or(u32::MAX))
            }
        };
        match publisher.publish(topic, command.content.clone().into(), due).await {
            // Its time has ended, or a later command has taken its place.
            Ok(false) => continue,
            Ok(true) => {}
            Err(LinkError::Closed) => return,
            // The broker does not accept it, and would not accept it again.
            Err(error) => {
                if log.allows("Refused") {
                    warn!(%error, topic, "the broker refuses a command; it is dropped");
                }
            }
        }
        let (delivered, recorded) = (Arc::clone(&commands), command.clone());
        let recorded = tokio::task::spawn_blocking(move || delivered.delivered(&recorded)).await;
        if let Ok(Err(error)) = recorded {
            warn!(%error, topic, "a published command cannot be recorded");
            tokio::time::sleep(BEGUN).await;
        }
    }
}
