"""Names of tables in a database: the user's, and those of stage tables. Pure.

The name of a stage table is a hash, because what it stands for (incarnation, pipeline, sink,
epoch, execution) is longer than the 63 bytes a name may have. All stage tables of an epoch share
their beginning, so that a sweep finds them whoever made them.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from headrace.errors import Refused
from headrace.model.epoch import CommitAt

MARKS = "headrace_commits"
NAME_BYTES_MAX = 63  # PostgreSQL cuts longer ones, without a word
STAGE = "headrace_stage_"
_EPOCH_BYTES, _EXECUTION_BYTES = 16, 6
_QUOTED, _PLAIN = r'"(?P<quoted>(?:[^"]|"")+)"', r'(?P<plain>[^".]+)'
_PART = re.compile(f"{_QUOTED}|{_PLAIN}")
_ANY = r'(?:"(?:[^"]|"")+"|[^".]+)'
_DOTTED = re.compile(rf"{_ANY}(?:\.{_ANY})*")


@dataclass(frozen=True, slots=True)
class TableName:
    schema: str | None  # None: wherever the connection looks first
    table: str

    def __str__(self) -> str:
        return self.table if self.schema is None else f"{self.schema}.{self.table}"

    def beside(self, table: str) -> TableName:
        """Another table of the same schema."""
        return TableName(self.schema, table)


def parts_of(text: str) -> list[str]:
    """`a.b` and `"a"."b"` alike; a part in quotes may hold dots. Raises `Refused`."""
    if not _DOTTED.fullmatch(text) or "\0" in text:
        raise Refused(f"{text!r} is no name of a table; write table, schema.table, or quote a part")
    parts: list[str] = []
    for match in _PART.finditer(text):
        quoted = match["quoted"]
        parts.append(quoted.replace('""', '"') if quoted is not None else match["plain"].strip())
    if not all(parts):
        raise Refused(f"{text!r} is no name of a table: a part of it is empty")
    return parts


def stage_prefix(at: CommitAt) -> str:
    """How the stage tables of this epoch begin, whichever execution made them."""
    of = at.epoch_at
    key = _digest(_EPOCH_BYTES, of.incarnation, str(of.pipeline), at.sink, str(of.epoch))
    return f"{STAGE}{key}_"


def stage_name(at: CommitAt) -> str:
    return stage_prefix(at) + _digest(_EXECUTION_BYTES, at.execution)


def _digest(size: int, *parts: str) -> str:
    # Lengths first: ("a", "bc") and ("ab", "c") are two things.
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()
