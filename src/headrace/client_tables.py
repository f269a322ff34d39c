"""The part of the API that speaks of catalogs and lake tables. Every call is safe to repeat."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from headrace.views import View
from headrace.views_tables import (
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

PROCESSES_SHOWN = 20
TABLES_PAGE = 500  # tables asked for at a time
TABLES_MAX = 100_000  # that one call collects

V = TypeVar("V", bound=View)


class TableCalls:
    @abstractmethod
    def _call(self, view: type[V], method: str, path: str, *, json: Any = None) -> V: ...

    def catalogs(self) -> tuple[CatalogView, ...]:
        return self._call(CatalogList, "GET", "/v1/catalogs").catalogs

    def catalog(self, name: str) -> CatalogView:
        return self._call(CatalogView, "GET", _catalog(name))

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
        given = {"defaults": defaults, "table_filter": table_filter, "group": group}
        body |= {key: value for key, value in given.items() if value}
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
        """What is given is changed, the rest stays. None for a value takes a property away, and ""
        takes the filter away."""
        given = {
            "properties": properties,
            "defaults": defaults,
            "table_filter": table_filter,
            "group": group,
        }
        body = {key: value for key, value in given.items() if value is not None}
        return self._call(CatalogView, "PATCH", _catalog(name), json=body)

    def refresh_catalog(self, name: str) -> CatalogView:
        """Have it looked into now."""
        return self._call(CatalogView, "POST", f"{_catalog(name)}/refresh")

    def remove_catalog(self, name: str) -> CatalogView:
        """Its tables are forgotten; nothing in it is deleted."""
        return self._call(CatalogView, "DELETE", _catalog(name))

    def tables(
        self, *, catalog: str | None = None, status: str | None = None, most: int = TABLES_MAX
    ) -> tuple[TableView, ...]:
        found: list[TableView] = []
        after: str | None = ""
        while after is not None and len(found) < most:
            given = {"catalog": catalog, "status": status, "after": after}
            asked = {key: value for key, value in given.items() if value}
            query = urlencode({**asked, "most": min(TABLES_PAGE, most - len(found))})
            page = self._call(TableList, "GET", f"/v1/tables?{query}")
            found += page.tables
            after = page.after
        return tuple(found)

    def table(self, identifier: str) -> TableView:
        return self._call(TableView, "GET", _table(identifier))

    def explain_table(self, identifier: str) -> ExplanationView:
        return self._call(ExplanationView, "GET", f"{_table(identifier)}/explain")

    def processes(self, identifier: str, *, most: int = PROCESSES_SHOWN) -> tuple[ProcessView, ...]:
        """The latest first; also of a table that is gone."""
        path = f"{_table(identifier)}/processes?most={most}"
        return self._call(ProcessList, "GET", path).processes

    def process(self, identifier: str, number: int) -> ProcessView:
        return self._call(ProcessView, "GET", f"{_table(identifier)}/processes/{number}")

    def optimize_table(self, identifier: str, *, type: str) -> TableView:  # noqa: A002
        return self._call(TableView, "POST", f"{_table(identifier)}/optimize", json={"type": type})

    def cancel_table(self, identifier: str) -> TableView:
        return self._call(TableView, "POST", f"{_table(identifier)}/cancel")

    def pause_table(self, identifier: str) -> TableView:
        return self._call(TableView, "POST", f"{_table(identifier)}/pause")

    def resume_table(self, identifier: str) -> TableView:
        return self._call(TableView, "POST", f"{_table(identifier)}/resume")

    def plan_table(self, identifier: str, *, type: str | None = None) -> DryPlanView:  # noqa: A002
        """Have it planned, and nothing done about it; `dry_plan` has the answer in a while."""
        return self._call(DryPlanView, "POST", f"{_table(identifier)}/plan", json={"type": type})

    def dry_plan(self, identifier: str, task: str) -> DryPlanView:
        return self._call(DryPlanView, "GET", f"{_table(identifier)}/plans/{quote(task, safe='')}")

    def block_table(self, identifier: str, name: str, *, reason: str, seconds: int) -> BlockerView:
        """Take a blocker, or renew it."""
        body = {"reason": reason, "seconds": seconds}
        return self._call(BlockerView, "PUT", _blocker(identifier, name), json=body)

    def unblock_table(self, identifier: str, name: str) -> Unblocked:
        return self._call(Unblocked, "DELETE", _blocker(identifier, name))


def _catalog(name: str) -> str:
    return f"/v1/catalogs/{quote(name, safe='')}"


def _table(identifier: str) -> str:
    return f"/v1/tables/{quote(identifier, safe='')}"


def _blocker(identifier: str, name: str) -> str:
    return f"{_table(identifier)}/blockers/{quote(name, safe='')}"
