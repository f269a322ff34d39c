"""Every plugin beside every other: a covering set of all pairs, each a whole job of ten rows.
Transforms stand in chains of a few, so that a new one costs next to nothing.

Which plugins there are is asked of the declarations, so a new one is in it without an edit here,
and without a sample in tests/spark/samples.py this fails. Jobs are read from their text, submitted
to a store, run on the one warm session and reported back; the stores take turns.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.api.job_views import view_of
from headrace.client.views import PipelineView
from headrace.clock import SystemClock
from headrace.jobfile.reader import read_job
from headrace.model.jobs.epoch import Retention
from headrace.model.jobs.status import JobStatus
from headrace.plugins.catalog import catalog, installed
from headrace.store.core import leases
from headrace.store.core.engine import reading, writing
from headrace.store.core.keyring import own_file
from headrace.worker.execution import Execution
from headrace.worker.outbox import Outbox
from headrace.worker.runner import Runner
from headrace.worker.warm_session import WarmSpark, task_session
from tests.coordinator.leader_harness import LeaderHarness
from tests.fakes import FakeClock
from tests.postgresql import PostgreSQL
from tests.spark import samples
from tests.spark.samples import INPUT, ROWS, Place
from tests.spark.wire import Wire
from tests.stores import KEY, open_store
from tests.worker.leader import BOUND_S

DIRECT = "none"  # no transform: the sink reads the source's table
CHAIN_MAX = 4  # transforms one behind the other in a job
Triple = tuple[str, str, str]
Pair = tuple[int, str, int, str]  # a place in the triple and who stands there, twice


def pairs_of(triple: Triple) -> set[Pair]:
    return {(a, triple[a], b, triple[b]) for a, b in itertools.combinations(range(3), 2)}


def covering(*factors: Sequence[str]) -> list[Triple]:
    """Triples that hold every pair at least once: of all that are left, the one with most."""
    every: list[Triple] = [(a, b, c) for a, b, c in itertools.product(*factors)]
    left = {pair for triple in every for pair in pairs_of(triple)}
    chosen: list[Triple] = []
    while left:
        best = max(every, key=lambda triple: len(pairs_of(triple) & left))
        chosen.append(best)
        left -= pairs_of(best)
    return chosen


def chains(names: Sequence[str]) -> list[str]:
    """All of them, a few in each, by their names."""
    return ["+".join(names[at : at + CHAIN_MAX]) for at in range(0, len(names), CHAIN_MAX)]


PAIRS = covering(
    sorted(catalog().names("source")),
    [DIRECT, *chains(sorted(catalog().names("transform")))],
    sorted(catalog().names("sink")),
)


class Coordinators:
    """A leader on each store, and a worker of theirs that is this process."""

    def __init__(self, urls: Sequence[str], home: Path, runner: Runner) -> None:
        # Both write to the same targets, whose marks are named by jobs: no job id of one may be an
        # id of the other, or the target of a new job is ahead of its store (E7).
        firsts = itertools.count(1, 1_000_000)
        self._leaders = [_leader(url, first_id=next(firsts)) for url in urls]
        self._desks = itertools.cycle(self._leaders)
        self._homes = (home / f"w{number}" for number in itertools.count(1))
        self._runner = runner

    def close(self) -> None:
        for desk in self._leaders:
            desk.ending.close()
            desk.store.dispose()

    def run(self, text: str) -> PipelineView:
        """The only pipeline of a job, as people see it at its end."""
        desk = next(self._desks)
        # Each time anew: what is installed may change from test to test.
        desk.register("w1", plugins=[(each.role, each.name) for each in installed()])
        job = desk.submit(read_job("pair.json", text=text))
        desk.passes()
        [assignment] = desk.sync("w1").assignments
        desk.sync("w1", holds=[assignment.claim], free={})
        lock = threading.Lock()

        def report() -> None:
            with lock:
                for one in outbox.pending(10):
                    outbox.acknowledge([desk.report("w1", one, holds=[assignment.claim])])

        outbox = Outbox(next(self._homes), posted=report)
        execution = Execution(assignment, outbox, self._runner.pipeline)
        execution.start()
        assert execution.ended.wait(BOUND_S * 3)
        outbox.close()
        desk.passes()
        with reading(desk.store) as conn:
            view = view_of(conn, desk.job(job), Retention())
        assert view.status == JobStatus.FINISHED, view.error
        return view.pipelines[0]


def _leader(url: str, *, first_id: int) -> LeaderHarness:
    store = open_store(url)
    with writing(store) as conn:
        term = leases.take(conn, leases.read(conn), holder="pairs", address="http://p:1")
    assert term is not None
    return LeaderHarness(store, FakeClock(), term, first_id=first_id)


@pytest.fixture(scope="module")
def coordinators(
    warm: WarmSpark,
    warehouse: str,
    postgresql: PostgreSQL,
    sqlite_template: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Coordinators]:
    home = tmp_path_factory.mktemp("pairs")
    (home / "store.db").write_bytes(sqlite_template.read_bytes())
    own_file(home / "store.db").write([KEY])
    urls = [f"sqlite:///{home}/store.db", postgresql.url(postgresql.create_database())]
    made = Coordinators(urls, home, Runner(warm, SystemClock(), warehouse=warehouse))
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(
    warm: WarmSpark,
    warehouse: str,
    postgresql: PostgreSQL,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Place]:
    folder = postgresql.server.get_postmaster_info().socket_dir
    wire = Wire(f"{folder}/.s.PGSQL.5432")
    with task_session(warm, "pairs") as session:
        session.sql("CREATE NAMESPACE IF NOT EXISTS headrace.pairs")  # pyright: ignore
        yield Place(
            folder=tmp_path_factory.mktemp("files"),
            warehouse=Path(warehouse.removeprefix("file:")),
            session=session,
            server=postgresql,
            wire=wire,
            database=postgresql.create_database(template="template1"),
            printed=lambda: "",
        )
    wire.close()


def _job(triple: Triple, source: Any, sink: Any) -> str:
    of, by, to = triple
    names = [] if by == DIRECT else by.split("+")
    tables = [INPUT, *(f"made{number}" for number, _ in enumerate(names, 1))]
    transforms = [
        {"plugin_name": name, "plugin_input": [read], "plugin_output": made}
        | dict(samples.TRANSFORMS[name])
        for name, (read, made) in zip(names, itertools.pairwise(tables), strict=True)
    ]
    return json.dumps(
        {
            "env": {"job.mode": "BATCH", "parallelism": 1},
            "source": [{"plugin_name": of, "plugin_output": INPUT, **source}],
            "transform": transforms,
            "sink": [{"plugin_name": to, "plugin_input": [tables[-1]], **sink}],
        }
    )


@pytest.mark.parametrize(
    ("role", "known"),
    [
        ("source", samples.SOURCES),
        ("transform", samples.TRANSFORMS),
        ("sink", samples.SINKS),
    ],
)
def test_every_plugin_has_a_sample(role: Any, known: Any) -> None:
    missing = sorted({*catalog().names(role)} - {*known})
    assert not missing, f"{role} {missing[0]} has no sample; add one to tests/spark/samples.py"


def test_every_pair_is_covered() -> None:
    covered = {pair for triple in PAIRS for pair in pairs_of(triple)}
    sources, sinks = catalog().names("source"), catalog().names("sink")
    transforms = catalog().names("transform")
    assert {(0, source, 2, sink) for source in sources for sink in sinks} <= covered
    factors = sorted(len(each) for each in (sources, [DIRECT, *transforms], sinks))
    assert len(PAIRS) <= factors[-1] * factors[-2] + len(transforms), "few are enough"


@pytest.mark.parametrize("triple", PAIRS, ids=" to ".join)
def test_ten_rows_arrive_once_and_are_counted(
    triple: Triple,
    coordinators: Coordinators,
    shared: Place,
    capsys: pytest.CaptureFixture[str],
) -> None:
    of, _, to = triple
    place = replace(shared, printed=lambda: capsys.readouterr().out)
    sink = samples.SINKS[to](place)
    text = _job(triple, samples.SOURCES[of](place), sink.options)

    done = coordinators.run(text)

    found = sink.read()
    assert found is None or sorted(found) == ROWS
    assert list(done.read.values()) == list(done.written.values()) == [len(ROWS)]
    assert (done.rows_in, done.rows_out) == (len(ROWS), len(ROWS))


@pytest.mark.req("E8")
def test_a_job_whose_rows_are_deleted_too_ends_with_those_that_were_chosen(
    coordinators: Coordinators, shared: Place
) -> None:
    """The kinds go through a query and a choice of fields; only inserted rows reach the table."""
    given = [{"kind": "INSERT", "fields": [number, name]} for number, name in ROWS]
    given += [{"kind": kind, "fields": [3, "x"]} for kind in ("DELETE", "UPDATE_BEFORE")]
    chain = [
        ("Sql", {"query": f"select name, id, 1 as one from {INPUT} where id >= 0"}),
        ("Filter", {"exclude_fields": ["one"]}),
        ("FilterRowKind", {"include_kinds": ["INSERT"]}),
    ]
    sink = samples.SINKS["Iceberg"](shared)
    tables = [INPUT, "one", "two", "three"]
    text = json.dumps(
        {
            "env": {"job.mode": "BATCH", "parallelism": 1},
            "source": [
                {
                    "plugin_name": "FakeSource",
                    "plugin_output": INPUT,
                    "schema": samples.SCHEMA,
                    "rows": given,
                }
            ],
            "transform": [
                {"plugin_name": name, "plugin_input": [made_of], "plugin_output": makes, **options}
                for (name, options), made_of, makes in zip(chain, tables, tables[1:], strict=False)
            ],
            "sink": [{"plugin_name": "Iceberg", "plugin_input": [tables[-1]], **sink.options}],
        }
    )

    done = coordinators.run(text)

    assert sorted(sink.read() or ()) == ROWS
    assert list(done.read.values()) == [len(given)]
    assert list(done.written.values()) == [len(ROWS)]
