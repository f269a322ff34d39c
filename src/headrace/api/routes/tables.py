"""/v1/tables: how lake tables stand and why, and what may be asked of their optimizing."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import Connection

from headrace.api.routes.jobs import Served
from headrace.api.schemas import Block, Optimize, PlanDry
from headrace.api.table_views import (
    blocker_view,
    dry_plan_view,
    explanation_view,
    process_view,
    table_view,
    table_views,
)
from headrace.client_tables import PROCESSES_SHOWN
from headrace.coordinator.service import Coordinator
from headrace.coordinator.tables.commands import Asked
from headrace.coordinator.tables.explain import explain
from headrace.coordinator.tables.known import known_table
from headrace.coordinator.tables.standing import read_standing
from headrace.errors import NotFound, Refused
from headrace.jobfile.suggest import hint
from headrace.model.tables.status import OPTIMIZING, OptimizingType, TableStatus
from headrace.model.text import Text
from headrace.store import lake, lake_lists, processes
from headrace.store.engine import reading
from headrace.store.processes import Process
from headrace.views_tables import (
    BlockerView,
    DryPlanView,
    ExplanationView,
    ProcessList,
    ProcessView,
    TableList,
    TableView,
    Unblocked,
)

LISTED_MAX = 1000  # tables in one answer
LISTED = 500  # when nobody says how many
PROCESSES_MAX = 1000  # in one answer
OPTIMIZING_WORD = "OPTIMIZING"  # for a filter: of whatever type

router = APIRouter(prefix="/v1/tables", tags=["tables"])


@router.get("")
def listed(
    coordinator: Coordinator = Served,
    *,
    catalog: Text | None = None,
    status: str | None = None,
    after: Text = "",
    most: Annotated[int, Query(ge=1, le=LISTED_MAX)] = LISTED,
) -> TableList:
    """In the order of their names. `after` of one answer asks for the next."""
    wanted = _statuses(status)
    if catalog is not None:
        coordinator.tables.catalogs.get(catalog)  # a name that nobody knows is told so
    with reading(coordinator.engine) as conn:
        found = lake_lists.listed(conn, after=after, most=most, catalog=catalog, statuses=wanted)
        views = table_views(conn, found)
    return TableList(tables=views, after=found[-1].identifier if len(found) == most else None)


@router.get("/{identifier}")
def show(identifier: str, coordinator: Coordinator = Served) -> TableView:
    with reading(coordinator.engine) as conn:
        return table_view(conn, known_table(conn, identifier), now_ms=coordinator.tables.now_ms())


@router.get("/{identifier}/explain")
def explained(identifier: str, coordinator: Coordinator = Served) -> ExplanationView:
    now_ms, policy = coordinator.tables.now_ms(), coordinator.options.tables.policy
    with reading(coordinator.engine) as conn:
        table = known_table(conn, identifier)
        standing = read_standing(conn, table, policy=policy, now_ms=now_ms)
    return explanation_view(identifier, explain(standing, now_ms))


@router.get("/{identifier}/processes")
def list_processes(
    identifier: Text,
    coordinator: Coordinator = Served,
    *,
    most: Annotated[int, Query(ge=1, le=PROCESSES_MAX)] = PROCESSES_SHOWN,
) -> ProcessList:
    """The latest first; also of a table that is gone."""
    with reading(coordinator.engine) as conn:
        found = _processes(conn, identifier, most=most)
        return ProcessList(processes=tuple(process_view(conn, each) for each in found))


@router.get("/{identifier}/processes/{process}")
def show_process(identifier: Text, process: Text, coordinator: Coordinator = Served) -> ProcessView:
    """By its id, or by its number."""
    with reading(coordinator.engine) as conn:
        table = lake.named(conn, identifier)
        named: str | None = process
        if process.isascii() and process.isdecimal() and len(process) < 10:
            of = table.id if table is not None else ""
            named = lake_lists.numbered(conn, of, identifier, int(process))
        found = processes.get(conn, named) if named is not None else None
        if found is None or found.identifier != identifier:
            way_out = f"`headrace table history {identifier}` shows those that are kept"
            raise NotFound(f"process of table {identifier!r}", process, way_out=way_out)
        return process_view(conn, found)


@router.post("/{identifier}/optimize")
def optimize(
    identifier: str, body: Optimize | None = None, coordinator: Coordinator = Served
) -> TableView:
    kind = OptimizingType[(body or Optimize()).type]
    return _asked(coordinator, coordinator.tables.optimize(identifier, kind))


@router.post("/{identifier}/cancel")
def cancel(identifier: str, coordinator: Coordinator = Served) -> TableView:
    return _asked(coordinator, coordinator.tables.cancel(identifier))


@router.post("/{identifier}/pause")
def pause(identifier: str, coordinator: Coordinator = Served) -> TableView:
    return _asked(coordinator, coordinator.tables.pause(identifier))


@router.post("/{identifier}/resume")
def resume(identifier: str, coordinator: Coordinator = Served) -> TableView:
    return _asked(coordinator, coordinator.tables.resume(identifier))


@router.post("/{identifier}/plan", status_code=202)
def plan(
    identifier: str, body: PlanDry | None = None, coordinator: Coordinator = Served
) -> DryPlanView:
    """A dry run: `plans/{task}` has what it chose."""
    asked = (body or PlanDry()).type
    kind = OptimizingType[asked] if asked is not None else None
    return show_plan(identifier, coordinator.tables.plan(identifier, kind), coordinator)


@router.get("/{identifier}/plans/{task}")
def show_plan(identifier: str, task: Text, coordinator: Coordinator = Served) -> DryPlanView:
    found = coordinator.tables.dry_plan(identifier, task)
    with reading(coordinator.engine) as conn:
        return dry_plan_view(conn, identifier, found)


@router.put("/{identifier}/blockers/{name}")
def block(
    identifier: str, name: str, body: Block, coordinator: Coordinator = Served
) -> BlockerView:
    """Take it, or renew it: it holds so many seconds from now on."""
    held = coordinator.tables.block(identifier, name, reason=body.reason, seconds=body.seconds)
    return blocker_view(held.blocker, committing=held.committing)


@router.delete("/{identifier}/blockers/{name}")
def unblock(identifier: str, name: str, coordinator: Coordinator = Served) -> Unblocked:
    coordinator.tables.unblock(identifier, name)
    return Unblocked(table=identifier, name=name)


def _asked(coordinator: Coordinator, asked: Asked) -> TableView:
    with reading(coordinator.engine) as conn:
        now_ms = coordinator.tables.now_ms()
        return table_view(conn, asked.table, now_ms=now_ms, changed=asked.changed)


def _processes(conn: Connection, identifier: str, *, most: int) -> list[Process]:
    table = lake.named(conn, identifier)
    of = table.id if table is not None else ""
    found = list(processes.of_table(conn, of, identifier=identifier, most=most))
    if not found and table is None:
        known_table(conn, identifier)  # raises, with the name that was probably meant
    return found


def _statuses(text: str | None) -> frozenset[TableStatus]:
    if text is None:
        return frozenset()
    word = text.upper()
    if word == OPTIMIZING_WORD:
        return OPTIMIZING
    known = [OPTIMIZING_WORD, *(each.value for each in TableStatus)]
    if word not in known:
        raise Refused(
            f"status {text!r} is none that a table has; {hint(text, known, noun='statuses')}"
        )
    return frozenset({TableStatus(word)})
