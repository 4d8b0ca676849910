//! An open seal: hashes its events and forwards them to the coordinator.
//!
//! The seal is signed only after the coordinator has acknowledged all events, so that a signed seal
//! never depends on events that a reboot would lose. After a reboot, the index of the unsigned seal
//! is not used again, and the next seal states this gap (`restart`). No signed event is lost.

use moteseal_core::cbor::{BufferTooSmall, Writer};
use moteseal_core::digest::Digest;
use moteseal_core::provision::Provisioning;
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Framing, Level, Round, SealIndex, Sequence};
use moteseal_core::schema::{GroupLayout, Schema};
use moteseal_core::signature::{SignError, Signer as _};
use moteseal_seal::device_session::link_statement;
use moteseal_seal::follow::Limits;
use moteseal_seal::level::LevelKey;
use moteseal_seal::level::{Counters, SaltKey};
use moteseal_seal::sample::Forwarder;
use moteseal_seal::star::{GroupedStarState, LevelDigest, PushError};
use moteseal_seal::stream::{
    self, Open as OpenItem, Selection, encode_part_head, encode_part_tail,
};
use moteseal_seal::tree::Tree;
use moteseal_seal::{Answers, MAX_MESSAGE, Position, Seal, Star, Statement, Unverified, star};

use crate::column_keys::{Encryption, MAX_RECORD, SealKeys};
use crate::durable::MAX_ITEMS;
use crate::fault::Fault;

/// The height of a tree. It allows about a million events.
const HEIGHT: usize = 20;

/// The maximum number of column groups of the schema.
pub(crate) const MAX_GROUPS: usize = 2;

/// The hashing state of an open seal, from which the seal's root is computed.
// The variants differ in size, but there is no heap to which the larger one could be moved.
#[allow(clippy::large_enum_variant)]
enum Fold<const L: usize> {
    Star(Star<L>),
    /// The star of a schema with column groups. It is in two parts, so that no copy of the digests is
    /// made on the stack.
    Grouped {
        star: GroupedStarState,
        digests: [[LevelDigest; MAX_GROUPS]; L],
    },
    Tree {
        tree: Tree<HEIGHT>,
        counters: Counters,
        key: LevelKey,
    },
}

/// An open seal for groups of at most `L` levels, with a buffer of `N` bytes for events that the
/// coordinator has not acknowledged.
pub(crate) struct Open<const L: usize, const N: usize> {
    pub(crate) index: SealIndex,
    pub(crate) epoch: EpochNumber,
    pub(crate) forwarder: Forwarder<N>,
    /// `Some` once the seal has ended: no further event follows. The value states whether the epoch
    /// has also ended.
    pub(crate) ended: Option<bool>,
    fold: Fold<L>,
    /// The encryption of the records, if the schema has encrypted columns.
    encryption: Option<Encryption>,
}

/// The open item and the part item of a signed seal.
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
    /// Opens a seal. `layout` has the column groups of the schema, if it has any: such a seal is a
    /// star. Returns `None` if the group of devices has more than `L` levels, or the schema has more
    /// than [`MAX_GROUPS`] groups.
    pub(crate) fn new(
        provisioning: &Provisioning<'_>,
        (framing, layout): (Framing, Option<GroupLayout>),
        (index, epoch): (SealIndex, EpochNumber),
        scheme: Scheme,
        announced: Round,
        encryption: Option<Encryption>,
    ) -> Option<Self> {
        let salt = SaltKey::new(*provisioning.salt_key).salt(provisioning.device, index);
        let (device, levels) = (provisioning.device, provisioning.levels);
        let fold = match (scheme, layout) {
            (Scheme::Star, None) => {
                Fold::Star(Star::with_levels(device, index, &salt, framing, levels)?)
            }
            (Scheme::Star, Some(layout)) => {
                if usize::from(levels) > L || layout.all().len() > MAX_GROUPS {
                    return None;
                }
                let of_star = (layout, framing);
                Fold::Grouped {
                    star: GroupedStarState::new(device, index, &salt, of_star, levels)?,
                    digests: [[LevelDigest::EMPTY; MAX_GROUPS]; L],
                }
            }
            (Scheme::Tree, _) => Fold::Tree {
                tree: Tree::new(),
                counters: Counters::new(levels),
                key: LevelKey::new(&salt),
            },
        };
        let forwarder =
            Forwarder::new(index, epoch, (scheme, framing), provisioning.levels, announced);
        Some(Self { index, epoch, forwarder, ended: None, fold, encryption })
    }

    /// Encrypts and adds the next event. Returns an error if the seal has no room for it.
    pub(crate) fn take(&mut self, record: &[u8]) -> Result<(), PushError> {
        if self.forwarder.noted() >= Limits::default().max_events {
            return Err(PushError::Full);
        }
        // From here on, the record is ciphertext. If it finds no room, the seal ends, so that no other
        // record is encrypted for the same place.
        let mut buffer = [0; MAX_RECORD];
        let seq = Sequence(self.forwarder.noted().into());
        let record = match &mut self.encryption {
            Some(encryption) => {
                encryption.encrypt(seq, record, &mut buffer).ok_or(PushError::Full)?
            }
            None => record,
        };
        let level = match &mut self.fold {
            // A star always has room, because its forwarder gives up levels if necessary.
            Fold::Star(star) => star.push(record)?,
            Fold::Grouped { star, digests } => star.push(digests.as_flattened_mut(), record)?,
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

    /// Ends the seal, so that no event follows.
    pub(crate) fn end(&mut self, is_epoch_over: bool) {
        self.ended.get_or_insert(is_epoch_over);
        self.forwarder.end();
    }

    /// Returns the seal to sign, which follows `position` in the chain and states these answers.
    /// Call this method only once, because it consumes a star.
    pub(crate) fn seal(
        &mut self,
        provisioning: &Provisioning<'_>,
        schema: Digest,
        position: &Position,
        answers: &Answers,
    ) -> Seal<Unverified> {
        let scheme =
            if matches!(self.fold, Fold::Tree { .. }) { Scheme::Tree } else { Scheme::Star };
        let mut statement = Statement::new(
            scheme,
            provisioning.group,
            provisioning.roster.0,
            provisioning.device,
            provisioning.levels,
        );
        link_statement(&mut statement, position, &self.forwarder);
        (statement.epoch, statement.last_in_epoch) = (self.epoch, self.ended.unwrap_or(false));
        statement.schema = schema;
        statement.keys = self.encryption.as_ref().map(Encryption::commitments);
        statement.salt = SaltKey::new(*provisioning.salt_key).salt(provisioning.device, self.index);
        statement.answered = *answers;
        let root = match &mut self.fold {
            Fold::Star(star) => root_of_star(&mut statement, star.close_in_place()),
            Fold::Grouped { star, digests } => {
                statement.groups = star.groups();
                let mut of_levels = [Digest::NULL; L];
                let counters = star.close(digests.as_flattened_mut(), |level, _, digest| {
                    if let Some(place) = of_levels.get_mut(level) {
                        *place = digest;
                    }
                });
                root_of_star(&mut statement, (counters, of_levels))
            }
            Fold::Tree { tree, counters, .. } => {
                statement.counters = *counters;
                tree.root()
            }
        };
        Seal::new(statement, root, provisioning.signer.algorithm())
    }
}

/// Returns the root of a star with these counters and digests, and writes its counters to the
/// statement.
#[inline(never)]
fn root_of_star<const L: usize>(
    statement: &mut Statement,
    (counters, mut digests): (Counters, [Digest; L]),
) -> Digest {
    statement.counters = counters;
    for (level, digest) in (0..counters.levels()).map(Level).zip(&mut digests) {
        if statement.is_null(level) {
            *digest = Digest::NULL;
        }
    }
    star::root(&counters, &digests)
}

/// Opens a seal, with the keys of the schema's encrypted columns if it has any, and the number of the
/// mote's starts. This function is never inlined, so that its temporary values occupy the stack only
/// during the call.
///
/// # Errors
/// `NoKeys`, `Schema`.
#[inline(never)]
pub(crate) fn begin<const L: usize, const N: usize>(
    open: &mut Option<Open<L, N>>,
    (provisioning, keys, starts): (&Provisioning<'_>, Option<&dyn SealKeys>, u32),
    framing: Framing,
    which: (SealIndex, EpochNumber),
    scheme: Scheme,
    announced: Round,
) -> Result<(), Fault> {
    let seal = (provisioning.device, which.0);
    let encryption = keys.map(|keys| keys.encryption(provisioning.schema, seal, starts));
    // Without its keys, nothing is sealed in plaintext.
    let encryption = encryption.map(|encryption| encryption.ok_or(Fault::NoKeys)).transpose()?;
    let schema = Schema::decode(provisioning.schema).map_err(|_| Fault::Schema)?;
    let layout = GroupLayout::new(&schema, schema.groups());
    *open = Open::new(provisioning, (framing, layout), which, scheme, announced, encryption);
    Ok(())
}

/// Signs a seal and writes the items of its closing frame.
#[inline(never)]
pub(crate) fn sign(
    provisioning: &Provisioning<'_>,
    position: &Position,
    seal: &Seal<Unverified>,
) -> Result<Items, SignError> {
    let signature = {
        let mut message = [0; MAX_MESSAGE];
        provisioning.signer.signature(seal.message(&mut message))?
    };
    items(provisioning, position, seal, &signature).map_err(|_| SignError::BufferTooSmall)
}

fn items(
    provisioning: &Provisioning<'_>,
    position: &Position,
    seal: &Seal<Unverified>,
    signature: &[u8],
) -> Result<Items, BufferTooSmall> {
    let mut items = Items { bytes: [0; MAX_ITEMS], open: 0, length: 0 };
    let mut out = Writer::new(&mut items.bytes);
    let open = OpenItem {
        device: provisioning.device,
        roster_version: provisioning.roster.1,
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

/// Returns the number of events that a part item states.
pub(crate) fn events_of(part: &[u8]) -> u64 {
    match stream::Item::decode_whole(part) {
        Ok(stream::Item::Part(part)) => u64::from(part.n),
        _ => 0,
    }
}
