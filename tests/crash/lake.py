"""What lies below a table of the embedded warehouse, and what its snapshots refer to.

Read without Spark: an Iceberg manifest is an Avro file, and the names in it are all that is
asked for.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.jobs import find_metadata

LOOKS_MAX = 20  # at a table that is committed to all the time
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_NAME = re.compile(rb"file:[\x20-\x7e]*?\.(?:parquet|avro|puffin)")


@dataclass(frozen=True, slots=True)
class TableFiles:
    """What was found below a table, as paths."""

    gone: list[str]  # although a snapshot refers to them: rows are lost
    staged: list[str]  # data files that no snapshot refers to
    orphans: list[str]  # metadata that neither the table nor a snapshot of it refers to


def leftovers(warehouse: Path, table: str) -> list[str]:
    """Files that were staged, and that no snapshot of the table refers to."""
    found = files_of(warehouse, table)
    assert not found.gone, f"snapshots refer to files that are gone: {found.gone}"
    return found.staged


def files_of(warehouse: Path, table: str) -> TableFiles:
    """As of one moment: looked at again when somebody committed meanwhile."""
    for _ in range(LOOKS_MAX):
        metadata = find_metadata(warehouse, table)
        if metadata is None:
            return TableFiles([], [], [])
        found = _files_of(metadata)
        if find_metadata(warehouse, table) == metadata:
            return found
    raise AssertionError(f"{table} did not rest for {LOOKS_MAX} looks")


def _files_of(metadata: Path) -> TableFiles:
    # Listed first: a file that comes later is of a commit that is not looked at.
    staged = _plain_files(metadata.parents[1] / "data")
    written = _plain_files(metadata.parent)
    table = json.loads(metadata.read_text())
    referenced = _referenced(table)
    return TableFiles(
        gone=sorted(str(file) for file in referenced if not file.exists()),
        staged=sorted(str(file) for file in staged - referenced),
        orphans=sorted(
            str(file)
            for file in written - referenced - _known_versions(metadata, table)
            if not _is_forgotten_version(file, table)
        ),
    )


def _plain_files(folder: Path) -> set[Path]:
    return {file for file in folder.rglob("*") if file.is_file() and file.suffix != ".crc"}


def _referenced(table: Mapping[str, Any]) -> set[Path]:
    """By the snapshots of the table: manifest lists, manifests and all that these name."""
    lists = {_path(snapshot["manifest-list"]) for snapshot in table.get("snapshots", [])}
    manifests = {name for file in lists if file.exists() for name in _names(file)}
    named = {name for file in manifests if file.exists() for name in _names(file)}
    return lists | manifests | named


def _known_versions(metadata: Path, table: Mapping[str, Any]) -> set[Path]:
    return {metadata, *(_path(entry["metadata-file"]) for entry in table.get("metadata-log", []))}


def _is_forgotten_version(file: Path, table: Mapping[str, Any]) -> bool:
    """Iceberg's log of versions is bounded, and what drops out of it stays on the disk."""
    log = [_version(_path(entry["metadata-file"])) for entry in table.get("metadata-log", [])]
    return file.name.endswith(".metadata.json") and bool(log) and _version(file) < min(log)


def _version(file: Path) -> int:
    return int(file.name.partition("-")[0])


def _path(location: str) -> Path:
    return Path("/" + location.removeprefix("file:").lstrip("/"))


def _names(file: Path) -> set[Path]:
    return {_path(name.decode()) for block in _blocks(file) for name in _NAME.findall(block)}


def _blocks(file: Path) -> Iterator[bytes]:
    """The blocks of an Avro file, inflated."""
    data = file.read_bytes()
    assert data.startswith(_MAGIC), file
    facts, at = _map(data, len(_MAGIC))
    at += _SYNC_BYTES
    while at < len(data):
        _, at = _long(data, at)  # how many records
        size, at = _long(data, at)
        block = data[at : at + size]
        yield (
            zlib.decompress(block, -zlib.MAX_WBITS) if facts[b"avro.codec"] == b"deflate" else block
        )
        at += size + _SYNC_BYTES


def _map(data: bytes, at: int) -> tuple[dict[bytes, bytes], int]:
    found: dict[bytes, bytes] = {}
    count, at = _long(data, at)
    while count:
        if count < 0:  # then its size in bytes follows
            count, (_, at) = -count, _long(data, at)
        for _ in range(count):
            key, at = _bytes(data, at)
            found[key], at = _bytes(data, at)
        count, at = _long(data, at)
    return found, at


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    return data[at : at + size], at + size


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag number of variable length, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
