//! Runs operations from lines of JSON, so that another program can compare this verifier with others
//! on inputs that are not in the vectors.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};

use crate::ops::Shared;

/// Reads lines of `{"op", "input", "context"}` and writes a line of `{"output"}`, `{"error"}` or, if
/// the operation panics, `{"crash"}` for each. `context` has the members that the cases of a file
/// share: `operator`, `roster`, `max_events`.
///
/// # Errors
///
/// A line cannot be read, is not JSON or cannot be written.
pub fn batch(input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let mut contexts: HashMap<String, Shared> = HashMap::new();
    for line in input.lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let context = &request["context"];
        let shared = contexts.entry(context.to_string()).or_insert_with(|| Shared::new(context));
        let op = request["op"].as_str().unwrap_or_default();
        let result = catch_unwind(AssertUnwindSafe(|| shared.run(op, &request["input"])));
        let answer = match result {
            Ok(Ok(value)) => json!({ "output": value }),
            Ok(Err(name)) => json!({ "error": name }),
            Err(_) => json!({ "crash": "a panic" }),
        };
        writeln!(output, "{answer}")?;
    }
    output.flush()
}
