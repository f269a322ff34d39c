"""Headrace: crash-proof data pipelines and self-optimizing lake tables on Spark.

The names in `__all__` are the public API, with the views that a Client returns
(`headrace.client.views`, `.tables` and `.groups`). They change with a note in the changelog only.
All other modules are internal: they may change in any release, whatever their names begin with.

What is slow to import is imported when it is first asked for, so that `headrace --help`, and
whoever only wants the version, need not wait for an HTTP client and a grammar.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from headrace.errors import (
    BadJobFile,
    BadSetting,
    CoordinatorUnavailable,
    Fenced,
    HeadraceError,
    IllegalTransition,
    JobFileUnreadable,
    NotFound,
    Refused,
    Unauthorized,
    Unavailable,
)

if TYPE_CHECKING:
    from headrace.client.client import Client
    from headrace.jobfile.reader import read_job
    from headrace.model.jobs.spec import JobSpec

__version__ = "0.1.0"

__all__ = [
    "BadJobFile",
    "BadSetting",
    "Client",
    "CoordinatorUnavailable",
    "Fenced",
    "HeadraceError",
    "IllegalTransition",
    "JobFileUnreadable",
    "JobSpec",
    "NotFound",
    "Refused",
    "Unauthorized",
    "Unavailable",
    "__version__",
    "read_job",
]

_IMPORTED_LATER = {
    "Client": "headrace.client.client",
    "JobSpec": "headrace.model.jobs.spec",
    "read_job": "headrace.jobfile.reader",
}


def __getattr__(name: str) -> object:
    if (module := _IMPORTED_LATER.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
