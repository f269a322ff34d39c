"""What lies below a table of the embedded warehouse, and what its snapshots refer to.

Read without Spark: an Iceberg manifest is an Avro file, and the names in it are all that is
asked for.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from tests.crash.jobs import find_metadata

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_NAME = re.compile(rb"file:[\x20-\x7e]*?\.(?:parquet|avro|puffin)")


def leftovers(warehouse: Path, table: str) -> list[str]:
    """Files that were staged, and that no snapshot of the table refers to."""
    metadata = find_metadata(warehouse, table)
    if metadata is None:
        return []
    staged = {
        file
        for file in (metadata.parents[1] / "data").rglob("*")
        if file.is_file() and file.suffix != ".crc"
    }
    referenced = _referenced(metadata)
    lost = [str(file) for file in referenced if not file.exists()]
    assert not lost, f"snapshots refer to files that are gone: {lost}"
    return sorted(str(file) for file in staged - referenced)


def _referenced(metadata: Path) -> set[Path]:
    found: set[Path] = set()
    for snapshot in json.loads(metadata.read_text()).get("snapshots", []):
        manifests = _names(_path(snapshot["manifest-list"]))
        found |= manifests
        for manifest in manifests:
            found |= _names(manifest)
    return found


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
