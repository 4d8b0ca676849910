//! A cloud whose socket for CoAP is flooded from forged addresses.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use moteseal_api::paths;
use moteseal_cloud::coap::Listen;
use moteseal_cloud::{Cloud, Config};
use moteseal_net::coap::message::{Kind, Message, Number};
use moteseal_net::coap::socket::NoService;
use moteseal_net::coap::{Code, Request, Security, Service, Socket, To};
use moteseal_net::mqtt::Backoff;
use moteseal_store::EpochStore;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::progress::Progress;
use crate::testbed::{group, open_store};

/// The number of datagrams that the attacker sends each millisecond of the cloud's progress, at most.
const RATE: u64 = 1;

/// Requests, some of which are malformed, from the addresses of a network.
fn flood(number: u64) -> (Ipv4Addr, Vec<u8>) {
    let mut message = Message::new(Kind::Confirmable, Code::GET, number as u16);
    for segment in ["v1", "devices"] {
        message.options.add(Number::URI_PATH, segment);
    }
    let mut bytes = message.encode();
    if number.is_multiple_of(4) {
        bytes.push(0xff);
    }
    (Ipv4Addr::from(0x7f50_0000 | (number as u32 & 0xffff)), bytes)
}

#[tokio::test]
async fn a_flood_of_requests_over_coap_delays_nobody_and_is_in_the_metrics() {
    let (roster, _) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path()) as Arc<dyn EpochStore>;
    let cloud = Cloud::bind(Config::new(roster), store).await.unwrap();
    let local = (Ipv4Addr::LOCALHOST, 0).into();
    let cloud = cloud.with_coap(Listen { coap: Some(local), coaps: None }).unwrap();
    let http = cloud.url();
    let coap = cloud.coap_urls()[0].strip_prefix("coap://").unwrap().parse().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(cloud.run(async { drop(stopped.await) }));

    let service = |_: &_| Box::new(NoService) as Box<dyn Service>;
    let client =
        Socket::connect(coap, Security::Plain, Backoff::default(), <_>::default(), service)
            .unwrap();
    let client_http = reqwest::Client::new();
    let get = || async {
        let request = Request::new(Code::GET, "/v1/devices");
        let response = client.handle().request(To::Server, request, Duration::ZERO).await.unwrap();
        assert_eq!(response.code, Code::CONTENT);
        let page = client_http.get(format!("{http}{}", paths::DEVICES)).send().await.unwrap();
        assert_eq!(page.status(), 200);
    };
    let (active, ended) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (is_active, has_ended) = (Arc::clone(&active), Arc::clone(&ended));
    let (progress, step) = (Progress::of_this_thread(), Duration::from_millis(1));
    let attacker = std::thread::spawn(move || {
        let (mut number, mut last) = (0, Duration::ZERO);
        while !has_ended.load(Ordering::Relaxed) {
            std::thread::sleep(step);
            let now = progress.now();
            let is_due = is_active.load(Ordering::Relaxed) && now >= last + step;
            if is_due {
                last = now;
            }
            for _ in 0..if is_due { RATE } else { 0 } {
                let (from, datagram) = flood(number);
                let socket = UdpSocket::bind((from, 0)).unwrap();
                let _ = socket.send_to(&datagram, coap);
                number += 1;
            }
        }
        number
    });
    let median = async || {
        let mut times = Vec::new();
        for _ in 0..31 {
            sleep(Duration::from_millis(2)).await;
            let start = Instant::now();
            get().await;
            times.push(start.elapsed());
        }
        times.sort();
        times[times.len() / 2].as_secs_f64()
    };
    let mut ratios = Vec::new();
    for _ in 0..5 {
        active.store(false, Ordering::Relaxed);
        sleep(Duration::from_millis(50)).await;
        let alone = median().await;
        active.store(true, Ordering::Relaxed);
        ratios.push(median().await / alone);
    }
    ended.store(true, Ordering::Relaxed);
    let sent = attacker.join().unwrap();
    ratios.sort_by(f64::total_cmp);
    println!("{sent} datagrams, slowdowns {ratios:.2?}");
    assert!(sent > 200, "{sent}");
    assert!(ratios[2] < 2.0, "others wait {} times as long", ratios[2]);

    // The metrics are updated every few seconds.
    let malformed = async {
        loop {
            let page = client_http.get(format!("{http}{}", paths::METRICS)).send().await.unwrap();
            let page = page.text().await.unwrap();
            let name = "moteseal_coap_refused_total{name=\"Malformed\"} ";
            let count = page.lines().find_map(|line| line.strip_prefix(name));
            if let Some(count) = count.filter(|count| *count != "0") {
                return count.parse::<u64>().unwrap();
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    let malformed = tokio::time::timeout(Duration::from_secs(20), malformed).await.unwrap();
    assert!(malformed <= sent, "{malformed} of {sent}");
    drop(stop);
    running.await.unwrap();
}
