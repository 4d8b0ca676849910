//! Urgent readings of a running device: they are recorded and sent at once, before readings that
//! wait to be sealed.

use std::collections::HashMap;

use bytes::Bytes;
use moteseal_api::NamedError as _;
use moteseal_core::signature::Signer;
use moteseal_net::{ChildLink, LinkError};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::sending::{FRAMES, SEND_TIME};
use super::{Readings, Run, RunError};
use crate::durable::{DurableError, UrgentOutcome, UrgentPlace};

/// An urgent reading, and where to report what becomes of it.
#[derive(Debug)]
pub struct UrgentReading {
    /// The record.
    pub record: Vec<u8>,
    /// Receives the reports, if anyone waits for them. A report that does not fit in the channel is
    /// dropped.
    pub reports: Option<mpsc::Sender<UrgentReport>>,
}

/// What becomes of an urgent reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrgentReport {
    /// The reading is in the open seal, and its event is signed. Both are durable.
    Recorded(UrgentPlace),
    /// The reading was not recorded: the name of the error and its message.
    NotRecorded(String, String),
    /// What the gateway answers.
    Answered(UrgentOutcome),
}

/// Those who wait for reports of urgent readings.
#[derive(Debug, Default)]
pub(super) struct Waiting(HashMap<u64, mpsc::Sender<UrgentReport>>);

/// Returns the next urgent reading. Waits forever if there will be none.
pub(super) async fn next_urgent(
    readings: &mut Option<mpsc::Receiver<UrgentReading>>,
) -> UrgentReading {
    if let Some(open) = readings {
        if let Some(reading) = open.recv().await {
            return reading;
        }
        *readings = None;
    }
    std::future::pending().await
}

/// Returns the urgent readings that have arrived. They are recorded before anything that ends.
pub(super) fn arrived(readings: &mut Option<mpsc::Receiver<UrgentReading>>) -> Vec<UrgentReading> {
    let mut arrived = Vec::new();
    if let Some(readings) = readings {
        let count = readings.len();
        arrived.extend(std::iter::from_fn(|| readings.try_recv().ok()).take(count));
    }
    arrived
}

impl<K: Signer + Send> Run<'_, K> {
    /// Records an urgent reading, and makes it durable.
    pub(super) fn take_urgent(
        &mut self,
        readings: &mut Readings<'_>,
        reading: UrgentReading,
    ) -> Result<(), RunError> {
        let UrgentReading { record, reports } = reading;
        let least = self.least_epoch();
        let (epoch, unix_ms) = match readings {
            Readings::Live { now, .. } => (now.epoch_from(least), now.unix_ms()),
            Readings::Recorded { .. } => (least, 0),
        };
        let report = match self.mote.sense_urgent(epoch, &record) {
            Ok(Ok((ticket, place))) => {
                self.mote.sync()?;
                let sealed = self.mote.urgent_record(ticket).map_or_else(Vec::new, <[u8]>::to_vec);
                self.note_taken(unix_ms, &record, &sealed);
                if let Some(reports) = &reports {
                    self.urgent.0.insert(ticket, reports.clone());
                }
                UrgentReport::Recorded(place)
            }
            Ok(Err(error)) => {
                self.ran.refused += 1;
                self.log.warn("did not record an urgent reading", error.named());
                UrgentReport::NotRecorded(error.name().to_owned(), error.to_string())
            }
            Err(DurableError::Refused(error)) if error.is_of_record() => {
                self.ran.refused += 1;
                self.log.warn("skipped an urgent reading", error.named());
                UrgentReport::NotRecorded(error.name().to_owned(), error.to_string())
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(reports) = reports {
            let _ = reports.try_send(report);
        }
        Ok(())
    }

    /// Sends the urgent events that are due. The caller has made everything durable.
    pub(super) async fn send_urgent<L: ChildLink>(&mut self, link: &L) -> Result<(), RunError> {
        for frame in self.mote.urgent_frames(FRAMES)? {
            match timeout(SEND_TIME, link.send(Bytes::from(frame))).await {
                Ok(Err(LinkError::Closed)) => return Err(RunError::Link(LinkError::Closed)),
                // The frame is sent again later.
                Ok(Err(error)) => self.log.warn("an urgent event was not sent", error.named()),
                Ok(Ok(())) => {}
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Reports what the gateway has answered to those who wait.
    pub(super) fn report_urgent(&mut self) {
        for (ticket, outcome) in self.mote.urgent_outcomes() {
            let is_over = !matches!(outcome, UrgentOutcome::Delayed(..));
            if let Some(reports) = self.urgent.0.get(&ticket) {
                let _ = reports.try_send(UrgentReport::Answered(outcome));
            }
            if is_over {
                self.urgent.0.remove(&ticket);
            }
        }
    }
}
