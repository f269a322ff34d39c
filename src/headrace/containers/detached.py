"""Workers as processes of this machine that outlive the coordinator.

Each is in a session of its own and holds no pipe to us. Its launch has a folder,
<home>/containers/<container>/<resource>/<launch>/, where it claims the launch first thing
(claims.py) and its log lies. All that is asked later is asked of that folder and of the kernel, so
it is the same for the coordinator that started the worker, for one that was started again, and for
another one on this machine.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from headrace.clock import Clock, SystemClock
from headrace.config import OF_COORDINATORS, child_environment
from headrace.containers import claims, sessions
from headrace.containers.claims import Claim
from headrace.containers.folders import Folders, forget_secrets, is_over
from headrace.containers.identity import start_of
from headrace.containers.launching import (
    Elsewhere,
    Launch,
    Launched,
    LaunchState,
    LaunchStatus,
    Supports,
    Withdrawn,
)
from headrace.containers.properties import ContainerSetting, check_name
from headrace.containers.sessions import KILL_WAIT_S, POLL_S, SWEEPS_MAX
from headrace.containers.tail import last_lines
from headrace.errors import Refused, Unavailable
from headrace.seams import seam

FOLDER = "containers"  # below the home
LOG = "worker.log"
CLAIM_WAIT_MAX_S = 60.0  # Python starts in a second; a machine that swaps takes longer
SAID_LINES = 5
MARK = "HEADRACE_LAUNCH_DIR"  # in the environment of all that a launch starts: the launch's folder
# The coordinator's own: the store's password is no business of a worker.
NOT_INHERITED = (*OF_COORDINATORS, "HEADRACE_SEAMS")


@dataclass(frozen=True, slots=True)
class Prepared:
    """How the worker of a launch is to be started."""

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


Prepare = Callable[[Launch, Path], Prepared]  # the path is that of the launch's folder
Check = Callable[[str, Mapping[str, str], int], None]  # group, its properties, MB


def anything_goes(group: str, properties: Mapping[str, str], memory_mb: int) -> None:
    """Whoever prepares a launch takes whatever it is told."""


class DetachedWorkers:
    def __init__(
        self,
        setting: ContainerSetting,
        prepare: Prepare,
        *,
        supports: Supports,
        check: Check = anything_goes,
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
        claim = claims.read(folder) or self._spawn(launch, folder)
        if claim.withdrawn:
            raise Withdrawn(
                f"launch {launch.number} of resource {launch.resource!r} was stopped before its "
                "worker had begun, and is never started again; the next one has a new number"
            )
        found = {"pid": str(claim.pid), "host": claim.host, "log": str(folder / LOG)}
        return Launched({**found, **claims.noted(folder)})

    def stop(self, launch: Launch, *, grace_s: float) -> None:
        folder = self.folder(launch)
        claim = claims.withdraw(folder)
        if claim.is_here:
            process = claims.process_of(claim)
            if process is not None:
                _signal(process, signal.SIGTERM)
                self._wait_until(lambda: claims.process_of(claim) is None, grace_s)
            self._take_away(claim, folder)
        elif not is_over(folder):
            raise Elsewhere(
                f"launch {launch.number} of resource {launch.resource!r} is process {claim.pid} "
                f"on host {claim.host}, which can not be ended from here; end it there, if that "
                "host still runs"
            )
        forget_secrets(folder)

    def status(self, launch: Launch) -> LaunchStatus:
        folder = self.folder(launch)
        claim = claims.read(folder)
        if claim is None:
            return LaunchStatus(LaunchState.UNKNOWN, said="no process has claimed it here")
        if claim.withdrawn:
            return LaunchStatus(LaunchState.ENDED, said="it was stopped before it had begun")
        if not is_over(folder):
            if claim.is_here:
                return LaunchStatus(LaunchState.RUNNING)
            place = f"process {claim.pid} of host {claim.host}"
            said = f"it is {place}, which can not be asked from here"
            return LaunchStatus(LaunchState.UNKNOWN, said=said)
        forget_secrets(folder)
        end = claims.end(folder)
        said = "\n".join(self.logs(launch, lines=SAID_LINES))
        return LaunchStatus(LaunchState.ENDED, code=end.code if end else None, said=said)

    def logs(self, launch: Launch, *, lines: int) -> Sequence[str]:
        return last_lines(self.folder(launch) / LOG, lines)

    def folder(self, launch: Launch) -> Path:
        check_name("resource", launch.resource)
        return self._folders.root / launch.resource / str(launch.number)

    def _spawn(self, launch: Launch, folder: Path) -> Claim:
        """Start a process, and see who claims the launch: it, or another that was before it."""
        self._folders.forget_old(launch.resource, launch.number)
        claims.make_folder(folder)
        prepared = self._prepare(launch, folder)
        seam("launch, before its process")
        process = self._process(prepared, folder)
        seam("launch spawned, before its claim was seen")
        args = (process, start_of(process.pid), folder)
        threading.Thread(target=self._see_out, args=args, daemon=True).start()
        self._wait_until(
            lambda: claims.read(folder) is not None or process.poll() is not None, CLAIM_WAIT_MAX_S
        )
        claim = claims.read(folder)
        if claim is not None:
            return claim
        if process.poll() is None:
            return self._given_up(launch, folder, process)
        said = last_lines(folder / LOG, 1)
        raise Refused(
            f"container {self.name!r} could not start resource {launch.resource!r}: its process "
            f"ended with code {process.returncode} before it had begun"
            f"{f': {said[0]}' if said else ''}; its log is {folder / LOG}"
        )

    def _process(self, prepared: Prepared, folder: Path) -> subprocess.Popen[bytes]:
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

    def _given_up(self, launch: Launch, folder: Path, process: subprocess.Popen[bytes]) -> Claim:
        """It claimed nothing for too long: from now on it can't, so that it is not met later."""
        claim = claims.withdraw(folder)
        if not claim.withdrawn:
            return claim
        process.kill()
        raise Unavailable(
            f"container {self.name!r} could not start resource {launch.resource!r}: its process "
            f"had not begun after {CLAIM_WAIT_MAX_S:.0f} s; see what keeps this machine busy"
        )

    def _see_out(self, process: subprocess.Popen[bytes], started: str | None, folder: Path) -> None:
        """Wait for the end of a process that we started, for nobody else is told its code."""
        code = process.wait()
        claim = claims.read(folder)
        # On another host the pid may be that of the one that won; and ours may be renamed.
        if claim is not None and (claim.pid, claim.started) == (process.pid, started):
            claims.record_end(folder, code)
            self._sweep(claim, folder)
        if is_over(folder):  # also of one that came late, and wrote them down once more
            forget_secrets(folder)

    def _take_away(self, claim: Claim, folder: Path) -> None:
        process = claims.process_of(claim)
        if process is not None:
            _signal(process, signal.SIGKILL)
        self._sweep(claim, folder)
        if not self._wait_until(lambda: claims.process_of(claim) is None, KILL_WAIT_S):
            raise Unavailable(
                f"process {claim.pid} was killed and is still there after {KILL_WAIT_S:.0f} s; "
                "the kernel holds it, as it does while a disk or a network drive does not answer"
            )

    def _sweep(self, claim: Claim, folder: Path) -> None:
        """Kill what is left of its session. The number of one that is gone may be another's."""
        for _ in range(SWEEPS_MAX):
            left = [pid for pid in sessions.members(claim.session) if _has_mark(pid, folder)]
            if not left:
                return
            for pid in left:
                sessions.signal_process(pid, signal.SIGKILL)
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
        process.send_signal(number)  # psutil looks at the start time once more
    except psutil.NoSuchProcess:  # it ended since it was looked at
        return


def _has_mark(pid: int, folder: Path) -> bool:
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == str(
            folder
        )
    except (psutil.NoSuchProcess, psutil.AccessDenied):  # ended meanwhile, or somebody else's
        return False
