"""What must hold when everything has ended: at the sinks, in the store, in what is told of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.model.jobs.status import JOB_ENDED
from tests.simulation.database import Wire
from tests.simulation.invariants import AfterCommit, Problem
from tests.simulation.scenario import Scenario
from tests.simulation.target import OLD, Target

# All that a job is made of while there is one, and what is left to do afterwards.
_OF_JOBS = (
    *("jobs", "pipelines", "tasks", "epochs", "ready_sources", "job_secrets"),
    "cleanups",
)
# A target may be away for long, and tables are looked at for ever.
_ENDS = "kind NOT IN ('FORGET', 'DISCOVER', 'EVALUATE')"


@dataclass(frozen=True, slots=True)
class Ended:
    """The last run of an incarnation, as history tells it."""

    incarnation: str
    job: str
    status: str
    error: str | None
    pipelines: Sequence[Mapping[str, Any]]


def last_runs(wire: Wire) -> Sequence[Ended]:
    """Of jobs that have ended and do not run again."""
    ended = ", ".join(f"'{status}'" for status in sorted(JOB_ENDED))
    found = wire.look(
        "SELECT incarnation, job_id, status, error, pipelines FROM history AS h WHERE run = "
        "(SELECT max(run) FROM history WHERE incarnation = h.incarnation) AND incarnation NOT IN "
        f"(SELECT incarnation FROM jobs WHERE status NOT IN ({ended})) ORDER BY 1"
    )
    return [
        Ended(incarnation, job, status, error, json.loads(pipelines))
        for incarnation, job, status, error, pipelines in found
    ]


def at_the_end(
    wire: Wire,
    target: Target,
    scenario: Scenario,
    looks: AfterCommit,
    leftovers: list[str],
    problem: Problem,
) -> None:
    if scenario.rewinds:
        problem = _as_of_rewound(problem)
    for ended in last_runs(wire):
        if scenario.rewinds and _is_stopped_by_targets(ended):
            continue
        _ends_as_asked(ended, scenario, looks, problem)
        for pipeline in ended.pipelines:
            _rows(target, ended, pipeline, scenario, problem)
    _every_run_told(wire, looks, problem)
    if not scenario.rewinds:  # what was staged in the time that nobody remembers is a stray (C5)
        _nothing_left(wire, target, leftovers, problem)
    if not wire.look("SELECT incarnation FROM cleanups"):
        _all_cleaned(wire, target, problem)


def _is_stopped_by_targets(ended: Ended) -> bool:
    words = ("the store is older than its targets", "two ways out")
    return ended.status == "FAILED" and all(word in (ended.error or "") for word in words)


def _as_of_rewound(problem: Problem) -> Problem:
    """Rows that are missing or too many, after the store was restored from a backup."""
    rows = {"every_row_once", "no_torn_epoch"}
    return lambda name, what: problem("nothing_skipped_in_silence" if name in rows else name, what)


def _ends_as_asked(ended: Ended, scenario: Scenario, looks: AfterCommit, problem: Problem) -> None:
    if ended.status == "CANCELED" and ended.incarnation not in looks.canceled:
        problem("ends_as_asked", f"{ended.job} is CANCELED, and nobody asked for it")
    poisoned = ended.incarnation in looks.poisoned
    if ended.status == "FAILED" and scenario.retry_times > 1 and not poisoned:
        problem("ends_as_asked", f"{ended.job} FAILED: {ended.error}")


def _rows(
    target: Target, ended: Ended, facts: Mapping[str, Any], scenario: Scenario, problem: Problem
) -> None:
    number, at = facts["number"], f"{ended.incarnation}/{facts['number']}"
    read = {f"source-{number}-{s}": 0 for s in range(scenario.sources)} | facts["positions"]
    lengths = {f"source-{number}-{s}": scenario.length(s) for s in range(scenario.sources)}
    if ended.status == "FINISHED" and read != lengths:
        problem("every_row_once", f"{at} FINISHED after {read}")
    expected = Counter((source, n) for source, end in read.items() for n in range(end))
    if not scenario.opens or facts["epoch"] < 0:
        expected[OLD[:2]] = 1  # what was there before stays
    held = [
        target.tables[ended.incarnation, number, f"sink-{number}-{s}"].rows
        for s in range(scenario.sinks)
    ]
    for sink, found in enumerate(held):
        have = Counter((source, n) for source, n, _ in found)
        if have != expected:
            more, less = sorted((have - expected).items()), sorted((expected - have).items())
            problem("every_row_once", f"{ended.status} sink {sink}: too many {more}, few {less}")
    if any(sorted(found) != sorted(held[0]) for found in held):
        problem("no_torn_epoch", f"{at}: sinks hold different rows")


def _every_run_told(wire: Wire, looks: AfterCommit, problem: Problem) -> None:
    told = Counter(wire.look("SELECT incarnation, run FROM history"))
    runs = {(i, run + 1) for i, last in looks.runs.items() for run in range(last)}
    if told.keys() != runs or any(number > 1 for number in told.values()):
        problem("end_is_told", f"history has {sorted(told)}, there were {sorted(runs)}")


def _nothing_left(wire: Wire, target: Target, leftovers: list[str], problem: Problem) -> None:
    ended = "('SUCCESS', 'FAILED', 'CANCELED')"
    for what, query in (
        ("tasks", f"SELECT id, status FROM tasks WHERE status NOT IN {ended} AND {_ENDS}"),
        ("secrets", "SELECT job_id FROM job_secrets"),
        ("open epochs", "SELECT epoch FROM epochs WHERE status IN ('PLANNED', 'PREPARED')"),
    ):
        if found := wire.look(query):
            problem("nothing_left_behind", f"{what}: {found}")
    finished = {
        of for (of,) in wire.look("SELECT incarnation FROM history WHERE status='FINISHED'")
    }
    for place, table in target.tables.items():
        # What job cleanup finds later (C5): what a zombie staged after the end; and, of a job that
        # did not finish, what is left of an epoch whose token is spent, when its last owner died
        # between completing and sweeping.
        left = table.staged.keys() - table.late
        if place[0] not in finished:
            left = {staged for staged in left if staged[0] > table.mark}
        if left:
            problem("nothing_left_behind", f"staged at {place}: {sorted(left)}")
    for what in leftovers:
        problem("nothing_left_behind", what)


def _all_cleaned(wire: Wire, target: Target, problem: Problem) -> None:
    """No cleanup is due any more: nothing is left of any job, here or at its targets."""
    for table in _OF_JOBS:
        mine = " WHERE job_id IS NOT NULL" if table == "tasks" else ""
        if found := wire.look(f"SELECT * FROM {table}{mine}"):
            problem("nothing_left_behind", f"{table}: {found}")
    for place, table in target.tables.items():
        # What a zombie stages after that is a stray, and goes with a later cleanup there.
        if left := table.staged.keys() - table.late:
            problem("nothing_left_behind", f"staged at {place}: {sorted(left)}")
        if table.mark >= 0:
            problem("nothing_left_behind", f"mark {table.mark} at {place}")
