//! Runs the operations of the vectors of update files (spec/update.md) with the product's code.

use moteseal_broadcast::firmware::{FirmwareManifest, find_tag};
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, PublicKey};
use serde_json::json;

use crate::ops::{Verdict, bytes, fixed, hex_of, list, name, text};
use serde_json::Value;

/// Opens the first part of an update file. There is one base station.
pub fn part(input: &Value) -> Verdict {
    let [base] = list(input, "bases") else { return Err("one base station".to_owned()) };
    let algorithm = Algorithm::from_name(text(base, "alg")).unwrap();
    let base = PublicKey::from_bytes(algorithm, &bytes(base, "key")).unwrap();
    let part = bytes(input, "bytes");
    let network = NetworkId(fixed(input, "network"));
    let manifest = FirmwareManifest::open_part(&part, network, &base).map_err(name)?;
    Ok(json!({
        "board": manifest.board, "version": manifest.version, "length": manifest.length,
        "digest": hex_of(manifest.digest),
    }))
}

pub fn tag(input: &Value) -> Verdict {
    let image = bytes(input, "bytes");
    let (board, version) = find_tag(&image).map_err(name)?;
    Ok(json!({ "board": board, "version": version }))
}
