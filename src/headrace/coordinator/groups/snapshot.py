"""The state of a group at one moment (`GroupSnapshot`), what to do about it, and its forecast.

The leader acts on a snapshot, and people are shown a forecast of the same snapshot: there is no
second truth for them. A forecast says in a sentence what the leader does next about a group or a
resource, and when. It is pure, and asks the very functions that the leader asks, at the moment at
which they will act; so nothing is announced that does not come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from sqlalchemy import Connection

from headrace.containers.container import Supports, WorkerContainer
from headrace.coordinator.context import GroupOptions
from headrace.model.groups import (
    AutoRestart,
    Capacity,
    Decision,
    KeepSetting,
    Kept,
    LaunchStep,
    OrphanVerdict,
    ResourceErrorKind,
    ResourceNotice,
    ResourceState,
    Threads,
    decide_orphan,
    keep,
    surplus,
)
from headrace.model.text import count, span
from headrace.store.groups import resources
from headrace.store.groups.groups import Group
from headrace.store.groups.resources import Resource
from headrace.store.tasks import workers
from headrace.store.tasks.workers import Worker

DRAIN_MAX_MS = 15 * 60_000  # for a released worker to finish its tasks
ARRIVAL_MAX_MS = 60_000  # for workers to find a leader that took over
START_MAX_MS = 10 * 60_000  # an answer to a start that has not come by then never does
FOR_FLOOR = "floor"  # `made_for` of a resource that keeps the floor
COMMAND = "command"  # the property with the command by which a user starts the resource
NOT_NEEDED = "it was made for the floor of its group, which needs it no more"
COMES_BACK = frozenset({OrphanVerdict.RESTART, OrphanVerdict.WAIT, OrphanVerdict.NOTICE})


class GroupSnapshot:
    """A group, its resources and its workers, and the decision for each resource."""

    def __init__(
        self,
        group: Group,
        held: Sequence[Resource],
        registered: Sequence[Worker],
        options: GroupOptions,
        *,
        now_ms: int,
        led_since_ms: int = 0,
    ) -> None:
        self.group, self.now_ms, self._options = group, now_ms, options
        self._led_since_ms = led_since_ms
        self.workers: Mapping[str, Worker] = {
            each.resource_id: each for each in registered if each.resource_id
        }
        by_hand = [
            Threads(each.slots, registered=True, draining=each.drain_since_ms > 0)
            for each in registered
            if not each.resource_id
        ]
        self._surplus: frozenset[str] = frozenset()
        self._surplus = self._not_needed([(each, self._decide(each)) for each in held], by_hand)
        self.decisions = [(each, self._decide(each)) for each in held]
        self.capacity = Capacity.of([self._threads(*each) for each in self.decisions] + by_hand)

    @classmethod
    def at(
        cls,
        conn: Connection,
        group: Group,
        options: GroupOptions,
        *,
        now_ms: int,
        led_since_ms: int = 0,
    ) -> GroupSnapshot:
        return cls(
            group,
            resources.of_group(conn, group.name),
            workers.of_group(conn, group.name),
            options,
            now_ms=now_ms,
            led_since_ms=led_since_ms,
        )

    @property
    def to_drain(self) -> Sequence[Worker]:
        """Workers that are not draining yet although their resource is wanted gone."""
        released = [each.id for each, _ in self.decisions if each.wanted_released]
        leaving = [self.workers[each] for each in released if each in self.workers]
        return [worker for worker in leaving if not worker.drain_since_ms]

    @property
    def kept(self) -> Kept | None:
        """What to do to keep the floor. None: no container can be asked to start workers, so no
        attempt is counted."""
        container = self.container_of(self.group.container)
        if container is None or not container.supports.start:
            return None
        group, setting = self.group, self._options.keep
        return keep(
            group.min_parallelism, self.capacity, group.keeping, setting, now_ms=self.now_ms
        )

    @property
    def changes(self) -> bool:
        """Whether the reconciler has anything to write."""
        if self.to_drain or any(self._needs_writing(*each) for each in self.decisions):
            return True
        kept = self.kept
        return kept is not None and (kept.keeping != self.group.keeping or kept.request > 0)

    def _needs_writing(self, resource: Resource, decision: Decision) -> bool:
        notice = notice_of(decision.verdict, self.container_of(resource.container))
        if notice is not None:
            return resource.notice is not notice
        return decision.verdict not in {OrphanVerdict.NOTHING, OrphanVerdict.WAIT}

    def container_of(self, name: str) -> WorkerContainer | None:
        return self._options.containers.get(name)

    def state_of(self, resource: Resource) -> ResourceState:
        container = self.container_of(resource.container)
        return ResourceState(
            alive=resource.id in self.workers,
            released=resource.wanted_released,
            orphaned_since_ms=self._believed(resource.orphaned_since_ms),
            started_at_ms=self._started_at_ms(resource),
            judged_from_ms=self._judged_from_ms(resource),
            attempts=resource.attempts,
            configured=container is not None,
            restartable=container is not None and container.supports.restart,
            needed=resource.id not in self._surplus,
        )

    def _believed(self, at_ms: int | None) -> int | None:
        """A stored time; None when it is ahead by more than a grace period: a leader with a wrong
        clock wrote it, and waiting for it might take years. Clocks of leaders may differ by
        less."""
        ahead = at_ms is not None and at_ms > self.now_ms + self._options.auto_restart.grace_ms
        return None if ahead else at_ms

    def _started_at_ms(self, resource: Resource) -> int | None:
        """From when the grace period counts. A start that waits for its turn, or for an answer of
        its container, is not replaced by another: that would count attempts that were never
        made."""
        asked_at_ms = self._believed(resource.launched_at_ms)
        if asked_at_ms is None or resource.step is not LaunchStep.INTENDED:
            return asked_at_ms
        return min(self.now_ms, asked_at_ms + START_MAX_MS)

    def _judged_from_ms(self, resource: Resource) -> int:
        """From when on a resource may be judged after a take-over: without a leader no worker could
        register and no intended start was made, so both get their time first."""
        if self.now_ms < self._led_since_ms:  # the wall clock was set back
            return 0
        arrival_ms = min(self._options.auto_restart.grace_ms, ARRIVAL_MAX_MS)
        intended = resource.step is LaunchStep.INTENDED
        return self._led_since_ms + (START_MAX_MS if intended else arrival_ms)

    def _decide(self, resource: Resource) -> Decision:
        known, setting = self.state_of(resource), self._options.auto_restart
        return decide_orphan(known, setting, leads=True, now_ms=self.now_ms)

    def _not_needed(
        self, decided: Sequence[tuple[Resource, Decision]], by_hand: Sequence[Threads]
    ) -> frozenset[str]:
        """Ids of resources requested for the floor that others cover by now, because auto-restart
        was off or the floor was higher. What a user asked for is always needed."""
        parts = [(*each, self._threads(*each)) for each in decided]
        mine = [each for each in parts if each[0].made_for == FOR_FLOOR and self._restarts(*each)]
        ids = {resource.id for resource, _, _ in mine}
        others = [threads for resource, _, threads in parts if resource.id not in ids]
        mine.sort(key=lambda each: self._comes_back_at(*each))
        return surplus(
            self.group.min_parallelism,
            Capacity.of([*others, *by_hand]).asked_for,
            [(resource.id, resource.threads) for resource, _, _ in mine],
        )

    def _restarts(self, resource: Resource, _: Decision, threads: Threads) -> bool:
        """Whether the leader, and not the container, starts it again."""
        return threads.restarting and self.state_of(resource).restartable

    def _comes_back_at(
        self, resource: Resource, decision: Decision, threads: Threads
    ) -> tuple[bool, int, str]:
        """A sort key: what is under way comes before what is still to be started again."""
        intended = resource.step is LaunchStep.INTENDED
        under_way = threads.booting or resource.attempts > 0 or intended
        noticed = decision.verdict is OrphanVerdict.NOTICE
        grace_ms = self._options.auto_restart.grace_ms if noticed else 0
        return not under_way, decision.until_ms or self.now_ms + grace_ms, resource.id

    def _threads(self, resource: Resource, decision: Decision) -> Threads:
        """How the threads of a resource count towards the capacity of the group."""
        worker = self.workers.get(resource.id)
        if worker is not None:
            draining = worker.drain_since_ms > 0 or resource.wanted_released
            return Threads(worker.slots, registered=True, draining=draining)
        if resource.wanted_released:
            return Threads(0)
        setting = self._options.auto_restart
        young = is_within_grace(resource, setting.grace_ms, now_ms=self.now_ms)
        booting = young and resource.step is not LaunchStep.FAILED
        waits = decision.verdict in COMES_BACK and setting.enabled
        comes_back = (waits and self.state_of(resource).restartable) or self._heals_itself(resource)
        return Threads(resource.threads, booting=booting, restarting=comes_back)

    def _heals_itself(self, resource: Resource) -> bool:
        """Whether its container brings it up, however long that takes: no other is requested."""
        container = self.container_of(resource.container)
        if container is None or not container.supports.start or container.supports.restart:
            return False
        return resource.step is not LaunchStep.FAILED


def is_within_grace(resource: Resource, grace_ms: int, *, now_ms: int) -> bool:
    """Whether it was started so recently that its worker may still be booting."""
    at_ms = resource.launched_at_ms or 0
    return at_ms - grace_ms <= now_ms < at_ms + grace_ms


def is_given_up(resource: Resource) -> bool:
    return resource.wanted_released and resource.notice is ResourceNotice.GAVE_UP


def not_stopped(resource: Resource) -> str | None:
    """Why the last stop failed, if one was tried. The error of a resource may as well be how its
    worker ended before anybody wanted it gone."""
    stop_failed = resource.error_kind is ResourceErrorKind.NOT_STOPPED
    return resource.error if resource.wanted_released and stop_failed else None


def notice_of(verdict: OrphanVerdict, container: WorkerContainer | None) -> ResourceNotice | None:
    """The notice with which a resource is left alone (R6, R7); None: it is not."""
    return _left_alone(verdict, container.supports if container is not None else None)


def _left_alone(verdict: OrphanVerdict, supports: Supports | None) -> ResourceNotice | None:
    if verdict is OrphanVerdict.ISOLATED:
        return ResourceNotice.ISOLATED
    if verdict is not OrphanVerdict.OPTED_OUT:
        return None
    by_user = supports is not None and not supports.start
    return ResourceNotice.LEFT_TO_USER if by_user else ResourceNotice.OPTED_OUT


def text_of(notice: ResourceNotice, resource: Resource) -> str:
    """A notice as people read it."""
    container = resource.container
    match notice:
        case ResourceNotice.ISOLATED:
            return (
                f"its container {container!r} is no longer configured, so nobody can start it; "
                "configure the container again, or release the resource"
            )
        case ResourceNotice.LEFT_TO_USER:
            return f"its container {container!r} leaves starting to you; nobody else starts it"
        case ResourceNotice.OPTED_OUT:
            return (
                f"its container {container!r} does not have it started again by us; release the "
                "resource if it does not come back"
            )
        case ResourceNotice.NOT_NEEDED:
            return NOT_NEEDED
        case ResourceNotice.GROUP_REMOVED:
            return "its group is removed"
        case ResourceNotice.GAVE_UP:
            return f"gave up after {count(resource.attempts, 'attempt')}"
    assert_never(notice)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the leader does next, in a sentence."""

    text: str
    at_ms: int | None = None  # when, if the time is known
    because: str | None = None  # how the latest start or worker of it ended


def group_forecast(
    group: Group,
    capacity: Capacity,
    setting: KeepSetting,
    *,
    resources: int,
    supports: Supports | None,
    now_ms: int,
) -> Forecast:
    """`supports` is that of the group's container; None: the container is not configured here."""
    floor = group.min_parallelism
    if group.wanted_removed:
        left = count(resources, "resource")
        return Forecast(f"removed once {left} of it are released" if resources else "removed now")
    if floor == 0:
        return Forecast("nothing: no floor is set. `headrace group scale` asks for workers")
    if capacity.registered >= floor:
        return Forecast(f"nothing: its floor of {floor} is kept")
    missing = capacity.missing(floor)
    if supports is None:
        return Forecast(
            f"nothing: container {group.container!r} is not configured, so nobody can be asked for "
            f"{count(missing, 'thread')}; configure it, or change it with "
            f"`headrace group set {group.name} --container …`"
        )
    if not supports.start:
        return Forecast(
            f"nothing: container {group.container!r} leaves starting to you, and "
            f"{count(missing, 'thread')} are missing; `headrace group scale {group.name} "
            f"--threads {missing}` says with which command"
        )
    return _keeping(group, capacity, setting, now_ms=now_ms)


def _keeping(group: Group, capacity: Capacity, setting: KeepSetting, *, now_ms: int) -> Forecast:
    floor, before = group.min_parallelism, group.keeping
    at_ms = before.due_at_ms(setting, now_ms=now_ms)
    when = f"in {span(at_ms - now_ms)}" if at_ms > now_ms else "now"
    if before.effective is not None and at_ms > now_ms:
        works = f"{capacity.registered} work" if capacity.registered else "none works"
        return Forecast(
            f"the floor of {floor} was given up: {works}; tried again {when}", at_ms, before.reason
        )
    then = keep(floor, capacity, before, setting, now_ms=at_ms)
    if then.request:
        which = f"request {then.keeping.attempts} of {setting.max_attempts}"
        if before.effective is not None:
            which = f"once more, after {count(before.attempts, 'request')}"
        return Forecast(f"asks for {count(then.request, 'thread')} {when} ({which})", at_ms)
    if then.keeping.effective is not None and then.keeping.effective != before.effective:
        spent = count(before.attempts, "request")
        return Forecast(f"gives up its floor of {floor} {when}, after {spent}", at_ms)
    awaited = capacity.booting + capacity.restarting
    return Forecast(f"waits for {count(awaited, 'thread')}, booting or being started again")


def resource_forecast(
    resource: Resource,
    known: ResourceState,
    setting: AutoRestart,
    *,
    worker: Worker | None,
    supports: Supports | None,
    now_ms: int,
) -> Forecast:
    """`supports` is that of the resource's container; None: the container is not configured
    here."""
    if worker is not None:
        return _working(resource, worker, now_ms)
    if resource.wanted_released:
        return Forecast(_going(resource, supports), because=resource.error)
    if resource.step is LaunchStep.INTENDED and supports is not None:
        return Forecast(_starting(resource, setting, supports), because=resource.error)
    decision = decide_orphan(known, setting, leads=True, now_ms=now_ms)
    if decision.verdict is OrphanVerdict.NOTICE:  # its grace period begins at the next pass, now
        known = replace(known, orphaned_since_ms=now_ms)
        decision = decide_orphan(known, setting, leads=True, now_ms=now_ms)
    if (at_ms := decision.until_ms) is not None:
        then = decide_orphan(known, setting, leads=True, now_ms=at_ms)
        if then.verdict is OrphanVerdict.SURPLUS:
            text = f"{_booting(resource, setting, now_ms)}{_let_go(at_ms - now_ms)}"
            return Forecast(text, at_ms, because=resource.error)
    text, at_ms = _without_worker(resource, decision, setting, supports, now_ms)
    return Forecast(text, at_ms, because=resource.error)


def worker_forecast(worker: Worker) -> Forecast:
    """For a worker that was started by hand."""
    if worker.drain_since_ms:
        ends = "somebody started it by hand, and has to end it"
        return Forecast(f"takes nothing new; {ends}, {_unless_resumed(worker)}")
    return Forecast("works; somebody started it by hand, and nobody else starts it again")


def _working(resource: Resource, worker: Worker, now_ms: int) -> Forecast:
    if (failed := not_stopped(resource)) is not None:
        return Forecast(_tried_again(failed), because=resource.error)
    if resource.wanted_released:
        at_ms = min(worker.drain_since_ms or now_ms, now_ms) + DRAIN_MAX_MS
        late = span(at_ms - now_ms)
        return Forecast(f"stopped when it holds nothing any more, at the latest in {late}", at_ms)
    if worker.drain_since_ms:
        return Forecast(
            f"takes nothing new, and stays until it is released, {_unless_resumed(worker)}"
        )
    return Forecast("works")


def _unless_resumed(worker: Worker) -> str:
    return f"unless `headrace worker resume {worker.id}` takes that back"


def _going(resource: Resource, supports: Supports | None) -> str:
    why = f"{resource.told}; " if resource.told else ""
    if supports is not None and (failed := not_stopped(resource)) is not None:
        return f"{why}{_tried_again(failed)}"
    if supports is None or not supports.stop:
        return f"{why}its record goes now"
    return f"{why}container {resource.container!r} stops it, then its record goes"


def _tried_again(failed: str) -> str:
    return f"{failed}; tried again in a moment"


def _starting(resource: Resource, setting: AutoRestart, supports: Supports) -> str:
    if not supports.start:
        return (
            f"container {resource.container!r} leaves starting to you; in a moment "
            f"`headrace group show {resource.group}` has the command"
        )
    request = f"container {resource.container!r} is asked to start it"
    if resource.attempts:
        return f"restart {resource.attempts} of {setting.max_retries} now: {request}"
    if resource.error is not None and not supports.restart:  # repeated until it succeeds
        return f"{request} again in a moment"
    return f"{request} now"


def _without_worker(
    resource: Resource,
    decision: Decision,
    setting: AutoRestart,
    supports: Supports | None,
    now_ms: int,
) -> tuple[str, int | None]:
    booting = _booting(resource, setting, now_ms)
    match decision.verdict:
        case OrphanVerdict.WAIT:
            at_ms = decision.until_ms or now_ms
            return f"{booting}{_then(resource, setting)} in {span(at_ms - now_ms)}", at_ms
        case OrphanVerdict.RESTART:
            return f"restart {decision.attempt} of {setting.max_retries} now", now_ms
        case OrphanVerdict.REMOVE:
            return f"given up now, after {count(resource.attempts, 'attempt')}", now_ms
        case OrphanVerdict.SURPLUS:
            return f"released now: {NOT_NEEDED}", now_ms
        case OrphanVerdict.ISOLATED | OrphanVerdict.OPTED_OUT:
            notice = _left_alone(decision.verdict, supports)
            assert notice is not None
            text = text_of(notice, resource)
            by_user = notice is ResourceNotice.LEFT_TO_USER
            command = resource.properties.get(COMMAND) if by_user else None
            return (f"{text}: {command}" if command else text), None
        case OrphanVerdict.NOTHING | OrphanVerdict.NOTICE | OrphanVerdict.RECOVERED:
            return f"{booting}nothing: auto-restart is off. {_by_hand(resource)}", None
        case _:
            assert_never(decision.verdict)


def _let_go(after_ms: int) -> str:
    return f"released in {span(after_ms)}, unless its worker registers: {NOT_NEEDED}"


def _then(resource: Resource, setting: AutoRestart) -> str:
    if resource.attempts >= setting.max_retries:
        return f"given up after {count(resource.attempts, 'attempt')}, unless its worker registers,"
    return f"restart {resource.attempts + 1} of {setting.max_retries}"


def _booting(resource: Resource, setting: AutoRestart, now_ms: int) -> str:
    """The text for a start that may still be booting, otherwise empty."""
    young = is_within_grace(resource, setting.grace_ms, now_ms=now_ms)
    started = resource.step is LaunchStep.STARTED and resource.error is None
    return f"launch {resource.launch} boots; " if young and started else ""


def _by_hand(resource: Resource) -> str:
    return (
        f"`headrace worker release {resource.id}` takes it away, and a coordinator with "
        "--auto-restart starts it again"
    )
