//! Simulates an application that requests a sample from a cloud: it queries over HTTP, verifies the
//! response, and reads the rows or writes them to a file.

use std::path::Path;
use std::time::{Duration, Instant};

use moteseal_api::Query;
use moteseal_client::Rows;
use moteseal_client::output::{AtomicFile, Format, OutputError, Writer};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_net::{Client, Options};
use moteseal_seal::sample::{Choice, Rate};
use moteseal_verify::Roster;

use crate::load::Failed;

/// An application that queries a cloud for the sealed data of some devices over HTTP, and verifies
/// the response.
pub(crate) struct Application<'r> {
    roster: &'r Roster,
    devices: Vec<DeviceId>,
    client: Client,
    runtime: tokio::runtime::Runtime,
}

/// The cost and the result of one query.
pub(crate) struct Got {
    pub(crate) time: Duration,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// The sum of all bytes of all records, if the rows were read rather than written.
    pub(crate) sum: u64,
}

impl<'r> Application<'r> {
    /// Creates an application that queries the service at `address` for the first `devices` of the
    /// roster.
    pub(crate) fn new(roster: &'r Roster, address: &str, devices: usize) -> Result<Self, Failed> {
        let devices = roster.devices().take(devices).map(|device| device.id).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = Client::new(&format!("http://{address}"), &Options::default())?;
        Ok(Self { roster, devices, client, runtime })
    }

    fn query(&self, (since, until): (u64, u64), rate: Rate) -> Query {
        let (since, until) = (EpochNumber(since), Some(EpochNumber(until)));
        Query {
            devices: self.devices.clone(),
            since,
            until,
            choice: Choice::Rate(rate),
            columns: Vec::new(),
        }
    }

    /// Does the same as `moteseal get --rate 1/8 -o FILE`. The file is on the disk when this
    /// function returns.
    pub(crate) fn get_file(
        &self,
        range: (u64, u64),
        rate: Rate,
        format: Format,
        path: &Path,
    ) -> Result<Got, Failed> {
        let query = self.query(range, rate);
        // Remove the file first. Freeing an earlier file of another length is not part of the
        // measurement.
        if path.exists() {
            std::fs::remove_file(path)?;
        }
        let start = Instant::now();
        let mut file = AtomicFile::create(path)?;
        let mut writer = Writer::new(format, &mut file);
        let request = moteseal_client::Client::new(&self.client, self.roster).query(&query);
        let report = self.runtime.block_on(request.run(&mut writer))?.report;
        writer.finish()?;
        file.commit()?;
        Ok(Got { time: start.elapsed(), rows: report.rows(), bytes: report.bytes, sum: 0 })
    }

    /// Reads every verified row and writes no file.
    pub(crate) fn get(&self, range: (u64, u64), rate: Rate) -> Result<Got, Failed> {
        let query = self.query(range, rate);
        let (mut rows, mut sum) = (0, 0u64);
        let start = Instant::now();
        let mut sink = |part: &Rows<'_>| -> Result<(), OutputError> {
            part.for_each(|_, _, record| {
                rows += 1;
                sum = sum.wrapping_add(record.iter().map(|&byte| u64::from(byte)).sum());
            });
            Ok(())
        };
        let report = self
            .runtime
            .block_on(
                moteseal_client::Client::new(&self.client, self.roster)
                    .query(&query)
                    .run(&mut sink),
            )?
            .report;
        Ok(Got { time: start.elapsed(), rows, bytes: report.bytes, sum })
    }
}
