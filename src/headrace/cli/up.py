"""headrace up: all of it on this machine, until Ctrl-C."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.context import Context, HomeOption, pairs_of


def up(
    ctx: typer.Context,
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65_535)] = 7300,
    slots: Annotated[int, typer.Option(help="Pipelines at a time.", min=1, max=1000)] = 2,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A Spark setting; repeatable.")
    ] = None,
    spark_master: Annotated[str, typer.Option(help="As spark-submit takes it.")] = "local[*]",
    home: HomeOption = None,
) -> None:
    """Keep a coordinator and a worker running here."""
    cli = Context.of(ctx)
    from headrace.cli.local import Shape
    from headrace.cli.standing import keep_up

    settings = cli.settings(home=home)
    spark_conf = pairs_of(conf or [], "--conf")
    cli.make_home(settings)
    keep_up(cli, settings, Shape(settings.home, slots, spark_master, spark_conf, port))
