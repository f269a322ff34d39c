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
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType

from headrace.clock import SystemClock
from headrace.config import Settings
from headrace.containers.child_process import UNHURRIED
from headrace.containers.launch_claims import WorkerLaunch
from headrace.model.ids import RandomIds
from headrace.plugins.catalog import catalog
from headrace.spark.jar_cache import JarCache
from headrace.worker.client import LeaderClient
from headrace.worker.jars import WorkerJars
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
    allow_jars: Sequence[str] = (),
) -> None:
    """Work until SIGTERM or SIGINT: the first one stops cleanly, the second one at once.

    A worker whose JVM has another version of a jar than a task needs starts a new JVM once it is
    idle. It leaves for that, and comes back as another worker, so that nothing of what it was given
    or gave back holds for the new JVM.
    """
    catalog()  # now, and not in the midst of a later installation
    shift = _Shift(
        coordinators=coordinators,
        group=group,
        slots=slots,
        spark_master=spark_master,
        conf=conf,
        token=token,
        settings=settings,
        warehouse=warehouse,
        launch=launch,
        allow_jars=allow_jars,
    )
    again = False
    while shift.serve(again=again):
        log.info("worker starts a new JVM", extra={"group": group})
        again = True


class _Departure:
    """When a signal asked the worker to end, and how much time is left to stop Spark."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._since_s: float | None = None  # when a signal came that is in a hurry
        self.asked = False  # a signal came

    def begin_on_signals(self, stop: Callable[[], None]) -> None:
        """Stop cleanly on the first signal; the second one has its default action, and kills.

        One that came while a new JVM was started counts."""
        if self.asked:
            stop()
            return

        def first(number: int, _: FrameType | None) -> None:
            signal.signal(number, signal.SIG_DFL)
            self.asked = True
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shift:
    """What a worker serves with, from the start of a JVM to its end."""

    coordinators: Sequence[str]
    group: str
    slots: int
    spark_master: str
    conf: Mapping[str, str]
    token: str | None
    settings: Settings
    warehouse: str
    launch: WorkerLaunch | None
    allow_jars: Sequence[str]  # patterns of those that jobs may ask for
    departure: _Departure = field(default_factory=_Departure)

    def serve(self, *, again: bool) -> bool:
        """Serve with one JVM; returns whether to go on with another. `again`: it is not the first
        of this process."""
        me = RandomIds().new()
        with (
            scratch(self.settings.home, me) as folder,
            _stopping_at_exit(self._start_spark(folder), self.departure) as spark,
        ):
            if self.launch is not None:
                self.launch.note_application(spark_application=spark.application)
            cache = JarCache(self.settings.cache_dir, ivy_settings=self.settings.ivy_settings)
            jars = WorkerJars(cache, spark.add_jars, allowed=self.allow_jars)
            client, waits = (LeaderClient(self.coordinators, token=self.token) for _ in range(2))
            with closing(client), closing(waits):
                loop = self._sync_loop(me, client, waits, spark, jars, again=again)
                self.departure.begin_on_signals(loop.stop)
                facts = {"worker": me, "group": self.group, "slots": self.slots}
                log.info("worker works", extra=facts)
                with loop.job_log.listening():
                    loop.run()
        return loop.left_when_idle and not self.departure.asked

    def _start_spark(self, folder: Path) -> WarmSpark:
        return start_spark(
            self.settings,
            warehouse=self.warehouse,
            master=self.spark_master,
            conf=self.conf,
            name=f"headrace-{self.group}",
            scratch=folder,
            say=log.info,
        )

    def _sync_loop(
        self,
        me: str,
        client: LeaderClient,
        waits: LeaderClient,
        spark: WarmSpark,
        jars: WorkerJars,
        *,
        again: bool,
    ) -> SyncLoop:
        clock, launch = SystemClock(), self.launch
        runner = Runner(spark, clock, warehouse=self.warehouse, jars=jars)
        tables = TableRunner(partial(task_session, spark), clock, warehouse=self.warehouse)
        heap_mb = memory_mb(self.conf)
        return SyncLoop(
            registration_of(
                me, self.group, self.slots, spark.application, launch, memory_mb=heap_mb
            ),
            client,
            waits,
            lambda posted: Outbox(self.settings.home / "outbox" / me, posted=posted),
            {**runner.runs(), **tables.runs()},
            Spark(
                alive=spark.alive,
                cancel=spark.cancel,
                rows_written=spark.rows_written,
                tasks_finished=spark.tasks_finished,
                died_of=spark.died_of,
            ),
            clock,
            # A worker with a folder has claimed its launch there, for good: no other can have been
            # it, apart from itself, with the JVM before.
            may_replace_earlier_process=again or launch is None or launch.folder is None,
            leaves_when_idle=lambda: jars.wants_new_jvm,
        )


@contextmanager
def _stopping_at_exit(spark: WarmSpark, departure: _Departure) -> Generator[WarmSpark]:
    try:
        yield spark
    finally:
        spark.stop(within_s=departure.left_s)
