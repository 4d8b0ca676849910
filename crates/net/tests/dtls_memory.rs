//! Measures the memory of a server with 10,000 DTLS sessions: at most 200 MB. This test is a
//! separate binary, because its global allocator counts every allocation.
#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime};

use moteseal_core::link::LinkKey;
use moteseal_net::dtls::{
    Authority, Certificates, Client, ClientConfig, Event, Limits, MAX_PLAINTEXT, Psk, Server,
    ServerConfig,
};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed unchanged to the system's allocator; the counter does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller guarantees that the layout is valid.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller guarantees that `alloc` returned this pointer for this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SECRET: [u8; 32] = [7; 32];
/// The maximum number of sessions of one device.
const PER_DEVICE: u32 = 8;

fn address(number: u32) -> SocketAddr {
    (std::net::Ipv4Addr::from(0x0a00_0000 + number), 5684).into()
}

/// Opens a session from each address, and sends the largest plaintext in both directions.
fn open(server: &mut Server, client: &mut Client, addresses: std::ops::Range<u32>) {
    let now = Instant::now();
    let push = |event: Event<'_>, to: &mut Vec<Vec<u8>>| {
        if let Event::Send { datagram, .. } = event {
            to.push(datagram.to_vec());
        }
    };
    for from in addresses.map(address) {
        let (mut up, mut down, mut has_sent) = (Vec::new(), Vec::new(), false);
        client.connect(now, &mut |event| push(event, &mut up));
        while !up.is_empty() || !down.is_empty() {
            for datagram in std::mem::take(&mut up) {
                server.receive(now, from, &datagram, &mut |event| push(event, &mut down));
            }
            for datagram in std::mem::take(&mut down) {
                client.receive(now, &datagram, &mut |event| push(event, &mut up));
            }
            if client.session().is_some() && !has_sent {
                has_sent = true;
                let text = [1; MAX_PLAINTEXT];
                client.send(now, &text, &mut |event| push(event, &mut up)).unwrap();
                server.send(now, from, &text, &mut |event| push(event, &mut down)).unwrap();
            }
        }
        assert!(has_sent);
    }
}

fn of_each(kind: &str, sessions: u32, run: impl FnOnce(&mut Server), server: &mut Server) {
    let before = HELD.load(Ordering::Relaxed);
    let already = server.sessions();
    run(server);
    assert_eq!(server.sessions() - already, sessions as usize);
    let each = (HELD.load(Ordering::Relaxed) - before) / sessions as usize;
    println!("{kind}: {each} bytes for each session");
    assert!(each < 20_000, "{kind}: {each} bytes for each session");
}

#[test]
fn ten_thousand_sessions_use_less_than_200_megabytes() {
    let now = Instant::now();
    let to: SocketAddr = ([192, 0, 2, 1], 5684).into();
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    let own = rcgen::KeyPair::generate().unwrap();
    let names = vec!["192.0.2.1".to_owned()];
    let signed = rcgen::CertificateParams::new(names).unwrap().self_signed(&own).unwrap();
    std::fs::write(path("own.pem"), signed.pem()).unwrap();
    std::fs::write(path("own.key"), own.serialize_pem()).unwrap();
    let certificates = || {
        let authority = Authority::load(&path("own.pem"), SystemTime::now).unwrap();
        Certificates::load(&path("own.pem"), &path("own.key"), authority).unwrap()
    };
    let config = ServerConfig::new()
        .with_psk(|_| Some(LinkKey::dtls_psk(&SECRET)))
        .with_certificates(certificates());
    let mut server = Server::new(config, Limits::default(), now).unwrap();
    let with_keys = |server: &mut Server| {
        for first in (0..10_000).step_by(PER_DEVICE as usize) {
            let psk = Psk::new(u64::from(first).to_be_bytes(), LinkKey::dtls_psk(&SECRET));
            let mut client = Client::new(ClientConfig::psk(psk), to, now).unwrap();
            open(server, &mut client, first..first + PER_DEVICE);
        }
    };
    of_each("pre-shared keys", 10_000, with_keys, &mut server);
    let with_certificates = |server: &mut Server| {
        let config = ClientConfig::certificates(certificates(), "192.0.2.1").unwrap();
        let mut client = Client::new(config, to, now).unwrap();
        open(server, &mut client, 20_000..21_000);
    };
    of_each("certificates", 1000, with_certificates, &mut server);
}
