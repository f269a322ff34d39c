"""What all parts of a coordinator share: its settings, its metrics, and the reconcile loop's step.

Settings are what a coordinator was given at its start. Metrics are counted for Prometheus, in one
registry per coordinator, none of them global. `run_once` drives one kind of object towards what was
asked for, one object at a time: a `Reconciler` says how.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from sqlalchemy import Connection, Engine

from headrace.containers.container import WorkerContainer
from headrace.errors import Fenced, Unavailable
from headrace.model.groups import AutoRestart, KeepSetting
from headrace.model.jobs.epoch import Retention
from headrace.model.jobs.status import ScheduleStrategy
from headrace.model.tables.schedule import BASE_INTERVAL_MS, DISCOVER_INTERVAL_MS, SchedulingPolicy
from headrace.store.core.engine import reading
from headrace.store.core.keyring import KeySource
from headrace.store.core.transactions import Term, fenced

log = logging.getLogger(__name__)

STALL_TIMEOUT_S = 600.0  # `execution.stall-timeout`, unless it is set
EXECUTE_TIMEOUT_S = 3600.0  # `optimizer.task-execute-timeout`: for tasks of tables
ACK_TIMEOUT_S = 30.0  # `optimizer.task-ack-timeout`
BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """How often lake tables are evaluated, and how they share the slots of their group."""

    policy: SchedulingPolicy = SchedulingPolicy.QUOTA
    break_quota: bool = True  # a table may exceed its quota by slots that no other table can use
    refresh_ms: int = BASE_INTERVAL_MS  # between two evaluations of a table
    discover_ms: int = DISCOVER_INTERVAL_MS  # between two discoveries of a catalog's tables


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """How groups get their workers: restarts, floors, and the containers that start them."""

    auto_restart: AutoRestart = field(default_factory=AutoRestart)
    keep: KeepSetting = field(default_factory=KeepSetting)
    containers: Mapping[str, WorkerContainer] = field(default_factory=dict[str, WorkerContainer])
    coordinators: tuple[str, ...] = ()  # their addresses, for the workers that we start


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """All settings of one coordinator; its three parts have defaults of their own."""

    store_url: str
    address: str  # where others reach this coordinator
    ttl_s: float = 3.0
    heartbeat_timeout_s: float = 60.0
    stall_timeout_s: float = STALL_TIMEOUT_S
    ack_timeout_s: float = ACK_TIMEOUT_S
    execute_timeout_s: float = EXECUTE_TIMEOUT_S
    retention: Retention = field(default_factory=Retention)
    schedule: ScheduleStrategy = ScheduleStrategy.WAIT
    tables: TableOptions = field(default_factory=TableOptions)
    groups: GroupOptions = field(default_factory=GroupOptions)
    secret_keys: KeySource | None = None  # of the store's secrets; None: beside the store


class Metrics:
    """The coordinator's Prometheus metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.leading = Gauge(
            "headrace_leading", "1 while this coordinator leads", registry=self.registry
        )
        self.term = Gauge(
            "headrace_term",
            "The leader's term as this coordinator last saw it",
            registry=self.registry,
        )
        self.sync_batch = Histogram(
            "headrace_sync_batch",
            "Syncs answered in one transaction",
            buckets=BATCH_BUCKETS,
            registry=self.registry,
        )
        self.sync_seconds = Histogram(
            "headrace_sync_transaction_seconds",
            "Time of one such transaction",
            registry=self.registry,
        )
        self.redeploys = Counter(
            "headrace_redeploys",
            "Assignments said again, because their worker had not seen the first answer",
            registry=self.registry,
        )
        self.executions_stuck = Counter(
            "headrace_executions_stuck",
            "Executions given up because they stood still, or did not complete a commit in time",
            registry=self.registry,
        )
        self.reconcile_failures = Counter(
            "headrace_reconcile_failures",
            "Objects whose reconciling raised",
            registry=self.registry,
        )
        self.jobs_unmarked = Counter(
            "headrace_jobs_unmarked",
            "Jobs that the slow sweep found due, although whoever changed them had not marked them",
            registry=self.registry,
        )
        self._count_launches()
        self._count_connections()

    def _count_connections(self) -> None:
        self.connections = Gauge(
            "headrace_connections", "Connections that are open", registry=self.registry
        )
        self.connections_refused = Counter(
            "headrace_connections_refused",
            "Connections closed because there were too many",
            registry=self.registry,
        )
        self.slow_clients = Counter(
            "headrace_slow_clients",
            "Connections closed because a request, or the taking of an answer, took too long",
            registry=self.registry,
        )

    def _count_launches(self) -> None:
        self.restarts = Counter(
            "headrace_resource_restarts",
            "Resources that were started again, because they had no worker any more",
            registry=self.registry,
        )
        self.launch_failures = Counter(
            "headrace_launch_failures",
            "Starts of resources that their container refused, or could not do",
            registry=self.registry,
        )
        self.given_up = Counter(
            "headrace_resources_given_up",
            "Resources whose record went, since no restart brought a worker",
            registry=self.registry,
        )


class Reconciler(Protocol):
    """Brings objects of one kind closer to what is wanted of them; level-based, not edge-based."""

    name: str

    def due(self, conn: Connection, key: str) -> bool:
        """Whether `reconcile` would change anything; only reads, so idle objects cost no write."""
        ...

    def reconcile(self, conn: Connection, key: str) -> None:
        """Read all there is about `key`, then write what brings it one step closer.

        It does not know why it was called, and it is idempotent.
        """
        ...


@dataclass(slots=True)
class Pass:
    """The keys that one pass reconciled, and those whose reconciling raised."""

    done: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])


def run_once(
    engine: Engine,
    term: Term,
    reconciler: Reconciler,
    keys: Iterable[str],
    *,
    sure: bool = False,
    note_failure: Callable[[str], float] | None = None,
) -> Pass:
    """Reconcile each object that is due, in its own fenced transaction. `sure`: all of them are.

    An object whose reconciling raises is logged and stops no other one (T6). `note_failure` says
    after how many seconds it is tried next; without it, that is with the next pass.
    """
    outcome = Pass()
    for key in keys:
        try:
            if sure or _is_due(engine, reconciler, key):
                with fenced(engine, term) as conn:
                    reconciler.reconcile(conn, key)
                outcome.done.append(key)
        except (Fenced, Unavailable):
            raise  # no key is to blame, and the next pass reads them all again
        except Exception:
            facts: dict[str, object] = {"reconciler": reconciler.name, "key": key}
            if note_failure is not None:
                facts["next_try_in_s"] = note_failure(key)
            log.exception("reconcile failed", extra=facts)
            outcome.failed.append(key)
    return outcome


def _is_due(engine: Engine, reconciler: Reconciler, key: str) -> bool:
    with reading(engine) as conn:
        return reconciler.due(conn, key)
