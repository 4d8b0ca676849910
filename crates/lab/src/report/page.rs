//! Writes the lab's page, `index.html`. For every table and figure of the publications that the lab
//! repeats, it shows the publication's numbers and ours, and explains the differences.
//!
//! The page contains its style and its figures, and loads nothing from elsewhere. Its links lead to
//! files in folders next to it. The caller provides the results as [`Entry`]s. This module adds the
//! machine, the commands and the list of missing data.

use std::fmt::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::ReportError;
use crate::table::Table;

/// The page's file name.
pub const PAGE: &str = "index.html";

/// What an entry shows below its summary.
#[derive(Clone, Debug)]
pub enum Shown {
    /// A paragraph.
    Text(String),
    /// A table.
    Table(Table),
    /// A figure: a PNG in the entry's folder.
    Figure(String),
}

/// A table or figure of a paper, or an additional result.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The entry's name in links, such as `sealing-table-1`.
    pub id: String,
    /// The title, with the paper's number of the table or figure.
    pub title: String,
    /// The paper's numbers, as text.
    pub paper: String,
    /// Our numbers, as text.
    pub ours: String,
    /// The reason why our numbers differ from the paper's.
    pub why: String,
    /// What replaces missing data or hardware; empty if none is missing.
    pub replacement: String,
    /// The command that produces this entry.
    pub command: String,
    /// The content that is shown below the summary.
    pub shown: Vec<Shown>,
    /// The names of data files in the entry's folder.
    pub data: Vec<String>,
}

impl Entry {
    /// Creates an entry without content.
    #[must_use]
    pub fn new(id: &str, title: &str, command: &str) -> Self {
        Self {
            id: id.to_owned(),
            title: title.to_owned(),
            paper: String::new(),
            ours: String::new(),
            why: String::new(),
            replacement: String::new(),
            command: command.to_owned(),
            shown: Vec::new(),
            data: Vec::new(),
        }
    }

    /// Sets the paper's numbers.
    #[must_use]
    pub fn paper(self, paper: impl Into<String>) -> Self {
        Self { paper: paper.into(), ..self }
    }

    /// Sets our numbers.
    #[must_use]
    pub fn ours(self, ours: impl Into<String>) -> Self {
        Self { ours: ours.into(), ..self }
    }

    /// Sets the reason for the difference.
    #[must_use]
    pub fn why(self, why: impl Into<String>) -> Self {
        Self { why: why.into(), ..self }
    }

    /// Sets the replacement for missing data or hardware.
    #[must_use]
    pub fn replacement(self, replacement: impl Into<String>) -> Self {
        Self { replacement: replacement.into(), ..self }
    }

    /// Adds content.
    #[must_use]
    pub fn show(mut self, shown: Shown) -> Self {
        self.shown.push(shown);
        self
    }

    /// Adds the name of a data file.
    #[must_use]
    pub fn data(mut self, name: &str) -> Self {
        self.data.push(name.to_owned());
        self
    }
}

/// Creates an entry without our numbers. `absent` states which input is missing.
#[must_use]
pub fn missing(id: &str, title: &str, paper: &str, absent: &str) -> Entry {
    Entry::new(id, title, "make lab")
        .paper(paper)
        .ours("not measured")
        .why(format!("Nothing to compare: {absent}"))
        .replacement(absent)
}

/// The entries of one paper. Their files are in a folder next to the page.
#[derive(Clone, Debug)]
pub struct Part {
    /// The paper.
    pub title: String,
    /// An introduction to its entries.
    pub about: String,
    /// The folder, without a slash.
    pub folder: String,
    /// The entries in the paper's order.
    pub entries: Vec<Entry>,
}

/// The machine on which a report was measured, and the command that measured it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The machine's properties: processor, cores, system, compiler, and hashing loops.
    pub lines: Vec<(String, String)>,
    /// The command that wrote the report.
    pub command: String,
    /// Descriptions of the recorded data that is missing, each with its source.
    pub absent: Vec<String>,
}

/// Returns the title of a figure with the paper's number in front:
/// `Figure 4: a source, by the domain`.
pub(super) fn numbered(number: &str, title: &str) -> String {
    let title = title.split(" (figure").next().unwrap_or(title);
    let mut letters = title.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase()).into_iter();
    format!("Figure {number}: {}", first.chain(letters).collect::<String>())
}

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

/// Escapes text for HTML, and converts Markdown's `code` and **strong** to tags.
fn inline(text: &str) -> String {
    let mut out = String::new();
    for (number, part) in text.split('`').enumerate() {
        if number % 2 == 1 {
            let _ = write!(out, "<code>{}</code>", escaped(part));
            continue;
        }
        for (number, part) in part.split("**").enumerate() {
            if number % 2 == 1 {
                let _ = write!(out, "<strong>{}</strong>", escaped(part));
            } else {
                out += &escaped(part);
            }
        }
    }
    out
}

fn table(table: &Table) -> String {
    let cells = |cells: &[String], tag: &str| {
        let cells: String =
            cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", inline(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let rows: String = table.rows().iter().map(|row| cells(row, "td")).collect();
    format!(
        "<div class=\"wide\"><table>\n<thead>{}</thead>\n<tbody>{rows}</tbody>\n</table></div>\n",
        cells(table.heading(), "th")
    )
}

/// The template of the page, without its content.
const TEMPLATE: &str = include_str!("text/page.html");
const STYLE: &str = include_str!("text/page.css");

/// Writes the page. Every file that it links to must already exist.
///
/// # Errors
/// [`ReportError::Write`], also if a figure that an entry shows cannot be read.
pub fn write(out: &Path, machine: &Machine, parts: &[Part]) -> Result<(), ReportError> {
    let mut html = String::new();
    html += "<h2 id=\"machine\">The machine</h2>\n<dl>";
    for (name, value) in &machine.lines {
        let _ = write!(html, "<dt>{}</dt><dd>{}</dd>", escaped(name), inline(value));
    }
    let _ =
        writeln!(html, "<dt>command</dt><dd><code>{}</code></dd></dl>", escaped(&machine.command));
    if machine.absent.is_empty() {
        html += "<p>All recorded data was present.</p>\n";
    } else {
        html += "<p><strong>Recorded data that is absent:</strong></p>\n<ul>\n";
        machine.absent.iter().for_each(|absent| {
            let _ = writeln!(html, "<li>{}</li>", inline(absent));
        });
        html += "</ul>\n";
    }
    html += &overview(parts);
    for part in parts {
        let _ = write!(html, "<h2>{}</h2>\n<p>{}</p>\n", escaped(&part.title), inline(&part.about));
        for entry in &part.entries {
            html += &section(out, part, entry)?;
        }
    }
    let html = TEMPLATE.replace("{style}", STYLE).replace("{content}", &html);
    let path = out.join(PAGE);
    std::fs::write(&path, html).map_err(|cause| ReportError::Write { path, cause })
}

/// Returns a table of all entries.
fn overview(parts: &[Part]) -> String {
    let mut html = String::from("<h2 id=\"overview\">Overview</h2>\n");
    for part in parts {
        let _ = write!(
            html,
            "<h3>{}</h3>\n<div class=\"wide\"><table>\n<thead><tr><th></th><th>the paper</th><th>ours</th></tr></thead>\n<tbody>\n",
            escaped(&part.title)
        );
        for entry in &part.entries {
            let _ = writeln!(
                html,
                "<tr><td><a href=\"#{}\">{}</a></td><td>{}</td><td>{}</td></tr>",
                escaped(&entry.id),
                escaped(&entry.title),
                inline(&entry.paper),
                inline(&entry.ours)
            );
        }
        html += "</tbody>\n</table></div>\n";
    }
    html
}

fn section(out: &Path, part: &Part, entry: &Entry) -> Result<String, ReportError> {
    let mut html = format!(
        "<section id=\"{}\">\n<h3>{}</h3>\n<dl>",
        escaped(&entry.id),
        escaped(&entry.title)
    );
    let mut line = |name: &str, value: String| {
        let _ = write!(html, "<dt>{name}</dt><dd>{value}</dd>");
    };
    line("the paper", inline(&entry.paper));
    line("ours", inline(&entry.ours));
    line("why they differ", inline(&entry.why));
    if !entry.replacement.is_empty() {
        line("replacement", inline(&entry.replacement));
    }
    line("command", format!("<code>{}</code>", escaped(&entry.command)));
    line("machine", "<a href=\"#machine\">as above</a>".to_owned());
    let link = |name: &String| {
        format!("<a href=\"{0}/{1}\">{1}</a>", escaped(&part.folder), escaped(name))
    };
    if !entry.data.is_empty() {
        line("data", entry.data.iter().map(link).collect::<Vec<_>>().join(", "));
    }
    html += "</dl>\n";
    for shown in &entry.shown {
        match shown {
            Shown::Text(text) => {
                let _ = writeln!(html, "<p>{}</p>", inline(text));
            }
            Shown::Table(shown) => html += &table(shown),
            Shown::Figure(name) => {
                let path = out.join(&part.folder).join(name);
                let png =
                    std::fs::read(&path).map_err(|cause| ReportError::Write { path, cause })?;
                let _ = writeln!(
                    html,
                    "<a href=\"{}/{}\"><img alt=\"{}\" src=\"data:image/png;base64,{}\"></a>",
                    escaped(&part.folder),
                    escaped(name),
                    escaped(&entry.title),
                    STANDARD.encode(png)
                );
            }
        }
    }
    html += "</section>\n";
    Ok(html)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn escapes_html_in_texts() {
        assert_eq!(
            inline("a < b, `x & \"y\"`, **all**"),
            "a &lt; b, <code>x &amp; &quot;y&quot;</code>, <strong>all</strong>"
        );
    }

    #[test]
    fn a_page_contains_its_figures_and_links_to_its_data() {
        let out = tempfile::tempdir().unwrap();
        std::fs::create_dir(out.path().join("sums")).unwrap();
        std::fs::write(out.path().join("sums/fig4.png"), b"pixels").unwrap();
        let mut shown = Table::new(["scheme", "bytes"]);
        shown.row(["a <b>".to_owned(), "12".to_owned()]);
        let entry = Entry::new("sums-figure-4", "Figure 4", "moteseal-bench sums")
            .paper("1 ms")
            .ours("2 ns")
            .why("another machine")
            .show(Shown::Figure("fig4.png".to_owned()))
            .show(Shown::Table(shown))
            .data("fig4.csv");
        let part = |entry| Part {
            title: "Sums".to_owned(),
            about: String::new(),
            folder: "sums".to_owned(),
            entries: vec![entry],
        };
        let machine = Machine {
            lines: Vec::new(),
            command: "make lab".to_owned(),
            absent: vec!["home C".to_owned()],
        };
        write(out.path(), &machine, &[part(entry.clone())]).unwrap();
        let html = std::fs::read_to_string(out.path().join(PAGE)).unwrap();
        for piece in [
            "data:image/png;base64,cGl4ZWxz",
            "href=\"sums/fig4.csv\"",
            "<td>a &lt;b&gt;</td><td>12</td>",
            "<a href=\"#sums-figure-4\">",
            "<section id=\"sums-figure-4\">",
            "<li>home C</li>",
        ] {
            assert!(html.contains(piece), "{piece} is not in\n{html}");
        }
        let absent = entry.show(Shown::Figure("fig5.png".to_owned()));
        assert!(
            write(out.path(), &machine, &[part(absent)])
                .unwrap_err()
                .to_string()
                .contains("fig5.png")
        );
    }
}
