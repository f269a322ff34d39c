"""Tasks: one piece of work for a worker, its state machine, and the claim that fences reports.

A task is a pipeline, a table rewrite, or a control task beside them. Each time a task is claimed,
its attempt number rises. The pair (task, attempt) is the claim, and it is also the execution id:
every report carries it, and a report of an older attempt changes nothing (C1).

An order is what a task was planned with, and is judged by; it is stored with the task, and read by
coordinators only. Those of tables are in protocol/task_types.py. What a worker is told is the
payload of its assignment, which is built from the store at the moment it is sent. A field of an
order that an older program did not write has its default; one that only a newer program knows is
ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from headrace.model.jobs.epoch import CHECKPOINT_TIMEOUT_MS, COMMIT_DEADLINE_S
from headrace.model.jobs.spec import LOST_WORKERS_MAX


class TaskStatus(StrEnum):
    PLANNED = "PLANNED"  # waits for a worker
    SCHEDULED = "SCHEDULED"  # assigned to a worker, which has not acknowledged it yet
    ACKED = "ACKED"  # its worker has said that it holds it
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


class Lane(StrEnum):
    """Which of a worker's slots a task takes: the two lanes never wait for each other."""

    SLOT = "SLOT"  # pipelines and table rewrites
    CONTROL = "CONTROL"  # short work that streaming jobs must not starve


class TaskKind(StrEnum):
    PIPELINE = "PIPELINE"  # run the epochs of one pipeline
    SETTLE = "SETTLE"  # finish or abort the open epoch of a pipeline that has ended (E6)
    FORGET = "FORGET"  # delete what a job left at its targets: stages, then marks (C2, E6)
    DISCOVER = "DISCOVER"  # list the tables of a catalog
    EVALUATE = "EVALUATE"  # find out which of some tables need optimizing, and why
    PLAN = "PLAN"  # choose the files that a process of a table rewrites
    REWRITE = "REWRITE"  # rewrite some bins of a process; nothing is committed
    COMMIT = "COMMIT"  # replace the files of a process, or find that they have been replaced (E3)
    DISCARD = "DISCARD"  # spend the token of a process by an abort, then delete what it staged
    NOOP = "NOOP"  # do nothing: to measure what the protocol itself costs


class RetryRule(StrEnum):
    """When a task is tried again after an attempt without success."""

    AS_ORDERED = "AS_ORDERED"  # as often as its order says, unless its worker knows better
    # With back-off for a quarter of an hour: while it fails, rows may lie staged and unseen.
    ALWAYS = "ALWAYS"  # whatever its worker says
    UNLESS_REFUSED = "UNLESS_REFUSED"  # unless its worker knows that no other try can succeed


class FailureCause(StrEnum):
    """Why an attempt ended without success; recorded by whoever decides that it did."""

    ERROR = (
        "ERROR"  # its worker reported an error, or the attempt was given up while its worker lived
    )
    UNTOLD = "UNTOLD"  # its worker lives, but no longer holds it and never reported how it ended
    LOST = "LOST"  # its worker stopped sending heartbeats, or the worker's JVM ended
    OUT_OF_MEMORY = "OUT_OF_MEMORY"  # the JVM threw an OutOfMemoryError
    STORE_OLDER = "STORE_OLDER"  # a target holds an epoch that the store does not know (E7)
    KILLED = "KILLED"  # the JVM was ended by SIGKILL, as the kernel does when memory runs out


S = TaskStatus
LOSSES = frozenset({FailureCause.LOST, FailureCause.OUT_OF_MEMORY, FailureCause.KILLED})
UNEXPLAINED = LOSSES | {FailureCause.UNTOLD}  # no report says what was to blame
# How a worker's JVM ended, for people, where more is known than that it is gone.
JVM_ENDS: Mapping[FailureCause, str] = {
    FailureCause.OUT_OF_MEMORY: "ran out of memory (java.lang.OutOfMemoryError)",
    FailureCause.KILLED: "was killed by SIGKILL, as the kernel does when memory runs out",
}
JVM_GONE = "has died, or its application was ended"
POISON_WORKERS = 3  # an epoch that ran on so many workers as each was lost is not tried again
ASSIGNED = frozenset({S.SCHEDULED, S.ACKED})
ENDED = frozenset({S.SUCCESS, S.FAILED, S.CANCELED})
OF_JOBS = frozenset({TaskKind.PIPELINE, TaskKind.SETTLE, TaskKind.FORGET})
OF_TABLES = frozenset(TaskKind) - OF_JOBS - {TaskKind.NOOP}

TRANSITIONS: Mapping[TaskStatus, frozenset[TaskStatus]] = {
    # FAILED: no worker took it in time. SUCCESS is for those who held it.
    S.PLANNED: frozenset({S.SCHEDULED, S.CANCELED, S.FAILED}),
    S.SCHEDULED: frozenset({S.ACKED, S.PLANNED}) | ENDED,
    S.ACKED: frozenset({S.PLANNED}) | ENDED,
    S.SUCCESS: frozenset(),
    S.FAILED: frozenset(),
    S.CANCELED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Location:
    """What is deployed: a task group of a pipeline of a job. At most one execution of it runs."""

    job: str
    pipeline: int
    task_group: int = 1  # a pipeline has one, today


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """Proof that a worker holds this attempt of a task: the fencing token of its reports."""

    task: str
    attempt: int

    @property
    def execution(self) -> str:
        return f"{self.task}.{self.attempt}"


class TaskOrder(BaseModel):
    """What the order of any task may say."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    retry_times: int = 0  # how many errors of its attempts it survives
    retry_interval_s: int = 0

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        return cls.model_validate(stored)

    def stored(self) -> dict[str, Any]:
        """The order as it is stored: only what its writer has set."""
        return self.model_dump(mode="json", exclude_unset=True)


class SettleOrder(TaskOrder):
    """The order of a SETTLE task; it is tried again by rules of its own."""

    commit_deadline_s: float = COMMIT_DEADLINE_S


class PipelineOrder(SettleOrder):
    """The order of a PIPELINE task, from the env of its job."""

    lost_workers_max: int = LOST_WORKERS_MAX  # in a row; the last of them fails the pipeline
    retained: int | None = None  # completed checkpoints; None: all of them
    checkpoint_timeout_ms: int | None = None  # from prepared to completed; None: the default

    @property
    def commit_timeout_ms(self) -> int:
        return self.checkpoint_timeout_ms or CHECKPOINT_TIMEOUT_MS


class ForgetOrder(TaskOrder):
    """The order of a FORGET task."""

    incarnation: str  # the key of its cleanup record
