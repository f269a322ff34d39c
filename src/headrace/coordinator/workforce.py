"""The workforce: which workers there are, what each of them can run, and how much room that leaves.

A worker can run a task when the version of the protocol that it speaks knows the task's kind, and
when it has every plug-in that the task needs. A worker that drains is given nothing more, so that
nothing may count on it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from sqlalchemy import Connection

from headrace.model.jobs.needs import from_text, need
from headrace.model.task import TaskKind
from headrace.model.text import count
from headrace.protocol import versions
from headrace.protocol.messages import PluginVersion
from headrace.protocol.versions import PLUGINS_OF_4
from headrace.store.jobs import queue
from headrace.store.jobs.queue import FittingJobs, GroupSlots, Place, QueuedJob
from headrace.store.tasks import workers
from headrace.store.tasks.workers import Worker

DIGESTS_REMEMBERED_MAX = 1000
# Of each worker of a group: slots, version of the protocol, digest of its plug-ins.
WorkersSignature = tuple[tuple[int, int, str], ...]
ROUNDS_MAX = 20  # looks at a line in which jobs need what only some workers have
INSTALL = (
    "`pip install` the package that brings it where a worker of the group runs, then restart that "
    "worker"
)


def plugins_text(plugins: Sequence[PluginVersion]) -> str:
    """What is stored of the plug-ins that a worker says it has."""
    told = sorted([p.role, p.name, p.version, p.digest] for p in plugins)
    return json.dumps(told, ensure_ascii=False)


def digest_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def plugins_in(text: str) -> Sequence[PluginVersion]:
    return [
        PluginVersion(role=role, name=name, version=version, digest=digest)
        for role, name, version, digest in json.loads(text)
    ]


class PluginSets:
    """What workers can run by their plug-ins. A digest always stands for the same ones, so that
    what was read once is remembered."""

    def __init__(self) -> None:
        self._by_digest: dict[str | None, frozenset[str]] = {None: PLUGINS_OF_4}

    def has(self, conn: Connection, worker: Worker, needs: str | None) -> bool:
        """Whether the worker has all these plug-ins."""
        return needs is None or from_text(needs) <= self.of(conn, worker)

    def of(self, conn: Connection, worker: Worker) -> frozenset[str]:
        digest = worker.plugins_digest
        if (known := self._by_digest.get(digest)) is not None:
            return known
        assert digest is not None, "what is behind none is known from the start"
        text = workers.plugins_of(conn, digest)
        if text is None:  # the worker went while we looked
            return frozenset()
        if len(self._by_digest) > DIGESTS_REMEMBERED_MAX:
            self._by_digest = {None: PLUGINS_OF_4}
        found = frozenset(need(each.role, each.name) for each in plugins_in(text))
        self._by_digest[digest] = found
        return found


@dataclass(frozen=True, slots=True)
class Hand:
    """A worker, with the plug-ins that it has."""

    worker: Worker
    plugins: frozenset[str]

    def can_run(self, kind: str, needs: str | None) -> bool:
        return kind not in versions.SPOKEN.unknown_kinds(self.worker.protocol) and (
            needs is None or from_text(needs) <= self.plugins
        )


class Workforce:
    """The workers that don't drain, by group, as they were read at one moment."""

    def __init__(self, hands: Iterable[Hand]) -> None:
        self._by_group: Mapping[str, list[Hand]] = defaultdict(list)
        for hand in hands:
            self._by_group[hand.worker.group].append(hand)
        self._able: dict[tuple[str, str | None, str], Sequence[Hand]] = {}

    @classmethod
    def read(cls, conn: Connection, sets: PluginSets | None = None) -> Workforce:
        sets = sets or PluginSets()
        working = [each for each in workers.registered(conn) if not each.drain_since_ms]
        return cls(Hand(each, sets.of(conn, each)) for each in working)

    def __contains__(self, group: str) -> bool:
        """Whether the group has any worker."""
        return group in self._by_group

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_group)

    def able(self, group: str, needs: str | None, kind: str = TaskKind.PIPELINE) -> Sequence[Hand]:
        """The workers of the group that can run this."""
        asked = (group, needs, kind)
        if asked not in self._able:
            hands = self._by_group.get(group, ())
            self._able[asked] = [hand for hand in hands if hand.can_run(kind, needs)]
        return self._able[asked]

    def slots(self, group: str, needs: str | None = None) -> int:
        """The slots of the group's workers that can run this."""
        return sum(hand.worker.slots for hand in self.able(group, needs))

    def lacks(self, group: str, needs: str | None, kind: str = TaskKind.PIPELINE) -> str | None:
        """What to wait for when the group has workers, and none of them can run this; else None."""
        hands = self._by_group.get(group, ())
        if not hands or self.able(group, needs, kind):
            return None
        none = f"group {group!r} has none among its {count(len(hands), 'worker')}"
        since = versions.SPOKEN.kinds.get(kind, 0)
        knows = [hand for hand in hands if hand.can_run(kind, None)]
        if not knows:
            spoken = ", ".join(map(str, sorted({hand.worker.protocol for hand in hands})))
            return (
                f"a worker that speaks protocol {since}, with which {kind} tasks came; {none}, "
                f"which speak {spoken}: upgrade one of them"
            )
        return f"a worker with {_missing(needs, knows)}; {none}: {INSTALL}"

    def only_some(self, group: str, needs: str | None) -> str:
        """Which workers of the group are meant, for people; empty when all of them can run this."""
        hands, able = self._by_group.get(group, ()), self.able(group, needs)
        if needs is None or len(able) == len(hands):
            return ""
        others = [hand for hand in hands if hand not in able]
        return f" on workers with {_missing(needs, others)}"

    def room(self, conn: Connection, group: str, needs: str | None = None) -> GroupSlots:
        """The slots of the workers in the group that can run this, and how many of them are free.

        A task that waits for a worker counts where it could go; one that is held by a worker which
        can't run this takes nothing away from those that can.
        """
        able = self.able(group, needs)
        if not able:
            return GroupSlots(0, free=0)
        slots = sum(hand.worker.slots for hand in able)
        others = [h.worker.id for h in self._by_group[group] if h not in able]
        held = queue.held_by(conn, others) if others else 0
        elsewhere = sum(
            number
            for wanted, number in queue.planned_by_needs(conn, group).items()
            if not any(hand.can_run(TaskKind.PIPELINE, wanted) for hand in able)
        )
        taken = queue.busy(conn, group) - held - elsewhere
        return GroupSlots(slots, free=max(0, min(slots, slots - taken)))

    def signature(self, group: str) -> WorkersSignature:
        """The same as long as the group's workers can run the same, and as much of it."""
        hands = self._by_group.get(group, ())
        told = [(h.worker.slots, h.worker.protocol, h.worker.plugins_digest or "") for h in hands]
        return tuple(sorted(told))

    def fitting(self, conn: Connection, group: str, *, after: Place, most: int) -> FittingJobs:
        """The first jobs behind a place in a line that the group's workers could run at once, if
        all were free."""
        slots, fewer = self.slots(group), dict[str, int]()
        found = FittingJobs((), read_up_to=None)
        for _ in range(ROUNDS_MAX):
            found = queue.fitting(conn, group, slots=slots, fewer=fewer, after=after, most=most)
            if not (new := self._fewer(group, found.jobs, slots, fewer)):
                return found
            fewer |= new
        fits = [each for each in found.jobs if each.needed <= self.slots(group, each.needs)]
        return FittingJobs(fits, found.read_up_to)

    def any_fits(self, conn: Connection, group: str) -> bool:
        """Whether a job waits that the group's workers could run at once, if all were free."""
        slots, fewer = self.slots(group), dict[str, int]()
        for _ in range(ROUNDS_MAX):
            first = queue.first_fitting(conn, group, slots=slots, fewer=fewer)
            if first is None:
                return False
            if not (new := self._fewer(group, [first], slots, fewer)):
                return True
            fewer |= new
        return False

    def _fewer(
        self, group: str, found: Sequence[QueuedJob], slots: int, known: Mapping[str, int]
    ) -> Mapping[str, int]:
        """By what jobs need: the slots of workers that have it, where these are not all of them."""
        return {
            each.needs: able
            for each in found
            if each.needs is not None
            and each.needs not in known
            and (able := self.slots(group, each.needs)) < slots
        }


def _missing(needs: str | None, hands: Sequence[Hand]) -> str:
    """What each of these workers lacks, or else all that the best of them lacks."""
    wanted = from_text(needs) if needs is not None else frozenset[str]()
    lacking = [wanted - hand.plugins for hand in hands]
    everywhere = frozenset[str](wanted).intersection(*lacking) if lacking else wanted
    return " and ".join(sorted(everywhere or min(lacking, key=len, default=wanted)))
