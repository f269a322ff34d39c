"""What must hold, each under a name. Some are looked at after every commit, some at the end.

The names in INVARIANTS are what `make simulate` prints, and what mutations are caught by.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from headrace.model.job import JOB_ENDED
from tests.simulation.database import Wire
from tests.simulation.scenario import Scenario
from tests.simulation.target import OLD, Target
from tests.simulation.world import World

Problem = Callable[[str, str], None]

INVARIANTS: Mapping[str, str] = {
    "no_write_under_an_old_term": "what only a leader may write is written under the current term",
    "only_growing": "terms, attempts and epochs only grow; an epoch never goes back a step",
    "ended_stays_ended": "a job that has ended changes no more",
    "every_row_once": "every row of a completed epoch is in every sink once, and no other",
    "no_torn_epoch": "all sinks of a pipeline hold the same rows (E2)",
    "no_epoch_before_the_one_before_it": "N + 1 is committed nowhere before N is everywhere",
    "nothing_deleted_that_may_be_committed": "staged rows go only when their token is spent (E6)",
    "nothing_stuck": "every job ends within STUCK_S once faults have stopped",
    "ends_as_asked": "a job fails or is cancelled only with a cause",
    "nothing_left_behind": "no task, execution, report, secret or staged row outlives its job",
    "ready_stays_ready": "a source that is ready stays so until the end, which needs all (K1, K3)",
    "nothing_unforeseen": "no thread of the product dies, and no error of nobody's is logged",
    "enough_happened": "a history achieves what its shape promises",
}

# Tables that only a leader writes to; of jobs and pipelines, what commands write is told apart.
_LEADERS = ("tasks", "epochs", "workers")
_STEPS = {"PLANNED": 0, "PREPARED": 1, "COMPLETED": 2, "ABORTED": 2}


class AfterCommit:
    """Looks at the store after every commit, at those tables that it wrote to."""

    def __init__(self, world: World, wire: Wire, scenario: Scenario) -> None:
        self._world, self._wire, self._sources = world, wire, scenario.sources
        self._ready: set[tuple[Any, ...]] = set()
        self._attempts: dict[str, int] = {}
        self._epochs: dict[tuple[str, int], int] = {}
        self._steps: dict[tuple[str, int, int], int] = {}
        self._ended: dict[str, tuple[Any, ...]] = {}
        self._term = 0
        self.terms: Counter[str] = Counter()  # won, by actor
        self.open_jobs = 0

    def __call__(self, actor: str, term: int | None, writes: list[str]) -> None:
        tables = {_table(write) for write in writes}
        if "leases" in tables:
            self._lease_grows(actor)
        if not _is_restore(writes) and any(_only_a_leader_writes(write) for write in writes):
            self._term_is_current(actor, term, writes)
        if "tasks" in tables:
            self._attempts_grow()
        if tables & {"pipelines", "epochs"}:
            self._epochs_grow()
        if tables & {"pipelines", "ready_sources"}:
            self._ready_stay_ready()
        if "jobs" in tables:
            self._ended_jobs_stay(restored=_is_restore(writes))

    def _lease_grows(self, actor: str) -> None:
        [(epoch, holder)] = self._wire.look("SELECT epoch, holder FROM leases")
        if epoch < self._term:
            self._world.problem("only_growing", f"term {self._term} became {epoch}")
        if epoch > self._term and holder:
            self.terms[actor] += 1
        self._term = epoch

    def _term_is_current(self, actor: str, term: int | None, writes: list[str]) -> None:
        process = self._world.process
        assert process is not None
        [(epoch, holder)] = self._wire.look("SELECT epoch, holder FROM leases") or [(None, None)]
        if (epoch, holder) != (term, f"{actor}.{process.life}"):
            what = next(write for write in writes if _only_a_leader_writes(write))
            self._world.problem(
                "no_write_under_an_old_term",
                f"{actor} wrote under term {term}, and {epoch} is current: {what[:80]}",
            )

    def _attempts_grow(self) -> None:
        for task, attempt in self._wire.look("SELECT id, attempt FROM tasks"):
            if attempt < self._attempts.get(task, 0):
                self._world.problem("only_growing", f"attempt of task {task} is {attempt}")
            self._attempts[task] = attempt

    def _epochs_grow(self) -> None:
        for job, number, epoch in self._wire.look("SELECT job_id, number, epoch FROM pipelines"):
            if epoch < self._epochs.get((job, number), -1):
                self._world.problem("only_growing", f"epoch of {job}/{number} is {epoch}")
            self._epochs[job, number] = epoch
        query = "SELECT incarnation, pipeline, epoch, status FROM epochs"
        for incarnation, number, epoch, status in self._wire.look(query):
            key, step = (incarnation, number, epoch), _STEPS[status]
            if step < self._steps.get(key, 0):
                self._world.problem("only_growing", f"epoch {epoch} went back to {status}")
            self._steps[key] = step

    def _ready_stay_ready(self) -> None:
        """The set survives everything but the end of its job, with which it goes (K3)."""
        query = "SELECT incarnation, pipeline, source FROM ready_sources ORDER BY 1, 2, 3"
        now = set(self._wire.look(query))
        ended = ", ".join(f"'{status}'" for status in sorted(JOB_ENDED))
        over = {
            i for (i,) in self._wire.look(f"SELECT incarnation FROM jobs WHERE status IN ({ended})")
        }
        if gone := {row for row in self._ready - now if row[0] not in over}:
            self._world.problem("ready_stays_ready", f"no longer ready: {sorted(gone)}")
        self._ready |= now
        finished = self._wire.look(
            "SELECT jobs.incarnation, number FROM pipelines "
            "JOIN jobs ON jobs.id = pipelines.job_id "
            "JOIN epochs ON epochs.incarnation = jobs.incarnation AND pipeline = number "
            "AND epochs.epoch = pipelines.epoch "
            "WHERE pipelines.status = 'FINISHED' AND epochs.kind = 'COMPLETED'"
        )
        for incarnation, number in finished:
            ready = sum(1 for row in self._ready if row[:2] == (incarnation, number))
            if ready != self._sources:
                what = f"{incarnation}/{number} FINISHED with {ready} of {self._sources} ready"
                self._world.problem("ready_stays_ready", what)

    def _ended_jobs_stay(self, *, restored: bool) -> None:
        self.open_jobs = 0
        for row in self._wire.look("SELECT * FROM jobs"):
            job, status = row[0], row[6]
            if restored:
                self._ended.pop(job, None)
            if job in self._ended and self._ended[job] != row:
                self._world.problem("ended_stays_ended", f"{job} was {self._ended[job]}, is {row}")
            if status in JOB_ENDED:
                self._ended[job] = row
            else:
                self.open_jobs += 1


def _table(write: str) -> str:
    words = write.split(None, 3)
    return words[1] if words[0] == "UPDATE" else words[2]


def _only_a_leader_writes(write: str) -> bool:
    table = _table(write)
    if table in _LEADERS:
        return True
    return write.startswith(("UPDATE jobs", "UPDATE pipelines")) and "wanted_" not in write


def _is_restore(writes: list[str]) -> bool:
    """A command that lets a job which has ended begin again, at whatever coordinator."""
    return any(write.startswith("UPDATE jobs") and "restore_key" in write for write in writes)


def at_the_end(
    wire: Wire, target: Target, scenario: Scenario, leftovers: list[str], problem: Problem
) -> None:
    """Everything has ended: what do sinks and the store hold?"""
    query = "SELECT id, incarnation, status, wanted_cancel, error FROM jobs ORDER BY id"
    for job, incarnation, status, cancel, error in wire.look(query):
        _ends_as_asked(job, status, cancel, error, scenario, problem)
        for number in range(1, scenario.pipelines + 1):
            _rows(wire, target, incarnation, number, status, scenario, problem)
    _nothing_left(wire, target, leftovers, problem)


def _ends_as_asked(
    job: str, status: str, cancel: int, error: str | None, scenario: Scenario, problem: Problem
) -> None:
    if status == "CANCELED" and not cancel:
        problem("ends_as_asked", f"{job} is CANCELED, and nobody asked for it")
    if status == "FAILED" and scenario.retry_times > 1:
        problem("ends_as_asked", f"{job} FAILED: {error}")


def _rows(
    wire: Wire,
    target: Target,
    incarnation: str,
    number: int,
    status: str,
    scenario: Scenario,
    problem: Problem,
) -> None:
    [(positions, epoch)] = wire.look(
        "SELECT positions, epoch FROM pipelines JOIN jobs ON jobs.id = job_id "
        f"WHERE incarnation = '{incarnation}' AND number = {number}"
    )
    read = {f"source-{number}-{s}": 0 for s in range(scenario.sources)} | json.loads(positions)
    lengths = {f"source-{number}-{s}": scenario.length(s) for s in range(scenario.sources)}
    if status == "FINISHED" and read != lengths:
        problem("every_row_once", f"{incarnation}/{number} FINISHED after {read}")
    expected = Counter((source, n) for source, end in read.items() for n in range(end))
    if not scenario.opens or epoch < 0:
        expected[OLD[:2]] = 1  # what was there before stays
    held = [
        target.tables[incarnation, number, f"sink-{number}-{s}"].rows for s in range(scenario.sinks)
    ]
    for sink, found in enumerate(held):
        have = Counter((source, n) for source, n, _ in found)
        if have != expected:
            more, less = sorted((have - expected).items()), sorted((expected - have).items())
            problem("every_row_once", f"{status} sink {sink}: too many {more}, too few {less}")
    if any(sorted(found) != sorted(held[0]) for found in held):
        problem("no_torn_epoch", f"{incarnation}/{number}: sinks hold different rows")


def _nothing_left(wire: Wire, target: Target, leftovers: list[str], problem: Problem) -> None:
    ended = "('SUCCESS', 'FAILED', 'CANCELED')"
    for what, query in (
        ("tasks", f"SELECT id, status FROM tasks WHERE status NOT IN {ended}"),
        ("secrets", "SELECT job_id FROM job_secrets"),
        ("open epochs", "SELECT epoch FROM epochs WHERE status IN ('PLANNED', 'PREPARED')"),
    ):
        if found := wire.look(query):
            problem("nothing_left_behind", f"{what}: {found}")
    finished = {i for (i,) in wire.look("SELECT incarnation FROM jobs WHERE status = 'FINISHED'")}
    for place, table in target.tables.items():
        # What job cleanup is to find, once there is one (C5): what a zombie staged after the end;
        # and, of a job that did not finish, what is left of an epoch whose token is spent, when
        # its last owner died between completing and sweeping.
        left = table.staged.keys() - table.late
        if place[0] not in finished:
            left = {staged for staged in left if staged[0] > table.mark}
        if left:
            problem("nothing_left_behind", f"staged at {place}: {sorted(left)}")
    for what in leftovers:
        problem("nothing_left_behind", what)
