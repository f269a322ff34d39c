"""Arguments that commands about tables share."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.errors import BadSetting

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="catalog.namespace.name, as `table list` shows it.")
]
TYPES = ("MINOR", "MAJOR", "FULL")


def type_of(text: str) -> str:
    """As a user writes it, in either case."""
    if text.upper() not in TYPES:
        raise BadSetting(
            f"--type {text!r} is no type of optimizing; take minor (small files and deletes), "
            "major (and undersized files) or full (and everything else that gains)"
        )
    return text.upper()
