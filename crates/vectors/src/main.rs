//! The program of `make vectors`. `moteseal-vectors write` regenerates the test vectors of
//! `spec/vectors`. `moteseal-vectors batch` runs operations from lines of JSON on stdin.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let result = match arguments.first().and_then(|argument| argument.to_str()) {
        Some("write") => moteseal_vectors::write(),
        Some("batch") => {
            let output = std::io::BufWriter::new(std::io::stdout().lock());
            moteseal_vectors::batch::batch(std::io::stdin().lock(), output)
        }
        _ => {
            eprintln!("usage: moteseal-vectors write|batch");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("moteseal-vectors: {error}");
            ExitCode::FAILURE
        }
    }
}
