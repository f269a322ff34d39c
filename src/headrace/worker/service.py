"""The worker process: it starts the warm session and the sync loop, and gives everything back.

A worker that a container started is one launch of a resource. On the machine of its coordinator it
claims its launch before anything else, and a second process of the same launch ends there.
Elsewhere there is no folder to claim in, and the leader decides.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

from headrace.clock import SystemClock
from headrace.config import Settings
from headrace.containers.child_process import UNHURRIED
from headrace.containers.launch_claims import WorkerLaunch
from headrace.model.ids import RandomIds
from headrace.plugins.catalog import catalog
from headrace.protocol.messages import Register
from headrace.worker.client import LeaderClient
from headrace.worker.jvm_monitor import Spark
from headrace.worker.outbox import Outbox
from headrace.worker.runner import Runner, TableRunner
from headrace.worker.scratch import scratch
from headrace.worker.sync_loop import SyncLoop, memory_mb, registration_of
from headrace.worker.warm_session import WarmSpark, start_spark, task_session

log = logging.getLogger(__name__)

LEAVE_IDLE_MAX_S = 9.0  # from a signal to the end of a worker that runs nothing: 10 s are promised
SPARK_STOP_MIN_S = 3.0  # that Spark gets even if stopping executions took all the time


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
    catalog()  # now, and not in the midst of a later installation
    me, departure = RandomIds().new(), _Departure()
    with (
        scratch(settings.home, me) as folder,
        _stopping_at_exit(
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
            launch.note_application(spark_application=spark.application)
        client, waits = (LeaderClient(coordinators, token=token) for _ in range(2))
        with closing(client), closing(waits):
            about_me = registration_of(
                me, group, slots, spark.application, launch, memory_mb=memory_mb(conf)
            )
            loop = _sync_loop(
                about_me, client, waits, spark, launch, home=settings.home, warehouse=warehouse
            )
            departure.begin_on_signals(loop.stop)
            log.info("worker works", extra={"worker": me, "group": group, "slots": slots})
            with loop.job_log.listening():
                loop.run()


class _Departure:
    """When a signal asked the worker to end, and how much time is left to stop Spark."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._since_s: float | None = None  # when a signal came that is in a hurry

    def begin_on_signals(self, stop: Callable[[], None]) -> None:
        """Stop cleanly on the first signal; the second one has its default action, and kills."""

        def first(number: int, _: FrameType | None) -> None:
            signal.signal(number, signal.SIG_DFL)
            if number != UNHURRIED:
                self._since_s = self._clock.monotonic_s()
            stop()

        for number in (signal.SIGTERM, signal.SIGINT, UNHURRIED):
            signal.signal(number, first)

    @property
    def left_s(self) -> float | None:
        """None when it may take as long as it needs."""
        if self._since_s is None:
            return None
        gone_s = self._clock.monotonic_s() - self._since_s
        return max(SPARK_STOP_MIN_S, LEAVE_IDLE_MAX_S - gone_s)


@contextmanager
def _stopping_at_exit(spark: WarmSpark, departure: _Departure) -> Generator[WarmSpark]:
    try:
        yield spark
    finally:
        spark.stop(within_s=departure.left_s)


def _sync_loop(
    me: Register,
    client: LeaderClient,
    waits: LeaderClient,
    spark: WarmSpark,
    launch: WorkerLaunch | None,
    *,
    home: Path,
    warehouse: str,
) -> SyncLoop:
    clock = SystemClock()
    runner = Runner(spark, clock, warehouse=warehouse)
    tables = TableRunner(partial(task_session, spark), clock, warehouse=warehouse)
    return SyncLoop(
        me,
        client,
        waits,
        lambda posted: Outbox(home / "outbox" / me.worker, posted=posted),
        {**runner.runs(), **tables.runs()},
        Spark(
            alive=spark.alive,
            cancel=spark.cancel,
            rows_written=spark.rows_written,
            tasks_finished=spark.tasks_finished,
            died_of=spark.died_of,
        ),
        clock,
        # A worker with a folder has claimed its launch there, for good: no other can have been it.
        may_replace_earlier_process=launch is None or launch.folder is None,
    )
