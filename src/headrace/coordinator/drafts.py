"""What becomes of a batch of syncs: an answer for each, and what others should hear of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.model.task import OF_TABLES, Claim
from headrace.protocol.messages import Acknowledged, Answer, Assignment, Progress, Sync
from headrace.store.tasks import Task
from headrace.store.workers import Worker


@dataclass(slots=True)
class Draft:
    """An answer in the making."""

    sync: Sync
    number: int
    worker: Worker | None
    assigned: dict[Claim, Task] = field(default_factory=dict[Claim, Task])
    acknowledged: list[Acknowledged] = field(default_factory=list[Acknowledged])
    assignments: list[Assignment] = field(default_factory=list[Assignment])
    stop: list[Claim] = field(default_factory=list[Claim])
    savepoint: list[Claim] = field(default_factory=list[Claim])
    lines: int = 0  # taken up to here

    def has_seen(self, task: Task) -> bool:
        """Whether the worker saw the answer that gave it this task."""
        seen = (self.sync.seen.term, self.sync.seen.number)
        return task.assigned is not None and task.assigned <= seen

    def answer(self, term: int) -> Answer:
        return Answer(
            term=term,
            number=self.number,
            registered=self.worker is not None,
            assignments=tuple(self.assignments),
            stop=tuple(self.stop),
            savepoint=tuple(self.savepoint),
            acknowledged=tuple(self.acknowledged),
            lines=self.lines,
        )


@dataclass(slots=True)
class Touched:
    """What a batch changed that others should hear of, once it is committed."""

    jobs: set[str] = field(default_factory=set[str])
    tables: bool = False  # a task of a table ended, or was given to somebody
    running: bool = False  # an execution said that its epoch runs
    assigned: bool = False  # somebody is given a task
    acked: bool = False  # a worker said for the first time that it holds one
    again: list[Task] = field(default_factory=list[Task])  # assignments that are said again
    # By worker: how far what it holds has got, as it stands in the store from then on.
    progress: dict[str, Mapping[Claim, Progress]] = field(
        default_factory=dict[str, Mapping[Claim, Progress]]
    )
    # By worker: all it was given when it spoke, and what it said of it.
    heard: dict[str, Sequence[tuple[Task, Progress | None]]] = field(
        default_factory=dict[str, Sequence[tuple[Task, Progress | None]]]
    )

    def see(self, task: Task) -> None:
        """Whoever it belongs to may have something to do."""
        if task.job_id:
            self.jobs.add(task.job_id)
        self.tables |= task.kind in OF_TABLES
