"""Lives of groups: clean where the product is right, rich enough, and the same twice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.simulation.groups_campaign import Lives, play, timeline
from tests.simulation.groups_invariants import (
    INVARIANTS,
    AfterGroupCommit,
    Asked,
    Record,
    Registered,
    State,
)
from tests.simulation.groups_setting import GRACE_S, MAX_RETRIES
from tests.simulation.stand_ins import group_seam_names
from tests.simulation.world import World

SEEDS = (1, 2, 3, 6)  # on edge, plain, plain, with auto-restart off
DAYS = 4.0
CRASHED_MANY = 3  # of the seams, in so few days
TWICE, SHORT_DAYS = (1, 2, 6), 0.7
DIGESTS = f"""
from tests.simulation.groups_campaign import play
print([play(seed, days={SHORT_DAYS}).digest for seed in {TWICE}])
"""
HEALS = frozenset({"pods"})

pytestmark = pytest.mark.timeout(600)


@pytest.mark.req("R1", "R2", "R3", "R4", "R5", "R8")
def test_days_of_random_life_break_no_invariant_and_are_not_idle() -> None:
    """`make simulate` lives for months."""
    lives = Lives()
    for seed in SEEDS:
        life = play(seed, days=DAYS)
        if life.problems:
            pytest.fail(timeline(play(seed, days=DAYS, tell=True)), pytrace=False)
        lives.add(life)
    assert lives.too_little() == []
    assert len(lives.crashes.keys() & set(group_seam_names())) >= CRASHED_MANY


def test_the_same_seed_gives_the_same_life_whatever_the_hash_seed() -> None:
    here = [play(seed, days=SHORT_DAYS).digest for seed in TWICE]
    elsewhere = subprocess.run(
        [sys.executable, "-c", DIGESTS],
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "4242", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    ).stdout
    assert elsewhere.strip() == str(here)
    assert len(set(here)) == len(TWICE)


RECORD = Record("r", "g", "local", 4, "floor", 0, 1, "STARTED", 1000, 5000, 0)
WORKER = Registered("w", "r", 1, 4, 0, "g")
GROUP = Asked("g", "local", 4, 0, 0, None)
LATER_MS = 5000 + round(GRACE_S * 1000)


def state(*records: Record, worker: Registered | None = None, group: Asked = GROUP) -> State:
    found = State({each.id: each for each in records}, groups={group.name: group})
    if worker is not None:
        found.workers, found.rows = {worker.resource or "": worker}, 1
    return found


def again(**values: int) -> Record:
    """The next launch of it."""
    return RECORD._replace(launch=2, attempts=1, launched_at_ms=LATER_MS)._replace(**values)


Commit = Callable[[], tuple[State, State]]
GOOD: dict[str, Commit] = {
    "noticed": lambda: (state(RECORD._replace(orphaned_since_ms=None)), state(RECORD)),
    "restarted": lambda: (state(RECORD), state(again())),
    "registered": lambda: (
        state(again()),
        state(again(attempts=0), worker=WORKER._replace(launch=2)),
    ),
    "given up": lambda: (
        state(RECORD._replace(attempts=MAX_RETRIES)),
        state(RECORD._replace(attempts=MAX_RETRIES, released=1)),
    ),
    "gone": lambda: (state(RECORD._replace(released=1)), state()),
    "asked for": lambda: (state(), state(RECORD)),
}
BAD: dict[str, tuple[str, Commit]] = {
    "lost": ("no_record_lost", lambda: (state(RECORD), state())),
    "given up with a worker": (
        "no_record_lost",
        lambda: (
            state(RECORD._replace(attempts=MAX_RETRIES)),
            state(RECORD._replace(released=1), worker=WORKER),
        ),
    ),
    "given up early": (
        "no_record_lost",
        lambda: (state(RECORD), state(RECORD._replace(released=1))),
    ),
    "attempts forgotten": (
        "attempts_grow",
        lambda: (state(again()), state(again(attempts=0))),
    ),
    "too many attempts": (
        "attempts_grow",
        lambda: (
            state(RECORD._replace(attempts=MAX_RETRIES)),
            state(again(attempts=MAX_RETRIES + 1)),
        ),
    ),
    "too early": (
        "no_start_in_grace",
        lambda: (state(RECORD), state(again(launched_at_ms=LATER_MS - 10_000))),
    ),
    "not ours": (
        "no_start_in_grace",
        lambda: (
            state(RECORD._replace(container="pods")),
            state(again()._replace(container="pods")),
        ),
    ),
    "edited": (
        "wanted_is_the_users",
        lambda: (state(), state(group=GROUP._replace(floor=2))),
    ),
    "old launch": (
        "newest_launch_registered",
        lambda: (state(again()), state(again(attempts=0), worker=WORKER)),
    ),
    "twice": (
        "nothing_twice",
        lambda: (state(RECORD), state(RECORD, RECORD._replace(id="r2", launched_at_ms=LATER_MS))),
    ),
}


def judged(commit: Commit) -> list[str]:
    world = World("0")
    AfterGroupCommit(world, enabled=True, heals=HEALS).judge("c1", *commit())
    return [invariant for invariant, _ in world.problems]


@pytest.mark.parametrize("name", GOOD)
def test_what_a_leader_may_commit_is_no_problem(name: str) -> None:
    assert judged(GOOD[name]) == []


@pytest.mark.parametrize("name", BAD)
def test_what_a_leader_may_not_commit_is_told_by_its_invariant(name: str) -> None:
    invariant, commit = BAD[name]
    assert judged(commit)[0] == invariant
    assert invariant in INVARIANTS
