"""Moteseal for Python: what sensors said, fetched from a cloud that nobody trusts, and verified.

Every row that comes out of this package is authentic (that device signed it), complete (nothing of the range is missing, or it says
so) and chosen by nobody; or an exception named after the property that failed comes out instead.

    import moteseal

    client = moteseal.Client("http://127.0.0.1:8080", roster="roster.cbor", operator="keys/op.pub.pem")
    answer = client.get(["dev1", "dev2"], since="2026-01-01", rate="1/8")
    frame = polars.DataFrame(answer)                                    # or pyarrow.table(answer), or answer.to_pandas()
    mean = client.estimate("temperature", rate="1/8").mean()            # mean.value, between mean.low and mean.high
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from moteseal import errors, sums
from moteseal._moteseal import (
    Answer,
    Bin,
    BundleReport,
    Client,
    DeviceReport,
    Estimates,
    Interval,
    Outage,
    Report,
    Roster,
    is_proof,
    verify_bundles,
    verify_proof,
)
from moteseal.errors import *  # noqa: F403


def verify(
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    roster: Roster | str | os.PathLike[str],
    operator: str | os.PathLike[str] | None = None,
    *,
    memory: bool | str | os.PathLike[str] = True,
) -> Answer | list[BundleReport]:
    """Verifies a proof (.mproof), which gives its rows, or bundles (.mseal), which give a report a device. Needs no network.

    What a file is, its first bytes say. A type checker is better served by `verify_proof` and `verify_bundles`.
    """
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    if not paths:
        raise ValueError("path: no file is named")
    if not is_proof(paths[0]):
        return verify_bundles(paths, roster, operator)
    if len(paths) > 1:
        raise ValueError(f"path: {os.fspath(paths[0])} is a proof; verify each proof by itself")
    return verify_proof(paths[0], roster, operator, memory=memory)


__all__ = [
    "Answer",
    "Bin",
    "BundleReport",
    "Client",
    "DeviceReport",
    "Estimates",
    "Interval",
    "Outage",
    "Report",
    "Roster",
    "errors",
    "is_proof",
    "sums",
    "verify",
    "verify_bundles",
    "verify_proof",
]
__all__ += errors.__all__
