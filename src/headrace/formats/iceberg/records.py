"""Files of a table as JSON records, in the words of Iceberg's REST protocol, and back.

A record says all that a stranger needs in order to read a file with its deletes, to replace it or
to add it. One page of records costs a handful of JVM calls, however many files are on it. Records
carry no column metrics unless a writer just made them: who replaces a file needs none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict
from pyspark.sql import SparkSession

from headrace.formats.iceberg.bulk import ask_each, tell_each
from headrace.formats.iceberg.jvm import jvm

PAGE_FILES = 5_000  # about 2 MB of JSON
LINEAGE_VERSION_MIN = 3  # from here on rows know the sequence number that wrote them last
SEQUENCE = "data-sequence-number"  # Iceberg's word; its parser of version 1.12 does not read it

Record = Mapping[str, Any]
Heard = Callable[[], None]  # called for each page: who waits for a long scan hears that it goes on
DeleteKey = tuple[str, int | None]

_FILE = ("org.apache.iceberg.ContentScanTask", "file")
_GET_SEQUENCE = ("org.apache.iceberg.ContentFile", "dataSequenceNumber")
_SET_SEQUENCE = ("org.apache.iceberg.BaseFile", "setDataSequenceNumber", "java.lang.Long")


def unheard() -> None:
    """Nobody waits."""


class Inputs(BaseModel):
    """What one bin reads, and what replaces it takes away: handed from planning to both."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    number: int  # the bin's, in its plan
    table: str  # for people
    uuid: str  # of the table: one dropped and made anew is another one
    snapshot: int  # the one that was planned
    sequence: int  # of that snapshot
    tasks: list[dict[str, Any]]  # data files, each with indexes into `deletes`
    deletes: list[dict[str, Any]]
    users: list[int]  # for each delete file: to how many data files of the whole table it applies

    @property
    def rows(self) -> int:
        return sum(int(task["data-file"]["record-count"]) for task in self.tasks)

    @property
    def spec(self) -> int:
        return int(self.tasks[0]["data-file"]["spec-id"])


class Rewritten(BaseModel):
    """What became of a bin: new files, staged, full metrics. None when every row was deleted."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    number: int  # the bin's
    execution: str  # whose folder the files lie in
    added: list[dict[str, Any]]
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Page:
    tasks: Sequence[dict[str, Any]]
    deletes: Sequence[dict[str, Any]]
    listed: Any  # the same tasks as a Java list

    def deletes_of(self, task: Record) -> list[dict[str, Any]]:
        return [self.deletes[index] for index in references(task)]


def references(task: Record) -> Sequence[int]:
    """Which of the deletes that stand beside the tasks apply to this one."""
    return task.get("delete-file-references") or ()


def delete_key(record: Record) -> DeleteKey:
    """Many deletion vectors may lie in one file."""
    return record["file-path"], record.get("content-offset")


def pages(
    session: SparkSession, table: Any, scan: Any, *, heard: Heard = unheard
) -> Iterator[Page]:
    """All files that a scan of the table plans, with the deletes that apply to each."""
    java = jvm(session)
    responses = java.org.apache.iceberg.rest.responses
    iterators = java.org.apache.iceberg.relocated.com.google.common.collect.Iterators
    specs = table.specs()
    with closing(scan.planFiles()) as planned:
        parts = iterators.partition(planned.iterator(), PAGE_FILES)
        while parts.hasNext():
            heard()
            listed = parts.next()
            builder = responses.FetchScanTasksResponse.builder()
            response = builder.withFileScanTasks(listed).withSpecsById(specs).build()
            told = json.loads(responses.FetchScanTasksResponseParser.toJson(response))
            yield Page(told.get("file-scan-tasks", ()), told.get("delete-files", ()), listed)


def sequences_of(session: SparkSession, page: Page) -> list[int]:
    """The data sequence number of each file on the page."""
    return ask_each(session, page.listed, _FILE, _GET_SEQUENCE)


def tasks_of(
    session: SparkSession, table: Any, tasks: Sequence[Record], deletes: Sequence[Record]
) -> Any:
    """Java's list of scan tasks, in the same order, ready to be read."""
    parser = jvm(session).org.apache.iceberg.rest.TableScanResponseParser
    whole = [{**task, "residual-filter": True} for task in tasks]  # no row of it is left out
    node = _node(session, {"file-scan-tasks": whole, "delete-files": deletes})
    specs, case_sensitive = table.specs(), True
    applied = parser.parseDeleteFiles(node, specs)
    made = parser.parseFileScanTasks(node, applied, specs, case_sensitive)
    sequences = [task["data-file"].get(SEQUENCE) for task in tasks]
    if sequences and None not in sequences:
        # Without it rows that were never updated would seem to be written by the rewrite.
        tell_each(session, _listed(session, _files(session, made)), _SET_SEQUENCE, sequences)
    return made


def data_files(session: SparkSession, table: Any, files: Sequence[Record]) -> Any:
    """Java's set of data files."""
    return _files(session, tasks_of(session, table, [{"data-file": one} for one in files], ()))


def delete_files(session: SparkSession, table: Any, deletes: Sequence[Record]) -> Any:
    """Java's set of delete files."""
    iceberg = jvm(session).org.apache.iceberg
    node = _node(session, {"delete-files": deletes})
    made = iceberg.rest.TableScanResponseParser.parseDeleteFiles(node, table.specs())
    return iceberg.util.DeleteFileSet.of(made)


def file_record(session: SparkSession, table: Any, file: Any) -> dict[str, Any]:
    """With all metrics that the file knows."""
    spec = table.specs().get(file.specId())
    return json.loads(jvm(session).org.apache.iceberg.ContentFileParser.toJson(file, spec))


def _files(session: SparkSession, tasks: Any) -> Any:
    """The files of scan tasks as a set that keeps their order."""
    group = jvm(session).org.apache.iceberg.actions.RewriteFileGroup
    return group(None, tasks, 0, 0, 0, 1).rewrittenFiles()


def _listed(session: SparkSession, files: Any) -> Any:
    return jvm(session).java.util.ArrayList(files)


def _node(session: SparkSession, told: Mapping[str, Any]) -> Any:
    mapper = jvm(session).org.apache.iceberg.util.JsonUtil.mapper()
    return mapper.readTree(json.dumps(told))
