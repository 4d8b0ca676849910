//! Formats what is computed for a mote: the product's columns of D5.3's tables 17, 18 and 22.

use serde::Serialize;

use super::super::seals::{digits, time};
use crate::redactable::Measured;
use crate::redactable::mote::{self, Memory, Message};
use crate::table::{Table, rounded, thousands};

/// What is shown in place of a number that needs an absent count.
const ABSENT: &str = "not counted";

fn messages(measured: &Measured) -> Option<[Message; 3]> {
    mote::messages(measured.sent.as_ref()?, measured.footprint.as_ref()?)
}

fn ms(milliseconds: f64) -> String {
    time(milliseconds * 1e6)
}

/// Returns the computed times of the product's messages on a mote.
#[must_use]
pub fn computed(measured: &Measured) -> Table {
    let mut table = Table::new([
        "computed, of a mote of 32 MHz",
        "bytes",
        "CoAP messages",
        "on air",
        "at D5.3's time of a message",
        "instructions",
        "computing, one cycle an instruction",
        "on air and computing",
    ]);
    for row in messages(measured).into_iter().flatten() {
        let has_computing = row.instructions > 0.0;
        let computing = |text: String| if has_computing { text } else { "none".to_owned() };
        table.row([
            row.name.to_owned(),
            row.sent.bytes.to_string(),
            row.sent.transfer.messages.to_string(),
            ms(row.air_ms),
            ms(row.transmission_ms),
            computing(thousands(rounded(row.instructions))),
            computing(ms(row.computing_ms)),
            ms(row.air_ms + row.computing_ms),
        ]);
    }
    table
}

/// Returns the product's cell of a row of table 17.
pub(super) fn interaction(measured: &Measured, row: usize) -> String {
    messages(measured).map_or_else(
        || ABSENT.to_owned(),
        |rows| {
            let Message { name, air_ms, computing_ms, .. } = rows[row];
            format!("computed, {name}: {} and {}", ms(air_ms), ms(air_ms + computing_ms))
        },
    )
}

/// Returns the product's cell of table 18.
pub(super) fn memory(measured: &Measured) -> String {
    let found = measured.footprint.as_ref().and_then(mote::memory);
    let bytes = |memory: Memory| {
        let [flash, ram] = [memory.flash, memory.ram].map(|bytes| thousands(rounded(bytes)));
        format!("at most {flash} bytes of flash and {ram} of RAM")
    };
    found.map_or_else(
        || ABSENT.to_owned(),
        |[added, whole]| {
            format!(
                "computed: column groups and encryption {}; with the seal and Ed25519 {}",
                bytes(added),
                bytes(whole)
            )
        },
    )
}

/// Returns the product's cells of table 22.
pub(super) fn energies(measured: &Measured) -> [String; 2] {
    let found = measured.footprint.as_ref().and_then(mote::energies);
    found.map_or_else(
        || [ABSENT, ABSENT].map(str::to_owned),
        |found| {
            let [ed25519, p256, [seal, verify]] =
                [found.ed25519, found.p256, found.grouped].map(|pair| pair.map(digits));
            let pair = |[sign, verify]: [String; 2]| format!("{sign} and {verify} Ws");
            [
                format!("computed: Ed25519 {}, P-256 {}", pair(ed25519), pair(p256)),
                format!("computed: column groups {seal} Ws, verifying their signature {verify} Ws"),
            ]
        },
    )
}

/// Returns the computed numbers as one text.
pub(super) fn summary(measured: &Measured) -> String {
    let cells = [interaction(measured, 2), memory(measured)].map(plain);
    let energy = energies(measured).map(plain);
    format!(
        "computed, of a mote of 32 MHz, on air and with the signature: {}; {}; {}; {}; {}",
        plain(interaction(measured, 1)),
        cells[0],
        cells[1],
        energy[0],
        energy[1]
    )
}

/// Removes the word that a cell begins with.
fn plain(cell: String) -> String {
    ["computed: ", "computed, "]
        .iter()
        .find_map(|word| cell.strip_prefix(word).map(str::to_owned))
        .unwrap_or(cell)
}

/// A row of mote.csv.
#[derive(Serialize)]
pub(super) struct Row {
    message: &'static str,
    bytes: usize,
    coap_messages: usize,
    air_ms: f64,
    at_d5_3_time_ms: f64,
    instructions: f64,
    computing_ms: f64,
}

/// Returns the rows of mote.csv.
pub(super) fn rows(measured: &Measured) -> Vec<Row> {
    let row = |row: Message| Row {
        message: row.name,
        bytes: row.sent.bytes,
        coap_messages: row.sent.transfer.messages,
        air_ms: row.air_ms,
        at_d5_3_time_ms: row.transmission_ms,
        instructions: row.instructions,
        computing_ms: row.computing_ms,
    };
    messages(measured).into_iter().flatten().map(row).collect()
}
