"""Claims: which process is a launch, as a file in the launch's folder that is never replaced.

The process itself claims its launch before anything else. So whoever started it may die at any
instant, and its successor asks the folder. The file is written elsewhere and hard-linked into
place, which fails for a name that exists: of two processes of one launch one wins, and nobody sees
a claim half written. A stop that comes before any claim puts a withdrawn claim there; a process
that starts late finds it.

    claim.json   pid, start time, host of the process; or that the launch was withdrawn
    found.json   what the process found out about itself later, such as its Spark application
    end.json     how it ended, written by whoever saw that

A pid is given out again, so a claim also holds the start of its process, in a form that the process
and everybody else read the same. Linux counts a start in ticks since boot. A time of day would move
with every correction of the clock, and a live process would be taken for dead.

`claim_launch` is the worker's side: it needs no Spark, because a process claims its launch before
anything that takes long.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from headrace.errors import BadSetting, LaunchOver
from headrace.seams import seam

_PROC = Path("/proc")
_BOOT_ID = _PROC / "sys" / "kernel" / "random" / "boot_id"
_STARTED = 19  # index of the start among the fields after the program's name in /proc/PID/stat
CLAIM, FOUND, END = "claim.json", "found.json", "end.json"
SPARK_APPLICATION = "spark-application"
FOLDER_MODE = 0o700  # a log may name what only its owner should read
_FACTS = TypeAdapter(dict[str, str])


class LaunchClaim(BaseModel):
    model_config = ConfigDict(frozen=True)

    pid: int | None  # None when the launch was withdrawn before any process claimed it
    started: str  # see `start_of`; pid and start identify one process for good
    session: int
    host: str

    @property
    def withdrawn(self) -> bool:
        return self.pid is None

    @property
    def is_here(self) -> bool:
        """Whether its process is on this host; processes of other hosts can't be checked."""
        return self.host == socket.gethostname()


class LaunchEnd(BaseModel):
    model_config = ConfigDict(frozen=True)

    code: int  # negative: the number of the signal


@dataclass(frozen=True, slots=True)
class WorkerLaunch:
    """The launch of a resource that this worker is; `folder` only on the coordinator's machine."""

    resource: str
    number: int
    folder: Path | None = None

    def note_application(self, *, spark_application: str) -> None:
        """Record the Spark application for the container: it is known only once Spark runs."""
        if self.folder is not None:
            note(self.folder, {SPARK_APPLICATION: spark_application})


def claim_launch(
    resource: str | None, number: int | None, folder: Path | None
) -> WorkerLaunch | None:
    """Claim the launch for this process; None for a worker that no container launched.

    Raises LaunchOver when another process has claimed it, or the launch was stopped.
    """
    if resource is None and number is None and folder is None:
        return None
    if resource is None or number is None:
        raise BadSetting(
            "--resource-id, --launch and --launch-dir belong together: a launch has a resource and "
            "a number. Give both, or none for a worker that you start yourself"
        )
    other = None if folder is None else take(folder)
    if other is None:
        return WorkerLaunch(resource, number, folder)
    if other.withdrawn:
        raise LaunchOver(
            f"launch {number} of resource {resource!r} was stopped before it had begun"
        )
    raise LaunchOver(
        f"launch {number} of resource {resource!r} is process {other.pid} on host {other.host}; "
        "it is started once only"
    )


def take(folder: Path) -> LaunchClaim | None:
    """Claim the launch for this process. None when it is ours, else the claim that was first."""
    seam("launch, before its claim")
    started = start_of(os.getpid())
    assert started is not None, "this process runs"
    mine = LaunchClaim(
        pid=os.getpid(),
        started=started,
        session=os.getsid(0),
        host=socket.gethostname(),
    )
    is_ours = _put_once(folder / CLAIM, mine.model_dump_json())
    seam("launch claimed")
    return None if is_ours else read(folder)


def withdraw(folder: Path) -> LaunchClaim:
    """Make sure that no process can claim the launch any more. Returns the claim that holds: an
    earlier one stays."""
    nobody = LaunchClaim(pid=None, started="", session=0, host=socket.gethostname())
    _put_once(folder / CLAIM, nobody.model_dump_json())
    claim = read(folder)
    assert claim is not None, "a claim is never taken away"
    return claim


def read(folder: Path) -> LaunchClaim | None:
    text = _text_of(folder / CLAIM)
    if text is None:
        return None
    try:
        return LaunchClaim.model_validate_json(text)
    except ValidationError as error:
        raise BadSetting(
            f"{folder / CLAIM} can not be read: it is no claim of a launch; find out whether its "
            "worker runs, end it, and delete the folder"
        ) from error


def process_of(claim: LaunchClaim) -> psutil.Process | None:
    """The process that claimed, if it lives on this host. Its pid may have been reused."""
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
    """Keep facts that the process of the launch learned about itself."""
    _replace(folder / FOUND, _FACTS.dump_json({**noted(folder), **facts}).decode())


def noted(folder: Path) -> Mapping[str, str]:
    text = _text_of(folder / FOUND)
    return {} if text is None else _FACTS.validate_json(text)


def record_end(folder: Path, code: int) -> None:
    _put_once(folder / END, LaunchEnd(code=code).model_dump_json())


def end(folder: Path) -> LaunchEnd | None:
    """How the launch ended; None when it has not ended, or nobody saw its end."""
    text = _text_of(folder / END)
    return None if text is None else LaunchEnd.model_validate_json(text)


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise BadSetting(
            f"folder {folder} of a launch can not be made: {error.strerror or error}; give "
            "--home a folder that can be written to"
        ) from error


def start_of(pid: int) -> str | None:
    """When a process started; None without such a process. A reused pid has another start."""
    if sys.platform != "linux":
        return _start_by_psutil(pid)
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name is in parentheses, and may itself hold spaces and parentheses.
    ticks = stat.rpartition(")")[2].split()[_STARTED]
    return f"{_BOOT_ID.read_text().strip()} {ticks}"


def _start_by_psutil(pid: int) -> str | None:
    try:
        return repr(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None


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
    """Create a file atomically. False when it exists already; it then stays as it is."""
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
    """A temporary file beside `path`, whose content is durable."""
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
