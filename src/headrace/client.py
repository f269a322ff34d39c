"""The API, as Python sees it.

A client knows one or more coordinators. Any of them answers any question, so a coordinator that
is gone only means asking the next one. Every call is safe to repeat: a submission carries a key
of its own, and cancelling twice is cancelling once. What can't be reached after a bounded number
of rounds raises CoordinatorUnavailable, which names every address that was tried and why.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from headrace.errors import (
    BadSetting,
    CoordinatorUnavailable,
    HeadraceError,
    Refused,
    Unavailable,
    heard,
)

CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 30.0  # a store that is busy answers late; one that hangs must not hang us
ROUNDS_MAX = 3  # how often each address is tried for one call
ROUND_PAUSE_S = 0.2
ERROR_TEXT_MAX = 200  # characters of an answer that is not ours


class View(BaseModel):
    """What a coordinator shows; it uses the same classes. Fields of a newer one are kept, so that
    JSON output has them."""

    model_config = ConfigDict(frozen=True, extra="allow")


V = TypeVar("V", bound=View)


class Health(View):
    status: str
    leading: bool
    term: int | None = None
    leader: str | None = None
    version: str
    store: str
    pid: int


class ProgressView(View):
    step: str
    epoch: int = 0
    rows: int = 0
    rows_expected: int | None = None


class PipelineView(View):
    number: int
    status: str
    epoch: int = 0  # the last complete one; of a FINISHED pipeline its completed point
    rows_in: int = 0
    rows_out: int = 0
    commits: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    error: str | None = None
    execution: str | None = None
    worker: str | None = None
    spark_application: str | None = None
    progress: ProgressView | None = None
    repeatable: bool | None = None  # a crash gives the same rows again; None: not looked up
    not_repeatable: str | None = None  # why it is not


class SavepointView(View):
    """Where a job that has ended can be restored."""

    kind: str  # savepoint; or checkpoint, the last one of a failed job
    epoch: int
    sources: tuple[str, ...] = ()  # of which it has a position
    ready: tuple[str, ...] = ()  # sources that have read everything
    written: dict[str, int] = Field(default_factory=dict[str, int])  # rows, by sink
    made_at_ms: int


class CheckpointView(View):
    pipeline: int
    id: int  # strictly growing, also through a restore
    kind: str  # checkpoint, savepoint, completed, save mode
    status: str
    planned_at_ms: int
    prepared_at_ms: int | None = None
    completed_at_ms: int | None = None
    duration_ms: int | None = None
    size_bytes: int = 0  # of its plan and its stage handles
    rows_in: int | None = None
    rows_out: int | None = None


class JobView(View):
    id: str
    name: str
    status: str
    group: str
    waits_for: str | None = None
    error: str | None = None
    created_at_ms: int
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    pipelines: tuple[PipelineView, ...] = ()
    savepoint: SavepointView | None = None
    notes: tuple[str, ...] = ()  # of a restore: what is new in the job file


class WorkerView(View):
    id: str
    group: str
    slots: int
    host: str
    pid: int
    version: str
    spark_application: str
    registered_at_ms: int
    seen_at_ms: int
    executions: tuple[str, ...] = ()


class JobList(View):
    jobs: tuple[JobView, ...]


class CheckpointList(View):
    checkpoints: tuple[CheckpointView, ...]


class WorkerList(View):
    workers: tuple[WorkerView, ...]


class Client:
    """Talks to the first coordinator of `urls` that answers, and stays with it."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        token: str | None = None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._urls = [_checked(url) for url in urls]
        if not self._urls:
            raise BadSetting("no coordinator was named; give --coordinator http://HOST:PORT")
        self._closed = threading.Event()
        # No proxy from the environment: a coordinator stands in one's own network, and the token
        # goes to it and to nobody else.
        self._http = httpx2.Client(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx2.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            transport=transport,
            trust_env=False,
        )

    def close(self) -> None:
        self._closed.set()
        self._http.close()

    def health(self) -> Health:
        return self._call(Health, "GET", "/health")

    def submit_job(
        self,
        spec: Mapping[str, JsonValue],
        *,
        submission_key: str,
        group: str | None = None,
        job_id: str | None = None,
        restore: str | None = None,
    ) -> JobView:
        """Submit once, however often it is sent: the key names the submission.

        `restore`: the id of a job that has ended, which goes on under this spec.
        """
        body = {"spec": spec, "submission_key": submission_key}
        given = {"job_id": job_id, "group": group, "restore": restore}
        body |= {name: value for name, value in given.items() if value is not None}
        return self._call(JobView, "POST", "/v1/jobs", json=body)

    def job(self, job_id: str) -> JobView:
        return self._call(JobView, "GET", _of(job_id))

    def jobs(self, *, running: bool = False) -> tuple[JobView, ...]:
        path = "/v1/jobs?running=true" if running else "/v1/jobs"
        return self._call(JobList, "GET", path).jobs

    def cancel_job(self, job_id: str) -> JobView:
        return self._call(JobView, "POST", f"{_of(job_id)}/cancel")

    def savepoint_job(self, job_id: str) -> JobView:
        return self._call(JobView, "POST", f"{_of(job_id)}/savepoint")

    def checkpoints(self, job_id: str) -> tuple[CheckpointView, ...]:
        return self._call(CheckpointList, "GET", f"{_of(job_id)}/checkpoints").checkpoints

    def workers(self) -> tuple[WorkerView, ...]:
        return self._call(WorkerList, "GET", "/v1/workers").workers

    def _call(self, view: type[V], method: str, path: str, *, json: Any = None) -> V:
        tried: dict[str, str] = {}
        for attempt in range(ROUNDS_MAX):
            if attempt:
                self._closed.wait(ROUND_PAUSE_S)
            for url in tuple(self._urls):
                try:
                    answer = self._http.request(method, url + path, json=json)
                    shown = _read(view, answer, url)
                except httpx2.TransportError as error:
                    tried[url] = _why(error)
                except Unavailable as error:
                    tried[url] = str(error)
                else:
                    self._stay_with(url)
                    return shown
        listed = ", ".join(f"{url} ({why})" for url, why in tried.items())
        raise CoordinatorUnavailable(
            f"no coordinator answered; tried {listed}. Is one running there? "
            "`headrace up` starts one on this machine"
        )

    def _stay_with(self, url: str) -> None:
        self._urls.remove(url)
        self._urls.insert(0, url)


def _of(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"


def _checked(url: str) -> str:
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise BadSetting(f"coordinator address {url!r} is not a URL: {error}") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise BadSetting(f"coordinator address {url!r} is not a URL; write http://HOST:PORT")
    return url.rstrip("/")


def _why(error: httpx2.TransportError) -> str:
    if isinstance(error, httpx2.TimeoutException):
        return "no answer in time"
    return str(error) or type(error).__name__


def _read(view: type[V], answer: httpx2.Response, url: str) -> V:
    if not answer.is_success:
        raise _error_of(answer, url)
    try:
        return view.model_validate_json(answer.content)
    except ValidationError as error:
        raise Refused(
            f"what answers at {url} is not a coordinator of this version; "
            f"its answer does not read as {view.__name__.lower()} "
            f"({error.error_count()} problems)"
        ) from error


class _ErrorBody(BaseModel):
    kind: str
    message: str


class _Error(BaseModel):
    error: _ErrorBody


def _error_of(answer: httpx2.Response, url: str) -> HeadraceError:
    """The error a coordinator raised; of a class that only a newer one knows, its branch."""
    try:
        body = _Error.model_validate_json(answer.content).error
    except ValidationError:
        text = f"{url} answered {answer.status_code}: {answer.text[:ERROR_TEXT_MAX]}"
        return Unavailable(text) if answer.is_server_error else Refused(text)
    branch = Unavailable if answer.is_server_error else Refused
    return heard(body.kind, body.message) or branch(body.message)
