"""Make a failing history smaller while the same invariant fails, and print it to be read."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.faults import Fault
from tests.simulation.history import Result, Simulator
from tests.simulation.scenario import SHAPES, Scenario

SHRINK_RUNS_MAX = 150
SHORTEST_S = 0.2
LINES_MAX = 120  # of a timeline: the last ones
WIDTH = 170


def shrink(simulator: Simulator, failed: Result) -> Result:
    """Fewer faults, then shorter ones, then a simpler scenario."""
    invariant, best, runs = failed.problems[0][0], failed, 0
    found = True
    while found and runs < SHRINK_RUNS_MAX:
        found = False
        for scenario, plan in _simpler(best):
            runs += 1
            tried = simulator.run(failed.seed, scenario, plan)
            if tried.failed and tried.problems[0][0] == invariant:
                best, found = tried, True
                break
            if runs >= SHRINK_RUNS_MAX:
                break
    return simulator.run(best.seed, best.scenario, best.plan, tell=True)


def _simpler(result: Result) -> Iterator[tuple[Scenario, tuple[Fault, ...]]]:
    plan = tuple(fault for fault in result.plan if fault in result.happened)
    if plan != result.plan:
        yield result.scenario, plan
    for dropped in range(len(plan)):
        yield result.scenario, plan[:dropped] + plan[dropped + 1 :]
    for at, fault in enumerate(plan):
        if abs(fault.seconds) > SHORTEST_S:
            yield result.scenario, (*plan[:at], fault.shorter(), *plan[at + 1 :])
    for scenario in result.scenario.smaller():
        yield scenario, plan


def told(result: Result) -> str:
    """The history as a timeline of its actors, and the command that plays it again."""
    assert result.timeline is not None
    lines = [f"seed {result.seed}: {name}: {what}" for name, what in result.problems]
    lines += ["", f"  scenario: {result.scenario}"]
    lines += [f"  fault: {fault}" for fault in result.happened] or ["  no fault"]
    lines += [""]
    if (left_out := len(result.timeline) - LINES_MAX) > 0:
        lines.append(f"  … {left_out} earlier events")
    for at_s, actor, what in result.timeline[-LINES_MAX:]:
        lines.append(f"  {at_s:9.3f}  {actor:7} {what}"[:WIDTH])
    lines += ["", f"play it again: {command(result)}"]
    return "\n".join(lines)


def command(result: Result) -> str:
    faults = " ".join(f"'{fault}'" for fault in result.plan)
    shape = (
        f"--shape {SHAPES.index(result.scenario)}"
        if result.scenario in SHAPES
        else f"--scenario '{result.scenario.words()}'"
    )
    played = f"--faults {faults}" if faults else "--no-faults"
    return f"python -m tests.simulation --seed {result.seed} {shape} {played}"
