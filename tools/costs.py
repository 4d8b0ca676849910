#!/usr/bin/env python3
"""Writes the tables of docs/scale.md (Sizing) from docs/scale/costs-*.json, the results of `moteseal-lab costs`.

usage: tools/costs.py [--check] [DIR]    (a checkout)

With --check, writes nothing, and exits with 1 if the page does not have the tables of the files. A table is between
the lines `<!-- costs: NAME -->` and `<!-- costs: end -->`.
"""

import json
import math
import pathlib
import re
import statistics
import sys

PAGE = "docs/scale.md"
FILES = "docs/scale/costs-*.json"
# The limits of crates/lab/src/latency/costs.rs.
BAR_US = 150
DEVIATION = 0.3
# The choices of the sizing table: seconds between two seals of a device, replicas, cores and bytes of a node.
SEAL_S = 3600
REPLICAS = 3
NODE_CORES = 8
NODE_BYTES = 4e12
YEAR_S = 365.25 * 86400


def kind(results: dict) -> tuple[int, str]:
    """Returns the place of the column of some results, and its title."""
    one = results["repetitions"][0]
    if one["small"]["cassandra_us"] is None:
        return 4, "embedded store"
    if one["replicas"] > 1:
        return 3, f"{one['replicas']} NATS servers"
    if one["per_request"] == 1:
        return 2, "1 bundle a request"
    if one["each"] > 1:
        return 1, f"{one['each']} bundles of one device"
    return 0, f"bundles of {one['per_request']} devices"


def leader_us(costs: dict) -> float | None:
    return None if costs["followers_us"] is None else costs["stream_us"]


def stream_us(costs: dict) -> float:
    return costs["stream_us"] if costs["followers_us"] is None else costs["followers_us"]


def ours_us(costs: dict) -> float:
    return costs["intake_us"] + costs["worker_us"]


CONSTANTS = [
    ("`CPU_INTAKE`, us: HTTPS, verification of the signature and of all readings, publishing", lambda costs: costs["intake_us"]),
    ("`CPU_STREAM`, us: a NATS server, if there are several one that does not lead the stream", stream_us),
    ("`CPU_LEADER`, us: the NATS server that leads the stream", leader_us),
    ("`CPU_WORKER`, us: from the stream to the table, with the client of Cassandra or the embedded store", lambda costs: costs["worker_us"]),
    ("`CPU_CASSANDRA`, us: one replica", lambda costs: costs["cassandra_us"]),
    ("`DISK_READING`, bytes: one replica, after the node was stopped", lambda costs: costs["disk_bytes"]),
    ("`BUNDLE_BYTES`, bytes: a bundle of 298 readings, each with 4 bytes", lambda costs: costs["bundle_bytes"]),
    ("intake and worker together, us", ours_us),
    ("bundles a second, all processes on this machine", lambda costs: costs["devices"] / costs["seconds"]),
]


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" if value >= 100 else f"{value:.1f}"


def spread(values: list[float | None]) -> str:
    """Returns the median, and the range if there are several values."""
    if None in values:
        return "-"
    median = number(statistics.median(values))
    return median if len(values) == 1 else f"{median} ({number(min(values))} to {number(max(values))})"


def deviation(total: dict) -> float:
    return abs(total["measured"] / total["predicted"] - 1)


def median_totals(runs: list[dict]) -> list[dict]:
    """Returns the median of each total, predicted and measured."""
    same = zip(*(run["totals"] for run in runs), strict=True)
    median = lambda totals, name: statistics.median(total[name] for total in totals)
    return [{"what": totals[0]["what"]} | {name: median(totals, name) for name in ("predicted", "measured")} for totals in same]


def table(rows: list[list[str]]) -> str:
    header, *others = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([header, "|" + "---|" * len(rows[0]), *others])


def verdict(kept: bool) -> str:
    return "PASS" if kept else "**MISS**"


def constants(columns: list[dict]) -> str:
    """Returns the table of the constants: medians and ranges of the small and of the large fleet."""

    def row(name: str, of) -> list[str]:
        return [name, *(of(column["repetitions"]) for column in columns)]

    rows = [["", *(kind(column)[1] for column in columns)]]
    devices = [[f"{one[0][fleet]['devices']:,}" for fleet in ("small", "large")] for one in (column["repetitions"] for column in columns)]
    rows.append(["devices", *(" / ".join(one) for one in devices)])
    for name, of in CONSTANTS:
        both = lambda runs, of=of: [spread([of(run[fleet]) for run in runs]) for fleet in ("small", "large")]
        rows.append(row(name, lambda runs, both=both: "-" if both(runs) == ["-", "-"] else " / ".join(both(runs))))
    most = lambda runs: max(statistics.median(ours_us(run[fleet]) for run in runs) for fleet in ("small", "large"))
    kept = lambda runs: "no limit" if runs[0]["per_request"] == 1 else verdict(most(runs) <= BAR_US)
    limit = lambda runs: f"{most(runs):.1f}: {kept(runs)}"
    rows.append(row(f"the larger of the two medians, at most {BAR_US} us with several bundles a request", limit))
    worst = lambda runs: max(median_totals(runs), key=deviation)
    differs = lambda total: f"{100 * deviation(total):.0f} % ({total['what'].split(',')[0]}): {verdict(deviation(total) <= DEVIATION)}"
    rows.append(row(f"largest deviation from the prediction, at most {100 * DEVIATION:.0f} %", lambda runs: differs(worst(runs))))
    rows.append(row("repetitions", lambda runs: str(len(runs))))
    rows.append(["date", *(column["execution"]["date"] for column in columns)])
    commands = "\n".join(f"- {kind(column)[1]}: `{column['execution']['command']}`" for column in columns)
    machines = " and ".join(sorted({run["machine"] for column in columns for run in column["repetitions"]}))
    return f"{table(rows)}\n\nThe machine: {machines}. The commands:\n\n{commands}"


def totals(columns: list[dict]) -> str:
    """Returns the table of predicted and measured totals: medians of the repetitions."""
    rows = [["total of the run", "predicted", "measured", "deviation"]]
    for one in median_totals(columns[0]["repetitions"]):
        percent = f"{100 * (one['measured'] / one['predicted'] - 1):+.0f} %"
        rows.append([one["what"], number(one["predicted"]), number(one["measured"]), f"{percent}: {verdict(deviation(one) <= DEVIATION)}"])
    return table(rows)


def sizes(columns: list[dict]) -> str:
    """Returns the table of fleets, with the largest value of each constant in the columns with Cassandra and several
    bundles a request."""
    all_costs = [
        run[fleet] for column in columns if kind(column)[0] in (0, 1, 3) for run in column["repetitions"] for fleet in ("small", "large")
    ]
    most = lambda of: max(value for value in map(of, all_costs) if value is not None)
    intake, stream, worker = (most(of) / 1e6 for of in (lambda one: one["intake_us"], stream_us, lambda one: one["worker_us"]))
    leader = max((value for value in map(leader_us, all_costs) if value is not None), default=stream * 1e6) / 1e6
    cassandra, disk = most(lambda one: one["cassandra_us"]) / 1e6, most(lambda one: one["disk_bytes"])
    readings = all_costs[0]["readings"]
    header = ["devices", "bundles per second", "readings per second", "intakes, cores", "leading NATS server, cores", "each other NATS server, cores"]
    rows = [[*header, "workers, cores", "Cassandra, cores", "Cassandra, disk for a year", "nodes of Cassandra"]]
    for devices in (10_000, 100_000, 1_000_000):
        bundles = devices / SEAL_S
        cores = bundles * cassandra * REPLICAS
        bytes_ = bundles * readings * disk * REPLICAS * YEAR_S * 2
        nodes = max(math.ceil(cores / (NODE_CORES * 0.5)), math.ceil(bytes_ / NODE_BYTES), REPLICAS)
        each = [f"{bundles * one:.5f}" for one in (intake, leader, stream, worker)]
        rows.append([f"{devices:,}", f"{bundles:,.1f}", f"{bundles * readings:,.0f}", *each, f"{cores:.2f}", f"{bytes_ / 1e12:.1f} TB", str(nodes)])
    return table(rows)


def rewritten(page: str, columns: list[dict]) -> str:
    """Returns the page with the tables of these results."""
    for name, made in (("constants", constants), ("totals", totals), ("sizes", sizes)):
        pattern = rf"(<!-- costs: {name} -->\n).*?(<!-- costs: end -->)"
        text = made(columns)
        page, count = re.subn(pattern, lambda found, text=text: f"{found[1]}\n{text}\n\n{found[2]}", page, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"{PAGE} must have one part `<!-- costs: {name} -->` with an end")
    return page


def main(arguments: list[str]) -> int:
    is_check = "--check" in arguments
    root = pathlib.Path(next((one for one in arguments if not one.startswith("-")), pathlib.Path(__file__).resolve().parent.parent))
    columns = sorted((json.loads(file.read_text(encoding="utf-8")) for file in root.glob(FILES)), key=kind)
    if not columns or kind(columns[0])[0] != 0:
        print(f"{FILES}: there are no results of bundles of several devices")
        return 1
    page = (root / PAGE).read_text(encoding="utf-8")
    new = rewritten(page, columns)
    if is_check:
        if new != page:
            print(f"{PAGE} does not have the tables of {FILES}; run tools/costs.py")
        return int(new != page)
    (root / PAGE).write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
