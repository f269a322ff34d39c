"""Jars of tasks: allowed or not, one version of each in a JVM, a new JVM for another version."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from headrace.connectors.jdbc.descriptor import DRIVER_JARS, JdbcSinkOptions
from headrace.errors import Refused
from headrace.model.jobs.spec import REDACTED, EnvSpec, PipelineSpec, PluginSpec
from headrace.model.task import Claim, Lane, TaskKind
from headrace.plugins.catalog import catalog
from headrace.plugins.jars import JarCoordinates
from headrace.protocol.messages import Assignment, TaskGivenBack
from headrace.spark.installation import JARS
from headrace.spark.jar_cache import JarCache, ResolvedJar
from headrace.worker.execution import Execution, ExecutionStopped, NotForThisWorker
from headrace.worker.jars import JarRequest, WorkerJars, jar_requests
from headrace.worker.outbox import Outbox
from tests.worker.leader import Leader, assignment, at_work, eventually, given

CODEC_1, CODEC_2 = "org.toy:codec:1", "org.toy:codec:2"


class Resolver:
    """Plays the cache: what it is asked for needs what it was told."""

    def __init__(self) -> None:
        self.needs: dict[str, Sequence[str]] = {}
        self.files: dict[str, Sequence[str]] = {}  # how the names of its jars end, if several
        self.asked: list[str] = []
        self.may_come = threading.Event()
        self.may_come.set()

    def resolve(
        self,
        wanted: Sequence[JarCoordinates],
        *,
        say: Callable[[str], None],
        waiting: Callable[[], None],
    ) -> Sequence[ResolvedJar]:
        names = [each.coordinates for each in wanted]
        self.asked += names
        say(f"fetching {names}")
        while not self.may_come.wait(0.01):
            waiting()
        parts = [name for each in names for name in (each, *self.needs.get(each, ()))]
        jars = map(JarCoordinates, parts)
        files = [(jar, end) for jar in jars for end in self.files.get(jar.coordinates, ("",))]
        return [
            ResolvedJar(jar.module, jar.version, Path(f"{jar.coordinates}{end}"))
            for jar, end in files
        ]


class Jvm:
    """A JVM that only keeps what was added to it."""

    def __init__(self, *, allowed: Sequence[str] = ()) -> None:
        self.resolver, self.added = Resolver(), list[str]()
        self.jars = WorkerJars(cast(JarCache, self.resolver), self._add, allowed=allowed)

    def _add(self, paths: Sequence[Path]) -> None:
        self.added += map(str, paths)

    def provide(self, *requests: JarRequest, job: str = "j1") -> None:
        self.jars.provide(requests, execution(job))


def execution(job: str = "j1") -> Execution:
    task = Assignment(
        claim=Claim("t", 1), kind=TaskKind.PIPELINE, lane=Lane.SLOT, payload={"job": job}
    )
    return Execution(task, cast(Outbox, None), lambda execution: None)


def request(*jars: str, by: str = "sink Toy-1", own: bool = False) -> JarRequest:
    return JarRequest(by, tuple(map(JarCoordinates, jars)), own=own)


def test_a_jar_is_added_once_with_what_it_needs() -> None:
    jvm = Jvm()
    jvm.resolver.needs["org.toy:sink:1"] = [CODEC_1]
    for job in ("j1", "j2"):
        jvm.provide(request("org.toy:sink:1"), request(CODEC_1, by="source Toy-2"), job=job)

    assert jvm.added == ["org.toy:sink:1", CODEC_1]
    assert not jvm.jars.wants_new_jvm


def test_all_jars_of_a_module_are_added() -> None:
    jvm = Jvm()
    jvm.resolver.files[CODEC_1] = ("", "-linux")
    jvm.provide(request(CODEC_1))
    assert jvm.added == [CODEC_1, f"{CODEC_1}-linux"]


@pytest.mark.req("L4")
@pytest.mark.parametrize("needs", [CODEC_2, "org.toy:other:1"], ids=["named", "needed by it"])
def test_another_version_is_given_back_with_both_named_and_wants_a_new_jvm(needs: str) -> None:
    jvm = Jvm()
    jvm.resolver.needs["org.toy:other:1"] = [CODEC_2]
    jvm.provide(request(CODEC_1), job="first")

    with pytest.raises(NotForThisWorker) as refused:
        jvm.provide(request(needs, by="source Toy-2"), job="second")

    text = str(refused.value)
    assert f"source Toy-2 of job 'second' needs {CODEC_2}" in text
    assert "has version 1 of it, for sink Toy-1 of job 'first'" in text
    assert not refused.value.whole_kind
    assert jvm.added == [CODEC_1], "nothing of it was added"
    assert jvm.jars.wants_new_jvm


def test_a_job_that_needs_two_versions_at_once_is_refused_everywhere() -> None:
    jvm = Jvm()
    with pytest.raises(Refused, match=r"two versions of org.toy:codec: source B-1 needs 2, and"):
        jvm.provide(request(CODEC_1), request(CODEC_2, by="source B-1"))
    assert jvm.added == []
    assert not jvm.jars.wants_new_jvm


def test_what_every_jvm_has_is_neither_added_nor_replaced() -> None:
    jvm = Jvm(allowed=["*:*"])
    jvm.provide(JarRequest("sink Jdbc-1", tuple(DRIVER_JARS.values())))
    with pytest.raises(Refused, match=r"every JVM starts with version 42\.7\.14 of it"):
        jvm.provide(request("org.postgresql:postgresql:42.7.1", own=True))
    assert (jvm.resolver.asked, jvm.added) == ([], [])


def test_the_driver_that_is_declared_is_the_one_that_every_jvm_has() -> None:
    shipped = {f"{jar.group}:{jar.artifact}:{jar.version}": jar.sha256 for jar in JARS}
    for jar in DRIVER_JARS.values():
        assert shipped[jar.coordinates] == jar.sha256


@pytest.mark.parametrize("allowed", [(), ("org.toy:other",), ("org.toy:codec:2",)])
def test_a_jar_that_the_job_asks_for_needs_the_workers_consent(allowed: Sequence[str]) -> None:
    jvm = Jvm(allowed=allowed)
    with pytest.raises(NotForThisWorker, match=r"--allow-jars 'org\.toy:codec'") as refused:
        jvm.provide(request(CODEC_1, by="env.jars", own=True))
    assert f"job 'j1' asks for {CODEC_1} in env.jars" in str(refused.value)
    assert jvm.resolver.asked == [], "it is not even fetched"


@pytest.mark.parametrize("allowed", ["org.toy:codec", "org.*:*", "org.toy:c*:1", "*:*"])
def test_a_jar_that_the_worker_allows_is_added(allowed: str) -> None:
    jvm = Jvm(allowed=[allowed])
    jvm.provide(request(CODEC_1, own=True))
    assert jvm.added == [CODEC_1]


def test_a_stop_ends_the_wait_for_a_jar() -> None:
    jvm, waits = Jvm(), execution()
    jvm.resolver.may_come.clear()
    waits.stop()
    before = waits.activity
    with pytest.raises(ExecutionStopped):
        jvm.jars.provide([request(CODEC_1)], waits)
    assert waits.activity > before, "who fetches gives signs of life"
    assert waits.progress.step == "fetching jars"


URL = "jdbc:postgresql://h/d"
JDBC = PluginSpec(name="Jdbc-1", plugin="Jdbc", options={"url": REDACTED, "table": "t"})
FAKE = PluginSpec(name="FakeSource-1", plugin="FakeSource", output="x")
PIPELINE = PipelineSpec(number=1, sources=(FAKE,), sinks=(JDBC,))


def test_what_a_job_needs_is_said_by_its_descriptors_options_and_env() -> None:
    env = EnvSpec(other={"jars": [CODEC_1]})
    found = jar_requests([PIPELINE], ["source", "sink"], env, {"Jdbc-1.url": URL})

    driver = DRIVER_JARS["jdbc:postgresql:"]
    own = JarRequest("env.jars", (JarCoordinates(CODEC_1),), own=True)
    assert found == [own, JarRequest("sink Jdbc-1", (driver,))]
    assert jar_requests([PIPELINE], ["source"], EnvSpec(), {}) == []


def test_a_plugin_without_its_secrets_is_left_out_when_a_job_is_settled() -> None:
    assert jar_requests([PIPELINE], ["sink"], EnvSpec(), {}, settles=True) == []
    with pytest.raises(Refused, match=r"the secret 'Jdbc-1\.url' is missing"):
        jar_requests([PIPELINE], ["sink"], EnvSpec(), {})


def test_the_options_decide_which_jars_are_needed() -> None:
    known = catalog().find("sink", "Jdbc")
    assert known is not None
    jars = (JarCoordinates(CODEC_1), JarCoordinates("org.toy:other:1"))
    all_of_them = replace(known, jars=jars, jars_for=None)
    options = {"url": URL, "table": "t"}
    assert all_of_them.jars_of(options) == jars

    def first(options: JdbcSinkOptions) -> tuple[JarCoordinates, ...]:
        return jars[:1] if options.table == "t" else jars

    by_options = replace(all_of_them, jars_for=first)
    assert by_options.jars_of(options) == jars[:1]
    assert by_options.jars_of({**options, "table": "u"}) == jars


def test_a_worker_that_wants_a_new_jvm_leaves_as_soon_as_it_is_idle(tmp_path: Path) -> None:
    leader, jvm = Leader(), Jvm()
    jvm.provide(request(CODEC_1))

    def needs_another(execution: Execution) -> None:
        jvm.jars.provide([request(CODEC_2)], execution)

    with at_work(leader, tmp_path) as worker:
        worker.runs[TaskKind.SETTLE] = needs_another
        worker.leaves_when_idle = lambda: jvm.jars.wants_new_jvm
        given(leader, worker, Claim("long", 1))
        leader.rounds()
        assert not worker.sync_loop.left_when_idle, "nothing wants it"
        other = assignment("other").model_copy(update={"kind": TaskKind.SETTLE})
        leader.give = [other]
        eventually(lambda: _given_back(leader))
        leader.rounds()
        assert not worker.sync_loop.left_when_idle, "a task runs"
        worker.work.may_end.set()
        eventually(leader.goodbyes)
        assert worker.sync_loop.left_when_idle
    assert leader.ends() == [(Claim("long", 1), "SUCCESS")]


def _given_back(leader: Leader) -> Sequence[str]:
    reports = [report for sync in leader.syncs() for report in sync.reports]
    return [report.reason for report in reports if isinstance(report, TaskGivenBack)]
