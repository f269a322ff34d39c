"""A folder that a test writes to and reads from, and what lies in it as a stranger sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.files.sink import FileSink
from headrace.connectors.files.source import FileSource
from tests.spark.settings import at, setting


def sink(folder: Path, **options: Any) -> FileSink:
    return FileSink("LocalFile-1", *setting("LocalFile", "sink", {"path": str(folder), **options}))


def source(folder: Path, **options: Any) -> FileSource:
    made = setting("LocalFile", "source", {"path": str(folder), **options})
    return FileSource("LocalFile-1", *made)


def write(session: SparkSession, to: FileSink, frame: DataFrame, epoch: int = 1) -> None:
    staged = to.stage(session, frame, at(epoch))
    to.commit(session, staged.handle, at(epoch))
    to.sweep(session, staged.handle, at(epoch))


def written(folder: Path) -> list[str]:
    """Files outside of `_headrace`, by their paths."""
    files = (file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    seen = (file for file in files if file.parts[0] != "_headrace" and file.name[0] != ".")
    return sorted(str(file) for file in seen)


def lines(folder: Path, *, encoding: str = "utf-8") -> list[str]:
    texts = [(folder / name).read_bytes().decode(encoding) for name in written(folder)]
    return sorted(line for text in texts for line in text.splitlines())


def told(rows: DataFrame) -> list[str]:
    """Rows as texts, sorted, and the entries of maps, too: no format promises their order."""

    def text(value: Any) -> str:
        if isinstance(value, dict):
            entries = cast("dict[Any, Any]", value).items()
            return str(sorted((text(key), text(item)) for key, item in entries))
        return str(value)

    return sorted(f"Row({', '.join(map(text, row))})" for row in rows.collect())


def numbers(session: SparkSession, rows: int, *, first: int = 0) -> DataFrame:
    return session.range(first, first + rows, 1, 2).selectExpr("id", "cast(id as string) as name")


def query(session: SparkSession, text: str) -> DataFrame:
    return session.sql(text)  # pyright: ignore[reportUnknownMemberType]
