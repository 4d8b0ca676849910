//! Records of health as the rows of a sealed stream, which is a history that can be proven
//! (spec/health.md, section 6).

use super::{Health, ITEMS, Item, Kind};
use crate::roster::MAX_NAME;
use crate::schema::{
    Decimal, Field, FieldType, MAX_FIELDS, Schema, SchemaError, Value, ValueError,
};

/// The longest row, in bytes.
pub const MAX_ROW: usize = 8 + 4 + 4 + 4 * ITEMS + 1 + MAX_NAME;
/// The columns before the items: `at`, `node`, `boot` and `uptime_s`.
const HEAD: usize = 4;
// The ids of these columns.
const AT: u16 = 1;
const NODE: u16 = 2;
const BOOT: u16 = 3;
const UPTIME: u16 = 4;
/// The difference between the first ids of two groups. A group may have as many items.
const IDS_OF_GROUP: u16 = 16;

const _: () = assert!(HEAD + ITEMS <= MAX_FIELDS);

/// The columns of a stream of records, by whose records it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Columns {
    /// Those of the node that signs the stream.
    Own,
    /// Those of other nodes, which reported to the one that signs. The stream proves only what was reported to it, so
    /// the columns are marked as relayed.
    Relayed,
}

impl Columns {
    /// Writes the schema of the stream to `out`; [`MAX_SCHEMA`](crate::schema::MAX_SCHEMA) bytes suffice.
    ///
    /// # Errors
    /// `BufferTooSmall`.
    pub fn schema(self, out: &mut [u8]) -> Result<Schema<'_>, SchemaError> {
        let mut fields = [Field::new("", "", FieldType::U8); HEAD + ITEMS];
        let mut count = 0;
        let mut add = |field| {
            fields[count] = field;
            count += 1;
        };
        let reported = |field: Field<'static>| match self {
            Self::Own => field,
            Self::Relayed => field.relayed(),
        };
        add(Field::new("at", "", FieldType::Timestamp).with_id(AT));
        if self == Self::Relayed {
            // A name has at most 64 bytes.
            #[allow(clippy::cast_possible_truncation)]
            add(Field::text("node", MAX_NAME as u8).with_id(NODE));
        }
        add(reported(Field::new("boot", "", FieldType::U32).with_id(BOOT)));
        add(reported(Field::new("uptime_s", "s", FieldType::U32).with_id(UPTIME)));
        for item in Item::all() {
            let kind = match item.kind() {
                Kind::Total => FieldType::U32,
                Kind::Gauge => FieldType::I32,
            };
            let field = Field::new(item.full_name(), item.unit(), kind);
            add(reported(field.scaled(item.divisor(), 0).nullable().with_id(id_of(item))));
        }
        Schema::encode(&fields[..count], out)
    }

    /// Writes a row to `out`, and returns its length; [`MAX_ROW`] bytes suffice. `at_ms` is the time of
    /// the signer's clock when it made or received the record, in milliseconds since 1970. `node` is the
    /// name of the node, for a history of other nodes. `schema` is the schema of the stream.
    ///
    /// The value of a column that stands for null, which is one of 2^32, becomes null.
    ///
    /// # Errors
    /// [`ValueError`]: `RecordTooShort` if `out` is too small, `TextTooLong` if `node` is no name of a
    /// roster.
    pub fn row(
        schema: &Schema<'_>,
        (at_ms, node): (u64, &str),
        health: &Health,
        out: &mut [u8],
    ) -> Result<usize, ValueError> {
        let mut items = Item::all();
        for field in schema.fields() {
            let value = match field.id {
                AT => Value::Timestamp(i64::try_from(at_ms).unwrap_or(i64::MAX)),
                NODE => Value::Text(node),
                BOOT => integer(health.boot.into(), 1),
                UPTIME => integer(health.uptime_s.into(), 1),
                _ => {
                    let item = items.next();
                    debug_assert_eq!(item.map(id_of), Some(field.id));
                    let raw = item.and_then(|item| health.get(item)).map(i128::from);
                    let raw = raw.filter(|raw| Some(*raw) != field.null());
                    raw.map_or(Value::Null, |raw| integer(raw, field.divisor))
                }
            };
            field.write_value(value, out)?;
        }
        schema.record_length(out).ok_or(ValueError::RecordTooShort)
    }
}

const fn integer(numerator: i128, divisor: u32) -> Value<'static> {
    Value::Integer(Decimal { numerator, divisor })
}

/// Returns the id of an item's column: 16 times the number of its group, counted from 1, plus its place in
/// the group, counted from 0.
fn id_of(item: Item) -> u16 {
    let group = item.group();
    let place = item.place() - group.first();
    debug_assert!(place < usize::from(IDS_OF_GROUP));
    // There are fewer than 16 groups, and a group has at most 16 items.
    #[allow(clippy::cast_possible_truncation)]
    let id = IDS_OF_GROUP * (group as u16 + 1) + place as u16;
    id
}
