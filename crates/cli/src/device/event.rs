//! `moteseal device event`: records one urgent reading and waits until the gateway has stored it.
//!
//! If `moteseal device run` runs with the same state folder, the command passes the reading to it
//! through a Unix socket in the folder, which only the owner may use. The request is one line with
//! the values; the response is one JSON object per line. Otherwise the command opens the state
//! itself.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use moteseal_device::durable::{UrgentOutcome, UrgentPlace};
use moteseal_device::runner::{UrgentReading, UrgentReport};
use moteseal_files::PRIVATE;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use super::lines::MAX_LINE;
use crate::cloud::runtime;
use crate::config;
use crate::failure::{Exit, Failure};
use crate::terminal::{diagnostic, report};
use crate::time;

/// The name of the socket in the state folder.
const SOCKET: &str = "event.sock";
/// The maximum number of commands that are served at once.
const COMMANDS: usize = 16;
/// The time within which a command must send its reading.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// How long a command is served at most.
const SERVE_TIME: Duration = Duration::from_secs(3600);
/// The maximum length of a line of the response, in bytes.
const MAX_RESPONSE: u64 = 4096;
/// The pause before another process is asked again, if it uses the state.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts values, of which the first may be negative. An unknown option is not a value.
fn values(text: &str) -> Result<String, &'static str> {
    if text.starts_with("--") {
        return Err("this is an option that the command does not have");
    }
    Ok(text.to_owned())
}

#[derive(Args, Debug)]
pub(crate) struct Event {
    /// The reading: its values, separated by commas, in the order of the columns of the
    /// configuration
    #[arg(value_name = "VALUES", allow_hyphen_values = true, value_parser = values)]
    values: String,
    /// The device's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The address of the gateway or broker, instead of `url` in the table [link]; only if no other
    /// process runs the device
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// How long to wait until the gateway has stored the event
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = time::duration)]
    wait: u64,
}

/// A reading that the process records itself.
#[derive(Clone, Debug)]
pub(super) struct Single {
    pub(super) values: String,
    pub(super) to: Option<String>,
    pub(super) wait: Duration,
}

pub(super) fn run(
    arguments: &Event,
    record: impl Fn(&Path, Single) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (config, folder): (config::Device, _) = config::load(&arguments.config)?;
    let socket = folder.join(&config.state).join(SOCKET);
    let wait = Duration::from_millis(arguments.wait);
    let until = std::time::Instant::now() + wait;
    loop {
        let mut outcome = Outcome::default();
        let passed = runtime()?.block_on(pass(&socket, &arguments.values, wait, &mut outcome));
        if let Some(passed) = passed {
            // What was reported before the connection broke is known.
            if !outcome.is_recorded() {
                passed?;
            }
            return outcome.report(&config.device, wait);
        }
        let (values, to) = (arguments.values.clone(), arguments.to.clone());
        let single = Single { values, to, wait };
        match record(&arguments.config, single) {
            // Another process has just opened the state: it takes readings, or ends soon.
            Err(failure)
                if failure.name() == Some("Locked") && std::time::Instant::now() < until =>
            {
                std::thread::sleep(PAUSE);
            }
            recorded => return recorded,
        }
    }
}

/// What is known about an urgent reading.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    place: Option<UrgentPlace>,
    is_stored: bool,
    /// The name of the gateway's refusal, and whether the event is given up.
    refused: Option<(String, bool)>,
    /// Why the recorded reading is lost.
    lost: Option<String>,
    /// Why the reading was not recorded.
    error: Option<(String, String)>,
}

impl Outcome {
    /// Processes a report. Returns whether it is the last one.
    fn receive(&mut self, report: UrgentReport) -> bool {
        match report {
            UrgentReport::Recorded(place) => {
                self.place = Some(place);
                false
            }
            UrgentReport::NotRecorded(name, detail) => {
                self.error = Some((name, detail));
                true
            }
            UrgentReport::Answered(UrgentOutcome::Stored(place)) => {
                (self.place, self.is_stored) = (Some(place), true);
                true
            }
            UrgentReport::Answered(UrgentOutcome::Delayed(place, name)) => {
                (self.place, self.refused) = (Some(place), Some((name, false)));
                false
            }
            UrgentReport::Answered(UrgentOutcome::GivenUp(place, name)) => {
                (self.place, self.refused) = (Some(place), Some((name, true)));
                true
            }
            UrgentReport::Answered(UrgentOutcome::Lost(place, name)) => {
                (self.place, self.lost) = (Some(place), Some(name));
                true
            }
        }
    }

    /// Returns whether the reading is durable.
    const fn is_recorded(&self) -> bool {
        self.place.is_some()
    }

    /// Prints what became of the reading.
    pub(super) fn report(self, device: &str, wait: Duration) -> Result<(), Failure> {
        if let Some((name, detail)) = self.error {
            return Err(Failure::new(Exit::Usage, detail).with_name(&name).of(device));
        }
        let Some(UrgentPlace { index, epoch, seq, digest }) = self.place else {
            let seconds = wait.as_secs_f64();
            return Err(Failure::new(
                Exit::Unreachable,
                format_args!(
                    "the process that runs {device} did not confirm within {seconds} s that it has recorded \
                     the reading; it may still record it, so that a repetition may record it twice"
                ),
            ));
        };
        let place = format!("reading {seq} of seal {index}");
        if let Some(name) = self.lost {
            return Err(Failure::new(
                Exit::Refused,
                format_args!(
                    "the urgent reading, {place}, is lost: the gateway had more than the device's state, \
                     and the reading could not be recorded again; correct the cause and repeat it"
                ),
            )
            .with_name(&name)
            .of(device));
        }
        match self.refused {
            _ if self.is_stored => report(
                format!("{device}: the gateway has stored the urgent event, {place}"),
                || {
                    json!({
                        "device": device,
                        "epoch": epoch.0,
                        "index": index.0,
                        "seq": seq.0,
                        "digest": digest.to_string(),
                        "stored": true,
                    })
                },
            ),
            Some((name, true)) => Err(Failure::new(
                Exit::Refused,
                format_args!(
                    "the gateway refuses the urgent event, {place}; the reading stays in its seal"
                ),
            )
            .with_name(&name)
            .of(device)),
            delayed => {
                let seconds = wait.as_secs_f64();
                let name = delayed.map_or_else(|| "NotAcknowledged".to_owned(), |(name, _)| name);
                Err(Failure::new(
                    Exit::Unreachable,
                    format_args!(
                        "the urgent event is recorded, {place}, but the gateway has not stored it within {seconds} s; \
                         the device sends it again while it runs"
                    ),
                )
                .with_name(&name)
                .of(device))
            }
        }
    }
}

/// Collects the reports of a reading until the last one, at most for `wait`.
pub(super) async fn outcome(mut reports: mpsc::Receiver<UrgentReport>, wait: Duration) -> Outcome {
    let until = Instant::now() + wait;
    let mut outcome = Outcome::default();
    while let Ok(Some(report)) = timeout_at(until, reports.recv()).await {
        if outcome.receive(report) {
            break;
        }
    }
    outcome
}

/// Passes a reading to the process that runs the device, and adds its reports to `outcome`, at most
/// for `wait`. Returns `None` if there is no such process.
async fn pass(
    socket: &Path,
    values: &str,
    wait: Duration,
    outcome: &mut Outcome,
) -> Option<Result<(), Failure>> {
    let stream = UnixStream::connect(socket).await.ok()?;
    Some(match timeout(wait, exchange(stream, values, outcome)).await {
        Ok(Err(error)) => Err(Failure::file("use", socket, &error)),
        Ok(Ok(())) | Err(_) => Ok(()),
    })
}

/// Sends a reading, and adds the reports to `outcome` as they arrive.
async fn exchange(mut stream: UnixStream, values: &str, outcome: &mut Outcome) -> io::Result<()> {
    stream.write_all(format!("{values}\n").as_bytes()).await?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if (&mut lines).take(MAX_RESPONSE).read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let report = serde_json::from_str(&line).ok().and_then(|value| decode(&value));
        let report = report.ok_or_else(|| io::Error::other("the response is not understood"))?;
        if outcome.receive(report) {
            return Ok(());
        }
    }
}

/// Encodes a report as JSON.
fn encode(report: &UrgentReport) -> Value {
    let of = |state: &str, place: &UrgentPlace, name: Option<&str>| {
        let UrgentPlace { index, epoch, seq, digest } = place;
        json!({
            "state": state,
            "index": index.0,
            "epoch": epoch.0,
            "seq": seq.0,
            "digest": digest.to_string(),
            "name": name,
        })
    };
    match report {
        UrgentReport::Recorded(place) => of("recorded", place, None),
        UrgentReport::Answered(UrgentOutcome::Stored(place)) => of("stored", place, None),
        UrgentReport::Answered(UrgentOutcome::Delayed(place, name)) => {
            of("delayed", place, Some(name))
        }
        UrgentReport::Answered(UrgentOutcome::GivenUp(place, name)) => {
            of("given_up", place, Some(name))
        }
        UrgentReport::Answered(UrgentOutcome::Lost(place, name)) => of("lost", place, Some(name)),
        UrgentReport::NotRecorded(name, detail) => {
            json!({ "state": "error", "name": name, "detail": detail })
        }
    }
}

/// Decodes a report. Returns `None` if the JSON is not a report.
fn decode(value: &Value) -> Option<UrgentReport> {
    use moteseal_core::record::{EpochNumber, SealIndex, Sequence};
    let name = || Some(value.get("name")?.as_str()?.to_owned());
    if value.get("state")?.as_str()? == "error" {
        let detail = value.get("detail")?.as_str()?.to_owned();
        return Some(UrgentReport::NotRecorded(name()?, detail));
    }
    let number = |member: &str| value.get(member)?.as_u64();
    let place = UrgentPlace {
        index: SealIndex(u32::try_from(number("index")?).ok()?),
        epoch: EpochNumber(number("epoch")?),
        seq: Sequence(number("seq")?),
        digest: moteseal_api::parse_digest(value.get("digest")?.as_str()?)?,
    };
    Some(match value.get("state")?.as_str()? {
        "recorded" => UrgentReport::Recorded(place),
        "stored" => UrgentReport::Answered(UrgentOutcome::Stored(place)),
        "delayed" => UrgentReport::Answered(UrgentOutcome::Delayed(place, name()?)),
        "given_up" => UrgentReport::Answered(UrgentOutcome::GivenUp(place, name()?)),
        "lost" => UrgentReport::Answered(UrgentOutcome::Lost(place, name()?)),
        _ => return None,
    })
}

/// The socket through which commands pass urgent readings to a running device.
#[derive(Debug)]
pub(super) struct Socket {
    listener: StdListener,
    path: PathBuf,
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Socket {
    /// Listens in the state folder, which the process has locked. Without a socket, the device
    /// still runs.
    pub(super) fn listen(state: &Path) -> Option<Self> {
        let path = state.join(SOCKET);
        match listen(&path) {
            Ok(listener) => Some(Self { listener, path }),
            Err(error) => {
                let path = path.display();
                diagnostic(format_args!(
                    "{path}: {error}; `moteseal device event` cannot pass readings to this process"
                ));
                None
            }
        }
    }

    /// Serves commands. `parse` converts a line with values to a record. Does not return.
    pub(super) async fn serve(
        self,
        parse: impl Fn(&str) -> Result<Vec<u8>, String> + Send + Sync + 'static,
        urgent: mpsc::Sender<UrgentReading>,
    ) {
        if let Err(error) = self.accept(Arc::new(parse), urgent).await {
            warn!(%error, "urgent readings of commands are not accepted any more");
        }
        std::future::pending::<()>().await;
    }

    async fn accept(
        &self,
        parse: Arc<impl Fn(&str) -> Result<Vec<u8>, String> + Send + Sync + 'static>,
        urgent: mpsc::Sender<UrgentReading>,
    ) -> io::Result<()> {
        let listener = UnixListener::from_std(self.listener.try_clone()?)?;
        let places = Arc::new(Semaphore::new(COMMANDS));
        let mut tasks = tokio::task::JoinSet::new();
        loop {
            while tasks.try_join_next().is_some() {}
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!(%error, "a command could not connect");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let (parse, urgent) = (Arc::clone(&parse), urgent.clone());
            tasks.spawn(async move {
                let _place = place;
                let served = timeout(SERVE_TIME, answer(stream, &*parse, urgent)).await;
                if let Ok(Err(error)) = served {
                    info!(%error, "a command that passed an urgent reading has ended");
                }
            });
        }
    }
}

/// Listens on a path, with a socket that only the owner may use.
fn listen(path: &Path) -> io::Result<StdListener> {
    // Nobody can connect before the socket has its mode and then its name. A socket that another
    // process has left is replaced: the caller has locked the state.
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = StdListener::bind(&temporary)?;
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(PRIVATE))?;
    std::fs::rename(&temporary, path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves one command: reads the values, passes the reading on, and writes the reports.
async fn answer(
    stream: UnixStream,
    parse: &(impl Fn(&str) -> Result<Vec<u8>, String> + Sync),
    urgent: mpsc::Sender<UrgentReading>,
) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read.take(MAX_LINE as u64 + 1));
    let mut line = String::new();
    timeout(REQUEST_TIME, lines.read_line(&mut line)).await.map_err(io::Error::other)??;
    let (reports, mut answers) = mpsc::channel(8);
    match parse(line.trim_end_matches(['\r', '\n'])) {
        Err(detail) => {
            let name = "BadReading".to_owned();
            let _ = reports.try_send(UrgentReport::NotRecorded(name, detail));
        }
        Ok(record) => {
            let reading = UrgentReading { record, reports: Some(reports.clone()) };
            if urgent.send(reading).await.is_err() {
                return Ok(());
            }
        }
    }
    drop(reports);
    while let Some(report) = answers.recv().await {
        write.write_all(format!("{}\n", encode(&report)).as_bytes()).await?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use moteseal_core::digest::Digest;
    use moteseal_core::record::{EpochNumber, SealIndex, Sequence};

    use super::*;

    #[test]
    fn reports_read_back_as_they_were_written() {
        let place = UrgentPlace {
            index: SealIndex(u32::MAX),
            epoch: EpochNumber(1 << 60),
            seq: Sequence(7),
            digest: Digest([0xab; 32]),
        };
        let name = || "TooManyUrgent".to_owned();
        for report in [
            UrgentReport::Recorded(place),
            UrgentReport::NotRecorded(name(), "detail".to_owned()),
            UrgentReport::Answered(UrgentOutcome::Stored(place)),
            UrgentReport::Answered(UrgentOutcome::Delayed(place, name())),
            UrgentReport::Answered(UrgentOutcome::GivenUp(place, name())),
            UrgentReport::Answered(UrgentOutcome::Lost(place, name())),
        ] {
            assert_eq!(decode(&encode(&report)), Some(report));
        }
        for other in [json!({}), json!({ "state": "stored" }), json!({ "state": 7 })] {
            assert_eq!(decode(&other), None);
        }
    }

    #[tokio::test]
    async fn a_reading_that_is_recorded_is_known_although_the_gateway_does_not_answer_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let socket = Socket::listen(folder.path()).unwrap();
        let path = socket.path.clone();
        let (urgent, mut readings) = mpsc::channel(1);
        let served = tokio::spawn(socket.serve(|line| Ok(line.as_bytes().to_vec()), urgent));
        let place = UrgentPlace {
            index: SealIndex(3),
            epoch: EpochNumber(9),
            seq: Sequence(7),
            digest: Digest([0xab; 32]),
        };
        // The device records the reading, and waits for a gateway that cannot be reached.
        let device = tokio::spawn(async move {
            let reading: UrgentReading = readings.recv().await.unwrap();
            assert_eq!(reading.record, b"1,2");
            let reports = reading.reports.unwrap();
            reports.send(UrgentReport::Recorded(place)).await.unwrap();
            reports.closed().await;
        });
        let mut outcome = Outcome::default();
        let passed = pass(&path, "1,2", Duration::from_millis(300), &mut outcome).await;
        passed.unwrap().unwrap();
        assert_eq!(outcome.place, Some(place));
        let failure = outcome.report("dev1", Duration::from_millis(300)).unwrap_err();
        assert_eq!(failure.name(), Some("NotAcknowledged"));
        served.abort();
        device.abort();
    }

    #[tokio::test]
    async fn a_socket_is_for_its_owner_only_and_replaces_a_stale_one() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let socket = Socket::listen(folder.path()).unwrap();
            let mode = std::fs::metadata(&socket.path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            // The process ends without removing the socket.
            std::mem::forget(socket);
        }
        assert!(!folder.path().join("event.sock.new").exists());
    }
}
