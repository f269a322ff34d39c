"""/v1/catalogs: add, look, change, remove. What is secret goes in and never comes back."""

from __future__ import annotations

from fastapi import APIRouter

from headrace.api.routes.jobs import DEFAULT_GROUP, Served
from headrace.api.schemas import AddCatalog, ChangeCatalog
from headrace.api.table_views import catalog_view
from headrace.coordinator.service import Coordinator
from headrace.coordinator.tables.catalog_commands import Change
from headrace.store import catalogs, lake_lists, workers
from headrace.store.catalogs import Catalog, NewCatalog
from headrace.store.engine import reading
from headrace.views_tables import CatalogList, CatalogView

router = APIRouter(prefix="/v1/catalogs", tags=["catalogs"])


@router.get("")
def listed(coordinator: Coordinator = Served) -> CatalogList:
    with reading(coordinator.engine) as conn:
        counts, manned = lake_lists.by_catalog(conn), workers.slots_by_group(conn)
        found = catalogs.all_of_them(conn)
    return CatalogList(
        catalogs=tuple(
            catalog_view(each, tables=counts.get(each.name, 0), manned=each.group in manned)
            for each in found
        )
    )


@router.post("", status_code=201)
def add(body: AddCatalog, coordinator: Coordinator = Served) -> CatalogView:
    new = NewCatalog(
        name=body.name,
        type=body.type,
        properties=body.properties,
        group=body.group or DEFAULT_GROUP,
        defaults=body.defaults,
        table_filter=body.table_filter,
    )
    return _view(coordinator, coordinator.tables.catalogs.add(new))


@router.get("/{name}")
def show(name: str, coordinator: Coordinator = Served) -> CatalogView:
    return _view(coordinator, coordinator.tables.catalogs.get(name))


@router.patch("/{name}")
def change(name: str, body: ChangeCatalog, coordinator: Coordinator = Served) -> CatalogView:
    wanted = Change(
        properties=body.properties,
        defaults=body.defaults,
        table_filter=body.table_filter,
        group=body.group,
    )
    return _view(coordinator, coordinator.tables.catalogs.change(name, wanted))


@router.post("/{name}/refresh")
def refresh(name: str, coordinator: Coordinator = Served) -> CatalogView:
    """Look into it now. `changed` is false when a look is under way, or due, already."""
    catalog, changed = coordinator.tables.catalogs.refresh(name)
    return _view(coordinator, catalog, changed=changed)


@router.delete("/{name}")
def remove(name: str, coordinator: Coordinator = Served) -> CatalogView:
    """It is shown as `removing` until its tables have ended what they do, and is gone then."""
    return _view(coordinator, coordinator.tables.catalogs.remove(name))


def _view(
    coordinator: Coordinator, catalog: Catalog, *, changed: bool | None = None
) -> CatalogView:
    with reading(coordinator.engine) as conn:
        counts, manned = lake_lists.by_catalog(conn), workers.slots_by_group(conn)
    return catalog_view(
        catalog,
        tables=counts.get(catalog.name, 0),
        manned=catalog.group in manned,
        changed=changed,
    )
