"""What a catalog may be told, and what is refused before anything is written.

A mistake that shows only when a worker looks into the catalog is found minutes later, in a list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.errors import BadSetting
from headrace.jobfile.suggest import hint
from headrace.logs import is_secret
from headrace.model.names import check_name
from headrace.model.redaction import secret_places
from headrace.model.tables.settings import PROPERTIES, OptimizingSettings

# By type: properties without which nobody reaches such a catalog.
TYPES: Mapping[str, tuple[str, ...]] = {
    "jdbc": ("uri", "warehouse"),
    "rest": ("uri",),
    "hive": (),  # hive-site.xml may say where it is
    "glue": (),
    "hadoop": ("warehouse",),
}
PROPERTIES_MAX = 100  # of one catalog
VALUE_MAX = 4000  # characters
FILTER_MAX = 500  # characters


def check_catalog_name(name: str) -> None:
    """It is the first part of an identifier, so it has no point in it."""
    check_name("catalog name", name)
    if "." in name:
        raise BadSetting(
            f"catalog name {name!r} can't be used: the point stands between the parts of a "
            "table's name; take '_' or '-' instead"
        )


def check_type(name: str, kind: str) -> None:
    if kind not in TYPES:
        raise BadSetting(
            f"catalog {name!r} can't be of type {kind!r}; {hint(kind, TYPES, noun='types')}"
        )


def check_reach(name: str, kind: str, properties: Mapping[str, str]) -> None:
    """All that a catalog of the type can't be reached without."""
    missing = [needed for needed in TYPES[kind] if not properties.get(needed)]
    if missing:
        raise BadSetting(
            f"a {kind} catalog needs {' and '.join(missing)}, and {name!r} has none; add "
            + " ".join(f"--property {needed}=…" for needed in missing)
        )


def check_properties(name: str, properties: Mapping[str, str]) -> None:
    _check_texts(f"catalog {name!r}", properties)
    if "type" in properties:
        raise BadSetting(f"catalog {name!r} has its type already; leave property 'type' out")
    for key, value in properties.items():
        if not is_secret(key) and secret_places(value):
            raise BadSetting(
                f"property {key!r} of catalog {name!r} has a password in its URI, where everybody "
                "who looks at the catalog would read it; take it out and give it as a property of "
                "its own, e.g. --property jdbc.password=…"
            )


def check_defaults(of: str, defaults: Mapping[str, str]) -> None:
    """A default that can't be read is refused here, rather than a flaw of each of its tables."""
    _check_texts(of, defaults)
    known = {prop.name for prop in PROPERTIES}
    for key in defaults:
        if key not in known:
            raise BadSetting(
                f"default {key!r} of {of} would change nothing: Headrace knows no such "
                f"table property; {hint(key, sorted(known), noun='table properties')}"
            )
    _, flaws = OptimizingSettings.read({}, defaults)
    if flaws:
        flaw = flaws[0]
        raise BadSetting(
            f"default {flaw.name} of {of} is {flaw.value!r}, expected {flaw.expected}; "
            f"give such a value, or leave it out: then {flaw.used} holds"
        )


def check_filter(name: str, table_filter: str) -> None:
    if len(table_filter) > FILTER_MAX:
        raise BadSetting(
            f"the filter of catalog {name!r} has {len(table_filter)} characters, and "
            f"{FILTER_MAX} is the most; name namespaces instead of tables, e.g. 'sales\\..*'"
        )
    try:
        re.compile(table_filter)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadSetting(
            f"the filter of catalog {name!r} is not a regular expression: {error}; write one that "
            "matches namespace.table, e.g. 'sales\\..*'"
        ) from error


def _check_texts(what: str, properties: Mapping[str, str]) -> None:
    if len(properties) > PROPERTIES_MAX:
        raise BadSetting(
            f"{what} has {len(properties)} properties, and {PROPERTIES_MAX} is the most"
        )
    for key, value in properties.items():
        if not key or "\0" in key + value or max(len(key), len(value)) > VALUE_MAX:
            raise BadSetting(
                f"property {key[:100]!r} of {what} can't be used; a name and a value have up to "
                f"{VALUE_MAX} characters, and none of them is NUL"
            )
