"""A table as a person names it, or the name that was probably meant."""

from __future__ import annotations

from sqlalchemy import Connection

from headrace.errors import NotFound
from headrace.jobfile.suggest import nearest
from headrace.store import lake, lake_lists
from headrace.store.lake_rows import LakeTable

COMPARED_MAX = 2000  # names that a mistyped one is compared with
NAMED_MAX = 5  # that are offered


def known_table(conn: Connection, identifier: str) -> LakeTable:
    found = lake.named(conn, identifier)
    if found is None:
        raise NotFound("table", identifier, way_out=_way_out(conn, identifier))
    return found


def _way_out(conn: Connection, identifier: str) -> str:
    """Somebody left out the catalog, or mistyped a letter, or the table is not found yet."""
    last = identifier.rpartition(".")[2].strip("`")
    same = lake_lists.identifiers(conn, most=NAMED_MAX, name=last)
    if same:
        return f"did you mean {' or '.join(map(repr, same))}?"
    near = nearest(identifier, lake_lists.identifiers(conn, most=COMPARED_MAX))
    if near is not None:
        return f"did you mean {near!r}?"
    return (
        "it is written catalog.namespace.table; `headrace table list` shows those that are known, "
        "and `headrace catalog list` when each catalog was last looked into"
    )
