"""The simulation itself: the same twice, clean where the product is right, and able to fail."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from random import SystemRandom

import pytest

from tests.simulation.campaign import JUMPS, RANDOM, ready, run
from tests.simulation.faults import Fault
from tests.simulation.history import Result, Simulator
from tests.simulation.invariants import INVARIANTS
from tests.simulation.mutants import Meant, caught_by, meant
from tests.simulation.scenario import COMMIT_DEADLINE_S, LEAVING, OUTAGE, SHAPES, Scenario
from tests.simulation.search import QUIET_SEED, REACHING, Search, Tally
from tests.simulation.shrink import shrink, told
from tests.simulation.stand_ins import seam_names

FIXED_SEEDS = range(1, 61)
MORE_SEEDS = range(61, 151)
FRESH_S = 25.0  # of histories nobody has seen before
FRESH_MAX = 2000
LEAVING_EACH = 97  # so many single faults are one that is tried
JUMP_SEEDS = range(1, 41)
JUMPED_AT_MAX = 7  # commits of the leader, after each of which its clock is set
OUTAGE_SEEDS = (9, 14, 16)  # in these it begins while a process is being committed
STAND_FOR_ALL = {
    "L1-term-not-checked",
    "group-started-before-it-is-intended",
    "table-commit-in-doubt-is-closed",
    "targets-are-left",
}
DIGESTS = """
from tests.simulation.campaign import ready
from tests.simulation.scenario import OF_TABLES
from tests.simulation.search import Search
with ready() as simulator:
    search = Search(simulator)
    print([search.random(seed).digest for seed in (3, 5, 8, 13, 21)]
        + [search.random(seed, OF_TABLES + seed).digest for seed in (1, 2, 4)])
"""

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with ready() as made:
        yield made


def check(simulator: Simulator, tally: Tally) -> None:
    if tally.failed:
        pytest.fail(told(shrink(simulator, tally.failed[0])), pytrace=False)


def test_the_same_seed_gives_the_same_statements_whatever_the_hash_seed() -> None:
    printed = [
        subprocess.run(
            [sys.executable, "-c", DIGESTS],
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "4242")
    ]
    assert printed[0] == printed[1]
    assert len(set(eval(printed[0]))) == 8


def test_without_faults_every_shape_ends_as_it_should(simulator: Simulator) -> None:
    for scenario in SHAPES:
        quiet = simulator.run(0, scenario)
        assert quiet.problems == []
        assert sum(quiet.jobs.values()) == scenario.incarnations
        assert quiet.happened == []


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(FIXED_SEEDS, id="usual"),
        pytest.param(MORE_SEEDS, id="more", marks=pytest.mark.histories),
    ],
)
def test_the_fixed_histories_are_clean_and_not_idle(simulator: Simulator, seeds: range) -> None:
    tally = run((RANDOM, None, list(seeds)))
    check(simulator, tally)
    assert tally.too_little() == []


@pytest.mark.histories
def test_fresh_histories_are_clean(simulator: Simulator) -> None:
    first, search, tally = SystemRandom().randrange(10**6, 10**9), Search(simulator), Tally()
    end_s = time.monotonic() + FRESH_S
    for seed in range(first, first + FRESH_MAX):
        tally.add(search.random(seed))
        if tally.failed or time.monotonic() > end_s:
            break
    check(simulator, tally)


def test_a_crash_at_every_seam_there_is_does_no_harm(simulator: Simulator) -> None:
    """Once for each kind of actor; `make simulate` crashes each actor in each shape."""
    tally, search = Tally(), Search(simulator)
    crashed: set[tuple[str, str]] = set()
    for scenario, plan in (each for n in range(len(REACHING)) for each in search.crashes(n)):
        meets = (plan[-1].actor[0], plan[-1].point)
        if meets not in crashed:
            crashed.add(meets)
            tally.add(simulator.run(QUIET_SEED, scenario, plan))
    check(simulator, tally)
    assert set(seam_names()) - set(tally.crashes) == set()


def test_a_commit_that_nobody_can_be_asked_about_ends_unknown_and_is_planned_again(
    simulator: Simulator,
) -> None:
    """The leader goes in the middle of an outage that lasts longer than a settlement may."""
    ended = Tally()
    for seed in OUTAGE_SEEDS:
        crashes = [Fault("crash", name, "before fenced transaction", 18) for name in ("c1", "c2")]
        ended.add(simulator.run(seed, OUTAGE, crashes))
    check(simulator, ended)
    assert ended.processes["FAILED"] > 0
    assert ended.processes["SUCCESS"] > 0


@pytest.mark.req("E6")
def test_a_run_that_leaves_takes_its_marks_along_only_when_nobody_can_commit(
    simulator: Simulator,
) -> None:
    """Whatever happens to a worker, or to what it says, before its job ends without it."""
    search, ended = Search(simulator), Tally()
    ended.add(simulator.run(QUIET_SEED, LEAVING, []))
    for commit in (1, 2, 3):  # it wakes up just before its commit is too old, and the job has ended
        late = Fault("pause", "w1", "before sink commit", commit, COMMIT_DEADLINE_S - 0.1)
        ended.add(simulator.run(QUIET_SEED, LEAVING, [late]))
    for fault in search.all_single(LEAVING)[::LEAVING_EACH]:
        ended.add(simulator.run(QUIET_SEED, LEAVING, [fault]))
    check(simulator, ended)


@pytest.mark.req("L5")
@pytest.mark.parametrize("by_s", [-112.5, 112.5])
def test_a_process_ends_though_the_clock_of_its_leader_was_set(
    simulator: Simulator, by_s: float
) -> None:
    """It was found by seed 901591: the next discovery was put off, so nobody waited for the end."""
    scenario = Scenario(
        workers=("w1",), jobs=0, rows=2, tables=1, table_files=3, rewrite_s=2.5, asks=("block",)
    )
    tally = Tally()
    for nth in range(1, JUMPED_AT_MAX + 1):
        jump = Fault("jump", "c1", "fenced transaction committed", nth, by_s)
        tally.add(simulator.run(901591, scenario, [jump]))
    check(simulator, tally)
    assert tally.faults["jump"] == tally.landed == JUMPED_AT_MAX


@pytest.mark.req("L5")
def test_a_blocker_asked_of_a_node_whose_clock_is_ahead_ends_and_the_process_commits(
    simulator: Simulator,
) -> None:
    """It was found by seed 500638: the blocker lasts longer by what the clock was ahead."""
    scenario = Scenario(jobs=0, rows=2, tables=1, table_files=8, rewrite_s=2.5, asks=("block",))
    pause = Fault("pause", "c1", "store committed", 19, 4.0)
    jump = Fault("jump", "c2", "sync committed, before answer", 10, 225.0)
    tally = Tally()
    tally.add(simulator.run(500638, scenario, [pause, jump]))
    check(simulator, tally)
    assert tally.landed == 1


@pytest.mark.req("L5")
def test_histories_in_which_nothing_but_clocks_go_wrong_are_clean(simulator: Simulator) -> None:
    tally = run((JUMPS, None, list(JUMP_SEEDS)))
    check(simulator, tally)
    assert tally.faults["jump"] >= len(JUMP_SEEDS)
    assert tally.terms > len(JUMP_SEEDS), "a leader whose clock is set hands over"


def test_a_guard_that_is_gone_is_noticed_by_a_history_told_as_a_timeline(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("headrace.store.core.transactions", "headrace.coordinator.sync.writer"):
        monkeypatch.setattr(f"{module}.check_fence", unchecked)
    failed = _first_failure(simulator, Search(simulator))
    assert failed.problems[0][0] == "no_write_under_an_old_term"
    smallest = shrink(simulator, failed)
    assert smallest.problems[0][0] == "no_write_under_an_old_term"
    assert len(smallest.plan) == 1
    text = told(smallest)
    assert "wrote under term 1" in text
    assert "play it again: python -m tests.simulation --seed" in text
    assert " c1 " in text or " c2 " in text


def unchecked(_conn: object, _term: object) -> None:
    """In place of the fence."""


def _first_failure(simulator: Simulator, search: Search) -> Result:
    plain = SHAPES[0]
    pauses = [f for f in search.all_single(plain) if f.kind == "pause" and f.actor[0] == "c"]
    for fault in pauses:
        # A second one that changes nothing: shrinking has to find out which of them it is.
        result = simulator.run(0, plain, [fault, Fault("drop", "client", "request submit", 2)])
        if result.failed:
            return result
    raise AssertionError("the simulation can't see a missing fence")


def test_what_is_drawn_can_be_said_and_read_again() -> None:
    fault = Fault("pause", "c1", "before sync transaction", 3, 4.0)
    assert Fault.parse(str(fault)) == fault
    with pytest.raises(ValueError, match="KIND"):
        Fault.parse("crash c1")
    scenario = Scenario(workers=("w1",), rows=3, uneven=True)
    assert Scenario.parse(scenario.words()) == scenario


def mutants() -> list[object]:
    """A few of jobs, groups, lakes and cleanups stand for all; the others when asked for."""
    return [
        pytest.param(
            mutant,
            id=mutant.name,
            marks=() if mutant.name in STAND_FOR_ALL else pytest.mark.histories,
        )
        for mutant in meant()
    ]


def test_the_mutants_that_stand_for_all_are_mutants() -> None:
    assert {mutant.name for mutant in meant()} >= STAND_FOR_ALL


@pytest.mark.parametrize("mutant", mutants())
def test_histories_catch_a_missing_guard_by_the_invariant_it_names(mutant: Meant) -> None:
    assert mutant.invariant in INVARIANTS
    invariant, output = caught_by(mutant)
    assert invariant == mutant.invariant, output
