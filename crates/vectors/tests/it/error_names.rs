//! Tests that spec/errors.md lists exactly the names of errors in the sources.
//!
//! The names are taken from blocks of `named_errors!`, and from `=> "Name"` in functions called
//! `name`. The test omits crates whose errors never reach a user of the product.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const ERRORS: &str = include_str!("../../../../spec/errors.md");
/// Folders that contain no sources of the product.
const OMITTED: [&str; 8] =
    ["adversary", "bench", "demo", "examples", "lab", "research", "target", "tests"];

/// Adds the names of errors in all sources below `folder`, each with its file.
fn collect(folder: &Path, found: &mut BTreeSet<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            if !name.starts_with('.') && !OMITTED.contains(&name.as_str()) {
                collect(&path, found);
            }
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.extend(names(&text).into_iter().map(|name| (name, path.display().to_string())));
        }
    }
}

/// Returns the names of errors in a source file.
fn names(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let (code, indent) = (line.trim_start(), line.len() - line.trim_start().len());
        let is_block = code.ends_with("named_errors! {") && !code.starts_with("//");
        let is_function = code.contains("fn name(") && code.ends_with("str {");
        if !is_block && !is_function {
            continue;
        }
        // The block or function ends with a brace that has the same indentation as its first line.
        let is_end = |line: &str| line.trim_end().len() == indent + 1 && line.ends_with('}');
        for line in lines.by_ref().take_while(|line| !is_end(line)) {
            let code = line.trim_start();
            if is_function {
                // This is an arm of a match, or a function that consists of one name.
                let text = code.split_once("=>").map_or(code, |(_, text)| text);
                names.extend(quoted(text.trim_start_matches([' ', '{'])));
            } else if line.len() - code.len() == indent + 8
                && code.starts_with(|c: char| c.is_ascii_uppercase())
                && !code.ends_with("=> from,")
                && !code.ends_with("=> forward,")
            {
                // This is a variant with its own message.
                let end = code.find(|c: char| !c.is_alphanumeric()).unwrap_or(code.len());
                names.insert(code[..end].to_owned());
            }
        }
    }
    names
}

/// Returns the name of an error in the quotation marks at the start of `text`. A name has upper and
/// lower case letters and no spaces. Other values that functions called `name` return do not look
/// like this.
fn quoted(text: &str) -> impl Iterator<Item = String> {
    let name = text.strip_prefix('"').and_then(|text| text.split_once('"')).map(|(name, _)| name);
    name.into_iter()
        .filter(|name| {
            name.starts_with(|c: char| c.is_ascii_uppercase())
                && name.contains(|c: char| c.is_ascii_lowercase())
                && name.chars().all(|c| c.is_ascii_alphanumeric())
        })
        .map(str::to_owned)
}

#[test]
fn errors_md_lists_every_name_in_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = BTreeSet::new();
    for folder in ["crates", "bindings", "firmware"] {
        collect(&root.join(folder), &mut found);
    }
    println!("{} names in files", found.len());
    assert!(found.len() > 300, "{} names in files", found.len());
    let missing: Vec<_> =
        found.iter().filter(|(name, _)| !ERRORS.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "not in spec/errors.md: {missing:#?}");
}
