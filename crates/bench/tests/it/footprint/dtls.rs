//! The datagrams of a server of DTLS, recorded from a handshake between the crate dimpl and the client
//! that the program `dtls_psk` measures.

use std::sync::Arc;
use std::time::Instant;

use dimpl::{Config, Dtls, Output, PskResolver};
use moteseal_research::dtls_psk::{Client, MAX_FLIGHT};

use super::inputs::List;
use super::program::Program;

const IDENTITY: &[u8] = b"0102030405060708";
const KEY: [u8; 32] = [8; 32];
const RANDOM: [u8; 32] = [9; 32];
/// What the client sends and the server answers: an unsigned reading of 46 bytes.
const DATA: &[u8; 46] = br#"{"measurement_id":42,"signed_chip_temp":27800}"#;

struct Shared;

impl PskResolver for Shared {
    fn resolve(&self, identity: &[u8]) -> Option<Vec<u8>> {
        (identity == IDENTITY).then(|| KEY.to_vec())
    }
}

/// A recorded connection.
pub(crate) struct Recorded {
    /// Flights 2, 4 and 6, each of one datagram.
    server: [Vec<u8>; 3],
    /// Flight 5 of the client.
    flight: Vec<u8>,
    /// A record of the client, and the server's answer.
    record: Vec<u8>,
    answer: Vec<u8>,
}

impl Recorded {
    /// Records a handshake, one record of the client and one of the server.
    pub(crate) fn new() -> Self {
        let config = Config::builder().with_psk_server(None, Arc::new(Shared)).build().unwrap();
        let mut server = Dtls::new_12_psk(Arc::new(config), Instant::now());
        server.set_active(false);
        server.handle_timeout(Instant::now()).unwrap();
        let mut client = Client::new(IDENTITY, &KEY, RANDOM).unwrap();
        let mut out = [0; MAX_FLIGHT];
        let mut length = client.start(&mut out).unwrap();
        let mut flight = Vec::new();
        let flights = [2, 4, 6].map(|_| {
            flight = out[..length].to_vec();
            server.handle_packet(&flight).unwrap();
            let datagram = sent(&mut server);
            length = client.receive(&datagram, &mut out).unwrap();
            datagram
        });
        assert!(client.is_connected());
        let length = client.seal(DATA, &mut out).unwrap();
        server.handle_packet(&out[..length]).unwrap();
        server.send_application_data(DATA).unwrap();
        let answer = sent(&mut server);
        Self { server: flights, flight, record: out[..length].to_vec(), answer }
    }

    pub(crate) fn input(&self) -> Vec<u8> {
        let list = List::default().item(IDENTITY).item(&KEY).item(&RANDOM);
        let list = self.server.iter().fold(list, |list, flight| list.item(flight));
        list.item(DATA).item(&self.answer).0
    }

    /// Checks that the program sent the same flight as the client on this host, and sent and read
    /// the same data. The program runs each step twice, so its record is the second one.
    pub(crate) fn check(&self, run: &Program) {
        run.expect("flight", &self.flight);
        assert_eq!(run.result("record").len(), self.record.len());
        run.expect("data", DATA);
    }
}

/// Returns the one datagram that a server sends.
fn sent(server: &mut Dtls) -> Vec<u8> {
    let (mut buffer, mut sent) = ([0; 2048], Vec::new());
    loop {
        match server.poll_output(&mut buffer) {
            Output::Packet(datagram) => sent.push(datagram.to_vec()),
            Output::Timeout(_) => break,
            _ => {}
        }
    }
    assert_eq!(sent.len(), 1);
    sent.remove(0)
}
