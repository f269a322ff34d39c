"""What launches leave on disk: secrets go as soon as the process has ended, logs when they are old.

A folder whose process lives is never removed. Which resources there still are is not known here, so
those are swept that nobody wrote to for days, a few with every start of another launch.
"""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from headrace.clock import Clock
from headrace.containers import claims
from headrace.errors import BadSetting

SECRETS = "spark-secrets.conf"
LAUNCHES_KEPT_MAX = 10  # of a resource, for their logs
KEEP_FOLDERS_DAYS = 7  # after the last word that was written there
RESOURCES_SWEPT_MAX = 20  # with one start
_DAY_MS = 86_400_000

log = logging.getLogger(__name__)


def is_over(folder: Path) -> bool:
    """Whether it is certain that the launch has no process, and gets none any more."""
    claim = claims.read(folder)
    if claim is None:
        return False
    if claim.withdrawn or claims.end(folder) is not None:
        return True
    return claim.is_here and claims.process_of(claim) is None


def forget_secrets(folder: Path) -> None:
    """Of a launch that is over."""
    try:
        (folder / SECRETS).unlink(missing_ok=True)
    except OSError as error:
        facts = {"path": str(folder / SECRETS), "reason": error.strerror or str(error)}
        log.warning("a file of a launch can not be deleted; delete it", extra=facts)


class Folders:
    """Of one container: ROOT/RESOURCE/LAUNCH/."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self.root = root
        self._clock = clock

    def forget_old(self, resource: str, number: int) -> None:
        """Before launch `number` of the resource gets its folder. Never the reason why it fails."""
        with _told(self.root):
            for each in self._idle(but=resource):
                with _told(each):
                    self._forget_resource(each)
        with _told(self.root / resource):
            for path in _launches(self.root / resource):
                with _told(path):
                    if int(path.name) <= number - LAUNCHES_KEPT_MAX:
                        self._forget_followed(path)

    def _idle(self, *, but: str) -> list[Path]:
        """Some of the resources that got no launch for long, by chance: so that each has its turn,
        however many of them run on."""
        found = [each for each in _inside(self.root) if each.name != but and self._is_old(each)]
        return random.sample(found, min(len(found), RESOURCES_SWEPT_MAX))

    def _forget_resource(self, resource: Path) -> None:
        launches = sorted(_launches(resource), key=lambda path: int(path.name))
        for path in launches:
            if not self._is_unwritten(path):
                continue
            if path != launches[-1]:
                self._forget_followed(path)
            elif claims.read(path) is None or is_over(path):
                shutil.rmtree(path)
            elif _is_elsewhere(path):  # Spark has long read it, when it was started
                forget_secrets(path)
        if not _inside(resource):
            resource.rmdir()  # and not what another one puts there meanwhile

    def _forget_followed(self, launch: Path) -> None:
        """One that later ones followed: it is refused when it registers, and ends, wherever it
        runs. So it counts as ended when its host can't be asked and it has been silent for long."""
        silent = _is_elsewhere(launch) and self._is_unwritten(launch)
        if silent or claims.read(launch) is None or is_over(launch):
            shutil.rmtree(launch)

    def _is_unwritten(self, folder: Path) -> bool:
        return all(self._is_old(path) for path in (folder, *_inside(folder)))

    def _is_old(self, path: Path) -> bool:
        age_ms = self._clock.wall_ms() - path.stat().st_mtime_ns // 1_000_000
        return age_ms > KEEP_FOLDERS_DAYS * _DAY_MS


@contextmanager
def _told(path: Path) -> Generator[None]:
    """What can't be removed is told, and stops nobody."""
    try:
        yield
    except FileNotFoundError:  # another coordinator was before us
        return
    except (OSError, BadSetting) as error:
        facts = {"path": str(path), "reason": str(error)}
        log.warning("an old folder of launches can not be removed; remove it", extra=facts)


def _is_elsewhere(launch: Path) -> bool:
    claim = claims.read(launch)
    return claim is not None and not claim.is_here


def _launches(resource: Path) -> list[Path]:
    return [path for path in _inside(resource) if path.name.isdecimal()]


def _inside(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []
