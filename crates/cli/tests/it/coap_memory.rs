//! Measures the memory of a gateway's process with many devices, each of which has a DTLS session with
//! its own key and has sent frames in it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::iter;
use moteseal_core::identity::{decode_public_pem, decode_secret_pem};
use moteseal_core::link::{LinkKey, MAX_FRAME};
use moteseal_core::record::{DeviceId, EpochNumber, Framing, Round, Scheme, SealIndex};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_net::any::{CoapAddress, ParentAddress};
use moteseal_net::coap::Address;
use moteseal_net::link::{State, until_up};
use moteseal_net::{AnyChild, ChildLink as _, Down};
use moteseal_seal::level::{LevelKey, Salt};
use moteseal_seal::sample::Forwarder;
use moteseal_seal::wire::{Acknowledgement, Uplink};
use moteseal_verify::Roster;
use moteseal_verify::issue::{Budget, FirstRoster};

use crate::coap_transport::Service;
use crate::scene::Scene;

const LONG: Duration = Duration::from_secs(60);
const DAY_MS: u64 = 24 * 3_600_000;
const LEVELS: u8 = 16;
/// The number of devices that connect at the same time.
const AT_ONCE: usize = 64;
/// The maximum number of bytes for each device, so that 10,000 devices take 200 MB.
const OF_DEVICE: usize = 20_000;
/// The maximum number of bytes of a gateway that are not for a device, without the pages of its program's
/// file. A test build without optimisation has many of those.
const OF_GATEWAY: usize = 8 << 20;

/// A device with a session.
struct Device {
    id: DeviceId,
    key: LinkKey,
    link: AnyChild,
    forwarder: Box<Forwarder<1024>>,
}

impl Device {
    /// Sends an event, the first one after its schema, and waits until the gateway acknowledges it as durable.
    async fn send(&mut self, number: u64) {
        let mut out = [0; MAX_FRAME];
        if number == 0 {
            let mut schema = [0; MAX_SCHEMA];
            let columns = ["a::u64", "b::u64", "c::u64", "d::u64"];
            let columns = columns.map(|column| Field::parse(column).unwrap());
            let schema = Schema::encode(&columns, &mut schema).unwrap();
            let frame = Uplink::Schema(schema.as_bytes()).close(self.id, &self.key, &mut out);
            self.link.send(Bytes::copy_from_slice(frame.unwrap())).await.unwrap();
        }
        let level = LevelKey::new(&Salt([7; 16])).level(number, LEVELS);
        let _ = self.forwarder.note(level, &[9; 32]);
        let mut scratch = [0; 256];
        let frame = self.forwarder.next_frame(&mut scratch).unwrap().unwrap();
        let frame = Uplink::Forward(frame).close(self.id, &self.key, &mut out).unwrap();
        self.link.send(Bytes::copy_from_slice(frame)).await.unwrap();
        loop {
            let Down::Frame(frame) = self.link.receive().await.unwrap() else { continue };
            let word = Acknowledgement::open(&frame, self.id, &self.key).unwrap();
            self.forwarder.acknowledge(&word);
            if word.next.0 > number {
                return;
            }
        }
    }
}

/// Returns a number of `/proc/PID/status` in bytes.
pub(crate) fn memory(gateway: &Service, name: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_matches([':', ' ', '\t', 'k', 'B']).parse::<usize>().unwrap() << 10
}

/// Makes a group of `count` devices, and the configuration of its gateway. Returns the roster and the
/// group's link secret.
pub(crate) fn group(scene: &Scene, count: usize) -> (Roster, [u8; 32]) {
    scene.run(&["key", "new", "--out", "keys/gateway"]).done();
    let read = |name: &str| std::fs::read(scene.path(name)).unwrap();
    let operator = decode_secret_pem(&read("keys/op.key.pem")).unwrap();
    let coordinator = decode_public_pem(&read("keys/gateway.pub.pem")).unwrap();
    let names: Vec<String> = (0..count).map(|number| format!("mote{number}")).collect();
    let keys = (0..count as u64).map(|number| {
        let mut seed = [1; 32];
        seed[..8].copy_from_slice(&number.to_be_bytes());
        let algorithm = moteseal_core::signature::Algorithm::Ed25519;
        moteseal_core::signature::SecretKey::from_seed(algorithm, &seed).unwrap().public()
    });
    let devices: Vec<_> = names.iter().map(String::as_str).zip(keys).collect();
    let budget = Some(Budget { events: 1 << 24, coordinator });
    let first =
        FirstRoster { group: "home", epoch_ms: DAY_MS, levels: LEVELS, budget, devices: &devices };
    let bytes = first.issue(&operator).unwrap();
    std::fs::write(scene.path("roster.cbor"), &bytes).unwrap();
    scene.run(&["key", "link", "--out", "keys/link.key"]).done();
    scene.write(
        "gateway.toml",
        "roster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\nkey = \"keys/gateway.key.pem\"\n\
         link_secret = \"keys/link.key\"\nstate = \"gateway\"\nlisten_coaps = \"127.0.0.1:0\"\n",
    );
    let text = String::from_utf8(read("keys/link.key")).unwrap();
    let secret = hex::decode(text.lines().next().unwrap()).unwrap();
    (Roster::open(&bytes, &operator.public()).unwrap(), secret.try_into().unwrap())
}

/// Runs `MOTESEAL_DEVICES` devices, by default 100; `make test-long` runs 10,000, which need as many open
/// files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_devices_with_dtls_sessions_take_less_than_200_megabytes_of_the_gateway() {
    let count = std::env::var("MOTESEAL_DEVICES").map_or(100, |count| count.parse().unwrap());
    let scene = Scene::new();
    let (roster, secret) = group(&scene, count);
    let gateway = Service::start(&scene, &["gateway", "run", "--config", "gateway.toml"], 1);
    let alone = memory(&gateway, "VmRSS");
    let address = Address::parse(gateway.url("coaps")).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let epoch = EpochNumber(u64::try_from(now.as_millis()).unwrap() / DAY_MS);
    let framing = Framing::Fixed(32.try_into().unwrap());
    let ids: Vec<DeviceId> = roster.devices().map(|device| device.id).collect();
    let open = iter(ids).map(|id| {
        let (address, group) = (address.clone(), roster.group());
        async move {
            let secret = LinkKey::secret_of(&secret, group, id);
            let address = CoapAddress {
                address,
                group: group.to_string(),
                secret: secret.clone(),
                certificates: None,
            };
            let link = ParentAddress::Coap(Box::new(address)).open(id.0).unwrap();
            until_up(link.state()).await.unwrap();
            let start = (Scheme::Star, framing);
            let forwarder = Forwarder::new(SealIndex(0), epoch, start, LEVELS, Round(0));
            let key = LinkKey::new(&secret);
            let mut device = Device { id, key, link, forwarder: Box::new(forwarder) };
            device.send(0).await;
            device
        }
    });
    let open = open.buffer_unordered(AT_ONCE).collect::<Vec<Device>>();
    let patience = LONG + Duration::from_millis(50) * u32::try_from(count).unwrap();
    let mut devices = tokio::time::timeout(patience, open).await.expect("the sessions open");
    // Each session is live, because the device sends in it once more.
    let watched = devices.iter().map(|device| {
        let mut state = device.link.state();
        state.mark_unchanged();
        state
    });
    let watched: Vec<_> = watched.collect();
    let again = iter(&mut devices).for_each_concurrent(AT_ONCE, |device| device.send(1));
    tokio::time::timeout(patience, again).await.expect("the sessions are live");
    for state in watched {
        assert!(matches!(*state.borrow(), State::Up) && !state.has_changed().unwrap());
    }
    let (now, most) = (memory(&gateway, "VmRSS"), memory(&gateway, "VmHWM"));
    let each = now.saturating_sub(alone) / count;
    println!(
        "{count} devices: {:.1} MB without sessions, {:.1} MB with, at most {:.1} MB; {each} bytes for each device",
        alone as f64 / 1e6,
        now as f64 / 1e6,
        most as f64 / 1e6
    );
    let own = most.saturating_sub(memory(&gateway, "RssFile"));
    assert!(own < OF_GATEWAY + OF_DEVICE * count, "{own}");
    assert!(count < 10_000 || most < 200_000_000);
}
