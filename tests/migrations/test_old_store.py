"""A store that the program of commit fde6afe wrote, with jobs, tables and groups at work in it.

`store_of_fde6afe.json` has every row of it, as that program's own leader wrote them (revision
0006): a job in every status that lasts, a table in every status, a resource of every fate. It is
upgraded, and then everything in it must come to its end under this program.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Connection, Engine, text

from headrace.api.group_views import resource_view
from headrace.coordinator.context import CoordinatorSettings, GroupOptions, Metrics, TableOptions
from headrace.coordinator.tables.controller import TableController
from headrace.coordinator.tables.explain import explain
from headrace.coordinator.tables.obstacles import Finding, read_snapshot
from headrace.errors import LeaderFenced
from headrace.model.jobs.epoch import EpochStatus
from headrace.model.jobs.status import JOB_ENDED, JobStatus
from headrace.model.tables.schedule import SchedulingPolicy
from headrace.model.tables.status import TableStatus
from headrace.model.task import Claim, Lane, TaskKind
from headrace.protocol.messages import Assignment, PipelinePayload, TaskEnded
from headrace.protocol.tables import (
    CommitPayload,
    CommitResult,
    Discarded,
    EvaluatePayload,
    EvaluationResult,
    RewritePayload,
)
from headrace.store.core import leases
from headrace.store.core.engine import reading, writing
from headrace.store.core.schema import OLDEST_PROGRAM, PROGRAM_LEVEL
from headrace.store.core.transactions import Term, fenced
from headrace.store.jobs import jobs
from headrace.store.migrate import migrations_config, prepare_store
from headrace.store.tables import catalogs, lake_tables
from tests.coordinator.groups.group_harness import FakeContainer, GroupHarness
from tests.coordinator.jobs.streaming import done, restored, saved
from tests.coordinator.leader_harness import TIMEOUT_S, LeaderHarness
from tests.coordinator.live_workers import LiveWorker, settles_it
from tests.coordinator.specs import ROWS, planned, prepared, stopped
from tests.coordinator.tables.lake_rows import UUID, a_plan, rewritten
from tests.coordinator.tables.table_harness import looked
from tests.fakes import FakeClock
from tests.postgresql import PostgreSQL
from tests.stores import open_store

WRITTEN = json.loads((Path(__file__).parent / "store_of_fde6afe.json").read_text())
SECRETS = ("an-old-secret", "an-old-token")
WORKER = "w-new"
ROUNDS_MAX = 60
ROUND_S = 20.0
TABLES = ("idle", "pending", "broken", "optimized", "rewriting", "committing", "planning")


@pytest.fixture(params=["sqlite", "postgresql"])
def upgraded(request: pytest.FixtureRequest, store_folder: Path) -> Iterator[Engine]:
    if request.param == "sqlite":
        engine = open_store(f"sqlite:///{store_folder}/old.db")
    else:
        server: PostgreSQL = request.getfixturevalue("postgresql")
        engine = open_store(server.url(server.create_database(template="template1")))
    config = migrations_config()
    try:
        with writing(engine) as conn:
            config.attributes["connection"] = conn
            command.upgrade(config, WRITTEN["revision"])
            _put_rows(conn)
        prepare_store(engine)
        yield engine
    finally:
        engine.dispose()


def _put_rows(conn: Connection) -> None:
    rows: Mapping[str, list[dict[str, Any]]] = WRITTEN["rows"]
    first = ("catalogs", "jobs", "lake_tables")  # what others refer to
    names = (*first, *(name for name in rows if name not in first))
    for name in reversed(names):
        conn.execute(text(f"DELETE FROM {name}"))  # what the migrations themselves put there
    for name in names:
        for row in rows[name]:
            columns = ", ".join(row)
            values = ", ".join(f":{column}" for column in row)
            conn.execute(text(f"INSERT INTO {name} ({columns}) VALUES ({values})"), row)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(wall_ms=WRITTEN["now_ms"])


@pytest.fixture
def desk(upgraded: Engine, clock: FakeClock) -> Iterator[LeaderHarness]:
    """A leader of this program, which knows nothing but the store; the old workers are gone."""
    with writing(upgraded) as conn:
        term = leases.take(conn, leases.read(conn), holder="new", address="http://new:1")
    assert term is not None
    made = LeaderHarness(upgraded, clock, term, first_id=1000)
    with made.ending:
        made.passes()
        clock.advance(TIMEOUT_S + 1)
        made.register(WORKER, slots=20, control_slots=8)
        made.passes()
        yield made


@pytest.mark.req("L4")
def test_programs_before_it_may_not_lead_any_more(upgraded: Engine) -> None:
    [lease] = WRITTEN["rows"]["leases"]
    with reading(upgraded) as conn:
        oldest = conn.execute(
            text("SELECT value FROM facts WHERE name = :name"), {"name": OLDEST_PROGRAM}
        ).scalar_one()
    assert oldest == str(PROGRAM_LEVEL)
    with pytest.raises(LeaderFenced), fenced(upgraded, Term(lease["holder"], lease["epoch"])):
        pass


@pytest.mark.req("C2", "L4")
def test_its_secrets_are_encrypted_and_still_known(upgraded: Engine) -> None:
    with reading(upgraded) as conn:
        for name in WRITTEN["rows"]:
            stored = repr(conn.execute(text(f"SELECT * FROM {name}")).all())
            assert not [secret for secret in SECRETS if secret in stored], name
        _, secrets = jobs.spec_and_secrets_of(conn, "runs")
        assert secrets == {"Console-1.password": SECRETS[0]}
        assert catalogs.secrets_of(conn, "prod") == {"prod.token": SECRETS[1]}


class Crew:
    """A worker that does whatever it is given."""

    def __init__(self, desk: LeaderHarness) -> None:
        self.desk, self.holds = desk, list[Claim]()

    def work(self) -> None:
        free = {Lane.SLOT: 20, Lane.CONTROL: 8}
        answer = self.desk.sync(WORKER, holds=self.holds, free=free)
        for claim in answer.stop:
            self.holds.remove(claim)
            self.desk.report(WORKER, stopped(claim), holds=self.holds)
        self.holds += [given.claim for given in answer.assignments]
        for given in answer.assignments:
            RUNS[TaskKind(given.kind)](self, given)

    def end(self, given: Assignment, result: dict[str, Any]) -> None:
        self.holds.remove(given.claim)
        report = TaskEnded(seq=1, claim=given.claim, outcome="SUCCESS", result=result)
        assert self.desk.report(WORKER, report, holds=self.holds).held


def run_pipeline(crew: Crew, given: Assignment) -> None:
    """Bring what is open to its end; then end with a savepoint, if that is wanted, or run on."""
    payload = PipelinePayload.model_validate(given.payload)
    for left in payload.restore.open:
        reports = [planned(given.claim, left.epoch), prepared(given.claim, left.epoch, ready=())]
        for report in reports if left.status is EpochStatus.PLANNED else ():
            assert crew.desk.report(WORKER, report, holds=crew.holds).held
        assert crew.desk.report(WORKER, done(given.claim, left.epoch), holds=crew.holds).held
    if payload.restore.savepoint:
        crew.holds.remove(given.claim)
        crew.desk.report(WORKER, saved(given.claim), holds=crew.holds)


def settle(crew: Crew, given: Assignment) -> None:
    crew.holds.remove(given.claim)
    settles_it(LiveWorker(WORKER, crew.holds), crew.desk, given)


def evaluate(crew: Crew, given: Assignment) -> None:
    payload = EvaluatePayload.model_validate(given.payload)
    found = tuple(looked(each.table.id, uuid=UUID) for each in payload.tables)
    crew.end(given, EvaluationResult(tables=found).model_dump(mode="json"))


def plan(crew: Crew, given: Assignment) -> None:
    crew.end(given, a_plan().model_dump(mode="json"))


def rewrite(crew: Crew, given: Assignment) -> None:
    crew.end(given, rewritten(RewritePayload.model_validate(given.payload).bins))


def commit(crew: Crew, given: Assignment) -> None:
    bins = tuple(each.number for each in CommitPayload.model_validate(given.payload).bins)
    result = CommitResult(outcome="COMMITTED", snapshot=99, bins=bins)
    crew.end(given, result.model_dump(mode="json"))


def discard(crew: Crew, given: Assignment) -> None:
    crew.end(given, Discarded().model_dump(mode="json"))


def discover(crew: Crew, given: Assignment) -> None:
    name = given.payload["catalog"]["name"]  # type: ignore[index,call-overload]
    crew.end(given, {"tables": {"db": list(TABLES)} if name == "headrace" else {}})


RUNS: Mapping[TaskKind, Callable[[Crew, Assignment], None]] = {
    TaskKind.PIPELINE: run_pipeline,
    TaskKind.SETTLE: settle,
    TaskKind.EVALUATE: evaluate,
    TaskKind.PLAN: plan,
    TaskKind.REWRITE: rewrite,
    TaskKind.COMMIT: commit,
    TaskKind.DISCARD: discard,
    TaskKind.DISCOVER: discover,
}


@pytest.mark.req("L4", "E2", "K7")
def test_every_job_in_it_reaches_its_end(desk: LeaderHarness) -> None:
    crew = Crew(desk)
    ends = {
        "canceling": JobStatus.CANCELED,
        "failing": JobStatus.FAILED,
        "saving": JobStatus.SAVEPOINT_DONE,
    }
    stay = {
        "runs": JobStatus.RUNNING,
        "retries": JobStatus.RUNNING,
        "waits": JobStatus.PENDING,
        "created": JobStatus.PENDING,
    }
    for _ in range(ROUNDS_MAX):
        crew.work()
        desk.clock.advance(ROUND_S)
        desk.passes()
    assert {job: desk.status(job) for job in ends} == ends
    assert {job: desk.status(job) for job in stay} == stay
    assert desk.pipeline("runs").epoch == 5
    assert desk.pipeline("runs").positions == {"FakeSource-1": 5 * ROWS}
    assert desk.pipeline("failing").rows_out == ROWS, "what was prepared is committed"
    assert "bad value" in (desk.job("failing").error or "")

    for job in stay:
        desk.commands.cancel(job)
    for _ in range(3):
        desk.passes()
        crew.work()
    desk.passes()
    assert {desk.status(job) for job in stay} == {JobStatus.CANCELED}
    restored(desk, "saved")
    assert (desk.job("saved").run, desk.pipeline("saved").epoch) == (2, 4)
    assert desk.pipeline("saved").positions == {"FakeSource-1": 3 * ROWS}
    assert desk.status("saved") not in JOB_ENDED


@pytest.mark.req("L4", "T1")
def test_every_table_in_it_reaches_its_end(desk: LeaderHarness) -> None:
    crew = Crew(desk)
    [broken] = [each for each in _findings(desk, "broken") if each.about == "failures"]
    assert "it can't be evaluated: no metadata file" in broken.text
    assert broken.way_out == "mend the reason", "what can't be seen can't be optimized at once"
    controller = TableController(desk.store, desk.clock, desk.ids, Metrics(), TableOptions())
    for _ in range(ROUNDS_MAX):
        controller.run(desk.term)
        crew.work()
        desk.clock.advance(ROUND_S)
        desk.passes()
    with reading(desk.store) as conn:
        tables = {name: lake_tables.get(conn, f"table-{name}") for name in TABLES}
        query = text("SELECT identifier, status FROM processes ORDER BY identifier")
        processes = {name.rpartition(".")[2]: status for name, status in conn.execute(query)}
    assert {name: each and each.status for name, each in tables.items()} == dict.fromkeys(
        TABLES, TableStatus.IDLE
    )
    assert {name: each and each.error for name, each in tables.items()} == dict.fromkeys(TABLES)
    assert processes["optimized"] == processes["rewriting"] == processes["committing"] == "SUCCESS"


def _findings(desk: LeaderHarness, name: str) -> Sequence[Finding]:
    now_ms = desk.clock.wall_ms()
    with reading(desk.store) as conn:
        table = lake_tables.get(conn, f"table-{name}")
        assert table is not None
        snapshot = read_snapshot(conn, table, policy=SchedulingPolicy.QUOTA, now_ms=now_ms)
    return explain(snapshot, now_ms).findings


@pytest.mark.req("L4", "R3")
def test_every_resource_in_it_reaches_its_end(desk: LeaderHarness) -> None:
    care = GroupHarness(desk, FakeContainer(), FakeContainer("stubborn"))
    options = CoordinatorSettings(
        store_url="", address="", groups=GroupOptions(containers=care.places)
    )
    with reading(desk.store) as conn:
        now_ms = desk.clock.wall_ms()
        told = {
            each: resource_view(conn, care.there(each), options, now_ms=now_ms).next
            for each in ("r-given-up", "r-stubborn")
        }
    assert "gave up after 5 attempts: exit code 137, Killed" in told["r-given-up"]
    assert "could not be stopped: deployments may not be deleted by you" in told["r-stubborn"]

    care.looks(seconds=1200)

    assert {each.id for each in care.all()} == {"r-works", "r-lost"}
    assert all(each.launch > 1 for each in care.all()), "their workers were gone: started again"
