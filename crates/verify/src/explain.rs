//! Finds the error in a run that failed verification, by comparing its parts with the explaining
//! form of their seals (spec/answers.md, section 8).
//!
//! If any part of a run is wrong, the whole run fails. The verifier then asks the store for the
//! explaining form of each seal: the seal as the device signed it, and the digests from which its
//! root is computed. The first difference from the run is the finding. If the store does not return
//! a seal's explaining form, that is also a finding.

use std::fmt;

use moteseal_core::cbor::DecodeError;
use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, Framing, Level, MAX_LEVELS, SealIndex, Sequence};
use moteseal_core::roster::Directory;
use moteseal_core::schema::SchemaError;
use moteseal_lanes::Host;
use moteseal_seal::follow::{Limits, OpenError, PartError};
use moteseal_seal::level::lowest;
use moteseal_seal::star::pruned_evidence;
use moteseal_seal::stream::{Item, Part, Select};
use moteseal_seal::tree::{Tree, geometry, leaf};
use moteseal_seal::{Authentic, Follower, Seal, SealError, Statement, Unverified, star};

use crate::event::SchemaEntry;

/// Why a part of a run failed verification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Finding {
    /// The run's bytes, or the explained seal, do not decode.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A schema of the run does not decode.
    #[error(transparent)]
    Schema(SchemaError),
    /// The run's open item does not fit the roster or the known seals.
    #[error(transparent)]
    Open(OpenError),
    /// The part cannot belong to any seal.
    #[error(transparent)]
    Part(PartError),
    /// The explained seal is not proven.
    #[error(transparent)]
    Seal(SealError),
    /// The store does not return the explaining form of the seal.
    #[error("the store does not return the explaining form of the seal")]
    Withheld,
    /// The device's statement differs from the part's.
    #[error("the device stated a different {field}")]
    Statement {
        /// The first field that differs.
        field: &'static str,
    },
    /// The explaining form does not have the number of digests that the statement requires.
    #[error("the explaining form has the wrong number of digests")]
    DigestCount,
    /// The explained digests do not lead to the signed root.
    #[error("the explained digests do not lead to the signed root")]
    Root,
    /// The events of a level are not the events that were sealed.
    #[error("the events of level {level} are not the ones that were sealed")]
    Block {
        /// The level.
        level: Level,
    },
    /// An event of a tree is not the event that was sealed.
    #[error("{} not what was sealed", event(*seq))]
    Path {
        /// The event, if the leaf hashes identify it.
        seq: Option<Sequence>,
    },
    /// The events are right, but the digests that prove them are not.
    #[error("the events are right, but the digests that prove them are not")]
    Evidence,
}

/// Returns "event 7 is", or "the events are" if the event is not known.
fn event(seq: Option<Sequence>) -> String {
    seq.map_or_else(|| "the events are".to_owned(), |seq| format!("event {seq} is"))
}

impl Finding {
    /// Returns the finding's name: spec/errors.md.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Decode(error) => error.name(),
            Self::Schema(error) => error.name(),
            Self::Open(error) => error.name(),
            Self::Part(error) => error.name(),
            Self::Seal(error) => error.name(),
            Self::Withheld => "ExplanationWithheld",
            Self::Statement { .. } => "StatementMismatch",
            Self::DigestCount => "DigestCount",
            Self::Root => "RootMismatch",
            Self::Block { .. } => "BlockDigestMismatch",
            Self::Path { .. } => "PathMismatch",
            Self::Evidence => "EvidenceMismatch",
        }
    }
}

/// The explaining form of a seal, as a store returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The seal's tagged `COSE_Sign1`.
    pub seal: Vec<u8>,
    /// The concatenated digests of the explain item.
    pub digests: Vec<u8>,
}

/// What is wrong with a run, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFinding {
    /// What is wrong.
    pub finding: Finding,
    /// The device, if it is known.
    pub device: Option<DeviceId>,
    /// The seal's index, if it is known.
    pub index: Option<SealIndex>,
}

impl fmt::Display for RunFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.finding.fmt(f)?;
        match (self.device, self.index) {
            (Some(device), Some(index)) => write!(f, " (device {device}, index {index})"),
            (Some(device), None) => write!(f, " (device {device})"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for RunFinding {}

/// Compares the items of a failed run (schema, open, and parts, signed or not) with the explaining
/// form that `explained` returns for each of its seals. Stops at the first difference. For open
/// items without a digest, `known` returns the digest of the preceding seal if the receiver has it.
///
/// # Errors
/// [`RunFinding`]: the first difference. `Ok` means that the device sealed every event, and only
/// the signature of the run is invalid.
pub fn explain_run<D: Directory + ?Sized>(
    directory: &D,
    limits: Limits,
    run: &[u8],
    known: &dyn Fn(DeviceId, SealIndex) -> Option<Digest>,
    explained: &mut dyn FnMut(DeviceId, SealIndex) -> Option<Explained>,
) -> Result<(), RunFinding> {
    let mut follower = Follower::new(directory, Host::detect(), limits);
    let mut schema: Option<SchemaEntry> = None;
    let mut rest = run;
    while !rest.is_empty() {
        let device = follower.position().map(|(device, _)| device);
        let fail = |finding| RunFinding { finding, device, index: None };
        let (item, length) = Item::decode(rest).map_err(|error| fail(error.into()))?;
        rest = &rest[length..];
        match item {
            Item::Schema(bytes) => {
                schema =
                    Some(SchemaEntry::decode(bytes).map_err(|error| fail(Finding::Schema(error)))?);
            }
            Item::Open(open) => {
                let opened = follower.open(&open, |index| known(open.device, index));
                opened.map_err(|error| RunFinding {
                    device: Some(open.device),
                    ..fail(Finding::Open(error))
                })?;
            }
            Item::Part(part) => {
                let shape = schema.as_ref().map(SchemaEntry::shape);
                let rebuilt = follower
                    .part(&part, shape.as_ref())
                    .map_err(|error| fail(Finding::Part(error)))?;
                let statement = rebuilt.seal.statement();
                let (device, index) = (statement.device, statement.index);
                let fail =
                    |finding| RunFinding { finding, device: Some(device), index: Some(index) };
                let shown = explained(device, index).ok_or_else(|| fail(Finding::Withheld))?;
                let framing = shape.map_or(Framing::Prefixed, |shape| shape.framing);
                explain(directory, &rebuilt.seal, &rebuilt.blocks, &part, framing, &shown)
                    .map_err(fail)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Compares a part with the explaining form of its seal. `rebuilt` is the seal that was rebuilt
/// from the part. `blocks` has the digest `D_i` of each selected level of a star.
///
/// # Errors
/// [`Finding`]: the first difference.
pub fn explain<D: Directory + ?Sized>(
    directory: &D,
    rebuilt: &Seal<Unverified>,
    blocks: &[Digest; MAX_LEVELS],
    part: &Part<'_>,
    framing: Framing,
    explained: &Explained,
) -> Result<(), Finding> {
    let (seal, signature) = Seal::decode(&explained.seal)?;
    let stated = rebuilt.statement();
    let mut verified = Ok(());
    directory
        .with_key(stated.device, stated.index, stated.epoch, &mut |key| {
            verified = seal.signed_by(key, signature).map_err(Finding::Seal);
        })
        .map_err(|error| Finding::Part(error.into()))?;
    verified?;
    if let Some(field) = difference(stated, seal.statement()) {
        return Err(Finding::Statement { field });
    }
    // The check above used the key of the part's device and index. The statements are equal, so
    // `verify` uses the same key. It returns the seal as `Authentic`.
    let seal = seal.verify(directory, signature).map_err(Finding::Seal)?;
    match stated.scheme {
        Scheme::Star => explain_star(&seal, blocks, part, &explained.digests),
        Scheme::Tree => explain_tree(&seal, rebuilt, part, framing, &explained.digests),
    }
}

/// Returns the name of the first field in which two statements differ (spec/objects.md, section 6).
fn difference(rebuilt: &Statement, explained: &Statement) -> Option<&'static str> {
    let (a, b) = (rebuilt, explained);
    let index = |statement: &Statement| statement.last.map(|(index, _)| index);
    let epoch = |statement: &Statement| statement.last.map(|(_, epoch)| epoch);
    [
        (a.scheme == b.scheme, "scheme"),
        (a.group == b.group, "group"),
        (a.roster == b.roster, "roster"),
        (a.device == b.device, "device"),
        (a.index == b.index, "index"),
        (a.prev == b.prev, "prev"),
        (index(a) == index(b), "prev_index"),
        (a.epoch == b.epoch, "epoch"),
        (epoch(a) == epoch(b), "prev_epoch"),
        (a.last_in_epoch == b.last_in_epoch, "last_in_epoch"),
        (a.restart == b.restart, "restart"),
        (a.schema == b.schema, "schema"),
        (a.salt == b.salt, "salt"),
        (a.round == b.round, "round"),
        (a.own_round == b.own_round, "own_round"),
        (a.counters == b.counters, "counters"),
        (a.lost == b.lost, "lost"),
        (a.answered == b.answered, "answered"),
        (a.keys == b.keys, "keys"),
        (a.groups == b.groups, "groups"),
    ]
    .into_iter()
    .find_map(|(same, name)| (!same).then_some(name))
}

fn digests_of(joined: &[u8]) -> Option<Vec<Digest>> {
    let (digests, rest) = joined.as_chunks::<32>();
    rest.is_empty().then(|| digests.iter().copied().map(Digest).collect())
}

fn explain_star(
    seal: &Seal<Authentic>,
    blocks: &[Digest; MAX_LEVELS],
    part: &Part<'_>,
    digests: &[u8],
) -> Result<(), Finding> {
    let levels = seal.statement().counters.levels();
    let mut digests = digests_of(digests).ok_or(Finding::DigestCount)?;
    // If a store keeps only the levels from a round on, the explaining form has one digest in place
    // of all lower levels.
    let from = match digests.len().checked_sub(usize::from(levels)) {
        Some(0) => (0, star::chain_start()),
        Some(1) => {
            let above = digests.remove(0);
            let kept = digests.iter().take_while(|digest| **digest == Digest::NULL).count();
            (u8::try_from(kept).unwrap_or(levels), above)
        }
        _ => return Err(Finding::DigestCount),
    };
    let mask = match part.select {
        Select::Levels(mask) => mask,
        Select::Events(_) => 0,
    };
    // The run has a level that the explaining form leaves out, so the explaining form is
    // incomplete.
    if lowest(mask, levels) < from.0 {
        return Err(Finding::DigestCount);
    }
    let counters = &seal.statement().counters;
    if star::root_from(counters, from.0, from.1, &digests) != *seal.root() {
        return Err(Finding::Root);
    }
    for level in (0..levels).filter(|level| mask >> level & 1 == 1) {
        if blocks[usize::from(level)] != digests[usize::from(level)] {
            return Err(Finding::Block { level: Level(level) });
        }
    }
    let mut evidence = [Digest::NULL; MAX_LEVELS];
    let count = pruned_evidence(seal.statement(), from, &digests, mask, &mut evidence);
    // The digests of hidden column groups follow. They have led to the digests of the blocks.
    let given = part.digests.get(..32 * count).unwrap_or(part.digests);
    if evidence[..count].iter().flat_map(|digest| digest.0).eq(given.iter().copied()) {
        Ok(())
    } else {
        Err(Finding::Evidence)
    }
}

fn explain_tree(
    seal: &Seal<Authentic>,
    rebuilt: &Seal<Unverified>,
    part: &Part<'_>,
    framing: Framing,
    digests: &[u8],
) -> Result<(), Finding> {
    if digests.is_empty() {
        return if rebuilt.root() == seal.root() {
            Ok(())
        } else {
            Err(Finding::Path { seq: None })
        };
    }
    let leaves = digests_of(digests)
        .filter(|leaves| leaves.len() as u64 == u64::from(part.n))
        .filter(|_| seal.statement().groups.is_empty())
        .ok_or(Finding::DigestCount)?;
    if root_of(&leaves) != *seal.root() {
        return Err(Finding::Root);
    }
    let selected = selected(seal.statement(), part);
    let mut rest = part.events;
    for &seq in &selected {
        let Some((record, tail)) = framing.split_first(rest) else {
            return Err(Finding::Part(PartError::EventsLength));
        };
        if usize::try_from(seq.0).ok().and_then(|at| leaves.get(at)) != Some(&leaf(record)) {
            return Err(Finding::Path { seq: Some(seq) });
        }
        rest = tail;
    }
    #[allow(clippy::cast_possible_truncation)]
    let subtree =
        |range: std::ops::Range<u64>| root_of(&leaves[range.start as usize..range.end as usize]).0;
    if geometry::siblings(u64::from(part.n), selected)
        .flat_map(subtree)
        .eq(part.digests.iter().copied())
    {
        Ok(())
    } else {
        Err(Finding::Evidence)
    }
}

/// Returns the sequence numbers of a tree's part, ascending.
fn selected(statement: &Statement, part: &Part<'_>) -> Vec<Sequence> {
    match &part.select {
        Select::Events(gaps) => gaps.iter().collect(),
        Select::Levels(mask) => {
            let levels = statement.counters.levels();
            let all = (0..u64::from(part.n)).map(Sequence);
            all.filter(|&seq| *mask >> statement.salt.level(seq, levels).0 & 1 == 1).collect()
        }
    }
}

/// Returns the root of the tree with these leaf hashes.
fn root_of(leaves: &[Digest]) -> Digest {
    let mut tree = Tree::<32>::new();
    for &leaf in leaves {
        // A part has fewer than 2^32 events.
        let _ = tree.push_leaf(leaf);
    }
    tree.root()
}
