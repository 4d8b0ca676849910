//! The devices that seal reports of health as streams of their own: `device` and `nodes` in the section
//! `[health]` (docs/health.md).

use std::path::Path;
use std::sync::Arc;

use moteseal_client::input::LinkSecret;
use moteseal_core::health::Columns;
use moteseal_core::record::{DeviceId, Scheme};
use moteseal_device::health_stream::HealthStream;
use moteseal_device::hosted::{self, Device};
use moteseal_net::ParentAddress;
use moteseal_service::stop_signal;
use moteseal_verify::Roster;
use tokio::sync::watch;

use crate::config;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::opening::{Opening, SecretSource};

/// Where the devices of the section find their files, and what they have in common.
pub(crate) struct Place<'a> {
    pub(crate) config: &'a config::Health,
    pub(crate) file: &'a Path,
    pub(crate) folder: &'a Path,
    /// The state folder of the program.
    pub(crate) state: &'a Path,
    pub(crate) roster: &'a Roster,
    pub(crate) roster_path: &'a Path,
    pub(crate) rosters: watch::Receiver<Arc<Roster>>,
    /// The names that are used already.
    pub(crate) others: &'a [&'a str],
    pub(crate) scheme: Scheme,
    pub(crate) waiting_seals: u32,
}

/// The device of a stream of health, which is checked but not opened.
pub(crate) struct Checked {
    opening: Opening,
    stream: Arc<HealthStream>,
    secret: LinkSecret,
}

impl Place<'_> {
    /// Checks the device that the section names in `key`, if it names one. `parent` is the link secret of
    /// a gateway that is in this process; other devices have a file with their link secret.
    pub(crate) fn check(
        &self,
        key: &'static str,
        columns: Columns,
        parent: Option<&LinkSecret>,
    ) -> Result<Option<Checked>, Failure> {
        let Self { config, file, folder, .. } = self;
        let named = if columns == Columns::Own { &config.device } else { &config.nodes };
        let Some(name) = named else { return Ok(None) };
        let in_key = |key: &'static str| {
            move |failure: Failure| failure.about_key(file, &format!("health.{key}"))
        };
        let device = crate::roster::device_name(name)
            .map_err(|error| Failure::usage(error).of(name))
            .and_then(|name| files::device(self.roster, self.roster_path, &name))
            .map_err(in_key(key))?;
        if self.others.contains(&&**name) || (key == "nodes" && named == &config.device) {
            let what = "a stream of health has a device of its own; add one to the roster, and name it here";
            return Err(in_key(key)(Failure::usage(what)));
        }
        let stream = HealthStream::new(name, columns)
            .map_err(|error| Failure::named(Exit::Internal, error.named()))?;
        let path = |template: &String| config::device_path(template, name, folder);
        let state = match &config.state {
            Some(template) => path(template),
            None => self.state.join(name),
        };
        let secret = match parent {
            Some(parent) => SecretSource::Parent(parent.clone()),
            None => {
                let template = config.link_secret.clone();
                SecretSource::File(path(&template.unwrap_or_else(config::default_link_secret)))
            }
        };
        let opening = Opening {
            name: name.clone(),
            device,
            key_path: path(&config.key.clone().unwrap_or_else(config::default_key)),
            next_key: config.next_key.as_ref().map(path),
            salt_key: config.salt_key.as_ref().map(path),
            link_secret: secret,
            // The columns of reports are in plaintext.
            stream_secret: None,
            chain: config.chain.as_ref().map(path),
            state,
            schema: stream.schema().to_vec(),
            scheme: self.scheme,
            waiting_seals: self.waiting_seals,
            policy: config.policy(file)?,
            rosters: self.rosters.clone(),
        };
        let keys = opening.keys(self.roster).map_err(|(key, failure)| in_key(key)(failure))?;
        Ok(Some(Checked { opening, stream: Arc::new(stream), secret: keys.secret }))
    }
}

impl Checked {
    pub(crate) fn name(&self) -> &str {
        &self.opening.name
    }

    pub(crate) const fn device(&self) -> DeviceId {
        self.opening.device
    }

    /// Returns the link secret of the device.
    pub(crate) const fn secret(&self) -> &LinkSecret {
        &self.secret
    }

    /// Opens the journal of the device, whose parent is `gateway`.
    pub(crate) fn open(self, gateway: ParentAddress) -> Result<Hosted, Failure> {
        let Self { opening, stream, .. } = self;
        let rosters = opening.rosters.clone();
        let device = opening.host(gateway)?;
        Ok(Hosted { device, stream, rosters })
    }
}

/// The opened device of a stream of health.
pub(crate) struct Hosted {
    device: Device,
    stream: Arc<HealthStream>,
    rosters: watch::Receiver<Arc<Roster>>,
}

/// The running device of a stream of health.
pub(crate) struct Sealing {
    stream: Arc<HealthStream>,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Hosted {
    /// Returns the stream, whose rows wait until the device runs.
    pub(crate) const fn stream(&self) -> &Arc<HealthStream> {
        &self.stream
    }

    /// Runs the device.
    pub(crate) fn spawn(self) -> Sealing {
        let Self { device, stream, rosters } = self;
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(hosted::run(device, Arc::clone(&stream), rosters, stopped));
        Sealing { stream, stop, task }
    }
}

impl Sealing {
    /// Ends the stream, and waits until the gateway has it or a signal arrives.
    pub(crate) async fn end(mut self) {
        self.stream.end();
        tokio::select! {
            _ = &mut self.task => {}
            _ = stop_signal() => self.stop().await,
        }
    }

    /// Stops the device when the rows that were made are durable.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        let _ = self.task.await;
    }
}
