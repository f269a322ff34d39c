"""What an ended job leaves at a database: its rows, and neither stage tables nor marks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace import seams
from headrace.clock import SystemClock
from headrace.connectors.jdbc.dialect import stage_name
from headrace.errors import Fenced
from headrace.model.jobs.epoch import STRAY_GRACE_S, CommitAt, EpochAt, Moment
from tests.spark.base import Base


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
