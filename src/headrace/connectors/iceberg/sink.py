"""The Iceberg sink: exactly once (lake/iceberg/commit_target.py), and with save modes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from pydantic import JsonValue
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark

from headrace.connectors.columns import align, nullable
from headrace.connectors.connector import Committed, Setting, Sink, Staged
from headrace.connectors.iceberg.descriptor import IcebergSinkOptions
from headrace.connectors.iceberg.table_ref import table_ref
from headrace.errors import Refused
from headrace.exactly_once.operations import abort, commit, forget, open_target, sweep
from headrace.exactly_once.spend import deadline_of
from headrace.exactly_once.target import Mark
from headrace.lake.iceberg.catalogs import TableMissing, columns_of, exists, load_table
from headrace.lake.iceberg.commit import rows_change
from headrace.lake.iceberg.commit_target import IcebergTarget
from headrace.lake.iceberg.creation import (
    Creation,
    TableDefinition,
    TableExists,
    begin_creation,
    check_definition,
    plan_creation,
)
from headrace.lake.iceberg.save_modes import TableOpening, columns_of_opening, opening_change
from headrace.lake.iceberg.snapshots import count_rows
from headrace.lake.iceberg.stage import StagedFilesHandle, stage
from headrace.lake.iceberg.token import SpentAtTable, TableCommitAt
from headrace.model.jobs.epoch import EpochAt
from headrace.plugins.save_modes import DataMode, SchemaMode
from headrace.spark.errors import one_line

_CREATES = frozenset({SchemaMode.CREATE, SchemaMode.RECREATE})


class IcebergSink(Sink):
    leaves_stage = False  # the staged files become the table's own files

    def __init__(self, name: str, options: IcebergSinkOptions, setting: Setting) -> None:
        self.name = name
        self._options, self._deadline_s = options, setting.commit_deadline_s
        self._modes, self.opens = options.save_modes, options.save_modes.opens
        self.table_ref = table_ref(f"sink {name}", options.table, warehouse=setting.warehouse)
        self._is_embedded = not options.table.catalog_config
        # Whoever drops the table after a commit does not want it back without the committed rows,
        # so an epoch that was staged beside the first one does not create it again.
        self._committed = setting.has_committed
        self._planned = setting.planned_tables
        self._seen: tuple[str | None] | None = None  # UUID of the table when it was first looked at

    def read_mark(self, session: SparkSession, at: EpochAt) -> Mark | None:
        target = self._target(session)
        mark = target.read_mark(TableCommitAt(at, self.name))
        self._seen = self._seen or (target.uuid,)
        return mark

    def survey(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> JsonValue:
        uuid = None
        mode = self._modes.schema
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
            drop=self._modes.data is DataMode.DROP,
            recreate=mode is SchemaMode.RECREATE,
        )
        return opening.model_dump(mode="json")

    def _refuse_rows(self, session: SparkSession, table: Any) -> None:
        if self._modes.data is not DataMode.ERROR:
            return
        if rows := count_rows(session, table):
            raise Refused(
                f"sink {self.name}: table {self.table_ref} holds {rows} rows, and data_save_mode "
                f"is {DataMode.ERROR}; empty it, or set {DataMode.APPEND} or {DataMode.DROP}"
            )

    def open(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        opening = TableOpening.model_validate(handle)
        wanted = self._definition(columns_of_opening(opening))
        facts: dict[str, JsonValue] = {"table": str(self.table_ref)}
        try:
            outcome = open_target(
                self._target(session),
                TableCommitAt(at, self.name),
                opening_change(session, self.table_ref, opening, wanted),
                deadline=deadline_of(at, self._deadline_s),
            )
        except TableMissing:
            if opening.uuid is not None:
                raise
            return Committed(already=False, facts=facts)  # the commit of the first rows creates it
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
                case_sensitive=self._options.case_sensitive,
            )
            handle = stage(
                session,
                aligned,
                self.table_ref,
                TableCommitAt(at, self.name),
                table=table,
                planned=planned,
                is_first=not committed,
                properties=self._options.write_properties,
            )
        except AnalysisException as error:
            raise Refused(f"sink {self.name}: {self.table_ref}: {one_line(error)}") from error
        return Staged(handle.model_dump(mode="json"), handle.rows)

    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        staged, commit_at = StagedFilesHandle.model_validate(handle), TableCommitAt(at, self.name)
        change = rows_change(
            session,
            self.table_ref,
            staged,
            commit_at,
            may_create=not (staged.is_first and self._committed),
            seen=self._seen and self._seen[0],
        )
        deadline = deadline_of(at, self._deadline_s)
        outcome = commit(self._target(session), commit_at, change, deadline=deadline)
        self._committed = True
        facts = {**self._facts(outcome.spent), **self._location_facts(staged)}
        return Committed(outcome.already, facts)

    def sweep(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> None:
        if at.epoch == 0:
            return  # opening a table stages nothing
        staged = StagedFilesHandle.model_validate(handle) if handle is not None else None
        completed_by = staged and staged.execution
        sweep(self._target(session), TableCommitAt(at, self.name), completed_by=completed_by)

    def abort(self, session: SparkSession, at: EpochAt) -> None:
        deadline = deadline_of(at, self._deadline_s)
        abort(self._target(session), TableCommitAt(at, self.name), deadline=deadline)

    def forget(self, session: SparkSession, at: EpochAt, *, owners: Collection[str] | None) -> None:
        forget(self._target(session), TableCommitAt(at, self.name), owners=owners)

    def _target(self, session: SparkSession) -> IcebergTarget:
        title = f"sink {self.name}: table {self.table_ref}"
        return IcebergTarget(session, self.table_ref, title=title)

    def _facts(self, spent: SpentAtTable) -> dict[str, JsonValue]:
        facts: dict[str, JsonValue] = {"table": str(self.table_ref), "snapshot": spent.snapshot}
        for fact, key in (
            ("rows", "added-records"),
            ("files", "added-data-files"),
            ("bytes", "added-files-size"),
            ("total_rows", "total-records"),
        ):
            if spent.snapshot is not None:
                facts[fact] = int(spent.summary.get(key, "0"))
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
            if self._modes.schema not in _CREATES:
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
        keys = self._options.primary_keys
        return TableDefinition(
            columns=cast("spark.StructType", nullable(columns, but=keys)),
            partition_keys=self._options.partition_keys,
            primary_keys=keys,
            properties=self._options.table_properties,
        )
