#!/usr/bin/env python3
"""Reports which external data is absent, and which tests therefore checked nothing.

The data may not be redistributed. Tests read it from the folder that MOTESEAL_DATA names, or from ../shared/data
next to the checkout if MOTESEAL_DATA is not set. Without the data they pass. cargo hides the output of a passing
test, so this script, the last step of `make test`, reports these tests. With MOTESEAL_DATA_REQUIRED=1 this script
and the tests fail if data is absent.

The script also compares the list below with the tests, and fails if they differ.
"""
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# For each data set, the files that need it and the functions in them that read it.
NEEDS = {
    "vectors_ed25519": {"crates/core/tests/it/signatures.rs": ["ed25519_signs_as_the_reference_implementation_does"]},
    "vectors_wycheproof": {
        "crates/core/tests/it/signatures.rs": [
            "ed25519_agrees_with_wycheproof",
            "esp256_agrees_with_wycheproof_and_detects_high_s",
            "the_reference_hmac_agrees_with_wycheproof",
        ],
    },
    "vectors_merkle": {
        "crates/seal/tests/it/tree.rs": [
            "agrees_with_external_inclusion_probes",
            "agrees_with_the_checkpoints_of_an_external_log",
        ],
        "spec/verify.py": ["run_merkle"],
    },
    "umass_smartstar_homeC": {
        "crates/lab/tests/it/sampling.rs": [
            "the_recordings_have_as_many_days_and_events_as_published",
            "every_recorded_day_is_within_budget_and_passes_the_audit",
            "recorded_temperatures_are_biased_by_truncation_and_not_by_sampling",
        ],
    },
    "intel_lab": {
        "crates/lab/tests/it/sums_report.rs": ["the_recorded_temperatures_are_those_of_fifty_motes_over_five_days"],
    },
}


def stale(root):
    """Yields a message for each difference between the list and the sources."""
    for data, files in NEEDS.items():
        for file, names in files.items():
            if not (root / file).is_file():
                yield f"{file} does not exist"
                continue
            text = (root / file).read_text()
            if data not in text:
                yield f"{file} does not use {data}"
            yield from (f"{file} has no function {name}" for name in names if not re.search(rf"\b(fn|def) {name}\b", text))
    for path in sorted([*root.glob("crates/*/tests/**/*.rs"), root / "spec/verify.py"]):
        file, text = str(path.relative_to(root)), path.read_text()
        unlisted = {data for data in re.findall(r"\bvectors_[a-z0-9]+(?=[/\"])", text) if file not in NEEDS.get(data, {})}
        yield from (f"{file} uses {data}, which is not in the list" for data in sorted(unlisted))
        # Every caller of the functions that search for data must be in the list.
        looks = re.findall(r"\nfn (\w+)\(\) \{(?:\n(?!\}).*)*?(?:data|vectors|wycheproof|recorded|external_data)\([^)]*\)\s+else", text)
        known = {name for files in NEEDS.values() for name in files.get(file, [])}
        yield from (f"{file}: {name} is not in the list" for name in looks if name not in known)


def main():
    wrong = list(stale(ROOT))
    for line in wrong:
        print(f"tools/absent_data.py: {line}", file=sys.stderr)
    folder = pathlib.Path(os.environ.get("MOTESEAL_DATA") or ROOT.parent / "shared" / "data")
    absent = [data for data in NEEDS if not (folder / data).is_dir()]
    tests = [(file, name, data) for data in absent for file, names in NEEDS[data].items() for name in names]
    for file, name, data in tests:
        print(f"SKIPPED {file}: {name} ({data} is absent)", file=sys.stderr)
    if tests:
        print(f"{len(tests)} tests checked nothing; set MOTESEAL_DATA to the folder that has {', '.join(absent)}", file=sys.stderr)
    else:
        print("all external data is present; no test was skipped", file=sys.stderr)
    required = os.environ.get("MOTESEAL_DATA_REQUIRED") == "1"
    return 1 if wrong or (tests and required) else 0


if __name__ == "__main__":
    sys.exit(main())
