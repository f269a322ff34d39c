"""Files of a table as JSON records, in the format of Iceberg's REST protocol, and back to Java.

A record holds all that any process needs to read a file with its deletes, to replace it or to add
it. One page of records costs a handful of JVM calls, however many files are on it. Records carry no
column metrics unless a writer just made them: whoever replaces a file needs none.

`choose` turns planned bins, which are lists of paths, into the records that a rewrite and a commit
use. It scans every file of the planned snapshot, without a filter: only so is it known which delete
files nobody needs any more once the bins are replaced.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict
from pyspark.sql import SparkSession

from headrace.errors import Refused
from headrace.lake.catalog import OnProgress, TableRef, ignore_progress
from headrace.lake.iceberg.catalogs import load_table
from headrace.spark.jvm_bridge import get_each, jvm, set_each

PAGE_FILES = 5_000  # about 2 MB of JSON
LINEAGE_VERSION_MIN = 3  # from here on rows carry the sequence number that last wrote them
SEQUENCE = "data-sequence-number"  # Iceberg's name; its parser does not read it (1.12)
_PATHS_LISTED_MAX = 3

Record = Mapping[str, Any]
DeleteKey = tuple[str, int | None]

_FILE = ("org.apache.iceberg.ContentScanTask", "file")
_GET_SEQUENCE = ("org.apache.iceberg.ContentFile", "dataSequenceNumber")
_SET_SEQUENCE = ("org.apache.iceberg.BaseFile", "setDataSequenceNumber", "java.lang.Long")


class Inputs(BaseModel):
    """What a rewrite of one bin reads and its replacement removes; passed from planning to both."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    number: int  # the bin's, in its plan
    table: str  # for people
    uuid: str  # of the table: a table that was dropped and created again has another
    snapshot: int  # the one that was planned
    sequence: int  # of that snapshot
    tasks: list[dict[str, Any]]  # data files, each with indexes into `deletes`
    deletes: list[dict[str, Any]]
    users: list[int]  # per delete file: to how many data files of the whole table it applies

    @property
    def rows(self) -> int:
        return sum(int(task["data-file"]["record-count"]) for task in self.tasks)

    @property
    def paths(self) -> list[str]:
        return [str(task["data-file"]["file-path"]) for task in self.tasks]

    @property
    def spec(self) -> int:
        return int(self.tasks[0]["data-file"]["spec-id"])


class Rewritten(BaseModel):
    """The result of rewriting a bin: its new files, staged, with full metrics; no files when every
    row was deleted."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    number: int  # the bin's
    execution: str  # the files lie in its folder
    added: list[dict[str, Any]]
    rows: int
    bytes: int

    @property
    def paths(self) -> list[str]:
        return [str(file["file-path"]) for file in self.added]

    def record(self) -> dict[str, Any]:
        """As it is sent and stored."""
        return self.model_dump(mode="json")


@dataclass(frozen=True, slots=True)
class Page:
    """Up to `PAGE_FILES` scan tasks, with the delete files that they refer to."""

    tasks: Sequence[dict[str, Any]]
    deletes: Sequence[dict[str, Any]]
    listed: Any  # the same tasks, as a Java list

    def deletes_of(self, task: Record) -> list[dict[str, Any]]:
        return [self.deletes[index] for index in references(task)]


def pages(
    session: SparkSession, table: Any, scan: Any, *, on_progress: OnProgress = ignore_progress
) -> Iterator[Page]:
    """All files that a scan of the table plans, with the delete files that apply to each, page by
    page."""
    java = jvm(session)
    responses = java.org.apache.iceberg.rest.responses
    iterators = java.org.apache.iceberg.relocated.com.google.common.collect.Iterators
    specs = table.specs()
    with closing(scan.planFiles()) as planned:
        parts = iterators.partition(planned.iterator(), PAGE_FILES)
        while parts.hasNext():
            on_progress()
            listed = parts.next()
            builder = responses.FetchScanTasksResponse.builder()
            response = builder.withFileScanTasks(listed).withSpecsById(specs).build()
            payload = json.loads(responses.FetchScanTasksResponseParser.toJson(response))
            yield Page(payload.get("file-scan-tasks", ()), payload.get("delete-files", ()), listed)


def sequences_of(session: SparkSession, page: Page) -> list[int]:
    """The data sequence number of each file on the page."""
    return get_each(session, page.listed, _FILE, _GET_SEQUENCE)


def choose(
    session: SparkSession,
    ref: TableRef,
    *,
    snapshot: int,
    bins: Sequence[Sequence[str]],
    on_progress: OnProgress = ignore_progress,
) -> list[Inputs]:
    """The inputs of each bin, in the order of its paths. A file may be in one bin only. Raises
    `Refused` when the snapshot or a file of it is gone, or a file is listed twice."""
    table = load_table(session, ref)
    sequence = _sequence(table, ref, snapshot)
    chosen = _ChosenFiles(session, table, {path for paths in bins for path in paths})
    for page in pages(
        session, table, table.newScan().useSnapshot(snapshot), on_progress=on_progress
    ):
        chosen.take(page)
    if chosen.twice:
        raise Refused(
            f"{chosen.twice} is listed twice in snapshot {snapshot} of {ref}, and so are its rows; "
            "replacing it would take both away; plan again"
        )
    missing = sorted(chosen.wanted - chosen.tasks.keys())
    if missing:
        examples = ", ".join(missing[:_PATHS_LISTED_MAX])
        raise Refused(
            f"{len(missing)} planned files are not in snapshot {snapshot} of {ref}, such as "
            f"{examples}; plan again"
        )
    return [
        _inputs(chosen, paths, number, ref=ref, table=table, snapshot=snapshot, sequence=sequence)
        for number, paths in enumerate(bins)
    ]


def tasks_of(
    session: SparkSession, table: Any, tasks: Sequence[Record], deletes: Sequence[Record]
) -> Any:
    """A Java list of scan tasks, in the same order, ready to be read."""
    parser = jvm(session).org.apache.iceberg.rest.TableScanResponseParser
    whole = [{**task, "residual-filter": True} for task in tasks]  # keep every row
    node = _node(session, {"file-scan-tasks": whole, "delete-files": deletes})
    specs, case_sensitive = table.specs(), True
    applied = parser.parseDeleteFiles(node, specs)
    scan_tasks = parser.parseFileScanTasks(node, applied, specs, case_sensitive)
    sequences = [task["data-file"].get(SEQUENCE) for task in tasks]
    if sequences and None not in sequences:
        # Without it, rows that were never updated would look as if the rewrite had written them.
        set_each(
            session, _java_list(session, _files(session, scan_tasks)), _SET_SEQUENCE, sequences
        )
    return scan_tasks


def data_files(session: SparkSession, table: Any, files: Sequence[Record]) -> Any:
    """A Java set of data files."""
    return _files(session, tasks_of(session, table, [{"data-file": one} for one in files], ()))


def delete_files(session: SparkSession, table: Any, deletes: Sequence[Record]) -> Any:
    """A Java set of delete files."""
    iceberg = jvm(session).org.apache.iceberg
    node = _node(session, {"delete-files": deletes})
    made = iceberg.rest.TableScanResponseParser.parseDeleteFiles(node, table.specs())
    return iceberg.util.DeleteFileSet.of(made)


def file_record(session: SparkSession, table: Any, file: Any) -> dict[str, Any]:
    """The record of a Java data file, with all metrics that it has."""
    spec = table.specs().get(file.specId())
    return json.loads(jvm(session).org.apache.iceberg.ContentFileParser.toJson(file, spec))


def references(task: Record) -> Sequence[int]:
    """Indexes of the delete files that apply to this task."""
    return task.get("delete-file-references") or ()


def delete_key(record: Record) -> DeleteKey:
    """What identifies a delete file: its path and offset, since one file may hold many deletion
    vectors."""
    return record["file-path"], record.get("content-offset")


def _files(session: SparkSession, tasks: Any) -> Any:
    """The files of scan tasks, as a Java set that keeps their order."""
    group = jvm(session).org.apache.iceberg.actions.RewriteFileGroup
    return group(None, tasks, 0, 0, 0, 1).rewrittenFiles()


def _java_list(session: SparkSession, files: Any) -> Any:
    return jvm(session).java.util.ArrayList(files)


def _node(session: SparkSession, payload: Mapping[str, Any]) -> Any:
    mapper = jvm(session).org.apache.iceberg.util.JsonUtil.mapper()
    return mapper.readTree(json.dumps(payload))


def _sequence(table: Any, ref: TableRef, snapshot: int) -> int:
    planned = table.snapshot(snapshot)
    if planned is None:
        raise Refused(f"snapshot {snapshot} of {ref} was expired since it was planned; plan again")
    return int(planned.sequenceNumber())


class _ChosenFiles:
    """Collects the wanted files of a scan, and counts the users of every delete file."""

    def __init__(self, session: SparkSession, table: Any, wanted: set[str]) -> None:
        self.wanted = wanted
        self.tasks: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {}
        self.twice: str | None = None  # a wanted file that the scan returned twice
        self.users: Counter[DeleteKey] = Counter()
        self._session = session
        version = int(table.operations().current().formatVersion())
        self._lineage = version >= LINEAGE_VERSION_MIN

    def take(self, page: Page) -> None:
        places: list[int] = []
        for place, task in enumerate(page.tasks):
            deletes = page.deletes_of(task)
            self.users.update(delete_key(one) for one in deletes)
            path = task["data-file"]["file-path"]
            if path in self.wanted:
                self.twice = path if path in self.tasks else self.twice
                self.tasks[path] = (task["data-file"], deletes)
                places.append(place)
        if places and self._lineage:
            sequences = sequences_of(self._session, page)
            for place in places:
                page.tasks[place]["data-file"][SEQUENCE] = sequences[place]


def _inputs(
    chosen: _ChosenFiles,
    paths: Sequence[str],
    number: int,
    *,
    ref: TableRef,
    table: Any,
    snapshot: int,
    sequence: int,
) -> Inputs:
    """One bin: every delete file is listed once, however many of its data files refer to it."""
    places: dict[DeleteKey, int] = {}
    deletes: list[dict[str, Any]] = []
    tasks: list[dict[str, Any]] = []
    for path in paths:
        file, applied = chosen.tasks[path]
        for one in applied:
            if places.setdefault(delete_key(one), len(deletes)) == len(deletes):
                deletes.append(one)
        references = [places[delete_key(one)] for one in applied]
        tasks.append({"data-file": file, "delete-file-references": references})
    return Inputs(
        number=number,
        table=str(ref),
        uuid=str(table.uuid()),
        snapshot=snapshot,
        sequence=sequence,
        tasks=tasks,
        deletes=deletes,
        users=[chosen.users[delete_key(one)] for one in deletes],
    )
