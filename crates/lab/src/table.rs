//! Formats tables for people, with aligned columns and readable numbers, and the same tables as
//! Markdown.

use std::fmt;

/// Formats a number with commas between thousands: `37,674`.
#[must_use]
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Rounds a number that is not negative to the nearest integer.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn rounded(number: f64) -> u64 {
    number.round() as u64
}

/// Formats a share in percent: `72.1 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Formats a day of the experiment, counted from 0, as a date of 2012.
#[must_use]
pub fn date(day: usize) -> String {
    let mut day = day;
    for (month, days) in [(5, 31), (6, 30), (7, 31)] {
        if day < days {
            return format!("2012-{month:02}-{:02}", day + 1);
        }
        day -= days;
    }
    format!("2012-07-31 + {}", day + 1)
}

/// A table with a heading. The first column contains text, and the others contain numbers.
#[derive(Clone, Debug, Default)]
pub struct Table {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table without rows.
    #[must_use]
    pub fn new<const N: usize>(heading: [&str; N]) -> Self {
        Self { heading: heading.map(str::to_owned).to_vec(), rows: Vec::new() }
    }

    /// Creates a table from existing rows.
    #[must_use]
    pub const fn of(heading: Vec<String>, rows: Vec<Vec<String>>) -> Self {
        Self { heading, rows }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    /// Returns the names of the columns.
    #[must_use]
    pub fn heading(&self) -> &[String] {
        &self.heading
    }

    /// Returns the rows.
    #[must_use]
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Formats the table as Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = vec!["---".to_owned(); self.heading.len()];
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        line(&self.heading) + &line(&rule) + &rows
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = || std::iter::once(&self.heading).chain(&self.rows);
        let width = |column: usize| {
            all()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<_> = (0..self.heading.len()).map(width).collect();
        for row in all() {
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                if column == 0 {
                    write!(f, "{cell:<width$}")?;
                } else {
                    write!(f, "  {cell:>width$}")?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(["day", "events"]);
        table.row(["2012-05-01".to_owned(), thousands(1_234_567)]);
        table.row(["2012-05-02".to_owned(), thousands(12)]);
        assert_eq!(
            table.to_string(),
            "day            events\n2012-05-01  1,234,567\n2012-05-02         12\n"
        );
        assert_eq!(
            table.markdown(),
            "| day | events |\n| --- | --- |\n| 2012-05-01 | 1,234,567 |\n| 2012-05-02 | 12 |\n"
        );
    }

    #[test]
    fn days_are_dates_from_may_to_july() {
        assert_eq!(
            [0, 30, 31, 60, 61, 91].map(date),
            ["2012-05-01", "2012-05-31", "2012-06-01", "2012-06-30", "2012-07-01", "2012-07-31"]
        );
    }
}
