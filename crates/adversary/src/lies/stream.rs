//! Lies about the form of the stream: it is truncated, padded, endless, or not canonically encoded.

use crate::forge::inner_places;
use crate::lie::Context;
use crate::response::{Answer, Item, Part, Select};

/// The length in bytes of an item that is longer than the longest item that a reader must accept.
const TOO_LONG: usize = (69 << 20) + 1;

pub(crate) fn truncated(answer: &mut Answer, context: &Context<'_>) -> bool {
    let Some(place) = inner_places(answer, context).first().copied() else { return false };
    let mut bytes = Vec::new();
    answer.items[place.item].encode(&mut bytes);
    bytes.truncate(bytes.len() / 2);
    answer.items.truncate(place.item);
    answer.items.push(Item::Raw(bytes));
    true
}

pub(crate) fn no_end(answer: &mut Answer, _: &Context<'_>) -> bool {
    answer.items.pop_if(|item| matches!(item, Item::End)).is_some()
}

pub(crate) fn end_within_run(answer: &mut Answer, _: &Context<'_>) -> bool {
    let unsigned = |item: &Item| matches!(item, Item::Part(part) if part.signature.is_none());
    let Some(at) = answer.items.iter().rposition(unsigned) else { return false };
    answer.items.truncate(at + 1);
    answer.items.push(Item::End);
    true
}

pub(crate) fn after_the_end(answer: &mut Answer, _: &Context<'_>) -> bool {
    let ended = answer.items.last() == Some(&Item::End);
    answer.items.push(Item::End);
    ended
}

/// Inserts an item before the second device or, if there is only one device, before the end.
fn insert(answer: &mut Answer, item: Item) -> bool {
    let opens = answer.items.iter().enumerate().filter(|(_, item)| matches!(item, Item::Open(_)));
    let at = opens
        .map(|(at, _)| at)
        .nth(1)
        .or_else(|| answer.items.iter().rposition(|item| *item == Item::End));
    at.is_some_and(|at| {
        answer.items.insert(at, item);
        true
    })
}

pub(crate) fn unknown_item(answer: &mut Answer, _: &Context<'_>) -> bool {
    insert(answer, Item::Raw(vec![0x81, 0x08]))
}

pub(crate) fn other_encoding(answer: &mut Answer, _: &Context<'_>) -> bool {
    insert(answer, Item::Raw(vec![0x98, 0x01, 0x03]))
}

pub(crate) fn proof_in_answer(answer: &mut Answer, _: &Context<'_>) -> bool {
    insert(answer, Item::Proof("{}".to_owned()))
}

pub(crate) fn feigned_problem(answer: &mut Answer, _: &Context<'_>) -> bool {
    let detail = "a page of the store cannot be read".to_owned();
    insert(answer, Item::Problem { name: "StoreDamaged".to_owned(), detail })
}

/// Inserts a problem with the message of a broken pipe. A program that recognises errors by their
/// text would mistake the problem for an error in writing its output.
pub(crate) fn feigned_closed_pipe(answer: &mut Answer, _: &Context<'_>) -> bool {
    let detail = "Broken pipe (os error 32)".to_owned();
    insert(answer, Item::Problem { name: "StoreDamaged".to_owned(), detail })
}

fn remove_first(answer: &mut Answer, kind: impl Fn(&Item) -> bool) -> bool {
    let Some(at) = answer.items.iter().position(kind) else { return false };
    answer.items.remove(at);
    true
}

pub(crate) fn no_schema(answer: &mut Answer, _: &Context<'_>) -> bool {
    remove_first(answer, |item| matches!(item, Item::Schema(_)))
}

pub(crate) fn no_device(answer: &mut Answer, _: &Context<'_>) -> bool {
    remove_first(answer, |item| matches!(item, Item::Open(_)))
}

pub(crate) fn endless_run(answer: &mut Answer, context: &Context<'_>) -> bool {
    let Some(place) = answer.places().first().copied() else { return false };
    let Some(held) = context.holdings.get(place.device, place.index) else { return false };
    let first = Part { last_in_epoch: false, ..held.part(Select::Levels(0), false) };
    let next = Part { skipped: 0, advance: 0, ..first.clone() };
    let parts = std::iter::once(first)
        .chain(std::iter::repeat_n(next, 256))
        .map(|part| Item::Part(Box::new(part)));
    answer.items.splice(place.item..place.item, parts);
    true
}

/// Returns the start of an encoded part, up to the CBOR head of its events. The head claims
/// `length` bytes of events.
fn claim(answer: &Answer, item: usize, length: u64) -> Option<Vec<u8>> {
    let part = answer.part(item)?;
    let empty = Part { events: Vec::new(), signature: None, ..part.clone() };
    let mut bytes = Vec::new();
    empty.encode(&mut bytes);
    // The last two bytes are the empty events and the null in place of a signature. Remove them.
    bytes.truncate(bytes.len() - 2);
    let (head, size) = moteseal_core::cbor::head(2, length);
    bytes.extend_from_slice(&head[..size]);
    Some(bytes)
}

pub(crate) fn endless_claim(answer: &mut Answer, _: &Context<'_>) -> bool {
    let Some(place) = answer.places().first().copied() else { return false };
    let Some(bytes) = claim(answer, place.item, 1 << 40) else { return false };
    answer.items.insert(place.item, Item::Raw(bytes));
    true
}

pub(crate) fn endless_item(answer: &mut Answer, _: &Context<'_>) -> bool {
    let Some(place) = answer.places().first().copied() else { return false };
    let Some(mut bytes) = claim(answer, place.item, 1 << 40) else { return false };
    bytes.resize(TOO_LONG, 0);
    answer.items.insert(place.item, Item::Raw(bytes));
    true
}
