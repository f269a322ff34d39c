"""Commit, abort, open and sweep an epoch at a folder, exactly once, by means of a manifest file.

The commit is one step: the exclusive creation of the epoch's manifest. It spends the token, and the
file system refuses a second creation. Whoever finds a manifest obeys the one that *is there*. Its
renames are idempotent, so anyone may replay them any number of times: a file that is no longer
where it was staged has been moved before. Staged files are deleted only after a manifest is there,
and after everything it names has been moved away (E1, E3, E6).

A manifest says which staged files an epoch consists of, and their final names. A manifest without
files is an abort. The list of moves is first written beside the staged files (the *listing*), and
the handle points to it, so that neither the store nor the coordinator carries a list of files.

Epoch 0 opens the folder: it deletes the files that are there, once. `survey` lists them, and the
manifest of epoch 0 names files to delete instead of files to move. The one step that counts is
again its exclusive creation, and anyone may replay its deletes. A zombie that wakes after epoch 1
was committed finds the manifest, and can delete only what it names, which is gone already: no later
epoch gives a file one of these names (places.py).
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import uuid
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict, ValidationError

from headrace.connectors.files.places import MANIFEST, Places
from headrace.errors import Refused, TokenSpent
from headrace.model.jobs.epoch import SpentBy
from headrace.model.text import legible, storing_flaw
from headrace.seams import seam
from headrace.spark.filesystem import FileInfo, FileSystem

log = logging.getLogger(__name__)

HANDLE_BYTES_MAX = 100_000  # for the handle of one sink; a pipeline may have many sinks
DELETES_MAX = 1_000_000  # files that opening a folder may delete
_LISTING = "_deletes.json"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Move(_Record):
    staged: str  # relative to the target folder, as `final` is
    final: str
    bytes: int


class Listing(_Record):
    rows: int
    moves: tuple[Move, ...]

    def encoded(self) -> bytes:
        return self.model_dump_json().encode()


class FilesHandle(_Record):
    """All that another process needs in order to commit what was staged."""

    folder: str  # the target, shown to people
    execution: str
    listing: str  # relative to the target folder
    sha256: str  # of the listing
    files: int
    bytes: int
    rows: int


class SurveyedFiles(_Record):
    """Files as the survey saw them; one that has changed since is another file, and stays."""

    files: tuple[FileInfo, ...]

    def encoded(self) -> bytes:
        return self.model_dump_json().encode()


class FolderOpening(_Record):
    """All that another process needs in order to open the folder, which is epoch 0."""

    folder: str  # the target, shown to people
    files: int
    deletes: SurveyedFiles | None  # None: the list is too long for a handle, and is in `listing`
    listing: str | None = None  # relative to the target folder
    sha256: str = ""  # of the listing


class Manifest(_Record):
    token: str
    by: SpentBy
    execution: str  # the one that staged the files, or aborted
    committer: str  # unique for each call, which recognises its own manifest by it
    rows: int = 0
    moves: tuple[Move, ...] = ()
    deletes: tuple[FileInfo, ...] = ()

    def encoded(self) -> bytes:
        return self.model_dump_json(indent=1).encode()


@dataclass(frozen=True, slots=True)
class FolderCommit:
    already: bool  # another call had committed the same data before
    manifest: Manifest


def look(files: FileSystem, places: Places) -> Manifest | None:
    """Read the manifest that spent the token; None while it is unspent (E3)."""
    data = files.read(places.manifest)
    if data is None:
        return None
    return read_manifest(data, path=f"{files.root}/{places.manifest}")


def look_marked(files: FileSystem, places: Places) -> tuple[int, Manifest] | None:
    """The highest spent epoch of this sink, whichever `places` names; None when none is spent."""
    names = (entry.path.rpartition("/")[2] for entry in files.entries(places.sink_folder))
    epochs = [name.removesuffix(MANIFEST) for name in names if name.endswith(MANIFEST)]
    spent = [int(epoch) for epoch in epochs if epoch.isdecimal()]
    if not spent:
        return None
    epoch = max(spent)
    manifest = look(files, replace(places, epoch_at=replace(places.epoch_at, epoch=epoch)))
    return None if manifest is None else (epoch, manifest)


def commit(files: FileSystem, places: Places, handle: FilesHandle) -> FolderCommit:
    """Make what was staged visible, once. Raises `TokenSpent` when an abort came first."""
    seam("before sink commit")
    manifest, mine = look(files, places), False
    if manifest is None:
        manifest, mine = _spend_by_data(files, places, handle)
    seam("manifest written")
    if manifest.by is SpentBy.DATA:
        replay(files, manifest)
    seam("sink committed")
    if manifest.by is SpentBy.ABORT:
        raise TokenSpent(places.token, files.root)
    return FolderCommit(already=not mine, manifest=manifest)


def abort(files: FileSystem, places: Places) -> Manifest:
    """Spend the token without files, then delete what was staged under it.

    When a commit came first, nothing is moved or deleted: the folder knows better than the caller
    (E7).
    """
    seam("before abort")
    manifest = look(files, places)
    if manifest is None:
        manifest, _ = spend(files, places, _manifest(places, None, places.execution))
    seam("abort spent")
    if manifest.by is SpentBy.ABORT:
        _delete_staged(files, places, manifest)
    return manifest


def sweep(files: FileSystem, places: Places) -> None:
    """Delete what was staged for an epoch whose token is spent, whichever execution staged it."""
    manifest = look(files, places)
    if manifest is None:
        if not files.exists(places.epoch_folder):
            return  # the epoch had no rows: nothing was staged, and nothing committed
        raise Refused(f"{places.token} is not spent at {files.root}; nothing was deleted")
    seam("before sweep")
    _delete_staged(files, places, manifest)


def survey(files: FileSystem, places: Places, *, deletes: bool) -> FolderOpening:
    """List the files that `open_target` will delete, and change nothing.

    A list too long for the handle is written to the hidden folder, which readers skip.
    """
    infos: list[FileInfo] = []
    if deletes:
        infos = list(itertools.islice(files.files(), DELETES_MAX + 1))
        _check_deletable(files, infos)
    surveyed = SurveyedFiles(files=tuple(infos))
    data = surveyed.encoded()
    if len(data) <= HANDLE_BYTES_MAX:
        return FolderOpening(folder=files.root, files=len(infos), deletes=surveyed)
    listing = f"{places.folder}/{_LISTING}"
    files.delete(places.folder)  # left by an earlier attempt of this execution
    files.create(listing, data, scratch=places.folder)
    return FolderOpening(
        folder=files.root, files=len(infos), deletes=None, listing=listing, sha256=digest(data)
    )


def open_target(files: FileSystem, places: Places, opening: FolderOpening) -> FolderCommit:
    """Delete the surveyed files, once. Raises `TokenSpent` when an abort came first."""
    seam("before sink open")
    manifest, mine = look(files, places), False
    if manifest is None:
        manifest, mine = _spend_by_opening(files, places, opening)
    seam("opening written")
    if manifest.by is SpentBy.ABORT:
        raise TokenSpent(places.token, files.root)
    replay(files, manifest)
    files.delete(places.epoch_folder)  # holds the listings, of whichever execution
    seam("sink opened")
    return FolderCommit(already=not mine, manifest=manifest)


def spend(files: FileSystem, places: Places, wanted: Manifest) -> tuple[Manifest, bool]:
    """Create the manifest exclusively: the one step that spends the token.

    Returns the manifest that is there now, and whether it is the wanted one.
    """
    files.create(places.manifest, wanted.encoded(), scratch=places.epoch_folder)
    manifest = look(files, places)
    if manifest is None:
        raise Refused(f"{files.root}/{places.manifest} vanished as soon as it was written")
    return manifest, manifest.committer == wanted.committer


def replay(files: FileSystem, manifest: Manifest) -> None:
    """Do those deletes and renames of a manifest that are still to be done."""
    for file in manifest.deletes:
        files.remove(file)
    for move in manifest.moves:
        if not files.move(move.staged, move.final) and not files.exists(move.final):
            # It was moved before, and then a reader took it away, or somebody else deleted it.
            facts = {"token": manifest.token, "file": f"{files.root}/{move.final}"}
            log.warning("a committed file is neither staged nor there", extra=facts)


def _spend_by_data(files: FileSystem, places: Places, handle: FilesHandle) -> tuple[Manifest, bool]:
    listing = _complete_listing(files, places, handle)
    if listing is None:
        manifest = look(files, places)
        if manifest is not None:
            return manifest, False  # committed and swept by another process in the meantime
        raise Refused(
            f"what execution {handle.execution} staged for {files.root} is gone or damaged "
            f"({handle.listing}); run the job again"
        )
    return spend(files, places, _manifest(places, listing, handle.execution))


def _manifest(places: Places, listing: Listing | None, execution: str) -> Manifest:
    return Manifest(
        token=places.token,
        by=SpentBy.ABORT if listing is None else SpentBy.DATA,
        execution=execution,
        committer=uuid.uuid4().hex,
        rows=listing.rows if listing else 0,
        moves=listing.moves if listing else (),
    )


def _complete_listing(files: FileSystem, places: Places, handle: FilesHandle) -> Listing | None:
    """The listing, if every file in it is there with its listed size; None if not.

    A manifest that names missing files would commit an epoch without its rows.
    """
    listing = read_listing(files.read(handle.listing), handle)
    if listing is None:
        return None
    staged = {info.path: info.bytes for info in files.files(places.epoch_folder, hidden=True)}
    if all(staged.get(move.staged) == move.bytes for move in listing.moves):
        return listing
    return None


def _delete_staged(files: FileSystem, places: Places, manifest: Manifest) -> None:
    # After the replay nothing refers to this folder any more, whichever execution staged it.
    replay(files, manifest)
    files.delete(places.epoch_folder)


def _spend_by_opening(
    files: FileSystem, places: Places, opening: FolderOpening
) -> tuple[Manifest, bool]:
    deletes = opening.deletes or _surveyed_files(files, opening)
    if deletes is None:
        manifest = look(files, places)
        if manifest is not None:
            return manifest, False  # opened and swept by another process in the meantime
        raise Refused(
            f"the list of files to delete in {files.root} is gone or damaged ({opening.listing}); "
            "run the job again"
        )
    wanted = Manifest(
        token=places.token,
        by=SpentBy.DATA,
        execution=places.execution,
        committer=uuid.uuid4().hex,
        deletes=deletes.files,
    )
    return spend(files, places, wanted)


def _surveyed_files(files: FileSystem, opening: FolderOpening) -> SurveyedFiles | None:
    data = files.read(opening.listing) if opening.listing else None
    if data is None or digest(data) != opening.sha256:
        return None
    return SurveyedFiles.model_validate_json(data)


def _check_deletable(files: FileSystem, infos: list[FileInfo]) -> None:
    if len(infos) > DELETES_MAX:
        raise Refused(
            f"{files.root} holds more than {DELETES_MAX} files, too many to delete in one step; "
            "empty the folder yourself, and use data_save_mode = APPEND_DATA"
        )
    for info in infos:
        if storing_flaw(info.path) is not None:
            raise Refused(
                f"the name of {files.root}/{legible(info.path)} is not UTF-8, so the file can't be "
                "listed among those to delete; rename it, or delete it yourself"
            )
    if any(not info.path for info in infos):
        raise Refused(f"{files.root} is a file; a sink needs the path of a folder")


def read_manifest(data: bytes, *, path: str) -> Manifest:
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        raise Refused(
            f"the manifest {path} can't be read, so nobody knows what of its epoch is committed; "
            "restore the file from a backup"
        ) from error


def read_listing(data: bytes | None, handle: FilesHandle) -> Listing | None:
    """Parse a listing; None when it is missing, or not the one whose digest the handle has."""
    if data is None or hashlib.sha256(data).hexdigest() != handle.sha256:
        return None
    return Listing.model_validate_json(data)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
