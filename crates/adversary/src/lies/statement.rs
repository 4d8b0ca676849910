//! Lies about a device's signed statement: numbers, flags, salts and schemas.

use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, Level, Round};
use moteseal_core::schema::{Field, FieldType, Schema};
use moteseal_seal::Answered;

use crate::forge::{change_part, fits, refit_digests};
use crate::holdings::Held;
use crate::lie::Context;
use crate::response::{Answer, Item, Select};

fn levels(held: &Held) -> u8 {
    held.seal.statement().counters.levels()
}

/// Returns the open item in the middle of the answer.
fn middle_open(answer: &mut Answer) -> Option<&mut moteseal_seal::stream::Open> {
    let opens = answer.items.iter().filter(|item| matches!(item, Item::Open(_))).count();
    let mut opens_mut = answer.items.iter_mut().filter_map(|item| match item {
        Item::Open(open) => Some(open),
        _ => None,
    });
    opens_mut.nth(opens / 2)
}

pub(crate) fn roster_version(answer: &mut Answer, _: &Context<'_>) -> bool {
    middle_open(answer).is_some_and(|open| {
        open.roster_version = open.roster_version.wrapping_add(1000);
        true
    })
}

pub(crate) fn unknown_device(answer: &mut Answer, _: &Context<'_>) -> bool {
    middle_open(answer).is_some_and(|open| {
        open.device = DeviceId(open.device.0.map(|byte| !byte));
        true
    })
}

pub(crate) fn prev(answer: &mut Answer, _: &Context<'_>) -> bool {
    middle_open(answer).is_some_and(|open| {
        open.prev = Some(Digest::of(&[b"another seal"]));
        true
    })
}

pub(crate) fn count(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, held, _| {
        (0..256).any(|_| {
            part.n += 1;
            fits(part, held.framing, levels(held))
        })
    })
}

pub(crate) fn salt(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, held, _| {
        (0..1u32 << 14).any(|attempt| {
            let digest = Digest::of(&[b"forged salt", &attempt.to_be_bytes()]);
            part.salt.copy_from_slice(&digest.0[..16]);
            fits(part, held.framing, levels(held))
        })
    })
}

pub(crate) fn last_in_epoch(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, _, _| {
        part.last_in_epoch = !part.last_in_epoch;
        true
    })
}

pub(crate) fn restart(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, _, _| {
        // If indices are skipped, the flag cannot be removed, because the verifier would reject the
        // gap first.
        part.restart = !part.restart;
        part.skipped == 0
    })
}

pub(crate) fn skipped(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, _, _| {
        part.skipped += 1;
        !part.restart
    })
}

pub(crate) fn round(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, held, _| {
        let Select::Levels(mask) = part.select else { return false };
        let lowest = if mask == 0 {
            levels(held) - 1
        } else {
            u8::try_from(mask.trailing_zeros()).unwrap_or(0)
        };
        if lowest == 0 {
            return false;
        }
        (part.round, part.own_round) = (Round(lowest), Round(lowest));
        if part.scheme == Scheme::Star {
            refit_digests(part, levels(held));
        }
        true
    })
}

pub(crate) fn lost(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, held, _| {
        let Select::Levels(mask) = part.select else { return false };
        let statement = held.seal.statement();
        let spare = statement.surviving() & !mask;
        if spare == 0 || !part.lost.is_empty() {
            return false;
        }
        let level = spare.trailing_zeros() as usize;
        part.lost = vec![0; usize::from(levels(held))];
        part.lost[level] = statement.counters.at(Level(u8::try_from(level).unwrap_or(0)));
        if part.scheme == Scheme::Star {
            refit_digests(part, levels(held));
        }
        true
    })
}

pub(crate) fn withheld_prev(answer: &mut Answer, _: &Context<'_>) -> bool {
    middle_open(answer).is_some_and(|open| {
        // The first seal of a device needs no `prev`, so this lie applies only to later seals.
        open.prev = None;
        open.last.is_some()
    })
}

pub(crate) fn scheme(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, held, _| {
        part.scheme = match part.scheme {
            Scheme::Star => Scheme::Tree,
            Scheme::Tree if matches!(part.select, Select::Levels(_)) => Scheme::Star,
            Scheme::Tree => return false,
        };
        refit_digests(part, levels(held));
        true
    })
}

pub(crate) fn epoch(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, _, _| {
        part.advance += 1;
        true
    })
}

pub(crate) fn emptied(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, held, _| {
        part.n = 0;
        part.select = Select::Levels(0);
        part.events.clear();
        refit_digests(part, levels(held));
        true
    })
}

pub(crate) fn answered(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, _, place| {
        part.answered.push(Answered { query: [0x51; 16], first: place.epoch.0, count: 1 });
        part.answered.len() == 1
    })
}

pub(crate) fn far_index(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, _, place| {
        part.skipped = u32::MAX;
        part.restart = true;
        place.index.0 > 0
    })
}

pub(crate) fn far_epoch(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, _, place| {
        part.advance = u64::MAX;
        place.index.0 > 0
    })
}

pub(crate) fn vast_count(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, _, _| {
        part.n = u32::MAX;
        true
    })
}

pub(crate) fn impossible_level(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, held, _| {
        let Select::Levels(mask) = &mut part.select else { return false };
        *mask |= 1 << 31;
        levels(held) < 32
    })
}

/// Changes the fields of the first schema for which `change` returns true. The record size stays
/// the same.
fn change_schema(answer: &mut Answer, change: impl Fn(&mut Vec<Field<'_>>) -> bool) -> bool {
    for item in &mut answer.items {
        let Item::Schema(bytes) = item else { continue };
        let Ok(schema) = Schema::decode(bytes) else { continue };
        let mut fields: Vec<Field<'_>> = schema.fields().collect();
        if !change(&mut fields) {
            continue;
        }
        let mut out = vec![0; bytes.len() + 64];
        let Ok(changed) =
            Schema::encode(&fields, &mut out).map(|schema| schema.as_bytes().to_vec())
        else {
            continue;
        };
        *bytes = changed;
        return true;
    }
    false
}

pub(crate) fn unit(answer: &mut Answer, _: &Context<'_>) -> bool {
    change_schema(answer, |fields| {
        fields.first_mut().is_some_and(|field| {
            field.unit = if field.unit == "K" { "Cel" } else { "K" };
            true
        })
    })
}

pub(crate) fn scale(answer: &mut Answer, _: &Context<'_>) -> bool {
    change_schema(answer, |fields| {
        let whole =
            |kind: FieldType| !matches!(kind, FieldType::F32 | FieldType::F64 | FieldType::Time);
        fields.iter_mut().find(|field| whole(field.kind)).is_some_and(|field| {
            field.divisor = if field.divisor == 10 { 100 } else { 10 };
            true
        })
    })
}

pub(crate) fn columns(answer: &mut Answer, _: &Context<'_>) -> bool {
    change_schema(answer, |fields| match fields.as_mut_slice() {
        [first, second, ..] => {
            std::mem::swap(&mut first.name, &mut second.name);
            true
        }
        _ => false,
    })
}
