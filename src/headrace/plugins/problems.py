"""`Problems`: collects every mistake of a job, so that whoever mends a file learns of all at once.

A check raises `Problem` at its first mistake. Whoever makes several checks that don't depend on
each other makes each inside of `collect`, which keeps the problem and goes on behind the block.

Beside problems there are warnings. What is accepted without the effect that it seems to have is
noted (`note`). An option that nothing declares is ignored with a warning (`unknown`), since job
files that were written for other programs hold such; a strict collector makes a problem of it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from headrace.plugins.syntax_tree import FilePlace, Problem

PROBLEMS_MAX = 20  # of one file that are kept; more are only counted
WARNINGS_MAX = 200  # of one file that are kept; more are only counted


class WarningKind(StrEnum):
    NO_EFFECT = "no effect"  # known, and not carried out
    UNKNOWN = "unknown"  # nothing declares it


@dataclass(frozen=True, slots=True)
class JobWarning:
    """What is accepted, and should be known."""

    place: FilePlace
    text: str
    kind: WarningKind


class Problems:
    """The problems and warnings of one job, in the order in which they were found.

    `strict`: an option that nothing declares is a problem.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self.found: list[Problem] = []
        self.warnings: list[JobWarning] = []
        self.count = 0  # of all problems, also of those that are not kept
        self.unknown_count = 0  # of unknown options that were warned of

    @property
    def more(self) -> int:
        """How many problems there are beside those that are kept."""
        return self.count - len(self.found)

    def add(self, problem: Problem) -> None:
        """Keep a problem, unless it is one that is kept already, met from another side."""
        if any(problem is kept for kept in self.found):
            return
        self.count += 1
        if len(self.found) < PROBLEMS_MAX:
            self.found.append(problem)

    @contextmanager
    def collect(self) -> Generator[None]:
        """Keep a `Problem` that is raised in the block; nothing after it in the block is done."""
        try:
            yield
        except Problem as problem:
            self.add(problem)

    def note(self, place: FilePlace, text: str) -> None:
        """Warn of something that has no effect. It is a `Note`."""
        self._warn(JobWarning(place, text, WarningKind.NO_EFFECT))

    def unknown(self, place: FilePlace, name: str, way_out: str) -> None:
        """Warn of something that nothing declares, e.g. `option 'x' of env`."""
        if self._strict:
            self.add(Problem(place, f"unknown {name}; {way_out}"))
            return
        self.unknown_count += 1
        self._warn(JobWarning(place, f"unknown {name} is ignored; {way_out}", WarningKind.UNKNOWN))

    def _warn(self, warning: JobWarning) -> None:
        if len(self.warnings) < WARNINGS_MAX:
            self.warnings.append(warning)

    def check(self) -> None:
        """Raise the first problem, if there is any: for a caller who shows only one."""
        for problem in self.found:
            raise problem
