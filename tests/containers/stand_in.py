"""A worker without Spark: `python -m tests.containers.stand_in worker --launch-dir D …`.

It claims its launch as a real one does, writes who it is, and waits to be ended.

    STAND_IN=deaf      SIGTERM does not end it
    STAND_IN=fails     ends with code 3 before it has claimed
    STAND_IN=mute      never claims
    STAND_IN_HOLD=F    claims only once the file F is there
    STAND_IN_NOTES=D   notes in a file RESOURCE-LAUNCH of the folder D that it works
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

from headrace.containers.launch_claims import claim_launch

LOOK_S = 0.02
LIFE_MAX_S = 100  # a test that fails leaves nothing for ever
SLEEPS = f"import time; time.sleep({LIFE_MAX_S})"


def option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


def main() -> None:
    signal.alarm(LIFE_MAX_S)
    kind = os.environ.get("STAND_IN", "")
    folder = Path(option("--launch-dir"))
    with (folder.parent / "started").open("a") as said:
        said.write(f"{os.getpid()}\n")
    if kind == "fails":
        sys.exit("no luck today")
    hold = os.environ.get("STAND_IN_HOLD")
    while kind == "mute" or (hold and not Path(hold).exists()):
        Event().wait(LOOK_S)
    if kind == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    mine = claim_launch(option("--resource-id"), int(option("--launch")), folder)
    assert mine is not None
    # In a group of its own, as Spark's Python daemons are.
    child = subprocess.Popen([sys.executable, "-c", SLEEPS], process_group=0)
    sys.stderr.write(f"{os.getpid()} {child.pid}\n")
    mine.note_application(spark_application="app-1")
    sys.stderr.write("works\n")
    if notes := os.environ.get("STAND_IN_NOTES"):
        with (Path(notes) / f"{option('--resource-id')}-{option('--launch')}").open("a") as note:
            note.write(f"{os.getpid()} {child.pid}\n")
    signal.pause()


if __name__ == "__main__":
    main()
