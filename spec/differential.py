#!/usr/bin/env python3
"""Compares three verifiers on mutated inputs: the product's, verify.py and the one in js/.

usage: differential.py --rust BINARY [--cases N] [--seed S] [--op OP ...]

Each case is a valid input of a test vector, changed at random: bits, bytes, cuts, insertions, repeated, removed and exchanged
items, and items of other cases. All three verifiers must return the same output, or an error of the same name.
BINARY is the program `moteseal-vectors` (`cargo build -p moteseal-vectors`). Needs Node and the packages of verify.py.
Prints each disagreement with its input, and exits with 1 if there is one.
"""

import argparse
import collections
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from verifier.encoding import Form, Refused
from verifier.vectors import verdict

HERE = pathlib.Path(__file__).resolve().parent
VECTORS = HERE / "vectors/v1"
CHUNK = 2000
OPERATIONS = ["stream.bundle", "stream.read", "proof.open", "answer.open", "reading.open", "schema.open", "schema.record"]


def changed(op):
    """The field of an operation's input that is changed."""
    return "record" if op == "schema.record" else "bytes"


def cases(operations):
    """The valid cases of the operations: the operation, the input and the context."""
    for path in sorted(VECTORS.rglob("*.json")):
        file = json.loads(path.read_text())
        context = {name: file[name] for name in ("operator", "roster", "max_events") if name in file}
        for case in file["valid"]:
            if case["op"] in operations:
                yield case["op"], case["input"], context


def split(data):
    """The items of a stream as far as they can be read, and the rest."""
    items, at = [], 0
    try:
        while at < len(data):
            form = Form(data, at)
            form.item()
            items.append(data[at : form.at])
            at = form.at
    except Refused:
        pass
    return items, data[at:]


def mutate(rng, data, other):
    """Changes a stream. `other` is a stream of the same context."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not data:
            return bytes(data)
        kind, at = rng.randrange(10), rng.randrange(len(data))
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.randrange(256)
        elif kind == 2:
            data[at] = (data[at] + rng.choice((-1, 1))) & 255
        elif kind == 3:
            del data[rng.randrange(len(data)) :]
        elif kind == 4:
            del data[at : at + rng.choice((1, 1, 2, 8, 32))]
        elif kind == 5:
            data[at:at] = rng.randbytes(rng.choice((1, 1, 2, 8, 32)))
        else:
            items, rest = split(bytes(data))
            others, _ = split(other)
            if not items:
                continue
            place = rng.randrange(len(items))
            if kind == 6:
                items.insert(rng.randrange(len(items) + 1), items[place])
            elif kind == 7:
                del items[place]
            elif kind == 8:
                target = rng.randrange(len(items))
                items[place], items[target] = items[target], items[place]
            elif others:
                items.insert(place, rng.choice(others))
            data = bytearray(b"".join(items) + rest)
    return bytes(data)


def requests(rng, pool, count):
    """Random requests."""
    by_context = collections.defaultdict(list)
    for op, given, context in pool:
        by_context[json.dumps(context, sort_keys=True)].append((op, given))
    for _ in range(count):
        other, first, context = rng.choice(pool)
        op, given = rng.choice(by_context[json.dumps(context, sort_keys=True)])
        field = changed(op)
        result = mutate(rng, bytes.fromhex(given[field]), bytes.fromhex(first[changed(other)]))
        yield {"op": op, "input": {**given, field: result.hex()}, "context": context}


def of_python(batch):
    """The results of verify.py."""
    for request in batch:
        try:
            output, error = verdict(request["context"], request["op"], request["input"])
            yield {"output": output} if error is None else {"error": error}
        except Exception as fault:
            yield {"crash": repr(fault)}


def of_program(command, path):
    """The results of a program that reads requests from a file."""
    with path.open("rb") as stdin:
        run = subprocess.run(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rust", required=True, metavar="BINARY")
    parser.add_argument("--cases", type=int, default=2000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--op", action="append", choices=OPERATIONS, metavar="OP")
    arguments = parser.parse_args()
    pool = list(cases(arguments.op or OPERATIONS))
    verdicts, disagreements, start = collections.Counter(), 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "requests"
        for first in range(0, arguments.cases, CHUNK):
            # Each chunk has its own seed, so that a run can continue where another one ended.
            rng = random.Random(f"{arguments.seed}/{first}")
            batch = list(requests(rng, pool, min(CHUNK, arguments.cases - first)))
            path.write_text("".join(json.dumps(request) + "\n" for request in batch))
            rust = of_program([arguments.rust, "batch"], path)
            node = of_program(["node", str(HERE / "js/verify.mjs"), "batch"], path)
            for request, *results in zip(batch, rust, node, of_python(batch), strict=True):
                verdicts[results[0].get("error", next(iter(results[0])))] += 1
                if results[0] == results[1] == results[2] and "crash" not in results[0]:
                    continue
                disagreements += 1
                print(json.dumps({"request": request, "product": results[0], "js": results[1], "python": results[2]}))
            done = first + len(batch)
            print(f"{done:,} of {arguments.cases:,} cases, {disagreements} disagreements, "
                  f"{time.monotonic() - start:.0f} s", file=sys.stderr)
    named = ", ".join(f"{name} {count:,}" for name, count in verdicts.most_common())
    print(f"seed {arguments.seed}: {sum(verdicts.values()):,} cases, {disagreements} disagreements; verdicts: {named}")
    return 1 if disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
