//! Measures what a bundle of 298 readings costs an intake and a worker, and how long it takes from the
//! submission until it is durable in the embedded store. The nats-server runs separately, for example
//! `tools/engines.sh run nats FOLDER 4222 8222`.
//!
//! ```text
//! stream_cost intake  URL MONITOR COUNT PER_MESSAGE  publishes as fast as it goes
//! stream_cost worker  URL MONITOR COUNT              stores everything that is in the stream
//! stream_cost latency URL MONITOR COUNT              5 messages a second, intake and worker
//! ```

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moteseal_core::record::Scheme;
use moteseal_store::conformance::Mote;
use moteseal_store::{Bundle, EpochStore, Options, RedbStore};
use moteseal_stream::{
    IntakeLimits, Layout, NoStore, Reached, Role, Settings, Stream, StreamStore, SyncCheck, Worker,
    WorkerLimits,
};
use tokio::sync::oneshot;

type Failure = Box<dyn Error>;

/// The processor time of this process so far.
fn processor_time() -> Result<Duration, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}

fn bundles(count: u64) -> Vec<Bundle> {
    let mut mote = Mote::new("measured", false);
    (0..count).map(|epoch| mote.seal_some(Scheme::Star, epoch, 298).bundle).collect()
}

fn settings(url: &str, monitor: &str, role: Role) -> Settings {
    Settings {
        sync: SyncCheck::Monitors(vec![monitor.to_owned()]),
        ..Settings::new(vec![url.to_owned()], role)
    }
}

async fn connect(url: &str, monitor: &str, role: Role) -> Result<Stream, Failure> {
    let stream = Stream::connect(settings(url, monitor, role)).await?;
    let layout = Layout { max_bytes: 512 << 20, piece_bytes: 64 << 20, ..Layout::default() };
    stream.init(&layout).await?;
    stream.check(role).await?;
    Ok(stream)
}

/// Submits a batch and returns a receiver of its position.
fn submit(
    store: &StreamStore,
    batch: Vec<Bundle>,
) -> Result<oneshot::Receiver<Option<u64>>, Failure> {
    let (reply, receipt) = oneshot::channel();
    store.submit(
        batch,
        Box::new(move |result| {
            let _ = reply.send(result.ok().and_then(|receipt| receipt.position));
        }),
    )?;
    Ok(receipt)
}

fn report(what: &str, count: u64, cpu: Duration, start: Instant) {
    println!(
        "{what}: {:.1} us of processor time a bundle, {:.0} bundles a second",
        cpu.as_secs_f64() * 1e6 / count as f64,
        count as f64 / start.elapsed().as_secs_f64()
    );
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, url, monitor, count, rest @ ..] = &arguments[..] else {
        return Err(
            "usage: stream_cost intake|worker|latency URL MONITOR COUNT [PER_MESSAGE]".into()
        );
    };
    let count: u64 = count.parse()?;
    match role.as_str() {
        "intake" => {
            let per_message: usize = rest.first().map_or(Ok(1), |text| text.parse())?;
            let stream = connect(url, monitor, Role::Intake).await?;
            let store = StreamStore::new(stream, Arc::new(NoStore), IntakeLimits::default());
            let made = bundles(count);
            let (cpu, start) = (processor_time()?, Instant::now());
            let mut waiting = std::collections::VecDeque::new();
            for batch in made.chunks(per_message) {
                if waiting.len() >= 64
                    && let Some(receipt) = waiting.pop_front()
                {
                    let receipt: oneshot::Receiver<Option<u64>> = receipt;
                    receipt.await?.ok_or("not acknowledged")?;
                }
                waiting.push_back(submit(&store, batch.to_vec())?);
            }
            for receipt in waiting {
                receipt.await?.ok_or("not acknowledged")?;
            }
            report("intake", count, processor_time()? - cpu, start);
        }
        "worker" => {
            let folder = tempfile::tempdir_in(".")?;
            let store = RedbStore::open(&folder.path().join("epochs.redb"), Options::default())?;
            let stream = connect(url, monitor, Role::Worker).await?;
            let worker =
                Worker::new(stream, Arc::new(store), None, WorkerLimits::default()).await?;
            let counts = worker.counts();
            let (cpu, start) = (processor_time()?, Instant::now());
            let task = tokio::spawn(worker.run(std::future::pending()));
            while counts.stored() + counts.known() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            report("worker", count, processor_time()? - cpu, start);
            println!("{} messages in {} writes", counts.messages(), counts.writes());
            tokio::time::sleep(Duration::from_secs(1)).await;
            task.abort();
        }
        _ => {
            let folder = tempfile::tempdir_in(".")?;
            let store = RedbStore::open(&folder.path().join("epochs.redb"), Options::default())?;
            let stream = connect(url, monitor, Role::Worker).await?;
            let worker =
                Worker::new(stream, Arc::new(store), None, WorkerLimits::default()).await?;
            let counts = worker.counts();
            tokio::spawn(worker.run(std::future::pending()));
            let stream = connect(url, monitor, Role::Intake).await?;
            let reached = Reached::new(stream.clone());
            let intake = StreamStore::new(stream, Arc::new(NoStore), IntakeLimits::default());
            let (mut published, mut stored) = (Vec::new(), Vec::new());
            let mut interval = tokio::time::interval(Duration::from_millis(200));
            for (done, bundle) in (1..).zip(bundles(count)) {
                interval.tick().await;
                let start = Instant::now();
                submit(&intake, vec![bundle])?.await?.ok_or("not acknowledged")?;
                published.push(start.elapsed());
                while counts.stored() < done {
                    tokio::time::sleep(Duration::from_micros(500)).await;
                }
                stored.push(start.elapsed());
            }
            drop(reached);
            for (what, times) in [("acknowledged", &mut published), ("stored", &mut stored)] {
                times.sort_unstable();
                let at = |share: f64| {
                    times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3
                };
                println!(
                    "{what}: median {:.1} ms, 90 % {:.1} ms, 99 % {:.1} ms, most {:.1} ms",
                    at(0.5),
                    at(0.9),
                    at(0.99),
                    at(1.0)
                );
            }
        }
    }
    Ok(())
}
