"""What a Jdbc sink staged goes when its token is spent, and not before, on a real PostgreSQL."""

from __future__ import annotations

import pytest

from headrace import seams
from headrace.connectors.jdbc.dialect import stage_name
from headrace.errors import Refused, StoreOlderThanTarget, TokenSpent
from headrace.model.jobs.epoch import CommitAt
from tests.spark.base import Base


@pytest.mark.req("E6")
def test_an_abort_spends_the_token_then_leaves_nothing_and_a_zombie_is_refused(base: Base) -> None:
    at, sink = base.at(), base.sink()
    handle = base.staged(10, at)
    staged_at_abort: list[int] = []
    seams.arm("abort spent", lambda: staged_at_abort.append(len(base.stages())))

    sink.abort(base.session, at)

    assert staged_at_abort == [1], "what was staged goes after the token is spent, not before"
    assert base.stages() == []
    with pytest.raises(TokenSpent):
        sink.commit(base.session, handle, at)
    assert base.count() == 0
    assert base.marks() == [(1, "abort", 0)]


@pytest.mark.req("E1", "E6")
def test_a_zombie_of_an_aborted_epoch_is_told_so_after_later_epochs(base: Base) -> None:
    aborted, sink = base.at(1), base.sink()
    handle = base.staged(10, aborted)
    sink.abort(base.session, aborted)
    later = base.at(2, "t1.2")
    sink.commit(base.session, base.staged(5, later), later)

    with pytest.raises(TokenSpent):
        sink.commit(base.session, handle, aborted)
    assert base.count() == 5


@pytest.mark.req("E1", "E6")
def test_of_several_epochs_that_were_aborted_none_is_taken_for_committed(base: Base) -> None:
    sink = base.sink()
    for number in (5, 6, 15):
        sink.abort(base.session, base.at(number))
    later = base.at(16, "t1.2")
    sink.commit(base.session, base.staged(3, later), later)

    for number in (5, 6, 15):
        zombie = base.at(number, "t1.2")
        with pytest.raises(TokenSpent):
            sink.commit(base.session, base.staged(10, zombie), zombie)
    assert base.count() == 3
    assert sink.commit(base.session, base.staged(3, later), later).already


@pytest.mark.req("E6")
def test_an_abort_that_comes_after_the_commit_keeps_the_rows(base: Base) -> None:
    at, sink = base.at(), base.sink()
    handle = base.staged(10, at)
    sink.commit(base.session, handle, at)

    with pytest.raises(StoreOlderThanTarget, match="holds epoch 1 with rows"):
        sink.abort(base.session, base.at(execution="t1.2"))

    assert base.count() == 10
    assert base.marks() == [(1, "data", 10)]
    assert sink.commit(base.session, handle, at).already


def test_an_abort_of_what_was_never_staged_spends_the_token(base: Base) -> None:
    base.sink().abort(base.session, base.at())

    assert base.marks() == [(1, "abort", 0)]


@pytest.mark.req("E6")
def test_a_sweep_drops_the_stage_tables_of_its_epoch_and_no_other(base: Base) -> None:
    first, second, sink = base.at(1, "t1.1"), base.at(1, "t1.2"), base.sink()
    other = base.at(2, "t1.2")
    base.staged(5, first)
    handle = base.staged(5, second)
    base.staged(5, other)
    with pytest.raises(Refused, match="is not spent"):
        sink.sweep(base.session, handle, second)
    sink.commit(base.session, handle, second)

    sink.sweep(base.session, None, second)

    assert base.stages() == [stage_name(CommitAt(other, "Jdbc-1"))]


@pytest.mark.req("E6")
def test_rows_that_went_missing_from_the_stage_are_never_committed_in_part(base: Base) -> None:
    at, sink = base.at(), base.sink()
    handle = base.staged(10, at)
    base.run(f"DELETE FROM {base.stages()[0]} WHERE id = 1003")

    with pytest.raises(Refused, match=r"of 10 rows .* 9 are left"):
        sink.commit(base.session, handle, at)
    assert base.count() == 0
    assert base.marks() == []
