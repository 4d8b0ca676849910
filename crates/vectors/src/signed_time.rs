//! Runs the operations of the vectors for signed time (spec/time.md) with the product's code.

use moteseal_core::record::{DeviceId, GroupId};
use moteseal_core::signature::PublicKey;
use moteseal_core::signed_time::{TimeAnchor, TimeChallenge, TimeSigner, TimeStatement};
use serde_json::{Value, json};

use crate::ops::{Verdict, algorithm, bytes, fixed, number};

/// Returns a challenge of a device.
pub fn challenge(input: &Value) -> Value {
    let (starts, count) = (number(input, "starts"), number(input, "count"));
    let challenge = TimeChallenge::new(&fixed(input, "secret"), starts, count);
    json!({ "challenge": hex::encode(challenge.0) })
}

/// Opens a time statement and returns the time.
pub fn open(input: &Value) -> Verdict {
    let key = |name: &str| {
        let key = input.get(name).filter(|key| !key.is_null())?;
        Some(PublicKey::from_bytes(algorithm(key), &bytes(key, "key")).unwrap())
    };
    let (operator, querier) = (key("operator"), key("querier"));
    let to = (GroupId(fixed(input, "group")), DeviceId(fixed(input, "device")));
    let challenge = TimeChallenge(fixed(input, "challenge"));
    let statement = TimeStatement::open(&bytes(input, "bytes"), to, challenge, |role| match role {
        TimeSigner::Operator => operator.as_ref(),
        TimeSigner::Querier => querier.as_ref(),
    });
    let statement = statement.map_err(|error| error.name().to_owned())?;
    Ok(json!({ "time": statement.unix_ms.to_string() }))
}

/// Returns the earliest and the latest possible time after a statement.
pub fn range(input: &Value) -> Verdict {
    let of = |field: &str| input[field].as_str().unwrap().parse().unwrap();
    let statement = TimeStatement {
        group: GroupId([0; 8]),
        device: DeviceId([0; 8]),
        challenge: TimeChallenge([0; 16]),
        unix_ms: of("time"),
    };
    let anchor = TimeAnchor::new(&statement, of("sent"), of("received"))
        .map_err(|error| error.name().to_owned())?;
    let range = anchor.range(of("now"));
    Ok(json!({ "earliest": range.earliest_ms.to_string(), "latest": range.latest_ms.to_string() }))
}
