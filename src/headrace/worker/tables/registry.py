"""What this worker knows to do with lake tables: their formats, and the tasks of their services.

A further format is one more in `FORMATS`, a further service one more in `TABLE_RUNS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headrace.errors import Refused
from headrace.lake.catalog import CatalogConfig
from headrace.lake.iceberg.table_format import IcebergFormat
from headrace.lake.table_format import AnyTableFormat
from headrace.model.jobs.spec import REDACTED
from headrace.protocol import task_types
from headrace.protocol.tables import CatalogSpec, OfCatalog
from headrace.protocol.task_types import Result, TaskType
from headrace.worker.tables.catalogs import TableWork, discover
from headrace.worker.tables.evaluation import evaluate_tables, plan_table
from headrace.worker.tables.rewrite import commit_process, discard_process, rewrite_bins

FORMATS: Sequence[AnyTableFormat] = (IcebergFormat(),)
CatalogPayload = TypeVar("CatalogPayload", bound=OfCatalog)


@dataclass(frozen=True, slots=True)
class TableRun(Generic[CatalogPayload, Result]):
    """What a worker does for a kind of table task."""

    type: TaskType[Any, CatalogPayload, Result]
    run: Callable[[TableWork, CatalogPayload], Result]


AnyTableRun = TableRun[Any, Any]
TABLE_RUNS: Sequence[AnyTableRun] = (
    TableRun(task_types.DISCOVER, discover),
    TableRun(task_types.EVALUATE, evaluate_tables),
    TableRun(task_types.PLAN, plan_table),
    TableRun(task_types.REWRITE, rewrite_bins),
    TableRun(task_types.COMMIT, commit_process),
    TableRun(task_types.DISCARD, discard_process),
)


def format_of(catalog: CatalogSpec, formats: Sequence[AnyTableFormat] = FORMATS) -> AnyTableFormat:
    """The format of a catalog's tables, by the catalog's type."""
    for each in formats:
        if catalog.type in each.catalog_types:
            return each
    known = [kind for each in formats for kind in each.catalog_types]
    raise Refused(
        f"catalog {catalog.name!r} is of type {catalog.type!r}, which this worker does not know; "
        f"expected one of {', '.join(known)}; remove it and add it anew, or update the worker"
    )


def config_of(payload: OfCatalog, format: AnyTableFormat, *, warehouse: str) -> CatalogConfig:  # noqa: A002
    """How the catalog is opened, with secrets put back into its properties."""
    spec = payload.catalog
    return format.catalog_config(spec.name, spec.type, _with_secrets(payload), warehouse=warehouse)


def _with_secrets(payload: OfCatalog) -> dict[str, str]:
    name = payload.catalog.name
    secrets = {key.removeprefix(f"{name}."): str(value) for key, value in payload.secrets.items()}
    properties = {**payload.catalog.properties, **secrets}
    for key, value in properties.items():
        if value == REDACTED:
            raise Refused(
                f"property {key!r} of catalog {name!r} is redacted, and its value is not known; "
                f"give it again: `headrace catalog set {name} --property {key}=…`"
            )
    return properties
