//! Floods of real sockets: an attacker sends at a fixed rate, and honest clients have the latency
//! that they have without it. A latency is compared with another latency of the same test, so that
//! the tests pass on a busy machine. `MOTESEAL_FLOOD_SECONDS` sets the time of each flood.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use moteseal_net::coap::{
    Code, Config, ExchangeId, Format, Limits, Owner, Request, Response, Security, Service, Socket,
    To,
};
use moteseal_net::dtls;
use moteseal_net::mqtt::Backoff;
use tokio::sync::Mutex;
use tokio::time::sleep;

mod coap;
mod dtls_floods;

/// Held by a test from start to end, so that the load of one test does not affect the others.
static ALONE: Mutex<()> = Mutex::const_new(());
/// The rate of the floods, in steps of the attacker per second. A step sends one or two datagrams.
const RATE: u64 = if cfg!(debug_assertions) { 1000 } else { 10_000 };

/// An address of the network of the loopback interface. Different numbers below 2^22 have different
/// addresses.
fn forged(number: u64) -> Ipv4Addr {
    Ipv4Addr::from(0x7f40_0000 | (number as u32 & 0x3f_ffff))
}

/// Sends a datagram from another address.
fn send_from(from: Ipv4Addr, to: SocketAddr, datagram: &[u8]) {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    // The buffer of the receiver may be full.
    let _ = socket.send_to(datagram, to);
}

/// An attacker, on a thread of its own. It sends only while it is active.
struct Flood {
    rate: u64,
    active: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    steps: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// Calls `step` with the numbers from 0, [`RATE`] times a second.
    fn start(step: impl FnMut(u64) + Send + 'static) -> Self {
        Self::at(RATE, step)
    }

    /// Calls `step` with the numbers from 0, `rate` times a second.
    fn at(rate: u64, mut step: impl FnMut(u64) + Send + 'static) -> Self {
        let (active, ended) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let steps = Arc::<AtomicU64>::default();
        let (is_active, has_ended) = (Arc::clone(&active), Arc::clone(&ended));
        let count = Arc::clone(&steps);
        let thread = std::thread::spawn(move || {
            let (mut number, mut due, mut before) = (0, 0.0, Instant::now());
            while !has_ended.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
                let elapsed = std::mem::replace(&mut before, Instant::now()).elapsed();
                if !is_active.load(Ordering::Relaxed) {
                    continue;
                }
                // A thread that did not run does not send everything later.
                due = (due + rate as f64 * elapsed.as_secs_f64()).min(rate as f64 / 50.0);
                while due >= 1.0 {
                    step(number);
                    (number, due) = (number + 1, due - 1.0);
                }
                count.store(number, Ordering::Relaxed);
            }
        });
        Self { rate, active, ended, steps, thread: Some(thread) }
    }

    /// Returns by which factor the flood slows down a request. On a machine that is busy with other
    /// things, single results are wrong. Therefore a result of 2 or more is measured again, twice at
    /// most.
    async fn slowdown<F: Future<Output = ()>>(
        &self,
        name: &str,
        mut request: impl FnMut() -> F,
    ) -> f64 {
        let mut least = f64::INFINITY;
        for _ in 0..3 {
            least = least.min(self.measure(name, &mut request).await);
            if least < 2.0 {
                break;
            }
        }
        least
    }

    /// Returns the median over several rounds, each of which compares the median latency with and
    /// without the flood.
    async fn measure<F: Future<Output = ()>>(
        &self,
        name: &str,
        mut request: impl FnMut() -> F,
    ) -> f64 {
        let long = std::env::var("MOTESEAL_FLOOD_SECONDS").ok();
        let time = long.map_or(Duration::from_millis(80), |seconds| {
            Duration::from_secs(seconds.parse().expect("MOTESEAL_FLOOD_SECONDS is a number")) / 10
        });
        let (mut ratios, start) = (Vec::new(), self.steps.load(Ordering::Relaxed));
        let mut latencies = Vec::new();
        for _ in 0..5 {
            self.active.store(false, Ordering::Relaxed);
            sleep(Duration::from_millis(20)).await;
            let alone = median(time, &mut request).await;
            self.active.store(true, Ordering::Relaxed);
            sleep(Duration::from_millis(20)).await;
            let loaded = median(time, &mut request).await;
            ratios.push(loaded.as_secs_f64() / alone.as_secs_f64());
            latencies.push(alone);
        }
        self.active.store(false, Ordering::Relaxed);
        ratios.sort_by(f64::total_cmp);
        latencies.sort();
        let steps = self.steps.load(Ordering::Relaxed) - start;
        println!("{name}: {steps} steps, alone {:.2?}, slowdowns {ratios:.2?}", latencies[2]);
        assert!(steps >= self.rate / 8, "{name}: the attacker sent little");
        ratios[2]
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

/// Returns the median time of the calls of `request` within `time`, with a short pause before each
/// call.
async fn median<F: Future<Output = ()>>(
    time: Duration,
    mut request: impl FnMut() -> F,
) -> Duration {
    let mut times = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < time || times.len() < 15 {
        sleep(Duration::from_millis(2)).await;
        let start = Instant::now();
        request().await;
        times.push(start.elapsed());
    }
    times.sort();
    times[times.len() / 2]
}

/// A resource that can be observed. Counts the requests.
struct Resource(Arc<AtomicU64>);

impl Service for Resource {
    fn request(&mut self, _: ExchangeId, _: Owner, request: Request) -> Option<Response> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let text = if request.code == Code::GET { "reading" } else { "" };
        Some(Response { accepts_observer: true, ..Response::content(Format::TEXT, text) })
    }
}

/// A server on the loopback interface, and the number of requests that it has served.
fn serve(security: Security, limits: Limits) -> (Socket, SocketAddr, Arc<AtomicU64>) {
    let served = Arc::<AtomicU64>::default();
    let config = Config { limits, ..Config::default() };
    let resource = Box::new(Resource(Arc::clone(&served)));
    let local = (Ipv4Addr::LOCALHOST, 0).into();
    let socket = Socket::listen(local, security, config, |_| resource).unwrap();
    let address = socket.handle().address();
    (socket, address, served)
}

fn connect(server: SocketAddr, client: Option<dtls::ClientConfig>) -> Socket {
    let security = client.map_or(Security::Plain, |config| {
        let client = dtls::Client::new(config, server, Instant::now()).unwrap();
        Security::Client(Box::new(client))
    });
    let service = |_: &_| Box::new(moteseal_net::coap::socket::NoService) as Box<dyn Service>;
    Socket::connect(server, security, Backoff::default(), Config::default(), service).unwrap()
}

async fn get(client: &Socket) {
    let request = Request::new(Code::GET, "/reading");
    let response = client.handle().request(To::Server, request, Duration::ZERO).await;
    let status = client.handle().status().borrow().clone();
    let response = response.unwrap_or_else(|error| panic!("{error}; {status:?}"));
    assert_eq!(&*response.body, b"reading");
}

/// The first datagram of a handshake must not wait for its retransmission, which follows after about a
/// second.
#[tokio::test]
async fn a_first_handshake_is_much_faster_than_a_retransmission() {
    let _alone = ALONE.lock().await;
    let config = crate::dtls::world::psk_config();
    let server = dtls::Server::new(config, dtls::Limits::default(), Instant::now()).unwrap();
    let (_socket, address, _) = serve(Security::Server(Box::new(server)), Limits::default());
    let handshake = || async {
        let client = crate::dtls::world::psk_client(crate::dtls::world::DEVICE);
        get(&connect(address, Some(client))).await;
    };
    let time = median(Duration::ZERO, handshake).await;
    println!("a handshake and a request take {time:.2?}");
    assert!(time < Duration::from_millis(300), "{time:?}");
}
