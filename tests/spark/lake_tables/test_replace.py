"""Files are replaced once, whatever a zombie does; what conflicts is named, the rest goes on."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.errors import Fenced, Refused, TokenSpent
from headrace.exactly_once.target import SpendLimits
from headrace.lake.iceberg.catalogs import local_path
from headrace.lake.iceberg.commit_target import SPEND_TRIES_MAX, IcebergTarget
from headrace.lake.iceberg.replace import abort, discard, look_replaced, replace
from headrace.lake.iceberg.token import ProcessAt
from headrace.model.jobs.epoch import Moment, SpentBy
from tests.spark.lake import lose_answers, some
from tests.spark.written import Written, copy_of, groups_of, six_files

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IcebergTarget, "limits", SpendLimits(SPEND_TRIES_MAX, wait_s=0))


@pytest.fixture
def written(session: SparkSession, warehouse: str) -> Written:
    return six_files(session, warehouse)


def test_one_commit_replaces_all_groups_and_says_so(written: Written) -> None:
    planned = written.scan()
    outcome = written.replace(written.rewritten())

    found = written.scan()
    assert (outcome.groups, dict(outcome.conflicts), outcome.already) == ({0, 1}, {}, False)
    assert outcome.snapshot == found.snapshot
    assert written.rows() == copy_of(list(range(30)))
    assert (len(planned.files), len(found.files)) == (6, 2)
    assert set(written.sequences()) == {planned.sequence}
    summary = written.sql("SELECT operation, summary FROM {t}.snapshots ORDER BY committed_at")[-1]
    assert summary["operation"] == "replace"
    assert summary["summary"]["headrace.groups"] == "0-1"


def test_a_second_commit_of_the_same_process_is_refused_as_already_there(
    written: Written,
) -> None:
    groups = written.rewritten()
    first = written.replace(groups)
    second = written.replace(groups)

    assert second.already
    assert (second.snapshot, second.groups) == (first.snapshot, first.groups)
    assert look_replaced(written.session, written.ref, written.at()) == second
    assert written.rows() == copy_of(list(range(30)))
    assert len(written.scan().files) == 2


def test_a_zombie_paused_inside_its_commit_is_refused_when_it_wakes(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker commits the same process, others compact, the snapshots are expired."""
    zombie, owner = written.at(execution="c1.1"), written.at(execution="c1.2")
    groups = written.rewritten()
    attempt: Any = IcebergTarget.attempt
    asleep = [zombie.execution]

    def paused(self: IcebergTarget, at: Any, *rest: Any, **more: Any) -> Any:
        if at.execution in asleep:
            asleep.remove(at.execution)
            written.replace(groups, owner)
            written.append(30)
            written.sql(
                f"CALL headrace.system.expire_snapshots(table => '{written.name}', "
                "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
            )
        return attempt(self, at, *rest, **more)

    monkeypatch.setattr(IcebergTarget, "attempt", paused)
    woken = written.replace(groups, zombie)

    assert (woken.already, woken.snapshot, woken.groups) == (True, None, None)
    assert written.rows() == copy_of(list(range(40)))
    assert len(written.scan().files) == 4


def test_a_later_process_refuses_an_earlier_one(written: Written) -> None:
    early = written.rewritten(written.at(1))
    written.replace(written.rewritten(written.at(2)), written.at(2))

    assert written.replace(early, written.at(1)).already
    assert written.rows() == copy_of(list(range(30)))


def test_after_an_abort_a_zombie_commits_nothing_and_its_files_are_gone(written: Written) -> None:
    at = written.at()
    groups = written.rewritten(at)
    assert len(written.staged(at)) == 2

    spent = abort(written.session, written.ref, at)

    assert some(spent).by is SpentBy.ABORT
    assert written.staged(at) == []
    folder = some(local_path(at.process_folder(str(written.table.location()))))
    assert not folder.exists(), "no empty folder is left"
    with pytest.raises(TokenSpent):
        written.replace(groups, at)
    with pytest.raises(TokenSpent):
        look_replaced(written.session, written.ref, at)
    assert written.rows() == copy_of(list(range(30)))
    assert len(written.scan().files) == 6


def test_an_abort_after_the_commit_deletes_only_what_nobody_refers_to(written: Written) -> None:
    lost, owner = written.at(execution="r1.1"), written.at(execution="r1.2")
    written.rewritten(lost)
    written.replace(written.rewritten(owner), owner)
    assert len(written.staged(owner)) == 4

    spent = abort(written.session, written.ref, owner)

    assert some(spent).by is SpentBy.DATA
    assert len(written.staged(owner)) == 2
    assert written.rows() == copy_of(list(range(30)))


def test_nothing_is_discarded_while_the_token_is_unspent(written: Written) -> None:
    at = written.at()
    written.rewritten(at)

    with pytest.raises(Refused, match="is not spent"):
        discard(written.session, written.ref, at)
    assert len(written.staged(at)) == 2


def test_a_delete_shared_by_two_groups_goes_with_the_last_of_them(
    session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse)
    for first in (0, 10, 20, 30):
        written.append(first)
    written.delete_named(["3", "13", "23", "33"])
    copy = copy_of([n for n in range(40) if n % 10 != 3])
    found = written.scan()
    paths = [file.path for file in found.files]
    inputs = written.choose(found, [paths[:2], paths[2:]])
    first, second = groups_of(inputs, written.rewrite(inputs))

    replace(session, written.ref, [first], written.at(1))
    assert written.rows() == copy
    assert written.delete_files() == 1

    replace(session, written.ref, [second], written.at(2), before=[first])
    assert written.rows() == copy
    assert (len(written.scan().files), written.delete_files()) == (2, 0)


def test_a_staged_file_that_is_gone_is_not_committed(written: Written) -> None:
    groups = written.rewritten()
    written.staged(written.at())[0].unlink()

    with pytest.raises(Refused, match="gone or damaged"):
        written.replace(groups)
    assert written.rows() == copy_of(list(range(30)))
    assert len(written.scan().files) == 6


def test_a_commit_that_began_too_long_ago_is_refused(written: Written) -> None:
    groups = written.rewritten()
    clock = SystemClock()
    long_ago = Moment(clock.monotonic_s() - 7200, clock.wall_ms() - 7_200_000)
    late = ProcessAt(written.owner, 1, "c1.1", long_ago)

    with pytest.raises(Fenced, match="too old to commit"):
        written.replace(groups, late)
    assert len(written.scan().files) == 6


def test_an_answer_that_is_lost_is_settled_by_looking(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = written.rewritten()
    lose_answers(written.session, monkeypatch)
    outcome = written.replace(groups)

    assert (outcome.already, outcome.groups) == (False, {0, 1})
    assert written.rows() == copy_of(list(range(30)))
    assert len(written.scan().files) == 2


def test_a_dropped_table_has_nothing_to_abort(written: Written) -> None:
    written.sql("DROP TABLE {t}")

    assert abort(written.session, written.ref, written.at()) is None
