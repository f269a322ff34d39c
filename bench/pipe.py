"""Talk to a child by lines of JSON; an answer that does not come has a limit."""

from __future__ import annotations

import json
import selectors
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.processes import START_MAX_S, Child, NotMeasured, child

ANSWER_MAX_S = 300.0


@dataclass(frozen=True, slots=True)
class Talk:
    child: Child

    def ask(self, **asked: Any) -> dict[str, Any]:
        assert self.child.popen.stdin is not None
        self.child.check()
        self.child.popen.stdin.write(json.dumps(asked).encode() + b"\n")
        self.child.popen.stdin.flush()
        return self.hear(ANSWER_MAX_S)

    def hear(self, limit_s: float) -> dict[str, Any]:
        stdout = self.child.popen.stdout
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(limit_s):
                raise NotMeasured(f"{self.child.name} gave no answer within {limit_s:.0f} s")
        line = stdout.readline()  # one whole line for each question, so nothing stays buffered
        if not line:
            self.child.popen.wait(limit_s)
            self.child.check()
        return json.loads(line)


@contextmanager
def talk(name: str, command: Sequence[str], *, folder: Path) -> Generator[Talk]:
    """A child that says once that it is ready, then answers each line with one."""
    with child(name, command, folder=folder, piped=True) as started:
        said = Talk(started)
        said.hear(START_MAX_S)
        yield said
