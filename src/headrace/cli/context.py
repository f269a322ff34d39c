"""What every command needs: its settings, a client, and a way to show an answer.

Imports of anything heavy stand inside functions here and in the command modules: `--help` must
answer at once, and pydantic, httpx2 and rich together take longer to load than that.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headrace.errors import ID_PREFIX_MIN, BadSetting

if TYPE_CHECKING:
    from httpx2 import BaseTransport
    from rich.console import Console

    from headrace.client import Client
    from headrace.config import Settings

DEFAULT_GROUP = "default"
AT_LEAST = f"at least {ID_PREFIX_MIN} characters"  # of an id that is not typed to its end
WIDTH_ELSEWHERE = 200  # characters
HOME_MODE = 0o700  # store and logs may name what only their owner should read

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Store, warehouse, logs.  [default: HEADRACE_HOME or .headrace]"),
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
    output: Output = "text"
    verbose: int = 0
    transport: BaseTransport | None = field(default=None)  # tests: answers without a network

    @classmethod
    def of(cls, ctx: typer.Context, output: Output | None = None) -> Context:
        """`output`: as the command itself was given it."""
        found = ctx.find_object(cls)
        assert found is not None, "the root command makes the context"
        return replace(found, output=output) if output else found

    def settings(self, *, home: Path | None = None) -> Settings:
        from headrace.config import Settings

        settings = Settings()
        return settings.model_copy(update={"home": (home or settings.home).absolute()})

    def make_home(self, settings: Settings) -> None:
        """Make the folder of the store and logs; what is in it is nobody else's business."""
        try:
            settings.home.mkdir(mode=HOME_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise BadSetting(
                f"--home {settings.home} can not be made: {error.strerror or error}; "
                "choose another folder"
            ) from error

    def log_to_stderr(self) -> None:
        """Logs of a command that serves nobody: quiet unless asked."""
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
        """`known_from`: what is told when nobody answers there."""
        from headrace.client import Client

        token = settings.token.get_secret_value() if settings.token else None
        return Client(urls, token=token, transport=self.transport, known_from=known_from)

    def show_json(self, answer: object) -> None:
        typer.echo(json.dumps(answer, indent=2, default=str))

    def stdout(self) -> Console:
        from rich.console import Console

        # Where nobody sees a screen, a table is as wide as it needs: a log is no place for folds.
        width = None if sys.stdout.isatty() else WIDTH_ELSEWHERE
        return Console(highlight=False, width=width)

    def stderr(self) -> Console:
        from rich.console import Console

        return Console(stderr=True, highlight=False)


def urls_of(text: str) -> list[str]:
    """The addresses that were typed. What can't be shown in a message is refused here."""
    from headrace.client import check_address

    check_address(text)
    return [url.strip() for url in text.split(",") if url.strip()]


def pairs_of(values: Sequence[str], option: str) -> Mapping[str, str]:
    """NAME=VALUE texts as a mapping; the last one of a name wins."""
    pairs: dict[str, str] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise BadSetting(f"{option} takes NAME=VALUE, and {text!r} is not of that form")
        pairs[name.strip()] = value
    return pairs
