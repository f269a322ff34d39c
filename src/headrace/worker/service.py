"""A worker process: the warm session, the host, and a stop that gives everything back."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType

from headrace.clock import SystemClock
from headrace.config import Settings
from headrace.containers.local import UNHURRIED
from headrace.model.ids import RandomIds
from headrace.model.task import TaskKind
from headrace.worker.client import LeaderClient
from headrace.worker.host import Host
from headrace.worker.identity import Identity, memory_mb
from headrace.worker.launch import WorkerLaunch
from headrace.worker.outbox import Outbox
from headrace.worker.runner import Runner
from headrace.worker.scratch import scratch
from headrace.worker.spark import WarmSpark, start_spark
from headrace.worker.tables.runner import TableRunner
from headrace.worker.tending import Spark

log = logging.getLogger(__name__)

CONTROL_SLOTS = 2  # the lane beside the slots, for short control tasks
LEAVE_IDLE_MAX_S = 9.0  # from a signal to the end of a worker that runs nothing: 10 s are promised
SPARK_STOP_MIN_S = 3.0  # that Spark gets in any case, of a worker that had to stop executions


def serve_worker(
    *,
    coordinators: Sequence[str],
    group: str,
    slots: int,
    spark_master: str,
    conf: Mapping[str, str],
    token: str | None,
    settings: Settings,
    warehouse: str,
    launch: WorkerLaunch | None = None,
) -> None:
    """Work until SIGTERM or SIGINT: the first one stops cleanly, the second one at once."""
    me, departure = RandomIds().new(), _Departure()
    with (
        scratch(settings.home, me) as folder,
        _ending(
            start_spark(
                settings,
                warehouse=warehouse,
                master=spark_master,
                conf=conf,
                name=f"headrace-{group}",
                scratch=folder,
                say=log.info,
            ),
            departure,
        ) as spark,
    ):
        if launch is not None:
            launch.found(spark_application=spark.application)
        client, waits = (LeaderClient(coordinators, token=token) for _ in range(2))
        with closing(client), closing(waits):
            identity = _identity(me, group, slots, spark, launch, memory_mb(conf))
            home = settings.home
            host = _host(identity, client, waits, spark, launch, home=home, warehouse=warehouse)
            departure.begin_on_signals(host.stop)
            log.info("worker works", extra={"worker": me, "group": group, "slots": slots})
            with host.lines.listening():
                host.run()


class _Departure:
    """When the worker was told to end, and how much time that leaves to Spark."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._since_s: float | None = None  # a signal that is in a hurry came then

    def begin_on_signals(self, stop: Callable[[], None]) -> None:
        """The second signal finds the default action: the process ends at once."""

        def first(number: int, _: FrameType | None) -> None:
            signal.signal(number, signal.SIG_DFL)
            if number != UNHURRIED:
                self._since_s = self._clock.monotonic_s()
            stop()

        for number in (signal.SIGTERM, signal.SIGINT, UNHURRIED):
            signal.signal(number, first)

    @property
    def left_s(self) -> float | None:
        """None: as long as it takes."""
        if self._since_s is None:
            return None
        gone_s = self._clock.monotonic_s() - self._since_s
        return max(SPARK_STOP_MIN_S, LEAVE_IDLE_MAX_S - gone_s)


@contextmanager
def _ending(spark: WarmSpark, departure: _Departure) -> Generator[WarmSpark]:
    try:
        yield spark
    finally:
        spark.stop(within_s=departure.left_s)


def _identity(
    me: str,
    group: str,
    slots: int,
    spark: WarmSpark,
    launch: WorkerLaunch | None,
    memory: int,
) -> Identity:
    return Identity(
        worker=me,
        group=group,
        slots=slots,
        control_slots=CONTROL_SLOTS,
        host=socket.gethostname(),
        pid=os.getpid(),
        spark_application=spark.application,
        resource=launch.resource if launch else None,
        launch=launch.number if launch else 0,
        memory_mb=memory,
    )


def _host(
    identity: Identity,
    client: LeaderClient,
    waits: LeaderClient,
    spark: WarmSpark,
    launch: WorkerLaunch | None,
    *,
    home: Path,
    warehouse: str,
) -> Host:
    clock = SystemClock()
    runner = Runner(spark, clock, warehouse=warehouse)
    tables = TableRunner(spark, clock, warehouse=warehouse)
    return Host(
        identity,
        client,
        waits,
        lambda posted: Outbox(home / "outbox" / identity.worker, posted=posted),
        {
            TaskKind.PIPELINE: runner.pipeline,
            TaskKind.SETTLE: runner.settle,
            TaskKind.FORGET: runner.forget,
            TaskKind.NOOP: runner.noop,
            TaskKind.DISCOVER: tables.discover,
            TaskKind.EVALUATE: tables.evaluate,
            TaskKind.PLAN: tables.plan,
            TaskKind.REWRITE: tables.rewrite,
            TaskKind.COMMIT: tables.commit,
            TaskKind.DISCARD: tables.discard,
        },
        Spark(
            alive=spark.alive,
            cancel=spark.cancel,
            rows_written=spark.rows_written,
            tasks_finished=spark.tasks_finished,
            died_of=spark.died_of,
        ),
        clock,
        # One with a folder has claimed its launch there, once and for all.
        comes_anew=launch is None or launch.folder is None,
    )
