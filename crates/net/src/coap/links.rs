//! The list of resources (RFC 6690).

/// A link to a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    path: String,
    attributes: Vec<(&'static str, String)>,
}

impl Link {
    /// Returns the link to a resource that can be observed, with its type and the numbers of its content
    /// formats. An empty title is left out.
    #[must_use]
    pub fn new(path: impl Into<String>, kind: &str, formats: &str, title: &str) -> Self {
        let mut attributes =
            vec![("rt", kind.to_owned()), ("ct", formats.to_owned()), ("obs", String::new())];
        if !title.is_empty() {
            attributes.push(("title", title.to_owned()));
        }
        Self { path: path.into(), attributes }
    }

    /// Returns the link to the same resource, which cannot be observed.
    #[must_use]
    pub fn unobservable(mut self) -> Self {
        self.attributes.retain(|(name, _)| *name != "obs");
        self
    }

    /// Returns whether an argument `NAME=VALUE`, with or without an asterisk at its end, selects the
    /// link: the attribute has this value or begins with it (RFC 6690, section 4.1).
    fn is_selected(&self, argument: &str) -> bool {
        let (name, value) = argument.split_once('=').unwrap_or((argument, "*"));
        let matches = |text: &str| match value.strip_suffix('*') {
            Some(start) => text.starts_with(start),
            None => text == value,
        };
        match name {
            "href" => matches(&self.path),
            name => self.attributes.iter().any(|(known, text)| {
                // These attributes are lists of values (RFC 6690, section 4.1).
                *known == name && (matches(text) || text.split(' ').any(matches))
            }),
        }
    }

    fn text(&self) -> String {
        let attributes = self.attributes.iter().map(|(name, value)| match value.is_empty() {
            true => format!(";{name}"),
            false => format!(";{name}=\"{value}\""),
        });
        format!("<{}>{}", self.path, attributes.collect::<String>())
    }
}

/// Returns the links that every argument of `query` selects, as text.
#[must_use]
pub fn list(links: impl Iterator<Item = Link>, query: &[String]) -> String {
    let selected = links.filter(|link| query.iter().all(|argument| link.is_selected(argument)));
    selected.map(|link| link.text()).collect::<Vec<_>>().join(",")
}
