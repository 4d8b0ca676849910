//! Strangers: whatever they send or do not send, the work is bounded, the refusal is clear, and others are served.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::time::{Duration, Instant};

use moteseal_api::{Problem, paths};
use moteseal_cloud::{Config, Limits};
use moteseal_core::record::DeviceId;
use moteseal_core::sample::{Choice, Rate};
use moteseal_core::seal::Scheme::Star;
use support::{Running, group, problem, query};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn limited(limits: Limits) -> (Running, Vec<support::Mote>, tempfile::TempDir) {
    let (roster, motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config { limits, ..Config::new(roster) }).await;
    (cloud, motes, directory)
}

/// Sends bytes on a connection of its own, and reads until the cloud closes it.
async fn raw(cloud: &Running, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(cloud.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await.expect("closed in time");
    String::from_utf8_lossy(&answer).into_owned()
}

fn name_of(raw: &str) -> String {
    let (_, body) = raw.split_once("\r\n\r\n").unwrap();
    serde_json::from_str::<Problem>(body).unwrap().name().to_owned()
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_before_and_while_it_is_read() {
    let (cloud, ..) = limited(Limits { body_bytes: 1000, ..Limits::default() }).await;
    let answer = raw(&cloud, b"PUT /v1/bundles HTTP/1.1\r\nhost: x\r\ncontent-length: 1001\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 413") && name_of(&answer) == "BodyTooLarge", "{answer}");
    // A sender in full flow hears why, instead of a torn connection.
    for _ in 0..5 {
        let refused = problem(cloud.put(vec![0; 5_000_000]).await).await;
        assert_eq!((refused.name(), refused.status), ("BodyTooLarge", 413));
    }
    let mut chunked = b"PUT /v1/bundles HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..3 {
        chunked.extend_from_slice(b"190\r\n");
        chunked.extend_from_slice(&[0x80; 400]);
        chunked.extend_from_slice(b"\r\n");
    }
    let answer = raw(&cloud, &chunked).await;
    assert!(answer.starts_with("HTTP/1.1 413") && name_of(&answer) == "BodyTooLarge", "{answer}");
    cloud.stop().await;
}

#[tokio::test]
async fn a_slow_body_and_a_slow_head_are_given_up() {
    let limits = Limits {
        body_stall: Duration::from_millis(200),
        body_time: Duration::from_millis(600),
        head_time: Duration::from_millis(300),
        ..Limits::default()
    };
    let (cloud, ..) = limited(limits).await;
    let answer = raw(&cloud, b"PUT /v1/bundles HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nabc").await;
    assert!(answer.starts_with("HTTP/1.1 408") && name_of(&answer) == "RequestTimeout", "{answer}");
    // Dripping bytes keeps a body alive only for so long.
    let mut stream = TcpStream::connect(cloud.address).await.unwrap();
    stream.write_all(b"PUT /v1/bundles HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n").await.unwrap();
    let start = Instant::now();
    let (mut receive, mut send) = stream.into_split();
    let drip = tokio::spawn(async move {
        while send.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let mut answer = vec![0; 12];
    receive.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 408");
    assert!(start.elapsed() < Duration::from_secs(5));
    drip.abort();
    // A head that never ends is closed without a word, as is a connection on which nothing comes.
    for head in [&b"GET /healthz HTTP/1.1\r\nhost"[..], b""] {
        let answer = raw(&cloud, head).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    assert_eq!(cloud.get(paths::HEALTHZ).await.status(), 200);
    cloud.stop().await;
}

#[tokio::test]
async fn too_many_parts_or_events_are_refused_before_they_are_hashed() {
    let (cloud, mut motes, _directory) = limited(Limits { upload_parts: 3, events: 100, ..Limits::default() }).await;
    let body: Vec<u8> = (0..4).flat_map(|epoch| motes[0].clone().seal(Star, epoch, true, &[1])).collect();
    let refused = problem(cloud.put(body).await).await;
    assert_eq!((refused.name(), refused.status), ("TooManyParts", 413));
    let body = [motes[0].seal(Star, 1, true, &[1; 60]), motes[0].seal(Star, 2, true, &[1; 60])].concat();
    let refused = problem(cloud.put(body).await).await;
    assert_eq!((refused.name(), refused.status), ("TooManyEvents", 413));
    cloud.stop().await;
}

#[tokio::test]
async fn uploads_share_a_bounded_memory() {
    let (cloud, mut motes, _directory) = limited(Limits { upload_bytes: 192 << 10, ..Limits::default() }).await;
    let mut slow = TcpStream::connect(cloud.address).await.unwrap();
    slow.write_all(b"PUT /v1/bundles HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\nx").await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let body = motes[0].seal(Star, 1, true, &[1; 3000]);
    let response = cloud.put(body.clone()).await;
    assert_eq!(response.headers()["retry-after"], "1");
    let refused = problem(response).await;
    assert_eq!((refused.name(), refused.status), ("Unavailable", 503));
    drop(slow);
    // Once the slow one is gone there is room again, as the refusal said.
    let mut status = 0;
    for _ in 0..50 {
        status = cloud.put(body.clone()).await.status().as_u16();
        if status == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(status, 200);
    cloud.stop().await;
}

#[tokio::test]
async fn queries_are_limited_and_told_how() {
    let limits = Limits { query_devices: 1, query_epochs: 10, query_sample: 5, ..Limits::default() };
    let (cloud, motes, _directory) = limited(limits).await;
    let device = motes[0].id;
    let all = Choice::Rate(Rate::ALL);
    let cases = [
        (query(&[device, DeviceId([1; 8])], 0, Some(1), all), "QueryTooLarge", 413),
        (query(&[device], 0, Some(11), all), "QueryTooLarge", 413),
        (query(&[device], 0, None, all), "QueryTooLarge", 413),
        (query(&[device], 0, Some(1), Choice::Sample { count: 6, seed: [0; 32] }), "QueryTooLarge", 413),
        (query(&[DeviceId([1; 8])], 0, Some(1), all), "UnknownDevice", 404),
        (query(&[device], 0, Some(1), Choice::Rate("1/256".parse().unwrap())), "RateUnavailable", 422),
    ];
    for (query, name, status) in cases {
        let refused = problem(cloud.ask(&query).await).await;
        assert_eq!((refused.name(), refused.status), (name, status), "{}", refused.detail);
    }
    for body in ["", "{}", "[1,2", "\u{0}", "{\"devices\":[]}"] {
        let response = cloud.http.post(cloud.at(paths::QUERY)).body(body).send().await.unwrap();
        assert_eq!(problem(response).await.name(), "BadQuery");
    }
    let typed = cloud.http.post(cloud.at(paths::QUERY)).header("content-type", "text/xml").body("x").send().await.unwrap();
    assert_eq!(problem(typed).await.name(), "UnsupportedMediaType");
    cloud.stop().await;
}

#[tokio::test]
async fn one_request_or_connection_too_many_is_told_to_come_back() {
    let (cloud, ..) = limited(Limits { requests: 1, answers: 1, connections: 3, ..Limits::default() }).await;
    // A request that does not end holds the only place.
    let mut slow = TcpStream::connect(cloud.address).await.unwrap();
    slow.write_all(b"POST /v1/query HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let response = cloud.get(paths::DEVICES).await;
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(problem(response).await.name(), "Unavailable");
    assert_eq!(cloud.get(paths::HEALTHZ).await.status(), 200, "health is not held up");
    let _third = TcpStream::connect(cloud.address).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut fourth = TcpStream::connect(cloud.address).await.unwrap();
    let mut answer = String::new();
    fourth.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: 1"), "{answer}");
    assert_eq!(name_of(&answer), "Unavailable");
    cloud.stop().await;
}

/// The answer is far longer than what lies between: without back-pressure the cloud would hold it, without the stall limit
/// the reader would hold the only place.
#[tokio::test]
async fn a_reader_that_takes_nothing_loses_its_place() {
    let limits = Limits { answers: 1, write_stall: Duration::from_millis(500), ..Limits::default() };
    let (cloud, mut motes, _directory) = limited(limits).await;
    let events: Vec<u32> = (0..500_000).collect();
    for epoch in 0..8 {
        assert_eq!(cloud.put(motes[0].seal(Star, epoch, true, &events)).await.status(), 200);
    }
    let query = query(&[motes[0].id], 0, None, Choice::Rate(Rate::ALL));
    let body = query.to_json();
    let mut idle = TcpStream::connect(cloud.address).await.unwrap();
    let head = format!("POST /v1/query HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    idle.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let refused = problem(cloud.ask(&query).await).await;
    assert_eq!((refused.name(), refused.status), ("TooManyRequests", 429));
    let mut status = 0;
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let response = cloud.ask(&query).await;
        status = response.status().as_u16();
        if status == 200 {
            assert_eq!(response.bytes().await.unwrap().len() / (500_000 * 4), 8);
            break;
        }
    }
    assert_eq!(status, 200);
    cloud.stop().await;
}

#[tokio::test]
async fn bytes_that_are_no_http_do_no_harm() {
    let (cloud, ..) = limited(Limits { head_time: Duration::from_millis(300), ..Limits::default() }).await;
    let long = [b"GET /".as_slice(), &[b'a'; 300_000], b" HTTP/1.1\r\n\r\n"].concat();
    let many = [b"GET / HTTP/1.1\r\n".to_vec(), b"x: y\r\n".repeat(1000), b"\r\n".to_vec()].concat();
    let cases: [&[u8]; 5] =
        [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0\0\0\0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &long, &many];
    for bytes in cases {
        let answer = raw(&cloud, bytes).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    assert_eq!(cloud.get(paths::READYZ).await.status(), 200);
    cloud.stop().await;
}
