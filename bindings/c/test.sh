#!/usr/bin/env bash
# Tests the C bindings: the header matches the sources; C and C++ compile the header without a
# warning; the boundary between C and Rust withstands hostile use under sanitizers; the README's
# commands work unchanged, also in QEMU.
#
# usage: bindings/c/test.sh [MOTESEAL]
#   MOTESEAL   the `moteseal` binary of this tree; default: the newer of target/release/moteseal and target/debug/moteseal
#
# Needs: cargo, cmake, gcc, g++, arm-none-eabi-gcc with newlib, qemu-system-arm.
set -euo pipefail
given=${1:+$(realpath -- "$1")}
cd "$(dirname "$0")"
here=$PWD root=$(cd ../.. && pwd)
CARGO_FLAGS=${CARGO_FLAGS:---locked}
export CARGO_TARGET_DIR=$here/target

step() { printf -- '-- %s\n' "$*" >&2; }
die() { printf 'bindings/c/test.sh: %s\n' "$*" >&2; exit 1; }

moteseal=${given:-$(ls -t "$root"/target/{release,debug}/moteseal 2>/dev/null | head -1 || true)}
[ -x "$moteseal" ] || die "no moteseal binary found; build it (cargo build -p moteseal) or pass its path"
moteseal=$(realpath "$moteseal")

scratch=$(mktemp -d)
# The files of pinned seals are not those of the user.
export XDG_STATE_HOME=$scratch/state
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$scratch"' EXIT

step formatting
cargo fmt --all --check

step the header matches the sources
# shellcheck disable=SC2086
cargo run --quiet $CARGO_FLAGS -p moteseal-header -- check

step clippy
# shellcheck disable=SC2086
cargo clippy --quiet $CARGO_FLAGS --workspace -- -D warnings

step build the library with all run-time checks, and its peer
# shellcheck disable=SC2086
cargo build --quiet $CARGO_FLAGS --profile checked -p moteseal-c -p moteseal-c-peer
library=$here/target/checked/libmoteseal.a
peer=$here/target/checked/moteseal-c-peer

step the library compiles with P-256 alone
# shellcheck disable=SC2086
cargo check --quiet $CARGO_FLAGS -p moteseal-c --no-default-features --features esp256

step the sizes in README.md are right to within 10 percent
./sizes.sh > "$scratch/sizes"
[ "$(wc -l < "$scratch/sizes")" -gt 5 ] || die "sizes.sh did not print a table"
while IFS='|' read -r _ what size _; do
    case $size in *[0-9].[0-9]*) ;; *) continue ;; esac
    found=$(grep -F "|$what|" README.md | cut -d'|' -f3) || die "README.md has no size for$what"
    awk -v now="$size" -v was="$found" 'BEGIN { exit !(now <= 1.1 * was && now >= 0.9 * was) }' ||
        die "$what takes $size KiB, but README.md states $found: paste the output of bindings/c/sizes.sh into README.md"
done < "$scratch/sizes"

step C and C++ compile everything without a warning
strict=(-O1 -g -Wall -Wextra -Werror -pedantic -Iinclude)
sanitize=(-fsanitize=address,undefined -fno-sanitize-recover=all)
for source in examples/linux/*.c tests/*.c; do
    gcc -std=c11 "${strict[@]}" "${sanitize[@]}" "$source" "$library" -o "$scratch/$(basename "$source" .c).run"
    g++ -std=c++17 "${strict[@]}" -x c++ -fsyntax-only "$source"
done
printf '#include <moteseal.h>\n#include <moteseal.h>\nint main(void) { return moteseal_error_name(0) == 0; }\n' > "$scratch/header.c"
gcc -std=c99 "${strict[@]}" "$scratch/header.c" "$library" -o "$scratch/header"
g++ -std=c++11 "${strict[@]}" -x c++ "$scratch/header.c" -x none "$library" -o "$scratch/header"
for source in examples/cortex-m3/*.c; do
    arm-none-eabi-gcc -std=c11 -mcpu=cortex-m3 -mthumb "${strict[@]}" -c "$source" -o "$scratch/object"
done
arm-none-eabi-g++ -std=c++17 -mcpu=cortex-m3 -mthumb "${strict[@]}" -x c++ -fsyntax-only examples/cortex-m3/main.c

step the boundary between C and Rust under hostile use
"$peer" broadcast "$scratch/frames"
"$scratch/boundary.run" "$scratch/frames"

step the encryption of columns under hostile use
"$scratch/columns.run"

step the client verifies seals made in every possible way
mkdir "$scratch/variety"
(
    cd "$scratch/variety"
    "$moteseal" key new --out op
    "$moteseal" key new --out ed
    "$moteseal" key new --out ec --alg esp256
    "$moteseal" roster new --operator op.key.pem --group home --epoch 1h --levels 8 --out roster.cbor --device ed=ed.pub.pem --device ec=ec.pub.pem
) 2> "$scratch/stderr" || { cat "$scratch/stderr" >&2; die "the keys and the roster were not created"; }
for name in ed ec; do
    events=$("$scratch/variety.run" "$scratch/variety/roster.cbor" "$scratch/variety/op.pub.pem" $name "$scratch/variety/$name.key.pem" "$scratch/variety")
    "$moteseal" verify "$scratch/variety/$name"-*.mseal --roster "$scratch/variety/roster.cbor" --operator "$scratch/variety/op.pub.pem" \
        > "$scratch/verified" || die "the client rejects a bundle of $name"
    [ "$(sed -n 's/.* \([0-9,]*\) readings.*/\1/p' "$scratch/verified" | tr -d ,)" = "$events" ] ||
        die "the client did not verify exactly $events readings: $(cat "$scratch/verified")"
    [ "$("$peer" urgent "$scratch/variety/roster.cbor" "$scratch/variety/op.pub.pem" "$scratch/variety/urgent.cose")" = 3f404142 ] ||
        die "the urgent event of $name does not verify"
done

step the bundles of random tables are those of the Rust implementation, byte by byte
mkdir "$scratch/random"
for name in ed ec; do
    for seed in 1 2 3; do
        rm -rf "$scratch/random"/*
        events=$("$scratch/random.run" "$scratch/variety/roster.cbor" "$scratch/variety/op.pub.pem" $name "$scratch/variety/$name.key.pem" $seed "$scratch/random")
        same=$("$peer" tables "$scratch/variety/roster.cbor" "$scratch/variety/op.pub.pem" $name "$scratch/random/$name.tables") ||
            die "seed $seed of $name: the bundles differ"
        "$moteseal" verify "$scratch/random/$name"-random-*.mseal --roster "$scratch/variety/roster.cbor" --operator "$scratch/variety/op.pub.pem" \
            --no-pinned-seals > "$scratch/verified" || die "seed $seed: the client rejects a bundle of $name"
        [ "$same" = "$events" ] && [ "$(sed -n 's/.* \([0-9,]*\) readings.*/\1/p' "$scratch/verified" | tr -d ,)" = "$events" ] ||
            die "seed $seed: not exactly $events readings of $name: $same compared, $(cat "$scratch/verified")"
    done
done

step the commands of README.md
mkdir "$scratch/clone" "$scratch/bin"
ln -s "$root/bindings" "$root/data" "$scratch/clone"
ln -s "$moteseal" "$scratch/bin/moteseal"
{
    # The workspace is already built: skip `cargo build --release`. A random multicast group and
    # port keep concurrent runs of this script from receiving each other's packets.
    printf 'set -euo pipefail\ncargo() { :; }\n'
    group=239.77.$((RANDOM % 250 + 1)).$((RANDOM % 250 + 1)) port=$((RANDOM % 20000 + 20000))
    sed -n '/^```sh$/,/^```$/{/^```/!p}' README.md | sed "s/239\.77\.1\.2/$group/g; s/45789/$port/g"
} > "$scratch/readme.sh"
(cd "$scratch/clone" && PATH="$scratch/bin:$PATH" timeout 900 bash "$scratch/readme.sh") > "$scratch/readme.log" 2>&1 ||
    { cat "$scratch/readme.log" >&2; die "the README's commands failed"; }
tour=$scratch/clone/firmware-tour
printed() { grep -qF -- "$1" "$scratch/readme.log" || { cat "$scratch/readme.log" >&2; die "the README's commands did not print: $1"; }; }
printed 'a star of 16 levels takes 1896 bytes'
printed 'push before begin: NotBegun'
printed '4,417 readings'
printed 'sealed events: 720'
printed 'sum: epoch: EpochAnswered'
printed 'refused, as it must be'
[ "$(find "$tour/hidden-bundles" -name '*.mseal' | wc -l)" = 7 ] || die "the device did not seal seven encrypted epochs"
seq -f 'line %g' 20 | cmp - "$tour/received.txt" || die "the received broadcast differs from the sent one"

step the receiver requests the lost messages of a broadcast
gcc -std=c11 "${strict[@]}" "${sanitize[@]}" -DLISTEN_LOSES examples/linux/listen.c "$library" -o "$scratch/lossy"
port=$((RANDOM % 20000 + 20000))
"$scratch/lossy" "$tour/base.pub.pem" "$scratch/floor" 239.77.1.2 $port > "$scratch/received" 2> "$scratch/listened" &
until grep -q ready "$scratch/listened"; do
    kill -0 $! 2> /dev/null || die "the receiver did not start: $(cat "$scratch/listened")"
    sleep 0.1
done
seq -f 'line %g' 20 | "$moteseal" broadcast send --key "$tour/ops.key.pem" --cert "$tour/ops.cert" --block 8 --lines - --without-receivers \
    --to "udp://239.77.1.2:$port?interface=127.0.0.1" 2> "$scratch/stderr" || { cat "$scratch/stderr" >&2; die "the broadcast was not sent"; }
wait $! || { cat "$scratch/listened" >&2; die "the receiver did not complete the chain"; }
seq -f 'line %g' 20 | cmp - "$scratch/received" || die "the received broadcast differs from the sent one"
grep -q 'requested the missing messages' "$scratch/listened" || die "the receiver requested no message: the test did not lose any"

step a restart continues the chain, and the client verifies it
seal=("$scratch/seal.run" "$tour/roster.cbor" "$tour/op.pub.pem" node "$tour/node.key.pem" "$tour/node.salt.key" "$tour/node.chain")
! "${seal[@]}" "$root/data/examples/dev1.csv" "$tour/bundles" 2> "$scratch/again" || die "a closed epoch was sealed again"
grep -q 'EpochGoesBack' "$scratch/again" || die "sealing a closed epoch did not fail with EpochGoesBack: $(cat "$scratch/again")"
sed 's/^2010-05-09/2010-05-10/' "$root/data/examples/dev1.csv" > "$scratch/next.csv"
"${seal[@]}" "$scratch/next.csv" "$tour/bundles" > "$scratch/sealed"
"$moteseal" verify "$tour"/bundles/*.mseal --roster "$tour/roster.cbor" --operator "$tour/op.pub.pem" > "$scratch/verified"
grep -q '8,834 readings' "$scratch/verified" || die "the client did not verify 8,834 readings: $(cat "$scratch/verified")"

step the owner reads what the device encrypted, and the device continues without the stream secret
mv "$tour/secret/hidden.stream.key" "$scratch/hidden.stream.key"
"$scratch/seal.run" "$tour/cellar.cbor" "$tour/op.pub.pem" hidden "$tour/hidden.key.pem" "$tour/hidden.salt.key" "$tour/hidden.chain" \
    "$scratch/next.csv" "$tour/hidden-bundles" "$tour/hidden.columns" > "$scratch/sealed"
trust=(--roster "$tour/cellar.cbor" --operator "$tour/op.pub.pem")
"$moteseal" cloud run --store "$scratch/epochs.redb" "${trust[@]}" --listen 127.0.0.1:0 > "$scratch/url" 2> "$scratch/cloud.log" &
cloud=$!
until [ -s "$scratch/url" ]; do
    kill -0 $cloud 2> /dev/null || die "the cloud did not start: $(cat "$scratch/cloud.log")"
    sleep 0.1
done
url=$(cat "$scratch/url")
"$moteseal" push "$tour/hidden-bundles" --to "$url" > "$scratch/pushed" 2>&1 || die "the bundles were not pushed: $(cat "$scratch/pushed")"
rows() {
    "$moteseal" get hidden --from "$url" "${trust[@]}" --rate 1 --no-pinned-seals --format csv "$@" 2> "$scratch/stderr" |
        tail -n +2 | cut -d, -f6- | sort
}
awk -F, 'FNR > 1 { printf "%.2f,%.2f\n", $2, $3 }' "$root/data/examples/dev1.csv" "$scratch/next.csv" | sort > "$scratch/sensed"
[ "$(wc -l < "$scratch/sensed")" = 8834 ] || die "there are not 8,834 readings"
rows --stream-secret "hidden=$scratch/hidden.stream.key" | cmp - "$scratch/sensed" ||
    die "the decrypted rows are not the readings: $(cat "$scratch/stderr")"
[ "$(rows | uniq -c | tr -s ' ')" = ' 8834 ,' ] || die "a cell is not empty without a key: $(cat "$scratch/stderr")"
kill $cloud

step the querier opens the records of the source, and only in their own epoch
while read -r epoch count sum; do
    case $epoch in 1000) value=2014 ;; 1001) value=2017 ;; *) die "unexpected epoch $epoch" ;; esac
    open() { "$peer" open "$tour/sumkeys/querier.sum.key" 000102030405060708090a0b0c0d0e0f "$@"; }
    # The roster sorts devices by id, which determines the position of `node`. The group's other
    # source does not answer.
    [ "$(open "$epoch" 1 10000 "node=$sum")" = "$value" ] || die "the sum of epoch $epoch does not open"
    [ "$(open "$epoch" 0 1 "node=$count")" = 1 ] || die "the count of epoch $epoch does not open"
    ! open "$((epoch + 1))" 1 10000 "node=$sum" 2> "$scratch/refused" || die "a sum opened in another epoch"
    grep -q SharesMismatch "$scratch/refused" || die "opening a sum in another epoch did not fail with SharesMismatch: $(cat "$scratch/refused")"
done < "$tour/node.psrs"
[ "$(wc -l < "$tour/node.psrs")" = 2 ] || die "node.psrs does not have exactly two epochs"

step a key file that requires masks is refused
"$moteseal" sum setup --masks --roster "$tour/roster.cbor" --operator "$tour/op.pub.pem" --querier "$tour/querier.key.pem" \
    --out "$tour/masked" 2> "$scratch/stderr" > "$scratch/made" || { cat "$scratch/stderr" >&2; die "the keys with masks were not made"; }
! "$scratch/sum.run" "$tour/roster.cbor" "$tour/op.pub.pem" node "$tour/masked/node.sum.key" "$scratch/guard" \
    000102030405060708090a0b0c0d0e0f 30000 1000 2014 2> "$scratch/refused" || die "a source without masks answered"
grep -q PolicyMissing "$scratch/refused" || die "the key file was not refused with PolicyMissing: $(cat "$scratch/refused")"

step all tests of the bindings passed
