"""/v1/tables and /v1/catalogs: how lake tables stand and why, and commands about optimizing them.

Secrets of a catalog are accepted, and never given out again.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from sqlalchemy import Connection

from headrace.api.errors import (
    Body,
)
from headrace.api.routes.jobs import DEFAULT_GROUP, Served
from headrace.api.table_views import (
    blocker_view,
    catalog_view,
    dry_plan_view,
    explanation_view,
    process_view,
    table_view,
    table_views,
)
from headrace.client.tables import (
    PROCESSES_SHOWN,
    BlockerView,
    CatalogList,
    CatalogView,
    DryPlanView,
    ExplanationView,
    ProcessList,
    ProcessView,
    TableList,
    TableView,
    Unblocked,
)
from headrace.coordinator.service import Coordinator
from headrace.coordinator.tables.catalog_commands import CatalogChange
from headrace.coordinator.tables.commands import CommandResult, known_table
from headrace.coordinator.tables.explain import explain
from headrace.coordinator.tables.obstacles import read_snapshot
from headrace.errors import (
    NotFound,
    Refused,
)
from headrace.model.jobs.spec import WholeNumber
from headrace.model.tables.status import OPTIMIZING, OptimizingType, TableStatus
from headrace.model.text import Text, hint
from headrace.store.core.engine import reading
from headrace.store.tables import catalogs, lake_tables, processes
from headrace.store.tables.catalogs import Catalog, NewCatalog
from headrace.store.tables.processes import Process
from headrace.store.tasks import workers


class AddCatalog(Body):
    name: str
    type: str
    properties: dict[str, str] = Field(default_factory=dict[str, str], repr=False)
    defaults: dict[str, str] = Field(default_factory=dict[str, str])
    table_filter: str | None = None
    group: str | None = None


class ChangeCatalog(Body):
    """What is given is changed. None for a value takes a property away, "" takes the filter."""

    properties: dict[str, str | None] = Field(default_factory=dict[str, str | None], repr=False)
    defaults: dict[str, str | None] = Field(default_factory=dict[str, str | None])
    table_filter: str | None = None
    group: str | None = None


class Optimize(Body):
    type: Literal["MINOR", "MAJOR", "FULL"] = "MAJOR"


class PlanDry(Body):
    type: Literal["MINOR", "MAJOR", "FULL"] | None = None  # None: as the rules decide


class Block(Body):
    reason: str
    seconds: WholeNumber


LISTED_MAX = 1000  # tables in one answer
LISTED = 500  # in one answer, by default
PROCESSES_MAX = 1000  # in one answer
ANY_OPTIMIZING = "OPTIMIZING"  # as a filter: any of its types

router = APIRouter(prefix="/v1/tables", tags=["tables"])
catalogs_router = APIRouter(prefix="/v1/catalogs", tags=["catalogs"])


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
        coordinator.tables.catalogs.get(catalog)  # raises when there is no such catalog
    with reading(coordinator.engine) as conn:
        tables = lake_tables.listed(conn, after=after, most=most, catalog=catalog, statuses=wanted)
        views = table_views(conn, tables)
    return TableList(tables=views, after=tables[-1].identifier if len(tables) == most else None)


@router.get("/{identifier}")
def show(identifier: str, coordinator: Coordinator = Served) -> TableView:
    with reading(coordinator.engine) as conn:
        return table_view(conn, known_table(conn, identifier), now_ms=coordinator.tables.now_ms())


@router.get("/{identifier}/explain")
def explained(identifier: str, coordinator: Coordinator = Served) -> ExplanationView:
    now_ms, policy = coordinator.tables.now_ms(), coordinator.options.tables.policy
    with reading(coordinator.engine) as conn:
        table = known_table(conn, identifier)
        snapshot = read_snapshot(conn, table, policy=policy, now_ms=now_ms)
    return explanation_view(identifier, explain(snapshot, now_ms))


@router.get("/{identifier}/processes")
def list_processes(
    identifier: Text,
    coordinator: Coordinator = Served,
    *,
    most: Annotated[int, Query(ge=1, le=PROCESSES_MAX)] = PROCESSES_SHOWN,
) -> ProcessList:
    """The latest first; also of a table that is gone."""
    with reading(coordinator.engine) as conn:
        rows = _processes(conn, identifier, most=most)
        return ProcessList(processes=tuple(process_view(conn, each) for each in rows))


@router.get("/{identifier}/processes/{process}")
def show_process(identifier: Text, process: Text, coordinator: Coordinator = Served) -> ProcessView:
    """By its id, or by its number."""
    with reading(coordinator.engine) as conn:
        table = lake_tables.named(conn, identifier)
        named: str | None = process
        if process.isascii() and process.isdecimal() and len(process) < 10:
            table_id = table.id if table is not None else ""
            named = lake_tables.process_by_number(conn, table_id, identifier, int(process))
        row = processes.get(conn, named) if named is not None else None
        if row is None or row.identifier != identifier:
            way_out = f"`headrace table history {identifier}` shows those that are kept"
            raise NotFound(f"process of table {identifier!r}", process, way_out=way_out)
        return process_view(conn, row)


@router.post("/{identifier}/optimize")
def optimize(
    identifier: str, body: Optimize | None = None, coordinator: Coordinator = Served
) -> TableView:
    kind = OptimizingType[(body or Optimize()).type]
    return _commanded_view(coordinator, coordinator.tables.optimize(identifier, kind))


@router.post("/{identifier}/cancel")
def cancel(identifier: str, coordinator: Coordinator = Served) -> TableView:
    return _commanded_view(coordinator, coordinator.tables.cancel(identifier))


@router.post("/{identifier}/pause")
def pause(identifier: str, coordinator: Coordinator = Served) -> TableView:
    return _commanded_view(coordinator, coordinator.tables.pause(identifier))


@router.post("/{identifier}/resume")
def resume(identifier: str, coordinator: Coordinator = Served) -> TableView:
    return _commanded_view(coordinator, coordinator.tables.resume(identifier))


@router.post("/{identifier}/plan", status_code=202)
def plan(
    identifier: str, body: PlanDry | None = None, coordinator: Coordinator = Served
) -> DryPlanView:
    """A dry run: `plans/{task}` has what it chose."""
    name = (body or PlanDry()).type
    kind = OptimizingType[name] if name is not None else None
    return show_plan(identifier, coordinator.tables.plan(identifier, kind), coordinator)


@router.get("/{identifier}/plans/{task}")
def show_plan(identifier: str, task: Text, coordinator: Coordinator = Served) -> DryPlanView:
    dry_plan = coordinator.tables.dry_plan(identifier, task)
    with reading(coordinator.engine) as conn:
        return dry_plan_view(conn, identifier, dry_plan)


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


def _commanded_view(coordinator: Coordinator, result: CommandResult) -> TableView:
    with reading(coordinator.engine) as conn:
        now_ms = coordinator.tables.now_ms()
        return table_view(conn, result.table, now_ms=now_ms, changed=result.changed)


def _processes(conn: Connection, identifier: str, *, most: int) -> list[Process]:
    table = lake_tables.named(conn, identifier)
    table_id = table.id if table is not None else ""
    rows = list(processes.of_table(conn, table_id, identifier=identifier, most=most))
    if not rows and table is None:
        known_table(conn, identifier)  # raises NotFound, with the name that was probably meant
    return rows


def _statuses(text: str | None) -> frozenset[TableStatus]:
    if text is None:
        return frozenset()
    name = text.upper()
    if name == ANY_OPTIMIZING:
        return OPTIMIZING
    known = [ANY_OPTIMIZING, *(each.value for each in TableStatus)]
    if name not in known:
        raise Refused(
            f"status {text!r} is none that a table has; {hint(text, known, noun='statuses')}"
        )
    return frozenset({TableStatus(name)})


@catalogs_router.get("", name="listed")
def list_catalogs(coordinator: Coordinator = Served) -> CatalogList:
    with reading(coordinator.engine) as conn:
        counts, slots = lake_tables.by_catalog(conn), workers.slots_by_group(conn)
        rows = catalogs.all_of_them(conn)
    return CatalogList(
        catalogs=tuple(
            catalog_view(each, tables=counts.get(each.name, 0), has_workers=each.group in slots)
            for each in rows
        )
    )


@catalogs_router.post("", status_code=201)
def add(body: AddCatalog, coordinator: Coordinator = Served) -> CatalogView:
    new = NewCatalog(
        name=body.name,
        type=body.type,
        properties=body.properties,
        group=body.group or DEFAULT_GROUP,
        defaults=body.defaults,
        table_filter=body.table_filter,
    )
    return _catalog_view(coordinator, coordinator.tables.catalogs.add(new))


@catalogs_router.get("/{name}", name="show")
def show_catalog(name: str, coordinator: Coordinator = Served) -> CatalogView:
    return _catalog_view(coordinator, coordinator.tables.catalogs.get(name))


@catalogs_router.patch("/{name}")
def change(name: str, body: ChangeCatalog, coordinator: Coordinator = Served) -> CatalogView:
    wanted = CatalogChange(
        properties=body.properties,
        defaults=body.defaults,
        table_filter=body.table_filter,
        group=body.group,
    )
    return _catalog_view(coordinator, coordinator.tables.catalogs.change(name, wanted))


@catalogs_router.post("/{name}/refresh")
def refresh(name: str, coordinator: Coordinator = Served) -> CatalogView:
    """Look into it now. `changed` is false when a look is under way, or due, already."""
    catalog, changed = coordinator.tables.catalogs.refresh(name)
    return _catalog_view(coordinator, catalog, changed=changed)


@catalogs_router.delete("/{name}")
def remove(name: str, coordinator: Coordinator = Served) -> CatalogView:
    """It is shown as `removing` until its tables have ended what they do, and is gone then."""
    return _catalog_view(coordinator, coordinator.tables.catalogs.remove(name))


def _catalog_view(
    coordinator: Coordinator, catalog: Catalog, *, changed: bool | None = None
) -> CatalogView:
    with reading(coordinator.engine) as conn:
        counts, slots = lake_tables.by_catalog(conn), workers.slots_by_group(conn)
    return catalog_view(
        catalog,
        tables=counts.get(catalog.name, 0),
        has_workers=catalog.group in slots,
        changed=changed,
    )
