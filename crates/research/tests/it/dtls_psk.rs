//! The client of DTLS with a shared key completes handshakes with servers of other authors, and
//! refuses what a server may not send.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dimpl::{Config, Dtls, Output, PskResolver};
use moteseal_research::dtls_psk::{Client, DtlsError, MAX_FLIGHT, MAX_KEY, RECORD_OVERHEAD};

const IDENTITY: &[u8] = b"device-1";
const KEY: [u8; 16] = *b"0123456789abcdef";

struct Shared;

impl PskResolver for Shared {
    fn resolve(&self, identity: &[u8]) -> Option<Vec<u8>> {
        (identity == IDENTITY).then(|| KEY.to_vec())
    }
}

/// A server of the crate dimpl, in memory.
struct Server(Dtls);

impl Server {
    fn new(hint: Option<&[u8]>) -> Self {
        let config = Config::builder()
            .with_psk_server(hint.map(<[u8]>::to_vec), Arc::new(Shared))
            .dangerously_set_rng_seed(1)
            .build()
            .unwrap();
        let mut server = Dtls::new_12_psk(Arc::new(config), Instant::now());
        server.set_active(false);
        server.handle_timeout(Instant::now()).unwrap();
        Self(server)
    }

    /// Passes a datagram to the server. Returns the datagrams that it sends, and the application data
    /// that it received.
    fn receive(&mut self, datagram: &[u8]) -> (Vec<Vec<u8>>, Vec<u8>) {
        self.0.handle_packet(datagram).unwrap();
        self.output()
    }

    fn output(&mut self) -> (Vec<Vec<u8>>, Vec<u8>) {
        let (mut buffer, mut sent, mut data) = ([0; 2048], Vec::new(), Vec::new());
        loop {
            match self.0.poll_output(&mut buffer) {
                Output::Packet(datagram) => sent.push(datagram.to_vec()),
                Output::ApplicationData(bytes) => data.extend_from_slice(bytes),
                Output::Timeout(_) => return (sent, data),
                _ => {}
            }
        }
    }
}

fn client(key: &[u8]) -> Client<'_> {
    Client::new(IDENTITY, key, [5; 32]).unwrap()
}

/// Completes a handshake. `alter` may change a datagram of the server; its argument is the number of
/// the flight.
fn handshake(
    client: &mut Client<'_>,
    server: &mut Server,
    mut alter: impl FnMut(usize, &mut Vec<u8>),
) -> Result<(), DtlsError> {
    let mut out = [0; MAX_FLIGHT];
    let mut length = client.start(&mut out)?;
    for flight in [2, 4, 6] {
        let (datagrams, _) = server.receive(&out[..length]);
        assert!(!datagrams.is_empty(), "the server does not answer flight {}", flight - 1);
        for mut datagram in datagrams {
            alter(flight, &mut datagram);
            length = client.receive(&datagram, &mut out)?;
        }
    }
    Ok(())
}

#[test]
fn a_handshake_with_dimpl_succeeds_and_carries_data_in_both_directions() {
    for hint in [None, Some(&b"a hint"[..])] {
        let (mut client, mut server) = (client(&KEY), Server::new(hint));
        let mut out = [0; MAX_FLIGHT];
        assert_eq!(client.seal(b"too early", &mut out), Err(DtlsError::Unexpected));
        handshake(&mut client, &mut server, |_, _| {}).unwrap();
        assert!(client.is_connected());

        let length = client.seal(b"from the client", &mut out).unwrap();
        assert_eq!(length, b"from the client".len() + RECORD_OVERHEAD);
        assert_eq!(server.receive(&out[..length]).1, b"from the client");

        server.0.send_application_data(b"from the server").unwrap();
        let (sent, _) = server.output();
        let length = client.open(&sent[0], &mut out).unwrap();
        assert_eq!(&out[..length], b"from the server");
        assert_eq!(
            client.open(&sent[0], &mut out),
            Err(DtlsError::Unexpected),
            "a repeated record"
        );
        server.0.send_application_data(b"from the server").unwrap();
        let mut sent = server.output().0.remove(0);
        sent[25] ^= 1;
        assert_eq!(client.open(&sent, &mut out), Err(DtlsError::WrongTag));
    }
}

#[test]
fn a_flight_that_is_sent_again_is_ignored() {
    let (mut client, mut server) = (client(&KEY), Server::new(None));
    let mut out = [0; MAX_FLIGHT];
    let length = client.start(&mut out).unwrap();
    let request = server.receive(&out[..length]).0.remove(0);
    let length = client.receive(&request, &mut out).unwrap();
    let hello = server.receive(&out[..length]).0.remove(0);
    assert_eq!(client.receive(&request, &mut [0; MAX_FLIGHT]), Ok(0));
    let length = client.receive(&hello, &mut out).unwrap();
    assert_eq!(client.receive(&hello, &mut [0; MAX_FLIGHT]), Ok(0));
    let finished = server.receive(&out[..length]).0.remove(0);
    assert_eq!(client.receive(&finished, &mut out), Ok(0));
    assert!(client.is_connected());
    assert_eq!(client.receive(&finished, &mut out), Ok(0));
}

#[test]
fn a_server_with_another_key_is_refused() {
    let wrong = [1; MAX_KEY];
    let (mut client, mut server) = (client(&wrong), Server::new(None));
    let mut out = [0; MAX_FLIGHT];
    let mut length = client.start(&mut out).unwrap();
    for _ in [2, 4] {
        let datagram = server.receive(&out[..length]).0.remove(0);
        length = client.receive(&datagram, &mut out).unwrap();
    }
    // The server cannot read the client's Finished.
    let _ = server.0.handle_packet(&out[..length]);
    assert!(server.output().0.is_empty());
    assert!(!client.is_connected());
    assert!(Client::new(IDENTITY, &[0; MAX_KEY + 1], [0; 32]).is_none());
}

#[test]
fn an_altered_byte_of_the_server_never_leads_to_a_connection() {
    let mut honest = vec![Vec::new(); 7];
    let record = |flight: usize, datagram: &mut Vec<u8>| honest[flight].clone_from(datagram);
    handshake(&mut client(&KEY), &mut Server::new(None), record).unwrap();
    for flight in [4, 6] {
        for at in 0..honest[flight].len() {
            let (mut client, mut server) = (client(&KEY), Server::new(None));
            let mut out = [0; MAX_FLIGHT];
            let mut length = client.start(&mut out).unwrap();
            for number in [2, 4, 6] {
                if server.0.handle_packet(&out[..length]).is_err() {
                    break;
                }
                let Some(mut datagram) = server.output().0.into_iter().next() else { break };
                if number == flight {
                    datagram[at] ^= 1;
                }
                match client.receive(&datagram, &mut out) {
                    Ok(sent) => length = sent,
                    Err(_) => break,
                }
            }
            let harmless = is_unauthenticated(&honest[flight], at);
            assert!(!client.is_connected() || harmless, "flight {flight}, byte {at}");
        }
    }
}

/// Returns whether nothing authenticates a byte of a datagram, and nothing depends on it: the minor
/// version and the sequence number of unprotected records, and the content of ChangeCipherSpec.
fn is_unauthenticated(datagram: &[u8], at: usize) -> bool {
    let mut start = 0;
    while start < datagram.len() {
        let header = &datagram[start..start + 13];
        let is_protected = header[4] > 0;
        let in_header = at == start + 2 || (start + 5..start + 11).contains(&at);
        if !is_protected && (in_header || (header[0] == 20 && at == start + 13)) {
            return true;
        }
        start += 13 + usize::from(u16::from_be_bytes([header[11], header[12]]));
    }
    false
}

#[test]
fn a_server_that_selects_what_was_not_offered_is_refused() {
    // In flight 4, a record's header of 13 bytes and a message's header of 12 bytes come before the
    // version, the random, an empty session identifier, the suite and the compression.
    for (place, value) in [(26, 0xfc), (25 + 2 + 32 + 1, 0xc1), (25 + 2 + 32 + 1 + 2, 1)] {
        let alter = |flight: usize, datagram: &mut Vec<u8>| {
            if flight == 4 {
                datagram[place] = value;
            }
        };
        let result = handshake(&mut client(&KEY), &mut Server::new(None), alter);
        assert_eq!(result, Err(DtlsError::NotOffered), "byte {place}");
    }
    let without_extension = |flight: usize, datagram: &mut Vec<u8>| {
        if flight == 4 {
            let name = datagram.windows(4).position(|name| name == [0, 23, 0, 0]).unwrap();
            datagram[name + 1] = 24;
        }
    };
    let result = handshake(&mut client(&KEY), &mut Server::new(None), without_extension);
    assert_eq!(result, Err(DtlsError::NotOffered));
}

#[test]
fn malformed_fragmented_and_early_messages_are_refused() {
    let mut out = [0; MAX_FLIGHT];
    let started = || {
        let mut client = client(&KEY);
        client.start(&mut [0; MAX_FLIGHT]).unwrap();
        client
    };
    // A record with one message: kind, sequence number, stated and actual length.
    let record = |kind: u8, sequence: u8, stated: u8, body: &[u8]| {
        let length = u8::try_from(body.len()).unwrap();
        let header = [22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12 + length];
        let message = [kind, 0, 0, stated, 0, sequence, 0, 0, 0, 0, 0, length];
        [&header[..], &message, body].concat()
    };
    for (datagram, error) in [
        (vec![22], DtlsError::Malformed),
        (record(3, 0, 3, &[0xfe, 0xff, 9]), DtlsError::Malformed),
        (record(3, 0, 5, &[0xfe, 0xff, 1]), DtlsError::Incomplete),
        (record(3, 1, 3, &[0xfe, 0xff, 0]), DtlsError::Incomplete),
        (record(20, 0, 12, &[0; 12]), DtlsError::Unexpected),
        (record(2, 0, 2, &[0xfe, 0xfd]), DtlsError::Malformed),
        (vec![21, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 40], DtlsError::Alert(40)),
    ] {
        assert_eq!(started().receive(&datagram, &mut out), Err(error), "{datagram:x?}");
    }
    assert_eq!(client(&KEY).start(&mut [0; 60]), Err(DtlsError::BufferTooSmall));
    for length in 0..=255 {
        // Any prefix of a valid datagram, and a datagram of a single repeated byte, is an error or
        // is ignored.
        let _ = started().receive(&vec![length as u8; length], &mut out);
    }
}

/// Starts `openssl s_server` on a free port of the loopback interface, and exchanges one message in
/// each direction.
#[test]
fn a_handshake_with_openssl_succeeds_and_carries_data_in_both_directions() {
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut server = Command::new("openssl")
        .args(["s_server", "-dtls1_2", "-nocert", "-listen", "-quiet"])
        .args(["-accept", &format!("127.0.0.1:{free}")])
        .args(["-psk_identity", "device-1", "-psk", "30313233343536373839616263646566"])
        .args(["-cipher", "PSK-AES128-CCM8@SECLEVEL=0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl does not start");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", free)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();

    let mut client = client(&KEY);
    let (mut out, mut datagram) = ([0; MAX_FLIGHT], [0; 2048]);
    let mut length = client.start(&mut out).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut send = true;
    while !client.is_connected() {
        assert!(Instant::now() < deadline, "openssl does not complete the handshake");
        // An error means that the server does not listen yet.
        if send && socket.send(&out[..length]).is_err() {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        match socket.recv(&mut datagram) {
            Ok(received) => {
                let mut next = [0; MAX_FLIGHT];
                let written = client.receive(&datagram[..received], &mut next).unwrap();
                send = written > 0;
                if send {
                    (out, length) = (next, written);
                }
            }
            // Nothing came: send the flight again.
            Err(_) => {
                send = true;
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    let sent = client.seal(b"from the client\n", &mut out).unwrap();
    socket.send(&out[..sent]).unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "from the client\n");

    server.stdin.as_mut().unwrap().write_all(b"from the server\n").unwrap();
    let received = loop {
        assert!(Instant::now() < deadline, "openssl sends nothing");
        if let Ok(received) = socket.recv(&mut datagram) {
            break received;
        }
    };
    let length = client.open(&datagram[..received], &mut out).unwrap();
    assert_eq!(&out[..length], b"from the server\n");
    server.kill().unwrap();
    server.wait().unwrap();
}
