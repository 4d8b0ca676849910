//! The records of a mote's journal: the state at the journal's start, and the mote's inputs.
//!
//! The first byte of a record is its kind. Numbers are big-endian, and lengths in bytes are in
//! parentheses. `?` is one byte: 0 if the following value is absent, or 1 if it follows:
//!
//! - 0: the start of the journal:
//!   - the device (8), the schema's digest (32), the maximum number of waiting seals (4);
//!   - the chain at this time: `prev` (32), `?` index (4), `?` epoch (8), whether that epoch is
//!     closed (1), next index (4), `?` epoch (8);
//!   - the newest epoch that has readings: `?` epoch (8), the number of its readings (8);
//!   - 1 for trees, 0 or nothing for stars (1);
//!   - the roster that seals name: its version (4), its digest (32). In journals of earlier versions
//!     it is absent: version 0.
//! - 1: a reading: its epoch (8), the record.
//! - 2: an announcement, as it was received.
//! - 3: an acknowledgement, as earlier versions received it (they did not write kind 14).
//! - 4: an epoch (8) was begun.
//! - 5: an epoch (8) has ended.
//! - 6: seals were given up: the next index (4), the newest epoch (8), its readings (8), whether
//!   the previous seal was the last of its epoch (1; if absent, it was).
//! - 7: a seal (4) was given up, because the gateway refuses it or has lost data that it had
//!   acknowledged; the answers that the seal stated, as in 12.
//! - 8: indices were opened and never used: the next index (4).
//! - 9: an epoch of a query of the querier with the default name was answered: the query (16), the
//!   length of its epochs in milliseconds (8), the epoch (8).
//! - 10: a query schedule of the querier with the default name was accepted: its number (8), its
//!   digest (32).
//! - 11: the state of the epoch guard of the querier with the default name.
//! - 12: the answers that no seal stated: runs of a query (16), the first epoch (8) and their
//!   number (4).
//! - 13: the open seal had no room for an answer: it was closed, and its epoch (8) continues.
//! - 14: the gateway has stored the events of a seal (4) before a sequence number (8), and the
//!   waiting seals up to an index: `?` index (4).
//! - 15: the gateway had more than this state: all seals were given up, and the chain continues at
//!   the next index (4), after the newest stored seal: `?` index (4), epoch (8), whether that epoch
//!   is closed (1), digest (32).
//! - 16: what the mote may have sent before a session in which the gateway has not answered yet:
//!   `?` next index (4), number of events of the seal before it (8). Absent once the gateway has
//!   answered.
//! - 17: a later version (4) of the roster, which seals name from here on; its digest (32).
//! - 18: a later version of the roster has made a seal (4) outdated: this seal and all later ones
//!   were given up, and the chain continues after the seal before it.
//! - 19: what was spent of the budget for answers with noise: a [`Ledger`].
//! - 20: a query schedule of a further querier was accepted: the id of its name (8), its number (8),
//!   its digest (32).
//! - 21: the state of the epoch guard of a further querier: the id of its name (8), the state.
//! - 22: an epoch of a query of a further querier was answered: the id of its name (8), and as in 9.
//! - 23: the epoch guard of a querier has forgotten a query: the id of its name (8), the query (16).
//! - 24: an urgent event that the gateway has not stored: the length of its stream schema (2), the
//!   schema, the signed event. A record of kind 1 before it has the reading.
//! - 25: an urgent event is stored or given up: its digest (32).
//! - 26: an urgent event may have been sent: its digest (32).
//! - 27: the keys of the encrypted columns of the seal that an input opens: the number of commitments
//!   (1), the nonce (12), the commitments (16 each); then the record of the input, of the kind 1, 4
//!   or 13. The readings of such a seal are ciphertext.

use moteseal_core::cbor::Reader;
use moteseal_core::confidential::{KeyCommitments, MAX_KEY_COMMITMENTS};
use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_seal::wire::StoredSeal;
use moteseal_seal::{Answered, Position};
use moteseal_sum::QuerierName;
use moteseal_sum::guard::{EpochGuard, GUARD_LENGTH};
use moteseal_sum::policy::Ledger;
use moteseal_sum::query::QueryId;

use super::Before;
use crate::mote::{Progress, SentBefore, Unstated};
use crate::seal::{Chain, RosterName};

/// One input of a mote.
#[derive(Debug)]
pub(super) enum Input<'a> {
    Reading(EpochNumber, &'a [u8]),
    Announcement(&'a [u8]),
    Begin(EpochNumber),
    End(EpochNumber),
    PassOver(SealIndex, EpochNumber, u64, bool),
    GiveUp(SealIndex, Unstated),
    SkipTo(SealIndex),
    Answered { querier: DeviceId, query: QueryId, duration_ms: u64, epoch: u64 },
    QuerySchedule(DeviceId, u64, Digest),
    Guard(DeviceId, Box<EpochGuard>),
    Forget(DeviceId, QueryId),
    Unstated(Unstated),
    Part(EpochNumber),
    Progress(Progress),
    ContinueAfter(SealIndex, Option<StoredSeal>),
    SentBefore(Option<SentBefore>),
    Roster(RosterName),
    Leave(SealIndex),
    Ledger(Ledger),
    Urgent { schema: &'a [u8], event: &'a [u8] },
    UrgentDone(Digest),
    UrgentSent(Digest),
}

impl<'a> Input<'a> {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Reading(epoch, record) => [&[1][..], &epoch.0.to_be_bytes(), record].concat(),
            Self::Announcement(bytes) => [&[2][..], bytes].concat(),
            Self::Begin(epoch) => [&[4][..], &epoch.0.to_be_bytes()].concat(),
            Self::End(epoch) => [&[5][..], &epoch.0.to_be_bytes()].concat(),
            Self::PassOver(index, epoch, readings, closed) => [
                &[6][..],
                &index.0.to_be_bytes(),
                &epoch.0.to_be_bytes(),
                &readings.to_be_bytes(),
                &[u8::from(*closed)],
            ]
            .concat(),
            Self::GiveUp(index, answers) => {
                [&[7][..], &index.0.to_be_bytes(), &runs(answers)].concat()
            }
            Self::SkipTo(next) => [&[8][..], &next.0.to_be_bytes()].concat(),
            Self::Answered { querier, query, duration_ms, epoch } => [
                &of_querier(9, 22, querier)[..],
                &query.0,
                &duration_ms.to_be_bytes(),
                &epoch.to_be_bytes(),
            ]
            .concat(),
            Self::QuerySchedule(querier, number, digest) => {
                [&of_querier(10, 20, querier)[..], &number.to_be_bytes(), &digest.0].concat()
            }
            Self::Guard(querier, guard) => {
                [&of_querier(11, 21, querier)[..], &guard.encode()].concat()
            }
            Self::Forget(querier, query) => [&[23][..], &querier.0, &query.0].concat(),
            Self::Unstated(answers) => [&[12][..], &runs(answers)].concat(),
            Self::Part(epoch) => [&[13][..], &epoch.0.to_be_bytes()].concat(),
            Self::Progress(Progress { index, next, sealed }) => {
                let sealed = sealed.map(|sealed| sealed.0.to_be_bytes());
                let sealed = optional(sealed.as_ref().map(|index| &index[..]));
                [&[14][..], &index.0.to_be_bytes(), &next.0.to_be_bytes(), &sealed].concat()
            }
            Self::ContinueAfter(next, stored) => {
                let stored = stored.map(|stored| {
                    [
                        &stored.index.0.to_be_bytes()[..],
                        &stored.epoch.0.to_be_bytes(),
                        &[u8::from(stored.last_in_epoch)],
                        &stored.digest.0,
                    ]
                    .concat()
                });
                [&[15][..], &next.0.to_be_bytes(), &optional(stored.as_deref())].concat()
            }
            Self::Roster(roster) => [&[17][..], &encode_roster(roster)].concat(),
            Self::Leave(index) => [&[18][..], &index.0.to_be_bytes()].concat(),
            Self::Urgent { schema, event } => {
                // A valid schema is shorter than 2^16 bytes.
                let length = u16::try_from(schema.len()).unwrap_or(0);
                let schema = schema.get(..usize::from(length)).unwrap_or_default();
                [&[24][..], &length.to_be_bytes(), schema, event].concat()
            }
            Self::UrgentDone(digest) => [&[25][..], &digest.0].concat(),
            Self::UrgentSent(digest) => [&[26][..], &digest.0].concat(),
            Self::Ledger(ledger) => [&[19][..], &ledger.encode()].concat(),
            Self::SentBefore(before) => {
                let before = before.map(|SentBefore { next_index, events }| {
                    [&next_index.0.to_be_bytes()[..], &events.to_be_bytes()].concat()
                });
                [&[16][..], &optional(before.as_deref())].concat()
            }
        }
    }

    pub(super) fn decode(record: &'a [u8]) -> Option<Self> {
        let (kind, rest) = record.split_first()?;
        let epoch = |bytes: &[u8]| Some(EpochNumber(u64::from_be_bytes(bytes.try_into().ok()?)));
        Some(match kind {
            1 => {
                let (at, record) = rest.split_first_chunk::<8>()?;
                Self::Reading(EpochNumber(u64::from_be_bytes(*at)), record)
            }
            2 => Self::Announcement(rest),
            3 => Self::Progress(earlier_acknowledgement(rest)?),
            4 => Self::Begin(epoch(rest)?),
            5 => Self::End(epoch(rest)?),
            6 => {
                let (index, rest) = rest.split_first_chunk()?;
                let (at, rest) = rest.split_first_chunk::<8>()?;
                let (readings, rest) = rest.split_first_chunk()?;
                let closed = match rest {
                    [] | [1] => true,
                    [0] => false,
                    _ => return None,
                };
                let index = SealIndex(u32::from_be_bytes(*index));
                Self::PassOver(
                    index,
                    EpochNumber(u64::from_be_bytes(*at)),
                    u64::from_be_bytes(*readings),
                    closed,
                )
            }
            7 => {
                let (index, answers) = rest.split_first_chunk()?;
                Self::GiveUp(SealIndex(u32::from_be_bytes(*index)), unstated(answers)?)
            }
            8 => Self::SkipTo(SealIndex(u32::from_be_bytes(rest.try_into().ok()?))),
            9 | 22 => whole(rest, |rest| {
                let querier = take_querier(*kind == 22, rest)?;
                let (query, duration_ms) = (QueryId(take(rest)?), u64::from_be_bytes(take(rest)?));
                let epoch = u64::from_be_bytes(take(rest)?);
                Some(Self::Answered { querier, query, duration_ms, epoch })
            })?,
            10 | 20 => whole(rest, |rest| {
                let querier = take_querier(*kind == 20, rest)?;
                let (number, digest) = (u64::from_be_bytes(take(rest)?), Digest(take(rest)?));
                Some(Self::QuerySchedule(querier, number, digest))
            })?,
            11 | 21 => whole(rest, |rest| {
                let querier = take_querier(*kind == 21, rest)?;
                let guard = EpochGuard::decode(&take::<GUARD_LENGTH>(rest)?).ok()?;
                Some(Self::Guard(querier, Box::new(guard)))
            })?,
            12 => Self::Unstated(unstated(rest)?),
            13 => Self::Part(epoch(rest)?),
            14 => whole(rest, |rest| {
                let index = SealIndex(u32::from_be_bytes(take(rest)?));
                let next = Sequence(u64::from_be_bytes(take(rest)?));
                let sealed = take_optional(rest)?.map(u32::from_be_bytes).map(SealIndex);
                Some(Self::Progress(Progress { index, next, sealed }))
            })?,
            15 => whole(rest, |rest| {
                let next = SealIndex(u32::from_be_bytes(take(rest)?));
                let stored = match take::<1>(rest)? {
                    [0] => None,
                    _ => Some(StoredSeal {
                        index: SealIndex(u32::from_be_bytes(take(rest)?)),
                        epoch: EpochNumber(u64::from_be_bytes(take(rest)?)),
                        last_in_epoch: take(rest)? != [0],
                        digest: Digest(take(rest)?),
                    }),
                };
                Some(Self::ContinueAfter(next, stored))
            })?,
            16 => whole(rest, |rest| {
                let before = match take::<1>(rest)? {
                    [0] => None,
                    _ => Some(SentBefore {
                        next_index: SealIndex(u32::from_be_bytes(take(rest)?)),
                        events: u64::from_be_bytes(take(rest)?),
                    }),
                };
                Some(Self::SentBefore(before))
            })?,
            17 => whole(rest, |rest| Some(Self::Roster(take_roster(rest)?)))?,
            18 => Self::Leave(SealIndex(u32::from_be_bytes(rest.try_into().ok()?))),
            19 => Self::Ledger(Ledger::decode(rest)?),
            23 => {
                whole(rest, |rest| Some(Self::Forget(DeviceId(take(rest)?), QueryId(take(rest)?))))?
            }
            24 => {
                let (length, rest) = rest.split_first_chunk()?;
                let length = usize::from(u16::from_be_bytes(*length));
                let (schema, event) = rest.split_at_checked(length)?;
                Self::Urgent { schema, event }
            }
            25 => Self::UrgentDone(Digest(rest.try_into().ok()?)),
            26 => Self::UrgentSent(Digest(rest.try_into().ok()?)),
            _ => return None,
        })
    }
}

/// Reads an acknowledgement in the form in which earlier versions wrote it to the journal: `[16,
/// device, index, next, sealed / null, wants]` and a tag of 16 bytes, which was checked before.
fn earlier_acknowledgement(frame: &[u8]) -> Option<Progress> {
    let (item, _) = frame.split_last_chunk::<16>()?;
    let mut reader = Reader::new(item).ok()?;
    reader.array(6).ok()?;
    let (16, Ok(_)) = (reader.u64().ok()?, reader.fixed::<8>()) else { return None };
    let (index, next) = (SealIndex(reader.uint().ok()?), Sequence(reader.u64().ok()?));
    let sealed = reader.optional(Reader::uint).ok()?.map(SealIndex);
    Some(Progress { index, next, sealed })
}

/// Returns the start of a record of a querier: its kind and, for a further querier, the id of its name.
fn of_querier(default: u8, further: u8, querier: &DeviceId) -> Vec<u8> {
    if *querier == QuerierName::default().id() {
        vec![default]
    } else {
        [&[further], &querier.0[..]].concat()
    }
}

/// Reads the id of a further querier's name, or returns that of the default name.
fn take_querier(is_further: bool, rest: &mut &[u8]) -> Option<DeviceId> {
    if is_further { take(rest).map(DeviceId) } else { Some(QuerierName::default().id()) }
}

fn encode_roster(roster: &RosterName) -> Vec<u8> {
    [&roster.version.to_be_bytes()[..], &roster.digest.0].concat()
}

fn take_roster(rest: &mut &[u8]) -> Option<RosterName> {
    let version = u32::from_be_bytes(take(rest)?);
    Some(RosterName { version, digest: Digest(take(rest)?) })
}

/// Encodes 0 if the bytes are absent, or 1 and the bytes.
fn optional(bytes: Option<&[u8]>) -> Vec<u8> {
    bytes.map_or_else(|| vec![0], |bytes| [&[1], bytes].concat())
}

/// Reads all of the bytes with `read`, which removes what it has read; `None` if any are left.
fn whole<'a, T>(mut bytes: &'a [u8], read: impl FnOnce(&mut &'a [u8]) -> Option<T>) -> Option<T> {
    let read = read(&mut bytes)?;
    bytes.is_empty().then_some(read)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*bytes)
}

fn take_optional<const N: usize>(rest: &mut &[u8]) -> Option<Option<[u8; N]>> {
    match take::<1>(rest)? {
        [0] => Some(None),
        _ => Some(Some(take(rest)?)),
    }
}

/// The kind of a record with keys.
const KEYS: u8 = 27;

/// Returns a record of the kind 27 with these keys and the record of an input; without keys, the
/// record of the input.
pub(super) fn with_keys(keys: Option<&KeyCommitments>, input: Vec<u8>) -> Vec<u8> {
    let Some(keys) = keys else { return input };
    // A schema has at most 16 encrypted columns.
    let count = u8::try_from(keys.commitments().len()).unwrap_or(0);
    [&[KEYS, count][..], keys.encode(&mut [0; MAX_KEY_COMMITMENTS]), &input].concat()
}

/// Splits the keys off a record of the kind 27. Other records have no keys.
pub(super) fn split_keys(record: &[u8]) -> Option<(Option<KeyCommitments>, &[u8])> {
    let Some(rest) = record.strip_prefix(&[KEYS]) else { return Some((None, record)) };
    let (count, rest) = rest.split_first()?;
    let (keys, input) = rest.split_at_checked(12 + 16 * usize::from(*count))?;
    let opens_seal = matches!(input.first(), Some(1 | 4 | 13));
    let keys = KeyCommitments::decode(keys).filter(|_| opens_seal)?;
    Some((Some(keys), input))
}

/// Returns whether a record, other than the first one, concerns no seal. Such records are kept even
/// if no seal waits.
pub(super) fn is_of_no_seal(record: &[u8]) -> bool {
    matches!(record.first(), Some(2 | 9..=12 | 16 | 17 | 19..=26))
}

/// Returns whether a rewritten journal has other records instead of this one: at its end what was
/// sent, and at its start the urgent events that wait.
pub(super) fn is_replaced(record: &[u8]) -> bool {
    matches!(record.first(), Some(16 | 24..=26))
}

/// The length of an encoded run of answers, in bytes.
const RUN: usize = 28;

fn runs(answers: &Unstated) -> Vec<u8> {
    let run = |run: &Answered| {
        [&run.query[..], &run.first.to_be_bytes(), &run.count.to_be_bytes()].concat()
    };
    answers.runs().iter().flat_map(run).collect()
}

fn unstated(bytes: &[u8]) -> Option<Unstated> {
    let (runs, rest) = bytes.as_chunks::<RUN>();
    let mut answers = Unstated::default();
    for run in runs {
        let (query, run) = run.split_first_chunk()?;
        let (first, count) = run.split_first_chunk()?;
        let (first, count) =
            (u64::from_be_bytes(*first), u32::from_be_bytes(count.try_into().ok()?));
        answers.add(Answered { query: *query, first, count });
    }
    rest.is_empty().then_some(answers)
}

/// Returns the record which states that everything before it was given up.
pub(super) fn pass_over(before: &Before) -> Option<Vec<u8>> {
    let readings = before.taken.map_or(0, |(_, readings)| readings);
    // The last signed seal precedes the seals that were given up. It may have closed its epoch.
    let closed = before.chain.position.epoch_closed;
    Some(Input::PassOver(before.chain.next_index, before.chain.epoch?, readings, closed).encode())
}

/// The first record of a journal.
pub(super) struct Start {
    pub(super) device: DeviceId,
    pub(super) schema: Digest,
    pub(super) scheme: Scheme,
    pub(super) most_waiting: u32,
    pub(super) before: Before,
}

impl Start {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Chain { position, next_index, epoch, .. } = self.before.chain;
        let (index, last) = position
            .last
            .map(|(index, epoch)| (index.0.to_be_bytes(), epoch.0.to_be_bytes()))
            .unzip();
        let epoch = epoch.map(|epoch| epoch.0.to_be_bytes());
        let (taken, readings) =
            self.before.taken.map(|(epoch, readings)| (epoch.0.to_be_bytes(), readings)).unzip();
        [
            &[0][..],
            &self.device.0,
            &self.schema.0,
            &self.most_waiting.to_be_bytes(),
            &position.prev.0,
            &optional(index.as_ref().map(|index| &index[..])),
            &optional(last.as_ref().map(|epoch| &epoch[..])),
            &[u8::from(position.epoch_closed)],
            &next_index.0.to_be_bytes(),
            &optional(epoch.as_ref().map(|epoch| &epoch[..])),
            &optional(taken.as_ref().map(|epoch| &epoch[..])),
            &readings.unwrap_or(0).to_be_bytes(),
            &[self.scheme.number()],
            &encode_roster(&self.before.roster),
        ]
        .concat()
    }

    /// Decodes the first record. `first_roster` is the digest of version 0 of the roster.
    pub(super) fn decode(record: &[u8], first_roster: Digest) -> Option<Self> {
        let mut rest = record.strip_prefix(&[0])?;
        let rest = &mut rest;
        let (device, schema) = (DeviceId(take(rest)?), Digest(take(rest)?));
        let most_waiting = u32::from_be_bytes(take(rest)?);
        let prev = Digest(take(rest)?);
        let index = take_optional(rest)?.map(|index| SealIndex(u32::from_be_bytes(index)));
        let last = take_optional(rest)?.map(|epoch| EpochNumber(u64::from_be_bytes(epoch)));
        let [closed] = take(rest)?;
        let position = Position { prev, last: index.zip(last), epoch_closed: closed != 0 };
        let next_index = SealIndex(u32::from_be_bytes(take(rest)?));
        let epoch = take_optional(rest)?.map(|epoch| EpochNumber(u64::from_be_bytes(epoch)));
        let taken = take_optional(rest)?.map(|epoch| EpochNumber(u64::from_be_bytes(epoch)));
        let readings = u64::from_be_bytes(take(rest)?);
        let chain = Chain { position, next_index, epoch, readings: 0, covered: None };
        let scheme = match rest.split_first() {
            // Journals that were written before trees were supported have no scheme.
            None | Some((0, _)) => Scheme::Star,
            Some((1, _)) => Scheme::Tree,
            Some(_) => return None,
        };
        let roster = match rest.get(1..) {
            None | Some([]) => RosterName { version: 0, digest: first_roster },
            Some(mut rest) => take_roster(&mut rest).filter(|_| rest.is_empty())?,
        };
        let before = Before {
            chain,
            taken: taken.map(|epoch| (epoch, readings)),
            announcement: None,
            unstated: Unstated::default(),
            roster,
        };
        Some(Self { device, schema, scheme, most_waiting, before })
    }
}
