//! A cloud that sends a little and then falls silent, with its connection open.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use crate::support::{Group, everything, nowhere};
use moteseal_client::{Client as Data, Error};
use moteseal_net::{Client, Options};

/// Gives one answer, of which these bytes come and no end; the connection lasts as long as the
/// caller has one.
fn silent_behind(body: &'static [u8]) -> String {
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
async fn what_came_is_refused_though_no_more_comes() {
    let group = Group::new();
    // A byte that no item starts with.
    let client = Client::new(&silent_behind(&[0xff]), &Options::default()).unwrap();
    let query = group.query(&["mote-1"], None, everything());
    let mut sink = nowhere();
    let asked = Data::new(&client, &group.roster).query(&query).run(&mut sink);
    // Whoever waits for a whole piece waits until the connection is given up.
    let outcome = tokio::time::timeout(Duration::from_secs(10), asked)
        .await
        .expect("it waits for what does not come");
    match outcome {
        Err(Error::Rejected(refused)) => assert_eq!(refused.name(), "NonCanonical"),
        outcome => panic!("{outcome:?}"),
    }
}
