"""What every command needs: its settings, a client of coordinators, a way to show an answer.

`asks_coordinators` gives a command the options of all commands that ask coordinators, and
`takes_options` a class of options as one argument: each field of the class is an option, with the
field's annotation and default.

Imports of anything heavy stay inside of functions, here and in the command modules: `--help` must
answer at once, and pydantic, httpx2 and rich together take longer to load than that.
"""

from __future__ import annotations

import inspect
import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from headrace.errors import ID_PREFIX_MIN, BadSetting

if TYPE_CHECKING:
    from httpx2 import BaseTransport
    from rich.console import Console
    from rich.table import Table

    from headrace.client.client import Client
    from headrace.client.views import View
    from headrace.config import Settings

DEFAULT_GROUP = "default"
AT_LEAST = f"at least {ID_PREFIX_MIN} characters"  # of an id that is not typed in full
WIDTH_WITHOUT_TERMINAL = 200  # characters
HOME_MODE = 0o700  # store and logs are for their owner to read

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Store, warehouse, logs.  [default: HEADRACE_HOME or .headrace]"),
]
AllowJarsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-jars",
        help="Jars that jobs may ask for; repeatable.  [default: HEADRACE_ALLOW_JARS, or none]",
        metavar="GROUP:ARTIFACT",
    ),
]
CoordinatorOption = Annotated[
    str | None,
    typer.Option(
        "--coordinator",
        metavar="URL[,URL]",
        help="Coordinators to ask.  [default: the one `headrace up` started in --home]",
    ),
]
Output = Literal["text", "json"]
OutputOption = Annotated[
    Output | None, typer.Option("--output", help="As before the command, and wins over it.")
]


@dataclass(frozen=True, slots=True)
class Context:
    """What the root command was given, for all commands below it."""

    output: Output = "text"
    verbose: int = 0
    transport: BaseTransport | None = field(default=None)  # tests: answers without a network

    @classmethod
    def of(cls, ctx: typer.Context, output: Output | None = None) -> Context:
        """`output`: as it was given behind the command, which wins."""
        context = ctx.find_object(cls)
        assert context is not None, "the root command makes the context"
        return replace(context, output=output) if output else context

    def settings(self, *, home: Path | None = None) -> Settings:
        from headrace.config import Settings

        settings = Settings()
        return settings.model_copy(update={"home": (home or settings.home).absolute()})

    def make_home(self, settings: Settings) -> None:
        """Make the folder of store and logs, readable by its owner only."""
        try:
            settings.home.mkdir(mode=HOME_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise BadSetting(
                f"--home {settings.home} can not be made: {error.strerror or error}; "
                "choose another folder"
            ) from error

    def log_to_stderr(self) -> None:
        """Logging of a command that does not serve: quiet unless asked for."""
        from headrace.logs import set_up

        levels = {0: "ERROR", 1: "INFO"}
        set_up(level=levels.get(self.verbose, "DEBUG"), fmt="text")
        if self.verbose < 3:
            logging.getLogger("httpcore2").setLevel(logging.WARNING)

    def client(
        self,
        urls: Sequence[str],
        settings: Settings,
        *,
        known_from: Callable[[], str] | None = None,
    ) -> Client:
        """`known_from`: tells where the addresses came from, when none of them answers."""
        from headrace.client.client import Client

        token = settings.token.get_secret_value() if settings.token else None
        return Client(urls, token=token, transport=self.transport, known_from=known_from)

    def show_json(self, answer: object) -> None:
        typer.echo(json.dumps(answer, indent=2, default=str))

    def stdout(self) -> Console:
        from rich.console import Console

        # Without a terminal a table is as wide as it needs: a log should have no folded lines.
        width = None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL
        return Console(highlight=False, width=width)

    def stderr(self) -> Console:
        from rich.console import Console

        return Console(stderr=True, highlight=False)


@dataclass(frozen=True, slots=True)
class CoordinatorOptions:
    """Options of every command that asks coordinators."""

    coordinator: CoordinatorOption = None
    home: HomeOption = None
    output: OutputOption = None


class CommandCall:
    """One call of a command that asks coordinators: its context, and its client."""

    def __init__(
        self, ctx: typer.Context, coordinator: str | None, home: Path | None, output: Output | None
    ) -> None:
        self.cli = Context.of(ctx, output)
        self._coordinator, self._home = coordinator, home

    @cached_property
    def client(self) -> Client:
        from headrace.cli.local import up_file

        self.cli.log_to_stderr()
        settings = self.cli.settings(home=self._home)
        addresses = urls_of(self._coordinator or "")
        return self.cli.client(
            up_file.coordinators(settings.home, addresses),
            settings,
            known_from=lambda: up_file.known_from(settings.home, addresses),
        )


def asks_coordinators(command: Callable[..., None]) -> Callable[..., None]:
    """Have a command ask coordinators: it gets a `CommandCall` first, and the options of
    `CoordinatorOptions` behind its own."""
    _, *own_options = own_parameters(command)
    shared_options = parameters_of(CoordinatorOptions)

    @wraps(command)
    def run(*, ctx: typer.Context, **arguments: Any) -> None:
        call = CommandCall(ctx, **{each.name: arguments.pop(each.name) for each in shared_options})
        command(call, **arguments)

    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    set_signature(run, [context, *own_options, *shared_options])
    return run


def takes_options(**classes: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Have a command take whole classes of options. `classes`: by the name of the argument."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own_options = [each for each in own_parameters(command) if each.name not in classes]
        added = {name: parameters_of(kind) for name, kind in classes.items()}
        all_options = [*own_options, *(each for options in added.values() for each in options)]

        @wraps(command)
        def run(**arguments: Any) -> None:
            for name, kind in classes.items():
                arguments[name] = kind(
                    **{each.name: arguments.pop(each.name) for each in added[name]}
                )
            command(**arguments)

        set_signature(run, all_options)
        return run

    return decorate


def set_signature(run: Callable[..., None], parameters: Sequence[inspect.Parameter]) -> None:
    """Have a wrapped command declare these parameters, whatever it takes itself."""
    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    del run.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]  it has other parameters


def own_parameters(command: Callable[..., None]) -> list[inspect.Parameter]:
    """What a command declares itself; keyword-only, so that others can precede and follow."""
    hints = get_type_hints(command, include_extras=True)
    return [
        each.replace(annotation=hints[each.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for each in inspect.signature(command).parameters.values()
    ]


def parameters_of(kind: type[Any]) -> list[inspect.Parameter]:
    """The fields of a class of options, as parameters."""
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=each.default,
            annotation=hints[each.name],
        )
        for each in fields(kind)
    ]


def urls_of(text: str) -> list[str]:
    """The addresses that were typed. Raises when they can't be shown in a message."""
    from headrace.client.client import check_address

    check_address(text)
    return [url.strip() for url in text.split(",") if url.strip()]


def pairs_of(values: Sequence[str], option: str) -> Mapping[str, str]:
    """NAME=VALUE texts as a mapping; the last value of a name wins."""
    pairs: dict[str, str] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise BadSetting(f"{option} takes NAME=VALUE, and {text!r} is not of that form")
        pairs[name.strip()] = value
    return pairs


def allowed_jars(given: Sequence[str] | None, settings: Settings) -> Sequence[str]:
    """Patterns of jars that jobs may ask for: those of the option, or else of the environment."""
    from headrace.plugins.jars import pattern_flaw, patterns_in

    setting = "--allow-jars" if given else "environment variable HEADRACE_ALLOW_JARS"
    patterns = given or patterns_in(settings.allow_jars)
    for each in patterns:
        if (flaw := pattern_flaw(each)) is not None:
            raise BadSetting(f"{setting}: {each!r} {flaw}")
    return patterns


def show_all(cli: Context, views: Sequence[View], table: Callable[[], Table], *, none: str) -> None:
    """Show a list as a table, or as JSON as the coordinator sent it; `none` when it is empty."""
    if cli.output == "json":
        cli.show_json([view.model_dump(mode="json") for view in views])
    elif views:
        cli.stdout().print(table())
    else:
        typer.echo(none)


def show_one(cli: Context, view: View, lines: Callable[[], Sequence[str]]) -> None:
    """Show a view as lines, or as JSON as the coordinator sent it."""
    if cli.output == "json":
        cli.show_json(view.model_dump(mode="json"))
        return
    for line in lines():
        typer.echo(line)


def now_ms() -> int:
    from headrace.clock import SystemClock

    return SystemClock().wall_ms()
