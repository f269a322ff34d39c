"""headrace job logs: what was said about a job, by whoever led and by its workers."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.asking import Ask, asks
from headrace.cli.context import AT_LEAST, Context

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.cli.interrupts import Interrupts
    from headrace.client import Client
    from headrace.clock import Clock
    from headrace.views import LogLineView, LogList

TAIL = 1000  # lines, when nobody says how many
TAIL_MAX = 10_000  # lines: as many as coordinators keep of a job
POLL_S = 0.5
QUIET_LOOKS = 2  # after the end of the job, without a line: a worker says its last soon
COORDINATOR_AWAY_MAX_S = 600.0
WORKER_CHARS = 8  # of a worker's name, for people


@asks
def logs(
    ask: Ask,
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help=f"Its id, or how it begins: {AT_LEAST}; or its incarnation, as `job history` "
            "has it.",
        ),
    ],
    tail: Annotated[
        int, typer.Option(help="Begin with at most so many lines.", min=0, max=TAIL_MAX)
    ] = TAIL,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show what comes, until the job has ended.")
    ] = False,
) -> None:
    """Show what was said about a job, by coordinators and workers."""
    client = ask.client
    job = client.full_id("job", job)
    first = client.logs(job, tail=tail)
    _show(ask.cli, first)
    if not follow:
        if not first.lines and tail:
            typer.echo(f"no log lines of job {job} are kept: none yet, or no more", err=True)
        return
    from headrace.cli.interrupts import interrupts
    from headrace.clock import SystemClock

    with interrupts(lambda: None) as wanted:
        for found in _further(client, job, first, wanted, SystemClock()):
            _show(ask.cli, found)
        if wanted.wait(0):
            raise typer.Exit(wanted.exit_code)


def _further(
    client: Client, job: str, found: LogList, wanted: Interrupts, clock: Clock
) -> Iterator[LogList]:
    """What comes after the first lines, until the job has ended or a stop is wanted."""
    from headrace.cli.calls import leavable
    from headrace.cli.interrupts import Stopped
    from headrace.errors import LogsGone, Unavailable

    quiet, away, heard_s = 0, False, clock.monotonic_s()
    while quiet < QUIET_LOOKS and not wanted.wait(POLL_S):
        try:
            found = leavable(partial(client.logs, job, after=found.cursor), wanted=wanted)
        except Stopped:
            return
        except LogsGone as error:  # nothing more will come
            typer.echo(str(error), err=True)
            return
        except Unavailable:
            if not away:
                typer.echo("no coordinator answers; waiting for one", err=True)
            away = True
            if clock.monotonic_s() - heard_s > COORDINATOR_AWAY_MAX_S:
                raise
            continue
        away, heard_s = False, clock.monotonic_s()
        quiet = quiet + 1 if found.ended and not found.lines else 0
        yield found


def _show(cli: Context, found: LogList) -> None:
    for line in found.lines:
        if cli.output == "json":
            typer.echo(json.dumps(line.model_dump(mode="json")))
        else:
            typer.echo(_text(line))


def _text(line: LogLineView) -> str:
    from headrace.cli.summary import moment

    at = f"{moment(line.at_ms)}.{line.at_ms % 1000:03}"
    # What a job read may stand in an error; it must not steer the terminal.
    said = "".join(sign if sign.isprintable() else "?" for sign in line.text)
    return f"{at} {line.level:<7} {_who(line.source):<15}  {said}"


def _who(source: str) -> str:
    name, _, _ = source.partition("/")
    return name if name == "coordinator" else f"worker {name[:WORKER_CHARS]}"
