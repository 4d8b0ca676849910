"""Work is done without Python's lock: other threads go on, and Ctrl-C ends it."""

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
    """Somebody who takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C interrupts, also where whoever started the tests had it ignored, as `nohup` in the background does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_other_threads_go_on_while_an_answer_is_waited_for(silent: str, home: Home) -> None:
    client = moteseal.Client(silent, roster=home.roster, operator=home.operator, pinned_seals=False)
    beats = 0
    heard = threading.Event()

    def beat() -> None:
        nonlocal beats
        while beats < 1000:
            beats += 1
        # Only a free lock lets it get here, for the other thread waits for ever.
        heard.set()
        signal.raise_signal(signal.SIGINT)

    thread = threading.Timer(0.3, beat)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        client.get(rate=1)
    thread.join()
    assert heard.is_set()


def test_ctrl_c_ends_a_long_get(silent: str, home: Home) -> None:
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
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (said, process.returncode) == ("stopped\n", 0)


def test_threads_may_share_a_client(client: moteseal.Client) -> None:
    expected = pyarrow.table(client.get(rate="1/4"))
    with ThreadPoolExecutor(8) as threads:
        for answer in threads.map(lambda _: client.get(rate="1/4"), range(24)):
            assert pyarrow.table(answer).equals(expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_client_from_before_a_fork_says_so_instead_of_hanging(client: moteseal.Client) -> None:
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
