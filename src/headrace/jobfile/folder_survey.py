"""A survey of the job files in a folder: which would run here, what differs, what is missing.

Nothing is run, and nothing outside of the files is asked. Each file gets the `Verdict` that says
what to do about it: a file may be right and ask for what is not built here, or need nothing but the
values of its variables. A file that speaks of no source and no sink is no job, and is left out.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import JsonValue

from headrace.errors import JobFileUnreadable, NotFound
from headrace.jobfile.reader import JobReading, examine_job, read_text
from headrace.plugins.problems import WarningKind
from headrace.plugins.syntax_tree import Problem

FILES_MAX = 10_000  # job files of one survey
SUFFIXES = frozenset({".conf", ".config", ".hocon", ".template", ".json", ".yaml", ".yml", ".sql"})
_JOB_WORDS = ("source", "sink")


class Verdict(StrEnum):
    RUNS = "runs"
    DIFFERS = "runs, with differences"  # something in it has no effect here, or is not known
    NEEDS_VALUES = "needs values"  # of variables
    NOT_BUILT = "not built"  # it asks for something that Headrace does not have
    WRONG = "wrong"  # it has mistakes
    UNREADABLE = "unreadable"

    @property
    def would_run(self) -> bool:
        return self in {Verdict.RUNS, Verdict.DIFFERS}


@dataclass(frozen=True, slots=True)
class SurveyedFile:
    """One job file: what becomes of it here, and why."""

    path: str  # from the folder on
    verdict: Verdict
    reading: JobReading | None  # None: it can't be read at all
    obstacle: str = ""  # why it can't be

    @property
    def lacks(self) -> list[str]:
        """What it asks for and is not built here."""
        found = self.reading.problems if self.reading else ()
        return list(dict.fromkeys(each.lacks for each in found if each.lacks))

    @property
    def variables(self) -> list[str]:
        """The variables that need a value."""
        found = self.reading.problems if self.reading else ()
        return list(dict.fromkeys(each.variable for each in found if each.variable))

    def as_json(self) -> dict[str, JsonValue]:
        reading = self.reading
        problems = reading.problems if reading else ()
        warnings = reading.warnings if reading else ()
        spec = reading.spec if reading else None
        return {
            "path": self.path,
            "verdict": self.verdict.name,
            "would_run": self.verdict.would_run,
            "job": spec.name if spec else None,
            "mode": spec.env.job_mode if spec else None,
            "missing": [*self.lacks],
            "variables": [*self.variables],
            "problems": [
                {"line": each.place.line, "column": each.place.column, "text": each.text}
                for each in problems
            ]
            or ([{"line": None, "column": None, "text": self.obstacle}] if self.obstacle else []),
            "more_problems": reading.more if reading else 0,
            "warnings": [
                {
                    "line": each.place.line,
                    "column": each.place.column,
                    "text": each.text,
                    "kind": each.kind.name,
                }
                for each in warnings
            ],
        }


@dataclass(frozen=True, slots=True)
class FolderSurvey:
    """All job files of a folder, by path."""

    folder: str
    files: tuple[SurveyedFile, ...]
    others: int  # files of the same kinds that hold no job

    @property
    def all_would_run(self) -> bool:
        return all(each.verdict.would_run for each in self.files)

    @property
    def counts(self) -> dict[Verdict, int]:
        return {verdict: sum(f.verdict is verdict for f in self.files) for verdict in Verdict}

    @property
    def missing(self) -> list[tuple[str, int]]:
        """What is not built here, with the number of files that ask for it; the most first."""
        counted = Counter(name for each in self.files for name in each.lacks)
        return sorted(counted.items(), key=lambda item: (-item[1], item[0]))

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "folder": self.folder,
            "counts": {verdict.name: number for verdict, number in self.counts.items()},
            "missing": [{"what": what, "files": number} for what, number in self.missing],
            "files": [each.as_json() for each in self.files],
            "other_files": self.others,
        }


def survey_folder(
    folder: Path, *, variables: Mapping[str, str], environment: Mapping[str, str], strict: bool
) -> FolderSurvey:
    """Read every job file in a folder and the folders in it; a file is a survey of itself. Raises
    `JobFileUnreadable` for a folder that can't be read, and `NotFound` when it holds no job."""
    files: list[SurveyedFile] = []
    others = 0
    for path in _job_files(folder):
        name = path.relative_to(folder).as_posix() if path != folder else path.name
        found = _survey_file(
            path, name, variables=variables, environment=environment, strict=strict
        )
        if found is None:
            others += 1
        else:
            files.append(found)
    if not files:
        kinds = ", ".join(sorted(SUFFIXES))
        way_out = f"names end in {kinds}, and a job speaks of a source and a sink"
        raise NotFound("job file in", str(folder), way_out=way_out)
    return FolderSurvey(str(folder), tuple(files), others)


def _job_files(folder: Path) -> Iterator[Path]:
    """The files that may hold jobs, sorted; those in hidden folders are passed over."""
    if folder.is_file():
        yield folder
        return
    found: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=_unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += (Path(place, name) for name in names if Path(name).suffix.lower() in SUFFIXES)
        if len(found) > FILES_MAX:
            raise JobFileUnreadable(
                str(folder), f"it holds more than {FILES_MAX} files; name a folder inside of it"
            )
    yield from sorted(found)


def _unreadable(error: OSError) -> None:
    reason = (error.strerror or str(error)).lower()
    raise JobFileUnreadable(str(error.filename), f"can't be read: {reason}") from error


def _survey_file(
    path: Path,
    name: str,
    *,
    variables: Mapping[str, str],
    environment: Mapping[str, str],
    strict: bool,
) -> SurveyedFile | None:
    try:
        text = read_text(path)
    except JobFileUnreadable as error:
        return SurveyedFile(name, Verdict.UNREADABLE, None, error.problem)
    if not all(word in text.lower() for word in _JOB_WORDS):
        return None
    reading = examine_job(
        path, text=text, variables=variables, environment=environment, strict=strict
    )
    return SurveyedFile(name, _verdict(reading), reading)


def _verdict(reading: JobReading) -> Verdict:
    if reading.spec is not None:
        return Verdict.DIFFERS if reading.warnings else Verdict.RUNS
    if any(_is_mistake(each) for each in reading.problems) or reading.more:
        return Verdict.WRONG
    if any(each.lacks for each in reading.problems):
        return Verdict.NOT_BUILT
    return Verdict.NEEDS_VALUES


def _is_mistake(problem: Problem) -> bool:
    return not problem.lacks and not problem.variable


def why(surveyed: SurveyedFile) -> list[str]:
    """What differs, or stands in the way, each in one line with its place in the file."""
    reading = surveyed.reading
    if reading is None:
        return [surveyed.obstacle]
    found = reading.problems or tuple(
        sorted(reading.warnings, key=lambda each: each.kind is not WarningKind.UNKNOWN)
    )
    return [f"{each.place.line}:{each.place.column}: {each.text}" for each in found]
