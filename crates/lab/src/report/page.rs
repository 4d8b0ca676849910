//! The one page of the lab, `index.html`: every table and figure of the three papers, the paper's numbers beside ours, and why they differ.
//!
//! Self-contained: style and figures are inside, nothing is fetched; links lead to files beside it. What stands on it is handed in as
//! [`Entry`]s by those who measured; the page adds the machine, the commands and the list of what is missing.

use std::fmt::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::ReportError;
use crate::table::Table;

/// The page's name.
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

/// A table or figure of a paper, or a result beyond them.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name in links: `sealing-table-1`.
    pub id: String,
    /// What it shows, with the paper's number for it.
    pub title: String,
    /// The paper's numbers, in words.
    pub paper: String,
    /// Ours, in words.
    pub ours: String,
    /// Why they differ.
    pub why: String,
    /// What stands in for what is missing; empty if nothing is.
    pub stands_in: String,
    /// The command that makes it alone.
    pub command: String,
    /// What is shown.
    pub shown: Vec<Shown>,
    /// Data files in the entry's folder.
    pub data: Vec<String>,
}

impl Entry {
    /// An entry that shows nothing yet.
    #[must_use]
    pub fn new(id: &str, title: &str, command: &str) -> Self {
        Self {
            id: id.to_owned(),
            title: title.to_owned(),
            paper: String::new(),
            ours: String::new(),
            why: String::new(),
            stands_in: String::new(),
            command: command.to_owned(),
            shown: Vec::new(),
            data: Vec::new(),
        }
    }

    /// The same with the paper's numbers.
    #[must_use]
    pub fn paper(self, paper: impl Into<String>) -> Self {
        Self { paper: paper.into(), ..self }
    }

    /// The same with ours.
    #[must_use]
    pub fn ours(self, ours: impl Into<String>) -> Self {
        Self { ours: ours.into(), ..self }
    }

    /// The same with the reason.
    #[must_use]
    pub fn why(self, why: impl Into<String>) -> Self {
        Self { why: why.into(), ..self }
    }

    /// The same with what stands in for what is missing.
    #[must_use]
    pub fn stands_in(self, stands_in: impl Into<String>) -> Self {
        Self { stands_in: stands_in.into(), ..self }
    }

    /// The same with one thing more to show.
    #[must_use]
    pub fn show(mut self, shown: Shown) -> Self {
        self.shown.push(shown);
        self
    }

    /// The same with a file of data.
    #[must_use]
    pub fn data(mut self, name: &str) -> Self {
        self.data.push(name.to_owned());
        self
    }
}

/// What has no numbers of ours, because what it is made from is not there.
#[must_use]
pub fn missing(id: &str, title: &str, paper: &str, absent: &str) -> Entry {
    Entry::new(id, title, "make lab")
        .paper(paper)
        .ours("not measured")
        .why(format!("Nothing to compare: {absent}"))
        .stands_in(absent)
}

/// A paper's entries, whose files lie in a folder beside the page.
#[derive(Clone, Debug)]
pub struct Part {
    /// The paper.
    pub title: String,
    /// What is to be known of all its entries.
    pub about: String,
    /// The folder, without a slash.
    pub folder: String,
    /// In the paper's order.
    pub entries: Vec<Entry>,
}

/// The machine that a report was measured on, and how.
#[derive(Clone, Debug)]
pub struct Machine {
    /// What it is, line by line: processor, cores, system, compiler, loops.
    pub lines: Vec<(String, String)>,
    /// The command that made the report.
    pub command: String,
    /// Recorded data that is not there, each with where to get it.
    pub absent: Vec<String>,
}

/// The title of a figure's picture, behind the paper's number for it: `Figure 4: a source, by the domain`.
pub(super) fn numbered(number: &str, title: &str) -> String {
    let title = title.split(" (figure").next().unwrap_or(title);
    let mut letters = title.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase()).into_iter();
    format!("Figure {number}: {}", first.chain(letters).collect::<String>())
}

/// Text that HTML shows as it is.
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

/// Escaped, with `code` and **strong** of Markdown.
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

const STYLE: &str = "
:root { --ink: #1e1e1e; --faint: #5a5a5a; --rule: #d9d9d9; --paper: #ffffff; --tint: #f5f6f8; --link: #0059a0; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 2rem 1.25rem 6rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.45rem; margin: 3.5rem 0 .5rem; padding-top: 1rem; border-top: 3px solid var(--ink); }
h3 { font-size: 1.15rem; margin: 0 0 .6rem; }
p { margin: .5rem 0; }
a { color: var(--link); }
code { font: .88em ui-monospace, 'DejaVu Sans Mono', monospace; background: var(--tint); padding: .1em .3em; border-radius: 3px; }
section { margin: 2rem 0; padding: 1.25rem 1.4rem; border: 1px solid var(--rule); border-radius: 6px; }
dl { display: grid; grid-template-columns: 7.5rem 1fr; gap: .35rem 1rem; margin: 0 0 .8rem; }
dt { color: var(--faint); } dd { margin: 0; }
.wide { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th { text-align: left; vertical-align: bottom; border-bottom: 2px solid var(--ink); padding: .3rem .9rem .3rem 0; }
td { vertical-align: top; border-bottom: 1px solid var(--rule); padding: .3rem .9rem .3rem 0; }
img { display: block; width: 100%; max-width: 60rem; height: auto; margin: .8rem 0; }
.model { color: #a13d00; }
footer { margin-top: 3rem; color: var(--faint); font-size: .9rem; }
";

/// Writes the page. Every file that it leads to is there already.
///
/// # Errors
/// [`ReportError::Write`]: also if a figure that an entry shows cannot be read.
pub fn write(out: &Path, machine: &Machine, parts: &[Part]) -> Result<(), ReportError> {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Moteseal: the lab's report</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>The lab's report</h1>\n\
         <p>Every table and figure of three papers, the paper's numbers beside ours. Nothing is copied, nothing is tuned. Where the paper's data or \
         hardware is missing, the entry says what stands in. Times are processor time of one thread: the median of runs in which all contenders take turns, \
         of sealing as many as stand with the machine, and in brackets the quickest and the slowest run.</p>\n"
    );
    html += "<h2 id=\"machine\">The machine</h2>\n<dl>";
    for (name, value) in &machine.lines {
        let _ = write!(html, "<dt>{}</dt><dd>{}</dd>", escaped(name), inline(value));
    }
    let _ =
        writeln!(html, "<dt>command</dt><dd><code>{}</code></dd></dl>", escaped(&machine.command));
    if machine.absent.is_empty() {
        html += "<p>All recorded data was there.</p>\n";
    } else {
        html += "<p><strong>Recorded data that is not there:</strong></p>\n<ul>\n";
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
    html += "<footer>Written by <code>make lab</code>; <code>docs/lab.md</code> says how.</footer>\n</body>\n</html>\n";
    let path = out.join(PAGE);
    std::fs::write(&path, html).map_err(|cause| ReportError::Write { path, cause })
}

/// All entries in a table.
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
    if !entry.stands_in.is_empty() {
        line("what stands in", inline(&entry.stands_in));
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
    fn what_looks_like_html_is_shown_and_not_taken_for_it() {
        assert_eq!(
            inline("a < b, `x & \"y\"`, **all**"),
            "a &lt; b, <code>x &amp; &quot;y&quot;</code>, <strong>all</strong>"
        );
    }

    #[test]
    fn a_page_has_its_figures_inside_and_links_to_data_beside() {
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
