//! An open seal: its events are hashed and forwarded, until the coordinator has all of them and the
//! seal is signed.
//!
//! It is signed only then, so that a signed seal never waits for events that a reboot would lose. A
//! reboot costs an index that was never signed, which the next seal states (`restart`), and nothing
//! that was signed.

use moteseal_core::cbor::{BufferTooSmall, Writer};
use moteseal_core::digest::Digest;
use moteseal_core::provision::Provisioning;
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Framing, Round, SealIndex};
use moteseal_core::signature::{SignError, Signer as _};
use moteseal_seal::device_session::link_statement;
use moteseal_seal::follow::Limits;
use moteseal_seal::level::LevelKey;
use moteseal_seal::level::{Counters, SaltKey};
use moteseal_seal::sample::Forwarder;
use moteseal_seal::star::PushError;
use moteseal_seal::stream::{
    self, Open as OpenItem, Selection, encode_part_head, encode_part_tail,
};
use moteseal_seal::tree::Tree;
use moteseal_seal::{Answers, MAX_MESSAGE, Position, Seal, Star, Statement, Unverified, star};

use crate::durable::MAX_ITEMS;

/// A tree takes a million events.
const HEIGHT: usize = 20;

/// What a seal's root is made from.
// One of them is in use, and there is no heap to put it on.
#[allow(clippy::large_enum_variant)]
enum Fold<const L: usize> {
    Star(Star<L>),
    Tree { tree: Tree<HEIGHT>, counters: Counters, key: LevelKey },
}

/// An open seal whose group has `L` levels, with `N` bytes for events on their way.
pub(crate) struct Open<const L: usize, const N: usize> {
    pub(crate) index: SealIndex,
    pub(crate) epoch: EpochNumber,
    pub(crate) forwarder: Forwarder<N>,
    /// No event follows; whether that is the epoch's end.
    pub(crate) ended: Option<bool>,
    fold: Fold<L>,
}

/// The open and the part item of a signed seal.
pub(crate) struct Items {
    bytes: [u8; MAX_ITEMS],
    open: usize,
    length: usize,
}

impl Items {
    pub(crate) fn open(&self) -> &[u8] {
        self.bytes.get(..self.open).unwrap_or_default()
    }

    pub(crate) fn part(&self) -> &[u8] {
        self.bytes.get(self.open..self.length).unwrap_or_default()
    }
}

impl<const L: usize, const N: usize> Open<L, N> {
    /// `None` if the group has more levels than there is room for.
    pub(crate) fn new(
        told: &Provisioning<'_>,
        framing: Framing,
        (index, epoch): (SealIndex, EpochNumber),
        scheme: Scheme,
        announced: Round,
    ) -> Option<Self> {
        let salt = SaltKey::new(*told.salt_key).salt(told.device, index);
        let fold = match scheme {
            Scheme::Star => {
                Fold::Star(Star::with_levels(told.device, index, &salt, framing, told.levels)?)
            }
            Scheme::Tree => Fold::Tree {
                tree: Tree::new(),
                counters: Counters::new(told.levels),
                key: LevelKey::new(&salt),
            },
        };
        let forwarder = Forwarder::new(index, epoch, (scheme, framing), told.levels, announced);
        Some(Self { index, epoch, forwarder, ended: None, fold })
    }

    /// Takes the next event, or says why it cannot be this seal's.
    pub(crate) fn take(&mut self, record: &[u8]) -> Result<(), PushError> {
        if self.forwarder.noted() >= Limits::default().max_events {
            return Err(PushError::Full);
        }
        let level = match &mut self.fold {
            // A star has room for any event: its forwarder gives up levels.
            Fold::Star(star) => star.push(record)?,
            Fold::Tree { tree, counters, key } => {
                let level = key.level(counters.total(), counters.levels());
                if tree.len() >= Tree::<HEIGHT>::CAPACITY
                    || !self.forwarder.make_room(level, record)
                {
                    return Err(PushError::Full);
                }
                tree.push(record).map_err(|_| PushError::Full)?;
                if let Some(count) = counters.as_mut_slice().get_mut(usize::from(level.0)) {
                    *count += 1;
                }
                level
            }
        };
        let _ = self.forwarder.note(level, record);
        Ok(())
    }

    /// No event follows.
    pub(crate) fn end(&mut self, is_epoch_over: bool) {
        self.ended.get_or_insert(is_epoch_over);
        self.forwarder.end();
    }

    /// The seal, to be signed behind `position`, that states these answers. It is made once: a star
    /// is spent with it.
    pub(crate) fn seal(
        &mut self,
        told: &Provisioning<'_>,
        schema: Digest,
        position: &Position,
        answers: &Answers,
    ) -> Seal<Unverified> {
        let scheme = if matches!(self.fold, Fold::Star(_)) { Scheme::Star } else { Scheme::Tree };
        let mut statement =
            Statement::new(scheme, told.group, told.roster.0, told.device, told.levels);
        link_statement(&mut statement, position, &self.forwarder);
        (statement.epoch, statement.last_in_epoch) = (self.epoch, self.ended.unwrap_or(false));
        statement.schema = schema;
        statement.salt = SaltKey::new(*told.salt_key).salt(told.device, self.index);
        statement.answered = *answers;
        let root = match &mut self.fold {
            Fold::Star(star) => {
                let (counters, mut digests) = star.close_in_place();
                statement.counters = counters;
                for (level, digest) in (0..told.levels).map(moteseal_core::Level).zip(&mut digests)
                {
                    if statement.is_null(level) {
                        *digest = Digest::NULL;
                    }
                }
                star::root(&counters, &digests)
            }
            Fold::Tree { tree, counters, .. } => {
                statement.counters = *counters;
                tree.root()
            }
        };
        Seal::new(statement, root, told.signer.algorithm())
    }
}

/// Signs a seal and writes the items of its closing frame.
#[inline(never)]
pub(crate) fn sign(
    told: &Provisioning<'_>,
    position: &Position,
    seal: &Seal<Unverified>,
) -> Result<Items, SignError> {
    let signature = {
        let mut message = [0; MAX_MESSAGE];
        told.signer.signature(seal.message(&mut message))?
    };
    items(told, position, seal, &signature).map_err(|_| SignError::BufferTooSmall)
}

fn items(
    told: &Provisioning<'_>,
    position: &Position,
    seal: &Seal<Unverified>,
    signature: &[u8],
) -> Result<Items, BufferTooSmall> {
    let mut items = Items { bytes: [0; MAX_ITEMS], open: 0, length: 0 };
    let mut out = Writer::new(&mut items.bytes);
    let open = OpenItem {
        device: told.device,
        roster_version: told.roster.1,
        prev: Some(position.prev),
        last: position.last,
    };
    open.encode(&mut out)?;
    let end = out.position();
    let levels = Selection::Levels(seal.statement().surviving());
    encode_part_head(&mut out, seal, levels, &[], 0)?;
    encode_part_tail(&mut out, Some(signature))?;
    (items.open, items.length) = (end, out.position());
    Ok(items)
}

/// How many events a part item says that its seal has.
pub(crate) fn events_of(part: &[u8]) -> u64 {
    match stream::Item::decode_whole(part) {
        Ok(stream::Item::Part(part)) => u64::from(part.n),
        _ => 0,
    }
}
