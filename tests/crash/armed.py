"""`headrace`, with a seam that a test arms while it runs: python -m tests.crash.armed FILE COMMAND…

FILE holds the seam to die at, or is not there; or several, one a line, to be passed one after
another: the last is the one to die at. Who meets that takes the file away, so that nobody dies
twice, and kills its whole process group: Python, JVM and all.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace import seams
from headrace.cli.main import main
from tests.crash.seam_list import Seam, all_seams, place_of


def dying(file: Path, name: str) -> Callable[[], None]:
    def meet() -> None:
        try:
            first, *others = file.read_text().splitlines()
        except FileNotFoundError:  # nothing is armed, or another has met it just now
            return
        # From what called `seam`, which called this.
        place = place_of(frame.filename for frame in inspect.stack(0)[2:])
        if first != str(Seam(place, name)):
            return
        if others:
            arm(file, others)
            return
        try:
            file.rename(file.with_suffix(".met"))
        except FileNotFoundError:  # it was disarmed, or another has met it
            return
        os.killpg(0, signal.SIGKILL)

    return meet


def arm(file: Path, passed: Sequence[object]) -> None:
    """Whoever runs with this file dies at the last of these seams."""
    scratch = file.with_suffix(".new")
    scratch.write_text("\n".join(str(seam) for seam in passed))
    scratch.rename(file)


if __name__ == "__main__":
    armed = Path(sys.argv.pop(1))
    for name in {seam.name for seam in all_seams()}:
        seams.arm(name, dying(armed, name))
    main()
