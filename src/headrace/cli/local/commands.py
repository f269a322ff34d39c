"""headrace up and headrace doctor.

`up` keeps a coordinator and a worker on this machine until Ctrl-C; `doctor` checks whether the
machine is fit for that, and if not, says what to do.
"""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli import exits
from headrace.cli.context import (
    AllowJarsOption,
    Context,
    HomeOption,
    OutputOption,
    allowed_jars,
    pairs_of,
)
from headrace.cli.store import SecretKeyFileOption

STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def up(
    ctx: typer.Context,
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65_535)] = 7300,
    slots: Annotated[int, typer.Option(help="Pipelines at a time.", min=1, max=1000)] = 2,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A Spark setting; repeatable.")
    ] = None,
    spark_master: Annotated[str, typer.Option(help="As spark-submit takes it.")] = "local[*]",
    allow_jars: AllowJarsOption = None,
    home: HomeOption = None,
) -> None:
    """Keep a coordinator and a worker running here."""
    cli = Context.of(ctx)
    from headrace.cli.local.supervisor import MachineShape, keep_up

    settings = cli.settings(home=home)
    spark_conf = pairs_of(conf or [], "--conf")
    allowed = allowed_jars(allow_jars, settings)
    cli.make_home(settings)
    shape = MachineShape(settings.home, slots, spark_master, spark_conf, port, allow_jars=allowed)
    keep_up(cli, settings, shape)


def doctor(
    ctx: typer.Context,
    store: Annotated[
        str | None,
        typer.Option(
            help="The store to look at.  [default: HEADRACE_STORE, or store.db in --home]",
            metavar="URL",
        ),
    ] = None,
    secret_key_file: SecretKeyFileOption = None,
    fetch: Annotated[bool, typer.Option("--fetch", help="Fetch jars that are missing.")] = False,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Check this machine, and say how to mend it.

    Looks at Python, Java, jars, the store, ports and disk; exits 2 when something is wrong.
    """
    cli = Context.of(ctx, output)
    from headrace.cli.local.checks import examine

    settings = cli.settings(home=home)

    def say(text: str) -> None:
        typer.echo(text, err=True)

    url = store or (settings.store.get_secret_value() if settings.store else None)
    results = examine(
        settings, store_url=url, fetch=fetch, say=say, secret_key_file=secret_key_file
    )
    if cli.output == "json":
        cli.show_json([result.as_dict() for result in results])
    else:
        console = cli.stdout()
        for result in results:
            console.print(f"[{STYLES[result.verdict]}]{result.verdict:4}[/]", end="  ")
            console.print(f"{result.subject}: {result.text}", markup=False, soft_wrap=True)
    if any(result.verdict == "fail" for result in results):
        raise typer.Exit(exits.REFUSED)
