"""Which tables a catalog has."""

from __future__ import annotations

import re
from collections.abc import Callable

from headrace.errors import Refused
from headrace.formats.iceberg.listing import Namespace, list_tables
from headrace.protocol.tables import TABLES_PER_CATALOG_MAX, Discovered, DiscoverPayload
from headrace.worker.tables.work import Work

FILTER_CHARACTERS_MAX = 500  # a longer pattern may take for ever; a command refuses it as well
_LEVEL = "\x1f"  # between the levels of a namespace, as Iceberg's REST protocol has it


def discover(work: Work, told: DiscoverPayload) -> Discovered:
    work.begins(f"listing the tables of {work.catalog.name}")
    listed = list_tables(
        work.session,
        work.catalog,
        wanted=_wanted(told),
        tables_max=TABLES_PER_CATALOG_MAX,
        heard=work.heard,
    )
    return Discovered(
        tables={_LEVEL.join(here): tuple(names) for here, names in listed.tables.items()},
        filtered=listed.others,
        failed={_LEVEL.join(here): work.safe(why) for here, why in listed.failed.items()},
    )


def _wanted(told: DiscoverPayload) -> Callable[[Namespace, str], bool]:
    """By `namespace.table`, all of it."""
    text = told.table_filter
    if text is None:
        return lambda _here, _name: True
    if len(text) > FILTER_CHARACTERS_MAX:
        raise _bad(told, f"has {len(text)} characters, and {FILTER_CHARACTERS_MAX} are the limit")
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise _bad(told, f"is {text!r}, which is no regular expression: {error}") from None
    return lambda here, name: pattern.fullmatch(".".join((*here, name))) is not None


def _bad(told: DiscoverPayload, problem: str) -> Refused:
    name = told.catalog.name
    return Refused(
        f"the filter of catalog {name!r} {problem}; expected one for `namespace.table`, such as "
        f"sales\\..*: `headrace catalog set {name} --filter REGEX`"
    )
