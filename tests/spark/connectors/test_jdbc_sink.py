"""A Jdbc commit is taken once by the database itself, on a real PostgreSQL."""

from __future__ import annotations

import threading

import pytest
from pyspark.sql import functions as f

from headrace import seams
from headrace.connectors.connector import Committed
from headrace.connectors.jdbc.dialect import stage_name
from headrace.errors import StoreOlderThanTarget, Unavailable
from headrace.model.jobs.epoch import CommitAt
from tests.spark.base import Base

IN_A_TASK = b'INSERT INTO "public"."headrace_stage'
IN_A_COMMIT = b"ON CONFLICT (incarnation"


def test_what_is_staged_is_in_a_table_of_its_own_and_the_target_is_empty(base: Base) -> None:
    at = base.at()
    staged = base.sink().stage(base.session, base.frame(10), at)

    assert staged.rows == 10
    assert base.stages() == [stage_name(CommitAt(at, "Jdbc-1"))]
    ((kind,),) = base.run("SELECT relpersistence FROM pg_class WHERE relname = %s", *base.stages())
    assert kind in {"p", b"p"}, "an unlogged table is emptied by a crash of the server"
    assert base.count() == 0


@pytest.mark.req("E1")
def test_a_commit_moves_the_rows_and_raises_the_mark(base: Base) -> None:
    at, sink = base.at(epoch=3), base.sink()
    done = sink.commit(base.session, base.staged(10, at), at)

    assert not done.already
    assert done.facts["rows"] == 10
    assert done.facts["table"] == "public.orders"
    assert base.count() == 10
    assert base.marks() == [(3, "data", 10)]


@pytest.mark.req("E1", "E4")
def test_a_zombie_is_refused_after_anothers_commit_and_anothers_maintenance(base: Base) -> None:
    zombie, owner, sink = base.at(execution="t1.1"), base.at(execution="t1.2"), base.sink()
    zombies, owners = base.staged(10, zombie), base.staged(10, owner)
    sink.commit(base.session, owners, owner)
    base.run("DELETE FROM orders WHERE id = 1001")

    with pytest.raises(StoreOlderThanTarget, match=r"rows that execution t1\.2 staged"):
        sink.commit(base.session, zombies, zombie)
    assert base.count() == 9


@pytest.mark.req("E1")
def test_a_zombie_of_an_older_epoch_is_refused(base: Base) -> None:
    zombie, sink = base.at(1, "t1.1"), base.sink()
    zombies = base.staged(10, zombie)
    for epoch in (1, 2):
        at = base.at(epoch, "t1.2")
        sink.commit(base.session, base.staged(5, at), at)

    assert sink.commit(base.session, zombies, zombie).already
    assert base.count() == 10
    assert base.marks() == [(2, "data", 5)]


@pytest.mark.req("E1")
def test_a_committer_paused_in_its_transaction_keeps_the_next_one_waiting_and_no_longer(
    base: Base,
) -> None:
    """The second one meets the lock of the first, and is refused once that has committed."""
    at, sink = base.at(), base.sink()
    handle = base.staged(10, at)
    inside, go_on = threading.Event(), threading.Event()
    outcomes: dict[str, Committed] = {}

    def pause() -> None:
        if threading.current_thread().name == "first":
            inside.set()
            assert go_on.wait(240)

    def committing() -> None:
        name = threading.current_thread().name
        outcomes[name] = sink.commit(base.session, handle, at)

    seams.arm("in sink transaction", pause)
    first = threading.Thread(target=committing, name="first", daemon=True)
    second = threading.Thread(target=committing, name="second", daemon=True)
    first.start()
    assert inside.wait(240)
    second.start()
    second.join(timeout=1)
    assert second.is_alive(), "it must wait for the lock"
    go_on.set()
    first.join(timeout=240)
    second.join(timeout=240)

    assert (outcomes["first"].already, outcomes["second"].already) == (False, True)
    assert base.count() == 10


@pytest.mark.req("E3")
def test_a_commit_whose_answer_was_lost_is_found_by_its_mark(base: Base) -> None:
    at, sink = base.at(), base.sink()
    handle = base.staged(10, at)
    base.wire.lose_commit_after(IN_A_COMMIT)

    done = sink.commit(base.session, handle, at)

    assert base.wire.lost == 1
    assert not done.already, "it was our own"
    assert base.count() == 10


@pytest.mark.req("E3")
def test_a_database_that_went_away_is_not_guessed_at(base: Base) -> None:
    at, sink = base.at(), base.sink(max_commit_attempts=1)
    handle = base.staged(10, at)
    base.wire.lose_commit_after(IN_A_COMMIT)
    base.wire.close_listener_after_loss()

    with pytest.raises(Unavailable, match=r"not known whether public\.orders took the commit"):
        sink.commit(base.session, handle, at)
    assert base.stages(), "nothing is deleted"
    assert base.count() == 10


@pytest.mark.req("E1")
def test_a_task_run_again_after_its_answer_was_lost_leaves_no_row_twice(base: Base) -> None:
    at, sink = base.at(), base.sink()
    base.wire.lose_commit_after(IN_A_TASK)

    staged = sink.stage(base.session, base.frame(10), at)

    assert base.wire.lost == 1
    (stage,) = base.stages()
    assert base.run(f"SELECT count(*) FROM {stage}") == [(15,)], "both attempts left their rows"
    assert staged.rows == 10
    sink.commit(base.session, staged.handle, at)
    assert base.count() == 10


def test_a_task_that_fails_in_the_middle_leaves_no_row_twice(base: Base) -> None:
    at, sink = base.at(), base.sink(batch_size=1)
    thread = f.java_method(f.lit("java.lang.Thread"), f.lit("currentThread"))
    first_try = thread.contains("task 1.0 in stage")
    failing = f.when((f.col("id") == 8) & first_try, f.raise_error(f.lit("now")).cast("string"))
    frame = base.frame(10).withColumn("name", f.coalesce(failing, f.col("name")))

    staged = sink.stage(base.session, frame, at)
    sink.commit(base.session, staged.handle, at)

    (stage,) = base.stages()
    tried = base.run(f"SELECT DISTINCT headrace_partition, headrace_attempt FROM {stage}")
    assert len(tried) == 2
    assert base.count() == 10


def test_an_epoch_without_rows_spends_its_token_too(base: Base) -> None:
    at, sink = base.at(), base.sink()
    handle = base.staged(0, at)

    assert not sink.commit(base.session, handle, at).already
    assert sink.commit(base.session, handle, at).already
    assert base.marks() == [(1, "data", 0)]


def test_the_seams_stand_around_each_durable_step_and_inside_the_transaction(base: Base) -> None:
    names = ("before stage", "staged", "before sink commit", "in sink transaction")
    names += ("sink committed", "before sweep", "before abort", "abort spent")
    seen: list[str] = []
    for name in names:
        seams.arm(name, lambda name=name: seen.append(name))
    at, sink = base.at(), base.sink()
    handle = base.staged(1, at)
    sink.commit(base.session, handle, at)
    sink.sweep(base.session, handle, at)
    assert seen == list(names[:6])

    sink.abort(base.session, base.at(2))
    assert seen[6:] == ["before abort", "in sink transaction", "abort spent"]
