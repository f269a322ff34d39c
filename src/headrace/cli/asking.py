"""What commands share that ask coordinators and show the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from headrace.cli.context import Context, urls_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rich.table import Table

    from headrace.client import Client
    from headrace.views import View


def client_of(cli: Context, coordinator: str | None, home: Path | None) -> Client:
    from headrace.cli import upfile

    cli.log_to_stderr()
    settings = cli.settings(home=home)
    return cli.client(upfile.coordinators(settings.home, urls_of(coordinator or "")), settings)


def show_all(cli: Context, views: Sequence[View], table: Callable[[], Table], *, none: str) -> None:
    """As a table, or as what the coordinator said; `none` when there is nothing to show."""
    if cli.output == "json":
        cli.show_json([view.model_dump(mode="json") for view in views])
    elif views:
        cli.stdout().print(table())
    else:
        typer.echo(none)


def show_one(cli: Context, view: View, lines: Callable[[], Sequence[str]]) -> None:
    if cli.output == "json":
        cli.show_json(view.model_dump(mode="json"))
        return
    for line in lines():
        typer.echo(line)


def now_ms() -> int:
    from headrace.clock import SystemClock

    return SystemClock().wall_ms()
