//! One client sends expensive requests, or reads slowly. The latency of other clients stays low, and
//! the memory for responses stays within its limit.
//!
//! A latency is compared with another latency of the same test, so that the tests pass on a busy
//! machine. The cloud has one thread for requests, so a request that occupies it delays all other
//! requests. The hostile clients have another thread.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use moteseal_api::paths;
use moteseal_cloud::{Config, Limits};
use moteseal_core::record::Scheme::Star;
use moteseal_core::record::SealIndex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::progress::Progress;
use crate::testbed::{Running, esp256_group, group};
use crate::users::{add, with_password};

/// Held by a test from start to end, so that the load of one test does not affect the others.
static ALONE: Mutex<()> = Mutex::const_new(());

/// The address of the hostile clients. Honest clients use another address.
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Opens a connection from [`STRANGER`] and sends `bytes`.
async fn stranger(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((STRANGER, 0).into()).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// Hostile clients, on a thread of their own. They send requests only while they are active.
struct Load {
    active: Arc<AtomicBool>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// Starts clients. `run` adds their tasks, which must send nothing while the flag is not set.
    fn start(run: impl AsyncFnOnce(Arc<AtomicBool>) -> JoinSet<()> + Send + 'static) -> Self {
        let active = Arc::new(AtomicBool::new(false));
        let (stop, stopped) = oneshot::channel();
        let flag = Arc::clone(&active);
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut clients = run(flag).await;
                tokio::select! {
                    _ = stopped => clients.shutdown().await,
                    ended = clients.join_next() => panic!("a client ended: {ended:?}"),
                }
            });
        });
        Self { active, stop: Some(stop), thread: Some(thread) }
    }

    /// Clients that repeat one upload.
    fn replays(cloud: &Running, body: &[u8], clients: usize) -> Self {
        let (url, body) = (cloud.at(paths::BUNDLES), body.to_vec());
        Self::start(async move |active| {
            let http = reqwest::Client::builder().local_address(STRANGER).build().unwrap();
            let mut tasks = JoinSet::new();
            for _ in 0..clients {
                let (http, url, body) = (http.clone(), url.clone(), body.clone());
                let active = Arc::clone(&active);
                tasks.spawn(async move {
                    loop {
                        is_set(&active).await;
                        let response = http.put(&url).body(body.clone()).send().await.unwrap();
                        assert_eq!(response.status(), 200);
                    }
                });
            }
            tasks
        })
    }

    /// Returns by which factor the clients slow down a request. Other programs of a busy machine slow
    /// down some measurements. A delay that the clients cause is in each of them, so the least counts.
    async fn slowdown<F: Future<Output = ()>>(&self, mut request: impl FnMut() -> F) -> f64 {
        let mut least = f64::INFINITY;
        for _ in 0..5 {
            least = least.min(self.slowdown_once(&mut request).await);
            if least < 1.5 {
                break;
            }
        }
        least
    }

    /// Returns the median over several rounds, each of which compares the median latency with and
    /// without the clients' requests.
    async fn slowdown_once<F: Future<Output = ()>>(&self, mut request: impl FnMut() -> F) -> f64 {
        let mut ratios = Vec::new();
        for _ in 0..7 {
            self.active.store(false, Ordering::Relaxed);
            sleep(Duration::from_millis(300)).await;
            let alone = median(11, &mut request).await;
            self.active.store(true, Ordering::Relaxed);
            sleep(Duration::from_millis(100)).await;
            let loaded = median(11, &mut request).await;
            ratios.push(loaded.as_secs_f64() / alone.as_secs_f64());
        }
        ratios.sort_by(f64::total_cmp);
        println!("slowdowns: {ratios:.2?}");
        ratios[ratios.len() / 2]
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.take().map(|stop| stop.send(()));
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

/// Waits until a flag is set.
async fn is_set(flag: &AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until one of the streams has received something.
async fn one_responds(streams: &[TcpStream], expected: &str) {
    let any = async {
        loop {
            for stream in streams {
                if timeout(Duration::from_millis(20), stream.peek(&mut [0])).await.is_ok() {
                    return;
                }
            }
        }
    };
    timeout(Duration::from_secs(20), any).await.expect(expected);
}

/// Returns the median time of `count` calls of `request`, with a short pause before each call.
async fn median<F: Future<Output = ()>>(count: usize, mut request: impl FnMut() -> F) -> Duration {
    let mut times = Vec::new();
    for _ in 0..count {
        sleep(Duration::from_millis(2)).await;
        let start = Instant::now();
        request().await;
        times.push(start.elapsed());
    }
    times.sort();
    times[count / 2]
}

/// Finding B1 of the review. The bodies are short, but they take long to verify, because they have
/// many signatures.
#[tokio::test]
async fn uploads_with_many_signatures_do_not_delay_other_requests() {
    let _alone = ALONE.lock().await;
    let (roster, mut motes) = esp256_group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster)).await;
    let body: Vec<u8> = (0..150).flat_map(|epoch| motes[0].seal(Star, epoch, true, &[1])).collect();
    assert!(body.len() < 64 << 10);
    assert_eq!(cloud.put(body.clone()).await.status(), 200);
    let load = Load::replays(&cloud, &body, 8);
    let get = || async { assert_eq!(cloud.get(paths::HEALTHZ).await.status(), 200) };
    let slowdown = load.slowdown(get).await;
    drop(load);
    assert!(slowdown < 2.0, "a health check takes {slowdown} times as long");
    cloud.stop().await;
}

/// Finding B1 of the review. One address has many uploads to verify. An upload from another address
/// is verified at the same time instead of after all of them.
#[tokio::test]
async fn uploads_of_one_address_do_not_queue_before_those_of_others() {
    let _alone = ALONE.lock().await;
    let (roster, mut motes) = esp256_group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster)).await;
    let body: Vec<u8> = (0..40).flat_map(|epoch| motes[0].seal(Star, epoch, true, &[1])).collect();
    let put = || async { assert_eq!(cloud.put(body.clone()).await.status(), 200) };
    put().await;
    let clients = 12 * std::thread::available_parallelism().unwrap().get();
    let load = Load::replays(&cloud, &body, clients);
    let slowdown = load.slowdown(put).await;
    drop(load);
    assert!(slowdown < 2.0, "an upload takes {slowdown} times as long");
    cloud.stop().await;
}

/// Finding B2 of the review. The clients of one address request long bundles and do not read them.
/// The cloud reads a bundle only if there is memory for it. Other addresses get their share, and a
/// client that does not read loses its connection and its memory.
#[tokio::test]
async fn bundles_for_clients_that_do_not_read_stay_within_the_memory() {
    let _alone = ALONE.lock().await;
    let events: Vec<u32> = (0..1_500_000).collect();
    let length = 4 * events.len();
    let limits = Limits {
        answer_bytes: 2 * length + length / 4,
        write_stall: Duration::from_secs(3),
        ..Limits::default()
    };
    let (roster, mut motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config { limits, ..Config::new(roster) }).await;
    assert_eq!(cloud.put(motes[0].seal(Star, 1, true, &events)).await.status(), 200);
    let path = paths::bundle(motes[0].id, SealIndex(0));
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut idle = Vec::new();
    for _ in 0..6 {
        idle.push(stranger(cloud.address, request.as_bytes()).await);
    }
    // Wait for the first response. The others would follow it soon.
    one_responds(&idle, "no response").await;
    sleep(Duration::from_millis(300)).await;
    let mut waiting = Vec::new();
    let mut responses = Vec::new();
    for stream in idle {
        match timeout(Duration::from_millis(50), stream.peek(&mut [0])).await {
            Err(_) => waiting.push(stream),
            Ok(peeked) => {
                assert_eq!(peeked.unwrap(), 1);
                responses.push(stream);
            }
        }
    }
    assert_eq!((responses.len(), waiting.len()), (1, 5), "the memory has room for one");
    let bundle = timeout(Duration::from_secs(5), cloud.get(&path)).await.expect("in time");
    assert_eq!(bundle.status(), 200);
    let bundle = timeout(Duration::from_secs(5), bundle.bytes()).await.expect("in time").unwrap();
    assert!(bundle.len() > length, "{}", bundle.len());
    // After `write_stall`, the client that does not read is disconnected, and another one is served.
    one_responds(&waiting, "the memory is free again").await;
    let mut cut = Vec::new();
    let _ = timeout(Duration::from_secs(5), responses[0].read_to_end(&mut cut)).await.expect("cut");
    assert!(cut.len() < length, "{} of {length} bytes", cut.len());
    drop((waiting, responses));
    cloud.stop().await;
}

/// Finding B3 of the review. The clients send many requests for the metrics without waiting for the
/// responses.
#[tokio::test]
async fn pipelined_requests_for_metrics_do_not_delay_other_requests() {
    let _alone = ALONE.lock().await;
    let (roster, _) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster)).await;
    let get = || async { assert_eq!(cloud.get(paths::HEALTHZ).await.status(), 200) };
    let requests = "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n".repeat(400);
    let address = cloud.address;
    let load = Load::start(async move |active| {
        let mut floods = JoinSet::new();
        for _ in 0..4 {
            let (mut receive, mut send) = stranger(address, b"").await.into_split();
            let (requests, active) = (requests.clone(), Arc::clone(&active));
            floods.spawn(async move {
                loop {
                    is_set(&active).await;
                    send.write_all(requests.as_bytes()).await.unwrap();
                }
            });
            floods.spawn(async move {
                let mut pages = vec![0; 1 << 16];
                while receive.read(&mut pages).await.unwrap() > 0 {}
            });
        }
        floods
    });
    let slowdown = load.slowdown(get).await;
    drop(load);
    assert!(slowdown < 2.0, "a health check takes {slowdown} times as long");
    cloud.stop().await;
}

/// How password guesses are sent.
#[derive(Clone, Copy)]
struct Guesses {
    /// The name, or `None` for another unknown name each time.
    name: Option<&'static str>,
    /// Whether each guess comes from another address.
    spread: bool,
}

impl Guesses {
    /// Clients on 16 connections, each of which sends the next guess when it has the response. The calling
    /// thread serves them.
    fn start(self, address: SocketAddr) -> Load {
        let progress = Progress::of_this_thread();
        Load::start(async move |active| {
            let mut floods = JoinSet::new();
            for client in 1..=16_u8 {
                let (active, progress) = (Arc::clone(&active), progress.clone());
                floods.spawn(async move {
                    for number in 0_u16.. {
                        is_set(&active).await;
                        let [high, low] = number.to_be_bytes();
                        let socket = TcpSocket::new_v4().unwrap();
                        let from = match self.spread {
                            true => Ipv4Addr::new(127, 16 + client, high, low.max(1)),
                            false => Ipv4Addr::new(127, 0, 0, 3),
                        };
                        socket.bind((from, 0).into()).unwrap();
                        let mut stream = socket.connect(address).await.unwrap();
                        let name =
                            self.name.map_or_else(|| format!("{client}-{number}"), Into::into);
                        let credential = STANDARD.encode(format!("{name}:guess-{client}-{number}"));
                        let guess = format!(
                            "GET /v1/devices HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                             authorization: Basic {credential}\r\n\r\n"
                        );
                        stream.write_all(guess.as_bytes()).await.unwrap();
                        let mut response = Vec::new();
                        stream.read_to_end(&mut response).await.unwrap();
                        let response = String::from_utf8_lossy(&response).to_lowercase();
                        let status = response.split(' ').nth(1).unwrap_or_default();
                        assert!(matches!(status, "401" | "429" | "503"), "{response}");
                        assert!(status == "401" || response.contains("\r\nretry-after: "));
                        if self.name.is_some() {
                            // The name or the address is throttled, so its requests cost as much as
                            // those of others. Send at most 1,600 a second.
                            progress.sleep(Duration::from_millis(10)).await;
                        }
                    }
                });
            }
            floods
        })
    }
}

/// Users with a verified password and clients with a token are served without delay, and few passwords
/// are hashed at the same time.
#[tokio::test]
async fn password_guesses_do_not_delay_other_requests() {
    let _alone = ALONE.lock().await;
    let (roster, _) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let (users, tokens) = (directory.path().join("users"), directory.path().join("tokens"));
    add(&users, "reader", with_password("read", ""));
    std::fs::write(&tokens, "read 4q9mB0xJ2kTqvYfB\n").unwrap();
    let config = Config { users: Some(users), tokens: Some(tokens), ..Config::new(roster) };
    let cloud = Running::start(directory.path(), config).await;
    let request = |path: &str| {
        let request = cloud.http.get(cloud.at(path));
        request.basic_auth("reader", Some("correct horse battery")).send()
    };
    let by_token =
        || cloud.http.get(cloud.at(paths::DEVICES)).bearer_auth("4q9mB0xJ2kTqvYfB").send();
    let get = || async {
        assert_eq!(request(paths::DEVICES).await.unwrap().status(), 200);
        assert_eq!(by_token().await.unwrap().status(), 200);
    };
    get().await;
    for (what, guesses) in [
        ("unknown names, from many addresses", Guesses { name: None, spread: true }),
        ("one name, from many addresses", Guesses { name: Some("reader"), spread: true }),
        ("one name, from one address", Guesses { name: Some("reader"), spread: false }),
    ] {
        let load = guesses.start(cloud.address);
        let slowdown = load.slowdown(get).await;
        println!("{what}: {slowdown:.2}");
        let mut most = 0;
        for _ in 0..20 {
            let page = request(paths::METRICS).await.unwrap().text().await.unwrap();
            let line = page
                .lines()
                .find_map(|line| line.strip_prefix("moteseal_password_hashes_running "));
            most = most.max(line.unwrap().parse().unwrap());
            sleep(Duration::from_millis(5)).await;
        }
        drop(load);
        assert!(slowdown < 2.0, "{what}: others wait {slowdown} times as long");
        let least = i32::from(guesses.name.is_none());
        assert!(
            (least..=2).contains(&most),
            "{what}: {most} passwords are hashed at the same time"
        );
    }
    cloud.stop().await;
}

/// A user who has not logged in before has the first password hashed while an attacker at one
/// address guesses.
#[tokio::test]
async fn first_logins_are_not_delayed_by_guesses_from_one_address() {
    let _alone = ALONE.lock().await;
    let (roster, _) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let users = directory.path().join("users");
    // A hash of one password serves as that of many users.
    let user = with_password("read", "");
    (0..90).for_each(|number| add(&users, &format!("user-{number}"), user.clone()));
    let config = Config { users: Some(users), ..Config::new(roster) };
    let cloud = Running::start(directory.path(), config).await;
    let next = std::sync::atomic::AtomicUsize::new(0);
    let login = || async {
        let name = format!("user-{}", next.fetch_add(1, Ordering::Relaxed));
        let request = cloud.http.get(cloud.at(paths::DEVICES));
        let response = request.basic_auth(name, Some("correct horse battery")).send().await;
        assert_eq!(response.unwrap().status(), 200);
    };
    let load = Guesses { name: Some("user-89"), spread: false }.start(cloud.address);
    let mut ratios = Vec::new();
    for _ in 0..5 {
        load.active.store(false, Ordering::Relaxed);
        sleep(Duration::from_millis(100)).await;
        let alone = median(7, login).await;
        load.active.store(true, Ordering::Relaxed);
        let loaded = median(7, login).await;
        ratios.push(loaded.as_secs_f64() / alone.as_secs_f64());
    }
    drop(load);
    ratios.sort_by(f64::total_cmp);
    println!("slowdowns of first logins: {ratios:.2?}");
    assert!(ratios[2] < 2.0, "a first login takes {} times as long", ratios[2]);
    cloud.stop().await;
}
