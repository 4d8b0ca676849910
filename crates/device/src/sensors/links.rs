//! The list of resources (RFC 6690).

use super::SENSORS;

/// Returns the links to the resources of the columns. An argument `NAME=VALUE`, with or without an
/// asterisk at its end, selects the links whose attribute has this value or begins with it (RFC 6690,
/// section 4.1).
pub(super) fn of(columns: &[(String, String)], query: &[String]) -> String {
    let all = std::iter::once((SENSORS.to_owned(), ""));
    let each = columns.iter().map(|(name, unit)| (format!("{SENSORS}/{name}"), unit.as_str()));
    let links = all.chain(each).map(|(path, unit)| {
        let mut attributes = vec![
            ("rt", "moteseal.reading".to_owned()),
            ("ct", "62 50 110 112".to_owned()),
            ("obs", String::new()),
        ];
        if !unit.is_empty() {
            attributes.push(("title", unit.to_owned()));
        }
        (path, attributes)
    });
    let selected = links.filter(|(path, attributes)| {
        query.iter().all(|argument| {
            let (name, value) = argument.split_once('=').unwrap_or((argument, "*"));
            let matches = |text: &str| match value.strip_suffix('*') {
                Some(start) => text.starts_with(start),
                None => text == value,
            };
            match name {
                "href" => matches(path),
                name => attributes.iter().any(|(known, text)| {
                    // These attributes are lists of values (RFC 6690, section 4.1).
                    *known == name && (matches(text) || text.split(' ').any(matches))
                }),
            }
        })
    });
    let texts = selected.map(|(path, attributes)| {
        let attributes = attributes.iter().map(|(name, value)| match value.is_empty() {
            true => format!(";{name}"),
            false => format!(";{name}=\"{value}\""),
        });
        format!("<{path}>{}", attributes.collect::<String>())
    });
    texts.collect::<Vec<_>>().join(",")
}
