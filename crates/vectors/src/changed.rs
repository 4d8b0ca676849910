//! Randomly changed cases of the committed vectors, with the verdicts of the product's code. The
//! second verifier, `spec/verify.py`, replays them, to find verdicts in which the two differ.
//!
//! A change treats the input as a sequence of CBOR items: it removes, repeats, moves or exchanges
//! items, replaces a field, or changes bytes.

use std::collections::BTreeMap;

use moteseal_fixtures::cbor_tree::{FALSE, NULL, Value as Item, bytes, encode_sequence, int, text};
use serde_json::{Value, json};

use crate::committed;
use crate::ops::Shared;

/// The operations whose input is changed: each has its input in `bytes`.
const OPS: [&str; 9] = [
    "stream.read",
    "stream.bundle",
    "choice.answer",
    "answer.open",
    "proof.open",
    "audit.range",
    "roster.open",
    "word.manifest",
    "cast.frame",
];

/// A generator of pseudorandom numbers (SplitMix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ mixed >> 31) % end.max(1) as u64).unwrap()
    }

    fn of<'c, T>(&mut self, choices: &'c [T]) -> &'c T {
        &choices[self.below(choices.len())]
    }
}

/// Returns one file for each committed file with such an operation. `cases` is the number of changed
/// cases of each file.
pub fn changed_files(seed: u64, cases: usize) -> BTreeMap<String, Value> {
    let mut chance = Chance(seed);
    let mut files = BTreeMap::new();
    for (name, mut file) in committed() {
        let all = ["valid", "invalid"].map(|kind| file[kind].as_array().unwrap().clone()).concat();
        let bases: Vec<&Value> = all
            .iter()
            .filter(|case| {
                OPS.contains(&case["op"].as_str().unwrap()) && input(case).len() < 20_000
            })
            .collect();
        if bases.is_empty() {
            continue;
        }
        let pool: Vec<Item> = bases.iter().flat_map(|case| items(&input(case))).collect();
        let shared = Shared::new(&file);
        let (mut valid, mut invalid) = (Vec::new(), Vec::new());
        for number in 0..cases {
            let case = *chance.of(&bases);
            let mut changed = input(case);
            for _ in 0..=chance.below(2) {
                changed = change(&changed, &pool, &mut chance);
            }
            let (op, mut given) = (case["op"].as_str().unwrap(), case["input"].clone());
            given["bytes"] = hex::encode(&changed).into();
            let mut made = json!({
                "name": format!("change {number} of {}", case["name"].as_str().unwrap()),
                "op": op,
                "input": given,
            });
            match shared.run(op, &made["input"]) {
                Ok(output) => {
                    made["output"] = output;
                    valid.push(made);
                }
                Err(error) => {
                    made["error"] = error.into();
                    invalid.push(made);
                }
            }
        }
        (file["valid"], file["invalid"]) = (valid.into(), invalid.into());
        file["mutations"] = json!([]);
        files.insert(name, file);
    }
    files
}

fn input(case: &Value) -> Vec<u8> {
    hex::decode(case["input"]["bytes"].as_str().unwrap()).unwrap()
}

/// Returns the items at the start of `bytes` that are well-formed.
fn items(bytes: &[u8]) -> Vec<Item> {
    let (mut found, mut rest) = (Vec::new(), bytes);
    while let Ok(length) = moteseal_core::cbor::item_length(rest) {
        found.push(Item::decode(&rest[..length]));
        rest = &rest[length..];
    }
    found
}

fn change(before: &[u8], pool: &[Item], chance: &mut Chance) -> Vec<u8> {
    let mut items = items(before);
    let tail = before[encode_sequence(&items).len()..].to_vec();
    let (one, other) = (chance.below(items.len()), chance.below(items.len()));
    match chance.below(12) {
        0 if !items.is_empty() => drop(items.remove(one)),
        1 if !items.is_empty() => items.insert(other, items[one].clone()),
        2 if !items.is_empty() => items.swap(one, other),
        3 if !items.is_empty() => {
            let moved = items.remove(one);
            items.insert(other, moved);
        }
        4 | 5 => items.insert(chance.below(items.len() + 1), chance.of(pool).clone()),
        6 => items.insert(chance.below(items.len() + 1), scrap(chance)),
        7 | 8 if !items.is_empty() => {
            if let Item::Array(fields) = &mut items[one]
                && !fields.is_empty()
            {
                let at = chance.below(fields.len());
                fields[at] = scrap(chance);
            }
        }
        9 => {
            let mut changed = before.to_vec();
            if !changed.is_empty() {
                let at = chance.below(changed.len());
                changed[at] ^= 1 << chance.below(8);
            }
            return changed;
        }
        10 => return before[..chance.below(before.len())].to_vec(),
        _ => return [before, &scrap(chance).encode()].concat(),
    }
    [encode_sequence(&items), tail].concat()
}

/// Returns a small item: a field of another type or at the end of a range, or a short stream item.
fn scrap(chance: &mut Chance) -> Item {
    let end = || Item::Array(vec![int(3)]);
    chance
        .of(&[
            NULL,
            FALSE,
            int(0),
            int(1),
            int(2),
            int(255),
            int(-1),
            int(-25),
            int(-(1 << 33)),
            int(1 << 32),
            Item::Uint(u64::MAX),
            bytes(&[]),
            bytes(&[0; 8]),
            bytes(&[0; 32]),
            text(""),
            Item::Array(Vec::new()),
            Item::Array(vec![int(-25)]),
            Item::Array(vec![int(0), bytes(&[0x82, 1, 0x80])]),
            Item::Array(vec![int(4), text("StoreFailed"), text("")]),
            Item::Array(vec![int(5), int(1), text("{}")]),
            Item::Array(vec![int(6), bytes(&[]), bytes(&[])]),
            Item::Array(vec![int(7), int(-33)]),
            end(),
            end(),
        ])
        .clone()
}
