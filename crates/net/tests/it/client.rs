//! Tests the client over real sockets, with clouds that are busy, reject a request, close the
//! connection early or do not run, and with a service that is not a cloud.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use moteseal_net::replica::Replica;
use moteseal_net::{Client, Credential, NetError, Options, Retry, Token};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Mutex;

/// A server that sends one of the `answers` on each connection, and then closes the connection. It
/// records the requests.
struct Script {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Script {
    async fn start(answers: Vec<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heads = Arc::new(Mutex::new(Vec::new()));
        let kept = heads.clone();
        tokio::spawn(async move {
            for answer in answers {
                let (stream, _) = listener.accept().await.unwrap();
                kept.lock().await.push(serve(stream, &answer).await);
            }
        });
        Self { url, heads }
    }

    fn client(&self) -> Client {
        Client::new(&self.url, &quick()).unwrap()
    }
}

/// Reads one request, writes the answer unchanged, and closes the connection. Returns the head and
/// the body of the request.
async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &[u8]) -> String {
    let mut request = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_lowercase().strip_prefix("content-length: ")?.parse().ok()
            });
            if body.len() >= length.unwrap_or(0) {
                stream.write_all(answer).await.unwrap();
                let _ = stream.shutdown().await;
                return text;
            }
        }
        let read = stream.read(&mut chunk).await.unwrap();
        if read == 0 {
            return text;
        }
        request.extend_from_slice(&chunk[..read]);
    }
}

/// Returns a response with status 503 and a problem document.
fn unavailable(name: &str, detail: &str) -> Vec<u8> {
    let problem = format!(r#"{{"type":"urn:moteseal:problem:{name}","detail":"{detail}"}}"#);
    answer("503 Service Unavailable", "Content-Type: application/problem+json\r\n", &problem)
}

fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn quick() -> Options {
    let retry = Retry {
        attempts: 3,
        first_wait: Duration::from_millis(10),
        longest_wait: Duration::from_secs(2),
    };
    Options { idle_timeout: Duration::from_secs(5), retry, ..Options::default() }
}

#[tokio::test]
async fn retries_a_busy_cloud_after_the_requested_time_with_the_same_body() {
    let busy = answer("503 Service Unavailable", "retry-after: 1\r\n", "");
    let cloud =
        Script::start(vec![busy, answer("200 OK", "content-type: application/json\r\n", "{}")])
            .await;
    let start = Instant::now();
    let put = cloud
        .client()
        .put("/v1/bundles", "application/cbor-seq", Bytes::from_static(b"body"))
        .await
        .unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1), "the client waits for the requested time");
    assert_eq!(put.expect("application/json").unwrap().bytes(10).await.unwrap(), b"{}");
    let heads = cloud.heads.lock().await;
    assert_eq!(heads.len(), 2);
    assert!(
        heads.iter().all(|head| head.starts_with("PUT /v1/bundles HTTP/1.1\r\n")
            && head.ends_with("\r\n\r\nbody"))
    );
}

#[tokio::test]
async fn gives_up_on_a_cloud_that_stays_busy_and_reports_it_as_unreachable() {
    let busy = answer("429 Too Many Requests", "", "");
    let cloud = Script::start(vec![busy.clone(), busy.clone(), busy]).await;
    let error = cloud.client().get("v1/devices").await.unwrap_err();
    assert!(matches!(error, NetError::Busy { status: 429, attempts: 3, .. }), "{error}");
    assert!(error.is_unreachable() && error.to_string().contains(&cloud.url), "{error}");
    assert!(error.to_string().ends_with("last cause: none given"), "{error}");
}

#[tokio::test]
async fn a_cloud_that_stays_busy_is_reported_with_its_last_reason() {
    let busy = ["the stream does not answer", "the stream is full"];
    let busy = busy.map(|detail| unavailable("Unavailable", detail));
    let cloud = Script::start([&busy[..1], &busy].concat()).await;
    let error = cloud.client().get("v1/devices").await.unwrap_err();
    assert!(error.to_string().ends_with("last cause: the stream is full"), "{error}");
    assert!(error.to_string().contains("responded 503 to 3 attempts; try again"), "{error}");
    assert_eq!(error.name(), "Busy");
    assert!(matches!(error, NetError::Busy { problem: Some(name), .. } if name == "Unavailable"));
}

#[tokio::test]
async fn a_fresh_summary_waits_while_the_store_is_read_but_not_for_a_store_that_fails() {
    let reading = vec![unavailable("SummaryNotReady", "the store is being read"); 3];
    let failing = vec![unavailable("Unavailable", "no node of Cassandra answers"); 6];
    let cloud = Script::start([reading, failing].concat()).await;
    let error = Replica::new(cloud.client()).fresh().summary(None).await.unwrap_err();
    assert!(error.to_string().ends_with("last cause: no node of Cassandra answers"), "{error}");
    // It is asked once more, since a cloud that was reading may be busy for a moment.
    assert_eq!(cloud.heads.lock().await.len(), 9);
}

#[tokio::test]
async fn reports_a_problem_by_its_name_on_one_line() {
    let body = r#"{"type":"urn:moteseal:problem:UnknownDevice","title":"t","status":404,"detail":"no\u001b[31m such\ndevice"}"#;
    let problem =
        answer("404 Not Found", "content-type: application/problem+json; charset=utf-8\r\n", body);
    let error = Script::start(vec![problem]).await.client().get("v1/devices").await.unwrap_err();
    assert_eq!((error.name(), error.is_unreachable()), ("UnknownDevice", false));
    let text = error.to_string();
    assert!(
        text.contains("404: no [31m such device") && !text.chars().any(char::is_control),
        "{text:?}"
    );
}

#[tokio::test]
async fn reports_a_service_that_is_not_a_cloud() {
    let page = answer("200 OK", "content-type: text/html\r\n", "<p>hello</p>");
    let reply = Script::start(vec![page]).await.client().get("v1/devices").await.unwrap();
    assert_eq!(reply.expect("application/json").unwrap_err().name(), "NotACloud");
    // A problem whose name is not in the contract, and a redirect. Following the redirect would
    // send the token to another service.
    let nameless = answer(
        "400 Bad Request",
        "content-type: application/problem+json\r\n",
        r#"{"type":"about:<blank>"}"#,
    );
    let redirect = answer("302 Found", "location: http://127.0.0.1:9/\r\n", "");
    for strange in [nameless, redirect] {
        let error =
            Script::start(vec![strange]).await.client().get("v1/devices").await.unwrap_err();
        assert_eq!(error.name(), "NotACloud", "{error}");
    }
    let long = answer("200 OK", "", &"x".repeat(100));
    let error = Script::start(vec![long])
        .await
        .client()
        .get("x")
        .await
        .unwrap()
        .bytes(99)
        .await
        .unwrap_err();
    assert_eq!(error.name(), "NotACloud", "{error}");
}

#[tokio::test]
async fn reports_a_truncated_response_as_interrupted() {
    let torn = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this".to_vec();
    let error = Script::start(vec![torn])
        .await
        .client()
        .get("x")
        .await
        .unwrap()
        .bytes(1000)
        .await
        .unwrap_err();
    assert!(error.name() == "Interrupted" && error.is_unreachable(), "{error}");
}

#[tokio::test]
async fn a_silent_service_causes_a_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let options = Options { idle_timeout: Duration::from_millis(200), ..quick() };
    let asked =
        tokio::spawn(
            async move { Client::new(&url, &options).unwrap().get("x").await.map(|_| ()) },
        );
    let (_silent, _) = listener.accept().await.unwrap();
    let error = asked.await.unwrap().unwrap_err();
    assert!(
        error.name() == "Unreachable" && error.to_string().contains("no response in time"),
        "{error}"
    );
}

/// Finding B7 of the review. Informational responses (RFC 9110, section 15.2) prove that a service
/// is alive, but a client must not wait for the final response for ever.
#[tokio::test]
async fn endless_informational_responses_do_not_extend_the_timeout() {
    for pause in [Duration::ZERO, Duration::from_millis(20)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
            while stream.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n").await.is_ok() {
                tokio::time::sleep(pause).await;
            }
        });
        let options = Options { idle_timeout: Duration::from_millis(300), ..quick() };
        let client = Client::new(&url, &options).unwrap();
        let asked = tokio::time::timeout(Duration::from_secs(10), client.get("x"));
        let error = asked.await.expect("in time").map(|_| ()).unwrap_err();
        assert!(
            error.name() == "Unreachable" && error.to_string().contains("no response in time"),
            "{error}"
        );
        server.abort();
    }
}

#[tokio::test]
async fn an_address_without_a_listener_is_unreachable() {
    // This port was free a moment ago, so nothing listens on it.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error =
        Client::new(&format!("http://{free}"), &quick()).unwrap().get("x").await.unwrap_err();
    assert!(error.name() == "Unreachable" && error.is_unreachable(), "{error}");
    assert!(error.to_string().contains("connection refused"), "{error}");
}

#[tokio::test]
async fn trusts_only_the_authorities_of_the_file_and_sends_the_token() {
    let folder = std::env::temp_dir().join(format!("moteseal-net-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (ca, token, junk) = (folder.join("ca.pem"), folder.join("token"), folder.join("junk.pem"));
    std::fs::write(&ca, certified.cert.pem()).unwrap();
    std::fs::write(&token, "sesame\n").unwrap();
    std::fs::write(&junk, "no certificate").unwrap();

    let key =
        rustls::pki_types::PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = config
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let served = tokio::spawn(async move {
        let mut heads = Vec::new();
        while heads.is_empty() {
            let (stream, _) = listener.accept().await.unwrap();
            // If the client does not trust the certificate, it aborts the handshake.
            if let Ok(stream) = acceptor.accept(stream).await {
                heads.push(serve(stream, &answer("200 OK", "", "hello")).await);
            }
        }
        heads
    });

    let stranger = Client::new(&url, &quick()).unwrap().get("x").await.unwrap_err();
    assert!(stranger.name() == "Unreachable" && stranger.to_string().contains(&url), "{stranger}");
    let error = Client::new(&url, &Options { ca: Some(junk.clone()), ..quick() }).unwrap_err();
    assert!(error.name() == "BadFile" && error.to_string().contains("junk.pem"), "{error}");

    let credential = Some(Credential::Token(Token::read(&token).unwrap()));
    let options = Options { ca: Some(ca), credential, ..quick() };
    let reply = Client::new(&url, &options).unwrap().get("x").await.unwrap();
    assert_eq!(reply.bytes(100).await.unwrap(), b"hello");
    let head = served.await.unwrap().remove(0);
    assert!(head.contains("\r\nauthorization: Bearer sesame\r\n"), "{head}");
    std::fs::remove_dir_all(&folder).unwrap();
}
