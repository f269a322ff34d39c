"""headrace group …: what is asked for, what there is, and what the keeper does next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.asking import Ask, asks, now_ms, show_all, show_one
from headrace.cli.context import Context, pairs_of
from headrace.errors import BadSetting
from headrace.model.groups.capacity import THREADS_MAX

if TYPE_CHECKING:
    from headrace.views_groups import GroupView

app = typer.Typer(
    help="See and change groups of workers.", no_args_is_help=True, rich_markup_mode=None
)

NO_GROUPS = "no groups yet; `headrace group create` makes one, and so does a worker that registers"

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


@app.command()
@asks
def create(
    ask: Ask,
    name: NameArgument,
    container: ContainerOption = None,
    min_parallelism: FloorOption = None,
    memory: MemoryOption = None,
    policy: PolicyOption = None,
    properties: PropertyOption = None,
) -> None:
    """Make a group. With a floor its workers are started by themselves."""
    view = ask.client.create_group(
        name,
        container=container,
        min_parallelism=min_parallelism or 0,
        memory_mb=memory or 0,
        policy=policy,
        properties=pairs_of(properties or [], "--property"),
    )
    _show(ask.cli, view)


@app.command("list")
@asks
def list_groups(ask: Ask) -> None:
    """List groups: threads that are wanted, threads that work, and what comes next."""
    views = ask.client.groups()
    from headrace.cli.group_text import groups_table

    show_all(ask.cli, views, lambda: groups_table(views), none=NO_GROUPS)


@app.command()
@asks
def show(ask: Ask, name: NameArgument) -> None:
    """Show a group: its workers, its resources, what was given up, and what comes next."""
    _show(ask.cli, ask.client.group(name))


@app.command("set")
@asks
def change(
    ask: Ask,
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
    view = ask.client.change_group(
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
    _show(ask.cli, view)


@app.command()
@asks
def scale(
    ask: Ask,
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
    client = ask.client
    if threads is None:
        _show(ask.cli, client.change_group(name, min_parallelism=min_parallelism))
        return
    made = client.scale_group(name, threads=threads)
    from headrace.cli.group_text import about_resource

    show_one(ask.cli, made, lambda: about_resource(made, now_ms=now_ms()))


@app.command()
@asks
def delete(
    ask: Ask,
    name: NameArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Also when jobs or tables still use it.")
    ] = False,
) -> None:
    """Release the workers of a group that were started for it, then forget it."""
    view = ask.client.delete_group(name, force=force)
    show_one(ask.cli, view, lambda: [f"group {view.name} is {view.next}"])


def _show(cli: Context, view: GroupView) -> None:
    from headrace.cli.group_text import about_group

    show_one(cli, view, lambda: about_group(view, now_ms=now_ms()))
