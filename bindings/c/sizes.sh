#!/usr/bin/env bash
# Measures how much flash each part of the library takes on a Cortex-M3: all code that the part's
# functions reach, including newlib's memcpy and similar functions, but not the application. For
# RAM, see the sizes of the states in the header. docs/footprint.md lists stack and instructions.
#
# usage: bindings/c/sizes.sh    prints the table of README.md
set -euo pipefail
cd "$(dirname "$0")"
export CARGO_TARGET_DIR=$PWD/target
# shellcheck disable=SC2086
cargo build --quiet ${CARGO_FLAGS:---locked} --release -p moteseal-c --target thumbv7m-none-eabi --no-default-features --features ed25519
library=target/thumbv7m-none-eabi/release/libmoteseal.a
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

row() {
    local what=$1 roots=()
    shift
    for name in "$@"; do roots+=("-Wl,--undefined=moteseal_$name"); done
    # The linked file is only measured, not executed: it needs neither an entry point nor the C
    # start-up code. The linker keeps all code that the functions reach, and reports a missing
    # symbol as an error.
    arm-none-eabi-gcc -mcpu=cortex-m3 -mthumb -nostartfiles --specs=nano.specs --specs=nosys.specs -Wl,--gc-sections -Wl,--entry=0 \
        "${roots[@]}" "$library" -o "$scratch/part" 2> "$scratch/stderr" || { cat "$scratch/stderr" >&2; exit 1; }
    arm-none-eabi-size "$scratch/part" | awk -v what="$what" 'NR == 2 { printf "| %s | %d.%d |\n", what, $1 / 1024, ($1 % 1024) * 10 / 1024 }'
}

seal=(chain_start chain_restore chain_open chain_persisted seal_message seal_commit schema_item open_item part_head part_tail)
columns=(column_keys_restore column_keys_record cipher_begin cipher_encrypt)
sum=(sum_source_from_bytes sum_key_begin guard_start guard_restore guard_advance permit_persisted sum_encrypt)
broadcast=(base_begin sender_open frame_read broadcast_begin broadcast_persisted broadcast_take broadcast_missing single_open)
echo '| what a firmware calls | flash, KiB |'
echo '|---|---|'
row 'a star and its seals, signed by a secure element' "${seal[@]}" star_begin star_push star_close
row 'a tree and its seals, signed by a secure element' "${seal[@]}" tree_begin tree_push tree_close
row 'a star and its seals, signed with Ed25519 here' "${seal[@]}" star_begin star_push star_close signing_key_from_bytes sign
row 'the same, with encrypted columns' "${seal[@]}" star_begin star_push star_close signing_key_from_bytes sign "${columns[@]}"
row 'the source of sums' "${sum[@]}"
row 'the receiver of broadcasts' "${broadcast[@]}"
row 'all three' "${seal[@]}" star_begin star_push star_close signing_key_from_bytes sign "${sum[@]}" "${broadcast[@]}"
row 'reading a roster and key files on the mote itself' device_from_roster public_key_from_pem signing_key_from_pem sum_source_from_key_file
