"""A home whose devices encrypt columns, with an owner who has their secrets."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from home import Home, run


class OwnedHome(Home):
    """A home whose owner has the secrets of both devices. The devices seal the columns `specs`."""

    def __init__(self, folder: Path, specs: list[str]) -> None:
        self.specs = specs
        super().__init__(folder)

    def seal(self, name: str, scheme: str, specs: Iterable[str], *more: str | Path) -> None:
        owner = self.folder / "alice.owner"
        if not owner.exists():
            run("owner", "new", "--group", "home", "--name", "alice", "--out", self.folder / "alice")
            listed = f"alice={self.folder / 'alice.pub.pem'}"
            run("roster", "set", "--roster", self.roster, "--operator", self.folder / "op.key.pem", "--owner", listed)
        columns = [part for spec in self.specs for part in ("--column", spec)]
        device: list[str | Path] = ["--device", name, *columns, "--keys", self.folder]
        run("owner", "add", "--owner", owner, *device, *self.trust_options)
        super().seal(name, scheme, self.specs, "--stream-secret", self.folder / f"{name}.stream.key", *more)
