//! Lies of the cloud of a group with a budget: about the manifests, and about the events that may
//! be served according to them.

use std::collections::BTreeMap;

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, Round};
use moteseal_core::signature::{Algorithm, SecretKey, SignError, Signer};
use moteseal_seal::sample::{Choice, ManifestDraft};

use crate::forge::{Served, serve_otherwise};
use crate::lie::{Accomplice, COORDINATOR, Context};
use crate::response::{Answer, Item, Select};

/// Returns the item indices of the manifests. An honest answer starts with one manifest per epoch
/// of the queried range, in order.
fn manifests(answer: &Answer) -> Vec<usize> {
    (0..answer.items.len())
        .take_while(|at| matches!(answer.items[*at], Item::Manifest(_)))
        .collect()
}

/// Returns the item index of the manifest in the middle, and its epoch.
fn middle(answer: &Answer, context: &Context<'_>) -> Option<(usize, EpochNumber)> {
    let at = *manifests(answer).get(manifests(answer).len() / 2)?;
    Some((at, EpochNumber(context.question.since.0 + at as u64)))
}

/// Returns whether the rounds of the manifests determine the selection of events.
const fn by_round(context: &Context<'_>) -> bool {
    matches!(context.question.choice, Choice::AtMost(1..))
}

pub(crate) fn withheld_manifest(answer: &mut Answer, context: &Context<'_>) -> bool {
    let Some((at, _)) = middle(answer, context).filter(|_| by_round(context)) else { return false };
    answer.items.remove(at);
    true
}

/// Withholds the manifest of an epoch and serves no events of the epoch, as an honest cloud that
/// lacks the manifest would do.
pub(crate) fn feigned_absence(answer: &mut Answer, context: &Context<'_>) -> bool {
    let Some((at, epoch)) = middle(answer, context).filter(|_| by_round(context)) else {
        return false;
    };
    let emptied = serve_otherwise(answer, context, |served| {
        let of_epoch = |device, index| {
            let held = context.holdings.get(device, index);
            held.is_some_and(|held| held.seal.statement().epoch == epoch)
        };
        served
            .iter_mut()
            .filter(|serve| of_epoch(serve.device, serve.index))
            .for_each(|serve| serve.select = Select::Levels(0));
        Some(())
    });
    if emptied {
        answer.items.remove(at);
    }
    emptied
}

pub(crate) fn of_other_epoch(answer: &mut Answer, context: &Context<'_>) -> bool {
    let Some((at, _)) = middle(answer, context) else { return false };
    let Some(other @ Item::Manifest(_)) = answer.items.get(at + 1).cloned() else { return false };
    answer.items[at] = other;
    true
}

pub(crate) fn out_of_order(answer: &mut Answer, context: &Context<'_>) -> bool {
    let Some((at, _)) = middle(answer, context).filter(|(at, _)| *at > 0) else { return false };
    answer.items.swap(at - 1, at);
    true
}

pub(crate) fn altered(answer: &mut Answer, context: &Context<'_>) -> bool {
    let Some((at, _)) = middle(answer, context) else { return false };
    let Some(Item::Manifest(manifest)) = answer.items.get_mut(at) else { return false };
    // This byte is in the list of digests, so the changed bytes still decode as a manifest.
    let Some(byte) = manifest.len().checked_sub(80).and_then(|byte| manifest.get_mut(byte)) else {
        return false;
    };
    *byte ^= 1;
    true
}

/// Returns a manifest of the epoch that lists all its seals and has the final round `round`.
fn made(
    context: &Context<'_>,
    epoch: EpochNumber,
    round: Round,
    signer: &dyn Signer,
) -> Option<Vec<u8>> {
    let mut listed: BTreeMap<DeviceId, Vec<Digest>> = BTreeMap::new();
    let mut of = None;
    for device in context.holdings.devices() {
        for held in
            context.holdings.seals(device).filter(|held| held.seal.statement().epoch == epoch)
        {
            of.get_or_insert((held.seal.statement().group, held.seal.statement().roster));
            listed.entry(device).or_default().push(held.seal.digest());
        }
    }
    let (group, roster) = of?;
    let devices: Vec<(DeviceId, &[Digest])> =
        listed.iter().map(|(device, seals)| (*device, &seals[..])).collect();
    let draft = ManifestDraft { group, roster, epoch, round, devices: &devices };
    let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
    draft.issue(signer, &mut scratch, &mut out).ok().map(<[u8]>::to_vec)
}

pub(crate) fn forged(answer: &mut Answer, context: &Context<'_>) -> bool {
    let Some((at, epoch)) = middle(answer, context) else { return false };
    let Ok(own) = SecretKey::from_seed(Algorithm::Ed25519, &[0x66; 32]) else { return false };
    let Some(forged) = made(context, epoch, Round(0), &own) else { return false };
    answer.items[at] = Item::Manifest(forged);
    true
}

/// A signer with the key of a colluding coordinator.
struct Coordinator<'a>(&'a Accomplice<'a>);

impl Signer for Coordinator<'_> {
    fn algorithm(&self) -> Algorithm {
        Algorithm::Ed25519
    }

    fn sign(&self, message: &[u8], signature: &mut [u8]) -> Result<usize, SignError> {
        let signed = (self.0)(COORDINATOR, message).ok_or(SignError::Refused)?;
        signature
            .get_mut(..signed.len())
            .ok_or(SignError::BufferTooSmall)?
            .copy_from_slice(&signed);
        Ok(signed.len())
    }
}

pub(crate) fn second_manifest(answer: &mut Answer, context: &Context<'_>) -> bool {
    let Some((at, epoch)) = middle(answer, context) else { return false };
    let Some(accomplice) = context.accomplice else { return false };
    let Some(second) = made(context, epoch, Round(7), &Coordinator(accomplice)) else {
        return false;
    };
    if answer.items[at] == Item::Manifest(second.clone()) {
        return false;
    }
    answer.items.insert(at + 1, Item::Manifest(second));
    true
}

/// Withholds the newest queried seal of a device, and all later seals of the device, which would
/// show that the seal is missing.
pub(crate) fn withheld_listed(answer: &mut Answer, context: &Context<'_>) -> bool {
    serve_otherwise(answer, context, |served| {
        let device = served.first()?.device;
        let covered = |index| {
            let held = context.holdings.get(device, index);
            held.is_some_and(|held| context.question.covers(held.seal.statement().epoch))
        };
        let newest =
            served.iter().rposition(|serve| serve.device == device && covered(serve.index))?;
        let mut at = 0;
        served.retain(|serve| {
            at += 1;
            serve.device != device || at <= newest
        });
        Some(())
    })
}

/// Serves another set of levels for every seal of one epoch.
fn other_levels(
    answer: &mut Answer,
    context: &Context<'_>,
    change: impl Fn(u32, u32) -> u32,
) -> bool {
    serve_otherwise(answer, context, |served| {
        let epoch_of = |device, index| {
            context.holdings.get(device, index).map(|held| held.seal.statement().epoch)
        };
        let selected = |serve: &Served| {
            let epoch =
                epoch_of(serve.device, serve.index).filter(|epoch| context.question.covers(*epoch));
            epoch.filter(|_| serve.select != Select::Levels(0))
        };
        let (before, after) = served.split_at(served.len() / 2);
        let epoch = after.iter().chain(before).find_map(selected)?;
        for serve in
            served.iter_mut().filter(|serve| epoch_of(serve.device, serve.index) == Some(epoch))
        {
            let surviving =
                context.holdings.get(serve.device, serve.index)?.seal.statement().surviving();
            if let Select::Levels(mask) = &mut serve.select {
                *mask = change(*mask, surviving);
            }
        }
        Some(())
    })
}

pub(crate) fn fewer_levels(answer: &mut Answer, context: &Context<'_>) -> bool {
    other_levels(answer, context, |mask, _| mask & mask.saturating_sub(1))
}

pub(crate) fn more_levels(answer: &mut Answer, context: &Context<'_>) -> bool {
    other_levels(answer, context, |mask, surviving| mask | (mask >> 1) & surviving)
}
