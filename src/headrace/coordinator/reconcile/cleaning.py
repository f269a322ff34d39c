"""Cleanups: carried out by whoever leads when they are due, each once (C2 to C5).

A record is looked at under its lock, and all it decides on is read again in the transaction that
deletes: that the job which holds the id is still its owner, that it has ended, that nothing of it
is open. What fails is told in the record, and tried again later; others don't wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, OperationalError

from headrace.clock import Clock
from headrace.coordinator.reconcile.ending import end_again, sweep_unrecorded
from headrace.coordinator.settlement import begin_at_once
from headrace.errors import Fenced, Unavailable
from headrace.model.cleanup import CleanupStep, Retention, retry_pause_ms
from headrace.model.ids import Ids
from headrace.model.job import JOB_ENDED
from headrace.model.task import ENDED, Lane, TaskKind, TaskStatus
from headrace.model.text import without_nul
from headrace.seams import seam
from headrace.store import checkpoints, cleanups, epochs, jobs, tasks
from headrace.store.cleanups import Cleanup
from headrace.store.engine import reading
from headrace.store.jobs import Job, Pipeline
from headrace.store.tasks import Task

log = logging.getLogger(__name__)

DUE_MAX = 200  # looked at in one pass
SWEEP_INTERVAL_S = 60.0  # between two looks for jobs without a record: it reads all of them
LOOK_AGAIN_MS = 30_000  # while a worker is at it, or there is none


class Cleaning:
    name = "cleanups"

    def __init__(self, clock: Clock, ids: Ids, *, retention: Retention) -> None:
        self._clock, self._ids, self._retention = clock, ids, retention
        self._sweep_at_s = clock.monotonic_s()  # a new leader sweeps at once

    def keys(self, engine: Engine) -> Sequence[str]:
        now_s = self._clock.monotonic_s()
        with reading(engine) as conn:
            lost: list[str] = []
            if now_s >= self._sweep_at_s:
                self._sweep_at_s = now_s + SWEEP_INTERVAL_S
                lost = [job.incarnation for job in cleanups.unrecorded(conn, most=DUE_MAX)]
            return [*lost, *cleanups.due(conn, now_ms=self._clock.wall_ms(), most=DUE_MAX)]

    def due(self, conn: Connection, key: str) -> bool:
        found = cleanups.get(conn, key)
        return found is None or found.wanted_at_once or found.due_at_ms <= self._clock.wall_ms()

    def reconcile(self, conn: Connection, key: str) -> None:
        found = cleanups.lock(conn, key)
        if found is None:
            self._sweep(conn, key)
            return
        if found.wanted_at_once:
            found = begin_at_once(conn, found, now_ms=self._clock.wall_ms())
        if found.due_at_ms <= self._clock.wall_ms():
            self._carry_out(conn, found)

    def _carry_out(self, conn: Connection, found: Cleanup) -> None:
        """One step. Whatever is wrong with its rows is told in the record, and looked at later."""
        step = self._clean_state if found.step is CleanupStep.STATE else self._clean_targets
        try:
            with conn.begin_nested():
                step(conn, found)
        except (Fenced, Unavailable, OperationalError):
            raise  # the store is away, and no record is to blame
        except Exception as error:
            log.exception("cleanup broken off", extra=_facts(found.job_id, found.incarnation))
            # An error of the driver may repeat a whole row, with the secrets in it.
            reason = type(error.orig).__name__ if isinstance(error, DBAPIError) else repr(error)
            self._failed(conn, found, without_nul(reason))

    def _sweep(self, conn: Connection, incarnation: str) -> None:
        job = cleanups.unrecorded_one(conn, incarnation)
        if job is not None:
            log.warning("ended job had no cleanup record", extra=_facts(job.id, incarnation))
            sweep_unrecorded(conn, job, self._retention)

    def _clean_state(self, conn: Connection, found: Cleanup) -> None:
        job = cleanups.owned_job(conn, found)
        if job is None or job.status not in JOB_ENDED:
            # Its rows are gone, or it goes on: either way nothing here is the record's to delete.
            log.warning("cleanup without its job", extra=_facts(found.job_id, found.incarnation))
            cleanups.drop(conn, found.incarnation)
        elif self._is_settled(conn, found, job):
            if found.task_id is not None or found.failures:
                end_again(conn, job)
                found = self._committed_late(found)
            self._delete_state(conn, found, job)

    def _is_settled(self, conn: Connection, found: Cleanup, job: Job) -> bool:
        """Whether nothing of it is open. If something is, somebody is asked to settle it."""
        left_open = checkpoints.open_ones(conn, job.incarnation)
        if self._waits(conn, found, tasks.of_job(conn, job.id)):
            return False
        if not left_open:
            return True
        # In turns: one whose sinks are away must not keep the others from being settled.
        pipeline = sorted(left_open)[found.failures % len(left_open)]
        self._plan(conn, found, TaskKind.SETTLE, job_id=job.id, pipeline=pipeline)
        return False

    def _committed_late(self, found: Cleanup) -> Cleanup:
        """Somebody settled after the end, and may have a twin that is paused: marks stay on."""
        kept_until_ms = self._clock.wall_ms() + self._retention.marks_kept_ms
        return replace(found, targets_due_at_ms=max(found.targets_due_at_ms, kept_until_ms))

    def _delete_state(self, conn: Connection, found: Cleanup, job: Job) -> None:
        pipelines = jobs.pipelines_of(conn, job.id)
        # Of a run that a restore began after its rows were gone, the pipelines alone know.
        up_to = max(checkpoints.highest(conn, job.incarnation), *(p.epoch for p in pipelines))
        untouched = {p.number for p in pipelines if _is_untouched(conn, job, p)}
        given = job.run > 1 or any(p.task_id is not None for p in pipelines)
        began = given and len(untouched) < len(pipelines)
        seam("before state is deleted")
        spec = _without(jobs.raw_spec(conn, job.id), untouched)
        cleanups.to_targets(conn, found, up_to=up_to, spec=spec)
        if not began:  # no worker ever had it, so there is nothing at its targets
            cleanups.drop(conn, found.incarnation)
        seam("state deleted, in transaction")
        log.info("job cleaned", extra=_facts(job.id, job.incarnation))

    def _clean_targets(self, conn: Connection, found: Cleanup) -> None:
        task = tasks.get(conn, found.task_id) if found.task_id else None
        if not self._waits(conn, found, [task] if task else []):
            self._plan(conn, found, TaskKind.FORGET)

    def _waits(self, conn: Connection, found: Cleanup, planned: Sequence[Task]) -> bool:
        """Whether somebody is at it, or failed at it just now."""
        now_ms = self._clock.wall_ms()
        last = next((task for task in planned if task.id == found.task_id), None)
        if any(task.status not in ENDED for task in planned):
            cleanups.postpone(conn, found, due_at_ms=now_ms + LOOK_AGAIN_MS)
            return True
        if last is None or last.status is TaskStatus.SUCCESS:
            return False
        self._failed(
            conn, found, last.error or f"its task ended {last.status}, and nobody said why"
        )
        return True

    def _failed(self, conn: Connection, found: Cleanup, error: str) -> None:
        failures = found.failures + 1
        due_at_ms = self._clock.wall_ms() + retry_pause_ms(failures)
        cleanups.failed(conn, found, failures=failures, error=error, due_at_ms=due_at_ms)
        facts = {**_facts(found.job_id, found.incarnation), "failures": failures, "reason": error}
        log.warning("cleanup failed", extra=facts)

    def _plan(
        self,
        conn: Connection,
        found: Cleanup,
        kind: TaskKind,
        *,
        job_id: str | None = None,
        pipeline: int | None = None,
    ) -> None:
        task_id, now_ms = self._ids.new(), self._clock.wall_ms()
        deadline_s = self._retention.commit_deadline_s
        tasks.plan(
            conn,
            task_id=task_id,
            kind=kind,
            lane=Lane.CONTROL,
            group=found.group,
            job_id=job_id,
            pipeline=pipeline,
            payload={"incarnation": found.incarnation, "commit_deadline_s": deadline_s},
            now_ms=now_ms,
        )
        cleanups.began(conn, found, task_id=task_id, due_at_ms=now_ms + LOOK_AGAIN_MS)


def _is_untouched(conn: Connection, job: Job, pipeline: Pipeline) -> bool:
    """Whether its epoch 0 is still to come. A restore begins with that, far below `up_to`: what a
    FORGET task does not know of, it can't take away from that run."""
    return pipeline.epoch < 0 and epochs.highest(conn, job.incarnation, pipeline.number) < 0


def _without(spec: Mapping[str, Any], untouched: Collection[int]) -> Mapping[str, Any]:
    """As it is stored, for it may be of a newer program."""
    if not untouched:
        return spec
    kept = [p for p in spec.get("pipelines", ()) if p.get("number") not in untouched]
    return {**spec, "pipelines": kept}


def _facts(job_id: str, incarnation: str) -> dict[str, object]:
    return {"job": job_id, "incarnation": incarnation}
