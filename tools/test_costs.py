#!/usr/bin/env python3
"""Tests of tools/costs.py: the tables have medians, ranges and missed limits, and --check finds a page with other tables."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import costs

PARTS = "".join(f"<!-- costs: {name} -->\nold\n<!-- costs: end -->\n" for name in ("constants", "totals", "sizes"))


def results(intakes: list[float], **more) -> dict:
    """Returns results with a repetition for each processor time of the intake."""
    fleet = {"devices": 10_000, "readings": 298, "bundle_bytes": 1366.0, "seconds": 5.0, "stream_us": 80.0, "followers_us": None}
    fleet |= {"worker_us": 60.0, "cassandra_us": 720.0, "stored": 50_000, "disk_bytes": 4.7}
    total = {"what": "disk, MiB", "predicted": 100.0, "measured": 131.0}
    run = {"machine": "a machine", "processors": 2, "replicas": 1, "per_request": 16, "each": 1, "totals": [total], **more}
    repetitions = [run | {fleet_: fleet | {"intake_us": intake} for fleet_ in ("small", "large")} for intake in intakes]
    return {"execution": {"command": "moteseal-lab costs", "date": "2026-01-01"}, "repetitions": repetitions}


class Costs(unittest.TestCase):
    def test_the_table_has_medians_and_ranges_and_the_medians_count(self):
        page = costs.rewritten(PARTS, [results([80.0, 99.0, 91.0])])
        for text in ["91.0 (80.0 to 99.0) / 91.0 (80.0 to 99.0)", "| 151.0: **MISS** |", "| 31 % (disk): **MISS** |", "+31 %: **MISS**"]:
            self.assertIn(text, page)
        self.assertIn("| 142.0: PASS |", costs.rewritten(PARTS, [results([80.0, 91.0, 82.0])]))
        self.assertIn("| 151.0: no limit |", costs.rewritten(PARTS, [results([80.0]), results([91.0], per_request=1)]))
        self.assertIn("| 89.9: PASS |", costs.rewritten(PARTS, [results([29.9])]))
        self.assertNotIn("old", page)

    def test_the_sizes_follow_from_the_constants(self):
        page = costs.rewritten(PARTS, [results([80.0])])
        # 1,000,000 devices send 277.8 bundles a second. Cassandra: 720 us on three nodes, 277.8 x 298 x 4.7 bytes,
        # three times, for a year, twice.
        row = "| 1,000,000 | 277.8 | 82,778 | 0.02222 | 0.02222 | 0.02222 | 0.01667 | 0.60 | 73.7 TB | 19 |"
        self.assertIn(row, page)

    def test_with_three_servers_there_is_a_leader(self):
        servers = results([80.0], replicas=3)
        for fleet in ("small", "large"):
            servers["repetitions"][0][fleet]["followers_us"] = 50.0
        page = costs.rewritten(PARTS, [results([80.0]), servers])
        self.assertIn("- | 80.0 / 80.0 |", page)
        self.assertIn("| 80.0 / 80.0 | 50.0 / 50.0 |", page)

    def test_check_finds_a_page_with_other_tables(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            root = pathlib.Path(folder)
            (root / "docs" / "scale").mkdir(parents=True)
            (root / costs.PAGE).write_text(PARTS)
            file = root / "docs" / "scale" / "costs-a.json"
            file.write_text(json.dumps(results([80.0])))
            self.assertEqual(costs.main(["--check", folder]), 1)
            self.assertEqual(costs.main([folder]), 0)
            self.assertEqual(costs.main(["--check", folder]), 0)
            file.write_text(json.dumps(results([81.0])))
            self.assertEqual(costs.main(["--check", folder]), 1)


if __name__ == "__main__":
    unittest.main()
