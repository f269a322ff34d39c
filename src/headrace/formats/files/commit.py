"""Spend a token at a folder: by data, or by an abort. The file system refuses a second time.

The commit is one step, the exclusive creation of the epoch's manifest. Whoever finds a manifest
obeys the one that *is there*: its renames can be replayed by anyone, any number of times, since a
file that is no longer where it was staged has been moved before. Staged files are deleted only
after a manifest is there, and after all that it names has been moved away (E1, E3, E6).
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, replace

from headrace.errors import Refused, TokenSpent
from headrace.formats.files.filesystem import FileSystem
from headrace.formats.files.manifest import (
    Handle,
    Listing,
    Manifest,
    SpentBy,
    read_listing,
    read_manifest,
)
from headrace.formats.files.places import MANIFEST, Places
from headrace.seams import seam

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    already: bool  # the token was spent by somebody else's commit of the same data
    manifest: Manifest


def look(files: FileSystem, places: Places) -> Manifest | None:
    """Ask the folder what spent the token; None while it is unspent (E3)."""
    data = files.read(places.manifest)
    if data is None:
        return None
    return read_manifest(data, path=f"{files.root}/{places.manifest}")


def look_marked(files: FileSystem, places: Places) -> tuple[int, Manifest] | None:
    """The highest epoch that is spent, whichever `places` names; None: none is."""
    names = (entry.path.rpartition("/")[2] for entry in files.entries(places.sink_folder))
    epochs = [name.removesuffix(MANIFEST) for name in names if name.endswith(MANIFEST)]
    spent = [int(epoch) for epoch in epochs if epoch.isdecimal()]
    if not spent:
        return None
    epoch = max(spent)
    manifest = look(files, replace(places, epoch_at=replace(places.epoch_at, epoch=epoch)))
    return None if manifest is None else (epoch, manifest)


def commit(files: FileSystem, places: Places, handle: Handle) -> Outcome:
    """Make what was staged visible, once. `TokenSpent` when an abort was first."""
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
    return Outcome(already=not mine, manifest=manifest)


def abort(files: FileSystem, places: Places) -> Manifest:
    """Spend the token with no files, then delete what was staged under it.

    When data was first nothing is moved or deleted: who asks knows less than the folder does (E7).
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
    """Delete what was staged for an epoch whose token is spent, by whomever."""
    manifest = look(files, places)
    if manifest is None:
        if not files.exists(places.epoch_folder):
            return  # an epoch without rows: nothing was staged, and nothing committed
        raise Refused(f"{places.token} is not spent at {files.root}; nothing was deleted")
    seam("before sweep")
    _delete_staged(files, places, manifest)


def replay(files: FileSystem, manifest: Manifest) -> None:
    """Do what is left of a manifest's deletes and renames."""
    for file in manifest.deletes:
        files.remove(file)
    for move in manifest.moves:
        if not files.move(move.staged, move.final) and not files.exists(move.final):
            # Moved before, and then taken away by a reader; or lost by other hands than ours.
            facts = {"token": manifest.token, "file": f"{files.root}/{move.final}"}
            log.warning("a committed file is neither staged nor there", extra=facts)


def _spend_by_data(files: FileSystem, places: Places, handle: Handle) -> tuple[Manifest, bool]:
    listing = _whole(files, places, handle)
    if listing is None:
        manifest = look(files, places)
        if manifest is not None:
            return manifest, False  # committed and swept while this process looked elsewhere
        raise Refused(
            f"what execution {handle.execution} staged for {files.root} is gone or damaged "
            f"({handle.listing}); run the job again"
        )
    return spend(files, places, _manifest(places, listing, handle.execution))


def spend(files: FileSystem, places: Places, wanted: Manifest) -> tuple[Manifest, bool]:
    """The one step that counts. Answers with the manifest that is there now, mine or not."""
    files.create(places.manifest, wanted.encoded(), scratch=places.epoch_folder)
    manifest = look(files, places)
    if manifest is None:
        raise Refused(f"{files.root}/{places.manifest} vanished as soon as it was written")
    return manifest, manifest.committer == wanted.committer


def _manifest(places: Places, listing: Listing | None, execution: str) -> Manifest:
    return Manifest(
        token=places.token,
        by=SpentBy.ABORT if listing is None else SpentBy.DATA,
        execution=execution,
        committer=uuid.uuid4().hex,
        rows=listing.rows if listing else 0,
        moves=listing.moves if listing else (),
    )


def _whole(files: FileSystem, places: Places, handle: Handle) -> Listing | None:
    """The listing, when every file in it lies there with its size; None when not.

    A manifest of files that are gone would be a commit of nothing.
    """
    listing = read_listing(files.read(handle.listing), handle)
    if listing is None:
        return None
    staged = {info.path: info.bytes for info in files.files(places.epoch_folder, hidden=True)}
    if all(staged.get(move.staged) == move.bytes for move in listing.moves):
        return listing
    return None


def _delete_staged(files: FileSystem, places: Places, manifest: Manifest) -> None:
    # Afterwards nothing in the folder is referred to, whichever execution staged it.
    replay(files, manifest)
    files.delete(places.epoch_folder)
