"""Where everything of an epoch lies below a target folder, and what its files will be called.

All paths are relative to the target folder, so that a folder mounted elsewhere keeps its meaning:

    _headrace/<incarnation>/<pipeline>/<sink>/<epoch>.json           the manifest: spends the token
    _headrace/<incarnation>/<pipeline>/<sink>/<epoch>/<execution>/   what one execution staged

Readers skip names that begin with an underscore, so nothing below `_headrace` is seen. A final
name holds the whole token or a hash of it: no two epochs ever give a file the same name, and none
gives it the name of a file that epoch 0 found.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from headrace.jobfile.timepattern import render
from headrace.model.epoch import CommitAt

HIDDEN = "_headrace"
MANIFEST = ".json"
PARTITION_COLUMN = "headrace_partition_"
PARTITION_EXPRESSION = "${k0}=${v0}"  # as SeaTunnel's default: its form for each key
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_PARTITION = re.compile(rf"{PARTITION_COLUMN}(\d+)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Places(CommitAt):
    """An epoch at one sink, and where it lies."""

    @property
    def epoch_folder(self) -> str:
        return f"{self.sink_folder}/{self.epoch}"

    @property
    def sink_folder(self) -> str:
        """Of all epochs at this sink."""
        at = self.epoch_at
        parts = (at.incarnation, str(at.pipeline), self.sink)
        return "/".join((HIDDEN, *(quote(part, safe="") for part in parts)))

    @property
    def manifest(self) -> str:
        return f"{self.epoch_folder}{MANIFEST}"

    @property
    def folder(self) -> str:
        return f"{self.epoch_folder}/{quote(self.execution, safe='')}"

    @property
    def transaction_id(self) -> str:
        """SeaTunnel's `${transactionId}`: unique for each epoch at each sink."""
        at = self.epoch_at
        return f"T_{at.incarnation}_{at.pipeline}_{quote(self.sink, safe='')}_{at.epoch}"


@dataclass(frozen=True, slots=True)
class FileNames:
    """How the files of one epoch will be called."""

    expression: str
    now: datetime
    time_format: str
    extension: str  # with its dot, and that of the codec: ".csv.gz"
    partition_keys: Sequence[str] = ()
    partition_expression: str = PARTITION_EXPRESSION
    numbered: bool = True  # False: one file in each folder, its number left out

    def name(self, places: Places, staged: str, number: int) -> str:
        """The final path of what was staged as `staged`, a path below the execution's folder."""
        values = {
            "transactionId": places.transaction_id,
            "now": render(self.time_format, self.now),
            "uuid": str(uuid.uuid4()),
        }
        stem = _VARIABLE.sub(lambda found: values.get(found[1], found[0]), self.expression)
        if "${transactionId}" not in self.expression:
            stem += "_" + hashlib.blake2b(places.token.encode(), digest_size=8).hexdigest()
        if self.numbered:
            stem += f"_{number:05d}"
        return f"{self._folder(staged)}{_visible(stem)}{self.extension}"

    def _folder(self, staged: str) -> str:
        """Spark's own partition folders, written as the user wants them."""
        values: dict[str, str] = {}
        for part in staged.split("/")[:-1]:
            if found := _PARTITION.fullmatch(part):
                values[f"v{found[1]}"] = found[2]
                values[f"k{found[1]}"] = quote(self.partition_keys[int(found[1])], safe=" -_.")
        if not values:
            return ""
        expression = self.partition_expression
        if expression == PARTITION_EXPRESSION:
            count = range(len(self.partition_keys))
            expression = "/".join(f"${{k{n}}}=${{v{n}}}" for n in count)
        written = _VARIABLE.sub(lambda found: values.get(found[1], found[0]), expression)
        parts = (_visible(part) for part in written.split("/") if part)
        return "".join(f"{part}/" for part in parts)


def _visible(name: str) -> str:
    """No name may be hidden from readers, or lead out of the folder, because of a value in it."""
    hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
    return f"%{ord(name[0]):02X}{name[1:]}" if hidden else name
