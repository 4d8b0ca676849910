//! The schemes that are compared with chains, prepared for measurements at the sender and at a
//! receiver: a signature per message, HMAC with a shared key, uTESLA, and the paper's scheme.

use std::hint::black_box;

use hmac::{KeyInit, Mac};
use moteseal_broadcast::{ChainId, ChainNumber};
use moteseal_core::DeviceId;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{PublicKey, SecretKey};
use moteseal_lab::broadcast::PAYLOAD;
use moteseal_research::hmac_broadcast::SharedKey;
use moteseal_research::paper_broadcast::{Chain, Packet, Receiver as PaperReceiver};
use moteseal_research::tesla::receiver::{Receiver, Settings};
use moteseal_research::tesla::sender::Sender;
use moteseal_research::tesla::wire::{KEY_FRAME, OVERHEAD, TeslaFrame};
use moteseal_research::tesla::{MAX_PARAMETERS, Parameters, Schedule};
use moteseal_research::{secp160r1, sigs};
use sha2::Sha256;

use super::Message;
use crate::measure::Contender;

/// SIGS: a signature per message.
pub(super) struct Sigs<'a> {
    messages: &'a [Message],
    key: &'a SecretKey,
    public: PublicKey,
    packets: Vec<Vec<u8>>,
}

impl<'a> Sigs<'a> {
    pub(super) fn new(messages: &'a [Message], key: &'a SecretKey) -> Self {
        let packets = messages
            .iter()
            .map(|message| sigs::seal(key, message).expect("the key signs"))
            .collect();
        Self { messages, key, public: key.public(), packets }
    }

    pub(super) fn signing(&self) -> Contender<'_> {
        Contender::new(self.messages.len(), || {
            self.messages
                .iter()
                .for_each(|message| drop(black_box(sigs::seal(self.key, black_box(message)))));
        })
    }

    pub(super) fn verifying(&self) -> Contender<'_> {
        Contender::new(self.packets.len(), || {
            assert!(
                self.packets
                    .iter()
                    .all(|packet| sigs::open(&self.public, black_box(packet)).is_some())
            );
        })
    }
}

/// HMAC with a shared key, directly from the `hmac` crate.
pub(super) struct Hmac<'a> {
    key: hmac::Hmac<Sha256>,
    paper: SharedKey,
    tagged: Vec<(&'a Message, [u8; 8], [u8; 8])>,
}

impl<'a> Hmac<'a> {
    pub(super) fn new(messages: &'a [Message]) -> Self {
        let key = hmac::Hmac::new_from_slice(&[7; 32]).expect("HMAC takes keys of any length");
        let paper = SharedKey::new(&[7; 20]);
        let tagged = messages
            .iter()
            .map(|message| (message, tag(&key, message), paper.paper_tag(message)))
            .collect();
        Self { key, paper, tagged }
    }

    fn times(
        &self,
        times: usize,
        run: impl Fn(&(&'a Message, [u8; 8], [u8; 8])) + 'a,
    ) -> Contender<'_> {
        Contender::new(times * self.tagged.len(), move || {
            (0..times).for_each(|_| self.tagged.iter().for_each(&run));
        })
    }

    pub(super) fn sealing(&'a self, times: usize) -> Contender<'a> {
        self.times(times, |(message, ..)| {
            black_box(tag(&self.key, black_box(*message)));
        })
    }

    pub(super) fn verifying(&'a self, times: usize) -> Contender<'a> {
        self.times(times, |(message, right, _)| {
            assert!(tag(&self.key, black_box(*message)) == *right);
        })
    }

    pub(super) fn paper_sealing(&'a self, times: usize) -> Contender<'a> {
        self.times(times, |(message, ..)| {
            black_box(self.paper.paper_tag(black_box(*message)));
        })
    }

    pub(super) fn paper_verifying(&'a self, times: usize) -> Contender<'a> {
        self.times(times, |(message, _, right)| {
            assert!(self.paper.paper_tag(black_box(*message)) == *right);
        })
    }
}

fn tag(key: &hmac::Hmac<Sha256>, message: &[u8]) -> [u8; 8] {
    let whole = key.clone().chain_update(message).finalize().into_bytes();
    *whole.first_chunk().expect("a tag is longer")
}

/// uTESLA with one message per interval. A mote that cannot verify signatures receives the
/// parameters over an authenticated link; this is not measured.
pub(super) struct Tesla<'a> {
    messages: &'a [Message],
    schedule: Schedule,
    parameters: Parameters,
    /// Each frame with the time at which it is received: packets, and each key two intervals later.
    frames: Vec<(u64, Vec<u8>)>,
}

const INTERVAL_MS: u32 = 5000;
const SECRET: [u8; 16] = [9; 16];

impl<'a> Tesla<'a> {
    pub(super) fn new(messages: &'a [Message]) -> Self {
        let schedule = Schedule {
            id: ChainId {
                network: NetworkId([1; 8]),
                sender: DeviceId([2; 8]),
                number: ChainNumber(3),
            },
            start_ms: 0,
            interval_ms: INTERVAL_MS,
            delay: 2,
            last: u32::try_from(messages.len()).expect("few messages"),
        };
        let mut frames = Vec::new();
        let sender = transmit(schedule, messages, |now, frame| frames.push((now, frame.to_vec())));
        Self { messages, schedule, parameters: sender.parameters(), frames }
    }

    pub(super) fn sealing(&self) -> Contender<'_> {
        Contender::new(self.messages.len(), || {
            let sender = transmit(self.schedule, black_box(self.messages), |_, frame| {
                black_box(frame);
            });
            black_box(sender);
        })
    }

    pub(super) fn verifying(&self) -> Contender<'_> {
        let frames: Vec<_> = self
            .frames
            .iter()
            .map(|(now, frame)| (*now, TeslaFrame::decode(frame).expect("a frame")))
            .collect();
        let mut receiver = Receiver::<4, 1, PAYLOAD>::new(
            self.parameters,
            Settings { offset_ms: 100, steps: 8, budget: 64, seed: 1 },
        )
        .expect("there are enough rows");
        let fresh = receiver.clone();
        Contender::new(self.messages.len(), move || {
            receiver.clone_from(&fresh);
            let mut delivered = 0;
            for (now, frame) in &frames {
                receiver.receive(*now, black_box(frame)).expect("in time");
                while let Some(message) = receiver.take() {
                    black_box(message);
                    delivered += 1;
                }
            }
            assert_eq!(delivered, self.messages.len());
        })
    }
}

/// Does a sender's complete work: computes the keys, and sends one packet per interval and the
/// disclosed keys.
fn transmit(schedule: Schedule, messages: &[Message], mut send: impl FnMut(u64, &[u8])) -> Sender {
    let mut sender = Sender::new(schedule, SECRET).expect("a valid schedule");
    let mut buffer = [0; OVERHEAD + PAYLOAD + KEY_FRAME + MAX_PARAMETERS];
    let mut now = 0;
    let mut messages = messages.iter();
    for _ in 0..schedule.last + u32::from(schedule.delay) {
        now += u64::from(INTERVAL_MS);
        if let Some(message) = messages.next() {
            send(now, sender.packet(now, message, &mut buffer).expect("the interval has begun"));
        }
        if let Some(key) = sender.disclosure(now, &mut buffer).expect("the time increases") {
            send(now, key);
        }
    }
    sender
}

/// The paper's chains, and its signature per message.
pub(super) struct Paper {
    per_block: usize,
    messages: Vec<Vec<u8>>,
    key: secp160r1::SecretKey,
    packets: Vec<Packet>,
    signed: Vec<Vec<u8>>,
}

impl Paper {
    /// The number of signatures that one measurement creates and verifies.
    const SIGNED: usize = 4;

    pub(super) fn new(messages: &[Message], per_block: usize) -> Self {
        let key =
            secp160r1::SecretKey::new(0x1234_5678_9abc_def0_u64.into()).expect("below the order");
        let messages: Vec<Vec<u8>> = messages.iter().map(|message| message.to_vec()).collect();
        let packets = Chain::generate(&messages, per_block, [1; 8], &key).packets();
        let signed = messages
            .iter()
            .take(Self::SIGNED)
            .map(|message| sigs::seal_secp160r1(&key, message))
            .collect();
        Self { per_block, messages, key, packets, signed }
    }

    pub(super) const fn per_block(&self) -> usize {
        self.per_block
    }

    pub(super) fn signing_each(&self) -> Contender<'_> {
        Contender::new(Self::SIGNED, || {
            let messages = self.messages.iter().take(Self::SIGNED);
            messages.for_each(|message| {
                drop(black_box(sigs::seal_secp160r1(&self.key, black_box(message))));
            });
        })
    }

    pub(super) fn verifying_each(&self) -> Contender<'_> {
        Contender::new(Self::SIGNED, || {
            let mut packets = self.signed.iter();
            assert!(packets.all(|packet| {
                sigs::open_secp160r1(self.key.public(), black_box(packet)).is_some()
            }));
        })
    }

    pub(super) fn sealing(&self) -> Contender<'_> {
        Contender::new(self.messages.len(), || {
            drop(black_box(Chain::generate(
                black_box(&self.messages),
                self.per_block,
                [1; 8],
                &self.key,
            )));
        })
    }

    pub(super) fn verifying(&self) -> Contender<'_> {
        Contender::new(self.messages.len(), || {
            let mut receiver =
                PaperReceiver::new(self.key.public().clone(), self.messages.len(), self.per_block);
            self.packets
                .iter()
                .for_each(|packet| drop(black_box(receiver.receive(black_box(packet)))));
            assert_eq!(receiver.accepted.len(), self.messages.len());
        })
    }
}
