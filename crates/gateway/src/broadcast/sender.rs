//! A sender on a link: sends chains block by block, and continues when no receiver requests more.

use std::fmt;
use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use moteseal_broadcast::recovery::{
    Event, LinkSet, Meter, Node, Now, Purpose, RefusedBroadcast, Relay, Settings, Timing,
};
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_broadcast::{
    BuildError, ChainDraft, ChainId, ChainRef, Head, KeyId, MAX_HEAD, MAX_LEAF, MAX_PER_BLOCK,
    OutgoingChain, Tag,
};
use moteseal_core::cbor::Writer;
use moteseal_core::digest::Digest;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::KeyPair;
use moteseal_net::broadcast::MAX_DATAGRAM;
use moteseal_net::{BroadcastLink, LinkError};

use super::content::Content;
use super::error::SendError;
use super::own_chains::{Own, OwnChains};

// Every frame fits every link.
const _: () = assert!(MAX_BROADCAST_FRAME <= MAX_DATAGRAM);

/// How many chains are served at once: the newest.
const CHAINS: usize = 16;
/// The maximum time that a block waits for receivers that request parts of it. Slower receivers are
/// served while later blocks are sent.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many offers in a row must get no request before the next block is sent. The offer or the
/// request may have been lost, and a receiver that misses a block loses the whole next one.
const UNANSWERED: u32 = 3;
/// How long the network may be down, and how long a link may take to accept a frame.
const DOWN: Duration = Duration::from_secs(30);
/// The chain that a node requests when it has just started.
const ANY_CHAIN: ChainRef = ChainRef([0; 8]);
/// How many bytes are sent before a pause. Receivers have at least this much buffer space.
const BURST: u64 = 16 << 10;

/// The memory for hashing a chain: a digest for each block and a tag for each message.
#[derive(Debug, Default)]
pub struct Hashes {
    digests: Vec<Digest>,
    tags: Vec<Tag>,
}

/// Hashes `content` as a chain that `key` will sign. Each message is read once.
///
/// # Errors
/// `Draft`, `Read`.
pub fn build<'s>(
    (id, key, per_block, label): (ChainId, KeyId, u8, &'s str),
    content: &Content,
    hashes: &'s mut Hashes,
) -> Result<OutgoingChain<'s>, SendError> {
    let draft = ChainDraft {
        id,
        key,
        messages: content.messages(),
        per_block,
        kind: content.kind(),
        label,
    };
    hashes
        .digests
        .resize(draft.messages.div_ceil(u32::from(per_block.max(1))) as usize, Digest::NULL);
    hashes.tags.resize(if per_block > 1 { draft.messages as usize } else { 0 }, Tag::default());
    let built = OutgoingChain::build(
        draft,
        &mut hashes.digests,
        &mut hashes.tags,
        &mut vec![0; MAX_LEAF],
        |number, out| content.read(number, out),
    );
    let built = built.map_err(|error| match error {
        BuildError::Draft(error) => SendError::Draft(error),
        BuildError::Read(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            SendError::ContentChanged { message: None }
        }
        BuildError::Read(error) => SendError::Read(error),
    })?;
    check_unchanged(content)?;
    Ok(built)
}

/// Checks that a file has not changed since it was opened.
fn check_unchanged(content: &Content) -> Result<(), SendError> {
    if content.is_unchanged().map_err(SendError::Read)? {
        Ok(())
    } else {
        Err(SendError::ContentChanged { message: None })
    }
}

/// Signs the head of a chain.
///
/// # Errors
/// `Issue`.
pub fn sign(chain: &OutgoingChain<'_>, signer: &dyn KeyPair) -> Result<Vec<u8>, SendError> {
    let (mut scratch, mut out) = (vec![0; MAX_HEAD], vec![0; MAX_HEAD]);
    chain.head(signer, &mut scratch, &mut out).map(<[u8]>::to_vec).map_err(SendError::Issue)
}

/// How much was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Frames.
    pub frames: u64,
    /// Bytes of frames.
    pub bytes: u64,
    /// Bytes of frames that receivers had requested.
    pub repaired: u64,
}

/// How fast a sender sends.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// The timing of the protocol, the same as that of its receivers.
    pub timing: Timing,
    /// The maximum rate, in bytes per second.
    pub rate: u64,
}

impl Manner {
    /// For local networks. A sender answers at once, before other receivers do.
    pub const LAN: Self = Self { timing: Timing { reply_ms: 2, ..Timing::LAN }, rate: 4_000_000 };
}

/// A sender on a link.
pub struct Sender<'s, L> {
    link: &'s L,
    node: Box<Node<'static, 1, CHAINS, { MAX_PER_BLOCK as usize }>>,
    store: OwnChains<'s>,
    certificate: &'s [u8],
    manner: Manner,
    start: Instant,
    out: Vec<u8>,
    amount: Amount,
    /// When the last frame was sent.
    last_sent: Instant,
    /// Bytes sent since the last pause.
    unpaused: u64,
}

impl<L> fmt::Debug for Sender<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("amount", &self.amount).finish_non_exhaustive()
    }
}

impl<'s, L: BroadcastLink> Sender<'s, L> {
    /// Creates a sender of `network` with this certificate. `seed` is any value that others do not
    /// know.
    ///
    /// # Errors
    /// None at present.
    pub fn new(
        link: &'s L,
        network: NetworkId,
        certificate: &'s [u8],
        manner: Manner,
        seed: u64,
    ) -> Result<Self, SendError> {
        let settings = Settings {
            network,
            bases: &[],
            links: LinkSet::first(1),
            relay: Relay::Never,
            timing: manner.timing,
            meter: Meter::HOST,
        };
        let start = Instant::now();
        let mut store = OwnChains::new(certificate, CHAINS);
        let node = Box::new(Node::new(settings, seed, now(start), &mut store)?);
        let (out, amount) = (vec![0; MAX_BROADCAST_FRAME], Amount::default());
        Ok(Self {
            link,
            node,
            store,
            certificate,
            manner,
            start,
            out,
            amount,
            last_sent: start,
            unpaused: 0,
        })
    }

    /// How much was sent so far.
    #[must_use]
    pub const fn amount(&self) -> Amount {
        self.amount
    }

    /// Sends a chain block by block and calls `progress` with the number of blocks sent. Returns
    /// when no receiver requests parts of the last block any more. Later receivers are served by
    /// [`linger`](Self::linger), and by the other receivers.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send(
        &mut self,
        chain: &'s OutgoingChain<'s>,
        content: &'s Content,
        head: Vec<u8>,
        mut progress: impl FnMut(u32),
    ) -> Result<(), SendError> {
        let reference = chain.reference();
        self.store.add(reference, Own::Lazy { chain, content, head: head.clone() });
        self.originate(&head)?;
        self.flush().await?;
        // A receiver without the head loses the whole first block.
        self.settle(reference, 0, 0).await?;
        for block in 1..=chain.blocks() {
            let leaves = chain.in_block(block);
            for index in 0..leaves {
                self.node
                    .release(now(self.start), reference, block, index)
                    .map_err(SendError::Refused)?;
                self.flush().await?;
            }
            self.settle(reference, block, leaves.saturating_sub(1)).await?;
            progress(block);
        }
        check_unchanged(content)
    }

    /// Sends a chain of one message in one frame, and returns when no receiver requests it any
    /// more. If the next chain were sent at once, a receiver that lost this one would reject it
    /// later as older than the next one.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send_at_once(&mut self, head: Vec<u8>, message: Vec<u8>) -> Result<(), SendError> {
        let claim =
            Head::peek(&head).map_err(|_| SendError::Refused(RefusedBroadcast::Malformed))?;
        let reference = claim.reference();
        self.store.add(reference, Own::Single { head: head.clone(), message });
        self.originate(&head)?;
        self.node.release(now(self.start), reference, 1, 0).map_err(SendError::Refused)?;
        self.flush().await?;
        self.settle(reference, 1, 0).await
    }

    /// Sends a frame that another signed, for example a revocation.
    ///
    /// # Errors
    /// `Link`.
    pub async fn send_frame(&mut self, frame: &BroadcastFrame<'_>) -> Result<(), SendError> {
        let mut writer = Writer::new(&mut self.out);
        frame.encode(&mut writer).map_err(|_| SendError::Refused(RefusedBroadcast::Malformed))?;
        let length = writer.position();
        self.transmit(length, false).await
    }

    /// Answers requests for this time.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn linger(&mut self, time: Duration) -> Result<(), SendError> {
        self.drive(Instant::now() + time, None).await.map(drop)
    }

    fn originate(&mut self, head: &[u8]) -> Result<(), SendError> {
        match self.node.originate(now(self.start), self.certificate, head, &mut self.store)? {
            Event::Refused(refused) => Err(SendError::Refused(refused)),
            _ => Ok(()),
        }
    }

    /// Offers a block, and answers requests until no receiver requests parts of it.
    async fn settle(&mut self, chain: ChainRef, block: u32, index: u8) -> Result<(), SendError> {
        let window = Duration::from_millis(u64::from(self.manner.timing.request_ms) * 4 + 10);
        let mut unanswered = 0;
        // A receiver that requests without end, or forges requests, delays a block by no more than
        // this.
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            self.send_frame(&BroadcastFrame::Holds { chain, block, index }).await?;
            if !self.drive(Instant::now() + window, Some((chain, block))).await? {
                unanswered += 1;
                if unanswered == UNANSWERED {
                    return Ok(());
                }
                continue;
            }
            unanswered = 0;
            while !self.node.is_settled(chain) && Instant::now() < end {
                self.drive(Instant::now() + Duration::from_millis(5), Some((chain, block))).await?;
            }
        }
        Ok(())
    }

    /// Sends the frames that are due.
    async fn flush(&mut self) -> Result<(), SendError> {
        while let Some(transmit) =
            self.node.poll(now(self.start), &mut self.store, &mut self.out)?
        {
            self.transmit(transmit.length, transmit.purpose == Purpose::Answer).await?;
        }
        Ok(())
    }

    async fn transmit(&mut self, length: usize, is_answer: bool) -> Result<(), SendError> {
        let frame = Bytes::copy_from_slice(&self.out[..length]);
        let sent = tokio::time::timeout(DOWN, self.link.send(frame)).await;
        match sent {
            Ok(Ok(())) => self.last_sent = Instant::now(),
            // Count it as a lost frame, unless the network stays down.
            Ok(Err(LinkError::NetworkDown { .. })) if self.last_sent.elapsed() < DOWN => {}
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(LinkError::Closed.into()),
        }
        let bytes = length as u64;
        self.amount.frames += 1;
        self.amount.bytes += bytes;
        self.amount.repaired += if is_answer { bytes } else { 0 };
        self.unpaused += bytes;
        if self.unpaused >= BURST {
            let pause = self.unpaused.saturating_mul(1_000_000) / self.manner.rate.max(1);
            self.unpaused = 0;
            tokio::time::sleep(Duration::from_micros(pause)).await;
        }
        Ok(())
    }

    /// Receives and sends until `end`. Returns whether a receiver requested parts of the block, or
    /// the head of its chain.
    async fn drive(
        &mut self,
        end: Instant,
        about: Option<(ChainRef, u32)>,
    ) -> Result<bool, SendError> {
        let mut was_requested = false;
        loop {
            self.flush().await?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(was_requested);
            }
            let due =
                self.node.next_due().map_or(u64::MAX, |due| due.saturating_sub(now(self.start).ms));
            let wait = left.min(Duration::from_millis(due));
            let received = tokio::select! {
                received = self.link.receive() => received?,
                () = tokio::time::sleep(wait) => continue,
            };
            // Ignore what concerns the chains of other senders.
            let (of, is_request) = match BroadcastFrame::decode(&received) {
                Ok(BroadcastFrame::Wanted { chain, block, wanted }) => {
                    let is_about = about.is_some_and(|about| {
                        about == (chain, block) || (about.0, 0) == (chain, block)
                    });
                    (chain, is_about && wanted != 0)
                }
                Ok(
                    BroadcastFrame::Holds { chain, .. }
                    | BroadcastFrame::Fragment { chain, .. }
                    | BroadcastFrame::Repair { chain, .. },
                ) => (chain, false),
                _ => continue,
            };
            if of == ANY_CHAIN || self.store.has(of) {
                was_requested |= is_request;
                self.node.receive(now(self.start), 0, &received, &mut self.store)?;
            }
        }
    }
}

fn now(start: Instant) -> Now {
    let ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    Now { ms, unix: SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs()) }
}
