//! Writes `include/moteseal.h` from the library's sources, or checks that it is what they say.
//!
//! usage: `moteseal-header write | check`, anywhere. The static assertions at its end come from `library/src/layout.rs`, which holds the same
//! numbers to Rust's compiler.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cbindgen::{
    Builder, Config, DocumentationLength, DocumentationStyle, EnumConfig, Language, RenameRule,
    Style,
};

/// The sources, in the order in which a reader of the header meets them.
const SOURCES: &[&str] = &[
    "error",
    "device",
    "chain",
    "key",
    "star",
    "tree",
    "seal",
    "urgent",
    "sum",
    "sender",
    "frame",
    "broadcast",
];

const INTRODUCTION: &str = "\
/* What a mote runs, in C: seals, the source of private sums, the receiver of authenticated broadcasts.
 *
 * Written by moteseal-header from bindings/c/library/src; edit those, then `cargo run -p moteseal-header -- write` in bindings/c.
 *
 * What holds for every function:
 *  - All memory is the caller's. There is no heap, no clock, no randomness, no global state; nothing blocks, nothing calls back.
 *  - One object is used by one thread at a time. Different objects are independent.
 *  - A state (an opaque type) is declared as `moteseal_x state = {0};` and begun by the function that its type names. It holds no
 *    pointers to itself or to others: it may be moved or copied by memcpy while no function uses it. A copied permit, guard or
 *    chain is the mistake that they are there to prevent; do not.
 *  - Every pointer is checked for null and alignment, every length for what can be; that memory is as large as it is said to be
 *    is the caller's word. Outputs do not overlap inputs unless a function says so.
 *  - An output buffer may be written up to its capacity: behind the length that comes back it holds nothing of meaning. What a refused
 *    call leaves in one, neither.
 *  - Names of errors in the comments (`BufferTooSmall`) are those of moteseal_error_name and of spec/errors.md; the constants are
 *    MOTESEAL_ERROR_BUFFER_TOO_SMALL and so on. Beside those that are named, every function may say NullPointer or Misaligned.
 *  - Numbers in encodings are big-endian; numbers in these structs are the machine's.
 */";

fn main() -> ExitCode {
    let usage = "usage: moteseal-header write | check";
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let path = root.join("include/moteseal.h");
    let (Some(what), header) = (std::env::args().nth(1), header(&root)) else {
        eprintln!("{usage}");
        return ExitCode::from(2);
    };
    let result = match (what.as_str(), header) {
        (_, Err(message)) => Err(message),
        ("write", Ok(text)) => {
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
        }
        ("check", Ok(text)) => match std::fs::read_to_string(&path) {
            Ok(found) if found == text => Ok(()),
            Ok(_) => Err(format!(
                "{} is not what the sources say; run moteseal-header write",
                path.display()
            )),
            Err(error) => Err(format!("{}: {error}", path.display())),
        },
        _ => Err(usage.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("moteseal-header: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The header's text.
fn header(root: &Path) -> Result<String, String> {
    let source =
        |name: &str| -> PathBuf { root.join("library/src").join(name).with_extension("rs") };
    let layout =
        std::fs::read_to_string(source("layout")).map_err(|error| format!("layout.rs: {error}"))?;
    let config = Config {
        language: Language::C,
        cpp_compat: true,
        include_guard: Some("MOTESEAL_H".to_owned()),
        header: Some(INTRODUCTION.to_owned()),
        trailer: Some(assertions(&layout)?),
        sys_includes: vec!["stddef.h".to_owned(), "stdint.h".to_owned()],
        no_includes: true,
        style: Style::Type,
        documentation_style: DocumentationStyle::C99,
        documentation_length: DocumentationLength::Full,
        usize_is_size_t: true,
        line_length: 130,
        enumeration: EnumConfig {
            prefix_with_name: true,
            rename_variants: RenameRule::ScreamingSnakeCase,
            ..EnumConfig::default()
        },
        ..Config::default()
    };
    let builder = SOURCES
        .iter()
        .fold(Builder::new().with_config(config), |builder, name| builder.with_src(source(name)));
    let bindings = builder.generate().map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).map_err(|error| error.to_string())
}

/// Static assertions in C of every line of the layout.
fn assertions(layout: &str) -> Result<String, String> {
    let mut out = String::from(
        "/* The sizes and alignments that the library was compiled with. A compiler that disagrees, with other rules for structs, refuses. */\n\
         #if defined(__cplusplus)\n#define MOTESEAL_ASSERT(condition, text) static_assert(condition, text)\n\
         #define MOTESEAL_ALIGNOF(type) alignof(type)\n\
         #elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L\n\
         #define MOTESEAL_ASSERT(condition, text) _Static_assert(condition, text)\n#define MOTESEAL_ALIGNOF(type) _Alignof(type)\n\
         #endif\n#ifdef MOTESEAL_ASSERT\n",
    );
    let lines = layout
        .lines()
        .skip_while(|line| *line != "layout! {")
        .skip(1)
        .take_while(|line| *line != "}");
    let mut count = 0;
    for line in lines {
        let words: Vec<&str> =
            line.split([' ', ':', ',', ';']).filter(|word| !word.is_empty()).collect();
        let &[name, wide, "or", narrow, "align", align, "or", narrow_align] = words.as_slice()
        else {
            return Err(format!("layout.rs: cannot read `{line}`"));
        };
        let _ = writeln!(
            out,
            "MOTESEAL_ASSERT(sizeof({name}) == (sizeof(void *) == 8 ? {wide} : {narrow}), \"{name}\");\n\
             MOTESEAL_ASSERT(MOTESEAL_ALIGNOF({name}) == (sizeof(void *) == 8 ? {align} : {narrow_align}), \"{name}\");"
        );
        count += 1;
    }
    if count == 0 { Err("layout.rs: no lines".to_owned()) } else { Ok(out + "#endif") }
}
