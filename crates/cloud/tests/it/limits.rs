//! Hostile clients. The cloud does only a bounded amount of work for each of them, responds with a
//! clear error, and continues to serve other clients.

use std::time::{Duration, Instant};

use crate::testbed::{Running, group, problem, query};
use moteseal_api::{Problem, paths};
use moteseal_cloud::{Config, Limits};
use moteseal_core::record::DeviceId;
use moteseal_core::record::Scheme::Star;
use moteseal_seal::sample::{Choice, Rate};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

async fn limited(limits: Limits) -> (Running, Vec<crate::testbed::Mote>, tempfile::TempDir) {
    let (roster, motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config { limits, ..Config::new(roster) }).await;
    (cloud, motes, directory)
}

/// Sends `bytes` on a separate connection, and reads until the cloud closes the connection.
async fn raw(cloud: &Running, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(cloud.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer))
        .await
        .expect("closed in time");
    String::from_utf8_lossy(&answer).into_owned()
}

/// The address of the hostile clients. Honest clients use another address.
const STRANGER: [u8; 4] = [127, 0, 0, 2];

async fn from(address: [u8; 4], cloud: &Running) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    socket.connect(cloud.address).await.unwrap()
}

/// Sends `bytes` and then single bytes at intervals. When the cloud closes the connection, returns
/// the beginning of the response.
async fn drip(mut stream: TcpStream, bytes: Vec<u8>) -> String {
    let _ = stream.write_all(&bytes).await;
    let (mut receive, mut send) = stream.into_split();
    let sender = tokio::spawn(async move {
        while send.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let mut answer = vec![0; 4096];
    let length = receive.read(&mut answer).await.unwrap_or(0);
    sender.abort();
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

/// Sends an upload and a query. Each of them must get a response within five seconds.
async fn served(cloud: &Running, mote: &mut crate::testbed::Mote, epoch: u64, events: usize) {
    let limit = Duration::from_secs(5);
    let body = mote.seal(Star, epoch, true, &vec![1; events]);
    let response = tokio::time::timeout(limit, cloud.put(body)).await.expect("stored in time");
    assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
    let query = query(&[mote.id], epoch, Some(epoch + 1), Choice::Rate(Rate::ALL));
    let response = tokio::time::timeout(limit, cloud.ask(&query)).await.expect("answered in time");
    assert_eq!(response.status(), 200);
    assert!(response.bytes().await.unwrap().len() > events * 4);
}

fn name_of(raw: &str) -> String {
    let (_, body) = raw.split_once("\r\n\r\n").unwrap();
    serde_json::from_str::<Problem>(body).unwrap().name().to_owned()
}

#[tokio::test]
async fn a_body_that_is_too_long_is_rejected_before_and_while_it_is_read() {
    let (cloud, ..) = limited(Limits { body_bytes: 1000, ..Limits::default() }).await;
    let answer =
        raw(&cloud, b"PUT /v1/bundles HTTP/1.1\r\nhost: x\r\ncontent-length: 1001\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 413") && name_of(&answer) == "BodyTooLarge", "{answer}");
    // A client that is still sending must get the response instead of a broken connection.
    for _ in 0..5 {
        let rejected = problem(cloud.put(vec![0; 5_000_000]).await).await;
        assert_eq!((rejected.name(), rejected.status), ("BodyTooLarge", 413));
    }
    let mut chunked =
        b"PUT /v1/bundles HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
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
async fn slow_bodies_and_slow_heads_time_out() {
    let limits = Limits {
        body_stall: Duration::from_millis(200),
        body_time: Duration::from_millis(600),
        head_time: Duration::from_millis(300),
        ..Limits::default()
    };
    let (cloud, ..) = limited(limits).await;
    let answer =
        raw(&cloud, b"PUT /v1/bundles HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nabc").await;
    assert!(answer.starts_with("HTTP/1.1 408") && name_of(&answer) == "RequestTimeout", "{answer}");
    // A client that sends single bytes at intervals can keep a request open only for `body_time`.
    let mut stream = TcpStream::connect(cloud.address).await.unwrap();
    stream
        .write_all(b"PUT /v1/bundles HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n")
        .await
        .unwrap();
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
    // If the head of a request is incomplete or missing, the cloud closes the connection in time.
    for head in [&b"GET /healthz HTTP/1.1\r\nhost"[..], b""] {
        let answer = raw(&cloud, head).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    assert_eq!(cloud.get(paths::HEALTHZ).await.status(), 200);
    cloud.stop().await;
}

#[tokio::test]
async fn too_many_parts_or_events_are_rejected_before_hashing() {
    let (cloud, mut motes, _directory) =
        limited(Limits { upload_parts: 3, events: 100, ..Limits::default() }).await;
    let body: Vec<u8> =
        (0..4).flat_map(|epoch| motes[0].clone().seal(Star, epoch, true, &[1])).collect();
    let rejected = problem(cloud.put(body).await).await;
    assert_eq!((rejected.name(), rejected.status), ("TooManyParts", 413));
    let body =
        [motes[0].seal(Star, 1, true, &[1; 60]), motes[0].seal(Star, 2, true, &[1; 60])].concat();
    let rejected = problem(cloud.put(body).await).await;
    assert_eq!((rejected.name(), rejected.status), ("TooManyEvents", 413));
    cloud.stop().await;
}

#[tokio::test]
async fn declared_bodies_that_are_not_sent_do_not_block_others() {
    let (cloud, mut motes, _directory) = limited(Limits::default()).await;
    let mut idle = Vec::new();
    for mib in [64, 64, 42, 64, 64, 64, 64, 64] {
        let mut stream = TcpStream::connect(cloud.address).await.unwrap();
        let head = format!(
            "PUT /v1/bundles HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\nx",
            mib << 20
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        idle.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    served(&cloud, &mut motes[0], 1, 3000).await;
    drop(idle);
    cloud.stop().await;
}

/// One address opens more connections than it may have. The connections carry uploads and queries
/// whose bodies arrive very slowly. The cloud must still serve requests from another address.
#[tokio::test]
async fn slow_bodies_of_one_address_do_not_block_others() {
    let limits = Limits {
        connections: 64,
        requests: 4,
        answers: 2,
        body_stall: Duration::from_secs(2),
        ..Limits::default()
    };
    let (cloud, mut motes, _directory) = limited(limits).await;
    let mut slow = tokio::task::JoinSet::new();
    for i in 0..100 {
        let target = if i % 2 == 0 { "PUT /v1/bundles" } else { "POST /v1/query" };
        let head = format!("{target} HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n");
        slow.spawn(drip(from(STRANGER, &cloud).await, head.into_bytes()));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    for epoch in 0..5 {
        served(&cloud, &mut motes[0], epoch, 3000).await;
    }
    let start = Instant::now();
    let (mut timed_out, mut rejected) = (0, 0);
    while let Some(answer) = slow.join_next().await {
        match answer.unwrap() {
            answer if answer.starts_with("HTTP/1.1 408") => timed_out += 1,
            answer if answer.starts_with("HTTP/1.1 503") || answer.is_empty() => rejected += 1,
            answer => panic!("{answer}"),
        }
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(
        (1..=32).contains(&timed_out) && rejected >= 68,
        "at most half of the connections may time out: {timed_out} did, {rejected} were rejected"
    );
    cloud.stop().await;
}

#[tokio::test]
async fn bodies_share_bounded_memory_and_one_address_gets_at_most_half() {
    let limits = Limits {
        upload_bytes: 6 << 20,
        body_bytes: 256 << 10,
        body_stall: Duration::from_secs(2),
        ..Limits::default()
    };
    let (cloud, mut motes, _directory) = limited(limits).await;
    let mut slow = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let mut bytes =
            b"PUT /v1/bundles HTTP/1.1\r\nhost: x\r\ncontent-length: 262144\r\n\r\n".to_vec();
        bytes.resize(bytes.len() + 250_000, 0);
        slow.spawn(drip(from(STRANGER, &cloud).await, bytes));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    for epoch in 0..5 {
        served(&cloud, &mut motes[0], epoch, 40_000).await;
    }
    let (mut timed_out, mut rejected) = (0, 0);
    while let Some(answer) = slow.join_next().await {
        match answer.unwrap() {
            answer if answer.starts_with("HTTP/1.1 408") => timed_out += 1,
            answer if answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: 1") => {
                rejected += 1;
            }
            answer => panic!("{answer}"),
        }
    }
    assert!(
        timed_out <= 4 && rejected >= 16,
        "at most 4 bodies fit into half of 2 MiB: {timed_out} timed out, {rejected} were rejected"
    );
    // The memory of the rejected requests is free again.
    served(&cloud, &mut motes[0], 9, 50_000).await;
    cloud.stop().await;
}

/// The cloud reads and discards the rest of a rejected body for a moment. Without this, the sender
/// of a long body would see a broken connection instead of the error.
#[tokio::test]
async fn a_client_that_is_still_sending_receives_the_error() {
    let (roster, _) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, "read 4q9mB0xJ2kTqvYfB\nwrite Zr7Qd0cM5hU1nWxK\n").unwrap();
    let cloud =
        Running::start(directory.path(), Config { tokens: Some(tokens), ..Config::new(roster) })
            .await;
    let cases = [
        (None, moteseal_api::CBOR_SEQ, "Unauthorized", 401),
        (Some("4q9mB0xJ2kTqvYfB"), moteseal_api::CBOR_SEQ, "Forbidden", 403),
        (Some("Zr7Qd0cM5hU1nWxK"), "text/plain", "UnsupportedMediaType", 415),
    ];
    for (token, media_type, name, status) in cases {
        for _ in 0..5 {
            let mut request =
                cloud.http.put(cloud.at(paths::BUNDLES)).header("content-type", media_type);
            if let Some(token) = token {
                request = request.bearer_auth(token);
            }
            let rejected = problem(request.body(vec![0; 20_000_000]).send().await.unwrap()).await;
            assert_eq!((rejected.name(), rejected.status), (name, status));
        }
    }
    // A client that expects permission (`100-continue`) is rejected immediately and does not have
    // to send the body.
    let head = "PUT /v1/bundles HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n\
                content-length: 1000\r\n\r\n";
    let start = Instant::now();
    let answer = raw(&cloud, head.as_bytes()).await;
    assert!(
        answer.starts_with("HTTP/1.1 401") && start.elapsed() < Duration::from_secs(1),
        "{answer}"
    );
    cloud.stop().await;
}

#[tokio::test]
async fn queries_above_a_limit_are_rejected() {
    let limits =
        Limits { query_devices: 1, query_epochs: 10, query_sample: 5, ..Limits::default() };
    let (cloud, motes, _directory) = limited(limits).await;
    let device = motes[0].id;
    let all = Choice::Rate(Rate::ALL);
    let cases = [
        (query(&[device, DeviceId([1; 8])], 0, Some(1), all), "QueryTooLarge", 413),
        (query(&[device], 0, Some(11), all), "QueryTooLarge", 413),
        (query(&[device], 0, None, all), "QueryTooLarge", 413),
        (
            query(&[device], 0, Some(1), Choice::Sample { count: 6, seed: [0; 32] }),
            "QueryTooLarge",
            413,
        ),
        (query(&[DeviceId([1; 8])], 0, Some(1), all), "UnknownDevice", 404),
        (
            query(&[device], 0, Some(1), Choice::Rate("1/256".parse().unwrap())),
            "RateUnavailable",
            422,
        ),
    ];
    for (query, name, status) in cases {
        let rejected = problem(cloud.ask(&query).await).await;
        assert_eq!((rejected.name(), rejected.status), (name, status), "{}", rejected.detail);
    }
    for body in ["", "{}", "[1,2", "\u{0}", "{\"devices\":[]}"] {
        let response = cloud.http.post(cloud.at(paths::QUERY)).body(body).send().await.unwrap();
        assert_eq!(problem(response).await.name(), "BadQuery");
    }
    let typed = cloud
        .http
        .post(cloud.at(paths::QUERY))
        .header("content-type", "text/xml")
        .body("x")
        .send()
        .await
        .unwrap();
    assert_eq!(problem(typed).await.name(), "UnsupportedMediaType");
    cloud.stop().await;
}

/// Finding B7 of the review. A coded body would otherwise be read as if it were not coded, and the
/// client would get a misleading error.
#[tokio::test]
async fn a_body_with_a_content_coding_is_rejected() {
    let (cloud, mut motes, _directory) = limited(Limits::default()).await;
    let body = motes[0].seal(Star, 1, true, &[1, 2, 3]);
    let put = |path: &str, coding: &str, body: Vec<u8>| {
        cloud.http.put(cloud.at(path)).header("content-encoding", coding).body(body).send()
    };
    for coding in ["gzip", "br", "identity, zstd", "unknown", ""] {
        for path in [paths::BUNDLES, paths::MANIFESTS] {
            let rejected = problem(put(path, coding, body.clone()).await.unwrap()).await;
            assert_eq!((rejected.name(), rejected.status), ("UnsupportedMediaType", 415));
            assert!(rejected.detail.contains("Content-Encoding"), "{}", rejected.detail);
        }
    }
    assert_eq!(put(paths::BUNDLES, "Identity", body).await.unwrap().status(), 200);
    cloud.stop().await;
}

/// The cloud allows one request in progress. A forged upload that claims many events is in progress
/// until the cloud has computed the levels of the claimed events.
#[tokio::test]
async fn a_request_above_the_limit_gets_retry_after() {
    let (cloud, motes, _directory) = limited(Limits { requests: 1, ..Limits::default() }).await;
    let forged = motes[0].claiming(5, (1 << 24) - 1);
    let mut uploads = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let request = cloud.http.put(cloud.at(paths::BUNDLES)).body(forged.clone());
        uploads.spawn(async move { request.send().await.unwrap() });
    }
    let (mut detected, mut busy) = (0, 0);
    while let Some(response) = uploads.join_next().await {
        let response = response.unwrap();
        let retry_after = response.headers().get("retry-after").cloned();
        match problem(response).await.name() {
            "DigestCount" => detected += 1,
            "Unavailable" => busy += usize::from(retry_after.is_some_and(|after| after == "1")),
            name => panic!("{name}"),
        }
    }
    assert!(detected >= 1 && busy >= 1 && detected + busy == 8, "{detected} detected, {busy} busy");
    assert_eq!(cloud.get(paths::DEVICES).await.status(), 200, "the place is free again");
    cloud.stop().await;
}

#[tokio::test]
async fn a_connection_above_the_limit_gets_retry_after() {
    for (peer_percent, places) in [(100, 4), (25, 2)] {
        let (cloud, ..) =
            limited(Limits { connections: 4, peer_percent, ..Limits::default() }).await;
        let mut open = Vec::new();
        for _ in 0..places {
            open.push(from(STRANGER, &cloud).await);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut answer = String::new();
        from(STRANGER, &cloud).await.read_to_string(&mut answer).await.unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: 1"),
            "{answer}"
        );
        assert_eq!(name_of(&answer), "Unavailable");
        drop(open);
        cloud.stop().await;
    }
}

/// The answer is far longer than all buffers between the store and the client. Without
/// back-pressure, the cloud would hold it in memory. Without a minimum receive rate, a slow client
/// would keep its place for ever.
#[tokio::test]
async fn a_client_that_reads_too_slowly_loses_its_place_and_does_not_block_others() {
    let limits = Limits { answers: 2, write_stall: Duration::from_secs(1), ..Limits::default() };
    let (cloud, mut motes, _directory) = limited(limits).await;
    let events: Vec<u32> = (0..500_000).collect();
    for epoch in 0..8 {
        assert_eq!(cloud.put(motes[0].seal(Star, epoch, true, &events)).await.status(), 200);
    }
    let query = query(&[motes[0].id], 0, None, Choice::Rate(Rate::ALL));
    let body = query.to_json();
    let head = format!(
        "POST /v1/query HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    for bytes_at_once in [0, 100] {
        let mut slow = from(STRANGER, &cloud).await;
        slow.write_all(head.as_bytes()).await.unwrap();
        let mut first = [0; 12];
        slow.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        let slow = tokio::spawn(async move {
            let mut bytes = vec![0; bytes_at_once];
            while slow.read_exact(&mut bytes).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        let mut second = from(STRANGER, &cloud).await;
        second.write_all(head.as_bytes()).await.unwrap();
        second.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 429", "the other place is reserved for other addresses");
        let whole = tokio::time::timeout(Duration::from_secs(5), async {
            cloud.ask(&query).await.bytes().await.unwrap()
        });
        assert_eq!(whole.await.expect("answered in time").len() / (500_000 * 4), 8);
        let start = Instant::now();
        while first != *b"HTTP/1.1 200" {
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "the slow reader still has its place"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
            let mut again = from(STRANGER, &cloud).await;
            again.write_all(head.as_bytes()).await.unwrap();
            again.read_exact(&mut first).await.unwrap();
        }
        slow.abort();
        // The last of the new clients closes its connection. The cloud must notice this before the
        // place is free again.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    cloud.stop().await;
}

#[tokio::test]
async fn bytes_that_are_not_http_do_no_harm() {
    let (cloud, ..) =
        limited(Limits { head_time: Duration::from_millis(300), ..Limits::default() }).await;
    let long = [b"GET /".as_slice(), &[b'a'; 300_000], b" HTTP/1.1\r\n\r\n"].concat();
    let many =
        [b"GET / HTTP/1.1\r\n".to_vec(), b"x: y\r\n".repeat(1000), b"\r\n".to_vec()].concat();
    let cases: [&[u8]; 5] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0\0\0\0",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &long,
        &many,
    ];
    for bytes in cases {
        let answer = raw(&cloud, bytes).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    assert_eq!(cloud.get(paths::READYZ).await.status(), 200);
    cloud.stop().await;
}
