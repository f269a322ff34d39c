"""A task is one piece of work for a worker: a pipeline, or a control task beside it.

Each claim of a task raises its attempt. The pair (task, attempt) is the claim, and it is also
the execution id: a report carries it, and a report of an older attempt changes nothing (C1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class TaskStatus(StrEnum):
    PLANNED = "PLANNED"  # waits for a worker
    SCHEDULED = "SCHEDULED"  # given to a worker, which has not said yet that it holds it
    ACKED = "ACKED"  # its worker holds it
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


class Lane(StrEnum):
    SLOT = "SLOT"  # pipelines and table rewrites
    CONTROL = "CONTROL"  # short work that streaming jobs must not starve


class TaskKind(StrEnum):
    PIPELINE = "PIPELINE"  # run the epochs of one pipeline
    SETTLE = "SETTLE"  # finish or abort the open epoch of a pipeline that has ended (E6)
    FORGET = "FORGET"  # delete what a job left at its targets: stages, then marks (C2, E6)
    DISCOVER = "DISCOVER"  # list the tables of a catalog
    EVALUATE = "EVALUATE"  # look which of some tables need optimizing, and why
    PLAN = "PLAN"  # choose the files that a process of a table rewrites
    REWRITE = "REWRITE"  # rewrite some bins of a process; nothing is committed
    COMMIT = "COMMIT"  # replace the files of a process, or find that somebody has (E3)
    DISCARD = "DISCARD"  # spend the token of a process with nothing, then delete what it staged
    NOOP = "NOOP"  # nothing at all: what the protocol itself costs is measured with it


class FailureCause(StrEnum):
    """Why an attempt ended without success. Whoever decides that it did writes it down."""

    ERROR = "ERROR"  # its worker said what failed, or it was given up while its worker lived
    UNTOLD = "UNTOLD"  # its worker lives, no longer has it, and did not say how it ended
    LOST = "LOST"  # its worker fell silent, or the worker's JVM ended
    OUT_OF_MEMORY = "OUT_OF_MEMORY"  # Java's memory was not enough: OutOfMemoryError
    STORE_OLDER = "STORE_OLDER"  # a target holds what the store knows nothing of (E7)
    KILLED = "KILLED"  # the JVM was ended by SIGKILL, as the kernel does when memory runs out


S = TaskStatus
LOSSES = frozenset({FailureCause.LOST, FailureCause.OUT_OF_MEMORY, FailureCause.KILLED})
UNEXPLAINED = LOSSES | {FailureCause.UNTOLD}  # nobody was left who could say what was to blame
# What became of a worker's JVM, for people, if more is known than that it is gone.
JVM_ENDS: Mapping[FailureCause, str] = {
    FailureCause.OUT_OF_MEMORY: "ran out of memory (java.lang.OutOfMemoryError)",
    FailureCause.KILLED: "was killed by SIGKILL, as the kernel does when memory runs out",
}
JVM_GONE = "has died, or its application was ended"
POISON_WORKERS = 3  # an epoch that was running on so many as each was lost is not tried again
ASSIGNED = frozenset({S.SCHEDULED, S.ACKED})
ENDED = frozenset({S.SUCCESS, S.FAILED, S.CANCELED})
OF_JOBS = frozenset({TaskKind.PIPELINE, TaskKind.SETTLE, TaskKind.FORGET})
OF_TABLES = frozenset(
    {
        *(TaskKind.DISCOVER, TaskKind.EVALUATE, TaskKind.PLAN),
        *(TaskKind.REWRITE, TaskKind.COMMIT, TaskKind.DISCARD),
    }
)

TRANSITIONS: Mapping[TaskStatus, frozenset[TaskStatus]] = {
    S.PLANNED: frozenset({S.SCHEDULED, S.CANCELED}),
    S.SCHEDULED: frozenset({S.ACKED, S.PLANNED}) | ENDED,
    S.ACKED: frozenset({S.PLANNED}) | ENDED,
    S.SUCCESS: frozenset(),
    S.FAILED: frozenset(),
    S.CANCELED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Location:
    """What is deployed: a task group of a pipeline of a job. Executions of it come one by one."""

    job: str
    pipeline: int
    task_group: int = 1  # a pipeline has one, today


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """Proof that a worker holds this attempt of a task."""

    task: str
    attempt: int

    @property
    def execution(self) -> str:
        return f"{self.task}.{self.attempt}"
