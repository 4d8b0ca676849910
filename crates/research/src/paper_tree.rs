//! Dynamic Tree Chaining as published in Li et al., section IV.B: `D = H(e)` and
//! `D_12 = H(D_1 || D_2)`. The root and the epoch are signed. For a query by rate, levels come from
//! an event's content.
//!
//! The product hashes trees as RFC 9162 does, which distinguishes leaves from inner nodes. It also
//! signs the number of leaves, and takes levels from salted sequence numbers.

use moteseal_core::digest::Digest;
use moteseal_core::signature::{PublicKey, SignError, Signer};

use crate::content_levels::{LEVELS, level};
use crate::scheme::{Ask, Context, OpenError, Row, Scheme, Sealed, Unsupported};
use crate::wire::{Input, put_event, put_u32};

/// The paper's tree. It is divided as in RFC 9162, because the paper does not define the treatment
/// of an odd leaf.
#[derive(Clone, Copy, Debug, Default)]
pub struct PaperTree;

fn node(left: &Digest, right: &Digest) -> Digest {
    Digest::of(&[&left.0, &right.0])
}

/// Returns the largest power of two below `leaves`, which must be at least two.
const fn split(leaves: u64) -> u64 {
    1 << (leaves - 1).ilog2()
}

fn root(leaves: &[Digest]) -> Digest {
    match leaves {
        [] => Digest::of(&[]),
        [leaf] => *leaf,
        _ => {
            #[allow(clippy::cast_possible_truncation)]
            let (left, right) = leaves.split_at(split(leaves.len() as u64) as usize);
            node(&root(left), &root(right))
        }
    }
}

/// Appends the roots of the maximal subtrees without a chosen leaf, from left to right. The first
/// of `leaves` has the number `first`, and all of `chosen` are among the leaves.
fn siblings(first: u64, leaves: &[Digest], chosen: &[u64], out: &mut Vec<Digest>) {
    if chosen.is_empty() {
        out.push(root(leaves));
    } else if leaves.len() > 1 {
        let middle = split(leaves.len() as u64);
        #[allow(clippy::cast_possible_truncation)]
        let (left, right) = leaves.split_at(middle as usize);
        let (before, after) = chosen.split_at(chosen.partition_point(|&seq| seq < first + middle));
        siblings(first, left, before, out);
        siblings(first + middle, right, after, out);
    }
}

/// Computes the root from chosen leaves and siblings: the inverse of [`siblings`].
fn rebuild(
    first: u64,
    count: u64,
    chosen: &[(u64, Digest)],
    given: &mut Input<'_>,
) -> Result<Digest, OpenError> {
    match chosen {
        [] => given.digest(),
        [(_, leaf)] if count == 1 => Ok(*leaf),
        _ if count < 2 => Err(OpenError::Malformed),
        _ => {
            let middle = split(count);
            let (left, right) =
                chosen.split_at(chosen.partition_point(|&(seq, _)| seq < first + middle));
            let left = rebuild(first, middle, left, given)?;
            Ok(node(&left, &rebuild(first + middle, count - middle, right, given)?))
        }
    }
}

impl PaperTree {
    fn chosen(events: &[Vec<u8>], ask: &Ask<'_>) -> Result<Vec<u64>, Unsupported> {
        let all = 0..events.len() as u64;
        match ask {
            Ask::All => Ok(all.collect()),
            Ask::Events(chosen) => Ok(chosen.to_vec()),
            Ask::Rate(rate) => {
                let mask = rate.levels(LEVELS).ok_or(Unsupported)?;
                Ok(all
                    .zip(events)
                    .filter(|(_, event)| mask >> level(event) & 1 == 1)
                    .map(|(seq, _)| seq)
                    .collect())
            }
        }
    }
}

impl Scheme for PaperTree {
    fn name(&self) -> &'static str {
        "tree (paper)"
    }

    fn seal(
        &self,
        context: &Context,
        signer: &dyn Signer,
        events: &[Vec<u8>],
    ) -> Result<Sealed, SignError> {
        let leaves: Vec<Digest> = events.iter().map(|event| Digest::of(&[event])).collect();
        let signature = signer.signature(&context.message("tree", &root(&leaves).0))?.to_vec();
        Ok(Sealed::new(signer, events, vec![signature]))
    }

    fn serve(
        &self,
        context: &Context,
        sealed: &Sealed,
        ask: &Ask<'_>,
    ) -> Result<Vec<u8>, Unsupported> {
        let chosen = Self::chosen(&sealed.events, ask)?;
        let leaves: Vec<Digest> = sealed.events.iter().map(|event| Digest::of(&[event])).collect();
        let mut digests = Vec::new();
        siblings(0, &leaves, &chosen, &mut digests);
        let mut out = Vec::new();
        put_u32(&mut out, leaves.len());
        put_u32(&mut out, chosen.len());
        for (seq, event) in chosen.iter().filter_map(|&seq| {
            sealed.events.get(usize::try_from(seq).ok()?).map(|event| (seq, event))
        }) {
            #[allow(clippy::cast_possible_truncation)]
            put_u32(&mut out, seq as usize);
            put_event(&mut out, context.framing, event);
        }
        digests.iter().for_each(|digest| out.extend(digest.0));
        out.extend(&sealed.signatures[0]);
        Ok(out)
    }

    fn open(
        &self,
        context: &Context,
        key: &PublicKey,
        served: &[u8],
        ask: &Ask<'_>,
    ) -> Result<Vec<Row>, OpenError> {
        let mut input = Input(served);
        let (count, selected) = (u64::from(input.u32()?), input.u32()?);
        let mut rows: Vec<Row> = Vec::new();
        let mut leaves = Vec::new();
        for _ in 0..selected {
            let seq = u64::from(input.u32()?);
            let event = input.event(context.framing)?;
            if seq >= count || leaves.last().is_some_and(|&(last, _)| last >= seq) {
                return Err(OpenError::Malformed);
            }
            leaves.push((seq, Digest::of(&[event])));
            rows.push(Row { seq: Some(seq), event: event.to_vec() });
        }
        let root =
            if count == 0 { Digest::of(&[]) } else { rebuild(0, count, &leaves, &mut input)? };
        if count == 0 && selected == 0 {
            // For an empty selection, the digest of the empty tree is sent as a sibling.
            input.digest()?;
        }
        key.verify(&context.message("tree", &root.0), input.signature())
            .map_err(|_| OpenError::NotAuthentic)?;
        // The application cannot check that a level is complete: it does not know the content of a
        // missing event, and therefore not its level.
        let as_asked = match ask {
            Ask::All => rows.len() as u64 == count,
            Ask::Rate(rate) => {
                let mask = rate.levels(LEVELS).ok_or(OpenError::Unsupported)?;
                rows.iter().all(|row| mask >> level(&row.event) & 1 == 1)
            }
            Ask::Events(chosen) => {
                rows.iter().map(|row| row.seq).eq(chosen.iter().map(|&seq| Some(seq)))
            }
        };
        if as_asked { Ok(rows) } else { Err(OpenError::NotAsAsked) }
    }

    fn device_state(&self, events: u64, _: usize) -> u64 {
        32 * u64::from(u64::BITS - events.leading_zeros())
    }
}
