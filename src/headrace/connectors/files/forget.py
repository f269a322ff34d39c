"""Forget an ended job at a folder: delete all it left there but its committed files.

What was staged is deleted first and the manifests last, since only a manifest says that a token is
spent, and which renames are still to be done. A committer that wakes afterwards finds what it
staged gone, and is refused. Strays are what incarnations without an owner left behind.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from urllib.parse import quote

from headrace.connectors.files.commit import abort, read_manifest, replay
from headrace.connectors.files.places import HIDDEN, MANIFEST, Places
from headrace.model.jobs.epoch import STRAY_GRACE_S
from headrace.seams import seam
from headrace.spark.filesystem import FileInfo, FileSystem

log = logging.getLogger(__name__)


def forget(files: FileSystem, at: Places) -> None:
    """Sweep every epoch up to `at.epoch`, then delete their manifests and the empty folders.

    An epoch that is staged but not spent was given up in the store; an abort spends its token.
    """
    folder = at.sink_folder
    epochs = [n for n in _epochs(files, folder) if n <= at.epoch]
    for epoch in epochs:
        _give_up(files, _at_epoch(at, epoch))
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
    """Delete what incarnations other than `owners` left here, once it is `STRAY_GRACE_S` old.

    Their commits are finished first: some renames of a manifest may not have been done yet.
    """
    known = {quote(owner, safe="") for owner in owners}
    for entry in files.entries(HIDDEN):
        if _name(entry) in known or now_ms - _touched_ms(files, entry) <= STRAY_GRACE_S * 1000:
            continue
        pipelines = files.entries(entry.path)
        if not all(_name(pipeline).isdecimal() for pipeline in pipelines):
            continue  # a folder that Headrace did not make
        facts = {"folder": f"{files.root}/{entry.path}"}
        log.warning("left by a job that nobody knows, deleted", extra=facts)
        for pipeline in pipelines:
            _finish_all(files, pipeline)
        files.prune(entry.path)
    files.prune(HIDDEN)


def _give_up(files: FileSystem, places: Places) -> None:
    staged = next(files.files(places.epoch_folder, hidden=True), None)
    if staged is not None and not files.exists(places.manifest):
        log.info("given up and never aborted here", extra={"token": places.token})
        abort(files, places)


def _finish_all(files: FileSystem, pipeline: FileInfo) -> None:
    for sink in files.entries(pipeline.path):
        for epoch in _epochs(files, sink.path):
            _finish(files, f"{sink.path}/{epoch}")
    files.delete(pipeline.path)


def _finish(files: FileSystem, epoch_folder: str) -> None:
    """Do the renames that are still to be done, then delete the remaining staged files."""
    if not files.exists(epoch_folder):
        return  # swept before, so no rename is left to be done
    path = f"{epoch_folder}{MANIFEST}"
    data = files.read(path)
    if data is not None:
        replay(files, read_manifest(data, path=f"{files.root}/{path}"))
    files.delete(epoch_folder)


def _remove(files: FileSystem, path: str) -> None:
    for file in files.files(path, hidden=True):
        files.remove(file)


def _epochs(files: FileSystem, folder: str) -> list[int]:
    """Epochs that have a manifest, a folder of staged files, or both."""
    names = {_name(entry).removesuffix(MANIFEST) for entry in files.entries(folder)}
    return sorted(int(name) for name in names if name.isdecimal())


def _touched_ms(files: FileSystem, entry: FileInfo) -> int:
    """When anything in the folder was last changed."""
    below = (file.modified_ms for file in files.files(entry.path, hidden=True))
    return max((entry.modified_ms, *below))


def _at_epoch(at: Places, epoch: int) -> Places:
    return replace(at, epoch_at=replace(at.epoch_at, epoch=epoch))


def _name(entry: FileInfo) -> str:
    return entry.path.rpartition("/")[2]
