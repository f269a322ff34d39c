"""Epoch 0 of a folder: delete the files that are there, once.

`survey` lists them. The one step that counts is, as for rows, the exclusive creation of the
epoch's manifest: it names the files, and anyone may replay its deletes. A zombie that wakes when
epoch 1 is in finds the manifest, and can delete nothing but what stands there, which is gone; no
later epoch gives a file one of these names (places.py).
"""

from __future__ import annotations

import itertools
import uuid

from headrace.errors import Refused, TokenSpent
from headrace.formats.files.commit import Outcome, look, replay, spend
from headrace.formats.files.filesystem import FileInfo, FileSystem
from headrace.formats.files.manifest import Deletes, Manifest, Opening, SpentBy, digest
from headrace.formats.files.places import Places
from headrace.model.text import legible, storing_flaw
from headrace.seams import seam

HANDLE_BYTES_MAX = 100_000  # of one sink; a pipeline may have many
DELETES_MAX = 1_000_000  # files of a folder
_LISTING = "_deletes.json"


def survey(files: FileSystem, places: Places, *, deletes: bool) -> Opening:
    """What `open_target` needs. A long list is written beside the target, where nobody looks."""
    found: list[FileInfo] = []
    if deletes:
        found = list(itertools.islice(files.files(), DELETES_MAX + 1))
        _check(files, found)
    listed = Deletes(files=tuple(found))
    data = listed.encoded()
    if len(data) <= HANDLE_BYTES_MAX:
        return Opening(folder=files.root, files=len(found), deletes=listed)
    listing = f"{places.folder}/{_LISTING}"
    files.delete(places.folder)  # of an attempt of this very execution
    files.create(listing, data, scratch=places.folder)
    return Opening(
        folder=files.root, files=len(found), deletes=None, listing=listing, sha256=digest(data)
    )


def open_target(files: FileSystem, places: Places, opening: Opening) -> Outcome:
    """Delete what was surveyed, once. `TokenSpent` when an abort was first."""
    seam("before sink open")
    manifest, mine = look(files, places), False
    if manifest is None:
        manifest, mine = _spend(files, places, opening)
    seam("opening written")
    if manifest.by is SpentBy.ABORT:
        raise TokenSpent(places.token, files.root)
    replay(files, manifest)
    files.delete(places.epoch_folder)  # listings, whoever wrote them
    seam("sink opened")
    return Outcome(already=not mine, manifest=manifest)


def _spend(files: FileSystem, places: Places, opening: Opening) -> tuple[Manifest, bool]:
    deletes = opening.deletes or _listed(files, opening)
    if deletes is None:
        manifest = look(files, places)
        if manifest is not None:
            return manifest, False  # opened and swept while this process looked elsewhere
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


def _listed(files: FileSystem, opening: Opening) -> Deletes | None:
    data = files.read(opening.listing) if opening.listing else None
    if data is None or digest(data) != opening.sha256:
        return None
    return Deletes.model_validate_json(data)


def _check(files: FileSystem, found: list[FileInfo]) -> None:
    if len(found) > DELETES_MAX:
        raise Refused(
            f"{files.root} holds more than {DELETES_MAX} files, too many to delete in one step; "
            "empty the folder yourself, and use data_save_mode = APPEND_DATA"
        )
    for info in found:
        if storing_flaw(info.path) is not None:
            raise Refused(
                f"the name of {files.root}/{legible(info.path)} is not UTF-8, so the file can't be "
                "listed among those to delete; rename it, or delete it yourself"
            )
    if any(not info.path for info in found):
        raise Refused(f"{files.root} is a file; a sink needs the path of a folder")
