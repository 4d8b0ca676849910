//! The receiver of authenticated broadcasts (DESIGN section 8): one signature check a chain, one hash a message. Three sizes, for chains whose
//! blocks have at most 8, 32 and 64 messages.
//!
//! It checks and says what is missing. When to ask, what to store and whom to pass it on to is the application's; core's
//! `cast::recovery` is a whole node for that, which is not bound here.

use moteseal_core::cast::{
    BlockTooLarge, ChainNumber, Head, HeadError, Incoming, LeafError, MAX_HEAD, MAX_SNAPSHOT, NetworkId, NotInForce, Revocation,
    SenderCertificate, SenderCertificateError, SingleError, Taken, open_single,
};
use moteseal_core::record::DeviceId;
use moteseal_core::signature::PublicKey;
use moteseal_core::wire::cast::CastFrame;
use moteseal_core::wire::cbor::Writer;

use crate::device::algorithm;
use crate::error::moteseal_error;
use crate::error::moteseal_error as Error;
use crate::memory::{Opaque, begin, begun, buffer, bytes, call, checked, given, optional, put, state};

/// A frame with a sender's certificate.
pub const MOTESEAL_FRAME_CERTIFICATE: u8 = 32;
/// A frame with a base station's revocation.
pub const MOTESEAL_FRAME_REVOCATION: u8 = 33;
/// A frame with the head of a chain.
pub const MOTESEAL_FRAME_HEAD: u8 = 34;
/// A frame with a leaf of a chain: a message, and of a block's last one what announces the next block.
pub const MOTESEAL_FRAME_LEAF: u8 = 35;
/// A frame that says what somebody lacks.
pub const MOTESEAL_FRAME_WANTED: u8 = 36;
/// A frame that says what somebody has.
pub const MOTESEAL_FRAME_HOLDS: u8 = 37;
/// A frame with a whole chain of one message: a live command.
pub const MOTESEAL_FRAME_SINGLE: u8 = 38;
/// A frame with several leaves added up.
pub const MOTESEAL_FRAME_REPAIR: u8 = 39;

/// A leaf that was there already.
pub const MOTESEAL_TAKEN_REPEATED: u8 = 0;
/// A leaf whose tag fits: worth storing and passing on, not yet to be acted on.
pub const MOTESEAL_TAKEN_PENDING: u8 = 1;
/// A leaf that completes its block: every message of the block is authentic, act on them.
pub const MOTESEAL_TAKEN_VERIFIED: u8 = 2;

/// Bytes that suffice for a snapshot of a receiver.
pub const MOTESEAL_MAX_SNAPSHOT: usize = 624;
/// Bytes that suffice for a request.
pub const MOTESEAL_MAX_WANTED: usize = 32;

const _: () = assert!(MOTESEAL_MAX_SNAPSHOT == MAX_SNAPSHOT);
// Three array heads, a reference, a block and a mask.
const _: () = assert!(MOTESEAL_MAX_WANTED >= 1 + 2 + 9 + 5 + 9);

/// A base station: whose certificates count. Declare it as `moteseal_base base = {0};`. Nothing in it is secret.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_base {
    opaque: [u64; 28],
}

impl Opaque for moteseal_base {
    type Value = Base;
    const MARK: u32 = 0x6d73_6201;
}

/// See `moteseal_base`.
pub struct Base {
    network: NetworkId,
    key: PublicKey,
}

/// A sender whose certificate was checked. Declare it as `moteseal_sender sender = {0};`. Nothing in it is secret.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_sender {
    opaque: [u64; 30],
}

impl Opaque for moteseal_sender {
    type Value = Sender;
    const MARK: u32 = 0x6d73_6202;
}

/// See `moteseal_sender`.
pub struct Sender {
    network: NetworkId,
    id: DeviceId,
    serial: u64,
    key: PublicKey,
}

/// A receiver of one chain whose blocks have at most 8 messages. Declare it as `moteseal_cast8 cast = {0};`.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_cast8 {
    opaque: [u64; 102],
}

/// A receiver of one chain whose blocks have at most 32 messages. Declare it as `moteseal_cast32 cast = {0};`.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_cast32 {
    opaque: [u64; 246],
}

/// A receiver of one chain of any kind: blocks have at most 64 messages. Declare it as `moteseal_cast64 cast = {0};`.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_cast64 {
    opaque: [u64; 438],
}

impl Opaque for moteseal_cast8 {
    type Value = Follow<8>;
    const MARK: u32 = 0x6d73_6208;
}

impl Opaque for moteseal_cast32 {
    type Value = Follow<32>;
    const MARK: u32 = 0x6d73_6220;
}

impl Opaque for moteseal_cast64 {
    type Value = Follow<64>;
    const MARK: u32 = 0x6d73_6240;
}

/// See `moteseal_cast8` and its fellows.
pub struct Follow<const B: usize> {
    incoming: Incoming<B>,
    is_durable: bool,
}

/// A frame of a broadcast, read but not checked: anybody can write any. Its pointers lead into the bytes that were read.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct moteseal_frame {
    /// `MOTESEAL_FRAME_...`.
    pub kind: u8,
    /// The leaf's place in its block, of a leaf or holds frame.
    pub index: u8,
    /// Zeros.
    pub reserved: [u8; 2],
    /// The block, from 1, of a frame that speaks of one.
    pub block: u32,
    /// The chain's reference, of a frame that speaks of one.
    pub chain: [u8; 8],
    /// Which leaves, a bit each, of a wanted or repair frame.
    pub mask: u64,
    /// The certificate, revocation, head or leaf; of a single its head; of a repair the added bytes.
    pub body: *const u8,
    /// Its length in bytes.
    pub body_length: usize,
    /// Of a single its leaf.
    pub second: *const u8,
    /// Its length in bytes.
    pub second_length: usize,
}

/// What a head says. Its pointer leads into the head's bytes.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct moteseal_head_info {
    /// The chain's number. Make it durable before you act on anything that the chain says.
    pub number: u64,
    /// The chain's reference: what its frames name it by.
    pub chain: [u8; 8],
    /// What the chain is called: UTF-8 without control characters, not ended by a zero byte; may be empty.
    pub label: *const u8,
    /// Its length in bytes, at most 64.
    pub label_length: usize,
    /// Messages of the chain.
    pub messages: u32,
    /// Blocks of the chain.
    pub blocks: u32,
    /// 0 for messages that each stand for themselves, 1 for the pieces of one file, 2 for a querier's agenda.
    pub kind: u8,
    /// Zeros.
    pub reserved: [u8; 7],
}

/// What a leaf that was taken is. Its pointer leads into the frame's bytes.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct moteseal_taken {
    /// The leaf's message; null of a repeated one.
    pub message: *const u8,
    /// Its length in bytes.
    pub message_length: usize,
    /// The leaf's block, from 1.
    pub block: u32,
    /// `MOTESEAL_TAKEN_...`.
    pub what: u8,
    /// 1 if the chain is complete now.
    pub is_last: u8,
    /// Zeros.
    pub reserved: [u8; 2],
}

/// What was said in a chain of one. Its pointers lead into the frame's bytes.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct moteseal_said {
    /// The chain's number. Make it durable before you act on the message.
    pub number: u64,
    /// The message.
    pub message: *const u8,
    /// Its length in bytes.
    pub message_length: usize,
    /// What the chain is called: UTF-8 without control characters, not ended by a zero byte; may be empty.
    pub label: *const u8,
    /// Its length in bytes, at most 64.
    pub label_length: usize,
    /// 0 for a message, 1 for a file, 2 for a querier's agenda.
    pub kind: u8,
    /// Zeros.
    pub reserved: [u8; 7],
}

macro_rules! by_name {
    ($($error:ty),+ $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::named(error.name())
            }
        })+
    };
}
by_name!(BlockTooLarge, HeadError, LeafError, NotInForce, SenderCertificateError, SingleError);

/// Begins a base station from its public key.
///
/// @param key, key_length  The raw key.
/// @param network  The network's 8 bytes of id, or null for that of a base station by itself.
/// @return `UnknownAlgorithm`, `KeyLength`, `InvalidPublicKey`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_base_begin(
    base: *mut moteseal_base,
    key_algorithm: u8,
    key: *const u8,
    key_length: usize,
    network: *const u8,
) -> moteseal_error {
    call(|| {
        checked(base)?;
        // SAFETY: the caller keeps what the header asks; bytes need no alignment.
        let (key, network) = unsafe { (bytes(key, key_length)?, optional::<[u8; 8]>(network.cast())?) };
        let key = PublicKey::from_bytes(algorithm(key_algorithm)?, key)?;
        let network = network.map_or_else(|| NetworkId::of(&key), |id| NetworkId(*id));
        // SAFETY: as above.
        unsafe { begin(base, Base { network, key }) }
    })
}

/// Checks a sender's certificate and begins the sender.
///
/// @param certificate, length  The certificate (`moteseal key certify`, or the body of a certificate frame).
/// @param now  Seconds since 1970; 0 without a clock: then only the serial tells.
/// @param minimum_serial  The least serial that the base station stands by: the highest that `moteseal_revocation_open` ever gave; 0 before.
/// @return `WrongNetwork`, `UnknownBaseStation`, `NotAuthentic`, `NotYetValid`, `Expired`, `Revoked`, or the names of bytes and keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_sender_open(
    sender: *mut moteseal_sender,
    base: *const moteseal_base,
    certificate: *const u8,
    length: usize,
    now: u64,
    minimum_serial: u64,
) -> moteseal_error {
    call(|| {
        checked(sender)?;
        // SAFETY: the caller keeps what the header asks.
        let (base, certificate) = unsafe { (begun(base)?, bytes(certificate, length)?) };
        let certificate = SenderCertificate::open(certificate, base.network, &base.key)?;
        certificate.check((now != 0).then_some(now), minimum_serial)?;
        let value = Sender { network: base.network, id: certificate.sender, serial: certificate.serial, key: certificate.key()? };
        // SAFETY: as above.
        unsafe { begin(sender, value) }
    })
}

/// Says who a sender is.
///
/// @param id  8 bytes: its id.
/// @param serial  The serial of its certificate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_sender_info(sender: *const moteseal_sender, id: *mut u8, serial: *mut u64) -> moteseal_error {
    call(|| {
        checked(id)?;
        checked(serial)?;
        // SAFETY: the caller keeps what the header asks; bytes need no alignment.
        unsafe {
            let sender = begun(sender)?;
            put(id.cast(), sender.id.0)?;
            put(serial, sender.serial)
        }
    })
}

/// Checks a revocation.
///
/// @param minimum_serial  The least serial that still counts. Keep the highest, durably; a lower one than is kept says nothing.
/// @return `WrongNetwork`, `UnknownBaseStation`, `NotAuthentic`, or the names of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_revocation_open(
    base: *const moteseal_base,
    revocation: *const u8,
    length: usize,
    minimum_serial: *mut u64,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps what the header asks.
        let (base, revocation) = unsafe { (begun(base)?, bytes(revocation, length)?) };
        let (revocation, _) = Revocation::open(revocation, base.network, core::slice::from_ref(&base.key))?;
        // SAFETY: as above.
        unsafe { put(minimum_serial, revocation.minimum()) }
    })
}

/// Reads a frame: one datagram, one frame. Nothing in it has been checked but its form.
///
/// @param frame  Its pointers lead into `datagram`, which must stay as it is while they are used.
/// @return The names of bytes; `UnknownItem` for what is none of these frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_frame_read(datagram: *const u8, length: usize, frame: *mut moteseal_frame) -> moteseal_error {
    call(|| {
        checked(frame)?;
        // SAFETY: the caller keeps what the header asks.
        let datagram = unsafe { bytes(datagram, length)? };
        let none = core::ptr::null();
        let mut read = moteseal_frame {
            kind: 0,
            index: 0,
            reserved: [0; 2],
            block: 0,
            chain: [0; 8],
            mask: 0,
            body: none,
            body_length: 0,
            second: none,
            second_length: 0,
        };
        let (kind, body, second): (u8, &[u8], &[u8]) = match CastFrame::decode(datagram)? {
            CastFrame::Certificate(body) => (MOTESEAL_FRAME_CERTIFICATE, body, &[]),
            CastFrame::Revocation(body) => (MOTESEAL_FRAME_REVOCATION, body, &[]),
            CastFrame::Head(body) => (MOTESEAL_FRAME_HEAD, body, &[]),
            CastFrame::Fragment { chain, block, index, leaf } => {
                (read.chain, read.block, read.index) = (chain.0, block, index);
                (MOTESEAL_FRAME_LEAF, leaf, &[])
            }
            CastFrame::Wanted { chain, block, wanted } => {
                (read.chain, read.block, read.mask) = (chain.0, block, wanted);
                (MOTESEAL_FRAME_WANTED, &[], &[])
            }
            CastFrame::Holds { chain, block, index } => {
                (read.chain, read.block, read.index) = (chain.0, block, index);
                (MOTESEAL_FRAME_HOLDS, &[], &[])
            }
            CastFrame::Single { head, leaf } => (MOTESEAL_FRAME_SINGLE, head, leaf),
            CastFrame::Repair { chain, block, mask, bytes, .. } => {
                (read.chain, read.block, read.mask) = (chain.0, block, mask);
                (MOTESEAL_FRAME_REPAIR, bytes, &[])
            }
        };
        read.kind = kind;
        (read.body, read.body_length) = (body.as_ptr(), body.len());
        (read.second, read.second_length) = (second.as_ptr(), second.len());
        // SAFETY: as above.
        unsafe { put(frame, read) }
    })
}

/// Whether a chain's number may be accepted.
fn check_floor(number: ChainNumber, floor: Option<&u64>) -> Result<(), Error> {
    if floor.is_some_and(|floor| number.0 <= *floor) { Err(Error::ChainGoesBack) } else { Ok(()) }
}

/// Checks the frame of a chain of one message, a live command: one signature.
///
/// @param sender  Who must have said it.
/// @param datagram, length  The whole frame.
/// @param floor  The highest number that was ever accepted under this sender's key; null if none was.
/// @param said  Its pointers lead into `datagram`. Make `said->number` durable as the new floor, and only then act on the message.
/// @return `NotSingle`, `WrongNetwork`, `WrongSender`, `WrongKey`, `NotAuthentic`, `ForgedLeaf`, `ChainGoesBack`, or the names of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_single_open(
    sender: *const moteseal_sender,
    datagram: *const u8,
    length: usize,
    floor: *const u64,
    said: *mut moteseal_said,
) -> moteseal_error {
    call(|| {
        checked(said)?;
        // SAFETY: the caller keeps what the header asks.
        let (sender, datagram, floor) = unsafe { (begun(sender)?, bytes(datagram, length)?, optional(floor)?) };
        let mut scratch = [0; MAX_HEAD];
        let found = open_single(datagram, sender.network, sender.id, &sender.key, &mut scratch)?;
        check_floor(found.id().number, floor)?;
        let (message, label) = (found.message(), found.label());
        let value = moteseal_said {
            number: found.id().number.0,
            message: message.as_ptr(),
            message_length: message.len(),
            label: label.as_ptr(),
            label_length: label.len(),
            kind: found.kind().number(),
            reserved: [0; 7],
        };
        // SAFETY: as above.
        unsafe { put(said, value) }
    })
}

/// # Safety
/// As `moteseal_cast32_begin`.
unsafe fn begin_cast<C: Opaque<Value = Follow<B>>, const B: usize>(
    cast: *mut C,
    sender: *const moteseal_sender,
    head: *const u8,
    length: usize,
    floor: *const u64,
    info: *mut moteseal_head_info,
) -> Result<(), Error> {
    checked(cast)?;
    checked(info)?;
    // SAFETY: the caller keeps what the header asks.
    let (sender, bytes_of_head, floor) = unsafe { (begun(sender)?, bytes(head, length)?, optional(floor)?) };
    // What an old head would be refused for costs no signature check.
    check_floor(Head::peek(bytes_of_head)?.id().number, floor)?;
    let mut scratch = [0; MAX_HEAD];
    let head = Head::open(bytes_of_head, sender.network, sender.id, &sender.key, &mut scratch)?;
    let incoming = Incoming::new(&head)?;
    let label = head.label();
    let value = moteseal_head_info {
        number: head.id().number.0,
        chain: head.reference().0,
        label: label.as_ptr(),
        label_length: label.len(),
        messages: head.outline().messages,
        blocks: head.blocks(),
        kind: head.outline().kind.number(),
        reserved: [0; 7],
    };
    // SAFETY: as above.
    unsafe {
        put(info, value)?;
        begin(cast, Follow { incoming, is_durable: false })
    }
}

/// # Safety
/// As `moteseal_cast32_persisted`.
unsafe fn persisted<C: Opaque<Value = Follow<B>>, const B: usize>(cast: *mut C, number: u64) -> Result<(), Error> {
    // SAFETY: the caller keeps what the header asks.
    let follow = unsafe { state(cast)? };
    if number != follow.incoming.outline().id.number.0 {
        return Err(Error::Damaged);
    }
    follow.is_durable = true;
    Ok(())
}

/// # Safety
/// As `moteseal_cast32_take`.
unsafe fn take<C: Opaque<Value = Follow<B>>, const B: usize>(
    cast: *mut C,
    frame: *const moteseal_frame,
    taken: *mut moteseal_taken,
) -> Result<(), Error> {
    checked(taken)?;
    // SAFETY: the caller keeps what the header asks.
    let (follow, frame) = unsafe { (state(cast)?, given(frame)?) };
    if frame.kind != MOTESEAL_FRAME_LEAF {
        return Err(Error::UnknownItem);
    }
    if !follow.is_durable {
        return Err(Error::NotPersisted);
    }
    if frame.chain != follow.incoming.reference().0 {
        return Err(Error::WrongChain);
    }
    // SAFETY: as above: a frame's pointers lead to as many bytes as it says.
    let leaf = unsafe { bytes(frame.body, frame.body_length)? };
    let (message, what, is_last) = match follow.incoming.take(frame.block, frame.index, leaf)? {
        Taken::Repeated => (None, MOTESEAL_TAKEN_REPEATED, false),
        Taken::Pending { message } => (Some(message), MOTESEAL_TAKEN_PENDING, false),
        Taken::Verified { message, is_last, .. } => (Some(message), MOTESEAL_TAKEN_VERIFIED, is_last),
    };
    let value = moteseal_taken {
        message: message.map_or(core::ptr::null(), <[u8]>::as_ptr),
        message_length: message.map_or(0, <[u8]>::len),
        block: frame.block,
        what,
        is_last: is_last.into(),
        reserved: [0; 2],
    };
    // SAFETY: as above.
    unsafe { put(taken, value) }
}

/// # Safety
/// As `moteseal_cast32_missing`.
unsafe fn missing<C: Opaque<Value = Follow<B>>, const B: usize>(
    cast: *const C,
    block: *mut u32,
    mask: *mut u64,
) -> Result<(), Error> {
    checked(block)?;
    checked(mask)?;
    // SAFETY: the caller keeps what the header asks.
    unsafe {
        let incoming = &begun(cast)?.incoming;
        put(block, incoming.current())?;
        put(mask, if incoming.is_complete() { 0 } else { incoming.missing() })
    }
}

/// # Safety
/// As `moteseal_cast32_wanted`.
unsafe fn wanted<C: Opaque<Value = Follow<B>>, const B: usize>(
    cast: *const C,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> Result<(), Error> {
    // SAFETY: the caller keeps what the header asks.
    let (incoming, out) = unsafe { (&begun(cast)?.incoming, buffer(out, capacity)?) };
    let mut out = Writer::new(out);
    let wanted = if incoming.is_complete() { 0 } else { incoming.missing() };
    CastFrame::Wanted { chain: incoming.reference(), block: incoming.current(), wanted }.encode(&mut out)?;
    // SAFETY: as above.
    unsafe { put(length, out.position()) }
}

/// # Safety
/// As `moteseal_cast32_save`.
unsafe fn save<C: Opaque<Value = Follow<B>>, const B: usize>(
    cast: *const C,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> Result<(), Error> {
    // SAFETY: the caller keeps what the header asks.
    let (follow, out) = unsafe { (begun(cast)?, buffer(out, capacity)?) };
    if !follow.is_durable {
        return Err(Error::NotPersisted);
    }
    let written = follow.incoming.save(out)?.len();
    // SAFETY: as above.
    unsafe { put(length, written) }
}

/// # Safety
/// As `moteseal_cast32_restore`.
unsafe fn restore<C: Opaque<Value = Follow<B>>, const B: usize>(
    cast: *mut C,
    snapshot: *const u8,
    length: usize,
) -> Result<(), Error> {
    checked(cast)?;
    // SAFETY: the caller keeps what the header asks.
    let incoming = Incoming::restore(unsafe { bytes(snapshot, length)? })?;
    // SAFETY: as above.
    unsafe { begin(cast, Follow { incoming, is_durable: true }) }
}

/// Checks the head of a chain, one signature, and begins its receiver. Make `info->number` durable as the sender's new floor, read it back and show
/// it to `moteseal_cast8_persisted`: no leaf is taken before.
///
/// @param sender  Who must have signed it.
/// @param head, length  The body of a head frame.
/// @param floor  The highest number that was ever accepted under this sender's key; null if none was.
/// @param info  What the head says; its pointer leads into `head`.
/// @return `ChainGoesBack` (no signature is looked at), `WrongNetwork`, `WrongSender`, `WrongKey`, `NotAuthentic`, `BlockTooLarge` (blocks of more
///         than 8 messages), or the names of bytes; then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast8_begin(
    cast: *mut moteseal_cast8,
    sender: *const moteseal_sender,
    head: *const u8,
    length: usize,
    floor: *const u64,
    info: *mut moteseal_head_info,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { begin_cast(cast, sender, head, length, floor, info) })
}

/// Shows that the chain's number is durable.
///
/// @param number  What was read back from where the floor is kept.
/// @return `Damaged` if it is another number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast8_persisted(cast: *mut moteseal_cast8, number: u64) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { persisted(cast, number) })
}

/// Looks at a leaf: one hash. Those of a block may come in any order, blocks one after the other.
///
/// @param frame  A leaf frame, of `moteseal_frame_read`.
/// @param taken  Says what the leaf is; its pointer leads into the frame's bytes.
/// @return `NotPersisted`, `UnknownItem` (no leaf frame), `WrongChain`, `NotThisBlock`, `IndexOutOfRange`, `LeafTooLong`, `LeafTooShort`,
///         `ForgedLeaf`; then nothing has changed. `BlockMismatch`: forget everything that was stored of the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast8_take(
    cast: *mut moteseal_cast8,
    frame: *const moteseal_frame,
    taken: *mut moteseal_taken,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { take(cast, frame, taken) })
}

/// Says what is missing.
///
/// @param block  The block under way, from 1; one more than the chain has when it is complete.
/// @param mask  Which of its leaves are not here: bit `j` for leaf `j`. 0 when the chain is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast8_missing(cast: *const moteseal_cast8, block: *mut u32, mask: *mut u64) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { missing(cast, block, mask) })
}

/// Writes the frame that asks for what is missing. Ask seldom, after a random wait, and not when another was just heard to ask for the same.
///
/// @param out, capacity  `MOTESEAL_MAX_WANTED` bytes suffice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast8_wanted(
    cast: *const moteseal_cast8,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { wanted(cast, out, capacity, length) })
}

/// Writes where the receiver stands behind its verified blocks, to go on after a reboot: for the mote's own memory, where nobody else writes.
///
/// @param out, capacity  `MOTESEAL_MAX_SNAPSHOT` bytes suffice.
/// @return `NotBegun`, `NotPersisted`, `BufferTooSmall`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast8_save(
    cast: *const moteseal_cast8,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { save(cast, out, capacity, length) })
}

/// Begins a receiver where a snapshot left it.
///
/// @return The names of bytes; `FieldOutOfRange` of a chain with larger blocks than 8 messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast8_restore(cast: *mut moteseal_cast8, snapshot: *const u8, length: usize) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { restore(cast, snapshot, length) })
}

/// Checks the head of a chain, one signature, and begins its receiver. Make `info->number` durable as the sender's new floor, read it back and show
/// it to `moteseal_cast32_persisted`: no leaf is taken before.
///
/// @param sender  Who must have signed it.
/// @param head, length  The body of a head frame.
/// @param floor  The highest number that was ever accepted under this sender's key; null if none was.
/// @param info  What the head says; its pointer leads into `head`.
/// @return `ChainGoesBack` (no signature is looked at), `WrongNetwork`, `WrongSender`, `WrongKey`, `NotAuthentic`, `BlockTooLarge` (blocks of more
///         than 32 messages), or the names of bytes; then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast32_begin(
    cast: *mut moteseal_cast32,
    sender: *const moteseal_sender,
    head: *const u8,
    length: usize,
    floor: *const u64,
    info: *mut moteseal_head_info,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { begin_cast(cast, sender, head, length, floor, info) })
}

/// Shows that the chain's number is durable.
///
/// @param number  What was read back from where the floor is kept.
/// @return `Damaged` if it is another number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast32_persisted(cast: *mut moteseal_cast32, number: u64) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { persisted(cast, number) })
}

/// Looks at a leaf: one hash. Those of a block may come in any order, blocks one after the other.
///
/// @param frame  A leaf frame, of `moteseal_frame_read`.
/// @param taken  Says what the leaf is; its pointer leads into the frame's bytes.
/// @return `NotPersisted`, `UnknownItem` (no leaf frame), `WrongChain`, `NotThisBlock`, `IndexOutOfRange`, `LeafTooLong`, `LeafTooShort`,
///         `ForgedLeaf`; then nothing has changed. `BlockMismatch`: forget everything that was stored of the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast32_take(
    cast: *mut moteseal_cast32,
    frame: *const moteseal_frame,
    taken: *mut moteseal_taken,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { take(cast, frame, taken) })
}

/// Says what is missing.
///
/// @param block  The block under way, from 1; one more than the chain has when it is complete.
/// @param mask  Which of its leaves are not here: bit `j` for leaf `j`. 0 when the chain is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast32_missing(
    cast: *const moteseal_cast32,
    block: *mut u32,
    mask: *mut u64,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { missing(cast, block, mask) })
}

/// Writes the frame that asks for what is missing. Ask seldom, after a random wait, and not when another was just heard to ask for the same.
///
/// @param out, capacity  `MOTESEAL_MAX_WANTED` bytes suffice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast32_wanted(
    cast: *const moteseal_cast32,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { wanted(cast, out, capacity, length) })
}

/// Writes where the receiver stands behind its verified blocks, to go on after a reboot: for the mote's own memory, where nobody else writes.
///
/// @param out, capacity  `MOTESEAL_MAX_SNAPSHOT` bytes suffice.
/// @return `NotBegun`, `NotPersisted`, `BufferTooSmall`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast32_save(
    cast: *const moteseal_cast32,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { save(cast, out, capacity, length) })
}

/// Begins a receiver where a snapshot left it.
///
/// @return The names of bytes; `FieldOutOfRange` of a chain with larger blocks than 32 messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast32_restore(
    cast: *mut moteseal_cast32,
    snapshot: *const u8,
    length: usize,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { restore(cast, snapshot, length) })
}

/// Checks the head of a chain, one signature, and begins its receiver. Make `info->number` durable as the sender's new floor, read it back and show
/// it to `moteseal_cast64_persisted`: no leaf is taken before.
///
/// @param sender  Who must have signed it.
/// @param head, length  The body of a head frame.
/// @param floor  The highest number that was ever accepted under this sender's key; null if none was.
/// @param info  What the head says; its pointer leads into `head`.
/// @return `ChainGoesBack` (no signature is looked at), `WrongNetwork`, `WrongSender`, `WrongKey`, `NotAuthentic`, `BlockTooLarge` (blocks of more
///         than 64 messages), or the names of bytes; then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast64_begin(
    cast: *mut moteseal_cast64,
    sender: *const moteseal_sender,
    head: *const u8,
    length: usize,
    floor: *const u64,
    info: *mut moteseal_head_info,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { begin_cast(cast, sender, head, length, floor, info) })
}

/// Shows that the chain's number is durable.
///
/// @param number  What was read back from where the floor is kept.
/// @return `Damaged` if it is another number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast64_persisted(cast: *mut moteseal_cast64, number: u64) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { persisted(cast, number) })
}

/// Looks at a leaf: one hash. Those of a block may come in any order, blocks one after the other.
///
/// @param frame  A leaf frame, of `moteseal_frame_read`.
/// @param taken  Says what the leaf is; its pointer leads into the frame's bytes.
/// @return `NotPersisted`, `UnknownItem` (no leaf frame), `WrongChain`, `NotThisBlock`, `IndexOutOfRange`, `LeafTooLong`, `LeafTooShort`,
///         `ForgedLeaf`; then nothing has changed. `BlockMismatch`: forget everything that was stored of the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast64_take(
    cast: *mut moteseal_cast64,
    frame: *const moteseal_frame,
    taken: *mut moteseal_taken,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { take(cast, frame, taken) })
}

/// Says what is missing.
///
/// @param block  The block under way, from 1; one more than the chain has when it is complete.
/// @param mask  Which of its leaves are not here: bit `j` for leaf `j`. 0 when the chain is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast64_missing(
    cast: *const moteseal_cast64,
    block: *mut u32,
    mask: *mut u64,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { missing(cast, block, mask) })
}

/// Writes the frame that asks for what is missing. Ask seldom, after a random wait, and not when another was just heard to ask for the same.
///
/// @param out, capacity  `MOTESEAL_MAX_WANTED` bytes suffice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast64_wanted(
    cast: *const moteseal_cast64,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { wanted(cast, out, capacity, length) })
}

/// Writes where the receiver stands behind its verified blocks, to go on after a reboot: for the mote's own memory, where nobody else writes.
///
/// @param out, capacity  `MOTESEAL_MAX_SNAPSHOT` bytes suffice.
/// @return `NotBegun`, `NotPersisted`, `BufferTooSmall`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast64_save(
    cast: *const moteseal_cast64,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { save(cast, out, capacity, length) })
}

/// Begins a receiver where a snapshot left it.
///
/// @return The names of bytes; `FieldOutOfRange` of a chain with larger blocks than 64 messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_cast64_restore(
    cast: *mut moteseal_cast64,
    snapshot: *const u8,
    length: usize,
) -> moteseal_error {
    // SAFETY: the caller keeps what the header asks.
    call(|| unsafe { restore(cast, snapshot, length) })
}
