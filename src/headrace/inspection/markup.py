"""HTML and SVG that no name can break: a text is escaped unless it is markup already."""

from __future__ import annotations

import html


class Markup(str):
    """Text that was made by `element` or is a constant of ours."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    if isinstance(text, Markup):
        return text
    # Control characters are allowed in a table's name, and in no page.
    printable = (each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    return Markup(html.escape("".join(printable), quote=True))


def element(
    name: str, *children: str, attributes: dict[str, str | float] | None = None, cls: str = ""
) -> Markup:
    """`<name …>children</name>`; `cls` is its class."""
    told = {**({"class": cls} if cls else {}), **(attributes or {})}
    written = "".join(f' {key}="{escaped(_value(value))}"' for key, value in told.items())
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*parts: str) -> Markup:
    return Markup("".join(escaped(part) for part in parts))


def _value(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"
