//! Receives broadcasts and acts on the commands in them. The listener is a node of
//! `moteseal_broadcast::recovery` that accepts one base station (spec/broadcast.md; spec/mote.md,
//! section 4).
//!
//! Certificates, heads and leaves are in RAM. After a reboot, the node requests them again. The
//! journal stores what must survive a reboot: for each sender's key the newest chain, and the
//! lowest valid serial. The journal records a chain before the listener acts on it, so that the
//! mote acts on a command at most once, and after a reboot on no earlier one. If the mote reboots
//! between the record and the action, it never acts on the command and sends no notice of it.
//!
//! The mote acts only on chains of commands, only within their windows, and only if the caller knows
//! the time. Until then it ignores the frames that begin a chain of commands, and afterwards it asks
//! for them again. It does not hold a command that is too early: the sender must send it later.

use moteseal_broadcast::receipt::ReceiverKey;
use moteseal_broadcast::recovery::{
    Event, Item, LinkSet, Meter, Node, Now, Relay, Settings, Store, Timing,
};
use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_broadcast::{
    CLOCK_OFFSET_SECONDS, ChainNumber, ChainRef, Head, KeyId, Kind, MAX_HEAD, MAX_REVOCATION,
    MAX_SENDER_CERTIFICATE, Revoked, Untimely,
};
use moteseal_core::provision::Audience;
use moteseal_core::signature::PublicKey;
use moteseal_core::signed_time::TimeRange;

use crate::command::Command;
use crate::durable::{Durable, NoRoom};
use crate::flash::Flash;
use crate::journal::JournalError;
use crate::notice::{Notice, OnNotice};
use crate::receipt::OwnReceipts;

/// The maximum number of senders that the node knows at the same time. The shelf has memory for one
/// certificate.
const SENDERS: usize = 1;
/// The number of messages per block: senders send commands in blocks of one message.
const PER_BLOCK: usize = 1;
/// The maximum length of a leaf that is stored, in bytes: a command, and the announcement of the
/// next block.
const LEAF: usize = 256;
/// The number of leaves that are stored: the last leaves of a chain, which neighbours may request.
const LEAVES: usize = 4;
/// The length of the announcement of the next block, in bytes. In blocks of one message, the
/// announcement precedes the message; the last block has none.
const TRAILER: usize = 32;
/// The number of the node's only link, the serial line.
const LINE: u8 = 0;

/// Why an item was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeepError {
    /// The item is longer than the memory for it, or there are too many senders.
    NoRoom,
    /// The item could not be made durable.
    Journal(JournalError),
}

impl From<JournalError> for KeepError {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

/// Memory for one item: its key and up to `N` bytes.
struct Slot<K, const N: usize> {
    key: Option<K>,
    length: usize,
    bytes: [u8; N],
}

impl<K: PartialEq, const N: usize> Slot<K, N> {
    const fn new() -> Self {
        Self { key: None, length: 0, bytes: [0; N] }
    }

    fn put(&mut self, key: K, bytes: &[u8]) -> Result<(), KeepError> {
        self.bytes.get_mut(..bytes.len()).ok_or(KeepError::NoRoom)?.copy_from_slice(bytes);
        (self.key, self.length) = (Some(key), bytes.len());
        Ok(())
    }

    fn get(&self, key: &K) -> Option<&[u8]> {
        if self.key.as_ref() == Some(key) { self.bytes.get(..self.length) } else { None }
    }
}

/// The memory for items of chains in RAM.
pub struct Shelf {
    certificate: Slot<KeyId, MAX_SENDER_CERTIFICATE>,
    chain_certificate: Slot<ChainRef, MAX_SENDER_CERTIFICATE>,
    revocation: Slot<u8, MAX_REVOCATION>,
    head: Slot<ChainRef, MAX_HEAD>,
    leaves: [Slot<(ChainRef, u32), LEAF>; LEAVES],
    next_leaf: usize,
}

impl Default for Shelf {
    fn default() -> Self {
        Self::new()
    }
}

impl Shelf {
    /// Creates an empty shelf.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            certificate: Slot::new(),
            chain_certificate: Slot::new(),
            revocation: Slot::new(),
            head: Slot::new(),
            leaves: [const { Slot::new() }; LEAVES],
            next_leaf: 0,
        }
    }

    fn get(&self, item: Item) -> Option<&[u8]> {
        match item {
            Item::Certificate(key) => self.certificate.get(&key),
            Item::Revocation(base) => self.revocation.get(&base),
            Item::ChainCertificate(chain) => self.chain_certificate.get(&chain),
            Item::Head(chain) => self.head.get(&chain),
            Item::Leaf { chain, block, .. } => {
                self.leaves.iter().find_map(|slot| slot.get(&(chain, block)))
            }
        }
    }

    fn put(&mut self, item: Item, bytes: &[u8]) -> Result<(), KeepError> {
        match item {
            Item::Certificate(key) => self.certificate.put(key, bytes),
            Item::Revocation(base) => self.revocation.put(base, bytes),
            Item::ChainCertificate(chain) => self.chain_certificate.put(chain, bytes),
            Item::Head(chain) => self.head.put(chain, bytes),
            // No command is this long. Do not store the leaf for neighbours; the listener sends a
            // notice that it is not a command.
            Item::Leaf { .. } if bytes.len() > LEAF => Ok(()),
            Item::Leaf { chain, block, .. } => {
                self.next_leaf = (self.next_leaf + 1) % LEAVES;
                self.leaves
                    .get_mut(self.next_leaf)
                    .map_or(Err(KeepError::NoRoom), |slot| slot.put((chain, block), bytes))
            }
        }
    }
}

/// The node's store: the shelf in RAM, and the journal for data that must survive a reboot.
struct Kept<'k, F> {
    shelf: &'k mut Shelf,
    durable: &'k mut Durable<F>,
}

impl<F: Flash> Store for Kept<'_, F> {
    type Error = KeepError;

    fn keep(&mut self, item: Item, bytes: &[u8]) -> Result<(), KeepError> {
        self.shelf.put(item, bytes)
    }

    fn fetch<'b>(&mut self, item: Item, out: &'b mut [u8]) -> Result<Option<&'b [u8]>, KeepError> {
        let Some(bytes) = self.shelf.get(item) else { return Ok(None) };
        let Some(place) = out.get_mut(..bytes.len()) else { return Ok(None) };
        place.copy_from_slice(bytes);
        Ok(Some(place))
    }

    fn is_kept(&mut self, item: Item, bytes: &[u8]) -> Result<bool, KeepError> {
        Ok(self.shelf.get(item) == Some(bytes))
    }

    fn forget_block(&mut self, chain: ChainRef, block: u32) -> Result<(), KeepError> {
        self.shelf
            .leaves
            .iter_mut()
            .filter(|slot| slot.key == Some((chain, block)))
            .for_each(|slot| slot.key = None);
        Ok(())
    }

    fn forget(&mut self, chain: ChainRef) -> Result<(), KeepError> {
        self.shelf.leaves.iter_mut().for_each(|slot| _ = slot.key.take_if(|(of, _)| *of == chain));
        self.shelf.head.key.take_if(|of| *of == chain);
        self.shelf.chain_certificate.key.take_if(|of| *of == chain);
        Ok(())
    }

    fn retire(&mut self, chain: ChainRef) -> Result<(), KeepError> {
        self.forget(chain)
    }

    fn raise(&mut self, key: KeyId, number: ChainNumber) -> Result<(), KeepError> {
        self.durable.raise(key, number)?.map_err(|NoRoom| KeepError::NoRoom)
    }

    fn floor(&mut self, key: KeyId) -> Result<Option<ChainNumber>, KeepError> {
        Ok(self.durable.memory().floor(key))
    }

    fn revoke(&mut self, _: u8, revoked: &Revoked) -> Result<(), KeepError> {
        Ok(self.durable.revoke(revoked)?)
    }

    fn revoked(&mut self, _: u8) -> Result<Revoked, KeepError> {
        Ok(*self.durable.memory().revoked())
    }
}

/// A node of `moteseal_broadcast::recovery` with the dimensions of a mote.
pub type BroadcastNode<'p> = Node<'p, SENDERS, 1, PER_BLOCK>;

/// The receiver of broadcasts. It borrows its memory from the caller.
pub struct Listener<'p, 'm> {
    node: &'m mut BroadcastNode<'p>,
    shelf: &'m mut Shelf,
    /// The chain of commands that was ignored last, because the time was not known.
    ignored: Option<ChainNumber>,
    receipts: OwnReceipts,
}

/// Returns the number of the chain if the frame begins a chain of commands, as it claims.
fn command_of(frame: &[u8]) -> Option<ChainNumber> {
    match BroadcastFrame::decode(frame) {
        Ok(
            BroadcastFrame::Head(head)
            | BroadcastFrame::Single { head, .. }
            | BroadcastFrame::HeadFor { head, .. },
        ) => Head::peek(head).ok().filter(|head| head.kind() == Kind::Command),
        _ => None,
    }
    .map(|head| head.id().number)
}

/// Returns `None` if there was no room for an item, which is harmless, and an error if the journal
/// failed, which is fatal.
fn only_journal<T>(result: Result<T, KeepError>) -> Result<Option<T>, JournalError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(KeepError::NoRoom) => Ok(None),
        Err(KeepError::Journal(error)) => Err(error),
    }
}

/// Creates the node that a [`Listener`] borrows. `keys` are the keys that the mote shares with
/// senders ([`receiver_key`](crate::receipt::receiver_key)). `seed` determines the random delays of
/// the node's frames; keep it secret.
#[inline(never)]
#[must_use]
pub fn broadcast_node<'p>(
    audience: &'p Audience,
    keys: &'p [ReceiverKey],
    seed: u64,
    now_ms: u64,
) -> BroadcastNode<'p> {
    let settings = Settings {
        network: audience.network,
        bases: core::slice::from_ref::<PublicKey>(&audience.base),
        links: LinkSet::one(LINE),
        relay: Relay::Never,
        timing: Timing {
            quiet_ms: 2_000,
            request_ms: 200,
            reply_ms: 500,
            hold_off_ms: 1_000,
            ..Timing::RADIO
        },
        meter: Meter::MOTE,
    };
    let now = Now { ms: now_ms, unix: None };
    let mut node = Node::new(settings, seed, now);
    node.set_receiver_keys(keys);
    node
}

impl<'p, 'm> Listener<'p, 'm> {
    /// Creates a listener with this node and its shelf. The node's first frame asks its neighbours
    /// which chains there are.
    pub fn new(node: &'m mut BroadcastNode<'p>, shelf: &'m mut Shelf, now_ms: u64) -> Self {
        node.solicit(Now { ms: now_ms, unix: None });
        Self { node, shelf, ignored: None, receipts: OwnReceipts::default() }
    }

    /// Processes a frame. If the frame completes the verification of commands, the listener acts on
    /// these commands, unless the time is outside of their window.
    ///
    /// `time` has the times that are possible now; `None` if the mote does not know the time. The
    /// earliest one is compared with the beginning of a window, and the latest one with its end, so
    /// that the mote obeys no command too early or after its end.
    ///
    /// # Errors
    /// [`JournalError`].
    #[inline(never)]
    pub fn receive<F: Flash>(
        &mut self,
        now_ms: u64,
        time: Option<TimeRange>,
        frame: &[u8],
        durable: &mut Durable<F>,
        notify: &mut OnNotice<'_>,
    ) -> Result<(), JournalError> {
        let earliest = time.map(|time| time.earliest_ms / 1000);
        let latest = time.map(|time| time.latest_ms.div_ceil(1000));
        let now = Now { ms: now_ms, unix: latest };
        match (latest, command_of(frame)) {
            (None, Some(number)) => {
                // Report each chain once. The frame is not verified.
                if self.ignored != Some(number) {
                    self.ignored = Some(number);
                    notify(Notice::NotObeyed(number, Untimely::NoTrustedTime));
                }
                return Ok(());
            }
            (Some(_), _) if self.ignored.take().is_some() => self.node.solicit(now),
            _ => {}
        }
        if let Ok(BroadcastFrame::ReceiptsWanted { chain, receivers, .. }) =
            BroadcastFrame::decode(frame)
        {
            self.receipts.asked(now_ms, chain, receivers);
        }
        let event = self.node.receive(now, LINE, frame, &mut Kept { shelf: self.shelf, durable });
        match only_journal(event)? {
            Some(Event::Verified { chain, sender, number, first, last, is_last }) => {
                // The node has verified the head. Ignore chains of other kinds: a mote does not use
                // them.
                let head = self.shelf.get(Item::Head(chain)).and_then(|head| Head::peek(head).ok());
                let Some(head) = head.filter(|head| head.kind() == Kind::Command) else {
                    return Ok(());
                };
                let check = |unix| head.window().check(unix, CLOCK_OFFSET_SECONDS);
                if let Err(why) = check(earliest).and(check(latest)) {
                    notify(Notice::NotObeyed(number, why));
                    return Ok(());
                }
                for block in first..=last {
                    let leaf = self.shelf.get(Item::Leaf { chain, block, index: 0 });
                    let trailer = if is_last && block == last { 0 } else { TRAILER };
                    let message = leaf.and_then(|leaf| leaf.get(trailer..)).unwrap_or_default();
                    match Command::parse(message) {
                        Some(command) => {
                            durable.set(command.applied(durable.memory().settings()))?;
                            notify(Notice::Acted(number, command));
                            self.receipts.note_acted(chain, block);
                        }
                        None => notify(Notice::NoCommand(number)),
                    }
                }
                let key = self.node.receiver_keys().iter().find(|key| key.sender() == sender);
                if let (true, Some(key), Some(head)) =
                    (is_last, key, self.shelf.get(Item::Head(chain)))
                {
                    self.receipts.complete(now_ms, key, (chain, last), head);
                }
            }
            Some(Event::Refused(refused)) => notify(Notice::Refused(refused)),
            _ => {}
        }
        Ok(())
    }

    /// If a frame is due, writes it to `out` and returns its length.
    ///
    /// # Errors
    /// [`JournalError`].
    #[inline(never)]
    pub fn next_body<F: Flash>(
        &mut self,
        now_ms: u64,
        out: &mut [u8],
        durable: &mut Durable<F>,
    ) -> Result<Option<usize>, JournalError> {
        let transmit = self.node.poll(
            Now { ms: now_ms, unix: None },
            &mut Kept { shelf: self.shelf, durable },
            out,
        );
        let length = only_journal(transmit)?.flatten().map(|transmit| transmit.length);
        Ok(length.or_else(|| self.receipts.next(now_ms, out)))
    }
}
