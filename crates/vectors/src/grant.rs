//! Runs the operations of the vectors for grants and owners' files (spec/grants.md) with the
//! product's code.

use moteseal_core::confidential::{ColumnId, Commitment, Nonce, Suite};
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_grant::{Audience, KeyRequest, OpenGrant, Owner, Passphrase, Reader, Share, join};
use moteseal_verify::Roster;
use serde_json::{Value, json};

use crate::ops::{Verdict, bytes, fixed, hex_of, name, number};

/// Opens a signed grant for a recipient, or for one who knows a passphrase. Returns its contents.
pub fn open(roster: &Roster, input: &Value) -> Verdict {
    let grant = OpenGrant::verify(&bytes(input, "bytes"), roster).map_err(name)?;
    let passphrase = input["passphrase"].as_str().map(|text| Passphrase::new(text).unwrap());
    let reader = match (&passphrase, input["recipient"].as_str()) {
        (Some(passphrase), _) => Reader::Passphrase(passphrase),
        (None, recipient) => Reader::Recipient(recipient.unwrap()),
    };
    grant.check_reader(reader, number(input, "now")).map_err(name)?;
    let contents = grant.contents();
    let columns = contents.columns.iter().map(|column| {
        let epochs: Vec<_> = column.epochs.iter().map(|(first, last)| [first.0, last.0]).collect();
        json!([column.device.to_string(), column.generation, column.column.to_string(), epochs])
    });
    Ok(json!({
        "owner": contents.owner,
        "since": contents.time.since_ms,
        "until": contents.time.until_ms,
        "purpose": contents.purpose,
        "not_after": contents.not_after_ms,
        "recipients": match &contents.audience {
            Audience::Recipients(texts) => json!(texts),
            Audience::Passphrase(_) => Value::Null,
        },
        "columns": columns.collect::<Vec<_>>(),
    }))
}

/// Returns the key that a signed grant gives for a column of a seal.
pub fn key(roster: &Roster, input: &Value) -> Verdict {
    let grant = OpenGrant::verify(&bytes(input, "bytes"), roster).map_err(name)?;
    let request = KeyRequest {
        device: DeviceId(fixed(input, "device")),
        column: ColumnId(fixed(input, "column")),
        epoch: EpochNumber(number(input, "epoch")),
        index: SealIndex(number(input, "index")),
        suite: Suite::from_number(number(input, "suite")).unwrap(),
        nonce: Nonce(fixed(input, "nonce")),
    };
    let commitment = Commitment(fixed(input, "commitment"));
    let key = grant.keys().seal_key(&request, &commitment).map_err(name)?;
    Ok(json!({ "key": hex_of(key.expose()) }))
}

/// Reads an owner's file. Returns what it contains, without the secrets.
pub fn owner(input: &Value) -> Verdict {
    let owner = Owner::decode(&bytes(input, "bytes")).map_err(name)?;
    let streams = owner.streams().iter().map(|stream| {
        let columns = stream.columns().iter();
        let columns: Vec<_> =
            columns.map(|column| json!([column.id.to_string(), column.name])).collect();
        json!([
            stream.device().to_string(),
            stream.generation(),
            stream.base().0,
            stream.forgotten().map(|epoch| epoch.0),
            columns,
        ])
    });
    Ok(json!({
        "group": owner.group_name(),
        "name": owner.name(),
        "key": hex_of(&*owner.public_key().to_bytes()),
        "streams": streams.collect::<Vec<_>>(),
    }))
}

/// Erases the keys of the epochs before `epoch` from an owner's file. Returns the new file.
pub fn forget(input: &Value) -> Verdict {
    let mut owner = Owner::decode(&bytes(input, "bytes")).map_err(name)?;
    owner.forget(EpochNumber(number(input, "epoch")), None).map_err(name)?;
    Ok(json!({ "bytes": hex_of(&*owner.encode().map_err(name)?) }))
}

/// Restores a secret from shares.
pub fn share(input: &Value) -> Verdict {
    let texts = input["shares"].as_array().unwrap();
    let shares = texts.iter().map(|text| Share::parse(text.as_str().unwrap()));
    let shares = shares.collect::<Result<Vec<_>, _>>().map_err(name)?;
    Ok(json!({ "secret": hex_of(*join(&shares).map_err(name)?) }))
}
