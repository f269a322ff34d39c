"""Iceberg, as a sink: exactly once (formats/iceberg says how), save modes included."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

from pydantic import JsonValue
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark

from headrace.connectors.align import align, nullable
from headrace.connectors.connector import (
    Committed,
    Mark,
    Setting,
    Staged,
    check_given_up,
    check_spender,
)
from headrace.connectors.iceberg_table import table_ref, texts
from headrace.errors import Refused
from headrace.formats.iceberg.catalogs import TableMissing, columns_of, exists, load_table
from headrace.formats.iceberg.commit import Outcome, commit, look_marked
from headrace.formats.iceberg.create import (
    Creation,
    TableDefinition,
    TableExists,
    begin_creation,
    check_definition,
    plan_creation,
)
from headrace.formats.iceberg.forget import forget
from headrace.formats.iceberg.opening import Opening, columns_of_opening, open_table
from headrace.formats.iceberg.reading import count_rows
from headrace.formats.iceberg.staging import Handle, stage
from headrace.formats.iceberg.sweep import abort, sweep
from headrace.formats.iceberg.token import CommitAt, SpentBy
from headrace.formats.spark_errors import one_line
from headrace.jobfile.saving import DataMode, SchemaMode, data_mode, opens, schema_mode
from headrace.model.epoch import EpochAt

_CREATES = frozenset({SchemaMode.CREATE, SchemaMode.RECREATE})


class IcebergSink:
    leaves_stage = False  # what was staged is what the table has from then on

    def __init__(self, name: str, setting: Setting) -> None:
        self.name = name
        self._options, self._deadline_s = setting.options, setting.commit_deadline_s
        self.opens = opens(setting.options)
        self.table_ref = table_ref(f"sink {name}", setting)
        self._is_embedded = not setting.options.get("iceberg.catalog.config")
        # Who drops the table since then does not want it back without these rows, so what was
        # staged beside them does not make it again.
        self._committed = setting.has_committed
        self._planned = setting.planned_tables
        self._seen: tuple[str | None] | None = None  # uuid of the table, at the first look

    def read_mark(self, session: SparkSession, at: EpochAt) -> Mark | None:
        uuid, found = look_marked(session, self.table_ref, CommitAt(at, self.name))
        self._seen = self._seen or (uuid,)
        return found and Mark(found[0], aborted=found[1] is SpentBy.ABORT)

    def survey(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> JsonValue:
        uuid = None
        mode = schema_mode(self._options)
        if mode in _CREATES:
            check_definition(session, self.table_ref, self._definition(frame.schema))
        if mode not in _CREATES or exists(session, self.table_ref):
            table = load_table(session, self.table_ref)  # refuses when it is not there
            uuid = str(table.uuid())
            self._refuse_rows(session, table)
        opening = Opening(
            table=str(self.table_ref),
            uuid=uuid,
            execution=at.execution,
            columns=frame.schema.jsonValue(),
            drop=data_mode(self._options) is DataMode.DROP,
            recreate=mode is SchemaMode.RECREATE,
        )
        return opening.model_dump(mode="json")

    def _refuse_rows(self, session: SparkSession, table: Any) -> None:
        if data_mode(self._options) is not DataMode.ERROR:
            return
        if rows := count_rows(session, table):
            raise Refused(
                f"sink {self.name}: table {self.table_ref} holds {rows} rows, and data_save_mode "
                f"is {DataMode.ERROR}; empty it, or set {DataMode.APPEND} or {DataMode.DROP}"
            )

    def open(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        opening = Opening.model_validate(handle)
        wanted = self._definition(columns_of_opening(opening))
        outcome = open_table(
            session,
            self.table_ref,
            opening,
            wanted,
            CommitAt(at, self.name),
            deadline_s=self._deadline_s,
        )
        facts: dict[str, JsonValue] = {"table": str(self.table_ref)}
        if outcome is None:
            return Committed(already=False, facts=facts)
        if outcome.spent.snapshot is not None:
            facts["snapshot"] = outcome.spent.snapshot
            facts["dropped_rows"] = int(outcome.spent.summary.get("deleted-records", "0"))
        return Committed(outcome.already, facts)

    def stage(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> Staged:
        committed = self._committed  # before the look: a table that is missing then was dropped
        table, planned = self._table(session, frame)
        as_made = " (as the first sink into it makes it)" if planned is not None else ""
        try:
            aligned = align(
                frame,
                columns_of(session, table if planned is None else planned[0].table()),
                to=f"sink {self.name}: table {self.table_ref}{as_made}",
                case_sensitive=bool(self._options.get("case_sensitive")),
            )
            handle = stage(
                session,
                aligned,
                self.table_ref,
                CommitAt(at, self.name),
                table=table,
                planned=planned,
                is_first=not committed,
                properties=texts(self._options.get("iceberg.table.write-props")),
            )
        except AnalysisException as error:
            raise Refused(f"sink {self.name}: {self.table_ref}: {one_line(error)}") from error
        return Staged(handle.model_dump(mode="json"), handle.rows)

    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        staged = Handle.model_validate(handle)
        outcome = commit(
            session,
            self.table_ref,
            staged,
            CommitAt(at, self.name),
            deadline_s=self._deadline_s,
            may_create=not (staged.is_first and self._committed),
            seen=self._seen and self._seen[0],
        )
        self._committed = True
        target = f"sink {self.name}: table {self.table_ref}"
        check_spender(target, at, staged=staged.execution, held=outcome.spent.execution)
        return Committed(outcome.already, {**self._facts(outcome), **self._place(staged)})

    def sweep(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> None:
        if at.epoch == 0:
            return  # opening a table stages nothing
        staged = Handle.model_validate(handle) if handle is not None else None
        sweep(session, self.table_ref, staged, CommitAt(at, self.name))

    def abort(self, session: SparkSession, at: EpochAt) -> None:
        whose = CommitAt(at, self.name)
        spent = abort(session, self.table_ref, whose, deadline_s=self._deadline_s)
        by_data = spent is not None and spent.by is SpentBy.DATA
        check_given_up(f"sink {self.name}: table {self.table_ref}", at, holds_rows=by_data)

    def forget(self, session: SparkSession, at: EpochAt, *, owners: Collection[str] | None) -> None:  # noqa: ARG002
        """What unknown jobs left in the table's folders is for the cleaning of orphans."""
        forget(session, self.table_ref, CommitAt(at, self.name))

    def close(self, rows: int) -> None:
        """Nothing is open between two epochs."""

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

    def _place(self, staged: Handle) -> dict[str, JsonValue]:
        """Where the table is, and the embedded catalog that knows it. Of a catalog of the job's own
        nothing is told: its settings may hold passwords, and its owner knows them."""
        place: dict[str, JsonValue] = {"location": staged.location} if staged.location else {}
        if self._is_embedded:
            place["warehouse"] = self.table_ref.catalog.properties["warehouse"]
        return place

    def _table(self, session: SparkSession, frame: DataFrame) -> tuple[Any, Any]:
        """The table as it is now, loaded once for each epoch, since every load reads all of its
        metadata; or else how it is going to be made: by all sinks of a pipeline in the same way,
        or rows of the second could not be committed to the table of the first."""
        try:
            return load_table(session, self.table_ref), None
        except TableMissing:
            if schema_mode(self._options) not in _CREATES:
                raise
        ref = self.table_ref
        key = (ref.catalog.fingerprint, ref.namespace, ref.name)
        known: Creation | None = self._planned.get(key)
        try:
            if known is not None:
                return None, (begin_creation(session, ref, known), known)
            planned = plan_creation(session, ref, self._definition(frame.schema))
        except TableExists:
            return load_table(session, ref), None
        self._planned[key] = planned[1]
        return None, planned

    def _definition(self, columns: spark.StructType) -> TableDefinition:
        keys = _list(self._options.get("iceberg.table.primary-keys"))
        return TableDefinition(
            columns=cast("spark.StructType", nullable(columns, but=keys)),
            partition_keys=_list(self._options.get("iceberg.table.partition-keys")),
            primary_keys=keys,
            properties=texts(self._options.get("iceberg.table.auto-create-props")),
        )


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
