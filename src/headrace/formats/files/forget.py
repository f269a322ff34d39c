"""Leave nothing of an ended job at a folder but its files: first what was staged, last manifests.

In this order, since only a manifest tells that a token is spent, and which renames are left to do.
A committer that wakes afterwards finds what it staged gone, and is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from urllib.parse import quote

from headrace.formats.files.commit import abort, replay
from headrace.formats.files.filesystem import FileInfo, FileSystem
from headrace.formats.files.manifest import read_manifest
from headrace.formats.files.places import HIDDEN, MANIFEST, Places
from headrace.model.epoch import STRAY_GRACE_S
from headrace.seams import seam

log = logging.getLogger(__name__)


def forget(files: FileSystem, at: Places) -> None:
    """Sweep every epoch up to `at.epoch`, then delete their manifests and the empty folders.

    One that is staged and not spent was given up in the store: an abort spends its token first.
    """
    folder = at.sink_folder
    epochs = [n for n in _epochs(files, folder) if n <= at.epoch]
    for epoch in epochs:
        _give_up(files, _of(at, epoch))
    seam("before leftovers are deleted")
    for epoch in epochs:
        _finish(files, f"{folder}/{epoch}")
    seam("before marks are forgotten")
    for epoch in epochs:
        _remove(files, f"{folder}/{epoch}{MANIFEST}")
    while folder:
        files.prune(folder)
        folder = folder.rpartition("/")[0]


def forget_strays(files: FileSystem, owners: Collection[str], *, now_ms: int) -> None:
    """Delete what incarnations that nobody knows left here, once it is `STRAY_GRACE_S` old.

    What they committed is finished first: its renames may be all that was left to do.
    """
    known = {quote(owner, safe="") for owner in owners}
    for entry in files.entries(HIDDEN):
        if _name(entry) in known or now_ms - _touched_ms(files, entry) <= STRAY_GRACE_S * 1000:
            continue
        pipelines = files.entries(entry.path)
        if not all(_name(pipeline).isdecimal() for pipeline in pipelines):
            continue  # not made by us, whatever it is
        facts = {"folder": f"{files.root}/{entry.path}"}
        log.warning("left by a job that nobody knows, deleted", extra=facts)
        for pipeline in pipelines:
            _finish_all(files, pipeline)
        files.prune(entry.path)
    files.prune(HIDDEN)


def _finish_all(files: FileSystem, pipeline: FileInfo) -> None:
    for sink in files.entries(pipeline.path):
        for epoch in _epochs(files, sink.path):
            _finish(files, f"{sink.path}/{epoch}")
    files.delete(pipeline.path)


def _of(at: Places, epoch: int) -> Places:
    return replace(at, epoch_at=replace(at.epoch_at, epoch=epoch))


def _name(entry: FileInfo) -> str:
    return entry.path.rpartition("/")[2]


def _epochs(files: FileSystem, folder: str) -> list[int]:
    """Those that have a manifest, or a folder of what was staged, or both."""
    names = {_name(entry).removesuffix(MANIFEST) for entry in files.entries(folder)}
    return sorted(int(name) for name in names if name.isdecimal())


def _give_up(files: FileSystem, places: Places) -> None:
    staged = next(files.files(places.epoch_folder, hidden=True), None)
    if staged is not None and not files.exists(places.manifest):
        log.info("given up and never aborted here", extra={"token": places.token})
        abort(files, places)


def _finish(files: FileSystem, epoch_folder: str) -> None:
    """Do what is left of the renames, then delete what was staged and not taken."""
    if not files.exists(epoch_folder):
        return  # swept before, so nothing is left to be moved
    path = f"{epoch_folder}{MANIFEST}"
    data = files.read(path)
    if data is not None:
        replay(files, read_manifest(data, path=f"{files.root}/{path}"))
    files.delete(epoch_folder)


def _remove(files: FileSystem, path: str) -> None:
    for file in files.files(path, hidden=True):
        files.remove(file)


def _touched_ms(files: FileSystem, entry: FileInfo) -> int:
    """When anything in a folder was changed last."""
    below = (file.modified_ms for file in files.files(entry.path, hidden=True))
    return max((entry.modified_ms, *below))
