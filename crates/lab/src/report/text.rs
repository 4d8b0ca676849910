//! The texts of the reports. Each report has a template file in `text/`, into which values are
//! filled.
//!
//! A file consists of sections, each of which starts with a line `=== name`. A placeholder `{name}`
//! is replaced by a value. The lines of a paragraph or of a list item are joined, so that a
//! template can be wrapped. A paragraph ends at a blank line, a heading, a figure, a row of a table
//! (a line that starts with `|`), or a placeholder on its own line. The value of a table ends with a
//! line break, so no blank line is needed after its placeholder.

use std::fmt::{Display, Write as _};

/// The template file of a report.
pub(super) struct Texts(&'static str);

pub(super) const BROADCAST: Texts = Texts(include_str!("text/broadcast.md.in"));
pub(super) const LATENCY: Texts = Texts(include_str!("text/latency.md.in"));
pub(super) const SAMPLING: Texts = Texts(include_str!("text/sampling.md.in"));
pub(super) const SUMS: Texts = Texts(include_str!("text/sums.md.in"));

impl Texts {
    /// Returns a section that has no placeholders.
    ///
    /// # Panics
    /// In the same cases as [`fill`](Self::fill).
    pub(super) fn get(&self, section: &str) -> String {
        self.fill(section, &[])
    }

    /// Returns a section with its placeholders replaced by values.
    ///
    /// # Panics
    /// If the file has no such section, or the section has a placeholder without a value.
    pub(super) fn fill(&self, section: &str, values: &[(&str, &dyn Display)]) -> String {
        let found =
            self.0.split("=== ").find_map(|text| text.strip_prefix(section)?.strip_prefix('\n'));
        let template = joined(found.unwrap_or_else(|| panic!("no text [{section}]")).trim_end());
        let mut out = String::with_capacity(template.len());
        let mut rest = template.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').unwrap_or((after, ""));
            let value = values.iter().find(|(known, _)| *known == name);
            let (_, value) =
                value.unwrap_or_else(|| panic!("no value for {{{name}}} in [{section}]"));
            out += before;
            let _ = write!(out, "{value}");
            rest = after;
        }
        out + rest
    }
}

/// Joins the lines of each paragraph and of each list item.
fn joined(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_open = false;
    for line in text.lines() {
        let is_separate = line.is_empty()
            || line.starts_with('#')
            || line.starts_with("![")
            || line.starts_with('|')
            || line.starts_with('{') && line.ends_with('}') && !line.contains(' ');
        if is_open && !is_separate && !line.starts_with("- ") {
            out.push(' ');
            out += line.trim_start();
        } else {
            if !out.is_empty() {
                out.push('\n');
            }
            out += line;
        }
        is_open = !is_separate;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: Texts = Texts(
        "=== one\n# Title\n\nA line\nand {value}.\n\n{table}\n\n- an\n  item\n- another\n\n=== two\nlast\n",
    );

    #[test]
    fn sections_are_filled_and_their_lines_joined() {
        let text = TEXTS.fill("one", &[("value", &7), ("table", &"| a |\n| b |")]);
        assert_eq!(text, "# Title\n\nA line and 7.\n\n| a |\n| b |\n\n- an item\n- another");
        assert_eq!(TEXTS.get("two"), "last");
    }

    #[test]
    fn the_rows_of_a_literal_table_stay_separate_lines() {
        const TABLE: Texts =
            Texts("=== table\nA line\nand\n| a | b |\n|---|---|\n| 1 | {two} |\nlast\nline\n");
        let text = TABLE.fill("table", &[("two", &2)]);
        assert_eq!(text, "A line and\n| a | b |\n|---|---|\n| 1 | 2 |\nlast line");
    }

    #[test]
    #[should_panic(expected = "no value for {value} in [one]")]
    fn a_placeholder_without_a_value_panics() {
        let _ = TEXTS.get("one");
    }
}
