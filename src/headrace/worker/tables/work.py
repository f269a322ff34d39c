"""What one task of a lake table is done with: its session, its catalog, and whom to tell."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from headrace.clock import Clock
from headrace.errors import Refused
from headrace.formats.iceberg.catalogs import CatalogConfig, TableMissing, TableRef, load_table
from headrace.formats.iceberg.process import ProcessAt
from headrace.protocol.tables import ProcessRef, TableName
from headrace.worker.execution import Execution
from headrace.worker.joblog import redacted, secrets_of


@dataclass(frozen=True, slots=True)
class Work:
    execution: Execution
    session: SparkSession
    clock: Clock
    catalog: CatalogConfig

    def heard(self) -> None:
        """Something moved: told to the leader, which ends what stands still. May end it here."""
        self.execution.touch()
        self.execution.check()

    def begins(self, step: str) -> None:
        self.execution.check()
        self.execution.says(step)

    def safe(self, said: str) -> str:
        """What others said, without the catalog's secrets: results are shown to people."""
        return redacted(said, secrets_of(self.execution.assignment.payload))

    def ref(self, table: TableName) -> TableRef:
        return TableRef(self.catalog, table.namespace, table.name)

    def at(self, process: ProcessRef) -> ProcessAt:
        execution = self.execution
        return ProcessAt(process.owner, process.number, execution.id, execution.since)

    def is_there(self, ref: TableRef, process: ProcessRef) -> bool:
        """The very table that was planned, not another one of its name."""
        try:
            return str(load_table(self.session, ref).uuid()) == process.uuid
        except TableMissing:
            return False

    def check_there(self, ref: TableRef, process: ProcessRef) -> None:
        if not self.is_there(ref, process):
            raise Refused(
                f"{ref} was dropped, or made anew, since process {process.id} planned it; nothing "
                "is left to do for this process"
            )
