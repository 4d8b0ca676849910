//! Sends chains over a link, block by block. The sender starts the next block when no receiver
//! requests parts of the current block any more.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use moteseal_broadcast::receipt::{HeadRequest, Request};
use moteseal_broadcast::recovery::{
    Event, LinkSet, Meter, Node, Now, Purpose, RefusedBroadcast, Relay, Settings, Timing,
};
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_broadcast::{
    BuildError, ChainDraft, ChainRef, Head, KeyId, Kind, MAX_HEAD, MAX_LEAF, MAX_PER_BLOCK,
    OutgoingChain, Tag,
};
use moteseal_core::cbor::Writer;
use moteseal_core::digest::Digest;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::KeyPair;
use moteseal_net::broadcast::MAX_DATAGRAM;
use moteseal_net::{BroadcastLink, LinkError};
use tokio::time::Instant;

use super::content::Content;
use super::error::SendError;
use super::own_chains::{Own, OwnChains};
use super::receipts::Receipts;
use super::receivers::Receivers;
use super::requests::{HeadAnswers, Requests};

// Every broadcast frame fits in a datagram, so every link can send it.
const _: () = assert!(MAX_BROADCAST_FRAME <= MAX_DATAGRAM);

/// The maximum number of chains whose lost parts are sent again. These are the newest chains.
const CHAINS: usize = 16;
/// The maximum time to wait, after a block, for receivers that request parts of it. The requests of
/// slower receivers are answered while later blocks are sent.
const PATIENCE: Duration = Duration::from_secs(2);
/// An offer is a frame which states that the sender has a block. The next block is sent after this
/// many consecutive offers of the current block have received no request. Several offers are needed
/// because an offer or a request may be lost, and a receiver that misses a block loses the whole
/// next block.
const UNANSWERED: u32 = 3;
/// A file in blocks of one message needs one such offer, except for the last block, once no receiver has
/// requested anything after this many consecutive blocks. A receiver that misses such a block has lost
/// little, and requests it when it hears of the next one. Its request restores the number of offers.
const CALM: u32 = 4;
/// The maximum time that the network may be down, and that a link may take to accept a frame.
const DOWN: Duration = Duration::from_secs(30);
/// The reference that a node puts into its requests when it has just started and knows no chain.
const ANY_CHAIN: ChainRef = ChainRef([0; 8]);
/// How long to wait for a sign that some receiver has the last chain. Receivers answer the request
/// for its head a second after the chain at the earliest.
const SIGN: Duration = Duration::from_secs(4);
/// The interval between two requests for this sign.
const SIGN_PAUSE: Duration = Duration::from_millis(400);
/// The shortest and the longest interval between two requests for missing receipts.
const RECEIPTS_PAUSE: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(3));
/// How long to wait for frames while a head waits to be sent to a receiver.
const ANSWER_PAUSE: Duration = Duration::from_millis(5);
/// How long to look for frames before the state of the receipts is checked again.
const LOOK: Duration = Duration::from_millis(20);
/// The number of bytes that are sent between two pauses. Receivers have at least this much buffer
/// space.
const BURST: u64 = 16 << 10;

/// Memory for the hashes of a chain: a digest for each block and a tag for each message.
#[derive(Debug, Default)]
pub struct Hashes {
    digests: Vec<Digest>,
    tags: Vec<Tag>,
}

/// Hashes `content` as a chain with the parameters of `draft`; the number of messages in `draft` is
/// ignored. Reads each message once.
///
/// # Errors
/// `Draft` if the chain is invalid, `ContentChanged` if the file has changed, `Read` if a message
/// cannot be read.
pub fn build<'s>(
    draft: ChainDraft<'s>,
    content: &Content,
    hashes: &'s mut Hashes,
) -> Result<OutgoingChain<'s>, SendError> {
    let draft = ChainDraft { messages: content.messages(), ..draft };
    let per_block = draft.per_block;
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
/// `Issue` if signing failed.
pub fn sign(chain: &OutgoingChain<'_>, signer: &dyn KeyPair) -> Result<Vec<u8>, SendError> {
    let (mut scratch, mut out) = (vec![0; MAX_HEAD], vec![0; MAX_HEAD]);
    chain.head(signer, &mut scratch, &mut out).map(<[u8]>::to_vec).map_err(SendError::Issue)
}

/// How much was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The number of frames.
    pub frames: u64,
    /// The number of bytes in these frames.
    pub bytes: u64,
    /// The number of bytes in frames that were sent because receivers requested them.
    pub repaired: u64,
}

/// The timing and the rate of a sender.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// The timing of the protocol. The receivers must use the same timing, except for the reply
    /// time.
    pub timing: Timing,
    /// The maximum rate, in bytes per second.
    pub rate: u64,
}

impl Manner {
    /// The values for local networks. The sender replies to a request sooner than other receivers
    /// do.
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
    /// The chain that was sent last.
    newest: Option<ChainRef>,
    /// The number of consecutive blocks after which no receiver has requested a part of a chain.
    calm: u32,
    /// Whether another node has sent a frame about a chain of this sender.
    has_receiver: bool,
    /// The receivers with whom this sender shares keys, with the state that depends on them.
    keyed: Option<Keyed<'s>>,
}

/// The state of a sender that shares keys with its receivers.
struct Keyed<'s> {
    list: &'s Receivers,
    requests: Requests,
    answers: HeadAnswers,
    /// The newest head, with its key and number.
    newest: Option<(KeyId, u64, Vec<u8>)>,
    receipts: Vec<(ChainRef, Receipts)>,
    /// The receivers of the addressed chains.
    addressed: Vec<(ChainRef, BTreeSet<u32>)>,
}

impl Keyed<'_> {
    /// Returns whether the sender waits for a receiver while it sends a chain.
    fn is_for(&self, chain: ChainRef, receiver: u32) -> bool {
        let found = self.addressed.iter().find(|(of, _)| *of == chain);
        found.is_none_or(|(_, positions)| positions.contains(&receiver))
    }
}

impl<L> fmt::Debug for Sender<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("amount", &self.amount).finish_non_exhaustive()
    }
}

impl<'s, L: BroadcastLink> Sender<'s, L> {
    /// Creates a sender of `network` with this certificate. `seed` is any number that nobody else
    /// knows.
    ///
    /// # Errors
    /// Returns no error at present.
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
        let store = OwnChains::new(certificate, CHAINS);
        let node = Box::new(Node::new(settings, seed, now(start)));
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
            newest: None,
            calm: 0,
            has_receiver: false,
            keyed: None,
        })
    }

    /// Sets the receivers with whom this sender shares keys. From now on the sender waits only for
    /// their requests. It answers the requests of other nodes as far as its rate allows, and sends
    /// its newest head to the receivers that ask for it.
    pub fn set_receivers(&mut self, list: &'s Receivers) {
        self.keyed = Some(Keyed {
            list,
            requests: Requests::new(self.manner.rate),
            answers: HeadAnswers::default(),
            newest: None,
            receipts: Vec::new(),
            addressed: Vec::new(),
        });
    }

    /// Expects receipts for the chain with this head from the receivers at these positions. Does
    /// nothing without a list of receivers. Call this before the chain is sent.
    pub fn expect(
        &mut self,
        chain: ChainRef,
        head: &[u8],
        positions: impl IntoIterator<Item = u32>,
    ) {
        if let Some(keyed) = &mut self.keyed {
            keyed.receipts.push((chain, Receipts::new(keyed.list, head, positions)));
        }
    }

    /// Waits only for the requests of the receivers at these positions while it sends the chain, and
    /// answers the requests of others as those of unknown origin. Does nothing without a list of
    /// receivers. Call this before the chain is sent.
    pub fn address(&mut self, chain: ChainRef, positions: &[u32]) {
        if let Some(keyed) = &mut self.keyed {
            if keyed.addressed.len() >= CHAINS {
                keyed.addressed.remove(0);
            }
            keyed.addressed.push((chain, positions.iter().copied().collect()));
        }
    }

    /// Returns the receipts for a chain for which [`expect`](Self::expect) was called.
    #[must_use]
    pub fn receipts(&self, chain: ChainRef) -> Option<&Receipts> {
        let keyed = self.keyed.as_ref()?;
        keyed.receipts.iter().find(|(of, _)| *of == chain).map(|(_, receipts)| receipts)
    }

    /// Requests the missing receipts for a chain until `enough` receivers have acknowledged it, or
    /// `time` has passed. Answers requests meanwhile.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn collect(
        &mut self,
        chain: ChainRef,
        enough: usize,
        time: Duration,
    ) -> Result<(), SendError> {
        let end = Instant::now() + time;
        let mut pause = RECEIPTS_PAUSE.0;
        loop {
            let Some(receipts) = self.receipts(chain) else { return Ok(()) };
            if receipts.count() >= enough.min(receipts.expected()) || Instant::now() >= end {
                return Ok(());
            }
            if let Some((most, receivers)) = receipts.request() {
                let receivers = &receivers;
                self.send_frame(&BroadcastFrame::ReceiptsWanted { chain, most, receivers }).await?;
            }
            let next = (Instant::now() + pause).min(end);
            pause = (pause * 3 / 2).min(RECEIPTS_PAUSE.1);
            while Instant::now() < next {
                self.drive((Instant::now() + LOOK).min(next), None).await?;
                let receipts = self.receipts(chain);
                if receipts.is_none_or(|of| of.count() >= enough.min(of.expected())) {
                    return Ok(());
                }
            }
        }
    }

    /// Returns how much has been sent so far.
    #[must_use]
    pub const fn amount(&self) -> Amount {
        self.amount
    }

    /// Sends a chain block by block, and calls `progress` with the number of blocks sent. Returns
    /// when no receiver requests parts of the last block any more. Receivers that join later are
    /// served by other receivers, and by this sender during [`linger`](Self::linger).
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send(
        &mut self,
        chain: &'s OutgoingChain<'s>,
        content: &'s Content,
        head: Vec<u8>,
        progress: impl FnMut(u32),
    ) -> Result<(), SendError> {
        self.send_after(0, chain, content, head, progress).await
    }

    /// Like [`send`](Self::send), for a chain of which an earlier process has sent the first `sent`
    /// blocks. Receivers that lack parts of these blocks request them.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send_after(
        &mut self,
        sent: u32,
        chain: &'s OutgoingChain<'s>,
        content: &'s Content,
        head: Vec<u8>,
        mut progress: impl FnMut(u32),
    ) -> Result<(), SendError> {
        let reference = chain.reference();
        self.store.add(reference, Own::Lazy { chain, content, head: head.clone() });
        self.originate(&head)?;
        self.flush().await?;
        // A receiver without the head loses the whole first block, so wait until no receiver
        // requests the head.
        self.calm = 0;
        self.settle(reference, 0, 0, UNANSWERED).await?;
        let is_fine = chain.outline().kind == Kind::File && chain.outline().per_block == 1;
        for block in sent.clamp(1, chain.blocks())..=chain.blocks() {
            let leaves = chain.in_block(block);
            // The node releases all earlier leaves together with the first one here.
            let first = if block == sent { leaves.saturating_sub(1) } else { 0 };
            for index in first..leaves {
                self.node
                    .release(now(self.start), reference, block, index)
                    .map_err(SendError::Refused)?;
                self.flush().await?;
            }
            let is_calm = self.calm >= CALM && block < chain.blocks();
            let offers = if is_fine && is_calm { 1 } else { UNANSWERED };
            self.calm = self.calm.saturating_add(1);
            self.settle(reference, block, leaves.saturating_sub(1), offers).await?;
            progress(block);
        }
        check_unchanged(content)
    }

    /// Sends a chain of one message in one frame. Returns when no receiver requests the chain any
    /// more. This wait is necessary because a receiver that has missed this chain rejects it after
    /// receiving the next chain, which has a higher number.
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
        self.settle(reference, 1, 0, UNANSWERED).await
    }

    /// Sends a frame that someone else signed, for example a revocation.
    ///
    /// # Errors
    /// `Refused` if the frame cannot be encoded, `Link` if it cannot be sent.
    pub async fn send_frame(&mut self, frame: &BroadcastFrame<'_>) -> Result<(), SendError> {
        let mut writer = Writer::new(&mut self.out);
        frame.encode(&mut writer).map_err(|_| SendError::Refused(RefusedBroadcast::Malformed))?;
        let length = writer.position();
        self.transmit(length, false).await
    }

    /// Answers requests for the duration `time`.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn linger(&mut self, time: Duration) -> Result<(), SendError> {
        self.drive(Instant::now() + time, None).await.map(drop)
    }

    /// Returns whether there is a receiver: whether another node has sent a frame about a chain of
    /// this sender. If none has yet, asks for such a frame, and waits for it for a few seconds. The
    /// frame is not authenticated, so it is only a hint.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn finds_receivers(&mut self) -> Result<bool, SendError> {
        let Some(chain) = self.newest else { return Ok(self.has_receiver) };
        let end = Instant::now() + SIGN;
        while !self.has_receiver && Instant::now() < end {
            // A receiver that has the head sends it.
            self.send_frame(&BroadcastFrame::Wanted { chain, block: 0, wanted: 1 }).await?;
            let pause = Instant::now() + SIGN_PAUSE;
            while !self.has_receiver && Instant::now() < pause {
                self.drive(Instant::now() + Duration::from_millis(20), None).await?;
            }
        }
        Ok(self.has_receiver)
    }

    fn originate(&mut self, head: &[u8]) -> Result<(), SendError> {
        let claim = Head::peek(head).ok();
        self.newest = claim.map(|claim| claim.reference());
        if let (Some(keyed), Some(claim)) = (&mut self.keyed, claim) {
            keyed.newest = Some((claim.key(), claim.id().number.0, head.to_vec()));
        }
        match self.node.originate(now(self.start), self.certificate, head, &mut self.store)? {
            Event::Refused(refused) => Err(SendError::Refused(refused)),
            _ => Ok(()),
        }
    }

    /// Offers a block, and answers requests until this many consecutive offers are unanswered: no
    /// receiver requests parts of the block. With a list of receivers, only their requests count.
    async fn settle(
        &mut self,
        chain: ChainRef,
        block: u32,
        index: u8,
        mut offers: u32,
    ) -> Result<(), SendError> {
        let window = Duration::from_millis(u64::from(self.manner.timing.request_ms) * 4 + 10);
        let mut unanswered = 0;
        // This limit also applies if a receiver keeps sending requests, or forges them.
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            self.send_frame(&BroadcastFrame::Holds { chain, block, index }).await?;
            if !self.drive(Instant::now() + window, Some((chain, block))).await? {
                unanswered += 1;
                if unanswered >= offers {
                    return Ok(());
                }
                continue;
            }
            (unanswered, offers) = (0, UNANSWERED);
            // Requests of unknown origin also keep the node busy.
            while self.keyed.is_none() && !self.node.is_settled(chain) && Instant::now() < end {
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
        self.answer_head().await
    }

    /// Sends the newest head to a receiver that has asked for it.
    async fn answer_head(&mut self) -> Result<(), SendError> {
        let now_ms = now(self.start).ms;
        let Some(keyed) = &mut self.keyed else { return Ok(()) };
        let Some(receiver) = keyed.answers.next(now_ms) else { return Ok(()) };
        let (Some(key), Some((.., head))) = (keyed.list.key(receiver), &keyed.newest) else {
            return Ok(());
        };
        let mut writer = Writer::new(&mut self.out);
        BroadcastFrame::HeadFor { receiver, tag: key.head(head), head }
            .encode(&mut writer)
            .map_err(|_| SendError::Refused(RefusedBroadcast::Malformed))?;
        let length = writer.position();
        self.transmit(length, true).await
    }

    async fn transmit(&mut self, length: usize, is_answer: bool) -> Result<(), SendError> {
        let frame = Bytes::copy_from_slice(&self.out[..length]);
        let sent = tokio::time::timeout(DOWN, self.link.send(frame)).await;
        match sent {
            Ok(Ok(())) => self.last_sent = Instant::now(),
            // Treat the frame as lost, unless the network stays down.
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

    /// Processes a request for which the sender does not wait. Answers the part of it for which
    /// there is room in the sender's rate.
    fn receive_unknown(
        &mut self,
        chain: ChainRef,
        block: u32,
        wanted: u64,
    ) -> Result<(), SendError> {
        let is_own = self.store.has(chain);
        self.has_receiver |= is_own;
        let now = now(self.start);
        // An answer is at most as long as the longest item of the chain for each requested item.
        let longest = self.store.longest_leaf(chain).max(MAX_HEAD) as u64;
        let whole = wanted;
        let wanted = wanted & self.store.items(chain, block);
        let Some(keyed) = self.keyed.as_mut().filter(|_| is_own || chain == ANY_CHAIN) else {
            return Ok(());
        };
        let granted = keyed.requests.granted(now.ms, wanted, longest);
        if granted == 0 {
            return Ok(());
        }
        // The receiver lacks more leaves than those of a part of its request. They are sent alone,
        // because the node cannot choose repairs for such a receiver.
        let wanted = if granted == wanted { whole } else { granted };
        let mut frame = [0; 64];
        let mut writer = Writer::new(&mut frame);
        BroadcastFrame::Wanted { chain, block, wanted }
            .encode(&mut writer)
            .map_err(|_| SendError::Refused(RefusedBroadcast::Malformed))?;
        self.node.receive(now, 0, writer.written(), &mut self.store)?;
        Ok(())
    }

    /// Receives and sends frames until `end`. Returns whether a receiver requested parts of the
    /// block `about`, or the head of its chain.
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
            let has_answer = self.keyed.as_ref().is_some_and(|keyed| keyed.answers.is_waiting());
            let wait = left.min(if has_answer { ANSWER_PAUSE } else { Duration::from_millis(due) });
            let received = tokio::select! {
                received = self.link.receive() => received?,
                () = tokio::time::sleep(wait) => continue,
            };
            let frame = BroadcastFrame::decode(&received);
            if let Ok(
                BroadcastFrame::Wanted { chain, .. } | BroadcastFrame::ReceiverWanted { chain, .. },
            ) = frame
                && about.is_some_and(|about| about.0 == chain)
            {
                self.calm = 0;
            }
            // Ignore frames about the chains of other senders.
            let (of, is_request) = match frame {
                Ok(
                    BroadcastFrame::Wanted { chain, block, wanted }
                    | BroadcastFrame::ReceiverWanted { chain, block, wanted, .. },
                ) if self.keyed.is_none() => {
                    let is_about = about.is_some_and(|about| {
                        about == (chain, block) || (about.0, 0) == (chain, block)
                    });
                    (chain, is_about && wanted != 0)
                }
                Ok(BroadcastFrame::Wanted { chain, block, wanted }) => {
                    self.receive_unknown(chain, block, wanted)?;
                    continue;
                }
                Ok(BroadcastFrame::ReceiverWanted {
                    chain,
                    block,
                    wanted,
                    attempt,
                    receiver,
                    tag,
                }) => {
                    let Some(keyed) = &mut self.keyed else { continue };
                    let request = Request { chain, block, wanted, attempt };
                    let from = (receiver, &tag);
                    if !keyed.is_for(chain, receiver)
                        || !keyed.requests.is_waited_for(keyed.list, about, &request, from)
                    {
                        self.receive_unknown(chain, block, wanted)?;
                        continue;
                    }
                    (chain, true)
                }
                Ok(BroadcastFrame::Receipts { chain, receivers, tag }) => {
                    if let Some(keyed) = &mut self.keyed
                        && let Some((_, of)) = keyed.receipts.iter_mut().find(|of| of.0 == chain)
                    {
                        of.take(receivers, &tag, received.len());
                        self.has_receiver |= of.count() > 0;
                    }
                    continue;
                }
                Ok(BroadcastFrame::HeadWanted { key, above, receiver, tag }) => {
                    if let Some(Keyed { answers, list, newest: Some(newest), .. }) = &mut self.keyed
                        && newest.0 == key
                    {
                        let request = HeadRequest { key, above };
                        answers.take(list, newest.1, &request, receiver, &tag);
                    }
                    continue;
                }
                Ok(
                    BroadcastFrame::Holds { chain, .. }
                    | BroadcastFrame::Fragment { chain, .. }
                    | BroadcastFrame::Repair { chain, .. },
                ) => (chain, false),
                Ok(BroadcastFrame::Head(head) | BroadcastFrame::Single { head, .. }) => {
                    match Head::peek(head) {
                        Ok(claim) => (claim.reference(), false),
                        Err(_) => continue,
                    }
                }
                _ => continue,
            };
            self.has_receiver |= self.store.has(of);
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
