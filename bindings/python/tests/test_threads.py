"""Checks that work runs without Python's lock: other threads continue, and Ctrl-C stops the
work."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow
import pytest
from home import Home

import moteseal


@pytest.fixture
def silent() -> Iterator[str]:
    """Runs a server that accepts connections and never responds, and yields its address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Makes SIGINT raise KeyboardInterrupt, even if the process that started the tests ignored
    SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_other_threads_continue_during_a_request(silent: str, home: Home) -> None:
    client = moteseal.Client(silent, roster=home.roster, operator=home.operator, pinned_seals=False)
    beats = 0
    has_run = threading.Event()

    def beat() -> None:
        nonlocal beats
        while beats < 1000:
            beats += 1
        # The other thread waits forever. This line is reached only if that thread has released
        # Python's lock.
        has_run.set()
        signal.raise_signal(signal.SIGINT)

    thread = threading.Timer(0.3, beat)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        client.get(rate=1)
    thread.join()
    assert has_run.is_set()


def test_ctrl_c_stops_a_long_get(silent: str, home: Home) -> None:
    program = f"""
        import moteseal, signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        client = moteseal.Client({silent!r}, roster={str(home.roster)!r}, operator={str(home.operator)!r}, pinned_seals=False)
        print("asking", flush=True)
        try:
            client.get(rate=1)
        except KeyboardInterrupt:
            print("stopped", flush=True)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "asking\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (output, process.returncode) == ("stopped\n", 0)


def test_threads_may_share_a_client(client: moteseal.Client) -> None:
    expected = pyarrow.table(client.get(rate="1/4"))
    with ThreadPoolExecutor(8) as threads:
        for answer in threads.map(lambda _: client.get(rate="1/4"), range(24)):
            assert pyarrow.table(answer).equals(expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_client_from_before_a_fork_raises_instead_of_hanging(client: moteseal.Client) -> None:
    client.get(rate="1/8")
    child = os.fork()
    if child == 0:
        try:
            client.get(rate="1/8")
        except RuntimeError as error:
            os._exit(7 if "fork" in str(error) else 8)
        except BaseException:
            os._exit(9)
        os._exit(10)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
