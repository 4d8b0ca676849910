//! Updates the firmware of a mote in QEMU, with the real boot stage and two images that are built with
//! different versions. The power fails at words of flash that the test chooses at random: the mote
//! must always start a whole image, and run the new one once the power no longer fails.
//!
//! The test is the gateway, the coordinator, the signer of the time and the sender at the other end of
//! the serial line. `MOTESEAL_CUTS` sets the number of losses of power, by default 3, and
//! `MOTESEAL_FIRST_SEED` the first seed, by default 0: to go on with a run that was interrupted.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::chance::Chance;
use crate::emulator::{Emulator, RUN_SLOT, build, image_of};
use moteseal_broadcast::firmware::{
    FirmwareDraft, UPDATE_PART, UpdateError, UpdateReport, find_tag,
};
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_broadcast::{
    ChainDraft, ChainId, ChainNumber, ChainRef, KeyId, Kind, MAX_HEAD, MAX_SENDER_CERTIFICATE,
    MAX_SINGLE, OutgoingChain, SenderCertificateDraft, SingleDraft, Window,
};
use moteseal_core::cbor::Writer;
use moteseal_core::digest::Digest;
use moteseal_core::link::LinkKey;
use moteseal_core::provision::{Audience, Provisioning, ReplayedWindow};
use moteseal_core::record::{
    DeviceId, EpochNumber, GroupId, NetworkId, Scheme, SealIndex, Sequence,
};
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_core::signed_time::{TimeChallenge, TimeSigner, TimeStatement};
use moteseal_seal::wire::{Acknowledgement, MAX_ACKNOWLEDGEMENT, Uplink};
use moteseal_serial::{Channel, Line, MAX_BODY, Received, Side, Timing, room};
use tempfile::TempDir;
use zeroize::Zeroizing;

const NETWORK: NetworkId = NetworkId([13; 8]);
const SENDER: DeviceId = DeviceId([7; 8]);
const DEVICE: DeviceId = DeviceId([1; 8]);
const GROUP: GroupId = GroupId([2; 8]);
const SECRET: [u8; 32] = [3; 32];
/// The maximum number of losses of power in an update.
const CUTS: u64 = 10;
/// Exit status of QEMU after a chosen loss of power (firmware/board/src/flash.rs).
const POWER_FAILED: i32 = 7;
/// The place in the PSRAM of the words that state the next cut (firmware/board/memory).
const POWER_CUT: u64 = 0x10_0000;
/// The timeout of one life of the mote.
const LONG: Duration = Duration::from_secs(120);

type MoteLine = Line<{ room(MAX_BODY) }, { room(MAX_BODY) }>;

fn key(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

fn unix_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn encoded(frame: &BroadcastFrame<'_>) -> Vec<u8> {
    let mut out = [0; MAX_BROADCAST_FRAME];
    let mut writer = Writer::new(&mut out);
    frame.encode(&mut writer).unwrap();
    writer.finish().to_vec()
}

/// Writes the provisioning blob of the mote, which senses one reading.
fn provision(out: &Path) {
    let mut buffer = [0; 64];
    let schema = Schema::encode(&[Field::parse("reading::u32").unwrap()], &mut buffer).unwrap();
    let provisioning = Provisioning {
        device: DEVICE,
        group: GROUP,
        roster: (Digest([6; 32]), 7),
        certificate: Digest([8; 32]),
        levels: 8,
        epoch_ms: 60_000,
        epochs: (EpochNumber(0), None),
        start_ms: 0,
        scheme: Scheme::Star,
        schema: schema.as_bytes(),
        signer: key(9),
        salt_key: Zeroizing::new([10; 32]),
        link_secret: Zeroizing::new(SECRET),
        coordinator: key(11).public(),
        window: ReplayedWindow {
            first: 0,
            count: 1,
            start_ms: 1,
            every_ms: 1000,
            interval_ms: 3_600_000,
        },
        sums: None,
        audience: Some(Audience { network: NETWORK, base: key(14).public(), shared: None }),
        operator: Some(key(15).public()),
    };
    fs::write(out, provisioning.encode(&mut [0; 4096]).unwrap()).unwrap();
}

/// What the sender has: the frames of its certificate, of the head and of the leaves of the chain.
struct SenderFrames {
    chain: ChainRef,
    certificate: Vec<u8>,
    head: Vec<u8>,
    leaves: Vec<Vec<u8>>,
}

impl SenderFrames {
    /// Signs an image and builds its chain.
    fn of(image: &[u8]) -> Self {
        let (board, version) = find_tag(image).unwrap();
        let (base, sender) = (key(14), key(20));
        let (base_id, public) = (KeyId::of(&base.public()), sender.public());
        let draft = FirmwareDraft {
            network: NETWORK,
            base: base_id,
            board,
            version,
            length: u32::try_from(image.len()).unwrap(),
            digest: Digest::of(&[image]).0,
        };
        let manifest = draft.issue_part(&base).unwrap();
        let messages: Vec<&[u8]> =
            std::iter::once(&manifest[..]).chain(image.chunks(UPDATE_PART)).collect();
        let certificate = SenderCertificateDraft {
            network: NETWORK,
            base: base_id,
            serial: 1,
            sender: SENDER,
            key: &public,
            not_before: 0,
            not_after: u64::MAX,
        };
        let id = ChainId { network: NETWORK, sender: SENDER, number: ChainNumber(1) };
        let chain = id.reference(KeyId::of(&public));
        let draft = ChainDraft {
            id,
            key: KeyId::of(&public),
            messages: u32::try_from(messages.len()).unwrap(),
            per_block: 1,
            kind: Kind::File,
            label: "new.firmware",
            window: Window { not_before: 0, not_after: u64::MAX },
            previous: None,
            is_addressed: false,
        };
        let mut digests = vec![Digest::NULL; messages.len()];
        let mut tags = vec![[0; 8]; messages.len()];
        let mut scratch = [0; 9000];
        let built =
            OutgoingChain::build(draft, &mut digests, &mut tags, &mut scratch, |at, out| {
                let message = messages[at as usize];
                out[..message.len()].copy_from_slice(message);
                Ok::<_, std::convert::Infallible>(message.len())
            })
            .unwrap();
        let head = built.head(&sender, &mut [0; 2048], &mut [0; MAX_HEAD]).unwrap().to_vec();
        let leaf = |(block, message): (u32, &&[u8])| {
            let mut out = [0; 9000];
            let leaf = built.leaf(block, 0, message, &mut out).unwrap();
            encoded(&BroadcastFrame::Fragment { chain, block, index: 0, leaf })
        };
        Self {
            chain,
            certificate: encoded(&BroadcastFrame::Certificate(
                certificate.issue(&base, &mut [0; MAX_SENDER_CERTIFICATE]).unwrap(),
            )),
            head: encoded(&BroadcastFrame::Head(&head)),
            leaves: (1..).zip(&messages).map(leaf).collect(),
        }
    }

    /// Returns the frame of a command to install a version.
    fn install(number: u64, version: u32) -> Vec<u8> {
        let (now, text) = (unix_ms() / 1000, format!("install {version}"));
        let draft = SingleDraft {
            id: ChainId { network: NETWORK, sender: SENDER, number: ChainNumber(number) },
            kind: Kind::Command,
            label: "firmware",
            window: Window { not_before: now - 60, not_after: now + 600 },
            previous: None,
            message: text.as_bytes(),
        };
        let (mut scratch, mut out) = ([0; MAX_SINGLE], [0; MAX_SINGLE]);
        draft.seal(&key(20), &mut scratch, &mut out).unwrap().to_vec()
    }
}

/// The other end of the serial line in one life of the mote.
struct Gateway<'s> {
    frames: &'s SenderFrames,
    stream: TcpStream,
    line: MoteLine,
    start: Instant,
    /// Bodies to send before leaves.
    waiting: Vec<(Channel, Vec<u8>)>,
    /// The next leaf to send, once the mote has asked for one.
    next_leaf: Option<usize>,
    /// When the line was opened.
    opened: Instant,
    next_advert: Instant,
    /// Whether the mote knows the time.
    has_time: bool,
    reports: Vec<UpdateReport>,
}

impl<'s> Gateway<'s> {
    fn connect(frames: &'s SenderFrames, mote: &Emulator, number: u32) -> Option<Self> {
        let stream = TcpStream::connect(("127.0.0.1", mote.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        Some(Self {
            frames,
            stream,
            line: Line::new(Side::Gateway, number, Timing::default()),
            start: Instant::now(),
            waiting: Vec::new(),
            next_leaf: None,
            opened: Instant::now(),
            next_advert: Instant::now(),
            has_time: false,
            reports: Vec::new(),
        })
    }

    fn send(&mut self, channel: Channel, body: Vec<u8>) {
        self.waiting.push((channel, body));
    }

    /// Exchanges bytes with the mote. Returns false when the connection has ended.
    fn step(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let length = match self.stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => 0,
            Err(_) => return false,
        };
        for byte in &bytes[..length] {
            match self.line.receive(*byte) {
                Some(Received::Body { channel, body }) => {
                    let body = body.to_vec();
                    self.receive(channel, &body);
                }
                Some(Received::Opened(_)) => {
                    (self.next_leaf, self.has_time) = (None, false);
                    self.opened = Instant::now();
                    self.send(Channel::Broadcast, self.frames.certificate.clone());
                    self.send(Channel::Broadcast, self.frames.head.clone());
                }
                _ => {}
            }
        }
        if self.line.is_idle() && self.line.peer().is_some() {
            if !self.waiting.is_empty() {
                let (channel, body) = self.waiting.remove(0);
                self.line.send(channel, &body).unwrap();
            } else if let Some(leaf) = self.next_leaf.and_then(|next| self.frames.leaves.get(next))
            {
                self.line.send(Channel::Broadcast, leaf).unwrap();
                self.next_leaf = self.next_leaf.map(|next| next + 1);
            } else if self.next_advert <= Instant::now() {
                self.next_advert = Instant::now() + Duration::from_millis(300);
                let block = u32::try_from(self.frames.leaves.len()).unwrap();
                let holds = BroadcastFrame::Holds { chain: self.frames.chain, block, index: 0 };
                self.line.send(Channel::Broadcast, &encoded(&holds)).unwrap();
            }
        }
        let now_ms = u64::try_from(self.start.elapsed().as_millis()).unwrap();
        let out: Vec<u8> = std::iter::from_fn(|| self.line.next_byte(now_ms)).collect();
        self.stream.write_all(&out).is_ok()
    }

    fn receive(&mut self, channel: Channel, body: &[u8]) {
        match channel {
            Channel::Coordinator => {
                let link = LinkKey::new(&SECRET);
                if let Ok(Uplink::Challenge(challenge)) = Uplink::open(body, &link) {
                    let acknowledgement = Acknowledgement {
                        index: SealIndex(0),
                        next: Sequence(0),
                        sealed: None,
                        wants_schema: false,
                        challenge: Some(challenge),
                    };
                    let mut out = [0; MAX_ACKNOWLEDGEMENT];
                    let frame = acknowledgement.close(DEVICE, &link, &mut out).unwrap().to_vec();
                    self.send(Channel::Coordinator, frame);
                }
            }
            Channel::Time => {
                let challenge = TimeChallenge(body.try_into().unwrap());
                let statement =
                    TimeStatement { group: GROUP, device: DEVICE, challenge, unix_ms: unix_ms() };
                let mut out = [0; 512];
                let signed = statement.issue(TimeSigner::Operator, &key(15), &mut out).unwrap();
                // Do not delay it behind leaves: the mote accepts only a fresh statement.
                self.waiting.insert(0, (Channel::Time, signed.to_vec()));
                self.has_time = true;
            }
            Channel::Broadcast => {
                if let Ok(BroadcastFrame::Wanted { chain, block, .. }) =
                    BroadcastFrame::decode(body)
                {
                    if chain == self.frames.chain && block > 0 {
                        self.next_leaf = Some(block as usize - 1);
                    } else {
                        self.send(Channel::Broadcast, self.frames.certificate.clone());
                        self.send(Channel::Broadcast, self.frames.head.clone());
                    }
                }
            }
            Channel::Firmware => self.reports.push(UpdateReport::decode(body).unwrap()),
            _ => panic!("{channel:?}"),
        }
    }
}

/// The mote and what belongs to it.
struct Scene {
    folder: TempDir,
    images: [Vec<u8>; 2],
    frames: SenderFrames,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        build("boot", "mps2-an385,power-cuts", 1, &at.join("mote.elf"));
        let images = [1, 2].map(|version| {
            let path = at.join(format!("image{version}.elf"));
            build("mote", "mps2-an385,slots,power-cuts", version, &path);
            let image = image_of(&fs::read(path).unwrap());
            assert_eq!(find_tag(&image), Ok(("mps2-an385", version)));
            image
        });
        provision(&at.join("mote.bin"));
        let frames = SenderFrames::of(&images[1]);
        Self { folder, images, frames }
    }

    /// Returns a mote with version 1, as it comes from the factory.
    fn mote(&self) -> Emulator {
        Emulator::start_with_image(self.folder.path(), "mote", &self.images[0])
    }

    fn ram(&self) -> std::path::PathBuf {
        self.folder.path().join("mote.ram")
    }

    /// Lets the power fail when this many more words were written; 0 for never.
    fn cut_after(&self, words: u32, seed: u32) {
        let ram = fs::File::options().write(true).open(self.ram()).unwrap();
        let words = [words.to_le_bytes(), seed.to_le_bytes()].concat();
        ram.write_all_at(&words, POWER_CUT).unwrap();
    }

    /// Asserts that the run slot has the whole image of this version.
    fn assert_runs(&self, version: u32) {
        let image = &self.images[version as usize - 1];
        let mut slot = vec![0; image.len()];
        fs::File::open(self.ram()).unwrap().read_exact_at(&mut slot, RUN_SLOT).unwrap();
        assert!(slot == *image, "the slot does not have version {version}");
    }
}

/// Returns the versions that the images have reported when they started, from a report on.
fn started(mote: &Emulator, from: usize) -> Vec<u32> {
    mote.reports()
        .iter()
        .skip(from)
        .filter_map(|report| {
            let mut words = report.strip_prefix("update ")?.split(' ');
            match (words.next()?, words.next()?) {
                ("running" | "trying", version) => version.parse().ok(),
                // The image that was confirmed runs.
                ("confirmed", version) => version.parse().ok(),
                _ => None,
            }
        })
        .collect()
}

/// Lets the power of a mote fail until it has failed `most` times or the new image is confirmed, and
/// then completes the update. Returns how often the power failed and how often the mote fell back.
fn update(scene: &Scene, seed: u64, most: u64) -> (u64, usize) {
    let mut chance = Chance::new(seed);
    let cut_within = |chance: &mut Chance, bound: u64| {
        let words = u32::try_from(1 + chance.below(bound)).unwrap();
        scene.cut_after(words, (chance.next() >> 32) as u32);
    };
    // An update erases and writes the staging slot once, and copies each page three times to exchange
    // the slots: eight words for each word of the image. The first cut may be at any of them.
    let words = 2 * u64::try_from(scene.images[1].len()).unwrap();
    let mut mote = scene.mote();
    cut_within(&mut chance, words);
    mote.power_returns();
    let (mut cuts, mut fallen_back, mut number) = (0, 0, 100);
    for life in 1.. {
        assert!(life < 60, "{seed}: {:#?}", mote.reports());
        let (begin, from) = (Instant::now(), mote.reports().len());
        let mut gateway = None;
        let (mut next_command, mut is_over) = (Instant::now(), false);
        // The exit status of QEMU, or `None` if the new image is confirmed.
        let status = loop {
            assert!(begin.elapsed() < LONG, "{seed}: {:#?}", mote.reports());
            if let Some(status) = mote.ended() {
                break Some(status);
            }
            let Some(gate) = &mut gateway else {
                std::thread::sleep(Duration::from_millis(5));
                gateway = Gateway::connect(&scene.frames, &mote, life);
                continue;
            };
            if !gate.step() {
                continue;
            }
            for report in gate.reports.drain(..) {
                match report {
                    UpdateReport::Running(version)
                    | UpdateReport::Trying(version)
                    | UpdateReport::Confirmed(version) => scene.assert_runs(version),
                    _ => {}
                }
                // Cut many trials, in which few words are written, so that the mote falls back.
                if matches!(report, UpdateReport::Trying(_)) && cuts < most && chance.percent(50) {
                    cut_within(&mut chance, 40);
                }
                is_over |= matches!(report, UpdateReport::Confirmed(2) | UpdateReport::Running(2));
            }
            if is_over {
                break None;
            }
            // Send commands again and again: a mote that has fallen back needs a new one. A mote that
            // has the image does not ask for its messages.
            let asks = gate.next_leaf.is_some() || gate.opened.elapsed() < Duration::from_secs(6);
            let has_image = mote.count("update received 2") > 0 || !asks;
            if gate.has_time && has_image && next_command <= Instant::now() {
                next_command = Instant::now() + Duration::from_secs(2);
                number += 1;
                gate.send(Channel::Broadcast, SenderFrames::install(number, 2));
            }
        };
        let failed = format!("update refused 2 {}", UpdateError::SelfTestFailed.name());
        fallen_back += mote.reports().iter().skip(from).filter(|report| **report == failed).count();
        match status {
            None => {
                // Version 2 is confirmed, so it also runs after another restart.
                scene.cut_after(0, 0);
                scene.assert_runs(2);
                mote.kill();
                let from = mote.reports().len();
                let before = ["started", "update running 2"].map(|report| mote.count(report));
                mote.power_returns();
                mote.until_all("started", before[0] + 1);
                mote.until_all("update running 2", before[1] + 1);
                assert_eq!(started(&mote, from), [2]);
                return (cuts, fallen_back);
            }
            Some(POWER_FAILED) => {
                cuts += 1;
                if cuts < most {
                    // At the first words of the next life, where marks and records are, or soon, or
                    // at any word.
                    let bound = [100, 4_000, words][chance.below(3) as usize];
                    cut_within(&mut chance, bound);
                } else {
                    scene.cut_after(0, 0);
                }
                mote.power_returns();
            }
            Some(status) => {
                panic!("{seed}: QEMU ended with {status}: {} {:#?}", mote.log(), mote.reports())
            }
        }
    }
    unreachable!()
}

#[test]
fn a_mote_whose_power_fails_at_any_word_always_starts_a_whole_image() {
    let number = |name: &str, usual| {
        std::env::var(name).map_or(usual, |number| number.parse::<u64>().unwrap())
    };
    let (least, mut seed) = (number("MOTESEAL_CUTS", 3), number("MOTESEAL_FIRST_SEED", 0));
    let scene = Scene::new();
    let mut total = 0;
    while total < least {
        let begin = Instant::now();
        let (cuts, fallen_back) = update(&scene, seed, CUTS.min(least - total));
        total += cuts;
        let seconds = begin.elapsed().as_secs_f32();
        println!("seed {seed}: {cuts} cuts, fell back {fallen_back} times, {seconds:.1} s");
        println!("{total} of {least} cuts");
        seed += 1;
    }
}
