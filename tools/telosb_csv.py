#!/usr/bin/env python3
"""Creates data/examples/dev1.csv and dev2.csv from data/telosb. The tour in README.md seals these tables.

usage: tools/telosb_csv.py            writes both files
       tools/telosb_csv.py --check    exits with 1 if a committed table differs from the table that this
                                      script creates, or an original file does not match its digest

The original files number their readings. The tables have times instead: one reading every 5 seconds from
09:00 UTC on. The authors of the data set state the interval and the day, but not the hour; we chose 09:00.
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
    """Returns the readings of one mote as CSV with times."""
    lines = ["ts,temperature,humidity,label"]
    for line in original.read_text().splitlines()[1:]:
        reading, _mote, humidity, temperature, label = line.split()
        time = START + (int(reading) - 1) * STEP
        lines.append(f"{time:%Y-%m-%dT%H:%M:%SZ},{temperature},{humidity},{label}")
    return "\n".join(lines) + "\n"


def problems() -> list[str]:
    """Returns one line for each file that is not as expected."""
    found = []
    for digest, name in re.findall(r"^([0-9a-f]{64})\s+\d+\s+(\S+)$", (DATA / "telosb/PROVENANCE.txt").read_text(), re.M):
        if hashlib.sha256((DATA / "telosb" / name).read_bytes()).hexdigest() != digest:
            found.append(f"data/telosb/{name} does not match its digest in PROVENANCE.txt")
    for name, original in TABLES.items():
        if (DATA / "examples" / name).read_text() != table(DATA / "telosb" / original):
            found.append(f"data/examples/{name} differs from the table that tools/telosb_csv.py creates from data/telosb/{original}")
    return found


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        print("\n".join(problems()) or "data: all original files and tables are as expected")
        return 1 if problems() else 0
    for name, original in TABLES.items():
        (DATA / "examples" / name).write_text(table(DATA / "telosb" / original))
    return 0


if __name__ == "__main__":
    sys.exit(main())
