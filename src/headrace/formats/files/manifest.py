"""What a manifest says: which staged files an epoch consists of, and their final names.

A manifest without files is an abort; that of epoch 0 names files to delete instead. A list of moves
is first written beside the staged files (the *listing*), and the handle points to it, so that
neither the store nor the coordinator carries a list of files.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, ValidationError

from headrace.errors import Refused
from headrace.formats.files.filesystem import FileInfo


class SpentBy(StrEnum):
    DATA = "data"
    ABORT = "abort"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Move(_Record):
    staged: str  # both relative to the target folder
    final: str
    bytes: int


class Listing(_Record):
    rows: int
    moves: tuple[Move, ...]

    def encoded(self) -> bytes:
        return self.model_dump_json().encode()


class Handle(_Record):
    """All that a stranger needs in order to commit what was staged."""

    folder: str  # for people: the target
    execution: str
    listing: str  # relative to the target folder
    sha256: str  # of the listing
    files: int
    bytes: int
    rows: int


class Deletes(_Record):
    """Files as they were surveyed; one that was changed since is another file, and stays."""

    files: tuple[FileInfo, ...]

    def encoded(self) -> bytes:
        return self.model_dump_json().encode()


class Opening(_Record):
    """All that a stranger needs in order to open: epoch 0."""

    folder: str  # for people: the target
    files: int
    deletes: Deletes | None  # None: too many for a handle, so they stand in the listing
    listing: str | None = None  # relative to the target folder
    sha256: str = ""  # of the listing


class Manifest(_Record):
    token: str
    by: SpentBy
    execution: str  # that staged the files, or aborted
    committer: str  # one call of commit: tells its own manifest from another's
    rows: int = 0
    moves: tuple[Move, ...] = ()
    deletes: tuple[FileInfo, ...] = ()

    def encoded(self) -> bytes:
        return self.model_dump_json(indent=1).encode()


def read_manifest(data: bytes, *, path: str) -> Manifest:
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        raise Refused(
            f"the manifest {path} can't be read, so nobody knows what of its epoch is committed; "
            "restore the file from a backup"
        ) from error


def read_listing(data: bytes | None, handle: Handle) -> Listing | None:
    """None when it is not the one that the handle speaks of."""
    if data is None or hashlib.sha256(data).hexdigest() != handle.sha256:
        return None
    return Listing.model_validate_json(data)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
