//! Runs the operations of confidential readings (spec/confidential.md) with the product's code.

use moteseal_core::confidential::{
    ColumnId, Commitment, EncryptedColumns, EpochKey, KeyStream, Node, Nodes, Nonce, SealKey,
    StreamSecret, Suite,
};
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_core::schema::Schema;
use serde_json::{Value, json};

use crate::ops::{Verdict, bytes, fixed, hex_of, list, name, number};
use crate::schema::value_of;

fn secret(input: &Value) -> StreamSecret {
    StreamSecret::new(fixed(input, "secret"), EpochNumber(number(input, "base")))
}

fn seal_key(input: &Value, key: &EpochKey) -> SealKey {
    key.seal_key(
        DeviceId(fixed(input, "device")),
        SealIndex(number(input, "index")),
        Suite::from_number(number(input, "suite")).unwrap(),
        &Nonce(fixed(input, "nonce")),
    )
}

/// Derives every key of a column of a seal.
pub fn keys(input: &Value) -> Verdict {
    let secret = secret(input);
    let column = ColumnId::of(&bytes(input, "field"));
    let root = secret.column(column);
    let epoch = root.epoch_key(EpochNumber(number(input, "epoch"))).map_err(name)?;
    let seal = seal_key(input, &epoch);
    Ok(json!({
        "column": column.to_string(),
        "next": hex_of(secret.next().expose()),
        "root": hex_of(root.node().expose()),
        "epoch_key": hex_of(*epoch.expose()),
        "seal_key": hex_of(seal.expose()),
        "commitment": hex_of(seal.commitment().0),
    }))
}

/// Returns the cover of a range of epochs.
pub fn cover(input: &Value) -> Verdict {
    let root = secret(input).column(ColumnId(fixed(input, "column")));
    let epochs = EpochNumber(number(input, "first"))..=EpochNumber(number(input, "last"));
    let nodes = root.cover(epochs);
    let nodes = nodes.map(|node| json!([node.depth(), node.prefix(), hex_of(node.expose())]));
    Ok(json!({ "nodes": nodes.collect::<Vec<_>>() }))
}

/// Derives a seal key from nodes, and checks it.
pub fn open(input: &Value) -> Verdict {
    let nodes = list(input, "nodes").iter().map(|node| {
        let key = hex::decode(node[2].as_str().unwrap()).unwrap().try_into().unwrap();
        let part = |at: usize| node[at].as_u64().unwrap();
        let depth = u8::try_from(part(0)).unwrap();
        Node::new(depth, u32::try_from(part(1)).unwrap(), key).map_err(name)
    });
    let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
    let base = EpochNumber(number(input, "base"));
    let nodes = Nodes::new(ColumnId(fixed(input, "column")), base, &nodes);
    let epoch = nodes.epoch_key(EpochNumber(number(input, "epoch"))).map_err(name)?;
    let key = seal_key(input, &epoch);
    key.check(&Commitment(fixed(input, "commitment"))).map_err(name)?;
    Ok(json!({ "seal_key": hex_of(key.expose()) }))
}

/// Decrypts the columns of a record for which there are seal keys, and reads all values.
pub fn decrypt(input: &Value) -> Verdict {
    let (schema, mut record) = (bytes(input, "schema"), bytes(input, "record"));
    let schema = Schema::decode(&schema).unwrap();
    schema.check_record(&record).map_err(name)?;
    let keys = schema.encrypted_columns().zip(list(input, "keys"));
    let mut streams: Vec<_> = keys
        .map(|((field, column), key)| {
            let key = hex::decode(key.as_str()?).unwrap().try_into().unwrap();
            Some(KeyStream::new(SealKey::from_bytes(column, field.suite?, key)))
        })
        .collect();
    let columns = EncryptedColumns::of(&schema);
    let seq = Sequence(number(input, "seq"));
    let decrypted = columns.decrypt(seq, &mut record, &mut streams).map_err(name)?;
    let mut values = Vec::new();
    for field in schema.fields() {
        match decrypted.read(&field) {
            Err(error) if error.name() == "Encrypted" => {
                values.push(json!({ "error": "Encrypted" }));
            }
            value => values.push(value_of(value.map_err(name)?)),
        }
    }
    Ok(json!({ "record": hex_of(decrypted.as_bytes()), "values": values }))
}
