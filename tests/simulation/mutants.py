"""Does it find what it is for? Guards are removed in a copy, and histories must fail there.

A patch says in its head which invariant catches it, and with which histories:

    # simulation: no_write_under_an_old_term --single --shape 0 --match 'pause~4@c*'

Patches stand in tests/mutations when they remove the guard of a requirement, and here, in
mutations/, when they only serve the simulation. docs/explanation/simulation.md lists guards that
it can't see missing, because others stand behind them.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.mutants import copied_tree
from tools.requirement import MUTATIONS

OWN = Path(__file__).parent / "mutations"
LIMIT_S = 400
_SAID = re.compile(r"^# simulation: (?P<invariant>\w+) (?P<histories>--.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Meant:
    path: Path
    invariant: str
    histories: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.stem


def meant() -> list[Meant]:
    found: list[Meant] = []
    for path in sorted([*MUTATIONS.glob("*.patch"), *OWN.glob("*.patch")]):
        if (said := _SAID.search(path.read_text())) is not None:
            histories = tuple(shlex.split(said["histories"]))
            found.append(Meant(path, said["invariant"], histories))
    return found


def caught_by(mutant: Meant) -> tuple[str | None, str]:
    """The invariant that failed first in a copy without the guard, and what was printed."""
    with copied_tree() as copy:
        subprocess.run(["git", "apply", str(mutant.path)], cwd=copy, check=True)
        command = [sys.executable, "-m", "tests.simulation", "--processes", "1", *mutant.histories]
        done = subprocess.run(
            command,
            check=False,
            cwd=copy,
            env={**os.environ, "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}"},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    output = done.stdout + done.stderr
    failed = re.search(r"^seed \d+: (\w+): ", output, re.MULTILINE)
    quiet = re.search(r"without any fault: \[\('(\w+)'", output)
    found = failed or quiet
    return (found[1] if found else None), output[-3000:]
