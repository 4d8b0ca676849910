//! The program of `make vectors`. `moteseal-vectors write` regenerates the test vectors of
//! `spec/vectors`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if arguments != ["write"] {
        eprintln!("usage: moteseal-vectors write");
        return ExitCode::from(2);
    }
    match moteseal_vectors::write() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("moteseal-vectors: cannot write the vectors: {error}");
            ExitCode::FAILURE
        }
    }
}
