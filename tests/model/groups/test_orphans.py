"""Every combination of what can be known of a resource has one decision (R1 to R8)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from headrace.model.groups import AutoRestart, Decision, OrphanVerdict, ResourceState, decide_orphan

NOW_MS = 10_000_000
GRACE_MS = 300_000
ON = AutoRestart(enabled=True, max_retries=5, grace_ms=GRACE_MS)
OFF = AutoRestart()

TIMES = (None, NOW_MS - GRACE_MS - 1, NOW_MS - GRACE_MS, NOW_MS - 1, NOW_MS + 5)
EITHER = (True, False)
EVERYTHING = [
    (
        ResourceState(alive, released, since, started, attempts, configured, restartable, needed),
        setting,
        leads,
    )
    for alive, released, since, started in product(EITHER, EITHER, TIMES, TIMES)
    for attempts, configured, restartable in product((0, 1, 4, 5, 6), EITHER, EITHER)
    for needed, setting, leads in product(EITHER, (ON, OFF), EITHER)
]


def verdict(
    known: ResourceState, setting: AutoRestart = ON, *, leads: bool = True
) -> OrphanVerdict:
    return decide_orphan(known, setting, leads=leads, now_ms=NOW_MS).verdict


def test_there_are_thousands_of_combinations_and_each_has_a_decision() -> None:
    assert len(EVERYTHING) == 2 * 2 * 5 * 5 * 5 * 2 * 2 * 2 * 2 * 2
    for known, setting, leads in EVERYTHING:
        assert isinstance(decide_orphan(known, setting, leads=leads, now_ms=NOW_MS), Decision)


def acts(known: ResourceState, setting: AutoRestart, *, leads: bool) -> bool:
    return verdict(known, setting, leads=leads) in {
        OrphanVerdict.RESTART,
        OrphanVerdict.REMOVE,
        OrphanVerdict.SURPLUS,
    }


def test_nothing_is_restarted_or_removed_by_default() -> None:
    assert not any(acts(known, OFF, leads=leads) for known, _, leads in EVERYTHING)


def test_only_the_leader_does_anything() -> None:
    for known, setting, _ in EVERYTHING:
        assert verdict(known, setting, leads=False) is OrphanVerdict.NOTHING


def test_a_resource_whose_worker_lives_is_never_touched() -> None:
    for known, setting, leads in EVERYTHING:
        if known.alive:
            assert not acts(known, setting, leads=leads)


def test_a_container_that_heals_itself_or_is_gone_costs_no_attempt_and_no_record() -> None:
    for known, setting, leads in EVERYTHING:
        if not known.restartable or not known.configured:
            assert not acts(known, setting, leads=leads)


def test_nothing_happens_within_the_grace_period_of_the_latest_start() -> None:
    for known, setting, leads in EVERYTHING:
        latest_ms = max(known.orphaned_since_ms or 0, known.started_at_ms or 0)
        if NOW_MS - latest_ms < GRACE_MS or known.orphaned_since_ms is None:
            assert not acts(known, setting, leads=leads)


def test_it_is_removed_only_after_all_its_attempts() -> None:
    for known, setting, leads in EVERYTHING:
        if verdict(known, setting, leads=leads) is OrphanVerdict.REMOVE:
            assert known.attempts >= ON.max_retries
        if verdict(known, setting, leads=leads) is OrphanVerdict.RESTART:
            assert known.attempts < ON.max_retries


def test_what_nobody_needs_goes_where_another_is_started_again_and_only_there() -> None:
    for known, setting, leads in EVERYTHING:
        found = verdict(known, setting, leads=leads)
        if_needed = verdict(replace(known, needed=True), setting, leads=leads)
        gone = not known.needed and if_needed is OrphanVerdict.RESTART
        assert found is (OrphanVerdict.SURPLUS if gone else if_needed)


def test_a_released_resource_is_not_brought_back() -> None:
    for known, setting, leads in EVERYTHING:
        if known.released and not known.alive:
            assert verdict(known, setting, leads=leads) is OrphanVerdict.NOTHING


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (ResourceState(alive=True), OrphanVerdict.NOTHING),
        (ResourceState(alive=True, orphaned_since_ms=1), OrphanVerdict.RECOVERED),
        (ResourceState(alive=True, attempts=2), OrphanVerdict.RECOVERED),
        (ResourceState(alive=False), OrphanVerdict.NOTICE),
        (ResourceState(alive=False, orphaned_since_ms=NOW_MS - 1), OrphanVerdict.WAIT),
        (ResourceState(alive=False, orphaned_since_ms=NOW_MS - GRACE_MS), OrphanVerdict.RESTART),
        (
            ResourceState(alive=False, orphaned_since_ms=1, started_at_ms=NOW_MS - 1),
            OrphanVerdict.WAIT,
        ),
        (ResourceState(alive=False, orphaned_since_ms=1, attempts=5), OrphanVerdict.REMOVE),
        (ResourceState(alive=False, orphaned_since_ms=1, needed=False), OrphanVerdict.SURPLUS),
        (ResourceState(alive=False, orphaned_since_ms=1, configured=False), OrphanVerdict.ISOLATED),
        (
            ResourceState(alive=False, orphaned_since_ms=1, restartable=False),
            OrphanVerdict.OPTED_OUT,
        ),
    ],
)
def test_some_cells_by_name(known: ResourceState, expected: OrphanVerdict) -> None:
    assert verdict(known) is expected


def test_whoever_waits_is_told_until_when() -> None:
    found = decide_orphan(
        ResourceState(alive=False, orphaned_since_ms=NOW_MS - 1, started_at_ms=NOW_MS - 500),
        ON,
        leads=True,
        now_ms=NOW_MS,
    )

    assert found.until_ms == NOW_MS - 1 + GRACE_MS


def test_attempts_are_numbered_from_one() -> None:
    found = decide_orphan(
        ResourceState(alive=False, orphaned_since_ms=1, attempts=2), ON, leads=True, now_ms=NOW_MS
    )

    assert (found.verdict, found.attempt) == (OrphanVerdict.RESTART, 3)
