"""What must hold, each under a name, and those of it that are looked at after every commit.

What is looked at when everything has ended stands in `at_the_end`. The names in INVARIANTS are
what `make simulate` prints, and what mutations are caught by.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from headrace.model.jobs.status import JOB_ENDED
from headrace.model.task import POISON_WORKERS
from headrace.store.jobs.schema import jobs
from tests.simulation.database import Wire
from tests.simulation.groups_invariants import INVARIANTS as OF_GROUPS
from tests.simulation.scenario import Scenario
from tests.simulation.world import World

Problem = Callable[[str, str], None]

INVARIANTS: Mapping[str, str] = {
    "no_write_under_an_old_term": "what only a leader may write is written under the current term",
    "only_growing": "terms, attempts and epochs only grow; an epoch never goes back a step",
    "ended_stays_ended": "a job that has ended changes no more",
    "every_row_once": "every row of a completed epoch is in every sink once, and no other",
    "nothing_skipped_in_silence": "a store older than its targets stops the job, or no row is "
    "skipped or doubled (E7)",
    "no_torn_epoch": "all sinks of a pipeline hold the same rows (E2)",
    "no_epoch_before_the_one_before_it": "N + 1 is committed nowhere before N is everywhere",
    "nothing_deleted_that_may_be_committed": "staged rows go only when their token is spent (E6)",
    "nothing_stuck": "every job ends and every table rests within STUCK_S after the last fault",
    "ends_as_asked": "a job fails or is cancelled only with a cause",
    "nothing_left_behind": "no task, execution, report, secret or staged row outlives its job; "
    "once it is cleaned up, no row of it, no record and no mark does",
    "end_is_told": "whoever sees that a run has ended finds its history and its cleanup record",
    "gone_once_and_in_time": "state goes once, after its delay, and comes back only by a restore",
    "forgotten_when_nobody_can_commit": "no token is asked for after its mark is gone (E1)",
    "only_owned_is_forgotten": "whoever cleans a target is told that its own job has an owner",
    "same_key_same_job": "a submission that is repeated finds the job it made (C6)",
    "every_table_row_once": "a table holds what its writers wrote, once, in files that are there",
    "one_process_at_a_time": "of a table at most one process runs",
    "success_means_landed": "a process is SUCCESS when its commit landed, once, and only then; "
    "one whose outcome was unknown says later that it had landed (E3)",
    "pending_is_not_lost": "a table that rests gains by no plan, or is paused or switched off (T2)",
    "quota_is_kept": "no table has more rewrites at work than its share (T4)",
    "every_change_is_marked": "no sweep finds a job due that nobody marked",
    "ready_stays_ready": "a source that is ready stays so until the end, which needs all (K1, K3)",
    "nothing_unforeseen": "no thread of the product dies, and no error of nobody's is logged",
    "enough_happened": "a history achieves what its shape promises",
    **OF_GROUPS,
}

# Tables that only a leader writes to; of jobs and pipelines, what commands write is told apart.
_LEADERS = ("tasks", "epochs", "workers", "history", "cleanups")
_STEPS = {"PLANNED": 0, "PREPARED": 1, "COMPLETED": 2, "ABORTED": 2}
_ID, _INCARNATION, _STATUS, _CANCEL, _RUN = (
    jobs.c.keys().index(name) for name in ("id", "incarnation", "status", "wanted_cancel", "run")
)
SLACK_S = 0.05  # between looking at a clock and committing


class AfterCommit:
    """Looks at the store after every commit, at those tables that it wrote to."""

    def __init__(
        self,
        world: World,
        wire: Wire,
        scenario: Scenario,
        tables: Callable[[set[str]], None],
    ) -> None:
        self._of_tables = tables
        self._world, self._wire, self._sources = world, wire, scenario.sources
        # A job whose targets are settled at once does not keep its state for anybody to look at.
        delay_ms = 0 if scenario.leaves else scenario.retention.state_cleanup_delay_ms
        self._delay_s = delay_ms / 1000
        self._ready: set[tuple[Any, ...]] = set()  # incarnation, pipeline, source
        self._attempts: dict[str, int] = {}
        self._epochs: dict[tuple[str, int], int] = {}
        self._steps: dict[tuple[str, int, int], int] = {}
        self._ended: dict[str, tuple[Any, ...]] = {}  # by incarnation
        self._ended_at_s: dict[str, tuple[float, float]] = {}  # by the leader's clock, really
        self._gone: set[str] = set()
        self.runs: dict[str, int] = {}
        self.canceled: set[str] = set()  # somebody asked for it
        self.completed: set[tuple[str, int, int]] = set()  # epochs
        self.poisoned: set[str] = set()  # an epoch took too many workers along
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
        if "jobs" in tables:
            self._ended_jobs_stay(restored=_is_restore(writes))
        if tables & {"pipelines", "epochs"}:
            self._epochs_grow()
        if tables & {"pipelines", "ready_sources"}:
            self._ready_stay_ready()
        self._of_tables(tables)

    def rewound(self) -> None:
        """The store was restored from a backup: what was seen since has not been."""
        self._attempts, self._epochs, self._steps, self._term = {}, {}, {}, 0
        query = "SELECT incarnation, pipeline, source FROM ready_sources ORDER BY 1, 2, 3"
        self._ready = set(self._wire.look(query))
        self._ended, self.runs, self.completed = {}, {}, set()
        self._ended_jobs_stay(restored=False)
        self._epochs_grow()

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
        query = "SELECT incarnation, number, epoch FROM pipelines JOIN jobs ON jobs.id = job_id"
        for incarnation, number, epoch in self._wire.look(query):
            if epoch < self._epochs.get((incarnation, number), -1):
                self._world.problem("only_growing", f"epoch of {incarnation}/{number} is {epoch}")
            self._epochs[incarnation, number] = epoch
        query = "SELECT incarnation, pipeline, epoch, status, lost_on FROM epochs"
        for incarnation, number, epoch, status, lost_on in self._wire.look(query):
            if len(json.loads(lost_on)) >= POISON_WORKERS:
                self.poisoned.add(incarnation)
            key, step = (incarnation, number, epoch), _STEPS[status]
            if step < self._steps.get(key, 0):
                self._world.problem("only_growing", f"epoch {epoch} went back to {status}")
            if incarnation in self._gone:
                self._world.problem("gone_once_and_in_time", f"epoch {key} came back")
            self._steps[key] = step
            if status == "COMPLETED":
                self.completed.add(key)

    def _ready_stay_ready(self) -> None:
        """The set survives everything but the end of its job, with which it goes (K3)."""
        query = "SELECT incarnation, pipeline, source FROM ready_sources ORDER BY 1, 2, 3"
        now = set(self._wire.look(query))
        if gone := {row for row in self._ready - now if row[0] not in self._ended}:
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
        now = {row[_INCARNATION]: row for row in self._wire.look("SELECT * FROM jobs")}
        for incarnation, row in now.items():
            if restored and row[_STATUS] not in JOB_ENDED:
                self._goes_on(incarnation)
            before = self._ended.get(incarnation)
            self._is_as_before(incarnation, before, row)
            self.runs[incarnation] = row[_RUN]
            if row[_CANCEL]:
                self.canceled.add(incarnation)
            if row[_STATUS] not in JOB_ENDED:
                self.open_jobs += 1
            elif before is None:
                self._has_ended(incarnation, row)
        for incarnation in self._ended.keys() - now.keys() - self._gone:
            self._is_gone(incarnation)

    def _is_as_before(self, incarnation: str, before: Any, row: tuple[Any, ...]) -> None:
        if incarnation in self._gone:
            self._world.problem("gone_once_and_in_time", f"{incarnation} came back: {row}")
        elif before not in {None, row}:
            self._world.problem("ended_stays_ended", f"was {before}, is {row}")

    def _goes_on(self, incarnation: str) -> None:
        """By a restore: who was ready after the savepoint is so no more (K3)."""
        if self._ended.pop(incarnation, None) is not None:
            self._gone.discard(incarnation)
            self._ready = {row for row in self._ready if row[0] != incarnation}

    def _has_ended(self, incarnation: str, row: tuple[Any, ...]) -> None:
        self._ended[incarnation] = row
        self._ended_at_s[incarnation] = (self._leaders_s(), self._world.now_s)
        told = self._wire.look(
            f"SELECT 1 FROM history WHERE incarnation = '{incarnation}' AND run = {row[_RUN]}"
        )
        due = self._wire.look(f"SELECT 1 FROM cleanups WHERE incarnation = '{incarnation}'")
        if not told or not due:
            what = f"{incarnation} is {row[_STATUS]}: history {told}, cleanup {due}"
            self._world.problem("end_is_told", what)

    def _is_gone(self, incarnation: str) -> None:
        """By the world's time, or by the clocks of the two leaders that saw its end and this: which
        of them is right, they can't know."""
        self._gone.add(incarnation)
        by_leaders_s, by_world_s = self._ended_at_s[incarnation]
        after_s = max(self._leaders_s() - by_leaders_s, self._world.now_s - by_world_s)
        if after_s < self._delay_s - SLACK_S:
            self._world.problem("gone_once_and_in_time", f"{incarnation} gone after {after_s} s")

    def _leaders_s(self) -> float:
        process = self._world.process
        assert process is not None
        return self._world.now_s + self._world.jumps_ms[process.actor] / 1000


def _table(write: str) -> str:
    words = write.split(None, 3)
    return words[1] if words[0] == "UPDATE" else words[2]


def _only_a_leader_writes(write: str) -> bool:
    table = _table(write)
    if table in _LEADERS:
        # A dry plan is asked for at any node, and so is a cleanup that is to begin at once.
        return '"dry"' not in write and " SET wanted_at_once=1 " not in write
    if table in {"lake_tables", "processes"}:
        return write.startswith("INSERT") or " status=" in write or "task_id=" in write
    if write.startswith("UPDATE jobs SET log_number="):
        return False  # whoever says something of a job counts it
    return write.startswith(("UPDATE jobs", "UPDATE pipelines")) and "wanted_" not in write


def _is_restore(writes: list[str]) -> bool:
    """A command that lets a job which has ended begin again, at whatever coordinator."""
    return any(write.startswith("UPDATE jobs") and "restore_key" in write for write in writes)
