//! Lies about proofs: about signatures, and about the digests that prove a selection.

use crate::forge::change_part;
use crate::lie::Context;
use crate::response::{Answer, Part};

fn change_signed(
    answer: &mut Answer,
    context: &Context<'_>,
    change: impl Fn(&mut Vec<u8>),
) -> bool {
    change_part(answer, context, |part, _, _| {
        let Some(signature) = &mut part.signature else { return false };
        change(signature);
        true
    })
}

pub(crate) fn junk_signature(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_signed(answer, context, |signature| {
        let mut byte = 0x9e_u8;
        for place in signature {
            byte = byte.wrapping_mul(0x4d).wrapping_add(0x35);
            *place = byte;
        }
    })
}

pub(crate) fn stripped_signature(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, _, _| part.signature.take().is_some())
}

pub(crate) fn short_signature(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_signed(answer, context, |signature| {
        signature.pop();
    })
}

fn change_digests(answer: &mut Answer, context: &Context<'_>, change: impl Fn(&mut Part)) -> bool {
    change_part(answer, context, |part, _, _| {
        if part.digests.is_empty() {
            return false;
        }
        change(part);
        true
    })
}

pub(crate) fn altered_digest(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_digests(answer, context, |part| part.digests[7] ^= 0x40)
}

pub(crate) fn surplus_digest(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_digests(answer, context, |part| part.digests.extend([0x77; 32]))
}

pub(crate) fn missing_digest(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_digests(answer, context, |part| part.digests.truncate(part.digests.len() - 32))
}
