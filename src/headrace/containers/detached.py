"""Workers as processes of this machine that outlive the coordinator, and their folders.

Each worker is in a session of its own and holds no pipe to us. Its launch has a folder,
<home>/containers/<container>/<resource>/<launch>/, where the process claims the launch before
anything else (claims.py) and where its log lies. All later questions go to that folder and to the
kernel, so they have the same answer for the coordinator that started the worker, for one that was
restarted, and for another one on this machine.

Secrets in a launch's folder are deleted as soon as its process has ended, logs when they are old. A
folder whose process lives is never removed. Which resources still exist is not known here, so each
start of a launch sweeps a few of the resources whose folders nobody has written to for days.
"""

from __future__ import annotations

import logging
import random
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from headrace.clock import Clock, SystemClock
from headrace.config import COORDINATOR_ONLY, child_environment
from headrace.containers import child_process, launch_claims
from headrace.containers.child_process import KILL_WAIT_S, POLL_S, SWEEPS_MAX, last_lines
from headrace.containers.container import (
    ContainerSetting,
    Elsewhere,
    Launch,
    Launched,
    LaunchState,
    LaunchStatus,
    Supports,
    Withdrawn,
    check_name,
)
from headrace.containers.launch_claims import LaunchClaim, start_of
from headrace.errors import BadSetting, Refused, Unavailable
from headrace.seams import seam

log = logging.getLogger(__name__)

SECRETS = "spark-secrets.conf"
LAUNCHES_KEPT_MAX = 10  # of each resource, for their logs
KEEP_FOLDERS_DAYS = 7  # after the last write to the folder
RESOURCES_SWEPT_MAX = 20  # by one start of a launch
_DAY_MS = 86_400_000
FOLDER = "containers"  # below the home
LOG = "worker.log"
CLAIM_WAIT_MAX_S = 60.0  # Python starts in a second, on a machine that swaps in more
STATUS_LOG_LINES = 5  # of the log, in the status of a launch that has ended
MARK = "HEADRACE_LAUNCH_DIR"  # the launch's folder, in the environment of all its processes
# Variables of the coordinator only: a worker must not get the store's password.
NOT_INHERITED = (*COORDINATOR_ONLY, "HEADRACE_SEAMS")


@dataclass(frozen=True, slots=True)
class PreparedStart:
    """How the worker of a launch is to be started."""

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


Prepare = Callable[[Launch, Path], PreparedStart]  # the path is that of the launch's folder
Check = Callable[[str, Mapping[str, str], int], None]  # group, its properties, memory in MB


def accept_anything(group: str, properties: Mapping[str, str], memory_mb: int) -> None:
    """The check of a container whose launches take any properties."""


class DetachedWorkers:
    """A `WorkerContainer` whose workers are processes of this machine that outlive this one."""

    def __init__(
        self,
        setting: ContainerSetting,
        prepare: Prepare,
        *,
        supports: Supports,
        check: Check = accept_anything,
        clock: Clock | None = None,
    ) -> None:
        check_name("container", setting.name)
        self.supports = supports
        self._setting = setting
        self._prepare, self._check = prepare, check
        self._clock: Clock = clock or SystemClock()
        self._folders = Folders(setting.home.absolute() / FOLDER / setting.name, self._clock)
        self._never = threading.Event()

    @property
    def name(self) -> str:
        return self._setting.name

    def check(self, group: str, properties: Mapping[str, str], *, memory_mb: int) -> None:
        self._check(group, properties, memory_mb)

    def start(self, launch: Launch) -> Launched:
        folder = self.folder(launch)
        claim = launch_claims.read(folder) or self._spawn(launch, folder)
        if claim.withdrawn:
            raise Withdrawn(
                f"launch {launch.number} of resource {launch.resource!r} was stopped before its "
                "worker had begun, and is never started again; the next one has a new number"
            )
        facts = {"pid": str(claim.pid), "host": claim.host, "log": str(folder / LOG)}
        return Launched({**facts, **launch_claims.noted(folder)})

    def stop(self, launch: Launch, *, grace_s: float) -> None:
        folder = self.folder(launch)
        claim = launch_claims.withdraw(folder)
        if claim.is_here:
            process = launch_claims.process_of(claim)
            if process is not None:
                _signal(process, signal.SIGTERM)
                self._wait_until(lambda: launch_claims.process_of(claim) is None, grace_s)
            self._kill(claim, folder)
        elif not is_over(folder):
            raise Elsewhere(
                f"launch {launch.number} of resource {launch.resource!r} is process {claim.pid} "
                f"on host {claim.host}, which can not be ended from here; end it there, if that "
                "host still runs"
            )
        forget_secrets(folder)

    def status(self, launch: Launch) -> LaunchStatus:
        folder = self.folder(launch)
        claim = launch_claims.read(folder)
        if claim is None:
            return LaunchStatus(LaunchState.UNKNOWN, said="no process has claimed it here")
        if claim.withdrawn:
            return LaunchStatus(LaunchState.ENDED, said="it was stopped before it had begun")
        if not is_over(folder):
            if claim.is_here:
                return LaunchStatus(LaunchState.RUNNING)
            place = f"process {claim.pid} of host {claim.host}"
            message = f"it is {place}, which can not be asked from here"
            return LaunchStatus(LaunchState.UNKNOWN, said=message)
        forget_secrets(folder)
        end = launch_claims.end(folder)
        message = "\n".join(self.logs(launch, lines=STATUS_LOG_LINES))
        return LaunchStatus(LaunchState.ENDED, code=end.code if end else None, said=message)

    def logs(self, launch: Launch, *, lines: int) -> Sequence[str]:
        return last_lines(self.folder(launch) / LOG, lines)

    def folder(self, launch: Launch) -> Path:
        check_name("resource", launch.resource)
        return self._folders.root / launch.resource / str(launch.number)

    def _spawn(self, launch: Launch, folder: Path) -> LaunchClaim:
        """Start a process; returns the claim of the launch, its own or that of an earlier one."""
        self._folders.forget_old(launch.resource, launch.number)
        launch_claims.make_folder(folder)
        prepared = self._prepare(launch, folder)
        seam("launch, before its process")
        process = self._process(prepared, folder)
        seam("launch spawned, before its claim was seen")
        args = (process, start_of(process.pid), folder)
        threading.Thread(target=self._wait_for_end, args=args, daemon=True).start()
        self._wait_until(
            lambda: launch_claims.read(folder) is not None or process.poll() is not None,
            CLAIM_WAIT_MAX_S,
        )
        claim = launch_claims.read(folder)
        if claim is not None:
            return claim
        if process.poll() is None:
            return self._give_up(launch, folder, process)
        tail = last_lines(folder / LOG, 1)
        raise Refused(
            f"container {self.name!r} could not start resource {launch.resource!r}: its process "
            f"ended with code {process.returncode} before it had begun"
            f"{f': {tail[0]}' if tail else ''}; its log is {folder / LOG}"
        )

    def _process(self, prepared: PreparedStart, folder: Path) -> subprocess.Popen[bytes]:
        environment = child_environment(PYTHONUNBUFFERED="1")
        for name in NOT_INHERITED:
            environment.pop(name, None)
        if self._setting.token:
            environment["HEADRACE_TOKEN"] = self._setting.token
        environment |= {**prepared.environment, MARK: str(folder)}
        try:
            with (folder / LOG).open("ab") as log:
                return subprocess.Popen(  # noqa: S603 - argv is ours, and no shell reads it
                    list(prepared.argv),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise Unavailable(
                f"container {self.name!r} could not start {prepared.argv[0]}: "
                f"{error.strerror or error}; see that this machine has room for it"
            ) from error

    def _give_up(
        self, launch: Launch, folder: Path, process: subprocess.Popen[bytes]
    ) -> LaunchClaim:
        """Withdraw a launch whose process did not claim it in time, so that it can't do so later.
        Returns the claim if it came at the last moment."""
        claim = launch_claims.withdraw(folder)
        if not claim.withdrawn:
            return claim
        process.kill()
        raise Unavailable(
            f"container {self.name!r} could not start resource {launch.resource!r}: its process "
            f"had not begun after {CLAIM_WAIT_MAX_S:.0f} s; see what keeps this machine busy"
        )

    def _wait_for_end(
        self, process: subprocess.Popen[bytes], started: str | None, folder: Path
    ) -> None:
        """Wait for the end of our child process: only its parent learns the exit code."""
        code = process.wait()
        claim = launch_claims.read(folder)
        # Not by host: the winner may be on another one with the same pid, and ours may be renamed.
        if claim is not None and (claim.pid, claim.started) == (process.pid, started):
            launch_claims.record_end(folder, code)
            self._sweep(claim, folder)
        if is_over(folder):  # a process that came too late has written them again
            forget_secrets(folder)

    def _kill(self, claim: LaunchClaim, folder: Path) -> None:
        process = launch_claims.process_of(claim)
        if process is not None:
            _signal(process, signal.SIGKILL)
        self._sweep(claim, folder)
        if not self._wait_until(lambda: launch_claims.process_of(claim) is None, KILL_WAIT_S):
            raise Unavailable(
                f"process {claim.pid} was killed and is still there after {KILL_WAIT_S:.0f} s; "
                "the kernel holds it, as it does while a disk or a network drive does not answer"
            )

    def _sweep(self, claim: LaunchClaim, folder: Path) -> None:
        """Kill what is left of the session. The id of a session that is gone may be reused, so only
        processes with our mark are killed."""
        for _ in range(SWEEPS_MAX):
            left = [
                pid
                for pid in child_process.session_members(claim.session)
                if _has_mark(pid, folder)
            ]
            if not left:
                return
            for pid in left:
                child_process.signal_process(pid, signal.SIGKILL)
            self._never.wait(POLL_S)

    def _wait_until(self, done: Callable[[], bool], limit_s: float) -> bool:
        deadline_s = self._clock.monotonic_s() + limit_s
        while not done():
            if self._clock.monotonic_s() >= deadline_s:
                return False
            self._never.wait(POLL_S)
        return True


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)  # psutil checks the start time once more
    except psutil.NoSuchProcess:  # it has ended meanwhile
        return


def _has_mark(pid: int, folder: Path) -> bool:
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == str(
            folder
        )
    except (psutil.NoSuchProcess, psutil.AccessDenied):  # it has ended, or belongs to another user
        return False


def is_over(folder: Path) -> bool:
    """Whether it is certain that the launch has no process, and will never have one again."""
    claim = launch_claims.read(folder)
    if claim is None:
        return False
    if claim.withdrawn or launch_claims.end(folder) is not None:
        return True
    return claim.is_here and launch_claims.process_of(claim) is None


def forget_secrets(folder: Path) -> None:
    """Delete the secrets of a launch that is over."""
    try:
        (folder / SECRETS).unlink(missing_ok=True)
    except OSError as error:
        facts = {"path": str(folder / SECRETS), "reason": error.strerror or str(error)}
        log.warning("a file of a launch can not be deleted; delete it", extra=facts)


class Folders:
    """The folders of one container, ROOT/RESOURCE/LAUNCH/, and how old ones are removed."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self.root = root
        self._clock = clock

    def forget_old(self, resource: str, number: int) -> None:
        """Remove old folders before launch `number` gets its own. Errors are only logged."""
        with _failures_logged(self.root):
            for each in self._idle(but=resource):
                with _failures_logged(each):
                    self._forget_resource(each)
        with _failures_logged(self.root / resource):
            for path in _launches(self.root / resource):
                with _failures_logged(path):
                    if int(path.name) <= number - LAUNCHES_KEPT_MAX:
                        self._forget_superseded(path)

    def _idle(self, *, but: str) -> list[Path]:
        """A random sample of the resources that got no launch for long, so that each of them has
        its turn, however many of them still run."""
        old = [each for each in _inside(self.root) if each.name != but and self._is_old(each)]
        return random.sample(old, min(len(old), RESOURCES_SWEPT_MAX))

    def _forget_resource(self, resource: Path) -> None:
        launches = sorted(_launches(resource), key=lambda path: int(path.name))
        for path in launches:
            if not self._is_unwritten(path):
                continue
            if path != launches[-1]:
                self._forget_superseded(path)
            elif launch_claims.read(path) is None or is_over(path):
                shutil.rmtree(path)
            elif _is_elsewhere(path):  # Spark read its secrets at its start, long ago
                forget_secrets(path)
        if not _inside(resource):
            resource.rmdir()  # fails if another coordinator has put something there

    def _forget_superseded(self, launch: Path) -> None:
        """Remove the folder of a launch that later ones followed. Such a launch is refused when it
        registers, and ends, wherever it runs. So it counts as ended when it is on another host
        and has written nothing for long."""
        silent = _is_elsewhere(launch) and self._is_unwritten(launch)
        if silent or launch_claims.read(launch) is None or is_over(launch):
            shutil.rmtree(launch)

    def _is_unwritten(self, folder: Path) -> bool:
        return all(self._is_old(path) for path in (folder, *_inside(folder)))

    def _is_old(self, path: Path) -> bool:
        age_ms = self._clock.wall_ms() - path.stat().st_mtime_ns // 1_000_000
        return age_ms > KEEP_FOLDERS_DAYS * _DAY_MS


@contextmanager
def _failures_logged(path: Path) -> Generator[None]:
    """Log, and do not raise, that a folder can't be removed."""
    try:
        yield
    except FileNotFoundError:  # another coordinator was faster
        return
    except (OSError, BadSetting) as error:
        facts = {"path": str(path), "reason": str(error)}
        log.warning("an old folder of launches can not be removed; remove it", extra=facts)


def _is_elsewhere(launch: Path) -> bool:
    claim = launch_claims.read(launch)
    return claim is not None and not claim.is_here


def _launches(resource: Path) -> list[Path]:
    return [path for path in _inside(resource) if path.name.isdecimal()]


def _inside(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []
