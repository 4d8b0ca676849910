//! The page and the tables that others read.

use std::fmt::Write as _;

use crate::figures::Figures;

const START: &str = "# Footprint on a Cortex-M3

`cargo test -p moteseal-bench --test footprint` regenerates this page and the tables beside it (`footprint.csv`, `footprint_levels.csv`), and fails
where one is not true or a bar is missed; `MOTESEAL_BLESS=1` before it writes them anew. It builds the programs of `firmware/footprint`, one a
part, and runs them in QEMU (`mps2-an385`) with `-icount`, so that every figure is the same on every machine with the pinned compiler.

**QEMU counts instructions.** They are not cycles, nor time, nor energy: a Cortex-M3 takes one to a dozen cycles for an instruction, more where its
flash is slow.

- *RAM* is the state that stays between two calls, in bytes. *Stack* is what the deepest call of the part needs below its caller, found by painting.
- *Flash* is a program with the part less the same program without it (start-up and the harness): code, constants and initial values. The harness's
  own few calls of the part are counted as the part's, and so are `memcpy` and the like.
- Everything is optimised for size (`opt-level = \"s\"`, link-time optimisation) with the compact form of SHA-2 (`firmware/.cargo/config.toml`). One
  flag less unrolls it: the rows *SHA-2 unrolled* show what that buys and costs.
- Events are 1,024 records of 4 bytes, of trees 1,023: a number that leaves nodes to be hashed at every height when an epoch is closed; an event's cost is their mean, rounded up, and holds all
  that an event causes before the epoch ends. A program's results are compared with what the machine that runs the test computes.
- The receiver of a chain needs beside its RAM, to which its bar of 1 KiB applies, the room for the messages of one block, which are its user's, and
  where it checks heads itself what a part of its own below says.

";

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `docs/footprint.md`.
pub(crate) fn markdown(figures: &Figures) -> String {
    let mut text = START.to_owned();
    for part in &figures.0 {
        let (first, rest) = part.name.split_at(1);
        writeln!(
            text,
            "## {}{rest}\n\n| what | measured | bar |\n|---|---|---|",
            first.to_uppercase()
        )
        .unwrap();
        for row in &part.rows {
            let bar = row.bar.map_or(String::new(), |bar| format!("{} {}", grouped(bar), row.unit));
            writeln!(text, "| {} | {} {} | {bar} |", row.what, grouped(row.value), row.unit)
                .unwrap();
        }
        text.push('\n');
    }
    text.push_str(END);
    text
}

const END: &str = "RSA-1024 (by the Chinese remainder theorem) and DSA-512 are computed with the arithmetic of `crypto-bigint`, in constant time, and live in
`firmware/footprint` only: the paper has them, and nobody should use them. `footprint_levels.csv` has a star's RAM for each number of levels:
memory against sampling resolution, whose finest rate is `2^-(L-1)`.
";

/// `docs/footprint.csv`.
pub(crate) fn csv(figures: &Figures) -> String {
    let mut text = String::from("part,what,unit,value,bar\n");
    for part in &figures.0 {
        for row in &part.rows {
            let bar = row.bar.map_or(String::new(), |bar| bar.to_string());
            writeln!(text, "\"{}\",\"{}\",{},{},{bar}", part.name, row.what, row.unit, row.value)
                .unwrap();
        }
    }
    text
}

/// `docs/footprint_levels.csv`.
pub(crate) fn levels(ram: impl Fn(u8) -> u64) -> String {
    let mut text = String::from("levels,finest_rate,ram_bytes\n");
    for level in 2..=32 {
        writeln!(text, "{level},2^-{},{}", level - 1, ram(level)).unwrap();
    }
    text
}
