//! Seals: the statement made from a star or tree, its signature (by the mote's own key or by a
//! secure element), and its encodings.

use ::moteseal_seal::level::LevelKey;
use ::moteseal_seal::level::{Counters, Salt, SaltKey};
use ::moteseal_seal::stream::{self, Open, PART_OVERHEAD, Selection};
use ::moteseal_seal::{Answers, MAX_MESSAGE, Position, Seal, SealError, Statement, Unverified};
use moteseal_core::Digest;
use moteseal_core::cbor::{BufferTooSmall, Writer};
use moteseal_core::confidential::KeyCommitments;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Framing, SealIndex, Sequence};
use moteseal_core::schema::{Groups, Schema};
use moteseal_core::signature::{Algorithm, PublicKey};

use crate::boundary::{
    Opaque, begin, begun, buffer, bytes, call, checked, fixed, put, state, wipe,
};
use crate::chain_position::{Chain, MOTESEAL_CHAIN_RECORD, moteseal_chain};
use crate::device::{MOTESEAL_SIGNATURE, algorithm, moteseal_device, number_of};
use crate::error::moteseal_error;
use crate::error::moteseal_error as Error;

/// The maximum length of the message that a seal's signature covers, in bytes.
pub const MOTESEAL_MAX_MESSAGE: usize = 1144;
/// The maximum length of an open item, in bytes.
pub const MOTESEAL_MAX_OPEN: usize = 96;
/// The maximum length of a part's head and tail together, without the events, in bytes.
pub const MOTESEAL_PART_OVERHEAD: usize = 848;
/// The maximum length of a bundle without its schema and its events, in bytes.
pub const MOTESEAL_BUNDLE_OVERHEAD: usize = 976;
/// The maximum length of a seal as a separate signed object, in bytes.
pub const MOTESEAL_MAX_OBJECT: usize = 1280;

const _: () =
    assert!(MOTESEAL_MAX_MESSAGE == MAX_MESSAGE && MOTESEAL_PART_OVERHEAD == PART_OVERHEAD);
const _: () = assert!(MOTESEAL_BUNDLE_OVERHEAD >= 16 + MOTESEAL_MAX_OPEN + MOTESEAL_PART_OVERHEAD);
const _: () = assert!(MOTESEAL_MAX_OBJECT >= MAX_MESSAGE + 128);

/// The query epochs that a device answered since its last seal. The device's next seal must state
/// all of them: otherwise an aggregator can claim that the device did not answer. Declare it as
/// `moteseal_answers answers = {0};`: zeros mean that the set is empty.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_answers {
    opaque: [u64; 42],
}

impl Opaque for moteseal_answers {
    type Value = Answers;
    const MARK: u32 = 0x6d73_6101;
}

/// The unsigned seal of a closed star or tree. Declare it as `moteseal_seal seal = {0};`.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct moteseal_seal {
    opaque: [u64; 150],
}

impl Opaque for moteseal_seal {
    type Value = Closed;
    const MARK: u32 = 0x6d73_7301;
}

/// The value of a `moteseal_seal`.
pub struct Closed {
    seal: Seal<Unverified>,
    framing: Framing,
    roster_version: u32,
}

/// The properties of a seal. Plain data.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct moteseal_seal_info {
    /// The seal's digest. The next seal refers to it as its predecessor.
    pub digest: [u8; 32],
    /// The epoch.
    pub epoch: u64,
    /// The index.
    pub index: u32,
    /// The number of events.
    pub events: u32,
    /// The group's number of levels.
    pub levels: u8,
    /// 1 for a tree, 0 for a star.
    pub is_tree: u8,
    /// `MOTESEAL_ED25519` or `MOTESEAL_ESP256`.
    pub algorithm: u8,
    /// 1 if no further seal covers the epoch.
    pub last_in_epoch: u8,
    /// 1 if the device restarted since the previous seal.
    pub restart: u8,
    /// Zeros.
    pub reserved: [u8; 3],
}

/// The open seal for which a star or tree was begun.
pub(crate) struct OpenSeal {
    pub(crate) index: SealIndex,
    pub(crate) salt: Salt,
    epoch: EpochNumber,
    device: DeviceId,
    levels: u8,
    groups: Groups,
}

/// What a star or tree contributes to its seal.
pub(crate) struct Folded {
    pub(crate) scheme: Scheme,
    pub(crate) counters: Counters,
    pub(crate) root: Digest,
}

impl OpenSeal {
    pub(crate) fn new(
        device: &moteseal_device,
        chain: &Chain,
        salt_key: &SaltKey,
        groups: Groups,
    ) -> Result<Self, Error> {
        device.check()?;
        if device.column_groups != groups.bits() {
            return Err(Error::ColumnGroups);
        }
        let ((index, epoch), (_, id)) = (chain.opened()?, device.ids());
        let (salt, levels) = (salt_key.salt(id, index), device.levels);
        Ok(Self { index, epoch, salt, device: id, levels, groups })
    }
}

/// The arguments with which a star or tree is closed, after all checks.
pub(crate) struct Closing<'c> {
    open_seal: &'c OpenSeal,
    device: &'c moteseal_device,
    chain: &'c Chain,
    algorithm: Algorithm,
    last_in_epoch: bool,
    answers: Option<&'c Answers>,
}

impl<'c> Closing<'c> {
    /// Checks the arguments: the seal must still be the chain's open seal, and the device must be
    /// the one that began it.
    pub(crate) fn new(
        open_seal: &'c OpenSeal,
        device: &'c moteseal_device,
        chain: &'c Chain,
        last_in_epoch: u8,
        answers: Option<&'c moteseal_answers>,
    ) -> Result<Self, Error> {
        let is_this = chain.opened()? == (open_seal.index, open_seal.epoch)
            && device.column_groups == open_seal.groups.bits();
        if !is_this || device.ids().1 != open_seal.device || device.levels != open_seal.levels {
            return Err(Error::NotOfThisSeal);
        }
        if last_in_epoch > 1 {
            return Err(Error::FieldOutOfRange);
        }
        let answers = match answers.map(|answers| {
            // SAFETY: a reference points to valid memory; zeros mean no answers.
            unsafe { begun(answers) }
        }) {
            None | Some(Err(Error::NotBegun)) => None,
            Some(answers) => Some(answers?),
        };
        Ok(Self {
            open_seal,
            device,
            chain,
            algorithm: device.check()?,
            last_in_epoch: last_in_epoch == 1,
            answers,
        })
    }

    /// Makes the seal and begins the state `seal` with it.
    ///
    /// # Safety
    /// `seal` points to memory for a seal.
    pub(crate) unsafe fn seal(
        &self,
        keys: Option<KeyCommitments>,
        folded: Folded,
        seal: *mut moteseal_seal,
    ) -> Result<(), Error> {
        let Self { open_seal, device, chain, .. } = self;
        let (group, id) = device.ids();
        let mut statement =
            Statement::new(folded.scheme, group, Digest(device.roster), id, device.levels);
        statement.index = open_seal.index;
        (statement.prev, statement.last) = (chain.position.prev, chain.position.last);
        statement.epoch = open_seal.epoch;
        statement.last_in_epoch = self.last_in_epoch;
        statement.restart = chain.restarted(open_seal.index);
        statement.schema = Digest(device.schema);
        statement.keys = keys;
        (statement.salt, statement.groups) = (open_seal.salt, open_seal.groups);
        statement.counters = folded.counters;
        if let Some(answers) = self.answers {
            statement.answered = *answers;
        }
        let closed = Closed {
            seal: Seal::new(statement, folded.root, self.algorithm),
            framing: device.framing(),
            roster_version: device.roster_version,
        };
        // SAFETY: the caller's contract.
        unsafe { begin(seal, closed) }
    }
}

impl From<SealError> for Error {
    fn from(error: SealError) -> Self {
        Self::named(error.name())
    }
}

impl Closed {
    fn statement(&self) -> &Statement {
        self.seal.statement()
    }

    /// Checks the total length of a seal's events. If events have no fixed size, only the minimum
    /// length is known.
    fn check_events(&self, length: usize) -> Result<(), Error> {
        let total = self.statement().counters.total();
        let fits = match self.framing {
            Framing::Fixed(size) => u64::try_from(length) == Ok(total * u64::from(size.get())),
            Framing::Prefixed => length as u64 >= 2 * total,
        };
        if fits { Ok(()) } else { Err(Error::EventsLength) }
    }

    fn open_item(&self, out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        let statement = self.statement();
        let (device, prev, last) = (statement.device, Some(statement.prev), statement.last);
        Open { device, roster_version: self.roster_version, prev, last }.encode(out)
    }

    fn part_head(&self, out: &mut Writer<'_>, events: usize) -> Result<(), BufferTooSmall> {
        stream::encode_part_head(
            out,
            &self.seal,
            Selection::Levels(self.statement().surviving()),
            &[],
            events,
        )
    }

    /// Calls `take` with the level and the framed bytes of each record.
    fn each<'r>(
        &self,
        records: &'r [u8],
        mut take: impl FnMut(usize, &'r [u8]),
    ) -> Result<(), Error> {
        let statement = self.statement();
        let (key, levels) = (LevelKey::new(&statement.salt), statement.counters.levels());
        let mut rest = records;
        for seq in 0..statement.counters.total() {
            let (_, tail) = self.framing.split_first(rest).ok_or(Error::EventsLength)?;
            let (record, _) = rest.split_at(rest.len() - tail.len());
            take(key.level(seq, levels).0.into(), record);
            rest = tail;
        }
        if rest.is_empty() { Ok(()) } else { Err(Error::EventsLength) }
    }

    /// Writes the records in the order in which a part contains them: for a tree, the order in
    /// which they were pushed; for a star, level by level, the highest level first.
    fn arrange(&self, records: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let mut cursors = [0; 32];
        self.each(records, |level, record| {
            if let Some(length) = cursors.get_mut(level) {
                *length += record.len();
            }
        })?;
        if self.statement().scheme == Scheme::Tree {
            out.copy_from_slice(records);
            return Ok(());
        }
        let mut end = 0;
        for cursor in cursors.iter_mut().rev() {
            let length = *cursor;
            *cursor = end;
            end += length;
        }
        self.each(records, |level, record| {
            if let Some(cursor) = cursors.get_mut(level) {
                if let Some(place) = out.get_mut(*cursor..*cursor + record.len()) {
                    place.copy_from_slice(record);
                }
                *cursor += record.len();
            }
        })
    }
}

fn signature_of(closed: &Closed, signature: &[u8]) -> Result<(), Error> {
    if signature.len() == closed.seal.algorithm().signature_length() {
        Ok(())
    } else {
        Err(Error::MalformedSignature)
    }
}

/// Adds a query epoch that the device answered. `moteseal_permit_info` returns its query and epoch.
///
/// @param query  16 bytes.
/// @return `Full` if the set already holds as many answers as one seal can state: close the seal,
///         clear the set, and add the answer again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_answers_add(
    answers: *mut moteseal_answers,
    query: *const u8,
    epoch: u64,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract; zeros are an empty set of answers.
        let (query, answers) = unsafe {
            let query = fixed::<16>(query)?;
            if let Err(Error::NotBegun) = state(answers) {
                begin(answers, Answers::NONE)?;
            }
            (query, state(answers)?)
        };
        if answers.add(*query, epoch) { Ok(()) } else { Err(Error::Full) }
    })
}

/// Removes all answers, once the seal that states them is durable. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_answers_clear(answers: *mut moteseal_answers) {
    // SAFETY: the caller keeps the header's contract.
    unsafe { wipe(answers) };
}

/// Returns the properties of a seal.
///
/// @return `NotBegun`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_seal_info_of(
    seal: *const moteseal_seal,
    info: *mut moteseal_seal_info,
) -> moteseal_error {
    call(|| {
        checked(info)?;
        // SAFETY: the caller keeps the header's contract.
        let closed = unsafe { begun(seal)? };
        let statement = closed.statement();
        let value = moteseal_seal_info {
            digest: closed.seal.digest().0,
            epoch: statement.epoch.0,
            index: statement.index.0,
            events: u32::try_from(statement.counters.total()).unwrap_or(u32::MAX),
            levels: statement.counters.levels(),
            is_tree: (statement.scheme == Scheme::Tree).into(),
            algorithm: number_of(closed.seal.algorithm())?,
            last_in_epoch: statement.last_in_epoch.into(),
            restart: statement.restart.into(),
            reserved: [0; 3],
        };
        // SAFETY: as above.
        unsafe { put(info, value) }
    })
}

/// Returns the level of an event. The part of a star contains the events of the highest level
/// first, then those of the next lower level, and so on; within a level, events are in the order in
/// which they were pushed.
///
/// @param sequence  The event's sequence number in the seal, counted from 0.
/// @return `NotBegun`, `FieldOutOfRange` if there is no such event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_seal_level(
    seal: *const moteseal_seal,
    sequence: u32,
    level: *mut u8,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let statement = unsafe { begun(seal)? }.statement();
        if u64::from(sequence) >= statement.counters.total() {
            return Err(Error::FieldOutOfRange);
        }
        let found = statement.salt.level(Sequence(sequence.into()), statement.counters.levels());
        // SAFETY: as above.
        unsafe { put(level, found.0) }
    })
}

/// Writes the bytes to sign: pass them to `moteseal_sign`, a secure element or another signer. If a
/// secure element for P-256 expects a digest, pass it the SHA-256 digest of these bytes. Ed25519
/// signs the bytes themselves.
///
/// @param out, capacity  `MOTESEAL_MAX_MESSAGE` bytes suffice.
/// @return `NotBegun`, `BufferTooSmall`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_seal_message(
    seal: *const moteseal_seal,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    call(|| {
        checked(length)?;
        // SAFETY: the caller keeps the header's contract.
        let (closed, out) = unsafe { (begun(seal)?, buffer(out, capacity)?) };
        let mut scratch = [0; MAX_MESSAGE];
        let message = closed.seal.message(&mut scratch);
        out.get_mut(..message.len()).ok_or(Error::BufferTooSmall)?.copy_from_slice(message);
        // SAFETY: as above.
        unsafe { put(length, message.len()) }
    })
}

/// Checks a signature of the seal with a public key. Do this once for each new signer, to detect a
/// faulty signer before verifiers reject its seals.
///
/// @param key, key_length  The raw public key, of the device's algorithm.
/// @param signature, signature_length  The signature from the signer.
/// @return `KeyLength`, `InvalidPublicKey`, `AlgorithmMismatch`, `MalformedSignature`, `HighS` (use
///         `moteseal_esp256_normalize`), `NotAuthentic`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_seal_check(
    seal: *const moteseal_seal,
    key_algorithm: u8,
    key: *const u8,
    key_length: usize,
    signature: *const u8,
    signature_length: usize,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let (closed, key, signature) =
            unsafe { (begun(seal)?, bytes(key, key_length)?, bytes(signature, signature_length)?) };
        let key = PublicKey::from_bytes(algorithm(key_algorithm)?, key)?;
        Ok(closed.seal.signed_by(&key, signature)?)
    })
}

/// Advances the chain past a signed seal. Make `record` durable together with the data to send, and
/// send the data only afterwards. A mote that sends a seal and then loses the record would make
/// another seal with the same index.
///
/// @param record  `MOTESEAL_CHAIN_RECORD` bytes to make durable.
/// @return `NotBegun`, `NotOpen`, `NotOfThisSeal`. After an error, nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_seal_commit(
    seal: *const moteseal_seal,
    chain: *mut moteseal_chain,
    record: *mut u8,
) -> moteseal_error {
    call(|| {
        checked(record)?;
        // SAFETY: the caller keeps the header's contract.
        let (closed, chain) = unsafe { (begun(seal)?, state(chain)?) };
        let (statement, Position { prev, .. }) = (closed.statement(), chain.position);
        if chain.opened()? != (statement.index, statement.epoch) || statement.prev != prev {
            return Err(Error::NotOfThisSeal);
        }
        chain.commit(closed.seal.position());
        // SAFETY: as above; bytes need no alignment.
        unsafe { put::<[u8; MOTESEAL_CHAIN_RECORD]>(record.cast(), chain.record()) }
    })
}

/// Writes a schema item. It is the first item of a bundle, and the first item to send to a receiver
/// that does not have the schema.
///
/// @param schema, schema_length  The encoded schema that `moteseal_device_set_schema` checked; this
///        function does not read it.
/// @param out, capacity  The length of the schema plus 16 bytes suffices.
/// @return `BufferTooSmall`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_schema_item(
    schema: *const u8,
    schema_length: usize,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let (schema, out) = unsafe { (bytes(schema, schema_length)?, buffer(out, capacity)?) };
        let mut out = Writer::new(out);
        stream::encode_schema(&mut out, schema)?;
        // SAFETY: as above.
        unsafe { put(length, out.position()) }
    })
}

/// Writes the seal's open item, which is the second item of a bundle: it states the device and its
/// chain's position before this seal.
///
/// @param out, capacity  `MOTESEAL_MAX_OPEN` bytes suffice.
/// @return `NotBegun`, `BufferTooSmall`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_open_item(
    seal: *const moteseal_seal,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let (closed, out) = unsafe { (begun(seal)?, buffer(out, capacity)?) };
        let mut out = Writer::new(out);
        closed.open_item(&mut out)?;
        // SAFETY: as above.
        unsafe { put(length, out.position()) }
    })
}

/// Writes the head of the seal's part item: everything before its events. A mote that streams the
/// events from flash sends the head, then the events, then the tail.
///
/// Send the same bytes of each event that were pushed; if `record_size` is 0, send the event's
/// length before it (two bytes, big-endian). Send the events of a tree in the order in which they
/// were pushed, and those of a star level by level, the highest level first
/// (`moteseal_seal_level`).
///
/// @param events_length  The total length of all events in bytes, including their length fields.
/// @param out, capacity  `MOTESEAL_PART_OVERHEAD` bytes suffice.
/// @return `NotBegun`, `EventsLength` if the sealed events cannot have this total length,
///         `BufferTooSmall`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_part_head(
    seal: *const moteseal_seal,
    events_length: usize,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let (closed, out) = unsafe { (begun(seal)?, buffer(out, capacity)?) };
        closed.check_events(events_length)?;
        let mut out = Writer::new(out);
        closed.part_head(&mut out, events_length)?;
        // SAFETY: as above.
        unsafe { put(length, out.position()) }
    })
}

/// Writes the end of the seal's part item, which contains the signature over the bytes that
/// `moteseal_seal_message` returned.
///
/// @param signature, signature_length  `MOTESEAL_SIGNATURE` bytes.
/// @param out, capacity  `MOTESEAL_SIGNATURE + 8` bytes suffice.
/// @return `NotBegun`, `MalformedSignature`, `BufferTooSmall`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_part_tail(
    seal: *const moteseal_seal,
    signature: *const u8,
    signature_length: usize,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let (closed, signature, out) =
            unsafe { (begun(seal)?, bytes(signature, signature_length)?, buffer(out, capacity)?) };
        signature_of(closed, signature)?;
        let mut out = Writer::new(out);
        stream::encode_part_tail(&mut out, Some(signature))?;
        // SAFETY: as above.
        unsafe { put(length, out.position()) }
    })
}

/// Writes the bundle of a seal, a `.mseal` file for `moteseal verify` and `moteseal push`: the
/// schema, the open item, and the part with all events and the signature.
///
/// @param schema, schema_length  The schema of the device.
/// @param records, records_length  All events in the order in which they were pushed, without gaps.
///        If `record_size` is 0, each event has its length before it (two bytes, big-endian).
/// @param signature, signature_length  The signature over the bytes that `moteseal_seal_message`
///        returned.
/// @param out, capacity  `MOTESEAL_BUNDLE_OVERHEAD + schema_length + records_length` bytes suffice.
///        It must not overlap the records.
/// @return `NotBegun`, `MalformedSignature`, `EventsLength` if the number of events is not what was
///         sealed, `NotOfThisSeal` if the schema is not the seal's, `BufferTooSmall`. The function
///         does not check that the records are the events that were pushed.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn moteseal_bundle(
    seal: *const moteseal_seal,
    schema: *const u8,
    schema_length: usize,
    records: *const u8,
    records_length: usize,
    signature: *const u8,
    signature_length: usize,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    call(|| {
        checked(length)?;
        // SAFETY: the caller keeps the header's contract.
        let (closed, schema, records, signature, out) = unsafe {
            (
                begun(seal)?,
                bytes(schema, schema_length)?,
                bytes(records, records_length)?,
                bytes(signature, signature_length)?,
                buffer(out, capacity)?,
            )
        };
        signature_of(closed, signature)?;
        let of_schema = Schema::decode(schema)?;
        if of_schema.digest() != closed.statement().schema {
            return Err(Error::NotOfThisSeal);
        }
        closed.check_events(records.len())?;
        let mut writer = Writer::new(out);
        stream::encode_schema(&mut writer, schema)?;
        closed.open_item(&mut writer)?;
        closed.part_head(&mut writer, records.len())?;
        let start = writer.position();
        let end = start.checked_add(records.len()).ok_or(Error::BufferTooSmall)?;
        closed.arrange(records, out.get_mut(start..end).ok_or(Error::BufferTooSmall)?)?;
        let mut tail = Writer::new(out.get_mut(end..).ok_or(Error::BufferTooSmall)?);
        stream::encode_part_tail(&mut tail, Some(signature))?;
        let written = end + tail.position();
        // SAFETY: as above.
        unsafe { put(length, written) }
    })
}

/// Writes a seal without its events as a signed object: a tagged COSE_Sign1 (RFC 9052).
///
/// @param out, capacity  `MOTESEAL_MAX_OBJECT` bytes suffice.
/// @return `NotBegun`, `MalformedSignature`, `BufferTooSmall`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_seal_object(
    seal: *const moteseal_seal,
    signature: *const u8,
    signature_length: usize,
    out: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> moteseal_error {
    call(|| {
        // SAFETY: the caller keeps the header's contract.
        let (closed, signature, out) =
            unsafe { (begun(seal)?, bytes(signature, signature_length)?, buffer(out, capacity)?) };
        signature_of(closed, signature)?;
        let mut out = Writer::new(out);
        closed.seal.encode(&mut out, signature)?;
        // SAFETY: as above.
        unsafe { put(length, out.position()) }
    })
}

/// Overwrites a seal with zeros. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn moteseal_seal_wipe(seal: *mut moteseal_seal) {
    // SAFETY: the caller keeps the header's contract.
    unsafe { wipe(seal) };
}

const _: () = assert!(MOTESEAL_SIGNATURE == 64);
