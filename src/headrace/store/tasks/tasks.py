"""Tasks: plan, finish, give back, stop; and the guard of every write to one.

Every write is guarded by attempt and status, and says whether it landed. The statuses that a write
may change follow from the transition map (S1). A report of an attempt that is no longer the current
one is late, which is not an error: it changes nothing (C1).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Text,
    TextClause,
    Update,
    bindparam,
    func,
    insert,
    literal_column,
    not_,
    select,
    update,
)
from sqlalchemy import delete as delete_from

from headrace.errors import IllegalTransition
from headrace.model.task import (
    ASSIGNED,
    ENDED,
    TRANSITIONS,
    Claim,
    FailureCause,
    Lane,
    TaskKind,
    TaskStatus,
)
from headrace.model.transitions import check_transition
from headrace.store.core.prepared_statements import (
    PreparedBatch,
    PreparedStatement,
    RowColumns,
    Statement,
    one_of,
)
from headrace.store.core.schema import may_become, may_become_each
from headrace.store.tasks.schema import ASSIGNED_TASK, tasks, workers


@dataclass(frozen=True, slots=True)
class Task:
    """A task as it is read."""

    id: str
    kind: TaskKind
    lane: Lane
    group: str
    job_id: str | None
    pipeline: int | None
    payload: Mapping[str, Any]
    status: TaskStatus
    attempt: int
    failures: int  # that count; of a pipeline, since an epoch with rows was last completed
    stop: bool
    savepoint: bool  # its worker is to end it with a savepoint
    worker_id: str | None
    assigned: tuple[int, int] | None  # term and number of the answer that carried it
    error: str | None = None  # of the attempt that failed last
    table_id: str | None = None
    process_id: str | None = None
    number: int | None = None
    losses: int = 0  # workers of a pipeline lost in a row, since an epoch was last completed
    failure_cause: FailureCause | None = None  # of the attempt that failed last
    needs: str | None = None  # plug-ins that its worker must have (`model/jobs/needs`)

    @property
    def claim(self) -> Claim:
        return Claim(self.id, self.attempt)


@dataclass(frozen=True, slots=True)
class OfTable:
    """The table, and its process, that a task belongs to."""

    table_id: str | None = None
    process_id: str | None = None
    number: int | None = None
    granted: bool = True  # False: nobody may claim it before its table's share allows it


NO_TABLE = OfTable()


# The fields of a Task, in their order. The hot path reads them: more columns would cost dearly.
_READ = (
    *("id", "kind", "lane", "group_name", "job_id", "pipeline", "payload", "status", "attempt"),
    *("failures", "stop", "savepoint", "worker_id", "assigned_term", "assigned_number", "error"),
    *("table_id", "process_id", "number", "losses", "failure_cause", "needs"),
)
COLUMNS = tuple(tasks.c[name] for name in _READ)


def to_task(row: tuple[Any, ...]) -> Task:
    """The task of a row of COLUMNS."""
    task_id, kind, lane, group, job_id, pipeline, payload, status, *rest = row
    attempt, failures, stop, savepoint, worker_id, term, answer, error, *rest = rest
    *of_table, losses, cause, needs = rest
    return Task(
        task_id,
        TaskKind(kind),
        Lane(lane),
        group,
        job_id,
        pipeline,
        payload,
        TaskStatus(status),
        attempt,
        failures,
        bool(stop),
        bool(savepoint),
        worker_id,
        None if term is None else (term, answer),
        error,
        *of_table,
        losses=losses,
        failure_cause=None if cause is None else FailureCause(cause),
        needs=needs,
    )


def current_attempt(
    claim_task: Any, claim_attempt: Any, status: ColumnElement[bool] | TextClause = ASSIGNED_TASK
) -> tuple[Any, ...]:
    """The guard of every write under a claim: its attempt is the current one, and has not ended.
    `status`: the guard of a write that changes the status, too."""
    return tasks.c.id == claim_task, tasks.c.attempt == claim_attempt, status


def task_may_become(
    target: TaskStatus, *, among: Collection[TaskStatus] | None = None
) -> ColumnElement[bool]:
    """The guard of every write of a status: the map leads to it from where the task is (S1)."""
    return may_become(tasks.c.status, TRANSITIONS, target, among=among)


_PLAN = PreparedStatement(
    insert(tasks).values(
        id=bindparam("id"),
        kind=bindparam("kind"),
        lane=bindparam("lane"),
        group_name=bindparam("group"),
        job_id=bindparam("job_id"),
        pipeline=bindparam("pipeline"),
        payload=bindparam("payload"),
        status=TaskStatus.PLANNED,
        created_at_ms=bindparam("now_ms"),
        table_id=bindparam("table_id"),
        process_id=bindparam("process_id"),
        number=bindparam("number"),
        granted=bindparam("granted"),
        needs=bindparam("needs"),
    )
)


def plan(
    conn: Connection,
    *,
    task_id: str,
    kind: TaskKind,
    lane: Lane,
    group: str,
    now_ms: int,
    payload: Mapping[str, Any] | None = None,
    job_id: str | None = None,
    pipeline: int | None = None,
    of: OfTable = NO_TABLE,
    needs: str | None = None,
) -> None:
    """Add a task that nobody holds yet."""
    _PLAN.change(
        conn,
        {
            "id": task_id,
            "kind": kind,
            "lane": lane,
            "group": group,
            "job_id": job_id,
            "pipeline": pipeline,
            "payload": dict(payload or {}),
            "now_ms": now_ms,
            "table_id": of.table_id,
            "process_id": of.process_id,
            "number": of.number,
            "granted": int(of.granted),
            "needs": needs,
        },
    )


_BY_ID = PreparedStatement(select(*COLUMNS).where(tasks.c.id == bindparam("id")))
_OF_JOB = PreparedStatement(
    select(*COLUMNS).where(tasks.c.job_id == bindparam("job_id")).order_by(tasks.c.id)
)


_OF_JOBS = PreparedStatement(
    select(*COLUMNS).where(one_of(tasks.c.job_id, "jobs")).order_by(tasks.c.id)
)


def get(conn: Connection, task_id: str) -> Task | None:
    row = _BY_ID.row(conn, {"id": task_id})
    return to_task(row) if row else None


def of_job(conn: Connection, job_id: str) -> Sequence[Task]:
    return [to_task(row) for row in _OF_JOB.rows(conn, {"job_id": job_id})]


def of_jobs(conn: Connection, ids: Collection[str]) -> Mapping[str, Sequence[Task]]:
    """The tasks of these jobs, by job."""
    by_job: dict[str, list[Task]] = {job_id: [] for job_id in ids}
    rows = _OF_JOBS.rows(conn, {"jobs": sorted(by_job)}) if by_job else ()
    for task in map(to_task, rows):
        by_job[task.job_id or ""].append(task)
    return by_job


_CURRENT = PreparedStatement(
    select(*COLUMNS).where(*current_attempt(bindparam("task"), bindparam("at"))).with_for_update()
)
_LOCK = PreparedStatement(
    select(tasks.c.id).where(one_of(tasks.c.id, "ids")).order_by(tasks.c.id).with_for_update()
)


def current(conn: Connection, claim: Claim) -> Task | None:
    """The task, locked, when `claim` is its current attempt and it has not ended."""
    row = _CURRENT.row(conn, {"task": claim.task, "at": claim.attempt})
    return to_task(row) if row else None


def lock(conn: Connection, ids: Collection[str]) -> None:
    """Lock these tasks, to avoid a deadlock in the order that everybody uses."""
    _LOCK.rows(conn, {"ids": sorted(ids)})


def _finish(row: RowColumns) -> Update:
    may_end = may_become_each(tasks.c.status, TRANSITIONS, row["to"], targets=ENDED, among=ASSIGNED)
    return (
        update(tasks)
        .where(*current_attempt(row["task"], row["at"], may_end))
        .values(
            status=row["to"],
            error=row["because"],
            failure_cause=row["cause"],
            result=row["found"],
            ended_at_ms=row["now_ms"],
        )
    )


_FINISH = PreparedBatch(
    _finish,
    key=tasks.c.id,
    task=Text(),
    at=Integer(),
    to=Text(),
    because=Text(),
    cause=Text(),
    found=JSON(none_as_null=True),
    now_ms=BigInteger(),
)


@dataclass(frozen=True, slots=True)
class TaskEnd:
    claim: Claim
    status: TaskStatus
    error: str | None = None
    result: Mapping[str, Any] | None = None
    cause: FailureCause | None = None


def finish(conn: Connection, ends: Sequence[TaskEnd], *, now_ms: int) -> int:
    """Record how attempts ended; returns how many of them did so by this. An attempt that is no
    longer the current one changes nothing, and of two ends of one attempt the first counts. Raises
    IllegalTransition for what is no end."""
    first: dict[Claim, TaskEnd] = {}
    for end in ends:
        if end.status not in ENDED:
            held = " or ".join(sorted(ASSIGNED))
            raise IllegalTransition("attempt", end.claim.execution, held, end.status)
        first.setdefault(end.claim, end)
    return _FINISH.change(
        conn,
        [
            {
                "task": end.claim.task,
                "at": end.claim.attempt,
                "to": end.status,
                "because": end.error,
                "cause": end.cause,
                "found": dict(end.result) if end.result is not None else None,
                "now_ms": now_ms,
            }
            for end in first.values()
        ],
    )


_GIVE_BACK = PreparedStatement(
    update(tasks)
    .where(
        *current_attempt(bindparam("task"), bindparam("at"), task_may_become(TaskStatus.PLANNED))
    )
    .values(
        status=TaskStatus.PLANNED,
        worker_id=None,
        assigned_term=None,
        assigned_number=None,
        progress=None,
        failures=bindparam("counted", type_=Integer()),
        losses=bindparam("lost", type_=Integer()),
        unheard=tasks.c.unheard + bindparam("unheard_more", type_=Integer()),
        failure_cause=func.coalesce(bindparam("cause", type_=Text()), tasks.c.failure_cause),
        failed_at_ms=func.coalesce(bindparam("fell_ms", type_=BigInteger()), tasks.c.failed_at_ms),
        error=func.coalesce(bindparam("because", type_=Text()), tasks.c.error),
        not_before_ms=bindparam("begin_ms"),
        pause_ms=bindparam("pause"),
    )
)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt is given back, and what its task is left with."""

    error: str
    cause: FailureCause
    failures: int  # of the task, with this one if it counts as an error
    losses: int  # of the task, with this one if it counts as a lost worker
    at_ms: int
    pause_ms: int


def give_back(
    conn: Connection, task: Task, failure: Failure | None = None, *, unheard: bool = False
) -> bool:
    """Let another worker claim the task. `unheard`: its worker never reported holding it.

    One attempt can't be counted twice, because the guard lets only one write through. False: this
    attempt is no longer the current one. Raises IllegalTransition for a task that nobody held when
    it was read.
    """
    check_transition("task", task.id, TRANSITIONS, task.status, TaskStatus.PLANNED)
    values = {
        "task": task.id,
        "at": task.attempt,
        "counted": failure.failures if failure else task.failures,
        "lost": failure.losses if failure else task.losses,
        "unheard_more": int(unheard),
        "cause": failure and failure.cause,
        "fell_ms": failure and failure.at_ms,
        "because": failure and failure.error,
        "begin_ms": failure.at_ms + failure.pause_ms if failure else 0,
        "pause": failure.pause_ms if failure else 0,
    }
    return _GIVE_BACK.change(conn, values) == 1


def times_unheard(conn: Connection, task: Task) -> int:
    """How often in a row workers were assigned the task and never reported holding it."""
    return conn.execute(select(tasks.c.unheard).where(tasks.c.id == task.id)).scalar_one()


_EPOCH_COMPLETED = PreparedStatement(
    update(tasks)
    .where(*current_attempt(bindparam("task"), bindparam("at")))
    .values(failures=bindparam("counted", type_=Integer()), losses=0)
)


def note_epoch_completed(conn: Connection, task: Task, *, failures: int) -> None:
    """An epoch was completed: forget the lost workers, and set the number of errors that count."""
    if (task.failures, task.losses) != (failures, 0):  # rare, and this runs with every epoch
        _EPOCH_COMPLETED.change(conn, {"task": task.id, "at": task.attempt, "counted": failures})


_DELETE = PreparedStatement(delete_from(tasks).where(tasks.c.id == bindparam("id")))


def delete(conn: Connection, task_id: str) -> None:
    """Delete a task that belongs to no job. Those of a job are deleted with it."""
    _DELETE.change(conn, {"id": task_id})


def _unregistered_holders() -> Statement:
    """One step in the index for each worker, however many tasks it holds."""
    named = func.min(tasks.c.worker_id)
    holders = select(named.label("id")).where(ASSIGNED_TASK).cte("holders", recursive=True)
    before = literal_column("holders.id", Text())
    following = select(named).where(ASSIGNED_TASK, tasks.c.worker_id > before).scalar_subquery()
    further = select(following).select_from(holders).where(holders.c.id.is_not(None))
    holders = holders.union_all(further)
    known = select(workers.c.id).where(workers.c.id == holders.c.id).exists()
    return select(holders.c.id).where(holders.c.id.is_not(None), not_(known))


_UNREGISTERED_HOLDERS = PreparedStatement(_unregistered_holders())
_OPEN_PIPELINES = (
    tasks.c.job_id == bindparam("job"),
    tasks.c.kind == TaskKind.PIPELINE,
    *(tasks.c.status != ended for ended in sorted(ENDED)),
)
# In the order in which a sync locks the tasks that it reports: two orders would deadlock.
_LOCK_PIPELINES = PreparedStatement(
    select(tasks.c.id, tasks.c.worker_id)
    .where(*_OPEN_PIPELINES)
    .order_by(tasks.c.id)
    .with_for_update()
)
_STOP = PreparedStatement(update(tasks).where(one_of(tasks.c.id, "ids")).values(stop=1))
_SAVE = PreparedStatement(update(tasks).where(one_of(tasks.c.id, "ids")).values(savepoint=1))
_UNCLAIMED = frozenset({TaskStatus.PLANNED})
_FAIL_UNCLAIMED = PreparedStatement(
    update(tasks)
    .where(tasks.c.id == bindparam("task"), task_may_become(TaskStatus.FAILED, among=_UNCLAIMED))
    .values(status=TaskStatus.FAILED, error=bindparam("because"), ended_at_ms=bindparam("now_ms"))
)
_CANCEL_UNCLAIMED = PreparedStatement(
    update(tasks)
    .where(
        tasks.c.job_id == bindparam("job"),
        tasks.c.kind == TaskKind.PIPELINE,
        task_may_become(TaskStatus.CANCELED, among=_UNCLAIMED),
    )
    .values(status=TaskStatus.CANCELED, ended_at_ms=bindparam("now_ms"))
)


def unregistered_holders(conn: Connection) -> Collection[str]:
    """Workers that tasks are assigned to and that are not registered, however they were lost
    (T5)."""
    return {worker for (worker,) in _UNREGISTERED_HOLDERS.rows(conn)}


def want_stop(conn: Connection, job_id: str) -> Sequence[str]:
    """Ask for the job's open pipeline tasks to end; return the workers that hold one.

    A task that nobody holds is marked, too: nobody can claim it any more, and `cancel_unclaimed`
    ends it.
    """
    return _want(conn, job_id, _STOP)


def want_savepoint(conn: Connection, job_id: str) -> Sequence[str]:
    """Ask for the job's open pipeline tasks to end with a savepoint; return the workers that hold
    one.

    A task that nobody holds is still given to a worker: it may have an epoch to finish first.
    """
    return _want(conn, job_id, _SAVE)


def _want(conn: Connection, job_id: str, mark: PreparedStatement) -> Sequence[str]:
    rows = _LOCK_PIPELINES.rows(conn, {"job": job_id})
    if rows:
        mark.change(conn, {"ids": [task for task, _ in rows]})
    return [worker for _, worker in rows if worker is not None]


def fail_unclaimed(conn: Connection, task_id: str, *, error: str, now_ms: int) -> bool:
    """End a task that nobody claimed. False: somebody has claimed it, or it has ended."""
    return _FAIL_UNCLAIMED.change(conn, {"task": task_id, "because": error, "now_ms": now_ms}) == 1


def cancel_unclaimed(conn: Connection, job_id: str, *, now_ms: int) -> None:
    """End the job's pipeline tasks that nobody has claimed."""
    _CANCEL_UNCLAIMED.change(conn, {"job": job_id, "now_ms": now_ms})
