"""One thing that was looked at to explain a table: what it is like, and whether it stands in the
way."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    OK = "ok"  # nothing is in the way here
    HOLDS = "holds"  # something is waited for that comes by itself, or is worth knowing
    BLOCKS = "blocks"  # nothing happens until somebody does something, or lets go


@dataclass(frozen=True, slots=True)
class Finding:
    about: str  # in a word or two
    verdict: Verdict
    said: str  # a clause that can stand behind "…: ", without a full stop
    measured: str | None = None
    threshold: str | None = None
    property: str | None = None  # that sets the threshold
    way_out: str | None = None
    waits: bool = False  # it is what the table waits for now, and not a remark beside it


def ok(about: str, said: str) -> Finding:
    return Finding(about, Verdict.OK, said)


def waits(about: str, said: str, way_out: str | None = None) -> Finding:
    return Finding(about, Verdict.HOLDS, said, way_out=way_out, waits=True)


def remark(about: str, said: str, way_out: str | None = None) -> Finding:
    return Finding(about, Verdict.HOLDS, said, way_out=way_out)


def blocks(about: str, said: str, way_out: str) -> Finding:
    return Finding(about, Verdict.BLOCKS, said, way_out=way_out, waits=True)
