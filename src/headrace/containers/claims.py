"""Which process a launch is: a file in the launch's folder, put there once and never replaced.

The process itself claims its launch, first thing. So whoever started it may die at any instant:
the next one asks the folder. The file is written elsewhere and linked into place, which refuses a
name that exists: of two processes of one launch one wins, and a claim is never seen half written.
A stop that comes before any process claimed puts its own mark there; a late starter finds it.

    claim.json   pid, start time, host: who it is. Or that it was withdrawn
    found.json   what it found out about itself later, such as its Spark application
    end.json     how it ended, written by whoever saw that
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from headrace.containers.identity import start_of
from headrace.errors import BadSetting
from headrace.seams import seam

CLAIM, FOUND, END = "claim.json", "found.json", "end.json"
FOLDER_MODE = 0o700  # a log may name what only its owner should read
_FACTS = TypeAdapter(dict[str, str])


class Claim(BaseModel):
    model_config = ConfigDict(frozen=True)

    pid: int | None  # None: withdrawn before any process had claimed it
    started: str  # with the pid, it names one process for ever (identity.py)
    session: int
    host: str

    @property
    def withdrawn(self) -> bool:
        return self.pid is None

    @property
    def is_here(self) -> bool:
        """Whether its process is one of this host, which others can't be asked about."""
        return self.host == socket.gethostname()


class End(BaseModel):
    model_config = ConfigDict(frozen=True)

    code: int  # below zero: the number of the signal


def take(folder: Path) -> Claim | None:
    """Claim the launch for this process. None: it is ours; otherwise whose it is."""
    seam("launch, before its claim")
    started = start_of(os.getpid())
    assert started is not None, "this process runs"
    mine = Claim(
        pid=os.getpid(),
        started=started,
        session=os.getsid(0),
        host=socket.gethostname(),
    )
    found = _put_once(folder / CLAIM, mine.model_dump_json())
    seam("launch claimed")
    return None if found else read(folder)


def withdraw(folder: Path) -> Claim:
    """See to it that nobody can claim it any more. What is claimed already stays so."""
    nobody = Claim(pid=None, started="", session=0, host=socket.gethostname())
    _put_once(folder / CLAIM, nobody.model_dump_json())
    found = read(folder)
    assert found is not None, "a claim is never taken away"
    return found


def read(folder: Path) -> Claim | None:
    text = _text_of(folder / CLAIM)
    if text is None:
        return None
    try:
        return Claim.model_validate_json(text)
    except ValidationError as error:
        raise BadSetting(
            f"{folder / CLAIM} can not be read: it is no claim of a launch; find out whether its "
            "worker runs, end it, and delete the folder"
        ) from error


def process_of(claim: Claim) -> psutil.Process | None:
    """The process that claimed, while it lives. Its pid may be another program's by now."""
    if claim.pid is None or not claim.is_here:
        return None
    try:
        process = psutil.Process(claim.pid)
        if start_of(claim.pid) != claim.started:
            return None
        return None if process.status() == psutil.STATUS_ZOMBIE else process
    except psutil.NoSuchProcess:
        return None


def note(folder: Path, facts: Mapping[str, str]) -> None:
    """Keep what the process of the launch found out about itself."""
    _replace(folder / FOUND, _FACTS.dump_json({**noted(folder), **facts}).decode())


def noted(folder: Path) -> Mapping[str, str]:
    text = _text_of(folder / FOUND)
    return {} if text is None else _FACTS.validate_json(text)


def record_end(folder: Path, code: int) -> None:
    _put_once(folder / END, End(code=code).model_dump_json())


def end(folder: Path) -> End | None:
    """None: it has not ended, or nobody was there to see it."""
    text = _text_of(folder / END)
    return None if text is None else End.model_validate_json(text)


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise BadSetting(
            f"folder {folder} of a launch can not be made: {error.strerror or error}; give "
            "--home a folder that can be written to"
        ) from error


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadSetting(
            f"{path} can not be read: {error.strerror or error}; it has to belong to the user of "
            "the coordinator"
        ) from error


def _put_once(path: Path, text: str) -> bool:
    """False: the file was there before, and stays as it is."""
    make_folder(path.parent)
    fresh = _written(path, text)
    try:
        os.link(fresh, path)
    except FileExistsError:
        return False
    except OSError as error:
        raise _unfit(path, error) from error
    finally:
        fresh.unlink()
    return True


def _replace(path: Path, text: str) -> None:
    _written(path, text).replace(path)


def _written(path: Path, text: str) -> Path:
    """A file beside `path`, with its whole content on disk."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with fresh.open("x", encoding="utf-8") as stream:
            stream.write(text + "\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise _unfit(path, error) from error
    return fresh


def _unfit(path: Path, error: OSError) -> BadSetting:
    return BadSetting(
        f"{path} can not be written: {error.strerror or error}; --home has to be on a disk that "
        "has room and knows hard links"
    )
