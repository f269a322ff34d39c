"""Commands on jobs: submit, restore, savepoint, settle, cancel.

A command writes what is *wanted*, on any node; the leader does it. A job that came over the wire
may have secrets in its options, if its writer left them there: they are moved apart before it is
stored.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

from pydantic import JsonValue
from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.jobs import job_log
from headrace.coordinator.jobs.admission import check_room
from headrace.coordinator.jobs.cleanup import want_settled
from headrace.coordinator.jobs.job_end import KnownJob, known_job, submitted_before
from headrace.coordinator.jobs.restore import RestoredJob, restore
from headrace.errors import BadSetting, NotFound, Refused, Unavailable
from headrace.jobfile.spec_checks import check_spec
from headrace.model.ids import Ids, check_name
from headrace.model.jobs.spec import REDACTED, JobSpec, PluginSpec
from headrace.model.jobs.status import JOB_ENDED, JobStatus, ScheduleStrategy
from headrace.model.text import utc
from headrace.plugins.catalog import catalog, opens
from headrace.plugins.secrets import take_secrets
from headrace.plugins.syntax_tree import Role
from headrace.seams import seam
from headrace.store.core import notifications
from headrace.store.core.engine import reading
from headrace.store.core.transactions import in_tx
from headrace.store.jobs import cleanups, history, jobs, savepoints
from headrace.store.jobs.history import EndedRun
from headrace.store.jobs.jobs import Job

# How a job may end after a savepoint was wanted, so that asking for it again is no mistake.
SAVED = frozenset({JobStatus.SAVEPOINT_DONE, JobStatus.FINISHED})
_NOT_BEGUN = (
    "it has not begun, so there is nothing to save; wait until it is RUNNING, or cancel it with "
    "`headrace job cancel {job}`"
)
CANNOT_SAVE = {
    JobStatus.INITIALIZING: _NOT_BEGUN,
    JobStatus.CREATED: _NOT_BEGUN,
    JobStatus.PENDING: _NOT_BEGUN,
    JobStatus.CANCELING: "it is being canceled, which beats a savepoint",
    JobStatus.FAILING: (
        "it keeps its last checkpoint; once it is FAILED, `headrace job show {job}` says how to go "
        "on"
    ),
    JobStatus.FAILED: (
        "it has ended, and keeps its last checkpoint if it had one; `headrace job show {job}` says "
        "how to go on"
    ),
    JobStatus.SAVEPOINT_DONE: (
        "it has its savepoint; go on with `headrace run JOB_FILE --restore {job}`"
    ),
    JobStatus.CANCELED: "it has ended, and nothing of it is left to save; run its file anew",
    JobStatus.FINISHED: "it has ended, and all of it was read; there is nothing to save",
}


class _SubmittedBefore(Exception):
    """The submission key is in history already: roll the insert back."""


class Commands:
    """What a user may ask of jobs. Safe to call on any node, and from several threads."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        ids: Ids,
        *,
        schedule: ScheduleStrategy = ScheduleStrategy.WAIT,
    ) -> None:
        self._engine, self._clock, self._ids = engine, clock, ids
        self._schedule = schedule
        self.stopping = threading.Event()

    def submit(
        self, spec: JobSpec, *, submission_key: str, job_id: str | None = None, group: str
    ) -> KnownJob:
        """Accept a job. The same submission key gives the same job, in whatever state (C6)."""
        spec = _checked(spec, submission_key, job_id=job_id, group=group)
        chosen, incarnation = job_id or self._ids.new(), self._ids.new()

        def work(conn: Connection) -> KnownJob:
            if not jobs.insert_job(
                conn,
                spec,
                job_id=chosen,
                incarnation=incarnation,
                submission_key=submission_key,
                group=group,
                now_ms=self._clock.wall_ms(),
                opening=_opening_pipelines(spec),
            ):
                # It was submitted before, or right now at another node; or its id is taken.
                if (known := submitted_before(conn, submission_key)) is not None:
                    return known
                raise _id_is_taken(conn, chosen)
            # Read after the insert: history is written before the rows of a job are deleted, so
            # that one of the two always has the key.
            if history.by_key(conn, submission_key) is not None:
                raise _SubmittedBefore
            self._check_room(conn, chosen)
            job_log.note_submitted(conn, chosen, spec, group=group, now_ms=self._clock.wall_ms())
            notifications.notify(conn)
            return known_job(conn, chosen)

        seam("before submit")
        try:
            accepted = in_tx(self._engine, work, stop=self.stopping)
        except _SubmittedBefore:  # the insert is rolled back
            accepted = self._submitted_before(submission_key)
        seam("submitted, before answer")
        return accepted

    def _check_room(self, conn: Connection, job_id: str) -> None:
        """Refuse a job that would have to wait, if none may wait; it rolls the transaction back."""
        if self._schedule is ScheduleStrategy.REJECT:
            check_room(conn, job_id)

    def _submitted_before(self, submission_key: str) -> KnownJob:
        with reading(self._engine) as conn:
            known = submitted_before(conn, submission_key)
        if known is None:  # its history expired between the two
            raise Unavailable("the coordinator was busy with that job; send the submission again")
        return known

    def restore(
        self, spec: JobSpec, *, job_id: str, submission_key: str, group: str | None = None
    ) -> RestoredJob:
        """Let an ended job go on from its savepoint, under this job file."""
        spec = _checked(spec, submission_key, job_id=job_id, group=group)

        def work(conn: Connection) -> RestoredJob:
            restored = restore(
                conn,
                spec,
                job_id=job_id,
                submission_key=submission_key,
                group=group,
                now_ms=self._clock.wall_ms(),
            )
            if restored.begun:
                self._check_room(conn, job_id)
                job_log.note_restored(conn, job_id, restored.notes, now_ms=self._clock.wall_ms())
            notifications.notify(conn)
            return restored

        seam("before restore")
        restored = in_tx(self._engine, work, stop=self.stopping)
        seam("restored, before answer")
        return restored

    def savepoint(self, job_id: str) -> KnownJob:
        """Ask a job to end with a savepoint, so that it can be restored. Idempotent."""

        def work(conn: Connection) -> KnownJob:
            if not _is_saved(conn, job_id):
                if jobs.want_savepoint(conn, job_id):
                    now_ms = self._clock.wall_ms()
                    job_log.note(conn, job_id, "a savepoint is wanted", now_ms=now_ms)
                    notifications.notify(conn)
                else:  # it has ended since it was read: say so, or that it is saved
                    _is_saved(conn, job_id)
            return known_job(conn, job_id)

        return in_tx(self._engine, work, stop=self.stopping)

    def delete_savepoint(self, job_id: str) -> None:
        """Delete the savepoint of an ended job. The job itself stays as it is."""

        def work(conn: Connection) -> None:
            if savepoints.delete_all(conn, job_id) == 0:
                known_job(conn, job_id)  # raises when there is no such job either
                raise NotFound("savepoint of job", job_id)

        in_tx(self._engine, work, stop=self.stopping)

    def settle(self, job_id: str) -> KnownJob:
        """Settle what an ended job left at its targets now, as far as it is safe."""

        def work(conn: Connection) -> KnownJob:
            want_settled(conn, known_job(conn, job_id))
            notifications.notify(conn)
            return known_job(conn, job_id)

        return in_tx(self._engine, work, stop=self.stopping)

    def cancel(self, job_id: str) -> KnownJob:
        """Ask a job to end. One that has ended stays as it is."""

        def work(conn: Connection) -> KnownJob:
            if jobs.want_cancel(conn, job_id):
                job_log.note(conn, job_id, "cancel is wanted", now_ms=self._clock.wall_ms())
                notifications.notify(conn)
            return known_job(conn, job_id)

        return in_tx(self._engine, work, stop=self.stopping)


def _checked(
    spec: JobSpec, submission_key: str, *, job_id: str | None, group: str | None
) -> JobSpec:
    """The job with its secrets moved apart; raises when something in it can't be used."""
    if "\0" in submission_key:
        raise BadSetting("a submission key can't hold a NUL character")
    for what, name in (("job id", job_id), ("group", group)):
        if name is not None:
            check_name(what, name)
    # The job has its group as a column; programs of the time before it could stand in a
    # specification must be able to read what is stored.
    spec = without_secrets(spec).model_copy(update={"group": None})
    check_spec(spec)
    return spec


def without_secrets(spec: JobSpec) -> JobSpec:
    """The same job, with every secret in `secrets` and nowhere else."""
    secrets: dict[str, JsonValue] = {}
    other, taken = take_secrets("env", None, spec.env.other)
    secrets |= taken
    pipelines = tuple(
        pipeline.model_copy(
            update={
                "sources": _take_plugin_secrets("source", pipeline.sources, secrets),
                "transforms": _take_plugin_secrets("transform", pipeline.transforms, secrets),
                "sinks": _take_plugin_secrets("sink", pipeline.sinks, secrets),
            }
        )
        for pipeline in spec.pipelines
    )
    # Where a secret was moved apart before, its option holds this placeholder.
    written = {path: value for path, value in secrets.items() if value != REDACTED}
    return spec.model_copy(
        update={
            "env": spec.env.model_copy(update={"other": other}),
            "pipelines": pipelines,
            "secrets": {**spec.secrets, **written},
        }
    )


def _take_plugin_secrets(
    role: Role, plugins: Sequence[PluginSpec], secrets: dict[str, JsonValue]
) -> tuple[PluginSpec, ...]:
    kept: list[PluginSpec] = []
    for plugin in plugins:
        # Of a plugin that is missing here, `check_spec` says so, which follows.
        descriptor = catalog().find(role, plugin.plugin)
        options, taken = take_secrets(plugin.name, descriptor, plugin.options)
        secrets.update(taken)
        kept.append(plugin.model_copy(update={"options": options}))
    return tuple(kept)


def _opening_pipelines(spec: JobSpec) -> Collection[int]:
    """Pipelines with a sink that does something before the first row (a save mode)."""
    return [pipeline.number for pipeline in spec.pipelines if opens(pipeline)]


def _id_is_taken(conn: Connection, job_id: str) -> Refused:
    """Why a job can't be submitted under this id, and what to do instead."""
    job = jobs.get(conn, job_id)
    if job is None or job.status not in JOB_ENDED:
        return Refused(f"job id {job_id!r} is taken; submit under another id")
    cleanup = cleanups.get(conn, job.incarnation)
    until = f", due at {utc(cleanup.due_at_ms)}" if cleanup else ""
    failed = f"; its last try failed: {cleanup.error}" if cleanup and cleanup.error else ""
    savepoint = savepoints.of_incarnation(conn, job.incarnation)
    can_go_on = savepoint is not None and not savepoint.store_is_older
    restore = f"go on with it by --restore {job_id}, " if can_go_on else ""
    return Refused(
        f"job {job_id!r} is {job.status} and awaits its cleanup{until}{failed}; {restore}submit "
        "again after that, or under another id"
    )


def _is_saved(conn: Connection, job_id: str) -> bool:
    """Whether the job has ended as a wish for a savepoint lets it end; `Refused` when it can't be
    saved."""
    job = known_job(conn, job_id)
    was_wanted = isinstance(job, EndedRun) or job.wanted_savepoint
    if was_wanted and job.status in SAVED:
        return True
    _check_can_save(job_id, job)
    return False


def _check_can_save(job_id: str, job: KnownJob) -> None:
    if isinstance(job, Job) and job.wanted_cancel and job.status not in JOB_ENDED:
        raise Refused(
            f"job {job_id!r} is {job.status} and is being canceled: that beats a savepoint; "
            "submit it again once it has ended"
        )
    if (way_out := CANNOT_SAVE.get(job.status)) is not None:
        raise Refused(f"job {job_id!r} is {job.status}: {way_out.format(job=job_id)}")
