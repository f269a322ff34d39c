"""Submitting: once for each key, under a free and usable id, with its secrets apart."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import Engine, select, update

from headrace.coordinator.jobs.commands import Commands
from headrace.coordinator.jobs.failing_jobs import FIRST_PAUSE_S
from headrace.coordinator.jobs.job_end import KnownJob
from headrace.errors import BadSetting, Refused, StoreUnavailable
from headrace.logs import TextFormatter
from headrace.model.ids import RandomIds
from headrace.model.jobs.spec import REDACTED, JobSpec
from headrace.model.jobs.status import JOB_ENDED, JobStatus
from headrace.seams import arm
from headrace.store.core import transactions
from headrace.store.core.engine import reading, writing
from headrace.store.jobs import cleanups
from headrace.store.jobs.jobs import spec_and_secrets_of
from headrace.store.jobs.schema import job_secrets, pipelines
from headrace.store.jobs.schema import jobs as job_rows
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import SECRET, spec, stopped
from tests.fakes import FakeClock
from tests.stores import key_away

RACERS = 6
BOUND_S = 120.0  # for a state to come, also on a busy machine


def with_secret() -> JobSpec:
    plain = spec()
    [pipeline] = plain.pipelines
    sink = pipeline.sinks[0].model_copy(
        update={
            "plugin": "Iceberg",
            "name": "Iceberg-1",
            "options": {"table": "people", "iceberg.catalog.config": {"s3.secret": REDACTED}},
        }
    )
    return plain.model_copy(
        update={
            "pipelines": (pipeline.model_copy(update={"sinks": (sink,)}),),
            "secrets": {"Iceberg-1.iceberg.catalog.config.s3.secret": SECRET},
        }
    )


def everything(store: Engine) -> str:
    """All rows of all tables."""
    with reading(store) as conn:
        return "\n".join(
            str(tuple(row))
            for table in job_rows.metadata.sorted_tables
            for row in conn.execute(select(table))
        )


def secrets_kept(store: Engine) -> int:
    with reading(store) as conn:
        return len(conn.execute(select(job_secrets)).all())


def test_the_same_key_gives_the_same_job_in_whatever_state(desk: LeaderHarness) -> None:
    def submit() -> KnownJob:
        return desk.commands.submit(spec(), submission_key="k", group="default")

    first = submit()
    assert submit() == first
    desk.register("w1")
    desk.passes()
    desk.finish("w1", desk.claimed("w1"))
    desk.passes()

    again = submit()
    assert again.id == first.id
    assert again.status is JobStatus.FINISHED


def test_the_same_key_submitted_by_many_at_once_gives_one_job(
    store: Engine, clock: FakeClock
) -> None:
    start = Barrier(RACERS)
    commands = Commands(store, clock, RandomIds())

    def submit(_: int) -> str:
        start.wait(BOUND_S)
        return commands.submit(spec(), submission_key="k", group="default").id

    with ThreadPoolExecutor(RACERS) as pool:
        assert len(set(pool.map(submit, range(RACERS)))) == 1
    with reading(store) as conn:
        assert len(conn.execute(select(pipelines)).all()) == 1


def test_one_id_submitted_under_many_keys_at_once_is_one_job_and_refusals(
    store: Engine, clock: FakeClock
) -> None:
    start = Barrier(RACERS)
    commands = Commands(store, clock, RandomIds())

    def submit(number: int) -> str:
        start.wait(BOUND_S)
        try:
            return commands.submit(
                spec(), submission_key=f"k{number}", job_id="mine", group="default"
            ).id
        except Refused as error:
            return str(error)

    with ThreadPoolExecutor(RACERS) as pool:
        said = list(pool.map(submit, range(RACERS)))
    assert said.count("mine") == 1
    assert set(said) == {"mine", "job id 'mine' is taken; submit under another id"}


def test_a_submission_whose_answer_was_lost_finds_itself(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "PAUSES_S", (0.0,))
    answers = iter([StoreUnavailable("the answer was lost")])

    def lose() -> None:
        if lost := next(answers, None):
            raise lost

    arm("transaction committed", lose)

    job = desk.submit(job_id="mine")

    assert desk.status(job) is JobStatus.CREATED


def test_a_taken_id_is_refused(desk: LeaderHarness) -> None:
    desk.submit(job_id="mine")

    with pytest.raises(Refused, match="job id 'mine' is taken; submit under another id"):
        desk.submit(job_id="mine")


@pytest.mark.parametrize("name", ["-x", ".x", "a b", "a/b", "ü", "x" * 101, "a\n", "../etc"])
def test_a_name_that_can_not_be_used_is_refused(desk: LeaderHarness, name: str) -> None:
    with pytest.raises(BadSetting, match=r"job id .* can't be used; take up to 100 letters"):
        desk.submit(job_id=name)
    with pytest.raises(BadSetting, match=r"group .* can't be used"):
        desk.submit(group=name)


def test_a_group_without_a_name_is_refused(desk: LeaderHarness) -> None:
    with pytest.raises(BadSetting, match="group ''"):
        desk.submit(group="")


@pytest.mark.req("C2")
def test_a_secret_is_delivered_and_stands_nowhere_else(
    desk: LeaderHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.handler.setFormatter(TextFormatter("%(message)s"))
    job = desk.submit(with_secret())
    desk.register("w1")
    desk.passes()
    [assignment] = desk.sync("w1").assignments

    assert assignment.payload["secrets"] == {"Iceberg-1.iceberg.catalog.config.s3.secret": SECRET}
    payload = {k: v for k, v in assignment.payload.items() if k != "secrets"}
    assert SECRET not in json.dumps(payload)
    assert SECRET not in everything(desk.store)
    assert secrets_kept(desk.store) == 1
    desk.finish("w1", assignment.claim)
    desk.passes()
    assert desk.status(job) is JobStatus.FINISHED
    assert SECRET not in everything(desk.store)
    assert SECRET not in caplog.text


@pytest.mark.req("C2")
def test_secrets_of_sources_and_env_go_with_the_end_and_those_of_sinks_with_the_targets(
    desk: LeaderHarness,
) -> None:
    made = with_secret()
    also = {
        "FakeSource-1.password": "of a source",
        "env.spark.hadoop.password": "of all",
        "Iceberg-10.password": "of nobody",
    }
    made = made.model_copy(update={"secrets": {**made.secrets, **also}})
    job, claim = desk.given(made)
    incarnation = desk.job(job).incarnation
    desk.commands.cancel(job)
    desk.passes()
    assert secrets_kept(desk.store) == 1, "it has not ended"
    desk.report("w1", stopped(claim))
    desk.passes()

    assert secrets_kept(desk.store) == 0, "in the transaction that ended it"
    for wait_s in (0, 60):
        desk.clock.advance(wait_s)
        desk.clean()
        with reading(desk.store) as conn:
            assert cleanups.spec_and_secrets_of(conn, incarnation)[1] == with_secret().secrets


@pytest.mark.req("C2")
def test_a_job_ends_also_when_its_secrets_can_not_be_decrypted(
    desk: LeaderHarness, caplog: pytest.LogCaptureFixture
) -> None:
    job, claim = desk.given(with_secret())
    with writing(desk.store) as conn:
        stored = conn.execute(select(job_secrets.c.sealed)).scalar_one()
        conn.execute(update(job_secrets).values(sealed={**stored, "names": ["other"]}))

    desk.finish("w1", claim)
    desk.passes()

    assert desk.status(job) is JobStatus.FINISHED
    assert secrets_kept(desk.store) == 0
    assert "secrets of an ended job are lost" in caplog.text


@pytest.mark.req("C2")
def test_a_job_whose_key_is_away_ends_once_it_is_back_and_loses_no_secret(
    desk: LeaderHarness,
) -> None:
    job, claim = desk.given(with_secret())
    incarnation = desk.job(job).incarnation
    desk.finish("w1", claim)
    with key_away(desk.store):
        desk.passes()
        assert desk.status(job) not in JOB_ENDED
        assert secrets_kept(desk.store) == 1

    desk.clock.advance(FIRST_PAUSE_S)
    desk.passes()

    assert desk.status(job) is JobStatus.FINISHED
    with reading(desk.store) as conn:
        assert cleanups.spec_and_secrets_of(conn, incarnation)[1] == with_secret().secrets


def test_a_secret_that_was_left_in_the_options_is_taken_out_of_them(desk: LeaderHarness) -> None:
    apart = with_secret()
    [pipeline] = apart.pipelines
    options = {"table": "people", "iceberg.catalog.config": {"s3.secret": SECRET}}
    sink = pipeline.sinks[0].model_copy(update={"options": options})
    careless = apart.model_copy(
        update={
            "env": apart.env.model_copy(update={"other": {"spark.hadoop.password": SECRET}}),
            "pipelines": (pipeline.model_copy(update={"sinks": (sink,)}),),
            "secrets": {},
        }
    )

    job = desk.submit(careless)

    assert SECRET not in everything(desk.store)
    with reading(desk.store) as conn:
        assert spec_and_secrets_of(conn, job)[1] == {
            "Iceberg-1.iceberg.catalog.config.s3.secret": SECRET,
            "env.spark.hadoop.password": SECRET,
        }


def test_a_submission_key_with_a_nul_is_refused(desk: LeaderHarness) -> None:
    with pytest.raises(BadSetting, match="NUL"):
        desk.commands.submit(spec(), submission_key="a\0b", group="default")
