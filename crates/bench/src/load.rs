//! Generates the load for measuring the service: the lab's fleet of devices that seal, uploaders that
//! send bundles, and the service in a separate process.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use moteseal_device::seal::Bundle;
use moteseal_verify::Roster;

pub(crate) use moteseal_lab::latency::{Failed, Fleet, byte_sum};

/// A cloud in a separate process, so that its processor time can be measured.
pub(crate) struct Service {
    child: Child,
    pub(crate) address: String,
}

impl Service {
    /// Starts a cloud with a new store in `folder`, to which [`Fleet::write`] has written the
    /// roster and the key.
    pub(crate) fn start(folder: &Path, sync: bool) -> Result<Self, Failed> {
        let name = if sync { "synced.redb" } else { "unsynced.redb" };
        let mut child = Command::new(std::env::current_exe()?)
            .args([
                "serve",
                &folder.display().to_string(),
                name,
                if sync { "sync" } else { "no-sync" },
            ])
            .stdout(Stdio::piped())
            .stdin(Stdio::piped())
            .spawn()?;
        let mut address = String::new();
        let stdout = child.stdout.take().ok_or("the service has no stdout")?;
        BufReader::new(stdout).read_line(&mut address)?;
        let address = address.trim().to_owned();
        if address.is_empty() {
            return Err("the service did not start".into());
        }
        Ok(Self { child, address })
    }

    /// Returns the processor time of the service in user and kernel mode.
    pub(crate) fn processor_time(&self) -> Result<Duration, Failed> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks = |at: usize| {
            fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or_default()
        };
        // Fields 14 and 15 of proc(5), in hundredths of a second. The split above has removed the
        // first two fields.
        Ok(Duration::from_millis((ticks(11) + ticks(12)) * 10))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Closing the service's stdin stops it.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Runs the service until stdin is closed. [`Service::start`] starts this in a process.
pub(crate) fn serve(folder: &Path, name: &str, sync: bool) -> Result<(), Failed> {
    let operator =
        moteseal_core::identity::decode_public_pem(&std::fs::read(folder.join("op.pub.pem"))?)?;
    let roster = Roster::open(&std::fs::read(folder.join("roster.cbor"))?, &operator)?;
    let options = moteseal_store::Options { sync, ..moteseal_store::Options::default() };
    let store = moteseal_store::RedbStore::open(&folder.join(name), options)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let cloud = moteseal_cloud::Cloud::bind(
            moteseal_cloud::Config::new(roster),
            std::sync::Arc::new(store),
        )
        .await?;
        println!("{}", cloud.address());
        let (stop, stopped) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let _ = io::stdin().read_to_end(&mut Vec::new());
            let _ = stop.send(());
        });
        cloud
            .run(async {
                let _ = stopped.await;
            })
            .await;
        Ok(())
    })
}

/// Returns upload requests that are ready to be sent, with `per_request` bundles each.
pub(crate) fn requests(bundles: &[Bundle], per_request: usize) -> Vec<Vec<u8>> {
    bundles
        .chunks(per_request)
        .map(|chunk| {
            let body: usize = chunk.iter().map(|bundle| bundle.bytes.len()).sum();
            let mut request = format!(
                "PUT /v1/bundles HTTP/1.1\r\nhost: bench\r\ncontent-type: application/cbor-seq\r\ncontent-length: {body}\r\n\r\n"
            )
            .into_bytes();
            chunk.iter().for_each(|bundle| request.extend_from_slice(&bundle.bytes));
            request
        })
        .collect()
}

/// Sends each uploader's requests over a separate connection, all uploaders at once. Returns the
/// time.
pub(crate) fn upload(address: &str, uploaders: &[Vec<Vec<u8>>]) -> Result<Duration, Failed> {
    let barrier = Barrier::new(uploaders.len() + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = uploaders
            .iter()
            .map(|requests| {
                let barrier = &barrier;
                scope.spawn(move || -> Result<(), Failed> {
                    let stream = TcpStream::connect(address);
                    barrier.wait();
                    let mut stream = stream?;
                    stream.set_nodelay(true)?;
                    let mut answer = vec![0; 4096];
                    for request in requests {
                        stream.write_all(request)?;
                        acknowledged(&mut stream, &mut answer)?;
                    }
                    Ok(())
                })
            })
            .collect();
        barrier.wait();
        let start = Instant::now();
        for thread in threads {
            thread.join().map_err(|_| "an uploader panicked")??;
        }
        Ok(start.elapsed())
    })
}

/// Reads one response, which must have status 200.
fn acknowledged(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<(), Failed> {
    let mut length = 0;
    loop {
        let read = stream.read(&mut buffer[length..])?;
        length += read;
        let text = &buffer[..length];
        if let Some(end) = text.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&text[..end]).to_lowercase();
            let body: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:"))
                .and_then(|value| value.trim().parse().ok())
                .ok_or("the response has no Content-Length")?;
            if length >= end + 4 + body {
                return if head.starts_with("http/1.1 200") {
                    Ok(())
                } else {
                    Err(String::from_utf8_lossy(text).into_owned().into())
                };
            }
        }
        if read == 0 || length == buffer.len() {
            return Err(format!(
                "the response is incomplete or too long: {}",
                String::from_utf8_lossy(&buffer[..length])
            )
            .into());
        }
    }
}
