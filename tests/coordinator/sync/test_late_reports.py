"""Late news is a logged no-op (C1): whatever comes twice, early or late, the end is the same.

What a worker's outbox holds is said in its order, and again until it is acknowledged. So the
ordered life of a job is the measure, and beside each report of it anything may be said that its
executions ever say: what was said before, what is said later, reports of an execution that was
lost. (Only "it failed, and would fail again" is not said before its time: who says so has failed.)
A report out of its turn is refused, or is the very step that was due; an end that is said too
early costs the execution its claim, and the next one goes on from the last completed epoch. When
all has been said in order the job stands where the ordered life would have left it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from headrace.model.jobs.status import JobStatus
from headrace.protocol.messages import Report
from tests.coordinator.jobs.ended import wait_and_clean
from tests.coordinator.jobs.lives import Life, Living, all_rows, standing
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import ROWS
from tests.examples import examples

LATE_MAX = 60  # reports said again at once: fewer than a sync may carry
EXAMPLES_MAX = 10

_names = count(1)
_OPEN_ENDS = [JobStatus.FAILED, JobStatus.CANCELED]
LIVES = st.builds(
    Life,
    end=st.sampled_from(
        [JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED, JobStatus.SAVEPOINT_DONE]
    ),
    pipelines=st.integers(1, 2),
    epochs=st.integers(1, 3),
    left=st.integers(0, 2),
    lost_after=st.one_of(st.none(), st.integers(0, 7)),
).map(lambda life: life if life.end in _OPEN_ENDS else _closed(life))
FINISHING = Life(JobStatus.FINISHED)
RESTORABLE = frozenset({JobStatus.SAVEPOINT_DONE, JobStatus.FAILED})

lives = examples(
    EXAMPLES_MAX,
    shares_a_store=True,
    phases=[Phase.explicit, Phase.generate],  # a life is short; to shrink one takes minutes
)


def _closed(life: Life) -> Life:
    """A job that finishes or ends with a savepoint leaves nothing open."""
    return Life(life.end, life.pipelines, life.epochs, 0, life.lost_after)


def name() -> str:
    return f"job-{next(_names)}"


def lived(desk: LeaderHarness, life: Life) -> Living:
    """A job that lived in good order."""
    living = Living(desk, name())
    living.submit(life)
    living.begin()
    living.go_on(life)
    return living


def in_any_order(data: st.DataObject, said: Sequence[Report]) -> Sequence[Report]:
    """All of them, in any order, and some of them more often."""
    more = data.draw(st.lists(st.sampled_from(said), max_size=8), label="said again")
    return data.draw(st.permutations([*said, *more]), label="order")[:LATE_MAX]


def said_late(desk: LeaderHarness, data: st.DataObject, living: Living) -> None:
    """All that it ever said comes once more: acknowledged, and nothing is written."""
    old = [report for report in living.said if report.claim not in living.holds()]
    before = all_rows(desk)
    assert not any(living.late(in_any_order(data, old)))
    assert all_rows(desk) == before


@pytest.mark.req("C1")
@lives
@given(life=LIVES, data=st.data())
def test_a_life_ends_the_same_whatever_is_said_beside_it_early_twice_or_late(
    desk: LeaderHarness, life: Life, data: st.DataObject
) -> None:
    ordered = lived(desk, Life(life.end, life.pipelines, life.epochs, life.left))

    def noise(known: Sequence[Report]) -> Sequence[Report]:
        return data.draw(st.lists(st.sampled_from(known), max_size=3)) if known else ()

    disturbed = Living(desk, name(), noise)
    disturbed.submit(life)
    disturbed.begin()
    disturbed.go_on(life)

    assert standing(desk, disturbed.job) == standing(desk, ordered.job)


@pytest.mark.req("C1")
@lives
@given(life=LIVES, data=st.data())
def test_news_after_the_end_after_the_cleanup_and_of_a_former_run_change_nothing(
    desk: LeaderHarness, life: Life, data: st.DataObject, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    caplog.set_level(logging.INFO, "headrace")
    living = lived(desk, life)
    ended = standing(desk, living.job)
    said_late(desk, data, living)
    desk.passes()
    assert standing(desk, living.job) == ended, "the end"

    if cleaned := data.draw(st.booleans(), label="cleaned"):
        wait_and_clean(desk)
        said_late(desk, data, living)
        desk.passes()
        assert standing(desk, living.job)["job"] is None, "the cleanup"
    restored = life.end in RESTORABLE
    again = Life(JobStatus.FINISHED, life.pipelines)
    if restored:
        living.restore(again, f"restore {living.job}")
    elif cleaned:
        living.submit(again)
    if restored or cleaned:
        _goes_on(desk, data, living, again, run=2 if restored else 1)
    _each_told_once(caplog, living.said)


def _goes_on(
    desk: LeaderHarness, data: st.DataObject, living: Living, again: Life, *, run: int
) -> None:
    """What an earlier run or incarnation said is late for the one that has the id now."""
    said_late(desk, data, living)
    living.begin()
    said_late(desk, data, living)
    before = [desk.pipeline(living.job, n + 1).rows_out for n in range(again.pipelines)]
    living.go_on(again)
    said_late(desk, data, living)
    after = [desk.pipeline(living.job, n + 1).rows_out for n in range(again.pipelines)]
    assert after == [rows + ROWS for rows in before]
    assert standing(desk, living.job)["job"] == (JobStatus.FINISHED, None, run)


def _each_told_once(caplog: pytest.LogCaptureFixture, said: Sequence[Report]) -> None:
    told = Counter(
        (vars(record)["execution"], vars(record)["report"])
        for record in caplog.records
        if record.getMessage() == "late report"
    )
    assert set(told) <= {(report.claim.execution, report.kind) for report in said}
    assert set(told.values()) == {1}
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []
