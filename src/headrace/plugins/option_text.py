"""What an option takes and means, in the words of the reference and of `headrace connectors show`.

Values and names stand in backticks, as they do in the sentences of options.
"""

from __future__ import annotations

import json

from headrace.plugins.options import Kind, Option

_ITEMS = {Kind.STRING: "texts", Kind.INT: "whole numbers", Kind.FLOAT: "numbers"}


def takes(option: Option) -> str:
    """Which values it accepts: its kind and limits, or its choices."""
    if option.choices:
        return ", ".join(f"`{choice}`" for choice in option.choices)
    kind = str(option.kind)
    if option.kind is Kind.LIST:
        kind += f" of {_ITEMS.get(option.items, 'values')}"
    limits = [
        f"{word} {limit:g}" if isinstance(limit, float) else f"{word} {limit}"
        for word, limit in (("at least", option.minimum), ("at most", option.maximum))
        if limit is not None
    ]
    return ", ".join([kind, *limits])


def default_of(option: Option) -> str:
    return "required" if option.required else shown(option.default)


def meaning(option: Option) -> str:
    """Its sentence, whether it is secret, and what of it is not built or has no effect."""
    parts = [" ".join(option.doc.split())] if option.doc else []
    if option.secret:
        parts.append("Sensitive: stored apart from the job, never shown.")
    if option.supported is not None:
        built = ", ".join(shown(value) for value in option.supported)
        parts.append(f"*Not built*, but for {built}." if built else f"It *{option.unsupported}*.")
    if option.idle:
        parts.append(no_effect(option.idle))
    return " ".join(parts)


def no_effect(why: str) -> str:
    return f"Accepted, with *no effect yet*: {' '.join(why.split())}."


def shown(value: object) -> str:
    """A value as it is written; nothing when there is none."""
    if value is None:
        return ""
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"
