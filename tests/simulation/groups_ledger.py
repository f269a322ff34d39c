"""What is known of a life at each moment: the store's rows, and since when nothing went wrong.

Everything that goes wrong is *noted*, with the resource that it hits, or for all. From the latest
note on a resource and its group have their bounded time to be well again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.database import Wire
from tests.simulation.groups_invariants import AfterGroupCommit, Record, State, read
from tests.simulation.groups_setting import BACK_MAX_S, GRACE_S, KEPT_MAX_S, LOWERED_MAX_S, TICK_S
from tests.simulation.world import World

LOOK_S = TICK_S  # between two looks at what is overdue


@dataclass(frozen=True, slots=True)
class Kinds:
    """Containers that differ from the plain one, by name."""

    heals: frozenset[str]
    loose: frozenset[str]  # nothing can be stopped there


@dataclass(slots=True)
class GroupLedger:
    world: World
    wire: Wire
    kinds: Kinds
    enabled: bool  # auto-restart
    state: State = field(default_factory=State)
    happened: Counter[str] = field(default_factory=Counter[str])
    quiet: bool = False  # nothing goes wrong any more
    gone: Callable[[Record], None] | None = None  # told of each record that goes
    _judge: AfterGroupCommit = field(init=False)
    _since_s: defaultdict[str, float] = field(init=False)
    _all_s: float = 0.0
    _look_at_s: float = 0.0

    def __post_init__(self) -> None:
        self._judge = AfterGroupCommit(self.world, enabled=self.enabled, heals=self.kinds.heals)
        self._since_s = defaultdict(float)

    def committed(self, actor: str, _term: int | None, writes: list[str]) -> None:
        if any(name in each for each in writes for name in ("resources", "workers", "groups")):
            before, self.state = self.state, read(self.wire)
            self._judge.judge(actor, before, self.state)
            self._note_changes(actor, before, self.state)

    def _note_changes(self, actor: str, before: State, after: State) -> None:
        """A person changed his mind, a leader gave something up: time counts from there."""
        for name, record in after.records.items():
            old = before.records.get(name)
            if old is None or (record.released, record.step) != (old.released, old.step):
                self._since_s[name] = self._since_s[record.group] = self.world.now_s
                self.happened[record.step.lower()] += old is None or record.step != old.step
        for name in before.records.keys() - after.records.keys():
            self._since_s[before.records[name].group] = self.world.now_s
            self.happened["records gone"] += 1
            if self.gone is not None:
                self.gone(before.records[name])
        if actor == "user":
            for name in after.groups:
                self._since_s[name] = self.world.now_s
        for resource in sorted(before.workers.keys() - after.workers.keys()):
            self.happened["workers lost"] += 1
            self._since_s[before.workers[resource].group] = self.world.now_s
        self._count(before, after)

    def _count(self, before: State, after: State) -> None:
        self.happened["registered"] += len(after.workers.keys() - before.workers.keys())
        lowered = [g for g in after.groups.values() if g.effective is not None]
        was = {g.name for g in before.groups.values() if g.effective is not None}
        self.happened["floors given up"] += sum(1 for g in lowered if g.name not in was)

    def note(self, what: str, resource: str | None = None) -> None:
        """Something goes wrong now: with a resource, or with everything."""
        self.happened[what] += 1
        if resource is None:
            self._all_s = self.world.now_s
            return
        self._since_s[resource] = self.world.now_s
        if (record := self.state.records.get(resource)) is not None:
            self._since_s[record.group] = self.world.now_s

    def launch_of(self, resource: str) -> int | None:
        record = self.state.records.get(resource)
        return record.launch if record is not None else None

    def deadlines_ms(self) -> list[int]:
        """When something becomes due by the clock: a leader that looked earlier found nothing."""
        found = [group.next_at_ms for group in self.state.groups.values()]
        for record in self.state.records.values():
            since_ms = max(record.launched_at_ms, record.orphaned_since_ms or 0)
            found.append(since_ms + round(GRACE_S * 1000))
        return found

    def unnoticed(self) -> bool:
        """Whether the store does not know yet that a resource lacks its worker."""
        missing = [each for each in self._records() if each.id not in self.state.workers]
        return any(each.orphaned_since_ms is None and not each.released for each in missing)

    def asked_for(self) -> bool:
        """Whether something is to be asked of a container, or would be if it answered."""
        return any(each.step == "INTENDED" or each.released for each in self._records())

    def held_back(self, now_ms: int) -> bool:
        """Whether an orphan is due and nothing was done: a leader that took over waits a while."""
        absent = [each for each in self._records() if each.id not in self.state.workers]
        ours = [each for each in absent if each.container not in self.kinds.heals]
        latest_ms = [
            max(each.launched_at_ms, each.orphaned_since_ms or 0)
            for each in ours
            if not each.released
        ]
        return self.enabled and any(each + GRACE_S * 1000 <= now_ms for each in latest_ms)

    def _records(self) -> list[Record]:
        return list(self.state.records.values())

    def overdue(self) -> bool:
        """Looks at the time, and says nothing else: a history goes on."""
        now_s = self.world.now_s
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_S
            self._look(now_s)
        return False

    def _look(self, now_s: float) -> None:
        if not self.enabled:
            return
        for record in self._records():
            absent = record.id not in self.state.workers and not record.released
            late_s = now_s - max(self._since_s[record.id], self._all_s)
            if absent and record.container not in self.kinds.heals and late_s > BACK_MAX_S:
                told = f"{record.id} has no worker for {late_s:.0f} s: {record}"
                self.world.problem("floor_comes_back", told)
        for group in self.state.groups.values():
            floor = group.floor if group.effective is None else group.effective
            limit_s = KEPT_MAX_S if group.effective is None else LOWERED_MAX_S
            late_s = now_s - max(self._since_s[group.name], self._all_s)
            works = self.state.working(group.name) + self._healed(group.name)
            if works < min(floor, group.floor) and not group.removed and late_s > limit_s:
                told = f"{works} of {floor} threads work in {group.name} for {late_s:.0f} s"
                self.world.problem("floor_comes_back", told)

    def _healed(self, group: str) -> int:
        """Threads without a worker that their container brings back, when it can."""
        mine = [each for each in self.state.of(group) if each.container in self.kinds.heals]
        away = [each for each in mine if each.id not in self.state.workers and not each.released]
        return sum(each.threads for each in away if each.step != "FAILED")
