"""A table written by plain SQL and read by plain SQL, and a whole process over it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession

from headrace.lake.catalog import TableRef
from headrace.lake.iceberg.catalogs import embedded_catalog, load_table, local_path
from headrace.lake.iceberg.file_records import Inputs, Rewritten, choose
from headrace.lake.iceberg.replace import replace
from headrace.lake.iceberg.replace_conflicts import BinGroup
from headrace.lake.iceberg.rewrite import rewrite
from headrace.lake.iceberg.scan import scan
from headrace.lake.iceberg.token import ProcessAt
from headrace.lake.table_format import Replaced
from headrace.model.tables.files import Partition, TableFiles
from headrace.spark.jvm_bridge import gateway, get_each, jvm
from tests.spark.lake import session_range, some, sql, staged_files

TARGET_BYTES = 1 << 27
MERGE_ON_READ = {"write.delete.mode": "merge-on-read", "write.update.mode": "merge-on-read"}


class Written:
    def __init__(
        self,
        session: SparkSession,
        warehouse: str,
        *,
        columns: str = "id bigint, p int, name string",
        partitioned: str = "",
        properties: dict[str, str] | None = None,
    ) -> None:
        self.session = session
        self.owner = uuid.uuid4().hex
        name = f"w_{self.owner[:12]}"
        self.ref = TableRef(embedded_catalog(warehouse), ("tests",), name)
        self.name = f"headrace.tests.{name}"
        told = {"format-version": "2", "write.distribution-mode": "none"} | (properties or {})
        settings = ", ".join(f"'{key}'='{value}'" for key, value in told.items())
        by = f"PARTITIONED BY ({partitioned})" if partitioned else ""
        sql(session, "CREATE NAMESPACE IF NOT EXISTS headrace.tests")
        self.sql(f"CREATE TABLE {{t}} ({columns}) USING iceberg {by} TBLPROPERTIES ({settings})")

    def sql(self, text: str) -> list[Row]:
        return sql(self.session, text.format(t=self.name))

    def append(self, first: int, rows: int = 10, *, partitions: int = 2) -> None:
        """One commit with one file in each partition that has rows."""
        made = session_range(self.session, first, first + rows).coalesce(1)
        made = made.selectExpr("id", f"cast(id % {partitions} as int) AS p", "string(id) AS name")
        made.writeTo(self.name).append()

    def rows(self, columns: str = "*") -> list[tuple[Any, ...]]:
        """As a stranger reads them."""
        found: list[tuple[Any, ...]] = [
            tuple(row) for row in self.sql(f"SELECT {columns} FROM {{t}}")
        ]
        return sorted(found)

    def ids(self) -> list[int]:
        return [row[0] for row in self.rows("id")]

    @property
    def table(self) -> Any:
        return load_table(self.session, self.ref)

    def scan(self, filter: str | None = None) -> TableFiles:  # noqa: A002 - as it is called there
        return scan(self.session, self.ref, filter=filter)

    def delete_files(self) -> int:
        """In the manifests, whether they apply to anything or not."""
        return len(self.sql("SELECT file_path FROM {t}.delete_files"))

    def at(self, number: int = 1, execution: str = "r1.1") -> ProcessAt:
        return ProcessAt(self.owner, number, execution)

    def choose(
        self, files: TableFiles, bins: Sequence[Sequence[str]] | None = None
    ) -> list[Inputs]:
        """By default a bin of each partition."""
        if bins is None:
            bins = list(by_partition(files).values())
        return choose(self.session, self.ref, snapshot=some(files.snapshot), bins=bins)

    def rewrite(self, inputs: Sequence[Inputs], at: ProcessAt | None = None) -> list[Rewritten]:
        at = at or self.at()
        return rewrite(self.session, self.ref, inputs, at, target_bytes=TARGET_BYTES)

    def rewritten(self, at: ProcessAt | None = None) -> list[BinGroup]:
        """A group of each partition, staged and ready to be replaced."""
        inputs = self.choose(self.scan())
        return groups_of(inputs, self.rewrite(inputs, at))

    def replace(self, groups: Sequence[BinGroup], at: ProcessAt | None = None) -> Replaced:
        return replace(self.session, self.ref, groups, at or self.at())

    def staged(self, at: ProcessAt) -> list[Path]:
        """All data files that the process has in its folder."""
        return staged_files(some(local_path(at.process_folder(str(self.table.location())))))

    def delete_named(self, names: Sequence[str], *, partition: str | None = None) -> None:
        """Commit an equality delete by name, as Flink's upserts do; Spark has no way to."""
        table, java = self.table, jvm(self.session)
        iceberg = java.org.apache.iceberg
        schema = table.schema().select(java.java.util.Collections.singletonList("name"))
        ids = gateway(self.session).new_array(java.int, 1)
        ids[0] = schema.findField("name").fieldId()
        output = table.io().newOutputFile(f"{table.location()}/data/eq-{uuid.uuid4().hex}.parquet")
        output = iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(output)
        factory = iceberg.data.GenericFileWriterFactory.Builder(table)
        factory = factory.equalityDeleteRowSchema(schema).equalityFieldIds(ids).build()
        spec = table.spec()
        key = iceberg.DataFiles.data(spec, partition) if partition else None
        writer = factory.newEqualityDeleteWriter(output, spec, key)
        for name in names:
            record = iceberg.data.GenericRecord.create(schema)
            record.setField("name", name)
            writer.write(record)
        writer.close()
        table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()

    def sequences(self) -> list[int]:
        """Data sequence numbers of all live files."""
        tasks = jvm(self.session).java.util.ArrayList()
        with_files = self.table.newScan().planFiles().iterator()
        while with_files.hasNext():
            tasks.add(with_files.next())
        getters = (
            ("org.apache.iceberg.ContentScanTask", "file"),
            ("org.apache.iceberg.ContentFile", "dataSequenceNumber"),
        )
        return sorted(get_each(self.session, tasks, *getters))


def by_partition(files: TableFiles) -> dict[Partition, list[str]]:
    found: dict[Partition, list[str]] = {}
    for file in files.files:
        found.setdefault(file.partition, []).append(file.path)
    return found


def groups_of(inputs: Sequence[Inputs], rewritten: Sequence[Rewritten]) -> list[BinGroup]:
    return [
        BinGroup(number=one.number, bins=[one], rewritten=[made])
        for one, made in zip(inputs, rewritten, strict=True)
    ]


def copy_of(ids: Sequence[int], partitions: int = 2) -> list[tuple[Any, ...]]:
    """The plain copy: what the same writes give without any table."""
    return [(n, n % partitions, str(n)) for n in ids]


def six_files(session: SparkSession, warehouse: str) -> Written:
    """Two partitions of three files each, ids 0 to 29."""
    made = Written(session, warehouse, partitioned="p", properties=MERGE_ON_READ)
    for first in (0, 10, 20):
        made.append(first)
    return made
