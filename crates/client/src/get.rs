//! Requests sealed readings from a cloud, verifies the response, and locates the fault if the
//! response is rejected.

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use moteseal_api::{CBOR_SEQ, JSON, Query, paths};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_net::{Client as Cloud, NetError, Response};
use moteseal_seal::sample::{Choice, Rate, Readings};
use moteseal_verify::Roster;
use tokio::time::{Instant, timeout_at};

use crate::audit::{AuditRequest, common_rate};
use crate::cloud_roster::{CloudRoster, annotated};
use crate::completeness::Report;
use crate::decrypt::{KeySource, SealKeys};
use crate::error::{Error, OutputError, Stop};
use crate::explain::explain;
use crate::pinned::PinnedSeals;
use crate::proof::ProofWriter;
use crate::rejection::Rejected;
use crate::rows::Sink;
use crate::session::{PIECE, Session, all_threads};
use crate::urgent::UrgentRequest;

/// The maximum time after which received bytes are verified, even if there are few of them. A cloud
/// that sends slowly therefore cannot delay its rejection.
const VERIFY_WITHIN: Duration = Duration::from_millis(200);

/// A client that requests the sealed readings of one roster's devices from one cloud, and verifies
/// every response.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    cloud: &'a Cloud,
    roster: &'a Roster,
}

impl<'a> Client<'a> {
    /// Creates a client of `cloud` that verifies responses under `roster`.
    #[must_use]
    pub const fn new(cloud: &'a Cloud, roster: &'a Roster) -> Self {
        Self { cloud, roster }
    }

    /// Returns the cloud.
    pub(crate) const fn cloud(self) -> &'a Cloud {
        self.cloud
    }

    /// Returns the roster.
    pub(crate) const fn roster(self) -> &'a Roster {
        self.roster
    }

    /// Creates a request for rows. By default, it selects all readings of all devices.
    pub const fn get(self) -> Get<'a> {
        Get {
            client: self,
            devices: Vec::new(),
            unknown: None,
            since: EpochNumber(0),
            until: None,
            choice: Choice::Rate(Rate::ALL),
            columns: Vec::new(),
            pinned: None,
            proof: None,
            keys: KeySource::NONE,
        }
    }

    /// Creates a request for the rows of an existing query.
    pub fn query(self, query: &Query) -> Get<'a> {
        Get {
            devices: query.devices.clone(),
            since: query.since,
            until: query.until,
            choice: query.choice,
            columns: query.columns.clone(),
            ..self.get()
        }
    }

    /// Creates a request for urgent events. By default, it selects all events of all devices.
    #[must_use]
    pub fn urgent(self) -> UrgentRequest<'a> {
        UrgentRequest::new(self)
    }

    /// Creates a request for an audit of the group's coordinator. By default, it includes all
    /// epochs.
    pub const fn audit(self) -> AuditRequest<'a> {
        AuditRequest::new(self.cloud, self.roster)
    }

    /// Returns the highest rate of the form `1/2^d` that is available for everything that these
    /// devices sealed from `since` on and before `until`. In a group without a budget, this is 1.
    ///
    /// In a group with a budget, the manifests and the seals determine the rate. `d` is at least
    /// the highest round of the range's manifests, and every seal must have all of its events of
    /// level `d` and of the higher levels. A seal may lack lower levels because the device dropped
    /// levels or lost readings. The rate does not account for a late seal for which the store has
    /// fewer levels. A query for such a seal is rejected.
    ///
    /// # Errors
    /// [`Error`] if the cloud cannot be reached or its response is rejected.
    pub async fn common_rate(
        self,
        devices: &[DeviceId],
        since: EpochNumber,
        until: Option<EpochNumber>,
    ) -> Result<Rate, Error> {
        common_rate(self.cloud, self.roster, devices, (since, until)).await
    }
}

/// A request for rows. Call [`run`](Self::run) to send it.
#[derive(Debug)]
#[must_use = "a request does nothing until it is run"]
pub struct Get<'a> {
    client: Client<'a>,
    devices: Vec<DeviceId>,
    unknown: Option<Error>,
    since: EpochNumber,
    until: Option<EpochNumber>,
    choice: Choice,
    columns: Vec<String>,
    pinned: Option<&'a mut PinnedSeals>,
    proof: Option<PathBuf>,
    keys: KeySource<'a>,
}

impl<'a> Get<'a> {
    /// Adds the device with this name. If no device is added, all devices in the roster are
    /// requested.
    pub fn device(mut self, name: &str) -> Self {
        match self.client.roster.id(name) {
            Some(device) => self.devices.push(device),
            None => {
                let known = known_devices(self.client.roster);
                self.unknown.get_or_insert(Error::UnknownDevice { name: name.to_owned(), known });
            }
        }
        self
    }

    /// Adds devices. If no device is added, all devices in the roster are requested.
    pub fn devices(mut self, devices: impl IntoIterator<Item = DeviceId>) -> Self {
        self.devices.extend(devices);
        self
    }

    /// Sets the first epoch. The default is epoch 0.
    pub const fn since(mut self, since: EpochNumber) -> Self {
        self.since = since;
        self
    }

    /// Sets the epoch before which the range ends. By default, the range has no end.
    pub const fn until(mut self, until: EpochNumber) -> Self {
        self.until = Some(until);
        self
    }

    /// Requests this share of all readings. The default is all readings.
    pub const fn rate(self, rate: Rate) -> Self {
        self.choice(Choice::Rate(rate))
    }

    /// Requests at most this many readings of each epoch of a device.
    pub const fn at_most(self, readings: u64) -> Self {
        self.choice(Choice::AtMost(readings))
    }

    /// Requests this many readings of each epoch of a device. `seed` determines which readings are
    /// selected. Only seals of the tree scheme support this choice.
    pub const fn sample(self, count: u32, seed: [u8; 32]) -> Self {
        self.choice(Choice::Sample { count, seed })
    }

    /// Requests readings by their seal and their place in it, of one device. Only seals of the tree
    /// scheme support this choice.
    pub const fn readings(self, readings: Readings) -> Self {
        self.choice(Choice::Readings(readings))
    }

    /// Requests the readings that this choice selects.
    pub const fn choice(mut self, choice: Choice) -> Self {
        self.choice = choice;
        self
    }

    /// Requests only these columns. If a stream has column groups, the store sends only the groups
    /// that have them. By default, all columns are requested.
    pub fn columns<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.columns = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the pinned seals. A response that contradicts or omits one of them is rejected, and so is
    /// an earlier version of the roster than the pinned one. When a response has been verified, its
    /// newest seals and the roster are pinned, and [`Verified::keep`] saves them.
    pub const fn pinned_seals(mut self, pinned: &'a mut PinnedSeals) -> Self {
        self.pinned = Some(pinned);
        self
    }

    /// Sets the keys that decrypt the encrypted columns of verified rows. Without keys, these columns
    /// are withheld.
    pub fn keys(mut self, keys: &'a mut dyn SealKeys) -> Self {
        self.keys = KeySource::new(keys);
        self
    }

    /// Requests that the response is written to this file as a proof. The file does not appear
    /// until [`Verified::keep`] is called.
    pub fn proof(mut self, path: impl Into<PathBuf>) -> Self {
        self.proof = Some(path.into());
        self
    }

    /// Returns the query that [`run`](Self::run) sends.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] if a name is unknown. [`Error::Query`] if a device is added twice
    /// or the range is empty.
    pub fn to_query(&self) -> Result<Query, Error> {
        if let Some(Error::UnknownDevice { name, known }) = &self.unknown {
            return Err(Error::UnknownDevice { name: name.clone(), known: known.clone() });
        }
        let devices = match &self.devices[..] {
            [] => self.client.roster.devices().map(|device| device.id).collect(),
            devices => devices.to_vec(),
        };
        let Self { since, until, choice, ref columns, .. } = *self;
        let columns = columns.clone();
        // The cloud applies the same checks.
        let query = Query { devices, since, until, choice, columns };
        Ok(query.check()?)
    }

    /// Sends the query to the cloud, verifies the response, and passes its rows to `sink`. The
    /// caller must discard the rows unless this function returns `Ok`. After `Ok`, the caller
    /// stores the rows and then calls [`Verified::keep`].
    ///
    /// # Errors
    /// [`Error`] if the request is invalid, if a later version of the roster is pinned, if the cloud
    /// cannot be reached, or if the response is rejected.
    pub async fn run(self, sink: &mut dyn Sink) -> Result<Verified<'a>, Error> {
        let query = self.to_query()?;
        let Self { client, mut pinned, proof, keys, .. } = self;
        if let Some(pinned) = &mut pinned {
            pinned.pin_roster(client.roster)?;
        }
        let proof = proof.map(|path| ProofWriter::of_answer(&path, &query, client.roster));
        let mut verified =
            Verified { query, report: Report::default(), proof: proof.transpose()?, pinned };
        verified.fetch(client, keys, sink).await?;
        Ok(verified)
    }
}

/// Returns the names of a roster's devices for a message: the first eight in alphabetical order.
#[must_use]
pub fn known_devices(roster: &Roster) -> String {
    let mut names: Vec<&str> = roster.devices().map(|device| device.name.as_str()).collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(8);
    names.truncate(8);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", names.join(", "))
}

/// A verified response. Its proof and its pinned seals are not saved yet. [`keep`](Self::keep)
/// saves them; dropping this value discards them.
#[derive(Debug)]
#[must_use = "the proof and the pinned seals are discarded unless they are kept"]
pub struct Verified<'a> {
    /// The query that was answered.
    pub query: Query,
    /// The report about the verified data: counts and completeness, device by device.
    pub report: Report,
    proof: Option<ProofWriter>,
    pinned: Option<&'a mut PinnedSeals>,
}

impl Verified<'_> {
    /// Saves the proof and the pinned seals, if the request had any, and returns the report. The
    /// steps that can fail for lack of disk space are done before a file becomes visible.
    ///
    /// # Errors
    /// [`OutputError`] if a file cannot be written.
    pub fn keep(self) -> Result<Report, OutputError> {
        let Self { report, mut proof, pinned, .. } = self;
        if let Some(proof) = &mut proof {
            proof.settle()?;
        }
        if let Some(pinned) = pinned {
            pinned.save()?;
        }
        proof.map_or(Ok(()), ProofWriter::keep)?;
        Ok(report)
    }

    async fn fetch(
        &mut self,
        client: Client<'_>,
        mut keys: KeySource<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let Client { cloud, roster } = client;
        let body = Bytes::from(self.query.to_json());
        let mut response = cloud.post(paths::QUERY, JSON, body).await?.expect(CBOR_SEQ)?;
        let cloud_roster = CloudRoster::of(&response, roster);
        let threads: NonZero<usize> = all_threads();
        let session =
            Session::new(roster, self.query.clone(), self.pinned.as_deref()).with_threads(threads);
        let mut session = session.with_key_source(keys.reborrow());
        let (mut piece, mut has_ended) = (Vec::new(), Ok(false));
        while matches!(has_ended, Ok(false)) {
            piece.clear();
            // Bytes that arrived before a network error are also verified, because they may be a
            // reason to reject the response.
            has_ended = gather(&mut response, &mut piece).await;
            if let Some(proof) = &mut self.proof {
                proof.write(&piece)?;
            }
            if let Err(stop) = session.feed(&piece, sink) {
                return Err(annotated(explained(client, &session, stop).await, cloud_roster));
            }
        }
        has_ended?;
        let finished = session.finish(sink);
        let (mut report, newest) = finished.map_err(|stop| annotated(stop.into(), cloud_roster))?;
        report.cloud_roster = cloud_roster;
        if let Some(pinned) = self.pinned.as_deref_mut() {
            newest.into_iter().for_each(|(device, seal)| pinned.pin(roster, device, seal));
        }
        self.report = report;
        Ok(())
    }
}

/// Collects a piece of the response. The piece ends at [`PIECE`] bytes, or when its first bytes are
/// older than [`VERIFY_WITHIN`]. Returns whether the response has ended.
async fn gather(response: &mut Response, piece: &mut Vec<u8>) -> Result<bool, NetError> {
    let mut due = None;
    while piece.len() < PIECE {
        let chunk = match due {
            None => response.chunk().await,
            Some(due) => match timeout_at(due, response.chunk()).await {
                Ok(chunk) => chunk,
                Err(_) => return Ok(false),
            },
        };
        match chunk? {
            Some(chunk) => piece.extend_from_slice(&chunk),
            None => return Ok(true),
        }
        due = due.or_else(|| Some(Instant::now() + VERIFY_WITHIN));
    }
    Ok(false)
}

/// Compares the response with the store's explaining form and adds the result to the rejection.
async fn explained(client: Client<'_>, session: &Session<'_>, stop: Stop) -> Error {
    let Stop::Rejected(rejection) = stop else { return stop.into() };
    let finding = if rejection.is_unproven_run() {
        explain(client.cloud, client.roster, session.suspects()).await
    } else {
        None
    };
    Error::Rejected(Box::new(Rejected { finding, ..rejection.into() }))
}
