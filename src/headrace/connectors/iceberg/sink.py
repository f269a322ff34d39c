"""The Iceberg sink: exactly once (see lake/iceberg/commit.py), and with save modes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

from pydantic import JsonValue
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark

from headrace.connectors.columns import align, nullable
from headrace.connectors.connector import (
    Committed,
    Mark,
    Setting,
    Staged,
    check_given_up,
    check_spender,
)
from headrace.connectors.iceberg import string_properties, table_ref
from headrace.errors import Refused
from headrace.jobfile.option_values import DataMode, SchemaMode, data_mode, opens, schema_mode
from headrace.lake.iceberg.catalogs import TableMissing, columns_of, exists, load_table
from headrace.lake.iceberg.commit import TableCommit, commit, look_marked
from headrace.lake.iceberg.creation import (
    Creation,
    TableDefinition,
    TableExists,
    begin_creation,
    check_definition,
    plan_creation,
)
from headrace.lake.iceberg.save_modes import TableOpening, columns_of_opening, open_table
from headrace.lake.iceberg.snapshots import count_rows
from headrace.lake.iceberg.stage import StagedFilesHandle, stage
from headrace.lake.iceberg.sweep import abort, forget, sweep
from headrace.lake.iceberg.token import TableCommitAt
from headrace.model.jobs.epoch import EpochAt, SpentBy
from headrace.spark.errors import one_line

_CREATES = frozenset({SchemaMode.CREATE, SchemaMode.RECREATE})


class IcebergSink:
    leaves_stage = False  # the staged files become the table's own files

    def __init__(self, name: str, setting: Setting) -> None:
        self.name = name
        self._options, self._deadline_s = setting.options, setting.commit_deadline_s
        self.opens = opens(setting.options)
        self.table_ref = table_ref(f"sink {name}", setting)
        self._is_embedded = not setting.options.get("iceberg.catalog.config")
        # Whoever drops the table after a commit does not want it back without the committed rows,
        # so an epoch that was staged beside the first one does not create it again.
        self._committed = setting.has_committed
        self._planned = setting.planned_tables
        self._seen: tuple[str | None] | None = None  # UUID of the table when it was first looked at

    def read_mark(self, session: SparkSession, at: EpochAt) -> Mark | None:
        uuid, mark = look_marked(session, self.table_ref, TableCommitAt(at, self.name))
        self._seen = self._seen or (uuid,)
        return mark and Mark(mark[0], aborted=mark[1] is SpentBy.ABORT)

    def survey(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> JsonValue:
        uuid = None
        mode = schema_mode(self._options)
        if mode in _CREATES:
            check_definition(session, self.table_ref, self._definition(frame.schema))
        if mode not in _CREATES or exists(session, self.table_ref):
            table = load_table(session, self.table_ref)  # refuses when it is not there
            uuid = str(table.uuid())
            self._refuse_rows(session, table)
        opening = TableOpening(
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
        opening = TableOpening.model_validate(handle)
        wanted = self._definition(columns_of_opening(opening))
        outcome = open_table(
            session,
            self.table_ref,
            opening,
            wanted,
            TableCommitAt(at, self.name),
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
        committed = self._committed  # read before the table is: if that is missing, it was dropped
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
                TableCommitAt(at, self.name),
                table=table,
                planned=planned,
                is_first=not committed,
                properties=string_properties(self._options.get("iceberg.table.write-props")),
            )
        except AnalysisException as error:
            raise Refused(f"sink {self.name}: {self.table_ref}: {one_line(error)}") from error
        return Staged(handle.model_dump(mode="json"), handle.rows)

    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        staged = StagedFilesHandle.model_validate(handle)
        outcome = commit(
            session,
            self.table_ref,
            staged,
            TableCommitAt(at, self.name),
            deadline_s=self._deadline_s,
            may_create=not (staged.is_first and self._committed),
            seen=self._seen and self._seen[0],
        )
        self._committed = True
        target = f"sink {self.name}: table {self.table_ref}"
        check_spender(target, at, staged=staged.execution, held=outcome.spent.execution)
        return Committed(outcome.already, {**self._facts(outcome), **self._location_facts(staged)})

    def sweep(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> None:
        if at.epoch == 0:
            return  # opening a table stages nothing
        staged = StagedFilesHandle.model_validate(handle) if handle is not None else None
        sweep(session, self.table_ref, staged, TableCommitAt(at, self.name))

    def abort(self, session: SparkSession, at: EpochAt) -> None:
        commit_at = TableCommitAt(at, self.name)
        spent = abort(session, self.table_ref, commit_at, deadline_s=self._deadline_s)
        by_data = spent is not None and spent.by is SpentBy.DATA
        check_given_up(f"sink {self.name}: table {self.table_ref}", at, holds_rows=by_data)

    def forget(self, session: SparkSession, at: EpochAt, *, owners: Collection[str] | None) -> None:  # noqa: ARG002
        """Forget this job; files that unknown jobs left are left to the removal of orphan files."""
        forget(session, self.table_ref, TableCommitAt(at, self.name))

    def close(self, rows: int) -> None:
        """Nothing is open between two epochs."""

    def _facts(self, outcome: TableCommit) -> dict[str, JsonValue]:
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

    def _location_facts(self, staged: StagedFilesHandle) -> dict[str, JsonValue]:
        """Where the table is, and the warehouse of the embedded catalog.

        Nothing is said of a catalog of the job's own: its settings may hold passwords, and its
        owner knows them.
        """
        place: dict[str, JsonValue] = {"location": staged.location} if staged.location else {}
        if self._is_embedded:
            place["warehouse"] = self.table_ref.catalog.properties["warehouse"]
        return place

    def _table(self, session: SparkSession, frame: DataFrame) -> tuple[Any, Any]:
        """The table as it is now, or how it is going to be created; the other of the two is None.

        It is loaded once for each epoch, since every load reads all of its metadata. All sinks of a
        pipeline create it in the same way, or the rows of the second could not be committed to the
        table of the first.
        """
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
            properties=string_properties(self._options.get("iceberg.table.auto-create-props")),
        )


def _list(value: Any) -> Sequence[str]:
    """The items of a list, or of one text; commas in brackets don't separate: bucket(id, 16)."""
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
