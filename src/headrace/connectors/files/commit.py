"""A folder as a target of exactly_once: a token is spent by means of a manifest file.

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
epoch gives a file one of these names (places.py). Only a binary copy may; it is told from the file
of before by its size and time, and is lost if it comes between that look and the deletion.

Of an ended job the manifests go last, since only a manifest says that a token is spent, and which
renames are still to be done. A committer that wakes afterwards finds what it staged gone, and is
refused, so that a folder needs no deadline. Strays are what incarnations without an owner left.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict, ValidationError

from headrace.clock import Clock, SystemClock
from headrace.connectors.files.places import HIDDEN, MANIFEST, Places
from headrace.errors import Refused
from headrace.exactly_once.target import Mark, SpendLimits, Stray
from headrace.model.jobs.epoch import Deadline, EpochAt, SpentBy
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
    are_copies: bool = False  # they keep paths that others may use, too; other names hold a token

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
class FolderChange:
    """The manifest that a token is spent by."""

    by: SpentBy
    execution: str
    # (committer) -> the manifest. Raises `Refused` when what it would name is not there as it was
    # staged: a manifest that names missing files would commit an epoch without its rows.
    manifest: Callable[[str], Manifest]
    creates_target = False  # a folder need not exist to hold no token


class FolderTarget:
    """The folder of one sink. Made without Spark: its file system may be any."""

    # The creation is exclusive and done at once, or raises: there is nothing to wait for.
    limits = SpendLimits(tries_max=1, wait_s=0)

    def __init__(
        self, files: FileSystem, *, title: str | None = None, clock: Clock | None = None
    ) -> None:
        self._files, self._clock = files, clock or SystemClock()
        self.name, self.title = files.root, title or f"folder {files.root}"

    def look(self, at: Places) -> Manifest | None:
        data = self._files.read(at.manifest)
        if data is None:
            return None
        return read_manifest(data, path=f"{self._files.root}/{at.manifest}")

    def attempt(
        self,
        at: Places,
        change: FolderChange,
        *,
        committer: str,
        deadline: Deadline | None,  # noqa: ARG002  it needs none, see above
    ) -> str | None:
        data = change.manifest(committer).encoded()
        created = self._files.create(at.manifest, data, scratch=at.epoch_folder)
        return None if created else "another manifest was there before"

    def abort_change(self, at: Places) -> FolderChange:
        def empty(committer: str) -> Manifest:
            return _manifest(at, SpentBy.ABORT, at.execution, committer)

        return FolderChange(SpentBy.ABORT, at.execution, empty)

    def finish(self, at: Places, spent: Manifest) -> None:
        """Do what the manifest says that is there, whoever wrote it."""
        if at.epoch == 0:
            seam("opening written")
        else:
            seam("manifest written")
        if spent.by is SpentBy.ABORT:
            return
        replay(self._files, spent)
        if at.epoch == 0:
            self._files.delete(at.epoch_folder)  # holds the listings, of whichever execution

    def read_mark(self, at: Places) -> Mark | None:
        names = (_name_of(entry) for entry in self._files.entries(at.sink_folder))
        epochs = [name.removesuffix(MANIFEST) for name in names if name.endswith(MANIFEST)]
        spent = [int(epoch) for epoch in epochs if epoch.isdecimal()]
        if not spent:
            return None
        manifest = self.look(_at_epoch(at, max(spent)))
        return manifest and Mark(max(spent), aborted=manifest.by is SpentBy.ABORT)

    def is_staged(self, at: Places, *, by: str | None) -> bool:  # noqa: ARG002
        return self._files.exists(at.epoch_folder)

    def delete_staged(self, at: Places, spent: Manifest | None, *, kept: str | None) -> None:  # noqa: ARG002
        # After the replay nothing refers to this folder any more, whichever execution staged it.
        if spent is not None and spent.by is SpentBy.DATA:
            replay(self._files, spent)
        self._files.delete(at.epoch_folder)

    def unspent_epochs(self, at: Places) -> Sequence[Places]:
        return [
            one
            for one in self._epochs(at)
            if next(self._files.files(one.epoch_folder, hidden=True), None) is not None
            and not self._files.exists(one.manifest)
        ]

    def delete_leftovers(self, at: Places) -> None:
        unspent = {one.epoch for one in self.unspent_epochs(at)}  # staged since, by a late process
        for one in self._epochs(at):
            if one.epoch not in unspent and self._files.exists(one.epoch_folder):
                self.delete_staged(one, self.look(one), kept=None)

    def forget_marks(self, at: Places) -> None:
        for one in self._epochs(at):
            for file in self._files.files(one.manifest, hidden=True):
                self._files.remove(file)
        folder = at.sink_folder
        while folder:
            self._files.prune(folder)
            folder = folder.rpartition("/")[0]

    def now_ms(self) -> int:
        return self._clock.wall_ms()

    def strays(self, owners: Collection[str]) -> Iterable[Stray]:
        return _find_strays(self._files, owners)

    def delete_stray(self, stray: Stray, *, idle_since_ms: int) -> None:  # noqa: ARG002
        # Some renames of its manifests may not have been done yet. They are done first. An epoch
        # without a folder was swept: its manifest was replayed long ago, and must not be again, or
        # it would delete a file that somebody has put back since.
        for places in _epochs_of_stray(self._files, stray):
            if self._files.exists(places.epoch_folder):
                self.delete_staged(places, self.look(places), kept=None)
        _delete_folders_of(self._files, stray)

    def _epochs(self, at: Places) -> Sequence[Places]:
        """Epochs up to `at.epoch` that have a manifest, a folder of staged files, or both."""
        epochs = (n for n in _epochs_in(self._files, at.sink_folder) if n <= at.epoch)
        return [_at_epoch(at, epoch) for epoch in epochs]


def rows_change(files: FileSystem, places: Places, handle: FilesHandle) -> FolderChange:
    """Make what was staged visible."""

    def with_rows(committer: str) -> Manifest:
        listing = _complete_listing(files, places, handle)
        if listing is None:
            raise Refused(
                f"what execution {handle.execution} staged for {files.root} is gone or damaged "
                f"({handle.listing}); run the job again"
            )
        check_final_names(files, listing)  # again: others may have used them since
        made = _manifest(places, SpentBy.DATA, handle.execution, committer)
        return made.model_copy(update={"rows": listing.rows, "moves": listing.moves})

    return FolderChange(SpentBy.DATA, handle.execution, with_rows)


def opening_change(files: FileSystem, places: Places, opening: FolderOpening) -> FolderChange:
    """Delete the surveyed files."""

    def with_deletes(committer: str) -> Manifest:
        deletes = opening.deletes or _surveyed_files(files, opening)
        if deletes is None:
            raise Refused(
                f"the list of files to delete in {files.root} is gone or damaged "
                f"({opening.listing}); run the job again"
            )
        made = _manifest(places, SpentBy.DATA, places.execution, committer)
        return made.model_copy(update={"deletes": deletes.files})

    return FolderChange(SpentBy.DATA, places.execution, with_deletes)


def check_final_names(files: FileSystem, listing: Listing) -> None:
    """Raise `Refused` if a file could not be moved to its final name.

    A manifest with such a name could never be finished. Two committers may still both be told that
    a path of a copy is free; the later move is refused then, and overwrites nothing.
    """
    finals: set[str] = set()
    for move in listing.moves:
        if move.final in finals:
            raise Refused(f"two files of one epoch would be {files.root}/{move.final}")
        finals.add(move.final)
    if not listing.are_copies:
        return
    free: set[str] = set()
    for final in sorted(finals):
        if files.exists(final):
            raise Refused(
                f"{files.root}/{final} is there already, and is not overwritten; move it "
                "elsewhere, or set data_save_mode = DROP_DATA"
            )
        for folder in _folders_above(final):
            if folder in finals or (folder not in free and _is_file(files, folder)):
                raise Refused(
                    f"{files.root}/{final} needs a folder where {folder} is a file; move that "
                    "elsewhere, or leave one of the two out"
                )
            free.add(folder)


def _folders_above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _is_file(files: FileSystem, path: str) -> bool:
    found = next(files.files(path, hidden=True), None)
    return found is not None and found.path == path


def survey(files: FileSystem, places: Places, *, deletes: bool) -> FolderOpening:
    """List the files that opening the folder will delete, and change nothing.

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


def replay(files: FileSystem, manifest: Manifest) -> None:
    """Do those deletes and renames of a manifest that are still to be done."""
    for file in manifest.deletes:
        files.remove(file)
    for move in manifest.moves:
        if not files.move(move.staged, move.final) and not files.exists(move.final):
            # It was moved before, and then a reader took it away, or somebody else deleted it.
            facts = {"token": manifest.token, "file": f"{files.root}/{move.final}"}
            log.warning("a committed file is neither staged nor there", extra=facts)


def _manifest(places: Places, by: SpentBy, execution: str, committer: str) -> Manifest:
    return Manifest(token=places.token, by=by, execution=execution, committer=committer)


def _complete_listing(files: FileSystem, places: Places, handle: FilesHandle) -> Listing | None:
    """The listing, if every file in it is there with its listed size; None if not."""
    listing = read_listing(files.read(handle.listing), handle)
    if listing is None:
        return None
    staged = {info.path: info.bytes for info in files.files(places.epoch_folder, hidden=True)}
    if all(staged.get(move.staged) == move.bytes for move in listing.moves):
        return listing
    return None


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


def _epochs_in(files: FileSystem, sink_folder: str) -> Sequence[int]:
    """Epochs of a sink that have a manifest, a folder of staged files, or both; in order."""
    names = {_name_of(entry).removesuffix(MANIFEST) for entry in files.entries(sink_folder)}
    return sorted(int(name) for name in names if name.isdecimal())


def _at_epoch(at: Places, epoch: int) -> Places:
    return replace(at, epoch_at=replace(at.epoch_at, epoch=epoch))


def _name_of(entry: FileInfo) -> str:
    return entry.path.rpartition("/")[2]


def _find_strays(files: FileSystem, owners: Collection[str]) -> Iterator[Stray]:
    """The incarnations other than `owners` that have a folder here."""
    for entry in files.entries(HIDDEN):
        incarnation = unquote(_name_of(entry))
        if incarnation not in owners and _is_ours(files, entry):
            yield Stray(incarnation, _touched_ms(files, entry))


def _epochs_of_stray(files: FileSystem, stray: Stray) -> Iterator[Places]:
    """Every epoch that a stray has left anything of."""
    for pipeline in files.entries(_folder_of_stray(stray)):
        for sink in files.entries(pipeline.path):
            for epoch in _epochs_in(files, sink.path):
                at = EpochAt(stray.incarnation, int(_name_of(pipeline)), epoch, "")
                yield Places(at, unquote(_name_of(sink)))


def _delete_folders_of(files: FileSystem, stray: Stray) -> None:
    """Delete the folders of a stray, and the hidden folder if it was the last there."""
    for pipeline in files.entries(_folder_of_stray(stray)):
        files.delete(pipeline.path)
    files.prune(_folder_of_stray(stray))
    files.prune(HIDDEN)


def _folder_of_stray(stray: Stray) -> str:
    return f"{HIDDEN}/{quote(stray.incarnation, safe='')}"


def _is_ours(files: FileSystem, entry: FileInfo) -> bool:
    """Whether it is a folder of pipelines. An empty one is: its pipelines are deleted first."""
    return all(_name_of(pipeline).isdecimal() for pipeline in files.entries(entry.path))


def _touched_ms(files: FileSystem, entry: FileInfo) -> int:
    """When anything in the folder was last changed."""
    below = (file.modified_ms for file in files.files(entry.path, hidden=True))
    return max((entry.modified_ms, *below))
