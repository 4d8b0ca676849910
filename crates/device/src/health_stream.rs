//! The rows of a stream of health: a [`hosted`](crate::hosted) device seals each report of a node as one
//! row, so that the history of the node can be proven (spec/health.md, section 6).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use moteseal_core::health::{Columns, Health, MAX_ROW};
use moteseal_core::schema::{MAX_SCHEMA, Schema, SchemaError};
use moteseal_net::health::Report;
use tokio::sync::{mpsc, watch};
use tracing::warn;

use crate::hosted::Feed;
use crate::runner::{LiveReading, system_clock};

/// The rows of a stream of health.
#[derive(Debug)]
pub struct HealthStream {
    name: String,
    schema: Vec<u8>,
    rows: Mutex<Rows>,
}

/// The maximum number of rows that wait while the device does not run.
const WAITING: usize = 64;

/// Where the rows go.
#[derive(Debug, Default)]
struct Rows {
    is_ended: bool,
    device: Option<mpsc::Sender<LiveReading>>,
    /// The rows that wait for the device, oldest first.
    waiting: VecDeque<Vec<u8>>,
}

impl Rows {
    /// Passes on the rows that wait, as far as the device can take them. Returns the number of rows that
    /// are lost.
    fn pass(&mut self) -> usize {
        if let Some(device) = &self.device {
            while let Some(row) = self.waiting.pop_front() {
                if let Err(refused) = device.try_send(row.into()) {
                    self.waiting.push_front(refused.into_inner().record);
                    break;
                }
            }
        }
        let lost = self.waiting.len().saturating_sub(WAITING);
        self.waiting.drain(..lost);
        lost
    }
}

impl HealthStream {
    /// Creates the stream of a device with this name.
    ///
    /// # Errors
    /// None for the columns of this version of the programs.
    pub fn new(name: impl Into<String>, columns: Columns) -> Result<Self, SchemaError> {
        let mut buffer = vec![0; MAX_SCHEMA];
        let schema = columns.schema(&mut buffer)?.as_bytes().to_vec();
        Ok(Self { name: name.into(), schema, rows: Mutex::default() })
    }

    /// Returns the encoded schema.
    #[must_use]
    pub fn schema(&self) -> &[u8] {
        &self.schema
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        // A panic while the lock was held leaves the rows as they were before or after one of them.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seals a report of now. `node` is the name of the node, for a stream of the reports of other nodes.
    ///
    /// Does not wait. While the device does not run, the newest rows wait for it, and older ones are lost.
    /// Records have totals, so the next row contains what was counted before.
    pub fn push(&self, node: &str, health: &Health) {
        // The schema was encoded by `new`.
        let schema = Schema::decode(&self.schema).unwrap_or(Schema::OPAQUE);
        let mut record = vec![0; MAX_ROW];
        match Columns::row(&schema, (system_clock(), node), health, &mut record) {
            Ok(length) => record.truncate(length),
            Err(error) => return warn!(device = self.name, node, %error, "a report is no row"),
        }
        let mut rows = self.rows();
        rows.waiting.push_back(record);
        if rows.pass() > 0 {
            warn!(device = self.name, "the oldest row of health is lost, because too many wait");
        }
    }

    /// Ends the stream: the device closes its last seal, and stops when its gateway has everything.
    pub fn end(&self) {
        let mut rows = self.rows();
        (rows.is_ended, rows.device) = (true, None);
    }

    /// Seals each report of a node that this process makes, until there are no more.
    pub async fn follow(&self, mut reports: watch::Receiver<Option<Report>>) {
        while reports.changed().await.is_ok() {
            let report = *reports.borrow_and_update();
            report.iter().for_each(|report| self.push("", &report.health));
        }
    }
}

impl Feed for HealthStream {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, rows: mpsc::Sender<LiveReading>) {
        let mut own = self.rows();
        own.device = Some(rows);
        own.pass();
        if own.is_ended {
            own.device = None;
        }
    }

    fn pause(&self) {
        self.rows().device = None;
    }

    fn stop(&self) {
        self.pause();
    }

    fn is_over(&self) -> bool {
        self.rows().is_ended
    }
}
