//! Times the Rust client, so that `bench.py` can compare it with the Python package. For each line
//! on stdin, the program queries a cloud or reads a proof, verifies the response, puts it into
//! Arrow record batches in memory, and prints the time in seconds and the number of rows.
//!
//! usage: get ROSTER OPERATOR URL RATE, or get ROSTER OPERATOR FILE.mproof

use std::fs::{self, File};
use std::io::{BufRead, Write, stdin, stdout};
use std::path::Path;
use std::time::Instant;

use moteseal_api::Query;
use moteseal_client::output::Batches;
use moteseal_client::proof;
use moteseal_core::identity::decode_public_pem;
use moteseal_core::record::EpochNumber;
use moteseal_net::{Client, Options};
use moteseal_seal::sample::Choice;
use moteseal_verify::Roster;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (roster, operator) = match &arguments[..] {
        [roster, operator, _] | [roster, operator, _, _] => (roster, operator),
        _ => {
            return Err(
                "usage: get ROSTER OPERATOR URL RATE, or get ROSTER OPERATOR FILE.mproof".into()
            );
        }
    };
    let operator = decode_public_pem(&fs::read(operator)?).map_err(|error| error.to_string())?;
    let roster = Roster::open(&fs::read(roster)?, &operator).map_err(|error| error.to_string())?;
    match &arguments[2..] {
        [url, rate] => {
            let rate = rate.parse().map_err(|_| "RATE: a rate such as 1/8")?;
            let devices = roster.devices().map(|device| device.id).collect();
            let query = Query {
                devices,
                since: EpochNumber(0),
                until: None,
                choice: Choice::Rate(rate),
                columns: Vec::new(),
            };
            let client = Client::new(url, &Options::default())?;
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?;
            timed(|rows| {
                let data = moteseal_client::Client::new(&client, &roster);
                Ok(runtime.block_on(data.query(&query).run(rows)).map(drop)?)
            })
        }
        [file] => timed(|rows| {
            Ok(proof::verify(File::open(file)?, Path::new(file), &roster, None, rows).map(drop)?)
        }),
        _ => Ok(()),
    }
}

/// Calls `each` once for each line on stdin, and prints the time in seconds and the number of rows.
fn timed(each: impl Fn(&mut Batches) -> Result<(), Failure>) -> Result<(), Failure> {
    for line in stdin().lock().lines() {
        line?;
        let start = Instant::now();
        let mut rows = Batches::new();
        each(&mut rows)?;
        let (_, batches) = rows.finish()?;
        let seconds = start.elapsed().as_secs_f64();
        let number: usize = batches.iter().map(arrow_array::RecordBatch::num_rows).sum();
        writeln!(stdout(), "{seconds} {number}")?;
        stdout().flush()?;
    }
    Ok(())
}
