"""What a Jdbc sink staged goes when its token is spent, and not before, on a real PostgreSQL."""

from __future__ import annotations

import pytest

from headrace.errors import Refused, TokenSpent
from tests.spark.base import Base


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


def test_an_abort_of_what_was_never_staged_spends_the_token(base: Base) -> None:
    base.sink().abort(base.session, base.at())

    assert base.marks() == [(1, "abort", 0)]


@pytest.mark.req("E6")
def test_rows_that_went_missing_from_the_stage_are_never_committed_in_part(base: Base) -> None:
    at, sink = base.at(), base.sink()
    handle = base.staged(10, at)
    base.run(f"DELETE FROM {base.stages()[0]} WHERE id = 1003")

    with pytest.raises(Refused, match=r"of 10 rows .* 9 are left"):
        sink.commit(base.session, handle, at)
    assert base.count() == 0
    assert base.marks() == []
