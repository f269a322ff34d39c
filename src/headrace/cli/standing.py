"""What `headrace up` does: bring the machine up, say where it is, look after it, take it down."""

from __future__ import annotations

import os

import typer

from headrace.cli import upfile
from headrace.cli.context import Context
from headrace.cli.interrupts import Interrupts, Stopped, interrupts
from headrace.cli.local import Machine, Shape
from headrace.cli.progress import display
from headrace.client import Client
from headrace.clock import SystemClock
from headrace.config import Settings
from headrace.errors import BadSetting
from headrace.worker.java import find_java

SUPERVISE_EVERY_S = 0.5
STOP_MAX_S = 28.0  # with running jobs; a worker that runs nothing is gone in a third of it


def keep_up(cli: Context, settings: Settings, shape: Shape) -> None:
    """Serve until a stop is wanted, or a child gave up for good."""
    cli.log_to_stderr()

    def make_client(url: str) -> Client:
        return cli.client([url], settings)

    if found := upfile.find(shape.home, make_client):
        raise BadSetting(
            f"`headrace up` already runs for {shape.home}: {found.address}, pid {found.pid}; "
            "use it, stop it, or choose another folder with --home"
        )
    find_java()
    machine = Machine(shape, make_client)
    with interrupts(machine.kill) as wanted:
        try:
            _bring_up(cli, machine, wanted)
            content = upfile.UpFile(address=machine.url, pid=os.getpid())
            with upfile.written(shape.home, content):
                _announce(cli, machine)
                while not wanted.wait(SUPERVISE_EVERY_S):
                    for line in (*machine.new_output(), *machine.supervise()):
                        typer.echo(line, err=True)
        except Stopped:
            typer.echo("stopped before it was up", err=True)
        finally:
            machine.stop(within_s=STOP_MAX_S)


def _bring_up(cli: Context, machine: Machine, wanted: Interrupts) -> None:
    with display(cli.stderr(), SystemClock()) as shown:
        client = machine.start(wanted, shown.doing)
        machine.wait_for_worker(client, wanted, shown.doing)
        client.close()


def _announce(cli: Context, machine: Machine) -> None:
    if cli.output == "json":
        cli.show_json({"address": machine.url, "pid": os.getpid(), "children": machine.pids})
    else:
        typer.echo(f"headrace is up at {machine.url}; Ctrl-C stops it")
