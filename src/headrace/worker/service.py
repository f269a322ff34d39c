"""A worker process: the warm session, the host, and a stop that gives everything back."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from headrace.clock import SystemClock
from headrace.model.ids import RandomIds
from headrace.model.task import TaskKind
from headrace.worker.client import LeaderClient
from headrace.worker.host import Host, Identity, Spark
from headrace.worker.outbox import Outbox
from headrace.worker.runner import Runner
from headrace.worker.spark import warm_spark

log = logging.getLogger(__name__)

CONTROL_SLOTS = 2  # the lane beside the slots, for short control tasks


def serve_worker(
    *,
    coordinators: Sequence[str],
    group: str,
    slots: int,
    spark_master: str,
    conf: Mapping[str, str],
    token: str | None,
    home: Path,
    warehouse: str,
) -> None:
    """Work until SIGTERM or SIGINT: the first one stops cleanly, the second one at once."""
    ids, clock = RandomIds(), SystemClock()
    worker = ids.new()
    with warm_spark(master=spark_master, conf=conf, warehouse=warehouse, slots=slots) as spark:
        runner = Runner(spark, clock, warehouse=warehouse)
        client, waits = (LeaderClient(coordinators, token=token) for _ in range(2))
        host = Host(
            Identity(
                worker=worker,
                group=group,
                slots=slots,
                control_slots=CONTROL_SLOTS,
                host=socket.gethostname(),
                pid=os.getpid(),
                spark_application=spark.application,
            ),
            client,
            waits,
            lambda posted: Outbox(home / "outbox" / worker, posted=posted),
            {
                TaskKind.PIPELINE: runner.pipeline,
                TaskKind.SETTLE: runner.settle,
                TaskKind.NOOP: runner.noop,
            },
            Spark(cancel=spark.cancel, rows_written=spark.rows_written, thread=spark.thread),
            clock,
        )
        _stop_on_signals(host.stop)
        log.info("worker works", extra={"worker": worker, "group": group, "slots": slots})
        host.run()
        client.close()
        waits.close()


def _stop_on_signals(stop: Callable[[], None]) -> None:
    """The second signal finds the default action: the process ends at once."""

    def first(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, first)
