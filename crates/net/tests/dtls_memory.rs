//! Measures the memory of a server with 10,000 DTLS sessions: at most 200 MB. This test is a
//! separate binary, because its global allocator counts every allocation.
#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use moteseal_core::link::LinkKey;
use moteseal_net::dtls::{
    Client, ClientConfig, Event, Limits, MAX_PLAINTEXT, Psk, Server, ServerConfig,
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

const SESSIONS: u32 = 10_000;
const SECRET: [u8; 32] = [7; 32];

/// Opens a session, and sends the largest plaintext in both directions.
fn open(server: &mut Server, number: u32, now: Instant) {
    let device = (0x6465_7669_0000_0000 | u64::from(number)).to_be_bytes();
    let psk = Psk::new(device, LinkKey::dtls_psk(&SECRET));
    let to = ([192, 0, 2, 1], 5684).into();
    let from: SocketAddr = (std::net::Ipv4Addr::from(0x0a00_0000 + number), 5684).into();
    let mut client = Client::new(ClientConfig::psk(psk), to, now).unwrap();
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let push = |event: Event<'_>, to: &mut Vec<Vec<u8>>| {
        if let Event::Send { datagram, .. } = event {
            to.push(datagram.to_vec());
        }
    };
    client.timeout(now, &mut |event| push(event, &mut up));
    let mut has_sent = false;
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

#[test]
fn ten_thousand_sessions_use_less_than_200_megabytes() {
    let now = Instant::now();
    let config = ServerConfig::new().with_psk(|_| Some(LinkKey::dtls_psk(&SECRET)));
    let mut server = Server::new(config, Limits::default(), now).unwrap();
    open(&mut server, SESSIONS, now);
    let before = HELD.load(Ordering::Relaxed);
    for number in 0..SESSIONS {
        open(&mut server, number, now);
    }
    assert_eq!(server.sessions(), 1 + SESSIONS as usize);
    let each = (HELD.load(Ordering::Relaxed) - before) / SESSIONS as usize;
    println!("{each} bytes for each session");
    assert!(each < 20_000, "{each} bytes for each session");
}
