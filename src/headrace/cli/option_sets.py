"""Options that belong together stand in a class; a command takes all of them as one argument.

Each field of the class is an option of the command, with the field's annotation and default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import wraps
from typing import Any, get_type_hints


def taking(**sets: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Have a command take a set of options. `sets`: by the name of its argument."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [each for each in own_parameters(command) if each.name not in sets]
        added = {name: parameters_of(kind) for name, kind in sets.items()}
        every = [*own, *(each for found in added.values() for each in found)]

        @wraps(command)
        def run(**given: Any) -> None:
            for name, kind in sets.items():
                given[name] = kind(**{each.name: given.pop(each.name) for each in added[name]})
            command(**given)

        declare(run, every)
        return run

    return decorate


def declare(run: Callable[..., None], parameters: Sequence[inspect.Parameter]) -> None:
    """Have a wrapped command show these, whatever it takes itself."""
    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    del run.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]  it has other parameters


def own_parameters(command: Callable[..., None]) -> list[inspect.Parameter]:
    """What a command declares itself, by keyword, so that others can stand before and behind."""
    hints = get_type_hints(command, include_extras=True)
    return [
        each.replace(annotation=hints[each.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for each in inspect.signature(command).parameters.values()
    ]


def parameters_of(kind: type[Any]) -> list[inspect.Parameter]:
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
