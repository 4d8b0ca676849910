//! Progress bars on stderr, shown only if stderr is a terminal, and numbers formatted for people.

use indicatif::{ProgressBar, ProgressStyle};

/// Creates a progress bar of `total` steps, labelled `what`.
#[must_use]
pub fn bar(total: u64, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(total).with_message(what);
    if let Ok(style) =
        ProgressStyle::with_template("{msg:<10} {bar:32} {human_pos}/{human_len} {eta}")
    {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// Creates a progress indicator without a known total, which shows the count and the label `what`.
#[must_use]
pub fn spinner(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(what);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {human_pos} {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Formats a number with thousands separators: `37,674`.
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

/// Formats a number of things: `1 reading`, `1,234 readings`.
#[must_use]
pub fn count(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", thousands(number), if number == 1 { "" } else { "s" })
}

/// Formats a range of numbered things, both ends included: `seal 7`, `seals 0 to 23`.
#[must_use]
pub fn range(thing: &str, first: u32, last: u32) -> String {
    if first == last { format!("{thing} {first}") } else { format!("{thing}s {first} to {last}") }
}

/// Formats a number of bytes in decimal units: `812 B`, `41.3 KB`, `2.0 MB`.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn bytes(number: u64) -> String {
    match number {
        0..1000 => format!("{number} B"),
        1000..1_000_000 => format!("{:.1} KB", number as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", number as f64 / 1e6),
        _ => format!("{:.1} GB", number as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_numbers_for_people() {
        assert_eq!(
            [0, 999, 1000, 37_674, 1_000_000].map(thousands),
            ["0", "999", "1,000", "37,674", "1,000,000"]
        );
        assert_eq!(
            [0, 1, 1000].map(|number| count(number, "seal")),
            ["0 seals", "1 seal", "1,000 seals"]
        );
        assert_eq!([range("seal", 7, 7), range("seal", 0, 23)], ["seal 7", "seals 0 to 23"]);
        assert_eq!(
            [999, 41_300, 2_000_000, 3_200_000_000].map(bytes),
            ["999 B", "41.3 KB", "2.0 MB", "3.2 GB"]
        );
    }
}
