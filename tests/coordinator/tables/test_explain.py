"""Why a table is optimized or not: the headline names what stands in the way, for whoever asks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.coordinator.tables.explain import explain
from headrace.coordinator.tables.obstacles import (
    Finding,
    FindingVerdict,
    RewriteProgress,
    Slots,
    TableSnapshot,
    Turn,
    UnderWay,
)
from headrace.model.tables.schedule import SchedulingPolicy
from headrace.model.tables.status import OptimizingType, ProcessStatus, TableErrorKind, TableStatus
from headrace.model.task import TaskKind
from headrace.store.tables.lake_tables import Blocker
from tests.coordinator.tables.snapshots import (
    MINUTE,
    NOW,
    PENDING,
    SUMMARY,
    catalog,
    process,
    standing,
    table,
)


def headline(seen: TableSnapshot) -> str:
    return explain(seen, NOW).headline.removeprefix("lake.sales.orders ")


def finding(seen: TableSnapshot, about: str) -> Finding:
    return next(each for each in explain(seen, NOW).findings if each.about == about)


HOLDS_IT: Sequence[tuple[str, TableSnapshot, str, FindingVerdict, str]] = [
    (
        "catalog",
        standing(catalog=catalog(failures=2, error="connection refused")),
        "catalog 'lake' can't be looked into (2 tries in a row): connection refused",
        FindingVerdict.BLOCKS,
        "tried again in 1 min",
    ),
    (
        "catalog",
        standing(catalog=catalog(wanted_removed=True)),
        "catalog 'lake' is being removed",
        FindingVerdict.BLOCKS,
        "headrace catalog add lake",
    ),
    (
        "evaluation",
        standing(table(evaluated_at_ms=None), summary=None),
        "nobody has looked at it yet; that is due in 30 s",
        FindingVerdict.HOLDS,
        "",
    ),
    (
        "switch",
        standing(table(wanted_paused=True)),
        "it is paused",
        FindingVerdict.BLOCKS,
        "headrace table resume lake.sales.orders",
    ),
    (
        "switch",
        standing(table(enabled=False)),
        "self-optimizing.enabled is false",
        FindingVerdict.BLOCKS,
        "ALTER TABLE lake.sales.orders SET TBLPROPERTIES",
    ),
    (
        "group",
        standing(table(group="big"), groups={"default": 4, "etl": 2}),
        "group 'big' has no workers; groups that have some: 'default', 'etl'",
        FindingVerdict.BLOCKS,
        "headrace worker --group big",
    ),
    (
        "group",
        standing(catalog=catalog(group="far")),
        "group 'far' has no workers",
        FindingVerdict.BLOCKS,
        "`headrace catalog set lake --group …` with one of 'default'",
    ),
    (
        "blocker",
        standing(blockers=[Blocker("t1", "load", "nightly load", NOW, NOW + MINUTE)]),
        "'load' asks that it be left alone until 2023-11-14T22:14:20Z: nightly load",
        FindingVerdict.BLOCKS,
        "headrace table unblock lake.sales.orders load",
    ),
    (
        "settlement",
        standing(process=process(settling_since_ms=NOW - MINUTE)),
        "process 4 is settling since 2023-11-14T22:12:20Z",
        FindingVerdict.HOLDS,
        "",
    ),
    (
        "failures",
        standing(table(failures=2, error="disk full", not_before_ms=NOW + 2 * MINUTE)),
        "the last 2 tries failed: disk full; it is tried again in 2 min",
        FindingVerdict.HOLDS,
        "headrace table optimize lake.sales.orders",
    ),
    (
        "failures",
        standing(
            table(
                failures=1,
                error="it can't be evaluated: no metadata",
                error_kind=TableErrorKind.EVALUATION,
            )
        ),
        "the last 1 try failed: it can't be evaluated: no metadata; it is tried again in 30 s",
        FindingVerdict.HOLDS,
        "mend the reason",
    ),
    (
        "interval",
        standing(table(TableStatus.PENDING, planned_at_ms=NOW - MINUTE // 3)),
        "it was planned 20 s ago, and may be planned again in 40 s",
        FindingVerdict.HOLDS,
        "",
    ),
    (
        "slots",
        standing(table(TableStatus.PENDING), slots=Slots(4, pipelines=3, rewrites=1)),
        "none of 4 slots of group 'default' is free: 3 held by jobs, 1 by tables",
        FindingVerdict.HOLDS,
        "headrace worker --group default",
    ),
    (
        "slots",
        standing(table(TableStatus.PENDING), slots=Slots(4, rewrites=2, enough=True)),
        "other tables have work for all of the 4 slots of group 'default'",
        FindingVerdict.HOLDS,
        "headrace worker --group default",
    ),
    (
        "turn",
        standing(table(TableStatus.PENDING), turn=Turn(SchedulingPolicy.QUOTA, 3, 7)),
        "2 tables of group 'default' have their turn before it (place 3 of 7, policy quota)",
        FindingVerdict.HOLDS,
        "",
    ),
]


@pytest.mark.parametrize(("about", "seen", "said", "verdict", "way_out"), HOLDS_IT)
def test_what_stands_in_the_way_is_the_headline_with_the_way_out(
    about: str, seen: TableSnapshot, said: str, verdict: FindingVerdict, way_out: str
) -> None:
    found = finding(seen, about)

    assert said in found.text
    assert found.verdict is verdict
    assert way_out in (found.way_out or "")
    assert said in explain(seen, NOW).headline


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (
            standing(),
            "is not being optimized: no rule has fired in 2 partitions; its health is 97 of 100",
        ),
        (
            standing(summary=SUMMARY.model_copy(update={"due": 1})),
            "is not being optimized: a rule has fired in 1 of 2 partitions, but no rewrite there "
            "would leave fewer files or fewer deletes",
        ),
        (
            standing(summary=SUMMARY.model_copy(update={"files": 0})),
            "is not being optimized: it has no files",
        ),
        (
            standing(summary=None),
            "is not being optimized: nothing is known that a rewrite would make better",
        ),
        (
            standing(
                table(TableStatus.PENDING),
                pending=PENDING,
                turn=Turn(SchedulingPolicy.BENEFIT, 1, 1),
            ),
            "is about to be optimized: PENDING for 3 min; MAJOR input: 412 files and 2 delete "
            "files of 1.2 GB in 3 partitions would become 11 files of 1.1 GB",
        ),
        (
            standing(table(wanted_type=OptimizingType.FULL)),
            "is about to be optimized: IDLE for 3 min; somebody asked for it to be optimized now, "
            "at least FULL",
        ),
        (
            standing(table(TableStatus.PLANNING), under_way=UnderWay(TaskKind.PLAN, worker="w1")),
            "is being optimized: PLANNING for 3 min; a worker chooses the files that go together "
            "(w1)",
        ),
        (
            standing(
                table(TableStatus.MAJOR_OPTIMIZING, process_id="p4"),
                process=process(),
                progress=RewriteProgress(total=8, done=3, running=2, workers=("w1", "w2")),
            ),
            "is being optimized: MAJOR_OPTIMIZING for 3 min; process 4 (MAJOR) has done 3 of 8 "
            "rewrite tasks, 2 run on w1 and w2, 3 wait for a slot",
        ),
        (
            standing(
                table(TableStatus.COMMITTING, process_id="p4"),
                process=process(),
                progress=RewriteProgress(total=8, done=8, workers=("w1",)),
            ),
            "is being optimized: COMMITTING for 3 min; process 4 (MAJOR) replaces the files on w1",
        ),
    ],
)
def test_where_nothing_stands_in_the_way_the_headline_says_how_it_is(
    seen: TableSnapshot, said: str
) -> None:
    assert headline(seen) == said


def test_a_process_that_may_not_commit_is_told_with_who_blocks_it() -> None:
    seen = standing(
        table(TableStatus.MAJOR_OPTIMIZING, process_id="p4"),
        process=process(),
        progress=RewriteProgress(total=1, done=1),
        blockers=[Blocker("t1", "load", "nightly load", NOW, NOW + MINUTE)],
    )

    assert headline(seen).endswith(
        "0 wait for a slot; but 'load' asks that it be left alone until 2023-11-14T22:14:20Z: "
        "nightly load"
    )


def test_each_rule_tells_its_threshold_its_measure_and_its_property() -> None:
    rules = [each for each in explain(standing(), NOW).findings if each.about == "rule"]

    assert [(each.measured, each.threshold) for each in rules] == [
        ("3", "12"),
        ("0 s", "never (-1)"),
        ("130.0 MB", "134.2 MB"),
    ]
    assert rules[0].property == "self-optimizing.minor.trigger.file-count"
    assert rules[0].text == (
        "MINOR in day=2026-01-31: fragments and equality delete files: not fired"
    )
    assert rules[1].text.startswith("FULL in day=2026-01-31: time since the last full, with 3")
    assert rules[2].text.startswith("MAJOR in day=2026-01-31: data in undersized files")


def test_what_is_worth_knowing_beside_it_is_told_and_is_no_headline() -> None:
    flaw = "table property x is 'y', expected a number; 1 is used. Set it, or remove it"
    seen = standing(
        flaws=[flaw],
        left_out=[f"f{number}.parquet" for number in range(5)],
        last=process(ProcessStatus.FAILED, error="disk full"),
    )

    assert headline(seen).startswith("is not being optimized: no rule has fired")
    assert finding(seen, "property").text == (
        "table property x is 'y', expected a number; 1 is used"
    )
    assert finding(seen, "property").way_out == "Set it, or remove it"
    assert finding(seen, "left out").text == (
        "5 files took part in 3 failures and are not planned any more: f0.parquet, f1.parquet, "
        "f2.parquet and 2 more"
    )
    assert "process 4 (MAJOR) ended FAILED" in finding(seen, "last").text
    assert finding(seen, "last").text.endswith(": disk full")
    assert finding(seen, "held by").text == "nobody"


def test_the_next_look_and_the_next_rule_by_time_are_told() -> None:
    said = finding(standing(table(look_at_ms=NOW + 60 * MINUTE)), "next").text

    assert said.startswith("it is looked at again in 30 s (2023-11-14T22:13:50Z), every 1 min")
    assert said.endswith("a rule by time may fire in 1 h (2023-11-14T23:13:20Z)")
