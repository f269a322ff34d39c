"""What commands share that ask coordinators: whom they ask, and how they show the answer."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headrace.cli.context import (
    Context,
    CoordinatorOption,
    HomeOption,
    Output,
    OutputOption,
    urls_of,
)
from headrace.cli.option_sets import declare, own_parameters, parameters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

    from headrace.client import Client
    from headrace.views import View


@dataclass(frozen=True, slots=True)
class Where:
    """Options of every command that asks coordinators."""

    coordinator: CoordinatorOption = None
    home: HomeOption = None
    output: OutputOption = None


class Ask:
    """A command that was given: how it answers, and whom it asks."""

    def __init__(
        self, ctx: typer.Context, coordinator: str | None, home: Path | None, output: Output | None
    ) -> None:
        self.cli = Context.of(ctx, output)
        self._coordinator, self._home = coordinator, home

    @cached_property
    def client(self) -> Client:
        from headrace.cli import upfile

        self.cli.log_to_stderr()
        settings = self.cli.settings(home=self._home)
        given = urls_of(self._coordinator or "")
        return self.cli.client(
            upfile.coordinators(settings.home, given),
            settings,
            known_from=lambda: upfile.known_from(settings.home, given),
        )


def asks(command: Callable[..., None]) -> Callable[..., None]:
    """Have a command ask coordinators: it takes an `Ask` first, and has the options of `Where`
    behind its own."""
    _, *own = own_parameters(command)
    where = parameters_of(Where)

    @wraps(command)
    def run(*, ctx: typer.Context, **given: Any) -> None:
        ask = Ask(ctx, **{each.name: given.pop(each.name) for each in where})
        command(ask, **given)

    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    declare(run, [context, *own, *where])
    return run


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
