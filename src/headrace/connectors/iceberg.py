"""Iceberg, as a sink: exactly once (formats/iceberg says how).

Without a catalog of its own a job writes to the embedded one, `headrace`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import JsonValue
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark

from headrace.connectors.align import align, nullable
from headrace.connectors.connector import Committed, Setting, Staged
from headrace.errors import Refused
from headrace.formats.iceberg.catalogs import (
    CatalogConfig,
    TableRef,
    columns_of,
    embedded_catalog,
    load_table,
)
from headrace.formats.iceberg.commit import Outcome, commit
from headrace.formats.iceberg.create import TableDefinition, ensure_table
from headrace.formats.iceberg.staging import Handle, stage
from headrace.formats.iceberg.sweep import abort, sweep
from headrace.formats.iceberg.token import CommitAt
from headrace.formats.spark_errors import one_line
from headrace.model.epoch import EpochAt

_NOT_BUILT = ("iceberg.table.commit-branch", "iceberg.hadoop-conf-path")


class IcebergSink:
    def __init__(self, name: str, setting: Setting) -> None:
        self.name = name
        self._options = setting.options
        for option in _NOT_BUILT:
            if self._options.get(option):
                raise Refused(f"sink {name}: option {option!r} is not built yet; leave it out")
        self.table_ref = table_ref(name, setting)

    def stage(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> Staged:
        self._ensure_table(session, frame)
        try:
            wanted = columns_of(session, load_table(session, self.table_ref))
            aligned = align(
                frame,
                wanted,
                to=f"sink {self.name}: table {self.table_ref}",
                case_sensitive=bool(self._options.get("case_sensitive")),
            )
            handle = stage(
                session,
                aligned,
                self.table_ref,
                CommitAt(at, self.name),
                properties=_texts(self._options.get("iceberg.table.write-props")),
            )
        except AnalysisException as error:
            raise Refused(f"sink {self.name}: {self.table_ref}: {one_line(error)}") from error
        return Staged(handle.model_dump(mode="json"), handle.rows)

    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        outcome = commit(
            session, self.table_ref, Handle.model_validate(handle), CommitAt(at, self.name)
        )
        return Committed(outcome.already, self._facts(outcome))

    def sweep(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> None:
        staged = Handle.model_validate(handle) if handle is not None else None
        sweep(session, self.table_ref, staged, CommitAt(at, self.name))

    def abort(self, session: SparkSession, at: EpochAt) -> None:
        abort(session, self.table_ref, CommitAt(at, self.name))

    def _facts(self, outcome: Outcome) -> dict[str, JsonValue]:
        summary = outcome.spent.summary
        facts: dict[str, JsonValue] = {
            "table": str(self.table_ref),
            "snapshot": outcome.spent.snapshot,
        }
        for fact, key in (
            ("rows", "added-records"),
            ("files", "added-data-files"),
            ("bytes", "added-files-size"),
            ("total_rows", "total-records"),
        ):
            if outcome.spent.snapshot is not None:
                facts[fact] = int(summary.get(key, "0"))
        return facts

    def _ensure_table(self, session: SparkSession, frame: DataFrame) -> None:
        mode = self._options.get("schema_save_mode") or "CREATE_SCHEMA_WHEN_NOT_EXIST"
        if mode != "CREATE_SCHEMA_WHEN_NOT_EXIST":
            load_table(session, self.table_ref)  # refuses when it is not there
            return
        keys = _list(self._options.get("iceberg.table.primary-keys"))
        ensure_table(
            session,
            self.table_ref,
            TableDefinition(
                columns=cast("spark.StructType", nullable(frame.schema, but=keys)),
                partition_keys=_list(self._options.get("iceberg.table.partition-keys")),
                primary_keys=keys,
                properties=_texts(self._options.get("iceberg.table.auto-create-props")),
            ),
        )


def table_ref(name: str, setting: Setting) -> TableRef:
    options = setting.options
    table = options.get("table")
    if not table:
        raise Refused(f"sink {name} needs the option 'table'")
    namespace = tuple(str(options.get("namespace") or "default").split("."))
    return TableRef(_catalog(name, setting), namespace, str(table))


def _catalog(name: str, setting: Setting) -> CatalogConfig:
    options = setting.options
    properties = _texts(options.get("iceberg.catalog.config"))
    if not properties:
        if options.get("catalog_name") not in {None, "", "headrace"}:
            raise Refused(
                f"sink {name} names the catalog {options['catalog_name']!r} without "
                "'iceberg.catalog.config'; add it, or leave both out to use the embedded catalog"
            )
        return embedded_catalog(setting.warehouse)
    # SeaTunnel's word for a catalog class is Iceberg's own, so nothing has to be translated.
    return CatalogConfig(
        str(options.get("catalog_name") or "iceberg"),
        properties,
        _texts(options.get("hadoop.config")),
    )


def _texts(value: Any) -> dict[str, str]:
    given = cast("Mapping[str, Any]", value or {})
    return {
        key: str(item).lower() if isinstance(item, bool) else str(item)
        for key, item in given.items()
    }


def _list(value: Any) -> Sequence[str]:
    """A list, or its items in one text; commas inside of brackets don't part: bucket(id, 16)."""
    items = [value] if isinstance(value, str) else cast("Sequence[Any]", value or ())
    text = ",".join(str(item) for item in items)
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]
