"""Where to look for what nobody needs any more, once no job is open."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from headrace.model.jobs.status import JOB_ENDED
from headrace.model.task import ENDED
from headrace.store.core.schema import quoted_list

# What is left, and the query that finds it. Of a job that has ended, all but the cleanup of its
# targets goes after the default delay, which is over long before the looks are.
IN_STORE: Mapping[str, str] = {
    "open task of an ended job": (
        "SELECT t.id, t.kind, t.status, j.name FROM tasks t JOIN jobs j ON j.id = t.job_id"
        f" WHERE j.status IN {quoted_list(JOB_ENDED)} AND t.status NOT IN {quoted_list(ENDED)}"
    ),
    "secrets of an ended job": (
        "SELECT j.id, j.name FROM job_secrets s JOIN jobs j ON j.id = s.job_id"
        f" WHERE j.status IN {quoted_list(JOB_ENDED)}"
    ),
    "state of an ended job": f"SELECT id, name FROM jobs WHERE status IN {quoted_list(JOB_ENDED)}",
    "cleanup that fails": ("SELECT job_id, step, failures, error FROM cleanups WHERE failures > 0"),
    "staged files of a table's process": "SELECT id FROM processes WHERE leftovers <> 0",
}


def empty_below(folders: Iterable[Path]) -> list[str]:
    """Folders of stages that were tidied up only half."""
    return [at for folder in folders for at in empty_folders(folder / "_headrace")]


def empty_folders(top: Path) -> list[str]:
    return [at for at, inner, files in os.walk(top) if not inner and not files]


def files_in(folder: Path) -> list[str]:
    return sorted(map(str, folder.iterdir())) if folder.is_dir() else []
