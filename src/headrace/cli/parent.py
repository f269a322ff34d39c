"""End with the process that started us, however it ended.

The parent holds the other end of our standard input and never writes to it. When the parent is
gone, also by SIGKILL, the kernel closes that end and a read returns. We then stop as on SIGTERM;
what has not stopped after a while is killed with its group (a worker's JVM is in it).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

STOP_GRACE_S = 30.0  # a worker that runs something takes up to 20 s
READ_BYTES = 1024
STDIN = 0


def end_with_parent(*, grace_s: float = STOP_GRACE_S) -> None:
    thread = threading.Thread(
        target=watch,
        name="parent watch",
        daemon=True,
        kwargs={"descriptor": STDIN, "grace_s": grace_s, "send": _send},
    )
    thread.start()


def watch(*, descriptor: int, grace_s: float, send: Callable[[signal.Signals], None]) -> None:
    """Wait for the end of the file, then send SIGTERM, and after `grace_s` SIGKILL."""
    while os.read(descriptor, READ_BYTES):  # ends with the parent: that is its limit
        pass
    send(signal.SIGTERM)
    threading.Event().wait(grace_s)
    send(signal.SIGKILL)


def _send(number: signal.Signals) -> None:
    """SIGTERM is for us to act on; SIGKILL goes to all of our group, when it is ours."""
    if number is signal.SIGKILL and os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), number)
    else:
        os.kill(os.getpid(), number)
