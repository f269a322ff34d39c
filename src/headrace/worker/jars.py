"""The jars of a worker's JVM beyond those it was started with: added when a task first needs them.

A jar stays in its JVM until that ends, and a JVM holds one version of each. So a task that needs
another version of a jar, or of something that a jar needs, is given back with the reason: another
worker may take it, and this one asks for a new JVM, which it gets as soon as it is idle. What
Spark and headrace themselves bring is never replaced, on no worker: such a task is refused.

A plug-in's jars are trusted as its package is, which somebody installed here. What a job asks for
by itself runs with all rights of the worker, too, and is given only what the worker's own setting
allows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pydantic import JsonValue

from headrace.errors import Refused
from headrace.jobfile.spec_checks import plugins_by_role
from headrace.model.jobs.spec import EnvSpec, PipelineSpec
from headrace.plugins.catalog import catalog
from headrace.plugins.jars import JarCoordinates, is_allowed
from headrace.plugins.secrets import lacks_secrets, with_secrets
from headrace.plugins.syntax_tree import Role
from headrace.spark.jar_cache import JarCache, ResolvedJar, shipped_version
from headrace.worker.execution import Execution, NotForThisWorker

log = logging.getLogger(__name__)

LOCK_POLL_S = 1.0  # while another task of this worker fetches or adds: between two signs of life


@dataclass(frozen=True, slots=True)
class JarRequest:
    """Jars that belong together: of one plug-in, or those that the job asks for."""

    by: str  # for people: "sink Jdbc-1"
    jars: tuple[JarCoordinates, ...]
    own: bool = False  # the job's own, and no plug-in's


@dataclass(frozen=True, slots=True)
class _Loaded:
    version: str
    by: str  # whose task it was added for


def jar_requests(
    pipelines: Sequence[PipelineSpec],
    roles: Sequence[Role],
    env: EnvSpec,
    secrets: Mapping[str, JsonValue],
    *,
    settles: bool = False,
) -> Sequence[JarRequest]:
    """The jars that plug-ins of these roles need, and the job's own. `settles`: nothing is read
    any more, and a plug-in whose secrets are gone is left out, as are the job's own jars: what it
    left must not wait for a worker that allows them."""
    own = () if settles else tuple(JarCoordinates(each) for each in env.jars)
    requests = [JarRequest("env.jars", own, own=True)] if own else []
    for role, plugin in chain.from_iterable(map(plugins_by_role, pipelines)):
        if role not in roles:
            continue
        descriptor = catalog().find(role, plugin.plugin)
        if descriptor is None or not descriptor.jars:
            continue  # whoever makes the plug-in says what is wrong
        if settles and lacks_secrets(plugin, descriptor, secrets):
            continue
        jars = descriptor.jars_of(with_secrets(plugin, descriptor, secrets))
        if jars:
            requests.append(JarRequest(f"{role} {plugin.name}", jars))
    return requests


class WorkerJars:
    """What was added to the JVM of this worker. Lives as long as the JVM. Safe for threads."""

    def __init__(
        self,
        cache: JarCache,
        add: Callable[[Sequence[Path]], None],
        *,
        allowed: Sequence[str] = (),
    ) -> None:
        """`add`: puts jars onto the class path of the JVM that runs. `allowed`: patterns of
        coordinates that jobs may ask for."""
        self._cache, self._add, self._allowed = cache, add, allowed
        self._lock = threading.Lock()
        self._loaded: dict[str, _Loaded] = {}  # by module
        self._added: set[Path] = set()  # a module may have several jars
        self._new_jvm = threading.Event()

    @property
    def wants_new_jvm(self) -> bool:
        """Whether a task needs another version of what this JVM has."""
        return self._new_jvm.is_set()

    def provide(self, requests: Sequence[JarRequest], execution: Execution) -> None:
        """Add what the JVM lacks of these jars, with all that they need.

        Raises NotForThisWorker when another worker may have what this one has not, Refused when
        none can, and JarsUnavailable when a jar does not come.
        """
        if not requests:
            return
        job = str(execution.assignment.payload.get("job"))
        for request in requests:
            self._check_allowed(request, job)
        lacking = {request: _beyond_shipped(request, job) for request in requests}
        with self._alone(execution):
            wanted = [
                (jar, request.by)
                for request, jars in lacking.items()
                if jars
                for jar in self._resolve(jars, execution)
            ]
            _check_agreed(wanted, job)
            self._load(wanted, job)

    def _check_allowed(self, request: JarRequest, job: str) -> None:
        if not request.own:
            return
        refused = [jar for jar in request.jars if not is_allowed(jar, self._allowed)]
        if refused:
            names = ", ".join(jar.coordinates for jar in refused)
            allows = ", ".join(self._allowed) or "none"
            raise NotForThisWorker(
                f"job {job!r} asks for {names} in env.jars, and this worker allows {allows}; start "
                f"it with --allow-jars '{refused[0].module}', or set HEADRACE_ALLOW_JARS for it, "
                "or take the jar out of the job file"
            )

    def _resolve(
        self, jars: Sequence[JarCoordinates], execution: Execution
    ) -> Sequence[ResolvedJar]:
        def say(line: str) -> None:
            execution.set_progress("fetching jars")
            log.info(line, extra={"execution": execution.id})

        def waiting() -> None:
            execution.touch()
            execution.check()

        return self._cache.resolve(jars, say=say, waiting=waiting)

    def _load(self, wanted: Sequence[tuple[ResolvedJar, str]], job: str) -> None:
        for jar, by in wanted:
            loaded = self._loaded.get(jar.module)
            if loaded is not None and loaded.version != jar.version:
                self._new_jvm.set()
                raise NotForThisWorker(
                    f"{by} of job {job!r} needs {jar.coordinates}, and the JVM of this worker has "
                    f"version {loaded.version} of it, for {loaded.by}; a JVM holds one version. "
                    "Another worker may take it; else it begins here once this worker is idle, "
                    "and has started a new JVM"
                )
        new = {jar.path: jar for jar, _ in wanted if jar.path not in self._added}
        if not new:
            return
        self._add(list(new))
        self._added |= new.keys()
        for jar, by in wanted:
            self._loaded.setdefault(jar.module, _Loaded(jar.version, f"{by} of job {job!r}"))
        added = ", ".join(jar.coordinates for jar in new.values())
        log.info("jars added to the JVM", extra={"jars": added, "job": job})

    @contextmanager
    def _alone(self, execution: Execution) -> Generator[None]:
        while not self._lock.acquire(timeout=LOCK_POLL_S):
            execution.touch()
            execution.check()
        try:
            yield
        finally:
            self._lock.release()


def _beyond_shipped(request: JarRequest, job: str) -> Sequence[JarCoordinates]:
    """Those of the jars that not every JVM has. Raises Refused for another version of one that
    every JVM has: its own is loaded first, whatever is added."""
    lacking: list[JarCoordinates] = []
    for jar in request.jars:
        shipped = shipped_version(jar)
        if shipped is None:
            lacking.append(jar)
        elif shipped != jar.version:
            raise Refused(
                f"{request.by} of job {job!r} needs {jar.coordinates}, and every JVM starts with "
                f"version {shipped} of it, which would be used instead; ask for {shipped}, or "
                "for nothing"
            )
    return lacking


def _check_agreed(wanted: Sequence[tuple[ResolvedJar, str]], job: str) -> None:
    """Refuse what no worker can run: two versions of a jar in one task."""
    first: dict[str, tuple[ResolvedJar, str]] = {}
    for jar, by in wanted:
        other, other_by = first.setdefault(jar.module, (jar, by))
        if other.version != jar.version:
            raise Refused(
                f"job {job!r} needs two versions of {jar.module}: {by} needs {jar.version}, and "
                f"{other_by} needs {other.version}; a JVM holds one. Make two jobs of it, or use "
                "versions of both that agree"
            )
