//! Where processes spend their processor time: recordings by `perf`, of which other programs draw flame graphs
//! (docs/scale.md, Sizing).

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::Failed;
use super::process::Process;

/// The samples of a second of processor time.
const RATE: &str = "999";
/// How long `perf` may take to start.
const START: Duration = Duration::from_secs(10);
/// How long it may take to write the end of a recording.
const STOP: Duration = Duration::from_secs(60);
/// The options of Cassandra's virtual machine that let `perf` follow its frames and name its compiled code, in a
/// file that it writes when it stops.
pub(super) const JVM: &str =
    "-XX:+PreserveFramePointer -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit";

/// How the callers of a sampled function are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Callers {
    /// From a copy of the stack, by the tables of the program: in Rust, which keeps no frame pointers.
    Tables,
    /// By frame pointers: in Go, and in Java with the options [`JVM`].
    FramePointers,
}

/// The recordings of several processes.
#[derive(Debug)]
pub(super) struct Recordings(Vec<Process>);

impl Recordings {
    /// Starts a recording of each process, into the file `NAME.perf` of a folder.
    ///
    /// # Errors
    /// `perf` is not installed, or may not record.
    pub(super) fn start(
        folder: &Path,
        processes: &[(String, &Process, Callers)],
    ) -> Result<Self, Failed> {
        let start = |(name, process, callers): &(String, &Process, Callers)| {
            let callers = match callers {
                Callers::Tables => "dwarf,16384",
                Callers::FramePointers => "fp",
            };
            let file = folder.join(format!("{name}.perf")).display().to_string();
            let id = process.id()?.to_string();
            let arguments = ["record", "-F", RATE, "--call-graph", callers, "-p", &id, "-o", &file];
            let log = folder.join(format!("{name}.perf.log"));
            Process::start(Path::new("perf"), &arguments.map(str::to_owned), &[], &log)
        };
        let recordings = Self(processes.iter().map(start).collect::<Result<_, _>>()?);
        recordings.0.iter().try_for_each(attached)?;
        Ok(recordings)
    }

    /// Ends the recordings.
    ///
    /// # Errors
    /// `perf` does not end.
    pub(super) fn end(self) -> Result<(), Failed> {
        self.0.iter().try_for_each(|perf| perf.stop(STOP))
    }
}

/// Waits until `perf` records each thread. Threads that start before that are not in the recording.
fn attached(perf: &Process) -> Result<(), Failed> {
    let until = Instant::now() + START;
    // It maps its buffers after it has opened the events of all threads.
    let maps = || {
        let id = perf.id().ok()?;
        fs::read_to_string(format!("/proc/{id}/maps")).ok()
    };
    while !maps().is_some_and(|maps| maps.contains("[perf_event]")) {
        if Instant::now() > until {
            return Err(perf.reason("it does not record").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
