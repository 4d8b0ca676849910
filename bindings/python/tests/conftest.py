"""Provides one home and one honest cloud to all tests. The processes that are started here end
after the tests, even if a test fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import moteseal

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from home import Home  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keeps the files of pinned seals out of the user's state directory."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def cloud(home: Home) -> Iterator[str]:
    with home.cloud() as url:
        yield url


@pytest.fixture
def client(cloud: str, home: Home) -> moteseal.Client:
    return moteseal.Client(cloud, roster=home.roster, operator=home.operator, pinned_seals=False)
