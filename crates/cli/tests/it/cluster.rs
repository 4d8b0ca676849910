//! Three nats-servers with a network between them that can be cut, and disks that can be full.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::nats::{Server, folder, free_port};

/// The number of servers. Each has all messages.
pub(crate) const SERVERS: usize = 3;
/// The size of a disk that can be full, in MiB.
const DISK_MIB: u64 = 96;

/// Forwards the connections to a port of this machine, until it is cut: then it forwards nothing and closes
/// nothing, as a cable that was pulled.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    is_cut: Arc<AtomicBool>,
}

impl Proxy {
    pub(crate) fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_cut = Arc::<AtomicBool>::default();
        let flag = Arc::clone(&is_cut);
        // The threads end with the test program, or with their connections.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let flag = Arc::clone(&flag);
                std::thread::spawn(move || {
                    wait_while(&flag);
                    if let Ok(server) = TcpStream::connect(("127.0.0.1", target)) {
                        both_ways(&client, &server, &flag);
                    }
                });
            }
        });
        Self { port, is_cut }
    }

    /// Cuts the connections, or lets them continue.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }
}

fn wait_while(is_cut: &AtomicBool) {
    while is_cut.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn both_ways(client: &TcpStream, server: &TcpStream, is_cut: &AtomicBool) {
    std::thread::scope(|scope| {
        scope.spawn(|| forward(client, server, is_cut));
        forward(server, client, is_cut);
    });
}

fn forward(mut from: &TcpStream, mut to: &TcpStream, is_cut: &AtomicBool) {
    let _ = from.set_nodelay(true);
    let mut buffer = [0; 1 << 16];
    loop {
        let length = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        wait_while(is_cut);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// A file system in memory of limited size. It is unmounted when this ends, and when the test program ends.
struct Disk {
    path: PathBuf,
    guard: Child,
}

impl Disk {
    /// Mounts a disk, or returns `None` if this user may not.
    fn mount(path: &Path) -> Option<Self> {
        std::fs::create_dir(path).unwrap();
        let script = format!(
            "mount -t tmpfs -o size={DISK_MIB}m,nosuid,nodev moteseal-test \"$0\" && echo ready && read -r _; umount -l \"$0\""
        );
        let mut guard = Command::new("sh");
        guard.args(["-c", &script]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut guard = guard.stderr(Stdio::null()).spawn().unwrap();
        let mut ready = [0; 6];
        let is_mounted = guard.stdout.take().unwrap().read_exact(&mut ready).is_ok();
        let disk = Self { path: path.to_owned(), guard };
        is_mounted.then_some(disk)
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }

    fn fill(&self) {
        let mut file = std::fs::File::create(self.filler()).unwrap();
        // The last write fails.
        while file.write_all(&[1; 1 << 16]).is_ok() {}
    }

    fn free(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// Three servers of one cluster.
pub(crate) struct Cluster {
    pub(crate) servers: Vec<Server>,
    /// The proxies in front of each server, for its clients.
    clients: Vec<Proxy>,
    /// The proxies between two servers: for each server, those that lead to the others.
    routes: Vec<Vec<Proxy>>,
    disks: Vec<Option<Disk>>,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let ports: Vec<u16> = (0..SERVERS).map(|_| free_port()).collect();
        let mut cluster = Self {
            servers: Vec::new(),
            clients: Vec::new(),
            routes: Vec::new(),
            disks: Vec::new(),
        };
        for (number, own) in ports.iter().enumerate() {
            let routes: Vec<Proxy> = ports.iter().map(|port| Proxy::to(*port)).collect();
            let others = routes.iter().enumerate().filter(|(other, _)| *other != number);
            let urls: Vec<String> =
                others.map(|(_, route)| format!("nats://127.0.0.1:{}", route.port)).collect();
            let more = format!(
                "server_name: n{number}\ncluster {{\n  name: moteseal\n  listen: 127.0.0.1:{own}\n  \
                 no_advertise: true\n  routes: [{}]\n}}",
                urls.join(", ")
            );
            let folder = folder();
            cluster.disks.push(Disk::mount(&folder.path().join("data")));
            let server = Server::in_folder(folder, "sync_interval: always", &more);
            let port = server.url.rsplit_once(':').unwrap().1.parse().unwrap();
            cluster.clients.push(Proxy::to(port));
            cluster.servers.push(server);
            cluster.routes.push(routes);
        }
        cluster
    }

    /// Returns the arguments of `moteseal` for a stream on the cluster.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--stream-replicas".to_owned(), SERVERS.to_string()];
        for (server, proxy) in self.servers.iter().zip(&self.clients) {
            let url = format!("nats://127.0.0.1:{}", proxy.port);
            arguments.extend(["--stream".to_owned(), url]);
            arguments.extend(["--stream-monitor".to_owned(), server.monitor.clone()]);
        }
        arguments
    }

    /// Cuts a server off from its clients and from the other servers, or connects it again.
    pub(crate) fn cut(&self, number: usize, is_cut: bool) {
        let outgoing = self.routes[number].iter();
        let incoming = self.routes.iter().map(|routes| &routes[number]);
        for proxy in outgoing.chain(incoming).chain([&self.clients[number]]) {
            proxy.cut(is_cut);
        }
    }

    /// Cuts two servers off from one another, or connects them again. Their clients still reach both.
    pub(crate) fn cut_route(&self, one: usize, other: usize, is_cut: bool) {
        self.routes[one][other].cut(is_cut);
        self.routes[other][one].cut(is_cut);
    }

    /// Returns the number of messages of a stream that a server still has, or `None` if it does not say.
    pub(crate) fn messages(&self, number: usize, stream: &str) -> Option<u64> {
        let address = self.servers[number].monitor.trim_start_matches("http://");
        let mut connection = TcpStream::connect(address).ok()?;
        // In HTTP/1.0, the body is not in chunks.
        connection.write_all(b"GET /jsz?streams=true HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).ok()?;
        let found: serde_json::Value =
            serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
        let streams = found["account_details"].as_array()?.iter();
        let mut streams =
            streams.filter_map(|account| account["stream_detail"].as_array()).flatten();
        streams.find(|of| of["name"] == stream)?["state"]["messages"].as_u64()
    }

    /// Fills the disk of a server. Returns false if this user cannot mount disks.
    pub(crate) fn fill(&self, number: usize) -> bool {
        self.disks[number].as_ref().map(Disk::fill).is_some()
    }

    /// Frees the disk of a server, which starts again, as an operator does: it stops using a disk that was full.
    pub(crate) fn free(&mut self, number: usize) {
        if let Some(disk) = &self.disks[number] {
            disk.free();
            self.servers[number].kill();
            self.servers[number].restart();
        }
    }
}
