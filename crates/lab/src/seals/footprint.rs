//! Reads the counts of instructions and bytes on a Cortex-M3 from `docs/footprint.csv` and
//! `docs/footprint_levels.csv`. The test `crates/bench/tests/it/footprint` writes these files and
//! compares the numbers with their bars (upper limits).
//!
//! A line of the first file contains a component, what was counted, the unit and the number. The
//! methods return `None` for a missing line. A number of instructions is not a number of cycles or
//! a time.

use serde::Deserialize;

use crate::table::{Table, rounded, thousands};

#[derive(Clone, Debug, Deserialize, PartialEq)]
struct Line {
    part: String,
    what: String,
    unit: String,
    value: f64,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
struct Levels {
    levels: u32,
    ram_bytes: u64,
}

/// The contents of both files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Footprint {
    lines: Vec<Line>,
    levels: Vec<Levels>,
}

/// The component with the operations of table I.
const PRIMITIVES: &str = "primitives of the paper's table I: digests of 10 bytes, signatures of 300, RSA and DSA without their digests";

impl Footprint {
    /// Parses the texts of both files.
    ///
    /// # Errors
    /// A message for people that describes the malformed line.
    pub fn read(parts: &str, levels: &str) -> Result<Self, String> {
        let lines = csv::Reader::from_reader(parts.as_bytes())
            .deserialize()
            .collect::<Result<Vec<Line>, _>>();
        let levels = csv::Reader::from_reader(levels.as_bytes())
            .deserialize()
            .collect::<Result<Vec<Levels>, _>>();
        Ok(Self {
            lines: lines.map_err(|error| error.to_string())?,
            levels: levels.map_err(|error| error.to_string())?,
        })
    }

    /// Returns the number that was counted under the name `what` in a component.
    #[must_use]
    pub fn number(&self, part: &str, what: &str) -> Option<f64> {
        self.lines.iter().find(|line| line.part == part && line.what == what).map(|line| line.value)
    }

    /// Returns the number of instructions of an operation of table I.
    #[must_use]
    pub fn primitive(&self, name: &str) -> Option<f64> {
        self.number(PRIMITIVES, name)
    }

    /// Returns the number of instructions of a component per event.
    #[must_use]
    pub fn of_event(&self, part: &str) -> Option<f64> {
        self.number(part, "an event of 4 bytes")
    }

    /// Returns the number of instructions of a component for the end of an epoch.
    #[must_use]
    pub fn of_epoch(&self, part: &str) -> Option<f64> {
        self.number(part, "closing an epoch")
    }

    /// Returns the bytes of RAM of a star with this many levels.
    #[must_use]
    pub fn ram_of_levels(&self, levels: u32) -> Option<u64> {
        self.levels.iter().find(|line| line.levels == levels).map(|line| line.ram_bytes)
    }

    /// Returns a table of all counts.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table::new(["part", "what", "unit", "counted"]);
        for line in &self.lines {
            table.row([
                line.part.clone(),
                line.what.clone(),
                line.unit.clone(),
                thousands(rounded(line.value)),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn numbers_are_found_by_component_and_subject() {
        let parts = "part,what,unit,value,bar\n\"star, L = 16\",\"an event of 4 bytes\",instructions,653,1000\n\"star, L = 16\",\"RAM\",bytes,1848,\n";
        let read = Footprint::read(parts, "levels,finest_rate,ram_bytes\n16,2^-15,1848\n").unwrap();
        assert_eq!(read.of_event("star, L = 16"), Some(653.0));
        assert_eq!(
            (read.of_event("star, L = 8"), read.of_epoch("star, L = 16"), read.primitive("MD5")),
            (None, None, None)
        );
        assert_eq!((read.ram_of_levels(16), read.ram_of_levels(8)), (Some(1848), None));
        assert_eq!(read.table().rows().len(), 2);
        assert!(Footprint::read("part,b\nx,2\n", "").is_err());
    }

    #[test]
    fn the_files_of_the_checkout_have_the_numbers_of_the_models() {
        let committed = |name: &str| {
            std::fs::read_to_string(format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR")))
                .unwrap()
        };
        let read = Footprint::read(&committed("footprint.csv"), &committed("footprint_levels.csv"))
            .unwrap();
        for name in [
            "MD5",
            "SHA-1",
            "SHA-256",
            "RSA-1024 signing",
            "DSA-512 signing",
            "Ed25519 signing",
            "P-256 signing",
        ] {
            assert!(read.primitive(name).is_some_and(|count| count > 100.0), "{name}");
        }
        for part in ["star, L = 16", "tree, capacity 2^20"] {
            assert!(read.of_event(part).is_some() && read.of_epoch(part).is_some(), "{part}");
        }
        assert!(
            read.number(
                "all in one: star L = 16, Ed25519, source, receiver of a chain",
                "an epoch's end, signed"
            )
            .is_some()
        );
        assert!((2..=32).all(|levels| read.ram_of_levels(levels).is_some()));
    }
}
