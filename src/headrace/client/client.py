"""The client of the HTTP API: calls about jobs, and the failover between coordinators.

A client knows one or more coordinators. Any of them answers any question, so a coordinator that
is gone only means asking the next one. Every call is idempotent: a submission carries a key of its
own, and cancelling twice is cancelling once. After a bounded number of rounds a call raises
CoordinatorUnavailable, which names every address that was tried, how often, for how long and why
it failed.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlencode

import httpx2
from pydantic import BaseModel, JsonValue, ValidationError

from headrace.client.groups import GroupCalls
from headrace.client.tables import TableCalls
from headrace.client.views import (
    CheckpointList,
    CheckpointView,
    EndedView,
    Health,
    HistoryList,
    IdList,
    JobList,
    JobView,
    LogList,
    SavepointDeleted,
    View,
)
from headrace.clock import SystemClock
from headrace.errors import (
    ID_PREFIX_MIN,
    BadSetting,
    CoordinatorUnavailable,
    HeadraceError,
    NotFound,
    Refused,
    Unavailable,
    error_of_kind,
)

CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 30.0  # a busy store answers late; one that hangs must not block the client
ROUNDS_MAX = 3  # tries of each address for one call
ROUND_PAUSE_S = 0.2
ERROR_TEXT_MAX = 200  # characters that are quoted of an answer that is no coordinator's
HISTORY_SHOWN = 100  # runs, by default
ID_DIGITS = 32  # of a generated id
_ID_PREFIX = re.compile(f"[0-9a-fA-F]{{{ID_PREFIX_MIN},{ID_DIGITS}}}")

V = TypeVar("V", bound=View)


class Client(TableCalls, GroupCalls):
    """Talks to the first coordinator of `urls` that answers, and stays with it."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        token: str | None = None,
        transport: httpx2.BaseTransport | None = None,
        known_from: Callable[[], str] | None = None,
    ) -> None:
        """`known_from` is called when no coordinator answers.

        Its text ends the error: where the addresses come from, and what to do.
        """
        self._known_from, self._clock = known_from, SystemClock()
        self._urls = [_checked(url) for url in urls]
        if not self._urls:
            raise BadSetting("no coordinator was named; give --coordinator http://HOST:PORT")
        self._closed = threading.Event()
        # No proxy from the environment: a coordinator is in the user's own network, and no other
        # host may see the token.
        self._http = httpx2.Client(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx2.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            transport=transport,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._closed.set()
        self._http.close()

    def health(self) -> Health:
        return self._call(Health, "GET", "/health")

    def submit_job(
        self,
        spec: BaseModel | Mapping[str, JsonValue],
        *,
        submission_key: str,
        group: str | None = None,
        job_id: str | None = None,
        restore: str | None = None,
    ) -> JobView:
        """Submit a job. Idempotent: the key identifies the submission, however often it is sent.

        `spec`: what `read_job` returned, or its JSON. `restore`: the id of a job that has ended,
        which goes on under this spec.
        """
        content = spec.model_dump(mode="json") if isinstance(spec, BaseModel) else spec
        body = {"spec": content, "submission_key": submission_key}
        optional = {"job_id": job_id, "group": group, "restore": restore}
        body |= {name: value for name, value in optional.items() if value is not None}
        return self._call(JobView, "POST", "/v1/jobs", json=body)

    def full_id(self, kind: str, typed: str) -> str:
        """The one id with this prefix; `typed` itself when there is none, or when it is no prefix.

        `kind`: job, worker or resource. Generated ids are in lower case, and may be typed in upper
        case; an id that a user chose with upper-case letters wins.
        """
        prefix = typed.lower()
        whole = len(typed) == ID_DIGITS and typed == prefix
        if whole or _ID_PREFIX.fullmatch(typed) is None:
            return typed
        if typed != prefix and self._is_known(kind, typed):
            return typed
        query = urlencode({"kind": kind, "prefix": prefix})
        try:
            ids = self._call(IdList, "GET", f"/v1/ids?{query}").ids
        except NotFound:  # an older coordinator, which knows no prefixes
            return typed
        match ids:
            case (only,):
                return only
            case () | (_, *_) if typed in ids or not ids:
                return typed
            case _:
                raise BadSetting(
                    f"more than one {kind} begins with {typed!r}: {', '.join(ids)}; type more of it"
                )

    def _is_known(self, kind: str, key: str) -> bool:
        calls = {"job": self.job, "worker": self.worker, "resource": self.resource}
        try:
            calls[kind](key)
        except NotFound:
            return False
        return True

    def job(self, job_id: str) -> JobView:
        return self._call(JobView, "GET", _job_path(job_id))

    def jobs(self) -> tuple[JobView, ...]:
        """The jobs that have not ended; `history` has the others."""
        return self._call(JobList, "GET", "/v1/jobs").jobs

    def history(
        self,
        job: str | None = None,
        *,
        status: str | None = None,
        name: str | None = None,
        most: int = HISTORY_SHOWN,
    ) -> tuple[EndedView, ...]:
        """How runs of jobs ended, the latest first."""
        parameters = {"job": job, "status": status, "name": name, "most": most}
        query = urlencode({key: value for key, value in parameters.items() if value is not None})
        return self._call(HistoryList, "GET", f"/v1/history?{query}").runs

    def cancel_job(self, job_id: str) -> JobView:
        return self._call(JobView, "POST", f"{_job_path(job_id)}/cancel")

    def settle_job(self, job_id: str) -> JobView:
        """Settle now what an ended job left open at its targets, as far as that is safe."""
        return self._call(JobView, "POST", f"{_job_path(job_id)}/settle")

    def savepoint_job(self, job_id: str) -> JobView:
        return self._call(JobView, "POST", f"{_job_path(job_id)}/savepoint")

    def delete_savepoint(self, job_id: str) -> SavepointDeleted:
        """Delete the savepoint of a job, which can't be restored from then on."""
        return self._call(SavepointDeleted, "DELETE", f"{_job_path(job_id)}/savepoint")

    def checkpoints(self, job_id: str) -> tuple[CheckpointView, ...]:
        return self._call(CheckpointList, "GET", f"{_job_path(job_id)}/checkpoints").checkpoints

    def logs(self, job_id: str, *, tail: int | None = None, after: str | None = None) -> LogList:
        """The last log lines about a job (`tail`), or those that came after a cursor (`after`)."""
        parameters = {"tail": tail, "after": after}
        query = urlencode({key: value for key, value in parameters.items() if value is not None})
        return self._call(LogList, "GET", f"{_job_path(job_id)}/logs?{query}")

    def _call(self, view: type[V], method: str, path: str, *, json: Any = None) -> V:
        """Ask each coordinator in turn until one answers, for at most ROUNDS_MAX rounds."""
        tried: dict[str, str] = {}
        since_s = self._clock.monotonic_s()
        for attempt in range(ROUNDS_MAX):
            if attempt:
                self._closed.wait(ROUND_PAUSE_S)
            for url in tuple(self._urls):
                # Last until it answers: if this call is abandoned, the next one asks another.
                self._ask_last(url)
                try:
                    answer = self._http.request(method, url + path, json=json)
                    result = _read(view, answer, url)
                except httpx2.TransportError as error:
                    tried[url] = _transport_problem(error)
                except Unavailable as error:
                    tried[url] = str(error)
                else:
                    self._stay_with(url)
                    return result
        raise self._unavailable(tried, self._clock.monotonic_s() - since_s)

    def _unavailable(self, tried: Mapping[str, str], for_s: float) -> CoordinatorUnavailable:
        listed = ", ".join(f"{url} ({why})" for url, why in tried.items())
        way_out = self._known_from() if self._known_from else "check that one runs there"
        return CoordinatorUnavailable(
            f"no coordinator answers: {listed}, asked {ROUNDS_MAX} times in {for_s:.1f} s; "
            f"{way_out}"
        )

    # Both assign `_urls` once: an abandoned call may still end in another thread.
    def _stay_with(self, url: str) -> None:
        self._urls = [url, *(other for other in self._urls if other != url)]

    def _ask_last(self, url: str) -> None:
        self._urls = [*(other for other in self._urls if other != url), url]

    @property
    def has_several_addresses(self) -> bool:
        return len(self._urls) > 1


def _job_path(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"


def check_address(url: str) -> None:
    """Refuse an address that holds a user name or a password, without repeating it.

    Addresses are shown in errors, logs and lists.
    """
    if "@" in url:
        raise BadSetting(
            "a coordinator address holds a user name or a password (before the '@'), and no "
            "coordinator asks for one: write http://HOST:PORT; the token goes into HEADRACE_TOKEN"
        )


def _checked(url: str) -> str:
    check_address(url)
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise BadSetting(f"coordinator address {url!r} is not a URL: {error}") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise BadSetting(f"coordinator address {url!r} is not a URL; write http://HOST:PORT")
    return url.rstrip("/")


def _transport_problem(error: httpx2.TransportError) -> str:
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
    """The error that a coordinator raised; its branch, when only newer programs know its class."""
    try:
        body = _Error.model_validate_json(answer.content).error
    except ValidationError:
        text = f"{url} answered {answer.status_code}: {answer.text[:ERROR_TEXT_MAX]}"
        return Unavailable(text) if answer.is_server_error else Refused(text)
    branch = Unavailable if answer.is_server_error else Refused
    return error_of_kind(body.kind, body.message) or branch(body.message)
