//! Generates the vectors: the inputs and, for invalid inputs, the expected errors.
//!
//! The following list names each module and the folders or files below `spec/vectors/v1` that it
//! generates:
//!
//! - `audits`: `audit`
//! - `broadcasts`: `broadcast`
//! - `coordinator`: `word`
//! - `confidential`: `confidential`, `cose/encrypted`, `schema/encrypted`, `stream/encrypted`,
//!   `urgent/encrypted`
//! - `cose`: `cose`
//! - `encodings`: `cbor`, `choice/formulas`, `level/levels`, `permutation/choose`, `star/seals`,
//!   `tree/shapes`
//! - `explained`: `stream/explained`, `tree/receipts`
//! - `grants`: `grant`
//! - `groups`: `groups`
//! - `identity`: `certificate`, `roster`, `schema`, `urgent`
//! - `kept`: `budget/offers`
//! - `links`: `health`, `link`
//! - `order`: `stream/items`, `stream/order`
//! - `parts`: `level/streams`, `star/parts`, `tree/parts`, `stream/ml-dsa-44`, `stream/mutations`,
//!   `stream/runs`
//! - `plans`: `query`
//! - `private`: `sum`, except `sum/agendas`
//! - `proofs`: `proof`
//! - `pruned`: `stream/manifests`, `stream/no-budget`, `stream/no-coordinator`, `stream/pruned`
//! - `readings`: `reading`
//! - `sanitised`: `sanitised`
//! - `schedules`: `sum/agendas`
//! - `schema_2`: `schema/version-2`, `schema/records-2`, `stream/version-2`, `urgent/version-2`
//! - `served`: `choice/answers`, `choice/ranges`, `permutation/answers`
//! - `policies`: `policy`
//! - `signed_time`: `time`
//! - `updates`: `update`
//! - `within`: `budget/answers`, `budget/none`, `budget/samples`

mod audits;
mod broadcasts;
mod confidential;
mod coordinator;
mod cose;
mod encodings;
mod explained;
mod grants;
mod groups;
mod identity;
mod kept;
mod links;
mod order;
mod partitions;
mod parts;
mod periods;
mod plans;
mod policies;
mod private;
mod proofs;
mod pruned;
mod readings;
mod sanitised;
mod schedules;
mod schema_2;
mod served;
mod signed_time;
mod updates;
mod within;

use std::collections::BTreeMap;

use moteseal_core::signature::SecretKey;
use serde_json::{Map, Value, json};

use crate::ops::Shared;
use crate::{changed_input, changes};

/// Returns all generated files, keyed by the path below `spec/vectors/v1`.
pub fn files() -> BTreeMap<String, Value> {
    let mut files = Files::default();
    encodings::make(&mut files);
    cose::make(&mut files);
    identity::make(&mut files);
    schema_2::make(&mut files);
    confidential::make(&mut files);
    groups::make(&mut files);
    sanitised::make(&mut files);
    readings::make(&mut files);
    parts::make(&mut files);
    periods::make(&mut files);
    order::make(&mut files);
    explained::make(&mut files);
    served::make(&mut files);
    coordinator::make(&mut files);
    pruned::make(&mut files);
    kept::make(&mut files);
    within::make(&mut files);
    proofs::make(&mut files);
    audits::make(&mut files);
    links::make(&mut files);
    private::make(&mut files);
    broadcasts::make(&mut files);
    schedules::make(&mut files);
    plans::make(&mut files);
    policies::make(&mut files);
    grants::make(&mut files);
    signed_time::make(&mut files);
    updates::make(&mut files);
    assert!(files.wrong.is_empty(), "{}", files.wrong.join("\n"));
    files.made
}

#[derive(Default)]
pub struct Files {
    made: BTreeMap<String, Value>,
    /// Descriptions of the cases whose result differs from the expected one.
    wrong: Vec<String>,
}

impl Files {
    /// Runs the cases of a file to get their outputs, and adds the file.
    pub fn add(&mut self, file: File) {
        let mut object = file.shared;
        let shared = Shared::new(&Value::Object(object.clone()));
        let mut valid = Vec::new();
        for (name, op, input) in file.valid {
            match shared.run(op, &input) {
                Ok(output) => {
                    valid.push(json!({ "name": name, "op": op, "input": input, "output": output }));
                }
                Err(error) => self.wrong.push(format!("{}: {name}: {error}", file.path)),
            }
        }
        let mut invalid = Vec::new();
        for (name, op, input, error) in file.invalid {
            match shared.run(op, &input) {
                Err(found) if found == error => {
                    invalid.push(json!({ "name": name, "op": op, "input": input, "error": error }));
                }
                found => self
                    .wrong
                    .push(format!("{}: {name}: expected {error}, found {found:?}", file.path)),
            }
        }
        let mut mutations = Vec::new();
        for (name, op, input, field, flips) in file.mutations {
            let mut mutation =
                json!({ "name": name, "op": op, "input": input, "field": field, "flips": flips });
            let (mut verdicts, mut kept): (Vec<(String, u32)>, _) = (Vec::new(), None);
            for changed in changes(&mutation) {
                let verdict = match shared.run(op, &changed_input(&mutation, &changed)) {
                    Err(error) => error,
                    Ok(output) => {
                        // A changed stream is accepted only if it was cut between two items, and
                        // its output is always the same.
                        if kept.get_or_insert_with(|| output.clone()) != &output {
                            self.wrong.push(format!(
                                "{}: {name}: a change is accepted: {output}",
                                file.path
                            ));
                        }
                        "kept".to_owned()
                    }
                };
                match verdicts.last_mut() {
                    Some((last, times)) if *last == verdict => *times += 1,
                    _ => verdicts.push((verdict, 1)),
                }
            }
            mutation["verdicts"] = json!(verdicts);
            if let Some(kept) = kept {
                mutation["kept"] = kept;
            }
            mutations.push(mutation);
        }
        object.insert("about".to_owned(), json!(file.about));
        object.insert("valid".to_owned(), json!(valid));
        object.insert("invalid".to_owned(), json!(invalid));
        if !mutations.is_empty() {
            object.insert("mutations".to_owned(), json!(mutations));
        }
        self.made.insert(file.path.to_owned(), Value::Object(object));
    }
}

/// A vector file to which cases are added.
pub struct File {
    path: &'static str,
    about: &'static str,
    shared: Map<String, Value>,
    valid: Vec<(String, &'static str, Value)>,
    invalid: Vec<(String, &'static str, Value, &'static str)>,
    mutations: Vec<(String, &'static str, Value, &'static str, Vec<u8>)>,
}

impl File {
    pub fn new(path: &'static str, about: &'static str) -> Self {
        Self {
            path,
            about,
            shared: Map::new(),
            valid: Vec::new(),
            invalid: Vec::new(),
            mutations: Vec::new(),
        }
    }

    /// Adds an input that all cases of the file share.
    pub fn shared(mut self, field: &str, value: Value) -> Self {
        self.shared.insert(field.to_owned(), value);
        self
    }

    pub fn operator(self, operator: &SecretKey) -> Self {
        self.shared("operator", public(operator))
    }

    /// Returns the inputs that all cases of the file share.
    pub fn shared_values(&self) -> Value {
        Value::Object(self.shared.clone())
    }

    pub fn valid(&mut self, name: impl Into<String>, op: &'static str, input: Value) {
        self.valid.push((name.into(), op, input));
    }

    pub fn invalid(
        &mut self,
        name: impl Into<String>,
        op: &'static str,
        input: Value,
        error: &'static str,
    ) {
        self.invalid.push((name.into(), op, input, error));
    }

    /// Adds a mutation of `field`. It represents one test case for each change (spec/README.md).
    pub fn mutate(
        &mut self,
        name: impl Into<String>,
        op: &'static str,
        input: Value,
        field: &'static str,
        flips: &[u8],
    ) {
        self.mutations.push((name.into(), op, input, field, flips.to_vec()));
    }
}

/// Returns the suite and the raw bytes of a public key as JSON.
pub fn public(secret: &SecretKey) -> Value {
    let key = secret.public();
    json!({ "alg": key.algorithm().name(), "key": hex::encode(key.to_bytes()) })
}

/// Returns an input that has only the field `bytes`.
pub fn of(bytes: &[u8]) -> Value {
    json!({ "bytes": hex::encode(bytes) })
}
