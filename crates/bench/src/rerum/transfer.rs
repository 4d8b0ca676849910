//! The transfer of a representation over CoAP in blocks of 64 bytes, between two endpoints of
//! `moteseal-net` in memory.

use std::net::{Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use moteseal_lab::rerum::Transfer;
use moteseal_net::coap::message::Message;
use moteseal_net::coap::{Code, Config, Endpoint, Event, Format, Output, Peer, Request, Response};

/// The exponent of blocks of 64 bytes (RFC 7959, section 2.2).
const EXPONENT: u8 = 2;
const PATH: &str = "/sensors/temperature";

/// A client and a server that have already exchanged a message, so that the server sends whole
/// blocks to the client's address.
pub(super) struct Link {
    client: Endpoint,
    server: Endpoint,
}

/// The address of the client, and that of the server.
fn peers() -> [Peer; 2] {
    [5683, 5684].map(|port| Peer::plain(SocketAddr::from((Ipv6Addr::LOCALHOST, port))))
}

impl Link {
    pub(super) fn new() -> Result<Self, String> {
        let endpoint = |seed| {
            let config = Config { block_exponent: EXPONENT, ..Config::default() };
            Endpoint::new(config, [seed; 32], Instant::now())
        };
        let mut link = Self { client: endpoint(1), server: endpoint(2) };
        link.transfer(&Bytes::from_static(b"{}"))?;
        Ok(link)
    }

    /// Fetches a representation, and counts the datagrams in both directions and the blocks.
    pub(super) fn transfer(&mut self, representation: &Bytes) -> Result<Transfer, String> {
        let (now, [client, server]) = (Instant::now(), peers());
        let request = Request::new(Code::GET, PATH);
        self.client
            .request(now, server, request, Duration::from_secs(1))
            .map_err(|error| error.to_string())?;
        let mut transfer = Transfer { blocks: 0, messages: 0, wire_bytes: 0, longest: 0 };
        loop {
            let mut is_idle = true;
            while let Some(output) = self.client.poll() {
                is_idle = false;
                match output {
                    Output::Send(_, datagram) => {
                        transfer.messages += 1;
                        transfer.wire_bytes += datagram.len();
                        transfer.longest = transfer.longest.max(datagram.len());
                        self.server.receive(now, client, &datagram);
                    }
                    Output::Event(Event::Response { response, .. }) => {
                        let response = response.map_err(|error| error.to_string())?;
                        let is_whole = response.body == *representation;
                        return is_whole.then_some(transfer).ok_or("another body".to_owned());
                    }
                    Output::Event(_) => {}
                }
            }
            while let Some(output) = self.server.poll() {
                is_idle = false;
                match output {
                    Output::Send(_, datagram) => {
                        transfer.messages += 1;
                        transfer.wire_bytes += datagram.len();
                        transfer.longest = transfer.longest.max(datagram.len());
                        let message = Message::decode(&datagram);
                        transfer.blocks +=
                            usize::from(message.is_ok_and(|message| message.code == Code::CONTENT));
                        self.client.receive(now, server, &datagram);
                    }
                    Output::Event(Event::Request { id, .. }) => {
                        let response = Response::content(Format::JSON, representation.clone());
                        self.server.respond(now, id, response);
                    }
                    Output::Event(_) => {}
                }
            }
            if is_idle {
                return Err("the transfer of a reading does not end".to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_last_block_that_is_full_is_not_followed_by_an_empty_one() {
        let mut link = Link::new().unwrap();
        for (bytes, blocks) in [(1, 1), (63, 1), (64, 1), (65, 2), (128, 2), (129, 3)] {
            let transfer = link.transfer(&vec![7; bytes].into()).unwrap();
            assert_eq!((transfer.blocks, transfer.messages), (blocks, 2 * blocks), "{bytes}");
            assert!(transfer.wire_bytes > bytes);
        }
    }
}
