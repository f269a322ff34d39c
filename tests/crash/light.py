"""`headrace`, whose workers have no Spark: python -m tests.crash.light COMMAND…

For what only groups and containers decide. A worker boots within a second or two, so that a grace
period can be short; all else of it is real: the process, its command line, its claim, its
registration, its heartbeats. The workers that the kind local starts are of this program, too.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from types import FrameType, ModuleType
from typing import Any
from unittest.mock import patch

from headrace import __version__
from headrace.cli.main import main
from headrace.clock import SystemClock
from headrace.config import Settings
from headrace.containers import local
from headrace.containers.launch_claims import WorkerLaunch
from headrace.containers.local import local_workers
from headrace.model.ids import RandomIds
from headrace.protocol.messages import Register
from headrace.worker.client import LeaderClient
from headrace.worker.jvm_monitor import Spark
from headrace.worker.outbox import Outbox
from headrace.worker.sync_loop import SyncLoop

LIGHT = (sys.executable, "-m", "tests.crash.light")
SERVICE = "headrace.worker.service"  # the module that brings pyspark along
NO_SPARK = "no-spark"
IDLE = Spark(
    alive=lambda: True,
    cancel=lambda _execution: None,
    rows_written=lambda _execution: None,
    tasks_finished=lambda _execution: (0, 0),
)


def serve_worker(
    *,
    coordinators: Sequence[str],
    group: str,
    slots: int,
    token: str | None,
    settings: Settings,
    launch: WorkerLaunch,
    **_of_spark: Any,
) -> None:
    """As the real one, and whatever it is given to run is unknown to it."""
    me = Register(
        worker=RandomIds().new(),
        group=group,
        slots=slots,
        control_slots=1,
        version=__version__,
        host=socket.gethostname(),
        pid=os.getpid(),
        spark_application=NO_SPARK,
        resource=launch.resource,
        launch=launch.number,
        memory_mb=0,
    )
    client, waits = (LeaderClient(coordinators, token=token) for _ in range(2))
    with closing(client), closing(waits):
        outbox = settings.home / "outbox" / me.worker
        loop = SyncLoop(
            me, client, waits, lambda posted: Outbox(outbox, posted=posted), {}, IDLE, SystemClock()
        )

        def stop(_number: int, _frame: FrameType | None) -> None:
            loop.stop()

        signal.signal(signal.SIGTERM, stop)
        loop.run()


def run() -> None:
    service = ModuleType(SERVICE)
    vars(service)["serve_worker"] = serve_worker
    light = partial(local_workers, program=LIGHT)
    with (
        patch.dict(sys.modules, {SERVICE: service}),
        patch.object(local, "local_workers", light),
    ):
        main()


if __name__ == "__main__":
    run()
