"""Does it find what it is for? Guards are removed in a copy, and histories must fail there.

A mutation says which invariant catches it, and with which histories:

    simulation = "no_write_under_an_old_term --single --shape 0 --match 'pause~4@c*'"

Mutations stand in tests/mutations when they remove the guard of a requirement, and here, in
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

from tools.mutants import copied_tree
from tools.mutation import Mutation, simulated_mutations

LIMIT_S = 3000


@dataclass(frozen=True, slots=True)
class Meant:
    mutation: Mutation
    invariant: str
    histories: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.mutation.name


def meant() -> list[Meant]:
    found: list[Meant] = []
    for mutation in simulated_mutations():
        invariant, *histories = shlex.split(mutation.simulation or "")
        found.append(Meant(mutation, invariant, tuple(histories)))
    return found


def caught_by(mutant: Meant) -> tuple[str | None, str]:
    """The invariant that failed first in a copy without the guard, and what was printed."""
    with copied_tree() as copy:
        mutant.mutation.apply(copy)
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
