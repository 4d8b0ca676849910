//! A cloud that sends a few bytes and then nothing, while the connection stays open.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use crate::support::{Group, everything, nowhere};
use moteseal_client::{Client as Data, Error};
use moteseal_net::{Client, Options};

/// Starts a server that sends `body` as the beginning of one response and then nothing. The
/// connection stays open until the client closes it.
fn silent_after(body: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/cbor-seq\r\n\r\n").unwrap();
        stream.write_all(body).unwrap();
        let _ = stream.read(&mut [0]);
    });
    url
}

#[tokio::test]
async fn rejects_invalid_bytes_before_more_bytes_arrive() {
    let group = Group::new();
    // No stream item starts with this byte, so the response must be rejected.
    let client = Client::new(&silent_after(&[0xff]), &Options::default()).unwrap();
    let query = group.query(&["mote-1"], None, everything());
    let mut sink = nowhere();
    let asked = Data::new(&client, &group.roster).query(&query).run(&mut sink);
    // A client that waits for more bytes before it parses would hang here.
    let outcome = tokio::time::timeout(Duration::from_secs(10), asked)
        .await
        .expect("the client must not wait for more bytes");
    match outcome {
        Err(Error::Rejected(refused)) => assert_eq!(refused.name(), "NonCanonical"),
        outcome => panic!("{outcome:?}"),
    }
}
