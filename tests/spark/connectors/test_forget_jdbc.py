"""What an ended job leaves at a database: its rows, and neither stage tables nor marks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace import seams
from headrace.clock import SystemClock
from headrace.connectors.jdbc.dialect import stage_name
from headrace.errors import Fenced, Refused, StoreOlderThanTarget, Unavailable
from headrace.model.jobs.epoch import STRAY_GRACE_S, CommitAt, EpochAt, Moment
from tests.spark.base import Base
from tests.spark.lake_tables.test_abort import Crash, crash


def committed(base: Base, at: EpochAt, rows: int = 5) -> Any:
    handle = base.staged(rows, at)
    base.sink().commit(base.session, handle, at)
    return handle


def other(epoch: int = 1) -> EpochAt:
    return EpochAt("somebody-else", 1, epoch, "t9.1")


def age(base: Base, seconds: float) -> None:
    """As if all that lies there had been left so long ago."""
    base.run(f"UPDATE headrace_commits SET spent_at = spent_at - interval '{seconds} seconds'")
    for table in base.stages():
        ((said,),) = base.run(f"SELECT obj_description('{table}'::regclass)")
        begin, made_ms, unit = str(said).rsplit(" ", 2)
        older = f"{begin} {int(made_ms) - round(seconds * 1000)} {unit}"
        base.run(f"COMMENT ON TABLE {table} IS '{older}'")


@pytest.mark.req("C2", "E6")
def test_rows_stay_and_stage_tables_and_marks_go(base: Base) -> None:
    sink = base.sink()
    zombies = base.staged(5, base.at(1, "t1.0"))
    committed(base, base.at(1))
    sink.abort(base.session, base.at(2))
    base.staged(5, base.at(2, "t1.0"))  # it woke after the abort
    committed(base, base.at(3))
    assert len(base.stages()) == 4

    sink.forget(base.session, base.at(3, "f.1"), owners=None)

    assert base.count() == 10
    assert base.stages() == []
    assert base.marks() == []
    with pytest.raises(Refused):
        sink.commit(base.session, zombies, base.at(1, "t1.0"))
    assert base.marks() == [], "what it did was rolled back"
    sink.forget(base.session, base.at(3, "f.2"), owners=None)
    assert base.count() == 10


@pytest.mark.req("C2", "E6")
def test_what_was_given_up_and_never_aborted_here_is_spent_and_dropped(base: Base) -> None:
    """A restore gives up what was only planned, in the store alone."""
    sink = base.sink()
    committed(base, base.at(1))
    handle = base.staged(5, base.at(2))
    sink.forget(base.session, base.at(2, "f.1"), owners=None)

    assert base.stages() == []
    assert base.marks() == []
    with pytest.raises((Refused, Unavailable)):
        sink.commit(base.session, handle, base.at(2))


@pytest.mark.req("C2")
def test_epochs_above_are_left_as_they_are_also_one_that_is_raised_meanwhile(base: Base) -> None:
    sink = base.sink()
    committed(base, base.at(1))
    handle = base.staged(5, base.at(2, "t2.1"))
    seams.arm(
        "before marks are forgotten",
        lambda: sink.commit(base.session, handle, base.at(2, "t2.1")) and None,
    )

    sink.forget(base.session, base.at(1, "f.1"), owners=None)

    assert base.marks() == [(2, "data", 5)]
    assert base.stages() == [stage_name(CommitAt(base.at(2, "t2.1"), "Jdbc-1"))]
    assert sink.commit(base.session, handle, base.at(2, "t2.1")).already
    assert base.count() == 10


@pytest.mark.req("C2", "E6")
def test_the_mark_is_there_until_all_that_was_staged_is_gone(base: Base) -> None:
    sink = base.sink()
    zombies = base.staged(5, base.at(1, "t1.0"))
    committed(base, base.at(1))
    seams.arm("before marks are forgotten", crash)
    with pytest.raises(Crash):
        sink.forget(base.session, base.at(1, "f.1"), owners=None)
    seams.disarm_all()

    assert base.stages() == []
    with pytest.raises(StoreOlderThanTarget):
        sink.commit(base.session, zombies, base.at(1, "t1.0"))
    sink.forget(base.session, base.at(1, "f.1"), owners=None)
    assert base.marks() == []


@pytest.mark.req("C2", "E1")
def test_a_zombie_that_opens_when_its_mark_is_gone_is_too_old_to_drop_rows(base: Base) -> None:
    sink = base.sink(data_save_mode="DROP_DATA")
    handle = sink.survey(base.session, base.frame(0), base.at(0))
    sink.open(base.session, handle, base.at(0))
    committed(base, base.at(1))
    sink.forget(base.session, base.at(1, "f.1"), owners=None)
    clock = SystemClock()
    asleep = Moment(clock.monotonic_s(), clock.wall_ms() - 3_601_000)  # suspended, so by the wall

    with pytest.raises(Fenced, match="began more than 3600 s ago"):
        sink.open(base.session, handle, replace(base.at(0), since=asleep))

    assert base.count() == 5
    assert base.marks() == []


@pytest.mark.req("C2")
def test_there_is_nothing_to_forget_where_nothing_was_ever_committed(base: Base) -> None:
    base.sink().forget(base.session, base.at(1), owners=())
    assert base.stages() == []


@pytest.mark.req("C5")
def test_what_jobs_that_nobody_knows_left_goes_after_the_grace(base: Base) -> None:
    sink = base.sink()
    committed(base, other(1))
    base.staged(5, other(2))
    age(base, STRAY_GRACE_S + 60)
    kept = base.at(7)
    base.staged(5, kept)

    sink.forget(base.session, base.at(1), owners=None)
    sink.forget(base.session, base.at(1), owners=("somebody-else",))
    assert len(base.stages()) == 3
    sink.forget(base.session, base.at(1), owners=())

    assert base.stages() == [stage_name(CommitAt(kept, "Jdbc-1"))]
    assert base.marks() == []
    assert base.count() == 5


@pytest.mark.req("C5", "E6")
@pytest.mark.parametrize("touched", ["mark", "stage"])
def test_a_stray_is_left_whole_while_its_owner_could_still_wake(base: Base, touched: str) -> None:
    sink = base.sink()
    if touched == "mark":
        base.staged(5, other(2))
        age(base, STRAY_GRACE_S + 60)
        committed(base, other(1))
    else:
        committed(base, other(1))
        age(base, STRAY_GRACE_S + 60)
        base.staged(5, other(2))

    sink.forget(base.session, base.at(1), owners=())

    assert len(base.stages()) == 2
    assert base.marks() == [(1, "data", 5)]


@pytest.mark.parametrize("beside", ["headrace_commits_old", "headrace_commits2"])
def test_a_table_whose_name_only_begins_like_that_of_the_marks_is_not_taken_for_it(
    base: Base, beside: str
) -> None:
    """Say a copy that somebody keeps of them."""
    base.run(f"CREATE TABLE {beside} (x int)")
    sink = base.sink()

    assert sink.read_mark(base.session, base.at()) is None
    sink.forget(base.session, base.at(0), owners=[])
    committed(base, base.at())

    mark = sink.read_mark(base.session, base.at())
    assert mark is not None
    assert mark.epoch == 1
    assert base.count() == 5
