"""`headrace`, with a seam that a test arms while it runs: python -m tests.crash.armed FILE COMMAND…

FILE holds the seam to die at, or is not there. Who meets it takes the file away, so that nobody
dies twice, and kills its whole process group: Python, JVM and all.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from headrace import seams
from headrace.cli.main import main
from tests.crash.seam_list import SOURCE, Seam, seams_of_an_epoch


def dying(file: Path, name: str) -> Callable[[], None]:
    def meet() -> None:
        if not file.exists():
            return
        place = Path(inspect.stack(0)[2].filename)  # of what called `seam`, which called this
        if file.read_text() == str(Seam(place.relative_to(SOURCE).as_posix(), name)):
            file.rename(file.with_suffix(".met"))
            os.killpg(0, signal.SIGKILL)

    return meet


if __name__ == "__main__":
    armed = Path(sys.argv.pop(1))
    for name in {seam.name for seam in seams_of_an_epoch()}:
        seams.arm(name, dying(armed, name))
    main()
