//! The Rust client doing what the Python package does, to be timed beside it (`bench.py`): for each line on stdin it asks a cloud once,
//! verifies the answer into Arrow record batches in memory, and prints how many seconds that took and how many rows there are.
//!
//! usage: get URL ROSTER OPERATOR RATE

use std::io::{BufRead, Write, stdin, stdout};
use std::time::Instant;

use moteseal_api::Query;
use moteseal_client::output::Batches;
use moteseal_core::identity::decode_public_pem;
use moteseal_core::record::EpochNumber;
use moteseal_core::sample::Choice;
use moteseal_net::{Client, Options};
use moteseal_verify::Roster;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, roster, operator, rate] = &arguments[..] else { return Err("usage: get URL ROSTER OPERATOR RATE".into()) };
    let operator = decode_public_pem(&std::fs::read(operator)?).map_err(|error| error.to_string())?;
    let roster = Roster::open(&std::fs::read(roster)?, &operator).map_err(|error| error.to_string())?;
    let rate = rate.parse().map_err(|_| "RATE: 1/8 or the like")?;
    let devices = roster.devices().map(|device| device.id).collect();
    let query = Query { devices, since: EpochNumber(0), until: None, choice: Choice::Rate(rate) };
    let client = Client::new(url, &Options::default())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    for line in stdin().lock().lines() {
        line?;
        let start = Instant::now();
        let mut rows = Batches::new();
        let report = runtime.block_on(moteseal_client::get(&client, &roster, &query, None, None, &mut rows))?;
        let (_, batches) = rows.finish()?;
        let seconds = start.elapsed().as_secs_f64();
        let number: usize = batches.iter().map(arrow_array::RecordBatch::num_rows).sum();
        assert_eq!(number as u64, report.rows(), "a row was lost on the way");
        writeln!(stdout(), "{seconds} {number}")?;
        stdout().flush()?;
    }
    Ok(())
}
