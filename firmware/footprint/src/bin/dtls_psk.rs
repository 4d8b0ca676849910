//! Measures a handshake of DTLS 1.2 with a shared key (TLS_PSK_WITH_AES_128_CCM_8) at the client,
//! and a record in each direction, against recorded datagrams of a server.

#![no_std]
#![no_main]

use core::hint::black_box;

use moteseal_board::entry;
use moteseal_footprint::{Meter, failed};
use moteseal_research::dtls_psk::{Client, MAX_FLIGHT};

#[entry]
fn main() -> ! {
    let (mut meter, mut input) = Meter::start();
    let (identity, key, random) = (input.item(), input.item(), input.fixed::<32>());
    let flights: [&[u8]; 3] = [input.item(), input.item(), input.item()];
    let (data, record) = (input.item(), input.item());
    meter.bytes("state", size_of::<Client<'_>>());
    let mut connected = None;
    let mut flight = [0; MAX_FLIGHT];
    let mut length = 0;
    meter.measure("handshake", &mut || {
        let Some(mut client) = Client::new(identity, black_box(key), random) else {
            failed("client")
        };
        if client.start(&mut flight).is_err() {
            failed("flight 1");
        }
        for received in flights {
            match client.receive(received, &mut flight) {
                // The last flight has no answer. The answer to flight 4 remains in the buffer.
                Ok(0) => {}
                Ok(written) => length = written,
                Err(_) => failed("flight"),
            }
        }
        connected = Some(client);
    });
    let Some(mut client) = connected.filter(Client::is_connected) else { failed("handshake") };
    meter.result("flight", flight.get(..length).unwrap_or_default());
    let mut out = [0; MAX_FLIGHT];
    meter.measure("seal", &mut || match client.seal(data, &mut out) {
        Ok(written) => length = written,
        Err(_) => failed("seal"),
    });
    meter.result("record", out.get(..length).unwrap_or_default());
    // A record can be read only once.
    meter.once(moteseal_footprint::Of::Instructions, "open", &mut || match client
        .open(black_box(record), &mut out)
    {
        Ok(written) => length = written,
        Err(_) => failed("open"),
    });
    meter.result("data", out.get(..length).unwrap_or_default());
    meter.end()
}
