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
//! If the board has slots for firmware, the listener also writes update files to flash
//! ([`Updates`]).
//!
//! The mote acts only on chains of commands and on update files. If the chain has a window, the mote acts on
//! it only within the window, and only if the caller knows the time. Otherwise it ignores the frame that
//! begins the chain, and asks for it again when it knows the time and when the window begins. It has no
//! memory for these chains: their sender, or a neighbour that has them, must still be there, and an ignored
//! chain is lost when a later one of the same sender arrives.
//!
//! It decrypts commands for named receivers if the chain's address has an entry for the mote (section
//! 8 of spec/broadcast.md).

use moteseal_broadcast::address::{AddressError, AddressRead, AddressReader, Opened};
use moteseal_broadcast::firmware::UPDATE_PART;
use moteseal_broadcast::receipt::ReceiverKey;
use moteseal_broadcast::recovery::{
    Event, Item, LinkSet, Meter, Node, Now, Rate, Relay, Settings, Store, Timing,
};
use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_broadcast::{
    CLOCK_OFFSET_SECONDS, ChainNumber, ChainRef, Claim, Head, KeyId, Kind, MAX_HEAD,
    MAX_REVOCATION, MAX_SENDER_CERTIFICATE, Outline, Revoked, Untimely,
};
use moteseal_core::provision::Audience;
use moteseal_core::signature::PublicKey;
use moteseal_core::signed_time::TimeRange;

use crate::command::Command;
use crate::durable::{Durable, FirmwareState, NoRoom};
use crate::flash::{Flash, NoFlash};
use crate::journal::JournalError;
use crate::notice::{Notice, OnNotice};
use crate::receipt::OwnReceipts;
use crate::updates::Updates;

/// The maximum number of senders that the node knows at the same time. The shelf has memory for one
/// certificate.
const SENDERS: usize = 1;
/// The number of messages per block: senders send commands in blocks of one message.
const PER_BLOCK: usize = 1;
/// The maximum length of a leaf that is stored, in bytes: a command or a part of an update file, and
/// the announcement of the next block.
const LEAF: usize = UPDATE_PART + TRAILER;
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
    /// Whether the chain of the head contains an update file.
    is_update: bool,
    leaves: [Slot<(ChainRef, u32), LEAF>; LEAVES],
    next_leaf: usize,
    /// The number of leaves that were stored and that the listener has not read.
    unread: usize,
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
            is_update: false,
            leaves: [const { Slot::new() }; LEAVES],
            next_leaf: 0,
            unread: 0,
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
            Item::Head(chain) => {
                self.is_update = Head::peek(bytes).is_ok_and(|head| head.is_update_file());
                self.head.put(chain, bytes)
            }
            // No command is this long. Do not store the leaf for neighbours; the listener sends a
            // notice that it is not a command.
            Item::Leaf { .. } if bytes.len() > LEAF => Ok(()),
            // The node requests this leaf again after the listener has read the others.
            Item::Leaf { .. } if self.unread == LEAVES => Err(KeepError::NoRoom),
            Item::Leaf { chain, block, .. } => {
                self.unread += 1;
                self.next_leaf = (self.next_leaf + 1) % LEAVES;
                self.leaves
                    .get_mut(self.next_leaf)
                    .map_or(Err(KeepError::NoRoom), |slot| slot.put((chain, block), bytes))
            }
        }
    }
}

/// The node's store: the shelf in RAM, and the journal for data that must survive a reboot.
struct Kept<'k, F, U> {
    shelf: &'k mut Shelf,
    durable: &'k mut Durable<F>,
    updates: Option<&'k Updates<'k, U>>,
}

impl<F: Flash, U: Flash> Store for Kept<'_, F, U> {
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

    // The number of the chain of an image becomes durable when its reception is over, so that it can
    // go on after a restart. Until then, the mote does not act on the chain.
    fn raise(&mut self, key: KeyId, number: ChainNumber) -> Result<(), KeepError> {
        if self.updates.is_some() && self.shelf.is_update {
            let has_room = self.durable.memory().has_floor(key);
            return if has_room { Ok(()) } else { Err(KeepError::NoRoom) };
        }
        self.durable.raise(key, number)?.map_err(|NoRoom| KeepError::NoRoom)
    }

    fn floor(&mut self, key: KeyId) -> Result<Option<ChainNumber>, KeepError> {
        Ok(self.durable.memory().floor(key))
    }

    // After a restart, and after a chain of commands, the node goes on with the chain of an image.
    fn reached(&mut self, chain: ChainRef) -> Result<Option<(u32, [u8; 32])>, KeepError> {
        Ok(self.updates.and_then(|updates| updates.reached(chain)))
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

/// The reader of the address of a chain for named receivers, which is read block by block.
struct Address {
    chain: ChainRef,
    /// The block that is read next.
    next: u32,
    reader: AddressReader,
    opened: Option<Opened>,
}

/// The receiver of broadcasts. It borrows its memory from the caller.
pub struct Listener<'p, 'm, U = NoFlash> {
    node: &'m mut BroadcastNode<'p>,
    shelf: &'m mut Shelf,
    updates: Option<&'m mut Updates<'p, U>>,
    ignored: Option<Ignored>,
    receipts: OwnReceipts,
    address: Option<Address>,
}

/// Chains that were ignored, because the time was not known or because they are early. Times are in Unix
/// seconds.
#[derive(Clone, Copy)]
struct Ignored {
    /// The chain that was ignored last.
    number: ChainNumber,
    /// When the mote asks for them; 0 for as soon as it knows the time.
    ask_at: u64,
    /// The last begin of a window. Until then the mote asks again at intervals, because a head that begins
    /// earlier may be forged.
    last: u64,
}

/// The interval between two requests for ignored chains, in seconds.
const ASK_AGAIN_SECONDS: u64 = 60;

/// A message of a chain for named receivers, as the mote uses it.
enum Read {
    /// A part of the address.
    Address,
    /// The content, in the buffer up to this length.
    Content(usize),
}

/// Reads the message of a block of a chain for named receivers. Content is decrypted to `buffer`.
/// `key` is the key that the mote shares with the sender.
#[inline(never)]
fn read_addressed(
    address: &mut Option<Address>,
    (chain, block): (ChainRef, u32),
    outline: &Outline,
    key: Option<&ReceiverKey>,
    message: &[u8],
    buffer: &mut [u8; LEAF],
) -> Result<Read, AddressError> {
    if block == 1 {
        let reader = AddressReader::new(outline);
        *address = Some(Address { chain, next: 1, reader, opened: None });
    }
    let incomplete = AddressError::AddressIncomplete;
    let of = address.as_mut().filter(|of| (of.chain, of.next) == (chain, block));
    let of = of.ok_or(incomplete)?;
    of.next = block.saturating_add(1);
    let opened = match &of.opened {
        Some(opened) => opened,
        None => {
            if of.reader.take(key, message)? == AddressRead::More {
                return Ok(Read::Address);
            }
            of.opened.insert(of.reader.open()?)
        }
    };
    // The blocks of a chain of commands for motes have one message.
    let Some((number, content)) = opened.content(block - 1, message)? else {
        return Ok(Read::Address);
    };
    let place = buffer.get_mut(..content.len()).ok_or(incomplete)?;
    place.copy_from_slice(content);
    opened.cipher.apply(number, place);
    Ok(Read::Content(content.len()))
}

/// Returns what the head claims, if the frame begins a chain of commands or an update file.
fn head_of(frame: &[u8]) -> Option<Claim> {
    match BroadcastFrame::decode(frame) {
        Ok(
            BroadcastFrame::Head(head)
            | BroadcastFrame::Single { head, .. }
            | BroadcastFrame::HeadFor { head, .. },
        ) => Head::peek(head).ok(),
        _ => None,
    }
    .filter(|head| head.kind() == Kind::Command || head.is_update_file())
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
            // A sender waits for requests for 50 ms after each block.
            request_ms: 30,
            reply_ms: 500,
            hold_off_ms: 1_000,
            ..Timing::RADIO
        },
        // An image has a thousand blocks of one message, and each lost one is requested.
        meter: Meter { requests: Rate { burst: 16, each_ms: 100 }, ..Meter::MOTE },
    };
    let now = Now { ms: now_ms, unix: None };
    let mut node = Node::new(settings, seed, now);
    node.set_receiver_keys(keys);
    node
}

impl<'p, 'm, U: Flash> Listener<'p, 'm, U> {
    /// Creates a listener with this node and its shelf. The node's first frame asks its neighbours
    /// which chains there are. `updates` has the slots for firmware, if the board has slots.
    pub fn new(
        node: &'m mut BroadcastNode<'p>,
        shelf: &'m mut Shelf,
        updates: Option<&'m mut Updates<'p, U>>,
        now_ms: u64,
    ) -> Self {
        node.solicit(Now { ms: now_ms, unix: None });
        Self {
            node,
            shelf,
            updates,
            ignored: None,
            receipts: OwnReceipts::default(),
            address: None,
        }
    }

    /// Begins the trial of a new image of the firmware, or completes what the last start has begun.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn start<F: Flash>(
        &mut self,
        now_ms: u64,
        durable: &mut Durable<F>,
        notify: &mut OnNotice<'_>,
    ) -> Result<(), JournalError> {
        let Some(updates) = &mut self.updates else { return Ok(()) };
        updates.start(now_ms, durable, notify)?;
        self.owe_receipt(None, durable.memory().firmware());
        Ok(())
    }

    /// Confirms a new image of the firmware once it has passed its self-test. `is_in_contact` is
    /// whether the coordinator has answered.
    ///
    /// # Errors
    /// [`JournalError`].
    #[inline(never)]
    pub fn supervise<F: Flash>(
        &mut self,
        now_ms: u64,
        is_in_contact: bool,
        durable: &mut Durable<F>,
        notify: &mut OnNotice<'_>,
    ) -> Result<(), JournalError> {
        let Some(updates) = &mut self.updates else { return Ok(()) };
        if updates.supervise(now_ms, is_in_contact, durable, notify)? {
            self.owe_receipt(Some(now_ms), durable.memory().firmware());
        }
        Ok(())
    }

    /// Returns whether the image of the firmware that runs is on trial.
    #[must_use]
    pub fn is_on_trial(&self) -> bool {
        self.updates.as_deref().is_some_and(Updates::is_on_trial)
    }

    /// Takes the receipt of the command that has installed the image that runs.
    #[inline(never)]
    fn owe_receipt(&mut self, now_ms: Option<u64>, state: &FirmwareState) {
        let owed = self.updates.as_deref().and_then(|updates| updates.owed(state));
        if let (Some((chain, tag)), Some(key)) = (owed, self.node.receiver_keys().first()) {
            self.receipts.owe(now_ms, chain, key.position(), tag);
        }
    }

    /// Returns whether the board is to restart now, to install an image or to fall back.
    #[must_use]
    pub fn wants_restart(&self, now_ms: u64) -> bool {
        self.updates.as_deref().is_some_and(|updates| updates.wants_restart(now_ms))
    }

    /// If there is a report about the firmware to send, writes it to `out` and returns its length.
    #[inline(never)]
    pub fn next_report(&mut self, out: &mut [u8]) -> Option<usize> {
        self.updates.as_mut()?.next_report(out)
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
        if self.ignores(earliest, frame, notify) {
            return Ok(());
        }
        if let Ok(BroadcastFrame::ReceiptsWanted { chain, receivers, .. }) =
            BroadcastFrame::decode(frame)
        {
            self.receipts.asked(now_ms, chain, receivers);
        }
        let updates = self.updates.as_deref();
        self.shelf.unread = 0;
        let store = &mut Kept { shelf: self.shelf, durable, updates };
        let event = self.node.receive(now, LINE, frame, store);
        match only_journal(event)? {
            Some(Event::Verified { chain, sender, number, first, last, is_last }) => {
                // The node has verified the head. Ignore chains of other kinds: a mote does not use
                // them.
                let stored = self.shelf.get(Item::Head(chain));
                let Some((bytes, head)) =
                    stored.and_then(|bytes| Some((bytes, Head::peek(bytes).ok()?)))
                else {
                    return Ok(());
                };
                let (is_update, messages) = (self.shelf.is_update, head.messages());
                if !is_update && head.kind() != Kind::Command {
                    return Ok(());
                }
                let check = |unix| head.window().check(unix, CLOCK_OFFSET_SECONDS);
                if let (Err(why), true) =
                    (check(earliest).and(check(latest)), first == 1 || !is_update)
                {
                    notify(Notice::NotObeyed(number, why));
                    return Ok(());
                }
                let key = self.node.receiver_keys().iter().find(|key| key.sender() == sender);
                let mut buffer = [0; LEAF];
                for block in first..=last {
                    let leaf = self.shelf.get(Item::Leaf { chain, block, index: 0 });
                    let trailer = if is_last && block == last { 0 } else { TRAILER };
                    let (trailer, mut message) =
                        leaf.and_then(|leaf| leaf.split_at_checked(trailer)).unwrap_or_default();
                    if is_update {
                        let Some(updates) = &mut self.updates else { continue };
                        let next = trailer.first_chunk().unwrap_or(&[0; 32]);
                        let part = (block, message, next);
                        let over = updates.receive((chain, messages), part, durable, notify)?;
                        if over.is_some() {
                            // There is room for the key, because the head was accepted.
                            let _ = durable.raise(head.key(), number)?;
                        }
                        if over == Some(true) {
                            self.receipts.note_whole(chain, block);
                        }
                        continue;
                    }
                    if head.is_addressed() {
                        let (place, outline) = ((chain, block), head.outline());
                        let address = &mut self.address;
                        match read_addressed(address, place, outline, key, message, &mut buffer) {
                            Ok(Read::Address) => {
                                self.receipts.note_acted(chain, block);
                                continue;
                            }
                            Ok(Read::Content(length)) => {
                                message = buffer.get(..length).unwrap_or_default();
                            }
                            Err(why) => {
                                // The other blocks of the chain cause no further notice.
                                if self.address.take().is_some() || block == 1 {
                                    notify(Notice::NotRead(number, why));
                                }
                                continue;
                            }
                        }
                    }
                    let command = Command::parse(message);
                    match (command, &mut self.updates) {
                        (Some(Command::Install(version)), Some(updates)) if messages == 1 => {
                            let owed = key.map(|key| (chain, key.receipt(bytes)));
                            if !updates.install(now_ms, version, owed, durable, notify)? {
                                continue;
                            }
                        }
                        (None | Some(Command::Install(_)), _) => {
                            notify(Notice::NoCommand(number));
                            continue;
                        }
                        (Some(command), _) => {
                            durable.set(command.applied(durable.memory().settings()))?;
                        }
                    }
                    if let Some(command) = command {
                        notify(Notice::Acted(number, command));
                    }
                    self.receipts.note_acted(chain, block);
                }
                if let (true, Some(key)) = (is_last, key) {
                    self.receipts.complete(now_ms, key, (chain, last), bytes);
                }
            }
            Some(Event::Refused(refused)) => notify(Notice::Refused(refused)),
            _ => {}
        }
        Ok(())
    }

    /// Returns whether the frame begins a chain that is ignored at this time. The frame is not verified.
    #[inline(never)]
    fn ignores(&mut self, earliest: Option<u64>, frame: &[u8], notify: &mut OnNotice<'_>) -> bool {
        let Some(head) = head_of(frame) else { return false };
        let updates = self.updates.as_deref();
        // The reception of an image goes on.
        if head.is_update_file()
            && updates.is_none_or(|updates| updates.reached(head.reference()).is_some())
        {
            return false;
        }
        let (number, window) = (head.id().number, head.window());
        let why = match window.check(earliest, CLOCK_OFFSET_SECONDS) {
            Err(why @ (Untimely::NoTrustedTime | Untimely::Early)) => why,
            _ => return false,
        };
        // Do not report a chain again when its head is repeated.
        if self.ignored.is_none_or(|ignored| ignored.number != number) {
            notify(Notice::NotObeyed(number, why));
        }
        let begin = earliest.map_or(0, |_| window.not_before);
        let (ask_at, last) =
            self.ignored.map_or((begin, begin), |of| (of.ask_at.min(begin), of.last.max(begin)));
        self.ignored = Some(Ignored { number, ask_at, last });
        true
    }

    /// Asks which chains there are, if chains were ignored and it is time to ask for them again.
    fn ask_again(&mut self, now: Now, earliest: Option<u64>) {
        if let (Some(unix), Some(ignored)) = (earliest, self.ignored)
            && unix >= ignored.ask_at
        {
            let ask_at = ignored.last.min(unix.saturating_add(ASK_AGAIN_SECONDS));
            self.ignored = (unix < ignored.last).then_some(Ignored { ask_at, ..ignored });
            self.node.solicit(now);
        }
    }

    /// If a frame is due, writes it to `out` and returns its length. `time` is as for
    /// [`receive`](Self::receive).
    ///
    /// # Errors
    /// [`JournalError`].
    #[inline(never)]
    pub fn next_body<F: Flash>(
        &mut self,
        now_ms: u64,
        time: Option<TimeRange>,
        out: &mut [u8],
        durable: &mut Durable<F>,
    ) -> Result<Option<usize>, JournalError> {
        let now = Now { ms: now_ms, unix: None };
        self.ask_again(now, time.map(|time| time.earliest_ms / 1000));
        let transmit = self.node.poll(
            now,
            &mut Kept { shelf: self.shelf, durable, updates: self.updates.as_deref() },
            out,
        );
        let length = only_journal(transmit)?.flatten().map(|transmit| transmit.length);
        Ok(length.or_else(|| self.receipts.next(now_ms, out)))
    }
}
