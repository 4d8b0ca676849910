//! The measured numbers and their bars.

/// One number.
pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) value: u64,
    /// The upper limit that the test enforces.
    pub(crate) bar: Option<u64>,
}

/// The numbers of one part of a mote.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) rows: Vec<Row>,
}

impl Part {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), rows: Vec::new() }
    }

    pub(crate) fn row(
        &mut self,
        what: &'static str,
        unit: &'static str,
        value: u64,
        bar: Option<u64>,
    ) {
        self.rows.push(Row { what, unit, value, bar });
    }
}

/// All numbers.
#[derive(Default)]
pub(crate) struct Figures(pub(crate) Vec<Part>);

impl Figures {
    pub(crate) fn add(&mut self, part: Part) {
        self.0.push(part);
    }

    /// Returns a message for each number above its bar.
    pub(crate) fn missed(&self) -> Vec<String> {
        let rows = self.0.iter().flat_map(|part| part.rows.iter().map(move |row| (part, row)));
        let above = rows.filter_map(|(part, row)| {
            row.bar.filter(|bar| row.value > *bar).map(|bar| (part, row, bar))
        });
        above
            .map(|(part, row, bar)| {
                format!("{}: {}: {} {}, at most {bar}", part.name, row.what, row.value, row.unit)
            })
            .collect()
    }
}
