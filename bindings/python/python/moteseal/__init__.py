"""Moteseal for Python: sealed sensor readings, fetched from an untrusted cloud and verified.

The client verifies that all rows are authentic (signed by their devices), complete (no seal of the
requested range is missing, or the report states where the data ends) and not chosen by the cloud.
If a check fails, the method returns no rows and raises an exception that names the check.

    import moteseal

    client = moteseal.Client("http://127.0.0.1:8080", roster="roster.cbor", operator="keys/op.pub.pem")
    answer = client.get(["dev1", "dev2"], since="2026-01-01", rate="1/8")
    frame = polars.DataFrame(answer)                                    # or pyarrow.table(answer), or answer.to_pandas()
    mean = client.estimate("temperature", rate="1/8").mean()            # mean.value, between mean.low and mean.high
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
    merge,
    redact,
    verify_bundles,
    verify_proof,
)
from moteseal.errors import *  # noqa: F403


@dataclass(frozen=True)
class Verified:
    """The result of `verify`."""

    answer: Answer | None
    """The verified rows and the report of a proof; None for bundles."""
    bundles: list[BundleReport]
    """For bundles: a report for each device. Empty for a proof."""


def verify(
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    roster: Roster | str | os.PathLike[str],
    operator: str | os.PathLike[str] | None = None,
    *,
    pinned_seals: bool | str | os.PathLike[str] = True,
    grants: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
    identity: str | os.PathLike[str] | None = None,
    passphrase: str | None = None,
    stream_secrets: Mapping[str, str | os.PathLike[str]] | None = None,
    accept_sanitised: str | Iterable[str] | None = None,
) -> Verified:
    """Verifies a proof (.mproof) or bundles (.mseal). Needs no network.

    The first bytes of the first file determine whether the files are verified as a proof or as
    bundles. Bundles are verified without keys; for the keys of the encrypted columns of a proof, see
    `Client.get`. For accept_sanitised, see `verify_proof`.
    """
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    if not paths:
        raise ValueError("path: no files; pass at least one")
    if not is_proof(paths[0]):
        if any(given is not None for given in (grants, identity, passphrase, stream_secrets)):
            raise ValueError("grants, stream_secrets: only for a proof; bundles are verified without keys")
        if accept_sanitised is not None:
            raise ValueError("accept_sanitised: only for a proof; bundles have no sanitised columns")
        return Verified(None, verify_bundles(paths, roster, operator))
    if len(paths) > 1:
        raise ValueError(f"path: {os.fspath(paths[0])} is a proof; verify each proof separately")
    answer = verify_proof(
        paths[0],
        roster,
        operator,
        pinned_seals=pinned_seals,
        grants=grants,
        identity=identity,
        passphrase=passphrase,
        stream_secrets=stream_secrets,
        accept_sanitised=accept_sanitised,
    )
    return Verified(answer, [])


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
    "Verified",
    "errors",
    "merge",
    "redact",
    "sums",
    "verify",
    "verify_bundles",
    "verify_proof",
]
__all__ += errors.__all__
