"""<home>/up.json: the address of the `headrace up` of this folder. A hint, never a promise.

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

from headrace.client.client import Client
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
    """The file exists while the block runs."""
    path = home / NAME
    temporary = home / f"{NAME}.{os.getpid()}"
    temporary.write_text(content.model_dump_json() + "\n")
    temporary.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def find(home: Path, make_client: Callable[[str], Client]) -> UpFile | None:
    """The `headrace up` of this folder, when it runs and answers."""
    up = read(home)
    if up is None or not psutil.pid_exists(up.pid):
        return None
    client = make_client(up.address)
    try:
        client.health()
    except (Unavailable, Refused):  # gone, or another program by now
        return None
    finally:
        client.close()
    return up


def _is_running(home: Path, up: UpFile) -> bool:
    """Whether that `headrace up` still runs: its pid may belong to another program by now."""
    try:
        started_s = psutil.Process(up.pid).create_time()
        return started_s <= (home / NAME).stat().st_mtime
    except (psutil.Error, OSError):
        return False


def known_from(home: Path, named: list[str]) -> str:
    """Where the addresses that don't answer came from, and what to do about it."""
    if named:
        return "that is what --coordinator names; check the address, and that one runs there"
    up = read(home)
    if up is None:  # it ended meanwhile
        return f"the `headrace up` of {home} has ended; its jobs go on when it is started again"
    since = datetime.fromtimestamp((home / NAME).stat().st_mtime).astimezone()
    which = f"the `headrace up` of {home}, process {up.pid}, up since {since:%Y-%m-%d %H:%M:%S}"
    if _is_running(home, up):
        log = home / "logs" / "coordinator.log"
        return f"{which}, runs and starts its coordinator again by itself: try again, or see {log}"
    return f"{which}, was killed; its jobs are kept, and go on when it is started again"


def coordinators(home: Path, named: list[str]) -> list[str]:
    """The coordinators that a command asks: those named, or the one that `headrace up` started."""
    if named:
        return named
    up = read(home)
    if up is None:
        raise CoordinatorUnavailable(
            f"no coordinator is known: there is no {home / NAME}; start one with `headrace up`, "
            "or name one with --coordinator http://HOST:PORT"
        )
    return [up.address]
