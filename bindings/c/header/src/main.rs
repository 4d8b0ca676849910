//! Writes `include/moteseal.h` from the library's sources, or checks that the file is up to date.
//!
//! Usage: `moteseal-header write | check`, in any folder. The program derives the header's size
//! macros and static assertions from `library/src/layout.rs`, whose numbers the Rust compiler
//! checks.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cbindgen::{
    Builder, Config, DocumentationLength, DocumentationStyle, EnumConfig, Language, RenameRule,
    Style,
};

/// The modules of the library, in the order in which the header declares their items.
const SOURCES: &[&str] = &[
    "error",
    "device",
    "chain_position",
    "key",
    "column_keys",
    "cipher",
    "star",
    "grouped_star",
    "tree",
    "seal",
    "urgent",
    "sum",
    "sender",
    "frame",
    "broadcast",
];

const INTRODUCTION: &str = "\
/* Moteseal for firmware in C: makes seals, encrypts columns of their events, encrypts values for
 * private sums, receives broadcasts.
 *
 * moteseal-header generates this file from bindings/c/library/src. Edit those sources, then run
 * `cargo run -p moteseal-header -- write` in bindings/c.
 *
 * Rules for every function:
 *  - The caller owns all memory. There is no heap, no clock, no randomness and no global state. No
 *    function blocks or calls back.
 *  - Only one thread at a time may use an object. Different objects are independent.
 *  - A state is an object of an opaque type. Declare it as `moteseal_x state = {0};`, and begin it
 *    before any other use: the comments state which functions begin a state. You choose the size
 *    of a star, a tree, column keys, a cipher and a broadcast receiver: reserve
 *    MOTESEAL_STAR_SIZE(levels), MOTESEAL_GROUPED_STAR_SIZE(digests), MOTESEAL_TREE_SIZE(height),
 *    MOTESEAL_COLUMN_KEYS_SIZE(columns), MOTESEAL_CIPHER_SIZE(columns) or
 *    MOTESEAL_BROADCAST_SIZE(block) bytes, filled with zeros and aligned to 8 bytes. The function
 *    that begins the state checks size and alignment.
 *  - A state contains no pointers. You may move or copy it with memcpy while no function uses it.
 *    Do not copy a permit, a guard, a chain or a cipher: each prevents a number from being used
 *    twice, and with a copy the number could be used twice.
 *  - Every function checks that its pointers are aligned and not null, and that its lengths are in
 *    range. The caller guarantees that memory is as large as stated. Outputs must not overlap
 *    inputs unless the function's comment allows it.
 *  - A function may write to an output buffer up to its capacity; bytes after the returned length
 *    are undefined, and so is the whole buffer after an error.
 *  - The comments name errors as moteseal_error_name and spec/errors.md do: `BufferTooSmall` is the
 *    constant MOTESEAL_ERROR_BUFFER_TOO_SMALL. Every function with pointer arguments may also
 *    return NullPointer or Misaligned.
 *  - Numbers in encodings are big-endian; numbers in these structs have the machine's byte order.
 */";

/// The header's comment for each macro that `layout.rs` defines.
const MACROS: &[(&str, &str)] = &[
    (
        "MOTESEAL_STAR_SIZE",
        "Bytes of memory for a star of a group with at most `levels` levels (1 to 32).",
    ),
    (
        "MOTESEAL_GROUPED_STAR_SIZE",
        "Bytes of memory for a star with column groups, with at most `digests` digests: the group's levels (1 to 32) times the column groups (2 to 8).",
    ),
    (
        "MOTESEAL_TREE_SIZE",
        "Bytes of memory for a tree of at most 2^height - 1 events (a height of 1 to 32).",
    ),
    (
        "MOTESEAL_COLUMN_KEYS_SIZE",
        "Bytes of memory for the keys of at most `columns` encrypted columns (1 to 16).",
    ),
    (
        "MOTESEAL_CIPHER_SIZE",
        "Bytes of memory for the encryption of a seal with at most `columns` encrypted columns (1 to 16).",
    ),
    (
        "MOTESEAL_BROADCAST_SIZE",
        "Bytes of memory for a receiver of chains with at most `block` messages per block (1 to 64).",
    ),
];

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
            Ok(_) => Err(format!("{} is out of date; run moteseal-header write", path.display())),
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

/// Returns the text of the header.
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
        after_includes: Some(sizes(&layout)?),
        trailer: Some(assertions(&layout)?),
        sys_includes: vec!["stddef.h".to_owned(), "stdint.h".to_owned()],
        no_includes: true,
        style: Style::Type,
        documentation_style: DocumentationStyle::C99,
        documentation_length: DocumentationLength::Full,
        usize_is_size_t: true,
        line_length: 100,
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

/// Returns static assertions in C, two for each line of `layout!`: the size and the alignment of a
/// type.
fn assertions(layout: &str) -> Result<String, String> {
    let mut out = String::from(
        "/* The sizes and alignments with which the library was compiled. Compilation fails if your compiler lays out the structs differently. */\n\
         #if defined(__cplusplus)\n#define MOTESEAL_ASSERT(condition, text) static_assert(condition, text)\n\
         #define MOTESEAL_ALIGNOF(type) alignof(type)\n\
         #elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L\n\
         #define MOTESEAL_ASSERT(condition, text) _Static_assert(condition, text)\n#define MOTESEAL_ALIGNOF(type) _Alignof(type)\n\
         #endif\n#ifdef MOTESEAL_ASSERT\n",
    );
    for (line, words) in lines(layout, "layout! {")? {
        let &[name, wide, "or", narrow, "align", align, "or", narrow_align] = words.as_slice()
        else {
            return Err(format!("layout.rs: cannot read `{line}`"));
        };
        let _ = writeln!(
            out,
            "MOTESEAL_ASSERT(sizeof({name}) == (sizeof(void *) == 8 ? {wide} : {narrow}), \"{name}\");\n\
             MOTESEAL_ASSERT(MOTESEAL_ALIGNOF({name}) == (sizeof(void *) == 8 ? {align} : {narrow_align}), \"{name}\");"
        );
    }
    Ok(out + "#endif")
}

/// Returns the macros that compute the sizes of the states whose size the caller chooses.
fn sizes(layout: &str) -> Result<String, String> {
    let mut out = String::new();
    for (line, words) in lines(layout, "storage! {")? {
        let &[_, name, parameter, "=", fixed, "+", each] = words.as_slice() else {
            return Err(format!("layout.rs: cannot read `{line}`"));
        };
        let comment = MACROS.iter().find(|(known, _)| *known == name);
        let (_, comment) = comment.ok_or_else(|| format!("layout.rs: no comment for {name}"))?;
        let _ = writeln!(
            out,
            "\n// {comment}\n#define {name}({parameter}) ({fixed} + {each} * (size_t)({parameter}))"
        );
    }
    Ok(out.trim_end().to_owned())
}

/// Returns the lines of the macro call that begins with `start` in `layout.rs`, each with its
/// words.
fn lines<'l>(layout: &'l str, start: &str) -> Result<Vec<(&'l str, Vec<&'l str>)>, String> {
    let found: Vec<_> = layout
        .lines()
        .skip_while(|line| *line != start)
        .skip(1)
        .take_while(|line| *line != "}")
        .map(|line| {
            let words = line.split([' ', ':', ',', ';', '(', ')']);
            (line, words.filter(|word| !word.is_empty()).collect())
        })
        .collect();
    if found.is_empty() { Err(format!("layout.rs: no lines after `{start}`")) } else { Ok(found) }
}
