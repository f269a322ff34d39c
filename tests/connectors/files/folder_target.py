"""A folder driven through exactly_once, without Spark and without a sink."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from headrace.connectors.files.commit import (
    FilesHandle,
    FolderOpening,
    FolderTarget,
    Manifest,
    opening_change,
    rows_change,
)
from headrace.connectors.files.places import Places
from headrace.errors import StoreOlderThanTarget
from headrace.exactly_once import operations
from headrace.exactly_once.spend import SpendOutcome
from headrace.spark.filesystem import FileSystem
from tests.fakes import FakeClock


def look(files: FileSystem, at: Places) -> Manifest | None:
    return FolderTarget(files).look(at)


def commit(files: FileSystem, at: Places, handle: FilesHandle) -> SpendOutcome[Manifest]:
    return operations.commit(FolderTarget(files), at, rows_change(files, at, handle))


def open_target(files: FileSystem, at: Places, opening: FolderOpening) -> SpendOutcome[Manifest]:
    return operations.open_target(FolderTarget(files), at, opening_change(files, at, opening))


def abort(files: FileSystem, at: Places) -> Manifest:
    """What spent the token: the abort, or data before it."""
    with suppress(StoreOlderThanTarget):
        operations.abort(FolderTarget(files), at)
    spent = look(files, at)
    assert spent is not None
    return spent


def sweep(files: FileSystem, at: Places) -> None:
    operations.sweep(FolderTarget(files), at, completed_by=None)


def forget(
    files: FileSystem, at: Places, *, owners: Collection[str] | None = None, now_ms: int = 0
) -> None:
    target = FolderTarget(files, clock=FakeClock(wall_ms=now_ms))
    operations.forget(target, at, owners=owners)
