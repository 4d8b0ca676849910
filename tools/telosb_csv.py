#!/usr/bin/env python3
"""Makes data/examples/dev1.csv and dev2.csv, the tables that README.md's tour seals, from two motes of data/telosb.

usage: tools/telosb_csv.py            writes both
       tools/telosb_csv.py --check    exits with 1 if a shipped file differs from what this makes, or an original from its digest

The originals number their readings; the tables give them times instead: every 5 seconds, as the data set's authors say, from
09:00 UTC on the day they name (the hour is ours: the authors give none).
"""

import datetime
import hashlib
import pathlib
import re
import sys

DATA = pathlib.Path(__file__).parent.parent / "data"
START = datetime.datetime(2010, 5, 9, 9, tzinfo=datetime.timezone.utc)
STEP = datetime.timedelta(seconds=5)
TABLES = {"dev1.csv": "singlehop_indoor_moteid1_data.txt", "dev2.csv": "singlehop_indoor_moteid2_data.txt"}


def table(original: pathlib.Path) -> str:
    """The readings of one mote as CSV with times."""
    lines = ["ts,temperature,humidity,label"]
    for line in original.read_text().splitlines()[1:]:
        reading, _mote, humidity, temperature, label = line.split()
        time = START + (int(reading) - 1) * STEP
        lines.append(f"{time:%Y-%m-%dT%H:%M:%SZ},{temperature},{humidity},{label}")
    return "\n".join(lines) + "\n"


def problems() -> list[str]:
    """What is not as it should be, a line each."""
    found = []
    for digest, name in re.findall(r"^([0-9a-f]{64})\s+\d+\s+(\S+)$", (DATA / "telosb/PROVENANCE.txt").read_text(), re.M):
        if hashlib.sha256((DATA / "telosb" / name).read_bytes()).hexdigest() != digest:
            found.append(f"data/telosb/{name} is not the original of PROVENANCE.txt")
    for name, original in TABLES.items():
        if (DATA / "examples" / name).read_text() != table(DATA / "telosb" / original):
            found.append(f"data/examples/{name} is not what tools/telosb_csv.py makes of data/telosb/{original}")
    return found


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        print("\n".join(problems()) or "data: originals and tables are as described")
        return 1 if problems() else 0
    for name, original in TABLES.items():
        (DATA / "examples" / name).write_text(table(DATA / "telosb" / original))
    return 0


if __name__ == "__main__":
    sys.exit(main())
