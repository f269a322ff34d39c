"""<home>/up.json: where the `headrace up` of this folder answers. A hint, never a promise.

An `up` that was killed leaves its file behind, so a reader asks the address before it believes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import psutil
from pydantic import BaseModel, ValidationError

from headrace.client import Client
from headrace.errors import BadSetting, CoordinatorUnavailable, Refused, Unavailable

NAME = "up.json"


class UpFile(BaseModel):
    address: str
    pid: int  # of `headrace up`


def read(home: Path) -> UpFile | None:
    path = home / NAME
    if not path.exists():
        return None
    try:
        return UpFile.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise BadSetting(f"{path} can not be read; delete it and start `headrace up`") from error


@contextmanager
def written(home: Path, content: UpFile) -> Generator[None]:
    """The file is there while the block runs."""
    path = home / NAME
    fresh = home / f"{NAME}.{os.getpid()}"
    fresh.write_text(content.model_dump_json() + "\n")
    fresh.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def find(home: Path, make_client: Callable[[str], Client]) -> UpFile | None:
    """The `headrace up` of this folder, when it runs and answers."""
    found = read(home)
    if found is None or not psutil.pid_exists(found.pid):
        return None
    client = make_client(found.address)
    try:
        client.health()
    except (Unavailable, Refused):  # gone, or another program by now: as if there were none
        return None
    finally:
        client.close()
    return found


def _is_running(home: Path, found: UpFile) -> bool:
    """Whether that `headrace up` runs: its pid may be another program's by now."""
    try:
        started_s = psutil.Process(found.pid).create_time()
        return started_s <= (home / NAME).stat().st_mtime
    except (psutil.Error, OSError):
        return False


def known_from(home: Path, given: list[str]) -> str:
    """How the coordinators are known that don't answer, and what to do about it."""
    if given:
        return "that is what --coordinator names; check the address, and that one runs there"
    found = read(home)
    if found is None:  # it ended while it was asked
        return f"the `headrace up` of {home} has ended; its jobs go on when it is started again"
    since = datetime.fromtimestamp((home / NAME).stat().st_mtime).astimezone()
    told = f"the `headrace up` of {home}, process {found.pid}, up since {since:%Y-%m-%d %H:%M:%S}"
    if _is_running(home, found):
        log = home / "logs" / "coordinator.log"
        return f"{told}, runs and starts its coordinator again by itself: try again, or see {log}"
    return f"{told}, was killed; its jobs are kept, and go on when it is started again"


def coordinators(home: Path, given: list[str]) -> list[str]:
    """The coordinators a command asks: those named, or the one `headrace up` started."""
    if given:
        return given
    found = read(home)
    if found is None:
        raise CoordinatorUnavailable(
            f"no coordinator is known: there is no {home / NAME}; start one with `headrace up`, "
            "or name one with --coordinator http://HOST:PORT"
        )
    return [found.address]
