"""Catalogs and lake tables in the client: views and calls. Every call is idempotent."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from pydantic import Field

from headrace.client.views import View

PROCESSES_SHOWN = 20
TABLES_PAGE = 500  # tables requested at a time
TABLES_MAX = 100_000  # tables that one call collects, by default

V = TypeVar("V", bound=View)


class CatalogView(View):
    name: str
    type: str
    properties: dict[str, str] = Field(default_factory=dict[str, str])  # secrets are redacted
    defaults: dict[str, str] = Field(default_factory=dict[str, str])
    table_filter: str | None = None
    group: str
    tables: int = 0
    removing: bool = False
    created_at_ms: int
    discovered_at_ms: int | None = None  # None: its tables were never listed yet
    due_at_ms: int  # of the next discovery
    looking: bool = False  # a discovery is under way
    waits_for: str | None = None  # what a discovery that is due has to wait for
    failures: int = 0  # in a row
    error: str | None = None
    changed: bool | None = None  # after a command: whether it changed anything


class CatalogList(View):
    catalogs: tuple[CatalogView, ...]


class PendingView(View):
    """Input that waits to be rewritten."""

    type: str
    files: int
    files_after: int
    bytes: int
    bytes_after: int
    deletes: int = 0  # files
    partitions: int


class ProcessView(View):
    id: str
    table: str
    number: int
    type: str
    status: str
    settling: bool = False  # the table is being asked whether the commit has landed
    canceling: bool = False
    snapshot: str  # from which it was planned; as text, since many programs round it
    committed_snapshot: str | None = None
    files_before: int | None = None  # planned to be rewritten
    files_planned: int | None = None  # what they were to become, as the plan predicted
    files_after: int | None = None  # what they have become; None: nothing, or it is unknown
    bytes_before: int | None = None
    bytes_planned: int | None = None
    bytes_after: int | None = None
    partitions_left: int = 0  # partitions that wait for a further process
    conflicts: int = 0  # bins that were not replaced
    tasks: int | None = None
    tasks_done: int | None = None
    workers: tuple[str, ...] = ()
    error: str | None = None
    created_at_ms: int
    ended_at_ms: int | None = None


class BlockerView(View):
    name: str
    reason: str
    created_at_ms: int
    expires_at_ms: int
    # The number of a process whose commit had begun before the blocker was taken or renewed, and
    # may still land.
    committing: int | None = None


class TableView(View):
    identifier: str
    catalog: str
    group: str
    quota: float = 0.5  # up to 1: a part of the group's slots; above 1: a number of slots
    quota_set_by: str | None = None  # table, catalog or group; None: none, or not evaluated yet
    status: str
    status_since_ms: int
    enabled: bool = True  # by its property
    paused: bool = False  # by a command
    wanted_type: str | None = None  # a user asked for optimizing of this type
    health: int | None = None  # 0 to 100; None: not evaluated yet
    files: int | None = None
    bytes: int | None = None
    rows: int | None = None
    partitions: int | None = None
    pending: PendingView | None = None
    process: ProcessView | None = None  # the one that runs
    processes: int = 0  # how many there were
    due_at_ms: int  # of the next evaluation
    not_before_ms: int = 0  # planning waits until then
    evaluated_at_ms: int | None = None
    optimized_at_ms: int | None = None
    failures: int = 0  # in a row
    error: str | None = None
    flaws: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # files that failed too often
    blockers: tuple[BlockerView, ...] = ()
    changed: bool | None = None  # after a command: whether it changed anything


class TableList(View):
    tables: tuple[TableView, ...]
    after: str | None = None  # the cursor for the next page; None: this is the last one


class ProcessList(View):
    processes: tuple[ProcessView, ...]


class FindingView(View):
    about: str
    verdict: str  # ok, holds, blocks
    said: str
    measured: str | None = None
    threshold: str | None = None
    property: str | None = None
    way_out: str | None = None


class ExplanationView(View):
    table: str
    headline: str
    findings: tuple[FindingView, ...]


class DryPlanView(View):
    """What a process would do now; of one that is not ready, how far it is."""

    task: str
    table: str
    status: str  # of the task that plans
    waits_for: str | None = None
    error: str | None = None
    type: str | None = None
    reason: str | None = None  # why there is nothing to do
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    bytes_read: int = 0
    deletes_removed: int = 0
    partitions: dict[str, int] = Field(default_factory=dict[str, int])  # files to rewrite, by name
    tasks: int = 0
    partitions_left: int = 0  # for a further process
    left_out: tuple[str, ...] = ()


class Unblocked(View):
    table: str
    name: str


class TableCalls:
    """The calls about catalogs and tables; a mixin of `Client`."""

    @abstractmethod
    def _call(self, view: type[V], method: str, path: str, *, json: Any = None) -> V: ...

    def catalogs(self) -> tuple[CatalogView, ...]:
        return self._call(CatalogList, "GET", "/v1/catalogs").catalogs

    def catalog(self, name: str) -> CatalogView:
        return self._call(CatalogView, "GET", _catalog_path(name))

    def add_catalog(
        self,
        name: str,
        *,
        type: str,  # noqa: A002 - as everybody calls it
        properties: Mapping[str, str],
        defaults: Mapping[str, str] | None = None,
        table_filter: str | None = None,
        group: str | None = None,
    ) -> CatalogView:
        body: dict[str, Any] = {"name": name, "type": type, "properties": dict(properties)}
        optional = {"defaults": defaults, "table_filter": table_filter, "group": group}
        body |= {key: value for key, value in optional.items() if value}
        return self._call(CatalogView, "POST", "/v1/catalogs", json=body)

    def change_catalog(
        self,
        name: str,
        *,
        properties: Mapping[str, str | None] | None = None,
        defaults: Mapping[str, str | None] | None = None,
        table_filter: str | None = None,
        group: str | None = None,
    ) -> CatalogView:
        """Change what is given, and keep the rest.

        None for the value of a property removes it; "" removes the filter.
        """
        fields = {
            "properties": properties,
            "defaults": defaults,
            "table_filter": table_filter,
            "group": group,
        }
        body = {key: value for key, value in fields.items() if value is not None}
        return self._call(CatalogView, "PATCH", _catalog_path(name), json=body)

    def refresh_catalog(self, name: str) -> CatalogView:
        """Have its tables discovered now."""
        return self._call(CatalogView, "POST", f"{_catalog_path(name)}/refresh")

    def remove_catalog(self, name: str) -> CatalogView:
        """Forget the catalog and its tables; nothing in the catalog is deleted."""
        return self._call(CatalogView, "DELETE", _catalog_path(name))

    def tables(
        self, *, catalog: str | None = None, status: str | None = None, most: int = TABLES_MAX
    ) -> tuple[TableView, ...]:
        """Up to `most` tables, collected page by page."""
        collected: list[TableView] = []
        after: str | None = ""
        while after is not None and len(collected) < most:
            parameters = {"catalog": catalog, "status": status, "after": after}
            present = {key: value for key, value in parameters.items() if value}
            query = urlencode({**present, "most": min(TABLES_PAGE, most - len(collected))})
            page = self._call(TableList, "GET", f"/v1/tables?{query}")
            collected += page.tables
            after = page.after
        return tuple(collected)

    def table(self, identifier: str) -> TableView:
        return self._call(TableView, "GET", _table_path(identifier))

    def explain_table(self, identifier: str) -> ExplanationView:
        return self._call(ExplanationView, "GET", f"{_table_path(identifier)}/explain")

    def processes(self, identifier: str, *, most: int = PROCESSES_SHOWN) -> tuple[ProcessView, ...]:
        """The processes of a table, the latest first; also of a table that is gone."""
        path = f"{_table_path(identifier)}/processes?most={most}"
        return self._call(ProcessList, "GET", path).processes

    def process(self, identifier: str, number: int) -> ProcessView:
        return self._call(ProcessView, "GET", f"{_table_path(identifier)}/processes/{number}")

    def optimize_table(self, identifier: str, *, type: str) -> TableView:  # noqa: A002
        return self._call(
            TableView, "POST", f"{_table_path(identifier)}/optimize", json={"type": type}
        )

    def cancel_table(self, identifier: str) -> TableView:
        return self._call(TableView, "POST", f"{_table_path(identifier)}/cancel")

    def pause_table(self, identifier: str) -> TableView:
        return self._call(TableView, "POST", f"{_table_path(identifier)}/pause")

    def resume_table(self, identifier: str) -> TableView:
        return self._call(TableView, "POST", f"{_table_path(identifier)}/resume")

    def plan_table(self, identifier: str, *, type: str | None = None) -> DryPlanView:  # noqa: A002
        """Start a dry run: plan, and do nothing with it. `dry_plan` has the answer in a while."""
        return self._call(
            DryPlanView, "POST", f"{_table_path(identifier)}/plan", json={"type": type}
        )

    def dry_plan(self, identifier: str, task: str) -> DryPlanView:
        return self._call(
            DryPlanView, "GET", f"{_table_path(identifier)}/plans/{quote(task, safe='')}"
        )

    def block_table(self, identifier: str, name: str, *, reason: str, seconds: int) -> BlockerView:
        """Take a blocker, or renew it, for so many seconds."""
        body = {"reason": reason, "seconds": seconds}
        return self._call(BlockerView, "PUT", _blocker_path(identifier, name), json=body)

    def unblock_table(self, identifier: str, name: str) -> Unblocked:
        return self._call(Unblocked, "DELETE", _blocker_path(identifier, name))


def _catalog_path(name: str) -> str:
    return f"/v1/catalogs/{quote(name, safe='')}"


def _table_path(identifier: str) -> str:
    return f"/v1/tables/{quote(identifier, safe='')}"


def _blocker_path(identifier: str, name: str) -> str:
    return f"{_table_path(identifier)}/blockers/{quote(name, safe='')}"
