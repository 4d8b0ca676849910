//! Tests the serial line over real transports: TCP on the loopback interface, a pseudo-terminal,
//! and a proxy that loses, changes and repeats bytes.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use moteseal_core::DeviceId;
use moteseal_net::link::{State, until_up};
use moteseal_net::mqtt::Backoff;
use moteseal_net::serial::{Event, Options, SerialLine};
use moteseal_serial::{
    Binding, Channel, Line, MAX_BODY, PacketError, Received, Side, Stuffer, Timing, room,
};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The timeout for steps that must not fail.
const LONG: Duration = Duration::from_secs(60);
const MOTE: DeviceId = DeviceId(*b"device 1");
/// Repeats packets early and often, so that the tests are fast although many packets are lost.
const QUICK: Timing = Timing { repeat_ms: 20, tries: 200 };

fn options(address: &str) -> Options {
    let backoff = Backoff { first: Duration::from_millis(10), longest: Duration::from_millis(50) };
    Options { timing: Some(QUICK), backoff, ..Options::gateway(address) }
}

fn mote_options(address: &str) -> Options {
    Options { side: Side::Mote(MOTE), ..options(address) }
}

/// Starts a proxy between the first two clients that connect to it. It forwards all bytes after
/// `change` has altered them. Returns the proxy's address.
async fn joined(change: fn(&mut u64, &mut Vec<u8>)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let ends = [listener.accept().await.unwrap().0, listener.accept().await.unwrap().0];
        ends.iter().for_each(|end| end.set_nodelay(true).unwrap());
        let [(a_in, a_out), (b_in, b_out)] = ends.map(TcpStream::into_split);
        let ways = [(a_in, b_out, 7_u64), (b_in, a_out, 8)].map(
            |(mut from, mut to, mut state)| async move {
                let mut chunk = [0; 512];
                while let Ok(bytes @ 1..) = from.read(&mut chunk).await {
                    let mut bytes = chunk[..bytes].to_vec();
                    change(&mut state, &mut bytes);
                    if to.write_all(&bytes).await.is_err() {
                        break;
                    }
                }
            },
        );
        let [one, other] = ways;
        tokio::join!(one, other);
    });
    address
}

/// Returns the next pseudo-random number (SplitMix64).
fn chance(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// In every two thousand bytes, about one byte is lost, one is altered and one is sent three times.
/// About once in every two thousand bytes, up to a hundred earlier bytes are repeated.
fn noise(state: &mut u64, bytes: &mut Vec<u8>) {
    let mut out = Vec::new();
    for byte in bytes.iter() {
        match chance(state) % 2000 {
            0 => {}
            1 => out.push(byte ^ 0x10),
            2 => out.extend([*byte; 3]),
            3 => out.extend(bytes.iter().take(100)),
            _ => out.push(*byte),
        }
    }
    *bytes = out;
}

fn body(number: u32, longest: usize) -> Bytes {
    let mut body = number.to_be_bytes().to_vec();
    body.resize(4 + number as usize * 37 % (longest - 3), (number % 7) as u8);
    body.into()
}

/// Receives the next body. Skips events which report that the line was opened.
async fn next_body(line: &mut SerialLine) -> (Channel, Bytes) {
    loop {
        if let Event::Body(channel, body) =
            timeout(LONG, line.receive()).await.expect("nothing arrives").unwrap()
        {
            return (channel, body);
        }
    }
}

/// Sends numbered bodies from both ends. Checks that each end receives them in order, once, and
/// unchanged.
async fn both_ways(mote: &mut SerialLine, gateway: &mut SerialLine, bodies: u32, longest: usize) {
    for number in 0..bodies {
        let channel = Channel::ALL[number as usize % 6];
        let (up, down) = tokio::join!(
            mote.send(channel, body(number, longest)),
            gateway.send(channel, body(number, longest))
        );
        up.unwrap();
        down.unwrap();
        let (down, up) = tokio::join!(next_body(mote), next_body(gateway));
        assert_eq!(
            (down, up),
            ((channel, body(number, longest)), (channel, body(number, longest)))
        );
    }
}

#[tokio::test]
async fn carries_bodies_of_every_length_and_channel_both_ways_over_tcp() {
    let address = format!("tcp://{}", joined(|_, _| ()).await);
    let (mut mote, mut gateway) = (
        SerialLine::new(&mote_options(&address)).unwrap(),
        SerialLine::new(&options(&address)).unwrap(),
    );
    until_up(mote.state()).await.unwrap();
    match timeout(LONG, gateway.receive()).await.unwrap().unwrap() {
        Event::Opened(peer) => assert_eq!((peer.device, peer.longest_body), (MOTE, MAX_BODY)),
        event => panic!("{event:?}"),
    }
    both_ways(&mut mote, &mut gateway, 300, MAX_BODY).await;
    let too_long = gateway.send(Channel::Coordinator, Bytes::from(vec![0; MAX_BODY + 1])).await;
    assert_eq!(too_long.unwrap_err().name(), "FrameTooLong");
    assert_eq!(
        (
            gateway.counted().line.received,
            gateway.counted().line.lost,
            gateway.counted().connections
        ),
        (300, 0, 1)
    );
}

#[tokio::test]
async fn repeats_packets_on_a_line_that_loses_changes_and_repeats_bytes() {
    let address = format!("tcp://{}", joined(noise).await);
    let (mut mote, mut gateway) = (
        SerialLine::new(&mote_options(&address)).unwrap(),
        SerialLine::new(&options(&address)).unwrap(),
    );
    both_ways(&mut mote, &mut gateway, 120, 300).await;
    let counted = gateway.counted().line;
    assert!(
        counted.dropped > 0 && counted.repeated > 0 && counted.received == 120 && counted.lost == 0,
        "{counted:?}"
    );
}

#[tokio::test]
async fn reopens_a_connection_that_breaks_and_loses_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut gateway =
        SerialLine::new(&options(&format!("tcp://{}", listener.local_addr().unwrap()))).unwrap();
    let mut mote = Line::<{ room(64) }, { room(64) }>::new(Side::Mote(MOTE), 1, QUICK);
    let began = Instant::now();
    let mut opened = 0;
    for number in 0..5_u32 {
        let mut connection = timeout(LONG, listener.accept()).await.unwrap().unwrap().0;
        mote.send(Channel::Coordinator, &number.to_be_bytes()).unwrap();
        // Each connection breaks as soon as the mote has received the acknowledgement of its body.
        // The mote does not notice the break.
        while !mote.is_idle() {
            assert!(began.elapsed() < LONG);
            let now_ms = u64::try_from(began.elapsed().as_millis()).unwrap();
            let sent: Vec<u8> = std::iter::from_fn(|| mote.next_byte(now_ms)).collect();
            connection.write_all(&sent).await.unwrap();
            let mut chunk = [0; 256];
            if let Ok(bytes) = timeout(Duration::from_millis(5), connection.read(&mut chunk)).await
            {
                for byte in &chunk[..bytes.unwrap()] {
                    opened += u32::from(matches!(mote.receive(*byte), Some(Received::Opened(_))));
                }
            }
        }
        assert_eq!(next_body(&mut gateway).await.1, number.to_be_bytes()[..]);
    }
    assert_eq!(
        (opened, gateway.counted().line.opened, gateway.counted().connections >= 5),
        (1, 1, true)
    );
}

#[tokio::test]
async fn reports_an_address_without_a_listener_and_connects_once_there_is_one() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let gateway = SerialLine::new(&options(&format!("tcp://{address}"))).unwrap();
    let mut state = gateway.state();
    let down = timeout(LONG, state.wait_for(|state| matches!(state, State::Down { .. })))
        .await
        .unwrap()
        .unwrap()
        .clone();
    let State::Down { cause, .. } = down else { unreachable!() };
    assert!(
        cause.name() == "LineDown" && cause.to_string().contains(&address.to_string()),
        "{cause}"
    );
    let listener = TcpListener::bind(address).await.unwrap();
    timeout(LONG, listener.accept()).await.unwrap().unwrap();
}

/// Opens a pseudo-terminal for a mote that returns every body. Returns the path of the gateway's
/// end, and the file of the mote's end.
fn pseudo_terminal() -> (String, std::fs::File) {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let path = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
    let controller = std::fs::File::from(controller);
    (path, controller)
}

#[tokio::test]
async fn a_terminal_carries_every_byte_unchanged_and_has_one_user() {
    let (path, controller) = pseudo_terminal();
    let mut gateway = SerialLine::new(&options(&path)).unwrap();
    let (sender, mut chunks) = mpsc::channel::<Vec<u8>>(64);
    let mut reader = controller.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut chunk = [0; 4096];
        loop {
            // The other end is not open yet, or it was closed.
            let Ok(bytes) = reader.read(&mut chunk) else {
                std::thread::sleep(Duration::from_millis(5));
                if sender.is_closed() {
                    return;
                }
                continue;
            };
            if sender.blocking_send(chunk[..bytes].to_vec()).is_err() {
                return;
            }
        }
    });
    let mut writer = controller;
    let diagnostic = tokio::spawn(async move {
        let mut mote =
            Line::<{ room(MAX_BODY) }, { room(MAX_BODY) }>::new(Side::Mote(MOTE), 1, QUICK);
        let (began, mut echo) = (Instant::now(), None);
        loop {
            if let Some((channel, body)) = echo.take() {
                let body: Vec<u8> = body;
                if mote.send(channel, &body).is_err() {
                    echo = Some((channel, body));
                }
            }
            let now_ms = u64::try_from(began.elapsed().as_millis()).unwrap();
            let sent: Vec<u8> = std::iter::from_fn(|| mote.next_byte(now_ms)).collect();
            writer.write_all(&sent).unwrap();
            let Ok(bytes) = timeout(Duration::from_millis(5), chunks.recv()).await else {
                continue;
            };
            let Some(bytes) = bytes else { return };
            for byte in bytes {
                if let Some(Received::Body { channel, body }) = mote.receive(byte) {
                    echo = Some((channel, body.to_vec()));
                }
            }
        }
    });
    until_up(gateway.state()).await.unwrap();
    // Send every byte value, including those that a terminal would interpret.
    for body in [
        (0..=255).collect::<Vec<u8>>(),
        vec![0; 100],
        vec![b'\r'; 300],
        vec![3, 4, 10, 13, 17, 19, 26, 28, 127, 255],
    ] {
        gateway.send(Channel::Sums, body.clone().into()).await.unwrap();
        assert_eq!(next_body(&mut gateway).await, (Channel::Sums, Bytes::from(body)));
    }
    let another = SerialLine::new(&options(&path)).unwrap();
    let mut state = another.state();
    let down = timeout(LONG, state.wait_for(|state| matches!(state, State::Down { .. })))
        .await
        .unwrap()
        .unwrap()
        .clone();
    assert!(matches!(&down, State::Down { cause, .. } if cause.name() == "PortInUse"), "{down:?}");
    drop((another, gateway));
    diagnostic.abort();
}

#[tokio::test]
async fn reports_another_end_of_the_same_kind() {
    let address = format!("tcp://{}", joined(|_, _| ()).await);
    let lines = [(); 2].map(|()| SerialLine::new(&options(&address)).unwrap());
    let began = Instant::now();
    while lines.iter().any(|line| line.counted().misfit != Some(PacketError::SameSide)) {
        assert!(began.elapsed() < LONG, "{:?}", lines[0].counted());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(lines.iter().all(|line| *line.state().borrow() == State::Connecting));
}

#[tokio::test]
async fn reads_no_more_while_nobody_receives() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway =
        SerialLine::new(&options(&format!("tcp://{}", listener.local_addr().unwrap()))).unwrap();
    let mut connection = timeout(LONG, listener.accept()).await.unwrap().unwrap().0;
    let mut mote = Line::<{ room(MAX_BODY) }, { room(MAX_BODY) }>::new(Side::Mote(MOTE), 1, QUICK);
    let began = Instant::now();
    // The mote opens the line, and then processes nothing that it receives.
    let mut sent: Vec<u8> = std::iter::from_fn(|| mote.next_byte(0)).collect();
    let mut chunk = [0; 256];
    while mote.peer().is_none() {
        connection.write_all(&sent).await.unwrap();
        let bytes = timeout(LONG, connection.read(&mut chunk)).await.unwrap().unwrap();
        for byte in &chunk[..bytes] {
            let _ = mote.receive(*byte);
        }
        sent = std::iter::from_fn(|| mote.next_byte(0)).collect();
    }
    connection.write_all(&sent).await.unwrap();
    // The session's number is enough to prepare a flood of packets without waiting for
    // acknowledgements.
    let (sender, receiver) = (1 << 32 | 1, mote.peer().unwrap().session);
    let mut flood = Vec::new();
    for number in 0..100_000_u32 {
        let mut packet = vec![0; 106];
        Binding { sender, receiver, number }.close(1, 100, &mut packet).unwrap();
        let mut stuffer = Stuffer::default();
        flood.extend(std::iter::from_fn(|| stuffer.next(&packet)));
    }
    let flooding = tokio::spawn(async move { connection.write_all(&flood).await });
    // The event `Opened` and seven bodies are in the queue. The eighth body waits for room in it.
    while gateway.counted().line.received < 8 {
        assert!(began.elapsed() < LONG, "{:?}", gateway.counted());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(gateway.counted().line.received, 8);
    assert!(!flooding.is_finished(), "11 MB were accepted although nothing was received");
    flooding.abort();
}

#[test]
fn checks_an_address_before_anything_is_opened() {
    for address in [
        "",
        "ttyUSB0",
        "tcp://",
        "tcp://host",
        "tcp://host:1/x",
        "tcp://u@host:1",
        "udp://host:1",
        "http://host:1",
    ] {
        assert_eq!(options(address).check().unwrap_err().name(), "BadAddress", "{address}");
    }
    for address in
        ["/dev/ttyUSB0", "tcp://127.0.0.1:4001", "tcp://[::1]:4001", "tcp://adapter.example:23"]
    {
        options(address).check().unwrap();
    }
    for baud in [0, 1199, 5_000_000] {
        let bad = Options { baud, ..options("/dev/ttyS0") };
        assert_eq!(bad.check().unwrap_err().name(), "BadAddress", "{baud}");
    }
}

#[tokio::test]
async fn reports_a_file_that_is_not_a_port() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let gateway = SerialLine::new(&options(file.path().to_str().unwrap())).unwrap();
    let mut state = gateway.state();
    let down = timeout(LONG, state.wait_for(|state| matches!(state, State::Down { .. })))
        .await
        .unwrap()
        .unwrap()
        .clone();
    assert!(matches!(&down, State::Down { cause, .. } if cause.name() == "BadAddress"), "{down:?}");
}
