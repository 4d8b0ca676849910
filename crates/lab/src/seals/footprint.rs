//! What was counted on a Cortex-M3 (`docs/footprint.csv`): read here, written by the firmware's own measurement.
//!
//! The first line names the columns, `part` among them; rows are looked up by their part. What is not there is said to be not there.

use crate::table::Table;

/// The file, row by row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Footprint {
    /// Reads the file's text; `None` if it is no CSV that has a heading with `part` and the same number of cells everywhere.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let columns: Vec<String> = reader.headers().ok()?.iter().map(str::to_owned).collect();
        let rows = reader.records().map(|record| Some(record.ok()?.iter().map(str::to_owned).collect()));
        let rows = rows.collect::<Option<Vec<Vec<String>>>>()?;
        columns.iter().any(|column| column == "part").then_some(Self { columns, rows })
    }

    /// The number in a column of the row of a part.
    #[must_use]
    pub fn number(&self, part: &str, column: &str) -> Option<f64> {
        let of = |name: &str| self.columns.iter().position(|column| column == name);
        let (named, wanted) = (of("part")?, of(column)?);
        let row = self.rows.iter().find(|row| row.get(named).is_some_and(|name| name == part))?;
        row.get(wanted)?.parse().ok()
    }

    /// Instructions that one event takes.
    #[must_use]
    pub fn of_event(&self, part: &str) -> Option<f64> {
        self.number(part, "instructions_per_event")
    }

    /// Instructions that an epoch takes beside its events.
    #[must_use]
    pub fn of_epoch(&self, part: &str) -> Option<f64> {
        self.number(part, "instructions_per_epoch")
    }

    /// All of it.
    #[must_use]
    pub fn table(&self) -> Table {
        Table::of(self.columns.clone(), self.rows.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_by_part_and_column_or_not_at_all() {
        let read = Footprint::read("part,instructions_per_event,ram\nstar-16,812,1848\nsign-p256,,4000\n").unwrap_or_default();
        assert_eq!(read.of_event("star-16"), Some(812.0));
        assert_eq!((read.of_event("sign-p256"), read.of_event("star-8"), read.of_epoch("star-16")), (None, None, None));
        assert_eq!(read.number("sign-p256", "ram"), Some(4000.0));
        assert_eq!(read.table().rows().len(), 2);
        assert_eq!((Footprint::read("a,b\n1,2\n"), Footprint::read("part,b\n1\n")), (None, None));
    }
}
