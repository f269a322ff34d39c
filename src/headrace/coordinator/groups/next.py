"""What the keeper does next about a group and its resources, and when, in a sentence.

Pure, and over the facts that decide: it asks the very functions that the leader asks, at the moment
at which they will act. So nothing is announced that does not come.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from headrace.containers.launching import Supports
from headrace.coordinator.groups.due import DRAIN_MAX_MS
from headrace.coordinator.groups.look import NOT_NEEDED, is_young, left_alone
from headrace.coordinator.groups.telling import not_stopped
from headrace.model.groups.capacity import Capacity, KeepSetting, keep
from headrace.model.groups.orphans import AutoRestart, Decision, Known, Verdict, decide
from headrace.model.groups.resource import LaunchStep
from headrace.model.measures import count, span
from headrace.store.groups import Group
from headrace.store.resources import Resource
from headrace.store.workers import Worker

COMMAND = "command"  # a property of a resource that its user starts: how


@dataclass(frozen=True, slots=True)
class Next:
    said: str
    at_ms: int | None = None  # when, if it is a matter of time
    because: str | None = None  # how the latest start or worker of it ended


def of_resource(
    resource: Resource,
    known: Known,
    setting: AutoRestart,
    *,
    worker: Worker | None,
    supports: Supports | None,
    now_ms: int,
) -> Next:
    """`supports`: of its container; None: that is not configured here."""
    if worker is not None:
        return _working(resource, worker, now_ms)
    if resource.wanted_released:
        return Next(_going(resource, supports), because=resource.error)
    if resource.step is LaunchStep.INTENDED and supports is not None:
        return Next(_starting(resource, setting, supports), because=resource.error)
    found = decide(known, setting, leads=True, now_ms=now_ms)
    if found.verdict is Verdict.NOTICE:  # at the next pass, which is about now
        known = replace(known, orphaned_since_ms=now_ms)
        found = decide(known, setting, leads=True, now_ms=now_ms)
    if (at_ms := found.until_ms) is not None:
        then = decide(known, setting, leads=True, now_ms=at_ms)
        if then.verdict is Verdict.SURPLUS:
            said = f"{_booting(resource, setting, now_ms)}{_let_go(at_ms - now_ms)}"
            return Next(said, at_ms, because=resource.error)
    said, at_ms = _without_worker(resource, found, setting, supports, now_ms)
    return Next(said, at_ms, because=resource.error)


def of_worker(worker: Worker) -> Next:
    """Of one that nobody of us started."""
    if worker.drain_since_ms:
        ends = "somebody started it by hand, and has to end it"
        return Next(f"takes nothing new; {ends}, {_back(worker)}")
    return Next("works; somebody started it by hand, and nobody else starts it again")


def _working(resource: Resource, worker: Worker, now_ms: int) -> Next:
    if (failed := not_stopped(resource)) is not None:
        return Next(_again(failed), because=resource.error)
    if resource.wanted_released:
        at_ms = min(worker.drain_since_ms or now_ms, now_ms) + DRAIN_MAX_MS
        late = span(at_ms - now_ms)
        return Next(f"stopped when it holds nothing any more, at the latest in {late}", at_ms)
    if worker.drain_since_ms:
        return Next(f"takes nothing new, and stays until it is released, {_back(worker)}")
    return Next("works")


def _back(worker: Worker) -> str:
    return f"unless `headrace worker resume {worker.id}` takes that back"


def _going(resource: Resource, supports: Supports | None) -> str:
    why = f"{resource.told}; " if resource.told else ""
    if supports is not None and (failed := not_stopped(resource)) is not None:
        return f"{why}{_again(failed)}"
    if supports is None or not supports.stop:
        return f"{why}its record goes now"
    return f"{why}container {resource.container!r} stops it, then its record goes"


def _again(failed: str) -> str:
    return f"{failed}; tried again in a moment"


def _starting(resource: Resource, setting: AutoRestart, supports: Supports) -> str:
    if not supports.start:
        return (
            f"container {resource.container!r} leaves starting to you; in a moment "
            f"`headrace group show {resource.group}` has the command"
        )
    asked = f"container {resource.container!r} is asked to start it"
    if resource.attempts:
        return f"restart {resource.attempts} of {setting.max_retries} now: {asked}"
    if resource.error is not None and not supports.restart:  # it was asked, and is until it does
        return f"{asked} again in a moment"
    return f"{asked} now"


def _without_worker(
    resource: Resource,
    found: Decision,
    setting: AutoRestart,
    supports: Supports | None,
    now_ms: int,
) -> tuple[str, int | None]:
    booting = _booting(resource, setting, now_ms)
    match found.verdict:
        case Verdict.WAIT:
            at_ms = found.until_ms or now_ms
            return f"{booting}{_then(resource, setting)} in {span(at_ms - now_ms)}", at_ms
        case Verdict.RESTART:
            return f"restart {found.attempt} of {setting.max_retries} now", now_ms
        case Verdict.REMOVE:
            return f"given up now, after {count(resource.attempts, 'attempt')}", now_ms
        case Verdict.SURPLUS:
            return f"released now: {NOT_NEEDED}", now_ms
        case Verdict.ISOLATED | Verdict.OPTED_OUT:
            by_user = supports is not None and not supports.start
            told = left_alone(found.verdict, resource.container, by_user=by_user)
            command = resource.properties.get(COMMAND) if by_user else None
            return (f"{told}: {command}" if command else told), None
        case Verdict.NOTHING | Verdict.NOTICE | Verdict.RECOVERED:
            return f"{booting}nothing: auto-restart is off. {_by_hand(resource)}", None
        case _:
            assert_never(found.verdict)


def _let_go(after_ms: int) -> str:
    return f"released in {span(after_ms)}, unless its worker registers: {NOT_NEEDED}"


def _then(resource: Resource, setting: AutoRestart) -> str:
    if resource.attempts >= setting.max_retries:
        return f"given up after {count(resource.attempts, 'attempt')}, unless its worker registers,"
    return f"restart {resource.attempts + 1} of {setting.max_retries}"


def _booting(resource: Resource, setting: AutoRestart, now_ms: int) -> str:
    """Of a start of which no end is known."""
    young = is_young(resource, setting.grace_ms, now_ms=now_ms)
    started = resource.step is LaunchStep.STARTED and resource.error is None
    return f"launch {resource.launch} boots; " if young and started else ""


def _by_hand(resource: Resource) -> str:
    return (
        f"`headrace worker release {resource.id}` takes it away, and a coordinator with "
        "--auto-restart starts it again"
    )


def of_group(
    group: Group,
    capacity: Capacity,
    setting: KeepSetting,
    *,
    resources: int,
    supports: Supports | None,
    now_ms: int,
) -> Next:
    """`supports`: of its container; None: that is not configured here."""
    floor = group.min_parallelism
    if group.wanted_removed:
        left = count(resources, "resource")
        return Next(f"removed once {left} of it are released" if resources else "removed now")
    if floor == 0:
        return Next("nothing: no floor is set. `headrace group scale` asks for workers")
    if capacity.registered >= floor:
        return Next(f"nothing: its floor of {floor} is kept")
    missing = capacity.missing(floor)
    if supports is None:
        return Next(
            f"nothing: container {group.container!r} is not configured, so nobody can be asked for "
            f"{count(missing, 'thread')}; configure it, or change it with "
            f"`headrace group set {group.name} --container …`"
        )
    if not supports.start:
        return Next(
            f"nothing: container {group.container!r} leaves starting to you, and "
            f"{count(missing, 'thread')} are missing; `headrace group scale {group.name} "
            f"--threads {missing}` says with which command"
        )
    return _keeping(group, capacity, setting, now_ms=now_ms)


def _keeping(group: Group, capacity: Capacity, setting: KeepSetting, *, now_ms: int) -> Next:
    floor, before = group.min_parallelism, group.keeping
    at_ms = before.due_at_ms(setting, now_ms=now_ms)
    when = f"in {span(at_ms - now_ms)}" if at_ms > now_ms else "now"
    if before.effective is not None and at_ms > now_ms:
        works = f"{capacity.registered} work" if capacity.registered else "none works"
        return Next(
            f"the floor of {floor} was given up: {works}; tried again {when}", at_ms, before.reason
        )
    then = keep(floor, capacity, before, setting, now_ms=at_ms)
    if then.request:
        which = f"request {then.keeping.attempts} of {setting.max_attempts}"
        if before.effective is not None:
            which = f"once more, after {count(before.attempts, 'request')}"
        return Next(f"asks for {count(then.request, 'thread')} {when} ({which})", at_ms)
    if then.keeping.effective is not None and then.keeping.effective != before.effective:
        spent = count(before.attempts, "request")
        return Next(f"gives up its floor of {floor} {when}, after {spent}", at_ms)
    awaited = capacity.booting + capacity.restarting
    return Next(f"waits for {count(awaited, 'thread')}, booting or being started again")
