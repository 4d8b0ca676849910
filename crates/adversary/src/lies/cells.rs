//! Lies about single cells of records under schemas of version 2.

use moteseal_core::schema::{Field, FieldType, Schema};

use crate::forge::{change_part, layout};
use crate::holdings::Held;
use crate::lie::Context;
use crate::response::{Answer, Part};

/// Calls `change` with each record of each part and a field of its schema, until it returns true.
fn change_cell(
    answer: &mut Answer,
    context: &Context<'_>,
    change: impl Fn(&Field<'_>, &mut [u8]) -> bool,
) -> bool {
    change_part(answer, context, |part: &mut Part, held: &Held, _| {
        let Ok(schema) = Schema::decode(&held.schema) else { return false };
        let places = layout(part, held);
        places.into_iter().any(|(.., at)| {
            schema.fields().any(|field| change(&field, &mut part.events[at.clone()]))
        })
    })
}

/// Changes a value to null.
pub(crate) fn to_null(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_cell(answer, context, |field, record| {
        let is_fixed = field.kind != FieldType::Text && field.nullable;
        is_fixed && field.raw(record).ok() != field.null() && field.write_null(record).is_ok()
    })
}

/// Changes a label to one that does not exist.
pub(crate) fn label(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_cell(answer, context, |field, record| {
        let Some(cell) = record.get_mut(field.start()) else { return false };
        if field.kind == FieldType::Enum {
            *cell = u8::try_from(field.labels.len()).unwrap_or(u8::MAX - 1);
        }
        field.kind == FieldType::Enum
    })
}

/// Changes the length of the first text, so that the text contains the cell after it.
pub(crate) fn longer_text(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_cell(answer, context, |field, record| {
        let start = field.start();
        let Some(&length) = record.get(start) else { return false };
        let next = start + 1 + usize::from(length);
        let Some(&next_length) = record.get(next).filter(|_| field.kind == FieldType::Text) else {
            return false;
        };
        if length == u8::MAX || next_length == u8::MAX {
            return false;
        }
        record[start] = length + 1 + next_length;
        true
    })
}
