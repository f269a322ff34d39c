"""What a user may ask for. A command writes what is *wanted*, on any node; the leader does it."""

from __future__ import annotations

import re
import threading

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.secrets import without_secrets
from headrace.errors import BadSetting, NotFound, Refused
from headrace.jobfile.check import check_spec
from headrace.model.ids import Ids
from headrace.model.jobspec import JobSpec
from headrace.seams import seam
from headrace.store import jobs, wake
from headrace.store.jobs import Job
from headrace.store.tx import in_tx

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class Commands:
    def __init__(self, engine: Engine, clock: Clock, ids: Ids) -> None:
        self._engine, self._clock, self._ids = engine, clock, ids
        self.stopping = threading.Event()

    def submit(
        self, spec: JobSpec, *, submission_key: str, job_id: str | None = None, group: str
    ) -> Job:
        """Accept a job. The same submission key gives the same job, in whatever state (C6)."""
        if "\0" in submission_key:
            raise BadSetting("a submission key can't hold a NUL character")
        for what, name in (("job id", job_id or "x"), ("group", group)):
            if not NAME.fullmatch(name):
                raise BadSetting(
                    f"{what} {name!r} can't be used; take up to 100 letters, digits, '.', '_' "
                    "or '-', beginning with a letter or a digit"
                )
        spec = without_secrets(spec)
        check_spec(spec)
        chosen, incarnation = job_id or self._ids.new(), self._ids.new()

        def work(conn: Connection) -> Job:
            if not jobs.insert_job(
                conn,
                spec,
                job_id=chosen,
                incarnation=incarnation,
                submission_key=submission_key,
                group=group,
                now_ms=self._clock.wall_ms(),
            ):
                # Said before, or at this moment at another node.
                if (known := jobs.by_submission_key(conn, submission_key)) is not None:
                    return known
                raise Refused(f"job id {chosen!r} is taken; submit under another id")
            wake.notify(conn)
            return _found(conn, chosen)

        seam("before submit")
        accepted = in_tx(self._engine, work, stop=self.stopping)
        seam("submitted, before answer")
        return accepted

    def cancel(self, job_id: str) -> Job:
        """Ask for the end of a job. One that has ended stays as it is."""

        def work(conn: Connection) -> Job:
            _found(conn, job_id)
            jobs.want_cancel(conn, job_id)
            wake.notify(conn)
            return _found(conn, job_id)

        return in_tx(self._engine, work, stop=self.stopping)


def _found(conn: Connection, job_id: str) -> Job:
    job = jobs.get(conn, job_id)
    if job is None:
        raise NotFound("job", job_id)
    return job
