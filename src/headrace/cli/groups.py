"""headrace group …, and headrace worker with a word behind it: groups and their workers.

The words are list, show, drain, resume, logs and release. Without one `headrace worker` is a worker
(serve.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.context import (
    AT_LEAST,
    CommandCall,
    Context,
    asks_coordinators,
    now_ms,
    pairs_of,
    show_all,
    show_one,
)
from headrace.errors import BadSetting
from headrace.model.groups import THREADS_MAX

if TYPE_CHECKING:
    from headrace.client.groups import GroupView

NO_GROUPS = "no groups yet; `headrace group create` makes one, and so does a worker that registers"
NO_WORKERS = "no workers"
LINES_SHOWN = 100
LINES_MAX = 1000

app = typer.Typer(
    help="See and change groups of workers.", no_args_is_help=True, rich_markup_mode=None
)
worker_app = typer.Typer(rich_markup_mode=None)

NameArgument = Annotated[str, typer.Argument(metavar="GROUP", help="Its name.")]
ContainerOption = Annotated[
    str | None,
    typer.Option("--container", help="Where its workers are started, as it is configured."),
]
FloorOption = Annotated[
    int | None,
    typer.Option("--min-parallelism", help="Threads that it always has; 0: none.", min=0),
]
MemoryOption = Annotated[
    int | None,
    typer.Option(
        "--memory", metavar="MB", help="Of each worker; 0: as its container has it.", min=0
    ),
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--scheduling-policy",
        metavar="POLICY",
        help="How its tables take turns: quota, balanced or benefit.  [default: the coordinator's]",
    ),
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="NAME=VALUE",
        help="As its container knows it, e.g. spark-conf.spark.executor.memory=4g; or a default of "
        "its tables, e.g. self-optimizing.quota=2; repeatable.",
    ),
]

WorkerArgument = Annotated[
    str, typer.Argument(metavar="WORKER", help=f"Its id, or how it begins: {AT_LEAST}.")
]
NamedArgument = Annotated[
    str,
    typer.Argument(
        metavar="WORKER|RESOURCE",
        help=f"The id of a worker or of a resource, or how it begins: {AT_LEAST}.",
    ),
]


@app.command()
@asks_coordinators
def create(
    call: CommandCall,
    name: NameArgument,
    container: ContainerOption = None,
    min_parallelism: FloorOption = None,
    memory: MemoryOption = None,
    policy: PolicyOption = None,
    properties: PropertyOption = None,
) -> None:
    """Make a group. With a floor its workers are started by themselves."""
    view = call.client.create_group(
        name,
        container=container,
        min_parallelism=min_parallelism or 0,
        memory_mb=memory or 0,
        policy=policy,
        properties=pairs_of(properties or [], "--property"),
    )
    _show(call.cli, view)


@app.command("list")
@asks_coordinators
def list_groups(call: CommandCall) -> None:
    """List groups: threads that are wanted, threads that work, and what comes next."""
    views = call.client.groups()
    from headrace.cli.group_text import groups_table

    show_all(call.cli, views, lambda: groups_table(views), none=NO_GROUPS)


@app.command()
@asks_coordinators
def show(call: CommandCall, name: NameArgument) -> None:
    """Show a group: its workers, its resources, what was given up, and what comes next."""
    _show(call.cli, call.client.group(name))


@app.command("set")
@asks_coordinators
def change(
    call: CommandCall,
    name: NameArgument,
    container: ContainerOption = None,
    min_parallelism: FloorOption = None,
    memory: MemoryOption = None,
    policy: PolicyOption = None,
    no_policy: Annotated[
        bool, typer.Option("--no-scheduling-policy", help="Use the coordinator's again.")
    ] = False,
    properties: PropertyOption = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Take a property away.")
    ] = None,
) -> None:
    """Change what is given, and nothing else. Workers that run stay as they are."""
    if no_policy and policy is not None:
        raise BadSetting(
            "--scheduling-policy and --no-scheduling-policy exclude each other; give one of them"
        )
    view = call.client.change_group(
        name,
        container=container,
        min_parallelism=min_parallelism,
        memory_mb=memory,
        policy="" if no_policy else policy,
        properties={
            **pairs_of(properties or [], "--property"),
            **dict.fromkeys(unset or []),
        },
    )
    _show(call.cli, view)


@app.command()
@asks_coordinators
def scale(
    call: CommandCall,
    name: NameArgument,
    threads: Annotated[
        int | None,
        typer.Option(help="Ask for one further worker of so many.", min=1, max=THREADS_MAX),
    ] = None,
    min_parallelism: FloorOption = None,
) -> None:
    """Ask for a further worker, or set the floor that is kept."""
    if (threads is None) == (min_parallelism is None):
        raise BadSetting(
            "`headrace group scale` takes --threads N for a further worker, or --min-parallelism N "
            "for the floor of the group; give one of them"
        )
    client = call.client
    if threads is None:
        _show(call.cli, client.change_group(name, min_parallelism=min_parallelism))
        return
    resource = client.scale_group(name, threads=threads)
    from headrace.cli.group_text import about_resource

    show_one(call.cli, resource, lambda: about_resource(resource, now_ms=now_ms()))


@app.command()
@asks_coordinators
def delete(
    call: CommandCall,
    name: NameArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Also when jobs or tables still use it.")
    ] = False,
) -> None:
    """Release the workers of a group that were started for it, then forget it."""
    view = call.client.delete_group(name, force=force)
    show_one(call.cli, view, lambda: [f"group {view.name} is {view.next}"])


def _show(cli: Context, view: GroupView) -> None:
    from headrace.cli.group_text import about_group

    show_one(cli, view, lambda: about_group(view, now_ms=now_ms()))


@worker_app.command("list")
@asks_coordinators
def list_workers(call: CommandCall) -> None:
    """List workers and what they run."""
    views = call.client.workers()
    from headrace.cli.group_text import workers_table

    show_all(call.cli, views, lambda: workers_table(views, now_ms=now_ms()), none=NO_WORKERS)


@worker_app.command("show")
@asks_coordinators
def show_worker(call: CommandCall, worker: WorkerArgument) -> None:
    """Show a worker: where it is, what it runs, and what becomes of it."""
    view = call.client.worker(call.client.full_id("worker", worker))
    from headrace.cli.group_text import about_worker

    show_one(call.cli, view, lambda: about_worker(view, now_ms=now_ms()))


@worker_app.command()
@asks_coordinators
def drain(call: CommandCall, worker: WorkerArgument) -> None:
    """Give a worker nothing more. What it holds, it finishes; it stays until it is ended."""
    view = call.client.drain_worker(call.client.full_id("worker", worker))
    from headrace.cli.group_text import about_drain

    show_one(call.cli, view, lambda: about_drain(view))


@worker_app.command()
@asks_coordinators
def resume(call: CommandCall, worker: WorkerArgument) -> None:
    """Take a drain back: the worker is given work again, as long as it is there."""
    view = call.client.resume_worker(call.client.full_id("worker", worker))
    from headrace.cli.group_text import about_resume

    show_one(call.cli, view, lambda: about_resume(view))


@worker_app.command()
@asks_coordinators
def logs(
    call: CommandCall,
    named: NamedArgument,
    lines: Annotated[int, typer.Option(help="Show so many.", min=1, max=LINES_MAX)] = LINES_SHOWN,
) -> None:
    """Show what a worker wrote last, as the container that started it has it."""
    view = call.client.resource_logs(_resource_id(call, named), lines=lines)
    if call.cli.output == "text" and view.note:
        typer.echo(view.note, err=True)
    show_one(call.cli, view, lambda: view.lines)


@worker_app.command()
@asks_coordinators
def release(call: CommandCall, named: NamedArgument) -> None:
    """End a worker that was started for a group, and what was asked for with it.

    It is given nothing more, and stopped when it holds nothing. The group's floor may ask for
    another one.
    """
    view = call.client.release_resource(_resource_id(call, named))
    show_one(call.cli, view, lambda: [f"resource {view.id} is released: {view.next}"])


def _resource_id(call: CommandCall, named: str) -> str:
    return call.client.full_id("resource", named)
