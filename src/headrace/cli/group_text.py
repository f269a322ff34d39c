"""How groups, workers and resources are shown, in tables and in lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.cli.jobs.text import moment, table_of
from headrace.client.groups import DrainView, GivenUpView, GroupView, ResourceView
from headrace.client.views import WorkerView
from headrace.model.groups import launch_properties, table_defaults
from headrace.model.text import count, span

if TYPE_CHECKING:
    from rich.table import Table

LABEL_WIDTH = 12  # characters
INDENT = "  "


def groups_table(views: Sequence[GroupView]) -> Table:
    table = table_of("group", "container", "floor", "threads", "policy", "orphans", "next")
    for view in views:
        table.add_row(
            view.name,
            view.container,
            _floor(view),
            _threads(view),
            view.policy,
            str(view.orphans or "-"),
            view.next,
        )
    return table


def workers_table(views: Sequence[WorkerView], *, now_ms: int) -> Table:
    table = table_of(
        *("worker", "group", "slots", "memory", "host", "pid", "version", "protocol", "seen"),
        *("resource", "state", "executions"),
    )
    for view in views:
        table.add_row(
            view.id,
            view.group,
            str(view.slots),
            _memory(view.memory_mb),
            view.host,
            str(view.pid),
            view.version,
            str(view.protocol),
            f"{span(now_ms - view.seen_at_ms)} ago",
            f"{view.resource} launch {view.launch}" if view.resource else "-",
            "draining" if view.drain_since_ms else "works",
            " ".join(view.executions) or "-",
        )
    return table


def about_group(view: GroupView, *, now_ms: int) -> Sequence[str]:
    removing = ", being removed" if view.removing else ""
    lines = [f"{view.name}: workers of container {view.container}{removing}"]
    lines += [_line(label, text) for label, text in _facts(view)]
    lines += _pairs(view.properties)
    for resource in view.resources:
        lines += _indented(about_resource(resource, now_ms=now_ms))
    by_hand = [each for each in view.workers if each.resource is None]
    for worker in by_hand:
        lines.append(f"{INDENT}worker {worker.id}: {_slots_held(worker)}; {worker.next}")
    lines += [f"{INDENT}{_given_up_line(each, now_ms)}" for each in view.given_up]
    return lines


def _facts(view: GroupView) -> Iterator[tuple[str, str]]:
    yield "next", view.next
    yield "floor", _floor(view)
    if view.effective_reason:
        yield "because", view.effective_reason
    yield "threads", _threads(view)
    if view.memory_mb:
        yield "memory", f"{_memory(view.memory_mb)} each"
    yield "policy", view.policy if view.own_policy else f"{view.policy}, as the coordinator has it"


def _floor(view: GroupView) -> str:
    """The wanted floor as it was set; beside it the effective one, where that differs."""
    if view.effective_parallelism == view.min_parallelism:
        return str(view.min_parallelism)
    return f"{view.min_parallelism}, effective {view.effective_parallelism}"


def _threads(view: GroupView) -> str:
    now = view.capacity
    parts = {
        "draining": now.draining,
        "booting": now.booting,
        "being restarted": now.restarting,
    }
    more = [f"{number} {state}" for state, number in parts.items() if number]
    return ", ".join([f"{now.registered} work", *more])


def about_resource(view: ResourceView, *, now_ms: int) -> Sequence[str]:
    state = "has its worker" if view.worker else view.step
    if view.orphaned_since_ms is not None and not view.worker:
        state = f"without a worker for {span(now_ms - view.orphaned_since_ms)}"
    lines = [
        f"resource {view.id}: {count(view.threads, 'thread')}, launch {view.launch} in "
        f"{view.container}, {state}",
        _line("next", view.next),
    ]
    if view.worker:
        lines.append(_line("worker", view.worker))
    if view.error:
        first, *more = view.error.splitlines()
        lines.append(_line("status", first))
        lines += [_line("", line) for line in more]
    if view.started_at_ms is not None:
        lines.append(_line("started", moment(view.started_at_ms)))
    if view.launch > 1 and view.launched_at_ms is not None:
        lines.append(_line("again", moment(view.launched_at_ms)))
    return lines


def about_worker(view: WorkerView, *, now_ms: int) -> Sequence[str]:
    lines = [
        f"{view.id}: worker of group {view.group}, {_slots_held(view)}",
        _line("next", view.next),
        _line("where", f"process {view.pid} on {view.host}, Spark {view.spark_application}"),
        _line("version", f"{view.version}, speaks protocol {view.protocol}"),
        *_plugin_lines(view),
        _line("memory", _memory(view.memory_mb)),
        _line("registered", f"{span(now_ms - view.registered_at_ms)} ago"),
        _line("seen", f"{span(now_ms - view.seen_at_ms)} ago"),
    ]
    if view.drain_since_ms:
        lines.append(_line("draining", f"for {span(now_ms - view.drain_since_ms)}"))
    if view.resource:
        lines.append(_line("resource", f"{view.resource}, launch {view.launch}"))
    return [*lines, *(_line("runs", each) for each in view.executions)]


def _plugin_lines(view: WorkerView) -> Iterator[str]:
    """By role, all in one line; with their version where it is not that of the worker."""
    by_role: dict[str, list[str]] = {}
    for each in view.plugins:
        title = each.name if each.version in ("", view.version) else f"{each.name} {each.version}"
        by_role.setdefault(each.role, []).append(title)
    yield from (_line(f"{role}s", ", ".join(names)) for role, names in sorted(by_role.items()))


def about_drain(view: DrainView) -> Sequence[str]:
    worker = view.worker
    drained = "is given nothing more" if view.changed else "was given nothing more before"
    way_out = f"`headrace worker release {worker.id}` ends it"
    if worker.resource is None:
        way_out = "somebody started it by hand, and has to end it"
    back = f"`headrace worker resume {worker.id}` takes that back"
    return [f"worker {worker.id} {drained}; it {_slots_held(worker)}. {back}, {way_out}"]


def about_resume(view: DrainView) -> Sequence[str]:
    worker = view.worker
    again = "is given work again" if view.changed else "did not drain, and is given work as before"
    return [f"worker {worker.id} {again}; it {_slots_held(worker)}"]


def _slots_held(view: WorkerView) -> str:
    return f"holds {len(view.executions)} of {count(view.slots, 'slot')}"


def _given_up_line(view: GivenUpView, now_ms: int) -> str:
    reason = " | ".join(view.reason.splitlines())
    return (
        f"resource {view.resource} of {count(view.threads, 'thread')}: gave up after "
        f"{count(view.attempts, 'attempt')}, {span(now_ms - view.at_ms)} ago: {reason}"
    )


def _memory(memory_mb: int) -> str:
    return f"{memory_mb:,} MB" if memory_mb else "-"


def _pairs(properties: Mapping[str, str]) -> list[str]:
    """Properties for containers, then the defaults of the group's tables."""
    for_launch, defaults = launch_properties(properties), table_defaults(properties)
    return [
        *(_line("property", f"{name} = {value}") for name, value in sorted(for_launch.items())),
        *(_line("of tables", f"{name} = {value}") for name, value in sorted(defaults.items())),
    ]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"{INDENT}{line}" for line in lines]


def _line(label: str, text: str) -> str:
    return f"{INDENT}{label:<{LABEL_WIDTH}}  {text}"
