//! One server and its clients on a simulated network with a simulated clock.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use moteseal_core::link::LinkKey;
use moteseal_net::dtls::{
    Client, ClientConfig, DtlsError, Event, Identity, Limits, Psk, Server, ServerConfig,
};

/// The link secret of all devices of the tests.
pub(super) const SECRET: [u8; 32] = [7; 32];
pub(crate) const DEVICE: [u8; 8] = *b"device-1";
/// The time of a datagram on its way.
pub(super) const DELAY: Duration = Duration::from_millis(20);

pub(super) fn server_address() -> SocketAddr {
    ([192, 0, 2, 1], 5684).into()
}

pub(super) fn device_address(number: usize) -> SocketAddr {
    ([198, 51, 100, (number / 256) as u8], 1000 + (number % 256) as u16).into()
}

/// A server that knows the devices whose id starts with `device`.
pub(crate) fn psk_config() -> ServerConfig {
    ServerConfig::new().with_psk(|device| {
        let key = LinkKey::dtls_psk(&SECRET);
        device.starts_with(b"device").then_some(key)
    })
}

pub(crate) fn psk_client(device: [u8; 8]) -> ClientConfig {
    ClientConfig::psk(Psk::new(device, LinkKey::dtls_psk(&SECRET)))
}

/// An event without its addresses.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Seen {
    Opened(Identity),
    Data(Vec<u8>),
    Closed(DtlsError),
    Refused(DtlsError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    Up,
    Down,
}

/// The faults of the network, in 1/100.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) loss: u64,
    pub(super) duplication: u64,
    /// The share of datagrams that take up to ten times as long.
    pub(super) reordering: u64,
}

pub(super) struct Device {
    pub(super) client: Client,
    pub(super) address: SocketAddr,
    pub(super) seen: Vec<Seen>,
}

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) server: Server,
    pub(super) devices: Vec<Device>,
    pub(super) at_server: Vec<(SocketAddr, Seen)>,
    /// The datagrams on their way, by time of arrival.
    in_flight: BTreeMap<(Instant, usize), (Way, SocketAddr, Vec<u8>)>,
    /// All datagrams that were sent.
    pub(super) sent: Vec<(Way, Vec<u8>)>,
    /// The numbers of the datagrams in `sent` that are lost.
    pub(super) lost: Vec<usize>,
    pub(super) faults: Faults,
    random: u64,
}

impl World {
    pub(super) fn new(config: ServerConfig, limits: Limits) -> Self {
        let now = Instant::now();
        Self {
            now,
            server: Server::new(config, limits, now).unwrap(),
            devices: Vec::new(),
            at_server: Vec::new(),
            in_flight: BTreeMap::new(),
            sent: Vec::new(),
            lost: Vec::new(),
            faults: Faults::default(),
            random: 1,
        }
    }

    pub(super) fn with_faults(mut self, faults: Faults, seed: u64) -> Self {
        (self.faults, self.random) = (faults, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        self
    }

    pub(super) fn add(&mut self, config: ClientConfig) -> usize {
        let address = device_address(self.devices.len());
        let client = Client::new(config, server_address(), self.now).unwrap();
        self.devices.push(Device { client, address, seen: Vec::new() });
        self.devices.len() - 1
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.draw() % 100 < percent
    }

    fn draw(&mut self) -> u64 {
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn post(&mut self, way: Way, peer: SocketAddr, datagram: Vec<u8>) {
        let number = self.sent.len();
        self.sent.push((way, datagram.clone()));
        if self.lost.contains(&number) || self.chance(self.faults.loss) {
            return;
        }
        let copies = 1 + u32::from(self.chance(self.faults.duplication));
        for copy in 0..copies {
            let slow = if self.chance(self.faults.reordering) { self.draw() % 10 } else { 0 };
            let arrival = self.now + DELAY * (1 + slow as u32 + copy);
            let key = (arrival, self.sent.len() * 2 + copy as usize);
            self.in_flight.insert(key, (way, peer, datagram.clone()));
        }
    }

    /// Runs a call of the server.
    pub(super) fn at_server<R>(
        &mut self,
        run: impl FnOnce(&mut Server, Instant, &mut dyn FnMut(Event<'_>)) -> R,
    ) -> R {
        let mut datagrams = Vec::new();
        let seen = &mut self.at_server;
        let result = run(&mut self.server, self.now, &mut |event| match event {
            Event::Send { to, datagram } => datagrams.push((to, datagram.to_vec())),
            Event::Opened { peer, identity, .. } => seen.push((peer, Seen::Opened(identity))),
            Event::Data { peer, bytes, .. } => seen.push((peer, Seen::Data(bytes.to_vec()))),
            Event::Closed { peer, why, .. } => seen.push((peer, Seen::Closed(why))),
            Event::Refused { peer, why, .. } => seen.push((peer, Seen::Refused(why))),
            _ => {}
        });
        for (to, datagram) in datagrams {
            self.post(Way::Down, to, datagram);
        }
        result
    }

    /// Runs a call of a client.
    pub(super) fn at_client<R>(
        &mut self,
        device: usize,
        run: impl FnOnce(&mut Client, Instant, &mut dyn FnMut(Event<'_>)) -> R,
    ) -> R {
        let mut datagrams = Vec::new();
        let Device { client, seen, address } = &mut self.devices[device];
        let address = *address;
        let result = run(client, self.now, &mut |event| match event {
            Event::Send { datagram, .. } => datagrams.push(datagram.to_vec()),
            Event::Opened { identity, .. } => seen.push(Seen::Opened(identity)),
            Event::Data { bytes, .. } => seen.push(Seen::Data(bytes.to_vec())),
            Event::Closed { why, .. } => seen.push(Seen::Closed(why)),
            Event::Refused { why, .. } => seen.push(Seen::Refused(why)),
            _ => {}
        });
        for datagram in datagrams {
            self.post(Way::Up, address, datagram);
        }
        result
    }

    /// Runs until nothing is on its way and no timer is due within `time`.
    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let arrival = self.in_flight.keys().next().map(|(at, _)| *at);
            let server = self.server.next_timeout();
            let clients = self.devices.iter().filter_map(|device| device.client.next_timeout());
            let Some(next) = arrival.into_iter().chain(server).chain(clients).min() else { break };
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            if arrival == Some(next) {
                let (_, (way, peer, datagram)) = self.in_flight.pop_first().unwrap();
                match way {
                    Way::Up => {
                        self.at_server(|server, now, out| {
                            server.receive(now, peer, &datagram, out);
                        });
                    }
                    Way::Down => {
                        let device = self.devices.iter().position(|of| of.address == peer);
                        let Some(device) = device else { continue };
                        self.at_client(device, |client, now, out| {
                            client.receive(now, &datagram, out);
                        });
                    }
                }
                continue;
            }
            if server == Some(next) {
                self.at_server(|server, now, out| server.timeout(now, out));
            }
            for device in 0..self.devices.len() {
                if self.devices[device].client.next_timeout().is_some_and(|at| at <= self.now) {
                    self.at_client(device, |client, now, out| client.timeout(now, out));
                }
            }
        }
        self.now = end;
    }

    /// Runs for the time of an undisturbed handshake.
    pub(super) fn settle(&mut self) {
        self.run_for(DELAY * 10);
    }

    pub(super) fn send_up(&mut self, device: usize, text: &[u8]) {
        self.at_client(device, |client, now, out| client.send(now, text, out)).unwrap();
    }

    pub(super) fn send_down(&mut self, device: usize, text: &[u8]) {
        let to = self.devices[device].address;
        self.at_server(|server, now, out| server.send(now, to, text, out)).unwrap();
    }

    /// What the server reported about a device.
    pub(super) fn of(&self, device: usize) -> Vec<Seen> {
        let address = self.devices[device].address;
        let of = self.at_server.iter().filter(|(from, _)| *from == address);
        of.map(|(_, seen)| seen.clone()).collect()
    }

    /// Opens a session of a new device.
    pub(super) fn open(&mut self, config: ClientConfig) -> usize {
        let device = self.add(config);
        self.settle();
        assert!(matches!(self.devices[device].seen[..], [Seen::Opened(_)]), "not opened");
        device
    }
}

/// The plaintexts among some events.
pub(super) fn data(seen: &[Seen]) -> Vec<&[u8]> {
    seen.iter()
        .filter_map(|seen| if let Seen::Data(bytes) = seen { Some(&bytes[..]) } else { None })
        .collect()
}
