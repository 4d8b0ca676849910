#!/usr/bin/env bash
# Runs every fuzz target under libFuzzer for a bounded time, on the stable toolchain. Coverage
# instrumentation works on stable; only the sanitizers need nightly.
#
# usage: tools/fuzz.sh SECONDS [TARGET...]
# Failing inputs are saved in fuzz/artifacts/TARGET/. To reproduce a failure, run
# `fuzz/target/HOST/release/TARGET FILE`.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
seconds=${1:?usage: tools/fuzz.sh SECONDS [TARGET...]}
shift
targets=("$@")
[ ${#targets[@]} -gt 0 ] || for file in fuzz_targets/*.rs; do targets+=("$(basename "$file" .rs)"); done

host=$(rustc -vV | sed -n 's/^host: //p')
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
# Because of --target, RUSTFLAGS apply to the fuzz targets and their dependencies, but not to build scripts and macros.
RUSTFLAGS="${coverage//$'\n'/ } --cfg fuzzing -Ccodegen-units=1" CARGO_TARGET_DIR=target \
    cargo build --quiet --locked --release --target "$host" --bins

for target in "${targets[@]}"; do
    mkdir -p "corpus/$target" "artifacts/$target"
    printf 'fuzz: %s for %s s\n' "$target" "$seconds" >&2
    # With -rss_limit_mb and -malloc_limit_mb, an input fails if it causes large allocations.
    MOTESEAL_FUZZ_CORPUS=corpus "target/$host/release/$target" "corpus/$target" "-artifact_prefix=artifacts/$target/" \
        "-max_total_time=$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=64 \
        -print_final_stats=1 -verbosity=0 2>"artifacts/$target/log" || { cat "artifacts/$target/log" >&2; exit 1; }
    grep -E 'number_of_executed_units|new_units_added' "artifacts/$target/log" >&2 || true
done
