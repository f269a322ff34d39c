"""Whose turn it is: jobs of a group are admitted in the order in which they were accepted.

A job needs a slot for each of its pipelines, all at once. While the first in line waits for them
nobody behind it gets any: a large job is not starved by small ones that always fit. Only a job
that needs more slots than its group has in all stands beside the line, until workers are added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from headrace.errors import Refused
from headrace.store import queue, workers
from headrace.store.jobs import Job
from headrace.store.queue import Room, Waiting

# So many places from the front a job is told exactly who is before it. Further back it hears a
# round number: else each job that is admitted would cost a write for all that wait behind it.
TOLD_PLACES_MAX = 20


class Lines:
    """Who waits, as it was read at one moment: the queue of each group."""

    def __init__(self, waiting: Sequence[Waiting], slots: Mapping[str, int]) -> None:
        self.in_turn = [each.job_id for each in waiting]
        self._waiting = {each.job_id: each for each in waiting}
        self._slots = slots
        self._lines: dict[str, list[Waiting]] = {}
        self._places: dict[str, int] = {}
        self._heads: dict[str, int] = {}  # by group: how many of its line have had their turn
        for each in waiting:
            if each.needed <= slots.get(each.group, 0):
                line = self._lines.setdefault(each.group, [])
                self._heads[each.group] = 0
                self._places[each.job_id] = len(line)
                line.append(each)

    @classmethod
    def read(cls, conn: Connection) -> Lines:
        return cls(queue.waiting(conn), workers.slots_by_group(conn))

    def __contains__(self, job: Job) -> bool:
        found = self._waiting.get(job.id)
        return found is not None and found.group == job.group

    def waits_for(self, conn: Connection, job: Job) -> str | None:
        """What a job waits for that is in here; None: it can have all its slots now."""
        if not self.is_next(job.id):
            return self._known(job.id)
        room = queue.room(conn, job.group)  # of now: those before it have had theirs
        return _needs(self.needed(job), room, job.group) if room.free < self.needed(job) else None

    def is_told(self, job_id: str) -> bool:
        """Whether it need not be looked at: it knows for what it waits, and that is so still."""
        found = self._waiting.get(job_id)
        return found is not None and not self.is_next(job_id) and found.told == self._known(job_id)

    def is_next(self, job_id: str) -> bool:
        """Whether it is in line, and nobody is before it."""
        return job_id in self._places and self._before(job_id) <= 0

    def is_beside(self, job_id: str) -> bool:
        """Whether it needs more slots than there are."""
        return job_id not in self._places

    def needed(self, job: Job) -> int:
        return self._waiting[job.id].needed

    def _before(self, job_id: str) -> int:
        return self._places[job_id] - self._heads[self._waiting[job_id].group]

    def _known(self, job_id: str) -> str:
        """What it waits for, whatever is free now."""
        one = self._waiting[job_id]
        if job_id not in self._places:
            return _needs(one.needed, Room(self._slots.get(one.group, 0), free=0), one.group)
        return _turn(
            self._before(job_id), self._lines[one.group][self._heads[one.group]], one.group
        )

    def had_its_turn(self, job_id: str) -> None:
        """If nobody was before it: whatever became of it, it is the next one's turn."""
        place = self._places.get(job_id)
        if place is not None and place == self._heads[self._waiting[job_id].group]:
            self._heads[self._waiting[job_id].group] += 1


def check_room(conn: Connection, job_id: str, group: str, *, needed: int) -> None:
    """Refuse a job that was accepted in this transaction, and would have to wait."""
    room = queue.room(conn, group)
    spoken_for = queue.needed(conn, group) - needed  # by others that were accepted before
    room = Room(room.slots, free=max(0, room.free - spoken_for))
    if needed > room.free:
        raise Refused(no_room(job_id, group, needed=needed, room=room))


def no_room(job_id: str, group: str, *, needed: int, room: Room) -> str:
    slots = "a slot" if needed == 1 else f"{needed} slots at once"
    return (
        f"job {job_id!r} needs {slots}, and group {group!r} has {room.free} of {room.slots} "
        "free. This coordinator lets no job wait (`--job-schedule-strategy REJECT`): submit it "
        "again when other jobs have ended, or add workers to the group"
    )


def _needs(needed: int, room: Room, group: str) -> str:
    if 0 < room.slots < needed:
        return (
            f"{needed} slots at once; group {group!r} has {room.slots} in all: add workers to the "
            "group, or cancel the job and submit it with fewer pipelines"
        )
    wanted = "a free slot" if needed == 1 else f"{needed} free slots"
    return f"{wanted} in group {group!r}; it has {room.free} of {room.slots}"


def _turn(before: int, first: Waiting, group: str) -> str:
    if before > TOLD_PLACES_MAX:
        return f"its turn: more than {_rounded(before)} jobs before it in group {group!r}"
    slots = "1 slot" if first.needed == 1 else f"{first.needed} slots"
    jobs = "1 job" if before == 1 else f"{before} jobs"
    who = f"first {first.job_id!r}" if before > 1 else repr(first.job_id)
    return f"its turn: {jobs} before it in group {group!r}, {who} which needs {slots}"


def _rounded(before: int) -> int:
    """Its first digit and zeros, and less than it is."""
    zeros = 10 ** (len(str(before - 1)) - 1)
    return (before - 1) // zeros * zeros
