from __future__ import annotations

import os
import signal
import subprocess
import sys

from headrace.cli.exits import interrupts

TWICE = """
import os, signal, sys
from headrace.cli.exits import interrupts
with interrupts(lambda: print("at once", flush=True)) as wanted:
    os.kill(os.getpid(), signal.SIGINT)
    print("first", wanted.wait(0), flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    print("never reached", flush=True)
"""


def test_the_first_signal_is_seen_by_whoever_waits() -> None:
    with interrupts(lambda: None) as wanted:
        assert not wanted.wait(0)
        os.kill(os.getpid(), signal.SIGTERM)

        assert wanted.wait(240)
        assert wanted.exit_code == 128 + signal.SIGTERM


def test_the_second_signal_ends_everything_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TWICE], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.splitlines() == ["first True", "at once"]
    assert done.returncode == 130


def test_handlers_are_given_back_at_the_end() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interrupts(lambda: None):
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
