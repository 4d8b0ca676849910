//! Where processes spend their processor time: recordings by `perf`, of which other programs draw flame graphs
//! (docs/scale.md, Sizing).

use std::path::Path;
use std::time::Duration;

use super::Failed;
use super::process::Process;

/// The samples of a second of processor time.
const RATE: &str = "999";
/// How long `perf` may take to write the end of a recording.
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
        processes.iter().map(start).collect::<Result<_, _>>().map(Self)
    }

    /// Ends the recordings.
    ///
    /// # Errors
    /// `perf` is not installed, or could not record.
    pub(super) fn end(self) -> Result<(), Failed> {
        for perf in &self.0 {
            perf.id().map_err(|_| perf.reason("perf recorded nothing"))?;
            perf.stop(STOP)?;
        }
        Ok(())
    }
}
